/* tools/files/file_handle.h: an open file or object of those who read by names.
 *
 * Owner: the user. Threads: any; const after open. Memory: a block. Bound: none of its own. */
#ifndef TOOLS_FILES_FILE_HANDLE_H
#define TOOLS_FILES_FILE_HANDLE_H

#include "engine/engine.h"

struct stoker_file {
    struct stoker_engine *engine; /* held */
    struct stk_file *file;
    uint64_t bytes; /* when it was opened */
    bool remote;
    char path[];
};

/* Fills *error (may be NULL) of a read that failed, and, where the object is another one by now,
 * forgets what was known of it. Returns status. */
int stk_file_fail(struct stoker_file *file, int64_t status, uint64_t offset,
                  struct stoker_error *error);

#endif
