/* Seek tables of zstd files: small numbers, little end first. */
#include "format/compress/zstd_seek_table.h"

#include "base/byte_order.h"

#include <string.h>

/* One of the 16 magics of skippable frames (RFC 8878, 3.1.2), and the foot's own. */
#define HEAD_MAGIC 0x184D2A5Eu
#define FOOT_MAGIC 0x8F92EAB1u

enum { FLAG_CHECKSUMS = 0x80, FLAGS_RESERVED = 0x7c };

int stk_zstd_seek_table_read_footer(struct stk_view end, uint64_t file_bytes,
                                    struct stk_zstd_seek_table *table_out,
                                    struct stoker_error *error)
{
    struct stk_zstd_seek_table table;
    const uint8_t *foot;

    *table_out = (struct stk_zstd_seek_table){0};
    if (end.bytes < STK_ZSTD_SEEK_TABLE_FOOTER_BYTES || end.bytes > file_bytes) {
        return 0;
    }
    foot = end.data + end.bytes - STK_ZSTD_SEEK_TABLE_FOOTER_BYTES;
    if (stk_little32(foot + 5) != FOOT_MAGIC) {
        return 0;
    }
    table.frame_count = stk_little32(foot);
    table.entry_bytes = foot[4] & FLAG_CHECKSUMS ? 12 : 8;
    table.bytes = STK_ZSTD_SEEK_TABLE_HEAD_BYTES + (uint64_t)table.frame_count * table.entry_bytes +
                  STK_ZSTD_SEEK_TABLE_FOOTER_BYTES;
    if ((foot[4] & FLAGS_RESERVED) != 0 || table.frame_count > STK_ZSTD_SEEK_TABLE_FRAMES_MAX ||
        table.bytes > file_bytes) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "the seek table of a zstd shard is damaged",
                        "copy the shard again", "%u frames, flags 0x%02x", table.frame_count,
                        foot[4]);
    }
    table.at = file_bytes - table.bytes;
    *table_out = table;
    return 1;
}

bool stk_zstd_seek_table_head_is_valid(const struct stk_zstd_seek_table *table,
                                       const uint8_t head[8])
{
    return stk_little32(head) == HEAD_MAGIC &&
           stk_little32(head + 4) == table->bytes - STK_ZSTD_SEEK_TABLE_HEAD_BYTES;
}

void stk_zstd_seek_table_read_entry(const uint8_t *entry, uint32_t *compressed_bytes,
                                    uint32_t *bytes)
{
    *compressed_bytes = stk_little32(entry);
    *bytes = stk_little32(entry + 4);
}

void stk_zstd_seek_table_write_head(uint32_t frame_count, uint8_t head[8])
{
    stk_put_little32(head, HEAD_MAGIC);
    stk_put_little32(head + 4, frame_count * 8 + STK_ZSTD_SEEK_TABLE_FOOTER_BYTES);
}

void stk_zstd_seek_table_write_entry(uint32_t compressed_bytes, uint32_t bytes, uint8_t entry[8])
{
    stk_put_little32(entry, compressed_bytes);
    stk_put_little32(entry + 4, bytes);
}

void stk_zstd_seek_table_write_footer(uint32_t frame_count, uint8_t foot[9])
{
    stk_put_little32(foot, frame_count);
    foot[4] = 0;
    stk_put_little32(foot + 5, FOOT_MAGIC);
}
