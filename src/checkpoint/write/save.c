/* A save: starts its threads, copies the caller's tensors, and reports the result. */
#include "base/mem.h"
#include "base/options.h"
#include "base/text/text_match.h"
#include "base/thread.h"
#include "checkpoint/write/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COPY_WAIT_MS 50u
#define CLOSE_WAIT_MS 100u
#define HANG_WAIT_MS 1000u /* a call that hangs is found so long after its limit, at most */

static void save_free(struct stoker_checkpoint_save *save)
{
    stk_sink_close(&save->sink);
    stk_earlier_close(save);
    for (uint32_t i = 0; i < STK_SAVE_FILES; i++) {
        stk_safetensors_deinit(&save->files[i].layout);
        stk_free(save->files[i].sources);
        stk_free(save->files[i].header);
    }
    stk_free(save->values);
    pthread_cond_destroy(&save->work);
    stk_background_job_deinit(&save->job);
    stk_writer_release(save->writer);
    stk_free(save);
}

static int check_id(const char *id, struct stoker_error *error)
{
    size_t bytes = id ? strlen(id) : 0;

    if (bytes > 0 && bytes <= STK_PLACE_ID_BYTES_MAX &&
        strspn(id, "0123456789abcdefghijklmnopqrstuvwxyz") == bytes) {
        return 0;
    }
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "the id of the save is not valid",
                    "use 1 to 32 of 0-9 and a-z, the same on all ranks", "save_id '%.100s'",
                    id ? id : "");
}

/* Lightning names its checkpoints .ckpt. */
static bool is_single_name(const char *name)
{
    return stk_step_manifest_is_file_name(name) &&
           (stk_text_ends_with(name, STK_PLACE_SHARD_SUFFIX) || stk_text_ends_with(name, ".ckpt"));
}

static int check_options(const struct stoker_checkpoint_save_options *options,
                         struct stoker_error *error)
{
    if (options->step > STOKER_CHECKPOINT_STEP_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the step is too large", "use less than 2^53",
                        "step %" PRIu64, options->step);
    }
    if (options->ranks > STK_STEP_MANIFEST_FILES_MAX ||
        (options->rank >= options->ranks && options->ranks > 0)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the rank is not below the number of ranks",
                        "number the ranks from 0", "rank %u of %u", options->rank, options->ranks);
    }
    if (options->tensor_count > 0 && !options->tensors) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the tensors are NULL", "pass them",
                        "save options");
    }
    if (options->file && (!is_single_name(options->file) || options->ranks > 1)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the name of the file is not valid",
                        "use a plain name of at most 79 characters that ends in .safetensors or "
                        ".ckpt, and one rank",
                        "'%.200s'", options->file);
    }
    return options->ranks > 1 || options->save_id ? check_id(options->save_id, error) : 0;
}

/* Sets the sink's names. */
static int init_sink(struct stoker_checkpoint_save *save,
                     const struct stoker_checkpoint_save_options *options,
                     struct stoker_error *error)
{
    struct stk_checkpoint_sink *sink = &save->sink;
    int status = 0;

    sink->place = &save->writer->place;
    sink->step = options->step;
    sink->rank = options->rank;
    sink->ranks = options->ranks ? options->ranks : 1;
    sink->single = options->file != NULL;
    for (uint32_t i = 0; i < save->file_count; i++) {
        sink->file_bytes[i] =
            save->files[i].layout.header_bytes + save->files[i].layout.buffer_bytes;
    }
    if (options->save_id) {
        snprintf(sink->id, sizeof sink->id, "%s", options->save_id);
    } else {
        status = stk_place_make_id(sink->id, error);
    }
    stk_place_file_name(sink->place, STK_PLACE_SHARED_PREFIX, sink->rank, sink->id,
                        sink->names[STK_SAVE_SHARED]);
    if (options->file) {
        snprintf(sink->names[STK_SAVE_SHARD], sizeof sink->names[0], "%s", options->file);
    } else {
        stk_place_file_name(sink->place, STK_PLACE_SHARD_PREFIX, sink->rank, sink->id,
                            sink->names[STK_SAVE_SHARD]);
    }
    return status;
}

/* Lays out a file with some of the tensors. numbers: those that the caller gave them. */
static int init_file(struct stk_checkpoint_save_file *file,
                     const struct stoker_checkpoint_tensor *tensors, const uint32_t *numbers,
                     size_t count, const char *tree, struct stoker_error *error)
{
    uint64_t bytes;
    int status = stk_safetensors_layout(&file->layout, tensors, count, tree, error);

    if (status < 0) {
        return status;
    }
    bytes = file->layout.header_bytes + file->layout.buffer_bytes;
    file->first_block = file->layout.header_bytes / STK_SAFETENSORS_BLOCK_BYTES;
    file->block_count = file->layout.buffer_bytes == 0 ? file->first_block
                                                       : (bytes + STK_SAFETENSORS_BLOCK_BYTES - 1) /
                                                             STK_SAFETENSORS_BLOCK_BYTES;
    file->sources = stk_alloc(count + 1, sizeof *file->sources);
    file->layout.leaves = stk_alloc(file->layout.leaf_count + 1, 32);
    file->layout.counts = stk_alloc(count + 1, sizeof *file->layout.counts);
    if (!file->sources || !file->layout.leaves || !file->layout.counts) {
        return stk_fail_memory(error, "checkpoint");
    }
    for (uint64_t i = 0; i < count; i++) {
        struct stk_safetensor *tensor = &file->layout.tensors[i];

        file->sources[i] = tensors[tensor->source].data;
        tensor->source = numbers[tensor->source];
    }
    return 0;
}

/* Divides the tensors between the files: `tensors` gets those of the first file, then those of the
 * second one, and `numbers` their numbers in the options. */
static int divide(struct stoker_checkpoint_save *save,
                  const struct stoker_checkpoint_save_options *options,
                  struct stoker_checkpoint_tensor *tensors, uint32_t *numbers, size_t *shared_out,
                  struct stoker_error *error)
{
    size_t count = options->tensor_count, at[STK_SAVE_FILES] = {0, 0};
    bool *is_shared = stk_alloc(count + 1, sizeof *is_shared);

    if (!is_shared) {
        return stk_fail_memory(error, "checkpoint");
    }
    *shared_out = 0;
    if (!options->file && !save->writer->place.remote) {
        *shared_out = stk_shared_choose(save->writer, options->tensors, count, is_shared);
    }
    at[STK_SAVE_SHARED] = count - *shared_out;
    for (size_t i = 0; i < count; i++) {
        size_t place = at[is_shared[i] && *shared_out > 0]++;

        tensors[place] = options->tensors[i];
        numbers[place] = (uint32_t)i;
    }
    stk_free(is_shared);
    return 0;
}

/* Without pieces, all tensors with bytes have data. */
static int check_data(const struct stoker_checkpoint_save *save, struct stoker_error *error)
{
    for (uint32_t i = 0; i < save->file_count && !save->pieces; i++) {
        const struct stk_checkpoint_save_file *file = &save->files[i];

        for (uint64_t j = 0; j < file->layout.count; j++) {
            if (!file->sources[j] && file->layout.tensors[j].bytes > 0) {
                return stk_fail(error, STOKER_ERROR_ARGUMENT, "the tensor has no data",
                                "set its data", "tensor '%.400s'", file->layout.tensors[j].name);
            }
        }
    }
    return 0;
}

static int init_save(struct stoker_checkpoint_save *save,
                     const struct stoker_checkpoint_save_options *options,
                     struct stoker_error *error)
{
    size_t shared = 0, count = options->tensor_count;
    struct stoker_checkpoint_tensor *tensors = stk_alloc(count + 1, sizeof *tensors);
    uint32_t *numbers = stk_alloc(count + 1, sizeof *numbers);
    int status = tensors && numbers ? divide(save, options, tensors, numbers, &shared, error)
                                    : stk_fail_memory(error, "checkpoint");

    save->pieces = options->pieces != 0;
    if (status == 0) {
        status = init_file(&save->files[STK_SAVE_SHARD], tensors, numbers, count - shared,
                           options->tree, error);
    }
    save->file_count = shared > 0 ? 2 : 1;
    if (status == 0 && shared > 0) {
        status = init_file(&save->files[STK_SAVE_SHARED], tensors + (count - shared),
                           numbers + (count - shared), shared, NULL, error);
    }
    stk_free(tensors);
    stk_free(numbers);
    if (status < 0) {
        return status;
    }
    for (uint32_t i = 0; i < save->file_count; i++) {
        save->tensor_counts[i] = save->files[i].layout.count;
        save->all_blocks += save->files[i].block_count - save->files[i].first_block;
    }
    save->next_block = save->files[0].first_block;
    save->values = options->values ? stk_strdup(options->values) : NULL;
    if (options->values && !save->values) {
        return stk_fail_memory(error, "checkpoint");
    }
    status = check_data(save, error);
    return status < 0 ? status : init_sink(save, options, error);
}

/* The manifest must be possible before the tensors are written. */
static int check_values(const struct stoker_checkpoint_save *save, struct stoker_error *error)
{
    struct stoker_checkpoint_part part = {.name = "a"};
    struct stk_step_manifest manifest = {
        .ranks = 1, .values = save->values, .files = &part, .file_count = 1};
    char *text = NULL;
    size_t bytes;
    int status = stk_step_manifest_text(&manifest, &text, &bytes, error);

    stk_free(text);
    return status;
}

static void wake_locked(void *context)
{
    pthread_cond_broadcast(&((struct stoker_checkpoint_save *)context)->work);
}

int stoker_checkpoint_save_open(struct stoker_checkpoint_save **save_out,
                                struct stoker_checkpoint_writer *writer,
                                const struct stoker_checkpoint_save_options *given,
                                struct stoker_error *error)
{
    struct stoker_checkpoint_save_options options;
    struct stoker_checkpoint_save *save;
    int status = stk_options_read(&options, sizeof options, sizeof options.struct_size, given,
                                  "save options", error);

    status = status < 0 ? status : check_options(&options, error);
    status = status < 0 ? status : stk_engine_check(writer->engine, error);
    if (status < 0) {
        return status;
    }
    save = stk_alloc(1, sizeof *save);
    if (!save) {
        return stk_fail_memory(error, "checkpoint");
    }
    save->writer = writer;
    atomic_fetch_add(&writer->references, 1);
    stk_background_job_init(&save->job, writer->engine);
    stk_cond_init(&save->work);
    save->locked.tail = &save->locked.filled;
    save->locked.active = writer->threads;
    status = init_save(save, &options, error);
    status = status < 0 ? status : check_values(save, error);
    if (status == 0) {
        status = stk_background_job_start(
            &save->job,
            &(struct stk_background_job_options){.name = "checkpoint",
                                                 .thread_name = "stoker-ckpt",
                                                 .context = save,
                                                 .run = stk_checkpoint_save_run,
                                                 .wake_locked = wake_locked,
                                                 .threads = writer->threads},
            error);
    }
    if (status < 0) {
        if (save->job.started > 0) {
            stk_background_job_end(&save->job);
            stk_sink_abort(&save->sink);
        }
        save_free(save);
        return status;
    }
    *save_out = save;
    return 0;
}

/* Takes a tensor's bytes into the block that is being filled, or reads them. Returns 0; 1 if the
 * caller copies them: *piece says which; or the error of reading. */
static int fill_tensor(struct stoker_checkpoint_save *save, uint64_t end,
                       struct stoker_checkpoint_piece *piece, struct stoker_error *error)
{
    struct stk_checkpoint_block *block = save->filling;
    const struct stk_checkpoint_save_file *file = &save->files[block->file];
    const struct stk_safetensors *layout = &file->layout;
    const struct stk_safetensor *tensor = &layout->tensors[save->next_tensor];
    const uint8_t *source = file->sources[save->next_tensor];
    uint64_t first = layout->header_bytes + tensor->offset, last = first + tensor->bytes;
    uint64_t offset = save->fill_at - first, bytes = stk_min(last, end) - save->fill_at;
    uint8_t *target = block->data + (save->fill_at - block->index * STK_SAFETENSORS_BLOCK_BYTES);

    int status = 0;

    if (bytes > 0 && save->read) {
        status = save->read(save->read_context, tensor->source, offset, target, bytes, error);
    } else if (bytes > 0 && source) {
        memcpy(target, source + offset, bytes);
    } else if (bytes > 0) {
        *piece = (struct stoker_checkpoint_piece){.tensor = tensor->source,
                                                  .offset = offset,
                                                  .bytes = bytes,
                                                  .buffer = target,
                                                  .block = block->data,
                                                  .block_bytes = STK_SAFETENSORS_BLOCK_BYTES};
        status = 1;
    }
    save->fill_at += bytes;
    save->next_tensor += save->fill_at == last;
    return status;
}

/* Copies or reads the tensors of the block that is being filled. Returns 1 if the caller must copy
 * a piece first. */
static int fill_block(struct stoker_checkpoint_save *save, struct stoker_checkpoint_piece *piece,
                      struct stoker_error *error)
{
    uint64_t end = save->filling->index * STK_SAFETENSORS_BLOCK_BYTES + save->filling->bytes;

    int status = 0;

    while (status == 0 && save->fill_at < end) {
        status = fill_tensor(save, end, piece, error);
    }
    return status;
}

static void begin_block(struct stoker_checkpoint_save *save, struct stk_checkpoint_block *block)
{
    uint64_t begin = save->next_block * STK_SAFETENSORS_BLOCK_BYTES;

    block->file = save->next_file;
    block->index = save->next_block++;
    block->bytes = stk_min(STK_SAFETENSORS_BLOCK_BYTES, save->sink.file_bytes[block->file] - begin);
    save->filling = block;
    save->fill_at = stk_max(begin, save->files[block->file].layout.header_bytes);
    memset(block->data, 0, save->fill_at - begin);
}

static void push_block(struct stoker_checkpoint_save *save, struct stk_checkpoint_block *block)
{
    pthread_mutex_lock(&save->job.lock);
    block->next = NULL;
    *save->locked.tail = block;
    save->locked.tail = &block->next;
    pthread_cond_signal(&save->work);
    pthread_mutex_unlock(&save->job.lock);
}

/* Returns the failure of the save, or 0. */
static int failure(struct stoker_checkpoint_save *save, struct stoker_error *error)
{
    int status;

    pthread_mutex_lock(&save->job.lock);
    status = save->job.locked.status;
    if (status < 0 && error) {
        *error = save->job.locked.error;
    }
    pthread_mutex_unlock(&save->job.lock);
    return status;
}

/* Whether a block is left. Goes on to the next file behind the last block of one. */
static bool has_next_block(struct stoker_checkpoint_save *save)
{
    while (save->next_file < save->file_count &&
           save->next_block == save->files[save->next_file].block_count) {
        save->next_file++;
        save->next_tensor = 0;
        save->next_block =
            save->next_file < save->file_count ? save->files[save->next_file].first_block : 0;
    }
    return save->next_file < save->file_count;
}

/* A free block, or NULL: then none became free soon. While none is free, all threads of the save
 * work. */
static struct stk_checkpoint_block *take_block(struct stoker_checkpoint_save *save,
                                               uint32_t timeout_ms)
{
    struct stk_checkpoint_block *block = stk_writer_take_block(save->writer, 0);

    if (!block) {
        pthread_mutex_lock(&save->job.lock);
        save->locked.starved = true;
        pthread_cond_broadcast(&save->work);
        pthread_mutex_unlock(&save->job.lock);
        block = stk_writer_take_block(save->writer, (uint32_t)stk_min(timeout_ms, COPY_WAIT_MS));
    }
    return block;
}

/* Fills blocks. Returns 1 if the caller must copy a piece; 0 once all bytes are copied. */
static int copy(struct stoker_checkpoint_save *save, uint32_t timeout_ms,
                struct stoker_checkpoint_piece *piece, struct stoker_error *error)
{
    uint64_t until_ns = stk_engine_now(save->writer->engine) + (uint64_t)timeout_ms * 1000000u;
    int status = stk_engine_check(save->writer->engine, error);

    while (status == 0 && (save->filling || has_next_block(save))) {
        struct stk_checkpoint_block *block = save->filling ? NULL : take_block(save, timeout_ms);

        if (block) {
            begin_block(save, block);
        }
        status = failure(save, error);
        if (status == 0 && !save->filling) {
            status = stk_save_check_calls(save, error);
        }
        if (status < 0) {
            return status;
        }
        if (save->filling) {
            status = fill_block(save, piece, error);
            if (status != 0) {
                return status;
            }
            push_block(save, save->filling);
            save->filling = NULL;
        } else if (stk_writer_has_no_memory(save->writer)) {
            return stk_fail_memory(error, "a block of a checkpoint");
        } else if (stk_engine_now(save->writer->engine) >= until_ns) {
            return STOKER_ERROR_AGAIN;
        }
    }
    if (status == 0) {
        pthread_mutex_lock(&save->job.lock);
        save->locked.copied = true;
        pthread_cond_broadcast(&save->work);
        pthread_mutex_unlock(&save->job.lock);
    }
    return status;
}

int stoker_checkpoint_save_copy(struct stoker_checkpoint_save *save, uint32_t timeout_ms,
                                struct stoker_error *error)
{
    struct stoker_checkpoint_piece piece;

    if (save->pieces) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the save asks for pieces",
                        "call stoker_checkpoint_save_copy_piece()", "'%.400s'",
                        save->sink.names[STK_SAVE_SHARD]);
    }
    return copy(save, timeout_ms, &piece, error);
}

int stoker_checkpoint_save_copy_piece(struct stoker_checkpoint_save *save, uint32_t timeout_ms,
                                      struct stoker_checkpoint_piece *piece_out,
                                      struct stoker_error *error)
{
    struct stoker_checkpoint_piece piece = {0};
    int status =
        stk_options_check_output(piece_out, sizeof piece, sizeof piece.struct_size, "piece", error);

    status = status < 0 ? status : copy(save, timeout_ms, &piece, error);
    if (status == 1) {
        (void)stk_options_write_output(piece_out, &piece, sizeof piece, "piece", NULL);
    }
    return status;
}

/* Waits in slices, so that a call that hangs is found however long the timeout is. */
static int wait_next(struct stoker_checkpoint_save *save, uint32_t timeout_ms,
                     struct stoker_error *error)
{
    int status;

    do {
        uint32_t slice_ms = (uint32_t)stk_min(timeout_ms, HANG_WAIT_MS);

        timeout_ms -= slice_ms;
        status = stk_background_job_next(&save->job, slice_ms, NULL, NULL, error);
        if (status == STK_BACKGROUND_JOB_RUNNING) {
            int hangs = stk_save_check_calls(save, error);

            status = hangs < 0 ? hangs : status;
        }
    } while (status == STK_BACKGROUND_JOB_RUNNING && timeout_ms > 0);
    return status;
}

int stoker_checkpoint_save_next(struct stoker_checkpoint_save *save, uint32_t timeout_ms,
                                struct stoker_checkpoint_progress *progress,
                                struct stoker_error *error)
{
    struct stoker_checkpoint_progress full = {.files = 1};
    int status;

    if (progress) {
        status = stk_options_check_output(progress, sizeof full, sizeof full.struct_size,
                                          "progress", error);
        if (status < 0) {
            return status;
        }
    }
    status = wait_next(save, timeout_ms, error);
    full.bytes = save->sink.file_bytes[STK_SAVE_SHARD] + save->sink.file_bytes[STK_SAVE_SHARED];
    full.bytes_done = atomic_load_explicit(&save->bytes_done, memory_order_relaxed);
    full.files_done = status == STK_BACKGROUND_JOB_FINISHED;
    full.run_ns = stk_background_job_elapsed_ns(&save->job);
    if (full.files_done > 0) { /* the threads have ended */
        full.nan_count = save->nan;
        full.inf_count = save->inf;
    }
    if (progress) {
        (void)stk_options_write_output(progress, &full, sizeof full, "progress", NULL);
    }
    return status > 0 ? 1 : status;
}

int stoker_checkpoint_save_part(struct stoker_checkpoint_save *save,
                                struct stoker_checkpoint_part *part_out, struct stoker_error *error)
{
    int status;

    if (!stk_background_job_is_finished(&save->job, &status) || status < 0) {
        return stk_fail(error, STOKER_ERROR_AGAIN, "the save is not finished",
                        "call stoker_checkpoint_save_next() until it returns 0", "'%.400s'",
                        save->sink.names[STK_SAVE_SHARD]);
    }
    *part_out =
        (struct stoker_checkpoint_part){.bytes = save->sink.file_bytes[STK_SAVE_SHARD],
                                        .nan_count = (uint32_t)stk_min(save->nan, UINT32_MAX),
                                        .inf_count = (uint32_t)stk_min(save->inf, UINT32_MAX)};
    memcpy(part_out->name, save->sink.names[STK_SAVE_SHARD], sizeof part_out->name);
    memcpy(part_out->root, save->files[STK_SAVE_SHARD].root, sizeof part_out->root);
    part_out->shared_bytes = save->sink.file_bytes[STK_SAVE_SHARED];
    memcpy(part_out->shared_root, save->files[STK_SAVE_SHARED].root, sizeof part_out->root);
    for (uint32_t i = 0; i < save->file_count; i++) {
        part_out->tensor_count += save->tensor_counts[i];
    }
    if (part_out->shared_bytes > 0) {
        memcpy(part_out->shared_name, save->sink.names[STK_SAVE_SHARED], sizeof part_out->name);
    }
    return 0;
}

/* After the last thread. */
static void free_all(void *context)
{
    struct stoker_checkpoint_save *save = context;
    struct stk_checkpoint_block *block;

    while ((block = save->locked.filled) != NULL) {
        save->locked.filled = block->next;
        stk_writer_give_block(save->writer, block);
    }
    if (save->filling) {
        stk_writer_give_block(save->writer, save->filling);
    }
    if (save->locked.held) {
        stk_writer_give_block(save->writer, save->locked.held);
    }
    save_free(save);
}

void stoker_checkpoint_save_close(struct stoker_checkpoint_save *save)
{
    bool hangs;

    if (!save || stk_engine_check(save->writer->engine, NULL) < 0) {
        return;
    }
    stk_background_job_stop(&save->job);
    while (stk_background_job_next(&save->job, CLOSE_WAIT_MS, NULL, NULL, NULL) ==
               STK_BACKGROUND_JOB_RUNNING &&
           stk_save_check_calls(save, NULL) == 0) {
    }
    pthread_mutex_lock(&save->job.lock);
    hangs = save->locked.hangs;
    pthread_mutex_unlock(&save->job.lock);
    if (hangs && stk_background_job_abandon(&save->job, free_all)) {
        return; /* its last thread frees it, if the call returns one day */
    }
    if (stk_background_job_end(&save->job)) {
        free_all(save);
    }
}
