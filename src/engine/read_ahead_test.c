/* Goal: a reader returns a file's bytes from front to back, however the disk behaves; an error has
 * its offset; a reader can be used again after each of them.
 * Method: a simulated file with fault rules, a row each, read twice with one reader. */
#include "base/mem.h"
#include "engine/read_ahead.h"
#include "io/sim/sim.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 7 * STK_READ_AHEAD_BLOCK_BYTES + 12345 };

static const struct reader_row {
    const char *name;
    uint32_t fault; /* enum stk_sim_fault; 0: none */
    uint32_t every;
    uint64_t offset;
    int status;         /* wanted at the end */
    uint64_t bytes_max; /* wanted before it, at most */
} reader_rows[] = {
    {"warm", 0, 0, 0, 0, BYTES},
    {"cold", STK_SIM_FAULT_COLD, 0, 0, 0, BYTES},
    {"some are cold", STK_SIM_FAULT_COLD, 2, 0, 0, BYTES},
    {"short", STK_SIM_FAULT_SHORT, 0, 0, 0, BYTES},
    {"slow", STK_SIM_FAULT_SLOW, 3, 0, 0, BYTES},
    {"cut since stat", STK_SIM_FAULT_TRUNCATED, 0, 3000000, 0, 3000000},
    {"damaged", STK_SIM_FAULT_EIO, 0, 5u << 20, -EIO, 5u << 20},
    {"hangs", STK_SIM_FAULT_HANG, 0, 4u << 20, STOKER_ERROR_TIMEOUT, 4u << 20},
};

static void read_all(const struct reader_row *row, struct stk_read_ahead *reader,
                     const uint8_t *want)
{
    struct stoker_error error = {0};
    struct stk_view block;
    uint64_t at = 0;
    int status = stk_read_ahead_start(reader, "/f", &error);

    while (status == 0) {
        status = stk_read_ahead_next(reader, &block, &error);
        if (status < 0 || block.bytes == 0) {
            break;
        }
        T_TRUE(row->name,
               at + block.bytes <= BYTES && memcmp(block.data, want + at, block.bytes) == 0);
        at += block.bytes;
    }
    T_EQ(row->name, status, row->status);
    T_TRUE(row->name, row->status < 0 ? at <= row->bytes_max : at == row->bytes_max);
    if (status < 0) {
        T_ERROR(row->name, &error);
        T_EQ(row->name, error.offset, at);
    }
    stk_read_ahead_stop(reader);
}

int main(void)
{
    uint8_t *data = malloc(BYTES);
    int64_t alive = stk_mem_alive();

    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)(i * 2654435761u >> 13);
    }
    T_EACH(reader_row, row, reader_rows)
    {
        struct stk_io_options io = {.depth = 8, .read_timeout_ms = 1000};
        struct stoker_engine_options options = {
            .struct_size = sizeof options, .threads = 1, .memory_bytes_max = 64u << 20};
        struct stk_sim_rule rule = {"/f", row->fault, row->every, 0, row->offset, 5000000};
        struct stk_io *world = NULL;
        struct stoker_engine *engine = NULL;
        struct stk_read_ahead reader;

        T_EQ("world", stk_sim_open(&world, 1, &io, NULL), 0);
        T_EQ("engine", stk_engine_open_with_io(&engine, world, &options, NULL), 0);
        stk_sim_add(world, "/f", data, BYTES);
        if (row->fault) {
            stk_sim_add_rule(world, &rule);
        }
        stk_read_ahead_init(&reader, engine);
        read_all(row, &reader, data);
        read_all(row, &reader, data);
        stk_read_ahead_deinit(&reader);
        stoker_engine_close(engine);
    }
    T_EQ("no leak", stk_mem_alive(), alive);
    free(data);
    return t_finish();
}
