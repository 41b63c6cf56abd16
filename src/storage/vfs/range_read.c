/* One read of an object as several range requests. */
#include "storage/vfs/range_read.h"

#include "base/mem.h"

static void on_part(struct stk_operation *part, const struct stk_http_response *response);

static struct stk_range_read *make(struct stk_range_source *source, uint64_t offset, uint64_t bytes,
                                   uint8_t *buffer, uint64_t count)
{
    struct stk_range_read *read;

    if (count > UINT32_MAX / sizeof read->parts[0]) {
        return NULL;
    }
    read = stk_alloc(1, sizeof *read + count * sizeof read->parts[0]);
    if (!read) {
        return NULL;
    }
    read->offset = offset;
    read->buffer = buffer;
    read->bytes = bytes;
    read->count = (uint32_t)count;
    read->source = source;
    source->ops->retain(source);
    return read;
}

struct stk_range_read *stk_range_read_new_waiting(struct stk_range_source *source, uint64_t offset,
                                                  uint64_t bytes, uint8_t *buffer)
{
    return make(source, offset, bytes, buffer, 0);
}

struct stk_range_read *stk_range_read_new(struct stk_range_source *source, uint64_t offset,
                                          uint64_t bytes, uint8_t *buffer)
{
    uint64_t most = stk_store_range_bytes(source->object), count = (bytes + most - 1) / most;
    struct stk_range_read *read = make(source, offset, bytes, buffer, count);

    for (uint64_t i = 0; read && i < count; i++) {
        uint64_t begin = i * most;

        stk_store_init_read(&read->parts[i], source->object, &source->info, offset + begin,
                            stk_min(bytes - begin, most), buffer + begin);
        read->parts[i].coverage = source->coverage;
        read->parts[i].done = on_part;
        read->parts[i].owner = read;
    }
    return read;
}

void stk_range_read_start(struct stk_range_read *read, struct stk_store *store)
{
    uint32_t count = read->count;

    atomic_store_explicit(&read->remaining, count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) { /* the last one may end before this returns */
        read->parts[i].stop = read->stop;
        stk_operation_start(store, &read->parts[i]);
    }
}

void stk_range_read_cancel(struct stk_range_read *read)
{
    for (uint32_t i = 0; i < read->count; i++) {
        stk_operation_cancel(&read->parts[i]);
    }
}

void stk_range_read_free(struct stk_range_read *read)
{
    if (read) {
        read->source->ops->release(read->source);
        stk_free(read);
    }
}

/* The reactor is one thread, so the requests of a read end one after the other. */
static void on_part(struct stk_operation *part, const struct stk_http_response *response)
{
    struct stk_range_read *read = part->owner;

    (void)response;
    if (part->status == 0) {
        read->source->ops->add_checksums(read->source, &part->seals);
    } else if (read->status == 0) {
        read->status = part->status;
        read->source->ops->set_error(read->source, &part->error);
    }
    /* Release: a thread that sees the count at 0 sees the bytes of all requests. */
    if (atomic_fetch_sub_explicit(&read->remaining, 1, memory_order_acq_rel) == 1) {
        read->done(read);
    }
}
