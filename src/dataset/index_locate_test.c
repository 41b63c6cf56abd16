/* Goal: a data set opens by its index as by a scan, in a number of calls that does not grow with
 * its samples; changes since then are in a note, and with index = require an error; a damaged index
 * is scanned again or an error, never trusted; a data set that grew is another one, and an older
 * state finds the part that it belongs to.
 * Method: tars and class folders in the simulator, rows of changes; the contents of a data set as
 * text, by index and by scan. Covers index_locate.c, index_stamp.c, dataset_refresh.c and the
 * opening in dataset.c. */
#include "dataset/dataset_test.h"

#include "base/xxh3.h"

#include <stdlib.h>

enum { SHARDS = 4, PASSES = 12 };

static char by_scan[T_TEXT_BYTES_MAX], by_index[T_TEXT_BYTES_MAX];

/* ---- changes after an index was written ------------------------------------------------- */

static void add_shard(struct stk_io *world)
{
    t_shards(world, SHARDS, 1);
}

static void insert_shard(struct stk_io *world)
{
    t_shard(world, "/data/s-000a.tar", 9, 2, 10);
}

static void other_size(struct stk_io *world)
{
    t_shard(world, "/data/s-001.tar", 1, 30, 1000);
}

static void same_size(struct stk_io *world)
{
    t_shard(world, "/data/s-001.tar", 7, 4, 1000); /* other keys */
}

static void remove_shard(struct stk_io *world)
{
    stk_io_remove(world, "/data/s-001.tar", NULL);
}

static void remove_index(struct stk_io *world)
{
    stk_io_remove(world, "/data/stoker.index", NULL);
}

static void remove_stamp(struct stk_io *world)
{
    stk_io_remove(world, "/data/stoker.index.stamp", NULL);
}

/* As cp does it: another file with the same bytes, and shards with other mtimes. */
static void copy_all(struct stk_io *world)
{
    char path[64];

    for (int i = -1; i < SHARDS; i++) {
        struct stk_view bytes;

        snprintf(path, sizeof path, "/data/s-%03d.tar", i);
        bytes = t_bytes(world, i < 0 ? "/data/stoker.index" : path);
        stk_io_remove(world, i < 0 ? "/data/stoker.index" : path, NULL);
        T_EQ("copy", t_put(world, i < 0 ? "/data/stoker.index" : path, bytes.data, bytes.bytes), 0);
        t_drop(bytes);
    }
}

static void change_index(struct stk_io *world, int64_t at, size_t cut)
{
    struct stk_view bytes = t_bytes(world, "/data/stoker.index");

    ((uint8_t *)(uintptr_t)bytes.data)[at < 0 ? (int64_t)bytes.bytes + at : at] ^= 16;
    stk_io_remove(world, "/data/stoker.index", NULL); /* it may be mapped */
    T_EQ("index", t_put(world, "/data/stoker.index", bytes.data, bytes.bytes - cut), 0);
    t_drop(bytes);
}

static void damage_head(struct stk_io *world)
{
    change_index(world, 0, 0);
}

static void other_version(struct stk_io *world)
{
    change_index(world, 8, 0);
}

static void damage_foot(struct stk_io *world)
{
    change_index(world, -100, 0);
}

static void cut_index(struct stk_io *world)
{
    change_index(world, 1000, 8);
}

static void nothing(struct stk_io *world)
{
    (void)world;
}

static const struct change {
    const char *name;
    void (*make)(struct stk_io *world);
    uint64_t indexed;
    const char *note; /* "": none */
    int require;      /* the result with index = require */
} changes[] = {
    {"nothing", nothing, SHARDS, "", 0},
    {"a shard more", add_shard, SHARDS, "'/data/s-004.tar' is new", STOKER_ERROR_CHANGED},
    {"a shard between", insert_shard, SHARDS, "'/data/s-000a.tar' is new", STOKER_ERROR_CHANGED},
    {"another size", other_size, SHARDS - 1, "'/data/s-001.tar' has 77824 bytes, not 11264",
     STOKER_ERROR_CHANGED},
    {"the same size", same_size, SHARDS - 1, "'/data/s-001.tar' was written since",
     STOKER_ERROR_CHANGED},
    {"a shard less", remove_shard, SHARDS - 1, "'/data/s-001.tar' is missing",
     STOKER_ERROR_CHANGED},
    {"no index", remove_index, 0, "there is none", -ENOENT},
    {"no stamp", remove_stamp, SHARDS, "", 0},
    {"a copy", copy_all, SHARDS, "", 0},
    {"no head", damage_head, 0, "the file is no index", STOKER_ERROR_FORMAT},
    {"another version", other_version, 0, "another version", STOKER_ERROR_UNSUPPORTED},
    {"a damaged foot", damage_foot, 0, "its foot is not what was written", STOKER_ERROR_CORRUPT},
    {"a cut index", cut_index, 0, "it may be cut", STOKER_ERROR_CORRUPT},
};

static void check_open(const char *name, struct stoker_engine *engine, const char *url,
                       uint64_t indexed, const char *note)
{
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct stoker_dataset *dataset = NULL;
    struct stoker_error error = {0};

    T_EQ(name, t_open(engine, url, STOKER_INDEX_NEVER, &dataset, &error), 0);
    T_EQ(name, t_tell(dataset, by_scan, &error), 0);
    T_EQ(name, stoker_dataset_info(dataset, &info), 0);
    T_TRUE(name, info.index_path == NULL && info.shards_indexed == 0);
    stoker_dataset_close(dataset);
    T_EQ(name, t_open(engine, url, STOKER_INDEX_AUTO, &dataset, &error), 0);
    T_EQ(name, t_tell(dataset, by_index, &error), 0);
    T_STR(name, by_index, by_scan); /* except the blocks, which an index keeps */
    T_EQ(name, stoker_dataset_info(dataset, &info), 0);
    T_EQ(name, info.shards_indexed, indexed);
    T_TRUE(name, (info.index_path != NULL) == (indexed > 0));
    if (note[0]) {
        T_HAS(name, info.index_note, note);
    } else {
        T_STR(name, info.index_note, "");
    }
    stoker_dataset_close(dataset);
}

static void check_require(const char *name, struct stoker_engine *engine, const char *url,
                          int status, const char *note)
{
    struct stoker_dataset *dataset = NULL;
    struct stoker_error error = {0};

    T_EQ(name, t_open(engine, url, STOKER_INDEX_REQUIRE, &dataset, &error), status);
    if (status < 0) {
        T_ERROR(name, &error);
        T_HAS(name, error.where, note);
        T_HAS(name, error.advice, "stoker index");
    }
    stoker_dataset_close(dataset);
}

static void test_changes(void)
{
    T_EACH(change, row, changes)
    {
        struct stk_io *world;
        struct stoker_engine *engine = t_engine(&world, 2);
        struct stoker_error error = {0};

        t_shards(world, 0, SHARDS);
        T_EQ(row->name, t_index(engine, "/data", NULL, NULL, &error), 0);
        row->make(world);
        check_open(row->name, engine, "/data", row->indexed, row->note);
        check_open(row->name, engine, "/data/*.tar", row->indexed, row->note);
        check_require(row->name, engine, "/data", row->require, row->note);
        /* After it was written again it is up to date. */
        T_EQ(row->name, t_index(engine, "/data", NULL, NULL, &error), 0);
        check_require(row->name, engine, "/data", 0, "");
        check_open(row->name, engine, "/data/s-000.tar", 1, "");
        stoker_engine_close(engine);
    }
}

/* A stamp is ignored if a byte of it is wrong, or if its sum is right and its numbers are wrong. */
static void test_stamp(void)
{
    static const uint64_t words[] = {0, 1, SHARDS + 1, 1ull << 61, UINT64_MAX, UINT64_MAX / 8};
    static const char path[] = "/data/stoker.index.stamp";
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 1);
    struct stk_view stamp;
    uint8_t *copy;

    t_shards(world, 0, SHARDS);
    T_EQ("index", t_index(engine, "/data", NULL, NULL, NULL), 0);
    stamp = t_bytes(world, path);
    copy = stk_alloc(stamp.bytes, 1);
    for (size_t i = 0; i < stamp.bytes + 2 * STK_COUNT(words); i++) {
        struct stoker_dataset *dataset = NULL;
        bool flip = i < stamp.bytes;
        size_t word = i - stamp.bytes;

        memcpy(copy, stamp.data, stamp.bytes);
        if (flip) {
            copy[i] ^= 1 << i % 8;
        } else { /* the count, then the bytes of names */
            uint64_t sum;

            memcpy(copy + 16 + word / STK_COUNT(words) * 8, &words[word % STK_COUNT(words)], 8);
            sum = stk_xxh3_64(copy, stamp.bytes - 8);
            memcpy(copy + stamp.bytes - 8, &sum, 8);
        }
        T_EQ("stamp", t_put(world, path, copy, stamp.bytes), 0);
        T_EQ("stamp", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
        T_EQ("by sizes", dataset->shards_indexed, SHARDS);
        stoker_dataset_close(dataset);
    }
    /* It is used if it is intact. */
    T_EQ("stamp", t_put(world, path, stamp.data, stamp.bytes), 0);
    same_size(world);
    check_open("complete", engine, "/data", SHARDS - 1, "'/data/s-001.tar' was written since");
    stk_free(copy);
    t_drop(stamp);
    stoker_engine_close(engine);
}

/* ---- class folders ---------------------------------------------------------------------- */

static void add_picture(struct stk_io *world)
{
    stk_sim_add(world, "/pics/cat/sub/3.jpg", "x", 1);
}

static void add_class(struct stk_io *world)
{
    stk_sim_add(world, "/pics/cow/1.jpg", "x", 1);
}

static void remove_picture(struct stk_io *world)
{
    stk_io_remove(world, "/pics/dog/2.png", NULL);
}

static void become_tars(struct stk_io *world)
{
    stk_io_remove(world, "/pics/cat/1.jpg", NULL);
    stk_io_remove(world, "/pics/cat/sub/2.jpg", NULL);
    stk_io_remove(world, "/pics/dog/1.jpg", NULL);
    stk_io_remove(world, "/pics/dog/2.png", NULL);
    t_shard(world, "/pics/a.tar", 1, 2, 10);
}

static void damage_folder(struct stk_io *world)
{
    stk_io_remove(world, "/pics/stoker.index", NULL);
    t_put(world, "/pics/stoker.index", "STOKERIX and no more", 20);
}

static const struct change folder_changes[] = {
    {"nothing", nothing, 4, "", 0},
    {"a picture more", add_picture, 0, "the folder '/pics/cat/sub' changed", STOKER_ERROR_CHANGED},
    {"a class more", add_class, 0, "the class 'cow' is new or another", STOKER_ERROR_CHANGED},
    {"a picture less", remove_picture, 0, "the folder '/pics/dog' changed", STOKER_ERROR_CHANGED},
    {"tars", become_tars, 0, "the folder '/pics/cat' changed", STOKER_ERROR_CHANGED},
    {"damage", damage_folder, 0, "another version", STOKER_ERROR_UNSUPPORTED},
};

static void test_folder(void)
{
    T_EACH(change, row, folder_changes)
    {
        struct stk_io *world;
        struct stoker_engine *engine = t_engine(&world, 2);
        struct stoker_error error = {0};

        stk_sim_add(world, "/pics/cat/1.jpg", "a", 1);
        stk_sim_add(world, "/pics/cat/sub/2.jpg", "bb", 2);
        stk_sim_add(world, "/pics/dog/1.jpg", "ccc", 3);
        stk_sim_add(world, "/pics/dog/2.png", "dddd", 4);
        T_EQ(row->name, t_index(engine, "/pics", NULL, NULL, &error), 0);
        row->make(world);
        check_open(row->name, engine, "/pics", row->indexed, row->note);
        check_require(row->name, engine, "/pics/", row->require, row->note);
        T_EQ(row->name, t_index(engine, "/pics", NULL, NULL, &error), 0);
        check_require(row->name, engine, "/pics", 0, "");
        stoker_engine_close(engine);
    }
}

static void add_flat(struct stk_io *world)
{
    stk_sim_add(world, "/flat/15.jpg", "x", 1);
}

static void remove_flat(struct stk_io *world)
{
    stk_io_remove(world, "/flat/2.png", NULL);
}

static void rename_flat(struct stk_io *world)
{
    stk_io_rename(world, "/flat/1.jpg", "/flat/3.jpg", false, NULL);
}

static void class_in_flat(struct stk_io *world)
{
    stk_sim_add(world, "/flat/cat/1.jpg", "x", 1);
}

/* Images without class folders: the root, in which the index is stored, is their only folder. */
static const struct change flat_changes[] = {
    {"nothing", nothing, 2, "", 0},
    {"a picture more", add_flat, 0, "'15.jpg' is new, or another", STOKER_ERROR_CHANGED},
    {"a picture less", remove_flat, 0, "there are 1 images, not 2", STOKER_ERROR_CHANGED},
    {"another name", rename_flat, 0, "'2.png' is new, or another", STOKER_ERROR_CHANGED},
    {"a class", class_in_flat, 0, "the class 'cat' is new or another", STOKER_ERROR_CHANGED},
};

static void test_flat(void)
{
    T_EACH(change, row, flat_changes)
    {
        struct stk_io *world;
        struct stoker_engine *engine = t_engine(&world, 2);
        struct stoker_error error = {0};

        stk_sim_add(world, "/flat/1.jpg", "a", 1);
        stk_sim_add(world, "/flat/2.png", "bb", 2);
        stk_sim_add(world, "/flat/notes.txt", "c", 1);
        T_EQ(row->name, t_index(engine, "/flat", NULL, NULL, &error), 0);
        row->make(world);
        check_open(row->name, engine, "/flat", row->indexed, row->note);
        check_require(row->name, engine, "/flat", row->require, row->note);
        T_EQ(row->name, t_index(engine, "/flat", NULL, NULL, &error), 0);
        check_require(row->name, engine, "/flat", 0, "");
        stoker_engine_close(engine);
    }
}

/* ---- one page at a time ----------------------------------------------------------------- */

/* The index is mapped: to open it costs the same for ten samples and for thousands. */
static void test_calls(void)
{
    uint64_t calls[2];

    for (int large = 0; large < 2; large++) {
        struct stk_io *world;
        struct stoker_engine *engine = t_engine(&world, 2);
        struct stoker_dataset *dataset = NULL;

        T_EQ("folder", stk_sim_add(world, "/data", NULL, 0), 0);
        t_shard(world, "/data/a.tar", 0, large ? 3000 : 10, 1);
        T_EQ("index", t_index(engine, "/data", NULL, NULL, NULL), 0);
        calls[large] = stk_sim_calls(world);
        T_EQ("open", t_open(engine, "/data", STOKER_INDEX_REQUIRE, &dataset, NULL), 0);
        calls[large] = stk_sim_calls(world) - calls[large];
        T_EQ("samples", stk_index_samples(dataset->index), large ? 3000 : 10);
        stoker_dataset_close(dataset);
        stoker_engine_close(engine);
    }
    T_EQ("calls", calls[1], calls[0]);
    T_TRUE("few", calls[0] < 20);
}

/* A damaged page is detected at its first use: an error for an open data set; an indexing run reads
 * the shard again. */
static void test_damaged_page(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 2);
    struct stoker_dataset *dataset = NULL;
    struct stoker_error error = {0};

    T_EQ("folder", stk_sim_add(world, "/data", NULL, 0), 0);
    t_shard(world, "/data/a.tar", 0, 2000, 1);
    t_shard(world, "/data/b.tar", 1, 1000, 1);
    T_EQ("index", t_index(engine, "/data", NULL, NULL, &error), 0);
    change_index(world, 20000, 0);
    T_EQ("open", t_open(engine, "/data", STOKER_INDEX_REQUIRE, &dataset, &error), 0);
    T_EQ("touch", t_tell(dataset, by_index, &error), STOKER_ERROR_CORRUPT);
    T_ERROR("touch", &error);
    T_STR("the file", error.shard, "/data/stoker.index");
    T_EQ("the page", error.offset, 16384);
    stoker_dataset_close(dataset);
    t_shard(world, "/data/c.tar", 2, 10, 1);
    check_open("read again", engine, "/data", 2, "'/data/c.tar' is new");
    stoker_engine_close(engine);
}

/* ---- growing ---------------------------------------------------------------------------- */

static struct stoker_state state_of(const struct stoker_dataset *dataset)
{
    struct stoker_state state = {.sample_count = stk_index_samples(dataset->index),
                                 .block_samples = stk_index_block_samples(dataset->index)};

    memcpy(state.identity, stk_index_identity(dataset->index), sizeof state.identity);
    return state;
}

/* A data set that grew returns what a scan would, and reads no more than the new shards. */
static void check_refresh(uint32_t use, bool index_too)
{
    const char *name = use == STOKER_INDEX_NEVER ? "never" : index_too ? "indexed" : "scanned";
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 2);
    struct stoker_dataset *dataset = NULL, *newer = NULL, *part = NULL;
    struct stoker_error error = {0};
    struct stoker_state state;

    t_shards(world, 0, SHARDS);
    if (index_too) {
        T_EQ(name, t_index(engine, "/data", NULL, NULL, &error), 0);
    }
    T_EQ(name, t_open(engine, "/data", use, &dataset, &error), 0);
    T_EQ(name, t_tell(dataset, by_scan, &error), 0);
    state = state_of(dataset);
    T_EQ(name, stoker_dataset_refresh(dataset, 0, &newer, &error), 0);
    T_TRUE(name, newer == NULL);
    T_EQ(name, stoker_dataset_as_of(dataset, &state, &part, &error), 0);

    t_shards(world, SHARDS, 2);
    T_EQ(name, stoker_dataset_refresh(dataset, SHARDS + 3, &newer, &error), STOKER_ERROR_CHANGED);
    T_ERROR(name, &error);
    T_EQ(name, stoker_dataset_refresh(dataset, 1, &newer, &error), STOKER_ERROR_ARGUMENT);
    T_EQ(name, stoker_dataset_refresh(dataset, SHARDS + 1, &newer, &error), 1);
    T_EQ(name, stk_index_shards(newer->index), SHARDS + 1);
    stoker_dataset_close(newer);
    T_EQ(name, stoker_dataset_refresh(dataset, 0, &newer, &error), 1);
    T_TRUE(name, atomic_load(&newer->scan.shards_done) <= 2);
    T_EQ(name, stk_index_shards(newer->index), SHARDS + 2);
    T_EQ(name, stk_index_block_samples(newer->index), state.block_samples);

    /* The old part is unchanged, and an older state finds it again. */
    T_EQ(name, t_tell(dataset, by_index, &error), 0);
    T_STR(name, by_index, by_scan);
    T_EQ(name, stoker_dataset_as_of(newer, &state, &part, &error), 1);
    T_EQ(name, t_tell(part, by_index, &error), 0);
    T_STR(name, by_index, by_scan);
    stoker_dataset_close(part);
    state.identity[3] ^= 1;
    T_EQ(name, stoker_dataset_as_of(newer, &state, &part, &error), STOKER_ERROR_STATE);
    T_ERROR(name, &error);

    T_EQ(name, t_tell(newer, by_index, &error), 0);
    stoker_dataset_close(dataset);
    T_EQ(name, t_open(engine, "/data", STOKER_INDEX_NEVER, &dataset, &error), 0);
    stk_index_set_block(dataset->index, state.block_samples, 0);
    T_EQ(name, t_tell(dataset, by_scan, &error), 0);
    T_STR(name, by_index, by_scan);
    stoker_dataset_close(dataset);
    stoker_dataset_close(newer);
    stoker_engine_close(engine);
}

static const struct change not_appended[] = {
    {"between", insert_shard, 0, "/data/s-001.tar", 0},
    {"another size", other_size, 0, "/data/s-001.tar", 0},
    {"the same size", same_size, 0, "/data/s-001.tar", 0},
    {"less", remove_shard, 0, "/data/s-001.tar", 0},
};

static void test_refresh(void)
{
    check_refresh(STOKER_INDEX_AUTO, false);
    check_refresh(STOKER_INDEX_AUTO, true);
    check_refresh(STOKER_INDEX_NEVER, false);
    T_EACH(change, row, not_appended)
    {
        struct stk_io *world;
        struct stoker_engine *engine = t_engine(&world, 2);
        struct stoker_dataset *dataset = NULL, *newer = NULL;
        struct stoker_error error = {0};

        t_shards(world, 0, SHARDS);
        T_EQ(row->name, t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, &error), 0);
        row->make(world);
        T_EQ(row->name, stoker_dataset_refresh(dataset, 0, &newer, &error), STOKER_ERROR_CHANGED);
        T_ERROR(row->name, &error);
        T_HAS(row->name, error.where, row->note);
        stoker_dataset_close(dataset);
        stoker_engine_close(engine);
    }
}

/* The samples per block of the order do not change, though the new samples are much larger. */
static void test_block_stays(void)
{
    static uint8_t large[4 << 20];

    for (int indexed = 0; indexed < 2; indexed++) {
        struct stk_io *world;
        struct stoker_engine *engine = t_engine(&world, 1);
        struct stoker_dataset *dataset = NULL, *newer = NULL, *anew = NULL;
        struct stoker_error error = {0};
        struct t_tar tar = {0};
        uint64_t block;

        t_shards(world, 0, SHARDS);
        if (indexed) {
            T_EQ("index", t_index(engine, "/data", NULL, NULL, &error), 0);
        }
        T_EQ("open", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, &error), 0);
        block = stk_index_block_samples(dataset->index);
        t_tar_add(&tar, "large.bin", large, sizeof large);
        t_tar_end(&tar);
        T_EQ("add", stk_sim_add(world, "/data/t-000.tar", tar.data, tar.bytes), 0);
        T_EQ("refresh", stoker_dataset_refresh(dataset, 0, &newer, &error), 1);
        T_EQ("as it was", stk_index_block_samples(newer->index), block);
        T_EQ("open", t_open(engine, "/data", STOKER_INDEX_NEVER, &anew, &error), 0);
        T_TRUE("else another", stk_index_block_samples(anew->index) != block);
        stoker_dataset_close(anew);
        stoker_dataset_close(newer);
        stoker_dataset_close(dataset);
        stoker_engine_close(engine);
        t_tar_free(&tar);
    }
}

/* With index = require the index reports new shards, or they are refused. */
static void test_refresh_required(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 2);
    struct stoker_dataset *dataset = NULL, *newer = NULL;
    struct stoker_error error = {0};

    t_shards(world, 0, SHARDS);
    T_EQ("index", t_index(engine, "/data", NULL, NULL, &error), 0);
    T_EQ("open", t_open(engine, "/data", STOKER_INDEX_REQUIRE, &dataset, &error), 0);
    t_shards(world, SHARDS, 2);
    T_EQ("not yet", stoker_dataset_refresh(dataset, 0, &newer, &error), STOKER_ERROR_CHANGED);
    T_HAS("not yet", error.where, "'/data/s-004.tar' is new");
    T_EQ("index", t_index(engine, "/data", NULL, NULL, &error), 0);
    T_EQ("now", stoker_dataset_refresh(dataset, 0, &newer, &error), 1);
    T_EQ("now", newer->shards_indexed, SHARDS + 2);
    stoker_dataset_close(newer);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

/* ---- failures --------------------------------------------------------------------------- */

/* Every allocation and every call of the seam fails once while a data set with a stale index opens
 * and grows: an error or the truth, nothing else. */
static void test_failures(void)
{
    for (int what = 0; what < 2; what++) {
        const char *name = what ? "call" : "allocation";
        int passes = 0;

        for (uint64_t n = 1; passes < PASSES && n < 2000; n++) {
            struct stk_io *world;
            struct stoker_engine *engine = t_engine(&world, 1);
            struct stoker_dataset *dataset = NULL, *newer = NULL;
            struct stoker_error error = {0};
            int status;

            t_shards(world, 0, 2);
            T_EQ(name, t_index(engine, "/data", NULL, NULL, NULL), 0);
            t_shards(world, 2, 1);
            if (what) {
                stk_sim_fail_nth(world, n);
            } else {
                stk_mem_fail_nth(n);
            }
            status = t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, &error);
            stk_mem_fail_nth(0);
            stk_sim_fail_nth(world, 0);
            T_TRUE(name, (status == 0) == (dataset != NULL));
            if (status < 0) {
                T_ERROR(name, &error);
                passes = 0;
                goto next;
            }
            passes++;
            T_EQ(name, stk_index_samples(dataset->index), 3 + 4 + 5);
            t_shards(world, 3, 1);
            if (what) {
                stk_sim_fail_nth(world, n);
            } else {
                stk_mem_fail_nth(n);
            }
            status = stoker_dataset_refresh(dataset, 0, &newer, &error);
            stk_mem_fail_nth(0);
            stk_sim_fail_nth(world, 0);
            T_TRUE(name, (status == 1) == (newer != NULL));
            if (status < 0) {
                T_ERROR(name, &error);
                passes = 0;
            } else {
                T_EQ(name, stk_index_samples(newer->index), 3 + 4 + 5 + 3);
            }
        next:
            stoker_dataset_close(newer);
            stoker_dataset_close(dataset);
            stoker_engine_close(engine);
        }
        T_EQ(name, passes, PASSES);
    }
}

static uint64_t in_use(struct stoker_engine *engine)
{
    struct stoker_engine_info info = {.struct_size = sizeof info};

    stoker_engine_info(engine, &info);
    return info.memory_bytes;
}

/* An index in memory is in the budget, a mapped one is not; one that is too large is refused. */
static void test_budget(void)
{
    enum { MANY = 3000, NAMES = 9 * MANY };

    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 1);
    struct stoker_dataset *dataset = NULL, *second = NULL;
    struct stoker_error error = {0};
    uint64_t before = in_use(engine), first;

    T_EQ("folder", stk_sim_add(world, "/data", NULL, 0), 0);
    t_shard(world, "/data/s-000.tar", 0, MANY, 1);
    t_shard(world, "/data/s-001.tar", 1, MANY, 1);
    T_EQ("open", t_open(engine, "/data", STOKER_INDEX_NEVER, &dataset, &error), 0);
    first = in_use(engine) - before;
    T_TRUE("at least names and members", first >= 2 * NAMES + 4 * MANY * 10);
    T_EQ("all of it", first, stk_index_memory_bytes(dataset->index));
    T_EQ("twice", t_open(engine, "/data", STOKER_INDEX_NEVER, &second, &error), 0);
    T_EQ("twice", in_use(engine) - before, 2 * first);
    stoker_dataset_close(second);
    stoker_dataset_close(dataset);
    T_EQ("given back", in_use(engine), before);

    T_TRUE("little is left", stk_budget_reserve(&engine->budget, (64u << 20) - before - first / 2));
    T_EQ("too large", t_open(engine, "/data", STOKER_INDEX_NEVER, &dataset, &error),
         STOKER_ERROR_BUDGET);
    T_ERROR("too large", &error);
    T_HAS("too large", error.what, "the index is larger than the memory granted");
    stk_budget_release(&engine->budget, (64u << 20) - before - first / 2);
    T_EQ("given back", in_use(engine), before);
    T_EQ("index", t_index(engine, "/data", NULL, NULL, &error), 0);
    T_EQ("given back", in_use(engine), before);
    T_EQ("mapped", t_open(engine, "/data", STOKER_INDEX_REQUIRE, &dataset, &error), 0);
    T_TRUE("next to nothing", in_use(engine) - before < 4096);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

int main(void)
{
    setenv("STOKER_CACHE", "/cache", 1);
    test_changes();
    test_stamp();
    test_folder();
    test_flat();
    test_calls();
    test_damaged_page();
    test_refresh();
    test_refresh_required();
    test_block_stays();
    test_failures();
    test_budget();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
