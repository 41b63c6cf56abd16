/* Runs a fuzz target without a fuzzer: over each input of its corpus, and then over damaged copies
 * of them, for a while. No coverage guides it (./check --long has libFuzzer for that), but it runs
 * everywhere, under every sanitizer, and twice the same: run k is a function of (seed, k).
 *
 * usage: target_fuzz [--seconds S] [--seed N] FILE|FOLDER ...     (--seconds 0: only the corpus)
 *
 * An input that ends the program is left in $TMPDIR (or /tmp), to be given as FILE. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { INPUTS_MAX = 1024, INPUT_BYTES_MAX = 1 << 24, MUTANT_BYTES_MAX = 1 << 16, CHANGES_MAX = 5 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
/* A function of the sanitizers, if there is one. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

struct input {
    uint8_t *data;
    size_t bytes;
};

static struct input inputs[INPUTS_MAX];
static size_t input_count;
static struct input running; /* the current input of the target */
static char crash_path[512];

/* ---- an input that ends the program is written to a file ---- */

static void keep_input(void)
{
    static const char before[] = "replay: the input is in ";
    int file = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    if (file >= 0 && write(file, running.data, running.bytes) == (ssize_t)running.bytes &&
        write(STDERR_FILENO, before, sizeof before - 1) > 0 &&
        write(STDERR_FILENO, crash_path, strlen(crash_path)) > 0) {
        close(write(STDERR_FILENO, "\n", 1) == 1 ? file : -1);
    }
}

static void on_signal(int number)
{
    keep_input();
    signal(number, SIG_DFL);
    raise(number);
}

static void watch(const char *program)
{
    const char *folder = getenv("TMPDIR"), *name = strrchr(program, '/');

    snprintf(crash_path, sizeof crash_path, "%s/%s.crash", folder ? folder : "/tmp",
             name ? name + 1 : program);
    signal(SIGABRT, on_signal);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(keep_input);
    } else {
        signal(SIGSEGV, on_signal);
        signal(SIGBUS, on_signal);
        signal(SIGFPE, on_signal);
    }
}

/* In a block of exactly its size, so that a sanitizer detects a read past its end. */
static void run(const uint8_t *data, size_t bytes)
{
    uint8_t *exact = malloc(bytes ? bytes : 1);

    if (!exact) {
        abort();
    }
    if (bytes > 0) {
        memcpy(exact, data, bytes);
    }
    running = (struct input){exact, bytes};
    LLVMFuzzerTestOneInput(exact, bytes);
    running = (struct input){NULL, 0};
    free(exact);
}

/* ---- damage ---- */

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t bound)
{
    return bound ? draw(state) % bound : 0;
}

/* Boundary values: ends of ranges, with either end first. */
static void put_number(uint64_t *state, uint8_t *at, size_t room)
{
    static const uint64_t numbers[] = {0,          1,          0x7f,       0x80,
                                       0xff,       0x7fff,     0xffff,     0x7fffffff,
                                       0x80000000, 0xffffffff, 1ull << 32, 0x7fffffffffffffff,
                                       1ull << 63, UINT64_MAX, 511,        512};
    uint64_t number = numbers[below(state, sizeof numbers / sizeof numbers[0])];
    size_t bytes = (size_t)1 << below(state, 4);
    bool big = draw(state) & 1;

    number += draw(state) % 4 == 0 ? draw(state) % 3 - 1 : 0;
    for (size_t i = 0; i < bytes && i < room; i++) {
        at[i] = (uint8_t)(number >> 8 * (big ? bytes - 1 - i : i));
    }
}

/* Digits of a number that stands there as text, as in tar, PAX and JSON. */
static void put_digit(uint64_t *state, struct input *mutant)
{
    size_t start = below(state, mutant->bytes);

    for (size_t i = 0; i < mutant->bytes; i++) {
        uint8_t *byte = &mutant->data[(start + i) % mutant->bytes];

        if (*byte >= '0' && *byte <= '9') {
            *byte = (uint8_t)"0123456789-+.eE 78\xff"[below(state, 19)];
            return;
        }
    }
}

/* Moves, copies, removes or inserts a piece; of itself or of another input. */
static void move_piece(uint64_t *state, struct input *mutant)
{
    const struct input *other = draw(state) & 1 ? mutant : &inputs[below(state, input_count)];
    size_t to = below(state, mutant->bytes + 1), from = below(state, other->bytes);
    size_t bytes = below(state, 1 + (draw(state) & 1 ? 16 : 1024));

    switch (below(state, 3)) {
    case 0: /* over existing bytes */
        bytes = bytes < mutant->bytes - to ? bytes : mutant->bytes - to;
        bytes = bytes < other->bytes - from ? bytes : other->bytes - from;
        memmove(mutant->data + to, other->data + from, bytes);
        break;
    case 1: /* in between */
        bytes = bytes < other->bytes - from ? bytes : other->bytes - from;
        if (mutant->bytes + bytes <= MUTANT_BYTES_MAX) {
            memmove(mutant->data + to + bytes, mutant->data + to, mutant->bytes - to);
            if (other == mutant) {
                memset(mutant->data + to, (int)draw(state), bytes);
            } else {
                memcpy(mutant->data + to, other->data + from, bytes);
            }
            mutant->bytes += bytes;
        }
        break;
    default: /* out */
        bytes = bytes < mutant->bytes - to ? bytes : mutant->bytes - to;
        memmove(mutant->data + to, mutant->data + to + bytes, mutant->bytes - to - bytes);
        mutant->bytes -= bytes;
    }
}

static void change(uint64_t *state, struct input *mutant)
{
    size_t at = below(state, mutant->bytes);

    switch (mutant->bytes ? below(state, 8) : 7) {
    case 0:
        mutant->data[at] ^= (uint8_t)(1u << below(state, 8));
        break;
    case 1:
        mutant->data[at] = (uint8_t)draw(state);
        break;
    case 2:
    case 3:
        put_number(state, mutant->data + at, mutant->bytes - at);
        break;
    case 4:
        put_digit(state, mutant);
        break;
    case 5:
        mutant->bytes = draw(state) % 4 ? mutant->bytes : at;
        break;
    default:
        move_piece(state, mutant);
    }
}

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void mutate(double seconds, uint64_t seed)
{
    static uint8_t space[MUTANT_BYTES_MAX];
    double begin = seconds_now();
    uint64_t runs = 0;

    for (; input_count > 0 && seconds_now() - begin < seconds; runs++) {
        uint64_t state = seed * 0x100000001b3u + runs;
        const struct input *from = &inputs[below(&state, input_count)];
        struct input mutant = {space, from->bytes < sizeof space ? from->bytes : sizeof space};

        memcpy(space, from->data, mutant.bytes);
        for (size_t left = 1 + below(&state, CHANGES_MAX); left > 0; left--) {
            change(&state, &mutant);
        }
        run(mutant.data, mutant.bytes);
    }
    printf("%llu damaged inputs, seed %llu\n", (unsigned long long)runs, (unsigned long long)seed);
}

/* ---- the corpus ---- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* the same in every locale */
}

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(INPUT_BYTES_MAX);
    size_t bytes = file && data ? fread(data, 1, INPUT_BYTES_MAX, file) : 0;

    if (!file || !data || input_count == INPUTS_MAX) {
        printf("cannot read %s, or too many inputs\n", path);
        return 1;
    }
    fclose(file);
    data = realloc(data, bytes ? bytes : 1);
    run(data, bytes);
    inputs[input_count++] = (struct input){data, bytes};
    return 0;
}

static int run_path(const char *path)
{
    struct dirent **entries;
    struct stat about;
    int status = 0, count;

    if (stat(path, &about) != 0) {
        printf("no corpus at %s\n", path);
        return 1;
    }
    if (!S_ISDIR(about.st_mode)) {
        return run_file(path);
    }
    count = scandir(path, &entries, NULL, by_name);
    for (int i = 0; i < count; i++) {
        char name[4096];

        if (entries[i]->d_name[0] != '.') {
            snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
            status |= run_file(name);
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
    return status;
}

int main(int count, char **arguments)
{
    double seconds = 0;
    uint64_t seed = 1;
    int status = 0;

    watch(arguments[0]);
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--seconds") == 0 && i + 1 < count) {
            seconds = strtod(arguments[++i], NULL);
        } else if (strcmp(arguments[i], "--seed") == 0 && i + 1 < count) {
            seed = strtoull(arguments[++i], NULL, 10);
        } else {
            status |= run_path(arguments[i]);
        }
    }
    printf("%zu inputs replayed\n", input_count);
    mutate(seconds, seed);
    for (size_t i = 0; i < input_count; i++) {
        free(inputs[i].data);
    }
    return status || input_count == 0;
}
