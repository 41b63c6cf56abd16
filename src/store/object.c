/* Asking for an object: what it is, and its bytes. */
#include "store/shared.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

void stk_store_told(struct stk_about *about, const struct stk_http_answer *answer)
{
    uint64_t first, last, total = UINT64_MAX;
    struct stk_view value;

    *about = (struct stk_about){.bytes = answer->code == 200 ? answer->content_bytes : UINT64_MAX};
    if (answer->code == 206 && stk_http_header(answer, "Content-Range", &value) &&
        stk_store_content_range(value, &first, &last, &total)) {
        about->bytes = total;
    } else if (answer->code == 416) {
        about->bytes = 0;
    }
    if (stk_http_header(answer, "ETag", &value) && value.bytes < sizeof about->etag) {
        memcpy(about->etag, value.data, value.bytes);
    }
    if (stk_http_header(answer, "Last-Modified", &value) && value.bytes < sizeof about->modified) {
        memcpy(about->modified, value.data, value.bytes);
        about->mtime_ns = stk_store_time(about->modified, value.bytes);
    }
}

void stk_store_probe(struct stk_exchange *exchange, const struct stk_place *place, uint8_t *byte)
{
    exchange->place = place;
    exchange->method = STK_HTTP_GET;
    exchange->probe = true;
    exchange->buffer = byte;
    exchange->buffer_bytes = 1;
}

/* By a byte of it instead of HEAD: a refusal then has a body that says why, and URLs that were
 * signed for GET work. */
int stk_store_head(struct stk_store *store, const struct stk_place *place,
                   struct stk_about *about_out, struct stoker_error *error)
{
    uint8_t byte;
    struct stk_exchange exchange = {.status = 0};
    struct stk_http_answer *answer = stk_alloc(1, sizeof *answer);
    char shown[400];
    int status;

    if (!answer) {
        return stk_fail(error, -ENOMEM, "cannot ask for an object", "free memory", "store");
    }
    stk_store_probe(&exchange, place, &byte);
    status = stk_exchange_call(store, &exchange, answer, error);
    if (status == 0) {
        stk_store_told(about_out, answer);
        if (about_out->bytes == UINT64_MAX) {
            status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the server tells no size",
                              "serve the file as it is: with Content-Length and ranges", "'%s'",
                              stk_http_url_text(place->url, shown, sizeof shown));
        }
    }
    stk_free(answer);
    return status;
}

void stk_store_fetch(struct stk_exchange *exchange, const struct stk_place *place,
                     const struct stk_about *about, uint64_t offset, uint64_t bytes,
                     uint8_t *buffer)
{
    STK_ASSERT(bytes > 0 && offset <= about->bytes && bytes <= about->bytes - offset);
    exchange->place = place;
    exchange->method = STK_HTTP_GET;
    exchange->about = about;
    exchange->probe = false;
    exchange->ranged = true;
    exchange->offset = offset;
    exchange->bytes = bytes;
    exchange->query = NULL;
    exchange->query_count = 0;
    exchange->buffer = buffer;
    exchange->buffer_bytes = bytes;
    exchange->request.body = (struct stk_view){0};
}
