/* Builds or checks the JPEG index of a data set: rounds of samples on the engine's threads; entries
 * are written in storage order. */
#include "base/mem.h"
#include "base/memory_budget.h"
#include "base/options.h"
#include "base/xxh3.h"
#include "dataset/dataset.h"
#include "decode/jpeg/jpeg.h"
#include "decode/jpeg_index/jpeg_index.h"
#include "io/write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ROUND_SAMPLES 16u
/* Rounds of a call: the number that takes a quarter of a second, because the caller draws progress
 * and handles signals between calls. */
#define ROUNDS 32u
#define ROUNDS_FIRST 4u
#define CALL_NS 250000000u
#define READ_BYTES_FIRST (256u << 10)
#define READ_BYTES_MAX (256u << 20) /* a much larger picture has no marks */
_Static_assert(2ull * READ_BYTES_MAX <= UINT32_MAX, "an entry counts the image's bytes");
#define WAIT_MS 30000u /* for memory */

/* Work of one thread on ROUND_SAMPLES samples. */
struct round {
    struct stk_jpeg_decoder *decoder; /* owned, as all here; reused for the next round */
    uint8_t *picture, *space, *entries;
    size_t picture_capacity, space_capacity, entries_capacity, entries_bytes;
    size_t ends[ROUND_SAMPLES]; /* of entries, of each sample */
    uint64_t pictures, bytes, marked, wrong, first_wrong;
};

struct stoker_jpeg_indexer {
    struct stoker_dataset *dataset;       /* borrowed */
    struct stk_jpeg_index_writer *writer; /* owned; NULL: a check */
    struct stk_file_lock *lock;
    uint32_t mcus;
    bool check, done;
    uint64_t samples, next;
    uint64_t rounds_max; /* of the next call */
    struct stoker_jpeg_indexer_progress progress;
    struct stoker_error failure; /* of an earlier call; status 0: none */
    char path[STK_PATH_BYTES_MAX + sizeof STK_JPEG_INDEX_SUFFIX];
    struct round rounds[ROUNDS];
};

/* Provides reserved memory for `bytes`, and preserves its content. */
static int reserve_buffer(struct stoker_engine *engine, uint8_t **data, size_t *capacity,
                          size_t bytes, struct stoker_error *error)
{
    uint8_t *grown;
    int status;

    if (bytes <= *capacity) {
        return 0;
    }
    bytes = stk_round_up(bytes + bytes / 2, 4096);
    status = stk_engine_reserve(engine, bytes - *capacity, WAIT_MS, "building a JPEG index", error);
    if (status < 0) {
        return status;
    }
    grown = stk_realloc(*data, *capacity, bytes, 1);
    if (!grown) {
        stk_budget_release(&engine->budget, bytes - *capacity);
        return stk_fail_memory(error, "JPEG index");
    }
    *data = grown;
    *capacity = bytes;
    return 0;
}

static void free_buffer(struct stoker_engine *engine, uint8_t *data, size_t capacity)
{
    stk_free(data);
    stk_budget_release(&engine->budget, capacity);
}

static bool is_jpeg_name(const char *extension)
{
    const char *dot = strrchr(extension, '.'), *last = dot ? dot + 1 : extension;

    return strcmp(last, "jpg") == 0 || strcmp(last, "jpeg") == 0 || strcmp(last, "jpe") == 0;
}

/* Checks whether the data is too short for the MCUs that the header specifies: a block needs at
 * least two bits. Such a picture cannot have marks, so no memory is reserved for them. */
static bool is_cut(const struct stk_jpeg_frame *frame)
{
    return (uint64_t)frame->mcu_columns * frame->mcu_rows > 4 * (uint64_t)frame->scan.bytes;
}

/* Appends a picture's entry; appends no bytes if the picture cannot have marks. */
static int add_entry(struct stoker_jpeg_indexer *marker, struct round *round,
                     struct stk_view picture, struct stoker_error *error)
{
    const struct stk_jpeg_box corner = {0, 0, 1, 1};
    struct stoker_engine *engine = marker->dataset->engine;
    struct stk_jpeg_index_entry entry = {0};
    struct stk_jpeg_frame frame;
    uint64_t count, space;
    uint8_t *to;
    int status;

    round->pictures++;
    round->bytes += picture.bytes;
    if (stk_jpeg_frame_read(picture, &frame)) {
        return 0;
    }
    count = stk_jpeg_entry_point_count(&frame, marker->mcus);
    space = stk_jpeg_workspace_bytes(&frame, &corner) + 64;
    if (is_cut(&frame)) {
        return 0;
    }
    status = reserve_buffer(engine, &round->space, &round->space_capacity, space, error);
    if (status == 0) {
        status = reserve_buffer(
            engine, &round->entries, &round->entries_capacity,
            round->entries_bytes + sizeof entry + count * STK_JPEG_ENTRY_POINT_BYTES, error);
    }
    if (status < 0) {
        return status;
    }
    to = round->entries + round->entries_bytes;
    if (stk_jpeg_decoder_index(round->decoder, &frame, marker->mcus,
                               (void *)stk_round_up((uintptr_t)round->space, 64),
                               to + sizeof entry)) {
        return 0;
    }
    entry = (struct stk_jpeg_index_entry){stk_xxh3_64(picture.data, picture.bytes),
                                          (uint32_t)picture.bytes, (uint32_t)count};
    memcpy(to, &entry, sizeof entry);
    round->entries_bytes += sizeof entry + count * STK_JPEG_ENTRY_POINT_BYTES;
    round->marked++;
    return 0;
}

/* Reads a complete member. Returns 1 on success, 0 if it is too large for an entry. */
static int read_picture(struct stoker_jpeg_indexer *marker, struct round *round, uint64_t sample,
                        const char *extension, struct stk_view *picture_out,
                        struct stoker_error *error)
{
    struct stoker_engine *engine = marker->dataset->engine;
    size_t got = READ_BYTES_FIRST;
    int status;

    do {
        status = reserve_buffer(engine, &round->picture, &round->picture_capacity, stk_max(got, 1),
                                error);
        if (status < 0) {
            return status;
        }
        status = stoker_dataset_read(marker->dataset, sample, extension, round->picture,
                                     round->picture_capacity, &got, error);
    } while (got > round->picture_capacity && got <= READ_BYTES_MAX);
    *picture_out = (struct stk_view){round->picture, got};
    return status == STOKER_ERROR_LIMIT ? 0 : status < 0 ? status : 1;
}

static int index_sample(struct stoker_jpeg_indexer *marker, struct round *round, uint64_t number,
                        struct stoker_error *error)
{
    const struct stk_index *index = marker->dataset->index;
    struct stk_sample sample;
    int status = stk_index_sample(index, number, &sample, error);

    for (uint32_t i = 0; status >= 0 && i < sample.member_count; i++) {
        struct stk_member member;
        struct stk_view picture;
        const char *extension;

        status = stk_index_member(index, &sample, i, &member, error);
        extension = status < 0 ? "" : stk_index_extension(index, member.extension);
        if (!is_jpeg_name(extension)) {
            continue;
        }
        status = read_picture(marker, round, number, extension, &picture, error);
        status = status == 1 ? add_entry(marker, round, picture, error) : status;
    }
    return status < 0 ? status : 0;
}

static void check_sample(struct stoker_jpeg_indexer *marker, struct round *round, uint64_t number,
                         size_t before)
{
    struct stk_jpeg_index_entries of = stk_dataset_jpeg_entries(marker->dataset, number);
    size_t bytes = round->entries_bytes - before;

    if (of.entries.bytes != bytes ||
        (bytes > 0 && memcmp(of.entries.data, round->entries + before, bytes) != 0)) {
        round->first_wrong = round->wrong++ == 0 ? number : round->first_wrong;
    }
}

static int open_decoder(struct stoker_engine *engine, struct round *round,
                        struct stoker_error *error)
{
    int status = stk_engine_reserve(engine, stk_jpeg_decoder_bytes(), WAIT_MS,
                                    "building a JPEG index", error);

    if (status == 0) {
        status = stk_jpeg_decoder_open(&round->decoder, STOKER_SIMD_AUTO, error);
        if (status < 0) {
            stk_budget_release(&engine->budget, stk_jpeg_decoder_bytes());
        }
    }
    return status;
}

static int run_round(void *context, uint64_t number, struct stoker_error *error)
{
    struct stoker_jpeg_indexer *marker = context;
    struct round *round = &marker->rounds[number];
    uint64_t first = marker->next + number * ROUND_SAMPLES;
    int status = round->decoder ? 0 : open_decoder(marker->dataset->engine, round, error);

    round->entries_bytes = 0;
    for (uint32_t i = 0; i < ROUND_SAMPLES && first + i < marker->samples && status == 0; i++) {
        size_t before = round->entries_bytes;

        status = index_sample(marker, round, first + i, error);
        if (marker->check) {
            check_sample(marker, round, first + i, before);
        }
        round->ends[i] = round->entries_bytes;
    }
    return status;
}

/* Writes the entries of a round. */
static int finish_round(struct stoker_jpeg_indexer *marker, struct round *round, uint64_t first,
                        struct stoker_error *error)
{
    struct stoker_jpeg_indexer_progress *progress = &marker->progress;
    size_t at = 0;
    int status = 0;

    for (uint32_t i = 0; i < ROUND_SAMPLES && first + i < marker->samples && status == 0; i++) {
        struct stk_view entries = {round->entries + at, round->ends[i] - at};

        status = marker->writer ? stk_jpeg_index_writer_add(marker->writer, entries, error) : 0;
        at = round->ends[i];
        progress->samples_done++;
    }
    progress->pictures += round->pictures;
    progress->bytes += round->bytes;
    progress->indexed += round->marked;
    if (round->wrong > 0 && progress->mismatches == 0) {
        progress->first_mismatch = round->first_wrong;
    }
    progress->mismatches += round->wrong;
    round->pictures = round->bytes = round->marked = round->wrong = 0;
    return status;
}

/* Returns the reason why there is no index to check. */
static int fail_check(struct stoker_jpeg_indexer *marker, struct stoker_error *error)
{
    struct stoker_dataset *dataset = marker->dataset;
    struct stk_jpeg_index *marks = NULL;
    int status = stk_jpeg_index_open(&marks, dataset->engine->io, marker->path,
                                     stk_index_identity(dataset->index), error);

    stk_jpeg_index_close(marks);
    if (status == -ENOENT) {
        return stk_fail(error, STOKER_ERROR_MISSING, "the data set has no JPEG index",
                        "build it: stoker index --jpeg-index", "'%.600s'", marker->path);
    }
    return status < 0
               ? status
               : stk_fail(error, STOKER_ERROR_CHANGED, "the JPEG index belongs to other data",
                          "build it again: stoker index --jpeg-index", "'%.600s'", marker->path);
}

static int prepare(struct stoker_jpeg_indexer *marker, struct stoker_error *error)
{
    struct stoker_dataset *dataset = marker->dataset;
    char lock[sizeof marker->path + sizeof ".lock"];
    int status;

    if (!dataset->index_path || stk_index_is_sequential(dataset->index)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the data set cannot have a JPEG index",
                        dataset->index_path
                            ? "decompress its shards, or index them with seek points"
                            : "build an index first: stoker index",
                        "%s", dataset->index_path ? dataset->index_path : "no index file");
    }
    snprintf(marker->path, sizeof marker->path, "%s%s", dataset->index_path, STK_JPEG_INDEX_SUFFIX);
    marker->samples = stk_index_samples(dataset->index);
    if (marker->check) {
        marker->mcus = dataset->jpeg_index ? stk_jpeg_index_mcus(dataset->jpeg_index) : 0;
        return dataset->jpeg_index ? 0 : fail_check(marker, error);
    }
    snprintf(lock, sizeof lock, "%s.lock", marker->path);
    status = stk_io_lock(dataset->engine->io, lock, &marker->lock, error);
    if (status == 0) {
        struct stk_jpeg_index_options plan = {marker->path, marker->samples, marker->mcus,
                                              stk_index_identity(dataset->index)};

        status = stk_jpeg_index_writer_open(&marker->writer, dataset->engine->io, &plan, error);
    }
    return status;
}

int stoker_jpeg_indexer_open(struct stoker_jpeg_indexer **marker_out,
                             struct stoker_dataset *dataset,
                             const struct stoker_jpeg_indexer_options *options,
                             struct stoker_error *error)
{
    struct stoker_jpeg_indexer_options full = {0};
    struct stoker_jpeg_indexer *marker;
    int status = stk_engine_check(dataset->engine, error);

    *marker_out = NULL;
    if (status == 0 && options) {
        status = stk_options_read(&full, sizeof full, sizeof full.struct_size, options,
                                  "JPEG index options", error);
    }
    if (status < 0) {
        return status;
    }
    marker = stk_alloc(1, sizeof *marker);
    if (!marker) {
        return stk_fail_memory(error, "JPEG index");
    }
    marker->dataset = dataset;
    marker->rounds_max = stk_max(stk_min(dataset->engine->worker_count, ROUNDS), ROUNDS_FIRST);
    marker->mcus = full.mcus;
    marker->check = full.check;
    marker->progress.first_mismatch = STOKER_NO_SAMPLE;
    status = prepare(marker, error);
    if (status < 0) {
        stoker_jpeg_indexer_close(marker);
        return status;
    }
    *marker_out = marker;
    return 0;
}

static void fill_progress(struct stoker_jpeg_indexer *marker,
                          struct stoker_jpeg_indexer_progress *progress_out)
{
    marker->progress.samples = marker->samples;
    marker->progress.path = marker->path;
    stk_options_write_output(progress_out, &marker->progress, sizeof marker->progress,
                             "JPEG index progress", NULL);
}

/* Computes the rounds of the next call from the duration of a call. Each thread has at least
 * one. */
static void set_rate(struct stoker_jpeg_indexer *marker, uint64_t rounds, uint64_t ns)
{
    uint64_t least = stk_min(marker->dataset->engine->worker_count, ROUNDS);

    if (ns > CALL_NS) {
        marker->rounds_max = stk_max(rounds / 2, least);
    } else if (ns < CALL_NS / 2 && rounds == marker->rounds_max) {
        marker->rounds_max = stk_min(2 * rounds, ROUNDS);
    }
}

/* The rounds of a call; returns 0, or an error after which the file cannot be completed. */
static int run_rounds(struct stoker_jpeg_indexer *marker, struct stoker_error *error)
{
    uint64_t left = marker->samples - marker->next;
    uint64_t rounds = stk_min(marker->rounds_max, (left + ROUND_SAMPLES - 1) / ROUND_SAMPLES);
    struct stoker_engine *engine = marker->dataset->engine;
    int status = 0;

    if (rounds > 0) {
        uint64_t began_ns = stk_engine_now(engine);

        status = stk_engine_parallel(engine, rounds, run_round, marker, error);
        set_rate(marker, rounds, stk_engine_now(engine) - began_ns);
    }
    for (uint64_t i = 0; status == 0 && i < rounds; i++) {
        status = finish_round(marker, &marker->rounds[i], marker->next + i * ROUND_SAMPLES, error);
    }
    if (status < 0) {
        return status;
    }
    marker->next += stk_min(left, rounds * ROUND_SAMPLES);
    if (marker->next == marker->samples && marker->writer && !marker->done) {
        status = stk_jpeg_index_writer_commit(marker->writer, &marker->progress.file_bytes, error);
    }
    marker->done = status == 0 && marker->next == marker->samples;
    return status;
}

int stoker_jpeg_indexer_next(struct stoker_jpeg_indexer *marker,
                             struct stoker_jpeg_indexer_progress *progress_out,
                             struct stoker_error *error)
{
    int status = stk_engine_check(marker->dataset->engine, error);

    if (status == 0 && progress_out) {
        status = stk_options_check_output(progress_out, sizeof *progress_out,
                                          sizeof progress_out->struct_size, "JPEG index progress",
                                          error);
    }
    if (status < 0) {
        return status;
    }
    if (marker->failure.status == 0) {
        status = run_rounds(marker, &marker->failure);
        stk_error_assert_status(&marker->failure, status);
    }
    if (marker->failure.status < 0) {
        if (error) {
            *error = marker->failure;
        }
        return marker->failure.status;
    }
    if (progress_out) {
        fill_progress(marker, progress_out);
    }
    return !marker->done;
}

void stoker_jpeg_indexer_close(struct stoker_jpeg_indexer *marker)
{
    struct stoker_engine *engine;

    if (!marker || stk_engine_check(marker->dataset->engine, NULL) < 0) {
        return;
    }
    engine = marker->dataset->engine;
    stk_jpeg_index_writer_close(marker->writer);
    if (marker->lock) {
        stk_io_unlock(engine->io, marker->lock);
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct round *round = &marker->rounds[i];

        if (round->decoder) {
            stk_jpeg_decoder_close(round->decoder);
            stk_budget_release(&engine->budget, stk_jpeg_decoder_bytes());
        }
        free_buffer(engine, round->picture, round->picture_capacity);
        free_buffer(engine, round->space, round->space_capacity);
        free_buffer(engine, round->entries, round->entries_capacity);
    }
    stk_free(marker);
}
