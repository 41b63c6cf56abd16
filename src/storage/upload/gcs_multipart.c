/* Google's store: S3's words but for conditions and sums.
 * https://cloud.google.com/storage/docs/xml-api/post-object-complete */
#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "storage/upload/multipart.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int stk_google_open(struct stk_upload *upload, struct stoker_error *error)
{
    size_t bytes = strlen(upload->key) + 40;

    upload->beside = stk_alloc(1, bytes);
    if (!upload->beside) {
        return stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                        upload->place.url);
    }
    snprintf(
        upload->beside, bytes, "%s.stoker-%016llx", upload->key,
        (unsigned long long)stk_key(stk_sum64(upload->key, strlen(upload->key)), upload->bytes));
    upload->place.key = upload->beside;
    return 0;
}

/* To its name, if nothing is there. */
static int move(struct stk_upload *upload, const struct stk_place *to, struct stoker_error *error)
{
    struct stk_call *call = stk_call_open(to, STK_HTTP_PUT, true, error);
    char source[4096];
    int status = -ENOMEM;

    if (!call) {
        return status;
    }
    if (!stk_call_source(&upload->place, source, sizeof source)) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a key is too long", "shorten it", "'%.400s'",
                          to->url);
    } else {
        stk_call_more(call, "x-goog-copy-source", source);
        stk_call_fresh(call);
        call->exchange.patience = STK_COMMIT_PATIENCE;
        status = stk_call_run(call, upload->store, error);
    }
    if (status < 0 && call->exchange.code == 412) {
        status = stk_upload_is_whole(upload, to, NULL) == 1 ? 0 : stk_call_fail_fresh(to, error);
    }
    stk_call_close(call);
    return status;
}

int stk_google_commit(struct stk_upload *upload, struct stoker_error *error)
{
    struct stk_place to = upload->place;
    int status = stk_upload_is_whole(upload, &upload->place, error), moved = 0;

    if (status == 0) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "an object is not what was sent",
                        "look at the server and proxies between, and who else writes it",
                        "'%.400s'", upload->place.url);
    }
    if (status > 0 && upload->beside) {
        to.key = upload->key;
        moved = move(upload, &to, error);
        (void)stk_upload_remove(upload->store, &upload->place, NULL);
    }
    return status < 0 ? status : moved;
}
