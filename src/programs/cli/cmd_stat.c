/* stoker stat, ls --files, cat of one file: attributes and bytes of files and objects. */
#include "programs/cli/cmd_stat.h"

#include "programs/cli/command.h"
#include "programs/cli/path_args.h"
#include "programs/cli/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CAT_BYTES (32u << 20) /* of one read: four concurrent ranges of an object */
#define WAIT_MS 1000

static int run(struct args *args);

const struct command command_stat = {
    .name = "stat",
    .bit = COMMAND_STAT,
    .usage = "[options] PATH...",
    .summary = "Size, time and version of files and objects",
    .more = "Objects: shows the storage class, too; whether an archived object, which cannot be\n"
            "read, is being restored; and until when a restored one is readable.\n",
    .run = run,
};

static const char *kind_name(uint32_t kind)
{
    return kind == STOKER_FILE ? "file" : kind == STOKER_FOLDER ? "folder" : "other";
}

static const char *time_text(uint64_t mtime_ns, char text[32])
{
    time_t seconds = (time_t)(mtime_ns / 1000000000u);
    struct tm parts;

    if (mtime_ns == 0 || !gmtime_r(&seconds, &parts) ||
        strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
        snprintf(text, 32, "-");
    }
    return text;
}

static const char *archive_name(uint32_t archive)
{
    return archive == STOKER_ARCHIVE_ARCHIVED    ? "archived"
           : archive == STOKER_ARCHIVE_RESTORING ? "being restored"
           : archive == STOKER_ARCHIVE_RESTORED  ? "restored"
                                                 : "";
}

static void print_json(const char *path, const struct stoker_file_info *info)
{
    char when[32];

    json_open(NULL, '{');
    json_str("path", path);
    json_str("kind", kind_name(info->kind));
    if (info->kind == STOKER_FILE) {
        json_u64("bytes", info->bytes);
    }
    if (info->mtime_ns > 0) {
        json_str("modified", time_text(info->mtime_ns, when));
    }
    if (info->etag[0]) {
        json_str("etag", info->etag);
    }
    if (info->storage_class[0]) {
        json_str("storage_class", info->storage_class);
    }
    if (info->archive != STOKER_ARCHIVE_NONE) {
        json_str("archive", archive_name(info->archive));
    }
    if (info->restored_until_ns > 0) {
        json_str("restored_until", time_text(info->restored_until_ns, when));
    }
    json_close('}');
}

static void print_text(const char *path, const struct stoker_file_info *info)
{
    char when[32], bytes[TERM_NUMBER_BYTES];

    term_text(path);
    printf("\n  %s", kind_name(info->kind));
    if (info->kind == STOKER_FILE) {
        printf(", %s bytes", term_count(bytes, info->bytes));
    }
    printf(", %s%s", time_text(info->mtime_ns, when), info->etag[0] ? ", " : "");
    term_text(info->etag);
    if (info->storage_class[0] || info->archive != STOKER_ARCHIVE_NONE) {
        printf("\n  storage class ");
        term_text(info->storage_class[0] ? info->storage_class : "unknown");
        printf("%s%s", info->archive != STOKER_ARCHIVE_NONE ? ", " : "",
               archive_name(info->archive));
    }
    if (info->restored_until_ns > 0) {
        printf(" until %s", time_text(info->restored_until_ns, when));
    }
    putchar('\n');
}

static int run(struct args *args)
{
    static struct stoker_file_info info;
    struct stoker_engine *engine = NULL;
    int status, worst = EXIT_FINE;

    if (args->path_count == 0) {
        return command_no_path(&command_stat);
    }
    status = command_open_files(args, &engine);
    for (size_t i = 0; i < args->path_count && status == EXIT_FINE; i++) {
        struct stoker_error error = {0};
        int found;

        info.struct_size = sizeof info;
        found = stoker_stat(engine, args->paths[i], &info, &error);
        if (found < 0) {
            int one = term_error(found, &error);

            worst = one > worst ? one : worst;
        } else if (args->json) {
            print_json(args->paths[i], &info);
        } else {
            print_text(args->paths[i], &info);
        }
    }
    stoker_engine_close(engine);
    return status != EXIT_FINE ? status : worst;
}

int stat_list_files(struct stoker_engine *engine, const struct args *args, const char *path)
{
    static struct stoker_file_info info;
    uint64_t limit = args->limit ? args->limit : UINT64_MAX;
    struct stoker_walk *walk = NULL;
    struct stoker_error error = {0};
    int status = stoker_walk_open(&walk, engine, path, args->recursive, &error);
    char when[32];

    for (uint64_t i = 0; (status >= 0 || status == STOKER_ERROR_AGAIN) && i < limit;) {
        info.struct_size = sizeof info;
        status = stoker_walk_next(walk, WAIT_MS, &info, &error);
        if (status == 0 || term_closed()) {
            break;
        }
        if (status < 0) {
            continue;
        }
        i++;
        if (args->json) {
            print_json(info.name[0] ? info.name : path, &info);
            continue;
        }
        if (info.kind == STOKER_FILE) {
            printf("%14llu  %s  ", (unsigned long long)info.bytes, time_text(info.mtime_ns, when));
        } else {
            printf("%14s  %-20s  ", "-", "-");
        }
        term_text(info.name[0] ? info.name : path);
        puts(info.kind == STOKER_FOLDER ? "/" : "");
    }
    stoker_walk_close(walk);
    return status < 0 && status != STOKER_ERROR_AGAIN ? term_error(status, &error) : EXIT_FINE;
}

int stat_write_file(struct stoker_engine *engine, const char *path)
{
    struct stoker_file *file = NULL;
    struct stoker_error error = {0};
    char *buffer = malloc(CAT_BYTES);
    int64_t got = buffer ? 1 : -12;
    uint64_t offset = 0;
    int status = stoker_file_open(&file, engine, path, NULL, &error);

    if (status < 0) {
        free(buffer);
        return term_error(status, &error);
    }
    while (got > 0 && !term_closed()) {
        got = stoker_file_read(file, offset, buffer, CAT_BYTES, &error);
        if (got > 0) {
            fwrite(buffer, 1, (size_t)got, stdout);
            offset += (uint64_t)got;
        }
    }
    stoker_file_close(file);
    free(buffer);
    return got < 0 ? term_error((int)got, &error) : EXIT_FINE;
}
