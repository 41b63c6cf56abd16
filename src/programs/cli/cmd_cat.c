/* stoker cat: writes the bytes of one member, or of a file, to stdout. */
#include "programs/cli/args.h"

#include "programs/cli/cmd_stat.h"
#include "programs/cli/command.h"
#include "programs/cli/path_args.h"
#include "programs/cli/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define KEY_BYTES_MAX 4097
#define MEMBERS_MAX 256
#define FIRST_BYTES (1u << 20) /* first buffer if the size is unknown */
#define TRIES_MAX 4            /* gives up if a file grows faster than it is read */
#define ADVICE_BYTES 512

struct match {
    uint64_t sample;
    char extension[256];
    uint64_t bytes; /* UINT64_MAX: unknown */
};

static int run(struct args *args);
static int find(struct stoker_dataset *dataset, const struct args *args, struct match *match);
static const char *name_after_key(const char *name, const char *key);
static int choose(const struct stoker_member_info *members, size_t count, const char *name,
                  const char *extension, struct match *match);
static int write_member(struct stoker_dataset *dataset, const struct match *match);

const struct command command_cat = {
    .name = "cat",
    .bit = COMMAND_CAT,
    .usage = "[options] PATH... KEY[.EXT] | FILE",
    .summary = "Write the bytes of a member, or of a file, to stdout",
    .more = "KEY as `stoker ls` prints it (in a tar: the name up to the first dot of its last\n"
            "part). EXT is optional if the sample has only one member. If several shards have\n"
            "the key, the first one is used.\n",
    .run = run,
};

static int run(struct args *args)
{
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    struct match match = {0};
    int status;

    if (args->path_count == 0) {
        return command_no_path(&command_cat);
    }
    if (args->path_count == 1 && isatty(STDOUT_FILENO)) {
        return term_usage("cat", "no key given", args->paths[0],
                          "add a KEY after PATH; to write the file itself: stoker cat FILE > copy");
    }
    if (args->path_count == 1) {
        status = command_open_files(args, &engine);
        for (size_t i = 0; i < args->path_count && status == EXIT_FINE; i++) {
            status = stat_write_file(engine, args->paths[i]);
        }
        stoker_engine_close(engine);
        return status;
    }
    args->name = args->paths[--args->path_count];
    if (isatty(STDOUT_FILENO) && !strstr(args->name, ".txt") && !strstr(args->name, ".json") &&
        !strstr(args->name, ".cls")) {
        return term_usage("cat", "a terminal cannot display these bytes", args->name,
                          "redirect them: stoker cat ... > file");
    }
    status = command_open_dataset(args, &engine, &dataset);
    if (status != EXIT_FINE) {
        return status;
    }
    status = find(dataset, args, &match);
    if (status == EXIT_FINE) {
        status = write_member(dataset, &match);
    }
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
    return status;
}

/* Finds the first sample whose key is the name, or the name without one of its extensions. */
static int find(struct stoker_dataset *dataset, const struct args *args, struct match *match)
{
    const char *name = args->name;
    static char key[KEY_BYTES_MAX];
    static struct stoker_member_info members[MEMBERS_MAX];
    struct stoker_dataset_info info = {.struct_size = sizeof info};

    stoker_dataset_info(dataset, &info);
    for (uint64_t i = 0; i < info.sample_count; i++) {
        struct stoker_error error = {0};
        size_t count = MEMBERS_MAX;
        int status = stoker_dataset_sample(dataset, i, key, sizeof key, members, &count, &error);
        if (status < 0) {
            return term_error(status, &error);
        }
        const char *extension = name_after_key(name, key);
        if (extension) {
            match->sample = i;
            return choose(members, count < MEMBERS_MAX ? count : MEMBERS_MAX, name, extension,
                          match);
        }
    }
    return command_no_key(args->paths[0], name);
}

/* Returns the part of the name after the key: "" or the extension; NULL if the key differs. */
static const char *name_after_key(const char *name, const char *key)
{
    size_t bytes = strlen(key);

    if (strncmp(name, key, bytes) != 0) {
        return NULL;
    }
    if (name[bytes] == 0) {
        return name + bytes;
    }
    return name[bytes] == '.' ? name + bytes + 1 : NULL;
}

static int choose(const struct stoker_member_info *members, size_t count, const char *name,
                  const char *extension, struct match *match)
{
    char advice[ADVICE_BYTES] = "add one of its extensions to the key:";
    size_t used = strlen(advice);

    for (size_t m = 0; m < count; m++) {
        if (extension[0] ? strcasecmp(members[m].extension, extension) == 0 : count == 1) {
            snprintf(match->extension, sizeof match->extension, "%s", members[m].extension);
            match->bytes = members[m].bytes;
            return EXIT_FINE;
        }
        int more = snprintf(advice + used, sizeof advice - used, " %s", members[m].extension);
        used += used + (size_t)more < sizeof advice ? (size_t)more : 0;
    }
    term_fail_name(extension[0] ? "the sample has no such member"
                                : "the sample has several members",
                   0, name, advice);
    return extension[0] ? EXIT_FINDINGS : EXIT_USAGE;
}

static int write_member(struct stoker_dataset *dataset, const struct match *match)
{
    struct stoker_error error = {0};
    size_t capacity = match->bytes == UINT64_MAX ? FIRST_BYTES : match->bytes;
    size_t bytes = 0;
    int status = STOKER_ERROR_LIMIT;
    char *buffer = NULL;

    for (int tries = 0; status == STOKER_ERROR_LIMIT && tries < TRIES_MAX; tries++) {
        free(buffer);
        buffer = malloc(capacity ? capacity : 1);
        if (!buffer) {
            return term_fail_name("cannot read the member", ENOMEM, match->extension,
                                  "free memory: an entire member must fit");
        }
        error = (struct stoker_error){0};
        status = stoker_dataset_read(dataset, match->sample, match->extension, buffer, capacity,
                                     &bytes, &error);
        if (bytes <= capacity) {
            break; /* not our buffer: another limit */
        }
        capacity = bytes;
    }
    if (status < 0) {
        status = term_error(status, &error);
    } else {
        fwrite(buffer, 1, bytes, stdout);
        term_closed();
        status = EXIT_FINE;
    }
    free(buffer);
    return status;
}
