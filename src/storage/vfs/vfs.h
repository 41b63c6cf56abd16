/* storage/vfs/vfs.h: the seam with stores behind it: paths go to the machine, URLs to a store.
 *
 *   path ---------> the real io (or a simulated one)
 *   s3://, http:// -> store, opened by the first URL
 *   other URLs ----> errands, which threads of the library's caller run
 *   (storage/external/external_fs.h)
 *
 * A remote file is what it was when it was opened: each read asks for that version. What a listing
 * told is used for a short while instead of asking again. What will be asked for soon is brought
 * before, and kept until it was read (prefetch.c): of the budget, half of it at most.
 * Owner: the engine. Threads: any; a queue: one. Memory: a block a remote file, and one a read of
 * it in flight; STK_VFS_METADATA_MAX answers. Bound: the queue's depth of remote reads beside the
 * local ones, connections_max of the store. */
#ifndef STORAGE_VFS_VFS_H
#define STORAGE_VFS_VFS_H

#include "base/memory_budget.h"
#include "io/io.h"

#define STK_VFS_METADATA_MAX (1u << 17)    /* objects whose size and ETag are remembered */
#define STK_VFS_METADATA_TTL_S 60u         /* for so long */
#define STK_VFS_FOLDER_TTL_MS 2000u        /* that a URL is one, and what it was seen to hold */
#define STK_VFS_MAP_BYTES_MAX (4ull << 30) /* a remote file that is mapped is memory */

struct stk_vfs_options {
    uint32_t depth;            /* remote reads in flight of a queue */
    uint32_t read_timeout_ms;  /* for which a read may bring nothing */
    uint32_t connections_max;  /* 0: the default of storage/http/http.h */
    struct stk_budget *budget; /* lent: for what is brought; NULL: nothing is */
    /* As storage/object/store.h has them. */
    uint32_t node_connections_max, hedge_percent_max;
    bool unshared, no_hedges, check_md5_etags;
    struct stoker_external_fs
        *external_fs; /* a user of it; NULL: other URLs are refused by the store */
};

#define STK_VFS_ROUND_TRIP_BYTES (1u << 20) /* come in 10 to 20 ms, about half of a round trip */

/* Takes real, also on failure. */
int stk_vfs_open(struct stk_io **io_out, struct stk_io *real, const struct stk_vfs_options *options,
                 struct stoker_error *error);

struct stk_store;
struct stk_object_info; /* storage/object/store.h */
struct stk_checksum;    /* storage/checksum/checksum.h */
/* The store behind it, lent as long as the io; of a simulated world UNSUPPORTED. */
int stk_vfs_get_store(struct stk_io *io, struct stk_store **store_out, struct stoker_error *error);
/* An object is this now; about NULL: it is another than before, or gone. */
void stk_vfs_set_metadata(struct stk_io *io, const char *url, const struct stk_object_info *about);
/* stk_io_stat_path, and what a store tells of an object: of an archived one, too, which cannot be
 * opened. Of others *about_out is zeroed. */
int stk_vfs_stat_object(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                        struct stk_object_info *about_out, struct stoker_error *error);
/* What an open remote file was when it was opened; false: it is a local one. */
bool stk_vfs_object_info(const struct stk_file *file, struct stk_object_info *about_out);
/* Waits until the checksum of an open remote file is known, of which all will be read, where the
 * store has one: what is read of it before is not compared with it. The store is asked where
 * opening it did not, too. */
void stk_vfs_fetch_checksum(struct stk_io *io, struct stk_file *file);
/* The checksum that the store tells of the whole, where reads cannot be compared with it: it is not
 * made of sums of ranges. False: there is none, or it is not known yet. */
bool stk_vfs_composite_checksum(struct stk_file *file, struct stk_checksum *whole_out);
/* Whether what is read of an open remote file is summed, to be compared as a whole. */
bool stk_vfs_has_checksum(struct stk_file *file);
/* Bytes of it that are here since an earlier run: they count as read. CORRUPT: now all is here, and
 * it is not as its checksum says. */
int stk_vfs_checksum_add(struct stk_io *io, struct stk_file *file, uint64_t offset,
                         struct stk_view bytes, struct stoker_error *error);
/* Whether the whole was seen not to be as its checksum says: some of its bytes are damaged. */
bool stk_vfs_checksum_failed(struct stk_file *file);

#endif
