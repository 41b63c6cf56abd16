/* Goal: small files are saved atomically, are readable by their owner only, and are read back.
 * Method: a folder in /tmp with a link at the name, and paths where no file can be. */
#include "io/small_file.h"

#include "test/t.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_save(void)
{
    char folder[] = "/tmp/stoker-save-XXXXXX", path[64], none[96], text[16], command[64];
    struct stat stat;

    T_TRUE("folder", mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/a", folder);
    snprintf(none, sizeof none, "%s/none/a", folder);
    T_EQ("link", symlink("/dev/null", path), 0);
    T_EQ("save", stk_small_file_write(path, "first", 5), 0);
    T_EQ("again", stk_small_file_write(path, "two", 3), 0);
    T_TRUE("read", stk_small_file_read_text(path, text, sizeof text));
    T_STR("read", text, "two");
    T_EQ("a file of its own", lstat(path, &stat) == 0 ? stat.st_mode : 0, S_IFREG | 0600);
    T_EQ("no folder", stk_small_file_write(none, "x", 1), -ENOENT);
    T_EQ("a folder", stk_small_file_write(folder, "x", 1), -EISDIR);
    unlink(path);
    snprintf(command, sizeof command, "rmdir %s", folder); /* no other file is left in the folder */
    T_EQ("clean", system(command), 0);
    snprintf(command, sizeof command, "test -z \"$(ls -d %s.* 2>/dev/null)\"", folder);
    T_EQ("clean", system(command), 0);
}

int main(void)
{
    test_save();
    return t_finish();
}
