/* storage/throttle/throttle.h: how much is asked of a store: rate, connections, hedges, shares.
 * Pure: numbers and a time in, numbers out.
 *
 *   pace    "too much" --halves--> rate --good answers: grows--> ... --quiet--> no limit
 *              |-- half did not help: no limit for a while --'
 *              `-- or worse, and nothing else for long: an outage --probes--> what held before
 *   climb   goodput of a number of connections -> the next number
 *   delays  times to the first byte -> from when on another request is worth it
 *   purse   requests sent -> hedges that may be
 *   share   what all processes of a node would like -> what one may have
 *
 * Owner: values. Threads: none of their own. Memory: none. Bound: none. */
#ifndef STORAGE_THROTTLE_THROTTLE_H
#define STORAGE_THROTTLE_THROTTLE_H

#include "base/base.h"

/* ---- pace: requests a second below a prefix; additive increase, multiplicative decrease ---- */

#define STK_RATE_LIMIT_WINDOW_MS                                                                   \
    250u                             /* after a halving its effect is seen for so long at least,   \
                                      */
#define STK_RATE_LIMIT_RESPONSES 48u /* and for so many answers, */
#define STK_RATE_LIMIT_NOISE 25u     /* of a thousand: no more "too much" than this is none; */
#define STK_RATE_LIMIT_THROTTLED_MIN 6u /* for as many as should hold so many "too much" again, */
#define STK_RATE_LIMIT_WINDOW_MAX_MS 4000u /* but no longer than this */
#define STK_RATE_LIMIT_LAG_MAX_MS                                                                  \
    1000u                           /* good answers to what was sent in it are waited for so long */
#define STK_RATE_LIMIT_DECAY 32u    /* the most of late fades by a part in so many each window */
#define STK_RATE_LIMIT_MIN 1000u    /* no rate is below: 1 request a second, in thousandths */
#define STK_RATE_LIMIT_GROWTH_S 8u  /* a rate grows by what it was before in so many seconds */
#define STK_RATE_LIMIT_EXPIRE_S 30u /* without "too much": no limit any more */
#define STK_RATE_LIMIT_INEFFECTIVE_MS 10000u /* for so long, and twice as long each time again, */
#define STK_RATE_LIMIT_INEFFECTIVE_MAX_MS                                                          \
    60000u                          /* up to this, it is left alone when halving is in vain */
#define STK_RATE_LIMIT_BURST_MS 50u /* of requests that were not sent may be sent at once */
/* An outage: for so long, and of so many answers, none was good: all were "too much", or 500, or
 * nobody was there. */
#define STK_RATE_LIMIT_OUTAGE_MS 500u
#define STK_RATE_LIMIT_OUTAGE_REPEAT_MS                                                            \
    4000u /* so soon after another it shows a limit: half is asked */
#define STK_RATE_LIMIT_OUTAGE_RESPONSES 32u
#define STK_RATE_LIMIT_PROBE_DIVISOR                                                               \
    16u                                   /* then a part in so many is asked of what held before,  \
                                           */
#define STK_RATE_LIMIT_PROBE_MIN 5000u    /* but not less than this, */
#define STK_RATE_LIMIT_PROBE_MAX 20000u   /* and not more */
#define STK_RATE_LIMIT_PROBE_RESPONSES 4u /* good ones of so many at least, in a window: */
#define STK_RATE_LIMIT_PROBE_GROWTH 4u    /* so many times more is asked, up to what held before */

enum stk_rate_limit_response {
    STK_RATE_LIMIT_OK = 0, /* of a server that is well, whatever it says */
    STK_RATE_LIMIT_THROTTLED,
    STK_RATE_LIMIT_FAILED, /* of one that is not, or no connection: tells nothing of a rate */
};

/* All rates are requests in 1,000 seconds. Zeroed: no limit, nothing known. */
struct stk_rate_limit {
    uint64_t rate;         /* 0: no limit */
    uint64_t peak;         /* before it was halved last */
    uint64_t next_ns;      /* the next request may go then */
    uint64_t grown_ns;     /* when the rate grew last */
    uint64_t window_ns;    /* what is counted was sent from then on, */
    uint64_t closed_ns;    /* until then; 0: it is still sent */
    uint64_t throttled_ns; /* the last such answer */
    uint64_t ineffective_until_ns;
    uint64_t good_before;     /* good answers in 1,000 s, before it was halved */
    uint32_t share_before;    /* of "too much", in thousandths: the most before the halvings in a
                               * row; where they were in vain: after them */
    uint32_t good, throttled; /* answers of this window */
    uint32_t next_good, next_throttled; /* to what was sent since it closed */
    uint32_t lag_us;         /* after which good answers came of late; the most, fading */
    uint32_t row;            /* halvings in a row since share_before was seen */
    uint32_t top, good_top;  /* most answers and most good ones in 1,000 s of late; saturated */
    uint32_t ineffective_ms; /* the last time that it was left alone; 0: none */
    uint32_t trying;         /* 1: it was halved, and this window shows whether that helps */
    uint32_t halvings;       /* so far */
    uint32_t share_last;     /* of "too much" in the last whole window, in thousandths */
    /* What held when the last good answer came, and the answers without one since. */
    uint64_t held, held_top;  /* rate (0: no limit) and top, as above */
    uint64_t refused_ns;      /* the first of them; 0: none */
    uint64_t bad_ns;          /* the last one ever, as too_much_ns */
    uint64_t outage_ended_ns; /* the last outage */
    uint32_t refused;
    uint32_t outage; /* 1: an outage; rate is how much is asked meanwhile */
};

/* True: a request may be sent now, and has taken its turn. */
bool stk_rate_limit_acquire(struct stk_rate_limit *limit, uint64_t now_ns);
/* An answer (enum stk_rate_limit_response) came to what took its turn then. After a halving only
 * what was sent since then tells of it. */
void stk_rate_limit_record(struct stk_rate_limit *limit, uint64_t sent_ns, uint64_t now_ns,
                           uint32_t answer);
/* Asking less does not help: the store says no to a part of whatever it is asked. */
static inline bool stk_rate_limit_is_ineffective(const struct stk_rate_limit *limit,
                                                 uint64_t now_ns)
{
    return now_ns < limit->ineffective_until_ns;
}
/* Nor would it help who was refused to wait for longer: also while it is looked whether that still
 * holds. */
static inline bool stk_rate_limit_is_wait_ineffective(const struct stk_rate_limit *limit,
                                                      uint64_t now_ns)
{
    return limit->ineffective_ms > 0 &&
           now_ns < limit->ineffective_until_ns + STK_RATE_LIMIT_INEFFECTIVE_MS * 1000000ull;
}
/* The store said no to everything, and has not been seen well again. */
static inline bool stk_rate_limit_is_outage(const struct stk_rate_limit *limit)
{
    return limit->outage != 0;
}
/* Within the last STK_RATE_LIMIT_INEFFECTIVE_MS somebody was told "too much", or the rate is
 * limited. */
bool stk_rate_limit_is_active(const struct stk_rate_limit *limit, uint64_t now_ns);
/* Makes sense of any bytes: numbers that no rule would have made are put right, or all zero. */
void stk_rate_limit_validate(struct stk_rate_limit *limit, uint64_t now_ns);

/* ---- climb: how many connections, by what they bring ---- */

#define STK_CONCURRENCY_INTERVAL_MS 500u /* an interval */
#define STK_CONCURRENCY_MIN 8u
#define STK_CONCURRENCY_FEWER_INTERVALS 16u /* intervals between tries with fewer */

enum stk_concurrency_trial {
    STK_CONCURRENCY_TRY_NONE = 0,
    STK_CONCURRENCY_TRY_MORE,
    STK_CONCURRENCY_TRY_FEWER
};

struct stk_concurrency {
    uint32_t min, max;
    uint32_t count;          /* of connections: the answer */
    uint32_t previous_count; /* what it was before this try */
    uint32_t trying;         /* enum stk_concurrency_trial */
    uint32_t wait;           /* intervals until the next try */
    uint32_t since;          /* intervals since fewer were tried */
    uint32_t measured;       /* of the two intervals that make a measurement */
    uint64_t bytes;          /* in them */
    uint64_t previous_bytes; /* what `kept` brought in two intervals */
};

void stk_concurrency_init(struct stk_concurrency *concurrency, uint32_t min, uint32_t start,
                          uint32_t max);
/* An interval is over, in which so many bytes came. busy: all connections were used, and requests
 * waited. held: something else decides now (a rate, another process): nothing is learned. */
void stk_concurrency_update(struct stk_concurrency *concurrency, uint64_t bytes, bool busy,
                            bool held);
/* So many at once did not get on: half of them, and more only as far as they bring more. */
void stk_concurrency_decrease(struct stk_concurrency *concurrency);

/* ---- hedges: a second request for what is late ---- */

#define STK_LATENCY_HISTOGRAM_BUCKETS 72u
#define STK_LATENCY_HISTOGRAM_COUNT_MIN 100u  /* answers before anything is said of delays */
#define STK_LATENCY_HISTOGRAM_COUNT_MAX 4096u /* then all counts are halved: old ones fade */
#define STK_HEDGE_MIN_NS 2000000u
#define STK_HEDGE_MAX_PERCENT 3u
#define STK_HEDGE_BUDGET_MAX 1600u /* of hundredths of requests: a burst of 16 hedges */

struct stk_latency_histogram {
    uint32_t counts[STK_LATENCY_HISTOGRAM_BUCKETS]; /* four an octave, from 128 us on */
    uint32_t total;
};

void stk_latency_histogram_add(struct stk_latency_histogram *histogram, uint64_t ns);
/* The delay within which so many of a thousand came (upper end of its bucket); 0: too few came. */
uint64_t stk_latency_histogram_quantile(const struct stk_latency_histogram *histogram,
                                        uint32_t of_thousand);
/* From when on a request is late: 98 of 100 came sooner, and it is twice the usual; 0: unknown. */
uint64_t stk_latency_histogram_late_ns(const struct stk_latency_histogram *histogram);

struct stk_hedge_budget {
    uint32_t hundredths;
};
/* A request was sent: percent hundredths of a hedge are earned. */
void stk_hedge_budget_add(struct stk_hedge_budget *budget, uint32_t percent);
/* True: one may be sent, and is paid for. */
bool stk_hedge_budget_spend(struct stk_hedge_budget *budget);

/* ---- share ---- */

/* What `me` of count processes may have of `total`, when each would like demand[i] (at most 2^20):
 * who wants little gets it, the others the same each, the first ones one more. */
uint32_t stk_fair_share(const uint32_t *demand, uint32_t count, uint32_t me, uint32_t total);

#endif
