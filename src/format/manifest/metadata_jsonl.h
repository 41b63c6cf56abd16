/* format/manifest/metadata_jsonl.h: metadata.jsonl, as Hugging Face's imagefolder has it: what is
 * known of pictures.
 *
 *   {"file_name": "cat/1.jpg", "caption": "..."}     a line for each; names are below its folder
 *
 *   text -parse-> lines by name -find-> the line of a picture
 *
 * A line is kept as it is written: numbers of any size and the order of its fields come through.
 * Not trusted: each line is an object of JSON, in UTF-8, with a name of its own.
 * Owner: the caller. Threads: any after parse. Memory: the text, and 32 bytes and the name a line.
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

/* FORMAT: names the line. The text is not kept: lines are places in it. */
int stk_metadata_jsonl_parse(struct stk_metadata_jsonl *metadata, struct stk_view text,
                             struct stoker_error *error);
void stk_metadata_jsonl_deinit(struct stk_metadata_jsonl *metadata); /* zeroed is fine */
/* NULL: there is no line of that name. */
const struct stk_metadata_jsonl_line *
stk_metadata_jsonl_find(const struct stk_metadata_jsonl *metadata, struct stk_view name);

#endif
