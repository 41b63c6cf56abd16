/* storage/upload/upload.h: writes objects to S3, Google Cloud Storage and Azure: in one request or
 * in parts, by copying within a store, and removes them.
 *
 *   put: bytes --> object
 *   open --> parts, concurrently, in any order --commit--> object
 *        `-- resume: parts of an unfinished upload that match their checksums are not sent again
 *        `--close(abort)--> nothing
 *
 * The old object keeps its name until the new one is complete. The server checks each body by a
 * checksum and refuses one that differs. All requests may be retried: before an error is reported
 * after a lost response, the upload checks whether the request succeeded.
 * Owner: the caller. Threads: any, concurrently (close: alone); all calls wait. Memory: 260 bytes a
 * part; bodies are borrowed. Bound: STK_UPLOAD_PARTS_MAX parts; deadlines of the store. */
#ifndef STORAGE_UPLOAD_UPLOAD_H
#define STORAGE_UPLOAD_UPLOAD_H

#include "storage/object/store.h"

#define STK_UPLOAD_PARTS_MAX 10000u
#define STK_UPLOAD_PART_BYTES_MIN (5u << 20) /* S3's minimum, except for the last part */
#define STK_UPLOAD_BYTES_MAX (5ull << 40)
#define STK_UPLOAD_COPY_BYTES_MAX (5ull << 30) /* in one request */
#define STK_UPLOAD_CONTEXT_BYTES_MAX 4096u
#define STK_UPLOAD_REMOVE_MAX 1000u /* objects in one request */

/* The checksum by which the server checks a body. */
enum stk_upload_checksum {
    STK_UPLOAD_CHECKSUM_AUTO = 0,  /* Amazon: CRC64NVME. A configured endpoint: the SHA-256 of the
                                     signature, which every server checks */
    STK_UPLOAD_CHECKSUM_CRC64NVME, /* stored with the object, too */
    STK_UPLOAD_CHECKSUM_CRC32C,
    STK_UPLOAD_CHECKSUM_SHA256,
    STK_UPLOAD_CHECKSUM_MD5,   /* Content-MD5 */
    STK_UPLOAD_CHECKSUM_GCS,   /* always on Google: CRC32C, stored with the object */
    STK_UPLOAD_CHECKSUM_AZURE, /* always on Azure: CRC64 of each body */
};

struct stk_upload_options { /* texts are borrowed; NULL: none */
    uint32_t check;         /* enum stk_upload_checksum */
    bool if_absent;         /* -EEXIST if there is an object with other bytes */
    bool resume;            /* in parts: continue an unfinished upload of this object that this
                             * user's stoker began, and that no process works on */
    const char *storage_class;
    const char *encryption, *encryption_key; /* "AES256", "aws:kms"; key id of KMS */
    const char *encryption_context;          /* of KMS: JSON in base64 */
    uint64_t part_bytes; /* 0: STK_STORE_RANGE_BYTES; more if there were too many parts */
    /* The attributes of the source of a copy, for this store; borrowed; NULL: none. */
    const struct stk_object_attributes *attributes;
    uint64_t mtime_ns; /* of a local file, kept as metadata, as rclone does; 0: none */
};

/* Reads the attributes of version *info of an object, and its tags if both are of S3, for a copy at
 * another object that is written in parts, or by another store. Free it with stk_free. */
int stk_object_attributes_read(struct stk_store *store, const struct stk_object_url *from,
                               const struct stk_object_info *info, const struct stk_object_url *to,
                               struct stk_object_attributes **attributes_out,
                               struct stoker_error *error);

/* Writes an object of at most 5 GiB in one request. */
int stk_upload_put(struct stk_store *store, const struct stk_object_url *object,
                   struct stk_view body, const struct stk_upload_options *options,
                   struct stoker_error *error);
/* Writes a copy of version *info of an object in the same store; the server copies the bytes. */
int stk_upload_copy(struct stk_store *store, const struct stk_object_url *from,
                    const struct stk_object_info *info, const struct stk_object_url *object,
                    const struct stk_upload_options *options, struct stoker_error *error);

/* Sets *text_out (free with stk_free) to a KMS encryption context in base64. json: an object of
 * strings. Returns 0 on success, STOKER_ERROR_FORMAT, STOKER_ERROR_LIMIT above
 * STK_UPLOAD_CONTEXT_BYTES_MAX, -ENOMEM. */
int stk_upload_encryption_context(const char *json, char **text_out, struct stoker_error *error);

/* S3: some servers (Ceph 16) ignore tags when an upload in parts begins: writes them if the object
 * has none now. */
int stk_object_attributes_write_tags(struct stk_store *store, const struct stk_object_url *object,
                                     const struct stk_object_attributes *attributes,
                                     struct stoker_error *error);

struct stk_upload;

/* Begins an upload in parts of an object with `bytes`, more than 0. Sets *upload_out. */
int stk_upload_open(struct stk_upload **upload_out, struct stk_store *store,
                    const struct stk_object_url *object, uint64_t bytes,
                    const struct stk_upload_options *options, struct stoker_error *error);
uint32_t stk_upload_part_count(const struct stk_upload *upload);
uint64_t stk_upload_part_bytes(const struct stk_upload *upload); /* of all parts but the last */
/* Sends part `index` (from 0) with all of its bytes. Returns 0 on success, or 1 if the store had
 * it already. */
int stk_upload_send_part(struct stk_upload *upload, uint32_t index, struct stk_view body,
                         struct stoker_error *error);
int stk_upload_copy_part(struct stk_upload *upload, uint32_t index,
                         const struct stk_object_url *from, const struct stk_object_info *info,
                         struct stoker_error *error);
/* After all parts: makes them an object. */
int stk_upload_commit(struct stk_upload *upload, struct stoker_error *error);
/* Whether a part or the commit failed because the store no longer has the upload: then everything
 * can be sent again in a new one. */
bool stk_upload_is_gone(const struct stk_upload *upload);
/* Whether the store has none of its parts, so that there is nothing to resume. */
bool stk_upload_is_empty(const struct stk_upload *upload);
/* Takes ownership; NULL is allowed. abort: removes the parts from the store; else they stay (and
 * are paid for), and a later upload can resume. */
void stk_upload_close(struct stk_upload *upload, bool abort);

/* Removes an object. Returns 0 also if there is none. */
int stk_upload_remove(struct stk_store *store, const struct stk_object_url *object,
                      struct stoker_error *error);
/* The same for `count` objects in the bucket of *object, at most STK_UPLOAD_REMOVE_MAX. keys: each
 * ends with a NUL. */
int stk_upload_remove_many(struct stk_store *store, const struct stk_object_url *object,
                           const char *keys, uint32_t count, struct stoker_error *error);
/* Whether the store of an object can be written. */
static inline bool stk_upload_is_supported(const struct stk_object_url *object)
{
    return object->kind == STK_OBJECT_URL_S3 || object->kind == STK_OBJECT_URL_GCS ||
           object->kind == STK_OBJECT_URL_AZURE;
}
/* Aborts the unfinished uploads of a key, and of all keys below it, that are at least age_ns old by
 * the server's clock, and counts them. Not for Azure. */
int stk_upload_abort_older(struct stk_store *store, const struct stk_object_url *object,
                           uint64_t age_ns, uint64_t *count_out, struct stoker_error *error);

#endif
