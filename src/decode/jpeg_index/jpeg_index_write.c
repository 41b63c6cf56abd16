/* Making the file: entries as they come, the table and the sums of pages behind them. */
#include "decode/jpeg_index/jpeg_index_file.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "io/atomic_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BUFFER_PAGES 64u

struct stk_jpeg_index_writer {
    struct stk_atomic_file file;
    uint64_t *table; /* owned: samples + 1 */
    uint64_t samples, added, at;
    uint64_t *sums; /* owned: of pages */
    uint64_t sum_count, sum_capacity;
    uint8_t *buffer; /* owned: BUFFER_PAGES pages */
    size_t used;
};

/* Only the last page may be short: called with a full buffer, or at the end. */
static int flush(struct stk_jpeg_index_writer *writer, struct stoker_error *error)
{
    uint64_t pages = (writer->used + STK_JPEG_INDEX_PAGE_BYTES - 1) / STK_JPEG_INDEX_PAGE_BYTES;
    int status;

    if (writer->sum_capacity - writer->sum_count < pages) {
        uint64_t capacity = 2 * (writer->sum_capacity + pages);
        uint64_t *sums =
            stk_realloc(writer->sums, writer->sum_capacity, capacity, sizeof *writer->sums);

        if (!sums) {
            return stk_fail_memory(error, "JPEG index");
        }
        writer->sums = sums;
        writer->sum_capacity = capacity;
    }
    for (size_t from = 0; from < writer->used; from += STK_JPEG_INDEX_PAGE_BYTES) {
        writer->sums[writer->sum_count++] = stk_xxh3_64(
            writer->buffer + from, stk_min(STK_JPEG_INDEX_PAGE_BYTES, writer->used - from));
    }
    status = stk_atomic_file_write(&writer->file, writer->buffer, writer->used, error);
    writer->used = 0;
    return status;
}

static int put(struct stk_jpeg_index_writer *writer, const void *data, uint64_t bytes,
               struct stoker_error *error)
{
    const size_t capacity = (size_t)BUFFER_PAGES * STK_JPEG_INDEX_PAGE_BYTES;
    const uint8_t *from = data;
    int status = 0;

    writer->at += bytes;
    while (status == 0 && bytes > 0) {
        size_t part = (size_t)stk_min(bytes, capacity - writer->used);

        memcpy(writer->buffer + writer->used, from, part);
        writer->used += part;
        from += part;
        bytes -= part;
        status = writer->used == capacity ? flush(writer, error) : 0;
    }
    return status;
}

int stk_jpeg_index_writer_open(struct stk_jpeg_index_writer **writer_out, struct stk_io *io,
                               const struct stk_jpeg_index_options *plan,
                               struct stoker_error *error)
{
    struct stk_jpeg_index_header head = {.version = STK_JPEG_INDEX_VERSION,
                                         .page_bytes = STK_JPEG_INDEX_PAGE_BYTES,
                                         .samples = plan->samples,
                                         .mcus = plan->mcus};
    struct stk_jpeg_index_writer *writer;
    int status;

    *writer_out = NULL;
    if (plan->samples > STK_JPEG_INDEX_SAMPLES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "too many samples for marks of JPEGs",
                        "cut the data set", "%llu samples", (unsigned long long)plan->samples);
    }
    writer = stk_alloc(1, sizeof *writer);
    if (!writer) {
        return stk_fail_memory(error, "JPEG index");
    }
    writer->samples = plan->samples;
    writer->table = stk_alloc(plan->samples + 1, sizeof *writer->table);
    writer->buffer = stk_alloc(BUFFER_PAGES, STK_JPEG_INDEX_PAGE_BYTES);
    status = writer->table && writer->buffer
                 ? stk_atomic_file_open(&writer->file, io, plan->path, ".new", error)
                 : stk_fail_memory(error, "JPEG index");
    memcpy(head.magic, STK_JPEG_INDEX_HEADER_MAGIC, sizeof head.magic);
    memcpy(head.identity, plan->identity, sizeof head.identity);
    status = status < 0 ? status : put(writer, &head, sizeof head, error);
    if (status < 0) {
        stk_jpeg_index_writer_close(writer);
        return status;
    }
    *writer_out = writer;
    return 0;
}

int stk_jpeg_index_writer_add(struct stk_jpeg_index_writer *writer, struct stk_view entries,
                              struct stoker_error *error)
{
    STK_ASSERT(writer->added < writer->samples);
    writer->table[writer->added++] = writer->at;
    return put(writer, entries.data, entries.bytes, error);
}

static int put_end(struct stk_jpeg_index_writer *writer, struct stoker_error *error)
{
    static const uint8_t zeros[8];
    struct stk_jpeg_index_footer foot = {0};
    uint64_t sums_bytes;
    int status;

    writer->table[writer->samples] = writer->at;
    status = put(writer, zeros, -writer->at % 8, error);
    foot.table_at = writer->at;
    status = status < 0
                 ? status
                 : put(writer, writer->table, (writer->samples + 1) * sizeof *writer->table, error);
    foot.pages_at = writer->at;
    status = status < 0 ? status : flush(writer, error);
    if (status < 0) {
        return status;
    }
    sums_bytes = writer->sum_count * sizeof *writer->sums;
    memcpy(foot.magic, STK_JPEG_INDEX_FOOTER_MAGIC, sizeof foot.magic);
    foot.file_bytes = foot.pages_at + sums_bytes + sizeof foot;
    foot.pages_sum = stk_xxh3_64(writer->sums, sums_bytes);
    foot.foot_sum = stk_xxh3_64(&foot, offsetof(struct stk_jpeg_index_footer, foot_sum));
    writer->at = foot.file_bytes;
    status = stk_atomic_file_write(&writer->file, writer->sums, sums_bytes, error);
    return status < 0 ? status : stk_atomic_file_write(&writer->file, &foot, sizeof foot, error);
}

int stk_jpeg_index_writer_commit(struct stk_jpeg_index_writer *writer, uint64_t *bytes_out,
                                 struct stoker_error *error)
{
    int status;

    STK_ASSERT(writer->added == writer->samples);
    status = put_end(writer, error);
    if (status < 0) {
        return status;
    }
    *bytes_out = writer->at;
    return stk_atomic_file_commit(&writer->file, STK_ATOMIC_FILE_SYNC_DIRECTORY, error);
}

void stk_jpeg_index_writer_close(struct stk_jpeg_index_writer *writer)
{
    if (!writer) {
        return;
    }
    stk_atomic_file_close(&writer->file);
    stk_free(writer->table);
    stk_free(writer->sums);
    stk_free(writer->buffer);
    stk_free(writer);
}
