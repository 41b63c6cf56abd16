/* index/scan/tar_scan_lane.h: one chain of headers of a tar; private to the room.
 *
 *   open -> run --cold bytes--> waiting --read came back--> run ... -> done (joined, ended, failed)
 *   open -> search -----------> waiting ------------------> search ... -> run, or dropped
 *
 * Owner: the sweep. Threads: one. Memory: a window, a parser, what was heard.
 * Bound: one read in flight. */
#ifndef INDEX_SCAN_TAR_SCAN_LANE_H
#define INDEX_SCAN_TAR_SCAN_LANE_H

#include "index/scan/tar_scan.h"

/* A member found from a guess, until it is known whether it counts. */
struct stk_scan_member {
    uint64_t offset, bytes, header;
    uint32_t name_at, name_bytes;
    uint8_t type;
};

struct stk_scan_chain;

struct stk_scan_lane {
    struct stk_scan_lane
        *next_lane; /* of the same tar: where this one is to end; NULL: at the tar's end */
    struct stk_scan_lane *next; /* in a list of the sweep */
    struct stk_scan_chain *chain;
    struct stk_tar *parser; /* owned */
    uint64_t start;         /* while it searches: from where */
    uint64_t search_at;     /* the next block to look at */
    uint64_t search_end;
    uint32_t reads;   /* of cold bytes, so far */
    uint64_t members; /* since its start */
    bool searching;
    bool is_guess; /* its start is the caller's guess */
    bool listed;   /* in the sweep's list of those that can run */
    bool waiting;  /* its read is in flight, or about to be */
    bool dropped;  /* nobody asks for what it finds */
    bool done;
    bool joined; /* done: the lane behind it goes on */
    int status;
    struct stoker_error error;

    struct stk_view window; /* of the tar, from window_at; in room or wide */
    uint64_t window_at;
    size_t read_bytes;
    struct stk_tar_step need; /* while waiting */
    struct stk_read read;
    uint8_t *buffer; /* owned pages; NULL: the kernel keeps them */
    uint32_t buffer_bytes;
    uint32_t round_trip_bytes; /* of a tar behind a network: what is read at once; 0: it is here */
    bool prefetched;           /* what it wants next was brought, or is on its way */
    uint8_t *large_buffer;     /* owned; NULL: headers lie apart */
    size_t large_capacity;

    struct stk_scan_member *found; /* owned */
    uint8_t *names;                /* owned */
    uint32_t found_count, found_capacity;
    uint32_t names_bytes, names_capacity;
};

/* A tar and its lanes. The head's members go to the caller at once. */
struct stk_scan_chain {
    struct stk_tar_scan_tar *tar;
    struct stk_scan_lane *head;
    uint32_t lanes;    /* alive, dropped ones included */
    uint64_t searched; /* bytes that searches may have read */
    bool prefetching;  /* was asked to be brought whole */
    bool refuted;      /* some were dropped just now */
    bool has_status;   /* status is the tar's */
    int status;
    struct stoker_error error;
};

/* A lane from a start. -ENOMEM. */
int stk_scan_lane_open(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
                       struct stk_scan_chain *chain, uint64_t start);
/* After open: it begins where it finds a member's end, in so many bytes from there. */
void stk_scan_lane_search(struct stk_scan_lane *lane, uint64_t bytes_max);
/* Keeps the room for the next tar. */
void stk_scan_lane_reset(struct stk_scan_lane *lane);
void stk_scan_lane_deinit(struct stk_scan_lane *lane);
/* On until it waits or is done. */
void stk_scan_lane_run(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options);
/* Its read came back. */
void stk_scan_lane_complete(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options);
/* Gives what the lane heard to the caller, who is now told at once. */
int stk_scan_lane_report(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
                         struct stoker_error *error);

#endif
