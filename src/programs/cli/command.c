/* Steps that commands share. */
#include "programs/cli/command.h"

#include "programs/cli/main.h"
#include "programs/cli/path_args.h"
#include "programs/cli/terminal.h"

#include <stdlib.h>
#include <string.h>

#define CACHE_FOLDERS_MAX 16u
#define CACHE_TEXT_BYTES 16384u

static int fail_usage(const struct command *command, const char *what)
{
    char usage[200];

    snprintf(usage, sizeof usage, "usage: stoker %s %s", command->name, command->usage);
    return term_usage(command->name, what, NULL, usage);
}

int command_no_path(const struct command *command)
{
    return fail_usage(command, "no path given");
}

int command_no_action(const struct command *command)
{
    return fail_usage(command, "no action given");
}

int command_no_key(const char *path, const char *key)
{
    char place[4400];

    snprintf(place, sizeof place, "'%.2000s' key '%.2000s'", path, key);
    term_fail("no sample has this key", place, "'stoker ls PATH' lists the keys");
    return EXIT_FINDINGS;
}

/* Only 0 becomes 0. */
static uint32_t milliseconds(double seconds)
{
    double ms = seconds * 1000;

    return ms >= UINT32_MAX ? UINT32_MAX : (uint32_t)ms + (ms > 0 && ms < 1);
}

int command_open_cache(const struct args *args, bool required, struct stoker_cache **cache_out)
{
    const char *folders = args->cache || !required ? args->cache : getenv("STOKER_CACHE_DIR");
    const char *paths[CACHE_FOLDERS_MAX];
    struct stoker_cache_options options = {.struct_size = sizeof options,
                                           .paths = paths,
                                           .bytes_max = args->cache_bytes,
                                           .must_exist = required};
    struct stoker_error error = {0};
    char text[CACHE_TEXT_BYTES], *rest = text;
    int status;

    *cache_out = NULL;
    if (!folders || !folders[0]) {
        return !required && args->cache_bytes == 0
                   ? EXIT_FINE
                   : term_usage("cache", "no cache is named", "--cache",
                                "add --cache DIR, or set STOKER_CACHE_DIR");
    }
    if ((size_t)snprintf(text, sizeof text, "%s", folders) >= sizeof text) {
        return term_usage("cache", "the folders are too long", "--cache", "name shorter ones");
    }
    for (char *path; (path = strsep(&rest, ":"));) {
        if (options.path_count == CACHE_FOLDERS_MAX) {
            return term_usage("cache", "there are too many folders", "--cache", "name at most 16");
        }
        if (path[0]) {
            paths[options.path_count++] = path;
        }
    }
    status = stoker_cache_open(cache_out, &options, &error);
    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

int command_open_engine(const struct args *args, struct stoker_engine **engine_out)
{
    struct stoker_error error = {0};
    struct stoker_engine_options engine = {
        .struct_size = sizeof engine,
        .memory_bytes_max = args->memory_bytes,
        .threads = (uint32_t)args->threads,
        .io_backend = (uint32_t)args->io,
        .direct = (uint32_t)args->direct,
        .read_timeout_ms = milliseconds(args->read_seconds),
        .network_fs_threads_max = (uint32_t)args->network_fs_threads,
    };
    struct stoker_cache *cache = NULL;
    int status = command_open_cache(args, false, &cache);

    *engine_out = NULL;
    if (status != EXIT_FINE) {
        return status;
    }
    engine.cache = cache;
    status = stoker_engine_open(engine_out, &engine, &error);
    stoker_cache_close(cache); /* the engine keeps it open */
    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

int command_open_files(struct args *args, struct stoker_engine **engine_out)
{
    int status = command_open_engine(args, engine_out);

    return status == EXIT_FINE ? path_args_expand_all(args, *engine_out) : status;
}

int command_open_dataset(const struct args *args, struct stoker_engine **engine_out,
                         struct stoker_dataset **dataset_out)
{
    struct stoker_error error = {0};
    struct stoker_engine *engine = NULL;
    struct stoker_dataset_options dataset_options = {
        .struct_size = sizeof dataset_options,
        .urls = args->paths,
        .url_count = args->path_count,
        .index = (uint32_t)args->index,
        .foreign_index = (uint32_t)args->foreign_index,
        .on_error = args->rescue ? STOKER_ON_ERROR_SKIP : STOKER_ON_ERROR_RAISE,
        .skip_files = 1,
    };
    int exit_status = command_open_engine(args, &engine);

    if (exit_status != EXIT_FINE) {
        return exit_status;
    }
    int status = stoker_dataset_open(dataset_out, engine, &dataset_options, &error);
    if (status < 0) {
        stoker_engine_close(engine);
        return term_error(status, &error);
    }
    *engine_out = engine;
    return EXIT_FINE;
}

int command_wait(const struct command_job *job, struct stoker_error *error)
{
    bool works;
    int status;

    do {
        status = job->next(job->self, error);
        works = status > 0 || status == STOKER_ERROR_AGAIN;
        if (works && status != 2 && term_is_live()) {
            job->draw(job->self);
        }
    } while (works && !main_signal() && !term_closed());
    term_live_end();
    if (!works || !job->stop) {
        return works ? 1 : status;
    }
    job->stop(job->self);
    do { /* a second signal ends the process */
        status = job->next(job->self, error);
    } while (status > 0 || status == STOKER_ERROR_AGAIN);
    return status == 0 ? 0 : 1;
}

void command_live(double share, uint64_t bytes, double seconds, const char *more)
{
    char line[256], done[TERM_NUMBER_BYTES], rate[TERM_NUMBER_BYTES], left[TERM_NUMBER_BYTES] = "";

    if (share > 0.005 && share < 1 && seconds > 0.5) {
        term_time(left, seconds * (1 - share) / share);
    }
    snprintf(line, sizeof line, "%3.0f %%  %s  %s/s%s%s%s", 100 * share, term_bytes(done, bytes),
             term_bytes(rate, (uint64_t)((double)bytes / (seconds > 0 ? seconds : 1))),
             left[0] ? "  left " : "", left, more);
    term_live(share, line);
}

int command_result(int status, const struct stoker_error *error)
{
    return status < 0 ? term_error(status, error)
           : status   ? command_interrupted("there is no result", "the same command begins again")
                      : EXIT_FINE;
}

int command_interrupted(const char *what_stays, const char *advice)
{
    if (main_signal()) {
        term_fail("interrupted", what_stays,
                  advice ? advice : "the same command continues from here");
    }
    return EXIT_SIGNAL + main_signal();
}
