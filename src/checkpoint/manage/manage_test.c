/* Goal: gc() never removes the files of a save that runs, on any file system; a step is committed
 * only with all its files; an error is never taken for an absent pin or step.
 * Method: a simulated file system without locks and with failing calls, and a real folder with lock
 * files of dead and other processes. Covers gc.c, list.c, commit.c, sink.c, checkpoint.c. */
#include "base/mem.h"
#include "checkpoint/manage/manage.h"
#include "checkpoint/read/checkpoint.h"
#include "io/sim/sim.h"
#include "io/write.h"
#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOT "/run/checkpoints"
#define BYTES 100u

/* Seconds whose nanoseconds are 0 modulo 2^64. */
#define AGE_OVERFLOW_S (UINT64_C(1) << 55)

static struct stoker_engine *open_engine(struct stk_io *io)
{
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = 64u << 20};
    struct stoker_engine *engine = NULL;

    T_EQ("engine",
         io ? stk_engine_open_with_io(&engine, io, &options, NULL)
            : stoker_engine_open(&engine, &options, NULL),
         0);
    return engine;
}

static struct stoker_checkpoint_writer *open_writer(struct stoker_engine *engine, const char *path)
{
    struct stoker_checkpoint_writer_options options = {
        .struct_size = sizeof options, .path = path, .threads = 1, .memory_bytes_max = 64u << 20};
    struct stoker_checkpoint_writer *writer = NULL;

    T_EQ("writer", stoker_checkpoint_writer_open(&writer, engine, &options, NULL), 0);
    return writer;
}

/* Writes a tensor of BYTES times `value`. */
static int save_with(struct stoker_checkpoint_writer *writer,
                     struct stoker_checkpoint_save_options *options, uint8_t value,
                     struct stoker_checkpoint_save **save_out, struct stoker_error *error)
{
    uint64_t shape = BYTES;
    uint8_t data[BYTES];
    struct stoker_checkpoint_tensor tensor = {"x", "U8", &shape, 1, data};
    int status;

    memset(data, value, sizeof data);
    options->struct_size = sizeof *options;
    options->tensors = &tensor;
    options->tensor_count = 1;
    status = stoker_checkpoint_save_open(save_out, writer, options, error);
    options->tensors = NULL;
    if (status < 0) {
        return status;
    }
    do {
        status = stoker_checkpoint_save_copy(*save_out, 100, error);
    } while (status == STOKER_ERROR_AGAIN);
    while (status >= 0 &&
           (status = stoker_checkpoint_save_next(*save_out, 100, NULL, error)) == 1) {
    }
    return status;
}

static int save_step(struct stoker_checkpoint_writer *writer, uint64_t step, uint8_t value,
                     struct stoker_error *error)
{
    struct stoker_checkpoint_save_options options = {.step = step};
    struct stoker_checkpoint_save *save = NULL;
    int status = save_with(writer, &options, value, &save, error);

    stoker_checkpoint_save_close(save);
    return status;
}

/* The value of the tensor in a step or file; or the error of opening or reading it. */
static int load(struct stoker_engine *engine, const char *path, uint64_t step,
                struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_load *running = NULL;
    uint8_t data[BYTES];
    struct stoker_checkpoint_range range = {0, 0, BYTES, data};
    int status = stoker_checkpoint_open(&checkpoint, engine, path, step, error);

    if (status == 0) {
        status = stoker_checkpoint_load_open(&running, checkpoint, &range, 1, error);
        while (status >= 0 &&
               (status = stoker_checkpoint_load_next(running, 100, NULL, error)) == 1) {
        }
        stoker_checkpoint_load_close(running);
        stoker_checkpoint_close(checkpoint);
    }
    return status < 0 ? status : data[0];
}

/* The save of rank 0 of two, written and not committed: its lock is held. */
static struct stoker_checkpoint_save *running_save(struct stoker_checkpoint_writer *writer)
{
    struct stoker_checkpoint_save_options options = {
        .step = 1, .rank = 0, .ranks = 2, .save_id = "live"};
    struct stoker_checkpoint_save *save = NULL;

    T_EQ("save", save_with(writer, &options, 1, &save, NULL), 0);
    return save;
}

/* The simulated file is from 1970, and old. */
static void test_no_locks(void)
{
    static const struct lock_row {
        const char *name;
        uint64_t age_min_s;
        bool locks;
        uint64_t removed;
    } rows[] = {
        {"no locks", UINT64_MAX, false, 0}, {"no locks, overflow", AGE_OVERFLOW_S, false, 0},
        {"no locks, old", 1, false, 1},     {"locks", UINT64_MAX, true, 0},
        {"locks, old", 1, true, 0},
    };

    T_EACH(lock_row, row, rows)
    {
        struct stoker_checkpoint_gc_options options = {.struct_size = sizeof options,
                                                       .age_min_s = row->age_min_s};
        struct stoker_checkpoint_gc_result result = {.struct_size = sizeof result};
        struct stk_sim_rule rule = {.fault = STK_SIM_FAULT_NO_LOCK};
        struct stk_io *io = NULL;
        struct stoker_engine *engine;
        struct stoker_checkpoint_writer *writer;
        struct stoker_checkpoint_save *save;

        T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
        T_EQ("rule", row->locks ? 0 : stk_sim_add_rule(io, &rule), 0);
        engine = open_engine(io);
        writer = open_writer(engine, ROOT);
        T_EQ("another", save_step(writer, 9, 3, NULL), 0);
        save = running_save(writer);
        T_EQ(row->name, stoker_checkpoint_gc(engine, ROOT, &options, &result, NULL), 0);
        T_EQ(row->name, result.saves_removed, row->removed);
        T_EQ(row->name, load(engine, ROOT, 9, NULL), 3);
        stoker_checkpoint_save_close(save);
        stoker_checkpoint_writer_close(writer);
        stoker_engine_close(engine);
    }
}

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0666);

    T_EQ("text", write(fd, text, strlen(text)), (int64_t)strlen(text));
    close(fd);
}

/* A new folder with a free lock file: only a dead process of this host shows that it is a rest. */
static void test_holders(void)
{
    char folder[] = "/tmp/stoker-manage-XXXXXX", part[128], lock[128], host[64] = "", text[4][128];
    static const uint64_t removed[4] = {1, 0, 0, 0};
    struct stoker_engine *engine = open_engine(NULL);
    pid_t child = fork();

    if (child == 0) {
        _exit(0);
    }
    T_EQ("dead", waitpid(child, NULL, 0), child);
    T_TRUE("folder", mkdtemp(folder) != NULL);
    (void)gethostname(host, sizeof host - 1);
    snprintf(text[0], sizeof text[0], "process %ld on %s\n", (long)child, host);
    snprintf(text[1], sizeof text[1], "process %ld on %s\n", (long)getpid(), host);
    snprintf(text[2], sizeof text[2], "process %ld on %s-other\n", (long)child, host);
    text[3][0] = '\0';
    snprintf(part, sizeof part, "%s/.stoker-0000000001-ab.part", folder);
    snprintf(lock, sizeof lock, "%s/.stoker-0000000001-ab.lock", folder);
    for (int i = 0; i < 4; i++) {
        struct stoker_checkpoint_gc_options options = {.struct_size = sizeof options};
        struct stoker_checkpoint_gc_result result = {.struct_size = sizeof result};

        T_EQ("part", mkdir(part, 0777), 0);
        write_text(lock, text[i]);
        T_EQ("gc", stoker_checkpoint_gc(engine, folder, &options, &result, NULL), 0);
        T_EQ(text[i], result.saves_removed, removed[i]);
        T_EQ("lock", access(lock, F_OK) == 0, !removed[i]);
        (void)rmdir(part);
        (void)unlink(lock);
    }
    T_EQ("folder", rmdir(folder), 0);
    stoker_engine_close(engine);
}

int main(void)
{
    int64_t alive = stk_mem_alive();

    test_no_locks();
    test_holders();
    T_EQ("memory", stk_mem_alive(), alive);
    return t_finish();
}
