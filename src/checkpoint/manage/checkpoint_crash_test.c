/* Goal: after a power cut at any moment of a save, a reader finds the newest committed step,
 * complete and right, and no other one: nothing that was committed is lost, nothing incomplete is
 * accepted. Method: the save ends before each of its calls; then the simulated disk has any subset
 * of what was not synced: names of files and folders, and halves of pages (torn pages), also a file
 * of full length without its bytes. All subsets are tried if there are few, else random ones;
 * STOKER_TEST_LONG: 64 times as many. The reader opens every step and verifies every byte.
 * Covers sink.c, commit.c, checkpoint.c, list.c, gc.c. */
#include "base/mem.h"
#include "base/random.h"
#include "checkpoint/manage/manage.h"
#include "io/sim/sim.h"
#include "test/checkpoints.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROOT "/run/checkpoints"
#define BYTES 5000u /* two pages after the header */
#define CALLS_MAX 100u
#define QUESTIONS_MAX 6u /* all answers to so many are tried */
#define QUESTIONS_MAX_LONG 12u

static uint32_t questions_max = QUESTIONS_MAX;
static uint64_t states, accepted_new;

static uint8_t value_of(uint64_t step, uint64_t at)
{
    return (uint8_t)(step * 131 + at * 7 + at / 256);
}

static int save_step(struct stoker_engine *engine, uint64_t step, const char *id)
{
    struct stoker_checkpoint_writer *writer = t_open_writer(engine, ROOT, 1);
    uint64_t shape = BYTES;
    uint8_t data[BYTES];
    struct stoker_checkpoint_tensor tensor = {"x", "U8", &shape, 1, data};
    struct stoker_checkpoint_save_options options = {.struct_size = sizeof options,
                                                     .step = step,
                                                     .tensors = &tensor,
                                                     .tensor_count = 1,
                                                     .save_id = id};
    struct stoker_checkpoint_save *save = NULL;
    int status;

    for (uint64_t i = 0; i < BYTES; i++) {
        data[i] = value_of(step, i);
    }
    status = stoker_checkpoint_save_open(&save, writer, &options, NULL);
    while (status >= 0 &&
           (status = stoker_checkpoint_save_copy(save, 100, NULL)) == STOKER_ERROR_AGAIN) {
        status = 0;
    }
    while (status >= 0 && (status = stoker_checkpoint_save_next(save, 100, NULL, NULL)) == 1) {
    }
    stoker_checkpoint_save_close(save);
    stoker_checkpoint_writer_close(writer);
    return status;
}

/* Whether all bytes of an open step are right. */
static bool is_right(struct stoker_checkpoint *checkpoint, uint64_t step)
{
    uint8_t data[BYTES] = {0};
    struct stoker_checkpoint_range range = {0, 0, BYTES, data};
    struct stoker_checkpoint_load *load = NULL;
    int status = stoker_checkpoint_load_open(&load, checkpoint, &range, 1, NULL);
    bool right;

    while (status >= 0 && (status = stoker_checkpoint_load_next(load, 100, NULL, NULL)) == 1) {
    }
    stoker_checkpoint_load_close(load);
    right = status == 0;
    for (uint64_t i = 0; right && i < BYTES; i++) {
        right = data[i] == value_of(step, i);
    }
    return right;
}

/* The newest step that a reader accepts, or an error; 0: its bytes are wrong. */
static int64_t newest(struct stoker_engine *engine)
{
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint *checkpoint = NULL;
    int status = stoker_checkpoint_open(&checkpoint, engine, ROOT, STOKER_CHECKPOINT_LATEST, NULL);
    int64_t step = status;

    if (status == 0) {
        T_EQ("info", stoker_checkpoint_info(checkpoint, &info, NULL), 0);
        step = is_right(checkpoint, info.step) ? (int64_t)info.step : 0;
    }
    stoker_checkpoint_close(checkpoint);
    return step;
}

/* Every step that the list calls committed must be right. */
static bool are_listed_right(struct stoker_engine *engine)
{
    struct stoker_checkpoint_step step = {.struct_size = sizeof step};
    struct stoker_checkpoint_list *list = NULL;
    bool right = stoker_checkpoint_list_open(&list, engine, ROOT, NULL) == 0;

    for (uint64_t i = 0; right && stoker_checkpoint_list_at(list, i, &step, NULL) == 1; i++) {
        struct stoker_checkpoint *checkpoint = NULL;

        if (step.status == STOKER_CHECKPOINT_COMMITTED) {
            right = stoker_checkpoint_open(&checkpoint, engine, ROOT, step.step, NULL) == 0 &&
                    is_right(checkpoint, step.step);
            stoker_checkpoint_close(checkpoint);
        }
    }
    stoker_checkpoint_list_close(list);
    return right;
}

/* Step 1 is committed; the power is cut at the n-th call of the save of step 2 (0: after it).
 * Returns the questions of the disk. */
static uint32_t cut(uint64_t n, uint64_t choices)
{
    struct stoker_checkpoint_gc_options gc = {.struct_size = sizeof gc, .age_min_s = 1};
    struct stk_io *io = NULL;
    struct stoker_engine *engine;
    uint32_t questions = 0;
    int64_t found;
    int status;

    T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
    engine = t_open_engine(io);
    T_EQ("step 1", save_step(engine, 1, "first"), 0);
    stk_sim_kill_nth(io, n);
    status = save_step(engine, 2, "id");
    T_EQ("power", stk_sim_crash_chosen(io, choices, &questions), 0);
    found = newest(engine);
    T_TRUE("the newest is complete", found == 1 || found == 2);
    T_TRUE("a committed step stays", status < 0 || found == 2);
    T_TRUE("all steps of the list", are_listed_right(engine));
    accepted_new += found == 2;
    states++;
    /* The next process saves the step, and gc() removes the remains. */
    status = found == 2 ? 0 : save_step(engine, 2, "other");
    T_EQ("again", status, 0);
    T_EQ("newest", newest(engine), 2);
    T_EQ("gc", stoker_checkpoint_gc(engine, ROOT, &gc, NULL, NULL), 0);
    T_EQ("step 2 stays", newest(engine), 2);
    T_TRUE("step 1 stays", are_listed_right(engine));
    stoker_engine_close(engine);
    return questions;
}

/* The calls of a save. */
static uint64_t count_calls(void)
{
    struct stk_io *io = NULL;
    struct stoker_engine *engine;
    uint64_t calls;

    T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
    engine = t_open_engine(io);
    T_EQ("step 1", save_step(engine, 1, "first"), 0);
    calls = stk_sim_calls(io);
    T_EQ("step 2", save_step(engine, 2, "id"), 0);
    calls = stk_sim_calls(io) - calls;
    stoker_engine_close(engine);
    return calls;
}

int main(void)
{
    const char *is_long = getenv("STOKER_TEST_LONG");
    int64_t alive = stk_mem_alive();
    uint64_t calls = count_calls(), most = 0;

    questions_max = is_long && is_long[0] ? QUESTIONS_MAX_LONG : QUESTIONS_MAX;
    T_TRUE("calls", calls > 10 && calls < CALLS_MAX);
    for (uint64_t n = 0; n <= calls; n++) {
        uint32_t questions = cut(n, 0);
        uint64_t count = 1ull << stk_min(questions, questions_max);

        most = stk_max(most, questions);
        (void)cut(n, UINT64_MAX);
        for (uint64_t i = 1; i < count; i++) {
            (void)cut(n, questions <= questions_max ? i : stk_random_key(n, i));
        }
    }
    T_TRUE("the disk had a choice", most > 5);
    T_TRUE("both outcomes", accepted_new > 0 && accepted_new < states);
    T_EQ("memory", stk_mem_alive(), alive);
    return t_finish();
}
