/* tools/verify/verify_sets_test.h: small data sets in the simulator, and the findings of verify for
 * them, for the tests of this room.
 *
 *   make_pictures -> open_engine, add_... -> verify_url -> struct run
 *
 * Owner: the test. Threads: one. Memory: static and malloc. Bound: SAMPLES samples a shard. */
#ifndef TOOLS_VERIFY_VERIFY_SETS_TEST_H
#define TOOLS_VERIFY_VERIFY_SETS_TEST_H

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/xxh3.h"
#include "engine/engine.h"
#include "format/manifest/manifest.h"
#include "index/index.h"
#include "io/sim/sim.h"
#include "io/write.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <jpeglib.h> /* wants <stdio.h> before it */

enum { SAMPLES = 6, PICTURE_MAX = 1 << 16, FOUND_MAX = 64, TAR_MAX = 1 << 18 };

struct bytes {
    uint8_t data[PICTURE_MAX];
    size_t count;
};

static struct bytes jpeg, png, late_png;

static inline void put32(struct bytes *to, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        to->data[to->count++] = (uint8_t)(value >> shift);
    }
}

static inline void put_chunk(struct bytes *to, const char *name, const uint8_t *data, size_t bytes)
{
    size_t at = to->count + 4;

    put32(to, (uint32_t)bytes);
    memcpy(to->data + to->count, name, 4);
    memcpy(to->data + to->count + 4, data, bytes);
    to->count += 4 + bytes;
    put32(to, (uint32_t)crc32(0, to->data + at, (uInt)(4 + bytes)));
}

/* 32 x 32 grey. rows: fewer make a file whose chunks are right and whose pixels end early. */
static inline void make_png(struct bytes *to, int rows)
{
    static const uint8_t header[13] = {0, 0, 0, 32, 0, 0, 0, 32, 8, 0, 0, 0, 0};
    uint8_t raw[32 * 33], packed[4096];
    uLongf packed_bytes = sizeof packed;

    for (size_t i = 0; i < sizeof raw; i++) {
        raw[i] = i % 33 == 0 ? 0 : (uint8_t)(i * 7919);
    }
    compress(packed, &packed_bytes, raw, (uLong)(33 * rows));
    to->count = 8;
    memcpy(to->data, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(to, "IHDR", header, sizeof header);
    put_chunk(to, "IDAT", packed, packed_bytes);
    put_chunk(to, "IEND", packed, 0);
}

static inline void make_jpeg(struct bytes *to)
{
    struct jpeg_compress_struct cinfo;
    struct jpeg_error_mgr errors;
    unsigned char *data = NULL;
    unsigned long bytes = 0;

    cinfo.err = jpeg_std_error(&errors);
    jpeg_create_compress(&cinfo);
    jpeg_mem_dest(&cinfo, &data, &bytes);
    cinfo.image_width = cinfo.image_height = 64;
    cinfo.input_components = 1;
    cinfo.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&cinfo);
    jpeg_start_compress(&cinfo, TRUE);
    for (int y = 0; y < 64; y++) {
        JSAMPLE row[64];
        JSAMPROW rows[1] = {row};
        for (int x = 0; x < 64; x++) {
            row[x] = (JSAMPLE)(x * 37 + y * y * 11);
        }
        jpeg_write_scanlines(&cinfo, rows, 1);
    }
    jpeg_finish_compress(&cinfo);
    jpeg_destroy_compress(&cinfo);
    memcpy(to->data, data, bytes);
    to->count = bytes;
    free(data);
}

static inline void make_pictures(void)
{
    make_jpeg(&jpeg);
    make_png(&png, 32);
    make_png(&late_png, 20);
}

/* ---- data sets -------------------------------------------------------------------------- */

/* Member m of sample s: jpg, png, txt. */
static inline const uint8_t *content(int sample, int member, size_t *bytes_out)
{
    static uint8_t text[8];

    if (member == 0) {
        *bytes_out = jpeg.count;
        return jpeg.data;
    }
    if (member == 1) {
        *bytes_out = png.count;
        return png.data;
    }
    snprintf((char *)text, sizeof text, "text %d", sample);
    *bytes_out = 6;
    return text;
}

static inline void make_tar(struct t_tar *tar, const char *prefix)
{
    static const char *const extensions[] = {"jpg", "png", "txt"};

    for (int i = 0; i < SAMPLES; i++) {
        for (int m = 0; m < 3; m++) {
            char name[64];
            size_t bytes;
            const uint8_t *data = content(i, m, &bytes);

            snprintf(name, sizeof name, "%s%d.%s", prefix, i, extensions[m]);
            t_tar_add(tar, name, data, bytes);
        }
    }
    t_tar_end(tar);
}

/* Offset of the data of a member. */
static inline size_t data_at(int sample, int member)
{
    size_t at = 512;

    for (int i = 0; i < sample * 3 + member; i++) {
        size_t bytes;
        content(i / 3, i % 3, &bytes);
        at += 512 + (bytes + 511) / 512 * 512;
    }
    return at;
}

static inline struct stoker_engine *open_engine(struct stk_io **world_out, uint64_t memory_bytes)
{
    struct stk_io_options io = {.depth = 8, .read_timeout_ms = 1000};
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 2, .memory_bytes_max = memory_bytes};
    struct stoker_engine *engine = NULL;

    T_EQ("world", stk_sim_open(world_out, 1, &io, NULL), 0);
    T_EQ("engine", stk_engine_open_with_io(&engine, *world_out, &options, NULL), 0);
    return engine;
}

struct run {
    struct stoker_finding found[FOUND_MAX];
    int count, status;
    struct stoker_error error;
    struct stoker_verify_progress progress;
};

static inline void verify_url(struct stoker_engine *engine, const char *url, bool deep, bool repair,
                              struct run *run)
{
    struct stoker_verify_options options = {.struct_size = sizeof options,
                                            .urls = &url,
                                            .url_count = 1,
                                            .deep = deep,
                                            .repair = repair};
    struct stoker_verify *verify = NULL;
    struct stoker_finding finding;

    memset(run, 0, sizeof *run);
    run->progress.struct_size = sizeof run->progress;
    run->status = stoker_verify_open(&verify, engine, &options, &run->error);
    if (run->status < 0) {
        return;
    }
    for (;;) {
        run->status = stoker_verify_next(verify, 1000, &finding, &run->error);
        if (run->status == STOKER_ERROR_AGAIN) {
            continue;
        }
        if (run->status != 1) {
            break;
        }
        if (run->count < FOUND_MAX) {
            run->found[run->count++] = finding;
        }
    }
    stoker_verify_progress(verify, &run->progress);
    stoker_verify_close(verify);
}

static inline void print_run(const struct run *run)
{
    for (int i = 0; i < run->count; i++) {
        const struct stoker_finding *found = &run->found[i];

        printf("  %s %s @%lld %s.%s %s\n", stoker_finding_name(found->kind), found->shard,
               (long long)found->offset, found->key, found->extension, found->what);
    }
    if (run->status < 0) {
        printf("  %d %s %s\n", run->status, run->error.what, run->error.where);
    }
}

/* Returns the file's bytes, which the caller frees. NULL: there is none. */
static inline uint8_t *read_file(struct stk_io *io, const char *path, size_t *bytes_out)
{
    struct stk_file *file = NULL;
    uint8_t *data;
    int64_t got;

    *bytes_out = 0;
    if (stk_io_open_file(io, path, &file, NULL) < 0) {
        return NULL;
    }
    data = malloc(TAR_MAX);
    got = stk_io_read_wait(file, 0, data, TAR_MAX);
    stk_io_close_file(file);
    *bytes_out = got < 0 ? 0 : (size_t)got;
    return data;
}

static inline bool is_file(struct stk_io *io, const char *path, const uint8_t *want, size_t bytes)
{
    size_t got;
    uint8_t *data = read_file(io, path, &got);
    bool same = data && got == bytes && memcmp(data, want, bytes) == 0;

    free(data);
    return same;
}

/* ---- next to the data ----------------------------------------------------------------- */

static inline void digest_of(const struct t_tar *tar, uint8_t digest[32])
{
    struct stk_sha256 sha;

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, tar->data, tar->bytes);
    stk_sha256_done(&sha, digest);
}

static inline void add_manifest(struct stk_io *world, const struct t_tar *tars,
                                const char *const *names, int count)
{
    struct stk_manifest manifest;
    json_t *settings = json_object();
    char *text = NULL;
    size_t bytes = 0;

    T_EQ("begin", stk_manifest_begin(&manifest, settings, NULL), 0);
    for (int i = 0; i < count; i++) {
        struct stk_manifest_shard shard = {names[i], tars[i].bytes, SAMPLES, {0}};
        digest_of(&tars[i], shard.sha256);
        T_EQ("shard", stk_manifest_add(&manifest, &shard, NULL), 0);
    }
    T_EQ("text", stk_manifest_text(&manifest, &text, &bytes, NULL), 0);
    stk_sim_add(world, "/data/" STK_MANIFEST_NAME, text, bytes);
    stk_free(text);
    json_decref(settings);
    stk_manifest_deinit(&manifest);
}

static inline void add_index(struct stk_io *world, const struct t_tar *tar, const char *path,
                             const char *prefix)
{
    static const char *const extensions[] = {"jpg", "png", "txt"};
    struct stk_index_options options = {.shard_count = 1};
    struct stk_index *index = NULL;
    struct stk_index_shard_builder *builder = NULL;
    uint8_t digest[32];

    T_EQ("index", stk_index_open(&index, &options, NULL), 0);
    T_EQ("shard", stk_index_shard_begin(index, 0, path, &builder, NULL), 0);
    for (int i = 0; i < SAMPLES * 3; i++) {
        char name[64];
        size_t bytes;
        uint64_t offset = data_at(i / 3, i % 3);
        const uint8_t *data = content(i / 3, i % 3, &bytes);

        snprintf(name, sizeof name, "%s%d.%s", prefix, i / 3, extensions[i % 3]);
        T_EQ("member",
             stk_index_shard_add(builder, (struct stk_view){(const uint8_t *)name, strlen(name)},
                                 offset, bytes, NULL),
             0);
        T_EQ("sum", stk_index_shard_set_checksum(builder, stk_xxh3_64(data, bytes), NULL), 0);
    }
    digest_of(tar, digest);
    stk_index_shard_set_digest(builder, digest);
    T_EQ("end", stk_index_shard_end(builder, tar->bytes, 0, NULL), 0);
    T_EQ("finish", stk_index_finish(index, 0, NULL), 0);
    T_EQ("write", stk_index_write(index, world, "/data/stoker.index", NULL), 0);
    stk_index_close(index);
}

enum beside { MANIFEST = 1, INDEX = 2, GONE = 4, MORE = 8, BAD_MANIFEST = 16, BAD_INDEX = 32 };

struct beside_row {
    const char *name;
    uint32_t beside;    /* enum beside */
    int sample, member; /* one byte is flipped there, `at` after the start of its data */
    int at;             /* -1: nowhere */
    uint32_t kinds[3];  /* wanted, in this order; 0: no more */
    const char *shard;  /* of the first */
    int left;           /* samples that repair keeps, of two shards; -1: it repairs nothing */
};

static inline void add_beside(const struct beside_row *row, struct stk_io *world,
                              struct t_tar *tars)
{
    static const char *const names[] = {"a.tar", "b.tar"};
    size_t at = data_at(row->sample, row->member);

    make_tar(&tars[0], "s");
    make_tar(&tars[1], "o");
    if (row->beside & MANIFEST) {
        add_manifest(world, tars, names, 2);
    }
    if (row->beside & INDEX) {
        stk_sim_add(world, "/data", NULL, 0);
        add_index(world, &tars[0], "/data/a.tar", "s");
    }
    if (row->beside & BAD_MANIFEST) {
        stk_sim_add(world, "/data/" STK_MANIFEST_NAME, "{\"kind\":", 8);
    }
    if (row->beside & BAD_INDEX) {
        stk_sim_add(world, "/data/stoker.index", "not an index", 12);
    }
    if (row->at != -1) {
        tars[0].data[(long)at + row->at] ^= 1;
    }
    stk_sim_add(world, "/data/a.tar", tars[0].data, tars[0].bytes);
    if (!(row->beside & GONE)) {
        stk_sim_add(world, "/data/b.tar", tars[1].data, tars[1].bytes);
    }
    if (row->beside & MORE) {
        stk_sim_add(world, "/data/c.tar", tars[1].data, tars[1].bytes);
    }
}

/* A data set with damage that can be repaired, a manifest, an index. */
static inline void add_hurt(struct stk_io *world, struct t_tar *tars)
{
    static const struct beside_row row = {"hurt", MANIFEST | INDEX, 3, 2, 1, {0}, "", 0};

    add_beside(&row, world, tars);
}

#endif
