/* Writes the file: entries in the order of samples, then the table and the sums of pages. */
#include "decode/jpeg_index/jpeg_index_file.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "io/atomic_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct stk_jpeg_index_writer {
    struct stk_atomic_file file;
    uint64_t *table; /* owned: samples + 1 */
    uint64_t samples, added, file_bytes;
    struct stk_paged_writer pages;
};

static int emit(void *context, const void *data, size_t bytes, struct stoker_error *error)
{
    struct stk_jpeg_index_writer *writer = context;

    return stk_atomic_file_write(&writer->file, data, bytes, error);
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
    status = writer->table ? stk_paged_writer_open(&writer->pages, emit, writer, error)
                           : stk_fail_memory(error, "JPEG index");
    status =
        status < 0 ? status : stk_atomic_file_open(&writer->file, io, plan->path, ".new", error);
    memcpy(head.magic, STK_JPEG_INDEX_HEADER_MAGIC, sizeof head.magic);
    memcpy(head.identity, plan->identity, sizeof head.identity);
    status = status < 0 ? status : stk_paged_writer_put(&writer->pages, &head, sizeof head, error);
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
    writer->table[writer->added++] = writer->pages.at;
    return stk_paged_writer_put(&writer->pages, entries.data, entries.bytes, error);
}

static int put_end(struct stk_jpeg_index_writer *writer, struct stoker_error *error)
{
    struct stk_jpeg_index_footer foot = {0};
    struct stk_paged_layout layout;
    int status;

    writer->table[writer->samples] = writer->pages.at;
    status = stk_paged_writer_align(&writer->pages, error);
    foot.table_at = writer->pages.at;
    status = status < 0
                 ? status
                 : stk_paged_writer_put(&writer->pages, writer->table,
                                        (writer->samples + 1) * sizeof *writer->table, error);
    status =
        status < 0 ? status : stk_paged_writer_end(&writer->pages, sizeof foot, &layout, error);
    if (status < 0) {
        return status;
    }
    memcpy(foot.magic, STK_JPEG_INDEX_FOOTER_MAGIC, sizeof foot.magic);
    foot.file_bytes = writer->file_bytes = layout.file_bytes;
    foot.pages_at = layout.data_bytes;
    foot.pages_sum = layout.checksums_digest;
    foot.foot_sum = stk_xxh3_64(&foot, offsetof(struct stk_jpeg_index_footer, foot_sum));
    return stk_paged_writer_finish(&writer->pages, &foot, sizeof foot, error);
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
    *bytes_out = writer->file_bytes;
    return stk_atomic_file_commit(&writer->file, STK_ATOMIC_FILE_SYNC_DIRECTORY, error);
}

void stk_jpeg_index_writer_close(struct stk_jpeg_index_writer *writer)
{
    if (!writer) {
        return;
    }
    stk_atomic_file_close(&writer->file);
    stk_free(writer->table);
    stk_paged_writer_close(&writer->pages);
    stk_free(writer);
}
