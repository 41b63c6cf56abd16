/* io/posix/map_guard.h: mapped files that another process may change while they are mapped.
 *
 *   add --> page read --> the file was cut: SIGBUS --handler--> a page of zeros in its place:
 * broken
 *       --> check: broken, or another size or time: STOKER_ERROR_CHANGED
 *   remove
 *
 * A read of a mapped page that its file no longer has raises SIGBUS, which ends the process. The
 * handler of this file replaces the rest of the map by zeros instead, so that readers, which check
 * all numbers of a map, continue until their caller checks the map. SIGBUS of other memory goes to
 * the handler that was set before.
 *
 * Owner: the process. Threads: any; the handler takes no lock.
 * Memory: 128 bytes a map, never given back, and its path. Bound: STK_MAP_GUARDS_MAX. */
#ifndef IO_POSIX_MAP_GUARD_H
#define IO_POSIX_MAP_GUARD_H

#include "base/base.h"

#include <sys/stat.h>

#define STK_MAP_GUARDS_MAX (1u << 21)

/* Registers a map. path: of its file; about: as the file was when it was mapped. Returns 0 on
 * success, -ENOMEM if there is no memory or are too many maps. */
int stk_map_guard_add(struct stk_view map, const char *path, const struct stat *about);
/* The same for a map that this process writes to. Zeros in place of lost pages can be written, too,
 * but no other process sees that: after a fault ask stk_map_guard_is_broken. */
int stk_map_guard_add_writable(struct stk_view map, const char *path, const struct stat *about);
/* Whether pages of a map were replaced. Costs one load while no page of any map was. */
bool stk_map_guard_is_broken(struct stk_view map);
/* Forgets a map that is about to be unmapped; any other view is ignored. */
void stk_map_guard_remove(struct stk_view map);
/* Checks a map. Returns 0 if its file is what it was, or was replaced or removed (the map has the
 * old one), or if the view is no map; STOKER_ERROR_CHANGED if it was written to or cut; -EIO if a
 * page cannot be read. */
int stk_map_guard_check(struct stk_view map, struct stoker_error *error);
/* The number of pages that the handler has replaced. */
uint64_t stk_map_guard_faults(void);

#endif
