/* stoker cp, sync, rm: copies, synchronises and removes files and objects. */
#include "programs/cli/args.h"

#include "programs/cli/command.h"
#include "programs/cli/copy_report.h"
#include "programs/cli/main.h"
#include "programs/cli/path_args.h"
#include "programs/cli/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK_FIRST STOKER_CHECK_CRC64NVME

static int run_cp(struct args *args);
static int run_mv(struct args *args);
static int run_sync(struct args *args);
static int run_rm(struct args *args);
static int run(struct args *args, struct stoker_copy_options *options);
static int wait_for_end(struct copy_report *job, uint32_t kind);

const struct command command_cp = {
    .name = "cp",
    .bit = COMMAND_CP,
    .usage = "[options] SRC... DST",
    .summary = "Copy files and objects: paths, s3://, gs://, az://, from http(s)://",
    .more = "The content of a folder (--recursive) is copied below DST. A file gets the name\n"
            "DST, or a name below it if DST is a folder or ends in '/', or there are several\n"
            "SRC. No name ever has a part of a file. After a kill, the same command reuses the\n"
            "finished parts of large files; --update skips complete files. SRC may have braces\n"
            "and globs, also in URLs: 's3://b/{00..09}/*.tar'. A file with exactly this name\n"
            "takes precedence.\n",
    .run = run_cp,
};

const struct command command_mv = {
    .name = "mv",
    .bit = COMMAND_MV,
    .usage = "[options] SRC... DST",
    .summary = "Move files and objects: copy each, then remove its source",
    .more =
        "As 'stoker cp'; the source of a file is removed once its copy is complete and verified,\n"
        "and if it did not change meanwhile. On one file system files are renamed. Folders\n"
        "(--recursive) are removed if they are empty afterwards.\n",
    .run = run_mv,
};

const struct command command_sync = {
    .name = "sync",
    .bit = COMMAND_SYNC,
    .usage = "[options] SRC DST",
    .summary = "Make a folder or prefix equal to another: copy new and changed files",
    .more =
        "Files at DST that are equal by size and time of change are skipped, see --compare.\n"
        "Nothing is removed without --delete. Files of operating systems (._x, .DS_Store)\n"
        "are left out and counted, see --system-files. Links out of SRC and links to folders are\n"
        "left out and named, and the exit status is 1.\n",
    .run = run_sync,
};

const struct command command_rm = {
    .name = "rm",
    .bit = COMMAND_RM,
    .usage = "[options] PATH...",
    .summary = "Remove files and objects, or unfinished multipart uploads",
    .more = "Asks before it removes folders or the matches of a pattern (braces, globs), unless\n"
            "--yes is given. A file with exactly the name of the pattern takes precedence.\n",
    .run = run_rm,
};

/* Half a second is not 0, which would mean the default. */
static uint64_t round_up(double seconds)
{
    uint64_t full = (uint64_t)seconds;

    return full + ((double)full < seconds);
}

static struct stoker_copy_options options_of(const struct args *args, uint32_t kind)
{
    return (struct stoker_copy_options){
        .struct_size = sizeof(struct stoker_copy_options),
        .kind = kind,
        .sources = args->paths,
        .source_count = args->path_count,
        .recursive = args->recursive,
        .update = args->update,
        .no_clobber = args->no_clobber,
        .delete_extra = args->delete_extra,
        .unfinished_uploads = args->unfinished_uploads,
        .unfinished_age_s = round_up(args->seconds),
        .workers = (uint32_t)args->workers,
        .part_bytes = args->part_bytes,
        .check = (uint32_t)args->check,
        .storage_class = args->storage_class,
        .encryption = args->encryption                                   ? args->encryption
                      : args->encryption_key || args->encryption_context ? "aws:kms"
                                                                         : NULL,
        .encryption_key = args->encryption_key,
        .encryption_context = args->encryption_context,
        .compare = (uint32_t)args->compare,
        .dry_run = args->dry_run,
        .filters = args->filters,
        .filter_count = args->filter_count,
        .bytes_per_second_max = args->bandwidth,
        .skip_system_files = !args->system_files,
    };
}

/* cp and mv: the last path is the destination; --files-from gives the sources, or names below the
 * only one. */
static int run_to(struct args *args, const struct command *command, uint32_t kind)
{
    const char *const *names = NULL;
    struct stoker_copy_options options;
    size_t least = args->files_from ? 1 : 2, name_count = 0;
    int status = EXIT_FINE;
    char usage[80];

    snprintf(usage, sizeof usage, "usage: stoker %s %s", command->name, command->usage);
    if (args->path_count < least) {
        return term_usage(command->name,
                          args->path_count ? "no destination given" : "no source given", NULL,
                          usage);
    }
    if (args->files_from && args->path_count > 2) {
        return term_usage(command->name, "--files-from takes at most one source folder",
                          args->paths[0], usage);
    }
    args->path_count--;
    options = options_of(args, kind);
    options.destination = args->paths[args->path_count];
    if (args->files_from) {
        bool below = args->path_count == 1;

        status = copy_names_read(args->files_from, &names, &name_count);
        *(below ? &options.names : &options.sources) = names;
        *(below ? &options.name_count : &options.source_count) = name_count;
    }
    status = status == EXIT_FINE ? run(args, &options) : status;
    free((void *)(uintptr_t)names);
    return status;
}

static int run_cp(struct args *args)
{
    return run_to(args, &command_cp, STOKER_COPY);
}

static int run_mv(struct args *args)
{
    return run_to(args, &command_mv, STOKER_MOVE);
}

static int run_sync(struct args *args)
{
    struct stoker_copy_options options;

    if (args->path_count != 2) {
        return term_usage("sync", "one source and one destination are needed", NULL,
                          "usage: stoker sync [options] SRC DST");
    }
    args->path_count--;
    options = options_of(args, STOKER_SYNC);
    options.destination = args->paths[1];
    return run(args, &options);
}

/* Returns EXIT_FINE if --yes was given or the user confirms at the terminal. Without a terminal it
 * is a usage error. */
static int confirm_removal(const struct args *args, const char *what, const char *const *paths,
                           size_t count)
{
    char answer[16] = "";

    if (args->yes || args->dry_run) {
        return EXIT_FINE;
    }
    if (!isatty(STDIN_FILENO)) {
        return term_usage("rm", "no terminal for a prompt", args->paths[0],
                          "--yes removes without a prompt");
    }
    fprintf(stderr, "remove %s", what);
    for (size_t i = 0; i < count && i < 3; i++) {
        fprintf(stderr, " '%s'", paths[i]);
    }
    if (count > 3) {
        fprintf(stderr, " and %zu more", count - 3);
    }
    fprintf(stderr, "? [y/N] ");
    fflush(stderr);
    if (fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y')) {
        return EXIT_FINE;
    }
    term_fail_name("nothing was removed", 0, args->paths[0], "--yes removes without a prompt");
    return EXIT_FINDINGS;
}

static int run_rm(struct args *args)
{
    struct stoker_copy_options options;
    int status = EXIT_FINE;

    if (args->files_from) {
        if (args->path_count > 0) {
            return term_usage("rm", "--files-from takes no further path", args->paths[0],
                              "add the path to the list");
        }
        status = copy_names_read(args->files_from, &args->paths, &args->path_count);
        if (status != EXIT_FINE) {
            return status;
        }
    }
    if (args->path_count == 0) {
        return command_no_path(&command_rm);
    }
    if (args->recursive || args->unfinished_uploads || args->files_from) {
        status = confirm_removal(args, args->recursive ? "all below" : "files:", args->paths,
                                 args->path_count);
    }
    options = options_of(args, STOKER_REMOVE);
    return status == EXIT_FINE ? run(args, &options) : status;
}

/* Expands braces and globs of the sources; the destination is taken literally. */
static int name_sources(struct args *args, struct stoker_engine *engine,
                        struct stoker_copy_options *options)
{
    struct path_args expanded;
    int status;

    if (options->unfinished_uploads || (args->files_from && options->name_count == 0)) {
        return EXIT_FINE; /* they are no patterns */
    }
    status = path_args_expand(&expanded, engine, options->sources, options->source_count, true);
    if (status == EXIT_FINE && options->kind == STOKER_REMOVE && expanded.pattern &&
        !options->recursive) {
        status = confirm_removal(args, "what matches:", expanded.paths, expanded.count);
    }
    options->sources = expanded.paths;
    options->source_count = expanded.count;
    return status;
}

static int run(struct args *args, struct stoker_copy_options *options)
{
    struct copy_report job = {
        .progress.struct_size = sizeof job.progress, .json = args->json, .dry_run = args->dry_run};
    struct stoker_engine *engine = NULL;
    struct stoker_error error = {0};
    int status = command_open_engine(args, &engine);

    if (status == EXIT_FINE) {
        status = name_sources(args, engine, options);
    }
    if (status != EXIT_FINE) {
        stoker_engine_close(engine);
        return status;
    }
    main_defer_signals(true);
    status = stoker_copy_open(&job.copy, engine, options, &error);
    status = status < 0 ? term_error(status, &error) : wait_for_end(&job, options->kind);
    if (job.copy) {
        copy_report_print(&job, options->kind);
    }
    if (status == EXIT_FINE && job.progress.links_left_out > 0) {
        status = EXIT_FINDINGS; /* the copy is not all of the source */
    }
    copy_report_deinit(&job);
    stoker_copy_close(job.copy);
    stoker_engine_close(engine);
    return status;
}

static int next(void *self, struct stoker_error *error)
{
    struct copy_report *job = self;

    int status = stoker_copy_next(job->copy, COMMAND_TICK_MS, &job->progress, error);

    copy_report_take(job);
    return status;
}

static void draw(const void *self)
{
    const struct stoker_copy_progress *progress = &((const struct copy_report *)self)->progress;
    double seconds = (double)progress->run_ns / 1e9, share = -1;
    uint64_t moved = progress->bytes_done - progress->bytes_skipped;
    char line[200], done[TERM_NUMBER_BYTES], all[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES];
    char rate[TERM_NUMBER_BYTES], left[TERM_NUMBER_BYTES] = "?";

    if (progress->files_removed > 0) {
        snprintf(line, sizeof line, "%s removed", term_count(done, progress->files_removed));
        term_live(-1, line);
        return;
    }
    if (progress->listed && progress->bytes > 0) {
        share = (double)progress->bytes_done / (double)progress->bytes;
        if (moved > 0) {
            term_time(left,
                      seconds / (double)moved * (double)(progress->bytes - progress->bytes_done));
        }
    }
    snprintf(line, sizeof line, "%s of %s%s files, %s, %s/s, %s left",
             term_count(done, progress->files_done), term_count(all, progress->files),
             progress->listed ? "" : "+", term_bytes(bytes, progress->bytes_done),
             term_bytes(rate, seconds > 0 ? (uint64_t)((double)moved / seconds) : 0), left);
    term_live(share, line);
}

static void stop(void *self)
{
    stoker_copy_stop(((const struct copy_report *)self)->copy);
}

static int wait_for_end(struct copy_report *job, uint32_t kind)
{
    struct stoker_error error = {0};
    int status = command_wait(&(struct command_job){next, draw, job, stop}, &error);

    if (status == 1) {
        return kind == STOKER_REMOVE
                   ? command_interrupted("removed files are gone", "run it again for the rest")
               : kind == STOKER_MOVE
                   ? command_interrupted("moved files are at the destination",
                                         "run it again with the sources that are left")
                   : command_interrupted("complete files stay", NULL);
    }
    copy_report_take(job);
    return status < 0 ? copy_report_failure(job, status, &error) : command_result(status, &error);
}
