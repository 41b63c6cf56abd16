/* Goal: a folder or tars are packed into the same bytes for any number of threads and after any
 * interruption; samples are unchanged; no file has its final name before it is complete.
 * Method: simulated files: rows of sources and of refusals; then each call of the I/O interface
 * fails, or is the last before a kill or a power cut, and the next run is compared byte by byte.
 * Covers pack.c, pack_plan.c, pack_survey.c, pack_read.c, shard_file.c, staging.c, manifest.c. */
#include "tools/pack/pack_test.h"

#include "base/random.h"
#include "base/xxh3.h"
#include "tools/pack/pack_plan.h"

#include <stdlib.h>

enum { PICTURES = 18, CLASSES = 3, SHARD_BYTES = 40 << 10 };

static const char folder[] = "/src", destination[] = "/out/dst", draft[] = "/out/dst.part";

static void add_file(struct stk_io *world, const char *path, unsigned seed, size_t bytes)
{
    uint8_t data[20000];

    for (size_t i = 0; i < bytes; i++) {
        data[i] = (uint8_t)stk_mix64(seed + i / 8);
    }
    T_EQ(path, stk_sim_add(world, path, data, bytes), 0);
}

/* Whether a picture has a line of metadata: in the root's, or in that of its class, which wins. */
static bool has_line(unsigned number)
{
    return number % 4 == 1 || number == 6;
}

/* Pictures (in name only: nothing is decoded), some with sidecars or metadata, in class folders. */
static void make_folder(struct stk_io *world)
{
    static const char own[] = "{\"file_name\": \"p.06.png\", \"n\": 6}\n";
    char path[64], lines[PICTURES * 64];
    size_t bytes = 0;

    for (unsigned i = 0; i < PICTURES; i++) {
        unsigned class = i % CLASSES;

        snprintf(path, sizeof path, "/src/c%u.x/p.%02u.%s", class, i, i % 2 ? "JPEG" : "png");
        if (has_line(i)) {
            bytes +=
                (size_t)snprintf(lines + bytes, sizeof lines - bytes,
                                 "{\"file_name\": \"%s\", \"n\": %u}\n", path + 5, i == 6 ? 99 : i);
        }
        add_file(world, path, i, i * 1000);
        if (i % 4 == 0) {
            snprintf(path, sizeof path, "/src/c%u.x/p.%02u.json", class, i);
            add_file(world, path, 100 + i, 20);
            snprintf(path, sizeof path, "/src/c%u.x/p.%02u.Txt", class, i);
            add_file(world, path, 200 + i, 30);
        }
        snprintf(path, sizeof path, "/src/c%u.x/q%02u.json", class, i); /* of no process */
        add_file(world, path, 300 + i, 10);
    }
    T_EQ("lines", stk_sim_add(world, "/src/metadata.jsonl", lines, bytes), 0);
    T_EQ("lines", stk_sim_add(world, "/src/c0.x/metadata.jsonl", own, sizeof own - 1), 0);
    T_EQ("/out", stk_sim_add(world, "/out", NULL, 0), 0);
}

static void make_tars(struct stk_io *world, bool packed)
{
    for (int shard = 0; shard < 3; shard++) {
        struct t_tar tar = {0}, gzip = {0};
        char name[64], text[6000];

        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof name, "d/k%d-%d.JPG", shard, i);
            memset(text, 'a' + shard * 4 + i, sizeof text);
            t_tar_add(&tar, name, text, sizeof text - (size_t)i * 99);
            snprintf(name, sizeof name, "d/k%d-%d.left.txt", shard, i);
            t_tar_add(&tar, name, text, (size_t)i);
            snprintf(name, sizeof name, "d/k%d-%d.cls", shard, i);
            t_tar_add(&tar, name, i % 2 ? "1" : "0", 1);
        }
        t_tar_add(&tar, "__meta__", "m", 1);
        t_tar_end(&tar);
        t_tar_gzip(&tar, &gzip);
        snprintf(name, sizeof name, "/src/s-%d.tar%s", shard, packed ? ".gz" : "");
        T_EQ(name,
             stk_sim_add(world, name, packed ? gzip.data : tar.data,
                         packed ? gzip.bytes : tar.bytes),
             0);
        t_tar_free(&tar);
        t_tar_free(&gzip);
    }
    T_EQ("/out", stk_sim_add(world, "/out", NULL, 0), 0);
}

struct settings {
    uint64_t seed; /* 0: not shuffled */
    uint64_t shard_bytes;
    const char *pattern;
};

/* Writes all of it; returns the status of the first failure. */
static int pack(struct stoker_engine *engine, const struct settings *settings,
                struct stoker_pack_progress *progress, struct stoker_error *error)
{
    struct stoker_pack_options options = {.struct_size = sizeof options,
                                          .destination = "/out/dst/",
                                          .shard_bytes = settings->shard_bytes,
                                          .pattern = settings->pattern,
                                          .shuffle = settings->seed ? STOKER_SHUFFLE_FULL
                                                                    : STOKER_SHUFFLE_NONE,
                                          .seed = settings->seed,
                                          .io_retries = STOKER_NO_RETRIES};
    struct stoker_dataset *dataset = NULL;
    struct stoker_pack *work = NULL;
    int status = open_source(engine, folder, &dataset, error);

    progress->struct_size = sizeof *progress;
    status = status < 0 ? status : stoker_pack_open(&work, dataset, &options, error);
    while (status == 0 && (status = stoker_pack_next(work, 1000, progress, error)) == 1) {
        status = 0;
    }
    stoker_pack_close(work);
    stoker_dataset_close(dataset);
    return status;
}

static const struct settings usual = {.shard_bytes = SHARD_BYTES};

/* The destination is consistent in itself and with the source. */
static void check_packed(const char *name, struct stk_io *world, uint64_t sample_count)
{
    struct stk_manifest manifest = {0};
    struct stoker_error error = {0};
    uint8_t *data = NULL, digest[32];
    struct stk_sha256 sha;
    size_t bytes = 0;

    T_TRUE(name, !is_there(world, draft));
    T_EQ(name,
         stk_staging_read_file(world, "/out/dst/stoker.manifest.json", 1u << 20, &data, &bytes,
                               &error),
         0);
    T_EQ(name, stk_manifest_parse(&manifest, (struct stk_view){data, bytes}, &error), 0);
    T_EQ(name, manifest.samples, sample_count);
    stk_free(data);
    for (uint64_t i = 0; i <= manifest.shard_count; i++) {
        const struct stk_manifest_shard *shard =
            i < manifest.shard_count ? &manifest.shards[i] : &manifest.index;
        char *path = stk_staging_path(destination, shard->name ? shard->name : "none", "");

        T_EQ(path, stk_staging_read_file(world, path, 1u << 30, &data, &bytes, &error), 0);
        stk_sha256_init(&sha);
        stk_sha256_add(&sha, data, bytes);
        stk_sha256_done(&sha, digest);
        T_EQ(path, shard->bytes, bytes);
        T_TRUE(path, memcmp(shard->sha256, digest, sizeof digest) == 0);
        T_TRUE(path, i == manifest.shard_count || bytes <= SHARD_BYTES);
        stk_free(data);
        stk_free(path);
    }
    stk_manifest_deinit(&manifest);
}

static void read_member(struct stoker_dataset *dataset, uint64_t sample, const char *extension,
                        uint8_t *data, size_t *bytes)
{
    struct stoker_error error = {0};

    T_EQ(extension, stoker_dataset_read(dataset, sample, extension, data, 20000, bytes, &error), 0);
}

/* Sample by sample: keys, members, bytes, labels and checksums of the packed folder. */
static void check_samples(struct stoker_engine *engine)
{
    struct stoker_dataset *source = NULL, *packed = NULL;
    struct stk_index *index = NULL;
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct stoker_error error = {0};
    uint8_t was[20000], is[20000];
    size_t was_bytes, is_bytes;

    T_EQ("source", open_source(engine, folder, &source, &error), 0);
    T_EQ("packed", open_source(engine, destination, &packed, &error), 0);
    T_EQ("index", stk_index_open_file(&index, engine->io, "/out/dst/stoker.index", &error), 0);
    T_EQ("samples in it", stk_index_samples(index), PICTURES);
    T_TRUE("the same data set",
           memcmp(stk_index_identity(index), stk_index_identity(packed->index), 32) == 0);
    stoker_dataset_info(packed, &info);
    T_EQ("samples", info.sample_count, PICTURES);
    T_EQ("members", info.member_count, 2 * PICTURES + 2 * 5 + 6);
    for (uint64_t i = 0; i < info.sample_count; i++) {
        struct stk_sample from, to;
        uint64_t sum;
        bool jpeg;
        char want[64];
        unsigned number;

        T_EQ("sample", stk_index_sample(source->index, i, &from, &error), 0);
        T_EQ("sample", stk_index_sample(index, i, &to, &error), 0);
        T_EQ("key", sscanf((const char *)from.key.data, "c%*u.x/p.%u.", &number), 1);
        snprintf(want, sizeof want, "c%u.x/p_%02u", number % CLASSES, number);
        T_TRUE(want, to.key.bytes == strlen(want) && memcmp(to.key.data, want, to.key.bytes) == 0);
        jpeg = number % 2;
        read_member(source, i, NULL, was, &was_bytes);
        read_member(packed, i, jpeg ? "jpg" : "png", is, &is_bytes);
        T_TRUE(want, was_bytes == is_bytes && memcmp(was, is, is_bytes) == 0);
        T_EQ(want, stk_index_checksum(index, &to, 0, &sum, &error), 0);
        T_TRUE(want, sum == stk_xxh3_64(is, is_bytes));
        read_member(packed, i, "cls", is, &is_bytes);
        T_TRUE(want, is_bytes == 1 && is[0] == '0' + number % CLASSES);
        T_EQ(want, from.label, number % CLASSES);
        T_EQ(want, to.label, number % CLASSES);
        T_EQ(want, to.member_count, number % 4 == 0 ? 4 : has_line(number) ? 3 : 2);
        if (has_line(number)) {
            char text[32];

            read_member(packed, i, "json", is, &is_bytes);
            is[is_bytes] = 0;
            snprintf(text, sizeof text, "\"n\": %u}", number);
            T_HAS(want, (const char *)is, text);
        }
        if (number % 4 == 0) {
            read_member(packed, i, "txt", is, &is_bytes);
            T_EQ(want, is_bytes, 30);
        }
    }
    stk_index_close(index);
    stoker_dataset_close(source);
    stoker_dataset_close(packed);
}

static void test_folder(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 2);
    struct stoker_pack_progress progress;
    struct stoker_error error = {0};

    make_folder(world);
    T_EQ("folder", pack(engine, &usual, &progress, &error), 0);
    T_STR("folder", error.what, "");
    T_EQ("done", progress.phase, STOKER_PACK_DONE);
    T_EQ("samples", progress.samples_done, PICTURES);
    T_TRUE("several shards", progress.shards > 3 && progress.shards_done == progress.shards);
    T_EQ("as planned", progress.bytes_done, progress.bytes);
    check_packed("folder", world, PICTURES);
    check_samples(engine);
    stoker_engine_close(engine);
}

static void test_same_bytes(void)
{
    static const struct settings rows[] = {
        {0, SHARD_BYTES, NULL}, {7, SHARD_BYTES, "train-%03d.tar"}, {8, 1u << 20, NULL}};
    uint8_t first[32] = {0}, digest[32], others[STK_COUNT(rows)][32];

    for (size_t row = 0; row < STK_COUNT(rows); row++) {
        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct stk_io *world;
            struct stoker_engine *engine = open_engine(&world, threads);
            struct stoker_pack_progress progress;
            struct stoker_error error = {0};

            make_folder(world);
            T_EQ("threads", pack(engine, &rows[row], &progress, &error), 0);
            T_TRUE("threads", folder_digest(world, destination, digest));
            if (threads == 1) {
                memcpy(first, digest, sizeof first);
            }
            T_TRUE("the same", memcmp(first, digest, sizeof first) == 0);
            stoker_engine_close(engine);
        }
        memcpy(others[row], first, sizeof first);
        T_TRUE("another order",
               row == 0 || memcmp(others[row - 1], others[row], sizeof first) != 0);
    }
}

static void test_tars(void)
{
    uint8_t digest[2][32];

    for (int packed = 0; packed < 2; packed++) {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 2);
        struct stoker_dataset *dataset = NULL;
        struct stoker_pack_progress progress;
        struct stoker_error error = {0};
        char key[64];
        struct stoker_member_info members[4];
        size_t count = STK_COUNT(members), bytes;
        uint8_t data[8000];

        make_tars(world, packed);
        T_EQ("tars", pack(engine, &usual, &progress, &error), 0);
        T_STR("tars", error.what, "");
        check_packed("tars", world, 12);
        T_EQ("open", open_source(engine, destination, &dataset, &error), 0);
        T_EQ("sample", stoker_dataset_sample(dataset, 6, key, sizeof key, members, &count, &error),
             0);
        T_STR("key", key, "d/k1-2");
        T_EQ("members", count, 3);
        T_STR("in their order", members[1].extension, "left.txt");
        T_EQ("read", stoker_dataset_read(dataset, 6, "jpg", data, sizeof data, &bytes, &error), 0);
        T_EQ("bytes", bytes, 6000 - 2 * 99);
        T_EQ("of it", data[bytes - 1], 'a' + 6);
        stoker_dataset_close(dataset);
        folder_digest(world, "/out/dst", digest[packed]);
        if (packed) {
            const struct settings shuffled = {.seed = 3, .shard_bytes = SHARD_BYTES};

            wipe(world, destination);
            T_EQ("shuffled gz", pack(engine, &shuffled, &progress, &error),
                 STOKER_ERROR_UNSUPPORTED);
            T_ERROR("shuffled gz", &error);
        }
        stoker_engine_close(engine);
    }
}

static void test_refusals(void)
{
    static const struct row {
        const char *name, *path; /* a file that is there, too */
        struct settings settings;
        int want;
        const char *want_where;
    } rows[] = {
        {"no shard below a size", NULL, {0, 100, NULL}, STOKER_ERROR_ARGUMENT, ""},
        {"no number", NULL, {0, 0, "x.tar"}, STOKER_ERROR_ARGUMENT, "x.tar"},
        {"two numbers", NULL, {0, 0, "%d%d.tar"}, STOKER_ERROR_ARGUMENT, ""},
        {"not a number", NULL, {0, 0, "%s.tar"}, STOKER_ERROR_ARGUMENT, ""},
        {"no tar", NULL, {0, 0, "%06d.zip"}, STOKER_ERROR_ARGUMENT, ""},
        {"a path", NULL, {0, 0, "../%06d.tar"}, STOKER_ERROR_ARGUMENT, ""},
        {"too few digits", NULL, {0, 4096, "%d.tar"}, STOKER_ERROR_LIMIT, "shards"},
        {"is there", "/out/dst/file", {0, SHARD_BYTES, NULL}, -EEXIST, "dst"},
        {"is a file", "/out/dst", {0, SHARD_BYTES, NULL}, -EEXIST, "dst"},
        {"foreign files", "/out/dst.part/x", {0, SHARD_BYTES, NULL}, -EEXIST, "dst.part/x"},
        {"a key twice",
         "/src/c1.x/p_01.png",
         {0, SHARD_BYTES, NULL},
         STOKER_ERROR_ARGUMENT,
         "p.01.JPEG"},
        {"a label file",
         "/src/c0.x/p.00.cls",
         {0, SHARD_BYTES, NULL},
         STOKER_ERROR_ARGUMENT,
         "p.00"},
        {"a line and a file",
         "/src/c1.x/p.01.json",
         {0, SHARD_BYTES, NULL},
         STOKER_ERROR_ARGUMENT,
         "p.01"},
        {"metadata that is none",
         "/src/c1.x/metadata.jsonl",
         {0, SHARD_BYTES, NULL},
         STOKER_ERROR_FORMAT,
         "c1.x/metadata.jsonl"},
        {"a name that is skipped",
         "/src/__a__/x.jpg",
         {0, SHARD_BYTES, NULL},
         STOKER_ERROR_ARGUMENT,
         "__a__"},
        {"an empty folder is fine", NULL, {0, SHARD_BYTES, NULL}, 0, ""},
    };

    T_EACH(row, row, rows)
    {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 1);
        struct stoker_pack_progress progress;
        struct stoker_error error = {0};

        make_folder(world);
        if (row->path) {
            stk_sim_add(world, row->path, "x", 1);
        } else {
            stk_sim_add(world, "/out/dst", NULL, 0);
        }
        T_EQ(row->name, pack(engine, &row->settings, &progress, &error), row->want);
        T_HAS(row->name, error.where, row->want_where);
        if (row->want < 0) {
            T_ERROR(row->name, &error);
        } else {
            check_packed(row->name, world, PICTURES);
        }
        stoker_engine_close(engine);
    }
}

/* Only the same settings and source can resume unfinished work. */
static void test_other_work(void)
{
    static const struct row {
        const char *name;
        struct settings settings;
        const char *want_where;
    } rows[] = {
        {"size", {0, 2 * SHARD_BYTES, NULL}, "shard_bytes: 40960 before, 81920 now"},
        {"seed", {5, SHARD_BYTES, NULL}, "before"},
        {"pattern", {0, SHARD_BYTES, "a%04d.tar"}, "pattern: \"shard-%06d.tar\" before"},
        {"a file changed", {0, SHARD_BYTES, NULL}, "files were changed"},
    };

    T_EACH(row, row, rows)
    {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 1);
        struct stk_sim_rule full = {.path = "/out/dst.part/shard-000002.tar.tmp",
                                    .fault = STK_SIM_FAULT_FULL,
                                    .offset = 5000,
                                    .times = 1};
        struct stoker_pack_progress progress;
        struct stoker_error error = {0};

        make_folder(world);
        stk_sim_add_rule(world, &full);
        T_EQ("full", pack(engine, &usual, &progress, &error), -ENOSPC);
        T_ERROR("full", &error);
        T_TRUE("no final name", !is_there(world, destination));
        if (row == &rows[STK_COUNT(rows) - 1]) {
            uint8_t data[6000] = {1};
            struct stk_output *out = NULL;

            T_EQ("rewrite", stk_io_create(world, "/src/c0.x/p.06.png", false, &out, NULL), 0);
            T_EQ("rewrite", stk_io_write(world, out, data, sizeof data, NULL), 0);
            stk_io_close_output(world, out);
        }
        error = (struct stoker_error){0};
        T_EQ(row->name, pack(engine, &row->settings, &progress, &error), STOKER_ERROR_STATE);
        T_HAS(row->name, error.where, row->want_where);
        stoker_engine_close(engine);
    }
}

/* An error of a full disk names the destination, whatever the samples were read from. */
static void test_goes_on(void)
{
    for (int kind = 0; kind < 3; kind++) { /* a folder, tars, packed tars */
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 1);
        struct stk_sim_rule full = {.path = "/out/dst.part/shard-000001.tar.tmp",
                                    .fault = STK_SIM_FAULT_FULL,
                                    .offset = 5000,
                                    .times = 1};
        struct stoker_pack_progress progress;
        struct stoker_error error = {0};

        if (kind == 0) {
            make_folder(world);
        } else {
            make_tars(world, kind == 2);
        }
        stk_sim_add_rule(world, &full);
        T_EQ("full", pack(engine, &usual, &progress, &error), -ENOSPC);
        T_STR("full", error.shard, full.path);
        T_EQ("goes on", pack(engine, &usual, &progress, &error), 0);
        T_TRUE("keeps complete shards",
               progress.shards_resumed >= 1 && progress.samples_resumed >= 1);
        check_packed("goes on", world, kind == 0 ? PICTURES : 12);
        stoker_engine_close(engine);
    }
}

enum way { FAIL, KILL, POWER, SOME, WAYS };

/* Every call of the seam in turn; after it, a run without faults ends with the same bytes. */
static void test_every_call(enum way way)
{
    static const char *const names[] = {"fail", "kill", "power cut", "some names persist"};
    uint8_t want[32], digest[32];
    uint64_t failures = 0, n;

    for (n = 0;; n++) { /* 0: nothing fails */
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 1);
        struct stoker_pack_progress progress;
        struct stoker_error error = {0};
        int64_t alive = stk_mem_alive();
        int status;

        make_folder(world);
        if (way == FAIL) {
            stk_sim_fail_nth(world, n);
        } else {
            stk_sim_kill_nth(world, n);
        }
        status = pack(engine, &usual, &progress, &error);
        stk_sim_fail_nth(world, 0);
        stk_sim_kill_nth(world, 0);
        if (status < 0) {
            T_ERROR(names[way], &error);
            failures++;
        }
        if (way >= POWER) {
            T_EQ(names[way], way == POWER ? stk_sim_crash(world) : stk_sim_crash_partial(world, n),
                 0);
            T_TRUE("what is said to be done stays", status < 0 || is_there(world, destination));
        }
        if (is_there(world, destination)) {
            struct stk_listing listing = {0};

            T_EQ("a final name is complete or absent",
                 stk_io_list(world, destination, &listing, NULL), 0);
            T_TRUE(names[way], listing.count >= 7);
            stk_listing_free(&listing);
        }
        error = (struct stoker_error){0};
        if (!is_there(world, destination) || is_there(world, "/out/dst/stoker.plan.json")) {
            T_EQ(names[way], pack(engine, &usual, &progress, &error), 0);
            T_STR(names[way], error.where, "");
        }
        T_TRUE(names[way], folder_digest(world, destination, digest));
        T_TRUE(names[way], !is_there(world, draft));
        if (n == 0) {
            memcpy(want, digest, sizeof want);
        }
        if (!T_TRUE("the same bytes", memcmp(want, digest, sizeof want) == 0)) {
            printf("%s at call %llu\n", names[way], (unsigned long long)n);
        }
        T_TRUE(names[way], stk_mem_alive() >= alive); /* the simulator keeps files */
        stoker_engine_close(engine);
        if (n > 0 && status == 0 && n > 2 * failures + 60) {
            break;
        }
    }
    printf("%s: %llu calls\n", names[way], (unsigned long long)n);
    T_TRUE("many calls failed", failures > 60);
}

static void test_every_allocation(void)
{
    const char *is_long = getenv("STOKER_TEST_LONG"); /* then each one */
    uint64_t failures = 0;
    int passes = 0;

    for (uint64_t n = 1; passes < 3; n += is_long && is_long[0] ? 1 : 1 + n / 40) {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 1);
        struct stoker_pack_progress progress;
        struct stoker_error error = {0};
        int status;

        make_folder(world);
        stk_mem_fail_nth(n);
        status = pack(engine, &usual, &progress, &error);
        stk_mem_fail_nth(0);
        passes = status == 0 ? passes + 1 : 0;
        if (status < 0) {
            failures++;
            T_ERROR("memory", &error);
            T_TRUE("no final name",
                   !is_there(world, destination) || is_there(world, "/out/dst/stoker.plan.json"));
            error = (struct stoker_error){0};
            T_EQ("and then", pack(engine, &usual, &progress, &error), 0);
            T_STR("and then", error.where, "");
        }
        check_packed("memory", world, PICTURES);
        stoker_engine_close(engine);
    }
    printf("memory: %llu failures\n", (unsigned long long)failures);
    T_TRUE("memory was refused", failures > 40);
}

/* Close in the middle: returns soon, and complete shards stay. */
static void test_close(void)
{
    struct stoker_pack_options options = {.struct_size = sizeof options,
                                          .destination = destination,
                                          .shuffle = STOKER_SHUFFLE_NONE, /* as usual */
                                          .shard_bytes = SHARD_BYTES};
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 1);
    struct stoker_dataset *dataset = NULL;
    struct stoker_pack *work = NULL;
    struct stoker_pack_progress progress;
    struct stoker_error error = {0};
    int status;

    make_folder(world);
    T_EQ("open", open_source(engine, folder, &dataset, &error), 0);
    T_EQ("begin", stoker_pack_open(&work, dataset, &options, &error), 0);
    stoker_pack_stop(work);
    while ((status = stoker_pack_next(work, 1000, NULL, &error)) == 1) {
    }
    stoker_pack_stop(work); /* once more is fine */
    T_EQ("0 means complete", is_there(world, destination), status == 0);
    stoker_pack_close(work);
    for (int i = 0; i < 3; i++) {
        T_EQ("begin", stoker_pack_open(&work, dataset, &options, &error), 0);
        stoker_pack_close(work);
    }
    stoker_pack_close(NULL);
    stoker_dataset_close(dataset);
    if (!is_there(world, destination)) {
        T_EQ("goes on", pack(engine, &usual, &progress, &error), 0);
    }
    check_packed("close", world, PICTURES);
    stoker_engine_close(engine);
}

int main(void)
{
    test_folder();
    test_same_bytes();
    test_tars();
    test_refusals();
    test_other_work();
    test_goes_on();
    test_close();
    for (int way = 0; way < WAYS; way++) {
        test_every_call((enum way)way);
    }
    test_every_allocation();
    T_EQ("leaks", stk_mem_alive(), 0);
    return t_finish();
}
