/* The rate of requests below a prefix. A store that is asked too much says so to more or less of
 * what it is asked; half as much then brings as many good answers as before, or fewer "too much".
 * Where it brings half as many good answers and as many of the other kind, the store does not say
 * no because of the rate, and to halve it again would only be slow. A store that says no to all for
 * a while, or is not there, tells nothing of the rate that it allows when it is well: a few ask
 * whether it is, and then what held before holds again. */
#include "storage/throttle/throttle.h"

#include <string.h>

#define US 1000ull
#define MS 1000000ull
#define SECOND 1000000000ull
#define SHARE_MAX 500u   /* thousandths: a store that refuses more is never left alone */
#define SHARE_NOISE 100u /* three deviations of 200 answers, which are usual */
#define RATE_MAX (1000000ull * 1000) /* a million requests a second */

static void learn_lag(struct stk_pace *pace, uint64_t sent_ns, uint64_t now_ns);
static bool is_enough(const struct stk_pace *pace);
static void begin_window(struct stk_pace *pace, uint64_t now_ns);
static void next_window(struct stk_pace *pace);
static void close_window(struct stk_pace *pace, uint64_t now_ns);
static void end_window(struct stk_pace *pace, uint64_t now_ns);
static bool is_refuted(const struct stk_pace *pace);
static bool is_chance(const struct stk_pace *pace, uint32_t share);
static void note(struct stk_pace *pace, uint64_t answers, uint64_t good);
static void halve(struct stk_pace *pace, uint64_t now_ns);
static void judge(struct stk_pace *pace, uint64_t now_ns, uint64_t answers, uint64_t good);
static void grow(struct stk_pace *pace, uint64_t now_ns);
static bool begins_outage(struct stk_pace *pace, uint64_t sent_ns, uint64_t now_ns, bool good);
static void probe(struct stk_pace *pace, uint64_t sent_ns, uint64_t now_ns, bool good);

/* In 1,000 s. */
static uint64_t per_time(uint64_t count, uint64_t ns)
{
    return count * (1000 * SECOND / MS) / stk_max(ns / MS, 1);
}

/* Of what the window has. */
static uint32_t share_of(const struct stk_pace *pace)
{
    return (uint32_t)(1000ull * pace->too_much / stk_max((uint64_t)pace->good + pace->too_much, 1));
}

bool stk_pace_take(struct stk_pace *pace, uint64_t now_ns)
{
    uint64_t turn_ns;

    if (pace->rate == 0) {
        return true;
    }
    turn_ns = stk_max(pace->next_ns, now_ns - stk_min(now_ns, STK_PACE_BURST_MS * MS));
    if (turn_ns > now_ns) {
        return false;
    }
    pace->next_ns = turn_ns + 1000 * SECOND / pace->rate;
    return true;
}

void stk_pace_answer(struct stk_pace *pace, uint64_t sent_ns, uint64_t now_ns, uint32_t answer)
{
    bool good = answer == STK_PACE_GOOD, too_much = answer == STK_PACE_TOO_MUCH;
    bool begins = !pace->out && begins_outage(pace, sent_ns, now_ns, good);

    pace->bad_ns = good ? pace->bad_ns : now_ns;
    pace->too_much_ns = too_much ? now_ns : pace->too_much_ns;
    if (pace->out) {
        probe(pace, begins ? 0 : sent_ns, now_ns, good);
        return;
    }
    if (answer == STK_PACE_BROKEN) {
        return;
    }
    if (!too_much) {
        learn_lag(pace, sent_ns, now_ns);
    }
    if (pace->window_ns == 0 ||
        (!pace->trying && now_ns >= pace->window_ns + 2 * STK_PACE_WINDOW_MAX_MS * MS)) {
        begin_window(pace, sent_ns); /* nobody asked for long: what was then tells nothing */
    }
    if (sent_ns < pace->window_ns) {
        return;
    }
    if (pace->closed_ns > 0 && sent_ns >= pace->closed_ns) {
        pace->next_good += too_much ? 0 : 1;
        pace->next_too_much += too_much ? 1 : 0;
    } else {
        pace->good += too_much ? 0 : 1;
        pace->too_much += too_much ? 1 : 0;
    }
    if (!too_much && pace->rate > 0) {
        grow(pace, now_ns);
    }
    close_window(pace, now_ns);
    if (pace->closed_ns > 0 && now_ns >= pace->closed_ns + pace->lag_us * US) {
        end_window(pace, now_ns);
    }
}

/* Who is refused hears it sooner than who is not. So what a window counts are the answers to what
 * was sent in it, and it waits for the good ones: else the first of a hundred that are sent at once
 * are all "too much". */
static void close_window(struct stk_pace *pace, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns - stk_min(now_ns, pace->window_ns);

    if (pace->closed_ns == 0 && (elapsed_ns >= STK_PACE_WINDOW_MAX_MS * MS ||
                                 (elapsed_ns >= STK_PACE_WINDOW_MS * MS && is_enough(pace)))) {
        pace->closed_ns = stk_max(now_ns, 1);
    }
}

/* Large bodies take longer than is waited for: they have the windows of others. */
static void learn_lag(struct stk_pace *pace, uint64_t sent_ns, uint64_t now_ns)
{
    uint64_t lag_us = (now_ns - stk_min(now_ns, sent_ns)) / US;

    pace->lag_us -= pace->lag_us / STK_PACE_FADE;
    pace->lag_us = (uint32_t)stk_min(stk_max(pace->lag_us, lag_us), STK_PACE_LAG_MAX_MS * 1000);
}

static void end_window(struct stk_pace *pace, uint64_t now_ns)
{
    uint64_t sent_ns = pace->closed_ns - pace->window_ns;
    uint64_t answers = per_time((uint64_t)pace->good + pace->too_much, sent_ns);
    uint64_t good = per_time(pace->good, sent_ns);
    uint32_t share_last = pace->share_last;

    if (pace->trying) {
        judge(pace, now_ns, answers, good);
        return;
    }
    note(pace, answers, good);
    if (stk_pace_is_vain(pace, now_ns) && is_refuted(pace)) {
        pace->vain_until_ns = now_ns;
        pace->vain_ms = 0;
    }
    /* At the start a few questions wait for each other: a rate made of those, or of the window in
     * which the rest began, would hold up all that follows. So a limit begins with two windows, and
     * never for who asks that little. */
    if (pace->share_last > STK_PACE_NOISE && !stk_pace_is_vain(pace, now_ns) &&
        (pace->rate > 0 ||
         (share_last > STK_PACE_NOISE && answers >= 1000ull * STK_PACE_ANSWERS))) {
        pace->good_before = pace->good_top;
        pace->share_before = pace->share_last;
        pace->row = 0;
        halve(pace, now_ns);
    } else {
        next_window(pace);
    }
}

/* A part of what it was was sent, after so many halvings in a row. By chance the same share of it
 * is refused; by a limit L of a rate R the share 1 - L/R becomes 1 - 2L/R, or none. Which is
 * nearer? */
static bool is_chance(const struct stk_pace *pace, uint32_t share)
{
    uint64_t good = stk_max(1000 - stk_min(pace->share_before, 1000), 1) << stk_min(pace->row, 20);
    uint64_t limited = 1000 - stk_min(good, 1000), before = pace->share_before;

    if (good >= 2000) { /* a limit would have been met by twice as much: it is nearer to chance */
        before = stk_min(before, 2 * SHARE_NOISE);
    }
    return 2 * share >= before + limited;
}

/* By a window that is over: chance would refuse the same share of what is asked without a limit. */
static bool is_refuted(const struct stk_pace *pace)
{
    return (uint64_t)pace->good + pace->too_much >= STK_PACE_ANSWERS &&
           pace->share_last > stk_max(SHARE_MAX, pace->share_before) + SHARE_NOISE;
}

/* Enough answers to tell: also so many "too much", or as many as should have held them. */
static bool is_enough(const struct stk_pace *pace)
{
    uint64_t answers = (uint64_t)pace->good + pace->too_much;

    return answers >= STK_PACE_ANSWERS &&
           (!pace->trying || pace->too_much >= STK_PACE_SEEN ||
            answers >= 1000 * STK_PACE_SEEN / stk_max(pace->share_before, 1));
}

static void begin_window(struct stk_pace *pace, uint64_t now_ns)
{
    pace->window_ns = now_ns;
    pace->closed_ns = 0;
    pace->good = pace->too_much = pace->next_good = pace->next_too_much = 0;
}

/* From where the last one closed. */
static void next_window(struct stk_pace *pace)
{
    pace->window_ns = pace->closed_ns;
    pace->closed_ns = 0;
    pace->good = pace->next_good;
    pace->too_much = pace->next_too_much;
    pace->next_good = pace->next_too_much = 0;
}

/* A window is over. */
static void note(struct stk_pace *pace, uint64_t answers, uint64_t good)
{
    pace->top -= pace->top / STK_PACE_FADE;
    pace->top = (uint32_t)stk_min(stk_max(pace->top, answers), UINT32_MAX);
    pace->good_top -= pace->good_top / STK_PACE_FADE;
    pace->good_top = (uint32_t)stk_min(stk_max(pace->good_top, good), UINT32_MAX);
    pace->share_last = share_of(pace);
}

/* Of what was really sent, where that is less than what might have been. */
static void halve(struct stk_pace *pace, uint64_t now_ns)
{
    uint64_t sent = pace->top;
    uint64_t now = pace->rate > 0 ? stk_min(pace->rate, sent + sent / 4) : sent;

    pace->peak = stk_min(stk_max(now, STK_PACE_FLOOR), RATE_MAX);
    pace->rate = stk_max(pace->peak / 2, STK_PACE_FLOOR);
    pace->next_ns = stk_max(pace->next_ns, now_ns);
    pace->grown_ns = now_ns;
    pace->trying = 1;
    pace->row++;
    pace->halvings++;
    begin_window(pace, now_ns);
}

/* The window after a halving is over. */
static void judge(struct stk_pace *pace, uint64_t now_ns, uint64_t answers, uint64_t good)
{
    uint32_t share = share_of(pace);
    bool chance = 4 * good <= 3 * pace->good_before && is_chance(pace, share);

    pace->trying = 0;
    chance = chance || pace->rate <= STK_PACE_FLOOR; /* no store has so low a limit */
    if (pace->too_much > 0 && share <= SHARE_MAX && chance) {
        pace->share_before = share;
        pace->vain_ms = (uint32_t)stk_min(pace->vain_ms ? 2ull * pace->vain_ms : STK_PACE_VAIN_MS,
                                          STK_PACE_VAIN_MAX_MS);
        pace->vain_until_ns = now_ns + pace->vain_ms * MS;
        pace->rate = 0;
        begin_window(pace, now_ns);
    } else if (share > STK_PACE_NOISE) {
        pace->vain_ms = 0;
        pace->good_before = good;
        if (share > pace->share_before) { /* the most of all halvings in a row */
            pace->share_before = share;
            pace->row = 0;
        }
        /* What came of twice as much is no measure any more. */
        pace->top = (uint32_t)stk_min(answers, UINT32_MAX);
        pace->good_top = (uint32_t)stk_min(good, UINT32_MAX);
        halve(pace, now_ns);
    } else {
        pace->vain_ms = 0;
        next_window(pace);
    }
}

/* By what it was before the last halving, in STK_PACE_GROW_S seconds; not before its effect was
 * seen. */
static void grow(struct stk_pace *pace, uint64_t now_ns)
{
    uint64_t elapsed_ms = now_ns > pace->grown_ns ? (now_ns - pace->grown_ns) / MS : 0;
    uint64_t more =
        stk_max(pace->peak, 1000) * stk_min(elapsed_ms, 1000) / (1000ull * STK_PACE_GROW_S);

    if (pace->trying) {
        pace->grown_ns = now_ns;
        return;
    }
    if (now_ns >= pace->too_much_ns + STK_PACE_QUIET_S * SECOND) {
        pace->rate = 0;
        return;
    }
    if (more > 0) {
        pace->rate = stk_min(pace->rate + more, RATE_MAX);
        pace->grown_ns = now_ns;
    }
}

/* ---- outages ---- */

/* What was asked most of late, where there was no limit. */
static uint64_t goal_of(const struct stk_pace *pace)
{
    return pace->held > 0 ? pace->held : pace->held_top;
}

static uint64_t probes_of(const struct stk_pace *pace)
{
    uint64_t part = goal_of(pace) / STK_PACE_PROBE_PART;

    return stk_min(stk_max(part, STK_PACE_PROBE_MIN), STK_PACE_PROBE_MAX);
}

/* True: it has begun, and the pace is that of probes. */
static bool begins_outage(struct stk_pace *pace, uint64_t sent_ns, uint64_t now_ns, bool good)
{
    if (good) {
        if (sent_ns >= pace->refused_ns) { /* else it tells how it was before */
            pace->held = pace->rate;
            pace->held_top = pace->top;
            pace->refused_ns = 0;
            pace->refused = 0;
        }
        return false;
    }
    if (pace->refused_ns == 0 || now_ns >= pace->bad_ns + STK_PACE_WINDOW_MAX_MS * MS) {
        pace->refused_ns = now_ns; /* nobody asked for long: it begins anew */
        pace->refused = 0;
    }
    pace->refused++;
    if (pace->refused < STK_PACE_OUT_ANSWERS || now_ns < pace->refused_ns + STK_PACE_OUT_MS * MS) {
        return false;
    }
    if (pace->out_ended_ns > 0 && pace->too_much_ns >= pace->refused_ns &&
        pace->refused_ns < pace->out_ended_ns + STK_PACE_OUT_AGAIN_MS * MS) {
        pace->held = stk_max(goal_of(pace) / 2, STK_PACE_FLOOR);
    }
    pace->out = 1;
    pace->trying = pace->vain_ms = 0;
    pace->vain_until_ns = 0;
    pace->rate = probes_of(pace);
    pace->next_ns = now_ns;
    pace->share_last = 0;
    begin_window(pace, now_ns);
    return true;
}

/* As before the outage. */
static void end_outage(struct stk_pace *pace, uint64_t now_ns)
{
    pace->out = 0;
    pace->out_ended_ns = now_ns;
    pace->refused = 0;
    pace->refused_ns = 0;
    pace->rate = pace->held;
    pace->peak = stk_max(pace->peak, pace->held);
    pace->top = (uint32_t)pace->held_top;
    pace->share_last = 0;
    pace->grown_ns = now_ns;
    begin_window(pace, now_ns);
}

/* An answer to what was sent in an outage. Of a window in which the store came back some were
 * refused; of two such windows in a row one can tell that it does not take even so much. */
static void probe(struct stk_pace *pace, uint64_t sent_ns, uint64_t now_ns, bool good)
{
    uint64_t answers, share;
    bool again = pace->share_last > SHARE_MAX;

    if (sent_ns < pace->window_ns) {
        return;
    }
    pace->good += good ? 1 : 0;
    pace->too_much += good ? 0 : 1;
    answers = (uint64_t)pace->good + pace->too_much;
    if (answers < STK_PACE_PROBE_ANSWERS || now_ns < pace->window_ns + STK_PACE_WINDOW_MS * MS) {
        return;
    }
    share = 1000ull * pace->too_much / answers;
    pace->share_last = pace->good > 0 ? (uint32_t)share : 0;
    if (share <= SHARE_MAX) {
        pace->rate *= STK_PACE_PROBE_TIMES;
        if (pace->rate >= goal_of(pace)) {
            end_outage(pace, now_ns);
            return;
        }
    } else if (pace->good == 0) {
        pace->rate = probes_of(pace);
    } else if (again) { /* it is there, and has a limit */
        uint64_t elapsed_ns = now_ns - pace->window_ns;

        pace->out = 0;
        pace->top = (uint32_t)stk_min(per_time(answers, elapsed_ns), UINT32_MAX);
        pace->good_before = per_time(pace->good, elapsed_ns);
        pace->share_before = (uint32_t)share;
        pace->row = 0;
        halve(pace, now_ns);
        return;
    }
    begin_window(pace, now_ns);
}

bool stk_pace_is_throttled(const struct stk_pace *pace, uint64_t now_ns)
{
    return pace->rate > 0 ||
           (pace->too_much_ns > 0 && now_ns < pace->too_much_ns + STK_PACE_VAIN_MS * MS);
}

void stk_pace_repair(struct stk_pace *pace, uint64_t now_ns)
{
    uint64_t far_ns = now_ns + 100 * SECOND;

    if (pace->rate > RATE_MAX || pace->peak > RATE_MAX || pace->next_ns > far_ns ||
        pace->grown_ns > far_ns || pace->window_ns > far_ns || pace->too_much_ns > far_ns ||
        pace->vain_until_ns > far_ns || pace->good_before > 1ull << 50 ||
        pace->share_before > 1000 || pace->share_last > 1000 ||
        pace->vain_ms > STK_PACE_VAIN_MAX_MS || pace->trying > 1 || pace->good > 1u << 30 ||
        pace->too_much > 1u << 30 || (pace->rate > 0 && pace->rate < STK_PACE_FLOOR) ||
        (pace->trying && pace->rate == 0) || (pace->out && pace->rate == 0) || pace->out > 1 ||
        pace->held > RATE_MAX || pace->held_top > UINT32_MAX || pace->refused_ns > far_ns ||
        pace->out_ended_ns > far_ns || pace->refused > 1u << 30 || pace->closed_ns > far_ns ||
        (pace->closed_ns > 0 && pace->closed_ns < pace->window_ns) || pace->next_good > 1u << 30 ||
        pace->next_too_much > 1u << 30 || pace->lag_us > STK_PACE_LAG_MAX_MS * 1000 ||
        pace->row > 1u << 30 || pace->bad_ns > far_ns) {
        memset(pace, 0, sizeof *pace);
    }
}
