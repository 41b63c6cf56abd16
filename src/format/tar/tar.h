/* format/tar/tar.h: parses the headers of a tar, from bytes that the caller reads.
 *
 *   start -> NEED (offset, bytes) -> step -> NEED ... -> MEMBER -> step -> ... -> END
 *
 * Reads V7, ustar, GNU long names (L, K), PAX (x, g: path, size, any record) and base-256 numbers;
 * reports GNU sparse members as unsupported; continues after an end marker if another tar follows.
 * Unusual and damaged input: docs/formats.md.
 * Format: POSIX.1-2017 pax, GNU tar manual "Basic Tar Format".
 * Pure: no I/O, no clock. Owner: the scanner. Threads: one.
 * Memory: name buffers, and one extended header at a time.
 * Bound: header_bytes_max, name_bytes_max, 16 extended headers per member. */
#ifndef FORMAT_TAR_TAR_H
#define FORMAT_TAR_TAR_H

#include "base/base.h"

/* A field that is 0, or NULL instead of the struct: the default. */
struct stk_tar_limits {
    uint32_t name_bytes_max;   /* default 4,096 */
    uint32_t header_bytes_max; /* of one L, K, x or g block; default 1 MiB */
};

enum stk_tar_event { STK_TAR_NEED = 1, STK_TAR_MEMBER, STK_TAR_END };

struct stk_tar; /* on the heap: names and PAX state */

/* size: of the (decompressed) object; UINT64_MAX: unknown (a stream). Returns 0 or -ENOMEM. */
int stk_tar_open(struct stk_tar **tar_out, uint64_t size, const struct stk_tar_limits *limits,
                 struct stoker_error *error);
void stk_tar_close(struct stk_tar *tar);

/* Call it before the first step: the parser begins at a member's first header. It does not know the
 * global headers before that offset. */
void stk_tar_start_at(struct stk_tar *tar, uint64_t offset);
/* True if a global header changes the members that follow. */
bool stk_tar_has_globals(const struct stk_tar *tar);

struct stk_tar_step {
    uint32_t event;       /* enum stk_tar_event */
    uint64_t offset;      /* NEED: of the bytes to read; MEMBER: of the data */
    uint64_t bytes;       /* NEED: bytes that are needed to continue; MEMBER: of the data */
    uint64_t header;      /* MEMBER: offset of its first header block */
    struct stk_view name; /* MEMBER: valid until the next call; any bytes but NUL, may be empty */
    struct stk_view link; /* MEMBER of type '1' or '2': the name that it links to; valid likewise */
    uint8_t type;         /* MEMBER: '0': a regular file (also '\0', '7'); else the type flag */
};

/* Advances to the next event. `bytes` answer the last NEED: they begin at its offset and stay valid
 * until the next NEED. More bytes than requested are used as far as they go; if there are fewer,
 * the rest is requested again; if there are none, the object ends at that offset. In other calls,
 * the first one included, `bytes` are ignored. Returns 0, or negative if the tar is damaged:
 * error->offset is where, error->key is the member if it is known. All later calls fail, too. */
int stk_tar_step(struct stk_tar *tar, struct stk_view bytes, struct stk_tar_step *step_out,
                 struct stoker_error *error);

/* True if the checksum says that the 512 bytes are a header (to continue after damage). Zeros are
 * not. */
bool stk_tar_is_header(const uint8_t block[512]);

#endif
