/* stoker verify: reads an entire data set and lists damage. */
#include "programs/cli/args.h"

#include "programs/cli/command.h"
#include "programs/cli/jpeg_index_run.h"
#include "programs/cli/main.h"
#include "programs/cli/terminal.h"

#include <string.h>

struct verify_run {
    struct stoker_verify *verify;
    const struct args *args;
    uint64_t start_ns;
};

static int run(struct args *args);
static int print_findings(struct stoker_verify *verify, const struct args *args, uint64_t start_ns);
static int check_jpeg_index(struct stoker_engine *engine, const struct args *args, int status);
static void finding_print(const struct stoker_finding *finding);
static void finding_print_json(const struct stoker_finding *finding);
static void summary_print(struct stoker_verify *verify, double seconds, bool repair, bool complete);
static void summary_print_json(struct stoker_verify *verify, double seconds);

const struct command command_verify = {
    .name = "verify",
    .bit = COMMAND_VERIFY,
    .usage = "[options] PATH...",
    .summary = "Read everything and list damage; --repair removes it",
    .more = "Verifies every tar header, padding and end, every key, every image's header and\n"
            "end (--deep: all pixels, and INDEX.marks), and, if they exist, the SHA-256 of each\n"
            "shard in stoker.manifest.json and the checksums in stoker.index. Continues after\n"
            "damage.\n"
            "Line: KIND  SHARD @OFFSET  KEY.EXT  WHAT.\n"
            "\n"
            "--repair rewrites each damaged shard without its damaged samples (gz, zstd, bz2\n"
            "and xz shards with the same compression), keeps the old one as SHARD.original,\n"
            "updates the manifest, and removes an index of the old bytes (run 'stoker index'\n"
            "again). Damaged files of a folder ROOT move to ROOT.bad. If only a checksum of the\n"
            "compressed data is wrong, it is unknown whether the checksum or the data is\n"
            "damaged: these samples are left out, unless they have a checksum of their own\n"
            "(PNG; checksums of an index). --keep-unverified keeps them and counts them in a\n"
            "note.\n"
            "Exit status 1: there were findings, repaired or not; verify again to see that none\n"
            "is left. A note (an image with the extension of another format, a rebuilt index)\n"
            "is no finding.\n",
    .run = run,
};

static int run(struct args *args)
{
    struct stoker_error error = {0};
    struct stoker_engine *engine = NULL;
    struct stoker_verify *verify = NULL;
    struct stoker_verify_options options = {
        .struct_size = sizeof options,
        .urls = args->paths,
        .url_count = args->path_count,
        .deep = args->deep,
        .repair = args->repair,
        .keep_unverified = args->keep_unverified,
        .findings_max = args->limit,
    };
    uint64_t start_ns = term_clock_ns();
    int status;

    if (args->path_count == 0) {
        return command_no_path(&command_verify);
    }
    if (args->keep_unverified && !args->repair) {
        return term_usage("verify", "--keep-unverified needs --repair", NULL,
                          "add --repair, or leave --keep-unverified out");
    }
    status = command_open_engine(args, &engine);
    if (status == EXIT_FINE) {
        status = stoker_verify_open(&verify, engine, &options, &error);
        status = status < 0 ? term_error(status, &error) : print_findings(verify, args, start_ns);
        if (args->deep && (status == EXIT_FINE || status == EXIT_FINDINGS)) {
            status = check_jpeg_index(engine, args, status);
        }
    }
    stoker_verify_close(verify);
    stoker_engine_close(engine);
    return status;
}

/* Compares the JPEG index, if there is one, with entry points computed now. */
static int check_jpeg_index(struct stoker_engine *engine, const struct args *args, int status)
{
    struct jpeg_index_job job = {.engine = engine,
                                 .urls = args->paths,
                                 .url_count = args->path_count,
                                 .check = true,
                                 .interrupted = "the data is verified, the JPEG index is not",
                                 .advice = "run it again to verify the JPEG index, too"};
    struct jpeg_index_report report;
    const struct stoker_jpeg_indexer_progress *progress = &report.progress;
    int checked = jpeg_index_run(&job, &report);

    if (!report.path[0] || checked != EXIT_FINE) {
        return checked == EXIT_FINE ? status : checked;
    }
    if (args->json) {
        json_open(NULL, '{');
        json_str("kind", "marks");
        jpeg_index_report_json(&report);
        json_close('}');
        return progress->mismatches ? EXIT_FINDINGS : status;
    }
    if (progress->mismatches) {
        printf("marks       ");
        term_text(report.path);
        printf("  the entry points of %llu samples are wrong, the first of sample %llu: rebuild "
               "them with stoker index --jpeg-index\n",
               (unsigned long long)progress->mismatches,
               (unsigned long long)progress->first_mismatch);
        return EXIT_FINDINGS;
    }
    term_text(report.path);
    printf(": the entry points of %llu of %llu JPEGs are right\n",
           (unsigned long long)progress->indexed, (unsigned long long)progress->pictures);
    return status;
}

static int next_finding(void *context, struct stoker_error *error)
{
    struct verify_run *self = context;
    struct stoker_finding finding;
    int status = stoker_verify_next(self->verify, COMMAND_TICK_MS, &finding, error);

    if (status != 1) {
        return status;
    }
    term_live_end();
    (self->args->json ? finding_print_json : finding_print)(&finding);
    return 2;
}

static void draw(const void *context)
{
    const struct verify_run *self = context;
    struct stoker_verify_progress progress = {.struct_size = sizeof progress};
    char findings[64];

    stoker_verify_progress(self->verify, &progress);
    snprintf(findings, sizeof findings, "  %llu findings", (unsigned long long)progress.findings);
    command_live(progress.bytes_total ? (double)progress.bytes / (double)progress.bytes_total
                                      : (double)progress.shards / (double)progress.shards_total,
                 progress.bytes, term_seconds_since(self->start_ns), findings);
}

static int print_findings(struct stoker_verify *verify, const struct args *args, uint64_t start_ns)
{
    struct stoker_verify_progress progress = {.struct_size = sizeof progress};
    struct stoker_error error = {0};
    struct verify_run self = {verify, args, start_ns};
    int status;

    main_defer_signals(true);
    status = command_wait(&(struct command_job){next_finding, draw, &self, NULL}, &error);
    if (status == 1 && main_signal()) {
        term_fail("interrupted", "this is the result so far",
                  args->repair ? "the same command repairs the rest" : "run it again for the rest");
    } else if (status < 0) {
        return term_error(status, &error) == EXIT_USAGE ? EXIT_USAGE : EXIT_ENVIRONMENT;
    }
    if (args->json) {
        summary_print_json(verify, term_seconds_since(start_ns));
    } else {
        summary_print(verify, term_seconds_since(start_ns), args->repair, status == 0);
    }
    stoker_verify_progress(verify, &progress);
    return status == 1         ? EXIT_SIGNAL + main_signal()
           : progress.findings ? EXIT_FINDINGS
                               : EXIT_FINE;
}

static void finding_print(const struct stoker_finding *finding)
{
    printf("%-10s  ", stoker_finding_name(finding->kind));
    term_text(finding->shard);
    if (finding->offset != STOKER_NO_OFFSET) {
        printf(" @%llu", (unsigned long long)finding->offset);
    }
    if (finding->key[0]) {
        fputs("  ", stdout);
        term_text(finding->key);
        if (finding->extension[0] && !strstr(finding->shard, finding->key)) {
            fputc('.', stdout);
            term_text(finding->extension);
        }
    }
    fputs("  ", stdout);
    term_text(finding->what);
    fputc('\n', stdout);
}

static void finding_print_json(const struct stoker_finding *finding)
{
    json_open(NULL, '{');
    json_str("kind", stoker_finding_name(finding->kind));
    json_str("status", stoker_status_name(finding->status));
    json_bool("note", finding->note);
    json_str("shard", finding->shard);
    if (finding->offset != STOKER_NO_OFFSET) {
        json_u64("offset", finding->offset);
    }
    json_str("key", finding->key);
    json_str("extension", finding->extension);
    json_str("what", finding->what);
    json_str("advice", finding->advice);
    json_close('}');
}

static void summary_print(struct stoker_verify *verify, double seconds, bool repair, bool complete)
{
    struct stoker_verify_progress progress = {.struct_size = sizeof progress};
    char samples[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES], shards[TERM_NUMBER_BYTES];
    char time[TERM_NUMBER_BYTES], rate[TERM_NUMBER_BYTES];

    stoker_verify_progress(verify, &progress);
    if (progress.findings > 0) {
        char count[TERM_NUMBER_BYTES];

        printf("%s finding%s", term_count(count, progress.findings),
               progress.findings == 1 ? "" : "s");
        if (progress.findings + progress.notes > progress.findings_kept) {
            printf(" (%s shown)", term_count(count, progress.findings_kept));
        }
    } else {
        fputs(complete ? "clean" : "no findings so far", stdout);
    }
    printf(": %s sample%s in %s %s%s, %s in %s (%s/s)\n", term_count(samples, progress.samples),
           progress.samples == 1 ? "" : "s", term_count(shards, progress.shards),
           progress.bytes_total ? "shard" : "file", progress.shards == 1 ? "" : "s",
           term_bytes(bytes, progress.bytes), term_time(time, seconds),
           term_bytes(rate, (uint64_t)((double)progress.bytes / (seconds > 0 ? seconds : 1))));
    if (repair && progress.findings > 0) {
        printf("repaired: %s %s%s, %s sample%s left out", term_count(shards, progress.repaired),
               progress.bytes_total ? "shard" : "file", progress.repaired == 1 ? "" : "s",
               term_count(samples, progress.dropped), progress.dropped == 1 ? "" : "s");
        if (progress.unverified > 0) {
            printf(", %s kept unverified", term_count(samples, progress.unverified));
        }
        putchar('\n');
    }
}

static void summary_print_json(struct stoker_verify *verify, double seconds)
{
    struct stoker_verify_progress progress = {.struct_size = sizeof progress};

    stoker_verify_progress(verify, &progress);
    json_open(NULL, '{');
    json_str("kind", "summary");
    json_u64("findings", progress.findings);
    json_u64("notes", progress.notes);
    json_u64("shown", progress.findings_kept);
    json_u64("shards", progress.shards);
    json_u64("samples", progress.samples);
    json_u64("members", progress.members);
    json_u64("bytes", progress.bytes);
    json_u64("repaired", progress.repaired);
    json_u64("dropped", progress.dropped);
    json_u64("unproven", progress.unverified);
    json_double("seconds", seconds);
    json_close('}');
}
