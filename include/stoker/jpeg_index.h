/* stoker/jpeg_index.h: builds and verifies the JPEG index of a data set. */
#ifndef STOKER_JPEG_INDEX_H
#define STOKER_JPEG_INDEX_H

#include <stoker/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Builds the JPEG index of a data set: entry points where decoding of a JPEG can start, in the file
 * INDEX.marks next to the index file. With it a crop is decoded without the rows above it and most
 * of the columns beside it, to the same pixels. An image whose length or XXH3-64 has changed is
 * decoded without it. The data set needs an index file that is up to date. */
struct stoker_jpeg_indexer;

struct stoker_jpeg_indexer_options {
    size_t struct_size;
    uint32_t mcus; /* distance of entry points in a row of MCUs; 0: one entry point a row */
    uint8_t check; /* 1: write nothing; compute the entry points again and compare them with the
                      file */
};

struct stoker_jpeg_indexer_progress {
    size_t struct_size;
    uint64_t samples, samples_done;
    uint64_t pictures, bytes; /* JPEGs that were read */
    uint64_t indexed;         /* JPEGs with entry points: the others are not baseline, have restart
                                 intervals or are damaged */
    uint64_t mismatches;      /* with check: samples whose entry points differ */
    uint64_t first_mismatch;  /* the first such sample; STOKER_NO_SAMPLE: none */
    uint64_t file_bytes;      /* set at the end */
    const char *path;         /* of the file; valid until the indexer is closed */
};

/* Starts to build. dataset: borrowed until close. Returns 0 and sets *indexer_out;
 * STOKER_ERROR_UNSUPPORTED if the data set has no index file or is sequential; with check:
 * STOKER_ERROR_MISSING if there is no JPEG index. */
STOKER_API int stoker_jpeg_indexer_open(struct stoker_jpeg_indexer **indexer_out,
                                        struct stoker_dataset *dataset,
                                        const struct stoker_jpeg_indexer_options *options,
                                        struct stoker_error *error);
/* Works for about a quarter of a second on the caller's and the engine's threads (at least 16
 * samples a thread, at most 512) and fills *progress_out. Returns 1 if there is more to do; 0 once
 * the file is complete (data sets opened from now on use it) or verified; a negative status on
 * failure, and no new file. */
STOKER_API int stoker_jpeg_indexer_next(struct stoker_jpeg_indexer *indexer,
                                        struct stoker_jpeg_indexer_progress *progress_out,
                                        struct stoker_error *error);
/* Takes ownership; NULL is allowed. Unfinished work leaves no file. */
STOKER_API void stoker_jpeg_indexer_close(struct stoker_jpeg_indexer *indexer);

#ifdef __cplusplus
}
#endif
#endif
