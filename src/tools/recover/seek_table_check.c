/* Compares the seek table of zstd with the frames as they end, and resumes at its entries as long
 * as it matched. */
#include "tools/recover/resume_points.h"

#include "base/byte_order.h"
#include "format/compress/decompress.h"

#include <string.h>

static void set_mismatch(struct stk_shard_reader *shard_reader, uint64_t at, const char *what)
{
    if (!shard_reader->mismatch.what) {
        shard_reader->mismatch = (struct stk_seek_table_mismatch){what, at};
    }
    shard_reader->table.comparing = false;
}

static int64_t read_at(struct stk_shard_reader *shard_reader, uint64_t at, uint8_t *to,
                       size_t bytes)
{
    return stk_io_read_wait(shard_reader->reader->file, at, to, bytes);
}

void stk_shard_reader_use_seek_table(struct stk_shard_reader *shard_reader)
{
    uint8_t foot[STK_ZSTD_SEEK_TABLE_FOOTER_BYTES], head[STK_ZSTD_SEEK_TABLE_HEAD_BYTES];
    uint64_t bytes = shard_reader->reader->bytes;
    int status;

    if (shard_reader->compression != STK_COMPRESSION_ZSTD || bytes < sizeof foot + sizeof head ||
        read_at(shard_reader, bytes - sizeof foot, foot, sizeof foot) != (int64_t)sizeof foot) {
        return; /* the error is reported when these bytes are read in order */
    }
    status = stk_zstd_seek_table_read_footer((struct stk_view){foot, sizeof foot}, bytes,
                                             &shard_reader->table.foot, NULL);
    if (status == 1 && read_at(shard_reader, shard_reader->table.foot.at, head, sizeof head) !=
                           (int64_t)sizeof head) {
        shard_reader->table.foot = (struct stk_zstd_seek_table){0};
        return;
    }
    shard_reader->table.comparing =
        status == 1 && stk_zstd_seek_table_head_is_valid(&shard_reader->table.foot, head);
    if (status != 0 && !shard_reader->table.comparing) {
        shard_reader->table.foot = (struct stk_zstd_seek_table){0};
        set_mismatch(shard_reader, bytes - sizeof foot, "its footer does not match the file");
    }
}

/* The next entry, without advancing; NULL: there is none, or it cannot be read. */
static const uint8_t *peek_entry(struct stk_shard_reader *shard_reader)
{
    const struct stk_zstd_seek_table *foot = &shard_reader->table.foot;
    uint64_t number = shard_reader->table.next;

    if (number >= foot->frame_count) {
        return NULL;
    }
    if (number >= shard_reader->table.first + shard_reader->table.entry_count) {
        size_t bytes = (size_t)stk_min(STK_SHARD_READER_ENTRIES, foot->frame_count - number) *
                       foot->entry_bytes;

        shard_reader->table.first = number;
        shard_reader->table.entry_count = bytes / foot->entry_bytes;
        if (read_at(shard_reader, stk_zstd_seek_table_entry_offset(foot, number),
                    shard_reader->table.chunk, bytes) != (int64_t)bytes) {
            shard_reader->table.foot.frame_count = 0; /* it is as if there were no table */
            shard_reader->table.comparing = false;
            return NULL;
        }
    }
    return shard_reader->table.chunk + (number - shard_reader->table.first) * foot->entry_bytes;
}

static void next_entry(struct stk_shard_reader *shard_reader, uint64_t packed_bytes, uint64_t bytes)
{
    shard_reader->table.in += packed_bytes;
    shard_reader->table.out += bytes;
    shard_reader->table.next++;
}

/* Compares the entry's checksum with the one frame that it covers. */
static uint32_t compare_sum(struct stk_shard_reader *shard_reader, const uint8_t *entry,
                            const struct stk_decompress_end *ended)
{
    uint32_t sum = stk_little32(entry + 8);

    if (sum == ended->checksum) {
        return ended->check == STK_DECOMPRESS_CHECK_MISMATCH ? STK_DECOMPRESS_CHECK_BAD_TRAILER
               : ended->check == STK_DECOMPRESS_CHECK_NONE   ? STK_DECOMPRESS_CHECK_OK
                                                             : ended->check;
    }
    if (ended->check == STK_DECOMPRESS_CHECK_OK) {
        set_mismatch(
            shard_reader,
            stk_zstd_seek_table_entry_offset(&shard_reader->table.foot, shard_reader->table.next),
            "a checksum in it differs from the frame's own");
    }
    return ended->check == STK_DECOMPRESS_CHECK_NONE ? STK_DECOMPRESS_CHECK_MISMATCH : ended->check;
}

/* Compares entries up to the end of the frame: each must end where a frame ends, with the same
 * number of decompressed bytes. An entry may span several frames: reading may start at it, too. */
uint32_t stk_shard_reader_check_seek_table(struct stk_shard_reader *shard_reader,
                                           const struct stk_decompress_end *ended, uint64_t out)
{
    uint64_t end = shard_reader->compressed_offset, before = shard_reader->table.frame_in;
    bool is_table = end > shard_reader->table.foot.at;
    uint32_t check = ended->check;
    const uint8_t *entry;

    shard_reader->table.frame_in = end;
    while (shard_reader->table.comparing && (entry = peek_entry(shard_reader))) {
        uint64_t position =
            stk_zstd_seek_table_entry_offset(&shard_reader->table.foot, shard_reader->table.next);
        uint32_t packed_bytes, bytes;
        uint64_t to;

        stk_zstd_seek_table_read_entry(entry, &packed_bytes, &bytes);
        to = shard_reader->table.in + packed_bytes;
        if (to > end || (is_table && packed_bytes > 0)) {
            break; /* of several frames; or the table has more than the file: see below */
        }
        if (to < end && (to != before || bytes > 0)) {
            set_mismatch(shard_reader, position, "no frame ends at an offset that it lists");
        } else if (to == end && shard_reader->table.out + bytes != out) {
            set_mismatch(shard_reader, position, "a frame does not have the size that it lists");
        } else if (to == end && shard_reader->table.in == before &&
                   shard_reader->table.foot.entry_bytes == 12) {
            check = compare_sum(shard_reader, entry, ended);
        }
        next_entry(shard_reader, packed_bytes, bytes);
    }
    if (shard_reader->table.comparing && is_table &&
        (shard_reader->table.in != shard_reader->table.foot.at ||
         shard_reader->table.next != shard_reader->table.foot.frame_count)) {
        set_mismatch(shard_reader, shard_reader->table.foot.at, "it does not list all frames");
    }
    shard_reader->table.comparing = shard_reader->table.comparing && !is_table;
    return check;
}

int stk_shard_reader_resume_from_seek_table(struct stk_shard_reader *shard_reader,
                                            struct stoker_error *error)
{
    uint64_t from = stk_max(shard_reader->compressed_offset, shard_reader->tried_offset);
    const uint8_t *entry;
    int status;

    /* Each entry once, over all damage: places only go forward. */
    while (shard_reader->table.in < from && (entry = peek_entry(shard_reader))) {
        uint32_t packed_bytes, bytes;

        stk_zstd_seek_table_read_entry(entry, &packed_bytes, &bytes);
        next_entry(shard_reader, packed_bytes, bytes);
    }
    if (shard_reader->mismatch.what ||
        shard_reader->table.next >= shard_reader->table.foot.frame_count ||
        shard_reader->table.in < from || shard_reader->table.in >= shard_reader->table.foot.at) {
        return 0;
    }
    status = stk_shard_reader_skip_to(shard_reader, shard_reader->table.in, error);
    status =
        status < 0 ? status : stk_shard_reader_reopen(shard_reader, shard_reader->bytes, error);
    if (status < 0) {
        return status;
    }
    stk_shard_reader_resume_at(shard_reader, shard_reader->table.in, shard_reader->table.out);
    shard_reader->table.frame_in = shard_reader->table.in;
    shard_reader->table.comparing = shard_reader->gap.exact && !shard_reader->inexact;
    return 1;
}
