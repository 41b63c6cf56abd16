/* io/filesystem/read_size.h: the size of reads on a mount, and the gaps over which neighbouring
 * reads are coalesced.
 *
 *   st_dev --mount table--> size of its requests, with st_blksize --> gap, bytes of a read
 *   range, range, ... --coalesce--> one read
 *
 * Pure except stk_read_size_find, which reads the mount table and sends no request to a server.
 * Owner: the caller. Threads: one. Memory: the mount table, while it is read.
 * Bound: STK_READ_SIZE_MOUNTS mounts; sizes of a mount are limited to STK_READ_SIZE_REQUEST_MIN and
 * STK_READ_SIZE_REQUEST_MAX. */
#ifndef IO_FILESYSTEM_READ_SIZE_H
#define IO_FILESYSTEM_READ_SIZE_H

#include "io/filesystem/mountinfo.h"

/* Of disks: smaller gaps are read. */
#define STK_READ_SIZE_GAP_BYTES (64u << 10)
#define STK_READ_SIZE_DEFAULT (4u << 20)
/* Limits of the size of a request of a mount. */
#define STK_READ_SIZE_REQUEST_MIN (64u << 10)
#define STK_READ_SIZE_REQUEST_MAX (16u << 20)
#define STK_READ_SIZE_REQUEST_DEFAULT (1u << 20)
/* Transferring this share of a request takes less time than another request. */
#define STK_READ_SIZE_GAP_SHARE 4u
#define STK_READ_SIZE_GAP_MAX (1u << 20)
/* A request for fewer bytes takes as long as one for so many. */
#define STK_READ_SIZE_FREE_GAP_BYTES (16u << 10)
#define STK_READ_SIZE_MOUNTS 64u
#define STK_READ_SIZE_PAGE_BYTES 4096u

/* The requests of a mount, by its row in the mount table. */
struct stk_request_size {
    uint32_t bytes;      /* of one request, in whole pages; 0: unknown */
    bool has_round_trip; /* each needs a round trip: a network, FUSE */
    bool is_sequential;  /* the kernel may send the requests of one read one after the other */
};

struct stk_read_sizes {
    uint32_t request_bytes;  /* 0: no request to a server */
    uint32_t free_gap_bytes; /* gaps up to this size are read */
    uint32_t gap_bytes;      /* gaps up to this size are read as long as the read has at least as
                                many wanted as unwanted bytes */
    uint32_t bytes_max;      /* of one read */
    uint32_t align;          /* reads begin and end at multiples of it */
};

/* A read that grows. */
struct stk_coalesced_read {
    uint64_t begin, end;
    uint64_t unwanted_bytes; /* the bytes of gaps */
};

struct stk_request_size stk_request_size_of(const struct stk_mount_row *row);
/* block_bytes: st_blksize; 0: unknown. */
struct stk_read_sizes stk_read_size_of(const struct stk_request_size *requests,
                                       uint32_t block_bytes);

/* A cache of mounts by device; a zeroed one is empty. */
struct stk_read_size_mounts {
    struct {
        uint64_t device;
        struct stk_request_size requests;
    } entries[STK_READ_SIZE_MOUNTS];
    uint32_t count; /* of all mounts so far: the oldest is replaced */
};
/* prefix: prepended to /proc, for tests. A device that is not in the mount table counts as a disk.
 */
struct stk_read_sizes stk_read_size_find(struct stk_read_size_mounts *mounts, const char *prefix,
                                         uint64_t device, uint32_t block_bytes);

/* Extends the read by a range that begins at or after its begin. Returns false, and leaves the read
 * unchanged, if the gap is too large or the read would be too long. */
bool stk_read_size_coalesce(const struct stk_read_sizes *reads, struct stk_coalesced_read *growth,
                            uint64_t offset, uint64_t bytes);

#endif
