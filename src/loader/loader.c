/* The public functions of a loader: open, next, set_epoch. loader_close.c has close. */
#include "base/mem.h"
#include "base/options.h"
#include "base/retry.h"
#include "base/thread.h"
#include "engine/worker.h"
#include "loader/fetch/fetcher.h"
#include "loader/loader_close.h"
#include "loader/loader_future.h"
#include "loader/loader_state.h"
#include "loader/pending/loader_maps.h"
#include "loader/pending/pending_batch.h"
#include "loader/pending/quarantine.h"
#include "loader/worker_steps.h"

#include <errno.h>
#include <string.h>

/* Initial read-ahead, shared by the worker processes of a rank: enough for a local disk; for slow
 * storage it grows. */
#define AHEAD_BYTES (64u << 20)
#define AHEAD_DEFAULT_MAX 16u
#define MEMORY_WAIT_NS 10000000000ull
/* A caller that holds batches gets the error sooner, but not if memory is short for a moment only.
 */
#define MEMORY_WAIT_HOLDING_NS 100000000ull
#define MEMORY_POLL_NS 20000000ull

static int check_budget(const struct stoker_loader *loader, struct stoker_error *error);
static int open_policy(struct stoker_loader *loader, const struct stoker_loader_options *options,
                       struct stoker_error *error);
static int open_order(struct stoker_loader *loader, const struct stoker_loader_options *options,
                      struct stoker_error *error);
static int open_pool(struct stoker_loader *loader, struct stoker_error *error);
static uint64_t trim_locked(struct stk_engine_client *client);
static void memory_returned_locked(struct stk_engine_client *client);
static bool wants_memory_locked(const struct stk_engine_client *client);
static bool waits_for_bytes_locked(const struct stk_engine_client *client);
static bool drop_read_ahead_locked(struct stk_engine_client *client);

/* Compressed shards without seek points have one order: from front to back. */
static int check_sequential(const struct stoker_loader *loader,
                            const struct stoker_loader_options *options, struct stoker_error *error)
{
    bool has_blocks = options->window_blocks > 0 || options->group_count > 1;
    bool is_none = options->shuffle == STOKER_SHUFFLE_NONE || (!options->shuffle && !has_blocks);

    return !loader->sequential || is_none
               ? 0
               : stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                          "compressed shards without seek points cannot be shuffled",
                          "add seek points with 'stoker index --seek-points', pack them with "
                          "'stoker pack', or use the order none",
                          "'%.400s'", loader->dataset->options.urls[0]);
}

/* Sets the settings of the order that the caller left out. */
static void choose_order(struct stoker_loader *loader, struct stoker_loader_options *options)
{
    uint32_t shuffle, window;
    bool has_blocks = options->window_blocks > 0 || options->group_count > 1;

    loader->defaults = (struct stk_order_defaults){
        .shuffle = !options->shuffle && !has_blocks && !loader->sequential,
        .window = !options->window_blocks,
        .block = !options->block_samples,
        .version = !options->order_version,
    };
    if (loader->defaults.shuffle) {
        stk_dataset_default_order(loader->dataset, &shuffle, &window);
        options->shuffle = shuffle;
        options->window_blocks = window;
    }
    options->shuffle = options->shuffle ? options->shuffle : STOKER_SHUFFLE_BLOCK;
    /* Compressed shards without seek points are read front to back, in shard order. */
    options->shuffle = loader->sequential ? STOKER_SHUFFLE_NONE : options->shuffle;
    options->window_blocks =
        options->window_blocks ? options->window_blocks : STK_ORDER_WINDOW_DEFAULT;
    options->group_count = options->group_count ? options->group_count : 1;
}

static int resolve(struct stoker_loader *loader, struct stoker_loader_options *options,
                   const struct stoker_loader_options *given, struct stoker_error *error)
{
    const char *refused = NULL;
    int status =
        stk_options_read(options, sizeof *options, offsetof(struct stoker_loader_options, shuffle),
                         given, "loader options", error);

    if (status < 0) {
        return status;
    }
    status = check_sequential(loader, options, error);
    if (status < 0) {
        return status;
    }
    choose_order(loader, options);
    options->tail = options->tail ? options->tail : STOKER_TAIL_DROP;
    options->world_size = options->world_size ? options->world_size : 1;
    options->worker_count = options->worker_count ? options->worker_count : 1;
    options->on_error = options->on_error ? options->on_error : STOKER_ON_ERROR_RAISE;
    options->image_check = options->image_check ? options->image_check : STOKER_CHECK_DECODED;
    options->pixels_max = options->pixels_max ? options->pixels_max : 178956970;
    options->decode_bytes_max = options->decode_bytes_max ? options->decode_bytes_max : 1u << 30;
    options->bad_list_max = options->bad_list_max ? options->bad_list_max : 10000;
    options->io_retries = options->io_retries ? options->io_retries : STK_RETRY_COUNT_DEFAULT;
    options->io_retries = options->io_retries == STOKER_NO_RETRIES ? 0 : options->io_retries;
    options->io_retry_wait_ms =
        options->io_retry_wait_ms ? options->io_retry_wait_ms : STK_RETRY_WAIT_DEFAULT_MS;
    if (options->batch_size == 0 || options->batch_size > 1u << 24) {
        refused = "batch_size must be 1 to 16,777,216";
    } else if (options->rank >= options->world_size) {
        refused = "rank must be below world_size";
    } else if (options->field_count == 0 || options->field_count > STK_BATCH_FIELDS_MAX) {
        refused = "a loader has 1 to 64 fields";
    } else if (options->shuffle > STOKER_SHUFFLE_TWO_LEVEL || options->tail > STOKER_TAIL_KEEP ||
               options->on_error > STOKER_ON_ERROR_SKIP ||
               options->image_check > STOKER_CHECK_TOLERANT ||
               options->batches_ahead > STK_LOADER_AHEAD_MAX) {
        refused =
            "shuffle, tail, on_error, image_check or batches_ahead (64 at most) is out of its "
            "range";
    } else if (options->order_version > STOKER_ORDER_VERSION) {
        refused = "order_version must be 1 or 2";
    } else if (!(options->bad_share_max >= 0 && options->bad_share_max <= 1)) {
        refused = "bad_share_max is a share: 0 to 1";
    }
    return refused ? stk_fail(error, STOKER_ERROR_ARGUMENT, "a loader option is not valid", refused,
                              "loader options")
                   : 0;
}

int stoker_loader_open(struct stoker_loader **loader_out, struct stoker_dataset *dataset,
                       const struct stoker_loader_options *given, struct stoker_error *error)
{
    struct stoker_engine *engine = dataset->engine;
    struct stoker_loader_options options = {0};
    struct stoker_loader *loader;
    int status = stk_engine_check(engine, error);

    *loader_out = NULL;
    if (status < 0) {
        return status;
    }
    loader = stk_alloc(1, sizeof *loader);
    if (!loader) {
        return stk_fail(error, -ENOMEM, "cannot open a loader", "free memory", "loader");
    }
    loader->engine = engine;
    loader->client.step_locked = stk_worker_step_locked;
    loader->client.trim_locked = trim_locked;
    loader->client.memory_returned_locked = memory_returned_locked;
    loader->client.wants_memory_locked = wants_memory_locked;
    loader->client.waits_for_bytes_locked = waits_for_bytes_locked;
    loader->client.drop_read_ahead_locked = drop_read_ahead_locked;
    loader->dataset = dataset;
    loader->opened_ns = stk_engine_now(engine);
    stk_dataset_retain(dataset);
    stk_cond_init(&loader->ready);
    pthread_mutex_init(&loader->fingerprint_lock, NULL);
    loader->sequential = stk_index_is_sequential(dataset->index);
    status = resolve(loader, &options, given, error);
    status = status < 0 ? status : stk_fetcher_get(engine, &loader->fetcher, error);
    status = status < 0 ? status : open_policy(loader, &options, error);
    status = status < 0 ? status : open_order(loader, &options, error);
    status = status < 0 ? status : stk_loader_fields_open(loader, &options, error);
    status = status < 0 ? status : open_pool(loader, error);
    status = status < 0 ? status : check_budget(loader, error);
    stk_loader_maps_init(loader);
    if (status < 0) {
        stk_loader_free(loader);
        return status;
    }
    for (uint32_t i = 0; i < engine->worker_count; i++) {
        loader->idle_before_ns += atomic_load(&engine->workers[i].idle_ns);
        loader->storage_wait_before_ns += atomic_load(&engine->workers[i].storage_wait_ns);
        loader->lock_wait_before_ns += atomic_load(&engine->workers[i].lock_wait_ns);
    }
    stk_engine_jpeg_stats(engine, NULL, &loader->before);
    stk_engine_lock(engine, NULL);
    loader->locked.pins = 1;
    loader->locked.fetched_tail = &loader->locked.fetched;
    stk_pending_batches_seek_locked(loader, 0, stk_partition_first(&loader->partition, 0));
    stk_engine_add_client_locked(engine, &loader->client);
    stk_engine_signal_locked(engine, engine->worker_count);
    stk_engine_unlock(engine);
    loader->future = stk_loader_future_open(loader);
    *loader_out = loader;
    return 0;
}

static int open_policy(struct stoker_loader *loader, const struct stoker_loader_options *options,
                       struct stoker_error *error)
{
    struct stk_quarantine_options quarantine = {.io = loader->engine->io,
                                                .path = options->quarantine,
                                                .rank = options->rank,
                                                .world_size = options->world_size,
                                                .list_max = options->bad_list_max,
                                                .samples_max = options->bad_samples_max,
                                                .share_max = options->bad_share_max};
    const struct stoker_loader *after = options->continues_from;

    if (after) {
        stk_engine_lock(after->engine, NULL);
        quarantine.after = after->quarantine;
        quarantine.delivered_before = after->locked.delivered;
        quarantine.substituted_before = after->locked.counters.substituted;
        stk_engine_unlock(after->engine);
    }
    loader->on_error = options->on_error;
    loader->io_retries = options->io_retries;
    loader->io_retry_wait_ms = options->io_retry_wait_ms;
    return stk_quarantine_open(&loader->quarantine, &quarantine, error);
}

static int open_order(struct stoker_loader *loader, const struct stoker_loader_options *options,
                      struct stoker_error *error)
{
    struct stk_index *index = loader->dataset->index;
    struct stk_order_options order = {.sample_count = stk_index_samples(index),
                                      .block_samples = options->block_samples
                                                           ? options->block_samples
                                                           : stk_index_block_samples(index),
                                      .window_blocks = options->window_blocks,
                                      .group_count = options->group_count,
                                      .shuffle = options->shuffle,
                                      .version = options->order_version,
                                      .seed = options->seed};
    int status;

    if (options->mix && loader->sequential) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "compressed shards without seek points cannot be mixed",
                        "add seek points with 'stoker index --seek-points', or decompress them",
                        "mix");
    }
    status = stk_run_sampling_open(
        &loader->sampling, &loader->schedule, loader->dataset, &order,
        &(struct stk_schedule_request){.mix = options->mix, .sampling = options->sampling}, error);
    status = status < 0 ? status
                        : stk_schedule_reader_init(&loader->plan.reader, &loader->schedule, error);
    if (status < 0) {
        return status;
    }
    loader->partition =
        (struct stk_partition){.sample_count = stk_schedule_epoch_samples(&loader->schedule),
                               .batch_size = options->batch_size,
                               .rank = options->rank,
                               .world_size = options->world_size,
                               .tail = options->tail,
                               .group_count = options->group_count,
                               .worker = options->worker,
                               .worker_count = options->worker_count};
    loader->seed = options->seed;
    loader->shuffle = options->shuffle;
    loader->cached = options->no_direct_io;
    loader->ahead_option = options->batches_ahead;
    /* A validation pass ends with its last batch; training continues with the next epoch. */
    loader->prefetch_epochs = options->tail != STOKER_TAIL_KEEP;
    status = stk_partition_check(&loader->partition, error);
    return status < 0 ? status : stk_partition_check_steps(&loader->partition, error);
}

/* A batch that can never fit in the budget is an error of open, not a wait in next. */
static int check_budget(const struct stoker_loader *loader, struct stoker_error *error)
{
    uint64_t bytes_max = loader->engine->budget.bytes_max;

    if (loader->batch_bytes <= bytes_max) {
        return 0;
    }
    return stk_fail(
        error, STOKER_ERROR_BUDGET, "one batch is larger than the memory budget",
        "lower batch_size, or raise the memory budget to 3 batches and 1 MiB per thread",
        "a batch takes %llu bytes, the budget is %llu", (unsigned long long)loader->batch_bytes,
        (unsigned long long)bytes_max);
}

static uint64_t trim_locked(struct stk_engine_client *client)
{
    return stk_batch_pool_trim(stk_loader_from_client(client)->pool);
}

static void memory_returned_locked(struct stk_engine_client *client)
{
    stk_loader_from_client(client)->locked.open_failed_for_memory = false;
}

static bool wants_memory_locked(const struct stk_engine_client *client)
{
    return ((const struct stoker_loader *)client)->locked.waiting_for_memory; /* its first member */
}

static bool waits_for_bytes_locked(const struct stk_engine_client *client)
{
    return ((const struct stoker_loader *)client)->locked.fetching > 0; /* its first member */
}

static int open_pool(struct stoker_loader *loader, struct stoker_error *error)
{
    struct stk_batch_field_shape shapes[STK_BATCH_FIELDS_MAX];
    struct stk_index *index = loader->dataset->index;
    uint64_t samples = stk_max(stk_index_samples(index), 1);
    uint64_t slot_bytes = 0;
    bool varies = false;

    for (uint32_t f = 0; f < loader->field_count; f++) {
        shapes[f] = loader->fields[f].shape;
        varies = varies || stk_batch_field_varies(&shapes[f]);
        slot_bytes += shapes[f].slot_bytes;
    }
    /* An estimate: several fields of one member, and small fields of large members, count in full.
     */
    if (!stk_add(slot_bytes, varies ? stk_index_bytes(index) / samples : 0, &slot_bytes) ||
        !stk_multiply(slot_bytes, loader->partition.batch_size, &loader->batch_bytes)) {
        loader->batch_bytes = UINT64_MAX; /* no budget has so much */
    }
    loader->batch_bytes = stk_max(loader->batch_bytes, 1);
    uint32_t workers = loader->partition.worker_count;
    uint64_t fitting = AHEAD_BYTES / workers / loader->batch_bytes;
    fitting = stk_min(stk_max(fitting, workers > 1 ? 1 : 2), AHEAD_DEFAULT_MAX);
    loader->locked.ahead = loader->ahead_option ? loader->ahead_option : (uint32_t)fitting;
    loader->locked.out_limit = loader->locked.ahead + 1;
    return stk_engine_batch_pool_open(loader->engine, shapes, loader->field_count,
                                      loader->partition.batch_size, &loader->pool, error);
}

int stoker_loader_set_epoch(struct stoker_loader *loader, uint64_t epoch,
                            struct stoker_error *error)
{
    struct stoker_engine *engine = loader->engine;
    uint64_t first = stk_partition_first(&loader->partition, epoch);
    int status = stk_engine_check(engine, error);

    if (status < 0) {
        return status;
    }
    if (epoch > stk_schedule_epoch_max(&loader->schedule)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "there is no such epoch",
                        "a mix has 2^61 positions, other runs 2^63 epochs; take a smaller epoch",
                        "epoch %llu", (unsigned long long)epoch);
    }
    stk_engine_lock(engine, NULL);
    bool there = loader->locked.epoch == epoch &&
                 (loader->locked.position == first || loader->locked.resumed);
    struct stk_pending_batch *head = loader->locked.head;
    bool next = epoch == loader->locked.epoch + 1 && head && head->epoch == epoch;
    if (next) { /* its batches were read ahead */
        loader->locked.epoch = epoch;
        loader->locked.position = head->position;
    } else if (!there) {
        stk_pending_batches_seek_locked(loader, epoch, first);
    }
    loader->locked.resumed = false;
    stk_engine_unlock(engine);
    return 0;
}

/* Ends the epoch: the next call begins the next one. */
static void next_epoch_locked(struct stoker_loader *loader)
{
    uint64_t next = loader->locked.epoch + 1;

    loader->locked.position = stk_partition_next_epoch_start(
        &loader->partition, loader->locked.epoch, loader->locked.position);
    loader->locked.epoch = next;
    if (loader->locked.open_epoch < next) {
        loader->locked.open_epoch = next;
        loader->locked.open_position = loader->locked.position;
        stk_engine_signal_locked(loader->engine, 1);
    }
}

/* Whether no batch can be opened: the caller holds all memory, or the budget is too small. */
static bool is_memory_exhausted_locked(struct stoker_loader *loader)
{
    uint64_t waited_ns = stk_engine_now(loader->engine) - loader->locked.memory_failed_since_ns;
    bool holding = stk_batch_pool_in_use(loader->pool) > 0;

    return loader->locked.open_failed_for_memory && !loader->locked.head &&
           (waited_ns > (holding ? MEMORY_WAIT_HOLDING_NS : MEMORY_WAIT_NS) ||
            loader->locked.open_error.status != STOKER_ERROR_BUDGET);
}

/* Halves the read-ahead, since memory is short. Returns false if only one batch is left. */
static bool shrink_read_ahead_locked(struct stoker_loader *loader)
{
    bool more = loader->locked.ahead > 1;

    loader->locked.ahead -= loader->locked.ahead / 2;
    loader->locked.out_limit = stk_min(loader->locked.out_limit, loader->locked.ahead + 1u);
    return more;
}

/* Drops batches that were read ahead, because the caller of another client waits for memory and no
 * caller waits for this loader. They are read again later. */
static bool drop_read_ahead_locked(struct stk_engine_client *client)
{
    struct stoker_loader *loader = stk_loader_from_client(client);

    if (loader->locked.closed || loader->locked.pending_count == 0) {
        return false;
    }
    loader->locked.pins++; /* its caller may close it while the lock is released */
    shrink_read_ahead_locked(loader);
    stk_pending_batches_seek_locked(loader, loader->locked.epoch, loader->locked.position);
    stk_loader_unpin_locked(loader);
    return true;
}

/* Checks the head once. Returns 1 and the batch, 0 at the end, STOKER_ERROR_AGAIN, or an error. */
static int poll_head_locked(struct stoker_loader *loader, struct stoker_batch **batch_out,
                            struct stoker_error *error)
{
    struct stk_pending_batch *head = loader->locked.head;

    if (stk_partition_steps_from(&loader->partition, loader->locked.epoch,
                                 loader->locked.position) == 0) {
        next_epoch_locked(loader);
        return 0;
    }
    if (head && head->locked.done_count == head->samples) {
        STK_ASSERT(head->epoch == loader->locked.epoch);
        STK_ASSERT(head->position == loader->locked.position);
        int listed = stk_quarantine_deliver_locked(head, error);
        if (head->locked.error.status < 0) {
            int status = head->locked.error.status;

            if (status == STOKER_ERROR_BUDGET && shrink_read_ahead_locked(loader)) {
                /* Later batches may hold the memory that a sample of this batch needs. */
                stk_pending_batches_seek_locked(loader, loader->locked.epoch,
                                                loader->locked.position);
                return STOKER_ERROR_AGAIN;
            }
            if (error) {
                *error = head->locked.error;
            }
            if (!stk_error_is_data(status)) {
                /* An error of disk, network or memory: the next call reads the batch again. */
                stk_pending_batches_seek_locked(loader, loader->locked.epoch,
                                                loader->locked.position);
            }
            return status;
        }
        if (listed < 0) {
            return listed;
        }
        *batch_out = stk_pending_batch_take_locked(loader);
        return 1;
    }
    if (is_memory_exhausted_locked(loader)) {
        if (error) {
            *error = loader->locked.open_error;
        }
        loader->locked.open_failed_for_memory = false; /* the next call tries to open it again */
        return loader->locked.open_error.status;
    }
    return STOKER_ERROR_AGAIN;
}

static bool before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Waits for the head until the deadline. */
static int wait_locked(struct stoker_loader *loader, uint32_t timeout_ms,
                       struct stoker_batch **batch_out, struct stoker_error *error)
{
    struct stoker_engine *engine = loader->engine;
    struct timespec until = stk_engine_deadline(timeout_ms * 1000000ull), slice;
    bool expired = false, lapsed = true;
    int status;

    for (;;) {
        status = poll_head_locked(loader, batch_out, error);
        if (status != STOKER_ERROR_AGAIN || expired) {
            return status;
        }
        if (loader->locked.open_failed_for_memory && !loader->locked.head) {
            loader->locked.waiting_for_memory = true;
            if (lapsed) {
                /* Not all memory that becomes free is signalled: so this retries at intervals. */
                stk_engine_drop_read_ahead_locked(engine, &loader->client);
                loader->locked.open_failed_for_memory = false;
                lapsed = false;
                continue; /* the head may have become complete while the lock was released */
            }
        }
        stk_engine_signal_locked(engine, 1);
        slice = loader->locked.waiting_for_memory ? stk_engine_deadline(MEMORY_POLL_NS) : until;
        slice = before(&slice, &until) ? slice : until;
        lapsed = pthread_cond_timedwait(&loader->ready, &engine->lock, &slice) == ETIMEDOUT;
        expired = lapsed && !before(&slice, &until);
    }
}

int stoker_loader_next(struct stoker_loader *loader, uint32_t timeout_ms,
                       struct stoker_batch **batch_out, struct stoker_error *error)
{
    struct stoker_engine *engine = loader->engine;
    uint64_t begin;
    int status = stk_engine_check(engine, error);

    *batch_out = NULL;
    if (status < 0) {
        return status;
    }
    begin = stk_engine_now(engine);
    stk_engine_lock(engine, NULL);
    while (loader->locked.delivered_steps.run_count >
           STK_DELIVERED_RUNS_MAX / 2) { /* after so many seeks */
        stk_engine_unlock(engine);
        status = stk_loader_update_fingerprint(loader, &(struct stoker_state){0});
        if (status < 0) {
            return stk_fail(error, status, "cannot compute the fingerprint of the run",
                            "free memory; 'stoker sample' writes a damaged table again", "loader");
        }
        stk_engine_lock(engine, NULL);
    }
    if (loader->locked.first_next_ns == 0) {
        loader->locked.first_next_ns = begin;
    }
    /* Batches that the caller keeps do not count as read-ahead, so that keeping them costs no
     * speed. */
    uint32_t out = stk_batch_pool_in_use(loader->pool);
    uint32_t flying = loader->locked.pending_count + loader->locked.opening;
    uint32_t held = out > flying ? out - flying : 0;
    loader->locked.out_limit = loader->locked.ahead + (held > 1 ? held : 1);
    loader->locked.resumed = false;
    loader->client.waiting++;
    status = wait_locked(loader, timeout_ms, batch_out, error);
    loader->client.waiting--;
    if (loader->locked.waiting_for_memory) { /* other clients may read ahead again */
        loader->locked.waiting_for_memory = false;
        stk_engine_signal_locked(engine, 1);
    }
    loader->locked.wait_ns += stk_engine_now(engine) - begin;
    if (status == 1 && loader->locked.first_batch_ns == 0) {
        loader->locked.first_batch_ns = stk_engine_now(engine) - loader->opened_ns;
    }
    stk_engine_unlock(engine);
    if (status == STOKER_ERROR_AGAIN) {
        stk_fail(error, status, "no batch is ready yet", "call again", "%u ms waited", timeout_ms);
    }
    return status;
}

uint64_t stoker_loader_samples(const struct stoker_loader *loader)
{
    return loader->partition.sample_count;
}

uint64_t stoker_loader_batches(const struct stoker_loader *loader, uint64_t epoch)
{
    return stk_partition_steps(&loader->partition, epoch);
}
