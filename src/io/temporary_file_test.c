/* Goal: a temporary file has room for what it was opened for, grows, and has the written bytes; a
 * full disk is an error. Method: files of known bytes, in a folder of the test. */
#include "io/temporary_file.h"

#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
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
static void test_folders(void)
{
    struct stk_temporary_file file = {0};
    struct stoker_error error = {0};

    setenv("STOKER_CACHE", "/proc/none", 1);
    T_EQ("no cache folder", stk_temporary_file_open(&file, 1, &error), 0);
    stk_temporary_file_close(&file);
    setenv("TMPDIR", "/proc/none", 1);
    T_TRUE("no folder", stk_temporary_file_open(&file, 1, &error) < 0);
    T_ERROR("no folder", &error);
}

int main(void)
{
    char cache[] = "/tmp/stoker-temporary-XXXXXX";

    T_TRUE("folder", mkdtemp(cache) != NULL);
    setenv("STOKER_CACHE", cache, 1);
    test_bytes();
    test_full();
    test_folders();
    T_EQ("nothing is left", rmdir(cache), 0);
    return t_finish();
}
