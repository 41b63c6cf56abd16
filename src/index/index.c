/* The samples of a data set: shards side by side, numbered once all of them are there. */
#include "index/index.h"

#include "base/hash.h"
#include "base/mem.h"
#include "index/shard.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int sort_extensions(struct stk_index *index);
static int number_samples(struct stk_index *index);
static void choose_block(struct stk_index *index, uint32_t block_bytes);
static void make_identity(struct stk_index *index);

enum { KEY_BYTES_DEFAULT = 4096, BLOCK_BYTES_DEFAULT = 8 << 20, BLOCK_SAMPLES_DEFAULT = 256 };

static int no_memory(struct stoker_error *error, uint64_t shard_count)
{
    return stk_fail(error, -ENOMEM, "no memory for the index", "free memory or give the job more",
                    "%llu shards", (unsigned long long)shard_count);
}

int stk_index_open(struct stk_index **index_out, const struct stk_index_options *options,
                   struct stoker_error *error)
{
    struct stk_index *index = stk_alloc(1, sizeof *index);

    *index_out = NULL;
    STK_ASSERT(options->shard_count < UINT32_MAX);
    if (index) {
        index->shards = stk_alloc(options->shard_count, sizeof *index->shards);
    }
    if (!index || !index->shards) {
        stk_free(index);
        return no_memory(error, options->shard_count);
    }
    index->options = *options;
    if (index->options.key_bytes_max == 0) {
        index->options.key_bytes_max = KEY_BYTES_DEFAULT;
    }
    pthread_mutex_init(&index->lock, NULL);
    *index_out = index;
    return 0;
}

void stk_index_close(struct stk_index *index)
{
    if (!index) {
        return;
    }
    for (uint64_t i = 0; i < index->options.shard_count; i++) {
        if (index->shards[i].kind == STK_SHARD_TAR) {
            stk_part_close(index->shards[i].of.part);
        }
    }
    while (index->locked.arena) {
        struct stk_arena_block *next = index->locked.arena->next;
        stk_free(index->locked.arena);
        index->locked.arena = next;
    }
    stk_words_deinit(&index->locked.extensions);
    stk_free(index->starts);
    stk_free(index->shards);
    pthread_mutex_destroy(&index->lock);
    stk_free(index);
}

int stk_index_finish(struct stk_index *index, uint32_t block_bytes, struct stoker_error *error)
{
    int status;

    STK_ASSERT(!index->finished);
    for (uint64_t i = 0; i < index->options.shard_count; i++) {
        STK_ASSERT(index->shards[i].kind != STK_SHARD_EMPTY);
    }
    status = sort_extensions(index);
    if (status == 0) {
        status = number_samples(index);
    }
    if (status < 0) {
        return no_memory(error, index->options.shard_count);
    }
    choose_block(index, block_bytes ? block_bytes : BLOCK_BYTES_DEFAULT);
    make_identity(index);
    index->finished = true;
    return 0;
}

static int compare_extensions(const void *left, const void *right, void *words)
{
    struct stk_view a = stk_words_at(words, *(const uint32_t *)left);
    struct stk_view b = stk_words_at(words, *(const uint32_t *)right);

    return strcmp((const char *)a.data, (const char *)b.data); /* each has its NUL */
}

/* Numbers were given in the order of arrival, which is that of the threads. */
static int sort_extensions(struct stk_index *index)
{
    struct stk_words *words = &index->locked.extensions;
    struct stk_words sorted = {0};
    uint32_t count = words->count;
    uint32_t *order = stk_alloc(count, sizeof *order);
    uint32_t *number = stk_alloc(count, sizeof *number);
    int status = order && number ? 0 : -ENOMEM;

    for (uint32_t i = 0; status == 0 && i < count; i++) {
        order[i] = i;
    }
    if (status == 0) {
        qsort_r(order, count, sizeof *order, compare_extensions, words);
    }
    for (uint32_t i = 0; status == 0 && i < count; i++) {
        status = stk_words_intern(&sorted, stk_words_at(words, order[i]), STK_EXTENSIONS_MAX,
                                  &number[order[i]]);
    }
    for (uint64_t i = 0; status == 0 && i < index->options.shard_count; i++) {
        struct stk_shard *shard = &index->shards[i];

        if (shard->kind == STK_SHARD_FILE) {
            shard->extension = number[shard->extension];
            continue;
        }
        for (uint32_t j = 0; j < shard->of.part->member_count; j++) {
            shard->of.part->extensions[j] = number[shard->of.part->extensions[j]];
        }
    }
    if (status == 0) {
        stk_words_deinit(words);
        *words = sorted;
        sorted = (struct stk_words){0};
    }
    stk_words_deinit(&sorted);
    stk_free(order);
    stk_free(number);
    return status;
}

static int number_samples(struct stk_index *index)
{
    uint64_t shard_count = index->options.shard_count;
    bool one_each = true;

    for (uint64_t i = 0; i < shard_count; i++) {
        const struct stk_shard *shard = &index->shards[i];
        uint64_t samples = stk_shard_samples(shard);

        one_each = one_each && samples == 1;
        index->sample_count += samples;
        index->sequential |= shard->packing != 0;
        if (shard->kind == STK_SHARD_FILE) {
            index->member_count++;
        } else {
            index->member_count += shard->of.part->member_count;
            /* Saturates: only lying streams get there. */
            if (!stk_add(index->bytes, shard->of.part->bytes, &index->bytes)) {
                index->bytes = UINT64_MAX;
            }
        }
    }
    if (one_each) {
        return 0;
    }
    index->starts = stk_alloc(shard_count + 1, sizeof *index->starts);
    if (!index->starts) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < shard_count; i++) {
        index->starts[i + 1] = index->starts[i] + stk_shard_samples(&index->shards[i]);
    }
    return 0;
}

static void choose_block(struct stk_index *index, uint32_t block_bytes)
{
    uint64_t scaled;

    index->block_samples = BLOCK_SAMPLES_DEFAULT;
    if (index->bytes == 0) {
        return; /* a folder: its files were not asked */
    }
    /* block_bytes / (bytes / samples), rounded. */
    if (stk_multiply(block_bytes, index->sample_count, &scaled) &&
        stk_add(scaled, index->bytes / 2, &scaled)) {
        index->block_samples = stk_max(scaled / index->bytes, 1);
    } else {
        index->block_samples = stk_max(block_bytes / (index->bytes / index->sample_count + 1), 1);
    }
}

static void make_identity(struct stk_index *index)
{
    struct stk_sha256 sha;

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, "stoker index 1", sizeof "stoker index 1");
    for (uint64_t i = 0; i < index->options.shard_count; i++) {
        const struct stk_shard *shard = &index->shards[i];
        const char *slash = strrchr(shard->path, '/');
        const char *base = slash ? slash + 1 : shard->path;
        bool is_file = shard->kind == STK_SHARD_FILE;
        uint64_t number = is_file ? (uint64_t)shard->of.label : shard->object_bytes;
        uint8_t tail[9] = {shard->kind};

        for (int j = 0; j < 8; j++) {
            tail[1 + j] = number >> (8 * j);
        }
        if (is_file) {
            stk_sha256_add(&sha, shard->path + shard->key_at, shard->key_bytes);
            stk_sha256_add(&sha, "", 1);
        } else {
            stk_sha256_add(&sha, base, strlen(base) + 1);
            stk_sha256_add(&sha, shard->of.part->identity, sizeof shard->of.part->identity);
        }
        stk_sha256_add(&sha, tail, sizeof tail);
    }
    stk_sha256_done(&sha, index->identity);
}

uint64_t stk_index_samples(const struct stk_index *index)
{
    return index->sample_count;
}

uint64_t stk_index_members(const struct stk_index *index)
{
    return index->member_count;
}

uint64_t stk_index_bytes(const struct stk_index *index)
{
    return index->bytes;
}

uint64_t stk_index_block_samples(const struct stk_index *index)
{
    return index->block_samples;
}

bool stk_index_sequential(const struct stk_index *index)
{
    return index->sequential;
}

const uint8_t *stk_index_identity(const struct stk_index *index)
{
    return index->identity;
}

/* The last shard that starts at or before the sample; empty shards start where the next does. */
static uint32_t find_shard(const struct stk_index *index, uint64_t sample)
{
    uint64_t low = 0, high = index->options.shard_count; /* starts[low] <= sample < starts[high] */

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;

        if (index->starts[middle] <= sample) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

void stk_index_sample(const struct stk_index *index, uint64_t sample, struct stk_sample *sample_out)
{
    const struct stk_shard *shard;
    const struct stk_part *part;

    STK_ASSERT(index->finished && sample < index->sample_count);
    sample_out->shard = sample;
    if (index->starts) {
        sample_out->shard = find_shard(index, sample);
        sample -= index->starts[sample_out->shard];
    } else {
        sample = 0;
    }
    shard = &index->shards[sample_out->shard];
    if (shard->kind == STK_SHARD_FILE) {
        sample_out->first_member = 0;
        sample_out->member_count = 1;
        sample_out->label = shard->of.label;
        sample_out->key.data = (const uint8_t *)shard->path + shard->key_at;
        sample_out->key.bytes = shard->key_bytes;
        return;
    }
    part = shard->of.part;
    sample_out->first_member = part->first_member[sample];
    sample_out->member_count = part->first_member[sample + 1] - part->first_member[sample];
    sample_out->label = -1;
    sample_out->key = stk_words_at(&part->keys, sample);
}

void stk_index_member(const struct stk_index *index, const struct stk_sample *sample,
                      uint32_t member, struct stk_member *member_out)
{
    const struct stk_shard *shard = &index->shards[sample->shard];

    STK_ASSERT(member < sample->member_count);
    member_out->shard = sample->shard;
    if (shard->kind == STK_SHARD_FILE) {
        member_out->offset = 0;
        member_out->bytes = STK_WHOLE;
        member_out->extension = shard->extension;
        return;
    }
    member += sample->first_member;
    member_out->extension = shard->of.part->extensions[member];
    if (shard->of.part->wide) {
        member_out->offset = shard->of.part->wide[2 * (size_t)member];
        member_out->bytes = shard->of.part->wide[2 * (size_t)member + 1];
    } else {
        member_out->offset = (uint64_t)shard->of.part->units[member] * STK_OFFSET_UNIT;
        member_out->bytes = shard->of.part->sizes[member];
    }
}

const char *stk_index_shard_path(const struct stk_index *index, uint32_t shard)
{
    return index->shards[shard].path;
}

uint64_t stk_index_shard_bytes(const struct stk_index *index, uint32_t shard)
{
    return index->shards[shard].object_bytes;
}

uint32_t stk_index_shard_packing(const struct stk_index *index, uint32_t shard)
{
    return index->shards[shard].packing;
}

const char *stk_index_extension(const struct stk_index *index, uint32_t extension)
{
    STK_ASSERT(extension < index->locked.extensions.count);
    return (const char *)stk_words_at(&index->locked.extensions, extension).data;
}

int64_t stk_index_extension_id(const struct stk_index *index, const char *extension)
{
    struct stk_view word = {(const uint8_t *)extension, strlen(extension) + 1};

    STK_ASSERT(index->finished);
    return stk_words_find(&index->locked.extensions, word);
}

uint64_t stk_shard_samples(const struct stk_shard *shard)
{
    return shard->kind == STK_SHARD_FILE ? 1 : shard->of.part->keys.count;
}

void stk_part_close(struct stk_part *part)
{
    if (part) {
        stk_words_deinit(&part->keys);
        stk_free(part->first_member);
        stk_free(part->extensions);
        stk_free(part->units);
        stk_free(part->sizes);
        stk_free(part->wide);
        stk_free(part);
    }
}
