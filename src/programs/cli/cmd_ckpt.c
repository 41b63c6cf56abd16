/* stoker ckpt: lists, verifies, shows, compares, pins and removes checkpoints. */
#include "programs/cli/ckpt.h"
#include "programs/cli/command.h"
#include "programs/cli/terminal.h"

#include <stdlib.h>
#include <string.h>

static int run(struct args *args);

const struct command command_ckpt = {
    .name = "ckpt",
    .bit = COMMAND_CKPT,
    .usage = "ls|verify|inspect|diff|convert|cp|repair|seal|probe|advise|pin|unpin|rm|gc [options] "
             "PATH...",
    .summary = "List, verify, show, compare, pin and remove checkpoints",
    .more =
        "PATH is a folder or URL of checkpoints, a step, or a .safetensors file.\n"
        "inspect, diff and verify also read files of torch.save(), folders of\n"
        "torch.distributed.checkpoint, and sharded models of Hugging Face.\n\n"
        "  ls PATH        steps with status, size and values\n"
        "  verify PATH    reads every byte and compares all hashes (--all: of all steps)\n"
        "  inspect PATH   tensors; --stats: minimum, maximum, mean, NaN, Inf and a\n"
        "                 histogram of each; --html FILE: as a page\n"
        "  diff A B       tensors that differ, the largest change first\n"
        "  convert A B    writes A as --to stoker, safetensors, hf or torch; default by the name\n"
        "                 of B: x.safetensors, x.pt (.pth, .bin, .ckpt), else steps of stoker\n"
        "  cp A B         copies a step to another place, verifies it, and commits it there\n"
        "  repair PATH    replaces missing and damaged files of a step by those of --from PATH\n"
        "  seal PATH      writes the hashes of another tool's files beside them, for verify\n"
        "  probe PATH     tests whether a mount or store can be trusted with checkpoints\n"
        "  advise         the best interval: --save-seconds S --mtbf S [--nodes N]\n"
        "  pin, unpin     --step N: retention never removes a pinned step\n"
        "  rm PATH        --step N: removes a step\n"
        "  gc PATH        applies --keep-last, --keep-every and --keep-best, and removes what\n"
        "                 dead saves left; --dry-run only counts\n\n"
        "Exit status 1: a step is damaged, the two differ, or there is no step.\n",
    .run = run,
};

static int run_ls(const struct args *args, struct stoker_engine *engine);
static int run_pin(const struct args *args, struct stoker_engine *engine);
static int run_unpin(const struct args *args, struct stoker_engine *engine);
static int run_rm(const struct args *args, struct stoker_engine *engine);
static int run_gc(const struct args *args, struct stoker_engine *engine);

/* Paths follow the name of the action. */
static const struct action {
    const char *name;
    size_t paths;
    int (*run)(const struct args *args, struct stoker_engine *engine);
} actions[] = {{"ls", 1, run_ls},        {"verify", 1, ckpt_verify}, {"inspect", 1, ckpt_inspect},
               {"diff", 2, ckpt_diff},   {"pin", 1, run_pin},        {"unpin", 1, run_unpin},
               {"rm", 1, run_rm},        {"gc", 1, run_gc},          {"convert", 2, ckpt_convert},
               {"cp", 2, ckpt_cp},       {"repair", 1, ckpt_repair}, {"seal", 1, ckpt_seal},
               {"probe", 1, ckpt_probe}, {"advise", 0, ckpt_advise}};

#define ACTIONS (sizeof actions / sizeof actions[0])

static int run(struct args *args)
{
    const struct action *action = NULL;
    struct stoker_engine *engine = NULL;
    int status;

    if (args->path_count == 0) {
        return command_no_action(&command_ckpt);
    }
    for (size_t i = 0; i < ACTIONS; i++) {
        if (strcmp(actions[i].name, args->paths[0]) == 0) {
            action = &actions[i];
        }
    }
    if (!action) {
        return term_usage("ckpt", "unknown action", args->paths[0],
                          "'stoker help ckpt' lists the actions");
    }
    args->paths++;
    args->path_count--;
    if (args->path_count != action->paths) {
        return term_usage("ckpt",
                          action->paths == 0   ? "no path is needed"
                          : action->paths == 1 ? "one path is needed"
                                               : "two paths are needed",
                          action->name, "'stoker help ckpt' shows what follows");
    }
    status = command_open_engine(args, &engine);
    status = status == EXIT_FINE ? action->run(args, engine) : status;
    stoker_engine_close(engine);
    return status;
}

int ckpt_step(const struct args *args, uint64_t *step_out)
{
    *step_out = STOKER_CHECKPOINT_LATEST;
    if (args->step &&
        (!args_number(args->step, step_out) || *step_out > STOKER_CHECKPOINT_STEP_MAX)) {
        return term_usage("ckpt", "the step is no number", args->step, "pass --step 1000");
    }
    return EXIT_FINE;
}

int ckpt_open(struct stoker_engine *engine, const char *path, uint64_t step,
              struct stoker_checkpoint **checkpoint_out)
{
    struct stoker_error error = {0};
    int status = stoker_checkpoint_open(checkpoint_out, engine, path, step, &error);

    if (status == 0) { /* the actions look at all tensors */
        status = stoker_checkpoint_read_headers(*checkpoint_out, &error);
    }
    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

/* ---- ls ---- */

static const char *status_name(uint32_t status)
{
    return status == STOKER_CHECKPOINT_COMMITTED    ? "committed"
           : status == STOKER_CHECKPOINT_INCOMPLETE ? "incomplete"
                                                    : "damaged";
}

static void print_step(const struct args *args, const struct stoker_checkpoint_step *step)
{
    char bytes[TERM_NUMBER_BYTES];

    if (args->json) {
        json_open(NULL, '{');
        json_u64("step", step->step);
        json_str("status", status_name(step->status));
        json_bool("pinned", step->pinned != 0);
        json_u64("bytes", step->bytes);
        json_u64("files", step->files);
        json_u64("ranks", step->ranks);
        json_str("values", step->values ? step->values : "{}");
        if (step->counted) {
            json_u64("nan", step->nan_count);
            json_u64("inf", step->inf_count);
        }
        if (step->reason) {
            json_str("reason", step->reason);
        }
        json_close('}');
        return;
    }
    printf("%12llu  %-10s %10s  %3llu file%s  %s", (unsigned long long)step->step,
           status_name(step->status), term_bytes(bytes, step->bytes),
           (unsigned long long)step->files, step->files == 1 ? " " : "s",
           step->pinned ? "pinned  " : "");
    if (step->nan_count > 0 || step->inf_count > 0) {
        printf("%llu NaN, %llu Inf  ", (unsigned long long)step->nan_count,
               (unsigned long long)step->inf_count);
    }
    term_text(step->reason ? step->reason : step->values ? step->values : "");
    putchar('\n');
}

int ckpt_no_steps(const char *path)
{
    term_fail_name("there are no steps", 0, path,
                   "pass the folder or prefix of the Checkpointer, which contains step-...");
    return EXIT_FINDINGS;
}

static int run_ls(const struct args *args, struct stoker_engine *engine)
{
    struct stoker_checkpoint_step step = {.struct_size = sizeof step};
    struct stoker_checkpoint_list *list = NULL;
    struct stoker_error error = {0};
    uint64_t count = 0;
    int status = stoker_checkpoint_list_open(&list, engine, args->paths[0], &error);

    if (status < 0) {
        return term_error(status, &error);
    }
    for (; stoker_checkpoint_list_at(list, count, &step, NULL) == 1; count++) {
        print_step(args, &step);
    }
    stoker_checkpoint_list_close(list);
    return count > 0 ? EXIT_FINE : ckpt_no_steps(args->paths[0]);
}

/* ---- pin, unpin, rm, gc ---- */

static int need_step(const struct args *args, uint64_t *step_out)
{
    int status = ckpt_step(args, step_out);

    return status == EXIT_FINE && *step_out == STOKER_CHECKPOINT_LATEST
               ? term_usage("ckpt", "the step is missing", NULL, "pass --step N")
               : status;
}

static int set_pin(const struct args *args, struct stoker_engine *engine, uint32_t on)
{
    struct stoker_error error = {0};
    uint64_t step;
    int status = need_step(args, &step);

    if (status != EXIT_FINE) {
        return status;
    }
    status = stoker_checkpoint_pin(engine, args->paths[0], step, on, &error);
    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

static int run_pin(const struct args *args, struct stoker_engine *engine)
{
    return set_pin(args, engine, 1);
}

static int run_unpin(const struct args *args, struct stoker_engine *engine)
{
    return set_pin(args, engine, 0);
}

static int run_rm(const struct args *args, struct stoker_engine *engine)
{
    struct stoker_error error = {0};
    uint64_t step;
    int status = need_step(args, &step);

    if (status != EXIT_FINE) {
        return status;
    }
    status = stoker_checkpoint_remove(engine, args->paths[0], step, &error);
    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

/* --keep-best loss:2, or accuracy:2:max. */
static bool parse_best(const char *text, char *metric, size_t metric_bytes,
                       struct stoker_checkpoint_gc_options *options)
{
    const char *colon = strchr(text, ':'), *second = colon ? strchr(colon + 1, ':') : NULL;
    char number[24];
    uint64_t value;
    size_t bytes;

    if (!colon || colon == text || (size_t)(colon - text) >= metric_bytes) {
        return false;
    }
    bytes = second ? (size_t)(second - colon - 1) : strlen(colon + 1);
    if (bytes >= sizeof number ||
        (second && strcmp(second, ":max") != 0 && strcmp(second, ":min") != 0)) {
        return false;
    }
    memcpy(metric, text, (size_t)(colon - text));
    metric[colon - text] = '\0';
    memcpy(number, colon + 1, bytes);
    number[bytes] = '\0';
    if (!args_number(number, &value) || value == 0 || value > UINT32_MAX) {
        return false;
    }
    options->best_metric = metric;
    options->keep_best = (uint32_t)value;
    options->best_is_max = second && strcmp(second, ":max") == 0;
    return true;
}

static int run_gc(const struct args *args, struct stoker_engine *engine)
{
    struct stoker_checkpoint_gc_options options = {.struct_size = sizeof options,
                                                   .keep_last = (uint32_t)args->keep_last,
                                                   .keep_every = args->keep_every,
                                                   .dry_run = args->dry_run};
    struct stoker_checkpoint_gc_result result = {.struct_size = sizeof result};
    struct stoker_error error = {0};
    char metric[200], bytes[TERM_NUMBER_BYTES];
    int status;

    if (args->keep_best && !parse_best(args->keep_best, metric, sizeof metric, &options)) {
        return term_usage("ckpt", "--keep-best is not valid", args->keep_best,
                          "pass --keep-best loss:2, or accuracy:2:max");
    }
    if ((options.keep_every > 0 || options.keep_best > 0) && options.keep_last == 0) {
        return term_usage("ckpt", "--keep-last is missing", NULL,
                          "without it all steps are kept: pass --keep-last N");
    }
    status = stoker_checkpoint_gc(engine, args->paths[0], &options, &result, &error);
    if (status < 0) {
        return term_error(status, &error);
    }
    if (args->json) {
        json_open(NULL, '{');
        json_u64("steps_removed", result.steps_removed);
        json_u64("steps_left", result.steps_left);
        json_u64("saves_removed", result.saves_removed);
        json_u64("shared_files", result.shared_files);
        json_u64("shared_names", result.shared_names);
        json_u64("shared_bytes", result.shared_bytes);
        json_bool("dry_run", args->dry_run);
        json_close('}');
        return EXIT_FINE;
    }
    printf("%s %llu steps, %llu are left; %s %llu dead saves\n",
           args->dry_run ? "would remove" : "removed", (unsigned long long)result.steps_removed,
           (unsigned long long)result.steps_left, args->dry_run ? "would remove" : "removed",
           (unsigned long long)result.saves_removed);
    if (result.shared_files > 0) {
        printf("%llu files with unchanged tensors have %llu names in these steps: %s are saved\n",
               (unsigned long long)result.shared_files, (unsigned long long)result.shared_names,
               term_bytes(bytes, result.shared_bytes));
    }
    return EXIT_FINE;
}
