/* decode/jpeg/jpeg_oracle_test.h: decodes the same bytes with libjpeg-turbo, and compares both
 * results.
 *
 *   bytes, box -> oracle (rows 0 up to the end of the box, first warning, error) -> compare
 *
 * Owner: the test or fuzz target that includes it. Threads: one. Memory: malloc, reused for the
 * next image. Bound: ORACLE_BYTES_MAX of pixels. */
#ifndef DECODE_JPEG_JPEG_ORACLE_TEST_H
#define DECODE_JPEG_JPEG_ORACLE_TEST_H

#include "decode/jpeg/jpeg.h"

#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>
#include <stdlib.h>
#include <string.h>

#define ORACLE_BYTES_MAX (512u << 20)

struct oracle {
    uint32_t width, height;
    uint8_t *pixels; /* RGBX, owned */
    size_t capacity; /* bytes */
    uint32_t rows;   /* before the first warning or error */
    bool warned, failed;
    bool ended;                 /* bits were wanted after the end of the data */
    char text[JMSG_LENGTH_MAX]; /* of the first */
    jmp_buf jump;
};

static inline void oracle_exit(j_common_ptr cinfo)
{
    struct oracle *oracle = cinfo->client_data;

    if (!oracle->warned) {
        cinfo->err->format_message(cinfo, oracle->text);
    }
    oracle->failed = true;
    longjmp(oracle->jump, 1);
}

/* The end of the file is no damage by itself: the bit reader looks ahead. */
static inline void oracle_message(j_common_ptr cinfo, int level)
{
    struct oracle *oracle = cinfo->client_data;

    if (level < 0 && cinfo->err->msg_code == JWRN_HIT_MARKER &&
        ((j_decompress_ptr)cinfo)->unread_marker == JPEG_EOI) {
        oracle->ended = true;
    }
    if (level < 0 && cinfo->err->msg_code != JWRN_JPEG_EOF && !oracle->warned) {
        oracle->warned = true;
        cinfo->err->format_message(cinfo, oracle->text);
    }
}

static inline void oracle_ignore(j_common_ptr cinfo)
{
    (void)cinfo;
}

/* Decodes rows 0 to end_y with all defaults. The result, whatever it is, is in oracle. */
static inline void oracle_decode(struct oracle *oracle, struct stk_view bytes, uint32_t end_y)
{
    struct jpeg_decompress_struct cinfo = {0};
    struct jpeg_error_mgr errors;

    oracle->rows = 0;
    oracle->warned = oracle->failed = oracle->ended = false;
    oracle->text[0] = '\0';
    cinfo.err = jpeg_std_error(&errors);
    errors.error_exit = oracle_exit;
    errors.emit_message = oracle_message;
    errors.output_message = oracle_ignore;
    cinfo.client_data = oracle;
    if (setjmp(oracle->jump)) {
        jpeg_destroy_decompress(&cinfo);
        return;
    }
    jpeg_create_decompress(&cinfo);
    jpeg_mem_src(&cinfo, bytes.data, bytes.bytes);
    jpeg_read_header(&cinfo, TRUE);
    cinfo.out_color_space = cinfo.num_components == 4 ? JCS_CMYK : JCS_EXT_RGBX;
    jpeg_start_decompress(&cinfo);
    oracle->width = cinfo.output_width;
    oracle->height = cinfo.output_height;
    STK_ASSERT((uint64_t)oracle->width * oracle->height * 4 <= ORACLE_BYTES_MAX);
    if (oracle->capacity < (size_t)oracle->width * oracle->height * 4) {
        oracle->capacity = (size_t)oracle->width * oracle->height * 4;
        free(oracle->pixels);
        oracle->pixels = malloc(oracle->capacity);
    }
    while (cinfo.output_scanline < stk_min(end_y, cinfo.output_height)) {
        JSAMPROW row = oracle->pixels + (size_t)cinfo.output_scanline * oracle->width * 4;

        jpeg_read_scanlines(&cinfo, &row, 1);
        oracle->rows = oracle->warned ? oracle->rows : cinfo.output_scanline;
    }
    jpeg_abort_decompress(&cinfo);
    jpeg_destroy_decompress(&cinfo);
}

/* The marks of a picture, in memory of exactly their size, which the caller frees: NULL and the
 * reason when it has none. */
static inline uint8_t *oracle_marks(struct stk_jpeg_decoder *decoder, struct stk_view bytes,
                                    uint32_t mcus, struct stk_jpeg_entry_points *marks_out,
                                    uint32_t *reason_out)
{
    const struct stk_jpeg_box corner = {0, 0, 1, 1};
    struct stk_jpeg_frame frame;
    uint8_t *space, *marks;
    size_t marks_bytes;

    *reason_out = stk_jpeg_frame_read(bytes, &frame);
    if (*reason_out) {
        return NULL;
    }
    marks_bytes = stk_jpeg_entry_point_count(&frame, mcus) * STK_JPEG_ENTRY_POINT_BYTES;
    marks = malloc(marks_bytes ? marks_bytes : 1);
    space = aligned_alloc(64, stk_round_up(stk_jpeg_workspace_bytes(&frame, &corner), 64));
    *reason_out = stk_jpeg_decoder_index(decoder, &frame, mcus, space, marks);
    free(space);
    if (*reason_out) {
        free(marks);
        return NULL;
    }
    *marks_out = (struct stk_jpeg_entry_points){mcus, {marks, marks_bytes}};
    return marks;
}

/* Our answer for a box, with the returned pixels compared. Returns NULL if it is right; else the
 * difference. *reason_out: why there was no answer. */
static inline const char *oracle_compare(struct oracle *oracle, struct stk_jpeg_decoder *decoder,
                                         struct stk_view bytes, const struct stk_jpeg_box *box,
                                         const struct stk_jpeg_entry_points *marks,
                                         uint32_t *reason_out)
{
    struct stk_jpeg_frame frame;
    uint8_t *space = NULL, *row = NULL;
    const char *wrong = NULL;
    size_t row_bytes = (size_t)box->width * 4, space_bytes;

    *reason_out = stk_jpeg_frame_read(bytes, &frame);
    if (*reason_out) {
        return NULL;
    }
    /* Blocks of exactly their sizes, for sanitizers; malloc does not zero them. */
    space_bytes = stk_jpeg_workspace_bytes(&frame, box);
    space = aligned_alloc(64, stk_round_up(space_bytes, 64));
    row = malloc(row_bytes);
    memset(space, 0xa5, space_bytes);
    *reason_out = stk_jpeg_decoder_begin(decoder, &frame, box, space, marks);
    for (uint32_t y = box->y; y < box->y + box->height && !*reason_out && !wrong; y++) {
        const uint8_t *want = oracle->pixels + ((size_t)y * oracle->width + box->x) * 4;
        uint32_t done = UINT32_MAX;

        *reason_out = stk_jpeg_decoder_rows(decoder, &row, 1, &done);
        if (done > 1 || (done == 0) == (*reason_out == STK_JPEG_DECODED)) {
            wrong = "another number of rows";
        } else if (done == 1 && y >= oracle->rows) {
            wrong = "a row that libjpeg warned of";
        }
        for (uint32_t i = 0; done == 1 && i < row_bytes && !wrong; i++) {
            wrong = row[i] != want[i] && i % 4 < 3 ? "another sample" : NULL;
        }
    }
    free(space);
    free(row);
    return wrong;
}

#endif
