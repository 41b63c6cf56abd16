/* checkpoint/write/writer.h: writes a file of tensors from copies in bounded memory, hashed, and
 * commits it as a step.
 *
 *   caller: tensors --copy--> blocks of 16 MiB (the pool of the writer) --> queue
 *   threads of the save: block --> SHA-256 of its leaves --> written at its offset, or sent as a
 *                        part --> free block
 *   the thread that finds the queue empty at the end: header with all hashes --> sync --> manifest
 *                        --> one rename, or one conditional request
 *
 * The file is written from all threads at once. Its first bytes, the header, come last: a file
 * without a header is no safetensors file.
 * Owner: the caller; a save holds its writer. Threads: the caller, and those of each save; `locked`
 * of a save with job.lock, that of a writer with its lock; neither is taken with the other held.
 * Memory: blocks of the pool, at most memory_bytes_max, which stay for the next save; the header.
 * Bound: memory_bytes_max; 160 GB in one object of a store. */
#ifndef CHECKPOINT_WRITE_WRITER_H
#define CHECKPOINT_WRITE_WRITER_H

#include "checkpoint/layout/safetensors.h"
#include "checkpoint/layout/step_manifest.h"
#include "checkpoint/place/place.h"
#include "engine/background_job.h"
#include "io/write.h"

#include <pthread.h>
#include <stdatomic.h>

#define STK_WRITER_MEMORY_BYTES_MIN (64ull << 20)
#define STK_WRITER_THREADS_MAX 64u
#define STK_WRITER_UPLOAD_THREADS 16u
#define STK_WRITER_LOCAL_THREADS 8u /* two for a core: one waits for the disk while one hashes */

struct stk_object_url;
struct stk_upload;

/* A save writes its tensors into one file, or those that did not change for some saves into a
 * second one, which later steps share: see shared.c. */
#define STK_SAVE_SHARD 0u
#define STK_SAVE_SHARED 1u
#define STK_SAVE_FILES 2u
#define STK_SHARED_TENSOR_BYTES_MIN (2u << 20) /* has a leaf of its own */
#define STK_SHARED_BYTES_MIN (16u << 20)       /* of all: less is not worth a file */

/* Bytes of a file, at index * STK_SAFETENSORS_BLOCK_BYTES. */
struct stk_checkpoint_block {
    struct stk_checkpoint_block *next;
    uint8_t *data; /* owned; pages */
    uint32_t file; /* of its save */
    uint64_t index;
    size_t bytes;
};

/* The files of a save that is over, and which of their tensors had not changed since the one
 * before. */
struct stk_checkpoint_previous {
    struct stk_safetensors layouts[STK_SAVE_FILES]; /* owned */
    bool *unchanged[STK_SAVE_FILES];                /* owned; by tensor */
};

struct stoker_checkpoint_writer {
    struct stoker_engine *engine; /* held; const after open, as all down to the lock */
    struct stk_checkpoint_place place;
    uint32_t threads, blocks_max;
    uint32_t call_timeout_ms;  /* of a call into the file system or store */
    uint64_t shared_bytes_min; /* STK_SHARED_BYTES_MIN; tests have less */
    _Atomic uint32_t references;
    pthread_mutex_t lock;
    pthread_cond_t freed; /* a block became free; with lock */
    struct {              /* with lock */
        struct stk_checkpoint_block *free;
        uint32_t allocated;
        struct stk_checkpoint_previous *previous; /* owned; NULL: none */
        uint64_t earlier_step_min; /* shared files of steps below are not used: one is damaged */
        uint64_t bytes_per_s_max;  /* 0: no limit */
        uint32_t cpu_percent_max;  /* of all cores; 0: no limit */
        uint32_t changes;          /* of the limits */
        uint64_t rate_turn_ns, cpu_turn_ns; /* when the limits allow the next write */
    } locked;
};

void stk_writer_release(struct stoker_checkpoint_writer *writer);
/* Takes it; NULL is allowed. */
void stk_checkpoint_previous_free(struct stk_checkpoint_previous *previous);
/* Returns a block, or NULL after wait_ms without a free one. */
struct stk_checkpoint_block *stk_writer_take_block(struct stoker_checkpoint_writer *writer,
                                                   uint32_t wait_ms);
/* Allocates blocks, up to so many and the limit of the pool, so that the copy of the next save
 * finds memory that the kernel has provided. Ends early if *stopping becomes true. */
void stk_writer_fill_pool(struct stoker_checkpoint_writer *writer, uint64_t blocks,
                          const _Atomic bool *stopping);
/* Whether not even one block could be allocated. */
bool stk_writer_has_no_memory(struct stoker_checkpoint_writer *writer);
void stk_writer_give_block(struct stoker_checkpoint_writer *writer,
                           struct stk_checkpoint_block *block);
/* CPU time of this thread. */
uint64_t stk_writer_cpu_ns(void);
/* If the CPU time of saves is limited, this thread yields to others of the process from now on. */
void stk_writer_lower_priority(struct stoker_checkpoint_writer *writer);
/* Waits until the limits allow to write so many bytes, after so much CPU time, or *stopping becomes
 * true. */
void stk_writer_throttle(struct stoker_checkpoint_writer *writer, uint64_t bytes, uint64_t cpu_ns,
                         const _Atomic bool *stopping);

/* Where the files of a save go. */
struct stk_checkpoint_sink {
    const struct stk_checkpoint_place *place; /* borrowed */
    uint64_t step;
    uint64_t file_bytes[STK_SAVE_FILES]; /* 0: there is no such file */
    uint32_t rank, ranks;
    char id[STK_PLACE_ID_BYTES_MAX + 1];
    char names[STK_SAVE_FILES][STK_PLACE_FILE_BYTES];
    bool single;                                /* a file without a step */
    char *folder, *final, *lock_path;           /* owned. A folder: .part, the final name */
    char *paths[STK_SAVE_FILES];                /* owned: in .part; a store: the URL */
    struct stk_file_lock *lock;                 /* NULL: none */
    struct stk_output *outputs[STK_SAVE_FILES]; /* NULL: a store, or no such file */
    struct stk_object_url *object;              /* NULL: a folder */
    struct stk_upload *upload;                  /* NULL: a folder, or one request */
    bool links;                  /* the file will be a name of an earlier one: needs no space */
    bool folder_made, file_made; /* file_made: that of a file without a step */
    bool manifest_sent; /* to a store, which may have it although its answer was an error */
};

/* Checks, and makes what the file needs. On failure, abort is due. */
int stk_sink_open(struct stk_checkpoint_sink *sink, struct stoker_error *error);
/* Whether blocks are sent as parts; else in one request, at the end, or to a file. */
static inline bool stk_sink_has_parts(const struct stk_checkpoint_sink *sink)
{
    return sink->upload != NULL;
}
/* Writes bytes of a file at a multiple of the block size (not in a store: at any offset). Any
 * thread. */
int stk_sink_write(struct stk_checkpoint_sink *sink, uint32_t file, uint64_t offset,
                   struct stk_view bytes, struct stoker_error *error);
/* Replaces a file by another name of an earlier one with the same content. After an error it is as
 * before. */
int stk_sink_link(struct stk_checkpoint_sink *sink, uint32_t file, const char *earlier);
/* After all bytes were written: makes the files durable under their names. whole: the bytes of a
 * file that is sent in one request. */
int stk_sink_finish(struct stk_checkpoint_sink *sink, struct stk_view whole,
                    struct stoker_error *error);
/* Removes everything that open and write left. */
void stk_sink_abort(struct stk_checkpoint_sink *sink);
/* Closes what is open. Removes the folder of a save of several ranks that was not committed. */
void stk_sink_close(struct stk_checkpoint_sink *sink);
/* commit.c: makes the files a step. */
int stk_checkpoint_commit_step(const struct stk_checkpoint_place *place,
                               const struct stk_step_manifest *manifest, const char *id,
                               struct stoker_error *error);
/* step_index.c. The bytes of an index of names. */
struct stk_checkpoint_index {
    uint8_t *data; /* owned */
    uint64_t bytes, names;
};
/* Makes the index of a step from the headers of its files. folder: where they are in the place;
 * NULL: the place is the folder of the step. Free data with stk_free. */
int stk_checkpoint_make_index(const struct stk_checkpoint_place *place, const char *folder,
                              struct stoker_engine *engine,
                              const struct stk_step_manifest *manifest,
                              struct stk_checkpoint_index *index, struct stoker_error *error);
/* If the step has many tensors, writes their index and names it in the manifest. Its files are
 * written already. A failure only leaves the index out. */
void stk_checkpoint_index_step(const struct stk_checkpoint_place *place,
                               struct stoker_engine *engine, struct stk_step_manifest *manifest,
                               const char *id);
/* Returns 0 if the step may be written: -EEXIST if it is committed. */
int stk_checkpoint_check_absent(const struct stk_checkpoint_place *place, uint64_t step,
                                struct stoker_error *error);

/* The shared file of an earlier step, which may have the content that is being written. */
struct stk_checkpoint_earlier {
    char *path;            /* owned */
    uint64_t step;         /* that was looked at last: that of the file, if there is one */
    struct stk_file *file; /* owned; NULL: there is none */
    struct stk_safetensors layout;
    bool *skipped; /* owned; by block: was not written, since its hashes are those of this file */
    _Atomic bool differs; /* a block has other hashes: all others are written */
};

/* A call into the file system or store, of a thread of a save. */
enum stk_save_stage { STK_SAVE_OPENS, STK_SAVE_WRITES, STK_SAVE_SYNCS, STK_SAVE_COMMITS };
struct stk_save_call {
    _Atomic uint64_t begin_ns; /* 0: there is none now */
    _Atomic uint32_t stage, file;
};

/* A file of a save. */
struct stk_checkpoint_save_file {
    struct stk_safetensors layout;     /* leaves: each thread writes those of its block */
    const void **sources;              /* owned: data of the tensors, by place; the caller's */
    uint64_t first_block, block_count; /* with tensors: first_block to block_count - 1 */
    uint8_t *header;                   /* owned; the thread that finishes */
    uint8_t root[32];                  /* after the header */
};

struct stoker_checkpoint_save {
    struct stoker_checkpoint_writer *writer; /* held; const after open, as all down to the job */
    /* Reads bytes of the tensor that the caller numbered `source`; NULL: they are in sources. */
    int (*read)(void *context, uint32_t source, uint64_t offset, void *data, uint64_t bytes,
                struct stoker_error *error);
    void *read_context;
    struct stk_checkpoint_save_file files[STK_SAVE_FILES];
    uint32_t file_count;
    uint64_t tensor_counts[STK_SAVE_FILES];
    char *values;        /* owned; NULL: {} */
    uint64_t all_blocks; /* with tensors, of all files */
    struct stk_checkpoint_sink sink;
    struct stk_checkpoint_earlier earlier; /* the thread that opens the sink; then const */
    struct stk_background_job job;
    uint32_t next_file; /* the caller's thread: what it copies next, as the next ones */
    uint64_t next_block, next_tensor;
    struct stk_checkpoint_block *filling; /* the caller's thread: is filled up to fill_at, an offset
                                             in its file; NULL: none */
    uint64_t fill_at;
    bool pieces;       /* the caller copies tensors without data; const after open */
    uint64_t nan, inf; /* that thread; then const */
    _Atomic uint64_t bytes_done;
    struct stk_save_call calls[STK_WRITER_THREADS_MAX]; /* each thread writes its own */
    pthread_cond_t work;                                /* with job.lock */
    struct {                                            /* with job.lock */
        struct stk_checkpoint_block *filled, **tail;
        struct stk_checkpoint_block *held; /* is sent with the header */
        uint64_t blocks_done;
        uint32_t active; /* threads */
        uint32_t busy;   /* those of them that hash a block */
        bool starved; /* the caller waited for a free block: the pool is smaller than the state */
        bool copied, opening, opened, finishing, committed;
        bool hangs; /* a call took longer than call_timeout_ms */
    } locked;
};

/* Stops the threads of a save, and does not wait for that. */
static inline void stk_checkpoint_save_stop(struct stoker_checkpoint_save *save)
{
    stk_background_job_stop(&save->job);
}

/* Before the first copy: tensors are read by a function, on the thread that calls copy, instead of
 * copied from memory. */
static inline void
stk_checkpoint_save_set_reader(struct stoker_checkpoint_save *save,
                               int (*read)(void *context, uint32_t source, uint64_t offset,
                                           void *data, uint64_t bytes, struct stoker_error *error),
                               void *context)
{
    save->read = read;
    save->read_context = context;
}

/* shared.c: which tensors did not change, and what an earlier step has of them. */
/* Marks the tensors that go into the shared file. Returns how many there are. */
size_t stk_shared_choose(struct stoker_checkpoint_writer *writer,
                         const struct stoker_checkpoint_tensor *tensors, size_t count,
                         bool *shared);
/* Compares the files of a finished save with those of the one before, and remembers them. Takes
 * the layouts of the save. */
void stk_shared_remember(struct stoker_checkpoint_save *save);
/* Finds the shared file of an earlier step; without one, save->earlier.file stays NULL. */
void stk_earlier_open(struct stoker_checkpoint_save *save);
void stk_earlier_close(struct stoker_checkpoint_save *save);
/* Whether a block needs no write, since the earlier file has its leaves. Any thread. */
bool stk_earlier_has(struct stoker_checkpoint_save *save, const struct stk_checkpoint_block *block);
/* After all blocks and the header are written: makes the shared file a name of the earlier one, or
 * writes the blocks that were skipped. Each read and write is a call of save_calls.c; the limits of
 * the writer apply. Returns STOKER_ERROR_CLOSED once the save is stopped; STOKER_ERROR_CORRUPT if
 * the earlier file is damaged: later saves of this writer do not use it. */
int stk_earlier_finish(struct stoker_checkpoint_save *save, struct stoker_error *error);

/* save_calls.c. A thread of the save says which call it begins, one at a time. */
void stk_save_calls_enter(struct stoker_checkpoint_save *save, uint32_t thread);
void stk_save_calls_leave(void);
void stk_save_call_begin(const struct stoker_checkpoint_save *save, enum stk_save_stage stage,
                         uint32_t file);
void stk_save_call_end(void);
/* Returns 0; or STOKER_ERROR_TIMEOUT if a call takes longer than call_timeout_ms: then the save has
 * failed, and *error names the file and the stage. Any thread. */
int stk_save_check_calls(struct stoker_checkpoint_save *save, struct stoker_error *error);
/* The error of a save that was closed before it was complete. */
int stk_save_fail_closed(const struct stoker_checkpoint_save *save, struct stoker_error *error);

/* save_run.c: what each thread of a save does. */
int stk_checkpoint_save_run(void *context, uint32_t thread, struct stoker_error *error);

#endif
