/* io/atomic_file.h: writes a file so that its name always has a complete file: the old one, the new
 * one or none, also after a kill or a power cut.
 *
 *   open: create PATH + suffix -> write ... -> commit: sync, close, rename to PATH, sync directory
 *                                           |-> detach: sync, close; PATH + suffix stays
 *                                           `-> close: remove PATH + suffix
 *
 * One writer at a time may use a suffix of a path; callers that can meet another one take a lock.
 * Owner: the caller; close accepts a zeroed struct. Threads: one.
 * Memory: one block for the two names. Bound: none; a full disk is -ENOSPC with the path. */
#ifndef IO_ATOMIC_FILE_H
#define IO_ATOMIC_FILE_H

#include "io/write.h"

struct stk_atomic_file {
    struct stk_io *io;         /* borrowed */
    struct stk_output *output; /* NULL: not open, committed or detached */
    char *path, *temporary;    /* owned, one block */
};

enum stk_atomic_file_sync {
    STK_ATOMIC_FILE_SYNC_DIRECTORY = 0, /* the new name survives a power cut */
    STK_ATOMIC_FILE_NO_DIRECTORY_SYNC,  /* the caller syncs the directory later, or need not */
};

/* Creates PATH + suffix; a file that an earlier run left there is replaced. Returns 0 on success,
 * -ENOMEM, or the error of stk_io_create; *file is zeroed then. */
int stk_atomic_file_open(struct stk_atomic_file *file, struct stk_io *io, const char *path,
                         const char *suffix, struct stoker_error *error);
/* Before the first write: PATH exists, and the new file gets its owner, permissions and extended
 * attributes, as stk_io_copy_attributes. For files of the user, not of the library. */
int stk_atomic_file_keep_attributes(struct stk_atomic_file *file, struct stoker_error *error);
/* As stk_io_write. */
int stk_atomic_file_write(struct stk_atomic_file *file, const void *data, size_t bytes,
                          struct stoker_error *error);
/* Gives the complete file its name. On failure PATH is as it was and the temporary file is removed,
 * unless only the sync of the directory failed. Close is due either way. */
int stk_atomic_file_commit(struct stk_atomic_file *file, enum stk_atomic_file_sync sync,
                           struct stoker_error *error);
/* Instead of commit: makes the complete file durable under its temporary name, PATH + suffix, which
 * the caller renames or removes later. On failure the temporary file is removed. Close is due
 * either way. */
int stk_atomic_file_detach(struct stk_atomic_file *file, struct stoker_error *error);
/* Removes a temporary file that was neither committed nor detached. */
void stk_atomic_file_close(struct stk_atomic_file *file);

/* All of the above for bytes in memory. */
int stk_atomic_file_store(struct stk_io *io, const char *path, const char *suffix,
                          struct stk_view bytes, enum stk_atomic_file_sync sync,
                          struct stoker_error *error);

#endif
