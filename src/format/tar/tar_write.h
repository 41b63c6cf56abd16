/* format/tar/tar_write.h: writes the headers of a tar.
 *
 *   header, data, padding; header, data, padding; ... ; end marker
 *
 * ustar (POSIX.1-2017 pax, "ustar Interchange Format"). A name that fits neither the name field
 * nor prefix and name, or a size of 8 GiB and more, gets a PAX header before it. Headers do not
 * depend on user or time: mode 0644, owner 0, time 0.
 * Pure: no I/O, no clock. Owner: values. Threads: any.
 * Memory: the caller's.
 * Bound: names of STK_TAR_NAME_MAX bytes. */
#ifndef FORMAT_TAR_TAR_WRITE_H
#define FORMAT_TAR_TAR_WRITE_H

#include "base/base.h"

enum {
    STK_TAR_BLOCK = 512,
    STK_TAR_END_BYTES = 2 * STK_TAR_BLOCK, /* zeros that end a tar */
    STK_TAR_NAME_MAX = 8192,
    STK_TAR_HEADER_MAX = STK_TAR_NAME_MAX + 4 * STK_TAR_BLOCK,
};

/* Returns the size of the header blocks of a member: 512, or more with a PAX header; at most
 * STK_TAR_HEADER_MAX for a name of 1 to STK_TAR_NAME_MAX bytes without NUL. */
size_t stk_tar_header_bytes(struct stk_view name, uint64_t bytes);
/* Writes the header blocks. Returns their size. */
size_t stk_tar_header_write(struct stk_view name, uint64_t bytes, uint8_t *out);

/* The number of zeros after the data of a member. */
static inline size_t stk_tar_padding(uint64_t bytes)
{
    return (size_t)(-bytes & (STK_TAR_BLOCK - 1));
}

/* The size of a member in a tar: headers, data and padding. The caller makes sure that it does not
 * overflow: sizes of real members are far below 2^63. */
static inline uint64_t stk_tar_member_bytes(struct stk_view name, uint64_t bytes)
{
    return stk_tar_header_bytes(name, bytes) + bytes + stk_tar_padding(bytes);
}

#endif
