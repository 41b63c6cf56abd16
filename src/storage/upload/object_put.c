/* Whole objects: written, copied, removed. */
#include "base/crypto/digest.h"
#include "base/mem.h"
#include "storage/upload/write_request.h"
#include "storage/upload/xml_response.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SOURCE_BYTES_MAX 4096u /* of x-amz-copy-source: a bucket and a key, encoded */

static int fail_answer(const struct stk_place *place, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "the server's answer cannot be read",
                    "look at the server and proxies between", "'%.400s'", place->url);
}

int stk_upload_put(struct stk_store *store, const struct stk_place *place, struct stk_view body,
                   const struct stk_upload_options *options, struct stoker_error *error)
{
    struct stk_call *call = stk_call_open(place, STK_HTTP_PUT, false, error);
    struct stk_proof proof;
    uint8_t digest[16];
    char etag[80];
    int status = call ? stk_call_check_options(place, options, error) : -ENOMEM;

    if (status < 0) {
        stk_call_close(call);
        return status;
    }
    stk_proof_make(&proof, store, stk_place_check(place, options->check), body);
    stk_call_options(call, options, &proof);
    if (options->fresh) {
        stk_call_fresh(call);
    }
    if (place->kind == STK_PLACE_AZURE) {
        stk_call_more(call, "x-ms-blob-type", "BlockBlob");
    }
    call->exchange.request.body = body;
    status = stk_call_run(call, store, error);
    if (status < 0 && stk_call_wants_sum(call, &proof)) {
        stk_call_close(call);
        stk_store_demand_sums(store); /* so now it has one */
        return stk_upload_put(store, place, body, options, error);
    }
    if (status == 0) { /* whoever took the object names it: a proxy's "200 OK" does not */
        stk_call_etag(call, etag, sizeof etag);
        status = etag[0] ? stk_call_took(call, &proof, error) : fail_answer(place, error);
    } else if (options->fresh && place->kind != STK_PLACE_S3 && stk_call_was_there(call)) {
        status = stk_call_is_body(store, place, body) ? 0 : stk_call_fail_fresh(place, error);
    } else if (options->fresh && call->exchange.code == 412) {
        /* It may be ours, by a try whose answer was lost: libcurl's own tries are not counted. */
        stk_md5(body.data, body.bytes, digest);
        stk_hex(digest, sizeof digest, etag);
        status = stk_call_is_there(store, place, body.bytes, etag) ||
                         stk_call_is_body(store, place, body) /* encrypted: its ETag is no MD5 */
                     ? 0
                     : stk_call_fail_fresh(place, error);
    }
    stk_call_close(call);
    return status;
}

int stk_upload_copy(struct stk_store *store, const struct stk_place *from,
                    const struct stk_about *about, const struct stk_place *place,
                    const struct stk_upload_options *options, struct stoker_error *error)
{
    struct stk_call *call = stk_call_open(place, STK_HTTP_PUT, true, error);
    char source[SOURCE_BYTES_MAX];
    int status;

    if (!call) {
        return -ENOMEM;
    }
    status = stk_call_check_key(place, error);
    if (status < 0) {
        goto done;
    }
    if (!stk_call_source(from, source, sizeof source)) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a key is too long", "shorten it", "'%.400s'",
                          from->url);
        goto done;
    }
    call->exchange.source = from;
    stk_call_more(call, "x-amz-copy-source", source);
    if (about->etag[0]) {
        stk_call_more(call, "x-amz-copy-source-if-match", about->etag);
    }
    stk_call_options(call, options, NULL);
    if (options->fresh) {
        stk_call_fresh(call);
    }
    call->exchange.patience = 10; /* the server reads and writes it all */
    status = stk_call_run(call, store, error);
    if (status < 0 && call->exchange.code == 412 && options->fresh) {
        struct stk_about there; /* else it is the source that is another */

        /* It may be ours, by a try whose answer was lost. */
        if (stk_call_is_copy(store, place, from, about)) {
            status = 0;
        } else if (stk_store_head(store, place, &there, NULL) == 0) {
            status = stk_call_fail_fresh(place, error);
        }
    } else if (status == 0 && !stk_call_says(call, "CopyObjectResult")) {
        status = fail_answer(place, error);
    }
done:
    stk_call_close(call);
    return status;
}

int stk_upload_remove(struct stk_store *store, const struct stk_place *place,
                      struct stoker_error *error)
{
    struct stk_call *call = stk_call_open(place, STK_HTTP_DELETE, false, error);
    int status = call ? stk_call_check_key(place, error) : -ENOMEM;

    status = status < 0 ? status : stk_call_run(call, store, error);
    if (call && status < 0 && call->exchange.code == 404 &&
        (stk_call_is_refused(call, "NoSuchKey") || stk_call_is_refused(call, "BlobNotFound"))) {
        status = 0;
    }
    stk_call_close(call);
    return status;
}

/* An object that could not be removed. */
struct refused {
    struct stoker_error *error;
    const struct stk_place *place;
};

static int on_refused(void *owner, const struct stk_answer *answer)
{
    struct refused *refused = owner;

    if (strcmp(answer->texts[1], "NoSuchKey") == 0) {
        return 0;
    }
    return stk_fail(refused->error, strcmp(answer->texts[1], "AccessDenied") == 0 ? -EACCES : -EIO,
                    "an object cannot be removed", "check the permissions and locks of the bucket",
                    "'s3://%.80s/%.300s': %.60s %.160s", refused->place->bucket, answer->texts[0],
                    answer->texts[1], answer->texts[2]);
}

/* XML cannot say control characters. */
static bool is_plain(const char *key)
{
    while (*key && (uint8_t)*key >= ' ') {
        key++;
    }
    return *key == '\0';
}

static int remove_one(struct stk_store *store, const struct stk_place *place, const char *key,
                      struct stoker_error *error)
{
    struct stk_place one = *place;

    one.key = key;
    return stk_upload_remove(store, &one, error);
}

/* A document that names objects. */
struct naming {
    struct stk_store *store;
    const struct stk_place *place;
    char *xml;
    size_t used, bytes;
};

static void add_text(struct naming *naming, const char *text)
{
    size_t bytes = strlen(text);

    STK_ASSERT(bytes < naming->bytes - naming->used);
    memcpy(naming->xml + naming->used, text, bytes + 1);
    naming->used += bytes;
}

/* Those that XML cannot name are removed at once. 1: there are others; 0: none; or the error. */
static int write_keys(struct naming *naming, const char *keys, uint32_t count,
                      struct stoker_error *error)
{
    int status = 0, removed = 0;

    add_text(naming, "<Delete><Quiet>true</Quiet>");
    for (uint32_t i = 0; i < count && removed == 0; i++, keys += strlen(keys) + 1) {
        if (is_plain(keys)) {
            bool fits;

            add_text(naming, "<Object><Key>");
            fits = stk_answer_quote(keys, naming->xml, naming->bytes, &naming->used);
            STK_ASSERT(fits);
            add_text(naming, "</Key></Object>");
            status = 1;
        } else {
            removed = remove_one(naming->store, naming->place, keys, error);
        }
    }
    add_text(naming, "</Delete>");
    return removed < 0 ? removed : status;
}

int stk_upload_remove_many(struct stk_store *store, const struct stk_place *place, const char *keys,
                           uint32_t count, struct stoker_error *error)
{
    size_t xml_bytes = 128, at = 0;
    struct stk_answer *answer = stk_alloc(1, sizeof *answer);
    struct stk_call *call = stk_call_open(place, STK_HTTP_POST, true, error);
    struct refused refused = {error, place};
    struct naming naming;
    struct stk_proof proof;
    char *xml;
    int status;

    STK_ASSERT(count > 0 && count <= STK_UPLOAD_REMOVE_MAX);
    if (place->kind != STK_PLACE_S3) {
        status = 0;
        for (uint32_t i = 0; i < count && status == 0; i++, keys += strlen(keys) + 1) {
            status = remove_one(store, place, keys, error);
        }
        stk_free(answer);
        stk_call_close(call);
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes = strlen(keys + at);

        xml_bytes += 6 * bytes + 64;
        at += bytes + 1;
    }
    xml = stk_alloc(1, xml_bytes);
    if (!xml || !call || !answer) {
        status = stk_fail(error, -ENOMEM, "cannot remove objects", "free memory", "'%.200s'",
                          place->url);
        goto done;
    }
    naming = (struct naming){store, place, xml, 0, xml_bytes};
    status = write_keys(&naming, keys, count, error);
    if (status <= 0) { /* none is left */
        goto done;
    }
    call->exchange.keyed = false;
    call->exchange.request.body = (struct stk_view){(const uint8_t *)xml, strlen(xml)};
    stk_call_query(call, "delete", NULL);
    /* It must have one; S3 Express knows no MD5. */
    stk_proof_make(&proof, store, place->zone ? STK_CHECK_CRC32C : STK_CHECK_MD5,
                   call->exchange.request.body);
    stk_proof_add(&proof, call);
    stk_call_more(call, "Content-Type", "application/xml");
    status = stk_call_run(call, store, error);
    *answer = (struct stk_answer){.root = "DeleteResult",
                                  .item = "Error",
                                  .names = {"Key", "Code", "Message"},
                                  .found = on_refused,
                                  .owner = &refused};
    if (status == 0) {
        status = stk_answer_read(answer, stk_call_document(call));
        status = status == STOKER_ERROR_CORRUPT ? fail_answer(place, error) : status;
    }
done:
    stk_free(xml);
    stk_free(answer);
    stk_call_close(call);
    return status;
}
