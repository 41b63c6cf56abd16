/* stoker/index.h: builds the index file of a data set. */
#ifndef STOKER_INDEX_H
#define STOKER_INDEX_H

#include <stoker/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Builds the index file of a data set on its own thread and the engine's threads. Entries of shards
 * that did not change are reused, new shards are read; a killed run continues where it was. The
 * file is written under a temporary name and renamed when it is complete. If another process builds
 * the same file, opening fails with -EBUSY and names that process. */
struct stoker_indexer;

struct stoker_indexer_options {
    size_t struct_size;
    const char *out; /* borrowed; default: stoker.index in the folder above all shards; in the cache
                        if that folder is read-only or has an index of other shards */
    uint8_t checksums; /* 1: read all bytes once; store XXH3-64 of each member and SHA-256 of each
                          shard file */
    uint8_t labels;    /* 1: read .cls members, store their numbers */
    uint8_t force;     /* 1: read all headers again */
    uint64_t seek_interval_bytes; /* distance of seek points in gz and zstd shards, in decompressed
                              bytes, at least 65,536; 1: default 1 MiB; 0: no new seek points in gz
                              shards; frames of zstd, which cost nothing, 1 MiB apart */
};

/* Starts to build the index. dataset: urls and limits, borrowed. Returns 0 and sets *indexer_out;
 * -EBUSY if another process builds the same file. */
STOKER_API int stoker_indexer_open(struct stoker_indexer **indexer_out,
                                   struct stoker_engine *engine,
                                   const struct stoker_dataset_options *dataset,
                                   const struct stoker_indexer_options *options,
                                   struct stoker_error *error);

struct stoker_indexer_progress {
    size_t struct_size;
    uint64_t shards, shards_done; /* of a folder: files; shards_done excludes reused ones */
    uint64_t shards_reused;       /* not read again */
    uint64_t bytes, bytes_done;   /* of the shards to read; 0 while they are being listed */
    uint64_t bytes_read;
    uint64_t elapsed_ns;
    uint64_t samples, members, index_bytes; /* set at the end */
    const char *path; /* of the index; NULL until it is known. Valid until the indexer is closed */
    /* Set at the end: compressed shards; those that can only be read front to back (one makes the
     * data set sequential); path and reason of the first one, valid likewise; NULL: none. */
    uint64_t shards_compressed, shards_sequential;
    const char *sequential_shard, *sequential_reason;
};
/* Waits up to timeout_ms and fills *progress_out. Returns 1 while it works, 0 once the index is
 * complete, a negative status if it failed. */
STOKER_API int stoker_indexer_next(struct stoker_indexer *indexer, uint32_t timeout_ms,
                                   struct stoker_indexer_progress *progress_out,
                                   struct stoker_error *error);
/* Takes ownership; NULL is allowed. Stops unfinished work. */
STOKER_API void stoker_indexer_close(struct stoker_indexer *indexer);

#ifdef __cplusplus
}
#endif
#endif
