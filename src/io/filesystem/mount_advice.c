/* What of a mount slows training down, why, and the command that changes it. From the facts alone:
 * options of nfs(5), mount.cifs(8), lfs(1), Documentation/filesystems/9p.rst and fuse.rst.
 *
 * A finding costs reads or safety now; a hint may help. */
#include "io/filesystem/filesystem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define KIB ((uint64_t)1 << 10)
#define READ_BYTES_MIN MIB /* of one request to a server */
#define STRIPED_BYTES_MIN (4096 * MIB)
#define SMALL_BYTES (256 * KIB) /* files of which it is better to have fewer */
#define SMALL_FILES_MIN 500u
#define FREE_SHARE_MIN 100u /* one in so many bytes or inodes */

__attribute__((format(printf, 3, 4))) static struct stk_advice *
advise(struct stoker_ground *ground, uint32_t level, const char *format, ...)
{
    static struct stk_advice lost; /* never read: STK_GROUND_ADVICES is above the number of rules */
    struct stk_advice *advice = ground->advice_count < STK_GROUND_ADVICES
                                    ? &ground->advices[ground->advice_count++]
                                    : &lost;
    __builtin_va_list list;

    advice->level = level;
    __builtin_va_start(list, format);
    vsnprintf(advice->what, sizeof advice->what, format, list);
    __builtin_va_end(list);
    return advice;
}

__attribute__((format(printf, 2, 3))) static void because(struct stk_advice *advice,
                                                          const char *format, ...)
{
    __builtin_va_list list;

    __builtin_va_start(list, format);
    vsnprintf(advice->reason, sizeof advice->reason, format, list);
    __builtin_va_end(list);
}

/* A word of a shell: in single quotes where it has to be. */
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

/* The mount made anew with other options. */
static void remount(const struct stoker_ground *ground, struct stk_advice *advice,
                    const char *options)
{
    char point[400], source[400];

    quote(ground->point, point, sizeof point);
    quote(ground->source, source, sizeof source);
    snprintf(advice->command, sizeof advice->command, "umount %s && mount -t %s -o %s %s %s", point,
             ground->type, options, source, point);
}

static void on_path(const struct stoker_ground *ground, struct stk_advice *advice, const char *run)
{
    char path[900];

    quote(ground->path, path, sizeof path);
    snprintf(advice->command, sizeof advice->command, "%s %s", run, path);
}

static void advise_silence(struct stoker_ground *ground)
{
    struct stk_advice *advice;

    if (ground->info.answers) {
        return;
    }
    advice = advise(ground, STOKER_ADVICE_FINDING, "%s does not answer",
                    ground->server[0] ? ground->server : ground->point);
    because(advice, "a call on it would wait for ever: the server is down, cut off or overloaded%s",
            strcmp(ground->recovery, "hard") == 0 ? ", and the mount is hard" : "");
    if (strcmp(ground->kind->name, "nfs") == 0) {
        snprintf(advice->command, sizeof advice->command, "rpcinfo -T tcp %.300s nfs",
                 ground->server);
    }
}

static void advise_nfs(struct stoker_ground *ground)
{
    const struct stoker_ground_info *info = &ground->info;
    bool is_efs = strstr(ground->server, ".efs.") != NULL; /* has no nconnect */
    struct stk_advice *advice;

    if (info->read_bytes < READ_BYTES_MIN) {
        advice = advise(ground, STOKER_ADVICE_FINDING, "rsize is %" PRIu64 " KiB",
                        info->read_bytes / KIB);
        because(advice, "each request fetches no more: a read of 1 MiB waits for several round "
                        "trips. The kernel takes up to 1 MiB, and the server says how much it can");
        remount(ground, advice, "rsize=1048576,wsize=1048576");
    }
    if (strncmp(ground->recovery, "soft", 4) == 0) {
        advice = advise(ground, STOKER_ADVICE_FINDING, "the mount is %s", ground->recovery);
        because(advice, "a server that is slow for longer than timeo x retrans makes reads fail "
                        "with EIO, and training ends; hard waits. stoker's own deadline says so "
                        "after read_timeout_ms in either case");
        remount(ground, advice, "hard");
    }
    if (strncmp(ground->transport, "udp", 3) == 0) {
        advice = advise(ground, STOKER_ADVICE_FINDING, "NFS over UDP");
        because(advice, "a lost packet costs a whole request, and on fast links fragments are put "
                        "together wrongly (nfs(5))");
        remount(ground, advice, "proto=tcp");
    }
    if (info->connections == 1 && !is_efs && strncmp(ground->transport, "rdma", 4) != 0) {
        advice = advise(ground, STOKER_ADVICE_HINT, "one connection (nconnect=1)");
        because(advice, "all reads of this mount share one TCP stream: one core and one path of "
                        "the network. Several give more on links above 10 Gb/s (Linux 5.3)");
        remount(ground, advice, "nconnect=8");
    }
    if (info->file_fresh_s == 0 || info->folder_fresh_s == 0) {
        advice = advise(ground, STOKER_ADVICE_FINDING, "attributes are not kept (noac, actimeo=0)");
        because(advice, "each open and stat asks the server again; data that training reads does "
                        "not change meanwhile");
        remount(ground, advice, "actimeo=600");
    }
}

/* A buffered read is cut into pieces of the read-ahead window, one after the other. */
static void advise_read_ahead(struct stoker_ground *ground)
{
    const struct stoker_ground_info *info = &ground->info;
    uint64_t wanted = info->read_bytes == STOKER_NOT_TOLD ? MIB : stk_max(info->read_bytes, MIB);
    struct stk_advice *advice;

    if (ground->kind->group != STOKER_GROUND_NETWORK || info->read_ahead_bytes >= wanted) {
        return; /* not told is more, too */
    }
    advice = advise(ground, STOKER_ADVICE_HINT, "read-ahead is %" PRIu64 " KiB",
                    info->read_ahead_bytes / KIB);
    because(advice, "the page cache cuts each read into pieces of it: requests are smaller than "
                    "the mount could take. A few times the size of a request keeps some in flight");
    snprintf(advice->command, sizeof advice->command,
             "echo %" PRIu64 " > /sys/class/bdi/%" PRIu64 ":%" PRIu64 "/read_ahead_kb",
             4 * wanted / KIB, info->major, info->minor);
}

static void advise_lustre(struct stoker_ground *ground)
{
    const struct stoker_ground_info *info = &ground->info;
    struct stk_mount_row row = {
        .super = {(const uint8_t *)ground->options, strlen(ground->options)}};
    struct stk_view value;
    struct stk_advice *advice;

    if (info->stripe_count == 1 && ground->told.files.bytes_most >= STRIPED_BYTES_MIN) {
        advice = advise(ground, STOKER_ADVICE_HINT, "large files lie on one OST each");
        because(advice, "a file is read at what one server gives, and all ranks that read it meet "
                        "there. Several stripes spread it");
        on_path(ground, advice, info->is_folder ? "lfs migrate -c 4 -S 4M" : "lfs migrate -c 4");
    }
    if (info->stripe_count != STOKER_NOT_TOLD && info->stripe_count > 1 && info->files > 0 &&
        info->bytes / info->files < MIB) {
        advice = advise(ground, STOKER_ADVICE_HINT, "small files are striped");
        because(advice, "each open asks every OST that has a stripe: for files below some MiB one "
                        "is best");
        on_path(ground, advice, "lfs setstripe -c 1");
    }
    if (!stk_mount_option(&row, "flock", &value)) {
        advice = advise(ground, STOKER_ADVICE_HINT, "mounted without flock");
        because(advice, "stoker's locks (index, pack) then hold nothing back between nodes");
        remount(ground, advice, "flock");
    }
}

/* Of other servers and of programs behind FUSE. */
static void advise_requests(struct stoker_ground *ground)
{
    const struct stoker_ground_info *info = &ground->info;
    const char *name = ground->kind->name;
    struct stk_advice *advice;

    if (info->read_bytes == STOKER_NOT_TOLD || info->read_bytes >= READ_BYTES_MIN ||
        info->read_bytes == 0) {
        return;
    }
    advice = advise(ground, STOKER_ADVICE_FINDING, "a request fetches %" PRIu64 " KiB at most",
                    info->read_bytes / KIB);
    because(advice, "each request waits for a round trip, or for another process: 1 MiB needs "
                    "fewer of them");
    if (strcmp(name, "9p") == 0) {
        remount(ground, advice, "trans=virtio,msize=1048576");
    } else if (strcmp(name, "smb") == 0) {
        remount(ground, advice, "rsize=4194304");
    }
}

static void advise_store(struct stoker_ground *ground)
{
    static const struct {
        const char *kind, *scheme;
    } stores[] = {{"gcsfuse", "gs"}, {"mountpoint-s3", "s3"}, {"s3fs", "s3"},
                  {"goofys", "s3"},  {"blobfuse", "az"},      {"rclone", "s3"}};
    struct stk_advice *advice;

    for (size_t i = 0; i < STK_COUNT(stores); i++) {
        if (strcmp(ground->kind->name, stores[i].kind) == 0) {
            advice = advise(ground, STOKER_ADVICE_HINT, "%s is a bucket behind a program",
                            ground->point);
            because(advice, "stoker asks the store itself: many ranges at once, no copy through "
                            "another process, no stat for each file");
            snprintf(advice->command, sizeof advice->command, "stoker info %s://BUCKET/PREFIX",
                     stores[i].scheme);
        }
    }
}

static void advise_files(struct stoker_ground *ground)
{
    const struct stoker_ground_info *info = &ground->info;
    struct stk_advice *advice;

    if (info->files_away > 0 && info->presence >= STOKER_PRESENCE_PARTLY) {
        advice = advise(ground, STOKER_ADVICE_FINDING,
                        "%" PRIu64 " of %" PRIu64 " files looked at are not here", info->files_away,
                        info->files);
        because(advice, "their bytes are in an archive behind the file system: the first read of "
                        "each waits until it is fetched");
        on_path(ground, advice, "stoker prewarm");
    }
    if ((ground->kind->group == STOKER_GROUND_NETWORK ||
         ground->kind->group == STOKER_GROUND_FUSE) &&
        info->files >= SMALL_FILES_MIN && info->bytes / info->files < SMALL_BYTES) {
        advice = advise(ground, STOKER_ADVICE_HINT, "many small files on a file system of others");
        because(advice, "each costs an open, its attributes and a close, each a round trip to the "
                        "server of the names; in tars a sample costs none of them");
        on_path(ground, advice, "stoker pack --out PACKED");
        advice = advise(ground, STOKER_ADVICE_HINT,
                        "8 threads open files here at once, unless "
                        "far_threads says otherwise");
        because(advice, "each waits for a round trip to the server meanwhile: where it bears more, "
                        "more files are open at once. --far-threads of commands, "
                        "Engine(far_threads=32); measured by");
        on_path(ground, advice, "stoker bench --raw --cold --far-threads 32");
    }
}

static void advise_space(struct stoker_ground *ground)
{
    const struct stoker_ground_info *info = &ground->info;
    struct stk_advice *advice;

    if (!info->answers || info->is_read_only || !ground->told.has_space) {
        return;
    }
    if (info->bytes_total > 0 && info->bytes_free < info->bytes_total / FREE_SHARE_MIN) {
        advice = advise(ground, STOKER_ADVICE_HINT, "nearly full: %" PRIu64 " MiB are free",
                        info->bytes_free / MIB);
        because(advice, "an index, a checkpoint or packed shards may not find room");
        on_path(ground, advice, "df -h");
    }
    if (info->files_total > 0 && info->files_free < info->files_total / FREE_SHARE_MIN) {
        advice = advise(ground, STOKER_ADVICE_HINT, "hardly any inodes are free: %" PRIu64,
                        info->files_free);
        because(advice, "a file cannot be made though there are bytes for it");
        on_path(ground, advice, "df -i");
    }
}

static void advise_disk(struct stoker_ground *ground)
{
    struct stk_advice *advice;

    if (ground->kind->group == STOKER_GROUND_LAYERED) {
        advice = advise(ground, STOKER_ADVICE_HINT, "a layer of a container's image");
        because(advice, "data that is written here is lost with the container, and is first copied "
                        "up; mount a folder of the host for it");
    }
    if (ground->info.rotational == 1 && ground->device[0] &&
        strncmp(ground->device, "loop", 4) != 0 && strncmp(ground->device, "vd", 2) != 0) {
        advice = advise(ground, STOKER_ADVICE_HINT, "%s says that it turns", ground->device);
        because(advice, "a read elsewhere costs some 8 ms: tars that are read in runs are a "
                        "hundred times as fast as single files");
        on_path(ground, advice, "stoker pack --out PACKED");
    }
    if (strncmp(ground->device, "nvme", 4) == 0 && ground->scheduler[0] &&
        strcmp(ground->scheduler, "none") != 0) {
        advice = advise(ground, STOKER_ADVICE_HINT, "scheduler %s before an NVMe disk",
                        ground->scheduler);
        because(advice, "it orders what the disk takes in any order, and costs CPU for each read");
        snprintf(advice->command, sizeof advice->command,
                 "echo none > /sys/block/%s/queue/scheduler", ground->device);
    }
}

void stk_ground_advise(struct stoker_ground *ground)
{
    advise_silence(ground);
    if (stk_kind_is(ground->kind, "nfs")) {
        advise_nfs(ground);
    } else {
        advise_requests(ground);
    }
    if (stk_kind_is(ground->kind, "lustre")) {
        advise_lustre(ground);
    }
    advise_read_ahead(ground);
    advise_store(ground);
    advise_files(ground);
    advise_space(ground);
    advise_disk(ground);
}
