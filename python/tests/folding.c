/* Makes folders called FOLD ignore case, as vfat, APFS and SMB do: preloaded into the command, it
 * writes what follows "/FOLD/" in a path, and names relative to a descriptor in such a folder, in
 * lower case before the system call. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The next definition of a function. */
#define NEXT(type, name) ((type)dlsym(RTLD_NEXT, name))

static const char *fold(int folder, const char *path, char text[PATH_MAX])
{
    char link[64], place[PATH_MAX] = "";
    const char *at = strstr(path, "/FOLD/");
    size_t begin = at ? (size_t)(at - path) + 6 : strlen(path);

    if (path[0] != '/' && !at && folder != AT_FDCWD) {
        ssize_t bytes;

        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        bytes = readlink(link, place, sizeof place - 2);
        place[bytes > 0 ? bytes : 0] = '/';
        begin = strstr(place, "/FOLD/") ? 0 : begin;
    }
    snprintf(text, PATH_MAX, "%s", path);
    for (char *c = text + begin; begin < strlen(text) && *c; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    return text;
}

int open64(const char *path, int flags, ...)
{
    char text[PATH_MAX];
    va_list list;
    int mode;

    va_start(list, flags);
    mode = va_arg(list, int);
    va_end(list);
    return NEXT(int (*)(const char *, int, ...), "open64")(fold(AT_FDCWD, path, text), flags, mode);
}

int openat64(int folder, const char *path, int flags, ...)
{
    char text[PATH_MAX];
    va_list list;
    int mode;

    va_start(list, flags);
    mode = va_arg(list, int);
    va_end(list);
    return NEXT(int (*)(int, const char *, int, ...), "openat64")(folder, fold(folder, path, text),
                                                                  flags, mode);
}

int __openat64_2(int folder, const char *path, int flags)
{
    return openat64(folder, path, flags, 0);
}

/* Of openat2, which libc has no function for. */
long syscall(long number, ...)
{
    char text[PATH_MAX];
    long words[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        words[i] = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_openat2) {
        words[1] = (long)fold((int)words[0], (const char *)words[1], text);
    }
    return NEXT(long (*)(long, ...), "syscall")(number, words[0], words[1], words[2], words[3],
                                                words[4], words[5]);
}

int stat64(const char *path, struct stat64 *found)
{
    char text[PATH_MAX];

    return NEXT(int (*)(const char *, struct stat64 *), "stat64")(fold(AT_FDCWD, path, text),
                                                                  found);
}

int lstat64(const char *path, struct stat64 *found)
{
    char text[PATH_MAX];

    return NEXT(int (*)(const char *, struct stat64 *), "lstat64")(fold(AT_FDCWD, path, text),
                                                                   found);
}

int fstatat64(int folder, const char *path, struct stat64 *found, int flags)
{
    char text[PATH_MAX];

    return NEXT(int (*)(int, const char *, struct stat64 *, int),
                "fstatat64")(folder, fold(folder, path, text), found, flags);
}

int statx(int folder, const char *path, int flags, unsigned mask, struct statx *found)
{
    char text[PATH_MAX];

    return NEXT(int (*)(int, const char *, int, unsigned, struct statx *),
                "statx")(folder, fold(folder, path, text), flags, mask, found);
}

int access(const char *path, int mode)
{
    char text[PATH_MAX];

    return NEXT(int (*)(const char *, int), "access")(fold(AT_FDCWD, path, text), mode);
}

int mkdir(const char *path, mode_t mode)
{
    char text[PATH_MAX];

    return NEXT(int (*)(const char *, mode_t), "mkdir")(fold(AT_FDCWD, path, text), mode);
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    char text[PATH_MAX];

    return NEXT(int (*)(int, const char *, mode_t), "mkdirat")(folder, fold(folder, path, text),
                                                               mode);
}

ssize_t readlinkat(int folder, const char *path, char *target, size_t bytes)
{
    char text[PATH_MAX];

    return NEXT(ssize_t (*)(int, const char *, char *, size_t),
                "readlinkat")(folder, fold(folder, path, text), target, bytes);
}

int utimensat(int folder, const char *path, const struct timespec times[2], int flags)
{
    char text[PATH_MAX];

    return NEXT(int (*)(int, const char *, const struct timespec *, int),
                "utimensat")(folder, path ? fold(folder, path, text) : NULL, times, flags);
}

int unlink(const char *path)
{
    char text[PATH_MAX];

    return NEXT(int (*)(const char *), "unlink")(fold(AT_FDCWD, path, text));
}

int unlinkat(int folder, const char *path, int flags)
{
    char text[PATH_MAX];

    return NEXT(int (*)(int, const char *, int), "unlinkat")(folder, fold(folder, path, text),
                                                             flags);
}

int rename(const char *from, const char *to)
{
    char text[2][PATH_MAX];

    return NEXT(int (*)(const char *, const char *), "rename")(fold(AT_FDCWD, from, text[0]),
                                                               fold(AT_FDCWD, to, text[1]));
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    char text[2][PATH_MAX];

    return NEXT(int (*)(int, const char *, int, const char *), "renameat")(
        from_folder, fold(from_folder, from, text[0]), to_folder, fold(to_folder, to, text[1]));
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    char text[2][PATH_MAX];

    return NEXT(int (*)(int, const char *, int, const char *, int),
                "linkat")(from_folder, fold(from_folder, from, text[0]), to_folder,
                          fold(to_folder, to, text[1]), flags);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    char text[2][PATH_MAX];

    return NEXT(int (*)(int, const char *, int, const char *, unsigned),
                "renameat2")(from_folder, fold(from_folder, from, text[0]), to_folder,
                             fold(to_folder, to, text[1]), flags);
}

char *realpath(const char *path, char *resolved)
{
    char text[PATH_MAX];

    return NEXT(char *(*)(const char *, char *), "realpath")(fold(AT_FDCWD, path, text), resolved);
}

char *__realpath_chk(const char *path, char *resolved, size_t bytes)
{
    (void)bytes;
    return realpath(path, resolved);
}

void *opendir(const char *path)
{
    char text[PATH_MAX];

    return NEXT(void *(*)(const char *), "opendir")(fold(AT_FDCWD, path, text));
}
