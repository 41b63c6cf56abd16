/* Uploads that nobody ended, and those that are given up: found, and aborted. */
#include "base/mem.h"
#include "upload/answers.h"
#include "upload/by_parts.h"
#include "upload/call.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PAGES_MAX 100000u
#define TWINS_MAX 8u
#define DROPS_MAX 3u
#define SECOND_NS 1000000000ull /* what dates are told in */

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
    if (status == 0 && sweeping->seen > 0 && strcmp(key, sweeping->key) == 0 &&
        strcmp(id, sweeping->id) == 0) {
        status = stk_fail(sweeping->error, STOKER_ERROR_CORRUPT,
                          "a listing comes back to a page that it gave",
                          "look at the server and proxies: it would go on for ever",
                          "'%.400s': uploads", sweeping->place->url);
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

/* ---- of one object that is written ---- */

/* Below 0: it may be there still. */
static int drop(const struct stk_upload *upload, const char *id, uint32_t *code_out)
{
    struct stk_call *call = stk_call_open(&upload->place, STK_HTTP_DELETE, false, NULL);
    int status = -ENOMEM;

    *code_out = 0;
    if (call) {
        stk_call_query(call, "uploadId", id);
        status = stk_call_run(call, upload->store, NULL);
        *code_out = call->exchange.code;
    }
    stk_call_close(call);
    return status;
}

void stk_upload_drop(const struct stk_upload *upload)
{
    uint32_t rounds = 1, code = 0;

    for (uint32_t i = 0; i < upload->part_count; i++) {
        rounds = upload->parts[i].again ? DROPS_MAX : rounds;
    }
    while (rounds-- > 0 && drop(upload, upload->id, &code) == 0 && code != 404) {
    }
}

/* Uploads of the same object that may be of a try whose answer was lost. */
struct twins {
    const struct stk_upload *upload;
    uint32_t count;
    char ids[TWINS_MAX][STK_UPLOAD_ID_BYTES];
};

static int on_twin(void *owner, const struct stk_answer *answer)
{
    struct twins *twins = owner;
    const struct stk_upload *upload = twins->upload;
    uint64_t begun_ns = stk_store_time(answer->texts[2], strlen(answer->texts[2]));
    uint64_t about_ns = upload->doubt_ns + SECOND_NS;
    char key[STK_ANSWER_TEXT_BYTES + 1];

    memcpy(key, answer->texts[0], sizeof key);
    if (twins->count < TWINS_MAX && stk_sign_decode(key) && strcmp(key, upload->place.key) == 0 &&
        strcmp(answer->texts[1], upload->id) != 0 && answer->texts[1][0] &&
        strlen(answer->texts[1]) < STK_UPLOAD_ID_BYTES && begun_ns + about_ns >= upload->begun_ns &&
        begun_ns <= upload->begun_ns + about_ns) {
        memcpy(twins->ids[twins->count++], answer->texts[1], strlen(answer->texts[1]) + 1);
    }
    return 0;
}

static int on_part(void *owner, const struct stk_answer *answer)
{
    (void)answer;
    *(bool *)owner = true;
    return 0;
}

/* Another run's has parts soon, and is not touched. */
static bool is_empty(const struct stk_upload *upload, const char *id, struct stk_answer *answer)
{
    struct stk_call *call = stk_call_open(&upload->place, STK_HTTP_GET, true, NULL);
    bool parts = false, told = false;

    if (call) {
        stk_call_query(call, "max-parts", "1");
        stk_call_query(call, "uploadId", id);
        *answer = (struct stk_answer){.root = "ListPartsResult",
                                      .item = "Part",
                                      .names = {"PartNumber"},
                                      .found = on_part,
                                      .owner = &parts};
        told = stk_call_run(call, upload->store, NULL) == 0 &&
               stk_answer_read(answer, stk_call_document(call)) == 0;
    }
    stk_call_close(call);
    return told && !parts;
}

void stk_upload_drop_twins(const struct stk_upload *upload)
{
    struct stk_call *call = stk_call_open(&upload->place, STK_HTTP_GET, true, NULL);
    struct stk_answer *answer = stk_alloc(1, sizeof *answer);
    struct twins *twins = stk_alloc(1, sizeof *twins);
    uint32_t code;

    if (call && answer && twins) {
        twins->upload = upload;
        call->exchange.keyed = false;
        stk_call_query(call, "encoding-type", "url");
        stk_call_query(call, "prefix", upload->place.key);
        stk_call_query(call, "uploads", NULL);
        *answer = (struct stk_answer){.root = "ListMultipartUploadsResult",
                                      .item = "Upload",
                                      .names = {"Key", "UploadId", "Initiated"},
                                      .found = on_twin,
                                      .owner = twins};
        if (stk_call_run(call, upload->store, NULL) == 0) {
            (void)stk_answer_read(answer, stk_call_document(call));
        }
        for (uint32_t i = 0; i < twins->count; i++) {
            if (is_empty(upload, twins->ids[i], answer)) {
                (void)drop(upload, twins->ids[i], &code);
            }
        }
    }
    stk_free(twins);
    stk_free(answer);
    stk_call_close(call);
}
