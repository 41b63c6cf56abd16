/* stoker ckpt convert, cp, repair, seal, probe and advise. */
#include "programs/cli/ckpt.h"

#include "base/text/text_match.h"
#include "programs/cli/command.h"
#include "programs/cli/main.h"
#include "programs/cli/terminal.h"

#include <errno.h>
#include <string.h>

/* ---- convert ---- */

struct convert_job {
    struct stoker_checkpoint_task *convert;
    struct stoker_checkpoint_progress progress;
};

static int next(void *self, struct stoker_error *error)
{
    struct convert_job *job = self;

    return stoker_checkpoint_task_next(job->convert, COMMAND_TICK_MS, &job->progress, error);
}

static void draw(const void *self)
{
    ckpt_draw(&((const struct convert_job *)self)->progress);
}

/* --to, or what the name of the destination says. 0: unknown. */
static uint32_t kind_of(const struct args *args)
{
    static const struct {
        const char *name, *suffix;
        uint32_t kind;
    } kinds[] = {
        {"stoker", "/", STOKER_CHECKPOINT_KIND_STOKER},
        {"safetensors", ".safetensors", STOKER_CHECKPOINT_KIND_SAFETENSORS},
        {"hf", NULL, STOKER_CHECKPOINT_KIND_HUGGINGFACE},
        {"torch", ".pt", STOKER_CHECKPOINT_KIND_TORCH},
        {"torch", ".pth", STOKER_CHECKPOINT_KIND_TORCH},
        {"torch", ".bin", STOKER_CHECKPOINT_KIND_TORCH},
        {"torch", ".ckpt", STOKER_CHECKPOINT_KIND_TORCH},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (args->to ? strcmp(args->to, kinds[i].name) == 0
                     : kinds[i].suffix && stk_text_ends_with(args->paths[1], kinds[i].suffix)) {
            return kinds[i].kind;
        }
    }
    return args->to ? 0 : STOKER_CHECKPOINT_KIND_STOKER;
}

static void stop(void *self)
{
    stoker_checkpoint_task_stop(((const struct convert_job *)self)->convert);
}

/* Runs a task with a live line. Returns an exit status; *status_out: of the library. */
static int run_task(struct stoker_engine *engine,
                    const struct stoker_checkpoint_task_options *options, struct convert_job *job,
                    int *status_out)
{
    struct stoker_error error = {0};
    int status;

    job->progress.struct_size = sizeof job->progress;
    main_defer_signals(true);
    status = stoker_checkpoint_task_open(&job->convert, engine, options, &error);
    status =
        status < 0 ? status : command_wait(&(struct command_job){next, draw, job, stop}, &error);
    stoker_checkpoint_task_close(job->convert);
    *status_out = status;
    if (status == -ENOENT && options->action == STOKER_CHECKPOINT_CHECK_SEAL) {
        return EXIT_FINE;
    }
    return status == 1 ? command_interrupted("the destination was not completed",
                                             "the same command begins again")
                       : command_result(status, &error);
}

/* words: "written to". */
static void print_task(const struct args *args, const struct convert_job *job, const char *words,
                       const char *path, double seconds)
{
    char bytes[TERM_NUMBER_BYTES];

    if (args->json) {
        json_open(NULL, '{');
        json_str("path", path);
        json_u64("bytes", job->progress.bytes);
        json_u64("files", job->progress.files_done);
        json_double("seconds", seconds);
        json_close('}');
        return;
    }
    printf("%s %s ", term_bytes(bytes, job->progress.bytes), words);
    term_text(path);
    putchar('\n');
}

static int run_and_print(const struct args *args, struct stoker_engine *engine,
                         struct stoker_checkpoint_task_options *options, const char *words,
                         const char *path)
{
    struct convert_job job = {0};
    uint64_t start = term_clock_ns();
    int status = ckpt_step(args, &options->step), result;

    options->struct_size = sizeof *options;
    options->bytes_per_s_max = args->bandwidth;
    status = status == EXIT_FINE ? run_task(engine, options, &job, &result) : status;
    if (status == EXIT_FINE) {
        print_task(args, &job, words, path, term_seconds_since(start));
    }
    return status;
}

int ckpt_convert(const struct args *args, struct stoker_engine *engine)
{
    struct stoker_checkpoint_task_options options = {.action = STOKER_CHECKPOINT_CONVERT,
                                                     .source = args->paths[0],
                                                     .destination = args->paths[1],
                                                     .kind = kind_of(args),
                                                     .destination_step = STOKER_CHECKPOINT_LATEST,
                                                     .shard_bytes = args->shard_bytes};

    return options.kind == 0 ? term_usage("ckpt", "--to is not valid", args->to,
                                          "pass --to stoker, safetensors, hf or torch")
                             : run_and_print(args, engine, &options, "written to", args->paths[1]);
}

int ckpt_cp(const struct args *args, struct stoker_engine *engine)
{
    struct stoker_checkpoint_task_options options = {
        .action = STOKER_CHECKPOINT_COPY, .source = args->paths[0], .destination = args->paths[1]};

    return run_and_print(args, engine, &options, "verified, and committed in", args->paths[1]);
}

int ckpt_repair(const struct args *args, struct stoker_engine *engine)
{
    struct stoker_checkpoint_task_options options = {
        .action = STOKER_CHECKPOINT_REPAIR, .source = args->from, .destination = args->paths[0]};

    return !args->from ? term_usage("ckpt", "--from is missing", NULL,
                                    "pass --from PATH, another place with the same step")
                       : run_and_print(args, engine, &options, "read, repaired:", args->paths[0]);
}

int ckpt_seal(const struct args *args, struct stoker_engine *engine)
{
    struct stoker_checkpoint_task_options options = {.action = STOKER_CHECKPOINT_SEAL,
                                                     .source = args->paths[0]};

    return run_and_print(args, engine, &options, "sealed in", args->paths[0]);
}

int ckpt_check_seal(const struct args *args, struct stoker_engine *engine, bool *sealed_out)
{
    struct stoker_checkpoint_task_options options = {.struct_size = sizeof options,
                                                     .action = STOKER_CHECKPOINT_CHECK_SEAL,
                                                     .source = args->paths[0],
                                                     .bytes_per_s_max = args->bandwidth};
    struct convert_job job = {0};
    uint64_t start = term_clock_ns();
    int result, status = run_task(engine, &options, &job, &result);

    *sealed_out = result != -ENOENT;
    if (result == 0) {
        print_task(args, &job, "match the seal of", args->paths[0], term_seconds_since(start));
    }
    return status;
}

/* ---- probe ---- */

int ckpt_probe(const struct args *args, struct stoker_engine *engine)
{
    struct stoker_checkpoint_probe probe = {.struct_size = sizeof probe};
    struct stoker_error error = {0};
    int status = stoker_checkpoint_probe(engine, args->paths[0], &probe, &error);

    if (status < 0) {
        return term_error(status, &error);
    }
    for (uint32_t i = 0; i < probe.count; i++) {
        const struct stoker_checkpoint_probe_check *check = &probe.checks[i];

        if (args->json) {
            json_open(NULL, '{');
            json_str("check", check->name);
            json_bool("passed", check->passed != 0);
            json_str("detail", check->detail);
            json_close('}');
        } else {
            printf("%-7s %s%s%s\n", check->passed ? "passed" : "FAILED", check->name,
                   check->detail[0] ? ": " : "", check->detail);
        }
    }
    return probe.failures > 0 ? EXIT_FINDINGS : EXIT_FINE;
}

/* ---- advise ---- */

/* By Newton: the command does not link libm. */
static double square_root(double number)
{
    double root = number > 1 ? number : 1;

    for (int i = 0; i < 200; i++) {
        root = (root + number / root) / 2;
    }
    return root;
}

/* Daly (2006), "A higher order estimate of the optimum checkpoint interval", equation 37; its first
 * term is Young (1974): sqrt(2 * save * mtbf). */
static double daly(double save, double mtbf)
{
    double ratio = save / (2 * mtbf);

    return ratio >= 1
               ? mtbf
               : square_root(2 * save * mtbf) * (1 + square_root(ratio) / 3 + ratio / 9) - save;
}

int ckpt_advise(const struct args *args, struct stoker_engine *engine)
{
    double save = args->save_seconds, nodes = args->nodes > 0 ? (double)args->nodes : 1;
    double mtbf = args->mtbf / nodes, interval, young, saving, losing;
    char text[TERM_NUMBER_BYTES], other[TERM_NUMBER_BYTES];

    (void)engine;
    if (!(save > 0) || !(mtbf > 0)) {
        return term_usage("ckpt", "--save-seconds or --mtbf is missing", NULL,
                          "pass both: how long a save stalls the training, and the mean seconds "
                          "between failures (with --nodes N: of one node)");
    }
    young = square_root(2 * save * mtbf);
    interval = daly(save, mtbf);
    saving = save / (interval + save);
    /* A failure loses half an interval, on average, and the restart. */
    losing = (interval / 2 + save + args->restart_seconds) / mtbf;
    if (args->json) {
        json_open(NULL, '{');
        json_double("interval_seconds", interval);
        json_double("young_seconds", young);
        json_double("mtbf_seconds", mtbf);
        json_double("save_share", saving);
        json_double("failure_share", losing);
        json_str("formula", "Daly 2006, equation 37");
        json_close('}');
        return EXIT_FINE;
    }
    printf("save every %s (Daly 2006; Young 1974: %s)\n", term_time(text, interval),
           term_time(other, young));
    printf("  saves cost %.2f %% of the time: %s each\n", 100 * saving, term_time(text, save));
    printf("  failures cost %.2f %%: one every %s loses %s of work and %s of restart\n",
           100 * losing, term_time(text, mtbf), term_time(other, interval / 2 + save),
           args->restart_seconds > 0 ? "the given time" : "no time");
    return EXIT_FINE;
}
