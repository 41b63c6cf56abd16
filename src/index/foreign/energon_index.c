/* Offsets out of an Energon .tar.idx. */
#include "index/foreign/energon_index.h"

#include <string.h>

enum { BLOCK = 512 };

uint64_t stk_energon_index_offset(const struct stk_energon_index *energon, uint64_t sample)
{
    uint64_t offset = 0;

    STK_ASSERT(sample <= energon->samples);
    for (int i = 7; i >= 0; i--) {
        offset = offset << 8 | energon->text.data[8 * sample + i];
    }
    return offset;
}

int stk_energon_index_open(struct stk_energon_index *energon, struct stk_view text,
                           uint64_t tar_bytes, struct stoker_error *error)
{
    uint64_t before = 0;

    *energon = (struct stk_energon_index){.text = text};
    if (text.bytes == 0 || text.bytes % 8 != 0 || text.bytes > STK_ENERGON_INDEX_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "an index of Energon cannot be used",
                        "make it again with 'energon prepare'", "%zu bytes are no list of offsets",
                        text.bytes);
    }
    energon->samples = text.bytes / 8 - 1;
    for (uint64_t i = 0; i <= energon->samples; i++) {
        uint64_t offset = stk_energon_index_offset(energon, i);

        if (offset % BLOCK != 0 || offset > tar_bytes || (i > 0 && offset <= before)) {
            stk_fail(error, STOKER_ERROR_CORRUPT, "an index of Energon cannot be used",
                     "make it again with 'energon prepare'", "sample %llu at %llu of %llu bytes",
                     (unsigned long long)i, (unsigned long long)offset,
                     (unsigned long long)tar_bytes);
            stk_error_set_location(error, NULL, 8 * i, NULL);
            return STOKER_ERROR_CORRUPT;
        }
        before = offset;
    }
    return 0;
}
