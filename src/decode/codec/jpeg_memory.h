/* decode/codec/jpeg_memory.h: a memory manager for libjpeg that allocates from an arena.
 *
 *   init (after jpeg_create_decompress) -> images, the arena is reset after each -> deinit
 *
 * All memory of an image, quantisation and Huffman tables included, is released with the image, so
 * no data of one image reaches the next. Owner: a stk_codec_jpeg. Threads: one. Memory: the arena.
 * Bound: the arena's; exceeding it is JERR_OUT_OF_MEMORY. */
#ifndef DECODE_CODEC_JPEG_MEMORY_H
#define DECODE_CODEC_JPEG_MEMORY_H

#include "decode/codec/codec_arena.h"

#include <stdio.h>

#include <jpeglib.h>

struct stk_jpeg_memory {
    struct jpeg_memory_mgr manager; /* first member: libjpeg passes its address back */
    struct jpeg_memory_mgr *original;
    struct stk_codec_arena *arena; /* borrowed until deinit */
    jvirt_barray_ptr arrays;       /* requested for this image */
};

void stk_jpeg_memory_init(struct stk_jpeg_memory *memory, struct jpeg_decompress_struct *cinfo,
                          struct stk_codec_arena *arena);
/* Call between images: clears the arrays and tables that were in the arena. */
void stk_jpeg_memory_reset(struct stk_jpeg_memory *memory, struct jpeg_decompress_struct *cinfo);
/* Before jpeg_destroy_decompress. */
void stk_jpeg_memory_deinit(struct stk_jpeg_memory *memory, struct jpeg_decompress_struct *cinfo);

#endif
