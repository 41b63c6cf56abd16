/* Reads ranges of tensors, leaf by leaf, and verifies them.
 *
 *   task: 16 leaves --in memory--> read into the caller's buffers, or scratch --.
 *                   --on a disk--> a read in flight, O_DIRECT, into scratch ----+-> hash --> copy
 *
 * Each thread has two tasks: the read of one is in flight while the other is hashed. It is one
 * request: a virtual disk read 1.6 GB/s in requests of 1 MiB and 1.75 GB/s in those of 16 MiB. */
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/options.h"
#include "checkpoint/read/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAF_BYTES ((uint64_t)STK_SAFETENSORS_LEAF_BYTES)
#define TASK_LEAVES (STK_SAFETENSORS_BLOCK_BYTES / STK_SAFETENSORS_LEAF_BYTES)
#define LOCAL_THREADS 8u
#define REMOTE_THREADS 16u
#define COLD_SHARE_MIN 8u /* one page in so many is missing: the disk is read directly */
#define PROVIDE_BYTES ((uint64_t)2 << 20) /* unit of stk_pages_provide */
#define REAP_MS 100u
#define SCRATCH_BYTES (STK_SAFETENSORS_BLOCK_BYTES + (size_t)STK_IO_ALIGN) /* at any offset */
#define OTHER "restore another step, or copy this one again"

/* A range of the buffer of a file. */
struct item {
    uint64_t file, begin, end;
    uint8_t *buffer; /* NULL: only verify */
};

struct stoker_checkpoint_load {
    struct stoker_checkpoint *checkpoint;        /* held; const after open, as the next ones */
    struct item *items;                          /* owned; by file and begin */
    size_t item_count, item_capacity, first_run; /* first_run: of the range that is spread */
    uint64_t bytes;
    struct stk_background_job job;
    _Atomic uint64_t bytes_done;
    struct { /* with job.lock */
        size_t item;
        uint64_t file, leaf; /* leaves of this file below it were given to a thread */
    } locked;
};

/* Consecutive leaves that one thread reads. */
struct task {
    size_t item; /* the first one that touches them */
    uint64_t file, leaf, count;
};

static int by_place(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    if (x->file != y->file) {
        return x->file < y->file ? -1 : 1;
    }
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : 0;
}

/* Returns false if there is no task any more. */
static bool take_task(struct stoker_checkpoint_load *load, struct task *task)
{
    bool found = false;

    pthread_mutex_lock(&load->job.lock);
    while (!found && load->locked.item < load->item_count) {
        const struct item *item = &load->items[load->locked.item];
        uint64_t first, last;

        if (item->file != load->locked.file) {
            load->locked.file = item->file;
            load->locked.leaf = 0;
        }
        first = stk_max(item->begin / LEAF_BYTES, load->locked.leaf);
        if (item->begin == item->end || first > (item->end - 1) / LEAF_BYTES) {
            load->locked.item++;
            continue;
        }
        last = (item->end - 1) / LEAF_BYTES;
        /* Items that begin in these leaves, or directly after them, belong to the task. */
        for (size_t i = load->locked.item + 1;
             i < load->item_count && load->items[i].file == item->file &&
             load->items[i].begin / LEAF_BYTES <= last + 1 && last < first + TASK_LEAVES;
             i++) {
            if (load->items[i].end > load->items[i].begin) {
                last = stk_max(last, (load->items[i].end - 1) / LEAF_BYTES);
            }
        }
        task->item = load->locked.item;
        task->file = item->file;
        task->leaf = first;
        task->count = stk_min(last - first + 1, TASK_LEAVES);
        load->locked.leaf = first + task->count;
        found = true;
    }
    pthread_mutex_unlock(&load->job.lock);
    return found;
}

/* The destination of the bytes of each leaf of a task. */
struct target {
    uint64_t begin, end; /* in the buffer of the file */
    uint8_t *data;
    bool direct; /* data is the buffer of an item, which covers the leaf */
};

static void aim(const struct stoker_checkpoint_load *load, const struct task *task,
                struct target *target, uint64_t leaf, uint8_t *scratch)
{
    const struct stk_safetensors *layout = &load->checkpoint->files[task->file].layout;
    size_t touching = 0;

    target->begin = leaf * LEAF_BYTES;
    target->end = stk_min(target->begin + LEAF_BYTES, layout->buffer_bytes);
    target->data = scratch + (leaf - task->leaf) * LEAF_BYTES;
    target->direct = false;
    for (size_t i = task->item; i < load->item_count && load->items[i].file == task->file &&
                                load->items[i].begin < target->end;
         i++) {
        const struct item *item = &load->items[i];

        if (item->end <= target->begin || item->begin == item->end) {
            continue;
        }
        touching++;
        if (item->buffer && item->begin <= target->begin && item->end >= target->end) {
            target->data = item->buffer + (target->begin - item->begin);
            target->direct = true;
        }
    }
    if (touching > 1 && target->direct) { /* the others need the bytes, too */
        target->data = scratch + (leaf - task->leaf) * LEAF_BYTES;
        target->direct = false;
    }
}

/* A task of a thread, and where its bytes are. */
struct batch {
    struct task task;
    struct target targets[TASK_LEAVES];
    uint8_t *scratch;        /* owned: SCRATCH_BYTES */
    struct stk_read read;    /* of a cold task */
    bool submitted, pending; /* the read: given to the queue; not finished */
    bool active, cold;
};

/* The state of a thread, without its batches. */
struct reader {
    struct stoker_checkpoint_load *load; /* borrowed */
    struct stk_queue *queue;             /* NULL: not needed yet, or there is none */
    struct batch batches[2];
};

/* Reads a task, with as few calls as its targets allow. */
static int read_targets(struct stoker_checkpoint_load *load, const struct task *task,
                        const struct target *targets, struct stoker_error *error)
{
    const struct stk_checkpoint_file *file = &load->checkpoint->files[task->file];
    int status = 0;

    for (uint64_t i = 0, next; status == 0 && i < task->count; i = next) {
        next = i + 1;
        while (next < task->count &&
               targets[next].data == targets[i].data + (targets[next].begin - targets[i].begin)) {
            next++;
        }
        status = stk_checkpoint_read(load->checkpoint, file,
                                     file->layout.header_bytes + targets[i].begin, targets[i].data,
                                     targets[next - 1].end - targets[i].begin, error);
    }
    return status;
}

/* Whether a leaf has a page of zeros in a tensor that had none when it was written. Sets *page_out
 * to it, as an offset of the buffer, and *tensor_out. */
static bool find_hole(const struct stk_checkpoint_file *file, const struct target *target,
                      uint64_t *page_out, const char **tensor_out)
{
    const struct stk_safetensors *layout = &file->layout;

    for (uint64_t i = 0; layout->counts && i < layout->count; i++) {
        const struct stk_safetensor *tensor = &layout->tensors[i];
        uint64_t begin = stk_max(tensor->offset, target->begin);
        uint64_t end = stk_min(tensor->offset + tensor->bytes, target->end);

        if (begin < end && layout->counts[i].zero_pages == 0) {
            *page_out = stk_tensor_zero_page(
                begin, (struct stk_view){target->data + (begin - target->begin), end - begin});
            *tensor_out = tensor->name;
            if (*page_out != UINT64_MAX) {
                return true;
            }
        }
    }
    return false;
}

/* A hole is not detected by a check of lengths: bytes that another program or a file system did not
 * write are 0. */
static int fail_hole(const struct stk_checkpoint_file *file, uint64_t page, const char *tensor,
                     struct stoker_error *error)
{
    uint64_t offset = file->layout.header_bytes + page;

    stk_fail(error, STOKER_ERROR_CORRUPT,
             "the file has a hole: zeros in a tensor that had none when it was saved", OTHER,
             "'%.300s' byte %" PRIu64 ", tensor '%.150s'", file->path, offset, tensor);
    if (error) {
        error->offset = offset;
        snprintf(error->shard, sizeof error->shard, "%s", file->path);
        snprintf(error->key, sizeof error->key, "%s", tensor);
    }
    return STOKER_ERROR_CORRUPT;
}

/* A leaf may hold several small tensors. */
static int fail_leaf(const struct stk_checkpoint_file *file, const struct target *target,
                     struct stoker_error *error)
{
    uint64_t offset = file->layout.header_bytes + target->begin;
    const char *first = stk_checkpoint_tensor_at(file, target->begin);
    const char *last = stk_checkpoint_tensor_at(file, target->end - 1), *holed;
    uint64_t page;

    if (find_hole(file, target, &page, &holed)) {
        return fail_hole(file, page, holed, error);
    }
    stk_fail(error, STOKER_ERROR_CORRUPT, "the data does not match its hash", OTHER,
             "'%.300s' bytes %" PRIu64 " to %" PRIu64 ", tensor '%.150s'%s%.150s%s", file->path,
             offset, offset + (target->end - target->begin), first, first == last ? "" : " to '",
             first == last ? "" : last, first == last ? "" : "'");
    if (error) { /* `where` says it already, and with the last tensor */
        error->offset = offset;
        snprintf(error->shard, sizeof error->shard, "%s", file->path);
        snprintf(error->key, sizeof error->key, "%s", first);
    }
    return STOKER_ERROR_CORRUPT;
}

static int verify_targets(struct stoker_checkpoint_load *load, const struct task *task,
                          const struct target *targets, struct stoker_error *error)
{
    const struct stk_checkpoint_file *file = &load->checkpoint->files[task->file];
    struct stk_sha256_message messages[TASK_LEAVES];
    uint8_t digests[TASK_LEAVES][32];

    if (file->layout.leaf_bytes == 0) {
        return 0; /* the file of another tool, without hashes */
    }
    for (uint64_t i = 0; i < task->count; i++) {
        messages[i] = (struct stk_sha256_message){targets[i].data,
                                                  targets[i].end - targets[i].begin, digests[i]};
    }
    stk_sha256_many(messages, task->count);
    for (uint64_t i = 0; i < task->count; i++) {
        if (memcmp(digests[i], file->layout.leaves + (task->leaf + i) * 32, 32) != 0) {
            return fail_leaf(file, &targets[i], error);
        }
    }
    return 0;
}

static void copy_targets(struct stoker_checkpoint_load *load, const struct task *task,
                         const struct target *targets)
{
    uint64_t end = targets[task->count - 1].end;

    for (size_t i = task->item;
         i < load->item_count && load->items[i].file == task->file && load->items[i].begin < end;
         i++) {
        const struct item *item = &load->items[i];
        uint64_t done = 0;

        for (uint64_t leaf = 0; leaf < task->count; leaf++) {
            uint64_t from = stk_max(item->begin, targets[leaf].begin);
            uint64_t to = stk_min(item->end, targets[leaf].end);

            if (from >= to) {
                continue;
            }
            done += to - from;
            if (item->buffer && !targets[leaf].direct) {
                memcpy(item->buffer + (from - item->begin),
                       targets[leaf].data + (from - targets[leaf].begin), to - from);
            }
        }
        atomic_fetch_add_explicit(&load->bytes_done, done, memory_order_relaxed);
    }
}

/* Whether the bytes of a task are on a disk of this machine: several reads in flight, around the
 * page cache, are faster. */
static bool is_cold(const struct stoker_checkpoint_load *load, const struct batch *batch)
{
    const struct stk_checkpoint_file *file = &load->checkpoint->files[batch->task.file];
    uint64_t begin = batch->targets[0].begin, end = batch->targets[batch->task.count - 1].end;
    int64_t missing;

    if (load->checkpoint->place.remote || !file->file) {
        return false;
    }
    missing = stk_io_uncached_bytes(file->file, file->layout.header_bytes + begin, end - begin);
    return missing > 0 && (uint64_t)missing >= (end - begin) / COLD_SHARE_MIN;
}

static void submit(struct reader *reader, struct batch *batch)
{
    if (batch->active && batch->cold && !batch->submitted) {
        batch->submitted =
            stk_io_submit(reader->load->checkpoint->place.io, reader->queue, &batch->read) > 0;
    }
}

/* Starts the read of a batch into its scratch memory. */
static void start_read(struct reader *reader, struct batch *batch)
{
    const struct stk_checkpoint_file *file = &reader->load->checkpoint->files[batch->task.file];
    uint64_t begin = batch->targets[0].begin, end = batch->targets[batch->task.count - 1].end;

    for (uint64_t i = 0; i < batch->task.count; i++) {
        batch->targets[i].direct = false;
    }
    batch->read = (struct stk_read){.file = file->file,
                                    .offset = file->layout.header_bytes + begin,
                                    .buffer = batch->scratch,
                                    .bytes = (uint32_t)(end - begin),
                                    .capacity = SCRATCH_BYTES,
                                    .cancelled = &reader->load->job.stopping,
                                    .owner = batch};
    batch->submitted = false;
    batch->pending = true;
    submit(reader, batch);
}

/* Memory of the caller that was never used costs a page fault for each 4 KiB. Provides the memory
 * of the large ranges of a task in larger units, while its read is in flight. */
static void provide_memory(const struct stoker_checkpoint_load *load, const struct batch *batch)
{
    uint64_t begin = batch->targets[0].begin, end = batch->targets[batch->task.count - 1].end;

    for (size_t i = batch->task.item;
         i < load->item_count && load->items[i].file == batch->task.file &&
         load->items[i].begin < end;
         i++) {
        const struct item *item = &load->items[i];
        uint64_t from = stk_max(item->begin, begin), to = stk_min(item->end, end + PROVIDE_BYTES);

        if (item->buffer && from < to && item->end - item->begin >= 2 * PROVIDE_BYTES) {
            stk_pages_provide(item->buffer + (from - item->begin), to - from);
        }
    }
}

/* Takes a task, and reads it, or starts its read. Leaves the batch inactive if there is none. */
static int start_batch(struct reader *reader, struct batch *batch, struct stoker_error *error)
{
    struct stoker_checkpoint_load *load = reader->load;

    batch->active = !stk_background_job_is_stopping(&load->job) && take_task(load, &batch->task);
    if (!batch->active) {
        return 0;
    }
    for (uint64_t i = 0; i < batch->task.count; i++) {
        aim(load, &batch->task, &batch->targets[i], batch->task.leaf + i, batch->scratch);
    }
    batch->cold = is_cold(load, batch);
    if (batch->cold && !reader->queue &&
        stk_io_queue_open(load->checkpoint->place.io, &reader->queue, NULL) < 0) {
        batch->cold = false; /* reads that wait need no queue */
    }
    if (batch->cold) {
        start_read(reader, batch);
    }
    provide_memory(load, batch);
    return batch->cold ? 0 : read_targets(load, &batch->task, batch->targets, error);
}

/* Reads each leaf of a task alone, so that an error names the tensor. */
static int read_leaves(struct reader *reader, struct batch *batch, struct stoker_error *error)
{
    const struct stk_checkpoint_file *file = &reader->load->checkpoint->files[batch->task.file];
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < batch->task.count; i++) {
        struct target *target = &batch->targets[i];

        target->data = batch->scratch + (target->begin - batch->targets[0].begin);
        status = stk_checkpoint_read(reader->load->checkpoint, file,
                                     file->layout.header_bytes + target->begin, target->data,
                                     target->end - target->begin, error);
    }
    return status;
}

/* Waits for the read of a batch. That of the other one ends meanwhile, too. */
static int finish_read(struct reader *reader, struct batch *batch, struct stoker_error *error)
{
    const struct stk_checkpoint_file *file = &reader->load->checkpoint->files[batch->task.file];
    const struct stk_read *read = &batch->read;

    while (batch->pending) {
        struct stk_read *list =
            stk_io_reap(reader->load->checkpoint->place.io, reader->queue, REAP_MS);

        for (; list; list = list->next) {
            ((struct batch *)list->owner)->pending = false;
        }
        submit(reader, &reader->batches[0]);
        submit(reader, &reader->batches[1]);
    }
    if (read->result == -EIO || (read->result >= 0 && read->result < (int64_t)read->bytes)) {
        return read_leaves(reader, batch, error);
    }
    if (read->result < 0) {
        int status = stk_io_fail_read(file->file, read->result,
                                      "cannot read the file of a checkpoint", error);

        stk_error_set_location(error, file->path, read->offset,
                               stk_checkpoint_tensor_at(file, batch->targets[0].begin));
        return status;
    }
    for (uint64_t i = 0; i < batch->task.count; i++) {
        batch->targets[i].data =
            batch->scratch + read->skip + (batch->targets[i].begin - batch->targets[0].begin);
    }
    return 0;
}

static int finish_batch(struct reader *reader, struct batch *batch, struct stoker_error *error)
{
    int status = batch->cold ? finish_read(reader, batch, error) : 0;

    status =
        status < 0 ? status : verify_targets(reader->load, &batch->task, batch->targets, error);
    if (status == 0) {
        copy_targets(reader->load, &batch->task, batch->targets);
    }
    batch->active = false;
    return status;
}

static int read_tasks(struct reader *reader, struct stoker_error *error)
{
    uint32_t now = 0;
    int status = start_batch(reader, &reader->batches[0], error);

    while (status == 0 && reader->batches[now].active) {
        status = start_batch(reader, &reader->batches[!now], error);
        status = status < 0 ? status : finish_batch(reader, &reader->batches[now], error);
        now = !now;
    }
    return status;
}

/* Ends reads in flight. Memory that the kernel may still write into is never freed. */
static void close_reader(struct reader *reader)
{
    bool leaked = false;

    if (reader->queue) {
        stk_io_queue_close(reader->load->checkpoint->place.io, reader->queue);
    }
    for (uint32_t i = 0; i < 2; i++) {
        struct batch *batch = &reader->batches[i];

        leaked = leaked || (batch->cold && batch->read.leaked);
        if (batch->scratch && !leaked) {
            stk_pages_free(batch->scratch, SCRATCH_BYTES);
        }
    }
    stk_free(reader);
}

static int run(void *context, uint32_t thread, struct stoker_error *error)
{
    struct stoker_checkpoint_load *load = context;
    struct reader *reader = stk_alloc(1, sizeof *reader);
    int status = reader ? 0 : stk_fail_memory(error, "a block of a checkpoint");

    (void)thread;
    stk_io_set_cancel_flag(&load->job.stopping);
    for (uint32_t i = 0; status == 0 && i < 2; i++) {
        reader->load = load;
        reader->batches[i].scratch = stk_pages_alloc_huge(SCRATCH_BYTES);
        status = reader->batches[i].scratch ? 0 : stk_fail_memory(error, "a block of a checkpoint");
    }
    status = status < 0 ? status : read_tasks(reader, error);
    if (reader) {
        close_reader(reader);
    }
    stk_io_set_cancel_flag(NULL);
    if (status < 0) { /* the other threads stop, too */
        pthread_mutex_lock(&load->job.lock);
        load->locked.item = load->item_count;
        pthread_mutex_unlock(&load->job.lock);
    }
    return status;
}

/* Room for items: of a checkpoint of another tool, a range is many of them. */
static int add_item(struct stoker_checkpoint_load *load, struct item item,
                    struct stoker_error *error)
{
    if (load->item_count == load->item_capacity) {
        size_t wanted = load->item_capacity * 2 + 64;
        struct item *grown =
            stk_realloc(load->items, load->item_capacity, wanted, sizeof *load->items);

        if (!grown) {
            return stk_fail_memory(error, "ranges of a checkpoint");
        }
        load->items = grown;
        load->item_capacity = wanted;
    }
    load->items[load->item_count++] = item;
    return 0;
}

/* The runs of a range of a tensor of another tool. */
struct spread {
    struct stoker_checkpoint_load *load;
    const struct stoker_checkpoint_range *range;
    struct stoker_error *error;
};

static int add_run(void *context, const struct stk_foreign_run *run)
{
    const struct spread *spread = context;
    uint8_t *buffer = spread->range->buffer;

    if (spread->load->item_count - spread->load->first_run >= STK_FOREIGN_RUNS_MAX) {
        return STOKER_ERROR_LIMIT;
    }
    return add_item(spread->load,
                    (struct item){run->file, run->offset, run->offset + run->bytes,
                                  buffer ? buffer + (run->at - spread->range->offset) : NULL},
                    spread->error);
}

static int spread_range(struct stoker_checkpoint_load *load,
                        const struct stoker_checkpoint_range *range, struct stoker_error *error)
{
    const struct stk_foreign_tensor *tensor = &load->checkpoint->foreign.tensors[range->tensor];
    struct spread spread = {load, range, error};
    int status =
        stk_foreign_runs(tensor, range->offset, range->offset + range->bytes, add_run, &spread);

    return status != STOKER_ERROR_LIMIT
               ? status
               : stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                          "the tensor is a view with too many separate parts",
                          "save it with .contiguous()", "tensor '%.300s'", tensor->name);
}

static int make_items(struct stoker_checkpoint_load *load,
                      const struct stoker_checkpoint_range *ranges, size_t count,
                      struct stoker_error *error)
{
    const struct stoker_checkpoint *checkpoint = load->checkpoint;

    load->item_capacity = count + 1;
    load->items = stk_alloc(load->item_capacity, sizeof *load->items);
    if (!load->items) {
        return stk_fail_memory(error, "ranges of a checkpoint");
    }
    for (size_t i = 0; i < count; i++) {
        struct stoker_checkpoint_tensor_info info = {.struct_size = sizeof info};
        uint64_t end;
        int status = stoker_checkpoint_tensor(checkpoint, ranges[i].tensor, &info, error);

        if (status < 0) {
            return status;
        }
        if (!stk_add(ranges[i].offset, ranges[i].bytes, &end) || end > info.bytes) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "the range is outside of the tensor",
                            "use ranges within its bytes", "tensor '%.200s' of %" PRIu64 " bytes",
                            info.name, info.bytes);
        }
        if (checkpoint->foreign.count > 0) {
            load->first_run = load->item_count;
            status = spread_range(load, &ranges[i], error);
        } else {
            const struct stk_checkpoint_file *file = &checkpoint->files[info.file];
            uint64_t at = file->layout.tensors[ranges[i].tensor - file->first_tensor].offset;

            status = add_item(
                load, (struct item){info.file, at + ranges[i].offset, at + end, ranges[i].buffer},
                error);
        }
        if (status < 0) {
            return status;
        }
        load->bytes += ranges[i].bytes;
    }
    qsort(load->items, load->item_count, sizeof *load->items, by_place);
    return 0;
}

static void load_free(struct stoker_checkpoint_load *load)
{
    stk_free(load->items);
    stk_background_job_deinit(&load->job);
    stk_checkpoint_release(load->checkpoint);
    stk_free(load);
}

int stoker_checkpoint_load_open(struct stoker_checkpoint_load **load_out,
                                struct stoker_checkpoint *checkpoint,
                                const struct stoker_checkpoint_range *ranges, size_t range_count,
                                struct stoker_error *error)
{
    struct stoker_checkpoint_load *load;
    int status = stk_engine_check(checkpoint->engine, error);

    if (status < 0) {
        return status;
    }
    load = stk_alloc(1, sizeof *load);
    if (!load) {
        return stk_fail_memory(error, "load of a checkpoint");
    }
    load->checkpoint = checkpoint;
    load->locked.file = UINT64_MAX;
    atomic_fetch_add(&checkpoint->references, 1);
    stk_background_job_init(&load->job, checkpoint->engine);
    status = stk_checkpoint_need_ranges(checkpoint, ranges, range_count, error);
    status = status < 0 ? status : make_items(load, ranges, range_count, error);
    if (status == 0) {
        uint32_t threads = checkpoint->place.remote
                               ? REMOTE_THREADS
                               : (uint32_t)stk_min(checkpoint->engine->cores, LOCAL_THREADS);

        threads = (uint32_t)stk_min(threads, load->bytes / STK_SAFETENSORS_BLOCK_BYTES + 1);
        status = stk_background_job_start(
            &load->job,
            &(struct stk_background_job_options){.name = "load of a checkpoint",
                                                 .thread_name = "stoker-ckpt",
                                                 .context = load,
                                                 .run = run,
                                                 .threads = threads,
                                                 .threads_min = 1},
            error);
    }
    if (status < 0) {
        load_free(load);
        return status;
    }
    *load_out = load;
    return 0;
}

int stoker_checkpoint_load_next(struct stoker_checkpoint_load *load, uint32_t timeout_ms,
                                struct stoker_checkpoint_progress *progress,
                                struct stoker_error *error)
{
    struct stoker_checkpoint_progress full = {.files = load->checkpoint->file_count,
                                              .bytes = load->bytes};
    int status;

    if (progress) {
        status = stk_options_check_output(progress, sizeof full, sizeof full.struct_size,
                                          "progress", error);
        if (status < 0) {
            return status;
        }
    }
    status = stk_background_job_next(&load->job, timeout_ms, NULL, NULL, error);
    full.bytes_done = atomic_load_explicit(&load->bytes_done, memory_order_relaxed);
    full.files_done = status == STK_BACKGROUND_JOB_FINISHED ? full.files : 0;
    full.run_ns = stk_background_job_elapsed_ns(&load->job);
    if (progress) {
        (void)stk_options_write_output(progress, &full, sizeof full, "progress", NULL);
    }
    return status > 0 ? 1 : status;
}

void stoker_checkpoint_load_close(struct stoker_checkpoint_load *load)
{
    if (load && stk_background_job_end(&load->job)) {
        load_free(load);
    }
}
