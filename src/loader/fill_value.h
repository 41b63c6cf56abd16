/* loader/fill_value.h: what a loader takes of a sample: opening its fields, and filling those whose
 * values lie inside a member.
 *
 *   member --field room--> value --> slot                  numbers, arrays of a fixed shape, masks
 *                                --> piece --lay out--> batch      text at a path, ragged, boxes
 *
 * How large a value is may be known only once it is parsed: such values go aside as pieces, each
 * written by whoever claimed its slot, and are laid out one after the other when the flight is
 * done. A flight reserves what pieces took so far when it opens, so that flights do not wait for
 * each other's memory half way; one that cannot know, or finds no room, flies alone.
 * Owner: fields: the loader; pieces: the flight. Threads: a slot: one; lay out: the one that ended
 * the flight. Memory: pieces and large parses from the engine's budget. Bound: budget; a parse:
 * parse_bytes_max (decode_bytes_max of the options). */
#ifndef LOADER_FILL_VALUE_H
#define LOADER_FILL_VALUE_H

#include "format/value/value.h"
#include "loader/pending_batch.h"

/* A value on its way, of a field that goes aside. */
struct stk_ragged_value {
    uint8_t *data; /* owned */
    uint64_t bytes;
    uint64_t sides[3];
    bool
        from_reservation; /* of what the flight reserved when it opened; else reserved on its own */
};

/* The document that a sample's fields looked into last; zeroed: none. */
struct stk_parse_cache {
    struct stk_value value; /* the whole of it */
};
void stk_parse_cache_close(struct stk_parse_cache *parse);

int stk_loader_fields_open(struct stoker_loader *loader,
                           const struct stoker_loader_options *options, struct stoker_error *error);
void stk_loader_fields_close(struct stoker_loader *loader);

/* One value of one slot. */
struct stk_fill {
    struct stk_pending_batch *pending;
    struct stk_worker *worker;
    uint32_t slot, field;
    struct stk_view bytes;         /* of the field's member */
    struct stk_view image;         /* MASK, BOXES: of the image's member */
    const char *extension;         /* of the field's member */
    struct stk_parse_cache *parse; /* the sample's */
    struct stoker_error *error;    /* not NULL */
};

/* The key of what is random in the sample of a slot, for image field `field`. */
uint64_t stk_fill_value_key(const struct stk_pending_batch *pending, uint32_t slot, uint32_t field);
/* Whether the field's value comes by stk_fill_value: it lies inside its member. */
bool stk_fill_value_is_nested(const struct stk_loader_field *field);
/* JSON, MSGPACK: only checks that the whole member is one; its bytes are the value. */
int stk_fill_value(const struct stk_fill *fill);
/* A mask of other sides than its image: FORMAT. */
int stk_fill_value_check_mask(const struct stk_fill *fill);

/* What the batches so far took at most, for each field that goes aside; false: there was none. */
bool stk_ragged_values_estimate(const struct stk_pending_batch *pending, uint64_t *value_bytes);
/* Places for the pieces of all slots, and memory for so much. BUDGET, -ENOMEM. */
int stk_ragged_values_open(struct stk_pending_batch *pending, const uint64_t *value_bytes,
                           struct stoker_error *error);
void stk_ragged_values_close(struct stk_pending_batch *pending);
/* After the last slot, all of them good: pieces, and substitutes' values that did not fit their
 * places, become arrays of the batch. */
int stk_ragged_values_layout(struct stk_pending_batch *pending, struct stoker_error *error);

#endif
