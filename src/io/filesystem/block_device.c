/* Reads the read-ahead and the disk from /sys (Documentation/ABI/testing/sysfs-class-bdi,
 * sysfs-block). */
#include "io/filesystem/filesystem.h"

#include "base/text/parse_number.h"
#include "io/small_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES (STK_FILESYSTEM_TEXT_BYTES + 64u)
#define KIB 1024u

static bool read_text(const char *folder, const char *name, char *text, size_t text_bytes)
{
    char path[PATH_BYTES];

    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path ||
        !stk_small_file_read_text(path, text, text_bytes)) {
        return false;
    }
    text[strcspn(text, "\n")] = '\0';
    return text[0] != '\0';
}

static uint64_t read_number(const char *folder, const char *name)
{
    char text[32];
    const char *end;
    uint64_t number;

    if (!read_text(folder, name, text, sizeof text)) {
        return STOKER_UNKNOWN;
    }
    return stk_parse_uint64(text, &end, &number) ? number : STOKER_UNKNOWN;
}

/* "none [mq-deadline] kyber": the one in brackets. */
static void set_scheduler(struct stoker_filesystem *filesystem, const char *folder)
{
    char text[256];
    const char *begin, *end;

    if (!read_text(folder, "queue/scheduler", text, sizeof text)) {
        return;
    }
    begin = strchr(text, '[');
    begin = begin ? begin + 1 : text;
    end = begin + strcspn(begin, "]");
    snprintf(filesystem->scheduler, sizeof filesystem->scheduler, "%.*s",
             (int)stk_min(end - begin, 60), begin);
}

/* The folder of the disk: the parent of the folder of a partition. */
static bool find_disk(const struct stoker_filesystem *filesystem, const char *prefix, char *folder,
                      size_t folder_bytes)
{
    const char *name = strrchr(filesystem->source, '/');
    char text[32];

    snprintf(folder, folder_bytes, "%s/sys/dev/block/%llu:%llu", prefix,
             (unsigned long long)filesystem->info.major,
             (unsigned long long)filesystem->info.minor);
    if (!read_text(folder, "uevent", text, sizeof text) &&
        strncmp(filesystem->source, "/dev/", 5) == 0) {
        /* btrfs has its own device number */
        snprintf(folder, folder_bytes, "%s/sys/class/block/%.200s", prefix, name + 1);
    }
    if (!read_text(folder, "uevent", text, sizeof text)) {
        return false;
    }
    if (read_number(folder, "partition") != STOKER_UNKNOWN) {
        size_t bytes = strlen(folder);

        snprintf(folder + bytes, folder_bytes - bytes, "/..");
    }
    return true;
}

void stk_block_device_read(struct stoker_filesystem *filesystem, const char *prefix)
{
    struct stoker_filesystem_info *info = &filesystem->info;
    char folder[PATH_BYTES], text[512];
    const char *name;
    uint64_t kilobytes;

    snprintf(folder, sizeof folder, "%s/sys/class/bdi/%llu:%llu", prefix,
             (unsigned long long)info->major, (unsigned long long)info->minor);
    kilobytes = read_number(folder, "read_ahead_kb");
    if (!find_disk(filesystem, prefix, folder, sizeof folder)) {
        info->read_ahead_bytes = kilobytes == STOKER_UNKNOWN ? kilobytes : kilobytes * KIB;
        return;
    }
    if (kilobytes == STOKER_UNKNOWN) { /* a partition has that of its disk */
        kilobytes = read_number(folder, "queue/read_ahead_kb");
    }
    info->read_ahead_bytes = kilobytes == STOKER_UNKNOWN ? kilobytes : kilobytes * KIB;
    snprintf(text, sizeof text, "%s", folder);
    if (stk_small_file_read_text(strncat(folder, "/uevent", sizeof folder - strlen(folder) - 1),
                                 text, sizeof text) &&
        (name = strstr(text, "DEVNAME=")) != NULL) {
        name += strlen("DEVNAME=");
        snprintf(filesystem->device, sizeof filesystem->device, "%.*s",
                 (int)stk_min(strcspn(name, "\n"), sizeof filesystem->device - 1), name);
    }
    folder[strlen(folder) - strlen("/uevent")] = '\0';
    info->rotational = read_number(folder, "queue/rotational");
    info->queue_depth = read_number(folder, "queue/nr_requests");
    set_scheduler(filesystem, folder);
}
