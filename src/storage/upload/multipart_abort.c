/* Uploads that nobody ended, and those that are given up: found, and aborted. */
#include "base/mem.h"
#include "io/clock.h"
#include "storage/upload/multipart.h"
#include "storage/upload/write_request.h"
#include "storage/upload/xml_response.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define TWINS_MAX 8u
#define DROPS_MAX 3u
#define SECOND_NS 1000000000ull /* what dates are told in */

struct sweeping {
    struct stk_store *store;
    const struct stk_place *place;
    char before[40];
    uint64_t *count;
    struct stoker_error *error;
};

static int sweep_one(void *owner, const struct stk_left *left)
{
    struct sweeping *sweeping = owner;
    struct stk_place one = *sweeping->place;
    struct stk_call *call;
    int status;

    if (strncmp(left->begun, sweeping->before, 19) >= 0) {
        return 0;
    }
    one.key = left->key;
    call = stk_call_open(&one, STK_HTTP_DELETE, false, sweeping->error);
    if (!call) {
        return -ENOMEM;
    }
    stk_call_query(call, "uploadId", left->id);
    status = stk_call_run(call, sweeping->store, sweeping->error);
    if (status == 0) {
        ++*sweeping->count;
    } else if (call->exchange.code == 404) {
        status = 0; /* another was quicker */
    }
    stk_call_close(call);
    return status;
}

int stk_upload_sweep(struct stk_store *store, const struct stk_place *place, uint64_t before_ns,
                     uint64_t *count_out, struct stoker_error *error)
{
    struct sweeping sweeping = {.store = store, .place = place, .count = count_out, .error = error};
    struct stk_uploads all = {
        .store = store, .place = place, .found = sweep_one, .owner = &sweeping};
    time_t before = (time_t)(before_ns / 1000000000u);
    struct tm parts;

    *count_out = 0;
    strftime(sweeping.before, sizeof sweeping.before, "%Y-%m-%dT%H:%M:%S",
             gmtime_r(&before, &parts));
    return stk_uploads_list(&all, error);
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
    uint64_t now_ns; /* by the store's clock */
    uint32_t count;
    char ids[TWINS_MAX][STK_UPLOAD_ID_BYTES];
};

/* Of an upload that did not begin, as far as is known, since it was asked to; else about when that
 * began. */
static int on_twin(void *owner, const struct stk_left *left)
{
    struct twins *twins = owner;
    const struct stk_upload *upload = twins->upload;
    uint64_t begun_ns = stk_store_time(left->begun, strlen(left->begun));
    uint64_t about_ns = upload->doubt_ns + SECOND_NS, first_ns = upload->begun_ns;
    uint64_t last_ns = first_ns + about_ns;

    if (upload->begun_ns == 0) {
        about_ns = stk_clock_ns() - upload->asked_ns + SECOND_NS;
        first_ns = last_ns = twins->now_ns;
        last_ns += SECOND_NS;
    }
    if (twins->count < TWINS_MAX && strcmp(left->id, upload->id) != 0 &&
        begun_ns + about_ns >= first_ns && begun_ns <= last_ns) {
        memcpy(twins->ids[twins->count++], left->id, strlen(left->id) + 1);
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
    struct stk_answer *answer = stk_alloc(1, sizeof *answer);
    struct twins *twins = stk_alloc(1, sizeof *twins);
    uint32_t code, empty = 0, lost = upload->tries - (upload->begun_ns > 0);

    if (answer && twins) {
        struct stk_uploads same = {.store = upload->store,
                                   .place = &upload->place,
                                   .exact = true,
                                   .now_ns = &twins->now_ns,
                                   .found = on_twin,
                                   .owner = twins};

        twins->upload = upload;
        (void)stk_uploads_list(&same, NULL);
        for (uint32_t i = 0; i < twins->count; i++) {
            if (is_empty(upload, twins->ids[i], answer)) {
                memmove(twins->ids[empty++], twins->ids[i], STK_UPLOAD_ID_BYTES);
            }
        }
        /* Of more than can be ours some are another's: which, nobody tells. */
        for (uint32_t i = 0; i < empty && empty <= lost; i++) {
            (void)drop(upload, twins->ids[i], &code);
        }
    }
    stk_free(twins);
    stk_free(answer);
}
