/* Huffman tables: ITU-T T.81 annex C defines the codes, F.1.2 the meaning of the symbols. Also the
 * plain build of the entropy decoder. */
#include "decode/jpeg/jpeg_huffman.h"

#include <string.h>

#define LOOK_COUNT (1u << STK_JPEG_LOOKUP_BITS)
#define SKIP_COUNT (1u << STK_JPEG_SKIP_BITS)

/* The meaning of the first code of an index. */
struct symbol {
    uint8_t code_bits;  /* 0: the code is longer than the index */
    uint8_t value_bits; /* 0..15 */
    uint8_t advance;
};

/* The distance by which an AC symbol advances k; unused for DC symbols. */
static uint32_t advance_of(uint8_t symbol)
{
    uint32_t run = symbol >> 4, size = symbol & 15;

    return size == 0 && run != 15 ? STK_JPEG_END_OF_BLOCK : run + 1;
}

/* `bits` bits after the code as a number (F.2.2.1, EXTEND). */
static int32_t extend(uint32_t value, uint32_t bits)
{
    if (bits == 0) {
        return 0;
    }
    return value >> (bits - 1) ? (int32_t)value : (int32_t)value - (1 << bits) + 1;
}

/* Annex C.2: codes in order of length. The all-ones code does not exist, as in libjpeg. */
static bool make_codes(struct stk_jpeg_long_codes *codes, uint32_t kind, const uint8_t *source)
{
    uint32_t code = 0, index = 0;

    for (uint32_t length = 1; length <= 16; length++) {
        uint32_t count = source[length - 1];

        codes->first[length] = (int32_t)index - (int32_t)code;
        code += count;
        index += count;
        if (code >= 1u << length) {
            return false;
        }
        codes->end[length] = code << (16 - length);
        code <<= 1;
    }
    memcpy(codes->symbols, source + 16, index);
    for (uint32_t i = 0; kind == 0 && i < index; i++) {
        if (codes->symbols[i] > 15) {
            return false;
        }
    }
    return true;
}

/* The first symbol of each index of index_bits. */
static void make_symbols(struct symbol *symbols, uint32_t index_bits, const uint8_t *source)
{
    uint32_t at = 0; /* codes in ascending order tile the indexes from 0 on */
    const uint8_t *next = source + 16;

    memset(symbols, 0, sizeof *symbols << index_bits);
    for (uint32_t length = 1; length <= index_bits; length++) {
        for (uint32_t i = 0; i < source[length - 1]; i++, next++) {
            struct symbol symbol = {(uint8_t)length, *next & 15, (uint8_t)advance_of(*next)};

            for (uint32_t n = 0; n < 1u << (index_bits - length); n++) {
                symbols[at++] = symbol;
            }
        }
    }
}

/* The bits of `index` that follow the first `bits`, as an index; zeros are shifted in from the
 * right. */
static uint32_t rest_of(uint32_t index, uint32_t bits, uint32_t index_bits)
{
    return index << bits & ((1u << index_bits) - 1);
}

static int16_t value_of(uint32_t index, const struct symbol *symbol)
{
    uint32_t left = STK_JPEG_LOOKUP_BITS - symbol->code_bits - symbol->value_bits;
    uint32_t value = index >> left & ((1u << symbol->value_bits) - 1);

    return (int16_t)extend(value, symbol->value_bits);
}

static bool fits(const struct symbol *symbol, uint32_t bits)
{
    return symbol->code_bits > 0 && symbol->code_bits + (uint32_t)symbol->value_bits <= bits;
}

static struct stk_jpeg_lookup make_look(const struct symbol *symbols, uint32_t index, uint32_t kind)
{
    const struct symbol *first = &symbols[index];
    struct stk_jpeg_lookup look = {.advance = first->advance};
    uint32_t rest;

    if (!fits(first, STK_JPEG_LOOKUP_BITS)) {
        look.bits1 = first->code_bits;
        look.value = first->value_bits;
        return look;
    }
    look.bits = look.bits1 = (uint8_t)(first->code_bits + first->value_bits);
    look.value = look.value2 = value_of(index, first);
    rest = rest_of(index, look.bits, STK_JPEG_LOOKUP_BITS);
    if (kind == 1 && first->advance != STK_JPEG_END_OF_BLOCK &&
        fits(&symbols[rest], STK_JPEG_LOOKUP_BITS - look.bits)) {
        look.bits = (uint8_t)(look.bits + symbols[rest].code_bits + symbols[rest].value_bits);
        look.advance2 = symbols[rest].advance;
        look.value2 = value_of(rest, &symbols[rest]);
    }
    return look;
}

static struct stk_jpeg_skip_lookup make_skip(const struct symbol *symbols, uint32_t index)
{
    struct stk_jpeg_skip_lookup skip = {0};
    uint32_t bits = 0, advance = 0;

    /* Only the last symbol's value may be past the index's end: its code was read completely. */
    while (bits < STK_JPEG_SKIP_BITS && advance < 63) {
        const struct symbol *symbol = &symbols[rest_of(index, bits, STK_JPEG_SKIP_BITS)];

        if (symbol->code_bits == 0 || bits + symbol->code_bits > STK_JPEG_SKIP_BITS) {
            break;
        }
        bits += (uint32_t)symbol->code_bits + symbol->value_bits;
        advance += symbol->advance;
    }
    skip.bits = (uint8_t)bits;
    skip.advance = (uint8_t)advance;
    return skip;
}

static bool make_table(struct stk_jpeg_huffman_table *table, uint32_t kind, struct stk_view bytes)
{
    struct symbol symbols[SKIP_COUNT]; /* 12 kB */

    table->source_bytes = 0;
    if (!make_codes(&table->codes, kind, bytes.data)) {
        return false;
    }
    make_symbols(symbols, STK_JPEG_LOOKUP_BITS, bytes.data);
    for (uint32_t i = 0; i < LOOK_COUNT; i++) {
        table->lookup[i] = make_look(symbols, i, kind);
    }
    if (kind == 1) {
        make_symbols(symbols, STK_JPEG_SKIP_BITS, bytes.data);
        for (uint32_t i = 0; i < SKIP_COUNT; i++) {
            table->skip[i] = make_skip(symbols, i);
        }
    }
    memcpy(table->source, bytes.data, bytes.bytes);
    table->source_bytes = (uint32_t)bytes.bytes;
    return true;
}

const struct stk_jpeg_huffman_table *stk_jpeg_huffman_get(struct stk_jpeg_huffman_cache *tables,
                                                          uint32_t kind, struct stk_view bytes)
{
    struct stk_jpeg_huffman_table *oldest = &tables->cached[kind][0];

    STK_ASSERT(bytes.bytes >= 16 && bytes.bytes <= sizeof oldest->source);
    tables->clock++;
    for (uint32_t i = 0; i < STK_JPEG_HUFFMAN_CACHED; i++) {
        struct stk_jpeg_huffman_table *table = &tables->cached[kind][i];

        if (table->source_bytes == bytes.bytes &&
            memcmp(table->source, bytes.data, bytes.bytes) == 0) {
            table->used = tables->clock;
            return table;
        }
        oldest = table->used < oldest->used ? table : oldest;
    }
    oldest->used = tables->clock;
    return make_table(oldest, kind, bytes) ? oldest : NULL;
}

uint32_t stk_jpeg_huffman_long_code(const struct stk_jpeg_huffman_table *table, uint64_t data,
                                    uint32_t *bits_out)
{
    const struct stk_jpeg_long_codes *codes = &table->codes;
    uint32_t front = (uint32_t)(data >> 48);

    for (uint32_t length = STK_JPEG_LOOKUP_BITS + 1; length <= 16; length++) {
        if (front < codes->end[length]) {
            *bits_out = length;
            return codes->symbols[(int32_t)(front >> (16 - length)) + codes->first[length]];
        }
    }
    *bits_out = 0;
    return 0;
}

#define ENTROPY stk_jpeg_entropy_scalar
#include "decode/jpeg/jpeg_entropy_inner.h"
