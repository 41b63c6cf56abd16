/* Values inside members: parsed, checked against their field, put into the slot or aside; and what
 * lies aside laid out when the flight's last slot is done. */
#include "loader/fill_value.h"

#include "base/mem.h"
#include "base/random.h"
#include "format/value/value.h"

#include <errno.h>
#include <string.h>

/* A box and its label take 41 bytes here, and at least 4 in a member (an npy of bytes). */
#define BOX_MEMORY_RATIO 11u
/* How often memory for a batch's values is asked for when others were quicker to take it. */
#define GROW_ATTEMPTS 8u
/* While other batches are in flight: what they hold comes free only after this one. */

/* A value with what it holds of the budget. */
struct opened {
    struct stk_value value;
    uint64_t reserved;
    bool lent;                /* by the sample's parsed document */
    struct stk_parse_job job; /* of the helper, where that parsed it */
};

struct box_list {
    struct stk_image_boxes boxes; /* its arrays are owned */
    uint64_t left_count;
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

bool stk_fill_value_is_nested(const struct stk_loader_field *field)
{
    switch (field->kind) {
    case STOKER_FIELD_TEXT:
    case STOKER_FIELD_INT:
    case STOKER_FIELD_FLOAT:
        return field->path != NULL;
    case STOKER_FIELD_ARRAY:
    case STOKER_FIELD_BOXES:
    case STOKER_FIELD_BOX_LABELS:
    case STOKER_FIELD_JSON:
    case STOKER_FIELD_MSGPACK:
        return true;
    default:
        return false;
    }
}

/* ---- opening ---- */

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

/* What opening and using a value takes, at most. */
static int memory_estimate(const struct stk_fill *fill, enum stk_value_encoding encoding,
                           const char *path, uint64_t *ticket_out)
{
    const struct stk_loader_field *field = field_of(fill);
    bool boxes = field->kind == STOKER_FIELD_BOXES;
    bool labels = field->kind == STOKER_FIELD_BOX_LABELS;
    uint64_t ticket, more = 0;
    int status = stk_value_memory_bytes(encoding, fill->bytes, path, &ticket, fill->error);

    if (status == 0 && labels && encoding == STK_VALUE_NPZ) { /* its labels are another array */
        status = stk_value_memory_bytes(encoding, fill->bytes, field->labels, &more, fill->error);
    }
    if (boxes || labels) {
        uint64_t written = encoding == STK_VALUE_NPZ ? ticket : fill->bytes.bytes;

        more += BOX_MEMORY_RATIO * stk_min(written, UINT64_MAX / 32);
    }
    *ticket_out = status < 0 ? 0 : ticket + stk_min(more, UINT64_MAX - ticket);
    return status;
}

/* Documents that take no more are kept until the sample is done. */
static uint64_t shared_bytes_max(const struct stk_fill *fill)
{
    return fill->pending->loader->engine->keep_bytes / (1 + BOX_MEMORY_RATIO);
}

/* By this process: its own code and libraries look into the member. */
static int parse_in_process(const struct stk_fill *fill, enum stk_value_encoding encoding,
                            const char *path, struct opened *opened)
{
    struct stoker_engine *engine = fill->pending->loader->engine;
    bool tree = encoding == STK_VALUE_JSON || encoding == STK_VALUE_MSGPACK;
    uint64_t ticket, bytes_max = fill->pending->loader->parse_bytes_max;
    int status = memory_estimate(fill, encoding, path, &ticket);

    /* What is above bytes_max is refused by name, below: it need not be asked for. */
    if (status == 0 && ticket > engine->keep_bytes && ticket <= bytes_max) {
        status = stk_engine_reserve(engine, ticket, fill->pending->memory_wait_ms,
                                    "reading a large member", fill->error);
        opened->reserved = status < 0 ? 0 : ticket;
    }
    if (status < 0) {
        return status;
    }
    opened->lent = tree && ticket <= shared_bytes_max(fill);
    return stk_value_open(opened->lent ? &fill->parse->value : &opened->value, encoding,
                          fill->bytes, opened->lent ? NULL : path, bytes_max, fill->error);
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

/* By the worker's helper: a document comes back whole, whatever the path. */
static int parse_sandboxed(const struct stk_fill *fill, enum stk_value_encoding encoding,
                           struct opened *opened)
{
    struct stk_value *value = &opened->value;
    int status;

    opened->job = job_of(fill, encoding);
    status = stk_worker_parse(fill->worker, &opened->job, value, fill->error);
    opened->reserved = opened->job.reserved_bytes;
    if (status == 0 && value->tree && opened->reserved == 0) {
        opened->lent = true;
        fill->parse->value = *value;
    } else if (status == 0 && value->tree) {
        status = stk_value_find(value, field_of(fill)->path, value, fill->error);
    }
    return status;
}

/* Of a document that is handed out as it is, only whether it is good. */
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

/* Opens what lies at a path; a document that another field of the sample looked into is not parsed
 * again. Usual members live in what the heap keeps; large ones ask for their memory first, and are
 * closed with their value: nobody waits for memory while he keeps some. */
static int open_value(const struct stk_fill *fill, const char *path, struct opened *opened)
{
    struct stk_parse_cache *parse = fill->parse;
    enum stk_value_encoding encoding = encoding_of(fill);
    bool jailed =
        fill->worker->sandbox && encoding != STK_VALUE_NPY && encoding != STK_VALUE_UNKNOWN;
    int status = 0;

    *opened = (struct opened){0};
    if (!parse->value.tree || parse->value.encoding != encoding ||
        parse->value.bytes.data != fill->bytes.data) {
        stk_parse_cache_close(parse);
        status = jailed ? parse_sandboxed(fill, encoding, opened)
                        : parse_in_process(fill, encoding, path, opened);
    }
    if (status == 0 && parse->value.tree) {
        opened->lent = true;
        status = stk_value_find(&parse->value, path, &opened->value, fill->error);
    }
    if (status < 0) {
        close_value(fill, opened);
    }
    return status;
}

static void close_value(const struct stk_fill *fill, struct opened *opened)
{
    if (!opened->lent) {
        stk_value_close(&opened->value);
    }
    stk_budget_release(&fill->pending->loader->engine->budget, opened->reserved);
    *opened = (struct opened){0};
}

/* ---- pieces ---- */

static struct stk_ragged_value *ragged_value_of(struct stk_pending_batch *pending,
                                                const struct stk_loader_field *field, uint32_t slot)
{
    return &pending->ragged_values[(uint64_t)field->out_of_line_index * pending->samples + slot];
}

static void ragged_value_free(struct stk_pending_batch *pending, struct stk_ragged_value *piece)
{
    if (piece->from_reservation) {
        atomic_fetch_add_explicit(&pending->reserved_left, piece->bytes, memory_order_relaxed);
    } else {
        stk_budget_release(&pending->loader->engine->budget, piece->bytes);
    }
    stk_free(piece->data);
    *piece = (struct stk_ragged_value){0};
}

/* Memory of what the flight was granted when it opened, else of the budget. */
static int ragged_value_reserve(const struct stk_fill *fill, uint64_t bytes, bool *granted_out)
{
    struct stk_pending_batch *pending = fill->pending;
    struct stoker_engine *engine = pending->loader->engine;
    /* Relaxed: it is a count; nobody reads memory because of it. */
    uint64_t left = atomic_load_explicit(&pending->reserved_left, memory_order_relaxed);

    while (left >= bytes &&
           !atomic_compare_exchange_weak_explicit(&pending->reserved_left, &left, left - bytes,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    *granted_out = left >= bytes;
    return *granted_out ? 0
                        : stk_engine_reserve(engine, bytes, fill->pending->memory_wait_ms,
                                             "a value of a sample", fill->error);
}

/* An empty piece of so many bytes in place of what a failed attempt may have left. */
static int value_alloc(const struct stk_fill *fill, uint64_t bytes,
                       struct stk_ragged_value **piece_out)
{
    struct stk_ragged_value *piece = ragged_value_of(fill->pending, field_of(fill), fill->slot);
    bool granted;
    int status;

    *piece_out = piece;
    ragged_value_free(fill->pending, piece);
    if (bytes == 0) {
        return 0;
    }
    status = ragged_value_reserve(fill, bytes, &granted);
    if (status < 0) {
        return status;
    }
    *piece = (struct stk_ragged_value){stk_alloc(bytes, 1), bytes, {0}, granted};
    if (piece->data) {
        return 0;
    }
    ragged_value_free(fill->pending, piece);
    return stk_fail(fill->error, -ENOMEM, "cannot keep a value", "free memory", "%llu bytes",
                    (unsigned long long)bytes);
}

bool stk_ragged_values_estimate(const struct stk_pending_batch *pending, uint64_t *value_bytes)
{
    struct stoker_loader *loader = pending->loader;
    bool known = true;

    for (uint32_t f = 0; f < loader->field_count; f++) {
        if (loader->fields[f].out_of_line) {
            uint64_t most =
                atomic_load_explicit(&loader->out_of_line_bytes[f], memory_order_relaxed);

            known = known && most != UINT64_MAX;
            value_bytes[f] = most == UINT64_MAX ? 0 : most;
        }
    }
    return known;
}

int stk_ragged_values_open(struct stk_pending_batch *pending, const uint64_t *value_bytes,
                           struct stoker_error *error)
{
    struct stoker_loader *loader = pending->loader;
    uint64_t count = (uint64_t)loader->out_of_line_count * pending->samples, sum = 0;
    int status;

    if (count == 0) {
        return 0;
    }
    for (uint32_t f = 0; f < loader->field_count; f++) {
        /* The batch has as much, reserved: the sum cannot wrap. */
        sum += loader->fields[f].out_of_line ? value_bytes[f] + value_bytes[f] / 8 : 0;
    }
    status = stk_engine_reserve(loader->engine, sum, 0, "values of a batch", error);
    if (status < 0) {
        return status;
    }
    pending->reserved_bytes = sum;
    atomic_store_explicit(&pending->reserved_left, sum, memory_order_relaxed);
    pending->ragged_values = stk_alloc(count, sizeof *pending->ragged_values);
    return pending->ragged_values ? 0
                                  : stk_fail(error, -ENOMEM, "cannot open a batch", "free memory",
                                             "%u samples", pending->samples);
}

void stk_ragged_values_close(struct stk_pending_batch *pending)
{
    uint64_t count = (uint64_t)pending->loader->out_of_line_count * pending->samples;

    for (uint64_t i = 0; pending->ragged_values && i < count; i++) {
        ragged_value_free(pending, &pending->ragged_values[i]);
    }
    stk_free(pending->ragged_values);
    pending->ragged_values = NULL;
    stk_budget_release(&pending->loader->engine->budget, pending->reserved_bytes);
    pending->reserved_bytes = 0;
}

/* Room in the batch. What others only keep is given back; else it is waited for, as long as for
 * the memory of a sample. */
static int grow(struct stk_pending_batch *pending, uint32_t f, uint64_t bytes,
                struct stoker_error *error)
{
    struct stoker_engine *engine = pending->loader->engine;
    int status = stk_batch_grow(pending->batch, f, bytes, error);

    for (uint32_t i = 0; i < GROW_ATTEMPTS && status == STOKER_ERROR_BUDGET; i++) {
        uint64_t wanted = stk_batch_buffer_bytes(bytes);

        status =
            stk_engine_reserve(engine, wanted, pending->memory_wait_ms, "values of a batch", error);
        if (status < 0) {
            break;
        }
        stk_budget_release(&engine->budget, wanted);
        status = stk_batch_grow(pending->batch, f, bytes, error);
    }
    return status;
}

static void raise_maximum(_Atomic uint64_t *most, uint64_t bytes)
{
    uint64_t seen = atomic_load_explicit(most, memory_order_relaxed);

    while ((seen == UINT64_MAX || seen < bytes) &&
           !atomic_compare_exchange_weak_explicit(most, &seen, bytes, memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

static int layout_field(struct stk_pending_batch *pending, uint32_t f, struct stoker_error *error)
{
    const struct stk_loader_field *field = &pending->loader->fields[f];
    struct stoker_batch *batch = pending->batch;
    uint64_t row_bytes = stk_batch_field_row_bytes(&field->shape), total = 0;
    uint32_t rank = field->shape.dimension_count;
    int status;

    for (uint32_t slot = 0; slot < pending->samples; slot++) {
        total +=
            ragged_value_of(pending, field, slot)->bytes; /* all of it is reserved: cannot wrap */
    }
    status = grow(pending, f, total, error);
    if (status < 0) {
        return status;
    }
    raise_maximum(&pending->loader->out_of_line_bytes[f], total);
    total = 0;
    batch->fields[f].offsets[0] = 0;
    for (uint32_t slot = 0; slot < pending->samples; slot++) {
        struct stk_ragged_value *piece = ragged_value_of(pending, field, slot);

        if (piece->bytes > 0) {
            memcpy(batch->fields[f].data + total, piece->data, piece->bytes);
        }
        total += piece->bytes;
        batch->fields[f].offsets[slot + 1] = total / row_bytes;
        if (batch->fields[f].sides) {
            memcpy(batch->fields[f].sides + (uint64_t)slot * rank, piece->sides,
                   rank * sizeof *piece->sides);
        }
        ragged_value_free(pending, piece);
    }
    return 0;
}

/* ---- substituted values of members ---- */

/* The value of a slot after substitutions: the last override, else what is in its place. */
static struct stk_view value_of(const struct stk_pending_batch *pending, uint32_t field,
                                uint32_t slot)
{
    const uint64_t *offsets = pending->batch->fields[field].offsets;

    for (struct stk_value_override *it = pending->locked.overrides; it; it = it->next) {
        if (it->field == field && it->slot == slot) {
            return (struct stk_view){it->data, it->bytes};
        }
    }
    return (struct stk_view){pending->batch->fields[field].data + offsets[slot],
                             offsets[slot + 1] - offsets[slot]};
}

/* Values of other sizes came in by substitution: lays a field out anew. */
static int relayout_field(struct stk_pending_batch *pending, uint32_t field,
                          struct stoker_error *error)
{
    struct stoker_engine *engine = pending->loader->engine;
    struct stoker_batch *batch = pending->batch;
    uint64_t total = 0, offset = 0;
    uint8_t *copy;
    uint64_t *offsets;
    int status = 0;

    for (uint32_t slot = 0; slot < pending->samples; slot++) {
        total += value_of(pending, field, slot).bytes;
    }
    status = stk_engine_reserve(engine, total, pending->memory_wait_ms,
                                "laying out substituted values", error);
    if (status < 0) {
        return status;
    }
    copy = stk_alloc(total, 1);
    offsets = stk_alloc(pending->samples + 1u, sizeof *offsets);
    if (!copy || !offsets) {
        status = stk_fail(error, -ENOMEM, "cannot lay out substituted values", "free memory",
                          "%llu bytes", (unsigned long long)total);
        goto done;
    }
    for (uint32_t slot = 0; slot < pending->samples; slot++) {
        struct stk_view value = value_of(pending, field, slot);
        memcpy(copy + offset, value.data, value.bytes);
        offset += value.bytes;
        offsets[slot + 1] = offset;
    }
    status = grow(pending, field, total, error);
    if (status == 0) {
        memcpy(batch->fields[field].data, copy, total);
        memcpy(batch->fields[field].offsets, offsets, (pending->samples + 1u) * sizeof *offsets);
    }
done:
    stk_free(copy);
    stk_free(offsets);
    stk_budget_release(&engine->budget, total);
    return status;
}

int stk_ragged_values_layout(struct stk_pending_batch *pending, struct stoker_error *error)
{
    struct stoker_loader *loader = pending->loader;
    bool touched[STK_BATCH_FIELDS_MAX] = {false};
    int status = 0;

    for (struct stk_value_override *it = pending->locked.overrides; it; it = it->next) {
        touched[it->field] = true;
    }
    for (uint32_t f = 0; f < loader->field_count && status == 0; f++) {
        if (loader->fields[f].out_of_line) {
            status = layout_field(pending, f, error);
        } else if (touched[f]) {
            status = relayout_field(pending, f, error);
        }
    }
    stk_ragged_values_close(pending);
    return status;
}

/* ---- arrays ---- */

static struct stk_value_shape wanted_shape(const struct stk_loader_field *field)
{
    struct stk_value_shape shape = {.rank = field->shape.dimension_count};

    for (uint32_t i = 0; i < shape.rank; i++) {
        shape.sides[i] = (uint64_t)field->shape.shape[i]; /* -1: UINT64_MAX */
    }
    return shape;
}

/* The shape that was found against the field's. An empty list does not say what it would hold. */
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
    struct stk_ragged_value *piece;
    int status = stk_value_get_shape(value, &shape, fill->error);

    status = status < 0 ? status : check_shape(fill, &shape);
    if (status < 0) {
        return status;
    }
    if (!field->out_of_line) {
        return stk_value_copy(value, &shape, field->shape.dtype, slot_of(fill), fill->error);
    }
    status = value_alloc(fill, shape.count * field->shape.item_bytes, &piece);
    if (status < 0) {
        return status;
    }
    memcpy(piece->sides, shape.sides, sizeof piece->sides);
    return stk_value_copy(value, &shape, field->shape.dtype, piece->data, fill->error);
}

static int fill_text(const struct stk_fill *fill, const struct stk_value *value)
{
    struct stk_ragged_value *piece;
    struct stk_view text;
    int status = stk_value_text(value, &text, fill->error);

    status = status < 0 ? status : value_alloc(fill, text.bytes, &piece);
    if (status == 0 && text.bytes > 0) {
        memcpy(piece->data, text.data, text.bytes);
    }
    return status;
}

/* ---- boxes ---- */

static void box_list_free(struct box_list *list)
{
    stk_free(list->boxes.corners);
    stk_free(list->boxes.is_visible);
}

/* Corners in pixels, of whatever the member has. */
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
    /* NaN is not at most anything, and infinity less itself is NaN. */
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
                              "a box ends before it begins, or is no number",
                              "check the format of the boxes: xyxy, xywh or cxcywh", "box %llu",
                              (unsigned long long)i);
        }
    }
    return status;
}

/* Boxes from the member, moved as the image was. */
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
        list->left_count += boxes->is_visible[i];
    }
    return status;
}

static int fill_boxes(const struct stk_fill *fill, const struct stk_value *value)
{
    struct box_list list = {0};
    struct stk_ragged_value *piece;
    float *out;
    int status = transform_boxes(fill, value, &list);

    status = status < 0 ? status : value_alloc(fill, list.left_count * 4 * sizeof *out, &piece);
    if (status == 0) {
        out = (float *)(void *)piece->data;
        for (uint64_t i = 0; i < list.boxes.count; i++) {
            for (int side = 0; list.boxes.is_visible[i] && side < 4; side++) {
                *out++ = (float)list.boxes.corners[i][side];
            }
        }
    }
    box_list_free(&list);
    return status;
}

/* The labels of the boxes that are left: `labels` is one list as long as that of the boxes. */
static int select_labels(const struct stk_fill *fill, const struct box_list *list,
                         const struct stk_value *value)
{
    struct stk_value_shape shape;
    struct stk_ragged_value *piece;
    int64_t *all, *out;
    int status = stk_value_get_shape(value, &shape, fill->error);

    if (status < 0) {
        return status;
    }
    if (shape.rank != 1 || shape.count != list->boxes.count) {
        return stk_fail(fill->error, STOKER_ERROR_FORMAT, "boxes and their labels differ in number",
                        "give a path to one label a box", "%llu labels, %llu boxes",
                        (unsigned long long)shape.count, (unsigned long long)list->boxes.count);
    }
    all = stk_alloc(list->boxes.count, sizeof *all);
    if (!all) {
        return stk_fail(fill->error, -ENOMEM, "cannot read labels", "free memory", "%llu labels",
                        (unsigned long long)list->boxes.count);
    }
    status = stk_value_copy(value, &shape, STOKER_INT64, all, fill->error);
    status = status < 0 ? status : value_alloc(fill, list->left_count * sizeof *out, &piece);
    if (status == 0) {
        out = (int64_t *)(void *)piece->data;
        for (uint64_t i = 0; i < list->boxes.count; i++) {
            if (list->boxes.is_visible[i]) {
                *out++ = all[i];
            }
        }
    }
    stk_free(all);
    return status;
}

/* Of the boxes' document, or another array of their npz: reserved with the boxes. */
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

/* ---- all of them ---- */

static int fill_opened(const struct stk_fill *fill, const struct opened *opened)
{
    const struct stk_value *value = &opened->value;

    switch (field_of(fill)->kind) {
    case STOKER_FIELD_TEXT:
        return fill_text(fill, value);
    case STOKER_FIELD_INT:
        return stk_value_int(value, slot_of(fill), fill->error);
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
