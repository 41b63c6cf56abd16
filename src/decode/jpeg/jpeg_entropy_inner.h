/* decode/jpeg/jpeg_entropy_inner.h: the text of both builds of jpeg_entropy.h; the including file
 * defines ENTROPY, the name of its table of functions.
 * Owner: none. Threads: any. Memory: none. Bound: 63 steps a block. */
#ifndef DECODE_JPEG_JPEG_ENTROPY_INNER_H
#define DECODE_JPEG_JPEG_ENTROPY_INNER_H

#include "decode/jpeg/jpeg_entropy.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define RARE(thing) __builtin_expect(!!(thing), 0)

/* At least 56 bits are valid afterwards. The remaining bits of the last byte are read again by the
 * next refill, as the same bits in the same place. */
INLINE void refill(struct stk_jpeg_bit_reader *bits)
{
    uint64_t next;

    memcpy(&next, bits->at, sizeof next);
    bits->buffer |= __builtin_bswap64(next) >> bits->count;
    bits->at += (63 - bits->count) >> 3;
    bits->count |= 56;
}

INLINE void take(struct stk_jpeg_bit_reader *bits, uint32_t count)
{
    bits->buffer <<= count;
    bits->count -= count;
}

/* The next count bits (1..15) as a signed value (F.2.2.1, EXTEND), without a branch. */
INLINE int32_t take_value(struct stk_jpeg_bit_reader *bits, uint32_t count)
{
    int32_t value = (int32_t)(bits->buffer >> (64 - count));
    int32_t low = (value >> (count - 1)) - 1; /* all ones where the first bit is zero */

    take(bits, count);
    return value + (low & (1 - (1 << count)));
}

/* Decodes a symbol whose code and value do not fit a table entry, and advances k by its run. If the
 * code does not exist, k advances to the position that means damage. */
INLINE uint32_t take_long(struct stk_jpeg_bit_reader *bits,
                          const struct stk_jpeg_huffman_table *table,
                          const struct stk_jpeg_lookup *look, uint32_t *size_out)
{
    uint32_t advance = look->advance, size = (uint32_t)look->value, code_bits = look->bits1;

    if (code_bits == 0) {
        uint32_t symbol = stk_jpeg_huffman_long_code(table, bits->buffer, &code_bits);

        size = symbol & 15;
        advance = (symbol >> 4) + 1;
        if (size == 0 && advance != 16) {
            advance = STK_JPEG_END_OF_BLOCK;
        }
        advance = code_bits ? advance : 64;
    }
    take(bits, code_bits);
    refill(bits);
    *size_out = size;
    return advance;
}

/* The difference of a DC coefficient to the one before it; damage is marked. */
INLINE uint32_t take_dc(struct stk_jpeg_bit_reader *bits,
                        const struct stk_jpeg_huffman_table *table, uint32_t *damage)
{
    const struct stk_jpeg_lookup *look;
    uint32_t size, code_bits;

    refill(bits);
    look = &table->lookup[bits->buffer >> (64 - STK_JPEG_LOOKUP_BITS)];
    if (!RARE(look->bits == 0)) {
        take(bits, look->bits);
        return (uint32_t)look->value;
    }
    size = (uint32_t)look->value;
    code_bits = look->bits1;
    if (code_bits == 0) {
        size = stk_jpeg_huffman_long_code(table, bits->buffer, &code_bits);
        *damage |= code_bits == 0;
    }
    take(bits, code_bits);
    refill(bits);
    return size ? (uint32_t)take_value(bits, size) : 0;
}

/* Stores the AC coefficients after k. Returns k at the end of the block: see
 * stk_jpeg_block_overran. */
INLINE uint32_t take_ac(struct stk_jpeg_bit_reader *bits,
                        const struct stk_jpeg_huffman_table *table, const uint8_t *places,
                        int16_t *block, uint32_t k)
{
    for (;;) {
        refill(bits);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) { /* 4 * 10 <= 56 */
            const struct stk_jpeg_lookup *look =
                &table->lookup[bits->buffer >> (64 - STK_JPEG_LOOKUP_BITS)];
            uint32_t first = k + look->advance, second = first + look->advance2;

            if (RARE(look->bits == 0)) {
                uint32_t size;

                k += take_long(bits, table, look, &size);
                if (size) {
                    block[places[k]] = (int16_t)take_value(bits, size);
                }
                if (k >= 63) {
                    return k;
                }
                break;
            }
            block[places[first]] = look->value;
            block[places[second]] = look->value2;
            if (RARE(second >= 63)) {
                bool one = first >= 63;

                take(bits, one ? look->bits1 : look->bits);
                return one ? first : second;
            }
            take(bits, look->bits);
            k = second;
        }
    }
}

/* One symbol at a time, near the end of a block. */
static __attribute__((noinline)) uint32_t skip_slowly(struct stk_jpeg_bit_reader *bits,
                                                      const struct stk_jpeg_huffman_table *table,
                                                      uint32_t k)
{
    while (k < 63) {
        const struct stk_jpeg_lookup *look;

        refill(bits);
        look = &table->lookup[bits->buffer >> (64 - STK_JPEG_LOOKUP_BITS)];
        if (look->bits) {
            k += look->advance;
            take(bits, look->bits1);
        } else {
            uint32_t size;

            k += take_long(bits, table, look, &size);
            take(bits, size);
        }
    }
    return k;
}

INLINE uint32_t skip_ac(struct stk_jpeg_bit_reader *bits,
                        const struct stk_jpeg_huffman_table *table)
{
    uint32_t k = 0;

    for (;;) {
        refill(bits);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) { /* an entry has at most 12 + 15 bits */
            struct stk_jpeg_skip_lookup skip =
                table->skip[bits->buffer >> (64 - STK_JPEG_SKIP_BITS)];
            uint32_t next = k + skip.advance;

            if (RARE(skip.bits == 0)) {
                return skip_slowly(bits, table, k);
            }
            if (RARE(next >= 63)) {
                /* Symbols of the next block may be in it, unless it ended exactly here. */
                if (next != 63 && next - STK_JPEG_END_OF_BLOCK >= 63) {
                    return skip_slowly(bits, table, k);
                }
                take(bits, skip.bits);
                return next;
            }
            take(bits, skip.bits);
            k = next;
        }
    }
}

static bool skip(struct stk_jpeg_mcu_state *mcus, uint32_t count)
{
    struct stk_jpeg_bit_reader bits = mcus->segment.bits;
    uint32_t damage = 0;
    bool good = true;

    while (good && count-- > 0) {
        if (RARE(bits.at > mcus->segment.limit)) {
            mcus->segment.bits = bits;
            good = stk_jpeg_segment_refill(&mcus->segment);
            bits = mcus->segment.bits;
        }
        for (uint32_t i = 0; i < mcus->block_count; i++) {
            const struct stk_jpeg_block *block = &mcus->blocks[i];

            mcus->dc[block->component] += take_dc(&bits, block->dc, &damage);
            damage |= stk_jpeg_block_overran(skip_ac(&bits, block->ac));
        }
    }
    mcus->segment.bits = bits;
    mcus->damage |= damage;
    return good;
}

/* A block that is one value: the result of the transform (see jpeg_planes.c), 8 times 8 bytes. */
INLINE void fill_block(const struct stk_jpeg_block *block, int16_t dc, uint8_t *to)
{
    int32_t value = (int16_t)((uint32_t)dc * (uint32_t)block->quantiser[0] << 2);
    uint64_t eight;

    value = ((value + 16) >> 5) + 128;
    value = value < 0 ? 0 : value > 255 ? 255 : value;
    eight = UINT64_C(0x0101010101010101) * (uint64_t)value;
    for (int row = 0; row < 8; row++) {
        memcpy(to + row * block->stride, &eight, sizeof eight);
    }
}

/* As vectors: for so few bytes compilers make a string instruction of memset, which takes longer
 * to start than to store. */
INLINE void clear_block(int16_t *block)
{
    typedef uint64_t bytes32 __attribute__((vector_size(32), may_alias));

    for (int i = 0; i < 4; i++) {
        ((bytes32 *)(void *)block)[i] = (bytes32){0};
    }
}

/* Samples out of the block, which is zero again. */
INLINE void finish_block(struct stk_jpeg_mcu_state *mcus, const struct stk_jpeg_block *block,
                         uint32_t k, uint8_t *to)
{
    if (k == STK_JPEG_END_OF_BLOCK) {
        fill_block(block, mcus->block[0], to);
    } else {
        mcus->idct(mcus->block, block->quantiser, to, block->stride);
        clear_block(mcus->block);
    }
}

static bool keep(struct stk_jpeg_mcu_state *mcus, uint32_t column, uint32_t count)
{
    struct stk_jpeg_bit_reader bits = mcus->segment.bits;
    uint32_t damage = 0;
    int16_t *values = mcus->block;
    bool good = true;

    for (uint32_t end = column + count; good && column < end; column++) {
        if (RARE(bits.at > mcus->segment.limit)) {
            mcus->segment.bits = bits;
            good = stk_jpeg_segment_refill(&mcus->segment);
            bits = mcus->segment.bits;
        }
        for (uint32_t i = 0; i < mcus->block_count; i++) {
            const struct stk_jpeg_block *block = &mcus->blocks[i];
            uint8_t *to = block->to + (size_t)column * block->step;
            uint32_t k;

            mcus->dc[block->component] += take_dc(&bits, block->dc, &damage);
            values[0] = (int16_t)mcus->dc[block->component];
            k = take_ac(&bits, block->ac, mcus->coefficient_index, values, 0);
            damage |= stk_jpeg_block_overran(k);
            finish_block(mcus, block, k, to);
        }
    }
    mcus->segment.bits = bits;
    mcus->damage |= damage;
    return good;
}

/* ---- two streams --------------------------------------------------------------------------- */

/* The block's end was found by a look-up that advanced to `first` and `second`. */
INLINE uint32_t end_block(struct stk_jpeg_bit_reader *bits, const struct stk_jpeg_lookup *look,
                          uint32_t first, uint32_t second)
{
    bool one = first >= 63;

    take(bits, one ? look->bits1 : look->bits);
    return one ? first : second;
}

/* One look-up, of a long symbol or of two adjacent ones. */
INLINE uint32_t step(struct stk_jpeg_bit_reader *bits, const struct stk_jpeg_huffman_table *table,
                     const uint8_t *places, int16_t *block, uint32_t k)
{
    const struct stk_jpeg_lookup *look =
        &table->lookup[bits->buffer >> (64 - STK_JPEG_LOOKUP_BITS)];
    uint32_t first = k + look->advance, second = first + look->advance2, size;

    if (look->bits) {
        block[places[first]] = look->value;
        block[places[second]] = look->value2;
        take(bits, first >= 63 ? look->bits1 : look->bits);
        return first >= 63 ? first : second;
    }
    k += take_long(bits, table, look, &size);
    if (size) {
        block[places[k]] = (int16_t)take_value(bits, size);
    }
    return k;
}

/* take_ac of two blocks: a look-up waits for the previous one, but not for the other stream's. When
 * one block ends, the other continues alone. */
INLINE void take_two(struct stk_jpeg_bit_reader bits[2], const struct stk_jpeg_huffman_table *table,
                     const uint8_t *places, int16_t *const blocks[2], uint32_t k[2])
{
    const uint32_t shift = 64 - STK_JPEG_LOOKUP_BITS;

    for (k[0] = k[1] = 0;;) {
        refill(&bits[0]);
        refill(&bits[1]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const struct stk_jpeg_lookup *a = &table->lookup[bits[0].buffer >> shift];
            const struct stk_jpeg_lookup *b = &table->lookup[bits[1].buffer >> shift];
            uint32_t first[2] = {k[0] + a->advance, k[1] + b->advance};
            uint32_t second[2] = {first[0] + a->advance2, first[1] + b->advance2};

            if (RARE((a->bits == 0) | (b->bits == 0))) {
                break;
            }
            blocks[0][places[first[0]]] = a->value;
            blocks[0][places[second[0]]] = a->value2;
            blocks[1][places[first[1]]] = b->value;
            blocks[1][places[second[1]]] = b->value2;
            if (RARE((second[0] >= 63) | (second[1] >= 63))) {
                const struct stk_jpeg_lookup *looks[2] = {a, b};

                for (int n = 0; n < 2; n++) {
                    if (second[n] >= 63) {
                        k[n] = end_block(&bits[n], looks[n], first[n], second[n]);
                    } else {
                        take(&bits[n], looks[n]->bits);
                        k[n] = take_ac(&bits[n], table, places, blocks[n], second[n]);
                    }
                }
                return;
            }
            take(&bits[0], a->bits);
            take(&bits[1], b->bits);
            k[0] = second[0];
            k[1] = second[1];
        }
        refill(&bits[0]);
        refill(&bits[1]);
        k[0] = step(&bits[0], table, places, blocks[0], k[0]);
        k[1] = step(&bits[1], table, places, blocks[1], k[1]);
        if ((k[0] >= 63) | (k[1] >= 63)) {
            break;
        }
    }
    for (int n = 0; n < 2; n++) {
        if (k[n] < 63) {
            k[n] = take_ac(&bits[n], table, places, blocks[n], k[n]);
        }
    }
}

static bool keep_two(struct stk_jpeg_mcu_state mcus[2], uint32_t column, uint32_t count)
{
    struct stk_jpeg_bit_reader bits[2] = {mcus[0].segment.bits, mcus[1].segment.bits};
    int16_t *const blocks[2] = {mcus[0].block, mcus[1].block};
    uint32_t damage = 0;
    bool good = true;

    for (uint32_t end = column + count; good && column < end; column++) {
        for (int n = 0; n < 2; n++) {
            if (RARE(bits[n].at > mcus[n].segment.limit)) {
                mcus[n].segment.bits = bits[n];
                good = stk_jpeg_segment_refill(&mcus[n].segment) && good;
                bits[n] = mcus[n].segment.bits;
            }
        }
        for (uint32_t i = 0; i < mcus->block_count; i++) {
            const struct stk_jpeg_block *block = &mcus->blocks[i];
            uint32_t k[2];

            for (int n = 0; n < 2; n++) {
                mcus[n].dc[block->component] += take_dc(&bits[n], block->dc, &damage);
                blocks[n][0] = (int16_t)mcus[n].dc[block->component];
            }
            take_two(bits, block->ac, mcus->coefficient_index, blocks, k);
            for (int n = 0; n < 2; n++) {
                const struct stk_jpeg_block *own = &mcus[n].blocks[i];

                damage |= stk_jpeg_block_overran(k[n]);
                finish_block(&mcus[n], own, k[n], own->to + (size_t)column * own->step);
            }
        }
    }
    for (int n = 0; n < 2; n++) {
        mcus[n].segment.bits = bits[n];
        mcus[n].damage |= damage;
    }
    return good;
}

const struct stk_jpeg_entropy_kernels ENTROPY = {skip, keep, keep_two};

#endif
