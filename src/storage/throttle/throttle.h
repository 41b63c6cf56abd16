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

#define STK_PACE_WINDOW_MS 250u      /* after a halving its effect is seen for so long at least, */
#define STK_PACE_ANSWERS 48u         /* and for so many answers, */
#define STK_PACE_NOISE 25u           /* of a thousand: no more "too much" than this is none; */
#define STK_PACE_SEEN 6u             /* for as many as should hold so many "too much" again, */
#define STK_PACE_WINDOW_MAX_MS 4000u /* but no longer than this */
#define STK_PACE_LAG_MAX_MS 1000u   /* good answers to what was sent in it are waited for so long */
#define STK_PACE_FADE 32u           /* the most of late fades by a part in so many each window */
#define STK_PACE_FLOOR 1000u        /* no rate is below: 1 request a second, in thousandths */
#define STK_PACE_GROW_S 8u          /* a rate grows by what it was before in so many seconds */
#define STK_PACE_QUIET_S 30u        /* without "too much": no limit any more */
#define STK_PACE_VAIN_MS 10000u     /* for so long, and twice as long each time again, */
#define STK_PACE_VAIN_MAX_MS 60000u /* up to this, it is left alone when halving is in vain */
#define STK_PACE_BURST_MS 50u       /* of requests that were not sent may be sent at once */
/* An outage: for so long, and of so many answers, none was good: all were "too much", or 500, or
 * nobody was there. */
#define STK_PACE_OUT_MS 500u
#define STK_PACE_OUT_AGAIN_MS 4000u /* so soon after another it shows a limit: half is asked */
#define STK_PACE_OUT_ANSWERS 32u
#define STK_PACE_PROBE_PART 16u   /* then a part in so many is asked of what held before, */
#define STK_PACE_PROBE_MIN 5000u  /* but not less than this, */
#define STK_PACE_PROBE_MAX 20000u /* and not more */
#define STK_PACE_PROBE_ANSWERS 4u /* good ones of so many at least, in a window: */
#define STK_PACE_PROBE_TIMES 4u   /* so many times more is asked, up to what held before */

enum stk_pace_answer {
    STK_PACE_GOOD = 0, /* of a server that is well, whatever it says */
    STK_PACE_TOO_MUCH,
    STK_PACE_BROKEN, /* of one that is not, or no connection: tells nothing of a rate */
};

/* All rates are requests in 1,000 seconds. Zeroed: no limit, nothing known. */
struct stk_pace {
    uint64_t rate;        /* 0: no limit */
    uint64_t peak;        /* before it was halved last */
    uint64_t next_ns;     /* the next request may go then */
    uint64_t grown_ns;    /* when the rate grew last */
    uint64_t window_ns;   /* what is counted was sent from then on, */
    uint64_t closed_ns;   /* until then; 0: it is still sent */
    uint64_t too_much_ns; /* the last such answer */
    uint64_t vain_until_ns;
    uint64_t good_before;    /* good answers in 1,000 s, before it was halved */
    uint32_t share_before;   /* of "too much", in thousandths: the most before the halvings in a
                              * row; where they were in vain: after them */
    uint32_t good, too_much; /* answers of this window */
    uint32_t next_good, next_too_much; /* to what was sent since it closed */
    uint32_t lag_us;                   /* after which good answers came of late; the most, fading */
    uint32_t row;                      /* halvings in a row since share_before was seen */
    uint32_t top, good_top; /* most answers and most good ones in 1,000 s of late; saturated */
    uint32_t vain_ms;       /* the last time that it was left alone; 0: none */
    uint32_t trying;        /* 1: it was halved, and this window shows whether that helps */
    uint32_t halvings;      /* so far */
    uint32_t share_last;    /* of "too much" in the last whole window, in thousandths */
    /* What held when the last good answer came, and the answers without one since. */
    uint64_t held, held_top; /* rate (0: no limit) and top, as above */
    uint64_t refused_ns;     /* the first of them; 0: none */
    uint64_t bad_ns;         /* the last one ever, as too_much_ns */
    uint64_t out_ended_ns;   /* the last outage */
    uint32_t refused;
    uint32_t out; /* 1: an outage; rate is how much is asked meanwhile */
};

/* True: a request may be sent now, and has taken its turn. */
bool stk_pace_take(struct stk_pace *pace, uint64_t now_ns);
/* An answer (enum stk_pace_answer) came to what took its turn then. After a halving only what was
 * sent since then tells of it. */
void stk_pace_answer(struct stk_pace *pace, uint64_t sent_ns, uint64_t now_ns, uint32_t answer);
/* Asking less does not help: the store says no to a part of whatever it is asked. */
static inline bool stk_pace_is_vain(const struct stk_pace *pace, uint64_t now_ns)
{
    return now_ns < pace->vain_until_ns;
}
/* Nor would it help who was refused to wait for longer: also while it is looked whether that still
 * holds. */
static inline bool stk_pace_is_wait_vain(const struct stk_pace *pace, uint64_t now_ns)
{
    return pace->vain_ms > 0 && now_ns < pace->vain_until_ns + STK_PACE_VAIN_MS * 1000000ull;
}
/* The store said no to everything, and has not been seen well again. */
static inline bool stk_pace_is_out(const struct stk_pace *pace)
{
    return pace->out != 0;
}
/* Within the last STK_PACE_VAIN_MS somebody was told "too much", or the rate is limited. */
bool stk_pace_is_throttled(const struct stk_pace *pace, uint64_t now_ns);
/* Makes sense of any bytes: numbers that no rule would have made are put right, or all zero. */
void stk_pace_repair(struct stk_pace *pace, uint64_t now_ns);

/* ---- climb: how many connections, by what they bring ---- */

#define STK_CLIMB_MS 500u /* an interval */
#define STK_CLIMB_MIN 8u
#define STK_CLIMB_DOWN 16u /* intervals between tries with fewer */

enum stk_climb_try { STK_CLIMB_STAY = 0, STK_CLIMB_UP, STK_CLIMB_LESS };

struct stk_climb {
    uint32_t min, max;
    uint32_t count;    /* of connections: the answer */
    uint32_t kept;     /* what it was before this try */
    uint32_t trying;   /* enum stk_climb_try */
    uint32_t wait;     /* intervals until the next try */
    uint32_t since;    /* intervals since fewer were tried */
    uint32_t measured; /* of the two intervals that make a measurement */
    uint64_t bytes;    /* in them */
    uint64_t base;     /* what `kept` brought in two intervals */
};

void stk_climb_init(struct stk_climb *climb, uint32_t min, uint32_t start, uint32_t max);
/* An interval is over, in which so many bytes came. busy: all connections were used, and requests
 * waited. held: something else decides now (a rate, another process): nothing is learned. */
void stk_climb_step(struct stk_climb *climb, uint64_t bytes, bool busy, bool held);
/* So many at once did not get on: half of them, and more only as far as they bring more. */
void stk_climb_fewer(struct stk_climb *climb);

/* ---- hedges: a second request for what is late ---- */

#define STK_DELAY_BUCKETS 72u
#define STK_DELAYS_MIN 100u  /* answers before anything is said of delays */
#define STK_DELAYS_MAX 4096u /* then all counts are halved: old ones fade */
#define STK_HEDGE_MIN_NS 2000000u
#define STK_HEDGE_MAX_PERCENT 3u
#define STK_PURSE_MAX 1600u /* of hundredths of requests: a burst of 16 hedges */

struct stk_delays {
    uint32_t counts[STK_DELAY_BUCKETS]; /* four an octave, from 128 us on */
    uint32_t total;
};

void stk_delays_add(struct stk_delays *delays, uint64_t ns);
/* The delay within which so many of a thousand came (upper end of its bucket); 0: too few came. */
uint64_t stk_delays_at(const struct stk_delays *delays, uint32_t of_thousand);
/* From when on a request is late: 98 of 100 came sooner, and it is twice the usual; 0: unknown. */
uint64_t stk_delays_late(const struct stk_delays *delays);

struct stk_purse {
    uint32_t hundredths;
};
/* A request was sent: percent hundredths of a hedge are earned. */
void stk_purse_earn(struct stk_purse *purse, uint32_t percent);
/* True: one may be sent, and is paid for. */
bool stk_purse_pay(struct stk_purse *purse);

/* ---- share ---- */

/* What `me` of count processes may have of `total`, when each would like demand[i] (at most 2^20):
 * who wants little gets it, the others the same each, the first ones one more. */
uint32_t stk_share(const uint32_t *demand, uint32_t count, uint32_t me, uint32_t total);

#endif
