/* Puts together what the table of mounts, the file system and /sys tell of a path. */
#include "io/filesystem/filesystem.h"

#include "base/mem.h"
#include "io/io.h"
#include "io/small_file.h"
#include "io/user_paths.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#define TIMEOUT_DEFAULT_MS 5000u
#define FILES_DEFAULT 1000u

char *stk_ground_table(const char *prefix)
{
    char path[STK_GROUND_TEXT_BYTES];
    char *text = stk_alloc(1, STK_GROUND_TABLE_BYTES_MAX);

    snprintf(path, sizeof path, "%s/proc/self/mountinfo", prefix);
    if (text && !stk_machine_text(path, text, STK_GROUND_TABLE_BYTES_MAX)) {
        stk_free(text);
        text = NULL;
    }
    return text;
}

static void keep_word(const struct stk_mount_row *row, const char *name, char *out,
                      size_t out_bytes)
{
    struct stk_view value;

    if (stk_mount_option(row, name, &value)) {
        stk_mount_text(value, out, out_bytes);
    }
}

static bool has_word(const struct stk_mount_row *row, const char *name)
{
    struct stk_view value;

    return stk_mount_option(row, name, &value) && value.bytes == 0;
}

static uint64_t larger(const struct stk_mount_row *row, const char *most, const char *same)
{
    uint64_t number = stk_mount_number(row, most, STOKER_NOT_TOLD);

    return number == STOKER_NOT_TOLD ? stk_mount_number(row, same, STOKER_NOT_TOLD) : number;
}

/* As nfs(5) and the file systems' own words have it; the kernel tells acregmin and the like only
 * where they are not the usual ones. */
static void keep_options(struct stoker_ground *ground, const struct stk_mount_row *row)
{
    struct stoker_ground_info *info = &ground->info;
    bool is_nfs = stk_kind_is(ground->kind, "nfs");

    info->read_bytes = larger(row, "rsize", "max_read");
    info->write_bytes = stk_mount_number(row, "wsize", STOKER_NOT_TOLD);
    if (stk_kind_is(ground->kind, "9p")) {
        info->read_bytes = info->write_bytes = stk_mount_number(row, "msize", STOKER_NOT_TOLD);
    }
    info->connections = stk_mount_number(row, "nconnect", is_nfs ? 1 : STOKER_NOT_TOLD);
    keep_word(row, "vers", ground->version, sizeof ground->version);
    keep_word(row, "proto", ground->transport, sizeof ground->transport);
    if (stk_kind_is(ground->kind, "9p")) {
        keep_word(row, "trans", ground->transport, sizeof ground->transport);
    }
    snprintf(ground->recovery, sizeof ground->recovery, "%s",
             has_word(row, "softerr") ? "softerr"
             : has_word(row, "soft")  ? "soft"
             : has_word(row, "hard")  ? "hard"
                                      : "");
    info->timeout_tenths = stk_mount_number(row, "timeo", STOKER_NOT_TOLD);
    info->retries = stk_mount_number(row, "retrans", STOKER_NOT_TOLD);
    info->file_fresh_s = larger(row, "acregmax", "actimeo");
    info->folder_fresh_s = larger(row, "acdirmax", "actimeo");
    if (has_word(row, "noac")) {
        info->file_fresh_s = info->folder_fresh_s = 0;
    } else if (is_nfs) { /* nfs(5): 60 s where nothing is told */
        info->file_fresh_s = info->file_fresh_s == STOKER_NOT_TOLD ? 60 : info->file_fresh_s;
        info->folder_fresh_s = info->folder_fresh_s == STOKER_NOT_TOLD ? 60 : info->folder_fresh_s;
    }
}

static void keep_row(struct stoker_ground *ground, const struct stk_mount_row *row)
{
    struct stk_mount_row plain = {.options = row->options};
    size_t used;

    ground->kind = stk_kind_of(row->type, (uint32_t)ground->told.magic);
    ground->info.major = row->major;
    ground->info.minor = row->minor;
    ground->info.is_read_only = has_word(&plain, "ro") || has_word(row, "ro");
    stk_mount_text(row->point, ground->point, sizeof ground->point);
    stk_mount_text(row->type, ground->type, sizeof ground->type);
    stk_mount_text(row->source, ground->source, sizeof ground->source);
    stk_mount_text(row->options, ground->options, sizeof ground->options / 2);
    used = strlen(ground->options);
    if (used > 0 && row->super.bytes > 0) {
        ground->options[used++] = ',';
    }
    stk_mount_text(row->super, ground->options + used, sizeof ground->options - used);
    if (ground->kind->group == STOKER_GROUND_NETWORK || ground->kind->group == STOKER_GROUND_FUSE) {
        stk_mount_server(row, ground->server, sizeof ground->server);
    }
    keep_options(ground, row);
    ground->requests = stk_requests_of(row);
}

static void keep_reads(struct stoker_ground *ground)
{
    struct stk_reads reads = stk_reads_of(&ground->requests, ground->told.file_block_bytes);

    ground->info.joined_gap_bytes = reads.gap_bytes;
    ground->info.joined_bytes_max = reads.bytes_max;
}

static void keep_told(struct stoker_ground *ground)
{
    struct stoker_ground_info *info = &ground->info;
    const struct stk_ground_told *told = &ground->told;
    const struct stk_ground_files *files = &told->files;

    info->is_folder = told->is_folder;
    if (told->has_space) {
        info->block_bytes = told->block_bytes;
        info->bytes_total = told->bytes_total;
        info->bytes_free = told->bytes_free;
        info->files_total = told->files_total;
        info->files_free = told->files_free;
    }
    if (told->has_layout) {
        info->stripe_count = told->layout.stripe_count;
        info->stripe_bytes = told->layout.stripe_bytes;
        info->stripe_parts = told->layout.parts;
    }
    info->files = files->seen;
    info->bytes = files->bytes;
    info->files_away = files->away;
    info->bytes_away = files->bytes_away;
    if (ground->kind->group == STOKER_GROUND_DISK || ground->kind->group == STOKER_GROUND_MEMORY) {
        info->presence = STOKER_PRESENCE_HERE;
        info->presence_from = "the file system keeps no archive";
    } else if (told->tells_presence && files->seen > 0 &&
               ground->kind->group != STOKER_GROUND_LAYERED) {
        info->presence = files->away == 0             ? STOKER_PRESENCE_HERE
                         : files->away == files->seen ? STOKER_PRESENCE_AWAY
                                                      : STOKER_PRESENCE_PARTLY;
        info->presence_from = stk_kind_is(ground->kind, "lustre") ? "HSM's mark in the layout"
                                                                  : "blocks that files take";
    }
}

void stk_ground_begin(struct stoker_ground *ground)
{
    struct stoker_ground_info *info = &ground->info;
    uint64_t *const numbers[] = {&info->block_bytes,  &info->bytes_total,  &info->bytes_free,
                                 &info->files_total,  &info->files_free,   &info->read_bytes,
                                 &info->write_bytes,  &info->connections,  &info->timeout_tenths,
                                 &info->retries,      &info->file_fresh_s, &info->folder_fresh_s,
                                 &info->stripe_count, &info->stripe_bytes, &info->read_ahead_bytes,
                                 &info->stripe_parts, &info->rotational,   &info->queue_depth,
                                 &info->major,        &info->minor};

    for (size_t i = 0; i < STK_COUNT(numbers); i++) {
        *numbers[i] = STOKER_NOT_TOLD;
    }
    info->path = ground->path;
    info->mount_point = ground->point;
    info->type = ground->type;
    info->source = ground->source;
    info->options = ground->options;
    info->server = ground->server;
    info->version = ground->version;
    info->transport = ground->transport;
    info->recovery = ground->recovery;
    info->pool = ground->told.layout.pool;
    info->device = ground->device;
    info->scheduler = ground->scheduler;
    info->presence_from = "";
}

uint32_t stk_ground_group_of(uint64_t device)
{
    char *table = stk_ground_table("");
    struct stk_view text = {(const uint8_t *)table, table ? strlen(table) : 0};
    uint32_t group = STOKER_GROUND_UNKNOWN;
    struct stk_mount_row row;

    while (stk_mount_next(&text, &row)) {
        if (row.major == major(device) && row.minor == minor(device)) {
            group = stk_kind_of(row.type, 0)->group;
        }
    }
    stk_free(table);
    return group;
}

static bool is_on_fuse(const char *path, const char *prefix)
{
    char *table = stk_ground_table(prefix);
    struct stk_view text = {(const uint8_t *)table, table ? strlen(table) : 0};
    struct stk_mount_row row;
    bool is_fuse = stk_mount_of_path(text, path, &row) && row.type.bytes >= 4 &&
                   memcmp(row.type.data, "fuse", 4) == 0;

    stk_free(table);
    return is_fuse;
}

void stk_ground_judge(struct stoker_ground *ground, const char *prefix)
{
    char *table = stk_ground_table(prefix);
    struct stk_view text = {(const uint8_t *)table, table ? strlen(table) : 0};
    struct stk_mount_row row;

    ground->kind = stk_kind_of((struct stk_view){NULL, 0}, (uint32_t)ground->told.magic);
    ground->info.major = ground->told.major;
    ground->info.minor = ground->told.minor;
    /* By its number, for links lead elsewhere; by its name, where nobody tells the number. */
    if ((ground->told.mount_id > 0 && stk_mount_of_id(text, ground->told.mount_id, &row)) ||
        stk_mount_of_path(text, ground->path, &row)) {
        keep_row(ground, &row);
    }
    stk_free(table);
    ground->info.kind = ground->kind->name;
    ground->info.group = ground->kind->group;
    if (ground->info.answers) {
        keep_told(ground);
    }
    keep_reads(ground);
    stk_ground_device(ground, prefix);
    stk_ground_advise(ground);
}

int stk_ground_look(struct stoker_ground *ground, const struct stk_ground_request *request,
                    struct stoker_error *error)
{
    struct stk_ground_request absolute = *request;
    int status;

    stk_ground_begin(ground);
    if (!stk_machine_absolute(request->path, ground->path, sizeof ground->path)) {
        return stk_fail(error, -ENAMETOOLONG, "the path is too long", "name it from nearer by",
                        "'%.400s'", request->path);
    }
    absolute.path = ground->path;
    absolute.is_fuse = is_on_fuse(ground->path, request->prefix);
    status = stk_ground_ask(&absolute, &ground->told);
    if (status < 0 && status != STOKER_ERROR_TIMEOUT) {
        return stk_fail_errno(error, -status, "cannot look at a path", "check the path", "'%.600s'",
                              request->path);
    }
    ground->info.answers = status == 0;
    stk_ground_judge(ground, request->prefix);
    return 0;
}

int stoker_ground_open(struct stoker_ground **ground_out, const char *path,
                       const struct stoker_ground_options *options, struct stoker_error *error)
{
    struct stoker_ground_options full = {.timeout_ms = TIMEOUT_DEFAULT_MS,
                                         .files_max = FILES_DEFAULT};
    struct stk_ground_request request = {.path = path, .prefix = ""};
    struct stoker_ground *ground;
    int status;

    *ground_out = NULL;
    if (!path || !path[0] || stk_io_is_url(path)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "not a path of this machine",
                        "name a file or a folder", "'%.400s'", path ? path : "");
    }
    if (options && (options->struct_size < sizeof options->struct_size ||
                    options->struct_size > sizeof *options)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the options are unusable", "set struct_size",
                        "ground options");
    }
    if (options) {
        struct stoker_ground_options given = {0};

        memcpy(&given, options, options->struct_size);
        full.timeout_ms = given.timeout_ms ? given.timeout_ms : full.timeout_ms;
        full.files_max = given.files_max ? given.files_max : full.files_max;
    }
    request.timeout_ms = full.timeout_ms;
    request.files_max = full.files_max;
    ground = stk_alloc(1, sizeof *ground);
    if (!ground) {
        return stk_fail(error, -ENOMEM, "cannot look at a path", "free memory", "'%.400s'", path);
    }
    status = stk_ground_look(ground, &request, error);
    if (status < 0) {
        stk_free(ground);
        return status;
    }
    *ground_out = ground;
    return 0;
}

int stoker_ground_info(const struct stoker_ground *ground, struct stoker_ground_info *info)
{
    struct stoker_ground_info full = ground->info;

    if (info->struct_size < sizeof info->struct_size || info->struct_size > sizeof full) {
        return STOKER_ERROR_ARGUMENT;
    }
    full.struct_size = info->struct_size;
    memcpy(info, &full, info->struct_size);
    return 0;
}

int stoker_ground_advice(const struct stoker_ground *ground, uint32_t index,
                         struct stoker_advice *advice)
{
    struct stoker_advice full = {.struct_size = advice->struct_size};
    const struct stk_advice *from = ground->advices;

    if (advice->struct_size < sizeof full.struct_size || advice->struct_size > sizeof full) {
        return STOKER_ERROR_ARGUMENT;
    }
    if (index >= ground->advice_count) {
        return 0;
    }
    from += index;
    full.level = from->level;
    full.what = from->what;
    full.reason = from->reason;
    full.command = from->command;
    memcpy(advice, &full, advice->struct_size);
    return 1;
}

void stoker_ground_close(struct stoker_ground *ground)
{
    stk_free(ground);
}
