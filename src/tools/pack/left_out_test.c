/* Goal: under on_error skip exactly the damaged samples are left out, listed once each, and nothing
 * else differs: the same bytes and the same list whatever the threads, earlier failures, or the
 * policy of an earlier run; failures of the machine are never taken for damage. The same for tars
 * that cannot be listed completely.
 * Method: tars in the simulator whose index has checksums, of which some bytes are changed later;
 * then every I/O call fails, or is the last before a kill or a power cut, and every allocation
 * fails, and the next run is compared byte by byte. Covers pack.c, pack_read.c, shard_file.c,
 * format/bad_sample/bad_sample_file.c. */
#include "tools/pack/pack_test.h"

#include "base/retry.h"

#include <stdlib.h>

enum { SHARDS = 3, SAMPLES = 7, SHARD_BYTES = 20 << 10, LARGE = 600 << 10, TEXT_MAX = 8 << 10 };

static const char source[] = "/src", destination[] = "/out/dst", draft[] = "/out/dst.part",
                  listed[] = "/out/bad.jsonl";

/* The damaged samples, by kind of damage; the large one fills the buffer more than once before the
 * damage is detected. */
static const struct bad {
    const char *name;
    unsigned shard, sample;
    const char *extension;
} bads[] = {
    {"first of a shard", 0, 0, "txt"},
    {"a large one, in its second member", 0, 3, "txt"},
    {"two that follow", 1, 2, "bin"},
    {"two that follow", 1, 3, "bin"},
    {"the last of all", SHARDS - 1, SAMPLES - 1, "bin"},
};

static bool is_bad(uint64_t number)
{
    for (size_t i = 0; i < STK_COUNT(bads); i++) {
        if (bads[i].shard * SAMPLES + bads[i].sample == number) {
            return true;
        }
    }
    return false;
}

static size_t member_bytes(unsigned shard, unsigned sample, bool text)
{
    return text                        ? 10 + sample
           : shard == 0 && sample == 3 ? LARGE
                                       : 1000 + 900 * ((shard + sample) % 5);
}

static void make_shard(struct stk_io *world, unsigned shard, bool damaged)
{
    static uint8_t data[LARGE];
    struct t_tar tar = {0};
    struct stk_output *out = NULL;
    char name[64];

    for (unsigned i = 0; i < SAMPLES; i++) {
        for (int text = 0; text < 2; text++) {
            const char *extension = text ? "txt" : "bin";

            memset(data, (int)('a' + shard * SAMPLES + i), sizeof data);
            for (size_t j = 0; j < STK_COUNT(bads); j++) {
                if (damaged && bads[j].shard == shard && bads[j].sample == i &&
                    strcmp(bads[j].extension, extension) == 0) {
                    data[7] ^= 1;
                }
            }
            snprintf(name, sizeof name, "k%u-%u.%s", shard, i, extension);
            t_tar_add(&tar, name, data, member_bytes(shard, i, text));
        }
    }
    t_tar_end(&tar);
    snprintf(name, sizeof name, "/src/s-%u.tar", shard);
    T_EQ(name, stk_io_create(world, name, false, &out, NULL), 0);
    T_EQ(name, stk_io_write(world, out, tar.data, tar.bytes, NULL), 0);
    T_EQ(name, stk_io_sync_output(world, out, NULL), 0);
    stk_io_close_output(world, out);
    t_tar_free(&tar);
}

/* Shards, an index with checksums of them, and then the damage, of which no stamp has a trace. */
static void make_source(struct stk_io *world, struct stoker_engine *engine)
{
    const char *url = source;
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = &url, .url_count = 1};
    struct stoker_indexer_options options = {.struct_size = sizeof options, .checksums = 1};
    struct stoker_indexer_progress progress = {.struct_size = sizeof progress};
    struct stoker_indexer *indexer = NULL;
    int status;

    T_EQ("/src", stk_sim_add(world, source, NULL, 0), 0);
    T_EQ("/out", stk_sim_add(world, "/out", NULL, 0), 0);
    for (unsigned i = 0; i < SHARDS; i++) {
        make_shard(world, i, false);
    }
    T_EQ("index", stoker_indexer_open(&indexer, engine, &dataset, &options, NULL), 0);
    while ((status = stoker_indexer_next(indexer, 1000, &progress, NULL)) == 1) {
    }
    T_EQ("index", status, 0);
    stoker_indexer_close(indexer);
    T_EQ("stamp", stk_io_remove(world, "/src/stoker.index.stamp", NULL), 0);
    for (unsigned i = 0; i < SHARDS; i++) {
        make_shard(world, i, true);
    }
    T_EQ("/src", stk_io_sync_directory(world, source, NULL), 0);
    T_EQ("/", stk_io_sync_directory(world, "/", NULL), 0);
}

/* The result of a run. */
struct result {
    struct stoker_pack_progress progress;
    struct stoker_error error;
    uint64_t listed;
    bool in_order; /* the list is of bad samples only, in the order of the source */
};

static const struct stoker_pack_options skipping = {.struct_size = sizeof skipping,
                                                    .destination = destination,
                                                    .shard_bytes = SHARD_BYTES,
                                                    .shuffle = STOKER_SHUFFLE_NONE,
                                                    .on_error = STOKER_ON_ERROR_SKIP,
                                                    .io_retries = STOKER_NO_RETRIES,
                                                    .io_retry_wait_ms = 1,
                                                    .quarantine = listed};

static int run(struct stoker_engine *engine, const struct stoker_pack_options *options,
               struct result *result)
{
    /* If one could not be read, because of a failure in the simulator, pack would have no
     * checksums. */
    const char *url = source;
    struct stoker_dataset_options indexed = {
        .struct_size = sizeof indexed, .urls = &url, .url_count = 1, .index = STOKER_INDEX_REQUIRE};
    struct stoker_quarantine_entry entry = {.struct_size = sizeof entry};
    struct stoker_dataset *dataset = NULL;
    struct stoker_pack *pack = NULL;
    uint64_t before = 0;
    int status;

    *result = (struct result){.progress.struct_size = sizeof result->progress, .in_order = true};
    status = stoker_dataset_open(&dataset, engine, &indexed, &result->error);
    status = status < 0 ? status : stoker_pack_open(&pack, dataset, options, &result->error);
    while (status == 0 &&
           (status = stoker_pack_next(pack, 1000, &result->progress, &result->error)) == 1) {
        status = 0;
    }
    result->listed = pack ? stoker_pack_quarantine_count(pack) : 0;
    for (uint64_t i = 0; i < result->listed; i++) {
        T_EQ("entry", stoker_pack_quarantine(pack, i, &entry), 0);
        T_TRUE("a damaged one", is_bad(entry.sample));
        T_HAS("its shard", entry.shard, "/src/s-");
        T_HAS("why", entry.reason, "checksum");
        result->in_order = result->in_order && (i == 0 || entry.sample > before);
        before = entry.sample;
    }
    if (pack) {
        T_EQ("past the end", stoker_pack_quarantine(pack, result->listed, &entry),
             STOKER_ERROR_ARGUMENT);
    }
    stoker_pack_close(pack);
    stoker_dataset_close(dataset);
    return status;
}

/* The text of the quarantine; empty: there is none. */
static const char *read_list(struct stk_io *world)
{
    static char text[TEXT_MAX];
    uint8_t *data = NULL;
    size_t bytes = 0;

    text[0] = 0;
    if (stk_staging_find_file(world, listed, sizeof text - 1, &data, &bytes, NULL) == 1) {
        memcpy(text, data, bytes);
        text[bytes] = 0;
    }
    stk_free(data);
    return text;
}

/* The packed folder has all samples except the bad ones, unchanged, and its manifest is right. */
static void check_packed(const char *name, struct stoker_engine *engine, struct stk_io *world)
{
    struct stk_manifest manifest = {0};
    struct stoker_dataset *dataset = NULL;
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct stoker_error error = {0};
    struct stk_sha256 sha;
    uint8_t *data = NULL, digest[32];
    static uint8_t member[LARGE];
    size_t bytes;
    uint64_t at = 0;

    T_TRUE(name, !is_there(world, draft));
    T_EQ(name,
         stk_staging_read_file(world, "/out/dst/stoker.manifest.json", 1u << 20, &data, &bytes,
                               &error),
         0);
    T_EQ(name, stk_manifest_parse(&manifest, (struct stk_view){data, bytes}, &error), 0);
    T_EQ(name, stk_manifest_left_out(&manifest), STK_COUNT(bads));
    T_EQ(name, manifest.samples, SHARDS * SAMPLES - STK_COUNT(bads));
    stk_free(data);
    for (uint64_t i = 0; i < manifest.shard_count; i++) {
        char *path = stk_staging_path(destination, manifest.shards[i].name, "");

        T_EQ(path, stk_staging_read_file(world, path, 1u << 30, &data, &bytes, &error), 0);
        stk_sha256_init(&sha);
        stk_sha256_add(&sha, data, bytes);
        stk_sha256_done(&sha, digest);
        T_EQ(path, manifest.shards[i].bytes, bytes);
        T_TRUE(path, memcmp(manifest.shards[i].sha256, digest, sizeof digest) == 0);
        stk_free(data);
        stk_free(path);
    }
    stk_manifest_deinit(&manifest);
    T_EQ(name, open_source(engine, destination, &dataset, &error), 0);
    stoker_dataset_info(dataset, &info);
    T_EQ(name, info.sample_count, SHARDS * SAMPLES - STK_COUNT(bads));
    for (uint64_t i = 0; i < SHARDS * SAMPLES; i++) {
        char key[64], want[64];
        size_t count = 0;

        if (is_bad(i)) {
            continue;
        }
        snprintf(want, sizeof want, "k%u-%u", (unsigned)(i / SAMPLES), (unsigned)(i % SAMPLES));
        T_EQ(want, stoker_dataset_sample(dataset, at, key, sizeof key, NULL, &count, &error), 0);
        T_STR(want, key, want);
        T_EQ(want, stoker_dataset_read(dataset, at, "bin", member, sizeof member, &bytes, &error),
             0);
        T_EQ(want, bytes, member_bytes((unsigned)(i / SAMPLES), i % SAMPLES, false));
        T_TRUE(want, member[0] == 'a' + i && memcmp(member, member + 1, bytes - 1) == 0);
        T_EQ(want, stoker_dataset_read(dataset, at, "txt", member, sizeof member, &bytes, &error),
             0);
        T_TRUE(want, member[0] == 'a' + i && memcmp(member, member + 1, bytes - 1) == 0);
        at++;
    }
    stoker_dataset_close(dataset);
}

/* The same bytes and the same list whatever the threads. */
static void test_threads(void)
{
    static const uint32_t threads[] = {1, 2, 7};
    static char first_list[TEXT_MAX];
    uint8_t first[32], digest[32];

    for (size_t i = 0; i < STK_COUNT(threads); i++) {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, threads[i]);
        struct result result;

        make_source(world, engine);
        T_EQ("skip", run(engine, &skipping, &result), 0);
        T_STR("skip", result.error.what, "");
        T_EQ("left out", result.progress.samples_left_out, STK_COUNT(bads));
        T_EQ("packed", result.progress.samples_done, SHARDS * SAMPLES - STK_COUNT(bads));
        T_EQ("listed", result.listed, STK_COUNT(bads));
        T_TRUE("in order", result.in_order);
        check_packed("skip", engine, world);
        T_TRUE("digest", folder_digest(world, destination, digest));
        if (i == 0) {
            memcpy(first, digest, sizeof first);
            snprintf(first_list, sizeof first_list, "%s", read_list(world));
            T_HAS("a line", first_list,
                  "{\"shard\": \"/src/s-0.tar\", \"key\": \"k0-0\", \"offset\": ");
            T_HAS("a line", first_list,
                  "\"status\": \"STOKER_ERROR_CORRUPT\", \"reason\": \"the "
                  "member does not match its checksum in the index\", \"sample\": 0}\n");
        }
        T_TRUE("the same bytes", memcmp(first, digest, sizeof first) == 0);
        T_STR("the same list", read_list(world), first_list);
        stoker_engine_close(engine);
    }
}

/* Raise ends at the first damage and lists it; skip then resumes to the same bytes that it writes
 * alone; and raise does not accept shards in which skip left out samples. */
static void test_policies(void)
{
    struct stoker_pack_options raising = skipping, limited = skipping;
    uint8_t want[32], digest[32];

    raising.on_error = STOKER_ON_ERROR_RAISE;
    limited.bad_samples_max = STK_COUNT(bads) - 1;
    for (int turn = 0; turn < 3; turn++) {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 1);
        struct result result;

        make_source(world, engine);
        if (turn > 0) {
            T_EQ("limited", run(engine, turn == 1 ? &raising : &limited, &result),
                 turn == 1 ? STOKER_ERROR_CORRUPT : STOKER_ERROR_LIMIT);
            T_ERROR("stopped", &result.error);
            T_TRUE("nothing final", !is_there(world, destination));
        }
        if (turn == 2) { /* there are shards now that lack samples */
            T_EQ("raise after skip", run(engine, &raising, &result), STOKER_ERROR_CORRUPT);
            T_STR("the first", result.error.key, "k0-0");
            T_EQ("it is listed", result.listed, 1);
        }
        T_EQ("skip", run(engine, &skipping, &result), 0);
        T_EQ("left out", result.progress.samples_left_out, STK_COUNT(bads));
        check_packed("skip", engine, world);
        T_TRUE("digest", folder_digest(world, destination, digest));
        if (turn == 0) {
            memcpy(want, digest, sizeof want);
        }
        T_TRUE("the same bytes", memcmp(want, digest, sizeof want) == 0);
        stoker_engine_close(engine);
    }
}

static void test_limits(void)
{
    static const struct row {
        const char *name;
        uint64_t samples;
        double share;
        uint32_t list_max;
        int want;
        const char *want_what;
    } rows[] = {
        {"as many as there are", 5, 0, 0, 0, ""},
        {"one less", 4, 0, 0, STOKER_ERROR_LIMIT, "bad_samples_max"},
        {"share of 5 in 21", 0, 5.0 / 21, 0, 0, ""},
        {"a smaller one", 0, 0.23, 0, STOKER_ERROR_LIMIT, "bad_share_max"},
        {"both, the share is passed", 5, 0.1, 0, STOKER_ERROR_LIMIT, "bad_share_max"},
        {"a short list", 0, 0, 2, 0, ""},
        {"no share", 0, 1.5, 0, STOKER_ERROR_ARGUMENT, "range"},
        {"no share either", 0, -1, 0, STOKER_ERROR_ARGUMENT, "range"},
    };

    T_EACH(row, row, rows)
    {
        struct stoker_pack_options options = skipping;
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 2);
        struct result result;

        make_source(world, engine);
        options.bad_samples_max = row->samples;
        options.bad_share_max = row->share;
        options.bad_list_max = row->list_max;
        T_EQ(row->name, run(engine, &options, &result), row->want);
        T_HAS(row->name, result.error.what, row->want_what);
        if (row->want == STOKER_ERROR_LIMIT) {
            T_ERROR(row->name, &result.error);
            T_HAS("the first of them", result.error.where, "'/src/s-0.tar' key 'k0-0'");
            T_TRUE("listed", result.listed > (row->samples && !row->share ? row->samples : 2));
            T_HAS("in the file", read_list(world), "k0-0");
            T_TRUE("nothing final", !is_there(world, destination));
        }
        if (row->list_max) {
            T_EQ(row->name, result.listed, row->list_max);
            T_HAS("the file has all", read_list(world), "k2-6");
        }
        stoker_engine_close(engine);
    }
}

/* Failures of the machine are retried, then raised: no sample is left out. */
static void test_retries(void)
{
    static const struct row {
        const char *name;
        uint32_t retries, failures;
        int want;
    } rows[] = {
        {"once", 2, 1, 0},
        {"twice", 2, 2, 0},
        {"for ever", 2, 1000, -EIO},
        {"no retries", STOKER_NO_RETRIES, 1, -EIO},
    };

    T_EACH(row, row, rows)
    {
        struct stoker_pack_options options = skipping;
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 1);
        struct stk_sim_rule rule = {
            .path = "/src/s-1.tar", .fault = STK_SIM_FAULT_EIO, .times = row->failures};
        struct result result;

        make_source(world, engine);
        options.io_retries = row->retries;
        stk_sim_add_rule(world, &rule);
        T_EQ(row->name, run(engine, &options, &result), row->want);
        if (row->want < 0) {
            T_ERROR(row->name, &result.error);
            T_HAS(row->name, result.error.where, "/src/s-1.tar");
            T_EQ("no list of it", read_list(world)[0], 0);
        } else {
            T_EQ(row->name, result.progress.retries, row->failures);
            T_EQ(row->name, result.progress.samples_left_out, STK_COUNT(bads));
            check_packed(row->name, engine, world);
        }
        stoker_engine_close(engine);
    }
}

/* A shard that ends earlier than its index says: its last samples are left out; a shard may lose
 * all samples; and if nothing is left there is no data set. */
static void test_truncated(void)
{
    for (int all = 0; all < 2; all++) {
        struct stoker_pack_options options = skipping;
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 2);
        struct stoker_quarantine_entry entry = {.struct_size = sizeof entry};
        struct stoker_pack_progress progress = {.struct_size = sizeof progress};
        struct stoker_dataset *dataset = NULL;
        struct stoker_pack *pack = NULL;
        struct stoker_error error = {0};
        int status;

        make_source(world, engine);
        for (unsigned i = all ? 0 : 1; i < (all ? SHARDS : 2); i++) {
            char path[32];
            struct stk_sim_rule rule = {
                .path = path, .fault = STK_SIM_FAULT_TRUNCATED, .offset = 600};

            snprintf(path, sizeof path, "/src/s-%u.tar", i);
            stk_sim_add_rule(world, &rule);
        }
        T_EQ("open", open_source(engine, source, &dataset, &error), 0);
        T_EQ("open", stoker_pack_open(&pack, dataset, &options, &error), 0);
        while ((status = stoker_pack_next(pack, 1000, &progress, &error)) == 1) {
        }
        T_EQ("end", status, all ? STOKER_ERROR_EMPTY : 0);
        T_EQ("left out", progress.samples_left_out, all ? 21 : 3 + SAMPLES);
        T_EQ("one of them", stoker_pack_quarantine(pack, 2, &entry), 0);
        T_EQ("one of them", entry.status, STOKER_ERROR_TRUNCATED);
        if (all) {
            T_ERROR("all", &error);
            T_TRUE("nothing final", !is_there(world, destination));
        }
        stoker_pack_close(pack);
        stoker_dataset_close(dataset);
        if (!all) {
            T_EQ("it opens", open_source(engine, destination, &dataset, &error), 0);
            stoker_dataset_close(dataset);
        }
        stoker_engine_close(engine);
    }
}

/* A file that is there before the work is begun is not ours. */
static void test_taken(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 1);
    struct result result;

    make_source(world, engine);
    T_EQ("a loader's list", stk_sim_add(world, listed, "mine\n", 5), 0);
    T_EQ("taken", run(engine, &skipping, &result), -EEXIST);
    T_ERROR("taken", &result.error);
    T_TRUE("not begun", !is_there(world, draft));
    T_STR("as it was", read_list(world), "mine\n");
    T_EQ("removed", stk_io_remove(world, listed, NULL), 0);
    T_EQ("and then", run(engine, &skipping, &result), 0);
    stoker_engine_close(engine);
}

enum way { FAIL, KILL, POWER, SOME, WAYS };

/* Every call of the seam in turn; after it, a run without faults ends with the same bytes and the
 * same list. */
static void test_every_call(enum way way)
{
    static const char *const names[] = {"fail", "kill", "power cut", "some names persist"};
    static char want_list[TEXT_MAX];
    const char *is_long = getenv("STOKER_TEST_LONG"); /* then each call, and both retries */
    uint8_t want[32], digest[32];
    uint64_t failures = 0, n, past = 0;

    for (n = 0; past < 60; n++) { /* 0: nothing fails */
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 1);
        struct result result;
        int status;

        make_source(world, engine);
        if (way == FAIL) {
            stk_sim_fail_nth(world, n);
        } else {
            stk_sim_kill_nth(world, n);
        }
        status = run(engine, &skipping, &result);
        stk_sim_fail_nth(world, 0);
        stk_sim_kill_nth(world, 0);
        if (status < 0) {
            T_ERROR(names[way], &result.error);
            T_TRUE("the machine's", !stk_error_is_data(status));
            failures++;
        }
        past = n > 0 && status == 0 ? past + 1 : 0;
        if (way >= POWER) {
            T_EQ(names[way], way == POWER ? stk_sim_crash(world) : stk_sim_crash_partial(world, n),
                 0);
        }
        if (!is_there(world, destination) || is_there(world, "/out/dst/stoker.plan.json")) {
            /* else the list may have been delivered, and removed */
            bool unnamed = !is_there(world, destination);

            T_EQ(names[way], run(engine, &skipping, &result), 0);
            T_TRUE("listed again", !unnamed || result.listed == STK_COUNT(bads));
            T_STR(names[way], result.error.where, "");
            T_EQ(names[way], result.progress.samples_left_out, STK_COUNT(bads));
            T_EQ(names[way], result.progress.samples_done, SHARDS * SAMPLES - STK_COUNT(bads));
        }
        T_TRUE(names[way], folder_digest(world, destination, digest));
        T_TRUE(names[way], !is_there(world, draft));
        if (n == 0) {
            memcpy(want, digest, sizeof want);
            snprintf(want_list, sizeof want_list, "%s", read_list(world));
        }
        if (!T_TRUE("the same bytes", memcmp(want, digest, sizeof want) == 0) |
            !T_STR("the same list", read_list(world), want_list)) {
            printf("%s at call %llu\n", names[way], (unsigned long long)n);
        }
        stoker_engine_close(engine);
        n += is_long && is_long[0] ? 0 : n > 0; /* each second one */
    }
    printf("%s: %llu calls\n", names[way], (unsigned long long)n);
    T_TRUE("many calls failed", failures > 60);
}

/* A tar with a damaged header and one that is truncated: only a scan finds their samples. */
static void make_broken(struct stk_io *world)
{
    for (unsigned i = 0; i < SHARDS; i++) {
        char path[32];
        uint8_t *data = NULL;
        size_t bytes = 0;
        struct stk_output *out = NULL;

        make_shard(world, i, false);
        snprintf(path, sizeof path, "/src/s-%u.tar", i);
        T_EQ(path, stk_staging_read_file(world, path, 1u << 30, &data, &bytes, NULL), 0);
        data[20] ^= i == 1; /* the first header */
        bytes = i == 2 ? bytes / 2 : bytes;
        T_EQ(path, stk_io_create(world, path, false, &out, NULL), 0);
        T_EQ(path, stk_io_write(world, out, data, bytes, NULL), 0);
        T_EQ(path, stk_io_sync_output(world, out, NULL), 0);
        stk_io_close_output(world, out);
        stk_free(data);
    }
    T_EQ("/src", stk_io_sync_directory(world, source, NULL), 0);
    T_EQ("/out", stk_sim_add(world, "/out", NULL, 0), 0);
}

static int pack_broken(struct stoker_engine *engine, struct stoker_pack_progress *progress,
                       struct stoker_error *error)
{
    const char *url = source;
    struct stoker_dataset_options rescued = {.struct_size = sizeof rescued,
                                             .urls = &url,
                                             .url_count = 1,
                                             .on_error = STOKER_ON_ERROR_SKIP};
    struct stoker_dataset *dataset = NULL;
    struct stoker_pack *pack = NULL;
    int status = stoker_dataset_open(&dataset, engine, &rescued, error);

    *progress = (struct stoker_pack_progress){.struct_size = sizeof *progress};
    status = status < 0 ? status : stoker_pack_open(&pack, dataset, &skipping, error);
    while (status == 0 && (status = stoker_pack_next(pack, 1000, progress, error)) == 1) {
        status = 0;
    }
    stoker_pack_close(pack);
    stoker_dataset_close(dataset);
    return status;
}

/* Each call, and each allocation, from opening on: never taken for damage. */
static void test_broken_tars(void)
{
    static char want_list[TEXT_MAX];
    uint8_t want[32], digest[32];

    for (int memory = 0; memory < 2; memory++) {
        uint64_t failures = 0, passes = 0;

        for (uint64_t n = 0; passes < 12; n += memory ? 1 + n / 20 : 1 + n / 40) {
            struct stk_io *world;
            struct stoker_engine *engine = open_engine(&world, 1);
            struct stoker_pack_progress progress;
            struct stoker_error error = {0};
            int status;

            T_EQ("/src", stk_sim_add(world, source, NULL, 0), 0);
            make_broken(world);
            if (memory) {
                stk_mem_fail_nth(n);
            } else {
                stk_sim_fail_nth(world, n);
            }
            status = pack_broken(engine, &progress, &error);
            stk_mem_fail_nth(0);
            stk_sim_fail_nth(world, 0);
            passes = status == 0 && n > 0 ? passes + 1 : 0;
            if (status < 0) {
                T_ERROR("broken", &error);
                T_TRUE("the machine's", !stk_error_is_data(status));
                failures++;
                error = (struct stoker_error){0};
                T_EQ("and then", pack_broken(engine, &progress, &error), 0);
                T_STR("and then", error.where, "");
            }
            T_TRUE("digest", folder_digest(world, destination, digest));
            if (n == 0 && !memory) {
                memcpy(want, digest, sizeof want);
                snprintf(want_list, sizeof want_list, "%s", read_list(world));
                T_EQ("left out", progress.samples_left_out, 3);
                T_HAS("a header", want_list, "{\"shard\": \"/src/s-1.tar\", \"key\": \"\"");
                T_HAS("its sample", want_list, "\"key\": \"k1-0\"");
                T_HAS("the end", want_list, "{\"shard\": \"/src/s-2.tar\", \"key\": \"k2-");
            }
            T_TRUE("the same bytes", memcmp(want, digest, sizeof want) == 0);
            T_STR("the same list", read_list(world), want_list);
            stoker_engine_close(engine);
        }
        printf("broken tars: %llu failures\n", (unsigned long long)failures);
        T_TRUE("failures", failures > 40);
    }
}

static void test_every_allocation(void)
{
    const char *is_long = getenv("STOKER_TEST_LONG"); /* then each one */
    uint64_t failures = 0;
    int passes = 0;

    for (uint64_t n = 1; passes < 3; n += is_long && is_long[0] ? 1 : 1 + n / 40) {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 1);
        struct result result;
        int status;

        make_source(world, engine);
        stk_mem_fail_nth(n);
        status = run(engine, &skipping, &result);
        stk_mem_fail_nth(0);
        passes = status == 0 ? passes + 1 : 0;
        if (status < 0) {
            failures++;
            T_ERROR("memory", &result.error);
            T_EQ("and then", run(engine, &skipping, &result), 0);
            T_STR("and then", result.error.where, "");
        }
        check_packed("memory", engine, world);
        stoker_engine_close(engine);
    }
    printf("memory: %llu failures\n", (unsigned long long)failures);
    T_TRUE("memory was refused", failures > 40);
}

int main(void)
{
    test_threads();
    test_policies();
    test_limits();
    test_retries();
    test_truncated();
    test_taken();
    for (int way = 0; way < WAYS; way++) {
        test_every_call((enum way)way);
    }
    test_every_allocation();
    test_broken_tars();
    T_EQ("leaks", stk_mem_alive(), 0);
    return t_finish();
}
