/* Goal: each sample in which two data sets differ is found once, for any shards, order, compression
 * and number of threads; checksums of an index replace the bytes; data that cannot be read is an
 * error; nothing leaks when any call fails.
 * Method: rows of two small simulated data sets; random sets compared with a simple count; a disk
 * that fails for data that must not be read; fail-nth. Covers diff.c, diff_content.c,
 * diff_member.c, diff_merge.c, diff_shards.c. */
#include "base/mem.h"
#include "tools/diff/diff.h"

#include "base/random.h"
#include "base/xxh3.h"
#include "io/sim/sim.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FOUND_MAX = 64 };

static struct stoker_engine *open_engine(struct stk_io **world_out, uint64_t memory_bytes)
{
    struct stk_io_options io = {.depth = 8, .read_timeout_ms = 1000};
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 2, .memory_bytes_max = memory_bytes};
    struct stoker_engine *engine = NULL;

    T_EQ("world", stk_sim_open(world_out, 1, &io, NULL), 0);
    T_EQ("engine", stk_engine_open_with_io(&engine, *world_out, &options, NULL), 0);
    return engine;
}

/* "name=text name=text | name=text": members of the shards URL/0.tar, URL/1.tar ...; '>' at the
 * start: gzipped, '/' at the start: files of a folder. */
static void add_set(struct stk_io *world, const char *url, const char *words)
{
    bool packed = words[0] == '>', files = words[0] == '/';
    char text[4096], path[256], *rest = NULL, *word;
    struct t_tar tar = {0};
    int shard = 0;

    snprintf(text, sizeof text, "%s |", words + (packed || files));
    for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *content = strchr(word, '=');

        if (content) {
            *content++ = 0;
        }
        if (files && content) {
            snprintf(path, sizeof path, "%s/%s", url, word);
            stk_sim_add(world, path, content, strlen(content));
        } else if (content) {
            t_tar_add(&tar, word, content, strlen(content));
        } else if (!files) {
            struct t_tar gzipped = {0};

            t_tar_end(&tar);
            t_tar_gzip(&tar, &gzipped);
            snprintf(path, sizeof path, "%s/%d.tar%s", url, shard++, packed ? ".gz" : "");
            stk_sim_add(world, path, packed ? gzipped.data : tar.data,
                        packed ? gzipped.bytes : tar.bytes);
            t_tar_free(&gzipped);
            t_tar_free(&tar);
        }
    }
}

struct run {
    int status, count;
    char text[FOUND_MAX][160]; /* "changed k a -> b members" */
    struct stoker_error error;
    struct stoker_diff_progress progress;
};

static void print_run(const struct run *run)
{
    for (int i = 0; i < run->count; i++) {
        printf("  %s\n", run->text[i]);
    }
    if (run->status < 0) {
        printf("  %d %s %s\n", run->status, run->error.what, run->error.where);
    }
}

/* The last two components of the path: "0.tar", "cat/1.jpg". */
static const char *tail(const char *path)
{
    return strlen(path) > 3 ? path + 3 : path; /* after "/a/" */
}

static void pull(struct stoker_diff *diff, struct run *run)
{
    struct stoker_difference found;
    uint64_t least[2] = {0, 0}; /* differences are in the order of a, then in that of b */

    run->progress.struct_size = sizeof run->progress;
    while ((run->status = stoker_diff_next(diff, 1000, &found, &run->error)) == 1 ||
           run->status == STOKER_ERROR_AGAIN) {
        if (run->status == 1 && run->count < FOUND_MAX) {
            snprintf(run->text[run->count], sizeof run->text[0], "%s %.*s %s%s%s%s%s",
                     stoker_difference_name(found.kind), (int)found.key_bytes, found.key,
                     tail(found.shard_a), found.shard_a[0] && found.shard_b[0] ? ">" : "",
                     tail(found.shard_b), found.members[0] ? " " : "", found.members);
        }
        if (run->status == 1) {
            bool added = found.sample_a == STOKER_NO_SAMPLE;
            uint64_t sample = added ? found.sample_b : found.sample_a;

            T_TRUE("order", sample >= least[added]);
            least[added] = sample + 1;
            least[0] = added ? STOKER_NO_SAMPLE : least[0];
            run->count++;
        }
    }
    stoker_diff_progress(diff, &run->progress);
}

static int open_set(struct stoker_engine *engine, const char *url,
                    struct stoker_dataset **dataset_out, struct stoker_error *error)
{
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = &url, .url_count = 1, .member_gap_max = 8};

    return stoker_dataset_open(dataset_out, engine, &options, error);
}

/* Compares /a and /b. */
static void run_diff(struct stoker_engine *engine, struct run *run)
{
    struct stoker_dataset *a = NULL, *b = NULL;
    struct stoker_diff *diff = NULL;

    memset(run, 0, sizeof *run);
    run->status = open_set(engine, "/a", &a, &run->error);
    run->status = run->status < 0 ? run->status : open_set(engine, "/b", &b, &run->error);
    if (run->status == 0) {
        run->status = stoker_diff_open(&diff, a, b, NULL, &run->error);
    }
    stoker_dataset_close(a); /* the comparison holds them */
    stoker_dataset_close(b);
    if (run->status == 0) {
        pull(diff, run);
    }
    stoker_diff_close(diff);
}

/* ---- rows ------------------------------------------------------------------------------- */

static const struct diff_row {
    const char *name, *a, *b;
    const char *want[5];
    int same;
} diff_rows[] = {
    {"the same", "k.x=1 l.x=2", "k.x=1 l.x=2", {NULL}, 2},
    {"other shards and order",
     "k.x=1 k.y=2 l.x=2 | m.x=3",
     "m.x=3 | l.x=2 | k.y=2 k.x=1",
     {NULL},
     3},
    {"packed", "k.x=1 l.x=2", ">k.x=1 l.x=2", {NULL}, 2},
    {"parts that lie apart", "k.x=1 l.x=2 k.y=3 l.y=4", "k.x=1 k.y=3 l.x=2 l.y=4", {NULL}, 2},
    {"parts that lie apart, packed",
     ">k.x=1 l.x=2 k.y=3 l.y=4",
     "k.x=1 k.y=3 l.x=2 l.y=4",
     {NULL},
     2},
    {"added", "k.x=1", "k.x=1 | l.x=2", {"added l 1.tar"}, 1},
    {"removed", "k.x=1 l.x=2", "l.x=2", {"removed k 0.tar"}, 1},
    {"changed", "k.x=1 l.x=2 l.y=5", "k.x=1 l.x=3 l.y=5", {"changed l 0.tar>0.tar x"}, 1},
    {"longer", "k.x=1", "k.x=11", {"changed k 0.tar>0.tar x"}, 0},
    {"longer, packed", ">k.x=1", ">k.x=11", {"changed k 0.tar.gz>0.tar.gz x"}, 0},
    {"changed, packed", ">k.x=1", "k.x=2", {"changed k 0.tar.gz>0.tar x?"}, 0},
    {"empty to one", "k.x= k.y=", "k.x= k.y=1", {"changed k 0.tar>0.tar y"}, 0},
    {"members", "k.x=1 k.y=2 k.z=3", "k.w=0 k.x=1 k.y=3", {"changed k 0.tar>0.tar y -z +w"}, 0},
    {"contents swapped", "k.x=1 k.y=2", "k.x=2 k.y=1", {"changed k 0.tar>0.tar x y"}, 0},
    {"another extension", "k.x=1", "k.y=1", {"changed k 0.tar>0.tar -x +y"}, 0},
    {"twins, the same", "k.x=1 | k.x=2", "k.x=2 | k.x=1", {NULL}, 2},
    {"twins, one more", "k.x=1 | k.x=1", "k.x=1", {"removed k 1.tar"}, 1},
    {"twins, one changed", "k.x=1 | k.x=2", "k.x=2 | k.x=3", {"changed k 0.tar>1.tar x"}, 1},
    {"all kinds",
     "a.x=1 b.x=2 c.x=3 | d.x=4",
     "e.x=5 c.x=4 | a.x=1 f.x=1 | d.x=4",
     {"removed b 0.tar", "changed c 0.tar>0.tar x", "added e 0.tar", "added f 1.tar"},
     2},
    {"folders",
     "/cat/1.jpg=1 cat/2.jpg=2 dog/1.jpg=3",
     "/cat/1.jpg=1 dog/1.jpg=4 dog/2.jpg=2",
     {"removed cat/2.jpg cat/2.jpg", "changed dog/1.jpg dog/1.jpg>dog/1.jpg jpg",
      "added dog/2.jpg dog/2.jpg"},
     1},
    {"folder and tar",
     "/cat/1.JPG=1 cat/2.left.png=2 dog/3.jpg=3",
     "cat/1.jpg=1 cat/1.cls=0 | cat/2.left.png=2 cat/2.cls=0 dog/3.jpg=3 dog/3.cls=1",
     {NULL},
     3},
    {"tar and folder",
     "cat/1.jpg=1 cat/1.cls=0 cat/2.jpg=5",
     "/cat/1.jpg=2 cat/2.png=5",
     {"changed cat/1 0.tar>cat/1.jpg jpg", "changed cat/2 0.tar>cat/2.png -jpg +png"},
     0},
};

static void test_rows(void)
{
    static struct run run;

    T_EACH(diff_row, row, diff_rows)
    {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 64u << 20);
        int wanted = 0;
        bool good;

        add_set(world, "/a", row->a);
        add_set(world, "/b", row->b);
        run_diff(engine, &run);
        good = T_EQ(row->name, run.status, 0);
        for (; wanted < 5 && row->want[wanted]; wanted++) {
            good &= T_STR(row->name, run.text[wanted], row->want[wanted]);
        }
        good &= T_EQ(row->name, run.count, wanted) & T_EQ(row->name, run.progress.same, row->same);
        good &= T_EQ(row->name, run.progress.added + run.progress.removed + run.progress.changed,
                     wanted);
        good &= T_EQ(row->name, run.progress.finished, 1);
        if (!good) {
            print_run(&run);
        }
        stoker_engine_close(engine);
    }
}

/* ---- many ------------------------------------------------------------------------------- */

enum { KEYS = 400, CONTENTS = 3, MANY = 9000 };

static uint64_t seed_state;

static uint32_t draw(uint32_t below)
{
    seed_state = stk_mix64(seed_state + 1);
    return (uint32_t)(seed_state % below);
}

/* Random samples, in shards of 300; counts[key][content]: so often. */
static void add_random(struct stk_io *world, const char *url, int samples,
                       int counts[KEYS][CONTENTS])
{
    struct t_tar tar = {0};
    bool used[KEYS] = {false}; /* in this shard: a key is in a tar once */
    int shard = 0;

    memset(counts, 0, sizeof(int) * KEYS * CONTENTS);
    for (int i = 0; i < samples; i++) {
        uint32_t key = draw(KEYS), content = draw(CONTENTS);
        char name[32], text[8], path[32];

        if (i % 300 == 299 || i == samples - 1) {
            t_tar_end(&tar);
            snprintf(path, sizeof path, "%s/%04d.tar", url, shard++);
            stk_sim_add(world, path, tar.data, tar.bytes);
            t_tar_free(&tar);
            memset(used, 0, sizeof used);
            continue;
        }
        if (used[key]) {
            continue;
        }
        used[key] = true;
        counts[key][content]++;
        snprintf(name, sizeof name, "key%u.x", key);
        snprintf(text, sizeof text, "%u", content);
        t_tar_add(&tar, name, text, strlen(text));
    }
}

/* More than two buckets and than one run of keys can hold: compared with a count. */
static void test_many(uint64_t seed)
{
    static int counts[2][KEYS][CONTENTS];
    static struct run run;
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 64u << 20);
    uint64_t same = 0, added = 0, removed = 0, changed = 0;
    bool good;

    seed_state = seed;
    add_random(world, "/a", MANY, counts[0]);
    add_random(world, "/b", MANY + (int)draw(MANY / 4), counts[1]);
    for (int k = 0; k < KEYS; k++) {
        uint64_t left[2] = {0, 0};

        for (int c = 0; c < CONTENTS; c++) {
            uint64_t both = stk_min((uint64_t)counts[0][k][c], (uint64_t)counts[1][k][c]);

            same += both;
            left[0] += (uint64_t)counts[0][k][c] - both;
            left[1] += (uint64_t)counts[1][k][c] - both;
        }
        changed += stk_min(left[0], left[1]);
        removed += left[0] - stk_min(left[0], left[1]);
        added += left[1] - stk_min(left[0], left[1]);
    }
    run_diff(engine, &run);
    good = T_EQ("many", run.status, 0) & T_EQ("same", run.progress.same, same) &
           T_EQ("added", run.progress.added, added) &
           T_EQ("removed", run.progress.removed, removed) &
           T_EQ("changed", run.progress.changed, changed) &
           T_EQ("given", run.count, added + removed + changed);
    if (!good) {
        printf("seed %llu\n", (unsigned long long)seed);
        print_run(&run);
    }
    stoker_engine_close(engine);
}

/* ---- checksums of an index -------------------------------------------------------------- */

/* An index of URL/0.tar with one member k.x at 512; sum: of the index, 0: without checksums;
 * digest: the first byte of the shard's SHA-256, 0: without. */
static void give_index(struct stoker_dataset *dataset, const char *path, uint64_t sum,
                       uint8_t digest)
{
    struct stk_index_options options = {.shard_count = 1};
    struct stk_index *index = NULL;
    struct stk_index_shard_builder *builder = NULL;

    T_EQ("index", stk_index_open(&index, &options, NULL), 0);
    T_EQ("shard", stk_index_shard_begin(index, 0, path, &builder, NULL), 0);
    T_EQ("member",
         stk_index_shard_add(builder, (struct stk_view){(const uint8_t *)"k.x", 3}, 512, 1, NULL),
         0);
    if (sum) {
        T_EQ("sum", stk_index_shard_set_checksum(builder, sum, NULL), 0);
    }
    if (digest) {
        stk_index_shard_set_digest(builder, (const uint8_t[32]){digest});
    }
    T_EQ("end", stk_index_shard_end(builder, 2048, 0, NULL), 0);
    T_EQ("finish", stk_index_finish(index, 0, NULL), 0);
    stk_index_close(dataset->index);
    dataset->index = index;
}

/* Indexes with checksums are trusted: nothing is read, though the disk has other data. */
static void test_checksums(void)
{
    static const struct checksum_row {
        const char *name;
        bool sums[2], reread, same;
        int status;
        uint64_t changed;
        uint8_t digests[2];
    } rows[] = {
        {"both, the same", {true, true}, false, true, 0, 0, {0, 0}},
        {"both, another", {true, true}, false, false, 0, 1, {0, 0}},
        {"one", {true, false}, false, true, -EIO, 0, {0, 0}},
        {"none", {false, false}, false, true, -EIO, 0, {0, 0}},
        {"both, reread", {true, true}, true, true, -EIO, 0, {0, 0}},
        {"none, but one SHA-256", {false, false}, false, true, 0, 0, {7, 7}},
        {"it counts first", {true, true}, false, false, 0, 0, {7, 7}},
        {"another SHA-256, the same samples", {true, true}, false, true, 0, 0, {7, 8}},
        {"another SHA-256", {true, true}, false, false, 0, 1, {7, 8}},
        {"of one side only", {true, false}, false, true, -EIO, 0, {7, 0}},
        {"one SHA-256, reread", {true, true}, true, true, -EIO, 0, {7, 7}},
    };

    T_EACH(checksum_row, row, rows)
    {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 64u << 20);
        struct stoker_dataset *sets[2] = {NULL, NULL};
        struct stoker_diff_options options = {.struct_size = sizeof options, .reread = row->reread};
        struct stoker_diff *diff = NULL;
        struct run run = {0};

        add_set(world, "/a", "k.x=1");
        add_set(world, "/b", "k.x=1");
        T_EQ("open", open_set(engine, "/a", &sets[0], NULL), 0);
        T_EQ("open", open_set(engine, "/b", &sets[1], NULL), 0);
        give_index(sets[0], "/a/0.tar", row->sums[0] ? stk_xxh3_64("1", 1) : 0, row->digests[0]);
        give_index(sets[1], "/b/0.tar", row->sums[1] ? stk_xxh3_64(row->same ? "1" : "2", 1) : 0,
                   row->digests[1]);
        stk_sim_add_rule(world, &(struct stk_sim_rule){.fault = STK_SIM_FAULT_EIO});
        T_EQ(row->name, stoker_diff_open(&diff, sets[0], sets[1], &options, &run.error), 0);
        pull(diff, &run);
        T_EQ(row->name, run.status, row->status);
        T_EQ(row->name, run.progress.changed, row->changed);
        T_STR(row->name, run.text[0], row->changed ? "changed k 0.tar>0.tar x" : "");
        if (row->status == 0) {
            T_EQ(row->name, run.progress.bytes, 0);
        } else {
            T_ERROR(row->name, &run.error);
            T_HAS(row->name, run.error.shard, "/0.tar");
        }
        stoker_diff_close(diff);
        stoker_dataset_close(sets[0]);
        stoker_dataset_close(sets[1]);
        stoker_engine_close(engine);
    }
}

/* ---- faults and bounds ------------------------------------------------------------------ */

static uint64_t diff_failing(bool seam, uint64_t n)
{
    static struct run run;
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 64u << 20);
    uint64_t calls;

    add_set(world, "/a", "a.x=1 b.x=2 | c.x=3");
    add_set(world, "/b", ">b.x=4 c.x=3 d.x=5");
    calls = seam ? stk_sim_calls(world) : stk_mem_calls();
    if (seam) {
        stk_sim_fail_nth(world, n);
    } else {
        stk_mem_fail_nth(n);
    }
    run_diff(engine, &run);
    stk_mem_fail_nth(0);
    stk_sim_fail_nth(world, 0);
    calls = (seam ? stk_sim_calls(world) : stk_mem_calls()) - calls;
    if (run.status < 0) {
        T_ERROR(seam ? "fail-nth, seam" : "fail-nth, memory", &run.error);
    } else { /* a reading that was only tried (warm) may fail and go unseen: the result is right */
        T_EQ("differences", run.count, 3);
    }
    stoker_engine_close(engine);
    return calls;
}

static void test_fail_nth(void)
{
    for (int seam = 0; seam < 2; seam++) {
        uint64_t calls = diff_failing(seam, 0);

        T_TRUE("calls", calls > 10);
        for (uint64_t n = 1; n <= calls; n++) {
            diff_failing(seam, n);
        }
    }
}

static void test_bounds(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 64u << 20);
    struct stoker_dataset *set = NULL;
    struct stoker_diff *diff = NULL;
    struct {
        struct stoker_diff_progress known;
        uint64_t more;
    } progress = {.known.struct_size = sizeof progress, .more = 9};
    struct stoker_error error = {0};
    struct run run = {0};

    add_set(world, "/a", "k.x=1 l.x=2");
    add_set(world, "/b", "k.x=1 l.x=2");
    T_EQ("open", open_set(engine, "/a", &set, NULL), 0);
    T_EQ("one set", stoker_diff_open(&diff, set, NULL, NULL, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("one set", &error);
    T_EQ("with itself", stoker_diff_open(&diff, set, set, NULL, &error), 0);
    T_EQ("later progress", stoker_diff_progress(diff, &progress.known), 0);
    T_EQ("later progress", progress.more, 0);
    progress.known.struct_size = 0;
    T_EQ("no progress", stoker_diff_progress(diff, &progress.known), STOKER_ERROR_ARGUMENT);
    pull(diff, &run);
    T_EQ("with itself", run.status, 0);
    T_EQ("with itself", run.progress.same, 2);
    stoker_diff_close(diff);
    T_EQ("again", stoker_diff_open(&diff, set, set, NULL, &error), 0);
    stoker_diff_close(diff); /* at once */
    stoker_diff_close(NULL);
    /* The shard was cut after it was opened. */
    stk_sim_add_rule(world, &(struct stk_sim_rule){.path = "/a/0.tar",
                                                   .fault = STK_SIM_FAULT_TRUNCATED,
                                                   .offset = 1024});
    T_EQ("cut", stoker_diff_open(&diff, set, set, NULL, &error), 0);
    memset(&run, 0, sizeof run);
    pull(diff, &run);
    T_EQ("cut", run.status, STOKER_ERROR_TRUNCATED);
    T_ERROR("cut", &run.error);
    T_STR("cut", run.error.key, "l");
    stoker_diff_close(diff);
    stoker_dataset_close(set);
    stoker_engine_close(engine);
    engine = open_engine(&world, 1u << 20); /* no room for a reader */
    add_set(world, "/a", "k.x=1");
    add_set(world, "/b", "k.x=2");
    run_diff(engine, &run);
    T_EQ("no memory for a reader", run.status, STOKER_ERROR_BUDGET);
    T_ERROR("no memory for a reader", &run.error);
    T_STR("names", stoker_difference_name(99), "unknown");
    stoker_engine_close(engine);
}

int main(void)
{
    test_rows();
    for (uint64_t seed = 1; seed <= 3; seed++) {
        test_many(seed);
    }
    test_checksums();
    test_fail_nth();
    test_bounds();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
