/* io/sim/sim.h: a simulated world behind the seam: files in memory, faults by rule, its own clock.
 *
 *   world_open -> add files -> set rules -> use as any stk_io, reading and writing -> stk_io_close
 *                                           ^ crash: what was not synced is gone `-> on
 *
 * Owner: the test. Threads: any (one lock). Memory: copies of the files.
 * Bound: what the test adds. */
#ifndef IO_SIM_SIM_H
#define IO_SIM_SIM_H

#include "io/io.h"

enum stk_sim_fault {
    STK_SIM_FAULT_SHORT = 1, /* reads give fewer bytes than asked, not at the end */
    STK_SIM_FAULT_EIO,       /* reads fail with EIO */
    STK_SIM_FAULT_SLOW,      /* completes after latency_ns of the world's clock */
    STK_SIM_FAULT_HANG,      /* never completes */
    STK_SIM_FAULT_TRUNCATED, /* the file ends at `offset` though stat says otherwise */
    STK_SIM_FAULT_COLD,      /* read_now gives -EAGAIN */
    STK_SIM_FAULT_DENIED,    /* open, list, create, and changes of names in it fail with EACCES */
    STK_SIM_FAULT_FULL,      /* writes past `offset` fail with ENOSPC, after what still fits */
    STK_SIM_FAULT_WRITE,     /* writes fail with EIO, and leave nothing */
    STK_SIM_FAULT_SYNC,      /* syncs, of a file or a directory, fail with EIO */
    STK_SIM_FAULT_RENAME,    /* renames of it fail with EIO, and change nothing */
};

/* What a read meets. A read in a queue, or one that waits, keeps the promise of io/io.h: SHORT
 * makes it go on, piece by piece, and each piece may meet the next fault; only read_now gives
 * the short count. What EIO, SLOW or HANG may hit is not in memory: read_now gives -EAGAIN.
 *
 * The clock stands still but for these: a reap with reads in flight jumps to the next that ends
 * or passes its deadline (its timeout at the latest), a reap without waits in earnest for a wake
 * and then adds its timeout, and read_wait adds what it waits. Writing takes no time, but
 * each change of a file or directory gives it an mtime of its own. */

struct stk_sim_rule {
    const char *path; /* exact; NULL: every file */
    uint32_t fault;   /* enum stk_sim_fault */
    uint32_t every;   /* one in n calls, by hash of (seed, path, offset, try); 0, 1: all */
    uint32_t times;   /* at most so often in all; 0: always */
    uint64_t offset;  /* TRUNCATED: the end; others: calls that touch this or later bytes */
    uint64_t latency_ns;
};

/* Gives *io_out; an empty world. The same seed gives the same faults. */
int stk_sim_open(struct stk_io **io_out, uint64_t seed, const struct stk_io_options *options,
                 struct stoker_error *error);
/* The operations of all files of this simulation. A test may replace some of them before other
 * threads use the files. */
struct stk_file_ops *stk_sim_file_ops(struct stk_io *io);
/* Copies bytes; parents are made. data NULL: a directory. 0, -ENOMEM, -EEXIST or -ENOTDIR.
 * A relative path starts at the root. */
int stk_sim_add(struct stk_io *io, const char *path, const void *data, size_t bytes);
/* path -> target, for loops. */
int stk_sim_add_link(struct stk_io *io, const char *path, const char *target);
int stk_sim_add_rule(struct stk_io *io, const struct stk_sim_rule *rule);

/* Mapped files are cold, so that each thread that asks has read meanwhile; else warm, as at first.
 * And the bytes of them that were announced (stk_io_map_prefetch). */
void stk_sim_set_cold(struct stk_io *io, bool cold);
uint64_t stk_sim_prefetched_bytes(struct stk_io *io);

/* Calls of the seam that may fail: all but close, reap, wake and questions about the machine. Each
 * read of a submit is one: it is taken, and reap gives it back with -EIO. */
uint64_t stk_sim_calls(struct stk_io *io);
/* The n-th call from now fails with -EIO and does nothing; 0: none. */
void stk_sim_fail_nth(struct stk_io *io, uint64_t n);
/* From the n-th call from now on all fail like that, as after kill -9: whatever the caller still
 * tries to tidy up has no effect. 0: none, also those that began to fail: the next process. */
void stk_sim_kill_nth(struct stk_io *io, uint64_t n);
/* A power cut and the start after it, for a caller that closed all it had open; ends a cut_nth.
 * What stays: bytes that were synced, at names whose directory was synced since they changed. What
 * the test added counts as synced. What goes: all else; a file that was cut to nothing comes back
 * empty, and one whose data was never synced too, if its name was. (The other extreme, all stays,
 * is cut_nth without crash; crash_some does either, name by name.) 0 or -ENOMEM. */
int stk_sim_crash(struct stk_io *io);
/* The same, but of what changed since its directory was synced each name is, by the seed, as it
 * was or as it is now, as on a real disk. A rename within a directory happened or did not. */
int stk_sim_crash_partial(struct stk_io *io, uint64_t seed);

#endif
