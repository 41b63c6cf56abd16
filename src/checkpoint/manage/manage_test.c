/* Goal: gc() never removes the files of a save that runs, on any file system; a step is committed
 * only with all its files; an error is never taken for an absent pin or step.
 * Method: a simulated file system without locks and with failing calls, and a real folder with lock
 * files of dead and other processes. Covers gc.c, probe.c, list.c, commit.c, sink.c, checkpoint.c.
 */
#include "base/mem.h"
#include "checkpoint/manage/manage.h"
#include "checkpoint/read/checkpoint.h"
#include "io/sim/sim.h"
#include "io/write.h"
#include "test/checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROOT "/run/checkpoints"
#define BYTES 100u

/* Seconds whose nanoseconds are 0 modulo 2^64. */
#define AGE_OVERFLOW_S (UINT64_C(1) << 55)

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

/* The value of a tensor in a step or file; or the error of opening or reading it. */
static int load_tensor(struct stoker_engine *engine, const char *path, uint64_t step,
                       uint64_t tensor, struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_load *running = NULL;
    uint8_t data[BYTES];
    struct stoker_checkpoint_range range = {tensor, 0, BYTES, data};
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

static int load(struct stoker_engine *engine, const char *path, uint64_t step,
                struct stoker_error *error)
{
    return load_tensor(engine, path, step, 0, error);
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
        engine = t_open_engine(io);
        writer = t_open_writer(engine, ROOT, 1);
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
    struct stoker_engine *engine = t_open_engine(NULL);
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

/* Rank 1 wrote step 1, rank 0 commits step 2 with the part that it got. */
static void test_commit_checks_files(void)
{
    struct stoker_checkpoint_save_options options = {.step = 1, .ranks = 2, .save_id = "same"};
    struct stoker_checkpoint_save *saves[3] = {NULL, NULL, NULL};
    struct stoker_checkpoint_part parts[3];
    struct stoker_error error = {0};
    struct stk_io *io = NULL;
    struct stoker_engine *engine;
    struct stoker_checkpoint_writer *writer;

    T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
    engine = t_open_engine(io);
    writer = t_open_writer(engine, ROOT, 1);
    options.step = 2;
    T_EQ("rank 0", save_with(writer, &options, 2, &saves[0], &error), 0);
    options.rank = 1;
    options.step = 1;
    T_EQ("rank 1", save_with(writer, &options, 1, &saves[1], &error), 0);
    for (int i = 0; i < 2; i++) {
        T_EQ("part", stoker_checkpoint_save_part(saves[i], &parts[i], &error), 0);
    }
    options.step = 2;
    T_EQ("commit", stoker_checkpoint_commit(writer, &options, parts, &error), STOKER_ERROR_MISSING);
    T_HAS("names it", error.where, "shard-00001");
    T_EQ("no step", load(engine, ROOT, 2, &error), -ENOENT);
    T_EQ("the file", save_with(writer, &options, 1, &saves[2], &error), 0);
    parts[1].bytes++;
    T_EQ("length", stoker_checkpoint_commit(writer, &options, parts, &error),
         STOKER_ERROR_TRUNCATED);
    parts[1].bytes--;
    T_EQ("commit", stoker_checkpoint_commit(writer, &options, parts, &error), 0);
    T_EQ("step", load(engine, ROOT, 2, &error), 2);
    for (int i = 0; i < 3; i++) {
        stoker_checkpoint_save_close(saves[i]);
    }
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
}

/* Errors of looking: a pinned step stays, and an older step does not become the newest one. */
static void test_errors_of_looking(void)
{
    static const struct look_row {
        const char *name, *path;
        uint32_t fault;
        int gc, newest;
    } rows[] = {
        {"pin", ROOT "/step-0000000001.pin", STK_SIM_FAULT_STAT, -EIO, 2},
        {"file", ROOT "/step-0000000002/shard-00000.safetensors", STK_SIM_FAULT_DENIED, 0, -EACCES},
        {"header", ROOT "/step-0000000002/shard-00000.safetensors", STK_SIM_FAULT_EIO, 0, -EIO},
        {"length", ROOT "/step-0000000002/shard-00000.safetensors", STK_SIM_FAULT_STAT, -EIO, 2},
        {"manifest", ROOT "/step-0000000002/stoker.checkpoint.json", STK_SIM_FAULT_DENIED, -EACCES,
         -EACCES},
    };

    T_EACH(look_row, row, rows)
    {
        struct stoker_checkpoint_gc_options options = {.struct_size = sizeof options,
                                                       .keep_last = 1};
        struct stk_sim_rule rule = {.path = row->path, .fault = row->fault};
        struct stoker_error error = {0};
        struct stk_io *io = NULL;
        struct stoker_engine *engine;
        struct stoker_checkpoint_writer *writer;

        T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
        engine = t_open_engine(io);
        writer = t_open_writer(engine, ROOT, 1);
        T_EQ("step 1", save_step(writer, 1, 1, NULL), 0);
        T_EQ("step 2", save_step(writer, 2, 2, NULL), 0);
        T_EQ("pin", stoker_checkpoint_pin(engine, ROOT, 1, 1, NULL), 0);
        T_EQ("rule", stk_sim_add_rule(io, &rule), 0);
        T_EQ(row->name, load(engine, ROOT, STOKER_CHECKPOINT_LATEST, &error), row->newest);
        T_EQ(row->name, stoker_checkpoint_gc(engine, ROOT, &options, NULL, &error), row->gc);
        T_EQ("stays", load(engine, ROOT, 1, &error), 1);
        T_TRUE(row->name,
               stoker_checkpoint_remove(engine, ROOT, 1, &error) ==
                   (row->fault == STK_SIM_FAULT_STAT && strstr(row->path, ".pin") ? -EIO : -EBUSY));
        T_EQ("stays", load(engine, ROOT, 1, &error), 1);
        stoker_checkpoint_writer_close(writer);
        stoker_engine_close(engine);
    }
}

/* A pin that is set after gc() has listed the steps. */
static void test_late_pin(void)
{
    struct stk_checkpoint_place place = {0};
    struct stoker_error error = {0};
    struct stk_io *io = NULL;
    struct stoker_engine *engine;
    struct stoker_checkpoint_writer *writer;

    T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
    engine = t_open_engine(io);
    writer = t_open_writer(engine, ROOT, 1);
    T_EQ("step", save_step(writer, 1, 1, NULL), 0);
    T_EQ("pin", stoker_checkpoint_pin(engine, ROOT, 1, 1, NULL), 0);
    T_EQ("place", stk_place_init(&place, io, ROOT, true, NULL), 0);
    T_EQ("remove", stk_checkpoint_remove_step(&place, 1, &error), -EBUSY);
    T_EQ("stays", load(engine, ROOT, 1, &error), 1);
    stk_place_deinit(&place);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
}

/* The name of the step is not durable: the save fails, and the step does not exist. */
static void test_sync_of_the_commit(void)
{
    struct stk_sim_rule rule = {.fault = STK_SIM_FAULT_SYNC, .path = ROOT};
    struct stoker_error error = {0};
    struct stoker_engine *engine;
    struct stoker_checkpoint_writer *writer;
    struct stk_listing listing = {0};
    struct stk_io *io = NULL;

    T_EQ("world", stk_sim_open(&io, 5, NULL, NULL), 0);
    engine = t_open_engine(io);
    writer = t_open_writer(engine, ROOT, 1);
    T_EQ("step 1", save_step(writer, 1, 1, NULL), 0);
    T_EQ("rule", stk_sim_add_rule(io, &rule), 0);
    T_EQ("step 2", save_step(writer, 2, 2, &error), -EIO);
    T_EQ("does not exist", load(engine, ROOT, 2, NULL), -ENOENT);
    T_EQ("newest", load(engine, ROOT, STOKER_CHECKPOINT_LATEST, &error), 1);
    T_EQ("list", stk_io_list(io, ROOT, &listing, NULL), 0);
    T_EQ("nothing else", listing.count, 1);
    stk_listing_free(&listing);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
}

/* Neither a list nor a load needs a descriptor for each file. */
static void test_few_descriptors(void)
{
    char folder[] = "/tmp/stoker-manage-XXXXXX", id[8] = "many";
    enum { RANKS = 100 };
    struct stoker_checkpoint_save *saves[RANKS];
    struct stoker_checkpoint_part parts[RANKS];
    struct stoker_checkpoint_save_options options = {.step = 1, .ranks = RANKS, .save_id = id};
    struct stoker_engine *engine = t_open_engine(NULL);
    struct stoker_checkpoint_list *list = NULL;
    struct stoker_checkpoint_step step = {.struct_size = sizeof step};
    struct stoker_checkpoint_writer *writer;
    struct rlimit before, few;

    T_TRUE("folder", mkdtemp(folder) != NULL);
    writer = t_open_writer(engine, folder, 1);
    for (uint32_t i = 0; i < RANKS; i++) {
        options.rank = i;
        T_EQ("save", save_with(writer, &options, (uint8_t)i, &saves[i], NULL), 0);
        T_EQ("part", stoker_checkpoint_save_part(saves[i], &parts[i], NULL), 0);
    }
    T_EQ("commit", stoker_checkpoint_commit(writer, &options, parts, NULL), 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        stoker_checkpoint_save_close(saves[i]);
    }
    T_EQ("limit", getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){40, before.rlim_max};
    T_EQ("limit", setrlimit(RLIMIT_NOFILE, &few), 0);
    T_EQ("list", stoker_checkpoint_list_open(&list, engine, folder, NULL), 0);
    T_EQ("first", load_tensor(engine, folder, 1, 0, NULL), 0);
    T_EQ("last", load_tensor(engine, folder, 1, RANKS - 1, NULL), RANKS - 1);
    T_EQ("limit", setrlimit(RLIMIT_NOFILE, &before), 0);
    T_EQ("step", stoker_checkpoint_list_at(list, 0, &step, NULL), 1);
    T_EQ("status", step.status, STOKER_CHECKPOINT_COMMITTED);
    stoker_checkpoint_list_close(list);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 1, NULL), 0);
    T_EQ("empty", rmdir(folder), 0);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
}

/* Folders and links of the user in a step: all are removed, and nothing through a link. */
static void test_remove_nested(void)
{
    char folder[] = "/tmp/stoker-manage-XXXXXX", path[256], user_file[128];
    static const char *const below[] = {"a", "a/b", "a/b/c", "a/b/c/d"};
    struct stoker_engine *engine = t_open_engine(NULL);
    struct stoker_checkpoint_writer *writer;

    T_TRUE("folder", mkdtemp(folder) != NULL);
    snprintf(user_file, sizeof user_file, "%s/kept", folder);
    writer = t_open_writer(engine, folder, 1);
    T_EQ("step", save_step(writer, 1, 1, NULL), 0);
    for (size_t i = 0; i < STK_COUNT(below); i++) {
        snprintf(path, sizeof path, "%s/step-0000000001/%s", folder, below[i]);
        T_EQ(path, mkdir(path, 0777), 0);
    }
    write_text(user_file, "of the user");
    snprintf(path, sizeof path, "%s/step-0000000001/a/b/c/d/link", folder);
    T_EQ("link", symlink(folder, path), 0);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 1, NULL), 0);
    T_EQ("retained", unlink(user_file), 0);
    T_EQ("nothing else", rmdir(folder), 0);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
}

/* Two writers of one file: each writes its own, and the last one to end replaces the other. */
static void test_two_writers_of_a_file(void)
{
    char folder[] = "/tmp/stoker-manage-XXXXXX", path[128], rest[128];
    uint64_t shape = BYTES;
    uint8_t data[2][BYTES];
    struct stoker_checkpoint_save *saves[2] = {NULL, NULL};
    struct stoker_error error = {0};
    struct stoker_engine *engine = t_open_engine(NULL);
    struct stoker_checkpoint_writer *writer;

    T_TRUE("folder", mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    snprintf(rest, sizeof rest, "%s/.stoker-model.safetensors-00ff.part", folder);
    write_text(rest, "of a killed writer");
    T_EQ("long ago", utimensat(AT_FDCWD, rest, (struct timespec[2]){{0}, {0}}, 0), 0);
    writer = t_open_writer(engine, folder, 1);
    for (int i = 0; i < 2; i++) {
        struct stoker_checkpoint_tensor tensor = {"x", "U8", &shape, 1, data[i]};
        struct stoker_checkpoint_save_options options = {.struct_size = sizeof options,
                                                         .tensors = &tensor,
                                                         .tensor_count = 1,
                                                         .file = "model.safetensors"};

        memset(data[i], i + 1, BYTES);
        T_EQ("open", stoker_checkpoint_save_open(&saves[i], writer, &options, &error), 0);
        T_EQ("runs", stoker_checkpoint_save_next(saves[i], 100, NULL, &error), 1);
    }
    for (int i = 0; i < 2; i++) {
        int status;

        T_EQ("copy", stoker_checkpoint_save_copy(saves[i], 10000, &error), 0);
        while ((status = stoker_checkpoint_save_next(saves[i], 100, NULL, &error)) == 1) {
        }
        T_EQ("save", status, 0);
        T_EQ("load", load(engine, path, STOKER_CHECKPOINT_LATEST, &error), i + 1);
        stoker_checkpoint_save_close(saves[i]);
    }
    T_EQ("file", unlink(path), 0);
    T_EQ("nothing else", rmdir(folder), 0);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
}

/* On a real folder all checks pass, and nothing stays. */
static void test_probe(void)
{
    struct stoker_checkpoint_probe probe = {.struct_size = sizeof probe};
    struct stoker_engine *engine = t_open_engine(NULL);
    char folder[] = "/tmp/stoker-probe-XXXXXX";

    T_TRUE("folder", mkdtemp(folder) != NULL);
    T_EQ("probe", stoker_checkpoint_probe(engine, folder, &probe, NULL), 0);
    T_TRUE("checks", probe.count >= 9);
    for (uint32_t i = 0; i < probe.count; i++) {
        T_STR(probe.checks[i].name, probe.checks[i].detail, "");
    }
    T_EQ("failures", probe.failures, 0);
    T_EQ("nothing stays", rmdir(folder), 0);
    stoker_engine_close(engine);
}

int main(void)
{
    int64_t alive = stk_mem_alive();

    test_no_locks();
    test_holders();
    test_commit_checks_files();
    test_errors_of_looking();
    test_late_pin();
    test_sync_of_the_commit();
    test_few_descriptors();
    test_remove_nested();
    test_two_writers_of_a_file();
    test_probe();
    T_EQ("memory", stk_mem_alive(), alive);
    return t_finish();
}
