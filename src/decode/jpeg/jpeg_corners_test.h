/* decode/jpeg/jpeg_corners_test.h: compares a JPEG with libjpeg-turbo, at its corners and in random
 * boxes.
 *
 *   bytes -> corners_check (both decoders, without entry points and with) -> a line that names the
 * difference
 *
 * Owner: the test that includes it. Threads: one. Memory: the oracle's. Bound: the oracle's. */
#ifndef DECODE_JPEG_JPEG_CORNERS_TEST_H
#define DECODE_JPEG_JPEG_CORNERS_TEST_H

#include "base/random.h"
#include "decode/jpeg/jpeg_oracle_test.h"
#include "test/t.h"

#define CORNERS_BOXES_MAX 16u

struct corners {
    struct oracle oracle;
    struct stk_jpeg_decoder *decoders[2]; /* plain, and the best that there is */
    uint64_t seed, draws;
    uint64_t boxes, samples;                 /* compared */
    uint64_t reasons[STK_JPEG_REASON_COUNT]; /* pictures */
    uint64_t warned;                         /* of those, images for which libjpeg warns or fails */
    bool may_leave;                          /* to libjpeg, even where that has no complaint */
    uint32_t reason;                         /* of the last compared box */
    char what[200];                          /* the last that differed */
};

static inline uint32_t corners_draw(struct corners *corners, uint32_t below)
{
    return (uint32_t)(stk_random_key(corners->seed, corners->draws++) % below);
}

static inline void corners_open(struct corners *corners)
{
    T_EQ("open", stk_jpeg_decoder_open(&corners->decoders[0], STOKER_SIMD_NONE, NULL), 0);
    T_EQ("open", stk_jpeg_decoder_open(&corners->decoders[1], STOKER_SIMD_AUTO, NULL), 0);
}

static inline void corners_close(struct corners *corners)
{
    stk_jpeg_decoder_close(corners->decoders[0]);
    stk_jpeg_decoder_close(corners->decoders[1]);
    free(corners->oracle.pixels);
}

/* All of it, the pixel in each corner, a part in each corner, and three random boxes. */
static inline uint32_t corners_boxes(struct corners *corners, uint32_t width, uint32_t height,
                                     struct stk_jpeg_box *boxes)
{
    uint32_t count = 0;

    boxes[count++] = (struct stk_jpeg_box){0, 0, width, height};
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t w = i < 4 ? 1 : 1 + corners_draw(corners, width);
        uint32_t h = i < 4 ? 1 : 1 + corners_draw(corners, height);

        boxes[count++] = (struct stk_jpeg_box){i & 1 ? width - w : 0, i & 2 ? height - h : 0, w, h};
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct stk_jpeg_box *box = &boxes[count++];

        box->x = corners_draw(corners, width);
        box->y = corners_draw(corners, height);
        box->width = 1 + corners_draw(corners, width - box->x);
        box->height = 1 + corners_draw(corners, height - box->y);
    }
    STK_ASSERT(count <= CORNERS_BOXES_MAX);
    return count;
}

/* Records a difference; returns true if there is none. If libjpeg has no complaint, every row must
 * be returned, once the header was accepted. */
static inline bool corners_box(struct corners *corners, uint32_t decoder, struct stk_view bytes,
                               const struct stk_jpeg_box *box,
                               const struct stk_jpeg_entry_points *marks)
{
    bool must = !corners->oracle.warned && !corners->oracle.failed && !corners->may_leave;
    const char *wrong = oracle_compare(&corners->oracle, corners->decoders[decoder], bytes, box,
                                       marks, &corners->reason);
    uint32_t reason = corners->reason;

    corners->boxes++;
    corners->samples += 3 * (uint64_t)box->width * box->height;
    if (!wrong && must && reason) {
        wrong = "no answer";
    }
    if (wrong) {
        snprintf(corners->what, sizeof corners->what, "%s: %s (%s), box %u,%u %ux%u%s: %.60s",
                 decoder ? "vectors" : "plain", wrong, stk_jpeg_reason_name(reason), box->x, box->y,
                 box->width, box->height, marks ? " with marks" : "", corners->oracle.text);
    }
    return !wrong;
}

static inline bool corners_marked(struct corners *corners, struct stk_view bytes,
                                  const struct stk_jpeg_box *boxes, uint32_t count)
{
    uint32_t mcus = corners_draw(corners, 3) ? corners_draw(corners, 9) : 0, reason;
    uint32_t decoder = corners_draw(corners, 2);
    struct stk_jpeg_entry_points marks;
    uint8_t *made = oracle_marks(corners->decoders[decoder], bytes, mcus, &marks, &reason);
    bool same = true;

    for (uint32_t i = 0; made && same && i < count; i++) {
        same = corners_box(corners, decoder, bytes, &boxes[i], &marks);
    }
    free(made);
    return same;
}

/* Checks an image of any kind. Returns NULL if it equals libjpeg-turbo's, or if *reason_out is a
 * valid reason to use libjpeg-turbo; else the difference. The complete image by both decoders,
 * other boxes in turn. */
static inline const char *corners_check(struct corners *corners, struct stk_view bytes,
                                        uint32_t *reason_out)
{
    struct stk_jpeg_box boxes[CORNERS_BOXES_MAX];
    struct stk_jpeg_frame frame;
    uint32_t count;
    bool same;

    *reason_out = stk_jpeg_frame_read(bytes, &frame);
    if (*reason_out) {
        corners->reasons[*reason_out]++;
        return NULL;
    }
    oracle_decode(&corners->oracle, bytes, UINT32_MAX);
    corners->warned += corners->oracle.warned || corners->oracle.failed;
    if (corners->oracle.width != frame.width || corners->oracle.height != frame.height) {
        snprintf(corners->what, sizeof corners->what, "libjpeg gave no such picture: %.60s",
                 corners->oracle.text);
        return corners->what;
    }
    count = corners_boxes(corners, frame.width, frame.height, boxes);
    same = corners_box(corners, 0, bytes, &boxes[0], NULL);
    *reason_out = corners->reason;
    for (uint32_t i = 0; same && i < count; i++) {
        same = corners_box(corners, 1 - i % 2, bytes, &boxes[i], NULL);
    }
    same = same && corners_marked(corners, bytes, boxes, count);
    corners->reasons[*reason_out]++;
    return same ? NULL : corners->what;
}

#endif
