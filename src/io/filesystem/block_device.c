/* Read-ahead and disk, out of /sys (Documentation/ABI/testing/sysfs-class-bdi, sysfs-block). */
#include "io/filesystem/filesystem.h"

#include "io/small_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES (STK_GROUND_TEXT_BYTES + 64u)
#define KIB 1024u

static bool text_of(const char *folder, const char *name, char *text, size_t text_bytes)
{
    char path[PATH_BYTES];

    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path ||
        !stk_machine_text(path, text, text_bytes)) {
        return false;
    }
    text[strcspn(text, "\n")] = '\0';
    return text[0] != '\0';
}

static uint64_t number_of(const char *folder, const char *name)
{
    char text[32], *end;
    uint64_t number;

    if (!text_of(folder, name, text, sizeof text)) {
        return STOKER_NOT_TOLD;
    }
    number = strtoull(text, &end, 10);
    return end == text ? STOKER_NOT_TOLD : number;
}

/* "none [mq-deadline] kyber": the one in brackets. */
static void keep_scheduler(struct stoker_ground *ground, const char *folder)
{
    char text[256];
    const char *begin, *end;

    if (!text_of(folder, "queue/scheduler", text, sizeof text)) {
        return;
    }
    begin = strchr(text, '[');
    begin = begin ? begin + 1 : text;
    end = begin + strcspn(begin, "]");
    snprintf(ground->scheduler, sizeof ground->scheduler, "%.*s", (int)stk_min(end - begin, 60),
             begin);
}

/* The folder of the disk, of which a partition's lies one below. */
static bool find_disk(const struct stoker_ground *ground, const char *prefix, char *folder,
                      size_t folder_bytes)
{
    const char *name = strrchr(ground->source, '/');
    char text[32];

    snprintf(folder, folder_bytes, "%s/sys/dev/block/%llu:%llu", prefix,
             (unsigned long long)ground->info.major, (unsigned long long)ground->info.minor);
    if (!text_of(folder, "uevent", text, sizeof text) && strncmp(ground->source, "/dev/", 5) == 0) {
        /* btrfs has a number of its own */
        snprintf(folder, folder_bytes, "%s/sys/class/block/%.200s", prefix, name + 1);
    }
    if (!text_of(folder, "uevent", text, sizeof text)) {
        return false;
    }
    if (number_of(folder, "partition") != STOKER_NOT_TOLD) {
        size_t bytes = strlen(folder);

        snprintf(folder + bytes, folder_bytes - bytes, "/..");
    }
    return true;
}

void stk_ground_device(struct stoker_ground *ground, const char *prefix)
{
    struct stoker_ground_info *info = &ground->info;
    char folder[PATH_BYTES], text[512];
    const char *name;
    uint64_t kilobytes;

    snprintf(folder, sizeof folder, "%s/sys/class/bdi/%llu:%llu", prefix,
             (unsigned long long)info->major, (unsigned long long)info->minor);
    kilobytes = number_of(folder, "read_ahead_kb");
    if (!find_disk(ground, prefix, folder, sizeof folder)) {
        info->read_ahead_bytes = kilobytes == STOKER_NOT_TOLD ? kilobytes : kilobytes * KIB;
        return;
    }
    if (kilobytes == STOKER_NOT_TOLD) { /* a partition's is its disk's */
        kilobytes = number_of(folder, "queue/read_ahead_kb");
    }
    info->read_ahead_bytes = kilobytes == STOKER_NOT_TOLD ? kilobytes : kilobytes * KIB;
    snprintf(text, sizeof text, "%s", folder);
    if (stk_machine_text(strncat(folder, "/uevent", sizeof folder - strlen(folder) - 1), text,
                         sizeof text) &&
        (name = strstr(text, "DEVNAME=")) != NULL) {
        name += strlen("DEVNAME=");
        snprintf(ground->device, sizeof ground->device, "%.*s",
                 (int)stk_min(strcspn(name, "\n"), sizeof ground->device - 1), name);
    }
    folder[strlen(folder) - strlen("/uevent")] = '\0';
    info->rotational = number_of(folder, "queue/rotational");
    info->queue_depth = number_of(folder, "queue/nr_requests");
    keep_scheduler(ground, folder);
}
