/* Goal: tensors that do not change are stored once, across steps; the removal of a step never takes
 * them from another one; a change is written, also of a part; a crash leaves complete steps.
 * Method: steps of a real folder whose large tensors do or do not change, with inodes and the
 * number of links compared; a save that fails or is killed at each call in a simulated folder; a
 * damaged earlier file. Covers shared.c, sink.c, commit.c, gc.c. */
#include "base/mem.h"
#include "checkpoint/write/writer.h"
#include "io/sim/sim.h"
#include "test/checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define TENSORS 3u
#define ROOT "/run/checkpoints"

static const char *const names[TENSORS] = {"base", "head", "small"};
static uint64_t sizes[TENSORS] = {20 * MIB, 3 * MIB + 12, 100};
static uint8_t *data[TENSORS];

/* first: the first tensor that is saved. */
static int save_from(struct stoker_checkpoint_writer *writer, size_t first,
                     const struct stoker_checkpoint_save_options *given,
                     struct stoker_checkpoint_save **save_out, struct stoker_error *error)
{
    struct stoker_checkpoint_save_options options = *given;
    struct stoker_checkpoint_tensor tensors[TENSORS];
    int status;

    for (size_t i = 0; i < TENSORS; i++) {
        tensors[i] = (struct stoker_checkpoint_tensor){names[i], "U8", &sizes[i], 1, data[i]};
    }
    options.struct_size = sizeof options;
    options.tensors = tensors + first;
    options.tensor_count = TENSORS - first;
    options.tree = "{}";
    status = stoker_checkpoint_save_open(save_out, writer, &options, error);
    while (status >= 0 &&
           (status = stoker_checkpoint_save_copy(*save_out, 100, error)) == STOKER_ERROR_AGAIN) {
        status = 0;
    }
    while (status >= 0 &&
           (status = stoker_checkpoint_save_next(*save_out, 100, NULL, error)) == 1) {
    }
    return status;
}

static int save_step(struct stoker_checkpoint_writer *writer, uint64_t step,
                     struct stoker_error *error)
{
    struct stoker_checkpoint_save *save = NULL;
    int status =
        save_from(writer, 0, &(struct stoker_checkpoint_save_options){.step = step}, &save, error);

    stoker_checkpoint_save_close(save);
    return status;
}

/* Loads a step, all tensors; compares those that are the same in all steps. */
static int load_step(struct stoker_engine *engine, const char *path, uint64_t step,
                     struct stoker_error *error)
{
    struct stoker_checkpoint_range ranges[TENSORS];
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_load *load = NULL;
    int status = stoker_checkpoint_open(&checkpoint, engine, path, step, error);

    if (status < 0) {
        return status;
    }
    for (size_t i = 0; i < TENSORS; i++) {
        ranges[i] = (struct stoker_checkpoint_range){0, 0, sizes[i], malloc(sizes[i])};
        T_EQ(names[i], stoker_checkpoint_find(checkpoint, names[i], &ranges[i].tensor, NULL), 0);
    }
    status = stoker_checkpoint_load_open(&load, checkpoint, ranges, TENSORS, error);
    while (status >= 0 && (status = stoker_checkpoint_load_next(load, 100, NULL, error)) == 1) {
    }
    stoker_checkpoint_load_close(load);
    for (size_t i = 0; i < TENSORS; i++) {
        uint8_t *bytes = ranges[i].buffer;

        /* The first byte of each tensor is the step of its last change. */
        T_TRUE(names[i], status < 0 || (bytes[0] <= step &&
                                        memcmp(bytes + 1, data[i] + 1, sizes[i] - 1) == 0));
        free(bytes);
    }
    stoker_checkpoint_close(checkpoint);
    return status;
}

static struct stat shared_file(const char *folder, uint64_t step)
{
    struct stat info = {0};
    char path[200];

    snprintf(path, sizeof path, "%s/step-%010llu/shared-00000.safetensors", folder,
             (unsigned long long)step);
    if (stat(path, &info) < 0) {
        info = (struct stat){0};
    }
    return info;
}

static void test_steps(struct stoker_engine *engine, const char *folder)
{
    struct stoker_checkpoint_gc_options gc = {.struct_size = sizeof gc, .keep_last = 2};
    struct stoker_checkpoint_gc_result result = {.struct_size = sizeof result};
    struct stoker_checkpoint_writer *writer = t_open_writer(engine, folder, 2);
    struct stoker_error error = {0};
    struct stat files[9];

    for (uint64_t step = 1; step <= 5; step++) { /* base and head stay */
        data[2][0] = (uint8_t)step;
        T_EQ("save", save_step(writer, step, &error), 0);
        files[step] = shared_file(folder, step);
    }
    T_EQ("one file", files[1].st_size, 0);
    T_EQ("one file", files[2].st_size, 0);
    T_TRUE("two files", files[3].st_size > (off_t)(20 * MIB));
    T_EQ("the same file", files[4].st_ino, files[3].st_ino);
    T_EQ("the same file", files[5].st_ino, files[3].st_ino);
    T_EQ("three names", files[5].st_nlink, 3);
    data[1][0] = 6; /* in the shared file: it is written again */
    T_EQ("save", save_step(writer, 6, &error), 0);
    files[6] = shared_file(folder, 6);
    T_TRUE("another file", files[6].st_ino != files[3].st_ino && files[6].st_size > 0);
    data[1][0] = 7; /* head is in the shard now, and base in a new shared file */
    T_EQ("save", save_step(writer, 7, &error), 0);
    data[1][0] = 8;
    T_EQ("save", save_step(writer, 8, &error), 0);
    files[7] = shared_file(folder, 7);
    files[8] = shared_file(folder, 8);
    T_TRUE("less", files[8].st_size > 0 && files[8].st_size < files[6].st_size);
    T_EQ("the same file", files[8].st_ino, files[7].st_ino);
    for (uint64_t step = 1; step <= 8; step++) {
        T_EQ("load", load_step(engine, folder, step, &error), 0);
    }
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 3, NULL), 0);
    T_EQ("two names", shared_file(folder, 5).st_nlink, 2);
    T_EQ("load", load_step(engine, folder, 4, &error), 0);
    T_EQ("load", load_step(engine, folder, 5, &error), 0);
    T_EQ("gc", stoker_checkpoint_gc(engine, folder, &gc, &result, &error), 0);
    T_EQ("left", result.steps_left, 2);
    T_EQ("shared files", result.shared_files, 1);
    T_EQ("names", result.shared_names, 2);
    T_EQ("bytes", result.shared_bytes, (uint64_t)files[8].st_size);
    T_EQ("load", load_step(engine, folder, 7, &error), 0);
    T_EQ("load", load_step(engine, folder, 8, &error), 0);
    stoker_checkpoint_writer_close(writer);
}

/* A block that was skipped is copied from the earlier file, unless that is damaged. */
static void test_copy(struct stoker_engine *engine, const char *folder)
{
    struct stoker_checkpoint_writer *writer = t_open_writer(engine, folder, 1); /* in their order */
    struct stoker_error error = {0};
    struct stat damaged;
    uint8_t byte = 0;
    char path[200];
    int fd;

    for (uint64_t step = 10; step <= 12; step++) {
        T_EQ("save", save_step(writer, step, &error), 0);
    }
    data[0][19 * MIB] ^= 1; /* behind the first block */
    T_EQ("save", save_step(writer, 13, &error), 0);
    T_EQ("load", load_step(engine, folder, 13, &error), 0);
    T_EQ("another file", shared_file(folder, 13).st_nlink, 1);
    snprintf(path, sizeof path, "%s/step-0000000013/shared-00000.safetensors", folder);
    for (uint64_t step = 14; step <= 16; step++) { /* until it is shared again */
        T_EQ("save", save_step(writer, step, &error), 0);
    }
    snprintf(path, sizeof path, "%s/step-0000000016/shared-00000.safetensors", folder);
    damaged = shared_file(folder, 16);
    fd = open(path, O_RDWR);
    T_EQ("read", pread(fd, &byte, 1, 2 * MIB), 1);
    byte ^= 1;
    T_EQ("damage", pwrite(fd, &byte, 1, 2 * MIB), 1);
    close(fd);
    data[0][19 * MIB] ^= 1;
    T_EQ("damage is found", save_step(writer, 17, &error), STOKER_ERROR_CORRUPT);
    T_HAS("names the file", error.where, "step-0000000016/shared-00000");
    T_STR("says what helps", error.advice, "save again; remove that step");
    T_EQ("no step", load_step(engine, folder, 17, &error), -ENOENT);
    for (uint64_t step = 17; step <= 21; step++) { /* the damaged file is still there */
        T_EQ("the next saves succeed", save_step(writer, step, &error), 0);
        T_EQ("load", load_step(engine, folder, step, &error), 0);
        T_TRUE("no name of the damaged file", shared_file(folder, step).st_ino != damaged.st_ino);
    }
    T_TRUE("shared again", shared_file(folder, 21).st_nlink > 1);
    for (uint64_t step = 17; step <= 21; step++) {
        T_EQ("remove", stoker_checkpoint_remove(engine, folder, step, NULL), 0);
    }
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 16, NULL), 0);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 15, NULL), 0);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 14, NULL), 0);
    T_EQ("the same file", shared_file(folder, 13).st_ino, damaged.st_ino);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 13, NULL), 0);
    T_EQ("then it is written", save_step(writer, 17, &error), 0);
    T_EQ("load", load_step(engine, folder, 17, &error), 0);
    stoker_checkpoint_writer_close(writer);
}

/* Two ranks: the manifest has the shared files behind those of the ranks. */
static void test_ranks(struct stoker_engine *engine, const char *folder)
{
    struct stoker_checkpoint_writer *writers[2] = {t_open_writer(engine, folder, 2),
                                                   t_open_writer(engine, folder, 2)};
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint_file file = {.struct_size = sizeof file};
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_error error = {0};

    for (uint64_t step = 20; step < 24; step++) {
        struct stoker_checkpoint_save *saves[2] = {NULL, NULL};
        struct stoker_checkpoint_part parts[2];
        struct stoker_checkpoint_save_options options = {.step = step, .ranks = 2, .save_id = "a"};

        for (uint32_t rank = 0; rank < 2; rank++) {
            options.rank = rank;
            T_EQ("save", save_from(writers[rank], rank * 2, &options, &saves[rank], &error), 0);
            T_EQ("part", stoker_checkpoint_save_part(saves[rank], &parts[rank], &error), 0);
        }
        options.struct_size = sizeof options;
        T_EQ("commit", stoker_checkpoint_commit(writers[0], &options, parts, &error), 0);
        stoker_checkpoint_save_close(saves[0]);
        stoker_checkpoint_save_close(saves[1]);
    }
    T_EQ("the same file", shared_file(folder, 23).st_ino, shared_file(folder, 22).st_ino);
    T_EQ("open", stoker_checkpoint_open(&checkpoint, engine, folder, 23, &error), 0);
    T_EQ("info", stoker_checkpoint_info(checkpoint, &info, NULL), 0);
    T_EQ("ranks", info.ranks, 2);
    T_EQ("files", info.files, 3);
    T_EQ("file", stoker_checkpoint_file(checkpoint, 2, &file, NULL), 0);
    T_STR("the last", file.name, "shared-00000.safetensors");
    stoker_checkpoint_close(checkpoint);
    T_EQ("load", load_step(engine, folder, 23, &error), 0);
    stoker_checkpoint_writer_close(writers[0]);
    stoker_checkpoint_writer_close(writers[1]);
}

/* The fourth save, which links, fails or ends at its n-th call. Returns whether it
 * failed. */
static bool interrupt(uint64_t n, bool kill, uint64_t seed)
{
    struct stoker_error error = {0};
    struct stk_io *io = NULL;
    struct stoker_engine *engine;
    struct stoker_checkpoint_writer *writer;
    uint64_t newest = 3;
    int status;

    T_EQ("world", stk_sim_open(&io, n, NULL, NULL), 0);
    engine = t_open_engine(io);
    writer = t_open_writer(engine, ROOT, 2);
    writer->shared_bytes_min = 1;
    for (uint64_t step = 1; step <= 3; step++) {
        T_EQ("save", save_step(writer, step, &error), 0);
    }
    if (kill) {
        stk_sim_kill_nth(io, n);
    } else {
        stk_sim_fail_nth(io, n);
    }
    status = save_step(writer, 4, &error);
    stoker_checkpoint_writer_close(writer);
    stk_sim_fail_nth(io, 0);
    stk_sim_kill_nth(io, 0);
    if (kill) {
        T_EQ("power", stk_sim_crash_partial(io, seed), 0);
    }
    newest = load_step(engine, ROOT, 4, &error) == 0 ? 4 : 3;
    T_TRUE("a success stays", status < 0 || newest == 4);
    T_EQ("the newest", load_step(engine, ROOT, STOKER_CHECKPOINT_LATEST, &error), 0);
    for (uint64_t step = 1; step <= newest; step++) {
        T_EQ("complete", load_step(engine, ROOT, step, &error), 0);
    }
    T_EQ("remove", stoker_checkpoint_remove(engine, ROOT, 3, &error), 0);
    T_EQ("the others stay", load_step(engine, ROOT, newest == 4 ? 4 : 2, &error), 0);
    stoker_engine_close(engine);
    return status < 0;
}

static void test_interruptions(void)
{
    uint64_t calls = 45, failed = 0;

    sizes[0] = 2 * MIB + 4096;
    sizes[1] = 4096;
    data[0][0] = data[1][0] = data[2][0] = 1;
    for (uint64_t n = 1; n <= calls; n++) {
        failed += interrupt(n, false, 0);
        (void)interrupt(n, true, n);
        (void)interrupt(n, true, n + 100);
    }
    T_TRUE("some failed, and some calls are none of the save", failed > 10 && failed < calls);
}

int main(void)
{
    int64_t alive = stk_mem_alive();
    char folder[64];
    struct stoker_engine *engine;
    uint32_t random = 1;

    for (size_t i = 0; i < TENSORS; i++) {
        data[i] = malloc(sizes[i]);
        for (uint64_t j = 0; j < sizes[i]; j++) {
            random = random * 1664525u + 1013904223u;
            data[i][j] = (uint8_t)(random >> 24);
        }
        data[i][0] = 1;
    }
    snprintf(folder, sizeof folder, "%s/stoker-shared-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    T_TRUE("folder", mkdtemp(folder) != NULL);
    engine = t_open_engine(NULL);
    test_steps(engine, folder);
    test_copy(engine, folder);
    test_ranks(engine, folder);
    for (uint64_t step = 1; step < 30; step++) {
        (void)stoker_checkpoint_remove(engine, folder, step, NULL);
    }
    T_EQ("empty", rmdir(folder), 0);
    stoker_engine_close(engine);
    test_interruptions();
    for (size_t i = 0; i < TENSORS; i++) {
        free(data[i]);
    }
    T_EQ("memory", stk_mem_alive(), alive);
    return t_finish();
}
