/* storage/upload/upload.h: objects written to S3, Google's and Azure's stores: whole or by parts,
 * copied within S3, removed.
 *
 *   put: bytes --> object
 *   open --> parts, side by side, in any order --commit--> object
 *        `-- of an upload that a killed run left: parts that are there and proven are kept
 *        `--abort--> nothing
 *
 * A name holds the old object until the new one is whole. What arrives is proven: the server checks
 * each body by its hash, and refuses what differs. All may be tried again: a try whose answer was
 * lost is looked for before it is called a failure.
 * Owner: the caller. Threads: any, side by side (close: alone); all calls wait. Memory: 260 bytes a
 * part; bodies are lent. Bound: STK_UPLOAD_PARTS_MAX parts; deadlines of the store. */
#ifndef STORAGE_UPLOAD_UPLOAD_H
#define STORAGE_UPLOAD_UPLOAD_H

#include "storage/object/store.h"

#define STK_UPLOAD_PARTS_MAX 10000u
#define STK_UPLOAD_PART_BYTES_MIN (5u << 20) /* but the last: S3's bound */
#define STK_UPLOAD_BYTES_MAX (5ull << 40)
#define STK_UPLOAD_COPY_BYTES_MAX (5ull << 30) /* of one request */
#define STK_UPLOAD_CONTEXT_BYTES_MAX 4096u
#define STK_UPLOAD_REMOVE_MAX 1000u /* objects of one request */

/* How the server checks a body. */
enum stk_upload_checksum {
    STK_UPLOAD_CHECKSUM_AUTO = 0,  /* Amazon: CRC64NVME. A server of one's own: the signature's
                            SHA-256, which any checks */
    STK_UPLOAD_CHECKSUM_CRC64NVME, /* of the whole object, too, and kept with it */
    STK_UPLOAD_CHECKSUM_CRC32C,
    STK_UPLOAD_CHECKSUM_SHA256,
    STK_UPLOAD_CHECKSUM_MD5,   /* Content-MD5, the oldest */
    STK_UPLOAD_CHECKSUM_GCS,   /* theirs, whatever is asked for: CRC32C, also of the whole */
    STK_UPLOAD_CHECKSUM_AZURE, /* CRC64 of each body */
};

struct stk_upload_options { /* texts are lent; NULL: none */
    uint32_t check;         /* enum stk_upload_checksum */
    bool if_absent;         /* -EEXIST where an object is there, of other bytes */
    bool resume;            /* by parts: goes on with what an earlier run left of this object */
    const char *storage_class;
    const char *encryption, *encryption_key; /* "AES256", "aws:kms"; of KMS */
    const char *encryption_context;          /* of KMS: JSON in base64, as it is sent */
    uint64_t part_bytes; /* 0: STK_STORE_RANGE_BYTES; more where there were too many parts */
};

/* Writes a whole object of at most 5 GiB. */
int stk_upload_put(struct stk_store *store, const struct stk_object_url *object,
                   struct stk_view body, const struct stk_upload_options *options,
                   struct stoker_error *error);
/* The same of an object in the same store, by the server itself; of that version. */
int stk_upload_copy(struct stk_store *store, const struct stk_object_url *from,
                    const struct stk_object_info *info, const struct stk_object_url *object,
                    const struct stk_upload_options *options, struct stoker_error *error);

/* Gives *text_out: a KMS encryption context, an object of JSON with texts, as it is sent. FORMAT:
 * it is none; LIMIT: more than STK_UPLOAD_CONTEXT_BYTES_MAX. */
int stk_upload_encryption_context(const char *json, char **text_out, struct stoker_error *error);

struct stk_upload;

/* Gives *upload_out. bytes > 0. */
int stk_upload_open(struct stk_upload **upload_out, struct stk_store *store,
                    const struct stk_object_url *object, uint64_t bytes,
                    const struct stk_upload_options *options, struct stoker_error *error);
uint32_t stk_upload_part_count(const struct stk_upload *upload);
uint64_t stk_upload_part_bytes(const struct stk_upload *upload); /* of all but the last */
/* Part number `index` from 0: its whole bytes. 1: it was there already; 0: it was sent. */
int stk_upload_send_part(struct stk_upload *upload, uint32_t index, struct stk_view body,
                         struct stoker_error *error);
int stk_upload_copy_part(struct stk_upload *upload, uint32_t index,
                         const struct stk_object_url *from, const struct stk_object_info *info,
                         struct stoker_error *error);
/* After all parts: the object is there. */
int stk_upload_commit(struct stk_upload *upload, struct stoker_error *error);
/* Whether a part, or the commit, failed since the store knows the upload no more: all of it can be
 * sent again, in another. */
bool stk_upload_is_gone(const struct stk_upload *upload);
/* Whether none of its parts is there: nothing that a next run could go on with. */
bool stk_upload_is_empty(const struct stk_upload *upload);
/* Takes; NULL is fine. abort: what was sent is removed from the store, else it is there for the
 * next run (and is paid for). */
void stk_upload_close(struct stk_upload *upload, bool abort);

/* Removes an object; one that is not there is fine. */
int stk_upload_remove(struct stk_store *store, const struct stk_object_url *object,
                      struct stoker_error *error);
/* The same of many in the bucket of *place: keys NUL-ended, one after the other, at most
 * STK_UPLOAD_REMOVE_MAX. */
int stk_upload_remove_many(struct stk_store *store, const struct stk_object_url *object,
                           const char *keys, uint32_t count, struct stoker_error *error);
/* Whether objects can be written there. */
static inline bool stk_upload_is_supported(const struct stk_object_url *object)
{
    return object->kind == STK_OBJECT_URL_S3 || object->kind == STK_OBJECT_URL_GCS ||
           object->kind == STK_OBJECT_URL_AZURE;
}
/* Not of Azure: aborts the uploads below a prefix that began before `before_ns` (wall clock).
 * Counts them. */
int stk_upload_abort_older(struct stk_store *store, const struct stk_object_url *object,
                           uint64_t before_ns, uint64_t *count_out, struct stoker_error *error);

#endif
