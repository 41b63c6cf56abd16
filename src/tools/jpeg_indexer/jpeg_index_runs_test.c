/* Goal: each JPEG of a data set gets its entry, for any name, size or position, and the progress is
 * correct; a check finds each sample whose entries are wrong, extra or missing; an image whose
 * header claims more than its bytes hold uses no memory; memory is released, and a run that fails
 * or is closed early leaves no file.
 * Method: simulated tars, and index files written here. Covers jpeg_index_build.c, and how
 * index_locate.c finds the file. */
#include "tools/jpeg_indexer/jpeg_index_build_test.h"

#include <stdlib.h>

#define TAR "/data/train.tar"
#define MARKS "/data/stoker.index.marks"
#define MANY 1100u /* samples: calls of next end after 64, 192, 448 and 960 of them */

static uint8_t file[2u << 20];

static size_t encode(uint32_t number, uint32_t side, bool progressive)
{
    struct marker_picture picture = {.number = number,
                                     .width = side,
                                     .height = side,
                                     .noise = 32,
                                     .quality = side > 100 ? 100 : 50,
                                     .channels = 1,
                                     .progressive = progressive};

    return marker_encode(&picture, file, sizeof file);
}

static void put_tar(struct stk_io *world, struct t_tar *tar)
{
    t_tar_end(tar);
    T_EQ("put", t_put(world, TAR, tar->data, tar->bytes), 0);
    t_tar_free(tar);
}

static struct stoker_engine *open_world(struct stk_io **world_out)
{
    struct stoker_engine *engine = t_engine(world_out, 2);

    T_EQ("folder", stk_sim_add(*world_out, "/data", NULL, 0), 0);
    return engine;
}

static void index_tar(struct stoker_engine *engine)
{
    struct stoker_indexer_options options = {.struct_size = sizeof options, .force = true};

    T_EQ("index", t_index(engine, TAR, &options, NULL, NULL), 0);
}

/* ---- many samples --------------------------------------------------------------------------- */

/* Every 50th is progressive. Returns the pictures' bytes. */
static uint64_t add_many(struct stk_io *world)
{
    struct t_tar tar = {0};
    uint64_t all = 0;

    for (uint32_t i = 0; i < MANY; i++) {
        size_t bytes = encode(i, 20 + i % 9, i % 50 == 49);
        char name[32];

        snprintf(name, sizeof name, "s%05u.jpg", i);
        t_tar_add(&tar, name, file, bytes);
        all += bytes;
    }
    put_tar(world, &tar);
    return all;
}

/* Call by call; the last one again. */
static void check_calls(struct stoker_engine *engine, uint64_t bytes)
{
    struct stoker_jpeg_indexer_options options = {.struct_size = sizeof options};
    struct stoker_jpeg_indexer_progress progress = {.struct_size = sizeof progress};
    struct stoker_dataset *dataset = NULL;
    struct stoker_jpeg_indexer *marker = NULL, *second = NULL;
    struct stoker_error error = {0};
    uint64_t calls = 0, done = 0, before;
    int status = t_open(engine, TAR, STOKER_INDEX_AUTO, &dataset, &error);

    before = engine->budget.bytes;
    status = status < 0 ? status : stoker_jpeg_indexer_open(&marker, dataset, &options, &error);
    T_EQ("one at a time", stoker_jpeg_indexer_open(&second, dataset, &options, &error), -EBUSY);
    T_TRUE("and not this one", !second);
    while (status == 0 && (status = stoker_jpeg_indexer_next(marker, &progress, &error)) == 1) {
        T_TRUE("it goes on", progress.samples_done > done);
        T_TRUE("its memory is counted", engine->budget.bytes > before);
        done = progress.samples_done;
        status = ++calls < MANY ? 0 : -1;
    }
    T_EQ("end", status, 0);
    T_TRUE("more than one call", calls > 1);
    T_EQ("done", progress.samples_done, MANY);
    T_EQ("samples", progress.samples, MANY);
    T_EQ("pictures", progress.pictures, MANY);
    T_EQ("bytes", progress.bytes, bytes);
    T_EQ("marked", progress.indexed, MANY - MANY / 50);
    T_STR("path", progress.path, MARKS);
    T_EQ("the end again", stoker_jpeg_indexer_next(marker, &progress, &error), 0);
    stoker_jpeg_indexer_close(marker);
    T_EQ("memory", engine->budget.bytes, before);
    T_EQ("another one", stoker_jpeg_indexer_open(&marker, dataset, &options, &error), 0);
    stoker_jpeg_indexer_close(marker);
    stoker_dataset_close(dataset);
}

/* If samples are slow, a call processes fewer of them, so that its caller can be stopped. */
static void check_slow(struct stoker_engine *engine, struct stk_io *world)
{
    struct stk_sim_rule slow = {TAR, STK_SIM_FAULT_SLOW, 0, 0, 0, 100000000};
    struct stoker_jpeg_indexer_options options = {.struct_size = sizeof options};
    struct stoker_jpeg_indexer_progress progress = {.struct_size = sizeof progress};
    struct stoker_dataset *dataset = NULL;
    struct stoker_jpeg_indexer *marker = NULL;
    uint64_t calls = 1;

    T_EQ("open", t_open(engine, TAR, STOKER_INDEX_AUTO, &dataset, NULL), 0);
    T_EQ("marker", stoker_jpeg_indexer_open(&marker, dataset, &options, NULL), 0);
    stk_sim_add_rule(world, &slow);
    while (stoker_jpeg_indexer_next(marker, &progress, NULL) == 1 && calls < MANY) {
        calls++;
    }
    T_EQ("all of it", progress.samples_done, MANY);
    T_TRUE("few at a time", calls >= MANY / 32);
    stoker_jpeg_indexer_close(marker);
    stoker_dataset_close(dataset);
}

/* A caller that was built when the struct was shorter. */
static void check_short_progress(struct stoker_engine *engine)
{
    struct stoker_jpeg_indexer_options options = {.struct_size = sizeof options, .check = true};
    struct stoker_jpeg_indexer_progress progress;
    struct stoker_dataset *dataset = NULL;
    struct stoker_jpeg_indexer *marker = NULL;

    memset(&progress, 0xa5, sizeof progress);
    progress.struct_size = offsetof(struct stoker_jpeg_indexer_progress, mismatches);
    T_EQ("open", t_open(engine, TAR, STOKER_INDEX_AUTO, &dataset, NULL), 0);
    T_EQ("marker", stoker_jpeg_indexer_open(&marker, dataset, &options, NULL), 0);
    T_EQ("next", stoker_jpeg_indexer_next(marker, &progress, NULL), 1);
    T_EQ("what it knows", progress.samples, MANY);
    T_EQ("its size", progress.struct_size,
         offsetof(struct stoker_jpeg_indexer_progress, mismatches));
    T_EQ("and no more", progress.mismatches, UINT64_C(0xa5a5a5a5a5a5a5a5));
    stoker_jpeg_indexer_close(marker);
    options.struct_size = 1;
    T_EQ("no options", stoker_jpeg_indexer_open(&marker, dataset, &options, NULL),
         STOKER_ERROR_ARGUMENT);
    T_TRUE("none", !marker);
    stoker_dataset_close(dataset);
}

/* ---- marks that are others' ----------------------------------------------------------------- */

enum change { SAME, SWAPPED, DROPPED, CUT, INVENTED };

/* Rewrites the file with `samples` samples: those of `first` and the two after it are changed. */
static void rewrite(struct stk_io *world, enum change change, uint64_t first, uint64_t samples)
{
    static uint64_t image[1u << 15];
    struct stk_view bytes = t_bytes(world, MARKS);
    struct stk_jpeg_index_options plan = {MARKS, samples, 0, bytes.data + 16};
    struct stk_jpeg_index_writer *writer = NULL;
    struct stk_jpeg_index *marks = NULL;
    uint64_t size;

    STK_ASSERT(bytes.bytes <= sizeof image);
    memcpy(image, bytes.data, bytes.bytes);
    T_EQ("old",
         stk_jpeg_index_open_image(&marks, (struct stk_view){(uint8_t *)image, bytes.bytes},
                                   plan.identity, NULL),
         0);
    T_EQ("new", stk_jpeg_index_writer_open(&writer, world, &plan, NULL), 0);
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t from = change == INVENTED || change == SWAPPED ? i + 9 : i;
        bool changed = change != SAME && i - first < 3;
        struct stk_jpeg_index_entries of = stk_jpeg_index_get(marks, changed ? from : i);

        of.entries.bytes = changed && change == DROPPED ? 0 : of.entries.bytes;
        of.entries.bytes -= changed && change == CUT ? STK_JPEG_ENTRY_POINT_BYTES : 0;
        T_EQ("add", stk_jpeg_index_writer_add(writer, of.entries, NULL), 0);
    }
    T_EQ("commit", stk_jpeg_index_writer_commit(writer, &size, NULL), 0);
    stk_jpeg_index_writer_close(writer);
    stk_jpeg_index_close(marks);
    t_drop(bytes);
}

static const struct wrong_row {
    const char *name;
    enum change change;
    uint64_t first, wrong;
} wrong_rows[] = {
    {"as they were", SAME, 0, 0},
    {"others", SWAPPED, 0, 3},
    {"others, later", SWAPPED, 700, 3},
    {"none", DROPPED, 520, 3},
    {"over two rounds", DROPPED, 15, 3},
    {"over two calls", DROPPED, 446, 3},
    {"one less", CUT, 1003, 3},
    {"of one that has none", INVENTED, 49, 3},
    {"of the last", DROPPED, MANY - 2, 1},
};

static void check_wrong(struct stoker_engine *engine, struct stk_io *world)
{
    struct stk_view full_marks = t_bytes(world, MARKS);
    struct stoker_jpeg_indexer_progress progress = {0};

    T_EACH(wrong_row, row, wrong_rows)
    {
        rewrite(world, row->change, row->first, MANY);
        T_EQ(row->name, marker_run(engine, TAR, 0, true, &progress), 0);
        T_EQ(row->name, progress.mismatches, row->wrong);
        T_EQ(row->name, progress.first_mismatch, row->wrong ? row->first : STOKER_NO_SAMPLE);
        T_EQ("put", t_put(world, MARKS, full_marks.data, full_marks.bytes), 0);
    }
    rewrite(world, SAME, 0, MANY - 1);
    T_EQ("fewer samples", marker_run(engine, TAR, 0, true, &progress), STOKER_ERROR_CHANGED);
    t_drop(full_marks);
}

static void test_many(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world);
    uint64_t bytes = add_many(world);

    index_tar(engine);
    check_calls(engine, bytes);
    check_short_progress(engine);
    check_wrong(engine, world);
    check_slow(engine, world); /* the last: the rule stays */
    stoker_engine_close(engine);
}

/* ---- kinds of members ----------------------------------------------------------------------- */

static const struct member_row {
    const char *name;
    uint32_t side;
    bool picture;
} member_rows[] = {
    {"a.jpg", 30, true},      {"b.jpeg", 31, true},     {"c.jpe", 32, true},
    {"d.left.jpg", 33, true}, {"e.jpg.txt", 34, false}, {"f.jpgx", 35, false},
    {"g.left.jpe", 36, true}, {"h.jpg", 999, true}, /* of more bytes than are read at first */
};

static void test_members(void)
{
    struct stoker_jpeg_indexer_progress progress = {0};
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world);
    struct t_tar tar = {0};
    uint64_t pictures = 0, bytes = 0;

    T_EACH(member_row, row, member_rows)
    {
        size_t size = encode(row->side, row->side, false);

        t_tar_add(&tar, row->name, file, size);
        pictures += row->picture;
        bytes += row->picture ? size : 0;
    }
    put_tar(world, &tar);
    index_tar(engine);
    T_TRUE("a large one", bytes > 512u << 10);
    T_EQ("marker", marker_run(engine, TAR, 2, false, &progress), 0);
    T_EQ("pictures", progress.pictures, pictures);
    T_EQ("marked", progress.indexed, pictures);
    T_EQ("bytes", progress.bytes, bytes);
    T_EQ("check", marker_run(engine, TAR, 0, true, &progress), 0);
    T_EQ("right", progress.mismatches, 0);
    stoker_engine_close(engine);
}

/* A header that promises 65,500 x 65,500 pixels: its marks alone would pass the memory granted. */
static void test_large_words(void)
{
    struct stoker_jpeg_indexer_progress progress = {0};
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world);
    struct t_tar tar = {0};
    size_t size = encode(1, 40, false), at = 2;

    t_tar_add(&tar, "a.jpg", file, size);
    while (file[at + 1] != 0xc0) {
        at += 2 + ((size_t)file[at + 2] << 8 | file[at + 3]);
    }
    memcpy(file + at + 5, "\xff\xdc\xff\xdc", 4);
    t_tar_add(&tar, "b.jpg", file, size);
    put_tar(world, &tar);
    index_tar(engine);
    T_EQ("marker", marker_run(engine, TAR, 2, false, &progress), 0);
    T_EQ("pictures", progress.pictures, 2);
    T_EQ("marked", progress.indexed, 1);
    stoker_engine_close(engine);
}

/* Front to back only: random access to images is not possible. */
static void test_packed(void)
{
    struct stoker_indexer_options options = {.struct_size = sizeof options};
    struct stoker_jpeg_indexer_progress progress = {0};
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world);
    struct t_tar tar = {0}, packed = {0};

    t_tar_add(&tar, "a.jpg", file, encode(1, 40, false));
    t_tar_end(&tar);
    t_tar_gzip(&tar, &packed);
    T_EQ("put", t_put(world, "/data/train.tar.gz", packed.data, packed.bytes), 0);
    T_EQ("index", t_index(engine, "/data/train.tar.gz", &options, NULL, NULL), 0);
    T_EQ("marker", marker_run(engine, "/data/train.tar.gz", 0, false, &progress),
         STOKER_ERROR_UNSUPPORTED);
    t_tar_free(&tar);
    t_tar_free(&packed);
    stoker_engine_close(engine);
}

/* Two bits an MCU: as many MCUs for its bytes as there can be. */
static void test_flat(void)
{
    struct marker_picture picture = {
        .width = 992, .height = 1000, .noise = 1, .quality = 50, .channels = 1, .flat = true};
    struct stoker_jpeg_indexer_progress progress = {0};
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world);
    struct t_tar tar = {0};
    size_t bytes = marker_encode(&picture, file, sizeof file);

    T_TRUE("small", bytes < 124 * 125 / 4 + 200);
    t_tar_add(&tar, "a.jpg", file, bytes);
    put_tar(world, &tar);
    index_tar(engine);
    T_EQ("marker", marker_run(engine, TAR, 1, false, &progress), 0);
    T_EQ("marked", progress.indexed, 1);
    stoker_engine_close(engine);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* Returns 0, or the first failure; nothing is reported, and options are left out. */
static int run_plain(struct stoker_dataset *dataset, struct stoker_error *error)
{
    struct stoker_jpeg_indexer *marker = NULL;
    int status = stoker_jpeg_indexer_open(&marker, dataset, NULL, error);

    while (status == 0 && (status = stoker_jpeg_indexer_next(marker, NULL, error)) == 1) {
        status = 0;
    }
    stoker_jpeg_indexer_close(marker);
    return status;
}

static bool exists(struct stk_io *world, const char *path)
{
    struct stk_stat stat;

    return stk_io_stat_path(world, path, &stat, NULL) == 0;
}

/* A failed run leaves no new file. */
static void check_left(struct stoker_engine *engine, struct stk_io *world, uint64_t budget)
{
    T_EQ("memory", engine->budget.bytes, budget);
    T_TRUE("no half file", !exists(world, MARKS ".new"));
    T_TRUE("no lock", !exists(world, MARKS ".lock"));
}

static void check_failures(struct stoker_engine *engine, struct stk_io *world,
                           struct stoker_dataset *dataset)
{
    static const struct stk_sim_rule rules[] = {
        {MARKS ".new", STK_SIM_FAULT_FULL, 0, 1, 100, 0},
        {MARKS ".new", STK_SIM_FAULT_SYNC, 0, 1, 0, 0},
        {MARKS ".new", STK_SIM_FAULT_RENAME, 0, 1, 0, 0},
    };
    struct stoker_error error = {0};
    uint64_t budget = engine->budget.bytes;
    struct stoker_jpeg_indexer *marker = NULL;
    struct stk_jpeg_index *marks = NULL;
    uint64_t calls;

    for (size_t i = 0; i < STK_COUNT(rules); i++) {
        T_EQ("rule", stk_sim_add_rule(world, &rules[i]), 0);
        T_EQ("reported", run_plain(dataset, &error), i ? -EIO : -ENOSPC);
        check_left(engine, world, budget);
        T_TRUE("none", !exists(world, MARKS));
    }
    calls = stk_mem_calls();
    T_EQ("marker", run_plain(dataset, &error), 0);
    calls = stk_mem_calls() - calls;
    for (uint64_t n = 1; n <= calls; n++) {
        int status;

        T_EQ("remove", stk_io_remove(world, MARKS, NULL), 0);
        stk_mem_fail_nth(n);
        status = run_plain(dataset, &error);
        stk_mem_fail_nth(0);
        T_TRUE("reported", status == 0 || status == -ENOMEM);
        check_left(engine, world, budget);
        T_TRUE("complete", status < 0 || exists(world, MARKS));
        status =
            stk_jpeg_index_open(&marks, world, MARKS, stk_index_identity(dataset->index), &error);
        T_TRUE("complete, or absent", status == 0 || status == -ENOENT);
        stk_jpeg_index_close(marks);
    }
    T_EQ("remove", stk_io_remove(world, MARKS, NULL), 0);
    T_EQ("open", stoker_jpeg_indexer_open(&marker, dataset, NULL, &error), 0);
    T_TRUE("it writes", exists(world, MARKS ".new") && exists(world, MARKS ".lock"));
    stoker_jpeg_indexer_close(marker); /* cancelled */
    check_left(engine, world, budget);
    T_TRUE("none", !exists(world, MARKS));
    T_EQ("rule",
         stk_sim_add_rule(world, &(struct stk_sim_rule){TAR, STK_SIM_FAULT_EIO, 0, 0, 0, 0}), 0);
    T_EQ("no data", run_plain(dataset, &error), -EIO);
    check_left(engine, world, budget);
}

static void test_failures(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world);
    struct stoker_dataset *dataset = NULL;
    struct t_tar tar = {0};

    for (uint32_t i = 0; i < 40; i++) {
        char name[32];

        snprintf(name, sizeof name, "s%05u.jpg", i);
        t_tar_add(&tar, name, file, encode(i, 20 + i, false));
    }
    put_tar(world, &tar);
    index_tar(engine);
    T_EQ("open", t_open(engine, TAR, STOKER_INDEX_AUTO, &dataset, NULL), 0);
    check_failures(engine, world, dataset);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

int main(void)
{
    int64_t alive = stk_mem_alive();

    test_many();
    test_members();
    test_large_words();
    test_packed();
    test_flat();
    test_failures();
    T_EQ("no leak", stk_mem_alive(), alive);
    return t_finish();
}
