/* base/paged_file.h: a file of pages with checksums, used where it is mapped: a page is checked
 * when something in it is read first, so that opening costs the same whatever the size.
 *
 *   data: pages, the last may be short; a multiple of 8 bytes | XXH3-64 of each page | footer
 *
 *   write: open -put ...-> end: size of the data and digest of the checksums, for the footer
 *                          -finish: checksums and footer-> close
 *   read:  footer (the caller's) -fits, open: digest of the checksums-> view: checks new pages once
 *
 * Checksums find damage. They do not make numbers in a page trusted: any writer can compute them,
 * and a page may change after it was checked. So copy a number, check the copy, and use the copy.
 * Owner: the caller. Threads: view: any. A writer: one.
 * Memory: a bit and 8 bytes a page; a writer 1 MiB, and 8 bytes a page. Bound: the file. */
#ifndef BASE_PAGED_FILE_H
#define BASE_PAGED_FILE_H

#include "base/base.h"

#include <stdatomic.h>
#include <string.h>

#define STK_PAGED_FILE_PAGE_BYTES 16384u
#define STK_PAGED_WRITER_BUFFER_BYTES ((size_t)64 * STK_PAGED_FILE_PAGE_BYTES)

struct stk_paged_file {
    struct stk_view data;            /* borrowed: the pages alone */
    uint64_t *checksums;             /* owned: of the pages, as they were at open */
    _Atomic uint64_t *checked_pages; /* owned: one bit per page; set: the page was checked */
};

static inline uint64_t stk_paged_file_page_count(uint64_t data_bytes)
{
    return data_bytes / STK_PAGED_FILE_PAGE_BYTES + (data_bytes % STK_PAGED_FILE_PAGE_BYTES != 0);
}

/* Returns true if a file of this size can contain this number of data bytes, their checksums and a
 * footer. */
bool stk_paged_file_fits(uint64_t file_bytes, uint64_t data_bytes, size_t footer_bytes);

/* Opens a file that fits. image: the complete file, at a multiple of 8, borrowed until close.
 * Returns 0 on success, STOKER_ERROR_CORRUPT if the digest (XXH3-64) of the checksums differs,
 * -ENOMEM if there is not enough memory. Sets no error text: callers name the kind of file. */
int stk_paged_file_open(struct stk_paged_file *file, struct stk_view image, uint64_t data_bytes,
                        uint64_t checksums_digest);
void stk_paged_file_close(struct stk_paged_file *file); /* allowed on a zeroed struct */

/* Checks a page and records that it is valid. Two threads may check the same page. */
bool stk_paged_file_check_page(const struct stk_paged_file *file, uint64_t page);

/* Checks again all pages that were checked before. Returns false if one of them has changed. */
bool stk_paged_file_is_unchanged(const struct stk_paged_file *file);

/* Returns the bytes at [at, at + bytes), or NULL on failure. On failure, sets *damaged_out to the
 * offset of the damaged page, or to STOKER_NO_OFFSET if the range is outside the data. */
static inline const void *stk_paged_file_view(const struct stk_paged_file *file, uint64_t at,
                                              uint64_t bytes, uint64_t *damaged_out)
{
    uint64_t end;

    if (!stk_add(at, bytes, &end) || end > file->data.bytes) {
        *damaged_out = STOKER_NO_OFFSET;
        return NULL;
    }
    for (uint64_t page = at / STK_PAGED_FILE_PAGE_BYTES; page * STK_PAGED_FILE_PAGE_BYTES < end;
         page++) {
        const _Atomic uint64_t *word = &file->checked_pages[page / 64];

        /* The bits say that a page was checked once, no more: relaxed order is sufficient. */
        if (!(atomic_load_explicit(word, memory_order_relaxed) & UINT64_C(1) << page % 64) &&
            !stk_paged_file_check_page(file, page)) {
            *damaged_out = page * STK_PAGED_FILE_PAGE_BYTES;
            return NULL;
        }
    }
    return file->data.data + at;
}

/* Computes the checksums of all pages of `data`. */
void stk_paged_file_checksums(struct stk_view data, uint64_t *checksums_out);

/* ---- writing ---- */

/* Writes bytes of the file, from front to back. Returns 0 on success, or the error that it
 * filled. */
typedef int stk_paged_writer_sink(void *context, const void *data, size_t bytes,
                                  struct stoker_error *error);

struct stk_paged_writer {
    stk_paged_writer_sink *sink;
    void *context;
    uint64_t at; /* bytes written so far */
    uint8_t *buffer;
    size_t used;
    uint64_t *checksums;
    uint64_t checksum_count, checksum_capacity;
};

/* Values for the footer. */
struct stk_paged_layout {
    uint64_t data_bytes, checksums_digest, file_bytes;
};

/* Returns 0 on success, -ENOMEM if there is not enough memory. Call close in both cases. */
int stk_paged_writer_open(struct stk_paged_writer *writer, stk_paged_writer_sink *sink,
                          void *context, struct stoker_error *error);
/* stk_paged_writer_put for bytes that fill the buffer. */
int stk_paged_writer_put_through(struct stk_paged_writer *writer, const void *data, uint64_t bytes,
                                 struct stoker_error *error);
/* Appends bytes to the data. Returns 0 on success, -ENOMEM, or the error of the sink. */
static inline int stk_paged_writer_put(struct stk_paged_writer *writer, const void *data,
                                       uint64_t bytes, struct stoker_error *error)
{
    if (bytes >= STK_PAGED_WRITER_BUFFER_BYTES - writer->used) {
        return stk_paged_writer_put_through(writer, data, bytes, error);
    }
    if (bytes > 0) { /* data may be NULL otherwise */
        memcpy(writer->buffer + writer->used, data, bytes);
        writer->used += bytes;
        writer->at += bytes;
    }
    return 0;
}
/* Writes zeros up to the next multiple of 8. */
int stk_paged_writer_align(struct stk_paged_writer *writer, struct stoker_error *error);
/* Ends the data, aligned to 8 bytes. */
int stk_paged_writer_end(struct stk_paged_writer *writer, size_t footer_bytes,
                         struct stk_paged_layout *layout_out, struct stoker_error *error);
/* Writes checksums and footer. Then the file is complete. */
int stk_paged_writer_finish(struct stk_paged_writer *writer, const void *footer,
                            size_t footer_bytes, struct stoker_error *error);
void stk_paged_writer_close(struct stk_paged_writer *writer); /* allowed on a zeroed struct */

#endif
