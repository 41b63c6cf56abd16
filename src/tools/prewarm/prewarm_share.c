/* The blocks that one node of a job reads, in the order of their use. */
#include "tools/prewarm/prewarm_share.h"

#include "base/mem.h"
#include "order/order.h"
#include "order/schedule/order_default.h"
#include "storage/cache/node_cache.h"

#include <string.h>

struct stk_prewarm_share {
    struct stoker_dataset *dataset;
    struct stoker_cache *cache; /* of the engine */
    uint64_t block_bytes;
    struct stk_order order;
    struct stk_order_epoch epoch;
    struct stk_prewarm_share_options options;
    uint64_t *first_blocks; /* one a shard: its first bit in `seen` */
    uint64_t opened_ns, downloaded_before;
    pthread_mutex_t lock;
    struct {
        uint8_t *seen; /* one bit a block */
        uint64_t row;  /* of group_count positions */
        uint32_t group;
        uint64_t planned;               /* bytes */
        struct stk_prewarm_piece range; /* the blocks of the last sample that are left */
        bool has_range;
        uint32_t reads; /* pieces that are being read */
    } locked;
};

static bool is_object(const struct stk_prewarm_share *share, uint32_t shard)
{
    const struct stk_index *index = share->dataset->index;

    /* It is not known which bytes of a compressed shard a sample needs. */
    return stk_index_is_file(index, shard) || stk_index_shard_compression(index, shard) != 0;
}

static uint64_t blocks_of(const struct stk_prewarm_share *share, uint32_t shard)
{
    return is_object(share, shard)
               ? 1
               : stk_index_shard_bytes(share->dataset->index, shard) / share->block_bytes + 1;
}

static int open_blocks(struct stk_prewarm_share *share, struct stoker_error *error)
{
    uint64_t shards = stk_index_shards(share->dataset->index), blocks = 0;

    share->first_blocks = stk_alloc(shards, sizeof *share->first_blocks);
    for (uint64_t i = 0; share->first_blocks && i < shards; i++) {
        share->first_blocks[i] = blocks;
        blocks += blocks_of(share, (uint32_t)i);
    }
    share->locked.seen = stk_alloc(1, blocks / 8 + 1);
    return share->first_blocks && share->locked.seen ? 0 : stk_fail_memory(error, "prewarm");
}

static int open_order(struct stk_prewarm_share *share, struct stoker_error *error)
{
    const struct stk_index *index = share->dataset->index;
    struct stk_order_options order = {
        .sample_count = stk_index_samples(index),
        .block_samples = stk_index_block_samples(index),
        .window_blocks = STK_ORDER_WINDOW_DEFAULT,
        .group_count = share->options.group_count,
        .shuffle = STOKER_SHUFFLE_BLOCK,
        .seed = share->options.seed,
    };
    int status = stk_order_init(&share->order, &order, error);

    if (status == 0) {
        stk_order_epoch_begin(&share->epoch, &share->order, 0);
        share->locked.group = share->options.node;
    }
    return status;
}

static int check_options(const struct stk_prewarm_share_options *options,
                         const struct stoker_engine *engine, struct stoker_error *error)
{
    if (!engine->cache) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a share of a node needs a node cache",
                        "name its folder: --cache DIR or STOKER_CACHE_DIR (in C: cache of the "
                        "engine options)",
                        "prewarm");
    }
    if (options->node >= options->node_count || options->group_count % options->node_count != 0) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "there is no such share",
                        "nodes count from 0, and the home groups must be a multiple of the nodes",
                        "node %u of %u, %u groups", options->node, options->node_count,
                        options->group_count);
    }
    return 0;
}

int stk_prewarm_share_open(struct stk_prewarm_share **share_out, struct stoker_engine *engine,
                           const struct stk_prewarm_share_options *options,
                           struct stoker_error *error)
{
    struct stoker_dataset_options data = {
        .struct_size = sizeof data, .urls = options->paths, .url_count = options->path_count};
    int status = check_options(options, engine, error);
    struct stk_prewarm_share *share;

    *share_out = NULL;
    if (status < 0) {
        return status;
    }
    share = stk_alloc(1, sizeof *share);
    if (!share) {
        return stk_fail_memory(error, "prewarm");
    }
    pthread_mutex_init(&share->lock, NULL);
    share->options = *options;
    share->cache = engine->cache;
    share->block_bytes = engine->cache->block_bytes;
    share->opened_ns = stk_engine_now(engine);
    share->downloaded_before =
        atomic_load_explicit(&share->cache->counters.bytes_from_origin, memory_order_relaxed);
    stk_cache_pace_set(&share->cache->pace, options->rate_bytes_max);
    status = stk_dataset_new(&share->dataset, engine, &data, error);
    if (status < 0) {
        stk_prewarm_share_close(share);
        return status;
    }
    *share_out = share;
    return 0;
}

int stk_prewarm_share_scan(struct stk_prewarm_share *share, struct stoker_error *error)
{
    const _Atomic bool *before = stk_io_set_cancel_flag(&share->dataset->scan.stop);
    int status = stk_dataset_open_new(share->dataset, error);

    stk_io_set_cancel_flag(before);
    status = status < 0 ? status : open_blocks(share, error);
    return status < 0 ? status : open_order(share, error);
}

void stk_prewarm_share_stop(struct stk_prewarm_share *share)
{
    atomic_store(&share->dataset->scan.stop, true);
}

void stk_prewarm_share_close(struct stk_prewarm_share *share)
{
    if (share) {
        stk_cache_pace_set(&share->cache->pace, 0);
        if (share->dataset) {
            stk_dataset_release(share->dataset);
        }
        stk_free(share->first_blocks);
        stk_free(share->locked.seen);
        pthread_mutex_destroy(&share->lock);
        stk_free(share);
    }
}

uint64_t stk_prewarm_share_bytes(const struct stk_prewarm_share *share)
{
    uint64_t bytes = stk_index_bytes(share->dataset->index) / share->options.node_count;

    return share->options.budget_bytes ? stk_min(bytes, share->options.budget_bytes) : bytes;
}

/* The next sample of the share, by groups in turn, as a step reads them. */
static bool next_sample_locked(struct stk_prewarm_share *share, uint64_t *sample_out)
{
    uint32_t groups = share->options.group_count;
    uint32_t mine = groups / share->options.node_count, first = share->options.node * mine;
    uint64_t position;

    if (share->locked.group < first || share->locked.group >= first + mine) {
        share->locked.group = first;
    }
    position = share->locked.row * groups + share->locked.group;
    if (position >= share->order.options.sample_count) {
        return false;
    }
    *sample_out = stk_order_sample(&share->epoch, position);
    if (++share->locked.group == first + mine) {
        share->locked.group = first;
        share->locked.row++;
    }
    return true;
}

/* The bytes of a shard that hold the members of a sample. */
static bool range_of(const struct stk_prewarm_share *share, uint64_t number,
                     struct stk_prewarm_piece *range)
{
    const struct stk_index *index = share->dataset->index;
    struct stk_sample sample;
    struct stk_member first, last;

    if (stk_index_sample(index, number, &sample, NULL) < 0) {
        return false;
    }
    *range = (struct stk_prewarm_piece){.shard = sample.shard,
                                        .is_object = is_object(share, sample.shard)};
    if (range->is_object) {
        range->bytes = 1;
        return true;
    }
    if (sample.member_count == 0 || stk_index_member(index, &sample, 0, &first, NULL) < 0 ||
        stk_index_member(index, &sample, sample.member_count - 1, &last, NULL) < 0) {
        return false;
    }
    range->offset = first.offset;
    range->bytes = last.offset + last.bytes - stk_min(first.offset, last.offset + last.bytes);
    return range->bytes > 0;
}

/* Takes the first block of the range that was not taken before. */
static bool take_block_locked(struct stk_prewarm_share *share, struct stk_prewarm_piece *piece_out)
{
    struct stk_prewarm_piece *range = &share->locked.range;
    uint64_t shard_bytes = stk_index_shard_bytes(share->dataset->index, range->shard);

    while (share->locked.has_range) {
        uint64_t number = range->is_object ? 0 : range->offset / share->block_bytes;
        uint64_t end = (number + 1) * share->block_bytes;
        uint64_t bit = share->first_blocks[range->shard] + number;
        bool is_new = (share->locked.seen[bit / 8] >> bit % 8 & 1) == 0;

        *piece_out = *range;
        if (!range->is_object) {
            piece_out->offset = number * share->block_bytes;
            piece_out->bytes = stk_min(share->block_bytes, shard_bytes - piece_out->offset);
        }
        share->locked.seen[bit / 8] |= (uint8_t)(1u << bit % 8);
        if (range->is_object || range->offset + range->bytes <= end) {
            share->locked.has_range = false;
        } else {
            range->bytes -= end - range->offset;
            range->offset = end;
        }
        if (is_new) {
            return true;
        }
    }
    return false;
}

bool stk_prewarm_share_next(struct stk_prewarm_share *share, struct stk_prewarm_piece *piece_out)
{
    uint64_t budget = share->options.budget_bytes, sample;
    bool found = false;

    pthread_mutex_lock(&share->lock);
    while (!found && (budget == 0 || share->locked.planned < budget)) {
        found = take_block_locked(share, piece_out);
        if (found && budget > 0 && piece_out->bytes > budget - share->locked.planned) {
            found = false;
            share->locked.planned = budget; /* the next block does not fit */
        } else if (found) {
            share->locked.planned += piece_out->bytes;
        } else if (!next_sample_locked(share, &sample)) {
            break;
        } else {
            share->locked.has_range = range_of(share, sample, &share->locked.range);
        }
    }
    pthread_mutex_unlock(&share->lock);
    return found;
}

/* Reads a byte of each block of [offset, offset + bytes). */
static int read_blocks(const struct stk_prewarm_share *share, struct stk_file *file,
                       uint64_t offset, uint64_t bytes, struct stoker_error *error)
{
    uint8_t byte;

    for (uint64_t at = offset; at < offset + bytes; at += share->block_bytes) {
        int64_t got = stk_io_read_wait(file, at, &byte, 1);

        if (got < 0) {
            return stk_io_fail_read(file, got, "cannot read a file", error);
        }
    }
    return 0;
}

static int read_piece(struct stk_prewarm_share *share, const struct stk_prewarm_piece *piece,
                      uint64_t *bytes_out, struct stoker_error *error)
{
    struct stk_stat about = {.bytes = piece->bytes};
    struct stk_file *file;
    int status = stk_dataset_pin(share->dataset, piece->shard,
                                 stk_engine_now(share->dataset->engine), &file, error);

    *bytes_out = 0;
    if (status == 0) {
        if (piece->is_object) {
            status = stk_io_stat_file(file, &about, error);
        }
        status = status < 0 ? status : read_blocks(share, file, piece->offset, about.bytes, error);
        stk_dataset_unpin(share->dataset, piece->shard, file);
    }
    if (status < 0) {
        stk_dataset_error_add_location(share->dataset, error, piece->shard, piece->offset, NULL);
        return status;
    }
    *bytes_out = about.bytes;
    return 0;
}

int stk_prewarm_share_read(struct stk_prewarm_share *share, const struct stk_prewarm_piece *piece,
                           uint64_t *bytes_out, struct stoker_error *error)
{
    int status = read_piece(share, piece, bytes_out, error);

    pthread_mutex_lock(&share->lock);
    share->locked.reads--;
    if (status == 0 && piece->is_object) { /* now its size is known */
        share->locked.planned += *bytes_out - stk_min(*bytes_out, 1);
    }
    pthread_mutex_unlock(&share->lock);
    return status;
}

uint64_t stk_prewarm_share_downloaded(const struct stk_prewarm_share *share)
{
    return atomic_load_explicit(&share->cache->counters.bytes_from_origin, memory_order_relaxed) -
           share->downloaded_before;
}

bool stk_prewarm_share_begin_read(struct stk_prewarm_share *share)
{
    uint64_t since = stk_engine_now(share->dataset->engine) - share->opened_ns;
    double allowed = (double)share->options.rate_bytes_max * ((double)since / 1e9);
    uint64_t taken;
    bool may_read;

    pthread_mutex_lock(&share->lock);
    taken = stk_prewarm_share_downloaded(share) + share->locked.reads * share->block_bytes;
    may_read = share->options.rate_bytes_max == 0 || (double)taken <= allowed;
    share->locked.reads += may_read;
    pthread_mutex_unlock(&share->lock);
    return may_read;
}
