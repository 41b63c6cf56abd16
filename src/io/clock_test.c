/* Goal: the monotonic clock does not go back, and the wall clock equals the machine's. Covers
 * clock.c.
 * Method: two readings of each, compared with the C library's. */
#include "io/clock.h"

#include "test/t.h"

#include <time.h>

int main(void)
{
    uint64_t before_ns = stk_clock_ns(), after_ns = stk_clock_ns();
    uint64_t before_s = (uint64_t)time(NULL), wall_s = stk_clock_wall_ns() / 1000000000u;

    T_TRUE("does not go back", after_ns >= before_ns);
    /* time() may read a tick of the kernel that is a little older. */
    T_TRUE("the machine's", wall_s >= before_s && wall_s <= (uint64_t)time(NULL) + 1);
    return t_finish();
}
