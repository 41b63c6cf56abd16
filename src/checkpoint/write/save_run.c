/* The threads of a save: hash and write blocks; the last one finishes the file. */
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "checkpoint/write/writer.h"

#include <errno.h>
#include <string.h>

#define LEAVES_OF_A_BLOCK (STK_SAFETENSORS_BLOCK_BYTES / STK_SAFETENSORS_LEAF_BYTES)

static bool is_over_locked(const struct stoker_checkpoint_save *save)
{
    return save->job.locked.status < 0 || stk_background_job_is_stopping(&save->job);
}

/* The first thread opens the sink, the others wait. */
static int open_sink(struct stoker_checkpoint_save *save, struct stoker_error *error)
{
    bool mine;
    int status = 0;

    pthread_mutex_lock(&save->job.lock);
    mine = !save->locked.opening;
    save->locked.opening = true;
    while (!mine && !save->locked.opened && !is_over_locked(save)) {
        pthread_cond_wait(&save->work, &save->job.lock);
    }
    pthread_mutex_unlock(&save->job.lock);
    if (!mine) {
        return 0;
    }
    stk_save_call_begin(save, STK_SAVE_OPENS, STK_SAVE_SHARD);
    status = stk_sink_open(&save->sink, error);
    if (status == 0 && save->file_count > 1) {
        stk_earlier_open(save);
    }
    stk_save_call_end();
    pthread_mutex_lock(&save->job.lock);
    if (status < 0) {
        stk_background_job_fail_locked(&save->job, status, error);
    }
    save->locked.opened = true;
    pthread_cond_broadcast(&save->work);
    pthread_mutex_unlock(&save->job.lock);
    return status;
}

/* Whether a thread may take a block. While the caller copies, a core is left to it: the training
 * waits for the copy, but not for the hashes. */
static bool may_take_locked(const struct stoker_checkpoint_save *save)
{
    uint32_t cores = save->writer->engine->cores;

    return save->locked.filled && (save->locked.copied || save->locked.starved ||
                                   save->locked.busy < stk_max(cores, 2) - 1);
}

/* Returns a block; NULL: there is none any more. *finish_out: this thread finishes the file. */
static struct stk_checkpoint_block *take_block(struct stoker_checkpoint_save *save,
                                               bool *finish_out)
{
    uint64_t blocks = save->all_blocks;
    struct stk_checkpoint_block *block = NULL;

    *finish_out = false;
    pthread_mutex_lock(&save->job.lock);
    while (!is_over_locked(save) && !may_take_locked(save) && !save->locked.finishing &&
           !(save->locked.copied && save->locked.blocks_done == blocks)) {
        pthread_cond_wait(&save->work, &save->job.lock);
    }
    if (!is_over_locked(save) && save->locked.filled) {
        block = save->locked.filled;
        save->locked.busy++;
        save->locked.filled = block->next;
        if (!save->locked.filled) {
            save->locked.tail = &save->locked.filled;
        }
    } else if (!is_over_locked(save) && !save->locked.finishing) {
        save->locked.finishing = *finish_out = true;
        pthread_cond_broadcast(&save->work);
    }
    pthread_mutex_unlock(&save->job.lock);
    return block;
}

static void hash_block(struct stoker_checkpoint_save *save,
                       const struct stk_checkpoint_block *block)
{
    const struct stk_safetensors *layout = &save->files[block->file].layout;
    struct stk_sha256_message messages[LEAVES_OF_A_BLOCK];
    uint64_t begin = block->index * STK_SAFETENSORS_BLOCK_BYTES, end = begin + block->bytes;
    uint64_t at = stk_max(begin, layout->header_bytes);
    size_t count = 0;

    while (at < end) {
        uint64_t leaf = (at - layout->header_bytes) / STK_SAFETENSORS_LEAF_BYTES;
        size_t bytes = (size_t)stk_min(end - at, STK_SAFETENSORS_LEAF_BYTES);

        messages[count++] = (struct stk_sha256_message){block->data + (at - begin), bytes,
                                                        layout->leaves + leaf * 32};
        at += bytes;
    }
    stk_sha256_many(messages, count);
}

/* The tensor that has a byte of the buffer. */
static uint64_t tensor_of(const struct stk_safetensors *layout, uint64_t offset)
{
    uint64_t low = 0, high = layout->count;

    while (low < high) { /* the first one that ends after the byte */
        uint64_t middle = low + (high - low) / 2;

        if (layout->tensors[middle].offset + layout->tensors[middle].bytes <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Counts NaN, Inf and pages of zeros. No element is in two blocks: tensors are aligned. */
static void count_block(struct stoker_checkpoint_save *save,
                        const struct stk_checkpoint_block *block)
{
    const struct stk_safetensors *layout = &save->files[block->file].layout;
    uint64_t begin = block->index * STK_SAFETENSORS_BLOCK_BYTES, end = begin + block->bytes;
    uint64_t at = stk_max(begin, layout->header_bytes);
    uint64_t index = at < end ? tensor_of(layout, at - layout->header_bytes) : 0;

    while (at < end) {
        const struct stk_safetensor *tensor = &layout->tensors[index];
        uint64_t last = stk_min(layout->header_bytes + tensor->offset + tensor->bytes, end);

        stk_tensor_count(&layout->counts[index], tensor->dtype, at - layout->header_bytes,
                         (struct stk_view){block->data + (at - begin), last - at});
        at = last;
        index++;
    }
}

/* Another thread may hash now, also while the caller copies. */
static void end_hash(struct stoker_checkpoint_save *save)
{
    pthread_mutex_lock(&save->job.lock);
    save->locked.busy--;
    if (save->locked.filled) {
        pthread_cond_signal(&save->work);
    }
    pthread_mutex_unlock(&save->job.lock);
}

/* The block whose first bytes are the header waits for it, unless it can be written at an offset:
 * then without the part of the header. *cpu_ns: CPU time of this thread at its last write. */
static int write_block(struct stoker_checkpoint_save *save, struct stk_checkpoint_block *block,
                       uint64_t *cpu_ns, struct stoker_error *error)
{
    uint64_t begin = block->index * STK_SAFETENSORS_BLOCK_BYTES;
    uint64_t skip = stk_max(begin, save->files[block->file].layout.header_bytes) - begin;
    struct stk_view bytes = {block->data + skip, block->bytes - skip};
    bool hold = save->sink.place->remote && (skip > 0 || !stk_sink_has_parts(&save->sink));
    int status = 0;

    if (!hold && !stk_earlier_has(save, block)) {
        uint64_t now_ns = stk_writer_cpu_ns();

        stk_writer_throttle(save->writer, bytes.bytes, now_ns - *cpu_ns, &save->job.stopping);
        *cpu_ns = now_ns;
        stk_save_call_begin(save, STK_SAVE_WRITES, block->file);
        status = stk_sink_write(&save->sink, block->file, begin + skip, bytes, error);
        stk_save_call_end();
    }
    atomic_fetch_add_explicit(&save->bytes_done, bytes.bytes, memory_order_relaxed);
    pthread_mutex_lock(&save->job.lock);
    if (hold) {
        save->locked.held = block;
    }
    if (status == 0) { /* else no thread may finish the file */
        save->locked.blocks_done++;
    }
    pthread_cond_broadcast(&save->work);
    pthread_mutex_unlock(&save->job.lock);
    if (!hold) {
        stk_writer_give_block(save->writer, block);
    }
    return status;
}

/* Writes the header of the file of a store, and the block that waited for it. */
static int send_header(struct stoker_checkpoint_save *save, struct stk_view *whole,
                       struct stoker_error *error)
{
    const struct stk_checkpoint_save_file *file = &save->files[STK_SAVE_SHARD];
    struct stk_checkpoint_block *held = save->locked.held; /* no other thread uses it any more */
    uint64_t header = file->layout.header_bytes, at = 0;
    int status = 0;

    if (held) {
        uint64_t begin = held->index * STK_SAFETENSORS_BLOCK_BYTES;

        memcpy(held->data, file->header + begin, header - begin);
    }
    if (!stk_sink_has_parts(&save->sink)) {
        *whole = held ? (struct stk_view){held->data, held->bytes}
                      : (struct stk_view){file->header, header};
        return 0;
    }
    while (status == 0 && at < header) { /* parts that are all header */
        struct stk_view part = {file->header + at,
                                stk_min(header - at, STK_SAFETENSORS_BLOCK_BYTES)};

        if (part.bytes == STK_SAFETENSORS_BLOCK_BYTES || !held) {
            status = stk_sink_write(&save->sink, STK_SAVE_SHARD, at, part, error);
        }
        at += part.bytes;
    }
    if (status == 0 && held) {
        status =
            stk_sink_write(&save->sink, STK_SAVE_SHARD, held->index * STK_SAFETENSORS_BLOCK_BYTES,
                           (struct stk_view){held->data, held->bytes}, error);
    }
    return status;
}

/* Makes the headers from the hashes and counts of all blocks, and writes them. */
static int write_headers(struct stoker_checkpoint_save *save, struct stk_view *whole,
                         struct stoker_error *error)
{
    int status = 0;

    for (uint32_t i = 0; status == 0 && i < save->file_count; i++) {
        struct stk_checkpoint_save_file *file = &save->files[i];

        for (uint64_t j = 0; j < file->layout.count; j++) {
            save->nan += file->layout.counts[j].nan;
            save->inf += file->layout.counts[j].inf;
        }
        status = stk_safetensors_header(&file->layout, &file->header, error);
        if (status == 0) {
            memcpy(file->root, file->layout.root, sizeof file->root);
            stk_save_call_begin(save, STK_SAVE_WRITES, i);
            status = save->sink.place->remote
                         ? send_header(save, whole, error)
                         : stk_sink_write(
                               &save->sink, i, 0,
                               (struct stk_view){file->header, file->layout.header_bytes}, error);
            stk_save_call_end();
        }
    }
    return status;
}

/* Makes the files of a save of one rank a step. */
static int commit(struct stoker_checkpoint_save *save, struct stoker_error *error)
{
    struct stoker_checkpoint_part parts[STK_SAVE_FILES] = {0};
    struct stk_step_manifest manifest = {.step = save->sink.step,
                                         .ranks = 1,
                                         .counted = true,
                                         .nan = save->nan,
                                         .inf = save->inf,
                                         .values = save->values,
                                         .files = parts,
                                         .file_count = save->file_count};
    int status;

    for (uint32_t i = 0; i < save->file_count; i++) {
        memcpy(parts[i].name, save->sink.names[i], sizeof parts[i].name);
        memcpy(parts[i].root, save->files[i].root, sizeof parts[i].root);
        parts[i].bytes = save->sink.file_bytes[i];
        manifest.tensors += save->tensor_counts[i];
    }
    manifest.tensors = stk_max(manifest.tensors, 1);
    stk_checkpoint_index_step(save->sink.place, save->writer->engine, &manifest, save->sink.id);
    status = stk_checkpoint_commit_step(save->sink.place, &manifest, save->sink.id, error);
    /* -EEXIST: the store has the manifest of another save. */
    save->sink.manifest_sent = status != -EEXIST;
    return status;
}

static int finish(struct stoker_checkpoint_save *save, struct stoker_error *error)
{
    struct stk_view whole = {NULL, 0};
    int status = write_headers(save, &whole, error);

    if (status == 0 && save->file_count > 1) {
        status = stk_earlier_finish(save, error);
    }
    stk_save_call_begin(save, STK_SAVE_SYNCS, STK_SAVE_SHARD);
    status = status < 0 ? status : stk_sink_finish(&save->sink, whole, error);
    stk_save_call_end();
    if (status == 0 && !save->sink.single && save->sink.ranks == 1) {
        stk_save_call_begin(save, STK_SAVE_COMMITS, STK_SAVE_SHARD);
        status = commit(save, error);
        stk_save_call_end();
    }
    if (status == 0) {
        for (uint32_t i = 0; i < save->file_count; i++) {
            atomic_fetch_add_explicit(&save->bytes_done, save->files[i].layout.header_bytes,
                                      memory_order_relaxed);
        }
        if (!save->sink.single && !save->sink.place->remote) {
            stk_shared_remember(save);
        }
        pthread_mutex_lock(&save->job.lock);
        save->locked.committed = true;
        pthread_mutex_unlock(&save->job.lock);
    }
    return status;
}

/* The last thread removes the files of a failed save, so that a full disk has space again. */
static void leave(struct stoker_checkpoint_save *save, int status, const struct stoker_error *error)
{
    bool last, failed;

    pthread_mutex_lock(&save->job.lock);
    if (status < 0) {
        stk_background_job_fail_locked(&save->job, status, error);
        pthread_cond_broadcast(&save->work);
    }
    last = --save->locked.active == 0;
    failed = !save->locked.committed;
    pthread_mutex_unlock(&save->job.lock);
    if (last && failed) {
        stk_sink_abort(&save->sink);
    }
}

int stk_checkpoint_save_run(void *context, uint32_t thread, struct stoker_error *error)
{
    struct stoker_checkpoint_save *save = context;
    struct stk_checkpoint_block *block;
    uint64_t cpu_ns = stk_writer_cpu_ns();
    bool finishing = false;
    int status;

    stk_save_calls_enter(save, thread);
    stk_writer_lower_priority(save->writer);
    status = open_sink(save, error);
    while (status == 0 && (block = take_block(save, &finishing)) != NULL) {
        hash_block(save, block);
        count_block(save, block);
        end_hash(save);
        status = write_block(save, block, &cpu_ns, error);
    }
    if (status == 0 && finishing) {
        status = finish(save, error);
    } else if (status == 0 && stk_background_job_is_stopping(&save->job)) {
        status = stk_save_fail_closed(save, error);
    }
    if (status == 0 && !finishing && !save->sink.single) { /* while another one syncs and commits */
        stk_writer_fill_pool(save->writer, save->all_blocks, &save->job.stopping);
    }
    leave(save, status, error);
    stk_save_calls_leave();
    return status;
}
