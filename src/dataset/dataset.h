/* dataset/dataset.h: a data set: its index, and its files, of which a bounded number is open.
 *
 *   list (source) -> fresh index (sidecar) | scan headers in parallel (format) -> index, const
 *                                                                  index -> pin/unpin files
 *
 * Owner: the user and the loaders on it (one reference each). Threads: any after open.
 * Memory: the index, of the engine's budget unless it is mapped; a table of open files (tars).
 * Bound: open_files_max, plus those in use. */
#ifndef DATASET_DATASET_H
#define DATASET_DATASET_H

#include "decode/jpeg_index/jpeg_index.h"
#include "engine/engine.h"
#include "format/detect/container_detect.h"
#include "format/tar_recover/tar_recover.h"
#include "index/foreign/foreign_index.h"
#include "index/foreign/wids_shards.h"
#include "index/index.h"
#include "index/seek/segment_cache.h"
#include "storage/source/source.h"

struct stk_index_location;

struct stk_dataset_file {
    struct stk_file *file; /* NULL: closed */
    uint32_t pins;
    bool recent; /* used since the clock's hand passed */
};

/* Of a scan: what it adds to the index, and how far it is. */
struct stk_dataset_scan_state {
    bool checksums, labels;
    uint64_t seek_point_bytes; /* 0: no access points are made */
    bool keep_cached;          /* what is read will be asked for again soon: it is kept in memory */
    _Atomic bool stop;         /* the scan ends with CLOSED */
    _Atomic uint64_t shards_done, bytes_done, bytes_read;
};

/* Shards that are all tars, or all files. */
struct stk_shard_range {
    uint64_t end;          /* the shard behind the last one */
    uint64_t files_before; /* tars: shard - files_less is the tar's number; files: UINT64_MAX */
};

struct stoker_dataset {
    struct stoker_engine *engine;          /* const after open, as all down to the lock */
    struct stoker_dataset_options options; /* what it points to is owned */
    struct stk_source_files objects;       /* class names; paths are in the index */
    uint64_t *url_ends; /* owned: objects of each url and those before it; NULL: not listed */
    const struct stk_container_format *const *formats; /* of its shards; ends with NULL */
    struct stk_index *index;
    _Atomic(_Atomic(char *) *) paths; /* owned, each too: asked for of a mapped index; or NULL */
    char *index_path;                 /* owned: of the index that was used; or NULL */
    char *index_note;                 /* owned; or NULL */
    _Atomic uint64_t index_bytes;     /* of the index in memory, reserved */
    uint64_t shards_indexed;
    uint64_t *mtimes; /* owned: of tars, when they were read; NULL: of none */
    struct stk_dataset_scan_state scan;
    struct stk_wids_shards shards;           /* of wids, and paths */
    struct stk_foreign_index *foreign_index; /* owned; NULL: foreign indexes are not used */
    struct stk_segment_cache *segment_cache; /* owned */
    struct stk_jpeg_index *jpeg_index;       /* owned: of its JPEGs; NULL: none that are true */
    char *jpeg_index_note; /* owned: why those that are there are not used; or NULL */
    struct stk_memory_holder memory_holder; /* of reach */
    struct stk_tar_losses bad_samples;      /* under the lock until the scan has ended */
    _Atomic uint32_t references;
    pthread_mutex_t lock;
    /* Of data sets put together with folders: owned. Else NULL. */
    struct stk_shard_range *tars;
    uint32_t tar_span_count;
    struct {
        struct stk_dataset_file *files; /* one a shard that is a tar; NULL for a folder */
        uint32_t open_count, hand;
        uint32_t in_use; /* files with a pin */
    } locked;
};

/* Where an open tar is kept; NULL: a file of a folder is opened for each use. */
static inline struct stk_dataset_file *stk_dataset_file_slot(const struct stoker_dataset *dataset,
                                                             uint32_t shard)
{
    uint32_t i = 0;

    if (!dataset->locked.files || !dataset->tars) {
        return dataset->locked.files ? &dataset->locked.files[shard] : NULL;
    }
    while (dataset->tars[i].end <= shard) {
        i++;
    }
    return dataset->tars[i].files_before == UINT64_MAX
               ? NULL
               : &dataset->locked.files[shard - dataset->tars[i].files_before];
}

void stk_dataset_retain(struct stoker_dataset *dataset);
void stk_dataset_release(struct stoker_dataset *dataset);
/* Maps the marks beside the index that is used, if there are any and they are this data set's;
 * else marks_note says why not. */
void stk_dataset_open_jpeg_index(struct stoker_dataset *dataset);
struct stk_jpeg_index_entries stk_dataset_jpeg_entries(const struct stoker_dataset *dataset,
                                                       uint64_t sample);
/* Lends the shard's open file until unpin. */
int stk_dataset_pin(struct stoker_dataset *dataset, uint32_t shard, struct stk_file **file_out,
                    struct stoker_error *error);
/* As many files are in use as may be kept open, and this one is not: who has the sampling_args
 * reads without keeping another one open for long. */
bool stk_dataset_at_open_file_limit(struct stoker_dataset *dataset, uint32_t shard);
/* The next pin opens the shard anew, unless it is in use now (after ESTALE and the like). */
void stk_dataset_reopen_later(struct stoker_dataset *dataset, uint32_t shard);
/* Says in an error where it happened, with the shard's path. */
void stk_dataset_error_add_location(const struct stoker_dataset *dataset,
                                    struct stoker_error *error, uint32_t shard, uint64_t offset,
                                    const char *key);
void stk_dataset_unpin(struct stoker_dataset *dataset, uint32_t shard, struct stk_file *file);

/* An empty data set with its options checked and copied: nothing is listed yet. */
int stk_dataset_new(struct stoker_dataset **dataset_out, struct stoker_engine *engine,
                    const struct stoker_dataset_options *options, struct stoker_error *error);
int stk_dataset_list(struct stoker_dataset *dataset, struct stoker_error *error);
/* Room for the open files of `count` tars, the listing's number from now on. */
int stk_dataset_reserve_files(struct stoker_dataset *dataset, uint64_t count,
                              struct stoker_error *error);
/* Takes the sidecar's whole index as the data set's. */
void stk_dataset_use_index(struct stoker_dataset *dataset, struct stk_index_location *location);
/* What index = require answers: the sidecar's note. */
int stk_dataset_fail_index_required(const struct stk_index_location *location,
                                    struct stoker_error *error);

/* Indexes that know shards of a listing already. */
struct stk_dataset_reuse {
    const struct stk_index *first; /* its shard i is the listing's, below first_count */
    uint64_t first_count;
    const struct stk_index *old;
    const uint32_t *from; /* of each shard of the listing: old's + 1, or 0; NULL: none */
};

/* Makes dataset->index of the listing; headers are read where no index knows them. reuse: may be
 * NULL. */
int stk_dataset_scan(struct stoker_dataset *dataset, const struct stk_dataset_reuse *reuse,
                     struct stoker_error *error);
/* Where the tars of a listing go that are read, one by one and side by side. */
struct stk_dataset_scan_callbacks {
    void *context;
    /* 0: the shard is to be read, into *index_out as *number_out; 1: it need not be; negative. */
    int (*begin)(void *context, uint32_t shard, struct stk_index **index_out, uint32_t *number_out,
                 struct stoker_error *error);
    /* After each begin that gave 0. status: of the reading; what it answers counts. */
    int (*end)(void *context, uint32_t shard, struct stk_index *index, int status,
               struct stoker_error *error);
};
/* The failure of the first tar in the listing that fails, whatever the threads. */
int stk_dataset_scan_tars(struct stoker_dataset *dataset,
                          const struct stk_dataset_scan_callbacks *plan,
                          struct stoker_error *error);
int stk_dataset_scan_stopped(struct stoker_error *error);
/* Classes (of tars: those of `like`, which may be NULL), then finish: block 0 as options say. */
int stk_dataset_scan_finish(struct stoker_dataset *dataset, const struct stk_index *like,
                            uint64_t block_samples, struct stoker_error *error);

/* The bytes of a packed (or plain) shard, front to back; going back starts over. A shard of the
 * index that has access points is read in any order (reach).
 * Threads: one. Memory: 320 KiB and the library's window. */
struct stk_shard_stream;
int stk_shard_stream_open(struct stk_shard_stream **stream_out, struct stoker_dataset *dataset,
                          const char *path, struct stoker_error *error);
int stk_shard_stream_open_shard(struct stk_shard_stream **stream_out,
                                struct stoker_dataset *dataset, uint32_t shard,
                                struct stoker_error *error);
void stk_shard_stream_close(struct stk_shard_stream *stream);
/* Before the first read of a packed shard: access points are collected, so many bytes apart. */
int stk_shard_stream_collect_seek_points(struct stk_shard_stream *stream, uint64_t spacing,
                                         struct stoker_error *error);
/* After the last read: the image (stk_seek_points_builder_finish); empty for what can have none. */
int stk_shard_stream_seek_points(struct stk_shard_stream *stream, struct stk_view *image_out,
                                 struct stoker_error *error);
/* Lent until close; not of a shard that is read by its access points. */
struct stk_file *stk_shard_stream_file(const struct stk_shard_stream *stream);
/* The first bytes of the file, at most STK_CONTAINER_HEAD_BYTES; until close. Empty of a shard that
 * is read by its access points. */
struct stk_view stk_shard_stream_head(const struct stk_shard_stream *stream);
uint32_t stk_shard_stream_compression(const struct stk_shard_stream *stream);
uint64_t stk_shard_stream_object_bytes(const struct stk_shard_stream *stream); /* as it is stored */
/* Before the first read; reads then only go forward: every byte of the file is read, once, and goes
 * through SHA-256 as it comes. */
void stk_shard_stream_hash_begin(struct stk_shard_stream *stream);
/* After the last read: reads what is left, and gives the SHA-256 of the file. */
int stk_shard_stream_hash_end(struct stk_shard_stream *stream, uint8_t digest_out[32],
                              struct stoker_error *error);
/* *got_out: fewer than bytes only at the end. */
int stk_shard_stream_read(struct stk_shard_stream *stream, uint64_t offset, uint8_t *buffer,
                          size_t bytes, size_t *got_out, struct stoker_error *error);

#endif
