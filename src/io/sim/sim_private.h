/* io/sim/sim_private.h: what the files of the simulated file system share: its tree and its rules.
 *
 *   a directory: `names`, the current state <--link, unlink-- writers
 *                   |  ^
 *              sync |  | crash
 *                   v  |
 *                `synced`, the state after a power cut
 *
 * Owner: the simulation. Threads: any; all of it with its lock.
 * Memory: a node lives while a name, old or new, or an open file uses it. Bound: the files of the
 * test. */
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
    char *text; /* one component of a path; owned */
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
    struct stk_sim_node *previous, *next; /* of all nodes */
    uint64_t users;                       /* names and open files */
    uint32_t kind;                        /* enum stk_entry_kind; OTHER: a link */
    uint64_t inode, mtime_ns;
    bool locked;                 /* stk_io_lock */
    uint64_t hash;               /* of the path that it was created with */
    struct stk_sim_node *parent; /* NULL: the root, or a node without a name */
    const char *name;            /* a pointer into parent->names */
    char *target;                /* link */

    /* Files. The synced bytes are a prefix: a write before its end shortens it. */
    uint8_t *data;
    uint64_t bytes, bytes_synced, capacity;

    /* Directories. */
    struct stk_sim_names names, synced;
};

/* What a disk had made durable before a power cut: by a seed, or as the caller chooses. */
struct stk_sim_luck {
    uint64_t seed, choices;
    uint32_t questions; /* so far */
    bool chosen;        /* by choices, also for each page */
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
/* Counts a call. Returns -EIO if this call is to fail, or if the process was killed. */
int stk_sim_count_call(struct stk_sim *sim);
bool stk_sim_is_off(const struct stk_sim *sim); /* all calls fail after kill_nth */
bool stk_sim_has_fault(struct stk_sim *sim, const struct stk_sim_node *node, uint32_t fault);
bool stk_sim_is_denied(struct stk_sim *sim, const struct stk_sim_node *node);
/* Returns the first rule with this fault that applies to these bytes of a node now, or NULL. */
const struct stk_sim_rule *stk_sim_match_rule(struct stk_sim *sim, uint32_t fault,
                                              const struct stk_sim_node *node, uint64_t offset,
                                              uint64_t bytes);

/* sim_map.c */
int stk_sim_map(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
                struct stoker_error *error);
void stk_sim_unmap(struct stk_io *io, struct stk_view view);
void stk_sim_map_prefetch(struct stk_io *io, struct stk_view part);
uint64_t stk_sim_thread_disk_reads(struct stk_io *io);

/* sim_tree.c. Functions that return an int return 0 or -errno. */
/* Creates a node without a name; NULL if there is no memory. Its last user frees it. */
struct stk_sim_node *stk_sim_node_new(struct stk_sim *sim, uint32_t kind);
void stk_sim_node_retain(struct stk_sim_node *node);
void stk_sim_node_release(struct stk_sim *sim, struct stk_sim_node *node); /* NULL is allowed */
/* Frees all nodes, used or not. */
void stk_sim_nodes_deinit(struct stk_sim *sim);
/* Returns NULL if the directory has no such name. */
struct stk_sim_node *stk_sim_node_child(const struct stk_sim_node *directory, const char *name);
/* Adds a name to the node, and replaces another node with this name. Does not take a use of the
 * caller. */
int stk_sim_node_link(struct stk_sim *sim, struct stk_sim_node *directory, const char *name,
                      struct stk_sim_node *node);
/* Removes an existing name. */
void stk_sim_node_unlink(struct stk_sim *sim, struct stk_sim_node *directory, const char *name);
/* Resolves a path and follows its links. */
int stk_sim_node_resolve(struct stk_sim *sim, const char *path, struct stk_sim_node **node_out);
/* The same except for the last component, which is copied to name_out[NAME_MAX + 1] ("" if it is no
 * name: the root, "." or ".."). *folder_out: the path ends in '/'. */
int stk_sim_node_resolve_parent(struct stk_sim *sim, const char *path,
                                struct stk_sim_node **parent_out, char *name_out, bool *folder_out);
/* Makes all names of a directory durable. */
int stk_sim_node_sync_names(struct stk_sim *sim, struct stk_sim_node *directory);
/* Makes one name durable. */
int stk_sim_node_sync_name(struct stk_sim *sim, struct stk_sim_node *directory, const char *name);
/* Makes each changed name durable or not, by the seed. */
int stk_sim_nodes_sync_partial(struct stk_sim *sim, struct stk_sim_luck *luck);
/* Restores the durable state. */
int stk_sim_nodes_crash(struct stk_sim *sim);
/* Writes the path of a name in a directory to out[PATH_MAX]. Returns false if it is too long. */
bool stk_sim_node_path_below(const struct stk_sim_node *directory, const char *name, char *out);
/* Returns true if a path, without outer '/' and without empty or "." components, is that of the
 * node. */
bool stk_sim_node_is_at(const struct stk_sim_node *node, const char *path);

#endif
