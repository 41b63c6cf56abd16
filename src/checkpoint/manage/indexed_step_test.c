/* Goal: a step with an index of names is opened without the headers of its files, which are read
 * and verified when a tensor is needed; a step whose index is missing or damaged is complete, and
 * a repair writes the index again.
 * Method: steps of one and two ranks with more tensors than the limit, opened with and without
 * their index. Covers step_index.c, step_files.c,
 * repair_step.c. */
#include "base/mem.h"
#include "checkpoint/read/checkpoint.h"
#include "test/checkpoints.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TENSORS (STK_NAME_INDEX_TENSORS_MIN + 7u)

static char folder[64], (*names)[64];
static struct stoker_engine *engine;
static uint8_t *data;

/* Saves the tensors from `first` on as a rank. */
static struct stoker_checkpoint_save *save_rank(struct stoker_checkpoint_writer *writer,
                                                uint64_t first, uint64_t count,
                                                struct stoker_checkpoint_save_options options)
{
    static const uint64_t one = 1;
    struct stoker_checkpoint_tensor *tensors = stk_alloc(count, sizeof *tensors);
    struct stoker_checkpoint_save *save = NULL;
    int status;

    for (uint64_t i = 0; i < count; i++) {
        tensors[i] =
            (struct stoker_checkpoint_tensor){names[first + i], "U8", &one, 1, &data[first + i]};
    }
    options.struct_size = sizeof options;
    options.tensors = tensors;
    options.tensor_count = count;
    T_EQ("save", stoker_checkpoint_save_open(&save, writer, &options, NULL), 0);
    while ((status = stoker_checkpoint_save_copy(save, 100, NULL)) == STOKER_ERROR_AGAIN) {
    }
    while ((status = stoker_checkpoint_save_next(save, 100, NULL, NULL)) == 1) {
    }
    T_EQ("saved", status, 0);
    stk_free(tensors);
    return save;
}

/* Step 1 has one rank, step 2 has two. */
static void save_steps(void)
{
    struct stoker_checkpoint_save_options step = {
        .struct_size = sizeof step, .step = 2, .ranks = 2, .save_id = "a"};
    struct stoker_checkpoint_writer *writer = t_open_writer(engine, folder, 0);
    struct stoker_checkpoint_save *saves[2];
    struct stoker_checkpoint_part parts[2];

    stoker_checkpoint_save_close(
        save_rank(writer, 0, TENSORS, (struct stoker_checkpoint_save_options){.step = 1}));
    for (uint32_t rank = 0; rank < 2; rank++) {
        step.rank = rank;
        saves[rank] =
            save_rank(writer, rank * TENSORS / 2, rank ? TENSORS - TENSORS / 2 : TENSORS / 2, step);
        T_EQ("part", stoker_checkpoint_save_part(saves[rank], &parts[rank], NULL), 0);
    }
    T_EQ("commit", stoker_checkpoint_commit(writer, &step, parts, NULL), 0);
    stoker_checkpoint_save_close(saves[0]);
    stoker_checkpoint_save_close(saves[1]);
    stoker_checkpoint_writer_close(writer);
}

static struct stoker_checkpoint *open_step(uint64_t step, bool indexed)
{
    struct stoker_checkpoint *checkpoint = NULL;

    struct stoker_error error = {0};

    T_EQ("open", stoker_checkpoint_open(&checkpoint, engine, folder, step, &error), 0);
    T_STR("error", error.where, "");
    T_EQ("index", checkpoint->index.data != NULL, indexed);
    T_EQ("tensors", checkpoint->tensor_count, TENSORS);
    return checkpoint;
}

static int load_byte(struct stoker_checkpoint *checkpoint, const char *name, uint8_t *byte_out,
                     struct stoker_error *error)
{
    struct stoker_checkpoint_range range = {.bytes = 1, .buffer = byte_out};
    struct stoker_checkpoint_load *load = NULL;
    int status = stoker_checkpoint_find(checkpoint, name, &range.tensor, error);

    status = status < 0 ? status : stoker_checkpoint_load_open(&load, checkpoint, &range, 1, error);
    while (status >= 0 && (status = stoker_checkpoint_load_next(load, 100, NULL, error)) == 1) {
    }
    stoker_checkpoint_load_close(load);
    return status;
}

static void test_step(uint64_t step, bool indexed)
{
    struct stoker_checkpoint *checkpoint = open_step(step, indexed);
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct stoker_error error = {0};
    uint64_t number;
    uint8_t byte;

    T_EQ("info", stoker_checkpoint_info(checkpoint, &info, NULL), 0);
    T_TRUE("info", info.hashed == 1 && info.counted == 1 && info.bytes > TENSORS);
    T_EQ("no header is read", atomic_load(&checkpoint->files[0].ready), false);
    T_EQ("a name that it has not", stoker_checkpoint_find(checkpoint, "layers.x", &number, &error),
         STOKER_ERROR_MISSING);
    T_EQ("load", load_byte(checkpoint, names[3], &byte, &error), 0);
    T_EQ("byte", byte, data[3]);
    for (uint64_t i = 0; i < TENSORS; i += 101) {
        struct stoker_checkpoint_tensor_info tensor = {.struct_size = sizeof tensor};

        T_EQ(names[i], stoker_checkpoint_find(checkpoint, names[i], &number, &error), 0);
        T_EQ(names[i], stoker_checkpoint_tensor(checkpoint, number, &tensor, &error), 0);
        T_STR("name", tensor.name, names[i]);
    }
    T_EQ("all", stk_checkpoint_need_all(checkpoint, &error), 0);
    T_EQ("load", load_byte(checkpoint, names[TENSORS - 1], &byte, &error), 0);
    T_EQ("byte", byte, data[TENSORS - 1]);
    stoker_checkpoint_close(checkpoint);
}

/* Flips a byte of a file of a step. */
static void flip(const char *name, off_t offset)
{
    char path[200];
    uint8_t byte = 0;
    int fd;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_RDWR);
    T_EQ("read", pread(fd, &byte, 1, offset), 1);
    byte ^= 1;
    T_EQ("write", pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

/* The header of a file is verified when a tensor of it is needed; others can be loaded. */
static void test_damage(void)
{
    static const char *const second = "step-0000000002/shard-00001.safetensors";
    struct stoker_checkpoint *checkpoint;
    struct stoker_error error = {0};
    uint8_t byte;

    flip(second, 200000);
    checkpoint = open_step(2, true);
    T_EQ("all headers", stoker_checkpoint_read_headers(checkpoint, &error), STOKER_ERROR_CORRUPT);
    T_HAS("names the file", error.where, "shard-00001.safetensors");
    T_EQ("the first file", load_byte(checkpoint, names[0], &byte, &error), 0);
    T_EQ("the second one", load_byte(checkpoint, names[TENSORS - 1], &byte, &error),
         STOKER_ERROR_CORRUPT);
    T_HAS("names the file", error.where, "shard-00001.safetensors");
    stoker_checkpoint_close(checkpoint);
    flip(second, 200000);
}

static void run_task(uint32_t action, const char *from, const char *to, uint64_t *files_out)
{
    struct stoker_checkpoint_task_options options = {.struct_size = sizeof options,
                                                     .action = action,
                                                     .source = from,
                                                     .destination = to,
                                                     .step = 2,
                                                     .destination_step = 2};
    struct stoker_checkpoint_progress progress = {.struct_size = sizeof progress};
    struct stoker_checkpoint_task *task = NULL;
    struct stoker_error error = {0};
    int status = stoker_checkpoint_task_open(&task, engine, &options, &error);

    while (status >= 0 &&
           (status = stoker_checkpoint_task_next(task, 1000, &progress, &error)) == 1) {
    }
    T_EQ("task", status, 0);
    T_STR("error", error.where, "");
    stoker_checkpoint_task_close(task);
    *files_out = progress.files_done;
}

/* A repair writes an index that is damaged or missing again, with the same bytes. */
static void test_repair(void)
{
    char other[80], path[200];
    uint64_t files;

    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(path, sizeof path, "%s/step-0000000002/stoker.index", folder);
    run_task(STOKER_CHECKPOINT_COPY, folder, other, &files);
    T_EQ("files", files, 2);
    flip("step-0000000002/stoker.index", 100000);
    run_task(STOKER_CHECKPOINT_REPAIR, other, folder, &files);
    T_EQ("only the index", files, 1);
    stoker_checkpoint_close(open_step(2, true));
    T_EQ("no index", unlink(path), 0);
    run_task(STOKER_CHECKPOINT_REPAIR, other, folder, &files);
    T_EQ("only the index", files, 1);
    stoker_checkpoint_close(open_step(2, true));
    run_task(STOKER_CHECKPOINT_REPAIR, other, folder, &files);
    T_EQ("nothing to repair", files, 0);
    T_EQ("remove", stoker_checkpoint_remove(engine, other, 2, NULL), 0);
    T_EQ("empty", rmdir(other), 0);
}

int main(void)
{
    int64_t alive = stk_mem_alive();
    char path[120];

    names = malloc(TENSORS * sizeof *names);
    data = malloc(TENSORS);
    for (uint64_t i = 0; i < TENSORS; i++) {
        snprintf(names[i], sizeof names[i], "layers.%04u.mlp.experts.%u.%s", (unsigned)(i / 20),
                 (unsigned)(i % 10), i / 10 % 2 ? "weight" : "exp_avg");
        data[i] = (uint8_t)(i * 7);
    }
    snprintf(folder, sizeof folder, "%s/stoker-index-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    T_TRUE("folder", mkdtemp(folder) != NULL);
    engine = t_open_engine(NULL);
    save_steps();
    test_step(1, true);
    test_step(2, true);
    test_damage();
    test_repair();
    flip("step-0000000001/stoker.index", 100000); /* without it, all headers are read */
    test_step(1, false);
    snprintf(path, sizeof path, "%s/step-0000000002/stoker.index", folder);
    T_EQ("no index", unlink(path), 0);
    test_step(2, false);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 1, NULL), 0);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 2, NULL), 0);
    T_EQ("empty", rmdir(folder), 0);
    stoker_engine_close(engine);
    T_EQ("memory", stk_mem_alive(), alive);
    free(names);
    free(data);
    return t_finish();
}
