/* tools/prewarm/prewarm_share.h: fills the node cache with the blocks that one node of a job reads,
 * in the order in which a loader with home groups will use them.
 *
 *   open --> scan: data set, order --next group positions--> sample --> its blocks, each once --> a
 * byte of each is read: the cache downloads the block
 *
 * Blocks that are cached cost one small read, so a run after a kill continues where it was.
 * Owner: struct stoker_prewarm. Threads: any. Memory: one bit a block, and 8 bytes a shard.
 * Bound: the budget of bytes, and the rate. */
#ifndef TOOLS_PREWARM_PREWARM_SHARE_H
#define TOOLS_PREWARM_PREWARM_SHARE_H

#include "dataset/dataset.h"

struct stk_prewarm_share;

struct stk_prewarm_share_options {
    const char *const *paths; /* of shards or folders; borrowed during open */
    size_t path_count;
    uint32_t node, node_count, group_count; /* node < node_count; group_count: a multiple of it */
    uint64_t seed, budget_bytes, rate_bytes_max; /* the last two: 0: no limit */
};

/* One block to read; or all of an object. */
struct stk_prewarm_piece {
    uint32_t shard;
    bool is_object;
    uint64_t offset, bytes;
};

/* Checks the options; limits the downloads into the engine's cache to the rate until close. */
int stk_prewarm_share_open(struct stk_prewarm_share **share_out, struct stoker_engine *engine,
                           const struct stk_prewarm_share_options *options,
                           struct stoker_error *error);
/* Opens the data set: reads its index, or the headers of its shards. Once, before the functions
 * below. Returns STOKER_ERROR_CLOSED after stk_prewarm_share_stop. */
int stk_prewarm_share_scan(struct stk_prewarm_share *share, struct stoker_error *error);
void stk_prewarm_share_stop(struct stk_prewarm_share *share);  /* ends the scan; any thread */
void stk_prewarm_share_close(struct stk_prewarm_share *share); /* NULL is allowed */
/* An estimate of the bytes of the share, at most the budget. */
uint64_t stk_prewarm_share_bytes(const struct stk_prewarm_share *share);
/* Returns false after the last block, or if the budget is used up. */
bool stk_prewarm_share_next(struct stk_prewarm_share *share, struct stk_prewarm_piece *piece_out);
/* Reads a piece, after stk_prewarm_share_begin_read returned true. *bytes_out: the bytes of its
 * blocks. */
int stk_prewarm_share_read(struct stk_prewarm_share *share, const struct stk_prewarm_piece *piece,
                           uint64_t *bytes_out, struct stoker_error *error);
/* Bytes that were downloaded since open. */
uint64_t stk_prewarm_share_downloaded(const struct stk_prewarm_share *share);
/* Whether the rate allows another block now, beside those that are being read. */
bool stk_prewarm_share_begin_read(struct stk_prewarm_share *share);

#endif
