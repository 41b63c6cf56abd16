/* The tree of the simulated file system: nodes with users, names with a durable copy. */
#include "io/sim/sim_private.h"

#include "base/mem.h"
#include "base/random.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define HALF_PAGE_BYTES 2048u
#define LINKS_MAX 40 /* the limit of Linux, path_resolution(7) */

static uint64_t names_find(const struct stk_sim_names *names, const char *text, bool *found_out);
static int names_put(struct stk_sim *sim, struct stk_sim_names *names, const char *text,
                     struct stk_sim_node *node);
static void names_remove(struct stk_sim *sim, struct stk_sim_names *names, uint64_t at);
static void names_free(struct stk_sim_names *names);
static void node_free(struct stk_sim *sim, struct stk_sim_node *node);
static uint64_t hash_below(const struct stk_sim *sim, const struct stk_sim_node *directory,
                           const char *name);
static int restore(struct stk_sim *sim, struct stk_sim_node *directory);

struct stk_sim_node *stk_sim_node_new(struct stk_sim *sim, uint32_t kind)
{
    struct stk_sim_node *node = stk_alloc(1, sizeof *node);

    if (node) {
        node->file.ops = &sim->file_ops;
        node->sim = sim;
        node->kind = kind;
        node->inode = ++sim->inode_last;
        node->mtime_ns = STK_SIM_CLOCK_START;
        node->next = sim->nodes;
        if (node->next) {
            node->next->previous = node;
        }
        sim->nodes = node;
    }
    return node;
}

void stk_sim_node_retain(struct stk_sim_node *node)
{
    node->users++;
}

/* Frees the names of a directory with it; only a crash frees directories that have names. */
void stk_sim_node_release(struct stk_sim *sim, struct stk_sim_node *node)
{
    if (!node || (node->users > 0 && --node->users > 0)) {
        return;
    }
    while (node->names.count > 0) {
        names_remove(sim, &node->names, node->names.count - 1);
    }
    while (node->synced.count > 0) {
        names_remove(sim, &node->synced, node->synced.count - 1);
    }
    node_free(sim, node);
}

void stk_sim_nodes_deinit(struct stk_sim *sim)
{
    while (sim->nodes) {
        node_free(sim, sim->nodes);
    }
}

struct stk_sim_node *stk_sim_node_child(const struct stk_sim_node *directory, const char *name)
{
    bool found;
    uint64_t at = names_find(&directory->names, name, &found);

    return found ? directory->names.items[at].node : NULL;
}

int stk_sim_node_link(struct stk_sim *sim, struct stk_sim_node *directory, const char *name,
                      struct stk_sim_node *node)
{
    struct stk_sim_node *old = stk_sim_node_child(directory, name);
    bool found;
    int status;

    if (old) {
        old->parent = NULL;
        old->name = NULL;
    }
    status = names_put(sim, &directory->names, name, node);
    if (status == 0) {
        node->parent = directory;
        node->name = directory->names.items[names_find(&directory->names, name, &found)].text;
        node->hash = node->hash ? node->hash : hash_below(sim, directory, name);
        directory->mtime_ns = sim->now_ns + sim->changes++;
    }
    return status;
}

void stk_sim_node_unlink(struct stk_sim *sim, struct stk_sim_node *directory, const char *name)
{
    bool found;
    uint64_t at = names_find(&directory->names, name, &found);
    struct stk_sim_name *item = &directory->names.items[at];

    STK_ASSERT(found);
    if (item->node->parent == directory && item->node->name == item->text) {
        item->node->parent = NULL; /* else it was renamed and has another name already */
        item->node->name = NULL;
    }
    names_remove(sim, &directory->names, at);
    directory->mtime_ns = sim->now_ns + sim->changes++;
}

int stk_sim_node_resolve(struct stk_sim *sim, const char *path, struct stk_sim_node **node_out)
{
    char rest[PATH_MAX], next[PATH_MAX], name[NAME_MAX + 1];
    struct stk_sim_node *node = sim->root, *child;
    char *part = rest;
    int links = 0;

    if (snprintf(rest, sizeof rest, "%s", path) >= PATH_MAX) {
        return -ENAMETOOLONG;
    }
    while (*part) {
        size_t bytes = strcspn(part, "/");

        if (node->kind != STK_ENTRY_DIRECTORY) {
            return -ENOTDIR;
        }
        if (bytes > NAME_MAX) {
            return -ENAMETOOLONG;
        }
        memcpy(name, part, bytes);
        name[bytes] = '\0';
        part += bytes > 0 ? bytes : 1;
        if (bytes == 0 || strcmp(name, ".") == 0) {
            continue;
        }
        if (strcmp(name, "..") == 0) {
            node = node->parent ? node->parent : node;
            continue;
        }
        child = stk_sim_node_child(node, name);
        if (!child) {
            return -ENOENT;
        }
        if (!child->target) {
            node = child;
            continue;
        }
        if (++links > LINKS_MAX) {
            return -ELOOP;
        }
        if (snprintf(next, sizeof next, "%s%s", child->target, part) >= PATH_MAX) {
            return -ENAMETOOLONG;
        }
        memcpy(rest, next, sizeof rest);
        part = rest;
        node = rest[0] == '/' ? sim->root : node;
    }
    *node_out = node;
    return 0;
}

int stk_sim_node_resolve_parent(struct stk_sim *sim, const char *path,
                                struct stk_sim_node **parent_out, char *name_out, bool *folder_out)
{
    char text[PATH_MAX];
    size_t bytes = strlen(path);
    char *name;
    int status;

    if (bytes == 0) {
        return -ENOENT;
    }
    if (bytes >= PATH_MAX) {
        return -ENAMETOOLONG;
    }
    memcpy(text, path, bytes + 1);
    *folder_out = text[bytes - 1] == '/';
    while (bytes > 0 && text[bytes - 1] == '/') {
        text[--bytes] = '\0';
    }
    name = strrchr(text, '/');
    name = name ? name + 1 : text;
    if (strlen(name) > NAME_MAX) {
        return -ENAMETOOLONG;
    }
    snprintf(name_out, NAME_MAX + 1, "%s",
             strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ? "" : name);
    *name = '\0';
    status = stk_sim_node_resolve(sim, text, parent_out);
    return status == 0 && (*parent_out)->kind != STK_ENTRY_DIRECTORY ? -ENOTDIR : status;
}

int stk_sim_node_sync_names(struct stk_sim *sim, struct stk_sim_node *directory)
{
    struct stk_sim_names *names = &directory->names, copy = {0};
    int status = 0;

    for (uint64_t i = 0; i < names->count && status == 0; i++) {
        status = names_put(sim, &copy, names->items[i].text, names->items[i].node);
    }
    if (status == 0) {
        struct stk_sim_names old = directory->synced;

        directory->synced = copy;
        copy = old;
    }
    while (copy.count > 0) {
        names_remove(sim, &copy, copy.count - 1);
    }
    names_free(&copy);
    return status;
}

int stk_sim_node_sync_name(struct stk_sim *sim, struct stk_sim_node *directory, const char *name)
{
    return names_put(sim, &directory->synced, name, stk_sim_node_child(directory, name));
}

static bool answer(struct stk_sim_luck *luck)
{
    return luck->choices >> (luck->questions++ % 64) & 1;
}

/* Decides whether a change of a name is durable. */
static bool is_durable(const struct stk_sim *sim, const struct stk_sim_node *directory,
                       const char *name, struct stk_sim_luck *luck)
{
    return luck->chosen
               ? answer(luck)
               : stk_mix64(stk_random_key(hash_below(sim, directory, name), luck->seed)) & 1;
}

/* Makes both halves, one or none of each page durable that was not synced. Other bytes are zero, or
 * after the end of the file. */
static void sync_some_pages(struct stk_sim_node *node, struct stk_sim_luck *luck)
{
    uint64_t end = node->bytes_synced;

    for (uint64_t at = node->bytes_synced, next; at < node->bytes; at = next) {
        next = stk_min(stk_round_up(at + 1, HALF_PAGE_BYTES), node->bytes);
        if (answer(luck)) {
            end = next;
        } else {
            memset(node->data + at, 0, next - at);
        }
    }
    if (end < node->bytes && answer(luck)) {
        end = node->bytes;
    }
    node->bytes_synced = end;
}

/* The old name of a node that was renamed within its directory. */
static void drop_old_names(struct stk_sim *sim, struct stk_sim_node *directory,
                           const struct stk_sim_node *node)
{
    for (uint64_t i = directory->synced.count; i > 0; i--) {
        struct stk_sim_name *item = &directory->synced.items[i - 1];

        if (item->node == node && stk_sim_node_child(directory, item->text) != node) {
            names_remove(sim, &directory->synced, i - 1);
        }
    }
}

static int sync_some_of(struct stk_sim *sim, struct stk_sim_node *directory,
                        struct stk_sim_luck *luck)
{
    int status = 0;

    for (uint64_t i = 0; i < directory->names.count && status == 0; i++) {
        struct stk_sim_name *item = &directory->names.items[i];
        bool found;
        uint64_t at = names_find(&directory->synced, item->text, &found);

        if ((!found || directory->synced.items[at].node != item->node) &&
            is_durable(sim, directory, item->text, luck)) {
            drop_old_names(sim, directory, item->node);
            status = names_put(sim, &directory->synced, item->text, item->node);
        }
    }
    for (uint64_t i = directory->synced.count; i > 0 && status == 0; i--) {
        struct stk_sim_name *item = &directory->synced.items[i - 1];

        /* Removed, not renamed: a rename loses no file. */
        if (!stk_sim_node_child(directory, item->text) && !item->node->parent &&
            is_durable(sim, directory, item->text, luck)) {
            names_remove(sim, &directory->synced, i - 1);
        }
    }
    return status;
}

int stk_sim_nodes_sync_partial(struct stk_sim *sim, struct stk_sim_luck *luck)
{
    struct stk_sim_node *next;
    int status = 0;

    for (struct stk_sim_node *node = sim->nodes; node && status == 0; node = next) {
        stk_sim_node_retain(
            node); /* the removed name may be the last use of a node, but not of this one */
        if (node->kind == STK_ENTRY_DIRECTORY) {
            status = sync_some_of(sim, node, luck);
        } else if (luck->chosen && node->kind == STK_ENTRY_FILE) {
            sync_some_pages(node, luck);
        }
        next = node->next;
        stk_sim_node_release(sim, node);
    }
    return status;
}

/* All nodes are retained meanwhile, so that none is freed before it gets its new name. */
int stk_sim_nodes_crash(struct stk_sim *sim)
{
    struct stk_sim_node *next;
    int status;

    for (struct stk_sim_node *node = sim->nodes; node; node = node->next) {
        stk_sim_node_retain(node);
        node->parent = NULL;
        node->name = NULL;
        node->bytes = node->bytes_synced;
    }
    for (struct stk_sim_node *node = sim->nodes; node; node = node->next) {
        while (node->names.count > 0) {
            names_remove(sim, &node->names, node->names.count - 1);
        }
    }
    status = restore(sim, sim->root);
    for (struct stk_sim_node *node = sim->nodes; node; node = next) {
        next = node->next; /* still retained, so this release cannot free it */
        stk_sim_node_release(sim, node);
    }
    return status;
}

bool stk_sim_node_is_at(const struct stk_sim_node *node, const char *path)
{
    const char *end = path + strlen(path);

    for (; node->parent; node = node->parent) {
        size_t bytes = strlen(node->name);

        if ((size_t)(end - path) < bytes || memcmp(end - bytes, node->name, bytes) != 0) {
            return false;
        }
        end -= bytes;
        if (node->parent->parent && (end == path || *--end != '/')) {
            return false;
        }
    }
    return end == path;
}

bool stk_sim_node_path_below(const struct stk_sim_node *directory, const char *name, char *out)
{
    size_t at = PATH_MAX - 1, bytes = strlen(name);

    out[at] = '\0';
    for (;;) {
        if (bytes + 1 > at) {
            return false;
        }
        at -= bytes;
        memcpy(out + at, name, bytes);
        out[--at] = '/';
        if (!directory->parent) {
            memmove(out, out + at, PATH_MAX - at);
            return true;
        }
        name = directory->name;
        bytes = strlen(name);
        directory = directory->parent;
    }
}

/* The index of a name, or where to insert it. */
static uint64_t names_find(const struct stk_sim_names *names, const char *text, bool *found_out)
{
    uint64_t low = 0, high = names->count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (strcmp(names->items[middle].text, text) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *found_out = low < names->count && strcmp(names->items[low].text, text) == 0;
    return low;
}

/* A replaced node loses a use. */
static int names_put(struct stk_sim *sim, struct stk_sim_names *names, const char *text,
                     struct stk_sim_node *node)
{
    bool found;
    uint64_t at = names_find(names, text, &found), capacity;
    struct stk_sim_name *grown;
    char *copy;

    stk_sim_node_retain(node);
    if (found) {
        struct stk_sim_node *old = names->items[at].node;

        names->items[at].node = node;
        stk_sim_node_release(sim, old);
        return 0;
    }
    if (names->count == names->capacity) {
        capacity = stk_max(8, names->capacity * 2);
        grown = stk_realloc(names->items, names->capacity, capacity, sizeof *grown);
        if (!grown) {
            goto failed;
        }
        names->items = grown;
        names->capacity = capacity;
    }
    copy = stk_strdup(text);
    if (!copy) {
        goto failed;
    }
    memmove(names->items + at + 1, names->items + at, (names->count - at) * sizeof *names->items);
    names->items[at] = (struct stk_sim_name){copy, node};
    names->count++;
    return 0;
failed:
    node->users--; /* the caller has another use, or frees it */
    return -ENOMEM;
}

static void names_remove(struct stk_sim *sim, struct stk_sim_names *names, uint64_t at)
{
    struct stk_sim_name item = names->items[at];

    names->count--;
    memmove(names->items + at, names->items + at + 1, (names->count - at) * sizeof *names->items);
    stk_free(item.text);
    stk_sim_node_release(sim, item.node);
}

static void names_free(struct stk_sim_names *names)
{
    for (uint64_t i = 0; i < names->count; i++) {
        stk_free(names->items[i].text);
    }
    stk_free(names->items);
    *names = (struct stk_sim_names){0};
}

static void node_free(struct stk_sim *sim, struct stk_sim_node *node)
{
    if (node->previous) {
        node->previous->next = node->next;
    } else {
        sim->nodes = node->next;
    }
    if (node->next) {
        node->next->previous = node->previous;
    }
    names_free(&node->names);
    names_free(&node->synced);
    stk_free(node->data);
    stk_free(node->target);
    stk_free(node);
}

/* Returns the hash of the complete path, computed byte by byte. */
static uint64_t hash_below(const struct stk_sim *sim, const struct stk_sim_node *directory,
                           const char *name)
{
    uint64_t hash = directory->hash;

    if (directory != sim->root) {
        hash = stk_random_key(hash, '/');
    }
    for (const char *c = name; *c; c++) {
        hash = stk_random_key(hash, (uint8_t)*c);
    }
    return hash;
}

/* If only one directory of a rename was synced, two directories may have the node: it stays in the
 * first one found. Recursion depth: that of paths, at most PATH_MAX / 2. */
static int restore(struct stk_sim *sim, struct stk_sim_node *directory)
{
    int status = 0;

    for (uint64_t i = 0; i < directory->synced.count && status == 0; i++) {
        struct stk_sim_name *item = &directory->synced.items[i];

        if (item->node->parent || item->node == sim->root) {
            continue;
        }
        status = stk_sim_node_link(sim, directory, item->text, item->node);
        if (status == 0) {
            status = restore(sim, item->node);
        }
    }
    return status;
}
