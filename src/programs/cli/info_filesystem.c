/* stoker info: file system, server, disk, and advice. */
#include "programs/cli/info_filesystem.h"

#include "programs/cli/terminal.h"

#include <string.h>

#define PATH_BYTES 4096

/* Up to the first character of a pattern, and there up to the last slash. */
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

void mounted_open(struct mounted *mounted, const struct args *args)
{
    char path[PATH_BYTES];

    *mounted = (struct mounted){0};
    for (size_t i = 0; i < args->path_count && mounted->count < MOUNTED_MAX; i++) {
        struct stoker_ground_info *info = &mounted->infos[mounted->count];
        struct stoker_ground *ground = NULL;
        struct stoker_error error = {0};
        bool known = false;
        int status;

        if (!plain_path(args->paths[i], path)) {
            continue;
        }
        status = stoker_ground_open(&ground, path, NULL, &error);
        if (status < 0) {
            mounted->error = mounted->status == 0 ? error : mounted->error;
            mounted->status = mounted->status == 0 ? status : mounted->status;
            continue;
        }
        info->struct_size = sizeof *info;
        stoker_ground_info(ground, info);
        for (uint32_t k = 0; k < mounted->count; k++) {
            known = known || strcmp(mounted->infos[k].mount_point, info->mount_point) == 0;
        }
        if (known) {
            stoker_ground_close(ground);
            continue;
        }
        mounted->is_silent = mounted->is_silent || !info->answers;
        mounted->grounds[mounted->count++] = ground;
    }
}

void mounted_close(struct mounted *mounted)
{
    for (uint32_t i = 0; i < mounted->count; i++) {
        stoker_ground_close(mounted->grounds[i]);
    }
    mounted->count = 0;
}

static int next_advice(const struct mounted *mounted, uint32_t ground, uint32_t index,
                       struct stoker_advice *advice)
{
    *advice = (struct stoker_advice){.struct_size = sizeof *advice};
    return stoker_ground_advice(mounted->grounds[ground], index, advice);
}

int mounted_status(const struct mounted *mounted)
{
    struct stoker_advice advice;

    for (uint32_t i = 0; i < mounted->count; i++) {
        for (uint32_t k = 0; next_advice(mounted, i, k, &advice) == 1; k++) {
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

    return names[presence <= STOKER_PRESENCE_AWAY ? presence : 0];
}

static const char *group_name(uint32_t group)
{
    static const char *const names[] = {"unknown", "memory", "disk", "network", "fuse", "layered"};

    return names[group <= STOKER_GROUND_LAYERED ? group : 0];
}

static void print_text(const char *label, const char *text)
{
    if (text[0]) {
        printf("  %-11s ", label);
        term_text(text);
        putchar('\n');
    }
}

static void print_requests(const struct stoker_ground_info *info)
{
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    if (info->read_bytes != STOKER_NOT_TOLD || info->version[0]) {
        printf("  requests    ");
        if (info->read_bytes != STOKER_NOT_TOLD) {
            printf("reads of %s at most", term_bytes(a, info->read_bytes));
        }
        if (info->write_bytes != STOKER_NOT_TOLD) {
            printf(", writes of %s", term_bytes(a, info->write_bytes));
        }
        if (info->connections != STOKER_NOT_TOLD) {
            printf(", nconnect %llu", (unsigned long long)info->connections);
        }
        putchar('\n');
    }
    if (info->version[0] || info->recovery[0]) {
        printf("  protocol    ");
        term_text(info->version[0] ? info->version : "?");
        printf(" %s %s", info->transport, info->recovery);
        if (info->timeout_tenths != STOKER_NOT_TOLD) {
            printf(", timeo %llu, retrans %llu", (unsigned long long)info->timeout_tenths,
                   (unsigned long long)info->retries);
        }
        putchar('\n');
    }
    if (info->file_fresh_s != STOKER_NOT_TOLD && info->folder_fresh_s != STOKER_NOT_TOLD) {
        printf("  attributes  believed for %llu s (files), %llu s (folders) at most\n",
               (unsigned long long)info->file_fresh_s, (unsigned long long)info->folder_fresh_s);
    }
    if (info->read_ahead_bytes != STOKER_NOT_TOLD) {
        printf("  read-ahead  %s\n", term_bytes(a, info->read_ahead_bytes));
    }
    printf("  cold reads  of %s at most, over gaps of %s\n", term_bytes(a, info->joined_bytes_max),
           term_bytes(b, info->joined_gap_bytes));
}

static void print_storage(const struct stoker_ground_info *info)
{
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    if (info->stripe_count != STOKER_NOT_TOLD) {
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
        printf(", %s", info->rotational == 1 ? "turns" : "does not turn");
        if (info->queue_depth != STOKER_NOT_TOLD) {
            printf(", queue of %llu", (unsigned long long)info->queue_depth);
        }
        if (info->scheduler[0]) {
            printf(", scheduler %s", info->scheduler);
        }
        putchar('\n');
    }
    if (info->bytes_total != STOKER_NOT_TOLD && info->bytes_total > 0) {
        printf("  space       %s of %s free", term_bytes(a, info->bytes_free),
               term_bytes(b, info->bytes_total));
        if (info->files_total > 0) {
            printf(", %s inodes", term_count(a, info->files_free));
        }
        putchar('\n');
    }
    if (info->presence != STOKER_PRESENCE_UNKNOWN) {
        printf("  data        %s", presence_name(info->presence));
        if (info->files_away > 0) {
            printf(": %s of %s files looked at are away, %s", term_count(a, info->files_away),
                   term_count(b, info->files),
                   term_bytes((char[TERM_NUMBER_BYTES]){0}, info->bytes_away));
        }
        printf(" (by: %s)\n", info->presence_from);
    }
}

void mounted_print(const struct mounted *mounted)
{
    struct stoker_advice advice;

    for (uint32_t i = 0; i < mounted->count; i++) {
        const struct stoker_ground_info *info = &mounted->infos[i];

        printf("lies on\n  file system %s (%s)%s%s\n", info->kind, group_name(info->group),
               info->is_read_only ? ", read only" : "", info->answers ? "" : ", DOES NOT ANSWER");
        print_text("mounted at", info->mount_point);
        print_text("source", info->source);
        print_text("server", info->server);
        print_requests(info);
        print_storage(info);
        for (uint32_t k = 0; next_advice(mounted, i, k, &advice) == 1; k++) {
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
    if (value != STOKER_NOT_TOLD) {
        json_u64(key, value);
    }
}

static void json_numbers(const struct stoker_ground_info *info)
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
    json_known("file_fresh_s", info->file_fresh_s);
    json_known("folder_fresh_s", info->folder_fresh_s);
    json_known("read_ahead_bytes", info->read_ahead_bytes);
    json_u64("joined_bytes_max", info->joined_bytes_max);
    json_u64("joined_gap_bytes", info->joined_gap_bytes);
    json_known("stripe_count", info->stripe_count);
    json_known("stripe_bytes", info->stripe_bytes);
    json_known("stripe_parts", info->stripe_parts);
    json_known("queue_depth", info->queue_depth);
    if (info->rotational != STOKER_NOT_TOLD) {
        json_bool("rotational", info->rotational == 1);
    }
}

static void json_ground(const struct mounted *mounted, uint32_t i)
{
    const struct stoker_ground_info *info = &mounted->infos[i];
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
                 {"presence", presence_name(info->presence)}};
    struct stoker_advice advice;

    json_open(NULL, '{');
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        if (texts[k].text[0]) {
            json_str(texts[k].key, texts[k].text);
        }
    }
    json_bool("answers", info->answers);
    json_bool("read_only", info->is_read_only);
    json_numbers(info);
    json_u64("files", info->files);
    json_u64("files_away", info->files_away);
    json_u64("bytes_away", info->bytes_away);
    json_open("advice", '[');
    for (uint32_t k = 0; next_advice(mounted, i, k, &advice) == 1; k++) {
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

void mounted_json(const struct mounted *mounted)
{
    json_open("ground", '[');
    for (uint32_t i = 0; i < mounted->count; i++) {
        json_ground(mounted, i);
    }
    json_close(']');
}
