/* Writes in the simulated file system: implements io/write.h, with faults and power cuts. */
#include "io/sim/sim_private.h"

#include "base/mem.h"
#include "io/write.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct sim_output {
    struct stk_sim_node *node;
    int failure; /* 0, or the -errno that each further call returns */
    char path[]; /* for errors */
};

struct sim_lock {
    struct stk_file_lock base; /* first */
    struct stk_sim_node *node;
    char path[];
};

/* The last component of a path, and its directory. */
struct place {
    struct stk_sim_node *parent, *node; /* node: NULL if no node has the name */
    char name[NAME_MAX + 1];
    bool folder; /* the path ends in '/' */
};

enum open_mode { OPEN_TRUNCATE, OPEN_EXCLUSIVE, OPEN_LINES };

static int find(struct stk_sim *sim, const char *path, struct place *place);
static int open_node(struct stk_sim *sim, const char *path, enum open_mode mode,
                     struct stk_sim_node **node_out);
static int add_bytes(struct stk_sim *sim, struct stk_sim_node *node, const void *data,
                     size_t bytes);
static int put_bytes(struct stk_sim *sim, struct stk_sim_node *node, uint64_t offset,
                     const void *data, size_t bytes);
static int lock_node(struct stk_sim *sim, const char *path, struct stk_sim_node **node_out);
static int rename_node(struct stk_sim *sim, const char *from, const char *to, bool exclusive);
static int rename_allowed(const struct place *from, const struct place *to, bool exclusive);
static int link_node(struct stk_sim *sim, const char *from, const char *to);
static int make_node(struct stk_sim *sim, const char *path, bool exclusive);
static int remove_node(struct stk_sim *sim, const char *path);

static struct sim_output *out_of(struct stk_output *out)
{
    return (struct sim_output *)(void *)out;
}

static int open_sim_output(struct stk_io *io, const char *path, enum open_mode mode,
                           struct stk_output **out_out, struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    size_t path_bytes = strlen(path) + 1;
    struct sim_output *out = stk_alloc(1, sizeof *out + path_bytes);
    int status = -ENOMEM;

    if (out) {
        memcpy(out->path, path, path_bytes);
        pthread_mutex_lock(&sim->lock);
        status = open_node(sim, path, mode, &out->node);
        pthread_mutex_unlock(&sim->lock);
    }
    if (status < 0) {
        stk_free(out);
        return stk_sim_fail(error, -status, "cannot create the file", path);
    }
    *out_out = (struct stk_output *)(void *)out;
    return 0;
}

static int create(struct stk_io *io, const char *path, bool exclusive, struct stk_output **out_out,
                  struct stoker_error *error)
{
    return open_sim_output(io, path, exclusive ? OPEN_EXCLUSIVE : OPEN_TRUNCATE, out_out, error);
}

static int append(struct stk_io *io, const char *path, struct stk_output **out_out,
                  struct stoker_error *error)
{
    return open_sim_output(io, path, OPEN_LINES, out_out, error);
}

static int write_output(struct stk_io *io, struct stk_output *opaque, const void *data,
                        size_t bytes, struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct sim_output *out = out_of(opaque);
    int status;

    pthread_mutex_lock(&sim->lock);
    status = stk_sim_count_call(sim);
    if (out->failure == 0) {
        out->failure = status < 0 ? status : add_bytes(sim, out->node, data, bytes);
    }
    pthread_mutex_unlock(&sim->lock);
    return out->failure < 0
               ? stk_sim_fail(error, -out->failure, "cannot write to the file", out->path)
               : 0;
}

static int write_at(struct stk_io *io, struct stk_output *opaque, uint64_t offset, const void *data,
                    size_t bytes, struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct sim_output *out = out_of(opaque);
    int status;

    pthread_mutex_lock(&sim->lock);
    status = stk_sim_count_call(sim);
    if (out->failure == 0) {
        out->failure = status < 0 ? status : put_bytes(sim, out->node, offset, data, bytes);
    }
    status = out->failure;
    pthread_mutex_unlock(&sim->lock);
    return status < 0 ? stk_sim_fail(error, -status, "cannot write to the file", out->path) : 0;
}

static int truncate_output(struct stk_io *io, struct stk_output *opaque, uint64_t bytes,
                           struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct sim_output *out = out_of(opaque);
    int status;

    pthread_mutex_lock(&sim->lock);
    status = stk_sim_count_call(sim);
    STK_ASSERT(bytes <= out->node->bytes);
    if (out->failure == 0 && status == 0) {
        out->node->bytes = bytes;
        out->node->bytes_synced = stk_min(out->node->bytes_synced, bytes);
    }
    out->failure = out->failure < 0 ? out->failure : status;
    pthread_mutex_unlock(&sim->lock);
    return out->failure < 0 ? stk_sim_fail(error, -out->failure, "cannot cut the file", out->path)
                            : 0;
}

static int sync_output(struct stk_io *io, struct stk_output *opaque, struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct sim_output *out = out_of(opaque);
    int status;

    pthread_mutex_lock(&sim->lock);
    status = stk_sim_count_call(sim);
    if (status == 0 &&
        stk_sim_match_rule(sim, STK_SIM_FAULT_SYNC, out->node, out->node->bytes, 1)) {
        status = -EIO;
    }
    out->failure = out->failure < 0 ? out->failure : status;
    if (out->failure == 0) {
        out->node->bytes_synced = out->node->bytes;
    }
    pthread_mutex_unlock(&sim->lock);
    return out->failure < 0
               ? stk_sim_fail(error, -out->failure, "cannot bring the file to the disk", out->path)
               : 0;
}

static void close_output(struct stk_io *io, struct stk_output *opaque)
{
    struct stk_sim *sim = stk_sim_of(io);

    pthread_mutex_lock(&sim->lock);
    stk_sim_node_release(sim, out_of(opaque)->node);
    pthread_mutex_unlock(&sim->lock);
    stk_free(out_of(opaque));
}

static int rename_path(struct stk_io *io, const char *from, const char *to, bool exclusive,
                       struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    int status;

    pthread_mutex_lock(&sim->lock);
    status = rename_node(sim, from, to, exclusive);
    pthread_mutex_unlock(&sim->lock);
    return status < 0 ? stk_sim_fail(error, -status, "cannot rename", from) : 0;
}

static int link_path(struct stk_io *io, const char *from, const char *to,
                     struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    int status;

    pthread_mutex_lock(&sim->lock);
    status = link_node(sim, from, to);
    pthread_mutex_unlock(&sim->lock);
    return status < 0 ? stk_sim_fail(error, -status, "cannot give a second name", from) : 0;
}

static int make_directory(struct stk_io *io, const char *path, bool exclusive,
                          struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    int status;

    pthread_mutex_lock(&sim->lock);
    status = make_node(sim, path, exclusive);
    pthread_mutex_unlock(&sim->lock);
    return status < 0 ? stk_sim_fail(error, -status, "cannot make the folder", path) : 0;
}

static int remove_path(struct stk_io *io, const char *path, struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    int status;

    pthread_mutex_lock(&sim->lock);
    status = remove_node(sim, path);
    pthread_mutex_unlock(&sim->lock);
    return status < 0 && status != -ENOENT ? stk_sim_fail(error, -status, "cannot remove", path)
                                           : 0;
}

/* Removes everything; it calls nothing of *how. */
static int remove_tree(struct stk_io *io, const char *path, const struct stk_tree_removal *how,
                       struct stoker_error *error)
{
    struct stk_listing listing = {0};
    int status = stk_io_list(io, path, &listing, error);

    STK_ASSERT(how->folders && !how->visit && !how->removed && !how->failed);
    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];
        char name[PATH_MAX];

        snprintf(name, sizeof name, "%s/%s", path, entry->name);
        status = entry->kind == STK_ENTRY_DIRECTORY && !entry->link
                     ? remove_tree(io, name, how, error)
                     : remove_path(io, name, error);
    }
    stk_listing_free(&listing);
    return status < 0 ? status : remove_path(io, path, error);
}

static int sync_directory(struct stk_io *io, const char *path, struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct stk_sim_node *node = NULL;
    int status;

    pthread_mutex_lock(&sim->lock);
    status = stk_sim_count_call(sim);
    if (status == 0) {
        status = stk_sim_node_resolve(sim, path, &node);
    }
    if (status == 0 && node->kind != STK_ENTRY_DIRECTORY) {
        status = -ENOTDIR;
    } else if (status == 0 && stk_sim_match_rule(sim, STK_SIM_FAULT_SYNC, node, 0, 1)) {
        status = -EIO;
    } else if (status == 0) {
        status = stk_sim_node_sync_names(sim, node);
    }
    pthread_mutex_unlock(&sim->lock);
    return status < 0 ? stk_sim_fail(error, -status, "cannot bring the folder to the disk", path)
                      : 0;
}

/* The holder is always the one simulated process. */
static int lock(struct stk_io *io, const char *path, struct stk_file_lock **lock_out,
                struct stoker_error *error)
{
    struct stk_sim *sim = stk_sim_of(io);
    size_t path_bytes = strlen(path) + 1;
    struct sim_lock *lock = stk_alloc(1, sizeof *lock + path_bytes);
    int status = -ENOMEM;

    if (lock) {
        memcpy(lock->path, path, path_bytes);
        pthread_mutex_lock(&sim->lock);
        status = lock_node(sim, path, &lock->node);
        lock->base.real = status == 0 && !stk_sim_has_fault(sim, lock->node, STK_SIM_FAULT_NO_LOCK);
        pthread_mutex_unlock(&sim->lock);
    }
    if (status == 0) {
        *lock_out = (struct stk_file_lock *)(void *)lock;
        return 0;
    }
    stk_free(lock);
    if (status == -EBUSY) {
        return stk_fail_errno(error, EBUSY, "another process has the lock",
                              "wait until it ends, or stop it and run this again",
                              "'%s' is held by process 1 on world", path);
    }
    return stk_sim_fail(error, -status, "cannot take the lock", path);
}

/* As at the end of a process: always releases the lock, and removes its file unless the process was
 * killed. */
static void unlock(struct stk_io *io, struct stk_file_lock *opaque)
{
    struct stk_sim *sim = stk_sim_of(io);
    struct sim_lock *lock = (struct sim_lock *)(void *)opaque;
    struct place place = {0};

    pthread_mutex_lock(&sim->lock);
    if (!stk_sim_is_off(sim) && find(sim, lock->path, &place) == 0 && place.node == lock->node) {
        stk_sim_node_unlink(sim, place.parent, place.name);
    }
    lock->node->locked = false;
    stk_sim_node_release(sim, lock->node);
    pthread_mutex_unlock(&sim->lock);
    stk_free(lock);
}

/* Does not follow links: returns the path itself. */
static int sim_resolve(struct stk_io *io, const char *path, char *real, size_t real_bytes)
{
    struct stk_stat stat;
    int status = stk_io_stat_path(io, path, &stat, NULL);

    if (status == 0 &&
        (size_t)snprintf(real, real_bytes, "%s%s", path[0] == '/' ? "" : "/", path) >= real_bytes) {
        status = -ENAMETOOLONG;
    }
    return status;
}

const struct stk_write_table stk_sim_write_table = {
    .create = create,
    .write = write_output,
    .sync_output = sync_output,
    .close_output = close_output,
    .rename = rename_path,
    .link = link_path,
    .make_directory = make_directory,
    .remove = remove_path,
    .sync_directory = sync_directory,
    .append = append,
    .lock = lock,
    .unlock = unlock,
    .truncate = truncate_output,
    .resolve = sim_resolve,
    .write_at = write_at,
    .remove_tree = remove_tree,
};

uint64_t stk_sim_calls(struct stk_io *io)
{
    struct stk_sim *sim = stk_sim_of(io);
    uint64_t calls;

    pthread_mutex_lock(&sim->lock);
    calls = sim->calls;
    pthread_mutex_unlock(&sim->lock);
    return calls;
}

void stk_sim_fail_nth(struct stk_io *io, uint64_t n)
{
    struct stk_sim *sim = stk_sim_of(io);

    pthread_mutex_lock(&sim->lock);
    sim->fail_at = n > 0 ? sim->calls + n : 0;
    pthread_mutex_unlock(&sim->lock);
}

void stk_sim_kill_nth(struct stk_io *io, uint64_t n)
{
    struct stk_sim *sim = stk_sim_of(io);

    pthread_mutex_lock(&sim->lock);
    sim->cut_at = n > 0 ? sim->calls + n : 0;
    pthread_mutex_unlock(&sim->lock);
}

static int crash_with(struct stk_io *io, struct stk_sim_luck *luck)
{
    struct stk_sim *sim = stk_sim_of(io);
    int status;

    pthread_mutex_lock(&sim->lock);
    status = stk_sim_nodes_sync_partial(sim, luck);
    pthread_mutex_unlock(&sim->lock);
    return status < 0 ? status : stk_sim_crash(io);
}

int stk_sim_crash_partial(struct stk_io *io, uint64_t seed)
{
    return crash_with(io, &(struct stk_sim_luck){.seed = seed});
}

int stk_sim_crash_chosen(struct stk_io *io, uint64_t choices, uint32_t *questions_out)
{
    struct stk_sim_luck luck = {.choices = choices, .chosen = true};
    int status = crash_with(io, &luck);

    *questions_out = luck.questions;
    return status;
}

int stk_sim_crash(struct stk_io *io)
{
    struct stk_sim *sim = stk_sim_of(io);
    int status;

    pthread_mutex_lock(&sim->lock);
    sim->cut_at = 0;
    status = stk_sim_nodes_crash(sim);
    pthread_mutex_unlock(&sim->lock);
    return status;
}

/* *place is valid until a name in its parent changes. */
static int find(struct stk_sim *sim, const char *path, struct place *place)
{
    int status =
        stk_sim_node_resolve_parent(sim, path, &place->parent, place->name, &place->folder);

    if (status == 0) {
        place->node = stk_sim_node_child(place->parent, place->name);
    }
    return status;
}

/* Truncates the file after its last newline. */
static int truncate_to_line(struct stk_sim_node *node)
{
    const uint8_t *last = node->bytes ? memrchr(node->data, '\n', node->bytes) : NULL;
    uint64_t used = last ? (uint64_t)(last - node->data) + 1 : 0;

    if (node->bytes - used >= STK_LINE_BYTES_MAX) {
        return -EINVAL;
    }
    node->bytes = used;
    node->bytes_synced = stk_min(node->bytes_synced, used);
    return 0;
}

/* Returns a retained node. */
static int open_node(struct stk_sim *sim, const char *path, enum open_mode mode,
                     struct stk_sim_node **node_out)
{
    struct place place = {0};
    struct stk_sim_node *node;
    int status = stk_sim_count_call(sim);

    if (status == 0) {
        status = find(sim, path, &place);
    }
    if (status < 0) {
        return status;
    }
    node = place.node;
    if (!place.name[0] || place.folder) {
        return -EISDIR;
    }
    if (node && mode == OPEN_EXCLUSIVE) {
        return -EEXIST;
    }
    if (node && node->kind != STK_ENTRY_FILE) {
        return node->target ? -ELOOP : -EISDIR;
    }
    if (stk_sim_is_denied(sim, node ? node : place.parent)) {
        return -EACCES;
    }
    if (!node) {
        node = stk_sim_node_new(sim, STK_ENTRY_FILE);
        status = node ? stk_sim_node_link(sim, place.parent, place.name, node) : -ENOMEM;
        if (status < 0) {
            stk_sim_node_release(sim, node);
            return status;
        }
    }
    /* The truncation is durable without a sync, as a journal may make it. */
    status = mode == OPEN_LINES ? truncate_to_line(node) : 0;
    if (status < 0) {
        return status;
    }
    node->bytes = mode == OPEN_LINES ? node->bytes : 0;
    node->bytes_synced = mode == OPEN_LINES ? node->bytes_synced : 0;
    node->mtime_ns = sim->now_ns + sim->changes++;
    stk_sim_node_retain(node);
    *node_out = node;
    return 0;
}

static int add_bytes(struct stk_sim *sim, struct stk_sim_node *node, const void *data, size_t bytes)
{
    return put_bytes(sim, node, node->bytes, data, bytes);
}

/* Bytes before the offset that do not exist yet become zero. Bytes from the offset on are no longer
 * durable. */
static int put_bytes(struct stk_sim *sim, struct stk_sim_node *node, uint64_t offset,
                     const void *data, size_t bytes)
{
    const struct stk_sim_rule *full;
    uint64_t fitting = bytes, end;
    int status = 0;

    if (stk_sim_match_rule(sim, STK_SIM_FAULT_WRITE, node, offset, bytes)) {
        return -EIO;
    }
    full = stk_sim_match_rule(sim, STK_SIM_FAULT_FULL, node, offset, bytes);
    if (full) {
        fitting = full->offset - stk_min(full->offset, offset);
        status = -ENOSPC;
    }
    end = offset + fitting;
    if (fitting > 0 && end > node->capacity) {
        uint64_t capacity = stk_max(node->capacity * 2, end);
        uint8_t *grown = stk_realloc(node->data, node->capacity, capacity, 1);

        if (!grown) {
            return -ENOMEM;
        }
        node->data = grown;
        node->capacity = capacity;
    }
    if (fitting > 0) {
        if (offset > node->bytes) {
            memset(node->data + node->bytes, 0, offset - node->bytes);
        }
        memcpy(node->data + offset, data, fitting);
        node->bytes = stk_max(node->bytes, end);
        node->bytes_synced = stk_min(node->bytes_synced, offset);
        node->mtime_ns = sim->now_ns + sim->changes++;
    }
    return status;
}

/* Returns a retained and locked node. */
static int lock_node(struct stk_sim *sim, const char *path, struct stk_sim_node **node_out)
{
    static const char holder[] = "process 1 on world\n";
    struct place place = {0};
    bool locked;
    int status = find(sim, path, &place);

    locked = status == 0 && place.node && place.node->locked &&
             !stk_sim_has_fault(sim, place.node, STK_SIM_FAULT_NO_LOCK);
    status = open_node(sim, path, locked ? OPEN_LINES : OPEN_TRUNCATE, node_out);
    if (status < 0) {
        return status;
    }
    if (locked) {
        stk_sim_node_release(sim, *node_out);
        return -EBUSY;
    }
    (*node_out)->locked = true;
    (void)add_bytes(sim, *node_out, holder, sizeof holder - 1); /* only for readers */
    return 0;
}

/* The checks of Linux, in its order (fs/namei.c, do_renameat2). */
static int rename_allowed(const struct place *from, const struct place *to, bool exclusive)
{
    bool directory = from->node && from->node->kind == STK_ENTRY_DIRECTORY;

    if (!from->name[0] || !to->name[0]) {
        return -EBUSY;
    }
    if (!from->node) {
        return -ENOENT;
    }
    if (exclusive && to->node) {
        return -EEXIST;
    }
    if (!directory && (from->folder || to->folder)) {
        return -ENOTDIR;
    }
    for (const struct stk_sim_node *above = to->parent; above; above = above->parent) {
        if (above == from->node) {
            return -EINVAL;
        }
    }
    for (const struct stk_sim_node *above = from->parent; above && to->node;
         above = above->parent) {
        if (above == to->node) {
            return -ENOTEMPTY;
        }
    }
    if (to->node && to->node != from->node) {
        bool target_directory = to->node->kind == STK_ENTRY_DIRECTORY;

        if (directory != target_directory) {
            return directory ? -ENOTDIR : -EISDIR;
        }
        if (to->node->names.count > 0) {
            return -ENOTEMPTY;
        }
    }
    return 0;
}

static int rename_node(struct stk_sim *sim, const char *from, const char *to, bool exclusive)
{
    struct place source = {0}, target = {0};
    int status = stk_sim_count_call(sim);

    if (status == 0) {
        status = find(sim, from, &source);
    }
    if (status == 0) {
        status = find(sim, to, &target);
    }
    if (status == 0) {
        status = rename_allowed(&source, &target, exclusive);
    }
    if (status < 0 || source.node == target.node) {
        return status;
    }
    if (stk_sim_is_denied(sim, source.parent) || stk_sim_is_denied(sim, target.parent)) {
        return -EACCES;
    }
    if (stk_sim_match_rule(sim, STK_SIM_FAULT_RENAME, source.node, source.node->bytes, 1)) {
        return -EIO;
    }
    status = stk_sim_node_link(sim, target.parent, target.name, source.node);
    if (status == 0) {
        stk_sim_node_unlink(sim, source.parent, source.name);
    }
    return status;
}

/* A copy with the same inode number: equivalent as long as the file is not written by name. */
static int link_node(struct stk_sim *sim, const char *from, const char *to)
{
    struct place source = {0}, target = {0};
    struct stk_sim_node *node;
    int status = stk_sim_count_call(sim);

    if (status == 0) {
        status = find(sim, from, &source);
    }
    if (status == 0) {
        status = find(sim, to, &target);
    }
    if (status < 0) {
        return status;
    }
    if (!source.node || target.node) {
        return source.node ? -EEXIST : -ENOENT;
    }
    if (source.node->kind != STK_ENTRY_FILE || stk_sim_is_denied(sim, target.parent)) {
        return source.node->kind != STK_ENTRY_FILE ? -EPERM : -EACCES;
    }
    node = stk_sim_node_new(sim, STK_ENTRY_FILE);
    if (!node) {
        return -ENOMEM;
    }
    status = add_bytes(sim, node, source.node->data, source.node->bytes);
    if (status == 0) {
        node->inode = source.node->inode;
        node->bytes_synced = source.node->bytes_synced;
        status = stk_sim_node_link(sim, target.parent, target.name, node);
    }
    if (status < 0) {
        stk_sim_node_release(sim, node);
    }
    return status;
}

static int make_node(struct stk_sim *sim, const char *path, bool exclusive)
{
    struct place place = {0};
    struct stk_sim_node *node = NULL;
    int status = stk_sim_count_call(sim);

    if (status == 0) {
        status = find(sim, path, &place);
    }
    if (status < 0) {
        return status;
    }
    if (place.node || !place.name[0]) {
        bool fine = !exclusive && stk_sim_node_resolve(sim, path, &node) == 0 &&
                    node->kind == STK_ENTRY_DIRECTORY;

        return fine ? 0 : -EEXIST;
    }
    if (stk_sim_is_denied(sim, place.parent)) {
        return -EACCES;
    }
    node = stk_sim_node_new(sim, STK_ENTRY_DIRECTORY);
    status = node ? stk_sim_node_link(sim, place.parent, place.name, node) : -ENOMEM;
    if (status < 0) {
        stk_sim_node_release(sim, node);
    }
    return status;
}

static int remove_node(struct stk_sim *sim, const char *path)
{
    struct place place = {0};
    int status = stk_sim_count_call(sim);

    if (status == 0) {
        status = find(sim, path, &place);
    }
    if (status < 0) {
        return status;
    }
    if (!place.name[0]) {
        return -EBUSY;
    }
    if (!place.node) {
        return -ENOENT;
    }
    if (place.folder && place.node->kind != STK_ENTRY_DIRECTORY) {
        return -ENOTDIR;
    }
    if (place.node->names.count > 0) {
        return -ENOTEMPTY;
    }
    if (stk_sim_is_denied(sim, place.parent)) {
        return -EACCES;
    }
    stk_sim_node_unlink(sim, place.parent, place.name);
    return 0;
}
