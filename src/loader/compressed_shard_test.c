/* Goal: compressed shards with seek points stream like the same tars uncompressed: any shuffle, the
 * same order, the same values, each byte decompressed about once; a stale index is an error, never
 * a wrong value. Shards indexed by DALI stream like scanned ones, and wrong entries of such an
 * index are detected.
 * Method: one data set as tars, gzip (one member) and zstd (frames) in the simulator, warm and
 * cold; streams of ids, with the values checked; decompressed bytes counted. */
#include "base/mem.h"
#include "dataset/dataset.h"
#include "format/compress/seek_points.h"
#include "io/write.h"
#include "loader/pending/error_policy_test.h"

#include <errno.h>
#include <zstd.h>

enum kind { TARS, GZIP, ZSTD, ZSTD_ONE, KINDS };
static const char *const urls[KINDS] = {"/t/train-{000..003}.tar", "/g/train-{000..003}.tar.gz",
                                        "/z/train-{000..003}.tar.zst",
                                        "/o/train-{000..003}.tar.zst"};
static const char *const names[KINDS] = {"tars", "gzip", "zstd", "zstd, one frame"};

enum { SPACING = 1 << 16, LARGE_BYTES = 200000 };

static void pack_zstd(const struct t_tar *tar, size_t frame_bytes, struct t_tar *out)
{
    out->capacity = ZSTD_compressBound(tar->bytes) + 1000;
    out->data = malloc(out->capacity);
    for (size_t at = 0; at < tar->bytes; at += frame_bytes) {
        out->bytes += ZSTD_compress(out->data + out->bytes, out->capacity - out->bytes,
                                    tar->data + at, stk_min(frame_bytes, tar->bytes - at), 1);
    }
}

/* Besides the samples one large member that no field reads, so that shards have some seek
 * points. */
static void make_shard(uint32_t shard, struct t_tar *tar)
{
    static uint8_t large[LARGE_BYTES];
    char name[64];

    for (size_t i = 0; i < sizeof large; i++) {
        large[i] = (uint8_t)(i * i >> 7);
    }
    for (uint32_t i = 0; i < SHARD_SAMPLES; i++) {
        uint32_t sample = shard * SHARD_SAMPLES + i;
        uint8_t value[2048];
        size_t bytes = value_of(sample, value);

        snprintf(name, sizeof name, "s%05u.bin", sample);
        t_tar_add(tar, name, value, bytes);
        snprintf(name, sizeof name, "s%05u.cls", sample);
        t_tar_add(tar, name, "7", 1);
        if (i % 10 == 5) {
            snprintf(name, sizeof name, "s%05u.more", sample);
            t_tar_add(tar, name, large, sizeof large);
        }
    }
    t_tar_end(tar);
}

static void add_kind(struct stk_io *world, enum kind kind)
{
    static const char *const folders[KINDS] = {"/t", "/g", "/z", "/o"};
    static const char *const endings[KINDS] = {"", ".gz", ".zst", ".zst"};

    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        struct t_tar tar = {0}, packed = {0};
        char path[64];

        make_shard(shard, &tar);
        if (kind == GZIP) {
            t_tar_gzip(&tar, &packed);
        } else if (kind != TARS) {
            pack_zstd(&tar, kind == ZSTD ? 100000 : SIZE_MAX / 2, &packed);
        }
        snprintf(path, sizeof path, "%s/train-%03u.tar%s", folders[kind], shard, endings[kind]);
        T_EQ(path,
             stk_sim_add(world, path, kind ? packed.data : tar.data,
                         kind ? packed.bytes : tar.bytes),
             0);
        t_tar_free(&tar);
        free(packed.data);
    }
}

static int make_index(struct rig *rig, enum kind kind, uint64_t access_bytes)
{
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = &urls[kind], .url_count = 1};
    struct stoker_indexer_options options = {.struct_size = sizeof options,
                                             .seek_interval_bytes = access_bytes};
    struct stoker_indexer_progress progress = {.struct_size = sizeof progress};
    struct stoker_indexer *indexer = NULL;
    int status = stoker_indexer_open(&indexer, rig->engine, &dataset, &options, NULL);

    while (status == 0 && (status = stoker_indexer_next(indexer, 1000, &progress, NULL)) == 1) {
        status = 0;
    }
    stoker_indexer_close(indexer);
    return status;
}

/* A world with the kinds, and an engine; no data set yet. */
static void rig_make(struct rig *rig, uint32_t threads)
{
    struct stk_io_options io = {.depth = 16, .read_timeout_ms = 5000};
    struct stoker_engine_options engine = {.struct_size = sizeof engine,
                                           .threads = threads,
                                           .io_depth = 16,
                                           .read_timeout_ms = 5000,
                                           .memory_bytes_max = 256u << 20};

    *rig = (struct rig){0};
    T_EQ("world", stk_sim_open(&rig->world, 1, &io, NULL), 0);
    T_EQ("engine", stk_engine_open_with_io(&rig->engine, rig->world, &engine, NULL), 0);
}

static bool rig_dataset(struct rig *rig, const char *const *paths, size_t count)
{
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = paths, .url_count = count, .block_bytes = 8192};
    struct stoker_error error = {0};

    stoker_dataset_close(rig->dataset);
    rig->dataset = NULL;
    if (stoker_dataset_open(&rig->dataset, rig->engine, &options, &error) < 0) {
        return T_STR(error.where, error.what, "");
    }
    return true;
}

static bool is_sequential(const struct rig *rig)
{
    struct stoker_dataset_info info = {.struct_size = sizeof info};

    stoker_dataset_info(rig->dataset, &info);
    return info.sequential;
}

/* Ids of all epochs; values are checked on the way. */
static int trace_of(struct rig *rig, uint32_t shuffle, struct trace *trace,
                    struct stoker_error *error)
{
    struct stoker_loader_options options = {
        .batch_size = 24, .seed = 5, .shuffle = shuffle, .on_error = STOKER_ON_ERROR_RAISE};
    struct stoker_loader *loader = open_loader(rig, options);
    int status;

    trace->count = 0;
    status = stream(loader, EPOCHS, trace, error);
    stoker_loader_close(loader);
    return status;
}

static void test_order(void)
{
    static const uint32_t shuffles[] = {STOKER_SHUFFLE_BLOCK, STOKER_SHUFFLE_FULL,
                                        STOKER_SHUFFLE_NONE};

    for (uint32_t threads = 1; threads <= 4; threads += 3) {
        struct trace want[STK_COUNT(shuffles)];
        struct rig rig;

        rig_make(&rig, threads);
        for (enum kind kind = TARS; kind <= ZSTD; kind++) {
            struct stoker_error error = {0};
            struct trace got;

            add_kind(rig.world, kind);
            T_EQ(names[kind], make_index(&rig, kind, SPACING), 0);
            if (!rig_dataset(&rig, &urls[kind], 1)) {
                continue;
            }
            T_TRUE(names[kind], !is_sequential(&rig));
            for (size_t i = 0; i < STK_COUNT(shuffles); i++) {
                T_EQ(names[kind], trace_of(&rig, shuffles[i], kind ? &got : &want[i], &error), 0);
                T_TRUE(names[kind], kind == TARS || same(names[kind], &got, &want[i]));
            }
            /* All segments are cached, so nine epochs decompress none of them twice. */
            T_TRUE(names[kind], (kind == TARS) == (stk_segment_cache_decompressed_bytes(
                                                       rig.dataset->segment_cache) == 0));
            T_TRUE(names[kind], stk_segment_cache_decompressed_bytes(rig.dataset->segment_cache) <=
                                    SHARDS * (5ull * LARGE_BYTES + SHARD_SAMPLES * 4096ull));
        }
        rig_close(&rig);
    }
}

/* Seek points that were not requested, or are not possible, do not exist. */
static void test_without(void)
{
    struct stoker_error error = {0};
    struct trace got;
    struct rig rig;

    rig_make(&rig, 2);
    add_kind(rig.world, GZIP);
    T_EQ("no points", make_index(&rig, GZIP, 0), 0);
    T_TRUE("front to back", rig_dataset(&rig, &urls[GZIP], 1) && is_sequential(&rig));
    T_EQ("stream", trace_of(&rig, STOKER_SHUFFLE_NONE, &got, &error), 0);
    T_TRUE("in order", got.ids[0] == 0 && got.ids[100] == 100);
    /* Requested later: the shards are read again, for the points. */
    T_EQ("points", make_index(&rig, GZIP, 1), 0);
    T_TRUE("any order", rig_dataset(&rig, &urls[GZIP], 1) && !is_sequential(&rig));
    /* And not again, and not lost, if they are not requested. */
    T_EQ("retained", make_index(&rig, GZIP, 0), 0);
    T_TRUE("any order", rig_dataset(&rig, &urls[GZIP], 1) && !is_sequential(&rig));
    rig_close(&rig);
}

/* A read that fails as the machine may fail ends one batch. Its stream is opened again, so that the
 * batch can be read later: a stream repeats its first failure for ever. */
static void test_transient(void)
{
    struct stk_sim_rule rule = {
        .path = "/g/train-000.tar.gz", .fault = STK_SIM_FAULT_EIO, .offset = 20000, .times = 1};
    struct stoker_loader_options options = {.batch_size = 24,
                                            .shuffle = STOKER_SHUFFLE_NONE,
                                            .on_error = STOKER_ON_ERROR_RAISE,
                                            .io_retries = STOKER_NO_RETRIES};
    struct stoker_loader *loader;
    struct stoker_error error = {0};
    uint32_t failures = 0;
    struct trace got = {0};
    struct rig rig;
    int status = 1;

    rig_make(&rig, 2);
    add_kind(rig.world, GZIP);
    T_EQ("no points", make_index(&rig, GZIP, 0), 0);
    T_TRUE("front to back", rig_dataset(&rig, &urls[GZIP], 1) && is_sequential(&rig));
    T_EQ("rule", stk_sim_add_rule(rig.world, &rule), 0);
    loader = open_loader(&rig, options);
    while (status != 0 && failures < 8) {
        status = take(loader, &got, &error);
        failures += status < 0;
        T_TRUE("an error of the machine", status >= 0 || status == -EIO);
    }
    T_EQ("one failure", failures, 1);
    T_EQ("all samples", got.count, SAMPLES);
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* Damage ends the stream of a shard: it is not opened and decompressed again for each further
 * sample of the shard. */
static void test_damage_once(void)
{
    struct stoker_loader_options options = {
        .batch_size = 24, .shuffle = STOKER_SHUFFLE_NONE, .on_error = STOKER_ON_ERROR_SKIP};
    struct stoker_loader *loader;
    struct stoker_error error = {0};
    struct trace got = {0};
    struct stk_sim_rule rule = {
        .path = "/g/train-001.tar.gz", .fault = STK_SIM_FAULT_TRUNCATED, .offset = 40000};
    uint64_t bytes, before;
    struct rig rig;

    rig_make(&rig, 1);
    add_kind(rig.world, GZIP);
    T_EQ("no points", make_index(&rig, GZIP, 0), 0);
    T_TRUE("front to back", rig_dataset(&rig, &urls[GZIP], 1) && is_sequential(&rig));
    T_EQ("damage", stk_sim_add_rule(rig.world, &rule), 0);
    loader = open_loader(&rig, options);
    before = atomic_load(&rig.dataset->scan.bytes_read);
    while (take(loader, &got, &error) == 1) {
    }
    bytes = atomic_load(&rig.dataset->scan.bytes_read) - before;
    T_EQ("all samples, or substitutes", got.count, SAMPLES);
    /* Substitutes read their shards from the start: 27 times a shard; again for each sample: 37. */
    T_TRUE("bytes", bytes < 32 * stk_index_shard_bytes(rig.dataset->index, 1));
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* A frame is a segment: small shards of one frame can be read as one. */
static void test_one_frame(void)
{
    struct stoker_error error = {0};
    struct trace got;
    struct rig rig;

    rig_make(&rig, 2);
    add_kind(rig.world, ZSTD_ONE);
    T_EQ("index", make_index(&rig, ZSTD_ONE, SPACING), 0);
    T_TRUE("any order", rig_dataset(&rig, &urls[ZSTD_ONE], 1) && !is_sequential(&rig));
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct stk_seek_points_head head;

        memcpy(&head, stk_index_seek_points(rig.dataset->index, i, 0, sizeof head, NULL),
               sizeof head);
        T_TRUE("one point", head.point_count == 1 && head.segment_bytes_max == head.out_bytes);
    }
    T_EQ("stream", trace_of(&rig, STOKER_SHUFFLE_FULL, &got, &error), 0);
    rig_close(&rig);
}

/* Plain and packed shards in one data set, cold: bytes of packed ones are never taken for data. */
static void test_mixed_cold(void)
{
    static const char *const paths[] = {"/t/train-000.tar", "/g/train-001.tar.gz",
                                        "/t/train-002.tar", "/z/train-003.tar.zst"};
    struct stk_sim_rule cold = {.fault = STK_SIM_FAULT_COLD};
    struct trace want, got;
    struct stoker_error error = {0};
    struct rig rig;

    rig_make(&rig, 3);
    for (enum kind kind = TARS; kind <= ZSTD; kind++) {
        add_kind(rig.world, kind);
        T_EQ("index", make_index(&rig, kind, SPACING), 0);
    }
    T_TRUE("tars", rig_dataset(&rig, &urls[TARS], 1));
    T_EQ("tars", trace_of(&rig, STOKER_SHUFFLE_FULL, &want, &error), 0);
    {
        struct stoker_dataset_options dataset = {
            .struct_size = sizeof dataset, .urls = paths, .url_count = STK_COUNT(paths)};
        struct stoker_indexer_options options = {.struct_size = sizeof options,
                                                 .seek_interval_bytes = SPACING};
        struct stoker_indexer_progress progress = {.struct_size = sizeof progress};
        struct stoker_indexer *indexer = NULL;

        T_EQ("index", stoker_indexer_open(&indexer, rig.engine, &dataset, &options, NULL), 0);
        while (stoker_indexer_next(indexer, 1000, &progress, NULL) == 1) {
        }
        stoker_indexer_close(indexer);
    }
    T_TRUE("mixed", rig_dataset(&rig, paths, STK_COUNT(paths)) && !is_sequential(&rig));
    T_EQ("rule", stk_sim_add_rule(rig.world, &cold), 0);
    T_EQ("mixed", trace_of(&rig, STOKER_SHUFFLE_FULL, &got, &error), 0);
    same("mixed", &got, &want);
    rig_close(&rig);
}

/* Another file of the same size under the name, the index without its stamp as after a copy: its
 * sizes fit, its sums do not. */
static void test_stale(void)
{
    struct stoker_error error = {0};
    struct stk_file *file = NULL;
    struct stk_output *out = NULL;
    struct stk_stat about;
    struct trace got;
    struct rig rig;
    uint8_t *bytes;

    rig_make(&rig, 2);
    add_kind(rig.world, ZSTD);
    T_EQ("index", make_index(&rig, ZSTD, SPACING), 0);
    T_EQ("open", stk_io_open_file(rig.world, "/z/train-002.tar.zst", &file, NULL), 0);
    T_EQ("stat", stk_io_stat_file(file, &about, NULL), 0);
    bytes = stk_alloc(about.bytes, 1);
    stk_io_read_wait(file, 0, bytes, about.bytes);
    stk_io_close_file(file);
    for (size_t i = about.bytes / 2; i < about.bytes; i += 997) {
        bytes[i] ^= 4;
    }
    T_EQ("create", stk_io_create(rig.world, "/z/train-002.tar.zst", false, &out, NULL), 0);
    T_EQ("write", stk_io_write(rig.world, out, bytes, about.bytes, NULL), 0);
    stk_io_close_output(rig.world, out);
    T_EQ("no stamp", stk_io_remove(rig.world, "/z/stoker.index.stamp", NULL), 0);
    T_TRUE("open", rig_dataset(&rig, &urls[ZSTD], 1) && !is_sequential(&rig));
    T_EQ("found out", trace_of(&rig, STOKER_SHUFFLE_FULL, &got, &error), STOKER_ERROR_CORRUPT);
    T_ERROR("found out", &error);
    T_STR("where", error.shard, "/z/train-002.tar.zst");
    stk_free(bytes);
    rig_close(&rig);
}

/* ---- indexes of DALI ---- */

/* Writes an index in the format of wds2idx. lie: a sample (of the shard) whose name is another
 * one's; or none. */
static void add_dali_index(struct stk_io *world, uint32_t shard, uint32_t lie)
{
    char *text = stk_alloc(SHARD_SAMPLES, 160), path[64];
    size_t used = (size_t)snprintf(text, 160, "v1.2 %d\n", SHARD_SAMPLES);
    uint64_t at = 0;

    for (uint32_t i = 0; i < SHARD_SAMPLES; i++) {
        uint32_t sample = shard * SHARD_SAMPLES + i, name = i == lie ? 90000 : sample;
        uint8_t value[2048];
        size_t bytes = value_of(sample, value);
        uint64_t label_at = at + 512 + stk_round_up(bytes, 512) + 512;

        used += (size_t)snprintf(text + used, 160, "bin %llu %zu s%05u.bin cls %llu 1 s%05u.cls",
                                 (unsigned long long)at + 512, bytes, name,
                                 (unsigned long long)label_at, name);
        at = label_at + 512;
        if (i % 10 == 5) {
            used += (size_t)snprintf(text + used, 160, " more %llu %d s%05u.more",
                                     (unsigned long long)at + 512, LARGE_BYTES, name);
            at += 512 + stk_round_up(LARGE_BYTES, 512);
        }
        text[used++] = '\n';
    }
    snprintf(path, sizeof path, "/t/train-%03u.idx", shard);
    T_EQ(path, stk_sim_add(world, path, text, used), 0);
    stk_free(text);
}

static void test_dali_indexes(void)
{
    for (int cold = 0; cold < 2; cold++) {
        struct stk_sim_rule rule = {.fault = STK_SIM_FAULT_COLD};
        struct stoker_dataset_info info = {.struct_size = sizeof info}, read = info;
        struct stoker_error error = {0};
        struct trace want, got;
        uint8_t value[2048], buffer[2048];
        size_t bytes = 0;
        struct rig rig;

        rig_make(&rig, 3);
        add_kind(rig.world, TARS);
        T_TRUE("scanned", rig_dataset(&rig, &urls[TARS], 1));
        stoker_dataset_info(rig.dataset, &read);
        T_EQ("none reported", read.shards_foreign, 0);
        T_EQ("scanned", trace_of(&rig, STOKER_SHUFFLE_BLOCK, &want, &error), 0);
        for (uint32_t shard = 0; shard < SHARDS; shard++) {
            add_dali_index(rig.world, shard, UINT32_MAX);
        }
        T_TRUE("reported", rig_dataset(&rig, &urls[TARS], 1));
        stoker_dataset_info(rig.dataset, &info);
        T_EQ("reported", info.shards_foreign, SHARDS);
        T_STR("reported", info.foreign_note, "");
        T_EQ("identity", memcmp(info.identity, read.identity, sizeof info.identity), 0);
        if (cold) {
            T_EQ("rule", stk_sim_add_rule(rig.world, &rule), 0);
        }
        T_EQ("reported", trace_of(&rig, STOKER_SHUFFLE_BLOCK, &got, &error), 0);
        same("reported", &got, &want);
        T_EQ("one",
             stoker_dataset_read(rig.dataset, 77, "bin", buffer, sizeof buffer, &bytes, &error), 0);
        T_TRUE("one", bytes == value_of(77, value) && memcmp(buffer, value, bytes) == 0);
        rig_close(&rig);
    }
}

static void test_lie(void)
{
    for (int cold = 0; cold < 2; cold++) {
        struct stk_sim_rule rule = {.fault = STK_SIM_FAULT_COLD};
        struct stoker_dataset_info info = {.struct_size = sizeof info};
        struct stoker_error error = {0};
        struct trace got;
        uint8_t buffer[2048];
        size_t bytes;
        struct rig rig;

        rig_make(&rig, 3);
        add_kind(rig.world, TARS);
        for (uint32_t shard = 0; shard < SHARDS; shard++) {
            add_dali_index(rig.world, shard, shard == 2 ? 18 : UINT32_MAX);
        }
        T_TRUE("reported", rig_dataset(&rig, &urls[TARS], 1));
        stoker_dataset_info(rig.dataset, &info);
        T_EQ("reported", info.shards_foreign, SHARDS); /* no probe met it */
        if (cold) {
            T_EQ("rule", stk_sim_add_rule(rig.world, &rule), 0);
        }
        T_EQ("found out", trace_of(&rig, STOKER_SHUFFLE_BLOCK, &got, &error), STOKER_ERROR_CHANGED);
        T_ERROR("found out", &error);
        T_STR("where", error.shard, "/t/train-002.tar");
        T_EQ("one",
             stoker_dataset_read(rig.dataset, 2 * SHARD_SAMPLES + 18, "cls", buffer, sizeof buffer,
                                 &bytes, &error),
             STOKER_ERROR_CHANGED);
        rig_close(&rig);
    }
}

/* Without the option the index is not used. */
static void test_never(void)
{
    struct stoker_dataset_options options = {.struct_size = sizeof options,
                                             .urls = &urls[TARS],
                                             .url_count = 1,
                                             .foreign_index = STOKER_FOREIGN_INDEX_NEVER};
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct rig rig;

    rig_make(&rig, 1);
    add_kind(rig.world, TARS);
    add_dali_index(rig.world, 0, UINT32_MAX);
    T_EQ("open", stoker_dataset_open(&rig.dataset, rig.engine, &options, NULL), 0);
    stoker_dataset_info(rig.dataset, &info);
    T_EQ("never", info.shards_foreign, 0);
    stoker_dataset_close(rig.dataset);
    options.foreign_index = 7;
    T_EQ("no such use", stoker_dataset_open(&rig.dataset, rig.engine, &options, NULL),
         STOKER_ERROR_ARGUMENT);
    rig_close(&rig);
}

/* A JSON of wids is a data set: its shards in its order. */
static void test_wids(void)
{
    static const char json[] =
        "{\"wids_version\": 1, \"shardlist\": ["
        "{\"url\": \"train-000.tar\", \"nsamples\": 50}, {\"url\": \"train-001.tar\", "
        "\"nsamples\": 50}, {\"url\": \"train-002.tar\", \"nsamples\": 49}, "
        "{\"url\": \"train-003.tar\", \"nsamples\": 50}]}";
    const char *path = "/t/set.json";
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct stoker_error error = {0};
    struct trace want, got;
    struct rig rig;

    rig_make(&rig, 2);
    add_kind(rig.world, TARS);
    stk_sim_add(rig.world, path, json, sizeof json - 1);
    T_TRUE("tars", rig_dataset(&rig, &urls[TARS], 1));
    T_EQ("tars", trace_of(&rig, STOKER_SHUFFLE_BLOCK, &want, &error), 0);
    if (T_TRUE("wids", rig_dataset(&rig, &path, 1))) {
        stoker_dataset_info(rig.dataset, &info);
        T_EQ("samples", info.sample_count, SAMPLES);
        T_HAS("what it says otherwise", info.foreign_note, "50 samples, not 49");
        T_EQ("wids", trace_of(&rig, STOKER_SHUFFLE_BLOCK, &got, &error), 0);
        same("wids", &got, &want);
    }
    rig_close(&rig);
}

int main(void)
{
    test_order();
    test_without();
    test_transient();
    test_damage_once();
    test_one_frame();
    test_mixed_cold();
    test_stale();
    test_dali_indexes();
    test_lie();
    test_never();
    test_wids();
    return t_finish();
}
