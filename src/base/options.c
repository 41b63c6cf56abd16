/* Copies public structs between versions: struct_size is the first member of each. */
#include "base/options.h"

#include <string.h>

static size_t size_of(const void *options)
{
    size_t bytes = 0;

    if (options) {
        memcpy(&bytes, options, sizeof bytes);
    }
    return bytes;
}

static int check_size(const void *options, size_t bytes, size_t bytes_min, const char *name,
                      struct stoker_error *error)
{
    size_t size = size_of(options);

    STK_ASSERT(bytes >= bytes_min && bytes_min >= sizeof size);
    if (size >= bytes_min && size <= stk_max(STK_OPTIONS_BYTES_MAX, 2 * bytes)) {
        return 0;
    }
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "struct_size is not set",
                    "set struct_size to sizeof of the struct, and every unused field to 0",
                    "%s: struct_size %zu", name, size);
}

int stk_options_read(void *options_out, size_t bytes, size_t bytes_min, const void *given,
                     const char *name, struct stoker_error *error)
{
    const uint8_t *from = given;
    size_t size = size_of(given);
    int status = check_size(given, bytes, bytes_min, name, error);

    memset(options_out, 0, bytes);
    if (status < 0) {
        return status;
    }
    for (size_t i = bytes; i < size; i++) {
        if (from[i] != 0) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT,
                            "an option is set that this version of the library does not know",
                            "use the library that belongs to the header, or leave the option at 0",
                            "%s: struct_size %zu, known %zu, byte %zu is set", name, size, bytes,
                            i);
        }
    }
    memcpy(options_out, given, stk_min(size, bytes));
    memcpy(options_out, &bytes, sizeof bytes);
    return 0;
}

int stk_options_check_output(const void *output, size_t bytes, size_t bytes_min, const char *name,
                             struct stoker_error *error)
{
    return check_size(output, bytes, bytes_min, name, error);
}

int stk_options_write_output(void *output, const void *full, size_t bytes, const char *name,
                             struct stoker_error *error)
{
    size_t size = size_of(output);
    int status = check_size(output, bytes, sizeof size, name, error);

    if (status < 0) {
        return status;
    }
    memcpy((uint8_t *)output + sizeof size, (const uint8_t *)full + sizeof size,
           stk_min(size, bytes) - sizeof size);
    if (size > bytes) {
        memset((uint8_t *)output + bytes, 0, size - bytes);
    }
    return 0;
}
