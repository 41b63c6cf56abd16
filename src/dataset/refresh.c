/* A data set that grew, as another one; and one as it was before it grew. The first is never
 * touched: loaders on it go on with what they have. */
#include "dataset/dataset.h"

#include "dataset/sidecar.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int take_in(struct stoker_dataset *newer, const struct stoker_dataset *before,
                   struct stk_sidecar *sidecar, struct stoker_error *error);

static int changed(struct stoker_error *error, const char *what, const char *path)
{
    return stk_fail(error, STOKER_ERROR_CHANGED, what,
                    "append shards by names that sort behind those that are there, or open the "
                    "data set anew",
                    "'%.600s'", path);
}

/* All that was there is there, unchanged, and comes first. */
static int check_first(const struct stoker_dataset *before, const struct stoker_dataset *newer,
                       const struct stk_sidecar *sidecar, struct stoker_error *error)
{
    for (uint64_t i = 0; i < stk_index_shards(before->index); i++) {
        char path[STK_PATH_BYTES_MAX];
        int status = stk_index_path(before->index, i, path, error);
        const char *now =
            i < newer->objects.count ? newer->objects.text + newer->objects.paths[i] : "";

        if (status < 0) {
            return status;
        }
        if (strcmp(path, now) != 0) {
            return changed(error, "a shard is gone, or another one stands before it", path);
        }
        if (sidecar->sizes[i] != stk_index_shard_bytes(before->index, i) ||
            (before->mtimes && sidecar->mtimes[i] != before->mtimes[i])) {
            return changed(error, "a shard was written since the data set was opened", path);
        }
    }
    return 0;
}

/* Cuts the listing to shard_count; 0: as it is. */
static int cut(struct stoker_dataset *newer, const struct stoker_dataset *before,
               uint64_t shard_count, struct stoker_error *error)
{
    if (shard_count > newer->objects.count) {
        return stk_fail(error, STOKER_ERROR_CHANGED, "there are fewer shards than were asked for",
                        "wait until all machines see the same files",
                        "%" PRIu64 " of %" PRIu64 " in '%.400s'", newer->objects.count, shard_count,
                        before->options.urls[0]);
    }
    if (shard_count > 0 && shard_count < stk_index_shards(before->index)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a data set does not shrink",
                        "ask for no fewer shards than it has", "%" PRIu64 " of %" PRIu64,
                        shard_count, stk_index_shards(before->index));
    }
    newer->objects.count = shard_count > 0 ? shard_count : newer->objects.count;
    return 0;
}

static int look(struct stoker_dataset *newer, const struct stoker_dataset *before,
                uint64_t shard_count, struct stoker_error *error)
{
    struct stk_sidecar *sidecar = NULL;
    int status = stk_dataset_list(newer, error);

    if (status == 0 && newer->objects.kind != STK_SOURCE_TARS) {
        status = changed(error, "the data set became class folders", before->options.urls[0]);
    }
    status = status < 0 ? status : cut(newer, before, shard_count, error);
    status = status < 0 ? status : stk_sidecar_open(&sidecar, newer, error);
    if (status == 0 && newer->options.index != STOKER_INDEX_NEVER) {
        status = stk_sidecar_find(sidecar, newer, error);
    }
    status = status < 0 ? status : stk_sidecar_match(sidecar, newer, error);
    status = status < 0 ? status : check_first(before, newer, sidecar, error);
    if (status == 0 && newer->objects.count > stk_index_shards(before->index)) {
        status = take_in(newer, before, sidecar, error);
        status = status < 0 ? status : 1;
    }
    stk_sidecar_close(sidecar);
    return status;
}

static int take_in(struct stoker_dataset *newer, const struct stoker_dataset *before,
                   struct stk_sidecar *sidecar, struct stoker_error *error)
{
    int status = 0;

    if (newer->options.index == STOKER_INDEX_REQUIRE && sidecar->reused < newer->objects.count) {
        return stk_dataset_refuse(sidecar, error);
    }
    newer->index_path = sidecar->reused > 0 ? stk_strdup(sidecar->path) : NULL;
    newer->index_note = stk_strdup(sidecar->whole ? "" : sidecar->note);
    newer->shards_indexed = sidecar->reused;
    if (sidecar->whole) {
        stk_dataset_adopt(newer, sidecar);
    } else {
        struct stk_reuse reuse = {.first = before->index,
                                  .first_count = stk_index_shards(before->index),
                                  .old = sidecar->old,
                                  .from = sidecar->from};

        status = stk_scan(newer, &reuse, error);
        newer->mtimes = sidecar->mtimes;
        sidecar->mtimes = NULL;
    }
    if (status == 0) {
        stk_index_set_block(newer->index, stk_index_block_samples(before->index), 0);
    }
    return status;
}

int stoker_dataset_refresh(const struct stoker_dataset *dataset, uint64_t shard_count,
                           struct stoker_dataset **newer_out, struct stoker_error *error)
{
    struct stoker_dataset *newer = NULL;
    int status;

    *newer_out = NULL;
    if (dataset->objects.kind != STK_SOURCE_TARS) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "class folders do not grow while in use",
                        "open the data set anew", "'%.400s'", dataset->options.urls[0]);
    }
    status = stk_dataset_new(&newer, dataset->engine, &dataset->options, error);
    status = status < 0 ? status : look(newer, dataset, shard_count, error);
    if (status == 1) {
        *newer_out = newer;
    } else if (newer) {
        stk_dataset_release(newer);
    }
    return status;
}

/* The first `shards` of a data set, as one that was opened when there were no others. */
static int make_first(struct stoker_dataset **part_out, const struct stoker_dataset *dataset,
                      uint64_t shards, struct stoker_error *error)
{
    struct stk_index_options options = {.shard_count = shards,
                                        .key_bytes_max = stk_index_key_bytes_max(dataset->index),
                                        .join_distance = stk_index_join_distance(dataset->index)};
    struct stoker_dataset *part = NULL;
    int status = stk_dataset_new(&part, dataset->engine, &dataset->options, error);

    if (status == 0) {
        part->objects.kind = STK_SOURCE_TARS;
        part->mtimes = dataset->mtimes ? stk_alloc(shards, sizeof *part->mtimes) : NULL;
        status = stk_dataset_make_room(part, shards, error);
        status = status < 0 ? status : stk_index_open(&part->index, &options, error);
    }
    for (uint64_t i = 0; status == 0 && i < shards; i++) {
        char path[STK_PATH_BYTES_MAX];

        status = stk_index_path(dataset->index, i, path, error);
        status =
            status < 0 ? status : stk_shard_copy(part->index, i, path, dataset->index, i, error);
        if (part->mtimes) {
            part->mtimes[i] = dataset->mtimes[i];
        }
    }
    status = status < 0 ? status : stk_scan_finish(part, dataset->index, 0, error);
    if (status < 0) {
        if (part) {
            stk_dataset_release(part);
        }
        return status;
    }
    *part_out = part;
    return 0;
}

static bool is_of(const struct stoker_dataset *dataset, const struct stoker_state *state)
{
    return memcmp(stk_index_identity(dataset->index), state->identity, sizeof state->identity) ==
               0 &&
           stk_index_samples(dataset->index) == state->sample_count;
}

int stoker_dataset_as_of(const struct stoker_dataset *dataset, const struct stoker_state *state,
                         struct stoker_dataset **part_out, struct stoker_error *error)
{
    uint64_t count = stk_index_shards(dataset->index);
    bool tars = dataset->objects.kind == STK_SOURCE_TARS;

    *part_out = NULL;
    if (is_of(dataset, state) && stk_index_block_samples(dataset->index) == state->block_samples) {
        return 0;
    }
    /* Shards without samples make several firsts of one count: the identity tells which it is. */
    for (uint64_t i = tars ? count : 0; i > 0 && state->block_samples > 0; i--) {
        struct stoker_dataset *part = NULL;
        uint64_t samples = stk_index_first_sample(dataset->index, i - 1) +
                           stk_index_shard_samples(dataset->index, i - 1);
        int status;

        if (samples < state->sample_count) {
            break;
        }
        if (samples > state->sample_count) {
            continue;
        }
        status = make_first(&part, dataset, i, error);
        if (status < 0) {
            return status;
        }
        if (is_of(part, state)) {
            stk_index_set_block(part->index, state->block_samples, 0);
            *part_out = part;
            return 1;
        }
        stk_dataset_release(part);
    }
    return stk_fail(error, STOKER_ERROR_STATE, "the state belongs to another data set",
                    "open the data set that it was made with; it may have grown, not changed",
                    "%" PRIu64 " samples in the state, %" PRIu64 " here", state->sample_count,
                    stk_index_samples(dataset->index));
}
