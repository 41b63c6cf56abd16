/* Any bytes as a JPEG, by us (plain and with vectors) and by libjpeg-turbo: where we answer, the
 * samples are the same and libjpeg has no complaint. The first 4 bytes choose the box. Reaches
 * markers.c, huffman.c, segment.c, entropy.c, planes.c and region.c. */
#include "jpeg/oracle_test.h"

#define CHOICE_BYTES 4u
#define PIXELS_MAX (1u << 17)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The part of a side that a byte chooses. */
static uint32_t share(uint32_t side, uint8_t choice)
{
    return (uint32_t)((uint64_t)side * choice / 256);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    /* Kept, as a worker keeps them: one picture must not hurt the next. */
    static struct stk_jpeg_decoder *decoders[2];
    static struct oracle oracle;
    struct stk_jpeg_frame frame;
    struct stk_jpeg_box box;
    struct stk_view picture;

    if (!decoders[0]) {
        STK_ASSERT(stk_jpeg_decoder_open(&decoders[0], STOKER_VECTOR_NONE, NULL) == 0);
        STK_ASSERT(stk_jpeg_decoder_open(&decoders[1], STOKER_VECTOR_AUTO, NULL) == 0);
    }
    if (bytes < CHOICE_BYTES) {
        return 0;
    }
    picture = (struct stk_view){data + CHOICE_BYTES, bytes - CHOICE_BYTES};
    if (stk_jpeg_frame_read(picture, &frame) || (uint64_t)frame.width * frame.height > PIXELS_MAX) {
        return 0;
    }
    box.x = share(frame.width, data[0]);
    box.y = share(frame.height, data[1]);
    box.width = 1 + share(frame.width - box.x - 1, data[2]);
    box.height = 1 + share(frame.height - box.y - 1, data[3]);
    oracle_decode(&oracle, picture, box.y + box.height);
    for (int i = 0; i < 2; i++) {
        uint32_t reason;

        STK_ASSERT(!oracle_compare(&oracle, decoders[i], picture, &box, &reason));
    }
    return 0;
}
