/* checkpoint/layout/step_manifest.h: stoker.checkpoint.json, the manifest of a step.
 *
 *   {"root":"<64 digits>","counts":{"inf":0,"nan":0},
 *    "files":[{"bytes":9,"name":"shard-00000.safetensors","root":"..."}],
 *    "format":"stoker-checkpoint","ranks":1,"step":1000,"values":{"loss":1.5},"version":1}
 *
 * A step with many tensors has "index":{"bytes":9,"name":"stoker.index","root":"..."}, too: see
 * name_index.h. One line, sorted keys but for the first, no spaces, a newline at the end. The root
 * is the SHA-256 of all bytes behind `{"root":"...",`: the first STK_STEP_MANIFEST_HEAD_BYTES. The
 * same step gives the same bytes. Untrusted input: names must be plain file names, numbers in
 * bounds. Owner: the caller. Threads: any after parse. Memory: 200 bytes a file. Bound:
 * STK_STEP_MANIFEST_BYTES_MAX of text, STK_STEP_MANIFEST_FILES_MAX. */
#ifndef CHECKPOINT_LAYOUT_STEP_MANIFEST_H
#define CHECKPOINT_LAYOUT_STEP_MANIFEST_H

#include "base/base.h"

#define STK_STEP_MANIFEST_NAME "stoker.checkpoint.json"
#define STK_STEP_MANIFEST_HEAD_BYTES 75u
#define STK_STEP_MANIFEST_BYTES_MAX (256u << 20)
#define STK_STEP_MANIFEST_FILES_MAX 1000000u
#define STK_STEP_MANIFEST_VALUES_BYTES_MAX (1u << 20)

struct stk_step_manifest {
    uint64_t step;
    uint32_t ranks;
    bool counted;      /* the manifest says how many values are NaN and Inf, in all files */
    uint64_t nan, inf; /* of a counted one */
    char *values;      /* owned: the JSON object, compact, sorted */
    struct stoker_checkpoint_part *files; /* owned: by rank, and in the order of the text */
    uint64_t file_count;
    struct stoker_checkpoint_part index; /* of names; name "": there is none */
    uint64_t tensors; /* of a step that is written; 0: unknown. Not in the text */
};

/* Returns 0, STOKER_ERROR_FORMAT if the text is no manifest, STOKER_ERROR_UNSUPPORTED if it has a
 * later version, or STOKER_ERROR_CORRUPT if it does not match its root or has a wrong entry. */
int stk_step_manifest_parse(struct stk_step_manifest *manifest, struct stk_view text,
                            struct stoker_error *error);
void stk_step_manifest_deinit(struct stk_step_manifest *manifest); /* zeroed is allowed */
/* Returns 0 and sets *text_out (free with stk_free) to the manifest of *manifest; values NULL: {}.
 * STOKER_ERROR_ARGUMENT if values is no JSON object; STOKER_ERROR_LIMIT if there are too many
 * files, so that no reader would take the text. */
int stk_step_manifest_text(const struct stk_step_manifest *manifest, char **text_out,
                           size_t *bytes_out, struct stoker_error *error);
/* Sets *number_out to a number of the values. Returns false if there is none of this name. */
bool stk_step_manifest_number(const char *values, const char *name, double *number_out);
/* Whether a text is a plain file name: no '/', no "." or "..", printable. */
bool stk_step_manifest_is_file_name(const char *name);

#endif
