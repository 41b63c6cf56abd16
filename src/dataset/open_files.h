/* dataset/open_files.h: the open files of a data set's shards. A bounded number stays open.
 *
 *   closed --pin--> in use --unpin--> idle --a pin of another shard, over the limit--> closed
 *                     ^-----pin--------'   (clock algorithm), or too many files are open
 *
 * A shard that is a container has a slot, and stays open between uses. A file of a class folder has
 * none: it is opened by pin and closed by unpin.
 * Owner: the data set. Threads: any, after reserve. Memory: 48 bytes per slot.
 * Bound: open_files_max of the engine, plus files in use. */
#ifndef DATASET_OPEN_FILES_H
#define DATASET_OPEN_FILES_H

#include "engine/engine.h"
#include "index/index.h"
#include "io/descriptor_budget.h"

/* Size and time of a container when it was first opened, under stamp_lock but for due_ns. */
struct stk_file_stamp {
    _Atomic uint64_t due_ns; /* when it is compared again; 0: it never was */
    uint64_t bytes, mtime_ns;
    bool known;
};

struct stk_open_file {
    struct stk_file_stamp stamp;
    struct stk_file *file; /* NULL: closed */
    uint32_t pins;
    bool recent; /* used since the clock's hand passed */
};

/* A run of shards that are all containers, or all files of class folders. */
struct stk_shard_range {
    uint64_t end;          /* the first shard after the run */
    uint64_t files_before; /* containers: shards before the run without a slot; files: UINT64_MAX */
};

struct stk_open_files {
    struct stoker_engine *engine;       /* const after init */
    struct stk_descriptors_cache cache; /* idle files are closed if the process has too many */
    struct stk_shard_range
        *ranges; /* owned; const after reserve; NULL: all shards are of one kind */
    uint32_t range_count;
    pthread_mutex_t lock, stamp_lock;
    struct {
        struct stk_open_file *slots; /* owned; NULL: all shards are files of class folders */
        uint32_t slot_count, open_count, hand;
        uint32_t in_use; /* files with a pin */
    } locked;
};

void stk_open_files_init(struct stk_open_files *files, struct stoker_engine *engine);
/* Closes all files. None may be in use. */
void stk_open_files_deinit(struct stk_open_files *files);
/* Creates slots for `count` containers. Call it once. Returns 0 on success, -ENOMEM if there is
 * not enough memory. */
int stk_open_files_reserve(struct stk_open_files *files, uint64_t count,
                           struct stoker_error *error);
/* True if containers stay open between uses. */
static inline bool stk_open_files_has_slots(const struct stk_open_files *files)
{
    return files->locked.slots != NULL;
}

/* Returns the stamp of a container, which is valid until deinit; NULL: it is a file of a folder. */
struct stk_file_stamp *stk_open_files_stamp(struct stk_open_files *files, uint32_t shard);
/* Opens the shard if it is closed, and keeps it open until unpin. Returns 0 and sets *file_out, or
 * the error of opening it. */
int stk_open_files_pin(struct stk_open_files *files, const struct stk_index *index, uint32_t shard,
                       struct stk_file **file_out, struct stoker_error *error);
void stk_open_files_unpin(struct stk_open_files *files, uint32_t shard, struct stk_file *file);
/* Returns true if the number of files in use has reached the limit, and this shard is not among
 * them. Then callers should, if possible, read without keeping another file open for long. */
bool stk_open_files_at_limit(struct stk_open_files *files, uint32_t shard);
/* Closes the shard if it is not in use, so that the next pin opens it again (after ESTALE, e.g.).
 */
void stk_open_files_reopen_later(struct stk_open_files *files, uint32_t shard);

#endif
