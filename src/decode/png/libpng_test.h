/* decode/png/libpng_test.h: decodes the same bytes with libpng, and compares both results.
 *
 *   bytes -> libpng (rows up to the first warning or error) -> compare
 *
 * Owner: the test or fuzz target that includes it. Threads: one. Memory: malloc, reused for the
 * next image. Bound: LIBPNG_BYTES_MAX of rows. */
#ifndef DECODE_PNG_LIBPNG_TEST_H
#define DECODE_PNG_LIBPNG_TEST_H

#include "decode/png/png.h"

#include <setjmp.h>
#include <stdio.h>

#include <png.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define LIBPNG_BYTES_MAX (64u << 20)

struct libpng {
    struct stk_view bytes;
    size_t at;
    uint8_t *rows; /* owned */
    size_t capacity, row_bytes;
    uint32_t width, height;
    uint32_t right; /* rows before the first warning or error */
    bool complained, failed;
    char text[200]; /* of the first */
    jmp_buf jump;
};

static inline void libpng_error(png_structp reader, png_const_charp text)
{
    struct libpng *libpng = png_get_error_ptr(reader);

    if (!libpng->complained) {
        snprintf(libpng->text, sizeof libpng->text, "%s", text);
    }
    libpng->complained = libpng->failed = true;
    longjmp(libpng->jump, 1);
}

static inline void libpng_warning(png_structp reader, png_const_charp text)
{
    struct libpng *libpng = png_get_error_ptr(reader);

    if (!libpng->complained) {
        snprintf(libpng->text, sizeof libpng->text, "%s", text);
    }
    libpng->complained = true;
}

static inline void libpng_read(png_structp reader, png_bytep to, size_t bytes)
{
    struct libpng *libpng = png_get_io_ptr(reader);

    if (bytes > libpng->bytes.bytes - libpng->at) {
        png_error(reader, "the end");
    }
    memcpy(to, libpng->bytes.data + libpng->at, bytes);
    libpng->at += bytes;
}

/* As decode/codec/codec_png.c sets it up. */
static inline void libpng_setup(png_structp reader, struct libpng *libpng)
{
    static const png_byte passed[] = "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0"
                                     "sBIT\0sCAL\0sPLT\0sRGB\0sTER\0tEXt\0tIME\0tRNS\0zTXt";

    png_set_read_fn(reader, libpng, libpng_read);
    png_set_keep_unknown_chunks(reader, PNG_HANDLE_CHUNK_NEVER, NULL, 0);
    png_set_keep_unknown_chunks(reader, PNG_HANDLE_CHUNK_NEVER, passed, sizeof passed / 5);
    png_set_user_limits(reader, 0x7fffffff, 0x7fffffff);
    png_set_chunk_malloc_max(reader, 1u << 20);
    png_set_benign_errors(reader, 1);
    png_set_option(reader, PNG_MAXIMUM_INFLATE_WINDOW, PNG_OPTION_ON);
}

static inline void libpng_rows(png_structp reader, png_infop info, struct libpng *libpng)
{
    png_read_info(reader, info);
    libpng->width = png_get_image_width(reader, info);
    libpng->height = png_get_image_height(reader, info);
    libpng->row_bytes = png_get_rowbytes(reader, info);
    if ((uint64_t)libpng->row_bytes * libpng->height > LIBPNG_BYTES_MAX) {
        png_error(reader, "too large for this test");
    }
    if (libpng->capacity < libpng->row_bytes * libpng->height) {
        libpng->capacity = libpng->row_bytes * libpng->height;
        free(libpng->rows);
        libpng->rows = malloc(libpng->capacity);
    }
    png_start_read_image(reader);
    for (uint32_t y = 0; y < libpng->height; y++) {
        png_read_row(reader, libpng->rows + y * libpng->row_bytes, NULL);
        libpng->right += !libpng->complained;
    }
}

/* All rows, as they are in the file. The result, whatever it is, is in libpng. */
static inline void libpng_decode(struct libpng *libpng, struct stk_view bytes)
{
    png_structp reader =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, libpng, libpng_error, libpng_warning);
    png_infop info = png_create_info_struct(reader);

    libpng->bytes = bytes;
    libpng->at = 0;
    libpng->right = libpng->width = libpng->height = 0;
    libpng->complained = libpng->failed = false;
    libpng->text[0] = '\0';
    if (setjmp(libpng->jump) == 0) {
        libpng_setup(reader, libpng);
        libpng_rows(reader, info, libpng);
    }
    png_destroy_read_struct(&reader, &info, NULL);
}

/* Complaints of libpng about data that stoker accepts: incomplete prefix codes (zlib refuses them,
 * RFC 1951 does not), and the chunk after the data, which it reads while zlib still has bytes of a
 * match to return. */
static inline bool libpng_is_stricter(const struct libpng *libpng, uint32_t y)
{
    bool ahead = (uint64_t)(y - libpng->right) * (libpng->row_bytes + 1) <= 258;

    return strstr(libpng->text, "lengths set") || strstr(libpng->text, "distances set") ||
           (ahead && (strstr(libpng->text, "chunk type") || strstr(libpng->text, "the end") ||
                      strstr(libpng->text, "CRC") || strstr(libpng->text, "Not enough")));
}

/* Bytes first to end, of which the last may be used in part: the bits after a row are undefined. */
static inline bool libpng_same(const uint8_t *row, const uint8_t *want, uint64_t first,
                               uint64_t end_bits)
{
    uint64_t end = end_bits / 8;
    uint32_t rest = end_bits % 8;

    return memcmp(row + first, want + first, end - first) == 0 &&
           (rest == 0 || (row[end] ^ want[end]) >> (8 - rest) == 0);
}

/* Compares our returned rows of a box: NULL, or the difference. *given_out: how many rows. */
static inline const char *libpng_compare(const struct libpng *libpng, struct stk_view bytes,
                                         const struct stk_png_box *box, uint32_t vector,
                                         uint32_t *given_out)
{
    struct stk_png_frame frame;
    struct stk_png_rows rows;
    const char *wrong = NULL;
    uint8_t *space;
    uint64_t space_bytes, first, end_bits;

    *given_out = 0;
    if (!stk_png_frame_read(bytes, &frame)) {
        return NULL;
    }
    /* Blocks of exactly their sizes, for sanitizers; malloc does not zero them. */
    space_bytes = stk_round_up(stk_png_workspace_bytes(&frame), 64);
    space = aligned_alloc(64, space_bytes);
    memset(space, 0xa5, space_bytes);
    first = (uint64_t)box->x * frame.pixel_bits / 8;
    end_bits = (uint64_t)(box->x + box->width) * frame.pixel_bits;
    if (stk_png_rows_begin(&rows, &frame, bytes, box, space, vector)) {
        for (uint32_t y = box->y; y < box->y + box->height && !wrong; y++) {
            const uint8_t *row = stk_png_rows_next(&rows);

            if (!row) {
                break;
            }
            if (y >= libpng->right) {
                wrong = libpng_is_stricter(libpng, y) ? NULL : "a row that libpng complained of";
            } else if (!libpng_same(row, libpng->rows + y * libpng->row_bytes, first, end_bits)) {
                wrong = "other bytes";
            }
            ++*given_out;
        }
    }
    free(space);
    return wrong;
}

/* Writes the right checksum after each chunk, so that damage inside of it is reached. */
static inline void libpng_fix_checksums(uint8_t *file, size_t bytes)
{
    for (size_t at = 8; bytes >= 12 && at <= bytes - 12;) {
        size_t length = (size_t)png_get_uint_32(file + at);

        if (length > bytes - at - 12) {
            break;
        }
        png_save_uint_32(file + at + 8 + length,
                         (png_uint_32)crc32(0, file + at + 4, (uInt)length + 4));
        at += 12 + length;
    }
}

#endif
