/* stoker/external.h: requests for URLs that the library has no client for (sftp://...); threads of
 * the caller serve them. */
#ifndef STOKER_EXTERNAL_H
#define STOKER_EXTERNAL_H

#include <stoker/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A queue of requests from engines to threads of the caller, in place of callbacks. The library
 * requests size and kind of a URL, the names below it, and byte ranges. Engines that were opened
 * with it keep it alive. If no thread ever called stoker_external_fs_next(), reads of such URLs
 * fail at once. Any thread. */
struct stoker_external_fs;

enum stoker_external_kind {
    STOKER_EXTERNAL_STAT = 1, /* reply: is_folder, or bytes, mtime_ns, version */
    STOKER_EXTERNAL_LIST,     /* reply: names, name_count */
    STOKER_EXTERNAL_READ,     /* reply: fill the buffer; bytes: how many, fewer only at the end */
};
struct stoker_external_request {
    size_t struct_size;
    uint64_t number; /* identifies the request in stoker_external_fs_reply */
    uint32_t kind;   /* enum stoker_external_kind */
    const char *url; /* valid until the reply */
    uint64_t offset; /* READ */
    uint64_t bytes;  /* READ: requested length, at most 4 MiB */
    void *buffer;    /* READ: valid until the reply; the library does not read it before */
};
struct stoker_external_reply {
    size_t struct_size;
    int status; /* 0; on failure -errno or one of STOKER_ERROR_* */
    uint64_t bytes;
    uint64_t mtime_ns;   /* since 1970; 0: unknown */
    uint64_t version;    /* changes when the file changes (a hash of an ETag); 0: unknown */
    uint8_t is_folder;   /* 1: a folder */
    const char *names;   /* borrowed: for each entry one letter, the name and a NUL. Letters: 'f'
                            file, 'd' folder, 'F' and 'D' a link to one, '-' other. Names with
                            a '/' are ignored */
    uint64_t name_count; /* entries in `names` */
    const char *what, *advice; /* borrowed, on failure; NULL: none */
};

/* Returns 0 and sets *fs_out; -ENOMEM if memory is exhausted. */
STOKER_API int stoker_external_fs_open(struct stoker_external_fs **fs_out,
                                       struct stoker_error *error);
/* Takes ownership; NULL is allowed. Pending requests and waiting stoker_external_fs_next() calls
 * fail with STOKER_ERROR_CLOSED. */
STOKER_API void stoker_external_fs_close(struct stoker_external_fs *fs);
/* Waits for a request. Returns 1 and fills *request_out, which needs a reply; 0 after timeout_ms
 * without a request; STOKER_ERROR_CLOSED if it was closed. */
STOKER_API int stoker_external_fs_next(struct stoker_external_fs *fs, uint32_t timeout_ms,
                                       struct stoker_external_request *request_out,
                                       struct stoker_error *error);
/* Completes a request; the reply is dropped if the request has timed out. Returns 0 on success,
 * STOKER_ERROR_ARGUMENT if struct_size or status is wrong or no such request is pending. */
STOKER_API int stoker_external_fs_reply(struct stoker_external_fs *fs, uint64_t number,
                                        const struct stoker_external_reply *reply);

#ifdef __cplusplus
}
#endif
#endif
