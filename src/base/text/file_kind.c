/* Magic numbers and names of formats that training data is stored in. */
#include "base/text/file_kind.h"

#include "base/byte_order.h"
#include "base/crc.h"
#include "base/text/text_match.h"

#include <string.h>

#define WRITE_TARS "write its samples with stoker.ShardWriter, one write() a sample"
#define FETCH_AGAIN                                                                                \
    "the server sent it instead of the data: check the URL and credentials, fetch again"
#define NAME_FOLDER "name the folder that holds the images"

static const struct stk_file_kind
    parquet = {"a Parquet file", "stoker.pack_table(path, ...) writes tars of it"},
    arrow = {"an Arrow file", "stoker.pack_table(path, ...) writes tars of it"},
    table = {"a table of text (CSV or TSV)",
             "stoker.pack_table(path, ...) writes tars of it; stoker.TextLoader reads lines"},
    json = {"JSON", "stoker.TextLoader reads lines of JSON; stoker.pack_table writes tars of them"},
    plain_text = {"text",
                  "stoker.TextLoader reads lines of text; a list of shards is passed as a list"},
    tfrecord = {"a TFRecord file", "read it with the package tfrecord, and " WRITE_TARS},
    mds = {"a shard of MDS (MosaicML streaming)",
           "read it with streaming.LocalDataset, and " WRITE_TARS},
    hdf5 = {"an HDF5 file", "read it with h5py, and " WRITE_TARS},
    zip = {"a zip", "unzip it, or name what is in it: zip://*.tar::file:///path/to/a.zip"},
    lmdb = {"an LMDB database", "read it with the package lmdb, and " WRITE_TARS},
    beton = {"a file of FFCV (beton)", "convert the data from which it was made, or read it with "
                                       "ffcv, and " WRITE_TARS},
    lance = {"a Lance data set", "export it as Parquet, which stoker.pack_table reads"},
    avro = {"an Avro file", "read it with fastavro, and " WRITE_TARS},
    orc = {"an ORC file", "export it as Parquet, which stoker.pack_table reads"},
    sqlite = {"an SQLite database", "read it with sqlite3, and " WRITE_TARS},
    numpy = {"a NumPy array", "stoker.TokenLoader reads arrays of tokens"},
    pickle = {"a Python pickle", "load it where you trust it, and " WRITE_TARS},
    seven = {"a 7z archive", "unpack it, and name the folder or the tars"},
    rar = {"a RAR archive", "unpack it, and name the folder or the tars"},
    html = {"an HTML page", FETCH_AGAIN}, xml = {"XML, as an error of a store", FETCH_AGAIN},
    lfs = {"a Git LFS pointer", "'git lfs pull' fetches the data"},
    image = {"an image", NAME_FOLDER},
    double_file = {"an AppleDouble file of macOS", "remove it; it holds no data of yours"},
    safetensors = {"a safetensors file", "it holds weights, not samples: read it with safetensors"},
    gguf = {"a GGUF file", "stoker reads the safetensors files that it was made from"},
    lz4 = {"lz4 data", "decompress it; gz, zstd, bz2 and xz are read as they are"};

static const struct magic {
    const struct stk_file_kind *format;
    uint32_t offset, bytes;
    const char *magic;
} magics[] = {
    {&parquet, 0, 4, "PAR1"},
    {&arrow, 0, 6, "ARROW1"},
    {&hdf5, 0, 8, "\x89HDF\r\n\x1a\n"},
    {&zip, 0, 4, "PK\3\4"},
    {&zip, 0, 4, "PK\5\6"},
    {&lmdb, 16, 4, "\xde\xc0\xef\xbe"},
    {&avro, 0, 4, "Obj\1"},
    {&orc, 0, 3, "ORC"},
    {&sqlite, 0, 16, "SQLite format 3"},
    {&numpy, 0, 6, "\x93NUMPY"},
    {&pickle, 0, 2, "\x80\2"},
    {&pickle, 0, 2, "\x80\3"},
    {&pickle, 0, 2, "\x80\4"},
    {&pickle, 0, 2, "\x80\5"},
    {&seven, 0, 6, "7z\xbc\xaf\x27\x1c"},
    {&rar, 0, 6, "Rar!\x1a\x07"},
    {&lz4, 0, 4, "\x04\x22\x4d\x18"},
    {&image, 0, 3, "\xff\xd8\xff"},
    {&image, 0, 8, "\x89PNG\r\n\x1a\n"},
    {&image, 8, 4, "WEBP"},
    {&image, 0, 4, "GIF8"},
    {&image, 0, 4, "II*\0"},
    {&image, 0, 4, "MM\0*"},
    {&double_file, 0, 4, "\0\5\x16\7"},
    {&gguf, 0, 4, "GGUF"},
    {&safetensors, 8, 2, "{\""},
};

static const struct ending {
    const struct stk_file_kind *format;
    const char *ending;
} endings[] = {
    {&parquet, ".parquet"},
    {&parquet, ".pq"},
    {&arrow, ".arrow"},
    {&arrow, ".feather"},
    {&tfrecord, ".tfrecord"},
    {&tfrecord, ".tfrecords"},
    {&tfrecord, ".tfrec"},
    {&mds, ".mds"},
    {&mds, ".mds.zstd"},
    {&hdf5, ".h5"},
    {&hdf5, ".hdf5"},
    {&hdf5, ".he5"},
    {&zip, ".zip"},
    {&lmdb, ".lmdb"},
    {&lmdb, ".mdb"},
    {&beton, ".beton"},
    {&lance, ".lance"},
    {&avro, ".avro"},
    {&orc, ".orc"},
    {&sqlite, ".sqlite"},
    {&sqlite, ".db"},
    {&table, ".csv"},
    {&table, ".tsv"},
    {&table, ".csv.gz"},
    {&json, ".jsonl"},
    {&json, ".jsonl.gz"},
    {&json, ".jsonl.zst"},
    {&json, ".ndjson"},
    {&numpy, ".npy"},
    {&pickle, ".pkl"},
    {&pickle, ".pt"},
    {&seven, ".7z"},
    {&rar, ".rar"},
    {&gguf, ".gguf"},
    {&safetensors, ".safetensors"},
};

/* A record begins with its length and the masked CRC32C of the length (TensorFlow,
 * lib/io/record_writer.h). */
static bool is_tfrecord(struct stk_view head)
{
    uint32_t crc;

    if (head.bytes < 12) {
        return false;
    }
    crc = stk_crc32c(0, head.data, 8);
    return stk_little(head.data + 8, 4) == (uint32_t)(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

/* A message of the Arrow IPC stream: a continuation mark, the length of a flatbuffer, which is a
 * multiple of 8, and the offset of its root. */
static bool is_arrow_stream(struct stk_view head)
{
    uint64_t bytes;

    if (head.bytes < 12 || memcmp(head.data, "\xff\xff\xff\xff", 4) != 0) {
        return false;
    }
    bytes = stk_little(head.data + 4, 4);
    return bytes > 0 && bytes % 8 == 0 && bytes < 1u << 26 && stk_little(head.data + 8, 4) < bytes;
}

/* MDS: u32 samples, u32 offsets[samples + 1], a header of JSON. The first offset is where the
 * first sample begins. */
static bool is_mds(struct stk_view head)
{
    uint64_t count, first, header_at;

    if (head.bytes < 16) {
        return false;
    }
    count = stk_little(head.data, 4);
    first = stk_little(head.data + 4, 4);
    if (count == 0 || count > 1u << 24 || first <= 4 * (count + 2) || first > 1u << 26) {
        return false;
    }
    header_at = 4 * (count + 2);
    if (header_at < head.bytes) {
        return head.data[header_at] == '{';
    }
    /* The header is behind these bytes: it is short, and the offsets increase. */
    for (uint64_t at = 8; at + 4 <= head.bytes; at += 4) {
        if (stk_little(head.data + at, 4) < stk_little(head.data + at - 4, 4)) {
            return false;
        }
    }
    return head.bytes >= 256 && first - header_at <= 1u << 16;
}

/* FFCV: u16 version 2, u16 fields, u32 bytes of a page (a power of two), u64 samples. */
static bool is_beton(struct stk_view head)
{
    uint64_t page;

    if (head.bytes < 24 || stk_little(head.data, 2) != 2) {
        return false;
    }
    page = stk_little(head.data + 4, 4);
    return stk_little(head.data + 2, 2) - 1 < 64 && page >= 4096 && (page & (page - 1)) == 0 &&
           stk_little(head.data + 16, 8) >= page;
}

static bool begins(const char *text, size_t bytes, const char *word)
{
    size_t length = strlen(word);

    return bytes >= length && strncasecmp(text, word, length) == 0;
}

/* True if the first line has a comma, tab or semicolon. Other lines are not read. */
static bool is_table(const char *line, size_t bytes)
{
    const char *end = memchr(line, '\n', bytes);
    size_t length = end ? (size_t)(end - line) : bytes;

    return memchr(line, ',', length) || memchr(line, '\t', length) || memchr(line, ';', length);
}

static const struct stk_file_kind *of_text(const char *at, size_t bytes)
{
    size_t mark_bytes = stk_view_mark_bytes((struct stk_view){(const uint8_t *)at, bytes});

    at += mark_bytes;
    bytes -= mark_bytes;
    while (bytes > 0 && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) {
        at++;
        bytes--;
    }
    if (begins(at, bytes, "<!doctype html") || begins(at, bytes, "<html") ||
        begins(at, bytes, "<head")) {
        return &html;
    }
    if (begins(at, bytes, "version https://git-lfs")) {
        return &lfs;
    }
    if (begins(at, bytes, "<")) {
        return memmem(at, bytes, "<html", 5) ? &html : &xml;
    }
    if (begins(at, bytes, "{") || begins(at, bytes, "[")) {
        return &json;
    }
    return is_table(at, bytes) ? &table : &plain_text;
}

static bool is_text(struct stk_view head)
{
    for (size_t i = 0; i < head.bytes; i++) {
        uint8_t byte = head.data[i];

        if ((byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t' && byte != '\f') ||
            byte == 0x7f) {
            return false;
        }
    }
    return head.bytes > 0;
}

const struct stk_file_kind *stk_file_kind_of_bytes(struct stk_view head)
{
    head.bytes = stk_min(head.bytes, STK_FILE_KIND_BYTES);
    for (size_t i = 0; i < STK_COUNT(magics); i++) {
        const struct magic *row = &magics[i];

        if (head.bytes >= row->offset + row->bytes &&
            memcmp(head.data + row->offset, row->magic, row->bytes) == 0) {
            return row->format;
        }
    }
    return is_tfrecord(head)       ? &tfrecord
           : is_arrow_stream(head) ? &arrow
           : is_mds(head)          ? &mds
           : is_beton(head)        ? &beton
           : is_text(head)         ? of_text((const char *)head.data, head.bytes)
                                   : NULL;
}

const char *stk_file_kind_checkpoint_advice(const struct stk_file_kind *kind)
{
    if (kind == &hdf5 || kind == &numpy || kind == &pickle) {
        return "load it with its tool, and save it with stoker.save()";
    }
    return kind == &gguf || kind == &lfs || kind == &html || kind == &xml ? kind->advice : NULL;
}

const struct stk_file_kind *stk_file_kind_of_name(const char *path)
{
    struct stk_view name = {(const uint8_t *)path, strcspn(path, "?#")};

    for (size_t i = 0; i < STK_COUNT(endings); i++) {
        if (name.bytes > strlen(endings[i].ending) &&
            stk_view_ends_with_nocase(name, endings[i].ending)) {
            return endings[i].format;
        }
    }
    /* "train.tfrecord-00000-of-00016" */
    return strstr(path, ".tfrecord-") || strstr(path, ".tfrecords-") ? &tfrecord : NULL;
}
