/* Scratch memory of a codec: a mark that moves through a block. */
#include "decode/codec/codec_arena.h"

#include "base/mem.h"

#include <errno.h>

#define BLOCK_BYTES_MIN (64u << 10)

static struct stk_scratch_block *block_open(struct stk_scratch *scratch, uint64_t bytes)
{
    struct stk_scratch_block *block = NULL;
    uint64_t whole;

    if (stk_add(bytes, sizeof *block, &whole) && whole <= SIZE_MAX) {
        block = stk_alloc(1, (size_t)whole);
    }
    if (!block) {
        scratch->status = -ENOMEM;
        return NULL;
    }
    block->bytes = bytes;
    block->next = scratch->blocks;
    scratch->blocks = block;
    scratch->bytes += bytes;
    return block;
}

/* Frees every block but `keep`, which may be NULL. */
static void blocks_close(struct stk_scratch *scratch, struct stk_scratch_block *keep)
{
    struct stk_scratch_block *block = scratch->blocks;

    while (block) {
        struct stk_scratch_block *next = block->next;

        if (block != keep) {
            scratch->bytes -= block->bytes;
            stk_free(block);
        }
        block = next;
    }
    scratch->blocks = keep;
    if (keep) {
        keep->next = NULL;
        keep->used = 0;
    }
}

int stk_scratch_begin(struct stk_scratch *scratch, uint64_t bytes_max, uint64_t expected_bytes,
                      struct stoker_error *error)
{
    STK_ASSERT(scratch->taken_bytes == 0);
    scratch->bytes_max = bytes_max;
    scratch->status = 0;
    if (expected_bytes > bytes_max) {
        scratch->status = STOKER_ERROR_LIMIT;
        return stk_scratch_fail(scratch, error);
    }
    if (!scratch->blocks || scratch->blocks->bytes < expected_bytes) {
        /* The old block goes first, so that both never exist at once. */
        blocks_close(scratch, NULL);
        if (!block_open(scratch, stk_max(expected_bytes, BLOCK_BYTES_MIN))) {
            return stk_scratch_fail(scratch, error);
        }
    }
    return 0;
}

/* Bytes to leave out so that the next piece is aligned. */
static uint64_t gap(const struct stk_scratch_block *block)
{
    return -((uintptr_t)block->data + block->used) % STK_SCRATCH_ALIGN;
}

void *stk_scratch_take(struct stk_scratch *scratch, uint64_t bytes)
{
    struct stk_scratch_block *block = scratch->blocks;
    uint64_t with_gap, total;
    void *piece;

    if (!stk_add(bytes, STK_SCRATCH_ALIGN, &with_gap) ||
        !stk_add(scratch->taken_bytes, with_gap, &total) || total > scratch->bytes_max) {
        scratch->status = STOKER_ERROR_LIMIT;
        return NULL;
    }
    if (!block || block->bytes - block->used < with_gap) {
        block = block_open(scratch, stk_max(with_gap, BLOCK_BYTES_MIN));
    }
    if (!block) {
        return NULL;
    }
    block->used += gap(block);
    piece = block->data + block->used;
    block->used += bytes;
    scratch->taken_bytes = total;
    return piece;
}

int stk_scratch_fail(const struct stk_scratch *scratch, struct stoker_error *error)
{
    if (scratch->status == STOKER_ERROR_LIMIT) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the picture takes too much memory to decode",
                        "raise decode_bytes_max, or leave the picture out", "more than %llu bytes",
                        (unsigned long long)scratch->bytes_max);
    }
    return stk_fail_errno(error, ENOMEM, "cannot decode a picture",
                          "give the process more memory, or use fewer threads", "after %llu bytes",
                          (unsigned long long)scratch->taken_bytes);
}

void stk_scratch_reset(struct stk_scratch *scratch)
{
    struct stk_scratch_block *largest = scratch->blocks;

    for (struct stk_scratch_block *block = scratch->blocks; block; block = block->next) {
        largest = block->bytes > largest->bytes ? block : largest;
    }
    blocks_close(scratch, largest);
    scratch->taken_bytes = 0;
}

void stk_scratch_trim(struct stk_scratch *scratch, uint64_t keep_bytes)
{
    STK_ASSERT(scratch->taken_bytes == 0);
    if (scratch->bytes > keep_bytes) {
        blocks_close(scratch, NULL);
    }
}
