/* Finds and aborts unfinished uploads. */
#include "base/mem.h"
#include "io/clock.h"
#include "storage/upload/multipart.h"
#include "storage/upload/write_request.h"
#include "storage/upload/xml_response.h"

#include <errno.h>
#include <string.h>

#define DUPLICATES_MAX 8u
#define ABORTS_MAX 3u
#define NS_PER_SECOND 1000000000ull /* the resolution of dates */

struct abort_search {
    struct stk_store *store;
    const struct stk_object_url *place;
    uint64_t age_ns, now_ns; /* now_ns: by the server's clock, of the page */
    uint64_t *count;
    struct stoker_error *error;
};

/* Whether a key is the given one or below it: "up" has "up/y", not "up2/y". */
static bool is_below(const char *key, const char *prefix)
{
    size_t bytes = strlen(prefix);

    return strncmp(key, prefix, bytes) == 0 &&
           (bytes == 0 || prefix[bytes - 1] == '/' || key[bytes] == '\0' || key[bytes] == '/');
}

static int abort_one(void *owner, const struct stk_unfinished_upload *unfinished)
{
    struct abort_search *abort_search = owner;
    struct stk_object_url one = *abort_search->place;
    uint64_t begun_ns = stk_store_parse_time(unfinished->begun, strlen(unfinished->begun));
    struct stk_write_request *write_request;
    int status;

    if (!is_below(unfinished->key, abort_search->place->key) || begun_ns == 0 ||
        begun_ns > abort_search->now_ns || abort_search->now_ns - begun_ns < abort_search->age_ns) {
        return 0;
    }
    one.key = unfinished->key;
    write_request = stk_write_request_open(&one, STK_HTTP_DELETE, false, abort_search->error);
    if (!write_request) {
        return -ENOMEM;
    }
    stk_write_request_add_query(write_request, "uploadId", unfinished->id);
    status = stk_write_request_run(write_request, abort_search->store, abort_search->error);
    if (status == 0) {
        ++*abort_search->count;
    } else if (write_request->operation.code == 404) {
        status = 0; /* another was quicker */
    }
    stk_write_request_close(write_request);
    return status;
}

int stk_upload_abort_older(struct stk_store *store, const struct stk_object_url *place,
                           uint64_t age_ns, uint64_t *count_out, struct stoker_error *error)
{
    struct abort_search abort_search = {.store = store,
                                        .place = place,
                                        .age_ns = age_ns,
                                        .now_ns = stk_clock_wall_ns(), /* if it reports none */
                                        .count = count_out,
                                        .error = error};
    struct stk_multipart_list all = {.store = store,
                                     .place = place,
                                     .now_ns = &abort_search.now_ns,
                                     .found = abort_one,
                                     .owner = &abort_search};

    *count_out = 0;
    return stk_multipart_list_read(&all, error);
}

/* ---- of one object that is written ---- */

/* Returns a value below 0 if the upload may still exist. */
static int abort_upload(const struct stk_upload *upload, const char *id, uint32_t *code_out)
{
    struct stk_write_request *write_request =
        stk_write_request_open(&upload->place, STK_HTTP_DELETE, false, NULL);
    int status = -ENOMEM;

    *code_out = 0;
    if (write_request) {
        stk_write_request_add_query(write_request, "uploadId", id);
        status = stk_write_request_run(write_request, upload->store, NULL);
        *code_out = write_request->operation.code;
    }
    stk_write_request_close(write_request);
    return status;
}

void stk_upload_abort(const struct stk_upload *upload)
{
    uint32_t guard = 1, code = 0;

    for (uint32_t i = 0; i < upload->part_count; i++) {
        guard = upload->parts[i].again ? ABORTS_MAX : guard;
    }
    while (guard-- > 0 && abort_upload(upload, upload->id, &code) == 0 && code != 404) {
    }
}

/* Uploads of the same object that an earlier try may have begun, if its response was lost. */
struct duplicate_search {
    const struct stk_upload *upload;
    uint64_t now_ns; /* by the store's clock */
    uint32_t count;
    char ids[DUPLICATES_MAX][STK_UPLOAD_ID_BYTES];
};

/* Collects uploads that began near the begin of this upload, or if that is unknown, since its
 * request was sent. */
static int on_duplicate(void *owner, const struct stk_unfinished_upload *unfinished)
{
    struct duplicate_search *duplicate_search = owner;
    const struct stk_upload *upload = duplicate_search->upload;
    uint64_t begun_ns = stk_store_parse_time(unfinished->begun, strlen(unfinished->begun));
    uint64_t about_ns = upload->uncertain_ns + NS_PER_SECOND, first_ns = upload->begun_ns;
    uint64_t last_ns = first_ns + about_ns;

    if (upload->begun_ns == 0) {
        about_ns = stk_clock_ns() - upload->requested_ns + NS_PER_SECOND;
        first_ns = last_ns = duplicate_search->now_ns;
        last_ns += NS_PER_SECOND;
    }
    if (duplicate_search->count < DUPLICATES_MAX && strcmp(unfinished->id, upload->id) != 0 &&
        begun_ns + about_ns >= first_ns && begun_ns <= last_ns) {
        memcpy(duplicate_search->ids[duplicate_search->count++], unfinished->id,
               strlen(unfinished->id) + 1);
    }
    return 0;
}

static int on_part(void *owner, const struct stk_xml_response *response)
{
    (void)response;
    *(bool *)owner = true;
    return 0;
}

/* An upload of another run soon has parts, and is not aborted. */
static bool is_empty(const struct stk_upload *upload, const char *id,
                     struct stk_xml_response *response)
{
    struct stk_write_request *write_request =
        stk_write_request_open(&upload->place, STK_HTTP_GET, true, NULL);
    bool parts = false, reported = false;

    if (write_request) {
        stk_write_request_add_query(write_request, "max-parts", "1");
        stk_write_request_add_query(write_request, "uploadId", id);
        *response = (struct stk_xml_response){.root = "ListPartsResult",
                                              .item = "Part",
                                              .names = {"PartNumber"},
                                              .on_item = on_part,
                                              .owner = &parts};
        reported = stk_write_request_run(write_request, upload->store, NULL) == 0 &&
                   stk_xml_response_parse(response, stk_write_request_document(write_request)) == 0;
    }
    stk_write_request_close(write_request);
    return reported && !parts;
}

void stk_upload_abort_duplicates(const struct stk_upload *upload)
{
    struct stk_xml_response *response = stk_alloc(1, sizeof *response);
    struct duplicate_search *duplicate_search = stk_alloc(1, sizeof *duplicate_search);
    uint32_t code, empty = 0, lost = upload->tries - (upload->begun_ns > 0);

    if (response && duplicate_search) {
        struct stk_multipart_list same = {.store = upload->store,
                                          .place = &upload->place,
                                          .exact = true,
                                          .now_ns = &duplicate_search->now_ns,
                                          .found = on_duplicate,
                                          .owner = duplicate_search};

        duplicate_search->upload = upload;
        (void)stk_multipart_list_read(&same, NULL);
        for (uint32_t i = 0; i < duplicate_search->count; i++) {
            if (is_empty(upload, duplicate_search->ids[i], response)) {
                memmove(duplicate_search->ids[empty++], duplicate_search->ids[i],
                        STK_UPLOAD_ID_BYTES);
            }
        }
        /* If there are more uploads than this run can have begun, another run began some of
         * them, and the server does not report which. */
        for (uint32_t i = 0; i < empty && empty <= lost; i++) {
            (void)abort_upload(upload, duplicate_search->ids[i], &code);
        }
    }
    stk_free(duplicate_search);
    stk_free(response);
}
