/* Goal: a saved state is loaded bit by bit; a step exists completely or not at all, whatever fails
 * and wherever the process is killed or the power is cut; damage is found; retention never removes
 * the last step.
 * Method: a simulated file system: every call fails in turn, the process is killed before every
 * call, with power cuts that lose all or a part of the data that was not synced, and the disk is
 * full at every byte. Then a real folder, in which bits flip. Covers writer.c, save.c, save_run.c,
 * sink.c, commit.c, checkpoint.c, load.c, list.c, gc.c, place.c. */
#include "base/mem.h"
#include "checkpoint/manage/manage.h"
#include "checkpoint/place/place.h"
#include "checkpoint/read/checkpoint.h"
#include "io/sim/sim.h"
#include "test/checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT "/run/checkpoints"
#define TENSORS 5
#define LARGE (9u << 20) /* floats: 36 MiB, three blocks */

/* A state whose bytes depend on the seed. */
struct state {
    struct stoker_checkpoint_tensor tensors[TENSORS];
    uint64_t shapes[TENSORS][2];
    uint8_t *data[TENSORS];
    uint64_t bytes[TENSORS];
};

static const char *const names[TENSORS] = {"weight", "bias", "step", "empty", "mask"};

static void make_state(struct state *state, uint32_t seed, uint64_t rows)
{
    static const char *const dtypes[TENSORS] = {"F32", "BF16", "I64", "U8", "BOOL"};
    static const uint32_t sizes[TENSORS] = {4, 2, 8, 1, 1};
    uint64_t shapes[TENSORS][2] = {{rows, 1}, {33, 3}, {1, 1}, {0, 4}, {7, 1}};
    uint32_t random = seed * 2654435761u + 1;

    memcpy(state->shapes, shapes, sizeof shapes);
    for (int i = 0; i < TENSORS; i++) {
        state->bytes[i] = shapes[i][0] * shapes[i][1] * sizes[i];
        state->data[i] = malloc(state->bytes[i] + 1);
        for (uint64_t j = 0; j < state->bytes[i]; j++) {
            random = random * 1664525u + 1013904223u;
            state->data[i][j] = (uint8_t)(random >> 24);
        }
        state->tensors[i] = (struct stoker_checkpoint_tensor){names[i], dtypes[i], state->shapes[i],
                                                              2, state->data[i]};
    }
}

static void free_state(struct state *state)
{
    for (int i = 0; i < TENSORS; i++) {
        free(state->data[i]);
    }
}

static int run_save(struct stoker_checkpoint_save *save, struct stoker_error *error)
{
    int status = STOKER_ERROR_AGAIN;

    while (status == STOKER_ERROR_AGAIN) {
        status = stoker_checkpoint_save_copy(save, 100, error);
    }
    while (status >= 0) {
        status = stoker_checkpoint_save_next(save, 100, NULL, error);
        if (status == 0) {
            break;
        }
    }
    return status;
}

static int save_step(struct stoker_checkpoint_writer *writer, uint64_t step,
                     const struct state *state, const char *values, struct stoker_error *error)
{
    struct stoker_checkpoint_save_options options = {.struct_size = sizeof options,
                                                     .step = step,
                                                     .tensors = state->tensors,
                                                     .tensor_count = TENSORS,
                                                     .tree = "{\"x\":1}",
                                                     .values = values};
    struct stoker_checkpoint_save *save = NULL;
    int status = stoker_checkpoint_save_open(&save, writer, &options, error);

    status = status < 0 ? status : run_save(save, error);
    stoker_checkpoint_save_close(save);
    return status;
}

static int run_load(struct stoker_checkpoint *checkpoint,
                    const struct stoker_checkpoint_range *ranges, size_t count,
                    struct stoker_error *error)
{
    struct stoker_checkpoint_load *load = NULL;
    int status = stoker_checkpoint_load_open(&load, checkpoint, ranges, count, error);

    status = status < 0 ? status : 1;
    while (status == 1) {
        status = stoker_checkpoint_load_next(load, 100, NULL, error);
    }
    stoker_checkpoint_load_close(load);
    return status;
}

/* Loads a step and compares it. Returns the status of open or load. */
static int load_step(struct stoker_engine *engine, const char *path, uint64_t step,
                     const struct state *want, struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_range ranges[TENSORS];
    uint8_t *buffers[TENSORS];
    int status = stoker_checkpoint_open(&checkpoint, engine, path, step, error);

    if (status < 0) {
        return status;
    }
    for (int i = 0; i < TENSORS; i++) {
        buffers[i] = calloc(want->bytes[i] + 1, 1);
        ranges[i] = (struct stoker_checkpoint_range){0, 0, want->bytes[i], buffers[i]};
        T_EQ(names[i], stoker_checkpoint_find(checkpoint, names[i], &ranges[i].tensor, NULL), 0);
    }
    status = run_load(checkpoint, ranges, TENSORS, error);
    for (int i = 0; i < TENSORS; i++) {
        T_TRUE(names[i], status < 0 || memcmp(buffers[i], want->data[i], want->bytes[i]) == 0);
        free(buffers[i]);
    }
    stoker_checkpoint_close(checkpoint);
    return status;
}

/* Number of the newest step, verified against the state that its number names. */
static int64_t newest(struct stoker_engine *engine, const struct state *states,
                      struct stoker_error *error)
{
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint *checkpoint = NULL;
    int status = stoker_checkpoint_open(&checkpoint, engine, ROOT, STOKER_CHECKPOINT_LATEST, error);

    if (status < 0) {
        return status;
    }
    T_EQ("info", stoker_checkpoint_info(checkpoint, &info, NULL), 0);
    stoker_checkpoint_close(checkpoint);
    status = load_step(engine, ROOT, info.step, &states[info.step - 1], error);
    return status < 0 ? status : (int64_t)info.step;
}

static uint8_t *read_all(struct stk_io *io, const char *path, uint64_t *bytes_out)
{
    struct stk_checkpoint_place place = {.io = io};
    uint8_t *data = NULL;
    size_t bytes = 0;

    T_EQ(path, stk_place_read(&place, path, 1u << 30, &data, &bytes, NULL), 0);
    *bytes_out = bytes;
    return data;
}

/* Ranges of a large state: over leaves, within one, twice, empty. */
static void check_ranges(struct stoker_engine *engine, const struct state *state)
{
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_range ranges[6] = {
        {.offset = 5, .bytes = 3000000},          {.offset = 100, .bytes = 10},
        {.offset = 1u << 20, .bytes = 20u << 20}, {.offset = 100, .bytes = 10},
        {.offset = 36u << 20, .bytes = 0},        {.offset = (36u << 20) - 7, .bytes = 7}};
    uint64_t weight = 0;

    T_EQ("open", stoker_checkpoint_open(&checkpoint, engine, ROOT, 1, NULL), 0);
    T_EQ("find", stoker_checkpoint_find(checkpoint, "weight", &weight, NULL), 0);
    for (int i = 0; i < 6; i++) {
        ranges[i].tensor = weight;
        ranges[i].buffer = malloc(ranges[i].bytes + 1);
    }
    T_EQ("ranges", run_load(checkpoint, ranges, 6, NULL), 0);
    for (int i = 0; i < 6; i++) {
        T_TRUE("range",
               memcmp(ranges[i].buffer, state->data[0] + ranges[i].offset, ranges[i].bytes) == 0);
        free(ranges[i].buffer);
    }
    ranges[0] = (struct stoker_checkpoint_range){weight, 36u << 20, 1, NULL};
    T_EQ("outside", run_load(checkpoint, ranges, 1, NULL), STOKER_ERROR_ARGUMENT);
    T_EQ("no tensor", stoker_checkpoint_find(checkpoint, "nothing", &weight, NULL),
         STOKER_ERROR_MISSING);
    stoker_checkpoint_close(checkpoint);
}

static void test_round_trip(void)
{
    struct stoker_error error = {0};
    struct state states[2];
    uint64_t bytes[2];
    uint8_t *files[2];

    make_state(&states[0], 1, LARGE);
    make_state(&states[1], 2, 10);
    for (uint32_t threads = 1; threads <= 2; threads++) {
        struct stk_io *io = NULL;
        struct stoker_engine *engine;
        struct stoker_checkpoint_writer *writer;

        T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
        engine = t_open_engine(io);
        writer = t_open_writer(engine, ROOT "/", threads);
        T_EQ("none",
             stoker_checkpoint_open(&(struct stoker_checkpoint *){NULL}, engine, ROOT,
                                    STOKER_CHECKPOINT_LATEST, &error),
             -ENOENT);
        T_EQ("save", save_step(writer, 1, &states[0], "{\"loss\":2}", &error), 0);
        T_EQ("small", save_step(writer, 2, &states[1], NULL, &error), 0);
        T_EQ("again", save_step(writer, 2, &states[1], NULL, &error), -EEXIST);
        T_EQ("load", load_step(engine, ROOT, 1, &states[0], &error), 0);
        T_EQ("newest", newest(engine, states, &error), 2);
        T_EQ("a step",
             load_step(engine, ROOT "/step-0000000002", STOKER_CHECKPOINT_LATEST, &states[1],
                       &error),
             0);
        T_EQ("a file",
             load_step(engine, ROOT "/step-0000000002/shard-00000.safetensors",
                       STOKER_CHECKPOINT_LATEST, &states[1], &error),
             0);
        check_ranges(engine, &states[0]);
        files[threads - 1] =
            read_all(io, ROOT "/step-0000000001/shard-00000.safetensors", &bytes[threads - 1]);
        stoker_checkpoint_writer_close(writer);
        stoker_engine_close(engine);
    }
    T_EQ("same length", bytes[0], bytes[1]);
    T_TRUE("same bytes", memcmp(files[0], files[1], bytes[0]) == 0);
    stk_free(files[0]);
    stk_free(files[1]);
    free_state(&states[0]);
    free_state(&states[1]);
}

/* Counts names in the root that begin with ".stoker-". */
static int hidden(struct stk_io *io)
{
    struct stk_listing listing = {0};
    int count = 0;

    if (stk_io_list(io, ROOT, &listing, NULL) == 0) {
        for (size_t i = 0; i < listing.count; i++) {
            count += strncmp(listing.entries[i].name, ".stoker-", 8) == 0;
        }
        stk_listing_free(&listing);
    }
    return count;
}

enum ending { FAIL, KILL, CUT, CUT_PARTLY, ENDINGS = CUT_PARTLY + 6 };

/* Step 1 is committed; the n-th call of the save of step 2 fails or is the last one. Returns false
 * when the save has fewer calls. */
static bool interrupt(const struct state *states, uint64_t n, uint32_t ending)
{
    struct stoker_checkpoint_gc_options options = {.struct_size = sizeof options};
    struct stk_io *io = NULL;
    struct stoker_engine *engine;
    struct stoker_checkpoint_writer *writer;
    struct stoker_error error = {0};
    int64_t found;
    int status;

    T_EQ("world", stk_sim_open(&io, n, NULL, NULL), 0);
    engine = t_open_engine(io);
    writer = t_open_writer(engine, ROOT, 1);
    T_EQ("step 1", save_step(writer, 1, &states[0], NULL, &error), 0);
    if (ending == FAIL) {
        stk_sim_fail_nth(io, n);
    } else {
        stk_sim_kill_nth(io, n);
    }
    status = save_step(writer, 2, &states[1], NULL, &error);
    stoker_checkpoint_writer_close(writer);
    stk_sim_fail_nth(io, 0);
    stk_sim_kill_nth(io, 0);
    if (ending == CUT) {
        T_EQ("power", stk_sim_crash(io), 0);
    } else if (ending >= CUT_PARTLY) {
        T_EQ("power", stk_sim_crash_partial(io, n * 8 + ending), 0);
    }
    found = newest(engine, states, &error);
    T_TRUE("a complete step", found == 1 || found == 2);
    T_TRUE("a success stays", status < 0 || found == 2);
    if (ending == FAIL && status < 0) {
        T_ERROR("why", &error);
    }
    /* The next process saves the step, and removes what was left. */
    writer = t_open_writer(engine, ROOT, 1);
    status = status == 0 ? 1 : save_step(writer, 2, &states[1], NULL, &error);
    T_TRUE("again", status == 1 || status == (found == 2 ? -EEXIST : 0));
    T_EQ("newest", newest(engine, states, &error), 2);
    options.age_min_s = ending == FAIL ? 0 : 1; /* the clock of the world began in 1970 */
    T_EQ("gc", stoker_checkpoint_gc(engine, ROOT, &options, NULL, &error), 0);
    T_EQ("nothing is left", hidden(io), 0);
    T_EQ("step 1 stays", load_step(engine, ROOT, 1, &states[0], &error), 0);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
    return status != 1 || ending != FAIL;
}

static void test_interruptions(void)
{
    struct state states[2];

    make_state(&states[0], 1, 700);
    make_state(&states[1], 2, 900);
    for (uint64_t n = 1; n < 60; n++) {
        for (uint32_t ending = FAIL; ending < ENDINGS; ending++) {
            (void)interrupt(states, n, ending);
        }
    }
    free_state(&states[0]);
    free_state(&states[1]);
}

static void test_full_disk(void)
{
    static const struct fault_row {
        const char *name;
        uint32_t fault;
        int want;
    } rows[] = {{"full", STK_SIM_FAULT_FULL, -ENOSPC},
                {"write", STK_SIM_FAULT_WRITE, -EIO},
                {"sync", STK_SIM_FAULT_SYNC, -EIO}};
    struct state states[2];

    make_state(&states[0], 1, 7);
    make_state(&states[1], 2, 9);
    T_EACH(fault_row, row, rows)
    {
        for (uint64_t k = 0; k < 4096 + 36 + 198 + 8 + 7;
             k += row->fault == STK_SIM_FAULT_FULL ? 13 : 500) {
            struct stk_io *io = NULL;
            struct stoker_engine *engine;
            struct stoker_checkpoint_writer *writer;
            struct stoker_error error = {0};
            struct stk_sim_rule rule = {.fault = row->fault, .offset = k};

            T_EQ("world", stk_sim_open(&io, k, NULL, NULL), 0);
            engine = t_open_engine(io);
            writer = t_open_writer(engine, ROOT, 2);
            T_EQ("step 1", save_step(writer, 1, &states[0], NULL, &error), 0);
            T_EQ("rule", stk_sim_add_rule(io, &rule), 0);
            T_EQ(row->name, save_step(writer, 2, &states[1], NULL, &error), row->want);
            T_ERROR(row->name, &error);
            T_HAS("names the place", error.where, ROOT);
            T_EQ("step 1 stays", newest(engine, states, &error), 1);
            T_EQ("nothing is left", hidden(io), 0);
            stoker_checkpoint_writer_close(writer);
            stoker_engine_close(engine);
        }
    }
    free_state(&states[0]);
    free_state(&states[1]);
}

static void flip(const char *path, uint64_t bit)
{
    int fd = open(path, O_RDWR);
    uint8_t byte = 0;

    T_EQ("read", pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte ^= (uint8_t)(1u << (bit % 8));
    T_EQ("write", pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
    close(fd);
}

/* Every bit of the manifest and many bits of the file; a missing and a short file. */
static void test_damage(void)
{
    char folder[] = "/tmp/stoker-checkpoint-XXXXXX", step[128], manifest[160], shard[160];
    struct stoker_engine_options options = {.struct_size = sizeof options, .threads = 1};
    struct stoker_engine *engine = NULL;
    struct stoker_checkpoint_writer *writer;
    struct stoker_error error = {0};
    struct state state;
    struct stat info;
    uint64_t found = 0, flips = 0;

    make_state(&state, 1, 3000);
    T_TRUE("folder", mkdtemp(folder) != NULL);
    snprintf(step, sizeof step, "%s/step-0000000001", folder);
    snprintf(manifest, sizeof manifest, "%s/stoker.checkpoint.json", step);
    snprintf(shard, sizeof shard, "%s/shard-00000.safetensors", step);
    T_EQ("engine", stoker_engine_open(&engine, &options, NULL), 0);
    writer = t_open_writer(engine, folder, 1);
    T_EQ("save", save_step(writer, 1, &state, NULL, &error), 0);
    T_EQ("load", load_step(engine, folder, 1, &state, &error), 0);
    T_EQ("size", stat(manifest, &info), 0);
    for (uint64_t bit = 0; bit < (uint64_t)info.st_size * 8; bit++, flips++) {
        flip(manifest, bit);
        found += load_step(engine, folder, 1, &state, &error) < 0 && error.where[0] != '\0';
        flip(manifest, bit);
    }
    T_EQ("bits of the manifest", found, flips);
    T_EQ("size", stat(shard, &info), 0);
    found = flips = 0;
    for (uint64_t bit = 0; bit < (uint64_t)info.st_size * 8; bit += 61, flips++) {
        flip(shard, bit);
        found += load_step(engine, folder, 1, &state, &error) < 0 &&
                 strstr(error.where, "shard-00000") != NULL;
        flip(shard, bit);
    }
    T_EQ("bits of the file", found, flips);
    flip(shard, 8 * 4096);
    T_EQ("payload", load_step(engine, folder, 1, &state, &error), STOKER_ERROR_CORRUPT);
    T_STR("the first tensor", error.key, "step");
    T_HAS("and the last", error.where, "to 'mask'");
    T_EQ("the newest",
         stoker_checkpoint_open(&(struct stoker_checkpoint *){NULL}, engine, folder, 7, &error),
         -ENOENT);
    T_EQ("cut", truncate(shard, info.st_size - 1), 0);
    T_EQ("short", load_step(engine, folder, 1, &state, &error), STOKER_ERROR_TRUNCATED);
    T_EQ("save over a short one", save_step(writer, 1, &state, NULL, &error), 0);
    T_EQ("load", load_step(engine, folder, 1, &state, &error), 0);
    T_EQ("save over a complete one", save_step(writer, 1, &state, NULL, &error), -EEXIST);
    unlink(shard);
    T_EQ("missing", load_step(engine, folder, 1, &state, &error), STOKER_ERROR_MISSING);
    T_EQ("save over one without its file", save_step(writer, 1, &state, NULL, &error), 0);
    T_EQ("load", load_step(engine, folder, 1, &state, &error), 0);
    unlink(manifest);
    T_EQ("incomplete", load_step(engine, folder, STOKER_CHECKPOINT_LATEST, &state, &error),
         STOKER_ERROR_EMPTY);
    T_EQ("save over an incomplete one", save_step(writer, 1, &state, NULL, &error), 0);
    T_EQ("load", load_step(engine, folder, 1, &state, &error), 0);
    stoker_checkpoint_writer_close(writer);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 1, &error), 0);
    T_EQ("empty", rmdir(folder), 0);
    stoker_engine_close(engine);
    free_state(&state);
}

/* NaN, Inf and pages of zeros are counted while they are written, over blocks and threads, and are
 * in the list, the step and its tensors. */
static void test_counts(void)
{
    static const uint64_t nan_at[] = {0, 4194303, 4194304, LARGE - 1}, inf_at[] = {77, 5000000};
    struct stoker_checkpoint_tensor_info tensor = {.struct_size = sizeof tensor};
    struct stoker_checkpoint_step step = {.struct_size = sizeof step};
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_list *list = NULL;
    struct stoker_checkpoint_writer *writer;
    struct stoker_engine *engine;
    struct stoker_error error = {0};
    struct stk_io *io = NULL;
    struct state state;
    uint64_t index = 0;

    make_state(&state, 1, LARGE);
    for (uint64_t i = 0; i < LARGE; i++) { /* random floats have NaN, too */
        state.data[0][i * 4 + 3] &= 0x3f;
    }
    for (size_t i = 0; i < STK_COUNT(nan_at); i++) {
        memcpy(state.data[0] + nan_at[i] * 4, "\1\0\xc0\xff", 4);
    }
    for (size_t i = 0; i < STK_COUNT(inf_at); i++) {
        memcpy(state.data[0] + inf_at[i] * 4, "\0\0\x80\x7f", 4);
    }
    memset(state.data[0] + (8u << 20), 0, 10000); /* two pages */
    memset(state.data[1], 0, state.bytes[1]);
    T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
    engine = t_open_engine(io);
    writer = t_open_writer(engine, ROOT, 2);
    T_EQ("save", save_step(writer, 1, &state, NULL, &error), 0);
    T_EQ("list", stoker_checkpoint_list_open(&list, engine, ROOT, NULL), 0);
    T_EQ("step", stoker_checkpoint_list_at(list, 0, &step, NULL), 1);
    T_EQ("counted", step.counted, 1);
    T_EQ("NaN", step.nan_count, STK_COUNT(nan_at));
    T_EQ("Inf", step.inf_count, STK_COUNT(inf_at));
    stoker_checkpoint_list_close(list);
    T_EQ("open", stoker_checkpoint_open(&checkpoint, engine, ROOT, 1, NULL), 0);
    T_EQ("info", stoker_checkpoint_info(checkpoint, &info, NULL), 0);
    T_EQ("NaN", info.nan_count, STK_COUNT(nan_at));
    T_EQ("find", stoker_checkpoint_find(checkpoint, "weight", &index, NULL), 0);
    T_EQ("tensor", stoker_checkpoint_tensor(checkpoint, index, &tensor, NULL), 0);
    T_EQ("NaN", tensor.nan_count, STK_COUNT(nan_at));
    T_EQ("Inf", tensor.inf_count, STK_COUNT(inf_at));
    T_EQ("zeros", tensor.zero_pages, 2);
    T_EQ("counted", tensor.counted, 1);
    T_EQ("find", stoker_checkpoint_find(checkpoint, "bias", &index, NULL), 0);
    T_EQ("tensor", stoker_checkpoint_tensor(checkpoint, index, &tensor, NULL), 0);
    T_EQ("others", tensor.nan_count + tensor.inf_count + tensor.zero_pages, 0);
    stoker_checkpoint_close(checkpoint);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
    free_state(&state);
}

/* A page of zeros in a tensor that had none is reported as a hole; other damage is not. */
static void test_hole(void)
{
    char folder[] = "/tmp/stoker-checkpoint-XXXXXX", shard[160];
    static const uint8_t zeros[4096];
    struct stoker_engine_options options = {.struct_size = sizeof options, .threads = 1};
    struct stoker_engine *engine = NULL;
    struct stoker_checkpoint_writer *writer;
    struct stoker_error error = {0};
    struct state state;
    int fd;

    make_state(&state, 1, 30720); /* 30 pages */
    T_TRUE("folder", mkdtemp(folder) != NULL);
    snprintf(shard, sizeof shard, "%s/step-0000000001/shard-00000.safetensors", folder);
    T_EQ("engine", stoker_engine_open(&engine, &options, NULL), 0);
    writer = t_open_writer(engine, folder, 1);
    T_EQ("save", save_step(writer, 1, &state, NULL, &error), 0);
    flip(shard, 8 * 40960);
    T_EQ("flip", load_step(engine, folder, 1, &state, &error), STOKER_ERROR_CORRUPT);
    T_HAS("flip", error.what, "does not match its hash");
    fd = open(shard, O_RDWR);
    T_EQ("hole", pwrite(fd, zeros, sizeof zeros, 40960), sizeof zeros);
    close(fd);
    T_EQ("hole", load_step(engine, folder, 1, &state, &error), STOKER_ERROR_CORRUPT);
    T_HAS("hole", error.what, "has a hole");
    T_HAS("where", error.where, "byte 40960");
    T_STR("tensor", error.key, "weight");
    stoker_checkpoint_writer_close(writer);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 1, &error), 0);
    T_EQ("empty", rmdir(folder), 0);
    stoker_engine_close(engine);
    free_state(&state);
}

/* The steps that are left, as "1 2 3". */
static const char *steps_of(struct stoker_engine *engine, char *text, size_t bytes)
{
    struct stoker_checkpoint_list *list = NULL;
    struct stoker_checkpoint_step step = {.struct_size = sizeof step};
    size_t at = 0;

    text[0] = '\0';
    T_EQ("list", stoker_checkpoint_list_open(&list, engine, ROOT, NULL), 0);
    for (uint64_t i = 0; stoker_checkpoint_list_at(list, i, &step, NULL) == 1; i++) {
        at += (size_t)snprintf(text + at, bytes - at, "%s%llu%s", i ? " " : "",
                               (unsigned long long)step.step, step.pinned ? "p" : "");
    }
    stoker_checkpoint_list_close(list);
    return text;
}

static void test_retention(void)
{
    static const struct gc_row {
        const char *name;
        struct stoker_checkpoint_gc_options options;
        const char *want;
    } rows[] = {
        {"all", {.keep_every = 3}, "1 2 3p 4 5 6 7 8"},
        {"last", {.keep_last = 2}, "3p 7 8"},
        {"every", {.keep_last = 1, .keep_every = 4}, "3p 4 8"},
        {"best", {.keep_last = 1, .keep_best = 2, .best_metric = "loss"}, "2 3p 5 8"},
        {"highest",
         {.keep_last = 1, .keep_best = 1, .best_metric = "loss", .best_is_max = 1},
         "1 3p 8"},
        {"no metric", {.keep_last = 1, .keep_best = 1, .best_metric = "x"}, "3p 8"},
        {"dry run", {.keep_last = 1, .dry_run = 1}, "1 2 3p 4 5 6 7 8"},
    };
    static const char *const values[] = {"{\"loss\":9}",    "{\"loss\":1}",   "{\"loss\":2}",
                                         "{\"loss\":5}",    "{\"loss\":1.5}", "{}",
                                         "{\"loss\":null}", "{\"loss\":4}"};
    struct state state;

    make_state(&state, 1, 3);
    T_EACH(gc_row, row, rows)
    {
        struct stoker_checkpoint_gc_options options = row->options;
        struct stoker_checkpoint_gc_result result = {.struct_size = sizeof result};
        struct stk_io *io = NULL;
        struct stoker_engine *engine;
        struct stoker_checkpoint_writer *writer;
        char text[100];

        options.struct_size = sizeof options;
        T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
        engine = t_open_engine(io);
        writer = t_open_writer(engine, ROOT, 1);
        for (uint64_t i = 0; i < 8; i++) {
            T_EQ("save", save_step(writer, i + 1, &state, values[i], NULL), 0);
        }
        T_EQ("pin nothing", stoker_checkpoint_pin(engine, ROOT, 9, 1, NULL), -ENOENT);
        T_EQ("pin", stoker_checkpoint_pin(engine, ROOT, 3, 1, NULL), 0);
        T_EQ(row->name, stoker_checkpoint_gc(engine, ROOT, &options, &result, NULL), 0);
        T_STR(row->name, steps_of(engine, text, sizeof text), row->want);
        T_EQ("pinned", stoker_checkpoint_remove(engine, ROOT, 3, NULL), -EBUSY);
        T_EQ("unpin", stoker_checkpoint_pin(engine, ROOT, 3, 0, NULL), 0);
        T_EQ("remove", stoker_checkpoint_remove(engine, ROOT, 3, NULL), 0);
        stoker_checkpoint_writer_close(writer);
        stoker_engine_close(engine);
    }
    free_state(&state);
}

/* Two ranks write their files; rank 0 commits. */
static void test_ranks(void)
{
    struct stoker_checkpoint_save_options options[2];
    struct stoker_checkpoint_save *saves[2] = {NULL, NULL};
    struct stoker_checkpoint_part parts[2];
    struct stoker_checkpoint_writer *writer;
    struct stoker_engine *engine;
    struct stk_io *io = NULL;
    struct stoker_error error = {0};
    struct state states[2];

    T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
    engine = t_open_engine(io);
    writer = t_open_writer(engine, ROOT, 1);
    for (uint32_t rank = 0; rank < 2; rank++) {
        make_state(&states[rank], rank, 100 + rank);
        options[rank] = (struct stoker_checkpoint_save_options){.struct_size = sizeof options[0],
                                                                .step = 5,
                                                                .tensors = states[rank].tensors,
                                                                .tensor_count = TENSORS,
                                                                .values = "{\"a\":1}",
                                                                .rank = rank,
                                                                .ranks = 2};
        T_EQ("no id", stoker_checkpoint_save_open(&saves[rank], writer, &options[rank], &error),
             STOKER_ERROR_ARGUMENT);
        options[rank].save_id = "abc123";
        T_EQ("open", stoker_checkpoint_save_open(&saves[rank], writer, &options[rank], &error), 0);
        T_EQ("save", run_save(saves[rank], &error), 0);
        T_EQ("part", stoker_checkpoint_save_part(saves[rank], &parts[rank], &error), 0);
        T_TRUE("not yet", load_step(engine, ROOT, 5, &states[0], &error) < 0);
    }
    T_EQ("commit", stoker_checkpoint_commit(writer, &options[0], parts, &error), 0);
    T_EQ("load", load_step(engine, ROOT, 5, &states[0], &error), 0);
    T_EQ("rank 1",
         load_step(engine, ROOT "/step-0000000005/shard-00001.safetensors",
                   STOKER_CHECKPOINT_LATEST, &states[1], &error),
         0);
    stoker_checkpoint_save_close(saves[0]);
    stoker_checkpoint_save_close(saves[1]);
    T_EQ("nothing is left", hidden(io), 0);
    T_EQ("it stays", load_step(engine, ROOT, 5, &states[0], &error), 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        options[rank].step = 6;
        options[rank].save_id = "abc124";
        T_EQ("open", stoker_checkpoint_save_open(&saves[rank], writer, &options[rank], &error), 0);
        T_EQ("save", run_save(saves[rank], &error), 0);
    }
    stoker_checkpoint_save_close(saves[1]);
    stoker_checkpoint_save_close(saves[0]); /* without a commit */
    T_EQ("nothing is left", hidden(io), 0);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
    free_state(&states[0]);
    free_state(&states[1]);
}

/* Ends a save before all is copied: nothing is left. A single file is replaced. */
static void test_close_and_file(void)
{
    struct stoker_checkpoint_save_options options = {.struct_size = sizeof options, .step = 1};
    struct stoker_checkpoint_save *save = NULL;
    struct stoker_checkpoint_writer *writer;
    struct stoker_engine *engine;
    struct stk_io *io = NULL;
    struct stoker_error error = {0};
    struct state states[2];

    make_state(&states[0], 1, 100);
    make_state(&states[1], 2, 100);
    T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
    engine = t_open_engine(io);
    writer = t_open_writer(engine, ROOT, 2);
    options.tensors = states[0].tensors;
    options.tensor_count = TENSORS;
    T_EQ("open", stoker_checkpoint_save_open(&save, writer, &options, &error), 0);
    stoker_checkpoint_save_close(save);
    T_EQ("nothing is left", hidden(io), 0);
    for (int i = 0; i < 2; i++) {
        options.file = "model.safetensors";
        options.tensors = states[i].tensors;
        T_EQ("open", stoker_checkpoint_save_open(&save, writer, &options, &error), 0);
        T_EQ("save", run_save(save, &error), 0);
        stoker_checkpoint_save_close(save);
        T_EQ("load",
             load_step(engine, ROOT "/model.safetensors", STOKER_CHECKPOINT_LATEST, &states[i],
                       &error),
             0);
    }
    options.file = "../model.safetensors";
    T_EQ("a path", stoker_checkpoint_save_open(&save, writer, &options, &error),
         STOKER_ERROR_ARGUMENT);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
    free_state(&states[0]);
    free_state(&states[1]);
}

/* The caller copies tensors without data, up to most pieces. */
static int fill_pieces(struct stoker_checkpoint_save *save, const struct state *state, int most,
                       struct stoker_error *error)
{
    int status = 1;

    while (most-- > 0 && (status == 1 || status == STOKER_ERROR_AGAIN)) {
        struct stoker_checkpoint_piece piece = {.struct_size = sizeof piece};

        status = stoker_checkpoint_save_copy_piece(save, 100, &piece, error);
        if (status == 1) {
            T_TRUE("in the block", (uint8_t *)piece.buffer >= (uint8_t *)piece.block &&
                                       (uint8_t *)piece.buffer + piece.bytes <=
                                           (uint8_t *)piece.block + piece.block_bytes);
            memcpy(piece.buffer, state->data[piece.tensor] + piece.offset, piece.bytes);
        }
    }
    return status;
}

static void test_pieces(void)
{
    struct stoker_checkpoint_save_options options = {.struct_size = sizeof options, .step = 1};
    struct stoker_checkpoint_save *save = NULL;
    struct stoker_checkpoint_writer *writer;
    struct stoker_error error = {0};
    struct stoker_engine *engine;
    struct stk_io *io = NULL;
    struct state state;

    make_state(&state, 1, LARGE);
    state.tensors[0].data = state.tensors[2].data = NULL;
    options.tensors = state.tensors;
    options.tensor_count = TENSORS;
    T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
    engine = t_open_engine(io);
    writer = t_open_writer(engine, ROOT, 2);
    T_EQ("no data", stoker_checkpoint_save_open(&save, writer, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_HAS("the tensor", error.where, "weight");
    options.pieces = 1;
    T_EQ("open", stoker_checkpoint_save_open(&save, writer, &options, &error), 0);
    T_EQ("copy", stoker_checkpoint_save_copy(save, 100, &error), STOKER_ERROR_ARGUMENT);
    T_EQ("a piece is missing", fill_pieces(save, &state, 2, &error), 1);
    stoker_checkpoint_save_close(save);
    T_EQ("nothing is left", hidden(io), 0);
    T_EQ("open", stoker_checkpoint_save_open(&save, writer, &options, &error), 0);
    T_EQ("pieces", fill_pieces(save, &state, 1000, &error), 0);
    while (stoker_checkpoint_save_next(save, 100, NULL, &error) == 1) {
    }
    stoker_checkpoint_save_close(save);
    T_EQ("load", load_step(engine, ROOT, 1, &state, &error), 0);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
    free_state(&state);
}

int main(void)
{
    int64_t alive = stk_mem_alive();

    test_round_trip();
    test_ranks();
    test_close_and_file();
    test_pieces();
    test_retention();
    test_damage();
    test_counts();
    test_hole();
    test_full_disk();
    test_interruptions();
    T_EQ("memory", stk_mem_alive(), alive);
    return t_finish();
}
