/* The scan: evaluates the predicate, the weight and the class of each sample, then makes the
 * tables. A round is a range of samples, so no two rounds write the same word, and the result does
 * not depend on the number of threads. */
#include "loader/sampler/sampler.h"

#include "base/compare.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_SAMPLES 4096u /* a multiple of 64 */
#define ROUNDS 8u           /* rounds of a worker between two checks of the clock */

static bool is_weighted(const struct stoker_sampler *sampler)
{
    return sampler->weight.is_set || sampler->weights;
}

int stk_sampler_scan_begin(struct stoker_sampler *sampler, struct stoker_error *error)
{
    uint64_t count = sampler->chooser.sample_count, bytes = count / 4;
    int status;

    bytes += sampler->weight.is_set ? count * 8 : 0;
    bytes += is_weighted(sampler) ? count * 12 : 0; /* the numbers, and the table twice */
    bytes += sampler->balance.is_set ? count * 20 : 0;
    bytes += sampler->listed_count * 8;
    bytes += sampler->weights ? count * 8 : 0;
    status = stk_engine_reserve(sampler->engine, bytes, 0, "tables of selected samples", error);
    if (status < 0) {
        return status;
    }
    sampler->reserved = bytes;
    status = stk_subset_init(&sampler->subset, count, error);
    if (status == 0 && sampler->weight.is_set) {
        sampler->weights = stk_alloc(stk_max(count, 1), sizeof *sampler->weights);
        status = sampler->weights ? 0 : stk_fail_memory(error, "sampler");
    }
    if (status == 0 && sampler->balance.is_set) {
        sampler->classes = stk_alloc(stk_max(count, 1), sizeof *sampler->classes);
        status = sampler->classes ? 0 : stk_fail_memory(error, "sampler");
    }
    sampler->started_ns = stk_engine_now(sampler->engine);
    return status;
}

/* ---- one sample ---- */

static int compare_key(const void *wanted, const void *entry)
{
    const struct stk_view *key = wanted;
    const char *other = *(const char *const *)entry;
    int order = strncmp((const char *)key->data, other, key->bytes);

    return order != 0 || other[key->bytes] == '\0' ? order : -1;
}

static bool is_listed_key(struct stoker_sampler *sampler, struct stk_view key)
{
    const char **entry =
        key.bytes > 0 && sampler->key_count > 0
            ? bsearch(&key, sampler->keys, sampler->key_count, sizeof *sampler->keys, compare_key)
            : NULL;

    if (entry) {
        atomic_store_explicit(&sampler->found[entry - sampler->keys], 1, memory_order_relaxed);
    }
    return entry != NULL;
}

/* Returns 1 if the sample is selected, 0 if not, or an error. */
static int is_chosen(struct stoker_sampler *sampler, struct stk_sample_row *row,
                     struct stoker_error *error)
{
    struct stk_predicate_value values[STK_PREDICATE_COLUMNS_MAX];
    uint32_t column;
    int answer;

    if (sampler->keys) {
        return is_listed_key(sampler, row->sample.key);
    }
    if (!sampler->has_query) {
        return 1;
    }
    memset(values, 0, sampler->query.column_count * sizeof *values);
    while ((answer = stk_predicate_evaluate(&sampler->query, values, &column)) < 0) {
        int status =
            stk_sample_row_value(row, &sampler->columns[column], column, &values[column], error);

        if (status < 0) {
            return status;
        }
    }
    return answer;
}

static int read_weight(struct stoker_sampler *sampler, struct stk_sample_row *row,
                       struct stoker_error *error)
{
    struct stk_predicate_value value;
    double weight = -1;
    int status = stk_sample_row_value(row, &sampler->weight.column, STK_SAMPLE_ROW_VALUES - 1,
                                      &value, error);

    if (status < 0) {
        return status;
    }
    weight = value.kind == STK_PREDICATE_INT       ? (double)value.integer
             : value.kind == STK_PREDICATE_NATURAL ? (double)value.natural
             : value.kind == STK_PREDICATE_REAL    ? value.real
                                                   : weight;
    if (!(weight >= 0 && weight <= 1e300)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a sample has no weight",
                        "a weight is a number of at least 0; select only samples that have one",
                        "sample %llu key '%.*s'", (unsigned long long)row->number,
                        (int)stk_min(row->sample.key.bytes, 200),
                        (const char *)row->sample.key.data);
    }
    sampler->weights[row->number] = weight;
    return 0;
}

/* A value is identified by a hash of 64 bits; 3 and 3.0 are the same class. */
static int read_class(struct stoker_sampler *sampler, struct stk_sample_row *row,
                      struct stoker_error *error)
{
    struct stk_predicate_value value;
    uint64_t hash = 0;
    int status = stk_sample_row_value(row, &sampler->balance.column, STK_SAMPLE_ROW_VALUES - 1,
                                      &value, error);

    if (status < 0) {
        return status;
    }
    if (value.kind == STK_PREDICATE_REAL && value.real >= -9e15 && value.real <= 9e15 &&
        (double)(int64_t)value.real == value.real) {
        value =
            (struct stk_predicate_value){.kind = STK_PREDICATE_INT, .integer = (int64_t)value.real};
    }
    switch ((enum stk_predicate_kind)value.kind) {
    case STK_PREDICATE_INT:
        hash = stk_random_key(STK_PREDICATE_INT, (uint64_t)value.integer);
        break;
    case STK_PREDICATE_NATURAL:
        hash = stk_random_key(STK_PREDICATE_NATURAL, value.natural);
        break;
    case STK_PREDICATE_REAL:
        hash = stk_random_key(STK_PREDICATE_REAL, stk_xxh3_64(&value.real, sizeof value.real));
        break;
    case STK_PREDICATE_TEXT:
        hash = stk_random_key(STK_PREDICATE_TEXT, stk_xxh3_64(value.text.data, value.text.bytes));
        break;
    case STK_PREDICATE_UNKNOWN:
    case STK_PREDICATE_NONE:
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a sample has no value to balance by",
                        "select only samples that have one", "sample %llu key '%.*s'",
                        (unsigned long long)row->number, (int)stk_min(row->sample.key.bytes, 200),
                        (const char *)row->sample.key.data);
    }
    sampler->classes[row->number] = hash;
    return 0;
}

static int scan_round(void *context, uint64_t round, struct stoker_error *error)
{
    struct stoker_sampler *sampler = context;
    uint64_t first = sampler->scanned + round * ROUND_SAMPLES;
    uint64_t end = stk_min(first + ROUND_SAMPLES, sampler->chooser.sample_count);
    struct stk_sample_row *row = stk_alloc(1, sizeof *row);
    int status = row ? 0 : stk_fail_memory(error, "sampler");

    if (row) {
        row->dataset = sampler->dataset;
        row->worker = stk_worker_current(sampler->engine);
    }
    for (uint64_t i = first; i < end && status == 0; i++) {
        int chosen;

        status = stk_sample_row_set(row, i, error);
        chosen = status < 0 ? status : is_chosen(sampler, row, error);
        if (chosen == 1 && sampler->weight.is_set) {
            status = read_weight(sampler, row, error);
        } else if (chosen == 1 && sampler->balance.is_set) {
            status = read_class(sampler, row, error);
        }
        if (chosen == 1) {
            stk_subset_add(&sampler->subset, i);
        }
        status = chosen < 0 ? chosen : status;
    }
    if (row) {
        stk_sample_row_close(row);
    }
    stk_free(row);
    return status;
}

int stk_sampler_scan_next(struct stoker_sampler *sampler, uint32_t timeout_ms,
                          struct stoker_error *error)
{
    uint64_t start = stk_engine_now(sampler->engine);
    uint64_t some = (uint64_t)ROUNDS * sampler->engine->worker_count;

    if (!sampler->has_query && !sampler->keys && !sampler->weight.is_set &&
        !sampler->balance.is_set) {
        for (uint64_t i = 0; i < sampler->listed_count; i++) {
            stk_subset_add(&sampler->subset, sampler->listed[i]);
        }
        if (!sampler->listed) {
            stk_subset_invert(&sampler->subset); /* all */
        }
        sampler->scanned = sampler->chooser.sample_count;
        return 0;
    }
    while (sampler->scanned < sampler->chooser.sample_count) {
        uint64_t left = sampler->chooser.sample_count - sampler->scanned;
        uint64_t rounds = stk_min(some, (left + ROUND_SAMPLES - 1) / ROUND_SAMPLES);
        int status =
            stk_engine_parallel_sandboxed(sampler->engine, rounds, scan_round, sampler, error);

        if (status < 0) {
            return status;
        }
        sampler->scanned += stk_min(left, rounds * ROUND_SAMPLES);
        if (stk_engine_now(sampler->engine) - start >= (uint64_t)timeout_ms * 1000000) {
            break;
        }
    }
    sampler->scan_ns = stk_engine_now(sampler->engine) - sampler->started_ns;
    return sampler->scanned < sampler->chooser.sample_count;
}

/* ---- the tables ---- */

static int check_keys(const struct stoker_sampler *sampler, struct stoker_error *error)
{
    for (uint64_t i = 0; i < sampler->key_count; i++) {
        if (!sampler->found[i]) {
            return stk_fail(error, STOKER_ERROR_MISSING, "no sample has this key",
                            "'stoker ls PATH' lists the keys", "'%.200s'", sampler->keys[i]);
        }
    }
    return 0;
}

/* Converts weights to integers of 32 bits: unchanged if they are such, else scaled by the largest
 * one. A positive weight never becomes 0. */
static uint32_t integer_weight(double weight, double largest, bool is_integer)
{
    double part = is_integer ? weight : weight / largest * 4294967295.0;

    return weight > 0 && part < 1 ? 1 : (uint32_t)part;
}

static int make_alias(const struct stoker_sampler *sampler, const struct stk_subset *subset,
                      struct stk_alias_table *alias, struct stoker_error *error)
{
    uint32_t *weights = stk_alloc(stk_max(subset->count, 1), sizeof *weights);
    double largest = 0;
    bool is_integer = true;
    int status;

    if (!weights) {
        return stk_fail_memory(error, "sampler");
    }
    for (uint64_t k = 0; k < subset->count; k++) {
        double weight = sampler->weights[stk_subset_select(subset, k)];

        largest = weight > largest ? weight : largest;
        is_integer = is_integer && weight <= 4294967295.0 && (double)(uint32_t)weight == weight;
    }
    for (uint64_t k = 0; k < subset->count; k++) {
        weights[k] =
            integer_weight(sampler->weights[stk_subset_select(subset, k)], largest, is_integer);
    }
    status = stk_alias_table_init(alias, weights, subset->count, error);
    stk_free(weights);
    return status;
}

/* Classes are numbered by their hashes. */
static int make_classes(const struct stoker_sampler *sampler, const struct stk_subset *subset,
                        struct stk_class_balance *classes, struct stoker_error *error)
{
    uint64_t count = subset->count, different = 0;
    uint64_t *hashes = stk_alloc(stk_max(count, 1), sizeof *hashes);
    uint32_t *labels = stk_alloc(stk_max(count, 1), sizeof *labels);
    int status = hashes && labels && count <= UINT32_MAX ? 0 : stk_fail_memory(error, "sampler");

    for (uint64_t k = 0; status == 0 && k < count; k++) {
        hashes[k] = sampler->classes[stk_subset_select(subset, k)];
    }
    if (status == 0) {
        qsort(hashes, count, sizeof *hashes, stk_compare_u64);
        for (uint64_t k = 0; k < count; k++) {
            if (k == 0 || hashes[k] != hashes[k - 1]) {
                hashes[different++] = hashes[k];
            }
        }
        for (uint64_t k = 0; k < count; k++) {
            uint64_t hash = sampler->classes[stk_subset_select(subset, k)];
            uint64_t *found = bsearch(&hash, hashes, different, sizeof *hashes, stk_compare_u64);

            labels[k] = (uint32_t)(found - hashes);
        }
        status = stk_class_balance_init(classes, labels, count, (uint32_t)different, error);
    }
    stk_free(hashes);
    stk_free(labels);
    return status;
}

int stk_sampler_scan_finish(struct stoker_sampler *sampler, struct stoker_error *error)
{
    struct stk_subset *subset = &sampler->subset;
    struct stk_alias_table alias = {0};
    struct stk_class_balance classes = {0};
    struct stk_sampling_table_content content = {.sample_count = sampler->chooser.sample_count};
    bool is_part = sampler->has_query || sampler->keys || sampler->listed;
    int status = check_keys(sampler, error);

    stk_subset_freeze(subset);
    if (status == 0 && subset->count == 0) {
        status = stk_fail(error, STOKER_ERROR_EMPTY, "no sample is chosen",
                          "change the subset: 'stoker sample' counts the samples",
                          "0 of %llu samples", (unsigned long long)sampler->chooser.sample_count);
    }
    if (status == 0 && is_weighted(sampler)) {
        status = make_alias(sampler, subset, &alias, error);
    } else if (status == 0 && sampler->balance.is_set) {
        status = make_classes(sampler, subset, &classes, error);
    }
    if (status == 0) {
        content.subset = is_part ? subset : NULL;
        content.alias = alias.count ? &alias : NULL;
        content.classes = classes.class_count ? &classes : NULL;
        memcpy(content.identity, stk_index_identity(sampler->dataset->index), 32);
        memcpy(content.rule_digest, sampler->choice_digest, 32);
        content.data_stamp = stk_dataset_stamp(sampler->dataset);
        status = stk_sampling_table_image(&content, &sampler->image, error);
    }
    stk_alias_table_deinit(&alias);
    stk_class_balance_deinit(&classes);
    stk_subset_deinit(subset);
    stk_free(sampler->weights);
    stk_free(sampler->classes);
    stk_free(sampler->listed);
    sampler->weights = NULL;
    sampler->classes = NULL;
    sampler->listed = NULL;
    return status;
}
