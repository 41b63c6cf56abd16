/* index/foreign/energon_index.h: parses the index that Megatron-Energon stores next to a tar: the
 * offsets of its samples.
 *
 *   u64 offsets[samples + 1], little-endian: the first header block of each sample, and the end
 *   of the last sample. No names, no sizes, no magic number.
 *
 * Source: NVIDIA Megatron-Energon, flavors/webdataset/itar.py and prepare.py at bef8be2.
 * Pure. Owner: values. Threads: any.
 * Memory: none.
 * Bound: STK_ENERGON_INDEX_BYTES_MAX. */
#ifndef INDEX_FOREIGN_ENERGON_INDEX_H
#define INDEX_FOREIGN_ENERGON_INDEX_H

#include "base/base.h"

#define STK_ENERGON_INDEX_BYTES_MAX (1ull << 30)

struct stk_energon_index {
    struct stk_view text; /* borrowed */
    uint64_t samples;
};

/* tar_bytes: the size of the tar. Returns 0, STOKER_ERROR_FORMAT if the text cannot be such an
 * index, or STOKER_ERROR_CORRUPT unless its offsets ascend by complete blocks within the tar. */
int stk_energon_index_open(struct stk_energon_index *energon, struct stk_view text,
                           uint64_t tar_bytes, struct stoker_error *error);
/* sample <= samples: the last one is the end. */
uint64_t stk_energon_index_offset(const struct stk_energon_index *energon, uint64_t sample);

#endif
