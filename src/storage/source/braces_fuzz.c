/* Fuzz target of braces.c: a pattern expands to names that all end within the text, or is refused
 * with a reason. */
#include "base/mem.h"
#include "storage/source/path_list.h"

#include <string.h>

#define INPUT_BYTES_MAX 4096
#define NAMES_MAX 10000 /* fewer than allowed, so that more patterns are tried */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char pattern[INPUT_BYTES_MAX + 1], *text = NULL;
    struct stoker_error error = {0};
    size_t count = 0;

    bytes = bytes < INPUT_BYTES_MAX ? bytes : INPUT_BYTES_MAX;
    memcpy(pattern, data, bytes);
    pattern[bytes] = '\0';
    if (stk_braces_expand_max(pattern, NAMES_MAX, &text, &count, &error) < 0) {
        STK_ASSERT(!text && error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    STK_ASSERT(count > 0 && count <= NAMES_MAX);
    for (const char *name = text; count > 0; count--) {
        name += strlen(name) + 1;
    }
    stk_free(text);
    return 0;
}
