/* Repeats checks of mapped files at intervals that follow from their cost. */
#include "io/map_watch.h"

int stk_map_watch_check(struct stk_map_watch *watch, struct stk_io *io,
                        int (*check)(const void *owner, struct stoker_error *error),
                        const void *owner, struct stoker_error *error)
{
    uint64_t begin_ns = stk_io_clock_ns(io), faults = stk_io_map_faults(io), end_ns;
    int status;

    /* Relaxed: a thread that reads an older time checks once more. */
    if (begin_ns < atomic_load_explicit(&watch->next_ns, memory_order_relaxed) &&
        faults == atomic_load_explicit(&watch->faults, memory_order_relaxed)) {
        return 0;
    }
    status = check(owner, error);
    if (status == 0) {
        end_ns = stk_io_clock_ns(io);
        atomic_store_explicit(&watch->faults, faults, memory_order_relaxed);
        atomic_store_explicit(&watch->next_ns, end_ns + STK_MAP_WATCH_SHARE * (end_ns - begin_ns),
                              memory_order_relaxed);
    }
    return status;
}
