/* Opens the fields of a loader. */
#include "loader/pending/loader_field.h"

#include "base/mem.h"
#include "format/value/value.h"
#include "loader/pending/loader_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SIDE_MAX (1ll << 31)
#define SLOT_BYTES_MAX (1ull << 40)
#define EXTENSIONS_TEXT_BYTES 256

static int open_array(struct stk_loader_field *field, const struct stoker_field_options *given,
                      struct stoker_error *error);
static int open_boxes(struct stk_loader_field *field, const struct stoker_field_options *given,
                      struct stoker_error *error);
static int follow(struct stoker_loader *loader, uint32_t index,
                  const struct stoker_loader_options *options, struct stoker_error *error);
static int copy_paths(struct stk_loader_field *field, const struct stoker_field_options *given,
                      struct stoker_error *error);

/* The extensions of all samples, separated by spaces, as many as fit. */
static void list_extensions(const struct stk_index *index, char text[EXTENSIONS_TEXT_BYTES])
{
    uint64_t count = stk_index_extensions(index);
    size_t used = 0;

    text[0] = '\0';
    for (uint64_t i = 0; i < count; i++) {
        const char *extension = stk_index_extension(index, (uint32_t)i);
        size_t bytes = strlen(extension);

        if (used + bytes + 8 > EXTENSIONS_TEXT_BYTES) {
            memcpy(text + used, " ...", 5);
            return;
        }
        used += (size_t)snprintf(text + used, EXTENSIONS_TEXT_BYTES - used, "%s%s",
                                 used > 0 ? " " : "", extension);
    }
}

static int set_default(struct stk_loader_field *field, const struct stoker_field_options *given,
                       struct stoker_error *error)
{
    bool fixed = given->kind == STOKER_FIELD_INT || given->kind == STOKER_FIELD_FLOAT;
    bool array = given->kind == STOKER_FIELD_ARRAY && !field->shape.ragged;
    bool bytes =
        given->kind == STOKER_FIELD_BYTES || (given->kind == STOKER_FIELD_TEXT && !given->path);
    uint64_t want = fixed ? 8 : array ? field->shape.item_bytes : given->default_bytes;
    void *copy;

    if ((!fixed && !array && !bytes) || given->default_bytes != want) {
        return stk_fail(
            error, STOKER_ERROR_ARGUMENT, "this field cannot have this default",
            "numbers, arrays of a fixed shape, and members of text or bytes have defaults; "
            "choose samples that have the others: subset=\"npy is not none\"",
            "field '%.64s'", given->name ? given->name : "");
    }
    copy = stk_alloc(want + 1, 1);
    if (!copy) {
        return stk_fail(error, -ENOMEM, "cannot open a field", "free memory", "a default");
    }
    if (want > 0) {
        memcpy(copy, given->default_value, want);
    }
    field->default_value = (struct stk_view){copy, want};
    field->has_default = true;
    return 0;
}

static int set_extensions(struct stoker_loader *loader, struct stk_loader_field *field,
                          const char *list, struct stoker_error *error)
{
    char *copy = stk_strdup(list);

    if (!copy) {
        return stk_fail(error, -ENOMEM, "cannot open a field", "free memory", "'%s'", list);
    }
    field->requested = stk_strdup(list);
    for (char *part = copy, *next; part && *part; part = next) {
        int64_t id;

        next = strchr(part, ';');
        if (next) {
            *next++ = 0;
        }
        id = stk_index_extension_id(loader->dataset->index, part);
        if (id >= 0 && field->extension_count == STK_LOADER_FIELD_EXTENSIONS_MAX) {
            stk_free(copy);
            return stk_fail(error, STOKER_ERROR_LIMIT, "a field has too many extensions",
                            "name fewer: the first that a sample has is taken",
                            "at most %u that the data set has: '%.400s'",
                            STK_LOADER_FIELD_EXTENSIONS_MAX, list);
        }
        if (id >= 0) {
            field->extensions[field->extension_count++] = (uint32_t)id;
        }
    }
    stk_free(copy);
    if (!field->requested) {
        return stk_fail(error, -ENOMEM, "cannot open a field", "free memory", "'%s'", list);
    }
    if (field->extension_count == 0 && !field->has_default &&
        stk_index_samples(loader->dataset->index) > 0) {
        char found[EXTENSIONS_TEXT_BYTES];

        list_extensions(loader->dataset->index, found);
        return stk_fail(
            error, STOKER_ERROR_MISSING, "no sample has a member for a field",
            field->kind == STOKER_FIELD_LABEL
                ? "remove the label (in Python: label=None), or take the folders of the "
                  "samples as classes (label='path')"
                : "name one of the extensions that the samples have",
            "extensions '%s'; the samples have: %s", list, found);
    }
    return 0;
}

/* Whether the transform selects a random part of the image. */
static bool is_random(uint32_t kind)
{
    return kind == STOKER_RANDOM_RESIZED_CROP || kind == STOKER_RANDOM_CROP;
}

static int open_image(struct stk_loader_field *field, const struct stoker_field_options *given,
                      const struct stoker_loader_options *options, struct stoker_error *error)
{
    struct stk_transform_plan_options decode = {.transforms = given->transforms,
                                                .transform_count = given->transform_count,
                                                .dtype = given->dtype,
                                                .layout = given->layout,
                                                .exif = given->exif,
                                                .planar = given->planar,
                                                .check = options->image_check,
                                                .pixels_max = options->pixels_max,
                                                .memory_bytes_max = options->decode_bytes_max};
    struct stk_image_shape shape;
    int status = stk_transform_plan_open(&field->plan, &decode, error);

    if (status < 0) {
        return status;
    }
    for (size_t i = 0; i < given->transform_count; i++) {
        field->random = field->random || is_random(given->transforms[i].kind);
    }
    stk_transform_plan_shape(field->plan, &shape);
    field->shape.dtype = shape.dtype;
    field->shape.dimension_count = 3;
    field->shape.slot_bytes = shape.slot_bytes;
    if (shape.layout == STOKER_NCHW) {
        memcpy(field->shape.shape, (int64_t[]){3, shape.height, shape.width},
               sizeof field->shape.shape);
        memcpy(field->shape.strides,
               (int64_t[]){(int64_t)shape.height * shape.width, shape.width, 1},
               sizeof field->shape.strides);
    } else {
        memcpy(field->shape.shape, (int64_t[]){shape.height, shape.width, 3},
               sizeof field->shape.shape);
        memcpy(field->shape.strides, (int64_t[]){(int64_t)shape.width * 3, 3, 1},
               sizeof field->shape.strides);
    }
    return 0;
}

static const char any_image[] = "jpg;jpeg;jpe;jfif;png;webp;bmp;ppm;pgm;pbm;pnm";

/* In a data set of folders and tars a file has the class of its folder, a sample of a tar the
 * number in its member. */
static int open_label(struct stoker_loader *loader, struct stk_loader_field *field,
                      const struct stoker_field_options *given, const char **extensions,
                      struct stoker_error *error)
{
    bool has_tars = stk_dataset_has_containers(loader->dataset);

    field->shape.dtype = STOKER_INT64;
    field->from_path = given->label_from_path && has_tars;
    *extensions = !has_tars || field->from_path ? NULL : *extensions ? *extensions : "cls";
    if (!has_tars && stk_index_classes(loader->dataset->index) == 0) {
        return stk_fail(error, STOKER_ERROR_MISSING,
                        "the images are in no class folder, so they have no label",
                        "remove the field (in Python: label=None), put the images into one folder "
                        "per class (root/cat/1.jpg), or open the parent folder if this one is a "
                        "class",
                        "field '%.100s'", given->name);
    }
    return field->from_path ? stk_dataset_read_path_classes(loader->dataset, error) : 0;
}

static int open_field(struct stoker_loader *loader, struct stk_loader_field *field,
                      const struct stoker_field_options *given,
                      const struct stoker_loader_options *options, struct stoker_error *error)
{
    bool folder = loader->dataset->objects.kind == STK_SOURCE_FOLDER;
    const char *extensions = given->extensions;
    int status = copy_paths(field, given, error);

    if (status < 0) {
        return status;
    }
    field->kind = given->kind;
    field->shape.slot_bytes = 8;
    switch (given->kind) {
    case STOKER_FIELD_IMAGE:
        extensions = folder || extensions ? extensions : any_image;
        status = open_image(field, given, options, error);
        field->image_field = (uint32_t)(field - loader->fields);
        break;
    case STOKER_FIELD_LABEL:
        status = open_label(loader, field, given, &extensions, error);
        break;
    case STOKER_FIELD_SAMPLE:
        field->shape.dtype = STOKER_INT64;
        extensions = NULL;
        break;
    case STOKER_FIELD_FLOAT:
        field->shape.dtype = STOKER_FLOAT64;
        break;
    case STOKER_FIELD_INT:
        field->shape.dtype = given->dtype ? given->dtype : STOKER_INT64;
        if (field->shape.dtype != STOKER_INT64 && field->shape.dtype != STOKER_UINT64) {
            status = stk_fail(error, STOKER_ERROR_ARGUMENT, "an integer has another dtype",
                              "use int64 or uint64", "field '%.100s'", given->name);
        }
        break;
    case STOKER_FIELD_ARRAY:
        status = open_array(field, given, error);
        break;
    case STOKER_FIELD_MASK:
        break; /* the image sets its shape */
    case STOKER_FIELD_BOXES:
    case STOKER_FIELD_BOX_LABELS:
        status = open_boxes(field, given, error);
        break;
    case STOKER_FIELD_KEY:
    case STOKER_FIELD_BYTES:
    case STOKER_FIELD_JSON:
    case STOKER_FIELD_MSGPACK:
    case STOKER_FIELD_TEXT:
        field->out_of_line = given->kind == STOKER_FIELD_TEXT && given->path;
        field->shape.dtype = STOKER_BYTES;
        field->shape.slot_bytes = 0;
        extensions = given->kind == STOKER_FIELD_KEY ? NULL : extensions;
        break;
    default:
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a field has an unknown kind",
                        "use enum stoker_field_kind", "kind %u", given->kind);
    }
    status = status < 0 || !given->has_default ? status : set_default(field, given, error);
    return status == 0 && extensions ? set_extensions(loader, field, extensions, error) : status;
}

int stk_loader_fields_open(struct stoker_loader *loader,
                           const struct stoker_loader_options *options, struct stoker_error *error)
{
    struct stoker_error own = {0};
    int status = 0;

    for (size_t i = 0; i < options->field_count && status == 0; i++) {
        loader->field_count = (uint32_t)i + 1; /* close frees a field that failed, too */
        status = open_field(loader, &loader->fields[i], &options->fields[i], options, &own);
        if (status == 0 && loader->fields[i].out_of_line) {
            loader->fields[i].out_of_line_index = loader->out_of_line_count++;
            atomic_store_explicit(&loader->out_of_line_bytes[i], UINT64_MAX, memory_order_relaxed);
        }
    }
    for (uint32_t i = 0; i < loader->field_count && status == 0; i++) {
        status = follow(loader, i, options, &own); /* an image may stand after its mask */
    }
    loader->parse_bytes_max = options->decode_bytes_max;
    if (status < 0 && error) {
        *error = own;
    }
    return status;
}

void stk_loader_fields_close(struct stoker_loader *loader)
{
    for (uint32_t f = 0; f < loader->field_count; f++) {
        struct stk_loader_field *field = &loader->fields[f];

        stk_transform_plan_close(field->plan);
        stk_free(field->requested);
        stk_free(field->path);
        stk_free(field->labels);
        stk_free((void *)(uintptr_t)field->default_value.data);
    }
}

static int copy_paths(struct stk_loader_field *field, const struct stoker_field_options *given,
                      struct stoker_error *error)
{
    field->path = given->path ? stk_strdup(given->path) : NULL;
    field->labels = given->labels ? stk_strdup(given->labels) : NULL;
    if ((given->path && !field->path) || (given->labels && !field->labels)) {
        return stk_fail(error, -ENOMEM, "cannot open a field", "free memory", "a path");
    }
    return 0;
}

static int fail_field(const struct stoker_field_options *given, const char *what,
                      const char *advice, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_ARGUMENT, what, advice, "field '%.64s'",
                    given->name ? given->name : "");
}

/* Sets sides and strides of a slot, in C order. A side of -1 makes the field ragged. */
static int open_array(struct stk_loader_field *field, const struct stoker_field_options *given,
                      struct stoker_error *error)
{
    struct stk_batch_field_shape *shape = &field->shape;
    uint64_t bytes;

    shape->dtype = given->dtype ? given->dtype : STOKER_FLOAT32;
    shape->item_bytes = stk_dtype_bytes(shape->dtype);
    shape->dimension_count = given->dimension_count;
    memcpy(shape->shape, given->shape, sizeof shape->shape);
    if (shape->item_bytes == 0 || given->dimension_count > STK_COUNT(shape->shape)) {
        return fail_field(given, "the dtype or shape of an array is not valid",
                          "use a numeric dtype, and 3 sides at most", error);
    }
    if (given->dimension_count == 0) {
        shape->dimension_count = 1;
        shape->shape[0] = -1;
    }
    bytes = shape->item_bytes;
    for (uint32_t i = shape->dimension_count; i > 0; i--) {
        int64_t side = shape->shape[i - 1];

        if (side == 0 || side < -1 || side > SIDE_MAX) {
            return fail_field(given, "a side of an array is not valid",
                              "use sides of at least 1, and -1 for a side that varies", error);
        }
        shape->ragged = shape->ragged || side < 0;
        shape->strides[i - 1] = (int64_t)(bytes / shape->item_bytes);
        bytes *= side < 0 ? 1 : (uint64_t)side;
        if (bytes > SLOT_BYTES_MAX) {
            return fail_field(given, "an array is larger than memory", "give smaller sides", error);
        }
    }
    shape->slot_bytes = shape->ragged ? 0 : bytes;
    field->out_of_line = shape->ragged;
    return 0;
}

static int open_boxes(struct stk_loader_field *field, const struct stoker_field_options *given,
                      struct stoker_error *error)
{
    struct stoker_field_options array = *given;

    field->box_format = given->box_format ? given->box_format : STOKER_XYXY;
    field->normalised = given->normalised;
    field->keep_empty = given->keep_empty;
    if (field->box_format > STOKER_CXCYWH) {
        return fail_field(given, "the format of the boxes is unknown", "use xyxy, xywh or cxcywh",
                          error);
    }
    if ((given->kind == STOKER_FIELD_BOX_LABELS) != (given->labels != NULL)) {
        return fail_field(given, "labels are for BOX_LABELS, which needs them",
                          "give the path of the labels", error);
    }
    array.dtype = given->labels ? STOKER_INT64 : STOKER_FLOAT32;
    array.dimension_count = given->labels ? 1 : 2;
    array.shape[0] = -1;
    array.shape[1] = 4;
    return open_array(field, &array, error);
}

static int open_mask(struct stk_loader_field *field, const struct stk_transform_plan *image,
                     const struct stoker_field_options *given, struct stoker_error *error)
{
    struct stk_image_shape shape;
    int status =
        stk_transform_plan_link(&field->plan, image, given->rgb_ids != 0, given->dtype, error);

    if (status < 0) {
        return status;
    }
    stk_transform_plan_shape(field->plan, &shape);
    field->shape = (struct stk_batch_field_shape){.dtype = shape.dtype,
                                                  .dimension_count = 2,
                                                  .shape = {shape.height, shape.width},
                                                  .strides = {shape.width, 1},
                                                  .slot_bytes = shape.slot_bytes};
    return 0;
}

/* Finds the image that a mask or boxes follow. */
static int follow(struct stoker_loader *loader, uint32_t index,
                  const struct stoker_loader_options *options, struct stoker_error *error)
{
    const struct stoker_field_options *given = &options->fields[index];
    struct stk_loader_field *field = &loader->fields[index];
    uint32_t image = 0;

    if (field->kind != STOKER_FIELD_MASK && field->kind != STOKER_FIELD_BOXES &&
        field->kind != STOKER_FIELD_BOX_LABELS) {
        return 0;
    }
    while (image < loader->field_count &&
           (loader->fields[image].kind != STOKER_FIELD_IMAGE ||
            (given->follows && (!options->fields[image].name ||
                                strcmp(options->fields[image].name, given->follows) != 0)))) {
        image++;
    }
    if (image == loader->field_count) {
        return fail_field(given, "there is no image field that a mask or boxes can follow",
                          "add an image field, or name an existing one", error);
    }
    field->image_field = image;
    field->random = loader->fields[image].random;
    return field->kind == STOKER_FIELD_MASK
               ? open_mask(field, loader->fields[image].plan, given, error)
               : 0;
}
