/* dataset/dataset.h: a data set: its index, and its files, of which a bounded number is open.
 *
 *   list (source) -> scan headers in parallel (format) -> index, const -> pin/unpin files
 *
 * Owner: the user and the loaders on it (one reference each). Threads: any after open.
 * Memory: the index; a table of open files (tars). Bound: open_files_max, plus those in use. */
#ifndef DATASET_DATASET_H
#define DATASET_DATASET_H

#include "engine/engine.h"
#include "index/index.h"
#include "source/source.h"

struct stk_open_file {
    struct stk_file *file; /* NULL: closed */
    uint32_t         pins;
    bool             recent; /* used since the clock's hand passed */
};

struct stoker_dataset {
    struct stoker_engine         *engine; /* const after open, as all down to the lock */
    struct stoker_dataset_options options;
    struct stk_objects            objects; /* class names; paths are in the index */
    struct stk_index             *index;
    _Atomic(char *)              *paths; /* owned, each too: asked for of a mapped index; or NULL */
    _Atomic uint32_t              references;
    pthread_mutex_t               lock;
    struct {
        struct stk_open_file *files; /* one a shard; NULL for a folder */
        uint32_t              open_count, hand;
        uint32_t              in_use; /* files with a pin */
    } locked;
};

void stk_dataset_hold(struct stoker_dataset *dataset);
void stk_dataset_release(struct stoker_dataset *dataset);
/* Lends the shard's open file until unpin. */
int  stk_dataset_pin(struct stoker_dataset *dataset, uint32_t shard, struct stk_file **file_out,
                     struct stoker_error *error);
/* As many files are in use as may be kept open, and this one is not: who has the choice reads
 * without keeping another one open for long. */
bool stk_dataset_crowded(struct stoker_dataset *dataset, uint32_t shard);
/* The next pin opens the shard anew, unless it is in use now (after ESTALE and the like). */
void stk_dataset_forget(struct stoker_dataset *dataset, uint32_t shard);
/* Says in an error where it happened, with the shard's path. */
void stk_dataset_place(const struct stoker_dataset *dataset, struct stoker_error *error,
                       uint32_t shard, uint64_t offset, const char *key);
void stk_dataset_unpin(struct stoker_dataset *dataset, uint32_t shard, struct stk_file *file);

/* Reads all headers into the index. */
int  stk_scan(struct stoker_dataset *dataset, struct stoker_error *error);

/* The bytes of a packed (or plain) shard, front to back; going back starts over.
 * Threads: one. Memory: 320 KiB and the library's window. */
struct stk_stream;
int  stk_stream_open(struct stk_stream **stream_out, struct stoker_dataset *dataset,
                     const char *path, struct stoker_error *error);
int  stk_stream_open_shard(struct stk_stream **stream_out, struct stoker_dataset *dataset,
                           uint32_t shard, struct stoker_error *error);
void stk_stream_close(struct stk_stream *stream);
/* *got_out: fewer than bytes only at the end. */
int  stk_stream_read(struct stk_stream *stream, uint64_t offset, uint8_t *buffer, size_t bytes,
                     size_t *got_out, struct stoker_error *error);

#endif
