/* dataset/index_locate.h: the index file of a data set: where it lies, and what of it is still
 * true.
 *
 *   urls, objects --places--> beside | cache --match--> old index; for each shard: its entry there
 *                                                       (fresh), or 0 (new, or changed: scan)
 *
 * Beside: stoker.index in the folder that holds all shards. Cache: a name made of the urls. What a
 * copy of the data changes (mtimes) lies apart, in NAME.stamp (index_stamp.c).
 * Owner: who opens or builds. Threads: one; match asks the shards in parallel on the engine.
 * Memory: 24 bytes a shard while it is open. Bound: the listing's. */
#ifndef DATASET_INDEX_LOCATE_H
#define DATASET_INDEX_LOCATE_H

#include "dataset/dataset.h"

#define STK_INDEX_FILE_NAME "stoker.index"

struct stk_index_stamp {
    bool valid;       /* it is this index's, in this place */
    uint64_t count;   /* of shards, or of folders with pictures */
    uint64_t *mtimes; /* owned */
    char *names;      /* owned: of folders, below the root, NUL-ended one after the other */
};

struct stk_index_location {
    char root[STK_PATH_BYTES_MAX];         /* before every path in the index: "data/", "/", "" */
    char next_to_data[STK_PATH_BYTES_MAX]; /* may be empty: too long, or '/' */
    char cache[STK_PATH_BYTES_MAX];        /* may be empty: nowhere to be */
    bool folder_url;                       /* one url, and it is a folder: all in it is meant */
    struct stk_index *old;                 /* owned: mapped; NULL: none */
    char path[STK_PATH_BYTES_MAX];         /* of old */
    struct stk_index_stamp stamp;          /* of old */
    uint32_t *from;                        /* owned: of each object: shard of old + 1, or 0 */
    uint64_t *sizes, *mtimes;              /* owned: of each object that was found */
    uint64_t reused;                       /* objects with a `from` */
    bool complete;                         /* old is what a scan would give */
    bool appended;                         /* old's shards come first, all fresh; others follow */
    bool has_missing;                      /* old tells of a shard that is not there any more */
    bool has_extra;  /* old tells of shards that exist and were not asked for */
    char note[512];  /* why old is not (wholly) used, or that there is none */
    int note_status; /* what index = require makes of the note */
};

/* Names the places. Before the listing (objects.count 0) only a folder url has any. */
int stk_index_location_open(struct stk_index_location **sidecar_out, struct stoker_dataset *dataset,
                            struct stoker_error *error);
void stk_index_location_close(struct stk_index_location *location);
/* Maps the index beside, or the cached one, or options.index_path; 0 also when there is none (or
 * a damaged one): then old is NULL and the note says why. */
int stk_index_location_find(struct stk_index_location *location, struct stoker_dataset *dataset,
                            struct stoker_error *error);
/* Whether the folders of an imagefolder are as they were. Sets whole. */
int stk_index_location_match_folder(struct stk_index_location *location,
                                    struct stoker_dataset *dataset, struct stoker_error *error);
/* The listing is of this kind (enum stk_source_kind): an old index of the other is let go. */
void stk_index_location_require_kind(struct stk_index_location *location, uint32_t kind);
/* Fills from, sizes, mtimes, reused, whole, appended, gone, others. Also without old: sizes and
 * mtimes. */
int stk_index_location_match(struct stk_index_location *location, struct stoker_dataset *dataset,
                             struct stoker_error *error);

/* Samples a block that the order keeps when the index grows; 0: none, the index is another's. */
uint64_t stk_index_location_block_samples(const struct stk_index_location *location);

/* index_stamp.c. Reading: what is missing, damaged or another index's is not valid; only -ENOMEM
 * and failing reads are errors. */
int stk_index_stamp_read(struct stk_index_stamp *stamp, struct stk_io *io, const char *index_path,
                         const struct stk_index *index, struct stoker_error *error);
int stk_index_stamp_write(const struct stk_index_stamp *stamp, struct stk_io *io,
                          const char *index_path, const struct stk_index *index,
                          struct stoker_error *error);
/* The folders that hold the files of an in-memory index of a folder, with their mtimes now. */
int stk_index_stamp_folders(struct stk_index_stamp *stamp, struct stk_io *io, const char *root,
                            const struct stk_index *index, struct stoker_error *error);
void stk_index_stamp_deinit(struct stk_index_stamp *stamp);

#endif
