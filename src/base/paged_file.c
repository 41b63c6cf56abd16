/* Pages with checksums: checked once where they are mapped, summed while they are written. */
#include "base/paged_file.h"

#include "base/mem.h"
#include "base/xxh3.h"

#include <errno.h>
#include <string.h>

bool stk_paged_file_fits(uint64_t file_bytes, uint64_t data_bytes, size_t footer_bytes)
{
    return file_bytes >= footer_bytes && data_bytes <= file_bytes - footer_bytes &&
           data_bytes % 8 == 0 &&
           file_bytes - footer_bytes - data_bytes == stk_paged_file_page_count(data_bytes) * 8;
}

int stk_paged_file_open(struct stk_paged_file *file, struct stk_view image, uint64_t data_bytes,
                        uint64_t checksums_digest)
{
    uint64_t count = stk_paged_file_page_count(data_bytes);

    STK_ASSERT((uintptr_t)image.data % 8 == 0 && data_bytes + count * 8 <= image.bytes);
    *file = (struct stk_paged_file){
        .data = {image.data, data_bytes},
        .checksums = stk_alloc(count + 1, sizeof *file->checksums),
        .checked_pages = stk_alloc(count / 64 + 1, sizeof *file->checked_pages),
    };
    if (!file->checksums || !file->checked_pages) {
        return -ENOMEM;
    }
    memcpy(file->checksums, image.data + data_bytes, count * 8); /* the file may change later */
    return stk_xxh3_64(file->checksums, count * 8) == checksums_digest ? 0 : STOKER_ERROR_CORRUPT;
}

void stk_paged_file_close(struct stk_paged_file *file)
{
    stk_free(file->checksums);
    stk_free(file->checked_pages);
    *file = (struct stk_paged_file){0};
}

static uint64_t page_checksum(struct stk_view data, uint64_t page)
{
    uint64_t start = page * STK_PAGED_FILE_PAGE_BYTES;

    return stk_xxh3_64(data.data + start, stk_min(STK_PAGED_FILE_PAGE_BYTES, data.bytes - start));
}

bool stk_paged_file_check_page(const struct stk_paged_file *file, uint64_t page)
{
    if (page_checksum(file->data, page) != file->checksums[page]) {
        return false;
    }
    atomic_fetch_or_explicit(&file->checked_pages[page / 64], UINT64_C(1) << page % 64,
                             memory_order_relaxed);
    return true;
}

bool stk_paged_file_is_unchanged(const struct stk_paged_file *file)
{
    for (uint64_t page = 0; page < stk_paged_file_page_count(file->data.bytes); page++) {
        uint64_t word = atomic_load_explicit(&file->checked_pages[page / 64], memory_order_relaxed);

        if (word & UINT64_C(1) << page % 64 &&
            page_checksum(file->data, page) != file->checksums[page]) {
            return false;
        }
    }
    return true;
}

void stk_paged_file_checksums(struct stk_view data, uint64_t *checksums_out)
{
    for (uint64_t page = 0; page < stk_paged_file_page_count(data.bytes); page++) {
        checksums_out[page] = page_checksum(data, page);
    }
}

/* ---- writing ---- */

int stk_paged_writer_open(struct stk_paged_writer *writer, stk_paged_writer_sink *sink,
                          void *context, struct stoker_error *error)
{
    *writer = (struct stk_paged_writer){.sink = sink, .context = context};
    writer->buffer = stk_alloc(STK_PAGED_WRITER_BUFFER_BYTES, 1);
    return writer->buffer ? 0 : stk_fail_memory(error, "buffer of a file");
}

/* Only the last page of the file may be short: the caller passes a full buffer, or is at the
 * end. */
static int flush(struct stk_paged_writer *writer, struct stoker_error *error)
{
    struct stk_view data = {writer->buffer, writer->used};
    uint64_t pages = stk_paged_file_page_count(data.bytes);

    if (pages == 0) {
        return 0;
    }
    if (writer->checksum_capacity - writer->checksum_count < pages) {
        uint64_t capacity = 2 * (writer->checksum_capacity + pages);
        uint64_t *checksums =
            stk_realloc(writer->checksums, writer->checksum_capacity, capacity, sizeof *checksums);

        if (!checksums) {
            return stk_fail_memory(error, "checksums of pages");
        }
        writer->checksums = checksums;
        writer->checksum_capacity = capacity;
    }
    stk_paged_file_checksums(data, writer->checksums + writer->checksum_count);
    writer->checksum_count += pages;
    writer->used = 0;
    return writer->sink(writer->context, data.data, data.bytes, error);
}

int stk_paged_writer_put_through(struct stk_paged_writer *writer, const void *data, uint64_t bytes,
                                 struct stoker_error *error)
{
    const uint8_t *from = data;
    int status = 0;

    writer->at += bytes;
    while (status == 0 && bytes > 0) {
        size_t part = (size_t)stk_min(bytes, STK_PAGED_WRITER_BUFFER_BYTES - writer->used);

        memcpy(writer->buffer + writer->used, from, part);
        writer->used += part;
        from += part;
        bytes -= part;
        status = writer->used == STK_PAGED_WRITER_BUFFER_BYTES ? flush(writer, error) : 0;
    }
    return status;
}

int stk_paged_writer_align(struct stk_paged_writer *writer, struct stoker_error *error)
{
    static const uint8_t zeros[8];

    return stk_paged_writer_put(writer, zeros, -writer->at % 8, error);
}

int stk_paged_writer_end(struct stk_paged_writer *writer, size_t footer_bytes,
                         struct stk_paged_layout *layout_out, struct stoker_error *error)
{
    int status = stk_paged_writer_align(writer, error);

    status = status < 0 ? status : flush(writer, error);
    if (status == 0) {
        *layout_out = (struct stk_paged_layout){
            .data_bytes = writer->at,
            .checksums_digest = stk_xxh3_64(writer->checksums, writer->checksum_count * 8),
            .file_bytes = writer->at + writer->checksum_count * 8 + footer_bytes,
        };
    }
    return status;
}

int stk_paged_writer_finish(struct stk_paged_writer *writer, const void *footer,
                            size_t footer_bytes, struct stoker_error *error)
{
    size_t bytes = writer->checksum_count * 8;
    int status = bytes > 0 ? writer->sink(writer->context, writer->checksums, bytes, error) : 0;

    return status < 0 ? status : writer->sink(writer->context, footer, footer_bytes, error);
}

void stk_paged_writer_close(struct stk_paged_writer *writer)
{
    stk_free(writer->buffer);
    stk_free(writer->checksums);
    *writer = (struct stk_paged_writer){0};
}
