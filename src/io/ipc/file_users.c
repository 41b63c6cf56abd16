/* Reads /proc/PID/fd and /proc/PID/maps of all processes that this one may inspect. */
#include "io/ipc/file_users.h"

#include "base/mem.h"
#include "base/text/parse_number.h"
#include "base/text/text_match.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DELETED " (deleted)"

static int add(struct stk_file_users *users, uint64_t inode)
{
    if (users->count == STK_FILE_USERS_MAX) {
        users->is_unknown = true;
        return 0;
    }
    if (users->count == users->capacity) {
        size_t capacity = users->capacity ? 2 * users->capacity : 16;
        uint64_t *grown = stk_realloc(users->inodes, users->count, capacity, sizeof *grown);

        if (!grown) {
            return -ENOMEM;
        }
        users->inodes = grown;
        users->capacity = capacity;
    }
    users->inodes[users->count++] = inode;
    return 0;
}

/* The name at the end of a path, or NULL if the file has no name any more. Changes the text. */
static const char *name_of(char *path)
{
    size_t bytes = strlen(path);
    const char *slash = strrchr(path, '/');

    if (bytes > 0 && path[bytes - 1] == '\n') {
        path[--bytes] = '\0';
    }
    return !slash || stk_text_ends_with(path, DELETED) ? NULL : slash + 1;
}

static int list_descriptors(struct stk_file_users *users, const char *process,
                            bool (*is_wanted)(const char *name))
{
    char folder[64], path[4096];
    struct dirent *entry;
    struct stat about;
    int status = 0;
    DIR *listing;

    snprintf(folder, sizeof folder, "/proc/%.20s/fd", process);
    listing = opendir(folder);
    while (listing && status == 0 && (entry = readdir(listing))) {
        ssize_t bytes = readlinkat(dirfd(listing), entry->d_name, path, sizeof path - 1);
        const char *name;

        path[bytes > 0 ? bytes : 0] = '\0';
        name = name_of(path);
        if (name && is_wanted(name) && fstatat(dirfd(listing), entry->d_name, &about, 0) == 0) {
            status = add(users, about.st_ino);
        }
    }
    if (listing) {
        closedir(listing);
    }
    return status;
}

/* A line is "begin-end perms offset major:minor inode path". */
static int list_maps(struct stk_file_users *users, const char *process,
                     bool (*is_wanted)(const char *name))
{
    char path[64], *line = NULL;
    size_t capacity = 0;
    int status = 0;
    FILE *maps;

    snprintf(path, sizeof path, "/proc/%.20s/maps", process);
    maps = fopen(path, "re");
    while (maps && status == 0 && getline(&line, &capacity, maps) > 0) {
        const char *name = name_of(line), *field = line;

        for (int i = 0; field && i < 4; i++) {
            field = strchr(field, ' ');
            field = field ? field + 1 : NULL;
        }
        if (name && field && is_wanted(name)) {
            const char *end;
            uint64_t inode;

            status = stk_parse_uint64(field, &end, &inode) ? add(users, inode) : 0;
        }
    }
    free(line);
    if (maps) {
        fclose(maps);
    }
    return status;
}

int stk_file_users_list(struct stk_file_users *users, bool (*is_wanted)(const char *name))
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    bool found = false;
    int status = 0;

    *users = (struct stk_file_users){0};
    while (processes && status == 0 && (entry = readdir(processes))) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') {
            found = true;
            status = list_descriptors(users, entry->d_name, is_wanted);
            status = status < 0 ? status : list_maps(users, entry->d_name, is_wanted);
        }
    }
    if (processes) {
        closedir(processes);
    }
    users->is_unknown |= !found;
    if (status < 0) {
        stk_file_users_deinit(users);
    }
    return status;
}

bool stk_file_users_has(const struct stk_file_users *users, uint64_t inode)
{
    for (size_t i = 0; i < users->count; i++) {
        if (users->inodes[i] == inode) {
            return true;
        }
    }
    return users->is_unknown;
}

void stk_file_users_deinit(struct stk_file_users *users)
{
    stk_free(users->inodes);
    *users = (struct stk_file_users){0};
}
