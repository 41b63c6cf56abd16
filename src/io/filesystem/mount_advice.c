/* Advice on mount settings that slow reads down: the setting, the reason, and a command to change
 * it. Depends only on the facts. Options: nfs(5), mount.cifs(8), lfs(1),
 * Documentation/filesystems/9p.rst and fuse.rst.
 *
 * A finding costs speed or safety now; a hint may help. */
#include "io/filesystem/filesystem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define KIB ((uint64_t)1 << 10)
#define READ_BYTES_MIN MIB /* of one request to a server */
#define STRIPED_BYTES_MIN (4096 * MIB)
#define SMALL_BYTES (256 * KIB) /* smaller files are better packed */
#define SMALL_FILES_MIN 500u
#define FREE_SHARE_MIN 100u /* advice if less than one in so many bytes or inodes is free */

__attribute__((format(printf, 3, 4))) static struct stk_mount_advice *
advise(struct stoker_filesystem *filesystem, uint32_t level, const char *format, ...)
{
    static struct stk_mount_advice
        lost; /* never used: STK_FILESYSTEM_ADVICES is larger than the number of rules */
    struct stk_mount_advice *advice = filesystem->advice_count < STK_FILESYSTEM_ADVICES
                                          ? &filesystem->advices[filesystem->advice_count++]
                                          : &lost;
    __builtin_va_list list;

    advice->level = level;
    __builtin_va_start(list, format);
    vsnprintf(advice->what, sizeof advice->what, format, list);
    __builtin_va_end(list);
    return advice;
}

__attribute__((format(printf, 2, 3))) static void because(struct stk_mount_advice *advice,
                                                          const char *format, ...)
{
    __builtin_va_list list;

    __builtin_va_start(list, format);
    vsnprintf(advice->reason, sizeof advice->reason, format, list);
    __builtin_va_end(list);
}

/* Quotes a word for the shell if needed. */
static void quote(const char *word, char *out, size_t out_bytes)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "/._-:@=+,";
    size_t used = 0;

    if (word[0] && word[strspn(word, plain)] == '\0') {
        snprintf(out, out_bytes, "%s", word);
        return;
    }
    out[used++] = '\'';
    for (; *word && used + 7 < out_bytes; word++) {
        if (*word == '\'') {
            memcpy(out + used, "'\\''", 4);
            used += 4;
        } else {
            out[used++] = *word;
        }
    }
    out[used++] = '\'';
    out[used] = '\0';
}

/* The command that mounts again with other options. */
static void set_remount_command(const struct stoker_filesystem *filesystem,
                                struct stk_mount_advice *advice, const char *options)
{
    char point[400], source[400];

    quote(filesystem->point, point, sizeof point);
    quote(filesystem->source, source, sizeof source);
    snprintf(advice->command, sizeof advice->command, "umount %s && mount -t %s -o %s %s %s", point,
             filesystem->type, options, source, point);
}

static void set_path_command(const struct stoker_filesystem *filesystem,
                             struct stk_mount_advice *advice, const char *run)
{
    char path[900];

    quote(filesystem->path, path, sizeof path);
    snprintf(advice->command, sizeof advice->command, "%s %s", run, path);
}

static void advise_no_response(struct stoker_filesystem *filesystem)
{
    struct stk_mount_advice *advice;

    if (filesystem->info.responds) {
        return;
    }
    advice = advise(filesystem, STOKER_ADVICE_FINDING, "%s does not respond",
                    filesystem->server[0] ? filesystem->server : filesystem->point);
    because(advice, "calls on it wait forever: the server is down, unreachable or overloaded%s",
            strcmp(filesystem->recovery, "hard") == 0 ? ", and the mount is hard" : "");
    if (strcmp(filesystem->kind->name, "nfs") == 0) {
        snprintf(advice->command, sizeof advice->command, "rpcinfo -T tcp %.300s nfs",
                 filesystem->server);
    }
}

static void advise_nfs(struct stoker_filesystem *filesystem)
{
    const struct stoker_filesystem_info *info = &filesystem->info;
    bool is_efs = strstr(filesystem->server, ".efs.") != NULL; /* has no nconnect */
    struct stk_mount_advice *advice;

    if (info->read_bytes < READ_BYTES_MIN) {
        advice = advise(filesystem, STOKER_ADVICE_FINDING, "rsize is %" PRIu64 " KiB",
                        info->read_bytes / KIB);
        because(advice, "requests are no larger: a read of 1 MiB needs several round trips. The "
                        "kernel supports up to 1 MiB, and the server may set a lower limit");
        set_remount_command(filesystem, advice, "rsize=1048576,wsize=1048576");
    }
    if (strncmp(filesystem->recovery, "soft", 4) == 0) {
        advice = advise(filesystem, STOKER_ADVICE_FINDING, "the mount is %s", filesystem->recovery);
        because(advice, "if the server is slow for longer than timeo x retrans, reads fail with "
                        "EIO and training ends; a hard mount waits. stoker reports a timeout after "
                        "read_timeout_ms in either case");
        set_remount_command(filesystem, advice, "hard");
    }
    if (strncmp(filesystem->transport, "udp", 3) == 0) {
        advice = advise(filesystem, STOKER_ADVICE_FINDING, "NFS over UDP");
        because(advice, "a lost packet repeats a whole request, and on fast links fragments may be "
                        "reassembled wrongly (nfs(5))");
        set_remount_command(filesystem, advice, "proto=tcp");
    }
    if (info->connections == 1 && !is_efs && strncmp(filesystem->transport, "rdma", 4) != 0) {
        advice = advise(filesystem, STOKER_ADVICE_HINT, "one connection (nconnect=1)");
        because(advice, "all reads of this mount share one TCP stream: one core and one network "
                        "path. Several connections are faster on links above 10 Gb/s (Linux 5.3)");
        set_remount_command(filesystem, advice, "nconnect=8");
    }
    if (info->file_attribute_cache_s == 0 || info->folder_attribute_cache_s == 0) {
        advice = advise(filesystem, STOKER_ADVICE_FINDING,
                        "attributes are not cached (noac, actimeo=0)");
        because(advice, "each open and stat sends a request to the server; training data does not "
                        "change meanwhile");
        set_remount_command(filesystem, advice, "actimeo=600");
    }
}

/* A buffered read is split into pieces of the read-ahead window, one after the other. */
static void advise_read_ahead(struct stoker_filesystem *filesystem)
{
    const struct stoker_filesystem_info *info = &filesystem->info;
    uint64_t wanted = info->read_bytes == STOKER_UNKNOWN ? MIB : stk_max(info->read_bytes, MIB);
    struct stk_mount_advice *advice;

    if (filesystem->kind->group != STOKER_FILESYSTEM_NETWORK || info->read_ahead_bytes >= wanted) {
        return; /* unknown is larger as well */
    }
    advice = advise(filesystem, STOKER_ADVICE_HINT, "read-ahead is %" PRIu64 " KiB",
                    info->read_ahead_bytes / KIB);
    because(advice, "the page cache splits each read into pieces of this size: requests are "
                    "smaller than the mount allows. A few times the size of a request keeps "
                    "several in flight");
    snprintf(advice->command, sizeof advice->command,
             "echo %" PRIu64 " > /sys/class/bdi/%" PRIu64 ":%" PRIu64 "/read_ahead_kb",
             4 * wanted / KIB, info->major, info->minor);
}

static void advise_lustre(struct stoker_filesystem *filesystem)
{
    const struct stoker_filesystem_info *info = &filesystem->info;
    struct stk_mount_row row = {
        .super = {(const uint8_t *)filesystem->options, strlen(filesystem->options)}};
    struct stk_view value;
    struct stk_mount_advice *advice;

    if (info->stripe_count == 1 && filesystem->probe.files.largest_bytes >= STRIPED_BYTES_MIN) {
        advice = advise(filesystem, STOKER_ADVICE_HINT, "large files are on one OST each");
        because(advice, "reads of a file are limited to one server, which all ranks share. Several "
                        "stripes spread the load");
        set_path_command(filesystem, advice,
                         info->is_folder ? "lfs migrate -c 4 -S 4M" : "lfs migrate -c 4");
    }
    if (info->stripe_count != STOKER_UNKNOWN && info->stripe_count > 1 && info->files > 0 &&
        info->bytes / info->files < MIB) {
        advice = advise(filesystem, STOKER_ADVICE_HINT, "small files are striped");
        because(advice, "each open sends a request to every OST with a stripe: one stripe is best "
                        "for files of a few MiB");
        set_path_command(filesystem, advice, "lfs setstripe -c 1");
    }
    if (!stk_mount_option(&row, "flock", &value)) {
        advice = advise(filesystem, STOKER_ADVICE_HINT, "mounted without flock");
        because(advice, "stoker's locks (index, pack) then do not work between nodes");
        set_remount_command(filesystem, advice, "flock");
    }
}

/* Other servers, and programs behind FUSE. */
static void advise_requests(struct stoker_filesystem *filesystem)
{
    const struct stoker_filesystem_info *info = &filesystem->info;
    const char *name = filesystem->kind->name;
    struct stk_mount_advice *advice;

    if (info->read_bytes == STOKER_UNKNOWN || info->read_bytes >= READ_BYTES_MIN ||
        info->read_bytes == 0) {
        return;
    }
    advice = advise(filesystem, STOKER_ADVICE_FINDING, "a request fetches %" PRIu64 " KiB at most",
                    info->read_bytes / KIB);
    because(advice, "each request waits for a round trip, or for another process: with 1 MiB "
                    "there are fewer of them");
    if (strcmp(name, "9p") == 0) {
        set_remount_command(filesystem, advice, "trans=virtio,msize=1048576");
    } else if (strcmp(name, "smb") == 0) {
        set_remount_command(filesystem, advice, "rsize=4194304");
    }
}

static void advise_store(struct stoker_filesystem *filesystem)
{
    static const struct {
        const char *kind, *scheme;
    } stores[] = {{"gcsfuse", "gs"}, {"mountpoint-s3", "s3"}, {"s3fs", "s3"},
                  {"goofys", "s3"},  {"blobfuse", "az"},      {"rclone", "s3"}};
    struct stk_mount_advice *advice;

    for (size_t i = 0; i < STK_COUNT(stores); i++) {
        if (strcmp(filesystem->kind->name, stores[i].kind) == 0) {
            advice = advise(filesystem, STOKER_ADVICE_HINT, "%s is a bucket behind a program",
                            filesystem->point);
            because(advice, "stoker can read from the store itself: many ranges at once, no copy "
                            "through another process, no stat of each file");
            snprintf(advice->command, sizeof advice->command, "stoker info %s://BUCKET/PREFIX",
                     stores[i].scheme);
        }
    }
}

static void advise_files(struct stoker_filesystem *filesystem)
{
    const struct stoker_filesystem_info *info = &filesystem->info;
    struct stk_mount_advice *advice;

    if (info->files_archived > 0 && info->residency >= STOKER_RESIDENCY_PARTIAL) {
        advice = advise(filesystem, STOKER_ADVICE_FINDING,
                        "%" PRIu64 " of %" PRIu64 " checked files are archived",
                        info->files_archived, info->files);
        because(advice, "their bytes are in an archive behind the file system: the first read of "
                        "each file waits until it is restored");
        set_path_command(filesystem, advice, "stoker prewarm");
    }
    if ((filesystem->kind->group == STOKER_FILESYSTEM_NETWORK ||
         filesystem->kind->group == STOKER_FILESYSTEM_FUSE) &&
        info->files >= SMALL_FILES_MIN && info->bytes / info->files < SMALL_BYTES) {
        advice =
            advise(filesystem, STOKER_ADVICE_HINT, "many small files on a network file system");
        because(advice, "each needs an open, its attributes and a close, each a round trip to the "
                        "metadata server; samples in tars need none of them");
        set_path_command(filesystem, advice, "stoker pack --out PACKED");
        advice = advise(filesystem, STOKER_ADVICE_HINT,
                        "8 threads open files here at once, unless "
                        "network_fs_threads sets another number");
        because(advice, "each waits for a round trip to the server. If the server allows it, open "
                        "more files at once: --network-fs-threads of commands, "
                        "Engine(network_fs_threads=32); measure it with");
        set_path_command(filesystem, advice, "stoker bench --raw --cold --network-fs-threads 32");
    }
}

static void advise_space(struct stoker_filesystem *filesystem)
{
    const struct stoker_filesystem_info *info = &filesystem->info;
    struct stk_mount_advice *advice;

    if (!info->responds || info->is_read_only || !filesystem->probe.has_space) {
        return;
    }
    if (info->bytes_total > 0 && info->bytes_free < info->bytes_total / FREE_SHARE_MIN) {
        advice = advise(filesystem, STOKER_ADVICE_HINT, "nearly full: %" PRIu64 " MiB are free",
                        info->bytes_free / MIB);
        because(advice, "there may be no space for an index, a checkpoint or packed shards");
        set_path_command(filesystem, advice, "df -h");
    }
    if (info->files_total > 0 && info->files_free < info->files_total / FREE_SHARE_MIN) {
        advice = advise(filesystem, STOKER_ADVICE_HINT, "few inodes are free: %" PRIu64,
                        info->files_free);
        because(advice, "files cannot be created, although there is free space");
        set_path_command(filesystem, advice, "df -i");
    }
}

static void advise_disk(struct stoker_filesystem *filesystem)
{
    struct stk_mount_advice *advice;

    if (filesystem->kind->group == STOKER_FILESYSTEM_LAYERED) {
        advice = advise(filesystem, STOKER_ADVICE_HINT, "a layer of a container's image");
        because(advice, "data that is written here is lost with the container, and files are "
                        "copied before their first change; mount a folder of the host");
    }
    if (filesystem->info.rotational == 1 && filesystem->device[0] &&
        strncmp(filesystem->device, "loop", 4) != 0 && strncmp(filesystem->device, "vd", 2) != 0) {
        advice =
            advise(filesystem, STOKER_ADVICE_HINT, "%s is a rotating disk", filesystem->device);
        because(advice, "a random read takes about 8 ms: sequential reads of tars are a hundred "
                        "times as fast as reads of single files");
        set_path_command(filesystem, advice, "stoker pack --out PACKED");
    }
    if (strncmp(filesystem->device, "nvme", 4) == 0 && filesystem->scheduler[0] &&
        strcmp(filesystem->scheduler, "none") != 0) {
        advice = advise(filesystem, STOKER_ADVICE_HINT, "scheduler %s on an NVMe disk",
                        filesystem->scheduler);
        because(advice,
                "it reorders requests, which the disk does not need, and costs CPU time for each "
                "read");
        snprintf(advice->command, sizeof advice->command,
                 "echo none > /sys/block/%s/queue/scheduler", filesystem->device);
    }
}

void stk_mount_advise(struct stoker_filesystem *filesystem)
{
    advise_no_response(filesystem);
    if (stk_filesystem_type_is(filesystem->kind, "nfs")) {
        advise_nfs(filesystem);
    } else {
        advise_requests(filesystem);
    }
    if (stk_filesystem_type_is(filesystem->kind, "lustre")) {
        advise_lustre(filesystem);
    }
    advise_read_ahead(filesystem);
    advise_store(filesystem);
    advise_files(filesystem);
    advise_space(filesystem);
    advise_disk(filesystem);
}
