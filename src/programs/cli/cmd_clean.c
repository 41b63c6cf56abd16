/* stoker clean: lists and removes the files that stoker leaves beside data, in the cache folder and
 * in shared memory. */
#include "programs/cli/args.h"
#include "programs/cli/main.h"
#include "programs/cli/terminal.h"

#include <stoker/clean.h>

static int run(struct args *args);

const struct command command_clean = {
    .name = "clean",
    .bit = COMMAND_CLEAN,
    .usage = "[--yes] [--older-than SECONDS] [FOLDER...]",
    .summary = "List or remove tables, locks and cached text that stoker leaves on this machine",
    .more = "Looks in each FOLDER (not below it), in the cache folder (STOKER_CACHE,\n"
            "XDG_CACHE_HOME/stoker or ~/.cache/stoker) and in STOKER_NODE_DIR or /dev/shm, for\n"
            "tables of subsets and weights, locks, decompressed text files, counts of tokens, and\n"
            "parts of them. All can be made again. Without --yes it only lists. Files that a\n"
            "process of this machine uses, files of other users, indexes and unfinished packs\n"
            "stay. If other machines use a FOLDER, give --older-than.\n",
    .run = run,
};

struct sum {
    bool json, removes;
    uint64_t files, bytes;
};

static const char *kind_text(uint32_t kind)
{
    static const char *const names[] = {"", "table", "lock", "text", "counts", "part", "shared"};

    return kind < sizeof names / sizeof names[0] ? names[kind] : "";
}

static void report(void *context, const struct stoker_leftover *leftover)
{
    bool stays = leftover->in_use || leftover->foreign || leftover->status < 0;
    char text[TERM_NUMBER_BYTES];
    struct sum *sum = context;

    sum->files += !stays;
    sum->bytes += stays ? 0 : leftover->bytes;
    if (sum->json) {
        json_open(NULL, '{');
        json_str("path", leftover->path);
        json_str("kind", kind_text(leftover->kind));
        json_u64("bytes", leftover->bytes);
        json_u64("unused_seconds", leftover->unused_s);
        json_bool("in_use", leftover->in_use);
        json_bool("foreign", leftover->foreign);
        json_bool("removed", leftover->removed);
        json_close('}');
        return;
    }
    term_text(leftover->path);
    printf("  %s  %s%s%s\n", kind_text(leftover->kind), term_bytes(text, leftover->bytes),
           leftover->in_use ? "  in use" : "", leftover->foreign ? "  of another user" : "");
}

static int run(struct args *args)
{
    struct sum sum = {.json = args->json, .removes = args->yes};
    struct stoker_clean_options options = {
        .struct_size = sizeof options,
        .folders = args->paths,
        .folder_count = args->path_count,
        .found = report,
        .context = &sum,
        .unused_s = (uint64_t)args->seconds,
        .remove = args->yes,
    };
    char count[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES];
    struct stoker_error error = {0};
    int status = stoker_clean(&options, &error);

    if (!args->json) {
        printf("%s file%s, %s%s\n", term_count(count, sum.files), sum.files == 1 ? "" : "s",
               term_bytes(bytes, sum.bytes),
               args->yes        ? " removed"
               : sum.files == 0 ? ""
                                : "; --yes removes them");
    }
    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}
