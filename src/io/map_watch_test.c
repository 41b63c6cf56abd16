/* Goal: a watch checks at its first use, after its cost times STK_MAP_WATCH_SHARE, and at once
 * after a page was lost; a check that failed is due again. Method: a clock and a counter of this
 * test. */
#include "io/map_watch.h"

#include "test/t.h"

#include <errno.h>

static uint64_t now_ns, faults, checks;

static uint64_t clock_ns(struct stk_io *io)
{
    (void)io;
    return now_ns;
}

static uint64_t map_faults(struct stk_io *io)
{
    (void)io;
    return faults;
}

/* Takes 1,000 ns. */
static int check(const void *owner, struct stoker_error *error)
{
    (void)error;
    checks++;
    now_ns += 1000;
    return *(const int *)owner;
}

int main(void)
{
    static const struct stk_io_table table = {.clock_ns = clock_ns, .map_faults = map_faults};
    struct stk_io io = {&table};
    struct stk_map_watch watch = {0};
    int status = 0;

    for (int i = 0; i < 3000; i++) { /* 300 microseconds */
        T_EQ("good", stk_map_watch_check(&watch, &io, check, &status, NULL), 0);
        now_ns += 100;
    }
    T_EQ("a hundredth of the time", checks, 3);
    faults++;
    T_EQ("page lost", stk_map_watch_check(&watch, &io, check, &status, NULL), 0);
    T_EQ("at once", checks, 4);
    T_EQ("known", stk_map_watch_check(&watch, &io, check, &status, NULL), 0);
    T_EQ("not again", checks, 4);
    now_ns += 200000;
    status = -EIO;
    for (int i = 0; i < 3; i++) {
        T_EQ("failed", stk_map_watch_check(&watch, &io, check, &status, NULL), -EIO);
    }
    T_EQ("each time", checks, 7);
    return t_finish();
}
