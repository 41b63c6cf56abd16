/* The node cache that environment variables name. */
#include "storage/cache/node_cache.h"

#include "base/mem.h"
#include "base/text/parse_number.h"

#include <stdlib.h>
#include <string.h>

#define FOLDERS "STOKER_CACHE_DIR"
#define BYTES "STOKER_CACHE_BYTES"

int stk_cache_open_environment(struct stoker_cache **cache_out, struct stoker_error *error)
{
    const char *folders = getenv(FOLDERS), *bytes = getenv(BYTES);
    const char *paths[STK_CACHE_FOLDERS_MAX];
    struct stoker_cache_options options = {.struct_size = sizeof options, .paths = paths};
    char *text, *rest;
    int status;

    *cache_out = NULL;
    if (!folders || !folders[0]) {
        return 0;
    }
    if (bytes && bytes[0] && !stk_parse_size(bytes, true, &options.bytes_max)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "an environment variable is not a number",
                        "set it to bytes, like 800GB or 64GiB, or remove it", BYTES "='%.100s'",
                        bytes);
    }
    text = rest = stk_strdup(folders);
    if (!text) {
        return stk_fail_memory(error, FOLDERS);
    }
    for (char *path; (path = strsep(&rest, ":"));) {
        if (options.path_count == STK_CACHE_FOLDERS_MAX) {
            stk_free(text);
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "there are too many cache folders",
                            "name at most 16", FOLDERS);
        }
        if (path[0]) {
            paths[options.path_count++] = path;
        }
    }
    status = stoker_cache_open(cache_out, &options, error);
    stk_free(text);
    return status;
}
