/* Lists unfinished uploads, page by page. */
#include "base/mem.h"
#include "storage/upload/multipart.h"

#include <errno.h>
#include <string.h>

#define PAGES_MAX 100000u
#define PAGE_UPLOADS 1000u /* of S3, if a page does not report whether more uploads follow */

enum { KEY, ID, BEGUN, CHECK, CLASS };
enum { MORE, NEXT_KEY, NEXT_ID };

struct listing {
    const struct stk_multipart_list *list;
    struct stk_xml_response answer;
    uint32_t seen; /* on the page */
    bool past;     /* exact: it is at other keys */
    /* The last upload: the next page begins after it. The marker of the page is not used: it may
     * or may not be encoded. */
    char key[STK_XML_RESPONSE_TEXT_BYTES + 1], id[STK_XML_RESPONSE_TEXT_BYTES + 1];
};

static int on_upload(void *owner, const struct stk_xml_response *answer)
{
    struct listing *listing = owner;
    const struct stk_multipart_list *list = listing->list;
    struct stk_unfinished_upload unfinished = {listing->key, answer->texts[ID],
                                               answer->texts[BEGUN], answer->texts[CHECK],
                                               answer->texts[CLASS]};

    listing->seen++;
    memcpy(listing->id, answer->texts[ID], sizeof listing->id);
    memcpy(listing->key, answer->texts[KEY], sizeof listing->key);
    if (list->exact) { /* keys are URL-encoded */
        bool same = stk_url_decode(listing->key) && strcmp(listing->key, list->place->key) == 0;

        listing->past = !same;
        if (!same) {
            return 0;
        }
    }
    return unfinished.id[0] && strlen(unfinished.id) < STK_UPLOAD_ID_BYTES
               ? list->found(list->owner, &unfinished)
               : 0;
}

static int fail_page(const struct listing *listing, int status, const char *what,
                     struct stoker_error *error)
{
    return stk_fail(error, status, what, "check the server and the proxies in between",
                    "'%.400s': uploads", listing->list->place->url);
}

/* Lists all uploads below a prefix without encoding-type. A key that XML cannot represent ends
 * the listing with an error, and is never mistaken for another key. */
static struct stk_write_request *request_page(const struct listing *listing,
                                              struct stoker_error *error)
{
    const struct stk_multipart_list *list = listing->list;
    struct stk_write_request *write_request =
        stk_write_request_open(list->place, STK_HTTP_GET, true, error);

    if (write_request) {
        write_request->operation.keyed = false;
        if (list->exact) {
            stk_write_request_add_query(write_request, "encoding-type", "url");
        }
        if (listing->key[0]) {
            stk_write_request_add_query(write_request, "key-marker", listing->key);
        }
        stk_write_request_add_query(write_request, "prefix", list->place->key);
        if (listing->key[0]) {
            stk_write_request_add_query(write_request, "upload-id-marker", listing->id);
        }
        stk_write_request_add_query(write_request, "uploads", NULL);
    }
    return write_request;
}

/* 1: there are more. */
static int set_next_page(struct listing *listing, const char *key, const char *id,
                         struct stoker_error *error)
{
    const struct stk_xml_response *answer = &listing->answer;
    const char *more = answer->outer[MORE];

    if (!more[0] ? listing->seen < PAGE_UPLOADS : strcmp(more, "true") != 0) {
        return 0;
    }
    if (listing->list->exact && listing->past && !listing->list->place->zone) {
        return 0; /* they are in the order of their keys, except in S3 Express */
    }
    if (listing->seen == 0) {
        memcpy(listing->key, answer->outer[NEXT_KEY], sizeof listing->key);
        memcpy(listing->id, answer->outer[NEXT_ID], sizeof listing->id);
    }
    if (!listing->key[0] || (strcmp(key, listing->key) == 0 && strcmp(id, listing->id) == 0)) {
        return fail_page(listing, STOKER_ERROR_CORRUPT, "a listing repeats a page", error);
    }
    return 1;
}

static int page(struct listing *listing, struct stoker_error *error)
{
    struct stk_write_request *write_request = request_page(listing, error);
    char key[sizeof listing->key], id[sizeof listing->id];
    struct stk_view date;
    int status;

    if (!write_request) {
        return -ENOMEM;
    }
    memcpy(key, listing->key, sizeof key);
    memcpy(id, listing->id, sizeof id);
    status = stk_write_request_run(write_request, listing->list->store, error);
    if (status == 0) {
        listing->answer = (struct stk_xml_response){
            .root = "ListMultipartUploadsResult",
            .item = "Upload",
            .names = {"Key", "UploadId", "Initiated", "ChecksumAlgorithm", "StorageClass"},
            .outer_names = {"IsTruncated", "NextKeyMarker", "NextUploadIdMarker"},
            .on_item = on_upload,
            .owner = listing};
        if (listing->list->now_ns && stk_http_header(&write_request->answer, "Date", &date)) {
            uint64_t now_ns = stk_store_parse_time((const char *)date.data, date.bytes);

            *listing->list->now_ns = now_ns ? now_ns : *listing->list->now_ns;
        }
        listing->seen = 0;
        status =
            stk_xml_response_parse(&listing->answer, stk_write_request_document(write_request));
        if (status == STOKER_ERROR_CORRUPT && (!error || error->status != status)) {
            fail_page(listing, status, "the server's answer cannot be read", error);
        }
    }
    stk_write_request_close(write_request);
    return status < 0 ? status : set_next_page(listing, key, id, error);
}

int stk_multipart_list_read(const struct stk_multipart_list *list, struct stoker_error *error)
{
    struct listing *listing = stk_alloc(1, sizeof *listing);
    uint32_t pages = 0;
    int status;

    if (!listing) {
        return stk_fail(error, -ENOMEM, "cannot list uploads", "free memory", "'%.400s'",
                        list->place->url);
    }
    listing->list = list;
    do {
        status = page(listing, error);
    } while (status > 0 && ++pages < PAGES_MAX);
    if (status > 0) {
        status = fail_page(listing, STOKER_ERROR_LIMIT, "a listing has no end", error);
    }
    stk_free(listing);
    return status;
}
