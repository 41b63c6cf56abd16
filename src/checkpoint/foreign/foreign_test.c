/* Goal: checkpoints of other tools are read exactly, and nothing in a malicious file leads to a
 * read outside of it.
 * Method: archives and a DCP folder written here, then cut and flipped at each
 * byte; ranges of tensors made of random boxes against a copy element by element. Covers
 * part_reader.c, zip_archive.c, torch_file.c, torch_tree.c, open_torch.c, dcp_metadata.c,
 * dcp_tree.c, open_dcp.c, tensor_pieces.c, foreign_detect.c. */
#include "base/mem.h"
#include "checkpoint/foreign/foreign_private.h"
#include "engine/engine.h"
#include "test/checkpoints.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BYTES_MAX 65536u

/* ---- a growing file ---- */

struct bytes {
    uint8_t data[BYTES_MAX];
    size_t used;
};

static void add(struct bytes *to, const void *data, size_t bytes)
{
    STK_ASSERT(to->used + bytes <= BYTES_MAX);
    memcpy(to->data + to->used, data, bytes);
    to->used += bytes;
}

static void add_number(struct bytes *to, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)(i < sizeof number ? number >> (8 * i) : 0);

        add(to, &byte, 1);
    }
}

static void add_text(struct bytes *to, const char *text)
{
    add(to, text, strlen(text));
}

/* A text of a pickle. */
static void add_unicode(struct bytes *to, const char *text)
{
    add_text(to, "X");
    add_number(to, strlen(text), 4);
    add_text(to, text);
}

static void add_integer(struct bytes *to, uint32_t number)
{
    add_text(to, "J");
    add_number(to, number, 4);
}

/* ---- archives ---- */

struct archive {
    struct bytes file, directory;
    uint16_t count;
    size_t base;
};

static void add_member(struct archive *archive, const char *name, const void *data, size_t bytes)
{
    uint32_t crc = (uint32_t)crc32(0, data, (uInt)bytes);
    uint64_t header = archive->file.used - archive->base;
    struct bytes *to[2] = {&archive->file, &archive->directory};

    for (int i = 0; i < 2; i++) {
        add_number(to[i], i ? 0x02014b50 : 0x04034b50, 4);
        add_number(to[i], 0, i ? 4 : 2);
        add_number(to[i], 0, 8); /* flags, method, time, date */
        add_number(to[i], crc, 4);
        add_number(to[i], bytes, 4);
        add_number(to[i], bytes, 4);
        add_number(to[i], strlen(name), 2);
        add_number(to[i], 0, i ? 12 : 2);
        if (i) {
            add_number(to[i], header, 4);
        }
        add_text(to[i], name);
    }
    add(&archive->file, data, bytes);
    archive->count++;
}

static void end_archive(struct archive *archive)
{
    uint64_t at = archive->file.used - archive->base;

    add(&archive->file, archive->directory.data, archive->directory.used);
    add_number(&archive->file, 0x06054b50, 4);
    add_number(&archive->file, 0, 4);
    add_number(&archive->file, archive->count, 2);
    add_number(&archive->file, archive->count, 2);
    add_number(&archive->file, archive->directory.used, 4);
    add_number(&archive->file, at, 4);
    add_number(&archive->file, 0, 2);
    archive->directory.used = 0;
    archive->count = 0;
}

/* A tensor of a storage of floats: rows x columns. */
static void add_tensor(struct bytes *to, uint32_t rows, uint32_t columns)
{
    add_text(to, "ctorch._utils\n_rebuild_tensor_v2\n((");
    add_unicode(to, "storage");
    add_text(to, "ctorch\nFloatStorage\n");
    add_unicode(to, "0");
    add_unicode(to, "cpu");
    add_integer(to, rows * columns);
    add_text(to, "tQ");
    add_integer(to, 0);
    add_integer(to, rows);
    add_integer(to, columns);
    add_text(to, "\x86");
    add_integer(to, columns);
    add_integer(to, 1);
    add_text(to, "\x86\x89");
    add_text(to, "ccollections\nOrderedDict\n)RtR");
}

/* Appends an archive with one array, or with a number. */
static void add_item(struct archive *archive, uint32_t rows, uint32_t columns, float first)
{
    struct bytes pickle = {.used = 0};
    float numbers[64];

    archive->base = archive->file.used;
    add_text(&pickle, "\x80\x02");
    if (rows > 0) {
        add_tensor(&pickle, rows, columns);
    } else {
        add_integer(&pickle, 7);
    }
    add_text(&pickle, ".");
    for (uint32_t i = 0; i < rows * columns; i++) {
        numbers[i] = first + (float)i;
    }
    add_member(archive, "archive/data.pkl", pickle.data, pickle.used);
    add_member(archive, "archive/data/0", numbers, rows * columns * sizeof numbers[0]);
    end_archive(archive);
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");

    T_TRUE("file", file != NULL);
    T_EQ("written", fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

/* ---- opening ---- */

static struct stoker_engine *engine;
static char folder[] = "/tmp/stoker-foreign-XXXXXX";

static int open_path(const char *path, struct stk_foreign *foreign, struct stoker_error *error)
{
    struct stk_checkpoint_place place = {0};
    const char *kind = NULL;
    int status = stk_place_init(&place, engine->io, path, false, error);

    status = status < 0 ? status : stk_foreign_detect(&place, &kind, error);
    if (status == 0) {
        status = kind ? stk_foreign_open(foreign, engine, &place, kind, error)
                      : stk_fail(error, STOKER_ERROR_FORMAT, "nothing", "none", "none");
    }
    if (status < 0) {
        T_ERROR("open", error);
    }
    stk_place_deinit(&place);
    return status;
}

/* Each prefix, and a flip of each byte: an error, or tensors within the files. */
static void damage(const char *path, const char *opened, struct bytes *good, size_t step)
{
    uint64_t refused = 0, tries = 0;

    for (size_t i = 0; i < 2 * good->used; i += step, tries++) {
        struct stk_foreign foreign = {0};
        struct stoker_error error = {0};
        size_t at = i % good->used;

        if (i < good->used) {
            write_file(path, good->data, at);
        } else {
            good->data[at] ^= 0x55;
            write_file(path, good->data, good->used);
            good->data[at] ^= 0x55;
        }
        if (open_path(opened, &foreign, &error) < 0) {
            refused++;
        }
        for (uint64_t j = 0; j < foreign.count; j++) {
            const struct stk_foreign_tensor *tensor = &foreign.tensors[j];

            for (uint32_t k = 0; k < tensor->piece_count; k++) {
                T_TRUE("inside",
                       tensor->pieces[k].offset <= foreign.files[tensor->pieces[k].file].bytes);
            }
        }
        stk_foreign_deinit(&foreign);
    }
    T_TRUE("most are refused", refused > tries / 3);
    write_file(path, good->data, good->used);
}

static void test_torch(void)
{
    struct archive *archive = stk_alloc(1, sizeof *archive);
    struct stk_foreign foreign = {0};
    struct stoker_error error = {0};
    char path[200];

    snprintf(path, sizeof path, "%s/a.pt", folder);
    add_item(archive, 3, 4, 1);
    write_file(path, archive->file.data, archive->file.used);
    T_EQ("open", open_path(path, &foreign, &error), 0);
    T_EQ("tensors", foreign.count, 1);
    T_STR("kind", foreign.kind, "torch");
    T_STR("tree", foreign.tree, "{\"torch\":\"tensor\"}");
    T_EQ("bytes", foreign.tensors[0].bytes, 48);
    T_TRUE("place",
           memcmp(archive->file.data + foreign.tensors[0].pieces[0].offset, &(float){1}, 4) == 0);
    stk_foreign_deinit(&foreign);
    damage(path, path, &archive->file, 1);
    stk_free(archive);
}

/* An object with a state. */
static void add_object(struct bytes *to, const char *global)
{
    add_text(to, "c");
    add_text(to, global);
    add_text(to, ")\x81}(");
}

#define METADATA "torch.distributed.checkpoint.metadata\n"

static void add_size(struct bytes *to, uint32_t rows, uint32_t columns)
{
    add_text(to, "ctorch\nSize\n");
    add_integer(to, rows);
    add_integer(to, columns);
    add_text(to, "\x86\x85R");
}

static void add_chunk(struct bytes *to, uint32_t row)
{
    add_object(to, METADATA "ChunkStorageMetadata\n");
    add_unicode(to, "offsets");
    add_size(to, row, 0);
    add_unicode(to, "sizes");
    add_size(to, 2, 3);
    add_text(to, "ub");
}

static void add_place(struct bytes *to, const char *name, int row, const char *file,
                      const size_t place[2])
{
    add_object(to, METADATA "MetadataIndex\n");
    add_unicode(to, "fqn");
    add_unicode(to, name);
    if (row >= 0) {
        add_unicode(to, "offset");
        add_size(to, (uint32_t)row, 0);
    }
    add_text(to, "ub");
    add_object(to, "torch.distributed.checkpoint.filesystem\n_StorageInfo\n");
    add_unicode(to, "relative_path");
    add_unicode(to, file);
    add_unicode(to, "offset");
    add_integer(to, (uint32_t)place[0]);
    add_unicode(to, "length");
    add_integer(to, (uint32_t)place[1]);
    add_text(to, "ub");
}

/* A tensor of 4 x 3 in two chunks, and a number. */
static void make_metadata(struct bytes *to, const size_t places[3][2], uint32_t second_row,
                          const char *file)
{
    to->used = 0;
    add_text(to, "\x80\x02");
    add_object(to, METADATA "Metadata\n");
    add_unicode(to, "state_dict_metadata");
    add_text(to, "}(");
    add_unicode(to, "w");
    add_object(to, METADATA "TensorStorageMetadata\n");
    add_unicode(to, "properties");
    add_text(to, "c" METADATA "TensorProperties\n)\x81(ctorch\nfloat32\nNtb");
    add_unicode(to, "size");
    add_size(to, 4, 3);
    add_unicode(to, "chunks");
    add_text(to, "](");
    add_chunk(to, 0);
    add_chunk(to, second_row);
    add_text(to, "eub");
    add_unicode(to, "e");
    add_text(to, "c" METADATA "BytesStorageMetadata\n)\x81");
    add_text(to, "u");
    add_unicode(to, "storage_data");
    add_text(to, "}(");
    add_place(to, "w", 0, file, places[0]);
    add_place(to, "w", (int)second_row, file, places[1]);
    add_place(to, "e", -1, file, places[2]);
    add_text(to, "uub.");
}

static void test_dcp(void)
{
    struct archive *archive = stk_alloc(1, sizeof *archive);
    struct bytes *metadata = stk_alloc(1, sizeof *metadata);
    struct stk_foreign foreign = {0};
    struct stoker_error error = {0};
    size_t places[3][2];
    char path[200], data[200], root[200];

    snprintf(root, sizeof root, "%s/dcp", folder);
    snprintf(path, sizeof path, "%s/.metadata", root);
    snprintf(data, sizeof data, "%s/__0_0.distcp", root);
    T_EQ("folder", mkdir(root, 0700), 0);
    for (size_t i = 0; i < 3; i++) {
        places[i][0] = archive->file.used;
        add_item(archive, i < 2 ? 2 : 0, 3, (float)(1 + 6 * i));
        places[i][1] = archive->file.used - places[i][0];
    }
    write_file(data, archive->file.data, archive->file.used);
    make_metadata(metadata, (const size_t (*)[2])places, 2, "__0_0.distcp");
    write_file(path, metadata->data, metadata->used);
    T_EQ("open", open_path(root, &foreign, &error), 0);
    T_EQ("tensors", foreign.count, 1);
    T_EQ("pieces", foreign.tensors[0].piece_count, 2);
    T_STR("values", foreign.values, "{\"e\":7}");
    T_STR("tree", foreign.tree, "{\"dict\":{\"w\":{\"torch\":\"w\"},\"e\":7}}");
    stk_foreign_deinit(&foreign);
    damage(path, root, metadata, 7);
    damage(data, root, &archive->file, 13);
    make_metadata(metadata, (const size_t (*)[2])places, 1, "__0_0.distcp");
    write_file(path, metadata->data, metadata->used);
    T_EQ("overlap", open_path(root, &foreign, &error), STOKER_ERROR_CORRUPT);
    T_HAS("overlap", error.where, "'w'");
    make_metadata(metadata, (const size_t (*)[2])places, 2, "../a.pt");
    write_file(path, metadata->data, metadata->used);
    error = (struct stoker_error){0};
    T_EQ("outside", open_path(root, &foreign, &error), STOKER_ERROR_FORMAT);
    make_metadata(metadata, (const size_t (*)[2])places, 2, "none.distcp");
    write_file(path, metadata->data, metadata->used);
    error = (struct stoker_error){0};
    T_EQ("missing file", open_path(root, &foreign, &error), STOKER_ERROR_MISSING);
    T_HAS("missing", error.where, "none.distcp");
    stk_free(metadata);
    stk_free(archive);
}

/* ---- walks ---- */

/* 60 pairs of one another: 2^60 values in 300 bytes. And 100,000 lists in lists. */
static void test_bombs(void)
{
    struct bytes *bytes = stk_alloc(1, sizeof *bytes);
    uint8_t *deep = stk_alloc(200001, 1);

    add_text(bytes, ")");
    for (uint8_t i = 1; i <= 60; i++) {
        add(bytes, (uint8_t[]){'q', i, 'h', i, 0x86}, 5);
    }
    add_text(bytes, ".");
    memset(deep, ']', 100000);
    memset(deep + 100000, 'a', 99999);
    deep[199999] = '.';
    for (int i = 0; i < 2; i++) {
        struct stk_torch_file file = {0};
        struct stk_json_text tree = {0};
        struct stoker_error error = {0};
        struct stk_torch_walk walk = {.file = &file, .tree = &tree, .error = &error};
        struct stk_view view =
            i ? (struct stk_view){deep, 200000} : (struct stk_view){bytes->data, bytes->used};

        T_EQ("parse", stk_pickle_parse(&file.pickle, view, &error), 0);
        T_EQ("walk", stk_torch_walk(&walk, stk_pickle_at(&file.pickle, file.pickle.root)),
             STOKER_ERROR_LIMIT);
        stk_json_text_deinit(&tree);
        stk_pickle_deinit(&file.pickle);
    }
    stk_free(deep);
    stk_free(bytes);
}

/* ---- runs ---- */

#define ELEMENTS_MAX 512u

struct copy {
    const uint16_t *file;
    uint8_t *out;
    uint64_t begin, bytes;
};

static int copy_run(void *context, const struct stk_foreign_run *run)
{
    struct copy *copy = context;

    memcpy(copy->out + (run->at - copy->begin), (const uint8_t *)copy->file + run->offset,
           run->bytes);
    copy->bytes += run->bytes;
    return 0;
}

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (*state >> 33) % below;
}

/* Writes a box to the file, one dimension of three in place of another. Returns its elements. */
static uint64_t fill_box(uint16_t *file, const uint64_t *shape, const uint64_t origin[3],
                         const uint64_t sizes[3], uint64_t strides[3], uint64_t first)
{
    uint64_t step = 1;

    for (uint64_t i = 0; i < 3; i++) { /* dimension `first` varies fastest */
        uint64_t which = (first + 3 - i) % 3;

        strides[which] = step;
        step *= sizes[which];
    }
    for (uint64_t i = 0; i < step; i++) {
        uint64_t x = i / (sizes[1] * sizes[2]), y = i / sizes[2] % sizes[1], z = i % sizes[2];

        file[x * strides[0] + y * strides[1] + z * strides[2]] =
            (uint16_t)(((origin[0] + x) * shape[1] + origin[1] + y) * shape[2] + origin[2] + z);
    }
    return step;
}

static void fill_boxes(struct stk_foreign_tensor *tensor, const uint64_t cuts[3], uint16_t *file,
                       uint64_t *state)
{
    const uint64_t *shape = tensor->shape;
    uint64_t used = 0;
    uint32_t piece = 0;

    for (uint64_t a = 0; a < shape[0]; a += cuts[0]) {
        for (uint64_t b = 0; b < shape[1]; b += cuts[1]) {
            for (uint64_t c = 0; c < shape[2]; c += cuts[2]) {
                uint64_t origin[3] = {a, b, c}, sizes[3], strides[3], offset = used * 2;

                for (int i = 0; i < 3; i++) {
                    sizes[i] = stk_min(cuts[i], shape[i] - origin[i]);
                }
                used += fill_box(file + used, shape, origin, sizes, strides, draw(state, 3));
                stk_foreign_set_piece(
                    tensor, piece++,
                    &(struct stk_foreign_piece){
                        .offset = offset, .origin = origin, .sizes = sizes, .strides = strides});
            }
        }
    }
}

/* A tensor cut along each dimension into boxes, each with its dimensions stored in another order,
 * read back by random ranges. Element i has the value i. */
static void test_runs(void)
{
    uint64_t state = 7;

    for (int round = 0; round < 300; round++) {
        uint64_t shape[3], cuts[3], elements = 1;
        uint16_t file[ELEMENTS_MAX], want[ELEMENTS_MAX], got[ELEMENTS_MAX];
        struct stk_foreign foreign = {0};
        uint64_t capacity = 0;
        uint32_t pieces = 1;
        struct stk_foreign_form form = {"t", "U16", shape, 3, 0};
        struct stk_foreign_tensor *tensor;
        struct stoker_error error = {0};

        for (int i = 0; i < 3; i++) {
            shape[i] = 1 + draw(&state, 7);
            cuts[i] = 1 + draw(&state, shape[i]); /* size of the boxes along i */
            elements *= shape[i];
            pieces *= (uint32_t)((shape[i] + cuts[i] - 1) / cuts[i]);
        }
        form.piece_count = pieces;
        tensor = stk_foreign_add_tensor(&foreign, &capacity, &form);
        fill_boxes(tensor, cuts, file, &state);
        for (uint64_t i = 0; i < elements; i++) {
            want[i] = (uint16_t)i;
        }
        T_EQ("pieces", stk_foreign_check_pieces(tensor, &error), 0);
        for (int range = 0; range < 8; range++) {
            uint64_t begin = draw(&state, elements * 2), end = begin;
            struct copy copy = {file, (uint8_t *)got, 0, 0};

            end += 1 + draw(&state, elements * 2 - begin);
            copy.begin = begin;
            T_EQ("runs", stk_foreign_runs(tensor, begin, end, copy_run, &copy), 0);
            T_EQ("bytes", copy.bytes, end - begin);
            T_TRUE("values", memcmp(got, (uint8_t *)want + begin, end - begin) == 0);
        }
        if (pieces > 1) { /* a box twice, another one missing */
            tensor->pieces[0] = tensor->pieces[1];
            T_EQ("twice", stk_foreign_check_pieces(tensor, &error), STOKER_ERROR_CORRUPT);
        }
        stk_foreign_deinit(&foreign);
    }
}

/* The error names what a file is, and what to do. */
static void test_other_files(void)
{
    static const struct other_row {
        const char *bytes, *what, *advice;
    } rows[] = {
        {"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer", "git lfs pull"},
        {"<!DOCTYPE html><html>", "an HTML page", "fetch again"},
        {"GGUF\3", "a GGUF file", "safetensors files that it was made from"},
        {"\x93NUMPY", "a NumPy array", "stoker.save()"},
        {"\x1f\x8b\x08", "gzip", "decompress it"},
        {"some words", "the file is text, and is no checkpoint", "a .safetensors file"},
        {"\1\2\3", "the file is no checkpoint", "a .safetensors file"},
    };
    char path[80];

    snprintf(path, sizeof path, "%s/other", folder);
    T_EACH(other_row, row, rows)
    {
        struct stk_checkpoint_place place = {0};
        struct stoker_error error = {0};
        const char *kind;

        write_file(path, row->bytes, strlen(row->bytes));
        T_EQ("place", stk_place_init(&place, engine->io, path, false, &error), 0);
        T_EQ(row->what, stk_foreign_detect(&place, &kind, &error), -ENOTDIR);
        T_HAS("what", error.what, row->what);
        T_HAS("advice", error.advice, row->advice);
        T_HAS("where", error.where, path);
        stk_place_deinit(&place);
    }
}

int main(void)
{
    char command[100];

    engine = t_open_engine(NULL);
    T_TRUE("folder", mkdtemp(folder) != NULL);
    test_bombs();
    test_runs();
    test_torch();
    test_dcp();
    test_other_files();
    stoker_engine_close(engine);
    T_EQ("memory", stk_mem_alive(), 0);
    snprintf(command, sizeof command, "rm -r %s", folder);
    T_EQ("removed", system(command), 0);
    return t_finish();
}
