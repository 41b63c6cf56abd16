/* format/manifest/manifest.h: stoker.manifest.json: which shards make a data set, and their
 * SHA-256.
 *
 *   text -parse-> struct stk_manifest -text-> the same text
 *
 * The text is JSON with sorted keys (docs/formats.md) and holds no time, path or version of a
 * program: the same data gives the same bytes. What is read is not trusted: names are plain file
 * names, numbers are in bounds, hashes have 64 digits.
 * Owner: the caller. Threads: one. Memory: about 300 bytes a shard (jansson).
 * Bound: STK_MANIFEST_BYTES_MAX of text. */
#ifndef FORMAT_MANIFEST_MANIFEST_H
#define FORMAT_MANIFEST_MANIFEST_H

#include "base/base.h"

#include <jansson.h>

#define STK_MANIFEST_NAME "stoker.manifest.json"
#define STK_MANIFEST_BYTES_MAX (1u << 30)

struct stk_manifest_shard {
    const char *name; /* lent until deinit */
    uint64_t bytes, samples;
    uint8_t sha256[32];
};

struct stk_manifest {
    json_t *root;                      /* owned */
    struct stk_manifest_shard *shards; /* owned */
    uint64_t shard_count, class_count;
    uint64_t samples;                /* of all shards */
    struct stk_manifest_shard index; /* name NULL: the manifest names no index; samples 0 */
};

/* FORMAT: not a manifest; UNSUPPORTED: a later version; CORRUPT: names the entry. */
int stk_manifest_parse(struct stk_manifest *manifest, struct stk_view text,
                       struct stoker_error *error);
void stk_manifest_deinit(struct stk_manifest *manifest); /* zeroed is fine */
/* The name of a class, lent until deinit. */
const char *stk_manifest_class(const struct stk_manifest *manifest, uint64_t class_index);

/* Building: begin, add each shard in order, then text. */
int stk_manifest_begin(struct stk_manifest *manifest, json_t *settings, struct stoker_error *error);
int stk_manifest_add(struct stk_manifest *manifest, const struct stk_manifest_shard *shard,
                     struct stoker_error *error);
int stk_manifest_add_class(struct stk_manifest *manifest, const char *name,
                           struct stoker_error *error);
int stk_manifest_set_index(struct stk_manifest *manifest, const struct stk_manifest_shard *index,
                           struct stoker_error *error);
/* So many samples of the source are not in the shards; 0: it does not speak of it. */
int stk_manifest_set_left_out(struct stk_manifest *manifest, uint64_t samples,
                              struct stoker_error *error);
uint64_t stk_manifest_left_out(const struct stk_manifest *manifest);
/* Gives *text_out. */
int stk_manifest_text(struct stk_manifest *manifest, char **text_out, size_t *bytes_out,
                      struct stoker_error *error);

#endif
