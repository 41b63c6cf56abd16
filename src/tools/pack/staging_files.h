/* tools/pack/staging_files.h: paths and small files of the folder that a data set is written in.
 *
 * Owner: none; paths and data belong to the caller. Threads: any. Memory: the file's bytes.
 * Bound: bytes_max of a read. */
#ifndef TOOLS_PACK_STAGING_FILES_H
#define TOOLS_PACK_STAGING_FILES_H

#include "io/write.h"

#define STK_STAGING_DONE_SUFFIX ".done"
#define STK_STAGING_TEMP_SUFFIX ".tmp"

/* directory/name + suffix, owned by the caller. Returns NULL if there is no memory. */
char *stk_staging_path(const char *directory, const char *name, const char *suffix);
/* The folder of a path, owned by the caller. Returns NULL if there is no memory. */
char *stk_staging_parent(const char *path);
/* Reads a complete small file into *data_out, owned by the caller, and adds a NUL.
 * Returns 0 on success, STOKER_ERROR_LIMIT if it has more than bytes_max bytes, -ENOMEM, or the
 * error of the file system. */
int stk_staging_read_file(struct stk_io *io, const char *path, uint64_t bytes_max,
                          uint8_t **data_out, size_t *bytes_out, struct stoker_error *error);
/* Likewise, for a file that may be missing. Returns 1 if it was read; 0, with *error unchanged, if
 * it is missing. */
int stk_staging_find_file(struct stk_io *io, const char *path, uint64_t bytes_max,
                          uint8_t **data_out, size_t *bytes_out, struct stoker_error *error);
/* Writes path.tmp, syncs and renames it. The directory is not synced. */
int stk_staging_write_file(struct stk_io *io, const char *path, const void *data, size_t bytes,
                           struct stoker_error *error);

#endif
