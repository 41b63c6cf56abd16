/* io/sim/sim.h: a simulated file system for tests: files in memory, faults by rules, its own clock.
 *
 *   open -> add files -> set rules -> use like any stk_io, reading and writing -> stk_io_close
 *                                     ^ crash: loses what was not synced `-> continue
 *
 * Owner: the test. Threads: any (one lock). Memory: copies of the files.
 * Bound: the files of the test. */
#ifndef IO_SIM_SIM_H
#define IO_SIM_SIM_H

#include "io/io.h"

enum stk_sim_fault {
    STK_SIM_FAULT_SHORT = 1, /* reads return fewer bytes than requested, before the end */
    STK_SIM_FAULT_EIO,       /* reads fail with EIO */
    STK_SIM_FAULT_SLOW,      /* completes after latency_ns of the simulated clock */
    STK_SIM_FAULT_HANG,      /* never completes */
    STK_SIM_FAULT_TRUNCATED, /* the file ends at `offset`, but stat returns its full size */
    STK_SIM_FAULT_COLD,      /* read_now returns -EAGAIN */
    STK_SIM_FAULT_DENIED,    /* open, list, create and changes of names in it fail with EACCES */
    STK_SIM_FAULT_FULL,  /* writes past `offset` fail with ENOSPC, after the bytes that still fit */
    STK_SIM_FAULT_WRITE, /* writes fail with EIO and change nothing */
    STK_SIM_FAULT_SYNC,  /* syncs, of a file or a directory, fail with EIO */
    STK_SIM_FAULT_RENAME,  /* renames of it fail with EIO and change nothing */
    STK_SIM_FAULT_NO_LOCK, /* the file system has no locks: each one is granted, and not real */
    STK_SIM_FAULT_STAT,    /* stat by its path fails with EIO */
};

/* Faults of reads. Reads of a queue and read_wait behave as io/io.h says: after SHORT they
 * continue, piece by piece, and each piece may have another fault; only read_now returns the short
 * count. Bytes under EIO, SLOW or HANG are not in memory: read_now returns -EAGAIN.
 *
 * The clock advances only here: a reap with reads in flight advances it to the next read that ends
 * or passes its deadline (at most by its timeout), a reap without reads really waits for a wake and
 * then adds its timeout, and read_wait adds its waiting time. Writes take no time, but each change
 * of a file or directory sets a new mtime. */

struct stk_sim_rule {
    const char *path; /* exact; NULL: every file */
    uint32_t fault;   /* enum stk_sim_fault */
    uint32_t every;   /* one in n calls, by a hash of (seed, path, offset, attempt); 0, 1: all */
    uint32_t times;   /* at most so many times; 0: always */
    uint64_t offset;  /* TRUNCATED: the end; others: calls that touch bytes from here on */
    uint64_t latency_ns;
};

/* Opens an empty simulation. The same seed causes the same faults. */
int stk_sim_open(struct stk_io **io_out, uint64_t seed, const struct stk_io_options *options,
                 struct stoker_error *error);
/* The operations of all files of this simulation. A test may replace some of them before other
 * threads use the files. */
struct stk_file_ops *stk_sim_file_ops(struct stk_io *io);
/* Adds a file with a copy of the bytes, and its parents; data NULL: a directory. A relative path
 * starts at the root. Returns 0 on success, -ENOMEM, -EEXIST or -ENOTDIR. */
int stk_sim_add(struct stk_io *io, const char *path, const void *data, size_t bytes);
/* Adds a link path -> target, which may be a loop. */
int stk_sim_add_link(struct stk_io *io, const char *path, const char *target);
int stk_sim_add_rule(struct stk_io *io, const struct stk_sim_rule *rule);
/* Removes all rules, and adds this one; NULL: none. */
int stk_sim_set_rule(struct stk_io *io, const struct stk_sim_rule *rule);

/* cold: stk_io_thread_disk_reads grows at each call, as if maps were not in memory; false at first.
 * prefetched_bytes: the sum of stk_io_map_prefetch. */
void stk_sim_set_cold(struct stk_io *io, bool cold);
uint64_t stk_sim_prefetched_bytes(struct stk_io *io);

/* The number of calls that may fail so far: all but close, reap, wake and queries of the machine.
 * Each read of a submit counts: it is taken, and reap returns it with -EIO. */
uint64_t stk_sim_calls(struct stk_io *io);
/* The n-th call from now fails with -EIO and does nothing; 0: none. */
void stk_sim_fail_nth(struct stk_io *io, uint64_t n);
/* From the n-th call on, all calls fail like that, as after kill -9: the caller cannot clean up. 0:
 * calls succeed again, as in the next process. */
void stk_sim_kill_nth(struct stk_io *io, uint64_t n);
/* Simulates a power cut and the next start. The caller has closed all files. Ends a kill_nth.
 * What survives: bytes that were synced, under names whose directory was synced after they changed;
 * and all files that the test added. All else is lost: a truncated file is empty, and so is a file
 * whose name was synced but not its data. (kill_nth without a crash is the other extreme: all
 * survives. crash_partial does either, name by name.) Returns 0 on success, -ENOMEM if there is no
 * memory. */
int stk_sim_crash(struct stk_io *io);
/* The same, but each name that changed after its directory was synced is, by the seed, the old or
 * the new one, as on a real disk. A rename within a directory happened or did not happen. */
int stk_sim_crash_partial(struct stk_io *io, uint64_t seed);
/* The same, and the caller chooses: bit i of `choices` (modulo 64) answers the i-th question. The
 * questions are, for each name that changed after its directory was synced, whether the change is
 * durable; for each page of 4,096 bytes after the synced ones of a file, whether its first and its
 * second half are (a page that is half durable is torn; what is not durable is zero); and whether
 * the file has its full length although its last pages are not durable. *questions_out: how many
 * there were. All values of so many bits enumerate all states. */
int stk_sim_crash_chosen(struct stk_io *io, uint64_t choices, uint32_t *questions_out);

#endif
