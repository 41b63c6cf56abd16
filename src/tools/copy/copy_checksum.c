/* Checksums of a source that are made in order, and what counts in them since an earlier run. */
#include "base/crypto/digest.h"
#include "base/memory_pages.h"
#include "tools/copy/copy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int stk_copy_fail_buffer(const struct stk_copy_file *file, struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "cannot copy", "free memory, or use fewer workers", "'%.400s'",
                    file->from);
}

/* All of it, of what lies on this machine. */
bool stk_copy_read_left(struct stoker_copy *copy, struct stk_file *left, uint64_t offset,
                        uint8_t *buffer, uint64_t bytes)
{
    int64_t got = 1;

    for (uint64_t done = 0; done < bytes && got > 0; done += (uint64_t)stk_max(got, 0)) {
        got = stk_io_read_wait(copy->io, left, offset + done, buffer + done, bytes - done);
    }
    return got > 0;
}

static int ask_part(void *owner, uint32_t number, struct stk_whole_part *part)
{
    struct stk_copy_file *file = owner;

    return stk_store_part(file->store, file->from_place, &file->about, number, part, file->error);
}

/* If the source has a checksum with which no read compares what it brings. */
int stk_copy_open_whole(struct stoker_copy *copy, struct stk_copy_file *file,
                        struct stoker_error *error)
{
    struct stk_seal want;
    int status;

    if (!file->from_place || !stk_route_whole(file->source, &want)) {
        return 0;
    }
    status = stk_route_lend(copy->io, &file->store, error);
    if (status == 0) {
        stk_whole_free(file->whole);
        file->whole = stk_whole_new(&want, file->bytes, ask_part, file);
        status = file->whole ? 0 : stk_copy_fail_buffer(file, error);
    }
    return status;
}

int stk_copy_add_whole(struct stk_copy_file *file, struct stk_view bytes,
                       struct stoker_error *error)
{
    file->error = error;
    return file->whole ? stk_whole_add(file->whole, bytes) : 0;
}

static int fail_wrong(struct stk_copy_file *file, struct stoker_error *error)
{
    char want[STK_SEAL_TEXT_BYTES], got[STK_SEAL_TEXT_BYTES], part[32] = "";
    struct stk_whole_told told;

    stk_whole_tell(file->whole, &told);
    stk_seal_text(&told.want, want);
    stk_seal_text(&told.got, got);
    if (told.part > 0) {
        snprintf(part, sizeof part, " part %u,", told.part);
    }
    file->wrong = true;
    stk_store_damaged(file->store);
    return stk_fail(error, STOKER_ERROR_CORRUPT, "an object's bytes are not as its checksum says",
                    "look at the server, at proxies and the memory of this machine",
                    "'%.400s'%s bytes %llu-%llu: the server tells %s, what came is %s", file->from,
                    part, (unsigned long long)told.first, (unsigned long long)told.last, want, got);
}

/* left NULL: of the source. */
static int read_again(struct stoker_copy *copy, struct stk_copy_file *file, struct stk_file *left,
                      uint64_t offset, struct stk_view *view, struct stoker_error *error)
{
    if (!left) {
        return stk_copy_read(copy, file, offset, view, error);
    }
    return stk_copy_read_left(copy, left, offset, (uint8_t *)(uintptr_t)view->data, view->bytes)
               ? 0
               : stk_fail(error, -EIO, "cannot read again what was copied", "check the disk",
                          "'%.400s' offset %llu", file->from, (unsigned long long)offset);
}

/* The first `bytes` of what lies there are added to the whole's sum; kept: to that of ranges, too.
 */
static int add_left(struct stoker_copy *copy, struct stk_copy_file *file, struct stk_file *left,
                    uint64_t bytes, bool kept, struct stoker_error *error)
{
    uint8_t *buffer = stk_pages_alloc(STK_STORE_RANGE_BYTES);
    int status = buffer ? 0 : stk_copy_fail_buffer(file, error);
    uint64_t step;

    for (uint64_t done = 0; done < bytes && status == 0; done += step) {
        struct stk_view view = {buffer, stk_min(bytes - done, STK_STORE_RANGE_BYTES)};

        step = view.bytes;
        if (atomic_load_explicit(&copy->stop, memory_order_relaxed)) {
            status = STOKER_ERROR_CLOSED;
        } else {
            status = read_again(copy, file, left, done, &view, error);
        }
        status = status < 0 ? status : stk_copy_add_whole(file, view, error);
        if (status == 0 && kept) {
            status = stk_route_sum(copy->io, file->source, done, view, error);
        }
    }
    if (buffer) {
        stk_pages_free(buffer, STK_STORE_RANGE_BYTES);
    }
    return status;
}

/* What was written, or, of an upload, what was sent: as far as one can look at it. */
static int add_again(struct stoker_copy *copy, struct stk_copy_file *file,
                     struct stoker_error *error)
{
    struct stk_file *left = NULL;
    int status = file->upload ? 0 : stk_io_open_file(copy->io, file->part_path, &left, error);

    if (status == 0) {
        status = add_left(copy, file, left, file->bytes, false, error);
    }
    if (left) {
        stk_io_close_file(copy->io, left);
    }
    return status;
}

/* After all was added. body: all of it; NULL: it is read again, where that is needed. */
int stk_copy_judge_whole(struct stoker_copy *copy, struct stk_copy_file *file,
                         const struct stk_view *body, struct stoker_error *error)
{
    int verdict = STK_WHOLE_UNKNOWN, status;

    if (!file->whole) {
        return 0;
    }
    file->error = error;
    verdict = stk_whole_judge(file->whole);
    if (verdict == STK_WHOLE_AGAIN) {
        status = body ? stk_copy_add_whole(file, *body, error) : add_again(copy, file, error);
        verdict = status < 0 ? status : stk_whole_judge(file->whole);
    }
    if (verdict == STK_WHOLE_WRONG) {
        return fail_wrong(file, error);
    }
    if (verdict == STK_WHOLE_PROVEN) {
        stk_store_proven(file->store, file->from_place, file->bytes);
    }
    return verdict < 0 ? verdict : 0;
}

/* In the turn of the first part that comes: what an earlier run left is before it. */
int stk_copy_begin_sums(struct stoker_copy *copy, struct stk_copy_file *file,
                        struct stoker_error *error)
{
    uint64_t bytes = file->kept * file->part_bytes;
    struct stk_file *left;
    int status = stk_copy_open_whole(copy, file, error);

    if (status < 0 || bytes == 0 || (!file->whole && !stk_route_sums(file->source))) {
        return status;
    }
    status = stk_io_open_file(copy->io, file->part_path, &left, error);
    if (status == 0) {
        status = add_left(copy, file, left, bytes, true, error);
        stk_io_close_file(copy->io, left);
    }
    return status;
}

/* ---- what lies at the destination ---- */

int stk_copy_is_same(struct stoker_copy *copy, const struct stk_copy_file *file,
                     struct stk_view buffer)
{
    uint8_t *bytes = (uint8_t *)(uintptr_t)buffer.data;
    bool git = strlen(file->hash) == 40;
    struct stk_seal_sum sum;
    struct stk_file *there;
    struct stk_seal seal;
    uint64_t done = 0;
    char text[72];
    int64_t got;

    if (stk_io_open_file(copy->io, file->to, &there, NULL) < 0) {
        return 0;
    }
    stk_seal_begin(&sum, git ? STK_SEAL_GIT : STK_SEAL_SHA256, file->bytes);
    do {
        got = atomic_load_explicit(&copy->stop, memory_order_relaxed)
                  ? STOKER_ERROR_CLOSED
                  : stk_io_read_wait(copy->io, there, done, bytes, buffer.bytes);
        if (got > 0) {
            stk_seal_add(&sum, (struct stk_view){bytes, (size_t)got});
            done += (uint64_t)got;
        }
    } while (got > 0 && done <= file->bytes);
    stk_io_close_file(copy->io, there);
    seal = stk_seal_end(&sum);
    stk_hex(seal.sum, stk_seal_bytes(seal.kind), text);
    if (got == STOKER_ERROR_CLOSED) {
        return STOKER_ERROR_CLOSED;
    }
    return got == 0 && done == file->bytes && strcmp(text, file->hash) == 0;
}
