/* Goal: every setting that affects a row is in the identity of the stream, and no other is; if two
 * streams differ in one, the part with its name differs, and no other part.
 * Method: pairs of options, one setting a row, and their identities part by part
 * (token_options.c). */
#include "test/t.h"
#include "loader/tokens/token_options.h"

#include <string.h>

enum part { TOKENS, ROWS, PACKING, ENDS, MIDDLE, NONE };

static const int32_t sevens[] = {7, 7}, eights[] = {7, 8};

#define PACKED .rows = STOKER_ROWS_PACKED, .context = 30
#define PADDED .rows = STOKER_ROWS_PADDED, .context = 30
#define FIM PACKED, .fim_rate = 0.5
#define SPLIT FIM, .has_fim_split = 1

/* clang-format off: one row, one line. */
static const struct row {
    const char *name;
    enum part part;
    struct stoker_token_loader_options one, other;
} rows[] = {
    {"the same", NONE, {PACKED}, {PACKED}},
    {"context", ROWS, {PACKED}, {.rows = STOKER_ROWS_PACKED, .context = 31}},
    {"rows", ROWS, {.rows = STOKER_ROWS_DOCUMENTS, .context = 30}, {PADDED}},
    {"stride", ROWS, {.context = 30, .stride = 30}, {.context = 30, .stride = 29}},
    {"labels", ROWS, {PACKED}, {PACKED, .labels = STOKER_LABELS_NONE}},
    {"chunk", PACKING, {PACKED}, {PACKED, .chunk_documents = 50}},
    {"pad", PACKING, {PACKED}, {PACKED, .pad = 1}},
    {"pad of padded rows", PACKING, {PADDED}, {PADDED, .pad = 1}},
    {"has_eod", ENDS, {PACKED}, {PACKED, .has_eod = 1}},
    {"eod", ENDS, {PACKED, .has_eod = 1, .eod = 1}, {PACKED, .has_eod = 1, .eod = 2}},
    {"append_eod", ENDS, {PACKED, .has_eod = 1}, {PACKED, .has_eod = 1, .append_eod = 1}},
    {"ends", ENDS, {PACKED}, {PACKED, .boundary_labels = STOKER_BOUNDARY_NEXT}},
    {"positions", ENDS, {PACKED}, {PACKED, .positions = STOKER_POSITIONS_ROW}},
    {"fill in the middle", MIDDLE, {PACKED}, {FIM}},
    {"rate", MIDDLE, {FIM}, {PACKED, .fim_rate = 0.25}},
    {"SPM rate", MIDDLE, {FIM}, {FIM, .fim_spm_rate = 0.5}},
    {"prefix", MIDDLE, {FIM}, {FIM, .fim_prefix = 1}},
    {"suffix", MIDDLE, {FIM}, {FIM, .fim_suffix = 1}},
    {"middle", MIDDLE, {FIM}, {FIM, .fim_middle = 1}},
    {"complete", MIDDLE, {FIM}, {FIM, .fim_whole = 1}},
    {"uncut fragments", MIDDLE, {SPLIT}, {SPLIT, .fim_whole = 1}},
    {"fragments", MIDDLE, {FIM}, {SPLIT}},
    {"split", MIDDLE, {SPLIT}, {SPLIT, .fim_split = 1}},
    {"rate of fragments", MIDDLE, {SPLIT}, {SPLIT, .fim_fragment_rate = 1}},
    {"most fragments", MIDDLE, {SPLIT}, {SPLIT, .fim_fragments_max = 5}},
    {"no_prefix",
     MIDDLE,
     {FIM, .fim_no_prefix = sevens, .fim_no_prefix_count = 2},
     {FIM, .fim_no_prefix = eights, .fim_no_prefix_count = 2}},
    {"length of no_prefix",
     MIDDLE,
     {FIM, .fim_no_prefix = sevens, .fim_no_prefix_count = 1},
     {FIM, .fim_no_prefix = sevens, .fim_no_prefix_count = 2}},
    /* Settings that do not affect a row, or have the default value. */
    {"batch", NONE, {PACKED}, {PACKED, .batch_size = 3}},
    {"rank and world", NONE, {PACKED}, {PACKED, .rank = 1, .world_size = 2}},
    {"dtype", NONE, {PACKED}, {PACKED, .dtype = STOKER_INT32}},
    {"default of chunk", NONE, {PACKED}, {PACKED, .chunk_documents = 4096}},
    {"default of stride", NONE, {.context = 30}, {.context = 30, .stride = 30}},
    {"stride of packed rows", NONE, {PACKED}, {PACKED, .stride = 7}},
    {"pad of documents",
     NONE,
     {.rows = STOKER_ROWS_DOCUMENTS},
     {.rows = STOKER_ROWS_DOCUMENTS, .pad = 7}},
    {"sentinels that are not used", NONE, {PACKED}, {PACKED, .fim_prefix = 1, .fim_spm_rate = 1}},
};
/* clang-format on */

static void identify(const char *name, const struct stoker_token_loader_options *given,
                     const struct stoker_tokens *tokens, uint8_t identity[32])
{
    struct stoker_token_loader_options options = *given, made = {0};

    options.struct_size = sizeof options;
    options.batch_size = options.batch_size ? options.batch_size : 2;
    T_EQ(name, stk_token_options_resolve(&made, &options, NULL), 0);
    stk_token_options_identity(tokens, &made, identity);
}

static void compare(const char *name, const uint8_t one[32], const uint8_t other[32],
                    enum part differs)
{
    uint32_t end = 0;

    for (uint32_t i = 0; i < STK_TOKEN_IDENTITY_PARTS; i++) {
        const struct stk_identity_part *part = &stk_token_identity_parts[i];
        bool same = memcmp(one + part->first, other + part->first, part->bytes) == 0;

        if (!T_TRUE(name, same == (i != (uint32_t)differs))) {
            printf("%s: %s\n", name, part->name);
        }
        T_EQ("parts follow each other", part->first, end);
        end = part->first + part->bytes;
    }
    T_EQ("and are all of it", end, 32);
}

int main(void)
{
    struct stoker_tokens tokens = {.identity = {1, 2, 3}}, others = tokens;
    uint8_t one[32], other[32];

    T_EACH(row, row, rows)
    {
        identify(row->name, &row->one, &tokens, one);
        identify(row->name, &row->other, &tokens, other);
        compare(row->name, one, other, row->part);
    }
    others.identity[15] = 1;
    identify("tokens", &rows[0].one, &tokens, one);
    identify("tokens", &rows[0].one, &others, other);
    compare("tokens", one, other, TOKENS);
    return t_finish();
}
