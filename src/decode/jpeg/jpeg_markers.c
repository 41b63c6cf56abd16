/* Reads the markers of a JPEG up to its image data (ITU-T T.81 annex B), as libjpeg does. If
 * libjpeg would warn or fail, the image is left to libjpeg. */
#include "decode/jpeg/jpeg_markers.h"

#include "base/byte_order.h"

#include <string.h>

enum marker {
    MARKER_SOF0 = 0xc0,
    MARKER_SOF1 = 0xc1,
    MARKER_SOF2 = 0xc2,
    MARKER_DHT = 0xc4,
    MARKER_SOF9 = 0xc9,
    MARKER_SOF10 = 0xca,
    MARKER_SOF11 = 0xcb,
    MARKER_DAC = 0xcc,
    MARKER_SOF13 = 0xcd,
    MARKER_SOF15 = 0xcf,
    MARKER_SOI = 0xd8,
    MARKER_SOS = 0xda,
    MARKER_DQT = 0xdb,
    MARKER_DRI = 0xdd,
    MARKER_APP0 = 0xe0,
    MARKER_APP14 = 0xee,
    MARKER_APP15 = 0xef,
    MARKER_COM = 0xfe,
};

const uint8_t stk_jpeg_zigzag[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48,
    41, 34, 27, 20, 13, 6,  7,  14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23,
    30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

static const char *const reason_names[STK_JPEG_REASON_COUNT] = {
    [STK_JPEG_DECODED] = "fine",
    [STK_JPEG_PROGRESSIVE] = "progressive",
    [STK_JPEG_ARITHMETIC] = "arithmetic coding",
    [STK_JPEG_PROCESS] = "lossless or hierarchical",
    [STK_JPEG_BITS] = "not 8 bits",
    [STK_JPEG_COLORS] = "not grey or three colours",
    [STK_JPEG_SAMPLING] = "odd sampling",
    [STK_JPEG_SCANS] = "several scans",
    [STK_JPEG_TABLES] = "odd tables",
    [STK_JPEG_HEADER] = "odd header",
    [STK_JPEG_DATA] = "damaged data",
    [STK_JPEG_MEMORY] = "memory",
    [STK_JPEG_ENTRY_POINTS] = "side index",
};

const char *stk_jpeg_reason_name(uint32_t reason)
{
    STK_ASSERT(reason < STK_JPEG_REASON_COUNT);
    return reason_names[reason];
}

/* The colour information of the application markers. */
struct colors {
    bool jfif, adobe;
    uint8_t transform; /* Adobe's */
};

/* DQT (B.2.4.1): tables of 8 or 16 bits until the segment is over. */
static uint32_t read_quantisers(struct stk_jpeg_frame *frame, struct stk_view segment)
{
    size_t at = 0;

    while (at < segment.bytes) {
        uint32_t wide = segment.data[at] >> 4, table = segment.data[at] & 15;
        size_t bytes = wide ? 128 : 64;

        at++;
        if (table >= 4 || wide > 1 || segment.bytes - at < bytes) {
            return STK_JPEG_TABLES;
        }
        for (int k = 0; k < 64; k++) {
            frame->quantisers[table][k] =
                (uint16_t)(wide ? stk_big16(segment.data + at + 2 * k) : segment.data[at + k]);
        }
        frame->quantiser_mask |= 1u << table;
        at += bytes;
    }
    return STK_JPEG_DECODED;
}

/* DHT (B.2.4.2). The counts are checked to make a prefix code when the table is built. */
static uint32_t read_codes(struct stk_jpeg_frame *frame, struct stk_view segment)
{
    size_t at = 0;

    while (at < segment.bytes) {
        uint32_t kind = segment.data[at] >> 4, table = segment.data[at] & 15;
        size_t symbols = 0;

        at++;
        if (kind > 1 || table >= 4 || segment.bytes - at < 16) {
            return STK_JPEG_TABLES;
        }
        for (int length = 0; length < 16; length++) {
            symbols += segment.data[at + length];
        }
        if (symbols > 256 || segment.bytes - at - 16 < symbols) {
            return STK_JPEG_TABLES;
        }
        frame->codes[kind][table] = (struct stk_view){segment.data + at, 16 + symbols};
        at += 16 + symbols;
    }
    return STK_JPEG_DECODED;
}

/* Checks the sampling factors of three components: each factor must divide the largest, as
 * libjpeg's upsampling requires, and an MCU has at most 10 blocks. */
static uint32_t check_sampling(struct stk_jpeg_frame *frame)
{
    uint32_t blocks = 0;

    for (uint32_t i = 0; i < frame->component_count; i++) {
        const struct stk_jpeg_component *component = &frame->components[i];

        if (component->h < 1 || component->h > 4 || component->v < 1 || component->v > 4) {
            return STK_JPEG_HEADER;
        }
        frame->h_max = (uint32_t)stk_max(frame->h_max, component->h);
        frame->v_max = (uint32_t)stk_max(frame->v_max, component->v);
        blocks += (uint32_t)component->h * component->v;
    }
    for (uint32_t i = 0; i < frame->component_count; i++) {
        if (frame->h_max % frame->components[i].h || frame->v_max % frame->components[i].v) {
            return STK_JPEG_SAMPLING;
        }
    }
    return blocks > STK_JPEG_BLOCKS_MAX ? STK_JPEG_SAMPLING : STK_JPEG_DECODED;
}

static uint32_t frame_process(uint8_t marker)
{
    if (marker == MARKER_SOF2) {
        return STK_JPEG_PROGRESSIVE;
    }
    if (marker == MARKER_SOF9 || marker == MARKER_SOF10) {
        return STK_JPEG_ARITHMETIC;
    }
    return marker == MARKER_SOF0 || marker == MARKER_SOF1 ? STK_JPEG_DECODED : STK_JPEG_PROCESS;
}

/* SOFn (B.2.2). */
static uint32_t read_frame(struct stk_jpeg_frame *frame, uint8_t marker, struct stk_view segment)
{
    const uint8_t *data = segment.data;
    uint32_t reason = frame_process(marker);

    if (reason) {
        return reason;
    }
    if (frame->component_count || segment.bytes < 6 || segment.bytes != 6 + 3 * (size_t)data[5]) {
        return STK_JPEG_HEADER;
    }
    if (data[0] != 8) {
        return STK_JPEG_BITS;
    }
    if (data[5] != 1 && data[5] != 3) {
        return STK_JPEG_COLORS;
    }
    frame->height = stk_big16(data + 1);
    frame->width = stk_big16(data + 3);
    if (frame->width < 1 || frame->width > STK_JPEG_SIDE_MAX || frame->height < 1 ||
        frame->height > STK_JPEG_SIDE_MAX) {
        return STK_JPEG_HEADER;
    }
    frame->component_count = data[5];
    for (uint32_t i = 0; i < frame->component_count; i++) {
        const uint8_t *entry = data + 6 + 3 * i;

        frame->components[i] = (struct stk_jpeg_component){
            .id = entry[0], .h = entry[1] >> 4, .v = entry[1] & 15, .quantiser = entry[2]};
        for (uint32_t j = 0; j < i; j++) {
            if (frame->components[j].id == entry[0]) {
                return STK_JPEG_HEADER;
            }
        }
    }
    return check_sampling(frame);
}

/* SOS (B.2.3): one scan with all components in their order, all coefficients at once. */
static uint32_t read_scan(struct stk_jpeg_frame *frame, struct stk_view segment)
{
    uint32_t count = frame->component_count;
    const uint8_t *end;

    if (count == 0 || segment.bytes < 1 || segment.bytes != 4 + 2 * (size_t)segment.data[0]) {
        return STK_JPEG_HEADER;
    }
    if (segment.data[0] != count) {
        return STK_JPEG_SCANS;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct stk_jpeg_component *component = &frame->components[i];
        const uint8_t *entry = segment.data + 1 + 2 * i;

        component->dc = entry[1] >> 4;
        component->ac = entry[1] & 15;
        if (entry[0] != component->id) {
            return STK_JPEG_HEADER;
        }
        if (component->dc >= 4 || component->ac >= 4 || component->quantiser >= 4 ||
            !frame->codes[0][component->dc].data || !frame->codes[1][component->ac].data ||
            !(frame->quantiser_mask >> component->quantiser & 1)) {
            return STK_JPEG_TABLES;
        }
    }
    end = segment.data + 1 + 2 * count;
    return end[0] == 0 && end[1] == 63 && end[2] == 0 ? STK_JPEG_DECODED : STK_JPEG_SCANS;
}

/* APP0 and APP14, of which libjpeg looks at 14 and 12 bytes. */
static uint32_t read_application(struct colors *colors, uint8_t marker, struct stk_view segment)
{
    if (marker == MARKER_APP0 && segment.bytes >= 14 && memcmp(segment.data, "JFIF\0", 5) == 0) {
        colors->jfif = true;
        return segment.data[5] == 1 ? STK_JPEG_DECODED : STK_JPEG_HEADER;
    }
    if (marker == MARKER_APP14 && segment.bytes >= 12 && memcmp(segment.data, "Adobe", 5) == 0) {
        colors->adobe = true;
        colors->transform = segment.data[11];
    }
    return STK_JPEG_DECODED;
}

static uint32_t read_segment(struct stk_jpeg_frame *frame, struct colors *colors, uint8_t marker,
                             struct stk_view segment)
{
    switch (marker) {
    case MARKER_DQT:
        return read_quantisers(frame, segment);
    case MARKER_DHT:
        return read_codes(frame, segment);
    case MARKER_DRI:
        if (segment.bytes != 2) {
            return STK_JPEG_HEADER;
        }
        frame->restart_interval = stk_big16(segment.data);
        return STK_JPEG_DECODED;
    case MARKER_SOS:
        return read_scan(frame, segment);
    case MARKER_COM:
        return STK_JPEG_DECODED;
    case MARKER_DAC:
        return STK_JPEG_ARITHMETIC;
    default:
        break;
    }
    if (marker >= MARKER_SOF0 && marker <= MARKER_SOF15) {
        return read_frame(frame, marker, segment);
    }
    if (marker >= MARKER_APP0 && marker <= MARKER_APP15) {
        return read_application(colors, marker, segment);
    }
    return STK_JPEG_HEADER;
}

/* Which colours three components are: jdapimin.c, default_decompress_parms. */
static uint32_t decide_colors(struct stk_jpeg_frame *frame, const struct colors *colors)
{
    const struct stk_jpeg_component *c = frame->components;

    if (frame->component_count == 1 || colors->jfif) {
        return STK_JPEG_DECODED;
    }
    if (colors->adobe) {
        frame->rgb = colors->transform == 0;
        return colors->transform <= 1 ? STK_JPEG_DECODED : STK_JPEG_COLORS;
    }
    frame->rgb = c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B';
    return STK_JPEG_DECODED;
}

/* One component is not interleaved: its MCU is one block, whatever its factors say (A.2.2). But
 * libjpeg still reads as many rows of blocks at a time. */
static void count_mcus(struct stk_jpeg_frame *frame)
{
    frame->rows_together = 1;
    if (frame->component_count == 1) {
        frame->rows_together = frame->components[0].v;
        frame->components[0].h = frame->components[0].v = 1;
        frame->h_max = frame->v_max = 1;
    }
    frame->mcu_columns = stk_jpeg_div_ceil(frame->width, 8 * frame->h_max);
    frame->mcu_rows = stk_jpeg_div_ceil(frame->height, 8 * frame->v_max);
}

uint32_t stk_jpeg_frame_read(struct stk_view bytes, struct stk_jpeg_frame *frame_out)
{
    struct colors colors = {0};
    const uint8_t *data = bytes.data;
    size_t at = 2;
    uint8_t marker = 0;

    *frame_out = (struct stk_jpeg_frame){0};
    if (bytes.bytes < 2 || data[0] != 0xff || data[1] != MARKER_SOI) {
        return STK_JPEG_HEADER;
    }
    while (marker != MARKER_SOS) {
        struct stk_view segment;
        uint32_t length, reason;

        while (bytes.bytes - at > 1 && data[at] == 0xff && data[at + 1] == 0xff) {
            at++; /* fill bytes (B.1.1.2) */
        }
        if (bytes.bytes - at < 4 || data[at] != 0xff) {
            return STK_JPEG_HEADER;
        }
        marker = data[at + 1];
        length = stk_big16(data + at + 2);
        if (length < 2 || bytes.bytes - at - 2 < length) {
            return STK_JPEG_HEADER;
        }
        segment = (struct stk_view){data + at + 4, length - 2};
        reason = read_segment(frame_out, &colors, marker, segment);
        if (reason) {
            return reason;
        }
        at += 2 + (size_t)length;
    }
    count_mcus(frame_out);
    frame_out->scan = (struct stk_view){data + at, bytes.bytes - at};
    return decide_colors(frame_out, &colors);
}
