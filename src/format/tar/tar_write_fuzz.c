/* Fuzz target of tar_write.c: any file name (all but the last byte) is written with a size from the
 * last byte, and our reader finds the same name and size. A name that ends with a slash is refused.
 */
#include "format/tar/tar.h"
#include "format/tar/tar_write.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint8_t header[STK_TAR_HEADER_MAX];
    struct stk_tar_limits limits = {.name_bytes_max = STK_TAR_NAME_MAX};
    struct stk_view name = {data, bytes - 1}, input = {0};
    struct stk_tar_step step = {0};
    struct stk_tar *tar = NULL;
    uint64_t size;

    if (bytes < 2 || bytes - 1 > STK_TAR_NAME_MAX || memchr(data, 0, bytes - 1) ||
        data[bytes - 2] == '/') {
        return 0;
    }
    size = UINT64_C(1) << data[bytes - 1] % 62;
    STK_ASSERT(stk_tar_header_write(name, size, header) == stk_tar_header_bytes(name, size));
    STK_ASSERT(stk_tar_open(&tar, UINT64_MAX, &limits, NULL) == 0);
    while (step.event != STK_TAR_MEMBER) {
        STK_ASSERT(stk_tar_step(tar, input, &step, NULL) == 0 && step.event != STK_TAR_END);
        STK_ASSERT(step.event == STK_TAR_MEMBER || step.offset < sizeof header);
        if (step.event == STK_TAR_NEED) {
            input = (struct stk_view){header + step.offset, sizeof header - step.offset};
        }
    }
    STK_ASSERT(step.bytes == size && step.name.bytes == name.bytes &&
               memcmp(step.name.data, name.data, name.bytes) == 0);
    stk_tar_close(tar);
    return 0;
}
