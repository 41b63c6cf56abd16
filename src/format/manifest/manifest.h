/* format/manifest/manifest.h: stoker.manifest.json: the shards of a data set, and their SHA-256.
 *
 *   text -parse-> struct stk_manifest -text-> the same text
 *
 * The text is JSON with sorted keys (docs/formats.md), without time, path or program version: the
 * same data gives the same bytes. A manifest is untrusted input: names must be plain file names,
 * numbers must be in bounds, hashes must have 64 digits.
 * Owner: the caller. Threads: one.
 * Memory: about 300 bytes per shard (jansson).
 * Bound: STK_MANIFEST_BYTES_MAX of text. */
#ifndef FORMAT_MANIFEST_MANIFEST_H
#define FORMAT_MANIFEST_MANIFEST_H

#include "base/base.h"

#include <jansson.h>

#define STK_MANIFEST_NAME "stoker.manifest.json"
#define STK_MANIFEST_BYTES_MAX (1u << 30)

struct stk_manifest_shard {
    const char *name; /* valid until deinit */
    uint64_t bytes, samples;
    uint8_t sha256[32];
};

struct stk_manifest {
    json_t *root;                      /* owned */
    struct stk_manifest_shard *shards; /* owned */
    uint64_t shard_count, class_count;
    uint64_t samples;                /* of all shards */
    struct stk_manifest_shard index; /* name NULL: the manifest has no index; samples 0 */
};

/* Returns 0, STOKER_ERROR_FORMAT if the text is no manifest, STOKER_ERROR_UNSUPPORTED if it has a
 * later version, or STOKER_ERROR_CORRUPT, with the wrong entry. */
int stk_manifest_parse(struct stk_manifest *manifest, struct stk_view text,
                       struct stoker_error *error);
void stk_manifest_deinit(struct stk_manifest *manifest); /* zeroed is allowed */
/* The name of a class, valid until deinit. */
const char *stk_manifest_class(const struct stk_manifest *manifest, uint64_t class_index);

/* Building: begin, add the shards in order, then text. */
int stk_manifest_begin(struct stk_manifest *manifest, json_t *settings, struct stoker_error *error);
int stk_manifest_add(struct stk_manifest *manifest, const struct stk_manifest_shard *shard,
                     struct stoker_error *error);
int stk_manifest_add_class(struct stk_manifest *manifest, const char *name,
                           struct stoker_error *error);
int stk_manifest_set_index(struct stk_manifest *manifest, const struct stk_manifest_shard *index,
                           struct stoker_error *error);
/* The number of samples of the source that are not in the shards; 0: the field is left out. */
int stk_manifest_set_left_out(struct stk_manifest *manifest, uint64_t samples,
                              struct stoker_error *error);
uint64_t stk_manifest_left_out(const struct stk_manifest *manifest);
/* Returns 0 and sets *text_out, owned by the caller. */
int stk_manifest_text(struct stk_manifest *manifest, char **text_out, size_t *bytes_out,
                      struct stoker_error *error);

#endif
