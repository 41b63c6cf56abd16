/* Goal: members become samples as they should, or the error names shard, key and offset; numbers
 * and identity depend on the data alone.
 * Method: index_shard.c, index_shard_link.c and index.c together: rows of members; the samples are
 * compared as text. Then threads in many orders, sizes that need wide numbers, folders, memory a
 * member, and every allocation failing once. */
#include "base/mem.h"
#include "base/text/text_match.h"
#include "format/compress/decompress.h"
#include "index/index.h"
#include "test/t.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 4096, NAMES_MAX = 10 };

/* Members of one shard at 512, 1024, ...; 3 bytes each. "a->b": a is a hard link to b. */
static const struct row {
    const char *name;
    uint32_t member_gap_max, key_bytes_max;
    const char *names[NAMES_MAX];
    const char *want; /* "key ext@offset+bytes ...;" or "STATUS offset key" */
} rows[] = {
    {"empty", 0, 0, {0}, ""},
    {"one sample", 0, 0, {"a.jpg", "a.cls"}, "a jpg@512+3 cls@1024+3;"},
    {"two samples", 0, 0, {"a.jpg", "a.cls", "b.jpg"}, "a jpg@512+3 cls@1024+3;b jpg@1536+3;"},
    {"extensions are lower-cased, keys are not",
     0,
     0,
     {"A.JPG", "a.Left.Png"},
     "A jpg@512+3;a left.png@1024+3;"},
    {"what webdataset skips does not end a sample",
     0,
     0,
     {"a.jpg", "readme", "__meta__/x.json", "a.cls"},
     "a jpg@512+3 cls@2048+3;"},
    {"an empty extension", 0, 0, {"a.", "a.x"}, "a @512+3 x@1024+3;"},
    {"folders belong to the key", 0, 0, {"x/a.jpg", "y/a.jpg"}, "x/a jpg@512+3;y/a jpg@1024+3;"},
    {"apart", 0, 0, {"a.jpg", "b.jpg", "a.cls"}, "STOKER_ERROR_SCATTERED 1536 a"},
    {"joined",
     1,
     0,
     {"a.jpg", "b.jpg", "a.cls", "b.cls"},
     "a jpg@512+3 cls@1536+3;b jpg@1024+3 cls@2048+3;"},
    {"joined over skipped names",
     1,
     0,
     {"a.jpg", "b.jpg", "skipped", "a.cls"},
     "a jpg@512+3 cls@2048+3;b jpg@1024+3;"},
    {"the distance counts from the sample's last member",
     1,
     0,
     {"a.1", "b.1", "a.2", "b.2", "a.3"},
     "a 1@512+3 2@1536+3 3@2560+3;b 1@1024+3 2@2048+3;"},
    {"too far apart to be joined",
     1,
     0,
     {"a.jpg", "b.jpg", "b.cls", "a.cls"},
     "STOKER_ERROR_SCATTERED 2048 a"},
    {"an extension twice", 0, 0, {"a.jpg", "b.jpg", "b.x", "b.JPG"}, "STOKER_ERROR_CORRUPT 2048 b"},
    {"an extension twice, joined",
     9,
     0,
     {"a.jpg", "b.jpg", "c.jpg", "a.jpg"},
     "STOKER_ERROR_CORRUPT 2048 a"},
    {"..", 0, 0, {"a.jpg", "x/../a.cls"}, "STOKER_ERROR_CORRUPT 1024 x/../a.cls"},
    {"absolute", 0, 0, {"/etc/passwd"}, "STOKER_ERROR_CORRUPT 512 /etc/passwd"},
    {"__key__", 0, 0, {"a.__key__"}, "STOKER_ERROR_CORRUPT 512 a"},
    {"a key of the limit", 0, 3, {"abc.jpg"}, "abc jpg@512+3;"},
    {"hard links",
     0,
     0,
     {"a.jpg", "b.JPG->a.jpg", "c.x->b.jpg", "d.x->./a.jpg", "e.x->nothing", "f.x->a.png"},
     "a jpg@512+3;b jpg@512+3;c x@512+3;d x@512+3;"},
    {"a hard link to a file without a key", 0, 0, {"readme", "a.txt->readme"}, "a txt@512+3;"},
    {"a hard link over other samples",
     2,
     0,
     {"a.jpg", "b.jpg", "a.cls", "b.x->a.jpg"},
     "a jpg@512+3 cls@1536+3;b jpg@1024+3 x@512+3;"},
    {"files of operating systems",
     0,
     0,
     {"a.jpg", "._a.jpg", "x/.DS_Store", "a.cls"},
     "a jpg@512+3 cls@2048+3;"},
    {"a key past the limit", 0, 3, {"abcd.jpg"}, "STOKER_ERROR_LIMIT 512 abcd"},
};

static void list(const struct stk_index *index, char *text)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint64_t i = 0; i < stk_index_samples(index); i++) {
        struct stk_sample sample;

        T_EQ("sample", stk_index_sample(index, i, &sample, NULL), 0);
        used += snprintf(text + used, TEXT_BYTES_MAX - used, "%.*s", (int)sample.key.bytes,
                         (const char *)sample.key.data);
        for (uint32_t j = 0; j < sample.member_count; j++) {
            struct stk_member member;

            T_EQ("member", stk_index_member(index, &sample, j, &member, NULL), 0);
            used += snprintf(text + used, TEXT_BYTES_MAX - used, " %s@%llu+%llu",
                             stk_index_extension(index, member.extension),
                             (unsigned long long)member.offset, (unsigned long long)member.bytes);
        }
        used += snprintf(text + used, TEXT_BYTES_MAX - used, ";");
    }
}

static int fill(struct stk_index *index, uint32_t shard, const char *path, const char *const *names,
                struct stoker_error *error)
{
    struct stk_index_shard_builder *builder = NULL;
    int status = stk_index_shard_begin(index, shard, path, &builder, error);
    int i;

    for (i = 0; status == 0 && i < NAMES_MAX && names[i]; i++) {
        const char *arrow = strstr(names[i], "->");

        status = arrow ? stk_index_shard_add_link(builder,
                                                  (struct stk_view){(const uint8_t *)names[i],
                                                                    (size_t)(arrow - names[i])},
                                                  stk_view_of_text(arrow + 2), error)
                       : stk_index_shard_add(builder, stk_view_of_text(names[i]), 512 * (i + 1), 3,
                                             error);
    }
    if (status < 0) {
        stk_index_shard_cancel(builder);
        return status;
    }
    return stk_index_shard_end(builder, 512 * (i + 2), STK_COMPRESSION_NONE, error);
}

static void test_rows(void)
{
    T_EACH(row, row, rows)
    {
        struct stk_index_options options = {.shard_count = 1,
                                            .key_bytes_max = row->key_bytes_max,
                                            .member_gap_max = row->member_gap_max};
        struct stk_index *index;
        struct stoker_error error = {0};
        char text[TEXT_BYTES_MAX];
        int status;

        T_EQ(row->name, stk_index_open(&index, &options, &error), 0);
        status = fill(index, 0, "d/train.tar", row->names, &error);
        if (status < 0) {
            T_ERROR(row->name, &error);
            T_STR(row->name, error.shard, "d/train.tar");
            snprintf(text, sizeof text, "%s %llu %s", stoker_status_name(status),
                     (unsigned long long)error.offset, error.key);
        } else {
            T_EQ(row->name, stk_index_finish(index, 0, &error), 0);
            list(index, text);
        }
        T_STR(row->name, text, row->want);
        stk_index_close(index);
    }
}

/* Three shards, the middle one empty, filled in any order by threads or not. */
static const char *const shard_names[4][NAMES_MAX] = {
    {"a.jpg", "a.cls", "b.png"},
    {0},
    {"c.webp", "c.cls"},
    {"d.jpg", "e.json", "e.jpg"},
};
static const char *const shard_paths[] = {"x/0.tar", "x/1.tar", "x/2.tar", "x/3.tar"};

struct job {
    struct stk_index *index;
    uint32_t shard;
};

static void *fill_job(void *argument)
{
    struct job *job = argument;

    fill(job->index, job->shard, shard_paths[job->shard], shard_names[job->shard], NULL);
    return NULL;
}

static void test_any_order(void)
{
    static const uint32_t orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};
    struct stk_index_options options = {.shard_count = 4};
    uint8_t identity[32] = {0};

    for (int round = 0; round < 20; round++) {
        const uint32_t *order = orders[round % 3];
        struct stk_index *index;
        struct job jobs[4];
        pthread_t threads[4];
        char text[TEXT_BYTES_MAX];

        T_EQ("open", stk_index_open(&index, &options, NULL), 0);
        for (int i = 0; i < 4; i++) {
            jobs[i] = (struct job){index, order[i]};
            pthread_create(&threads[i], NULL, fill_job, &jobs[i]);
            if (round < 3) {
                pthread_join(threads[i], NULL);
            }
        }
        for (int i = 0; i < 4 && round >= 3; i++) {
            pthread_join(threads[i], NULL);
        }
        T_EQ("finish", stk_index_finish(index, 1 << 20, NULL), 0);
        list(index, text);
        T_STR("samples", text,
              "a jpg@512+3 cls@1024+3;b png@1536+3;c webp@512+3 cls@1024+3;d jpg@512+3;"
              "e json@1024+3 jpg@1536+3;");
        T_STR("extensions are numbered by their text", stk_index_extension(index, 1), "jpg");
        T_EQ("found", stk_index_extension_id(index, "webp"), 4);
        T_EQ("absent", stk_index_extension_id(index, "tif"), -1);
        T_EQ("absent", stk_index_extension_id(index, ""), -1);
        T_EQ("samples", stk_index_samples(index), 5);
        T_EQ("members", stk_index_members(index), 8);
        T_EQ("bytes", stk_index_bytes(index), 24);
        T_EQ("1 MiB of 4.8 bytes", stk_index_block_samples(index), 218453);
        T_TRUE("random access", !stk_index_is_sequential(index));
        T_STR("path", stk_index_path_view(index, 2), "x/2.tar");
        T_EQ("object", stk_index_shard_bytes(index, 2), 2048);
        T_EQ("packing", stk_index_shard_compression(index, 2), STK_COMPRESSION_NONE);
        if (round == 0) {
            memcpy(identity, stk_index_identity(index), 32);
        }
        T_EQ("identity", memcmp(identity, stk_index_identity(index), 32), 0);
        stk_index_close(index);
    }
}

/* The identity includes each thing that it should, and not the folder of a shard. */
static const struct identity_row {
    const char *name, *path, *member;
    uint64_t offset, bytes, object_bytes;
    bool same;
} identity_rows[] = {
    {"the same", "a/s.tar", "k.jpg", 512, 3, 2048, true},
    {"another folder", "/b/c/s.tar", "k.jpg", 512, 3, 2048, true},
    {"base name", "a/t.tar", "k.jpg", 512, 3, 2048, false},
    {"key", "a/s.tar", "l.jpg", 512, 3, 2048, false},
    {"key of another length", "a/s.tar", "k.k.jpg", 512, 3, 2048, false},
    {"extension", "a/s.tar", "k.png", 512, 3, 2048, false},
    {"offset", "a/s.tar", "k.jpg", 1024, 3, 2048, false},
    {"size", "a/s.tar", "k.jpg", 512, 4, 2048, false},
    {"object", "a/s.tar", "k.jpg", 512, 3, 2049, false},
};

static void test_identity(void)
{
    uint8_t identity[32] = {0};

    T_EACH(identity_row, row, identity_rows)
    {
        struct stk_index_options options = {.shard_count = 1};
        struct stk_index *index;
        struct stk_index_shard_builder *builder;

        T_EQ(row->name, stk_index_open(&index, &options, NULL), 0);
        T_EQ(row->name, stk_index_shard_begin(index, 0, row->path, &builder, NULL), 0);
        T_EQ(row->name,
             stk_index_shard_add(builder, stk_view_of_text(row->member), row->offset, row->bytes,
                                 NULL),
             0);
        T_EQ(row->name, stk_index_shard_end(builder, row->object_bytes, STK_COMPRESSION_NONE, NULL),
             0);
        T_EQ(row->name, stk_index_finish(index, 0, NULL), 0);
        if (row == identity_rows) {
            memcpy(identity, stk_index_identity(index), 32);
        }
        T_EQ(row->name, memcmp(identity, stk_index_identity(index), 32) == 0, row->same);
        stk_index_close(index);
    }
}

static const struct wide_row {
    const char *name;
    uint64_t offset, bytes;
} wide_rows[] = {
    {"narrow, largest", (uint64_t)UINT32_MAX * 512, UINT32_MAX},
    {"offset past 2 TiB", (1ULL << 41), 1},
    {"size past 4 GiB", 512, 1ULL << 32},
    {"no block", 513, 1},
    {"everything", UINT64_MAX - 7, UINT64_MAX - 9},
};

static void test_wide(void)
{
    T_EACH(wide_row, row, wide_rows)
    {
        struct stk_index_options options = {.shard_count = 1};
        struct stk_index *index;
        struct stk_index_shard_builder *builder;
        struct stk_sample sample;
        struct stk_member member;

        T_EQ(row->name, stk_index_open(&index, &options, NULL), 0);
        T_EQ(row->name, stk_index_shard_begin(index, 0, "s", &builder, NULL), 0);
        T_EQ(row->name, stk_index_shard_add(builder, stk_view_of_text("a.x"), 512, 9, NULL), 0);
        T_EQ(row->name,
             stk_index_shard_add(builder, stk_view_of_text("b.y"), row->offset, row->bytes, NULL),
             0);
        T_EQ(row->name, stk_index_shard_end(builder, 4096, STK_COMPRESSION_ZSTD, NULL), 0);
        T_EQ(row->name, stk_index_finish(index, 0, NULL), 0);
        stk_index_sample(index, 0, &sample, NULL);
        stk_index_member(index, &sample, 0, &member, NULL);
        T_TRUE(row->name, member.offset == 512 && member.bytes == 9);
        stk_index_sample(index, 1, &sample, NULL);
        stk_index_member(index, &sample, 0, &member, NULL);
        T_TRUE(row->name, member.offset == row->offset && member.bytes == row->bytes);
        T_TRUE("packed shards are sequential", stk_index_is_sequential(index));
        stk_index_close(index);
    }
}

static void test_folder(void)
{
    struct stk_index_options options = {.shard_count = 3};
    static const char *const paths[] = {"/r/cat/0.jpg", "/r/cat/1.png", "elsewhere"};
    static const char *const keys[] = {"cat/0.jpg", "cat/1.png", "dog/2.jpg"};
    struct stk_index *index;
    struct stk_index_shard_builder *builder;
    struct stoker_error error = {0};
    char text[TEXT_BYTES_MAX];
    char endless[70000];

    T_EQ("open", stk_index_open(&index, &options, &error), 0);
    for (int i = 0; i < 3; i++) {
        T_EQ("begin", stk_index_shard_begin(index, i, paths[i], &builder, &error), 0);
        T_EQ("add",
             stk_index_shard_add_file(builder, stk_view_of_text(keys[i]),
                                      stk_view_of_text(keys[i] + 6), i * 5, &error),
             0);
        T_EQ("end", stk_index_shard_end(builder, 10, STK_COMPRESSION_NONE, &error), 0);
    }
    T_EQ("finish", stk_index_finish(index, 0, &error), 0);
    list(index, text);
    T_STR("a file each", text,
          "cat/0.jpg jpg@0+18446744073709551615;cat/1.png png@0+18446744073709551615;"
          "dog/2.jpg jpg@0+18446744073709551615;");
    for (int i = 0; i < 3; i++) {
        struct stk_sample sample;
        T_EQ("sample", stk_index_sample(index, i, &sample, NULL), 0);
        T_EQ("label", sample.label, i * 5);
        T_EQ("shard", sample.shard, i);
        T_STR("path", stk_index_path_view(index, i), paths[i]);
    }
    T_EQ("block", stk_index_block_samples(index), 256);
    T_EQ("bytes", stk_index_bytes(index), 0);
    stk_index_close(index);

    memset(endless, 'k', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    T_EQ("open", stk_index_open(&index, &options, &error), 0);
    T_EQ("begin", stk_index_shard_begin(index, 0, "/r", &builder, &error), 0);
    T_EQ("long key",
         stk_index_shard_add_file(builder, stk_view_of_text(endless), stk_view_of_text("jpg"), 0,
                                  &error),
         STOKER_ERROR_LIMIT);
    T_ERROR("long key", &error);
    stk_index_shard_cancel(builder);
    T_EQ("begin", stk_index_shard_begin(index, 0, endless, &builder, &error), 0);
    T_EQ("long path",
         stk_index_shard_add_file(builder, stk_view_of_text("k"), stk_view_of_text("jpg"), 0,
                                  &error),
         STOKER_ERROR_LIMIT);
    stk_index_shard_cancel(builder);
    stk_index_close(index);
}

/* A link to a label gives the label of the target; a link to another member keeps the sample's. */
static void test_link_labels(void)
{
    static const int64_t want[] = {3, 5, 3, -1};
    struct stk_index_options options = {.shard_count = 1};
    struct stk_index *index;
    struct stk_index_shard_builder *builder;

    T_EQ("open", stk_index_open(&index, &options, NULL), 0);
    T_EQ("begin", stk_index_shard_begin(index, 0, "s.tar", &builder, NULL), 0);
    T_EQ("image", stk_index_shard_add(builder, stk_view_of_text("a.jpg"), 512, 3, NULL), 0);
    T_EQ("cls", stk_index_shard_add(builder, stk_view_of_text("a.cls"), 1536, 1, NULL), 0);
    T_EQ("label", stk_index_shard_set_label(builder, 3, NULL), 0);
    T_EQ("cls", stk_index_shard_add(builder, stk_view_of_text("b.cls"), 2560, 1, NULL), 0);
    T_EQ("label", stk_index_shard_set_label(builder, 5, NULL), 0);
    T_EQ("link to an image",
         stk_index_shard_add_link(builder, stk_view_of_text("b.jpg"), stk_view_of_text("a.jpg"),
                                  NULL),
         0);
    T_EQ("link to a label",
         stk_index_shard_add_link(builder, stk_view_of_text("c.cls"), stk_view_of_text("a.cls"),
                                  NULL),
         0);
    T_EQ("link without a label",
         stk_index_shard_add_link(builder, stk_view_of_text("d.jpg"), stk_view_of_text("a.jpg"),
                                  NULL),
         0);
    T_EQ("end", stk_index_shard_end(builder, 4096, STK_COMPRESSION_NONE, NULL), 0);
    T_EQ("finish", stk_index_finish(index, 0, NULL), 0);
    for (uint64_t i = 0; i < STK_COUNT(want); i++) {
        struct stk_sample sample;

        T_EQ("sample", stk_index_sample(index, i, &sample, NULL), 0);
        T_EQ("label", sample.label, want[i]);
    }
    stk_index_close(index);
}

/* A link to a link to a file without a key has the checksum of the file. */
static void test_link_checksum(void)
{
    struct stk_index_options options = {.shard_count = 1};
    struct stk_index *index;
    struct stk_index_shard_builder *builder;
    struct stk_sample sample;
    uint64_t sum = 0;

    T_EQ("open", stk_index_open(&index, &options, NULL), 0);
    T_EQ("begin", stk_index_shard_begin(index, 0, "s.tar", &builder, NULL), 0);
    T_EQ("file", stk_index_shard_add(builder, stk_view_of_text("a.jpg"), 512, 3, NULL), 0);
    T_EQ("sum", stk_index_shard_set_checksum(builder, 7, NULL), 0);
    T_EQ("no key", stk_index_shard_add(builder, stk_view_of_text("readme"), 1536, 3, NULL), 0);
    T_EQ("sum", stk_index_shard_set_checksum(builder, 9, NULL), 0);
    T_EQ("link",
         stk_index_shard_add_link(builder, stk_view_of_text("again"), stk_view_of_text("readme"),
                                  NULL),
         0);
    T_EQ("link",
         stk_index_shard_add_link(builder, stk_view_of_text("b.txt"), stk_view_of_text("again"),
                                  NULL),
         0);
    T_EQ("end", stk_index_shard_end(builder, 4096, STK_COMPRESSION_NONE, NULL), 0);
    T_EQ("finish", stk_index_finish(index, 0, NULL), 0);
    T_EQ("sample", stk_index_sample(index, 1, &sample, NULL), 0);
    T_EQ("checksum", stk_index_checksum(index, &sample, 0, &sum, NULL), 0);
    T_EQ("checksum", sum, 9);
    stk_index_close(index);
}

/* The guarantee of the header: bytes a member and a file, without names. */
static void test_size(void)
{
    enum { SAMPLES = 20000, FILES = 20000, KEY_BYTES = 8, PATH_BYTES = 20 };
    struct stk_index_options options = {.shard_count = 1};
    struct stk_index *index;
    struct stk_index_shard_builder *builder;
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
    size_t used;
    char name[64];

    T_EQ("open", stk_index_open(&index, &options, NULL), 0);
    T_EQ("begin", stk_index_shard_begin(index, 0, "s.tar", &builder, NULL), 0);
    for (uint64_t i = 0; i < 2 * SAMPLES; i++) {
        snprintf(name, sizeof name, "%08llu.%s", (unsigned long long)i / 2, i % 2 ? "cls" : "jpg");
        stk_index_shard_add(builder, stk_view_of_text(name), 512 * i, 10, NULL);
    }
    T_EQ("end", stk_index_shard_end(builder, 1, STK_COMPRESSION_NONE, NULL), 0);
    T_EQ("finish", stk_index_finish(index, 0, NULL), 0);
    used = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    printf("%.1f bytes a member with half a key of 8\n", (double)used / (2 * SAMPLES));
    T_TRUE("10 a member, 8 and the key a sample, and 128 kB",
           used < 2 * SAMPLES * 10 + SAMPLES * (8 + KEY_BYTES) + 131072);
    stk_index_close(index);

    options.shard_count = FILES;
    before = mallinfo2().uordblks + mallinfo2().hblkhd;
    T_EQ("open", stk_index_open(&index, &options, NULL), 0);
    for (uint32_t i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "/root/cl/%07u.jpg", i);
        stk_index_shard_begin(index, i, name, &builder, NULL);
        stk_index_shard_add_file(builder, stk_view_of_text(name + 6), stk_view_of_text("jpg"), 0,
                                 NULL);
        stk_index_shard_end(builder, 0, STK_COMPRESSION_NONE, NULL);
    }
    T_EQ("finish", stk_index_finish(index, 0, NULL), 0);
    used = mallinfo2().uordblks + mallinfo2().hblkhd - before;
    printf("%.1f bytes a file with a path of %d\n", (double)used / FILES, PATH_BYTES);
    T_TRUE("32 a file and its path, and 128 kB", used < FILES * (32 + PATH_BYTES + 1) + 131072);
    stk_index_close(index);
}

static int make_all(void)
{
    static const char *const names[NAMES_MAX] = {"a.jpg", "b.jpg", "a.cls"};
    struct stk_index_options options = {.shard_count = 2, .member_gap_max = 1};
    struct stk_index *index = NULL;
    struct stk_index_shard_builder *builder = NULL;
    struct stoker_error error = {0};
    int status = stk_index_open(&index, &options, &error);

    if (status == 0) {
        status = fill(index, 0, "s.tar", names, &error);
    }
    if (status == 0) {
        status = stk_index_shard_begin(index, 1, "/r/x.jpg", &builder, &error);
    }
    if (status == 0) {
        status = stk_index_shard_add_file(builder, stk_view_of_text("x.jpg"),
                                          stk_view_of_text("jpg"), 0, &error);
        if (status == 0) {
            status = stk_index_shard_end(builder, 1, STK_COMPRESSION_NONE, &error);
        } else {
            stk_index_shard_cancel(builder);
        }
    }
    if (status == 0) {
        status = stk_index_finish(index, 0, &error);
    }
    if (status < 0) {
        T_ERROR("fail-nth", &error);
        T_EQ("fail-nth", status, -ENOMEM);
    }
    stk_index_close(index);
    return status;
}

static void test_memory(void)
{
    int64_t alive = stk_mem_alive();
    int n = 0, status;

    do {
        stk_mem_fail_nth(++n);
        status = make_all();
        T_EQ("no leak", stk_mem_alive(), alive);
    } while (n < 100 && (status < 0 || n < 40)); /* a shrinking that fails is no failure */
    stk_mem_fail_nth(0);
    T_TRUE("many allocations failed, then none", n > 20 && status == 0);
}

int main(void)
{
    test_rows();
    test_any_order();
    test_identity();
    test_wide();
    test_folder();
    test_link_labels();
    test_link_checksum();
    test_size();
    test_memory();
    stk_index_close(NULL);
    stk_index_shard_cancel(NULL);
    return t_finish();
}
