/* loader/sampler/sampler.h: struct stoker_sampler: selects samples of a data set, and how often
 * each is drawn.
 *
 *   open --a table of the same options and data exists--> mapped --------------------------+
 *     |                                                                                    v
 *     +--> scan: columns of samples -> bits, weights, classes --> table, written ---> ready for
 * loaders (next: in slices, on the caller and the workers)       beside the index
 *
 * Owner: the user and the loaders on it (one reference each). Threads: one until it is ready, then
 * any. Memory: while it scans a bit a sample, and 12 bytes for weights or balance; a table that is
 * not in a file: its bytes; all from the engine's budget. Bound: that of the tables. */
#ifndef LOADER_SAMPLER_SAMPLER_H
#define LOADER_SAMPLER_SAMPLER_H

#include "dataset/dataset.h"
#include "format/value/value.h"
#include "order/delivered.h"
#include "order/predicate/predicate.h"
#include "order/sampling/sampling_table.h"
#include "order/schedule/mix_copy.h"
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

/* Returns 0 on success, STOKER_ERROR_ARGUMENT if the data set has no such column. */
int stk_sample_column_open(struct stk_sample_column *column, const struct stoker_dataset *dataset,
                           const char *name, struct stoker_error *error);
void stk_sample_column_close(struct stk_sample_column *column); /* zeroed is fine */

/* The sample whose columns are read. Threads: one. Memory: its members' bytes, parsed. */
#define STK_SAMPLE_ROW_VALUES (STK_PREDICATE_COLUMNS_MAX + 1)
struct stk_sample_row {
    struct stoker_dataset *dataset; /* borrowed */
    struct stk_worker *worker;      /* of this thread; its sandbox parses members; or NULL */
    uint64_t number;
    struct stk_sample sample;
    char path[STK_PATH_BYTES_MAX]; /* of its shard */
    struct {
        uint8_t *bytes;          /* owned: of a member */
        size_t capacity;         /* reserved, as the next */
        uint64_t reserved_bytes; /* memory bound of the value */
        struct stk_value value;  /* open where encoding is not 0 */
    } values[STK_SAMPLE_ROW_VALUES];
};

/* Moves the row to another sample; its values become invalid. */
int stk_sample_row_set(struct stk_sample_row *row, uint64_t number, struct stoker_error *error);
void stk_sample_row_close(struct stk_sample_row *row); /* zeroed is fine */
/* Reads a column. slot: the column's number in the row. The value is a view until the row moves. A
 * sample without such a member or path has the value NONE. Returns 0 on success, or the error of a
 * damaged member. */
int stk_sample_row_value(struct stk_sample_row *row, const struct stk_sample_column *column,
                         uint32_t slot, struct stk_predicate_value *value_out,
                         struct stoker_error *error);

/* ---- the sampler ---- */

struct stk_sampler_column { /* weights, or classes */
    struct stk_sample_column column;
    bool is_set;
};

/* Of one index: with more, the table that was not used for the longest time is removed. */
#define STK_SAMPLER_TABLES_MAX 64u

struct stoker_sampler {
    struct stk_sampling_source chooser; /* first: pure rooms see this part only */
    struct stoker_dataset *dataset;     /* one reference */
    struct stoker_engine *engine;
    _Atomic uint32_t references;
    /* The options; constant after open. */
    struct stk_predicate query;
    struct stk_sample_column columns[STK_PREDICATE_COLUMNS_MAX];
    bool has_query, replacement;
    struct stk_sampler_column weight, balance;
    double *weights;  /* owned: one a sample, from the options or a column */
    uint64_t *listed; /* owned: samples of the options */
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
    struct stk_subset subset; /* of the samples scanned so far */
    uint64_t *classes;        /* owned: a hash of each sample's value */
    _Atomic uint64_t scanned;
    uint64_t started_ns, scan_ns, reserved;
    /* Ready. */
    bool is_mapped;
    struct stk_view image;
    struct stk_sampling_table *table;
    char path[STK_PATH_BYTES_MAX + 32]; /* of the table; "": in memory */
    char note[512];
    int failed; /* the status of the scan that failed; 0: none. Its columns are gone */
    struct stoker_error failure;
};

void stk_sampler_retain(struct stoker_sampler *sampler);
void stk_sampler_release(struct stoker_sampler *sampler);
/* The sampling rule of a sampler that is ready. */
struct stk_sampling_rule stk_sampler_choice(const struct stoker_sampler *sampler);

/* ---- the sampling of a run (run_sampling.c) ---- */

struct stk_run_sampling {
    struct stoker_sampling_options options; /* a copy; zeroed: none */
    struct stoker_sampling_stage *stages;   /* owned, with a reference of their samplers */
    struct stoker_sampler **samplers;       /* owned, with a reference: of the sources of a mix */
    uint32_t sampler_count;
    struct stk_mix_copy mix;
};

/* Opens the schedule of a run on this data set; the shards of the request are set here. Returns 0
 * on success, STOKER_ERROR_ARGUMENT if a sampler belongs to another data set,
 * STOKER_ERROR_UNSUPPORTED for compressed shards without seek points, or a folder with a two-level
 * shuffle. */
int stk_run_sampling_open(struct stk_run_sampling *sampling, struct stk_schedule *schedule,
                          struct stoker_dataset *dataset, const struct stk_order_options *order,
                          const struct stk_schedule_request *request, struct stoker_error *error);
/* Checks whether the mapped tables are what they were, in all that was used of them. Returns 0 on
 * success, STOKER_ERROR_CHANGED, -EIO. */
int stk_run_sampling_check_maps(const struct stk_run_sampling *sampling,
                                struct stoker_error *error);
void stk_run_sampling_close(struct stk_run_sampling *sampling); /* zeroed is fine */
/* Opens another schedule of the same run, with other settings of the order. It borrows the tables
 * of the sampling. */
int stk_run_sampling_reopen(const struct stk_run_sampling *sampling, struct stk_schedule *schedule,
                            struct stoker_dataset *dataset, const struct stk_order_options *order,
                            struct stoker_error *error);

/* ---- the fingerprint of a run (run_fingerprint.c) ---- */

/* Computes the fingerprint of the delivered steps of a schedule, on the engine's threads. The
 * engine's lock is not held. Returns 0 on success, -ENOMEM, STOKER_ERROR_CORRUPT if a table was
 * damaged since it was opened. */
int stk_run_fingerprint_get(struct stoker_engine *engine, const struct stk_schedule *schedule,
                            const struct stk_partition *partition,
                            const struct stk_delivered *given, uint64_t *sum_out);

/* Moves the state of a loader back to a position, at most to->steps steps before it. Returns 0 on
 * success, STOKER_ERROR_ARGUMENT if the loader did not pass that position, or as above. */
int stk_run_fingerprint_rewind(struct stoker_engine *engine, const struct stk_schedule *schedule,
                               const struct stk_partition *partition,
                               const struct stk_delivered_span *to, struct stoker_state *state);

/* ---- the scan (sampler_scan.c) ---- */

int stk_sampler_scan_begin(struct stoker_sampler *sampler, struct stoker_error *error);
/* Scans some rounds. Returns 1 if samples are left, 0 at the end, or an error. */
int stk_sampler_scan_next(struct stoker_sampler *sampler, uint32_t timeout_ms,
                          struct stoker_error *error);
/* Makes the image of a table from the scanned columns. */
int stk_sampler_scan_finish(struct stoker_sampler *sampler, struct stoker_error *error);

/* ---- the file (sampler_table_file.c) ---- */

/* Returns 1 if the table was mapped, 0 if none exists, or it is stale or damaged (see note). */
int stk_sampler_table_find(struct stoker_sampler *sampler, struct stoker_error *error);
/* Writes the image to the first writable place, and maps it. If none is writable it stays in
 * memory. */
int stk_sampler_table_write(struct stoker_sampler *sampler, struct stoker_error *error);

#endif
