/* stoker info: file system, server, disk, and advice. */
#include "programs/cli/info_filesystem.h"

#include "programs/cli/terminal.h"

#include <string.h>

#define PATH_BYTES 4096

/* The part of a path before the first character of a pattern, up to its last slash. */
static bool plain_path(const char *path, char out[PATH_BYTES])
{
    size_t plain = strcspn(path, "*?[{"), bytes = strlen(path);

    if (strstr(path, "://") || bytes >= PATH_BYTES) {
        return false;
    }
    if (plain < bytes) {
        while (plain > 0 && path[plain - 1] != '/') {
            plain--;
        }
        bytes = plain;
    }
    snprintf(out, PATH_BYTES, "%.*s", (int)bytes, bytes ? path : ".");
    if (bytes == 0) {
        snprintf(out, PATH_BYTES, ".");
    }
    return true;
}

void info_filesystem_open(struct info_filesystem *filesystems, const struct args *args)
{
    char path[PATH_BYTES];

    *filesystems = (struct info_filesystem){0};
    for (size_t i = 0; i < args->path_count && filesystems->count < INFO_FILESYSTEMS_MAX; i++) {
        struct stoker_filesystem_info *info = &filesystems->infos[filesystems->count];
        struct stoker_filesystem *ground = NULL;
        struct stoker_error error = {0};
        bool known = false;
        int status;

        if (!plain_path(args->paths[i], path)) {
            continue;
        }
        status = stoker_filesystem_open(&ground, path, NULL, &error);
        if (status < 0) {
            filesystems->error = filesystems->status == 0 ? error : filesystems->error;
            filesystems->status = filesystems->status == 0 ? status : filesystems->status;
            continue;
        }
        info->struct_size = sizeof *info;
        stoker_filesystem_info(ground, info);
        for (uint32_t k = 0; k < filesystems->count; k++) {
            known = known || strcmp(filesystems->infos[k].mount_point, info->mount_point) == 0;
        }
        if (known) {
            stoker_filesystem_close(ground);
            continue;
        }
        filesystems->is_silent = filesystems->is_silent || !info->responds;
        filesystems->grounds[filesystems->count++] = ground;
    }
}

void info_filesystem_close(struct info_filesystem *filesystems)
{
    for (uint32_t i = 0; i < filesystems->count; i++) {
        stoker_filesystem_close(filesystems->grounds[i]);
    }
    filesystems->count = 0;
}

static int next_advice(const struct info_filesystem *filesystems, uint32_t ground, uint32_t index,
                       struct stoker_advice *advice)
{
    *advice = (struct stoker_advice){.struct_size = sizeof *advice};
    return stoker_filesystem_advice(filesystems->grounds[ground], index, advice);
}

int info_filesystem_status(const struct info_filesystem *filesystems)
{
    struct stoker_advice advice;

    for (uint32_t i = 0; i < filesystems->count; i++) {
        for (uint32_t k = 0; next_advice(filesystems, i, k, &advice) == 1; k++) {
            if (advice.level == STOKER_ADVICE_FINDING) {
                return EXIT_FINDINGS;
            }
        }
    }
    return EXIT_FINE;
}

static const char *presence_name(uint32_t presence)
{
    static const char *const names[] = {"unknown", "here", "partly", "away"};

    return names[presence <= STOKER_RESIDENCY_ARCHIVED ? presence : 0];
}

static const char *group_name(uint32_t group)
{
    static const char *const names[] = {"unknown", "memory", "disk", "network", "fuse", "layered"};

    return names[group <= STOKER_FILESYSTEM_LAYERED ? group : 0];
}

static void print_text(const char *label, const char *text)
{
    if (text[0]) {
        printf("  %-11s ", label);
        term_text(text);
        putchar('\n');
    }
}

static void print_requests(const struct stoker_filesystem_info *info)
{
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    if (info->read_bytes != STOKER_UNKNOWN || info->version[0]) {
        printf("  requests    ");
        if (info->read_bytes != STOKER_UNKNOWN) {
            printf("reads of at most %s", term_bytes(a, info->read_bytes));
        }
        if (info->write_bytes != STOKER_UNKNOWN) {
            printf(", writes of %s", term_bytes(a, info->write_bytes));
        }
        if (info->connections != STOKER_UNKNOWN) {
            printf(", nconnect %llu", (unsigned long long)info->connections);
        }
        putchar('\n');
    }
    if (info->version[0] || info->recovery[0]) {
        printf("  protocol    ");
        term_text(info->version[0] ? info->version : "?");
        printf(" %s %s", info->transport, info->recovery);
        if (info->timeout_tenths != STOKER_UNKNOWN) {
            printf(", timeo %llu, retrans %llu", (unsigned long long)info->timeout_tenths,
                   (unsigned long long)info->retries);
        }
        putchar('\n');
    }
    if (info->file_attribute_cache_s != STOKER_UNKNOWN &&
        info->folder_attribute_cache_s != STOKER_UNKNOWN) {
        printf("  attributes  cached for at most %llu s (files), %llu s (folders)\n",
               (unsigned long long)info->file_attribute_cache_s,
               (unsigned long long)info->folder_attribute_cache_s);
    }
    if (info->read_ahead_bytes != STOKER_UNKNOWN) {
        printf("  read-ahead  %s\n", term_bytes(a, info->read_ahead_bytes));
    }
    printf("  cold reads  of at most %s, across gaps up to %s\n",
           term_bytes(a, info->coalesce_bytes_max), term_bytes(b, info->coalesce_gap_bytes));
}

static void print_storage(const struct stoker_filesystem_info *info)
{
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    if (info->stripe_count != STOKER_UNKNOWN) {
        if (info->stripe_count == UINT32_MAX) {
            printf("  stripes     over all servers");
        } else {
            printf("  stripes     %s", term_count(a, info->stripe_count));
        }
        printf(" of %s, %s parts", term_bytes(a, info->stripe_bytes),
               term_count(b, info->stripe_parts));
        if (info->pool[0]) {
            printf(", pool ");
            term_text(info->pool);
        }
        putchar('\n');
    }
    if (info->device[0]) {
        printf("  disk        ");
        term_text(info->device);
        printf(", %s", info->rotational == 1 ? "rotational" : "solid state");
        if (info->queue_depth != STOKER_UNKNOWN) {
            printf(", queue of %llu", (unsigned long long)info->queue_depth);
        }
        if (info->scheduler[0]) {
            printf(", scheduler %s", info->scheduler);
        }
        putchar('\n');
    }
    if (info->bytes_total != STOKER_UNKNOWN && info->bytes_total > 0) {
        printf("  space       %s of %s free", term_bytes(a, info->bytes_free),
               term_bytes(b, info->bytes_total));
        if (info->files_total > 0) {
            printf(", %s inodes", term_count(a, info->files_free));
        }
        putchar('\n');
    }
    if (info->residency != STOKER_RESIDENCY_UNKNOWN) {
        printf("  data        %s", presence_name(info->residency));
        if (info->files_archived > 0) {
            printf(": %s of %s inspected files are archived, %s",
                   term_count(a, info->files_archived), term_count(b, info->files),
                   term_bytes((char[TERM_NUMBER_BYTES]){0}, info->bytes_archived));
        }
        printf(" (source: %s)\n", info->residency_source);
    }
}

void info_filesystem_print(const struct info_filesystem *filesystems)
{
    struct stoker_advice advice;

    for (uint32_t i = 0; i < filesystems->count; i++) {
        const struct stoker_filesystem_info *info = &filesystems->infos[i];

        printf("storage\n  file system %s (%s)%s%s\n", info->kind, group_name(info->group),
               info->is_read_only ? ", read only" : "", info->responds ? "" : ", DOES NOT RESPOND");
        print_text("mounted at", info->mount_point);
        print_text("source", info->source);
        print_text("server", info->server);
        print_requests(info);
        print_storage(info);
        for (uint32_t k = 0; next_advice(filesystems, i, k, &advice) == 1; k++) {
            printf("  %-11s ", advice.level == STOKER_ADVICE_FINDING ? "FINDING" : "hint");
            term_text(advice.what);
            printf("\n              ");
            term_text(advice.reason);
            if (advice.command[0]) {
                printf("\n              run: ");
                term_text(advice.command);
            }
            putchar('\n');
        }
    }
}

static void json_known(const char *key, uint64_t value)
{
    if (value != STOKER_UNKNOWN) {
        json_u64(key, value);
    }
}

static void json_numbers(const struct stoker_filesystem_info *info)
{
    json_known("block_bytes", info->block_bytes);
    json_known("bytes_total", info->bytes_total);
    json_known("bytes_free", info->bytes_free);
    json_known("inodes_total", info->files_total);
    json_known("inodes_free", info->files_free);
    json_known("read_bytes", info->read_bytes);
    json_known("write_bytes", info->write_bytes);
    json_known("connections", info->connections);
    json_known("timeout_tenths", info->timeout_tenths);
    json_known("retries", info->retries);
    json_known("file_fresh_s", info->file_attribute_cache_s);
    json_known("folder_fresh_s", info->folder_attribute_cache_s);
    json_known("read_ahead_bytes", info->read_ahead_bytes);
    json_u64("joined_bytes_max", info->coalesce_bytes_max);
    json_u64("joined_gap_bytes", info->coalesce_gap_bytes);
    json_known("stripe_count", info->stripe_count);
    json_known("stripe_bytes", info->stripe_bytes);
    json_known("stripe_parts", info->stripe_parts);
    json_known("queue_depth", info->queue_depth);
    if (info->rotational != STOKER_UNKNOWN) {
        json_bool("rotational", info->rotational == 1);
    }
}

static void json_ground(const struct info_filesystem *filesystems, uint32_t i)
{
    const struct stoker_filesystem_info *info = &filesystems->infos[i];
    const struct {
        const char *key, *text;
    } texts[] = {{"path", info->path},
                 {"kind", info->kind},
                 {"group", group_name(info->group)},
                 {"mount_point", info->mount_point},
                 {"type", info->type},
                 {"source", info->source},
                 {"options", info->options},
                 {"server", info->server},
                 {"version", info->version},
                 {"transport", info->transport},
                 {"recovery", info->recovery},
                 {"pool", info->pool},
                 {"device", info->device},
                 {"scheduler", info->scheduler},
                 {"presence", presence_name(info->residency)}};
    struct stoker_advice advice;

    json_open(NULL, '{');
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        if (texts[k].text[0]) {
            json_str(texts[k].key, texts[k].text);
        }
    }
    json_bool("answers", info->responds);
    json_bool("read_only", info->is_read_only);
    json_numbers(info);
    json_u64("files", info->files);
    json_u64("files_away", info->files_archived);
    json_u64("bytes_away", info->bytes_archived);
    json_open("advice", '[');
    for (uint32_t k = 0; next_advice(filesystems, i, k, &advice) == 1; k++) {
        json_open(NULL, '{');
        json_str("level", advice.level == STOKER_ADVICE_FINDING ? "finding" : "hint");
        json_str("what", advice.what);
        json_str("reason", advice.reason);
        json_str("command", advice.command);
        json_close('}');
    }
    json_close(']');
    json_close('}');
}

void info_filesystem_json(const struct info_filesystem *filesystems)
{
    json_open("ground", '[');
    for (uint32_t i = 0; i < filesystems->count; i++) {
        json_ground(filesystems, i);
    }
    json_close(']');
}
