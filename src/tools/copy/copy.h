/* tools/copy/copy.h: copy, sync and remove of files and objects: the planner, its workers, paths.
 *
 *   planner: walks the sources --> files --bounded queue--> workers
 *   worker: copies a small file, or a part of a large one; the last part commits the file
 *   large files that are written to this machine, or whose checksum needs the bytes in order: parts
 *   arrive in any order, and wait for their turn to be hashed and written
 *
 * Each unit of work blocks in the file system or waits for a response, so each has a thread. The
 * number in flight is bounded by workers and, for parts, by memory.
 * Owner: struct stoker_copy. Threads: planner, workers, the caller; `locked` with job.lock.
 * Memory: a block for each queued file, a buffer of at most part_bytes for each worker.
 * Bound: STK_COPY_QUEUE_MAX files waiting, part_slots parts in flight. */
#ifndef TOOLS_COPY_COPY_H
#define TOOLS_COPY_COPY_H

#include "base/crypto/key_set.h"
#include "engine/background_job.h"
#include "io/write.h"
#include "storage/checksum/composite_checksum.h"
#include "storage/upload/upload.h"
#include "storage/vfs/vfs.h"
#include "storage/walk/walk.h"

#include <pthread.h>
#include <stdatomic.h>

#define STK_COPY_QUEUE_MAX 4096u
#define STK_COPY_WORKERS_DEFAULT 128u
#define STK_COPY_WORKERS_MAX 256u
#define STK_COPY_PART_BYTES_MAX (1ull << 30)
#define STK_COPY_SMALL_BYTES (1u << 20) /* buffer of each worker, in addition to the parts */
#define STK_COPY_PATH_BYTES_MAX (2 * STK_WALK_PATH_BYTES_MAX)
#define STK_COPY_FAILURES_MAX 100u /* then the copy stops */
#define STK_COPY_NOTES_MAX 10000u  /* that wait for the caller */

/* A file of the destination. */
struct stk_destination_file {
    char *name; /* owned */
    uint64_t bytes, mtime_ns;
};

/* A file to be copied, or object keys to be removed. */
struct stk_copy_file {
    struct stk_copy_file *next;
    char *from, *to;  /* owned; to: NULL for keys to be removed */
    const char *root; /* borrowed: the source that from is, or lies below */
    uint64_t bytes, mtime_ns, version;
    uint64_t ctime_ns, inode;         /* of a local source, as it was opened */
    uint64_t root_device, root_inode; /* of a local root, before it was listed; 0: not one */
    uint32_t mode, to_mode; /* permissions of a local source; of the file at `to`; 0: none */
    bool check;             /* a worker compares it with the destination before it copies it */
    char *keys;             /* owned: of objects to be removed, each with its NUL */
    uint32_t key_count;
    char hash[72]; /* of the source, if the destination has the same size: with the same hash it is
                      skipped */
    /* For a file with parts; const once it is in the list of open files: */
    struct stk_file *source;
    struct stk_object_url *from_object,
        *to_object; /* NULL: a local file, or one of an external file system */
    struct stk_object_info info;
    struct stk_object_attributes *attributes; /* owned; of an object that another store gets */
    /* The source's checksum, if it needs the bytes in order; used by the thread that has the turn.
     */
    struct stk_composite_checksum *checksum;
    struct stk_store *store;        /* borrowed: the source's */
    struct stoker_error *error;     /* borrowed while the checksum is verified */
    bool in_order, checksum_failed; /* parts take turns; the checksum does not match */
    struct stk_upload *upload;
    struct stk_output *out;
    struct stk_output *state_file; /* next to it: the parts that are written; NULL: not resumable */
    char *part_path;               /* owned: path of the partial file */
    uint64_t part_bytes;
    uint32_t part_count, parts_reused; /* parts_reused: the first ones, from an earlier run */
    _Atomic uint64_t bytes_done, bytes_reused; /* included in those of the copy */
    bool upload_lost, restarted;   /* the store lost the upload; it was queued again, once */
    struct {                       /* with the copy's lock */
        uint32_t next, done, turn; /* parts: next to start; done; next to be written */
        bool failed;
        bool changed;  /* the source did */
        bool reported; /* its failure was recorded and counted */
        bool refused;  /* a retry would fail, too: the uploaded parts are removed */
    } locked;
};

/* What happened to one file, until the caller takes it. */
struct stk_copy_note {
    struct stk_copy_note *next;
    uint32_t kind;   /* enum stoker_copy_note_kind */
    char *name, *to; /* owned; to: NULL: none */
    struct stoker_error failure;
};

/* A local source that files are moved from. */
struct stk_copy_source {
    struct stk_io *io; /* owned; NULL: none; below it and the destination */
    const char *root;  /* borrowed */
    uint32_t users;    /* calls in progress */
};

struct stoker_copy {
    struct stoker_engine *engine; /* held; const after open, as all down to the threads */
    struct stk_io *io;
    /* For all calls on files of a local destination: no symbolic link in it leads out of it. Set by
     * the planner before the first file is queued, if the destination is a folder; else io. */
    struct stk_io *to_io;
    struct stoker_copy_options options;
    struct stk_upload_options upload;
    char **sources, *destination; /* owned */
    char **filters, **names_only; /* owned, as options.filters and names */
    size_t filter_count, name_count;
    uint64_t precision_ns; /* of times of the local destination; 0: it stores none */
    bool folds_names;      /* of the local destination: "A" and "a" are one file, or NFC and NFD */
    bool remote, folder;   /* the destination: is remote; is a folder */
    uint64_t boot;         /* changes with each start of the machine */
    uint64_t reserved;
    uint32_t descriptors; /* reserved: of the workers */
    uint32_t worker_count, part_slots;
    struct stk_background_job job;    /* thread 0 is the planner, the others are workers */
    uint64_t root_device, root_inode; /* planner only: of the local source that it walks */
    struct stk_key_set names;         /* planner only: names that were copied */
    struct stk_key_set other_names;   /* planner only: links and other entries of the source */
    struct stk_destination_file
        *destination_files; /* planner only; owned: files of the destination, by name */
    uint64_t destination_count, destination_capacity;
    bool keep_names;
    _Atomic bool hard_stop; /* after job.stopping ended transfers: ends the clean-up, too */
    _Atomic uint64_t files, bytes, files_done, bytes_done, files_skipped, bytes_skipped;
    _Atomic uint64_t files_removed, files_failed, links_left_out, files_spared,
        system_files_left_out;
    _Atomic uint32_t odd_etags; /* objects whose ETag looks like an MD5 but is none */
    pthread_mutex_t folders_lock;
    struct stk_copy_source open_source; /* the last one; with folders_lock */
    pthread_mutex_t rename_lock; /* with folds_names: of a look at a destination, and its rename */
    struct stk_key_set folders;  /* that were created; with folders_lock */
    struct stk_key_set inodes;   /* with folds_names: files of this run; with folders_lock */
    _Atomic uint64_t bandwidth_ns;           /* when the next transfer may begin */
    pthread_cond_t work, turn, queue_space;  /* with job.lock */
    struct {                                 /* under job.lock */
        struct stk_copy_file *first, **last; /* waiting */
        uint32_t waiting;
        struct stk_copy_file *open;             /* with parts left or in flight */
        uint32_t parts_in_flight, active;       /* active: workers with work */
        uint8_t *buffers[STK_COPY_WORKERS_MAX]; /* of part_bytes, free */
        uint32_t buffer_count;
        uint32_t left; /* workers that had no memory for their buffer */
        struct stk_copy_note *first_note, **last_note;
        uint32_t note_count;
        bool planned, listed;
    } locked;
};

/* copy_plan.c: runs the planner. Returns 0 on success, or the error that ends the copy. */
int stk_copy_plan(struct stoker_copy *copy, struct stoker_error *error);
/* Finds out whether a recursive source is walked as a folder. Fails if it is an object and also a
 * prefix, and the copy cannot have both. */
int stk_copy_choose_folder(struct stoker_copy *copy, const char *path, bool *folder_out,
                           struct stoker_error *error);
/* Returns true if there are objects below the folder of this URL. */
bool stk_copy_has_objects(struct stoker_copy *copy, const char *url);
/* With folds_names: remembers a file that is in the destination. Returns 1; 0 if this run has it
 * already under another name; -ENOMEM. */
int stk_copy_add_inode(struct stoker_copy *copy, uint64_t inode);
bool stk_copy_has_inode(struct stoker_copy *copy, uint64_t inode);
/* Two names are one file: added: of stk_copy_add_inode. */
int stk_copy_fail_folded(int added, const char *to, struct stoker_error *error);
/* After all files were copied: removes files that the source does not have. */
int stk_copy_remove_extra(struct stoker_copy *copy, struct stoker_error *error);
/* Takes ownership of file; waits for space in the queue. Returns 0 on success, STOKER_ERROR_CLOSED
 * if the copy was stopped. */
int stk_copy_queue_push(struct stoker_copy *copy, struct stk_copy_file *file);
struct stk_copy_file *stk_copy_file_new(const char *from, const char *to);
void stk_copy_file_free(struct stk_copy_file *file);
/* Counts a failure of one file and notes it. Returns 0 to continue, or status after too many. */
int stk_copy_fail_entry(struct stoker_copy *copy, int status, const char *name,
                        const struct stoker_error *error);
/* Counts a file that is up to date. */
void stk_copy_count_skipped(struct stoker_copy *copy, uint64_t bytes);

/* copy_remove.c */
int stk_copy_remove(struct stoker_copy *copy, const char *path, struct stoker_error *error);
int stk_copy_remove_keys(struct stoker_copy *copy, struct stk_copy_file *file,
                         struct stoker_error *error);
int stk_copy_remove_walk(struct stoker_copy *copy, struct stk_walk *walk, const char *root,
                         bool extra, struct stoker_error *error);

/* copy_move.c: MOVE: renames a local file if it is on the destination's file system. Returns 1 if
 * it did, 0 if it must be copied. */
int stk_copy_try_rename(struct stoker_copy *copy, struct stk_copy_file *file,
                        struct stoker_error *error);
/* MOVE: removes the source of a file that was copied, unless it changed. */
int stk_copy_remove_source(struct stoker_copy *copy, struct stk_copy_file *file,
                           struct stoker_error *error);
/* Closes what moves opened. No thread moves any more. */
void stk_copy_close_sources(struct stoker_copy *copy);
/* MOVE: removes the folders of a source that are empty. */
int stk_copy_remove_folders(struct stoker_copy *copy, const char *source,
                            struct stoker_error *error);

/* copy_file.c: copies a small file; buffer: of at least its size. */
int stk_copy_file_small(struct stoker_copy *copy, struct stk_copy_file *file, uint8_t *buffer,
                        struct stoker_error *error);
int stk_copy_file_begin(struct stoker_copy *copy, struct stk_copy_file *file,
                        struct stoker_error *error);
int stk_copy_file_part(struct stoker_copy *copy, struct stk_copy_file *file, uint32_t index,
                       uint8_t *buffer, struct stoker_error *error);
/* Returns true if the same command may continue after this error: then uploaded parts are not
 * removed. */
bool stk_copy_error_is_resumable(int status);
/* Reads a complete part of the source. Returns 0 on success, STOKER_ERROR_CHANGED if the source
 * changed. */
int stk_copy_file_read(struct stk_copy_file *file, uint64_t offset, struct stk_view *part,
                       struct stoker_error *error);
/* Reads a local file that reports no size, as those of /proc, to its end. body: a buffer of
 * STK_COPY_SMALL_BYTES; set to the bytes. *pages_out: NULL, or *pages_bytes that the caller frees
 * with stk_pages_free, also after a failure. */
int stk_copy_file_read_unsized(struct stoker_copy *copy, struct stk_copy_file *file,
                               struct stk_view *body, uint8_t **pages_out, uint64_t *pages_bytes,
                               struct stoker_error *error);
/* Fails with STOKER_ERROR_CHANGED: the source changed while it was copied. */
int stk_copy_fail_changed(const struct stk_copy_file *file, struct stoker_error *error);
/* Fails with STOKER_ERROR_CHANGED if the path or URL of the source has another version now than the
 * one that was opened. Asks the store. */
int stk_copy_check_source(struct stoker_copy *copy, const struct stk_copy_file *file,
                          struct stoker_error *error);
/* After the last part, or after a failure: commits, or cleans up. */
int stk_copy_file_end(struct stoker_copy *copy, struct stk_copy_file *file,
                      struct stoker_error *error);

/* copy_checksum.c: verifies a checksum of the source that needs the bytes in order. Called by the
 * thread that has the turn. All do nothing if there is no such checksum. */
int stk_copy_checksum_open(struct stoker_copy *copy, struct stk_copy_file *file,
                           struct stoker_error *error);
int stk_copy_checksum_add(struct stk_copy_file *file, struct stk_view bytes,
                          struct stoker_error *error);
/* After all bytes were added. body: the complete file; NULL: it is read again if needed. Returns 0,
 * or STOKER_ERROR_CORRUPT if the checksum does not match. */
int stk_copy_checksum_verify(struct stoker_copy *copy, struct stk_copy_file *file,
                             const struct stk_view *body, struct stoker_error *error);
/* Adds the bytes that an earlier run copied. Called in the turn of the first part. */
int stk_copy_checksum_resume(struct stoker_copy *copy, struct stk_copy_file *file,
                             struct stoker_error *error);
/* Reads bytes of a partial file of an earlier run. Returns false if they are not all there. */
bool stk_copy_read_partial(struct stk_file *left, uint64_t offset, uint8_t *buffer, uint64_t bytes);

/* copy_compare.c: finds the precision of times at a local destination, and whether it folds names.
 */
void stk_copy_destination_probe(struct stoker_copy *copy);
enum stk_copy_decision { STK_COPY_NEEDED = 0, STK_COPY_SKIP, STK_COPY_CHECK };
/* there: the file at the destination. CHECK: a worker calls stk_copy_destination_matches. */
enum stk_copy_decision stk_copy_compare(const struct stoker_copy *copy, const char *source,
                                        const struct stk_stat *there,
                                        const struct stk_walk_entry *entry);
/* Compares checksums, or the bytes of two local files. Returns 1 if they are equal; 0 if not, or if
 * that is unknown; STOKER_ERROR_CLOSED if the copy was stopped. */
int stk_copy_destination_matches(struct stoker_copy *copy, const struct stk_copy_file *file,
                                 struct stk_view buffer);

/* copy_filter.c: copies filters and names out of the options, and checks them. */
int stk_copy_filters_read(struct stoker_copy *copy, struct stoker_error *error);
/* Returns true if options.skip_system_files leaves out a name below a source. */
bool stk_copy_is_system_file(const struct stoker_copy *copy, const char *name);
/* Returns true if the filters select a name below a source. */
bool stk_copy_is_selected(const struct stoker_copy *copy, const char *name);
int stk_copy_copy_texts(const char *const *texts, size_t count, char ***copied_out,
                        struct stoker_error *error);
void stk_copy_texts_free(char **texts, size_t count);

/* copy_queue.c: adds a note; to, failure: NULL: none. A dry run waits for space. */
void stk_copy_note(struct stoker_copy *copy, uint32_t kind, const char *name, const char *to,
                   const struct stoker_error *failure);
void stk_copy_note_locked(struct stoker_copy *copy, uint32_t kind, const char *name, const char *to,
                          const struct stoker_error *failure);
void stk_copy_notes_free(struct stoker_copy *copy);
/* Records the failure that the copy returns; after too many, or one that affects all files, the
 * copy stops. With job.lock. */
void stk_copy_fail_locked(struct stoker_copy *copy, int status, const struct stoker_error *error);

/* copy_worker.c: works until there is no more work. */
void stk_copy_run_worker(struct stoker_copy *copy);

int stk_copy_fail_no_buffer(const struct stk_copy_file *file, struct stoker_error *error);

/* copy_destination.c: lists a remote destination once, instead of one request for each name.
 * Owner: the planner's. Bound: STK_COPY_DESTINATION_FILES_MAX names. */
#define STK_COPY_DESTINATION_FILES_MAX (1u << 28)
int stk_copy_destination_list(struct stoker_copy *copy, struct stoker_error *error);
bool stk_copy_destination_find(const struct stoker_copy *copy, const char *name,
                               uint64_t *bytes_out, uint64_t *mtime_ns_out);

/* copy_paths.c: returns the last component of a source, inside path, and its size in bytes_out. */
const char *stk_copy_base_name(const char *path, size_t *bytes_out);
/* Returns the name of a source that is one file: its last component; of an http URL decoded once,
 * if that is a valid name. Free it; NULL: out of memory. */
char *stk_copy_entry_name(const char *source);
/* Returns true if an object key is a safe path below a folder: no "..", no empty component. */
bool stk_copy_is_safe_path(const char *name);
/* Returns true if objects can be written below a URL. */
bool stk_copy_can_write(const char *url);
/* Returns true if a path or URL can be listed. */
bool stk_copy_can_list(const char *path);
/* Joins folder and name; owned by the caller. Returns NULL if there is no memory. */
char *stk_copy_join_path(const char *folder, const char *name);
/* Creates the folders of a local destination, and checks that they are below its root. */
int stk_copy_make_folders(struct stoker_copy *copy, const char *path, struct stoker_error *error);
/* Path of the partial file: next to `to`, and always the same for a source. note: path of the file
 * that has its version and the checksum of each part. */
char *stk_copy_partial_path(const struct stk_copy_file *file, bool note);
/* Returns true if the store copies the object itself (from S3 to S3), without a download. */
bool stk_copy_is_server_side(const struct stk_copy_file *file);
/* A number that depends on the source's version (of a local file: its inode and ctime), the part
 * size, and the start of the machine. */
uint64_t stk_copy_version(const struct stoker_copy *copy, const struct stk_copy_file *file);

#endif
