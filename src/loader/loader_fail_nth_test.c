/* Goal: whichever allocation or I/O call fails while a data set is opened, read and closed, there
 * is an error that says what to do; the same call made again continues the same stream; nothing is
 * lost or leaked, and no wait is endless.
 * Method: a small data set of each kind; a clean run counts the calls; then one run for each call n
 * in which n fails (an allocation, or a call of the simulator), or all from n on, as on a disk that
 * disappears and returns. Covers dataset.c, dataset_scan.c, shard_stream.c, loader.c,
 * extract_step.c, pending_batch.c, fetcher.c, sample_work.c, quarantine.c and the engine under
 * them. Usage: loader_fail_nth_test [step] (every step-th call; 0: about 60 of each) */
#include "base/mem.h"
#include "engine/engine.h"
#include "io/sim/sim.h"
#include "test/idle_blocks.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

enum { SHARDS = 2, SHARD_SAMPLES = 6, SAMPLES = SHARDS * SHARD_SAMPLES, EPOCHS = 2, SIDE = 16 };
enum { STREAM_MAX = EPOCHS * SAMPLES, FAILURES_MAX = 8, SPREAD = 60, DAMAGED = 4 };

static const struct row {
    const char *name;
    bool folder, packed, cold, skip, indexed;
} rows[] = {
    {"tars", .folder = false},
    {"tars on a cold disk", .cold = true},
    {"packed tars", .packed = true},
    {"a folder", .folder = true},
    {"a folder on a cold disk", .folder = true, .cold = true},
    {"damaged samples and their list", .skip = true},
    {"tars with an index", .indexed = true},
    {"packed tars with an index", .packed = true, .indexed = true},
};

enum way { NONE, MEMORY, CALL, DISK_GONE, WAYS };
static const char *const way_names[] = {"none", "memory", "one call", "all calls"};

/* The objects that a program would hold. */
struct life {
    const struct row *row;
    struct stk_io *world; /* the engine's */
    struct stoker_engine *engine;
    struct stoker_dataset *dataset;
    struct stoker_loader *loader;
    uint64_t ids[STREAM_MAX], sum; /* of all received bytes */
    size_t count, epochs;
    int failures;
};

static uint8_t picture[4096];
static size_t picture_bytes;
static uint8_t index_file[65536]; /* of the row that is tested, if it has one */
static size_t index_bytes;

static void make_picture(void)
{
    struct jpeg_compress_struct jpeg = {0};
    struct jpeg_error_mgr errors;
    unsigned char *out = NULL;
    unsigned long bytes = 0;
    JSAMPLE row[SIDE * 3];
    JSAMPROW lines = row;

    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &out, &bytes);
    jpeg.image_width = jpeg.image_height = SIDE;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE * 3; x++) {
            row[x] = (JSAMPLE)(x * 5 + y * 9);
        }
        jpeg_write_scanlines(&jpeg, &lines, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    T_TRUE("a picture", bytes > 100 && bytes < sizeof picture);
    picture_bytes = stk_min(bytes, sizeof picture);
    memcpy(picture, out, picture_bytes);
    free(out);
}

static void add_folder(struct stk_io *world)
{
    char path[64];

    for (int i = 0; i < SAMPLES; i++) {
        snprintf(path, sizeof path, "/data/class%d/%02d.jpg", i % 2, i);
        T_EQ(path, stk_sim_add(world, path, picture, picture_bytes), 0);
    }
}

static void add_tars(struct stk_io *world, const struct row *row)
{
    for (int shard = 0; shard < SHARDS; shard++) {
        struct t_tar tar = {0}, gzip = {0};
        char name[64];

        for (int i = 0; i < SHARD_SAMPLES; i++) {
            snprintf(name, sizeof name, "%d%d.jpg", shard, i);
            t_tar_add(&tar, name, picture, picture_bytes);
            snprintf(name, sizeof name, "%d%d.cls", shard, i);
            t_tar_add(&tar, name, row->skip && i == DAMAGED ? "x" : "3", 1);
        }
        t_tar_end(&tar);
        t_tar_gzip(&tar, &gzip);
        snprintf(name, sizeof name, "/data/s-%d.tar%s", shard, row->packed ? ".gz" : "");
        T_EQ(name,
             stk_sim_add(world, name, row->packed ? gzip.data : tar.data,
                         row->packed ? gzip.bytes : tar.bytes),
             0);
        t_tar_free(&tar);
        t_tar_free(&gzip);
    }
}

/* The world is not under test: it is made before anything may fail. */
static bool add_world(struct life *life)
{
    struct stk_io_options options = {.depth = 8, .read_timeout_ms = 2000};
    struct stk_sim_rule cold = {.fault = STK_SIM_FAULT_COLD};

    life->world = NULL;
    if (!T_EQ("world", stk_sim_open(&life->world, 1, &options, NULL), 0)) {
        return false;
    }
    if (life->row->folder) {
        add_folder(life->world);
    } else {
        add_tars(life->world, life->row);
    }
    T_EQ("/out", stk_sim_add(life->world, "/out", NULL, 0), 0);
    if (index_bytes > 0) {
        T_EQ("index", stk_sim_add(life->world, "/data/stoker.index", index_file, index_bytes), 0);
    }
    if (life->row->cold) {
        stk_sim_add_rule(life->world, &cold);
    }
    return true;
}

static int open_engine(struct life *life, struct stoker_error *error)
{
    struct stoker_engine_options options = {.struct_size = sizeof options,
                                            .threads = 1,
                                            .io_depth = 8,
                                            .read_timeout_ms = 2000,
                                            .memory_bytes_max = 64u << 20};

    return stk_engine_open_with_io(&life->engine, life->world, &options, error);
}

static const char *url_of(const struct row *row)
{
    return row->folder ? "/data" : "/data/s-*.tar*";
}

static int open_dataset(struct life *life, struct stoker_error *error)
{
    const char *url = url_of(life->row);
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = &url, .url_count = 1, .block_bytes = 2048};

    return stoker_dataset_open(&life->dataset, life->engine, &options, error);
}

static int open_loader(struct life *life, struct stoker_error *error)
{
    static const struct stoker_transform resize = {
        .kind = STOKER_RESIZE, .height = 8, .width = 8, .filter = STOKER_BILINEAR};
    static const struct stoker_field_options fields[] = {
        {.name = "image", .kind = STOKER_FIELD_IMAGE, .transforms = &resize, .transform_count = 1},
        {.name = "label", .kind = STOKER_FIELD_LABEL},
        {.name = "key", .kind = STOKER_FIELD_KEY},
    };
    struct stoker_loader_options options = {
        .struct_size = sizeof options,
        .fields = fields,
        .field_count = STK_COUNT(fields),
        .batch_size = 4,
        .tail = STOKER_TAIL_KEEP,
        .seed = 3,
        .on_error = life->row->skip ? STOKER_ON_ERROR_SKIP : STOKER_ON_ERROR_RAISE,
        .quarantine = life->row->skip ? "/out/list.jsonl" : NULL,
        .io_retries = life->row->skip ? STOKER_NO_RETRIES : 2,
        .io_retry_wait_ms = 1};

    return stoker_loader_open(&life->loader, life->dataset, &options, error);
}

/* One batch; 0 once all epochs are over. */
static int take_batch(struct life *life, struct stoker_error *error)
{
    struct stoker_batch *batch = NULL;
    struct stoker_array images, labels;
    int status = stoker_loader_next(life->loader, 20000, &batch, error);

    if (status == 0) {
        life->epochs++;
        return life->epochs < EPOCHS;
    }
    if (status < 0) {
        return status;
    }
    stoker_batch_array(batch, 0, &images);
    stoker_batch_array(batch, 1, &labels);
    for (uint32_t i = 0; i < stoker_batch_samples(batch) && life->count < STREAM_MAX; i++) {
        life->ids[life->count++] = stoker_batch_ids(batch)[i];
        life->sum = life->sum * 31 + (uint64_t)((const int64_t *)labels.data)[i];
        for (int b = 0; b < 8 * 8 * 3; b++) {
            life->sum = life->sum * 31 + ((const uint8_t *)images.data)[i * 8 * 8 * 3 + b];
        }
    }
    stoker_batch_close(batch);
    return 1;
}

/* The next step of the program: 1 continues, 0 it has ended. After a failure it can be called
 * again. */
static int advance(struct life *life, struct stoker_error *error)
{
    int status;

    if (!life->engine) {
        status = open_engine(life, error);
    } else if (!life->dataset) {
        status = open_dataset(life, error);
    } else if (!life->loader) {
        status = open_loader(life, error);
    } else {
        return take_batch(life, error);
    }
    return status < 0 ? status : 1;
}

static void fail_at(struct life *life, enum way way, uint64_t n)
{
    if (way == MEMORY) {
        stk_mem_fail_nth(n);
    } else if (way == CALL && life->world) {
        stk_sim_fail_nth(life->world, n);
    } else if (way == DISK_GONE && life->world) {
        stk_sim_kill_nth(life->world, n);
    }
}

/* Lives it through while call n fails; how many calls of that kind there were. */
static uint64_t live(struct life *life, const struct row *row, enum way way, uint64_t n)
{
    struct stoker_error error = {0};
    uint64_t memory_before, calls = 0;
    int status = 1;

    memset(life, 0, sizeof *life);
    life->row = row;
    if (!add_world(life)) {
        return 0;
    }
    memory_before = stk_mem_calls();
    fail_at(life, way, n);
    while (status != 0 && life->failures < FAILURES_MAX) {
        status = advance(life, &error);
        if (status < 0) {
            life->failures++;
            T_ERROR(way_names[way], &error);
            fail_at(life, way, 0);
        }
        if (status < 0 && !life->engine && !add_world(life)) { /* it took the world along */
            break;
        }
    }
    fail_at(life, way, 0);
    calls = way == MEMORY ? stk_mem_calls() - memory_before : stk_sim_calls(life->world);
    if (!T_EQ(row->name, status, 0)) {
        printf("%s %llu: it does not come to its end: %s, %s\n", way_names[way],
               (unsigned long long)n, error.what, error.where);
    }
    if (life->loader) {
        T_EQ(row->name, stoker_loader_quarantine_count(life->loader), row->skip ? SHARDS : 0);
    }
    stoker_loader_close(life->loader);
    stoker_dataset_close(life->dataset);
    stoker_engine_close(life->engine);
    return calls;
}

/* The index that a run of the tool leaves, for all lives of the row. */
static void make_index(const struct row *row)
{
    static struct life life;
    const char *url = url_of(row);
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = &url, .url_count = 1, .block_bytes = 2048};
    struct stoker_indexer_options options = {.struct_size = sizeof options, .labels = 1};
    struct stoker_indexer_progress progress = {.struct_size = sizeof progress};
    struct stoker_indexer *indexer = NULL;
    struct stk_file *file = NULL;
    struct stk_view image = {0};
    int status;

    index_bytes = 0;
    life = (struct life){.row = row};
    if (!row->indexed || !add_world(&life) || !T_EQ("engine", open_engine(&life, NULL), 0)) {
        return;
    }
    status = stoker_indexer_open(&indexer, life.engine, &dataset, &options, NULL);
    while (status == 0 && (status = stoker_indexer_next(indexer, 1000, &progress, NULL)) == 1) {
        status = 0;
    }
    T_EQ("indexed", status, 0);
    stoker_indexer_close(indexer);
    T_EQ("open", stk_io_open_file(life.world, "/data/stoker.index", &file, NULL), 0);
    T_EQ("map", stk_io_map(life.world, file, &image, NULL), 0);
    if (T_TRUE("it fits", image.bytes > 0 && image.bytes <= sizeof index_file)) {
        memcpy(index_file, image.data, image.bytes);
        index_bytes = image.bytes;
    }
    stk_io_unmap(life.world, image);
    stk_io_close_file(file);
    stoker_engine_close(life.engine);
}

static bool is_same(const struct life *a, const struct life *b)
{
    return a->count == b->count && a->sum == b->sum && memcmp(a->ids, b->ids, sizeof a->ids) == 0;
}

static void test_row(const struct row *row, uint64_t step)
{
    static struct life clean, life;
    int64_t alive;

    make_index(row);
    alive = t_idle_blocks();
    live(&clean, row, NONE, 0);
    T_EQ(row->name, clean.count, STREAM_MAX);
    T_EQ(row->name, clean.failures, 0);
    for (enum way way = MEMORY; way < WAYS; way++) {
        uint64_t calls = live(&life, row, way, 0), failures = 0, runs = 0;

        for (uint64_t n = 1; n <= calls; n += step ? step : 1 + calls / SPREAD) {
            live(&life, row, way, n);
            failures += life.failures > 0;
            runs++;
            if (!T_TRUE(row->name, is_same(&life, &clean))) {
                printf("%s: another stream after %s %llu failed\n", row->name, way_names[way],
                       (unsigned long long)n);
            }
        }
        printf("%-31s %-9s %5llu calls, %4llu runs, %4llu with an error\n", row->name,
               way_names[way], (unsigned long long)calls, (unsigned long long)runs,
               (unsigned long long)failures);
        T_TRUE(row->name, failures > 0);
    }
    T_EQ(row->name, t_idle_blocks(), alive);
}

int main(int count, char **arguments)
{
    const char *is_long = getenv("STOKER_TEST_LONG");
    uint64_t step = count > 1 ? strtoull(arguments[1], NULL, 10) : is_long && is_long[0] ? 1 : 0;

    make_picture();
    T_EACH(row, row, rows)
    {
        test_row(row, step);
    }
    T_EQ("leaks", t_idle_blocks(), 0);
    return t_finish();
}
