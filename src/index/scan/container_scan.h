/* index/scan/container_scan.h: lists the members of many plain shards, with many reads in flight.
 *
 *   shard --1 lane from 0, and one from each guessed start--> members of each lane
 *                                                                      |
 *         a lane ends where the next lane began: --true guess----> its members follow
 *                                                --false guess---> the next lane is dropped
 *
 * A header says where the next header is, so one lane has only one read in flight. Many lanes keep
 * a disk busy. Bytes that the kernel has in memory are read at once; reads of other bytes go
 * through a queue. If headers lie close together, windows are read front to back, so that the
 * kernel reads ahead. A guessed start may be any number: the members that a lane finds from it
 * count only if the members before it lead to it. An idle lane guesses, too: it searches for a
 * header in the middle of the range that another lane has before it, at the cost of some bytes of
 * data. Guesses and searches need a format that can start at any member (tar). Other formats, such
 * as those with a footer, are scanned by one lane per shard. The windows of a remote shard are as
 * large as the bytes that arrive in one round trip, so that one window has many headers, and its
 * lanes are split as soon as lanes are free. Owner: the caller, during the call. Threads: one per
 * call; concurrent calls share nothing. Memory: per lane a window, a parser, and the members found
 * from a guess until the lane is joined. Bound: STK_CONTAINER_SCAN_LANES_MAX lanes, windows of 20
 * KiB, or 256 KiB if headers are dense, or 1 MiB for remote shards. */
#ifndef INDEX_SCAN_CONTAINER_SCAN_H
#define INDEX_SCAN_CONTAINER_SCAN_H

#include "format/container.h"
#include "io/io.h"

#define STK_CONTAINER_SCAN_LANES_MAX 32u
#define STK_CONTAINER_SCAN_NO_START UINT64_MAX

/* A shard to scan. Borrowed from `next` to `end`. */
struct stk_container_scan_shard {
    const struct stk_container_format *format;
    struct stk_file *file;
    uint64_t bytes;         /* of the file */
    const uint64_t *starts; /* guesses of members' first headers, ascending, above 0 */
    uint64_t start_count;
    uint64_t refuted; /* out: a guess where no member begins; STK_CONTAINER_SCAN_NO_START: none */
};

/* An error of any function but `next` ends the shard, not the scan. */
struct stk_container_scan_callbacks {
    /* Returns 1 and sets *shard_out, 0 if there are no more shards, or negative: the scan ends. */
    int (*next)(void *context, struct stk_container_scan_shard **shard_out,
                struct stoker_error *error);
    /* Receives the next member of any kind, in the order of the shard. */
    int (*member)(struct stk_container_scan_shard *shard, const struct stk_container_step *member,
                  struct stoker_error *error);
    /* Called before each read. An error stops the shard. */
    int (*may_continue)(struct stk_container_scan_shard *shard, struct stoker_error *error);
    /* Returns the shard to the caller. status: 0, or the first error in the order of the shard. */
    void (*end)(struct stk_container_scan_shard *shard, int status,
                const struct stoker_error *error);
};

struct stk_container_scan_options {
    struct stk_io *io;
    const struct stk_container_scan_callbacks *calls;
    void *context;             /* of next */
    uint32_t name_bytes_max;   /* as in stk_container_options */
    uint32_t header_bytes_max; /* likewise */
    uint32_t search_share; /* searches may read 1/search_share of a shard's bytes; 0: no searches */
    _Atomic uint64_t *bytes_read; /* is increased */
    /* If set: remote shards with small members are prefetched as a whole, for this owner, who reads
     * their data soon. (Windows over the headers would read most of the data anyway.) */
    const void *prefetch_owner;
};

/* Scans until `next` returns 0 and all shards have ended. Returns 0, -ENOMEM, or the error of
 * `next`. */
int stk_container_scan(const struct stk_container_scan_options *options,
                       struct stoker_error *error);

#endif
