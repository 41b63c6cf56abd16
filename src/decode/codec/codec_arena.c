/* Scratch memory of a codec: an offset that advances through a block. */
#include "decode/codec/codec_arena.h"

#include "base/mem.h"

#include <errno.h>

#define BLOCK_BYTES_MIN (64u << 10)

static struct stk_codec_arena_block *block_open(struct stk_codec_arena *arena, uint64_t bytes)
{
    struct stk_codec_arena_block *block = NULL;
    uint64_t total;

    if (stk_add(bytes, sizeof *block, &total) && total <= SIZE_MAX) {
        block = stk_alloc(1, (size_t)total);
    }
    if (!block) {
        arena->status = -ENOMEM;
        return NULL;
    }
    block->bytes = bytes;
    block->next = arena->blocks;
    arena->blocks = block;
    arena->bytes += bytes;
    return block;
}

/* Frees every block but `keep`, which may be NULL. */
static void blocks_close(struct stk_codec_arena *arena, struct stk_codec_arena_block *keep)
{
    struct stk_codec_arena_block *block = arena->blocks;

    while (block) {
        struct stk_codec_arena_block *next = block->next;

        if (block != keep) {
            arena->bytes -= block->bytes;
            stk_free(block);
        }
        block = next;
    }
    arena->blocks = keep;
    if (keep) {
        keep->next = NULL;
        keep->used = 0;
    }
}

int stk_codec_arena_begin(struct stk_codec_arena *arena, uint64_t bytes_max,
                          uint64_t expected_bytes, struct stoker_error *error)
{
    STK_ASSERT(arena->used_bytes == 0);
    arena->bytes_max = bytes_max;
    arena->status = 0;
    if (expected_bytes > bytes_max) {
        arena->status = STOKER_ERROR_LIMIT;
        return stk_codec_arena_fail(arena, error);
    }
    if (!arena->blocks || arena->blocks->bytes < expected_bytes) {
        /* The old block is freed first, so that both never exist at once. */
        blocks_close(arena, NULL);
        if (!block_open(arena, stk_max(expected_bytes, BLOCK_BYTES_MIN))) {
            return stk_codec_arena_fail(arena, error);
        }
    }
    return 0;
}

/* Bytes to leave out so that the next piece is aligned. */
static uint64_t gap(const struct stk_codec_arena_block *block)
{
    return -((uintptr_t)block->data + block->used) % STK_CODEC_ARENA_ALIGN;
}

void *stk_codec_arena_alloc(struct stk_codec_arena *arena, uint64_t bytes)
{
    struct stk_codec_arena_block *block = arena->blocks;
    uint64_t with_gap, total;
    void *piece;

    if (!stk_add(bytes, STK_CODEC_ARENA_ALIGN, &with_gap) ||
        !stk_add(arena->used_bytes, with_gap, &total) || total > arena->bytes_max) {
        arena->status = STOKER_ERROR_LIMIT;
        return NULL;
    }
    if (!block || block->bytes - block->used < with_gap) {
        block = block_open(arena, stk_max(with_gap, BLOCK_BYTES_MIN));
    }
    if (!block) {
        return NULL;
    }
    block->used += gap(block);
    piece = block->data + block->used;
    block->used += bytes;
    arena->used_bytes = total;
    return piece;
}

int stk_codec_arena_fail(const struct stk_codec_arena *arena, struct stoker_error *error)
{
    if (arena->status == STOKER_ERROR_LIMIT) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the image takes too much memory to decode",
                        "raise decode_bytes_max, or leave the image out", "more than %llu bytes",
                        (unsigned long long)arena->bytes_max);
    }
    return stk_fail_errno(error, ENOMEM, "cannot decode an image",
                          "give the process more memory, or use fewer threads", "after %llu bytes",
                          (unsigned long long)arena->used_bytes);
}

void stk_codec_arena_reset(struct stk_codec_arena *arena)
{
    struct stk_codec_arena_block *largest = arena->blocks;

    for (struct stk_codec_arena_block *block = arena->blocks; block; block = block->next) {
        largest = block->bytes > largest->bytes ? block : largest;
    }
    blocks_close(arena, largest);
    arena->used_bytes = 0;
}

void stk_codec_arena_trim(struct stk_codec_arena *arena, uint64_t keep_bytes)
{
    STK_ASSERT(arena->used_bytes == 0);
    if (arena->bytes > keep_bytes) {
        blocks_close(arena, NULL);
    }
}
