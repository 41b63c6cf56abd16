/* The names: AppleDouble files of macOS ("._" before the name of the file), the tables of its
 * Finder, those of Windows, and copies by Jupyter. */
#include "base/text/system_file.h"

#include <string.h>

static const char *const names[] = {".DS_Store",          "Thumbs.db", "desktop.ini",
                                    ".ipynb_checkpoints", "__MACOSX",  ".Spotlight-V100",
                                    ".Trashes",           ".fseventsd"};

bool stk_system_file_is(const char *name, size_t bytes)
{
    if (bytes > 2 && name[0] == '.' && name[1] == '_') {
        return true;
    }
    /* Most names begin with another letter. */
    if (bytes < 8 || !strchr(".TD_td", name[0])) {
        return false;
    }
    for (size_t i = 0; i < STK_COUNT(names); i++) {
        if (strlen(names[i]) == bytes && strncasecmp(names[i], name, bytes) == 0) {
            return true;
        }
    }
    return false;
}

bool stk_system_file_in_path(struct stk_view path)
{
    const char *text = (const char *)path.data;
    size_t start = 0;

    while (start < path.bytes) {
        const char *slash = memchr(text + start, '/', path.bytes - start);
        size_t end = slash ? (size_t)(slash - text) : path.bytes;

        if (stk_system_file_is(text + start, end - start)) {
            return true;
        }
        start = end + 1;
    }
    return false;
}
