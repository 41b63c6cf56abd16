/* storage/external/external_fs.h: the external file system: requests for URLs that the library has
 * no client for (sftp://...). Threads of the library's caller take the requests and reply to them.
 *
 *   call --> waiting --next--> taken --reply--> copied --> done: to the caller of call
 *                |                `-deadline--> abandoned: the reply is dropped
 *                `-deadline--> ends at once
 *
 * A request is taken with a buffer of its own, from which the reply is copied: the buffer of an
 * abandoned read may be gone by then. So the number of threads that take requests limits the
 * memory. Owner: the opener, and each vfs that uses it: the last one frees it. Threads: any.
 * Memory: one block a request, and STK_EXTERNAL_FS_READ_BYTES for each that is taken.
 * Bound: the depth of queues, and one request for each thread that waits. */
#ifndef STORAGE_EXTERNAL_EXTERNAL_FS_H
#define STORAGE_EXTERNAL_EXTERNAL_FS_H

#include "io/io.h"
#include "io/listing.h"

/* A larger read is several requests. Eight threads that share 300 kB/s of a server then finish each
 * request within the 30 s of a read. */
#define STK_EXTERNAL_FS_READ_BYTES (1u << 20)
#define STK_EXTERNAL_FS_URL_BYTES_MAX 4096u
#define STK_EXTERNAL_FS_MAP_BYTES_MAX (4ull << 30)
#define STK_EXTERNAL_FS_ROUND_TRIP_BYTES (1u << 20) /* see struct stk_file_ops */

struct stoker_external_fs;
struct stk_external_queue;

/* The parameters of a request. */
struct stk_external_call {
    uint32_t kind;   /* enum stoker_external_kind */
    const char *url; /* used during the call */
    uint64_t offset;
    uint8_t *buffer; /* of the caller; only the caller and the reply write it */
    uint32_t bytes;
};
/* A reply. */
struct stk_external_reply {
    struct stk_stat stat;               /* of STAT; without device and inode */
    uint64_t bytes;                     /* of READ: the bytes read */
    struct stk_listing_builder listing; /* of LIST; owned by the receiver */
    struct stoker_error error;          /* of a failure */
};

void stk_external_fs_retain(struct stoker_external_fs *fs);
void stk_external_fs_release(struct stoker_external_fs *fs); /* NULL is allowed */
/* Returns true if a thread has ever waited for requests, and the file system is not closed. */
bool stk_external_fs_has_server(struct stoker_external_fs *fs);
/* Sends a request and waits for the reply. Returns 0 or the status of the failure; TIMEOUT if the
 * thread that took it did not reply within timeout_ms, or if no thread took it and there was no
 * reply to another request for timeout_ms; CLOSED if the cancel flag of this thread (io/io.h) was
 * set. */
int stk_external_fs_call(struct stoker_external_fs *fs, const struct stk_external_call *call,
                         uint32_t timeout_ms, struct stk_external_reply *reply_out,
                         struct stoker_error *error);

/* external_queue.c: many READs in flight for one thread. Any thread calls wake when one of them
 * ended. */
int stk_external_queue_open(struct stk_external_queue **queue_out, struct stoker_external_fs *fs,
                            void (*wake)(void *owner), void *owner);
/* Takes; NULL is allowed. Abandons the reads in flight: their buffers are their owners' again. */
void stk_external_queue_close(struct stk_external_queue *queue);
/* Submits a read of an external file. Returns 0 if reap will return it, else -ENOMEM. */
int stk_external_queue_submit(struct stk_external_queue *queue, struct stk_read *read);
/* Adds the reads that ended, or whose deadline has passed, to the front of `list`. *count_out: how
 * many. */
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

/* external_file.c, for external_queue.c */
struct stk_external_file_info {
    const char *url;
    uint64_t bytes_left; /* of the file after offset */
    uint32_t timeout_ms;
};
void stk_external_file_get_info(const struct stk_file *file, uint64_t offset,
                                struct stk_external_file_info *read_out);
void stk_external_file_retain(const struct stk_file *file);
/* Returns the result of a read of `wanted` bytes, and stores the error of a failure in the file. */
int64_t stk_external_file_finish_read(const struct stk_file *file, int status,
                                      const struct stk_external_reply *reply, uint64_t wanted);

/* external_fs.c, for external_queue.c */
struct stk_external_request;
struct stk_external_request *stk_external_request_new(const struct stk_external_call *call);
/* done: called with the lock of the file system, when there is a reply, or there will be none. */
void stk_external_request_start(struct stoker_external_fs *fs, struct stk_external_request *request,
                                void (*done)(struct stk_external_request *request, void *owner),
                                void *owner);
/* The deadline of a request. As long as no thread has taken it, replies to other requests extend
 * it. */
uint64_t stk_external_request_deadline_ns(struct stoker_external_fs *fs,
                                          const struct stk_external_request *request,
                                          uint64_t sent_ns, uint32_t timeout_ms);
/* Takes the request. Returns false if its reply is being copied: then done is called at once. */
bool stk_external_request_abandon(struct stoker_external_fs *fs,
                                  struct stk_external_request *request);
/* Takes a request that is done, and returns its status. */
int stk_external_request_end(struct stk_external_request *request,
                             struct stk_external_reply *reply_out);
void stk_external_fs_lock(struct stoker_external_fs *fs);
void stk_external_fs_unlock(struct stoker_external_fs *fs);

#endif
