/* rate_limit.c in simulated time: a store that serves a number of requests a second, one that
 * refuses a share of all, one that refuses everything for a while, and one that is down. */
#include "base/random.h"
#include "storage/throttle/throttle.h"
#include "test/t.h"

#include <string.h>

#define MS 1000000ull
#define SECOND 1000000000ull
#define FLIGHTS 256u

/* Clients that always have `flights` requests on their way, of `delay_ms` each. */
struct simulation {
    uint32_t flights, delay_ms;
    uint32_t refused_ms;        /* delay of a refusal; 0: delay_ms */
    uint32_t capacity;          /* requests that the store serves in a second; 0: all */
    uint32_t tenths;            /* of a second: the period in which it counts requests; 0: 1 */
    uint32_t refused;           /* refused requests of a thousand, whatever the rate */
    uint32_t phase_ms;          /* the store's periods begin so much earlier */
    uint32_t alone_ms;          /* one request at a time until then, as when a data set opens */
    uint32_t from_ms, until_ms; /* when capacity and refused hold; until 0: always */
    uint32_t outage_ms, outage_end_ms; /* all requests in this time are refused, */
    bool away;                         /* or fail at once */
    uint64_t end_ms;                   /* of the simulation */
    uint32_t paces;                    /* how many rate limits the clients share in turn */
    uint64_t seed;
    struct {
        uint64_t sent_ns, done_ns;
        uint32_t answer; /* enum stk_rate_limit_response */
    } flight[FLIGHTS];
    struct stk_rate_limit pace[8];
    uint64_t requested, good, refusals, in_second, second, peak_rate;
    uint64_t late_good, late_refusals; /* of the last half */
};

static bool is_refused(struct simulation *sim, uint64_t now_ns)
{
    uint32_t tenths = sim->tenths ? sim->tenths : 1;
    uint64_t ms = now_ns / MS, second = (ms + sim->phase_ms) / (100ull * tenths);
    bool on = ms >= sim->from_ms && (sim->until_ms == 0 || ms < sim->until_ms);

    if (second != sim->second) {
        sim->second = second;
        sim->in_second = 0;
    }
    sim->in_second++;
    if (ms >= sim->outage_ms && ms < sim->outage_end_ms) {
        return true;
    }
    if (on && sim->capacity > 0 && sim->in_second > sim->capacity * tenths / 10) {
        return true;
    }
    return on && stk_random_key(sim->seed, sim->requested++) % 1000 < sim->refused;
}

/* enum stk_rate_limit_response */
static uint32_t answer_of(struct simulation *sim, uint64_t now_ns)
{
    bool out = now_ns >= sim->outage_ms * MS && now_ns < sim->outage_end_ms * MS;

    return !is_refused(sim, now_ns) ? STK_RATE_LIMIT_OK
           : out && sim->away       ? STK_RATE_LIMIT_FAILED
                                    : STK_RATE_LIMIT_THROTTLED;
}

static void send(struct simulation *sim, uint32_t i, uint64_t now_ns)
{
    bool now = stk_rate_limit_acquire(&sim->pace[i % stk_max(sim->paces, 1)], now_ns);
    uint64_t wait_ms = now ? sim->delay_ms : 20;

    sim->flight[i].sent_ns = now ? now_ns : 0;
    sim->flight[i].answer = now ? answer_of(sim, now_ns) : STK_RATE_LIMIT_OK;
    if (sim->flight[i].answer == STK_RATE_LIMIT_FAILED) {
        wait_ms = 1;
    } else if (sim->flight[i].answer == STK_RATE_LIMIT_THROTTLED && sim->refused_ms > 0) {
        wait_ms = sim->refused_ms;
    }
    sim->flight[i].done_ns = now_ns + wait_ms * MS;
}

static void go_on(struct simulation *sim, uint64_t more_ms)
{
    uint32_t paces = sim->paces ? sim->paces : 1;
    uint64_t begin_ms = stk_max(sim->end_ms, 1000), ms = begin_ms + more_ms - 1000;

    sim->end_ms = begin_ms + more_ms;
    for (uint64_t t = begin_ms; t < sim->end_ms; t++) {
        uint64_t now_ns = t * MS;

        for (uint32_t i = 0; i < sim->flights; i++) {
            struct stk_rate_limit *pace = &sim->pace[i % paces];

            if (sim->flight[i].done_ns > now_ns || (i > 0 && t < sim->alone_ms)) {
                continue;
            }
            if (sim->flight[i].sent_ns > 0) {
                bool refused = sim->flight[i].answer != STK_RATE_LIMIT_OK;

                sim->good += refused ? 0 : 1;
                sim->refusals += refused ? 1 : 0;
                sim->late_good += !refused && t > ms / 2 ? 1 : 0;
                sim->late_refusals += refused && t > ms / 2 ? 1 : 0;
                stk_rate_limit_record(pace, sim->flight[i].sent_ns, now_ns, sim->flight[i].answer);
            }
            send(sim, i, now_ns);
        }
        sim->peak_rate = stk_max(sim->peak_rate, sim->pace[0].rate);
    }
}

static void simulate(struct simulation *sim, uint64_t ms)
{
    go_on(sim, ms - (sim->end_ms ? sim->end_ms - 1000 : 0));
}

/* 100 in flight at 50 ms are 2,000 a second. */
static void test_capacity(void)
{
    static const struct row {
        const char *name;
        uint32_t capacity, paces;
    } rows[] = {
        {"half of the offered requests", 1000, 1},
        {"nine tenths", 1800, 1},
        {"a tenth", 200, 1},
        {"a hundredth", 20, 1},
    };

    T_EACH(row, row, rows)
    {
        static struct simulation sim;

        sim = (struct simulation){
            .flights = 100, .delay_ms = 50, .capacity = row->capacity, .paces = row->paces};
        simulate(&sim, 60000);
        /* In the second half: most of what the store serves, and few throttled responses. */
        T_TRUE(row->name, sim.late_good >= 30ull * row->capacity * 65 / 100);
        T_TRUE(row->name, sim.late_refusals * 5 <= sim.late_good);
        T_TRUE(row->name, sim.pace[0].rate > 0);
        printf("%s: %llu good, %llu refused of 30 s, %u halvings\n", row->name,
               (unsigned long long)sim.late_good, (unsigned long long)sim.late_refusals,
               sim.pace[0].halvings);
    }
}

/* A limit is not taken for chance, or not for long, wherever windows begin in the store's time. */
static void test_no_chance(void)
{
    static const uint32_t capacities[] = {200, 450, 600, 800, 1000, 1300};
    static const uint32_t delays_ms[] = {20, 35, 80};
    static struct simulation sim;
    uint64_t stores = 0, vain = 0, worst = 0, late, phases = T_HISTORIES(5);

    for (size_t i = 0; i < phases * STK_COUNT(capacities) * STK_COUNT(delays_ms); i++) {
        uint64_t rest = i / phases;

        for (uint32_t flights = 60; flights <= 240; flights += 60) {
            sim = (struct simulation){
                .flights = flights,
                .delay_ms = delays_ms[rest % STK_COUNT(delays_ms)],
                .capacity = capacities[rest / STK_COUNT(delays_ms)],
                .phase_ms = (uint32_t)(i % phases) * 21,
                .refused_ms = 10 * (uint32_t)(i % 2),
            };
            simulate(&sim, 10000);
            late = 1000 * sim.late_refusals / sim.late_good;
            worst = stk_max(worst, late);
            vain += sim.pace[0].ineffective_until_ns > 0;
            stores++;
        }
    }
    T_TRUE("few of them", 100 * vain <= stores);
    T_TRUE("and not for long", worst <= 500);
    printf("of %llu stores %llu were taken for chance, %llu refused beside 1,000 good at most\n",
           (unsigned long long)stores, (unsigned long long)vain, (unsigned long long)worst);
}

/* Three of ten for a minute: it is not the rate, so the rate stays. */
static void test_vain(void)
{
    static const struct row {
        const char *name;
        uint32_t refused, most, least; /* requests for 1,000 good ones; percent of clean */
    } rows[] = {
        {"three of ten", 300, 1500, 62},    {"one of ten", 100, 1150, 80},
        {"one of forty", 25, 1050, 85},     {"one of two hundred", 5, 1020, 80},
        {"45 of a hundred", 450, 1900, 48},
    };
    static struct simulation clean, sim;

    clean = (struct simulation){.flights = 100, .delay_ms = 50};
    simulate(&clean, 60000);
    T_EQ("clean", clean.refusals, 0);
    T_EACH(row, row, rows)
    {
        double worst = 1;

        for (uint64_t seed = 1; seed <= T_HISTORIES(20); seed++) {
            sim = (struct simulation){.flights = 100,
                                      .delay_ms = 50,
                                      .refused = row->refused,
                                      .seed = seed,
                                      .refused_ms = 10 * (uint32_t)(seed % 2)};
            simulate(&sim, 60000);
            worst = sim.good < worst * (double)clean.good ? (double)sim.good / (double)clean.good
                                                          : worst;
            T_TRUE(row->name, 1000 * (sim.good + sim.refusals) <= row->most * sim.good);
            T_TRUE(row->name, 100 * sim.good >= row->least * clean.good);
        }
        printf("%s: %.3f of clean at least\n", row->name, worst);
    }
    /* More than half: that may be overload that halving does not reach. */
    sim = (struct simulation){.flights = 100, .delay_ms = 50, .refused = 700, .seed = 3};
    simulate(&sim, 60000);
    T_TRUE("seven of ten are no reason to go on", sim.pace[0].rate > 0);
    T_TRUE("and it sends far fewer requests", 10 * (sim.good + sim.refusals) < 2 * clean.good);
}

/* A process that opens a data set sends one request after the other, and then many at once: the
 * first phase must not create a limit that slows down the second. */
static void test_beginning(void)
{
    static const uint32_t alone_ms[] = {0, 300, 1300, 20000};
    static struct simulation clean, sim;

    for (size_t i = 0; i < STK_COUNT(alone_ms); i++) {
        clean = (struct simulation){.flights = 100, .delay_ms = 50, .alone_ms = alone_ms[i]};
        simulate(&clean, alone_ms[i] + 3000);
        for (uint64_t seed = 1; seed <= T_HISTORIES(20); seed++) {
            sim = (struct simulation){.flights = 100,
                                      .delay_ms = 50,
                                      .alone_ms = alone_ms[i],
                                      .refused = 300,
                                      .seed = seed};
            simulate(&sim, alone_ms[i] + 3000);
            T_TRUE("three of ten in the first seconds", 100 * sim.good >= 35 * clean.good);
        }
        printf("alone for %u ms: %.2f of clean in the next 3 s\n", alone_ms[i],
               (double)sim.good / (double)clean.good);
    }
}

static void test_recovery(void)
{
    static struct simulation sim;
    uint64_t good;

    sim = (struct simulation){
        .flights = 100, .delay_ms = 50, .capacity = 500, .from_ms = 5000, .until_ms = 20000};
    simulate(&sim, 70000);
    T_EQ("no limit half a minute after", sim.pace[0].rate, 0);
    T_TRUE("nor is it throttled", !stk_rate_limit_is_active(&sim.pace[0], 71000 * MS));
    good = sim.good;
    sim.good = 0;
    T_TRUE("it was at full rate before and behind", good > 2000 * 30);
}

/* All requests are refused for a while, by a store with and without a limit: only probes are sent,
 * and then the earlier rate holds again, at once. */
static void test_outage(void)
{
    static const struct row {
        const char *name;
        uint32_t capacity, refused, until_ms;
        uint64_t fast; /* good answers a second that were usual */
        bool away;
    } rows[] = {
        {"a brownout of 3 s", 0, 0, 8000, 2000, false},
        {"of 2 s, of which the rules for a rate see most", 0, 0, 7000, 2000, false},
        {"a second", 0, 0, 6000, 2000, false},
        {"half a second", 0, 0, 5500, 1000, false},
        {"20 s", 0, 0, 25000, 2000, false},
        {"a store with a limit", 600, 0, 8000, 400, false},
        {"a store that refuses three of ten anyway", 0, 300, 12000, 1300, false},
        {"no server for a second", 0, 0, 6000, 2000, true},
        {"for a minute", 0, 0, 65000, 2000, true},
        {"of a store with a limit", 600, 0, 35000, 400, true},
        {"of one that refuses three of ten anyway", 0, 300, 35000, 1300, true},
    };

    T_EACH(row, row, rows)
    {
        static struct simulation sim;
        uint64_t start, probes = 0;

        sim = (struct simulation){.flights = 100,
                                  .delay_ms = 50,
                                  .capacity = row->capacity,
                                  .refused = row->refused,
                                  .outage_ms = 5000,
                                  .outage_end_ms = row->until_ms,
                                  .away = row->away,
                                  .seed = 7};
        simulate(&sim, row->until_ms - 2000); /* its time begins with 1,000 */
        start = sim.good + sim.refusals;
        go_on(&sim, 1000);
        probes = sim.good + sim.refusals - start;
        start = sim.good;
        go_on(&sim, 2000);
        T_TRUE(row->name, sim.good - start >= 256); /* the samples of a batch */
        printf("%s: %llu requested in its last second, %llu good in the 2 s behind it,", row->name,
               (unsigned long long)probes, (unsigned long long)(sim.good - start));
        go_on(&sim, 2000);
        start = sim.good;
        go_on(&sim, 2000);
        T_TRUE(row->name, 10 * (sim.good - start) >= 2 * 9 * row->fast);
        T_TRUE(row->name, row->until_ms < 8000 || 10 * probes <= 2000);
        T_TRUE(row->name, row->until_ms < 8000 || !row->away || probes <= 25);
        printf(" %llu a second then\n", (unsigned long long)(sim.good - start) / 2);
    }
}

/* A store that counts by the second, and refuses the rest of it, has a limit. If each rest were
 * taken for an outage, every second would begin with a burst. */
static void test_seconds(void)
{
    static const uint32_t capacities[] = {200, 500, 1000};
    static struct simulation sim;

    for (size_t i = 0; i < STK_COUNT(capacities); i++) {
        for (uint32_t periods = 1; periods <= 4; periods *= 2) {
            sim = (struct simulation){
                .flights = 100, .delay_ms = 50, .capacity = capacities[i], .tenths = 10 * periods};
            simulate(&sim, 60000);
            T_TRUE("half of it at least", 2 * sim.late_good >= 30ull * capacities[i]);
            T_TRUE("few are refused", 2 * sim.late_refusals <= sim.late_good);
            printf("%u in each %u s: %llu good, %llu refused of 30 s\n", capacities[i] * periods,
                   periods, (unsigned long long)sim.late_good,
                   (unsigned long long)sim.late_refusals);
        }
    }
}

/* An answer to a request from before an outage does not end it, nor does it hide one. */
static void test_before_an_outage(void)
{
    struct stk_rate_limit pace = {0};
    uint64_t now_ns = 10 * SECOND, sent_ns = now_ns - SECOND;

    for (uint32_t i = 0; i < 600; i++, now_ns += 2 * MS) {
        stk_rate_limit_record(&pace, now_ns - MS, now_ns, false);
    }
    for (uint32_t i = 0; i < 1000; i++, now_ns += 2 * MS) {
        stk_rate_limit_record(&pace, now_ns - MS, now_ns, true);
        if (i % 100 == 50) {
            stk_rate_limit_record(&pace, sent_ns, now_ns, false); /* a large body is complete now */
        }
    }
    T_TRUE("an outage", stk_rate_limit_is_outage(&pace) && stk_rate_limit_is_active(&pace, now_ns));
    T_EQ("what held", pace.held, 0);
    for (uint32_t i = 0; i < 100; i++, now_ns += 5 * MS) {
        stk_rate_limit_record(&pace, sent_ns, now_ns, false);
    }
    T_TRUE("still", stk_rate_limit_is_outage(&pace) && pace.rate <= STK_RATE_LIMIT_PROBE_MAX);
    for (uint32_t i = 0; i < 3; i++, now_ns += 10 * SECOND) { /* not from long ago */
        stk_rate_limit_record(&pace, now_ns - MS, now_ns, true);
    }
    T_TRUE("still", stk_rate_limit_is_outage(&pace));
    for (uint32_t i = 0; i < 200; i++, now_ns += 10 * MS) {
        stk_rate_limit_record(&pace, now_ns, now_ns, i % 4 > 0);
    }
    T_TRUE("back with a limit: by the usual rules",
           !stk_rate_limit_is_outage(&pace) && pace.rate > 0);
    T_TRUE("they halve it", pace.halvings > 0);
}

/* Few refusals, or few in a row, are no outage. */
static void test_no_outage(void)
{
    struct stk_rate_limit pace = {0};
    uint64_t now_ns = 10 * SECOND;

    for (uint32_t i = 0; i < STK_RATE_LIMIT_OUTAGE_RESPONSES - 1; i++, now_ns += 100 * MS) {
        stk_rate_limit_record(&pace, now_ns - MS, now_ns, true);
    }
    T_TRUE("few", !stk_rate_limit_is_outage(&pace));
    now_ns += 10 * SECOND;
    for (uint32_t i = 0; i < STK_RATE_LIMIT_OUTAGE_RESPONSES; i++, now_ns += MS) {
        stk_rate_limit_record(&pace, now_ns - MS, now_ns, true);
    }
    T_TRUE("at once", !stk_rate_limit_is_outage(&pace));
    stk_rate_limit_record(&pace, now_ns, now_ns + 2 * SECOND, true);
    T_TRUE("for long", stk_rate_limit_is_outage(&pace));
}

/* One halving a window, whatever the requests in flight return. */
static void test_once(void)
{
    struct stk_rate_limit pace = {0};
    uint64_t now_ns = SECOND, rate, sent = 0;

    for (uint32_t i = 0; i < 1000; i++, now_ns += MS) {
        stk_rate_limit_record(&pace, now_ns - MS, now_ns, false);
    }
    T_TRUE("no limit", stk_rate_limit_acquire(&pace, now_ns));
    for (uint32_t i = 0; i < 650; i++) {
        stk_rate_limit_record(&pace, now_ns + i * MS, now_ns + (i + 200) * MS, i % 8 > 0);
    }
    T_EQ("what was on its way halves once", pace.halvings, 1);
    now_ns += 2 * SECOND;
    rate = pace.rate;
    T_TRUE("half of 1,000 a second", rate > 450000 && rate < 550000);
    now_ns += SECOND;
    for (uint32_t i = 0; i < 1000; i++) {
        sent += stk_rate_limit_acquire(&pace, now_ns + i / 10 * MS) ? 1 : 0;
    }
    T_TRUE("in 100 ms a tenth of a second's, and a burst", sent >= 70 && sent <= 80);
    for (uint32_t i = 0; i < 1200; i++) {
        stk_rate_limit_record(&pace, now_ns + i * 5 * MS, now_ns + i * 5 * MS, false);
    }
    T_TRUE("it grows with good answers", pace.rate > rate);
}

/* A limit begins with two windows of throttled responses, and never at a low rate. */
static void test_two_windows(void)
{
    struct stk_rate_limit pace = {0};
    uint64_t now_ns = 10 * SECOND;

    for (uint32_t window = 0; window < 2; window++) {
        T_EQ("no limit before the second is over", pace.rate, 0);
        for (uint32_t i = 0; i < 85; i++, now_ns += 3 * MS) {
            stk_rate_limit_record(&pace, now_ns - MS, now_ns, i % 2 == 0);
        }
        T_EQ("halved", pace.halvings, window);
    }
    T_TRUE("limited", pace.rate > 0);
    pace = (struct stk_rate_limit){0};
    for (uint32_t i = 0; i < 600; i++, now_ns += 100 * MS) {
        stk_rate_limit_record(&pace, now_ns - MS, now_ns, i % 2 == 0);
    }
    T_TRUE("ten a second are never held up", pace.halvings == 0 && pace.rate == 0);
}

/* Throttled responses from before a long idle time do not reduce the rate after it. */
static void test_silence(void)
{
    struct stk_rate_limit pace = {0};
    uint64_t now_ns = 10 * SECOND;

    for (uint32_t i = 0; pace.halvings == 0 && i < 3000; i++) {
        stk_rate_limit_record(&pace, now_ns - MS, now_ns, i % 10 != 0); /* if all: an outage */
        now_ns += 3 * MS;
    }
    while (pace.trying && now_ns < 40 * SECOND) {
        stk_rate_limit_record(&pace, now_ns - MS, now_ns, false);
        now_ns += 3 * MS;
    }
    T_TRUE("limited", pace.rate > 0 && pace.halvings == 1 && !pace.trying);
    for (uint32_t i = 0; i < 30; i++, now_ns += 3 * MS) {
        stk_rate_limit_record(&pace, now_ns - MS, now_ns, true);
    }
    T_EQ("the window is not over", pace.halvings, 1);
    now_ns += 10 * SECOND;
    stk_rate_limit_record(&pace, now_ns - MS, now_ns, false);
    T_EQ("not halved for what is long ago", pace.halvings, 1);
    T_TRUE("still limited", pace.rate > 0);
}

/* A rate that holds: 100 a second, of 200 before, halved just now and shown to help. */
static struct stk_rate_limit paced(uint64_t now_ns)
{
    return (struct stk_rate_limit){.rate = 100000,
                                   .peak = 200000,
                                   .next_ns = now_ns,
                                   .grown_ns = now_ns,
                                   .window_ns = now_ns,
                                   .throttled_ns = now_ns,
                                   .good_before = 200000,
                                   .share_before = 500,
                                   .top = 200000,
                                   .good_top = 200000,
                                   .halvings = 1};
}

static void test_quiet(void)
{
    uint64_t begin_ns = 10 * SECOND, end_ns = begin_ns + STK_RATE_LIMIT_EXPIRE_S * SECOND;
    struct stk_rate_limit pace = paced(begin_ns);

    stk_rate_limit_record(&pace, end_ns - 2 * MS, end_ns - MS, false);
    T_TRUE("not quiet for long enough", pace.rate > 0);
    T_TRUE("so it is limited", stk_rate_limit_is_active(&pace, end_ns));
    stk_rate_limit_record(&pace, end_ns - MS, end_ns, false);
    T_EQ("half a minute without a word: no limit any more", pace.rate, 0);
    T_TRUE("nor is it throttled", !stk_rate_limit_is_active(&pace, end_ns));
    pace = paced(begin_ns);
    for (uint64_t t = 50; t <= STK_RATE_LIMIT_GROWTH_S * 1000; t += 50) {
        stk_rate_limit_record(&pace, begin_ns + (t - 1) * MS, begin_ns + t * MS, false);
    }
    T_TRUE("it grew by what it was before", pace.rate >= 295000 && pace.rate <= 305000);
    pace = paced(begin_ns);
    stk_rate_limit_record(&pace, begin_ns + 19 * SECOND, begin_ns + 20 * SECOND, false);
    T_TRUE("a pause is no reason to grow at once",
           pace.rate <= 100000 + 200000 / STK_RATE_LIMIT_GROWTH_S);
    pace = paced(begin_ns);
    pace.trying = 1;
    stk_rate_limit_record(&pace, begin_ns + MS, begin_ns + 200 * MS, false);
    T_EQ("not before the effect is seen", pace.rate, 100000);
    T_TRUE("and what was until then counts as seen", pace.grown_ns == begin_ns + 200 * MS);
    /* A limit without a word for longer than a pause is one all the same. */
    T_TRUE("limited", stk_rate_limit_is_active(&pace, begin_ns + 20 * SECOND));
}

/* Answers after a halving: `refused` of each 8, `each_ms` apart at least. */
static void answer_window(struct stk_rate_limit *pace, uint64_t now_ns, uint32_t refused,
                          uint64_t each_ms)
{
    for (uint32_t i = 0; pace->trying && i < 4000; i++) {
        now_ns += each_ms * MS;
        stk_rate_limit_record(pace, now_ns, now_ns, i % 8 < refused);
        if (pace->halvings > 1) {
            break;
        }
    }
}

static void test_vain_again(void)
{
    static const uint32_t waits_ms[] = {10000, 20000, 40000, 60000, 60000};
    uint64_t now_ns = 10 * SECOND;
    struct stk_rate_limit pace = {0};

    for (size_t i = 0; i < STK_COUNT(waits_ms); i++) {
        uint32_t vain_ms = pace.ineffective_ms;

        pace = paced(now_ns);
        pace.ineffective_ms = vain_ms;
        pace.trying = 1;
        answer_window(&pace, now_ns, 4, 10); /* half as many good ones, as many of the other kind */
        T_EQ("in vain: no limit", pace.rate, 0);
        T_EQ("for twice as long each time", pace.ineffective_ms, waits_ms[i]);
        now_ns = pace.ineffective_until_ns;
        T_TRUE("until then", stk_rate_limit_is_ineffective(&pace, now_ns - 1));
        T_TRUE("no longer", !stk_rate_limit_is_ineffective(&pace, now_ns));
        T_TRUE("to wait is in vain for longer", stk_rate_limit_is_wait_ineffective(&pace, now_ns));
        T_TRUE("not for ever", !stk_rate_limit_is_wait_ineffective(
                                   &pace, now_ns + STK_RATE_LIMIT_INEFFECTIVE_MS * MS));
    }
    for (uint32_t refused = 0; refused < 8; refused += 7) { /* it helps; it is overload */
        pace = paced(now_ns);
        pace.ineffective_ms = 20000;
        pace.trying = 1;
        answer_window(&pace, now_ns, refused, 10);
        T_EQ("no longer in vain", pace.ineffective_ms, 0);
        T_TRUE("limited", pace.rate > 0);
        T_EQ("and again only if that did not do", pace.halvings, refused ? 2 : 1);
        if (refused) { /* the result of twice the rate is no longer a reference */
            T_TRUE("measured anew", pace.good_top < 20000 && pace.good_before == pace.good_top);
        }
    }
    pace = paced(now_ns); /* as slow as may be */
    pace.rate = pace.peak = pace.top = STK_RATE_LIMIT_MIN;
    pace.trying = 1;
    answer_window(&pace, now_ns, 7, 2000);
    T_TRUE("it goes on", pace.halvings > 1);
    T_EQ("one a second at least", pace.rate, STK_RATE_LIMIT_MIN);
}

/* Left alone as chance, until it refuses more than chance does. */
static void test_refuted(void)
{
    for (uint32_t refused = 4; refused < 8; refused += 3) { /* of each 8 */
        uint64_t now_ns = 10 * SECOND, end_ns;
        struct stk_rate_limit pace = paced(now_ns);

        pace.trying = 1;
        answer_window(&pace, now_ns, 4, 10);
        end_ns = pace.ineffective_until_ns - SECOND;
        now_ns = end_ns - 4 * SECOND;
        T_TRUE("left alone", pace.rate == 0 && stk_rate_limit_is_ineffective(&pace, now_ns));
        for (uint32_t i = 0; now_ns < end_ns && pace.rate == 0; i++) {
            now_ns += MS;
            stk_rate_limit_record(&pace, now_ns - MS, now_ns, i % 8 < refused);
        }
        T_EQ("no longer where it is more", pace.rate > 0, refused == 7);
        T_EQ("within two windows", now_ns < end_ns - 3 * SECOND, refused == 7);
        T_EQ("nor are waits in vain", stk_rate_limit_is_wait_ineffective(&pace, now_ns),
             refused != 7);
    }
}

/* A window counts the requests that were sent in it, however late their answers are. */
static void test_late_answers(void)
{
    struct stk_rate_limit pace = {0};
    uint64_t now_ns = 10 * SECOND;

    for (uint32_t i = 0; i < 500; i++, now_ns += 10 * MS) {
        stk_rate_limit_record(&pace, now_ns - 600 * MS, now_ns, false);
        T_TRUE("100 a second", pace.top <= 110000 && pace.good_top <= 110000);
    }
    T_TRUE("at least", pace.top >= 90000 && pace.good_top >= 90000);
    T_TRUE("not waited for longer", pace.lag_us >= 600000 && pace.lag_us <= 620000);
}

/* A store that had a limit, which has nearly no effect any more, refuses three of ten by chance. */
static void test_from_below(void)
{
    static const uint32_t shares[] = {300, 500, 700, 900, 1000};
    static struct simulation sim;

    for (size_t i = 0; i < STK_COUNT(shares); i++) {
        uint64_t worst = UINT64_MAX;

        for (uint64_t seed = 1; seed <= 10; seed++) {
            sim = (struct simulation){
                .flights = 100, .delay_ms = 50, .refused_ms = 10, .refused = 300, .seed = seed};
            sim.pace[0] = paced(SECOND);
            sim.pace[0].rate = seed % 2 ? 100000 : 500000;
            sim.pace[0].peak = 2 * sim.pace[0].rate;
            sim.pace[0].good_before = 2 * sim.pace[0].rate;
            sim.pace[0].share_before = shares[i];
            sim.pace[0].trying = 1;
            simulate(&sim, 60000);
            worst = stk_min(worst, sim.late_good);
        }
        /* Half of all in the second half minute; a third where all, or nearly all, was refused. */
        T_TRUE("it comes back", worst >= (shares[i] > 800 ? 20000 : 30000));
        printf("from below, %u of a thousand before: %llu good in 30 s at least\n", shares[i],
               (unsigned long long)worst);
    }
}

static void test_repair(void)
{
    struct stk_rate_limit pace;
    uint64_t key = 1;

    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t words[sizeof pace / 8];

        for (uint32_t w = 0; w < STK_COUNT(words); w++) {
            key = stk_mix64(key + 1);
            words[w] = key >> (stk_mix64(key) % 64);
        }
        memcpy(&pace, words, sizeof pace);
        stk_rate_limit_validate(&pace, SECOND);
        for (uint32_t n = 0; n < 8; n++) {
            uint64_t now_ns = SECOND + n * 100 * MS;
            struct stk_rate_limit later = pace;

            T_TRUE("no wait is longer than a minute or two",
                   stk_rate_limit_acquire(&pace, now_ns) ||
                       stk_rate_limit_acquire(&later, now_ns + 120 * SECOND));
            stk_rate_limit_record(&pace, now_ns, now_ns, n % 3 == 0);
        }
    }
}

/* ---- epochs ---- */

/* A loader's epochs: `flights` concurrent requests for the samples of an epoch, each repeated
 * until it succeeds; the next epoch begins when all samples arrived. Refusals arrive at once. */
struct epochs {
    uint32_t samples, flights, delay_ms, refused;
    uint64_t seed;
    struct {
        uint64_t sent_ns, next_ns; /* sent: 0: it waits, until next; UINT64_MAX: for an epoch */
        uint32_t tries;
        bool refused;
    } flight[FLIGHTS];
    struct stk_rate_limit pace;
    uint32_t begun, done; /* of this epoch */
    uint64_t requested, good;
    uint64_t each_second[64];
};

/* As store/ does: next to none where it is vain to wait, else more each time. */
static uint64_t wait_ns(struct epochs *sim, uint32_t i, uint64_t now_ns)
{
    uint64_t most = stk_rate_limit_is_outage(&sim->pace) ? 1000
                    : stk_rate_limit_is_wait_ineffective(&sim->pace, now_ns)
                        ? 20
                        : 200ull << sim->flight[i].tries;

    return stk_random_key(sim->seed + 1, sim->requested++) % (stk_min(most, 20000) + 1) * MS;
}

static void begin_sample(struct epochs *sim, uint32_t i, uint64_t now_ns)
{
    bool more = sim->begun < sim->samples;

    sim->begun += more ? 1 : 0;
    sim->flight[i].tries = 0;
    sim->flight[i].next_ns = more ? now_ns : UINT64_MAX;
}

static void hear(struct epochs *sim, uint32_t i, uint64_t now_ns)
{
    bool refused = sim->flight[i].refused;

    stk_rate_limit_record(&sim->pace, sim->flight[i].sent_ns, now_ns, refused);
    sim->flight[i].sent_ns = 0;
    if (refused) {
        sim->flight[i].next_ns = now_ns + wait_ns(sim, i, now_ns);
        sim->flight[i].tries += sim->flight[i].tries < 10 ? 1 : 0;
        return;
    }
    sim->good++;
    sim->done++;
    sim->each_second[now_ns / SECOND]++;
    begin_sample(sim, i, now_ns);
}

static void ask(struct epochs *sim, uint32_t i, uint64_t now_ns)
{
    if (!stk_rate_limit_acquire(&sim->pace, now_ns)) {
        sim->flight[i].next_ns = now_ns + 2 * MS;
        return;
    }
    sim->flight[i].sent_ns = now_ns;
    sim->flight[i].refused = stk_random_key(sim->seed, sim->requested++) % 1000 < sim->refused;
    sim->flight[i].next_ns = now_ns + (sim->flight[i].refused ? 1 : sim->delay_ms) * MS;
}

static void run_epochs(struct epochs *sim, uint32_t seconds)
{
    sim->done = sim->samples;
    for (uint64_t t = 1000; t < (seconds + 1) * 1000ull; t++) {
        if (sim->done == sim->samples) {
            sim->begun = sim->done = 0;
            for (uint32_t i = 0; i < sim->flights; i++) {
                begin_sample(sim, i, t * MS);
            }
        }
        for (uint32_t i = 0; i < sim->flights; i++) {
            if (sim->flight[i].next_ns > t * MS) {
                continue;
            }
            if (sim->flight[i].sent_ns > 0) {
                hear(sim, i, t * MS);
            } else {
                ask(sim, i, t * MS);
            }
        }
    }
}

/* Refusals arrive at once; at the end of an epoch all requests wait for the last ones. Random
 * refusals of three in ten remain three in ten. */
static void test_epochs(void)
{
    static const struct row {
        uint32_t samples, flights, delay_ms;
    } rows[] = {{4000, 256, 20}, {4000, 256, 60}, {1000, 100, 46}, {300, 64, 200}, {4000, 64, 10}};
    static struct epochs clean, sim;

    T_EACH(row, row, rows)
    {
        double worst = 1;
        uint64_t stills = 0;

        clean = (struct epochs){
            .samples = row->samples, .flights = row->flights, .delay_ms = row->delay_ms};
        run_epochs(&clean, 30);
        for (uint64_t seed = 1; seed <= T_HISTORIES(5); seed++) {
            sim = (struct epochs){.samples = row->samples,
                                  .flights = row->flights,
                                  .delay_ms = row->delay_ms,
                                  .refused = 300,
                                  .seed = seed};
            run_epochs(&sim, 30);
            worst = sim.good < worst * (double)clean.good ? (double)sim.good / (double)clean.good
                                                          : worst;
            for (uint32_t second = 5; second <= 30; second++) {
                stills += sim.each_second[second] < clean.each_second[20] / 20;
            }
        }
        printf("epochs of %u, %u at once, %u ms: %.3f of clean at least, %llu seconds still\n",
               row->samples, row->flights, row->delay_ms, worst, (unsigned long long)stills);
        T_TRUE("most of it is left", worst >= 0.55);
        T_EQ("no second is lost", stills, 0);
    }
}

int main(void)
{
    test_capacity();
    test_no_chance();
    test_vain();
    test_beginning();
    test_recovery();
    test_outage();
    test_seconds();
    test_before_an_outage();
    test_no_outage();
    test_once();
    test_two_windows();
    test_silence();
    test_quiet();
    test_vain_again();
    test_refuted();
    test_late_answers();
    test_from_below();
    test_repair();
    test_epochs();
    return t_finish();
}
