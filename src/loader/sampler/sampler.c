/* The public functions of a sampler: open, next, info, close. */
#include "loader/sampler/sampler.h"

#include "base/compare.h"
#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/memory_budget.h"
#include "base/options.h"
#include "base/random.h"
#include "base/xxh3.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHOICE_TEXT "stoker table 1"

static int copy_choice(struct stoker_sampler *sampler, const struct stoker_sampler_options *options,
                       struct stoker_error *error);
static int digest_choice(struct stoker_sampler *sampler,
                         const struct stoker_sampler_options *options, struct stoker_error *error);
static int complete(struct stoker_sampler *sampler, struct stoker_error *error);
static void make_choice(struct stoker_sampler *sampler, bool is_made);

static int resolve(struct stoker_sampler_options *options,
                   const struct stoker_sampler_options *given, struct stoker_error *error)
{
    int ways, draws;
    int status = stk_options_read(options, sizeof *options, sizeof options->struct_size, given,
                                  "sampler options", error);

    if (status < 0) {
        return status;
    }
    ways = (options->where != NULL) + (options->samples != NULL) + (options->keys != NULL);
    draws = (options->weight != NULL) + (options->weights != NULL) + (options->balance != NULL) +
            (options->replacement != 0);
    if (ways > 1 || draws > 1 || options->tables > STOKER_INDEX_REQUIRE) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "samples are selected in two ways at once",
                        "give one of where, samples and keys; and one of weight, weights, balance "
                        "and replacement",
                        "sampler options");
    }
    return 0;
}

int stoker_sampler_open(struct stoker_sampler **sampler_out, struct stoker_dataset *dataset,
                        const struct stoker_sampler_options *given, struct stoker_error *error)
{
    struct stoker_sampler_options options;
    struct stoker_sampler *sampler;
    int status = stk_engine_check(dataset->engine, error);

    *sampler_out = NULL;
    status = status < 0 ? status : resolve(&options, given, error);
    if (status < 0) {
        return status;
    }
    if (stk_index_is_sequential(dataset->index)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "compressed shards without seek points cannot be sampled",
                        "add seek points with 'stoker index --seek-points', or pack them again "
                        "with 'stoker pack'",
                        "sampler");
    }
    sampler = stk_alloc(1, sizeof *sampler);
    if (!sampler) {
        return stk_fail_memory(error, "sampler");
    }
    stk_dataset_retain(dataset);
    stk_engine_retain(dataset->engine);
    sampler->dataset = dataset;
    sampler->engine = dataset->engine;
    sampler->references = 1;
    sampler->chooser.sample_count = stk_index_samples(dataset->index);
    status = copy_choice(sampler, &options, error);
    if (status == 0) {
        status = digest_choice(sampler, &options, error);
        status = status < 0 ? status : stk_sampler_table_find(sampler, error);
    }
    make_choice(sampler, status == 1);
    status = status == 0 ? stk_sampler_scan_begin(sampler, error) : status;
    if (status < 0) {
        stk_sampler_release(sampler);
        return status;
    }
    *sampler_out = sampler;
    return 0;
}

/* ---- the options ---- */

static int copy_keys(struct stoker_sampler *sampler, const struct stoker_sampler_options *options,
                     struct stoker_error *error)
{
    uint64_t bytes = 0, at = 0, count = 0;

    for (uint64_t i = 0; i < options->key_count; i++) {
        bytes += strlen(options->keys[i]) + 1;
    }
    sampler->keys = stk_alloc(options->key_count + 1, sizeof *sampler->keys);
    sampler->found = stk_alloc(options->key_count + 1, sizeof *sampler->found);
    sampler->key_text = stk_alloc(bytes + 1, 1);
    if (!sampler->keys || !sampler->found || !sampler->key_text) {
        return stk_fail_memory(error, "sampler");
    }
    for (uint64_t i = 0; i < options->key_count; i++) {
        size_t length = strlen(options->keys[i]) + 1;

        sampler->keys[i] = memcpy(sampler->key_text + at, options->keys[i], length);
        at += length;
    }
    qsort(sampler->keys, options->key_count, sizeof *sampler->keys, stk_compare_texts);
    for (uint64_t i = 0; i < options->key_count;
         i++) { /* a sample that is listed twice counts once */
        if (i == 0 || strcmp(sampler->keys[i], sampler->keys[count - 1]) != 0) {
            sampler->keys[count++] = sampler->keys[i];
        }
    }
    sampler->key_count = count;
    return 0;
}

static int copy_samples(struct stoker_sampler *sampler,
                        const struct stoker_sampler_options *options, struct stoker_error *error)
{
    sampler->listed = stk_alloc(options->sample_count + 1, sizeof *sampler->listed);
    if (!sampler->listed) {
        return stk_fail_memory(error, "sampler");
    }
    for (uint64_t i = 0; i < options->sample_count; i++) {
        if (options->samples[i] >= sampler->chooser.sample_count) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "there is no such sample",
                            "use ids below the number of samples", "sample %llu of %llu",
                            (unsigned long long)options->samples[i],
                            (unsigned long long)sampler->chooser.sample_count);
        }
        sampler->listed[i] = options->samples[i];
    }
    sampler->listed_count = options->sample_count;
    return 0;
}

static int copy_weights(struct stoker_sampler *sampler,
                        const struct stoker_sampler_options *options, struct stoker_error *error)
{
    if (options->weight_count != sampler->chooser.sample_count) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "there are not as many weights as samples",
                        "set one weight for each sample of the data set",
                        "%llu weights, %llu samples", (unsigned long long)options->weight_count,
                        (unsigned long long)sampler->chooser.sample_count);
    }
    sampler->weights = stk_alloc(options->weight_count + 1, sizeof *sampler->weights);
    if (!sampler->weights) {
        return stk_fail_memory(error, "sampler");
    }
    for (uint64_t i = 0; i < options->weight_count; i++) {
        if (!(options->weights[i] >= 0 && options->weights[i] <= 1e300)) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "a weight is not valid",
                            "a weight is a number of at least 0", "weight of sample %llu",
                            (unsigned long long)i);
        }
        sampler->weights[i] = options->weights[i];
    }
    return 0;
}

static int copy_column(struct stoker_sampler *sampler, struct stk_sampler_column *column,
                       const char *name, struct stoker_error *error)
{
    struct stk_predicate query;
    int status = stk_predicate_parse_column(
        &query, (struct stk_view){(const uint8_t *)name, strlen(name)}, error);

    if (status == 0) {
        status = stk_sample_column_open(&column->column, sampler->dataset, query.columns[0], error);
        column->is_set = status == 0;
        stk_predicate_deinit(&query);
    }
    return status;
}

static int copy_choice(struct stoker_sampler *sampler, const struct stoker_sampler_options *options,
                       struct stoker_error *error)
{
    const uint8_t *where = (const uint8_t *)options->where;
    int status = 0;

    if (where) {
        status = stk_predicate_parse(&sampler->query,
                                     (struct stk_view){where, strlen(options->where)}, error);
        sampler->has_query = status == 0;
        for (uint32_t i = 0; status == 0 && i < sampler->query.column_count; i++) {
            status = stk_sample_column_open(&sampler->columns[i], sampler->dataset,
                                            sampler->query.columns[i], error);
        }
    } else if (options->samples) {
        status = copy_samples(sampler, options, error);
    } else if (options->keys) {
        status = copy_keys(sampler, options, error);
    }
    if (status == 0 && options->weights) {
        status = copy_weights(sampler, options, error);
    } else if (status == 0 && options->weight) {
        status = copy_column(sampler, &sampler->weight, options->weight, error);
    } else if (status == 0 && options->balance) {
        status = copy_column(sampler, &sampler->balance, options->balance, error);
    }
    sampler->replacement = options->replacement != 0;
    sampler->table_use = options->tables;
    /* A table that needs a scan is written to a file; a list of the caller is not. */
    sampler->writes_file = options->tables != STOKER_INDEX_NEVER &&
                           (where || options->keys || options->weight || options->balance);
    return status;
}

static void add_text(struct stk_sha256 *sha, const char *name, const char *text)
{
    stk_sha256_add(sha, name, strlen(name) + 1);
    stk_sha256_add(sha, text, strlen(text) + 1);
}

static void add_numbers(struct stk_sha256 *sha, const char *name, const void *numbers,
                        uint64_t count)
{
    stk_sha256_add(sha, name, strlen(name) + 1);
    stk_sha256_add(sha, &count, sizeof count);
    if (count > 0) {
        stk_sha256_add(sha, numbers, count * 8);
    }
}

/* The digest does not depend on the order of the list, or on samples listed twice. */
static int add_listed(struct stk_sha256 *sha, struct stoker_sampler *sampler,
                      struct stoker_error *error)
{
    uint64_t sum[2] = {0, 0}, samples = sampler->listed_count;
    struct stk_subset subset = {0};
    int status = stk_subset_init(&subset, sampler->chooser.sample_count, error);

    if (status < 0) {
        return status;
    }
    for (uint64_t i = 0; i < samples; i++) { /* the list as a set: a bitmap sorts it */
        stk_subset_add(&subset, sampler->listed[i]);
    }
    sum[0] = stk_xxh3_64(subset.words, stk_subset_words(sampler->chooser.sample_count) * 8);
    sum[1] = stk_random_key(sum[0], sampler->chooser.sample_count);
    stk_subset_deinit(&subset);
    add_numbers(sha, "samples", sum, 2);
    return 0;
}

static uint64_t finish_identity(struct stk_sha256 *sha)
{
    uint8_t digest[32];
    uint64_t identity;

    stk_sha256_done(sha, digest);
    memcpy(&identity, digest, sizeof identity);
    return identity ? identity : 1; /* 0: no subset and no weights */
}

static int add_subset(struct stk_sha256 *sha, struct stoker_sampler *sampler,
                      const struct stoker_sampler_options *options, struct stoker_error *error)
{
    int status = 0;

    if (options->where) {
        add_text(sha, "where", options->where);
    } else if (options->samples) {
        status = add_listed(sha, sampler, error);
    }
    for (uint64_t i = 0; i < sampler->key_count; i++) {
        add_text(sha, "key", sampler->keys[i]);
    }
    return status;
}

static void add_draws(struct stk_sha256 *sha, const struct stoker_sampler_options *options)
{
    if (options->weights) {
        add_numbers(sha, "weights", options->weights, options->weight_count);
    } else if (options->weight) {
        add_text(sha, "weight", options->weight);
    } else if (options->balance) {
        add_text(sha, "balance", options->balance);
    } else if (options->replacement) {
        add_text(sha, "replacement", "");
    }
}

/* The identity of these options: for states, and for the name of the file. */
static int digest_choice(struct stoker_sampler *sampler,
                         const struct stoker_sampler_options *options, struct stoker_error *error)
{
    bool is_part = options->where || options->samples || options->keys;
    bool is_drawn = options->weights || options->weight || options->balance || options->replacement;
    struct stk_sha256 sha;
    int status;

    stk_sha256_init(&sha);
    status = add_subset(&sha, sampler, options, error);
    if (status < 0) {
        return status;
    }
    sampler->subset_identity = is_part ? finish_identity(&sha) : 0;
    stk_sha256_init(&sha);
    add_draws(&sha, options);
    sampler->draws_identity = is_drawn ? finish_identity(&sha) : 0;
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, CHOICE_TEXT, sizeof CHOICE_TEXT);
    status = add_subset(&sha, sampler, options, error);
    add_draws(&sha, options);
    stk_sha256_done(&sha, sampler->choice_digest);
    return status;
}

/* ---- scanning ---- */

int stoker_sampler_next(struct stoker_sampler *sampler, uint32_t timeout_ms,
                        struct stoker_error *error)
{
    int status = stk_engine_check(sampler->engine, error);

    if (status < 0 || sampler->chooser.is_made) {
        return status < 0 ? status : 0;
    }
    if (sampler->failed < 0) {
        if (error) {
            *error = sampler->failure;
        }
        return sampler->failed;
    }
    status = stk_sampler_scan_next(sampler, timeout_ms, error);
    if (status == 0) {
        status = complete(sampler, &sampler->failure);
        sampler->failed = status;
        if (status < 0 && error) {
            *error = sampler->failure;
        }
    }
    return status;
}

static int complete(struct stoker_sampler *sampler, struct stoker_error *error)
{
    uint64_t needed;
    int status = stk_sampler_scan_finish(sampler, error);

    status = status < 0 ? status : stk_sampler_table_write(sampler, error);
    needed =
        sampler->is_mapped || status < 0 ? 0 : stk_min(sampler->image.bytes, sampler->reserved);
    stk_budget_release(&sampler->engine->budget, sampler->reserved - needed);
    sampler->reserved = needed;
    make_choice(sampler, status == 0);
    return status;
}

struct stk_sampling_rule stk_sampler_choice(const struct stoker_sampler *sampler)
{
    STK_ASSERT(sampler->chooser.is_made);
    return sampler->chooser.rule;
}

static void make_choice(struct stoker_sampler *sampler, bool is_made)
{
    const struct stk_sampling_table *table = sampler->table;

    sampler->chooser.is_made = is_made;
    if (is_made) {
        sampler->chooser.rule = (struct stk_sampling_rule){
            .subset = table->subset.words ? &table->subset : NULL,
            .alias = table->alias.count ? &table->alias : NULL,
            .classes = table->classes.class_count ? &table->classes : NULL,
            .replacement = sampler->replacement,
            .subset_identity = sampler->subset_identity,
            .draws_identity = sampler->draws_identity,
        };
    }
}

int stoker_sampler_info(const struct stoker_sampler *sampler, struct stoker_sampler_info *info_out)
{
    struct stoker_sampler_info full = {0};

    full.ready = sampler->chooser.is_made;
    full.sample_count = sampler->chooser.sample_count;
    full.scanned = sampler->scanned;
    full.scan_ns = sampler->scan_ns;
    if (sampler->chooser.is_made) {
        full.count = sampler->table->foot.count;
        full.class_count = sampler->table->foot.class_count;
        full.table_bytes = sampler->image.bytes;
    }
    full.table_path = sampler->path[0] ? sampler->path : NULL;
    full.table_note = sampler->note;
    return stk_options_write_output(info_out, &full, sizeof full, "sampler info", NULL);
}

/* ---- close ---- */

void stk_sampler_retain(struct stoker_sampler *sampler)
{
    atomic_fetch_add(&sampler->references, 1);
}

void stk_sampler_release(struct stoker_sampler *sampler)
{
    struct stoker_engine *engine;

    if (!sampler || atomic_fetch_sub(&sampler->references, 1) > 1) {
        return;
    }
    engine = sampler->engine;
    stk_sampling_table_close(sampler->table);
    if (sampler->is_mapped) {
        stk_io_unmap(engine->io, sampler->image);
    } else {
        stk_free((void *)(uintptr_t)sampler->image.data);
    }
    stk_predicate_deinit(&sampler->query);
    for (uint32_t i = 0; i < STK_PREDICATE_COLUMNS_MAX; i++) {
        stk_sample_column_close(&sampler->columns[i]);
    }
    stk_sample_column_close(&sampler->weight.column);
    stk_sample_column_close(&sampler->balance.column);
    stk_subset_deinit(&sampler->subset);
    stk_free(sampler->weights);
    stk_free(sampler->classes);
    stk_free(sampler->listed);
    stk_free((void *)sampler->keys);
    stk_free((void *)(uintptr_t)sampler->found);
    stk_free(sampler->key_text);
    stk_budget_release(&engine->budget, sampler->reserved);
    stk_dataset_release(sampler->dataset);
    stk_engine_release(engine);
    stk_free(sampler);
}

void stoker_sampler_close(struct stoker_sampler *sampler)
{
    if (sampler && stk_engine_check(sampler->engine, NULL) == 0) {
        stk_sampler_release(sampler);
    }
}
