/* Decodes JPEGs with decode/jpeg, and with libjpeg-turbo if decode/jpeg cannot. Only the box, with
 * a margin, is inverse transformed and converted; its samples equal those of a full decode. Rows
 * that decode/jpeg returned before it found damage equal libjpeg's rows, so libjpeg continues below
 * them. */
#include "decode/codec/codec_backend.h"
#include "decode/codec/jpeg_header.h"
#include "decode/codec/jpeg_memory.h"

#include "base/mem.h"
#include "decode/jpeg/jpeg.h"

#include <errno.h>
#include <jerror.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

/* Each scan of a progressive image visits all of its blocks, whatever few bytes it has. */
#define SCANS_MAX 500
#define SCAN_PIXELS_MAX (UINT64_C(1) << 32) /* scans times pixels: 24 scans of 178 megapixels */

/* "Fancy" upsampling looks at the neighbours of a chroma sample, which cover two pixels; the
 * first and last sample of a cropped row have none. With the margin a cropped row is also never
 * so narrow (one chroma sample) that libjpeg would choose another upsampling. */
#define MARGIN_PIXELS 2

/* Extra width of a libjpeg row, because libjpeg crops to iMCUs of at most 4 blocks. Row buffers
 * include it so that libjpeg can continue where decode/jpeg stopped. */
#define CROP_PIXELS_MAX (2 * MARGIN_PIXELS + 4 * 8)

struct stk_codec_jpeg {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    struct stk_jpeg_memory memory;
    jmp_buf jump;
    bool created;
    bool data_ended;            /* the source had no more bytes */
    int status;                 /* the cause of the longjmp */
    struct stoker_error *error; /* borrowed during a call */

    struct stk_codec_request request; /* its info: borrowed by begin */
    struct stk_codec_row_shape shape;
    uint8_t *const *rows; /* borrowed by rows */
    uint32_t row_count;
    char warning[JMSG_LENGTH_MAX]; /* the first about damage, or the first; "": none */
    bool damaged;                  /* the warning is about damage */
    bool marked;                   /* decode/jpeg got entry points */

    struct stk_jpeg_decoder *own; /* owned; NULL until the first image */
    struct stk_jpeg_frame frame;
    struct stk_codec_info info; /* of the image that decode/jpeg decodes */
    bool by_own;                /* decode/jpeg returns its rows */
    bool moved;                 /* libjpeg took over after some rows were returned */
    uint32_t left;              /* enum stk_jpeg_reason of the current image */
};

static void error_exit(j_common_ptr cinfo);
static void emit_message(j_common_ptr cinfo, int level);
static void output_message(j_common_ptr cinfo);
static void watch_scans(j_common_ptr cinfo);
static void source_nothing(j_decompress_ptr cinfo);
static boolean source_fill(j_decompress_ptr cinfo);
static void source_skip(j_decompress_ptr cinfo, long bytes);
static int step_create(struct stk_codec_jpeg *jpeg);
static int step_begin(struct stk_codec_jpeg *jpeg);
static int step_rows(struct stk_codec_jpeg *jpeg);
static int step_finish(struct stk_codec_jpeg *jpeg);

/* The one setjmp: libjpeg's errors come back here from any depth. No local changes after it. */
static int guarded(struct stk_codec_jpeg *jpeg, int (*step)(struct stk_codec_jpeg *),
                   struct stoker_error *error)
{
    jpeg->error = error;
    if (setjmp(jpeg->jump)) {
        return jpeg->status;
    }
    return step(jpeg);
}

int stk_codec_jpeg_probe(struct stk_view bytes, struct stk_codec_info *info_out,
                         struct stoker_error *error)
{
    struct stk_jpeg_header header;
    int status = stk_jpeg_header_read(bytes, &header, error);

    if (status < 0) {
        return status;
    }
    info_out->kind = STK_CODEC_JPEG;
    info_out->width = header.width;
    info_out->height = header.height;
    info_out->orientation = header.exif_orientation  ? header.exif_orientation
                            : header.xmp_orientation ? header.xmp_orientation
                                                     : 1;
    info_out->memory_bytes = stk_jpeg_header_memory_bytes(&header);
    return 0;
}

int stk_codec_jpeg_open(struct stk_codec_jpeg **jpeg_out, struct stk_codec_arena *arena,
                        struct stoker_error *error)
{
    struct stk_codec_jpeg *jpeg = stk_alloc(1, sizeof *jpeg);
    int status;

    if (!jpeg) {
        return stk_fail_errno(error, ENOMEM, "cannot make a jpeg decoder",
                              "give the process more memory", "%zu bytes", sizeof *jpeg);
    }
    jpeg->memory.arena = arena;
    status = guarded(jpeg, step_create, error);
    if (status < 0) {
        stk_codec_jpeg_close(jpeg);
        return status;
    }
    *jpeg_out = jpeg;
    return 0;
}

void stk_codec_jpeg_close(struct stk_codec_jpeg *jpeg)
{
    if (!jpeg) {
        return;
    }
    if (jpeg->created) {
        stk_jpeg_memory_deinit(&jpeg->memory, &jpeg->cinfo);
    }
    jpeg_destroy_decompress(&jpeg->cinfo); /* a zeroed one is fine: it has no memory manager */
    stk_jpeg_decoder_close(jpeg->own);
    stk_free(jpeg);
}

/* ---- our own decoder ---------------------------------------------------------------------- */

/* The scratch for an image: the header's estimate, less the size of our decoder. */
static int begin_scratch(struct stk_codec_jpeg *jpeg, struct stoker_error *error)
{
    uint64_t bytes_max = jpeg->request.memory_bytes_max, expected = jpeg->info.memory_bytes;
    uint64_t held = stk_codec_jpeg_bytes(jpeg);

    return stk_codec_arena_begin(jpeg->memory.arena, bytes_max - stk_min(held, bytes_max),
                                 expected - stk_min(held, expected), error);
}

/* Starts decode/jpeg, or records why it does not decode the image. Fails only if memory is
 * exhausted. */
static int begin_native(struct stk_codec_jpeg *jpeg, uint32_t *reason_out,
                        struct stoker_error *error)
{
    const struct stk_codec_request *request = &jpeg->request;
    struct stk_jpeg_box box = {request->box.x, request->box.y, request->box.width,
                               request->box.height};
    void *space;
    int status;

    if (!jpeg->own) {
        status = stk_jpeg_decoder_open(&jpeg->own, STOKER_SIMD_AUTO, error);
        if (status < 0) {
            return status;
        }
    }
    status = begin_scratch(jpeg, error);
    if (status < 0) {
        return status;
    }
    *reason_out = stk_jpeg_frame_read(request->bytes, &jpeg->frame);
    if (*reason_out) {
        return 0;
    }
    if (jpeg->frame.width != request->info->width || jpeg->frame.height != request->info->height) {
        *reason_out = STK_JPEG_HEADER;
        return 0;
    }
    space = stk_codec_arena_alloc(jpeg->memory.arena, stk_jpeg_workspace_bytes(&jpeg->frame, &box));
    *reason_out =
        space ? stk_jpeg_decoder_begin(jpeg->own, &jpeg->frame, &box, space, request->entry_points)
              : STK_JPEG_MEMORY;
    return 0;
}

/* Starts libjpeg, with a scratch of its own. */
static int begin_library(struct stk_codec_jpeg *jpeg, struct stoker_error *error)
{
    int status;

    stk_codec_arena_reset(jpeg->memory.arena);
    status = begin_scratch(jpeg, error);
    return status < 0 ? status : guarded(jpeg, step_begin, error);
}

int stk_codec_jpeg_begin(struct stk_codec_jpeg *jpeg, const struct stk_codec_request *request,
                         struct stk_codec_row_shape *shape_out, struct stoker_error *error)
{
    uint32_t reason = STK_JPEG_DECODED;
    int status;

    jpeg->info = *request->info;
    jpeg->request = *request;
    jpeg->request.info = &jpeg->info;
    jpeg->data_ended = jpeg->moved = false;
    jpeg->warning[0] = '\0';
    jpeg->damaged = false;
    jpeg->marked = request->entry_points != NULL;
    status = begin_native(jpeg, &reason, error);
    jpeg->by_own = status == 0 && !reason;
    jpeg->left = reason;
    if (status == 0 && reason) {
        status = begin_library(jpeg, error);
    } else {
        uint64_t widest = (uint64_t)request->box.width + CROP_PIXELS_MAX;

        jpeg->shape =
            (struct stk_codec_row_shape){(uint32_t)stk_min(widest, request->info->width), 0};
    }
    *shape_out = jpeg->shape;
    return status;
}

/* libjpeg decodes the rest of the box. Its errors and warnings are those of a decode by libjpeg
 * alone. */
static int switch_to_libjpeg(struct stk_codec_jpeg *jpeg, uint32_t reason,
                             struct stoker_error *error)
{
    uint32_t row_pixels = jpeg->shape.row_pixels;
    int status;

    jpeg->left = reason;
    jpeg->by_own = false;
    jpeg->moved = true;
    status = begin_library(jpeg, error);
    STK_ASSERT(status < 0 || jpeg->shape.row_pixels <= row_pixels);
    return status;
}

static int rows_library(struct stk_codec_jpeg *jpeg, uint8_t *const *rows, uint32_t count,
                        struct stoker_error *error)
{
    int status;

    jpeg->rows = rows;
    jpeg->row_count = count;
    status = guarded(jpeg, step_rows, error);
    for (int i = 0; jpeg->moved && i < status; i++) {
        memmove(rows[i], rows[i] + 4 * (size_t)jpeg->shape.skip_pixels,
                4 * (size_t)jpeg->request.box.width);
    }
    return status;
}

int stk_codec_jpeg_rows(struct stk_codec_jpeg *jpeg, uint8_t *const *rows, uint32_t count,
                        struct stoker_error *error)
{
    uint32_t done = 0, reason;
    int status = 0;

    if (jpeg->by_own) {
        reason = stk_jpeg_decoder_rows(jpeg->own, rows, count, &done);
        jpeg->request.box.y += done;
        jpeg->request.box.height -= done;
        if (!reason) {
            return (int)count;
        }
        status = switch_to_libjpeg(jpeg, reason, error);
    }
    status = status < 0 ? status : rows_library(jpeg, rows + done, count - done, error);
    return status < 0 ? status : (int)done + status;
}

uint32_t stk_codec_jpeg_planes(const struct stk_codec_jpeg *jpeg,
                               struct stk_jpeg_plane planes_out[3])
{
    return jpeg->by_own ? stk_jpeg_decoder_planes(jpeg->own, planes_out) : 0;
}

bool stk_codec_jpeg_band(struct stk_codec_jpeg *jpeg, struct stk_jpeg_band *band_out,
                         bool *more_out)
{
    return stk_jpeg_decoder_band(jpeg->own, band_out, more_out) == STK_JPEG_DECODED;
}

void stk_codec_jpeg_to_rgbx(const struct stk_codec_jpeg *jpeg, const uint8_t *const samples[3],
                            uint32_t count, uint8_t *out)
{
    stk_jpeg_decoder_to_rgbx(jpeg->own, samples[0], samples[1], samples[2], count, out);
}

/* The last MCU is decoded. If the end marker does not follow at once, libjpeg reads the image again
 * and reports the end. */
int stk_codec_jpeg_finish(struct stk_codec_jpeg *jpeg, struct stoker_error *error)
{
    struct stk_codec_box *box = &jpeg->request.box;
    uint8_t *row;
    int status;

    if (!jpeg->by_own) {
        return guarded(jpeg, step_finish, error);
    }
    if (jpeg->marked || stk_jpeg_decoder_ended(jpeg->own)) {
        return 0;
    }
    *box = (struct stk_codec_box){0, jpeg->info.height - 1, 1, 1};
    status = switch_to_libjpeg(jpeg, STK_JPEG_DATA, error);
    if (status < 0) {
        return status;
    }
    row = stk_codec_arena_alloc(jpeg->memory.arena, 4 * (uint64_t)jpeg->shape.row_pixels);
    if (!row) {
        return stk_codec_arena_fail(jpeg->memory.arena, error);
    }
    status = rows_library(jpeg, &row, 1, error);
    return status < 0 ? status : guarded(jpeg, step_finish, error);
}

bool stk_codec_jpeg_is_damaged(const struct stk_codec_jpeg *jpeg)
{
    return jpeg->damaged;
}

const char *stk_codec_jpeg_warning(const struct stk_codec_jpeg *jpeg)
{
    return jpeg->warning;
}

uint32_t stk_codec_jpeg_fallback(const struct stk_codec_jpeg *jpeg)
{
    return jpeg->left;
}

uint64_t stk_codec_jpeg_bytes(const struct stk_codec_jpeg *jpeg)
{
    return jpeg->own ? stk_jpeg_decoder_bytes() : 0;
}

void stk_codec_jpeg_trim(struct stk_codec_jpeg *jpeg, uint64_t keep_bytes)
{
    if (stk_codec_jpeg_bytes(jpeg) > keep_bytes) {
        stk_jpeg_decoder_close(jpeg->own);
        jpeg->own = NULL;
    }
}

void stk_codec_jpeg_end(struct stk_codec_jpeg *jpeg)
{
    jpeg_abort_decompress(&jpeg->cinfo); /* calls nothing that fails: see jpeg_memory.c */
    stk_jpeg_memory_reset(&jpeg->memory, &jpeg->cinfo);
}

/* ---- the steps, which may jump ---------------------------------------------------------- */

static int step_create(struct stk_codec_jpeg *jpeg)
{
    struct stk_codec_arena *arena = jpeg->memory.arena;

    jpeg->cinfo.err = jpeg_std_error(&jpeg->errors);
    jpeg->errors.error_exit = error_exit;
    jpeg->errors.emit_message = emit_message;
    jpeg->errors.output_message = output_message;
    jpeg->cinfo.client_data = jpeg;
    jpeg_create_decompress(&jpeg->cinfo);
    stk_jpeg_memory_init(&jpeg->memory, &jpeg->cinfo, arena);
    jpeg->created = true;
    jpeg->source = (struct jpeg_source_mgr){.init_source = source_nothing,
                                            .fill_input_buffer = source_fill,
                                            .skip_input_data = source_skip,
                                            .resync_to_restart = jpeg_resync_to_restart,
                                            .term_source = source_nothing};
    jpeg->cinfo.src = &jpeg->source;
    jpeg->progress.progress_monitor = watch_scans;
    jpeg->cinfo.progress = &jpeg->progress;
    return 0;
}

/* Leaves libjpeg by longjmp with one of our statuses. */
_Noreturn static void fail_and_jump(struct stk_codec_jpeg *jpeg, int status, const char *what,
                                    const char *advice)
{
    jpeg->status = stk_fail(jpeg->error, status, what, advice, "jpeg %ux%u",
                            jpeg->cinfo.image_width, jpeg->cinfo.image_height);
    longjmp(jpeg->jump, 1);
}

_Noreturn static void fail_truncated(struct stk_codec_jpeg *jpeg)
{
    fail_and_jump(jpeg, STOKER_ERROR_TRUNCATED, "the jpeg's data ends too early",
                  STK_CODEC_ADVICE_DAMAGED);
}

/* libjpeg blurs block edges of a progressive image whose low coefficients were not sent in
 * full, by looking at blocks two away: such an image is decoded whole (jdcoefct.c,
 * smoothing_ok: the first 10 coefficients). */
static bool is_smoothed(const struct jpeg_decompress_struct *cinfo)
{
    if (!cinfo->progressive_mode || !cinfo->coef_bits) {
        return false;
    }
    for (int component = 0; component < cinfo->num_components; component++) {
        for (int i = 0; i < 10; i++) {
            if (cinfo->coef_bits[component][i] != 0) {
                return true;
            }
        }
    }
    return false;
}

/* Moves to the box: columns are cropped to iMCUs, rows above it are only entropy decoded. */
static void move_to_box(struct stk_codec_jpeg *jpeg, const struct stk_codec_box *box)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    uint32_t margin = cinfo->max_h_samp_factor > 1 ? MARGIN_PIXELS : 0;
    JDIMENSION left = box->x > margin ? box->x - margin : 0;
    uint64_t right = box->x + (uint64_t)box->width + margin;
    JDIMENSION width;

    if (is_smoothed(cinfo)) {
        JSAMPROW row = cinfo->mem->alloc_large((j_common_ptr)cinfo, JPOOL_IMAGE,
                                               (size_t)cinfo->output_width * 4);

        jpeg->shape = (struct stk_codec_row_shape){cinfo->output_width, box->x};
        while (cinfo->output_scanline < box->y) {
            jpeg_read_scanlines(cinfo, &row, 1);
        }
        return;
    }
    width = (JDIMENSION)(stk_min(right, cinfo->output_width) - left);
    jpeg_crop_scanline(cinfo, &left, &width);
    jpeg->shape = (struct stk_codec_row_shape){cinfo->output_width, box->x - left};
    if (box->y > 0) {
        jpeg_skip_scanlines(cinfo, box->y);
    }
}

static int step_begin(struct stk_codec_jpeg *jpeg)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    const struct stk_codec_info *info = &jpeg->info;

    jpeg->source.next_input_byte = jpeg->request.bytes.data;
    jpeg->source.bytes_in_buffer = jpeg->request.bytes.bytes;
    jpeg_read_header(cinfo, TRUE);
    if (cinfo->image_width != info->width || cinfo->image_height != info->height) {
        fail_and_jump(jpeg, STOKER_ERROR_CORRUPT, "the jpeg has two frame headers",
                      STK_CODEC_ADVICE_DAMAGED);
    }
    cinfo->out_color_space = cinfo->num_components == 4 ? JCS_CMYK : JCS_EXT_RGBX;
    jpeg_start_decompress(cinfo);
    if (jpeg->data_ended) { /* all scans were read, and the end marker was not among them */
        fail_truncated(jpeg);
    }
    move_to_box(jpeg, &jpeg->request.box);
    return 0;
}

/* CMYK to RGB as PIL: all such files are taken as Adobe's, which store 255 - ink, and then
 * Pillow's cmyk2rgb (libImaging/Convert.c): (255 - K) - C * (255 - K) / 255, rounded. */
static void convert_cmyk(uint8_t *pixel, uint32_t count)
{
    for (uint8_t *end = pixel + 4 * (size_t)count; pixel < end; pixel += 4) {
        uint32_t white = pixel[3];

        for (int i = 0; i < 3; i++) {
            uint32_t product = (255u - pixel[i]) * white + 128;
            uint32_t ink = (product + (product >> 8)) >> 8;

            pixel[i] = (uint8_t)(white - ink); /* ink <= white: 255 * white / 255 at most */
        }
    }
}

static int step_rows(struct stk_codec_jpeg *jpeg)
{
    struct jpeg_decompress_struct *cinfo = &jpeg->cinfo;
    uint32_t done = 0;

    while (done < jpeg->row_count) {
        /* libjpeg only reads the table of rows, but its type does not say so. */
        union {
            uint8_t *const *given;
            JSAMPARRAY wanted;
        } rows = {.given = jpeg->rows + done};
        JDIMENSION got = jpeg_read_scanlines(cinfo, rows.wanted, jpeg->row_count - done);

        /* An arithmetic decoder continues with zeros and no warning when its data ends. */
        if (got == 0 || (cinfo->arith_code && jpeg->data_ended)) {
            fail_truncated(jpeg);
        }
        for (uint32_t i = 0; cinfo->num_components == 4 && i < got; i++) {
            convert_cmyk(jpeg->rows[done + i] + 4 * (size_t)jpeg->shape.skip_pixels,
                         jpeg->request.box.width);
        }
        done += got;
    }
    return (int)done;
}

/* Reads up to the end marker. */
static int step_finish(struct stk_codec_jpeg *jpeg)
{
    bool ended = jpeg->data_ended;

    jpeg_finish_decompress(&jpeg->cinfo);
    if ((ended || jpeg->data_ended) && !jpeg->damaged) {
        jpeg->damaged = true;
        snprintf(jpeg->warning, sizeof jpeg->warning, "the end marker is missing");
    }
    return 0;
}

/* ---- callbacks of libjpeg ---------------------------------------------------------------- */

static int status_of(int code)
{
    switch (code) {
    case JERR_BAD_PRECISION:
    case JERR_SOF_UNSUPPORTED:
    case JERR_ARITH_NOTIMPL:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_COMPONENT_COUNT:
    case JERR_IMAGE_TOO_BIG:
    case JERR_NOTIMPL:
    case JERR_NOT_COMPILED:
        return STOKER_ERROR_UNSUPPORTED;
    default:
        return STOKER_ERROR_CORRUPT;
    }
}

static void error_exit(j_common_ptr cinfo)
{
    struct stk_codec_jpeg *jpeg = cinfo->client_data;
    char text[JMSG_LENGTH_MAX];

    if (cinfo->err->msg_code == JERR_OUT_OF_MEMORY && jpeg->memory.arena->status) {
        jpeg->status = stk_codec_arena_fail(jpeg->memory.arena, jpeg->error);
        longjmp(jpeg->jump, 1);
    }
    if (jpeg->data_ended) {
        fail_truncated(jpeg);
    }
    cinfo->err->format_message(cinfo, text);
    jpeg->status = status_of(cinfo->err->msg_code);
    stk_fail(jpeg->error, jpeg->status,
             jpeg->status == STOKER_ERROR_UNSUPPORTED ? "the jpeg uses a feature that is not read"
                                                      : "the jpeg is damaged",
             jpeg->status == STOKER_ERROR_UNSUPPORTED ? STK_CODEC_ADVICE_CONVERT
                                                      : STK_CODEC_ADVICE_DAMAGED,
             "libjpeg: %s", text);
    longjmp(jpeg->jump, 1);
}

/* Warnings about damaged data. The others are about markers that have an unknown version, or about
 * what a program cannot do. */
static bool is_damage(int code)
{
    return code == JWRN_EXTRANEOUS_DATA || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
           code == JWRN_MUST_RESYNC || code == JWRN_ARITH_BAD_CODE || code == JWRN_JPEG_EOF ||
           code == JWRN_BOGUS_PROGRESSION;
}

/* Warnings are recorded: the caller decides about them. The exception is the warning that more bits
 * were needed after the end of the data or its end marker: the rest of the image would be grey.
 * (The same warning at another marker is damage from which the decoder recovers, and is tolerated.)
 */
static void emit_message(j_common_ptr cinfo, int level)
{
    struct stk_codec_jpeg *jpeg = cinfo->client_data;

    if (level < 0 && (!jpeg->warning[0] || (!jpeg->damaged && is_damage(cinfo->err->msg_code)))) {
        cinfo->err->format_message(cinfo, jpeg->warning);
        jpeg->damaged = is_damage(cinfo->err->msg_code);
    }
    if (level < 0 && cinfo->err->msg_code == JWRN_HIT_MARKER &&
        (jpeg->data_ended || jpeg->cinfo.unread_marker == JPEG_EOI)) {
        fail_truncated(jpeg);
    }
}

static void output_message(j_common_ptr cinfo)
{
    (void)cinfo; /* the library prints nothing */
}

static void watch_scans(j_common_ptr common)
{
    struct jpeg_decompress_struct *cinfo = (j_decompress_ptr)common;
    uint64_t scans = (uint64_t)cinfo->input_scan_number;
    uint64_t pixels = (uint64_t)cinfo->image_width * cinfo->image_height;

    if (scans > SCANS_MAX || scans * pixels > SCAN_PIXELS_MAX) {
        fail_and_jump(common->client_data, STOKER_ERROR_LIMIT, "the jpeg has too many scans",
                      "it may be made to waste time; save it again, or leave it out");
    }
}

static void source_nothing(j_decompress_ptr cinfo)
{
    (void)cinfo;
}

/* All data is in memory, so this is its end. The entropy decoder reads a few bytes ahead. The first
 * call therefore returns an end marker, and a later check finds whether a bit was missing. A second
 * call can only come from inside a marker segment. */
static boolean source_fill(j_decompress_ptr cinfo)
{
    static const JOCTET end_marker[2] = {0xff, JPEG_EOI};
    struct stk_codec_jpeg *jpeg = cinfo->client_data;

    if (jpeg->data_ended) {
        fail_truncated(jpeg);
    }
    jpeg->data_ended = true;
    jpeg->source.next_input_byte = end_marker;
    jpeg->source.bytes_in_buffer = sizeof end_marker;
    return TRUE;
}

static void source_skip(j_decompress_ptr cinfo, long bytes)
{
    struct stk_codec_jpeg *jpeg = cinfo->client_data;

    if (bytes <= 0) {
        return;
    }
    if ((uint64_t)bytes > jpeg->source.bytes_in_buffer) {
        jpeg->data_ended = true;
        fail_truncated(jpeg);
    }
    jpeg->source.next_input_byte += bytes;
    jpeg->source.bytes_in_buffer -= (size_t)bytes;
}
