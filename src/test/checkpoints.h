/* test/checkpoints.h: small engines and writers for the tests of checkpoints.
 *
 *   t_open_engine(NULL) -> t_open_writer(engine, path, threads) -> saves
 *
 * Owner: the test closes what it opens. Threads: any. Memory: 64 MiB of each. Bound: none. */
#ifndef TEST_CHECKPOINTS_H
#define TEST_CHECKPOINTS_H

#include "engine/engine.h"
#include "test/t.h"

#define T_MEMORY_BYTES (UINT64_C(64) << 20)

/* io: of the simulation; NULL: the files of this machine. */
static inline struct stoker_engine *t_open_engine(struct stk_io *io)
{
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = T_MEMORY_BYTES};
    struct stoker_engine *engine = NULL;

    T_EQ("engine",
         io ? stk_engine_open_with_io(&engine, io, &options, NULL)
            : stoker_engine_open(&engine, &options, NULL),
         0);
    return engine;
}

static inline struct stoker_checkpoint_writer *t_open_writer(struct stoker_engine *engine,
                                                             const char *path, uint32_t threads)
{
    struct stoker_checkpoint_writer_options options = {.struct_size = sizeof options,
                                                       .path = path,
                                                       .threads = threads,
                                                       .memory_bytes_max = T_MEMORY_BYTES};
    struct stoker_checkpoint_writer *writer = NULL;

    T_EQ("writer", stoker_checkpoint_writer_open(&writer, engine, &options, NULL), 0);
    return writer;
}

/* Saves a step and waits until it is complete. */
static inline void t_save(struct stoker_checkpoint_writer *writer,
                          const struct stoker_checkpoint_save_options *options)
{
    struct stoker_checkpoint_save *running = NULL;
    int status;

    T_EQ("save", stoker_checkpoint_save_open(&running, writer, options, NULL), 0);
    T_EQ("copy", stoker_checkpoint_save_copy(running, 60000, NULL), 0);
    while ((status = stoker_checkpoint_save_next(running, 1000, NULL, NULL)) == 1) {
    }
    T_EQ("saved", status, 0);
    stoker_checkpoint_save_close(running);
}

#endif
