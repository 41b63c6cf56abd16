/* io/map_watch.h: when to check whether mapped files changed: always after a page could not be
 * read, and else as often as costs a hundredth of the time.
 *
 *   read numbers of maps --> due? --check each map: stk_io_map_check--> checked --> hand them on
 *
 * Owner: who reads the maps. Threads: any. Memory: 16 bytes. Bound: none. */
#ifndef IO_MAP_WATCH_H
#define IO_MAP_WATCH_H

#include "io/io.h"

#include <stdatomic.h>

/* A check that costs c is repeated after c times this. */
#define STK_MAP_WATCH_SHARE 100u

struct stk_map_watch {
    _Atomic uint64_t next_ns, faults;
};

/* Runs `check` if it is due. Returns its status, or 0. A check that failed is due again at once. */
int stk_map_watch_check(struct stk_map_watch *watch, struct stk_io *io,
                        int (*check)(const void *owner, struct stoker_error *error),
                        const void *owner, struct stoker_error *error);

#endif
