/* Goal: a data set of shards in a container format that the product does not know is listed,
 * indexed and read as one of tars: a format is a row of the table, and nothing else.
 * Method: the formats of test/tiny.h in the data set's table; plain and gzipped shards; headers
 * only and complete reads with checksums. An unsupported operation of a format is an error with
 * advice. */
#include "dataset/dataset_scan.h"
#include "dataset/dataset_test.h"
#include "format/detect/container_detect.h"
#include "format/tar/tar_container.h"
#include "test/tiny.h"

enum { ROWS = 3 };

static const struct stk_container_format *const formats[] = {&stk_tar_container, &t_tiny_walk,
                                                             &t_tiny_footer, NULL};
static const struct stk_container_format *const sequential[] = {&stk_tar_container,
                                                                &t_tiny_sequential, NULL};

static void add_tiny(struct stk_io *world, const char *path, bool has_footer, bool zipped)
{
    struct t_tiny tiny;
    struct t_tar packed = {0};

    t_tiny_begin(&tiny, has_footer);
    t_tiny_add(&tiny, "a.txt", "hello", 5);
    t_tiny_add(&tiny, "a.cls", "7", 1);
    t_tiny_add(&tiny, "b.txt", "world", 5);
    for (int i = 0; i < ROWS; i++) {
        t_tiny_add(&tiny, NULL, "012" + i, 1);
    }
    t_tiny_end(&tiny);
    if (zipped) {
        t_tar_gzip(&(struct t_tar){tiny.data, tiny.bytes, tiny.bytes}, &packed);
    }
    T_EQ(path,
         t_put(world, path, zipped ? packed.data : tiny.data, zipped ? packed.bytes : tiny.bytes),
         0);
    t_tiny_free(&tiny);
    t_tar_free(&packed);
}

static int open_scanned(struct stoker_engine *engine, const char *url,
                        const struct stk_container_format *const *table, bool checksums,
                        struct stoker_dataset **dataset_out, struct stoker_error *error)
{
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = &url, .url_count = 1};
    int status = stk_dataset_new(dataset_out, engine, &options, error);

    if (status < 0) {
        return status;
    }
    (*dataset_out)->formats = table;
    (*dataset_out)->scan.checksums = checksums;
    status = stk_dataset_list(*dataset_out, error);
    status = status < 0 ? status : stk_dataset_scan(*dataset_out, NULL, error);
    if (status < 0) {
        stoker_dataset_close(*dataset_out);
        *dataset_out = NULL;
    }
    return status;
}

static void check(const char *name, struct stoker_engine *engine, const char *url, bool checksums)
{
    static const struct {
        uint64_t sample;
        const char *extension, *want;
    } rows[] = {{0, "txt", "hello"}, {0, "cls", "7"}, {1, "txt", "world"},
                {2, "bin", "0"},     {3, "bin", "1"}, {4, "bin", "2"}};
    struct stoker_dataset *dataset = NULL;
    struct stoker_error error = {0};
    char text[T_TEXT_BYTES_MAX];

    T_EQ(name, open_scanned(engine, url, formats, checksums, &dataset, &error), 0);
    if (!dataset) {
        return;
    }
    T_EQ(name, t_tell(dataset, text, &error), 0);
    T_HAS(name, text, "\na ");
    T_HAS(name, text, "\n000000002 ");
    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        char data[16] = {0};
        size_t bytes = 0;

        T_EQ(name,
             stoker_dataset_read(dataset, rows[i].sample, rows[i].extension, data, sizeof data,
                                 &bytes, &error),
             0);
        T_STR(name, data, rows[i].want);
    }
    stoker_dataset_close(dataset);
}

static void test_formats(void)
{
    static const struct row {
        const char *name;
        bool has_footer, zipped;
    } rows[] = {{"walk", false, false}, {"footer", true, false}, {"gzipped walk", false, true}};

    T_EACH(row, row, rows)
    {
        struct stk_io *world;
        struct stoker_engine *engine = t_engine(&world, 2);

        add_tiny(world, "/one.bin", row->has_footer, row->zipped);
        check(row->name, engine, "/one.bin", false);
        check(row->name, engine, "/one.bin", true);
        stoker_engine_close(engine);
    }
}

/* Shards are found by the endings of their formats. */
static void test_folder(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 2);
    struct stoker_dataset *dataset = NULL;
    struct stoker_error error = {0};
    struct stoker_dataset_info info = {.struct_size = sizeof info};

    T_EQ("folder", stk_sim_add(world, "/data", NULL, 0), 0);
    add_tiny(world, "/data/a.tiny", false, false);
    add_tiny(world, "/data/b.tiny", true, false);
    add_tiny(world, "/data/c.tiny.gz", false, true);
    add_tiny(world, "/data/d.other", false, false);
    t_shard(world, "/data/e.tar", 0, 3, 100);
    T_EQ("list", open_scanned(engine, "/data", formats, false, &dataset, &error), 0);
    T_EQ("info", stoker_dataset_info(dataset, &info), 0);
    T_EQ("shards", info.shard_count, 4);
    T_EQ("samples", info.sample_count, 3 * (2 + ROWS) + 3);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

static void test_errors(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 2);
    struct stoker_dataset *dataset = NULL;
    struct stoker_error error = {0};
    struct stk_view bytes;

    add_tiny(world, "/footer.gz", true, true);
    T_EQ("footer of a stream", open_scanned(engine, "/footer.gz", formats, false, &dataset, &error),
         STOKER_ERROR_UNSUPPORTED);
    T_ERROR("footer of a stream", &error);
    T_HAS("where", error.where, "footer.gz");
    add_tiny(world, "/one.bin", false, false);
    T_EQ("sequential", open_scanned(engine, "/one.bin", sequential, false, &dataset, &error),
         STOKER_ERROR_UNSUPPORTED);
    T_ERROR("sequential", &error);
    T_EQ("no format of the product",
         open_scanned(engine, "/one.bin", stk_container_formats, false, &dataset, &error),
         STOKER_ERROR_TRUNCATED);
    bytes = t_bytes(world, "/one.bin");
    ((uint8_t *)(uintptr_t)bytes.data)[4 + 12 + 5] ^= 1; /* the first byte of a.txt */
    T_EQ("put", t_put(world, "/bad.bin", bytes.data, bytes.bytes), 0);
    t_drop(bytes);
    T_EQ("headers only", open_scanned(engine, "/bad.bin", formats, false, &dataset, &error), 0);
    stoker_dataset_close(dataset);
    T_EQ("checksum", open_scanned(engine, "/bad.bin", formats, true, &dataset, &error),
         STOKER_ERROR_CORRUPT);
    T_ERROR("checksum", &error);
    T_EQ("offset", error.offset, 4 + 12 + 5);
    stoker_engine_close(engine);
}

int main(void)
{
    test_formats();
    test_folder();
    test_errors();
    return t_finish();
}
