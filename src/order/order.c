/* The order of an epoch. Letters as in the header: S samples per block, F full blocks, H groups of
 * K blocks each.
 *
 * Positions of an epoch with a block shuffle:
 *
 *   0                    pool_first        pool_first + pool_samples                    N
 *   |  groups, interleaved   |        pool        |        groups, interleaved          |
 *
 * Position p belongs to group p mod H everywhere except in the pool. Each group takes its K blocks
 * in an order that changes with each epoch, window by window, and shuffles the samples of a
 * window. The pool contains the samples that belong to no group: F mod H blocks and the samples
 * after the last full block. If the pool were always last, a dropped tail would drop the same
 * samples in every epoch. Therefore its place is random in each epoch. Groups take equal turns on
 * both sides of the pool, because the numbers of positions before and after it are multiples of
 * H. */
#include "order/order.h"

#include "base/random.h"

/* The use of a key. Two uses never share random numbers. */
enum use { USE_RUN = 1, USE_EPOCH, USE_SAMPLE, USE_BLOCK, USE_POOL, USE_SLOT };

/* Part of version 1, like the order itself: users compare fingerprints in logs years later. Two
 * odd factors distinguish positions from samples; one mix step then makes terms that do not
 * cancel. */
#define FINGERPRINT_KEY UINT64_C(0x73746f6b65722031) /* "stoker 1" */
#define FINGERPRINT_POSITION UINT64_C(0x9e3779b97f4a7c15)
#define FINGERPRINT_SAMPLE UINT64_C(0xd6e8feb86659fd93)
#define FINGERPRINT_STRIDE 1024u /* positions per step, on the stack */

struct window {
    uint64_t first;  /* first block, as an index in the group's order */
    uint64_t blocks; /* > 0 */
    uint64_t number; /* unique within the group */
};

/* Values that all positions of one group in one window share. */
struct pass {
    uint64_t group, first_block, stride;   /* stride: distance between output places */
    struct stk_permutation blocks, inside; /* of the group, of the window */
};

struct quotient {
    uint64_t whole, rest;
};

static int check(const struct stk_order_options *options, struct stoker_error *error);
static void lay_out(struct stk_order *order);
static uint64_t sample_of_block(const struct stk_order_epoch *epoch, uint64_t block,
                                uint64_t inner);
static uint64_t sample_of_pool(const struct stk_order_epoch *epoch, uint64_t index);
static uint64_t sample_of_group(const struct stk_order_epoch *epoch, uint64_t position);
static void samples_of_pool(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                            uint64_t *samples_out);
static void samples_of_groups(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                              uint64_t *samples_out);
static void samples_of_group(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                             uint64_t stride, uint64_t *samples_out);
static uint64_t unpermuted_block(const struct stk_order_epoch *epoch, uint64_t block);
static uint64_t position_in_pool(const struct stk_order_epoch *epoch, uint64_t drawn);
static uint64_t position_in_group(const struct stk_order_epoch *epoch, uint64_t block,
                                  uint64_t inner);
static struct window window_of(const struct stk_order *order, uint64_t group, uint64_t block);

static struct stk_divisor divisor(uint64_t number)
{
    return (struct stk_divisor){number, UINT64_MAX / number};
}

/* If value < 2^56, the product is less than 1 + 2^-7 below value / number, so its integer part is
 * the quotient or the quotient - 1. */
static inline struct quotient divide(uint64_t value, const struct stk_divisor *by)
{
    __extension__ unsigned __int128 product = (unsigned __int128)value * by->reciprocal;
    uint64_t whole = product >> 64;
    uint64_t rest = value - whole * by->number;
    uint64_t more = rest >= by->number;

    return (struct quotient){whole + more, rest - (by->number & -more)};
}

int stk_order_init(struct stk_order *order, const struct stk_order_options *options,
                   struct stoker_error *error)
{
    int status = check(options, error);

    *order = (struct stk_order){0};
    if (status < 0) {
        return status;
    }
    order->options = *options;
    order->key_run = stk_random_key(stk_random_key(options->seed, STOKER_ORDER_VERSION), USE_RUN);
    if (options->shuffle == STOKER_SHUFFLE_BLOCK) {
        lay_out(order);
    }
    return 0;
}

void stk_order_epoch_begin(struct stk_order_epoch *epoch_out, const struct stk_order *order,
                           uint64_t epoch)
{
    uint64_t key = stk_random_key(stk_random_key(order->key_run, USE_EPOCH), epoch);
    uint64_t groups = order->options.group_count;

    *epoch_out = (struct stk_order_epoch){
        .order = order,
        .epoch = epoch,
        .key_sample = stk_random_key(key, USE_SAMPLE),
        .key_block = stk_random_key(key, USE_BLOCK),
        .key_pool = stk_random_key(key, USE_POOL),
        .key_print = stk_random_key(FINGERPRINT_KEY, epoch),
    };
    if (order->options.shuffle == STOKER_SHUFFLE_FULL) {
        stk_permutation_init(&epoch_out->full, epoch_out->key_sample, order->options.sample_count);
    }
    if (order->full_blocks > 0) {
        __extension__ unsigned __int128 turn = epoch % order->full_blocks;
        epoch_out->rotation = (uint64_t)(turn * groups % order->full_blocks);
    }
    if (order->pool_samples > 0) {
        /* The bias of the remainder is below 2^-8 even for the largest data set. */
        uint64_t place = stk_random_key(key, USE_SLOT) % (order->group_samples + 1);
        epoch_out->pool_first = place * groups;
    }
}

uint64_t stk_order_sample(const struct stk_order_epoch *epoch, uint64_t position)
{
    const struct stk_order *order = epoch->order;
    uint64_t count = order->options.sample_count;

    STK_ASSERT(position < count);
    switch (order->options.shuffle) {
    case STOKER_SHUFFLE_NONE:
        return position;
    case STOKER_SHUFFLE_FULL:
        return stk_permutation_apply(&epoch->full, position);
    default:
        break;
    }
    if (position - epoch->pool_first < order->pool_samples) { /* false also before it: wraps */
        return sample_of_pool(epoch, position - epoch->pool_first);
    }
    return sample_of_group(epoch, position);
}

void stk_order_samples(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                       uint64_t *samples_out)
{
    uint64_t pool = epoch->pool_first, pool_end = pool + epoch->order->pool_samples;
    uint64_t end = first + count, piece_end;

    STK_ASSERT(count <= epoch->order->options.sample_count &&
               first <= epoch->order->options.sample_count - count);
    if (epoch->order->options.shuffle != STOKER_SHUFFLE_BLOCK) {
        for (uint64_t i = 0; i < count; i++) {
            samples_out[i] = first + i;
        }
        for (uint64_t i = 0, piece;
             epoch->order->options.shuffle == STOKER_SHUFFLE_FULL && i < count; i += piece) {
            piece = stk_min(count - i, STK_PERMUTE_STRIDE);
            stk_permutation_apply_all(&epoch->full, samples_out + i, (uint32_t)piece);
        }
        return;
    }
    for (; first < end; first = piece_end) {
        bool in_pool = first >= pool && first < pool_end;

        piece_end = stk_min(end, first < pool ? pool : in_pool ? pool_end : end);
        (in_pool ? samples_of_pool : samples_of_groups)(epoch, first, piece_end - first,
                                                        samples_out);
        samples_out += piece_end - first;
    }
}

void stk_order_samples_strided(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                               uint64_t *samples_out)
{
    const struct stk_order_options *options = &epoch->order->options;
    uint64_t pool = epoch->pool_first, pool_end = pool + epoch->order->pool_samples;
    uint64_t groups = options->group_count;

    if (options->shuffle != STOKER_SHUFFLE_BLOCK) {
        for (uint64_t i = 0; i < count; i++) {
            samples_out[i] = stk_order_sample(epoch, first + i * groups);
        }
        return;
    }
    STK_ASSERT(count == 0 || (first < options->sample_count &&
                              count - 1 <= (options->sample_count - 1 - first) / groups));
    while (count > 0) {
        bool in_pool = first >= pool && first < pool_end;
        uint64_t end = first < pool ? pool : in_pool ? pool_end : options->sample_count;
        uint64_t piece = stk_min(count, (end - 1 - first) / groups + 1);

        if (in_pool) {
            for (uint64_t i = 0; i < piece; i++) {
                samples_of_pool(epoch, first + i * groups, 1, samples_out + i);
            }
        } else {
            samples_of_group(epoch, first, piece, 1, samples_out);
        }
        first += piece * groups;
        samples_out += piece;
        count -= piece;
    }
}

uint64_t stk_order_position(const struct stk_order_epoch *epoch, uint64_t sample)
{
    const struct stk_order *order = epoch->order;
    const struct stk_order_options *options = &order->options;
    uint64_t full = order->full_blocks * options->block_samples;
    uint64_t dealt = order->group_blocks * options->group_count;
    uint64_t inner, block;

    STK_ASSERT(sample < options->sample_count);
    switch (options->shuffle) {
    case STOKER_SHUFFLE_NONE:
        return sample;
    case STOKER_SHUFFLE_FULL:
        return stk_permutation_invert(&epoch->full, sample);
    default:
        break;
    }
    if (sample >= full) { /* the short tail follows the remaining blocks */
        return position_in_pool(epoch, sample - full +
                                           (order->full_blocks - dealt) * options->block_samples);
    }
    block = unpermuted_block(epoch, sample / options->block_samples);
    inner = sample % options->block_samples;
    if (block >= dealt) {
        return position_in_pool(epoch, (block - dealt) * options->block_samples + inner);
    }
    return position_in_group(epoch, block, inner);
}

uint64_t stk_order_fingerprint_term(const struct stk_order_epoch *epoch, uint64_t position,
                                    uint64_t sample)
{
    return stk_mix64(epoch->key_print + position * FINGERPRINT_POSITION +
                     sample * FINGERPRINT_SAMPLE);
}

uint64_t stk_order_fingerprint(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count)
{
    uint64_t samples[FINGERPRINT_STRIDE], sum = 0;

    while (count > 0) {
        uint64_t piece = stk_min(count, FINGERPRINT_STRIDE);

        stk_order_samples(epoch, first, piece, samples);
        sum += stk_order_fingerprint_of(epoch->epoch, first, piece, samples);
        first += piece;
        count -= piece;
    }
    return sum;
}

uint64_t stk_order_fingerprint_of(uint64_t epoch, uint64_t first, uint64_t count,
                                  const uint64_t *samples)
{
    uint64_t key = stk_random_key(FINGERPRINT_KEY, epoch), sum = 0;

    for (uint64_t i = 0; i < count; i++) {
        sum +=
            stk_mix64(key + (first + i) * FINGERPRINT_POSITION + samples[i] * FINGERPRINT_SAMPLE);
    }
    return sum;
}

int stoker_order_at(uint64_t sample_count, uint64_t block_samples, uint32_t window_blocks,
                    uint32_t group_count, uint32_t shuffle, uint64_t seed, uint64_t epoch,
                    uint64_t position, uint64_t *sample_out)
{
    struct stk_order_options options = {
        .sample_count = sample_count,
        .block_samples = block_samples,
        .window_blocks = window_blocks,
        .group_count = group_count,
        .shuffle = shuffle,
        .seed = seed,
    };
    struct stk_order order;
    struct stk_order_epoch keys;
    int status = stk_order_init(&order, &options, NULL);

    if (status < 0) {
        return status;
    }
    if (position >= sample_count || !sample_out) {
        return STOKER_ERROR_ARGUMENT;
    }
    stk_order_epoch_begin(&keys, &order, epoch);
    *sample_out = stk_order_sample(&keys, position);
    return 0;
}

static int check(const struct stk_order_options *options, struct stoker_error *error)
{
    uint64_t blocks;

    if (options->sample_count > STK_ORDER_SAMPLES_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many samples for one order",
                        "split the data set", "sample_count %llu, at most 2^56",
                        (unsigned long long)options->sample_count);
    }
    if (options->shuffle < STOKER_SHUFFLE_BLOCK || options->shuffle > STOKER_SHUFFLE_NONE) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "unknown shuffle", "use block, full or none",
                        "shuffle %u", options->shuffle);
    }
    if (options->shuffle != STOKER_SHUFFLE_BLOCK) {
        return 0;
    }
    if (!options->block_samples || !options->window_blocks || !options->group_count) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a count of the block shuffle is 0",
                        "give 1 or more of each",
                        "block_samples %llu window_blocks %u group_count %u",
                        (unsigned long long)options->block_samples, options->window_blocks,
                        options->group_count);
    }
    blocks = options->sample_count / options->block_samples;
    if (options->group_count > 1 && blocks / options->group_count < STK_ORDER_GROUP_BLOCKS_MIN) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many groups for the data set",
                        "use fewer groups, or smaller blocks",
                        "group_count %u, but %llu blocks allow at most %llu", options->group_count,
                        (unsigned long long)blocks,
                        (unsigned long long)stk_max(1, blocks / STK_ORDER_GROUP_BLOCKS_MIN));
    }
    return 0;
}

/* Computes the counts of a block shuffle. No product here exceeds sample_count. */
static void lay_out(struct stk_order *order)
{
    const struct stk_order_options *options = &order->options;
    uint64_t groups = options->group_count;

    order->by_groups = divisor(groups);
    order->by_block = divisor(options->block_samples);
    order->full_blocks = options->sample_count / options->block_samples;
    order->group_blocks = order->full_blocks / groups;
    order->group_samples = order->group_blocks * options->block_samples;
    order->pool_samples = options->sample_count - groups * order->group_samples;
    stk_permutation_init(&order->deal, order->key_run, order->full_blocks);
    if (order->group_blocks > 0) {
        order->windows = (order->group_blocks - 1) / options->window_blocks + 1;
        order->window_base = order->group_blocks / order->windows;
        order->window_extra = order->group_blocks % order->windows;
        order->by_base = divisor(order->window_base);
        order->by_longer = divisor(order->window_base + 1);
    }
}

static inline uint64_t rotated(const struct stk_order_epoch *epoch, uint64_t block)
{
    uint64_t dealt = block + epoch->rotation;

    return dealt - (dealt >= epoch->order->full_blocks ? epoch->order->full_blocks : 0);
}

/* `block` is an index in the sequence in which the epoch assigns blocks: the first K * H blocks
 * are assigned to the groups in turn, the rest to the pool. The assignment is the same in every
 * epoch except for the rotation. So a node finds most of its blocks in its cache, and each epoch
 * leaves other blocks for the pool. */
static uint64_t sample_of_block(const struct stk_order_epoch *epoch, uint64_t block, uint64_t inner)
{
    const struct stk_order *order = epoch->order;

    /* A single group has all blocks, already in an order of the epoch. */
    if (order->options.group_count > 1) {
        block = stk_permutation_apply(&order->deal, rotated(epoch, block));
    }
    return block * order->options.block_samples + inner;
}

/* `drawn` is an index in the pool: first the samples of its blocks, then the short tail. */
static uint64_t pooled(const struct stk_order_epoch *epoch, uint64_t drawn)
{
    const struct stk_order *order = epoch->order;
    uint64_t block_samples = order->options.block_samples;
    uint64_t dealt = order->group_blocks * order->options.group_count;
    uint64_t left_over = order->full_blocks - dealt;

    if (drawn < left_over * block_samples) {
        return sample_of_block(epoch, dealt + drawn / block_samples, drawn % block_samples);
    }
    return order->full_blocks * block_samples + (drawn - left_over * block_samples);
}

static uint64_t sample_of_pool(const struct stk_order_epoch *epoch, uint64_t index)
{
    return pooled(epoch, stk_permute(epoch->key_pool, index, epoch->order->pool_samples));
}

static void samples_of_pool(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                            uint64_t *samples_out)
{
    struct stk_permutation pool;

    stk_permutation_init(&pool, epoch->key_pool, epoch->order->pool_samples);
    for (uint64_t i = 0; i < count; i++) {
        samples_out[i] = pooled(epoch, stk_permutation_apply(&pool, first - epoch->pool_first + i));
    }
}

static uint64_t sample_of_group(const struct stk_order_epoch *epoch, uint64_t position)
{
    const struct stk_order *order = epoch->order;
    uint64_t groups = order->options.group_count;
    uint64_t block_samples = order->options.block_samples;
    uint64_t skipped = position < epoch->pool_first ? 0 : order->pool_samples;
    struct quotient round = divide(position - skipped, &order->by_groups);
    uint64_t turn = round.whole, group = divide(position, &order->by_groups).rest;
    struct window window = window_of(order, group, divide(turn, &order->by_block).whole);
    uint64_t start = window.first * block_samples;
    struct quotient drawn;
    uint64_t block;

    drawn = divide(stk_permute(stk_random_key(epoch->key_sample, window.number * groups + group),
                               turn - start, window.blocks * block_samples),
                   &order->by_block);
    block = stk_permute(stk_random_key(epoch->key_block, group), window.first + drawn.whole,
                        order->group_blocks);
    return sample_of_block(epoch, block * groups + group, drawn.rest);
}

/* Computes the samples of `count` turns from `turn` on, in one window of a group. count is at most
 * STK_PERMUTE_STRIDE. Writes them to every stride-th place of samples_out. */
static void samples_of_window(const struct stk_order_epoch *epoch, const struct pass *pass,
                              uint64_t turn, uint32_t count, uint64_t *samples_out)
{
    const struct stk_order *order = epoch->order;
    uint64_t groups = order->options.group_count;
    uint64_t drawn[STK_PERMUTE_STRIDE];
    uint64_t inner[STK_PERMUTE_STRIDE];

    for (uint32_t i = 0; i < count; i++) {
        drawn[i] = turn + i;
    }
    stk_permutation_apply_all(&pass->inside, drawn, count);
    for (uint32_t i = 0; i < count; i++) {
        struct quotient place = divide(drawn[i], &order->by_block);

        drawn[i] = pass->first_block + place.whole;
        inner[i] = place.rest;
    }
    stk_permutation_apply_all(&pass->blocks, drawn, count);
    if (groups > 1) { /* same rule as in sample_of_block */
        for (uint32_t i = 0; i < count; i++) {
            drawn[i] = rotated(epoch, drawn[i] * groups + pass->group);
        }
        stk_permutation_apply_all(&order->deal, drawn, count);
    }
    for (uint32_t i = 0; i < count; i++) {
        samples_out[i * pass->stride] = drawn[i] * order->options.block_samples + inner[i];
    }
}

/* Computes the samples at first, first + groups, ..., all on one side of the pool. Computes the
 * keys of the group and of each window only once. Writes to every stride-th place of
 * samples_out. */
static void samples_of_group(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                             uint64_t stride, uint64_t *samples_out)
{
    const struct stk_order *order = epoch->order;
    uint64_t groups = order->options.group_count, block_samples = order->options.block_samples;
    uint64_t skipped = first < epoch->pool_first ? 0 : order->pool_samples;
    uint64_t group = divide(first, &order->by_groups).rest;
    uint64_t turn = divide(first - skipped, &order->by_groups).whole, rounds_end = turn + count;
    struct pass pass = {.group = group, .stride = stride};

    stk_permutation_init(&pass.blocks, stk_random_key(epoch->key_block, group),
                         order->group_blocks);
    while (turn < rounds_end) {
        struct window window = window_of(order, group, divide(turn, &order->by_block).whole);
        uint64_t start = window.first * block_samples;
        uint64_t end = stk_min(start + window.blocks * block_samples, rounds_end);

        pass.first_block = window.first;
        stk_permutation_init(&pass.inside,
                             stk_random_key(epoch->key_sample, window.number * groups + group),
                             window.blocks * block_samples);
        for (uint64_t piece; turn < end; turn += piece, samples_out += piece * stride) {
            piece = stk_min(end - turn, STK_PERMUTE_STRIDE);
            samples_of_window(epoch, &pass, turn - start, (uint32_t)piece, samples_out);
        }
    }
}

/* Does the same, group by group, for a range of positions on one side of the pool. */
static void samples_of_groups(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                              uint64_t *samples_out)
{
    uint64_t groups = epoch->order->options.group_count;

    for (uint64_t offset = 0; offset < stk_min(groups, count); offset++) {
        samples_of_group(epoch, first + offset, (count - offset - 1) / groups + 1, groups,
                         samples_out + offset);
    }
}

/* The inverse of the block mapping in sample_of_block. */
static uint64_t unpermuted_block(const struct stk_order_epoch *epoch, uint64_t block)
{
    const struct stk_order *order = epoch->order;

    if (order->options.group_count == 1) {
        return block;
    }
    block = stk_permutation_invert(&order->deal, block);
    return block >= epoch->rotation ? block - epoch->rotation
                                    : block + order->full_blocks - epoch->rotation;
}

static uint64_t position_in_pool(const struct stk_order_epoch *epoch, uint64_t drawn)
{
    struct stk_permutation pool;

    stk_permutation_init(&pool, epoch->key_pool, epoch->order->pool_samples);
    return epoch->pool_first + stk_permutation_invert(&pool, drawn);
}

/* The inverse of sample_of_group. After the pool, a turn may begin at any group, but the positions
 * of a group still have the group's remainder. */
static uint64_t position_in_group(const struct stk_order_epoch *epoch, uint64_t block,
                                  uint64_t inner)
{
    const struct stk_order *order = epoch->order;
    uint64_t groups = order->options.group_count, block_samples = order->options.block_samples;
    uint64_t group = block % groups, at, turn;
    struct stk_permutation blocks, inside;
    struct window window;

    stk_permutation_init(&blocks, stk_random_key(epoch->key_block, group), order->group_blocks);
    at = stk_permutation_invert(&blocks, block / groups);
    window = window_of(order, group, at);
    stk_permutation_init(&inside, stk_random_key(epoch->key_sample, window.number * groups + group),
                         window.blocks * block_samples);
    turn = window.first * block_samples +
           stk_permutation_invert(&inside, (at - window.first) * block_samples + inner);
    if (turn * groups < epoch->pool_first) {
        return turn * groups + group;
    }
    return turn * groups + order->pool_samples +
           (group + groups - order->pool_samples % groups) % groups;
}

/* Finds the window of a group that contains the block. All windows have the same length or one
 * block more. The windows of group g are shifted by g / H of a window, so that the groups do not
 * all change to new blocks at the same time. The group's first window is shorter by the shift, and
 * the remaining piece is the last window. */
static struct window window_of(const struct stk_order *order, uint64_t group, uint64_t block)
{
    uint64_t late =
        order->windows > 1 ? divide(group * order->window_base, &order->by_groups).whole : 0;
    uint64_t at = block + late;
    uint64_t longer = order->window_base + 1, border = order->window_extra * longer;
    uint64_t number, start, end;

    if (at < border) {
        number = divide(at, &order->by_longer).whole;
        start = number * longer;
        end = start + longer;
    } else {
        uint64_t past = divide(at - border, &order->by_base).whole;
        number = order->window_extra + past;
        start = border + past * order->window_base;
        end = start + order->window_base;
    }
    start = start > late ? start - late : 0;
    end = stk_min(end - late, order->group_blocks);
    return (struct window){.first = start, .blocks = end - start, .number = number};
}
