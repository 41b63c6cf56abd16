/* index/scan/tar_scan.h: the members of many plain tars, with many reads in flight.
 *
 *   tar --1 lane from 0, and one from each guessed start--> headers ... joint --> members, in order
 *                                                                      |
 *                       a lane ends where the next one began: it is taken over, or it was a false
 *                       guess, and the lane goes on
 *
 * A header tells where the next one is, so a lane has one read in flight: it takes many lanes to
 * keep a disk busy. Bytes in memory are taken by the way; only cold ones go through a queue, and
 * where headers lie close together windows are read front to back, as the kernel likes it. A guess
 * may be anything: what is found from it counts only once the headers before it lead there. Lanes
 * that nobody needs make guesses of their own: half way along what another one has before it they
 * search for a header, at the price of some bytes of data.
 * Owner: the caller, for the call. Threads: one a call; calls side by side share nothing.
 * Memory: a lane's window and names, and the members found from guesses until the joint.
 * Of a remote tar windows are as large as what comes in a round trip, so that one brings many
 * members, and a lane is split as soon as there are others to spare.
 * Bound: STK_TAR_SCAN_LANES_MAX lanes, windows of 20 KiB, or 256 KiB where headers are dense; 1 MiB
 * of remote tars. */
#ifndef INDEX_SCAN_TAR_SCAN_H
#define INDEX_SCAN_TAR_SCAN_H

#include "format/tar/tar.h"
#include "io/io.h"

#define STK_TAR_SCAN_LANES_MAX 32u
#define STK_TAR_SCAN_NO_START UINT64_MAX

/* Owned by the caller from next to end. */
struct stk_tar_scan_tar {
    struct stk_file *file;
    uint64_t bytes;         /* of the file */
    const uint64_t *starts; /* where a member's first header may begin, rising, above 0 */
    uint64_t start_count;
    uint64_t
        refuted; /* out: one of starts where none begins; STK_TAR_SCAN_NO_START: there is none */
};

/* Negative answers but those of next end the tar, not the sweep. */
struct stk_tar_scan_callbacks {
    /* 1: a tar; 0: there are no more; negative: neither, and the sweep ends. */
    int (*next)(void *context, struct stk_tar_scan_tar **tar_out, struct stoker_error *error);
    /* A member of any type, in the order of the tar. */
    int (*member)(struct stk_tar_scan_tar *tar, const struct stk_tar_step *member,
                  struct stoker_error *error);
    /* Asked before each read; error: why not. */
    int (*may_continue)(struct stk_tar_scan_tar *tar, struct stoker_error *error);
    /* Takes the tar: status 0, or the first failure in the order of the tar. */
    void (*end)(struct stk_tar_scan_tar *tar, int status, const struct stoker_error *error);
};

struct stk_tar_scan_options {
    struct stk_io *io;
    const struct stk_tar_scan_callbacks *calls;
    void *context;                /* of next */
    struct stk_tar_limits limits; /* zeroed: the defaults */
    uint32_t search_share;        /* one in so many bytes of a tar may be read in search; 0: none */
    _Atomic uint64_t *bytes_read; /* added to */
    /* Remote tars of small members are brought whole, for this owner, who wants their data soon:
     * windows over their headers would bring most of it anyway. NULL: they are not. */
    const void *prefetch_owner;
};

/* Until next gives no more, and all tars have ended. */
int stk_tar_scan(const struct stk_tar_scan_options *options, struct stoker_error *error);

#endif
