/* Finds the members in which two samples of one key differ. */
#include "base/mem.h"
#include "tools/diff/diff.h"

#include "base/xxh3.h"
#include "format/compress/decompress.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PIECE_BYTES = 64 << 10 };

struct half_member {
    struct stk_member location;
    char extension[STK_DIFF_EXTENSION_MAX]; /* empty and absent: not compared */
    bool absent;
};

/* A sample of one side. */
struct half {
    const struct stk_diff_side *side;
    struct stk_sample sample;
    uint32_t count;
    struct half_member *members; /* owned: [count] */
};

#define MORE " ..."

static int load(const struct stoker_diff *diff, struct half *half, uint64_t sample,
                struct stoker_error *error);
static int compare(const struct half *a, uint32_t at, const struct half *b, uint32_t with,
                   struct stoker_error *error);
static void add(char *text, size_t capacity, const char *before, const char *extension,
                const char *after);

int stk_diff_members(const struct stoker_diff *diff, const uint64_t samples[2], char *text,
                     size_t capacity, struct stoker_error *error)
{
    struct half *halves = stk_alloc(2, sizeof *halves), *a = halves, *b = halves + 1;
    int status =
        halves ? 0 : stk_fail(error, -ENOMEM, "cannot compare samples", "free memory", "members");

    text[0] = '\0';
    for (int s = 0; s < 2 && status == 0; s++) {
        halves[s].side = &diff->sides[s];
        status = load(diff, &halves[s], samples[s], error);
    }
    for (uint32_t i = 0; status == 0 && i < a->count; i++) {
        uint32_t j = 0;

        while (j < b->count && (b->members[j].absent ||
                                strcmp(a->members[i].extension, b->members[j].extension) != 0)) {
            j++;
        }
        if (a->members[i].absent) {
            continue;
        }
        if (j == b->count) {
            add(text, capacity, "-", a->members[i].extension, "");
            continue;
        }
        status = compare(a, i, b, j, error);
        if (status > 0) {
            add(text, capacity, "", a->members[i].extension, status == 2 ? "?" : "");
            status = 0;
        }
        b->members[j].absent = true; /* it has been compared */
    }
    for (uint32_t j = 0; status == 0 && j < b->count; j++) {
        if (!b->members[j].absent) {
            add(text, capacity, "+", b->members[j].extension, "");
        }
    }
    for (int s = 0; halves && s < 2; s++) {
        stk_free(halves[s].members);
    }
    stk_free(halves);
    return status;
}

/* Appends a word. Words that do not fit are replaced by "...". */
static void add(char *text, size_t capacity, const char *before, const char *extension,
                const char *after)
{
    size_t used = strlen(text);
    int bytes = snprintf(text + used, capacity - used, "%s%s%s%s", used ? " " : "", before,
                         extension, after);

    if (bytes < 0 || (size_t)bytes >= capacity - used) {
        text[used] = '\0';
        if (used >= strlen(MORE) && strcmp(text + used - strlen(MORE), MORE) != 0) {
            used = stk_min(used, capacity - 1 - strlen(MORE));
            memcpy(text + used, MORE, strlen(MORE) + 1);
        }
    }
}

static int load(const struct stoker_diff *diff, struct half *half, uint64_t sample,
                struct stoker_error *error)
{
    const struct stk_index *index = half->side->dataset->index;
    int status = stk_index_sample(index, sample, &half->sample, error);

    half->members =
        status < 0 ? NULL : stk_alloc(stk_max(half->sample.member_count, 1), sizeof *half->members);
    if (status == 0 && !half->members) {
        return stk_fail_memory(error, "%u members", half->sample.member_count);
    }
    for (uint32_t i = 0; status == 0 && i < half->sample.member_count; i++) {
        char space[STK_DIFF_EXTENSION_MAX];
        const char *extension;

        status = stk_index_member(index, &half->sample, i, &half->members[i].location, error);
        if (status < 0) {
            break;
        }
        extension =
            stk_diff_extension(diff, half->side, &half->sample, &half->members[i].location, space);
        half->members[i].absent = !extension;
        snprintf(half->members[i].extension, STK_DIFF_EXTENSION_MAX, "%s",
                 extension ? extension : "");
        half->count++;
    }
    return status;
}

/* XXH3-64 and size of a member. Returns 1 if it is in a compressed shard, and not read. */
static int read_sum(const struct half *half, const struct stk_member *location, uint64_t *sum_out,
                    uint64_t *bytes_out, struct stoker_error *error)
{
    struct stoker_dataset *dataset = half->side->dataset;
    struct stk_file *file = NULL;
    struct stk_xxh3 *sum = NULL;
    uint8_t *piece = NULL;
    uint64_t done = 0;
    int64_t got = 1;
    int status;

    if (stk_index_shard_compression(dataset->index, location->shard) != STK_COMPRESSION_NONE) {
        return 1;
    }
    status =
        stk_dataset_pin(dataset, location->shard, stk_engine_now(dataset->engine), &file, error);
    if (status < 0) {
        return status;
    }
    sum = stk_xxh3_open();
    piece = stk_alloc(PIECE_BYTES, 1);
    if (!sum || !piece) {
        status = stk_fail(error, -ENOMEM, "cannot compare samples", "free memory", "a member");
    }
    while (status == 0 && got > 0 && done < location->bytes) {
        got = stk_io_read_wait(file, location->offset + done, piece,
                               (size_t)stk_min(PIECE_BYTES, location->bytes - done));
        if (got < 0) {
            status = stk_io_fail_read(file, got, "cannot read", error);
            stk_dataset_error_add_location(dataset, error, location->shard, location->offset, NULL);
        } else {
            stk_xxh3_add(sum, piece, (size_t)got);
            done += (uint64_t)got;
        }
    }
    if (status == 0) {
        *sum_out = stk_xxh3_done(sum);
        *bytes_out = done;
    }
    stk_xxh3_close(sum);
    stk_free(piece);
    stk_dataset_unpin(dataset, location->shard, file);
    return status;
}

/* Returns 0 if they are equal, 1 if they differ, 2 if that is unknown. */
static int compare(const struct half *a, uint32_t at, const struct half *b, uint32_t with,
                   struct stoker_error *error)
{
    const struct half *halves[2] = {a, b};
    const uint32_t members[2] = {at, with};
    uint64_t bytes[2], sums[2];
    bool known = true;
    int status = 0;

    for (int s = 0; s < 2; s++) {
        bytes[s] = halves[s]->members[members[s]].location.bytes;
        known = known && stk_index_shard_has_checksums(halves[s]->side->dataset->index,
                                                       halves[s]->sample.shard);
    }
    if (bytes[0] != bytes[1] && bytes[0] != STK_ENTIRE_OBJECT && bytes[1] != STK_ENTIRE_OBJECT) {
        return 1;
    }
    for (int s = 0; s < 2 && status == 0; s++) {
        const struct stk_index *index = halves[s]->side->dataset->index;

        status = known ? stk_index_checksum(index, &halves[s]->sample, members[s], &sums[s], error)
                       : read_sum(halves[s], &halves[s]->members[members[s]].location, &sums[s],
                                  &bytes[s], error);
    }
    if (status != 0) {
        return status == 1 ? 2 : status;
    }
    return sums[0] != sums[1] || (!known && bytes[0] != bytes[1]);
}
