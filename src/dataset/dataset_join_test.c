/* Goal: joined data sets report, sample by sample, what each reports alone, whatever indexes they
 * came with and though they are closed; bytes of all of them are read, with no more open tars than
 * the limit; tars alone have the identity that they have as one list; sets that cannot be joined
 * are refused.
 * Method: tars and class folders in the simulator (dataset_refresh.c, the entries of dataset.c);
 * samples compared as text; every allocation fails once. */
#include "dataset/dataset_test.h"

#include <stdlib.h>

#define PARTS 4u

static const char *const urls[PARTS] = {"/data/s-000.tar", "/photos", "/data/s-{001..003}.tar",
                                        "/drawings"};

static void add_folder(struct stk_io *world, const char *root, int samples)
{
    char path[64], text[64];

    T_EQ(root, stk_sim_add(world, root, NULL, 0), 0);
    for (int class = 0; class < 2; class++) {
        snprintf(path, sizeof path, "%s/%s", root, class ? "dog" : "cat");
        T_EQ(path, stk_sim_add(world, path, NULL, 0), 0);
        for (int i = 0; i < samples; i++) {
            snprintf(path, sizeof path, "%s/%s/%02d.jpg", root, class ? "dog" : "cat", i);
            snprintf(text, sizeof text, "bytes of %s", path);
            T_EQ(path, stk_sim_add(world, path, text, strlen(text)), 0);
        }
    }
}

static struct stoker_engine *rig(struct stk_io **world_out)
{
    struct stoker_engine *engine = t_engine(world_out, 2);

    t_shards(*world_out, 0, 4);
    add_folder(*world_out, "/photos", 5);
    add_folder(*world_out, "/drawings", 2);
    return engine;
}

static void close_all(struct stoker_dataset *parts[PARTS])
{
    for (uint32_t i = 0; i < PARTS; i++) {
        stoker_dataset_close(parts[i]);
        parts[i] = NULL;
    }
}

static int open_all(struct stoker_engine *engine, struct stoker_dataset *parts[PARTS],
                    struct stoker_error *error)
{
    int status = 0;

    memset(parts, 0, PARTS * sizeof *parts);
    for (uint32_t i = 0; i < PARTS && status == 0; i++) {
        status = t_open(engine, urls[i], STOKER_INDEX_AUTO, &parts[i], error);
    }
    return status;
}

/* The lines of a data set's text that are samples. */
static const char *samples_of(const char *text)
{
    text = strchr(text, '\n') + 1;
    while (strncmp(text, "class ", 6) == 0) {
        text = strchr(text, '\n') + 1;
    }
    return text;
}

/* Each member read twice: more tars than may be open at once. */
static void check_bytes(struct stoker_dataset *dataset, uint64_t count)
{
    for (uint64_t n = 0; n < 2 * count; n++) {
        uint64_t sample = n * 7 % count;
        struct stoker_member_info members[4];
        size_t member_count = STK_COUNT(members), bytes;
        uint8_t data[2048];
        char key[64], want[96];

        T_EQ("sample",
             stoker_dataset_sample(dataset, sample, key, sizeof key, members, &member_count, NULL),
             0);
        T_EQ("read", stoker_dataset_read(dataset, sample, NULL, data, sizeof data, &bytes, NULL),
             0);
        if (member_count == 1) {
            snprintf(want, sizeof want, "bytes of %s", members[0].shard);
            T_TRUE("a file", bytes == strlen(want) && memcmp(data, want, bytes) == 0);
        } else {
            T_TRUE("a tar", bytes == 1000 && data[0] == 'a' + strtol(key + 1, NULL, 10));
        }
    }
}

static void test_parts(bool indexed)
{
    static char joined_text[T_TEXT_BYTES_MAX], one[T_TEXT_BYTES_MAX];
    struct stk_io *world;
    struct stoker_engine *engine = rig(&world);
    struct stoker_dataset *parts[PARTS], *joined = NULL;
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct stoker_error error = {0};
    uint64_t end = 0, at;
    const char *rest;

    for (uint32_t i = 0; indexed && i < 2; i++) {
        T_EQ("index", t_index(engine, urls[i], NULL, NULL, &error), 0);
    }
    T_EQ("open", open_all(engine, parts, &error), 0);
    if (!T_EQ("join", stoker_dataset_join(parts, PARTS, &joined, &error), 0)) {
        printf("%s: %s\n", error.what, error.where);
        close_all(parts);
        return;
    }
    T_EQ("tell", t_tell(joined, joined_text, &error), 0);
    rest = samples_of(joined_text);
    for (uint32_t i = 0; i < PARTS; i++) {
        size_t bytes;

        T_EQ("tell", t_tell(parts[i], one, &error), 0);
        bytes = strlen(samples_of(one));
        T_TRUE("as it is alone", strncmp(rest, samples_of(one), bytes) == 0);
        rest += bytes;
        stoker_dataset_info(parts[i], &info);
        end += info.sample_count;
        T_EQ("end", stoker_dataset_url_end(joined, i, &at), 0);
        T_EQ("end", at, end);
    }
    T_EQ("no more", *rest, 0);
    close_all(parts);
    stoker_dataset_info(joined, &info);
    T_STR("kind", info.kind, "joined");
    T_EQ("all", info.sample_count, end);
    T_EQ("classes", info.class_count, 2);
    T_EQ("no size was requested", info.bytes, 0);
    check_bytes(joined, end);
    stoker_dataset_close(joined);
    stoker_engine_close(engine);
    T_EQ("no leak", stk_mem_alive(), 0);
}

/* Tars alone: the identity that states contain. */
static void test_tars(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = rig(&world);
    struct stoker_dataset *parts[2], *joined = NULL, *list = NULL;
    struct stoker_dataset_info one = {.struct_size = sizeof one};
    struct stoker_dataset_info other = {.struct_size = sizeof other};

    T_EQ("a", t_open(engine, urls[0], STOKER_INDEX_NEVER, &parts[0], NULL), 0);
    T_EQ("b", t_open(engine, urls[2], STOKER_INDEX_NEVER, &parts[1], NULL), 0);
    T_EQ("list", t_open(engine, "/data/s-{000..003}.tar", STOKER_INDEX_NEVER, &list, NULL), 0);
    T_EQ("join", stoker_dataset_join(parts, 2, &joined, NULL), 0);
    stoker_dataset_info(joined, &one);
    stoker_dataset_info(list, &other);
    T_TRUE("identity", memcmp(one.identity, other.identity, sizeof one.identity) == 0);
    stoker_dataset_close(parts[0]);
    stoker_dataset_close(parts[1]);
    stoker_dataset_close(joined);
    stoker_dataset_close(list);
    stoker_engine_close(engine);
}

static void test_refused(void)
{
    struct stk_io *worlds[2];
    struct stoker_engine *engine = rig(&worlds[0]), *other = rig(&worlds[1]);
    struct stoker_dataset *parts[PARTS], *two[2], *joined = NULL, *newer = NULL, *again = NULL;
    struct stoker_error error = {0};

    T_EQ("open", open_all(engine, parts, &error), 0);
    T_EQ("none", stoker_dataset_join(parts, 0, &joined, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("none", &error);
    two[0] = parts[0];
    T_EQ("open", t_open(other, urls[0], STOKER_INDEX_AUTO, &two[1], &error), 0);
    T_EQ("engines", stoker_dataset_join(two, 2, &joined, &error), STOKER_ERROR_ARGUMENT);
    stoker_dataset_close(two[1]);
    T_EQ("join", stoker_dataset_join(parts, PARTS, &joined, &error), 0);
    two[1] = joined;
    T_EQ("nested", stoker_dataset_join(two, 2, &again, &error), STOKER_ERROR_ARGUMENT);
    T_EQ("grows", stoker_dataset_refresh(joined, 0, &newer, &error), STOKER_ERROR_UNSUPPORTED);
    stoker_dataset_close(joined);
    close_all(parts);
    stoker_engine_close(engine);
    stoker_engine_close(other);
}

static bool fails_cleanly(uint64_t n)
{
    struct stk_io *world;
    struct stoker_engine *engine = rig(&world);
    struct stoker_dataset *parts[PARTS], *joined = NULL;
    struct stoker_error error = {0};
    int status;

    T_EQ("open", open_all(engine, parts, &error), 0);
    stk_mem_fail_nth(n);
    status = stoker_dataset_join(parts, PARTS, &joined, &error);
    stk_mem_fail_nth(0);
    if (status < 0) {
        T_ERROR("fail", &error);
    }
    stoker_dataset_close(joined);
    close_all(parts);
    stoker_engine_close(engine);
    T_EQ("no leak", stk_mem_alive(), 0);
    return status < 0;
}

int main(void)
{
    uint64_t failed = 0;

    test_parts(false);
    test_parts(true);
    test_tars();
    test_refused();
    for (uint64_t n = 1; n <= 90; n++) {
        failed += fails_cleanly(n);
    }
    T_TRUE("allocations", failed >= 30);
    return t_finish();
}
