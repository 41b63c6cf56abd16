/* base/crc.h: the checksums that object stores use: CRC32 (zip), CRC32C, and CRC64/NVME, which
 * Azure uses, too.
 *
 * Values are final ones (RFC 1952, 8; RFC 9260 appendix A; NVM Express command set 1.0, 5.2.1.3.4):
 * the checksum of no bytes is 0. The checksums of two adjacent pieces can be combined without their
 * bytes.
 * Owner: values. Threads: any. Memory: tables of 2 to 16 KiB, made once. Bound: none. */
#ifndef BASE_CRC_H
#define BASE_CRC_H

#include "base/base.h"

/* Continues from `crc`, the checksum of the bytes before (0: none). */
uint32_t stk_crc32(uint32_t crc, const void *data, size_t bytes);
uint32_t stk_crc32c(uint32_t crc, const void *data, size_t bytes);
uint64_t stk_crc64(uint64_t crc, const void *data, size_t bytes);
/* Returns the checksum of two adjacent pieces; `second` is the one of the last `bytes` bytes. */
uint32_t stk_crc32_combine(uint32_t first, uint32_t second, uint64_t bytes);
uint32_t stk_crc32c_combine(uint32_t first, uint32_t second, uint64_t bytes);
uint64_t stk_crc64_combine(uint64_t first, uint64_t second, uint64_t bytes);
/* Returns true if the processor has carry-less multiplication: more than 8 GB/s a core, else about
 * 2 GB/s. */
bool stk_crc_is_fast(void);

#endif
