/* storage/throttle/throttle.h: limits on the load of a store: request rate, number of connections,
 * hedged requests, and the share of each process. Pure: every function gets the time.
 *
 *   stk_rate_limit        throttled --halves--> rate --successes: grows--> ... --quiet--> no limit
 *                            |-- halving did not help: no limit for a while --'
 *                            `-- nothing but failures: an outage --probes--> the rate before it
 *   stk_concurrency       goodput with a number of connections -> the next number (hill climbing)
 *   stk_latency_histogram times to the first byte -> when a request is late
 *   stk_hedge_budget      requests sent -> hedged requests that may be sent
 *   stk_fair_share        demands of all processes -> the share of one
 *
 * Owner: values. Threads: none of their own. Memory: none. Bound: none. */
#ifndef STORAGE_THROTTLE_THROTTLE_H
#define STORAGE_THROTTLE_THROTTLE_H

#include "base/base.h"

/* ---- requests a second below a prefix: additive increase, multiplicative decrease (AIMD) ----
 *
 * "Throttled" is a response by which the store asks for fewer requests. */

/* After a halving, responses are counted for at least this time, */
#define STK_RATE_LIMIT_WINDOW_MS 250u
#define STK_RATE_LIMIT_RESPONSES 48u /* at least this number, */
/* until there are so many that this number of throttled ones is expected if nothing changed, */
#define STK_RATE_LIMIT_THROTTLED_MIN 6u
#define STK_RATE_LIMIT_WINDOW_MAX_MS 4000u /* but no longer than this. */
#define STK_RATE_LIMIT_NOISE 25u           /* throttled responses of a thousand that do not count */
/* How long successes of requests that were sent in the window are waited for after it. */
#define STK_RATE_LIMIT_LAG_MAX_MS 1000u
#define STK_RATE_LIMIT_DECAY 32u    /* the highest recent rate loses 1/32 in each window */
#define STK_RATE_LIMIT_MIN 1000u    /* the lowest rate: 1 request a second, in thousandths */
#define STK_RATE_LIMIT_GROWTH_S 8u  /* time in which a rate grows by the rate before the halving */
#define STK_RATE_LIMIT_EXPIRE_S 30u /* without a throttled response: the limit ends */
/* If halving does not help, there is no limit for this time, twice as long each time again, */
#define STK_RATE_LIMIT_INEFFECTIVE_MS 10000u
#define STK_RATE_LIMIT_INEFFECTIVE_MAX_MS 60000u /* up to this. */
#define STK_RATE_LIMIT_BURST_MS 50u              /* unused turns of this time may be used at once */
/* An outage: for this time, and in this number of responses, none succeeded: all were throttled, or
 * 500, or there was no connection. */
#define STK_RATE_LIMIT_OUTAGE_MS 500u
#define STK_RATE_LIMIT_OUTAGE_RESPONSES 32u
/* An outage this soon after another shows that the rate is too high: it continues with half. */
#define STK_RATE_LIMIT_OUTAGE_REPEAT_MS 4000u
/* In an outage the rate is 1/16 of the rate before it, */
#define STK_RATE_LIMIT_PROBE_DIVISOR 16u
#define STK_RATE_LIMIT_PROBE_MIN 5000u    /* but at least this */
#define STK_RATE_LIMIT_PROBE_MAX 20000u   /* and at most this. */
#define STK_RATE_LIMIT_PROBE_RESPONSES 4u /* After this number of successes in a window */
#define STK_RATE_LIMIT_PROBE_GROWTH 4u    /* it grows by this factor, up to the rate before. */

enum stk_rate_limit_response {
    STK_RATE_LIMIT_OK = 0, /* the server works, with any response */
    STK_RATE_LIMIT_THROTTLED,
    STK_RATE_LIMIT_FAILED, /* 500, or no connection: not related to a rate */
};

/* All rates are requests in 1,000 seconds. Zeroed: no limit, nothing known. */
struct stk_rate_limit {
    uint64_t rate;         /* 0: no limit */
    uint64_t peak;         /* before the last halving */
    uint64_t next_ns;      /* when the next request may be sent */
    uint64_t grown_ns;     /* when the rate grew last */
    uint64_t window_ns;    /* the window counts requests that were sent from then on, */
    uint64_t closed_ns;    /* until then; 0: the window is open */
    uint64_t throttled_ns; /* of the last throttled response */
    uint64_t ineffective_until_ns;
    uint64_t good_before; /* successes in 1,000 s before the halving */
    /* Share of throttled responses in thousandths: the highest before consecutive halvings; if they
     * did not help, the share after them. */
    uint32_t share_before;
    uint32_t good, throttled;           /* responses of this window */
    uint32_t next_good, next_throttled; /* of requests that were sent since it closed */
    uint32_t lag_us;                    /* longest recent time to a success; decays */
    uint32_t row;                       /* halvings since share_before was measured */
    uint32_t top, good_top;  /* most responses and successes in 1,000 s recently; saturated */
    uint32_t ineffective_ms; /* how long the last pause of the limit was; 0: there was none */
    uint32_t trying;         /* 1: this window shows whether the last halving helps */
    uint32_t halvings;       /* so far */
    uint32_t share_last; /* of throttled responses in the last complete window, in thousandths */
    /* Rate (0: no limit) and top at the last success, and the responses without one since. */
    uint64_t held, held_top;
    uint64_t refused_ns;      /* of the first of them; 0: none */
    uint64_t bad_ns;          /* of the last one */
    uint64_t outage_ended_ns; /* the last outage */
    uint32_t refused;
    uint32_t outage; /* 1: an outage; rate is the rate of probes */
};

/* Returns true if a request may be sent now; it has then used a turn. */
bool stk_rate_limit_acquire(struct stk_rate_limit *limit, uint64_t now_ns);
/* Records the response (enum stk_rate_limit_response) to a request that was sent at sent_ns. The
 * effect of a halving is measured by requests that were sent after it. */
void stk_rate_limit_record(struct stk_rate_limit *limit, uint64_t sent_ns, uint64_t now_ns,
                           uint32_t answer);
/* A lower rate does not help: the store throttles a share of the requests at any rate. */
static inline bool stk_rate_limit_is_ineffective(const struct stk_rate_limit *limit,
                                                 uint64_t now_ns)
{
    return now_ns < limit->ineffective_until_ns;
}
/* Longer waits before a retry do not help either: also while it is tested whether that still holds.
 */
static inline bool stk_rate_limit_is_wait_ineffective(const struct stk_rate_limit *limit,
                                                      uint64_t now_ns)
{
    return limit->ineffective_ms > 0 &&
           now_ns < limit->ineffective_until_ns + STK_RATE_LIMIT_INEFFECTIVE_MS * 1000000ull;
}
/* All requests failed, and none has succeeded since. */
static inline bool stk_rate_limit_is_outage(const struct stk_rate_limit *limit)
{
    return limit->outage != 0;
}
/* The rate is limited, or a response was throttled within STK_RATE_LIMIT_INEFFECTIVE_MS. */
bool stk_rate_limit_is_active(const struct stk_rate_limit *limit, uint64_t now_ns);
/* Corrects numbers that the rules cannot produce, in any bytes; may set all to zero. */
void stk_rate_limit_validate(struct stk_rate_limit *limit, uint64_t now_ns);

/* ---- number of connections, by the received bytes (hill climbing) ---- */

#define STK_CONCURRENCY_INTERVAL_MS 500u
#define STK_CONCURRENCY_MIN 8u
#define STK_CONCURRENCY_FEWER_INTERVALS 16u /* intervals between trials with fewer */

enum stk_concurrency_trial {
    STK_CONCURRENCY_TRY_NONE = 0,
    STK_CONCURRENCY_TRY_MORE,
    STK_CONCURRENCY_TRY_FEWER
};

struct stk_concurrency {
    uint32_t min, max;
    uint32_t count;          /* of connections: the result */
    uint32_t previous_count; /* before this trial */
    uint32_t trying;         /* enum stk_concurrency_trial */
    uint32_t wait;           /* intervals until the next trial */
    uint32_t since;          /* intervals since the last trial with fewer */
    uint32_t measured;       /* intervals of the current measurement, of two */
    uint64_t bytes;          /* in them */
    uint64_t previous_bytes; /* of previous_count in two intervals */
};

void stk_concurrency_init(struct stk_concurrency *concurrency, uint32_t min, uint32_t start,
                          uint32_t max);
/* Ends an interval in which `bytes` were transferred. busy: all connections were used and requests
 * waited. held: something else limited them (a rate, another process), so it is not measured. */
void stk_concurrency_update(struct stk_concurrency *concurrency, uint64_t bytes, bool busy,
                            bool held);
/* Halves the number, as so many at once made no progress; it grows again only if more bytes come.
 */
void stk_concurrency_decrease(struct stk_concurrency *concurrency);

/* ---- hedged requests: a second request for a range whose first byte is late ---- */

#define STK_LATENCY_HISTOGRAM_BUCKETS 72u
#define STK_LATENCY_HISTOGRAM_COUNT_MIN 100u /* responses before a quantile is reported */
#define STK_LATENCY_HISTOGRAM_COUNT_MAX                                                            \
    4096u /* then all counts are halved, so that old ones decay */
#define STK_HEDGE_MIN_NS 2000000u
#define STK_HEDGE_MAX_PERCENT 3u
#define STK_HEDGE_BUDGET_MAX 1600u /* hundredths of a request: 16 hedges at once */

struct stk_latency_histogram {
    uint32_t counts[STK_LATENCY_HISTOGRAM_BUCKETS]; /* four an octave, from 128 us on */
    uint32_t total;
};

void stk_latency_histogram_add(struct stk_latency_histogram *histogram, uint64_t ns);
/* The delay that of_thousand of 1,000 responses did not exceed (upper end of its bucket); 0: there
 * are too few responses. */
uint64_t stk_latency_histogram_quantile(const struct stk_latency_histogram *histogram,
                                        uint32_t of_thousand);
/* The delay after which a request is late: the 98th percentile, but at least twice the median; 0:
 * unknown. */
uint64_t stk_latency_histogram_late_ns(const struct stk_latency_histogram *histogram);

struct stk_hedge_budget {
    uint32_t hundredths;
};
/* A request was sent: adds percent hundredths of a hedge. */
void stk_hedge_budget_add(struct stk_hedge_budget *budget, uint32_t percent);
/* Returns true if a hedge may be sent; it is then subtracted. */
bool stk_hedge_budget_spend(struct stk_hedge_budget *budget);

/* ---- fair share ---- */

/* The share of process `me` of `count` in `total` (max-min fairness): process i requests demand[i],
 * at most 2^20. Small demands are met; the others get equal shares, the first of them one more. */
uint32_t stk_fair_share(const uint32_t *demand, uint32_t count, uint32_t me, uint32_t total);

#endif
