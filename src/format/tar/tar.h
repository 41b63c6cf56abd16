/* format/tar/tar.h: the headers of a tar, from bytes that somebody else reads.
 *
 *   start -> NEED (offset, bytes) -> feed -> NEED ... -> MEMBER -> next -> ... -> END
 *
 * Reads V7, ustar, GNU long names (L, K), PAX (x, g: path, size, any record), base-256 numbers;
 * refuses GNU sparse members by name; goes on after an end marker if another tar follows.
 * What it makes of odd and damaged input: docs/formats.md.
 * Format: POSIX.1-2017 pax, GNU tar manual "Basic Tar Format". Pure: no I/O, no clock.
 * Owner: the scanner. Threads: one. Memory: name buffers, and one extended header at a time.
 * Bound: header_bytes_max, name_bytes_max, 16 extended headers a member. */
#ifndef FORMAT_TAR_TAR_H
#define FORMAT_TAR_TAR_H

#include "base/base.h"

/* 0 in a field, or NULL for the whole: the default. */
struct stk_tar_limits {
    uint32_t name_bytes_max;   /* default 4,096 */
    uint32_t header_bytes_max; /* of one L, K, x or g block; default 1 MiB */
};

enum stk_tar_event { STK_TAR_NEED = 1, STK_TAR_MEMBER, STK_TAR_END };

struct stk_tar; /* heap: holds the name and PAX state */

/* size: bytes of the whole (unpacked) object, UINT64_MAX if unknown (a stream). */
int stk_tar_open(struct stk_tar **tar_out, uint64_t size, const struct stk_tar_limits *limits,
                 struct stoker_error *error);
void stk_tar_close(struct stk_tar *tar);

/* Before the first step: the parser begins at a member's first header. What a global header
 * before that said is not known to it. */
void stk_tar_start_at(struct stk_tar *tar, uint64_t offset);
/* A global header so far said something of all members that follow. */
bool stk_tar_has_globals(const struct stk_tar *tar);

struct stk_tar_step {
    uint32_t event;       /* enum stk_tar_event */
    uint64_t offset;      /* NEED: bytes wanted from here; MEMBER: of the data */
    uint64_t bytes;       /* NEED: so many would do for a step; MEMBER: of the data */
    uint64_t header;      /* MEMBER: offset of its first header block */
    struct stk_view name; /* MEMBER: lent until the next call; any bytes, no NUL, maybe empty */
    uint8_t type;         /* MEMBER: '0' regular (also '\0', '7'), else the type flag */
};

/* Advances. `bytes` answer the last NEED and are the object's bytes from its offset on; they are
 * lent until the next NEED, so that more than wanted is used while it lasts, fewer are asked for
 * again, and none at all says that the object ends there. In other calls, the first included,
 * they are ignored. Negative: the tar is damaged; error->offset says where, error->key which
 * member if that is known; every later call fails too. */
int stk_tar_step(struct stk_tar *tar, struct stk_view bytes, struct stk_tar_step *step_out,
                 struct stoker_error *error);

/* Whether 512 bytes are a header by their checksum: where to go on after damage. Zeros are not. */
bool stk_tar_is_header(const uint8_t block[512]);

#endif
