/* Measures how long it takes to open a step of many tensors, and to find and describe one of them.
 *
 * usage: checkpoint_lookup FOLDER [FILES [TENSORS]]
 *
 * Writes a step of FILES ranks (1000) with TENSORS tensors each (1000), of one byte, and opens it
 * in processes of its own: with the index of names, and without it. Prints milliseconds and MiB. */
#include "stoker/stoker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static struct stoker_engine *open_engine(void)
{
    struct stoker_engine_options options = {.struct_size = sizeof options,
                                            .memory_bytes_max = 64u << 20};
    struct stoker_engine *engine = NULL;

    if (stoker_engine_open(&engine, &options, NULL) < 0) {
        exit(1);
    }
    return engine;
}

static void name_of(char name[80], unsigned file, unsigned tensor)
{
    snprintf(name, 80, "model.layers.%u.mlp.experts.%u.w%u.exp_avg", file % 100, file, tensor);
}

static int save_rank(struct stoker_checkpoint_writer *writer, unsigned rank, unsigned files,
                     unsigned count, struct stoker_checkpoint_part *part,
                     struct stoker_checkpoint_save **save)
{
    static const uint64_t one = 1;
    struct stoker_checkpoint_tensor *tensors = calloc(count, sizeof *tensors);
    char (*names)[80] = calloc(count, sizeof *names);
    struct stoker_checkpoint_save_options options = {.struct_size = sizeof options,
                                                     .step = 1,
                                                     .tensors = tensors,
                                                     .tensor_count = count,
                                                     .rank = rank,
                                                     .ranks = files,
                                                     .save_id = "a"};
    struct stoker_error error = {0};
    int status;

    for (unsigned i = 0; i < count; i++) {
        name_of(names[i], rank, i);
        tensors[i] = (struct stoker_checkpoint_tensor){names[i], "U8", &one, 1, "x"};
    }
    status = stoker_checkpoint_save_open(save, writer, &options, &error);
    while (status == 0 && (status = stoker_checkpoint_save_copy(*save, 1000, &error)) < 0 &&
           status == STOKER_ERROR_AGAIN) {
        status = 0;
    }
    while (status >= 0 && (status = stoker_checkpoint_save_next(*save, 1000, NULL, &error)) == 1) {
    }
    status = status < 0 ? status : stoker_checkpoint_save_part(*save, part, &error);
    if (status < 0) {
        fprintf(stderr, "rank %u: %s: %s\n", rank, error.what, error.where);
    }
    free(tensors);
    free(names);
    return status;
}

static int save_all(const char *folder, unsigned files, unsigned count)
{
    struct stoker_checkpoint_save_options options = {
        .struct_size = sizeof options, .step = 1, .ranks = files, .save_id = "a"};
    struct stoker_checkpoint_save **saves = calloc(files, sizeof *saves);
    struct stoker_checkpoint_part *parts = calloc(files, sizeof *parts);
    struct stoker_engine *engine = open_engine();
    struct stoker_checkpoint_writer_options how = {
        .struct_size = sizeof how, .path = folder, .threads = 1, .memory_bytes_max = 64u << 20};
    struct stoker_checkpoint_writer *writer = NULL;
    struct stoker_error error = {0};
    int status = stoker_checkpoint_writer_open(&writer, engine, &how, &error);

    for (unsigned i = 0; status == 0 && i < files; i++) { /* rank 0 stays open until the commit */
        status = save_rank(writer, i, files, count, &parts[i], &saves[i]);
        if (i > 0) {
            stoker_checkpoint_save_close(saves[i]);
        }
    }
    if (status == 0) {
        double start = now_ms();

        status = stoker_checkpoint_commit(writer, &options, parts, &error);
        printf("commit of %u files: %.0f ms\n", files, now_ms() - start);
    }
    stoker_checkpoint_save_close(saves[0]);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
    free(saves);
    free(parts);
    return status;
}

static void measure(const char *folder, const char *what, unsigned files, unsigned count)
{
    struct stoker_checkpoint_tensor_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_engine *engine = open_engine();
    struct rusage before, after;
    double start, opened;
    uint64_t number = 0;
    char name[80];
    int status;

    name_of(name, files / 2, count / 2);
    getrusage(RUSAGE_SELF, &before);
    start = now_ms();
    status = stoker_checkpoint_open(&checkpoint, engine, folder, 1, NULL);
    opened = now_ms();
    status = status < 0 ? status : stoker_checkpoint_find(checkpoint, name, &number, NULL);
    status = status < 0 ? status : stoker_checkpoint_tensor(checkpoint, number, &info, NULL);
    getrusage(RUSAGE_SELF, &after);
    printf("%-16s open %.1f ms, look up %.1f ms, CPU %.1f ms, %.1f MiB more memory, status %d\n",
           what, opened - start, now_ms() - opened,
           (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec -
                    before.ru_stime.tv_sec) *
                   1e3 +
               (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec -
                        before.ru_stime.tv_usec) /
                   1e3,
           (double)(after.ru_maxrss - before.ru_maxrss) / 1024, status);
    stoker_checkpoint_close(checkpoint);
    stoker_engine_close(engine);
    exit(status < 0);
}

int main(int count, char **arguments)
{
    unsigned files = count > 2 ? (unsigned)strtoul(arguments[2], NULL, 10) : 1000;
    unsigned tensors = count > 3 ? (unsigned)strtoul(arguments[3], NULL, 10) : 1000;
    char index[4096];

    if (count < 2) {
        fprintf(stderr, "usage: checkpoint_lookup FOLDER [FILES [TENSORS]]\n");
        return 2;
    }
    if (fork() == 0) {
        exit(save_all(arguments[1], files, tensors) < 0);
    }
    wait(NULL);
    for (int round = 0; round < 3; round++) {
        fflush(stdout);
        if (fork() == 0) {
            measure(arguments[1], "index", files, tensors);
        }
        wait(NULL);
    }
    snprintf(index, sizeof index, "%s/step-0000000001/stoker.index", arguments[1]);
    unlink(index);
    if (fork() == 0) {
        measure(arguments[1], "without it", files, tensors);
    }
    wait(NULL);
    return 0;
}
