/* decode/jpeg/jpeg.h: decodes a box of a baseline JPEG to rows of RGBX, bit-exact with
 * libjpeg-turbo's default decoder (islow, fancy upsampling), or returns a reason why it does not.
 *
 *   read(bytes) -> frame -> plan(box) -> begin(workspace) -> rows ... (begin again: the next)
 *        \______________\_____________\_________________\______> a reason: use libjpeg-turbo
 *
 * The decoder returns a reason instead of rows if libjpeg-turbo would warn or fail, and for rare
 * kinds of JPEG. The caller then decodes the image with the library, from the first row that is
 * missing. Rows that were returned are correct. The decoder parses as many MCUs as the library
 * would for the same box, so that both detect the same damage.
 * Owner: a worker keeps one decoder for its life. Threads: one. Memory: the decoder (tables of a
 * fixed size, about 150 kB) by stk_alloc; the caller provides the workspace of an image.
 * Bound: plan returns the bytes of the workspace; the bytes of the file are read once. */
#ifndef DECODE_JPEG_JPEG_H
#define DECODE_JPEG_JPEG_H

#include "base/base.h"

/* Number of readable bytes after the end of a row of samples. */
#define STK_JPEG_ROW_SLACK 64u

/* Why decode/jpeg does not decode an image. */
enum stk_jpeg_reason {
    STK_JPEG_DECODED = 0,
    STK_JPEG_PROGRESSIVE,
    STK_JPEG_ARITHMETIC,
    STK_JPEG_PROCESS,  /* lossless, hierarchical */
    STK_JPEG_BITS,     /* not 8 bits a sample */
    STK_JPEG_COLORS,   /* neither grey nor three components */
    STK_JPEG_SAMPLING, /* factors that do not divide each other, or blocks beyond the standard */
    STK_JPEG_SCANS,    /* several scans */
    STK_JPEG_TABLES,   /* missing, or no prefix code */
    STK_JPEG_HEADER,   /* markers that are unusual, damaged or cut */
    STK_JPEG_DATA,     /* damaged or cut image data */
    STK_JPEG_MEMORY,   /* the workspace would pass the caller's bound */
    STK_JPEG_ENTRY_POINTS, /* entry points that do not match the image, or an image that cannot have
                              any */
    STK_JPEG_REASON_COUNT
};
/* "progressive", ...: a word or two. */
const char *stk_jpeg_reason_name(uint32_t reason);

struct stk_jpeg_component {
    uint8_t id;
    uint8_t h, v;      /* sampling factors */
    uint8_t quantiser; /* tables: 0..3 */
    uint8_t dc, ac;
};

/* The content of the markers before the image data. Views point into the file. */
struct stk_jpeg_frame {
    uint32_t width, height;
    uint32_t component_count; /* 1 or 3 */
    uint32_t h_max, v_max;
    struct stk_jpeg_component components[3];
    uint32_t mcu_columns, mcu_rows;
    uint32_t rows_together;      /* MCU rows that libjpeg reads at a time */
    uint32_t restart_interval;   /* in MCUs; 0: none */
    bool rgb;                    /* no conversion from YCbCr */
    uint16_t quantisers[4][64];  /* in zigzag order */
    uint32_t quantiser_mask;     /* of the defined tables */
    struct stk_view codes[2][4]; /* DC, AC: 16 counts and the symbols; NULL: none */
    struct stk_view scan;        /* image data, to the end of the file */
};

/* Returns 0 on success, else the reason. No stored state relies on the content of a table being
 * valid. */
uint32_t stk_jpeg_frame_read(struct stk_view bytes, struct stk_jpeg_frame *frame_out);

struct stk_jpeg_box { /* inside the frame */
    uint32_t x, y, width, height;
};

/* Returns the maximum workspace in bytes for any box of the image. */
uint64_t stk_jpeg_workspace_max(uint32_t width, const uint8_t *h, const uint8_t *v,
                                uint32_t component_count);
uint64_t stk_jpeg_workspace_bytes(const struct stk_jpeg_frame *frame,
                                  const struct stk_jpeg_box *box);

/* Entry points: positions where decoding can start. They are at the first MCU of each MCU row and
 * at each mcus-th MCU after it in the row, except the first of all. Each has
 * STK_JPEG_ENTRY_POINT_BYTES bytes, little-endian: u32 byte of the scan times 8 plus the used bits
 * of that byte, then 3 times i16: the DC predictors. */
#define STK_JPEG_ENTRY_POINT_BYTES 10u
struct stk_jpeg_entry_points {
    uint32_t mcus;         /* from one to the next; 0: a row */
    struct stk_view bytes; /* borrowed; their content is not trusted */
};
uint64_t stk_jpeg_entry_point_count(const struct stk_jpeg_frame *frame, uint32_t mcus);

struct stk_jpeg_decoder;
/* vector: enum stoker_simd. Returns 0 on success, ARGUMENT if this machine lacks the instruction
 * set. */
int stk_jpeg_decoder_open(struct stk_jpeg_decoder **decoder_out, uint32_t vector,
                          struct stoker_error *error);
void stk_jpeg_decoder_close(struct stk_jpeg_decoder *decoder);
uint64_t stk_jpeg_decoder_bytes(void); /* the memory of one, constant */
/* Starts decoding and parses the data above the box. The frame's bytes, the workspace (aligned to
 * 64 bytes) and the marks must stay valid until the next begin. marks: NULL, or the entry points of
 * this image. With entry points the decoder skips the data above the box, and beside the box beyond
 * the next entry point; damage there is not detected. At each entry point passed, the bit position
 * and the predictors must match, else the reason is MARKS. Entry points of another image may
 * produce wrong pixels without an error. Returns 0 on success, else the reason. */
uint32_t stk_jpeg_decoder_begin(struct stk_jpeg_decoder *decoder,
                                const struct stk_jpeg_frame *frame, const struct stk_jpeg_box *box,
                                void *workspace, const struct stk_jpeg_entry_points *entry_points);
/* Parses the entire image and writes its entry points to marks_out, which must hold
 * stk_jpeg_entry_point_count of them. The workspace is that of box 0, 0, 1, 1. Returns 0 on
 * success, else the reason: the image is damaged, has restart intervals, or has predictors that do
 * not fit. */
uint32_t stk_jpeg_decoder_index(struct stk_jpeg_decoder *decoder,
                                const struct stk_jpeg_frame *frame, uint32_t mcus, void *workspace,
                                uint8_t *marks_out);
/* Writes the next `count` rows of the box, exactly 4 bytes per pixel. Returns 0 on success, else
 * the reason; then *done_out rows were written and no more follow. */
uint32_t stk_jpeg_decoder_rows(struct stk_jpeg_decoder *decoder, uint8_t *const *rows,
                               uint32_t count, uint32_t *done_out);

/* The planes of the image, for callers that upsample and convert colours themselves. */
struct stk_jpeg_plane {
    uint32_t width, height;    /* samples of the full component */
    uint32_t h_ratio, v_ratio; /* pixels that a sample covers */
    bool smooth_x, smooth_y;   /* a pixel is 3/4 its sample, 1/4 the neighbour */
    uint32_t first;            /* the column of the first sample of a band's rows */
};
/* Call after begin. Returns 3 for Y, Cb and Cr, 1 for Y, 0 if the image is stored as RGB and is
 * available as rows only. */
uint32_t stk_jpeg_decoder_planes(const struct stk_jpeg_decoder *decoder,
                                 struct stk_jpeg_plane planes_out[3]);
#define STK_JPEG_BAND_ROWS 32u /* of a component, at most */
/* Rows y .. y + count - 1 of each component, valid until the next call. STK_JPEG_ROW_SLACK samples
 * after those that the box needs are readable. */
struct stk_jpeg_band {
    const uint8_t *rows[3];
    size_t strides[3];
    uint32_t y[3], counts[3];
};
/* Call instead of rows: decodes the next row of MCUs. *more_out: more MCU rows follow that a decode
 * to rows would read, which includes all that planes need and sometimes one MCU row more. Returns 0
 * on success, else the reason. */
uint32_t stk_jpeg_decoder_band(struct stk_jpeg_decoder *decoder, struct stk_jpeg_band *band_out,
                               bool *more_out);
/* Call after the last row or band of a box. Returns whether the decoder read all MCUs of the image
 * and the end marker follows them at once, so that libjpeg-turbo would not warn about the end of
 * the image. With entry points the decoder does not read all MCUs: false. */
bool stk_jpeg_decoder_ended(const struct stk_jpeg_decoder *decoder);
/* Converts one row of Y (cb and cr NULL) or YCbCr to RGBX; writes exactly 4 * count bytes. */
void stk_jpeg_decoder_to_rgbx(const struct stk_jpeg_decoder *decoder, const uint8_t *y,
                              const uint8_t *cb, const uint8_t *cr, uint32_t count, uint8_t *out);

#endif
