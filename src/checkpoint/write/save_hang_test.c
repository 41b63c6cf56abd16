/* Goal: a call of the file system that never returns ends neither next(), copy() nor close(): the
 * error names the file and what the save does; the save is freed once the call returns; later saves
 * work. A shared file that is copied slowly is no hang, follows the limits and can be stopped.
 * Method: a real folder; a chosen call waits until the test lets it go; links fail. Covers
 * save_calls.c, shared.c. */
#include "base/mem.h"
#include "base/thread.h"
#include "checkpoint/write/writer.h"
#include "test/checkpoints.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TENSOR_BYTES (1u << 20)
#define SHARED_BYTES (48u << 20) /* more than 3 blocks, with the header */
#define SHARED_BLOCKS 4u
#define LIMIT_MS 300u
#define NS_PER_S UINT64_C(1000000000)

enum call { NONE, CREATE, WRITE, SYNC, RENAME, COPY };

static const struct stk_io_table *true_table;
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum call call;                /* waits */
    bool waits;                    /* a thread is in it */
    bool copies;                   /* a link failed: blocks of a shared file are copied */
    uint32_t copied, calls, turns; /* blocks; calls and turns of the limit, one after another */
    uint64_t begin_ns, turn_ns;    /* of the last block */
    struct stoker_checkpoint_save *save;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER};
static char folder[64];
static uint8_t data[TENSOR_BYTES];

static void pass(enum call call)
{
    pthread_mutex_lock(&gate.lock);
    while (gate.call == call) {
        gate.waits = true;
        pthread_cond_wait(&gate.changed, &gate.lock);
    }
    pthread_mutex_unlock(&gate.lock);
}

static void set_gate(enum call call)
{
    pthread_mutex_lock(&gate.lock);
    gate.call = call;
    gate.waits = false;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static int slow_create(struct stk_io *io, const char *path, bool exclusive,
                       struct stk_output **out_out, struct stoker_error *error)
{
    pass(CREATE);
    return true_table->write->create(io, path, exclusive, out_out, error);
}

static int fail_link(struct stk_io *io, const char *from, const char *to,
                     struct stoker_error *error)
{
    (void)io, (void)from;
    pthread_mutex_lock(&gate.lock);
    gate.copies = true;
    gate.copied = gate.calls = gate.turns = 0;
    gate.begin_ns = gate.turn_ns = 0;
    pthread_mutex_unlock(&gate.lock);
    return stk_fail_errno(error, EPERM, "there are no links", "copy it", "'%.400s'", to);
}

/* Whether this is a write of a shared file that is copied. Counts it, and what begins with it. */
static bool count_copy(void)
{
    uint64_t begin_ns, turn_ns;
    bool copies;

    pthread_mutex_lock(&gate.lock);
    copies = gate.copies;
    if (copies) {
        begin_ns = atomic_load(&gate.save->calls[0].begin_ns); /* the writer has one thread */
        pthread_mutex_lock(&gate.save->writer->lock);
        turn_ns = gate.save->writer->locked.rate_turn_ns;
        pthread_mutex_unlock(&gate.save->writer->lock);
        gate.copied++;
        gate.calls += begin_ns > gate.begin_ns;
        gate.turns += turn_ns > gate.turn_ns;
        gate.begin_ns = begin_ns;
        gate.turn_ns = turn_ns;
    }
    pthread_mutex_unlock(&gate.lock);
    return copies;
}

static int slow_write_at(struct stk_io *io, struct stk_output *out, uint64_t offset,
                         const void *bytes, size_t count, struct stoker_error *error)
{
    pass(WRITE);
    if (count_copy()) {
        pass(COPY);
    }
    return true_table->write->write_at(io, out, offset, bytes, count, error);
}

static int slow_sync(struct stk_io *io, struct stk_output *out, struct stoker_error *error)
{
    pass(SYNC);
    pthread_mutex_lock(&gate.lock);
    gate.copies = false;
    pthread_mutex_unlock(&gate.lock);
    return true_table->write->sync_output(io, out, error);
}

static int slow_rename(struct stk_io *io, const char *from, const char *to, bool exclusive,
                       struct stoker_error *error)
{
    pass(RENAME);
    return true_table->write->rename(io, from, to, exclusive, error);
}

static struct stoker_engine *open_engine(void)
{
    static struct stk_io_table table;
    static struct stk_write_table write;
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = 64u << 20};
    struct stoker_engine *engine = NULL;
    struct stk_io *io = NULL;

    T_EQ("io", stk_io_open(&io, &(struct stk_io_options){0}, NULL), 0);
    true_table = io->table;
    table = *io->table;
    write = *io->table->write;
    write.create = slow_create;
    write.write_at = slow_write_at;
    write.sync_output = slow_sync;
    write.rename = slow_rename;
    write.link = fail_link;
    table.write = &write;
    io->table = &table;
    T_EQ("engine", stk_engine_open_with_io(&engine, io, &options, NULL), 0);
    return engine;
}

static struct stoker_checkpoint_save *start_save_of(struct stoker_checkpoint_writer *writer,
                                                    uint64_t step, const uint8_t *bytes,
                                                    uint64_t shape)
{
    struct stoker_checkpoint_tensor tensor = {"w", "U8", &shape, 1, bytes};
    struct stoker_checkpoint_save_options options = {
        .struct_size = sizeof options, .step = step, .tensors = &tensor, .tensor_count = 1};
    struct stoker_checkpoint_save *save = NULL;
    int status;

    T_EQ("save", stoker_checkpoint_save_open(&save, writer, &options, NULL), 0);
    pthread_mutex_lock(&gate.lock);
    gate.save = save;
    pthread_mutex_unlock(&gate.lock);
    do {
        status = stoker_checkpoint_save_copy(save, 50, NULL);
    } while (status == STOKER_ERROR_AGAIN);
    return save;
}

static struct stoker_checkpoint_save *start_save(struct stoker_checkpoint_writer *writer,
                                                 uint64_t step)
{
    return start_save_of(writer, step, data, TENSOR_BYTES);
}

static int finish(struct stoker_checkpoint_save *save, struct stoker_error *error)
{
    int status;

    while ((status = stoker_checkpoint_save_next(save, 20, NULL, error)) == 1) {
    }
    return status;
}

static void test_hang(struct stoker_checkpoint_writer *writer, uint64_t step, enum call call,
                      const char *what, const char *where)
{
    struct stoker_checkpoint_progress progress = {.struct_size = sizeof progress};
    struct stoker_error error = {0};
    int64_t alive = stk_mem_alive();
    uint64_t start_ns = stk_engine_now(writer->engine);
    struct stoker_checkpoint_save *save;

    set_gate(call);
    save = start_save(writer, step);
    T_EQ(what, finish(save, &error), STOKER_ERROR_TIMEOUT);
    T_TRUE("not before the limit",
           stk_engine_now(writer->engine) - start_ns >= LIMIT_MS * UINT64_C(1000000));
    T_HAS("the stage", error.what, what);
    T_HAS("the file", error.where, where);
    T_EQ("again", stoker_checkpoint_save_next(save, 0, &progress, &error), STOKER_ERROR_TIMEOUT);
    start_ns = stk_engine_now(writer->engine);
    stoker_checkpoint_save_close(save);
    T_TRUE("close does not wait", stk_engine_now(writer->engine) - start_ns < 20 * NS_PER_S);
    set_gate(NONE);
    for (int i = 0; i < 2000 && stk_mem_alive() > alive + 2; i++) { /* a block stays in the pool */
        usleep(10000);
    }
    T_TRUE("freed by its threads", stk_mem_alive() <= alive + 2);
}

/* Without next(): close() finds the hang by itself. */
static void test_close(struct stoker_checkpoint_writer *writer, uint64_t step)
{
    uint64_t start_ns = stk_engine_now(writer->engine);

    set_gate(SYNC);
    stoker_checkpoint_save_close(start_save(writer, step));
    T_TRUE("ends", stk_engine_now(writer->engine) - start_ns < 20 * NS_PER_S);
    set_gate(NONE);
}

/* One call of next() that would wait for a minute. */
static void test_long_wait(struct stoker_checkpoint_writer *writer, uint64_t step)
{
    uint64_t start_ns = stk_engine_now(writer->engine);
    struct stoker_checkpoint_save *save;
    struct stoker_error error = {0};

    set_gate(SYNC);
    save = start_save(writer, step);
    T_EQ("a long wait", stoker_checkpoint_save_next(save, 60000, NULL, &error),
         STOKER_ERROR_TIMEOUT);
    T_HAS("the stage", error.what, "syncs its files");
    T_TRUE("ends soon", stk_engine_now(writer->engine) - start_ns < 20 * NS_PER_S);
    stoker_checkpoint_save_close(save);
    set_gate(NONE);
}

/* Saves until the next one would link its shared file, which fails, so that it is copied. */
static struct stoker_checkpoint_writer *make_shared(struct stoker_engine *engine,
                                                    const uint8_t *bytes, uint64_t step)
{
    struct stoker_checkpoint_writer *writer = t_open_writer(engine, folder, 1);

    for (uint64_t i = 0; i < 3; i++) {
        struct stoker_checkpoint_save *save = start_save_of(writer, step + i, bytes, SHARED_BYTES);

        T_EQ("save", finish(save, NULL), 0);
        stoker_checkpoint_save_close(save);
        if (i < 2) {
            T_EQ("remove", stoker_checkpoint_remove(engine, folder, step + i, NULL), 0);
        }
    }
    return writer;
}

/* Each block is a call of its own, which obeys the limits. */
static void test_copy(struct stoker_checkpoint_writer *writer, const uint8_t *bytes, uint64_t step)
{
    struct stoker_checkpoint_save *save;

    T_EQ("limit", stoker_checkpoint_writer_set_limits(writer, 1u << 30, 0, NULL), 0);
    save = start_save_of(writer, step, bytes, SHARED_BYTES);
    T_EQ("save", finish(save, NULL), 0);
    T_EQ("copied", gate.copied, SHARED_BLOCKS);
    T_EQ("calls", gate.calls, SHARED_BLOCKS);
    T_EQ("turns of the limit", gate.turns, SHARED_BLOCKS);
    stoker_checkpoint_save_close(save);
    T_EQ("no limit", stoker_checkpoint_writer_set_limits(writer, 0, 0, NULL), 0);
}

static void test_stop_copy(struct stoker_checkpoint_writer *writer, const uint8_t *bytes,
                           uint64_t step)
{
    struct stoker_error error = {0};
    struct stoker_checkpoint_save *save;
    bool waits = false;

    set_gate(COPY);
    save = start_save_of(writer, step, bytes, SHARED_BYTES);
    for (int i = 0; i < 2000 && !waits; i++) {
        usleep(10000);
        pthread_mutex_lock(&gate.lock);
        waits = gate.waits;
        pthread_mutex_unlock(&gate.lock);
    }
    T_TRUE("it copies", waits);
    stk_checkpoint_save_stop(save);
    set_gate(NONE);
    T_EQ("stopped", finish(save, &error), STOKER_ERROR_CLOSED);
    T_EQ("after the block that it wrote", gate.copied, 1);
    stoker_checkpoint_save_close(save);
    pthread_mutex_lock(&gate.lock);
    gate.copies = false;
    pthread_mutex_unlock(&gate.lock);
}

static void test_copies(struct stoker_engine *engine, uint64_t step)
{
    uint8_t *bytes = malloc(SHARED_BYTES);
    struct stoker_checkpoint_writer *writer;
    uint32_t random = 1;

    for (size_t i = 0; i < SHARED_BYTES; i++) {
        random = random * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(random >> 24);
    }
    writer = make_shared(engine, bytes, step);
    test_copy(writer, bytes, step + 3);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, step + 2, NULL), 0);
    test_stop_copy(writer, bytes, step + 4);
    stoker_checkpoint_writer_close(writer);
    free(bytes);
}

int main(void)
{
    struct stoker_checkpoint_writer_options options = {.struct_size = sizeof options,
                                                       .path = folder,
                                                       .threads = 2,
                                                       .memory_bytes_max = T_MEMORY_BYTES,
                                                       .call_timeout_ms = LIMIT_MS};
    struct stoker_checkpoint_writer *writer = NULL;
    struct stoker_checkpoint_save *save;
    struct stoker_engine *engine;
    int64_t alive = stk_mem_alive();
    char command[100];

    pthread_cond_init(&gate.changed, NULL);
    snprintf(folder, sizeof folder, "%s/stoker-hang-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    T_TRUE("folder", mkdtemp(folder) != NULL);
    engine = open_engine();
    T_EQ("writer", stoker_checkpoint_writer_open(&writer, engine, &options, NULL), 0);
    save = start_save(writer, 1);
    T_EQ("a save that does not hang", finish(save, NULL), 0);
    stoker_checkpoint_save_close(save);
    test_hang(writer, 2, CREATE, "creates its files", folder);
    test_hang(writer, 3, WRITE, "writes a file", "shard-00000.safetensors");
    test_hang(writer, 4, SYNC, "syncs its files", "shard-00000.safetensors");
    test_hang(writer, 5, RENAME, "commits the manifest", folder);
    test_close(writer, 6);
    save = start_save(writer, 7);
    T_EQ("a later save works", finish(save, NULL), 0);
    stoker_checkpoint_save_close(save);
    test_long_wait(writer, 8);
    stoker_checkpoint_writer_close(writer);
    test_copies(engine, 10);
    stoker_engine_close(engine);
    for (int i = 0; i < 2000 && stk_mem_alive() > alive; i++) {
        usleep(10000);
    }
    T_EQ("memory", stk_mem_alive(), alive);
    snprintf(command, sizeof command, "rm -r %s", folder);
    T_EQ("removed", system(command), 0);
    pthread_cond_destroy(&gate.changed);
    return t_finish();
}
