/* Goal: each kind of damage is found, once, at its place, and nothing else is; the data after it is
 * still read; a repaired data set is clean, with every other member unchanged byte for byte.
 * Method: tars in the simulator, complete and with one thing changed, a row each; manifest and
 * index made by their own rooms. Covers verify.c, finding.c, tar_walk.c, shard_check.c,
 * shard_check_state.c, member_check.c, member_content.c, picture_check.c, manifest_check.c,
 * index_check.c. */
#include "tools/verify/verify_sets_test.h"

/* ---- damage ----------------------------------------------------------------------------- */

enum change { NONE, FLIP, CUT, TEXT, WRONG_PNG, LATE_PNG, ADD, NAME, ZEROS };

static const struct damage_row {
    const char *name;
    uint32_t change;    /* enum change */
    int sample, member; /* the file or member that is changed */
    int at;             /* from the data of that member */
    bool deep, packed;
    uint32_t kind; /* wanted; 0: clean */
    int status;
    const char *key;
    long long offset; /* wanted: from the data of that member; -1: none is looked at */
    int left;         /* samples that repair leaves; -1: it is not tried */
} damage_rows[] = {
    {"complete", NONE, 0, 0, 0, false, false, 0, 0, "", -1, SAMPLES},
    {"complete, deep", NONE, 0, 0, 0, true, false, 0, 0, "", -1, SAMPLES},
    {"complete, compressed", NONE, 0, 0, 0, true, true, 0, 0, "", -1, SAMPLES},
    {"header", FLIP, 2, 1, -512, false, false, STOKER_FINDING_HEADER, STOKER_ERROR_CORRUPT, "",
     -512 + 148, SAMPLES - 1},
    {"header of the first", FLIP, 0, 0, -400, false, false, STOKER_FINDING_HEADER,
     STOKER_ERROR_CORRUPT, "", -1, SAMPLES - 1},
    {"header of the last", FLIP, SAMPLES - 1, 2, -512, false, false, STOKER_FINDING_HEADER,
     STOKER_ERROR_CORRUPT, "", -512 + 148, SAMPLES - 1},
    {"size in a header", FLIP, 3, 0, -512 + 130, false, false, STOKER_FINDING_HEADER,
     STOKER_ERROR_CORRUPT, "", -512 + 148, SAMPLES - 1},
    {"png's data", FLIP, 3, 1, 60, false, false, STOKER_FINDING_PICTURE, STOKER_ERROR_CORRUPT, "s3",
     0, SAMPLES - 1},
    {"png's data, packed", FLIP, 3, 1, 60, false, true, STOKER_FINDING_PICTURE,
     STOKER_ERROR_CORRUPT, "s3", 0, -1},
    {"jpeg's header", FLIP, 1, 0, 1, false, false, STOKER_FINDING_PICTURE, STOKER_ERROR_FORMAT,
     "s1", 0, SAMPLES - 1},
    {"png ends early, not deep", LATE_PNG, 1, 1, 0, false, false, 0, 0, "", -1, SAMPLES},
    {"png ends early", LATE_PNG, 1, 1, 0, true, false, STOKER_FINDING_PIXELS, STOKER_ERROR_CORRUPT,
     "s1", 0, SAMPLES - 1},
    {"text called jpg", TEXT, 4, 0, 0, false, false, STOKER_FINDING_PICTURE, STOKER_ERROR_FORMAT,
     "s4", 0, SAMPLES - 1},
    {"png called jpg", WRONG_PNG, 4, 0, 0, false, false, STOKER_FINDING_MISNAMED,
     STOKER_ERROR_FORMAT, "s4", 0, SAMPLES},
    {"padding", FLIP, 2, 2, 100, false, false, STOKER_FINDING_PADDING, STOKER_ERROR_CORRUPT, "s2",
     6, SAMPLES},
    {"jpeg has no end", ZEROS, 2, 0, 0, false, false, STOKER_FINDING_PICTURE,
     STOKER_ERROR_TRUNCATED, "s2", 0, SAMPLES - 1},
    {"cut in data", CUT, 4, 0, 100, false, false, STOKER_FINDING_END, STOKER_ERROR_TRUNCATED,
     "s4.jpg", -512, SAMPLES - 2},
    {"cut in a header", CUT, 4, 1, -100, false, false, STOKER_FINDING_END, STOKER_ERROR_TRUNCATED,
     "", -1, SAMPLES - 2},
    {"cut behind a sample", CUT, 4, 0, -512, false, false, STOKER_FINDING_END,
     STOKER_ERROR_TRUNCATED, "", -512, SAMPLES - 2},
    {"cut end", CUT, SAMPLES - 1, 2, 512, false, false, STOKER_FINDING_END, STOKER_ERROR_TRUNCATED,
     "", 512, SAMPLES},
    {"cut in the padding", CUT, SAMPLES - 1, 2, 100, false, false, STOKER_FINDING_END,
     STOKER_ERROR_TRUNCATED, "", 512, SAMPLES},
    {"data in the end", FLIP, SAMPLES - 1, 2, 512 + 700, false, false, STOKER_FINDING_HEADER,
     STOKER_ERROR_CORRUPT, "", 512 + 512, SAMPLES},
    {"packed, cut", CUT, 4, 0, 0, false, true, STOKER_FINDING_PACKING, STOKER_ERROR_TRUNCATED, "",
     -1, -1},
    {"twins", ADD, SAMPLES - 1, 1, 0, false, false, STOKER_FINDING_DUPLICATE, STOKER_ERROR_CORRUPT,
     "s5", -1, SAMPLES - 1},
    {"scattered", ADD, 2, 1, 0, false, false, STOKER_FINDING_SCATTERED, STOKER_ERROR_SCATTERED,
     "s2", -1, SAMPLES - 1},
    {"a name that climbs", NAME, 0, 0, 0, false, false, STOKER_FINDING_NAME, STOKER_ERROR_CORRUPT,
     "../x.txt", -1, SAMPLES},
};

static void change(const struct damage_row *row, struct t_tar *tar)
{
    size_t at = data_at(row->sample, row->member), bytes;

    content(row->sample, row->member, &bytes);
    tar->bytes -= row->change == ADD || row->change == NAME ? 1024 : 0;
    switch ((enum change)row->change) {
    case FLIP:
        tar->data[(long)at + row->at] ^= 0x15;
        break;
    case CUT:
        tar->bytes = (size_t)((long)at + row->at);
        break;
    case TEXT:
        memcpy(tar->data + at, "Not a picture at all, but some words. ", 38);
        memset(tar->data + at + 38, ' ', bytes - 38);
        break;
    case WRONG_PNG:
        memset(tar->data + at, 0, bytes);
        memcpy(tar->data + at, png.data, png.count);
        break;
    case LATE_PNG: { /* as long as the other one: a chunk of text fills it */
        struct bytes fill = late_png;
        uint8_t text[4096];

        memset(text, 'a', sizeof text);
        fill.count -= 12;
        put_chunk(&fill, "tEXt", text, bytes - fill.count - 24);
        put_chunk(&fill, "IEND", text, 0);
        T_EQ(row->name, fill.count, bytes);
        memcpy(tar->data + at, fill.data, bytes);
        break;
    }
    case ZEROS:
        memset(tar->data + at + bytes - 100, 0, 100);
        break;
    case ADD: {
        char name[32];
        snprintf(name, sizeof name, "s%d.%s", row->sample, row->member ? "png" : "jpg");
        t_tar_add(tar, name, png.data, png.count);
        t_tar_end(tar);
        break;
    }
    case NAME:
        t_tar_add(tar, "../x.txt", "x", 1);
        t_tar_end(tar);
        break;
    case NONE:
        break;
    }
}

static void check_repair(const struct damage_row *row, struct stoker_engine *engine,
                         struct stk_io *world, const char *path, const struct t_tar *tar)
{
    static struct run run;
    char original[64];
    bool changes = row->kind && row->kind != STOKER_FINDING_MISNAMED;

    snprintf(original, sizeof original, "%s.original", path);
    verify_url(engine, "/data", row->deep, true, &run);
    T_EQ(row->name, run.status, 0);
    T_EQ(row->name, run.progress.repaired, changes);
    T_TRUE(row->name, !changes || is_file(world, original, tar->data, tar->bytes));
    verify_url(engine, "/data", row->deep, false, &run);
    T_EQ(row->name, run.progress.findings, 0);
    if (!T_EQ(row->name, run.progress.samples, SAMPLES + row->left)) {
        print_run(&run);
    }
}

static void test_damage(void)
{
    static struct run run;

    T_EACH(damage_row, row, damage_rows)
    {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 64u << 20);
        struct t_tar tar = {0}, other = {0}, packed = {0};
        const char *path = row->packed ? "/data/b.tar.gz" : "/data/b.tar";
        bool good;

        make_tar(&other, "o");
        stk_sim_add(world, "/data/z.tar", other.data, other.bytes); /* read after the damage */
        make_tar(&tar, "s");
        if (row->packed && row->change == CUT) {
            t_tar_gzip(&tar, &packed);
            packed.bytes -= packed.bytes / 3;
        } else {
            change(row, &tar);
            t_tar_gzip(&tar, &packed);
        }
        stk_sim_add(world, path, row->packed ? packed.data : tar.data,
                    row->packed ? packed.bytes : tar.bytes);
        verify_url(engine, "/data", row->deep, false, &run);
        good = T_EQ(row->name, run.status, 0) && T_EQ(row->name, run.count, row->kind != 0) &&
               T_EQ(row->name, run.progress.shards, 2);
        if (good && row->kind) {
            const struct stoker_finding *found = &run.found[0];

            good = T_EQ(row->name, found->kind, row->kind) &
                   T_EQ(row->name, found->status, row->status) &
                   T_STR(row->name, found->shard, path) & T_STR(row->name, found->key, row->key) &
                   T_TRUE(row->name, found->what[0] && found->advice[0]);
            if (row->offset != -1) {
                good &= T_EQ(row->name, found->offset,
                             (long long)data_at(row->sample, row->member) + row->offset);
            }
        }
        if (!good) {
            print_run(&run);
        }
        if (row->left >= 0) {
            check_repair(row, engine, world, path, &tar);
        }
        t_tar_free(&tar);
        t_tar_free(&other);
        t_tar_free(&packed);
        stoker_engine_close(engine);
    }
}

/* ---- next to the data ----------------------------------------------------------------- */

static const struct beside_row beside_rows[] = {
    {"manifest", MANIFEST, 0, 0, -1, {0}, "", 2 * SAMPLES},
    {"index", INDEX, 0, 0, -1, {0}, "", 2 * SAMPLES},
    {"both", MANIFEST | INDEX, 0, 0, -1, {0}, "", 2 * SAMPLES},
    {"text, nothing beside", 0, 3, 2, 1, {0}, "", 2 * SAMPLES},
    {"text, manifest", MANIFEST, 3, 2, 1, {STOKER_FINDING_DIGEST}, "/data/a.tar", -1},
    {"text, index",
     INDEX,
     3,
     2,
     1,
     {STOKER_FINDING_CHECKSUM, STOKER_FINDING_DIGEST},
     "/data/a.tar",
     2 * SAMPLES - 1},
    {"text, both",
     MANIFEST | INDEX,
     3,
     2,
     1,
     {STOKER_FINDING_CHECKSUM, STOKER_FINDING_DIGEST},
     "/data/a.tar",
     2 * SAMPLES - 1},
    {"a header, both",
     MANIFEST | INDEX,
     3,
     1,
     -500,
     {STOKER_FINDING_HEADER, STOKER_FINDING_DIGEST},
     "/data/a.tar",
     2 * SAMPLES - 1},
    {"a shard is gone", MANIFEST | GONE, 0, 0, -1, {STOKER_FINDING_MISSING}, "/data/b.tar", -1},
    {"a shard more", MANIFEST | MORE, 0, 0, -1, {STOKER_FINDING_EXTRA}, "/data/c.tar", -1},
    {"a bad manifest",
     BAD_MANIFEST,
     0,
     0,
     -1,
     {STOKER_FINDING_MANIFEST},
     "/data/" STK_MANIFEST_NAME,
     -1},
    {"no index", BAD_INDEX, 0, 0, -1, {STOKER_FINDING_INDEX}, "/data/stoker.index", 2 * SAMPLES},
};

static void test_beside(void)
{
    static struct run run;

    T_EACH(beside_row, row, beside_rows)
    {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 64u << 20);
        struct t_tar tars[2] = {{0}};
        bool good = true;
        int count = 0;

        add_beside(row, world, tars);
        verify_url(engine, "/data", false, false, &run);
        good &= T_EQ(row->name, run.status, 0);
        for (; count < 3 && row->kinds[count]; count++) {
            good &= T_EQ(row->name, run.found[count].kind, row->kinds[count]);
        }
        good &=
            T_EQ(row->name, run.count, count) && T_STR(row->name, run.found[0].shard, row->shard);
        verify_url(engine, "/data", false, true, &run);
        good &= T_EQ(row->name, run.status, 0);
        verify_url(engine, "/data", false, false, &run);
        good &= T_EQ(row->name, run.count, row->left < 0 ? count : 0);
        good &= row->left < 0 || T_EQ(row->name, run.progress.samples, row->left);
        if (!good) {
            print_run(&run);
        }
        t_tar_free(&tars[0]);
        t_tar_free(&tars[1]);
        stoker_engine_close(engine);
    }
}

/* ---- folders ---------------------------------------------------------------------------- */

static void test_folder(void)
{
    static struct run run;
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 64u << 20);

    stk_sim_add(world, "/root/cat/1.jpg", jpeg.data, jpeg.count);
    stk_sim_add(world, "/root/cat/2.jpg", "words, words, words", 19);
    stk_sim_add(world, "/root/cat/3.jpg", png.data, png.count);
    stk_sim_add(world, "/root/dog/1.png", png.data, png.count);
    stk_sim_add(world, "/root/dog/sub/2.png", late_png.data, late_png.count);
    stk_sim_add(world, "/root/dog/4.png", png.data, png.count);
    stk_sim_add_rule(world,
                     &(struct stk_sim_rule){"/root/dog/4.png", STK_SIM_FAULT_EIO, 0, 0, 0, 0});
    verify_url(engine, "/root", true, false, &run);
    T_EQ("folder", run.status, 0);
    T_EQ("folder", run.progress.samples, 6);
    T_EQ("folder", run.progress.notes, 1);
    if (!T_EQ("folder", run.count, 4)) {
        print_run(&run);
    }
    T_EQ("text", run.found[0].kind, STOKER_FINDING_PICTURE);
    T_STR("text", run.found[0].key, "cat/2.jpg");
    T_EQ("png", run.found[1].kind, STOKER_FINDING_MISNAMED);
    T_TRUE("png", run.found[1].note);
    T_EQ("disk", run.found[2].kind, STOKER_FINDING_UNREADABLE);
    T_EQ("disk", run.found[2].status, -EIO);
    T_EQ("deep", run.found[3].kind, STOKER_FINDING_PIXELS);
    T_STR("deep", run.found[3].shard, "/root/dog/sub/2.png");
    verify_url(engine, "/root", true, true, &run);
    T_EQ("repair", run.status, 0);
    T_EQ("repair", run.progress.repaired, 2);
    T_TRUE("moved",
           is_file(world, "/root.bad/cat/2.jpg", (const uint8_t *)"words, words, words", 19));
    T_TRUE("moved", is_file(world, "/root.bad/dog/sub/2.png", late_png.data, late_png.count));
    T_TRUE("stays", is_file(world, "/root/cat/3.jpg", png.data, png.count));
    stk_sim_add(world, "/root/cat/2.jpg", "other words, words", 18);
    verify_url(engine, "/root", true, true, &run);
    T_EQ("in the way", run.found[run.count - 1].kind, STOKER_FINDING_UNREPAIRED);
    T_TRUE("stays",
           is_file(world, "/root.bad/cat/2.jpg", (const uint8_t *)"words, words, words", 19));
    stoker_engine_close(engine);
}

/* A folder's index, with a checksum and a class that may not be those of the file. */
static void test_folder_index(void)
{
    static const struct folder_row {
        const char *name;
        bool sums, flipped;
        int64_t label;
        const char *key;
        uint32_t kind; /* wanted; 0: clean */
    } rows[] = {
        {"right", true, false, 0, "cat/1.jpg", 0},
        {"right, no sums", false, false, 0, "cat/1.jpg", 0},
        {"another byte", true, true, 0, "cat/1.jpg", STOKER_FINDING_CHECKSUM},
        {"another class", true, false, 1, "cat/1.jpg", STOKER_FINDING_INDEX},
        {"another class, no sums", false, false, 1, "cat/1.jpg", STOKER_FINDING_INDEX},
    };
    static struct run run;

    T_EACH(folder_row, row, rows)
    {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 64u << 20);
        struct stk_index_options options = {.shard_count = 1};
        struct stk_index *index = NULL;
        struct stk_index_shard_builder *builder = NULL;
        struct stk_view key = {(const uint8_t *)row->key, strlen(row->key)};
        uint64_t sum = stk_xxh3_64(jpeg.data, jpeg.count) ^ row->flipped;

        stk_sim_add(world, "/root/cat/1.jpg", jpeg.data, jpeg.count);
        T_EQ("index", stk_index_open(&index, &options, NULL), 0);
        T_EQ("file", stk_index_shard_begin(index, 0, "/root/cat/1.jpg", &builder, NULL), 0);
        T_EQ("file",
             stk_index_shard_add_file(builder, key, (struct stk_view){(const uint8_t *)"jpg", 3},
                                      row->label, NULL),
             0);
        if (row->sums) {
            T_EQ("sum", stk_index_shard_set_checksum(builder, sum, NULL), 0);
        }
        T_EQ("end", stk_index_shard_end(builder, jpeg.count, 0, NULL), 0);
        T_EQ("class", stk_index_add_class(index, "cat", NULL), 0);
        T_EQ("class", stk_index_add_class(index, "dog", NULL), 0);
        T_EQ("finish", stk_index_finish(index, 0, NULL), 0);
        T_EQ("write", stk_index_write(index, world, "/root/stoker.index", NULL), 0);
        stk_index_close(index);
        verify_url(engine, "/root", false, false, &run);
        if (!(T_EQ(row->name, run.status, 0) & T_EQ(row->name, run.count, row->kind != 0) &
              T_EQ(row->name, run.found[0].kind, row->kind))) {
            print_run(&run);
        }
        stoker_engine_close(engine);
    }
}

/* Twins are found among many members, and in parts that are not adjacent. */
static void test_twins(void)
{
    static const struct twin_row {
        const char *name;
        int members; /* of one sample */
        int again;   /* this member occurs twice; -1: none does */
        uint32_t member_gap_max;
        uint32_t kind; /* wanted; 0: clean */
    } rows[] = {
        {"many", 600, -1, 0, 0},
        {"early", 600, 5, 0, STOKER_FINDING_DUPLICATE},
        {"late", 600, 590, 0, STOKER_FINDING_DUPLICATE},
        {"apart", 3, -1, 1, 0},
        {"twins apart", 3, 1, 1, STOKER_FINDING_DUPLICATE},
    };

    T_EACH(twin_row, row, rows)
    {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 64u << 20);
        const char *url = "/data";
        struct stoker_verify_options options = {.struct_size = sizeof options,
                                                .urls = &url,
                                                .url_count = 1,
                                                .member_gap_max = row->member_gap_max};
        struct stoker_verify *verify = NULL;
        struct stoker_finding finding = {0};
        struct t_tar tar = {0};
        char name[32];
        int status, count = 0;

        for (int i = 0; i < row->members; i++) {
            snprintf(name, sizeof name, "k.e%d", i);
            t_tar_add(&tar, name, "x", 1);
        }
        if (row->member_gap_max) {
            t_tar_add(&tar, "other.e0", "x", 1);
        }
        snprintf(name, sizeof name, "k.e%d", row->again < 0 ? row->members : row->again);
        t_tar_add(&tar, name, "x", 1);
        t_tar_end(&tar);
        stk_sim_add(world, "/data/a.tar", tar.data, tar.bytes);
        T_EQ(row->name, stoker_verify_open(&verify, engine, &options, NULL), 0);
        while ((status = stoker_verify_next(verify, 1000, &finding, NULL)) != 0) {
            count += status == 1;
        }
        T_EQ(row->name, count, row->kind != 0);
        T_EQ(row->name, finding.kind, row->kind);
        T_STR(row->name, finding.extension, row->kind ? name + 2 : "");
        stoker_verify_close(verify);
        stoker_engine_close(engine);
        t_tar_free(&tar);
    }
}

/* ---- bounds, faults --------------------------------------------------------------------- */

static void test_bounds(void)
{
    static struct run run;
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 64u << 20), *small;
    struct stoker_verify_options options = {.struct_size = sizeof options};
    struct stoker_verify *verify = NULL;
    struct stoker_verify_progress progress = {.struct_size = sizeof progress};
    struct stoker_finding finding;
    struct stoker_error error = {0};
    const char *url = "/data";
    struct t_tar tar = {0};
    int count = 0, status;

    T_EQ("no urls", stoker_verify_open(&verify, engine, &options, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("no urls", &error);
    options.urls = &url;
    options.url_count = 1;
    T_EQ("nothing there", stoker_verify_open(&verify, engine, &options, &error), -ENOENT);
    make_tar(&tar, "s");
    for (int i = 0; i < SAMPLES; i++) {
        tar.data[data_at(i, 0)] = 0;
    }
    stk_sim_add(world, "/data/a.tar", tar.data, tar.bytes);
    options.findings_max = 2;
    T_EQ("open", stoker_verify_open(&verify, engine, &options, &error), 0);
    while ((status = stoker_verify_next(verify, 1000, &finding, &error)) != 0) {
        count += status == 1;
    }
    T_EQ("retained", count, 2);
    T_EQ("progress", stoker_verify_progress(verify, &progress), 0);
    T_EQ("counted", progress.findings, SAMPLES);
    T_EQ("retained", progress.findings_kept, 2);
    stoker_verify_close(verify);
    T_EQ("open", stoker_verify_open(&verify, engine, &options, &error), 0);
    stoker_verify_close(verify); /* at once */
    stoker_verify_close(NULL);
    stoker_engine_close(engine);
    small = open_engine(&world, 2u << 20);
    stk_sim_add(world, "/data/a.tar", tar.data, tar.bytes);
    verify_url(small, "/data", false, false, &run);
    T_EQ("no memory for a reader", run.status, STOKER_ERROR_BUDGET);
    T_ERROR("no memory for a reader", &run.error);
    stoker_engine_close(small);
    t_tar_free(&tar);
}

int main(void)
{
    make_pictures();
    test_damage();
    test_beside();
    test_folder();
    test_folder_index();
    test_twins();
    test_bounds();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
