/* A walk through the order, ahead of the loader. */
#include "loader/tokens/token_prefetch.h"

/* Samples that the walk advances in one batch, for frames and ranges: it gets ahead little by
 * little. */
#define STEP_BATCHES 4u
#define STEP_SAMPLES 64u

static struct stk_io *io_of(const struct stk_token_prefetch *ahead)
{
    return ahead->samples->tokens->engine->io;
}

void stk_token_prefetch_open(struct stk_token_prefetch *ahead,
                             const struct stk_token_samples *samples, uint32_t unit,
                             uint64_t block_samples)
{
    const struct stoker_tokens *tokens = samples->tokens;

    *ahead = (struct stk_token_prefetch){.samples = samples,
                                         .unit = unit,
                                         .block_samples = block_samples,
                                         .block = {.number = UINT64_MAX},
                                         .cold_batches = STK_TOKEN_PREFETCH_COLD_BATCHES};
    for (uint32_t i = 0; i < tokens->file_count; i++) {
        bool is_mapped = stk_token_set_is_mapped(&tokens->files[i]);

        ahead->cached = ahead->cached || !is_mapped;
        /* Packed rows are made chunk by chunk: the other documents of the chunk are needed, too. */
        ahead->pages = ahead->pages || (is_mapped && tokens->files[i].view.bytes &&
                                        samples->kind != STOKER_ROWS_PACKED);
    }
}

/* Where the stored tokens of a sample are. */
struct stored {
    uint32_t file;
    uint64_t offset, bytes;
};

static int find_stored(const struct stk_token_prefetch *ahead, uint64_t sample,
                       struct stored *stored_out)
{
    struct stk_token_document place;
    int status = stk_token_samples_location(ahead->samples, sample, &place, NULL);

    if (status == 0) {
        uint64_t width = stk_token_bytes(ahead->samples->tokens->files[place.file].run.dtype);

        *stored_out =
            (struct stored){place.file, place.span.first * width, place.span.count * width};
    }
    return status;
}

/* Finds the bytes of the block that has the sample. */
static void find_block(struct stk_token_prefetch *ahead, uint64_t sample)
{
    uint64_t count = stk_token_samples_count(ahead->samples), size = ahead->block_samples;
    uint64_t number = sample / size, last = stk_min(number * size + size, count) - 1;
    struct stored begin = {0}, end = {0};

    if (number == ahead->block.number) {
        return;
    }
    ahead->block.number = number;
    ahead->block.file = UINT32_MAX;
    if (find_stored(ahead, number * size, &begin) == 0 && find_stored(ahead, last, &end) == 0 &&
        begin.file == end.file) {
        ahead->block.file = begin.file;
        ahead->block.begin = begin.offset;
        ahead->block.end = end.offset + end.bytes;
    }
}

/* Prefetches the tokens of a sample. Returns false if there is no space for them now. */
static bool prefetch_sample(struct stk_token_prefetch *ahead, uint64_t sample)
{
    const struct stoker_tokens *tokens = ahead->samples->tokens;
    const struct stk_token_set_file *file;
    struct stk_range_wish wish;
    struct stored stored = {0};

    if (find_stored(ahead, sample, &stored) < 0) {
        return true; /* making the row reports the error */
    }
    file = &tokens->files[stored.file];
    if (stk_token_set_is_mapped(file)) {
        if (ahead->pages && ahead->cold_batches > 0) {
            stk_io_map_prefetch(io_of(ahead),
                                (struct stk_view){file->run.data + stored.offset, stored.bytes});
        }
        return true;
    }
    wish = (struct stk_range_wish){.offset = stored.offset,
                                   .bytes = stored.bytes,
                                   .unit = ahead->unit,
                                   .begin = stored.offset,
                                   .end = stored.offset + stored.bytes};
    if (ahead->unit > 0) {
        find_block(ahead, sample);
        if (ahead->block.file == stored.file) { /* documents may be in any order */
            wish.begin = stk_min(wish.begin, ahead->block.begin);
            wish.end = stk_max(wish.end, ahead->block.end);
        }
    }
    return stk_token_set_prefetch(tokens, stored.file, &wish);
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
    if (ahead->walk_is_valid && ahead->samples->tokens->range_cache) {
        stk_range_cache_forget(ahead->samples->tokens->range_cache);
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
        ahead->cached ? STK_TOKEN_PREFETCH_CACHED_SAMPLES : STK_TOKEN_PREFETCH_PAGES_SAMPLES;
    uint64_t left = ahead->cached ? STEP_BATCHES * batch + STEP_SAMPLES : distance + batch;

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
    if (ahead->cached || (ahead->pages && ahead->cold_batches > 0)) {
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
