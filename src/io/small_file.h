/* io/small_file.h: reads a small file of this machine into the caller's memory, or writes one.
 * Owner: values. Threads: any. Memory: the stack. Bound: the caller's buffer. */
#ifndef IO_SMALL_FILE_H
#define IO_SMALL_FILE_H

#include "base/base.h"

/* Reads a text file, truncated to text_bytes including a NUL. Returns false if it cannot be read.
 */
bool stk_small_file_read_text(const char *path, char *text, size_t text_bytes);
/* Reads up to bytes_max bytes. Returns the count or -errno. */
int64_t stk_small_file_read(const char *path, uint8_t *data, size_t bytes_max);

/* Writes a file with mode 0600 atomically: to a temporary file, then a rename, which replaces a
 * link. Returns 0 or -errno. */
int stk_small_file_write(const char *path, const void *data, size_t bytes);

#endif
