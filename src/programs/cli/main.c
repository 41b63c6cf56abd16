/* The `stoker` command: finds the sub-command, owns signals and the exit status. */
#include "programs/cli/main.h"
#include "programs/cli/args.h"
#include "programs/cli/terminal.h"
#include "programs/cli/wait_notice.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command *const commands[] = {
    &command_ls,    &command_cat,    &command_info, &command_bench,   &command_index,
    &command_pack,  &command_verify, &command_diff, &command_order,   &command_sample,
    &command_creds, &command_cp,     &command_mv,   &command_prewarm, &command_sync,
    &command_rm,    &command_stat,   &command_ckpt, &command_presign, &command_clean,
    &command_cache, &command_fault};
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static volatile sig_atomic_t interrupted; /* written by the handler */
static volatile sig_atomic_t graceful;    /* read by the handler */

static void on_interrupt(int number);
static const struct command *command_find(const char *name, const char *next);
static int command_unknown(const char *typed);
static int help(int argc, char **argv);
static void overview(FILE *out);
static bool alias_urls(int argc, char **argv);

int main(int argc, char **argv)
{
    struct sigaction interrupt = {.sa_handler = on_interrupt};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct args args = {0};

    term_init();
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGTERM, &interrupt, NULL);
    sigaction(SIGPIPE, &ignore, NULL); /* term_finish gets EPIPE, which it does not report */
    if (argc < 2) {
        overview(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        printf("stoker %s\n", stoker_version());
        return term_finish(EXIT_FINE);
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0) {
        return term_finish(help(argc - 2, argv + 2));
    }
    const struct command *command = command_find(argv[1], argc > 2 ? argv[2] : "");
    if (!command) {
        return command_unknown(argv[1]);
    }
    if (!alias_urls(argc, argv)) {
        return term_usage(NULL, "out of memory", argv[1], "free memory");
    }
    if (command->run_words) {
        return term_finish(command->run_words(argc - 2, argv + 2));
    }
    int status = args_parse(&args, command, argc - 2, argv + 2);
    if (status == EXIT_FINE && args.help) {
        args_help(stdout, command);
    } else if (status == EXIT_FINE) {
        wait_notice_start();
        status = command->run(&args);
        wait_notice_stop();
    }
    args_free(&args);
    return term_finish(status);
}

/* Replaces URLs that contain credentials by their aliases, so that no output, ps(1) or core dump of
 * this process contains the credentials. Returns false if memory is exhausted. */
static bool alias_urls(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        char *url = strncmp(argv[i], "--", 2) == 0 && strchr(argv[i], '=')
                        ? strchr(argv[i], '=') + 1
                        : argv[i];
        size_t head = (size_t)(url - argv[i]), bytes = strlen(url);
        int64_t want = stoker_url_alias(url, NULL, 0);
        char *named = want < 0 ? NULL : malloc(head + (size_t)want + 1);

        if (!named) {
            return false;
        }
        memcpy(named, argv[i], head);
        stoker_url_alias(url, named + head, (size_t)want + 1);
        if (strcmp(named, argv[i]) == 0) {
            free(named);
            continue;
        }
        explicit_bzero(url, bytes);
        if ((size_t)want <= bytes) {
            memcpy(url, named + head, (size_t)want);
            free(named);
        } else {
            argv[i] = named; /* as long as the process */
        }
    }
    return true;
}

int main_signal(void)
{
    return interrupted;
}

void main_defer_signals(bool on)
{
    graceful = on;
}

/* After main_defer_signals(true) a signal is only recorded, and the command ends by itself. Else,
 * and on a second signal, the process prints that it was interrupted, and ends at once. */
static void on_interrupt(int number)
{
    if (!graceful || interrupted) {
        term_interrupted_in_signal();
        _exit(128 + number);
    }
    interrupted = number;
}

static const struct command *command_find(const char *name, const char *next)
{
    if (strcmp(name, command_bench.name) == 0 && strcmp(next, "store") == 0) {
        return &command_bench_store;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i]->name, name) == 0 ||
            (commands[i]->old_name && strcmp(commands[i]->old_name, name) == 0)) {
            return commands[i];
        }
    }
    return NULL;
}

static int command_unknown(const char *typed)
{
    const char *words[COMMAND_COUNT + 2] = {0};
    char advice[96] = "'stoker help' lists the commands";

    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        words[i] = commands[i]->name;
    }
    words[COMMAND_COUNT] = "help";
    const char *nearest = args_nearest(typed, words);
    if (nearest) {
        snprintf(advice, sizeof advice, "did you mean 'stoker %s'?", nearest);
    }
    return term_usage(NULL, typed[0] == '-' ? "unknown option" : "unknown command", typed, advice);
}

static int help(int argc, char **argv)
{
    if (argc == 0) {
        overview(stdout);
        return EXIT_FINE;
    }
    if (strcmp(argv[0], "help") == 0 || strcmp(argv[0], "--help") == 0 ||
        strcmp(argv[0], "-h") == 0) {
        return help(argc - 1, argv + 1);
    }
    const struct command *command = command_find(argv[0], argc > 1 ? argv[1] : "");
    if (!command) {
        return command_unknown(argv[0]);
    }
    if (command->run_words) {
        char word[] = "--help", *words[] = {word, NULL};
        return command->run_words(1, words);
    }
    args_help(stdout, command);
    return EXIT_FINE;
}

static void overview(FILE *out)
{
    fprintf(
        out,
        "usage: stoker COMMAND [options] PATH...\n\n"
        "Inspects, indexes, packs and verifies training data, and measures how fast it loads.\n\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
    }
    fprintf(out, "  %-11s %s\n", "help", "The options of a command: stoker help COMMAND");
    fprintf(out, "\nPATH is a folder of class folders, a tar, a glob or a brace list such as\n"
                 "'train-{000..099}.tar'. stoker --version prints the version.\n");
}
