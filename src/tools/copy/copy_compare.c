/* Decides whether a destination file equals its source: by size and time, by size alone, or by
 * checksums.
 *
 *   planner: sizes, times --> copy, skip, or check
 *   check: a worker --> checksums that stores report, or that are computed of local files
 *
 * A local copy has the time of its source. The two times are compared with the coarser precision
 * of both sides; if the source may have changed again in that time after it was copied, the worker
 * checks. An object has the time of its upload; if that is within MARGIN_NS of the source's time,
 * or if a local file is newer than its source, the worker checks, too. If it is older than an
 * object, it may have the time of the file that was uploaded, which the object's metadata has. */
#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/random.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS 1000000000ll
#define MIB (1ull << 20)
#define MARGIN_NS (2 * SECOND_NS)
#define FINE_NS 1000000ll    /* files do not change and are copied twice in so short a time */
#define PROBE_S 1000000001ll /* odd: FAT stores even seconds */
#define PROBE_NS 123456789ll
#define STORE_PRECISION_NS SECOND_NS /* of HTTP dates and most listings */

/* ---- the destination ---- */

/* The coarsest precision that turns the probe's time into this one; 0: none. */
static uint64_t precision_of(int64_t stored_ns)
{
    static const int64_t steps[] = {1, 100, 1000, 1000000, 10000000, SECOND_NS, 2 * SECOND_NS};
    int64_t probe = PROBE_S * SECOND_NS + PROBE_NS;

    for (size_t i = 0; i < STK_COUNT(steps); i++) {
        if (stored_ns == probe - probe % steps[i] ||
            stored_ns == probe - probe % steps[i] + steps[i]) {
            return (uint64_t)steps[i];
        }
    }
    return 0;
}

void stk_copy_destination_probe(struct stoker_copy *copy)
{
    static const uint64_t time_ns = (uint64_t)(PROBE_S * SECOND_NS + PROBE_NS);
    char name[64], *path, *other;
    struct stk_output *out = NULL;
    struct stk_stat stat;
    uint64_t bytes;

    snprintf(name, sizeof name, STK_WALK_HIDDEN_PREFIX "%016llxa\xc3\xa9" STK_WALK_HIDDEN_SUFFIX,
             (unsigned long long)stk_random_key(copy->boot, (uint64_t)(uintptr_t)copy));
    path = stk_copy_join_path(copy->destination, name);
    snprintf(name, sizeof name, STK_WALK_HIDDEN_PREFIX "%016llxA\xc3\xa9" STK_WALK_HIDDEN_SUFFIX,
             (unsigned long long)stk_random_key(copy->boot, (uint64_t)(uintptr_t)copy));
    other = stk_copy_join_path(copy->destination, name);
    if (path && other && stk_io_open_exclusive(copy->to_io, path, &out, 0600, &bytes, NULL) == 0) {
        (void)stk_io_set_attributes(copy->to_io, out, 0, &time_ns, NULL);
        if (stk_io_stat_path(copy->to_io, path, &stat, NULL) == 0) {
            copy->precision_ns = precision_of((int64_t)stat.mtime_ns);
        }
        copy->folds_names = stk_io_stat_path(copy->to_io, other, &stat, NULL) == 0;
        if (!copy->folds_names) {
            snprintf(name, sizeof name,
                     STK_WALK_HIDDEN_PREFIX "%016llxae\xcc\x81" STK_WALK_HIDDEN_SUFFIX,
                     (unsigned long long)stk_random_key(copy->boot, (uint64_t)(uintptr_t)copy));
            stk_free(other);
            other = stk_copy_join_path(copy->destination, name);
            copy->folds_names = other && stk_io_stat_path(copy->to_io, other, &stat, NULL) == 0;
        }
        (void)stk_io_remove(copy->to_io, path, NULL);
        stk_io_close_output(copy->to_io, out);
    }
    stk_free(path);
    stk_free(other);
}

/* ---- the planner's decision ---- */

static int64_t floor_to(int64_t ns, int64_t step)
{
    int64_t rest = ns % step;

    return ns - rest - (rest < 0 ? step : 0);
}

/* A local destination. */
static enum stk_copy_decision compare_local(const struct stoker_copy *copy, bool coarse,
                                            const struct stk_stat *there, int64_t source_ns)
{
    int64_t step = stk_max((int64_t)copy->precision_ns, coarse ? STORE_PRECISION_NS : 1);
    int64_t there_ns = (int64_t)there->mtime_ns;

    if (copy->precision_ns == 0) { /* the file system stores no times */
        return there_ns > source_ns + MARGIN_NS ? STK_COPY_SKIP : STK_COPY_CHECK;
    }
    if (floor_to(there_ns, step) == floor_to(source_ns, step)) {
        bool is_final = step <= FINE_NS ||
                        (int64_t)there->ctime_ns >= floor_to(source_ns, step) + step + MARGIN_NS;

        return is_final ? STK_COPY_SKIP : STK_COPY_CHECK;
    }
    /* Newer: a copy that another program made without the time, maybe. */
    return there_ns > source_ns ? STK_COPY_CHECK : STK_COPY_NEEDED;
}

enum stk_copy_decision stk_copy_compare(const struct stoker_copy *copy, const char *source,
                                        const struct stk_stat *there,
                                        const struct stk_walk_entry *entry)
{
    int64_t source_ns = (int64_t)entry->mtime_ns, there_ns = (int64_t)there->mtime_ns;
    /* Stores report seconds. Other systems may, too: then all of their times are full seconds. */
    bool coarse =
        stk_io_is_url(source) && (!stk_vfs_is_external_url(source) || source_ns % SECOND_NS == 0);

    if (there->kind != STK_ENTRY_FILE || there->bytes != entry->bytes) {
        return STK_COPY_NEEDED;
    }
    if (there->bytes == 0 || copy->options.compare == STOKER_COMPARE_SIZE) {
        return STK_COPY_SKIP;
    }
    if (copy->options.compare == STOKER_COMPARE_CHECKSUM || entry->hash[0]) {
        return STK_COPY_CHECK;
    }
    if (source_ns == 0) {
        return STK_COPY_CHECK; /* no time is known */
    }
    if (!copy->remote) {
        enum stk_copy_decision decision = compare_local(copy, coarse, there, source_ns);

        /* Older than an object: with the time of the uploaded file, maybe. */
        return decision == STK_COPY_NEEDED && stk_io_is_url(source) &&
                       !stk_vfs_is_external_url(source)
                   ? STK_COPY_CHECK
                   : decision;
    }
    if (there_ns > source_ns + MARGIN_NS) {
        return STK_COPY_SKIP;
    }
    return there_ns + MARGIN_NS >= source_ns ? STK_COPY_CHECK : STK_COPY_NEEDED;
}

/* ---- a worker's check ---- */

struct side {
    const char *path;
    struct stk_object_url *object; /* owned; NULL: a local file, or one of an external system */
    struct stk_object_info info;
    struct stk_checksum reported; /* by the store; NONE: none */
};

/* Reads the ETag of an object that was written in parts: "MD5-COUNT", the MD5 of the MD5s of its
 * parts. */
static bool read_part_tag(const char *etag, struct stk_checksum *checksum)
{
    uint64_t parts = 0;
    const char *at = etag + 34;
    char digits[33] = "";

    *checksum = (struct stk_checksum){.kind = STK_CHECKSUM_MD5};
    if (strlen(etag) < 36 || etag[0] != '"' || etag[33] != '-') {
        return false;
    }
    memcpy(digits, etag + 1, 32);
    if (!stk_hex_decode(digits, checksum->sum, 16)) {
        return false;
    }
    for (; *at >= '0' && *at <= '9' && parts < STK_COMPOSITE_CHECKSUM_PARTS_MAX; at++) {
        parts = parts * 10 + (uint64_t)(*at - '0');
    }
    checksum->parts = (uint32_t)parts;
    return parts > 0 && parts <= STK_COMPOSITE_CHECKSUM_PARTS_MAX && strcmp(at, "\"") == 0;
}

static int open_side(struct stoker_copy *copy, struct side *side, const char *path, uint64_t bytes)
{
    struct stk_store *store;
    struct stk_stat stat;
    int status = 0;

    *side = (struct side){.path = path};
    if (!stk_io_is_url(path) || stk_vfs_is_external_url(path)) {
        return 1;
    }
    status = stk_object_url_parse(path, &side->object, NULL);
    status = status < 0 ? status : stk_vfs_get_store(copy->io, &store, NULL);
    status = status < 0 ? status : stk_vfs_stat_object(copy->io, path, &stat, &side->info, NULL);
    if (status < 0 || stat.bytes != bytes) {
        return status < 0 ? status : 0;
    }
    if (stk_store_get_checksum(store, side->object, &side->info, &side->reported, NULL) < 0) {
        side->reported.kind = STK_CHECKSUM_NONE;
    }
    if (side->reported.kind == STK_CHECKSUM_NONE && side->object->kind == STK_OBJECT_URL_S3 &&
        !read_part_tag(side->info.etag, &side->reported)) {
        side->reported.kind = STK_CHECKSUM_NONE;
    }
    return 1;
}

/* Sums or compares complete local files. check: called with each piece. Returns 1 on success, 0 if
 * the file has another size or cannot be read, or STOKER_ERROR_CLOSED. */
static int read_all(struct stoker_copy *copy, const char *path, uint64_t bytes,
                    struct stk_view buffer, bool (*check)(void *context, struct stk_view piece),
                    void *context)
{
    uint8_t *data = (uint8_t *)(uintptr_t)buffer.data;
    struct stk_file *file;
    uint64_t done = 0;
    int64_t got = 0;

    if (stk_io_open_file(copy->io, path, &file, NULL) < 0) {
        return 0;
    }
    do {
        got = stk_background_job_is_stopping(&copy->job)
                  ? STOKER_ERROR_CLOSED
                  : stk_io_read_wait(file, done, data, buffer.bytes);
        if (got > 0) {
            done += (uint64_t)got;
            if (!check(context, (struct stk_view){data, (size_t)got})) {
                got = -EIO;
            }
        }
    } while (got > 0 && done <= bytes);
    stk_io_close_file(file);
    return got == STOKER_ERROR_CLOSED ? STOKER_ERROR_CLOSED : got == 0 && done == bytes;
}

static bool add_sum(void *context, struct stk_view piece)
{
    stk_checksum_add(context, piece);
    return true;
}

static int sum_file(struct stoker_copy *copy, const char *path, uint64_t bytes, uint32_t kind,
                    struct stk_view buffer, struct stk_checksum *sum_out)
{
    struct stk_checksum_state state;
    int status;

    stk_checksum_begin(&state, kind, bytes);
    status = read_all(copy, path, bytes, buffer, add_sum, &state);
    *sum_out = stk_checksum_end(&state);
    return status;
}

struct parts {
    struct stoker_copy *copy;
    struct side *side;
    struct stk_composite_checksum *whole;
};

/* The server does not report sizes of parts: assumes one that tools use, and that gives so many
 * parts. A wrong one only makes the checksums differ. */
static int guess_part(const struct parts *parts, uint32_t number,
                      struct stk_composite_checksum_part *part)
{
    static const uint64_t usual_mib[] = {8, 5, 16, 10, 15, 25, 32, 50, 64, 100, 128, 256, 512};
    uint64_t bytes = parts->side->info.bytes, count = parts->side->reported.parts;
    uint64_t size = stk_round_up((bytes + count - 1) / count, MIB);

    for (size_t i = STK_COUNT(usual_mib); i-- > 0;) {
        uint64_t usual = usual_mib[i] * MIB;

        size = (bytes + usual - 1) / usual == count ? usual : size;
    }
    if ((number - 1) * size >= bytes) {
        return STOKER_ERROR_UNSUPPORTED;
    }
    *part = (struct stk_composite_checksum_part){
        .offset = (number - 1) * size, .bytes = stk_min(size, bytes - (number - 1) * size)};
    return 0;
}

static int ask_part(void *owner, uint32_t number, struct stk_composite_checksum_part *part)
{
    struct parts *parts = owner;
    struct stk_store *store;
    int status = stk_vfs_get_store(parts->copy->io, &store, NULL);

    status = status < 0 ? status
                        : stk_store_part_checksum(store, parts->side->object, &parts->side->info,
                                                  number, part, NULL);
    /* Some servers ignore the number and report the complete object. */
    return status == STOKER_ERROR_UNSUPPORTED || (status == 0 && parts->side->reported.parts > 1 &&
                                                  part->bytes >= parts->side->info.bytes)
               ? guess_part(parts, number, part)
               : status;
}

static bool add_part(void *context, struct stk_view piece)
{
    return stk_composite_checksum_add(((struct parts *)context)->whole, piece) == 0;
}

/* Compares a local file with the checksum of an object that was written in parts. */
static int compare_parts(struct stoker_copy *copy, const char *path, uint64_t bytes,
                         struct side *side, struct stk_view buffer)
{
    struct parts parts = {.copy = copy, .side = side};
    int status = 0, result = STK_COMPOSITE_CHECKSUM_RESTART;

    parts.whole = stk_composite_checksum_new(&side->reported, bytes, ask_part, &parts);
    for (uint32_t i = 0; parts.whole && i < 2 && result == STK_COMPOSITE_CHECKSUM_RESTART; i++) {
        status = read_all(copy, path, bytes, buffer, add_part, &parts);
        result = status == 1 ? stk_composite_checksum_verify(parts.whole) : 0;
    }
    stk_composite_checksum_free(parts.whole);
    return status == STOKER_ERROR_CLOSED ? status : result == STK_COMPOSITE_CHECKSUM_VERIFIED;
}

struct twin {
    struct stoker_copy *copy;
    struct stk_file *file;
    uint8_t *buffer;
    size_t bytes;
    uint64_t offset;
};

static bool equals_twin(void *context, struct stk_view piece)
{
    struct twin *twin = context;
    size_t done = 0;

    while (done < piece.bytes) {
        int64_t got = stk_io_read_wait(twin->file, twin->offset, twin->buffer,
                                       stk_min(piece.bytes - done, twin->bytes));

        if (got <= 0 || memcmp(piece.data + done, twin->buffer, (size_t)got) != 0) {
            return false;
        }
        done += (size_t)got;
        twin->offset += (uint64_t)got;
    }
    return true;
}

/* Compares the bytes of two local files. */
static int compare_bytes(struct stoker_copy *copy, const struct stk_copy_file *file,
                         struct stk_view buffer)
{
    size_t half = buffer.bytes / 2;
    struct twin twin = {.copy = copy,
                        .buffer = (uint8_t *)(uintptr_t)buffer.data + half,
                        .bytes = buffer.bytes - half};
    int status;

    if (stk_io_open_file(copy->io, file->to, &twin.file, NULL) < 0) {
        return 0;
    }
    status = read_all(copy, file->from, file->bytes, (struct stk_view){buffer.data, half},
                      equals_twin, &twin);
    stk_io_close_file(twin.file);
    return status;
}

/* Returns true if a local file has the time that the metadata of the object has. */
static bool has_file_time(struct stoker_copy *copy, const char *local, const struct side *remote)
{
    uint64_t step = stk_max(copy->remote ? 1 : copy->precision_ns, 1);
    struct stk_stat stat;

    return remote->info.file_mtime_ns > 0 && !stk_io_is_url(local) &&
           stk_io_stat_path(copy->io, local, &stat, NULL) == 0 &&
           stat.mtime_ns / step == remote->info.file_mtime_ns / step;
}

/* Returns true if a local destination is older than its source. */
static bool is_older(struct stoker_copy *copy, const char *local, const struct stk_copy_file *file)
{
    struct stk_stat stat;

    return file->mtime_ns > 0 && stk_io_stat_path(copy->io, local, &stat, NULL) == 0 &&
           stat.mtime_ns / STORE_PRECISION_NS < file->mtime_ns / STORE_PRECISION_NS;
}

static int compare_sides(struct stoker_copy *copy, const struct stk_copy_file *file,
                         struct side *from, struct side *to, struct stk_view buffer)
{
    struct side *remote = from->object ? from : to;
    const char *local = from->object ? file->to : file->from;
    struct stk_checksum sum;
    int status;

    if (from->object && to->object) {
        bool tags = from->info.etag[0] && strcmp(from->info.etag, to->info.etag) == 0 &&
                    from->object->kind == to->object->kind;

        return tags || (from->reported.kind != STK_CHECKSUM_NONE &&
                        stk_checksum_equal(&from->reported, &to->reported));
    }
    if (!from->object && !to->object) {
        bool external = stk_io_is_url(file->from) || stk_io_is_url(file->to);

        return external ? 0 : compare_bytes(copy, file, buffer);
    }
    if (remote->reported.kind == STK_CHECKSUM_NONE || stk_io_is_url(local)) {
        return copy->options.compare == STOKER_COMPARE_TIME && has_file_time(copy, local, remote);
    }
    if (copy->options.compare == STOKER_COMPARE_TIME && from->object &&
        !has_file_time(copy, local, remote) && is_older(copy, local, file)) {
        return 0; /* it was replaced after the copy */
    }
    if (remote->reported.parts > 0) {
        return compare_parts(copy, local, file->bytes, remote, buffer);
    }
    status = sum_file(copy, local, file->bytes, remote->reported.kind, buffer, &sum);
    return status == 1 ? stk_checksum_equal(&sum, &remote->reported) : status;
}

/* The hub's hashes. */
static int compare_hash(struct stoker_copy *copy, const struct stk_copy_file *file,
                        struct stk_view buffer)
{
    bool git = strlen(file->hash) == 40;
    struct stk_checksum sum;
    char text[72];
    int status = sum_file(copy, file->to, file->bytes,
                          git ? STK_CHECKSUM_GIT_BLOB : STK_CHECKSUM_SHA256, buffer, &sum);

    stk_hex(sum.sum, stk_checksum_bytes(sum.kind), text);
    return status == 1 ? strcmp(text, file->hash) == 0 : status;
}

/* Gives a local file that equals its source the source's time, so that the next run need not
 * check. */
static void touch(struct stoker_copy *copy, const struct stk_copy_file *file)
{
    struct stk_output *out;
    uint64_t bytes;

    if (!copy->remote && file->mtime_ns && !copy->options.dry_run &&
        !stk_io_is_link(copy->to_io, file->to) &&
        stk_io_open_exclusive(copy->to_io, file->to, &out, 0, &bytes, NULL) == 0) {
        (void)stk_io_set_attributes(copy->to_io, out, 0, &file->mtime_ns, NULL);
        stk_io_close_output(copy->to_io, out);
    }
}

int stk_copy_destination_matches(struct stoker_copy *copy, const struct stk_copy_file *file,
                                 struct stk_view buffer)
{
    struct side from = {.path = NULL}, to = {.path = NULL};
    int status;

    if (file->hash[0]) {
        status = compare_hash(copy, file, buffer);
    } else {
        status = open_side(copy, &from, file->from, file->bytes);
        status = status == 1 ? open_side(copy, &to, file->to, file->bytes) : status;
        status = status == 1 ? compare_sides(copy, file, &from, &to, buffer) : status;
        stk_object_url_free(from.object);
        stk_object_url_free(to.object);
    }
    if (status == 1) {
        touch(copy, file);
    }
    return status == 1 || status == STOKER_ERROR_CLOSED ? status : 0;
}
