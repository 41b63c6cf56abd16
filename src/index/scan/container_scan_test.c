/* Goal: the scan lists shards of formats that it does not know, with headers in front of members or
 * with a footer, together with tars, and builds an index; damage ends its shard only.
 * Method: the formats of test/tiny.h in the simulated file system; all reads cold or all warm.
 * tar_scan_test.c tests lanes. */
#include "index/scan/container_scan.h"

#include "base/mem.h"
#include "format/tar/tar_container.h"
#include "index/index.h"
#include "io/sim/sim.h"
#include "test/t.h"
#include "test/tars.h"
#include "test/tiny.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { SHARDS = 4, MEMBERS = 40 };

struct shard {
    struct stk_container_scan_shard scan; /* first */
    struct stk_index_shard_builder *builder;
    uint64_t rows;
    int status;
    bool ended;
};

struct run {
    struct stk_io *io;
    struct stk_index *index;
    struct shard shards[SHARDS];
    int given;
};

static int next(void *context, struct stk_container_scan_shard **shard_out,
                struct stoker_error *error)
{
    struct run *run = context;

    (void)error;
    if (run->given == SHARDS) {
        return 0;
    }
    *shard_out = &run->shards[run->given++].scan;
    return 1;
}

static int member(struct stk_container_scan_shard *scan, const struct stk_container_step *step,
                  struct stoker_error *error)
{
    struct shard *shard = (struct shard *)(void *)scan;
    char text[STK_CONTAINER_ROW_NAME_BYTES];
    struct stk_view name = step->name;

    if (step->kind == STK_MEMBER_ROW) {
        name = stk_container_row_name(scan->format, shard->rows++, text);
    }
    return stk_index_shard_add(shard->builder, name, step->offset, step->bytes, error);
}

static int may_continue(struct stk_container_scan_shard *scan, struct stoker_error *error)
{
    (void)scan;
    (void)error;
    return 0;
}

static void end(struct stk_container_scan_shard *scan, int status, const struct stoker_error *error)
{
    struct shard *shard = (struct shard *)(void *)scan;

    (void)error;
    T_TRUE("once", !shard->ended);
    shard->ended = true;
    shard->status = status;
    if (status == 0) {
        T_EQ("shard", stk_index_shard_end(shard->builder, scan->bytes, 0, NULL), 0);
    } else {
        stk_index_shard_cancel(shard->builder);
    }
}

static void add(struct run *run, int number, const struct stk_container_format *format,
                const uint8_t *data, size_t bytes)
{
    struct shard *shard = &run->shards[number];
    char path[16];

    snprintf(path, sizeof path, "/%d", number);
    T_EQ("add", stk_sim_add(run->io, path, data, bytes), 0);
    T_EQ("open", stk_io_open_file(run->io, path, &shard->scan.file, NULL), 0);
    T_EQ("begin", stk_index_shard_begin(run->index, (uint32_t)number, path, &shard->builder, NULL),
         0);
    shard->scan.format = format;
    shard->scan.bytes = bytes;
}

/* Shards 0 to 2 have the same members: as a walk, with a footer, as a tar. Shard 3 has rows. */
static void add_shards(struct run *run, bool is_cut)
{
    struct t_tiny walk, footer, rows;
    struct t_tar tar = {0};
    char name[32], data[32];

    t_tiny_begin(&walk, false);
    t_tiny_begin(&footer, true);
    t_tiny_begin(&rows, false);
    for (int i = 0; i < MEMBERS; i++) {
        int bytes = snprintf(data, sizeof data, "data of %d", i);

        snprintf(name, sizeof name, "k%02d.txt", i);
        t_tiny_add(&walk, name, data, (size_t)bytes);
        t_tiny_add(&footer, name, data, (size_t)bytes);
        t_tiny_add(&rows, NULL, data, (size_t)bytes);
        t_tar_add(&tar, name, data, (size_t)bytes);
    }
    t_tiny_end(&walk);
    t_tiny_end(&footer);
    t_tiny_end(&rows);
    t_tar_end(&tar);
    add(run, 0, &t_tiny_walk, walk.data, walk.bytes);
    add(run, 1, &t_tiny_footer, footer.data, footer.bytes - (is_cut ? 1 : 0));
    add(run, 2, &stk_tar_container, tar.data, tar.bytes);
    add(run, 3, &t_tiny_walk, rows.data, rows.bytes);
    t_tiny_free(&walk);
    t_tiny_free(&footer);
    t_tiny_free(&rows);
    t_tar_free(&tar);
}

/* Each sample's member is at the place of its data. */
static void check_index(struct run *run)
{
    char key[32], data[32], want[32];

    T_EQ("finish", stk_index_finish(run->index, 0, NULL), 0);
    T_EQ("samples", stk_index_samples(run->index), SHARDS * MEMBERS);
    for (uint64_t i = 0; i < stk_index_samples(run->index); i++) {
        struct stk_sample sample;
        struct stk_member found;
        int number = (int)(i % MEMBERS);

        T_EQ("sample", stk_index_sample(run->index, i, &sample, NULL), 0);
        T_EQ("members", sample.member_count, 1);
        T_EQ("member", stk_index_member(run->index, &sample, 0, &found, NULL), 0);
        snprintf(key, sizeof key, "%.*s", (int)sample.key.bytes, (const char *)sample.key.data);
        snprintf(want, sizeof want, found.shard == 3 ? "%09d" : "k%02d", number);
        T_STR("key", key, want);
        T_STR("extension", stk_index_extension(run->index, found.extension),
              found.shard == 3 ? "bin" : "txt");
        memset(data, 0, sizeof data);
        T_EQ("read",
             stk_io_read_wait(run->shards[found.shard].scan.file, found.offset, data, found.bytes),
             (int64_t)found.bytes);
        snprintf(want, sizeof want, "data of %d", number);
        T_STR("data", data, want);
    }
}

static void scan(bool is_cut, bool with_starts)
{
    static const struct stk_container_scan_callbacks calls = {next, member, may_continue, end};
    static const uint64_t starts[] = {100, 512, 1024};
    struct stk_io_options world = {.depth = 4, .read_timeout_ms = 1000};
    struct stk_index_options indexed = {.shard_count = SHARDS, .key_bytes_max = 100};
    struct run run = {0};
    _Atomic uint64_t bytes_read = 0;
    struct stk_container_scan_options options = {
        .calls = &calls, .context = &run, .search_share = 2, .bytes_read = &bytes_read};
    struct stoker_error error = {0};

    T_EQ("world", stk_sim_open(&run.io, 1, &world, NULL), 0);
    T_EQ("index", stk_index_open(&run.index, &indexed, NULL), 0);
    options.io = run.io;
    add_shards(&run, is_cut);
    for (int i = 0; i < SHARDS && with_starts; i++) {
        /* Guesses about formats that cannot start in the middle are ignored. */
        run.shards[i].scan.starts = starts;
        run.shards[i].scan.start_count = STK_COUNT(starts);
    }
    T_EQ("scan", stk_container_scan(&options, &error), 0);
    for (int i = 0; i < SHARDS; i++) {
        T_TRUE("ended", run.shards[i].ended);
        T_TRUE("status", is_cut && i == 1 ? run.shards[i].status < 0 : run.shards[i].status == 0);
    }
    if (!is_cut) {
        check_index(&run);
    }
    for (int i = 0; i < SHARDS; i++) {
        stk_io_close_file(run.shards[i].scan.file);
    }
    stk_index_close(run.index);
    stk_io_close(run.io);
}

int main(void)
{
    scan(false, false);
    scan(false, true);
    scan(true, false);
    return t_finish();
}
