/* Rows of a PNG, in bands that fit into the L2 cache. */
#include "decode/png/png.h"
#include "decode/png/png_filters.h"
#include "decode/png/png_stream.h"

#include <string.h>

#define ALIGN 64u
#define BAND_BYTES (64u << 10)
#define GROUP_ROWS 4u /* of stk_png_kernels.four */

static uint64_t band_rows_of(uint64_t line_bytes)
{
    return stk_max(BAND_BYTES / line_bytes, 1);
}

/* The band, and a row above it; the vectors look a few bytes past a row, never past the band. */
static uint64_t band_bytes_of(uint64_t row_bytes)
{
    return stk_round_up(band_rows_of(1 + row_bytes) * (1 + row_bytes), ALIGN);
}

uint64_t stk_png_workspace_bytes(const struct stk_png_frame *frame)
{
    return stk_round_up(stk_png_stream_bytes(), ALIGN) + band_bytes_of(frame->row_bytes) +
           stk_round_up(frame->row_bytes, ALIGN);
}

bool stk_png_rows_begin(struct stk_png_rows *rows, const struct stk_png_frame *frame,
                        struct stk_view bytes, const struct stk_png_box *box, void *workspace,
                        uint32_t vector)
{
    uint64_t columns = (uint64_t)box->x + box->width, line_bytes = 1 + frame->row_bytes;
    uint8_t *space = workspace;

    *rows = (struct stk_png_rows){
        .kernels = stk_png_kernels_get(vector),
        .stream = workspace,
        .bytes = bytes,
        .row_bytes = frame->row_bytes,
        .used_bytes = (columns * frame->pixel_bits + 7) / 8,
        .unit = frame->pixel_bits < 8 ? 1 : frame->pixel_bits / 8,
        .height = frame->height,
        .first = box->y,
        .y = box->y,
        .y_end = box->y + box->height,
        .band_rows = (uint32_t)band_rows_of(line_bytes),
    };
    if (!rows->kernels) {
        return false;
    }
    space += stk_round_up(stk_png_stream_bytes(), ALIGN);
    rows->band = space;
    rows->above = space + band_bytes_of(frame->row_bytes);
    memset(rows->above, 0, rows->used_bytes);
    /* libpng takes no IDAT as too large that is not larger than the image. */
    stk_png_stream_begin(rows->stream, bytes, frame->data_at,
                         stk_max(line_bytes * frame->height, 1u << 20));
    return true;
}

static uint8_t *line_of(const struct stk_png_rows *rows, uint32_t i)
{
    return rows->band + i * (1 + rows->row_bytes);
}

/* The next rows, as the file has them. */
static bool fill_band(struct stk_png_rows *rows)
{
    uint64_t line_bytes = 1 + rows->row_bytes;

    if (rows->band_count > 0) {
        memcpy(rows->above, line_of(rows, rows->band_count - 1) + 1, rows->used_bytes);
    }
    rows->band_first += rows->band_count;
    rows->band_count = (uint32_t)stk_min(rows->band_rows, rows->y_end - rows->band_first);
    rows->done = 0;
    if (!stk_png_stream_read(rows->stream, rows->band, rows->band_count * line_bytes)) {
        return false;
    }
    for (uint32_t i = 0; i < rows->band_count; i++) {
        if (line_of(rows, i)[0] > STK_PNG_PAETH) {
            return false;
        }
    }
    /* Behind the image's last row libpng looks for the end of the data. */
    return rows->band_first + rows->band_count < rows->height || stk_png_stream_end(rows->stream);
}

/* Rows above the box that nothing below them needs are left as they are. */
static void skip_rows(struct stk_png_rows *rows)
{
    uint32_t above = rows->first - rows->band_first; /* rows of the band above the box, or more */

    for (uint32_t i = (uint32_t)stk_min(above, rows->band_count - 1); i > 0; i--) {
        if (line_of(rows, i)[0] <= STK_PNG_SUB) {
            rows->done = i;
            return;
        }
    }
}

/* Reverses the filters of the next row of the band, or of the next four. */
static void unfilter_more(struct stk_png_rows *rows)
{
    uint32_t i = rows->done;
    uint8_t *line = line_of(rows, i);
    const uint8_t *above = i > 0 ? line_of(rows, i - 1) + 1 : rows->above;
    bool by_four = rows->kernels->unfilter_four && rows->band_count - i >= GROUP_ROWS &&
                   (rows->unit == 3 || rows->unit == 4);

    if (by_four) {
        rows->kernels->unfilter_four(line + 1, 1 + rows->row_bytes, above, rows->used_bytes,
                                     rows->unit);
        rows->done += GROUP_ROWS;
    } else {
        stk_png_unfilter(line + 1, above, rows->used_bytes, rows->unit);
        rows->done++;
    }
}

const uint8_t *stk_png_rows_next(struct stk_png_rows *rows)
{
    STK_ASSERT(rows->y < rows->y_end);
    while (rows->y >= rows->band_first + rows->band_count) {
        /* The rest of a band above the box is needed next to its last row. */
        while (rows->done < rows->band_count) {
            unfilter_more(rows);
        }
        if (!fill_band(rows)) {
            rows->band_first = rows->band_count = rows->done = 0;
            return NULL;
        }
        if (rows->band_first <= rows->first) {
            skip_rows(rows);
        }
    }
    while (rows->y >= rows->band_first + rows->done) {
        unfilter_more(rows);
    }
    return line_of(rows, rows->y++ - rows->band_first) + 1;
}
