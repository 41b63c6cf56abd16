/* Shards by the index files of wds2idx: read, and verified when members are read. */
#include "index/foreign/foreign_index.h"

#include "base/mem.h"
#include "base/text/text_match.h"
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

struct stk_foreign_index {
    struct stk_io *io;
    _Atomic uint64_t used; /* tars whose starts were right */
    pthread_mutex_t lock;
    char note[1024]; /* under the lock until the scans are over */
};

/* Steps return 0; 1: the file is not used, for the reason in `why`; or a fatal error. */
struct import {
    struct stk_io *io;
    struct stk_file *tar; /* owned */
    struct stk_view text; /* owned */
    struct stk_stat about_tar, about_text;
    struct stk_index_shard_builder *builder; /* owned */
    uint64_t probed;                         /* up to this byte of the tar */
    char path[STK_PATH_BYTES_MAX];           /* of the foreign index */
    char why[320];
};

static int open_both(struct import *import, const char *path, struct stoker_error *error);
static int read_text(struct import *import, struct stoker_error *error);
static int reject_error(struct import *import, const struct stoker_error *why,
                        struct stoker_error *error);
static int fill(struct import *import, struct stoker_error *error);
static int probe(struct import *import, const struct stk_dali_index_member *member);
static int check_end(struct import *import, uint64_t end);

int stk_foreign_index_open(struct stk_foreign_index **foreign_out, struct stk_io *io,
                           struct stoker_error *error)
{
    struct stk_foreign_index *foreign = stk_alloc(1, sizeof *foreign);

    *foreign_out = foreign;
    if (!foreign) {
        return stk_fail(error, -ENOMEM, "cannot open a data set", "free memory", "foreign index");
    }
    foreign->io = io;
    pthread_mutex_init(&foreign->lock, NULL);
    return 0;
}

void stk_foreign_index_close(struct stk_foreign_index *foreign)
{
    if (foreign) {
        pthread_mutex_destroy(&foreign->lock);
        stk_free(foreign);
    }
}

uint64_t stk_foreign_index_unverified(const struct stk_index *index)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < stk_index_shards(index); i++) {
        count += stk_index_shard_is_unverified(index, (uint32_t)i);
    }
    return count;
}

int stk_foreign_index_require_verified(const struct stk_index *index, struct stoker_error *error)
{
    uint64_t count = stk_foreign_index_unverified(index);

    return count == 0
               ? 0
               : stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                          "the data set was opened by indexes that another tool made",
                          "open it with foreign = never", "%llu shards", (unsigned long long)count);
}

const char *stk_foreign_index_note(const struct stk_foreign_index *foreign)
{
    return foreign ? foreign->note : "";
}

__attribute__((format(printf, 2, 3))) static void add_note(struct stk_foreign_index *foreign,
                                                           const char *format, ...)
{
    __builtin_va_list list;

    pthread_mutex_lock(&foreign->lock);
    if (!foreign->note[0]) {
        __builtin_va_start(list, format);
        vsnprintf(foreign->note, sizeof foreign->note, format, list);
        __builtin_va_end(list);
    }
    pthread_mutex_unlock(&foreign->lock);
}

void stk_foreign_index_compare(struct stk_foreign_index *foreign,
                               const struct stk_wids_shards *shards, const struct stk_index *index)
{
    if (!shards->from_json || shards->count != stk_index_shards(index)) {
        return;
    }
    for (uint64_t i = 0; i < shards->count; i++) {
        uint64_t samples = stk_index_shard_samples(index, (uint32_t)i);
        uint64_t bytes = stk_index_shard_bytes(index, (uint32_t)i);

        if (shards->samples[i] != STK_WIDS_INDEX_UNKNOWN && shards->samples[i] != samples) {
            add_note(foreign, "'%.600s' has %llu samples, not %llu as the JSON of wids says",
                     shards->paths[i], (unsigned long long)samples,
                     (unsigned long long)shards->samples[i]);
        } else if (shards->bytes[i] != STK_WIDS_INDEX_UNKNOWN && shards->bytes[i] != bytes) {
            add_note(foreign, "'%.600s' has %llu bytes, not %llu as the JSON of wids says",
                     shards->paths[i], (unsigned long long)bytes,
                     (unsigned long long)shards->bytes[i]);
        }
    }
}

int stk_foreign_index_read(struct stk_foreign_index *foreign, struct stk_index *index,
                           uint32_t shard, const char *path, struct stoker_error *error)
{
    struct import *import;
    int status;

    /* The members of a joined sample are not in the order of its numbers. */
    if (stk_index_member_gap_max(index) > 0) {
        return 0;
    }
    import = stk_alloc(1, sizeof *import);
    if (!import) {
        return stk_fail(error, -ENOMEM, "cannot read an index", "free memory", "'%s'", path);
    }
    import->io = foreign->io;
    status = open_both(import, path, error);
    status = status == 0 ? read_text(import, error) : status;
    status =
        status == 0 ? stk_index_shard_begin(index, shard, path, &import->builder, error) : status;
    status = status == 0 ? fill(import, error) : status;
    if (status == 0) {
        struct stoker_error why = {0};

        stk_index_shard_set_unverified(import->builder);
        status = stk_index_shard_end(import->builder, import->about_tar.bytes, STK_COMPRESSION_NONE,
                                     &why);
        status = status < 0 ? reject_error(import, &why, error) : 0;
        import->builder = NULL;
    }
    if (status > 0 && import->why[0]) {
        add_note(foreign, "'%.600s' is not used: %s", import->path, import->why);
    }
    stk_index_shard_cancel(import->builder);
    if (import->tar) {
        stk_io_close_file(import->tar);
    }
    stk_free((void *)(uintptr_t)import->text.data);
    stk_free(import);
    return status < 0 ? status : status == 0;
}

__attribute__((format(printf, 2, 3))) static int reject(struct import *import, const char *format,
                                                        ...)
{
    __builtin_va_list list;

    __builtin_va_start(list, format);
    vsnprintf(import->why, sizeof import->why, format, list);
    __builtin_va_end(list);
    return 1;
}

/* Sets "a/b-0.idx" for "a/b-0.x.tar", as wds2idx names its files. Returns false if it is too long.
 */
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

static int open_both(struct import *import, const char *path, struct stoker_error *error)
{
    struct stk_io *io = import->io;
    int status;

    if (!name_index(path, import->path) ||
        stk_io_stat_path(io, import->path, &import->about_text, NULL) < 0 ||
        import->about_text.kind != STK_ENTRY_FILE) {
        return 1; /* the usual case: there is none */
    }
    status = stk_io_open_file(io, path, &import->tar, error);
    status = status < 0 ? status : stk_io_stat_file(import->tar, &import->about_tar, error);
    if (status == 0 && import->about_text.mtime_ns < import->about_tar.mtime_ns) {
        return reject(import, "it is older than its shard");
    }
    return status;
}

static int read_text(struct import *import, struct stoker_error *error)
{
    struct stk_io *io = import->io;
    uint64_t bytes = import->about_text.bytes;
    struct stk_file *file = NULL;
    uint8_t *text;
    int64_t got;

    if (bytes > STK_DALI_INDEX_BYTES_MAX) {
        return reject(import, "it is longer than 1 GiB");
    }
    if (stk_io_open_file(io, import->path, &file, NULL) < 0) {
        return reject(import, "it cannot be opened");
    }
    text = stk_alloc(bytes + 1, 1);
    got = text ? stk_io_read_wait(file, 0, text, bytes) : 0;
    stk_io_close_file(file);
    if (!text) {
        return stk_fail(error, -ENOMEM, "cannot read an index", "free memory", "'%.300s'",
                        import->path);
    }
    import->text = (struct stk_view){text, got < 0 ? 0 : (size_t)got};
    return got < 0 ? reject(import, "it cannot be read: %s", stoker_status_text((int)got)) : 0;
}

/* Handles an error of reading the index file: scan the shard, unless there is no memory. */
static int reject_error(struct import *import, const struct stoker_error *why,
                        struct stoker_error *error)
{
    if (why->status == -ENOMEM) {
        if (error) {
            *error = *why;
        }
        return -ENOMEM;
    }
    return reject(import, "%s: %.200s", why->what, why->where);
}

static int fill(struct import *import, struct stoker_error *error)
{
    struct stk_dali_index dali;
    struct stk_dali_index_member member, last = {0};
    struct stk_view key, extension;
    struct stoker_error why = {0};
    uint64_t end = 0; /* of the last member that is part of a sample */
    int more = stk_dali_index_open(&dali, import->text, &why), status = 0;

    while (more >= 0 && status == 0) {
        more = stk_dali_index_next(&dali, &member, &why);
        if (more <= 0) {
            break;
        }
        if (!stk_wds_name_split(member.name, &key, &extension)) {
            continue;
        }
        if (member.offset - end > STK_FOREIGN_INDEX_GAP_MAX) {
            return reject(import, "more than %u bytes are between two members",
                          STK_FOREIGN_INDEX_GAP_MAX);
        }
        end = stk_round_up(member.offset + member.bytes, BLOCK);
        if (member.offset >= import->probed) {
            status = probe(import, &member);
            import->probed = member.offset + import->about_tar.bytes / PROBES;
        }
        if (status == 0) {
            more = stk_index_shard_add(import->builder, member.name, member.offset, member.bytes,
                                       &why);
            more = more < 0 ? more : 1;
        }
        last = member;
    }
    if (more < 0) {
        return reject_error(import, &why, error);
    }
    status = status == 0 && last.offset > 0 ? probe(import, &last) : status;
    return status == 0 ? check_end(import, dali.end) : status;
}

/* Checks whether a member is at the offset in the index file. */
static int probe(struct import *import, const struct stk_dali_index_member *member)
{
    uint8_t buffer[STK_FOREIGN_INDEX_GAP_MAX];
    struct stk_view headers = {buffer, member->offset - member->previous_end};
    struct stk_header_claim foreign = {.bytes = member->bytes};
    const char *why;
    int64_t got = stk_io_read_wait(import->tar, member->previous_end, buffer, headers.bytes);

    if (got < 0 || (uint64_t)got < headers.bytes) {
        return reject(import, "the shard is shorter, or cannot be read");
    }
    stk_wds_name_split(member->name, &foreign.key, &foreign.extension);
    return stk_header_check(headers, &foreign, &why) == 0 ? 0 : reject(import, "%s", why);
}

/* Behind the last member there are zeros, and nothing else: no member and no other tar. */
static int check_end(struct import *import, uint64_t end)
{
    uint8_t buffer[END_BYTES_MAX];
    uint64_t rest = import->about_tar.bytes - stk_min(end, import->about_tar.bytes);
    bool zeros = rest >= BLOCK && rest <= sizeof buffer;
    int64_t got = zeros ? stk_io_read_wait(import->tar, end, buffer, rest) : 0;

    zeros = zeros && got == (int64_t)rest;
    for (uint64_t i = 0; zeros && i < rest; i++) {
        zeros = buffer[i] == 0;
    }
    return zeros ? 0
                 : reject(import, "the shard ends before the last member, or continues after it");
}

int stk_foreign_index_header_offset(const struct stk_index *index, const struct stk_sample *sample,
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

int stk_foreign_index_check(const struct stk_index *index, struct stk_view headers,
                            struct stk_view key, const struct stk_member *member,
                            struct stoker_error *error)
{
    const char *extension = stk_index_extension(index, member->extension);
    struct stk_header_claim foreign = {.key = key,
                                       .extension = {(const uint8_t *)extension, strlen(extension)},
                                       .bytes = member->bytes};
    const char *why;
    int fits = stk_header_check(headers, &foreign, &why);

    if (fits == -ENOMEM) {
        return stk_fail(error, fits, "cannot check a member", "free memory", "%s", why);
    }
    return fits == 0 ? 0
                     : stk_fail(error, STOKER_ERROR_CHANGED,
                                "the index next to a shard is of another shard",
                                "remove the .idx file, or make it again with wds2idx", "%s", why);
}

/* ---- Energon ---------------------------------------------------------------------------- */

/* Validates the complete index file first: it is small, and reading an inconsistent one is useless.
 */
static int choose_starts(struct import *import, struct stk_foreign_index_starts *starts)
{
    struct stk_energon_index energon;
    struct stoker_error why = {0};
    int status = stk_energon_index_open(&energon, import->text, import->about_tar.bytes, &why);

    if (status < 0) {
        return reject_error(import, &why, NULL);
    }
    starts->samples = energon.samples;
    starts->count = stk_min(energon.samples, STK_FOREIGN_INDEX_STARTS_MAX);
    for (uint64_t i = 0; i < starts->count; i++) {
        starts->starts[i] = stk_energon_index_offset(&energon, energon.samples / starts->count * i);
    }
    return 0;
}

int stk_foreign_index_find_starts(struct stk_foreign_index *foreign, const char *path,
                                  uint64_t tar_bytes, struct stk_foreign_index_starts *starts_out,
                                  struct stoker_error *error)
{
    size_t bytes = strlen(path);
    struct import *import;
    int status = 1;

    *starts_out = (struct stk_foreign_index_starts){.count = 0};
    if (!stk_text_ends_with(path, ".tar") || bytes + 5 > STK_PATH_BYTES_MAX) {
        return 0;
    }
    import = stk_alloc(1, sizeof *import);
    if (!import) {
        return stk_fail(error, -ENOMEM, "cannot read an index", "free memory", "'%s'", path);
    }
    import->io = foreign->io;
    /* It fits: a longer path was refused above. */
    snprintf(import->path, sizeof import->path, "%s.idx", path);
    if (stk_io_stat_path(foreign->io, import->path, &import->about_text, NULL) == 0 &&
        import->about_text.kind == STK_ENTRY_FILE) {
        status = stk_io_stat_path(foreign->io, path, &import->about_tar, error);
        if (status == 0 && import->about_text.mtime_ns < import->about_tar.mtime_ns) {
            status = reject(import, "it is older than its shard");
        }
        import->about_tar.bytes = tar_bytes;
        status = status == 0 ? read_text(import, error) : status;
        status = status == 0 ? choose_starts(import, starts_out) : status;
    }
    if (status > 0 && import->why[0]) {
        add_note(foreign, "'%.600s' is not used: %s", import->path, import->why);
    }
    stk_free((void *)(uintptr_t)import->text.data);
    stk_free(import);
    return status < 0 ? status : 0;
}

void stk_foreign_index_verify_starts(struct stk_foreign_index *foreign, const char *path,
                                     const struct stk_foreign_index_starts *starts,
                                     uint64_t refuted, uint64_t samples)
{
    if (!foreign || starts->count == 0) {
        return;
    }
    if (refuted != UINT64_MAX) {
        add_note(foreign, "'%.600s.idx' is wrong: no member begins at byte %llu", path,
                 (unsigned long long)refuted);
    } else if (samples != starts->samples) {
        add_note(foreign, "'%.600s' has %llu samples, not %llu as its .idx says", path,
                 (unsigned long long)samples, (unsigned long long)starts->samples);
    } else {
        atomic_fetch_add_explicit(&foreign->used, 1, memory_order_relaxed);
    }
}

uint64_t stk_foreign_index_used(const struct stk_foreign_index *foreign)
{
    return foreign ? atomic_load_explicit(&foreign->used, memory_order_relaxed) : 0;
}

/* ---- wids ------------------------------------------------------------------------------- */

/* Adds the shards of the listing, with the numbers of the JSON file if it has them. */
static int align(struct stk_foreign_index *foreign, const struct stk_wids_shards *named,
                 const struct stk_foreign_index_listing *listing, struct stk_wids_shards *shards)
{
    struct stk_string_table words = {0};
    uint64_t matched = 0;
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < named->count; i++) {
        struct stk_view path = {(const uint8_t *)named->paths[i], strlen(named->paths[i])};
        uint32_t number;

        status = stk_string_table_add(&words, path, STK_WIDS_SHARDS_MAX, &number);
        if (status == 0 && number != i) {
            add_note(foreign, "the JSON of wids names '%.600s' twice", named->paths[i]);
            status = 1; /* numbers would be out of step */
        }
    }
    for (uint64_t i = 0; status == 0 && i < listing->count; i++) {
        const char *path = listing->text + listing->paths[i];
        int64_t at =
            stk_string_table_find(&words, (struct stk_view){(const uint8_t *)path, strlen(path)});

        if (at < 0) {
            add_note(foreign, "the JSON of wids does not name '%.600s'", path);
        }
        status =
            stk_wids_shards_add(shards, path, at < 0 ? STK_WIDS_INDEX_UNKNOWN : named->samples[at],
                                at < 0 ? STK_WIDS_INDEX_UNKNOWN : named->bytes[at]);
        matched += at >= 0;
    }
    if (status == 0 && matched < named->count) {
        add_note(foreign, "the JSON of wids names %llu shards that are not there",
                 (unsigned long long)(named->count - matched));
    }
    shards->from_json = status == 0;
    stk_string_table_deinit(&words);
    return status < 0 ? -ENOMEM : 0;
}

int stk_foreign_index_find(struct stk_foreign_index *foreign, const char *folder,
                           const struct stk_foreign_index_listing *listing,
                           struct stk_wids_shards *shards_out, struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX];
    const char *url = path;
    struct stk_wids_shards named;
    struct stoker_error why = {0};
    struct stk_stat about;
    int status = snprintf(path, sizeof path, "%sshardindex.json", folder);

    *shards_out = (struct stk_wids_shards){0};
    if (status >= (int)sizeof path || stk_io_stat_path(foreign->io, path, &about, NULL) < 0 ||
        about.kind != STK_ENTRY_FILE) {
        return 0;
    }
    status = stk_wids_shards_expand(&named, foreign->io, &url, 1, &why);
    if (status == 0) {
        status = align(foreign, &named, listing, shards_out);
    } else if (status != -ENOMEM) {
        add_note(foreign, "'%.600s' is not used: %s: %.200s", path, why.what, why.where);
        status = 0;
    }
    stk_wids_shards_deinit(&named);
    return status == 0 ? 0
                       : stk_fail(error, -ENOMEM, "cannot read an index of wids", "free memory",
                                  "'%.300s'", path);
}
