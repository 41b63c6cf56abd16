/* Reads ahead into a ring of blocks, and returns the oldest one. */
#include "engine/read_ahead.h"

#include "base/memory_pages.h"
#include "storage/vfs/vfs.h"

#include <errno.h>

enum { CAPACITY = STK_READ_AHEAD_BLOCK_BYTES + STK_IO_ALIGN, SLICE_MS = 1000 };

static int request_blocks(struct stk_read_ahead *reader, struct stoker_error *error);
static int take_oldest(struct stk_read_ahead *reader, struct stk_view *block_out,
                       struct stoker_error *error);
static void mark_reads_done(struct stk_read_ahead *reader, struct stk_read *reads);

void stk_read_ahead_init(struct stk_read_ahead *reader, struct stoker_engine *engine)
{
    *reader = (struct stk_read_ahead){.engine = engine};
}

void stk_read_ahead_deinit(struct stk_read_ahead *reader)
{
    if (!reader->engine) {
        return;
    }
    stk_read_ahead_stop(reader);
    if (reader->queue) {
        stk_io_queue_close(reader->engine->io, reader->queue);
    }
    for (int i = 0; i < STK_READ_AHEAD_BLOCKS; i++) {
        if (reader->blocks[i].memory) {
            stk_pages_free(reader->blocks[i].memory, CAPACITY);
        }
    }
    stk_budget_release(&reader->engine->budget, reader->reserved);
    *reader = (struct stk_read_ahead){0};
}

/* Allocates blocks that were never allocated, or whose memory was left to the kernel. */
static int prepare(struct stk_read_ahead *reader, struct stoker_error *error)
{
    uint64_t bytes = (uint64_t)CAPACITY * STK_READ_AHEAD_BLOCKS;

    if (reader->reserved == 0) {
        int status = stk_engine_reserve(reader->engine, bytes,
                                        reader->engine->options.read_timeout_ms, "a reader", error);
        if (status < 0) {
            return status;
        }
        reader->reserved = bytes;
    }
    for (int i = 0; i < STK_READ_AHEAD_BLOCKS; i++) {
        struct stk_read_ahead_block *block = &reader->blocks[i];

        block->memory = block->memory ? block->memory : stk_pages_alloc(CAPACITY);
        if (!block->memory) {
            return stk_fail(error, -ENOMEM, "cannot read ahead", "free memory", "%d bytes",
                            CAPACITY);
        }
    }
    return 0;
}

int stk_read_ahead_start(struct stk_read_ahead *reader, const char *path,
                         struct stoker_error *error)
{
    struct stk_io *io = reader->engine->io;
    struct stk_stat about = {0};
    int status = prepare(reader, error);

    STK_ASSERT(!reader->file);
    status = status < 0 ? status : stk_io_open_file(io, path, &reader->file, error);
    if (status < 0) {
        reader->file = NULL;
        return status;
    }
    status = stk_io_stat_file(reader->file, &about, error);
    if (status < 0) {
        stk_read_ahead_stop(reader);
        return status;
    }
    /* a smaller object is received with its checksum */
    if (about.bytes > STK_VFS_ROUND_TRIP_BYTES) {
        stk_vfs_fetch_checksum(reader->file);
    }
    stk_vfs_prefetch(reader->file, reader); /* the complete object, if there is memory for it */
    reader->bytes = about.bytes;
    reader->offset = reader->requested = 0;
    reader->first = reader->waiting = 0;
    return 0;
}

void stk_read_ahead_stop(struct stk_read_ahead *reader)
{
    struct stk_io *io = reader->engine->io;
    bool in_flight = false;

    for (int i = 0; i < STK_READ_AHEAD_BLOCKS; i++) {
        in_flight = in_flight || reader->blocks[i].in_flight;
    }
    if (in_flight) { /* closing returns every read, or marks it as leaked */
        stk_io_queue_close(io, reader->queue);
        reader->queue = NULL;
    }
    for (int i = 0; i < STK_READ_AHEAD_BLOCKS; i++) {
        struct stk_read_ahead_block *block = &reader->blocks[i];

        if (block->in_flight && block->read.leaked) {
            stk_pages_leak(block->memory);
            block->memory = NULL;
        }
        block->in_flight = false;
    }
    if (reader->file) {
        stk_vfs_prefetch_release(io, reader);
        stk_io_close_file(reader->file);
        reader->file = NULL;
    }
    reader->waiting = 0;
}

static int fail_read(const struct stk_read_ahead *reader, int64_t result,
                     struct stoker_error *error)
{
    stk_io_fail_read(reader->file, result, "cannot read", error);
    stk_error_set_location(error, NULL, reader->offset, NULL);
    return (int)result;
}

int stk_read_ahead_next(struct stk_read_ahead *reader, struct stk_view *block_out,
                        struct stoker_error *error)
{
    size_t want = (size_t)stk_min(STK_READ_AHEAD_BLOCK_BYTES, reader->bytes - reader->offset);
    struct stk_read_ahead_block *block = &reader->blocks[reader->first];
    int status;

    *block_out = (struct stk_view){block->memory, 0};
    if (want == 0) {
        return 0;
    }
    if (reader->waiting == 0) {
        int64_t got = stk_io_read_now(reader->file, reader->offset, block->memory, want);
        if (got == (int64_t)want) {
            reader->offset += want;
            reader->requested = reader->offset;
            block_out->bytes = want;
            return 0;
        }
        if (got < 0 && got != -EAGAIN) {
            return fail_read(reader, got, error);
        }
    }
    status = request_blocks(reader, error);
    return status < 0 ? status : take_oldest(reader, block_out, error);
}

int stk_read_ahead_seek(struct stk_read_ahead *reader, uint64_t offset, struct stoker_error *error)
{
    int status = 0;

    STK_ASSERT(offset <= reader->bytes);
    while (reader->waiting > 0 && status == 0) {
        struct stk_view dropped;

        status = take_oldest(reader, &dropped, error);
    }
    reader->offset = reader->requested = offset;
    return status;
}

/* Requests blocks until the ring is full or the file ends. */
static int request_blocks(struct stk_read_ahead *reader, struct stoker_error *error)
{
    struct stk_io *io = reader->engine->io;

    if (!reader->queue) {
        int status = stk_io_queue_open(io, &reader->queue, error);
        if (status < 0) {
            reader->queue = NULL;
            return status;
        }
    }
    while (reader->waiting < STK_READ_AHEAD_BLOCKS && reader->requested < reader->bytes) {
        struct stk_read_ahead_block *block =
            &reader->blocks[(reader->first + reader->waiting) % STK_READ_AHEAD_BLOCKS];
        uint32_t bytes =
            (uint32_t)stk_min(STK_READ_AHEAD_BLOCK_BYTES, reader->bytes - reader->requested);

        block->read = (struct stk_read){.file = reader->file,
                                        .offset = reader->requested,
                                        .buffer = block->memory,
                                        .bytes = bytes,
                                        .capacity = CAPACITY,
                                        .owner = block};
        if (stk_io_submit(io, reader->queue, &block->read) != 1) {
            break; /* the queue is shallower than the ring */
        }
        block->in_flight = true;
        reader->waiting++;
        reader->requested += bytes;
    }
    STK_ASSERT(reader->waiting > 0);
    return 0;
}

/* Waits for the oldest block. Ends, since the engine sets a deadline for each read. */
static int take_oldest(struct stk_read_ahead *reader, struct stk_view *block_out,
                       struct stoker_error *error)
{
    struct stk_read_ahead_block *block = &reader->blocks[reader->first];
    int64_t got;

    while (block->in_flight) {
        mark_reads_done(reader, stk_io_reap(reader->engine->io, reader->queue, SLICE_MS));
    }
    reader->first = (reader->first + 1) % STK_READ_AHEAD_BLOCKS;
    reader->waiting--;
    got = block->read.result;
    if (got < 0) {
        return fail_read(reader, got, error);
    }
    *block_out = (struct stk_view){block->memory + block->read.skip, (size_t)got};
    reader->offset += (uint64_t)got;
    if ((uint64_t)got < block->read.bytes) { /* the file was truncated after start */
        reader->bytes = reader->offset;
    }
    return 0;
}

static void mark_reads_done(struct stk_read_ahead *reader, struct stk_read *reads)
{
    (void)reader;
    for (; reads; reads = reads->next) {
        struct stk_read_ahead_block *block = reads->owner;

        block->in_flight = false;
        if (reads->leaked) {
            stk_pages_leak(block->memory);
            block->memory = NULL;
        }
    }
}
