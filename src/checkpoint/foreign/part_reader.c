/* Reads bytes of a part of a file. */
#include "checkpoint/foreign/part_reader.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

static int read_file(struct stk_foreign_source *source, uint64_t offset, void *data, size_t bytes,
                     struct stoker_error *error)
{
    int64_t got = stk_io_read_wait(source->file, source->base + offset, data, bytes);

    if (got < 0) {
        int status =
            stk_io_fail_read(source->file, got, "cannot read the file of a checkpoint", error);

        stk_error_set_location(error, source->path, source->base + offset, NULL);
        return status;
    }
    return got == (int64_t)bytes
               ? 0
               : stk_fail(error, STOKER_ERROR_TRUNCATED, "the file ends too early",
                          "copy the file again, or use another checkpoint",
                          "'%.400s' byte %" PRIu64, source->path,
                          source->base + offset + (uint64_t)got);
}

/* Fills the window that was filled first. */
static int fill(struct stk_foreign_source *source, uint64_t offset, uint32_t *window_out,
                struct stoker_error *error)
{
    uint32_t window = source->oldest;
    uint64_t begin = offset / STK_FOREIGN_WINDOW_BYTES * STK_FOREIGN_WINDOW_BYTES;
    int status;

    if (source->bytes < begin + STK_FOREIGN_WINDOW_BYTES) { /* the last one is a full one, too */
        begin = source->bytes - stk_min(source->bytes, STK_FOREIGN_WINDOW_BYTES);
    }
    if (!source->windows[window].data) {
        source->windows[window].data = stk_alloc(STK_FOREIGN_WINDOW_BYTES, 1);
        if (!source->windows[window].data) {
            return stk_fail_memory(error, "'%.400s'", source->path);
        }
    }
    source->windows[window].offset = begin;
    source->windows[window].bytes = 0;
    status = read_file(source, begin, source->windows[window].data,
                       (size_t)stk_min(source->bytes - begin, STK_FOREIGN_WINDOW_BYTES), error);
    if (status == 0) {
        source->windows[window].bytes =
            (size_t)stk_min(source->bytes - begin, STK_FOREIGN_WINDOW_BYTES);
        source->oldest = !window;
        *window_out = window;
    }
    return status;
}

int stk_foreign_read(struct stk_foreign_source *source, uint64_t offset, void *data, size_t bytes,
                     struct stoker_error *error)
{
    uint8_t *to = data;

    if (offset > source->bytes || bytes > source->bytes - offset) {
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "the file ends too early",
                        "copy the file again, or use another checkpoint", "'%.400s' byte %" PRIu64,
                        source->path, source->base + source->bytes);
    }
    if (!source->io) {
        memcpy(data, source->memory + source->base + offset, bytes);
        return 0;
    }
    if (bytes >= STK_FOREIGN_WINDOW_BYTES) {
        return read_file(source, offset, data, bytes, error);
    }
    while (bytes > 0) {
        uint32_t window = 2;
        size_t skip, some;

        for (uint32_t i = 0; i < 2; i++) {
            if (source->windows[i].bytes > 0 && offset >= source->windows[i].offset &&
                offset - source->windows[i].offset < source->windows[i].bytes) {
                window = i;
            }
        }
        if (window == 2) {
            int status = fill(source, offset, &window, error);

            if (status < 0) {
                return status;
            }
        }
        skip = (size_t)(offset - source->windows[window].offset);
        some = (size_t)stk_min(bytes, source->windows[window].bytes - skip);
        memcpy(to, source->windows[window].data + skip, some);
        to += some;
        offset += some;
        bytes -= some;
    }
    return 0;
}

void stk_foreign_source_deinit(struct stk_foreign_source *source)
{
    stk_free(source->windows[0].data);
    stk_free(source->windows[1].data);
    *source = (struct stk_foreign_source){0};
}
