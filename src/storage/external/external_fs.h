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
 * Memory: a block an errand; STK_DESK_PIECE_BYTES each for those that are taken.
 * Bound: those who ask: the depth of queues, and a thread each. */
#ifndef STORAGE_EXTERNAL_EXTERNAL_FS_H
#define STORAGE_EXTERNAL_EXTERNAL_FS_H

#include "io/io.h"
#include "io/listing.h"

/* Larger reads are several errands. So eight threads at a server that gives 300 kB/s have each in
 * the 30 s that a read may take. */
#define STK_DESK_PIECE_BYTES (1u << 20)
#define STK_DESK_URL_BYTES_MAX 4096u
#define STK_DESK_MAP_BYTES_MAX (4ull << 30)

struct stoker_desk;
struct stk_desk_queue;

/* What an errand is for. */
struct stk_wish {
    uint32_t kind;   /* enum stoker_errand_kind */
    const char *url; /* lent for the call */
    uint64_t offset;
    uint8_t *buffer; /* of the asker; written by nobody but him and the answer */
    uint32_t bytes;
};
/* What was answered. */
struct stk_reply {
    struct stk_stat stat;               /* of STAT; without device and inode */
    uint64_t bytes;                     /* of READ: so many came */
    struct stk_listing_builder listing; /* of LIST: the receiver's */
    struct stoker_error error;          /* of a failure */
};

void stk_desk_acquire(struct stoker_desk *desk);
void stk_desk_release(struct stoker_desk *desk); /* NULL is fine */
/* Whether anybody ever took errands. */
bool stk_desk_is_manned(struct stoker_desk *desk);
/* Asks and waits: 0, or what failed. TIMEOUT: for timeout_ms nobody who took it answered, or nobody
 * took it and none was answered. CLOSED: what the thread obeys (io/io.h) says so. */
int stk_desk_call(struct stoker_desk *desk, const struct stk_wish *wish, uint32_t timeout_ms,
                  struct stk_reply *reply_out, struct stoker_error *error);

/* external_queue.c: many READs in flight for one thread. wake is called by any thread, when one
 * ended. */
int stk_desk_queue_open(struct stk_desk_queue **queue_out, struct stoker_desk *desk,
                        void (*wake)(void *owner), void *owner);
/* Takes; NULL is fine. Reads in flight are given up: their buffers are their owners' again. */
void stk_desk_queue_close(struct stk_desk_queue *queue);
/* Of a file of external_file.c. 0: it will be given by take, once. Else it was not taken. */
int stk_desk_queue_submit(struct stk_desk_queue *queue, struct stk_read *read);
/* Those that ended, or whose deadline has passed, before `list`. *count_out: how many. */
struct stk_read *stk_desk_queue_take(struct stk_desk_queue *queue, struct stk_read *list,
                                     uint32_t *count_out);
/* Milliseconds until the next deadline; UINT32_MAX: nothing is in flight. */
uint32_t stk_desk_queue_patience(const struct stk_desk_queue *queue);

/* external_file.c: files of it. A pointer to one has bit 1 set, so that it is told from others. */
struct stk_guest;
static inline bool stk_is_guest(const struct stk_file *file)
{
    return ((uintptr_t)file & 2) != 0;
}
int stk_guest_open(struct stoker_desk *desk, const char *url, uint32_t timeout_ms,
                   struct stk_file **file_out, struct stoker_error *error);
void stk_guest_close(struct stk_file *file);
int stk_guest_stat(struct stoker_desk *desk, const char *url, uint32_t timeout_ms,
                   struct stk_stat *stat_out, struct stoker_error *error);
void stk_guest_stat_file(const struct stk_file *file, struct stk_stat *stat_out);
int stk_guest_list(struct stoker_desk *desk, const char *url, uint32_t timeout_ms,
                   struct stk_listing *listing_out, struct stoker_error *error);
/* Fewer only at the end, or where the file got shorter: then STOKER_ERROR_CHANGED. */
int64_t stk_guest_read(const struct stk_file *file, uint64_t offset, void *buffer, size_t bytes);
bool stk_guest_explain(const struct stk_file *file, int status, struct stoker_error *error_out);
/* Its bytes as memory: pages, to be freed by stk_pages_free. */
int stk_guest_map(const struct stk_file *file, uint8_t **pages_out, uint64_t *bytes_out,
                  struct stoker_error *error);

/* of external_file.c, for external_queue.c */
struct stk_guest_read {
    const char *url;
    uint64_t bytes_left; /* of the file behind offset */
    uint32_t timeout_ms;
};
void stk_guest_about(const struct stk_file *file, uint64_t offset, struct stk_guest_read *read_out);
void stk_guest_acquire(const struct stk_file *file);
/* What became of a read that should have brought `wanted` bytes; keeps why it failed. */
int64_t stk_guest_settle(const struct stk_file *file, int status, const struct stk_reply *reply,
                         uint64_t wanted);

/* external_fs.c, for external_queue.c */
struct stk_errand;
struct stk_errand *stk_errand_new(const struct stk_wish *wish);
/* done: called with the desk's lock, when it is answered or cannot be. */
void stk_errand_start(struct stoker_desk *desk, struct stk_errand *errand,
                      void (*done)(struct stk_errand *errand, void *owner), void *owner);
/* When it will be late; later, if others are answered until then and nobody has taken it. */
uint64_t stk_errand_late_ns(struct stoker_desk *desk, const struct stk_errand *errand,
                            uint64_t asked_ns, uint32_t timeout_ms);
/* Takes it, unless false: its answer is being copied, and done comes at once. */
bool stk_errand_give_up(struct stoker_desk *desk, struct stk_errand *errand);
/* Of one that is done: takes it. */
int stk_errand_end(struct stk_errand *errand, struct stk_reply *reply_out);
void stk_desk_lock(struct stoker_desk *desk);
void stk_desk_unlock(struct stoker_desk *desk);

#endif
