/* Goal: the default memory of a writer is a part of what this process may use.
 * Method: compares the blocks of a writer with the grant of the cgroup. Covers writer.c. */
#include "base/mem.h"
#include "checkpoint/write/writer.h"
#include "test/t.h"

int main(void)
{
    struct stoker_engine_options engine_options = {
        .struct_size = sizeof engine_options, .threads = 1, .memory_bytes_max = 64u << 20};
    struct stoker_checkpoint_writer_options options = {.struct_size = sizeof options, .path = "/x"};
    uint64_t want = stk_max(stk_cgroup_available_memory() / 4, STK_WRITER_MEMORY_BYTES_MIN);
    struct stoker_checkpoint_writer *writer = NULL;
    struct stoker_engine *engine = NULL;
    int64_t alive = stk_mem_alive();

    T_EQ("engine", stoker_engine_open(&engine, &engine_options, NULL), 0);
    T_EQ("writer", stoker_checkpoint_writer_open(&writer, engine, &options, NULL), 0);
    T_EQ("a quarter", writer->blocks_max, want / STK_SAFETENSORS_BLOCK_BYTES);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
    T_EQ("memory", stk_mem_alive(), alive);
    return t_finish();
}
