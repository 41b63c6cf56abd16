/* loader/sample/fill_value_test.h: samples with values inside members, in the simulated file
 * system.
 *
 *   values of sample i (and how it is damaged) -> tar_of -> rig_open -> open_loader
 *
 * The pixels of each image hold their own positions, (x, y, sample): so a batch shows by itself
 * which crop and flips were drawn. Owner: the test that includes it. Threads: one.
 * Memory: the rig's, and one tar. Bound: SAMPLES. */
#ifndef LOADER_SAMPLE_FILL_VALUE_TEST_H
#define LOADER_SAMPLE_FILL_VALUE_TEST_H

#include "base/random.h"
#include "engine/engine.h"
#include "io/sim/sim.h"
#include "test/t.h"
#include "test/tars.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLES 176u
#define WIDTH 100u
#define HEIGHT 120u
#define CROP_WIDTH 24u
#define CROP_HEIGHT 10u
#define BATCH 16u
#define TIGHT_TIMEOUT_MS 120000u /* of rigs with little memory: longer than a test waits */

/* Faults of a sample, and the status with which it must be listed. */
enum damage {
    CUT_NPY,
    FLAT_NPY,
    CUT_JSON,
    FLAT_BOXES,
    NO_MASK,
    WRONG_MASK,
    NAN_JSON,
    NO_TEXT,
    BAD_MP
};
static const int damage_status[] = {
    [CUT_NPY] = STOKER_ERROR_TRUNCATED,  [FLAT_NPY] = STOKER_ERROR_FORMAT,
    [CUT_JSON] = STOKER_ERROR_TRUNCATED, [FLAT_BOXES] = STOKER_ERROR_FORMAT,
    [NO_MASK] = STOKER_ERROR_MISSING,    [WRONG_MASK] = STOKER_ERROR_FORMAT,
    [NAN_JSON] = STOKER_ERROR_CORRUPT,   [NO_TEXT] = STOKER_ERROR_MISSING,
    [BAD_MP] = STOKER_ERROR_CORRUPT,
};

struct rig_options {
    const char *name;
    uint32_t threads;
    bool cold, sandbox, damaged;
    bool cut_masks; /* of every fourth sample: good if the crop ends before the truncation */
    uint64_t memory_bytes_max, decode_bytes_max;
    uint32_t large; /* rows of the npy of sample 0 mod 3, instead of a few */
    uint32_t batches_ahead;
};

struct rig {
    struct stk_io *world;
    struct stoker_engine *engine;
    struct stoker_dataset *dataset;
    const struct rig_options *options;
};

/* ---- contents of a sample ---- */

static inline bool is_damaged(uint32_t sample)
{
    return sample % 11 == 3;
}

static inline enum damage damage_of(uint32_t sample)
{
    return (enum damage)(sample / 11 % STK_COUNT(damage_status));
}

static inline uint8_t mask_value(uint32_t sample, uint32_t x, uint32_t y)
{
    return (uint8_t)stk_random_key(sample, y * WIDTH + x);
}

static inline uint32_t box_count(uint32_t sample)
{
    return sample % 5;
}

static inline void box_of(uint32_t sample, uint32_t i, double box[4])
{
    box[0] = 17.0 * i + sample % 7 * 0.5;
    box[1] = 23.0 * i + 0.25;
    box[2] = box[0] + 24 + sample % 9;
    box[3] = box[1] + 13 + i;
}

static inline size_t text_of(uint32_t sample, char text[256])
{
    size_t bytes = 0;

    text[0] = 0;
    for (uint32_t i = 0; i < sample % 6; i++) {
        bytes += (size_t)snprintf(text + bytes, 256 - bytes, "\xc3\xbc%u ", sample);
    }
    return bytes;
}

static inline uint32_t row_count(const struct rig_options *options, uint32_t sample)
{
    return options->large && sample % 3 == 0 ? options->large : sample % 6;
}

static inline float row_value(uint32_t sample, uint32_t i)
{
    return (float)sample + (float)i / 8;
}

/* Of (None, None): 1 or 2 lists of 0 to 2 numbers. */
static inline uint32_t side_of(uint32_t sample, uint32_t dimension)
{
    return dimension == 0 ? 1 + sample % 2 : sample % 3;
}

static inline size_t json_of(const struct rig_options *options, uint32_t sample, char json[4096])
{
    bool bad = options->damaged && is_damaged(sample);
    bool flat = bad && damage_of(sample) == FLAT_BOXES;
    char text[256];
    size_t at;

    text_of(sample, text);
    at =
        (size_t)snprintf(json, 4096, "{\"n\":%u,\"w\":%u.5,\"%s\":\"%s\",\"f\":[%u,2.5,%s],\"s\":[",
                         sample, sample, bad && damage_of(sample) == NO_TEXT ? "u" : "t", text,
                         sample, bad && damage_of(sample) == NAN_JSON ? "NaN" : "-1");
    for (uint32_t i = 0; i < side_of(sample, 0); i++) {
        at += (size_t)snprintf(json + at, 4096 - at, "%s[", i ? "," : "");
        for (uint32_t k = 0; k < side_of(sample, 1); k++) {
            at += (size_t)snprintf(json + at, 4096 - at, "%s%u", k ? "," : "", sample + 10 * i + k);
        }
        at += (size_t)snprintf(json + at, 4096 - at, "]");
    }
    at += (size_t)snprintf(json + at, 4096 - at, "],\"o\":[");
    for (uint32_t i = 0; i < box_count(sample) + flat; i++) {
        double box[4];

        box_of(sample, i, box);
        at += (size_t)snprintf(json + at, 4096 - at, "%s{\"l\":%u,\"b\":[%g,%g,%g", i ? "," : "",
                               sample + i, box[0], box[1], box[2]);
        at += flat ? (size_t)snprintf(json + at, 4096 - at, "]}")
                   : (size_t)snprintf(json + at, 4096 - at, ",%g]}", box[3]);
    }
    at += (size_t)snprintf(json + at, 4096 - at, "]}");
    return bad && damage_of(sample) == CUT_JSON ? at - 5 : at;
}

/* {"k": sample, "t": "x"}, the x no UTF-8 where it is damaged. */
static inline size_t msgpack_of(const struct rig_options *options, uint32_t sample, uint8_t mp[16])
{
    bool bad = options->damaged && is_damaged(sample) && damage_of(sample) == BAD_MP;
    uint8_t bytes[] = {0x82, 0xa1, 'k', 0xcc, (uint8_t)sample, 0xa1, 't', 0xa1, 'x'};

    bytes[8] = bad ? 0xff : 'x';
    memcpy(mp, bytes, sizeof bytes);
    return sizeof bytes;
}

static inline size_t npy_of(const struct rig_options *options, uint32_t sample, uint8_t **npy_out)
{
    bool bad = options->damaged && is_damaged(sample);
    bool flat = bad && damage_of(sample) == FLAT_NPY;
    uint32_t rows = row_count(options, sample) + (bad && damage_of(sample) == CUT_NPY);
    uint8_t *npy = malloc(80 + 8 * (size_t)rows);
    char shape[32];

    snprintf(shape, sizeof shape, flat ? "(%u,)" : "(%u, 2)", flat ? 2 * rows : rows);
    memcpy(npy, "\x93NUMPY\1\0\x46\0", 10);
    snprintf((char *)npy + 10, 71, "%-69s", "");
    snprintf((char *)npy + 10, 70, "{'descr': '<f4', 'fortran_order': False, 'shape': %s}", shape);
    npy[10 + strlen((char *)npy + 10)] = ' ';
    npy[79] = '\n';
    for (uint32_t i = 0; i < 2 * rows; i++) {
        float value = row_value(sample, i);
        memcpy(npy + 80 + 4 * (size_t)i, &value, sizeof value);
    }
    *npy_out = npy;
    return 80 + 8 * (size_t)rows - (bad && damage_of(sample) == CUT_NPY);
}

static inline size_t png_of(uint32_t format, uint32_t width, uint32_t height, const uint8_t *pixels,
                            uint8_t file[16384])
{
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = width, .height = height, .format = format};
    size_t bytes = 16384;

    T_TRUE("png", png_image_write_to_memory(&image, file, &bytes, 0, pixels, 0, NULL));
    return bytes;
}

static inline void add_pictures(struct t_tar *tar, const struct rig_options *options,
                                uint32_t sample)
{
    static uint8_t pixels[WIDTH * HEIGHT * 3], file[16384];
    bool bad = options->damaged && is_damaged(sample);
    uint32_t height = HEIGHT - (bad && damage_of(sample) == WRONG_MASK);
    char name[32];
    size_t bytes;

    for (uint32_t i = 0; i < WIDTH * HEIGHT; i++) {
        pixels[3 * i] = (uint8_t)(i % WIDTH);
        pixels[3 * i + 1] = (uint8_t)(i / WIDTH);
        pixels[3 * i + 2] = (uint8_t)sample;
    }
    bytes = png_of(PNG_FORMAT_RGB, WIDTH, HEIGHT, pixels, file);
    snprintf(name, sizeof name, "s%05u.png", sample);
    t_tar_add(tar, name, file, bytes);
    for (uint32_t i = 0; i < WIDTH * HEIGHT; i++) {
        pixels[i] = mask_value(sample, i % WIDTH, i / WIDTH);
    }
    bytes = png_of(PNG_FORMAT_GRAY, WIDTH, height, pixels, file);
    snprintf(name, sizeof name, "s%05u.mask.png", sample);
    if (!bad || damage_of(sample) != NO_MASK) {
        /* libpng reads 8 KiB at a time: of 12 the first are before the truncation. */
        t_tar_add(tar, name, file, options->cut_masks && sample % 4 == 1 ? bytes * 3 / 4 : bytes);
    }
}

static inline void add_sample(struct t_tar *tar, const struct rig_options *options, uint32_t sample)
{
    char name[32], json[4096], text[256];
    uint8_t mp[16], *npy;
    size_t bytes = json_of(options, sample, json);

    add_pictures(tar, options, sample);
    snprintf(name, sizeof name, "s%05u.json", sample);
    t_tar_add(tar, name, json, bytes);
    snprintf(name, sizeof name, "s%05u.mp", sample);
    t_tar_add(tar, name, mp, msgpack_of(options, sample, mp));
    bytes = npy_of(options, sample, &npy);
    snprintf(name, sizeof name, "s%05u.npy", sample);
    t_tar_add(tar, name, npy, bytes);
    free(npy);
    snprintf(name, sizeof name, "s%05u.txt", sample);
    t_tar_add(tar, name, text, text_of(sample, text));
}

/* ---- the rig ---- */

static const struct stoker_transform chain[] = {
    {.kind = STOKER_RANDOM_CROP, .height = CROP_HEIGHT, .width = CROP_WIDTH},
    {.kind = STOKER_RANDOM_HORIZONTAL_FLIP, .probability = 0.5},
    {.kind = STOKER_RANDOM_VERTICAL_FLIP, .probability = 0.5},
};

enum { IMAGE, MASK, BOXES, LABELS, INT, FLOAT, INNER, ROWS, SIDES, FIXED, JSON, MSGPACK, TEXT };

static const struct stoker_field_options fields[] = {
    [IMAGE] = {.name = "image",
               .kind = STOKER_FIELD_IMAGE,
               .extensions = "png",
               .transforms = chain,
               .transform_count = STK_COUNT(chain)},
    [MASK] = {.name = "mask", .kind = STOKER_FIELD_MASK, .extensions = "mask.png"},
    [BOXES] = {.name = "boxes", .kind = STOKER_FIELD_BOXES, .extensions = "json", .path = "o.*.b"},
    [LABELS] = {.name = "labels",
                .kind = STOKER_FIELD_BOX_LABELS,
                .extensions = "json",
                .path = "o.*.b",
                .labels = "o.*.l"},
    [INT] = {.name = "n", .kind = STOKER_FIELD_INT, .extensions = "json", .path = "n"},
    [FLOAT] = {.name = "w", .kind = STOKER_FIELD_FLOAT, .extensions = "json", .path = "w"},
    [INNER] = {.name = "t", .kind = STOKER_FIELD_TEXT, .extensions = "json", .path = "t"},
    [ROWS] = {.name = "rows",
              .kind = STOKER_FIELD_ARRAY,
              .extensions = "npy",
              .dimension_count = 2,
              .shape = {-1, 2}},
    [SIDES] = {.name = "sides",
               .kind = STOKER_FIELD_ARRAY,
               .extensions = "json",
               .path = "s",
               .dtype = STOKER_INT32,
               .dimension_count = 2,
               .shape = {-1, -1}},
    [FIXED] = {.name = "fixed",
               .kind = STOKER_FIELD_ARRAY,
               .extensions = "json",
               .path = "f",
               .dtype = STOKER_FLOAT64,
               .dimension_count = 1,
               .shape = {3}},
    [JSON] = {.name = "json", .kind = STOKER_FIELD_JSON, .extensions = "json"},
    [MSGPACK] = {.name = "mp", .kind = STOKER_FIELD_MSGPACK, .extensions = "mp"},
    [TEXT] = {.name = "txt", .kind = STOKER_FIELD_TEXT, .extensions = "txt"},
};

/* The tar for these options: made again only if other options are requested. */
static inline const struct t_tar *tar_of(const struct rig_options *options)
{
    static struct t_tar tar;
    static struct rig_options made;

    if (tar.bytes == 0 || made.damaged != options->damaged || made.large != options->large ||
        made.cut_masks != options->cut_masks) {
        t_tar_free(&tar);
        tar = (struct t_tar){0};
        for (uint32_t i = 0; i < SAMPLES; i++) {
            add_sample(&tar, options, i);
        }
        t_tar_end(&tar);
        made = *options;
    }
    return &tar;
}

static inline bool rig_open(struct rig *rig, const struct rig_options *options)
{
    static const struct stk_sim_rule cold = {.fault = STK_SIM_FAULT_COLD};
    static const char *const url = "/data/train.tar";
    struct stk_io_options io = {.depth = 16, .read_timeout_ms = 3000};
    struct stoker_engine_options engine = {
        .struct_size = sizeof engine,
        .threads = options->threads,
        .io_depth = 16,
        .read_timeout_ms = options->memory_bytes_max ? TIGHT_TIMEOUT_MS : 3000,
        .sandbox = options->sandbox,
        .memory_bytes_max = options->memory_bytes_max ? options->memory_bytes_max : 256u << 20};
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = &url, .url_count = 1, .block_bytes = 8192};
    struct stoker_error error = {0};
    const struct t_tar *tar = tar_of(options);

    *rig = (struct rig){.options = options};
    T_EQ("world", stk_sim_open(&rig->world, 1, &io, &error), 0);
    T_EQ("add", stk_sim_add(rig->world, "/data/train.tar", tar->data, tar->bytes), 0);
    if (stk_engine_open_with_io(&rig->engine, rig->world, &engine, &error) < 0 ||
        stoker_dataset_open(&rig->dataset, rig->engine, &dataset, &error) < 0) {
        stoker_engine_close(rig->engine);
        return T_STR(error.where, error.what, "");
    }
    if (options->cold) {
        stk_sim_add_rule(rig->world, &cold);
    }
    return true;
}

static inline void rig_close(struct rig *rig)
{
    stoker_dataset_close(rig->dataset);
    stoker_engine_close(rig->engine);
}

static inline struct stoker_loader *open_loader(struct rig *rig, uint32_t on_error,
                                                struct stoker_error *error)
{
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = fields,
                                            .field_count = STK_COUNT(fields),
                                            .batch_size = BATCH,
                                            .seed = 5,
                                            .on_error = on_error,
                                            .batches_ahead = rig->options->batches_ahead,
                                            .decode_bytes_max = rig->options->decode_bytes_max};
    struct stoker_loader *loader = NULL;

    if (stoker_loader_open(&loader, rig->dataset, &options, error) < 0) {
        T_STR(error->where, error->what, "");
        exit(t_finish()); /* the others need it too */
    }
    return loader;
}

#endif
