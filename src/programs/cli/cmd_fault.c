/* stoker fault-proxy: executes stoker-fault, a program in the same folder. It is a separate program
 * because it parses HTTP of any client and needs nothing of the library. */
#include "programs/cli/args.h"

#include "programs/cli/terminal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM "stoker-fault"
#define PATH_BYTES 4096
#define WORDS_MAX 256

static int run_words(int argc, char **argv);

const struct command command_fault = {
    .name = "fault-proxy",
    .old_name = "fault",
    .usage = "[options]",
    .summary = "Run a proxy or a small object store that injects the faults of a script",
    .run_words = run_words,
};

static int run_words(int argc, char **argv)
{
    static char path[PATH_BYTES + sizeof PROGRAM];
    static char name[] = PROGRAM, *words[WORDS_MAX + 2] = {name};
    ssize_t bytes = readlink("/proc/self/exe", path, PATH_BYTES);
    char *slash;

    if (argc > WORDS_MAX) {
        return term_usage("fault-proxy", "too many words", argv[WORDS_MAX],
                          "put rules into a file");
    }
    path[bytes > 0 ? bytes : 0] = 0;
    slash = strrchr(path, '/');
    memcpy(slash ? slash + 1 : path, PROGRAM, sizeof PROGRAM);
    for (int i = 0; i < argc; i++) {
        words[i + 1] = argv[i];
    }
    execv(path, words);
    return term_fail_name("cannot run the program", errno, path,
                          "it is installed next to stoker: install both again");
}
