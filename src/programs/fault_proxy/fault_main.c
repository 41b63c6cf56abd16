/* stoker-fault, the program of `stoker fault-proxy`: a proxy, or a server of a folder, that injects
 * the faults of a script. */
#include "programs/fault_proxy/fault_proxy.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINKS_DEFAULT 256u
#define IDLE_SECONDS_DEFAULT 600u
#define REST_MS 1000 /* for the rest of a line of the log */
#define EXIT_USAGE 2
#define EXIT_ENVIRONMENT 3

struct arguments {
    const char *listen, *to, *folder, *script, *rules, *log;
    const char *certificate, *key, *certificate_out;
    struct stk_tls_server_names names;
    uint64_t seed, links, idle_seconds;
    bool has_seed, tls;
};

static volatile sig_atomic_t stopped;

static const char usage[] =
    "usage: stoker fault-proxy [options] [--to http://HOST:PORT | --folder DIR]\n\n"
    "A proxy between a program and its object store (--to), or a store of its own (--folder: GET,\n"
    "HEAD, ranges, S3's list), that injects faults; without either, only the responses of "
    "rules.\n\n"
    "  --listen PLACE   default 127.0.0.1:0, any port, local clients only\n"
    "  --to URL         server to forward to; http only. The Host header stays as the client sent\n"
    "                   it, so that signatures stay valid\n"
    "  --folder DIR     serve these files; the first part of a path is the bucket\n"
    "  --script FILE    rules, as JSON\n"
    "  --rules JSON     rules, on the command line\n"
    "  --seed N         seed of all probabilities; default: the script's\n"
    "  --log FILE       a JSON line for each exchange; default: standard output, where lines\n"
    "                   without a reader are dropped, and counted in the next: lost_before\n"
    "  --connections N  maximum number of connections; default 256\n"
    "  --idle SECONDS   close connections without progress after this time; default 600\n"
    "  --tls            TLS for clients, with a new certificate, valid for a day\n"
    "  --tls-name NAME  host or address of the certificate, up to 16; default localhost and\n"
    "                   127.0.0.1. Another name than the clients use is a wrong host\n"
    "  --tls-cert-out FILE\n"
    "                   write the certificate, as PEM, for clients to trust (AWS_CA_BUNDLE=FILE)\n"
    "  --tls-cert FILE --tls-key FILE\n"
    "                   TLS for clients, with this certificate and its key, both PEM\n\n"
    "The first line of the output is the address. A script:\n\n"
    "  {\"seed\": 7, \"rules\": [\n"
    "    {\"method\": \"GET\", \"path\": \"/bucket/*\", \"nth\": 3, \"fault\": \"reset\", \"at\": "
    "1000},\n"
    "    {\"probability\": 0.3, \"until_ms\": 60000, \"fault\": \"status\", \"status\": 503}]}\n\n"
    "Conditions: method; path, query (* matches anything, ? one byte); range (true: with a Range\n"
    "header); among the matching requests: nth, from, every, count (at most), probability, seed\n"
    "(of the probability: else it depends on the number of rules before); after_ms, until_ms "
    "since\n"
    "the start. The first rule that matches applies.\n"
    "Effects: fault; at: number of body bytes before it (reset, stall, truncate; -1: the server\n"
    "handles the request and its response is lost; without at: the request is not forwarded).\n"
    "With any fault: delay_ms before the response, rate (bytes a second), headers {name: value} "
    "of\n"
    "the response, name (of the rule, in the log). Faults:\n\n";

static void on_signal(int number)
{
    stopped = number;
}

static void help(void)
{
    fputs(usage, stdout);
    for (uint32_t i = 0; i < STK_FAULT_COUNT; i++) {
        const char *does, *name = stk_fault_name(i, &does);
        printf("  %-13s %s\n", name, does);
    }
}

static int print_error(int status, const struct stoker_error *error)
{
    fprintf(stderr, "stoker fault-proxy: %s: %s\n  %s\n", error->what, error->where, error->advice);
    return status;
}

static int fail_usage(const char *what, const char *where)
{
    fprintf(stderr,
            "stoker fault-proxy: %s: '%s'\n  'stoker fault-proxy --help' lists the options\n", what,
            where);
    return EXIT_USAGE;
}

/* Checks options that exclude or need each other. */
static int check(const struct arguments *arguments)
{
    bool own = arguments->names.count > 0 || arguments->certificate_out;

    if (arguments->links == 0 || arguments->links > STK_FAULT_PROXY_CONNECTIONS_MAX ||
        arguments->idle_seconds == 0 || arguments->idle_seconds > 1000000) {
        return fail_usage("out of range", "--connections 1..1024, --idle 1..1000000");
    }
    if ((arguments->to && arguments->folder) || (arguments->script && arguments->rules)) {
        return fail_usage("options exclude each other",
                          arguments->to ? "--to, --folder" : "--script, --rules");
    }
    if (!arguments->certificate != !arguments->key) {
        return fail_usage("both options are needed", "--tls-cert, --tls-key");
    }
    if (arguments->certificate && (arguments->tls || own)) {
        return fail_usage("options exclude each other", "--tls-cert, --tls");
    }
    return own && !arguments->tls
               ? fail_usage("these options need --tls", "--tls-name, --tls-cert-out")
               : 0;
}

static int parse(struct arguments *arguments, int argc, char **argv)
{
    const char *name = NULL;
    const struct {
        const char *name;
        const char **text; /* both NULL: --tls, which has no value */
        uint64_t *number;
    } options[] = {
        {"--listen", &arguments->listen, NULL},
        {"--to", &arguments->to, NULL},
        {"--folder", &arguments->folder, NULL},
        {"--script", &arguments->script, NULL},
        {"--rules", &arguments->rules, NULL},
        {"--log", &arguments->log, NULL},
        {"--seed", NULL, &arguments->seed},
        {"--connections", NULL, &arguments->links},
        {"--idle", NULL, &arguments->idle_seconds},
        {"--tls", NULL, NULL},
        {"--tls-name", &name, NULL},
        {"--tls-cert-out", &arguments->certificate_out, NULL},
        {"--tls-cert", &arguments->certificate, NULL},
        {"--tls-key", &arguments->key, NULL},
    };

    for (int i = 1; i < argc; i++) {
        size_t bytes = strcspn(argv[i], "="), o = 0;
        while (o < STK_COUNT(options) && (strlen(options[o].name) != bytes ||
                                          strncmp(options[o].name, argv[i], bytes) != 0)) {
            o++;
        }
        if (o == STK_COUNT(options)) {
            return fail_usage("unknown option", argv[i]);
        }
        if (!options[o].text && !options[o].number) {
            if (argv[i][bytes] == '=') {
                return fail_usage("this option takes no value", argv[i]);
            }
            arguments->tls = true;
            continue;
        }
        const char *value = argv[i][bytes] == '=' ? argv[i] + bytes + 1 : argv[++i];
        if (!value) {
            return fail_usage("this option needs a value", options[o].name);
        }
        if (options[o].text) {
            *options[o].text = value;
        } else if (!stk_fault_number((struct stk_view){(const uint8_t *)value, strlen(value)},
                                     options[o].number)) {
            return fail_usage("not a number", value);
        }
        arguments->has_seed = arguments->has_seed || options[o].number == &arguments->seed;
        if (options[o].text == &name) {
            if (arguments->names.count == STK_TLS_SERVER_NAMES_MAX) {
                return fail_usage("too many names", name);
            }
            arguments->names.of[arguments->names.count++] = name;
        }
    }
    return check(arguments);
}

/* Reads a file, at most STK_FAULT_SCRIPT_BYTES_MAX + 1 bytes. */
static int read_script(const char *path, char **text_out, size_t *bytes_out,
                       struct stoker_error *error)
{
    FILE *file = fopen(path, "re");
    char *text = stk_alloc(STK_FAULT_SCRIPT_BYTES_MAX + 1, 1);
    int status = 0;

    if (!file || !text) {
        status = stk_fail_errno(error, text ? errno : ENOMEM, "cannot read the script",
                                "check the path", "'%s'", path);
        stk_free(text);
    } else {
        *bytes_out = fread(text, 1, STK_FAULT_SCRIPT_BYTES_MAX + 1, file);
        *text_out = text;
        if (ferror(file)) {
            status = stk_fail_errno(error, errno, "cannot read the script", "check the path",
                                    "'%s'", path);
        }
    }
    if (file) {
        fclose(file);
    }
    return status;
}

static int open_script(struct stk_fault_script *script, const struct arguments *arguments,
                       struct stoker_error *error)
{
    char *text = NULL;
    size_t bytes = 0;
    int status = 0;

    if (arguments->script) {
        status = read_script(arguments->script, &text, &bytes, error);
    }
    if (status == 0 && (text || arguments->rules)) {
        struct stk_view view = {(const uint8_t *)(text ? text : arguments->rules),
                                text ? bytes : strlen(arguments->rules)};
        status = stk_fault_script_open(script, view, error);
        if (status < 0) {
            stk_error_set_location(error, text ? arguments->script : "--rules", STOKER_NO_OFFSET,
                                   NULL);
        }
    }
    stk_free(text);
    if (status == 0 && arguments->has_seed) {
        script->seed = arguments->seed;
    }
    return status;
}

static int open_upstream(struct stk_fault_config *config, const struct arguments *arguments,
                         struct stoker_error *error)
{
    char place[300];

    if (arguments->folder) {
        config->folder = open(arguments->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return config->folder >= 0 ? 0
                                   : stk_fail_errno(error, errno, "cannot open the folder",
                                                    "check the path", "'%s'", arguments->folder);
    }
    if (!arguments->to) {
        return 0;
    }
    if (strncmp(arguments->to, "http://", 7) != 0 || strpbrk(arguments->to + 7, "/?#@") ||
        strlen(arguments->to) >= sizeof place) {
        return stk_fail(error, -EINVAL, "not http://HOST:PORT",
                        "put a plain HTTP proxy before a TLS server", "'%s'", arguments->to);
    }
    snprintf(place, sizeof place, "%s%s", arguments->to + 7,
             strrchr(arguments->to + 7, ':') &&
                     !strchr("]", arguments->to[strlen(arguments->to) - 1])
                 ? ""
                 : ":80");
    return stk_fault_proxy_resolve(place, &config->to, &config->to_bytes, error);
}

static int open_tls(struct stk_tls_server **tls_out, const struct arguments *arguments,
                    struct stoker_error *error)
{
    static const struct stk_tls_server_names usual = {.of = {"localhost", "127.0.0.1"}, .count = 2};

    if (arguments->certificate) {
        return stk_tls_server_open_files(tls_out, arguments->certificate, arguments->key, error);
    }
    return arguments->tls ? stk_tls_server_open_self_signed(
                                tls_out, arguments->names.count > 0 ? &arguments->names : &usual,
                                arguments->certificate_out, error)
                          : 0;
}

/* Destination of the log. */
struct log {
    int fd;
    uint64_t lost; /* lines dropped without a reader */
};

/* Returns false if there is no reader: waiting for one would block all connections. POLLOUT of a
 * pipe guarantees PIPE_BUF bytes; the rest of a longer line may wait for REST_MS. */
static bool write_line(int fd, const char *text, size_t bytes)
{
    struct pollfd ready = {.fd = fd, .events = POLLOUT};

    for (int wait_ms = 0; bytes > 0; wait_ms = REST_MS) {
        size_t some = stk_min(bytes, PIPE_BUF);
        ssize_t written;

        if (poll(&ready, 1, wait_ms) != 1 || !(ready.revents & POLLOUT)) {
            return false;
        }
        written = write(fd, text, some);
        if (written < 0 && errno != EINTR) {
            return false;
        }
        text += stk_max(written, 0);
        bytes -= (size_t)stk_max(written, 0);
    }
    return true;
}

static void log_line(void *owner, json_t *line)
{
    struct log *log = owner;
    char *text, *ended = NULL;
    int bytes = -1;

    if (log->lost > 0) {
        json_object_set_new(line, "lost_before", json_integer((json_int_t)log->lost));
    }
    text = json_dumps(line, JSON_COMPACT);
    if (text) {
        bytes = asprintf(&ended, "%s\n", text);
    }
    log->lost = bytes > 0 && write_line(log->fd, ended, (size_t)bytes) ? 0 : log->lost + 1;
    if (bytes >= 0) {
        free(ended);
    }
    free(text);
    json_decref(line);
}

static int run(const struct arguments *arguments, struct stoker_error *error)
{
    struct stk_fault_proxy proxy = {
        .listener = -1,
        .connections_max = (uint32_t)arguments->links,
        .config = {.folder = -1, .idle_ms = arguments->idle_seconds * 1000}};
    struct log log = {.fd = STDOUT_FILENO};
    char place[96];
    int status = open_script(&proxy.config.script, arguments, error);

    status = status < 0 ? status : open_upstream(&proxy.config, arguments, error);
    status = status < 0 ? status : open_tls(&proxy.config.tls, arguments, error);
    status = status < 0 ? status : stk_fault_proxy_open(&proxy, arguments->listen, place, error);
    proxy.config.owner = &log;
    proxy.config.log = log_line;
    if (status == 0 && arguments->log) {
        log.fd = open(arguments->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    }
    if (log.fd < 0) {
        status = stk_fail_errno(error, errno, "cannot write the log", "check the path", "'%s'",
                                arguments->log);
    }
    if (status == 0) {
        printf("{\"listening\":\"%s\"%s}\n", place, proxy.config.tls ? ",\"tls\":true" : "");
        fflush(stdout);
        status = stk_fault_proxy_run(&proxy, &stopped, error);
    }
    stk_fault_proxy_close(&proxy);
    if (arguments->log && log.fd >= 0) {
        close(log.fd);
    }
    return status;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {
        .listen = "127.0.0.1:0", .links = LINKS_DEFAULT, .idle_seconds = IDLE_SECONDS_DEFAULT};
    struct sigaction end = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};
    struct stoker_error error = {0};

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return 0;
        }
    }
    if (parse(&arguments, argc, argv) != 0) {
        return EXIT_USAGE;
    }
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    return run(&arguments, &error) < 0 ? print_error(EXIT_ENVIRONMENT, &error) : 0;
}
