/* Fuzz of jpeg_index.c: any bytes as a JPEG index: unchanged, and with right sums after them (the
 * last 8 bytes say where the table begins), so that its content is reached. Every result is inside
 * the file. */
#include "base/xxh3.h"
#include "decode/jpeg_index/jpeg_index_file.h"
#include "test/overwrite.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (1u << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const uint8_t identity[STK_JPEG_INDEX_IDENTITY_BYTES];
static const uint8_t picture[3] = {0xff, 0xd8, 0xff};

static void find_all(const struct stk_jpeg_index *marks, const uint8_t *image, size_t bytes)
{
    for (uint64_t i = 0; i < stk_jpeg_index_samples(marks) && i < 64; i++) {
        struct stk_jpeg_index_entries of = stk_jpeg_index_get(marks, i);
        struct stk_jpeg_entry_points found;

        if (stk_jpeg_index_find(&of, (struct stk_view){picture, sizeof picture}, &found)) {
            STK_ASSERT(found.bytes.data >= image && found.bytes.bytes <= bytes &&
                       found.bytes.data + found.bytes.bytes <= image + bytes);
        }
    }
}

/* Looks, and looks again after the bytes were overwritten while they are open. */
static void look(uint8_t *image, size_t bytes)
{
    struct stk_jpeg_index *marks;

    if (stk_jpeg_index_open_image(&marks, (struct stk_view){image, bytes}, identity, NULL) < 0) {
        return;
    }
    find_all(marks, image, bytes);
    for (uint32_t round = 0; round < T_OVERWRITE_ROUNDS; round++) {
        t_overwrite(image, bytes, round);
        find_all(marks, image, bytes);
    }
    stk_jpeg_index_close(marks);
}

/* Takes the first bytes for the data, and makes sums and a foot. */
static void seal_and_look(const uint8_t *data, size_t bytes)
{
    size_t data_bytes = bytes / 8 * 8, pages, size;
    struct stk_jpeg_index_footer foot = {.pages_at = data_bytes};
    struct stk_jpeg_index_header head = {.version = STK_JPEG_INDEX_VERSION,
                                         .page_bytes = STK_JPEG_INDEX_PAGE_BYTES};
    uint8_t *image;
    uint64_t *sums;

    pages = (data_bytes + STK_JPEG_INDEX_PAGE_BYTES - 1) / STK_JPEG_INDEX_PAGE_BYTES;
    size = data_bytes + pages * 8 + sizeof foot;
    image = aligned_alloc(8, size);
    memcpy(image, data, data_bytes);
    memcpy(&foot.table_at, image + data_bytes - 8, 8);
    if (data_bytes >= sizeof head) { /* the values that are compared with constants */
        memcpy(&head.samples, image + offsetof(struct stk_jpeg_index_header, samples), 16);
        memcpy(head.magic, STK_JPEG_INDEX_HEADER_MAGIC, sizeof head.magic);
        memcpy(image, &head, sizeof head);
        foot.table_at = data_bytes - (head.samples + 1) * 8;
    }
    sums = (uint64_t *)(void *)(image + data_bytes);
    for (size_t page = 0; page < pages; page++) {
        size_t from = page * STK_JPEG_INDEX_PAGE_BYTES;

        sums[page] =
            stk_xxh3_64(image + from, stk_min(STK_JPEG_INDEX_PAGE_BYTES, data_bytes - from));
    }
    memcpy(foot.magic, STK_JPEG_INDEX_FOOTER_MAGIC, sizeof foot.magic);
    foot.file_bytes = size;
    foot.pages_sum = stk_xxh3_64(sums, pages * 8);
    foot.foot_sum = stk_xxh3_64(&foot, offsetof(struct stk_jpeg_index_footer, foot_sum));
    memcpy(image + size - sizeof foot, &foot, sizeof foot);
    look(image, size);
    free(image);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *copy;

    if (bytes < 8 || bytes > BYTES_MAX) {
        return 0;
    }
    copy = aligned_alloc(8, stk_round_up(bytes, 8));
    memcpy(copy, data, bytes);
    look(copy, bytes);
    free(copy);
    seal_and_look(data, bytes);
    return 0;
}
