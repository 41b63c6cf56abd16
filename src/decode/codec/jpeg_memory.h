/* decode/codec/jpeg_memory.h: libjpeg's memory manager, over a scratch.
 *
 *   init (after jpeg_create_decompress) -> pictures, scratch reset after each -> deinit
 *
 * All that a picture takes, quantisation and Huffman tables included, is gone with it: nothing of
 * one picture reaches the next. Owner: a stk_codec_jpeg. Threads: one. Memory: the scratch.
 * Bound: the scratch's; passing it is JERR_OUT_OF_MEMORY. */
#ifndef DECODE_CODEC_JPEG_MEMORY_H
#define DECODE_CODEC_JPEG_MEMORY_H

#include "decode/codec/codec_arena.h"

#include <stdio.h>

#include <jpeglib.h>

struct stk_jpeg_memory {
    struct jpeg_memory_mgr manager; /* first: libjpeg hands it back */
    struct jpeg_memory_mgr *original;
    struct stk_codec_arena *arena; /* borrowed until deinit */
    jvirt_barray_ptr arrays;       /* asked for, in this picture */
};

void stk_jpeg_memory_init(struct stk_jpeg_memory *memory, struct jpeg_decompress_struct *cinfo,
                          struct stk_codec_arena *arena);
/* Between pictures: forgets the arrays and tables that lay in the scratch. */
void stk_jpeg_memory_reset(struct stk_jpeg_memory *memory, struct jpeg_decompress_struct *cinfo);
/* Before jpeg_destroy_decompress. */
void stk_jpeg_memory_deinit(struct stk_jpeg_memory *memory, struct jpeg_decompress_struct *cinfo);

#endif
