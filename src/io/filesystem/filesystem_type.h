/* io/filesystem/filesystem_type.h: the table of known file systems, by the type in the mount table
 * and by the magic number of statfs. Pure. Owner: constants. Threads: any. Memory: constants.
 * Bound: the table. */
#ifndef IO_FILESYSTEM_FILESYSTEM_TYPE_H
#define IO_FILESYSTEM_FILESYSTEM_TYPE_H

#include "base/base.h"

struct stk_filesystem_type {
    const char *name;  /* its usual name: "nfs", "lustre", "ext4" */
    uint32_t group;    /* enum stoker_filesystem_group */
    uint32_t magic;    /* 0: none of its own */
    const char *types; /* in the mount table, one after another, with blanks around each */
};

/* Finds a file system by its type, else by its magic number (0: unknown). Never returns NULL: an
 * unlisted type of FUSE is "fuse", any other is "unknown". */
const struct stk_filesystem_type *stk_filesystem_type_of(struct stk_view type, uint32_t magic);
bool stk_filesystem_type_is(const struct stk_filesystem_type *kind, const char *name);

#endif
