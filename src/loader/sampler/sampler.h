/* loader/sampler/sampler.h: which samples of a data set, and how they are drawn: `struct
 * stoker_sampler`.
 *
 *   open --a table of the same sampling_args and data is there--> mapped -----------+
 *     |                                                                      v
 *     +--> scan: rounds of samples, columns -> bits, weights, classes --> made: sampling_args for
 * loaders (next: in slices, on the caller and the workers)     | table written beside the index,
 * mapped
 *
 * Owner: the user and the loaders on it (one reference each). Threads: one until it is made, then
 * any. Memory: while scanning a bit a sample, and 12 bytes for weights or balance; a table that is
 * not in a file: its bytes: all of it from the engine's budget. Bound: that of the tables. */
#ifndef LOADER_SAMPLER_SAMPLER_H
#define LOADER_SAMPLER_SAMPLER_H

#include "dataset/dataset.h"
#include "format/value/value.h"
#include "order/delivered.h"
#include "order/predicate/predicate.h"
#include "order/sampling/sampling_table.h"
#include "order/schedule/schedule.h"

/* ---- columns (sample_column.c) ---- */

enum stk_sample_column_kind {
    STK_SAMPLE_COLUMN_LABEL,
    STK_SAMPLE_COLUMN_CLASS,
    STK_SAMPLE_COLUMN_SIZE,
    STK_SAMPLE_COLUMN_KEY,
    STK_SAMPLE_COLUMN_SHARD,
    STK_SAMPLE_COLUMN_SAMPLE,
    STK_SAMPLE_COLUMN_MEMBER,
};

struct stk_sample_column {
    uint32_t kind;   /* enum stk_sample_column_kind */
    char *extension; /* owned: of a member */
    char *path;      /* owned: inside of it; "" */
};

/* ARGUMENT: the data set has no such column. */
int stk_sample_column_open(struct stk_sample_column *column, const struct stoker_dataset *dataset,
                           const char *name, struct stoker_error *error);
void stk_sample_column_close(struct stk_sample_column *column); /* zeroed is fine */

/* A sample that is being asked. Threads: one. Memory: its members' bytes, parsed. */
#define STK_SAMPLE_ROW_VALUES (STK_PREDICATE_COLUMNS_MAX + 1)
struct stk_sample_row {
    struct stoker_dataset *dataset; /* borrowed */
    struct stk_worker *worker;      /* whose thread this is, and whose helper parses; or NULL */
    uint64_t number;
    struct stk_sample sample;
    char path[STK_PATH_BYTES_MAX]; /* of its shard */
    struct {
        uint8_t *bytes;         /* owned: of a member */
        size_t capacity;        /* reserved, as the next */
        uint64_t ticket;        /* what the value may take */
        struct stk_value value; /* open where encoding is not 0 */
    } values[STK_SAMPLE_ROW_VALUES];
};

/* The row turns to another sample; what it lent ends. */
int stk_sample_row_set(struct stk_sample_row *row, uint64_t number, struct stoker_error *error);
void stk_sample_row_close(struct stk_sample_row *row); /* zeroed is fine */
/* slot: the column's number in the row. The value is lent until the next turn. Fails for damage; a
 * sample without such a member or place has NONE. */
int stk_sample_row_value(struct stk_sample_row *row, const struct stk_sample_column *column,
                         uint32_t slot, struct stk_predicate_value *value_out,
                         struct stoker_error *error);

/* ---- the sampler ---- */

struct stk_sampler_column { /* weights, or classes */
    struct stk_sample_column column;
    bool is_set;
};

struct stoker_sampler {
    struct stk_sampling_source chooser; /* first, for rooms that are pure */
    struct stoker_dataset *dataset;     /* held */
    struct stoker_engine *engine;
    _Atomic uint32_t references;
    /* What was asked for; const after open. */
    struct stk_predicate query;
    struct stk_sample_column columns[STK_PREDICATE_COLUMNS_MAX];
    bool has_query, replacement;
    struct stk_sampler_column weight, balance;
    double *weights;  /* owned: given, one a sample; or read */
    uint64_t *listed; /* owned: samples that were given */
    uint64_t listed_count;
    const char **keys;      /* owned, into key_text, sorted */
    char *key_text;         /* owned */
    _Atomic uint8_t *found; /* owned: of each key */
    uint64_t key_count;
    uint32_t table_use; /* enum stoker_index_use */
    bool writes_file;
    uint8_t choice_digest[32];
    uint64_t subset_identity, draws_identity;
    /* Scanning. */
    struct stk_subset subset; /* of what was scanned so far */
    uint64_t *classes;        /* owned: a hash of each sample's value */
    _Atomic uint64_t scanned;
    uint64_t started_ns, scan_ns, reserved;
    /* Made. */
    bool is_mapped;
    struct stk_view image;
    struct stk_sampling_table *table;
    char path[STK_PATH_BYTES_MAX + 32]; /* of the table; "": in memory */
    char note[512];
};

void stk_sampler_retain(struct stoker_sampler *sampler);
void stk_sampler_release(struct stoker_sampler *sampler);
/* It is made. */
struct stk_sampling_rule stk_sampler_choice(const struct stoker_sampler *sampler);

/* ---- what a loader keeps (run_sampling.c) ---- */

struct stk_run_sampling {
    struct stoker_sampling_options options; /* a copy; zeroed: none was given */
    struct stoker_sampling_stage *stages;   /* owned, and their samplers held */
    struct stoker_sampler **samplers;       /* owned, and held: of the sources of a mix */
    uint32_t sampler_count;
};

/* Opens the schedule of a run on this data set; the request's shards are filled in here. given:
 * NULL for none. ARGUMENT: a sampler is another data set's; UNSUPPORTED: packed shards, or a folder
 * by two levels. */
int stk_run_sampling_open(struct stk_run_sampling *sampling, struct stk_schedule *schedule,
                          struct stoker_dataset *dataset, const struct stk_order_options *order,
                          const struct stk_schedule_request *request, struct stoker_error *error);
void stk_run_sampling_close(struct stk_run_sampling *sampling); /* zeroed is fine */

/* ---- what a run gave (run_fingerprint.c) ---- */

/* The fingerprint of steps that a loader on this schedule gave, on the engine's threads; its lock
 * is not held. -ENOMEM; CORRUPT: a table was damaged since. */
int stk_run_fingerprint_get(struct stoker_engine *engine, const struct stk_schedule *schedule,
                            const struct stk_partition *partition,
                            const struct stk_delivered *given, uint64_t *sum_out);

/* The state of a loader as it was at a place, at most to->steps turns and steps before it.
 * ARGUMENT: it was not there; and as above. */
int stk_run_fingerprint_rewind(struct stoker_engine *engine, const struct stk_schedule *schedule,
                               const struct stk_partition *partition,
                               const struct stk_delivered_span *to, struct stoker_state *state);

/* ---- the scan (sampler_scan.c) ---- */

int stk_sampler_scan_begin(struct stoker_sampler *sampler, struct stoker_error *error);
/* Some rounds. 1: there is more. */
int stk_sampler_scan_next(struct stoker_sampler *sampler, uint32_t timeout_ms,
                          struct stoker_error *error);
/* From what was scanned to the image of a table. */
int stk_sampler_scan_finish(struct stoker_sampler *sampler, struct stoker_error *error);

/* ---- the file (sampler_table_file.c) ---- */

/* 1: mapped; 0: none is there, or a stale or damaged one (noted). */
int stk_sampler_table_find(struct stoker_sampler *sampler, struct stoker_error *error);
/* Writes the image where it can, and maps it. Where nothing can be written it stays in memory. */
int stk_sampler_table_write(struct stoker_sampler *sampler, struct stoker_error *error);

#endif
