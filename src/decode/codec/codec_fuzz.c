/* Any bytes as a picture: probe, then a box that the first bytes choose: its rows, and of a JPEG
 * the bands of its planes, with marks that are the picture's own bytes. The first 5 bytes are not
 * part of the picture, so that box and content vary apart from each other. Reaches codec_jpeg.c,
 * jpeg_header.c, jpeg_memory.c, codec_arena.c, codec_png.c, codec_webp.c, exif.c,
 * codec_check.c and codec_raw.c. */
#include "base/mem.h"
#include "decode/codec/codec.h"

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

static struct stk_codec_box box_of(const struct stk_codec_info *info, const uint8_t *choice)
{
    struct stk_codec_box box = {.x = share(info->width, choice[0]),
                                .y = share(info->height, choice[1])};

    box.width = 1 + share(info->width - box.x - 1, choice[2]);
    box.height = 1 + share(info->height - box.y - 1, choice[3]);
    return box;
}

/* Begins the box, perhaps with marks from nowhere; false: it did not. */
static bool begin(struct stk_codec *codec, struct stk_view picture,
                  const struct stk_codec_info *info, const uint8_t *choice,
                  uint32_t *row_pixels_out)
{
    static struct stk_jpeg_entry_points marks; /* valid until end */
    struct stk_codec_box box = box_of(info, choice);
    struct stk_jpeg_frame frame;
    uint64_t bytes;
    uint32_t skip;
    int status;

    if (choice[4] >= 192 && stk_jpeg_frame_read(picture, &frame) == STK_JPEG_DECODED) {
        marks.mcus = choice[4] % 3;
        bytes = stk_jpeg_entry_point_count(&frame, marks.mcus) * STK_JPEG_ENTRY_POINT_BYTES;
        marks.bytes = (struct stk_view){picture.data, stk_min(bytes, picture.bytes)};
        stk_codec_set_entry_points(codec, &marks);
    }
    status =
        stk_codec_begin(codec, picture, info, &box, MEMORY_BYTES_MAX, row_pixels_out, &skip, NULL);
    stk_codec_set_entry_points(codec, NULL);
    STK_ASSERT(status < 0 || skip + (uint64_t)box.width <= *row_pixels_out);
    return status >= 0;
}

static void decode_rows(struct stk_codec *codec, struct stk_view picture,
                        const struct stk_codec_info *info, const uint8_t *choice)
{
    uint8_t *rows[ROW_COUNT_MAX] = {NULL};
    uint32_t count = 1 + choice[4] % ROW_COUNT_MAX, height = box_of(info, choice).height;
    uint32_t row_pixels;
    uint8_t *space;
    int status = 0;

    if (!begin(codec, picture, info, choice, &row_pixels)) {
        return;
    }
    space = stk_alloc(count, (size_t)row_pixels * 4);
    for (uint32_t i = 0; space && i < count; i++) {
        rows[i] = space + (size_t)i * row_pixels * 4;
    }
    for (uint32_t y = 0; space && y < height; y += (uint32_t)status) {
        status = stk_codec_rows(codec, rows, count, NULL);
        if (status < 0) {
            break;
        }
    }
    if (space && status >= 0) {
        stk_codec_finish(codec, NULL);
        stk_codec_check_damage(codec, NULL);
    }
    stk_free(space);
    stk_codec_end(codec);
}

/* Each sample of a band can be read, and its colours can be converted; decode tolerates differences
 * from rows. */
static void decode_bands(struct stk_codec *codec, struct stk_view picture,
                         const struct stk_codec_info *info, const uint8_t *choice)
{
    struct stk_jpeg_plane planes[3];
    uint32_t row_pixels, count;
    bool more = true;

    if (!begin(codec, picture, info, choice, &row_pixels)) {
        return;
    }
    count = stk_codec_planes(codec, planes);
    STK_ASSERT(count == 0 || count == 1 || count == 3);
    while (count > 0 && more) {
        const uint8_t *samples[3] = {NULL, NULL, NULL};
        uint8_t pixel[4];
        struct stk_jpeg_band band;

        if (!stk_codec_band(codec, &band, &more)) {
            break;
        }
        for (uint32_t i = 0; i < count; i++) {
            uint32_t last = band.counts[i] > 0 ? band.counts[i] - 1 : 0;

            STK_ASSERT(band.counts[i] <= STK_JPEG_BAND_ROWS &&
                       band.y[i] + (uint64_t)band.counts[i] <= planes[i].height);
            samples[i] = band.rows[i] + last * band.strides[i];
        }
        stk_codec_to_rgbx(codec, samples, 1, pixel);
    }
    stk_codec_end(codec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    /* reused, as a worker does: one image must not affect the next */
    static struct stk_codec *codec;
    struct stk_codec_info info;
    struct stk_view picture;

    if (!codec) {
        STK_ASSERT(stk_codec_open(&codec, NULL) == 0);
    }
    if (bytes < CHOICE_BYTES) {
        return 0;
    }
    picture = (struct stk_view){data + CHOICE_BYTES, bytes - CHOICE_BYTES};
    if (stk_codec_probe(picture, PIXELS_MAX, &info, NULL) == 0) {
        decode_rows(codec, picture, &info, data);
        if (info.kind == STK_CODEC_JPEG) {
            decode_bands(codec, picture, &info, data);
        }
        stk_codec_check(codec, picture, &info, MEMORY_BYTES_MAX, NULL);
        stk_codec_trim(codec, 1u << 20);
    }
    return 0;
}
