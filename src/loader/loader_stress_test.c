/* Goal: whatever callers do with loaders that share an engine, in whatever order, no batch is wrong
 * or returned twice, no memory is lost, nothing hangs.
 * Method: seeded random histories in the simulator: two callers, each with its own loaders on one
 * engine, and a third thread that closes batches; faults, short deadlines, tiny budgets; engine,
 * data set, loader and batches closed in any order. Delivered bytes and ids are compared with the
 * order's pure function. `loader_stress_test SEED` runs one history; STOKER_TEST_LONG=1 more.
 * Covers loader.c, pending_batch.c, fetcher.c, worker.c and batch.c under races. */
#include "base/mem.h"
#include "base/random.h"
#include "dataset/dataset.h"
#include "io/sim/sim.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HISTORIES 200
#define HISTORIES_LONG 4000
#define CALLERS 2
#define SHARDS 3
#define SHARD_SAMPLES 40
#define SAMPLES (SHARDS * SHARD_SAMPLES)
#define STEPS 60 /* of one caller */
#define HELD_MAX 4
#define MAIL_MAX 64
#define HANG_SECONDS 60
#define WINDOW_BLOCKS 2

/* Batches on their way to the thread that closes them. */
struct mail {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct stoker_batch *batches[MAIL_MAX];
    uint32_t count;
    bool ended;
};

/* The actions of one caller, and the results that it may expect. */
struct caller {
    struct stoker_dataset *dataset; /* its own reference: opened or shared */
    struct stoker_loader *loader;
    struct mail *mail;
    struct stoker_batch *held[HELD_MAX];
    uint64_t random, block_samples;
    uint64_t epoch, position; /* where the next batch begins */
    uint32_t batch_size, shuffle, tail, index;
    bool faults, packed, skip;
};

static uint64_t current_seed;
static pthread_mutex_t harness_lock = PTHREAD_MUTEX_INITIALIZER; /* its counters have none */

static uint64_t draw(uint64_t *random, uint64_t below)
{
    *random = stk_random_key(*random, 1);
    return *random % below;
}

static size_t value_of(uint32_t sample, uint8_t value[8192])
{
    size_t bytes = sample % 17 == 3 ? 5000 + sample * 11 : 20 + sample * 37 % 400;

    for (size_t i = 0; i < bytes; i++) {
        value[i] = (uint8_t)(sample * 31 + i * 7 + i / 256);
    }
    return bytes;
}

static void add_shards(struct stk_io *world, bool packed)
{
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        struct t_tar tar = {0}, gzip = {0};
        char name[64];

        for (uint32_t i = 0; i < SHARD_SAMPLES; i++) {
            uint32_t sample = shard * SHARD_SAMPLES + i;
            uint8_t value[8192];
            size_t bytes = value_of(sample, value);

            snprintf(name, sizeof name, "s%05u.bin", sample);
            t_tar_add(&tar, name, value, bytes);
            snprintf(name, sizeof name, "s%05u.cls", sample);
            t_tar_add(&tar, name, "7", 1);
        }
        t_tar_end(&tar);
        t_tar_gzip(&tar, &gzip);
        snprintf(name, sizeof name, "/d/%03u.tar%s", shard, packed ? ".gz" : "");
        T_EQ("add",
             stk_sim_add(world, name, packed ? gzip.data : tar.data,
                         packed ? gzip.bytes : tar.bytes),
             0);
        t_tar_free(&tar);
        t_tar_free(&gzip);
    }
}

/* ---- the thread that closes batches ---- */

static void *closer_main(void *argument)
{
    struct mail *mail = argument;
    struct stoker_batch *batch;

    pthread_mutex_lock(&mail->lock);
    for (;;) {
        if (mail->count > 0) {
            batch = mail->batches[--mail->count];
            pthread_mutex_unlock(&mail->lock);
            stoker_batch_close(batch);
            pthread_mutex_lock(&mail->lock);
        } else if (mail->ended) {
            break;
        } else {
            pthread_cond_wait(&mail->changed, &mail->lock);
        }
    }
    pthread_mutex_unlock(&mail->lock);
    return NULL;
}

static void send(struct mail *mail, struct stoker_batch *batch)
{
    pthread_mutex_lock(&mail->lock);
    if (mail->count < MAIL_MAX) {
        mail->batches[mail->count++] = batch;
        batch = NULL;
        pthread_cond_signal(&mail->changed);
    }
    pthread_mutex_unlock(&mail->lock);
    stoker_batch_close(batch);
}

/* ---- one caller ---- */

/* A failed check names the seed, so that it can be run again. */
static bool check(const char *what, uint64_t got, uint64_t want)
{
    char name[96];
    bool good;

    snprintf(name, sizeof name, "%s, seed %llu", what, (unsigned long long)current_seed);
    pthread_mutex_lock(&harness_lock);
    good = T_EQ(name, got, want);
    pthread_mutex_unlock(&harness_lock);
    return good;
}

static void check_error(const char *what, const struct stoker_error *error)
{
    pthread_mutex_lock(&harness_lock);
    T_ERROR(what, error);
    pthread_mutex_unlock(&harness_lock);
}

static void check_batch(const struct caller *caller, const struct stoker_batch *batch)
{
    struct stoker_array values;
    uint64_t samples = stoker_batch_samples(batch);
    bool good = true;

    stoker_batch_array(batch, 0, &values);
    good = check("samples", samples,
                 caller->tail == STOKER_TAIL_KEEP
                     ? stk_min(caller->batch_size, SAMPLES - caller->position)
                     : caller->batch_size);
    for (uint64_t i = 0; i < samples && good; i++) {
        uint64_t id = stoker_batch_ids(batch)[i], want;
        uint8_t value[8192];
        size_t bytes = value_of((uint32_t)id, value);

        stoker_order_at(SAMPLES, caller->block_samples, WINDOW_BLOCKS, 1, caller->shuffle,
                        caller->index, caller->epoch, caller->position + i, &want);
        good = caller->skip || check("id", id, want);
        good = good && check("bytes", values.offsets[i + 1] - values.offsets[i], bytes) &&
               check("value",
                     (uint64_t)memcmp((const uint8_t *)values.data + values.offsets[i], value,
                                      bytes) != 0,
                     0);
    }
}

static void open_loader(struct caller *caller)
{
    static const struct stoker_field_options fields[] = {
        {.name = "bin", .kind = STOKER_FIELD_BYTES, .extensions = "bin"},
        {.name = "label", .kind = STOKER_FIELD_LABEL},
        {.name = "key", .kind = STOKER_FIELD_KEY},
    };
    struct stoker_loader_options options = {.struct_size = sizeof options, .fields = fields};
    struct stoker_error error = {0};

    caller->batch_size = (uint32_t)draw(&caller->random, 12) + 1;
    caller->shuffle = (uint32_t)draw(&caller->random, 3) + 1;
    caller->shuffle = caller->packed ? STOKER_SHUFFLE_NONE : caller->shuffle;
    caller->tail = draw(&caller->random, 2) ? STOKER_TAIL_KEEP : STOKER_TAIL_DROP;
    caller->skip = draw(&caller->random, 4) == 0;
    caller->epoch = caller->position = 0;
    options.field_count = STK_COUNT(fields) - draw(&caller->random, 3);
    options.batch_size = caller->batch_size;
    options.shuffle = caller->shuffle;
    options.tail = caller->tail;
    options.window_blocks = WINDOW_BLOCKS;
    options.seed = caller->index;
    options.on_error = caller->skip ? STOKER_ON_ERROR_SKIP : STOKER_ON_ERROR_RAISE;
    options.batches_ahead = (uint32_t)draw(&caller->random, 4);
    options.no_direct_io = (uint32_t)draw(&caller->random, 2);
    if (stoker_loader_open(&caller->loader, caller->dataset, &options, &error) < 0) {
        check_error("open", &error);
    }
}

static void step_next(struct caller *caller)
{
    struct stoker_batch *batch;
    struct stoker_error error = {0};
    uint64_t epoch_end = caller->tail == STOKER_TAIL_KEEP
                             ? SAMPLES
                             : SAMPLES / caller->batch_size * caller->batch_size;
    int status =
        stoker_loader_next(caller->loader, (uint32_t)draw(&caller->random, 30), &batch, &error);

    if (status == 1) {
        check_batch(caller, batch);
        caller->position +=
            caller->batch_size; /* STOKER_TAIL_KEEP: the epoch ends past the last sample */
        uint64_t place = draw(&caller->random, HELD_MAX);
        if (draw(&caller->random, 3) == 0) {
            stoker_batch_close(caller->held[place]);
            caller->held[place] = batch;
        } else if (draw(&caller->random, 2)) {
            stoker_batch_retain(batch);
            send(caller->mail, batch);
            stoker_batch_close(batch);
        } else {
            send(caller->mail, batch);
        }
    } else if (status == 0) {
        check("end",
              caller->position < epoch_end || caller->position >= epoch_end + caller->batch_size,
              0);
        caller->epoch++;
        caller->position = 0;
    } else {
        check_error("next", &error);
        check("no batch", batch != NULL, 0);
        check("an error without a fault",
              !caller->faults && status != STOKER_ERROR_AGAIN && status != STOKER_ERROR_BUDGET, 0);
    }
}

static void step_turn(struct caller *caller)
{
    struct stoker_state state;
    struct stoker_error error = {0};

    check("state", (uint64_t)stoker_loader_state(caller->loader, &state), 0);
    check("epoch", state.epoch, caller->epoch);
    check("position", state.position, caller->position);
    switch (draw(&caller->random, 3)) {
    case 0:
        caller->epoch = draw(&caller->random, 5);
        caller->position = 0;
        state.epoch = caller->epoch;
        state.position = 0;
        check("set state", (uint64_t)stoker_loader_set_state(caller->loader, &state, &error), 0);
        break;
    case 1:
        check("set state", (uint64_t)stoker_loader_set_state(caller->loader, &state, &error), 0);
        break;
    default:
        caller->epoch += 1 + draw(&caller->random, 2);
        caller->position = 0;
        stoker_loader_set_epoch(caller->loader, caller->epoch, NULL);
        break;
    }
}

static void *caller_main(void *argument)
{
    struct caller *caller = argument;
    uint32_t steps = (uint32_t)draw(&caller->random, STEPS) + 5;

    open_loader(caller);
    for (uint32_t i = 0; i < steps && caller->loader; i++) {
        uint64_t what = draw(&caller->random, 24);

        if (what < 20) {
            step_next(caller);
        } else if (what < 22) {
            step_turn(caller);
        } else if (what < 23) {
            uint64_t place = draw(&caller->random, HELD_MAX);
            stoker_batch_close(caller->held[place]);
            caller->held[place] = NULL;
        } else {
            stoker_loader_close(caller->loader);
            caller->loader = NULL;
            open_loader(caller);
        }
    }
    stoker_loader_close(caller->loader);
    return NULL;
}

/* ---- a history ---- */

static void add_faults(struct stk_io *world, uint64_t *random)
{
    static const char *const paths[] = {NULL, "/d/000.tar", "/d/001.tar", "/d/002.tar"};
    uint64_t count = draw(random, 4);

    for (uint64_t i = 0; i < count; i++) {
        static const uint32_t kinds[] = {
            STK_SIM_FAULT_COLD, STK_SIM_FAULT_COLD,      STK_SIM_FAULT_SHORT, STK_SIM_FAULT_SLOW,
            STK_SIM_FAULT_EIO,  STK_SIM_FAULT_TRUNCATED, STK_SIM_FAULT_HANG};
        struct stk_sim_rule rule = {.path = paths[draw(random, STK_COUNT(paths))],
                                    .fault = kinds[draw(random, STK_COUNT(kinds))],
                                    .every = (uint32_t)draw(random, 5),
                                    .latency_ns = draw(random, 3000000)};

        if (rule.fault == STK_SIM_FAULT_TRUNCATED) {
            rule.offset = draw(random, 90000);
        } else if (rule.fault == STK_SIM_FAULT_HANG) {
            rule.times = 3; /* each costs its buffer */
        }
        stk_sim_add_rule(world, &rule);
    }
}

/* Opens an engine and a data set on a fresh world. */
static struct stoker_dataset *open_data(struct stoker_engine **engine, uint64_t *random,
                                        bool *packed, bool *faults)
{
    struct stk_io_options io = {.depth = 1 + (uint32_t)draw(random, 16), .read_timeout_ms = 20};
    struct stoker_engine_options options = {.struct_size = sizeof options,
                                            .threads = 1 + (uint32_t)draw(random, 4),
                                            .io_depth = io.depth,
                                            .read_timeout_ms = io.read_timeout_ms};
    struct stoker_dataset_options about = {
        .struct_size = sizeof about, .url_count = 1, .block_bytes = 4096};
    struct stoker_dataset *dataset = NULL;
    struct stk_io *world = NULL;
    struct stoker_error error = {0};

    *packed = draw(random, 4) == 0;
    *faults = draw(random, 3) > 0;
    about.urls = (const char *const[]){*packed ? "/d/{000..002}.tar.gz" : "/d/{000..002}.tar"};
    options.memory_bytes_max =
        (1ull << 20) * options.threads + (draw(random, 2) ? 200000 : 64u << 20);
    T_EQ("world", stk_sim_open(&world, current_seed, &io, &error), 0);
    add_shards(world, *packed);
    if (stk_engine_open_with_io(engine, world, &options, &error) < 0 ||
        stoker_dataset_open(&dataset, *engine, &about, &error) < 0) {
        T_ERROR("open", &error);
        return NULL;
    }
    if (*faults) {
        add_faults(world, random);
    }
    return dataset;
}

/* Closed objects end in the background: waits for that. */
static void await_alive(int64_t alive)
{
    for (int i = 0; i < 2000 && stk_mem_alive() != alive; i++) {
        usleep(1000 + (i > 200) * 4000);
    }
    check("blocks alive", (uint64_t)stk_mem_alive(), (uint64_t)alive);
}

static void run_history(uint64_t seed)
{
    struct mail mail = {.count = 0};
    struct caller callers[CALLERS] = {0};
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset;
    struct stoker_dataset_info about = {.struct_size = sizeof about};
    struct stoker_engine_info info = {.struct_size = sizeof info};
    pthread_t threads[CALLERS], closer;
    uint64_t random = stk_random_key(seed, 77);
    int64_t alive = stk_mem_alive();
    bool packed = false, faults = false, early;

    current_seed = seed;
    alarm(HANG_SECONDS);
    pthread_mutex_init(&mail.lock, NULL);
    pthread_cond_init(&mail.changed, NULL);
    dataset = open_data(&engine, &random, &packed, &faults);
    early = draw(&random, 2); /* the engine is closed before its loaders */
    if (dataset) {
        stoker_dataset_info(dataset, &about);
        pthread_create(&closer, NULL, closer_main, &mail);
        for (uint32_t i = 0; i < CALLERS; i++) {
            callers[i] = (struct caller){.dataset = dataset,
                                         .mail = &mail,
                                         .index = i + 1,
                                         .random = stk_random_key(seed, i),
                                         .packed = packed,
                                         .block_samples = about.block_samples,
                                         .faults = faults};
            pthread_create(&threads[i], NULL, caller_main, &callers[i]);
        }
        for (uint32_t i = 0; i < CALLERS; i++) {
            pthread_join(threads[i], NULL);
        }
        stoker_engine_info(engine, &info);
        check("in budget", info.memory_bytes_peak > info.memory_bytes_max, 0);
    }
    if (early) {
        stoker_engine_close(engine);
    }
    stoker_dataset_close(dataset);
    for (uint32_t i = 0; i < CALLERS * HELD_MAX; i++) {
        stoker_batch_close(callers[i / HELD_MAX].held[i % HELD_MAX]);
    }
    if (dataset) {
        pthread_mutex_lock(&mail.lock);
        mail.ended = true;
        pthread_cond_signal(&mail.changed);
        pthread_mutex_unlock(&mail.lock);
        pthread_join(closer, NULL);
    }
    if (!early) {
        stoker_engine_close(engine);
    }
    await_alive(alive);
    pthread_mutex_destroy(&mail.lock);
    pthread_cond_destroy(&mail.changed);
    alarm(0);
}

/* A loader whose caller takes no batches holds all memory for read-ahead: another loader, whose
 * caller waits, gets it. Both streams are complete. */
static void test_idle_neighbour(void)
{
    static const struct stoker_field_options fields[] = {
        {.name = "bin", .kind = STOKER_FIELD_BYTES, .extensions = "bin"}};
    struct stoker_engine_options engine_options = {
        .struct_size = sizeof engine_options, .threads = 1, .memory_bytes_max = 510000};
    struct stoker_dataset_options about = {.struct_size = sizeof about,
                                           .urls = (const char *const[]){"/d/{000..002}.tar"},
                                           .url_count = 1};
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = fields,
                                            .field_count = 1,
                                            .batch_size = 4,
                                            .batches_ahead = 30};
    struct stoker_loader *idle = NULL, *busy = NULL;
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    struct stoker_engine_info info = {.struct_size = sizeof info};
    struct stoker_batch *batch;
    struct stoker_error error = {0};
    struct stk_io *world = NULL;
    int batches[2] = {0}, status;

    T_EQ("world", stk_sim_open(&world, 1, NULL, NULL), 0);
    add_shards(world, false);
    T_EQ("engine", stk_engine_open_with_io(&engine, world, &engine_options, &error), 0);
    T_EQ("data", stoker_dataset_open(&dataset, engine, &about, &error), 0);
    T_EQ("idle", stoker_loader_open(&idle, dataset, &options, &error), 0);
    do { /* until it read ahead all that it can */
        usleep(20000);
        status = (int)info.memory_bytes;
        stoker_engine_info(engine, &info);
    } while (status != (int)info.memory_bytes);
    options.batch_size = 30;
    T_EQ("busy", stoker_loader_open(&busy, dataset, &options, &error), 0);
    for (int i = 0; i < 2; i++) {
        struct stoker_loader *loader = i == 0 ? busy : idle;
        while ((status = stoker_loader_next(loader, 9000, &batch, &error)) == 1) {
            batches[i]++;
            stoker_batch_close(batch);
        }
        T_EQ("complete", status, 0);
    }
    T_EQ("busy", batches[0], SAMPLES / 30);
    T_EQ("idle", batches[1], SAMPLES / 4);
    stoker_loader_close(idle);
    stoker_loader_close(busy);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

/* A folder on storage that does not answer: the files on their way stay within their bound. */
static void test_open_files(void)
{
    static const struct stoker_field_options fields[] = {
        {.name = "bytes", .kind = STOKER_FIELD_BYTES}};
    struct stk_io_options io = {.depth = 4, .read_timeout_ms = UINT32_MAX};
    struct stoker_engine_options engine_options = {.struct_size = sizeof engine_options,
                                                   .threads = 2,
                                                   .io_depth = 4,
                                                   .open_files_max = 8,
                                                   .read_timeout_ms = 1000};
    struct stoker_dataset_options about = {
        .struct_size = sizeof about, .urls = (const char *const[]){"/f"}, .url_count = 1};
    struct stoker_loader_options options = {
        .struct_size = sizeof options, .fields = fields, .field_count = 1, .batch_size = 100};
    struct stk_sim_rule hang = {.fault = STK_SIM_FAULT_HANG};
    struct stoker_loader *loader = NULL;
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    struct stoker_batch *batch;
    struct stk_io *world = NULL;
    uint32_t in_use, most = 0;
    char path[32];

    T_EQ("world", stk_sim_open(&world, 1, &io, NULL), 0);
    for (int i = 0; i < 300; i++) {
        snprintf(path, sizeof path, "/f/a/%03d.jpg", i);
        T_EQ("add", stk_sim_add(world, path, path, sizeof path), 0);
    }
    stk_sim_add_rule(world, &hang);
    T_EQ("engine", stk_engine_open_with_io(&engine, world, &engine_options, NULL), 0);
    T_EQ("data", stoker_dataset_open(&dataset, engine, &about, NULL), 0);
    T_EQ("loader", stoker_loader_open(&loader, dataset, &options, NULL), 0);
    for (int i = 0; i < 20; i++) {
        stoker_loader_next(loader, 5, &batch, NULL);
        stoker_batch_close(batch);
        pthread_mutex_lock(&dataset->files.lock);
        in_use = dataset->files.locked.in_use;
        pthread_mutex_unlock(&dataset->files.lock);
        most = in_use > most ? in_use : most;
    }
    T_TRUE("open files", most > 0 && most <= 8 + 2 * 2);
    stoker_loader_close(loader);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

int main(int argument_count, char **arguments)
{
    uint64_t seed = argument_count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    const char *setting = getenv("STOKER_TEST_LONG");
    uint64_t count = argument_count > 1 ? 1 : setting && *setting ? HISTORIES_LONG : HISTORIES;

    printf("seeds %llu to %llu\n", (unsigned long long)seed,
           (unsigned long long)(seed + count - 1));
    fflush(stdout);
    for (uint64_t i = 0; i < count; i++) {
        run_history(seed + i);
    }
    test_idle_neighbour();
    test_open_files();
    return t_finish();
}
