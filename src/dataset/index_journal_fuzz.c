/* Fuzz of index_journal.c and index_stamp.c: any bytes as the journal of a killed indexing run, or
 * as the stamp of an index; the last byte chooses, and whether the sums are corrected. Incomplete
 * entries are skipped without an error; the next run can always begin. */
#include "index/index_journal.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "dataset/index_locate.h"
#include "io/sim/sim.h"

#include <string.h>

static const char path[] = "/d/stoker.index", name[] = "a.tar";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* An index of one tar, as a file of the world; the index itself stays open. */
static struct stk_index *make_index(struct stk_io *world)
{
    struct stk_index_options options = {.shard_count = 1};
    struct stk_index_shard_builder *builder = NULL;
    struct stk_index *index = NULL;
    struct stk_view member = {(const uint8_t *)"k.jpg", 5};

    STK_ASSERT(stk_sim_add(world, "/d", NULL, 0) == 0);
    STK_ASSERT(stk_index_open(&index, &options, NULL) == 0);
    STK_ASSERT(stk_index_shard_begin(index, 0, "/d/a.tar", &builder, NULL) == 0);
    STK_ASSERT(stk_index_shard_add(builder, member, 512, 9, NULL) == 0);
    STK_ASSERT(stk_index_shard_end(builder, 2048, 0, NULL) == 0);
    STK_ASSERT(stk_index_finish(index, 0, NULL) == 0);
    STK_ASSERT(stk_index_set_root(index, "/d/", NULL) == 0);
    STK_ASSERT(stk_index_write(index, world, path, NULL) == 0);
    return index;
}

static void read_journal(struct stk_io *world)
{
    struct stoker_error error = {0};
    struct stk_index_journal *journal = NULL;
    const struct stk_index *found;
    int status = stk_index_journal_open(&journal, world, path, false, &error);

    STK_ASSERT(status == 0);
    for (uint64_t size = 0; size <= 2048; size += 512) {
        found = stk_index_journal_find(journal, name, size, 7);
        STK_ASSERT(!found || stk_index_shards(found) == 1);
        STK_ASSERT(!found || stk_index_shard_bytes(found, 0) == size);
    }
    STK_ASSERT(stk_index_journal_remove(journal, &error) == 0);
    stk_index_journal_close(journal);
}

static void read_stamp(struct stk_io *world, const struct stk_index *index)
{
    struct stoker_error error = {0};
    struct stk_index_stamp stamp;
    const char *next;

    STK_ASSERT(stk_index_stamp_read(&stamp, world, path, index, &error) == 0);
    next = stamp.names;
    for (uint64_t i = 0; stamp.valid && i < stamp.count && *next; i++) {
        next += strlen(next) + 1; /* so that a sanitizer detects reads past its end */
        STK_ASSERT(stamp.mtimes[i] != 1 || next);
    }
    stk_index_stamp_deinit(&stamp);
}

/* A stamp of this index with valid structure: magic, version, zero, count, names, inode, identity;
 * the sum at the end. */
static void fix_stamp(uint8_t *data, size_t bytes, struct stk_io *world,
                      const struct stk_index *index)
{
    struct stk_stat about;
    uint64_t sum;

    if (bytes >= 80 && stk_io_stat_path(world, path, &about, NULL) == 0) {
        memcpy(data, "STOKERST\1\0\0\0", 12);
        memcpy(data + 32, &about.inode, 8);
        memcpy(data + 40, stk_index_identity(index), 32);
        sum = stk_xxh3_64(data, bytes - 8);
        memcpy(data + bytes - 8, &sum, 8);
    }
}

/* The simulator and the index in it are the same for all inputs, which leave nothing in it: they
 * cost four times as much as an input. */
static struct stk_io *world;
static struct stk_index *index_there;

static void set_up(void)
{
    struct stk_io_options options = {.depth = 2, .read_timeout_ms = 1000};

    STK_ASSERT(stk_sim_open(&world, 1, &options, NULL) == 0);
    index_there = make_index(world);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char stamp_path[] = "/d/stoker.index.stamp";
    uint8_t how = bytes ? data[bytes - 1] : 0, *copy;

    bytes -= bytes > 0;
    copy = stk_alloc(bytes + 1, 1);
    if (!copy) {
        return 0;
    }
    if (!world) {
        set_up();
    }
    memcpy(copy, data, bytes);
    if (how & 1) {
        if (how & 2) {
            fix_stamp(copy, bytes, world, index_there);
        }
        STK_ASSERT(stk_sim_add(world, stamp_path, copy, bytes) == 0);
        read_stamp(world, index_there);
        STK_ASSERT(stk_io_remove(world, stamp_path, NULL) == 0);
    } else {
        STK_ASSERT(stk_sim_add(world, "/d/stoker.index.part", copy, bytes) == 0);
        read_journal(world);
    }
    stk_free(copy);
    return 0;
}
