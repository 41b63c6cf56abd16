/* decode/image/jpeg_shrink.h: resizes a JPEG whose short side exceeds N, for pack --short-side.
 *
 *   bytes -probe-> fits: unchanged | larger: decode -> resize -> encode
 *
 * Only JPEGs are resized; their content decides, not the file name. A PNG may be a mask, whose
 * values must not change. The size is that of torchvision's Resize(N) (antialiased, bilinear). The
 * EXIF orientation stays as a tag, so that readers with and without EXIF support see the same
 * image as before; other metadata (EXIF, colour profile, comments) is dropped. Grey and CMYK become
 * RGB; the subsampling is 4:2:0. The result is the same on every processor (libjpeg-turbo of one
 * version).
 * Owner: one worker's round. Threads: one. Memory: decoder, rows and the result, grown to the
 * largest image. Bound: STK_JPEG_SHRINK_BYTES_MAX of a decoder, STK_JPEG_SHRINK_PIXELS_MAX
 * pixels. */
#ifndef DECODE_IMAGE_JPEG_SHRINK_H
#define DECODE_IMAGE_JPEG_SHRINK_H

#include "base/base.h"

#define STK_JPEG_SHRINK_BYTES_MAX (UINT64_C(1) << 30)
#define STK_JPEG_SHRINK_PIXELS_MAX UINT64_C(178956970) /* as the loader's default */

struct stk_jpeg_shrink;

/* short_side > 0; quality 1..100. */
int stk_jpeg_shrink_open(struct stk_jpeg_shrink **shrink_out, uint32_t short_side, uint32_t quality,
                         struct stoker_error *error);
void stk_jpeg_shrink_close(struct stk_jpeg_shrink *shrink); /* NULL is fine */
/* Returns 1 if *out is the smaller image, valid until the next call; 0 if the image fits or is not
 * a JPEG, and the caller uses the original; negative if the image is damaged (*error has the
 * reason) or memory is exhausted. A damaged image is never re-encoded. */
int stk_jpeg_shrink_run(struct stk_jpeg_shrink *shrink, struct stk_view bytes, struct stk_view *out,
                        struct stoker_error *error);

#endif
