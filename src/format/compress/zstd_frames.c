/* Frames of zstd: found by their headers, or by a seek table, and decompressed one at a time. */
#include "format/compress/zstd_frames.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>
#include <zstd.h>

#define FRAME_MAGIC 0xfd2fb528u
#define SKIPPABLE_MAGIC 0x184d2a50u /* and 15 more */
#define TABLE_MAGIC 0x184d2a5eu
#define FOOTER_MAGIC 0x8f92eab1u
#define FOOTER_BYTES 9u
#define PIECE_BYTES (128u << 10)
#define ADVICE "check it with 'zstd -t', or compress it again"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "zstd's numbers are little endian");

static uint32_t u32_at(const uint8_t *array, uint64_t index)
{
    uint32_t value;

    memcpy(&value, array + 4 * index, sizeof value);
    return value;
}

static int damaged(struct stoker_error *error, uint64_t offset, const char *detail)
{
    int status = stk_fail(error, STOKER_ERROR_CORRUPT, "a file compressed by zstd is damaged",
                          ADVICE, "offset %llu: %s", (unsigned long long)offset, detail);

    if (error) {
        error->offset = offset;
    }
    return status;
}

bool stk_zstd_frames_detect(struct stk_view file)
{
    uint32_t magic = file.bytes >= 4 ? u32_at(file.data, 0) : 0;

    return magic == FRAME_MAGIC || (magic & 0xfffffff0u) == SKIPPABLE_MAGIC;
}

/* ---- the list ---- */

static int add(struct stk_zstd_frames *frames, uint32_t *capacity, uint64_t in, uint64_t in_bytes,
               uint64_t out_bytes, struct stoker_error *error)
{
    struct stk_zstd_frame *list = frames->frames;

    if (out_bytes == 0) {
        return 0; /* skippable, or nothing in it */
    }
    if (frames->count == STK_ZSTD_FRAMES_MAX ||
        out_bytes > STK_ZSTD_FRAMES_BYTES_MAX - frames->out_bytes) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a compressed file is too large", ADVICE,
                        "%u frames, %llu bytes, and a frame of %llu", frames->count,
                        (unsigned long long)frames->out_bytes, (unsigned long long)out_bytes);
    }
    if (frames->count + 2 > *capacity) {
        uint32_t wanted = stk_max(2 * *capacity, 16);

        list = stk_realloc(list, *capacity, wanted, sizeof *list);
        if (!list) {
            return stk_fail_memory(error, "zstd frames");
        }
        frames->frames = list;
        *capacity = wanted;
    }
    list[frames->count++] = (struct stk_zstd_frame){in, in_bytes, frames->out_bytes};
    frames->out_bytes += out_bytes;
    list[frames->count] = (struct stk_zstd_frame){in + in_bytes, 0, frames->out_bytes};
    return 0;
}

/* ---- the seek table ---- */

struct table {
    const uint8_t *entries;
    uint32_t count, entry_bytes;
    uint64_t bytes; /* of the skippable frame */
};

static bool find_table(struct stk_view file, struct table *table)
{
    const uint8_t *footer;
    uint64_t body;

    if (file.bytes < FOOTER_BYTES + 8) {
        return false;
    }
    footer = file.data + file.bytes - FOOTER_BYTES;
    if (u32_at(footer + 5, 0) != FOOTER_MAGIC || (footer[4] & 0x7c) != 0) {
        return false;
    }
    table->count = u32_at(footer, 0);
    table->entry_bytes = footer[4] & 0x80 ? 12 : 8; /* with a checksum, which zstd has as well */
    body = (uint64_t)table->count * table->entry_bytes + FOOTER_BYTES;
    table->bytes = body + 8;
    if (table->bytes > file.bytes) {
        return false;
    }
    table->entries = file.data + file.bytes - body;
    return u32_at(table->entries - 8, 0) == TABLE_MAGIC && u32_at(table->entries - 8, 1) == body;
}

/* Returns 1 if the table is complete; 0: it does not fit the file, which is walked then. */
static int read_table(struct stk_zstd_frames *frames, struct stk_view file,
                      const struct table *table, struct stoker_error *error)
{
    uint64_t in = 0, rest = file.bytes - table->bytes;
    uint32_t capacity = 0;

    for (uint32_t i = 0; i < table->count; i++) {
        const uint8_t *entry = table->entries + (uint64_t)i * table->entry_bytes;
        uint64_t in_bytes = u32_at(entry, 0);
        int status;

        if (in_bytes > rest - in) {
            return 0;
        }
        status = add(frames, &capacity, in, in_bytes, u32_at(entry, 1), error);
        if (status < 0) {
            return status;
        }
        in += in_bytes;
    }
    return in == rest;
}

/* ---- the walk ---- */

/* Decompresses a frame to find its size. */
static int count_bytes(struct stk_view frame, uint64_t at, uint64_t *bytes_out,
                       struct stoker_error *error)
{
    ZSTD_DCtx *context = ZSTD_createDCtx();
    uint8_t *piece = stk_alloc(PIECE_BYTES, 1);
    ZSTD_inBuffer in = {frame.data, frame.bytes, 0};
    size_t left = 1;
    int status = 0;

    *bytes_out = 0;
    if (!context || !piece) {
        status = stk_fail_memory(error, "zstd frames");
    }
    while (status == 0 && left != 0) {
        ZSTD_outBuffer out = {piece, PIECE_BYTES, 0};

        left = ZSTD_decompressStream(context, &out, &in);
        *bytes_out += out.pos;
        if (ZSTD_isError(left)) {
            status = damaged(error, at, ZSTD_getErrorName(left));
        } else if (left != 0 && out.pos == 0 && in.pos == in.size) {
            status = damaged(error, at, "the frame does not end");
        }
    }
    stk_free(piece);
    ZSTD_freeDCtx(context);
    return status;
}

static int scan_frames(struct stk_zstd_frames *frames, struct stk_view file,
                       struct stoker_error *error)
{
    uint32_t capacity = 0;
    int status = 0;

    for (uint64_t at = 0, bytes; status == 0 && at < file.bytes; at += bytes) {
        const uint8_t *data = file.data + at;
        size_t rest = file.bytes - at;
        unsigned long long out = ZSTD_getFrameContentSize(data, rest);
        uint64_t counted = out;

        bytes = ZSTD_findFrameCompressedSize(data, rest);
        if (ZSTD_isError(bytes) || bytes == 0) {
            return stk_zstd_frames_detect((struct stk_view){data, rest})
                       ? stk_fail(error, STOKER_ERROR_TRUNCATED,
                                  "a file compressed by zstd ends too early", ADVICE,
                                  "in the frame at offset %llu", (unsigned long long)at)
                       : damaged(error, at, "no frame begins here");
        }
        if (out == ZSTD_CONTENTSIZE_ERROR) {
            return damaged(error, at, "a frame's header");
        }
        if (out == ZSTD_CONTENTSIZE_UNKNOWN) {
            status = count_bytes((struct stk_view){data, bytes}, at, &counted, error);
        }
        status = status < 0 ? status : add(frames, &capacity, at, bytes, counted, error);
    }
    return status;
}

int stk_zstd_frames_open(struct stk_zstd_frames *frames, struct stk_view file,
                         struct stoker_error *error)
{
    struct table table;
    int status = 0;

    memset(frames, 0, sizeof *frames);
    if (find_table(file, &table)) {
        status = read_table(frames, file, &table, error);
    }
    if (status == 0) {
        stk_zstd_frames_close(frames);
        status = scan_frames(frames, file, error);
    }
    if (status < 0) {
        stk_zstd_frames_close(frames);
    }
    return status < 0 ? status : 0;
}

void stk_zstd_frames_close(struct stk_zstd_frames *frames)
{
    stk_free(frames->frames);
    memset(frames, 0, sizeof *frames);
}

/* ---- use ---- */

uint32_t stk_zstd_frames_find(const struct stk_zstd_frames *frames, uint64_t offset)
{
    uint32_t low = 0, high = frames->count - 1; /* the last frame that begins at or before it */

    STK_ASSERT(offset < frames->out_bytes);
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;

        if (frames->frames[middle].out <= offset) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

int stk_zstd_frames_decompress(const struct stk_zstd_frames *frames, struct stk_view file,
                               uint32_t frame, uint8_t *out, struct stoker_error *error)
{
    const struct stk_zstd_frame *at = &frames->frames[frame];
    uint64_t bytes = stk_zstd_frame_bytes(frames, frame);
    ZSTD_DCtx *context = ZSTD_createDCtx();
    size_t got;

    STK_ASSERT(frame < frames->count && at->in + at->in_bytes <= file.bytes);
    if (!context) {
        return stk_fail_memory(error, "zstd frames");
    }
    got = ZSTD_decompressDCtx(context, out, bytes, file.data + at->in, at->in_bytes);
    ZSTD_freeDCtx(context);
    if (ZSTD_isError(got)) {
        return damaged(error, at->in, ZSTD_getErrorName(got));
    }
    return got == bytes ? 0 : damaged(error, at->in, "the frame has fewer bytes than stated");
}

int stk_zstd_frames_read_head(struct stk_view file, uint8_t *out, size_t bytes, size_t *got_out,
                              struct stoker_error *error)
{
    ZSTD_DCtx *context = ZSTD_createDCtx();
    ZSTD_inBuffer in = {file.data, file.bytes, 0};
    ZSTD_outBuffer to = {out, bytes, 0};
    int status = context ? 0 : stk_fail_memory(error, "zstd frames");
    size_t complete = 0; /* bytes of frames that ended */

    /* Between frames the library returns 0, and continues with the next one. */
    while (status == 0 && to.pos < bytes && in.pos < in.size) {
        size_t before = in.pos + to.pos, left = ZSTD_decompressStream(context, &to, &in);

        if (ZSTD_isError(left) && complete > 0) {
            to.pos = complete;
            break;
        }
        if (ZSTD_isError(left)) {
            status = damaged(error, in.pos, ZSTD_getErrorName(left));
        } else if (in.pos + to.pos == before) {
            break;
        }
        complete = left == 0 ? to.pos : complete;
    }
    *got_out = to.pos;
    ZSTD_freeDCtx(context);
    return status;
}
