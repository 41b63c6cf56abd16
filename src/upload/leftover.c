/* Uploads that nobody ended: found, and aborted. */
#include "base/mem.h"
#include "upload/answers.h"
#include "upload/call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PAGES_MAX 100000u

/* A page, and where the next one begins. */
struct sweeping {
    struct stk_store *store;
    const struct stk_place *place;
    char before[40];
    uint64_t *count;
    uint32_t seen;
    struct stoker_error *error;
    char key[STK_ANSWER_TEXT_BYTES + 1], id[STK_ANSWER_TEXT_BYTES + 1];
};

static int on_upload(void *owner, const struct stk_answer *answer)
{
    struct sweeping *sweeping = owner;
    struct stk_place one = *sweeping->place;
    struct stk_call *call;
    int status;

    sweeping->seen++;
    memcpy(sweeping->key, answer->texts[0], sizeof sweeping->key);
    memcpy(sweeping->id, answer->texts[1], sizeof sweeping->id);
    if (!sweeping->id[0] || strncmp(answer->texts[2], sweeping->before, 19) >= 0) {
        return 0;
    }
    one.key = sweeping->key;
    call = stk_call_open(&one, STK_HTTP_DELETE, false, sweeping->error);
    if (!call) {
        return -ENOMEM;
    }
    stk_call_query(call, "uploadId", sweeping->id);
    status = stk_call_run(call, sweeping->store, sweeping->error);
    if (status == 0) {
        ++*sweeping->count;
    } else if (call->exchange.code == 404) {
        status = 0; /* another was quicker */
    }
    stk_call_close(call);
    return status;
}

/* Without encoding-type: a key that XML cannot say ends it with an error, and never with the upload
 * of another key. */
static int sweep_page(struct sweeping *sweeping, struct stk_answer *answer)
{
    struct stk_call *call = stk_call_open(sweeping->place, STK_HTTP_GET, true, sweeping->error);
    char key[sizeof sweeping->key], id[sizeof sweeping->id];
    int status;

    if (!call) {
        return -ENOMEM;
    }
    memcpy(key, sweeping->key, sizeof key);
    memcpy(id, sweeping->id, sizeof id);
    call->exchange.keyed = false;
    if (key[0]) {
        stk_call_query(call, "key-marker", key);
        stk_call_query(call, "upload-id-marker", id);
    }
    stk_call_query(call, "prefix", sweeping->place->key);
    stk_call_query(call, "uploads", NULL);
    status = stk_call_run(call, sweeping->store, sweeping->error);
    if (status == 0) {
        *answer = (struct stk_answer){.root = "ListMultipartUploadsResult",
                                      .item = "Upload",
                                      .names = {"Key", "UploadId", "Initiated"},
                                      .found = on_upload,
                                      .owner = sweeping};
        sweeping->seen = 0;
        status = stk_answer_read(answer, stk_call_document(call));
        if (status == STOKER_ERROR_CORRUPT) {
            stk_fail(sweeping->error, status, "the server's answer cannot be read",
                     "look at the server and proxies between", "'%.400s'", sweeping->place->url);
        }
    }
    stk_call_close(call);
    return status;
}

int stk_upload_sweep(struct stk_store *store, const struct stk_place *place, uint64_t before_ns,
                     uint64_t *count_out, struct stoker_error *error)
{
    struct sweeping *sweeping = stk_alloc(1, sizeof *sweeping);
    struct stk_answer *answer = stk_alloc(1, sizeof *answer);
    time_t before = (time_t)(before_ns / 1000000000u);
    struct tm parts;
    int status = sweeping && answer ? 0 : -ENOMEM;

    *count_out = 0;
    if (status < 0) {
        stk_fail(error, status, "cannot list uploads", "free memory", "'%.400s'", place->url);
    } else {
        sweeping->store = store;
        sweeping->place = place;
        sweeping->count = count_out;
        sweeping->error = error;
        strftime(sweeping->before, sizeof sweeping->before, "%Y-%m-%dT%H:%M:%S",
                 gmtime_r(&before, &parts));
    }
    for (uint32_t page = 0; status == 0 && page < PAGES_MAX; page++) {
        status = sweep_page(sweeping, answer);
        if (sweeping->seen < 1000) { /* S3 gives 1,000 a page */
            break;
        }
    }
    stk_free(answer);
    stk_free(sweeping);
    return status;
}
