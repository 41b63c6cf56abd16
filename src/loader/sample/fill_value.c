/* Values inside members: parses the member, checks the value against its field, and copies it into
 * the slot, or out of line if its size varies. */
#include "loader/sample/fill_value.h"

#include "base/mem.h"
#include "base/random.h"
#include "loader/pending/ragged_layout.h"

#include <errno.h>
#include <string.h>

/* A box and its label take 41 bytes in memory, and at least 4 in a member (an npy of bytes). */
#define BOX_MEMORY_RATIO 11u

/* A value, and the memory of the budget that it holds. */
struct opened {
    struct stk_value value;
    uint64_t reserved;
    bool is_shared;           /* a view of the sample's parsed document */
    struct stk_parse_job job; /* of the sandbox, if it parsed the member */
};

struct box_list {
    struct stk_image_boxes boxes; /* its arrays are owned */
    uint64_t visible_count;
};

static void close_value(const struct stk_fill *fill, struct opened *opened);

static const struct stk_loader_field *field_of(const struct stk_fill *fill)
{
    return &fill->pending->loader->fields[fill->field];
}

static void *slot_of(const struct stk_fill *fill)
{
    return stk_batch_slot(fill->pending->batch, fill->field, field_of(fill)->shape.slot_bytes,
                          fill->slot);
}

uint64_t stk_fill_value_key(const struct stk_pending_batch *pending, uint32_t slot, uint32_t field)
{
    const struct stk_order_place *place = &pending->order_places[slot];

    return stk_random_key(
        stk_random_key(stk_random_key(pending->loader->seed, place->epoch), place->position),
        field);
}

/* ---- parsing ---- */

static enum stk_value_encoding encoding_of(const struct stk_fill *fill)
{
    switch (field_of(fill)->kind) {
    case STOKER_FIELD_JSON:
        return STK_VALUE_JSON;
    case STOKER_FIELD_MSGPACK:
        return STK_VALUE_MSGPACK;
    default:
        return stk_value_encoding_of(fill->extension, fill->bytes);
    }
}

void stk_parse_cache_close(struct stk_parse_cache *parse)
{
    stk_value_close(&parse->value);
    *parse = (struct stk_parse_cache){0};
}

/* An upper bound of the memory that opening and using a value takes. */
static int memory_estimate(const struct stk_fill *fill, enum stk_value_encoding encoding,
                           const char *path, uint64_t *bytes_out)
{
    const struct stk_loader_field *field = field_of(fill);
    bool boxes = field->kind == STOKER_FIELD_BOXES;
    bool labels = field->kind == STOKER_FIELD_BOX_LABELS;
    uint64_t bytes, more = 0;
    int status = stk_value_memory_bytes(encoding, fill->bytes, path, &bytes, fill->error);

    if (status == 0 && labels && encoding == STK_VALUE_NPZ) { /* its labels are a second array */
        status = stk_value_memory_bytes(encoding, fill->bytes, field->labels, &more, fill->error);
    }
    if (boxes || labels) {
        uint64_t written = encoding == STK_VALUE_NPZ ? bytes : fill->bytes.bytes;

        more += BOX_MEMORY_RATIO * stk_min(written, UINT64_MAX / 32);
    }
    *bytes_out = status < 0 ? 0 : bytes + stk_min(more, UINT64_MAX - bytes);
    return status;
}

/* Parsed documents up to this size are cached until the sample is filled. */
static uint64_t shared_bytes_max(const struct stk_fill *fill)
{
    return fill->pending->loader->engine->keep_bytes / (1 + BOX_MEMORY_RATIO);
}

/* Parses the member in this process. */
static int parse_in_process(const struct stk_fill *fill, enum stk_value_encoding encoding,
                            const char *path, struct opened *opened)
{
    struct stoker_engine *engine = fill->pending->loader->engine;
    bool tree = encoding == STK_VALUE_JSON || encoding == STK_VALUE_MSGPACK;
    uint64_t bytes, bytes_max = fill->pending->loader->parse_bytes_max;
    int status = memory_estimate(fill, encoding, path, &bytes);

    /* Above bytes_max stk_value_open fails with a better error: nothing is reserved for that. */
    if (status == 0 && bytes > engine->keep_bytes && bytes <= bytes_max) {
        status = stk_engine_reserve(engine, bytes, fill->pending->memory_wait_ms,
                                    "reading a large member", fill->error);
        opened->reserved = status < 0 ? 0 : bytes;
    }
    if (status < 0) {
        return status;
    }
    opened->is_shared = tree && bytes <= shared_bytes_max(fill);
    return stk_value_open(opened->is_shared ? &fill->parse->value : &opened->value, encoding,
                          fill->bytes, opened->is_shared ? NULL : path, bytes_max, fill->error);
}

static struct stk_parse_job job_of(const struct stk_fill *fill, enum stk_value_encoding encoding)
{
    const struct stk_loader_field *field = field_of(fill);
    bool boxes = field->kind == STOKER_FIELD_BOXES || field->kind == STOKER_FIELD_BOX_LABELS;

    return (struct stk_parse_job){
        .encoding = encoding,
        .bytes = fill->bytes,
        .path = field->path,
        .second_path = encoding == STK_VALUE_NPZ ? field->labels : NULL,
        .small_bytes = shared_bytes_max(fill),
        .wait_ms = fill->pending->memory_wait_ms,
        .ratio = boxes ? BOX_MEMORY_RATIO : 0,
        .memory_bytes_max = fill->pending->loader->parse_bytes_max,
        .cancelled = &fill->pending->cancelled,
    };
}

/* Parses the member in the worker's sandbox, which returns the entire document for any path. */
static int parse_sandboxed(const struct stk_fill *fill, enum stk_value_encoding encoding,
                           struct opened *opened)
{
    struct stk_value *value = &opened->value;
    int status;

    opened->job = job_of(fill, encoding);
    status = stk_worker_parse(fill->worker, &opened->job, value, fill->error);
    opened->reserved = opened->job.reserved_bytes;
    if (status == 0 && value->tree && opened->reserved == 0) {
        opened->is_shared = true;
        fill->parse->value = *value;
    } else if (status == 0 && value->tree) {
        status = stk_value_find(value, field_of(fill)->path, value, fill->error);
    }
    return status;
}

/* Checks a document whose bytes are the value. */
static int check_sandboxed(const struct stk_fill *fill)
{
    struct opened opened = {.job = job_of(fill, encoding_of(fill))};
    int status;

    opened.job.check_only = true;
    status = stk_worker_parse(fill->worker, &opened.job, &opened.value, fill->error);
    opened.reserved = opened.job.reserved_bytes;
    close_value(fill, &opened);
    return status;
}

/* Opens the value at a path. A document that another field of the sample has parsed is not parsed
 * again. A large member reserves its memory first, and is closed with its value: so no thread waits
 * for memory while it holds some. */
static int open_value(const struct stk_fill *fill, const char *path, struct opened *opened)
{
    struct stk_parse_cache *parse = fill->parse;
    enum stk_value_encoding encoding = encoding_of(fill);
    bool is_sandboxed =
        fill->worker->sandbox && encoding != STK_VALUE_NPY && encoding != STK_VALUE_UNKNOWN;
    int status = 0;

    *opened = (struct opened){0};
    if (!parse->value.tree || parse->value.encoding != encoding ||
        parse->value.bytes.data != fill->bytes.data) {
        stk_parse_cache_close(parse);
        status = is_sandboxed ? parse_sandboxed(fill, encoding, opened)
                              : parse_in_process(fill, encoding, path, opened);
    }
    if (status == 0 && parse->value.tree) {
        opened->is_shared = true;
        status = stk_value_find(&parse->value, path, &opened->value, fill->error);
    }
    if (status < 0) {
        close_value(fill, opened);
    }
    return status;
}

static void close_value(const struct stk_fill *fill, struct opened *opened)
{
    if (!opened->is_shared) {
        stk_value_close(&opened->value);
    }
    stk_budget_release(&fill->pending->loader->engine->budget, opened->reserved);
    *opened = (struct opened){0};
}

/* ---- arrays ---- */

static int ragged_alloc(const struct stk_fill *fill, uint64_t bytes,
                        struct stk_ragged_value **value_out)
{
    return stk_ragged_value_alloc(fill->pending, fill->field, fill->slot, bytes, value_out,
                                  fill->error);
}

static struct stk_value_shape wanted_shape(const struct stk_loader_field *field)
{
    struct stk_value_shape shape = {.rank = field->shape.dimension_count};

    for (uint32_t i = 0; i < shape.rank; i++) {
        shape.sides[i] = (uint64_t)field->shape.shape[i]; /* -1: UINT64_MAX */
    }
    return shape;
}

/* Compares the shape of a value with the field's. An empty list fits any inner sides. */
static int check_shape(const struct stk_fill *fill, struct stk_value_shape *shape)
{
    struct stk_value_shape want = wanted_shape(field_of(fill));
    char has_text[160], want_text[160];
    bool fits = true;

    if (shape->count == 0 && shape->rank < want.rank) {
        for (; shape->rank < want.rank; shape->rank++) {
            uint64_t side = want.sides[shape->rank];
            shape->sides[shape->rank] = side == UINT64_MAX ? 0 : side;
        }
    }
    fits = shape->rank == want.rank;
    for (uint32_t i = 0; i < want.rank && fits; i++) {
        fits = want.sides[i] == UINT64_MAX || want.sides[i] == shape->sides[i];
    }
    if (fits) {
        return 0;
    }
    return stk_fail(fill->error, STOKER_ERROR_FORMAT, "an array has another shape than its field",
                    "give the field this shape, with None (-1 in C) for sides that vary",
                    "shape %s, the field's %s", stk_value_shape_text(shape, has_text),
                    stk_value_shape_text(&want, want_text));
}

static int fill_array(const struct stk_fill *fill, const struct stk_value *value)
{
    const struct stk_loader_field *field = field_of(fill);
    struct stk_value_shape shape;
    struct stk_ragged_value *ragged;
    int status = stk_value_get_shape(value, &shape, fill->error);

    status = status < 0 ? status : check_shape(fill, &shape);
    if (status < 0) {
        return status;
    }
    if (!field->out_of_line) {
        return stk_value_copy(value, &shape, field->shape.dtype, slot_of(fill), fill->error);
    }
    status = ragged_alloc(fill, shape.count * field->shape.item_bytes, &ragged);
    if (status < 0) {
        return status;
    }
    memcpy(ragged->sides, shape.sides, sizeof ragged->sides);
    return stk_value_copy(value, &shape, field->shape.dtype, ragged->data, fill->error);
}

static int fill_text(const struct stk_fill *fill, const struct stk_value *value)
{
    struct stk_ragged_value *ragged;
    struct stk_view text;
    int status = stk_value_text(value, &text, fill->error);

    status = status < 0 ? status : ragged_alloc(fill, text.bytes, &ragged);
    if (status == 0 && text.bytes > 0) {
        memcpy(ragged->data, text.data, text.bytes);
    }
    return status;
}

/* ---- boxes ---- */

static void box_list_free(struct box_list *list)
{
    stk_free(list->boxes.corners);
    stk_free(list->boxes.is_visible);
}

/* Converts a box in the field's format to corners in pixels. */
static int read_corners(const struct stk_loader_field *field, double box[4], uint32_t width,
                        uint32_t height)
{
    double across = field->normalised ? (double)width : 1.0;
    double down = field->normalised ? (double)height : 1.0;

    if (field->box_format == STOKER_CXCYWH) {
        box[0] -= box[2] / 2;
        box[1] -= box[3] / 2;
    }
    if (field->box_format != STOKER_XYXY) {
        box[2] += box[0];
        box[3] += box[1];
    }
    box[0] *= across;
    box[1] *= down;
    box[2] *= across;
    box[3] *= down;
    /* A NaN fails each comparison; infinity minus infinity is NaN. */
    return box[0] <= box[2] && box[1] <= box[3] && box[2] - box[0] < 1e300 &&
                   box[3] - box[1] < 1e300
               ? 0
               : STOKER_ERROR_CORRUPT;
}

static int read_boxes(const struct stk_fill *fill, const struct stk_value *value,
                      struct stk_image_boxes *boxes)
{
    struct stk_value_shape shape;
    char text[160];
    int status = stk_value_get_shape(value, &shape, fill->error);

    if (status < 0) {
        return status;
    }
    if (shape.count > 0 && (shape.rank != 2 || shape.sides[1] != 4)) {
        return stk_fail(fill->error, STOKER_ERROR_FORMAT,
                        "boxes are not a list of four numbers each",
                        "give a path to such a list, as 'boxes' or 'objects.*.box'", "shape %s",
                        stk_value_shape_text(&shape, text));
    }
    boxes->count = shape.count / 4;
    boxes->corners = stk_alloc(boxes->count, sizeof *boxes->corners);
    boxes->is_visible = stk_alloc(boxes->count, sizeof *boxes->is_visible);
    if (!boxes->corners || !boxes->is_visible) {
        return stk_fail(fill->error, -ENOMEM, "cannot read boxes", "free memory", "%llu boxes",
                        (unsigned long long)boxes->count);
    }
    status = stk_value_copy(value, &shape, STOKER_FLOAT64, boxes->corners, fill->error);
    for (uint64_t i = 0; i < boxes->count && status == 0; i++) {
        if (read_corners(field_of(fill), boxes->corners[i], boxes->width, boxes->height) < 0) {
            status = stk_fail(fill->error, STOKER_ERROR_CORRUPT,
                              "a box ends before it begins, or is not a number",
                              "check the format of the boxes: xyxy, xywh or cxcywh", "box %llu",
                              (unsigned long long)i);
        }
    }
    return status;
}

/* Reads the boxes, and transforms them like the image. */
static int transform_boxes(const struct stk_fill *fill, const struct stk_value *value,
                           struct box_list *list)
{
    const struct stk_loader_field *field = field_of(fill);
    const struct stk_transform_plan *plan = fill->pending->loader->fields[field->image_field].plan;
    uint64_t key = stk_fill_value_key(fill->pending, fill->slot, field->image_field);
    struct stk_image_boxes *boxes = &list->boxes;
    int status =
        stk_image_decode_sides(plan, fill->image, &boxes->width, &boxes->height, fill->error);

    status = status < 0 ? status : read_boxes(fill, value, boxes);
    status = status < 0 ? status : stk_image_boxes_transform(plan, key, boxes, fill->error);
    for (uint64_t i = 0; i < boxes->count && status == 0; i++) {
        boxes->is_visible[i] = boxes->is_visible[i] || field->keep_empty;
        list->visible_count += boxes->is_visible[i];
    }
    return status;
}

static int fill_boxes(const struct stk_fill *fill, const struct stk_value *value)
{
    struct box_list list = {0};
    struct stk_ragged_value *ragged;
    float *out;
    int status = transform_boxes(fill, value, &list);

    status =
        status < 0 ? status : ragged_alloc(fill, list.visible_count * 4 * sizeof *out, &ragged);
    if (status == 0) {
        out = (float *)(void *)ragged->data;
        for (uint64_t i = 0; i < list.boxes.count; i++) {
            for (int side = 0; list.boxes.is_visible[i] && side < 4; side++) {
                *out++ = (float)list.boxes.corners[i][side];
            }
        }
    }
    box_list_free(&list);
    return status;
}

/* Copies the labels of the visible boxes. `value` is a list with one label for each box. */
static int select_labels(const struct stk_fill *fill, const struct box_list *list,
                         const struct stk_value *value)
{
    struct stk_value_shape shape;
    struct stk_ragged_value *ragged;
    int64_t *all, *out;
    int status = stk_value_get_shape(value, &shape, fill->error);

    if (status < 0) {
        return status;
    }
    if (shape.rank != 1 || shape.count != list->boxes.count) {
        return stk_fail(fill->error, STOKER_ERROR_FORMAT, "the numbers of boxes and labels differ",
                        "use a path to one label per box", "%llu labels, %llu boxes",
                        (unsigned long long)shape.count, (unsigned long long)list->boxes.count);
    }
    all = stk_alloc(list->boxes.count, sizeof *all);
    if (!all) {
        return stk_fail(fill->error, -ENOMEM, "cannot read labels", "free memory", "%llu labels",
                        (unsigned long long)list->boxes.count);
    }
    status = stk_value_copy(value, &shape, STOKER_INT64, all, fill->error);
    status = status < 0 ? status : ragged_alloc(fill, list->visible_count * sizeof *out, &ragged);
    if (status == 0) {
        out = (int64_t *)(void *)ragged->data;
        for (uint64_t i = 0; i < list->boxes.count; i++) {
            if (list->boxes.is_visible[i]) {
                *out++ = all[i];
            }
        }
    }
    stk_free(all);
    return status;
}

/* Opens the labels in the boxes' document, or a second array of their npz. Their memory was
 * reserved with the boxes. */
static int open_labels(const struct stk_fill *fill, const struct opened *boxes,
                       struct stk_value *labels)
{
    const char *path = field_of(fill)->labels;

    if (boxes->value.tree) {
        return stk_value_find(&boxes->value, path, labels, fill->error);
    }
    return boxes->job.second_path
               ? stk_worker_parse_with(fill->worker, &boxes->job, labels, fill->error)
               : stk_value_open(labels, boxes->value.encoding, fill->bytes, path,
                                fill->pending->loader->parse_bytes_max, fill->error);
}

static int fill_labels(const struct stk_fill *fill, const struct opened *boxes)
{
    struct box_list list = {0};
    struct stk_value labels = {0};
    int status = transform_boxes(fill, &boxes->value, &list);

    status = status < 0 ? status : open_labels(fill, boxes, &labels);
    status = status < 0 ? status : select_labels(fill, &list, &labels);
    if (!boxes->value.tree) {
        stk_value_close(&labels);
    }
    box_list_free(&list);
    return status;
}

/* ---- masks ---- */

int stk_fill_value_check_mask(const struct stk_fill *fill)
{
    const struct stk_loader_field *field = field_of(fill);
    const struct stk_loader_field *image = &fill->pending->loader->fields[field->image_field];
    uint32_t width, height, mask_width, mask_height;
    int status = stk_image_decode_sides(image->plan, fill->image, &width, &height, fill->error);

    status = status < 0 ? status
                        : stk_image_decode_sides(field->plan, fill->bytes, &mask_width,
                                                 &mask_height, fill->error);
    if (status == 0 && (width != mask_width || height != mask_height)) {
        status =
            stk_fail(fill->error, STOKER_ERROR_FORMAT, "a mask has another size than its image",
                     "make the mask of the image's size", "mask %ux%u, image %ux%u", mask_width,
                     mask_height, width, height);
    }
    return status;
}

/* ---- all kinds ---- */

static int fill_opened(const struct stk_fill *fill, const struct opened *opened)
{
    const struct stk_value *value = &opened->value;

    switch (field_of(fill)->kind) {
    case STOKER_FIELD_TEXT:
        return fill_text(fill, value);
    case STOKER_FIELD_INT:
        return field_of(fill)->shape.dtype == STOKER_UINT64
                   ? stk_value_uint(value, slot_of(fill), fill->error)
                   : stk_value_int(value, slot_of(fill), fill->error);
    case STOKER_FIELD_FLOAT:
        return stk_value_float(value, slot_of(fill), fill->error);
    case STOKER_FIELD_BOXES:
        return fill_boxes(fill, value);
    case STOKER_FIELD_BOX_LABELS:
        return fill_labels(fill, opened);
    case STOKER_FIELD_JSON:
    case STOKER_FIELD_MSGPACK:
        return stk_value_validate(value, fill->error);
    default:
        return fill_array(fill, value);
    }
}

int stk_fill_value(const struct stk_fill *fill)
{
    uint32_t kind = field_of(fill)->kind;
    struct opened opened;
    int status;

    if (fill->worker->sandbox && (kind == STOKER_FIELD_JSON || kind == STOKER_FIELD_MSGPACK)) {
        return check_sandboxed(fill);
    }
    status = open_value(fill, field_of(fill)->path, &opened);
    if (status == 0) {
        status = fill_opened(fill, &opened);
        close_value(fill, &opened);
    }
    return status;
}
