/* Shares the index of a data set among processes that open it at the same time. */
#include "dataset/index_sharing.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "io/filesystem/filesystem.h"
#include "io/user_paths.h"
#include "storage/config/config_digest.h"
#include "storage/vfs/vfs.h"

#include <stdio.h>
#include <string.h>

/* Sets the root of all paths of the one url: a folder, or the folders before a pattern. */
static void find_shared_root(const struct stoker_dataset *dataset,
                             const struct stk_index_location *location,
                             char root[STK_PATH_BYTES_MAX])
{
    const char *url = dataset->options.urls[0];
    size_t bytes = strcspn(url, "*?[{");

    if (location->folder_url) {
        /* It fits: a root has the same size. */
        snprintf(root, STK_PATH_BYTES_MAX, "%s", location->root);
        return;
    }
    while (bytes > 0 && url[bytes - 1] != '/') {
        bytes--;
    }
    snprintf(root, STK_PATH_BYTES_MAX, "%.*s", (int)stk_min(bytes, STK_PATH_BYTES_MAX - 1), url);
}

/* True if listing costs round trips, which each rank of a machine would make. */
static bool is_worth_sharing(const struct stoker_dataset *dataset, const char *root)
{
    struct stk_stat about;
    uint32_t group;

    if (dataset->options.url_count != 1 || dataset->options.on_error != STOKER_ON_ERROR_RAISE ||
        dataset->options.index == STOKER_INDEX_REQUIRE) {
        return false;
    }
    if (stk_io_is_url(dataset->options.urls[0])) {
        /* An external URL may mean something else in each process (memory://). */
        return !stk_vfs_is_external_url(dataset->options.urls[0]);
    }
    if (stk_io_stat_path(dataset->engine->io, root[0] ? root : ".", &about, NULL) < 0) {
        return false;
    }
    group = stk_filesystem_group_of(about.device);
    return group == STOKER_FILESYSTEM_NETWORK || group == STOKER_FILESYSTEM_FUSE;
}

/* Makes a key from the data set and all settings that change its index. */
static bool make_share_key(const struct stoker_dataset *dataset, char key[65])
{
    const struct stoker_dataset_options *options = &dataset->options;
    const uint64_t numbers[] = {options->block_bytes,   options->member_gap_max,
                                options->key_bytes_max, options->header_bytes_max,
                                options->foreign_index, options->allow_empty,
                                options->skip_files};
    char absolute[2 * STK_PATH_BYTES_MAX];
    struct stk_sha256 sha;
    uint8_t digest[32];

    if (!stk_path_absolute(options->urls[0], absolute, sizeof absolute)) {
        return false;
    }
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, absolute, strlen(absolute) + 1);
    stk_sha256_add(&sha, options->urls[0], strlen(options->urls[0]) + 1);
    stk_sha256_add(&sha, numbers, sizeof numbers);
    if (stk_io_is_url(options->urls[0])) {
        stk_config_digest_add(&sha);
    }
    stk_sha256_done(&sha, digest);
    stk_hex(digest, sizeof digest, key);
    return true;
}

bool stk_index_sharing_begin(struct stk_index_sharing *sharing,
                             const struct stoker_dataset *dataset,
                             const struct stk_index_location *location)
{
    char key[65];

    sharing->flight = (struct stk_single_flight){.lock = -1, .wait = -1};
    find_shared_root(dataset, location, sharing->root);
    return is_worth_sharing(dataset, sharing->root) && make_share_key(dataset, key) &&
           stk_single_flight_begin(&sharing->flight, key,
                                   dataset->engine->options.single_flight_timeout_ms) ==
               STK_SINGLE_FLIGHT_FOLLOWER;
}

void stk_index_sharing_publish(const struct stk_index_sharing *sharing,
                               const struct stoker_dataset *dataset, int status)
{
    struct stk_view image = {NULL, 0};

    if (!sharing->flight.is_leader || !stk_single_flight_has_waiters(&sharing->flight)) {
        return;
    }
    /* An index file that was found is mapped by the others, too: it needs no copy. */
    if (status == 0 && dataset->shards_indexed == 0 && !dataset->shards.from_json &&
        dataset->bad_samples.count == 0 &&
        stk_index_image(dataset->index, sharing->root, &image, NULL) < 0) {
        image = (struct stk_view){NULL, 0};
    }
    if (stk_single_flight_publish(&sharing->flight, image) < 0 && image.bytes > 0) {
        (void)stk_single_flight_publish(&sharing->flight,
                                        (struct stk_view){NULL, 0}); /* no space: each scans */
    }
    stk_free((void *)(uintptr_t)image.data);
}

void stk_index_sharing_end(struct stk_index_sharing *sharing)
{
    stk_single_flight_end(&sharing->flight);
}
