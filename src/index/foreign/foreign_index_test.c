/* Goal: a correct index of wds2idx gives the same index as a scan; a false, outdated or unusual one
 * is refused with the reason, or detected when a member is read; JSON files of wids give their
 * shards.
 * Method: tars in the simulated file system, with the text that wds2idx writes for them, then
 * changed in tables; every byte of a text changed; every allocation and I/O call fails once. Covers
 * foreign_index.c and wids_shards.c. */
#include "index/foreign/foreign_index.h"

#include "base/mem.h"
#include "format/compress/decompress.h"
#include "io/sim/sim.h"
#include "io/write.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of a0.jpg, a0.cls, a1.jpg, ... */
static const size_t sizes[] = {700, 1, 512, 2, 0, 3, 5000, 1};
static const char plain[] = "v1.2 4\n"
                            "jpg 512 700 a0.jpg cls 2048 1 a0.cls\n"
                            "jpg 3072 512 a1.jpg cls 4096 2 a1.cls\n"
                            "jpg 5120 0 a2.jpg cls 5632 3 a2.cls\n"
                            "jpg 6656 5000 a3.jpg cls 12288 1 a3.cls\n";

static struct stk_io *open_world(void)
{
    struct stk_io_options options = {.depth = 8, .read_timeout_ms = 1000};
    struct stk_io *world = NULL;

    T_EQ("world", stk_sim_open(&world, 1, &options, NULL), 0);
    return world;
}

static void make_tar(struct t_tar *tar)
{
    static uint8_t data[5000];
    char name[32];

    for (size_t i = 0; i < STK_COUNT(sizes); i++) {
        snprintf(name, sizeof name, "a%zu.%s", i / 2, i % 2 ? "cls" : "jpg");
        t_tar_add(tar, name, data, sizes[i]);
    }
}

static void add_tar(struct stk_io *world, const char *path)
{
    struct t_tar tar = {0};

    make_tar(&tar);
    t_tar_end(&tar);
    T_EQ(path, stk_sim_add(world, path, tar.data, tar.bytes), 0);
    t_tar_free(&tar);
}

/* The foreign index of one shard; the result of stk_foreign_index_read. */
static int scan(struct stk_io *world, const char *path, struct stk_index **index_out,
                char note[1024], struct stoker_error *error)
{
    struct stk_index_options options = {.shard_count = 1};
    struct stk_index *index = NULL;
    struct stk_foreign_index *foreign = NULL;
    int status = stk_index_open(&index, &options, error);

    note[0] = '\0';
    *index_out = NULL;
    status = status < 0 ? status : stk_foreign_index_open(&foreign, world, error);
    status = status < 0 ? status : stk_foreign_index_read(foreign, index, 0, path, error);
    snprintf(note, 1024, "%s", stk_foreign_index_note(foreign));
    stk_foreign_index_close(foreign);
    if (status == 1) {
        int end = stk_index_finish(index, 0, error);

        if (end == 0) {
            *index_out = index;
            return 1;
        }
        status = end;
    }
    stk_index_close(index);
    return status;
}

/* The index from a scan of the tar. */
static struct stk_index *truth(const char *path)
{
    struct stk_index_options options = {.shard_count = 1};
    struct stk_index_shard_builder *builder;
    struct stk_index *index;
    uint64_t offset = 512;
    char name[32];

    T_EQ("open", stk_index_open(&index, &options, NULL), 0);
    T_EQ("begin", stk_index_shard_begin(index, 0, path, &builder, NULL), 0);
    for (size_t i = 0; i < STK_COUNT(sizes); i++) {
        snprintf(name, sizeof name, "a%zu.%s", i / 2, i % 2 ? "cls" : "jpg");
        T_EQ("add",
             stk_index_shard_add(builder, (struct stk_view){(uint8_t *)name, strlen(name)}, offset,
                                 sizes[i], NULL),
             0);
        offset = stk_round_up(offset + sizes[i], 512) + 512;
    }
    T_EQ("end", stk_index_shard_end(builder, offset - 512 + 1024, STK_COMPRESSION_NONE, NULL), 0);
    T_EQ("finish", stk_index_finish(index, 0, NULL), 0);
    return index;
}

/* All members of all samples, as a loader proves them: the first failure. */
static int prove_all(struct stk_io *world, const char *path, const struct stk_index *index,
                     struct stoker_error *error)
{
    struct stk_file *file = NULL;
    int status = stk_io_open_file(world, path, &file, error);

    for (uint64_t i = 0; status == 0 && i < stk_index_samples(index); i++) {
        struct stk_sample sample;

        stk_index_sample(index, i, &sample, NULL);
        for (uint32_t m = 0; status == 0 && m < sample.member_count; m++) {
            uint8_t room[STK_FOREIGN_INDEX_GAP_MAX];
            struct stk_member member;
            uint64_t before;

            stk_index_member(index, &sample, m, &member, NULL);
            status = stk_foreign_index_header_offset(index, &sample, i, m, &before, error);
            T_TRUE("gap", status < 0 || member.offset - before <= sizeof room);
            if (status == 0) {
                stk_io_read_wait(file, before, room, member.offset - before);
                status =
                    stk_foreign_index_check(index, (struct stk_view){room, member.offset - before},
                                            sample.key, &member, error);
            }
        }
    }
    if (file) {
        stk_io_close_file(file);
    }
    return status;
}

static void test_true(void)
{
    struct stk_io *world = open_world();
    struct stk_index *foreign, *read = truth("/d/s-0.x.tar");
    struct stoker_error error = {0};
    char note[1024];

    add_tar(world, "/d/s-0.x.tar");
    T_EQ("none there", scan(world, "/d/s-0.x.tar", &foreign, note, &error), 0);
    T_STR("nothing to note", note, "");
    T_EQ("add", stk_sim_add(world, "/d/s-0.idx", plain, sizeof plain - 1), 0);
    if (T_EQ("reported", scan(world, "/d/s-0.x.tar", &foreign, note, &error), 1)) {
        T_STR("nothing to note", note, "");
        T_TRUE("unproved", stk_index_shard_is_unverified(foreign, 0) &&
                               stk_foreign_index_unverified(foreign) == 1);
        T_TRUE("proved",
               !stk_index_shard_is_unverified(read, 0) && stk_foreign_index_unverified(read) == 0);
        T_TRUE("the same data set",
               memcmp(stk_index_identity(foreign), stk_index_identity(read), 32) == 0);
        T_EQ("samples", stk_index_samples(foreign), 4);
        T_EQ("prove", prove_all(world, "/d/s-0.x.tar", foreign, &error), 0);
        stk_index_close(foreign);
    }
    stk_index_close(read);
    stk_io_close(world);
}

/* The actual shard; the text describes a0 ... a3. */
enum shard { AS_LISTED, LONGER, NO_END, CUT, OTHER_TAR_BEHIND, PACKED };

/* As by a program: with a new mtime. */
static void write_again(struct stk_io *world, const char *path, struct stk_view bytes)
{
    struct stk_output *out = NULL;

    T_EQ("create", stk_io_create(world, path, false, &out, NULL), 0);
    T_EQ("write", stk_io_write(world, out, bytes.data, bytes.bytes, NULL), 0);
    stk_io_close_output(world, out);
}

static void test_refused(void)
{
    static const struct refusal {
        const char *name, *text; /* NULL: plain */
        enum shard shard;
        bool older;
        const char *note;
    } rows[] = {
        {"older", NULL, AS_LISTED, true, "older than its shard"},
        {"longer", NULL, LONGER, false, "continues after it"},
        {"no end", NULL, NO_END, false, "ends before"},
        {"cut", NULL, CUT, false, "shorter"},
        {"two tars", NULL, OTHER_TAR_BEHIND, false, "continues after it"},
        {"packed", NULL, PACKED, false, "shorter"},
        {"another format", "0 152\n", AS_LISTED, false, "version"},
        {"no names", "v1.1 1\njpg 512 700\n", AS_LISTED, false, "version"},
        {"another name", "v1.2 1\njpg 512 700 b0.jpg\n", AS_LISTED, false, "another name"},
        {"another size", "v1.2 1\njpg 512 701 a0.jpg\n", AS_LISTED, false, "size"},
        {"no header", "v1.2 1\njpg 1024 700 a0.jpg\n", AS_LISTED, false, "leaves out"},
        {"left out", "v1.2 1\njpg 3072 512 a1.jpg\n", AS_LISTED, false, "leaves out"},
        {"too large an offset", "v1.2 2\njpg 512 700 a0.jpg\njpg 12800 1 a3.jpg\n", AS_LISTED,
         false, "are between"},
        {"climbs", "v1.2 1\njpg 512 700 ../a0.jpg\n", AS_LISTED, false, "name"},
    };

    T_EACH(refusal, row, rows)
    {
        struct stk_io *world = open_world();
        struct t_tar tar = {0}, packed = {0};
        const char *text = row->text ? row->text : plain;
        struct stoker_error error = {0};
        struct stk_index *index;
        char note[1024];
        size_t bytes;

        make_tar(&tar);
        bytes = tar.bytes;
        if (row->shard == LONGER) {
            t_tar_add(&tar, "a4.jpg", "x", 1);
        }
        if (row->shard != NO_END) {
            t_tar_end(&tar);
        }
        if (row->shard == OTHER_TAR_BEHIND) {
            make_tar(&tar);
            t_tar_end(&tar);
        }
        t_tar_gzip(&tar, &packed);
        if (row->shard == PACKED) {
            stk_sim_add(world, "/d/s.tar", packed.data, packed.bytes);
        } else {
            stk_sim_add(world, "/d/s.tar", tar.data, row->shard == CUT ? bytes - 1024 : tar.bytes);
        }
        stk_sim_add(world, "/d/s.idx", text, strlen(text));
        if (row->older) {
            write_again(world, "/d/s.tar", (struct stk_view){tar.data, tar.bytes});
        }
        T_EQ(row->name, scan(world, "/d/s.tar", &index, note, &error), 0);
        T_HAS(row->name, note, "/d/s.idx");
        T_HAS(row->name, note, row->note);
        stk_index_close(index);
        t_tar_free(&tar);
        t_tar_free(&packed);
        stk_io_close(world);
    }
}

/* Any byte of the text changed: refused, found out, or the same data set. */
static void test_changed(void)
{
    struct stk_index *read = truth("/d/s.tar");
    uint32_t taken = 0;

    for (size_t i = 0; i < sizeof plain - 1; i++) {
        static const char bytes[] = "0129a. \n";

        for (size_t b = 0; b < sizeof bytes - 1; b++) {
            struct stk_io *world = open_world();
            struct stoker_error error = {0};
            struct stk_index *index;
            char text[sizeof plain], note[1024];

            memcpy(text, plain, sizeof text);
            text[i] = bytes[b];
            add_tar(world, "/d/s.tar");
            stk_sim_add(world, "/d/s.idx", text, sizeof text - 1);
            if (scan(world, "/d/s.tar", &index, note, &error) == 1) {
                int status = prove_all(world, "/d/s.tar", index, &error);

                taken++;
                T_TRUE("found out or the same",
                       status == STOKER_ERROR_CHANGED ||
                           (status == 0 &&
                            memcmp(stk_index_identity(index), stk_index_identity(read), 32) == 0));
                stk_index_close(index);
            }
            stk_io_close(world);
        }
    }
    T_TRUE("the true ones", taken > 20);
    stk_index_close(read);
}

/* A member in the middle differs, where no probe reads: the reader of the member detects it. */
static void test_found_out(void)
{
    enum { SAMPLES = 200 };
    struct stk_io *world = open_world();
    struct t_tar tar = {0};
    char *text = stk_alloc(SAMPLES, 64), name[32], note[1024];
    size_t used = (size_t)snprintf(text, 64, "v1.2 %d\n", SAMPLES);
    struct stoker_error error = {0};
    struct stk_index *index;

    for (int i = 0; i < SAMPLES; i++) {
        used += (size_t)snprintf(text + used, 64, "txt %zu 3 k%03d.txt\n", tar.bytes + 512, i);
        snprintf(name, sizeof name, "k%03d.txt", i == 103 ? 777 : i);
        t_tar_add(&tar, name, "abc", 3);
    }
    t_tar_end(&tar);
    stk_sim_add(world, "/d/s.tar", tar.data, tar.bytes);
    stk_sim_add(world, "/d/s.idx", text, used);
    if (T_EQ("taken", scan(world, "/d/s.tar", &index, note, &error), 1)) {
        T_EQ("found out", prove_all(world, "/d/s.tar", index, &error), STOKER_ERROR_CHANGED);
        T_ERROR("found out", &error);
        T_HAS("why", error.where, "another name");
        stk_index_close(index);
    }
    t_tar_free(&tar);
    stk_free(text);
    stk_io_close(world);
}

static void test_failures(void)
{
    for (int memory = 0; memory < 2; memory++) {
        uint32_t foreign = 0, refused = 0, failed = 0;

        for (uint64_t n = 1; n < 200; n++) {
            struct stk_io *world = open_world();
            int64_t alive;
            struct stoker_error error = {0};
            struct stk_index *index;
            char note[1024];
            int status;

            add_tar(world, "/d/s.tar");
            stk_sim_add(world, "/d/s.idx", plain, sizeof plain - 1);
            alive = stk_mem_alive();
            if (memory) {
                stk_mem_fail_nth(n);
            } else {
                stk_sim_fail_nth(world, n);
            }
            status = scan(world, "/d/s.tar", &index, note, &error);
            stk_mem_fail_nth(0);
            stk_sim_fail_nth(world, 0);
            foreign += status == 1;
            refused += status == 0;
            failed += status < 0;
            if (status < 0) {
                T_ERROR("failure", &error);
            }
            stk_index_close(index);
            T_EQ("alive", stk_mem_alive(), alive);
            stk_io_close(world);
        }
        T_TRUE("each came", foreign > 0 && (memory ? failed > 5 : refused + failed > 5));
    }
}

static void test_shards(void)
{
    static const char json[] = "{\"wids_version\": 1, \"shardlist\": ["
                               "{\"url\": \"a.tar\", \"nsamples\": 4, \"filesize\": 1024}, "
                               "{\"url\": \"/e/b.tar\", \"nsamples\": 4}]}";
    static const char *const urls[] = {"/d/x.tar", "/d/set.json", "/d/{0..9}.json"};
    struct stk_io *world = open_world();
    struct stk_wids_shards shards;
    struct stoker_error error = {0};
    const char *bad = "/d/bad.json";

    stk_sim_add(world, "/d/set.json", json, sizeof json - 1);
    stk_sim_add(world, "/d/bad.json", "[1, 2", 5);
    if (T_EQ("expand", stk_wids_shards_expand(&shards, world, urls, 3, &error), 0)) {
        T_EQ("count", shards.count, 4);
        T_TRUE("there was one", shards.from_json);
        T_STR("as it is", shards.paths[0], "/d/x.tar");
        T_STR("relative", shards.paths[1], "/d/a.tar");
        T_STR("absolute", shards.paths[2], "/e/b.tar");
        T_STR("not there: left to the listing", shards.paths[3], "/d/{0..9}.json");
        T_TRUE("reported", shards.samples[1] == 4 && shards.bytes[1] == 1024);
        T_TRUE("unknown", shards.bytes[2] == STK_WIDS_INDEX_UNKNOWN &&
                              shards.samples[0] == STK_WIDS_INDEX_UNKNOWN);
    }
    stk_wids_shards_deinit(&shards);
    T_EQ("no JSON", stk_wids_shards_expand(&shards, world, &bad, 1, &error), STOKER_ERROR_FORMAT);
    T_ERROR("no JSON", &error);
    T_STR("which", error.shard, "/d/bad.json");
    stk_wids_shards_deinit(&shards);
    for (uint64_t n = 1; n < 60; n++) {
        int64_t alive = stk_mem_alive();

        error = (struct stoker_error){0};
        stk_mem_fail_nth(n);
        if (stk_wids_shards_expand(&shards, world, urls, 3, &error) < 0) {
            T_ERROR("memory", &error);
        }
        stk_mem_fail_nth(0);
        stk_wids_shards_deinit(&shards);
        T_EQ("alive", stk_mem_alive(), alive);
    }
    stk_io_close(world);
}

/* Differences between the JSON and the shards are noted. */
static void test_compare(void)
{
    struct stk_io *world = open_world();
    struct stk_index *index = truth("/d/s.tar");
    char *path = (char *)(uintptr_t)"/d/s.tar";
    uint64_t samples = 4, bytes = stk_index_shard_bytes(index, 0);
    struct stk_wids_shards shards = {
        .paths = &path, .samples = &samples, .bytes = &bytes, .count = 1, .from_json = true};
    struct stk_foreign_index *foreign;

    T_EQ("open", stk_foreign_index_open(&foreign, world, NULL), 0);
    stk_foreign_index_compare(foreign, &shards, index);
    T_STR("as it is", stk_foreign_index_note(foreign), "");
    bytes++;
    stk_foreign_index_compare(foreign, &shards, index);
    T_HAS("size", stk_foreign_index_note(foreign), "bytes, not");
    stk_foreign_index_close(foreign);
    T_EQ("open", stk_foreign_index_open(&foreign, world, NULL), 0);
    samples = 5;
    stk_foreign_index_compare(foreign, &shards, index);
    T_HAS("count", stk_foreign_index_note(foreign), "4 samples, not 5");
    stk_foreign_index_close(foreign);
    stk_index_close(index);
    stk_io_close(world);
}

/* The starts of samples in Energon's index, and the result of comparing the headers. */
static void test_starts(void)
{
    static const struct start_row {
        const char *name, *path;
        uint64_t offsets[6];
        size_t bytes;
        bool older;
        uint64_t count, refuted, samples; /* as the headers tell */
        const char *note;
    } rows[] = {
        {"true", "/d/s.tar", {0, 2560, 4608, 6144, 12800}, 40, false, 4, UINT64_MAX, 4, ""},
        {"none beside", "/d/t.tar", {0}, 0, false, 0, UINT64_MAX, 4, ""},
        {"not of a tar", "/d/s.tgz", {0, 512}, 16, false, 0, UINT64_MAX, 4, ""},
        {"no samples", "/d/s.tar", {0}, 8, false, 0, UINT64_MAX, 4, ""},
        {"older", "/d/s.tar", {0, 512}, 16, true, 0, UINT64_MAX, 4, "older than its shard"},
        {"half an offset", "/d/s.tar", {0, 512}, 12, false, 0, UINT64_MAX, 4, "no list of offsets"},
        {"behind the end", "/d/s.tar", {0, 1 << 20}, 16, false, 0, UINT64_MAX, 4, "of 14336 bytes"},
        {"refuted", "/d/s.tar", {0, 512, 1024}, 24, false, 2, 512, 4, "begins at byte 512"},
        {"another count",
         "/d/s.tar",
         {0, 2560, 12800},
         24,
         false,
         2,
         UINT64_MAX,
         4,
         "4 samples, not 2"},
    };

    T_EACH(start_row, row, rows)
    {
        struct stk_io *world = open_world();
        struct stk_foreign_index_starts starts;
        struct stk_foreign_index *foreign = NULL;
        char index[64];

        snprintf(index, sizeof index, "%s.idx", strcmp(row->path, "/d/t.tar") ? row->path : "/x");
        if (row->older) {
            stk_sim_add(world, index, row->offsets, row->bytes);
        }
        add_tar(world, row->path);
        if (row->older) {
            struct t_tar tar = {0};

            make_tar(&tar);
            t_tar_end(&tar);
            write_again(world, row->path, (struct stk_view){tar.data, tar.bytes});
            t_tar_free(&tar);
        } else {
            stk_sim_add(world, index, row->offsets, row->bytes);
        }
        T_EQ(row->name, stk_foreign_index_open(&foreign, world, NULL), 0);
        T_EQ(row->name, stk_foreign_index_find_starts(foreign, row->path, 14336, &starts, NULL), 0);
        T_EQ(row->name, starts.count, row->count);
        for (uint64_t i = 0; i < starts.count; i++) {
            T_EQ(row->name, starts.starts[i], row->offsets[i]);
        }
        stk_foreign_index_verify_starts(foreign, row->path, &starts, row->refuted, row->samples);
        T_HAS(row->name, stk_foreign_index_note(foreign), row->note);
        T_EQ(row->name, stk_foreign_index_used(foreign), row->count > 0 && !row->note[0]);
        stk_foreign_index_close(foreign);
        stk_io_close(world);
    }
}

static const char *const listed[] = {"/d/a.tar", "/d/b.tar"};
#define BESIDE(list) "{\"wids_version\": 1, \"shardlist\": [" list "]}"
#define SHARD(name, samples) "{\"url\": \"" name "\", \"nsamples\": " samples "}"

static int beside(struct stk_io *world, struct stk_wids_shards *shards, char note[1024])
{
    char text[64];
    uint64_t paths[2] = {0, 16};
    struct stk_foreign_index_listing listing = {text, paths, 2};
    struct stk_foreign_index *foreign = NULL;
    int status = stk_foreign_index_open(&foreign, world, NULL);

    snprintf(text, 16, "%s", listed[0]);
    snprintf(text + 16, 16, "%s", listed[1]);
    status = status < 0 ? status : stk_foreign_index_find(foreign, "/d/", &listing, shards, NULL);
    snprintf(note, 1024, "%s", stk_foreign_index_note(foreign));
    stk_foreign_index_close(foreign);
    return status;
}

/* The JSON of widsindex in a folder: its statements about the listed shards. */
static void test_beside(void)
{
    static const struct beside_row {
        const char *name, *text;
        bool foreign;
        uint64_t samples[2];
        const char *note;
    } rows[] = {
        {"none", NULL, false, {0}, ""},
        {"another order", BESIDE(SHARD("b.tar", "7") "," SHARD("/d/a.tar", "5")), true, {5, 7}, ""},
        {"one less",
         BESIDE(SHARD("b.tar", "7")),
         true,
         {STK_WIDS_INDEX_UNKNOWN, 7},
         "not name '/d/a.tar'"},
        {"one more",
         BESIDE(SHARD("a.tar", "5") "," SHARD("b.tar", "7") "," SHARD("c.tar", "1")),
         true,
         {5, 7},
         "1 shards that are not there"},
        {"twice", BESIDE(SHARD("a.tar", "5") "," SHARD("a.tar", "6")), false, {0}, "twice"},
        {"no JSON of wids", "{}", false, {0}, "shardindex.json' is not used"},
    };

    T_EACH(beside_row, row, rows)
    {
        struct stk_io *world = open_world();
        struct stk_wids_shards shards;
        char note[1024];
        int64_t alive;
        uint64_t n = 0;
        int status;

        T_EQ("folder", stk_sim_add(world, "/d", NULL, 0), 0);
        if (row->text) {
            stk_sim_add(world, "/d/shardindex.json", row->text, strlen(row->text));
        }
        T_EQ(row->name, beside(world, &shards, note), 0);
        T_EQ(row->name, shards.from_json, row->foreign);
        T_EQ(row->name, shards.count, row->foreign ? 2 : 0);
        for (uint64_t i = 0; i < shards.count; i++) {
            T_STR(row->name, shards.paths[i], listed[i]);
            T_EQ(row->name, shards.samples[i], row->samples[i]);
        }
        T_HAS(row->name, note, row->note);
        stk_wids_shards_deinit(&shards);
        alive = stk_mem_alive();
        do {
            shards = (struct stk_wids_shards){0};
            stk_mem_fail_nth(++n);
            status = beside(world, &shards, note);
            stk_mem_fail_nth(0);
            stk_wids_shards_deinit(&shards);
            T_EQ(row->name, stk_mem_alive(), alive);
        } while (status < 0 && n < 1000);
        T_EQ(row->name, status, 0);
        stk_io_close(world);
    }
}

int main(void)
{
    test_true();
    test_beside();
    test_starts();
    test_refused();
    test_changed();
    test_found_out();
    test_failures();
    test_shards();
    test_compare();
    return t_finish();
}
