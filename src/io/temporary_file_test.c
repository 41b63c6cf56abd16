/* Goal: a temporary file has the requested space, grows, and has the written bytes; a full disk is
 * an error.
 * Method: files of known bytes, in a folder of the test. */
#include "io/temporary_file.h"

#include "test/t.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void test_bytes(void)
{
    struct stk_temporary_file file = {0};
    struct stoker_error error = {0};
    uint8_t got[8];

    T_EQ("open", stk_temporary_file_open(&file, 4096, &error), 0);
    memcpy(file.data, "begin", 5);
    T_EQ("grow", stk_temporary_file_resize(&file, 10000, &error), 0);
    T_TRUE("the first bytes stay", memcmp(file.data, "begin", 5) == 0);
    memcpy(file.data + 9000, "end", 3);
    stk_temporary_file_finish(&file, 9003);
    T_EQ("end", stk_temporary_file_read(&file, 8999, got, sizeof got), 4);
    T_TRUE("end", memcmp(got, "\0end", 4) == 0);
    T_EQ("begin", stk_temporary_file_read(&file, 0, got, 5), 5);
    T_TRUE("begin", memcmp(got, "begin", 5) == 0);
    T_EQ("behind the end", stk_temporary_file_read(&file, 9003, got, 1), 0);
    stk_temporary_file_close(&file);
    stk_temporary_file_close(&file);
}

static void test_full(void)
{
    struct stk_temporary_file file = {0};
    struct stoker_error error = {0};

    T_EQ("too large", stk_temporary_file_open(&file, 1ull << 60, &error), -ENOSPC);
    T_ERROR("too large", &error);
    T_EQ("for any file system", stk_temporary_file_open(&file, UINT64_MAX, &error), -ENOSPC);
    T_EQ("open", stk_temporary_file_open(&file, 1, &error), 0);
    T_EQ("grow", stk_temporary_file_resize(&file, 1ull << 60, &error), -ENOSPC);
    T_TRUE("as it was", file.bytes == 1 && file.data != NULL);
    stk_temporary_file_close(&file);
}

/* Without a cache folder the one for temporary files is used. */
static void test_folders(const char *folder)
{
    struct stk_temporary_file file = {0};
    struct stoker_error error = {0};
    char cache[64], above[64];

    snprintf(above, sizeof above, "%s/a", folder);
    snprintf(cache, sizeof cache, "%s/b", above);
    setenv("STOKER_CACHE", cache, 1);
    T_EQ("a cache folder that does not exist", stk_temporary_file_open(&file, 1, &error), 0);
    stk_temporary_file_close(&file);
    T_EQ("it was created", rmdir(cache), 0);
    T_EQ("and the one above it", rmdir(above), 0);
    setenv("STOKER_CACHE", "/proc/none", 1);
    T_EQ("no cache folder", stk_temporary_file_open(&file, 1, &error), 0);
    stk_temporary_file_close(&file);
    setenv("TMPDIR", "/proc/none", 1);
    T_TRUE("no folder", stk_temporary_file_open(&file, 1, &error) < 0);
    T_ERROR("no folder", &error);
}

static int interruptions, fallocate_error;
static off_t step_max;

/* Instead of the C library's: a file system that cannot reserve, and signals. */
int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    step_max = bytes > step_max ? bytes : step_max;
    errno = interruptions > 0 ? EINTR : fallocate_error;
    return interruptions-- > 0 || fallocate_error
               ? -1
               : (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

static void test_reserve(void)
{
    struct stk_temporary_file file = {0};
    struct stoker_error error = {0};
    struct stat about;

    interruptions = 3;
    T_EQ("interrupted", stk_temporary_file_open(&file, 40u << 20, &error), 0);
    T_EQ("step", step_max, 16 << 20);
    T_TRUE("reserved", fstat(file.fd, &about) == 0 && about.st_blocks >= 40 << 11);
    fallocate_error = EOPNOTSUPP;
    T_EQ("cannot reserve", stk_temporary_file_resize(&file, 80u << 20, &error), 0);
    T_TRUE("longer", fstat(file.fd, &about) == 0 && about.st_size == 80 << 20);
    T_TRUE("no block was written", about.st_blocks < 80 << 11);
    file.data[(80u << 20) - 1] = 1;
    fallocate_error = ENOSPC;
    T_EQ("full", stk_temporary_file_resize(&file, 96u << 20, &error), -ENOSPC);
    T_ERROR("full", &error);
    stk_temporary_file_close(&file);
    fallocate_error = 0;
}

int main(void)
{
    char cache[] = "/tmp/stoker-temporary-XXXXXX";

    T_TRUE("folder", mkdtemp(cache) != NULL);
    setenv("STOKER_CACHE", cache, 1);
    test_bytes();
    test_full();
    test_reserve();
    test_folders(cache);
    T_EQ("nothing is left", rmdir(cache), 0);
    return t_finish();
}
