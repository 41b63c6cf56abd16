/* The simulated world: files in memory, faults by rule, a clock that only waiting moves. */
#include "world/world.h"

#include "base/hash.h"
#include "base/mem.h"
#include "io/listing.h"
#include "io/posix.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define RULES_MAX 64u
#define TRIES_COUNT (1u << 14)
#define LINKS_MAX 40  /* as Linux, path_resolution(7) */
#define PIECES_MAX 64 /* of one read that meets SHORT again and again */
#define CLOCK_START 1000000000ull
#define TICKS_MS 1000000ull
#define NEVER UINT64_MAX

/* A path is kept without a '/' at either end and without empty or "." parts; "" is the root. */
struct node {
    char *path;
    uint8_t *data; /* file */
    char *target;  /* link */
    uint64_t bytes, inode;
    uint64_t hash; /* of path */
    uint32_t kind; /* enum stk_entry_kind; OTHER: link */
};

struct rule {
    struct stk_world_rule given;
    char *path; /* NULL: every file */
    uint32_t hits;
};

struct flight {
    struct stk_read *read;
    int64_t result;
    uint64_t ready_ns, deadline_ns;
};

struct world_queue {
    struct flight *flights; /* in the order of submission */
    uint32_t count, depth, live;
    bool woken;
    struct stk_reads finished;
};

struct world {
    struct stk_io io; /* first */
    struct stk_io_options options;
    uint64_t seed;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t wake;
    struct node **nodes; /* sorted by path */
    uint64_t count, capacity;
    struct rule rules[RULES_MAX];
    uint32_t rule_count;
    uint32_t tries[TRIES_COUNT];         /* by hash of (path, offset) */
    _Atomic uint64_t now_ns, lost_bytes; /* written under the lock */
};

struct outcome {
    int64_t result;      /* bytes or -errno */
    uint64_t latency_ns; /* NEVER: hangs */
};

static bool canonical(const char *path, char *out);
static uint64_t lower_bound(const struct world *world, const char *path);
static struct node *find(const struct world *world, const char *path);
static int insert(struct world *world, const char *path, struct node **node_out);
static int put(struct world *world, const char *path, struct node **node_out);
static int resolve(struct world *world, const char *path, struct node **node_out);
static bool denied(struct world *world, const struct node *node);
static bool touches(const struct rule *rule, const struct node *node, uint64_t offset,
                    uint64_t bytes);
static bool hits(struct world *world, struct rule *rule, const struct node *node, uint64_t offset,
                 uint64_t word);
static uint64_t end_of(struct world *world, const struct node *node);
static struct outcome meet(struct world *world, const struct node *node, uint64_t offset,
                           uint64_t bytes);
static void fill(struct world *world, struct stk_read *read);
static void settle(struct world *world, struct world_queue *queue);

static struct world *world_of(struct stk_io *io)
{
    return (struct world *)(void *)io;
}

static bool matches(const struct rule *rule, const struct node *node)
{
    return !rule->path || strcmp(rule->path, node->path) == 0;
}

static void stat_fill(const struct node *node, struct stk_stat *stat)
{
    *stat = (struct stk_stat){node->bytes, CLOCK_START, 1, node->inode, node->kind};
}

static int fail(struct stoker_error *error, int number, const char *what, const char *path)
{
    return stk_fail_errno(error, number, what, "this is a simulated world: see the test's rules",
                          "'%s'", path);
}

int stk_world_add(struct stk_io *io, const char *path, const void *data, size_t bytes)
{
    struct world *world = world_of(io);
    struct node *node = NULL;
    int status;

    pthread_mutex_lock(&world->lock);
    status = put(world, path, &node);
    if (status == -EEXIST && !data && node->kind == STK_ENTRY_DIRECTORY) {
        status = 0;
    } else if (status == 0 && data) {
        node->kind = STK_ENTRY_FILE;
        node->data = stk_alloc(bytes, 1);
        status = node->data ? 0 : -ENOMEM;
        node->bytes = node->data ? bytes : 0;
        if (node->bytes > 0) {
            memcpy(node->data, data, bytes);
        }
    }
    pthread_mutex_unlock(&world->lock);
    return status;
}

int stk_world_link(struct stk_io *io, const char *path, const char *target)
{
    struct world *world = world_of(io);
    struct node *node = NULL;
    int status;

    pthread_mutex_lock(&world->lock);
    status = put(world, path, &node);
    if (status == 0) {
        node->kind = STK_ENTRY_OTHER;
        node->target = stk_strdup(target);
        status = node->target ? 0 : -ENOMEM;
    }
    pthread_mutex_unlock(&world->lock);
    return status;
}

int stk_world_rule(struct stk_io *io, const struct stk_world_rule *rule)
{
    struct world *world = world_of(io);
    char name[PATH_MAX];
    struct rule *mine;
    int status = 0;

    pthread_mutex_lock(&world->lock);
    mine = &world->rules[stk_min(world->rule_count, RULES_MAX - 1)];
    if (world->rule_count == RULES_MAX) {
        status = -ENOSPC;
    } else {
        *mine = (struct rule){.given = *rule};
        if (rule->path) {
            mine->path = canonical(rule->path, name) ? stk_strdup(name) : NULL;
            status = mine->path ? 0 : -ENOMEM;
        }
        world->rule_count += status == 0;
    }
    pthread_mutex_unlock(&world->lock);
    return status;
}

static int open_file(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error)
{
    struct world *world = world_of(io);
    struct node *node = NULL;
    int status;

    pthread_mutex_lock(&world->lock);
    status = resolve(world, path, &node);
    if (status == 0 && denied(world, node)) {
        status = -EACCES;
    } else if (status == 0 && node->kind == STK_ENTRY_DIRECTORY) {
        status = -EISDIR;
    }
    pthread_mutex_unlock(&world->lock);
    if (status < 0) {
        return fail(error, -status, "cannot open the file", path);
    }
    *file_out = (struct stk_file *)(void *)node;
    return 0;
}

static void close_file(struct stk_io *io, struct stk_file *file)
{
    (void)io, (void)file; /* a node, the world's */
}

static int stat_file(struct stk_io *io, struct stk_file *file, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    (void)io, (void)error;
    stat_fill((const struct node *)(void *)file, stat_out);
    return 0;
}

static int stat_path(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    struct world *world = world_of(io);
    struct node *node = NULL;
    int status;

    pthread_mutex_lock(&world->lock);
    status = resolve(world, path, &node);
    if (status == 0) {
        stat_fill(node, stat_out);
    }
    pthread_mutex_unlock(&world->lock);
    return status < 0 ? fail(error, -status, "cannot find the path", path) : 0;
}

/* Children lie behind their parent's path and a '/', among its other descendants. */
static int list_node(struct world *world, const struct node *node,
                     struct stk_listing_builder *builder)
{
    char prefix[PATH_MAX + 1];
    size_t bytes = strlen(node->path);
    uint64_t at;
    int status = 0;

    memcpy(prefix, node->path, bytes + 1);
    if (bytes > 0) {
        prefix[bytes++] = '/';
        prefix[bytes] = '\0';
    }
    for (at = lower_bound(world, prefix);
         status == 0 && at < world->count && strncmp(world->nodes[at]->path, prefix, bytes) == 0;
         at++) {
        struct node *child = world->nodes[at], *real = NULL;
        struct stk_entry entry = {.name = child->path + bytes, .kind = STK_ENTRY_OTHER};

        if (!entry.name[0] || strchr(entry.name, '/')) {
            continue;
        }
        if (resolve(world, child->path, &real) == 0) {
            entry.kind = real->kind;
            entry.device = real->kind == STK_ENTRY_DIRECTORY;
            entry.inode = real->kind == STK_ENTRY_DIRECTORY ? real->inode : 0;
        }
        status = stk_listing_add(builder, &entry);
    }
    return status;
}

static int list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error)
{
    struct world *world = world_of(io);
    struct stk_listing_builder builder = {0};
    struct node *node = NULL;
    int status;

    pthread_mutex_lock(&world->lock);
    status = resolve(world, path, &node);
    if (status == 0 && node->kind != STK_ENTRY_DIRECTORY) {
        status = -ENOTDIR;
    } else if (status == 0 && denied(world, node)) {
        status = -EACCES;
    } else if (status == 0) {
        status = list_node(world, node, &builder);
    }
    pthread_mutex_unlock(&world->lock);
    if (status == 0) {
        status = stk_listing_build(&builder, listing_out);
    }
    stk_listing_builder_deinit(&builder);
    return status < 0 ? fail(error, -status, "cannot list the folder", path) : 0;
}

static int64_t read_now(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                        size_t bytes)
{
    struct world *world = world_of(io);
    const struct node *node = (const struct node *)(void *)file;
    bool cold = false;
    uint64_t end, count = 0;

    pthread_mutex_lock(&world->lock);
    end = end_of(world, node);
    if (offset < end) {
        count = stk_min(bytes, end - offset);
    }
    for (uint32_t i = 0; i < world->rule_count && count > 0; i++) {
        struct rule *rule = &world->rules[i];
        uint32_t fault = rule->given.fault;

        if (!touches(rule, node, offset, count)) {
            continue;
        }
        cold = cold || fault == STK_FAULT_EIO || fault == STK_FAULT_SLOW ||
               fault == STK_FAULT_HANG ||
               (fault == STK_FAULT_COLD && hits(world, rule, node, offset, i));
        if (fault == STK_FAULT_SHORT && count > 1 && hits(world, rule, node, offset, i)) {
            count = 1 + stk_key(node->hash, offset) % (count - 1);
        }
    }
    if (!cold && count > 0) {
        memcpy(buffer, node->data + offset, count);
    }
    pthread_mutex_unlock(&world->lock);
    return cold ? -EAGAIN : (int64_t)count;
}

static int64_t read_wait(struct stk_io *io, struct stk_file *file, uint64_t offset, void *buffer,
                         size_t bytes)
{
    struct world *world = world_of(io);
    const struct node *node = (const struct node *)(void *)file;
    uint64_t timeout_ns = world->options.read_timeout_ms * TICKS_MS;
    struct outcome outcome;

    pthread_mutex_lock(&world->lock);
    outcome = meet(world, node, offset, bytes);
    world->now_ns += stk_min(outcome.latency_ns, timeout_ns);
    if (outcome.latency_ns > timeout_ns) {
        outcome.result = STOKER_ERROR_TIMEOUT;
    } else if (outcome.result > 0) {
        memcpy(buffer, node->data + offset, (size_t)outcome.result);
    }
    pthread_mutex_unlock(&world->lock);
    return outcome.result;
}

static int queue_open(struct stk_io *io, struct stk_queue **queue_out, struct stoker_error *error)
{
    struct world_queue *queue = stk_alloc(1, sizeof *queue);

    if (queue) {
        queue->depth = world_of(io)->options.depth;
        queue->flights = stk_alloc(queue->depth, sizeof *queue->flights);
    }
    if (!queue || !queue->flights) {
        stk_free(queue);
        return fail(error, ENOMEM, "cannot open a queue of reads", "world");
    }
    *queue_out = (struct stk_queue *)(void *)queue;
    return 0;
}

static void queue_close(struct stk_io *io, struct stk_queue *opaque)
{
    struct world *world = world_of(io);
    struct world_queue *queue = (struct world_queue *)(void *)opaque;

    pthread_mutex_lock(&world->lock);
    for (uint32_t i = 0; i < queue->count; i++) {
        struct flight *flight = &queue->flights[i];

        flight->read->result = STOKER_ERROR_CLOSED;
        flight->read->lost = flight->ready_ns > world->now_ns + STK_CLOSE_QUIET_MS * TICKS_MS;
        world->lost_bytes += flight->read->lost ? flight->read->capacity : 0;
    }
    (void)stk_reads_take(&queue->finished);
    pthread_mutex_unlock(&world->lock);
    stk_free(queue->flights);
    stk_free(queue);
}

static int submit(struct stk_io *io, struct stk_queue *opaque, struct stk_read *reads)
{
    struct world *world = world_of(io);
    struct world_queue *queue = (struct world_queue *)(void *)opaque;
    int taken = 0;

    pthread_mutex_lock(&world->lock);
    for (struct stk_read *read = reads; read && queue->live < queue->depth; read = read->next) {
        const struct node *node = (const struct node *)(void *)read->file;
        struct outcome outcome = meet(world, node, read->offset, read->bytes);

        queue->flights[queue->count++] = (struct flight){
            .read = read,
            .result = outcome.result,
            .ready_ns = outcome.latency_ns == NEVER ? NEVER : world->now_ns + outcome.latency_ns,
            .deadline_ns = world->now_ns + world->options.read_timeout_ms * TICKS_MS,
        };
        queue->live++;
        taken++;
    }
    pthread_mutex_unlock(&world->lock);
    return taken;
}

static struct stk_read *reap(struct stk_io *io, struct stk_queue *opaque, uint32_t timeout_ms)
{
    struct world *world = world_of(io);
    struct world_queue *queue = (struct world_queue *)(void *)opaque;
    uint64_t until_ns, real_ns = stk_clock_ns() + timeout_ms * TICKS_MS;
    struct timespec until = {.tv_sec = (time_t)(real_ns / 1000000000u),
                             .tv_nsec = (long)(real_ns % 1000000000u)};
    struct stk_read *list;

    pthread_mutex_lock(&world->lock);
    until_ns = world->now_ns + timeout_ms * TICKS_MS;
    for (;;) {
        uint64_t next_ns = until_ns;

        settle(world, queue);
        if (queue->finished.first || queue->woken || world->now_ns >= until_ns) {
            break;
        }
        for (uint32_t i = 0; i < queue->count; i++) {
            next_ns = stk_min(next_ns, queue->flights[i].ready_ns);
            next_ns = stk_min(next_ns, queue->flights[i].deadline_ns);
        }
        if (queue->count == 0 &&
            pthread_cond_clockwait(&world->wake, &world->lock, CLOCK_MONOTONIC, &until) == 0) {
            continue;
        }
        world->now_ns = stk_max(world->now_ns, next_ns);
    }
    queue->woken = false;
    list = stk_reads_take(&queue->finished);
    for (struct stk_read *read = list; read; read = read->next) {
        queue->live--;
    }
    pthread_mutex_unlock(&world->lock);
    return list;
}

static void wake(struct stk_io *io, struct stk_queue *opaque)
{
    struct world *world = world_of(io);

    pthread_mutex_lock(&world->lock);
    ((struct world_queue *)(void *)opaque)->woken = true;
    pthread_cond_broadcast(&world->wake);
    pthread_mutex_unlock(&world->lock);
}

static uint64_t clock_ns(struct stk_io *io)
{
    return atomic_load_explicit(&world_of(io)->now_ns, memory_order_relaxed);
}

static const char *backend(struct stk_io *io, const char **reason_out)
{
    (void)io;
    if (reason_out) {
        *reason_out = "a simulated world";
    }
    return "world";
}

static uint64_t lost_bytes(struct stk_io *io)
{
    return atomic_load_explicit(&world_of(io)->lost_bytes, memory_order_relaxed);
}

static void world_close(struct stk_io *io)
{
    struct world *world = world_of(io);

    for (uint64_t i = 0; i < world->count; i++) {
        stk_free(world->nodes[i]->path);
        stk_free(world->nodes[i]->data);
        stk_free(world->nodes[i]->target);
        stk_free(world->nodes[i]);
    }
    for (uint32_t i = 0; i < world->rule_count; i++) {
        stk_free(world->rules[i].path);
    }
    pthread_cond_destroy(&world->wake);
    pthread_mutex_destroy(&world->lock);
    stk_free(world->nodes);
    stk_free(world);
}

static const struct stk_io_table world_table = {
    open_file,   close_file, stat_file, stat_path, list,     read_now, read_wait,  queue_open,
    queue_close, submit,     reap,      wake,      clock_ns, backend,  lost_bytes, world_close,
};

int stk_world_open(struct stk_io **io_out, uint64_t seed, const struct stk_io_options *options,
                   struct stoker_error *error)
{
    struct world *world = stk_alloc(1, sizeof *world);
    struct node *root = NULL;

    if (!world) {
        return fail(error, ENOMEM, "cannot open a world", "world");
    }
    pthread_mutex_init(&world->lock, NULL);
    pthread_cond_init(&world->wake, NULL);
    world->io.table = &world_table;
    world->seed = seed;
    world->now_ns = CLOCK_START;
    world->options = options ? *options : (struct stk_io_options){0};
    world->options.depth = world->options.depth ? world->options.depth : STK_DEPTH_DEFAULT;
    world->options.read_timeout_ms =
        world->options.read_timeout_ms ? world->options.read_timeout_ms : STK_TIMEOUT_DEFAULT_MS;
    if (insert(world, "", &root) < 0) {
        world_close(&world->io);
        return fail(error, ENOMEM, "cannot open a world", "world");
    }
    *io_out = &world->io;
    return 0;
}

/* Into out[PATH_MAX]; false if it is too long. ".." is left for resolve. */
static bool canonical(const char *path, char *out)
{
    size_t used = 0;

    while (*path) {
        size_t bytes = strcspn(path, "/");

        if (bytes > 0 && !(bytes == 1 && path[0] == '.')) {
            if (used + bytes + 2 > PATH_MAX) {
                return false;
            }
            if (used > 0) {
                out[used++] = '/';
            }
            memcpy(out + used, path, bytes);
            used += bytes;
        }
        path += bytes + (path[bytes] == '/');
    }
    out[used] = '\0';
    return true;
}

static uint64_t lower_bound(const struct world *world, const char *path)
{
    uint64_t low = 0, high = world->count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (strcmp(world->nodes[middle]->path, path) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct node *find(const struct world *world, const char *path)
{
    uint64_t at = lower_bound(world, path);

    return at < world->count && strcmp(world->nodes[at]->path, path) == 0 ? world->nodes[at] : NULL;
}

/* A directory, until the caller makes it something else. -EEXIST gives the node too. */
static int insert(struct world *world, const char *path, struct node **node_out)
{
    uint64_t at = lower_bound(world, path), capacity;
    struct node **grown, *node;

    *node_out = find(world, path);
    if (*node_out) {
        return -EEXIST;
    }
    if (world->count == world->capacity) {
        capacity = stk_max(64, world->capacity * 2);
        grown = stk_realloc(world->nodes, world->capacity, capacity, sizeof(struct node *));
        if (!grown) {
            return -ENOMEM;
        }
        world->nodes = grown;
        world->capacity = capacity;
    }
    node = stk_alloc(1, sizeof *node);
    if (!node || !(node->path = stk_strdup(path))) {
        stk_free(node);
        return -ENOMEM;
    }
    node->kind = STK_ENTRY_DIRECTORY;
    node->inode = world->count + 1;
    for (const char *c = path; *c; c++) {
        node->hash = stk_key(node->hash, (uint8_t)*c);
    }
    memmove(world->nodes + at + 1, world->nodes + at, (world->count - at) * sizeof *world->nodes);
    world->nodes[at] = node;
    world->count++;
    *node_out = node;
    return 0;
}

/* A new directory with its parents; -EEXIST gives the node that is there. */
static int put(struct world *world, const char *path, struct node **node_out)
{
    char name[PATH_MAX];
    int status = 0;

    if (!canonical(path, name)) {
        return -ENAMETOOLONG;
    }
    for (char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        status = insert(world, name, node_out);
        *slash = '/';
        if (status < 0 && (status != -EEXIST || (*node_out)->kind != STK_ENTRY_DIRECTORY)) {
            return status == -EEXIST ? -ENOTDIR : status;
        }
    }
    return insert(world, name, node_out);
}

/* Walks a path part by part and follows its links. */
static int resolve(struct world *world, const char *path, struct node **node_out)
{
    char rest[PATH_MAX], next[PATH_MAX], at[PATH_MAX] = "";
    struct node *node = find(world, "");
    int links = 0;
    char *part;

    if (snprintf(rest, sizeof rest, "%s", path) >= PATH_MAX) {
        return -ENAMETOOLONG;
    }
    for (part = rest; *part;) {
        size_t bytes = strcspn(part, "/"), used = strlen(at);
        char *slash;

        if (bytes == 0 || (bytes == 1 && part[0] == '.')) {
            part += bytes + (part[bytes] == '/');
            continue;
        }
        if (node->kind != STK_ENTRY_DIRECTORY) {
            return -ENOTDIR;
        }
        if (bytes == 2 && part[0] == '.' && part[1] == '.') {
            slash = strrchr(at, '/');
            *(slash ? slash : at) = '\0';
        } else if (used + bytes + 2 > PATH_MAX) {
            return -ENAMETOOLONG;
        } else {
            at[used] = '/';
            memcpy(at + used + (used > 0), part, bytes);
            at[used + (used > 0) + bytes] = '\0';
        }
        part += bytes;
        node = find(world, at);
        if (!node) {
            return -ENOENT;
        }
        if (node->target) {
            if (++links > LINKS_MAX) {
                return -ELOOP;
            }
            if (snprintf(next, sizeof next, "%s%s", node->target, part) >= PATH_MAX) {
                return -ENAMETOOLONG;
            }
            memcpy(rest, next, sizeof rest);
            part = rest;
            slash = strrchr(at, '/');
            *(slash && rest[0] != '/' ? slash : at) = '\0';
            node = find(world, at);
        }
    }
    *node_out = node;
    return 0;
}

static bool denied(struct world *world, const struct node *node)
{
    bool found = false;

    for (uint32_t i = 0; i < world->rule_count; i++) {
        found = found || (world->rules[i].given.fault == STK_FAULT_DENIED &&
                          matches(&world->rules[i], node));
    }
    return found;
}

static bool touches(const struct rule *rule, const struct node *node, uint64_t offset,
                    uint64_t bytes)
{
    return matches(rule, node) && offset + bytes > rule->given.offset;
}

/* word: tells rules apart, and the tries of one read. */
static bool hits(struct world *world, struct rule *rule, const struct node *node, uint64_t offset,
                 uint64_t word)
{
    uint64_t key = stk_key(stk_key(stk_key(world->seed, node->hash), offset), word);

    if ((rule->given.every > 1 && key % rule->given.every != 0) ||
        (rule->given.times > 0 && rule->hits >= rule->given.times)) {
        return false;
    }
    rule->hits++;
    return true;
}

static uint64_t end_of(struct world *world, const struct node *node)
{
    uint64_t end = node->bytes;

    for (uint32_t i = 0; i < world->rule_count; i++) {
        const struct rule *rule = &world->rules[i];

        if (rule->given.fault == STK_FAULT_TRUNCATED && matches(rule, node)) {
            end = stk_min(end, rule->given.offset);
        }
    }
    return end;
}

/* One read, with all its pieces. */
static struct outcome meet(struct world *world, const struct node *node, uint64_t offset,
                           uint64_t bytes)
{
    uint64_t end = end_of(world, node), done = 0;
    uint64_t want = offset < end ? stk_min(bytes, end - offset) : 0;
    struct outcome outcome = {0};

    for (int piece = 0; done < want; piece++) {
        uint64_t at = offset + done, step = want - done;
        uint32_t *tries = &world->tries[stk_key(node->hash, at) % TRIES_COUNT];
        uint64_t word = stk_key(1, (*tries)++);

        for (uint32_t i = 0; i < world->rule_count; i++) {
            struct rule *rule = &world->rules[i];
            uint32_t fault = rule->given.fault;

            if (fault == STK_FAULT_COLD || fault == STK_FAULT_TRUNCATED ||
                fault == STK_FAULT_DENIED || (fault == STK_FAULT_SHORT && step == 1) ||
                !touches(rule, node, at, step) || !hits(world, rule, node, at, word + i)) {
                continue;
            }
            if (fault == STK_FAULT_SHORT && piece < PIECES_MAX) {
                step = 1 + stk_key(word, at) % (step - 1);
            } else if (fault == STK_FAULT_SLOW && outcome.latency_ns != NEVER) {
                outcome.latency_ns += rule->given.latency_ns;
            } else if (fault == STK_FAULT_HANG) {
                outcome.latency_ns = NEVER;
            } else if (fault == STK_FAULT_EIO) {
                outcome.result = -EIO;
            }
        }
        if (outcome.result < 0) {
            return outcome;
        }
        done += step;
    }
    outcome.result = (int64_t)done;
    return outcome;
}

/* Copies what a read gives, with the bytes around it where it would be a direct one. */
static void fill(struct world *world, struct stk_read *read)
{
    const struct node *node = (const struct node *)(void *)read->file;
    bool direct =
        world->options.direct == STOKER_DIRECT_ALWAYS ||
        (world->options.direct == STOKER_DIRECT_AUTO && node->bytes >= STK_DIRECT_BYTES_MIN);
    uint64_t bytes = (uint64_t)read->result;

    read->skip = direct ? (uint32_t)(read->offset & (STK_IO_ALIGN - 1)) : 0;
    STK_ASSERT(read->capacity >= read->skip + bytes);
    if (bytes > 0) {
        memcpy(read->buffer, node->data + read->offset - read->skip, read->skip + bytes);
    }
}

/* Finishes what is ready or past its deadline, in the order of submission. */
static void settle(struct world *world, struct world_queue *queue)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < queue->count; i++) {
        struct flight flight = queue->flights[i];
        struct stk_read *read = flight.read;

        read->lost = false;
        read->skip = 0;
        read->result = flight.result;
        if (flight.ready_ns <= world->now_ns) {
            if (flight.result > 0) {
                fill(world, read);
            }
        } else if (flight.deadline_ns <= world->now_ns) {
            read->result = STOKER_ERROR_TIMEOUT;
            read->lost = true;
            world->lost_bytes += read->capacity;
        } else {
            queue->flights[kept++] = flight;
            continue;
        }
        stk_reads_add(&queue->finished, read);
    }
    queue->count = kept;
}
