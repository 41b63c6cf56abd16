/* stoker/sampling.h: selects samples of a data set, and how they are drawn. */
#ifndef STOKER_SAMPLING_H
#define STOKER_SAMPLING_H

#include <stoker/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A selection of samples and the way to draw them. It is built once, as a table of a few bits a
 * sample (subset 1.3, weights 64, balance 32) in a file next to the data set's index or in the
 * cache; opening that file later costs nothing, and processes share its pages. Lists that the
 * caller passes are only in memory. One thread until it is built, then any thread.
 *
 * Columns: label (a number), class (its name), size (bytes of all members), key, shard (file name),
 * sample (its id); EXT: the text of a member, or its number if it is one; EXT.PATH: a value inside
 * of JSON, MessagePack or npz, as in fields ("json.boxes.0.width").
 *
 * Predicates have the syntax of Python: and or not, == != < <= > >=, in and not in with a list,
 * is none, COLUMN % number; texts in quotes. "label in (3, 7) and size > 10_000". A comparison with
 * a missing value is false. Columns are read from left to right and only if needed: put cheap ones
 * first. */
struct stoker_sampler;

struct stoker_sampler_options {
    size_t struct_size;
    /* Set at most one; none: all samples. Borrowed by open, as all pointers here. */
    const char *where;       /* a predicate */
    const uint64_t *samples; /* ids; duplicates count once */
    uint64_t sample_count;
    const char *const *keys; /* all samples with one of these keys */
    uint64_t key_count;
    /* Set at most one; none: each sample once in an epoch. */
    uint8_t replacement;   /* 1: draw with replacement, all with the same probability */
    const char *weight;    /* draw with replacement, weights from this column */
    const double *weights; /* the same with these weights: one for each sample of the data set */
    uint64_t weight_count;
    const char *balance; /* draw each value of this column equally often; the samples of a value
                            take turns */
    uint32_t tables;     /* enum stoker_index_use, for table files; default auto */
};

/* Opens the sampler; if a table exists it is built, else stoker_sampler_next() builds it. Keeps the
 * data set alive. Returns 0 and sets *sampler_out; STOKER_ERROR_ARGUMENT if a predicate or an
 * option is invalid. */
STOKER_API int stoker_sampler_open(struct stoker_sampler **sampler_out,
                                   struct stoker_dataset *dataset,
                                   const struct stoker_sampler_options *options,
                                   struct stoker_error *error);
/* Builds the table for about timeout_ms on the caller's and the engine's threads. Returns 1 if
 * there is more to do; 0 once it is built; STOKER_ERROR_EMPTY if no sample is selected;
 * STOKER_ERROR_MISSING if a key does not exist; the error of a damaged column. */
STOKER_API int stoker_sampler_next(struct stoker_sampler *sampler, uint32_t timeout_ms,
                                   struct stoker_error *error);

struct stoker_sampler_info {
    size_t struct_size;
    uint8_t ready;
    uint64_t sample_count, scanned; /* of the data set; scanned 0: a table file was used */
    uint64_t count, class_count; /* selected samples; classes of balance. Set once it is built, as
                                    table_bytes */
    uint64_t table_bytes, scan_ns;
    const char *table_path; /* NULL: in memory. Valid until the sampler is closed, as the next */
    const char *table_note; /* why no table file was used or written; or empty */
};
/* Returns 0 and fills *info_out; STOKER_ERROR_ARGUMENT if struct_size is wrong. */
STOKER_API int stoker_sampler_info(const struct stoker_sampler *sampler,
                                   struct stoker_sampler_info *info_out);
/* Takes ownership; NULL is allowed. Loaders of the sampler keep it alive. */
STOKER_API void stoker_sampler_close(struct stoker_sampler *sampler);

/* Selected samples in place of all, each once. Stages follow each other: a curriculum is a list of
 * subsets with the positions at which they start. A stage goes through its samples in passes, each
 * pass in another order; with replacement there are no passes. */
struct stoker_sampling_stage {
    uint64_t position;                    /* of the run, over all epochs: 0 for the first stage */
    const struct stoker_sampler *sampler; /* built; NULL: all samples, each once a pass */
};

struct stoker_sampling_options { /* all pointers are borrowed during open */
    size_t struct_size;
    const struct stoker_sampling_stage *stages;
    size_t stage_count; /* at most 256; 0: one stage of all samples */
    uint32_t repeats;   /* how often each sample is repeated, each time with a new augmentation;
                           default 1 */
    uint32_t repeat_distance; /* positions between two repeats; default 1: adjacent */
    uint64_t epoch_samples;   /* length of an epoch of the run; default: one pass of the largest
                                 stage, with all repeats */
};

#ifdef __cplusplus
}
#endif
#endif
