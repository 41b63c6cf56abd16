/* io/clock.h: the clocks of this machine, for code without a struct stk_io.
 * Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef IO_CLOCK_H
#define IO_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic. */
uint64_t stk_clock_ns(void);
/* A time of stk_clock_ns, or of stk_clock_wall_ns, for a timed wait. */
static inline struct timespec stk_clock_timespec(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
}
/* Since 1970, to compare with the clocks of servers. It may jump when it is set. */
uint64_t stk_clock_wall_ns(void);

#endif
