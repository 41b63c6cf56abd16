/* Goal: a call of the file system that never returns ends neither next(), copy() nor close(): the
 * error names the file and what the save does; the save is freed once the call returns; later saves
 * work. Method: a real folder; a chosen call waits until the test lets it go. Covers
 * save_calls.c. */
#include "base/mem.h"
#include "base/thread.h"
#include "checkpoint/write/writer.h"
#include "test/t.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TENSOR_BYTES (1u << 20)
#define LIMIT_MS 300u
#define NS_PER_S UINT64_C(1000000000)

enum call { NONE, CREATE, WRITE, SYNC, RENAME };

static const struct stk_io_table *true_table;
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum call call; /* waits */
    bool waits;     /* a thread is in it */
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

static int slow_write_at(struct stk_io *io, struct stk_output *out, uint64_t offset,
                         const void *bytes, size_t count, struct stoker_error *error)
{
    pass(WRITE);
    return true_table->write->write_at(io, out, offset, bytes, count, error);
}

static int slow_sync(struct stk_io *io, struct stk_output *out, struct stoker_error *error)
{
    pass(SYNC);
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
    table.write = &write;
    io->table = &table;
    T_EQ("engine", stk_engine_open_with_io(&engine, io, &options, NULL), 0);
    return engine;
}

static struct stoker_checkpoint_save *start_save(struct stoker_checkpoint_writer *writer,
                                                 uint64_t step)
{
    uint64_t shape = TENSOR_BYTES;
    struct stoker_checkpoint_tensor tensor = {"w", "U8", &shape, 1, data};
    struct stoker_checkpoint_save_options options = {
        .struct_size = sizeof options, .step = step, .tensors = &tensor, .tensor_count = 1};
    struct stoker_checkpoint_save *save = NULL;
    int status;

    T_EQ("save", stoker_checkpoint_save_open(&save, writer, &options, NULL), 0);
    do {
        status = stoker_checkpoint_save_copy(save, 50, NULL);
    } while (status == STOKER_ERROR_AGAIN);
    return save;
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

int main(void)
{
    struct stoker_checkpoint_writer_options options = {.struct_size = sizeof options,
                                                       .path = folder,
                                                       .threads = 2,
                                                       .memory_bytes_max = 64u << 20,
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
    stoker_checkpoint_writer_close(writer);
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
