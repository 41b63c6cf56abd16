/* format/tar/tar_write.h: the headers of a tar that is being written.
 *
 *   header, data, padding; header, data, padding; ... ; end marker
 *
 * ustar (POSIX.1-2017 pax, "ustar Interchange Format"). A name that fits neither the name field nor
 * prefix and name, or a size of 8 GiB and more, gets a PAX header before it. Nothing in a header
 * depends on who writes it when: mode 0644, owner 0, time 0. Pure: no I/O, no clock.
 * Owner: values. Threads: any. Memory: the caller's. Bound: names of STK_TAR_NAME_MAX bytes. */
#ifndef FORMAT_TAR_TAR_WRITE_H
#define FORMAT_TAR_TAR_WRITE_H

#include "base/base.h"

enum {
    STK_TAR_BLOCK = 512,
    STK_TAR_END_BYTES = 2 * STK_TAR_BLOCK, /* zeros that end a tar */
    STK_TAR_NAME_MAX = 8192,
    STK_TAR_HEADER_MAX = STK_TAR_NAME_MAX + 4 * STK_TAR_BLOCK,
};

/* Bytes of the header blocks of a member: 512, or more where a PAX header is needed; at most
 * STK_TAR_HEADER_MAX for a name of 1 to STK_TAR_NAME_MAX bytes without NUL. */
size_t stk_tar_header_bytes(struct stk_view name, uint64_t bytes);
/* Writes them; returns how many. */
size_t stk_tar_header_write(struct stk_view name, uint64_t bytes, uint8_t *out);

/* Zeros after so many bytes of data. */
static inline size_t stk_tar_padding(uint64_t bytes)
{
    return (size_t)(-bytes & (STK_TAR_BLOCK - 1));
}

/* What a member takes in a tar: headers, data and padding. The caller knows that it does not
 * wrap: sizes of real members are far below 2^63. */
static inline uint64_t stk_tar_member_bytes(struct stk_view name, uint64_t bytes)
{
    return stk_tar_header_bytes(name, bytes) + bytes + stk_tar_padding(bytes);
}

#endif
