/* Goal: every byte of a zstd file is found by its offset, for any division into frames; damage is
 * refused with its offset, and no more bytes are written than the buffer holds.
 * Method: one text compressed by libzstd in frames of several kinds (with and without their size,
 * with skippable frames and a seek table built here from its specification), read completely and by
 * its head (zstd_frames.c); each byte of a small file changed, and each truncation, all results
 * compared with the text; every allocation fails once. */
#include "format/compress/zstd_frames.h"

#include "base/mem.h"
#include "base/random.h"
#include "test/t.h"

#include <errno.h>
#include <string.h>
#include <zstd.h>

#define TEXT_BYTES 300000u
#define FILE_BYTES 700000u

static uint8_t text[TEXT_BYTES], back[TEXT_BYTES + 1], file[FILE_BYTES];

/* How a file is written. */
static const struct shape {
    const char *name;
    uint32_t text_bytes, frame_bytes;
    bool no_size;   /* frames do not say how much they hold */
    bool skippable; /* one before each, as pzstd has them */
    uint32_t table; /* 0: none; 1: a seek table; 2: with checksums; 3: a false one */
    uint32_t frames;
} shapes[] = {
    {"one frame", TEXT_BYTES, TEXT_BYTES, false, false, 0, 1},
    {"many", TEXT_BYTES, 10007, false, false, 0, 30},
    {"many of unknown size", TEXT_BYTES, 10007, true, false, 0, 30},
    {"one of unknown size", TEXT_BYTES, TEXT_BYTES, true, false, 0, 1},
    {"as pzstd", TEXT_BYTES, 65536, false, true, 0, 5},
    {"seek table", TEXT_BYTES, 10007, true, false, 1, 30},
    {"seek table with checksums", TEXT_BYTES, 10007, true, false, 2, 30},
    {"a seek table that does not fit", TEXT_BYTES, 10007, true, false, 3, 30},
    {"one byte each", 40, 1, false, false, 0, 40},
    {"nothing", 0, 1, false, false, 0, 0},
};

static void put_u32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, 4);
}

static size_t pack_frame(const struct shape *shape, const uint8_t *from, size_t bytes, uint8_t *to)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    size_t packed;

    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, !shape->no_size);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    packed = ZSTD_compress2(context, to, FILE_BYTES - (size_t)(to - file), from, bytes);
    ZSTD_freeCCtx(context);
    T_TRUE(shape->name, !ZSTD_isError(packed));
    return packed;
}

static struct stk_view pack(const struct shape *shape)
{
    static uint8_t entries[64 * 12];
    uint32_t entry_bytes = shape->table == 2 ? 12 : 8, count = 0;
    uint8_t *to = file;

    for (uint32_t at = 0; at < shape->text_bytes || at == 0; at += shape->frame_bytes) {
        uint32_t bytes = (uint32_t)stk_min(shape->text_bytes - at, shape->frame_bytes);
        size_t packed;

        if (shape->skippable) {
            put_u32(to, 0x184d2a50);
            put_u32(to + 4, 4);
            to += 12;
        }
        packed = pack_frame(shape, text + at, bytes, to);
        if (shape->table) {
            put_u32(entries + count * entry_bytes, (uint32_t)packed + (shape->table == 3));
            put_u32(entries + count * entry_bytes + 4, bytes);
        }
        count++;
        to += packed;
    }
    if (shape->table) { /* skippable frame: entries, their count, a descriptor, a magic */
        uint32_t body = count * entry_bytes + 9;

        put_u32(to, 0x184d2a5e);
        put_u32(to + 4, body);
        memcpy(to + 8, entries, count * entry_bytes);
        to += 8 + count * entry_bytes;
        put_u32(to, count);
        to[4] = shape->table == 2 ? 0x80 : 0;
        put_u32(to + 5, 0x8f92eab1);
        to += 9;
    }
    return (struct stk_view){file, (size_t)(to - file)};
}

static void test_shape(const struct shape *shape)
{
    struct stk_view view = pack(shape);
    struct stk_zstd_frames frames;
    struct stoker_error error = {0};
    size_t got, wanted = stk_min(shape->text_bytes, 20000);

    T_TRUE(shape->name, stk_zstd_frames_detect(view));
    if (!T_EQ(shape->name, stk_zstd_frames_open(&frames, view, &error), 0)) {
        fprintf(stderr, "%s: %s\n", error.what, error.where);
        return;
    }
    T_EQ(shape->name, frames.out_bytes, shape->text_bytes);
    T_EQ(shape->name, frames.count, shape->frames);
    for (uint32_t i = 0; i < frames.count; i++) {
        uint64_t at = frames.frames[i].out, bytes = stk_zstd_frame_bytes(&frames, i);

        T_EQ(shape->name, at, (uint64_t)i * shape->frame_bytes);
        T_EQ(shape->name, stk_zstd_frames_find(&frames, at), i);
        T_EQ(shape->name, stk_zstd_frames_find(&frames, at + bytes - 1), i);
        back[bytes] = 0xa5;
        T_EQ(shape->name, stk_zstd_frames_decompress(&frames, view, i, back, &error), 0);
        T_TRUE(shape->name, memcmp(back, text + at, bytes) == 0 && back[bytes] == 0xa5);
    }
    T_EQ(shape->name, stk_zstd_frames_read_head(view, back, 20000, &got, &error), 0);
    T_EQ(shape->name, got, wanted);
    T_TRUE(shape->name, memcmp(back, text, wanted) == 0);
    stk_zstd_frames_close(&frames);
    stk_zstd_frames_close(&frames);
}

/* Reads all; the outcome, or 1 for bytes that are not the text's. */
static int read_all(struct stk_view view, struct stoker_error *error)
{
    struct stk_zstd_frames frames;
    int status = stk_zstd_frames_open(&frames, view, error);
    uint64_t out_bytes = status == 0 ? frames.out_bytes : 0;

    for (uint32_t i = 0; status == 0 && i < frames.count; i++) {
        uint64_t at = frames.frames[i].out, bytes = stk_zstd_frame_bytes(&frames, i);

        if (bytes > TEXT_BYTES) {
            status = STOKER_ERROR_LIMIT; /* the result of a budget */
            break;
        }
        status = stk_zstd_frames_decompress(&frames, view, i, back, error);
        if (status == 0 && (at + bytes > TEXT_BYTES || memcmp(back, text + at, bytes) != 0)) {
            status = 1;
        }
    }
    if (out_bytes > 0) {
        stk_zstd_frames_close(&frames);
    }
    return status;
}

/* Frames have checksums here: an accepted frame has the right bytes. */
static void test_damage(void)
{
    static const struct shape small[] = {
        {"damage", 600, 200, false, false, 0, 3},
        {"damage, with a table", 600, 200, true, false, 1, 3},
    };
    T_EACH(shape, shape, small)
    {
        struct stk_view view = pack(shape);
        struct stoker_error error = {0};
        uint32_t refused = 0;

        for (size_t at = 0; at < view.bytes; at++) {
            for (uint32_t bit = 0; bit < 8; bit++) {
                file[at] ^= (uint8_t)(1u << bit);
                int status = read_all(view, &error);

                T_TRUE(shape->name, status <= 0);
                refused += status < 0;
                if (status < 0 && status != STOKER_ERROR_LIMIT) {
                    T_ERROR(shape->name, &error);
                }
                file[at] ^= (uint8_t)(1u << bit);
            }
        }
        T_TRUE(shape->name, refused > view.bytes);
        for (size_t bytes = 1; bytes < view.bytes; bytes++) {
            T_TRUE(shape->name, read_all((struct stk_view){file, bytes}, &error) <= 0);
        }
        T_EQ(shape->name, read_all(view, &error), 0);
    }
}

static void test_refused(void)
{
    struct shape shape = {"refused", 3000, 1000, true, false, 0, 3};
    struct stk_view view = pack(&shape);
    struct stk_zstd_frames frames;
    struct stoker_error error = {0};
    int status = -ENOMEM;

    T_EQ("behind it",
         stk_zstd_frames_open(&frames, (struct stk_view){file, view.bytes + 3}, &error),
         STOKER_ERROR_CORRUPT);
    T_ERROR("behind it", &error);
    T_EQ("place", error.offset, view.bytes);
    T_EQ("cut", stk_zstd_frames_open(&frames, (struct stk_view){file, view.bytes - 1}, &error),
         STOKER_ERROR_TRUNCATED);
    T_TRUE("none", !stk_zstd_frames_detect((struct stk_view){text, 3}));
    T_TRUE("none", !stk_zstd_frames_detect((struct stk_view){text, 100}));
    for (uint64_t n = 1; status == -ENOMEM; n++) {
        stk_mem_fail_nth(n);
        status = stk_zstd_frames_open(&frames, view, &error);
        stk_mem_fail_nth(0);
        T_EQ("no leak", stk_mem_alive(), status == 0 ? 1 : 0);
        T_TRUE("allocations", status == -ENOMEM || n == 5);
    }
    stk_zstd_frames_close(&frames);
}

int main(void)
{
    for (uint32_t i = 0; i < TEXT_BYTES; i++) {
        text[i] = (uint8_t)(stk_mix64(i / 3) % 20 + 'a');
    }
    T_EACH(shape, shape, shapes)
    {
        test_shape(shape);
    }
    test_damage();
    test_refused();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
