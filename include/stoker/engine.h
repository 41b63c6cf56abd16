/* stoker/engine.h: worker threads, I/O queues and memory budget of a process. */
#ifndef STOKER_ENGINE_H
#define STOKER_ENGINE_H

#include <stoker/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct stoker_external_fs; /* stoker/external.h */
struct stoker_cache;       /* stoker/cache.h */

/* Worker threads, I/O queues and a memory budget that the loaders of a process share. Any thread.
 * After fork(), calls in the child return STOKER_ERROR_FORKED. */
struct stoker_engine;

enum stoker_io_backend { STOKER_IO_AUTO = 0, STOKER_IO_URING, STOKER_IO_THREADS };
enum stoker_direct { STOKER_DIRECT_AUTO = 0, STOKER_DIRECT_NEVER, STOKER_DIRECT_ALWAYS };
enum stoker_simd { STOKER_SIMD_AUTO = 0, STOKER_SIMD_NONE, STOKER_SIMD_AVX2 };

struct stoker_engine_options {
    size_t struct_size;
    uint64_t memory_bytes_max; /* hard limit; default: half of the memory that the cgroup allows */
    uint32_t threads;          /* decode threads; default: the cores that affinity and cgroup allow
                                  minus cores_reserved. Idle threads sleep */
    uint32_t cores_reserved;   /* cores for the training loop; default 0 */
    uint32_t io_backend;       /* enum stoker_io_backend */
    uint32_t direct;           /* enum stoker_direct: O_DIRECT for cold reads */
    uint32_t io_depth;         /* reads in flight; default 128, 256 from object stores */
    uint32_t io_bytes_max;     /* one read after coalescing; default 4 MiB; on network file systems
                                  and FUSE: depends on the mount (struct stoker_filesystem_info) */
    uint32_t io_gap_bytes;     /* reads with a smaller gap are coalesced; default 64 KiB; on network
                                  file systems and FUSE up to 1 MiB, but gaps never add more bytes
                                  than were requested */
    uint32_t read_timeout_ms;  /* a read fails after this time; default 30,000 */
    uint32_t simd;             /* enum stoker_simd: for tests and measurements */
    uint32_t open_files_max;   /* files that stay open; default 256 */
    uint8_t sandbox;           /* 1: decode images and parse JSON, MessagePack and npz in helper
                                  processes without any other rights */
    uint32_t decode_timeout_ms; /* CPU time of one job in the sandbox; default 10,000 */
    const char *sandbox_helper; /* borrowed: path of stoker-decode; default: next to this library */
    uint32_t connections_max;   /* to object stores and web servers. The engine starts with 256, or
                                   128 if other engines of this user run, and tunes the number by
                                   throughput; default 256, at most 1,024 */
    uint32_t node_connections_max; /* of all engines of this user on this machine together; the
                                      smallest value of the running engines applies; default 256,
                                      at most 1,024 */
    uint8_t no_process_sharing;    /* 1: do not share connections and rates with other processes */
    uint8_t no_hedging;            /* 1: never send a request twice to reduce latency */
    uint32_t hedge_percent_max; /* hedged requests, in percent of all requests; default 3, at most
                                   10 */
    struct stoker_external_fs *external_fs; /* serves URLs that the library has no client for; the
                                               engine keeps it alive; NULL: none */
    uint8_t check_etags; /* 1: if an object is read entirely and the store reports no checksum,
                            verify an ETag that is an MD5: 1.5 to 2 s of CPU a GB. ETags of SSE-KMS,
                            SSE-C, S3 Express and multipart objects are not MD5s */
    uint32_t network_fs_threads_max;   /* threads that open, list and read on network file systems
                                          and FUSE; default 8, at most 256 */
    uint32_t single_flight_timeout_ms; /* if another process of this user is listing the same path,
                                          opening a data set waits this long for its result, then
                                          lists the path itself; default 600,000 */
    struct stoker_cache *cache; /* blocks of objects on disks of this machine; the engine keeps it
                                   alive; NULL: the one of STOKER_CACHE_DIR, else none */
};

/* Opens an engine and starts its threads. Returns 0 and sets *engine_out; -ENOMEM if memory is
 * exhausted; STOKER_ERROR_ARGUMENT if an option is out of range. */
STOKER_API int stoker_engine_open(struct stoker_engine **engine_out,
                                  const struct stoker_engine_options *options,
                                  struct stoker_error *error);
/* Takes ownership; NULL is allowed. The threads end when the last loader is closed. */
STOKER_API void stoker_engine_close(struct stoker_engine *engine);

/* Returns the cache that the engine uses, its option or the one of STOKER_CACHE_DIR, for
 * stoker_cache_stats(); NULL: none. Valid as long as the engine. Any thread. */
STOKER_API struct stoker_cache *stoker_engine_cache(struct stoker_engine *engine);

struct stoker_engine_info {
    size_t struct_size;
    uint32_t threads;          /* running threads */
    uint32_t cores;            /* allowed by affinity and cgroup */
    uint64_t memory_bytes_max; /* the budget */
    uint64_t memory_bytes;     /* in use */
    uint64_t memory_bytes_peak;
    uint64_t leaked_bytes;  /* buffers of reads that never completed */
    const char *io_backend; /* "io_uring" or "threads"; valid forever */
    const char *io_reason;  /* why this backend is used; valid until the engine is closed */
    const char *simd;       /* "avx2", "sse2", "neon" or "none"; valid forever */
    const char *sandbox; /* "off", or what the kernel enforces; valid until the engine is closed */
};
/* Returns 0 and fills *info; STOKER_ERROR_ARGUMENT if struct_size is wrong. Any thread. */
STOKER_API int stoker_engine_info(struct stoker_engine *engine, struct stoker_engine_info *info);

/* Index of the arrays in struct stoker_store_stats. */
enum stoker_store {
    STOKER_STORE_HTTP = 0, /* http:// and https:// */
    STOKER_STORE_S3,
    STOKER_STORE_GS,
    STOKER_STORE_AZ,
    STOKER_STORE_HF,
    STOKER_STORES,
};
/* Counters of the engine's requests to object stores since it was opened. */
struct stoker_store_stats {
    size_t struct_size;
    uint64_t requests[STOKER_STORES]; /* sent, each retry counted again */
    /* Requests by kind: pages of listings; writes (objects, parts, copies, start and end of an
     * upload); deletions (single objects, batches, uploads). All other requests read. */
    uint64_t lists[STOKER_STORES], puts[STOKER_STORES], deletes[STOKER_STORES];
    uint64_t bytes[STOKER_STORES]; /* received bodies of responses */
    /* Retries: after 429 and 503; after resets, stalls, other 5xx and invalid responses; without
     * delay after credentials, region or clock were corrected. */
    uint64_t retries_throttled, retries_transient, retries_other;
    /* Part of `bytes` that was verified by a checksum of the server: of the response body, or of
     * the entire object once all of its ranges were read. */
    uint64_t verified_bytes[STOKER_STORES];
    uint64_t checksum_failures; /* bodies that did not match the server's checksum */
    /* Throttling and hedging. */
    uint64_t throttles; /* responses that report too many requests: 429, 503, SlowDown ... */
    uint64_t hedges, hedges_won; /* second requests for reads whose first byte was late; second
                                    requests that were answered first */
    uint64_t connection_waits;   /* requests that waited for a free connection of the node */
    uint64_t throttle_waits;     /* requests that waited for the rate limit of their prefix */
    double rate_max; /* requests a second: the lowest rate limit of all prefixes; 0: no limit now */
    uint32_t connections,
        connections_peak;     /* open connections of this engine, idle ones included */
    uint32_t connections_max; /* current limit, tuned by throughput */
    uint32_t node_connections, node_connections_max, node_engines; /* of all sharing engines */
    const char *sharing_note; /* why nothing is shared with other processes of this user; "": it is
                                 shared; NULL: no request yet. Valid until the engine is closed */
};
/* Returns 0 and fills *stats; STOKER_ERROR_ARGUMENT if struct_size is wrong. Any thread. */
STOKER_API int stoker_engine_store_stats(struct stoker_engine *engine,
                                         struct stoker_store_stats *stats);

/* The request to a store that has waited longest without a byte, over all its attempts. */
struct stoker_store_wait {
    size_t struct_size;
    char host[128];     /* of the last attempt, with its port; empty: none was sent yet */
    uint32_t attempt;   /* from 1 */
    uint64_t waited_ns; /* since the last byte, or since it was requested */
};
/* Finds it among the requests of all engines of this process, so that a program can show what it
 * waits for. Returns 1 and fills *wait; 0 if no request has waited for a second;
 * STOKER_ERROR_ARGUMENT if struct_size is wrong. Any thread, also while engines are opened and
 * closed. */
STOKER_API int stoker_store_wait(struct stoker_store_wait *wait);

#ifdef __cplusplus
}
#endif
#endif
