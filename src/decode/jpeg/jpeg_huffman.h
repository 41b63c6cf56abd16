/* decode/jpeg/jpeg_huffman.h: Huffman tables, built from the bytes of a DHT segment and reused
 * while the bytes are the same.
 *
 *   counts and symbols -> prepare -> a table that returns up to two coefficients per lookup
 *
 * The index into the table is the next STK_JPEG_LOOKUP_BITS bits of the data. If these bits hold a
 * complete coefficient (code and value), the entry has it; if they hold two, the entry has both.
 * Owner: a decoder. Threads: one. Memory: inside the decoder. Bound: fixed sizes. */
#ifndef DECODE_JPEG_JPEG_HUFFMAN_H
#define DECODE_JPEG_JPEG_HUFFMAN_H

#include "decode/jpeg/jpeg.h"

#define STK_JPEG_LOOKUP_BITS 10u
#define STK_JPEG_SKIP_BITS 12u

/* An end of block advances so far, that it cannot be taken for a run beyond coefficient 63: see
 * stk_jpeg_block_overran. */
#define STK_JPEG_END_OF_BLOCK 128u

/* The k that a block ended with: 63, or 128 and more by an end of block. Values between them are
 * runs that pass the block's end: damage. */
static inline uint32_t stk_jpeg_block_overran(uint32_t k)
{
    return k & 64u;
}

struct stk_jpeg_lookup {
    uint8_t bits;          /* of all that this entry decodes; 0: see below */
    uint8_t advance;       /* of k, to the first coefficient: run + 1, or END_OF_BLOCK */
    uint8_t advance2;      /* from there to the second; 0: no second one */
    uint8_t bits1;         /* of the first alone */
    int16_t value, value2; /* the same when there is no second */
    /* bits == 0: the value does not fit. bits1: of the code (0: it does not fit either), advance:
     * as always, value: how many bits the value has. */
};

struct stk_jpeg_skip_lookup { /* the same without values: as many symbols as fit */
    uint8_t bits;             /* 0: not even the first code fits */
    uint8_t advance;          /* of k, all together */
};

/* For codes longer than an index: code < end[length], left-aligned in 16 bits, determines the
 * length. */
struct stk_jpeg_long_codes {
    uint32_t end[17];  /* by length; 16-bit fractions, never falling */
    int32_t first[17]; /* index of the symbol of code 0 of this length, so to say */
    uint8_t symbols[256];
};

struct stk_jpeg_huffman_table {
    struct stk_jpeg_lookup lookup[1u << STK_JPEG_LOOKUP_BITS];
    struct stk_jpeg_skip_lookup skip[1u << STK_JPEG_SKIP_BITS]; /* of AC tables only */
    struct stk_jpeg_long_codes codes;
    uint8_t source[16 + 256]; /* the bytes that it was made from */
    uint32_t source_bytes;    /* 0: none yet */
    uint64_t used;            /* when last: see prepare */
};

#define STK_JPEG_HUFFMAN_CACHED 4u /* a kind; an image has at most 3, libjpeg's encoder 2 */

struct stk_jpeg_huffman_cache {
    struct stk_jpeg_huffman_table cached[2][STK_JPEG_HUFFMAN_CACHED]; /* DC, AC */
    uint64_t clock;
};

/* Returns the table for these bytes (16 counts, symbols), NULL if they are not a prefix code or a
 * DC symbol is above 15. At most STK_JPEG_HUFFMAN_CACHED tables of a kind stay cached. */
const struct stk_jpeg_huffman_table *stk_jpeg_huffman_get(struct stk_jpeg_huffman_cache *tables,
                                                          uint32_t kind, struct stk_view bytes);

/* The symbol at the front of 64 bits of data, whose code is longer than STK_JPEG_LOOKUP_BITS;
 * *bits_out: of its code, 0 when no code is like this. */
uint32_t stk_jpeg_huffman_long_code(const struct stk_jpeg_huffman_table *table, uint64_t data,
                                    uint32_t *bits_out);

#endif
