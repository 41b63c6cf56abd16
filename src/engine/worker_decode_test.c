/* Goal: a loader on a sandboxed engine returns the same batches as one without; decoders that
 * crash, loop or make forbidden calls cost their samples under skip and nothing more; the budget
 * holds; closing does not wait for a decoder that loops.
 * Method: a tar of PNGs in the simulator, some of which are commands for stoker-decode-test (see
 * rogue_main.c). Covers worker_decode.c. */
#include "base/mem.h"
#include "engine/engine.h"
#include "io/sim/sim.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <limits.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAMPLES 64u
#define BATCH 16u
#define SIDE 24u

static char rogue[PATH_MAX];

/* Sample number % 8 == 3 names its fault, if any is given. */
static void add_tar(struct stk_io *world, const char *const *misdeeds, size_t misdeed_count)
{
    struct t_tar tar = {0};

    for (uint32_t i = 0; i < SAMPLES; i++) {
        png_image image = {
            .version = PNG_IMAGE_VERSION, .width = 40, .height = 30, .format = PNG_FORMAT_RGB};
        static uint8_t rgb[40 * 30 * 3], file[16384];
        size_t bytes = sizeof file;
        char name[32];

        for (size_t k = 0; k < sizeof rgb; k++) {
            rgb[k] = (uint8_t)(k * (i + 1) / 3);
        }
        snprintf(name, sizeof name, "s%04u.png", i);
        if (misdeed_count > 0 && i % 8 == 3) {
            bytes = (size_t)snprintf((char *)file, sizeof file, "ROGUE %s",
                                     misdeeds[i / 8 % misdeed_count]);
        } else {
            T_TRUE("png", png_image_write_to_memory(&image, file, &bytes, 0, rgb, 0, NULL));
        }
        t_tar_add(&tar, name, file, bytes);
    }
    t_tar_end(&tar);
    T_EQ("add", stk_sim_add(world, "/data/train.tar", tar.data, tar.bytes), 0);
    t_tar_free(&tar);
}

struct rig {
    struct stoker_engine *engine;
    struct stoker_dataset *dataset;
    struct stoker_loader *loader;
};

struct rig_options {
    const char *const *misdeeds;
    size_t misdeed_count;
    const char *helper;
    uint32_t threads, on_error, timeout_ms;
    bool sandbox;
};

static bool rig_open(struct rig *rig, const struct rig_options *options)
{
    static const struct stoker_transform chain[] = {
        {.kind = STOKER_RANDOM_RESIZED_CROP,
         .height = SIDE,
         .width = SIDE,
         .filter = STOKER_BILINEAR,
         .scale = {0.2, 1},
         .ratio = {0.75, 1.3333}},
        {.kind = STOKER_RANDOM_HORIZONTAL_FLIP, .probability = 0.5},
    };
    static const struct stoker_field_options field = {.name = "image",
                                                      .kind = STOKER_FIELD_IMAGE,
                                                      .extensions = "png",
                                                      .transforms = chain,
                                                      .transform_count = 2};
    static const char *const url = "/data/train.tar";
    struct stk_io_options io = {.depth = 16, .read_timeout_ms = 5000};
    struct stoker_engine_options engine = {.struct_size = sizeof engine,
                                           .threads = options->threads,
                                           .memory_bytes_max = 256u << 20,
                                           .sandbox = options->sandbox,
                                           .sandbox_helper = options->helper,
                                           .decode_timeout_ms = options->timeout_ms};
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = &url, .url_count = 1};
    struct stoker_loader_options loader = {.struct_size = sizeof loader,
                                           .fields = &field,
                                           .field_count = 1,
                                           .batch_size = BATCH,
                                           .seed = 3,
                                           .on_error = options->on_error};
    struct stoker_error error = {0};
    struct stk_io *world;

    memset(rig, 0, sizeof *rig);
    T_EQ("world", stk_sim_open(&world, 1, &io, &error), 0);
    add_tar(world, options->misdeeds, options->misdeed_count);
    if (stk_engine_open_with_io(&rig->engine, world, &engine, &error) < 0 ||
        stoker_dataset_open(&rig->dataset, rig->engine, &dataset, &error) < 0 ||
        stoker_loader_open(&rig->loader, rig->dataset, &loader, &error) < 0) {
        T_STR(error.where, error.what, "");
        return false;
    }
    return true;
}

static void rig_close(struct rig *rig)
{
    stoker_loader_close(rig->loader);
    stoker_dataset_close(rig->dataset);
    stoker_engine_close(rig->engine);
}

/* An epoch's pixels into out; the status of the last next(). */
static int read_epoch(struct rig *rig, uint8_t *out, struct stoker_error *error)
{
    struct stoker_batch *batch = NULL;
    uint64_t at = 0;
    int status;

    while ((status = stoker_loader_next(rig->loader, 60000, &batch, error)) == 1) {
        struct stoker_array array;

        stoker_batch_array(batch, 0, &array);
        memcpy(out + at, array.data, BATCH * 3 * SIDE * SIDE);
        at += BATCH * 3 * SIDE * SIDE;
        stoker_batch_close(batch);
    }
    T_TRUE("complete", status < 0 || at == SAMPLES * 3 * SIDE * SIDE);
    return status;
}

static uint8_t want[SAMPLES * 3 * SIDE * SIDE], got[SAMPLES * 3 * SIDE * SIDE];

static void test_same(void)
{
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct rig_options options = {.threads = threads};
        struct stoker_engine_info info = {.struct_size = sizeof info};
        struct stoker_error error = {0};
        struct rig rig;

        if (rig_open(&rig, &options)) {
            T_EQ("info", stoker_engine_info(rig.engine, &info), 0);
            T_STR("info", info.sandbox, "off");
            T_EQ("direct", read_epoch(&rig, want, &error), 0);
        }
        rig_close(&rig);
        options.sandbox = true;
        if (rig_open(&rig, &options)) {
            T_EQ("info", stoker_engine_info(rig.engine, &info), 0);
            T_HAS("info", info.sandbox, "seccomp");
            memset(got, 0, sizeof got);
            T_EQ("sandboxed", read_epoch(&rig, got, &error), 0);
            T_TRUE("pixels", memcmp(want, got, sizeof got) == 0);
        }
        rig_close(&rig);
    }
}

static void test_skip(void)
{
    static const char *const misdeeds[] = {"crash", "socket", "loop",        "answer status",
                                           "exec",  "exit",   "answer kind", "abort"};
    struct stoker_error error = {0};

    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        struct rig_options options = {.misdeeds = misdeeds,
                                      .misdeed_count = 8,
                                      .helper = rogue,
                                      .threads = threads,
                                      .sandbox = true,
                                      .timeout_ms = 150,
                                      .on_error = STOKER_ON_ERROR_SKIP};
        struct stoker_stats stats = {.struct_size = sizeof stats};
        struct rig rig;

        if (rig_open(&rig, &options)) {
            T_EQ("epoch", read_epoch(&rig, threads == 1 ? want : got, &error), 0);
            T_EQ("stats", stoker_loader_stats(rig.loader, &stats), 0);
            T_EQ("substituted", stats.substituted, SAMPLES / 8);
        }
        rig_close(&rig);
    }
    T_TRUE("whatever the threads", memcmp(want, got, sizeof got) == 0);
}

static void test_raise(void)
{
    static const char *const misdeeds[] = {"crash"};
    struct rig_options options = {
        .misdeeds = misdeeds, .misdeed_count = 1, .helper = rogue, .threads = 2, .sandbox = true};
    struct stoker_error error = {0};
    struct rig rig;

    if (rig_open(&rig, &options)) {
        T_EQ("epoch", read_epoch(&rig, got, &error), STOKER_ERROR_CORRUPT);
        T_HAS("what", error.what, "crashed");
        T_HAS("where", error.where, "/data/train.tar");
        T_HAS("where", error.where, "key 's00");
    }
    rig_close(&rig);
}

static void test_close(void)
{
    static const char *const misdeeds[] = {"loop"};
    struct rig_options options = {.misdeeds = misdeeds,
                                  .misdeed_count = 1,
                                  .helper = rogue,
                                  .threads = 2,
                                  .sandbox = true,
                                  .timeout_ms = 600000};
    struct stoker_batch *batch;
    struct stoker_error error = {0};
    struct timespec before, after;
    struct rig rig;

    if (rig_open(&rig, &options)) {
        T_EQ("next", stoker_loader_next(rig.loader, 300, &batch, &error), STOKER_ERROR_AGAIN);
    }
    clock_gettime(CLOCK_MONOTONIC, &before);
    rig_close(&rig);
    clock_gettime(CLOCK_MONOTONIC, &after);
    T_TRUE("soon",
           (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 <
               200);
}

/* The last thread of an engine may free it a moment after close. */
static void await_alive(int64_t alive)
{
    for (int i = 0; i < 200 && stk_mem_alive() != alive; i++) {
        usleep(10000);
    }
    T_EQ("memory", stk_mem_alive(), alive);
}

/* A failed open leaves nothing; each allocation fails in turn. */
static void test_fail_nth(void)
{
    bool failed = true;

    for (uint64_t n = 1; failed && n < 100; n++) {
        struct stk_io_options io = {.depth = 16, .read_timeout_ms = 5000};
        struct stoker_engine_options options = {.struct_size = sizeof options,
                                                .threads = 2,
                                                .memory_bytes_max = 256u << 20,
                                                .sandbox = 1};
        struct stoker_error error = {0};
        struct stoker_engine *engine = NULL;
        struct stk_io *world;

        T_EQ("world", stk_sim_open(&world, 1, &io, &error), 0);
        stk_mem_fail_nth(n);
        failed = stk_engine_open_with_io(&engine, world, &options, &error) < 0;
        stk_mem_fail_nth(0);
        T_TRUE("fail-nth", failed == !engine);
        stoker_engine_close(engine);
    }
    T_TRUE("fail-nth", !failed);
}

int main(void)
{
    ssize_t length = readlink("/proc/self/exe", rogue, sizeof rogue - 64);
    int64_t alive = stk_mem_alive();
    char *slash;

    rogue[length < 0 ? 0 : length] = 0;
    slash = strrchr(rogue, '/');
    snprintf(slash ? slash + 1 : rogue, 64, "stoker-decode-test");
    if (access(rogue, X_OK) < 0) {
        t_skip("stoker-decode-test is not built");
    }
    test_same();
    test_skip();
    test_raise();
    test_close();
    await_alive(alive);
    test_fail_nth();
    await_alive(alive);
    return t_finish();
}
