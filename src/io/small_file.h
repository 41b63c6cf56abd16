/* io/small_file.h: small files of this machine: read into the caller's memory, or written whole.
 * Owner: values. Threads: any. Memory: the stack. Bound: what the caller has room for. */
#ifndef IO_SMALL_FILE_H
#define IO_SMALL_FILE_H

#include "base/base.h"

/* Reads a small text file, cut to fit and NUL-ended; false if it cannot be read. */
bool stk_small_file_read_text(const char *path, char *text, size_t text_bytes);
/* The same of any bytes: how many, or -errno. */
int64_t stk_small_file_read(const char *path, uint8_t *data, size_t bytes_max);

/* Writes a small file for its owner alone (0600), whole or not at all, through a file beside it; a
 * link is replaced. 0 or -errno. */
int stk_small_file_write(const char *path, const void *data, size_t bytes);

#endif
