/* Goal: written data is read back; damage of any byte is found in its page and in no other page;
 * offsets outside the data are refused.
 * Method: files of sizes around pages and buffers, written by the writer and compared with the
 * format byte by byte; each kind of damage; failing allocations and a failing sink. */
#include "base/paged_file.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>

#define PAGE STK_PAGED_FILE_PAGE_BYTES
#define BYTES_MAX (130u * PAGE)

struct footer {
    uint64_t data_bytes, digest;
};

/* The bytes that the sink received; calls fails_at and later ones fail. */
static struct image {
    _Alignas(8) uint8_t bytes[BYTES_MAX + 130 * 8 + sizeof(struct footer)];
    size_t used, calls, fails_at;
} image;
static uint8_t source[BYTES_MAX];

static int take(void *context, const void *data, size_t bytes, struct stoker_error *error)
{
    struct image *into = context;

    if (++into->calls == into->fails_at) {
        return stk_fail(error, -EIO, "sink", "none", "call %zu", into->calls);
    }
    STK_ASSERT(bytes <= sizeof into->bytes - into->used);
    memcpy(into->bytes + into->used, data, bytes);
    into->used += bytes;
    return 0;
}

/* Puts the source in pieces of odd sizes. */
static int write_file(uint64_t bytes, struct stk_paged_layout *layout, struct stoker_error *error)
{
    struct stk_paged_writer writer;
    int status = stk_paged_writer_open(&writer, take, &image, error);

    image.used = image.calls = 0;
    for (uint64_t at = 0, part; status == 0 && at < bytes; at += part) {
        part = stk_min(bytes - at, 1 + stk_random_key(bytes, at) % (3 * PAGE));
        status = stk_paged_writer_put(&writer, source + at, part, error);
    }
    status =
        status < 0 ? status : stk_paged_writer_end(&writer, sizeof(struct footer), layout, error);
    if (status == 0) {
        struct footer footer = {layout->data_bytes, layout->checksums_digest};

        status = stk_paged_writer_finish(&writer, &footer, sizeof footer, error);
    }
    stk_paged_writer_close(&writer);
    return status;
}

static int open_file(struct stk_paged_file *file)
{
    struct footer footer;

    memcpy(&footer, image.bytes + image.used - sizeof footer, sizeof footer);
    T_TRUE("fits", stk_paged_file_fits(image.used, footer.data_bytes, sizeof footer));
    return stk_paged_file_open(file, (struct stk_view){image.bytes, image.used}, footer.data_bytes,
                               footer.digest);
}

static const struct row {
    const char *name;
    uint64_t bytes;
} rows[] = {
    {"nothing", 0},          {"a byte", 1},
    {"a word", 8},           {"less than a page", PAGE - 8},
    {"a page", PAGE},        {"more than a page", PAGE + 1},
    {"64 pages", 64 * PAGE}, {"64 pages and a word", 64 * PAGE + 8},
    {"many", BYTES_MAX - 3}, {"all", BYTES_MAX},
};

static void test_file(const struct row *row)
{
    struct stk_paged_layout layout = {0};
    struct stk_paged_file file;
    uint64_t damaged = 0, data_bytes = stk_round_up(row->bytes, 8);
    uint64_t count = stk_paged_file_page_count(data_bytes), wrong = 0;
    const uint64_t *sums = (const uint64_t *)(const void *)(image.bytes + data_bytes);

    T_EQ(row->name, write_file(row->bytes, &layout, NULL), 0);
    T_EQ(row->name, layout.data_bytes, data_bytes);
    T_EQ(row->name, layout.file_bytes, image.used);
    T_EQ(row->name, image.used, data_bytes + 8 * count + sizeof(struct footer));
    T_TRUE(row->name, memcmp(image.bytes, source, row->bytes) == 0);
    for (uint64_t page = 0; page < count; page++) {
        wrong += sums[page] !=
                 stk_xxh3_64(image.bytes + page * PAGE, stk_min(PAGE, data_bytes - page * PAGE));
    }
    T_EQ(row->name, wrong, 0);
    T_EQ(row->name, layout.checksums_digest, stk_xxh3_64(sums, 8 * count));
    T_EQ(row->name, open_file(&file), 0);
    T_TRUE(row->name, stk_paged_file_view(&file, 0, data_bytes, &damaged) == image.bytes);
    T_TRUE(row->name, stk_paged_file_view(&file, data_bytes, 0, &damaged) != NULL);
    T_TRUE(row->name, !stk_paged_file_view(&file, data_bytes, 1, &damaged));
    T_TRUE(row->name, damaged == STOKER_NO_OFFSET);
    T_TRUE(row->name, !stk_paged_file_view(&file, 8, UINT64_MAX - 4, &damaged));
    T_TRUE(row->name, damaged == STOKER_NO_OFFSET);
    stk_paged_file_close(&file);
    stk_paged_file_close(&file);
}

/* A byte of a page, of the checksums and of the digest. */
static void test_damage(void)
{
    static const uint64_t places[] = {0, PAGE - 1, PAGE, 65 * PAGE + 5, 129 * PAGE, BYTES_MAX - 1};
    struct stk_paged_layout layout;
    struct stk_paged_file file;
    uint64_t damaged = 0;

    T_EQ("write", write_file(BYTES_MAX, &layout, NULL), 0);
    for (size_t i = 0; i < STK_COUNT(places); i++) {
        uint64_t page = places[i] / PAGE;

        image.bytes[places[i]] ^= 1;
        T_EQ("open", open_file(&file), 0);
        T_TRUE("pages before", page == 0 || stk_paged_file_view(&file, 0, page * PAGE, &damaged));
        T_TRUE("page", !stk_paged_file_view(&file, places[i], 1, &damaged));
        T_EQ("page", damaged, page * PAGE);
        T_TRUE("across", !stk_paged_file_view(&file, 0, BYTES_MAX, &damaged));
        T_EQ("across", damaged, page * PAGE);
        T_TRUE("pages behind", stk_paged_file_view(&file, (page + 1) * PAGE,
                                                   BYTES_MAX - (page + 1) * PAGE, &damaged));
        image.bytes[places[i]] ^= 1;
        T_TRUE("looked at again", stk_paged_file_view(&file, places[i], 1, &damaged));
        image.bytes[places[i]] ^= 1;
        T_TRUE("checked once", stk_paged_file_view(&file, places[i], 1, &damaged));
        image.bytes[places[i]] ^= 1;
        stk_paged_file_close(&file);
    }
    image.bytes[BYTES_MAX + 9] ^= 1;
    T_EQ("checksums", open_file(&file), STOKER_ERROR_CORRUPT);
    stk_paged_file_close(&file);
    image.bytes[BYTES_MAX + 9] ^= 1;
    stk_mem_fail_nth(1);
    T_EQ("memory", open_file(&file), -ENOMEM);
    stk_paged_file_close(&file);
}

static const struct fit_row {
    const char *name;
    uint64_t file, data;
    bool fits;
} fit_rows[] = {
    {"footer alone", 16, 0, true},
    {"shorter than the footer", 15, 0, false},
    {"one page", 8 + 8 + 16, 8, true},
    {"not a multiple of 8", 9 + 8 + 16, 9, false},
    {"no checksum", 8 + 16, 8, false},
    {"a checksum too many", 8 + 16 + 16, 8, false},
    {"longer than the file", 32, 40, false},
    {"huge", 32, UINT64_MAX - 7, false},
    {"two pages", PAGE + 8 + 16 + 16, PAGE + 8, true},
};

static void test_failures(void)
{
    struct stk_paged_layout layout;
    int64_t alive = stk_mem_alive();
    int status = -1;

    for (size_t n = 1; status < 0; n++) {
        struct stoker_error error = {0};

        image.fails_at = n;
        status = write_file(BYTES_MAX, &layout, &error);
        T_TRUE("sink", status == 0 || (status == -EIO && error.status == -EIO));
        T_EQ("sink", stk_mem_alive(), alive);
    }
    image.fails_at = 0;
    status = -1;
    for (uint64_t n = 1; status < 0; n++) {
        struct stoker_error error = {0};

        stk_mem_fail_nth(n);
        status = write_file(BYTES_MAX, &layout, &error);
        stk_mem_fail_nth(0);
        if (status < 0) {
            T_EQ("memory", status, -ENOMEM);
            T_ERROR("memory", &error);
        }
        T_EQ("memory", stk_mem_alive(), alive);
    }
}

int main(void)
{
    for (uint64_t i = 0; i < BYTES_MAX; i++) {
        source[i] = (uint8_t)stk_random_key(1, i);
    }
    T_EACH(row, row, rows)
    {
        test_file(row);
    }
    T_EACH(fit_row, row, fit_rows)
    {
        T_EQ(row->name, stk_paged_file_fits(row->file, row->data, 16), row->fits);
    }
    test_damage();
    test_failures();
    return t_finish();
}
