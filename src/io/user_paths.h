/* io/user_paths.h: paths as the user means them: from the root on, and the cache folder.
 * Owner: values. Threads: any. Memory: the stack. Bound: what the caller has room for. */
#ifndef IO_USER_PATHS_H
#define IO_USER_PATHS_H

#include "base/base.h"

/* The path from the root on, its text else untouched. False: too long, or no working directory. */
bool stk_path_absolute(const char *path, char *text, size_t text_bytes);
/* The user's cache folder: $STOKER_CACHE, $XDG_CACHE_HOME/stoker or $HOME/.cache/stoker, with no
 * '/' at its end. False: none of them is set to an absolute path, or it is too long. */
bool stk_user_cache_dir(char *text, size_t text_bytes);

#endif
