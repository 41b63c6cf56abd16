/* Goal: the default memory of a writer is a part of what this process may use; its limits delay
 * writes, also of CPU time, until they are changed.
 * An index of names that cannot be made is left out.
 * Method: compares the blocks of a writer with the grant of the cgroup, and measures how long
 * writes wait, also on several threads while the limits change; a step whose files are missing.
 * Covers writer.c, step_index.c. */
#include "base/mem.h"
#include "checkpoint/layout/name_index.h"
#include "checkpoint/write/writer.h"
#include "test/checkpoints.h"

#include <unistd.h>

#define THREADS 4u

/* Milliseconds that four writes of 1 MiB and 10 ms of CPU time wait. */
static uint64_t wait_ms(struct stoker_checkpoint_writer *writer)
{
    uint64_t begin = stk_engine_now(writer->engine);
    _Atomic bool stopping = false;

    for (int i = 0; i < 4; i++) {
        stk_writer_throttle(writer, 1u << 20, 10000000, &stopping);
    }
    return (stk_engine_now(writer->engine) - begin) / 1000000;
}

static void test_limits(struct stoker_checkpoint_writer *writer)
{
    struct stoker_error error = {0};
    _Atomic bool stopping = true;
    uint64_t ms;

    T_TRUE("no limit", wait_ms(writer) < 100);
    T_EQ("10 MiB/s", stoker_checkpoint_writer_set_limits(writer, 10u << 20, 0, &error), 0);
    ms = wait_ms(writer); /* three of four wait 100 ms each */
    T_TRUE("bytes", ms >= 300 && ms < 3000);
    T_EQ("100 percent", stoker_checkpoint_writer_set_limits(writer, 0, 100, &error), 0);
    writer->engine->cores = 1;
    T_TRUE("a full core", wait_ms(writer) >= 30);
    T_EQ("10 percent", stoker_checkpoint_writer_set_limits(writer, 0, 10, &error), 0);
    ms = wait_ms(writer);
    T_TRUE("CPU time", ms >= 300 && ms < 3000);
    stk_writer_throttle(writer, 1u << 30, UINT64_C(1000000000000), &stopping); /* does not wait */
    T_EQ("no limit again", stoker_checkpoint_writer_set_limits(writer, 0, 0, &error), 0);
    T_TRUE("at once", wait_ms(writer) < 100);
    T_EQ("101 percent", stoker_checkpoint_writer_set_limits(writer, 0, 101, &error),
         STOKER_ERROR_ARGUMENT);
}

static void *throttled_main(void *argument)
{
    static _Atomic bool stopping;

    for (int i = 0; i < 200; i++) {
        stk_writer_throttle(argument, 1u << 20, 1000000, &stopping);
    }
    return NULL;
}

/* Threads wait for their turn while another one changes the limits. */
static void test_threads(struct stoker_checkpoint_writer *writer)
{
    uint64_t begin = stk_engine_now(writer->engine);
    pthread_t threads[THREADS];

    T_EQ("limits", stoker_checkpoint_writer_set_limits(writer, 1u << 20, 1, NULL), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        T_EQ("thread", pthread_create(&threads[i], NULL, throttled_main, writer), 0);
    }
    for (uint32_t i = 0; i < 20; i++) {
        usleep(2000);
        T_EQ("limits",
             stoker_checkpoint_writer_set_limits(writer, (1u << 20) << i % 4, 1 + i, NULL), 0);
    }
    T_EQ("no limit", stoker_checkpoint_writer_set_limits(writer, 0, 0, NULL), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    /* 800 MiB at 1 MiB/s would take 13 minutes. */
    T_TRUE("threads that wait see the change",
           stk_engine_now(writer->engine) - begin < UINT64_C(60000000000));
}

/* A step with few tensors needs no index, and one whose files cannot be read gets none. */
static void test_no_index(struct stoker_checkpoint_writer *writer)
{
    struct stoker_checkpoint_part part = {.name = "shard-00000.safetensors", .bytes = 100};
    struct stk_step_manifest manifest = {
        .step = 1, .ranks = 1, .files = &part, .file_count = 1, .tensors = 5};

    stk_checkpoint_index_step(&writer->place, writer->engine, &manifest, "a");
    T_STR("few tensors", manifest.index.name, "");
    manifest.tensors = STK_NAME_INDEX_TENSORS_MIN;
    stk_checkpoint_index_step(&writer->place, writer->engine, &manifest, "a");
    T_STR("no file", manifest.index.name, "");
}

int main(void)
{
    struct stoker_checkpoint_writer_options options = {.struct_size = sizeof options, .path = "/x"};
    uint64_t want = stk_max(stk_cgroup_available_memory() / 4, STK_WRITER_MEMORY_BYTES_MIN);
    struct stoker_checkpoint_writer *writer = NULL;
    struct stoker_engine *engine;
    int64_t alive = stk_mem_alive();

    engine = t_open_engine(NULL);
    T_EQ("writer", stoker_checkpoint_writer_open(&writer, engine, &options, NULL), 0);
    T_EQ("a quarter", writer->blocks_max, want / STK_SAFETENSORS_BLOCK_BYTES);
    test_limits(writer);
    test_threads(writer);
    test_no_index(writer);
    stoker_checkpoint_writer_close(writer);
    options.cpu_percent_max = 101;
    T_EQ("percent", stoker_checkpoint_writer_open(&writer, engine, &options, NULL),
         STOKER_ERROR_ARGUMENT);
    stoker_engine_close(engine);
    T_EQ("memory", stk_mem_alive(), alive);
    return t_finish();
}
