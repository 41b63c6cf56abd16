/* io/filesystem/stripe_layout.h: parser of the stripe layout of a file, as Lustre and CephFS report
 * it in extended attributes.
 *
 *   lustre.lov (lustre_user.h: lov_user_md v1, v3, lov_comp_md_v1) --> stripes
 *   ceph.file.layout ("stripe_unit=.. stripe_count=.. object_size=.. pool=..") --> stripes
 *
 * Pure; the bytes may be malformed. Owner: the caller. Threads: any. Memory: none.
 * Bound: STK_STRIPE_LAYOUT_PARTS_MAX components. */
#ifndef IO_FILESYSTEM_STRIPE_LAYOUT_H
#define IO_FILESYSTEM_STRIPE_LAYOUT_H

#include "base/base.h"

#define STK_STRIPE_LAYOUT_PARTS_MAX 1024u
#define STK_STRIPE_LAYOUT_POOL_BYTES 64u

struct stk_stripe_layout {
    uint32_t parts;        /* components of a composite file; else 1 */
    uint32_t mirrors;      /* at least 1 */
    uint32_t stripe_count; /* of the part with the most stripes; of a folder: of new files;
                              STK_STRIPE_LAYOUT_ALL: all servers */
    uint64_t stripe_bytes; /* of that part */
    bool is_released;      /* only an archive has the bytes */
    char pool[STK_STRIPE_LAYOUT_POOL_BYTES];
};
#define STK_STRIPE_LAYOUT_ALL UINT32_MAX

/* Returns 0, or STOKER_ERROR_CORRUPT and zeroes *layout_out if the attribute is malformed. */
int stk_stripe_layout_lustre(struct stk_view value, struct stk_stripe_layout *layout_out);
int stk_stripe_layout_ceph(struct stk_view text, struct stk_stripe_layout *layout_out);

#endif
