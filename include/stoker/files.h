/* stoker/files.h: local files and objects of stores: attributes, globs, listings, reads. */
#ifndef STOKER_FILES_H
#define STOKER_FILES_H

#include <stoker/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names of files and objects: a path, s3://bucket/key, gs://bucket/key, az://container/blob, and,
 * read-only, http://, https://, hf://. */

enum stoker_file_kind { STOKER_FILE = 1, STOKER_FOLDER, STOKER_OTHER_FILE };

/* Archive status of an object. An archived object must be restored before it can be read: S3's
 * GLACIER, DEEP_ARCHIVE and archive tiers, Azure's Archive. */
enum stoker_archive {
    STOKER_ARCHIVE_NONE = 0,  /* readable, or unknown */
    STOKER_ARCHIVE_ARCHIVED,  /* must be restored first */
    STOKER_ARCHIVE_RESTORING, /* a restore is running; it takes hours */
    STOKER_ARCHIVE_RESTORED,  /* a copy is readable until restored_until_ns */
};

struct stoker_file_info {
    size_t struct_size;
    uint32_t kind;     /* enum stoker_file_kind */
    uint64_t bytes;    /* of files */
    uint64_t mtime_ns; /* since 1970; 0: unknown */
    char etag[256];    /* as the server reports it, with its quotes; empty: none */
    char name[4096];   /* of a walk: relative to its path; else empty */
    /* Set by stoker_stat. */
    char storage_class[32];     /* the store's name of it; empty: the default class, or unknown */
    uint32_t archive;           /* enum stoker_archive */
    uint64_t restored_until_ns; /* since 1970; 0: unknown */
};

/* Attributes of a path or URL. Reads no data of an object, so that archived ones work, too. Returns
 * 0 and fills *info_out; -ENOENT if it does not exist. */
STOKER_API int stoker_stat(struct stoker_engine *engine, const char *path,
                           struct stoker_file_info *info_out, struct stoker_error *error);

/* Expands braces and globs in a path or URL: a{000..009}, {a,b}, * ? [a-z] **; http(s):// only
 * braces. Returns 0 if the result is the path itself (it exists under this very name, or is no
 * pattern); 1 if the result is the matches, in the order of braces and names; STOKER_ERROR_EMPTY if
 * a glob matches nothing. Sets *names_out to *count_out names, one after the other, each with a
 * NUL; free them with stoker_paths_free. */
STOKER_API int stoker_paths_expand(struct stoker_engine *engine, const char *path, char **names_out,
                                   size_t *count_out, struct stoker_error *error);
/* As stoker_paths_expand, for copies and removals: wildcards match symbolic links, also those to
 * nothing, but do not enter links to folders, so that no match is outside of the pattern's
 * folder. */
STOKER_API int stoker_paths_expand_no_links(struct stoker_engine *engine, const char *path,
                                            char **names_out, size_t *count_out,
                                            struct stoker_error *error);
/* Takes ownership; NULL is allowed. */
STOKER_API void stoker_paths_free(char *names);

/* Lists the buckets that belong to the credentials of S3. url: "s3://". Sets *names_out to
 * *count_out names, one after the other, each with a NUL; free them with stoker_paths_free. Returns
 * 0; STOKER_ERROR_UNSUPPORTED for another store; -EACCES if the credentials may not list them. */
STOKER_API int stoker_buckets_list(struct stoker_engine *engine, const char *url, char **names_out,
                                   size_t *count_out, struct stoker_error *error);

enum stoker_presign_method { STOKER_PRESIGN_GET = 0, STOKER_PRESIGN_PUT };
struct stoker_presign_options {
    size_t struct_size;
    uint32_t method;    /* enum stoker_presign_method */
    uint32_t expires_s; /* default 3,600; at most 604,800 */
};
/* Signs a URL of an object of S3. Anyone with the URL may read the object (or write it: PUT)
 * without credentials, until *until_ns_out (since 1970; may be NULL): the end of the time, or of
 * the credentials. Sets *url_out; free it with stoker_paths_free. options may be NULL. Returns 0;
 * STOKER_ERROR_UNSUPPORTED for another store; -EACCES without credentials. */
STOKER_API int stoker_presign(struct stoker_engine *engine, const char *url,
                              const struct stoker_presign_options *options, char **url_out,
                              uint64_t *until_ns_out, struct stoker_error *error);

/* A listing of everything below a path or URL, in no particular order. */
struct stoker_walk;
/* recursive 0: direct children, folders included; 1: all files; 2: also links out of the path,
 * links to folders, devices and pipes, which 1 leaves out. If the path is a file, it is the only
 * entry, with an empty name. Returns 0 and sets *walk_out; -ENOENT if the path does not exist. */
STOKER_API int stoker_walk_open(struct stoker_walk **walk_out, struct stoker_engine *engine,
                                const char *path, uint32_t recursive, struct stoker_error *error);
/* Returns 1 and fills *info_out with the next entry; 0 at the end; STOKER_ERROR_AGAIN after
 * timeout_ms without an entry. */
STOKER_API int stoker_walk_next(struct stoker_walk *walk, uint32_t timeout_ms,
                                struct stoker_file_info *info_out, struct stoker_error *error);
/* Takes ownership; NULL is allowed. */
STOKER_API void stoker_walk_close(struct stoker_walk *walk);

/* A file or object for random reads. All reads of an object are of the version that was opened,
 * else STOKER_ERROR_CHANGED. Any thread; close: no other call may be running. */
struct stoker_file;
/* info_out may be NULL. Returns 0 and sets *file_out; -ENOENT if it does not exist. */
STOKER_API int stoker_file_open(struct stoker_file **file_out, struct stoker_engine *engine,
                                const char *path, struct stoker_file_info *info_out,
                                struct stoker_error *error);
/* Reads and waits. Returns the number of bytes read, fewer than `bytes` only at the end of the
 * file; a negative status on failure. */
STOKER_API int64_t stoker_file_read(struct stoker_file *file, uint64_t offset, void *buffer,
                                    size_t bytes, struct stoker_error *error);
/* Takes ownership; NULL is allowed. */
STOKER_API void stoker_file_close(struct stoker_file *file);
/* Fetches attributes of many objects concurrently and waits for them; opening one of them within a
 * minute then needs no request. A hint: errors are ignored. */
STOKER_API void stoker_files_prefetch_metadata(struct stoker_engine *engine,
                                               const char *const *paths, size_t count);

/* Drops all metadata that listings and earlier requests left: the next use of each object requests
 * it again. Without this call, opening an object may use metadata of the last minute; then a read
 * of an object that was replaced fails with STOKER_ERROR_CHANGED, and the next open sees the new
 * one. stoker_stat always asks the store. */
STOKER_API void stoker_files_forget_metadata(struct stoker_engine *engine);

struct stoker_range {
    struct stoker_file *file; /* borrowed; all files of a call belong to one engine */
    uint64_t offset;
    size_t bytes;
    void *buffer;   /* of `bytes`; ranges may share it if their data is not needed */
    int64_t result; /* out: bytes read, fewer only at the end of the file; or a status */
    /* Out, for an object's range that was one request: from sending its last attempt to the first
     * and to the last byte of the response; 0: unknown. */
    uint64_t first_byte_ns, complete_ns;
};

struct stoker_ranges_options {
    size_t struct_size;
    uint32_t gap_bytes;     /* ranges of an object with a smaller gap share a request; default
                               256 KiB, 1: only adjacent ranges */
    uint32_t no_coalescing; /* 1: one request for each range */
    uint32_t in_flight_max; /* concurrent reads; default 1,024, and the engine's io_depth */
};
/* Reads many ranges concurrently and waits for all; local files are read one after the other.
 * options may be NULL. Returns 0 on success, or the status of a range that failed; all other ranges
 * are read nevertheless. Any thread. */
STOKER_API int stoker_file_read_ranges(struct stoker_range *ranges, size_t count,
                                       const struct stoker_ranges_options *options,
                                       struct stoker_error *error);

#ifdef __cplusplus
}
#endif
#endif
