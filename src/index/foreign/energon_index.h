/* index/foreign/energon_index.h: the index that Megatron-Energon keeps beside a tar: where samples
 * begin.
 *
 *   u64 offsets[samples + 1], little end first: of each sample's first header block, and of the
 *   end of the last sample. No names, no sizes, no mark of what it is.
 *
 * Source: NVIDIA Megatron-Energon, flavors/webdataset/itar.py and prepare.py at bef8be2.
 * Pure. Owner: values. Threads: any. Memory: none. Bound: STK_ENERGON_INDEX_BYTES_MAX. */
#ifndef INDEX_FOREIGN_ENERGON_INDEX_H
#define INDEX_FOREIGN_ENERGON_INDEX_H

#include "base/base.h"

#define STK_ENERGON_INDEX_BYTES_MAX (1ull << 30)

struct stk_energon_index {
    struct stk_view text; /* lent */
    uint64_t samples;
};

/* tar_bytes: of the tar. FORMAT: it cannot be one; CORRUPT: its offsets do not rise by whole blocks
 * and stay in the tar. */
int stk_energon_index_open(struct stk_energon_index *energon, struct stk_view text,
                           uint64_t tar_bytes, struct stoker_error *error);
/* sample <= samples: the last is the end. */
uint64_t stk_energon_index_offset(const struct stk_energon_index *energon, uint64_t sample);

#endif
