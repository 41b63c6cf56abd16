/* stoker/dataset.h: the samples of a folder or of tars. */
#ifndef STOKER_DATASET_H
#define STOKER_DATASET_H

#include <stoker/engine.h>
#include <stoker/quarantine.h>

#ifdef __cplusplus
extern "C" {
#endif

struct stoker_state; /* stoker/state.h */

/* The samples of a folder or of tars. The library finds them by reading headers only. Constant
 * after it is opened: any thread. */
struct stoker_dataset;

enum stoker_index_use {
    STOKER_INDEX_AUTO = 0, /* use index entries that are up to date, scan all other shards */
    STOKER_INDEX_NEVER,    /* scan all headers */
    STOKER_INDEX_REQUIRE,  /* scan nothing: STOKER_ERROR_CHANGED names what is not up to date */
};

/* Index files that other tools wrote next to shards: DALI's wds2idx, Energon's .tar.idx. */
enum stoker_foreign_index_use {
    STOKER_FOREIGN_INDEX_AUTO = 0, /* use plausible ones. DALI's are verified when a sample is read,
                                      Energon's when the data set is opened */
    STOKER_FOREIGN_INDEX_NEVER,
};

struct stoker_dataset_options {
    size_t struct_size;
    const char *const
        *urls; /* borrowed: paths, folders, globs, {000..099} braces, wids JSON files */
    size_t url_count;
    uint32_t key_bytes_max;    /* default 4,096 */
    uint32_t header_bytes_max; /* GNU long name or PAX record block; default 1 MiB */
    uint32_t member_gap_max;   /* foreign members between two members of a sample; default 0 */
    uint64_t decompressed_bytes_max;  /* of one compressed shard; default 1 TiB */
    uint32_t decompression_ratio_max; /* decompressed to compressed bytes; default 1,100 */
    uint32_t block_bytes;             /* target size of a block of the order; default: the index's,
                                         else 8 MiB */
    uint32_t index;                   /* enum stoker_index_use; default auto */
    const char *index_path;       /* borrowed; default: stoker.index next to the data, else one in
                                     the cache */
    uint32_t foreign_index;       /* enum stoker_foreign_index_use; default auto */
    uint64_t segment_cache_bytes; /* cache of decompressed segments of shards with seek points,
                                     within the memory budget; default 512 MiB, at most a quarter
                                     of the budget */
    uint32_t on_error;   /* enum stoker_on_error. Raise (default): opening fails if a tar header is
                            damaged or a tar ends early. Skip: samples that are surely complete are
                            used and the others are listed: for pack, which writes the remaining
                            samples. All ranks that share an order must see the same damage */
    uint8_t allow_empty; /* 1: class folders without images are allowed, as if `classes` is set */
    uint8_t skip_files;  /* 1: files of a folder that cannot be read (links to nothing, pipes)
                            are left out, and class folders may be empty; stoker_verify
                            lists them. All ranks must see the same files */
    const char *const *classes; /* borrowed: class names in the order of their numbers, so that a
                                   split has the numbers of its training set; NULL: the folders,
                                   sorted. A folder that is not named is STOKER_ERROR_ARGUMENT */
    size_t class_count;
};

/* Lists folders and reads headers in parallel on the engine, unless an index has them. Returns 0
 * and sets *dataset_out; -errno if a path cannot be read; STOKER_ERROR_EMPTY if there are no
 * samples; STOKER_ERROR_CORRUPT, TRUNCATED or FORMAT if a shard is damaged. */
STOKER_API int stoker_dataset_open(struct stoker_dataset **dataset_out,
                                   struct stoker_engine *engine,
                                   const struct stoker_dataset_options *options,
                                   struct stoker_error *error);
/* Returns the number of quarantine entries under on_error = skip, in the order of the tars: damaged
 * places in tars that were scanned, and samples that the data set lacks for this reason. Entries
 * have sample STOKER_NO_SAMPLE, and an empty key if the key is unknown. Data of members is not
 * verified. */
STOKER_API uint64_t stoker_dataset_quarantine_count(const struct stoker_dataset *dataset);
/* Returns 0 and fills *entry_out, whose texts are valid until the data set is closed;
 * STOKER_ERROR_ARGUMENT if index is past the end. */
STOKER_API int stoker_dataset_quarantine(const struct stoker_dataset *dataset, uint64_t index,
                                         struct stoker_quarantine_entry *entry_out);
/* Takes ownership; NULL is allowed. Loaders of the data set keep it alive. */
STOKER_API void stoker_dataset_close(struct stoker_dataset *dataset);

struct stoker_dataset_info {
    size_t struct_size;
    const char *kind; /* "imagefolder", "webdataset" or, if it has both, "joined"; valid forever */
    uint64_t sample_count, member_count, shard_count, class_count;
    uint64_t bytes;         /* of all members; 0 for a folder (file sizes are not read) */
    uint64_t block_samples; /* samples of a block of the order */
    uint8_t sequential;     /* 1: compressed shards without seek points; they are read front to back
                               in the order of the shards */
    uint8_t identity[32];   /* hash of names, sizes and members */
    const char *index_path; /* the index in use; NULL: none. Valid until the data set is closed, as
                               are all notes below */
    const char *index_note; /* why an index, or a part of it, was not used; or empty */
    uint64_t shards_indexed;     /* shards whose entries came from the index */
    uint64_t shards_foreign;     /* shards whose entries came from index files of other tools */
    const char *foreign_note;    /* why one was not used, or how it differs; or empty */
    const char *jpeg_index_note; /* why the JPEG index is not used; or empty */
    uint8_t jpeg_indexed;        /* 1: it has a JPEG index (stoker/jpeg_index.h) */
    uint32_t jpeg_index_mcus;    /* as in stoker_jpeg_indexer_options */
    /* Files and members that are part of no sample, of the shards that were read now: */
    uint64_t skipped_system; /* files that operating systems and notebooks leave (._x, .DS_Store) */
    uint64_t skipped_links;  /* symbolic links, and hard links to a member that the shard lacks */
    uint64_t skipped_special;  /* devices, pipes */
    uint64_t skipped_unnamed;  /* names without key or extension */
    uint64_t problem_count;    /* of a folder: see stoker_dataset_problem */
    uint8_t random_reads_free; /* 1: samples are files, or shards on local disks that are not
                                  compressed: reads in any order cost no more than in sequence */
    uint32_t default_shuffle;  /* enum stoker_shuffle: of loaders that name none */
    uint32_t default_window_blocks;
};
/* Returns 0 and fills *info; STOKER_ERROR_ARGUMENT if struct_size is wrong. */
STOKER_API int stoker_dataset_info(const struct stoker_dataset *dataset,
                                   struct stoker_dataset_info *info);
/* Describes a file or class folder that was left out (skip_files), or that an operating system
 * left. Returns 0 and sets *path_out and *text_out, valid until the data set is closed;
 * STOKER_ERROR_ARGUMENT past the end: at most 10,000 are named. If an index made the listing
 * unnecessary there are none. */
STOKER_API int stoker_dataset_problem(const struct stoker_dataset *dataset, uint64_t i,
                                      const char **path_out, const char **text_out);
/* Number of samples of urls 0 .. url. Returns 0 and sets *samples_out; STOKER_ERROR_ARGUMENT if
 * there is no such url; STOKER_ERROR_UNSUPPORTED if the data set was not listed
 * (stoker_dataset_as_of). */
STOKER_API int stoker_dataset_url_end(const struct stoker_dataset *dataset, size_t url,
                                      uint64_t *samples_out);
/* Number of samples of shards 0 .. i, for each i in first .. first + count - 1, as the shard_ends
 * of a two-level order. Returns 0 and fills ends_out[count]; STOKER_ERROR_ARGUMENT past the last
 * shard; STOKER_ERROR_UNSUPPORTED if the data set is a folder. */
STOKER_API int stoker_dataset_shard_ends(const struct stoker_dataset *dataset, uint64_t first,
                                         uint64_t count, uint64_t *ends_out);
/* Name of a class. Returns 0 and sets *name_out, valid until the data set is closed;
 * STOKER_ERROR_ARGUMENT past the end. */
STOKER_API int stoker_dataset_class(const struct stoker_dataset *dataset, uint64_t class_index,
                                    const char **name_out);

/* The same for classes by the folders of keys, as a LABEL field with label_from_path has them: the
 * class of the key "imagenet/n01/img_1" is "n01". They are sorted, or the option `classes`. The
 * first call reads all keys. Returns 0; STOKER_ERROR_ARGUMENT past the end, or if `classes` lacks a
 * folder; STOKER_ERROR_MISSING if a sample is in no folder; -ENOMEM. */
STOKER_API int stoker_dataset_path_class(struct stoker_dataset *dataset, uint64_t class_index,
                                         const char **name_out, struct stoker_error *error);

struct stoker_member_info {
    const char *shard;     /* valid until the data set is closed */
    const char *extension; /* lower case, without the first dot; valid likewise */
    uint64_t offset;       /* of the data in the (decompressed) shard */
    uint64_t bytes;        /* UINT64_MAX: the entire file, size unknown */
};
/* Key and members of a sample. `key` (may be NULL) receives the key with a NUL, cut to key_capacity
 * bytes. *member_count: in: capacity of `members`; out: number of members of the sample, which may
 * be larger. Returns 0 on success, STOKER_ERROR_ARGUMENT if there is no such sample. */
STOKER_API int stoker_dataset_sample(const struct stoker_dataset *dataset, uint64_t sample,
                                     char *key, size_t key_capacity,
                                     struct stoker_member_info *members, size_t *member_count,
                                     struct stoker_error *error);
/* Reads an entire member into `buffer` of `capacity` bytes and sets *bytes_out to its size. Returns
 * 0 on success, STOKER_ERROR_LIMIT if it does not fit (*bytes_out is set), STOKER_ERROR_MISSING if
 * the sample has no such member, or the error of the read. */
STOKER_API int stoker_dataset_read(struct stoker_dataset *dataset, uint64_t sample,
                                   const char *extension, void *buffer, size_t capacity,
                                   size_t *bytes_out, struct stoker_error *error);

/* Label of a sample: the number of its class in a folder, else its member cls: a whole number, or a
 * hash of another text. Returns 0 and sets *label_out; STOKER_ERROR_MISSING if it has none,
 * STOKER_ERROR_LIMIT if the member is longer than 4,096 bytes, or the error of the read. */
STOKER_API int stoker_dataset_label(struct stoker_dataset *dataset, uint64_t sample,
                                    int64_t *label_out, struct stoker_error *error);

/* Opens the data set again with the shards that were appended since (tars that are listed after all
 * earlier ones), for the loaders of the next epoch. Known shards are not read again, and blocks of
 * the order keep their size. `dataset` stays as it is. shard_count: total number of shards, so that
 * all ranks use the same; 0: all there are. Returns 1 and sets *newer_out; 0 if there are no new
 * shards; STOKER_ERROR_CHANGED if a known shard was changed or removed, a new one is listed before
 * a known one, there are fewer than shard_count, or the index lacks one (with index = require). */
STOKER_API int stoker_dataset_refresh(const struct stoker_dataset *dataset, uint64_t shard_count,
                                      struct stoker_dataset **newer_out,
                                      struct stoker_error *error);
/* The data set at the time of a state: its first shards, with the state's blocks, so that a run
 * continues its epoch although shards were appended. Returns 1 and sets *part_out; 0 if it is the
 * data set itself; STOKER_ERROR_STATE if the state belongs to another data set. */
STOKER_API int stoker_dataset_as_of(const struct stoker_dataset *dataset,
                                    const struct stoker_state *state,
                                    struct stoker_dataset **part_out, struct stoker_error *error);
/* Joins data sets of one engine (class folders and tars) into one, for a mix. Url i of the result
 * is parts[i] (see stoker_dataset_url_end); the parts may be closed. The joined index is in memory.
 * The classes are those of the first part that has any: a caller that uses labels must check that
 * the other parts have the same. Returns 0 and sets *joined_out; STOKER_ERROR_ARGUMENT if
 * part_count is 0 or the parts have different engines. */
STOKER_API int stoker_dataset_join(struct stoker_dataset *const *parts, size_t part_count,
                                   struct stoker_dataset **joined_out, struct stoker_error *error);

#ifdef __cplusplus
}
#endif
#endif
