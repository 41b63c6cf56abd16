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

/* Rows of samples may be read so far past their end. */
#define STK_JPEG_ROW_SLACK 64u

/* Why there is no answer. */
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
    STK_JPEG_DATA,     /* damaged or cut picture data */
    STK_JPEG_MEMORY,   /* the workspace would pass the caller's bound */
    STK_JPEG_ENTRY_POINTS, /* marks that do not fit the picture, or a picture that can have none */
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

/* What the markers say, up to the picture data. Views are into the file. */
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
    uint32_t quantiser_mask;     /* of tables that were given */
    struct stk_view codes[2][4]; /* DC, AC: 16 counts and the symbols; NULL: none */
    struct stk_view scan;        /* picture data, to the end of the file */
};

/* 0, or the reason why not. Nothing is kept that depends on a table's content being sane. */
uint32_t stk_jpeg_frame_read(struct stk_view bytes, struct stk_jpeg_frame *frame_out);

struct stk_jpeg_box { /* inside the frame */
    uint32_t x, y, width, height;
};

/* Bytes of workspace for any box of the picture, at most. */
uint64_t stk_jpeg_workspace_max(uint32_t width, const uint8_t *h, const uint8_t *v,
                                uint32_t component_count);
uint64_t stk_jpeg_workspace_bytes(const struct stk_jpeg_frame *frame,
                                  const struct stk_jpeg_box *box);

/* Places where decoding can begin: at the first MCU of each MCU row and at each mcus-th behind it
 * in the row, but for the first of all. STK_JPEG_ENTRY_POINT_BYTES each, little end first: u32 byte
 * of the scan times 8 and bits of that byte that are used up, then 3 times i16: the DC predictors.
 */
#define STK_JPEG_ENTRY_POINT_BYTES 10u
struct stk_jpeg_entry_points {
    uint32_t mcus;         /* from one to the next; 0: a row */
    struct stk_view bytes; /* borrowed; nothing in them is believed */
};
uint64_t stk_jpeg_entry_point_count(const struct stk_jpeg_frame *frame, uint32_t mcus);

struct stk_jpeg_decoder;
/* vector: enum stoker_simd. ARGUMENT: this machine cannot. */
int stk_jpeg_decoder_open(struct stk_jpeg_decoder **decoder_out, uint32_t vector,
                          struct stoker_error *error);
void stk_jpeg_decoder_close(struct stk_jpeg_decoder *decoder);
uint64_t stk_jpeg_decoder_bytes(void); /* of one, for ever */
/* 0, or the reason. The frame's bytes, the workspace (aligned to 64 bytes) and the marks stay lent
 * until the next begin. What lies above the box is parsed here.
 * marks: NULL, or those of this very picture. With them neither what is above the box is read nor
 * what is beside it beyond the next mark, so that damage there is not seen; where a mark is passed,
 * the bits and the predictors must be what it says, else the reason is MARKS. Marks of another
 * picture may give wrong pixels that nothing tells. */
uint32_t stk_jpeg_decoder_begin(struct stk_jpeg_decoder *decoder,
                                const struct stk_jpeg_frame *frame, const struct stk_jpeg_box *box,
                                void *workspace, const struct stk_jpeg_entry_points *entry_points);
/* Makes the marks of a picture, all of which is parsed: marks_out has room for
 * stk_jpeg_entry_point_count. workspace: of box 0, 0, 1, 1. A reason: it has none, being damaged,
 * or with restart intervals, or with predictors that do not fit. */
uint32_t stk_jpeg_decoder_index(struct stk_jpeg_decoder *decoder,
                                const struct stk_jpeg_frame *frame, uint32_t mcus, void *workspace,
                                uint8_t *marks_out);
/* The next `count` rows of the box, of 4 bytes a pixel and not a byte more. 0, or the reason: then
 * *done_out of them were written all the same, and no more come. */
uint32_t stk_jpeg_decoder_rows(struct stk_jpeg_decoder *decoder, uint8_t *const *rows,
                               uint32_t count, uint32_t *done_out);

/* What rows are made of, for those who upsample and convert colours themselves. */
struct stk_jpeg_plane {
    uint32_t width, height;    /* samples of the whole component */
    uint32_t h_ratio, v_ratio; /* pixels that a sample covers */
    bool smooth_x, smooth_y;   /* a pixel is 3/4 its sample, 1/4 the one beside */
    uint32_t first;            /* the column of the first sample of a band's rows */
};
/* After a begin: 3: Y, Cb and Cr; 1: Y; 0: the picture is stored as RGB, rows alone can be had. */
uint32_t stk_jpeg_decoder_planes(const struct stk_jpeg_decoder *decoder,
                                 struct stk_jpeg_plane planes_out[3]);
#define STK_JPEG_BAND_ROWS 32u /* of a component, at most */
/* Rows y .. y + count - 1 of each component, STK_JPEG_ROW_SLACK samples readable behind those that
 * the box needs; lent until the next call. */
struct stk_jpeg_band {
    const uint8_t *rows[3];
    size_t strides[3];
    uint32_t y[3], counts[3];
};
/* Instead of rows: the next row of MCUs. *more_out: not yet all are read that rows would ask for,
 * which is all that planes can ask for and sometimes a row of MCUs more. */
uint32_t stk_jpeg_decoder_band(struct stk_jpeg_decoder *decoder, struct stk_jpeg_band *band_out,
                               bool *more_out);
/* One row of Y (cb and cr NULL) or YCbCr to RGBX, 4 * count bytes and no more. */
void stk_jpeg_decoder_to_rgbx(const struct stk_jpeg_decoder *decoder, const uint8_t *y,
                              const uint8_t *cb, const uint8_t *cr, uint32_t count, uint8_t *out);

#endif
