/* stoker ckpt verify, inspect and diff: read the tensors of steps. */
#include "programs/cli/ckpt.h"
#include "programs/cli/command.h"
#include "programs/cli/main.h"
#include "programs/cli/terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct load_job {
    struct stoker_checkpoint_load *load;
    struct stoker_checkpoint_progress progress;
};

static int next(void *self, struct stoker_error *error)
{
    struct load_job *job = self;

    return stoker_checkpoint_load_next(job->load, COMMAND_TICK_MS, &job->progress, error);
}

static void draw(const void *self)
{
    ckpt_draw(&((const struct load_job *)self)->progress);
}

void ckpt_draw(const struct stoker_checkpoint_progress *progress)
{
    char line[120], done[TERM_NUMBER_BYTES], all[TERM_NUMBER_BYTES];

    snprintf(line, sizeof line, "%s of %s", term_bytes(done, progress->bytes_done),
             term_bytes(all, progress->bytes));
    term_live(progress->bytes > 0 ? (double)progress->bytes_done / (double)progress->bytes : -1,
              line);
}

int ckpt_load(struct stoker_checkpoint *checkpoint, const struct stoker_checkpoint_range *ranges,
              size_t count)
{
    struct load_job job = {.progress.struct_size = sizeof job.progress};
    struct stoker_error error = {0};
    int status = stoker_checkpoint_load_open(&job.load, checkpoint, ranges, count, &error);

    status =
        status < 0 ? status : command_wait(&(struct command_job){next, draw, &job, NULL}, &error);
    stoker_checkpoint_load_close(job.load);
    return status == 1 ? command_interrupted("nothing was changed", "the same command begins again")
                       : command_result(status, &error);
}

const char *ckpt_shape(const struct stoker_checkpoint_tensor_info *info, char text[64])
{
    size_t at = 0;

    text[at++] = '[';
    for (uint32_t i = 0; i < info->dimension_count && at < 40; i++) {
        at += (size_t)snprintf(text + at, 64 - at, "%s%llu", i ? ", " : "",
                               (unsigned long long)info->shape[i]);
    }
    snprintf(text + at, 64 - at, at < 40 ? "]" : " ...]");
    return text;
}

/* ---- verify ---- */

/* Reads the ranges in pieces, and waits between them. Changes the ranges. */
static int load_slowly(const struct args *args, struct stoker_checkpoint *checkpoint,
                       struct stoker_checkpoint_range *ranges, size_t count)
{
    uint64_t start = term_clock_ns(), done = 0;
    int status = EXIT_FINE;

    for (size_t first = 0, some; status == EXIT_FINE && first < count; first += some) {
        struct stoker_checkpoint_range rest = ranges[first];
        uint64_t bytes = 0, due_ns, now_ns;

        for (some = 0; first + some < count && bytes < CKPT_PIECE_BYTES; some++) {
            bytes += ranges[first + some].bytes;
        }
        if (some == 1 && bytes > CKPT_PIECE_BYTES) { /* a part of a large tensor */
            bytes = ranges[first].bytes = CKPT_PIECE_BYTES;
        }
        status = ckpt_load(checkpoint, ranges + first, some);
        done += bytes;
        due_ns = (uint64_t)((double)done / (double)args->bandwidth * 1e9);
        now_ns = term_clock_ns() - start;
        if (due_ns > now_ns) {
            struct timespec wait = {(time_t)((due_ns - now_ns) / 1000000000u),
                                    (long)((due_ns - now_ns) % 1000000000u)};

            (void)nanosleep(&wait, NULL);
        }
        if (bytes < rest.bytes && some == 1) {
            rest.offset += bytes;
            rest.bytes -= bytes;
            ranges[first] = rest;
            some = 0;
        }
    }
    return status;
}

/* Reads all tensors of a step without buffers. */
static int verify_step(const struct args *args, struct stoker_engine *engine, const char *path,
                       uint64_t step)
{
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_range *ranges;
    char bytes[TERM_NUMBER_BYTES];
    uint64_t start = term_clock_ns();
    int status = ckpt_open(engine, path, step, &checkpoint);

    if (status != EXIT_FINE) {
        return status;
    }
    (void)stoker_checkpoint_info(checkpoint, &info, NULL);
    ranges = calloc(info.tensors + 1, sizeof *ranges);
    for (uint64_t i = 0; ranges && i < info.tensors; i++) {
        struct stoker_checkpoint_tensor_info tensor = {.struct_size = sizeof tensor};

        (void)stoker_checkpoint_tensor(checkpoint, i, &tensor, NULL);
        ranges[i] = (struct stoker_checkpoint_range){.tensor = i, .bytes = tensor.bytes};
    }
    status = !ranges               ? EXIT_ENVIRONMENT
             : args->bandwidth > 0 ? load_slowly(args, checkpoint, ranges, info.tensors)
                                   : ckpt_load(checkpoint, ranges, info.tensors);
    free(ranges);
    if (status == EXIT_FINE && args->json) {
        json_open(NULL, '{');
        json_str("path", info.path);
        json_u64("bytes", info.bytes);
        json_u64("files", info.files);
        json_u64("tensors", info.tensors);
        json_bool("hashed", info.hashed != 0);
        json_double("seconds", term_seconds_since(start));
        json_close('}');
    } else if (status == EXIT_FINE) {
        term_text(info.path);
        printf(": %s, %llu tensors, %s\n", term_bytes(bytes, info.bytes),
               (unsigned long long)info.tensors,
               info.hashed ? "all hashes match"
                           : "complete; the files of another tool have no hashes");
    }
    stoker_checkpoint_close(checkpoint);
    return status;
}

int ckpt_verify(const struct args *args, struct stoker_engine *engine)
{
    struct stoker_checkpoint_step step = {.struct_size = sizeof step};
    struct stoker_checkpoint_list *list = NULL;
    struct stoker_error error = {0};
    uint64_t number;
    int status = ckpt_step(args, &number), worst = EXIT_FINE;

    if (status != EXIT_FINE || !args->all) {
        bool sealed = false;

        main_defer_signals(true);
        if (status == EXIT_FINE) {
            status = ckpt_check_seal(args, engine, &sealed);
            if (status != EXIT_FINE || sealed) {
                return status;
            }
        }
        return status != EXIT_FINE ? status : verify_step(args, engine, args->paths[0], number);
    }
    status = stoker_checkpoint_list_open(&list, engine, args->paths[0], &error);
    if (status < 0) {
        return term_error(status, &error);
    }
    main_defer_signals(true);
    if (stoker_checkpoint_list_at(list, 0, &step, NULL) != 1) {
        worst = ckpt_no_steps(args->paths[0]);
    }
    for (uint64_t i = 0;
         worst < EXIT_SIGNAL && stoker_checkpoint_list_at(list, i, &step, NULL) == 1; i++) {
        if (step.status != STOKER_CHECKPOINT_INCOMPLETE) {
            status = verify_step(args, engine, args->paths[0], step.step);
            worst = status > worst ? status : worst;
        }
    }
    stoker_checkpoint_list_close(list);
    return worst;
}

/* ---- inspect ---- */

/* Reads a tensor piece by piece. */
static int read_stats(struct stoker_checkpoint *checkpoint, uint64_t index,
                      const struct stoker_checkpoint_tensor_info *tensor, uint8_t *piece,
                      struct ckpt_stats *stats)
{
    int status = EXIT_FINE;

    for (uint64_t at = 0; status == EXIT_FINE && at < tensor->bytes; at += CKPT_PIECE_BYTES) {
        uint64_t left = tensor->bytes - at;
        uint64_t bytes = left < CKPT_PIECE_BYTES ? left : CKPT_PIECE_BYTES;
        struct stoker_checkpoint_range range = {index, at, bytes, piece};

        status = ckpt_load(checkpoint, &range, 1);
        if (status == EXIT_FINE) {
            (void)ckpt_stats_add(stats, tensor->dtype, piece, bytes);
        }
    }
    return status;
}

/* A character of eight heights for each bin of the histogram. */
static void print_sparkline(const struct ckpt_stats *stats)
{
    static const char *const heights[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                          "\u2585", "\u2586", "\u2587", "\u2588"};
    uint64_t most = 1;

    for (size_t i = 0; i < CKPT_BINS; i++) {
        most = stats->bins[i] > most ? stats->bins[i] : most;
    }
    for (size_t i = 0; i < CKPT_BINS; i++) {
        fputs(stats->bins[i] == 0 ? " " : heights[stats->bins[i] * 7 / most], stdout);
    }
    fputs("  ", stdout);
}

static void print_tensor(const struct args *args,
                         const struct stoker_checkpoint_tensor_info *tensor,
                         const struct ckpt_stats *stats)
{
    char shape[64], bytes[TERM_NUMBER_BYTES];
    bool numbers = args->deep && ckpt_element_bytes(tensor->dtype) > 0;
    double mean = stats->count > 0 ? stats->sum / (double)stats->count : (double)NAN;
    uint64_t nan = numbers ? stats->nan : tensor->nan_count; /* counted when it was saved */
    uint64_t inf = numbers ? stats->inf : tensor->inf_count;

    if (args->json) {
        json_open(NULL, '{');
        json_str("name", tensor->name);
        json_str("dtype", tensor->dtype);
        json_open("shape", '[');
        for (uint32_t i = 0; i < tensor->dimension_count; i++) {
            json_u64(NULL, tensor->shape[i]);
        }
        json_close(']');
        json_u64("bytes", tensor->bytes);
        json_u64("file", tensor->file);
        if (numbers) {
            json_double("min", stats->count > 0 ? stats->min : (double)NAN);
            json_double("max", stats->count > 0 ? stats->max : (double)NAN);
            json_double("mean", mean);
            json_double("low", stats->low);
            json_double("high", stats->high);
            json_open("histogram", '[');
            for (size_t i = 0; i < CKPT_BINS; i++) {
                json_u64(NULL, stats->bins[i]);
            }
            json_close(']');
        }
        if (numbers || tensor->counted) {
            json_u64("nan", nan);
            json_u64("inf", inf);
        }
        json_close('}');
        return;
    }
    printf("%-8s %-20s %10s  ", tensor->dtype, ckpt_shape(tensor, shape),
           term_bytes(bytes, tensor->bytes));
    if (numbers && stats->count > 0) {
        printf("min %-11.4g max %-11.4g mean %-11.4g ", stats->min, stats->max, mean);
        print_sparkline(stats);
    }
    if (nan > 0 || inf > 0) {
        printf("%llu NaN, %llu Inf  ", (unsigned long long)nan, (unsigned long long)inf);
    }
    term_text(tensor->name);
    putchar('\n');
}

int ckpt_inspect(const struct args *args, struct stoker_engine *engine)
{
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint *checkpoint = NULL;
    uint8_t *piece = malloc(CKPT_PIECE_BYTES);
    FILE *page = NULL;
    char bytes[TERM_NUMBER_BYTES];
    uint64_t step;
    int status = ckpt_step(args, &step);

    status = status == EXIT_FINE && !piece ? EXIT_ENVIRONMENT : status;
    status = status == EXIT_FINE ? ckpt_open(engine, args->paths[0], step, &checkpoint) : status;
    if (status == EXIT_FINE) {
        (void)stoker_checkpoint_info(checkpoint, &info, NULL);
    }
    if (status == EXIT_FINE && args->html) {
        status = ckpt_page_open(args->html, &info, &page);
    } else if (status == EXIT_FINE && !args->json) {
        term_text(info.path);
        printf(": %s in %llu files of %u ranks, values ", term_bytes(bytes, info.bytes),
               (unsigned long long)info.files, info.ranks);
        term_text(info.values);
        putchar('\n');
    }
    for (uint64_t i = 0; status == EXIT_FINE && i < info.tensors && !term_closed(); i++) {
        struct stoker_checkpoint_tensor_info tensor = {.struct_size = sizeof tensor};
        struct ckpt_stats stats = {0};

        (void)stoker_checkpoint_tensor(checkpoint, i, &tensor, NULL);
        if (args->deep) {
            status = read_stats(checkpoint, i, &tensor, piece, &stats);
        }
        if (status == EXIT_FINE && page) {
            ckpt_page_add(page, &tensor, &stats);
        } else if (status == EXIT_FINE) {
            print_tensor(args, &tensor, &stats);
        }
    }
    if (page) {
        int closed = ckpt_page_close(page, args->html);

        status = status == EXIT_FINE ? closed : status;
    }
    stoker_checkpoint_close(checkpoint);
    free(piece);
    return status;
}

/* ---- diff ---- */

struct difference {
    const char *name;
    const char *what; /* "changed", "only in A", "only in B", "other shape" */
    double change;    /* the largest absolute one; INFINITY: not comparable */
    uint64_t elements, changed;
};

static int by_change(const void *a, const void *b)
{
    const struct difference *x = a, *y = b;

    if (x->change != y->change) {
        return x->change > y->change ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static bool same_form(const struct stoker_checkpoint_tensor_info *a,
                      const struct stoker_checkpoint_tensor_info *b)
{
    return strcmp(a->dtype, b->dtype) == 0 && a->dimension_count == b->dimension_count &&
           (a->dimension_count == 0 ||
            memcmp(a->shape, b->shape, a->dimension_count * sizeof *a->shape) == 0);
}

static void compare_piece(struct difference *difference, const char *dtype, const uint8_t *a,
                          const uint8_t *b, size_t bytes)
{
    uint32_t element = ckpt_element_bytes(dtype);

    if (memcmp(a, b, bytes) == 0) {
        difference->elements += element ? bytes / element : bytes;
        return;
    }
    if (element == 0) {
        difference->elements += bytes;
        difference->changed += bytes;
        difference->change = INFINITY;
        return;
    }
    for (size_t i = 0; i < bytes / element; i++) {
        double change;

        difference->elements++;
        if (memcmp(a + i * element, b + i * element, element) == 0) {
            continue;
        }
        difference->changed++;
        change = fabs(ckpt_number(dtype, a, i) - ckpt_number(dtype, b, i));
        if (!(change <= difference->change)) {
            difference->change = isnan(change) ? (double)INFINITY : change;
        }
    }
}

/* Two open steps, and a piece of each. */
struct pair {
    struct stoker_checkpoint *a, *b;
    uint8_t *a_piece, *b_piece;
};

static int compare(const struct pair *pair, uint64_t a_index, uint64_t b_index,
                   struct difference *difference)
{
    struct stoker_checkpoint_tensor_info a = {.struct_size = sizeof a};
    struct stoker_checkpoint_tensor_info b = {.struct_size = sizeof b};
    int status = EXIT_FINE;

    (void)stoker_checkpoint_tensor(pair->a, a_index, &a, NULL);
    (void)stoker_checkpoint_tensor(pair->b, b_index, &b, NULL);
    difference->name = a.name;
    if (!same_form(&a, &b)) {
        difference->what = "other shape or dtype";
        difference->change = INFINITY;
        return EXIT_FINE;
    }
    for (uint64_t at = 0; status == EXIT_FINE && at < a.bytes; at += CKPT_PIECE_BYTES) {
        uint64_t bytes = a.bytes - at < CKPT_PIECE_BYTES ? a.bytes - at : CKPT_PIECE_BYTES;
        struct stoker_checkpoint_range a_range = {a_index, at, bytes, pair->a_piece};
        struct stoker_checkpoint_range b_range = {b_index, at, bytes, pair->b_piece};

        status = ckpt_load(pair->a, &a_range, 1);
        status = status == EXIT_FINE ? ckpt_load(pair->b, &b_range, 1) : status;
        if (status == EXIT_FINE) {
            compare_piece(difference, a.dtype, pair->a_piece, pair->b_piece, bytes);
        }
    }
    difference->what = difference->changed > 0 ? "changed" : NULL;
    return status;
}

static void print_difference(const struct args *args, const struct difference *difference)
{
    if (args->json) {
        json_open(NULL, '{');
        json_str("name", difference->name);
        json_str("what", difference->what);
        json_double("max_change", difference->change);
        json_u64("changed", difference->changed);
        json_u64("elements", difference->elements);
        json_close('}');
        return;
    }
    if (difference->elements > 0) {
        printf("%-12.6g %llu of %llu changed  ", difference->change,
               (unsigned long long)difference->changed, (unsigned long long)difference->elements);
    } else {
        printf("%-12s ", difference->what);
    }
    term_text(difference->name);
    putchar('\n');
}

/* Fills differences with all tensors of A, and those that only B has. */
static int compare_all(const struct pair *pair, struct difference *differences, size_t *count_out)
{
    struct stoker_checkpoint_info a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    struct stoker_checkpoint_tensor_info tensor = {.struct_size = sizeof tensor};
    uint64_t other;
    int status = EXIT_FINE;

    *count_out = 0;
    (void)stoker_checkpoint_info(pair->a, &a, NULL);
    (void)stoker_checkpoint_info(pair->b, &b, NULL);
    for (uint64_t i = 0; status == EXIT_FINE && i < a.tensors; i++) {
        struct difference *difference = &differences[*count_out];

        (void)stoker_checkpoint_tensor(pair->a, i, &tensor, NULL);
        *difference = (struct difference){.name = tensor.name};
        if (stoker_checkpoint_find(pair->b, tensor.name, &other, NULL) < 0) {
            difference->what = "only in A";
            difference->change = INFINITY;
        } else {
            status = compare(pair, i, other, difference);
        }
        *count_out += difference->what != NULL;
    }
    for (uint64_t i = 0; status == EXIT_FINE && i < b.tensors; i++) {
        (void)stoker_checkpoint_tensor(pair->b, i, &tensor, NULL);
        if (stoker_checkpoint_find(pair->a, tensor.name, &other, NULL) < 0) {
            differences[(*count_out)++] =
                (struct difference){.name = tensor.name, .what = "only in B", .change = INFINITY};
        }
    }
    return status;
}

int ckpt_diff(const struct args *args, struct stoker_engine *engine)
{
    struct stoker_checkpoint_info a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    struct difference *differences = NULL;
    struct pair pair = {.a_piece = malloc(CKPT_PIECE_BYTES), .b_piece = malloc(CKPT_PIECE_BYTES)};
    size_t count = 0;
    uint64_t step;
    int status = ckpt_step(args, &step);

    status = status == EXIT_FINE && (!pair.a_piece || !pair.b_piece) ? EXIT_ENVIRONMENT : status;
    status = status == EXIT_FINE ? ckpt_open(engine, args->paths[0], step, &pair.a) : status;
    status = status == EXIT_FINE ? ckpt_open(engine, args->paths[1], step, &pair.b) : status;
    if (status == EXIT_FINE) {
        (void)stoker_checkpoint_info(pair.a, &a, NULL);
        (void)stoker_checkpoint_info(pair.b, &b, NULL);
        differences = calloc(a.tensors + b.tensors + 1, sizeof *differences);
        status = differences ? compare_all(&pair, differences, &count) : EXIT_ENVIRONMENT;
    }
    if (status == EXIT_FINE) {
        qsort(differences, count, sizeof *differences, by_change);
        for (size_t i = 0; i < count && (args->limit == 0 || i < args->limit); i++) {
            print_difference(args, &differences[i]);
        }
        status = count > 0 ? EXIT_FINDINGS : EXIT_FINE;
    }
    stoker_checkpoint_close(pair.a);
    stoker_checkpoint_close(pair.b);
    free(pair.a_piece);
    free(pair.b_piece);
    free(differences);
    return status;
}
