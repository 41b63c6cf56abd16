/* The order of an epoch. Letters as in the header: S samples per block, F full blocks, H groups of
 * K blocks each, N samples.
 *
 * Position p is in row p div H of column p mod H, and column c has the samples of group c. Each
 * group takes its K blocks in an order that changes with each epoch, window by window, and shuffles
 * the samples of a window. The left-overs are the samples that belong to no group: F mod H blocks,
 * and the short block. They take rows of every column, at equal distances (left_over.h):
 *
 *   column 0   g g g L g g g L g g g L g      g: the next sample of the group
 *   column 1   g L g g g L g g g L g g g      L: the next left-over, in the order of `pool`
 *
 * So they are spread over the epoch like all other samples, and a position keeps its group.
 *
 * Version 1 put all left-overs in a row, at a position (pool_first) that changes with each epoch.
 * Groups take equal turns before and after it, because pool_first is a multiple of H. */
#include "order/order.h"

#include "base/random.h"
#include "order/left_over.h"

/* The use of a key. Two uses never share random numbers. */
enum use { USE_RUN = 1, USE_EPOCH, USE_SAMPLE, USE_BLOCK, USE_POOL, USE_SLOT };

/* Both versions of the order have the same keys, so that they differ only in the places of the
 * left-overs. */
#define KEYS_VERSION 1
/* Part of both versions, like the order itself: users compare fingerprints in logs years later. Two
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
    uint64_t group, first_block;
    struct stk_permutation blocks, inside; /* of the group, of the window */
};

/* Writes the rows of a column: the samples of the group, and the left-overs between them. */
struct column_writer {
    uint64_t *out;
    uint64_t stride; /* distance between output places */
    uint64_t rows;   /* left to write */
    struct stk_left_over_walk walk;
    uint64_t pooled; /* the next left-over, as an index of the pool */
};

/* Place of a position in its column. */
struct place {
    uint64_t group;
    uint64_t turn;   /* samples of the group before it */
    uint64_t pooled; /* left-over: its index of the pool */
    bool is_left_over;
};

static int check(const struct stk_order_options *options, struct stoker_error *error);
static void lay_out(struct stk_order *order);
static uint64_t sample_of_block(const struct stk_order_epoch *epoch, uint64_t block,
                                uint64_t inner);
static uint64_t sample_of_pool(const struct stk_order_epoch *epoch, uint64_t index);
static uint64_t sample_of_turn(const struct stk_order_epoch *epoch, uint64_t group, uint64_t turn);
static void samples_of_pool(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                            uint64_t *samples_out);
static void samples_of_groups(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                              uint64_t *samples_out);
static void samples_of_column(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                              uint64_t stride, uint64_t *samples_out);
static uint64_t unpermuted_block(const struct stk_order_epoch *epoch, uint64_t block);
static uint64_t position_in_pool(const struct stk_order_epoch *epoch, uint64_t drawn);
static uint64_t position_in_group(const struct stk_order_epoch *epoch, uint64_t block,
                                  uint64_t inner);
static struct window window_of(const struct stk_order *order, uint64_t group, uint64_t block);

int stk_order_init(struct stk_order *order, const struct stk_order_options *options,
                   struct stoker_error *error)
{
    int status = check(options, error);

    *order = (struct stk_order){0};
    if (status < 0) {
        return status;
    }
    order->options = *options;
    order->options.version = options->version ? options->version : STOKER_ORDER_VERSION;
    order->key_run = stk_random_key(stk_random_key(options->seed, KEYS_VERSION), USE_RUN);
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
    if (order->group_blocks > 0) {
        stk_permutation_init(&epoch_out->first_blocks, stk_random_key(epoch_out->key_block, 0),
                             order->group_blocks);
    }
    if (order->full_blocks > 0) {
        __extension__ unsigned __int128 turn = epoch % order->full_blocks;
        epoch_out->rotation = (uint64_t)(turn * groups % order->full_blocks);
    }
    if (order->pool_samples > 0) {
        /* The bias of the remainder is below 2^-8 even for the largest data set. */
        uint64_t place = stk_random_key(key, USE_SLOT) % (order->group_samples + 1);
        epoch_out->pool_first = place * groups;
        stk_permutation_init(&epoch_out->pool, epoch_out->key_pool, order->pool_samples);
    }
}

/* Returns the column's offset, and its number of left-overs in the columns before it. */
static inline const struct stk_order_column *column_of(const struct stk_order_epoch *epoch,
                                                       uint64_t number, uint64_t *offset_out,
                                                       uint64_t *first_out)
{
    const struct stk_order *order = epoch->order;
    const struct stk_order_column *column = &order->columns[number < order->long_columns];

    *offset_out = stk_left_over_offset(column, epoch->key_pool, number);
    *first_out = number * order->columns[0].left_overs + stk_min(number, order->long_columns);
    return column;
}

static inline struct place place_in_column(const struct stk_order_epoch *epoch, uint64_t position)
{
    const struct stk_order *order = epoch->order;
    struct stk_quotient row = stk_divide(position, &order->by_groups), before;
    const struct stk_order_column *column;
    uint64_t offset, first;

    if (order->pool_samples == 0) {
        return (struct place){.group = row.remainder, .turn = row.quotient};
    }
    column = column_of(epoch, row.remainder, &offset, &first);
    before = stk_left_over_before(column, offset, row.quotient);
    return (struct place){
        .group = row.remainder,
        .turn = row.quotient - before.quotient,
        .pooled = first + before.quotient,
        .is_left_over = before.remainder >= column->rows - column->left_overs,
    };
}

static inline struct place place_of(const struct stk_order_epoch *epoch, uint64_t position)
{
    const struct stk_order *order = epoch->order;
    uint64_t skipped;

    if (order->options.version > 1) {
        return place_in_column(epoch, position);
    }
    if (position - epoch->pool_first < order->pool_samples) { /* false also before it: wraps */
        return (struct place){.pooled = position - epoch->pool_first, .is_left_over = true};
    }
    skipped = position < epoch->pool_first ? 0 : order->pool_samples;
    return (struct place){
        .group = stk_divide(position, &order->by_groups).remainder,
        .turn = stk_divide(position - skipped, &order->by_groups).quotient,
    };
}

uint64_t stk_order_left_over_distance(const struct stk_order_epoch *epoch, uint64_t position)
{
    const struct stk_order *order = epoch->order;
    struct stk_quotient row;
    const struct stk_order_column *column;
    uint64_t offset, first, distance;

    STK_ASSERT(position < order->options.sample_count);
    if (order->pool_samples == 0) {
        return UINT64_MAX;
    }
    row = stk_divide(position, &order->by_groups);
    if (order->options.version == 1) {
        distance = (epoch->pool_first - stk_min(position, epoch->pool_first) +
                    order->options.group_count - 1) /
                   order->options.group_count;
        return position + distance * order->options.group_count - epoch->pool_first <
                       order->pool_samples
                   ? distance
                   : UINT64_MAX;
    }
    column = column_of(epoch, row.remainder, &offset, &first);
    distance = stk_left_over_walk_from(column,
                                       stk_left_over_before(column, offset, row.quotient).remainder)
                   .run;
    return distance < column->rows - row.quotient ? distance : UINT64_MAX;
}

uint64_t stk_order_left_over_block(const struct stk_order_epoch *epoch, uint64_t position)
{
    return stk_permutation_apply(&epoch->pool, place_of(epoch, position).pooled) /
           epoch->order->options.block_samples;
}

uint64_t stk_order_sample(const struct stk_order_epoch *epoch, uint64_t position)
{
    const struct stk_order *order = epoch->order;
    uint64_t count = order->options.sample_count;
    struct place place;

    STK_ASSERT(position < count);
    switch (order->options.shuffle) {
    case STOKER_SHUFFLE_NONE:
        return position;
    case STOKER_SHUFFLE_FULL:
        return stk_permutation_apply(&epoch->full, position);
    default:
        break;
    }
    place = place_of(epoch, position);
    return place.is_left_over ? sample_of_pool(epoch, place.pooled)
                              : sample_of_turn(epoch, place.group, place.turn);
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
    if (epoch->order->options.version > 1) {
        samples_of_groups(epoch, first, count, samples_out);
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
    if (options->version > 1 && count > 0) {
        samples_of_column(epoch, first, count, 1, samples_out);
        return;
    }
    while (count > 0) {
        bool in_pool = first >= pool && first < pool_end;
        uint64_t end = first < pool ? pool : in_pool ? pool_end : options->sample_count;
        uint64_t piece = stk_min(count, (end - 1 - first) / groups + 1);

        if (in_pool) {
            for (uint64_t i = 0; i < piece; i++) {
                samples_of_pool(epoch, first + i * groups, 1, samples_out + i);
            }
        } else {
            samples_of_column(epoch, first, piece, 1, samples_out);
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
    if (options->version > STOKER_ORDER_VERSION) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "unknown version of the order",
                        "use order version 1 or 2, or a newer stoker", "order version %u",
                        options->version);
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
                        "%u groups; %llu complete blocks: %llu groups at most",
                        options->group_count, (unsigned long long)blocks,
                        (unsigned long long)stk_max(1, blocks / STK_ORDER_GROUP_BLOCKS_MIN));
    }
    return 0;
}

/* Computes the counts of a block shuffle. No product here exceeds sample_count. */
static void lay_out(struct stk_order *order)
{
    const struct stk_order_options *options = &order->options;
    uint64_t groups = options->group_count;

    order->by_groups = stk_divisor_of(groups);
    order->by_block = stk_divisor_of(options->block_samples);
    order->full_blocks = options->sample_count / options->block_samples;
    order->group_blocks = order->full_blocks / groups;
    order->group_samples = order->group_blocks * options->block_samples;
    order->pool_samples = options->sample_count - groups * order->group_samples;
    order->long_columns = options->sample_count % groups;
    for (uint64_t i = 0; i < STK_COUNT(order->columns); i++) {
        uint64_t rows = options->sample_count / groups + i;

        order->columns[i] = stk_left_over_column(rows, rows - order->group_samples);
    }
    stk_permutation_init(&order->deal, order->key_run, order->full_blocks);
    if (order->group_blocks > 0) {
        order->windows = (order->group_blocks - 1) / options->window_blocks + 1;
        order->window_base = order->group_blocks / order->windows;
        order->window_extra = order->group_blocks % order->windows;
        order->by_base = stk_divisor_of(order->window_base);
        order->by_longer = stk_divisor_of(order->window_base + 1);
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
    return pooled(epoch, stk_permutation_apply(&epoch->pool, index));
}

static void samples_of_pool(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                            uint64_t *samples_out)
{
    for (uint64_t i = 0; i < count; i++) {
        samples_out[i] = sample_of_pool(epoch, first - epoch->pool_first + i);
    }
}

static uint64_t sample_of_turn(const struct stk_order_epoch *epoch, uint64_t group, uint64_t turn)
{
    const struct stk_order *order = epoch->order;
    uint64_t groups = order->options.group_count;
    uint64_t block_samples = order->options.block_samples;
    struct window window = window_of(order, group, stk_divide(turn, &order->by_block).quotient);
    uint64_t start = window.first * block_samples;
    struct stk_quotient drawn;
    uint64_t block;

    drawn =
        stk_divide(stk_permute(stk_random_key(epoch->key_sample, window.number * groups + group),
                               turn - start, window.blocks * block_samples),
                   &order->by_block);
    block = window.first + drawn.quotient;
    block = group == 0
                ? stk_permutation_apply(&epoch->first_blocks, block)
                : stk_permute(stk_random_key(epoch->key_block, group), block, order->group_blocks);
    return sample_of_block(epoch, block * groups + group, drawn.remainder);
}

/* Writes the left-overs that are due, until a sample of the group is due or no row is left. */
static void write_left_overs(const struct stk_order_epoch *epoch, struct column_writer *writer)
{
    for (; writer->walk.run == 0 && writer->rows > 0; writer->rows--) {
        *writer->out = sample_of_pool(epoch, writer->pooled++);
        writer->out += writer->stride;
        stk_left_over_walk_next(&writer->walk);
    }
}

/* Writes samples of the group, and the left-overs after each of them. */
static void write_turns(const struct stk_order_epoch *epoch, struct column_writer *writer,
                        const uint64_t *blocks, const uint64_t *inner, uint64_t count)
{
    uint64_t block_samples = epoch->order->options.block_samples;

    for (uint64_t done = 0, run; done < count; done += run) {
        uint64_t *out = writer->out, stride = writer->stride;

        run = stk_min(count - done, writer->walk.run);
        for (uint64_t i = 0; i < run; i++) {
            out[i * stride] = blocks[done + i] * block_samples + inner[done + i];
        }
        writer->out += run * stride;
        writer->rows -= run;
        writer->walk.run -= run;
        write_left_overs(epoch, writer);
    }
}

/* Computes the samples of `count` turns from `turn` on, in one window of a group. count is at most
 * STK_PERMUTE_STRIDE. */
static void samples_of_window(const struct stk_order_epoch *epoch, const struct pass *pass,
                              uint64_t turn, uint32_t count, struct column_writer *writer)
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
        struct stk_quotient place = stk_divide(drawn[i], &order->by_block);

        drawn[i] = pass->first_block + place.quotient;
        inner[i] = place.remainder;
    }
    stk_permutation_apply_all(&pass->blocks, drawn, count);
    if (groups > 1) { /* same rule as in sample_of_block */
        for (uint32_t i = 0; i < count; i++) {
            drawn[i] = rotated(epoch, drawn[i] * groups + pass->group);
        }
        stk_permutation_apply_all(&order->deal, drawn, count);
    }
    write_turns(epoch, writer, drawn, inner, count);
}

/* Sets *blocks_out to the order of the group's blocks. */
static void blocks_of_group(const struct stk_order_epoch *epoch, uint64_t group,
                            struct stk_permutation *blocks_out)
{
    *blocks_out = epoch->first_blocks;
    if (group > 0) {
        stk_permutation_init(blocks_out, stk_random_key(epoch->key_block, group),
                             epoch->order->group_blocks);
    }
}

/* Computes `count` samples of a group from `turn` on. Computes the keys of the group and of each
 * window only once. */
static void samples_of_turns(const struct stk_order_epoch *epoch, uint64_t group, uint64_t turn,
                             uint64_t count, struct column_writer *writer)
{
    const struct stk_order *order = epoch->order;
    uint64_t groups = order->options.group_count, block_samples = order->options.block_samples;
    uint64_t turns_end = turn + count;
    struct pass pass = {.group = group};

    blocks_of_group(epoch, group, &pass.blocks);
    while (turn < turns_end) {
        struct window window = window_of(order, group, stk_divide(turn, &order->by_block).quotient);
        uint64_t start = window.first * block_samples;
        uint64_t end = stk_min(start + window.blocks * block_samples, turns_end);

        pass.first_block = window.first;
        stk_permutation_init(&pass.inside,
                             stk_random_key(epoch->key_sample, window.number * groups + group),
                             window.blocks * block_samples);
        for (uint64_t piece; turn < end; turn += piece) {
            piece = stk_min(end - turn, STK_PERMUTE_STRIDE);
            samples_of_window(epoch, &pass, turn - start, (uint32_t)piece, writer);
        }
    }
}

/* Computes the samples at first, first + groups, ...; in version 1, all on one side of the pool.
 * count > 0. Writes to every stride-th place of samples_out. */
static void samples_of_column(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                              uint64_t stride, uint64_t *samples_out)
{
    static const struct stk_order_column no_left_overs = {0};
    const struct stk_order *order = epoch->order;
    struct place place = place_of(epoch, first);
    struct column_writer writer = {.out = samples_out, .stride = stride, .rows = count};
    const struct stk_order_column *column = &no_left_overs;
    uint64_t row, offset, before = 0, group_rows = count;

    if (order->options.version > 1 && order->pool_samples > 0) {
        struct stk_quotient start, stop;

        column = column_of(epoch, place.group, &offset, &writer.pooled);
        row = stk_divide(first, &order->by_groups).quotient;
        start = stk_left_over_before(column, offset, row);
        stop = stk_left_over_before(column, offset, row + count);
        writer.pooled += start.quotient;
        group_rows -= stop.quotient - start.quotient;
        before = start.remainder;
    }
    writer.walk = stk_left_over_walk_from(column, before);
    write_left_overs(epoch, &writer);
    if (group_rows > 0) {
        samples_of_turns(epoch, place.group, place.turn, group_rows, &writer);
    }
}

/* Does the same, column by column, for a range of positions. */
static void samples_of_groups(const struct stk_order_epoch *epoch, uint64_t first, uint64_t count,
                              uint64_t *samples_out)
{
    uint64_t groups = epoch->order->options.group_count;

    for (uint64_t offset = 0; offset < stk_min(groups, count); offset++) {
        samples_of_column(epoch, first + offset, (count - offset - 1) / groups + 1, groups,
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
    const struct stk_order *order = epoch->order;
    uint64_t index = stk_permutation_invert(&epoch->pool, drawn), offset, first;
    uint64_t longer = order->columns[1].left_overs, in_longer = order->long_columns * longer;
    uint64_t number;
    const struct stk_order_column *column;

    if (order->options.version == 1) {
        return epoch->pool_first + index;
    }
    number = index < in_longer
                 ? index / longer
                 : order->long_columns + (index - in_longer) / order->columns[0].left_overs;
    column = column_of(epoch, number, &offset, &first);
    return stk_left_over_row(column, offset, index - first) * order->options.group_count + number;
}

/* The inverse of sample_of_turn and place_of. In version 1, a turn after the pool may begin at any
 * group, but the positions of a group still have the group's remainder. */
static uint64_t position_in_group(const struct stk_order_epoch *epoch, uint64_t block,
                                  uint64_t inner)
{
    const struct stk_order *order = epoch->order;
    uint64_t groups = order->options.group_count, block_samples = order->options.block_samples;
    uint64_t group = block % groups, at, turn;
    struct stk_permutation blocks, inside;
    struct window window;

    blocks_of_group(epoch, group, &blocks);
    at = stk_permutation_invert(&blocks, block / groups);
    window = window_of(order, group, at);
    stk_permutation_init(&inside, stk_random_key(epoch->key_sample, window.number * groups + group),
                         window.blocks * block_samples);
    turn = window.first * block_samples +
           stk_permutation_invert(&inside, (at - window.first) * block_samples + inner);
    if (order->options.version > 1) {
        uint64_t offset, first;
        const struct stk_order_column *column = column_of(epoch, group, &offset, &first);

        return stk_left_over_row_of_turn(column, offset, turn) * groups + group;
    }
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
        order->windows > 1 ? stk_divide(group * order->window_base, &order->by_groups).quotient : 0;
    uint64_t at = block + late;
    uint64_t longer = order->window_base + 1, border = order->window_extra * longer;
    uint64_t number, start, end;

    if (at < border) {
        number = stk_divide(at, &order->by_longer).quotient;
        start = number * longer;
        end = start + longer;
    } else {
        uint64_t past = stk_divide(at - border, &order->by_base).quotient;
        number = order->window_extra + past;
        start = border + past * order->window_base;
        end = start + order->window_base;
    }
    start = start > late ? start - late : 0;
    end = stk_min(end - late, order->group_blocks);
    return (struct window){.first = start, .blocks = end - start, .number = number};
}
