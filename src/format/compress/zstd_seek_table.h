/* format/compress/zstd_seek_table.h: the table at the end of a zstd file that has the sizes of its
 * frames.
 *
 *   frames | skippable frame: { sizes of each frame | footer: count, flags, magic number }
 *
 * Source: zstd's contrib/seekable_format, "Zstandard Seekable Format", version 0.1.0. The table is
 * untrusted input: it is checked for consistency, and by decompression.
 * Pure. Owner: the caller. Threads: any.
 * Memory: the caller's.
 * Bound: STK_ZSTD_SEEK_TABLE_FRAMES_MAX, by the format. */
#ifndef FORMAT_COMPRESS_ZSTD_SEEK_TABLE_H
#define FORMAT_COMPRESS_ZSTD_SEEK_TABLE_H

#include "base/base.h"

#define STK_ZSTD_SEEK_TABLE_FOOTER_BYTES 9u
#define STK_ZSTD_SEEK_TABLE_HEAD_BYTES 8u /* magic number of the skippable frame, and its size */
#define STK_ZSTD_SEEK_TABLE_FRAMES_MAX 0x8000000u

struct stk_zstd_seek_table {
    uint32_t frame_count;
    uint32_t entry_bytes; /* 8, or 12 with checksums */
    uint64_t at, bytes;   /* of the skippable frame, in the file */
};

/* Reads the footer. end: the last bytes of the file, at least the footer. Returns 1 and sets
 * *table_out if there is a table, 0 if there is none, or STOKER_ERROR_CORRUPT if the magic number
 * is there and the other fields are impossible. */
int stk_zstd_seek_table_read_footer(struct stk_view end, uint64_t file_bytes,
                                    struct stk_zstd_seek_table *table_out,
                                    struct stoker_error *error);
/* Reading: the head of the frame, then entries of entry_bytes each. */
bool stk_zstd_seek_table_head_is_valid(const struct stk_zstd_seek_table *table,
                                       const uint8_t head[8]);
static inline uint64_t stk_zstd_seek_table_entry_offset(const struct stk_zstd_seek_table *table,
                                                        uint64_t number)
{
    return table->at + STK_ZSTD_SEEK_TABLE_HEAD_BYTES + number * table->entry_bytes;
}
void stk_zstd_seek_table_read_entry(const uint8_t *entry, uint32_t *compressed_bytes,
                                    uint32_t *bytes);

/* Writing: the head, then each entry of 8 bytes, then the footer. */
void stk_zstd_seek_table_write_head(uint32_t frame_count, uint8_t head[8]);
void stk_zstd_seek_table_write_entry(uint32_t compressed_bytes, uint32_t bytes, uint8_t entry[8]);
void stk_zstd_seek_table_write_footer(uint32_t frame_count, uint8_t foot[9]);

#endif
