/* stoker/diff.h: compares the samples of two data sets. */
#ifndef STOKER_DIFF_H
#define STOKER_DIFF_H

#include <stoker/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Compares the samples of two data sets: matched by key, compared by XXH3-64 of each member (an
 * index's checksums; without them the bytes are read). It finds changes, not forgery: compare
 * manifests for that. Shards and the order of samples and members are ignored. If several samples
 * have the same key, those with equal content are matched, the others in order.
 *
 * If one is a folder and the other tars, only images are compared, and a file name is split as in a
 * tar ("cat/1.jpg": key "cat/1"), so that a folder equals the shards that were packed from it. */
struct stoker_diff;

enum stoker_difference_kind {
    STOKER_DIFFERENCE_ADDED = 1, /* only in b */
    STOKER_DIFFERENCE_REMOVED,   /* only in a */
    STOKER_DIFFERENCE_CHANGED,
};

struct stoker_difference {
    uint32_t kind;               /* enum stoker_difference_kind */
    uint64_t sample_a, sample_b; /* ids; STOKER_NO_SAMPLE */
    const char *key;             /* without a NUL at the end; valid until close */
    size_t key_bytes;
    char shard_a[512], shard_b[512]; /* paths; empty: no such sample */
    char members[256]; /* of a changed sample: "jpg +txt -json"; "jpg?": only its compression may
                          differ */
};

struct stoker_diff_options {
    size_t struct_size;
    uint8_t reread; /* 1: read the bytes even if an index has checksums */
};

/* Starts to compare on the engine of a. Keeps both data sets alive until close. options may be
 * NULL. Returns 0 and sets *diff_out; STOKER_ERROR_BUDGET if the budget has not 24 bytes a sample.
 */
STOKER_API int stoker_diff_open(struct stoker_diff **diff_out, struct stoker_dataset *a,
                                struct stoker_dataset *b, const struct stoker_diff_options *options,
                                struct stoker_error *error);
/* Waits for a difference. Returns 1 and fills *difference: first the removed and changed samples in
 * the order of a, then the added ones in the order of b; 0 at the end; STOKER_ERROR_AGAIN after
 * timeout_ms while it still compares; the error of a read. One thread. */
STOKER_API int stoker_diff_next(struct stoker_diff *diff, uint32_t timeout_ms,
                                struct stoker_difference *difference, struct stoker_error *error);

struct stoker_diff_progress {
    size_t struct_size;
    uint64_t samples_a, samples_b, samples_done; /* samples_done: of both */
    uint64_t bytes, bytes_total;                 /* read; total: only of tars */
    uint8_t finished;                            /* 1: the next four are final */
    uint64_t same, added, removed, changed;
};
/* Returns 0 and fills *progress; STOKER_ERROR_ARGUMENT if struct_size is wrong. Any thread. */
STOKER_API int stoker_diff_progress(struct stoker_diff *diff,
                                    struct stoker_diff_progress *progress);
/* Takes ownership; NULL is allowed. Stops unfinished work. */
STOKER_API void stoker_diff_close(struct stoker_diff *diff);
/* Returns "added", "removed" or "changed". Valid forever. */
STOKER_API const char *stoker_difference_name(uint32_t kind);

#ifdef __cplusplus
}
#endif
#endif
