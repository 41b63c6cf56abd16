/* Multipart uploads of Google Cloud Storage: S3's requests, but for conditions and checksums.
 * https://cloud.google.com/storage/docs/xml-api/post-object-complete */
#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "io/clock.h"
#include "storage/upload/multipart.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Chooses a key that no other upload uses: two writers of one key must not complete each other's.
 */
static int choose_temp_key(struct stk_upload *upload, struct stoker_error *error)
{
    size_t bytes = strlen(upload->key) + 40;

    upload->temp_key = stk_alloc(1, bytes);
    if (!upload->temp_key) {
        return stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                        upload->place.url);
    }
    snprintf(upload->temp_key, bytes, "%s.stoker-%016llx", upload->key,
             (unsigned long long)stk_random_key(
                 stk_random_key(stk_xxh3_64(upload->key, strlen(upload->key)), stk_clock_wall_ns()),
                 (uint64_t)getpid() ^ (uint64_t)(uintptr_t)upload));
    upload->place.key = upload->temp_key;
    return 0;
}

/* Copies the object to its name if there is none of that name. */
static int move(struct stk_upload *upload, const struct stk_object_url *to,
                struct stoker_error *error)
{
    struct stk_write_request *write_request = stk_write_request_open(to, STK_HTTP_PUT, true, error);
    char source[4096];
    int status = -ENOMEM;

    if (!write_request) {
        return status;
    }
    if (!stk_write_request_copy_source(&upload->place, source, sizeof source)) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a key is too long", "shorten it", "'%.400s'",
                          to->url);
    } else {
        stk_write_request_add_header(write_request, "x-goog-copy-source", source);
        stk_write_request_if_absent(write_request);
        write_request->operation.timeout_factor = STK_UPLOAD_COMMIT_TIMEOUT_FACTOR;
        status = stk_write_request_run(write_request, upload->store, error);
    }
    if (status < 0 && write_request->operation.code == 412) {
        status =
            write_request->operation.uncertain && stk_upload_matches_object(upload, to, NULL) == 1
                ? 0
                : stk_write_request_fail_exists(to, error);
    }
    stk_write_request_close(write_request);
    return status;
}

/* Checks the object against the checksums of the parts, and moves it to its name. */
static int finish(struct stk_upload *upload, struct stoker_error *error)
{
    struct stk_object_url to = upload->place;
    int status = stk_upload_matches_object(upload, &upload->place, error), moved = 0;

    if (status == 0) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "an object is not what was sent",
                        "check the server and the proxies in between, and who else writes it",
                        "'%.400s'", upload->place.url);
    }
    if (status > 0 && upload->temp_key) {
        to.key = upload->key;
        moved = move(upload, &to, error);
        (void)stk_upload_remove(upload->store, &upload->place, NULL);
    }
    return status < 0 ? status : moved;
}

static int commit(struct stk_upload *upload, struct stoker_error *error)
{
    struct stk_write_request *write_request;
    int status = stk_multipart_complete(upload, &write_request, error);

    /* 404: an earlier try whose response was lost may have completed it. */
    if (status == 0 || (write_request && write_request->operation.code == 404)) {
        status = finish(upload, error);
    }
    if (status == 0) {
        upload->id[0] = '\0'; /* nothing is left to abort */
    }
    stk_write_request_close(write_request);
    return status;
}

static int begin(struct stk_upload *upload, struct stoker_error *error)
{
    int status = upload->options.resume ? stk_multipart_find(upload, error) : 0;

    if (status < 0 || upload->id[0]) {
        return status;
    }
    status = upload->options.if_absent ? choose_temp_key(upload, error) : 0;
    return status < 0 ? status : stk_multipart_create(upload, error);
}

const struct stk_upload_operations stk_gcs_multipart_operations = {begin, stk_multipart_send_part,
                                                                   commit};
