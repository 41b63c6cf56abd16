/* stoker/prewarm.h: reads files before training: into the page cache, or into the node cache. */
#ifndef STOKER_PREWARM_H
#define STOKER_PREWARM_H

#include <stoker/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads files once on many threads before training: into the page cache, out of an archive below
 * the file system, or into a proxy before an object store. Data of objects is stored on this
 * machine only if the engine has a node cache (stoker/cache.h). Data that is cached is skipped, so
 * a killed run continues where it was. */
struct stoker_prewarm;

struct stoker_prewarm_options {
    size_t struct_size;
    const char *const *paths; /* files, folders (with everything below) or URLs; borrowed */
    size_t path_count;
    uint32_t workers;     /* concurrent reads; default 16, at most 64 */
    uint32_t chunk_bytes; /* of one read; default 4 MiB, 64 KiB to 64 MiB */
    uint32_t timeout_s;   /* for the whole run; 0: no limit, and a late read is tried 3 times */
    uint8_t check;        /* 1: read nothing; report what is cold */
    uint8_t touch; /* 1: read one byte of each file: for archives that restore entire files */
    /* A share of a data set, for the node cache: the blocks that node `node` (from 0) of node_count
     * reads, in the order in which loaders with group_count home groups and this seed use them.
     * node_count 0: all of the paths. Not with check or touch. */
    uint32_t node, node_count;
    uint32_t group_count;    /* a multiple of node_count; default: node_count */
    uint64_t seed;           /* of the loaders */
    uint64_t budget_bytes;   /* of a share: at most so many bytes of blocks; 0: no limit */
    uint64_t rate_bytes_max; /* of a share: downloaded a second; 0: no limit */
};

struct stoker_prewarm_progress {
    size_t struct_size;
    uint32_t listed;                 /* 1: files and bytes are final */
    uint32_t cold_is_known;          /* 1: bytes_warm and bytes_cold are known, for local files */
    uint64_t files, bytes;           /* found so far */
    uint64_t files_done, bytes_done; /* read or skipped */
    uint64_t bytes_read;
    uint64_t bytes_warm; /* in the page cache before */
    uint64_t bytes_cold; /* not in it after the read (with check: now), in whole pages */
    uint64_t files_failed;
    uint64_t run_ns;
};

/* Starts to read. Returns 0 and sets *prewarm_out; STOKER_ERROR_ARGUMENT if an option is invalid.
 */
STOKER_API int stoker_prewarm_open(struct stoker_prewarm **prewarm_out,
                                   struct stoker_engine *engine,
                                   const struct stoker_prewarm_options *options,
                                   struct stoker_error *error);
/* Waits up to timeout_ms for the end and fills *progress (may be NULL) in any case. Returns 1 while
 * it works; 0 once it is complete; STOKER_ERROR_TIMEOUT if it was not complete after timeout_s;
 * else the first error (the other files are read nevertheless). */
STOKER_API int stoker_prewarm_next(struct stoker_prewarm *prewarm, uint32_t timeout_ms,
                                   struct stoker_prewarm_progress *progress,
                                   struct stoker_error *error);
/* Takes ownership; NULL is allowed. Stops, and waits for reads in flight. */
STOKER_API void stoker_prewarm_close(struct stoker_prewarm *prewarm);

#ifdef __cplusplus
}
#endif
#endif
