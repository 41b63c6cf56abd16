/* index/scan/container_scan_lane.h: reads the headers of a shard from one start; private to the
 * room.
 *
 *   open -> run --bytes not in memory--> waiting --read is done--> run ... -> done (joined, end,
 * error) open -> search --------------------> waiting ----------------> search ... -> run, or
 * dropped
 *
 * Owner: the scan. Threads: one. Memory: a window, a parser, the members that were found.
 * Bound: one read in flight. */
#ifndef INDEX_SCAN_CONTAINER_SCAN_LANE_H
#define INDEX_SCAN_CONTAINER_SCAN_LANE_H

#include "index/scan/container_scan.h"

/* A member found from a guessed start, until the lane is joined. Its name is in lane->names, and
 * after it the name of its target, if it is a hard link. */
struct stk_scan_member {
    uint64_t offset, bytes, header;
    uint32_t name_at, name_bytes, link_bytes;
    uint32_t checksum;
    uint8_t kind, checksum_kind;
};

struct stk_scan_chain;

struct stk_scan_lane {
    /* The next lane of the same shard: this lane ends at its start. NULL: at the shard's end. */
    struct stk_scan_lane *next_lane;
    struct stk_scan_lane *next; /* in a list of the scan */
    struct stk_scan_chain *chain;
    struct stk_container *parser; /* owned */
    uint64_t start;               /* while it searches: the start of the search */
    uint64_t search_at;           /* the next block to check */
    uint64_t search_end;
    uint32_t reads;   /* reads through the queue so far */
    uint64_t members; /* since its start */
    bool searching;
    bool is_guess; /* its start is a guess of the caller */
    bool listed;   /* in the scan's list of lanes that can run */
    bool waiting;  /* its read is in flight, or about to be submitted */
    bool dropped;  /* its members are not needed */
    bool done;
    bool joined; /* done: the next lane continues from here */
    int status;
    struct stoker_error error;

    struct stk_view window; /* of the shard, from window_at; in buffer or large_buffer */
    uint64_t window_at;
    size_t read_bytes;
    struct stk_container_step need; /* while waiting */
    struct stk_read read;
    uint8_t *buffer; /* owned pages; NULL: leaked to the kernel by a read that never ended */
    uint32_t buffer_bytes;
    uint32_t round_trip_bytes; /* of a remote shard: the window; 0: a local file */
    bool prefetched;           /* the bytes that it needs next are prefetched, or on their way */
    uint8_t *large_buffer;     /* owned; NULL: headers are not dense */
    size_t large_capacity;

    struct stk_scan_member *found; /* owned */
    uint8_t *names;                /* owned */
    uint32_t found_count, names_bytes;
    uint64_t found_capacity, names_capacity;
};

/* A shard and its lanes, in order. The members of the first lane go to the caller at once. */
struct stk_scan_chain {
    struct stk_container_scan_shard *shard;
    struct stk_scan_lane *head;
    uint32_t lanes;    /* including dropped ones */
    uint64_t searched; /* bytes that searches may have read */
    bool prefetching;  /* the shard is being prefetched as a whole */
    bool refuted;      /* lanes were dropped since the last check */
    bool has_status;   /* the shard's status is final */
    int status;
    struct stoker_error error;
};

/* Opens a lane at a start. Returns 0, -ENOMEM, or the error of the format. */
int stk_scan_lane_open(struct stk_scan_lane *lane, const struct stk_container_scan_options *options,
                       struct stk_scan_chain *chain, uint64_t start, struct stoker_error *error);
/* Call it after open: the lane searches for the start of a member in the next bytes_max bytes. */
void stk_scan_lane_search(struct stk_scan_lane *lane, uint64_t bytes_max);
/* Frees all but the buffer, which the next shard uses. */
void stk_scan_lane_reset(struct stk_scan_lane *lane);
void stk_scan_lane_deinit(struct stk_scan_lane *lane);
/* Runs the lane until it waits, is done or is dropped. */
void stk_scan_lane_run(struct stk_scan_lane *lane,
                       const struct stk_container_scan_options *options);
/* Call it when the lane's read is done. */
void stk_scan_lane_complete(struct stk_scan_lane *lane,
                            const struct stk_container_scan_options *options);
/* Passes the members found so far to the caller. From now on, new ones go there at once. */
int stk_scan_lane_report(struct stk_scan_lane *lane,
                         const struct stk_container_scan_options *options,
                         struct stoker_error *error);

#endif
