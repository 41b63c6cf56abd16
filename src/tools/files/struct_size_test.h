/* tools/files/struct_size_test.h: shared by the tests of struct_size: a row for each public struct,
 * and an object of each kind that a row needs. Owner: the test. Threads: one. Memory: static.
 * Bound: a folder in /tmp. */
#ifndef TOOLS_FILES_STRUCT_SIZE_TEST_H
#define TOOLS_FILES_STRUCT_SIZE_TEST_H

#include "test/t.h"
#include "test/tars.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MORE 64 /* bytes of fields that a later version may add */

static char folder[] = "/tmp/stoker-struct-size-XXXXXX";
static char tar_path[64], bad_path[64], token_path[64], index_path[64], spare_path[64];
static const char *const urls[] = {tar_path};
static uint32_t spare_count;

static struct stoker_engine *engine;
static struct stoker_dataset *dataset, *damaged;
static struct stoker_loader *loader;
static struct stoker_order *order;
static struct stoker_sampler *sampler;
static struct stoker_tokens *tokens;
static struct stoker_filesystem *filesystem;
static struct stoker_walk *walk;
static const struct stoker_field_options fields[] = {
    {.name = "text", .kind = STOKER_FIELD_BYTES, .extensions = "txt"}};

/* After `status`, the failure of an object, the same call fails in the same way. */
#define T_AGAIN(call, ...) T_EQ(#call " again", call(__VA_ARGS__), status)

/* A name in the folder that nothing has. */
static const char *spare(void)
{
    snprintf(spare_path, sizeof spare_path, "%s/spare%u", folder, spare_count++);
    return spare_path;
}

static void fill_order(void *options)
{
    struct stoker_order_options *good = options;

    good->sample_count = 16;
    good->block_samples = 4;
    good->batch_size = 4;
}

static void fill_loader(void *options)
{
    struct stoker_loader_options *good = options;

    good->fields = fields;
    good->field_count = 1;
    good->batch_size = 4;
}

static void fill_tokens(void *options)
{
    static const char *const paths[] = {token_path};
    struct stoker_tokens_options *good = options;

    good->paths = paths;
    good->path_count = 1;
    good->dtype = STOKER_INT32;
}

#define OPTIONS(type, least, call, fill)                                                           \
    {#type " of " #call, sizeof(struct type), offsetof(struct type, least), call, fill, 0}
#define OUTPUT(type, least, call)                                                                  \
    {#type " of " #call, sizeof(struct type), offsetof(struct type, least), call, NULL, 0}

/* A public struct, and how the library gets it. */
struct row {
    const char *name;
    size_t bytes, bytes_min; /* a struct that ends before the field that is named */
    int (*call)(void *options, struct stoker_error *error);
    void (*fill)(void *options); /* NULL: it is output */
    int may_lack;                /* 1: a call that returns 0 has nothing to write */
};

/* `set`: offset of a byte that is not 0; 0: none. Returns the function's result. */
static int pass(const struct row *row, size_t struct_size, size_t set, const char *what)
{
    static uint8_t bytes[1u << 15];
    struct stoker_error error = {0};
    int status;

    memset(bytes, row->fill ? 0 : 0xee, sizeof bytes);
    memcpy(bytes, &struct_size, sizeof struct_size);
    if (row->fill) {
        row->fill(bytes);
    }
    if (struct_size >= sizeof struct_size && struct_size <= row->bytes + MORE) {
        memset(bytes + struct_size, 0xee, MORE); /* not the struct's */
    }
    bytes[set] = set > 0 ? 1 : bytes[set];
    status = row->call(bytes, &error);
    T_TRUE(row->name, memcmp(bytes, &struct_size, sizeof struct_size) == 0);
    if (status < 0) {
        T_TRUE(row->name, error.status == 0 || strstr(error.what, what));
    } else if (!row->fill && (status > 0 || !row->may_lack)) {
        T_EQ(row->name, bytes[struct_size], 0xee);
        for (size_t i = row->bytes; i < struct_size; i++) {
            T_EQ(row->name, bytes[i], 0);
        }
    }
    return status;
}

static void test_row(const struct row *row)
{
    const char *no_size = "struct_size is not set";

    T_TRUE(row->name, pass(row, row->bytes, 0, "") >= 0);
    T_TRUE(row->name, pass(row, row->bytes_min, 0, "") >= 0);
    T_TRUE(row->name, pass(row, row->bytes + MORE, 0, "") >= 0);
    if (row->fill) {
        T_EQ(row->name, pass(row, row->bytes + MORE, row->bytes + MORE - 1, "does not know"),
             STOKER_ERROR_ARGUMENT);
    }
    T_EQ(row->name, pass(row, 0, 0, no_size), STOKER_ERROR_ARGUMENT);
    T_EQ(row->name, pass(row, 1, 0, no_size), STOKER_ERROR_ARGUMENT);
    T_EQ(row->name, pass(row, 1u << 20, 0, no_size), STOKER_ERROR_ARGUMENT);
    T_EQ(row->name, pass(row, SIZE_MAX, 0, no_size), STOKER_ERROR_ARGUMENT);
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");

    T_TRUE(path, file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
}

static void write_files(void)
{
    static const int32_t numbers[1000];
    struct t_tar tar = {0};
    char name[16];

    snprintf(tar_path, sizeof tar_path, "%s/a.tar", folder);
    snprintf(bad_path, sizeof bad_path, "%s/bad.tar", folder);
    snprintf(token_path, sizeof token_path, "%s/tokens.bin", folder);
    snprintf(index_path, sizeof index_path, "%s/stoker.index", folder);
    for (int i = 0; i < 16; i++) {
        snprintf(name, sizeof name, "%02d.txt", i);
        t_tar_add(&tar, name, "text", 4);
    }
    write_file(bad_path, tar.data, tar.bytes - 512 - 100); /* in the last header */
    t_tar_end(&tar);
    write_file(tar_path, tar.data, tar.bytes);
    write_file(token_path, numbers, sizeof numbers);
    t_tar_free(&tar);
}

static void open_all(void)
{
    static const char *const bad[] = {bad_path};
    struct stoker_engine_options engine_options = {.struct_size = sizeof engine_options,
                                                   .threads = 2};
    struct stoker_dataset_options set = {
        .struct_size = sizeof set, .urls = urls, .url_count = 1, .index_path = index_path};
    struct stoker_dataset_options bad_set = {.struct_size = sizeof bad_set,
                                             .urls = bad,
                                             .url_count = 1,
                                             .on_error = STOKER_ON_ERROR_SKIP};
    struct stoker_indexer_options index = {.struct_size = sizeof index, .out = index_path};
    struct stoker_indexer_progress progress = {.struct_size = sizeof progress};
    struct stoker_order_options order_options = {.struct_size = sizeof order_options};
    struct stoker_sampler_options sampler_options = {.struct_size = sizeof sampler_options};
    struct stoker_loader_options loader_options = {.struct_size = sizeof loader_options};
    struct stoker_tokens_options token_options = {.struct_size = sizeof token_options};
    struct stoker_indexer *indexer = NULL;

    T_EQ("engine", stoker_engine_open(&engine, &engine_options, NULL), 0);
    T_EQ("indexer", stoker_indexer_open(&indexer, engine, &set, &index, NULL), 0);
    T_EQ("index", stoker_indexer_next(indexer, 60000, &progress, NULL), 0);
    stoker_indexer_close(indexer);
    T_EQ("data set", stoker_dataset_open(&dataset, engine, &set, NULL), 0);
    T_EQ("damaged", stoker_dataset_open(&damaged, engine, &bad_set, NULL), 0);
    fill_order(&order_options);
    T_EQ("order", stoker_order_open(&order, &order_options, NULL), 0);
    T_EQ("sampler", stoker_sampler_open(&sampler, dataset, &sampler_options, NULL), 0);
    fill_loader(&loader_options);
    T_EQ("loader", stoker_loader_open(&loader, dataset, &loader_options, NULL), 0);
    fill_tokens(&token_options);
    T_EQ("tokens", stoker_tokens_open(&tokens, engine, &token_options, NULL), 0);
    T_EQ("file system", stoker_filesystem_open(&filesystem, folder, NULL, NULL), 0);
    T_EQ("walk", stoker_walk_open(&walk, engine, folder, 1, NULL), 0);
}

static void close_all(void)
{
    stoker_walk_close(walk);
    stoker_filesystem_close(filesystem);
    stoker_tokens_close(tokens);
    stoker_loader_close(loader);
    stoker_sampler_close(sampler);
    stoker_order_close(order);
    stoker_dataset_close(damaged);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

static int run_rows(const struct row *rows, size_t count)
{
    char command[128];

    if (!mkdtemp(folder)) {
        t_skip("no folder in /tmp");
    }
    write_files();
    open_all();
    for (size_t i = 0; i < count; i++) {
        test_row(&rows[i]);
    }
    close_all();
    snprintf(command, sizeof command, "rm -r %s", folder);
    return t_finish() | (system(command) != 0);
}

#endif
