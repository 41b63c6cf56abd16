/* tools/files/file_handle.h: a file or object that was opened by stoker_file_open().
 *
 * Owner: the user. Threads: any; const after open. Memory: one block. Bound: none of its own. */
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

/* Fills *error (may be NULL) for a read that failed. If the object was replaced or removed, drops
 * its cached metadata. Returns status. */
int stk_file_fail(struct stoker_file *file, int64_t status, uint64_t offset,
                  struct stoker_error *error);

#endif
