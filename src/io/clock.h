/* io/clock.h: the clocks of this machine, for code without a struct stk_io.
 * Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef IO_CLOCK_H
#define IO_CLOCK_H

#include <stdint.h>

/* Monotonic. */
uint64_t stk_clock_ns(void);
/* Since 1970, to compare with the clocks of servers. It may jump when it is set. */
uint64_t stk_clock_wall_ns(void);

#endif
