/* format/tar.h: the headers of a tar, from bytes that somebody else reads.
 *
 *   start -> NEED (offset, bytes) -> feed -> NEED ... -> MEMBER -> next -> ... -> END
 *
 * Reads ustar, GNU long names (L, K), PAX (x, g: path, size, any record), base-256 numbers;
 * refuses GNU sparse members by name; goes on after an end marker if another tar follows.
 * Format: POSIX.1-2017 pax, GNU tar manual "Basic Tar Format". Pure: no I/O, no clock.
 * Owner: the scanner. Threads: one. Memory: name buffers. Bound: header_bytes_max, name_bytes_max. */
#ifndef FORMAT_TAR_H
#define FORMAT_TAR_H

#include "base/base.h"

struct stk_tar_limits {
    uint32_t name_bytes_max;   /* default 4,096 */
    uint32_t header_bytes_max; /* of one L, K, x or g block; default 1 MiB */
};

enum stk_tar_event { STK_TAR_NEED = 1, STK_TAR_MEMBER, STK_TAR_END };

struct stk_tar; /* heap: holds the name and PAX state */

/* size: bytes of the whole (unpacked) object, UINT64_MAX if unknown (a stream). */
int  stk_tar_open(struct stk_tar **tar_out, uint64_t size, const struct stk_tar_limits *limits,
                  struct stoker_error *error);
void stk_tar_close(struct stk_tar *tar);

struct stk_tar_step {
    uint32_t event;       /* enum stk_tar_event */
    uint64_t offset;      /* NEED: bytes wanted from here; MEMBER: of the data */
    uint64_t bytes;       /* NEED: at least so many (fewer only at the end); MEMBER: of the data */
    uint64_t header;      /* MEMBER: offset of its first header block */
    struct stk_view name; /* MEMBER: lent until the next call; any bytes, no NUL */
    uint8_t  type;        /* MEMBER: '0' regular (also '\0', '7'), else the type flag */
};

/* Advances. `bytes` are the object's bytes from the NEED's offset (ignored otherwise, and empty
 * at the first call); more than wanted is welcome and used while it lasts. Negative: the tar is
 * damaged; error->offset says where. */
int stk_tar_step(struct stk_tar *tar, struct stk_view bytes, struct stk_tar_step *step_out,
                 struct stoker_error *error);

#endif
