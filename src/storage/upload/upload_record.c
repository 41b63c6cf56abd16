/* Files that name the unfinished uploads of this user. */
#include "storage/upload/upload_record.h"

#include "io/clock.h"
#include "io/user_paths.h"
#include "storage/sign/sigv4.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD "stoker upload 1\n"
#define HEAD_BYTES (sizeof HEAD - 1)
#define NAME_TARGET_BYTES 16u /* the first digits of a name: a hash of the target */
#define NAME_BYTES 33u        /* HASH-HASH: SHA-256 of the target and of the value, cut */
#define SIZE_BYTES 4u         /* of the target, before it */
#define NS_PER_SECOND 1000000000ull

static void write_hash(struct stk_view bytes, char text[NAME_TARGET_BYTES + 1])
{
    char digest[65];

    stk_sigv4_hash(bytes, digest);
    memcpy(text, digest, NAME_TARGET_BYTES);
    text[NAME_TARGET_BYTES] = '\0';
}

/* Opens CACHE/uploads, and makes it if it does not exist. Returns -1 if there is none that only
 * this user may write. */
static int open_folder(char *path, size_t path_bytes)
{
    struct stat stat;
    size_t used;
    int fd;

    if (!stk_user_cache_make(path, path_bytes - 16)) {
        return -1;
    }
    used = strlen(path);
    snprintf(path + used, path_bytes - used, "/uploads");
    (void)mkdir(path, 0700);
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &stat) < 0 || stat.st_uid != geteuid() || (stat.st_mode & 022))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Opens and locks a file of the folder. Returns -1 if another process has it, if it is not a
 * record, or if the file system has no locks; then a file that O_EXCL created is removed. */
static int open_record(int folder, const char *name, int flags, struct stat *stat)
{
    int fd = openat(folder, name, flags | O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

    if (fd < 0) {
        return -1;
    }
    /* A file that was removed meanwhile has no name any more. */
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, stat) < 0 || !S_ISREG(stat->st_mode) ||
        stat->st_nlink != 1 || stat->st_uid != geteuid()) {
        if (flags & O_EXCL) {
            (void)unlinkat(folder, name, 0);
        }
        close(fd);
        return -1;
    }
    return fd;
}

static bool keep(struct stk_upload_record *record, const char *folder, const char *name, int fd)
{
    int bytes = snprintf(record->path, sizeof record->path, "%s/%s", folder, name);

    record->fd = fd;
    record->is_open = bytes > 0 && bytes < (int)sizeof record->path;
    return record->is_open;
}

bool stk_upload_record_add(struct stk_upload_record *record, struct stk_view target,
                           struct stk_view value)
{
    char folder[STK_UPLOAD_RECORD_PATH_BYTES - 64], name[NAME_BYTES + 1];
    uint8_t text[STK_UPLOAD_RECORD_BYTES_MAX];
    size_t bytes = HEAD_BYTES + SIZE_BYTES + target.bytes + value.bytes;
    int folder_fd, fd = -1;
    struct stat stat;
    bool written;

    *record = (struct stk_upload_record){.is_open = false};
    folder_fd = bytes <= sizeof text ? open_folder(folder, sizeof folder) : -1;
    if (folder_fd < 0) {
        return false;
    }
    memcpy(text, HEAD, HEAD_BYTES);
    for (uint32_t i = 0; i < SIZE_BYTES; i++) {
        text[HEAD_BYTES + i] = (uint8_t)(target.bytes >> (8 * i));
    }
    memcpy(text + HEAD_BYTES + SIZE_BYTES, target.data, target.bytes);
    memcpy(text + HEAD_BYTES + SIZE_BYTES + target.bytes, value.data, value.bytes);
    write_hash(target, name);
    name[NAME_TARGET_BYTES] = '-';
    write_hash(value, name + NAME_TARGET_BYTES + 1);
    fd = open_record(folder_fd, name, O_CREAT | O_EXCL, &stat);
    written = fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes && keep(record, folder, name, fd);
    if (fd >= 0 && !written) {
        (void)unlinkat(folder_fd, name, 0);
        close(fd);
    }
    close(folder_fd);
    return written;
}

/* Reads a record. Returns false if it is of another target, or damaged. */
static bool read_value(int fd, struct stk_view target, uint8_t *value, size_t *value_bytes_out)
{
    uint8_t text[STK_UPLOAD_RECORD_BYTES_MAX];
    ssize_t got = pread(fd, text, sizeof text, 0);
    size_t head = HEAD_BYTES + SIZE_BYTES + target.bytes, target_bytes = 0;

    if (got < (ssize_t)head || memcmp(text, HEAD, HEAD_BYTES) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < SIZE_BYTES; i++) {
        target_bytes |= (size_t)text[HEAD_BYTES + i] << (8 * i);
    }
    if (target_bytes != target.bytes ||
        memcmp(text + HEAD_BYTES + SIZE_BYTES, target.data, target.bytes) != 0) {
        return false;
    }
    *value_bytes_out = (size_t)got - head;
    memcpy(value, text + head, *value_bytes_out);
    return true;
}

/* Removes a record that was not continued for a long time. */
static void remove_old(int folder, const char *name)
{
    uint64_t now_s = stk_clock_wall_ns() / NS_PER_SECOND;
    struct stat stat;
    int fd;

    if (strlen(name) != NAME_BYTES || fstatat(folder, name, &stat, AT_SYMLINK_NOFOLLOW) < 0 ||
        (uint64_t)stat.st_mtime + STK_UPLOAD_RECORD_DAYS * 86400ull > now_s) {
        return;
    }
    fd = open_record(folder, name, 0, &stat);
    if (fd >= 0) {
        (void)unlinkat(folder, name, 0);
        close(fd);
    }
}

bool stk_upload_record_find(struct stk_upload_record *record, struct stk_view target,
                            uint8_t *value, size_t *value_bytes_out)
{
    char folder[STK_UPLOAD_RECORD_PATH_BYTES - 64], prefix[NAME_BYTES + 1];
    char best[NAME_BYTES + 1] = "";
    struct timespec best_time = {0};
    struct dirent *entry;
    struct stat stat;
    int best_fd = -1;
    int folder_fd = open_folder(folder, sizeof folder);
    DIR *listing = folder_fd >= 0 ? fdopendir(folder_fd) : NULL;

    *record = (struct stk_upload_record){.is_open = false};
    if (!listing) {
        if (folder_fd >= 0) {
            close(folder_fd);
        }
        return false;
    }
    write_hash(target, prefix);
    memcpy(prefix + NAME_TARGET_BYTES, "-", 2);
    while ((entry = readdir(listing))) {
        bool younger;
        int fd;

        if (strncmp(entry->d_name, prefix, NAME_TARGET_BYTES + 1) != 0 ||
            strlen(entry->d_name) != NAME_BYTES) {
            remove_old(folder_fd, entry->d_name);
            continue;
        }
        fd = open_record(folder_fd, entry->d_name, 0, &stat);
        if (fd < 0) {
            continue;
        }
        younger =
            best_fd < 0 || stat.st_mtim.tv_sec > best_time.tv_sec ||
            (stat.st_mtim.tv_sec == best_time.tv_sec && stat.st_mtim.tv_nsec > best_time.tv_nsec);
        if (younger && read_value(fd, target, value, value_bytes_out)) {
            if (best_fd >= 0) {
                close(best_fd);
            }
            best_fd = fd;
            best_time = stat.st_mtim;
            memcpy(best, entry->d_name, NAME_BYTES + 1);
        } else {
            close(fd);
        }
    }
    if (best_fd >= 0 && !keep(record, folder, best, best_fd)) {
        close(best_fd);
    }
    closedir(listing);
    return record->is_open;
}

void stk_upload_record_remove(struct stk_upload_record *record)
{
    if (record->is_open) {
        (void)unlink(record->path);
    }
    stk_upload_record_close(record);
}

void stk_upload_record_close(struct stk_upload_record *record)
{
    if (record->is_open) {
        (void)flock(record->fd, LOCK_UN); /* a child of fork may still have the descriptor */
        close(record->fd);
    }
    record->is_open = false;
}
