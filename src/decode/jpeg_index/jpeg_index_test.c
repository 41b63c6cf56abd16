/* Goal: the entries of each sample are found again, for its image and no other; a file that is
 * damaged, cut, of another version or of another data set is refused, or returns no entry points of
 * its damaged pages; contradictory places are never read. A file whose write succeeded exists after
 * a power cut, and a write that fails leaves nothing.
 * Method: files in the simulator, each byte changed in turn, files of wrong structure with right
 * sums, each call that may fail. Covers jpeg_index.c and jpeg_index_write.c. */
#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "decode/jpeg_index/jpeg_index_file.h"
#include "io/io.h"
#include "io/sim/sim.h"
#include "io/write.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 300u
#define PATH "/data/stoker.index.marks"

static const uint8_t identity[STK_JPEG_INDEX_IDENTITY_BYTES] = {1, 2, 3, [31] = 4};
static uint8_t pictures[SAMPLES][64];
static uint64_t image[1u << 14];
static size_t image_bytes;

/* Sample i has i % 3 pictures: i, and the one after it; marks are i in each byte. */
static size_t make_entries(uint32_t i, uint8_t *to)
{
    size_t bytes = 0;

    for (uint32_t k = 0; k < i % 3; k++) {
        const uint8_t *picture = pictures[(i + k) % SAMPLES];
        struct stk_jpeg_index_entry entry = {stk_xxh3_64(picture, 64), 64, i % 40};

        memcpy(to + bytes, &entry, sizeof entry);
        memset(to + bytes + sizeof entry, (int)i, (size_t)10 * entry.count);
        bytes += sizeof entry + (size_t)10 * entry.count;
    }
    return bytes;
}

static void write_file(struct stk_io *world)
{
    struct stk_jpeg_index_options plan = {PATH, SAMPLES, 4, identity};
    struct stk_jpeg_index_writer *writer = NULL;
    struct stk_file *file;
    uint8_t entries[1024];
    uint64_t bytes = 0;

    T_EQ("writer", stk_jpeg_index_writer_open(&writer, world, &plan, NULL), 0);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        size_t size = make_entries(i, entries);

        T_EQ("add", stk_jpeg_index_writer_add(writer, (struct stk_view){entries, size}, NULL), 0);
    }
    T_EQ("commit", stk_jpeg_index_writer_commit(writer, &bytes, NULL), 0);
    stk_jpeg_index_writer_close(writer);
    T_EQ("open", stk_io_open_file(world, PATH, &file, NULL), 0);
    image_bytes = (size_t)stk_io_read_wait(file, 0, image, sizeof image);
    stk_io_close_file(file);
    T_EQ("size", image_bytes, bytes);
}

/* 0: all is found; else how many samples have no entries. */
static uint32_t count_lost(const struct stk_jpeg_index *marks)
{
    uint32_t lost = 0;

    for (uint32_t i = 0; i < SAMPLES; i++) {
        struct stk_jpeg_index_entries of = stk_jpeg_index_get(marks, i);
        struct stk_jpeg_entry_points found;

        for (uint32_t k = 0; k < 3; k++) {
            struct stk_view picture = {pictures[(i + k) % SAMPLES], 64};
            bool is = stk_jpeg_index_find(&of, picture, &found);

            if (is != (k < i % 3)) {
                T_TRUE("another's marks", !is);
                lost++;
            } else if (is) {
                T_EQ("mcus", found.mcus, 4);
                T_EQ("marks", found.bytes.bytes, i % 40 * 10);
                for (size_t b = 0; b < found.bytes.bytes; b++) {
                    T_EQ("a mark's byte", found.bytes.data[b], (uint8_t)i);
                }
            }
        }
        T_TRUE("short", !stk_jpeg_index_find(&of, (struct stk_view){pictures[i], 63}, &found));
    }
    return lost;
}

static void test_full_file(struct stk_io *world)
{
    uint8_t other[STK_JPEG_INDEX_IDENTITY_BYTES] = {1, 2, 3, [31] = 5};
    struct stoker_error error = {0};
    struct stk_jpeg_index *marks;

    T_EQ("open", stk_jpeg_index_open(&marks, world, PATH, identity, &error), 0);
    T_EQ("samples", stk_jpeg_index_samples(marks), SAMPLES);
    T_EQ("lost", count_lost(marks), 0);
    T_EQ("past the last", stk_jpeg_index_get(marks, SAMPLES).entries.bytes, 0);
    T_EQ("beyond the last", stk_jpeg_index_get(marks, UINT64_MAX).entries.bytes, 0);
    T_EQ("past all that bytes can count",
         stk_jpeg_index_get(marks, (UINT64_C(1) << 61) + 1).entries.bytes, 0);
    stk_jpeg_index_close(marks);
    T_EQ("another's", stk_jpeg_index_open(&marks, world, PATH, other, &error),
         STOKER_ERROR_CHANGED);
    T_HAS("another's", error.advice, "--jpeg-index");
    T_TRUE("not given", !marks);
    marks = (void *)pictures;
    T_EQ("none", stk_jpeg_index_open(&marks, world, "/data/x.marks", identity, NULL), -ENOENT);
    T_TRUE("not given", !marks);
    stk_jpeg_index_close(NULL);
}

/* Each byte in turn: refused, or only the entries of its page are lost, and none is wrong. */
static void test_damage(void)
{
    uint8_t *bytes = (uint8_t *)image;
    struct stk_jpeg_index *marks;
    uint64_t pages_at;

    memcpy(&pages_at, bytes + image_bytes - 24, sizeof pages_at);
    for (size_t at = 0; at < image_bytes; at += at < 64 || at + 200 > image_bytes ? 1 : 97) {
        bytes[at] ^= 0x10;
        if (stk_jpeg_index_open_image(&marks, (struct stk_view){bytes, image_bytes}, identity,
                                      NULL) == 0) {
            T_TRUE("it is seen", count_lost(marks) > 0);
            T_TRUE("and not in the sums of pages", at < pages_at);
            stk_jpeg_index_close(marks);
        }
        bytes[at] ^= 0x10;
    }
    for (size_t size = 0; size < image_bytes; size += size < 200 ? 1 : 61) {
        uint8_t *copy = malloc(size ? size : 1); /* exactly: for sanitizers */

        memcpy(copy, bytes, size);
        T_EQ("cut",
             stk_jpeg_index_open_image(&marks, (struct stk_view){copy, size}, identity, NULL),
             size < sizeof(struct stk_jpeg_index_header) ? STOKER_ERROR_FORMAT
                                                         : STOKER_ERROR_TRUNCATED);
        T_TRUE("none", !marks);
        free(copy);
    }
    bytes[3] ^= 1;
    T_EQ("not such a file",
         stk_jpeg_index_open_image(&marks, (struct stk_view){bytes, image_bytes}, identity, NULL),
         STOKER_ERROR_FORMAT);
    bytes[3] ^= 1;
}

/* Right sums over wrong content. */
static void seal(struct stk_jpeg_index_footer *foot)
{
    uint8_t *bytes = (uint8_t *)image;
    uint64_t *sums = (uint64_t *)(void *)(bytes + foot->pages_at);
    uint64_t pages = (image_bytes - sizeof *foot - foot->pages_at) / 8;

    for (uint64_t page = 0; page < pages; page++) {
        uint64_t from = page * STK_JPEG_INDEX_PAGE_BYTES;

        sums[page] =
            stk_xxh3_64(bytes + from, stk_min(STK_JPEG_INDEX_PAGE_BYTES, foot->pages_at - from));
    }
    foot->pages_sum = stk_xxh3_64(sums, pages * 8);
    foot->foot_sum = stk_xxh3_64(foot, offsetof(struct stk_jpeg_index_footer, foot_sum));
    memcpy(bytes + image_bytes - sizeof *foot, foot, sizeof *foot);
}

static int open_sealed(struct stk_jpeg_index **marks_out, struct stk_jpeg_index_footer *foot)
{
    seal(foot);
    return stk_jpeg_index_open_image(marks_out, (struct stk_view){(uint8_t *)image, image_bytes},
                                     identity, NULL);
}

static void test_hostile(void)
{
    static const uint64_t wrong[] = {0, 63, UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63};
    uint8_t *bytes = (uint8_t *)image;
    struct stk_jpeg_index_footer foot;
    struct stk_jpeg_index *marks;
    uint64_t *table;

    memcpy(&foot, bytes + image_bytes - sizeof foot, sizeof foot);
    table = (uint64_t *)(void *)(bytes + foot.table_at);
    for (size_t i = 0; i < STK_COUNT(wrong); i++) {
        uint64_t before = table[7];

        table[7] = wrong[i];
        T_EQ("open", open_sealed(&marks, &foot), 0);
        (void)count_lost(marks);
        stk_jpeg_index_close(marks);
        table[7] = before;
    }
    for (int i = 0; i < 2; i++) { /* the last entries end in the table, or after all */
        uint64_t before = table[SAMPLES];

        table[SAMPLES] = i ? UINT64_MAX : foot.table_at + 8;
        T_EQ("open", open_sealed(&marks, &foot), 0);
        T_EQ("none", stk_jpeg_index_get(marks, SAMPLES - 1).entries.bytes, 0);
        stk_jpeg_index_close(marks);
        table[SAMPLES] = before;
    }
}

/* An entry whose sum is the picture's, and its length is not. */
static void test_other_length(void)
{
    uint8_t *bytes = (uint8_t *)image;
    struct stk_jpeg_index_footer foot;
    struct stk_jpeg_index_entry entry;
    struct stk_jpeg_entry_points found;
    struct stk_jpeg_index_entries of;
    struct stk_jpeg_index *marks;
    uint64_t at;

    memcpy(&foot, bytes + image_bytes - sizeof foot, sizeof foot);
    memcpy(&at, bytes + foot.table_at + 8, sizeof at); /* of sample 1, which has one */
    memcpy(&entry, bytes + at, sizeof entry);
    entry.bytes++;
    memcpy(bytes + at, &entry, sizeof entry);
    T_EQ("open", open_sealed(&marks, &foot), 0);
    of = stk_jpeg_index_get(marks, 1);
    T_TRUE("there", of.entries.bytes > 0);
    T_TRUE("not its", !stk_jpeg_index_find(&of, (struct stk_view){pictures[1], 64}, &found));
    stk_jpeg_index_close(marks);
    entry.bytes--;
    memcpy(bytes + at, &entry, sizeof entry);
}

/* Heads and feet that contradict the file. */
static void test_contradictions(void)
{
    uint8_t *bytes = (uint8_t *)image;
    struct stk_jpeg_index_header head, other;
    struct stk_jpeg_index_footer foot, moved;
    struct stk_jpeg_index *marks;

    memcpy(&head, bytes, sizeof head);
    memcpy(&foot, bytes + image_bytes - sizeof foot, sizeof foot);
    for (int i = 0; i < 6; i++) {
        other = head;
        moved = foot;
        other.version += i == 0;
        other.page_bytes *= 1 + (i == 1);
        other.samples -= i == 2;
        other.samples = i == 3 ? UINT64_MAX : other.samples;
        moved.table_at = i == 3 ? foot.pages_at : foot.table_at; /* no table at all */
        moved.file_bytes += i == 4;
        moved.table_at += 8 * (i == 5);
        memcpy(bytes, &other, sizeof other);
        T_EQ("contradiction", open_sealed(&marks, &moved),
             i < 2 ? STOKER_ERROR_UNSUPPORTED : STOKER_ERROR_CORRUPT);
    }
    memcpy(bytes, &head, sizeof head);
    T_EQ("as it was", open_sealed(&marks, &foot), 0);
    T_EQ("lost", count_lost(marks), 0);
    stk_jpeg_index_close(marks);
}

/* ---- a file of any shape -------------------------------------------------------------------- */

/* The header of a file; its sums are right. */
struct shape {
    const char *name;
    uint64_t data_bytes;        /* before the sums of pages */
    uint64_t pages;             /* sums */
    uint64_t samples, table_at; /* as the head and the foot say */
    uint64_t pages_at;          /* 0: after the data */
    int want;
};

static uint64_t made[1u << 16];

static int open_shape(const struct shape *shape)
{
    struct stk_jpeg_index_header head = {.version = STK_JPEG_INDEX_VERSION,
                                         .page_bytes = STK_JPEG_INDEX_PAGE_BYTES,
                                         .samples = shape->samples};
    struct stk_jpeg_index_footer foot = {.table_at = shape->table_at, .pages_at = shape->pages_at};
    uint64_t bytes = shape->data_bytes + 8 * shape->pages + sizeof foot;
    uint8_t *sums = (uint8_t *)made + shape->data_bytes;
    struct stk_jpeg_index *marks;
    int status;

    STK_ASSERT(bytes <= sizeof made && shape->data_bytes >= sizeof head);
    memset(made, 0, sizeof made);
    memcpy(head.magic, STK_JPEG_INDEX_HEADER_MAGIC, sizeof head.magic);
    memcpy(head.identity, identity, sizeof head.identity);
    memcpy(made, &head, sizeof head);
    for (uint64_t page = 0; page < shape->pages; page++) {
        uint64_t from = page * STK_JPEG_INDEX_PAGE_BYTES, sum = 0;

        if (from < shape->data_bytes) {
            sum = stk_xxh3_64((uint8_t *)made + from,
                              stk_min(STK_JPEG_INDEX_PAGE_BYTES, shape->data_bytes - from));
        }
        memcpy(sums + 8 * page, &sum, sizeof sum);
    }
    memcpy(foot.magic, STK_JPEG_INDEX_FOOTER_MAGIC, sizeof foot.magic);
    foot.file_bytes = bytes;
    foot.pages_at = shape->pages_at ? shape->pages_at : shape->data_bytes;
    foot.pages_sum = stk_xxh3_64(sums, 8 * shape->pages);
    foot.foot_sum = stk_xxh3_64(&foot, offsetof(struct stk_jpeg_index_footer, foot_sum));
    memcpy((uint8_t *)made + bytes - sizeof foot, &foot, sizeof foot);
    status = stk_jpeg_index_open_image(&marks, (struct stk_view){(uint8_t *)made, bytes}, identity,
                                       NULL);
    for (uint64_t i = 0; status == 0 && i < 9; i++) {
        T_EQ(shape->name, stk_jpeg_index_get(marks, i).entries.bytes, 0);
    }
    stk_jpeg_index_close(marks);
    return status;
}

static void test_shapes(void)
{
    static const struct shape shapes[] = {
        {"no samples", 72, 1, 0, 64, 0, 0},
        {"three", 96, 1, 3, 64, 0, 0},
        {"two pages", 16384 + 8, 2, 0, 16384, 0, 0},
        {"a sum less than pages", 16384 + 8, 1, 0, 16384, 0, STOKER_ERROR_CORRUPT},
        {"no sums", 72, 0, 0, 64, 0, STOKER_ERROR_CORRUPT},
        {"a sum more", 72, 2, 0, 64, 0, STOKER_ERROR_CORRUPT},
        {"a table in the head", 64, 1, 7, 0, 0, STOKER_ERROR_CORRUPT},
        {"a table before the file", 64, 1, 8, -UINT64_C(8), 0, STOKER_ERROR_CORRUPT},
        {"an incomplete table", 104, 1, 3, 68, 0, STOKER_ERROR_CORRUPT},
        {"numbers at odd places", 100, 1, 3, 68, 0, STOKER_ERROR_CORRUPT},
    };
    struct shape huge = {"checksums at an offset that wraps", 72, 1, 0, 0, 0, STOKER_ERROR_CORRUPT};
    uint64_t bytes = huge.data_bytes + 8 + sizeof(struct stk_jpeg_index_footer);

    T_EACH(shape, shape, shapes)
    {
        T_EQ(shape->name, open_shape(shape), shape->want);
    }
    /* bytes - pages_at, modulo 2^64, is the size of the sums of so many pages, and the foot. */
    huge.pages = UINT64_MAX / (STK_JPEG_INDEX_PAGE_BYTES + 8) + 1;
    huge.pages_at = bytes - sizeof(struct stk_jpeg_index_footer) - 8 * huge.pages;
    STK_ASSERT((huge.pages_at + STK_JPEG_INDEX_PAGE_BYTES - 1) / STK_JPEG_INDEX_PAGE_BYTES ==
               huge.pages);
    huge.pages = 1;
    huge.table_at = huge.pages_at - 8;
    T_EQ(huge.name, open_shape(&huge), STOKER_ERROR_CORRUPT);
}

/* ---- writing -------------------------------------------------------------------------------- */

#define LARGE_SAMPLES 200u
/* Bytes of a sample's entries: in total three times the writer's buffer, and more. */
#define LARGE_BYTES 20000u

static int add_large(struct stk_jpeg_index_writer *writer)
{
    static uint8_t entries[LARGE_BYTES];
    int status = 0;

    for (uint32_t i = 0; i < LARGE_SAMPLES && status == 0; i++) {
        memset(entries, (int)i, sizeof entries);
        status =
            stk_jpeg_index_writer_add(writer, (struct stk_view){entries, LARGE_BYTES - i}, NULL);
    }
    return status;
}

/* Opens, adds and commits; the first failure. */
static int write_large(struct stk_io *world)
{
    struct stk_jpeg_index_options plan = {PATH, LARGE_SAMPLES, 4, identity};
    struct stk_jpeg_index_writer *writer = NULL;
    uint64_t bytes = 0;
    int status = stk_jpeg_index_writer_open(&writer, world, &plan, NULL);

    status = status < 0 ? status : add_large(writer);
    status = status < 0 ? status : stk_jpeg_index_writer_commit(writer, &bytes, NULL);
    stk_jpeg_index_writer_close(writer);
    return status;
}

static void check_large(struct stk_io *world, const char *name)
{
    struct stk_jpeg_index *marks = NULL;

    T_EQ(name, stk_jpeg_index_open(&marks, world, PATH, identity, NULL), 0);
    for (uint32_t i = 0; marks && i < LARGE_SAMPLES; i++) {
        struct stk_view entries = stk_jpeg_index_get(marks, i).entries;

        T_EQ(name, entries.bytes, LARGE_BYTES - i);
        T_TRUE(name, entries.data && entries.data[0] == i &&
                         memcmp(entries.data, entries.data + 1, entries.bytes - 1) == 0);
    }
    stk_jpeg_index_close(marks);
}

static bool exists(struct stk_io *world, const char *path)
{
    struct stk_file *file = NULL;

    if (stk_io_open_file(world, path, &file, NULL) < 0) {
        return false;
    }
    stk_io_close_file(file);
    return true;
}

/* Each call that may fail, in turn: no partial file under its name, and no other file left. */
static void test_writer_fails(struct stk_io *world)
{
    uint64_t calls = stk_sim_calls(world);
    uint32_t failed = 0;

    T_EQ("write", write_large(world), 0);
    calls = stk_sim_calls(world) - calls;
    for (uint64_t n = 1; n <= calls; n++) {
        T_EQ("remove", stk_io_remove(world, PATH, NULL), 0);
        stk_sim_fail_nth(world, n);
        failed += write_large(world) < 0;
        stk_sim_fail_nth(world, 0);
        T_TRUE("nothing is left", !exists(world, PATH ".new"));
        if (exists(world, PATH)) {
            check_large(world, "complete, or absent");
        }
        T_EQ("write", write_large(world), 0);
    }
    T_EQ("each is reported", failed, calls);
    check_large(world, "large");
}

static int write_small(struct stk_io *world)
{
    struct stk_jpeg_index_options plan = {PATH, 1, 0, identity};
    struct stk_jpeg_index_writer *writer = NULL;
    uint64_t bytes = 0;
    int status = stk_jpeg_index_writer_open(&writer, world, &plan, NULL);

    status =
        status < 0 ? status : stk_jpeg_index_writer_add(writer, (struct stk_view){NULL, 0}, NULL);
    status = status < 0 ? status : stk_jpeg_index_writer_commit(writer, &bytes, NULL);
    stk_jpeg_index_writer_close(writer);
    return status;
}

/* Each allocation that may fail, in turn. */
static void test_memory(struct stk_io *world)
{
    struct stk_jpeg_index *marks = (void *)pictures;
    int64_t alive = stk_mem_alive();
    int status = -ENOMEM;

    for (uint64_t n = 1; status < 0; n++) {
        T_EQ("no leak", stk_mem_alive(), alive);
        stk_mem_fail_nth(n);
        status = stk_jpeg_index_open(&marks, world, PATH, identity, NULL);
        stk_mem_fail_nth(0);
        T_TRUE("said", status == 0 || (status == -ENOMEM && !marks));
    }
    stk_jpeg_index_close(marks);
    for (int k = 0; k < 2; k++) {
        status = -ENOMEM;
        for (uint64_t n = 1; status < 0; n++) {
            T_EQ("no leak", stk_mem_alive(), alive);
            stk_mem_fail_nth(n);
            status = k ? write_large(world) : write_small(world);
            stk_mem_fail_nth(0);
            T_TRUE("said", status == 0 || status == -ENOMEM);
            T_TRUE("nothing is left", !exists(world, PATH ".new"));
            T_EQ("folder", stk_io_sync_directory(world, "/data", NULL), 0);
        }
        T_EQ("complete", stk_jpeg_index_open(&marks, world, PATH, identity, NULL), 0);
        stk_jpeg_index_close(marks);
    }
    T_EQ("no leak", stk_mem_alive(), alive);
    check_large(world, "complete");
    stk_mem_fail_nth(1);
    T_EQ("of memory",
         stk_jpeg_index_open_image(&marks, (struct stk_view){(uint8_t *)image, image_bytes},
                                   identity, NULL),
         -ENOMEM);
    stk_mem_fail_nth(0);
}

/* Entries of sizes that leave nothing, a byte or more in the writer's buffer; in any folder. */
static void test_sizes(struct stk_io *world)
{
    static const char *const paths[] = {PATH, "/root.marks", "plain.marks"};
    static uint8_t entries[3u << 20];

    for (size_t i = 0; i < sizeof entries; i++) {
        entries[i] = (uint8_t)stk_random_key(7, i);
    }
    for (uint64_t n = 0; n < 96; n++) {
        struct stk_jpeg_index_options plan = {paths[n % 3], 1, 0, identity};
        uint64_t bytes = n < 24 ? n : n % 2 * (1u << 20) + (1u << 20) - 64 - 36 + n / 2, size = 0;
        struct stk_jpeg_index_writer *writer = NULL;
        struct stk_jpeg_index *marks = NULL;
        struct stk_stat stat = {0};
        struct stk_view found;

        T_EQ("open", stk_jpeg_index_writer_open(&writer, world, &plan, NULL), 0);
        T_EQ("add", stk_jpeg_index_writer_add(writer, (struct stk_view){entries, bytes}, NULL), 0);
        T_EQ("commit", stk_jpeg_index_writer_commit(writer, &size, NULL), 0);
        stk_jpeg_index_writer_close(writer);
        T_EQ("cut", stk_sim_crash(world), 0);
        T_EQ("there", stk_jpeg_index_open(&marks, world, plan.path, identity, NULL), 0);
        found = stk_jpeg_index_get(marks, 0).entries;
        T_TRUE("as given", found.bytes == bytes && memcmp(found.data, entries, bytes) == 0);
        T_EQ("stat", stk_io_stat_path(world, plan.path, &stat, NULL), 0);
        T_EQ("size", size, stat.bytes);
        stk_jpeg_index_close(marks);
    }
}

/* ---- pages ---------------------------------------------------------------------------------- */

/* A file of many pages, in memory of its own. */
static struct stk_view read_large(struct stk_io *world)
{
    size_t capacity = (size_t)LARGE_SAMPLES * (LARGE_BYTES + 64);
    struct stk_view view = {malloc(capacity), 0};
    struct stk_file *file = NULL;

    T_EQ("write", write_large(world), 0);
    T_EQ("open", stk_io_open_file(world, PATH, &file, NULL), 0);
    view.bytes = (uint64_t)stk_io_read_wait(file, 0, (uint8_t *)(uintptr_t)view.data, capacity);
    T_TRUE("all of it", view.bytes < capacity);
    stk_io_close_file(file);
    return view;
}

static bool overlap(uint64_t page, uint64_t from, uint64_t end)
{
    return from < (page + 1) * STK_JPEG_INDEX_PAGE_BYTES && end > page * STK_JPEG_INDEX_PAGE_BYTES;
}

/* A page is damaged: exactly the entries on it are lost, whatever was read before. */
static void check_lost(struct stk_view file, const struct stk_jpeg_index_footer *foot,
                       uint64_t page)
{
    const uint64_t *table = (const uint64_t *)(const void *)(file.data + foot->table_at);
    uint8_t *byte = (uint8_t *)(uintptr_t)file.data + page * STK_JPEG_INDEX_PAGE_BYTES + 9;
    struct stk_jpeg_index *marks = NULL;
    uint64_t wrong = 0;

    *byte ^= 1;
    T_EQ("open", stk_jpeg_index_open_image(&marks, file, identity, NULL), 0);
    for (uint64_t k = 0; k < 2u * LARGE_SAMPLES; k++) { /* up, and down again */
        uint64_t i = k < LARGE_SAMPLES ? k : 2u * LARGE_SAMPLES - 1 - k;
        uint64_t place = foot->table_at + 8 * i;
        bool lost = overlap(page, place, place + 16);

        lost = lost || overlap(page, table[i], table[i + 1]);
        wrong += stk_jpeg_index_get(marks, i).entries.bytes != (lost ? 0 : table[i + 1] - table[i]);
    }
    T_EQ("lost", wrong, 0);
    stk_jpeg_index_close(marks);
    *byte ^= 1;
}

static void test_pages(struct stk_io *world)
{
    struct stk_view file = read_large(world);
    uint8_t *bytes = (uint8_t *)(uintptr_t)file.data;
    struct stk_jpeg_index *marks = NULL;
    struct stk_jpeg_index_footer foot;
    uint64_t pages;

    memcpy(&foot, bytes + file.bytes - sizeof foot, sizeof foot);
    pages = foot.pages_at / STK_JPEG_INDEX_PAGE_BYTES; /* complete pages */
    T_TRUE("many", pages > 3u * 64 + 1);
    for (uint64_t page = 1; page < pages; page++) {
        check_lost(file, &foot, page);
    }
    T_EQ("open", stk_jpeg_index_open_image(&marks, file, identity, NULL), 0);
    for (int round = 0; round < 2; round++) { /* once checked, a page is not read for that again */
        T_EQ("there", stk_jpeg_index_get(marks, 9).entries.bytes, LARGE_BYTES - 9);
        bytes[foot.pages_at - 1] ^= 1; /* the table's page */
        bytes[10u * LARGE_BYTES] ^= 1; /* the entries' */
    }
    stk_jpeg_index_close(marks);
    free(bytes);
}

/* The end of a sample's entries stands on another page than their beginning, and is damaged. */
static void test_two_pages(struct stk_io *world)
{
    static uint8_t entries[STK_JPEG_INDEX_PAGE_BYTES - 64 - 8];
    struct stk_jpeg_index_options plan = {PATH, 1, 4, identity};
    struct stk_jpeg_index_writer *writer = NULL;
    struct stk_jpeg_index *marks = NULL;
    struct stk_file *file = NULL;
    uint64_t bytes = 0;

    T_EQ("open", stk_jpeg_index_writer_open(&writer, world, &plan, NULL), 0);
    T_EQ("add", stk_jpeg_index_writer_add(writer, (struct stk_view){entries, sizeof entries}, NULL),
         0);
    T_EQ("commit", stk_jpeg_index_writer_commit(writer, &bytes, NULL), 0);
    stk_jpeg_index_writer_close(writer);
    T_EQ("open", stk_io_open_file(world, PATH, &file, NULL), 0);
    T_EQ("read", stk_io_read_wait(file, 0, image, bytes), bytes);
    stk_io_close_file(file);
    T_EQ("an end", image[STK_JPEG_INDEX_PAGE_BYTES / 8], STK_JPEG_INDEX_PAGE_BYTES - 8);
    image[STK_JPEG_INDEX_PAGE_BYTES / 8] -= 1000;
    T_EQ("open",
         stk_jpeg_index_open_image(&marks, (struct stk_view){(uint8_t *)image, bytes}, identity,
                                   NULL),
         0);
    T_EQ("lost", stk_jpeg_index_get(marks, 0).entries.bytes, 0);
    stk_jpeg_index_close(marks);
}

/* Cancelled before its end. */
static void test_writer_given_up(struct stk_io *world)
{
    struct stk_jpeg_index_options plan = {PATH, LARGE_SAMPLES, 4, identity};
    struct stk_jpeg_index_writer *writer = NULL;

    T_EQ("open", stk_jpeg_index_writer_open(&writer, world, &plan, NULL), 0);
    T_EQ("add", add_large(writer), 0);
    T_TRUE("beside it", exists(world, PATH ".new"));
    stk_jpeg_index_writer_close(writer);
    T_TRUE("nothing is left", !exists(world, PATH ".new"));
    check_large(world, "as it was");
    plan.samples = UINT64_C(1) << 32;
    T_EQ("too many", stk_jpeg_index_writer_open(&writer, world, &plan, NULL), STOKER_ERROR_LIMIT);
    T_TRUE("none", !writer);
}

/* A file whose write succeeded exists after a power cut, completely. */
static void test_power(struct stk_io *world)
{
    T_EQ("remove", stk_io_remove(world, PATH, NULL), 0);
    T_EQ("write", write_large(world), 0);
    T_EQ("cut", stk_sim_crash(world), 0);
    check_large(world, "after a power cut");
}

int main(void)
{
    struct stk_io_options options = {.depth = 4, .read_timeout_ms = 1000};
    int64_t alive = stk_mem_alive();
    struct stk_io *world;

    for (uint32_t i = 0; i < SAMPLES; i++) {
        for (uint32_t k = 0; k < 64; k++) {
            pictures[i][k] = (uint8_t)stk_random_key(i, k);
        }
    }
    T_EQ("world", stk_sim_open(&world, 1, &options, NULL), 0);
    T_EQ("folder", stk_io_make_directory(world, "/data", false, NULL), 0);
    T_EQ("root", stk_io_sync_directory(world, "/", NULL), 0);
    write_file(world);
    test_full_file(world);
    test_damage();
    test_hostile();
    test_other_length();
    test_contradictions();
    test_shapes();
    test_writer_fails(world);
    test_writer_given_up(world);
    test_power(world);
    test_memory(world);
    test_pages(world);
    test_two_pages(world);
    test_sizes(world);
    stk_io_close(world);
    T_EQ("no leak", stk_mem_alive(), alive);
    return t_finish();
}
