/* base/crc.h: the checksums that object stores keep: CRC32 (of zip), CRC32C, and CRC64 as NVMe has
 * it, which is Azure's too.
 *
 * All are whole values (RFC 1952, 8; RFC 9260 appendix A; NVM Express command set 1.0,
 * 5.2.1.3.4): the sum of nothing is 0, and sums of neighbouring pieces are combined without their
 * bytes.
 * Owner: values. Threads: any. Memory: tables of 2 to 16 KiB, made once. Bound: none. */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include "base/base.h"

/* Goes on from `crc`, the sum of what came before (0: nothing). */
uint32_t stk_crc32(uint32_t crc, const void *data, size_t bytes);
uint32_t stk_crc32c(uint32_t crc, const void *data, size_t bytes);
uint64_t stk_crc64(uint64_t crc, const void *data, size_t bytes);
/* The sum of two neighbours: `second` is that of `bytes` bytes. */
uint32_t stk_crc32_combine(uint32_t first, uint32_t second, uint64_t bytes);
uint32_t stk_crc32c_combine(uint32_t first, uint32_t second, uint64_t bytes);
uint64_t stk_crc64_combine(uint64_t first, uint64_t second, uint64_t bytes);
/* Whether the processor folds: more than 8 GB/s a core, else some 2. */
bool stk_crc_is_fast(void);

#endif
