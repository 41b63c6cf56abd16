/* Decodes, resizes and encodes row by row, so that memory never holds a full image. */
#include "decode/image/jpeg_shrink.h"

#include "base/mem.h"
#include "decode/codec/codec.h"
#include "decode/pixel/pixel_kernels.h"
#include "decode/pixel/resize.h"

#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#define ROWS_MAX 16 /* that the decoder returns per call */

struct failure {
    struct jpeg_error_mgr manager; /* first: libjpeg uses this part */
    jmp_buf jump;
};

struct sink {
    struct jpeg_destination_mgr manager; /* first, likewise */
    uint8_t *data;                       /* owned */
    size_t bytes, capacity;
};

struct stk_jpeg_shrink {
    struct stk_codec *codec;
    struct stk_resize *resize;
    struct jpeg_compress_struct jpeg;
    struct failure failure;
    struct sink sink;
    uint8_t *row; /* owned: one RGBX row of the target */
    size_t row_capacity;
    uint32_t short_side, quality;
    bool created; /* jpeg is to be destroyed */
};

static int shrink_picture(struct stk_jpeg_shrink *shrink, struct stk_view bytes,
                          const struct stk_codec_info *info, struct stoker_error *error);
static int encode_rows(struct stk_jpeg_shrink *shrink, const struct stk_resize_plan *plan,
                       struct stoker_error *error);
static void on_error(j_common_ptr jpeg);
static void on_message(j_common_ptr jpeg);
static void sink_begin(j_compress_ptr jpeg);
static boolean sink_full(j_compress_ptr jpeg);
static void sink_end(j_compress_ptr jpeg);

int stk_jpeg_shrink_open(struct stk_jpeg_shrink **shrink_out, uint32_t short_side, uint32_t quality,
                         struct stoker_error *error)
{
    struct stk_jpeg_shrink *shrink = stk_alloc(1, sizeof *shrink);
    int status;

    *shrink_out = NULL;
    if (!shrink) {
        return stk_fail(error, -ENOMEM, "no memory to resize images", "free memory", "resize");
    }
    shrink->short_side = short_side;
    shrink->quality = quality;
    status = stk_codec_open(&shrink->codec, error);
    if (status == 0) {
        status = stk_resize_open(&shrink->resize, stk_pixel_kernels_get(STOKER_SIMD_AUTO), error);
    }
    if (status == 0) {
        shrink->jpeg.err = jpeg_std_error(&shrink->failure.manager);
        shrink->failure.manager.error_exit = on_error;
        shrink->failure.manager.output_message = on_message;
        if (setjmp(shrink->failure.jump) == 0) {
            jpeg_create_compress(&shrink->jpeg);
            shrink->created = true;
            shrink->sink.manager.init_destination = sink_begin;
            shrink->sink.manager.empty_output_buffer = sink_full;
            shrink->sink.manager.term_destination = sink_end;
            shrink->jpeg.dest = &shrink->sink.manager;
        } else {
            status =
                stk_fail(error, -ENOMEM, "no memory to resize images", "free memory", "encoder");
        }
    }
    if (status < 0) {
        stk_jpeg_shrink_close(shrink);
        return status;
    }
    *shrink_out = shrink;
    return 0;
}

void stk_jpeg_shrink_close(struct stk_jpeg_shrink *shrink)
{
    if (!shrink) {
        return;
    }
    if (shrink->created) {
        jpeg_destroy_compress(&shrink->jpeg);
    }
    stk_codec_close(shrink->codec);
    stk_resize_close(shrink->resize);
    stk_free(shrink->sink.data);
    stk_free(shrink->row);
    stk_free(shrink);
}

int stk_jpeg_shrink_run(struct stk_jpeg_shrink *shrink, struct stk_view bytes, struct stk_view *out,
                        struct stoker_error *error)
{
    struct stk_codec_info info;
    int status = stk_codec_probe(bytes, STK_JPEG_SHRINK_PIXELS_MAX, &info, error);

    if (status < 0) {
        return status;
    }
    if (info.kind != STK_CODEC_JPEG || stk_min(info.width, info.height) <= shrink->short_side) {
        return 0;
    }
    status = shrink_picture(shrink, bytes, &info, error);
    if (status < 0) {
        return status;
    }
    *out = (struct stk_view){shrink->sink.data, shrink->sink.bytes};
    return 1;
}

/* torchvision: the short side becomes N, the long one int(N * long / short). */
static struct stk_resize_plan plan_for(const struct stk_codec_info *info, uint32_t short_side)
{
    bool wide = info->width > info->height;
    uint64_t near = wide ? info->height : info->width, far = wide ? info->width : info->height;
    uint32_t long_side = (uint32_t)(far * short_side / near);
    struct stk_resize_plan plan = {.source_width = info->width,
                                   .source_height = info->height,
                                   .target_width = wide ? long_side : short_side,
                                   .target_height = wide ? short_side : long_side,
                                   .filter = STOKER_BILINEAR};

    plan.window_width = plan.target_width;
    plan.window_height = plan.target_height;
    return plan;
}

static int shrink_picture(struct stk_jpeg_shrink *shrink, struct stk_view bytes,
                          const struct stk_codec_info *info, struct stoker_error *error)
{
    struct stk_resize_plan plan = plan_for(info, shrink->short_side);
    struct stk_codec_box box = {.width = info->width, .height = info->height};
    size_t row_bytes = (size_t)plan.target_width * 4;
    uint32_t row_pixels, skip;
    int status;

    if (row_bytes > shrink->row_capacity) {
        uint8_t *grown = stk_realloc(shrink->row, shrink->row_capacity, row_bytes, 1);

        if (!grown) {
            return stk_fail(error, -ENOMEM, "no memory to resize images", "free memory", "row");
        }
        shrink->row = grown;
        shrink->row_capacity = row_bytes;
    }
    status = stk_codec_begin(shrink->codec, bytes, info, &box, STK_JPEG_SHRINK_BYTES_MAX,
                             &row_pixels, &skip, error);
    if (status < 0) {
        return status;
    }
    status =
        stk_resize_begin(shrink->resize, &plan, row_pixels, skip, STK_JPEG_SHRINK_BYTES_MAX, error);
    if (status == 0) {
        if (setjmp(shrink->failure.jump) == 0) {
            shrink->jpeg.image_width = plan.target_width;
            shrink->jpeg.image_height = plan.target_height;
            shrink->jpeg.input_components = 4;
            shrink->jpeg.in_color_space = JCS_EXT_RGBX;
            jpeg_set_defaults(&shrink->jpeg);
            jpeg_set_quality(&shrink->jpeg, (int)shrink->quality, TRUE);
            jpeg_start_compress(&shrink->jpeg, TRUE);
            if (info->orientation > 1) {
                /* TIFF in Intel's order, one directory with one entry: Orientation (0x0112), one
                 * SHORT (EXIF 2.3, 4.6.2). */
                const uint8_t tag[] = {'E', 'x',  'i', 'f', 0,
                                       0,   'I',  'I', 42,  0,
                                       8,   0,    0,   0,   1,
                                       0,   0x12, 1,   3,   0,
                                       1,   0,    0,   0,   info->orientation,
                                       0,   0,    0,   0,   0,
                                       0,   0};
                jpeg_write_marker(&shrink->jpeg, JPEG_APP0 + 1, tag, sizeof tag);
            }
            status = encode_rows(shrink, &plan, error);
            if (status == 0) {
                jpeg_finish_compress(&shrink->jpeg);
            } else {
                jpeg_abort_compress(&shrink->jpeg);
            }
        } else {
            jpeg_abort_compress(&shrink->jpeg);
            status = stk_fail(error, -ENOMEM, "cannot encode an image", "free memory", "encoder");
        }
    }
    stk_codec_end(shrink->codec);
    return status;
}

/* Computes the target row by row and reads the source rows that each one needs. */
static int encode_rows(struct stk_jpeg_shrink *shrink, const struct stk_resize_plan *plan,
                       struct stoker_error *error)
{
    for (uint32_t row = 0; row < plan->target_height; row++) {
        uint8_t *rows[ROWS_MAX];
        uint32_t want;

        while ((want = stk_resize_wanted(shrink->resize, row, rows, ROWS_MAX)) > 0) {
            int status = stk_codec_rows(shrink->codec, rows, want, error);

            if (status < 0) {
                return status;
            }
            stk_resize_push(shrink->resize, (uint32_t)status);
        }
        stk_resize_row(shrink->resize, row, shrink->row);
        jpeg_write_scanlines(&shrink->jpeg, &shrink->row, 1);
    }
    return 0;
}

static void on_error(j_common_ptr jpeg)
{
    struct failure *failure = (struct failure *)(void *)jpeg->err;

    longjmp(failure->jump, 1);
}

static void on_message(j_common_ptr jpeg)
{
    (void)jpeg;
}

static struct sink *sink_of(j_compress_ptr jpeg)
{
    return (struct sink *)(void *)jpeg->dest;
}

static void sink_begin(j_compress_ptr jpeg)
{
    struct sink *sink = sink_of(jpeg);

    sink->bytes = 0;
    if (!sink->data) {
        sink->data = stk_alloc(64u << 10, 1);
        if (!sink->data) {
            on_error((j_common_ptr)jpeg);
        }
        sink->capacity = 64u << 10;
    }
    sink->manager.next_output_byte = sink->data;
    sink->manager.free_in_buffer = sink->capacity;
}

static boolean sink_full(j_compress_ptr jpeg)
{
    struct sink *sink = sink_of(jpeg);
    uint8_t *grown = stk_realloc(sink->data, sink->capacity, 2 * sink->capacity, 1);

    if (!grown) {
        on_error((j_common_ptr)jpeg);
    }
    sink->data = grown;
    sink->manager.next_output_byte = grown + sink->capacity;
    sink->manager.free_in_buffer = sink->capacity;
    sink->capacity *= 2;
    return TRUE;
}

static void sink_end(j_compress_ptr jpeg)
{
    struct sink *sink = sink_of(jpeg);

    sink->bytes = sink->capacity - sink->manager.free_in_buffer;
}
