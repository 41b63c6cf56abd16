/* The cores and the memory that the machine grants to this process, by affinity and control groups.
 *
 * Each level between the group of the process and the visible root may have a limit, so all levels
 * are read. Files: cgroups(7), Documentation/admin-guide/cgroup-v2.rst and cgroup-v1. */
#include "io/cgroup.h"

#include "base/mem.h"
#include "base/text/parse_number.h"
#include "io/io.h"
#include "io/small_file.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS_MAX 64
#define CPUS_MAX 65536
/* If the size is unknown. */
#define MEMORY_BYTES_DEFAULT (1ull << 30)

/* One hierarchy: the directory of the process's group, and the mount point of the hierarchy. */
struct hierarchy {
    char directory[PATH_MAX];
    size_t top_bytes; /* length of the mount point within `directory` */
};

static bool find_hierarchy(const char *prefix, const char *controller, struct hierarchy *hierarchy);
static bool group_of(const char *text, const char *controller, char *group, size_t group_bytes);
static bool mount_of(char *text, const char *controller, char **root_out, char **point_out);
static bool has_word(const char *list, const char *word, const char *end);
static bool level_up(struct hierarchy *hierarchy);
static bool level_text(const struct hierarchy *hierarchy, const char *name, char *text,
                       size_t text_bytes);
static uint64_t level_number(const struct hierarchy *hierarchy, const char *name);
static uint64_t cores_of(uint64_t quota, uint64_t period);

uint32_t stk_cgroup_available_cores(void)
{
    size_t bytes = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *set = stk_alloc(1, bytes);
    int count = 1;

    if (set && sched_getaffinity(0, bytes, set) == 0) {
        count = CPU_COUNT_S(bytes, set);
    }
    stk_free(set);
    return stk_cgroup_cores("", (uint32_t)count);
}

uint64_t stk_cgroup_available_memory(void)
{
    return stk_cgroup_memory_bytes("");
}

uint32_t stk_cgroup_cores(const char *prefix, uint32_t affinity_cores)
{
    struct hierarchy hierarchy;
    uint64_t cores = affinity_cores;
    char text[64];

    if (find_hierarchy(prefix, "", &hierarchy)) {
        for (int i = 0; i < LEVELS_MAX; i++) {
            uint64_t quota, period;

            /* "max 100000" or "150000 100000" */
            if (level_text(&hierarchy, "cpu.max", text, sizeof text) &&
                sscanf(text, "%20lu %20lu", &quota, &period) == 2) {
                cores = stk_min(cores, cores_of(quota, period));
            }
            if (!level_up(&hierarchy)) {
                break;
            }
        }
    }
    if (find_hierarchy(prefix, "cpu", &hierarchy)) {
        for (int i = 0; i < LEVELS_MAX; i++) {
            /* -1, no quota, is the largest number */
            uint64_t quota = level_number(&hierarchy, "cpu.cfs_quota_us");

            cores = stk_min(cores, cores_of(quota, level_number(&hierarchy, "cpu.cfs_period_us")));
            if (!level_up(&hierarchy)) {
                break;
            }
        }
    }
    return (uint32_t)stk_max(cores, 1);
}

uint64_t stk_cgroup_memory_bytes(const char *prefix)
{
    static const struct {
        const char *controller, *file;
    } limits[] = {
        {"", "memory.max"},
        {"", "memory.high"}, /* above this limit the kernel throttles the group heavily */
        {"memory", "memory.limit_in_bytes"},
    };
    struct hierarchy hierarchy;
    uint64_t bytes = MEMORY_BYTES_DEFAULT, kilobytes;
    char path[PATH_MAX], text[128];

    snprintf(path, sizeof path, "%s/proc/meminfo", prefix);
    if (stk_small_file_read_text(path, text, sizeof text) &&
        sscanf(text, "MemTotal: %20lu kB", &kilobytes) == 1) {
        bytes = kilobytes * 1024;
    }
    for (size_t row = 0; row < STK_COUNT(limits); row++) {
        if (!find_hierarchy(prefix, limits[row].controller, &hierarchy)) {
            continue;
        }
        for (int i = 0; i < LEVELS_MAX; i++) {
            bytes = stk_min(bytes, level_number(&hierarchy, limits[row].file));
            if (!level_up(&hierarchy)) {
                break;
            }
        }
    }
    return bytes;
}

/* controller "": the unified hierarchy of version 2. */
static bool find_hierarchy(const char *prefix, const char *controller, struct hierarchy *hierarchy)
{
    char *text = stk_alloc(1, STK_CGROUP_TEXT_BYTES);
    char group[PATH_MAX], path[PATH_MAX], *root, *point;
    size_t root_bytes;
    int bytes;
    bool found = false;

    if (!text) {
        return false;
    }
    snprintf(path, sizeof path, "%s/proc/self/cgroup", prefix);
    if (!stk_small_file_read_text(path, text, STK_CGROUP_TEXT_BYTES) ||
        !group_of(text, controller, group, sizeof group)) {
        goto done;
    }
    snprintf(path, sizeof path, "%s/proc/self/mountinfo", prefix);
    if (!stk_small_file_read_text(path, text, STK_CGROUP_TEXT_BYTES) ||
        !mount_of(text, controller, &root, &point)) {
        goto done;
    }
    /* In a container, the mount's root is the container's own group. */
    root_bytes = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(group, root, root_bytes) != 0 ||
        (group[root_bytes] != '/' && group[root_bytes] != '\0') || strstr(group, "/..")) {
        group[root_bytes = 0] = '\0';
    }
    hierarchy->top_bytes = strlen(prefix) + strlen(point);
    bytes = snprintf(hierarchy->directory, sizeof hierarchy->directory, "%s%s%s", prefix, point,
                     group + root_bytes);
    found = bytes > 0 && bytes < PATH_MAX;
    if (found && hierarchy->directory[bytes - 1] == '/') {
        hierarchy->directory[bytes - 1] = '\0';
    }
done:
    stk_free(text);
    return found;
}

/* Lines of /proc/self/cgroup: "4:cpu,cpuacct:/path", version 2: "0::/path". */
static bool group_of(const char *text, const char *controller, char *group, size_t group_bytes)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        const char *list, *path, *end;

        line += *line == '\n';
        end = strchrnul(line, '\n');
        list = memchr(line, ':', (size_t)(end - line));
        path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        if (!path) {
            continue;
        }
        if (controller[0] ? has_word(list + 1, controller, path) : path == list + 1) {
            return snprintf(group, group_bytes, "%.*s", (int)(end - path - 1), path + 1) <
                   (int)group_bytes;
        }
    }
    return false;
}

/* Lines of mountinfo, proc(5): "36 35 98:0 /root /point options - type source super-options". */
static bool mount_of(char *text, const char *controller, char **root_out, char **point_out)
{
    char *next;

    for (char *line = text; line && *line; line = next) {
        char *root = NULL, *point = NULL, *tail, *type, *options;

        next = strchr(line, '\n');
        if (next) {
            *next++ = '\0';
        }
        tail = strstr(line, " - ");
        if (!tail) {
            continue;
        }
        *tail = '\0';
        for (int field = 0; field < 5; field++) {
            root = point;
            point = strsep(&line, " ");
        }
        tail += 3;
        type = strsep(&tail, " ");
        (void)strsep(&tail, " ");
        options = tail;
        if (!point || !options) {
            continue;
        }
        if (controller[0] ? strcmp(type, "cgroup") == 0 &&
                                has_word(options, controller, options + strlen(options))
                          : strcmp(type, "cgroup2") == 0) {
            *root_out = root;
            *point_out = point;
            return true;
        }
    }
    return false;
}

/* Returns true if a comma-separated list that ends at `end` contains the word. */
static bool has_word(const char *list, const char *word, const char *end)
{
    size_t bytes = strlen(word);

    while (list < end) {
        const char *comma = memchr(list, ',', (size_t)(end - list));
        const char *cancel = comma ? comma : end;

        if ((size_t)(cancel - list) == bytes && memcmp(list, word, bytes) == 0) {
            return true;
        }
        list = cancel + 1;
    }
    return false;
}

static bool level_up(struct hierarchy *hierarchy)
{
    char *slash = strrchr(hierarchy->directory, '/');

    if (!slash || strlen(hierarchy->directory) <= hierarchy->top_bytes) {
        return false;
    }
    *slash = '\0';
    return true;
}

static bool level_text(const struct hierarchy *hierarchy, const char *name, char *text,
                       size_t text_bytes)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/%s", hierarchy->directory, name);
    return stk_small_file_read_text(path, text, text_bytes);
}

/* UINT64_MAX: "max", -1, absent or no number. */
static uint64_t level_number(const struct hierarchy *hierarchy, const char *name)
{
    char text[64];
    const char *end;
    int64_t number;

    if (!level_text(hierarchy, name, text, sizeof text)) {
        return UINT64_MAX;
    }
    return stk_parse_int64(text, &end, &number) && number >= 0 ? (uint64_t)number : UINT64_MAX;
}

static uint64_t cores_of(uint64_t quota, uint64_t period)
{
    if (quota >= UINT64_MAX / 2 || period == 0 || period >= UINT64_MAX / 2) {
        return UINT64_MAX;
    }
    return (quota + period - 1) / period;
}
