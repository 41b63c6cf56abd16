/* Goal: local files are described, listed and read by their names; a range past the end of a file
 * is cut; a missing file is an error; nothing leaks if memory is short.
 * Method: a real folder with files of known bytes; each allocation fails once. Objects of stores:
 * python/tests/test_files.py. */
#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"
#include "tools/files/file_handle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES = 10, BIG_BYTES = 3 << 20 };

static char home[64];
static struct stoker_engine *engine;
static struct stoker_error error;

static char *at(const char *name)
{
    static char path[4][256];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", home, name);
    return path[turn];
}

static uint8_t byte_of(uint64_t offset)
{
    return (uint8_t)stk_random_key(offset, 1);
}

static void put(const char *name, size_t bytes)
{
    FILE *file = fopen(at(name), "w");

    for (size_t i = 0; i < bytes; i++) {
        fputc(byte_of(i), file);
    }
    fclose(file);
}

static void test_stat(void)
{
    struct stoker_file_info info = {.struct_size = sizeof info};

    T_EQ("stat", stoker_stat(engine, at("some/1"), &info, &error), 0);
    T_EQ("stat", info.kind == STOKER_FILE && info.bytes == FILE_BYTES, 1);
    T_EQ("folder", stoker_stat(engine, at("some"), &info, &error), 0);
    T_EQ("folder", info.kind == STOKER_FOLDER && info.bytes == 0, 1);
    T_EQ("none", stoker_stat(engine, at("none"), &info, &error), -ENOENT);
    T_ERROR("none", &error);
}

static void test_read(void)
{
    struct stoker_file_info info = {.struct_size = sizeof info};
    struct stoker_file *file = NULL;
    char byte[8], many[16], all[16];

    T_EQ("none", stoker_file_open(&file, engine, at("none"), NULL, &error), -ENOENT);
    T_ERROR("none", &error);
    T_TRUE("none", file == NULL);
    T_EQ("open", stoker_file_open(&file, engine, at("some/1"), &info, &error), 0);
    T_EQ("info", info.kind == STOKER_FILE && info.bytes == FILE_BYTES, 1);
    T_EQ("read", stoker_file_read(file, 8, byte, 8, &error), 2);
    T_EQ("past", stoker_file_read(file, 80, byte, 8, &error), 0);
    struct stoker_range ranges[] = {{.file = file, .offset = 3, .bytes = 4, .buffer = many},
                                    {.file = file, .offset = 9, .bytes = 9, .buffer = many + 4},
                                    {.file = file, .offset = 99, .bytes = 9, .buffer = many + 5},
                                    {.file = file, .offset = 7, .bytes = 0, .buffer = many + 5}};
    T_EQ("none", stoker_file_read_ranges(ranges, 0, NULL, &error), 0);
    T_EQ("ranges", stoker_file_read_ranges(ranges, 4, NULL, &error), 0);
    T_EQ("within", ranges[0].result, 4);
    T_EQ("cut", ranges[1].result, 1);
    T_EQ("behind", ranges[2].result + ranges[3].result, 0);
    T_EQ("complete", stoker_file_read(file, 0, all, 10, &error), 10);
    T_EQ("bytes", memcmp(many, all + 3, 4) == 0 && many[4] == all[9], 1);
    T_EQ("bytes", (uint8_t)all[9], byte_of(9));
    ranges[2].file = NULL;
    T_EQ("no file", stoker_file_read_ranges(ranges, 4, NULL, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR("no file", &error);
    stoker_file_close(file);
    stoker_file_close(NULL);
}

/* More bytes than one read takes. */
static void test_read_big(void)
{
    uint8_t *bytes = malloc(BIG_BYTES);
    struct stoker_file *file = NULL;
    uint64_t wrong = 0;

    T_EQ("open", stoker_file_open(&file, engine, at("big"), NULL, &error), 0);
    T_EQ("read", stoker_file_read(file, 0, bytes, BIG_BYTES, &error), BIG_BYTES);
    for (uint64_t i = 0; i < BIG_BYTES; i++) {
        wrong += bytes[i] != byte_of(i);
    }
    T_EQ("bytes", wrong, 0);
    stoker_file_close(file);
    free(bytes);
}

static int count_files(const char *path, uint32_t recursive)
{
    struct stoker_file_info info = {.struct_size = sizeof info};
    struct stoker_walk *walk = NULL;
    int status = stoker_walk_open(&walk, engine, path, recursive, &error), count = 0;

    while (status >= 0 && (status = stoker_walk_next(walk, 60000, &info, &error)) == 1) {
        count++;
    }
    stoker_walk_close(walk);
    return status < 0 ? status : count;
}

static void test_walk(void)
{
    T_EQ("walk", count_files(at("some"), 1), 2);
    T_EQ("walk", count_files(at("."), 1), 3);
    T_EQ("none", count_files(at("none"), 1), -ENOENT);
    T_ERROR("none", &error);
    stoker_walk_close(NULL);
}

static void test_expand(void)
{
    char *names = NULL;
    size_t count = 0;

    T_EQ("braces", stoker_paths_expand(engine, at("some/{1,2}"), &names, &count, &error), 1);
    T_EQ("braces", count, 2);
    T_STR("first", names, at("some/1"));
    T_STR("second", names + strlen(names) + 1, at("some/2"));
    stoker_paths_free(names);
    stoker_paths_free(NULL);
}

/* Each allocation fails once: a status and an error come back, and nothing stays allocated. */
static void test_memory(void)
{
    struct stoker_file_info info = {.struct_size = sizeof info};
    bool failed = true;

    for (uint64_t n = 1; failed && n < 100; n++) {
        int64_t before = stk_mem_alive();
        struct stoker_file *file = NULL;
        char bytes[FILE_BYTES];
        int status;

        error = (struct stoker_error){0};
        stk_mem_fail_nth(n);
        status = stoker_stat(engine, at("some/1"), &info, &error);
        status = status < 0 ? status : stoker_file_open(&file, engine, at("some/2"), &info, &error);
        if (status == 0) {
            struct stoker_range range = {
                .file = file, .bytes = FILE_BYTES, .buffer = (uint8_t *)bytes};

            status = stoker_file_read_ranges(&range, 1, NULL, &error);
        }
        failed = status < 0;
        stk_mem_fail_nth(0);
        stoker_file_close(file);
        if (status < 0) {
            T_EQ("memory", status, -ENOMEM);
            T_ERROR("memory", &error);
        }
        T_EQ("no leak", stk_mem_alive(), before);
    }
    T_TRUE("passes in the end", !failed);
}

int main(void)
{
    struct stoker_engine_options options = {.struct_size = sizeof options, .threads = 1};
    char command[128];

    snprintf(home, sizeof home, "/tmp/files_test.XXXXXX");
    T_TRUE("home", mkdtemp(home) != NULL);
    T_EQ("engine", stoker_engine_open(&engine, &options, &error), 0);
    mkdir(at("some"), 0755);
    put("some/1", FILE_BYTES);
    put("some/2", FILE_BYTES);
    put("big", BIG_BYTES);
    test_stat();
    test_read();
    test_read_big();
    test_walk();
    test_expand();
    test_memory();
    stoker_engine_close(engine);
    snprintf(command, sizeof command, "rm -r %s", home);
    T_EQ("clean", system(command), 0);
    return t_finish();
}
