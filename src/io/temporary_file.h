/* io/temporary_file.h: a file without a name, in the user's cache folder or the folder for
 * temporary files: room for more bytes than memory should hold. It ends with its process.
 *
 *   open --resize, write to data--> finish --read--> close
 *
 * Its space is reserved, so that a full disk is an error of open or resize, and no signal later. A
 * file system that cannot reserve space only reports its free space.
 * Owner: the caller; close accepts a zeroed struct. Threads: one until finish; then reads by any.
 * Memory: pages of the file. Bound: the free space of the file system, less a tenth. */
#ifndef IO_TEMPORARY_FILE_H
#define IO_TEMPORARY_FILE_H

#include "base/base.h"

struct stk_temporary_file {
    bool is_open;
    int fd;
    uint8_t *data; /* a map of all bytes, until finish */
    uint64_t bytes;
};

/* Creates a file of `bytes`, more than 0. Returns 0 on success, -ENOSPC, or another -errno. */
int stk_temporary_file_open(struct stk_temporary_file *file, uint64_t bytes,
                            struct stoker_error *error);
/* Changes the size, and data. The first bytes stay. Returns as open. */
int stk_temporary_file_resize(struct stk_temporary_file *file, uint64_t bytes,
                              struct stoker_error *error);
/* Ends the writing: sets the final size, at most the current one, and unmaps the file. */
void stk_temporary_file_finish(struct stk_temporary_file *file, uint64_t bytes);
/* After finish. Returns the number of bytes, fewer only at the end, or -errno. */
int64_t stk_temporary_file_read(const struct stk_temporary_file *file, uint64_t offset,
                                void *buffer, uint64_t bytes);
void stk_temporary_file_close(struct stk_temporary_file *file);

#endif
