/* One read as several ranges: side by side they are faster than one, and one that breaks costs
 * less. */
#include "storage/vfs/remote_file.h"

#include "base/mem.h"

static void on_part(struct stk_operation *part, const struct stk_http_response *answer);

static struct stk_range_read *make(struct stk_remote_file *remote, uint64_t offset, uint64_t bytes,
                                   uint8_t *buffer, uint64_t count)
{
    struct stk_range_read *parts;

    if (count > UINT32_MAX / sizeof parts->parts[0]) {
        return NULL;
    }
    parts = stk_alloc(1, sizeof *parts + count * sizeof parts->parts[0]);
    if (!parts) {
        return NULL;
    }
    parts->offset = offset;
    parts->buffer = buffer;
    parts->bytes = bytes;
    parts->count = (uint32_t)count;
    parts->remote = remote;
    atomic_fetch_add_explicit(&remote->users, 1, memory_order_relaxed);
    return parts;
}

struct stk_range_read *stk_range_read_new_waiting(struct stk_remote_file *remote, uint64_t offset,
                                                  uint64_t bytes, uint8_t *buffer)
{
    return make(remote, offset, bytes, buffer, 0);
}

struct stk_range_read *stk_range_read_new(struct stk_remote_file *remote, uint64_t offset,
                                          uint64_t bytes, uint8_t *buffer)
{
    uint64_t most = stk_store_range_bytes(remote->object), count = (bytes + most - 1) / most;
    struct stk_range_read *parts = make(remote, offset, bytes, buffer, count);

    for (uint64_t i = 0; parts && i < count; i++) {
        uint64_t begin = i * most;

        stk_store_init_read(&parts->parts[i], remote->object, &remote->info, offset + begin,
                            stk_min(bytes - begin, most), buffer + begin);
        parts->parts[i].coverage = remote->coverage;
        parts->parts[i].done = on_part;
        parts->parts[i].owner = parts;
    }
    return parts;
}

void stk_range_read_start(struct stk_range_read *parts, struct stk_store *store)
{
    uint32_t count = parts->count;

    atomic_store_explicit(&parts->remaining, count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) { /* the last may end before this returns */
        parts->parts[i].stop = parts->stop;
        stk_operation_start(store, &parts->parts[i]);
    }
}

void stk_range_read_cancel(struct stk_range_read *parts)
{
    for (uint32_t i = 0; i < parts->count; i++) {
        stk_operation_cancel(&parts->parts[i]);
    }
}

void stk_range_read_free(struct stk_range_read *parts)
{
    if (parts) {
        stk_remote_file_release(parts->remote);
        stk_free(parts);
    }
}

/* The reactor is one thread: so the parts of a read end one after the other. */
static void on_part(struct stk_operation *part, const struct stk_http_response *answer)
{
    struct stk_range_read *parts = part->owner;

    (void)answer;
    if (part->status == 0) {
        stk_remote_file_set_checksums(parts->remote, &part->seals);
    } else if (parts->status == 0) {
        parts->status = part->status;
        stk_remote_file_set_error(parts->remote, &part->error);
    }
    /* Release: who sees the last one gone sees what all brought. */
    if (atomic_fetch_sub_explicit(&parts->remaining, 1, memory_order_acq_rel) == 1) {
        parts->done(parts);
    }
}
