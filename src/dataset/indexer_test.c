/* Goal: an indexing run writes the same bytes whatever the threads and earlier interruptions; it
 * resumes after a kill, keeps entries that did not change, and never leaves a partial file under a
 * final name.
 * Method: the simulator: runs cut at every call, with and without a power cut, and with every call
 * and allocation failing; the bytes of the index compared with those of an uninterrupted run.
 * Covers indexer.c and index_journal.c. */
#include "dataset/dataset_test.h"

#include "base/crypto/digest.h"
#include "base/xxh3.h"

#include <stdlib.h>

enum { SHARDS = 5, CALLS_MAX = 4000, PASSES = 12 };

static const char index_path[] = "/data/stoker.index";

static struct stk_view reference(uint32_t threads, int shards)
{
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, threads);
    struct stoker_error error = {0};
    struct stk_view bytes;

    t_shards(world, 0, shards);
    T_EQ("reference", t_index(engine, "/data", NULL, NULL, &error), 0);
    bytes = t_bytes(world, index_path);
    stoker_engine_close(engine);
    return bytes;
}

static void test_threads(void)
{
    struct stk_view one = reference(1, 40);

    for (uint32_t threads = 2; threads <= 8; threads *= 2) {
        struct stk_view many = reference(threads, 40);

        T_TRUE("the same bytes", t_same(one, many));
        t_drop(many);
    }
    t_drop(one);
}

/* Nothing but the data, the index and its stamp. */
static void check_tidy(const char *name, struct stk_io *world, uint64_t shards)
{
    struct stk_listing listing = {0};

    T_EQ(name, stk_io_list(world, "/data", &listing, NULL), 0);
    if (!T_EQ(name, listing.count, shards + 2)) {
        for (size_t i = 0; i < listing.count; i++) {
            printf("  %s\n", listing.entries[i].name);
        }
    }
    stk_listing_free(&listing);
}

enum way { FAIL, CUT, POWER, SOME, MEMORY, WAYS };
static const char *const way_names[] = {"one call fails", "killed", "power cut",
                                        "some names persist", "no memory"};

static void start(struct stk_io *world, enum way way, uint64_t n)
{
    switch (way) {
    case FAIL:
        stk_sim_fail_nth(world, n);
        break;
    case CUT:
    case POWER:
    case SOME:
        stk_sim_kill_nth(world, n);
        break;
    case MEMORY:
        stk_mem_fail_nth(n);
        break;
    case WAYS:
        break;
    }
}

/* Stopped at every place, run again: the same bytes. */
static void check_way(enum way way, struct stk_view want)
{
    const char *name = way_names[way];
    uint64_t failures = 0;
    int passes = 0;

    for (uint64_t n = 1; passes < PASSES && n < CALLS_MAX; n++) {
        struct stk_io *world;
        struct stoker_engine *engine = t_engine(&world, 1);
        struct stoker_error error = {0};
        struct stk_view got;
        int status;

        t_shards(world, 0, SHARDS);
        T_EQ(name, stk_io_sync_directory(world, "/data", NULL), 0);
        start(world, way, n);
        status = t_index(engine, "/data", NULL, NULL, &error);
        start(world, way, 0);
        passes = status == 0 ? passes + 1 : 0;
        failures += status < 0;
        if (status < 0) {
            T_ERROR(name, &error);
        }
        if (way == POWER || way == SOME) {
            T_EQ(name, way == POWER ? stk_sim_crash(world) : stk_sim_crash_partial(world, n), 0);
        }
        got = t_bytes(world, index_path);
        T_TRUE(name, got.data ? t_same(got, want) : status < 0);
        t_drop(got);
        error = (struct stoker_error){0};
        T_EQ(name, t_index(engine, "/data", NULL, NULL, &error), 0);
        T_STR(name, error.where, "");
        got = t_bytes(world, index_path);
        T_TRUE(name, t_same(got, want));
        t_drop(got);
        check_tidy(name, world, SHARDS);
        stoker_engine_close(engine);
    }
    T_EQ(name, passes, PASSES);
    T_TRUE(name, failures > 20);
    printf("%s: %llu places\n", name, (unsigned long long)failures);
}

static void test_stops(void)
{
    struct stk_view want = reference(1, SHARDS);

    for (int way = 0; way < WAYS; way++) {
        check_way(way, want);
    }
    t_drop(want);
}

/* A run that fails leaves a journal only if there is something to resume from. */
static void test_failed(void)
{
    static const struct {
        const char *name;
        int shards;
        bool left;
    } rows[] = {{"nothing was read", 0, false}, {"shards were read", 2, true}};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stk_io *world;
        struct stoker_engine *engine = t_engine(&world, 1);
        struct stk_listing listing = {0};
        uint64_t parts = 0;

        t_shards(world, 0, rows[i].shards);
        stk_sim_add(world, "/data/z.tar", "no tar, but as long as a block", 30);
        for (int turn = 0; turn < 2; turn++) {
            T_TRUE(rows[i].name, t_index(engine, "/data", NULL, NULL, NULL) < 0);
        }
        T_EQ(rows[i].name, stk_io_list(world, "/data", &listing, NULL), 0);
        for (size_t e = 0; e < listing.count; e++) {
            parts += strncmp(listing.entries[e].name, "stoker.index", 12) == 0;
        }
        /* The second run, which read nothing new, leaves nothing. */
        T_EQ(rows[i].name, parts, rows[i].left ? 1 : 0);
        stk_listing_free(&listing);
        stoker_engine_close(engine);
    }
}

/* The first of two bad shards in the listing is reported, though the other one fails much
 * earlier. */
static void test_first_failure(void)
{
    struct stk_sim_rule slow = {
        .path = "/data/s-003.tar", .fault = STK_SIM_FAULT_SLOW, .latency_ns = 1000000, .offset = 8};

    for (uint32_t threads = 1; threads <= 4; threads *= 4) {
        struct stk_io *world;
        struct stoker_engine *engine = t_engine(&world, threads);
        struct stoker_dataset *dataset = NULL;
        struct stoker_error error = {0};
        struct stk_view bytes;

        t_shards(world, 0, 10);
        bytes = t_bytes(world, "/data/s-003.tar");
        T_EQ("cut", t_put(world, "/data/s-003.tar", bytes.data, bytes.bytes - 2000), 0);
        T_EQ("text", t_put(world, "/data/s-004.tar", "this is no tar", 14), 0);
        t_drop(bytes);
        T_EQ("slow", stk_sim_add_rule(world, &slow), 0);
        T_EQ("open", t_open(engine, "/data", STOKER_INDEX_NEVER, &dataset, &error),
             STOKER_ERROR_TRUNCATED);
        T_HAS("open", error.shard, "s-003.tar");
        T_EQ("index", t_index(engine, "/data", NULL, NULL, &error), STOKER_ERROR_TRUNCATED);
        T_HAS("index", error.shard, "s-003.tar");
        stoker_engine_close(engine);
    }
}

/* A run that was killed late leaves little to be read. */
static void test_goes_on(void)
{
    enum { MANY = 60 };
    struct stk_view want = reference(1, MANY);
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 1);
    struct stoker_indexer_progress full = {0}, rest = {0};
    uint64_t calls;
    struct stk_view got;

    t_shards(world, 0, MANY);
    calls = stk_sim_calls(world);
    T_EQ("full", t_index(engine, "/data", NULL, &full, NULL), 0);
    calls = stk_sim_calls(world) - calls;
    stk_io_remove(world, index_path, NULL);
    stk_io_remove(world, "/data/stoker.index.stamp", NULL);
    stk_sim_kill_nth(world, calls * 3 / 4);
    T_TRUE("killed", t_index(engine, "/data", NULL, NULL, NULL) < 0);
    stk_sim_kill_nth(world, 0);
    T_EQ("rest", t_index(engine, "/data", NULL, &rest, NULL), 0);
    T_TRUE("it went on", rest.bytes_read > 0 && rest.bytes_read < full.bytes_read / 2);
    T_EQ("all is reported", rest.shards_done, MANY);
    got = t_bytes(world, index_path);
    T_TRUE("the same bytes", t_same(got, want));
    t_drop(got);
    t_drop(want);
    stoker_engine_close(engine);
}

/* A shard that was rewritten after the kill is read again, though the journal has an entry of
 * it. */
static void test_journal_is_checked(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 1);
    struct stoker_dataset *dataset = NULL;
    struct stk_view got;
    uint64_t calls;

    t_shards(world, 0, SHARDS);
    calls = stk_sim_calls(world);
    T_EQ("once", t_index(engine, "/data", NULL, NULL, NULL), 0);
    calls = stk_sim_calls(world) - calls;
    stk_io_remove(world, index_path, NULL);
    stk_io_remove(world, "/data/stoker.index.stamp", NULL);
    stk_sim_kill_nth(world, calls - 10);
    T_TRUE("killed", t_index(engine, "/data", NULL, NULL, NULL) < 0);
    stk_sim_kill_nth(world, 0);
    got = t_bytes(world, "/data/stoker.index.part");
    T_TRUE("a journal", got.bytes > 1000);
    ((uint8_t *)(uintptr_t)got.data)[got.bytes / 2] ^= 1; /* and it is damaged, too */
    stk_io_remove(world, "/data/stoker.index.part", NULL);
    T_EQ("journal", t_put(world, "/data/stoker.index.part", got.data, got.bytes - 1), 0);
    t_drop(got);
    t_shard(world, "/data/s-000.tar", 8, 3, 1000); /* other keys, the same size */
    T_EQ("again", t_index(engine, "/data", NULL, NULL, NULL), 0);
    T_EQ("open", t_open(engine, "/data", STOKER_INDEX_REQUIRE, &dataset, NULL), 0);
    struct stk_sample sample = {0};
    T_EQ("sample", stk_index_sample(dataset->index, 0, &sample, NULL), 0);
    T_TRUE("the new keys", sample.key.bytes == 9 && memcmp(sample.key.data, "k008-0000", 9) == 0);
    stoker_dataset_close(dataset);
    check_tidy("journal", world, SHARDS);
    stoker_engine_close(engine);
}

/* Shards are added: the entries of the others are reused, and blocks of the order stay. */
static void test_grows(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 2);
    struct stoker_indexer_progress progress = {0};
    struct stoker_dataset *dataset = NULL;
    uint64_t block, full;

    t_shards(world, 0, SHARDS);
    T_EQ("index", t_index(engine, "/data", NULL, &progress, NULL), 0);
    full = progress.bytes_read;
    T_EQ("none retained", progress.shards_reused, 0);
    T_EQ("open", t_open(engine, "/data", STOKER_INDEX_REQUIRE, &dataset, NULL), 0);
    block = stk_index_block_samples(dataset->index);
    stoker_dataset_close(dataset);
    t_shard(world, "/data/s-100.tar", 3, 4, 300000); /* a scan would choose another block */
    T_EQ("open", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
    T_EQ("frozen", stk_index_block_samples(dataset->index), block);
    stoker_dataset_close(dataset);
    T_EQ("open", t_open(engine, "/data", STOKER_INDEX_NEVER, &dataset, NULL), 0);
    T_TRUE("not frozen", stk_index_block_samples(dataset->index) != block);
    stoker_dataset_close(dataset);
    T_EQ("index", t_index(engine, "/data", NULL, &progress, NULL), 0);
    T_EQ("retained", progress.shards_reused, SHARDS);
    T_EQ("done", progress.shards_done, 1);
    T_TRUE("little is read", progress.bytes_read < full);
    T_EQ("open", t_open(engine, "/data", STOKER_INDEX_REQUIRE, &dataset, NULL), 0);
    T_EQ("frozen", stk_index_block_samples(dataset->index), block);
    T_EQ("all", stk_index_shards(dataset->index), SHARDS + 1);
    stoker_dataset_close(dataset);

    T_EQ("nothing to do", t_index(engine, "/data", NULL, &progress, NULL), 0);
    T_EQ("nothing to do", progress.bytes_read, 0);
    T_EQ("nothing to do", progress.shards_reused, SHARDS + 1);
    stoker_engine_close(engine);
}

/* The SHA-256 of a shard is that of its whole file: including padding and end. */
static void check_digest(struct stk_io *world, const struct stk_index *index, uint32_t shard)
{
    const uint8_t *digest = stk_index_shard_digest(index, shard);
    uint8_t want[32];
    struct stk_sha256 sha;
    struct stk_view bytes;
    char path[STK_PATH_BYTES_MAX];

    stk_index_path_text(index, shard, path);
    bytes = t_bytes(world, path);
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, bytes.data, bytes.bytes);
    stk_sha256_done(&sha, want);
    T_TRUE(path, digest && memcmp(digest, want, sizeof want) == 0);
    t_drop(bytes);
}

/* Checksums and labels are those of the members, and stay if they are not requested again. */
static void test_extras(void)
{
    struct stoker_indexer_options options = {
        .struct_size = sizeof options, .checksums = 1, .labels = 1};
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 2);
    struct stoker_indexer_progress progress = {0};
    struct stoker_dataset *dataset = NULL;
    uint8_t text[1000];

    t_shards(world, 0, SHARDS);
    T_EQ("plain", t_index(engine, "/data", NULL, NULL, NULL), 0);
    T_EQ("rich", t_index(engine, "/data", &options, &progress, NULL), 0);
    T_EQ("none is good enough", progress.shards_reused, 0);
    T_EQ("each byte is read once", progress.bytes_read, progress.bytes);
    T_EQ("plain", t_index(engine, "/data", NULL, &progress, NULL), 0);
    T_EQ("rich is good enough", progress.shards_reused, SHARDS);
    T_EQ("open", t_open(engine, "/data", STOKER_INDEX_REQUIRE, &dataset, NULL), 0);
    for (uint64_t i = 0; i < stk_index_samples(dataset->index); i++) {
        struct stk_sample sample = {0};
        uint64_t sum = 0;

        T_EQ("sample", stk_index_sample(dataset->index, i, &sample, NULL), 0);
        T_EQ("label", sample.label, sample.shard * 10 + sample.number);
        memset(text, 'a' + sample.shard % 26, sizeof text);
        T_EQ("checksum", stk_index_checksum(dataset->index, &sample, 0, &sum, NULL), 0);
        T_TRUE("checksum", sum == stk_xxh3_64(text, sizeof text));
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        check_digest(world, dataset->index, i);
    }
    stoker_dataset_close(dataset);
    options.force = 1;
    T_EQ("force", t_index(engine, "/data", &options, &progress, NULL), 0);
    T_EQ("force", progress.shards_reused, 0);
    stoker_engine_close(engine);
}

/* If nothing may be written next to the data, and if another path is set. */
static void test_places(void)
{
    struct stoker_indexer_options options = {.struct_size = sizeof options, .out = "/else/x.index"};
    struct stk_sim_rule denied = {.path = "/data", .fault = STK_SIM_FAULT_DENIED};
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 2);
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct stoker_dataset *dataset = NULL;
    struct stoker_error error = {0};
    const char *url = "/data/s-{000..004}.tar";

    t_shards(world, 0, SHARDS);
    T_EQ("folder", stk_sim_add(world, "/else", NULL, 0), 0);
    T_EQ("named", t_index(engine, url, &options, NULL, &error), 0);
    struct stoker_dataset_options named_options = {.struct_size = sizeof named_options,
                                                   .urls = &url,
                                                   .url_count = 1,
                                                   .index = STOKER_INDEX_REQUIRE,
                                                   .index_path = "/else/x.index"};
    T_EQ("named", stoker_dataset_open(&dataset, engine, &named_options, &error), 0);
    stoker_dataset_close(dataset);
    T_EQ("none beside", t_open(engine, url, STOKER_INDEX_REQUIRE, &dataset, &error), -ENOENT);

    T_EQ("deny", stk_sim_add_rule(world, &denied), 0);
    T_EQ("cache", t_index(engine, url, NULL, NULL, &error), 0);
    T_EQ("cache", t_open(engine, url, STOKER_INDEX_REQUIRE, &dataset, &error), 0);
    T_EQ("cache", stoker_dataset_info(dataset, &info), 0);
    T_HAS("cache", info.index_path, "/cache/");
    stoker_dataset_close(dataset);

    denied.path = "/cache"; /* too */
    T_EQ("deny", stk_sim_add_rule(world, &denied), 0);
    options.out = NULL;
    options.force = 1;
    T_EQ("nowhere", t_index(engine, url, &options, NULL, &error), -EACCES);
    T_ERROR("nowhere", &error);
    T_HAS("nowhere", error.where, "'/data/stoker.index', '/cache/");
    stoker_engine_close(engine);
}

/* Shards in several folders have no common folder. */
static void test_everywhere(void)
{
    const char *urls[] = {"/data/s-000.tar", "/more/s-001.tar"};
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 1);
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = urls, .url_count = 2};
    struct stoker_indexer_progress progress = {.struct_size = sizeof progress};
    struct stoker_dataset *dataset = NULL;
    struct stoker_indexer *indexer = NULL;
    int status;

    t_shards(world, 0, 1);
    T_EQ("folder", stk_sim_add(world, "/more", NULL, 0), 0);
    t_shard(world, "/more/s-001.tar", 1, 2, 10);
    T_EQ("open", stoker_indexer_open(&indexer, engine, &options, NULL, NULL), 0);
    while ((status = stoker_indexer_next(indexer, 1000, &progress, NULL)) == 1) {
    }
    T_EQ("index", status, 0);
    T_HAS("in the cache", progress.path, "/cache/");
    stoker_indexer_close(indexer);
    options.index = STOKER_INDEX_REQUIRE;
    T_EQ("found", stoker_dataset_open(&dataset, engine, &options, NULL), 0);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

/* A part of an indexed data set gets an index of its own in the cache: the index of the complete
 * set stays. */
static void test_part(void)
{
    struct stk_view want = reference(1, SHARDS), got;
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 2);
    struct stoker_dataset *dataset = NULL;

    t_shards(world, 0, SHARDS);
    T_EQ("complete", t_index(engine, "/data", NULL, NULL, NULL), 0);
    T_EQ("part", t_index(engine, "/data/s-00[12].tar", NULL, NULL, NULL), 0);
    got = t_bytes(world, index_path);
    T_TRUE("the index of the data set stays", t_same(got, want));
    T_EQ("part", t_open(engine, "/data/s-00[12].tar", STOKER_INDEX_REQUIRE, &dataset, NULL), 0);
    T_EQ("part", stk_index_shards(dataset->index), 2);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
    t_drop(got);
    t_drop(want);
}

static void test_damaged_shard(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 2);
    struct stoker_error error = {0};
    struct stk_view bytes;

    t_shards(world, 0, SHARDS);
    bytes = t_bytes(world, "/data/s-002.tar");
    ((uint8_t *)(uintptr_t)bytes.data)[600 + 1024] ^= 1; /* the second header */
    t_put(world, "/data/s-002.tar", bytes.data, 1024 + 512 + 512 + 3);
    t_drop(bytes);
    T_TRUE("refused", t_index(engine, "/data", NULL, NULL, &error) < 0);
    T_ERROR("refused", &error);
    T_STR("refused", error.shard, "/data/s-002.tar");
    bytes = t_bytes(world, index_path);
    T_TRUE("no index", bytes.data == NULL);
    stoker_engine_close(engine);
}

/* Closing stops the work; entries of finished shards are reused. */
static void test_close(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 1);
    const char *url = "/data";
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = &url, .url_count = 1};
    struct stoker_indexer_options wrong = {.struct_size = 1};
    struct stoker_indexer *indexer = NULL;
    struct stoker_error error = {0};

    t_shards(world, 0, 200);
    T_EQ("options", stoker_indexer_open(&indexer, engine, &dataset, &wrong, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("options", &error);
    for (int i = 0; i < 20; i++) {
        T_EQ("open", stoker_indexer_open(&indexer, engine, &dataset, NULL, &error), 0);
        stoker_indexer_close(indexer);
    }
    stoker_indexer_close(NULL);
    T_EQ("to its end", t_index(engine, url, NULL, NULL, &error), 0);
    check_tidy("closed", world, 200);
    stoker_engine_close(engine);
}

int main(void)
{
    setenv("STOKER_CACHE", "/cache", 1);
    test_threads();
    test_stops();
    test_failed();
    test_first_failure();
    test_goes_on();
    test_journal_is_checked();
    test_grows();
    test_extras();
    test_places();
    test_everywhere();
    test_part();
    test_damaged_shard();
    test_close();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
