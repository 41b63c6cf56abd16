/* One read of a file: with O_DIRECT or through the page cache, in as many calls as it takes. */
#include "io/posix/posix.h"

#include <errno.h>

#define HOLES_SHARE_MIN 8u /* at most one page in so many is missing */

/* Returns true if the page cache has nearly all of the range. Then the missing pages are read into
 * the cache as well: with O_DIRECT they would stay missing, and each later read of the range would
 * go to the disk. */
static bool range_has_holes(struct stk_posix_file *file, uint64_t offset, uint64_t bytes)
{
    uint64_t pages, missing = stk_posix_file_pages_missing(file, offset, bytes, &pages);

    return pages > 0 && missing <= pages / HOLES_SHARE_MIN;
}

void stk_read_part_init(struct stk_read_part *span, struct stk_posix *posix, struct stk_read *read)
{
    struct stk_posix_file *file = stk_posix_file(read->file);
    int direct = read->keep_cached ? -1 : stk_posix_file_direct_fd(file);

    if (direct >= 0 && posix->options.direct == STOKER_DIRECT_AUTO &&
        range_has_holes(file, read->offset, read->bytes)) {
        direct = -1;
    }
    *span = (struct stk_read_part){
        .fd = file->fd,
        .buffered_fd = file->fd,
        .is_network = file->is_network,
        .buffer = read->buffer,
        .offset = read->offset,
        .wanted_offset = read->offset,
        .wanted_bytes = read->bytes,
        .bytes = read->bytes,
    };
    if (direct >= 0) {
        uint32_t skip = (uint32_t)(read->offset & (STK_IO_ALIGN - 1));

        STK_ASSERT((uintptr_t)read->buffer % STK_IO_ALIGN == 0);
        STK_ASSERT(read->capacity >= stk_round_up((uint64_t)skip + read->bytes, STK_IO_ALIGN));
        span->direct = true;
        span->fd = direct;
        span->offset -= skip;
        span->bytes = (uint32_t)stk_round_up((uint64_t)skip + read->bytes, STK_IO_ALIGN);
    }
}

bool stk_read_part_advance(struct stk_read_part *span, int64_t returned)
{
    uint32_t enough = (uint32_t)(span->wanted_offset - span->offset) + span->wanted_bytes;

    if (returned == -EINTR || returned == -EAGAIN) {
        span->failure = (int)returned;
        return ++span->retries > STK_READ_PART_RETRIES_MAX;
    }
    span->failure = 0;
    if (span->direct && (returned == -EINVAL || returned == -EOPNOTSUPP)) {
        /* The file system allows O_DIRECT but not this read: read through the page cache. */
        span->direct = false;
        span->refused = true;
        span->fd = span->buffered_fd;
        span->offset = span->wanted_offset;
        span->bytes = span->wanted_bytes;
        span->done = 0;
        return false;
    }
    if (returned < 0) {
        span->failure = (int)returned;
        return true;
    }
    span->done += (uint32_t)returned;
    if (returned == 0 || span->done >= enough) {
        return true;
    }
    /* With O_DIRECT, a count that is no multiple of the block size means the end of the file. */
    return span->direct && span->done % STK_IO_ALIGN != 0;
}

void stk_read_part_finish(const struct stk_read_part *span, struct stk_read *read)
{
    uint32_t skip = (uint32_t)(span->wanted_offset - span->offset);

    if (span->refused) {
        atomic_store_explicit(&stk_posix_file(read->file)->direct_refused, true,
                              memory_order_relaxed);
    }
    read->leaked = false;
    read->skip = skip;
    read->result = span->failure;
    if (span->failure == 0) {
        read->result =
            span->done > skip ? (int64_t)stk_min(span->done - skip, span->wanted_bytes) : 0;
    }
}

void stk_posix_abandon(struct stk_posix *posix, struct stk_read *read, int status, bool lost)
{
    read->result = status;
    read->skip = 0;
    read->leaked = lost;
    if (lost) {
        atomic_fetch_add_explicit(&posix->leaked_bytes, read->capacity, memory_order_relaxed);
    }
}
