/* base/text/file_kind.h: recognises files of other programs, which stoker does not read as shards,
 * by their first bytes or their names, and names the way to read them.
 *
 *   first bytes, else the name -> "a Parquet file", "stoker.pack_table makes tars of it"
 *
 * Owner: nobody; pure functions. Threads: any. Memory: none; the texts are static.
 * Bound: looks at STK_FILE_KIND_BYTES bytes. */
#ifndef BASE_TEXT_FILE_KIND_H
#define BASE_TEXT_FILE_KIND_H

#include "base/base.h"

#define STK_FILE_KIND_BYTES 512u

struct stk_file_kind {
    const char *name;   /* with its article: "a Parquet file" */
    const char *advice; /* how to read it */
};

/* Returns what the bytes look like: the begin of a file, as many of the first
 * STK_FILE_KIND_BYTES as exist. NULL: nothing known, as of a tar. */
const struct stk_file_kind *stk_file_kind_of_bytes(struct stk_view head);
/* Returns what a path or URL is named like. NULL: nothing known. */
const struct stk_file_kind *stk_file_kind_of_name(const char *path);

#endif
