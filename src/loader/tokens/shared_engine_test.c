/* Goal: an engine has clients of any kind: a loader touches no byte of a client that is not a
 * loader, uses each through its callbacks, and works without those that are absent; a loader of
 * samples and one of compressed tokens on one engine return the same batches as alone, also if
 * memory is short.
 * Method: a tar of numbered samples, and tokens compressed with zstd, in the simulator: the cache
 * of their frames is a client (engine/frame_cache.c), so that AddressSanitizer detects what a
 * loader touches after it; a client followed by an unreadable page; one that counts its calls; a
 * budget without a free byte. */
#include "loader/tokens/token_set.h"

#include "base/mem.h"

#include "io/sim/sim.h"
#include "test/t.h"
#include "test/tars.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#define SAMPLES 400u
#define SAMPLE_BYTES 4096u
#define SAMPLE_BATCH 16u
#define BATCH_BYTES (SAMPLE_BATCH * SAMPLE_BYTES)
#define TOKENS 60000u
#define FRAME_TOKENS 500u
#define TOKEN_BATCH 8u
#define CONTEXT 32u
#define WAIT_MS 20000u
#define GUARD_PAGES 16u /* more than a loader takes */

static uint16_t tokens[TOKENS];
static struct stk_io *world;
static struct stoker_engine *engine;
static struct stoker_dataset *dataset;

static uint8_t sample_byte(uint64_t sample, uint64_t i)
{
    return (uint8_t)(sample * 31 + sample / 256 + i * 7);
}

static void add_files(void)
{
    static uint8_t packed[4 * TOKENS], value[SAMPLE_BYTES];
    struct t_tar tar = {0};
    size_t bytes = 0;

    for (uint32_t sample = 0; sample < SAMPLES; sample++) {
        char name[32];

        for (uint32_t i = 0; i < SAMPLE_BYTES; i++) {
            value[i] = sample_byte(sample, i);
        }
        snprintf(name, sizeof name, "s%05u.bin", sample);
        t_tar_add(&tar, name, value, sizeof value);
    }
    t_tar_end(&tar);
    T_EQ("add", stk_sim_add(world, "/data/train.tar", tar.data, tar.bytes), 0);
    t_tar_free(&tar);
    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = (uint16_t)(i * 31 + i / 64);
    }
    for (uint32_t i = 0; i < TOKENS; i += FRAME_TOKENS) {
        bytes +=
            ZSTD_compress(packed + bytes, sizeof packed - bytes, tokens + i, 2 * FRAME_TOKENS, 1);
    }
    T_EQ("add", stk_sim_add(world, "/data/raw.bin", tokens, sizeof tokens), 0);
    T_EQ("add", stk_sim_add(world, "/data/raw.bin.zst", packed, bytes), 0);
}

static void rig_open(void)
{
    struct stk_io_options io = {.depth = 4, .read_timeout_ms = 5000};
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 2, .memory_bytes_max = 8u << 20};
    const char *url = "/data/train.tar";
    struct stoker_dataset_options samples = {
        .struct_size = sizeof samples, .urls = &url, .url_count = 1, .block_bytes = 65536};

    T_EQ("world", stk_sim_open(&world, 1, &io, NULL), 0);
    add_files();
    T_EQ("engine", stk_engine_open_with_io(&engine, world, &options, NULL), 0);
    T_EQ("data set", stoker_dataset_open(&dataset, engine, &samples, NULL), 0);
}

static void rig_close(void)
{
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

/* ---- loaders ---- */

static struct stoker_loader *samples_open(uint32_t ahead)
{
    struct stoker_field_options field = {
        .name = "bin", .kind = STOKER_FIELD_BYTES, .extensions = "bin"};
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = &field,
                                            .field_count = 1,
                                            .batch_size = SAMPLE_BATCH,
                                            .batches_ahead = ahead,
                                            .window_blocks = 2};
    struct stoker_loader *loader = NULL;

    T_EQ("loader", stoker_loader_open(&loader, dataset, &options, NULL), 0);
    return loader;
}

/* The next batch, over the end of an epoch: true if it was returned, and each value is its
 * sample's. */
static bool samples_next(struct stoker_loader *loader)
{
    struct stoker_batch *batch = NULL;
    struct stoker_array values;
    uint64_t wrong = 0;
    int status = stoker_loader_next(loader, WAIT_MS, &batch, NULL);

    status = status == 0 ? stoker_loader_next(loader, WAIT_MS, &batch, NULL) : status;
    if (status != 1 || stoker_batch_array(batch, 0, &values) < 0) {
        stoker_batch_close(batch);
        return false;
    }
    for (uint32_t i = 0; i < stoker_batch_samples(batch); i++) {
        const uint8_t *got = (const uint8_t *)values.data + values.offsets[i];

        wrong += values.offsets[i + 1] - values.offsets[i] != SAMPLE_BYTES;
        for (uint32_t j = 0; j < SAMPLE_BYTES && wrong == 0; j++) {
            wrong += got[j] != sample_byte(stoker_batch_ids(batch)[i], j);
        }
    }
    stoker_batch_close(batch);
    return wrong == 0;
}

static int next_in(struct stoker_loader *loader, uint32_t timeout_ms)
{
    struct stoker_batch *batch = NULL;
    int status = stoker_loader_next(loader, timeout_ms, &batch, NULL);

    stoker_batch_close(batch);
    return status;
}

/* Two of the same windows: of the plain file and of the compressed one. */
struct pair {
    struct stoker_tokens *plain_set, *zstd_set;
    struct stoker_token_loader *plain, *zstd;
};

static void tokens_open(struct stoker_tokens **set_out, struct stoker_token_loader **loader_out,
                        const char *path)
{
    struct stoker_tokens_options files = {.struct_size = sizeof files,
                                          .paths = &path,
                                          .path_count = 1,
                                          .dtype = STOKER_UINT16,
                                          .cache_bytes = 80 * 2 * FRAME_TOKENS};
    struct stoker_token_loader_options options = {.struct_size = sizeof options,
                                                  .context = CONTEXT,
                                                  .batch_size = TOKEN_BATCH,
                                                  .shuffle = STOKER_SHUFFLE_FULL,
                                                  .seed = 4};

    T_EQ("tokens", stoker_tokens_open(set_out, engine, &files, NULL), 0);
    T_EQ("tokens", stoker_token_loader_open(loader_out, *set_out, &options, NULL), 0);
}

static void pair_open(struct pair *pair)
{
    tokens_open(&pair->plain_set, &pair->plain, "/data/raw.bin");
    tokens_open(&pair->zstd_set, &pair->zstd, "/data/raw.bin.zst");
    T_TRUE("a cache of frames",
           pair->zstd_set->frame_cache != NULL && !pair->plain_set->frame_cache);
}

static void pair_close(struct pair *pair)
{
    stoker_token_loader_close(pair->plain);
    stoker_token_loader_close(pair->zstd);
    stoker_tokens_close(pair->plain_set);
    stoker_tokens_close(pair->zstd_set);
}

/* The next batch of both: true if both were returned, and are the same. */
static bool pair_next(struct pair *pair)
{
    struct stoker_batch *a = NULL, *b = NULL;
    struct stoker_array x, y;
    bool same = stoker_token_loader_next(pair->plain, &a, NULL) == 1 &&
                stoker_token_loader_next(pair->zstd, &b, NULL) == 1 &&
                stoker_batch_array(a, 0, &x) == 0 && stoker_batch_array(b, 0, &y) == 0 &&
                memcmp(x.data, y.data, (size_t)8 * TOKEN_BATCH * CONTEXT) == 0;

    stoker_batch_close(a);
    stoker_batch_close(b);
    return same;
}

/* ---- with the cache of frames ---- */

static const struct order {
    const char *name;
    bool tokens_first;
} orders[] = {{"samples first", false}, {"tokens first", true}};

static void test_both(const struct order *order)
{
    struct stoker_loader *loader = NULL;
    struct pair pair;

    rig_open();
    if (!order->tokens_first) {
        loader = samples_open(0);
    }
    pair_open(&pair);
    if (order->tokens_first) {
        loader = samples_open(0);
    }
    for (uint32_t i = 0; i < 100; i++) { /* of samples: four epochs */
        T_TRUE(order->name, samples_next(loader));
        T_TRUE(order->name, pair_next(&pair));
    }
    T_TRUE("unpacked by workers", stk_frame_cache_prefetched(pair.zstd_set->frame_cache) > 0);
    if (order->tokens_first) {
        pair_close(&pair);
        T_TRUE("samples alone", samples_next(loader));
        stoker_loader_close(loader);
    } else {
        stoker_loader_close(loader);
        T_TRUE("tokens alone", pair_next(&pair));
        pair_close(&pair);
    }
    rig_close();
}

static bool wait_for_bytes(uint64_t bytes)
{
    for (uint32_t ms = 0; ms < WAIT_MS && atomic_load(&engine->budget.bytes) < bytes; ms++) {
        usleep(1000);
    }
    return atomic_load(&engine->budget.bytes) >= bytes;
}

/* Takes the rest of the budget; returns its bytes. */
static uint64_t take_all(void)
{
    uint64_t left;

    do {
        left = engine->budget.bytes_max - atomic_load(&engine->budget.bytes);
    } while (!stk_budget_reserve(&engine->budget, left));
    return left;
}

/* Two loaders get each other's memory, whichever waits; the cache of frames keeps its size, and
 * frames are replaced in it. */
static void test_short_memory(void)
{
    struct stoker_loader *first, *second;
    struct pair pair;
    uint64_t taken, before;

    rig_open();
    pair_open(&pair);
    for (uint32_t i = 0; i < 100; i++) {
        T_TRUE("tokens", pair_next(&pair));
    }
    before = atomic_load(&engine->budget.bytes);
    first = samples_open(8);
    T_TRUE("read ahead", wait_for_bytes(before + 8 * BATCH_BYTES));
    taken = take_all();
    second = samples_open(4);
    for (uint32_t i = 0; i < 10; i++) {
        T_TRUE("second", samples_next(second));
        T_TRUE("tokens", pair_next(&pair));
        T_TRUE("first", samples_next(first));
        T_TRUE("tokens", pair_next(&pair));
    }
    stk_budget_release(&engine->budget, taken);
    T_TRUE("first", samples_next(first));
    T_TRUE("second", samples_next(second));
    stoker_loader_close(first);
    stoker_loader_close(second);
    pair_close(&pair);
    rig_close();
}

/* ---- with other clients ---- */

static bool no_step(struct stk_engine_client *client, struct stk_worker *worker)
{
    (void)client;
    (void)worker;
    return false;
}

static uint64_t no_trim(struct stk_engine_client *client)
{
    (void)client;
    return 0;
}

static void add(struct stk_engine_client *client)
{
    client->step_locked = no_step;
    client->trim_locked = no_trim;
    stk_engine_lock(engine, NULL);
    stk_engine_add_client_locked(engine, client);
    stk_engine_unlock(engine);
}

static void remove_client(struct stk_engine_client *client)
{
    stk_engine_lock(engine, NULL);
    stk_engine_remove_client_locked(engine, client);
    stk_engine_unlock(engine);
}

/* Without callbacks, and without a byte after it; also while a loader looks for memory. */
static void test_bare(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), guard = GUARD_PAGES * page;
    uint8_t *pages =
        mmap(NULL, page + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct stk_engine_client *client = (struct stk_engine_client *)(void *)(pages + page) - 1;
    struct stoker_loader *first, *second;
    uint64_t taken, before;

    T_TRUE("pages", pages != MAP_FAILED && mprotect(pages + page, guard, PROT_NONE) == 0);
    rig_open();
    add(client);
    before = atomic_load(&engine->budget.bytes);
    first = samples_open(8);
    T_TRUE("first", samples_next(first));
    T_TRUE("read ahead", wait_for_bytes(before + 8 * BATCH_BYTES));
    taken = take_all();
    second = samples_open(2);
    T_TRUE("second", samples_next(second));
    T_TRUE("first", samples_next(first));
    stk_budget_release(&engine->budget, taken);
    stoker_loader_close(first);
    stoker_loader_close(second);
    remove_client(client);
    rig_close();
    munmap(pages, page + guard);
}

struct client_state {
    struct stk_engine_client client;
    uint64_t held_bytes; /* of the budget, as simulated read-ahead */
    uint32_t returned, dropped;
    bool wants;
};

static void note_returned(struct stk_engine_client *client)
{
    ((struct client_state *)client)->returned++;
}

static bool says_wants(const struct stk_engine_client *client)
{
    return ((const struct client_state *)client)->wants;
}

static bool drops(struct stk_engine_client *client)
{
    struct client_state *client_state = (struct client_state *)client;
    bool any = client_state->held_bytes > 0;

    stk_budget_release(&engine->budget, client_state->held_bytes);
    client_state->held_bytes = 0;
    client_state->dropped += any;
    return any;
}

/* Each returned batch is reported to the client; while it wants memory nothing is read ahead,
 * except what a caller waits for; its own read-ahead is dropped for a caller that waits, unless its
 * own caller does. */
static void test_callbacks(void)
{
    struct client_state client_state = {.client = {.memory_returned_locked = note_returned,
                                                   .wants_memory_locked = says_wants,
                                                   .drop_read_ahead_locked = drops},
                                        .wants = true};
    struct stoker_loader *loader;
    uint64_t before;

    rig_open();
    add(&client_state.client);
    before = atomic_load(&engine->budget.bytes);
    loader = samples_open(4);
    usleep(30000);
    T_EQ("nothing is read ahead", atomic_load(&engine->budget.bytes), before);
    T_TRUE("a caller waits", samples_next(loader));
    T_EQ("came back", client_state.returned, 1);
    stk_engine_lock(engine, NULL);
    client_state.wants = false;
    stk_engine_signal_locked(engine, 2);
    stk_engine_unlock(engine);
    T_TRUE("read ahead", wait_for_bytes(before + 4 * BATCH_BYTES));
    T_TRUE("next", samples_next(loader));
    T_EQ("came back", client_state.returned, 2);
    T_EQ("nothing is dropped", client_state.dropped, 0);
    stoker_loader_close(loader);
    client_state.held_bytes = take_all();
    client_state.client.waiting = 1;
    loader = samples_open(1);
    T_EQ("its own caller waits", next_in(loader, 200), STOKER_ERROR_AGAIN);
    T_EQ("nothing is dropped", client_state.dropped, 0);
    stk_engine_lock(engine, NULL);
    client_state.client.waiting = 0;
    stk_engine_unlock(engine);
    T_TRUE("memory is short", samples_next(loader));
    T_EQ("dropped once", client_state.dropped, 1);
    stoker_loader_close(loader);
    remove_client(&client_state.client);
    rig_close();
}

/* A client that drops its read-ahead, and releases the lock until the batch of the loader that
 * waits is complete. */
struct slow {
    struct stk_engine_client client;
    struct stoker_loader *loader;
    uint64_t held_bytes;
};

static bool drops_slowly(struct stk_engine_client *client)
{
    struct slow *slow = (struct slow *)client;
    struct stoker_stats stats = {.struct_size = sizeof stats};

    if (slow->held_bytes == 0) {
        return false;
    }
    stk_budget_release(&engine->budget, slow->held_bytes);
    slow->held_bytes = 0;
    stk_engine_memory_returned_locked(engine);
    stk_engine_unlock(engine);
    for (uint32_t ms = 0; ms < WAIT_MS && stats.warm_reads < SAMPLE_BATCH; ms++) {
        usleep(1000);
        stoker_loader_stats(slow->loader, &stats);
    }
    stk_engine_lock(engine, NULL);
    T_TRUE("complete", stats.warm_reads >= SAMPLE_BATCH);
    return true;
}

/* A batch that became complete before the caller waited for it is returned at once. */
static void test_no_wait(void)
{
    struct slow slow = {.client = {.drop_read_ahead_locked = drops_slowly}};
    struct timespec begin, end;

    rig_open();
    add(&slow.client);
    slow.held_bytes = take_all();
    slow.loader = samples_open(1);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    T_TRUE("came", samples_next(slow.loader));
    clock_gettime(CLOCK_MONOTONIC, &end);
    T_TRUE("at once", end.tv_sec - begin.tv_sec < WAIT_MS / 2000);
    T_EQ("dropped", slow.held_bytes, 0);
    stoker_loader_close(slow.loader);
    remove_client(&slow.client);
    rig_close();
}

/* Batches of tokens return memory, too. */
static void test_token_batches(void)
{
    struct client_state client_state = {.client = {.memory_returned_locked = note_returned}};
    struct pair pair;

    rig_open();
    add(&client_state.client);
    pair_open(&pair);
    T_TRUE("tokens", pair_next(&pair));
    T_EQ("came back", client_state.returned, 2);
    pair_close(&pair);
    remove_client(&client_state.client);
    rig_close();
}

int main(void)
{
    T_EACH(order, order, orders)
    {
        test_both(order);
    }
    test_short_memory();
    test_bare();
    test_callbacks();
    test_no_wait();
    test_token_batches();
    /* An engine whose last user is a worker's sample ends in the background. */
    for (uint32_t ms = 0; ms < WAIT_MS && stk_mem_alive() != 0; ms++) {
        usleep(1000);
    }
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
