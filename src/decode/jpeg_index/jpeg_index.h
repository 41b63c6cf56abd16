/* decode/jpeg_index/jpeg_index.h: the file of entry points, where decoding of a JPEG can begin
 * (decode/jpeg/jpeg.h). It is next to the index; docs/formats.md specifies it.
 *
 *   writer_open -> add(entries of sample 0, 1, ...) -> commit -file- open -> of(sample) -> find
 *
 * Each page is checked at first use. The content is not trusted: entries are found by the length
 * and XXH3-64 of the image, and the decoder rejects entry points that do not fit the data. Owner:
 * the data set; the writer of a file. Threads: a writer: one; lookups: any. Memory: mapped, and one
 * bit per page; a writer 8 bytes per sample. Bound: 2^32 - 1 samples. */
#ifndef DECODE_JPEG_INDEX_JPEG_INDEX_H
#define DECODE_JPEG_INDEX_JPEG_INDEX_H

#include "base/paged_file.h"
#include "decode/jpeg/jpeg.h"

struct stk_io;

#define STK_JPEG_INDEX_SUFFIX ".marks" /* after the name of the index */
#define STK_JPEG_INDEX_IDENTITY_BYTES 32u
#define STK_JPEG_INDEX_PAGE_BYTES STK_PAGED_FILE_PAGE_BYTES
#define STK_JPEG_INDEX_SAMPLES_MAX UINT32_MAX

/* Precedes the entry points of an image. The entries of a sample are contiguous. */
struct stk_jpeg_index_entry {
    uint64_t sum;   /* XXH3-64 of the image */
    uint32_t bytes; /* of the image */
    uint32_t count; /* of entry points, STK_JPEG_ENTRY_POINT_BYTES each */
};
_Static_assert(sizeof(struct stk_jpeg_index_entry) == 16, "as in docs/formats.md");

/* ---- look-ups ---- */

struct stk_jpeg_index;
/* identity: that of the index (STK_JPEG_INDEX_IDENTITY_BYTES). Returns 0 on success, CHANGED if the
 * file belongs to another data set, CORRUPT, TRUNCATED, FORMAT or UNSUPPORTED if the file is
 * unusable, -ENOENT if it does not exist. */
int stk_jpeg_index_open(struct stk_jpeg_index **marks_out, struct stk_io *io, const char *path,
                        const uint8_t *identity, struct stoker_error *error);
/* As open, for bytes in memory that are 8-aligned and valid until close. */
int stk_jpeg_index_open_image(struct stk_jpeg_index **marks_out, struct stk_view image,
                              const uint8_t *identity, struct stoker_error *error);
void stk_jpeg_index_close(struct stk_jpeg_index *index); /* NULL is fine */
uint64_t stk_jpeg_index_samples(const struct stk_jpeg_index *index);
uint32_t
stk_jpeg_index_mcus(const struct stk_jpeg_index *index); /* as stk_jpeg_entry_points has it */

/* Checks whether the file is what it was, in all that was used of it. Returns 0 on success,
 * STOKER_ERROR_CHANGED, -EIO. */
int stk_jpeg_index_check_map(const struct stk_jpeg_index *index, struct stoker_error *error);

/* The entries of a sample, valid until close; empty if there are none or they are damaged. */
struct stk_jpeg_index_entries {
    uint32_t mcus;
    struct stk_view entries;
};
struct stk_jpeg_index_entries stk_jpeg_index_get(const struct stk_jpeg_index *index,
                                                 uint64_t sample);
/* Finds the entry points of this image among the entries. If an entry has the length of the image,
 * it reads the entire image to compute its checksum. Returns false if there are none. */
bool stk_jpeg_index_find(const struct stk_jpeg_index_entries *of, struct stk_view picture,
                         struct stk_jpeg_entry_points *marks_out);

/* ---- making ---- */

struct stk_jpeg_index_options {
    const char *path;
    uint64_t samples;
    uint32_t mcus;
    const uint8_t *identity; /* STK_JPEG_INDEX_IDENTITY_BYTES: of the index */
};
struct stk_jpeg_index_writer;
/* Writes path.new. */
int stk_jpeg_index_writer_open(struct stk_jpeg_index_writer **writer_out, struct stk_io *io,
                               const struct stk_jpeg_index_options *plan,
                               struct stoker_error *error);
/* Writes the entries of the next sample; there may be none. */
int stk_jpeg_index_writer_add(struct stk_jpeg_index_writer *writer, struct stk_view entries,
                              struct stoker_error *error);
/* Call after the last sample: completes and syncs the file and renames it to its final name.
 * *bytes_out is its size. */
int stk_jpeg_index_writer_commit(struct stk_jpeg_index_writer *writer, uint64_t *bytes_out,
                                 struct stoker_error *error);
/* Takes ownership; NULL is allowed. Removes the file if it was not committed. */
void stk_jpeg_index_writer_close(struct stk_jpeg_index_writer *writer);

#endif
