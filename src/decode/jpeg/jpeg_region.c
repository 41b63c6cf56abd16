/* Decodes a box of a JPEG: selects the MCUs, decodes them to planes and converts these to rows. The
 * plane of a component is a ring. It holds one MCU row more than twice those that are read
 * together; with entry points, two rows are read side by side. Thus each row of pixels has the rows
 * of chroma above and below it that "fancy" upsampling needs. A plane holds the columns of MCUs
 * that contain the box and its neighbours, and one more sample on both sides, which is a copy at
 * the edge of the image. */
#include "decode/jpeg/jpeg.h"

#include "base/mem.h"
#include "decode/jpeg/jpeg_planes.h"

#include <errno.h>
#include <string.h>

#define ALIGN 64u
#define SIDE_PAD 64u   /* space before a plane's first column for its neighbour, aligned */
#define ALIAS_MIN 512u /* strides of such a multiple fall onto few sets of a cache */

enum method { METHOD_NONE, METHOD_WIDE, METHOD_HIGH, METHOD_BOTH, METHOD_REPEAT };

struct plane {
    uint8_t *data; /* column 0 of the stored columns, row 0 of the ring */
    size_t stride;
    uint32_t rows;          /* of the ring */
    uint32_t width, height; /* samples of the full component */
    uint32_t first;         /* sample of column 0 */
    uint32_t h_ratio, v_ratio;
    uint32_t method;
    uint8_t *upsampled; /* one row */
};

struct stk_jpeg_decoder {
    void *memory; /* owned; this is inside it, aligned for blocks and tables */
    const struct stk_jpeg_kernels *kernels; /* borrowed: static */
    struct stk_jpeg_mcu_state streams[2];   /* the second: of the row below, see run_indexed_rows */
    struct stk_jpeg_huffman_cache tables;
    /* of components, in the order of blocks */
    int16_t quantisers[3][64] __attribute__((aligned(64)));

    /* The image in progress. */
    const struct stk_jpeg_frame *frame; /* borrowed until the next begin */
    struct stk_jpeg_box box;
    struct plane planes[3];
    uint32_t column_first, column_end; /* stored MCUs */
    uint32_t mcu_row;                  /* the next to be read */
    uint32_t band_row;                 /* the next to return as planes */
    uint32_t restart_left;             /* MCUs before the next restart marker */
    uint32_t restarts;
    uint32_t y;                                /* the next row of the image to return */
    uint32_t ready_end;                        /* rows of the image before it can be made */
    bool context;                              /* some component looks at the next MCU row */
    struct stk_jpeg_entry_points entry_points; /* borrowed; no bytes: none */
    uint32_t marks_row;                        /* of an MCU row */
    uint8_t *windows;                          /* of the workspace, one for each stream */
};

/* ---- opening ------------------------------------------------------------------------------ */

int stk_jpeg_decoder_open_with_kernels(struct stk_jpeg_decoder **decoder_out,
                                       const struct stk_jpeg_kernels *kernels,
                                       struct stoker_error *error)
{
    void *memory = stk_alloc(1, stk_jpeg_decoder_bytes());
    struct stk_jpeg_decoder *decoder;

    if (!memory) {
        return stk_fail_errno(error, ENOMEM, "cannot make a jpeg decoder",
                              "give the process more memory", "%zu bytes", sizeof *decoder);
    }
    decoder = (void *)(uintptr_t)stk_round_up((uintptr_t)memory, ALIGN);
    decoder->memory = memory;
    decoder->kernels = kernels;
    for (uint32_t k = 0; k < STK_COUNT(decoder->streams->coefficient_index); k++) {
        uint32_t at = k < 64 ? stk_jpeg_zigzag[k] : 0;

        decoder->streams->coefficient_index[k] =
            (uint8_t)(k < 64 ? kernels->coefficient_index(at / 8, at % 8)
                             : STK_JPEG_COEFFICIENT_NONE);
    }
    decoder->streams->idct = kernels->idct;
    decoder->streams[1] = decoder->streams[0];
    *decoder_out = decoder;
    return 0;
}

int stk_jpeg_decoder_open(struct stk_jpeg_decoder **decoder_out, uint32_t vector,
                          struct stoker_error *error)
{
    const struct stk_jpeg_kernels *kernels = stk_jpeg_kernels_get(vector);

    if (!kernels) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "this machine has no AVX2",
                        "choose the vector code \"auto\" or \"none\"", "jpeg decoder");
    }
    return stk_jpeg_decoder_open_with_kernels(decoder_out, kernels, error);
}

void stk_jpeg_decoder_close(struct stk_jpeg_decoder *decoder)
{
    if (decoder) {
        stk_free(decoder->memory);
    }
}

uint64_t stk_jpeg_decoder_bytes(void)
{
    return sizeof(struct stk_jpeg_decoder) + ALIGN;
}

/* ---- the parts that a box needs ------------------------------------------------------------ */

/* How libjpeg upsamples a component (jdsample.c, jinit_upsampler). */
static uint32_t method_of(const struct plane *plane)
{
    if (plane->h_ratio == 1 && plane->v_ratio == 1) {
        return METHOD_NONE;
    }
    if (plane->h_ratio == 1 && plane->v_ratio == 2) {
        return METHOD_HIGH;
    }
    if (plane->h_ratio == 2 && plane->v_ratio <= 2 && plane->width > 2) {
        return plane->v_ratio == 1 ? METHOD_WIDE : METHOD_BOTH;
    }
    return METHOD_REPEAT;
}

static size_t stride_of(uint64_t samples)
{
    uint64_t stride = stk_round_up(samples + SIDE_PAD + STK_JPEG_ROW_SLACK, ALIGN);

    return (size_t)(stride % ALIAS_MIN ? stride : stride + ALIGN);
}

/* Bytes of a plane of so many MCU columns of h blocks, its ring of so many rows, and its row of
 * pixels. */
static uint64_t plane_bytes(uint64_t columns, uint32_t h, uint32_t rows, uint32_t h_max)
{
    return stride_of(columns * h * 8) * rows + stride_of(columns * h_max * 8);
}

uint64_t stk_jpeg_workspace_max(uint32_t width, const uint8_t *h, const uint8_t *v,
                                uint32_t component_count)
{
    uint64_t bytes = 2 * STK_JPEG_WINDOW_BYTES + 2 * ALIGN;
    uint32_t h_max = 1;

    for (uint32_t i = 0; i < component_count; i++) {
        h_max = h[i] > h_max ? h[i] : h_max;
    }
    for (uint32_t i = 0; i < component_count; i++) {
        bytes += plane_bytes(stk_jpeg_div_ceil(width, 8 * h_max), h[i], 3 * 8 * v[i], h_max);
    }
    return bytes;
}

/* The MCU columns that contain the box and one sample of each component on each side of it. */
static void find_columns(const struct stk_jpeg_frame *frame, const struct stk_jpeg_box *box,
                         uint32_t *first_out, uint32_t *end_out)
{
    uint32_t margin = frame->h_max > 1 ? frame->h_max : 0, size = 8 * frame->h_max;
    uint32_t left = box->x > margin ? box->x - margin : 0;
    uint32_t right = box->x + box->width + margin;

    *first_out = left / size;
    *end_out = (uint32_t)stk_min(stk_jpeg_div_ceil(right, size), frame->mcu_columns);
}

static uint32_t ring_rows(const struct stk_jpeg_frame *frame, uint32_t component)
{
    return (2 * frame->rows_together + 1) * frame->components[component].v * 8;
}

uint64_t stk_jpeg_workspace_bytes(const struct stk_jpeg_frame *frame,
                                  const struct stk_jpeg_box *box)
{
    uint64_t bytes = 2 * STK_JPEG_WINDOW_BYTES + 2 * ALIGN;
    uint32_t first, end;

    find_columns(frame, box, &first, &end);
    for (uint32_t i = 0; i < frame->component_count; i++) {
        bytes +=
            plane_bytes(end - first, frame->components[i].h, ring_rows(frame, i), frame->h_max);
    }
    return bytes;
}

/* Places one component in the workspace. Returns the address after it. */
static uint8_t *assign_plane(struct stk_jpeg_decoder *decoder, uint32_t i, uint8_t *space)
{
    const struct stk_jpeg_frame *frame = decoder->frame;
    const struct stk_jpeg_component *component = &frame->components[i];
    uint64_t columns = decoder->column_end - decoder->column_first;
    struct plane *plane = &decoder->planes[i];

    *plane = (struct plane){
        .data = space + SIDE_PAD,
        .stride = stride_of(columns * component->h * 8),
        .rows = ring_rows(frame, i),
        .width = stk_jpeg_div_ceil((uint64_t)frame->width * component->h, frame->h_max),
        .height = stk_jpeg_div_ceil((uint64_t)frame->height * component->v, frame->v_max),
        .first = decoder->column_first * component->h * 8,
        .h_ratio = frame->h_max / component->h,
        .v_ratio = frame->v_max / component->v,
    };
    plane->method = method_of(plane);
    plane->upsampled = space + plane->stride * plane->rows;
    return plane->upsampled + stride_of(columns * frame->h_max * 8);
}

/* Blocks of an MCU in the order of the data (A.2.3), for the MCU row that is read next, or of the
 * second stream: the one below it. */
static void assign_blocks(struct stk_jpeg_decoder *decoder, uint32_t stream)
{
    const struct stk_jpeg_frame *frame = decoder->frame;
    struct stk_jpeg_mcu_state *mcus = &decoder->streams[stream];
    uint32_t n = 0;

    for (uint32_t i = 0; i < frame->component_count; i++) {
        const struct stk_jpeg_component *component = &frame->components[i];
        struct plane *plane = &decoder->planes[i];
        uint32_t row = (decoder->mcu_row + stream) * component->v * 8 % plane->rows;

        for (uint32_t b = 0; b < (uint32_t)component->h * component->v; b++, n++) {
            struct stk_jpeg_block *block = &mcus->blocks[n];

            block->to =
                plane->data + (row + b / component->h * 8) * plane->stride + b % component->h * 8;
            block->stride = plane->stride;
            block->step = component->h * 8u;
            block->component = i;
            block->quantiser = decoder->quantisers[i];
        }
    }
    mcus->block_count = n;
}

/* Tables of each component, in the blocks that use them. */
static uint32_t find_tables(struct stk_jpeg_decoder *decoder)
{
    const struct stk_jpeg_frame *frame = decoder->frame;
    const uint8_t *places = decoder->streams->coefficient_index;
    uint32_t n = 0;

    for (uint32_t i = 0; i < frame->component_count; i++) {
        const struct stk_jpeg_component *component = &frame->components[i];
        const struct stk_jpeg_huffman_table *dc, *ac;

        dc = stk_jpeg_huffman_get(&decoder->tables, 0, frame->codes[0][component->dc]);
        ac = stk_jpeg_huffman_get(&decoder->tables, 1, frame->codes[1][component->ac]);
        if (!dc || !ac) {
            return STK_JPEG_TABLES;
        }
        for (uint32_t k = 0; k < 64; k++) {
            decoder->quantisers[i][places[k]] = (int16_t)frame->quantisers[component->quantiser][k];
        }
        for (uint32_t b = 0; b < (uint32_t)component->h * component->v; b++, n++) {
            for (uint32_t stream = 0; stream < 2; stream++) {
                decoder->streams[stream].blocks[n].dc = dc;
                decoder->streams[stream].blocks[n].ac = ac;
            }
        }
    }
    return STK_JPEG_DECODED;
}

/* ---- MCU rows ----------------------------------------------------------------------------- */

/* Decodes the next `count` MCUs: parses them, or stores them from column `column` on. */
static uint32_t run_mcus(struct stk_jpeg_decoder *decoder, bool kept, uint32_t column,
                         uint32_t count)
{
    const struct stk_jpeg_entropy_kernels *entropy = decoder->kernels->entropy;
    struct stk_jpeg_mcu_state *mcus = decoder->streams;

    while (count > 0) {
        uint32_t part = count;

        if (decoder->frame->restart_interval) {
            if (decoder->restart_left == 0) {
                if (!stk_jpeg_segment_restart(&mcus->segment, decoder->restarts)) {
                    return STK_JPEG_DATA;
                }
                decoder->restarts++;
                decoder->restart_left = decoder->frame->restart_interval;
                memset(mcus->dc, 0, sizeof mcus->dc);
            }
            part = (uint32_t)stk_min(part, decoder->restart_left);
            decoder->restart_left -= part;
        }
        if (!(kept ? entropy->decode(mcus, column, part) : entropy->skip(mcus, part))) {
            return STK_JPEG_DATA;
        }
        column += part;
        count -= part;
    }
    return mcus->damage || stk_jpeg_segment_overran(&mcus->segment) ? STK_JPEG_DATA
                                                                    : STK_JPEG_DECODED;
}

/* Fills the samples outside the image for upsampling: copies of its first and last samples. */
static void pad_sides(struct stk_jpeg_decoder *decoder)
{
    for (uint32_t i = 0; i < decoder->frame->component_count; i++) {
        struct plane *plane = &decoder->planes[i];
        uint32_t count = decoder->frame->components[i].v * 8u;
        uint32_t last = plane->width - 1 - plane->first;
        uint8_t *row = plane->data + decoder->mcu_row * count % plane->rows * plane->stride;

        if (plane->method != METHOD_WIDE && plane->method != METHOD_BOTH) {
            continue;
        }
        for (uint32_t y = 0; y < count; y++, row += plane->stride) {
            if (plane->first == 0) {
                *(row - 1) = row[0];
            }
            if (decoder->column_end == decoder->frame->mcu_columns) {
                row[last + 1] = row[last];
            }
        }
    }
}

/* A complete MCU row: damage outside the box is found as libjpeg would find it. */
static uint32_t run_row(struct stk_jpeg_decoder *decoder)
{
    uint32_t first = decoder->column_first, end = decoder->column_end, reason;

    reason = run_mcus(decoder, false, 0, first);
    reason = reason ? reason : run_mcus(decoder, true, 0, end - first);
    return reason ? reason : run_mcus(decoder, false, 0, decoder->frame->mcu_columns - end);
}

/* ---- entry points ------------------------------------------------------------------------- */

struct mark {
    uint64_t at; /* byte of the scan */
    uint32_t used;
    uint32_t dc[3];
};

static uint32_t entry_point_step(const struct stk_jpeg_frame *frame, uint32_t mcus)
{
    return mcus ? (uint32_t)stk_min(mcus, frame->mcu_columns) : frame->mcu_columns;
}

uint64_t stk_jpeg_entry_point_count(const struct stk_jpeg_frame *frame, uint32_t mcus)
{
    uint64_t row = stk_jpeg_div_ceil(frame->mcu_columns, entry_point_step(frame, mcus));

    return row * frame->mcu_rows - 1;
}

/* Returns entry point i. The first one is not stored; the one after the last is the end of the
 * scan. */
static struct mark read_entry_point(const struct stk_jpeg_decoder *decoder, uint64_t i)
{
    const struct stk_view *bytes = &decoder->entry_points.bytes;
    struct mark mark = {0};
    const uint8_t *from;
    uint32_t place;

    if (i == 0) {
        return mark;
    }
    if (i * STK_JPEG_ENTRY_POINT_BYTES > bytes->bytes) {
        mark.at = decoder->frame->scan.bytes;
        return mark;
    }
    from = bytes->data + (i - 1) * STK_JPEG_ENTRY_POINT_BYTES;
    memcpy(&place, from, sizeof place);
    mark.at = place >> 3;
    mark.used = place & 7;
    for (int c = 0; c < 3; c++) {
        int16_t value;

        memcpy(&value, from + 4 + 2 * c, sizeof value);
        mark.dc[c] = (uint32_t)(int32_t)value;
    }
    return mark;
}

/* Starts at an entry point and reads the bytes up to another one, not more. */
static bool begin_at(struct stk_jpeg_decoder *decoder, uint32_t stream, uint64_t i, uint64_t end_i)
{
    struct stk_jpeg_mcu_state *mcus = &decoder->streams[stream];
    uint8_t *window = decoder->windows + stream * STK_JPEG_WINDOW_BYTES;
    const struct stk_view *scan = &decoder->frame->scan;
    struct mark mark = read_entry_point(decoder, i), last = read_entry_point(decoder, end_i);
    uint64_t end = last.at;

    if (last.used > 0 && end < scan->bytes) {
        end += scan->data[end] == 0xff && end + 1 < scan->bytes ? 2 : 1;
    }
    if (mark.at >= end || end > scan->bytes) {
        return false;
    }
    stk_jpeg_segment_begin_at_bit(
        &mcus->segment, (struct stk_view){scan->data + mark.at, end - mark.at}, mark.used, window);
    memcpy(mcus->dc, mark.dc, sizeof mcus->dc);
    return !stk_jpeg_segment_overran(&mcus->segment);
}

/* Returns whether the bit position and the predictors match the entry point. */
static bool matches_entry_point(struct stk_jpeg_decoder *decoder, uint32_t stream, uint64_t i)
{
    struct stk_jpeg_mcu_state *mcus = &decoder->streams[stream];
    struct mark mark = read_entry_point(decoder, i);
    uint32_t used = 0;
    const uint8_t *place = stk_jpeg_segment_position(&mcus->segment, &used);

    return place == decoder->frame->scan.data + mark.at && used == mark.used &&
           memcmp(mark.dc, mcus->dc, sizeof mark.dc) == 0;
}

/* Returns whether a stream that had to end did so at the next entry point and without damage. */
static bool ended_cleanly(struct stk_jpeg_decoder *decoder, uint32_t stream, uint64_t next,
                          bool passed)
{
    const struct stk_jpeg_mcu_state *mcus = &decoder->streams[stream];

    if (mcus->damage || stk_jpeg_segment_overran(&mcus->segment)) {
        return false;
    }
    return !passed || next * STK_JPEG_ENTRY_POINT_BYTES > decoder->entry_points.bytes.bytes ||
           matches_entry_point(decoder, stream, next);
}

/* Decodes the stored part of `count` (1, 2) MCU rows, from the preceding entry point on, and checks
 * each entry point passed. Two rows are two streams of bits, which are read side by side (decision
 * 49). */
static uint32_t run_indexed_rows(struct stk_jpeg_decoder *decoder, uint32_t count)
{
    const struct stk_jpeg_entropy_kernels *entropy = decoder->kernels->entropy;
    uint32_t step = decoder->entry_points.mcus, first = decoder->column_first,
             end = decoder->column_end;
    uint32_t columns = decoder->frame->mcu_columns, column = first / step * step;
    uint64_t row = (uint64_t)decoder->mcu_row * decoder->marks_row, i = row + first / step;

    for (uint32_t n = 0; n < count; n++) {
        uint64_t more = n * (uint64_t)decoder->marks_row;

        if (!begin_at(decoder, n, i + more, row + more + stk_jpeg_div_ceil(end, step)) ||
            !entropy->skip(&decoder->streams[n], first - column) ||
            !ended_cleanly(decoder, n, 0, false)) {
            return STK_JPEG_ENTRY_POINTS;
        }
    }
    for (uint32_t at = first; at < end; i++) {
        uint32_t next = (uint32_t)stk_min(column + (uint64_t)step, columns);
        uint32_t stop = (uint32_t)stk_min(next, end);
        bool good = (count == 2 ? entropy->decode_two : entropy->decode)(decoder->streams,
                                                                         at - first, stop - at);

        for (uint32_t n = 0; n < count; n++) {
            uint64_t mark = i + 1 + n * (uint64_t)decoder->marks_row;

            good = good && ended_cleanly(decoder, n, mark, stop == next);
        }
        if (!good) {
            return STK_JPEG_ENTRY_POINTS;
        }
        at = stop;
        column = next;
    }
    return STK_JPEG_DECODED;
}

static bool write_entry_point(struct stk_jpeg_decoder *decoder, uint8_t *to)
{
    struct stk_jpeg_mcu_state *mcus = decoder->streams;
    uint32_t used, place;
    const uint8_t *byte = stk_jpeg_segment_position(&mcus->segment, &used);
    uint64_t at = byte ? (uint64_t)(byte - decoder->frame->scan.data) : UINT64_MAX;

    if (at > UINT32_MAX >> 3) {
        return false;
    }
    place = (uint32_t)at << 3 | used;
    memcpy(to, &place, sizeof place);
    for (int c = 0; c < 3; c++) {
        int16_t value = (int16_t)mcus->dc[c];

        if ((uint32_t)(int32_t)value != mcus->dc[c]) {
            return false;
        }
        memcpy(to + 4 + 2 * c, &value, sizeof value);
    }
    return true;
}

uint32_t stk_jpeg_decoder_index(struct stk_jpeg_decoder *decoder,
                                const struct stk_jpeg_frame *frame, uint32_t mcus, void *workspace,
                                uint8_t *marks_out)
{
    const struct stk_jpeg_box corner = {0, 0, 1, 1};
    uint32_t step = entry_point_step(frame, mcus);
    uint32_t reason = stk_jpeg_decoder_begin(decoder, frame, &corner, workspace, NULL);
    bool first = true;

    reason = reason == STK_JPEG_DECODED && frame->restart_interval ? STK_JPEG_ENTRY_POINTS : reason;
    for (uint32_t row = 0; row < frame->mcu_rows; row++) {
        for (uint32_t column = 0; column < frame->mcu_columns && !reason; column += step) {
            if (!first) {
                reason = write_entry_point(decoder, marks_out) ? STK_JPEG_DECODED
                                                               : STK_JPEG_ENTRY_POINTS;
                marks_out += STK_JPEG_ENTRY_POINT_BYTES;
            }
            first = false;
            reason = reason ? reason
                            : run_mcus(decoder, false, 0,
                                       (uint32_t)stk_min(step, frame->mcu_columns - column));
        }
    }
    return reason;
}

/* ---- a box -------------------------------------------------------------------------------- */

/* Rows of the image before the one returned can be made when so many MCU rows were read. */
static uint32_t rows_ready_end(const struct stk_jpeg_decoder *decoder, uint32_t mcu_rows)
{
    const struct stk_jpeg_frame *frame = decoder->frame;

    if (mcu_rows == frame->mcu_rows) {
        return frame->height;
    }
    if (mcu_rows % frame->rows_together) {
        return decoder->ready_end;
    }
    /* A row group (of libjpeg) looks below itself for context. */
    return mcu_rows * 8 * frame->v_max - (decoder->context ? frame->v_max : 0);
}

/* Decodes the next row of MCUs; with entry points two, if the box also needs the row below. */
static uint32_t read_mcu_rows(struct stk_jpeg_decoder *decoder)
{
    bool marked = decoder->entry_points.bytes.data;
    bool below = marked && rows_ready_end(decoder, decoder->mcu_row + 1) <
                               decoder->box.y + decoder->box.height;
    uint32_t count = below ? 2 : 1, reason;

    for (uint32_t n = 0; n < count; n++) {
        assign_blocks(decoder, n);
    }
    reason = marked ? run_indexed_rows(decoder, count) : run_row(decoder);
    for (uint32_t n = 0; n < count && !reason; n++) {
        pad_sides(decoder);
        decoder->mcu_row++;
        decoder->ready_end = rows_ready_end(decoder, decoder->mcu_row);
    }
    return reason;
}

/* Stores the entry points. Returns false if they do not belong to this image. */
static bool set_entry_points(struct stk_jpeg_decoder *decoder,
                             const struct stk_jpeg_entry_points *entry_points)
{
    const struct stk_jpeg_frame *frame = decoder->frame;

    decoder->entry_points = (struct stk_jpeg_entry_points){0};
    if (!entry_points) {
        return true;
    }
    decoder->entry_points = *entry_points;
    decoder->entry_points.mcus = entry_point_step(frame, entry_points->mcus);
    decoder->marks_row = stk_jpeg_div_ceil(frame->mcu_columns, decoder->entry_points.mcus);
    return entry_points->bytes.data && frame->restart_interval == 0 &&
           entry_points->bytes.bytes ==
               stk_jpeg_entry_point_count(frame, entry_points->mcus) * STK_JPEG_ENTRY_POINT_BYTES;
}

uint32_t stk_jpeg_decoder_begin(struct stk_jpeg_decoder *decoder,
                                const struct stk_jpeg_frame *frame, const struct stk_jpeg_box *box,
                                void *workspace, const struct stk_jpeg_entry_points *entry_points)
{
    struct stk_jpeg_mcu_state *mcus = decoder->streams;
    uint8_t *space = workspace;
    uint32_t above, reason;

    decoder->frame = frame;
    decoder->box = *box;
    reason = set_entry_points(decoder, entry_points) ? find_tables(decoder) : STK_JPEG_ENTRY_POINTS;
    if (reason) {
        return reason;
    }
    find_columns(frame, box, &decoder->column_first, &decoder->column_end);
    decoder->windows = space;
    space += 2 * STK_JPEG_WINDOW_BYTES;
    if (!entry_points) {
        stk_jpeg_segment_begin(&mcus->segment, frame->scan, decoder->windows);
    }
    decoder->context = false;
    for (uint32_t i = 0; i < frame->component_count; i++) {
        space = assign_plane(decoder, i, space);
        decoder->context |=
            decoder->planes[i].method == METHOD_HIGH || decoder->planes[i].method == METHOD_BOTH;
    }
    memset(mcus->dc, 0, sizeof mcus->dc);
    for (uint32_t stream = 0; stream < 2; stream++) {
        memset(mcus[stream].block, 0, sizeof mcus->block);
        mcus[stream].damage = 0;
    }
    decoder->mcu_row = decoder->restarts = decoder->ready_end = 0;
    decoder->restart_left = frame->restart_interval;
    decoder->y = box->y;
    above = box->y > frame->v_max ? box->y - frame->v_max : 0; /* one row group above */
    above /= 8 * frame->v_max;
    decoder->mcu_row = decoder->entry_points.bytes.data ? above : 0;
    assign_blocks(decoder, 0);
    for (; decoder->mcu_row < above && !reason; decoder->mcu_row++) {
        reason = run_mcus(decoder, false, 0, frame->mcu_columns);
    }
    decoder->band_row = decoder->mcu_row;
    return reason;
}

/* ---- rows --------------------------------------------------------------------------------- */

/* Row y of a component, which is in the ring; rows after the last are copies of it. */
static const uint8_t *plane_row(const struct plane *plane, int64_t y)
{
    y = y < 0 ? 0 : y < plane->height ? y : plane->height - 1;
    return plane->data + (uint64_t)y % plane->rows * plane->stride;
}

/* Each sample h_ratio times (jdsample.c, int_upsample). */
static void repeat(const struct plane *plane, const uint8_t *in, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        memset(plane->upsampled + (size_t)i * plane->h_ratio, in[i], plane->h_ratio);
    }
}

/* The samples of a component under row y of the box, as many as the box is wide. */
static const uint8_t *component_row(const struct stk_jpeg_decoder *decoder,
                                    const struct plane *plane)
{
    const struct stk_jpeg_kernels *kernels = decoder->kernels;
    const struct stk_jpeg_box *box = &decoder->box;
    uint32_t first = box->x / plane->h_ratio, end = (box->x + box->width - 1) / plane->h_ratio + 1;
    uint32_t at = first - plane->first, count = end - first, y = decoder->y / plane->v_ratio;
    bool below = decoder->y % 2;
    const uint8_t *near = plane_row(plane, y) + at;
    const uint8_t *far = plane_row(plane, (int64_t)y + (below ? 1 : -1)) + at;

    switch (plane->method) {
    case METHOD_NONE:
        return near;
    case METHOD_WIDE:
        kernels->upsample_h2v1(near, count, plane->upsampled);
        break;
    case METHOD_HIGH:
        kernels->upsample_h1v2(near, far, below, count, plane->upsampled);
        break;
    case METHOD_BOTH:
        kernels->upsample_h2v2(near, far, count, plane->upsampled);
        break;
    default:
        repeat(plane, near, count);
        break;
    }
    return plane->upsampled + (box->x - first * plane->h_ratio);
}

static void make_row(struct stk_jpeg_decoder *decoder, uint8_t *row)
{
    const struct stk_jpeg_kernels *kernels = decoder->kernels;
    const uint8_t *samples[3];

    for (uint32_t i = 0; i < decoder->frame->component_count; i++) {
        samples[i] = component_row(decoder, &decoder->planes[i]);
    }
    if (decoder->frame->component_count == 1) {
        kernels->interleave(samples[0], samples[0], samples[0], decoder->box.width, row);
    } else if (decoder->frame->rgb) {
        kernels->interleave(samples[0], samples[1], samples[2], decoder->box.width, row);
    } else {
        kernels->to_rgbx(samples[0], samples[1], samples[2], decoder->box.width, row);
    }
    decoder->y++;
}

uint32_t stk_jpeg_decoder_rows(struct stk_jpeg_decoder *decoder, uint8_t *const *rows,
                               uint32_t count, uint32_t *done_out)
{
    uint32_t reason = STK_JPEG_DECODED, done = 0;

    STK_ASSERT(count <= decoder->box.y + decoder->box.height - decoder->y);
    while (done < count && !reason) {
        if (decoder->y < decoder->ready_end) {
            make_row(decoder, rows[done++]);
        } else {
            reason = read_mcu_rows(decoder);
        }
    }
    *done_out = done;
    return reason;
}

/* ---- planes ------------------------------------------------------------------------------- */

uint32_t stk_jpeg_decoder_planes(const struct stk_jpeg_decoder *decoder,
                                 struct stk_jpeg_plane planes_out[3])
{
    const struct stk_jpeg_frame *frame = decoder->frame;

    for (uint32_t i = 0; i < frame->component_count; i++) {
        const struct plane *plane = &decoder->planes[i];

        planes_out[i] = (struct stk_jpeg_plane){
            .width = plane->width,
            .height = plane->height,
            .h_ratio = plane->h_ratio,
            .v_ratio = plane->v_ratio,
            .smooth_x = plane->method == METHOD_WIDE || plane->method == METHOD_BOTH,
            .smooth_y = plane->method == METHOD_HIGH || plane->method == METHOD_BOTH,
            .first = plane->first,
        };
    }
    return frame->rgb ? 0 : frame->component_count;
}

uint32_t stk_jpeg_decoder_band(struct stk_jpeg_decoder *decoder, struct stk_jpeg_band *band_out,
                               bool *more_out)
{
    const struct stk_jpeg_frame *frame = decoder->frame;
    uint32_t mcu_row = decoder->band_row++, reason = STK_JPEG_DECODED;

    STK_ASSERT(mcu_row < frame->mcu_rows);
    if (mcu_row == decoder->mcu_row) {
        reason = read_mcu_rows(decoder);
    }
    *more_out = decoder->ready_end < decoder->box.y + decoder->box.height;
    for (uint32_t i = 0; i < frame->component_count && !reason; i++) {
        const struct plane *plane = &decoder->planes[i];
        uint32_t count = frame->components[i].v * 8u, y = mcu_row * count;

        band_out->rows[i] = plane->data + y % plane->rows * plane->stride;
        band_out->strides[i] = plane->stride;
        band_out->y[i] = y;
        band_out->counts[i] = (uint32_t)stk_min(count, plane->height - stk_min(y, plane->height));
    }
    return reason;
}

bool stk_jpeg_decoder_ended(const struct stk_jpeg_decoder *decoder)
{
    return decoder->mcu_row == decoder->frame->mcu_rows && !decoder->entry_points.bytes.data &&
           stk_jpeg_segment_is_last(&decoder->streams[0].segment);
}

void stk_jpeg_decoder_to_rgbx(const struct stk_jpeg_decoder *decoder, const uint8_t *y,
                              const uint8_t *cb, const uint8_t *cr, uint32_t count, uint8_t *out)
{
    if (cb) {
        decoder->kernels->to_rgbx(y, cb, cr, count, out);
    } else {
        decoder->kernels->interleave(y, y, y, count, out);
    }
}
