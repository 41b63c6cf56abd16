/* Saves the arrays of a C trainer as a checkpoint, and restores them.
 *
 *   cc -Iinclude examples/checkpoint.c -Lbuild -lstoker -Wl,-rpath,$PWD/build -o checkpoint
 *   ./checkpoint FOLDER                       or: ./checkpoint s3://bucket/run
 */
#include <stdio.h>
#include <stdlib.h>
#include <stoker/stoker.h>
#include <string.h>

#define WEIGHTS 100000

static float weights[WEIGHTS], moments[WEIGHTS];
static int64_t tokens = 1234;

static const uint64_t shape[] = {WEIGHTS};
static const struct stoker_checkpoint_tensor tensors[] = {
    {"weights", "F32", shape, 1, weights},
    {"moments", "F32", shape, 1, moments},
    {"tokens", "I64", NULL, 0, &tokens},
};
#define COUNT (sizeof tensors / sizeof tensors[0])

static int fail(const struct stoker_error *error)
{
    fprintf(stderr, "%s: %s\n  %s\n", error->what, error->where, error->advice);
    return 1;
}

/* The training may continue after copy; here it waits. */
static int save(struct stoker_checkpoint_writer *writer, uint64_t step, struct stoker_error *error)
{
    struct stoker_checkpoint_save_options options = {.struct_size = sizeof options,
                                                     .step = step,
                                                     .tensors = tensors,
                                                     .tensor_count = COUNT,
                                                     .values = "{\"loss\": 1.25}"};
    struct stoker_checkpoint_save *running = NULL;
    int status = stoker_checkpoint_save_open(&running, writer, &options, error);

    status = status < 0 ? status : stoker_checkpoint_save_copy(running, 60000, error);
    if (status >= 0) { /* weights may change from here on */
        do {
            status = stoker_checkpoint_save_next(running, 1000, NULL, error);
        } while (status > 0);
    }
    stoker_checkpoint_save_close(running);
    return status;
}

/* Reads the newest step into the arrays. Each tensor is verified. */
static int restore(struct stoker_engine *engine, const char *path, uint64_t *step,
                   struct stoker_error *error)
{
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint_range ranges[COUNT] = {0};
    void *const arrays[COUNT] = {weights, moments, &tokens};
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_load *load = NULL;
    int status = stoker_checkpoint_open(&checkpoint, engine, path, STOKER_CHECKPOINT_LATEST, error);

    for (size_t i = 0; status >= 0 && i < COUNT; i++) {
        struct stoker_checkpoint_tensor_info tensor = {.struct_size = sizeof tensor};

        status = stoker_checkpoint_find(checkpoint, tensors[i].name, &ranges[i].tensor, error);
        if (status >= 0) {
            status = stoker_checkpoint_tensor(checkpoint, ranges[i].tensor, &tensor, error);
        }
        ranges[i].bytes = tensor.bytes; /* a trainer compares dtype and shape, too */
        ranges[i].buffer = arrays[i];
    }
    if (status >= 0) {
        status = stoker_checkpoint_load_open(&load, checkpoint, ranges, COUNT, error);
    }
    if (status >= 0) {
        do {
            status = stoker_checkpoint_load_next(load, 1000, NULL, error);
        } while (status > 0);
    }
    if (status >= 0) {
        status = stoker_checkpoint_info(checkpoint, &info, error);
        *step = info.step;
    }
    stoker_checkpoint_load_close(load);
    stoker_checkpoint_close(checkpoint);
    return status;
}

int main(int argc, char **argv)
{
    struct stoker_checkpoint_writer_options options = {.struct_size = sizeof options,
                                                       .path = argv[argc - 1]};
    struct stoker_checkpoint_writer *writer = NULL;
    struct stoker_engine *engine = NULL;
    struct stoker_error error = {0};
    uint64_t step = 0;
    int status = stoker_engine_open(&engine, NULL, &error);

    if (status >= 0) {
        status = stoker_checkpoint_writer_open(&writer, engine, &options, &error);
    }
    for (int i = 0; i < WEIGHTS; i++) {
        weights[i] = (float)i;
    }
    if (status >= 0) {
        status = save(writer, 1000, &error);
    }
    memset(weights, 0, sizeof weights); /* as in a new process */
    tokens = 0;
    if (status >= 0) {
        status = restore(engine, options.path, &step, &error);
    }
    if (status >= 0) {
        printf("restored step %llu: weights[7] is %.1f, %lld tokens\n", (unsigned long long)step,
               (double)weights[7], (long long)tokens);
    }
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
    return status < 0 ? fail(&error) : 0;
}
