/* A row of tokens: appends documents, changes them by fill in the middle, and writes the row with
 * labels and positions. Tokens are int64, in memory that stays in the processor's cache, and are
 * narrowed when they are written. */
#include "loader/rows/token_row.h"

#include "base/mem.h"
#include "base/random.h"

#include <errno.h>
#include <string.h>

int stk_token_row_open(struct stk_token_row *row, uint64_t capacity, struct stoker_error *error)
{
    stk_token_row_close(row);
    if (capacity > STK_TOKEN_ROW_TOKENS_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a row of tokens is too long",
                        "give a shorter context: documents are cut to it",
                        "%llu tokens, at most %u", (unsigned long long)capacity,
                        STK_TOKEN_ROW_TOKENS_MAX);
    }
    row->tokens = stk_alloc(capacity, sizeof *row->tokens);
    row->scratch = stk_alloc(capacity, sizeof *row->scratch);
    row->starts = stk_alloc(capacity, sizeof *row->starts);
    if (!row->tokens || !row->scratch || !row->starts) {
        stk_token_row_close(row);
        return stk_fail(error, -ENOMEM, "cannot make a row of tokens", "free memory", "%llu tokens",
                        (unsigned long long)capacity);
    }
    row->capacity = capacity;
    stk_token_row_clear(row);
    return 0;
}

void stk_token_row_close(struct stk_token_row *row)
{
    stk_free(row->tokens);
    stk_free(row->scratch);
    stk_free(row->starts);
    memset(row, 0, sizeof *row);
}

void stk_token_row_clear(struct stk_token_row *row)
{
    row->count = 0;
    row->start_count = 0;
}

/* ---- documents ---- */

/* Appends tokens to the row, as many as fit in its capacity. */
static void put(struct stk_token_row *row, const int64_t *tokens, uint64_t count)
{
    count = stk_min(count, row->capacity - row->count);
    memcpy(row->tokens + row->count, tokens, count * sizeof *tokens);
    row->count += count;
}

static void begin_document(struct stk_token_row *row)
{
    if (row->count < row->capacity) {
        row->starts[row->start_count++] = (uint32_t)row->count;
    }
}

/* Applies fill in the middle to an entire document, or a part of one. Returns false if it does not
 * change. */
static bool put_changed(struct stk_token_row *row, const struct stk_token_row_rules *rules,
                        const int64_t *tokens, uint64_t count, uint64_t key)
{
    struct stk_fim_output out = {row->tokens + row->count, row->capacity - row->count, 0};

    if (!stk_fim_apply(&rules->fim, tokens, count, key, &out)) {
        return false;
    }
    row->count += out.count;
    return true;
}

/* Excludes the EOD at the end: no part of the document may stand after it. */
static uint64_t body_count(const struct stk_token_row_rules *rules, const int64_t *tokens,
                           uint64_t count)
{
    return count - (rules->has_eod && count > 0 && tokens[count - 1] == rules->eod);
}

void stk_token_row_add(struct stk_token_row *row, const struct stk_token_row_rules *rules,
                       uint64_t count, bool begins, const int64_t *next_token, uint64_t key)
{
    int64_t *tokens = row->tokens + row->count;
    uint64_t body = body_count(rules, tokens, count), before = row->count;
    bool may_change =
        (!rules->fim.uncut_only || (begins && !next_token)) && stk_fim_may_change(&rules->fim, key);

    STK_ASSERT(count <= row->capacity - row->count);
    begin_document(row);
    row->next_token = next_token ? *next_token : STK_TOKEN_ROW_LABEL_IGNORED;
    if (may_change) {
        memcpy(row->scratch, tokens, count * sizeof *tokens);
    }
    if (may_change && put_changed(row, rules, row->scratch, body, key)) {
        row->next_token = STK_TOKEN_ROW_LABEL_IGNORED; /* the middle is the last part now */
        put(row, row->scratch + body, count - body);
        STK_ASSERT(row->count - before <= count + stk_fim_added_max(&rules->fim));
    } else {
        row->count += count;
    }
    if (!next_token && rules->append_eod) {
        put(row, &rules->eod, 1);
    }
}

/* Returns the end of the document that begins at `first`: after its EOD, or the window's end. */
static uint64_t document_end(const struct stk_token_row_rules *rules, const int64_t *tokens,
                             uint64_t first, uint64_t count)
{
    uint64_t at = first;

    while (at < count && !(rules->has_eod && tokens[at] == rules->eod)) {
        at++;
    }
    return stk_min(at + 1, count);
}

void stk_token_row_add_window(struct stk_token_row *row, const struct stk_token_row_rules *rules,
                              uint64_t count, uint64_t key)
{
    const int64_t *tokens = row->tokens;
    bool changes = rules->fim.rate > 0;

    STK_ASSERT(row->count == 0 && count <= row->capacity);
    if (changes) {
        memcpy(row->scratch, row->tokens, count * sizeof *tokens);
        tokens = row->scratch;
    }
    for (uint64_t first = 0, end, number = 0; first < count; first = end, number++) {
        uint64_t body, document_key = changes ? stk_random_key(key, number) : 0;
        bool is_complete;

        end = rules->has_eod ? document_end(rules, tokens, first, count) : count;
        body = body_count(rules, tokens + first, end - first);
        is_complete =
            number > 0 && body < end - first; /* begins after an EOD, and ends with its own */
        begin_document(row);
        if (changes && (is_complete || !rules->fim.uncut_only) &&
            put_changed(row, rules, tokens + first, body, document_key)) {
            put(row, tokens + first + body, end - first - body);
        } else if (changes) {
            put(row, tokens + first, end - first);
        } else {
            row->count = end;
        }
    }
}

/* ---- writing ---- */

static void fill(void *out, uint32_t dtype, uint64_t from, uint64_t end, int32_t value)
{
    for (uint64_t i = from; i < end && dtype == STOKER_INT32; i++) {
        ((int32_t *)out)[i] = value;
    }
    for (uint64_t i = from; i < end && dtype == STOKER_INT64; i++) {
        ((int64_t *)out)[i] = value;
    }
}

/* out[from .. end) = 0, 1, 2, ... */
static void fill_count(void *out, uint32_t dtype, uint64_t from, uint64_t end)
{
    for (uint64_t i = from; i < end && dtype == STOKER_INT32; i++) {
        ((int32_t *)out)[i] = (int32_t)(i - from);
    }
    for (uint64_t i = from; i < end && dtype == STOKER_INT64; i++) {
        ((int64_t *)out)[i] = (int64_t)(i - from);
    }
}

static bool copy(void *out, uint32_t dtype, const int64_t *tokens, uint64_t count)
{
    int32_t *narrow = out;
    int64_t bad = 0;

    if (dtype == STOKER_INT64) {
        memcpy(out, tokens, count * sizeof *tokens);
        return true;
    }
    for (uint64_t i = 0; i < count; i++) {
        narrow[i] = (int32_t)tokens[i];
        bad |= tokens[i] ^ narrow[i];
    }
    return bad == 0;
}

static bool write_labels(const struct stk_token_row *row, const struct stk_token_row_rules *rules,
                         const struct stk_token_row_output *out, uint64_t count)
{
    bool more = row->count > out->length; /* one more token: it is the last label */
    uint64_t shifted = count - (count > 0 && !more);
    bool fits = copy(out->labels, out->dtype, row->tokens + 1, shifted);

    if (shifted < count) {
        uint64_t size = out->dtype == STOKER_INT32 ? 4 : 8;

        fits =
            copy((uint8_t *)out->labels + shifted * size, out->dtype, &row->next_token, 1) && fits;
    }
    for (uint32_t i = 1; rules->mask_ends && i < row->start_count && row->starts[i] <= count; i++) {
        fill(out->labels, out->dtype, row->starts[i] - 1, row->starts[i],
             STK_TOKEN_ROW_LABEL_IGNORED);
    }
    fill(out->labels, out->dtype, count, out->length, STK_TOKEN_ROW_LABEL_IGNORED);
    return fits;
}

/* Labels for models that shift them: a label belongs to the prediction at the token before it, so
 * the first token of a document has none. */
static bool write_unshifted_labels(const struct stk_token_row *row,
                                   const struct stk_token_row_rules *rules,
                                   const struct stk_token_row_output *out, uint64_t count)
{
    bool fits = copy(out->labels, out->dtype, row->tokens, count);

    for (uint32_t i = 0; rules->mask_ends && i < row->start_count && row->starts[i] < count; i++) {
        fill(out->labels, out->dtype, row->starts[i], row->starts[i] + 1,
             STK_TOKEN_ROW_LABEL_IGNORED);
    }
    fill(out->labels, out->dtype, count, out->length, STK_TOKEN_ROW_LABEL_IGNORED);
    return fits;
}

static void write_positions(const struct stk_token_row *row,
                            const struct stk_token_row_rules *rules,
                            const struct stk_token_row_output *out, uint64_t count)
{
    if (rules->row_positions) {
        fill_count(out->positions, out->dtype, 0, out->length);
        return;
    }
    for (uint32_t i = 0; i < row->start_count && row->starts[i] < count; i++) {
        uint64_t end = i + 1 < row->start_count ? stk_min(row->starts[i + 1], count) : count;

        fill_count(out->positions, out->dtype, row->starts[i], end);
    }
    fill_count(out->positions, out->dtype, count, out->length);
}

bool stk_token_row_write(const struct stk_token_row *row, const struct stk_token_row_rules *rules,
                         const struct stk_token_row_output *out)
{
    uint64_t count = stk_min(row->count, out->length);
    bool fits = true;

    if (out->tokens) {
        fits = copy(out->tokens, out->dtype, row->tokens, count);
        fill(out->tokens, out->dtype, count, out->length, rules->pad);
    }
    if (out->labels) {
        fits = (rules->labels_unshifted ? write_unshifted_labels(row, rules, out, count)
                                        : write_labels(row, rules, out, count)) &&
               fits;
    }
    if (out->positions) {
        write_positions(row, rules, out, count);
    }
    return fits;
}

uint64_t stk_token_row_starts(const struct stk_token_row *row, uint64_t length,
                              uint32_t *starts_out)
{
    uint64_t count = 0;

    while (count < row->start_count && row->starts[count] < length) {
        starts_out[count] = row->starts[count];
        count++;
    }
    if (row->count < length) {
        starts_out[count++] = (uint32_t)row->count;
    }
    return count;
}
