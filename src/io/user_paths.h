/* io/user_paths.h: absolute paths, and the user's cache folder.
 * Owner: values. Threads: any. Memory: the stack. Bound: the caller's buffer. */
#ifndef IO_USER_PATHS_H
#define IO_USER_PATHS_H

#include "base/base.h"

/* Makes a path absolute and leaves its text else unchanged. Returns false if it is too long, or if
 * there is no working directory. */
bool stk_path_absolute(const char *path, char *text, size_t text_bytes);
/* The user's cache folder: $STOKER_CACHE, $XDG_CACHE_HOME/stoker or $HOME/.cache/stoker, without a
 * final '/'. Returns false if none of them is set to an absolute path, or if it is too long. */
bool stk_user_cache_dir(char *text, size_t text_bytes);
/* As stk_user_cache_dir, and creates the folder and those above it that do not exist. The caller
 * notices by its next call if that was not possible. */
bool stk_user_cache_make(char *text, size_t text_bytes);

#endif
