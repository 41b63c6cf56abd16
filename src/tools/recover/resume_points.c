/* Resume points: seek points of an index, whose checksums also verify the data between them, and
 * blocks of bzip2. Records errors at the ends of streams. */
#include "tools/recover/resume_points.h"

#include "base/mem.h"
#include "format/compress/decompress.h"
#include "format/compress/seek_points.h"

#include <errno.h>
#include <string.h>

static const void *access_at(const struct stk_shard_reader *shard_reader, uint64_t at, size_t bytes)
{
    return stk_index_seek_points(shard_reader->options.index, shard_reader->options.shard, at,
                                 bytes, NULL);
}

static bool read_point(const struct stk_shard_reader *shard_reader, uint64_t number,
                       struct stk_seek_point *point)
{
    const void *at = access_at(shard_reader, stk_seek_points_offset(number), sizeof *point);

    if (at) {
        memcpy(point, at, sizeof *point);
    }
    return at != NULL;
}

/* Returns the head of the shard's access points; false if none match the file. */
static bool read_head(const struct stk_shard_reader *shard_reader,
                      struct stk_seek_points_head *head, uint64_t *bytes)
{
    const struct stk_shard_reader_options *options = &shard_reader->options;
    const void *at;

    *bytes = options->index ? stk_index_seek_points_bytes(options->index, options->shard) : 0;
    at = *bytes < sizeof *head ? NULL : access_at(shard_reader, 0, sizeof *head);
    if (!at) {
        return false;
    }
    memcpy(head, at, sizeof *head);
    return stk_seek_points_head_is_valid(head, *bytes, shard_reader->compression,
                                         shard_reader->reader->bytes);
}

/* Returns point `number`, and the end of its data. */
static bool read_segment(const struct stk_shard_reader *shard_reader,
                         const struct stk_seek_points_head *head, uint64_t bytes, uint64_t number,
                         struct stk_seek_point *point, uint64_t *end)
{
    struct stk_seek_point next;
    bool has_next = number + 1 < head->point_count;

    return number < head->point_count && read_point(shard_reader, number, point) &&
           (!has_next || read_point(shard_reader, number + 1, &next)) &&
           stk_seek_points_segment(head, bytes, number, point, has_next ? &next : NULL, end);
}

/* Returns the first point at or after the damage, with its window. */
static bool find_point(const struct stk_shard_reader *shard_reader, uint64_t *number_out,
                       struct stk_seek_point *point, uint8_t window[STK_SEEK_POINTS_WINDOW_BYTES],
                       size_t *window_bytes)
{
    uint64_t from = stk_max(shard_reader->compressed_offset, shard_reader->tried_offset), low = 0,
             high, end, bytes;
    struct stk_seek_points_head head;
    struct stk_view stored = {NULL, 0};

    if (!read_head(shard_reader, &head, &bytes)) {
        return false;
    }
    for (high = head.point_count; low < high;) {
        uint64_t middle = low + (high - low) / 2;

        if (!read_point(shard_reader, middle, point)) {
            return false;
        }
        if (point->in >= from) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if (!read_segment(shard_reader, &head, bytes, low, point, &end) || point->in < from) {
        return false;
    }
    *number_out = low;
    stored.bytes = point->window_bytes;
    stored.data = stored.bytes ? access_at(shard_reader, point->window_at, stored.bytes) : NULL;
    return (stored.data || !stored.bytes) &&
           stk_seek_points_window(point, stored, window, window_bytes) == 0;
}

/* ---- sums between points ---------------------------------------------------------------- */

/* Decompression is at seek point `number`. Returns false if no data is compared from here on. */
static bool verify_from(struct stk_shard_reader *shard_reader, uint64_t number)
{
    struct stk_seek_points_head head;
    struct stk_seek_point point;
    uint64_t bytes;

    shard_reader->verification.proving =
        shard_reader->verification.sum && read_head(shard_reader, &head, &bytes) &&
        read_segment(shard_reader, &head, bytes, number, &point, &shard_reader->verification.to);
    if (shard_reader->verification.proving) {
        shard_reader->verification.count = head.point_count;
        shard_reader->verification.number = number;
        shard_reader->verification.from = shard_reader->verification.at = point.out;
        shard_reader->verification.want = point.checksum;
    }
    return shard_reader->verification.proving;
}

int stk_shard_reader_verify_start(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    struct stk_seek_points_head head;
    uint64_t bytes;

    if (!read_head(shard_reader, &head, &bytes)) {
        return 0;
    }
    shard_reader->verification.sum = stk_xxh3_open();
    if (!shard_reader->verification.sum) {
        return stk_shard_reader_fail_memory(error);
    }
    (void)verify_from(shard_reader, 0);
    return 0;
}

void stk_shard_reader_verify_stop(struct stk_shard_reader *shard_reader)
{
    stk_xxh3_close(shard_reader->verification.sum);
    stk_free(shard_reader->errors);
    shard_reader->verification.sum = NULL;
    shard_reader->errors = NULL;
}

uint64_t stk_shard_reader_unverified_bytes(const struct stk_shard_reader *shard_reader)
{
    return shard_reader->verification.at - shard_reader->verification.from;
}

/* One more, or the last one is longer: side by side, or there are too many. */
static int add_error(struct stk_shard_reader *shard_reader,
                     const struct stk_shard_error *shard_error, struct stoker_error *error)
{
    struct stk_shard_error *last =
        shard_reader->error_count ? &shard_reader->errors[shard_reader->error_count - 1] : NULL;

    if (last && ((last->kind == shard_error->kind && last->to == shard_error->from) ||
                 shard_reader->error_count >= STK_SHARD_READER_ERRORS_MAX)) {
        last->kind = stk_min(last->kind, shard_error->kind);
        last->to = shard_error->to;
        last->count++;
        return 0;
    }
    if (shard_reader->error_count == shard_reader->error_capacity) {
        uint32_t capacity = stk_max(2 * shard_reader->error_capacity, 16);
        void *wrongs = stk_realloc(shard_reader->errors, shard_reader->error_capacity, capacity,
                                   sizeof *shard_reader->errors);

        if (!wrongs) {
            return stk_shard_reader_fail_memory(error);
        }
        shard_reader->errors = wrongs;
        shard_reader->error_capacity = capacity;
    }
    shard_reader->errors[shard_reader->error_count] = *shard_error;
    shard_reader->errors[shard_reader->error_count++].count = 1;
    return 0;
}

/* Checks whether checksums of the index were wrong in the range. */
static bool checksums_differ(const struct stk_shard_reader *shard_reader,
                             const struct stk_shard_error *part)
{
    const struct stk_shard_error *last =
        shard_reader->error_count ? &shard_reader->errors[shard_reader->error_count - 1] : NULL;

    return last && last->kind == STK_SHARD_ERROR_INDEX && last->to > part->from;
}

int stk_shard_reader_stream_ended(struct stk_shard_reader *shard_reader,
                                  const struct stk_decompress_end *ended, uint64_t end,
                                  struct stoker_error *error)
{
    static const uint8_t kinds[] = {[STK_DECOMPRESS_CHECK_NONE] = STK_SHARD_ERROR_UNVERIFIED,
                                    [STK_DECOMPRESS_CHECK_MISMATCH] = STK_SHARD_ERROR_CHECKSUM,
                                    [STK_DECOMPRESS_CHECK_BAD_TRAILER] =
                                        STK_SHARD_ERROR_STREAM_END};
    uint64_t stream_bytes = stk_min(ended->bytes, end - stk_min(shard_reader->floor, end));
    struct stk_shard_error shard_error = {.from = end - stream_bytes,
                                          .to = end,
                                          .compressed_offset = shard_reader->compressed_offset};
    uint32_t check = ended->check;

    if (shard_reader->gap_open) {
        return 0; /* none of its data was returned */
    }
    if (shard_reader->table.comparing && !shard_reader->inexact) {
        check = stk_shard_reader_check_seek_table(
            shard_reader, ended, shard_reader->skip > 0 ? end - shard_reader->skip : end);
    }
    if (shard_reader->verification.proving &&
        stk_shard_reader_unverified_bytes(shard_reader) == 0) { /* the index's sums tell more */
        check =
            check == STK_DECOMPRESS_CHECK_MISMATCH && !checksums_differ(shard_reader, &shard_error)
                ? STK_DECOMPRESS_CHECK_BAD_TRAILER
            : check == STK_DECOMPRESS_CHECK_BAD_TRAILER ? STK_DECOMPRESS_CHECK_BAD_TRAILER
                                                        : STK_DECOMPRESS_CHECK_OK;
    }
    shard_reader->position_unknown = check == STK_DECOMPRESS_CHECK_MISMATCH && !ended->size_matches;
    if (shard_reader->position_unknown || check == STK_DECOMPRESS_CHECK_OK ||
        (check == STK_DECOMPRESS_CHECK_NONE && ended->skippable)) {
        return 0;
    }
    shard_error.kind = kinds[check];
    return add_error(shard_reader, &shard_error, error);
}

int stk_shard_reader_verify(struct stk_shard_reader *shard_reader, struct stk_view bytes,
                            struct stoker_error *error)
{
    int status = 0;

    while (status == 0 && shard_reader->verification.proving && bytes.bytes > 0) {
        size_t part =
            stk_min(bytes.bytes, shard_reader->verification.to - shard_reader->verification.at);

        if (part == 0) { /* after the last one */
            shard_reader->verification.at += bytes.bytes;
            break;
        }
        stk_xxh3_add(shard_reader->verification.sum, bytes.data, part);
        bytes.data += part;
        bytes.bytes -= part;
        shard_reader->verification.at += part;
        if (shard_reader->verification.at == shard_reader->verification.to) {
            if (stk_xxh3_done(shard_reader->verification.sum) != shard_reader->verification.want) {
                status =
                    add_error(shard_reader,
                              &(struct stk_shard_error){.from = shard_reader->verification.from,
                                                        .to = shard_reader->verification.to,
                                                        .kind = STK_SHARD_ERROR_INDEX},
                              error);
            }
            shard_reader->verification.from = shard_reader->verification.at;
            if (shard_reader->verification.number + 1 < shard_reader->verification.count) {
                (void)verify_from(shard_reader, shard_reader->verification.number + 1);
            }
        }
    }
    return status;
}

/* ---- after damage ---------------------------------------------------------------------- */

int stk_shard_reader_resume_from_index(struct stk_shard_reader *shard_reader,
                                       struct stoker_error *error)
{
    uint8_t *window = stk_alloc(STK_SEEK_POINTS_WINDOW_BYTES, 1);
    struct stk_seek_point point;
    size_t window_bytes = 0;
    uint64_t number;
    int status = window ? 0 : stk_shard_reader_fail_memory(error);

    if (status == 0 && find_point(shard_reader, &number, &point, window, &window_bytes)) {
        status = stk_shard_reader_skip_to(shard_reader, point.in, error);
        status = status < 0 ? status : stk_shard_reader_reopen(shard_reader, 0, error);
        if (status == 0 &&
            stk_decompress_start_at(shard_reader->decompress, &point,
                                    (struct stk_view){window, window_bytes}, NULL) == 0) {
            stk_shard_reader_resume_at(shard_reader, point.in, point.out);
            shard_reader->verification.proving =
                verify_from(shard_reader, number) && shard_reader->gap.exact;
            status = 1;
        }
    }
    stk_free(window);
    return status;
}

/* ---- blocks of bzip2 -------------------------------------------------------------------- */

/* Searches after the start of the block that failed: the library may have read the next ones. */
static int start_blocks(struct stk_shard_reader *shard_reader, struct stoker_error *error)
{
    uint64_t at =
        shard_reader->opened_at + stk_decompress_error_offset(shard_reader->decompress) + 1;
    int status;

    shard_reader->compressed = shard_reader->lookahead = shard_reader->raw = (struct stk_view){0};
    at = stk_min(at, shard_reader->reader->bytes);
    status = stk_read_ahead_seek(shard_reader->reader, at, error);
    return status < 0
               ? status
               : stk_bzip2_blocks_open(&shard_reader->blocks, at,
                                       stk_engine_allocator(shard_reader->reader->engine), error);
}

int stk_shard_reader_resume_from_blocks(struct stk_shard_reader *shard_reader,
                                        struct stoker_error *error)
{
    int status = 0;

    if (shard_reader->compression != STK_COMPRESSION_BZIP2 ||
        shard_reader->tries++ >= STK_SHARD_READER_TRIES_MAX) {
        return 0;
    }
    if (!shard_reader->blocks) {
        status = start_blocks(shard_reader, error);
    }
    status = status < 0 ? status : stk_shard_reader_next_block(shard_reader, error);
    shard_reader->aligning = status == 1;
    shard_reader->skip = 0;
    return status;
}
