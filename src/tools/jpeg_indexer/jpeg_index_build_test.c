/* Goal: with a JPEG index a loader returns the same batches as without, and counts that it used it;
 * it is not used for an image that was replaced, nor with another index; the file is the same for
 * any number of threads; a check finds wrong entries.
 * Method: a simulated tar of JPEGs of several kinds. Covers jpeg_index_build.c. */
#include "tools/jpeg_indexer/jpeg_index_build_test.h"

#include "base/xxh3.h"

#define SAMPLES 70u
#define SIDE 40u
#define BATCH 10u
#define TAR "/data/train.tar"
#define MARKS "/data/stoker.index.marks"

/* In the order of the loader. */
static uint8_t want[SAMPLES * SIDE * SIDE * 3], got[sizeof want];

/* Every 5th is progressive, every 7th has restart intervals: those have no marks. */
static size_t encode(uint32_t number, uint8_t *file, size_t capacity)
{
    struct marker_picture picture = {.number = number,
                                     .width = 60 + number * 3,
                                     .height = 200 - number,
                                     .noise = 32,
                                     .quality = (int)(60 + number % 40),
                                     .channels = 3,
                                     .restart_interval = number % 7 == 6 ? 5 : 0,
                                     .progressive = number % 5 == 4};

    return marker_encode(&picture, file, capacity);
}

static void add_tar(struct stk_io *world)
{
    static uint8_t file[1u << 20];
    struct t_tar tar = {0};

    for (uint32_t i = 0; i < SAMPLES; i++) {
        char name[32];

        snprintf(name, sizeof name, "s%04u.jpg", i);
        t_tar_add(&tar, name, file, encode(i, file, sizeof file));
        snprintf(name, sizeof name, "s%04u.cls", i);
        t_tar_add(&tar, name, "7", 1);
    }
    t_tar_end(&tar);
    T_EQ("folder", stk_sim_add(world, "/data", NULL, 0), 0);
    T_EQ("put", t_put(world, TAR, tar.data, tar.bytes), 0);
    t_tar_free(&tar);
}

/* Reads the pixels of an epoch; returns how many images were decoded with entry points, -1: it
 * failed. */
static int64_t read_epoch(struct stoker_engine *engine, uint8_t *pixels)
{
    static const struct stoker_transform crop = {.kind = STOKER_RANDOM_RESIZED_CROP,
                                                 .height = SIDE,
                                                 .width = SIDE,
                                                 .filter = STOKER_BILINEAR,
                                                 .scale = {0.08, 1},
                                                 .ratio = {0.75, 1.3333}};
    static const struct stoker_field_options field = {.name = "image",
                                                      .kind = STOKER_FIELD_IMAGE,
                                                      .extensions = "jpg",
                                                      .transforms = &crop,
                                                      .transform_count = 1};
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = &field,
                                            .field_count = 1,
                                            .batch_size = BATCH,
                                            .seed = 3};
    struct stoker_stats stats = {.struct_size = sizeof stats};
    struct stoker_dataset *dataset = NULL;
    struct stoker_loader *loader = NULL;
    struct stoker_batch *batch = NULL;
    struct stoker_error error = {0};
    size_t at = 0;
    int status = t_open(engine, TAR, STOKER_INDEX_AUTO, &dataset, &error);

    status = status < 0 ? status : stoker_loader_open(&loader, dataset, &options, &error);
    while (status == 0 && (status = stoker_loader_next(loader, 60000, &batch, &error)) == 1) {
        struct stoker_array array;
        size_t bytes = (size_t)BATCH * SIDE * SIDE * 3;

        T_EQ("array", stoker_batch_array(batch, 0, &array), 0);
        memcpy(pixels + at, array.data, bytes);
        at += bytes;
        stoker_batch_close(batch);
        status = 0;
    }
    T_EQ("epoch", status, 0);
    T_EQ("all of it", at, sizeof want);
    if (loader) {
        stoker_loader_stats(loader, &stats);
    }
    stoker_loader_close(loader);
    stoker_dataset_close(dataset);
    return status < 0 ? -1 : (int64_t)stats.jpegs_indexed;
}

/* Counters belong to the engine, whose workers may still decode images of a closed loader: so the
 * test reads from the data set. */
static bool has_marks(struct stoker_engine *engine)
{
    struct stoker_dataset *dataset = NULL;
    struct stoker_error error = {0};
    bool has;

    T_EQ("open", t_open(engine, TAR, STOKER_INDEX_AUTO, &dataset, &error), 0);
    has = dataset && dataset->jpeg_index;
    stoker_dataset_close(dataset);
    return has;
}

/* One byte of the file in the world is another one. */
static void change(struct stk_io *world, const char *path, uint64_t at)
{
    struct stk_view file = t_bytes(world, path);

    ((uint8_t *)(uintptr_t)file.data)[at] ^= 1;
    T_EQ("change", t_put(world, path, file.data, file.bytes), 0);
    t_drop(file);
}

/* A bit of the first entry's marks, under right sums. */
static void forge(struct stk_io *world)
{
    struct stk_view file = t_bytes(world, MARKS);
    uint8_t *bytes = (uint8_t *)(uintptr_t)file.data;
    uint64_t pages_at, pages;

    if (!T_TRUE("there", bytes != NULL)) {
        return;
    }
    memcpy(&pages_at, bytes + file.bytes - 24, 8);
    pages = (file.bytes - 48 - pages_at) / 8;
    bytes[64 + 16 + 4] ^= 1; /* a predictor */
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t from = page * STK_JPEG_INDEX_PAGE_BYTES;
        uint64_t sum =
            stk_xxh3_64(bytes + from, stk_min(STK_JPEG_INDEX_PAGE_BYTES, pages_at - from));

        memcpy(bytes + pages_at + 8 * page, &sum, 8);
    }
    pages = stk_xxh3_64(bytes + pages_at, pages * 8);
    memcpy(bytes + file.bytes - 16, &pages, 8);
    pages = stk_xxh3_64(bytes + file.bytes - 48, 40);
    memcpy(bytes + file.bytes - 8, &pages, 8);
    T_EQ("forge", t_put(world, MARKS, bytes, file.bytes), 0);
    t_drop(file);
}

static void test_threads(uint32_t threads, uint32_t mcus, struct stk_view *file_out)
{
    struct stoker_jpeg_indexer_progress progress = {0};
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, threads);
    struct stoker_indexer_options index = {.struct_size = sizeof index};
    struct stoker_error error = {0};
    int64_t marked;

    add_tar(world);
    T_EQ("no index", marker_run(engine, TAR, mcus, false, &progress), STOKER_ERROR_UNSUPPORTED);
    T_EQ("index", t_index(engine, TAR, &index, NULL, &error), 0);
    T_EQ("none", marker_run(engine, TAR, mcus, true, &progress), STOKER_ERROR_MISSING);
    T_EQ("without", read_epoch(engine, want), 0);
    T_EQ("marker", marker_run(engine, TAR, mcus, false, &progress), 0);
    T_EQ("pictures", progress.pictures, SAMPLES);
    T_EQ("marked", progress.indexed, SAMPLES - 14 - 10 + 2);
    T_EQ("check", marker_run(engine, TAR, mcus, true, &progress), 0);
    T_EQ("right", progress.mismatches, 0);
    T_TRUE("there", has_marks(engine));
    marked = read_epoch(engine, got);
    T_TRUE("used", marked >= (int64_t)progress.indexed); /* and those of the next epoch, ahead */
    T_TRUE("pixels", memcmp(want, got, sizeof got) == 0);
    *file_out = t_bytes(world, MARKS);
    forge(world);
    T_EQ("check", marker_run(engine, TAR, mcus, true, &progress), 0);
    T_EQ("wrong", progress.mismatches, 1);
    T_EQ("first", progress.first_mismatch, 0);
    change(world, MARKS, 70);
    T_EQ("damaged", marker_run(engine, TAR, mcus, true, &progress), STOKER_ERROR_CORRUPT);
    T_TRUE("none are used", !has_marks(engine));
    T_TRUE("epoch", read_epoch(engine, got) >= 0);
    T_TRUE("pixels", memcmp(want, got, sizeof got) == 0);
    change(world, MARKS, 70);
    change(world, TAR, 512 + 1000); /* another picture of the same size */
    T_TRUE("pixels may differ", read_epoch(engine, got) >= 0);
    T_TRUE("pixels", memcmp(want, got, sizeof got) == 0);
    stoker_engine_close(engine);
}

int main(void)
{
    struct stk_view files[2];

    test_threads(1, 0, &files[0]);
    t_drop(files[0]);
    test_threads(1, 4, &files[0]);
    test_threads(3, 4, &files[1]);
    T_TRUE("whatever the threads", t_same(files[0], files[1]));
    t_drop(files[0]);
    t_drop(files[1]);
    return t_finish();
}
