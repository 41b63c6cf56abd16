/* Fuzz of jpeg_region.c: any bytes as a JPEG, decoded by stoker (plain and with vectors) and by
 * libjpeg-turbo: if stoker returns rows, the samples are the same and libjpeg has no complaint;
 * with the image's own entry points, too. With wrong entry points (the file's bytes, or right ones
 * of which some are changed) nothing breaks. The first 4 bytes choose the box, and the changes.
 * Reaches jpeg_markers.c, jpeg_huffman.c, jpeg_segment.c, jpeg_planes.c, jpeg_planes_simd.c and
 * jpeg_region.c. */
#include "decode/jpeg/jpeg_entropy.h"
#include "decode/jpeg/jpeg_oracle_test.h"
#include "decode/jpeg/jpeg_planes.h"

#define CHOICE_BYTES 4u
#define PIXELS_MAX (1u << 17)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The part of a side that a byte chooses. */
static uint32_t share(uint32_t side, uint8_t choice)
{
    return (uint32_t)((uint64_t)side * choice / 256);
}

static struct oracle oracle;

/* Marks from nowhere, true ones, and true ones with some bytes changed. */
static void try_marks(struct stk_jpeg_decoder *decoder, struct stk_view picture,
                      const struct stk_jpeg_frame *frame, const struct stk_jpeg_box *box,
                      const uint8_t *choice)
{
    uint32_t mcus = choice[0] % 7u, reason;
    size_t bytes = stk_jpeg_entry_point_count(frame, mcus) * STK_JPEG_ENTRY_POINT_BYTES;
    struct stk_jpeg_entry_points marks = {mcus, {picture.data, bytes}};
    uint8_t *made;

    if (bytes <= picture.bytes) {
        (void)oracle_compare(&oracle, decoder, picture, box, &marks, &reason);
    }
    made = oracle_marks(decoder, picture, mcus, &marks, &reason);
    if (made) {
        STK_ASSERT(!oracle_compare(&oracle, decoder, picture, box, &marks, &reason));
        STK_ASSERT(reason == STK_JPEG_DECODED);
        for (size_t i = 0; i < bytes; i += 1 + choice[1]) {
            made[i] ^= (uint8_t)(choice[2] + i);
        }
        (void)oracle_compare(&oracle, decoder, picture, box, &marks, &reason);
    }
    free(made);
}

/* Planes end where rows ended, with samples at the reported places. */
static void try_bands(struct stk_jpeg_decoder *decoder, const struct stk_jpeg_frame *frame,
                      const struct stk_jpeg_box *box, uint32_t of_rows)
{
    size_t space_bytes = stk_round_up(stk_jpeg_workspace_bytes(frame, box), 64);
    void *space = aligned_alloc(64, space_bytes);
    uint32_t reason = stk_jpeg_decoder_begin(decoder, frame, box, space, NULL);
    volatile uint8_t last;
    bool more = true;

    while (more && !reason) {
        struct stk_jpeg_band band;

        reason = stk_jpeg_decoder_band(decoder, &band, &more);
        for (uint32_t i = 0; i < frame->component_count && !reason; i++) {
            if (band.counts[i] > 0) {
                last = band.rows[i][(band.counts[i] - 1) * band.strides[i]];
            }
        }
    }
    (void)last;
    STK_ASSERT(reason == of_rows);
    free(space);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    /* Reused, as a worker does: one image must not affect the next. */
    static struct stk_jpeg_decoder *decoders[3];
    struct stk_jpeg_frame frame;
    struct stk_jpeg_box box;
    struct stk_view picture;

    if (!decoders[0]) {
        STK_ASSERT(stk_jpeg_decoder_open(&decoders[0], STOKER_SIMD_NONE, NULL) == 0);
        STK_ASSERT(stk_jpeg_decoder_open(&decoders[1], STOKER_SIMD_AUTO, NULL) == 0);
        if (stk_jpeg_kernels_simd()) {
            STK_ASSERT(stk_jpeg_decoder_open_with_kernels(&decoders[2], stk_jpeg_kernels_simd(),
                                                          NULL) == 0);
        }
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
    for (int i = 0; i < 3 && decoders[i]; i++) {
        uint32_t reason;

        STK_ASSERT(!oracle_compare(&oracle, decoders[i], picture, &box, NULL, &reason));
        try_bands(decoders[i], &frame, &box, reason);
    }
    try_marks(decoders[data[3] % 2], picture, &frame, &box, data);
    return 0;
}
