/* Reads the bytes of a sample. */
#include "loader/sample/sample_read.h"

#include "base/retry.h"
#include "format/compress/decompress.h"
#include "loader/sample/read_retry.h"

#include <errno.h>
#include <string.h>

static int fail_read(struct stk_sample_task *task, struct stk_file *file, uint64_t bytes,
                     int64_t got)
{
    if (got < 0) {
        return stk_io_fail_read(file, got, "cannot read a sample", &task->error);
    }
    stk_fail(&task->error, STOKER_ERROR_TRUNCATED, "the file ends inside a sample",
             "the file changed after it was indexed: fetch it again", "%lld of %llu bytes",
             (long long)got, (unsigned long long)bytes);
    return STOKER_ERROR_TRUNCATED;
}

/* The buffer for a span: the slot itself if the span is one value of bytes and nothing else, so
 * that it is copied once; else the worker's scratch. */
static uint8_t *span_buffer(struct stk_sample_task *task, uint64_t bytes)
{
    const struct stoker_loader *loader = task->pending->loader;
    struct stoker_batch *batch = task->pending->batch;
    uint32_t only = UINT32_MAX;

    for (uint32_t f = 0; f < loader->field_count; f++) {
        if (task->members->parts[f].found) {
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

static int read_span(struct stk_sample_task *task, uint64_t now_ns, bool wait,
                     struct stk_view *view)
{
    struct stk_sample_span *span = &task->members->span;
    struct stoker_dataset *dataset = task->pending->loader->dataset;
    struct stk_file *file;
    struct stk_stat about;
    uint8_t *buffer;
    int64_t got;
    int status = stk_dataset_pin(dataset, span->shard, now_ns, &file, &task->error);

    if (status < 0) {
        return status;
    }
    if (task->members->is_entire_object) {
        status = stk_io_stat_file(file, &about, &task->error);
        span->bytes = status < 0 ? 0 : about.bytes;
    }
    buffer = status < 0 ? NULL : span_buffer(task, span->bytes);
    if (!buffer) {
        status = task->error.status;
        goto done;
    }
    got = stk_io_read_now(file, span->offset, buffer, span->bytes);
    if (got < 0 || (uint64_t)got < span->bytes) {
        if (!wait) {
            status = -EAGAIN;
            goto done;
        }
        got = stk_io_read_wait(file, span->offset, buffer, span->bytes);
    }
    if (got < 0 || (uint64_t)got < span->bytes) {
        status = fail_read(task, file, span->bytes, got);
        goto done;
    }
    *view = (struct stk_view){buffer, span->bytes};
done:
    stk_dataset_unpin(dataset, span->shard, file);
    return status;
}

/* Compares a member of a foreign index with its tar headers, which were read with it. */
static int verify_foreign_member(struct stk_sample_task *task, const struct stk_sample_part *part,
                                 const uint8_t *headers)
{
    struct stk_view view = {headers, part->member.offset - part->header_offset};

    return !task->members->is_unverified
               ? 0
               : stk_foreign_index_check(task->pending->loader->dataset->index, view,
                                         task->members->sample.key, &part->member, &task->error);
}

static int set_views(struct stk_sample_task *task, struct stk_view bytes)
{
    const struct stk_sample_span *span = &task->members->span;
    int status = 0;

    for (uint32_t f = 0; f < task->pending->loader->field_count && status == 0; f++) {
        struct stk_sample_part *part = &task->members->parts[f];

        if (!part->found) {
            continue;
        }
        if (part->member.bytes == STK_ENTIRE_OBJECT) {
            part->view = bytes;
        } else {
            status = verify_foreign_member(task, part,
                                           bytes.data + (part->header_offset - span->offset));
            part->view = (struct stk_view){bytes.data + (part->member.offset - span->offset),
                                           part->member.bytes};
        }
    }
    return status;
}

/* Reads members that lie far apart, each with a read of its own, into the scratch. */
static int read_scattered(struct stk_sample_task *task, uint64_t now_ns)
{
    struct stoker_loader *loader = task->pending->loader;
    uint32_t shard = task->members->sample.shard;
    struct stk_file *file;
    uint64_t sum = 0, at = 0;
    uint8_t *scratch;
    int status;

    for (uint32_t f = 0; f < loader->field_count; f++) {
        const struct stk_sample_part *part = &task->members->parts[f];

        sum += part->found ? part->member.offset - part->header_offset + part->member.bytes : 0;
    }
    scratch = stk_worker_scratch(task->worker, sum, &task->error);
    if (!scratch) {
        return task->error.status;
    }
    status = stk_dataset_pin(loader->dataset, shard, now_ns, &file, &task->error);
    if (status < 0) {
        return status;
    }
    for (uint32_t f = 0; f < loader->field_count && status == 0; f++) {
        struct stk_sample_part *part = &task->members->parts[f];
        uint64_t skip, bytes;
        int64_t got;

        if (!part->found) {
            continue;
        }
        skip = part->member.offset - part->header_offset;
        bytes = skip + part->member.bytes;
        got = stk_io_read_wait(file, part->header_offset, scratch + at, bytes);
        if (got < 0 || (uint64_t)got < bytes) {
            status = fail_read(task, file, bytes, got);
        }
        status = status < 0 ? status : verify_foreign_member(task, part, scratch + at);
        part->view = (struct stk_view){scratch + at + skip, part->member.bytes};
        at += bytes;
    }
    stk_dataset_unpin(loader->dataset, shard, file);
    return status;
}

/* Reads from a compressed shard: by its seek points, or from the shard's start (a substitute, which
 * is not the next sample of the stream). */
static int read_compressed(struct stk_sample_task *task, struct stk_view *view)
{
    const struct stk_sample_span *span = &task->members->span;
    uint8_t *scratch = stk_worker_scratch(task->worker, span->bytes, &task->error);
    struct stk_shard_stream *stream;
    size_t got = 0;
    int status;

    if (!scratch) {
        return task->error.status;
    }
    status =
        stk_dataset_open_stream(&stream, task->pending->loader->dataset, span->shard, &task->error);
    if (status < 0) {
        return status;
    }
    status = stk_shard_stream_read(stream, span->offset, scratch, span->bytes, &got, &task->error);
    stk_shard_stream_close(stream);
    if (status == 0 && got < span->bytes) {
        status = fail_read(task, NULL, span->bytes, (int64_t)got);
    }
    *view = (struct stk_view){scratch, span->bytes};
    return status;
}

int stk_sample_read(struct stk_sample_task *task, bool wait)
{
    struct stoker_loader *loader = task->pending->loader;
    const struct stk_sample_span *span = &task->members->span;
    uint64_t before = stk_engine_now(loader->engine), after;
    struct stk_view view = {(const uint8_t *)"", 0};
    bool is_compressed =
        stk_index_shard_compression(loader->dataset->index, span->shard) != STK_COMPRESSION_NONE;
    int status = 0;

    task->read_end_ns = 0;
    if (task->members->is_index_damaged) {
        return stk_sample_members_fail(loader, task->sample, &task->error);
    }
    if (span->scattered && !is_compressed) {
        status = wait ? read_scattered(task, before) : -EAGAIN;
    } else if (span->bytes > 0) {
        status =
            is_compressed ? read_compressed(task, &view) : read_span(task, before, wait, &view);
        status = status < 0 ? status : set_views(task, view);
    } else {
        status = set_views(task, view);
    }
    if (status == 0) {
        task->counters->warm_reads += !wait;
        task->counters->bytes += span->bytes;
    }
    after = stk_engine_now(loader->engine);
    task->counters->read_ns += after - before;
    task->read_end_ns = status == 0 ? after : 0;
    return status;
}

int stk_sample_read_retry(struct stk_sample_task *task, int status)
{
    struct stoker_loader *loader = task->pending->loader;
    uint32_t tries = 0;

    while (status < 0 && stk_read_retry_wait(task->pending, task->worker, status, tries + 1)) {
        tries++;
        task->counters->retries++;
        stk_dataset_reopen_later(loader->dataset, task->members->span.shard);
        memset(&task->error, 0, sizeof task->error);
        stk_sample_members_find(loader, task->sample, task->members);
        status = stk_sample_read(task, true);
    }
    if (status < 0) {
        stk_retry_add_note(&task->error, tries);
        stk_sample_members_locate_error(loader, task->members, task->members->span.offset,
                                        &task->error);
    }
    return status;
}

int stk_sample_read_set_views(struct stk_sample_task *task, struct stk_view bytes)
{
    const struct stk_sample_members *members = task->members;

    /* A file of a folder is as long as it was when it was read. */
    if (!members->is_entire_object && bytes.bytes < members->span.bytes) {
        return fail_read(task, NULL, members->span.bytes, (int64_t)bytes.bytes);
    }
    task->counters->bytes += bytes.bytes;
    return set_views(task, bytes);
}
