/* base/text/file_kind.h: recognises files of other programs, which stoker does not read as shards,
 * by their first bytes or their names, and names the way to read them.
 *
 *   first bytes, or the name -> "a Parquet file", "stoker.pack_table(path, ...) writes tars of it"
 *
 * Owner: none; pure functions. Threads: any. Memory: none; the texts are static.
 * Bound: looks at STK_FILE_KIND_BYTES bytes. */
#ifndef BASE_TEXT_FILE_KIND_H
#define BASE_TEXT_FILE_KIND_H

#include "base/base.h"

#define STK_FILE_KIND_BYTES 512u

struct stk_file_kind {
    const char *name;   /* with its article: "a Parquet file" */
    const char *advice; /* how to read it */
};

/* Returns the format whose first bytes `head` has: the first STK_FILE_KIND_BYTES of a file, or all
 * if it has fewer. NULL: no format of the table, as for a tar. */
const struct stk_file_kind *stk_file_kind_of_bytes(struct stk_view head);
/* What to do if a file of this format was passed as a checkpoint. NULL: it has nothing of one. */
const char *stk_file_kind_checkpoint_advice(const struct stk_file_kind *kind);
/* Returns the format whose ending a path or URL has. NULL: no format of the table. */
const struct stk_file_kind *stk_file_kind_of_name(const char *path);

#endif
