/* Goal: every kind of header is read, and every kind of damage is a typed error that names its
 * offset.
 * Method: rows of pieces make a tar; the events are compared as text. Each tar is parsed at once
 * and in chunks of 1 to 1,024 bytes, with its size known and unknown, and must give the same
 * events. */
#include "test/t.h"
#include "base/mem.h"
#include "format/tar/tar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Rows have the fields that matter; the rest is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

enum { TAR_BYTES_MAX = 1 << 16, LOG_BYTES_MAX = 1 << 14, PIECES_MAX = 22 };

/* One header and the data after it, or with type ' ' unchanged bytes (zeros without data). */
struct piece {
    char type;
    const char *name;
    const char *data;       /* NULL: `bytes` times 'd' */
    uint64_t bytes;         /* 0: as long as data */
    const char *size_field; /* 12 bytes; NULL: bytes in octal */
    const char *prefix;
    const char *magic;    /* NULL: "ustar\0" */
    uint32_t data_absent; /* 1: the size in the header is wrong */
    char sum;             /* 's': signed, 'w': wrong, 'b': base-256 */
};

struct row {
    const char *name;
    struct piece pieces[PIECES_MAX];
    uint64_t cut; /* bytes that stay; 0: all */
    const char *want;
};

#define END_MARK {' ', .bytes = 1024}
#define LONG_50 "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcd"
#define LONG_100 LONG_50 LONG_50
#define SIZE_8G "\x80\0\0\0\0\0\0\2\0\0\0\0"

/* "name type header data+bytes;" for each member, then "end" or status, offset and key. */
static const struct row rows[] = {
    {"one file", {{'0', "a.jpg", "abc"}, END_MARK}, 0, "a.jpg 0 0 512+3;end"},
    {"two files",
     {{'0', "a.jpg", .bytes = 513}, {'0', "b.jpg", ""}, END_MARK},
     0,
     "a.jpg 0 0 512+513;b.jpg 0 1536 2048+0;end"},
    {"only an end marker", {END_MARK}, 0, "end"},
    {"V7: no magic, type NUL",
     {{'\0', "a.jpg", "abc", .magic = "\0\0\0\0\0"}, END_MARK},
     0,
     "a.jpg 0 0 512+3;end"},
    {"V7: a directory by its slash", {{'\0', "d/", ""}, END_MARK}, 0, "d 5 0 512+0;end"},
    {"contiguous files are regular", {{'7', "a.jpg", "abc"}, END_MARK}, 0, "a.jpg 0 0 512+3;end"},
    {"types without data, whatever their size says",
     {{'5', "d//", .size_field = "00000001000"},
      {'1', "h", .size_field = "00000001000"},
      {'2', "s", ""},
      {'3', "c", ""},
      {'4', "b", ""},
      {'6', "p", ""},
      END_MARK},
     0,
     "d 5 0 512+0;h 1 512 1024+0;s 2 1024 1536+0;c 3 1536 2048+0;b 4 2048 2560+0;"
     "p 6 2560 3072+0;end"},
    {"unknown types have data",
     {{'D', "d", "abc"}, {'0', "a.jpg", "a"}, END_MARK},
     0,
     "d D 0 512+3;a.jpg 0 1024 1536+1;end"},
    {"ustar prefix",
     {{'0', "a.jpg", "a", .prefix = "p/q"}, END_MARK},
     0,
     "p/q/a.jpg 0 0 512+1;end"},
    {"ustar prefix and name, both full",
     {{'0', LONG_100, "a", .prefix = LONG_100 LONG_50 "12345"}, END_MARK},
     0,
     LONG_100 LONG_50 "12345/" LONG_100 " 0 0 512+1;end"},
    {"old GNU keeps times there",
     {{'0', "a.jpg", "a", .prefix = "12345", .magic = "ustar "}, END_MARK},
     0,
     "a.jpg 0 0 512+1;end"},
    {"no magic, no prefix",
     {{'0', "a.jpg", "a", .prefix = "12345", .magic = "\0\0\0\0\0"}, END_MARK},
     0,
     "a.jpg 0 0 512+1;end"},
    {"an empty name is left to the reader of names",
     {{'0', "", "a"}, END_MARK},
     0,
     " 0 0 512+1;end"},

    /* Numbers and sums. */
    {"blanks before a size",
     {{'0', "a", "abc", .size_field = "         3 "}, END_MARK},
     0,
     "a 0 0 512+3;end"},
    {"an empty size is zero", {{'0', "a", "", .size_field = ""}, END_MARK}, 0, "a 0 0 512+0;end"},
    {"12 digits without an end",
     {{'0', "a", "abc", .size_field = "000000000003"}, END_MARK},
     0,
     "a 0 0 512+3;end"},
    {"base-256",
     {{'0', "a", "abc", .size_field = "\x80\0\0\0\0\0\0\0\0\0\0\3"}, END_MARK},
     0,
     "a 0 0 512+3;end"},
    {"base-256 past the end",
     {{'0', "a", "", .size_field = SIZE_8G}, END_MARK},
     0,
     "STOKER_ERROR_TRUNCATED 0 a"},
    {"base-256 negative",
     {{'0', "a", "", .size_field = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 124 "},
    {"base-256 of 65 bits",
     {{'0', "a", "", .size_field = "\x80\0\0\1\0\0\0\0\0\0\0\0"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 124 "},
    {"base-256 of 64 bits wraps round",
     {{'0', "a", "", .size_field = "\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"}, END_MARK},
     0,
     "STOKER_ERROR_TRUNCATED 0 a"},
    {"another first byte",
     {{'0', "a", "", .size_field = "\x90\0\0\0\0\0\0\0\0\0\0\3"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 124 "},
    {"not octal",
     {{'0', "a", "", .size_field = "00000000009"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 124 "},
    {"two numbers",
     {{'0', "a", "", .size_field = "00003 00003"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 124 "},
    {"minus",
     {{'0', "a", "", .size_field = "-0000000003"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 124 "},
    {"signed sum",
     {{'0', "\xc3\xa9.jpg", "a", .sum = 's'}, END_MARK},
     0,
     "\xc3\xa9.jpg 0 0 512+1;end"},
    {"unsigned sum", {{'0', "\xc3\xa9.jpg", "a"}, END_MARK}, 0, "\xc3\xa9.jpg 0 0 512+1;end"},
    {"base-256 sum", {{'0', "a", "a", .sum = 'b'}, END_MARK}, 0, "a 0 0 512+1;end"},
    {"wrong sum of the first header",
     {{'0', "a", "a", .sum = 'w'}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 148 "},
    {"wrong sum later",
     {{'0', "a", "a"}, {'0', "b", "b", .sum = 'w'}, END_MARK},
     0,
     "a 0 0 512+1;STOKER_ERROR_CORRUPT 1172 "},
    {"no tar at all",
     {{' ', .data = "\x89PNG\r\n\x1a\n", .bytes = 600}},
     0,
     "STOKER_ERROR_FORMAT 148 "},
    {"garbage after a member",
     {{'0', "a", "a"}, {' ', .data = "garbage", .bytes = 512}},
     0,
     "a 0 0 512+1;STOKER_ERROR_CORRUPT 1172 "},

    /* Ends. */
    {"no bytes", {{0}}, 0, "STOKER_ERROR_EMPTY 0 "},
    {"inside the first header", {{'0', "a", "abc"}, END_MARK}, 511, "STOKER_ERROR_TRUNCATED 0 "},
    {"before the data", {{'0', "a", "abc"}, END_MARK}, 512, "STOKER_ERROR_TRUNCATED 0 a"},
    {"inside the data", {{'0', "a", "abc"}, END_MARK}, 514, "STOKER_ERROR_TRUNCATED 0 a"},
    {"inside the padding",
     {{'0', "a", "abc"}, END_MARK},
     515,
     "a 0 0 512+3;STOKER_ERROR_TRUNCATED 1024 "},
    {"without an end marker", {{'0', "a", "abc"}}, 0, "a 0 0 512+3;STOKER_ERROR_TRUNCATED 1024 "},
    {"inside the next header",
     {{'0', "a", "abc"}, {'0', "b", "abc"}},
     1025,
     "a 0 0 512+3;STOKER_ERROR_TRUNCATED 1024 "},
    {"inside the end marker",
     {{'0', "a", "abc"}, END_MARK},
     1535,
     "a 0 0 512+3;STOKER_ERROR_TRUNCATED 1024 "},
    {"half an end marker", {{'0', "a", "abc"}, END_MARK}, 1536, "a 0 0 512+3;end"},
    {"a marker and a half", {{'0', "a", "abc"}, END_MARK}, 1700, "a 0 0 512+3;end"},
    {"padded to a record", {{'0', "a", "abc"}, {' ', .bytes = 9216}}, 0, "a 0 0 512+3;end"},
    {"one zero block, then data",
     {{'0', "a", "abc"}, {' ', .bytes = 512}, {'0', "b", "b"}, END_MARK},
     0,
     "a 0 0 512+3;b 0 1536 2048+1;end"},
    {"two tars, padding between",
     {{'0', "a", "abc"}, {' ', .bytes = 9216}, {'0', "b", "b"}, END_MARK},
     0,
     "a 0 0 512+3;b 0 10240 10752+1;end"},
    {"garbage after the end marker",
     {{'0', "a", "abc"}, END_MARK, {' ', .data = "garbage", .bytes = 512}},
     0,
     "a 0 0 512+3;STOKER_ERROR_CORRUPT 2048 "},
    {"less than a block of garbage after the end marker",
     {{'0', "a", "abc"}, END_MARK, {' ', .data = "garbage"}},
     0,
     "a 0 0 512+3;STOKER_ERROR_CORRUPT 2048 "},

    /* GNU long names. */
    {"L",
     {{'L', "././@LongLink", LONG_100 "/x.jpg"}, {'0', LONG_100, "a"}, END_MARK},
     0,
     LONG_100 "/x.jpg 0 0 1536+1;end"},
    {"L with its NUL",
     {{'L', "", "long\0junk", .bytes = 9}, {'0', "a", "a"}, END_MARK},
     0,
     "long 0 0 1536+1;end"},
    {"L before a prefix",
     {{'L', "", "long"}, {'0', "a", "a", .prefix = "p"}, END_MARK},
     0,
     "long 0 0 1536+1;end"},
    {"L and K",
     {{'K', "", "target"}, {'L', "", "long"}, {'2', "a", ""}, END_MARK},
     0,
     "long 2 0 2560+0;end"},
    {"L lasts for one member",
     {{'L', "", "long"}, {'0', "a", "a"}, {'0', "b", "b"}, END_MARK},
     0,
     "long 0 0 1536+1;b 0 2048 2560+1;end"},
    {"L of a directory", {{'L', "", "long/"}, {'5', "a", ""}, END_MARK}, 0, "long 5 0 1536+0;end"},
    {"an empty L", {{'L', "", ""}, {'0', "a", "a"}, END_MARK}, 0, "STOKER_ERROR_CORRUPT 0 "},
    {"an L that begins with its NUL",
     {{'L', "", "\0abcd", 5}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"L longer than header_bytes_max",
     {{'L', "", .bytes = 4097}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_LIMIT 0 "},
    {"L longer than name_bytes_max",
     {{'L', "", .bytes = 301}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_LIMIT 512 "},
    {"L as long as name_bytes_max",
     {{'L', "", LONG_100 LONG_100 LONG_100}, {'0', "a", "a"}, END_MARK},
     0,
     LONG_100 LONG_100 LONG_100 " 0 0 1536+1;end"},
    {"L past the end",
     {{'L', "", "", .size_field = "00000010000", .data_absent = 1}, END_MARK},
     0,
     "STOKER_ERROR_TRUNCATED 0 "},
    {"L before the end marker", {{'L', "", "long"}, END_MARK}, 0, "STOKER_ERROR_CORRUPT 0 "},
    {"L before the end", {{'L', "", "long"}}, 0, "STOKER_ERROR_TRUNCATED 0 "},
    {"a loop of L",
     {{'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'L', "", "1"},
      {'0', "a", "a"},
      END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 16384 "},

    /* PAX. */
    {"path", {{'x', "", "14 path=x.jpg\n"}, {'0', "a", "a"}, END_MARK}, 0, "x.jpg 0 0 1536+1;end"},
    {"path, slashes behind",
     {{'x', "", "12 path=d//\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "d 0 0 1536+1;end"},
    {"old Solaris",
     {{'X', "", "14 path=x.jpg\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "x.jpg 0 0 1536+1;end"},
    {"other records pass",
     {{'x', "", "13 linkpath=\n20 mtime=1234567890\n14 path=x.jpg\n7 a=\n\n\n"},
      {'0', "a", "a"},
      END_MARK},
     0,
     "x.jpg 0 0 1536+1;end"},
    {"size over size",
     {{'x', "", "10 size=3\n"},
      {'0', "a", "abc", .size_field = "00000000000"},
      {'0', "b", "b"},
      END_MARK},
     0,
     "a 0 0 1536+3;b 0 2048 2560+1;end"},
    {"a size of a link is not used",
     {{'x', "", "10 size=3\n"}, {'2', "a", ""}, {'0', "b", "b"}, END_MARK},
     0,
     "a 2 0 1536+0;b 0 1536 2048+1;end"},
    {"an empty size",
     {{'x', "", "8 size=\n"}, {'0', "a", "abc"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"an empty path",
     {{'x', "", "8 path=\n"}, {'0', "a", "abc"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"the last record of a header counts",
     {{'x', "", "10 path=x\n10 path=y\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "y 0 0 1536+1;end"},
    {"two headers, two names",
     {{'x', "", "10 path=x\n"}, {'L', "", "long"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 1536 "},
    {"two headers, one name",
     {{'x', "", "10 path=x\n"}, {'L', "", "x"}, {'0', "a", "a"}, END_MARK},
     0,
     "x 0 0 2560+1;end"},
    {"two headers, two sizes",
     {{'x', "", "10 size=1\n"}, {'x', "", "10 size=2\n"}, {'0', "a", "ab"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 1536 "},
    {"a long name without its end",
     {{'L', "", "long-and-more", .size_field = "00000000004"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"no records", {{'x', "", ""}, {'0', "a", "a"}, END_MARK}, 0, "a 0 0 1024+1;end"},
    {"NULs behind the records",
     {{'x', "", "10 path=x\n\0\0junk", .bytes = 16}, {'0', "a", "a"}, END_MARK},
     0,
     "x 0 0 1536+1;end"},
    {"global path until another",
     {{'g', "", "10 path=x\n"},
      {'0', "a", "a"},
      {'x', "", "10 path=y\n"},
      {'0', "b", "b"},
      {'g', "", "10 path=z\n"},
      {'0', "c", "c"},
      END_MARK},
     0,
     "x 0 1024 1536+1;y 0 2048 3584+1;z 0 5120 5632+1;end"},
    {"global size",
     {{'g', "", "10 size=3\n"}, {'0', "a", "abc"}, END_MARK},
     0,
     "a 0 1024 1536+3;end"},
    {"global records before another tar",
     {{'g', "", "10 path=x\n"}, {'0', "a", "a"}, END_MARK, {'0', "b", "b"}, END_MARK},
     0,
     "x 0 1024 1536+1;STOKER_ERROR_CORRUPT 3072 "},
    {"global records that say nothing here, before another tar",
     {{'g', "", "10 mode=x\n"}, {'0', "a", "a"}, END_MARK, {'0', "b", "b"}, END_MARK},
     0,
     "a 0 1024 1536+1;b 0 3072 3584+1;end"},
    {"a global header may be the last (git archive of nothing)",
     {{'g', "", "10 path=x\n"}, END_MARK},
     0,
     "end"},
    {"a length that passes the header",
     {{'x', "", "99 path=x\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"a huge length",
     {{'x', "", "99999999999999999999 path=x\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"more digits than a length has",
     {{'x', "", "000000000000000000030 path=x\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"a length that is too short",
     {{'x', "", "10 path=x\n3 a=\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 522 "},
    {"length 0",
     {{'x', "", "0 path=x\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"no length",
     {{'x', "", "path=x\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"a length alone",
     {{'x', "", "10"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"no blank",
     {{'x', "", "10_path=x\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"no newline",
     {{'x', "", "10 path=xy"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"no equals sign",
     {{'x', "", "10 pathxy\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"no key",
     {{'x', "", "10 =abcde\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"NUL in a path",
     {{'x', "", "11 path=a\0b\n", .bytes = 12}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"NUL in a path, honest length",
     {{'x', "", "12 path=a\0b\n", .bytes = 12}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"a size that is no number",
     {{'x', "", "11 size=3x\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"a negative size",
     {{'x', "", "11 size=-3\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"a size of 65 bits",
     {{'x', "", "29 size=18446744073709551616\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"a size of 64 bits",
     {{'x', "", "29 size=18446744073709551615\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_TRUNCATED 1024 a"},
    {"records longer than header_bytes_max",
     {{'x', "", .bytes = 4097}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_LIMIT 0 "},
    {"a path longer than name_bytes_max",
     {{'x', "", "310 path=" LONG_100 LONG_100 LONG_100 "1\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 512 "},
    {"a path longer than name_bytes_max, honest length",
     {{'x', "", "311 path=" LONG_100 LONG_100 LONG_100 "1\n"}, {'0', "a", "a"}, END_MARK},
     0,
     "STOKER_ERROR_LIMIT 512 "},
    {"records cut off",
     {{'x', "", "10 path=x\n"}, {'0', "a", "a"}, END_MARK},
     515,
     "STOKER_ERROR_TRUNCATED 0 "},
    {"records without a member",
     {{'x', "", "10 path=x\n"}, END_MARK},
     0,
     "STOKER_ERROR_CORRUPT 0 "},

    /* Refusals that name the reason. */
    {"old GNU sparse",
     {{'S', "a.bin", "a", .magic = "ustar "}, END_MARK},
     0,
     "STOKER_ERROR_UNSUPPORTED 0 a.bin"},
    {"PAX sparse",
     {{'x', "", "22 GNU.sparse.major=1\n25 GNU.sparse.name=a.bin\n"},
      {'0', "GNUSparseFile.1/a.bin", "a"},
      END_MARK},
     0,
     "STOKER_ERROR_UNSUPPORTED 1024 a.bin"},
    {"from another volume", {{'M', "a.bin", "a"}, END_MARK}, 0, "STOKER_ERROR_UNSUPPORTED 0 a.bin"},
};

static void put_octal(uint8_t *field, int digits, uint64_t number)
{
    char text[32];

    snprintf(text, sizeof text, "%0*llo", digits, (unsigned long long)number);
    memcpy(field, text, digits + 1);
}

static void put_sum(uint8_t *header, char kind)
{
    int sum = 0;

    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++) {
        sum += kind == 's' ? (int8_t)header[i] : header[i];
    }
    sum += kind == 'w';
    if (kind == 'b') {
        memcpy(header + 148, "\x80\0\0\0\0\0", 6);
        header[154] = sum >> 8;
        header[155] = sum;
    } else {
        put_octal(header + 148, 6, sum);
        header[155] = ' ';
    }
}

/* Returns how many bytes the piece took. */
static size_t put_piece(uint8_t *at, const struct piece *piece)
{
    size_t bytes = piece->bytes || !piece->data ? piece->bytes : strlen(piece->data);
    size_t given = piece->data ? strlen(piece->data) : 0;
    bool is_raw = piece->type == ' ';

    if (!is_raw) {
        memcpy(at, piece->name, strlen(piece->name));
        memcpy(at + 100, "0000644", 7);
        if (piece->size_field) {
            bool is_binary = piece->size_field[0] & 0x80;
            memcpy(at + 124, piece->size_field, is_binary ? 12 : strlen(piece->size_field));
        } else {
            put_octal(at + 124, 11, bytes);
        }
        at[156] = piece->type;
        memcpy(at + 257, piece->magic ? piece->magic : "ustar", 6); /* its NUL too */
        if (piece->prefix) {
            memcpy(at + 345, piece->prefix, strlen(piece->prefix));
        }
        put_sum(at, piece->sum);
        at += 512;
    }
    if (piece->data) {
        memcpy(at, piece->data, is_raw ? given : bytes);
    } else if (!is_raw) {
        memset(at, 'd', bytes);
    }
    return is_raw ? bytes : 512 + (bytes + 511) / 512 * 512;
}

static size_t make_tar(const struct row *row, uint8_t *tar)
{
    size_t bytes = 0;

    memset(tar, 0, TAR_BYTES_MAX);
    for (int i = 0; i < PIECES_MAX && (row->pieces[i].name || row->pieces[i].type); i++) {
        bytes += put_piece(tar + bytes, &row->pieces[i]);
    }
    return row->cut ? row->cut : bytes;
}

/* Feeds at most `chunk` bytes at once from a block of exactly that size, so that a sanitizer
 * detects reads past it. */
static int read_tar(const char *name, const uint8_t *bytes, size_t count, size_t chunk,
                    bool is_known, char *log)
{
    struct stk_tar_limits limits = {.name_bytes_max = 300, .header_bytes_max = 4096};
    struct stk_tar *tar = NULL;
    struct stk_tar_step step = {0};
    struct stk_view input = {0};
    struct stoker_error error = {0};
    size_t used = 0;
    int status;

    status = stk_tar_open(&tar, is_known ? count : UINT64_MAX, &limits, &error);
    while (status == 0 && step.event != STK_TAR_END) {
        status = stk_tar_step(tar, input, &step, &error);
        if (status == 0 && step.event == STK_TAR_NEED) {
            size_t left = step.offset < count ? count - step.offset : 0;
            if (is_known) {
                T_TRUE(name, step.bytes > 0 && step.offset + step.bytes <= count);
            }
            input.data = bytes + (left ? step.offset : 0);
            input.bytes = left < chunk ? left : chunk;
        } else if (status == 0 && step.event == STK_TAR_MEMBER) {
            used += snprintf(log + used, LOG_BYTES_MAX - used, "%.*s %c %llu %llu+%llu;",
                             (int)step.name.bytes, (const char *)step.name.data, step.type,
                             (unsigned long long)step.header, (unsigned long long)step.offset,
                             (unsigned long long)step.bytes);
        }
    }
    if (status < 0) {
        T_ERROR(name, &error);
        T_EQ(name, error.status, status);
        snprintf(log + used, LOG_BYTES_MAX - used, "%s %llu %s", stoker_status_name(status),
                 (unsigned long long)error.offset, error.key);
        T_EQ("stays failed", stk_tar_step(tar, input, &step, NULL), status);
    } else {
        snprintf(log + used, LOG_BYTES_MAX - used, "end");
        T_EQ("stays at the end", stk_tar_step(tar, input, &step, &error), 0);
        T_EQ("stays at the end", step.event, STK_TAR_END);
    }
    stk_tar_close(tar);
    return status;
}

static void test_rows(void)
{
    static char full_log[LOG_BYTES_MAX], other[LOG_BYTES_MAX];

    T_EACH(row, row, rows)
    {
        uint8_t *tar = malloc(TAR_BYTES_MAX);
        size_t bytes = make_tar(row, tar);
        uint8_t *exact = malloc(bytes ? bytes : 1);
        int status;

        memcpy(exact, tar, bytes);
        status = read_tar(row->name, exact, bytes, SIZE_MAX, true, full_log);
        T_STR(row->name, full_log, row->want);
        for (size_t chunk = 1; chunk <= 1024; chunk++) {
            read_tar(row->name, exact, bytes, chunk, true, other);
            if (strcmp(full_log, other) != 0) {
                T_STR(row->name, other, full_log);
                break;
            }
        }
        T_EQ(row->name, read_tar(row->name, exact, bytes, SIZE_MAX, false, full_log), status);
        for (size_t chunk = 1; chunk <= 1024; chunk += 13) {
            read_tar(row->name, exact, bytes, chunk, false, other);
            T_STR(row->name, other, full_log);
        }
        free(exact);
        free(tar);
    }
}

/* Every allocation may fail, once. */
static void test_memory(void)
{
    static const struct row row = {
        "memory", {{'x', "", "14 path=x.jpg\n"}, {'0', "a", "a"}, END_MARK}, 0, ""};
    static uint8_t tar[TAR_BYTES_MAX];
    size_t bytes = make_tar(&row, tar);
    int64_t alive = stk_mem_alive();
    int failed = 0;

    for (int n = 1; n < 20; n++) {
        struct stoker_error error = {0};
        struct stk_tar *opened = NULL;

        stk_mem_fail_nth(n);
        if (stk_tar_open(&opened, bytes, NULL, &error) < 0) {
            T_ERROR("open", &error);
            T_EQ("open", error.status, -ENOMEM);
            failed++;
        } else {
            struct stk_tar_step step = {0};
            struct stk_view all = {tar, bytes};
            int status = 0;

            while (status == 0 && step.event != STK_TAR_END) {
                status = stk_tar_step(opened, all, &step, &error);
            }
            failed += status < 0;
            T_EQ("step", status, status < 0 ? -ENOMEM : 0);
        }
        stk_tar_close(opened);
        T_EQ("no leak", stk_mem_alive(), alive);
    }
    stk_mem_fail_nth(0);
    T_EQ("all four allocations were failed", failed, 4);
}

int main(void)
{
    test_rows();
    test_memory();
    stk_tar_close(NULL);
    return t_finish();
}
