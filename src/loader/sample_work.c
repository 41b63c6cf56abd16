/* The work of one slot: find the members, read, decode into the batch, substitute what is
 * damaged. */
#include "base/mem.h"
#include "base/random.h"
#include "base/retry.h"
#include "decode/jpeg_index/jpeg_index.h"
#include "format/compress/decompress.h"
#include "format/value/value.h"
#include "loader/fetcher.h"
#include "loader/fill_value.h"
#include "loader/quarantine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES_MAX 64u /* text of a label or a float */

/* A sample's members as the loader's fields want them. */
struct parts {
    struct stk_sample sample;
    struct stk_member members[STK_BATCH_FIELDS_MAX];
    struct stk_view views[STK_BATCH_FIELDS_MAX];
    bool found[STK_BATCH_FIELDS_MAX];
    bool whole; /* a file of a folder, its size not in the index */
    bool told;  /* by a foreign index: headers are read, too, and compared */
    uint64_t headers[STK_BATCH_FIELDS_MAX]; /* where they begin */
    bool damaged;                           /* the index is, here */
};

/* One slot with all that its work needs. */
struct task {
    struct stk_pending_batch *pending;
    struct stk_worker *worker;
    struct stk_loader_counters *counters;
    uint32_t slot;
    uint64_t sample;
    bool substitute;              /* an attempt to replace what was damaged */
    bool drawn;                   /* another draw of the sample may be fine */
    struct stk_parse_cache parse; /* while it is filled */
    struct stoker_error error;
};

static int fill(struct task *task, struct parts *parts);
static void substitute(struct task *task);

static bool wants_member(const struct stoker_loader *loader, const struct stk_loader_field *field,
                         const struct stk_sample *sample)
{
    switch (field->kind) {
    case STOKER_FIELD_KEY:
    case STOKER_FIELD_SAMPLE:
        return false;
    case STOKER_FIELD_LABEL:
        return !stk_index_is_file(loader->dataset->index, sample->shard);
    default:
        return true;
    }
}

/* The member whose extension the field likes best; a field without wishes takes the first. */
static bool find_member(const struct stoker_loader *loader, const struct stk_loader_field *field,
                        const struct stk_sample *sample, struct stk_member *member_out,
                        uint32_t *number_out, bool *damaged)
{
    const struct stk_index *index = loader->dataset->index;
    uint32_t best = UINT32_MAX;
    uint32_t count = (uint32_t)stk_min(sample->member_count, STK_SAMPLE_MEMBERS_MAX);

    for (uint32_t i = 0; i < count && best > 0; i++) {
        struct stk_member member;

        if (stk_index_member(index, sample, i, &member, NULL) < 0) {
            *damaged = true;
            return false;
        }
        if (field->extension_count == 0) {
            *member_out = member;
            *number_out = i;
            return true;
        }
        for (uint32_t e = 0; e < field->extension_count && e < best; e++) {
            if (field->extensions[e] == member.extension) {
                best = e;
                *member_out = member;
                *number_out = i;
            }
        }
    }
    return best != UINT32_MAX;
}

static void find_parts(const struct stoker_loader *loader, uint64_t sample, struct parts *parts,
                       struct stk_sample_span *span)
{
    const struct stk_index *index = loader->dataset->index;
    uint64_t first = UINT64_MAX, end = 0, sum = 0;

    parts->sample = (struct stk_sample){0};
    parts->damaged = stk_index_sample(loader->dataset->index, sample, &parts->sample, NULL) < 0;
    parts->whole = false;
    parts->told = !parts->damaged && stk_index_shard_is_unverified(index, parts->sample.shard);
    for (uint32_t f = 0; f < loader->field_count; f++) {
        const struct stk_loader_field *field = &loader->fields[f];
        uint32_t number;

        parts->found[f] = !parts->damaged && wants_member(loader, field, &parts->sample) &&
                          find_member(loader, field, &parts->sample, &parts->members[f], &number,
                                      &parts->damaged);
        if (!parts->found[f]) {
            continue;
        }
        parts->headers[f] = parts->members[f].offset;
        if (parts->told && stk_foreign_index_header_offset(index, &parts->sample, sample, number,
                                                           &parts->headers[f], NULL) < 0) {
            parts->damaged = true;
        }
        parts->whole = parts->whole || parts->members[f].bytes == STK_ENTIRE_OBJECT;
        first = stk_min(first, parts->headers[f]);
        if (parts->members[f].bytes != STK_ENTIRE_OBJECT) {
            end = stk_max(end, parts->members[f].offset + parts->members[f].bytes);
            sum += parts->members[f].bytes;
        }
    }
    memset(span, 0, sizeof *span);
    span->shard = parts->sample.shard;
    if (parts->whole) {
        span->bytes = STK_ENTIRE_OBJECT;
    } else if (first != UINT64_MAX) {
        span->offset = first;
        span->bytes = end - first;
        span->scattered = span->bytes > sum + STK_SAMPLE_SPAN_GAP_BYTES;
    }
}

void stk_sample_span_find(const struct stoker_loader *loader, uint64_t sample,
                          struct stk_sample_span *span_out)
{
    struct parts parts;

    find_parts(loader, sample, &parts, span_out);
}

uint64_t stk_sample_value_bytes(struct stoker_loader *loader, const struct stk_loader_field *field,
                                uint64_t sample)
{
    struct stk_sample found;
    struct stk_member member;
    struct stk_stat about;
    char path[STK_PATH_BYTES_MAX];
    uint32_t number;
    bool damaged = false;

    /* What fails here fails again where the sample is read, and is told there. */
    if (stk_index_sample(loader->dataset->index, sample, &found, NULL) < 0 ||
        !find_member(loader, field, &found, &member, &number, &damaged)) {
        return 0;
    }
    if (member.bytes != STK_ENTIRE_OBJECT) {
        return member.bytes;
    }
    if (stk_index_path(loader->dataset->index, member.shard, path, NULL) < 0 ||
        stk_io_stat_path(loader->engine->io, path, &about, NULL) < 0) {
        return 0;
    }
    return about.bytes;
}

/* A page of the index turned out damaged: the look-up again, for its error. */
static int fail_damaged(struct task *task)
{
    const struct stk_index *index = task->pending->loader->dataset->index;
    struct stk_sample sample;
    struct stk_member member;
    int status = stk_index_sample(index, task->sample, &sample, &task->error);

    for (uint32_t i = 0; status == 0 && i < sample.member_count; i++) {
        status = stk_index_member(index, &sample, i, &member, &task->error);
    }
    /* An index that is not what was written is no damage in the data: it is never skipped. */
    if (status == STOKER_ERROR_CORRUPT) {
        task->error.status = status = STOKER_ERROR_CHANGED;
    }
    return status;
}

/* The sample that an error is about: its shard and key. */
static void place_error(struct task *task, const struct parts *parts, uint64_t offset)
{
    char key[sizeof task->error.key];

    snprintf(key, sizeof key, "%.*s", (int)stk_min(parts->sample.key.bytes, sizeof key - 1),
             (const char *)parts->sample.key.data);
    stk_dataset_error_add_location(task->pending->loader->dataset, &task->error,
                                   parts->sample.shard, offset, key);
}

/* ---- reading ---- */

static int read_failed(struct task *task, struct stk_file *file, const struct stk_sample_span *span,
                       int64_t got)
{
    if (got < 0) {
        return stk_io_fail_read(task->pending->loader->engine->io, file, got,
                                "cannot read a sample", &task->error);
    }
    stk_fail(&task->error, STOKER_ERROR_TRUNCATED, "the file ends inside a sample",
             "the file changed after it was indexed: fetch it again", "%lld of %llu bytes",
             (long long)got, (unsigned long long)span->bytes);
    return STOKER_ERROR_TRUNCATED;
}

/* Where a span's bytes shall go: straight to the slot when they are one value and nothing else
 * (so that raw bytes are copied once), else to the worker's scratch. */
static uint8_t *span_buffer(struct task *task, const struct parts *parts, uint64_t bytes)
{
    const struct stoker_loader *loader = task->pending->loader;
    struct stoker_batch *batch = task->pending->batch;
    uint32_t only = UINT32_MAX;

    for (uint32_t f = 0; f < loader->field_count; f++) {
        if (parts->found[f]) {
            only = only == UINT32_MAX ? f : STK_BATCH_FIELDS_MAX;
        }
    }
    if (only < STK_BATCH_FIELDS_MAX && loader->fields[only].kind == STOKER_FIELD_BYTES) {
        const uint64_t *offsets = batch->fields[only].offsets;
        if (offsets[task->slot + 1] - offsets[task->slot] == bytes) {
            return batch->fields[only].data + offsets[task->slot];
        }
    }
    return stk_worker_scratch(task->worker, bytes, &task->error);
}

/* The span to where it shall go. -EAGAIN when it is cold and shall not be waited for. */
static int read_span(struct task *task, const struct parts *parts, struct stk_sample_span *span,
                     bool wait, struct stk_view *view)
{
    struct stk_worker *worker = task->worker;
    struct stoker_dataset *dataset = task->pending->loader->dataset;
    struct stk_io *io = worker->engine->io;
    struct stk_file *file;
    struct stk_stat about;
    uint8_t *room;
    int64_t got;
    int status = stk_dataset_pin(dataset, span->shard, &file, &task->error);

    if (status < 0) {
        return status;
    }
    if (span->bytes == STK_ENTIRE_OBJECT) {
        status = stk_io_stat_file(io, file, &about, &task->error);
        span->bytes = status < 0 ? 0 : about.bytes;
    }
    room = status < 0 ? NULL : span_buffer(task, parts, span->bytes);
    if (!room) {
        status = task->error.status;
        goto done;
    }
    got = stk_io_read_now(io, file, span->offset, room, span->bytes);
    if (got < 0 || (uint64_t)got < span->bytes) {
        if (!wait) {
            status = -EAGAIN;
            goto done;
        }
        got = stk_io_read_wait(io, file, span->offset, room, span->bytes);
    }
    if (got < 0 || (uint64_t)got < span->bytes) {
        status = read_failed(task, file, span, got);
        goto done;
    }
    *view = (struct stk_view){room, span->bytes};
done:
    stk_dataset_unpin(dataset, span->shard, file);
    return status;
}

/* A member that a foreign index told: the headers before it say whether it is the one. */
static int verify_foreign_member(struct task *task, const struct parts *parts, uint32_t f,
                                 const uint8_t *headers)
{
    struct stk_view view = {headers, parts->members[f].offset - parts->headers[f]};

    return !parts->told
               ? 0
               : stk_foreign_index_check(task->pending->loader->dataset->index, view,
                                         parts->sample.key, &parts->members[f], &task->error);
}

static int place_views(struct task *task, struct parts *parts, const struct stk_sample_span *span,
                       struct stk_view bytes)
{
    int status = 0;

    for (uint32_t f = 0; f < task->pending->loader->field_count && status == 0; f++) {
        if (!parts->found[f]) {
            continue;
        }
        if (parts->members[f].bytes == STK_ENTIRE_OBJECT) {
            parts->views[f] = bytes;
        } else {
            status = verify_foreign_member(task, parts, f,
                                           bytes.data + (parts->headers[f] - span->offset));
            parts->views[f] = (struct stk_view){
                bytes.data + (parts->members[f].offset - span->offset), parts->members[f].bytes};
        }
    }
    return status;
}

/* Members far apart: one read each, one after the other in the scratch. */
static int read_scattered(struct task *task, struct parts *parts)
{
    struct stoker_loader *loader = task->pending->loader;
    struct stk_io *io = task->worker->engine->io;
    struct stk_file *file;
    uint64_t sum = 0, at = 0;
    uint8_t *scratch;
    int status;

    for (uint32_t f = 0; f < loader->field_count; f++) {
        sum += parts->found[f] ? parts->members[f].offset - parts->headers[f] : 0;
        sum += parts->found[f] ? parts->members[f].bytes : 0;
    }
    scratch = stk_worker_scratch(task->worker, sum, &task->error);
    if (!scratch) {
        return task->error.status;
    }
    status = stk_dataset_pin(loader->dataset, parts->sample.shard, &file, &task->error);
    if (status < 0) {
        return status;
    }
    for (uint32_t f = 0; f < loader->field_count && status == 0; f++) {
        struct stk_sample_span span = {.shard = parts->sample.shard};
        uint64_t skip;
        int64_t got;

        if (!parts->found[f]) {
            continue;
        }
        skip = parts->members[f].offset - parts->headers[f];
        span.bytes = skip + parts->members[f].bytes;
        got = stk_io_read_wait(io, file, parts->headers[f], scratch + at, span.bytes);
        if (got < 0 || (uint64_t)got < span.bytes) {
            status = read_failed(task, file, &span, got);
        }
        status = status < 0 ? status : verify_foreign_member(task, parts, f, scratch + at);
        parts->views[f] = (struct stk_view){scratch + at + skip, span.bytes - skip};
        at += span.bytes;
    }
    stk_dataset_unpin(loader->dataset, parts->sample.shard, file);
    return status;
}

/* Of a packed shard: by access points, or (a substitute, out of turn) from the shard's start. */
static int read_compressed(struct task *task, const struct stk_sample_span *span,
                           struct stk_view *view)
{
    struct stoker_dataset *dataset = task->pending->loader->dataset;
    uint8_t *scratch = stk_worker_scratch(task->worker, span->bytes, &task->error);
    struct stk_shard_stream *stream;
    size_t got = 0;
    int status;

    if (!scratch) {
        return task->error.status;
    }
    status = stk_shard_stream_open_shard(&stream, dataset, span->shard, &task->error);
    if (status < 0) {
        return status;
    }
    status = stk_shard_stream_read(stream, span->offset, scratch, span->bytes, &got, &task->error);
    stk_shard_stream_close(stream);
    if (status == 0 && got < span->bytes) {
        status = read_failed(task, NULL, span, (int64_t)got);
    }
    *view = (struct stk_view){scratch, span->bytes};
    return status;
}

static int read_parts(struct task *task, struct parts *parts, struct stk_sample_span *span,
                      bool wait)
{
    struct stoker_loader *loader = task->pending->loader;
    uint64_t before = stk_engine_now(loader->engine);
    struct stk_view view = {(const uint8_t *)"", 0};
    bool packed =
        stk_index_shard_compression(loader->dataset->index, span->shard) != STK_COMPRESSION_NONE;
    int status = 0;

    if (parts->damaged) {
        return fail_damaged(task);
    }
    if (span->scattered && !packed) {
        status = wait ? read_scattered(task, parts) : -EAGAIN;
    } else if (span->bytes > 0) {
        status =
            packed ? read_compressed(task, span, &view) : read_span(task, parts, span, wait, &view);
        status = status < 0 ? status : place_views(task, parts, span, view);
    } else {
        status = place_views(task, parts, span, view);
    }
    if (status == 0) {
        task->counters->warm_reads += !wait;
        task->counters->bytes += span->bytes;
    }
    task->counters->read_ns += stk_engine_now(loader->engine) - before;
    return status;
}

/* Reads what failed once more, as often as may help. */
static int retry_read(struct task *task, struct parts *parts, struct stk_sample_span *span,
                      int status)
{
    struct stk_pending_batch *pending = task->pending;
    uint32_t tries = 0;

    while (status < 0 && stk_fetcher_retry_wait(pending, task->worker, status, tries + 1)) {
        tries++;
        task->counters->retries++;
        stk_dataset_reopen_later(pending->loader->dataset, span->shard);
        memset(&task->error, 0, sizeof task->error);
        find_parts(pending->loader, task->sample, parts, span);
        status = read_parts(task, parts, span, true);
    }
    if (status < 0) {
        stk_retry_add_note(&task->error, tries);
        place_error(task, parts, span->offset);
    }
    return status;
}

/* ---- filling ---- */

static int fail_missing(struct task *task, const struct stk_loader_field *field)
{
    return stk_fail(&task->error, STOKER_ERROR_MISSING, "the sample lacks a field",
                    "'stoker ls' shows what it has; name another extension or skip such samples",
                    "no member '%s'", field->requested ? field->requested : "");
}

static int number_text(struct task *task, struct stk_view view, char text[NUMBER_BYTES_MAX + 1])
{
    if (view.bytes == 0 || view.bytes > NUMBER_BYTES_MAX) {
        return stk_fail(&task->error, STOKER_ERROR_CORRUPT, "a number is empty or too long",
                        "look at the member with 'stoker cat'", "%zu bytes", view.bytes);
    }
    memcpy(text, view.data, view.bytes);
    text[view.bytes] = 0;
    return 0;
}

static int fill_number(struct task *task, const struct stk_loader_field *field,
                       struct stk_view view, void *slot)
{
    char text[NUMBER_BYTES_MAX + 1];
    char *end = text;
    int status = number_text(task, view, text);

    if (status < 0) {
        return status;
    }
    errno = 0;
    if (field->kind != STOKER_FIELD_FLOAT) {
        *(int64_t *)slot = strtoll(text, &end, 10);
    } else {
        *(double *)slot = strtod(text, &end);
    }
    while (*end == ' ' || *end == '\n' || *end == '\r' || *end == '\t') {
        end++;
    }
    if (end == text || *end != 0 || errno == ERANGE || end - text != (ptrdiff_t)view.bytes) {
        return stk_fail(&task->error, STOKER_ERROR_CORRUPT, "a member is not a number",
                        "look at it with 'stoker cat', or read it as bytes", "'%.32s'", text);
    }
    return 0;
}

/* What an attempt that failed in a later field left aside: this attempt's value counts. */
static void remove_overrides(struct task *task, uint32_t field)
{
    struct stk_value_override **link = &task->pending->locked.overrides, *gone = NULL;

    stk_engine_lock(task->worker->engine, task->worker);
    while (*link) {
        if ((*link)->field == field && (*link)->slot == task->slot) {
            gone = *link; /* one at most: each attempt begins here */
            *link = gone->next;
            break;
        }
        link = &(*link)->next;
    }
    stk_engine_unlock(task->worker->engine);
    if (gone) {
        stk_budget_release(&task->worker->engine->budget, gone->bytes);
        stk_free(gone->data);
        stk_free(gone);
    }
}

/* The value goes to its planned place; a substitute of another size goes aside. */
static int fill_value(struct task *task, uint32_t field, struct stk_view value)
{
    struct stoker_batch *batch = task->pending->batch;
    uint64_t begin = batch->fields[field].offsets[task->slot];
    uint64_t room = batch->fields[field].offsets[task->slot + 1] - begin;
    struct stk_value_override *override;

    if (task->substitute) {
        remove_overrides(task, field);
    }
    if (value.data == batch->fields[field].data + begin && value.bytes == room) {
        return 0; /* read straight into its place */
    }
    if (value.bytes == room) {
        memcpy(batch->fields[field].data + begin, value.data, value.bytes);
        return 0;
    }
    if (stk_engine_reserve(task->worker->engine, value.bytes, task->pending->memory_wait_ms,
                           "a substitute's value", &task->error) < 0) {
        return task->error.status;
    }
    override = stk_alloc(1, sizeof *override);
    if (override) {
        override->data = stk_alloc(value.bytes, 1);
    }
    if (!override || !override->data) {
        stk_free(override);
        stk_budget_release(&task->worker->engine->budget, value.bytes);
        return stk_fail(&task->error, -ENOMEM, "cannot keep a value", "free memory", "%zu bytes",
                        value.bytes);
    }
    memcpy(override->data, value.data, value.bytes);
    override->bytes = value.bytes;
    override->field = field;
    override->slot = task->slot;
    stk_engine_lock(task->worker->engine, task->worker);
    override->next = task->pending->locked.overrides;
    task->pending->locked.overrides = override;
    stk_engine_unlock(task->worker->engine);
    return 0;
}

/* Entry points of exactly these bytes, if the data set has a JPEG index. A sandboxed decoder does
 * not use them. */
static bool find_entry_points(const struct task *task, struct stk_view bytes,
                              struct stk_jpeg_entry_points *entry_points_out)
{
    struct stk_jpeg_index_entries entries;

    if (task->worker->sandbox) {
        return false;
    }
    entries = stk_dataset_jpeg_entries(task->pending->loader->dataset, task->sample);
    return stk_jpeg_index_find(&entries, bytes, entry_points_out);
}

static int fill_image(struct task *task, uint32_t f, struct stk_view bytes)
{
    struct stoker_loader *loader = task->pending->loader;
    const struct stk_loader_field *field = &loader->fields[f];
    uint64_t key = stk_fill_value_key(task->pending, task->slot, field->image_field);
    struct stk_jpeg_entry_points entry_points;
    bool has_entry_points = find_entry_points(task, bytes, &entry_points);
    struct stk_decode_job job = {
        .plan = field->plan,
        .bytes = bytes,
        .key = key,
        .slot = stk_batch_slot(task->pending->batch, f, field->shape.slot_bytes, task->slot),
        .cancelled = &task->pending->cancelled,
        .wait_ms = task->pending->memory_wait_ms,
        .entry_points = has_entry_points ? &entry_points : NULL};
    int status = stk_worker_decode(task->worker, &job, &task->error);

    task->drawn = field->random && status < 0; /* damage outside a crop is not met */
    return status;
}

/* A value that lies inside its member, that follows an image, or whose inside is checked. */
static int fill_inside(struct task *task, const struct parts *parts, uint32_t f)
{
    struct stoker_loader *loader = task->pending->loader;
    const struct stk_loader_field *field = &loader->fields[f];
    bool follows = field->kind == STOKER_FIELD_MASK || field->kind == STOKER_FIELD_BOXES ||
                   field->kind == STOKER_FIELD_BOX_LABELS;
    struct stk_fill fill = {
        .pending = task->pending,
        .worker = task->worker,
        .slot = task->slot,
        .field = f,
        .bytes = parts->views[f],
        .extension = stk_index_extension(loader->dataset->index, parts->members[f].extension),
        .parse = &task->parse,
        .error = &task->error,
    };
    int status;

    if (follows) {
        if (!parts->found[field->image_field]) {
            return fail_missing(task, &loader->fields[field->image_field]);
        }
        fill.image = parts->views[field->image_field];
    }
    if (field->kind == STOKER_FIELD_MASK) {
        status = stk_fill_value_check_mask(&fill);
        return status < 0 ? status : fill_image(task, f, fill.bytes);
    }
    status = stk_fill_value(&fill);
    return status == 0 && field->shape.dtype == STOKER_BYTES && !field->out_of_line
               ? fill_value(task, f, fill.bytes) /* it was checked, as a whole */
               : status;
}

static int fill_text(struct task *task, uint32_t f, struct stk_view text)
{
    uint64_t bad;

    if (!stk_utf8_check(text, &bad)) {
        stk_fail(&task->error, STOKER_ERROR_FORMAT, "text is not UTF-8",
                 "save it as UTF-8, or read it as bytes", "byte %llu of the member",
                 (unsigned long long)bad);
        task->error.offset = bad;
        return STOKER_ERROR_FORMAT;
    }
    return fill_value(task, f, text);
}

static int fill_field(struct task *task, struct parts *parts, uint32_t f)
{
    struct stoker_loader *loader = task->pending->loader;
    const struct stk_loader_field *field = &loader->fields[f];
    void *slot = stk_batch_slot(task->pending->batch, f, field->shape.slot_bytes, task->slot);

    if (wants_member(loader, field, &parts->sample) && !parts->found[f]) {
        return fail_missing(task, field);
    }
    if (field->kind == STOKER_FIELD_MASK || stk_fill_value_is_nested(field)) {
        return fill_inside(task, parts, f);
    }
    switch (field->kind) {
    case STOKER_FIELD_IMAGE:
        return fill_image(task, f, parts->views[f]);
    case STOKER_FIELD_LABEL:
        if (!parts->found[f]) { /* a file; of folders put together one may have no classes */
            *(int64_t *)slot = parts->sample.label;
            return parts->sample.label < 0 ? fail_missing(task, field) : 0;
        }
        return fill_number(task, field, parts->views[f], slot);
    case STOKER_FIELD_TEXT:
        return fill_text(task, f, parts->views[f]);
    case STOKER_FIELD_INT:
    case STOKER_FIELD_FLOAT:
        return fill_number(task, field, parts->views[f], slot);
    case STOKER_FIELD_SAMPLE:
        *(int64_t *)slot = (int64_t)task->sample;
        return 0;
    case STOKER_FIELD_KEY:
        return fill_value(task, f, parts->sample.key);
    default:
        return fill_value(task, f, parts->views[f]);
    }
}

static int fill(struct task *task, struct parts *parts)
{
    struct stoker_loader *loader = task->pending->loader;
    uint64_t before = stk_engine_now(loader->engine);
    int status = 0;

    for (uint32_t f = 0; f < loader->field_count && status == 0; f++) {
        status = fill_field(task, parts, f);
        if (status < 0) {
            uint64_t base = parts->found[f] ? parts->members[f].offset : 0;

            /* The decoder's offset counts from the member's begin. */
            if (task->error.offset != STOKER_NO_OFFSET) {
                base += task->error.offset;
                task->error.offset = STOKER_NO_OFFSET;
            }
            place_error(task, parts, base);
        }
    }
    stk_parse_cache_close(&task->parse);
    task->counters->decode_ns += stk_engine_now(loader->engine) - before;
    task->counters->samples += status == 0;
    return status;
}

static bool is_quarantined(struct task *task)
{
    return stk_quarantine_find(task->pending->loader->quarantine, task->sample, &task->error);
}

/* Notes the damage in hand for the quarantine. False: no memory for it, which is the error now. */
static bool note(struct task *task, uint32_t attempt)
{
    struct stk_quarantine_entry finding = {.sample = task->sample,
                                           .slot = task->slot,
                                           .attempt = attempt,
                                           .is_random = task->drawn,
                                           .error = &task->error};
    struct stoker_error failed;

    if (stk_quarantine_add(task->pending, &finding, &failed) == 0) {
        return true;
    }
    task->error = failed;
    return false;
}

/* Ends a task that failed: a substitute, or its error noted in the flight. */
static void fail(struct task *task)
{
    struct stoker_engine *engine = task->worker->engine;

    if (stk_error_is_data(task->error.status) && note(task, 0) &&
        task->pending->loader->on_error == STOKER_ON_ERROR_SKIP) {
        substitute(task);
    }
    if (task->error.status < 0) {
        stk_engine_lock(engine, task->worker);
        stk_pending_batch_fail_locked(task->pending, task->slot, &task->error);
        stk_engine_unlock(engine);
    }
}

/* Another sample (of its source) instead, a function of (seed, epoch, position, attempt). On
 * success the error is cleared. */
static void substitute(struct task *task)
{
    struct stoker_loader *loader = task->pending->loader;
    const struct stk_order_place *place = &task->pending->order_places[task->slot];
    uint64_t key = stk_random_key(stk_random_key(loader->seed, place->epoch), place->position);
    uint64_t sample = task->sample;

    for (uint32_t attempt = 1; attempt <= STK_LOADER_SUBSTITUTES_MAX; attempt++) {
        struct stoker_error first = task->error;
        struct parts parts;
        struct stk_sample_span span;

        task->sample =
            stk_schedule_substitute(&loader->schedule, place->epoch, place->position, sample,
                                    stk_random_key(key, 0x73756273ull << 8 | attempt));
        task->error.status = 0;
        task->substitute = true;
        task->drawn = false;
        if (!is_quarantined(task)) {
            find_parts(loader, task->sample, &parts, &span);
            int status = retry_read(task, &parts, &span, read_parts(task, &parts, &span, true));
            if (status == 0 && fill(task, &parts) == 0) {
                task->error.status = 0;
                task->pending->batch->ids[task->slot] = task->sample;
                task->counters->substituted++;
                return;
            }
        }
        if (!stk_error_is_data(task->error.status) || !note(task, attempt)) {
            return;
        }
        task->error = first;
    }
}

int stk_sample_work_run(struct stk_pending_batch *pending, uint32_t slot, struct stk_worker *worker,
                        bool wait, struct stk_loader_counters *counters,
                        struct stk_sample_span *span_out)
{
    struct task task = {.pending = pending, .worker = worker, .counters = counters, .slot = slot};
    struct parts parts;
    int status;

    task.sample = pending->batch->ids[slot];
    if (is_quarantined(&task)) {
        fail(&task);
        return 0;
    }
    find_parts(pending->loader, task.sample, &parts, span_out);
    status = read_parts(&task, &parts, span_out, wait);
    if (status == -EAGAIN && !wait) {
        return status;
    }
    status = retry_read(&task, &parts, span_out, status);
    status = status < 0 ? status : fill(&task, &parts);
    if (status < 0) {
        fail(&task);
    }
    return 0;
}

void stk_sample_work_finish(struct stk_pending_batch *pending, uint32_t slot,
                            struct stk_worker *worker, struct stk_view bytes,
                            const struct stoker_error *error, struct stk_loader_counters *counters)
{
    struct task task = {.pending = pending, .worker = worker, .counters = counters, .slot = slot};
    struct parts parts;
    struct stk_sample_span span;
    int status;

    task.sample = pending->batch->ids[slot];
    find_parts(pending->loader, task.sample, &parts, &span);
    if (is_quarantined(&task)) {
        status = task.error.status;
    } else if (error) {
        task.error = *error;
        status = retry_read(&task, &parts, &span, error->status);
        status = status < 0 ? status : fill(&task, &parts);
    } else if (span.bytes != STK_ENTIRE_OBJECT && bytes.bytes < span.bytes) {
        status = read_failed(&task, NULL, &span, (int64_t)bytes.bytes);
    } else {
        status = place_views(&task, &parts, &span, bytes);
        counters->bytes += bytes.bytes;
        if (status < 0) {
            place_error(&task, &parts, span.offset);
        }
        status = status < 0 ? status : fill(&task, &parts);
    }
    if (status < 0) {
        place_error(&task, &parts, span.offset);
        fail(&task);
    }
}
