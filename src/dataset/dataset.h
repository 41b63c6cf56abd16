/* dataset/dataset.h: an opened data set: its index, and the files of its shards.
 *
 *   find an index file -> match it with the files -> wait for another process -> list, scan what is
 *   missing -> index, constant from now on -> loaders and tools pin files, and read members
 *
 * Owner: the user and the loaders on it (one reference each). Threads: any after open.
 * Memory: the index, in the engine's budget unless it is mapped; slots of open files.
 * Bound: open_files_max of the engine, plus files in use. */
#ifndef DATASET_DATASET_H
#define DATASET_DATASET_H

#include "dataset/open_files.h"
#include "dataset/shard_stream.h"
#include "decode/jpeg_index/jpeg_index.h"
#include "engine/engine.h"
#include "format/container.h"
#include "format/tar_recover/tar_recover.h"
#include "index/foreign/foreign_index.h"
#include "index/foreign/wids_shards.h"
#include "index/index.h"
#include "index/path_classes.h"
#include "index/seek/segment_cache.h"
#include "storage/source/source.h"

struct stk_index_location;

/* A scan: what it adds to the index, and its progress. */
struct stk_dataset_scan_state {
    bool checksums, labels;
    uint64_t seek_point_bytes; /* 0: no seek points are made (zstd: always) */
    bool keep_cached;          /* the bytes will be read again soon: keep them in memory */
    _Atomic bool stop;         /* ends the scan with STOKER_ERROR_CLOSED */
    _Atomic uint64_t shards_done, bytes_done, bytes_read;
    _Atomic uint64_t system_files, links, special, unnamed; /* members that were left out */
};

struct stoker_dataset {
    struct stoker_engine *engine;          /* const after open, as all fields up to the lock */
    struct stoker_dataset_options options; /* strings are owned */
    struct stk_source_files objects;       /* the listing; paths are also in the index */
    uint64_t
        *url_ends; /* owned: number of files of each url and those before it; NULL: not listed */
    const struct stk_container_format *const *formats; /* the table, which ends with NULL */
    struct stk_index *index;
    _Atomic(_Atomic(char *) *) paths; /* owned, each too: paths made from a mapped index; or NULL */
    char *index_path;                 /* owned: the index file that is used; or NULL */
    char *index_note;                 /* owned; or NULL */
    _Atomic uint64_t index_bytes;     /* reserved for the index in memory */
    uint64_t shards_indexed;
    uint64_t *mtimes; /* owned: of containers, when they were listed; NULL, or 0 of one: unknown */
    bool
        index_is_unstamped; /* the index file was copied, so times of shards say nothing about it */
    struct stk_dataset_scan_state scan;
    struct stk_wids_shards shards;           /* shards of a wids JSON file, or paths */
    struct stk_foreign_index *foreign_index; /* owned; NULL: foreign indexes are not used */
    struct stk_segment_cache *segment_cache; /* owned */
    struct stk_jpeg_index *jpeg_index;       /* owned; NULL: none that is up to date */
    char *jpeg_index_note;                   /* owned: why an existing one is not used; or NULL */
    struct stk_path_classes *path_classes;   /* owned; made once, below the lock; NULL: not yet */
    struct stk_memory_holder memory_holder;  /* of segment_cache */
    struct stk_tar_losses bad_samples;       /* guarded by the lock until the scan has ended */
    struct stk_open_files files;             /* has its own lock */
    _Atomic uint32_t references;
    pthread_mutex_t lock;
};

/* Sets shuffle and window of a loader that names none: a full permutation where reads of single
 * samples are free, else blocks with the largest window that the budget of memory allows. Returns
 * whether such reads are free: in any order they cost no more than in sequence, because the samples
 * are files, or in shards on local disks that need no decompression. Looks at a few shards. */
bool stk_dataset_default_order(const struct stoker_dataset *dataset, uint32_t *shuffle_out,
                               uint32_t *window_blocks_out);

/* Makes dataset->path_classes if it does not exist yet. Returns as stk_path_classes_open. */
int stk_dataset_read_path_classes(struct stoker_dataset *dataset, struct stoker_error *error);
/* The latest time of change of the shards, in whole seconds for objects; 0: unknown. */
uint64_t stk_dataset_newest_ns(const struct stoker_dataset *dataset);
/* A hash of the times of the shards when they were listed, and of the ETags of objects; 0: unknown.
 */
uint64_t stk_dataset_stamp(const struct stoker_dataset *dataset);
bool stk_dataset_is_in_store(const struct stoker_dataset *dataset); /* its first shard has a URL */

/* True if the data set was joined from others. Then it may have both containers and class folders.
 */
static inline bool stk_dataset_is_joined(const struct stoker_dataset *dataset)
{
    return dataset->files.ranges != NULL;
}

/* True if some shards are containers. */
static inline bool stk_dataset_has_containers(const struct stoker_dataset *dataset)
{
    bool has = !dataset->files.ranges && dataset->objects.kind == STK_SOURCE_TARS;

    for (uint32_t i = 0; i < dataset->files.range_count; i++) {
        has = has || dataset->files.ranges[i].files_before != UINT64_MAX;
    }
    return has;
}

void stk_dataset_retain(struct stoker_dataset *dataset);
void stk_dataset_release(struct stoker_dataset *dataset);
/* Maps the JPEG index next to the index that is used, if there is one of this data set; else sets
 * jpeg_index_note. */
void stk_dataset_open_jpeg_index(struct stoker_dataset *dataset);
struct stk_jpeg_index_entries stk_dataset_jpeg_entries(const struct stoker_dataset *dataset,
                                                       uint64_t sample);
/* Checks whether the mapped index and JPEG index are what they were, in all that was used of them.
 * Returns 0 on success, STOKER_ERROR_CHANGED, -EIO. */
int stk_dataset_check_maps(const struct stoker_dataset *dataset, struct stoker_error *error);
/* Adds the place to an error: the shard's path, the offset and the key. */
void stk_dataset_error_add_location(const struct stoker_dataset *dataset,
                                    struct stoker_error *error, uint32_t shard, uint64_t offset,
                                    const char *key);
/* Makes an empty data set: options are checked and copied, nothing is listed. Returns 0, -ENOMEM,
 * or STOKER_ERROR_ARGUMENT if an option is invalid. */
int stk_dataset_new(struct stoker_dataset **dataset_out, struct stoker_engine *engine,
                    const struct stoker_dataset_options *options, struct stoker_error *error);
/* Finds or makes the index of an empty data set: the rest of stoker_dataset_open. On error the
 * caller releases the data set. dataset->scan.stop, set by another thread, ends a scan. */
int stk_dataset_open_new(struct stoker_dataset *dataset, struct stoker_error *error);
/* Makes the index file that was located the index of the data set. */
void stk_dataset_use_index(struct stoker_dataset *dataset, struct stk_index_location *location);
/* Returns the error of index = require: the note of the location. */
int stk_dataset_fail_index_required(const struct stk_index_location *location,
                                    struct stoker_error *error);

/* For streams of this data set's shards, while it is open. */
static inline struct stk_shard_stream_options
stk_dataset_stream_options(struct stoker_dataset *dataset)
{
    return (struct stk_shard_stream_options){
        .io = dataset->engine->io,
        .limits = {dataset->options.decompressed_bytes_max,
                   dataset->options.decompression_ratio_max, stk_engine_allocator(dataset->engine)},
        .bytes_read = &dataset->scan.bytes_read,
        .files = &dataset->files,
        .index = dataset->index,
        .segment_cache = dataset->segment_cache,
    };
}

/* As stk_shard_stream_open_shard; the shard is compared as by stk_dataset_pin. */
int stk_dataset_open_stream(struct stk_shard_stream **stream_out, struct stoker_dataset *dataset,
                            uint32_t shard, struct stoker_error *error);
/* Compares the file of a stream with itself, also if it was compared less than a second ago. */
int stk_dataset_check_stream(struct stoker_dataset *dataset, uint32_t shard,
                             struct stk_shard_stream *stream, struct stoker_error *error);
/* True if the headers of a compressed shard can be compared with an index that was read. */
bool stk_dataset_has_headers(const struct stoker_dataset *dataset, uint32_t shard);
/* For such a shard: compares the header of a sample, if the stream has not passed it. Returns
 * STOKER_ERROR_CHANGED if it differs. */
int stk_dataset_check_sample(struct stoker_dataset *dataset, uint32_t shard, uint64_t sample,
                             struct stk_shard_stream *stream, struct stoker_error *error);

/* Open files: as the functions of the same name in open_files.h. */
/* As stk_open_files_pin. A container of this machine is also compared with the index
 * when it is first opened (size and headers of some members), and with itself, once a second by
 * now_ns, the time of stk_engine_now() that the caller read for its own purpose.
 * Returns STOKER_ERROR_CHANGED if it differs. */
int stk_dataset_pin(struct stoker_dataset *dataset, uint32_t shard, uint64_t now_ns,
                    struct stk_file **file_out, struct stoker_error *error);
/* The same of a pinned file. now_ns: stk_engine_now(); 0 compares even if the last comparison was
 * less than a second ago. */
int stk_dataset_check_shard(struct stoker_dataset *dataset, uint32_t shard, struct stk_file *file,
                            uint64_t now_ns, struct stoker_error *error);

static inline void stk_dataset_unpin(struct stoker_dataset *dataset, uint32_t shard,
                                     struct stk_file *file)
{
    stk_open_files_unpin(&dataset->files, shard, file);
}

static inline bool stk_dataset_at_open_file_limit(struct stoker_dataset *dataset, uint32_t shard)
{
    return stk_open_files_at_limit(&dataset->files, shard);
}

static inline void stk_dataset_reopen_later(struct stoker_dataset *dataset, uint32_t shard)
{
    stk_open_files_reopen_later(&dataset->files, shard);
}

/* The path of a file of the listing. */
static inline const char *stk_dataset_file_path(const struct stoker_dataset *dataset,
                                                uint64_t number)
{
    return stk_source_files_path(&dataset->objects, number);
}

#endif
