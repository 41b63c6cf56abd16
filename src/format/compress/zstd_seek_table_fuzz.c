/* Fuzz target of zstd_seek_table.c: any bytes as the end of a zstd file with a seek table. No
 * crash; each entry that is found is inside the file. */
#include "base/base.h"
#include "format/compress/zstd_seek_table.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stoker_error error = {0};
    struct stk_zstd_seek_table table;
    size_t last = stk_min(bytes, STK_ZSTD_SEEK_TABLE_FOOTER_BYTES);
    struct stk_view end = {bytes ? data + bytes - last : data, last};
    int status = stk_zstd_seek_table_read_footer(end, bytes, &table, &error);

    STK_ASSERT(status == 1 || (table.frame_count == 0 && table.bytes == 0));
    STK_ASSERT(status >= 0 || (error.what[0] && error.advice[0]));
    if (status != 1) {
        return 0;
    }
    STK_ASSERT(table.at + table.bytes == bytes);
    if (!stk_zstd_seek_table_head_is_valid(&table, data + table.at)) {
        return 0;
    }
    for (uint64_t i = 0; i < table.frame_count; i++) {
        uint64_t at = stk_zstd_seek_table_entry_offset(&table, i);
        uint32_t packed_bytes, plain_bytes;
        uint8_t entry[8];

        STK_ASSERT(at + table.entry_bytes + STK_ZSTD_SEEK_TABLE_FOOTER_BYTES <= bytes);
        stk_zstd_seek_table_read_entry(data + at, &packed_bytes, &plain_bytes);
        stk_zstd_seek_table_write_entry(packed_bytes, plain_bytes, entry);
        STK_ASSERT(memcmp(entry, data + at, sizeof entry) == 0);
    }
    return 0;
}
