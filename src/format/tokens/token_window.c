/* Which tokens fixed windows are: sample -> file and first token, in O(log files). */
#include "format/tokens/tokens.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

int stk_token_windows_open(struct stk_token_windows *windows, uint64_t length, uint64_t stride,
                           const uint64_t *counts, uint32_t file_count, struct stoker_error *error)
{
    uint64_t total = 0;

    memset(windows, 0, sizeof *windows);
    if (length == 0 || stride == 0 || file_count > STK_TOKEN_FILES_MAX) {
        return stk_fail(
            error, STOKER_ERROR_ARGUMENT, "windows cannot be cut like this",
            "give a length and a stride of 1 token or more, and 1,048,576 files at most",
            "length %llu, stride %llu, %u files", (unsigned long long)length,
            (unsigned long long)stride, file_count);
    }
    uint64_t *ends = stk_alloc(stk_max(file_count, 1), sizeof *ends);

    if (!ends) {
        return stk_fail(error, -ENOMEM, "cannot keep a list of files", "free memory", "%u files",
                        file_count);
    }
    for (uint32_t i = 0; i < file_count; i++) {
        /* Files are in memory (2^64 bytes at most together), and windows begin at different tokens:
         * so the sum of their counts cannot wrap. */
        total += counts[i] < length ? 0 : (counts[i] - length) / stride + 1;
        ends[i] = total;
    }
    if (total == 0) {
        stk_free(ends);
        return stk_fail(error, STOKER_ERROR_EMPTY, "no file has a complete window",
                        "take a shorter context, or more tokens a file",
                        "%llu tokens a window, %u files", (unsigned long long)length, file_count);
    }
    *windows = (struct stk_token_windows){length, stride, file_count, ends};
    return 0;
}

void stk_token_windows_close(struct stk_token_windows *windows)
{
    stk_free(windows->ends);
    memset(windows, 0, sizeof *windows);
}

uint64_t stk_token_windows_count(const struct stk_token_windows *windows)
{
    return windows->file_count > 0 ? windows->ends[windows->file_count - 1] : 0;
}

struct stk_token_window stk_token_windows_get(const struct stk_token_windows *windows,
                                              uint64_t sample)
{
    uint32_t low = 0, high = windows->file_count - 1; /* the first file whose end is above sample */

    STK_ASSERT(sample < stk_token_windows_count(windows));
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (windows->ends[middle] > sample) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return (struct stk_token_window){low, (sample - (low > 0 ? windows->ends[low - 1] : 0)) *
                                              windows->stride};
}
