/* Goal: a written and mapped index answers like the one in memory; damage of any byte is found; a
 * file with valid checksums and wrong offsets gives an error and no read outside of it.
 * Method: index_write.c, index_map.c and index_reuse.c: data sets of each kind as text, before and
 * after; every byte flipped, every truncation, words of the file replaced with new checksums; every
 * allocation and I/O call fails once. */
#include "base/mem.h"
#include "base/random.h"
#include "base/text/text_match.h"
#include "base/xxh3.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"
#include "index/index_file.h"
#include "io/sim/sim.h"
#include "io/write.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 1 << 16, SHARDS = 4, NAMES_MAX = 8 };

enum extra {
    SUMS = 1,
    LABELS = 2,
    DIGEST = 4,
    CLASSES = 8,
    FOLDER = 16,
    WIDE = 32,
    GZIP = 64,
    ACCESS = 128,
    FAR_ACCESS = 256
};

/* Data sets of every kind. */
static const struct set {
    const char *name;
    uint32_t extras, member_gap_max;
    const char *shards[SHARDS][NAMES_MAX];
} sets[] = {
    {"nothing", 0, 0, {{0}}},
    {"tars", 0, 0, {{"a.jpg", "a.cls", "b.png"}, {0}, {"c.webp"}, {"d.jpg", "e.json", "e.jpg"}}},
    {"checksums", SUMS, 0, {{"a.jpg", "a.cls", "b.png"}, {0}, {"skipped", "c.webp"}}},
    {"labels", LABELS | CLASSES, 0, {{"a.jpg", "a.cls", "b.png"}, {"c.webp"}}},
    {"digests", DIGEST, 0, {{"a.jpg"}, {0}, {"c.webp"}}},
    {"joined, with all", SUMS | LABELS | DIGEST | CLASSES, 3, {{"a.1", "b.1", "a.2", "b.2"}}},
    {"wide", WIDE | SUMS, 0, {{"a.jpg", "a.cls"}, {"c.webp"}}},
    {"packed", GZIP, 0, {{"a.jpg", "a.cls"}, {"c.webp"}}},
    {"packed, access points", GZIP | ACCESS | SUMS, 0, {{"a.jpg", "a.cls"}, {"c.webp"}}},
    {"compressed, too large an offset",
     GZIP | ACCESS | FAR_ACCESS,
     0,
     {{"a.jpg", "a.cls"}, {"c.webp"}}},
    {"folder", FOLDER | CLASSES, 0, {{"cat/1.jpg", "cat/x/2.JPG", "dog/3.png"}}},
    {"folder with checksums", FOLDER | SUMS, 0, {{"cat/1.jpg", "cat/2", "dog/3.png"}}},
};

/* A head, a point and a window of 3 bytes. */
static int add_access(struct stk_index_shard_builder *builder, uint64_t object_bytes,
                      bool is_far_access, struct stoker_error *error)
{
    uint64_t bytes = is_far_access ? STK_SEEK_POINTS_SEGMENT_MAX + 1 : 5000;
    struct stk_seek_points_head head = {.out_bytes = bytes,
                                        .in_bytes = object_bytes,
                                        .segment_bytes_max = bytes,
                                        .point_count = 1,
                                        .compression = STK_COMPRESSION_GZIP};
    struct stk_seek_point point = {.kind = STK_SEEK_POINT_STREAM, .checksum = object_bytes};
    uint8_t *image = stk_alloc(stk_seek_points_offset(1) + 3, 1);

    if (!image) {
        return stk_fail(error, -ENOMEM, "no memory for seek points", "free memory", "test");
    }
    memcpy(image, &head, sizeof head);
    memcpy(image + sizeof head, &point, sizeof point);
    memcpy(image + stk_seek_points_offset(1), "abc", 3);
    stk_index_shard_set_seek_points(builder,
                                    (struct stk_view){image, stk_seek_points_offset(1) + 3});
    return 0;
}

static int fill_tar(struct stk_index *index, uint32_t shard, const char *root,
                    const struct set *set, struct stoker_error *error)
{
    struct stk_index_shard_builder *builder = NULL;
    uint8_t digest[32] = {1, 2, 3, (uint8_t)shard};
    uint64_t far = set->extras & WIDE ? 1ull << 42 : 0, at = 512;
    char path[64];
    int status;

    snprintf(path, sizeof path, "%ss/%u.tar", root, shard);
    status = stk_index_shard_begin(index, shard, path, &builder, error);
    for (int i = 0; status == 0 && i < NAMES_MAX && set->shards[shard][i]; i++) {
        status = stk_index_shard_add(builder, stk_view_of_text(set->shards[shard][i]), at + far,
                                     3 + far, error);
        if (status == 0 && set->extras & SUMS) {
            status =
                stk_index_shard_set_checksum(builder, stk_xxh3_64(&at, sizeof at) + shard, error);
        }
        if (status == 0 && set->extras & LABELS && i % 2 == 0) {
            status = stk_index_shard_set_label(builder, -5 + i, error);
        }
        at += 1024;
    }
    if (status == 0 && set->extras & DIGEST) {
        stk_index_shard_set_digest(builder, digest);
    }
    if (status == 0 && set->extras & ACCESS) {
        status = add_access(builder, at + 2 * far, set->extras & FAR_ACCESS, error);
    }
    if (status < 0) {
        stk_index_shard_cancel(builder);
        return status;
    }
    return stk_index_shard_end(builder, at + 2 * far,
                               set->extras & GZIP ? STK_COMPRESSION_GZIP : STK_COMPRESSION_NONE,
                               error);
}

static int fill_file(struct stk_index *index, uint32_t shard, const char *root,
                     const struct set *set, struct stoker_error *error)
{
    const char *name = set->shards[0][shard], *dot = strrchr(name, '.');
    struct stk_index_shard_builder *builder = NULL;
    char path[64];
    int status;

    snprintf(path, sizeof path, "%s%s", root, name);
    status = stk_index_shard_begin(index, shard, path, &builder, error);
    if (status == 0) {
        status = stk_index_shard_add_file(builder, stk_view_of_text(name),
                                          stk_view_of_text(dot ? dot + 1 : ""), shard / 2, error);
    }
    if (status == 0 && set->extras & SUMS) {
        status = stk_index_shard_set_checksum(builder, 77 + shard, error);
    }
    if (status < 0) {
        stk_index_shard_cancel(builder);
        return status;
    }
    return stk_index_shard_end(builder, 0, STK_COMPRESSION_NONE, error);
}

static int make(struct stk_index **index_out, const struct set *set, const char *root,
                struct stoker_error *error)
{
    struct stk_index_options options = {.member_gap_max = set->member_gap_max};
    struct stk_index *index = NULL;
    int status;

    while (set->extras & FOLDER ? set->shards[0][options.shard_count] != NULL
                                : options.shard_count < (set == sets ? 0 : SHARDS)) {
        options.shard_count++;
    }
    status = stk_index_open(&index, &options, error);
    for (uint32_t i = 0; status == 0 && i < options.shard_count; i++) {
        status = set->extras & FOLDER ? fill_file(index, i, root, set, error)
                                      : fill_tar(index, i, root, set, error);
    }
    if (status == 0 && set->extras & CLASSES) {
        status = stk_index_add_class(index, "cat", error);
        status = status < 0 ? status : stk_index_add_class(index, "d\xc3\xb6g", error);
    }
    if (status == 0) {
        status = stk_index_finish(index, 0, error);
    }
    if (status < 0) {
        stk_index_close(index);
        return status;
    }
    *index_out = index;
    return 0;
}

struct text {
    char bytes[TEXT_BYTES_MAX];
    size_t used;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...)
{
    __builtin_va_list list;

    __builtin_va_start(list, format);
    text->used +=
        vsnprintf(text->bytes + text->used, sizeof text->bytes - text->used, format, list);
    __builtin_va_end(list);
    text->used = stk_min(text->used, sizeof text->bytes - 1);
}

static int tell_sample(const struct stk_index *index, uint64_t number, struct text *text,
                       struct stoker_error *error)
{
    struct stk_sample sample = {0};
    int status = stk_index_sample(index, number, &sample, error);

    if (status < 0) {
        return status;
    }
    add(text, "%u/%llu %.*s %lld:", sample.shard, (unsigned long long)sample.number,
        (int)sample.key.bytes, (const char *)sample.key.data, (long long)sample.label);
    for (uint32_t i = 0; i < sample.member_count; i++) {
        struct stk_member member;
        uint64_t sum = 0;

        status = stk_index_member(index, &sample, i, &member, error);
        if (status == 0 && stk_index_shard_has_checksums(index, sample.shard)) {
            status = stk_index_checksum(index, &sample, i, &sum, error);
        }
        if (status < 0) {
            return status;
        }
        add(text, " %s@%llu+%llu#%llx", stk_index_extension(index, member.extension),
            (unsigned long long)member.offset, (unsigned long long)member.bytes,
            (unsigned long long)sum);
    }
    add(text, "\n");
    return 0;
}

/* The complete contents, as text. */
static int tell(const struct stk_index *index, struct text *text, struct stoker_error *error)
{
    int status = 0;

    text->used = 0;
    text->bytes[0] = '\0';
    add(text, "%llu %llu %llu %llu %d %d %u %u %02x%02x\n",
        (unsigned long long)stk_index_samples(index), (unsigned long long)stk_index_members(index),
        (unsigned long long)stk_index_bytes(index),
        (unsigned long long)stk_index_block_samples(index), stk_index_is_folder(index),
        stk_index_is_sequential(index), stk_index_member_gap_max(index),
        stk_index_key_bytes_max(index), stk_index_identity(index)[0],
        stk_index_identity(index)[31]);
    for (uint64_t i = 0; i < stk_index_classes(index); i++) {
        add(text, "class %s\n", stk_index_class(index, i));
    }
    for (uint64_t i = 0; status == 0 && i < stk_index_shards(index); i++) {
        const uint8_t *digest = stk_index_shard_digest(index, i);
        char path[STK_PATH_BYTES_MAX];

        uint64_t access_bytes = stk_index_seek_points_bytes(index, i), sum = 0;

        status = stk_index_path(index, i, path, error);
        if (status == 0 && access_bytes > 0) {
            const void *access = stk_index_seek_points(index, i, 0, access_bytes, error);

            status = access ? 0 : STOKER_ERROR_CORRUPT;
            sum = access ? stk_xxh3_64(access, access_bytes) : 0;
        }
        if (status == 0) {
            add(text, "%llu+%llx ", (unsigned long long)access_bytes, (unsigned long long)sum);
            add(text, "%s %llu %u %llu %llu %d %d\n", path,
                (unsigned long long)stk_index_shard_bytes(index, i),
                stk_index_shard_compression(index, i),
                (unsigned long long)stk_index_shard_samples(index, i),
                (unsigned long long)stk_index_first_sample(index, i),
                stk_index_shard_has_labels(index, i), digest ? digest[3] : -1);
        }
    }
    for (uint64_t i = 0; status == 0 && i < stk_index_samples(index); i++) {
        status = tell_sample(index, i, text, error);
    }
    return status;
}

static void test_round_trip(void)
{
    static struct text before, after;

    T_EACH(set, set, sets)
    {
        struct stk_index *index = NULL, *mapped = NULL;
        struct stk_view image = {0}, again = {0};
        struct stoker_error error = {0};

        T_EQ(set->name, make(&index, set, "d/", &error), 0);
        T_EQ(set->name, tell(index, &before, &error), 0);
        T_EQ(set->name, stk_index_image(index, "d/", &image, &error), 0);
        stk_index_close(index);
        T_EQ(set->name, stk_index_open_image(&mapped, image, "d/stoker.index", &error), 0);
        if (mapped) {
            stk_index_set_root(mapped, "d/", NULL);
            T_EQ(set->name, tell(mapped, &after, &error), 0);
            T_STR(set->name, after.bytes, before.bytes);
            T_EQ(set->name, stk_index_extension_id(mapped, "nothing"), -1);
        }
        stk_index_close(mapped);

        /* The same data elsewhere: the same bytes. */
        T_EQ(set->name, make(&index, set, "/else/where/", &error), 0);
        T_EQ(set->name, stk_index_image(index, "/else/where/", &again, &error), 0);
        T_EQ(set->name, again.bytes, image.bytes);
        T_EQ(set->name, memcmp(again.data, image.data, image.bytes), 0);
        stk_index_close(index);
        stk_free((void *)(uintptr_t)image.data);
        stk_free((void *)(uintptr_t)again.data);
    }
}

/* Packed shards are sequential but where access points reach. */
static void test_reach(void)
{
    static const struct reach {
        const char *name;
        bool sequential;
    } reaches[] = {{"tars", false},
                   {"packed", true},
                   {"packed, access points", false},
                   {"compressed, too large an offset", true}};

    T_EACH(reach, row, reaches)
    {
        T_EACH(set, set, sets)
        {
            struct stk_index *index = NULL;

            if (strcmp(set->name, row->name) == 0) {
                T_EQ(row->name, make(&index, set, "d/", NULL), 0);
                T_EQ(row->name, stk_index_is_sequential(index), row->sequential);
                stk_index_close(index);
            }
        }
    }
}

static struct stk_view image_of(const struct set *set)
{
    struct stk_index *index = NULL;
    struct stk_view image = {0};

    T_EQ(set->name, make(&index, set, "", NULL), 0);
    T_EQ(set->name, stk_index_image(index, "", &image, NULL), 0);
    stk_index_close(index);
    return image;
}

/* Opens the index and reads everything: returns 0, or the error's status. */
static int visit(struct stk_view image, struct text *text, struct stoker_error *error)
{
    struct stk_index *index = NULL;
    int status = stk_index_open_image(&index, image, "x.index", error);

    if (status == 0) {
        status = tell(index, text, error);
    }
    stk_index_close(index);
    return status;
}

static void test_damage(void)
{
    static struct text before, after;

    T_EACH(set, set, sets)
    {
        struct stk_view image = image_of(set);
        uint8_t *copy = stk_alloc(image.bytes, 1);
        uint64_t missed = 0;

        visit(image, &before, NULL);
        for (size_t i = 0; i < image.bytes; i++) {
            struct stoker_error error = {0};

            memcpy(copy, image.data, image.bytes);
            copy[i] ^= 1 << i % 8;
            int status = visit((struct stk_view){copy, image.bytes}, &after, &error);
            /* Padding is covered by sums, too, but no look-up touches the last of it. */
            missed += status == 0 && strcmp(before.bytes, after.bytes) != 0;
            if (status < 0 && !T_ERROR(set->name, &error)) {
                break;
            }
        }
        T_EQ(set->name, missed, 0);
        for (size_t i = 0; i < image.bytes; i++) {
            struct stoker_error error = {0};

            /* A block of its own, so that a sanitizer detects reads past it. */
            uint8_t *cut = stk_alloc(stk_max(i, 1), 1);
            memcpy(cut, image.data, i);
            if (!T_TRUE(set->name, visit((struct stk_view){cut, i}, &after, &error) < 0)) {
                printf("cut at %zu\n", i);
                stk_free(cut);
                break;
            }
            T_ERROR(set->name, &error);
            stk_free(cut);
        }
        stk_free(copy);
        stk_free((void *)(uintptr_t)image.data);
    }
}

/* As a person who knows the format could do after a change. */
static void make_sums(uint8_t *data, size_t bytes)
{
    struct stk_index_file_foot *foot =
        (struct stk_index_file_foot *)(void *)(data + bytes - sizeof *foot);
    uint64_t pages = (bytes - sizeof *foot - foot->pages_at) / 8;
    uint64_t *sums;

    if (foot->pages_at % 8 == 0 && foot->pages_at < bytes - sizeof *foot) {
        sums = (uint64_t *)(void *)(data + foot->pages_at);
        for (uint64_t i = 0; i < pages && i * STK_INDEX_FILE_PAGE_BYTES < foot->pages_at; i++) {
            uint64_t start = i * STK_INDEX_FILE_PAGE_BYTES;
            sums[i] = stk_xxh3_64(data + start,
                                  stk_min(STK_INDEX_FILE_PAGE_BYTES, foot->pages_at - start));
        }
        foot->pages_sum = stk_xxh3_64(sums, pages * 8);
    }
    foot->foot_sum = stk_xxh3_64(foot, offsetof(struct stk_index_file_foot, foot_sum));
}

static void test_hostile(void)
{
    static struct text after;
    static const uint64_t words[] = {0,          1,          2,          3,
                                     7,          UINT16_MAX, INT32_MAX,  UINT32_MAX,
                                     1ull << 40, INT64_MAX,  UINT64_MAX, UINT64_MAX - 7};
    uint64_t refused = 0, rounds = 0;

    T_EACH(set, set, sets)
    {
        struct stk_view image = image_of(set);
        uint8_t *copy = stk_alloc(image.bytes, 1);

        /* Each place once with each word, of each size. */
        for (size_t i = 16; i + 8 <= image.bytes; i += 2) {
            for (size_t w = 0; w < STK_COUNT(words); w++) {
                struct stoker_error error = {0};
                size_t size = i % 8 == 0 ? 8 : i % 4 == 0 ? 4 : 2;
                int status;

                memcpy(copy, image.data, image.bytes);
                memcpy(copy + i, &words[w], size);
                if (i % 8 == 0 && w % 2) {
                    memcpy(copy + i, &words[w], 4);
                    memcpy(copy + i + 4, image.data + i + 4, 4);
                }
                make_sums(copy, image.bytes);
                status = visit((struct stk_view){copy, image.bytes}, &after, &error);
                rounds++;
                refused += status < 0;
                if (status < 0 && !T_ERROR(set->name, &error)) {
                    break;
                }
            }
        }
        stk_free(copy);
        stk_free((void *)(uintptr_t)image.data);
    }
    T_TRUE("many are refused", refused > rounds / 4);
    printf("hostile: %llu of %llu refused\n", (unsigned long long)refused,
           (unsigned long long)rounds);
}

/* Parts that are taken over, from a file or from memory, make the same file. */
static void check_reuse(const struct set *set, bool from_memory)
{
    struct stk_index_options options = {.shard_count = SHARDS,
                                        .member_gap_max = set->member_gap_max};
    struct stk_view image = image_of(set), again = {0};
    struct stk_index *old = NULL, *index = NULL;
    struct stoker_error error = {0};

    T_EQ(set->name,
         from_memory ? make(&old, set, "", &error)
                     : stk_index_open_image(&old, image, "old", &error),
         0);
    T_EQ(set->name, stk_index_open(&index, &options, &error), 0);
    for (uint32_t i = SHARDS; i-- > 0;) {
        char path[STK_PATH_BYTES_MAX];

        T_EQ(set->name, stk_index_path(old, i, path, &error), 0);
        T_EQ(set->name, stk_index_shard_copy(index, i, path, old, i, &error), 0);
    }
    for (uint64_t i = 0; i < stk_index_classes(old); i++) {
        stk_index_add_class(index, stk_index_class(old, i), NULL);
    }
    stk_index_close(old); /* nothing of it is borrowed */
    T_EQ(set->name, stk_index_finish(index, 0, &error), 0);
    T_EQ(set->name, stk_index_image(index, "", &again, &error), 0);
    T_EQ(set->name, again.bytes, image.bytes);
    T_EQ(set->name, memcmp(again.data, image.data, image.bytes), 0);
    stk_index_close(index);
    stk_free((void *)(uintptr_t)image.data);
    stk_free((void *)(uintptr_t)again.data);
}

static void test_reuse(void)
{
    T_EACH(set, set, sets)
    {
        if (!(set->extras & FOLDER) && set != sets) {
            check_reuse(set, false);
            check_reuse(set, true);
        }
    }
}

struct large {
    const char *name;
    uint32_t samples, members; /* members of a sample: 1 to this */
    uint64_t member_bytes;     /* at most */
    int64_t label;             /* the largest; 0: no labels */
    bool sums;
};

/* One shard of members of many sizes. Keys have 8 bytes. */
static struct stk_index *make_large(const struct large *large)
{
    struct stk_index_options options = {.shard_count = 1};
    struct stk_index *index = NULL;
    struct stk_index_shard_builder *builder = NULL;
    uint64_t at = 512;
    int status;

    T_EQ("open", stk_index_open(&index, &options, NULL), 0);
    T_EQ("begin", stk_index_shard_begin(index, 0, "0.tar", &builder, NULL), 0);
    for (uint32_t i = 0; i < large->samples; i++) {
        uint64_t dice = stk_mix64(i);

        for (uint32_t m = 0; m <= dice % large->members; m++) {
            uint64_t bytes = 1 + (dice >> 8) % large->member_bytes;
            char name[32];

            snprintf(name, sizeof name, "%08u.%c", i, 'a' + (int)m);
            status = stk_index_shard_add(builder, stk_view_of_text(name), at, bytes, NULL);
            if (status == 0 && large->sums) {
                status = stk_index_shard_set_checksum(builder, stk_mix64(at), NULL);
            }
            T_EQ("add", status, 0);
            at += stk_round_up(bytes, 512) + 512;
        }
        if (large->label > 0) {
            T_EQ("label",
                 stk_index_shard_set_label(builder, (int64_t)(dice % (large->label + 1)), NULL), 0);
        }
    }
    T_EQ("end", stk_index_shard_end(builder, at + 1024, STK_COMPRESSION_NONE, NULL), 0);
    T_EQ("finish", stk_index_finish(index, 0, NULL), 0);
    return index;
}

/* Large enough for many pages: each page damaged is found, with its place. */
static void test_pages(void)
{
    static struct text text;
    const struct large large = {"pages", 20000, 2, 3000, 9, true};
    struct stk_index *index = make_large(&large);
    struct stk_view image = {0};
    uint64_t pages;

    T_EQ("image", stk_index_image(index, "", &image, NULL), 0);
    pages = image.bytes / STK_INDEX_FILE_PAGE_BYTES;
    T_TRUE("many pages", pages > 20);
    for (uint64_t page = 0; page < pages; page++) {
        uint64_t at = page * STK_INDEX_FILE_PAGE_BYTES + 4000;
        struct stoker_error error = {0};
        uint8_t *data = (uint8_t *)(uintptr_t)image.data;

        data[at] ^= 32;
        T_EQ("found", visit(image, &text, &error), STOKER_ERROR_CORRUPT);
        T_STR("the file", error.shard, "x.index");
        T_EQ("the page", error.offset, page * STK_INDEX_FILE_PAGE_BYTES);
        T_HAS("what to do", error.advice, "stoker index --force");
        data[at] ^= 32;
    }
    stk_index_close(index);
    stk_free((void *)(uintptr_t)image.data);
}

/* To map a file of many pages touches those of its records and texts, and a look-up a few more:
 * counted by the bits of the pages that were checked. */
static uint64_t good_pages(const struct stk_index *index)
{
    uint64_t pages = index->map->foot.pages_at / STK_INDEX_FILE_PAGE_BYTES + 1, count = 0;

    for (uint64_t i = 0; i < pages; i++) {
        count += atomic_load(&index->map->file.checked_pages[i / 64]) >> i % 64 & 1;
    }
    return count;
}

static void test_touched(void)
{
    for (uint32_t samples = 100; samples <= 1000000; samples *= 100) {
        const struct large large = {"touched", samples, 1, 3000, 0, false};
        struct stk_index *index = make_large(&large), *mapped = NULL;
        struct stk_view image = {0};
        struct stk_sample sample = {0};
        struct stk_member member;

        T_EQ("image", stk_index_image(index, "", &image, NULL), 0);
        stk_index_close(index);
        T_EQ("map", stk_index_open_image(&mapped, image, "x", NULL), 0);
        T_TRUE("few pages to open", good_pages(mapped) <= 2);
        T_EQ("sample", stk_index_sample(mapped, samples / 2, &sample, NULL), 0);
        T_EQ("member", stk_index_member(mapped, &sample, 0, &member, NULL), 0);
        T_TRUE("few pages to look up", good_pages(mapped) <= 2 + 12);
        stk_index_close(mapped);
        stk_free((void *)(uintptr_t)image.data);
    }
}

/* The size limit: at most 24 bytes a member beside names, with all optional information. */
static void test_bytes(void)
{
    static const struct large rows[] = {
        {"pictures", 100000, 1, 200000, 0, false},
        {"pictures, all known", 100000, 1, 16000000, INT32_MAX, true},
        {"small, all known", 100000, 1, 300, 999, true},
        {"1 to 5 members, all known", 30000, 5, 16000000, INT32_MAX, true},
        {"films, all known", 20000, 1, 1ull << 30, INT32_MAX, true},
        {"past 4 GiB, all known", 20000, 1, 1ull << 33, INT32_MAX, true},
    };

    T_EACH(large, row, rows)
    {
        struct stk_index *index = make_large(row);
        uint64_t members = stk_index_members(index), beside;
        struct stk_view image = {0};

        T_EQ(row->name, stk_index_image(index, "", &image, NULL), 0);
        /* Names: 8 bytes each. The rest of the file: its foot, its one record. */
        beside = image.bytes - 8ull * row->samples - 512;
        printf("%s: %.2f bytes a member\n", row->name, (double)beside / (double)members);
        T_TRUE(row->name, beside <= 24 * members);
        stk_index_close(index);
        stk_free((void *)(uintptr_t)image.data);
    }
}

static struct stk_io *open_world(void)
{
    struct stk_io_options options = {.depth = 8, .read_timeout_ms = 1000};
    struct stk_io *io = NULL;

    T_EQ("world", stk_sim_open(&io, 7, &options, NULL), 0);
    T_EQ("folder", stk_sim_add(io, "d", NULL, 0), 0);
    return io;
}

static void test_file(void)
{
    static struct text before, after;
    const struct set *set = &sets[5];
    struct stk_io *io = open_world();
    struct stk_index *index = NULL, *mapped = NULL;
    struct stoker_error error = {0};

    T_EQ("make", make(&index, set, "/d/", &error), 0);
    T_EQ("tell", tell(index, &before, &error), 0);
    T_EQ("write", stk_index_write(index, io, "/d/stoker.index", &error), 0);
    T_EQ("map", stk_index_open_file(&mapped, io, "/d/stoker.index", &error), 0);
    T_EQ("tell", tell(mapped, &after, &error), 0);
    T_STR("the same", after.bytes, before.bytes);
    stk_index_close(mapped);
    T_EQ("elsewhere", stk_index_write(index, io, "/stoker.index", &error), 0);
    T_EQ("not below", stk_index_write(index, io, "/d/s/x/stoker.index", &error), -ENOENT);
    stk_index_close(index);
    T_EQ("not there", stk_index_open_file(&mapped, io, "/d/none", &error), -ENOENT);
    stk_sim_add(io, "/d/text", "hello, this is no index", 23);
    T_EQ("no index", stk_index_open_file(&mapped, io, "/d/text", &error), STOKER_ERROR_FORMAT);
    stk_sim_add(io, "/d/old", "STOKERIX\1\0\0\0\0\100\0\0", 16);
    T_EQ("version 1", stk_index_open_file(&mapped, io, "/d/old", &error), STOKER_ERROR_UNSUPPORTED);
    T_HAS("what to do", error.advice, "stoker index --force");
    stk_sim_add(io, "/d/empty", "", 0);
    T_EQ("empty", stk_index_open_file(&mapped, io, "/d/empty", &error), STOKER_ERROR_FORMAT);
    stk_io_close(io);
}

/* Every allocation, and every I/O call, fails once: an error, no leak, and the final name is either
 * absent or complete. */
static void test_failures(void)
{
    static struct text before, after;

    for (int what = 0; what < 2; what++) {
        T_EACH(set, set, sets)
        {
            struct stk_io *io = open_world();
            bool done = false;

            for (uint64_t n = 1; !done && n < 1000; n++) {
                struct stk_index *index = NULL, *mapped = NULL;
                struct stoker_error error = {0};
                int status;

                T_EQ(set->name, make(&index, set, "d/", NULL), 0);
                tell(index, &before, NULL);
                stk_io_remove(io, "d/stoker.index", NULL);
                if (what == 0) {
                    stk_mem_fail_nth(n);
                } else {
                    stk_sim_fail_nth(io, n);
                }
                status = stk_index_write(index, io, "d/stoker.index", &error);
                if (status == 0) {
                    status = stk_index_open_file(&mapped, io, "d/stoker.index", &error);
                }
                stk_mem_fail_nth(0);
                stk_sim_fail_nth(io, 0);
                done = status == 0;
                if (status < 0) {
                    T_ERROR(set->name, &error);
                    T_TRUE(set->name, mapped == NULL);
                    status = stk_index_open_file(&mapped, io, "d/stoker.index", NULL);
                }
                if (status == 0) {
                    T_EQ(set->name, tell(mapped, &after, NULL), 0);
                    T_STR(set->name, after.bytes, before.bytes);
                } else {
                    T_EQ(set->name, status, -ENOENT);
                }
                stk_index_close(mapped);
                stk_index_close(index);
            }
            T_TRUE(set->name, done);
            stk_io_close(io);
        }
    }
}

int main(void)
{
    test_round_trip();
    test_reach();
    test_damage();
    test_hostile();
    test_reuse();
    test_pages();
    test_touched();
    test_bytes();
    test_file();
    test_failures();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
