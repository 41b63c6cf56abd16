/* decode/jpeg_index/jpeg_index_file.h: layout of the file; private to this folder.
 *
 *   head | entries of each sample, in order | table: offset of each sample's entries, and their end
 *        | checksums of pages | foot
 *
 * Numbers are little-endian. The table begins at the next multiple of 8.
 * Owner: none. Threads: any. Memory: none. Bound: the length of the file. */
#ifndef DECODE_JPEG_INDEX_JPEG_INDEX_FILE_H
#define DECODE_JPEG_INDEX_JPEG_INDEX_FILE_H

#include "decode/jpeg_index/jpeg_index.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is used without conversion");

#define STK_JPEG_INDEX_HEADER_MAGIC "STOKERJM"
#define STK_JPEG_INDEX_FOOTER_MAGIC "MJREKOTS"
#define STK_JPEG_INDEX_VERSION 1u

struct stk_jpeg_index_header {
    char magic[8];
    uint32_t version, page_bytes;
    uint8_t identity[STK_JPEG_INDEX_IDENTITY_BYTES]; /* of the index */
    uint64_t samples;
    uint32_t mcus, reserved;
};
_Static_assert(sizeof(struct stk_jpeg_index_header) == 64, "as in docs/formats.md");

struct stk_jpeg_index_footer {
    char magic[8];
    uint64_t file_bytes;
    uint64_t table_at; /* u64 each: samples + 1 */
    uint64_t pages_at; /* where the data ends and its pages' sums begin */
    uint64_t pages_sum;
    uint64_t foot_sum; /* of all of the foot before it */
};
_Static_assert(sizeof(struct stk_jpeg_index_footer) == 48, "as in docs/formats.md");

#endif
