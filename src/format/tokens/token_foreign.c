/* Files that are no raw tokens, by their first bytes. A raw file has no header, so any bytes are
 * tokens: each row has enough bytes that a raw file does not begin with them by chance. */
#include "format/tokens/tokens.h"

#include "base/text/text_match.h"

#include <string.h>

#define TEXT_BYTES_MIN 64u /* so many printable bytes in a row are no tokens of 2 bytes or more */
#define TEXT_BYTES_MAX 512u
#define TAR_MAGIC_AT 257u

#define UNPACK "decompress it, or compress it by zstd in frames, which is read directly"
#define ARCHIVE "extract its files, and name those"
#define TABLE "write its token columns with numpy.save, and name the .npy"

struct foreign_row {
    const char *name, *advice;
    uint16_t at;
    uint8_t bytes;
    const char *magic;
};

static const struct foreign_row packed_rows[] = {
    {"xz", UNPACK, 0, 6,
     "\xfd"
     "7zXZ\0"},
    {"lz4", UNPACK, 0, 4, "\x04\x22\x4d\x18"},
    {"zip (.npz, .pt)", ARCHIVE, 0, 4, "PK\3\4"},
    {"an empty zip", ARCHIVE, 0, 4, "PK\5\6"},
    {"7-Zip", ARCHIVE, 0, 6, "7z\xbc\xaf\x27\x1c"},
    {"RAR", ARCHIVE, 0, 6, "Rar!\x1a\7"},
    {"a tar", ARCHIVE, TAR_MAGIC_AT, 5, "ustar"},
};

/* A file of bytes may begin with these: text, or a table whose bytes are the tokens. */
static const struct foreign_row other_rows[] = {
    {"Parquet", TABLE, 0, 4, "PAR1"},
    {"Arrow (IPC file)", TABLE, 0, 6, "ARROW1"},
    {"Feather", TABLE, 0, 4, "FEA1"},
    {"HDF5", TABLE, 0, 8, "\x89HDF\r\n\x1a\n"},
    {"SQLite", TABLE, 0, 16, "SQLite format 3"},
    {"a Megatron index", "name the .bin; its .idx is found next to it", 0, 9, "MMIDIDX\0\0"},
    {"litgpt's or lightning's PKDS", TABLE, 0, 7, "LITPKDS"},
    {"PNG", "name token files", 0, 8, "\x89PNG\r\n\x1a\n"},
    {"PDF", "name token files", 0, 5, "%PDF-"},
    {"an ELF program", "name token files", 0, 4,
     "\x7f"
     "ELF"},
};

static bool is_at(struct stk_view bytes, size_t at, const char *magic, size_t count)
{
    return bytes.bytes >= at + count && memcmp(bytes.data + at, magic, count) == 0;
}

/* RFC 1952: two bytes of magic, deflate, reserved flags 0, and the bytes for the level and the
 * system. */
static bool is_gzip(struct stk_view bytes)
{
    return is_at(bytes, 0, "\x1f\x8b\x08", 3) && bytes.bytes >= 10 && bytes.data[3] < 0x20 &&
           (bytes.data[8] == 0 || bytes.data[8] == 2 || bytes.data[8] == 4) &&
           (bytes.data[9] <= 13 || bytes.data[9] == 255);
}

/* The level, 1 to 9, and the magic number of a block, or of the end of an empty stream. */
static bool is_bzip2(struct stk_view bytes)
{
    return is_at(bytes, 0, "BZh", 3) &&
           (is_at(bytes, 4, "1AY&SY", 6) || is_at(bytes, 4, "\x17\x72\x45\x38\x50\x90", 6));
}

/* The size of the header, and the beginning of the header: a JSON object. */
static bool is_safetensors(struct stk_view bytes)
{
    return bytes.bytes >= 16 && memcmp(bytes.data + 4, "\0\0\0", 4) == 0 && bytes.data[3] < 0x40 &&
           (is_at(bytes, 8, "{\"", 2) || is_at(bytes, 8, "{}", 2));
}

static bool is_printable(struct stk_view bytes)
{
    size_t end = stk_min(bytes.bytes, TEXT_BYTES_MAX);

    for (size_t i = 0; i < end; i++) {
        uint8_t byte = bytes.data[i];

        if (byte == 0x7f || (byte < ' ' && byte != '\n' && byte != '\r' && byte != '\t')) {
            return false;
        }
    }
    return end >= TEXT_BYTES_MIN;
}

/* Names text by its begin. */
static const char *text_format(struct stk_view bytes, const char **advice_out)
{
    size_t at = stk_view_mark_bytes(bytes), end = stk_min(bytes.bytes, TEXT_BYTES_MAX);

    while (at < end && bytes.data[at] <= ' ') {
        at++;
    }
    if (is_at(bytes, at, "version https://git-lfs", 23)) {
        *advice_out = "fetch the file itself: git lfs pull";
        return "a Git LFS pointer";
    }
    if (is_at(bytes, at, "<!DOCTYPE", 9) || is_at(bytes, at, "<!doctype", 9) ||
        is_at(bytes, at, "<html", 5) || is_at(bytes, at, "<?xml", 5)) {
        *advice_out = "it is perhaps the error page of a download: download the file again";
        return "a page of HTML or XML";
    }
    *advice_out = "read text with a TextLoader, or tokenise it first";
    return is_printable(bytes) ? "text" : NULL;
}

static const struct foreign_row *find_row(struct stk_view bytes, const struct foreign_row *rows,
                                          size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (is_at(bytes, rows[i].at, rows[i].magic, rows[i].bytes)) {
            return &rows[i];
        }
    }
    return NULL;
}

const char *stk_token_foreign_format(struct stk_view bytes, uint32_t dtype, const char **advice_out)
{
    bool may_be_any = dtype == STOKER_UINT8 || dtype == STOKER_INT8;
    const struct foreign_row *row;

    *advice_out = UNPACK;
    if (is_gzip(bytes) || is_bzip2(bytes)) {
        return is_gzip(bytes) ? "gzip" : "bzip2";
    }
    if (!may_be_any && is_safetensors(bytes)) {
        *advice_out = "it holds tensors: write the tokens with numpy.save, and name the .npy";
        return "safetensors";
    }
    row = find_row(bytes, packed_rows, STK_COUNT(packed_rows));
    if (!row && !may_be_any) {
        row = find_row(bytes, other_rows, STK_COUNT(other_rows));
    }
    if (row) {
        *advice_out = row->advice;
        return row->name;
    }
    return may_be_any ? NULL : text_format(bytes, advice_out);
}
