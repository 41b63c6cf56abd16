/* storage/external/external_fs.h: errands that the caller of the library runs: what lies behind
 * URLs that no store of ours has. The library asks, threads of the caller take the errands and
 * answer.
 *
 *   asked --> waiting --next--> taken --answer--> copied --> done: to who asked
 *                |                `-deadline--> left: what is answered is dropped
 *                `-deadline--> given back at once
 *
 * Memory for bytes is taken with the errand, and copied from when it is answered: who asked may be
 * gone by then. So it is bounded by the threads that take errands.
 * Owner: the opener, and every route that was given it: the last one frees it. Threads: any.
 * Memory: a block an errand; STK_EXTERNAL_FS_READ_BYTES each for those that are taken.
 * Bound: those who ask: the depth of queues, and a thread each. */
#ifndef STORAGE_EXTERNAL_EXTERNAL_FS_H
#define STORAGE_EXTERNAL_EXTERNAL_FS_H

#include "io/io.h"
#include "io/listing.h"

/* Larger reads are several errands. So eight threads at a server that gives 300 kB/s have each in
 * the 30 s that a read may take. */
#define STK_EXTERNAL_FS_READ_BYTES (1u << 20)
#define STK_EXTERNAL_FS_URL_BYTES_MAX 4096u
#define STK_EXTERNAL_FS_MAP_BYTES_MAX (4ull << 30)
#define STK_EXTERNAL_FS_ROUND_TRIP_BYTES (1u << 20) /* see struct stk_file_ops */

struct stoker_external_fs;
struct stk_external_queue;

/* What an errand is for. */
struct stk_external_call {
    uint32_t kind;   /* enum stoker_external_kind */
    const char *url; /* lent for the call */
    uint64_t offset;
    uint8_t *buffer; /* of the asker; written by nobody but him and the answer */
    uint32_t bytes;
};
/* What was answered. */
struct stk_external_reply {
    struct stk_stat stat;               /* of STAT; without device and inode */
    uint64_t bytes;                     /* of READ: so many came */
    struct stk_listing_builder listing; /* of LIST: the receiver's */
    struct stoker_error error;          /* of a failure */
};

void stk_external_fs_retain(struct stoker_external_fs *fs);
void stk_external_fs_release(struct stoker_external_fs *fs); /* NULL is fine */
/* Whether anybody ever took errands. */
bool stk_external_fs_has_server(struct stoker_external_fs *fs);
/* Asks and waits: 0, or what failed. TIMEOUT: for timeout_ms nobody who took it answered, or nobody
 * took it and none was answered. CLOSED: what the thread obeys (io/io.h) says so. */
int stk_external_fs_call(struct stoker_external_fs *fs, const struct stk_external_call *call,
                         uint32_t timeout_ms, struct stk_external_reply *reply_out,
                         struct stoker_error *error);

/* external_queue.c: many READs in flight for one thread. wake is called by any thread, when one
 * ended. */
int stk_external_queue_open(struct stk_external_queue **queue_out, struct stoker_external_fs *fs,
                            void (*wake)(void *owner), void *owner);
/* Takes; NULL is fine. Reads in flight are given up: their buffers are their owners' again. */
void stk_external_queue_close(struct stk_external_queue *queue);
/* Of a file of external_file.c. 0: it will be given by take, once. Else it was not taken. */
int stk_external_queue_submit(struct stk_external_queue *queue, struct stk_read *read);
/* Those that ended, or whose deadline has passed, before `list`. *count_out: how many. */
struct stk_read *stk_external_queue_reap(struct stk_external_queue *queue, struct stk_read *list,
                                         uint32_t *count_out);
/* Milliseconds until the next deadline; UINT32_MAX: nothing is in flight. */
uint32_t stk_external_queue_timeout_ms(const struct stk_external_queue *queue);

/* external_file.c: files of it, with the operations of struct stk_file_ops. */
extern const struct stk_file_ops stk_external_file_ops;
static inline bool stk_file_is_external(const struct stk_file *file)
{
    return file->ops == &stk_external_file_ops;
}
int stk_external_file_open(struct stoker_external_fs *fs, const char *url, uint32_t timeout_ms,
                           struct stk_file **file_out, struct stoker_error *error);
void stk_external_file_close(struct stk_file *file);
int stk_external_file_stat_url(struct stoker_external_fs *fs, const char *url, uint32_t timeout_ms,
                               struct stk_stat *stat_out, struct stoker_error *error);
int stk_external_file_stat(struct stk_file *file, struct stk_stat *stat_out,
                           struct stoker_error *error);
int stk_external_file_list(struct stoker_external_fs *fs, const char *url, uint32_t timeout_ms,
                           struct stk_listing *listing_out, struct stoker_error *error);
/* Returns fewer bytes only at the end of the file; STOKER_ERROR_CHANGED if the file became shorter.
 */
int64_t stk_external_file_read(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes);
bool stk_external_file_last_error(struct stk_file *file, int status,
                                  struct stoker_error *error_out);
/* Reads the whole file into pages, which the caller frees with stk_pages_free. */
int stk_external_file_map(struct stk_file *file, uint8_t **pages_out, uint64_t *bytes_out,
                          struct stoker_error *error);

/* of external_file.c, for external_queue.c */
struct stk_external_file_info {
    const char *url;
    uint64_t bytes_left; /* of the file behind offset */
    uint32_t timeout_ms;
};
void stk_external_file_get_info(const struct stk_file *file, uint64_t offset,
                                struct stk_external_file_info *read_out);
void stk_external_file_retain(const struct stk_file *file);
/* What became of a read that should have brought `wanted` bytes; keeps why it failed. */
int64_t stk_external_file_finish_read(const struct stk_file *file, int status,
                                      const struct stk_external_reply *reply, uint64_t wanted);

/* external_fs.c, for external_queue.c */
struct stk_external_request;
struct stk_external_request *stk_external_request_new(const struct stk_external_call *call);
/* done: called with the desk's lock, when it is answered or cannot be. */
void stk_external_request_start(struct stoker_external_fs *fs, struct stk_external_request *request,
                                void (*done)(struct stk_external_request *request, void *owner),
                                void *owner);
/* When it will be late; later, if others are answered until then and nobody has taken it. */
uint64_t stk_external_request_deadline_ns(struct stoker_external_fs *fs,
                                          const struct stk_external_request *request,
                                          uint64_t asked_ns, uint32_t timeout_ms);
/* Takes it, unless false: its answer is being copied, and done comes at once. */
bool stk_external_request_abandon(struct stoker_external_fs *fs,
                                  struct stk_external_request *request);
/* Of one that is done: takes it. */
int stk_external_request_end(struct stk_external_request *request,
                             struct stk_external_reply *reply_out);
void stk_external_fs_lock(struct stoker_external_fs *fs);
void stk_external_fs_unlock(struct stoker_external_fs *fs);

#endif
