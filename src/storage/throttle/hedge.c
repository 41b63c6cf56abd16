/* Latency percentiles, the budget of hedged requests, and fair shares of a limit. */
#include "storage/throttle/throttle.h"

#define FIRST_US 128u
#define USUAL_TIMES 2u

/* Buckets of a quarter octave: 128 to 159 us is 0. */
static uint32_t bucket_of(uint64_t ns)
{
    uint64_t us = stk_max(ns / 1000, FIRST_US);
    uint32_t octave = 63 - (uint32_t)__builtin_clzll(us);

    return (uint32_t)stk_min((octave - 7) * 4 + ((us >> (octave - 2)) & 3),
                             STK_LATENCY_HISTOGRAM_BUCKETS - 1);
}

static uint64_t end_of(uint32_t bucket)
{
    return ((5ull + bucket % 4) << (5 + bucket / 4)) * 1000;
}

void stk_latency_histogram_add(struct stk_latency_histogram *histogram, uint64_t ns)
{
    histogram->counts[bucket_of(ns)]++;
    if (++histogram->total < STK_LATENCY_HISTOGRAM_COUNT_MAX) {
        return;
    }
    histogram->total = 0;
    for (uint32_t i = 0; i < STK_LATENCY_HISTOGRAM_BUCKETS; i++) {
        histogram->counts[i] /= 2;
        histogram->total += histogram->counts[i];
    }
}

uint64_t stk_latency_histogram_quantile(const struct stk_latency_histogram *histogram,
                                        uint32_t of_thousand)
{
    uint64_t wanted = ((uint64_t)histogram->total * of_thousand + 999) / 1000, seen = 0;

    if (histogram->total < STK_LATENCY_HISTOGRAM_COUNT_MIN) {
        return 0;
    }
    for (uint32_t i = 0; i < STK_LATENCY_HISTOGRAM_BUCKETS; i++) {
        seen += histogram->counts[i];
        if (seen >= wanted) {
            return end_of(i);
        }
    }
    return end_of(STK_LATENCY_HISTOGRAM_BUCKETS - 1);
}

uint64_t stk_latency_histogram_late_ns(const struct stk_latency_histogram *histogram)
{
    uint64_t most = stk_latency_histogram_quantile(histogram, 980),
             usual = stk_latency_histogram_quantile(histogram, 500);

    return most == 0 ? 0 : stk_max(stk_max(most, USUAL_TIMES * usual), STK_HEDGE_MIN_NS);
}

void stk_hedge_budget_add(struct stk_hedge_budget *budget, uint32_t percent)
{
    budget->hundredths = (uint32_t)stk_min(budget->hundredths + percent, STK_HEDGE_BUDGET_MAX);
}

bool stk_hedge_budget_spend(struct stk_hedge_budget *budget)
{
    bool enough = budget->hundredths >= 100;

    budget->hundredths -= enough ? 100 : 0;
    return enough;
}

uint32_t stk_fair_share(const uint32_t *demand, uint32_t count, uint32_t me, uint32_t total)
{
    uint64_t level = 0, rest = total;
    uint32_t before = 0;

    /* Finds the level at which the demands, each cut at the level, use up the total. */
    for (;;) {
        uint64_t next = UINT64_MAX, above = 0;

        for (uint32_t i = 0; i < count; i++) {
            above += demand[i] > level ? 1 : 0;
            next = demand[i] > level ? stk_min(next, demand[i]) : next;
        }
        if (above == 0) {
            return demand[me];
        }
        if ((next - level) * above > rest) {
            level += rest / above;
            rest %= above;
            break;
        }
        rest -= (next - level) * above;
        level = next;
    }
    if (demand[me] <= level) {
        return demand[me];
    }
    for (uint32_t i = 0; i < me; i++) {
        before += demand[i] > level ? 1 : 0;
    }
    return (uint32_t)level + (before < rest ? 1 : 0);
}
