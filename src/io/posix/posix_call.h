/* io/posix/posix_call.h: a call into the kernel that runs on a pool thread and is abandoned at its
 * deadline, since a call on a dead network mount never returns.
 *
 *   new --wait--> done: the caller reads the results --free--> freed
 *           `--deadline--> abandoned: the thread frees it when the call returns
 *
 * Owner: the caller; after the deadline the thread. Threads: the caller, then one of the pool.
 * Memory: one block a call, with the path or the bytes read. Bound: the threads of the pool. */
#ifndef IO_POSIX_POSIX_CALL_H
#define IO_POSIX_POSIX_CALL_H

#include "io/listing.h"
#include "io/posix/posix.h"

#include <sys/stat.h>

enum stk_posix_call_kind {
    STK_POSIX_CALL_OPEN = 1,
    STK_POSIX_CALL_STAT_PATH,
    STK_POSIX_CALL_STAT_FILE,
    STK_POSIX_CALL_LIST,
    STK_POSIX_CALL_READ,
    STK_POSIX_CALL_CLOSE
};

/* One call that may hang, with all that it needs, since its caller may be gone when it returns. */
struct stk_posix_call {
    struct stk_task task;
    uint32_t kind;               /* enum stk_posix_call_kind */
    struct stk_posix_file *file; /* one of its users; NULL: the call is by path */
    int fd, direct_fd;           /* opened by the call */
    uint64_t direct_bytes_min;   /* smaller files are opened without O_DIRECT */
    uint64_t offset;
    size_t bytes;
    int64_t result;
    bool local; /* out of OPEN: the file system is on this machine */
    struct stat stat;
    struct stk_listing_builder builder;
    uint8_t memory[]; /* the path, or the bytes read */
};

/* Returns NULL if there is no memory. path or file may be NULL. The call becomes a user of the
 * file. bytes: of a read. */
struct stk_posix_call *stk_posix_call_new(struct stk_posix *posix, uint32_t kind, const char *path,
                                          struct stk_posix_file *file, size_t bytes);
/* Runs a call and waits for it until read_timeout_ms. Returns its result and sets *call_out, which
 * the caller frees; if the call was abandoned, returns STOKER_ERROR_TIMEOUT and sets *call_out to
 * NULL. call may be NULL: returns -ENOMEM. */
int stk_posix_call_wait(struct stk_posix *posix, struct stk_posix_call *call,
                        struct stk_posix_call **call_out);
void stk_posix_call_free(struct stk_posix_call *call); /* NULL is allowed */

/* Reads in calls of limited size, each with a buffer of its own: so a call that returns after the
 * deadline cannot write into the caller's memory. Returns as stk_io_read_wait does. */
int64_t stk_posix_call_read(struct stk_posix_file *file, uint64_t offset, uint8_t *buffer,
                            size_t bytes);
/* Takes a file and closes it: closing a network file sends a request to its server, so it may hang
 * as well. */
void stk_posix_call_close_file(struct stk_posix_file *file);

#endif
