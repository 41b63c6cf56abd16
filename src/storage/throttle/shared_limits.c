/* What the processes of a user share: leases, demands, and paces of prefixes. */
#include "storage/throttle/shared_limits.h"

#include "base/mem.h"
#include "base/random.h"
#include "storage/throttle/shared_limits_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MS 1000000ull
#define SWEEP_MS 100u /* the dead are looked for at most so often */
#define PROBES 8u     /* places where a prefix may be */
#define SPINS 2000u   /* a holder has a pace for less than a microsecond, or it is dead */
#define DEMAND_MAX (1u << 20)

struct stk_node {
    struct stk_node_file *file;
    int fd; /* -1: alone */
    uint32_t member;
    uint32_t held;
    pid_t process;
    uint64_t swept_ns;
    char why[200];
};

/* What all would like and have, at one time. */
struct census {
    uint32_t held[STK_NODE_MEMBERS], demand[STK_NODE_MEMBERS];
    uint32_t count;   /* of the arrays that is used */
    uint32_t members; /* alive */
    uint32_t total;   /* leases of all */
    uint32_t connections_max;
};

static int open_shared(struct stk_node *node, const char *folder);
static void join(struct stk_node *node, uint32_t connections_max);
static void forget_member(struct stk_node_file *file, uint32_t member);
static void forget_dead(struct stk_node *node);
static void sweep(struct stk_node *node, uint64_t now_ns);
static void count(const struct stk_node *node, uint64_t now_ns, struct census *census);

int stk_node_open(struct stk_node **node_out, const struct stk_node_options *options,
                  struct stoker_error *error)
{
    struct stk_node *node = stk_alloc(1, sizeof *node);
    uint32_t connections_max =
        options->connections_max ? options->connections_max : STK_NODE_CONNECTIONS_DEFAULT;
    const char *asked = options->folder ? options->folder : getenv("STOKER_NODE_DIR");
    const char *personal = getenv("XDG_RUNTIME_DIR");
    int status = -1;

    if (!node) {
        return stk_fail(error, -ENOMEM, "cannot reach stores", "free memory", "node");
    }
    node->fd = -1;
    node->process = getpid();
    if (options->alone) {
        snprintf(node->why, sizeof node->why, "asked to be");
    } else if (asked && asked[0]) {
        status = open_shared(node, asked);
    } else {
        status = open_shared(node, "/dev/shm");
        if (status < 0 && personal && personal[0]) {
            status = open_shared(node, personal);
        }
    }
    if (status == 0) {
        join(node, (uint32_t)stk_min(connections_max, STK_NODE_LEASES));
    }
    if (node->fd < 0) {
        node->file = stk_alloc(1, sizeof *node->file);
        if (!node->file) {
            stk_free(node);
            return stk_fail(error, -ENOMEM, "cannot reach stores", "free memory", "node");
        }
        atomic_store(&node->file->members[0].connections_max,
                     (uint32_t)stk_min(connections_max, STK_NODE_LEASES));
    }
    *node_out = node;
    return 0;
}

static int open_shared(struct stk_node *node, const char *folder)
{
    const char *why = "";
    int status = stk_node_file_open(folder, &node->fd, &node->file, &why);

    if (status < 0) {
        node->fd = -1;
        snprintf(node->why, sizeof node->why, "%.100s/stoker-%u-%u: %s", folder, STK_NODE_LAYOUT,
                 (unsigned)geteuid(), why);
    } else {
        node->why[0] = '\0';
    }
    return status;
}

/* Becomes a member, or is alone where there are too many. */
static void join(struct stk_node *node, uint32_t connections_max)
{
    for (uint32_t i = 0; i < STK_NODE_MEMBERS; i++) {
        if (stk_node_lock_member(node->fd, i)) {
            forget_member(node->file, i); /* who had it before */
            node->member = i;
            atomic_store(&node->file->members[i].connections_max, connections_max);
            forget_dead(node); /* they are no neighbours: who is alone may begin with all */
            return;
        }
    }
    munmap(node->file, sizeof *node->file);
    close(node->fd);
    node->fd = -1;
    node->file = NULL;
    snprintf(node->why, sizeof node->why, "more than %u processes share", STK_NODE_MEMBERS);
}

void stk_node_close(struct stk_node *node)
{
    if (!node) {
        return;
    }
    if (node->fd < 0) {
        stk_free(node->file);
    } else {
        if (node->process == getpid()) { /* else it is the parent's */
            forget_member(node->file, node->member);
            stk_node_unlock_member(node->fd, node->member);
        }
        munmap(node->file, sizeof *node->file);
        close(node->fd);
    }
    stk_free(node);
}

const char *stk_node_alone(const struct stk_node *node)
{
    return node->why;
}

/* Frees what names it. Nobody else can become this member meanwhile: its lock is held. */
static void forget_member(struct stk_node_file *file, uint32_t member)
{
    uint32_t name;

    for (uint32_t i = 0; i < STK_NODE_LEASES; i++) {
        name = member + 1;
        (void)atomic_compare_exchange_strong(&file->leases[i], &name, 0);
    }
    for (uint32_t i = 0; i < STK_NODE_PACES; i++) {
        name = member + 1;
        (void)atomic_compare_exchange_strong(&file->paces[i].holder, &name, 0);
    }
    atomic_store(&file->members[member].demand, 0);
    atomic_store(&file->members[member].told_ns, 0);
    atomic_store(&file->members[member].connections_max, 0);
}

/* Members whose lock nobody holds are dead. */
static void forget_dead(struct stk_node *node)
{
    bool named[STK_NODE_MEMBERS] = {false};

    for (uint32_t i = 0; i < STK_NODE_LEASES; i++) {
        uint32_t name = atomic_load_explicit(&node->file->leases[i], memory_order_relaxed);

        if (name > 0 && name <= STK_NODE_MEMBERS) {
            named[name - 1] = true;
        }
    }
    for (uint32_t i = 0; i < STK_NODE_MEMBERS; i++) {
        named[i] = named[i] || atomic_load(&node->file->members[i].connections_max) > 0;
        if (named[i] && i != node->member && stk_node_lock_member(node->fd, i)) {
            forget_member(node->file, i);
            stk_node_unlock_member(node->fd, i);
        }
    }
}

static void sweep(struct stk_node *node, uint64_t now_ns)
{
    if (node->fd >= 0 && now_ns >= node->swept_ns + SWEEP_MS * MS) {
        node->swept_ns = now_ns;
        forget_dead(node);
    }
}

static void count(const struct stk_node *node, uint64_t now_ns, struct census *census)
{
    uint32_t most = STK_NODE_LEASES;

    *census = (struct census){.count = node->member + 1};
    for (uint32_t i = 0; i < STK_NODE_LEASES; i++) {
        uint32_t name = atomic_load_explicit(&node->file->leases[i], memory_order_relaxed);

        if (name > 0 && name <= STK_NODE_MEMBERS) {
            census->held[name - 1]++;
            census->total++;
            census->count = (uint32_t)stk_max(census->count, name);
        }
    }
    for (uint32_t i = 0; i < STK_NODE_MEMBERS; i++) {
        const struct stk_node_member *member = &node->file->members[i];
        uint32_t its = atomic_load_explicit(&member->connections_max, memory_order_relaxed);
        uint64_t told_ns = atomic_load_explicit(&member->told_ns, memory_order_relaxed);

        if (its == 0) {
            continue;
        }
        census->members++;
        most = (uint32_t)stk_min(most, its);
        census->count = (uint32_t)stk_max(census->count, i + 1);
        if (told_ns < now_ns + 1000 * MS && now_ns < told_ns + STK_NODE_STALE_MS * MS) {
            census->demand[i] = (uint32_t)stk_min(
                atomic_load_explicit(&member->demand, memory_order_relaxed), DEMAND_MAX);
        }
    }
    census->connections_max = most;
}

void stk_node_demand(struct stk_node *node, uint32_t connections, uint64_t now_ns)
{
    struct stk_node_member *member = &node->file->members[node->member];

    atomic_store_explicit(&member->demand, connections, memory_order_relaxed);
    atomic_store_explicit(&member->told_ns, now_ns, memory_order_relaxed);
}

bool stk_node_take(struct stk_node *node, uint64_t now_ns)
{
    struct census census;
    uint32_t share;

    count(node, now_ns, &census);
    share = stk_share(census.demand, census.count, node->member, census.connections_max);
    if (node->held >= share || census.total >= census.connections_max) {
        sweep(node, now_ns); /* who stands in the way may be dead */
        count(node, now_ns, &census);
        share = stk_share(census.demand, census.count, node->member, census.connections_max);
    }
    if (node->held >= share || census.total >= census.connections_max) {
        return false;
    }
    for (uint32_t i = 0; i < census.connections_max; i++) {
        uint32_t name = atomic_load_explicit(&node->file->leases[i], memory_order_relaxed);

        /* What names nobody is damage, and as good as free. */
        if ((name == 0 || name > STK_NODE_MEMBERS) &&
            atomic_compare_exchange_strong(&node->file->leases[i], &name, node->member + 1)) {
            node->held++;
            return true;
        }
    }
    return false;
}

void stk_node_give(struct stk_node *node, uint32_t given)
{
    given = (uint32_t)stk_min(given, node->held);
    node->held -= given;
    for (uint32_t i = STK_NODE_LEASES; i-- > 0 && given > 0;) { /* above a lower bound first */
        uint32_t name = node->member + 1;

        given -= atomic_compare_exchange_strong(&node->file->leases[i], &name, 0) ? 1 : 0;
    }
}

uint32_t stk_node_held(const struct stk_node *node)
{
    return node->held;
}

uint32_t stk_node_surplus(struct stk_node *node, uint64_t now_ns)
{
    struct census census;
    uint64_t lack = 0, share, unused;

    if (node->fd < 0 || node->held == 0) {
        return 0;
    }
    count(node, now_ns, &census);
    for (uint32_t i = 0; i < census.count; i++) {
        lack += i != node->member && census.demand[i] > census.held[i]
                    ? census.demand[i] - census.held[i]
                    : 0;
    }
    unused = census.connections_max - stk_min(census.total, census.connections_max);
    share = stk_share(census.demand, census.count, node->member, census.connections_max);
    if (lack <= unused || share >= node->held) {
        return 0;
    }
    return (uint32_t)stk_min(node->held - share, lack - unused);
}

void stk_node_tell(struct stk_node *node, uint64_t now_ns, struct stk_node_told *told_out)
{
    struct census census;
    uint64_t rate = 0;

    count(node, now_ns, &census);
    for (uint32_t i = 0; i < STK_NODE_PACES; i++) {
        struct stk_node_pace *place = &node->file->paces[i];
        uint64_t its = atomic_load_explicit(&place->rate, memory_order_relaxed);

        if (now_ns - stk_min(now_ns, atomic_load_explicit(&place->used_ns, memory_order_relaxed)) >=
            STK_PACE_QUIET_S * 1000 * MS) {
            continue;
        }
        rate = its > 0 && (rate == 0 || its < rate) ? its : rate;
    }
    *told_out = (struct stk_node_told){.connections_max = census.connections_max,
                                       .connections = census.total,
                                       .members = census.members,
                                       .rate = rate};
}

/* ---- paces ---- */

/* The place of a prefix, held; NULL: its holder does not let go. */
static struct stk_node_pace *hold(struct stk_node *node, uint64_t prefix, uint64_t now_ns)
{
    uint64_t start = stk_mix(prefix) % STK_NODE_PACES, oldest_ns = UINT64_MAX, used_ns;
    struct stk_node_pace *found = &node->file->paces[start], *place;
    uint32_t holder;

    for (uint32_t i = 0; i < PROBES; i++) {
        place = &node->file->paces[(start + i) % STK_NODE_PACES];
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
        if ((holder == 0 || holder > STK_NODE_MEMBERS) && /* or damage */
            atomic_compare_exchange_weak_explicit(&found->holder, &holder, node->member + 1,
                                                  memory_order_acquire, memory_order_relaxed)) {
            if (atomic_load_explicit(&found->prefix, memory_order_relaxed) != prefix) {
                found->pace = (struct stk_pace){0};
                atomic_store_explicit(&found->prefix, prefix, memory_order_relaxed);
            }
            atomic_store_explicit(&found->used_ns, now_ns, memory_order_relaxed);
            return found;
        }
    }
    return NULL;
}

static void let_go(struct stk_node_pace *place, const struct stk_pace *pace)
{
    place->pace = *pace;
    atomic_store_explicit(&place->rate, pace->rate, memory_order_relaxed);
    atomic_store_explicit(&place->holder, 0, memory_order_release);
}

bool stk_node_admit(struct stk_node *node, uint64_t prefix, uint64_t now_ns, bool *out)
{
    struct stk_node_pace *place = hold(node, prefix | 1, now_ns);
    struct stk_pace pace;
    bool now, is_out;

    out = out ? out : &is_out;
    *out = false;
    if (!place) {
        return true;
    }
    pace = place->pace;
    stk_pace_repair(&pace, now_ns);
    now = stk_pace_take(&pace, now_ns);
    *out = stk_pace_is_out(&pace);
    let_go(place, &pace);
    return now;
}

struct stk_node_verdict stk_node_answer(struct stk_node *node, uint64_t prefix, uint64_t sent_ns,
                                        uint64_t now_ns, uint32_t answer)
{
    struct stk_node_pace *place = hold(node, prefix | 1, now_ns);
    struct stk_node_verdict verdict = {.throttled = answer == STK_PACE_TOO_MUCH};
    struct stk_pace pace;

    if (!place) { /* its holder may have died in it */
        sweep(node, now_ns);
        return verdict;
    }
    pace = place->pace;
    stk_pace_repair(&pace, now_ns);
    stk_pace_answer(&pace, sent_ns, now_ns, answer);
    verdict.throttled = stk_pace_is_throttled(&pace, now_ns);
    verdict.vain = stk_pace_is_wait_vain(&pace, now_ns);
    verdict.out = stk_pace_is_out(&pace);
    let_go(place, &pace);
    return verdict;
}
