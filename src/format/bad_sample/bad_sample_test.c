/* Goal: the description of a damaged sample is read back exactly from a record and a file, or
 * refused; its line is JSON for any names; a list appears under its name only when it is complete.
 * Method: rows of names, of truncations and of changed bytes; the simulated file system with
 * failures of each call and allocation. quarantine_test.c tests the reports of a loader. Covers
 * bad_sample.c, bad_sample_file.c. */
#include "format/bad_sample/bad_sample_file.h"

#include "base/mem.h"
#include "io/sim/sim.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>

enum { DAMAGES = 300 };

static const char path[] = "/out/list";

static struct stk_bad_sample *make(uint64_t sample, uint64_t offset, const char *shard,
                                   const char *key)
{
    struct stoker_error error = {0};

    stk_fail(&error, STOKER_ERROR_CORRUPT, "it is damaged", "repair it", "here");
    error.offset = offset;
    snprintf(error.shard, sizeof error.shard, "%s", shard);
    snprintf(error.key, sizeof error.key, "%s", key);
    return stk_bad_sample_new(sample, &error);
}

static void test_lines(void)
{
    static const struct row {
        const char *name;
        uint64_t sample, offset;
        const char *shard, *key, *want;
    } rows[] = {
        {"plain", 7, 512, "a.tar", "k/1",
         "{\"shard\": \"a.tar\", \"key\": \"k/1\", \"offset\": 512, \"status\": "
         "\"STOKER_ERROR_CORRUPT\", \"reason\": \"it is damaged\", \"sample\": 7}\n"},
        {"no numbers", STOKER_NO_SAMPLE, STOKER_NO_OFFSET, "", "",
         "{\"shard\": \"\", \"key\": \"\", \"offset\": null, \"status\": "
         "\"STOKER_ERROR_CORRUPT\", \"reason\": \"it is damaged\", \"sample\": null}\n"},
        {"quotes and controls", 0, 0, "a\"\\\n\x7f", "\xc3\xbc",
         "\"a\\u0022\\u005c\\u000a\\u007f\""},
        {"no UTF-8", 0, 0,
         "\xff"
         "a",
         "\xed\xa0\x80", "\"\\udcffa\""},
    };

    T_EACH(row, row, rows)
    {
        char line[STK_BAD_SAMPLE_LINE_BYTES + 1];
        struct stk_bad_sample *damage = make(row->sample, row->offset, row->shard, row->key);
        size_t bytes = stk_bad_sample_line(damage, line);

        line[bytes] = 0;
        T_HAS(row->name, line, row->want);
        T_EQ(row->name, line[bytes - 1], '\n');
        stk_free(damage);
    }
}

/* A record is read back completely; none of its prefixes is. */
static void test_records(void)
{
    uint8_t record[STK_BAD_SAMPLE_RECORD_BYTES];
    struct stk_bad_sample *damage = make(9, 1024, "shard", "key"), *back = NULL;
    size_t bytes = stk_bad_sample_write_record(damage, record);
    struct stk_view view = {record, bytes};

    T_EQ("read", stk_bad_sample_read_record(&view, &back), 1);
    T_EQ("all of it", view.bytes, 0);
    T_EQ("sample", back->sample, 9);
    T_EQ("offset", back->offset, 1024);
    T_EQ("status", back->status, STOKER_ERROR_CORRUPT);
    T_STR("shard", back->shard, "shard");
    T_STR("key", back->key, "key");
    T_STR("what", back->what, "it is damaged");
    stk_free(back);
    for (size_t cut = 0; cut < bytes; cut++) {
        view = (struct stk_view){record, cut};
        T_EQ("cut", stk_bad_sample_read_record(&view, &back), 0);
        T_EQ("stays", view.bytes, cut);
    }
    stk_free(damage);
}

static int write_list(struct stk_io *world, enum stk_bad_sample_file_format form,
                      struct stoker_error *error)
{
    struct stk_bad_sample_file *file = NULL;
    int status = stk_bad_sample_file_open(&file, world, path, form, error);

    for (uint64_t i = 0; status == 0 && i < DAMAGES; i++) {
        struct stk_bad_sample *damage = make(i, i, "/a/long/name/of/a/shard.tar", "key");

        status = damage ? stk_bad_sample_file_add(file, damage, error) : -ENOMEM;
        stk_free(damage);
    }
    status = status < 0 ? status : stk_bad_sample_file_commit(file, error);
    stk_bad_sample_file_close(file);
    return status;
}

static int count(void *context, struct stk_bad_sample *damage, struct stoker_error *error)
{
    uint64_t *next = context;

    (void)error;
    T_EQ("in order", damage->sample, *next);
    (*next)++;
    stk_free(damage);
    return 0;
}

static bool is_there(struct stk_io *world, const char *name)
{
    struct stk_stat about;

    return stk_io_stat_path(world, name, &about, NULL) == 0;
}

/* Each call fails once: then there is no file, or a complete one; and each allocation. */
static void test_files(void)
{
    for (int memory = 0; memory < 2; memory++) {
        uint64_t failures = 0;
        int passes = 0;

        for (uint64_t n = 0; passes < 3; n++) {
            struct stk_io *world;
            struct stoker_error error = {0};
            uint64_t read = 0;
            int status;

            T_EQ("world", stk_sim_open(&world, 1, NULL, NULL), 0);
            T_EQ("/out", stk_sim_add(world, "/out", NULL, 0), 0);
            T_EQ("none", stk_bad_sample_file_read(world, path, count, &read, &error), 0);
            if (memory) {
                stk_mem_fail_nth(n);
            } else {
                stk_sim_fail_nth(world, n);
            }
            status = write_list(world, STK_BAD_SAMPLE_FILE_RECORDS, &error);
            stk_mem_fail_nth(0);
            stk_sim_fail_nth(world, 0);
            failures += status < 0;
            passes = n > 0 && status == 0 ? passes + 1 : 0;
            T_TRUE("nothing beside it", status < 0 || !is_there(world, "/out/list.tmp"));
            if (is_there(world, path)) {
                T_EQ("complete", stk_bad_sample_file_read(world, path, count, &read, &error), 1);
                T_EQ("complete", read, DAMAGES);
            } else {
                T_TRUE("failed", status < 0);
            }
            stk_io_close(world);
        }
        T_TRUE("failures", failures > 4);
    }
}

/* Any changed byte: it is no list. */
static void test_changed(void)
{
    struct stk_io *world;
    struct stoker_error error = {0};
    struct stk_file *file = NULL;
    static uint8_t data[64 << 10];
    int64_t bytes;

    T_EQ("world", stk_sim_open(&world, 1, NULL, NULL), 0);
    T_EQ("/out", stk_sim_add(world, "/out", NULL, 0), 0);
    T_EQ("write", write_list(world, STK_BAD_SAMPLE_FILE_RECORDS, &error), 0);
    T_EQ("open", stk_io_open_file(world, path, &file, &error), 0);
    bytes = stk_io_read_wait(file, 0, data, sizeof data);
    stk_io_close_file(file);
    T_TRUE("read", bytes > 1000);
    for (int64_t at = 0; at < bytes; at += 97) {
        struct stk_output *out = NULL;
        uint64_t read = 0;

        data[at] ^= 4;
        T_EQ("write", stk_io_create(world, path, false, &out, &error), 0);
        T_EQ("write", stk_io_write(world, out, data, (size_t)bytes, &error), 0);
        stk_io_close_output(world, out);
        T_EQ("changed", stk_bad_sample_file_read(world, path, count, &read, &error), 0);
        T_EQ("nothing given", read, 0);
        data[at] ^= 4;
    }
    stk_io_close(world);
}

int main(void)
{
    test_lines();
    test_records();
    test_files();
    test_changed();
    T_EQ("leaks", stk_mem_alive(), 0);
    return t_finish();
}
