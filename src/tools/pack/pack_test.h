/* tools/pack/pack_test.h: shared by the tests of pack: a small simulator to pack, and checks of the
 * result. Owner: the test. Threads: one. Memory: the simulator's. Bound: the test's. */
#ifndef TOOLS_PACK_PACK_TEST_H
#define TOOLS_PACK_PACK_TEST_H

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "dataset/dataset.h"
#include "io/sim/sim.h"
#include "test/t.h"
#include "test/tars.h"
#include "tools/pack/staging.h"

#include <errno.h>
#include <string.h>

static inline struct stoker_engine *open_engine(struct stk_io **world_out, uint32_t threads)
{
    struct stk_io_options io = {.depth = 8, .read_timeout_ms = 1000};
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = threads, .memory_bytes_max = 64u << 20};
    struct stoker_engine *engine = NULL;

    T_EQ("world", stk_sim_open(world_out, 1, &io, NULL), 0);
    T_EQ("engine", stk_engine_open_with_io(&engine, *world_out, &options, NULL), 0);
    return engine;
}

static inline int open_source(struct stoker_engine *engine, const char *url,
                              struct stoker_dataset **dataset_out, struct stoker_error *error)
{
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = &url, .url_count = 1};

    return stoker_dataset_open(dataset_out, engine, &options, error);
}

/* SHA-256 over the names and bytes of all files of a folder; false: it is not there. */
static inline bool folder_digest(struct stk_io *io, const char *folder, uint8_t digest[32])
{
    struct stk_listing listing = {0};
    struct stk_sha256 sha;

    if (stk_io_list(io, folder, &listing, NULL) < 0) {
        return false;
    }
    stk_sha256_init(&sha);
    for (size_t i = 0; i < listing.count; i++) {
        char *path = stk_staging_path(folder, listing.entries[i].name, "");
        uint8_t *data = NULL;
        size_t bytes = 0;

        T_EQ(path, stk_staging_read_file(io, path, 1u << 30, &data, &bytes, NULL), 0);
        stk_sha256_add(&sha, listing.entries[i].name, strlen(listing.entries[i].name) + 1);
        stk_sha256_add(&sha, &bytes, sizeof bytes);
        stk_sha256_add(&sha, data, bytes);
        stk_free(data);
        stk_free(path);
    }
    stk_listing_free(&listing);
    stk_sha256_done(&sha, digest);
    return true;
}

static inline bool is_there(struct stk_io *io, const char *path)
{
    struct stk_stat about;

    return stk_io_stat_path(io, path, &about, NULL) == 0;
}

/* Removes a folder of files. */
static inline void wipe(struct stk_io *io, const char *folder)
{
    struct stk_listing listing = {0};

    if (stk_io_list(io, folder, &listing, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < listing.count; i++) {
        char *path = stk_staging_path(folder, listing.entries[i].name, "");

        T_EQ(path, stk_io_remove(io, path, NULL), 0);
        stk_free(path);
    }
    stk_listing_free(&listing);
    T_EQ(folder, stk_io_remove(io, folder, NULL), 0);
}

#endif
