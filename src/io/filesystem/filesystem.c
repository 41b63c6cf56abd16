/* Collects what the mount table, the file system and /sys report about a path. */
#include "io/filesystem/filesystem.h"

#include "base/mem.h"
#include "base/options.h"
#include "io/io.h"
#include "io/small_file.h"
#include "io/user_paths.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#define TIMEOUT_DEFAULT_MS 5000u
#define FILES_DEFAULT 1000u

static void set_option_text(const struct stk_mount_row *row, const char *name, char *out,
                            size_t out_bytes)
{
    struct stk_view value;

    if (stk_mount_option(row, name, &value)) {
        stk_mount_unescape(value, out, out_bytes);
    }
}

static bool has_word(const struct stk_mount_row *row, const char *name)
{
    struct stk_view value;

    return stk_mount_option(row, name, &value) && value.bytes == 0;
}

static uint64_t larger_option(const struct stk_mount_row *row, const char *most, const char *same)
{
    uint64_t number = stk_mount_number(row, most, STOKER_UNKNOWN);

    return number == STOKER_UNKNOWN ? stk_mount_number(row, same, STOKER_UNKNOWN) : number;
}

/* Options as in nfs(5) and the documentation of other file systems. The kernel shows acregmin and
 * similar options only if they differ from the default. */
static void set_options(struct stoker_filesystem *filesystem, const struct stk_mount_row *row)
{
    struct stoker_filesystem_info *info = &filesystem->info;
    bool is_nfs = stk_filesystem_type_is(filesystem->kind, "nfs");

    info->read_bytes = larger_option(row, "rsize", "max_read");
    info->write_bytes = stk_mount_number(row, "wsize", STOKER_UNKNOWN);
    if (stk_filesystem_type_is(filesystem->kind, "9p")) {
        info->read_bytes = info->write_bytes = stk_mount_number(row, "msize", STOKER_UNKNOWN);
    }
    info->connections = stk_mount_number(row, "nconnect", is_nfs ? 1 : STOKER_UNKNOWN);
    set_option_text(row, "vers", filesystem->version, sizeof filesystem->version);
    set_option_text(row, "proto", filesystem->transport, sizeof filesystem->transport);
    if (stk_filesystem_type_is(filesystem->kind, "9p")) {
        set_option_text(row, "trans", filesystem->transport, sizeof filesystem->transport);
    }
    snprintf(filesystem->recovery, sizeof filesystem->recovery, "%s",
             has_word(row, "softerr") ? "softerr"
             : has_word(row, "soft")  ? "soft"
             : has_word(row, "hard")  ? "hard"
                                      : "");
    info->timeout_tenths = stk_mount_number(row, "timeo", STOKER_UNKNOWN);
    info->retries = stk_mount_number(row, "retrans", STOKER_UNKNOWN);
    info->file_attribute_cache_s = larger_option(row, "acregmax", "actimeo");
    info->folder_attribute_cache_s = larger_option(row, "acdirmax", "actimeo");
    if (has_word(row, "noac")) {
        info->file_attribute_cache_s = info->folder_attribute_cache_s = 0;
    } else if (is_nfs) { /* nfs(5): the default is 60 s */
        info->file_attribute_cache_s =
            info->file_attribute_cache_s == STOKER_UNKNOWN ? 60 : info->file_attribute_cache_s;
        info->folder_attribute_cache_s =
            info->folder_attribute_cache_s == STOKER_UNKNOWN ? 60 : info->folder_attribute_cache_s;
    }
}

static void set_mount(struct stoker_filesystem *filesystem, const struct stk_mount_row *row)
{
    struct stk_mount_row plain = {.options = row->options};
    size_t used;

    filesystem->kind = stk_filesystem_type_of(row->type, (uint32_t)filesystem->probe.magic);
    filesystem->info.major = row->major;
    filesystem->info.minor = row->minor;
    filesystem->info.is_read_only = has_word(&plain, "ro") || has_word(row, "ro");
    stk_mount_unescape(row->point, filesystem->point, sizeof filesystem->point);
    stk_mount_unescape(row->type, filesystem->type, sizeof filesystem->type);
    stk_mount_unescape(row->source, filesystem->source, sizeof filesystem->source);
    stk_mount_unescape(row->options, filesystem->options, sizeof filesystem->options / 2);
    used = strlen(filesystem->options);
    if (used > 0 && row->super.bytes > 0) {
        filesystem->options[used++] = ',';
    }
    stk_mount_unescape(row->super, filesystem->options + used, sizeof filesystem->options - used);
    if (filesystem->kind->group == STOKER_FILESYSTEM_NETWORK ||
        filesystem->kind->group == STOKER_FILESYSTEM_FUSE) {
        stk_mount_server(row, filesystem->server, sizeof filesystem->server);
    }
    set_options(filesystem, row);
    filesystem->requests = stk_request_size_of(row);
}

static void set_read_sizes(struct stoker_filesystem *filesystem)
{
    struct stk_read_sizes reads =
        stk_read_size_of(&filesystem->requests, filesystem->probe.file_block_bytes);

    filesystem->info.coalesce_gap_bytes = reads.gap_bytes;
    filesystem->info.coalesce_bytes_max = reads.bytes_max;
}

static void set_probe_info(struct stoker_filesystem *filesystem)
{
    struct stoker_filesystem_info *info = &filesystem->info;
    const struct stk_mount_probe_info *probe = &filesystem->probe;
    const struct stk_filesystem_files *files = &probe->files;

    info->is_folder = probe->is_folder;
    if (probe->has_space) {
        info->block_bytes = probe->block_bytes;
        info->bytes_total = probe->bytes_total;
        info->bytes_free = probe->bytes_free;
        info->files_total = probe->files_total;
        info->files_free = probe->files_free;
    }
    if (probe->has_layout) {
        info->stripe_count = probe->layout.stripe_count;
        info->stripe_bytes = probe->layout.stripe_bytes;
        info->stripe_parts = probe->layout.parts;
    }
    info->files = files->seen;
    info->bytes = files->bytes;
    info->files_archived = files->archived;
    info->bytes_archived = files->bytes_archived;
    if (filesystem->kind->group == STOKER_FILESYSTEM_DISK ||
        filesystem->kind->group == STOKER_FILESYSTEM_MEMORY) {
        info->residency = STOKER_RESIDENCY_RESIDENT;
        info->residency_source = "the file system keeps no archive";
    } else if (probe->has_residency && files->seen > 0 &&
               filesystem->kind->group != STOKER_FILESYSTEM_LAYERED) {
        info->residency = files->archived == 0             ? STOKER_RESIDENCY_RESIDENT
                          : files->archived == files->seen ? STOKER_RESIDENCY_ARCHIVED
                                                           : STOKER_RESIDENCY_PARTIAL;
        info->residency_source = stk_filesystem_type_is(filesystem->kind, "lustre")
                                     ? "HSM's mark in the layout"
                                     : "blocks that files take";
    }
}

void stk_filesystem_init(struct stoker_filesystem *filesystem)
{
    struct stoker_filesystem_info *info = &filesystem->info;
    uint64_t *const numbers[] = {&info->block_bytes,
                                 &info->bytes_total,
                                 &info->bytes_free,
                                 &info->files_total,
                                 &info->files_free,
                                 &info->read_bytes,
                                 &info->write_bytes,
                                 &info->connections,
                                 &info->timeout_tenths,
                                 &info->retries,
                                 &info->file_attribute_cache_s,
                                 &info->folder_attribute_cache_s,
                                 &info->stripe_count,
                                 &info->stripe_bytes,
                                 &info->read_ahead_bytes,
                                 &info->stripe_parts,
                                 &info->rotational,
                                 &info->queue_depth,
                                 &info->major,
                                 &info->minor};

    for (size_t i = 0; i < STK_COUNT(numbers); i++) {
        *numbers[i] = STOKER_UNKNOWN;
    }
    info->path = filesystem->path;
    info->mount_point = filesystem->point;
    info->type = filesystem->type;
    info->source = filesystem->source;
    info->options = filesystem->options;
    info->server = filesystem->server;
    info->version = filesystem->version;
    info->transport = filesystem->transport;
    info->recovery = filesystem->recovery;
    info->pool = filesystem->probe.layout.pool;
    info->device = filesystem->device;
    info->scheduler = filesystem->scheduler;
    info->residency_source = "";
}

bool stk_filesystem_has_free_reads(struct stk_io *io, const char *path, uint64_t *free_device)
{
    struct stk_stat about;
    uint32_t group;

    if (stk_io_is_url(path)) {
        return false;
    }
    if (stk_io_stat_path(io, path, &about, NULL) < 0) {
        return true;
    }
    if (about.device != 0 && about.device == *free_device) {
        return true;
    }
    group = stk_filesystem_group_of(about.device);
    if (group == STOKER_FILESYSTEM_NETWORK || group == STOKER_FILESYSTEM_FUSE) {
        return false;
    }
    *free_device = about.device;
    return true;
}

uint32_t stk_filesystem_group_of(uint64_t device)
{
    char *table = stk_mountinfo_read("");
    struct stk_view text = {(const uint8_t *)table, table ? strlen(table) : 0};
    uint32_t group = STOKER_FILESYSTEM_UNKNOWN;
    struct stk_mount_row row;

    while (stk_mount_next(&text, &row)) {
        if (row.major == major(device) && row.minor == minor(device)) {
            group = stk_filesystem_type_of(row.type, 0)->group;
        }
    }
    stk_free(table);
    return group;
}

static bool is_fuse_path(const char *path, const char *prefix)
{
    char *table = stk_mountinfo_read(prefix);
    struct stk_view text = {(const uint8_t *)table, table ? strlen(table) : 0};
    struct stk_mount_row row;
    bool is_fuse = stk_mount_of_path(text, path, &row) && row.type.bytes >= 4 &&
                   memcmp(row.type.data, "fuse", 4) == 0;

    stk_free(table);
    return is_fuse;
}

void stk_filesystem_evaluate(struct stoker_filesystem *filesystem, const char *prefix)
{
    char *table = stk_mountinfo_read(prefix);
    struct stk_view text = {(const uint8_t *)table, table ? strlen(table) : 0};
    struct stk_mount_row row;

    filesystem->kind =
        stk_filesystem_type_of((struct stk_view){NULL, 0}, (uint32_t)filesystem->probe.magic);
    filesystem->info.major = filesystem->probe.major;
    filesystem->info.minor = filesystem->probe.minor;
    /* By the ID of the mount, since the path may have links; by the path if the ID is unknown. */
    if ((filesystem->probe.mount_id > 0 &&
         stk_mount_of_id(text, filesystem->probe.mount_id, &row)) ||
        stk_mount_of_path(text, filesystem->path, &row)) {
        set_mount(filesystem, &row);
    }
    stk_free(table);
    filesystem->info.kind = filesystem->kind->name;
    filesystem->info.group = filesystem->kind->group;
    if (filesystem->info.responds) {
        set_probe_info(filesystem);
    }
    set_read_sizes(filesystem);
    stk_block_device_read(filesystem, prefix);
    stk_mount_advise(filesystem);
}

int stk_filesystem_inspect(struct stoker_filesystem *filesystem,
                           const struct stk_filesystem_request *request, struct stoker_error *error)
{
    struct stk_filesystem_request absolute = *request;
    int status;

    stk_filesystem_init(filesystem);
    if (!stk_path_absolute(request->path, filesystem->path, sizeof filesystem->path)) {
        return stk_fail(error, -ENAMETOOLONG, "the path is too long", "use a shorter path",
                        "'%.400s'", request->path);
    }
    absolute.path = filesystem->path;
    absolute.is_fuse = is_fuse_path(filesystem->path, request->prefix);
    status = stk_mount_probe(&absolute, &filesystem->probe);
    if (status < 0 && status != STOKER_ERROR_TIMEOUT) {
        return stk_fail_errno(error, -status, "cannot inspect a path", "check the path", "'%.600s'",
                              request->path);
    }
    filesystem->info.responds = status == 0;
    stk_filesystem_evaluate(filesystem, request->prefix);
    return 0;
}

int stoker_filesystem_open(struct stoker_filesystem **filesystem_out, const char *path,
                           const struct stoker_filesystem_options *options,
                           struct stoker_error *error)
{
    struct stoker_filesystem_options full = {.timeout_ms = TIMEOUT_DEFAULT_MS,
                                             .files_max = FILES_DEFAULT};
    struct stk_filesystem_request request = {.path = path, .prefix = ""};
    struct stoker_filesystem *filesystem;
    int status;

    *filesystem_out = NULL;
    if (!path || !path[0] || stk_io_is_url(path)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "not a path of this machine",
                        "name a file or a folder", "'%.400s'", path ? path : "");
    }
    if (options) {
        struct stoker_filesystem_options given;

        status = stk_options_read(&given, sizeof given, sizeof given.struct_size, options,
                                  "file system options", error);
        if (status < 0) {
            return status;
        }
        full.timeout_ms = given.timeout_ms ? given.timeout_ms : full.timeout_ms;
        full.files_max = given.files_max ? given.files_max : full.files_max;
    }
    request.timeout_ms = full.timeout_ms;
    request.files_max = full.files_max;
    filesystem = stk_alloc(1, sizeof *filesystem);
    if (!filesystem) {
        return stk_fail(error, -ENOMEM, "cannot inspect a path", "free memory", "'%.400s'", path);
    }
    status = stk_filesystem_inspect(filesystem, &request, error);
    if (status < 0) {
        stk_free(filesystem);
        return status;
    }
    *filesystem_out = filesystem;
    return 0;
}

int stoker_filesystem_info(const struct stoker_filesystem *filesystem,
                           struct stoker_filesystem_info *info)
{
    return stk_options_write_output(info, &filesystem->info, sizeof filesystem->info,
                                    "file system info", NULL);
}

int stoker_filesystem_advice(const struct stoker_filesystem *filesystem, uint32_t index,
                             struct stoker_advice *advice)
{
    struct stoker_advice full = {0};
    const struct stk_mount_advice *from = filesystem->advices;

    int status =
        stk_options_check_output(advice, sizeof full, sizeof full.struct_size, "advice", NULL);

    if (status < 0) {
        return status;
    }
    if (index >= filesystem->advice_count) {
        return 0;
    }
    from += index;
    full.level = from->level;
    full.what = from->what;
    full.reason = from->reason;
    full.command = from->command;
    return stk_options_write_output(advice, &full, sizeof full, "advice", NULL) < 0
               ? STOKER_ERROR_ARGUMENT
               : 1;
}

void stoker_filesystem_close(struct stoker_filesystem *filesystem)
{
    stk_free(filesystem);
}
