/* tools/copy/copy.h: the parts of the room: what is copied, who does it, and names.
 *
 *   planner: walks --names--> files --a bounded queue--> workers
 *   worker: a small file, or a part of a large one --last part--> commit
 *   a large file for this machine, or of a checksum that is made in order: parts come in any order,
 *   and wait for their turn to be summed and written
 *
 * Each unit of work waits in the file system or for an answer, so each has a thread; how many are
 * in flight is bounded by workers and, of parts, by memory.
 * Owner: struct stoker_copy. Threads: planner, workers, the caller; `locked` with its lock.
 * Memory: a block a file waiting, a buffer of at most part_bytes a worker.
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
#define STK_COPY_SMALL_BYTES (1u << 20) /* a buffer that each worker may have beside the parts */
#define STK_COPY_PATH_BYTES_MAX (2 * STK_WALK_PATH_BYTES_MAX)
#define STK_COPY_FAILURES_MAX 100u /* then the rest is left alone */

/* A file on its way, or names to be removed. */
struct stk_destination_file {
    char *name; /* owned */
    uint64_t bytes, mtime_ns;
};

struct stk_copy_file {
    struct stk_copy_file *next;
    char *from, *to; /* owned; to: NULL of names to be removed */
    uint64_t bytes, mtime_ns, version;
    char *keys; /* owned: of objects to be removed, NUL-ended, one after the other */
    uint32_t key_count;
    char hash[72]; /* of what has its size at the destination: if it has this one, too, it stays */
    /* Of one with parts; const once it is in the list of open ones: */
    struct stk_file *source;
    struct stk_object_url *from_object,
        *to_object; /* NULL: of this machine, or brought by errands */
    struct stk_object_info info;
    /* The source's checksum, where it has to be made in order; of whoever has the turn. */
    struct stk_composite_checksum *checksum;
    struct stk_store *store;        /* lent: the source's */
    struct stoker_error *error;     /* lent, while whole asks */
    bool in_order, checksum_failed; /* parts take turns; it is not as its checksum says */
    struct stk_upload *upload;
    struct stk_output *out;
    struct stk_output *state_file; /* beside it: what is written; NULL: nobody goes on with it */
    char *part_path;               /* owned: where it is written */
    uint64_t part_bytes;
    uint32_t part_count, parts_reused;         /* kept: of an earlier run, the first ones */
    _Atomic uint64_t bytes_done, bytes_reused; /* of the copy's */
    bool upload_lost, restarted;   /* the store lost its upload; it was begun again since it did */
    struct {                       /* with the copy's lock */
        uint32_t next, done, turn; /* parts: to be handed out; done; to be written next */
        bool failed;
        bool told;    /* and counted */
        bool refused; /* and the same would fail again: what was sent is removed */
    } locked;
};

struct stoker_copy {
    struct stoker_engine *engine; /* held; const after open, as all down to the threads */
    struct stk_io *io;
    struct stoker_copy_options options;
    struct stk_upload_options upload;
    char **sources, *destination; /* owned */
    bool remote, folder;          /* the destination: of a store; names go below it */
    uint64_t boot;                /* another after each start of the machine */
    uint64_t reserved;
    uint32_t worker_count, part_slots;
    struct stk_background_job job;      /* thread 0 is the planner, the others are workers */
    char root[STK_COPY_PATH_BYTES_MAX]; /* local: the destination without links; of the planner */
    struct stk_key_set names;           /* of the planner: what was copied */
    struct stk_key_set other_names;     /* of the planner: links and others that the source has */
    struct stk_destination_file
        *destination_files; /* of the planner: owned; what the destination has, by name */
    uint64_t destination_count, destination_capacity;
    bool keep_names;
    _Atomic bool hard_stop; /* after job.stopping ended transfers: ends the clean-up, too */
    _Atomic uint64_t files, bytes, files_done, bytes_done, files_kept, bytes_kept;
    _Atomic uint64_t files_removed, files_failed, links_left_out, files_spared;
    _Atomic uint32_t odd_etags; /* objects whose ETag was no MD5, though it looks like one */
    pthread_mutex_t folders_lock;
    struct stk_key_set folders;              /* that are made; with folders_lock */
    pthread_cond_t work, turn, queue_space;  /* with job.lock */
    struct {                                 /* under job.lock */
        struct stk_copy_file *first, **last; /* waiting */
        uint32_t waiting;
        struct stk_copy_file *open;             /* with parts left, or in flight */
        uint32_t parts_in_flight, active;       /* workers at a file */
        uint8_t *buffers[STK_COPY_WORKERS_MAX]; /* of part_bytes, free */
        uint32_t buffer_count;
        bool planned, listed;
    } locked;
};

/* copy_plan.c: the planner: 0 or a failure that ends all. */
int stk_copy_plan(struct stoker_copy *copy, struct stoker_error *error);
/* After all is copied: what the source does not have. */
int stk_copy_remove_extra(struct stoker_copy *copy, struct stoker_error *error);
/* Takes file; waits for room. CLOSED: it is stopped. */
int stk_copy_queue_push(struct stoker_copy *copy, struct stk_copy_file *file);
struct stk_copy_file *stk_copy_file_new(const char *from, const char *to);
void stk_copy_file_free(struct stk_copy_file *file);
/* It was there, and stays. */
void stk_copy_count_skipped(struct stoker_copy *copy, uint64_t bytes);

/* copy_remove.c */
int stk_copy_remove(struct stoker_copy *copy, const char *path, struct stoker_error *error);
int stk_copy_remove_keys(struct stoker_copy *copy, struct stk_copy_file *file,
                         struct stoker_error *error);
int stk_copy_remove_walk(struct stoker_copy *copy, struct stk_walk *walk, const char *root,
                         bool extra, struct stoker_error *error);

/* copy_file.c: a small one whole; buffer of at least its bytes. */
int stk_copy_file_small(struct stoker_copy *copy, struct stk_copy_file *file, uint8_t *buffer,
                        struct stoker_error *error);
int stk_copy_file_begin(struct stoker_copy *copy, struct stk_copy_file *file,
                        struct stoker_error *error);
int stk_copy_file_part(struct stoker_copy *copy, struct stk_copy_file *file, uint32_t index,
                       uint8_t *buffer, struct stoker_error *error);
/* Whether the same command may get on where this failed: what was sent stays for it. */
bool stk_copy_error_is_resumable(int status);
/* All of a part of the source; CHANGED: it is not there any more. */
int stk_copy_file_read(struct stoker_copy *copy, struct stk_copy_file *file, uint64_t offset,
                       struct stk_view *part, struct stoker_error *error);
/* After all parts are done or one failed: commits, or cleans up. */
int stk_copy_file_end(struct stoker_copy *copy, struct stk_copy_file *file,
                      struct stoker_error *error);

/* copy_checksum.c: the source's checksum, where it is made of its bytes in order: by whoever has
 * the turn. All do nothing where there is none. */
int stk_copy_checksum_open(struct stoker_copy *copy, struct stk_copy_file *file,
                           struct stoker_error *error);
int stk_copy_checksum_add(struct stk_copy_file *file, struct stk_view bytes,
                          struct stoker_error *error);
/* After all was added. CORRUPT: it is wrong. body: all of it; NULL: it is read again, where that is
 * needed. */
int stk_copy_checksum_verify(struct stoker_copy *copy, struct stk_copy_file *file,
                             const struct stk_view *body, struct stoker_error *error);
/* In the turn of the first part that comes: what an earlier run left is before it. */
int stk_copy_checksum_resume(struct stoker_copy *copy, struct stk_copy_file *file,
                             struct stoker_error *error);
/* All of it, of what an earlier run left. */
bool stk_copy_read_partial(struct stoker_copy *copy, struct stk_file *left, uint64_t offset,
                           uint8_t *buffer, uint64_t bytes);
/* 1: what lies at the destination has the file's hash; 0: it has not, or cannot be read; CLOSED: it
 * was stopped. */
int stk_copy_destination_matches(struct stoker_copy *copy, const struct stk_copy_file *file,
                                 struct stk_view buffer);
int stk_copy_fail_no_buffer(const struct stk_copy_file *file, struct stoker_error *error);

/* copy_destination.c: what lies at a destination that is far: listed once, instead of asked for by
 * name.
 * Owner: the planner's. Bound: STK_COPY_DESTINATION_FILES_MAX names. */
#define STK_COPY_DESTINATION_FILES_MAX (1u << 28)
int stk_copy_destination_list(struct stoker_copy *copy, struct stoker_error *error);
bool stk_copy_destination_find(const struct stoker_copy *copy, const char *name,
                               uint64_t *bytes_out, uint64_t *mtime_ns_out);

/* copy_paths.c: what a source's last part is called; lent by path. bytes_out: of it. */
const char *stk_copy_base_name(const char *path, size_t *bytes_out);
/* Whether a name of a store can be a path below a folder: no "..", no empty part. */
bool stk_copy_is_safe_path(const char *name);
/* Whether objects can be written below a URL. */
bool stk_copy_can_write(const char *url);
/* Whether what lies below can be told. */
bool stk_copy_can_list(const char *path);
/* Destination and name, owned by the caller; NULL: no memory. */
char *stk_copy_join_path(const char *folder, const char *name);
/* Makes the folders of a local destination, and checks that they lie below its root. */
int stk_copy_make_folders(struct stoker_copy *copy, const char *path, struct stoker_error *error);
/* Where a file is written: beside `to`, one name for all that is ever copied from `from`. note:
 * where it stands of which version it is, and the sum of each part. */
char *stk_copy_partial_path(const struct stk_copy_file *file, bool note);
/* Whether the store copies it by itself, so that no byte of it comes here: from S3 to S3. */
bool stk_copy_is_server_side(const struct stk_copy_file *file);
/* Another number of another source, part size, and start of the machine. */
uint64_t stk_copy_version(const struct stoker_copy *copy, const struct stk_copy_file *file);

#endif
