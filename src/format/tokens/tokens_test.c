/* Goal: token files are read as their writers meant them, hostile ones are refused with the reason,
 * and every sample equals the tokens that a walk over the file finds.
 * Method: files that Megatron's own _IndexWriter and numpy.save wrote (src/test/corpus/tokens,
 * first byte: kind, see tokens_fuzz.c), with their contents in tables; rows that each change one
 * number of a good index; windows compared with a loop over all files; conversion of every pair of
 * dtypes compared with code of this test, SIMD against plain C (token_widen.c). */
#include "test/t.h"
#include "base/mem.h"
#include "format/tokens/tokens.h"

#include <stdlib.h>
#include <string.h>

#define FILE_MAX 4096u

static uint8_t file_bytes[FILE_MAX];

/* A corpus file without its first `skip` bytes. */
static struct stk_view corpus(const char *name, size_t skip)
{
    char path[256];
    size_t bytes = 0;

    snprintf(path, sizeof path, "src/test/corpus/tokens/%s", name);
    FILE *file = fopen(path, "rb");

    if (T_TRUE(name, file != NULL)) {
        bytes = fread(file_bytes, 1, sizeof file_bytes, file);
        fclose(file);
    }
    return (struct stk_view){file_bytes + skip, bytes > skip ? bytes - skip : 0};
}

/* ---- Megatron ---- */

static const struct megatron_row {
    const char *name;
    uint32_t dtype, sequences, documents;
    bool modes;
    uint32_t lengths[8], ends[8]; /* of documents, in sequences */
} megatron_rows[] = {
    {"megatron_u16", STOKER_UINT16, 5, 4, false, {3, 1, 4, 0, 5}, {0, 2, 3, 3, 5}},
    {"megatron_i32", STOKER_INT32, 3, 3, false, {7, 63, 2}, {0, 1, 2, 3}},
    {"megatron_modes", STOKER_UINT16, 3, 2, true, {2, 3, 5}, {0, 2, 3}},
};

static uint8_t bin[FILE_MAX];

static void test_megatron(void)
{
    T_EACH(megatron_row, row, megatron_rows)
    {
        struct stk_view idx = corpus(row->name, 3);
        struct stk_view tokens = {bin, (size_t)(file_bytes[1] | file_bytes[2] << 8)};
        struct stk_megatron megatron;
        struct stk_token_span span;
        struct stoker_error error = {0};
        uint64_t first[9] = {0};

        if (!T_EQ(row->name, stk_megatron_open(&megatron, idx, tokens, &error), 0)) {
            continue;
        }
        T_EQ(row->name, megatron.run.dtype, row->dtype);
        T_EQ(row->name, megatron.sequence_count, row->sequences);
        T_EQ(row->name, megatron.document_count, row->documents);
        T_EQ(row->name, megatron.modes != NULL, row->modes);
        for (uint32_t i = 0; i < row->sequences; i++) {
            first[i + 1] = first[i] + row->lengths[i];
            T_EQ(row->name, stk_megatron_sequence(&megatron, i, &span, &error), 0);
            T_EQ(row->name, span.first, first[i]);
            T_EQ(row->name, span.count, row->lengths[i]);
        }
        T_EQ(row->name, megatron.run.count, first[row->sequences]);
        for (uint32_t i = 0; i < row->documents; i++) {
            uint64_t count = first[row->ends[i + 1]] - first[row->ends[i]];

            T_EQ(row->name, stk_megatron_document(&megatron, i, &span, &error), 0);
            T_EQ(row->name, span.count, count);
            T_EQ(row->name, count == 0 || span.first == first[row->ends[i]], true);
        }
    }
}

/* One number of megatron_u16 changed. Its 5 sequences: lengths at 34, pointers at 54, documents
 * (5 ends) at 94, end at 134. */
static const struct hostile_row {
    const char *name;
    uint32_t offset, width;
    int64_t value;
    int open, read; /* status of open, and of the first that fails of all sequences, documents */
    const char *part;
} hostile_rows[] = {
    {"untouched", 0, 1, 'M', 0, 0, ""},
    {"magic", 0, 1, 'X', STOKER_ERROR_FORMAT, 0, ""},
    {"version", 9, 8, 2, STOKER_ERROR_UNSUPPORTED, 0, "version 2"},
    {"dtype 0", 17, 1, 0, STOKER_ERROR_CORRUPT, 0, "code 0"},
    {"dtype 9", 17, 1, 9, STOKER_ERROR_CORRUPT, 0, "code 9"},
    {"dtype 255", 17, 1, 255, STOKER_ERROR_CORRUPT, 0, "code 255"},
    {"float32", 17, 1, 7, STOKER_ERROR_UNSUPPORTED, 0, "code 7"},
    {"i32: .bin cut", 17, 1, 4, STOKER_ERROR_TRUNCATED, 0, "26 bytes, 4 a token"},
    {"one sequence more", 18, 8, 6, STOKER_ERROR_TRUNCATED, 0, "6 sequences"},
    {"sequences wrap", 18, 8, INT64_MAX, STOKER_ERROR_TRUNCATED, 0, ""},
    {"12 x sequences is 4 past 2^64", 18, 8, 0x1555555555555556, STOKER_ERROR_TRUNCATED, 0, ""},
    {"sequences are -1", 18, 8, -1, STOKER_ERROR_TRUNCATED, 0, ""},
    {"one sequence less", 18, 8, 4, STOKER_ERROR_CORRUPT, 0, "12 bytes too many"},
    {"documents wrap", 26, 8, INT64_MAX, STOKER_ERROR_TRUNCATED, 0, ""},
    {"8 x documents wraps", 26, 8, 0x2000000000000005, STOKER_ERROR_TRUNCATED, 0, ""},
    {"one document less", 26, 8, 4, STOKER_ERROR_CORRUPT, 0, "8 bytes too many"},
    {"negative length", 34, 4, -3, STOKER_ERROR_CORRUPT, 0, "entry 0 holds -3"},
    {"length past .bin", 34, 4, 14, STOKER_ERROR_CORRUPT, 0, "entry 0 holds 14"},
    {"length past the next", 34, 4, 4, 0, STOKER_ERROR_CORRUPT, "pointers: entry 1"},
    {"length to .bin's end", 50, 4, 6, STOKER_ERROR_TRUNCATED, 0, "26 bytes in the .bin, 28 by"},
    {"pointer inside a token", 62, 8, 5, STOKER_ERROR_CORRUPT, 0, "entry 1 holds 5"},
    {"pointer past .bin", 62, 8, 28, STOKER_ERROR_CORRUPT, 0, "entry 1 holds 28"},
    {"negative pointer", 62, 8, -2, STOKER_ERROR_CORRUPT, 0, "entry 1 holds -2"},
    {"document backwards", 102, 8, 4, 0, STOKER_ERROR_CORRUPT, "entry 1 holds 4"},
    {"document past the sequences", 126, 8, 6, 0, STOKER_ERROR_CORRUPT, "entry 4 holds 6"},
    {"negative document", 94, 8, -1, 0, STOKER_ERROR_CORRUPT, "entry 0 holds -1"},
};

static int read_all(const struct stk_megatron *megatron, struct stoker_error *error)
{
    struct stk_token_span span;
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < megatron->sequence_count; i++) {
        status = stk_megatron_sequence(megatron, i, &span, error);
    }
    for (uint64_t i = 0; status == 0 && i < megatron->document_count; i++) {
        status = stk_megatron_document(megatron, i, &span, error);
    }
    return status;
}

static void test_hostile(void)
{
    T_EACH(hostile_row, row, hostile_rows)
    {
        struct stk_view idx = corpus("megatron_u16", 3), tokens = {bin, 26};
        struct stk_megatron megatron;
        struct stoker_error error = {0};

        memcpy(file_bytes + 3 + row->offset, &row->value, row->width);
        int status = stk_megatron_open(&megatron, idx, tokens, &error);

        T_EQ(row->name, status, row->open);
        if (status == 0) {
            status = read_all(&megatron, &error);
            T_EQ(row->name, status, row->read);
        }
        if (status < 0) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.where, row->part);
        }
    }
    for (size_t bytes = 0; bytes < 134; bytes++) {
        struct stk_view idx = {corpus("megatron_u16", 3).data, bytes}, tokens = {bin, 26};
        struct stk_megatron megatron;
        struct stoker_error error = {0};

        T_EQ("cut", stk_megatron_open(&megatron, idx, tokens, &error),
             bytes < 9 ? STOKER_ERROR_FORMAT : STOKER_ERROR_TRUNCATED);
    }
}

/* The same index with .bin files of other sizes. */
static void test_bin_size(void)
{
    static const struct size_row {
        const char *name;
        size_t bytes;
        int status;
        const char *part;
    } rows[] = {
        {"as the index", 26, 0, ""},
        {"one token less", 24, STOKER_ERROR_TRUNCATED, "24 bytes in the .bin, 26 by"},
        {"half", 12, STOKER_ERROR_TRUNCATED, "12 bytes in the .bin, 26 by"},
        {"empty", 0, STOKER_ERROR_TRUNCATED, "0 bytes in the .bin, 26 by"},
        {"one token more", 28, STOKER_ERROR_CORRUPT, "28 bytes in the .bin, 26 by"},
    };

    T_EACH(size_row, row, rows)
    {
        struct stk_view idx = corpus("megatron_u16", 3), tokens = {bin, row->bytes};
        struct stk_megatron megatron;
        struct stoker_error error = {0};
        int status = stk_megatron_open(&megatron, idx, tokens, &error);

        T_EQ(row->name, status, row->status);
        if (status < 0) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.where, row->part);
        }
    }
}

/* Files that are not raw tokens: their first bytes, and the format that the error names. NULL: raw
 * tokens. */
static const struct foreign_row {
    const char *name, *part;
    size_t at;
    const char *bytes;
    size_t count;
    uint32_t dtype;
} foreign_rows[] = {
    {"zeros", NULL, 0, "", 0, STOKER_UINT16},
    {"gzip", "gzip", 0, "\x1f\x8b\x08\0\0\0\0\0\0\x03", 10, STOKER_UINT16},
    {"gzip's magic alone", NULL, 0, "\x1f\x8b\x08\xff", 4, STOKER_UINT16},
    {"gzip as bytes", "gzip", 0, "\x1f\x8b\x08\x08\0\0\0\0\x02\xff", 10, STOKER_UINT8},
    {"bzip2", "bzip2", 0, "BZh91AY&SY", 10, STOKER_UINT16},
    {"BZh alone", NULL, 0, "BZh9", 4, STOKER_UINT16},
    {"xz", "xz", 0, "\xfd\x37zXZ\0", 6, STOKER_INT32},
    {"lz4", "lz4", 0, "\x04\x22\x4d\x18", 4, STOKER_UINT16},
    {"zip", "zip", 0, "PK\3\4", 4, STOKER_UINT16},
    {"tar", "a tar", 257, "ustar", 5, STOKER_UINT16},
    {"Parquet", "Parquet", 0, "PAR1", 4, STOKER_UINT32},
    {"Arrow", "Arrow", 0, "ARROW1\0\0", 8, STOKER_INT64},
    {"HDF5", "HDF5", 0, "\x89HDF\r\n\x1a\n", 8, STOKER_UINT16},
    {"Megatron index", "a Megatron index", 0, "MMIDIDX\0\0", 9, STOKER_UINT16},
    {"LFS pointer", "a Git LFS pointer", 0, "version https://git-lfs.github.com/spec/v1", 42,
     STOKER_UINT16},
    {"HTML", "a page of HTML", 0, "\r\n<!DOCTYPE html>", 17, STOKER_UINT16},
    {"Parquet's magic in bytes", NULL, 0, "PAR1", 4, STOKER_UINT8},
    {"PDF's magic in bytes", NULL, 0, "%PDF-", 5, STOKER_INT8},
    {"zip as bytes", "zip", 0, "PK\3\4", 4, STOKER_INT8},
    {"HTML as bytes", NULL, 0, "<!DOCTYPE html>", 15, STOKER_UINT8},
};

static void test_foreign(void)
{
    static const char text[] = "{\"text\": \"The quick brown fox jumps over the lazy dog, and so "
                               "on.\"}";
    const char *advice;

    T_EACH(foreign_row, row, foreign_rows)
    {
        struct stk_view bytes = {file_bytes, 1024};
        struct stk_token_array run;
        struct stoker_error error = {0};
        int status;

        memset(file_bytes, 0, sizeof file_bytes);
        memcpy(file_bytes + row->at, row->bytes, row->count);
        status = stk_tokens_open_any(&run, bytes, row->dtype, &error);
        T_EQ(row->name, status, row->part ? STOKER_ERROR_FORMAT : 0);
        if (status < 0) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.where, row->part);
        }
        for (size_t cut = 0; row->count > 0 && cut < row->at + row->count; cut++) {
            bytes.bytes = cut; /* ASan: nothing after the end is read */
            (void)stk_token_foreign_format(bytes, row->dtype, &advice);
        }
    }
    struct stk_view view = {(const uint8_t *)text, sizeof text - 1};

    T_TRUE("text", stk_token_foreign_format(view, STOKER_UINT16, &advice) != NULL);
    T_TRUE("text as bytes", stk_token_foreign_format(view, STOKER_UINT8, &advice) == NULL);
    view.bytes = 63;
    T_TRUE("too short to tell", stk_token_foreign_format(view, STOKER_UINT16, &advice) == NULL);
}

/* ---- tokens in a row ---- */

static const struct run_row {
    const char *name, *file; /* cut by `cut` bytes at its end */
    enum stk_token_format format;
    uint32_t dtype, cut;
    int status;
    uint64_t count, step, wrap; /* token i is i * step % wrap */
} run_rows[] = {
    {"npy", "npy_u16", STK_TOKENS_NPY, STOKER_UINT16, 0, 0, 100, 601, 65536},
    {"npy of rows", "npy_rows", STK_TOKENS_NPY, STOKER_INT64, 0, 0, 12, 1, 100},
    {"npy of floats", "npy_float", STK_TOKENS_NPY, 0, 0, STOKER_ERROR_UNSUPPORTED, 0, 0, 1},
    {"npy, big endian", "npy_big", STK_TOKENS_NPY, 0, 0, STOKER_ERROR_UNSUPPORTED, 0, 0, 1},
    {"npy, cut", "npy_u16", STK_TOKENS_NPY, 0, 2, STOKER_ERROR_TRUNCATED, 0, 0, 1},
    {"llm.c, GPT-2", "llmc_u16", STK_TOKENS_LLMC, STOKER_UINT16, 0, 0, 50, 1009, 50257},
    {"llm.c, Llama 3", "llmc_u32", STK_TOKENS_LLMC, STOKER_UINT32, 0, 0, 5, 25000, 1 << 20},
    {"llm.c, cut", "llmc_u16", STK_TOKENS_LLMC, 0, 2, STOKER_ERROR_TRUNCATED, 0, 0, 1},
    {"llm.c, header only", "llmc_u16", STK_TOKENS_LLMC, 0, 100, STOKER_ERROR_TRUNCATED, 0, 0, 1},
    {"raw", "raw_u16", STK_TOKENS_UNKNOWN, STOKER_UINT16, 0, 0, 20, 3001, 65536},
    {"raw, cut", "raw_u16", STK_TOKENS_UNKNOWN, STOKER_UINT16, 1, STOKER_ERROR_TRUNCATED, 0, 0, 1},
    {"raw floats", "raw_u16", STK_TOKENS_UNKNOWN, STOKER_FLOAT32, 0, STOKER_ERROR_ARGUMENT, 0, 0,
     1},
    {"raw bools", "raw_u16", STK_TOKENS_UNKNOWN, STOKER_BOOL, 0, STOKER_ERROR_ARGUMENT, 0, 0, 1},
};

static void test_runs(void)
{
    T_EACH(run_row, row, run_rows)
    {
        struct stk_view bytes = corpus(row->file, 1);
        struct stk_token_array run;
        struct stoker_error error = {0};
        int64_t out[128] = {0};
        int status;

        T_EQ(row->name, stk_token_format_of(bytes), row->format);
        bytes.bytes -= row->cut;
        status = row->format == STK_TOKENS_NPY ? stk_tokens_open_npy(&run, bytes, &error)
                 : row->format == STK_TOKENS_LLMC
                     ? stk_tokens_open_llmc(&run, bytes, &error)
                     : stk_tokens_open_raw(&run, bytes, row->dtype, &error);
        T_EQ(row->name, status, row->status);
        T_EQ(row->name, run.count, row->count);
        if (status < 0) {
            T_ERROR(row->name, &error);
            continue;
        }
        T_EQ(row->name, run.dtype, row->dtype);
        T_TRUE(row->name, stk_token_widen(&run, 0, run.count, STOKER_INT64, out));
        for (uint64_t i = 0; i < run.count; i++) {
            T_EQ(row->name, out[i], i * row->step % row->wrap);
        }
    }
}

static void test_llmc_header(void)
{
    struct stk_view bytes = corpus("llmc_u16", 1);
    struct stk_token_array run;
    struct stoker_error error = {0};

    file_bytes[1 + 8]--; /* the count */
    T_EQ("more than counted", stk_tokens_open_llmc(&run, bytes, &error), STOKER_ERROR_CORRUPT);
    file_bytes[1 + 4]++; /* the version */
    T_EQ("version", stk_tokens_open_llmc(&run, bytes, &error), STOKER_ERROR_UNSUPPORTED);
    T_EQ("a raw file that begins alike", stk_token_format_of(bytes), STK_TOKENS_UNKNOWN);
    file_bytes[1]++; /* the magic */
    T_EQ("magic", stk_tokens_open_llmc(&run, bytes, &error), STOKER_ERROR_FORMAT);
    T_EQ("nothing", stk_token_format_of((struct stk_view){NULL, 0}), STK_TOKENS_UNKNOWN);
    T_EQ("no tokens", stk_tokens_open_raw(&run, (struct stk_view){NULL, 0}, STOKER_UINT16, &error),
         0);
    T_EQ("no tokens", run.count, 0);
}

/* ---- windows ---- */

static const struct window_row {
    const char *name;
    uint64_t length, stride, counts[6];
    uint32_t files;
    int status;
} window_rows[] = {
    {"one file, exact", 5, 4, {21}, 1, 0},
    {"one token short", 5, 4, {20}, 1, 0},
    {"one window", 5, 4, {5}, 1, 0},
    {"no window", 5, 4, {4}, 1, STOKER_ERROR_EMPTY},
    {"no file", 5, 4, {0}, 0, STOKER_ERROR_EMPTY},
    {"length 0", 0, 4, {9}, 1, STOKER_ERROR_ARGUMENT},
    {"stride 0", 5, 0, {9}, 1, STOKER_ERROR_ARGUMENT},
    {"files, some too short", 9, 8, {4, 100, 0, 8, 9, 57}, 6, 0},
    {"the last are empty", 9, 8, {40, 30, 0, 0, 1, 8}, 6, 0},
    {"windows overlap", 16, 3, {100, 15, 17, 16}, 4, 0},
    {"gaps between windows", 3, 10, {33, 10, 11, 12, 13}, 5, 0},
};

static void test_windows(void)
{
    T_EACH(window_row, row, window_rows)
    {
        struct stk_token_windows windows;
        struct stoker_error error = {0};
        uint64_t sample = 0;
        int status = stk_token_windows_open(&windows, row->length, row->stride, row->counts,
                                            row->files, &error);

        T_EQ(row->name, status, row->status);
        if (status < 0) {
            T_ERROR(row->name, &error);
            continue;
        }
        for (uint32_t file = 0; file < row->files; file++) {
            for (uint64_t at = 0; at + row->length <= row->counts[file]; at += row->stride) {
                struct stk_token_window window = stk_token_windows_get(&windows, sample++);

                T_EQ(row->name, window.file, file);
                T_EQ(row->name, window.first, at);
            }
        }
        T_EQ(row->name, stk_token_windows_count(&windows), sample);
        stk_token_windows_close(&windows);
    }
    struct stk_token_windows windows;
    struct stoker_error error = {0};
    uint64_t count = UINT64_MAX / 8; /* as many as memory has room for */

    stk_mem_fail_nth(1);
    T_EQ("no memory", stk_token_windows_open(&windows, 2049, 2048, &count, 1, &error), -12);
    T_ERROR("no memory", &error);
    stk_mem_fail_nth(0);
    T_EQ("huge", stk_token_windows_open(&windows, 2049, 2048, &count, 1, &error), 0);
    T_EQ("huge",
         stk_token_windows_get(&windows, stk_token_windows_count(&windows) - 1).first + 4096 >=
             count,
         true);
    stk_token_windows_close(&windows);
    stk_token_windows_close(&windows);
}

/* ---- widening ---- */

static const struct dtype_row {
    const char *name;
    uint32_t dtype, bytes;
    bool is_signed;
} dtype_rows[] = {
    {"u8", STOKER_UINT8, 1, false},   {"i8", STOKER_INT8, 1, true},
    {"u16", STOKER_UINT16, 2, false}, {"i16", STOKER_INT16, 2, true},
    {"u32", STOKER_UINT32, 4, false}, {"i32", STOKER_INT32, 4, true},
    {"u64", STOKER_UINT64, 8, false}, {"i64", STOKER_INT64, 8, true},
};

/* Token i, put together bit by bit; *fits_out: whether out holds it. */
static int64_t value_at(const struct dtype_row *row, const uint8_t *data, uint64_t i, uint32_t out,
                        bool *fits_out)
{
    uint64_t bits = row->is_signed && data[i * row->bytes + row->bytes - 1] >> 7 ? UINT64_MAX : 0;
    int64_t value;

    for (uint32_t k = row->bytes; k > 0; k--) {
        bits = bits << 8 | data[i * row->bytes + k - 1];
    }
    value = (int64_t)bits;
    *fits_out = (row->is_signed || value >= 0) &&
                (out == STOKER_INT64 || (value >= INT32_MIN && value <= INT32_MAX));
    return value;
}

#define WIDEN_TOKENS 67u

/* True if the result of widening is right: all fits and is equal, or something does not fit. */
static bool is_right(const struct dtype_row *row, const uint8_t *data, uint64_t count, uint32_t out,
                     const uint8_t *got, bool said)
{
    bool fits, all = true, equal = true;

    for (uint64_t i = 0; i < count; i++) {
        int64_t value = value_at(row, data, i, out, &fits), wide;
        int32_t narrow;

        memcpy(&narrow, got + 4 * i, sizeof narrow);
        wide = narrow;
        if (out == STOKER_INT64) {
            memcpy(&wide, got + 8 * i, sizeof wide);
        }
        all = all && fits;
        equal = equal && value == wide;
    }
    return said == all && (equal || !all);
}

static void test_widen(void)
{
    uint8_t stored[8 * (WIDEN_TOKENS + 2)], plain[8 * WIDEN_TOKENS + 8], vector[sizeof plain];

    srand(17);
    for (int round = 0; round < 64; round++) {
        /* Also without large values: else nothing would ever fit. */
        for (size_t i = 0; i < sizeof stored; i++) {
            stored[i] = (uint8_t)(round % 2 && i % 4 > 1 ? 0 : rand());
        }
        T_EACH(dtype_row, row, dtype_rows)
        {
            uint8_t *data = stored + round % 8;
            uint64_t first = (uint64_t)round % 3, count = WIDEN_TOKENS - (uint64_t)round - 2;
            struct stk_token_array run = {data, WIDEN_TOKENS, row->dtype};

            for (uint32_t out = STOKER_INT64; out; out = out == STOKER_INT64 ? STOKER_INT32 : 0) {
                size_t bytes = count * (out == STOKER_INT64 ? 8 : 4);
                bool said;

                memset(plain, 0xa5, sizeof plain);
                memset(vector, 0xa5, sizeof vector);
                said = stk_token_widen_scalar(&run, first, count, out, plain);
                T_EQ(row->name, stk_token_widen(&run, first, count, out, vector), said);
                T_TRUE(row->name, memcmp(plain, vector, sizeof plain) == 0);
                T_TRUE(row->name,
                       is_right(row, data + first * row->bytes, count, out, vector, said));
                T_TRUE(row->name, vector[bytes] == 0xa5); /* nothing after the last */
            }
        }
    }
}

int main(void)
{
    test_megatron();
    test_hostile();
    test_bin_size();
    test_foreign();
    test_runs();
    test_llmc_header();
    test_windows();
    test_widen();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
