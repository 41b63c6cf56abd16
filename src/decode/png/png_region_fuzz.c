/* Fuzz of png_rows.c: any bytes as a PNG, decoded by stoker (plain and with vectors) and by libpng:
 * if stoker returns a row, it is the same and libpng has no complaint. The first 5 bytes choose the
 * box, and whether the checksums are corrected first. Reaches png_chunks.c, png_stream.c,
 * png_filters.c, png_filters_avx2.c and png_rows.c. */
#include "decode/png/libpng_test.h"

#define CHOICE_BYTES 5u
#define PIXELS_MAX (1u << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The part of a side that a byte chooses. */
static uint32_t share(uint32_t side, uint8_t choice)
{
    return (uint32_t)((uint64_t)side * choice / 256);
}

static struct libpng libpng;

static void compare(struct stk_view picture, const uint8_t *choice)
{
    struct stk_png_frame frame;
    struct stk_png_box box;
    uint32_t given[2];

    if (!stk_png_frame_read(picture, &frame) || (uint64_t)frame.width * frame.height > PIXELS_MAX) {
        return;
    }
    box.x = share(frame.width, choice[0]);
    box.y = share(frame.height, choice[1]);
    box.width = 1 + share(frame.width - box.x - 1, choice[2]);
    box.height = 1 + share(frame.height - box.y - 1, choice[3]);
    libpng_decode(&libpng, picture);
    STK_ASSERT(!libpng_compare(&libpng, picture, &box, STOKER_SIMD_NONE, &given[0]));
    STK_ASSERT(!libpng_compare(&libpng, picture, &box, STOKER_SIMD_AUTO, &given[1]));
    STK_ASSERT(given[0] == given[1]);
    STK_ASSERT(libpng.complained || given[0] == box.height);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *copy;

    if (bytes < CHOICE_BYTES) {
        return 0;
    }
    bytes -= CHOICE_BYTES;
    copy = malloc(bytes ? bytes : 1); /* exactly: for sanitizers */
    memcpy(copy, data + CHOICE_BYTES, bytes);
    if (data[4] % 4) {
        libpng_fix_checksums(copy, bytes);
    }
    compare((struct stk_view){copy, bytes}, data);
    free(copy);
    return 0;
}
