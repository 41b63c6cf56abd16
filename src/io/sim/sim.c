/* A simulated file system: files in memory, faults by rules, a clock that only waiting advances. */
#include "io/clock.h"
#include "io/sim/sim_private.h"

#include "base/mem.h"
#include "base/random.h"
#include "io/listing.h"
#include "io/read_list.h"
#include "io/write.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define PIECES_MAX 64 /* of one read with repeated SHORT faults */
#define TICKS_MS 1000000ull
#define NEVER UINT64_MAX

struct pending_read {
    struct stk_read *read;
    int64_t result;
    uint64_t ready_ns, deadline_ns;
};

struct sim_queue {
    struct pending_read *flights; /* in the order of submission */
    uint32_t count, depth, live;
    bool woken;
    struct stk_read_list finished;
};

struct outcome {
    int64_t result;      /* bytes or -errno */
    uint64_t latency_ns; /* NEVER: hangs */
};

static bool canonical(const char *path, char *out);
static int put(struct stk_sim *sim, const char *path, uint32_t kind,
               struct stk_sim_node **node_out);
static int find(struct stk_sim *sim, const char *path, struct stk_sim_node **node_out);
static uint64_t next_try(struct stk_sim *sim, const struct stk_sim_node *node, uint64_t offset);
static bool touches(const struct stk_sim_rule_state *rule, const struct stk_sim_node *node,
                    uint64_t offset, uint64_t bytes);
static bool hits(struct stk_sim *sim, struct stk_sim_rule_state *rule,
                 const struct stk_sim_node *node, uint64_t offset, uint64_t word);
static uint64_t end_of(struct stk_sim *sim, const struct stk_sim_node *node);
static struct outcome apply_rule(struct stk_sim *sim, const struct stk_sim_node *node,
                                 uint64_t offset, uint64_t bytes);
static void fill(struct stk_sim *sim, struct stk_read *read);
static void finish_read(struct stk_sim *sim, struct sim_queue *queue);

static struct stk_sim_node *node_of(struct stk_file *file)
{
    return (struct stk_sim_node *)(void *)file;
}

static bool matches(const struct stk_sim_rule_state *rule, const struct stk_sim_node *node)
{
    return !rule->path || stk_sim_node_is_at(node, rule->path);
}

static void stat_fill(const struct stk_sim_node *node, struct stk_stat *stat)
{
    *stat = (struct stk_stat){.bytes = node->bytes,
                              .mtime_ns = node->mtime_ns,
                              .device = 1,
                              .inode = node->inode,
                              .kind = node->kind};
}

int stk_sim_add(struct stk_io *io, const char *path, const void *data, size_t bytes)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct stk_sim_node *node = NULL;
    uint8_t *copy = data ? stk_alloc(bytes, 1) : NULL;
    int status;

    if (data && !copy) {
        return -ENOMEM;
    }
    if (copy && bytes > 0) {
        memcpy(copy, data, bytes);
    }
    pthread_mutex_lock(&sim->lock);
    status = put(sim, path, data ? STK_ENTRY_FILE : STK_ENTRY_DIRECTORY, &node);
    if (status == -EEXIST && !data && node->kind == STK_ENTRY_DIRECTORY) {
        status = 0;
    } else if (status == 0 && data) {
        node->data = copy;
        node->bytes = node->bytes_synced = node->capacity = bytes;
        copy = NULL;
    }
    pthread_mutex_unlock(&sim->lock);
    stk_free(copy);
    return status;
}

int stk_sim_add_link(struct stk_io *io, const char *path, const char *target)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct stk_sim_node *node = NULL;
    char *copy = stk_strdup(target);
    int status;

    if (!copy) {
        return -ENOMEM;
    }
    pthread_mutex_lock(&sim->lock);
    status = put(sim, path, STK_ENTRY_OTHER, &node);
    if (status == 0) {
        node->target = copy;
        copy = NULL;
    }
    pthread_mutex_unlock(&sim->lock);
    stk_free(copy);
    return status;
}

int stk_sim_add_rule(struct stk_io *io, const struct stk_sim_rule *rule)
{
    struct stk_sim *sim = stk_sim_of(io);
    char name[PATH_MAX];
    struct stk_sim_rule_state *mine;
    int status = 0;

    pthread_mutex_lock(&sim->lock);
    mine = &sim->rules[stk_min(sim->rule_count, STK_SIM_RULES_MAX - 1)];
    if (sim->rule_count == STK_SIM_RULES_MAX) {
        status = -ENOSPC;
    } else {
        *mine = (struct stk_sim_rule_state){.rule = *rule};
        if (rule->path) {
            mine->path = canonical(rule->path, name) ? stk_strdup(name) : NULL;
            status = mine->path ? 0 : -ENOMEM;
        }
        sim->rule_count += status == 0;
    }
    pthread_mutex_unlock(&sim->lock);
    return status;
}

int stk_sim_set_rule(struct stk_io *io, const struct stk_sim_rule *rule)
{
    struct stk_sim *sim = stk_sim_of(io);

    pthread_mutex_lock(&sim->lock);
    while (sim->rule_count > 0) {
        stk_free(sim->rules[--sim->rule_count].path);
    }
    pthread_mutex_unlock(&sim->lock);
    return rule ? stk_sim_add_rule(io, rule) : 0;
}

static int open_file(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct stk_sim_node *node = NULL;
    int status;

    pthread_mutex_lock(&sim->lock);
    status = find(sim, path, &node);
    if (status == 0 && stk_sim_is_denied(sim, node)) {
        status = -EACCES;
    } else if (status == 0 && node->kind == STK_ENTRY_DIRECTORY) {
        status = -EISDIR;
    } else if (status == 0) {
        stk_sim_node_retain(node);
    }
    pthread_mutex_unlock(&sim->lock);
    if (status < 0) {
        return stk_sim_fail(error, -status, "cannot open the file", path);
    }
    *file_out = &node->file;
    return 0;
}

static void close_file(struct stk_file *file)
{
    struct stk_sim *sim = node_of(file)->sim;

    pthread_mutex_lock(&sim->lock);
    stk_sim_node_release(sim, node_of(file));
    pthread_mutex_unlock(&sim->lock);
}

static int stat_file(struct stk_file *file, struct stk_stat *stat_out, struct stoker_error *error)
{
    struct stk_sim *sim = node_of(file)->sim;
    int status;

    pthread_mutex_lock(&sim->lock);
    status = stk_sim_count_call(sim);
    if (status == 0) {
        stat_fill(node_of(file), stat_out);
    }
    pthread_mutex_unlock(&sim->lock);
    return status < 0
               ? stk_sim_fail(error, -status, "cannot get the size of a file", "an open file")
               : 0;
}

static int stat_path(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct stk_sim_node *node = NULL;
    int status;

    pthread_mutex_lock(&sim->lock);
    status = find(sim, path, &node);
    if (status == 0 && stk_sim_has_fault(sim, node, STK_SIM_FAULT_STAT)) {
        status = -EIO;
    }
    if (status == 0) {
        stat_fill(node, stat_out);
    }
    pthread_mutex_unlock(&sim->lock);
    return status < 0 ? stk_sim_fail(error, -status, "cannot find the path", path) : 0;
}

static int list_node(struct stk_sim *sim, struct stk_sim_node *node,
                     struct stk_listing_builder *builder)
{
    char target[PATH_MAX];
    int status = 0;

    for (uint64_t i = 0; i < node->names.count && status == 0; i++) {
        struct stk_sim_node *real = node->names.items[i].node;
        struct stk_entry entry = {.name = node->names.items[i].text, .kind = real->kind};

        if (real->target) {
            if (!stk_sim_node_path_below(node, entry.name, target) ||
                stk_sim_node_resolve(sim, target, &real) < 0) {
                real = NULL;
            }
            entry.kind = real ? real->kind : STK_ENTRY_OTHER;
            entry.link = true;
        }
        if (entry.kind == STK_ENTRY_DIRECTORY) {
            entry.device = 1;
            entry.inode = real->inode;
        }
        status = stk_listing_add(builder, &entry);
    }
    return status;
}

static int list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct stk_listing_builder builder = {0};
    struct stk_sim_node *node = NULL;
    int status;

    pthread_mutex_lock(&sim->lock);
    status = find(sim, path, &node);
    if (status == 0 && node->kind != STK_ENTRY_DIRECTORY) {
        status = -ENOTDIR;
    } else if (status == 0 && stk_sim_is_denied(sim, node)) {
        status = -EACCES;
    } else if (status == 0) {
        status = list_node(sim, node, &builder);
    }
    pthread_mutex_unlock(&sim->lock);
    if (status == 0) {
        status = stk_listing_build(&builder, listing_out);
    }
    stk_listing_builder_deinit(&builder);
    return status < 0 ? stk_sim_fail(error, -status, "cannot list the folder", path) : 0;
}

static int64_t read_now(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    const struct stk_sim_node *node = node_of(file);
    struct stk_sim *sim = node->sim;
    bool cold = false, failed;
    uint64_t end, count = 0;

    pthread_mutex_lock(&sim->lock);
    failed = stk_sim_count_call(sim) < 0;
    end = end_of(sim, node);
    if (offset < end && !failed) {
        count = stk_min(bytes, end - offset);
    }
    for (uint32_t i = 0; i < sim->rule_count && count > 0; i++) {
        struct stk_sim_rule_state *rule = &sim->rules[i];
        uint32_t fault = rule->rule.fault;

        if (!touches(rule, node, offset, count)) {
            continue;
        }
        cold = cold || fault == STK_SIM_FAULT_EIO || fault == STK_SIM_FAULT_SLOW ||
               fault == STK_SIM_FAULT_HANG ||
               (fault == STK_SIM_FAULT_COLD && hits(sim, rule, node, offset, i));
        if (fault == STK_SIM_FAULT_SHORT && count > 1 && hits(sim, rule, node, offset, i)) {
            count = 1 + stk_random_key(node->hash, offset) % (count - 1);
        }
    }
    if (!cold && count > 0) {
        memcpy(buffer, node->data + offset, count);
    }
    pthread_mutex_unlock(&sim->lock);
    return failed ? -EIO : cold ? -EAGAIN : (int64_t)count;
}

static int64_t read_wait(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    const struct stk_sim_node *node = node_of(file);
    struct stk_sim *sim = node->sim;
    uint64_t timeout_ns = sim->options.read_timeout_ms * TICKS_MS;
    struct outcome outcome;

    pthread_mutex_lock(&sim->lock);
    outcome = apply_rule(sim, node, offset, bytes);
    sim->now_ns += stk_min(outcome.latency_ns, timeout_ns);
    if (outcome.latency_ns > timeout_ns) {
        outcome.result = STOKER_ERROR_TIMEOUT;
    } else if (outcome.result > 0) {
        memcpy(buffer, node->data + offset, (size_t)outcome.result);
    }
    pthread_mutex_unlock(&sim->lock);
    return outcome.result;
}

static int queue_open(struct stk_io *io, struct stk_queue **queue_out, struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct sim_queue *queue = stk_alloc(1, sizeof *queue);
    int status = -ENOMEM;

    if (queue) {
        queue->depth = sim->options.depth;
        queue->flights = stk_alloc(queue->depth, sizeof *queue->flights);
    }
    if (queue && queue->flights) {
        pthread_mutex_lock(&sim->lock);
        status = stk_sim_count_call(sim);
        pthread_mutex_unlock(&sim->lock);
    }
    if (status < 0) {
        stk_free(queue ? queue->flights : NULL);
        stk_free(queue);
        return stk_sim_fail(error, -status, "cannot open a queue of reads", "world");
    }
    *queue_out = (struct stk_queue *)(void *)queue;
    return 0;
}

static void queue_close(struct stk_io *io, struct stk_queue *opaque)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct sim_queue *queue = (struct sim_queue *)(void *)opaque;

    pthread_mutex_lock(&sim->lock);
    for (uint32_t i = 0; i < queue->count; i++) {
        struct pending_read *pending_read = &queue->flights[i];

        pending_read->read->result = STOKER_ERROR_CLOSED;
        pending_read->read->leaked =
            pending_read->ready_ns > sim->now_ns + STK_CLOSE_QUIET_MS * TICKS_MS;
        sim->leaked_bytes += pending_read->read->leaked ? pending_read->read->capacity : 0;
    }
    (void)stk_read_list_take(&queue->finished);
    pthread_mutex_unlock(&sim->lock);
    stk_free(queue->flights);
    stk_free(queue);
}

static int submit(struct stk_io *io, struct stk_queue *opaque, struct stk_read *reads)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct sim_queue *queue = (struct sim_queue *)(void *)opaque;
    int taken = 0;

    pthread_mutex_lock(&sim->lock);
    for (struct stk_read *read = reads; read && queue->live < queue->depth; read = read->next) {
        const struct stk_sim_node *node = node_of(read->file);
        struct outcome outcome = apply_rule(sim, node, read->offset, read->bytes);

        queue->flights[queue->count++] = (struct pending_read){
            .read = read,
            .result = outcome.result,
            .ready_ns = outcome.latency_ns == NEVER ? NEVER : sim->now_ns + outcome.latency_ns,
            .deadline_ns = sim->now_ns + sim->options.read_timeout_ms * TICKS_MS,
        };
        queue->live++;
        taken++;
    }
    pthread_mutex_unlock(&sim->lock);
    return taken;
}

static struct stk_read *reap(struct stk_io *io, struct stk_queue *opaque, uint32_t timeout_ms)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct sim_queue *queue = (struct sim_queue *)(void *)opaque;
    struct timespec until = stk_clock_timespec(stk_clock_ns() + timeout_ms * TICKS_MS);
    uint64_t until_ns;
    struct stk_read *list;

    pthread_mutex_lock(&sim->lock);
    until_ns = sim->now_ns + timeout_ms * TICKS_MS;
    for (;;) {
        uint64_t next_ns = until_ns;

        finish_read(sim, queue);
        if (queue->finished.first || queue->woken || sim->now_ns >= until_ns) {
            break;
        }
        for (uint32_t i = 0; i < queue->count; i++) {
            next_ns = stk_min(next_ns, queue->flights[i].ready_ns);
            next_ns = stk_min(next_ns, queue->flights[i].deadline_ns);
        }
        if (queue->count == 0 &&
            pthread_cond_clockwait(&sim->wake, &sim->lock, CLOCK_MONOTONIC, &until) == 0) {
            continue;
        }
        sim->now_ns = stk_max(sim->now_ns, next_ns);
    }
    queue->woken = false;
    list = stk_read_list_take(&queue->finished);
    for (struct stk_read *read = list; read; read = read->next) {
        queue->live--;
    }
    pthread_mutex_unlock(&sim->lock);
    return list;
}

static void wake(struct stk_io *io, struct stk_queue *opaque)
{
    struct stk_sim *sim = stk_sim_of(io);

    pthread_mutex_lock(&sim->lock);
    ((struct sim_queue *)(void *)opaque)->woken = true;
    pthread_cond_broadcast(&sim->wake);
    pthread_mutex_unlock(&sim->lock);
}

static uint64_t clock_ns(struct stk_io *io)
{
    return atomic_load_explicit(&stk_sim_of(io)->now_ns, memory_order_relaxed);
}

static const char *backend(struct stk_io *io, const char **reason_out)
{
    (void)io;
    if (reason_out) {
        *reason_out = "a simulated file system";
    }
    return "world";
}

static uint64_t leaked_bytes(struct stk_io *io)
{
    return atomic_load_explicit(&stk_sim_of(io)->leaked_bytes, memory_order_relaxed);
}

static void sim_close(struct stk_io *io)
{
    struct stk_sim *sim = stk_sim_of(io);

    stk_sim_nodes_deinit(sim);
    for (uint32_t i = 0; i < sim->rule_count; i++) {
        stk_free(sim->rules[i].path);
    }
    pthread_cond_destroy(&sim->wake);
    pthread_mutex_destroy(&sim->lock);
    stk_free(sim);
}

static const struct stk_file_ops file_ops = {
    .close = close_file, .stat = stat_file, .read_now = read_now, .read_wait = read_wait};

static const struct stk_io_table sim_table = {
    .open_file = open_file,
    .stat_path = stat_path,
    .list = list,
    .queue_open = queue_open,
    .queue_close = queue_close,
    .submit = submit,
    .reap = reap,
    .wake = wake,
    .clock_ns = clock_ns,
    .backend = backend,
    .leaked_bytes = leaked_bytes,
    .map_file = stk_sim_map,
    .unmap = stk_sim_unmap,
    .map_prefetch = stk_sim_map_prefetch,
    .thread_disk_reads = stk_sim_thread_disk_reads,
    .close = sim_close,
    .write = &stk_sim_write_table,
};

struct stk_file_ops *stk_sim_file_ops(struct stk_io *io)
{
    return &stk_sim_of(io)->file_ops;
}

int stk_sim_open(struct stk_io **io_out, uint64_t seed, const struct stk_io_options *options,
                 struct stoker_error *error)
{
    struct stk_sim *sim = stk_alloc(1, sizeof *sim);

    if (!sim) {
        return stk_sim_fail(error, ENOMEM, "cannot open a world", "world");
    }
    pthread_mutex_init(&sim->lock, NULL);
    pthread_cond_init(&sim->wake, NULL);
    sim->io.table = &sim_table;
    sim->file_ops = file_ops;
    sim->seed = seed;
    sim->now_ns = STK_SIM_CLOCK_START;
    sim->options = options ? *options : (struct stk_io_options){0};
    sim->options.depth = sim->options.depth ? sim->options.depth : STK_DEPTH_DEFAULT;
    sim->options.read_timeout_ms =
        sim->options.read_timeout_ms ? sim->options.read_timeout_ms : STK_TIMEOUT_DEFAULT_MS;
    sim->root = stk_sim_node_new(sim, STK_ENTRY_DIRECTORY);
    if (!sim->root) {
        sim_close(&sim->io);
        return stk_sim_fail(error, ENOMEM, "cannot open a world", "world");
    }
    stk_sim_node_retain(sim->root);
    *io_out = &sim->io;
    return 0;
}

/* Removes empty and "." components, into out[PATH_MAX]. Returns false if it is too long. */
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

/* Counts a call and resolves its path. */
static int find(struct stk_sim *sim, const char *path, struct stk_sim_node **node_out)
{
    int status = stk_sim_count_call(sim);

    return status < 0 ? status : stk_sim_node_resolve(sim, path, node_out);
}

/* Creates a node and its parents, all durable. Returns -EEXIST and the existing node if there is
 * one. */
static int put(struct stk_sim *sim, const char *path, uint32_t kind, struct stk_sim_node **node_out)
{
    char name[PATH_MAX];
    struct stk_sim_node *directory = sim->root, *node;
    char *part = name;
    int status;

    if (!canonical(path, name)) {
        return -ENAMETOOLONG;
    }
    *node_out = sim->root;
    for (char *slash = name; *part; part = slash) {
        slash = part + strcspn(part, "/");
        if (*slash) {
            *slash++ = '\0';
        }
        if (directory->kind != STK_ENTRY_DIRECTORY) {
            return -ENOTDIR;
        }
        node = stk_sim_node_child(directory, part);
        *node_out = node;
        if (!node) {
            node = stk_sim_node_new(sim, *slash ? STK_ENTRY_DIRECTORY : kind);
            status = node ? stk_sim_node_link(sim, directory, part, node) : -ENOMEM;
            if (status < 0) {
                stk_sim_node_release(sim, node);
                return status;
            }
            status = stk_sim_node_sync_name(sim, directory, part);
            if (status < 0) {
                stk_sim_node_unlink(sim, directory, part);
                return status;
            }
        }
        directory = node;
    }
    if (*node_out) {
        return -EEXIST;
    }
    *node_out = directory;
    return 0;
}

bool stk_sim_has_fault(struct stk_sim *sim, const struct stk_sim_node *node, uint32_t fault)
{
    bool found = false;

    for (uint32_t i = 0; i < sim->rule_count; i++) {
        found = found || (sim->rules[i].rule.fault == fault && matches(&sim->rules[i], node));
    }
    return found;
}

bool stk_sim_is_denied(struct stk_sim *sim, const struct stk_sim_node *node)
{
    return stk_sim_has_fault(sim, node, STK_SIM_FAULT_DENIED);
}

int stk_sim_fail(struct stoker_error *error, int number, const char *what, const char *path)
{
    return stk_fail_errno(error, number, what,
                          "this is a simulated file system: see the rules of the test", "'%s'",
                          path);
}

bool stk_sim_is_off(const struct stk_sim *sim)
{
    return sim->cut_at > 0 && sim->calls >= sim->cut_at;
}

int stk_sim_count_call(struct stk_sim *sim)
{
    uint64_t call = ++sim->calls;

    return call == sim->fail_at || stk_sim_is_off(sim) ? -EIO : 0;
}

const struct stk_sim_rule *stk_sim_match_rule(struct stk_sim *sim, uint32_t fault,
                                              const struct stk_sim_node *node, uint64_t offset,
                                              uint64_t bytes)
{
    uint64_t word = next_try(sim, node, offset);

    for (uint32_t i = 0; i < sim->rule_count; i++) {
        struct stk_sim_rule_state *rule = &sim->rules[i];

        if (rule->rule.fault == fault && touches(rule, node, offset, bytes) &&
            hits(sim, rule, node, offset, word + i)) {
            return &rule->rule;
        }
    }
    return NULL;
}

static bool touches(const struct stk_sim_rule_state *rule, const struct stk_sim_node *node,
                    uint64_t offset, uint64_t bytes)
{
    return matches(rule, node) && offset + bytes > rule->rule.offset;
}

/* A random word for each attempt at the bytes at offset. */
static uint64_t next_try(struct stk_sim *sim, const struct stk_sim_node *node, uint64_t offset)
{
    return stk_random_key(1,
                          sim->tries[stk_random_key(node->hash, offset) % STK_SIM_TRIES_COUNT]++);
}

/* word: differs between rules, and between attempts of one read. */
static bool hits(struct stk_sim *sim, struct stk_sim_rule_state *rule,
                 const struct stk_sim_node *node, uint64_t offset, uint64_t word)
{
    uint64_t key =
        stk_random_key(stk_random_key(stk_random_key(sim->seed, node->hash), offset), word);

    if ((rule->rule.every > 1 && key % rule->rule.every != 0) ||
        (rule->rule.times > 0 && rule->hits >= rule->rule.times)) {
        return false;
    }
    rule->hits++;
    return true;
}

static uint64_t end_of(struct stk_sim *sim, const struct stk_sim_node *node)
{
    uint64_t end = node->bytes;

    for (uint32_t i = 0; i < sim->rule_count; i++) {
        const struct stk_sim_rule_state *rule = &sim->rules[i];

        if (rule->rule.fault == STK_SIM_FAULT_TRUNCATED && matches(rule, node)) {
            end = stk_min(end, rule->rule.offset);
        }
    }
    return end;
}

/* Simulates one read with all its pieces. */
static struct outcome apply_rule(struct stk_sim *sim, const struct stk_sim_node *node,
                                 uint64_t offset, uint64_t bytes)
{
    uint64_t end = end_of(sim, node), done = 0;
    uint64_t want = offset < end ? stk_min(bytes, end - offset) : 0;
    struct outcome outcome = {.result = stk_sim_count_call(sim)};

    if (outcome.result < 0) {
        return outcome;
    }
    for (int piece = 0; done < want; piece++) {
        uint64_t at = offset + done, step = want - done;
        uint64_t word = next_try(sim, node, at);

        for (uint32_t i = 0; i < sim->rule_count; i++) {
            struct stk_sim_rule_state *rule = &sim->rules[i];
            uint32_t fault = rule->rule.fault;

            if (fault == STK_SIM_FAULT_COLD || fault == STK_SIM_FAULT_TRUNCATED ||
                fault >= STK_SIM_FAULT_DENIED || (fault == STK_SIM_FAULT_SHORT && step == 1) ||
                !touches(rule, node, at, step) || !hits(sim, rule, node, at, word + i)) {
                continue;
            }
            if (fault == STK_SIM_FAULT_SHORT && piece < PIECES_MAX) {
                step = 1 + stk_random_key(word, at) % (step - 1);
            } else if (fault == STK_SIM_FAULT_SLOW && outcome.latency_ns != NEVER) {
                outcome.latency_ns += rule->rule.latency_ns;
            } else if (fault == STK_SIM_FAULT_HANG) {
                outcome.latency_ns = NEVER;
            } else if (fault == STK_SIM_FAULT_EIO) {
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

/* Copies the bytes of a read; with O_DIRECT also those before it in its block. */
static void fill(struct stk_sim *sim, struct stk_read *read)
{
    const struct stk_sim_node *node = node_of(read->file);
    uint64_t left = node->bytes > read->offset ? node->bytes - read->offset : 0;
    bool direct =
        !read->keep_cached &&
        (sim->options.direct == STOKER_DIRECT_ALWAYS ||
         (sim->options.direct == STOKER_DIRECT_AUTO && node->bytes >= STK_DIRECT_BYTES_MIN));
    uint64_t bytes =
        stk_min((uint64_t)read->result, left); /* it may have been truncated meanwhile */

    read->result = (int64_t)bytes;
    read->skip = direct ? (uint32_t)(read->offset & (STK_IO_ALIGN - 1)) : 0;
    STK_ASSERT(read->capacity >= read->skip + bytes);
    if (bytes > 0) {
        memcpy(read->buffer, node->data + read->offset - read->skip, read->skip + bytes);
    }
}

/* Finishes the reads that are ready or past their deadline, in the order of submission. */
static void finish_read(struct stk_sim *sim, struct sim_queue *queue)
{
    uint32_t remaining = 0;

    for (uint32_t i = 0; i < queue->count; i++) {
        struct pending_read pending_read = queue->flights[i];
        struct stk_read *read = pending_read.read;

        read->leaked = false;
        read->skip = 0;
        read->result = pending_read.result;
        if (pending_read.ready_ns <= sim->now_ns) {
            if (pending_read.result > 0) {
                fill(sim, read);
            }
        } else if (pending_read.deadline_ns <= sim->now_ns) {
            read->result = STOKER_ERROR_TIMEOUT;
            read->leaked = true;
            sim->leaked_bytes += read->capacity;
        } else {
            queue->flights[remaining++] = pending_read;
            continue;
        }
        stk_read_list_add(&queue->finished, read);
    }
    queue->count = remaining;
}
