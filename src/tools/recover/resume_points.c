/* Places to go on: access points of an index, which also prove what lies between them, and blocks
 * of bzip2. What streams say by their ends. */
#include "tools/recover/resume_points.h"

#include "base/mem.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"

#include <errno.h>
#include <string.h>

static const void *access_at(const struct stk_tape *tape, uint64_t at, size_t bytes)
{
    return stk_index_access(tape->options.index, tape->options.shard, at, bytes, NULL);
}

static bool read_point(const struct stk_tape *tape, uint64_t number, struct stk_access_point *point)
{
    const void *at = access_at(tape, stk_access_point_at(number), sizeof *point);

    if (at) {
        memcpy(point, at, sizeof *point);
    }
    return at != NULL;
}

/* The head of the shard's access points; false: there are none that fit the file. */
static bool read_head(const struct stk_tape *tape, struct stk_access_head *head, uint64_t *bytes)
{
    const struct stk_tape_options *options = &tape->options;
    const void *at;

    *bytes = options->index ? stk_index_access_bytes(options->index, options->shard) : 0;
    at = *bytes < sizeof *head ? NULL : access_at(tape, 0, sizeof *head);
    if (!at) {
        return false;
    }
    memcpy(head, at, sizeof *head);
    return stk_access_head_good(head, *bytes, tape->packing, tape->reader->bytes);
}

/* Point `number`, and where what it begins ends. */
static bool read_segment(const struct stk_tape *tape, const struct stk_access_head *head,
                         uint64_t bytes, uint64_t number, struct stk_access_point *point,
                         uint64_t *end)
{
    struct stk_access_point next;
    bool has_next = number + 1 < head->point_count;

    return number < head->point_count && read_point(tape, number, point) &&
           (!has_next || read_point(tape, number + 1, &next)) &&
           stk_access_segment(head, bytes, number, point, has_next ? &next : NULL, end);
}

/* The first point at or behind the damage, with its window. */
static bool find_point(const struct stk_tape *tape, uint64_t *number_out,
                       struct stk_access_point *point, uint8_t window[STK_ACCESS_WINDOW],
                       size_t *window_bytes)
{
    uint64_t from = stk_max(tape->packed_at, tape->tried_at), low = 0, high, end, bytes;
    struct stk_access_head head;
    struct stk_view stored = {NULL, 0};

    if (!read_head(tape, &head, &bytes)) {
        return false;
    }
    for (high = head.point_count; low < high;) {
        uint64_t middle = low + (high - low) / 2;

        if (!read_point(tape, middle, point)) {
            return false;
        }
        if (point->in >= from) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if (!read_segment(tape, &head, bytes, low, point, &end) || point->in < from) {
        return false;
    }
    *number_out = low;
    stored.bytes = point->window_bytes;
    stored.data = stored.bytes ? access_at(tape, point->window_at, stored.bytes) : NULL;
    return (stored.data || !stored.bytes) &&
           stk_access_window(point, stored, window, window_bytes) == 0;
}

/* ---- sums between points ---------------------------------------------------------------- */

/* Unpacking is at point `number` of the index; false: nothing is compared from here on. */
static bool prove_from(struct stk_tape *tape, uint64_t number)
{
    struct stk_access_head head;
    struct stk_access_point point;
    uint64_t bytes;

    tape->proof.proving = tape->proof.sum && read_head(tape, &head, &bytes) &&
                          read_segment(tape, &head, bytes, number, &point, &tape->proof.to);
    if (tape->proof.proving) {
        tape->proof.count = head.point_count;
        tape->proof.number = number;
        tape->proof.from = tape->proof.at = point.out;
        tape->proof.want = point.sum;
    }
    return tape->proof.proving;
}

int stk_tape_prove_start(struct stk_tape *tape, struct stoker_error *error)
{
    struct stk_access_head head;
    uint64_t bytes;

    if (!read_head(tape, &head, &bytes)) {
        return 0;
    }
    tape->proof.sum = stk_sum_open();
    if (!tape->proof.sum) {
        return stk_tape_no_memory(error);
    }
    (void)prove_from(tape, 0);
    return 0;
}

void stk_tape_prove_stop(struct stk_tape *tape)
{
    stk_sum_close(tape->proof.sum);
    stk_free(tape->wrongs);
    tape->proof.sum = NULL;
    tape->wrongs = NULL;
}

uint64_t stk_tape_unproved(const struct stk_tape *tape)
{
    return tape->proof.at - tape->proof.from;
}

/* One more, or the last one is longer: side by side, or there are too many. */
static int add_wrong(struct stk_tape *tape, const struct stk_wrong *wrong,
                     struct stoker_error *error)
{
    struct stk_wrong *last = tape->wrong_count ? &tape->wrongs[tape->wrong_count - 1] : NULL;

    if (last && ((last->kind == wrong->kind && last->to == wrong->from) ||
                 tape->wrong_count >= STK_TAPE_WRONGS_MAX)) {
        last->kind = stk_min(last->kind, wrong->kind);
        last->to = wrong->to;
        last->count++;
        return 0;
    }
    if (tape->wrong_count == tape->wrong_capacity) {
        uint32_t capacity = stk_max(2 * tape->wrong_capacity, 16);
        void *wrongs =
            stk_realloc(tape->wrongs, tape->wrong_capacity, capacity, sizeof *tape->wrongs);

        if (!wrongs) {
            return stk_tape_no_memory(error);
        }
        tape->wrongs = wrongs;
        tape->wrong_capacity = capacity;
    }
    tape->wrongs[tape->wrong_count] = *wrong;
    tape->wrongs[tape->wrong_count++].count = 1;
    return 0;
}

/* Whether sums of the index were wrong in it. */
static bool sums_differ(const struct stk_tape *tape, const struct stk_wrong *part)
{
    const struct stk_wrong *last = tape->wrong_count ? &tape->wrongs[tape->wrong_count - 1] : NULL;

    return last && last->kind == STK_WRONG_INDEX && last->to > part->from;
}

int stk_tape_ended(struct stk_tape *tape, const struct stk_ended *ended, uint64_t end,
                   struct stoker_error *error)
{
    static const uint8_t kinds[] = {[STK_PROOF_NONE] = STK_WRONG_NONE,
                                    [STK_PROOF_WRONG] = STK_WRONG_SUM,
                                    [STK_PROOF_ODD] = STK_WRONG_END};
    uint64_t given = stk_min(ended->bytes, end - stk_min(tape->floor, end));
    struct stk_wrong wrong = {.from = end - given, .to = end, .packed_at = tape->packed_at};
    uint32_t proof = ended->proof;

    if (tape->gap_open) {
        return 0; /* nothing of it is given */
    }
    if (tape->table.comparing && !tape->inexact) {
        proof = stk_tape_compare_table(tape, ended, tape->skip > 0 ? end - tape->skip : end);
    }
    if (tape->proof.proving && stk_tape_unproved(tape) == 0) { /* the index's sums tell more */
        proof = proof == STK_PROOF_WRONG && !sums_differ(tape, &wrong) ? STK_PROOF_ODD
                : proof == STK_PROOF_ODD                               ? STK_PROOF_ODD
                                                                       : STK_PROOF_RIGHT;
    }
    tape->misplaced = proof == STK_PROOF_WRONG && !ended->sized;
    if (tape->misplaced || proof == STK_PROOF_RIGHT || (proof == STK_PROOF_NONE && ended->empty)) {
        return 0;
    }
    wrong.kind = kinds[proof];
    return add_wrong(tape, &wrong, error);
}

int stk_tape_prove(struct stk_tape *tape, struct stk_view bytes, struct stoker_error *error)
{
    int status = 0;

    while (status == 0 && tape->proof.proving && bytes.bytes > 0) {
        size_t part = stk_min(bytes.bytes, tape->proof.to - tape->proof.at);

        if (part == 0) { /* behind the last one */
            tape->proof.at += bytes.bytes;
            break;
        }
        stk_sum_add(tape->proof.sum, bytes.data, part);
        bytes.data += part;
        bytes.bytes -= part;
        tape->proof.at += part;
        if (tape->proof.at == tape->proof.to) {
            if (stk_sum_done(tape->proof.sum) != tape->proof.want) {
                status = add_wrong(tape,
                                   &(struct stk_wrong){.from = tape->proof.from,
                                                       .to = tape->proof.to,
                                                       .kind = STK_WRONG_INDEX},
                                   error);
            }
            tape->proof.from = tape->proof.at;
            if (tape->proof.number + 1 < tape->proof.count) {
                (void)prove_from(tape, tape->proof.number + 1);
            }
        }
    }
    return status;
}

/* ---- behind damage ---------------------------------------------------------------------- */

int stk_tape_from_index(struct stk_tape *tape, struct stoker_error *error)
{
    uint8_t *window = stk_alloc(STK_ACCESS_WINDOW, 1);
    struct stk_access_point point;
    size_t window_bytes = 0;
    uint64_t number;
    int status = window ? 0 : stk_tape_no_memory(error);

    if (status == 0 && find_point(tape, &number, &point, window, &window_bytes)) {
        status = stk_tape_wind(tape, point.in, error);
        status = status < 0 ? status : stk_tape_reopen(tape, 0, error);
        if (status == 0 && stk_unpack_start(tape->unpack, &point,
                                            (struct stk_view){window, window_bytes}, NULL) == 0) {
            stk_tape_begin_exact(tape, point.in, point.out);
            tape->proof.proving = prove_from(tape, number) && tape->gap.exact;
            status = 1;
        }
    }
    stk_free(window);
    return status;
}

/* ---- blocks of bzip2 -------------------------------------------------------------------- */

/* From behind the begin of the block that failed: unpacking may have run over the next ones. */
static int start_blocks(struct stk_tape *tape, struct stoker_error *error)
{
    uint64_t at = tape->opened_at + stk_unpack_failed_at(tape->unpack) + 1;
    int status;

    tape->packed = tape->behind = tape->raw = (struct stk_view){0};
    at = stk_min(at, tape->reader->bytes);
    status = stk_reader_seek(tape->reader, at, error);
    return status < 0
               ? status
               : stk_blocks_open(&tape->blocks, at, stk_engine_grant(tape->reader->engine), error);
}

int stk_tape_from_blocks(struct stk_tape *tape, struct stoker_error *error)
{
    int status = 0;

    if (tape->packing != STK_BZIP2 || tape->tries++ >= STK_TAPE_TRIES_MAX) {
        return 0;
    }
    if (!tape->blocks) {
        status = start_blocks(tape, error);
    }
    status = status < 0 ? status : stk_tape_next_block(tape, error);
    tape->aligning = status == 1;
    tape->skip = 0;
    return status;
}
