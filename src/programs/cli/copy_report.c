/* Notes, results and lists of names of stoker cp, sync, mv and rm. */
#include "programs/cli/copy_report.h"

#include "programs/cli/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAMES_STEP 65536u

/* Copies the text at *used of the buffer, and moves *used after it. */
static const char *keep_text(char **used, const char *text)
{
    size_t bytes = strlen(text) + 1;
    const char *copy = memcpy(*used, text, bytes);

    *used += bytes;
    return copy;
}

/* Keeps what the JSON object prints of a note: a note itself has 18 KiB. */
static void keep_note(struct copy_report *report, const struct stoker_copy_note *note)
{
    const struct stoker_error *failure = &note->failure;
    char *at, *text = malloc(strlen(note->name) + strlen(note->to) + strlen(failure->what) +
                             strlen(failure->where) + strlen(failure->advice) + 5);

    if (text && report->count == report->capacity) {
        size_t more = report->capacity ? 2 * report->capacity : 16;
        struct copy_report_note *notes = realloc(report->notes, more * sizeof *notes);

        report->notes = notes ? notes : report->notes;
        report->capacity = notes ? more : report->capacity;
    }
    if (!text || report->count == report->capacity) {
        free(text);
        return; /* the counts include it */
    }
    at = text;
    report->notes[report->count++] = (struct copy_report_note){
        .text = text,
        .kind = note->kind,
        .status = failure->status,
        .name = keep_text(&at, note->name),
        .to = keep_text(&at, note->to),
        .what = keep_text(&at, failure->what),
        .where = keep_text(&at, failure->where),
        .advice = keep_text(&at, failure->advice),
    };
}

void copy_report_deinit(struct copy_report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        free(report->notes[i].text);
    }
    free(report->notes);
    report->notes = NULL;
    report->count = report->capacity = 0;
}

static void print_note(struct copy_report *report, const struct stoker_copy_note *note)
{
    switch ((enum stoker_copy_note_kind)note->kind) {
    case STOKER_NOTE_FAILED:
        term_live_end();
        (void)term_error(note->failure.status, &note->failure);
        break;
    case STOKER_NOTE_SYSTEM_FILE:
        break; /* only counted, or listed by --json */
    case STOKER_NOTE_LEFT_OUT:
        term_live_end();
        term_fail_name("left out: a link, device or pipe", 0, note->name,
                       "links out of the source and links to folders are not copied; copy their "
                       "targets by name");
        break;
    case STOKER_NOTE_NOT_DELETED:
        term_live_end();
        term_fail_name(
            "not deleted", 0, note->name,
            "the source has a link, device or pipe there: remove it by name if it is extra");
        break;
    case STOKER_NOTE_WOULD_COPY:
        printf("would copy    ");
        term_text(note->name);
        printf(" to ");
        term_text(note->to);
        printf("\n");
        break;
    case STOKER_NOTE_WOULD_REMOVE:
        printf("would remove  ");
        term_text(note->name);
        printf("\n");
        break;
    }
    (void)report;
}

void copy_report_take(struct copy_report *report)
{
    static struct stoker_copy_note note; /* large */

    for (;;) {
        note = (struct stoker_copy_note){.struct_size = sizeof note};
        if (stoker_copy_next_note(report->copy, &note, NULL) != 1) {
            return;
        }
        report->left_out += note.kind == STOKER_NOTE_LEFT_OUT;
        if (note.kind == STOKER_NOTE_FAILED && report->failed.status == 0) {
            report->failed = note.failure;
        }
        if (report->json) {
            keep_note(report, &note);
        }
        if (!report->json || note.kind == STOKER_NOTE_FAILED) {
            print_note(report, &note);
        }
    }
}

int copy_report_failure(struct copy_report *report, int status, const struct stoker_error *error)
{
    bool printed = report->failed.status < 0 && strcmp(report->failed.what, error->what) == 0 &&
                   strcmp(report->failed.where, error->where) == 0;

    term_live_end();
    return printed ? term_exit_status(status) : term_error(status, error);
}

static void json_names(const struct copy_report *report, const char *key, uint32_t kind)
{
    json_open(key, '[');
    for (size_t i = 0; i < report->count; i++) {
        const struct copy_report_note *note = &report->notes[i];

        if (note->kind != kind) {
            continue;
        }
        if (kind == STOKER_NOTE_FAILED) {
            json_open(NULL, '{');
            json_str("name", note->name);
            json_str("what", note->what);
            json_str("where", note->where);
            json_str("advice", note->advice);
            json_str("status", stoker_status_name(note->status));
            json_close('}');
        } else if (kind == STOKER_NOTE_WOULD_COPY) {
            json_open(NULL, '{');
            json_str("from", note->name);
            json_str("to", note->to);
            json_close('}');
        } else {
            json_str(NULL, note->name);
        }
    }
    json_close(']');
}

static void report_json(const struct copy_report *report)
{
    const struct stoker_copy_progress *progress = &report->progress;

    json_open(NULL, '{');
    json_u64("files", progress->files);
    json_u64("bytes", progress->bytes);
    json_u64("files_done", progress->files_done);
    json_u64("bytes_done", progress->bytes_done);
    json_u64("files_kept", progress->files_skipped);
    json_u64("bytes_kept", progress->bytes_skipped);
    json_u64("files_removed", progress->files_removed);
    json_u64("files_failed", progress->files_failed);
    json_u64("links_left_out", progress->links_left_out);
    json_u64("system_files_left_out", progress->system_files_left_out);
    json_u64("files_spared", progress->files_not_deleted);
    json_double("seconds", (double)progress->run_ns / 1e9);
    json_names(report, "failures", STOKER_NOTE_FAILED);
    json_names(report, "left_out", STOKER_NOTE_LEFT_OUT);
    json_names(report, "system_files", STOKER_NOTE_SYSTEM_FILE);
    json_names(report, "not_deleted", STOKER_NOTE_NOT_DELETED);
    if (report->dry_run) {
        json_names(report, "would_copy", STOKER_NOTE_WOULD_COPY);
        json_names(report, "would_remove", STOKER_NOTE_WOULD_REMOVE);
    }
    json_close('}');
}

void copy_report_print(struct copy_report *report, uint32_t kind)
{
    const struct stoker_copy_progress *progress = &report->progress;
    double seconds = (double)progress->run_ns / 1e9;
    uint64_t moved = progress->bytes_done - progress->bytes_skipped;
    char files[TERM_NUMBER_BYTES], bytes[TERM_NUMBER_BYTES], rate[TERM_NUMBER_BYTES];
    char time[TERM_NUMBER_BYTES];

    if (report->json) {
        report_json(report);
        return;
    }
    if (report->dry_run && kind != STOKER_REMOVE) {
        printf("would copy %s files, %s\n",
               term_count(files, progress->files_done - progress->files_skipped),
               term_bytes(bytes, moved));
    } else if (kind != STOKER_REMOVE) {
        printf("copied     %s files, %s in %s, %s/s\n",
               term_count(files, progress->files_done - progress->files_skipped),
               term_bytes(bytes, moved), term_time(time, seconds),
               term_bytes(rate, seconds > 0 ? (uint64_t)((double)moved / seconds) : 0));
    }
    if (progress->files_skipped > 0 || progress->bytes_skipped > 0) {
        printf("skipped    %s files, %s that existed\n", term_count(files, progress->files_skipped),
               term_bytes(bytes, progress->bytes_skipped));
    }
    if (progress->files_removed > 0 || kind == STOKER_REMOVE) {
        printf("%s%s\n", report->dry_run ? "would remove " : "removed    ",
               term_count(files, progress->files_removed));
    }
    if (progress->links_left_out > 0) {
        printf("left out   %s links, devices and pipes\n",
               term_count(files, progress->links_left_out));
    }
    if (progress->system_files_left_out > 0) {
        printf("left out   %s files of operating systems (--system-files copies them)\n",
               term_count(files, progress->system_files_left_out));
    }
    if (progress->files_not_deleted > 0) {
        printf("not deleted %s files: the destination has something else at or below them\n",
               term_count(files, progress->files_not_deleted));
    }
    if (progress->files_failed > 0) {
        printf("failed     %s files\n", term_count(files, progress->files_failed));
    }
}

/* ---- names of --files-from ---- */

static int fail_names(const char *path, const char *what, int number)
{
    return term_fail_name(what, number, path,
                          "--files-from takes a file with one name a line, or '-' for stdin");
}

/* Returns NULL and sets errno if the text cannot be read, or is too long. */
static char *read_text(const char *path, size_t *bytes_out)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    size_t used = 0, capacity = 0, got = 1;
    char *text = NULL;
    int number = 0;

    while (file && got > 0 && used < COPY_NAMES_BYTES_MAX) {
        if (capacity - used < NAMES_STEP) {
            char *more = realloc(text, 2 * capacity + 2 * NAMES_STEP);

            if (!more) {
                break;
            }
            text = more;
            capacity = 2 * capacity + 2 * NAMES_STEP;
        }
        got = fread(text + used, 1, capacity - used - 1, file);
        used += got;
    }
    if (!file || got > 0 || ferror(file)) {
        number = !file || ferror(file) ? errno : used >= COPY_NAMES_BYTES_MAX ? EFBIG : ENOMEM;
        free(text);
        text = NULL;
    } else {
        text[used] = '\0';
    }
    if (file && file != stdin) {
        fclose(file);
    }
    *bytes_out = used;
    errno = number;
    return text;
}

int copy_names_read(const char *path, const char *const **names_out, size_t *count_out)
{
    size_t bytes, count = 0, limit = 1;
    char *read = read_text(path, &bytes), *text, end;
    const char **names;

    if (!read) {
        return fail_names(path, "cannot read the list of names", errno);
    }
    end = memchr(read, '\0', bytes) ? '\0' : '\n';
    for (size_t i = 0; i < bytes; i++) {
        limit += read[i] == end;
    }
    names = malloc(limit * sizeof *names + bytes + 1);
    if (!names) {
        free(read);
        return fail_names(path, "out of memory for the list of names", 0);
    }
    text = (char *)(names + limit);
    memcpy(text, read, bytes + 1);
    free(read);
    for (size_t at = 0; at < bytes;) {
        char *stop = memchr(text + at, end, bytes - at);
        size_t name_bytes = stop ? (size_t)(stop - text) - at : bytes - at;

        text[at + name_bytes] = '\0';
        if (name_bytes > 0) {
            names[count++] = text + at;
        }
        at += name_bytes + 1;
    }
    *names_out = names;
    *count_out = count;
    if (count == 0) {
        free(names);
        *names_out = NULL;
        return fail_names(path, "the list of names is empty", 0);
    }
    return EXIT_FINE;
}
