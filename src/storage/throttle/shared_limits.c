/* Limits that the processes of a user share: leases, requested connections, and rates of prefixes.
 */
#include "storage/throttle/shared_limits.h"

#include "base/mem.h"
#include "base/random.h"
#include "storage/throttle/shared_limits_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS 1000000ull
#define SWEEP_MS 100u /* the minimum time between two searches for dead members */
#define PROBES 8u     /* places where a prefix may be */
#define SPINS 2000u   /* a live process holds a rate for less than 1 us */
#define REQUEST_MAX (1u << 20)

struct stk_shared_limits {
    struct stk_shared_limits_file *file;
    int fd; /* -1: alone */
    uint32_t member;
    uint32_t held;
    uint32_t connections_max; /* of this process; the file may be cut */
    pid_t process;
    uint64_t swept_ns;
    char why[200];
};

/* The demand and the leases of all members, at one time. */
struct usage {
    uint32_t held[STK_SHARED_LIMITS_MEMBERS], demand[STK_SHARED_LIMITS_MEMBERS];
    uint32_t count;   /* of the arrays that is used */
    uint32_t members; /* alive */
    uint32_t total;   /* leases of all */
    uint32_t connections_max;
};

static int open_shared(struct stk_shared_limits *limits, const char *folder);
static void join_members(struct stk_shared_limits *limits, uint32_t connections_max);
static void free_member(struct stk_shared_limits_file *file, uint32_t member);
static void free_dead_members(struct stk_shared_limits *limits);
static void sweep(struct stk_shared_limits *limits, uint64_t now_ns);
static void count(const struct stk_shared_limits *limits, uint64_t now_ns, struct usage *usage);

int stk_shared_limits_open(struct stk_shared_limits **limits_out,
                           const struct stk_shared_limits_options *options,
                           struct stoker_error *error)
{
    struct stk_shared_limits *limits = stk_alloc(1, sizeof *limits);
    uint32_t connections_max =
        options->connections_max ? options->connections_max : STK_SHARED_LIMITS_CONNECTIONS_DEFAULT;
    const char *folder = options->folder ? options->folder : getenv("STOKER_NODE_DIR");
    const char *personal = getenv("XDG_RUNTIME_DIR");
    int status = -1;

    if (!limits) {
        return stk_fail(error, -ENOMEM, "cannot reach stores", "free memory", "node");
    }
    limits->fd = -1;
    limits->process = getpid();
    limits->connections_max = (uint32_t)stk_min(connections_max, STK_SHARED_LIMITS_LEASES);
    if (options->not_shared) {
        snprintf(limits->why, sizeof limits->why, "disabled by an option");
    } else if (folder && folder[0]) {
        status = open_shared(limits, folder);
    } else {
        status = open_shared(limits, "/dev/shm");
        if (status < 0 && personal && personal[0]) {
            status = open_shared(limits, personal);
        }
    }
    if (status == 0) {
        join_members(limits, limits->connections_max);
    }
    if (limits->fd < 0) {
        limits->file = stk_alloc(1, sizeof *limits->file);
        if (!limits->file) {
            stk_free(limits);
            return stk_fail(error, -ENOMEM, "cannot reach stores", "free memory", "node");
        }
        atomic_store(&limits->file->members[0].connections_max, limits->connections_max);
    }
    *limits_out = limits;
    return 0;
}

static int open_shared(struct stk_shared_limits *limits, const char *folder)
{
    const char *why = "";
    int status = stk_shared_limits_file_open(folder, &limits->fd, &limits->file, &why);

    if (status < 0) {
        limits->fd = -1;
        snprintf(limits->why, sizeof limits->why, "%.100s/stoker-%u-%u: %s", folder,
                 STK_SHARED_LIMITS_LAYOUT, (unsigned)geteuid(), why);
    } else {
        limits->why[0] = '\0';
    }
    return status;
}

/* Becomes a member, or works alone if there are too many members. */
static void join_members(struct stk_shared_limits *limits, uint32_t connections_max)
{
    for (uint32_t i = 0; i < STK_SHARED_LIMITS_MEMBERS; i++) {
        if (stk_shared_limits_lock_member(limits->fd, i)) {
            free_member(limits->file, i); /* leases of the earlier process in this place */
            limits->member = i;
            atomic_store(&limits->file->members[i].connections_max, connections_max);
            /* dead members are no neighbours: a single process may start with all connections */
            free_dead_members(limits);
            return;
        }
    }
    stk_shared_limits_file_close(limits->fd, limits->file);
    limits->fd = -1;
    limits->file = NULL;
    snprintf(limits->why, sizeof limits->why, "more than %u processes share",
             STK_SHARED_LIMITS_MEMBERS);
}

void stk_shared_limits_close(struct stk_shared_limits *limits)
{
    if (!limits) {
        return;
    }
    if (limits->fd < 0) {
        stk_free(limits->file);
    } else {
        if (limits->process == getpid()) { /* else it is the parent's */
            free_member(limits->file, limits->member);
            stk_shared_limits_unlock_member(limits->fd, limits->member);
        }
        stk_shared_limits_file_close(limits->fd, limits->file);
    }
    stk_free(limits);
}

const char *stk_shared_limits_note(const struct stk_shared_limits *limits)
{
    return limits->why;
}

/* Frees the entries of this member. No other process can become this member meanwhile: the lock
 * of the member is held. */
static void free_member(struct stk_shared_limits_file *file, uint32_t member)
{
    uint32_t name;

    for (uint32_t i = 0; i < STK_SHARED_LIMITS_LEASES; i++) {
        name = member + 1;
        (void)atomic_compare_exchange_strong(&file->leases[i], &name, 0);
    }
    for (uint32_t i = 0; i < STK_SHARED_LIMITS_RATES; i++) {
        name = member + 1;
        (void)atomic_compare_exchange_strong(&file->rates[i].holder, &name, 0);
    }
    atomic_store(&file->members[member].requested, 0);
    atomic_store(&file->members[member].requested_ns, 0);
    atomic_store(&file->members[member].connections_max, 0);
}

/* A member is dead if no process holds its lock. */
static void free_dead_members(struct stk_shared_limits *limits)
{
    bool named[STK_SHARED_LIMITS_MEMBERS] = {false};

    for (uint32_t i = 0; i < STK_SHARED_LIMITS_LEASES; i++) {
        uint32_t name = atomic_load_explicit(&limits->file->leases[i], memory_order_relaxed);

        if (name > 0 && name <= STK_SHARED_LIMITS_MEMBERS) {
            named[name - 1] = true;
        }
    }
    for (uint32_t i = 0; i < STK_SHARED_LIMITS_MEMBERS; i++) {
        named[i] = named[i] || atomic_load(&limits->file->members[i].connections_max) > 0;
        if (named[i] && i != limits->member && stk_shared_limits_lock_member(limits->fd, i)) {
            free_member(limits->file, i);
            stk_shared_limits_unlock_member(limits->fd, i);
        }
    }
}

static void sweep(struct stk_shared_limits *limits, uint64_t now_ns)
{
    if (limits->fd >= 0 && now_ns >= limits->swept_ns + SWEEP_MS * MS) {
        limits->swept_ns = now_ns;
        free_dead_members(limits);
    }
}

static void count(const struct stk_shared_limits *limits, uint64_t now_ns, struct usage *usage)
{
    uint32_t most = limits->connections_max;

    *usage = (struct usage){.count = limits->member + 1};
    for (uint32_t i = 0; i < STK_SHARED_LIMITS_LEASES; i++) {
        uint32_t name = atomic_load_explicit(&limits->file->leases[i], memory_order_relaxed);

        if (name > 0 && name <= STK_SHARED_LIMITS_MEMBERS) {
            usage->held[name - 1]++;
            usage->total++;
            usage->count = (uint32_t)stk_max(usage->count, name);
        }
    }
    for (uint32_t i = 0; i < STK_SHARED_LIMITS_MEMBERS; i++) {
        const struct stk_shared_limits_member *member = &limits->file->members[i];
        uint32_t its = atomic_load_explicit(&member->connections_max, memory_order_relaxed);
        uint64_t reported_ns = atomic_load_explicit(&member->requested_ns, memory_order_relaxed);

        if (its == 0) {
            continue;
        }
        usage->members++;
        most = (uint32_t)stk_min(most, its);
        usage->count = (uint32_t)stk_max(usage->count, i + 1);
        if (reported_ns < now_ns + 1000 * MS &&
            now_ns < reported_ns + STK_SHARED_LIMITS_STALE_MS * MS) {
            usage->demand[i] = (uint32_t)stk_min(
                atomic_load_explicit(&member->requested, memory_order_relaxed), REQUEST_MAX);
        }
    }
    usage->connections_max = most;
}

void stk_shared_limits_request(struct stk_shared_limits *limits, uint32_t connections,
                               uint64_t now_ns)
{
    struct stk_shared_limits_member *member = &limits->file->members[limits->member];

    /* Again, as the file may have been cut: then it is zero here. */
    atomic_store_explicit(&member->connections_max, limits->connections_max, memory_order_relaxed);
    atomic_store_explicit(&member->requested, connections, memory_order_relaxed);
    atomic_store_explicit(&member->requested_ns, now_ns, memory_order_relaxed);
}

bool stk_shared_limits_acquire(struct stk_shared_limits *limits, uint64_t now_ns)
{
    struct usage usage;
    uint32_t share;

    count(limits, now_ns, &usage);
    share = stk_fair_share(usage.demand, usage.count, limits->member, usage.connections_max);
    if (limits->held >= share || usage.total >= usage.connections_max) {
        sweep(limits, now_ns); /* the process that holds the leases may be dead */
        count(limits, now_ns, &usage);
        share = stk_fair_share(usage.demand, usage.count, limits->member, usage.connections_max);
    }
    if (limits->held >= share || usage.total >= usage.connections_max) {
        return false;
    }
    for (uint32_t i = 0; i < usage.connections_max; i++) {
        uint32_t name = atomic_load_explicit(&limits->file->leases[i], memory_order_relaxed);

        /* An entry without a member is damaged, and can be reused. */
        if ((name == 0 || name > STK_SHARED_LIMITS_MEMBERS) &&
            atomic_compare_exchange_strong(&limits->file->leases[i], &name, limits->member + 1)) {
            limits->held++;
            return true;
        }
    }
    return false;
}

void stk_shared_limits_release(struct stk_shared_limits *limits, uint32_t given)
{
    given = (uint32_t)stk_min(given, limits->held);
    limits->held -= given;
    for (uint32_t i = STK_SHARED_LIMITS_LEASES;
         i-- > 0 && given > 0;) { /* above a lower bound first */
        uint32_t name = limits->member + 1;

        given -= atomic_compare_exchange_strong(&limits->file->leases[i], &name, 0) ? 1 : 0;
    }
}

uint32_t stk_shared_limits_held(const struct stk_shared_limits *limits)
{
    return limits->held;
}

uint32_t stk_shared_limits_excess(struct stk_shared_limits *limits, uint64_t now_ns)
{
    struct usage usage;
    uint64_t lack = 0, share, unused;

    if (limits->fd < 0 || limits->held == 0) {
        return 0;
    }
    count(limits, now_ns, &usage);
    for (uint32_t i = 0; i < usage.count; i++) {
        lack += i != limits->member && usage.demand[i] > usage.held[i]
                    ? usage.demand[i] - usage.held[i]
                    : 0;
    }
    unused = usage.connections_max - stk_min(usage.total, usage.connections_max);
    share = stk_fair_share(usage.demand, usage.count, limits->member, usage.connections_max);
    if (lack <= unused || share >= limits->held) {
        return 0;
    }
    return (uint32_t)stk_min(limits->held - share, lack - unused);
}

void stk_shared_limits_get_stats(struct stk_shared_limits *limits, uint64_t now_ns,
                                 struct stk_shared_limits_stats *stats_out)
{
    struct usage usage;
    uint64_t rate = 0;

    count(limits, now_ns, &usage);
    for (uint32_t i = 0; i < STK_SHARED_LIMITS_RATES; i++) {
        struct stk_shared_limits_rate *place = &limits->file->rates[i];
        uint64_t its = atomic_load_explicit(&place->rate, memory_order_relaxed);

        if (now_ns - stk_min(now_ns, atomic_load_explicit(&place->used_ns, memory_order_relaxed)) >=
            STK_RATE_LIMIT_EXPIRE_S * 1000 * MS) {
            continue;
        }
        rate = its > 0 && (rate == 0 || its < rate) ? its : rate;
    }
    *stats_out = (struct stk_shared_limits_stats){.connections_max = usage.connections_max,
                                                  .connections = usage.total,
                                                  .members = usage.members,
                                                  .rate = rate};
}

/* ---- rates ---- */

/* Returns the entry of a prefix, locked, or NULL if its holder does not unlock it. */
static struct stk_shared_limits_rate *lock_rate(struct stk_shared_limits *limits, uint64_t prefix,
                                                uint64_t now_ns)
{
    uint64_t start = stk_mix64(prefix) % STK_SHARED_LIMITS_RATES, oldest_ns = UINT64_MAX, used_ns;
    struct stk_shared_limits_rate *found = &limits->file->rates[start], *place;
    uint32_t holder;

    for (uint32_t i = 0; i < PROBES; i++) {
        place = &limits->file->rates[(start + i) % STK_SHARED_LIMITS_RATES];
        if (atomic_load_explicit(&place->prefix, memory_order_relaxed) == prefix) {
            found = place;
            break;
        }
        used_ns = atomic_load_explicit(&place->used_ns, memory_order_relaxed);
        used_ns = used_ns > now_ns ? 0 : used_ns;
        if (used_ns < oldest_ns) {
            oldest_ns = used_ns;
            found = place;
        }
    }
    for (uint32_t spin = 0; spin < SPINS; spin++) {
        holder = atomic_load_explicit(&found->holder, memory_order_relaxed);
        if ((holder == 0 || holder > STK_SHARED_LIMITS_MEMBERS) && /* or damage */
            atomic_compare_exchange_weak_explicit(&found->holder, &holder, limits->member + 1,
                                                  memory_order_acquire, memory_order_relaxed)) {
            if (atomic_load_explicit(&found->prefix, memory_order_relaxed) != prefix) {
                found->limit = (struct stk_rate_limit){0};
                atomic_store_explicit(&found->prefix, prefix, memory_order_relaxed);
            }
            atomic_store_explicit(&found->used_ns, now_ns, memory_order_relaxed);
            return found;
        }
    }
    return NULL;
}

static void unlock_rate(struct stk_shared_limits_rate *place, const struct stk_rate_limit *limit)
{
    place->limit = *limit;
    atomic_store_explicit(&place->rate, limit->rate, memory_order_relaxed);
    atomic_store_explicit(&place->holder, 0, memory_order_release);
}

bool stk_shared_limits_admit(struct stk_shared_limits *limits, uint64_t prefix, uint64_t now_ns,
                             bool *out)
{
    struct stk_shared_limits_rate *place = lock_rate(limits, prefix | 1, now_ns);
    struct stk_rate_limit limit;
    bool now, is_out;

    out = out ? out : &is_out;
    *out = false;
    if (!place) {
        return true;
    }
    limit = place->limit;
    stk_rate_limit_validate(&limit, now_ns);
    now = stk_rate_limit_acquire(&limit, now_ns);
    *out = stk_rate_limit_is_outage(&limit);
    unlock_rate(place, &limit);
    return now;
}

struct stk_shared_limits_state stk_shared_limits_record(struct stk_shared_limits *limits,
                                                        uint64_t prefix, uint64_t sent_ns,
                                                        uint64_t now_ns, uint32_t answer)
{
    struct stk_shared_limits_rate *place = lock_rate(limits, prefix | 1, now_ns);
    struct stk_shared_limits_state verdict = {.throttled = answer == STK_RATE_LIMIT_THROTTLED};
    struct stk_rate_limit limit;

    if (!place) { /* the holder may have died while it held the entry */
        sweep(limits, now_ns);
        return verdict;
    }
    limit = place->limit;
    stk_rate_limit_validate(&limit, now_ns);
    stk_rate_limit_record(&limit, sent_ns, now_ns, answer);
    verdict.throttled = stk_rate_limit_is_active(&limit, now_ns);
    verdict.ineffective = stk_rate_limit_is_wait_ineffective(&limit, now_ns);
    verdict.outage = stk_rate_limit_is_outage(&limit);
    unlock_rate(place, &limit);
    return verdict;
}
