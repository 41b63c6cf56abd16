/* base/text/system_file.h: names of files that operating systems and notebooks leave beside data.
 *
 *   "a/._1.jpg", ".DS_Store", "Thumbs.db", "__MACOSX/x", ".ipynb_checkpoints/1.jpg" -> true
 *
 * Data sets leave such files out and count them. Owner: none; pure functions. Threads: any.
 * Memory: none. Bound: the name is read once. */
#ifndef BASE_TEXT_SYSTEM_FILE_H
#define BASE_TEXT_SYSTEM_FILE_H

#include "base/base.h"

/* Returns true if the name of a file or folder, without its path, is such a name. */
bool stk_system_file_is(const char *name, size_t bytes);
/* Returns true if any part of a path is such a name. */
bool stk_system_file_in_path(struct stk_view path);

#endif
