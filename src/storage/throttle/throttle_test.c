/* Throttling in simulated time: failing servers, full links, latencies, the budget of hedges,
 * shares. */
#include "test/t.h"
#include "base/random.h"
#include "storage/throttle/throttle.h"

#define MS 1000000ull
#define SECOND 1000000000ull

/* ---- rates ---- */

/* A server error, or a failed connection, does not depend on the rate: it creates no limit, nor
 * does an outage of such errors, however soon another follows. */
static void test_broken_is_no_rate(void)
{
    struct stk_rate_limit pace = {0};
    uint64_t now_ns = 10 * SECOND, begin_ns;

    for (uint32_t i = 0; i < 3000; i++, now_ns += MS) {
        stk_rate_limit_record(&pace, now_ns, now_ns,
                              i % 3 ? STK_RATE_LIMIT_FAILED : STK_RATE_LIMIT_OK);
    }
    T_TRUE("two of three",
           pace.halvings == 0 && pace.rate == 0 && !stk_rate_limit_is_outage(&pace));
    for (uint32_t round = 0; round < 4; round++) {
        for (begin_ns = now_ns; now_ns < begin_ns + SECOND; now_ns += 10 * MS) {
            stk_rate_limit_record(&pace, now_ns, now_ns, STK_RATE_LIMIT_FAILED);
        }
        T_TRUE("an outage", stk_rate_limit_is_outage(&pace));
        T_TRUE("few are let through", pace.rate <= STK_RATE_LIMIT_PROBE_MAX);
        for (begin_ns = now_ns; now_ns < begin_ns + 2 * SECOND; now_ns += 10 * MS) {
            stk_rate_limit_record(&pace, now_ns, now_ns, STK_RATE_LIMIT_OK);
        }
        T_TRUE("over, without a limit", !stk_rate_limit_is_outage(&pace) && pace.rate == 0);
    }
    T_EQ("never halved", pace.halvings, 0);
}

/* ---- connections ---- */

static uint32_t climbed(uint32_t start, uint32_t knee, uint32_t noise_percent, uint64_t *lost_out)
{
    struct stk_concurrency climb;
    uint64_t key = start, received = 0;

    stk_concurrency_init(&climb, STK_CONCURRENCY_MIN, start, 256);
    for (uint32_t i = 0; i < 400; i++) {
        uint64_t bytes = 1000000ull * stk_min(climb.count, knee);

        key = stk_mix64(key + 1);
        bytes = bytes * (1000 - 10 * noise_percent + key % (20 * noise_percent + 1)) / 1000;
        stk_concurrency_update(&climb, bytes, true, false);
        received += i >= 200 ? bytes : 0;
    }
    *lost_out = 100 - 100 * received / (200ull * 1000000 * stk_min(knee, 256));
    return climb.previous_count;
}

static void test_climb(void)
{
    static const struct row {
        const char *name;
        uint32_t start, knee, noise, low, high;
    } rows[] = {
        {"up to where the link is full", 16, 100, 0, 90, 130},
        {"as many as may be", 16, 1000, 0, 250, 256},
        {"down to what the link needs", 128, 40, 0, 38, 60},
        {"up, with noise", 16, 100, 3, 80, 200},
        {"down, with noise", 128, 40, 3, 34, 128},
        {"it stays", 64, 64, 1, 56, 90},
    };
    struct stk_concurrency climb;
    uint64_t lost;

    T_EACH(row, row, rows)
    {
        uint32_t count = climbed(row->start, row->knee, row->noise, &lost);

        T_TRUE(row->name, count >= row->low && count <= row->high);
        T_TRUE(row->name, lost <= 15 && lost < 100);
        printf("%s: %u -> %u (knee %u), %llu %% less than could be\n", row->name, row->start, count,
               row->knee, (unsigned long long)lost);
    }
    stk_concurrency_init(&climb, STK_CONCURRENCY_MIN, 64, 256);
    for (uint32_t i = 0; i < 100; i++) {
        stk_concurrency_update(&climb, i * 1000, false, false);
    }
    T_EQ("idle connections teach nothing", climb.count, 64);
    for (uint32_t i = 0; i < 100; i++) {
        stk_concurrency_update(&climb, i * 1000, true, true);
    }
    T_EQ("nor does a rate that holds", climb.count, 64);
    for (uint32_t i = 0; i < 100; i++) {
        stk_concurrency_update(&climb, 0, true, false);
    }
    T_EQ("nor does it when nothing comes", climb.previous_count, 64);
    T_EQ("nor does it when nothing comes", climb.count, 64);
    while (climb.trying == STK_CONCURRENCY_TRY_NONE) {
        stk_concurrency_update(&climb, 1000000, true, false);
    }
    T_TRUE("it tries another number", climb.count != 64);
    stk_concurrency_update(&climb, 1000000, false, false);
    T_EQ("a try that is not used ends", climb.count, 64);
    stk_concurrency_init(&climb, STK_CONCURRENCY_MIN, 64, 4);
    T_EQ("a bound below the least", climb.count, 4);
    stk_concurrency_init(&climb, STK_CONCURRENCY_MIN, 64, 256);
    for (uint32_t want = 32; want >= STK_CONCURRENCY_MIN; want /= 2) {
        stk_concurrency_decrease(&climb);
        T_EQ("half", climb.count, want);
        T_EQ("to stay", climb.previous_count, want);
    }
    stk_concurrency_decrease(&climb);
    T_EQ("not below the least", climb.count, STK_CONCURRENCY_MIN);
}

/* ---- hedges ---- */

static void test_delays(void)
{
    static struct stk_latency_histogram delays;
    uint64_t late;

    for (uint32_t i = 0; i < 99; i++) {
        stk_latency_histogram_add(&delays, 40 * MS);
    }
    T_EQ("99 say nothing", stk_latency_histogram_late_ns(&delays), 0);
    stk_latency_histogram_add(&delays, 40 * MS);
    late = stk_latency_histogram_late_ns(&delays);
    T_TRUE("all of 40 ms: twice as much is late", late >= 80 * MS && late <= 100 * MS);
    for (uint32_t i = 0; i < 3000; i++) {
        stk_latency_histogram_add(&delays, i % 20 == 0 ? 200 * MS : 30 * MS + i * 1000);
    }
    late = stk_latency_histogram_late_ns(&delays);
    T_TRUE("one of twenty takes 200 ms: they are not late", late >= 200 * MS && late < 260 * MS);
    for (uint32_t i = 0; i < 30000; i++) {
        stk_latency_histogram_add(&delays, 1 * MS);
    }
    T_EQ("what was slow is forgotten", stk_latency_histogram_late_ns(&delays),
         stk_max(STK_HEDGE_MIN_NS, 2 * stk_latency_histogram_quantile(&delays, 500)));
    for (uint32_t i = 0; i < 30000; i++) {
        stk_latency_histogram_add(&delays, 200000);
    }
    T_EQ("for a local store no request is late at once", stk_latency_histogram_late_ns(&delays),
         STK_HEDGE_MIN_NS);
    for (uint64_t ns = 1; ns < UINT64_MAX / 2; ns *= 2) {
        stk_latency_histogram_add(&delays, ns);
    }
    for (uint32_t i = 1; i <= 1000; i++) {
        T_TRUE("quantiles rise", stk_latency_histogram_quantile(&delays, i) >=
                                     stk_latency_histogram_quantile(&delays, i - 1));
    }
}

static void test_hedge_budget(void)
{
    struct stk_hedge_budget budget = {0};
    uint32_t hedges = 0;

    for (uint32_t i = 1; i <= 100000; i++) {
        stk_hedge_budget_add(&budget, STK_HEDGE_MAX_PERCENT);
        hedges += i % 7000 < 6000 && stk_hedge_budget_spend(&budget) ? 1 : 0;
        T_TRUE("never more than 3 of 100", 100ull * hedges <= 3ull * i);
    }
    T_TRUE("nearly so many", hedges > 2500);
    budget = (struct stk_hedge_budget){0};
    for (uint32_t i = 0; i < 100000; i++) {
        stk_hedge_budget_add(&budget, STK_HEDGE_MAX_PERCENT);
    }
    for (hedges = 0; stk_hedge_budget_spend(&budget); hedges++) {
    }
    T_EQ("a burst", hedges, 16);
}

/* ---- shares ---- */

static void test_share(void)
{
    static const struct row {
        const char *name;
        uint32_t total, count, demand[4], want[4];
    } rows[] = {
        {"alone", 100, 1, {300}, {100}},
        {"little", 100, 1, {3}, {3}},
        {"the same for all", 100, 4, {99, 99, 99, 99}, {25, 25, 25, 25}},
        {"one more for the first", 10, 4, {9, 9, 9, 9}, {3, 3, 2, 2}},
        {"who wants little gets it", 100, 4, {10, 99, 5, 99}, {10, 43, 5, 42}},
        {"enough", 100, 3, {10, 20, 30}, {10, 20, 30}},
        {"none is wanted", 100, 3, {0, 0, 0}, {0, 0, 0}},
        {"fewer than there are", 2, 4, {5, 0, 5, 5}, {1, 0, 1, 0}},
    };
    uint64_t key = 7;

    T_EACH(row, row, rows)
    {
        for (uint32_t me = 0; me < row->count; me++) {
            T_EQ(row->name, stk_fair_share(row->demand, row->count, me, row->total), row->want[me]);
        }
    }
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t demand[16], count = 1 + round % 16, total = round % 300;
        uint64_t sum = 0, wanted = 0;

        for (uint32_t i = 0; i < count; i++) {
            key = stk_mix64(key + 1);
            demand[i] = (uint32_t)(key % 100);
            wanted += demand[i];
        }
        for (uint32_t i = 0; i < count; i++) {
            uint32_t share = stk_fair_share(demand, count, i, total);

            T_TRUE("not more than wanted", share <= demand[i]);
            sum += share;
        }
        T_EQ("all that is wanted, or all there is", sum, stk_min(wanted, total));
    }
}

int main(void)
{
    test_broken_is_no_rate();
    test_climb();
    test_delays();
    test_hedge_budget();
    test_share();
    return t_finish();
}
