/* Goal: kill -9 of one rank, of all ranks or of the coordinator loses no committed step, and
 * commits no incomplete one; the ranks that live end within their deadline; gc() removes the rest.
 * Method: three processes save steps of a real folder in a loop, and agree in shared memory; they
 * are killed after random times. Another process then verifies every byte of every step that a
 * reader accepts. STOKER_TEST_LONG: 1,000 kills; STOKER_TEST_KILLS: as many;
 * STOKER_TEST_FOLDER: where, as on the file systems of scripts/kill_on_images.py. Covers save.c,
 * commit.c, sink.c, gc.c. */
#include "base/mem.h"
#include "checkpoint/manage/manage.h"
#include "test/t.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS 3u
#define KILLS 50u
#define KILLS_LONG 1000u
#define ELEMENTS 20000u
#define DEADLINE_MS 150u

enum victims { ONE_RANK, ALL_RANKS, COORDINATOR, VICTIMS };

/* The messages between the ranks. */
struct shared {
    struct stoker_checkpoint_part parts[RANKS];
    _Atomic uint64_t ready[RANKS]; /* step whose part is in parts */
    _Atomic uint64_t committed;    /* newest step whose commit returned */
};

static struct shared *shared;
static char folder[256];

static void sleep_us(uint64_t us)
{
    struct timespec time = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};

    nanosleep(&time, NULL);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static struct stoker_engine *open_engine(void)
{
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = 64u << 20};
    struct stoker_engine *engine = NULL;

    return stoker_engine_open(&engine, &options, NULL) == 0 ? engine : NULL;
}

static float value_of(uint64_t step, uint64_t rank, uint64_t index)
{
    return (float)(step * 1000 + rank * 100 + index % 97);
}

/* Waits for a number of another rank. Returns false after the deadline. */
static bool await(const _Atomic uint64_t *number, uint64_t least)
{
    uint64_t until_ns = now_ns() + DEADLINE_MS * UINT64_C(1000000);

    while (atomic_load(number) < least) {
        if (now_ns() > until_ns) {
            return false;
        }
        sleep_us(100);
    }
    return true;
}

static bool commit(struct stoker_checkpoint_writer *writer,
                   const struct stoker_checkpoint_save_options *options)
{
    struct stoker_checkpoint_part parts[RANKS];

    for (uint32_t i = 0; i < RANKS; i++) {
        if (!await(&shared->ready[i], options->step)) {
            return false;
        }
    }
    memcpy(parts, shared->parts, sizeof parts);
    if (stoker_checkpoint_commit(writer, options, parts, NULL) < 0) {
        return false;
    }
    atomic_store(&shared->committed, options->step);
    return true;
}

static bool save_step(struct stoker_checkpoint_writer *writer, uint32_t rank, uint64_t step,
                      const char *id, float *values)
{
    uint64_t shape = ELEMENTS;
    struct stoker_checkpoint_tensor tensor = {"x", "F32", &shape, 1, values};
    struct stoker_checkpoint_save_options options = {.struct_size = sizeof options,
                                                     .step = step,
                                                     .tensors = &tensor,
                                                     .tensor_count = 1,
                                                     .rank = rank,
                                                     .ranks = RANKS,
                                                     .save_id = id};
    struct stoker_checkpoint_save *save = NULL;
    int status;
    bool done = false;

    for (uint64_t i = 0; i < ELEMENTS; i++) {
        values[i] = value_of(step, rank, i);
    }
    if (stoker_checkpoint_save_open(&save, writer, &options, NULL) < 0) {
        return false;
    }
    while ((status = stoker_checkpoint_save_copy(save, 100, NULL)) == STOKER_ERROR_AGAIN) {
    }
    while (status >= 0 && (status = stoker_checkpoint_save_next(save, 100, NULL, NULL)) == 1) {
    }
    if (status == 0 && stoker_checkpoint_save_part(save, &shared->parts[rank], NULL) == 0) {
        atomic_store(&shared->ready[rank], step);
        done = rank == 0 ? commit(writer, &options) : await(&shared->committed, step);
    }
    stoker_checkpoint_save_close(save);
    return done;
}

/* Saves steps until it is killed or another rank is. */
static void run_rank(uint32_t rank, uint64_t first, uint32_t round)
{
    struct stoker_engine *engine = open_engine();
    struct stoker_checkpoint_writer_options options = {
        .struct_size = sizeof options, .path = folder, .threads = 1, .memory_bytes_max = 64u << 20};
    struct stoker_checkpoint_writer *writer = NULL;
    float *values = calloc(ELEMENTS, sizeof *values);
    char id[32];
    bool ready =
        engine && values && stoker_checkpoint_writer_open(&writer, engine, &options, NULL) == 0;

    for (uint64_t step = first; ready; step++) {
        snprintf(id, sizeof id, "r%us%llu", round, (unsigned long long)step);
        ready = save_step(writer, rank, step, id, values);
    }
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
    free(values);
    _exit(writer ? 0 : 3);
}

/* Whether a step has the values of all ranks, and all hashes match. */
static bool is_right(struct stoker_engine *engine, uint64_t step)
{
    static float buffers[RANKS][ELEMENTS];
    struct stoker_checkpoint_range ranges[RANKS];
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_load *load = NULL;
    int status = stoker_checkpoint_open(&checkpoint, engine, folder, step, NULL);

    if (status < 0) {
        return false;
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        ranges[rank] =
            (struct stoker_checkpoint_range){rank, 0, sizeof buffers[rank], buffers[rank]};
    }
    status = stoker_checkpoint_load_open(&load, checkpoint, ranges, RANKS, NULL);
    while (status >= 0 && (status = stoker_checkpoint_load_next(load, 100, NULL, NULL)) == 1) {
    }
    stoker_checkpoint_load_close(load);
    stoker_checkpoint_close(checkpoint);
    for (uint32_t rank = 0; status == 0 && rank < RANKS; rank++) {
        for (uint64_t i = 0; i < ELEMENTS; i++) {
            status = buffers[rank][i] == value_of(step, rank, i) ? status : -1;
        }
    }
    return status == 0;
}

static bool has_hidden(void)
{
    DIR *directory = opendir(folder);
    bool found = false;

    for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        found = found || strncmp(entry->d_name, ".stoker-", 8) == 0;
    }
    if (directory) {
        closedir(directory);
    }
    return found;
}

/* Checks the steps in a new process: exits with 0 if all is right. */
static void verify(void)
{
    struct stoker_checkpoint_gc_options gc = {.struct_size = sizeof gc, .keep_last = 2};
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint_step step = {.struct_size = sizeof step};
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_list *list = NULL;
    struct stoker_engine *engine = open_engine();
    uint64_t committed = atomic_load(&shared->committed);
    int status =
        stoker_checkpoint_open(&checkpoint, engine, folder, STOKER_CHECKPOINT_LATEST, NULL);

    if (status == STOKER_ERROR_EMPTY || status == -ENOENT) {
        _exit(committed == 0 ? 0 : 10);
    }
    if (status < 0 || stoker_checkpoint_info(checkpoint, &info, NULL) < 0) {
        _exit(11);
    }
    stoker_checkpoint_close(checkpoint);
    if (info.step < committed) {
        _exit(12); /* a committed step is lost */
    }
    if (stoker_checkpoint_list_open(&list, engine, folder, NULL) < 0) {
        _exit(13);
    }
    for (uint64_t i = 0; stoker_checkpoint_list_at(list, i, &step, NULL) == 1; i++) {
        if (step.status != STOKER_CHECKPOINT_COMMITTED || !is_right(engine, step.step)) {
            _exit(14); /* an incomplete step is accepted */
        }
    }
    stoker_checkpoint_list_close(list);
    status = stoker_checkpoint_gc(engine, folder, &gc, NULL, NULL);
    if (status == 0 && has_hidden()) { /* rank 0 died before it made its lock: the age decides */
        sleep_us(1100000);
        gc.age_min_s = 1;
        status = stoker_checkpoint_gc(engine, folder, &gc, NULL, NULL);
    }
    if (status < 0 || has_hidden()) {
        _exit(15); /* what the dead save left is not removed */
    }
    if (!is_right(engine, info.step)) {
        _exit(16);
    }
    atomic_store(&shared->committed, info.step);
    stoker_engine_close(engine);
    _exit(0);
}

static pid_t start(void (*run)(uint32_t, uint64_t, uint32_t), uint32_t rank, uint64_t first,
                   uint32_t round)
{
    pid_t child = fork();

    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        run(rank, first, round);
    }
    return child;
}

static void run_verify(uint32_t rank, uint64_t first, uint32_t round)
{
    (void)rank, (void)first, (void)round;
    verify();
}

/* Returns the code of the exit, or 1000 + the signal. */
static int wait_for(pid_t child)
{
    int status = 0;

    T_EQ("wait", waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void run_round(uint32_t round, uint32_t *random)
{
    static const char *const names[VICTIMS] = {"one rank", "all ranks", "the coordinator"};
    enum victims victims = round % VICTIMS;
    uint64_t first = atomic_load(&shared->committed) + 1;
    pid_t ranks[RANKS];

    for (uint32_t i = 0; i < RANKS; i++) {
        atomic_store(&shared->ready[i], 0);
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i] = start(run_rank, i, first, round);
    }
    *random = *random * 1664525u + 1013904223u;
    (void)await(&shared->ready[round % RANKS], first);
    sleep_us((*random >> 8) % 12000);
    for (uint32_t i = 0; i < RANKS; i++) {
        bool dies = victims == ALL_RANKS || (victims == COORDINATOR ? i == 0 : i == RANKS - 1);

        if (dies) {
            kill(ranks[i], SIGKILL);
        }
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        int code = wait_for(ranks[i]);

        T_TRUE(names[victims], code == 0 || code == 1000 + SIGKILL);
    }
    T_EQ(names[victims], wait_for(start(run_verify, 0, 0, 0)), 0);
}

static void run_gc_of_all(uint32_t rank, uint64_t first, uint32_t round)
{
    struct stoker_engine *engine = open_engine();

    (void)rank, (void)round;
    for (uint64_t step = 1; step <= first; step++) {
        (void)stoker_checkpoint_remove(engine, folder, step, NULL);
    }
    stoker_engine_close(engine);
    _exit(0);
}

int main(void)
{
    const char *is_long = getenv("STOKER_TEST_LONG"), *given = getenv("STOKER_TEST_KILLS");
    const char *parent = getenv("STOKER_TEST_FOLDER");
    uint32_t kills = is_long && is_long[0] ? KILLS_LONG : KILLS, random = 1;

    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    T_TRUE("shared memory", shared != MAP_FAILED);
    /* In memory if possible: then a round takes milliseconds, and kills hit every place. */
    snprintf(folder, sizeof folder, "%s/stoker-kill-XXXXXX",
             parent                          ? parent
             : access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                             : "/tmp");
    kills = given ? (uint32_t)strtoul(given, NULL, 10) : kills;
    T_TRUE("folder", mkdtemp(folder) != NULL);
    for (uint32_t round = 0; round < kills; round++) {
        run_round(round, &random);
    }
    T_TRUE("steps were committed", atomic_load(&shared->committed) >= kills / 4);
    T_EQ("removal", wait_for(start(run_gc_of_all, 0, atomic_load(&shared->committed), 0)), 0);
    T_EQ("empty", rmdir(folder), 0);
    munmap(shared, sizeof *shared);
    return t_finish();
}
