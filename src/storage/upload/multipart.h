/* storage/upload/multipart.h: an object that is written by parts, as the room's files share it.
 *
 * S3's words are Google's, too (multipart.c); what differs there is in gcs_multipart.c; Azure has
 * blocks and their list (azure_blocks.c).
 * Owner: the caller of upload.h. Threads: a part is one thread's. Memory: 260 bytes a part.
 * Bound: STK_UPLOAD_PARTS_MAX. */
#ifndef STORAGE_UPLOAD_MULTIPART_H
#define STORAGE_UPLOAD_MULTIPART_H

#include "storage/upload/write_request.h"
#include "storage/upload/xml_response.h"

#define STK_UPLOAD_ETAG_BYTES 80u
#define STK_UPLOAD_ID_BYTES 1024u
#define STK_UPLOAD_COMMIT_TIMEOUT_FACTOR 10u /* servers may join the parts first */

struct stk_upload_part {
    char etag[STK_UPLOAD_ETAG_BYTES]; /* as the server told; empty: it is not there */
    char left[STK_UPLOAD_ETAG_BYTES]; /* of an earlier run, of the right size; not proven yet */
    char sum[STK_BASE64_BYTES];
    uint64_t crc;
    bool again; /* it was sent more than once: a try may come there late */
};

struct stk_upload;

/* What differs between services. */
struct stk_upload_operations {
    /* Finds an unfinished upload of the object if options.resume is set, else begins a new one. */
    int (*begin)(struct stk_upload *upload, struct stoker_error *error);
    /* As stk_upload_send_part and stk_upload_commit. */
    int (*send_part)(struct stk_upload *upload, uint32_t index, struct stk_view body,
                     struct stoker_error *error);
    int (*commit)(struct stk_upload *upload, struct stoker_error *error);
};
extern const struct stk_upload_operations stk_multipart_operations;
/* Completing an upload has no condition there: with if_absent the object is written under another
 * name and copied to its own by the store. */
extern const struct stk_upload_operations stk_gcs_multipart_operations;
/* The name of a block has its number and CRC64, so blocks of an earlier run can be checked by their
 * names. The store removes uncommitted blocks after a week. */
extern const struct stk_upload_operations stk_azure_blocks_operations;

struct stk_upload {
    const struct stk_upload_operations *operations;
    struct stk_store *store;
    struct stk_object_url place; /* lends from the caller's, and from `beside` */
    const char *key;             /* the object's; Google's conditional ones are written beside it */
    char *temp_key;              /* owned; NULL: it is written at its own name */
    struct stk_upload_options options;
    uint64_t bytes, part_bytes;
    uint32_t part_count, check;
    char id[STK_UPLOAD_ID_BYTES];
    /* When the store began it, by its clock, and for how long it was asked to before: 0 but where
     * an answer may have been lost, and there may be two of it. begun_ns 0: it was asked to at
     * asked_ns, by ours, and did not tell. */
    uint64_t begun_ns, uncertain_ns, asked_ns;
    uint32_t tries;                /* such as may have begun one */
    _Atomic bool lost;             /* the store says that there is none: it was ended, or removed */
    struct stk_upload_part *parts; /* each written by one thread */
};

static inline uint64_t stk_upload_part_bytes_at(const struct stk_upload *upload, uint32_t index)
{
    uint64_t begin = index * upload->part_bytes;

    return stk_min(upload->bytes - begin, upload->part_bytes);
}

/* The sum of the whole out of those of the parts; false: there is none. */
bool stk_upload_combine_checksums(const struct stk_upload *upload, struct stk_body_checksum *proof);

/* By the checksum of the whole that a store keeps with an object. 1: what is at the place is what
 * was sent; 0: it is something else, or nobody can tell; or the error. */
int stk_upload_matches_object(const struct stk_upload *upload, const struct stk_object_url *place,
                              struct stoker_error *error);

/* multipart_list.c: an upload that nobody ended, as a listing tells it: texts are lent, and empty
 * where nothing is told. */
struct stk_unfinished_upload {
    const char *key, *id, *begun, *check, *class;
};
struct stk_multipart_list {
    struct stk_store *store;
    const struct stk_object_url *place;
    bool exact;       /* of this key only; else all below it */
    uint64_t *now_ns; /* told: the server's clock; left alone where it tells none; NULL */
    int (*found)(void *owner, const struct stk_unfinished_upload *left); /* below 0 ends it */
    void *owner;
};
int stk_multipart_list_read(const struct stk_multipart_list *wanted, struct stoker_error *error);

/* multipart_abort.c: aborts the upload, again where a part may come behind that. */
void stk_upload_abort(const struct stk_upload *upload);
/* Aborts those that tries to begin this one have left: begun meanwhile, and without a part. */
void stk_upload_abort_duplicates(const struct stk_upload *upload);

/* multipart.c: S3, and what Google shares with it. */
int stk_multipart_begin(struct stk_upload *upload, struct stoker_error *error);
int stk_multipart_send_part(struct stk_upload *upload, uint32_t index, struct stk_view body,
                            struct stoker_error *error);
/* Sends the list of parts, after which the store has the object. Sets *request_out (close it with
 * stk_write_request_close; NULL if there was no memory). Returns the status of the request. */
int stk_multipart_complete(struct stk_upload *upload, struct stk_write_request **request_out,
                           struct stoker_error *error);

#endif
