/* Any bytes as a picture: probe, then a box that the first bytes choose. The first 5 bytes are
 * not part of the picture, so that box and content vary apart from each other. Reaches jpeg.c,
 * jpeg_header.c, jpeg_memory.c, scratch.c, png.c, webp.c and exif.c. */
#include "base/mem.h"
#include "codec/codec.h"

#define CHOICE_BYTES 5u
#define PIXELS_MAX (1u << 22)
#define MEMORY_BYTES_MAX (64u << 20)
#define ROW_COUNT_MAX 8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The part of a side that a byte chooses: a start for one, a length for the next. */
static uint32_t share(uint32_t side, uint8_t choice)
{
    return (uint32_t)((uint64_t)side * choice / 256);
}

static void decode(struct stk_codec *codec, struct stk_view picture,
                   const struct stk_picture_info *info, const uint8_t *choice)
{
    uint8_t       *rows[ROW_COUNT_MAX] = { NULL };
    uint32_t       count = 1 + choice[4] % ROW_COUNT_MAX;
    uint32_t       row_pixels, skip;
    uint8_t       *space = NULL;
    struct stk_box box;
    int            status;

    box.x = share(info->width, choice[0]);
    box.y = share(info->height, choice[1]);
    box.width = 1 + share(info->width - box.x - 1, choice[2]);
    box.height = 1 + share(info->height - box.y - 1, choice[3]);
    status = stk_codec_begin(codec, picture, info, &box, MEMORY_BYTES_MAX, &row_pixels, &skip,
                             NULL);
    if (status < 0) {
        return;
    }
    STK_ASSERT(skip + (uint64_t)box.width <= row_pixels);
    space = stk_alloc(count, (size_t)row_pixels * 4);
    for (uint32_t i = 0; space && i < count; i++) {
        rows[i] = space + (size_t)i * row_pixels * 4;
    }
    for (uint32_t y = 0; space && y < box.height; y += (uint32_t)status) {
        status = stk_codec_rows(codec, rows, count, NULL);
        if (status < 0) {
            break;
        }
    }
    stk_free(space);
    stk_codec_end(codec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct stk_codec *codec; /* kept, as a worker does: one picture must not hurt the next */
    struct stk_picture_info  info;
    struct stk_view          picture;

    if (!codec) {
        STK_ASSERT(stk_codec_open(&codec, NULL) == 0);
    }
    if (bytes < CHOICE_BYTES) {
        return 0;
    }
    picture = (struct stk_view){ data + CHOICE_BYTES, bytes - CHOICE_BYTES };
    if (stk_picture_probe(picture, PIXELS_MAX, &info, NULL) == 0) {
        decode(codec, picture, &info, data);
        stk_codec_trim(codec, 1u << 20);
    }
    return 0;
}
