/* io/filesystem/mountinfo.h: parser of the mount table, /proc/self/mountinfo (proc(5)), and of its
 * options.
 *
 *   read --> text --next--> a row: id, device, mount point, type, source, options --> numbers
 *
 * All functions but read are pure. Owner: the caller; rows are views of the text. Threads: any.
 * Memory: the text. Bound: STK_MOUNTINFO_BYTES_MAX. */
#ifndef IO_FILESYSTEM_MOUNTINFO_H
#define IO_FILESYSTEM_MOUNTINFO_H

#include "base/base.h"

#define STK_MOUNTINFO_BYTES_MAX (4u << 20)

struct stk_mount_row {
    uint64_t id, parent, major, minor;
    struct stk_view point, type, source; /* escaped: \040 is a space */
    struct stk_view options, super;      /* of this mount; of its file system */
};

/* Reads the mount table as text, which the caller frees; NULL if it cannot be read. prefix:
 * prepended to /proc, for tests. */
char *stk_mountinfo_read(const char *prefix);
/* Parses the next line and removes it from the text; skips malformed lines. Returns false at the
 * end.
 */
bool stk_mount_next(struct stk_view *text, struct stk_mount_row *row_out);
/* Finds the mount of an absolute path by its text: the longest mount point that is a prefix of the
 * path, and the last one of equal mount points. Returns false if there is none. */
bool stk_mount_of_path(struct stk_view text, const char *path, struct stk_mount_row *row_out);
bool stk_mount_of_id(struct stk_view text, uint64_t id, struct stk_mount_row *row_out);
/* Decodes the escapes of a field. Truncates the result to out_bytes, including a NUL. */
void stk_mount_unescape(struct stk_view field, char *out, size_t out_bytes);

/* Finds the option "name=value", or "name" with an empty value; the last one if there are several.
 * Returns false if there is none. */
bool stk_mount_option(const struct stk_mount_row *row, const char *name,
                      struct stk_view *value_out);
/* The value of an option as a number, or `otherwise`. */
uint64_t stk_mount_number(const struct stk_mount_row *row, const char *name, uint64_t otherwise);
/* The server of a source such as "host:/export", "10.0.0.1@tcp:/fs", "//host/share", "[::1]:/x";
 * empty if there is none. */
void stk_mount_server(const struct stk_mount_row *row, char *out, size_t out_bytes);

#endif
