/* Reads the header of a JPEG without libjpeg: ITU-T T.81 annex B, up to the first scan. */
#include "decode/codec/jpeg_header.h"

#include "decode/jpeg/jpeg.h"

#include <string.h>

enum marker {
    MARKER_TEM = 0x01,
    MARKER_SOF0 = 0xc0,
    MARKER_SOF1 = 0xc1,
    MARKER_SOF2 = 0xc2,
    MARKER_DHT = 0xc4,
    MARKER_JPG = 0xc8,
    MARKER_SOF9 = 0xc9,
    MARKER_SOF10 = 0xca,
    MARKER_DAC = 0xcc,
    MARKER_SOF15 = 0xcf,
    MARKER_RST0 = 0xd0,
    MARKER_SOI = 0xd8,
    MARKER_EOI = 0xd9,
    MARKER_SOS = 0xda,
    MARKER_APP1 = 0xe1,
};

static int damaged(struct stoker_error *error, const char *what, uint64_t at)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, what, STK_CODEC_ADVICE_DAMAGED,
                    "byte %llu of the jpeg", (unsigned long long)at);
}

static int ended(struct stoker_error *error, uint64_t at)
{
    return stk_fail(error, STOKER_ERROR_TRUNCATED, "the jpeg ends inside its header",
                    STK_CODEC_ADVICE_DAMAGED, "after %llu bytes", (unsigned long long)at);
}

static int unsupported(struct stoker_error *error, const char *what, const char *name,
                       uint32_t value)
{
    return stk_fail(error, STOKER_ERROR_UNSUPPORTED, what, STK_CODEC_ADVICE_CONVERT, "%s %u", name,
                    value);
}

static bool is_frame(uint8_t marker)
{
    return marker >= MARKER_SOF0 && marker <= MARKER_SOF15 && marker != MARKER_DHT &&
           marker != MARKER_JPG && marker != MARKER_DAC;
}

/* Markers that stand alone, and bytes between segments that libjpeg and PIL pass over. */
static bool is_bare(uint8_t marker)
{
    return marker == 0 || marker == 0xff || marker == MARKER_TEM ||
           (marker >= MARKER_RST0 && marker <= MARKER_SOI);
}

/* Start of frame (B.2.2). `at`: the offset of the segment, for the error. */
static int read_frame(struct stk_jpeg_header *header, uint8_t marker, struct stk_view segment,
                      uint64_t at, struct stoker_error *error)
{
    const uint8_t *data = segment.data;

    if (segment.bytes < 6 || segment.bytes < 6 + 3 * (uint64_t)data[5]) {
        return damaged(error, "the jpeg's frame header is too short", at);
    }
    if (marker != MARKER_SOF0 && marker != MARKER_SOF1 && marker != MARKER_SOF2 &&
        marker != MARKER_SOF9 && marker != MARKER_SOF10) {
        return unsupported(error, "the jpeg is lossless or hierarchical", "SOF",
                           marker - MARKER_SOF0);
    }
    if (data[0] != 8) {
        return unsupported(error, "the jpeg does not have 8 bits a sample", "bits", data[0]);
    }
    header->progressive = marker == MARKER_SOF2 || marker == MARKER_SOF10;
    header->height = stk_big16(data + 1);
    header->width = stk_big16(data + 3);
    header->components = data[5];
    if (header->components != 1 && header->components != 3 && header->components != 4) {
        return unsupported(error, "the jpeg is not grey, colour or CMYK", "components", data[5]);
    }
    if (header->width > 0 && header->height == 0) { /* T.81, B.2.5 */
        return unsupported(error, "the jpeg has its height behind the scan (DNL)", "height", 0);
    }
    if (header->width == 0) {
        return damaged(error, "the jpeg has no pixels", at);
    }
    if (header->width > STK_JPEG_SIDE_MAX || header->height > STK_JPEG_SIDE_MAX) {
        return unsupported(error, "the jpeg is longer than libjpeg reads", "side",
                           header->width > header->height ? header->width : header->height);
    }
    header->h_max = header->v_max = 1;
    for (uint32_t i = 0; i < header->components; i++) {
        uint8_t h = data[7 + 3 * i] >> 4, v = data[7 + 3 * i] & 15;

        if (h < 1 || h > 4 || v < 1 || v > 4) {
            return damaged(error, "the jpeg's sampling factors make no sense", at);
        }
        header->h[i] = h;
        header->v[i] = v;
        header->h_max = h > header->h_max ? h : header->h_max;
        header->v_max = v > header->v_max ? v : header->v_max;
    }
    return 0;
}

static void read_app1(struct stk_jpeg_header *header, struct stk_view segment)
{
    static const char xmp[] = "http://ns.adobe.com/xap/1.0/"; /* its zero byte included */

    if (segment.bytes >= 6 && memcmp(segment.data, "Exif\0\0", 6) == 0) {
        if (header->exif_orientation == 0) {
            header->exif_orientation = stk_exif_orientation(segment);
        }
    } else if (segment.bytes >= sizeof xmp && memcmp(segment.data, xmp, sizeof xmp) == 0) {
        header->xmp_orientation = stk_xmp_orientation(segment);
    }
}

/* One segment: returns 1 when the header is complete, 0 to continue, or an error. */
static int read_segment(struct stk_jpeg_header *header, uint8_t marker, struct stk_view segment,
                        uint64_t at, struct stoker_error *error)
{
    if (is_frame(marker)) {
        if (header->components) {
            return damaged(error, "the jpeg has two frame headers", at);
        }
        return read_frame(header, marker, segment, at, error);
    }
    if (marker == MARKER_SOS) {
        if (header->components == 0) {
            return damaged(error, "the jpeg has a scan before its frame header", at);
        }
        if (segment.bytes < 1) {
            return damaged(error, "the jpeg's scan header is too short", at);
        }
        header->multi_scan = header->progressive || segment.data[0] < header->components;
        return 1;
    }
    if (marker == MARKER_APP1) {
        read_app1(header, segment);
    }
    return 0;
}

int stk_jpeg_header_read(struct stk_view bytes, struct stk_jpeg_header *header_out,
                         struct stoker_error *error)
{
    struct stk_jpeg_header header = {0};
    uint64_t at = 2; /* after SOI, which made it a jpeg */
    int status = 0;

    while (status == 0) {
        struct stk_view segment;
        uint8_t marker;
        uint64_t length;

        while (at < bytes.bytes && bytes.data[at] != 0xff) {
            at++;
        }
        if (at + 1 >= bytes.bytes) {
            return ended(error, bytes.bytes);
        }
        marker = bytes.data[at + 1];
        if (is_bare(marker)) {
            at += marker == 0xff ? 1 : 2; /* a fill byte may be the start of a marker */
            continue;
        }
        if (marker == MARKER_EOI) {
            return damaged(error, "the jpeg has no image", at);
        }
        if (at + 4 > bytes.bytes) {
            return ended(error, bytes.bytes);
        }
        length = stk_big16(bytes.data + at + 2);
        if (length < 2) {
            return damaged(error, "the jpeg has a segment of impossible length", at);
        }
        if (at + 2 + length > bytes.bytes) {
            return ended(error, bytes.bytes);
        }
        segment = (struct stk_view){bytes.data + at + 4, length - 2};
        status = read_segment(&header, marker, segment, at, error);
        at += 2 + length;
    }
    if (status > 0) {
        *header_out = header;
    }
    return status < 0 ? status : 0;
}

/* libjpeg's tables, decoder objects, and the row pointers of small images (measured: 40 kB at
 * most), or our own decoder (206 kB). */
#define FIXED_BYTES (288u << 10)

/* Other memory that libjpeg allocates. */
static uint64_t library_bytes(const struct stk_jpeg_header *header)
{
    /* Sides are below 2^16 and factors at most 4, so that nothing here can wrap. */
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < header->components; i++) {
        uint64_t h = header->h[i], v = header->v[i];
        uint64_t wide = (header->width * h + 8u * header->h_max - 1) / (8u * header->h_max);
        uint64_t high = (header->height * v + 8u * header->v_max - 1) / (8u * header->v_max);

        wide = (wide + h - 1) / h * h;
        high = (high + v - 1) / v * v;
        /* jdmainct.c: the rows of an iMCU row and two groups of context, and pointers to them;
         * jdsample.c: one group of upsampled rows. */
        bytes += stk_round_up(wide * 8, 64) * v * 10 + v * 8 * 64;
        bytes += stk_round_up(header->width + 2u * header->h_max, 64) * header->v_max;
        /* jdcoefct.c: all coefficients, and a pointer to each row of blocks. */
        bytes += header->multi_scan ? wide * high * 128 + high * 8 : 0;
    }
    /* codec_jpeg.c, when libjpeg smooths: one row of pixels passed over. */
    return bytes + (header->progressive ? 4 * (uint64_t)header->width : 0);
}

uint64_t stk_jpeg_header_memory_bytes(const struct stk_jpeg_header *header)
{
    uint64_t own = stk_jpeg_workspace_max(header->width, header->h, header->v, header->components);

    return FIXED_BYTES + stk_max(library_bytes(header), own);
}
