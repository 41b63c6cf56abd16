/* Uploads that nobody ended, page by page. */
#include "base/mem.h"
#include "storage/upload/multipart.h"

#include <errno.h>
#include <string.h>

#define PAGES_MAX 100000u
#define PAGE_UPLOADS 1000u /* of S3, where a page does not tell whether there are more */

enum { KEY, ID, BEGUN, CHECK, CLASS };
enum { MORE, NEXT_KEY, NEXT_ID };

struct listing {
    const struct stk_uploads *wanted;
    struct stk_answer answer;
    uint32_t seen; /* on the page */
    bool past;     /* exact: it is at other keys */
    /* The last upload: where the next page begins. Not what the page tells where it has any: it may
     * be encoded, or not. */
    char key[STK_ANSWER_TEXT_BYTES + 1], id[STK_ANSWER_TEXT_BYTES + 1];
};

static int on_upload(void *owner, const struct stk_answer *answer)
{
    struct listing *listing = owner;
    const struct stk_uploads *wanted = listing->wanted;
    struct stk_left left = {listing->key, answer->texts[ID], answer->texts[BEGUN],
                            answer->texts[CHECK], answer->texts[CLASS]};

    listing->seen++;
    memcpy(listing->id, answer->texts[ID], sizeof listing->id);
    memcpy(listing->key, answer->texts[KEY], sizeof listing->key);
    if (wanted->exact) { /* keys come encoded as in URLs */
        bool same = stk_sign_decode(listing->key) && strcmp(listing->key, wanted->place->key) == 0;

        listing->past = !same;
        if (!same) {
            return 0;
        }
    }
    return left.id[0] && strlen(left.id) < STK_UPLOAD_ID_BYTES ? wanted->found(wanted->owner, &left)
                                                               : 0;
}

static int fail_page(const struct listing *listing, int status, const char *what,
                     struct stoker_error *error)
{
    return stk_fail(error, status, what, "look at the server and proxies between",
                    "'%.400s': uploads", listing->wanted->place->url);
}

/* All below a prefix are asked for without encoding-type: a key that XML cannot say ends it with an
 * error, and is never taken for another one. */
static struct stk_call *ask(const struct listing *listing, struct stoker_error *error)
{
    const struct stk_uploads *wanted = listing->wanted;
    struct stk_call *call = stk_call_open(wanted->place, STK_HTTP_GET, true, error);

    if (call) {
        call->exchange.keyed = false;
        if (wanted->exact) {
            stk_call_query(call, "encoding-type", "url");
        }
        if (listing->key[0]) {
            stk_call_query(call, "key-marker", listing->key);
        }
        stk_call_query(call, "prefix", wanted->place->key);
        if (listing->key[0]) {
            stk_call_query(call, "upload-id-marker", listing->id);
        }
        stk_call_query(call, "uploads", NULL);
    }
    return call;
}

/* 1: there are more. */
static int go_on(struct listing *listing, const char *key, const char *id,
                 struct stoker_error *error)
{
    const struct stk_answer *answer = &listing->answer;
    const char *more = answer->outer[MORE];

    if (!more[0] ? listing->seen < PAGE_UPLOADS : strcmp(more, "true") != 0) {
        return 0;
    }
    if (listing->wanted->exact && listing->past && !listing->wanted->place->zone) {
        return 0; /* they come in the order of their keys, but of S3 Express */
    }
    if (listing->seen == 0) {
        memcpy(listing->key, answer->outer[NEXT_KEY], sizeof listing->key);
        memcpy(listing->id, answer->outer[NEXT_ID], sizeof listing->id);
    }
    if (!listing->key[0] || (strcmp(key, listing->key) == 0 && strcmp(id, listing->id) == 0)) {
        return fail_page(listing, STOKER_ERROR_CORRUPT,
                         "a listing comes back to a page that it gave", error);
    }
    return 1;
}

static int page(struct listing *listing, struct stoker_error *error)
{
    struct stk_call *call = ask(listing, error);
    char key[sizeof listing->key], id[sizeof listing->id];
    struct stk_view date;
    int status;

    if (!call) {
        return -ENOMEM;
    }
    memcpy(key, listing->key, sizeof key);
    memcpy(id, listing->id, sizeof id);
    status = stk_call_run(call, listing->wanted->store, error);
    if (status == 0) {
        listing->answer = (struct stk_answer){
            .root = "ListMultipartUploadsResult",
            .item = "Upload",
            .names = {"Key", "UploadId", "Initiated", "ChecksumAlgorithm", "StorageClass"},
            .outer_names = {"IsTruncated", "NextKeyMarker", "NextUploadIdMarker"},
            .found = on_upload,
            .owner = listing};
        if (listing->wanted->now_ns && stk_http_header(&call->answer, "Date", &date)) {
            *listing->wanted->now_ns = stk_store_time((const char *)date.data, date.bytes);
        }
        listing->seen = 0;
        status = stk_answer_read(&listing->answer, stk_call_document(call));
        if (status == STOKER_ERROR_CORRUPT && (!error || error->status != status)) {
            fail_page(listing, status, "the server's answer cannot be read", error);
        }
    }
    stk_call_close(call);
    return status < 0 ? status : go_on(listing, key, id, error);
}

int stk_uploads_list(const struct stk_uploads *wanted, struct stoker_error *error)
{
    struct listing *listing = stk_alloc(1, sizeof *listing);
    uint32_t pages = 0;
    int status;

    if (!listing) {
        return stk_fail(error, -ENOMEM, "cannot list uploads", "free memory", "'%.400s'",
                        wanted->place->url);
    }
    listing->wanted = wanted;
    do {
        status = page(listing, error);
    } while (status > 0 && ++pages < PAGES_MAX);
    if (status > 0) {
        status = fail_page(listing, STOKER_ERROR_LIMIT, "a listing has no end", error);
    }
    stk_free(listing);
    return status;
}
