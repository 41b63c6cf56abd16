/* Makes data sets from others: from a data set that grew, from an earlier state of a data set, and
 * from several data sets. The original does not change: its loaders continue to use it. */
#include "base/mem.h"
#include "dataset/dataset.h"

#include "dataset/dataset_scan.h"
#include "dataset/index_locate.h"
#include "format/compress/decompress.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static int add_new_shards(struct stoker_dataset *newer, const struct stoker_dataset *before,
                          struct stk_index_location *location, struct stoker_error *error);

static int changed(struct stoker_error *error, const char *what, const char *path)
{
    return stk_fail(error, STOKER_ERROR_CHANGED, what,
                    "append shards by names that sort behind those that are there, or open the "
                    "data set again",
                    "'%.600s'", path);
}

/* Checks that all existing shards are present, unchanged, and first in the listing. */
static int check_first(const struct stoker_dataset *before, const struct stoker_dataset *newer,
                       const struct stk_index_location *location, struct stoker_error *error)
{
    for (uint64_t i = 0; i < stk_index_shards(before->index); i++) {
        char path[STK_PATH_BYTES_MAX];
        int status = stk_index_path(before->index, i, path, error);
        const char *now = i < newer->objects.count ? stk_source_files_path(&newer->objects, i) : "";

        if (status < 0) {
            return status;
        }
        if (strcmp(path, now) != 0) {
            return changed(error, "a shard was removed, or another one precedes it", path);
        }
        if (location->sizes[i] != stk_index_shard_bytes(before->index, i) ||
            (before->mtimes && location->mtimes[i] != before->mtimes[i])) {
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
        return stk_fail(error, STOKER_ERROR_CHANGED, "there are fewer shards than requested",
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
    struct stk_index_location *location = NULL;
    int status = stk_dataset_list(newer, error);

    if (status == 0 && newer->objects.kind != STK_SOURCE_TARS) {
        status = changed(error, "the data set became class folders", before->options.urls[0]);
    }
    status = status < 0 ? status : cut(newer, before, shard_count, error);
    status = status < 0 ? status : stk_index_location_open(&location, newer, error);
    if (status == 0 && newer->options.index != STOKER_INDEX_NEVER) {
        status = stk_index_location_find(location, newer, error);
    }
    status = status < 0 ? status : stk_index_location_match(location, newer, error);
    status = status < 0 ? status : check_first(before, newer, location, error);
    if (status == 0 && newer->objects.count > stk_index_shards(before->index)) {
        status = add_new_shards(newer, before, location, error);
        status = status < 0 ? status : 1;
    }
    stk_index_location_close(location);
    return status;
}

static int add_new_shards(struct stoker_dataset *newer, const struct stoker_dataset *before,
                          struct stk_index_location *location, struct stoker_error *error)
{
    int status = 0;

    if (newer->options.index == STOKER_INDEX_REQUIRE && location->reused < newer->objects.count) {
        return stk_dataset_fail_index_required(location, error);
    }
    newer->index_path = location->reused > 0 ? stk_strdup(location->path) : NULL;
    newer->index_note = stk_strdup(location->complete ? "" : location->note);
    newer->shards_indexed = location->reused;
    if (location->complete) {
        stk_dataset_use_index(newer, location);
    } else {
        struct stk_dataset_reuse reuse = {.first = before->index,
                                          .first_count = stk_index_shards(before->index),
                                          .old = location->old,
                                          .from = location->from};

        status = stk_dataset_scan(newer, &reuse, error);
        newer->mtimes = location->mtimes;
        location->mtimes = NULL;
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
    if (dataset->objects.kind != STK_SOURCE_TARS || stk_dataset_is_joined(dataset)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "class folders do not grow while in use",
                        "open the data set again", "'%.400s'", dataset->options.urls[0]);
    }
    status = stk_dataset_new(&newer, dataset->engine, &dataset->options, error);
    status = status < 0 ? status : look(newer, dataset, shard_count, error);
    if (status == 1) {
        stk_dataset_open_jpeg_index(newer);
        *newer_out = newer;
    } else if (newer) {
        stk_dataset_release(newer);
    }
    return status;
}

/* Makes a data set of the first `shards` of a data set, as if it had been opened before the other
 * shards existed. */
static int open_first_shards(struct stoker_dataset **part_out, const struct stoker_dataset *dataset,
                             uint64_t shards, struct stoker_error *error)
{
    struct stk_index_options options = {.shard_count = shards,
                                        .key_bytes_max = stk_index_key_bytes_max(dataset->index),
                                        .member_gap_max = stk_index_member_gap_max(dataset->index)};
    struct stoker_dataset *part = NULL;
    int status = stk_dataset_new(&part, dataset->engine, &dataset->options, error);

    if (status == 0) {
        part->objects.kind = STK_SOURCE_TARS;
        part->mtimes = dataset->mtimes ? stk_alloc(shards, sizeof *part->mtimes) : NULL;
        part->objects.count = shards;
        status = stk_open_files_reserve(&part->files, shards, error);
        status = status < 0 ? status : stk_index_open(&part->index, &options, error);
    }
    for (uint64_t i = 0; status == 0 && i < shards; i++) {
        char path[STK_PATH_BYTES_MAX];

        status = stk_index_path(dataset->index, i, path, error);
        status = status < 0 ? status
                            : stk_index_shard_copy(part->index, i, path, dataset->index, i, error);
        if (part->mtimes) {
            part->mtimes[i] = dataset->mtimes[i];
        }
    }
    status = status < 0 ? status : stk_dataset_scan_finish(part, dataset->index, 0, error);
    if (status < 0) {
        if (part) {
            stk_dataset_release(part);
        }
        return status;
    }
    *part_out = part;
    return 0;
}

static bool has_identity_of(const struct stoker_dataset *dataset, const struct stoker_state *state)
{
    return memcmp(stk_index_identity(dataset->index), state->identity, sizeof state->identity) ==
               0 &&
           stk_index_samples(dataset->index) == state->sample_count;
}

int stoker_dataset_as_of(const struct stoker_dataset *dataset, const struct stoker_state *state,
                         struct stoker_dataset **part_out, struct stoker_error *error)
{
    uint64_t count = stk_index_shards(dataset->index);
    bool tars = dataset->objects.kind == STK_SOURCE_TARS && !stk_dataset_is_joined(dataset);

    *part_out = NULL;
    if (has_identity_of(dataset, state) &&
        stk_index_block_samples(dataset->index) == state->block_samples) {
        return 0;
    }
    /* Shards without samples give several prefixes of one count: the identity selects one. */
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
        status = open_first_shards(&part, dataset, i, error);
        if (status < 0) {
            return status;
        }
        if (has_identity_of(part, state)) {
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

/* ---- several as one ---- */

static int copy_file(struct stk_index *to, uint32_t shard, const char *path,
                     const struct stk_index *from, uint32_t from_shard, struct stoker_error *error)
{
    struct stk_index_shard_builder *builder;
    struct stk_sample sample;
    struct stk_member member;
    const char *extension;
    int status = stk_index_sample(from, stk_index_first_sample(from, from_shard), &sample, error);

    status = status < 0 ? status : stk_index_member(from, &sample, 0, &member, error);
    status = status < 0 ? status : stk_index_shard_begin(to, shard, path, &builder, error);
    if (status < 0) {
        return status;
    }
    extension = stk_index_extension(from, member.extension);
    status = stk_index_shard_add_file(
        builder, sample.key, (struct stk_view){(const uint8_t *)extension, strlen(extension)},
        sample.label, error);
    if (status < 0) {
        stk_index_shard_cancel(builder);
        return status;
    }
    return stk_index_shard_end(builder, 0, STK_COMPRESSION_NONE, error);
}

/* Adds all shards of a part after the existing ones. */
static int add_part(struct stoker_dataset *joined, uint64_t first,
                    const struct stoker_dataset *part, struct stoker_error *error)
{
    const struct stk_index *from = part->index;
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < stk_index_shards(from); i++) {
        char path[STK_PATH_BYTES_MAX];
        uint32_t shard = (uint32_t)(first + i);

        status = stk_index_path(from, (uint32_t)i, path, error);
        if (status == 0) {
            status =
                stk_index_is_file(from, (uint32_t)i)
                    ? copy_file(joined->index, shard, path, from, (uint32_t)i, error)
                    : stk_index_shard_copy(joined->index, shard, path, from, (uint32_t)i, error);
        }
    }
    return status;
}

/* Sets what is needed before shards are copied: the ends of parts, their kinds, and their number.
 */
static int joined_layout(struct stoker_dataset *joined, struct stoker_dataset *const *parts,
                         size_t count, struct stoker_error *error)
{
    uint64_t shards = 0, tars = 0;

    joined->url_ends = stk_alloc(count, sizeof *joined->url_ends);
    joined->files.ranges = stk_alloc(count, sizeof *joined->files.ranges);
    if (!joined->url_ends || !joined->files.ranges) {
        return stk_fail(error, -ENOMEM, "cannot join data sets", "free memory", "%zu data sets",
                        count);
    }
    joined->files.range_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        bool folder = stk_index_is_folder(parts[i]->index);

        joined->files.ranges[i].files_before = folder ? UINT64_MAX : shards - tars;
        shards += stk_index_shards(parts[i]->index);
        tars += folder ? 0 : stk_index_shards(parts[i]->index);
        joined->files.ranges[i].end = joined->url_ends[i] = shards;
    }
    if (shards >= UINT32_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "too many files in one data set",
                        "pack the folders as tars", "%" PRIu64 " files and shards", shards);
    }
    joined->objects.kind = STK_SOURCE_TARS;
    joined->objects.count = stk_max(tars, 1);
    return stk_open_files_reserve(&joined->files, joined->objects.count, error);
}

static int fill_joined(struct stoker_dataset *joined, struct stoker_dataset *const *parts,
                       size_t count, struct stoker_error *error)
{
    struct stk_index_options options = {0};
    const struct stk_index *like = NULL;
    uint64_t block_samples = UINT64_MAX, first = 0;
    int status = joined_layout(joined, parts, count, error);

    for (size_t i = 0; i < count; i++) {
        const struct stk_index *index = parts[i]->index;

        options.shard_count += stk_index_shards(index);
        options.key_bytes_max = stk_max(options.key_bytes_max, stk_index_key_bytes_max(index));
        options.member_gap_max = stk_max(options.member_gap_max, stk_index_member_gap_max(index));
        /* All parts use the same block length: at most the smallest block length of any part. */
        block_samples = stk_min(block_samples, stk_index_block_samples(index));
        like = !like && stk_index_classes(index) > 0 ? index : like;
    }
    status = status < 0 ? status : stk_index_open(&joined->index, &options, error);
    for (size_t i = 0; status == 0 && i < count; i++) {
        status = add_part(joined, first, parts[i], error);
        first += stk_index_shards(parts[i]->index);
    }
    return status < 0 ? status : stk_dataset_scan_finish(joined, like, block_samples, error);
}

int stoker_dataset_join(struct stoker_dataset *const *parts, size_t part_count,
                        struct stoker_dataset **joined_out, struct stoker_error *error)
{
    struct stoker_dataset_options options;
    struct stoker_dataset *joined = NULL;
    const char **urls;
    bool is_sound = parts && part_count > 0 && part_count <= UINT16_MAX;
    int status;

    *joined_out = NULL;
    for (size_t i = 0; is_sound && i < part_count; i++) {
        is_sound = parts[i]->engine == parts[0]->engine && !stk_dataset_is_joined(parts[i]);
    }
    if (!is_sound) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "these data sets cannot be joined",
                        "pass open data sets of one engine, none of them already joined",
                        "%zu data sets", part_count);
    }
    options = parts[0]->options;
    options.index_path = NULL;
    urls = stk_alloc(part_count, sizeof *urls);
    if (!urls) {
        return stk_fail(error, -ENOMEM, "cannot join data sets", "free memory", "%zu data sets",
                        part_count);
    }
    for (size_t i = 0; i < part_count; i++) {
        urls[i] = parts[i]->options.urls[0];
    }
    options.urls = urls;
    options.url_count = part_count;
    status = stk_dataset_new(&joined, parts[0]->engine, &options, error);
    status = status < 0 ? status : fill_joined(joined, parts, part_count, error);
    stk_free(urls);
    if (status < 0) {
        if (joined) {
            stk_dataset_release(joined);
        }
        return status;
    }
    *joined_out = joined;
    return 0;
}

int stoker_dataset_url_end(const struct stoker_dataset *dataset, size_t url, uint64_t *samples_out)
{
    uint64_t shard;

    if (url >= dataset->options.url_count) {
        return STOKER_ERROR_ARGUMENT;
    }
    if (url + 1 == dataset->options.url_count) {
        *samples_out = stk_index_samples(dataset->index);
        return 0;
    }
    if (!dataset->url_ends) {
        return STOKER_ERROR_UNSUPPORTED;
    }
    shard = dataset->url_ends[url];
    *samples_out = shard < stk_index_shards(dataset->index)
                       ? stk_index_first_sample(dataset->index, shard)
                       : stk_index_samples(dataset->index);
    return 0;
}
