/* Microseconds a picture for a random resized crop of PNGs to rows of RGBX, on one core: by libpng,
 * row by row up to the crop's last, and by stoker's codec. The same crops for both, each picture by
 * one and then the other; pictures in memory.
 *
 * usage: png FOLDER ROUNDS COUNT
 *
 * Prints one JSON line a case and round; time of the thread, so that a busy machine disturbs less.
 * The bytes of both are compared. bench/run.py png compiles and runs it. */
#include "crop.h"
#include "decode/codec/codec.h"

#include <stdio.h>

#include <dirent.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_MAX 4096
#define PIXELS_MAX (1u << 26)

struct picture {
    struct stk_view bytes;
    struct stk_codec_info info;
    struct stk_codec_box box;
};

static struct picture pictures[COUNT_MAX];
static uint32_t count;
static uint8_t *ours, *theirs, *line;

static void load(const char *folder, uint32_t most)
{
    struct dirent **names;
    int found = scandir(folder, &names, NULL, alphasort);

    for (int i = 0; i < found && count < most; i++) {
        char path[4096];
        struct crop crop;
        FILE *file;

        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        if (!strstr(path, ".png") || !(file = fopen(path, "rb"))) {
            continue;
        }
        fseek(file, 0, SEEK_END);
        struct picture *picture = &pictures[count++];
        size_t bytes = (size_t)ftell(file);
        uint8_t *data = malloc(bytes);

        rewind(file);
        if (fread(data, 1, bytes, file) != bytes) {
            exit(1);
        }
        fclose(file);
        picture->bytes = (struct stk_view){data, bytes};
        if (stk_codec_probe(picture->bytes, PIXELS_MAX, &picture->info, NULL) < 0) {
            exit(1);
        }
        crop = draw_crop(picture->info.width, picture->info.height);
        picture->box = (struct stk_codec_box){crop.x, crop.y, crop.width, crop.height};
    }
}

/* ---- libpng, as its manual describes ---- */

struct source {
    const uint8_t *at;
};

static void on_read(png_structp reader, png_bytep to, size_t bytes)
{
    struct source *source = png_get_io_ptr(reader);

    memcpy(to, source->at, bytes);
    source->at += bytes;
}

static void by_libpng(const struct picture *picture)
{
    png_structp reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(reader);
    struct source source = {picture->bytes.data};
    const struct stk_codec_box *box = &picture->box;
    uint8_t *to = theirs;

    png_set_read_fn(reader, &source, on_read);
    png_read_info(reader, info);
    png_set_palette_to_rgb(reader);
    png_set_gray_to_rgb(reader);
    png_set_filler(reader, 0xff, PNG_FILLER_AFTER);
    png_start_read_image(reader);
    for (uint32_t y = 0; y < box->y + box->height; y++) {
        png_read_row(reader, line, NULL);
        if (y >= box->y) {
            memcpy(to, line + 4 * (size_t)box->x, 4 * (size_t)box->width);
            to += 4 * (size_t)box->width;
        }
    }
    png_destroy_read_struct(&reader, &info, NULL);
}

static void by_codec(struct stk_codec *codec, const struct picture *picture)
{
    const struct stk_codec_box *box = &picture->box;
    uint32_t row_pixels, skip, y = 0;

    if (stk_codec_begin(codec, picture->bytes, &picture->info, box, UINT64_C(1) << 30, &row_pixels,
                        &skip, NULL) < 0) {
        exit(1);
    }
    while (y < box->height) {
        uint8_t *rows[8];

        for (uint32_t i = 0; i < 8; i++) {
            rows[i] = ours + (size_t)(y + i) * box->width * 4;
        }
        int got = stk_codec_rows(codec, rows, 8, NULL);

        if (got < 0) {
            exit(1);
        }
        y += (uint32_t)got;
    }
    stk_codec_end(codec);
}

static void compare(const struct picture *picture)
{
    uint64_t pixels = (uint64_t)picture->box.width * picture->box.height;

    for (uint64_t i = 0; i < pixels; i++) {
        if (memcmp(ours + 4 * i, theirs + 4 * i, 3) != 0) {
            fprintf(stderr, "png: another pixel\n");
            exit(1);
        }
    }
}

int main(int argument_count, char **arguments)
{
    struct stk_codec *codec;
    double pixels = 0;

    if (argument_count != 4 || stk_codec_open(&codec, NULL) < 0) {
        return 2;
    }
    load(arguments[1], (uint32_t)strtoul(arguments[3], NULL, 10));
    ours = malloc(PIXELS_MAX);
    theirs = malloc(PIXELS_MAX);
    line = malloc(1u << 20);
    for (uint32_t i = 0; i < count; i++) {
        pixels += pictures[i].box.width * (double)pictures[i].box.height / count;
    }
    for (unsigned long round = strtoul(arguments[2], NULL, 10); round > 0; round--) {
        double spent[2] = {0};

        for (uint32_t i = 0; i < count; i++) {
            double start = seconds(), middle;

            by_libpng(&pictures[i]);
            middle = seconds();
            by_codec(codec, &pictures[i]);
            spent[0] += middle - start;
            spent[1] += seconds() - middle;
            compare(&pictures[i]);
        }
        for (int i = 0; i < 2; i++) {
            printf("{\"case\": \"%s\", \"us\": %.1f, \"ns_pixel\": %.3f}\n",
                   i ? "stoker" : "libpng", spent[i] * 1e6 / count,
                   spent[i] * 1e9 / count / pixels);
        }
    }
    stk_codec_close(codec);
    return 0;
}
