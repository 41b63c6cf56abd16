/* decode/image/jpeg_shrink.h: JPEGs with a short side above N, made smaller on the way into a
 * shard.
 *
 *   bytes -probe-> fits: kept | larger: decode -> resize -> encode
 *
 * Only JPEGs, known by their content: a PNG may be a mask, which must keep its values. The size is
 * that of torchvision's Resize(N) (antialiased, bilinear). The EXIF orientation goes along as a
 * tag, so that readers that turn by it and those that do not see what they saw before; other
 * metadata (other EXIF, colour profile, comments) stays behind. Grey and CMYK become RGB; 4:2:0.
 * The same picture gives the same bytes whatever the processor (libjpeg-turbo of one version).
 * Owner: one worker's round. Threads: one. Memory: decoder, rows and the result, grown to the
 * largest picture. Bound: STK_JPEG_SHRINK_BYTES_MAX of a decoder, STK_JPEG_SHRINK_PIXELS_MAX
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
/* 1: *out is the smaller picture, lent until the next call. 0: keep it as it is: it fits, or is no
 * JPEG. Negative: it does not decode, and *error says why: what is damaged is not made
 * to look whole; or memory. */
int stk_jpeg_shrink_run(struct stk_jpeg_shrink *shrink, struct stk_view bytes, struct stk_view *out,
                        struct stoker_error *error);

#endif
