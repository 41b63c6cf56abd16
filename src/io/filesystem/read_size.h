/* io/filesystem/read_size.h: how large reads of a mount are to be, and over which gaps neighbours
 * join.
 *
 *   st_dev --table of mounts--> what its requests fetch, with st_blksize --> gap, bytes of a read
 *   span, span, ... --join--> one read
 *
 * Pure, but for find, which reads the table: text of the kernel's, so no server is asked.
 * Owner: the caller. Threads: one. Memory: the table's, while it is read.
 * Bound: STK_READ_SIZE_MOUNTS mounts; what a mount says is believed between
 * STK_READ_SIZE_REQUEST_MIN and STK_READ_SIZE_REQUEST_MAX. */
#ifndef IO_FILESYSTEM_READ_SIZE_H
#define IO_FILESYSTEM_READ_SIZE_H

#include "io/filesystem/mountinfo.h"

/* Of disks: what lies nearer is read along. */
#define STK_READ_SIZE_GAP_BYTES (64u << 10)
#define STK_READ_SIZE_DEFAULT (4u << 20)
/* What a request of a mount fetches. */
#define STK_READ_SIZE_REQUEST_MIN (64u << 10)
#define STK_READ_SIZE_REQUEST_MAX (16u << 20)
#define STK_READ_SIZE_REQUEST_DEFAULT (1u << 20)
/* A share of a request is on its way for less time than another request takes. */
#define STK_READ_SIZE_GAP_SHARE 4u
#define STK_READ_SIZE_GAP_MAX (1u << 20)
/* A request for less costs what one for so much costs. */
#define STK_READ_SIZE_FREE_GAP_BYTES (16u << 10)
#define STK_READ_SIZE_MOUNTS 64u
#define STK_READ_SIZE_PAGE_BYTES 4096u

/* What a mount's row tells. */
struct stk_request_size {
    uint32_t bytes;      /* of one, in whole pages; 0: not told */
    bool has_round_trip; /* each is a round trip: a network, FUSE */
    bool is_sequential;  /* the kernel may send the requests of one read one after the other */
};

struct stk_read_sizes {
    uint32_t request_bytes;  /* 0: nobody is asked */
    uint32_t free_gap_bytes; /* gaps of so many bytes are read along, */
    uint32_t gap_bytes;      /* and of so many as long as no more is read along than is wanted */
    uint32_t bytes_max;      /* of one read, */
    uint32_t align;          /* which begins and ends at multiples of it */
};

/* A read as it grows. */
struct stk_coalesced_read {
    uint64_t begin, end;
    uint64_t unwanted_bytes; /* bytes that nobody wants */
};

struct stk_request_size stk_request_size_of(const struct stk_mount_row *row);
/* block_bytes: st_blksize; 0: not known. */
struct stk_read_sizes stk_read_size_of(const struct stk_request_size *requests,
                                       uint32_t block_bytes);

/* Mounts that were met, by their devices; a zeroed one is empty. */
struct stk_read_size_mounts {
    struct {
        uint64_t device;
        struct stk_request_size requests;
    } entries[STK_READ_SIZE_MOUNTS];
    uint32_t count; /* so far: the oldest makes room */
};
/* prefix: before /proc; tests bring their own. A device that is not in the table is a disk. */
struct stk_read_sizes stk_read_size_find(struct stk_read_size_mounts *mounts, const char *prefix,
                                         uint64_t device, uint32_t block_bytes);

/* Takes in a span that begins where the read does or behind it; false: it stays outside. */
bool stk_read_size_coalesce(const struct stk_read_sizes *reads, struct stk_coalesced_read *growth,
                            uint64_t offset, uint64_t bytes);

#endif
