/* Goal: the next indexing run finds the shards that a run finished, by name, size and mtime; it
 * skips the incomplete end that a kill left and appends after it; removal leaves no file.
 * Method: small indexes in the simulated file system; the journal truncated after every byte; the
 * list of remaining files. */
#include "index/index_journal.h"

#include "base/mem.h"
#include "io/sim/sim.h"
#include "test/t.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char index_path[] = "/d/stoker.index", part_path[] = "/d/stoker.index.part";

/* The index of a shard "/d/NAME" of `bytes`, with one member. */
static struct stk_index *make_index(const char *name, uint64_t bytes)
{
    const struct stk_index_options options = {.shard_count = 1};
    const struct stk_view member = {(const uint8_t *)"k.jpg", 5};
    struct stk_index_shard_builder *builder = NULL;
    struct stk_index *index = NULL;
    char path[64];

    snprintf(path, sizeof path, "/d/%s", name);
    if (stk_index_open(&index, &options, NULL) < 0 ||
        stk_index_shard_begin(index, 0, path, &builder, NULL) < 0 ||
        stk_index_shard_add(builder, member, 512, 9, NULL) < 0 ||
        stk_index_shard_end(builder, bytes, 0, NULL) < 0 || stk_index_finish(index, 0, NULL) < 0) {
        stk_index_close(index);
        return NULL;
    }
    return index;
}

static struct stk_index *make_two(void)
{
    const struct stk_index_options options = {.shard_count = 2};
    const struct stk_view member = {(const uint8_t *)"k.jpg", 5};
    const char *const paths[] = {"/d/a.tar", "/d/b.tar"};
    struct stk_index_shard_builder *builder = NULL;
    struct stk_index *index = NULL;
    int status = stk_index_open(&index, &options, NULL);

    for (uint32_t i = 0; i < 2 && status == 0; i++) {
        status = stk_index_shard_begin(index, i, paths[i], &builder, NULL);
        status = status < 0 ? status : stk_index_shard_add(builder, member, 512, 9, NULL);
        status = status < 0 ? status : stk_index_shard_end(builder, 1024, i, NULL);
    }
    T_EQ("two", status < 0 ? status : stk_index_finish(index, 0, NULL), 0);
    return index;
}

static struct stk_index_journal *open_journal(struct stk_io *world, bool fresh)
{
    struct stoker_error error = {0};
    struct stk_index_journal *journal = NULL;

    if (!T_EQ("opens", stk_index_journal_open(&journal, world, index_path, fresh, &error), 0)) {
        printf("%s\n", error.what);
    }
    return journal;
}

static void add(struct stk_index_journal *journal, const char *name, uint64_t bytes,
                uint64_t mtime_ns)
{
    struct stk_index *index = make_index(name, bytes);
    struct stk_view image = {NULL, 0};

    if (index) {
        T_EQ("has an image", stk_index_image(index, "/d/", &image, NULL), 0);
        T_EQ("is added", stk_index_journal_add(journal, image, mtime_ns, NULL), 0);
        stk_free((void *)(uintptr_t)image.data);
    }
    T_TRUE("is made", index != NULL);
    stk_index_close(index);
}

static bool is_there(struct stk_io *world, const char *path)
{
    struct stk_stat about;

    return stk_io_stat_path(world, path, &about, NULL) == 0;
}

static void test_found(struct stk_io *world)
{
    struct stk_index_journal *journal = open_journal(world, false), *second = NULL;
    struct stoker_error error = {0};
    const struct stk_index *found;

    add(journal, "a.tar", 1024, 7);
    add(journal, "b.tar", 2048, 8);
    T_TRUE("own entries are not found", !stk_index_journal_find(journal, "a.tar", 1024, 7));
    T_EQ("another run waits", stk_index_journal_open(&second, world, index_path, false, &error),
         -EBUSY);
    stk_index_journal_close(journal);
    journal = open_journal(world, false);
    found = stk_index_journal_find(journal, "a.tar", 1024, 7);
    T_TRUE("found", found && stk_index_shard_bytes(found, 0) == 1024);
    found = stk_index_journal_find(journal, "b.tar", 2048, 8);
    T_TRUE("found too", found && stk_index_shard_bytes(found, 0) == 2048);
    T_TRUE("another size", !stk_index_journal_find(journal, "a.tar", 1025, 7));
    T_TRUE("another mtime", !stk_index_journal_find(journal, "a.tar", 1024, 8));
    T_TRUE("another name", !stk_index_journal_find(journal, "c.tar", 1024, 7));
    add(journal, "a.tar", 4096, 9); /* it changed meanwhile */
    stk_index_journal_close(journal);
    journal = open_journal(world, false);
    T_TRUE("the later one counts", stk_index_journal_find(journal, "a.tar", 4096, 9) != NULL);
    T_TRUE("not the earlier one", !stk_index_journal_find(journal, "a.tar", 1024, 7));
    T_TRUE("the other stays", stk_index_journal_find(journal, "b.tar", 2048, 8) != NULL);
    T_TRUE("a file a run", is_there(world, "/d/stoker.index.part.1"));
    T_EQ("removed", stk_index_journal_remove(journal, NULL), 0);
    stk_index_journal_close(journal);
    T_TRUE("no file", !is_there(world, part_path) && !is_there(world, "/d/stoker.index.part.1"));
}

/* A run that adds nothing, or ends before it begins, takes nothing from those before it. */
static void test_adds_nothing(struct stk_io *world)
{
    struct stk_index_journal *journal = open_journal(world, false);
    struct stk_index *two = NULL;
    struct stk_view image = {NULL, 0};

    add(journal, "a.tar", 1024, 7);
    stk_index_journal_remove_stale(world, index_path); /* while one has it */
    T_TRUE("what is in use is not swept", is_there(world, part_path));
    stk_index_journal_close(journal);
    for (int i = 0; i < 2; i++) {
        journal = open_journal(world, false);
        T_TRUE("found again", stk_index_journal_find(journal, "a.tar", 1024, 7) != NULL);
        stk_index_journal_close(journal);
    }
    journal = open_journal(world, false); /* an index of two shards is no record of one */
    two = make_two();
    T_EQ("has an image", two && stk_index_image(two, "/d/", &image, NULL) == 0, 1);
    T_EQ("is added", stk_index_journal_add(journal, image, 9, NULL), 0);
    stk_free((void *)(uintptr_t)image.data);
    stk_index_close(two);
    T_EQ("removed while it is written", stk_index_journal_remove(journal, NULL), 0);
    T_TRUE("no file", !is_there(world, part_path) && !is_there(world, "/d/stoker.index.part.1"));
    stk_index_journal_close(journal);
    journal = open_journal(world, false);
    two = make_two();
    T_EQ("has an image", two && stk_index_image(two, "/d/", &image, NULL) == 0, 1);
    T_EQ("is added", stk_index_journal_add(journal, image, 9, NULL), 0);
    stk_free((void *)(uintptr_t)image.data);
    stk_index_close(two);
    add(journal, "c.tar", 512, 3);
    stk_index_journal_close(journal);
    journal = open_journal(world, false);
    T_TRUE("two are passed over", !stk_index_journal_find(journal, "a.tar", 1024, 9));
    T_TRUE("what is behind is found", stk_index_journal_find(journal, "c.tar", 512, 3) != NULL);
    stk_index_journal_close(journal);
}

/* With as many files as the reader accepts, a file that a further run added would never be
 * found. */
static void test_many_files(struct stk_io *world)
{
    struct stk_index_journal *journal;
    char path[64];

    for (uint32_t i = 0; i < STK_INDEX_JOURNAL_FILES_MAX; i++) {
        snprintf(path, sizeof path, i ? "%s.%u" : "%s", part_path, i);
        T_EQ("is added", stk_sim_add(world, path, "x", 1), 0);
    }
    journal = open_journal(world, false);
    add(journal, "a.tar", 1024, 7);
    stk_index_journal_close(journal);
    T_TRUE("they begin anew", is_there(world, part_path) && !is_there(world, path));
    journal = open_journal(world, false);
    T_TRUE("found", stk_index_journal_find(journal, "a.tar", 1024, 7) != NULL);
    stk_index_journal_close(journal);
}

static void test_fresh(struct stk_io *world)
{
    struct stk_index_journal *journal = open_journal(world, false);

    add(journal, "a.tar", 1024, 7);
    stk_index_journal_close(journal);
    journal = open_journal(world, true);
    T_TRUE("begins anew", !stk_index_journal_find(journal, "a.tar", 1024, 7));
    stk_index_journal_close(journal);
    T_TRUE("an empty one goes", !is_there(world, part_path));
}

/* A journal of two records that was cut after `bytes`: complete records are found, no other. */
static void check_cut(struct stk_io *world, struct stk_view full_image, size_t bytes, size_t one)
{
    struct stk_index_journal *journal;
    char name[64];

    snprintf(name, sizeof name, "%zu of %zu bytes", bytes, full_image.bytes);
    T_EQ(name, stk_sim_add(world, part_path, full_image.data, bytes), 0);
    journal = open_journal(world, false);
    T_EQ(name, stk_index_journal_find(journal, "a.tar", 1024, 7) != NULL, bytes >= one);
    T_EQ(name, stk_index_journal_find(journal, "b.tar", 2048, 8) != NULL,
         bytes == full_image.bytes);
    T_EQ(name, stk_index_journal_remove(journal, NULL), 0);
    stk_index_journal_close(journal);
}

static void test_cut(struct stk_io *world)
{
    struct stk_index_journal *journal = open_journal(world, false);
    struct stk_view view = {NULL, 0};
    struct stk_file *file = NULL;
    uint8_t bytes[8192];
    size_t count, one;

    add(journal, "a.tar", 1024, 7);
    stk_index_journal_close(journal);
    T_EQ("opens", stk_io_open_file(world, part_path, &file, NULL), 0);
    T_EQ("maps", stk_io_map(world, file, &view, NULL), 0);
    one = view.bytes;
    T_TRUE("fits", one > 0 && one <= sizeof bytes / 2);
    memcpy(bytes, view.data, one);
    stk_io_unmap(world, view);
    stk_io_close_file(file);

    journal = open_journal(world, true);
    add(journal, "b.tar", 2048, 8);
    stk_index_journal_close(journal);
    T_EQ("opens", stk_io_open_file(world, part_path, &file, NULL), 0);
    T_EQ("maps", stk_io_map(world, file, &view, NULL), 0);
    count = one + view.bytes;
    T_TRUE("fits", count <= sizeof bytes);
    memcpy(bytes + one, view.data, count - one);
    stk_io_unmap(world, view);
    stk_io_close_file(file);

    T_EQ("makes room", stk_io_remove(world, part_path, NULL), 0);
    for (size_t at = 1; at <= count; at++) {
        check_cut(world, (struct stk_view){bytes, count}, at, one);
    }
    for (size_t at = 0; at < one; at += 8) { /* a byte of the first record is wrong */
        bytes[at] ^= 1;
        T_EQ("is added", stk_sim_add(world, part_path, bytes, count), 0);
        journal = open_journal(world, false);
        T_TRUE("a damaged record", !stk_index_journal_find(journal, "a.tar", 1024, 7));
        T_EQ("removed", stk_index_journal_remove(journal, NULL), 0);
        stk_index_journal_close(journal);
        bytes[at] ^= 1;
    }
}

static void test_sweep(struct stk_io *world)
{
    T_EQ("is added", stk_sim_add(world, part_path, "x", 1), 0);
    T_EQ("is added", stk_sim_add(world, "/d/stoker.index.part.1", "x", 1), 0);
    stk_index_journal_remove_stale(world, index_path);
    T_TRUE("swept", !is_there(world, part_path) && !is_there(world, "/d/stoker.index.part.1"));
}

int main(void)
{
    static void (*const tests[])(struct stk_io *) = {test_found, test_adds_nothing, test_many_files,
                                                     test_fresh, test_cut,          test_sweep};
    const struct stk_io_options options = {.depth = 2, .read_timeout_ms = 1000};

    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        struct stk_io *world = NULL;

        T_EQ("a world", stk_sim_open(&world, 1, &options, NULL), 0);
        T_EQ("a folder", stk_sim_add(world, "/d", NULL, 0), 0);
        tests[i](world);
        stk_io_close(world);
    }
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
