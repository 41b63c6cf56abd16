/* Fuzz of safetensors.c: the input is the header of a file; its first 4 bytes are the length of the
 * buffer. The tensors of an accepted one fill the buffer. */
#include "base/mem.h"
#include "checkpoint/layout/safetensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_safetensors file = {0};
    struct stoker_error error = {0};
    uint64_t end = 0;
    uint32_t buffer_bytes;
    int status;

    if (bytes < sizeof buffer_bytes) {
        return 0;
    }
    memcpy(&buffer_bytes, data, sizeof buffer_bytes);
    data += sizeof buffer_bytes;
    bytes -= sizeof buffer_bytes;
    status = stk_safetensors_parse(&file, (struct stk_view){data, bytes}, bytes + 8 + buffer_bytes,
                                   &error);
    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    for (uint64_t i = 0; i < file.count; i++) {
        STK_ASSERT(file.tensors[i].offset == end && strlen(file.tensors[i].name) < 4096);
        for (uint32_t j = 0; j < file.tensors[i].dimension_count; j++) {
            STK_ASSERT(file.tensors[i].bytes == 0 || file.tensors[i].shape[j] > 0);
        }
        end += file.tensors[i].bytes;
    }
    STK_ASSERT(end == buffer_bytes);
    stk_safetensors_deinit(&file);
    return 0;
}
