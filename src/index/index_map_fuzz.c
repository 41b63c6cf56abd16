/* Fuzz of index_map.c, index_reuse.c and index_write.c: any bytes as an index file, with their sums
 * corrected (the last byte: 1) so that damage gets past them. Every entry is read, and each valid
 * part is copied to a new index; then again, after the bytes were overwritten while the index is
 * open. No crash, no hang, nothing outside of the bytes. */
#include "base/mem.h"
#include "base/xxh3.h"
#include "index/index_file.h"
#include "test/overwrite.h"

#include <string.h>

/* Files of a few KiB may claim millions of samples (parts may overlap): ends are looked at. Each
 * refusal is a text, so that an input of nothing but refusals would cost a hundred others. */
enum { SAMPLES_MAX = 100, MEMBERS_MAX = 50, SHARDS_MAX = 100, REFUSALS_MAX = 30 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* As a person who knows the format could do. */
static void make_sums(uint8_t *data, size_t bytes)
{
    struct stk_index_file_foot *foot =
        (struct stk_index_file_foot *)(void *)(data + bytes - sizeof *foot);
    uint64_t *sums;

    memcpy(data, STK_INDEX_FILE_HEAD_MAGIC, 8);
    memcpy(foot->magic, STK_INDEX_FILE_FOOT_MAGIC, 8);
    foot->file_bytes = bytes;
    if (foot->pages_at % 8 == 0 && foot->pages_at < bytes - sizeof *foot) {
        uint64_t pages = (bytes - sizeof *foot - foot->pages_at) / 8;

        sums = (uint64_t *)(void *)(data + foot->pages_at);
        for (uint64_t i = 0; i < pages && i * STK_INDEX_FILE_PAGE_BYTES < foot->pages_at; i++) {
            uint64_t start = i * STK_INDEX_FILE_PAGE_BYTES;

            sums[i] = stk_xxh3_64(data + start,
                                  stk_min(STK_INDEX_FILE_PAGE_BYTES, foot->pages_at - start));
        }
        foot->pages_sum = stk_xxh3_64(sums, pages * 8);
    }
    foot->foot_sum = stk_xxh3_64(foot, offsetof(struct stk_index_file_foot, foot_sum));
}

/* Reads it, so that a sanitizer checks its place. */
static uint64_t touch(struct stk_view view)
{
    return stk_xxh3_64(view.data, view.bytes);
}

static void ask_sample(const struct stk_index *index, uint64_t number, uint32_t *refusals)
{
    struct stoker_error error = {0};
    struct stk_sample sample;
    struct stk_member member;
    uint64_t sum;
    char path[STK_PATH_BYTES_MAX];

    if (stk_index_sample(index, number, &sample, &error) < 0) {
        STK_ASSERT(error.what[0] && error.where[0] && error.advice[0]);
        ++*refusals;
        return;
    }
    touch(sample.key);
    STK_ASSERT(sample.shard < stk_index_shards(index) && sample.member_count > 0);
    for (uint32_t i = 0; i < sample.member_count && i < MEMBERS_MAX && *refusals < REFUSALS_MAX;
         i++) {
        if (stk_index_member(index, &sample, i, &member, &error) == 0) {
            STK_ASSERT(member.shard == sample.shard);
            STK_ASSERT(strlen(stk_index_extension(index, member.extension)) <= 65536);
        } else {
            ++*refusals;
        }
        stk_index_checksum(index, &sample, i, &sum, NULL);
    }
    if (stk_index_path(index, sample.shard, path, &error) == 0) {
        STK_ASSERT(path[0] != '/' && strcmp(path, "..") != 0 && strncmp(path, "../", 3) != 0);
        STK_ASSERT(!strstr(path, "/../"));
    }
}

static void ask(const struct stk_index *index)
{
    uint64_t samples = stk_index_samples(index), classes = stk_index_classes(index);
    uint64_t shards = stk_index_is_folder(index) ? 0 : stk_index_shards(index), bytes = 0;
    uint32_t refusals = 0;

    for (uint64_t i = 0; i < samples && i < SAMPLES_MAX && refusals < REFUSALS_MAX; i++) {
        ask_sample(index, i, &refusals);
        ask_sample(index, samples - 1 - i, &refusals);
    }
    for (uint64_t i = 0; i < classes && i < SHARDS_MAX; i++) {
        bytes += strlen(stk_index_class(index, i));
    }
    for (uint64_t i = 0; i < shards && i < SHARDS_MAX; i++) {
        const uint8_t *digest = stk_index_shard_digest(index, i);

        bytes += stk_index_shard_bytes(index, i) + stk_index_shard_samples(index, i);
        STK_ASSERT(stk_index_shard_compression(index, i) <= 4);
        touch((struct stk_view){digest, digest ? 32 : 0});
    }
    STK_ASSERT(stk_index_extension_id(index, "\t") < (int64_t)stk_index_extensions(index) + 1);
    touch((struct stk_view){stk_index_identity(index), 32});
    (void)bytes;
}

/* Copies all valid parts, and writes the result. */
static void take_over(const struct stk_index *from)
{
    struct stk_index_options options = {.shard_count = stk_min(stk_index_shards(from), SHARDS_MAX),
                                        .member_gap_max = stk_index_member_gap_max(from)};
    struct stk_index *to = NULL;
    struct stk_view image = {0};
    struct stoker_error error = {0};
    char name[32] = "d/a";
    int status = stk_index_open(&to, &options, &error);

    for (uint32_t i = 0; status == 0 && i < options.shard_count; i++) {
        name[2] = (char)('0' + i);
        status = stk_index_shard_copy(to, i, name, from, i, &error);
    }
    status = status < 0 ? status : stk_index_finish(to, 0, &error);
    status = status < 0 ? status : stk_index_image(to, "d/", &image, &error);
    STK_ASSERT(status == 0 || (error.what[0] && error.where[0] && error.advice[0]));
    if (status == 0) {
        struct stk_index *again = NULL;

        /* The copied parts are an index again. */
        STK_ASSERT(stk_index_open_image(&again, image, "again", NULL) == 0);
        STK_ASSERT(stk_index_samples(again) == stk_index_samples(to));
        stk_index_close(again);
    }
    stk_free((void *)(uintptr_t)image.data);
    stk_index_close(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_index *index = NULL;
    struct stoker_error error = {0};
    size_t file_bytes = bytes ? bytes - 1 : 0;
    uint8_t *file = stk_alloc(stk_max(file_bytes, 1), 1);

    if (file && file_bytes > 0) {
        memcpy(file, data, file_bytes);
        if (data[bytes - 1] & 1 && file_bytes % 8 == 0 &&
            file_bytes >= sizeof(struct stk_index_file_head) + sizeof(struct stk_index_file_foot)) {
            make_sums(file, file_bytes);
        }
    }
    if (file &&
        stk_index_open_image(&index, (struct stk_view){file, file_bytes}, "x.index", &error) == 0) {
        ask(index);
        if (!stk_index_is_folder(index)) {
            take_over(index);
        }
        for (uint32_t round = 0; round < T_OVERWRITE_ROUNDS; round++) {
            t_overwrite(file, file_bytes, round);
            ask(index);
            if (!stk_index_is_folder(index)) {
                take_over(index);
            }
        }
    } else {
        STK_ASSERT(error.what[0] && error.where[0] && error.advice[0]);
    }
    stk_index_close(index);
    stk_free(file);
    return 0;
}
