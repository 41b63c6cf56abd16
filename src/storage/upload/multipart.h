/* storage/upload/multipart.h: the state of an upload in parts. Private to storage/upload.
 *
 * upload.c chooses the operations of the service. S3's requests are also Google's (multipart.c);
 * gcs_multipart.c has what differs there; Azure has blocks and block lists (azure_blocks.c).
 * Owner: the caller of upload.h. Threads: each part belongs to one thread. Memory: 260 bytes a
 * part. Bound: STK_UPLOAD_PARTS_MAX. */
#ifndef STORAGE_UPLOAD_MULTIPART_H
#define STORAGE_UPLOAD_MULTIPART_H

#include "storage/upload/upload_record.h"
#include "storage/upload/write_request.h"
#include "storage/upload/xml_response.h"

#define STK_UPLOAD_ETAG_BYTES 80u
#define STK_UPLOAD_ID_BYTES 1024u
#define STK_UPLOAD_COMMIT_TIMEOUT_FACTOR 10u /* a server may assemble the object first */

struct stk_upload_part {
    char etag[STK_UPLOAD_ETAG_BYTES]; /* as the server returned it; empty: not sent */
    char left[STK_UPLOAD_ETAG_BYTES]; /* of an unfinished upload, with the right size; bytes not
                                         compared yet */
    char sum[STK_BASE64_BYTES];
    uint64_t crc;
    bool again; /* sent more than once: a try may arrive late */
};

struct stk_upload;

/* What differs between services. */
struct stk_upload_operations {
    /* Finds an unfinished upload of the object that this user's stoker began, if options.resume is
     * set; else begins a new one. */
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
    struct stk_object_url place; /* borrows from the caller's, and from temp_key */
    const char *key;             /* of the object */
    char *temp_key; /* owned: Google, written there first; NULL: written under its own key */
    struct stk_upload_options options;
    uint64_t bytes, part_bytes;
    uint32_t part_count, check;
    char id[STK_UPLOAD_ID_BYTES];
    struct stk_upload_record record; /* of id; S3 and Google */
    /* If a response may have been lost, there may be a second upload. begun_ns: when this one
     * began, by the clock of the store; uncertain_ns: how long requests for it were sent before,
     * else 0. begun_ns 0: unknown; the requests began at requested_ns by the local clock. */
    uint64_t begun_ns, uncertain_ns, requested_ns;
    uint32_t tries;                /* requests that may have begun an upload */
    _Atomic bool lost;             /* the store no longer has it: it was completed or removed */
    struct stk_upload_part *parts; /* each written by one thread */
};

static inline uint64_t stk_upload_part_bytes_at(const struct stk_upload *upload, uint32_t index)
{
    uint64_t begin = index * upload->part_bytes;

    return stk_min(upload->bytes - begin, upload->part_bytes);
}

/* Combines the checksums of the parts; false: there are none to combine. */
bool stk_upload_combine_checksums(const struct stk_upload *upload, struct stk_body_checksum *proof);

/* Compares an object with the sent bytes, by the checksum that the store reports. Returns 1 if
 * they are equal, 0 if they differ or the checksum is unknown, or an error. */
int stk_upload_matches_object(const struct stk_upload *upload, const struct stk_object_url *place,
                              struct stoker_error *error);

/* multipart_list.c: an unfinished upload of a listing. Texts are valid during the call, and empty
 * if the listing has none. */
struct stk_unfinished_upload {
    const char *key, *id, *begun, *check, *class;
};
struct stk_multipart_list {
    struct stk_store *store;
    const struct stk_object_url *place;
    bool exact;       /* only of this key; else all below it */
    uint64_t *now_ns; /* result: the server's clock; unchanged if it reports none; may be NULL */
    int (*found)(void *owner, const struct stk_unfinished_upload *left); /* below 0: stop */
    void *owner;
};
int stk_multipart_list_read(const struct stk_multipart_list *wanted, struct stoker_error *error);

/* multipart_resume.c: finds an unfinished upload of the same object that this user's stoker began
 * and no process works on, and its parts. Sets upload->id, or leaves it empty if there is none. */
int stk_multipart_find(struct stk_upload *upload, struct stoker_error *error);
/* Records that this user's stoker began the upload. */
void stk_multipart_record(struct stk_upload *upload);

/* multipart_abort.c: aborts the upload; once more if a part may arrive after that. */
void stk_upload_abort(const struct stk_upload *upload);
/* Aborts uploads that earlier tries to begin this one left: those without a part from that time. */
void stk_upload_abort_duplicates(const struct stk_upload *upload);

/* multipart.c: S3, and the operations that Google shares with it. create: begins an upload and
 * records it. */
int stk_multipart_create(struct stk_upload *upload, struct stoker_error *error);
int stk_multipart_send_part(struct stk_upload *upload, uint32_t index, struct stk_view body,
                            struct stoker_error *error);
/* Sends the list of parts, after which the store has the object. Sets *request_out (close it with
 * stk_write_request_close; NULL if there was no memory). Returns the status of the request. */
int stk_multipart_complete(struct stk_upload *upload, struct stk_write_request **request_out,
                           struct stoker_error *error);

#endif
