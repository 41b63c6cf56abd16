/* stoker/verify.h: verifies and repairs a data set. */
#ifndef STOKER_VERIFY_H
#define STOKER_VERIFY_H

#include <stoker/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads all bytes of a data set and reports damage and its place; continues after damage. Works on
 * its own thread and the engine's threads; findings are in the order of the shards. One thread uses
 * it at a time; stoker_verify_progress(): any thread. */
struct stoker_verify;

/* Number, name, sentence. */
#define STOKER_FINDINGS(X)                                                                         \
    X(1, UNREADABLE, "unreadable", "the file cannot be read")                                      \
    X(2, HEADER, "header", "a tar header is damaged; data up to the next header is lost")          \
    X(3, END, "end", "the data ends early, or without an end marker")                              \
    X(4, PADDING, "padding", "the bytes between two members are not zero")                         \
    X(5, PACKING, "packing", "the gzip, zstd, bzip2 or xz stream is damaged")                      \
    X(6, NAME, "name", "a member's name cannot be a key")                                          \
    X(7, DUPLICATE, "duplicate", "a sample has two members with the same extension")               \
    X(8, SCATTERED, "scattered", "members of one sample are not adjacent")                         \
    X(9, DIGEST, "digest", "the shard's size or SHA-256 differs from the manifest")                \
    X(10, CHECKSUM, "checksum", "the member's checksum differs from the index")                    \
    X(11, PICTURE, "picture", "no image, or its header, chunks or end are damaged")                \
    X(12, PIXELS, "pixels", "the image does not decode without errors")                            \
    X(13, MISNAMED, "misnamed", "an image with the extension of another format (a note)")          \
    X(14, MISSING, "missing", "the manifest lists a shard that does not exist")                    \
    X(15, EXTRA, "extra", "a shard is not in the manifest")                                        \
    X(16, MANIFEST, "manifest", "the manifest is damaged")                                         \
    X(17, INDEX, "index", "the index is damaged, or belongs to other data")                        \
    X(18, UNREPAIRED, "unrepaired", "repair did not change it")                                    \
    X(19, REINDEXED, "reindexed", "a valid index that the manifest does not name (a note)")        \
    X(20, TABLE, "table", "a zstd seek table has entries where no frame starts")                   \
    X(21, UNPROVEN, "unproven", "repair kept samples that no checksum verifies (a note)")          \
    X(22, SKIPPED, "skipped", "a file or member that is not part of a sample (a note)")            \
    X(23, EMPTY, "empty", "a class folder has no images")

enum stoker_finding_kind {
#define X(number, kind, name, sentence) STOKER_FINDING_##kind = (number),
    STOKER_FINDINGS(X)
#undef X
};

struct stoker_finding {
    uint32_t kind;      /* enum stoker_finding_kind */
    int status;         /* status of the error that reading it would return */
    uint8_t note;       /* 1: readable, but unusual; not counted as damage */
    uint64_t offset;    /* as in struct stoker_error */
    char shard[512];    /* path of the shard or file */
    char key[256];      /* empty: unknown, or not part of a sample */
    char extension[64]; /* likewise */
    char what[448];
    char advice[256];
};

struct stoker_verify_options {
    size_t struct_size;
    const char *const *urls; /* borrowed by open: as in stoker_dataset_options */
    size_t url_count;
    uint8_t deep;          /* 1: decode every image; a warning of the decoder counts as damage */
    uint8_t repair;        /* 1: write repaired shards, see stoker_verify_open */
    uint64_t findings_max; /* findings to keep, further ones are only counted; default 10,000 */
    uint64_t pixels_max;   /* of an image; default 178,956,970 */
    uint64_t decode_bytes_max; /* of the decoder of one image; default 1 GiB */
    uint32_t key_bytes_max;    /* as in stoker_dataset_options, as the next four */
    uint32_t header_bytes_max;
    uint32_t member_gap_max;
    uint64_t decompressed_bytes_max;
    uint32_t decompression_ratio_max;
    uint8_t keep_unverified; /* 1: with repair, see stoker_verify_open */
};

/* Starts to verify. Returns 0 and sets *verify_out; a negative status only if there is nothing to
 * verify or (-EBUSY) another process repairs the same data.
 *
 * Repair writes a damaged shard again without its damaged samples (entire samples; all other
 * members byte for byte; with the same compression) under a temporary name. Then SHARD also gets
 * the name SHARD.original, the manifest is updated, the new file takes the name SHARD in one
 * rename, and an index that is out of date is removed. If only a checksum of the compressed data is
 * wrong, it is unknown whether the checksum or the data is damaged: the data is left out, except
 * samples with a checksum of their own (in an index; PNG by its CRCs). With keep_unverified it is
 * kept, and a note and `unverified` count it. Bad files of a folder ROOT move to the same place in
 * ROOT.bad. An existing original or moved file is never overwritten. After a kill at any time SHARD
 * or SHARD.original has the original bytes, and the next repair completes. */
STOKER_API int stoker_verify_open(struct stoker_verify **verify_out, struct stoker_engine *engine,
                                  const struct stoker_verify_options *options,
                                  struct stoker_error *error);
/* Waits for a finding. Returns 1 and fills *finding; 0 once all is verified (and repaired) and all
 * findings were returned; STOKER_ERROR_AGAIN after timeout_ms; another error (memory, writing) if
 * verification ended early. */
STOKER_API int stoker_verify_next(struct stoker_verify *verify, uint32_t timeout_ms,
                                  struct stoker_finding *finding, struct stoker_error *error);

struct stoker_verify_progress {
    size_t struct_size;
    uint64_t shards, shards_total; /* shards or files; read so far */
    uint64_t bytes, bytes_total;   /* read; total 0: unknown (a folder) */
    uint64_t samples, members;
    uint64_t findings, notes; /* so far, including those past findings_max */
    uint64_t findings_kept;   /* findings for next(), at most findings_max */
    uint64_t repaired;        /* shards written again, or files moved */
    uint64_t dropped;         /* samples that repair left out */
    uint64_t unverified;      /* samples that repair kept although no checksum verifies them */
    uint64_t skipped;         /* files and members that are not part of a sample */
};
/* Returns 0 and fills *progress; STOKER_ERROR_ARGUMENT if struct_size is wrong. Any thread. */
STOKER_API int stoker_verify_progress(struct stoker_verify *verify,
                                      struct stoker_verify_progress *progress);
/* Takes ownership; NULL is allowed. Stops unfinished work. */
STOKER_API void stoker_verify_close(struct stoker_verify *verify);
/* Returns the name of a kind of finding: "header", "pixels", ... Valid forever. Any thread. */
STOKER_API const char *stoker_finding_name(uint32_t kind);
/* Returns a sentence that describes the kind. Valid forever. Any thread. */
STOKER_API const char *stoker_finding_text(uint32_t kind);

#ifdef __cplusplus
}
#endif
#endif
