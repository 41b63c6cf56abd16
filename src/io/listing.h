/* io/listing.h: builds a struct stk_listing from names in any order.
 *
 *   zeroed --add--> growing --build--> a listing, sorted, given to the caller
 *
 * Owner: the call. Threads: one. Memory: grows by doubling; deinit frees it.
 * Bound: STK_LISTING_NAMES_BYTES_MAX. */
#ifndef IO_LISTING_H
#define IO_LISTING_H

#include "io/io.h"

#define STK_LISTING_NAMES_BYTES_MAX (1ull << 34)

struct stk_listing_builder {
    struct stk_entry *entries; /* `name` is NULL until build */
    char *names;
    uint64_t count, capacity;
    uint64_t names_bytes, names_capacity;
};

/* Copies *entry with its name. Returns 0 or -ENOMEM. */
int stk_listing_add(struct stk_listing_builder *builder, const struct stk_entry *entry);
int stk_listing_build(struct stk_listing_builder *builder, struct stk_listing *listing_out);
void stk_listing_builder_deinit(struct stk_listing_builder *builder);

#endif
