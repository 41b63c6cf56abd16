/* Repair writes a damaged shard again, next to the original, without the damaged samples. After all
 * are written they get their names, in an order that can be interrupted at any point and repeated:
 *
 *   1. SHARD.repair complete, synced      SHARD is unchanged; the next repair writes it again
 *   2. SHARD.original = SHARD (a link)    the same
 *   3. manifest has the new shard         SHARD does not match it and is still damaged; the next
 *                                         repair writes the same bytes again
 *   4. SHARD.repair -> SHARD              done */
#include "base/mem.h"
#include "tools/verify/verify.h"

#include "format/compress/compress.h"
#include "format/compress/decompress.h"
#include "io/atomic_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 512, END_BYTES = 1024, COPY_ZEROS = 4096 };

static const char ending_repair[] = ".repair", ending_original[] = ".original";

/* A block of xz, as `xz -T` has it at its default level. */
enum { PACKED_BYTES = 256 << 10, XZ_BLOCK_BYTES = 24 << 20 };

struct copy {
    struct stk_atomic_file file;
    struct stk_sha256 sha;       /* of what is written */
    uint64_t bytes, tar_bytes;   /* written; before compression */
    struct stk_compress *packer; /* owned; NULL: a plain tar */
    uint8_t *packed;             /* owned, with it: PACKED_BYTES */
};

static int plan(struct stk_shard_check *check, uint64_t *dropped_out, uint64_t *unproven_out,
                struct stoker_error *error);
static int open_packer(const struct stk_shard_check *check, struct copy *copy,
                       struct stoker_error *error);
static int copy_kept(struct stk_shard_check *check, struct copy *copy, struct stoker_error *error);
static int finish_tars(struct stoker_verify *verify, struct stk_verify_findings *findings,
                       struct stoker_error *error);
static int finish_files(struct stoker_verify *verify, struct stk_verify_findings *findings,
                        struct stoker_error *error);

/* path + ending, owned by the caller; NULL: no memory. */
static char *with_ending(const char *path, const char *ending)
{
    size_t bytes = strlen(path) + strlen(ending) + 1;
    char *text = stk_alloc(bytes, 1);

    if (text) {
        snprintf(text, bytes, "%s%s", path, ending);
    }
    return text;
}

/* Reports that the object is not changed, and the reason. */
static int leave_shard(struct stoker_verify *verify, struct stk_verify_findings *findings,
                       uint64_t object, const char *why, const char *advice,
                       struct stoker_error *error)
{
    struct stoker_error cause = {0};

    stk_fail(&cause, STOKER_ERROR_CORRUPT, why, advice, "%s", "");
    snprintf(cause.shard, sizeof cause.shard, "%s",
             stk_source_files_path(&verify->objects, object));
    return stk_verify_add_finding(verify, findings, STOKER_FINDING_UNREPAIRED, &cause, "") < 0
               ? stk_fail_memory(error, "repair")
               : 0;
}

/* ---- one shard -------------------------------------------------------------------------- */

/* Returns why the shard is not changed, and what to do; NULL if it can be rewritten. */
static const char *reason_not_repairable(const struct stk_shard_check *check, uint64_t dropped,
                                         const char **advice)
{
    if (dropped == check->keys.count && check->checksum_failed) {
        *advice = check->verify->options.keep_unverified
                      ? "copy it again; 'stoker index --checksums' detects the next one"
                      : "copy it again; --repair --keep-unverified keeps samples that nothing "
                        "contradicts; "
                        "'stoker index --checksums' detects the next one";
        return "not repaired: only the checksum of the complete compressed stream shows the "
               "damage, not "
               "where it is";
    }
    if (dropped == check->keys.count) {
        *advice = "copy the shard again, or remove it";
        return "not repaired: no intact sample is left";
    }
    if (check->range_count == 0 && !check->no_end_marker && !check->checksum_failed &&
        !check->rewrite) {
        *advice = "copy it again; 'stoker index --checksums' detects the next damage";
        return "not repaired: nothing in the shard shows which data changed";
    }
    return NULL;
}

/* Reports samples that no checksum verifies: the checksums of the new shard do not show whether
 * they are intact. */
static int note_unverified(struct stk_shard_check *check, uint64_t unproven,
                           struct stoker_error *error)
{
    struct stoker_error cause = {0};

    stk_fail(&cause, STOKER_ERROR_CORRUPT, "samples are kept that no checksum verifies",
             "compare them with another copy, if there is one", "%llu of %u",
             (unsigned long long)unproven, check->keys.count);
    return stk_shard_check_add_finding(check, STOKER_FINDING_UNPROVEN, &cause, NULL, error);
}

/* Writes SHARD.repair and syncs it; removes an incomplete file on failure. */
static int write_copy(struct stk_shard_check *check, struct copy *copy, struct stoker_error *error)
{
    int status = open_packer(check, copy, error);

    if (status == 0) {
        status = stk_atomic_file_open(&copy->file, check->verify->engine->io, check->path,
                                      ending_repair, error);
    }
    stk_sha256_init(&copy->sha);
    status = status < 0 ? status : stk_atomic_file_keep_attributes(&copy->file, error);
    status = status < 0 ? status : copy_kept(check, copy, error);
    status = status < 0 ? status : stk_atomic_file_detach(&copy->file, error);
    stk_atomic_file_close(&copy->file);
    stk_compress_close(copy->packer);
    stk_free(copy->packed);
    return status;
}

int stk_repair_shard(struct stk_shard_check *check, uint64_t object, struct stoker_error *error)
{
    struct stoker_verify *verify = check->verify;
    struct stk_repair_result *result = &verify->repaired_objects[object];
    struct copy copy = {0};
    const char *why, *advice = "";
    uint64_t dropped = 0, unproven = 0;
    int status;

    if (check->broken || check->over_limit) {
        return leave_shard(
            verify, check->findings, object,
            check->broken ? "not repaired: the shard cannot be read to its end"
                          : "not repaired: the shard cannot be decompressed to its end",
            check->broken ? "copy it again from an intact copy"
                          : "raise the limit that the finding names, if you trust the shard",
            error);
    }
    status = plan(check, &dropped, &unproven, error);
    if (status < 0) {
        return status;
    }
    why = reason_not_repairable(check, dropped, &advice);
    if (why) {
        return leave_shard(verify, check->findings, object, why, advice, error);
    }
    status = write_copy(check, &copy, error);
    if (status == -EPERM) {
        return leave_shard(verify, check->findings, object,
                           "not repaired: a new file cannot have the shard's owner",
                           "run it as the owner of the shard", error);
    }
    if (status == STOKER_ERROR_BUDGET) {
        return leave_shard(verify, check->findings, object,
                           "not repaired: the memory budget is too small to compress it again",
                           "raise the memory limit (--memory), or use fewer threads", error);
    }
    if (status == 0) {
        stk_sha256_done(&copy.sha, result->sha256);
        result->bytes = copy.bytes;
        result->samples = check->keys.count - dropped;
        result->dropped = dropped;
        result->unproven = unproven;
        result->state = STK_REPAIR_WRITTEN;
    }
    return status == 0 && unproven > 0 ? note_unverified(check, unproven, error) : status;
}

static int compare_ranges(const void *left, const void *right)
{
    const struct stk_repair_range *a = left, *b = right;

    if (a->offset != b->offset) {
        return a->offset < b->offset ? -1 : 1;
    }
    return a->zero - b->zero;
}

/* The ranges become all that is left out or zeroed, in order. */
static int plan(struct stk_shard_check *check, uint64_t *dropped_out, uint64_t *unproven_out,
                struct stoker_error *error)
{
    for (uint32_t i = 0; i < check->members_used; i++) {
        const struct stk_shard_check_member *member = &check->members[i];

        if ((member->sample == STK_SHARD_CHECK_NO_SAMPLE ||
             (check->samples[member->sample].flags & STK_CHECK_SAMPLE_BAD)) &&
            stk_shard_check_add_range(check, member->header, member->end, false, error) < 0) {
            return -ENOMEM;
        }
    }
    for (uint32_t i = 0; i < check->keys.count; i++) {
        *dropped_out += (check->samples[i].flags & STK_CHECK_SAMPLE_BAD) != 0;
        *unproven_out +=
            (check->samples[i].flags & (STK_CHECK_SAMPLE_UNVERIFIED | STK_CHECK_SAMPLE_BAD)) ==
            STK_CHECK_SAMPLE_UNVERIFIED;
    }
    if (check->range_count > 1) {
        qsort(check->ranges, check->range_count, sizeof *check->ranges, compare_ranges);
    }
    return 0;
}

/* Compresses the shard as before: if decompression could start inside the old one, it can in the
 * new one. */
static int open_packer(const struct stk_shard_check *check, struct copy *copy,
                       struct stoker_error *error)
{
    struct stk_compress_options options = {.compression = check->compression,
                                           .level = check->level,
                                           .grant = stk_engine_allocator(check->verify->engine)};

    if (check->compression == STK_COMPRESSION_NONE) {
        return 0;
    }
    if (check->compression == STK_COMPRESSION_XZ) {
        options.frame_bytes = XZ_BLOCK_BYTES;
    } else if (check->streams > 1) {
        options.frame_bytes = check->tar_bytes / check->streams + 1;
    }
    copy->packed = stk_alloc(PACKED_BYTES, 1);
    return copy->packed ? stk_compress_open(&copy->packer, &options, error)
                        : stk_fail_memory(error, "repair");
}

static int write_bytes(struct copy *copy, const uint8_t *data, uint64_t bytes,
                       struct stoker_error *error)
{
    stk_sha256_add(&copy->sha, data, bytes);
    copy->bytes += bytes;
    return stk_atomic_file_write(&copy->file, data, bytes, error);
}

/* last: no data follows; the packer writes its buffered data. */
static int emit(struct copy *copy, const uint8_t *data, uint64_t bytes, bool last,
                struct stoker_error *error)
{
    struct stk_view in = {data, bytes};
    int more = 1, status = 0;

    copy->tar_bytes += bytes;
    if (!copy->packer) {
        return bytes > 0 ? write_bytes(copy, data, bytes, error) : 0;
    }
    while (status == 0 && more == 1 && (in.bytes > 0 || last)) {
        struct stk_compress_output output = {copy->packed, PACKED_BYTES, 0};

        more = stk_compress_run(copy->packer, &in, last, &output, error);
        status = more < 0 ? more : write_bytes(copy, copy->packed, output.used, error);
    }
    return status;
}

static int emit_zeros(struct copy *copy, uint64_t bytes, struct stoker_error *error)
{
    static const uint8_t zeros[COPY_ZEROS];
    int status = 0;

    while (status == 0 && bytes > 0) {
        uint64_t part = stk_min(bytes, sizeof zeros);

        status = emit(copy, zeros, part, false, error);
        bytes -= part;
    }
    return status;
}

/* Writes those bytes of a piece of the tar, which begins at `at`, that are not left out. */
static int copy_piece(struct stk_shard_check *check, struct copy *copy, uint64_t at,
                      struct stk_view piece, uint32_t *next, struct stoker_error *error)
{
    int status = 0;

    while (status == 0 && piece.bytes > 0) {
        const struct stk_repair_range *range;
        uint64_t part;

        while (*next < check->range_count && check->ranges[*next].end <= at) {
            (*next)++;
        }
        range = *next < check->range_count ? &check->ranges[*next] : NULL;
        if (range && range->offset <= at) {
            part = stk_min(piece.bytes, range->end - at);
            status = range->zero ? emit_zeros(copy, part, error) : 0;
        } else {
            part = range ? stk_min(piece.bytes, range->offset - at) : piece.bytes;
            status = emit(copy, piece.data, part, false, error);
        }
        piece.data += part;
        piece.bytes -= part;
        at += part;
    }
    return status;
}

static int copy_kept(struct stk_shard_check *check, struct copy *copy, struct stoker_error *error)
{
    struct stk_shard_reader_options options;
    struct stk_shard_reader tape = {0};
    uint32_t next = 0;
    int status = stk_read_ahead_start(&check->reader, check->path, error), event = 1;

    stk_shard_check_reader_options(check, &options);
    options.stop = NULL; /* a part of it would be no shard */
    status = status < 0 ? status : stk_shard_reader_start(&tape, &check->reader, &options, error);
    while (status == 0 && event != STK_SHARD_READER_END) {
        event = stk_shard_reader_next(&tape, error);
        status = event < 0 ? event : 0;
        if (event == STK_SHARD_READER_PIECE) {
            status = copy_piece(check, copy, tape.offset, tape.piece, &next, error);
        }
    }
    stk_shard_reader_stop(&tape);
    stk_read_ahead_stop(&check->reader);
    if (status == 0 && check->no_end_marker) { /* it may have been cut inside of the padding */
        status = emit_zeros(
            copy, stk_round_up(copy->tar_bytes, BLOCK_BYTES) - copy->tar_bytes + END_BYTES, error);
    }
    return status < 0 ? status : emit(copy, NULL, 0, true, error);
}

/* ---- after all -------------------------------------------------------------------------- */

int stk_repair_finish(struct stoker_verify *verify, struct stk_verify_findings *findings,
                      struct stoker_error *error)
{
    int status = verify->objects.kind == STK_SOURCE_FOLDER ? finish_files(verify, findings, error)
                                                           : finish_tars(verify, findings, error);

    return status < 0 ? status : stk_verify_indexes_remove_stale(verify, error);
}

void stk_repair_abandon(struct stoker_verify *verify)
{
    for (uint64_t i = 0; i < verify->objects.count; i++) {
        char *path = verify->repaired_objects[i].state == STK_REPAIR_WRITTEN
                         ? with_ending(stk_source_files_path(&verify->objects, i), ending_repair)
                         : NULL;

        if (path) { /* it does no harm where it stays: the next repair writes it again */
            stk_io_remove(verify->engine->io, path, NULL);
        }
        stk_free(path);
    }
}

static bool is_same_file(struct stk_io *io, const char *a, const char *b)
{
    struct stk_stat one = {0}, two = {0};

    return stk_io_stat_path(io, a, &one, NULL) == 0 && stk_io_stat_path(io, b, &two, NULL) == 0 &&
           one.device == two.device && one.inode == two.inode;
}

/* SHARD.original. 1: there is another one already; 2: this file system has no links. */
static int keep_original(struct stoker_verify *verify, uint64_t object, struct stoker_error *error)
{
    const char *path = stk_source_files_path(&verify->objects, object);
    char *original = with_ending(path, ending_original);
    int status = original ? stk_io_link(verify->engine->io, path, original, error)
                          : stk_fail_memory(error, "repair");

    if (status == -EEXIST) {
        status = is_same_file(verify->engine->io, path, original) ? 0 : 1;
    } else if (status == -EPERM || status == -EOPNOTSUPP || status == -EMLINK ||
               status == -ENOSYS) {
        status = stk_io_rename(verify->engine->io, path, original, true, error);
        status = status == -EEXIST ? 1 : status;
    }
    stk_free(original);
    return status;
}

static int sync_roots(struct stoker_verify *verify, struct stoker_error *error)
{
    int status = 0;

    for (uint32_t i = 0; i < verify->roots.count && status == 0; i++) {
        const char *path = verify->roots.items[i].path;

        if (verify->roots.items[i].index_file) {
            continue;
        }
        status = stk_io_sync_directory(verify->engine->io, path[0] ? path : ".", error);
    }
    return status;
}

static int rename_repaired(struct stoker_verify *verify, uint64_t object,
                           struct stoker_error *error)
{
    const char *path = stk_source_files_path(&verify->objects, object);
    char *repaired = with_ending(path, ending_repair);
    int status = repaired ? stk_io_rename(verify->engine->io, repaired, path, false, error)
                          : stk_fail_memory(error, "repair");

    stk_free(repaired);
    if (status == 0) {
        verify->repaired_objects[object].state = STK_REPAIR_RENAMED;
        stk_verify_indexes_mark_stale(verify, object);
        atomic_fetch_add_explicit(&verify->count.repaired, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&verify->count.dropped, verify->repaired_objects[object].dropped,
                                  memory_order_relaxed);
        atomic_fetch_add_explicit(&verify->count.unproven,
                                  verify->repaired_objects[object].unproven, memory_order_relaxed);
    }
    return status;
}

/* An original of an earlier repair has this name: the new file is removed again. */
static int abandon_copy(struct stoker_verify *verify, struct stk_verify_findings *findings,
                        uint64_t object, struct stoker_error *error)
{
    char *repaired = with_ending(stk_source_files_path(&verify->objects, object), ending_repair);
    int status = repaired ? stk_io_remove(verify->engine->io, repaired, error)
                          : stk_fail_memory(error, "repair");

    stk_free(repaired);
    verify->repaired_objects[object].state = STK_REPAIR_NONE;
    return status < 0 ? status
                      : leave_shard(verify, findings, object,
                                    "not repaired: SHARD.original exists from an earlier repair",
                                    "move it away, and repair again", error);
}

static int finish_tars(struct stoker_verify *verify, struct stk_verify_findings *findings,
                       struct stoker_error *error)
{
    uint64_t count = 0;
    int status = 0;

    for (uint64_t i = 0; i < verify->objects.count && status == 0; i++) {
        struct stk_repair_result *result = &verify->repaired_objects[i];
        struct stk_manifest_shard values = {.bytes = result->bytes, .samples = result->samples};

        if (result->state != STK_REPAIR_WRITTEN) {
            continue;
        }
        status = keep_original(verify, i, error);
        if (status == 1) {
            status = abandon_copy(verify, findings, i, error);
        } else if (status == 0) {
            memcpy(values.sha256, result->sha256, sizeof values.sha256);
            status = stk_manifest_roots_set(verify, i, &values, error);
            count++;
        }
    }
    if (status < 0 || count == 0) {
        return status;
    }
    status = sync_roots(verify, error);
    status = status < 0 ? status : stk_manifest_roots_write(verify, error);
    for (uint64_t i = 0; i < verify->objects.count && status == 0; i++) {
        if (verify->repaired_objects[i].state == STK_REPAIR_WRITTEN) {
            status = rename_repaired(verify, i, error);
        }
    }
    return status < 0 ? status : sync_roots(verify, error);
}

/* ---- files of a folder ------------------------------------------------------------------ */

/* Makes the folders above `path`, which begins with ROOT.bad of root_bytes bytes. */
static int make_folders(struct stk_io *io, char *path, size_t root_bytes,
                        struct stoker_error *error)
{
    int status = 0;

    for (char *slash = path + root_bytes; status == 0 && (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        status = stk_io_make_directory(io, path, false, error);
        *slash = '/';
    }
    return status;
}

static int move_file(struct stoker_verify *verify, struct stk_verify_findings *findings,
                     uint64_t object, struct stoker_error *error)
{
    const char *path = stk_source_files_path(&verify->objects, object);
    size_t root = verify->objects.root_bytes, bytes = strlen(path) + sizeof ".bad";
    char *to = stk_alloc(bytes, 1);
    int status;

    if (!to) {
        return stk_fail_memory(error, "repair");
    }
    /* "root/class/1.jpg" to "root.bad/class/1.jpg" */
    snprintf(to, bytes, "%.*s.bad/%s", (int)(root - 1), path, path + root);
    status = make_folders(verify->engine->io, to, root + 3, error);
    status = status < 0 ? status : stk_io_rename(verify->engine->io, path, to, true, error);
    if (status == -EEXIST || status == -EXDEV) {
        status =
            leave_shard(verify, findings, object,
                        status == -EXDEV ? "not moved: ROOT.bad is on another file system"
                                         : "not moved: a file of this name is in ROOT.bad already",
                        "move it yourself, or remove it", error);
    } else if (status == 0) {
        stk_verify_indexes_mark_stale(verify, object);
        atomic_fetch_add_explicit(&verify->count.repaired, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&verify->count.dropped, 1, memory_order_relaxed);
    }
    stk_free(to);
    return status;
}

static int finish_files(struct stoker_verify *verify, struct stk_verify_findings *findings,
                        struct stoker_error *error)
{
    size_t root = verify->objects.root_bytes;
    int status = 0;

    for (uint64_t i = 0; i < verify->objects.count && status == 0; i++) {
        const char *path = stk_source_files_path(&verify->objects, i);
        /* "./" and "../": the name of a folder next to them is unknown. */
        bool named = root > 1 && path[root - 1] == '/' && path[root - 2] != '.';

        if (verify->repaired_objects[i].state != STK_REPAIR_MOVE_FILE) {
            continue;
        }
        status =
            named ? move_file(verify, findings, i, error)
                  : leave_shard(verify, findings, i, "not moved: the folder has no name of its own",
                                "name the folder by its path, not '.' or '/'", error);
    }
    return status;
}
