/* io/filesystem/filesystem_type.h: which file systems there are, by the type in the table of mounts
 * and by the number that statfs gives.
 * Pure. Owner: nobody. Threads: any. Memory: constants. Bound: the table. */
#ifndef IO_FILESYSTEM_FILESYSTEM_TYPE_H
#define IO_FILESYSTEM_FILESYSTEM_TYPE_H

#include "base/base.h"

struct stk_filesystem_type {
    const char *name;  /* as users call it: "nfs", "lustre", "ext4" */
    uint32_t group;    /* enum stoker_filesystem_group */
    uint32_t magic;    /* 0: none of its own */
    const char *types; /* in the table of mounts, one after another, with blanks around each */
};

/* By the type, and where that does not tell by the magic (0: not known). Never NULL: a type of FUSE
 * that is not listed is "fuse", all else "unknown". */
const struct stk_filesystem_type *stk_filesystem_type_of(struct stk_view type, uint32_t magic);
bool stk_filesystem_type_is(const struct stk_filesystem_type *kind, const char *name);

#endif
