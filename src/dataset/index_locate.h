/* dataset/index_locate.h: finds the index file of a data set, and which of its entries are up to
 * date.
 *
 *   urls, files --paths--> next to the data | cache --match--> old index, and for each shard its
 *                                                      entry there, or 0 (new or changed: scan it)
 *
 * Next to the data: stoker.index in the folder that has all shards. Cache: a name made from the
 * urls. mtimes change when data is copied, so they are in a file of their own, NAME.stamp
 * (index_stamp.c).
 * Owner: the opening, or the indexer. Threads: one; match gets the status of shards in parallel on
 * the engine.
 * Memory: 24 bytes per shard while it is open.
 * Bound: the listing's. */
#ifndef DATASET_INDEX_LOCATE_H
#define DATASET_INDEX_LOCATE_H

#include "dataset/dataset.h"

#define STK_INDEX_FILE_NAME "stoker.index"

struct stk_index_stamp {
    bool valid;       /* it is of this index, at this path */
    uint64_t count;   /* of shards, or of folders with pictures */
    uint64_t *mtimes; /* owned */
    char *names;      /* owned: of folders, below the root, each with a NUL */
};

struct stk_index_location {
    char root[STK_PATH_BYTES_MAX];         /* before all paths of the index: "data/", "/", "" */
    char next_to_data[STK_PATH_BYTES_MAX]; /* empty: too long, or '/' */
    char cache[STK_PATH_BYTES_MAX];        /* empty: there is no cache */
    bool folder_url;                       /* one url, and it is a folder: all shards in it */
    struct stk_index *old;                 /* owned: the mapped index file; NULL: none */
    char path[STK_PATH_BYTES_MAX];         /* of old */
    struct stk_index_stamp stamp;          /* of old */
    uint32_t *from;                        /* owned: of each file: shard of old + 1, or 0 */
    uint64_t *sizes, *mtimes;              /* owned: of each file */
    uint64_t reused;                       /* number of files with a `from` */
    bool complete;                         /* old is equal to the result of a scan */
    bool appended;    /* old's shards come first, all up to date; others follow */
    bool has_missing; /* old has a shard that does not exist any more */
    bool has_extra;   /* old has shards that exist and are not in the listing */
    char note[512];   /* why old is not used, or not completely, or that there is none */
    int note_status;  /* the status of the note for index = require */
};

/* Sets the paths. Before the listing (objects.count 0) only a folder url has some. Returns 0 or
 * -ENOMEM. */
int stk_index_location_open(struct stk_index_location **sidecar_out, struct stoker_dataset *dataset,
                            struct stoker_error *error);
void stk_index_location_close(struct stk_index_location *location);
/* Maps the index file next to the data, or in the cache, or at options.index_path. Returns 0, also
 * if there is none, or a damaged one: then old is NULL and the note says why. */
int stk_index_location_find(struct stk_index_location *location, struct stoker_dataset *dataset,
                            struct stoker_error *error);
/* Checks whether class folders have changed. Sets complete. */
int stk_index_location_match_folder(struct stk_index_location *location,
                                    struct stoker_dataset *dataset, struct stoker_error *error);
/* The listing has this kind (enum stk_source_kind): closes an old index of the other kind. */
void stk_index_location_require_kind(struct stk_index_location *location, uint32_t kind);
/* Compares the listing with old. Sets from, reused, complete, appended, has_missing, has_extra,
 * and, also without old, sizes and mtimes. */
int stk_index_location_match(struct stk_index_location *location, struct stoker_dataset *dataset,
                             struct stoker_error *error);

/* The number of samples per block that the order keeps when the index grows; 0: the index is not an
 * older state of this data set. */
uint64_t stk_index_location_block_samples(const struct stk_index_location *location);

/* index_stamp.c. A stamp that is missing, damaged or of another index is not valid; read returns
 * -ENOMEM and errors of reading only. */
int stk_index_stamp_read(struct stk_index_stamp *stamp, struct stk_io *io, const char *index_path,
                         const struct stk_index *index, struct stoker_error *error);
int stk_index_stamp_write(const struct stk_index_stamp *stamp, struct stk_io *io,
                          const char *index_path, const struct stk_index *index,
                          struct stoker_error *error);
/* Lists the folders of the files of an index in memory, with their current mtimes. */
int stk_index_stamp_folders(struct stk_index_stamp *stamp, struct stk_io *io, const char *root,
                            const struct stk_index *index, struct stoker_error *error);
void stk_index_stamp_deinit(struct stk_index_stamp *stamp);

#endif
