/* Copies one file, at once or in parts. */
#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/xxh3.h"
#include "storage/vfs/vfs.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* of copies within a store: no bytes pass through this process */
#define COPY_PART_BYTES (256ull << 20)
#define TRIES 2u /* of a file that changed while it was read */
#define ODD_ETAGS_MAX 3u
#define CHECKSUM_TRIES 3u    /* of a small one */
#define STATE_LINE_BYTES 17u /* a line of a note: 16 digits and its end */

static int open_source(struct stoker_copy *copy, struct stk_copy_file *file,
                       struct stoker_error *error);
static int open_parts(struct stoker_copy *copy, struct stk_copy_file *file,
                      struct stoker_error *error);
static void close_file(struct stoker_copy *copy, struct stk_copy_file *file);

/* ---- small ones ---- */

/* Than was planned. The hub's listings, and some servers, tell no time. */
static bool is_other_version(const struct stk_copy_file *file, const struct stk_stat *stat)
{
    bool has_mtime = file->mtime_ns != 0 || !file->from_object;

    return stat->bytes != file->bytes ||
           (file->version ? stat->version != file->version
                          : has_mtime && stat->mtime_ns != file->mtime_ns);
}

/* Checks for an MD5 of the complete object as a store reports it: 32 hex digits in quotes. */
static bool etag_differs(const char *etag, struct stk_view body)
{
    uint8_t digest[16];
    char text[33];

    if (strlen(etag) != 34 || strspn(etag + 1, "0123456789abcdef") != 32) {
        return false;
    }
    stk_md5(body.data, body.bytes, digest);
    stk_hex(digest, sizeof digest, text);
    return memcmp(text, etag + 1, 32) != 0;
}

/* Encrypted objects have ETags that are not MD5s. So data that differs is read again, and is
 * accepted if two transfers return the same bytes. */
static int check_etag(struct stoker_copy *copy, struct stk_copy_file *file, struct stk_view body,
                      struct stoker_error *error)
{
    uint64_t before;
    int status;

    if (!file->from_object || file->from_object->kind != STK_OBJECT_URL_S3 ||
        file->from_object->zone || /* whose ETags are no MD5s */
        atomic_load_explicit(&copy->odd_etags, memory_order_relaxed) >= ODD_ETAGS_MAX ||
        !etag_differs(file->info.etag, body)) {
        return 0;
    }
    before = stk_xxh3_64(body.data, body.bytes);
    status = stk_copy_file_read(file, 0, &body, error);
    if (status == 0 && etag_differs(file->info.etag, body)) {
        if (stk_xxh3_64(body.data, body.bytes) != before) {
            return stk_fail(error, STOKER_ERROR_CORRUPT, "an object arrived damaged",
                            "look at the server and proxies between", "'%.400s'", file->from);
        }
        atomic_fetch_add_explicit(&copy->odd_etags, 1, memory_order_relaxed);
    }
    return status;
}

/* Reads damaged data again. */
static int verify_small(struct stoker_copy *copy, struct stk_copy_file *file, struct stk_view body,
                        struct stoker_error *error)
{
    int status = 0;

    for (uint32_t tries = 0; tries < CHECKSUM_TRIES; tries++) {
        status = tries > 0 ? stk_copy_file_read(file, 0, &body, error) : 0;
        status = status < 0 ? status : stk_copy_checksum_open(copy, file, error);
        status = status < 0 ? status : stk_copy_checksum_add(file, body, error);
        status = status < 0 ? status : stk_copy_checksum_verify(copy, file, &body, error);
        if (status != STOKER_ERROR_CORRUPT) {
            break;
        }
    }
    return status;
}

/* Removes files of a killed run, or of a file that is complete. */
static void remove_state_file(struct stoker_copy *copy, const struct stk_copy_file *file)
{
    char *path = stk_copy_partial_path(file, true);

    if (path) {
        (void)stk_io_remove(copy->to_io, path, NULL);
    }
    stk_free(path);
}

/* Permissions of a partial file: never more than the file at the destination has, or the local
 * source. 0: the default. */
static uint32_t part_mode(struct stoker_copy *copy, struct stk_copy_file *file)
{
    struct stk_stat stat;
    bool exists = stk_io_stat_path(copy->to_io, file->to, &stat, NULL) == 0;

    file->to_mode = exists && stat.kind == STK_ENTRY_FILE ? stat.mode : 0;
    return file->to_mode ? file->to_mode : file->mode;
}

static int rename_part(struct stoker_copy *copy, const struct stk_copy_file *file,
                       struct stoker_error *error)
{
    struct stk_stat there;
    int status;

    if (!copy->folds_names) {
        return stk_io_rename(copy->to_io, file->part_path, file->to, copy->options.no_clobber != 0,
                             error);
    }
    pthread_mutex_lock(&copy->rename_lock); /* no other thread renames between look and rename */
    if (stk_io_stat_path(copy->to_io, file->to, &there, NULL) == 0 &&
        stk_copy_has_inode(copy, there.inode) && !file->check) {
        status = stk_copy_fail_folded(0, file->to, error);
    } else {
        status = stk_io_rename(copy->to_io, file->part_path, file->to,
                               copy->options.no_clobber != 0, error);
    }
    if (status == 0 && stk_io_stat_path(copy->to_io, file->to, &there, NULL) == 0) {
        (void)stk_copy_add_inode(copy, there.inode);
    }
    pthread_mutex_unlock(&copy->rename_lock);
    return status;
}

/* The time that a local file gets: of a local source; of an object that of the file that was
 * uploaded, if its metadata has one. A sync gives the time of the upload, as listings have it: so
 * the next one needs no request for each file. */
static uint64_t mtime_of_copy(const struct stoker_copy *copy, const struct stk_copy_file *file)
{
    struct stk_object_info info = {0};
    struct stk_stat stat;

    if (file->from_object && copy->options.kind != STOKER_SYNC && !copy->options.update) {
        (void)stk_vfs_object_info(file->source, &info);
        /* Nothing of an empty object was read, so no response had its metadata. */
        if (file->bytes == 0 && !info.file_mtime_ns &&
            (stk_vfs_stat_object(copy->io, file->from, &stat, &info, NULL) < 0 ||
             is_other_version(file, &stat))) {
            info.file_mtime_ns = 0;
        }
    }
    return info.file_mtime_ns ? info.file_mtime_ns : file->mtime_ns;
}

/* Gives the complete partial file its attributes and its name, after its bytes are on the disk:
 * else a power cut leaves an empty file under its name. Threads that sync at the same time share a
 * commit of the file system's journal. */
static int publish(struct stoker_copy *copy, struct stk_copy_file *file, struct stoker_error *error)
{
    uint32_t mode = file->to_mode;
    uint64_t mtime_ns = mtime_of_copy(copy, file);
    struct stk_stat part;
    int status;

    if (!mode && file->mode && (file->mode & 0600) != 0600) { /* the partial file needed both */
        mode = stk_io_stat_path(copy->to_io, file->part_path, &part, NULL) == 0
                   ? part.mode & file->mode
                   : 0;
    }
    status =
        stk_io_set_attributes(copy->to_io, file->out, mode, mtime_ns ? &mtime_ns : NULL, error);
    status = status < 0 ? status : stk_io_sync_output(copy->to_io, file->out, error);
    return status < 0 ? status : rename_part(copy, file, error);
}

static int write_small(struct stoker_copy *copy, struct stk_copy_file *file, struct stk_view body,
                       struct stoker_error *error)
{
    int status = stk_copy_make_folders(copy, file->to, error);
    uint64_t current;

    file->part_path = status < 0 ? NULL : stk_copy_partial_path(file, false);
    if (status == 0 && !file->part_path) {
        status =
            stk_fail(error, -ENOMEM, "cannot write a file", "free memory", "'%.400s'", file->to);
    }
    if (status == 0) {
        status = stk_io_open_exclusive(copy->to_io, file->part_path, &file->out,
                                       part_mode(copy, file), &current, error);
    }
    if (status == 0) {
        status = stk_io_truncate(copy->to_io, file->out, 0, error);
        status = status < 0 ? status
                            : stk_io_write(copy->to_io, file->out, body.data, body.bytes, error);
        status = status < 0 ? status : publish(copy, file, error);
        if (status < 0) {
            (void)stk_io_remove(copy->to_io, file->part_path, NULL);
        }
        if (current > 0) { /* of one that was large, maybe */
            remove_state_file(copy, file);
        }
    }
    /* another process that wants the same hidden file gets it when close_file released it */
    return status;
}

int stk_copy_check_source(struct stoker_copy *copy, const struct stk_copy_file *file,
                          struct stoker_error *error)
{
    struct stk_object_info info;
    struct stk_stat stat;
    int status = stk_vfs_stat_object(copy->io, file->from, &stat, &info, error);

    return status == 0 && is_other_version(file, &stat) ? stk_copy_fail_changed(file, error)
                                                        : status;
}

/* A local file that a process changed while it was sent may be older than its object, which the
 * next sync would consider the newer one. */
static int check_sent(struct stoker_copy *copy, const struct stk_copy_file *file,
                      struct stoker_error *error)
{
    return stk_io_is_url(file->from) ? 0 : stk_copy_check_source(copy, file, error);
}

/* A local file that a process changed while it was read may be a mix of two versions. */
static int check_read(struct stoker_copy *copy, struct stk_copy_file *file,
                      struct stoker_error *error)
{
    struct stk_stat stat;
    int status = file->from_object           ? 0
                 : stk_io_is_url(file->from) ? stk_io_stat_path(copy->io, file->from, &stat, error)
                                             : stk_io_stat_file(file->source, &stat, error);

    return status == 0 && !file->from_object && is_other_version(file, &stat)
               ? stk_copy_fail_changed(file, error)
               : status;
}

/* Sets the options to the attributes of an object at the source, which a copy within S3 of a small
 * object has anyway, or to the time of a local file. */
static int read_attributes(struct stoker_copy *copy, struct stk_copy_file *file,
                           struct stk_upload_options *options, struct stoker_error *error)
{
    struct stk_store *store;
    int status;

    if (!file->to_object) {
        return 0;
    }
    if (!file->from_object) {
        options->mtime_ns = file->mtime_ns;
        return 0;
    }
    if (file->info.no_ranges || file->info.chunked) {
        return 0; /* a web server that would send all of it once more */
    }
    status = stk_vfs_get_store(copy->io, &store, error);
    status = status < 0 ? status
                        : stk_object_attributes_read(store, file->from_object, &file->info,
                                                     file->to_object, &file->attributes, error);
    options->attributes = file->attributes;
    return status;
}

static int copy_small(struct stoker_copy *copy, struct stk_copy_file *file, uint8_t *buffer,
                      struct stoker_error *error)
{
    struct stk_upload_options options = copy->upload;
    struct stk_view body = {buffer, 0};
    struct stk_store *store = NULL;
    uint64_t pages_bytes = 0;
    uint8_t *pages = NULL;
    int status = open_source(copy, file, error);

    if (status == 0 && file->to_object) {
        status = stk_vfs_get_store(copy->io, &store, error);
    }
    if (status == 0 && stk_copy_is_server_side(file)) {
        status = stk_upload_copy(store, file->from_object, &file->info, file->to_object,
                                 &copy->upload, error);
    } else if (status == 0 && !buffer) {
        status = stk_copy_fail_no_buffer(file, error);
    } else if (status == 0) {
        body.bytes = file->bytes;
        if (body.bytes > STK_STORE_RANGE_BYTES) { /* it is read by ranges */
            stk_vfs_fetch_checksum(file->source);
        }
        status = file->bytes == 0 && !stk_io_is_url(file->from)
                     ? stk_copy_file_read_unsized(copy, file, &body, &pages, &pages_bytes, error)
                     : stk_copy_file_read(file, 0, &body, error);
        status = status < 0 ? status : check_etag(copy, file, body, error);
        status = status < 0 ? status : verify_small(copy, file, body, error);
        status = status < 0 ? status : check_read(copy, file, error);
        status = status < 0 ? status : read_attributes(copy, file, &options, error);
        if (status == 0) {
            status = file->to_object ? stk_upload_put(store, file->to_object, body, &options, error)
                                     : write_small(copy, file, body, error);
            status = status == 0 && file->to_object ? check_sent(copy, file, error) : status;
        }
    }
    if (status == 0 && file->to_object) {
        stk_vfs_set_metadata(copy->io, file->to, NULL);
    }
    if (status == 0 && file->bytes == 0 && body.bytes > 0) {
        atomic_fetch_add_explicit(&copy->bytes, body.bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&copy->bytes_done, body.bytes, memory_order_relaxed);
    }
    if (pages) {
        stk_pages_free(pages, pages_bytes);
    }
    close_file(copy, file);
    return status;
}

int stk_copy_file_small(struct stoker_copy *copy, struct stk_copy_file *file, uint8_t *buffer,
                        struct stoker_error *error)
{
    int status = copy_small(copy, file, buffer, error);

    for (uint32_t tries = 1; status == STOKER_ERROR_CHANGED && tries < TRIES; tries++) {
        uint64_t bytes = file->bytes;
        struct stk_stat stat;

        stk_vfs_set_metadata(copy->io, file->from, NULL);
        if (stk_io_stat_path(copy->io, file->from, &stat, NULL) < 0 || stat.bytes > bytes) {
            break; /* there is no room for more */
        }
        file->bytes = stat.bytes;
        file->mtime_ns = stat.mtime_ns;
        file->version = stat.version;
        status = copy_small(copy, file, buffer, error);
    }
    if (status == 0) {
        atomic_fetch_add_explicit(&copy->bytes_done, file->bytes, memory_order_relaxed);
    }
    return status;
}

/* ---- shared by reads and copies ---- */

/* Below a folder that was named, no link leads out of it, also not one that another process puts in
 * after the folder was listed. */
static int check_beneath(struct stoker_copy *copy, const struct stk_copy_file *file,
                         const struct stk_stat *stat, struct stoker_error *error)
{
    struct stk_beneath_check check = {.folder = file->root,
                                      .path = file->from,
                                      .device = file->root_device,
                                      .inode = file->root_inode,
                                      .opened = *stat};

    return stk_io_is_url(file->from) || strcmp(file->from, file->root) == 0
               ? 0
               : stk_io_check_beneath(copy->io, &check, error);
}

static int open_source(struct stoker_copy *copy, struct stk_copy_file *file,
                       struct stoker_error *error)
{
    struct stk_stat stat;
    int status = 0;

    if (stk_io_is_url(file->from) && !stk_vfs_is_external_url(file->from)) {
        status = stk_object_url_parse(file->from, &file->from_object, error);
    }
    if (status == 0 && copy->remote) {
        status = stk_object_url_parse(file->to, &file->to_object, error);
    }
    status = status < 0 ? status : stk_io_open_file(copy->io, file->from, &file->source, error);
    status = status < 0 ? status : stk_io_stat_file(file->source, &stat, error);
    if (status == 0) {
        stk_vfs_object_info(file->source, &file->info);
        status = stat.kind != STK_ENTRY_FILE
                     ? stk_fail(error, -EISDIR, "not a file",
                                "name a file; folders need --recursive", "'%.400s'", file->from)
                 : is_other_version(file, &stat) ? stk_copy_fail_changed(file, error)
                                                 : check_beneath(copy, file, &stat, error);
    }
    if (status == 0) {
        /* The listing may be older: the partial file of a killed run is of this version. */
        file->mtime_ns = stat.mtime_ns;
        file->version = stat.version;
        file->ctime_ns = stat.ctime_ns;
        file->inode = stat.inode;
        file->mode = stat.mode;
    }
    return status;
}

static void close_file(struct stoker_copy *copy, struct stk_copy_file *file)
{
    if (file->source) {
        stk_io_close_file(file->source);
    }
    stk_io_close_output(copy->to_io, file->out);
    stk_io_close_output(copy->to_io, file->state_file);
    stk_composite_checksum_free(file->checksum);
    stk_object_url_free(file->from_object);
    stk_object_url_free(file->to_object);
    stk_free(file->part_path);
    stk_free(file->attributes);
    file->attributes = NULL;
    file->source = NULL;
    file->out = file->state_file = NULL;
    file->checksum = NULL;
    file->from_object = file->to_object = NULL;
    file->part_path = NULL;
}

/* ---- large ones ---- */

int stk_copy_file_begin(struct stoker_copy *copy, struct stk_copy_file *file,
                        struct stoker_error *error)
{
    struct stk_upload_options options = copy->upload;
    struct stk_store *store;
    struct stk_checksum full_checksum;
    int status = open_source(copy, file, error);

    if (status == 0 && !stk_copy_is_server_side(file)) {
        stk_vfs_fetch_checksum(file->source);
        /* S3 has reported errors by now; others report them with the first part. */
        file->in_order =
            !file->to_object ||
            (file->from_object && (file->from_object->kind != STK_OBJECT_URL_S3 ||
                                   stk_vfs_composite_checksum(file->source, &full_checksum)));
    }
    file->part_bytes = options.part_bytes;
    if (status == 0 && file->to_object) {
        if (stk_copy_is_server_side(file)) {
            options.part_bytes = COPY_PART_BYTES;
            options.check = STK_UPLOAD_CHECKSUM_AUTO;
        }
        status = stk_vfs_get_store(copy->io, &store, error);
        options.resume = !stk_copy_is_server_side(file) && !file->restarted;
        status = status < 0 ? status : read_attributes(copy, file, &options, error);
        status = status < 0 ? status
                            : stk_upload_open(&file->upload, store, file->to_object, file->bytes,
                                              &options, error);
        if (status == 0) {
            file->part_bytes = stk_upload_part_bytes(file->upload);
            file->part_count = stk_upload_part_count(file->upload);
        }
    } else if (status == 0) {
        status = open_parts(copy, file, error);
    }
    if (status < 0) {
        close_file(copy, file);
    }
    return status;
}

/* ---- partial files of earlier runs ----
 *
 * Next to the partial file is a note of lines: the version of the source, then a checksum of each
 * part. */

static void state_line_text(uint64_t number, char text[STATE_LINE_BYTES + 1])
{
    snprintf(text, STATE_LINE_BYTES + 1, "%016llx\n", (unsigned long long)number);
}

static bool has_state_line(struct stk_file *note, uint64_t index, uint64_t number)
{
    char want[STATE_LINE_BYTES + 1], got[STATE_LINE_BYTES];

    state_line_text(number, want);
    return stk_copy_read_partial(note, index * STATE_LINE_BYTES, (uint8_t *)got,
                                 STATE_LINE_BYTES) &&
           memcmp(got, want, STATE_LINE_BYTES) == 0;
}

/* Helps the next run: without the note it starts from the beginning. */
static void write_state_line(struct stoker_copy *copy, struct stk_copy_file *file, uint64_t number)
{
    char text[STATE_LINE_BYTES + 1];

    state_line_text(number, text);
    if (file->state_file &&
        stk_io_write(copy->to_io, file->state_file, text, STATE_LINE_BYTES, NULL) < 0) {
        stk_io_close_output(copy->to_io, file->state_file);
        file->state_file = NULL;
    }
}

/* Checks whether another run could continue from the data of this run: it must be able to detect
 * whether the source is unchanged, and whether the machine was restarted. Size and time are not
 * enough, since different files may share them: a local file needs its inode and the time that no
 * program can set, an object its ETag. */
static bool can_resume(const struct stoker_copy *copy, const struct stk_copy_file *file)
{
    return copy->boot && (stk_io_is_url(file->from) ? file->version != 0 : file->ctime_ns != 0);
}

/* Counts the parts in `current` bytes that are of this version and undamaged. Returns
 * STOKER_ERROR_CLOSED if the copy was stopped; then all parts may stay. */
static int count_reused(struct stoker_copy *copy, const struct stk_copy_file *file,
                        const char *path, uint64_t current, uint32_t *reused_out)
{
    /* The slot that was taken for this file has as much. One part is left to be the last. */
    uint64_t most = stk_min(current / file->part_bytes, file->part_count - 1), bytes;
    uint8_t *buffer = most > 0 ? stk_pages_alloc(file->part_bytes) : NULL;
    struct stk_file *left = NULL, *note = NULL;
    int status = 0;

    *reused_out = 0;
    bytes = file->part_bytes;
    if (buffer && stk_io_open_file(copy->to_io, file->part_path, &left, NULL) == 0 &&
        stk_io_open_file(copy->to_io, path, &note, NULL) == 0 &&
        has_state_line(note, 0, stk_copy_version(copy, file))) {
        while (status == 0 && *reused_out < most &&
               stk_copy_read_partial(left, *reused_out * bytes, buffer, bytes) &&
               has_state_line(note, *reused_out + 1, stk_xxh3_64(buffer, bytes))) {
            ++*reused_out;
            status = stk_background_job_is_stopping(&copy->job) ? STOKER_ERROR_CLOSED : 0;
        }
    }
    if (note) {
        stk_io_close_file(note);
    }
    if (left) {
        stk_io_close_file(left);
    }
    if (buffer) {
        stk_pages_free(buffer, file->part_bytes);
    }
    return status;
}

/* Finds the valid parts of the `current` bytes of an earlier run, and truncates the file to them.
 * Unless the machine restarted, no written part is discarded: the note also identifies the boot. */
static int find_finished_parts(struct stoker_copy *copy, struct stk_copy_file *file,
                               uint64_t current, struct stoker_error *error)
{
    char *path = stk_copy_partial_path(file, true);
    uint64_t bytes, noted;
    int status = path ? 0 : stk_copy_fail_no_buffer(file, error);

    if (status == 0 && current > 0) {
        status = count_reused(copy, file, path, current, &file->parts_reused);
    }
    bytes = file->parts_reused * file->part_bytes;
    status = status < 0 ? status : stk_io_truncate(copy->to_io, file->out, bytes, error);
    status = status < 0
                 ? status
                 : stk_io_open_exclusive(copy->to_io, path, &file->state_file, 0, &noted, error);
    if (status == 0 && file->parts_reused > 0) {
        file->locked.next = file->locked.done = file->locked.turn = file->parts_reused;
        atomic_fetch_add_explicit(&copy->bytes_done, bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&copy->bytes_skipped, bytes, memory_order_relaxed);
        status = stk_io_truncate(copy->to_io, file->state_file,
                                 (1 + (uint64_t)file->parts_reused) * STATE_LINE_BYTES, error);
    } else if (status == 0) {
        /* Before anything of this version is written, and after all of another was cut off. */
        status = stk_io_truncate(copy->to_io, file->state_file, 0, error);
        write_state_line(copy, file, stk_copy_version(copy, file));
    }
    if (status < 0 && status != STOKER_ERROR_CLOSED && file->parts_reused == 0) {
        /* the partial file is not usable yet */
        (void)stk_io_remove(copy->to_io, file->part_path, NULL);
        remove_state_file(copy, file);
    }
    stk_free(path);
    return status;
}

/* Continues after the complete parts that an earlier run wrote. */
static int open_parts(struct stoker_copy *copy, struct stk_copy_file *file,
                      struct stoker_error *error)
{
    uint64_t current = 0;
    int status = stk_copy_make_folders(copy, file->to, error);

    if (status < 0) {
        return status;
    }
    if (file->bytes == 0 || (file->bytes - 1) / file->part_bytes >= UINT32_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a file is too large to be copied",
                        "check what the source reports as its size, or use larger parts",
                        "'%.400s': %llu bytes", file->from, (unsigned long long)file->bytes);
    }
    file->part_count = (uint32_t)((file->bytes - 1) / file->part_bytes + 1);
    file->part_path = stk_copy_partial_path(file, false);
    if (!file->part_path) {
        return stk_fail(error, -ENOMEM, "cannot write a file", "free memory", "'%.400s'", file->to);
    }
    status = stk_io_open_exclusive(copy->to_io, file->part_path, &file->out, part_mode(copy, file),
                                   &current, error);
    if (status < 0) {
        return status;
    }
    return can_resume(copy, file) ? find_finished_parts(copy, file, current, error)
                                  : stk_io_truncate(copy->to_io, file->out, 0, error);
}

/* Waits until the parts before it had theirs. */
static int wait_for_turn(struct stoker_copy *copy, struct stk_copy_file *file, uint32_t index,
                         struct stoker_error *error)
{
    bool failed;

    pthread_mutex_lock(&copy->job.lock);
    while (file->locked.turn != index && !file->locked.failed) {
        pthread_cond_wait(&copy->turn,
                          &copy->job.lock); /* those before it end by their deadlines */
    }
    failed = file->locked.failed;
    pthread_mutex_unlock(&copy->job.lock);
    return failed ? stk_fail(error, STOKER_ERROR_CLOSED, "another part of the file failed",
                             "see the first error", "'%.400s'", file->from)
                  : 0;
}

/* After a failure, the failed part wakes those that wait. */
static void end_turn(struct stoker_copy *copy, struct stk_copy_file *file, uint32_t index)
{
    pthread_mutex_lock(&copy->job.lock);
    file->locked.turn = index + 1;
    pthread_cond_broadcast(&copy->turn);
    pthread_mutex_unlock(&copy->job.lock);
}

/* Adds a part in order; sum: of its bytes, for the note. */
static int write_part(struct stoker_copy *copy, struct stk_copy_file *file, uint32_t index,
                      struct stk_view part, uint64_t sum, struct stoker_error *error)
{
    int status = stk_io_write(copy->to_io, file->out, part.data, part.bytes, error);

    if ((status == -ENOSPC || status == -EDQUOT) && error && index > 0 && file->state_file) {
        snprintf(error->advice, sizeof error->advice,
                 "free space and run the same command again, which continues after %llu bytes; "
                 "or remove it",
                 (unsigned long long)(index * file->part_bytes));
    }
    if (status == 0) {
        write_state_line(copy, file, sum);
    }
    return status;
}

/* Work on a part after all parts before it: hashes it and, for a local file, writes it. */
static int run_in_turn(struct stoker_copy *copy, struct stk_copy_file *file, uint32_t index,
                       struct stk_view part, struct stoker_error *error)
{
    /* Runs first: the other threads wait for its result. */
    bool noted = !file->upload && can_resume(copy, file);
    uint64_t sum = noted ? stk_xxh3_64(part.data, part.bytes) : 0;
    int status = wait_for_turn(copy, file, index, error);

    if (status == 0 && index == file->parts_reused) {
        status = stk_copy_checksum_resume(copy, file, error);
    }
    status = status < 0 ? status : stk_copy_checksum_add(file, part, error);
    if (status == 0 && !file->upload) {
        status = write_part(copy, file, index, part, sum, error);
    }
    if (status == 0) {
        end_turn(copy, file, index);
    }
    return status;
}

int stk_copy_file_part(struct stoker_copy *copy, struct stk_copy_file *file, uint32_t index,
                       uint8_t *buffer, struct stoker_error *error)
{
    uint64_t begin = index * file->part_bytes;
    struct stk_view part = {buffer, stk_min(file->bytes - begin, file->part_bytes)};
    int status;

    if (stk_copy_is_server_side(file)) {
        status = stk_upload_copy_part(file->upload, index, file->from_object, &file->info, error);
    } else if (!buffer) {
        status = stk_copy_fail_no_buffer(file, error);
    } else {
        status = stk_copy_file_read(file, begin, &part, error);
        if (status == 0 && file->in_order) {
            status = run_in_turn(copy, file, index, part, error);
        }
        if (status == 0 && file->upload) {
            status = stk_upload_send_part(file->upload, index, part, error);
            if (status == 1) {
                atomic_fetch_add_explicit(&copy->bytes_skipped, part.bytes, memory_order_relaxed);
                atomic_fetch_add_explicit(&file->bytes_reused, part.bytes, memory_order_relaxed);
                status = 0;
            }
        }
    }
    if (status == 0) {
        atomic_fetch_add_explicit(&copy->bytes_done, part.bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&file->bytes_done, part.bytes, memory_order_relaxed);
    }
    return status;
}

/* Errors of busy or broken servers, and a stop by the caller. */
bool stk_copy_error_is_resumable(int status)
{
    static const int passing[] = {
        STOKER_ERROR_CLOSED, STOKER_ERROR_TIMEOUT, STOKER_ERROR_TRUNCATED, -EBUSY,
        -ECONNRESET,         -ECONNREFUSED,        -EHOSTUNREACH,          -ENOMEM};

    for (size_t i = 0; i < STK_COUNT(passing); i++) {
        if (status == passing[i]) {
            return true;
        }
    }
    return false;
}

/* After a temporary error, as after a kill, the upload stays for the next run. Otherwise it is
 * removed, because a store charges for it. */
static void close_upload(struct stoker_copy *copy, struct stk_copy_file *file, int status)
{
    const _Atomic bool *before = stk_io_set_cancel_flag(&copy->hard_stop);
    bool vain = stk_background_job_is_stopping(&copy->job) && status < 0 &&
                stk_upload_is_empty(file->upload);

    stk_upload_close(file->upload, vain || file->locked.refused ||
                                       (status < 0 && !stk_copy_error_is_resumable(status)));
    file->upload = NULL;
    stk_io_set_cancel_flag(before);
}

static int write_tags(struct stoker_copy *copy, const struct stk_copy_file *file,
                      struct stoker_error *error)
{
    struct stk_store *store;
    int status = stk_vfs_get_store(copy->io, &store, error);

    return status < 0
               ? status
               : stk_object_attributes_write_tags(store, file->to_object, file->attributes, error);
}

int stk_copy_file_end(struct stoker_copy *copy, struct stk_copy_file *file,
                      struct stoker_error *error)
{
    bool failed = file->locked.failed; /* by now it is this thread's alone */
    /* Each range of an object was of the version that was opened. */
    int status = failed              ? STOKER_ERROR_CLOSED
                 : file->from_object ? 0
                                     : stk_copy_check_source(copy, file, error);

    status = status < 0 ? status : stk_copy_checksum_verify(copy, file, NULL, error);
    if (file->upload) {
        status = status < 0 ? status : stk_upload_commit(file->upload, error);
        status = status < 0 ? status : write_tags(copy, file, error);
        status = status < 0 ? status : check_sent(copy, file, error);
        if (status == 0) {
            stk_vfs_set_metadata(copy->io, file->to, NULL);
        }
        file->upload_lost = status < 0 && stk_upload_is_gone(file->upload);
        close_upload(copy, file, status);
    } else if (status == 0) {
        status = publish(copy, file, error);
        if (status == 0) {
            remove_state_file(copy, file);
        }
    }
    /* Without a complete part, or with damage, the partial file is useless. */
    if (file->part_path && (status == STOKER_ERROR_CHANGED ||
                            (status < 0 && (file->locked.turn == 0 || !can_resume(copy, file))) ||
                            file->checksum_failed || stk_vfs_checksum_failed(file->source))) {
        (void)stk_io_remove(copy->to_io, file->part_path, NULL);
        remove_state_file(copy, file);
    }
    close_file(copy, file);
    return status;
}
