/* Places that are told: access points of an index, which also prove what lies between them, and the
 * seek table of zstd. */
#include "tape/places.h"

#include "base/mem.h"
#include "format/access.h"
#include "format/unpack.h"

#include <errno.h>
#include <string.h>

enum { ENTRIES = 256 /* of a seek table at a time */ };

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

static int add_wrong(struct stk_tape *tape, struct stoker_error *error)
{
    struct stk_wrong *last = tape->wrong_count ? &tape->wrongs[tape->wrong_count - 1] : NULL;

    if (last && last->to == tape->proof.from) {
        last->to = tape->proof.to;
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
    tape->wrongs[tape->wrong_count++] = (struct stk_wrong){tape->proof.from, tape->proof.to};
    return 0;
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
                status = add_wrong(tape, error);
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

static int64_t read_at(struct stk_tape *tape, uint64_t at, uint8_t *to, size_t bytes)
{
    return stk_io_read_wait(tape->reader->engine->io, tape->reader->file, at, to, bytes);
}

/* A table that says nothing is none. */
static void ask_table(struct stk_tape *tape)
{
    uint8_t foot[STK_SEEKABLE_FOOT_BYTES], head[STK_SEEKABLE_HEAD_BYTES];
    uint64_t bytes = tape->reader->bytes;

    tape->table_asked = true;
    if (tape->packing != STK_ZSTD || bytes < sizeof foot + sizeof head ||
        read_at(tape, bytes - sizeof foot, foot, sizeof foot) != (int64_t)sizeof foot ||
        stk_seekable_foot((struct stk_view){foot, sizeof foot}, bytes, &tape->table, NULL) != 1 ||
        read_at(tape, tape->table.at, head, sizeof head) != (int64_t)sizeof head ||
        !stk_seekable_head_good(&tape->table, head)) {
        tape->table = (struct stk_seekable){0};
    }
}

int stk_tape_from_table(struct stk_tape *tape, struct stoker_error *error)
{
    uint64_t from = stk_max(tape->packed_at, tape->tried_at);
    uint8_t entries[12 * ENTRIES];
    uint64_t first = 0, got = 0;
    int status;

    if (!tape->table_asked) {
        ask_table(tape);
    }
    /* Each entry once, over all damage: places only go forward. */
    while (tape->table_next < tape->table.frame_count && tape->table_in < from) {
        uint32_t packed_bytes, bytes;

        if (tape->table_next >= first + got) {
            size_t want = (size_t)stk_min(ENTRIES, tape->table.frame_count - tape->table_next) *
                          tape->table.entry_bytes;

            if (read_at(tape, stk_seekable_entry_at(&tape->table, tape->table_next), entries,
                        want) != (int64_t)want) {
                return 0;
            }
            first = tape->table_next;
            got = want / tape->table.entry_bytes;
        }
        stk_seekable_entry(entries + (tape->table_next - first) * tape->table.entry_bytes,
                           &packed_bytes, &bytes);
        tape->table_in += packed_bytes;
        tape->table_out += bytes;
        tape->table_next++;
    }
    if (tape->table_next >= tape->table.frame_count || tape->table_in >= tape->table.at) {
        return 0;
    }
    status = stk_tape_wind(tape, tape->table_in, error);
    status = status < 0 ? status : stk_tape_reopen(tape, tape->bytes, error);
    if (status < 0) {
        return status;
    }
    stk_tape_begin_exact(tape, tape->table_in, tape->table_out);
    return 1;
}
