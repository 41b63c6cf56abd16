/* tools/pack/left_out.h: the samples that pack leaves out: noted in their shards, weighed, listed
 * at the end.
 *
 *   damaged: -take-> the shard's done file --+-> all shards whole: list -> stoker.left, quarantine
 *                    (count: too many? LIMIT)+-> ended by damage:  tell -> quarantine, a sentence
 *
 * What is told follows the shards, and is all in their done files: so it is the same whatever the
 * threads and the kills. Only how far the others were when a limit was passed is not.
 * Owner: pack. Threads: take, whole, give_up: any round; else pack's own.
 * Memory: 8 bytes a shard, some 500 bytes a sample of the list. Bound: list_max samples, and those
 * of the shards in work. */
#ifndef TOOLS_PACK_LEFT_OUT_H
#define TOOLS_PACK_LEFT_OUT_H

#include "format/bad_sample/bad_sample_file.h"
#include "format/tar_recover/tar_recover.h"
#include "tools/pack/shard_file.h"
#include "tools/pack/staging.h"

#include <pthread.h>

struct stk_left_out_options {
    const char *quarantine; /* borrowed by open; NULL: none */
    bool skip;              /* else the first damaged sample is the end */
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
    const struct stk_tar_losses *losses; /* borrowed: what the source's scan could not take */
    uint64_t sample_count, most;         /* of the source, losses too; may be left out */
    uint64_t *of_shard;                  /* owned: of each that is whole; by its round */
    uint64_t shard_count;
    _Atomic uint64_t count;          /* so far, also by an earlier run */
    struct stk_bad_sample_list list; /* owned: the first of them */
    pthread_mutex_t lock;
    struct {
        bool damaged; /* that is what ends the work */
        struct stk_left_out_unfinished *unfinished;
    } locked;
};

/* draft, pattern: borrowed; they may be filled in later. */
int stk_left_out_open(struct stk_left_out *left, const struct stk_left_out_options *options,
                      const struct stk_staging *draft, const char *pattern,
                      struct stoker_error *error);
void stk_left_out_close(struct stk_left_out *left); /* zeroed is fine */
/* Before the work: -EEXIST where the quarantine is there, and no unfinished work at destination
 * (without a '/' at its end) that may have made it. */
int stk_left_out_check(const struct stk_left_out *left, struct stk_io *io, const char *destination,
                       struct stoker_error *error);
/* Whether the quarantine can be written at all: at the end of the work it would be late to know.
 * Under the draft's lock, for it makes the file that a run writes, and takes it away. */
int stk_left_out_check_writable(const struct stk_left_out *left, struct stk_io *io,
                                struct stoker_error *error);
/* The plan is there: sample_count samples in shard_count shards. The losses are the first on the
 * list, and under raise the end. */
int stk_left_out_begin(struct stk_left_out *left, const struct stk_tar_losses *losses,
                       uint64_t sample_count, uint64_t shard_count, struct stoker_error *error);
/* A shard of an earlier run stays. */
void stk_left_out_shard_reused(struct stk_left_out *left, uint64_t shard, uint64_t count);
/* LIMIT: that were too many. */
int stk_left_out_check_limit(struct stk_left_out *left, struct stoker_error *error);
/* The sample that was begun last in `out` is damaged, as *error says: it is taken back. Under
 * raise that stays the error; LIMIT: it is one too many. */
int stk_left_out_add(struct stk_left_out *left, struct stk_shard_file *out, uint64_t sample,
                     struct stoker_error *error);
void stk_left_out_shard_complete(struct stk_left_out *left, uint64_t shard,
                                 struct stk_shard_file *out);
/* The shard failed: what it had left out is kept for the list (not without memory). */
void stk_left_out_shard_failed(struct stk_left_out *left, uint64_t shard,
                               struct stk_shard_file *out);
/* All shards are whole: the list goes to the quarantine, and to the draft. EMPTY: nothing is left.
 */
int stk_left_out_write_list(struct stk_left_out *left, struct stoker_error *error);
/* The same of an earlier run that was ended behind its manifest. */
int stk_left_out_resume_list(struct stk_left_out *left, const struct stk_manifest *manifest,
                             struct stoker_error *error);
/* The work ended with *error. If that is for damage: its list, and a sentence. All rounds ended. */
void stk_left_out_fail(struct stk_left_out *left, struct stoker_error *error);

#endif
