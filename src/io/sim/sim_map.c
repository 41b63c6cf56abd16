/* Maps of simulated files: copies, and counters of their pages. */
#include "io/sim/sim_private.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

/* A copy behaves like a map, since mapped files are only replaced. */
int stk_sim_map(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
                struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    const struct stk_sim_node *node = (const struct stk_sim_node *)(void *)file;
    uint8_t *copy = NULL;
    int status;

    pthread_mutex_lock(&sim->lock);
    status = stk_sim_count_call(sim);
    if (status == 0) {
        copy = stk_alloc(stk_max(node->bytes, 1), 1);
        status = copy ? 0 : -ENOMEM;
    }
    if (status == 0 && node->bytes > 0) {
        memcpy(copy, node->data, node->bytes);
    }
    *view_out = (struct stk_view){copy, status == 0 ? node->bytes : 0};
    pthread_mutex_unlock(&sim->lock);
    if (view_out->bytes == 0) {
        stk_free(copy);
        view_out->data = (const uint8_t *)"";
    }
    return status < 0 ? stk_sim_fail(error, -status, "cannot map a file", "world") : 0;
}

void stk_sim_unmap(struct stk_io *io, struct stk_view view)
{
    (void)io;
    stk_free((void *)(uintptr_t)view.data);
}

void stk_sim_map_prefetch(struct stk_io *io, struct stk_view part)
{
    atomic_fetch_add_explicit(&stk_sim_of(io)->prefetched_bytes, part.bytes, memory_order_relaxed);
}

uint64_t stk_sim_thread_disk_reads(struct stk_io *io)
{
    struct stk_sim *sim = stk_sim_of(io);

    return atomic_fetch_add_explicit(&sim->reads,
                                     atomic_load_explicit(&sim->reads_step, memory_order_relaxed),
                                     memory_order_relaxed);
}

void stk_sim_set_cold(struct stk_io *io, bool cold)
{
    atomic_store_explicit(&stk_sim_of(io)->reads_step, cold, memory_order_relaxed);
}

uint64_t stk_sim_prefetched_bytes(struct stk_io *io)
{
    return atomic_load_explicit(&stk_sim_of(io)->prefetched_bytes, memory_order_relaxed);
}
