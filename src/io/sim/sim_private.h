/* io/sim/sim_private.h: what the parts of the simulated world share: its tree of files, its rules.
 *
 *   a directory: `names`, what everybody sees <--link, unlink-- writers
 *                   |  ^
 *              sync |  | crash
 *                   v  |
 *                `synced`, what a power cut leaves
 *
 * Owner: the world. Threads: any; all of it with the world's lock.
 * Memory: a node lives while a name, old or new, or a handle uses it. Bound: what the test adds. */
#ifndef IO_SIM_SIM_PRIVATE_H
#define IO_SIM_SIM_PRIVATE_H

#include "io/io.h"
#include "io/sim/sim.h"

#include <pthread.h>
#include <stdatomic.h>

#define STK_SIM_RULES_MAX 64u
#define STK_SIM_TRIES_COUNT (1u << 14)
#define STK_SIM_CLOCK_START 1000000000ull

struct stk_sim_name {
    char *text; /* one part of a path; owned */
    struct stk_sim_node *node;
};

struct stk_sim_names {
    struct stk_sim_name *items; /* sorted by text */
    uint64_t count, capacity;
};

/* A file, directory or link, apart from its name. */
struct stk_sim_node {
    struct stk_file file; /* first: an open file is its node */
    struct stk_sim *sim;
    struct stk_sim_node *previous, *next; /* of all nodes of the world */
    uint64_t users;                       /* names and handles */
    uint32_t kind;                        /* enum stk_entry_kind; OTHER: a link */
    uint64_t inode, mtime_ns;
    bool locked;                 /* stk_io_lock */
    uint64_t hash;               /* of the path that it was made with */
    struct stk_sim_node *parent; /* NULL: the root, or it has no name any more */
    const char *name;            /* lent by parent->names */
    char *target;                /* link */

    /* Files. They are written front to back, so what was synced is a first part. */
    uint8_t *data;
    uint64_t bytes, bytes_synced, capacity;

    /* Directories. */
    struct stk_sim_names names, synced;
};

struct stk_sim_rule_state {
    struct stk_sim_rule rule;
    char *path; /* NULL: every file */
    uint32_t hits;
};

struct stk_sim {
    struct stk_io io;             /* first */
    struct stk_file_ops file_ops; /* of all files; a test may replace some */
    struct stk_io_options options;
    uint64_t seed;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t wake;
    struct stk_sim_node *root, *nodes; /* nodes: the first of all */
    uint64_t inode_last, changes;
    struct stk_sim_rule_state rules[STK_SIM_RULES_MAX];
    uint32_t rule_count;
    uint32_t tries[STK_SIM_TRIES_COUNT];   /* by hash of (path, offset) */
    uint64_t calls, fail_at, cut_at;       /* numbers of calls; 0: none */
    _Atomic uint64_t now_ns, leaked_bytes; /* written under the lock */
    _Atomic uint64_t reads, reads_step;    /* of mapped files: see stk_sim_set_cold */
    _Atomic uint64_t prefetched_bytes;
};

static inline struct stk_sim *stk_sim_of(struct stk_io *io)
{
    return (struct stk_sim *)(void *)io;
}

/* sim.c */
extern const struct stk_write_table stk_sim_write_table; /* sim_write.c */
int stk_sim_fail(struct stoker_error *error, int number, const char *what, const char *path);
/* Counts a call; -EIO when it is the one to fail, or the power is off. */
int stk_sim_count_call(struct stk_sim *world);
bool stk_sim_is_off(const struct stk_sim *world); /* all calls fail since cut_nth */
bool stk_sim_is_denied(struct stk_sim *world, const struct stk_sim_node *node);
/* The first rule of this fault that hits these bytes of a node now, or NULL. */
const struct stk_sim_rule *stk_sim_match_rule(struct stk_sim *world, uint32_t fault,
                                              const struct stk_sim_node *node, uint64_t offset,
                                              uint64_t bytes);

/* sim_map.c */
int stk_sim_map(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
                struct stoker_error *error);
void stk_sim_unmap(struct stk_io *io, struct stk_view view);
void stk_sim_map_prefetch(struct stk_io *io, struct stk_view part);
uint64_t stk_sim_thread_disk_reads(struct stk_io *io);

/* sim_tree.c. Those that give an int: 0 or -errno. */
/* A node without a name; NULL when there is no memory. It goes with its last user. */
struct stk_sim_node *stk_sim_node_new(struct stk_sim *world, uint32_t kind);
void stk_sim_node_retain(struct stk_sim_node *node);
void stk_sim_node_release(struct stk_sim *world, struct stk_sim_node *node); /* NULL is fine */
/* Frees every node, used or not. */
void stk_sim_nodes_deinit(struct stk_sim *world);
/* NULL when the directory has no such name. */
struct stk_sim_node *stk_sim_node_child(const struct stk_sim_node *directory, const char *name);
/* Gives the node this name too, in place of another that had it; takes no use away. */
int stk_sim_node_link(struct stk_sim *world, struct stk_sim_node *directory, const char *name,
                      struct stk_sim_node *node);
/* Takes a name that is there away. */
void stk_sim_node_unlink(struct stk_sim *world, struct stk_sim_node *directory, const char *name);
/* Walks a path part by part and follows its links. */
int stk_sim_node_resolve(struct stk_sim *world, const char *path, struct stk_sim_node **node_out);
/* The same but for the last part, which goes to name_out[NAME_MAX + 1] ("" for one that is no
 * name: the root, "." or ".."); folder_out says whether the path ends in '/'. */
int stk_sim_node_resolve_parent(struct stk_sim *world, const char *path,
                                struct stk_sim_node **parent_out, char *name_out, bool *folder_out);
/* A power cut leaves the directory's names as they are now. */
int stk_sim_node_sync_names(struct stk_sim *world, struct stk_sim_node *directory);
/* A power cut leaves this one name as it is now. */
int stk_sim_node_sync_name(struct stk_sim *world, struct stk_sim_node *directory, const char *name);
/* Of names that changed each is synced or not, by the seed. */
int stk_sim_nodes_sync_partial(struct stk_sim *world, uint64_t seed);
/* Back to what was synced. */
int stk_sim_nodes_crash(struct stk_sim *world);
/* The path of a name in a directory, to out[PATH_MAX]; false if it is too long. */
bool stk_sim_node_path_below(const struct stk_sim_node *directory, const char *name, char *out);
/* Whether a path, without '/' at its ends and empty or "." parts, is the node's. */
bool stk_sim_node_is_at(const struct stk_sim_node *node, const char *path);

#endif
