/* WebP by libwebp: the box (with a margin, so that its samples equal the full decode's) is decoded
 * at once into scratch, from where rows are copied. The first frame of an animation is read, on
 * black, as PIL does.
 *
 * The file is RIFF (https://developers.google.com/speed/webp/docs/riff_container). */
#include "decode/codec/codec_backend.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <webp/decode.h>

#define CHUNK_COUNT_MAX 65536u
#define FRAME_HEADER_BYTES 16u /* of ANMF, before the frame's own chunks */
#define MARGIN_PIXELS 2u       /* chroma is interpolated between neighbours */
#define FIXED_BYTES (256u << 10)
/* libwebp's lossy decoder keeps lines, not the image: samples, contexts and filter state. */
#define LOSSY_COLUMN_BYTES 128u
/* Of the lossless decoder: the prefix codes of one group of pixels (src/dec/vp8l_dec.c: tables of
 * at most 2,970 entries of 4 bytes, and 600 bytes). How many groups there are is not known before
 * the image is half decoded. libwebp's encoder writes at most 2,600 (histogram_enc.c,
 * MAX_HUFF_IMAGE_SIZE), none smaller than this in the file. A file made to hurt can have 65,536,
 * 0.8 GB, and libwebp takes no allocator that could stop it. */
#define LOSSLESS_GROUP_BYTES 12500u
#define LOSSLESS_GROUP_FILE_BYTES 512u
#define LOSSLESS_GROUPS_MAX 2600u

struct frame {
    struct stk_view bytes; /* memory that WebPDecode allocates */
    uint32_t x, y, width, height;
};

struct stk_codec_webp {
    struct stk_codec_arena *arena; /* borrowed */
    struct stk_codec_box box;
    struct stk_codec_box got; /* the region stored in pixels, in coordinates of the image */
    uint8_t *pixels;
    uint32_t y; /* the next row of the image */
};

static int fail_status(VP8StatusCode code, struct stoker_error *error)
{
    switch (code) {
    case VP8_STATUS_OK:
        return 0;
    case VP8_STATUS_OUT_OF_MEMORY:
        return stk_fail_errno(error, ENOMEM, "cannot decode a webp",
                              "give the process more memory, or use fewer threads", "libwebp");
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "the webp's data ends too early",
                        STK_CODEC_ADVICE_DAMAGED, "libwebp: not enough data");
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the webp uses a feature that is not read",
                        STK_CODEC_ADVICE_CONVERT, "libwebp: unsupported feature");
    case VP8_STATUS_INVALID_PARAM:
    case VP8_STATUS_BITSTREAM_ERROR:
    case VP8_STATUS_USER_ABORT:
    default:
        return stk_fail(error, STOKER_ERROR_CORRUPT, "the webp is damaged",
                        STK_CODEC_ADVICE_DAMAGED, "libwebp: status %d", (int)code);
    }
}

/* Finds the first chunk of a name after the RIFF header; false: there is none. */
static bool find_chunk(struct stk_view bytes, const char *name, struct stk_view *content_out)
{
    uint64_t at = 12;

    for (uint32_t i = 0; i < CHUNK_COUNT_MAX && at + 8 <= bytes.bytes; i++) {
        uint64_t length = stk_little32(bytes.data + at + 4);

        if (length > bytes.bytes - at - 8) {
            return false;
        }
        if (memcmp(bytes.data + at, name, 4) == 0) {
            *content_out = (struct stk_view){bytes.data + at + 8, length};
            return true;
        }
        at += 8 + length + (length & 1);
    }
    return false;
}

static uint32_t little24(const uint8_t *bytes)
{
    return stk_little16(bytes) | (uint32_t)bytes[2] << 16;
}

/* The image's one frame, or an animation's first. libwebp takes the chunks inside ANMF as they
 * are: ALPH and VP8, or VP8L. */
static int find_frame(struct stk_view bytes, const WebPBitstreamFeatures *features,
                      struct frame *frame_out, struct stoker_error *error)
{
    struct frame frame = {.bytes = bytes};
    struct stk_view content;

    frame.width = (uint32_t)features->width;
    frame.height = (uint32_t)features->height;
    if (features->has_animation) {
        if (!find_chunk(bytes, "ANMF", &content) || content.bytes < FRAME_HEADER_BYTES) {
            return stk_fail(error, STOKER_ERROR_CORRUPT, "the webp animation has no frame",
                            STK_CODEC_ADVICE_DAMAGED, "webp %ux%u", frame.width, frame.height);
        }
        frame.x = 2 * little24(content.data);
        frame.y = 2 * little24(content.data + 3);
        frame.width = little24(content.data + 6) + 1;
        frame.height = little24(content.data + 9) + 1;
        frame.bytes = (struct stk_view){content.data + FRAME_HEADER_BYTES,
                                        content.bytes - FRAME_HEADER_BYTES};
        if (frame.x + (uint64_t)frame.width > (uint32_t)features->width ||
            frame.y + (uint64_t)frame.height > (uint32_t)features->height) {
            return stk_fail(error, STOKER_ERROR_CORRUPT,
                            "the webp animation's first frame is outside of it",
                            STK_CODEC_ADVICE_DAMAGED, "%ux%u at %u,%u", frame.width, frame.height,
                            frame.x, frame.y);
        }
    }
    *frame_out = frame;
    return 0;
}

/* Upper bound: the pixels of the box and the memory that libwebp allocates. */
static uint64_t estimate(uint64_t width, uint64_t height, uint64_t file_bytes, bool lossless,
                         bool alpha)
{
    uint64_t pixels = width * height; /* sides are below 2^24 */
    uint64_t bytes = FIXED_BYTES + 4 * pixels + LOSSY_COLUMN_BYTES * width;

    if (lossless || alpha) {
        uint64_t cells = ((width + 3) / 4) * ((height + 3) / 4);
        uint64_t groups = stk_min(cells, file_bytes / LOSSLESS_GROUP_FILE_BYTES + 1);

        bytes += 4 * pixels + pixels + 64 * 4 * width; /* image, transforms, cached lines */
        bytes += LOSSLESS_GROUP_BYTES * stk_min(groups, LOSSLESS_GROUPS_MAX);
        bytes += alpha && !lossless ? pixels : 0; /* the plane beside the lossy image */
    }
    return bytes;
}

int stk_codec_webp_probe(struct stk_view bytes, struct stk_codec_info *info_out,
                         struct stoker_error *error)
{
    WebPBitstreamFeatures features;
    struct stk_view content;
    struct frame frame;
    uint8_t orientation = 0;
    int status;

    if (stk_little32(bytes.data + 4) > bytes.bytes - 8) { /* its magic took 12 */
        return stk_fail(error, STOKER_ERROR_TRUNCATED, "the webp's data ends too early",
                        STK_CODEC_ADVICE_DAMAGED, "%zu bytes of %llu", bytes.bytes,
                        stk_little32(bytes.data + 4) + 8ULL);
    }
    status = fail_status(WebPGetFeatures(bytes.data, bytes.bytes, &features), error);
    if (status == 0) {
        status = find_frame(bytes, &features, &frame, error);
    }
    if (status < 0) {
        return status;
    }
    if (find_chunk(bytes, "EXIF", &content)) {
        orientation = stk_exif_orientation(content);
    }
    if (orientation == 0 && find_chunk(bytes, "XMP ", &content)) {
        orientation = stk_xmp_orientation(content);
    }
    info_out->kind = STK_CODEC_WEBP;
    info_out->width = (uint32_t)features.width;
    info_out->height = (uint32_t)features.height;
    info_out->orientation = orientation ? orientation : 1;
    /* An animation does not state the format of its frames (format 0): the larger bound is used. */
    info_out->memory_bytes = estimate(info_out->width, info_out->height, bytes.bytes,
                                      features.format != 1, features.has_alpha);
    return 0;
}

int stk_codec_webp_open(struct stk_codec_webp **webp_out, struct stk_codec_arena *arena,
                        struct stoker_error *error)
{
    struct stk_codec_webp *webp = stk_alloc(1, sizeof *webp);

    if (!webp) {
        return stk_fail_errno(error, ENOMEM, "cannot make a webp decoder",
                              "give the process more memory", "%zu bytes", sizeof *webp);
    }
    webp->arena = arena;
    *webp_out = webp;
    return 0;
}

void stk_codec_webp_close(struct stk_codec_webp *webp)
{
    stk_free(webp);
}

/* Computes one side of the decoded region, in coordinates of the frame: the box and its margin,
 * clipped to the frame. Returns false if they do not intersect. libwebp crops at even
 * coordinates. */
static bool cut(uint32_t box_start, uint32_t box_length, uint32_t frame_start,
                uint32_t frame_length, uint32_t *start_out, uint32_t *length_out)
{
    int64_t start = (int64_t)box_start - frame_start - MARGIN_PIXELS;
    int64_t end = (int64_t)box_start + box_length - frame_start + MARGIN_PIXELS;

    start = start < 0 ? 0 : start & ~INT64_C(1);
    end = end > (int64_t)frame_length ? (int64_t)frame_length : end;
    if (start >= end) {
        return false;
    }
    *start_out = (uint32_t)start;
    *length_out = (uint32_t)(end - start);
    return true;
}

static int decode(struct stk_codec_webp *webp, const struct frame *frame,
                  const struct stk_codec_box *part, struct stoker_error *error)
{
    WebPDecoderConfig config;
    uint64_t bytes = (uint64_t)part->width * part->height * 4;
    int status;

    webp->pixels = stk_codec_arena_alloc(webp->arena, bytes);
    if (!webp->pixels) {
        return stk_codec_arena_fail(webp->arena, error);
    }
    if (!WebPInitDecoderConfig(&config)) {
        return fail_status(VP8_STATUS_INVALID_PARAM, error);
    }
    status =
        fail_status(WebPGetFeatures(frame->bytes.data, frame->bytes.bytes, &config.input), error);
    if (status < 0) {
        return status;
    }
    if ((uint32_t)config.input.width != frame->width ||
        (uint32_t)config.input.height != frame->height) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "the webp's headers do not agree",
                        STK_CODEC_ADVICE_DAMAGED, "%ux%u and %dx%d", frame->width, frame->height,
                        config.input.width, config.input.height);
    }
    config.options.use_cropping = part->width < frame->width || part->height < frame->height;
    config.options.crop_left = (int)part->x;
    config.options.crop_top = (int)part->y;
    config.options.crop_width = (int)part->width;
    config.options.crop_height = (int)part->height;
    config.output.colorspace = MODE_RGBA;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = (WebPRGBABuffer){webp->pixels, (int)(part->width * 4), bytes};
    return fail_status(WebPDecode(frame->bytes.data, frame->bytes.bytes, &config), error);
}

int stk_codec_webp_begin(struct stk_codec_webp *webp, const struct stk_codec_request *request,
                         struct stk_codec_row_shape *shape_out, struct stoker_error *error)
{
    const struct stk_codec_box *box = &request->box;
    WebPBitstreamFeatures features;
    struct frame frame;
    struct stk_codec_box part;
    int status =
        fail_status(WebPGetFeatures(request->bytes.data, request->bytes.bytes, &features), error);

    webp->box = *box;
    webp->y = box->y;
    webp->pixels = NULL;
    webp->got = (struct stk_codec_box){0};
    *shape_out = (struct stk_codec_row_shape){box->width, 0};
    if (status == 0) {
        status = find_frame(request->bytes, &features, &frame, error);
    }
    if (status < 0) {
        return status;
    }
    if (!cut(box->x, box->width, frame.x, frame.width, &part.x, &part.width) ||
        !cut(box->y, box->height, frame.y, frame.height, &part.y, &part.height)) {
        part = (struct stk_codec_box){0};
    }
    /* The estimate of the probe covers it: the part and its margin are inside the image. */
    status = stk_codec_arena_begin(webp->arena, request->memory_bytes_max,
                                   (uint64_t)part.width * part.height * 4 + STK_CODEC_ARENA_ALIGN,
                                   error);
    if (status < 0 || part.width == 0) {
        return status;
    }
    webp->got = (struct stk_codec_box){frame.x + part.x, frame.y + part.y, part.width, part.height};
    return decode(webp, &frame, &part, error);
}

static void copy_row(const struct stk_codec_webp *webp, uint8_t *to)
{
    const struct stk_codec_box *got = &webp->got;
    uint32_t left = (uint32_t)stk_max(got->x, webp->box.x);
    uint32_t right = (uint32_t)stk_min(got->x + got->width, webp->box.x + webp->box.width);

    if (webp->y < got->y || webp->y >= got->y + got->height || left >= right) {
        memset(to, 0, (size_t)webp->box.width * 4);
        return;
    }
    if (right - left < webp->box.width) {
        memset(to, 0, (size_t)webp->box.width * 4);
    }
    memcpy(to + (size_t)(left - webp->box.x) * 4,
           webp->pixels + ((size_t)(webp->y - got->y) * got->width + (left - got->x)) * 4,
           (size_t)(right - left) * 4);
}

int stk_codec_webp_rows(struct stk_codec_webp *webp, uint8_t *const *rows, uint32_t count,
                        struct stoker_error *error)
{
    (void)error; /* all was decoded by begin */
    for (uint32_t i = 0; i < count; i++) {
        copy_row(webp, rows[i]);
        webp->y++;
    }
    return (int)count;
}

/* Decodes one frame into libwebp's memory. */
static int check_frame(struct stk_view content, uint32_t i, uint64_t memory_bytes_max,
                       struct stoker_error *error)
{
    struct stk_view chunks = {content.data + FRAME_HEADER_BYTES,
                              content.bytes - FRAME_HEADER_BYTES};
    WebPDecoderConfig config;
    uint64_t bytes;
    int status;

    if (!WebPInitDecoderConfig(&config)) {
        return fail_status(VP8_STATUS_INVALID_PARAM, error);
    }
    status = fail_status(WebPGetFeatures(chunks.data, chunks.bytes, &config.input), error);
    if (status < 0) {
        return status;
    }
    bytes = estimate((uint32_t)config.input.width, (uint32_t)config.input.height, chunks.bytes,
                     config.input.format != 1, config.input.has_alpha);
    if (bytes > memory_bytes_max) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the image takes too much memory to decode",
                        "raise decode_bytes_max, or leave the image out",
                        "frame %u may take %llu bytes, allowed are %llu", i,
                        (unsigned long long)bytes, (unsigned long long)memory_bytes_max);
    }
    config.output.colorspace = MODE_RGBA;
    status = fail_status(WebPDecode(chunks.data, chunks.bytes, &config), error);
    WebPFreeDecBuffer(&config.output);
    return status;
}

int stk_codec_webp_check_frames(struct stk_view bytes, uint64_t memory_bytes_max,
                                struct stoker_error *error)
{
    uint64_t at = 12;
    uint32_t frames = 0;
    int status = 0;

    for (uint32_t i = 0; i < CHUNK_COUNT_MAX && at + 8 <= bytes.bytes && status == 0; i++) {
        uint64_t length = stk_little32(bytes.data + at + 4);

        if (length > bytes.bytes - at - 8) {
            break; /* the structure was checked: these bytes are behind the RIFF chunk */
        }
        if (memcmp(bytes.data + at, "ANMF", 4) == 0 && frames++ > 0) {
            struct stk_view content = {bytes.data + at + 8, length};

            status = length < FRAME_HEADER_BYTES
                         ? stk_fail(error, STOKER_ERROR_CORRUPT,
                                    "a frame of the webp animation has no image",
                                    STK_CODEC_ADVICE_DAMAGED, "frame %u", frames)
                         : check_frame(content, frames, memory_bytes_max, error);
        }
        at += 8 + length + (length & 1);
    }
    return status;
}

void stk_codec_webp_end(struct stk_codec_webp *webp)
{
    webp->pixels = NULL;
}
