/* Goal: files of other programs are recognised by their bytes and names, tars and unknown bytes are
 * not; names that operating systems leave are recognised, names of data are not.
 * Method: rows. Covers file_kind.c and system_file.c. */
#include "base/text/file_kind.h"

#include "base/text/system_file.h"
#include "test/t.h"

#include <string.h>

#define BYTES(text) {(const uint8_t *)(text), sizeof(text) - 1}

static void test_bytes(void)
{
    static const struct row {
        const char *name;
        struct stk_view bytes;
        const char *want; /* NULL: nothing known */
    } rows[] = {
        {"parquet", BYTES("PAR1\x15\0"), "a Parquet file"},
        {"arrow file", BYTES("ARROW1\0\0"), "an Arrow file"},
        {"arrow stream", BYTES("\xff\xff\xff\xff\x78\0\0\0\x10\0\0\0"), "an Arrow file"},
        {"hdf5", BYTES("\x89HDF\r\n\x1a\n"), "an HDF5 file"},
        {"zip", BYTES("PK\3\4abc"), "a zip"},
        {"lmdb", BYTES("0123456789abcdef\xde\xc0\xef\xbe"), "an LMDB database"},
        {"tfrecord", BYTES("\x08\0\0\0\0\0\0\0\xd6\xcf\xff\x3e"), NULL}, /* a wrong checksum */
        {"mds", BYTES("\1\0\0\0\x20\0\0\0\x30\0\0\0{\"column_"),
         "a shard of MDS (MosaicML streaming)"},
        {"beton", BYTES("\2\0\2\0\0\0\x80\0\x10\0\0\0\0\0\0\0\0\0\x80\0\0\0\0\0"),
         "a file of FFCV (beton)"},
        {"html", BYTES("\n<!DOCTYPE html><html>"), "an HTML page"},
        {"html with a prolog", BYTES("<?xml version='1.0'?><html>"), "an HTML page"},
        {"xml", BYTES("<?xml version='1.0'?><Error>"), "XML, as an error of a store"},
        {"lfs", BYTES("version https://git-lfs.github.com/spec/v1\n"), "a Git LFS pointer"},
        {"csv", BYTES("a,b\n1,2\n"), "a table of text (CSV or TSV)"},
        {"json", BYTES("\xef\xbb\xbf{\"a\": 1}"), "JSON"},
        {"text", BYTES("some words"), "text"},
        {"7z", BYTES("7z\xbc\xaf\x27\x1c"), "a 7z archive"},
        {"gguf", BYTES("GGUF\3\0\0\0"), "a GGUF file"},
        {"jpeg", BYTES("\xff\xd8\xff\xe0"), "an image"},
        {"unknown", BYTES("\1\2\3\4"), NULL},
        {"nothing", BYTES(""), NULL},
        {"zeros", BYTES("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), NULL},
    };

    T_EACH(row, row, rows)
    {
        const struct stk_file_kind *found = stk_file_kind_of_bytes(row->bytes);

        T_STR(row->name, found ? found->name : "", row->want ? row->want : "");
        T_TRUE(row->name, !found || strlen(found->advice) > 10);
    }
}

/* The checksum of a length of 8, masked as TensorFlow does it. */
/* More samples than the first bytes have offsets of. */
static void test_large_mds(void)
{
    uint32_t words[128] = {5000, 4 * 5002 + 90};
    struct stk_view head = {(const uint8_t *)words, sizeof words};
    const struct stk_file_kind *found;

    for (uint32_t i = 2; i < 128; i++) {
        words[i] = words[i - 1] + 1000 + i;
    }
    found = stk_file_kind_of_bytes(head);
    T_STR("MDS", found ? found->name : "", "a shard of MDS (MosaicML streaming)");
    words[100] = 7;
    T_TRUE("offsets that do not increase", !stk_file_kind_of_bytes(head));
    words[100] = words[99];
    words[1] = 1u << 25;
    T_TRUE("a header that is too long", !stk_file_kind_of_bytes(head));
}

static void test_tfrecord(void)
{
    static const uint8_t record[] = {8, 0, 0, 0, 0, 0, 0, 0, 0xff, 0x86, 0x24, 0x0f};
    static const uint8_t other[] = {8, 0, 0, 0, 0, 0, 0, 1, 0xff, 0x86, 0x24, 0x0f};
    struct stk_view bytes = {record, sizeof record}, wrong = {other, sizeof other};
    const struct stk_file_kind *found = stk_file_kind_of_bytes(bytes);

    T_STR("a record", found ? found->name : "", "a TFRecord file");
    T_TRUE("another length", stk_file_kind_of_bytes(wrong) == NULL);
}

static void test_names(void)
{
    static const struct row {
        const char *path, *want;
    } rows[] = {{"/d/a.parquet", "a Parquet file"},
                {"s3://b/a.PARQUET?versionId=1", "a Parquet file"},
                {"train.tfrecord-00000-of-00016", "a TFRecord file"},
                {"shard.00000.mds", "a shard of MDS (MosaicML streaming)"},
                {"data.mdb", "an LMDB database"},
                {"a.tar", ""},
                {".parquet", ""}};

    T_EACH(row, row, rows)
    {
        const struct stk_file_kind *found = stk_file_kind_of_name(row->path);

        T_STR(row->path, found ? found->name : "", row->want);
    }
}

static void test_system_files(void)
{
    static const struct row {
        const char *path;
        bool want;
    } rows[] = {
        {"._1.jpg", true},
        {"a/._1.jpg", true},
        {"a/.DS_Store", true},
        {"Thumbs.db", true},
        {"thumbs.db", true},
        {".ipynb_checkpoints/1.jpg", true},
        {"__MACOSX/a/1.jpg", true},
        {"desktop.ini", true},
        {"a/1.jpg", false},
        {".hidden.jpg", false},
        {"._", false},
        {"a_._b.jpg", false},
        {"Thumbs.db.jpg", false},
        {"train/dog/1.jpg", false},
        {"", false},
    };

    T_EACH(row, row, rows)
    {
        T_TRUE(row->path, stk_system_file_in_path((struct stk_view){
                              (const uint8_t *)row->path, strlen(row->path)}) == row->want);
    }
}

int main(void)
{
    test_bytes();
    test_tfrecord();
    test_large_mds();
    test_names();
    test_system_files();
    return t_finish();
}
