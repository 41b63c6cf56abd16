/* Checksums of a source that need its bytes in order, with those of an earlier run; and reads of
 * the source. */
#include "base/crypto/digest.h"
#include "base/memory_pages.h"
#include "storage/vfs/vfs.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define UNSIZED_BYTES_MAX (64ull << 20) /* of a file that reports no size */

int stk_copy_fail_no_buffer(const struct stk_copy_file *file, struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "cannot copy", "free memory, or use fewer workers", "'%.400s'",
                    file->from);
}

/* Reads all bytes, of a local file. */
bool stk_copy_read_partial(struct stk_file *partial, uint64_t offset, uint8_t *buffer,
                           uint64_t bytes)
{
    int64_t got = 1;

    for (uint64_t done = 0; done < bytes && got > 0; done += (uint64_t)stk_max(got, 0)) {
        got = stk_io_read_wait(partial, offset + done, buffer + done, bytes - done);
    }
    return got > 0;
}

static int get_part_checksum(void *owner, uint32_t number, struct stk_composite_checksum_part *part)
{
    struct stk_copy_file *file = owner;

    return stk_store_part_checksum(file->store, file->from_object, &file->info, number, part,
                                   file->error);
}

/* Begins the verification if the source has a checksum that reads do not verify. */
int stk_copy_checksum_open(struct stoker_copy *copy, struct stk_copy_file *file,
                           struct stoker_error *error)
{
    struct stk_checksum want;
    int status;

    if (!file->from_object || !stk_vfs_composite_checksum(file->source, &want)) {
        return 0;
    }
    status = stk_vfs_get_store(copy->io, &file->store, error);
    if (status == 0) {
        stk_composite_checksum_free(file->checksum);
        file->checksum = stk_composite_checksum_new(&want, file->bytes, get_part_checksum, file);
        status = file->checksum ? 0 : stk_copy_fail_no_buffer(file, error);
    }
    return status;
}

int stk_copy_checksum_add(struct stk_copy_file *file, struct stk_view bytes,
                          struct stoker_error *error)
{
    file->error = error;
    return file->checksum ? stk_composite_checksum_add(file->checksum, bytes) : 0;
}

static int fail_mismatch(struct stk_copy_file *file, struct stoker_error *error)
{
    char want[STK_CHECKSUM_TEXT_BYTES], got[STK_CHECKSUM_TEXT_BYTES], part[32] = "";
    struct stk_composite_checksum_mismatch mismatch;

    stk_composite_checksum_get_mismatch(file->checksum, &mismatch);
    stk_checksum_text(&mismatch.want, want);
    stk_checksum_text(&mismatch.got, got);
    if (mismatch.part > 0) {
        snprintf(part, sizeof part, " part %u,", mismatch.part);
    }
    file->checksum_failed = true;
    stk_store_count_damaged(file->store);
    return stk_fail(error, STOKER_ERROR_CORRUPT, "an object's bytes are not as its checksum says",
                    "look at the server, at proxies and the memory of this machine",
                    "'%.400s'%s bytes %llu-%llu: the server reports %s, received %s", file->from,
                    part, (unsigned long long)mismatch.first, (unsigned long long)mismatch.last,
                    want, got);
}

/* left NULL: of the source. */
static int read_again(struct stk_copy_file *file, struct stk_file *partial, uint64_t offset,
                      struct stk_view *view, struct stoker_error *error)
{
    if (!partial) {
        return stk_copy_file_read(file, offset, view, error);
    }
    return stk_copy_read_partial(partial, offset, (uint8_t *)(uintptr_t)view->data, view->bytes)
               ? 0
               : stk_fail(error, -EIO, "cannot read the copied file again", "check the disk",
                          "'%.400s' offset %llu", file->from, (unsigned long long)offset);
}

/* Adds the first `bytes` of the existing data to the checksum of the complete file; has_prefix:
 * also to the checksums of ranges. */
static int add_partial(struct stoker_copy *copy, struct stk_copy_file *file,
                       struct stk_file *partial, uint64_t bytes, bool has_prefix,
                       struct stoker_error *error)
{
    uint8_t *buffer = stk_pages_alloc(STK_STORE_RANGE_BYTES);
    int status = buffer ? 0 : stk_copy_fail_no_buffer(file, error);
    uint64_t step;

    for (uint64_t done = 0; done < bytes && status == 0; done += step) {
        struct stk_view view = {buffer, stk_min(bytes - done, STK_STORE_RANGE_BYTES)};

        step = view.bytes;
        if (stk_background_job_is_stopping(&copy->job)) {
            status = STOKER_ERROR_CLOSED;
        } else {
            status = read_again(file, partial, done, &view, error);
        }
        status = status < 0 ? status : stk_copy_checksum_add(file, view, error);
        if (status == 0 && has_prefix) {
            status = stk_vfs_checksum_add(file->source, done, view, error);
        }
    }
    if (buffer) {
        stk_pages_free(buffer, STK_STORE_RANGE_BYTES);
    }
    return status;
}

/* Reads the written file, or the uploaded object, if possible. */
static int reread_bytes(struct stoker_copy *copy, struct stk_copy_file *file,
                        struct stoker_error *error)
{
    struct stk_file *partial = NULL;
    int status = file->upload ? 0 : stk_io_open_file(copy->io, file->part_path, &partial, error);

    if (status == 0) {
        status = add_partial(copy, file, partial, file->bytes, false, error);
    }
    if (partial) {
        stk_io_close_file(partial);
    }
    return status;
}

/* Runs after all bytes were added. body: the complete file; NULL: it is read again if needed. */
int stk_copy_checksum_verify(struct stoker_copy *copy, struct stk_copy_file *file,
                             const struct stk_view *body, struct stoker_error *error)
{
    int retry_class = STK_COMPOSITE_CHECKSUM_UNKNOWN, status;

    if (!file->checksum) {
        return 0;
    }
    file->error = error;
    retry_class = stk_composite_checksum_verify(file->checksum);
    if (retry_class == STK_COMPOSITE_CHECKSUM_RESTART) {
        status = body ? stk_copy_checksum_add(file, *body, error) : reread_bytes(copy, file, error);
        retry_class = status < 0 ? status : stk_composite_checksum_verify(file->checksum);
    }
    if (retry_class == STK_COMPOSITE_CHECKSUM_MISMATCH) {
        return fail_mismatch(file, error);
    }
    if (retry_class == STK_COMPOSITE_CHECKSUM_VERIFIED) {
        stk_store_count_verified(file->store, file->from_object, file->bytes);
    }
    return retry_class < 0 ? retry_class : 0;
}

/* Runs in the turn of the first part: the data of an earlier run precedes it. */
int stk_copy_checksum_resume(struct stoker_copy *copy, struct stk_copy_file *file,
                             struct stoker_error *error)
{
    uint64_t bytes = file->parts_reused * file->part_bytes;
    struct stk_file *partial;
    int status = stk_copy_checksum_open(copy, file, error);

    if (status < 0 || bytes == 0 || (!file->checksum && !stk_vfs_has_checksum(file->source))) {
        return status;
    }
    status = stk_io_open_file(copy->io, file->part_path, &partial, error);
    if (status == 0) {
        status = add_partial(copy, file, partial, bytes, true, error);
        stk_io_close_file(partial);
    }
    return status;
}

/* ---- reads of the source ---- */

int stk_copy_fail_changed(const struct stk_copy_file *file, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CHANGED, "the file changed while it was read",
                    "copy it again when no process writes to it", "'%.400s'", file->from);
}

/* Short reads are changes: the file was longer when it was opened. */
int stk_copy_file_read(struct stk_copy_file *file, uint64_t offset, struct stk_view *part,
                       struct stoker_error *error)
{
    uint8_t *buffer = (uint8_t *)(uintptr_t)part->data;
    size_t done = 0;

    while (done < part->bytes) {
        int64_t got =
            stk_io_read_wait(file->source, offset + done, buffer + done, part->bytes - done);

        if (got == 0) {
            return stk_copy_fail_changed(file, error);
        }
        if (got < 0) {
            if (!error || !stk_io_last_read_error(file->source, (int)got, error)) {
                stk_fail(error, (int)got, "cannot read the file", "check the disk, or the server",
                         "'%.400s' offset %llu", file->from, (unsigned long long)offset);
            }
            return (int)got;
        }
        done += (size_t)got;
    }
    return 0;
}

/* Doubles the buffer of a file without a size. *bytes: its capacity. */
static int grow(struct stk_copy_file *file, uint8_t **buffer, uint64_t *bytes, uint8_t **pages,
                struct stoker_error *error)
{
    uint64_t more = 2 * *bytes;
    uint8_t *grown = more <= UNSIZED_BYTES_MAX ? stk_pages_alloc(more) : NULL;

    if (!grown) {
        return more > UNSIZED_BYTES_MAX
                   ? stk_fail(error, STOKER_ERROR_LIMIT, "a file without a size has no end",
                              "copy at most 64 MiB of it, with 'head -c'", "'%.400s'", file->from)
                   : stk_copy_fail_no_buffer(file, error);
    }
    memcpy(grown, *buffer, *bytes);
    if (*pages) {
        stk_pages_free(*pages, *bytes);
    }
    *pages = *buffer = grown;
    *bytes = more;
    return 0;
}

int stk_copy_file_read_unsized(struct stoker_copy *copy, struct stk_copy_file *file,
                               struct stk_view *body, uint8_t **pages_out, uint64_t *pages_bytes,
                               struct stoker_error *error)
{
    uint8_t *buffer = (uint8_t *)(uintptr_t)body->data;
    uint64_t capacity = STK_COPY_SMALL_BYTES, done = 0;
    int64_t got = 1;
    int status = 0;

    *pages_out = NULL;
    while (status == 0 && got > 0) {
        got = stk_background_job_is_stopping(&copy->job)
                  ? STOKER_ERROR_CLOSED
                  : stk_io_read_wait(file->source, done, buffer + done, capacity - done);
        if (got < 0) {
            status = stk_fail(error, (int)got, "cannot read the file", "check the disk",
                              "'%.400s' offset %llu", file->from, (unsigned long long)done);
        } else {
            done += (uint64_t)got;
            status = done == capacity ? grow(file, &buffer, &capacity, pages_out, error) : 0;
        }
    }
    *pages_bytes = capacity;
    *body = (struct stk_view){buffer, done};
    return status;
}
