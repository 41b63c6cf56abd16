/* checkpoint/foreign/part_reader.h: bytes of a part of a file, read in windows: the head and the
 * tail of an archive are read once each. Owner: the caller. Threads: one. Memory: two windows.
 * Bound: STK_FOREIGN_WINDOW_BYTES each. */
#ifndef CHECKPOINT_FOREIGN_PART_READER_H
#define CHECKPOINT_FOREIGN_PART_READER_H

#include "io/io.h"

#define STK_FOREIGN_WINDOW_BYTES (16u << 10)

struct stk_foreign_source {
    struct stk_io *io; /* borrowed, as file and memory; NULL: memory */
    struct stk_file *file;
    const uint8_t *memory;
    const char *path;     /* borrowed; for errors */
    uint64_t base, bytes; /* of the part in the file */
    struct {
        uint8_t *data; /* owned */
        uint64_t offset;
        size_t bytes;
    } windows[2];
    uint32_t oldest;
};

/* Reads exactly these bytes, which are inside the part: STOKER_ERROR_TRUNCATED if not. */
int stk_foreign_read(struct stk_foreign_source *source, uint64_t offset, void *data, size_t bytes,
                     struct stoker_error *error);
void stk_foreign_source_deinit(struct stk_foreign_source *source); /* the file stays open */

#endif
