/* The indexes beside the data: what they say of each shard, and whether it is so. */
#include "base/mem.h"
#include "tools/verify/verify.h"

#include "io/write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int match_shards(struct stoker_verify *verify, uint32_t root, struct stk_findings *findings,
                        struct stoker_error *error);
static int find_index(struct stoker_verify *verify, uint32_t root, struct stk_findings *findings,
                      struct stoker_error *found, struct stoker_error *error);
static int next_member(struct stk_known *known, struct stoker_error *error);

static const char advice_stale[] = "run 'stoker index' again, or remove the index";

static int fail_memory(struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "cannot verify", "free memory", "index");
}

static int index_path(const struct stk_root *root, char path[STK_PATH_BYTES_MAX])
{
    int bytes = root->index_file
                    ? snprintf(path, STK_PATH_BYTES_MAX, "%s", root->index_file)
                    : snprintf(path, STK_PATH_BYTES_MAX, "%s" STK_SIDECAR_NAME, root->path);

    return bytes < STK_PATH_BYTES_MAX ? 0 : -ENAMETOOLONG;
}

/* Maps the root's index. below: what stands before its paths; NULL: its own folder. */
static int open_index(struct stoker_verify *verify, uint32_t number, const char *below,
                      struct stk_findings *findings, struct stoker_error *error)
{
    struct stk_root *root = &verify->roots.items[number];
    struct stk_io *io = verify->engine->io;
    struct stoker_error found = {0};
    struct stk_stat about;
    char path[STK_PATH_BYTES_MAX];
    int status;

    if (index_path(root, path) < 0 || stk_io_stat_path(io, path, &about, NULL) < 0) {
        return 0;
    }
    status = stk_index_map(&root->index, io, path, &found);
    if (status == 0 && below) {
        status = stk_index_set_root(root->index, below, &found);
    }
    if (status == 0) {
        return match_shards(verify, number, findings, error);
    }
    stk_index_close(root->index);
    root->index = NULL;
    return stk_verify_is_ours(status) ? (*error = found, status)
                                      : find_index(verify, number, findings, &found, error);
}

/* An index that lies where no shard does, if it is there. */
static int open_apart(struct stoker_verify *verify, const char *file, const char *below,
                      struct stk_findings *findings, struct stoker_error *error)
{
    struct stk_roots *roots = &verify->roots;
    struct stk_root *root = &roots->items[roots->count];
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
               : fail_memory(error);
}

int stk_indexes_open(struct stoker_verify *verify, struct stk_findings *findings,
                     struct stoker_error *error)
{
    struct stk_sidecar *sidecar = NULL;
    struct stk_stat about;
    int status = stk_sidecar_open(&sidecar, verify->named, error);

    for (uint32_t i = 0; i < verify->roots.count && status == 0; i++) {
        status = open_index(verify, i, NULL, findings, error);
    }
    if (status == 0) {
        status = open_apart(verify, sidecar->beside, NULL, findings, error);
    }
    /* As a data set does it: the cached one counts where there is none beside. */
    if (status == 0 && stk_io_stat_path(verify->engine->io, sidecar->beside, &about, NULL) < 0) {
        status = open_apart(verify, sidecar->cache, sidecar->root, findings, error);
    }
    stk_sidecar_close(sidecar);
    return status;
}

/* A finding about the index as a whole. */
static int find_index(struct stoker_verify *verify, uint32_t root, struct stk_findings *findings,
                      struct stoker_error *found, struct stoker_error *error)
{
    struct stk_root *of = &verify->roots.items[root];
    char path[STK_PATH_BYTES_MAX];

    atomic_store_explicit(&of->stale, true, memory_order_relaxed);
    if (index_path(of, path) == 0) {
        snprintf(found->shard, sizeof found->shard, "%s", path);
    }
    snprintf(found->advice, sizeof found->advice, "%s", advice_stale);
    return stk_verify_find(verify, findings, STOKER_FINDING_INDEX, found, "") < 0
               ? fail_memory(error)
               : 0;
}

/* The paths of all objects, numbered; the caller deinits. */
static int number_objects(struct stoker_verify *verify, struct stk_words *paths)
{
    int status = 0;

    for (uint64_t i = 0; i < verify->objects.count && status == 0; i++) {
        const char *path = verify->objects.text + verify->objects.paths[i];
        uint32_t number;

        status = stk_words_intern(paths, (struct stk_view){(const uint8_t *)path, strlen(path)},
                                  1u << 30, &number);
        /* The same file named twice: the first one is compared. */
    }
    return status;
}

/* Which shard of the index is which object. */
static int match_shards(struct stoker_verify *verify, uint32_t number,
                        struct stk_findings *findings, struct stoker_error *error)
{
    struct stk_root *root = &verify->roots.items[number];
    struct stk_words paths = {0};
    int status = number_objects(verify, &paths);
    bool same = paths.count == verify->objects.count;

    if (!verify->roots.places) {
        verify->roots.places = stk_alloc(verify->objects.count, sizeof *verify->roots.places);
    }
    if (status < 0 || !verify->roots.places) {
        stk_words_deinit(&paths);
        return fail_memory(error);
    }
    for (uint64_t i = 0; i < stk_index_shards(root->index) && status == 0 && same; i++) {
        char path[STK_PATH_BYTES_MAX];
        struct stoker_error found = {0};
        int64_t object = -1;

        status = stk_index_path(root->index, (uint32_t)i, path, &found);
        if (status < 0) {
            status = find_index(verify, number, findings, &found, error);
            break;
        }
        object = stk_words_find(&paths, (struct stk_view){(const uint8_t *)path, strlen(path)});
        if (object >= 0) {
            verify->roots.places[object] = (struct stk_place){number + 1, (uint32_t)i};
        } else if (root->whole) {
            stk_fail(&found, STOKER_ERROR_CHANGED, "the index has a shard that is not there",
                     advice_stale, "shard %s", path);
            status = find_index(verify, number, findings, &found, error);
            break; /* one is enough to know */
        }
    }
    stk_words_deinit(&paths);
    return status;
}

void stk_known_init(struct stk_known *known, struct stoker_verify *verify, uint64_t object)
{
    const struct stk_place *place = verify->roots.places ? &verify->roots.places[object] : NULL;

    *known = (struct stk_known){0};
    if (!place || place->root == 0) {
        return;
    }
    known->root = place->root - 1;
    known->index = verify->roots.items[known->root].index;
    known->shard = place->shard;
    known->digest = stk_index_is_folder(known->index)
                        ? NULL
                        : stk_index_shard_digest(known->index, known->shard);
    known->sums = stk_index_shard_has_checksums(known->index, known->shard);
    known->sample = stk_index_first_sample(known->index, known->shard);
    known->end = known->sample + stk_index_shard_samples(known->index, known->shard);
    /* Joined samples do not lie in the order of their members. */
    known->members = stk_index_join_distance(known->index) == 0;
}

int stk_known_fail(struct stk_check *check, struct stoker_error *found, uint64_t offset,
                   struct stoker_error *error)
{
    check->known.members = check->known.sums = false;
    check->known.digest = NULL;
    atomic_store_explicit(&check->verify->roots.items[check->known.root].stale, true,
                          memory_order_relaxed);
    snprintf(found->advice, sizeof found->advice, "%s", advice_stale);
    found->offset = STOKER_NO_OFFSET;
    found->key[0] = '\0';
    return stk_check_find(check, STOKER_FINDING_INDEX, found, &(struct stk_spot){offset, NULL, ""},
                          error);
}

int stk_known_size(struct stk_check *check, uint64_t bytes, struct stoker_error *error)
{
    const struct stk_known *known = &check->known;
    struct stoker_error found = {0};
    uint64_t indexed;

    if (!known->index || stk_index_is_folder(known->index)) {
        return 0;
    }
    indexed = stk_index_shard_bytes(known->index, known->shard);
    if (indexed == bytes) {
        return 0;
    }
    stk_fail(&found, STOKER_ERROR_CHANGED, "the index was made of another shard", advice_stale,
             "%llu bytes, not %llu", (unsigned long long)indexed, (unsigned long long)bytes);
    return stk_known_fail(check, &found, STOKER_NO_OFFSET, error);
}

/* Moves to the index's next member: 0 at the end. */
static int next_member(struct stk_known *known, struct stoker_error *error)
{
    int status;

    if (known->loaded && known->member + 1 < known->current.member_count) {
        known->member++;
    } else {
        known->sample += known->loaded;
        known->loaded = false;
        if (known->sample >= known->end) {
            return 0;
        }
        status = stk_index_sample(known->index, known->sample, &known->current, error);
        if (status < 0) {
            return status;
        }
        known->loaded = true;
        known->member = 0;
    }
    status = stk_index_member(known->index, &known->current, known->member, &known->place, error);
    return status < 0 ? status : 1;
}

int stk_known_member(struct stk_check *check, struct stk_view key, const char *extension,
                     uint64_t offset, uint64_t bytes, struct stoker_error *error)
{
    struct stk_known *known = &check->known;
    struct stoker_error found = {0};
    int status;

    known->summed = false;
    if (!known->index || !known->members) {
        return 0;
    }
    /* Damage takes members away: those before this one are passed over. */
    do {
        status = next_member(known, &found);
    } while (status == 1 && check->damage > 0 && known->place.offset < offset);
    if (status == 1 &&
        (known->place.offset != offset || known->place.bytes != bytes ||
         known->current.key.bytes != key.bytes ||
         memcmp(known->current.key.data, key.data, key.bytes) != 0 ||
         strcmp(stk_index_extension(known->index, known->place.extension), extension) != 0)) {
        status = 0;
    }
    if (status == 1 && known->sums) {
        status =
            stk_index_checksum(known->index, &known->current, known->member, &known->sum, &found);
        known->summed = status == 0;
        status = status == 0 ? 1 : status;
    }
    if (status == 0) {
        stk_fail(&found, STOKER_ERROR_CHANGED, "the index says something else of this member",
                 advice_stale, "%.*s.%s", (int)stk_min(key.bytes, 200), (const char *)key.data,
                 extension);
    }
    return status == 1 ? 0 : stk_known_fail(check, &found, offset, error);
}

int stk_known_end(struct stk_check *check, struct stoker_error *error)
{
    struct stoker_error found = {0};
    int status;

    if (!check->known.index || !check->known.members || check->damage > 0 || check->broken) {
        return 0;
    }
    status = next_member(&check->known, &found);
    if (status == 1) {
        status = stk_fail(&found, STOKER_ERROR_CHANGED, "the index has members that are not there",
                          advice_stale, "from offset %llu",
                          (unsigned long long)check->known.place.offset);
    }
    return status == 0 ? 0 : stk_known_fail(check, &found, STOKER_NO_OFFSET, error);
}

static int digest_of(struct stoker_verify *verify, const char *path, uint8_t digest[32],
                     struct stoker_error *error)
{
    struct stk_reader reader;
    struct stk_sha256 sha;
    int status;

    stk_sha256_init(&sha);
    stk_reader_init(&reader, verify->engine);
    status = stk_reader_start(&reader, path, error);
    while (status == 0) {
        struct stk_view block;

        status = stk_reader_next(&reader, &block, error);
        if (status < 0 || block.bytes == 0) {
            break;
        }
        stk_sha256_add(&sha, block.data, block.bytes);
    }
    stk_reader_deinit(&reader);
    stk_sha256_done(&sha, digest);
    return status;
}

int stk_indexes_compare(struct stoker_verify *verify, struct stk_findings *findings,
                        struct stoker_error *error)
{
    int status = 0;

    for (uint32_t i = 0; i < verify->roots.count && status == 0; i++) {
        struct stk_root *root = &verify->roots.items[i];
        const char *name = root->manifested ? root->manifest.index.name : NULL;
        struct stoker_error found = {0};
        char path[STK_PATH_BYTES_MAX];
        uint8_t digest[32];

        if (!root->index || !name || strcmp(name, STK_SIDECAR_NAME) != 0 ||
            atomic_load_explicit(&root->stale, memory_order_relaxed) ||
            index_path(root, path) < 0) {
            continue;
        }
        status = digest_of(verify, path, digest, &found);
        if (status < 0) {
            status = stk_verify_is_ours(status) ? (*error = found, status)
                                                : find_index(verify, i, findings, &found, error);
        } else if (memcmp(digest, root->manifest.index.sha256, sizeof digest) != 0) {
            stk_fail(&found, STOKER_ERROR_CHANGED,
                     "the index has not the SHA-256 of the manifest, but fits the data",
                     "nothing is wrong if the data set was indexed anew", "%s", "");
            stk_error_place(&found, path, STOKER_NO_OFFSET, NULL);
            status = stk_verify_find(verify, findings, STOKER_FINDING_REINDEXED, &found, "") < 0
                         ? fail_memory(error)
                         : 0;
        }
    }
    return status;
}

int stk_indexes_remove_stale(struct stoker_verify *verify, struct stoker_error *error)
{
    struct stk_io *io = verify->engine->io;
    int status = 0;

    for (uint32_t i = 0; i < verify->roots.count && status == 0; i++) {
        struct stk_root *root = &verify->roots.items[i];
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

void stk_indexes_spoil(struct stoker_verify *verify, uint64_t object)
{
    const struct stk_place *place = verify->roots.places ? &verify->roots.places[object] : NULL;

    if (place && place->root > 0) {
        atomic_store_explicit(&verify->roots.items[place->root - 1].stale, true,
                              memory_order_relaxed);
    }
}
