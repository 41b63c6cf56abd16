/* tools/pack/left_out.h: damaged samples that pack leaves out: recorded in their shards, counted
 * against limits, and listed at the end.
 *
 *   damaged sample: add -> the shard's done file -> all shards complete: list -> stoker.left and
 *                   (LIMIT if too many)             the quarantine file
 *                                               `-> packing failed for damage: quarantine file, and
 *                                                   a summary in the error
 *
 * The list follows the order of the shards and is built from their done files, so it is the same
 * for any number of threads and after any kill; after a passed limit, it depends on how far the
 * other threads were.
 * Owner: pack. Threads: add, shard_complete, shard_failed: any round; the others: pack's own.
 * Memory: 8 bytes a shard, some 500 bytes for each listed sample. Bound: list_max samples, and
 * those of the shards being written. */
#ifndef TOOLS_PACK_LEFT_OUT_H
#define TOOLS_PACK_LEFT_OUT_H

#include "format/bad_sample/bad_sample_file.h"
#include "format/tar_recover/tar_recover.h"
#include "tools/pack/shard_file.h"
#include "tools/pack/staging.h"

#include <pthread.h>

struct stk_left_out_options {
    const char *quarantine; /* borrowed by open; NULL: none */
    bool skip;              /* false: the first damaged sample is an error */
    uint64_t samples_max;   /* 0: no limit */
    double share_max;       /* 0: no limit */
    uint32_t list_max;
};

struct stk_left_out_unfinished;

struct stk_left_out {
    bool open;
    struct stk_left_out_options options; /* const; its quarantine is owned */
    const struct stk_staging *draft;     /* borrowed */
    const char *pattern;                 /* borrowed */
    const struct stk_tar_losses *losses; /* borrowed: samples that the scan of the source lost */
    uint64_t sample_count, most;         /* samples of the source, with losses; may be left out */
    uint64_t *of_shard;                  /* owned: samples left out of each complete shard */
    uint64_t shard_count;
    _Atomic uint64_t count;          /* so far, with those of an earlier run */
    struct stk_bad_sample_list list; /* owned: the first of them */
    pthread_mutex_t lock;
    struct {
        bool damaged; /* packing fails because of damage */
        struct stk_left_out_unfinished *unfinished;
    } locked;
};

/* draft, pattern: borrowed, and may be filled in later. Returns 0, or an error of the options. */
int stk_left_out_open(struct stk_left_out *left, const struct stk_left_out_options *options,
                      const struct stk_staging *draft, const char *pattern,
                      struct stoker_error *error);
void stk_left_out_close(struct stk_left_out *left); /* zeroed is allowed */
/* Before the work. Returns -EEXIST if the quarantine file exists and there is no unfinished work at
 * destination (without a '/' at its end) that may have created it. */
int stk_left_out_check(const struct stk_left_out *left, struct stk_io *io, const char *destination,
                       struct stoker_error *error);
/* Checks, before the work, that the quarantine file can be written: creates and removes its
 * temporary file. Call it with the file lock of the staging folder. */
int stk_left_out_check_writable(const struct stk_left_out *left, struct stk_io *io,
                                struct stoker_error *error);
/* After planning: sample_count samples in shard_count shards. The losses come first in the list;
 * without `skip` they are an error. */
int stk_left_out_begin(struct stk_left_out *left, const struct stk_tar_losses *losses,
                       uint64_t sample_count, uint64_t shard_count, struct stoker_error *error);
/* A shard of an earlier run is reused. */
void stk_left_out_shard_reused(struct stk_left_out *left, uint64_t shard, uint64_t count);
/* Returns 0, or STOKER_ERROR_LIMIT if too many samples were left out. */
int stk_left_out_check_limit(struct stk_left_out *left, struct stoker_error *error);
/* Drops the sample that was begun last in `out`, which is damaged as *error describes. Returns 0;
 * without `skip` the error of the sample; or STOKER_ERROR_LIMIT if too many were left out. */
int stk_left_out_add(struct stk_left_out *left, struct stk_shard_file *out, uint64_t sample,
                     struct stoker_error *error);
void stk_left_out_shard_complete(struct stk_left_out *left, uint64_t shard,
                                 struct stk_shard_file *out);
/* The shard failed: keeps its samples left out for the list, if there is memory. */
void stk_left_out_shard_failed(struct stk_left_out *left, uint64_t shard,
                               struct stk_shard_file *out);
/* After all shards are complete: writes the list to the quarantine file and to the staging folder.
 * Returns STOKER_ERROR_EMPTY if no sample remains. */
int stk_left_out_write_list(struct stk_left_out *left, struct stoker_error *error);
/* The same for an earlier run that was killed after it wrote the manifest. */
int stk_left_out_resume_list(struct stk_left_out *left, const struct stk_manifest *manifest,
                             struct stoker_error *error);
/* After all rounds, if packing failed with *error. If damage is the reason, writes the list and
 * adds a summary to *error. */
void stk_left_out_fail(struct stk_left_out *left, struct stoker_error *error);

#endif
