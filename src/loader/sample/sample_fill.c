/* Fills the fields of a slot: one function for each kind of field. */
#include "loader/sample/sample_fill.h"

#include "base/mem.h"
#include "base/text/parse_number.h"
#include "base/text/utf8.h"
#include "decode/jpeg_index/jpeg_index.h"
#include "loader/pending/value_override.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 64u /* text of a label or a float */

/* ---- what the functions share ---- */

static const struct stk_loader_field *field_of(const struct stk_sample_task *task, uint32_t f)
{
    return &task->pending->loader->fields[f];
}

static void *slot_of(const struct stk_sample_task *task, uint32_t f)
{
    return stk_batch_slot(task->pending->batch, f, field_of(task, f)->shape.slot_bytes, task->slot);
}

/* The extensions that the sample has. */
static void list_members(const struct stk_sample_task *task, char *text, size_t capacity)
{
    const struct stk_index *index = task->pending->loader->dataset->index;
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < task->members->sample.member_count; i++) {
        const char *extension;
        struct stk_member member;

        if (stk_index_member(index, &task->members->sample, i, &member, NULL) < 0) {
            return;
        }
        extension = stk_index_extension(index, member.extension);
        if (used + strlen(extension) + 2 > capacity) {
            return;
        }
        used +=
            (size_t)snprintf(text + used, capacity - used, "%s%s", used > 0 ? " " : "", extension);
    }
}

static int fail_missing(struct stk_sample_task *task, uint32_t f)
{
    const char *requested = field_of(task, f)->requested;
    char found[160];
    int status;

    list_members(task, found, sizeof found);
    status = stk_fail(&task->error, STOKER_ERROR_MISSING, "the sample lacks a field",
                      "give the field a default=, or choose the samples that have it with subset=",
                      "no member '%.100s'; it has: %s", requested ? requested : "", found);
    if (requested && strcspn(requested, " ,") <= 40) {
        snprintf(task->error.advice, sizeof task->error.advice,
                 "give the field a default=, or choose samples: subset=\"%.*s is not none\"",
                 (int)strcspn(requested, " ,"), requested);
    }
    return status;
}

/* Copies a value of bytes to the space that was planned for it. A value of another size (of a
 * substitute, or of a file that changed) becomes an override. */
static int copy_bytes(struct stk_sample_task *task, uint32_t f, struct stk_view value)
{
    const struct stoker_batch *batch = task->pending->batch;
    uint64_t begin = batch->fields[f].offsets[task->slot];
    uint64_t planned_bytes = batch->fields[f].offsets[task->slot + 1] - begin;

    if (task->is_substitute) {
        /* of an attempt that failed in a later field */
        stk_value_override_remove(task->pending, task->worker, f, task->slot);
    }
    if (value.bytes != planned_bytes) {
        return stk_value_override_add(task->pending, task->worker, f, task->slot, value,
                                      &task->error);
    }
    if (value.data != batch->fields[f].data + begin) { /* else it was read into its slot */
        memcpy(batch->fields[f].data + begin, value.data, value.bytes);
    }
    return 0;
}

/* ---- images ---- */

/* Entry points of exactly these bytes, if the data set has a JPEG index. A sandboxed decoder does
 * not use them. */
static bool find_entry_points(const struct stk_sample_task *task, struct stk_view bytes,
                              struct stk_jpeg_entry_points *entry_points_out)
{
    struct stk_jpeg_index_entries entries;

    if (task->worker->sandbox) {
        return false;
    }
    entries = stk_dataset_jpeg_entries(task->pending->loader->dataset, task->sample);
    return stk_jpeg_index_find(&entries, bytes, entry_points_out);
}

static int fill_image(struct stk_sample_task *task, uint32_t f)
{
    const struct stk_loader_field *field = field_of(task, f);
    struct stk_view bytes = task->members->parts[f].view;
    struct stk_jpeg_entry_points entry_points;
    bool has_entry_points = find_entry_points(task, bytes, &entry_points);
    struct stk_decode_job job = {
        .plan = field->plan,
        .bytes = bytes,
        .key = stk_fill_value_key(task->pending, task->slot, field->image_field),
        .slot = slot_of(task, f),
        .cancelled = &task->pending->cancelled,
        .wait_ms = task->pending->memory_wait_ms,
        .entry_points = has_entry_points ? &entry_points : NULL};
    int status = stk_worker_decode(task->worker, &job, &task->error);

    task->is_random = field->random && status < 0; /* damage outside a crop is not noticed */
    return status;
}

/* ---- values inside a member ---- */

static int init_fill(struct stk_sample_task *task, uint32_t f, struct stk_fill *fill)
{
    const struct stk_loader_field *field = field_of(task, f);
    const struct stk_sample_part *part = &task->members->parts[f];
    bool follows_image = field->kind == STOKER_FIELD_MASK || field->kind == STOKER_FIELD_BOXES ||
                         field->kind == STOKER_FIELD_BOX_LABELS;

    *fill = (struct stk_fill){
        .pending = task->pending,
        .worker = task->worker,
        .slot = task->slot,
        .field = f,
        .bytes = part->view,
        .extension =
            stk_index_extension(task->pending->loader->dataset->index, part->member.extension),
        .parse = &task->parse,
        .error = &task->error,
    };
    if (!follows_image) {
        return 0;
    }
    fill->image = task->members->parts[field->image_field].view;
    return task->members->parts[field->image_field].found ? 0
                                                          : fail_missing(task, field->image_field);
}

/* A value at a path, an array, boxes or their labels. */
static int fill_parsed(struct stk_sample_task *task, uint32_t f)
{
    struct stk_fill fill;
    int status = init_fill(task, f, &fill);

    return status < 0 ? status : stk_fill_value(&fill);
}

/* The bytes of a member that is checked to be a JSON or MessagePack document. */
static int fill_document(struct stk_sample_task *task, uint32_t f)
{
    int status = fill_parsed(task, f);

    return status < 0 ? status : copy_bytes(task, f, task->members->parts[f].view);
}

static int fill_mask(struct stk_sample_task *task, uint32_t f)
{
    struct stk_fill fill;
    int status = init_fill(task, f, &fill);

    status = status < 0 ? status : stk_fill_value_check_mask(&fill);
    return status < 0 ? status : fill_image(task, f);
}

/* ---- numbers and text ---- */

static int copy_number_text(struct stk_sample_task *task, struct stk_view view,
                            char text[NUMBER_BYTES_MAX + 1])
{
    if (view.bytes == 0 || view.bytes > NUMBER_BYTES_MAX) {
        return stk_fail(&task->error, STOKER_ERROR_CORRUPT, "a number is empty or too long",
                        "look at the member with 'stoker cat'", "%zu bytes", view.bytes);
    }
    memcpy(text, view.data, view.bytes);
    text[view.bytes] = 0;
    return 0;
}

static int fill_number(struct stk_sample_task *task, uint32_t f)
{
    struct stk_view view = task->members->parts[f].view;
    char text[NUMBER_BYTES_MAX + 1];
    const char *end = text;
    void *slot = slot_of(task, f);
    bool is_number;
    int status;

    if (field_of(task, f)->path) {
        return fill_parsed(task, f);
    }
    status = copy_number_text(task, view, text);
    if (status < 0) {
        return status;
    }
    if (field_of(task, f)->kind == STOKER_FIELD_FLOAT) {
        is_number = stk_parse_double(text, &end, slot);
    } else if (field_of(task, f)->shape.dtype == STOKER_UINT64) {
        is_number = stk_parse_uint64(text, &end, slot);
    } else {
        is_number = stk_parse_int64(text, &end, slot);
    }
    if (!is_number || !stk_parse_is_end(end, text + view.bytes)) {
        return stk_fail(&task->error, STOKER_ERROR_CORRUPT, "a member is not a number",
                        "look at it with 'stoker cat', or read it as bytes", "'%.32s'", text);
    }
    return 0;
}

/* The number in a member of a tar; the class of a folder's file. A file of several folders that
 * form one data set may have no class. */
static int fill_label(struct stk_sample_task *task, uint32_t f)
{
    int64_t label = task->members->sample.label;

    if (field_of(task, f)->from_path) {
        label = stk_path_classes_label(task->pending->loader->dataset->path_classes,
                                       task->members->sample.key);
    } else if (task->members->parts[f].found) {
        return fill_number(task, f);
    }
    *(int64_t *)slot_of(task, f) = label;
    return label < 0 ? fail_missing(task, f) : 0;
}

static int fill_text(struct stk_sample_task *task, uint32_t f)
{
    struct stk_view text = task->members->parts[f].view;
    uint64_t bad;

    if (field_of(task, f)->path) {
        return fill_parsed(task, f);
    }
    if (!stk_utf8_check(text, &bad)) {
        stk_fail(&task->error, STOKER_ERROR_FORMAT, "text is not UTF-8",
                 "save it as UTF-8, or read it as bytes", "byte %llu of the member",
                 (unsigned long long)bad);
        task->error.offset = bad;
        return STOKER_ERROR_FORMAT;
    }
    return copy_bytes(task, f, text);
}

/* ---- bytes, keys, sample ids ---- */

static int fill_bytes(struct stk_sample_task *task, uint32_t f)
{
    return copy_bytes(task, f, task->members->parts[f].view);
}

static int fill_key(struct stk_sample_task *task, uint32_t f)
{
    return copy_bytes(task, f, task->members->sample.key);
}

static int fill_sample_id(struct stk_sample_task *task, uint32_t f)
{
    *(int64_t *)slot_of(task, f) = (int64_t)task->sample;
    return 0;
}

/* ---- all fields ---- */

static int (*const fill_functions[])(struct stk_sample_task *task, uint32_t f) = {
    [STOKER_FIELD_IMAGE] = fill_image,   [STOKER_FIELD_LABEL] = fill_label,
    [STOKER_FIELD_BYTES] = fill_bytes,   [STOKER_FIELD_KEY] = fill_key,
    [STOKER_FIELD_FLOAT] = fill_number,  [STOKER_FIELD_SAMPLE] = fill_sample_id,
    [STOKER_FIELD_TEXT] = fill_text,     [STOKER_FIELD_INT] = fill_number,
    [STOKER_FIELD_ARRAY] = fill_parsed,  [STOKER_FIELD_MASK] = fill_mask,
    [STOKER_FIELD_BOXES] = fill_parsed,  [STOKER_FIELD_BOX_LABELS] = fill_parsed,
    [STOKER_FIELD_JSON] = fill_document, [STOKER_FIELD_MSGPACK] = fill_document,
};

static int fill_default(struct stk_sample_task *task, uint32_t f)
{
    const struct stk_loader_field *field = field_of(task, f);
    uint8_t *slot;

    if (field->kind == STOKER_FIELD_BYTES || field->kind == STOKER_FIELD_TEXT) {
        return copy_bytes(task, f, field->default_value);
    }
    slot = slot_of(task, f);
    for (uint64_t at = 0; at < field->shape.slot_bytes; at += field->default_value.bytes) {
        memcpy(slot + at, field->default_value.data, field->default_value.bytes);
    }
    return 0;
}

static int fill_field(struct stk_sample_task *task, uint32_t f)
{
    const struct stk_loader_field *field = field_of(task, f);
    int status;

    STK_ASSERT(field->kind < STK_COUNT(fill_functions) && fill_functions[field->kind]);
    if (!task->members->parts[f].found &&
        stk_sample_needs_member(task->pending->loader, field, &task->members->sample)) {
        return field->has_default ? fill_default(task, f) : fail_missing(task, f);
    }
    status = fill_functions[field->kind](task, f);
    if (status == STOKER_ERROR_MISSING && field->has_default) { /* nothing at the path */
        task->error = (struct stoker_error){0};
        status = fill_default(task, f);
    }
    return status;
}

/* Adds the shard, the key and the offset in the shard to the error of a field. */
static void locate_field_error(struct stk_sample_task *task, uint32_t f)
{
    const struct stk_sample_part *part = &task->members->parts[f];
    uint64_t offset = part->found ? part->member.offset : 0;

    /* The offset of a decoder counts from the member's begin. */
    if (task->error.offset != STOKER_NO_OFFSET) {
        offset += task->error.offset;
        task->error.offset = STOKER_NO_OFFSET;
    }
    stk_sample_members_locate_error(task->pending->loader, task->members, offset, &task->error);
}

int stk_sample_fill(struct stk_sample_task *task)
{
    struct stoker_loader *loader = task->pending->loader;
    uint64_t before = task->read_end_ns ? task->read_end_ns : stk_engine_now(loader->engine);
    int status = 0;

    for (uint32_t f = 0; f < loader->field_count && status == 0; f++) {
        status = fill_field(task, f);
        if (status < 0) {
            locate_field_error(task, f);
        }
    }
    stk_parse_cache_close(&task->parse);
    task->counters->decode_ns += stk_engine_now(loader->engine) - before;
    task->counters->samples += status == 0;
    return status;
}
