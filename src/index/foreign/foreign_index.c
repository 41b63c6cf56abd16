/* Shards told by wds2idx: read, and proved bit by bit. */
#include "index/foreign/foreign_index.h"

#include "base/mem.h"
#include "format/compress/decompress.h"
#include "format/tar/wds_name.h"
#include "index/foreign/dali_index.h"
#include "index/foreign/energon_index.h"
#include "index/foreign/header_check.h"
#include "index/string_table.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 512, PROBES = 16, END_BYTES_MAX = 32 << 10 };

struct stk_told {
    struct stk_io *io;
    _Atomic uint64_t helped; /* tars whose starts were right */
    pthread_mutex_t lock;
    char note[1024]; /* under the lock until the scans are over */
};

/* Steps return 0, 1: it is not used, why says it, or what nothing survives. */
struct reading {
    struct stk_io *io;
    struct stk_file *tar; /* owned */
    struct stk_view text; /* owned */
    struct stk_stat about_tar, about_text;
    struct stk_shard_builder *builder; /* owned */
    uint64_t probed;                   /* up to this byte of the tar */
    char path[STK_PATH_BYTES_MAX];     /* of the foreign index */
    char why[320];
};

static int open_both(struct reading *reading, const char *path, struct stoker_error *error);
static int read_text(struct reading *reading, struct stoker_error *error);
static int refuse_error(struct reading *reading, const struct stoker_error *why,
                        struct stoker_error *error);
static int fill(struct reading *reading, struct stoker_error *error);
static int probe(struct reading *reading, const struct stk_dali_member *member);
static int check_end(struct reading *reading, uint64_t end);

int stk_told_open(struct stk_told **told_out, struct stk_io *io, struct stoker_error *error)
{
    struct stk_told *told = stk_alloc(1, sizeof *told);

    *told_out = told;
    if (!told) {
        return stk_fail(error, -ENOMEM, "cannot open a data set", "free memory", "foreign index");
    }
    told->io = io;
    pthread_mutex_init(&told->lock, NULL);
    return 0;
}

void stk_told_close(struct stk_told *told)
{
    if (told) {
        pthread_mutex_destroy(&told->lock);
        stk_free(told);
    }
}

uint64_t stk_told_shards(const struct stk_index *index)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < stk_index_shards(index); i++) {
        count += stk_index_unproved(index, (uint32_t)i);
    }
    return count;
}

int stk_told_refuse(const struct stk_index *index, struct stoker_error *error)
{
    uint64_t count = stk_told_shards(index);

    return count == 0
               ? 0
               : stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                          "the data set was opened by indexes that another tool made",
                          "open it with foreign = never", "%llu shards", (unsigned long long)count);
}

const char *stk_told_note(const struct stk_told *told)
{
    return told ? told->note : "";
}

__attribute__((format(printf, 2, 3))) static void add_note(struct stk_told *told,
                                                           const char *format, ...)
{
    __builtin_va_list list;

    pthread_mutex_lock(&told->lock);
    if (!told->note[0]) {
        __builtin_va_start(list, format);
        vsnprintf(told->note, sizeof told->note, format, list);
        __builtin_va_end(list);
    }
    pthread_mutex_unlock(&told->lock);
}

void stk_told_compare(struct stk_told *told, const struct stk_shards *shards,
                      const struct stk_index *index)
{
    if (!shards->told || shards->count != stk_index_shards(index)) {
        return;
    }
    for (uint64_t i = 0; i < shards->count; i++) {
        uint64_t samples = stk_index_shard_samples(index, (uint32_t)i);
        uint64_t bytes = stk_index_shard_bytes(index, (uint32_t)i);

        if (shards->samples[i] != STK_WIDS_UNTOLD && shards->samples[i] != samples) {
            add_note(told, "'%.600s' has %llu samples, not %llu as the JSON of wids says",
                     shards->paths[i], (unsigned long long)samples,
                     (unsigned long long)shards->samples[i]);
        } else if (shards->bytes[i] != STK_WIDS_UNTOLD && shards->bytes[i] != bytes) {
            add_note(told, "'%.600s' has %llu bytes, not %llu as the JSON of wids says",
                     shards->paths[i], (unsigned long long)bytes,
                     (unsigned long long)shards->bytes[i]);
        }
    }
}

int stk_told_scan(struct stk_told *told, struct stk_index *index, uint32_t shard, const char *path,
                  struct stoker_error *error)
{
    struct reading *reading;
    int status;

    /* The members of a joined sample do not lie in the order of its numbers. */
    if (stk_index_join_distance(index) > 0) {
        return 0;
    }
    reading = stk_alloc(1, sizeof *reading);
    if (!reading) {
        return stk_fail(error, -ENOMEM, "cannot read an index", "free memory", "'%s'", path);
    }
    reading->io = told->io;
    status = open_both(reading, path, error);
    status = status == 0 ? read_text(reading, error) : status;
    status = status == 0 ? stk_shard_begin(index, shard, path, &reading->builder, error) : status;
    status = status == 0 ? fill(reading, error) : status;
    if (status == 0) {
        struct stoker_error why = {0};

        stk_shard_unproved(reading->builder);
        status = stk_shard_end(reading->builder, reading->about_tar.bytes, STK_PLAIN, &why);
        status = status < 0 ? refuse_error(reading, &why, error) : 0;
        reading->builder = NULL;
    }
    if (status > 0 && reading->why[0]) {
        add_note(told, "'%.600s' is not used: %s", reading->path, reading->why);
    }
    stk_shard_abandon(reading->builder);
    if (reading->tar) {
        stk_io_close_file(told->io, reading->tar);
    }
    stk_free((void *)(uintptr_t)reading->text.data);
    stk_free(reading);
    return status < 0 ? status : status == 0;
}

__attribute__((format(printf, 2, 3))) static int refuse(struct reading *reading, const char *format,
                                                        ...)
{
    __builtin_va_list list;

    __builtin_va_start(list, format);
    vsnprintf(reading->why, sizeof reading->why, format, list);
    __builtin_va_end(list);
    return 1;
}

/* "a/b-0.x.tar" -> "a/b-0.idx", as wds2idx names what it writes. false: too long. */
static bool name_index(const char *path, char *name_out)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t bytes = base + (base[0] ? 1 + strcspn(base + 1, ".") : 0) - path;

    if (bytes + sizeof ".idx" > STK_PATH_BYTES_MAX) {
        return false;
    }
    memcpy(name_out, path, bytes);
    memcpy(name_out + bytes, ".idx", sizeof ".idx");
    return true;
}

static int open_both(struct reading *reading, const char *path, struct stoker_error *error)
{
    struct stk_io *io = reading->io;
    int status;

    if (!name_index(path, reading->path) ||
        stk_io_stat_path(io, reading->path, &reading->about_text, NULL) < 0 ||
        reading->about_text.kind != STK_ENTRY_FILE) {
        return 1; /* as nearly always: there is none */
    }
    status = stk_io_open_file(io, path, &reading->tar, error);
    status = status < 0 ? status : stk_io_stat_file(io, reading->tar, &reading->about_tar, error);
    if (status == 0 && reading->about_text.mtime_ns < reading->about_tar.mtime_ns) {
        return refuse(reading, "it is older than its shard");
    }
    return status;
}

static int read_text(struct reading *reading, struct stoker_error *error)
{
    struct stk_io *io = reading->io;
    uint64_t bytes = reading->about_text.bytes;
    struct stk_file *file = NULL;
    uint8_t *text;
    int64_t got;

    if (bytes > STK_DALI_BYTES_MAX) {
        return refuse(reading, "it is longer than 1 GiB");
    }
    if (stk_io_open_file(io, reading->path, &file, NULL) < 0) {
        return refuse(reading, "it cannot be opened");
    }
    text = stk_alloc(bytes + 1, 1);
    got = text ? stk_io_read_wait(io, file, 0, text, bytes) : 0;
    stk_io_close_file(io, file);
    if (!text) {
        return stk_fail(error, -ENOMEM, "cannot read an index", "free memory", "'%.300s'",
                        reading->path);
    }
    reading->text = (struct stk_view){text, got < 0 ? 0 : (size_t)got};
    return got < 0 ? refuse(reading, "it cannot be read: %s", stoker_status_text((int)got)) : 0;
}

/* An error of what is only tried: all but a lack of memory is a reason to scan. */
static int refuse_error(struct reading *reading, const struct stoker_error *why,
                        struct stoker_error *error)
{
    if (why->status == -ENOMEM) {
        if (error) {
            *error = *why;
        }
        return -ENOMEM;
    }
    return refuse(reading, "%s: %.200s", why->what, why->where);
}

static int fill(struct reading *reading, struct stoker_error *error)
{
    struct stk_dali dali;
    struct stk_dali_member member, last = {0};
    struct stk_view key, extension;
    struct stoker_error why = {0};
    uint64_t end = 0; /* of the last member that is part of a sample */
    int more = stk_dali_open(&dali, reading->text, &why), status = 0;

    while (more >= 0 && status == 0) {
        more = stk_dali_next(&dali, &member, &why);
        if (more <= 0) {
            break;
        }
        if (!stk_wds_split(member.name, &key, &extension)) {
            continue;
        }
        if (member.offset - end > STK_TOLD_GAP_MAX) {
            return refuse(reading, "more than %u bytes lie between two members", STK_TOLD_GAP_MAX);
        }
        end = stk_round_up(member.offset + member.bytes, BLOCK);
        if (member.offset >= reading->probed) {
            status = probe(reading, &member);
            reading->probed = member.offset + reading->about_tar.bytes / PROBES;
        }
        if (status == 0) {
            more = stk_shard_add(reading->builder, member.name, member.offset, member.bytes, &why);
            more = more < 0 ? more : 1;
        }
        last = member;
    }
    if (more < 0) {
        return refuse_error(reading, &why, error);
    }
    status = status == 0 && last.offset > 0 ? probe(reading, &last) : status;
    return status == 0 ? check_end(reading, dali.end) : status;
}

/* Whether a member is where it is told to be. */
static int probe(struct reading *reading, const struct stk_dali_member *member)
{
    uint8_t room[STK_TOLD_GAP_MAX];
    struct stk_view headers = {room, member->offset - member->before};
    struct stk_claim told = {.bytes = member->bytes};
    const char *why;
    int64_t got = stk_io_read_wait(reading->io, reading->tar, member->before, room, headers.bytes);

    if (got < 0 || (uint64_t)got < headers.bytes) {
        return refuse(reading, "the shard is shorter, or cannot be read");
    }
    stk_wds_split(member->name, &told.key, &told.extension);
    return stk_headers_fit(headers, &told, &why) == 0 ? 0 : refuse(reading, "%s", why);
}

/* Behind the last member there are zeros, and nothing else: no member and no other tar. */
static int check_end(struct reading *reading, uint64_t end)
{
    uint8_t room[END_BYTES_MAX];
    uint64_t rest = reading->about_tar.bytes - stk_min(end, reading->about_tar.bytes);
    bool zeros = rest >= BLOCK && rest <= sizeof room;
    int64_t got = zeros ? stk_io_read_wait(reading->io, reading->tar, end, room, rest) : 0;

    zeros = zeros && got == (int64_t)rest;
    for (uint64_t i = 0; zeros && i < rest; i++) {
        zeros = room[i] == 0;
    }
    return zeros ? 0
                 : refuse(reading, "the shard ends before the last member, or goes on behind it");
}

int stk_told_before(const struct stk_index *index, const struct stk_sample *sample,
                    uint64_t sample_id, uint32_t member, uint64_t *offset_out,
                    struct stoker_error *error)
{
    struct stk_sample before = *sample;
    struct stk_member last;
    int status = 0;

    *offset_out = 0;
    if (member == 0) {
        if (sample->number == 0) {
            return 0; /* the shard's first */
        }
        status = stk_index_sample(index, sample_id - 1, &before, error);
        member = before.member_count;
    }
    status = status < 0 ? status : stk_index_member(index, &before, member - 1, &last, error);
    if (status == 0) {
        *offset_out = stk_round_up(last.offset + last.bytes, BLOCK);
    }
    return status;
}

int stk_told_check(const struct stk_index *index, struct stk_view headers, struct stk_view key,
                   const struct stk_member *member, struct stoker_error *error)
{
    const char *extension = stk_index_extension(index, member->extension);
    struct stk_claim told = {.key = key,
                             .extension = {(const uint8_t *)extension, strlen(extension)},
                             .bytes = member->bytes};
    const char *why;
    int fits = stk_headers_fit(headers, &told, &why);

    if (fits == -ENOMEM) {
        return stk_fail(error, fits, "cannot check a member", "free memory", "%s", why);
    }
    return fits == 0 ? 0
                     : stk_fail(error, STOKER_ERROR_CHANGED,
                                "the index beside a shard tells of another shard",
                                "remove the .idx file, or make it anew with wds2idx", "%s", why);
}

/* ---- Energon ---------------------------------------------------------------------------- */

/* The index as a whole: it is small, and what contradicts itself is not worth a read. */
static int choose_starts(struct reading *reading, struct stk_told_starts *starts)
{
    struct stk_energon energon;
    struct stoker_error why = {0};
    int status = stk_energon_open(&energon, reading->text, reading->about_tar.bytes, &why);

    if (status < 0) {
        return refuse_error(reading, &why, NULL);
    }
    starts->samples = energon.samples;
    starts->count = stk_min(energon.samples, STK_TOLD_STARTS_MAX);
    for (uint64_t i = 0; i < starts->count; i++) {
        starts->starts[i] = stk_energon_offset(&energon, energon.samples / starts->count * i);
    }
    return 0;
}

int stk_told_starts(struct stk_told *told, const char *path, uint64_t tar_bytes,
                    struct stk_told_starts *starts_out, struct stoker_error *error)
{
    size_t bytes = strlen(path);
    struct reading *reading;
    int status = 1;

    *starts_out = (struct stk_told_starts){.count = 0};
    if (bytes < 4 || strcmp(path + bytes - 4, ".tar") != 0 || bytes + 5 > STK_PATH_BYTES_MAX) {
        return 0;
    }
    reading = stk_alloc(1, sizeof *reading);
    if (!reading) {
        return stk_fail(error, -ENOMEM, "cannot read an index", "free memory", "'%s'", path);
    }
    reading->io = told->io;
    snprintf(reading->path, sizeof reading->path, "%s.idx", path);
    if (stk_io_stat_path(told->io, reading->path, &reading->about_text, NULL) == 0 &&
        reading->about_text.kind == STK_ENTRY_FILE) {
        status = stk_io_stat_path(told->io, path, &reading->about_tar, error);
        if (status == 0 && reading->about_text.mtime_ns < reading->about_tar.mtime_ns) {
            status = refuse(reading, "it is older than its shard");
        }
        reading->about_tar.bytes = tar_bytes;
        status = status == 0 ? read_text(reading, error) : status;
        status = status == 0 ? choose_starts(reading, starts_out) : status;
    }
    if (status > 0 && reading->why[0]) {
        add_note(told, "'%.600s' is not used: %s", reading->path, reading->why);
    }
    stk_free((void *)(uintptr_t)reading->text.data);
    stk_free(reading);
    return status < 0 ? status : 0;
}

void stk_told_proved(struct stk_told *told, const char *path, const struct stk_told_starts *starts,
                     uint64_t refuted, uint64_t samples)
{
    if (!told || starts->count == 0) {
        return;
    }
    if (refuted != UINT64_MAX) {
        add_note(told, "'%.600s.idx' is wrong: no member begins at byte %llu", path,
                 (unsigned long long)refuted);
    } else if (samples != starts->samples) {
        add_note(told, "'%.600s' has %llu samples, not %llu as its .idx says", path,
                 (unsigned long long)samples, (unsigned long long)starts->samples);
    } else {
        atomic_fetch_add_explicit(&told->helped, 1, memory_order_relaxed);
    }
}

uint64_t stk_told_helped(const struct stk_told *told)
{
    return told ? atomic_load_explicit(&told->helped, memory_order_relaxed) : 0;
}

/* ---- wids ------------------------------------------------------------------------------- */

/* The shards of the listing with what the JSON says of each, if it does. */
static int align(struct stk_told *told, const struct stk_shards *named,
                 const struct stk_told_listing *listing, struct stk_shards *shards)
{
    struct stk_words words = {0};
    uint64_t matched = 0;
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < named->count; i++) {
        struct stk_view path = {(const uint8_t *)named->paths[i], strlen(named->paths[i])};
        uint32_t number;

        status = stk_words_intern(&words, path, STK_SHARDS_MAX, &number);
        if (status == 0 && number != i) {
            add_note(told, "the JSON of wids names '%.600s' twice", named->paths[i]);
            status = 1; /* numbers would be out of step */
        }
    }
    for (uint64_t i = 0; status == 0 && i < listing->count; i++) {
        const char *path = listing->text + listing->paths[i];
        int64_t at = stk_words_find(&words, (struct stk_view){(const uint8_t *)path, strlen(path)});

        if (at < 0) {
            add_note(told, "the JSON of wids does not name '%.600s'", path);
        }
        status = stk_shards_add(shards, path, at < 0 ? STK_WIDS_UNTOLD : named->samples[at],
                                at < 0 ? STK_WIDS_UNTOLD : named->bytes[at]);
        matched += at >= 0;
    }
    if (status == 0 && matched < named->count) {
        add_note(told, "the JSON of wids names %llu shards that are not there",
                 (unsigned long long)(named->count - matched));
    }
    shards->told = status == 0;
    stk_words_deinit(&words);
    return status < 0 ? -ENOMEM : 0;
}

int stk_told_beside(struct stk_told *told, const char *folder,
                    const struct stk_told_listing *listing, struct stk_shards *shards_out,
                    struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX];
    const char *url = path;
    struct stk_shards named;
    struct stoker_error why = {0};
    struct stk_stat about;
    int status = snprintf(path, sizeof path, "%sshardindex.json", folder);

    *shards_out = (struct stk_shards){0};
    if (status >= (int)sizeof path || stk_io_stat_path(told->io, path, &about, NULL) < 0 ||
        about.kind != STK_ENTRY_FILE) {
        return 0;
    }
    status = stk_shards_expand(&named, told->io, &url, 1, &why);
    if (status == 0) {
        status = align(told, &named, listing, shards_out);
    } else if (status != -ENOMEM) {
        add_note(told, "'%.600s' is not used: %s: %.200s", path, why.what, why.where);
        status = 0;
    }
    stk_shards_deinit(&named);
    return status == 0 ? 0
                       : stk_fail(error, -ENOMEM, "cannot read an index of wids", "free memory",
                                  "'%.300s'", path);
}
