/* Absolute paths, and the cache folder. */
#include "io/user_paths.h"

#include "io/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool stk_path_absolute(const char *path, char *text, size_t text_bytes)
{
    size_t used = 0;

    if (stk_io_is_url(path)) {
        return (size_t)snprintf(text, text_bytes, "%s", path) < text_bytes;
    }
    if (path[0] != '/') {
        if (!getcwd(text, text_bytes)) {
            return false;
        }
        used = strlen(text);
    }
    return (size_t)snprintf(text + used, text_bytes - used, "%s%s", path[0] == '/' ? "" : "/",
                            path) < text_bytes - used;
}

bool stk_user_cache_dir(char *text, size_t text_bytes)
{
    static const struct {
        const char *name, *below;
    } homes[] = {{"STOKER_CACHE", ""}, {"XDG_CACHE_HOME", "/stoker"}, {"HOME", "/.cache/stoker"}};

    for (size_t i = 0; i < STK_COUNT(homes); i++) {
        const char *value = getenv(homes[i].name);
        size_t bytes = value ? strlen(value) : 0;

        while (bytes > 1 && value[bytes - 1] == '/') {
            bytes--;
        }
        if (bytes > 0 && value[0] == '/') {
            return (size_t)snprintf(text, text_bytes, "%.*s%s", (int)stk_min(bytes, 8192), value,
                                    homes[i].below) < text_bytes;
        }
    }
    return false;
}

bool stk_user_cache_make(char *text, size_t text_bytes)
{
    if (!stk_user_cache_dir(text, text_bytes)) {
        return false;
    }
    for (char *at = text + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        (void)mkdir(text, 0777);
        *at = '/';
    }
    (void)mkdir(text, 0777);
    return true;
}
