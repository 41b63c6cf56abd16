/* io/filesystem/mountinfo.h: the table of mounts, /proc/self/mountinfo (proc(5)), and its options.
 *
 *   text --next--> a row: id, device, mount point, type, source, options --facts--> numbers
 *
 * Pure. Owner: the caller; rows are lent by the text. Threads: any. Memory: none.
 * Bound: the text's. */
#ifndef IO_FILESYSTEM_MOUNTINFO_H
#define IO_FILESYSTEM_MOUNTINFO_H

#include "base/base.h"

struct stk_mount_row {
    uint64_t id, parent, major, minor;
    struct stk_view point, type, source; /* as they stand there: with \040 for a space */
    struct stk_view options, super;      /* of this mount; of its file system */
};

/* Takes the next usable line off the text; lines that are none are passed over. False: no more. */
bool stk_mount_next(struct stk_view *text, struct stk_mount_row *row_out);
/* The mount that a path from the root on lies in, by its text alone: the longest mount point that
 * begins it, of several of one length the last. False: there is none. */
bool stk_mount_of_path(struct stk_view text, const char *path, struct stk_mount_row *row_out);
bool stk_mount_of_id(struct stk_view text, uint64_t id, struct stk_mount_row *row_out);
/* Undoes the escapes, cuts at the room, ends with a NUL. */
void stk_mount_unescape(struct stk_view field, char *out, size_t out_bytes);

/* The value of "name=value", or of the word "name" (empty then). False: it is not among them. The
 * last one counts. */
bool stk_mount_option(const struct stk_mount_row *row, const char *name,
                      struct stk_view *value_out);
/* A whole number, or `otherwise` where there is none. */
uint64_t stk_mount_number(const struct stk_mount_row *row, const char *name, uint64_t otherwise);
/* "host:/export", "10.0.0.1@tcp:/fs", "//host/share", "[::1]:/x": the part before the path. Empty:
 * none. */
void stk_mount_server(const struct stk_mount_row *row, char *out, size_t out_bytes);

#endif
