/* Fuzz of verify.c, tar_walk.c, shard_check.c, picture_check.c, manifest_check.c, index_check.c and
 * repair.c: any bytes as a shard, as the index or as the manifest of a good shard. The last byte
 * chooses which. No crash, no hang; a finding says what and where; a repaired shard is clean, and
 * the old bytes stay; a clean data set can be opened. */
#include "engine/engine.h"
#include "io/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { AS_SHARD, AS_REPAIRED, AS_INDEX, AS_MANIFEST };

/* A tar of one sample, made once. */
static uint8_t good[2048];

static void make_good(void)
{
    unsigned sum = 0;

    memcpy(good, "k.txt", 5);
    memcpy(good + 100, "0000644\0000000000\0000000000", 24);
    memcpy(good + 124, "00000000004", 11);
    memcpy(good + 136, "00000000000", 11);
    memset(good + 148, ' ', 8);
    good[156] = '0';
    memcpy(good + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++) {
        sum += good[i];
    }
    snprintf((char *)good + 148, 8, "%06o", sum);
    memcpy(good + 512, "text", 4);
}

struct outcome {
    uint64_t unrepaired, listed;
    struct stoker_verify_progress progress;
};

/* A data set without findings can be opened, and has as many samples. */
static void check_opens(struct stoker_engine *engine, uint64_t samples)
{
    const char *url = "/d";
    struct stoker_dataset_options options = {.struct_size = sizeof options,
                                             .urls = &url,
                                             .url_count = 1,
                                             .key_bytes_max = 100,
                                             .header_bytes_max = 8192,
                                             .decompressed_bytes_max = 4u << 20,
                                             .index = STOKER_INDEX_NEVER};
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct stoker_dataset *dataset = NULL;

    STK_ASSERT(stoker_dataset_open(&dataset, engine, &options, NULL) == 0);
    STK_ASSERT(stoker_dataset_info(dataset, &info) == 0);
    STK_ASSERT(info.sample_count == samples);
    stoker_dataset_close(dataset);
}

static void run(struct stoker_engine *engine, bool deep, bool repair, struct outcome *outcome)
{
    const char *url = "/d";
    struct stoker_verify_options options = {.struct_size = sizeof options,
                                            .urls = &url,
                                            .url_count = 1,
                                            .deep = deep,
                                            .repair = repair,
                                            .key_bytes_max = 100,
                                            .header_bytes_max = 8192,
                                            .pixels_max = 1u << 20,
                                            .decode_bytes_max = 16u << 20,
                                            .decompressed_bytes_max = 4u << 20};
    struct stoker_error error = {0};
    struct stoker_verify *verify = NULL;
    struct stoker_finding found;
    int status = stoker_verify_open(&verify, engine, &options, &error);

    *outcome = (struct outcome){.progress.struct_size = sizeof outcome->progress};
    STK_ASSERT(status == 0);
    while ((status = stoker_verify_next(verify, 1000, &found, &error)) != 0) {
        STK_ASSERT(status == 1 || status == STOKER_ERROR_AGAIN);
        if (status == 1) {
            STK_ASSERT(found.what[0] && found.advice[0] && found.shard[0] && found.status < 0);
            STK_ASSERT(strcmp(stoker_finding_name(found.kind), "unknown") != 0);
            outcome->unrepaired += found.kind == STOKER_FINDING_UNREPAIRED;
            outcome->listed++;
        }
    }
    STK_ASSERT(stoker_verify_progress(verify, &outcome->progress) == 0);
    STK_ASSERT(outcome->progress.findings_kept == outcome->listed);
    stoker_verify_close(verify);
    if (outcome->progress.findings == 0) {
        check_opens(engine, outcome->progress.samples);
    }
}

static void check_repair(struct stoker_engine *engine, struct stk_io *world, bool deep,
                         struct stk_view shard)
{
    struct outcome outcome;
    struct stk_stat about = {0};

    run(engine, deep, true, &outcome);
    if (outcome.progress.repaired == 0) {
        STK_ASSERT(stk_io_stat_path(world, "/d/a0.tar.original", &about, NULL) < 0);
        return;
    }
    STK_ASSERT(stk_io_stat_path(world, "/d/a0.tar.original", &about, NULL) == 0);
    STK_ASSERT(about.bytes == shard.bytes);
    STK_ASSERT(stk_io_stat_path(world, "/d/a0.tar.repair", &about, NULL) < 0);
    run(engine, deep, false, &outcome);
    STK_ASSERT(outcome.progress.findings == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_io_options io = {.depth = 4, .read_timeout_ms = 1000};
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = 64u << 20};
    struct stoker_engine *engine = NULL;
    struct stk_io *world = NULL;
    struct stk_view input = {data, bytes - 1};
    struct outcome outcome;
    uint8_t how;

    if (bytes == 0) {
        return 0;
    }
    if (!good[0]) {
        make_good();
    }
    how = data[bytes - 1];
    if (stk_sim_open(&world, 1, &io, NULL) < 0 ||
        stk_engine_open_with_io(&engine, world, &options, NULL) < 0) {
        abort();
    }
    if (how % 4 <= AS_REPAIRED) {
        stk_sim_add(world, "/d/a0.tar", input.data, input.bytes);
    } else {
        stk_sim_add(world, "/d/a0.tar", good, sizeof good);
        stk_sim_add(world, how % 4 == AS_INDEX ? "/d/stoker.index" : "/d/stoker.manifest.json",
                    input.data, input.bytes);
    }
    if (how % 4 == AS_REPAIRED) {
        check_repair(engine, world, how & 4, input);
    } else if (how % 4 >= AS_INDEX && (how & 8)) {
        check_repair(engine, world, how & 4, (struct stk_view){good, sizeof good});
    } else {
        run(engine, how & 4, false, &outcome);
    }
    stoker_engine_close(engine);
    return 0;
}
