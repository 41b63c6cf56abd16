/* Compares the indexes of a data set with its shards. */
#include "base/mem.h"
#include "tools/verify/verify.h"

#include "io/write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int match_shards(struct stoker_verify *verify, uint32_t root,
                        struct stk_verify_findings *findings, struct stoker_error *error);
static int find_index(struct stoker_verify *verify, uint32_t root,
                      struct stk_verify_findings *findings, struct stoker_error *cause,
                      struct stoker_error *error);
static int next_member(struct stk_index_check *index_check, struct stoker_error *error);

static const char advice_stale[] = "run 'stoker index' again, or remove the index";

static int index_path(const struct stk_manifest_root *root, char path[STK_PATH_BYTES_MAX])
{
    int bytes = root->index_file
                    ? snprintf(path, STK_PATH_BYTES_MAX, "%s", root->index_file)
                    : snprintf(path, STK_PATH_BYTES_MAX, "%s" STK_INDEX_FILE_NAME, root->path);

    return bytes < STK_PATH_BYTES_MAX ? 0 : -ENAMETOOLONG;
}

/* Maps the root's index. below: the prefix of its paths; NULL: its own folder. */
static int open_index(struct stoker_verify *verify, uint32_t number, const char *below,
                      struct stk_verify_findings *findings, struct stoker_error *error)
{
    struct stk_manifest_root *root = &verify->roots.items[number];
    struct stk_io *io = verify->engine->io;
    struct stoker_error cause = {0};
    struct stk_stat about;
    char path[STK_PATH_BYTES_MAX];
    int status;

    if (index_path(root, path) < 0 || stk_io_stat_path(io, path, &about, NULL) < 0) {
        return 0;
    }
    status = stk_index_open_file(&root->index, io, path, &cause);
    if (status == 0 && below) {
        status = stk_index_set_root(root->index, below, &cause);
    }
    if (status == 0) {
        return match_shards(verify, number, findings, error);
    }
    stk_index_close(root->index);
    root->index = NULL;
    return stk_verify_is_process_error(status)
               ? (*error = cause, status)
               : find_index(verify, number, findings, &cause, error);
}

/* Adds an index in a folder without shards, if it exists. */
static int open_other_index(struct stoker_verify *verify, const char *file, const char *below,
                            struct stk_verify_findings *findings, struct stoker_error *error)
{
    struct stk_manifest_roots *roots = &verify->roots;
    struct stk_manifest_root *root = &roots->items[roots->count];
    struct stk_stat about;

    for (uint32_t i = 0; i < roots->count; i++) {
        char path[STK_PATH_BYTES_MAX];

        if (index_path(&roots->items[i], path) == 0 && strcmp(path, file) == 0) {
            return 0;
        }
    }
    if (!file[0] || stk_io_stat_path(verify->engine->io, file, &about, NULL) < 0) {
        return 0;
    }
    root->path = stk_strdup("");
    root->index_file = stk_strdup(file);
    roots->count++;
    return root->path && root->index_file
               ? open_index(verify, roots->count - 1, below, findings, error)
               : stk_fail_memory(error, "index");
}

int stk_verify_indexes_open(struct stoker_verify *verify, struct stk_verify_findings *findings,
                            struct stoker_error *error)
{
    struct stk_index_location *sidecar = NULL;
    struct stk_stat about;
    int status = stk_index_location_open(&sidecar, verify->named, error);

    for (uint32_t i = 0; i < verify->roots.count && status == 0; i++) {
        status = open_index(verify, i, NULL, findings, error);
    }
    if (status == 0) {
        status = open_other_index(verify, sidecar->next_to_data, NULL, findings, error);
    }
    /* As a data set does: the index in the cache folder is used if there is none next to the data.
     */
    if (status == 0 &&
        stk_io_stat_path(verify->engine->io, sidecar->next_to_data, &about, NULL) < 0) {
        status = open_other_index(verify, sidecar->cache, sidecar->root, findings, error);
    }
    stk_index_location_close(sidecar);
    return status;
}

/* Adds a finding about the complete index. */
static int find_index(struct stoker_verify *verify, uint32_t root,
                      struct stk_verify_findings *findings, struct stoker_error *cause,
                      struct stoker_error *error)
{
    struct stk_manifest_root *of = &verify->roots.items[root];
    char path[STK_PATH_BYTES_MAX];

    atomic_store_explicit(&of->stale, true, memory_order_relaxed);
    if (index_path(of, path) == 0) {
        snprintf(cause->shard, sizeof cause->shard, "%s", path);
    }
    snprintf(cause->advice, sizeof cause->advice, "%s", advice_stale);
    return stk_verify_add_finding(verify, findings, STOKER_FINDING_INDEX, cause, "") < 0
               ? stk_fail_memory(error, "index")
               : 0;
}

/* The paths of all objects, numbered; the caller deinits. */
static int number_objects(struct stoker_verify *verify, struct stk_string_table *paths)
{
    int status = 0;

    for (uint64_t i = 0; i < verify->objects.count && status == 0; i++) {
        const char *path = stk_source_files_path(&verify->objects, i);
        uint32_t number;

        status = stk_string_table_add(paths, (struct stk_view){(const uint8_t *)path, strlen(path)},
                                      1u << 30, &number);
        /* A file that is named twice is compared once. */
    }
    return status;
}

/* Which shard of the index is which object. */
static int match_shards(struct stoker_verify *verify, uint32_t number,
                        struct stk_verify_findings *findings, struct stoker_error *error)
{
    struct stk_manifest_root *root = &verify->roots.items[number];
    struct stk_string_table paths = {0};
    int status = number_objects(verify, &paths);
    bool same = paths.count == verify->objects.count;

    if (!verify->roots.locations) {
        verify->roots.locations = stk_alloc(verify->objects.count, sizeof *verify->roots.locations);
    }
    if (status < 0 || !verify->roots.locations) {
        stk_string_table_deinit(&paths);
        return stk_fail_memory(error, "index");
    }
    for (uint64_t i = 0; i < stk_index_shards(root->index) && status == 0 && same; i++) {
        char path[STK_PATH_BYTES_MAX];
        struct stoker_error cause = {0};
        int64_t object = -1;

        status = stk_index_path(root->index, (uint32_t)i, path, &cause);
        if (status < 0) {
            status = find_index(verify, number, findings, &cause, error);
            break;
        }
        object =
            stk_string_table_find(&paths, (struct stk_view){(const uint8_t *)path, strlen(path)});
        if (object >= 0) {
            verify->roots.locations[object] = (struct stk_verify_location){number + 1, (uint32_t)i};
        } else if (root->complete) {
            stk_fail(&cause, STOKER_ERROR_CHANGED, "the index lists a shard that does not exist",
                     advice_stale, "shard %s", path);
            status = find_index(verify, number, findings, &cause, error);
            break; /* one is enough to know */
        }
    }
    stk_string_table_deinit(&paths);
    return status;
}

void stk_index_check_init(struct stk_index_check *index_check, struct stoker_verify *verify,
                          uint64_t object)
{
    const struct stk_verify_location *location =
        verify->roots.locations ? &verify->roots.locations[object] : NULL;

    *index_check = (struct stk_index_check){0};
    if (!location || location->root == 0) {
        return;
    }
    index_check->root = location->root - 1;
    index_check->index = verify->roots.items[index_check->root].index;
    index_check->shard = location->shard;
    index_check->digest = stk_index_is_folder(index_check->index)
                              ? NULL
                              : stk_index_shard_digest(index_check->index, index_check->shard);
    index_check->sums = stk_index_shard_has_checksums(index_check->index, index_check->shard);
    index_check->sample = stk_index_first_sample(index_check->index, index_check->shard);
    index_check->end =
        index_check->sample + stk_index_shard_samples(index_check->index, index_check->shard);
    /* Joined samples are not in the order of their members. */
    index_check->members = stk_index_member_gap_max(index_check->index) == 0;
}

int stk_index_check_fail(struct stk_shard_check *check, struct stoker_error *cause, uint64_t offset,
                         struct stoker_error *error)
{
    check->index_check.members = check->index_check.sums = false;
    check->index_check.digest = NULL;
    atomic_store_explicit(&check->verify->roots.items[check->index_check.root].stale, true,
                          memory_order_relaxed);
    snprintf(cause->advice, sizeof cause->advice, "%s", advice_stale);
    cause->offset = STOKER_NO_OFFSET;
    cause->key[0] = '\0';
    return stk_shard_check_add_finding(check, STOKER_FINDING_INDEX, cause,
                                       &(struct stk_verify_spot){offset, NULL, ""}, error);
}

int stk_index_check_size(struct stk_shard_check *check, uint64_t bytes, struct stoker_error *error)
{
    const struct stk_index_check *index_check = &check->index_check;
    struct stoker_error cause = {0};
    uint64_t indexed;

    if (!index_check->index || stk_index_is_folder(index_check->index)) {
        return 0;
    }
    indexed = stk_index_shard_bytes(index_check->index, index_check->shard);
    if (indexed == bytes) {
        return 0;
    }
    stk_fail(&cause, STOKER_ERROR_CHANGED, "the index was built from another shard", advice_stale,
             "%llu bytes, not %llu", (unsigned long long)indexed, (unsigned long long)bytes);
    return stk_index_check_fail(check, &cause, STOKER_NO_OFFSET, error);
}

/* Moves to the index's next member: 0 at the end. */
static int next_member(struct stk_index_check *index_check, struct stoker_error *error)
{
    int status;

    if (index_check->loaded && index_check->member + 1 < index_check->current.member_count) {
        index_check->member++;
    } else {
        index_check->sample += index_check->loaded;
        index_check->loaded = false;
        if (index_check->sample >= index_check->end) {
            return 0;
        }
        status =
            stk_index_sample(index_check->index, index_check->sample, &index_check->current, error);
        if (status < 0) {
            return status;
        }
        index_check->loaded = true;
        index_check->member = 0;
    }
    status = stk_index_member(index_check->index, &index_check->current, index_check->member,
                              &index_check->place, error);
    return status < 0 ? status : 1;
}

int stk_index_check_member(struct stk_shard_check *check, struct stk_view key,
                           const char *extension, uint64_t offset, uint64_t bytes,
                           struct stoker_error *error)
{
    struct stk_index_check *index_check = &check->index_check;
    struct stoker_error cause = {0};
    bool is_link = offset == STK_INDEX_CHECK_LINK;
    int status;

    index_check->summed = false;
    if (!index_check->index || !index_check->members) {
        return 0;
    }
    /* Damage takes members away: those before this one are passed over. */
    do {
        status = next_member(index_check, &cause);
    } while (status == 1 && check->damage > 0 && !is_link && index_check->place.offset < offset);
    if (status == 1 &&
        ((!is_link && (index_check->place.offset != offset || index_check->place.bytes != bytes)) ||
         index_check->current.key.bytes != key.bytes ||
         memcmp(index_check->current.key.data, key.data, key.bytes) != 0 ||
         strcmp(stk_index_extension(index_check->index, index_check->place.extension), extension) !=
             0)) {
        status = 0;
    }
    if (status == 1 && index_check->sums && !is_link) {
        status = stk_index_checksum(index_check->index, &index_check->current, index_check->member,
                                    &index_check->sum, &cause);
        index_check->summed = status == 0;
        status = status == 0 ? 1 : status;
    }
    if (status == 0) {
        stk_fail(&cause, STOKER_ERROR_CHANGED, "the index differs for this member", advice_stale,
                 "%.*s.%s", (int)stk_min(key.bytes, 200), (const char *)key.data, extension);
    }
    return status == 1
               ? 0
               : stk_index_check_fail(check, &cause, is_link ? STOKER_NO_OFFSET : offset, error);
}

int stk_index_check_end(struct stk_shard_check *check, struct stoker_error *error)
{
    struct stoker_error cause = {0};
    int status;

    if (!check->index_check.index || !check->index_check.members || check->damage > 0 ||
        check->broken) {
        return 0;
    }
    status = next_member(&check->index_check, &cause);
    if (status == 1) {
        status = stk_fail(&cause, STOKER_ERROR_CHANGED, "the index lists members that do not exist",
                          advice_stale, "from offset %llu",
                          (unsigned long long)check->index_check.place.offset);
    }
    return status == 0 ? 0 : stk_index_check_fail(check, &cause, STOKER_NO_OFFSET, error);
}

static int digest_of(struct stoker_verify *verify, const char *path, uint8_t digest[32],
                     struct stoker_error *error)
{
    struct stk_read_ahead reader;
    struct stk_sha256 sha;
    int status;

    stk_sha256_init(&sha);
    stk_read_ahead_init(&reader, verify->engine);
    status = stk_read_ahead_start(&reader, path, error);
    while (status == 0) {
        struct stk_view block;

        status = stk_read_ahead_next(&reader, &block, error);
        if (status < 0 || block.bytes == 0) {
            break;
        }
        stk_sha256_add(&sha, block.data, block.bytes);
    }
    stk_read_ahead_deinit(&reader);
    stk_sha256_done(&sha, digest);
    return status;
}

int stk_verify_indexes_compare(struct stoker_verify *verify, struct stk_verify_findings *findings,
                               struct stoker_error *error)
{
    int status = 0;

    for (uint32_t i = 0; i < verify->roots.count && status == 0; i++) {
        struct stk_manifest_root *root = &verify->roots.items[i];
        const char *name = root->has_manifest ? root->manifest.index.name : NULL;
        struct stoker_error cause = {0};
        char path[STK_PATH_BYTES_MAX];
        uint8_t digest[32];

        if (!root->index || !name || strcmp(name, STK_INDEX_FILE_NAME) != 0 ||
            atomic_load_explicit(&root->stale, memory_order_relaxed) ||
            index_path(root, path) < 0) {
            continue;
        }
        status = digest_of(verify, path, digest, &cause);
        if (status < 0) {
            status = stk_verify_is_process_error(status)
                         ? (*error = cause, status)
                         : find_index(verify, i, findings, &cause, error);
        } else if (memcmp(digest, root->manifest.index.sha256, sizeof digest) != 0) {
            stk_fail(&cause, STOKER_ERROR_CHANGED,
                     "the index does not have the SHA-256 of the manifest, but matches the data",
                     "this is expected if the data set was indexed again", "%s", "");
            stk_error_set_location(&cause, path, STOKER_NO_OFFSET, NULL);
            status =
                stk_verify_add_finding(verify, findings, STOKER_FINDING_REINDEXED, &cause, "") < 0
                    ? stk_fail_memory(error, "index")
                    : 0;
        }
    }
    return status;
}

int stk_verify_indexes_remove_stale(struct stoker_verify *verify, struct stoker_error *error)
{
    struct stk_io *io = verify->engine->io;
    int status = 0;

    for (uint32_t i = 0; i < verify->roots.count && status == 0; i++) {
        struct stk_manifest_root *root = &verify->roots.items[i];
        char path[STK_PATH_BYTES_MAX], stamp[STK_PATH_BYTES_MAX + 8];

        if (!atomic_load_explicit(&root->stale, memory_order_relaxed) ||
            index_path(root, path) < 0) {
            continue;
        }
        snprintf(stamp, sizeof stamp, "%s.stamp", path);
        status = stk_io_remove(io, path, error);
        status = status < 0 ? status : stk_io_remove(io, stamp, error);
    }
    return status;
}

void stk_verify_indexes_mark_stale(struct stoker_verify *verify, uint64_t object)
{
    const struct stk_verify_location *location =
        verify->roots.locations ? &verify->roots.locations[object] : NULL;

    if (location && location->root > 0) {
        atomic_store_explicit(&verify->roots.items[location->root - 1].stale, true,
                              memory_order_relaxed);
    }
}
