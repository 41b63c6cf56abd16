/* stoker creds: explains which credentials requests for a URL use, and why. */
#include "programs/cli/args.h"

#include "programs/cli/terminal.h"

#include <string.h>
#include <time.h>

static int run(struct args *args);
static void print(const struct stoker_creds *creds);
static void print_json(const struct stoker_creds *creds);
static const char *time_text(uint64_t time_ns, char text[TERM_NUMBER_BYTES]);

const struct command command_creds = {
    .name = "creds",
    .bit = COMMAND_CREDS,
    .usage = "explain [options] URL",
    .summary = "Explain which credentials requests for a URL use, from where, and why",
    .more = "Tries the places where credentials may be, in the order of the service's own\n"
            "libraries, and sends requests to credential services that are configured. The\n"
            "output has no secrets. Exit status 1: a place is configured and does not work.\n"
            "Later places are not tried, since they would be another identity.\n",
    .run = run,
};

static int run(struct args *args)
{
    struct stoker_creds creds = {.struct_size = sizeof creds};
    struct stoker_error error = {0};
    int status;

    if (args->path_count > 0 && strcmp(args->paths[0], "explain") != 0) {
        return term_usage("creds", "unknown action", args->paths[0],
                          "usage: stoker creds explain [options] URL");
    }
    if (args->path_count != 2) {
        return term_usage("creds", "one URL is needed", NULL,
                          "usage: stoker creds explain [options] URL");
    }
    status = stoker_creds_explain(args->paths[1], &creds, &error);
    if (creds.step_count > 0 || status == 0) {
        (args->json ? print_json : print)(&creds);
    }
    if (status < 0) {
        int shown = term_error(status, &error);

        return creds.step_count > 0 ? EXIT_FINDINGS : shown;
    }
    return EXIT_FINE;
}

/* In JSON, where names do not change. */
static const char *const verdicts[] = {[STOKER_CREDS_SKIPPED] = "passed over",
                                       [STOKER_CREDS_USED] = "used",
                                       [STOKER_CREDS_FAILED] = "failed",
                                       [STOKER_CREDS_NOT_TRIED] = "not asked"};

static const char *const verdict_texts[] = {[STOKER_CREDS_SKIPPED] = "skipped",
                                            [STOKER_CREDS_USED] = "used",
                                            [STOKER_CREDS_FAILED] = "failed",
                                            [STOKER_CREDS_NOT_TRIED] = "not tried"};

static void print_row(const char *name, const char *value, const char *from)
{
    if (value[0]) {
        printf("%-12s ", name);
        term_text(value);
        fputs(from[0] ? "  (" : "", stdout);
        term_text(from);
        fputs(from[0] ? ")\n" : "\n", stdout);
    }
}

static void print(const struct stoker_creds *creds)
{
    char text[TERM_NUMBER_BYTES];

    print_row("store", creds->service[0] ? creds->service : "web server", "");
    print_row("endpoint", creds->endpoint[0] ? creds->endpoint : "unknown", creds->endpoint_from);
    print_row("region", creds->region, creds->region_from);
    print_row("credentials", creds->kind, creds->from);
    print_row("key", creds->key, "");
    print_row("expires", time_text(creds->expires_ns, text), "");
    for (uint32_t i = 0; i < creds->step_count; i++) {
        const struct stoker_creds_step *step = &creds->steps[i];

        printf("%s  %u. %-30s %-12s", i ? "" : "\n", i + 1, step->source,
               verdict_texts[step->verdict]);
        term_text(step->reason);
        fputc('\n', stdout);
    }
}

static void print_json(const struct stoker_creds *creds)
{
    char text[TERM_NUMBER_BYTES];

    json_open(NULL, '{');
    json_str("store", creds->service);
    json_str("endpoint", creds->endpoint);
    json_str("endpoint_from", creds->endpoint_from);
    json_str("region", creds->region);
    json_str("region_from", creds->region_from);
    json_str("credentials", creds->kind);
    json_str("from", creds->from);
    json_str("key", creds->key);
    json_str("expires", time_text(creds->expires_ns, text));
    json_open("steps", '[');
    for (uint32_t i = 0; i < creds->step_count; i++) {
        json_open(NULL, '{');
        json_str("place", creds->steps[i].source);
        json_str("verdict", verdicts[creds->steps[i].verdict]);
        json_str("why", creds->steps[i].reason);
        json_close('}');
    }
    json_close(']');
    json_close('}');
}

/* "2026-11-22T17:05:00Z"; "": never. */
static const char *time_text(uint64_t time_ns, char text[TERM_NUMBER_BYTES])
{
    time_t seconds = (time_t)(time_ns / 1000000000u);
    struct tm parts;

    text[0] = 0;
    if (time_ns != UINT64_MAX && gmtime_r(&seconds, &parts)) {
        strftime(text, TERM_NUMBER_BYTES, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
    return text;
}
