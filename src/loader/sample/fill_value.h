/* loader/sample/fill_value.h: fills fields whose value is inside a member, or that follow an
 * image.
 *
 *   member --parse--> value at a path --check--> slot          numbers, arrays of a fixed shape
 *                                            --> ragged value  text at a path, ragged arrays, boxes
 *
 * A document that several fields read is parsed once a sample. On a sandboxed engine JSON,
 * MessagePack and npz are parsed in the worker's sandbox.
 * Owner: the caller. Threads: the worker that claimed the slot.
 * Memory: large members reserve from the engine's budget. Bound: the loader's parse_bytes_max for
 * one member. */
#ifndef LOADER_SAMPLE_FILL_VALUE_H
#define LOADER_SAMPLE_FILL_VALUE_H

#include "format/value/value.h"
#include "loader/pending/pending_batch.h"

/* The document that a field of the sample has parsed last; zeroed: none. */
struct stk_parse_cache {
    struct stk_value value; /* the entire document */
};
void stk_parse_cache_close(struct stk_parse_cache *parse);

/* One value of one slot. */
struct stk_fill {
    struct stk_pending_batch *pending;
    struct stk_worker *worker;
    uint32_t slot, field;
    struct stk_view bytes;         /* the field's member */
    struct stk_view image;         /* MASK, BOXES: the image's member */
    const char *extension;         /* of the field's member */
    struct stk_parse_cache *parse; /* of the sample */
    struct stoker_error *error;    /* not NULL */
};

/* Returns the random key of image field `field` in the sample of a slot. */
uint64_t stk_fill_value_key(const struct stk_pending_batch *pending, uint32_t slot, uint32_t field);
/* Parses and checks the value, and copies it. JSON and MSGPACK: only checks the member, whose bytes
 * are the value. Returns 0 on success, STOKER_ERROR_FORMAT, STOKER_ERROR_CORRUPT or
 * STOKER_ERROR_MISSING if the member has no fitting value, STOKER_ERROR_BUDGET or -ENOMEM. */
int stk_fill_value(const struct stk_fill *fill);
/* Returns 0 if the mask has the size of its image, else STOKER_ERROR_FORMAT, or the error of a
 * header. */
int stk_fill_value_check_mask(const struct stk_fill *fill);

#endif
