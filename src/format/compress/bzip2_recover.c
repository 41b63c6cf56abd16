/* Blocks of bzip2: looked for bit by bit, and moved to where bytes begin. */
#include "format/compress/bzip2_recover.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

/* Digits of pi, and of its square root, as decimals in 48 bits. */
#define MAGIC_BLOCK UINT64_C(0x314159265359)
#define MAGIC_END UINT64_C(0x177245385090)

enum {
    MAGIC_BITS = 48,
    CRC_BITS = 32,
    /* Magic, CRC, one bit, where the text begins (24), and which symbols are used (16). */
    BLOCK_BITS_MIN = MAGIC_BITS + CRC_BITS + 1 + 24 + 16,
    HEAD_BYTES = 4,
    END_BYTES = 11, /* magic, CRC, and bits up to a byte */
    /* a block is stored after so many bytes, so that its stream can be built in place */
    SHIFT_BYTES = 8
};
static const char stream_head[] = "BZh9"; /* of the largest blocks: fits all */

struct stk_bzip2_blocks {
    struct stk_budget_allocator memory;
    uint8_t *room;  /* owned: SHIFT_BYTES, compressed bytes of the block, END_BYTES */
    uint64_t bytes; /* of the block so far, from the byte in which it begins */
    uint64_t bits;  /* of the last bytes: 64 */
    uint64_t at;    /* in the file: after the last byte */
    uint64_t block_at;
    uint32_t skew;             /* bits before the block in its first byte */
    uint32_t seen;             /* bytes in `bits`, up to 8 */
    bool open;                 /* a block has begun */
    uint8_t next[SHIFT_BYTES]; /* the bytes that the next block begins with */
    uint32_t next_bytes, next_skew;
};

int stk_bzip2_blocks_open(struct stk_bzip2_blocks **blocks_out, uint64_t at,
                          const struct stk_budget_hooks *grant, struct stoker_error *error)
{
    struct stk_bzip2_blocks *blocks = stk_alloc(1, sizeof *blocks);
    bool refused = false;

    *blocks_out = NULL;
    if (blocks) {
        blocks->memory.grant = grant;
        blocks->at = at;
        blocks->room = stk_budget_allocator_alloc(
            &blocks->memory, SHIFT_BYTES + STK_BZIP2_BLOCKS_BYTES_MAX + END_BYTES, 1);
        refused = blocks->memory.refused;
    }
    if (!blocks || !blocks->room) {
        stk_free(blocks);
        return stk_fail(
            error, refused ? STOKER_ERROR_BUDGET : -ENOMEM, "no memory to look for blocks of bzip2",
            refused ? "grant more memory" : "free memory", "%u bytes", STK_BZIP2_BLOCKS_BYTES_MAX);
    }
    *blocks_out = blocks;
    return 0;
}

void stk_bzip2_blocks_close(struct stk_bzip2_blocks *blocks)
{
    if (blocks) {
        stk_budget_allocator_free(&blocks->memory, blocks->room);
        stk_free(blocks);
    }
}

/* The block begins in the last `bytes` bytes of the input, after `skew` bits of the first. */
static void begin_block(struct stk_bzip2_blocks *blocks)
{
    memcpy(blocks->room + SHIFT_BYTES, blocks->next, blocks->next_bytes);
    blocks->bytes = blocks->next_bytes;
    blocks->skew = blocks->next_skew;
    blocks->block_at = blocks->at - blocks->bytes;
    blocks->open = true;
    blocks->next_bytes = 0;
}

/* `count` bits of value from bit `at` of data on, whose bits behind `at` are zeros. */
static void put_bits(uint8_t *data, uint64_t at, uint64_t value, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, at++) {
        if (value >> (count - 1 - i) & 1) {
            data[at / 8] |= (uint8_t)(0x80 >> at % 8);
        }
    }
}

/* The block of block_bits bits, moved after a head and before an end; both as if it were alone,
 * so that the checksum of the stream is its own. */
static struct stk_view make_stream(struct stk_bzip2_blocks *blocks, uint64_t block_bits)
{
    const uint8_t *from = blocks->room + SHIFT_BYTES;
    uint8_t *to = blocks->room;
    uint64_t bytes = (block_bits + 7) / 8, end = 8 * HEAD_BYTES + block_bits;
    uint64_t stream_bytes = (end + MAGIC_BITS + CRC_BITS + 7) / 8;
    uint32_t crc = 0;

    memcpy(to, stream_head, HEAD_BYTES);
    for (uint64_t i = 0; i < bytes; i++) { /* `to` stays behind `from` */
        to[HEAD_BYTES + i] = (uint8_t)(from[i] << blocks->skew | from[i + 1] >> (8 - blocks->skew));
    }
    for (uint32_t i = 0; i < CRC_BITS / 8; i++) {
        crc = crc << 8 | to[HEAD_BYTES + MAGIC_BITS / 8 + i];
    }
    to[end / 8] &= (uint8_t)~(0xff >> end % 8);
    memset(to + end / 8 + 1, 0, stream_bytes - end / 8 - 1);
    put_bits(to, end, MAGIC_END, MAGIC_BITS);
    put_bits(to, end + MAGIC_BITS, crc, CRC_BITS);
    return (struct stk_view){to, stream_bytes};
}

/* A magic number begins so many bits before the end of the input. Returns true if it ended a block.
 */
static bool at_magic(struct stk_bzip2_blocks *blocks, uint32_t bits_back, bool block,
                     struct stk_view *stream_out, uint64_t *at_out)
{
    uint64_t block_bits = 8 * blocks->bytes - bits_back - blocks->skew;
    bool ended = blocks->open && 8 * blocks->bytes >= BLOCK_BITS_MIN + bits_back + blocks->skew;

    if (block) {
        blocks->next_bytes = (bits_back + 7) / 8;
        blocks->next_skew = 8 * blocks->next_bytes - bits_back;
        for (uint32_t i = 0; i < blocks->next_bytes; i++) {
            blocks->next[i] = (uint8_t)(blocks->bits >> 8 * (blocks->next_bytes - 1 - i));
        }
    }
    if (ended) {
        *at_out = blocks->block_at;
        *stream_out = make_stream(blocks, block_bits);
    }
    blocks->open = false;
    if (block && !ended) {
        begin_block(blocks);
    }
    return ended;
}

bool stk_bzip2_blocks_next(struct stk_bzip2_blocks *blocks, struct stk_view *in,
                           struct stk_view *stream_out, uint64_t *at_out)
{
    const uint64_t mask = (UINT64_C(1) << MAGIC_BITS) - 1;
    bool ended = false;

    *stream_out = (struct stk_view){0};
    if (blocks->next_bytes > 0) {
        begin_block(blocks);
    }
    while (in->bytes > 0 && !ended) {
        if (blocks->open && blocks->bytes == STK_BZIP2_BLOCKS_BYTES_MAX) {
            blocks->open = false; /* longer data is no block */
        }
        if (blocks->open) {
            blocks->room[SHIFT_BYTES + blocks->bytes++] = in->data[0];
        }
        blocks->bits = blocks->bits << 8 | in->data[0];
        blocks->seen = stk_min(blocks->seen + 1, sizeof blocks->bits);
        blocks->at++;
        in->data++;
        in->bytes--;
        /* A magic that ends within the last byte: after it are `behind` bits. */
        for (uint32_t bits_after = 8; bits_after-- > 0 && !ended;) {
            uint64_t magic = blocks->bits >> bits_after & mask;

            if ((magic == MAGIC_BLOCK || magic == MAGIC_END) &&
                8 * blocks->seen >= MAGIC_BITS + bits_after) {
                ended = at_magic(blocks, MAGIC_BITS + bits_after, magic == MAGIC_BLOCK, stream_out,
                                 at_out);
            }
        }
    }
    return ended;
}
