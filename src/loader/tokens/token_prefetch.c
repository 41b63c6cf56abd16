/* A walk through the order, ahead of the loader. */
#include "loader/tokens/token_prefetch.h"

/* Samples that the walk advances in one batch, for frames: it gets ahead little by little. */
#define STEP_BATCHES 4u
#define STEP_SAMPLES 64u

static struct stk_io *io_of(const struct stk_token_prefetch *ahead)
{
    return ahead->samples->tokens->engine->io;
}

void stk_token_prefetch_open(struct stk_token_prefetch *ahead,
                             const struct stk_token_samples *samples)
{
    const struct stoker_tokens *tokens = samples->tokens;

    *ahead = (struct stk_token_prefetch){.samples = samples,
                                         .cold_batches = STK_TOKEN_PREFETCH_COLD_BATCHES};
    for (uint32_t i = 0; i < tokens->file_count; i++) {
        ahead->frames = ahead->frames || tokens->files[i].compressed;
        /* Packed rows are made chunk by chunk: the other documents of the chunk are needed, too. */
        ahead->pages =
            ahead->pages || (!tokens->files[i].compressed && tokens->files[i].view.bytes &&
                             samples->kind != STOKER_ROWS_PACKED);
    }
}

/* Prefetches the tokens of a sample. Returns false if there is no space for them now. */
static bool prefetch_sample(const struct stk_token_prefetch *ahead, uint64_t sample)
{
    const struct stoker_tokens *tokens = ahead->samples->tokens;
    struct stk_token_document place;
    const struct stk_token_set_file *file;
    uint64_t offset, bytes;

    if (stk_token_samples_location(ahead->samples, sample, &place, NULL) < 0) {
        return true; /* making the row reports the error */
    }
    file = &tokens->files[place.file];
    offset = place.span.first * stk_token_bytes(file->run.dtype);
    bytes = place.span.count * stk_token_bytes(file->run.dtype);
    if (file->compressed) {
        return stk_frame_cache_prefetch(tokens->frame_cache, &file->zstd_file,
                                        file->data_at + offset, bytes);
    }
    if (ahead->pages && ahead->cold_batches > 0) {
        stk_io_map_prefetch(io_of(ahead), (struct stk_view){file->run.data + offset, bytes});
    }
    return true;
}

/* Moves to the next batch, or to the next epoch at the end of an epoch. */
static void next_batch(const struct stk_partition *partition, uint64_t *epoch, uint64_t *position)
{
    *position += stk_partition_stride(partition);
    if (stk_partition_steps_from(partition, *epoch, *position) == 0) {
        *position = stk_partition_next_epoch_start(partition, *epoch, *position);
        (*epoch)++;
    }
}

/* Adjusts the walk to the loader's batch: the next one, or any after a seek. */
static void restart_walk(struct stk_token_prefetch *ahead, const struct stk_order_cursor *cursor)
{
    next_batch(&cursor->partition, &ahead->last_epoch, &ahead->last_position);
    if (ahead->walk_is_valid && ahead->batches > 0 && ahead->last_epoch == cursor->epoch &&
        ahead->last_position == cursor->position) {
        ahead->batches--;
        return;
    }
    ahead->walk_is_valid = true;
    ahead->epoch = ahead->last_epoch = cursor->epoch;
    ahead->position = ahead->last_position = cursor->position;
    ahead->batches = 0;
    ahead->slot = 0;
}

static void walk(struct stk_token_prefetch *ahead, struct stk_order_cursor *cursor)
{
    uint64_t batch = stk_max(stk_order_cursor_slots(cursor), 1);
    uint64_t distance =
        ahead->frames ? STK_TOKEN_PREFETCH_FRAMES_SAMPLES : STK_TOKEN_PREFETCH_PAGES_SAMPLES;
    uint64_t left = ahead->frames ? STEP_BATCHES * batch + STEP_SAMPLES : distance + batch;

    while (left > 0 && ahead->batches * batch <= distance) {
        uint32_t slots =
            stk_partition_batch_slots(&cursor->partition, ahead->epoch, ahead->position);

        if (ahead->slot < slots) {
            struct stk_order_cursor_slot slot =
                stk_order_cursor_get_at(cursor, ahead->epoch, ahead->position, ahead->slot);

            if (!prefetch_sample(ahead, slot.sample)) {
                return;
            }
            ahead->slot++;
            left--;
        } else {
            next_batch(&cursor->partition, &ahead->epoch, &ahead->position);
            ahead->batches++;
            ahead->slot = 0;
        }
    }
}

void stk_token_prefetch_begin(struct stk_token_prefetch *ahead, struct stk_order_cursor *cursor)
{
    if (ahead->pages) {
        ahead->reads = stk_io_thread_disk_reads(io_of(ahead));
    }
    if (ahead->frames || (ahead->pages && ahead->cold_batches > 0)) {
        restart_walk(ahead, cursor);
        walk(ahead, cursor);
    } else {
        ahead->walk_is_valid = false;
    }
}

void stk_token_prefetch_end(struct stk_token_prefetch *ahead)
{
    if (ahead->pages && stk_io_thread_disk_reads(io_of(ahead)) != ahead->reads) {
        ahead->cold_batches = STK_TOKEN_PREFETCH_COLD_BATCHES;
    } else if (ahead->cold_batches > 0) {
        ahead->cold_batches--;
    }
}
