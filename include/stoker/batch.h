/* stoker/batch.h: a batch of samples, as arrays. */
#ifndef STOKER_BATCH_H
#define STOKER_BATCH_H

#include <stoker/error.h>

#ifdef __cplusplus
extern "C" {
#endif

struct stoker_batch;

enum stoker_dtype {
    STOKER_UINT8 = 1,
    STOKER_FLOAT32,
    STOKER_FLOAT16,
    STOKER_BFLOAT16,
    STOKER_INT64,
    STOKER_FLOAT64,
    STOKER_BYTES, /* variable length: values and offsets */
    STOKER_BOOL,  /* one byte, 0 or 1 */
    STOKER_INT8,
    STOKER_INT16,
    STOKER_UINT16,
    STOKER_INT32,
    STOKER_UINT32,
    STOKER_UINT64,
};

struct stoker_array {
    void *data;              /* fixed shape: samples * strides[0] elements; BYTES: the values */
    const uint64_t *offsets; /* BYTES and ragged: samples + 1 offsets into data; else NULL. BYTES:
                                in bytes. Ragged: in rows of data [offsets[samples], shape[1], ...];
                                if `shapes` is not NULL: in elements */
    uint32_t dtype;          /* enum stoker_dtype */
    uint32_t dimension_count;
    int64_t shape[4];       /* shape[0] = samples */
    int64_t strides[4];     /* in elements */
    const uint64_t *shapes; /* if more than the first dimension varies: [samples, shape_rank]
                               dimensions of the array of each sample; else NULL */
    uint32_t shape_rank;
};

/* The array of a field; `field` is the index in the options' fields. Returns 0 and fills
 * *array_out, valid until the batch is closed; STOKER_ERROR_ARGUMENT if there is no such field. */
STOKER_API int stoker_batch_array(const struct stoker_batch *batch, size_t field,
                                  struct stoker_array *array_out);
/* Returns the number of samples, padding included. */
STOKER_API uint32_t stoker_batch_samples(const struct stoker_batch *batch);
/* Returns the sample id of each slot; valid until the batch is closed. */
STOKER_API const uint64_t *stoker_batch_ids(const struct stoker_batch *batch);
/* Returns 1 for each real sample and 0 for padding (STOKER_TAIL_PAD); valid until the batch is
 * closed. */
STOKER_API const uint8_t *stoker_batch_mask(const struct stoker_batch *batch);
/* Adds a reference; each reference needs its own close. Any thread. */
STOKER_API void stoker_batch_retain(struct stoker_batch *batch);
/* Takes ownership of one reference; NULL is allowed. Any thread, at any time, also after the loader
 * was closed. */
STOKER_API void stoker_batch_close(struct stoker_batch *batch);

#ifdef __cplusplus
}
#endif
#endif
