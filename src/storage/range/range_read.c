/* One read of an object in several parts. */
#include "storage/range/range_read.h"

#include "base/mem.h"
#include "storage/range/block_reader.h"

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
    uint64_t most = source->reader ? stk_block_reader_block_bytes(source->reader)
                                   : stk_store_range_bytes(source->object);
    uint64_t lead = source->reader ? offset % most : 0; /* the parts end where blocks end */
    uint64_t count = (lead + bytes + most - 1) / most, begin = 0;
    struct stk_range_read *read = make(source, offset, bytes, buffer, count);

    for (uint64_t i = 0; read && i < count; i++) {
        uint64_t end = stk_min(bytes, (i + 1) * most - lead);
        struct stk_range_part *part = &read->parts[i];

        stk_store_init_read(&part->operation, source->object, &source->info, offset + begin,
                            end - begin, buffer + begin);
        part->operation.coverage = source->coverage;
        part->operation.done = on_part;
        part->operation.owner = part;
        part->read = read;
        part->block = offset / most + i;
        begin = end;
    }
    return read;
}

void stk_range_read_start(struct stk_range_read *read, struct stk_store *store)
{
    struct stk_block_reader *reader = read->source->reader;
    uint32_t count = read->count;

    atomic_store_explicit(&read->remaining, count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) { /* the last one may end before this returns */
        read->parts[i].operation.stop = read->stop;
        if (reader) {
            stk_block_reader_start(reader, store, &read->parts[i]);
        } else {
            stk_operation_start(store, &read->parts[i].operation);
        }
    }
}

void stk_range_read_cancel(struct stk_range_read *read)
{
    for (uint32_t i = 0; i < read->count; i++) {
        stk_operation_cancel(&read->parts[i].operation);
    }
}

void stk_range_read_free(struct stk_range_read *read)
{
    if (read) {
        read->source->ops->release(read->source);
        stk_free(read);
    }
}

void stk_range_part_end(struct stk_range_part *part, int status, const struct stoker_error *error)
{
    struct stk_range_read *read = part->read;
    int none = 0;

    if (status < 0 && atomic_compare_exchange_strong(&read->status, &none, status)) {
        read->error = *error;
        read->source->ops->set_error(read->source, error);
    }
    /* Release: a thread that sees the count at 0 sees the bytes of all parts. */
    if (atomic_fetch_sub_explicit(&read->remaining, 1, memory_order_acq_rel) == 1) {
        read->done(read);
    }
}

/* On the reactor. */
static void on_part(struct stk_operation *operation, const struct stk_http_response *response)
{
    struct stk_range_part *part = operation->owner;

    (void)response;
    if (operation->status == 0) {
        part->read->source->ops->add_checksums(part->read->source, &operation->seals);
    }
    stk_range_part_end(part, operation->status, &operation->error);
}
