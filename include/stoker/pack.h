/* stoker/pack.h: writes a data set as tar shards with an index and a manifest. */
#ifndef STOKER_PACK_H
#define STOKER_PACK_H

#include <stoker/dataset.h>
#include <stoker/order.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes a data set as tars of a given size (WebDataset), with an index (stoker.index) and a
 * manifest of SHA-256 (stoker.manifest.json). The bytes depend on the source and the options, not
 * on threads or time. All files are written in DESTINATION.part; once they are on disk, one rename
 * gives it its final name. After an interruption at any point (close, kill, power loss), the same
 * call resumes. If another process writes the same destination, packing fails with -EBUSY and names
 * that process. */
struct stoker_pack;

struct stoker_pack_options {
    size_t struct_size;
    const char *destination; /* borrowed; a folder that does not exist or is empty, outside of the
                                source */
    uint64_t shard_bytes;    /* maximum size of a shard, unless one sample is larger; default
                                256 MiB */
    const char *pattern;     /* borrowed; names of shards; default "shard-%06d.tar" */
    uint32_t shuffle;    /* STOKER_SHUFFLE_FULL (default), or _NONE: the order of the source. The
                            default for a source that can only be read front to back is NONE.
                            Unfinished work in DESTINATION.part continues in its order, if this
                            is 0. The manifest says which was used */
    uint64_t seed;       /* of the shuffle; default 0 */
    uint32_t short_side; /* JPEGs with a longer short side are shrunk to it; 0: none */
    uint32_t quality;    /* of shrunk JPEGs, 1 to 100; default 90 */
    uint32_t on_error;   /* enum stoker_on_error. Raise (default): damage ends packing; JPEGs to
                            be shrunk that do not decode are copied. Skip: samples with damaged
                            data, and such JPEGs, are left out and listed */
    uint64_t bad_samples_max;  /* samples left out; 0: no limit */
    double bad_share_max;      /* of the source's samples; 0: no limit */
    uint32_t bad_list_max;     /* length of the list for stoker_pack_quarantine; default 10,000 */
    uint32_t io_retries;       /* of a read that fails with EIO, ESTALE and the like; default 3;
                                  STOKER_NO_RETRIES. If all fail, packing ends, whatever on_error
                                  is */
    uint32_t io_retry_wait_ms; /* before the first retry; doubles up to 10 s; default 100 */
    const char *quarantine;    /* borrowed: a file that lists the samples left out, one line of JSON
                                  each; it is complete before DESTINATION gets its name. It may
                                  exist only if unfinished work is resumed (else -EEXIST); NULL:
                                  none */
};

enum stoker_pack_phase {
    STOKER_PACK_LISTING = 1, /* reads sizes and sidecar files */
    STOKER_PACK_WRITING,
    STOKER_PACK_COMMITTING, /* index, manifest, rename */
    STOKER_PACK_DONE,
};

struct stoker_pack_progress {
    size_t struct_size;
    uint32_t phase; /* enum stoker_pack_phase */
    uint64_t shards, shards_done;
    uint64_t samples, samples_done;
    uint64_t bytes, bytes_done; /* of shards; with short_side, bytes is an estimate */
    uint64_t shards_resumed, samples_resumed, bytes_resumed; /* part of done: by an earlier run */
    uint64_t resized, copied;  /* JPEGs shrunk and not shrunk; this run */
    uint64_t run_ns;           /* since open */
    uint64_t samples_left_out; /* damaged, also in an earlier run; not in samples_done */
    uint64_t retries;          /* of reads; this run */
    uint64_t seed;             /* of the shuffle */
    uint8_t shuffled;          /* 1: the samples are shuffled; 0: in the order of the source */
};

/* Starts to pack on the data set's engine and an own thread. Keeps the data set alive until close.
 * Returns 0 and sets *pack_out; STOKER_ERROR_ARGUMENT if an option is invalid or the destination is
 * in a folder of the source. */
STOKER_API int stoker_pack_open(struct stoker_pack **pack_out, struct stoker_dataset *dataset,
                                const struct stoker_pack_options *options,
                                struct stoker_error *error);
/* Waits up to timeout_ms and fills *progress (may be NULL) in any case. Returns
 *   1                     while it works
 *   0                     once DESTINATION is complete
 *   -EEXIST               if the destination exists
 *   -EBUSY                if another process writes it
 *   STOKER_ERROR_STATE    if DESTINATION.part has other options or data; *error names the first
 *                         difference. on_error and the limits may change: the last values apply
 *   STOKER_ERROR_LIMIT    if more is damaged than bad_samples_max or bad_share_max allows. The
 * damage is listed; the same call with higher limits resumes */
STOKER_API int stoker_pack_next(struct stoker_pack *pack, uint32_t timeout_ms,
                                struct stoker_pack_progress *progress, struct stoker_error *error);
/* Stops the work, and does not wait for that. stoker_pack_next then soon returns
 * STOKER_ERROR_CLOSED or another error; or 0, since a pack that writes index and manifest completes
 * DESTINATION. Any thread, but not after close. */
STOKER_API void stoker_pack_stop(struct stoker_pack *pack);
/* Samples left out (or, with raise, the one that ended packing), each once, in the order of the
 * shards. Returns the length of the list, at most bad_list_max; 0 before the end. */
STOKER_API uint64_t stoker_pack_quarantine_count(struct stoker_pack *pack);
/* Returns 0 and fills *entry_out, whose texts are valid until close; STOKER_ERROR_ARGUMENT if index
 * is past the end. */
STOKER_API int stoker_pack_quarantine(struct stoker_pack *pack, uint64_t index,
                                      struct stoker_quarantine_entry *entry_out);
/* Takes ownership; NULL is allowed. Stops unfinished work, also within a member. */
STOKER_API void stoker_pack_close(struct stoker_pack *pack);

#ifdef __cplusplus
}
#endif
#endif
