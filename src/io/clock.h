/* io/clock.h: the clocks of this machine, for who has no struct stk_io to ask.
 * Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef IO_CLOCK_H
#define IO_CLOCK_H

#include <stdint.h>

/* Monotonic. */
uint64_t stk_clock_ns(void);
/* Since 1970, for what others' clocks are compared with: it may be set, and jump. */
uint64_t stk_clock_wall_ns(void);

#endif
