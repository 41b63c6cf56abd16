/* The rate of requests below a prefix. A store throttles a share of the requests that exceed its
 * rate. If half the rate then brings as many successes as before, or a smaller share is throttled,
 * the limit works. If it brings half as many successes and the same share is throttled, the rate is
 * not the reason, and halving it again would only cost time. A store that fails all requests for a
 * while, or is down, says nothing about its usual rate: a few requests probe it, and then the rate
 * before holds again. */
#include "storage/throttle/throttle.h"

#include <string.h>

#define US 1000ull
#define MS 1000000ull
#define SECOND 1000000000ull
#define SHARE_MAX 500u   /* thousandths: a store that refuses more is never left alone */
#define SHARE_NOISE 100u /* three standard deviations of 200 responses, a usual number */
#define RATE_MAX (1000000ull * 1000) /* a million requests a second */

static void update_lag(struct stk_rate_limit *limit, uint64_t sent_ns, uint64_t now_ns);
static bool is_enough(const struct stk_rate_limit *limit);
static void begin_window(struct stk_rate_limit *limit, uint64_t now_ns);
static void next_window(struct stk_rate_limit *limit);
static void close_window(struct stk_rate_limit *limit, uint64_t now_ns);
static void end_window(struct stk_rate_limit *limit, uint64_t now_ns);
static bool is_effective(const struct stk_rate_limit *limit);
static bool is_noise(const struct stk_rate_limit *limit, uint32_t share);
static void record_window(struct stk_rate_limit *limit, uint64_t answers, uint64_t good);
static void halve(struct stk_rate_limit *limit, uint64_t now_ns);
static void evaluate_window(struct stk_rate_limit *limit, uint64_t now_ns, uint64_t answers,
                            uint64_t good);
static void grow(struct stk_rate_limit *limit, uint64_t now_ns);
static bool begins_outage(struct stk_rate_limit *limit, uint64_t sent_ns, uint64_t now_ns,
                          bool good);
static void probe(struct stk_rate_limit *limit, uint64_t sent_ns, uint64_t now_ns, bool good);

/* In 1,000 s. */
static uint64_t rate_of(uint64_t count, uint64_t ns)
{
    return count * (1000 * SECOND / MS) / stk_max(ns / MS, 1);
}

/* Computed from the counts of the window. */
static uint32_t throttled_share(const struct stk_rate_limit *limit)
{
    return (uint32_t)(1000ull * limit->throttled /
                      stk_max((uint64_t)limit->good + limit->throttled, 1));
}

bool stk_rate_limit_acquire(struct stk_rate_limit *limit, uint64_t now_ns)
{
    uint64_t turn_ns;

    if (limit->rate == 0) {
        return true;
    }
    turn_ns = stk_max(limit->next_ns, now_ns - stk_min(now_ns, STK_RATE_LIMIT_BURST_MS * MS));
    if (turn_ns > now_ns) {
        return false;
    }
    limit->next_ns = turn_ns + 1000 * SECOND / limit->rate;
    return true;
}

void stk_rate_limit_record(struct stk_rate_limit *limit, uint64_t sent_ns, uint64_t now_ns,
                           uint32_t answer)
{
    bool good = answer == STK_RATE_LIMIT_OK, too_much = answer == STK_RATE_LIMIT_THROTTLED;
    bool begins = !limit->outage && begins_outage(limit, sent_ns, now_ns, good);

    limit->bad_ns = good ? limit->bad_ns : now_ns;
    limit->throttled_ns = too_much ? now_ns : limit->throttled_ns;
    if (limit->outage) {
        probe(limit, begins ? 0 : sent_ns, now_ns, good);
        return;
    }
    if (answer == STK_RATE_LIMIT_FAILED) {
        return;
    }
    if (!too_much) {
        update_lag(limit, sent_ns, now_ns);
    }
    if (limit->window_ns == 0 ||
        (!limit->trying && now_ns >= limit->window_ns + 2 * STK_RATE_LIMIT_WINDOW_MAX_MS * MS)) {
        begin_window(limit, sent_ns); /* no requests for a long time: the old counts are obsolete */
    }
    if (sent_ns < limit->window_ns) {
        return;
    }
    if (limit->closed_ns > 0 && sent_ns >= limit->closed_ns) {
        limit->next_good += too_much ? 0 : 1;
        limit->next_throttled += too_much ? 1 : 0;
    } else {
        limit->good += too_much ? 0 : 1;
        limit->throttled += too_much ? 1 : 0;
    }
    if (!too_much && limit->rate > 0) {
        grow(limit, now_ns);
    }
    close_window(limit, now_ns);
    if (limit->closed_ns > 0 && now_ns >= limit->closed_ns + limit->lag_us * US) {
        end_window(limit, now_ns);
    }
}

/* A throttled response arrives earlier than a successful one. So a window counts the responses
 * to requests that were sent in it, and waits for the successful ones. Otherwise the first
 * responses to a hundred concurrent requests would all be throttled ones. */
static void close_window(struct stk_rate_limit *limit, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns - stk_min(now_ns, limit->window_ns);

    if (limit->closed_ns == 0 &&
        (elapsed_ns >= STK_RATE_LIMIT_WINDOW_MAX_MS * MS ||
         (elapsed_ns >= STK_RATE_LIMIT_WINDOW_MS * MS && is_enough(limit)))) {
        limit->closed_ns = stk_max(now_ns, 1);
    }
}

/* Large bodies take longer than is waited for: they have the windows of others. */
static void update_lag(struct stk_rate_limit *limit, uint64_t sent_ns, uint64_t now_ns)
{
    uint64_t lag_us = (now_ns - stk_min(now_ns, sent_ns)) / US;

    limit->lag_us -= limit->lag_us / STK_RATE_LIMIT_DECAY;
    limit->lag_us =
        (uint32_t)stk_min(stk_max(limit->lag_us, lag_us), STK_RATE_LIMIT_LAG_MAX_MS * 1000);
}

static void end_window(struct stk_rate_limit *limit, uint64_t now_ns)
{
    uint64_t sent_ns = limit->closed_ns - limit->window_ns;
    uint64_t answers = rate_of((uint64_t)limit->good + limit->throttled, sent_ns);
    uint64_t good = rate_of(limit->good, sent_ns);
    uint32_t share_last = limit->share_last;

    if (limit->trying) {
        evaluate_window(limit, now_ns, answers, good);
        return;
    }
    record_window(limit, answers, good);
    if (stk_rate_limit_is_ineffective(limit, now_ns) && is_effective(limit)) {
        limit->ineffective_until_ns = now_ns;
        limit->ineffective_ms = 0;
    }
    /* At the start a few requests wait for each other. A rate from those requests, or from the
     * window in which the others began, would delay all later requests. So a limit begins only
     * after two windows, and never at so low a rate of requests. */
    if (limit->share_last > STK_RATE_LIMIT_NOISE && !stk_rate_limit_is_ineffective(limit, now_ns) &&
        (limit->rate > 0 ||
         (share_last > STK_RATE_LIMIT_NOISE && answers >= 1000ull * STK_RATE_LIMIT_RESPONSES))) {
        limit->good_before = limit->good_top;
        limit->share_before = limit->share_last;
        limit->row = 0;
        halve(limit, now_ns);
    } else {
        next_window(limit);
    }
}

/* After several halvings in a row only a part of the original rate is sent. Random refusals keep
 * their share; with a limit L and a rate R the share 1 - L/R becomes 1 - 2L/R, or 0. Decides which
 * is closer. */
static bool is_noise(const struct stk_rate_limit *limit, uint32_t share)
{
    uint64_t good = stk_max(1000 - stk_min(limit->share_before, 1000), 1)
                    << stk_min(limit->row, 20);
    uint64_t limited = 1000 - stk_min(good, 1000), before = limit->share_before;

    if (good >= 2000) { /* a limit would have been met by twice as much: it is nearer to chance */
        before = stk_min(before, 2 * SHARE_NOISE);
    }
    return 2 * share >= before + limited;
}

/* For a completed window: random refusals would throttle the same share of requests without a
 * limit. */
static bool is_effective(const struct stk_rate_limit *limit)
{
    return (uint64_t)limit->good + limit->throttled >= STK_RATE_LIMIT_RESPONSES &&
           limit->share_last > stk_max(SHARE_MAX, limit->share_before) + SHARE_NOISE;
}

/* Returns whether there are enough responses to decide. After a halving, enough of them must be
 * throttled, or there must be as many responses as would include that many at the earlier share. */
static bool is_enough(const struct stk_rate_limit *limit)
{
    uint64_t answers = (uint64_t)limit->good + limit->throttled;

    return answers >= STK_RATE_LIMIT_RESPONSES &&
           (!limit->trying || limit->throttled >= STK_RATE_LIMIT_THROTTLED_MIN ||
            answers >= 1000 * STK_RATE_LIMIT_THROTTLED_MIN / stk_max(limit->share_before, 1));
}

static void begin_window(struct stk_rate_limit *limit, uint64_t now_ns)
{
    limit->window_ns = now_ns;
    limit->closed_ns = 0;
    limit->good = limit->throttled = limit->next_good = limit->next_throttled = 0;
}

/* Begins a window at the end of the last one. */
static void next_window(struct stk_rate_limit *limit)
{
    limit->window_ns = limit->closed_ns;
    limit->closed_ns = 0;
    limit->good = limit->next_good;
    limit->throttled = limit->next_throttled;
    limit->next_good = limit->next_throttled = 0;
}

/* A window is over. */
static void record_window(struct stk_rate_limit *limit, uint64_t answers, uint64_t good)
{
    limit->top -= limit->top / STK_RATE_LIMIT_DECAY;
    limit->top = (uint32_t)stk_min(stk_max(limit->top, answers), UINT32_MAX);
    limit->good_top -= limit->good_top / STK_RATE_LIMIT_DECAY;
    limit->good_top = (uint32_t)stk_min(stk_max(limit->good_top, good), UINT32_MAX);
    limit->share_last = throttled_share(limit);
}

/* Halves the rate, or the rate that was really sent if that is lower. */
static void halve(struct stk_rate_limit *limit, uint64_t now_ns)
{
    uint64_t sent = limit->top;
    uint64_t now = limit->rate > 0 ? stk_min(limit->rate, sent + sent / 4) : sent;

    limit->peak = stk_min(stk_max(now, STK_RATE_LIMIT_MIN), RATE_MAX);
    limit->rate = stk_max(limit->peak / 2, STK_RATE_LIMIT_MIN);
    limit->next_ns = stk_max(limit->next_ns, now_ns);
    limit->grown_ns = now_ns;
    limit->trying = 1;
    limit->row++;
    limit->halvings++;
    begin_window(limit, now_ns);
}

/* Called when the window after a halving has ended. */
static void evaluate_window(struct stk_rate_limit *limit, uint64_t now_ns, uint64_t answers,
                            uint64_t good)
{
    uint32_t share = throttled_share(limit);
    bool chance = 4 * good <= 3 * limit->good_before && is_noise(limit, share);

    limit->trying = 0;
    chance = chance || limit->rate <= STK_RATE_LIMIT_MIN; /* no store has so low a limit */
    if (limit->throttled > 0 && share <= SHARE_MAX && chance) {
        limit->share_before = share;
        limit->ineffective_ms = (uint32_t)stk_min(
            limit->ineffective_ms ? 2ull * limit->ineffective_ms : STK_RATE_LIMIT_INEFFECTIVE_MS,
            STK_RATE_LIMIT_INEFFECTIVE_MAX_MS);
        limit->ineffective_until_ns = now_ns + limit->ineffective_ms * MS;
        limit->rate = 0;
        begin_window(limit, now_ns);
    } else if (share > STK_RATE_LIMIT_NOISE) {
        limit->ineffective_ms = 0;
        limit->good_before = good;
        if (share > limit->share_before) { /* the most of all halvings in a row */
            limit->share_before = share;
            limit->row = 0;
        }
        /* The results of twice the rate are no longer a reference. */
        limit->top = (uint32_t)stk_min(answers, UINT32_MAX);
        limit->good_top = (uint32_t)stk_min(good, UINT32_MAX);
        halve(limit, now_ns);
    } else {
        limit->ineffective_ms = 0;
        next_window(limit);
    }
}

/* Grows in proportion to the rate before the last halving, over STK_RATE_LIMIT_GROWTH_S seconds,
 * and only after the effect of the halving was measured. */
static void grow(struct stk_rate_limit *limit, uint64_t now_ns)
{
    uint64_t elapsed_ms = now_ns > limit->grown_ns ? (now_ns - limit->grown_ns) / MS : 0;
    uint64_t more = stk_max(limit->peak, 1000) * stk_min(elapsed_ms, 1000) /
                    (1000ull * STK_RATE_LIMIT_GROWTH_S);

    if (limit->trying) {
        limit->grown_ns = now_ns;
        return;
    }
    if (now_ns >= limit->throttled_ns + STK_RATE_LIMIT_EXPIRE_S * SECOND) {
        limit->rate = 0;
        return;
    }
    if (more > 0) {
        limit->rate = stk_min(limit->rate + more, RATE_MAX);
        limit->grown_ns = now_ns;
    }
}

/* ---- outages ---- */

/* Returns the highest recent rate of requests, if there was no limit. */
static uint64_t recovery_target(const struct stk_rate_limit *limit)
{
    return limit->held > 0 ? limit->held : limit->held_top;
}

static uint64_t probe_rate(const struct stk_rate_limit *limit)
{
    uint64_t part = recovery_target(limit) / STK_RATE_LIMIT_PROBE_DIVISOR;

    return stk_min(stk_max(part, STK_RATE_LIMIT_PROBE_MIN), STK_RATE_LIMIT_PROBE_MAX);
}

/* Returns true if an outage has begun. The rate is then that of probes. */
static bool begins_outage(struct stk_rate_limit *limit, uint64_t sent_ns, uint64_t now_ns,
                          bool good)
{
    if (good) {
        if (sent_ns >= limit->refused_ns) { /* else the response shows an earlier state */
            limit->held = limit->rate;
            limit->held_top = limit->top;
            limit->refused_ns = 0;
            limit->refused = 0;
        }
        return false;
    }
    if (limit->refused_ns == 0 || now_ns >= limit->bad_ns + STK_RATE_LIMIT_WINDOW_MAX_MS * MS) {
        limit->refused_ns = now_ns; /* no requests for a long time: the count starts again */
        limit->refused = 0;
    }
    limit->refused++;
    if (limit->refused < STK_RATE_LIMIT_OUTAGE_RESPONSES ||
        now_ns < limit->refused_ns + STK_RATE_LIMIT_OUTAGE_MS * MS) {
        return false;
    }
    if (limit->outage_ended_ns > 0 && limit->throttled_ns >= limit->refused_ns &&
        limit->refused_ns < limit->outage_ended_ns + STK_RATE_LIMIT_OUTAGE_REPEAT_MS * MS) {
        limit->held = stk_max(recovery_target(limit) / 2, STK_RATE_LIMIT_MIN);
    }
    limit->outage = 1;
    limit->trying = limit->ineffective_ms = 0;
    limit->ineffective_until_ns = 0;
    limit->rate = probe_rate(limit);
    limit->next_ns = now_ns;
    limit->share_last = 0;
    begin_window(limit, now_ns);
    return true;
}

/* As before the outage. */
static void end_outage(struct stk_rate_limit *limit, uint64_t now_ns)
{
    limit->outage = 0;
    limit->outage_ended_ns = now_ns;
    limit->refused = 0;
    limit->refused_ns = 0;
    limit->rate = limit->held;
    limit->peak = stk_max(limit->peak, limit->held);
    limit->top = (uint32_t)limit->held_top;
    limit->share_last = 0;
    limit->grown_ns = now_ns;
    begin_window(limit, now_ns);
}

/* Records a response to a request that was sent in an outage. In the window in which the store
 * recovers, some requests are refused. Two such windows in a row show that the rate of probes is
 * too high. */
static void probe(struct stk_rate_limit *limit, uint64_t sent_ns, uint64_t now_ns, bool good)
{
    uint64_t answers, share;
    bool again = limit->share_last > SHARE_MAX;

    if (sent_ns < limit->window_ns) {
        return;
    }
    limit->good += good ? 1 : 0;
    limit->throttled += good ? 0 : 1;
    answers = (uint64_t)limit->good + limit->throttled;
    if (answers < STK_RATE_LIMIT_PROBE_RESPONSES ||
        now_ns < limit->window_ns + STK_RATE_LIMIT_WINDOW_MS * MS) {
        return;
    }
    share = 1000ull * limit->throttled / answers;
    limit->share_last = limit->good > 0 ? (uint32_t)share : 0;
    if (share <= SHARE_MAX) {
        limit->rate *= STK_RATE_LIMIT_PROBE_GROWTH;
        if (limit->rate >= recovery_target(limit)) {
            end_outage(limit, now_ns);
            return;
        }
    } else if (limit->good == 0) {
        limit->rate = probe_rate(limit);
    } else if (again) { /* it is there, and has a limit */
        uint64_t elapsed_ns = now_ns - limit->window_ns;

        limit->outage = 0;
        limit->top = (uint32_t)stk_min(rate_of(answers, elapsed_ns), UINT32_MAX);
        limit->good_before = rate_of(limit->good, elapsed_ns);
        limit->share_before = (uint32_t)share;
        limit->row = 0;
        halve(limit, now_ns);
        return;
    }
    begin_window(limit, now_ns);
}

bool stk_rate_limit_is_active(const struct stk_rate_limit *limit, uint64_t now_ns)
{
    return limit->rate > 0 || (limit->throttled_ns > 0 &&
                               now_ns < limit->throttled_ns + STK_RATE_LIMIT_INEFFECTIVE_MS * MS);
}

void stk_rate_limit_validate(struct stk_rate_limit *limit, uint64_t now_ns)
{
    uint64_t horizon_ns = now_ns + 100 * SECOND;

    if (limit->rate > RATE_MAX || limit->peak > RATE_MAX || limit->next_ns > horizon_ns ||
        limit->grown_ns > horizon_ns || limit->window_ns > horizon_ns ||
        limit->throttled_ns > horizon_ns || limit->ineffective_until_ns > horizon_ns ||
        limit->good_before > 1ull << 50 || limit->share_before > 1000 || limit->share_last > 1000 ||
        limit->ineffective_ms > STK_RATE_LIMIT_INEFFECTIVE_MAX_MS || limit->trying > 1 ||
        limit->good > 1u << 30 || limit->throttled > 1u << 30 ||
        (limit->rate > 0 && limit->rate < STK_RATE_LIMIT_MIN) ||
        (limit->trying && limit->rate == 0) || (limit->outage && limit->rate == 0) ||
        limit->outage > 1 || limit->held > RATE_MAX || limit->held_top > UINT32_MAX ||
        limit->refused_ns > horizon_ns || limit->outage_ended_ns > horizon_ns ||
        limit->refused > 1u << 30 || limit->closed_ns > horizon_ns ||
        (limit->closed_ns > 0 && limit->closed_ns < limit->window_ns) ||
        limit->next_good > 1u << 30 || limit->next_throttled > 1u << 30 ||
        limit->lag_us > STK_RATE_LIMIT_LAG_MAX_MS * 1000 || limit->row > 1u << 30 ||
        limit->bad_ns > horizon_ns) {
        memset(limit, 0, sizeof *limit);
    }
}
