/* Fuzz of dcp_metadata.c: the input is a .metadata. An accepted one has plain file names, and
 * chunks with as many dimensions as their tensor. */
#include "base/mem.h"
#include "checkpoint/foreign/dcp_metadata.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_dcp_metadata metadata = {0};
    struct stoker_error error = {0};
    int status = stk_dcp_metadata_parse(&metadata, (struct stk_view){data, bytes}, &error);

    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
        return 0;
    }
    for (uint64_t i = 0; i < metadata.item_count; i++) {
        const struct stk_dcp_item *item = &metadata.items[i];

        STK_ASSERT(!memchr(item->file.data, '/', item->file.bytes) && item->file.data[0] != '.');
        STK_ASSERT(stk_dcp_find(&metadata, item->name, item->chunk ? item->origin : NULL,
                                item->dimension_count) == item);
    }
    for (uint64_t i = 0; i < metadata.tensor_count; i++) {
        const struct stk_dcp_tensor *tensor = &metadata.tensors[i];
        struct stk_dcp_chunk chunk;

        STK_ASSERT(tensor->dtype && tensor->dimension_count <= STOKER_CHECKPOINT_DIMENSIONS_MAX);
        if (tensor->chunks->count > 0) {
            (void)stk_dcp_chunk(&metadata, tensor,
                                stk_pickle_item(&metadata.pickle, tensor->chunks, 0), &chunk,
                                &error);
        }
    }
    stk_dcp_metadata_deinit(&metadata);
    return 0;
}
