/* decode/codec/codec_arena.h: the memory of one image; all allocations are released together.
 *
 *   begin(expected) -> take ... -> reset      (the block stays for the next image)   trim
 *
 * Image libraries make dozens of small allocations per image. Here an allocation only advances a
 * pointer in a block that stays in the CPU cache, and the total for one image is bounded.
 * Owner: a codec. Threads: one. Memory: stk_alloc. Bound: bytes_max of begin. */
#ifndef DECODE_CODEC_CODEC_ARENA_H
#define DECODE_CODEC_CODEC_ARENA_H

#include "base/base.h"

struct stk_codec_arena_block {
    struct stk_codec_arena_block *next;
    uint64_t bytes; /* of data */
    uint64_t used;
    uint8_t data[];
};

struct stk_codec_arena {
    struct stk_codec_arena_block *blocks; /* owned; the one in use first */
    uint64_t bytes;                       /* held in blocks */
    uint64_t used_bytes;                  /* by this image */
    uint64_t bytes_max;                   /* of this image */
    int status;                           /* why alloc returned NULL: LIMIT or -ENOMEM */
};

/* Starts an image that may allocate up to bytes_max, and reserves one block of expected_bytes.
 * Returns 0 on success, LIMIT if bytes_max is exceeded, -ENOMEM if memory is exhausted. */
int stk_codec_arena_begin(struct stk_codec_arena *arena, uint64_t bytes_max,
                          uint64_t expected_bytes, struct stoker_error *error);
/* Allocates memory that is valid until reset, not zeroed, aligned to STK_CODEC_ARENA_ALIGN. Returns
 * NULL on failure; arena->status has the reason. */
void *stk_codec_arena_alloc(struct stk_codec_arena *arena, uint64_t bytes);
/* Fills *error for a failed alloc. Returns arena->status. */
int stk_codec_arena_fail(const struct stk_codec_arena *arena, struct stoker_error *error);
/* Releases all allocations; the largest block stays allocated. */
void stk_codec_arena_reset(struct stk_codec_arena *arena);
/* After reset: frees the block if it is larger than keep_bytes. */
void stk_codec_arena_trim(struct stk_codec_arena *arena, uint64_t keep_bytes);

/* A cache line, and twice what libjpeg-turbo's AVX2 code needs. */
#define STK_CODEC_ARENA_ALIGN 64u

#endif
