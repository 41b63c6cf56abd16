/* Fuzz of image_decode.c: any bytes as an image, as a loader decodes it: random boxes, flips and
 * colours, turned by EXIF, resized by rows or planes, or nearest as a mask, into a slot of each
 * type. The slot is the same with vectors and without, and through a canvas, whatever was decoded
 * before; memory stays within the ticket's estimate. The first 4 bytes choose the plan, the key and
 * random entry points. Reaches image_decode.c, transform_plan.c, crop_geometry.c, random_draw.c and
 * decode/pixel. */
#include "decode/codec/codec.h"
#include "decode/image/image_decode.h"

#include <stdlib.h>
#include <string.h>

#define CHOICE_BYTES 4u
#define PIXELS_MAX (1u << 18)
#define MEMORY_BYTES_MAX (32u << 20)
#define PLANS_MAX 8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define RANDOM_CROP(h, w, f)                                                                       \
    {.kind = STOKER_RANDOM_RESIZED_CROP,                                                           \
     .height = h,                                                                                  \
     .width = w,                                                                                   \
     .filter = f,                                                                                  \
     .scale = {0.05, 1},                                                                           \
     .ratio = {0.5, 2}}
#define NORMALIZE {.kind = STOKER_NORMALIZE, .mean = {0.5f, 0.4f, 0.3f}, .std = {0.2f, 0.3f, 0.25f}}

static struct stoker_transform train[] = {
    RANDOM_CROP(17, 24, STOKER_BILINEAR),
    {.kind = STOKER_RANDOM_HORIZONTAL_FLIP, .probability = 0.5},
    NORMALIZE,
};
static struct stoker_transform no_crop[] = {
    {.kind = STOKER_RESIZE, .height = 12, .width = 19, .filter = STOKER_BICUBIC},
    {.kind = STOKER_RANDOM_VERTICAL_FLIP, .probability = 0.5},
};
static struct stoker_transform nearest[] = {
    {.kind = STOKER_RESIZE, .height = 9, .width = 30, .filter = STOKER_NEAREST},
    {.kind = STOKER_RANDOM_HORIZONTAL_FLIP, .probability = 0.5},
};
static struct stoker_transform center[] = {
    {.kind = STOKER_CENTER_CROP, .height = 21, .width = 33},
};
static struct stoker_transform colored[] = {
    RANDOM_CROP(16, 16, STOKER_BICUBIC),
    {.kind = STOKER_COLOR_JITTER,
     .brightness = {0.5, 1.5},
     .contrast = {0.5, 1.5},
     .saturation = {0.5, 1.5},
     .hue = {-0.1, 0.1}},
    NORMALIZE,
};

static const struct stk_transform_plan_options options[] = {
    {.transforms = train, .transform_count = 3, .dtype = STOKER_FLOAT32, .exif = true},
    {.transforms = train, .transform_count = 3, .dtype = STOKER_BFLOAT16, .planar = true},
    {.transforms = no_crop, .transform_count = 2, .layout = STOKER_NHWC, .planar = true},
    {.transforms = nearest, .transform_count = 2, .exif = true, .planar = true},
    {.transforms = center, .transform_count = 1, .dtype = STOKER_FLOAT16, .exif = true},
    {.transforms = colored, .transform_count = 3, .layout = STOKER_NHWC, .exif = true},
};
_Static_assert(STK_COUNT(options) + 2 == PLANS_MAX, "and two of masks");

static struct stk_transform_plan *plans[PLANS_MAX];
static struct stk_image_decoder
    *decoders[2]; /* reused, as a worker does: plain, and the best one */

static void open_all(void)
{
    for (uint32_t i = 0; i < STK_COUNT(options); i++) {
        struct stk_transform_plan_options option = options[i];

        option.pixels_max = PIXELS_MAX;
        option.memory_bytes_max = MEMORY_BYTES_MAX;
        STK_ASSERT(stk_transform_plan_open(&plans[i], &option, NULL) == 0);
    }
    STK_ASSERT(stk_transform_plan_link(&plans[6], plans[0], false, STOKER_UINT8, NULL) == 0);
    STK_ASSERT(stk_transform_plan_link(&plans[7], plans[4], true, STOKER_INT64, NULL) == 0);
    STK_ASSERT(stk_image_decoder_open(&decoders[0], STOKER_SIMD_NONE, NULL) == 0);
    STK_ASSERT(stk_image_decoder_open(&decoders[1], STOKER_SIMD_AUTO, NULL) == 0);
}

/* Marks that are the picture's own bytes: refused, or wrong pixels, the same each time. */
static void lie(struct stk_image_decoder *decoder, struct stk_view picture, uint8_t choice)
{
    static struct stk_jpeg_entry_points marks; /* valid until the end */
    struct stk_jpeg_frame frame;
    uint64_t bytes;

    stk_image_decoder_set_entry_points(decoder, NULL);
    if (choice >= 192 && stk_jpeg_frame_read(picture, &frame) == STK_JPEG_DECODED) {
        marks.mcus = choice % 3;
        bytes = stk_jpeg_entry_point_count(&frame, marks.mcus) * STK_JPEG_ENTRY_POINT_BYTES;
        marks.bytes = (struct stk_view){picture.data, stk_min(bytes, picture.bytes)};
        stk_image_decoder_set_entry_points(decoder, &marks);
    }
}

/* Into a slot of exactly its size, in one go or by way of a canvas: 0 or a status. */
static int decode(const struct stk_transform_plan *plan, int way, struct stk_view picture,
                  const uint8_t *choice, uint8_t *slot)
{
    struct stk_image_decoder *decoder = decoders[way > 0];
    uint64_t key = choice[2], ticket;
    uint8_t *canvas;
    int status;

    lie(decoder, picture, choice[1]);
    if (way < 2) {
        stk_image_decoder_trim(decoder, 0);
        status = stk_image_decode(decoder, plan, picture, key, slot, NULL);
        if (stk_image_decode_memory_bytes(plan, picture, &ticket, NULL) == 0) {
            STK_ASSERT(stk_image_decoder_bytes(decoder) <= ticket);
        }
        return status;
    }
    canvas = malloc(stk_image_decode_canvas_bytes(plan));
    status = stk_image_decode_canvas(decoder, plan, picture, key, canvas, NULL);
    if (status == 0) {
        stk_image_decode_convert(decoder, plan, canvas, slot);
    }
    free(canvas);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_image_shape shape;
    struct stk_transform_plan *plan;
    struct stk_view picture;
    uint8_t *slots[3];
    int statuses[3];

    if (!plans[0]) {
        open_all();
    }
    if (bytes < CHOICE_BYTES) {
        return 0;
    }
    picture = (struct stk_view){data + CHOICE_BYTES, bytes - CHOICE_BYTES};
    plan = plans[data[0] % PLANS_MAX];
    stk_transform_plan_shape(plan, &shape);
    for (int way = 0; way < 3; way++) {
        slots[way] = aligned_alloc(64, stk_round_up(shape.slot_bytes, 64));
        memset(slots[way], 0xa5 + way, shape.slot_bytes); /* each byte is written */
        statuses[way] = decode(plan, way, picture, data, slots[way]);
        STK_ASSERT(statuses[way] == statuses[0]);
        STK_ASSERT(statuses[way] < 0 || memcmp(slots[way], slots[0], shape.slot_bytes) == 0);
    }
    for (int way = 0; way < 3; way++) {
        free(slots[way]);
    }
    return 0;
}
