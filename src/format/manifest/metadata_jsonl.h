/* format/manifest/metadata_jsonl.h: metadata.jsonl of Hugging Face's imagefolder: fields of
 * pictures.
 *
 *   {"file_name": "cat/1.jpg", "caption": "..."}     one line per picture; the name is relative
 *
 *   text -parse-> lines by name -find-> the line of a picture
 *
 * A line is kept as it is written, so that numbers of any size and the order of its fields stay.
 * Untrusted input: each line must be a JSON object, in UTF-8, with a unique name.
 * Owner: the caller. Threads: any after parse.
 * Memory: the text, and per line 32 bytes and the name.
 * Bound: STK_METADATA_JSONL_BYTES_MAX. */
#ifndef FORMAT_MANIFEST_METADATA_JSONL_H
#define FORMAT_MANIFEST_METADATA_JSONL_H

#include "base/base.h"

#define STK_METADATA_JSONL_NAME "metadata.jsonl"
#define STK_METADATA_JSONL_BYTES_MAX (1u << 30)

struct stk_metadata_jsonl_line {
    size_t name_at, name_bytes; /* in names */
    size_t at, bytes;           /* in the text that was parsed */
};

struct stk_metadata_jsonl {
    struct stk_metadata_jsonl_line *lines; /* owned; sorted by name */
    uint64_t count, capacity;
    char *names; /* owned */
    size_t names_bytes, names_capacity;
};

/* Returns 0, -ENOMEM, or STOKER_ERROR_FORMAT with the number of the wrong line. The text is not
 * copied: lines are offsets in it. */
int stk_metadata_jsonl_parse(struct stk_metadata_jsonl *metadata, struct stk_view text,
                             struct stoker_error *error);
void stk_metadata_jsonl_deinit(struct stk_metadata_jsonl *metadata); /* zeroed is allowed */
/* Returns the line with that name, or NULL. */
const struct stk_metadata_jsonl_line *
stk_metadata_jsonl_find(const struct stk_metadata_jsonl *metadata, struct stk_view name);

#endif
