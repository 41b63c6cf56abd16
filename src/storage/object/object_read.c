/* Asking for an object: what it is, and its bytes. */
#include "storage/object/store_private.h"

#include "base/mem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_header(const struct stk_http_answer *answer, const char *name, const char *value)
{
    struct stk_view told;

    return stk_http_header(answer, name, &told) && told.bytes == strlen(value) &&
           strncasecmp((const char *)told.data, value, told.bytes) == 0;
}

bool stk_store_may_archive(const char *storage)
{
    return strcmp(storage, "GLACIER") == 0 || strcmp(storage, "DEEP_ARCHIVE") == 0 ||
           strcmp(storage, "INTELLIGENT_TIERING") == 0 || strcmp(storage, "Archive") == 0;
}

/* ongoing-request="false", expiry-date="Fri, 21 Dec 2012 00:00:00 GMT" */
static void take_restore(struct stk_about *about, struct stk_view value)
{
    static const char going[] = "ongoing-request=\"true\"", date[] = "expiry-date=\"";
    const char *text = (const char *)value.data, *at;
    size_t left;

    about->archive = memmem(text, value.bytes, going, sizeof going - 1) ? STOKER_ARCHIVE_COMING
                                                                        : STOKER_ARCHIVE_BACK;
    at = memmem(text, value.bytes, date, sizeof date - 1);
    if (at && about->archive == STOKER_ARCHIVE_BACK) {
        at += sizeof date - 1;
        left = value.bytes - (size_t)(at - text);
        text = memchr(at, '"', left);
        about->back_until_ns = stk_store_time(at, text ? (size_t)(text - at) : left);
    }
}

/* https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html
 * https://learn.microsoft.com/rest/api/storageservices/get-blob-properties
 * Google's ARCHIVE is read as any other class. */
static void take_class(struct stk_about *about, const struct stk_http_answer *answer)
{
    struct stk_view value;
    bool tier = false;

    if ((stk_http_header(answer, "x-amz-storage-class", &value) ||
         stk_http_header(answer, "x-goog-storage-class", &value) ||
         stk_http_header(answer, "x-ms-access-tier", &value)) &&
        value.bytes < sizeof about->storage) {
        memcpy(about->storage, value.data, value.bytes);
    }
    if (stk_http_header(answer, "x-amz-restore", &value)) {
        take_restore(about, value);
    } else if (stk_http_header(answer, "x-ms-archive-status", &value)) {
        about->archive = STOKER_ARCHIVE_COMING; /* "rehydrate-pending-to-hot" */
    } else {
        tier = stk_http_header(answer, "x-amz-archive-status", &value);
        about->archive = tier || (stk_store_may_archive(about->storage) &&
                                  strcmp(about->storage, "INTELLIGENT_TIERING") != 0)
                             ? STOKER_ARCHIVE_AWAY
                             : STOKER_ARCHIVE_NONE;
    }
}

void stk_store_told(const struct stk_exchange *exchange, const struct stk_http_answer *answer,
                    struct stk_about *about)
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
    about->whole = exchange->linked;
    if (exchange->place->kind == STK_PLACE_HUB && !exchange->request.landed &&
        about->whole.kind == STK_SEAL_NONE) { /* it led nowhere else */
        about->whole = stk_seal_of_hub(answer);
    }
    about->folder = about->bytes == 0 && (is_header(answer, "x-ms-resource-type", "directory") ||
                                          is_header(answer, "x-ms-meta-hdi_isfolder", "true"));
    take_class(about, answer);
    if (exchange->method == STK_HTTP_GET && about->archive == STOKER_ARCHIVE_AWAY) {
        about->archive = STOKER_ARCHIVE_NONE; /* whatever it is called: a byte of it came */
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

/* Of a blob without bytes a range cannot be told from a folder. */
static int ask_folder(struct stk_store *store, const struct stk_place *place,
                      struct stk_about *about, struct stk_http_answer *answer,
                      struct stoker_error *error)
{
    struct stk_exchange exchange = {.place = place, .method = STK_HTTP_HEAD};
    struct stk_about whole;
    int status = stk_exchange_call(store, &exchange, answer, error);

    if (status == 0) {
        stk_store_told(&exchange, answer, &whole);
        about->folder = whole.folder;
        memcpy(about->etag, whole.etag, sizeof about->etag);
        about->mtime_ns = whole.mtime_ns;
    }
    return status;
}

/* No byte of it can be read, but HEAD tells of it. */
static int ask_archived(struct stk_store *store, const struct stk_place *place,
                        struct stk_about *about, struct stk_http_answer *answer)
{
    struct stk_exchange exchange = {.place = place, .method = STK_HTTP_HEAD};
    int status = stk_exchange_call(store, &exchange, answer, NULL);

    if (status == 0) {
        stk_store_told(&exchange, answer, about);
        status = about->bytes == UINT64_MAX ? STOKER_ERROR_UNSUPPORTED : 0;
    }
    return status;
}

/* By a byte of it instead of HEAD: a refusal then has a body that says why, and URLs that were
 * signed for GET work. */
static int ask(struct stk_store *store, const struct stk_place *place, bool archived,
               struct stk_about *about_out, struct stoker_error *error)
{
    uint8_t byte;
    struct stk_exchange exchange = {.status = 0};
    struct stk_http_answer *answer = stk_alloc(1, sizeof *answer);
    int status;

    if (!answer) {
        return stk_fail(error, -ENOMEM, "cannot ask for an object", "free memory", "store");
    }
    stk_store_probe(&exchange, place, &byte);
    status = stk_exchange_call(store, &exchange, answer, error);
    if (status == 0) {
        stk_store_told(&exchange, answer, about_out);
        if (about_out->bytes == UINT64_MAX) {
            status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the server tells no size",
                              "serve the file as it is: with Content-Length and ranges", "'%.400s'",
                              place->url);
        } else if (place->kind == STK_PLACE_AZURE && about_out->bytes == 0) {
            status = ask_folder(store, place, about_out, answer, error);
        }
    } else if (archived && stk_refusal_is_archived(exchange.refused) &&
               ask_archived(store, place, about_out, answer) == 0) {
        status = 0;
    }
    stk_free(answer);
    return status;
}

int stk_store_head(struct stk_store *store, const struct stk_place *place,
                   struct stk_about *about_out, struct stoker_error *error)
{
    return ask(store, place, false, about_out, error);
}

int stk_store_look(struct stk_store *store, const struct stk_place *place,
                   struct stk_about *about_out, struct stoker_error *error)
{
    return ask(store, place, true, about_out, error);
}

/* "<LocationConstraint>US-WEST1</LocationConstraint>" */
static void take_location(const char *document, char region[64])
{
    static const char name[] = "LocationConstraint";
    const char *at = strstr(document, name), *text = at ? strchr(at, '>') : NULL;
    size_t bytes = text ? strcspn(text + 1, "<") : 0;

    for (size_t i = 0; i < bytes && bytes < 64; i++) {
        char letter = text[1 + i];

        region[i] = (char)(letter >= 'A' && letter <= 'Z' ? letter - 'A' + 'a' : letter);
    }
}

int stk_store_where(struct stk_store *store, const struct stk_place *place, char region[64],
                    struct stoker_error *error)
{
    static const struct stk_sign_pair location = {"location", ""};
    struct stk_http_answer *answer = stk_alloc(1, sizeof *answer);
    struct stk_place bucket = *place;
    uint8_t document[1024] = {0};
    struct stk_exchange exchange = {.place = &bucket, .method = STK_HTTP_HEAD};
    struct stk_view value;
    int status;

    memset(region, 0, 64);
    if (!answer) {
        return stk_fail(error, -ENOMEM, "cannot ask for a bucket", "free memory", "store");
    }
    bucket.key = "";
    if (place->kind == STK_PLACE_GOOGLE) {
        exchange.method = STK_HTTP_GET;
        exchange.query = &location;
        exchange.query_count = 1;
        exchange.document = true;
        exchange.buffer = document;
        exchange.buffer_bytes = sizeof document - 1;
    }
    status = place->kind == STK_PLACE_GOOGLE || place->kind == STK_PLACE_S3
                 ? stk_exchange_call(store, &exchange, answer, error)
                 : 0;
    if (place->kind == STK_PLACE_GOOGLE && status == 0) {
        take_location((const char *)document, region);
    } else if (place->kind == STK_PLACE_S3 && answer->code > 0 &&
               stk_http_header(answer, "x-amz-bucket-region", &value) && value.bytes < 64) {
        memcpy(region, value.data, value.bytes);
        status = 0;
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
    exchange->cover = NULL;
    exchange->buffer = buffer;
    exchange->buffer_bytes = bytes;
    exchange->request.body = (struct stk_view){0};
}

uint32_t stk_store_range_bytes(const struct stk_place *place)
{
    return place->kind == STK_PLACE_AZURE ? STK_STORE_RANGE_SEALED : STK_STORE_RANGE_BYTES;
}

uint32_t stk_place_dialect(const struct stk_place *place)
{
    return place->kind == STK_PLACE_S3       ? STK_SEAL_OF_AMAZON
           : place->kind == STK_PLACE_GOOGLE ? STK_SEAL_OF_GOOGLE
           : place->kind == STK_PLACE_AZURE  ? STK_SEAL_OF_AZURE
                                             : STK_SEAL_OF_WEB;
}

/* A small object of S3 comes whole, with its checksum, unless somebody reads it by ranges. */
struct stk_cover *stk_store_cover(struct stk_store *store, const struct stk_place *place,
                                  const struct stk_about *about, bool sure, bool *ask_out)
{
    bool amazon = place->kind == STK_PLACE_S3;
    bool lazy = store->config.site.settings.lazy_checks == STK_SAID_YES;
    bool vain =
        about->bytes <= STK_STORE_RANGE_BYTES ||
        atomic_load_explicit(&store->unsealed, memory_order_relaxed) >= STK_STORE_UNSEALED_MAX;
    struct stk_cover *cover;

    *ask_out = amazon;
    if (about->bytes == 0 || !about->etag[0] || place->kind == STK_PLACE_AZURE ||
        place->kind == STK_PLACE_HUB || (amazon && (lazy || (vain && !sure)))) {
        return NULL;
    }
    cover = stk_cover_new(about->bytes); /* NULL: goes without */
    if (cover && amazon) {
        stk_cover_guess(cover, STK_SEAL_CRC64); /* what S3 makes where nobody asks for another */
    }
    return cover;
}

void stk_store_seal(struct stk_exchange *exchange, const struct stk_place *place,
                    const struct stk_about *about)
{
    exchange->place = place;
    exchange->method = STK_HTTP_HEAD;
    exchange->about = about;
    exchange->seal = true;
}

void stk_store_sealed(const struct stk_exchange *exchange, const struct stk_http_answer *answer,
                      struct stk_cover *cover, struct stk_seal *whole)
{
    struct stk_store *store = exchange->store;
    struct stk_seals seals;

    *whole = (struct stk_seal){.kind = STK_SEAL_NONE};
    if (exchange->status < 0) {
        stk_cover_expect(cover, &(struct stk_seal){.kind = STK_SEAL_NONE});
        return;
    }
    stk_seals_read(&seals, answer, stk_place_dialect(exchange->place), true, false);
    if (stk_seal_joins(&seals.whole)) {
        atomic_store_explicit(&store->unsealed, 0, memory_order_relaxed);
    } else {
        *whole = seals.whole;
        atomic_fetch_add_explicit(&store->unsealed, 1, memory_order_relaxed);
    }
    switch (stk_cover_expect(cover, &seals.whole)) {
    case STK_COVER_PROVEN: /* all ranges had come before this answer */
        stk_store_proven(store, exchange->place, exchange->about->bytes);
        break;
    case STK_COVER_WRONG: /* who reads of it next is told */
        stk_store_damaged(store);
        break;
    case STK_COVER_OPEN:
        break;
    }
}

/* The size of the body that a GET would have, its place in the object, and the seal of it. What
 * cannot be is no answer. */
static bool take_part(struct stk_whole_part *part, const struct stk_http_answer *answer,
                      const struct stk_about *about)
{
    uint64_t first, last, total;
    struct stk_seals seals;
    struct stk_view value;

    stk_seals_read(&seals, answer, STK_SEAL_OF_AMAZON, false, false);
    *part = (struct stk_whole_part){
        .offset = UINT64_MAX, .bytes = answer->content_bytes, .seal = seals.body};
    if (stk_http_header(answer, "Content-Range", &value)) {
        if (!stk_store_content_range(value, &first, &last, &total) ||
            (total != UINT64_MAX && total != about->bytes)) {
            return false;
        }
        part->offset = first;
        part->bytes = part->bytes == UINT64_MAX ? last - first + 1 : part->bytes;
        if (part->bytes != last - first + 1) {
            return false;
        }
    }
    return part->bytes != UINT64_MAX;
}

/* HEAD of a part: https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html */
int stk_store_part(struct stk_store *store, const struct stk_place *place,
                   const struct stk_about *about, uint32_t number, struct stk_whole_part *part,
                   struct stoker_error *error)
{
    struct stk_http_answer *answer = stk_alloc(1, sizeof *answer);
    struct stk_exchange exchange = {.status = 0};
    struct stk_sign_pair query = {"partNumber", NULL};
    char text[12];
    int status;

    if (place->kind != STK_PLACE_S3) {
        stk_free(answer);
        return STOKER_ERROR_UNSUPPORTED;
    }
    if (!answer) {
        return stk_fail(error, -ENOMEM, "cannot ask for a part", "free memory", "store");
    }
    snprintf(text, sizeof text, "%u", number);
    query.value = text;
    stk_store_seal(&exchange, place, about);
    exchange.query = &query;
    exchange.query_count = 1;
    exchange.keyed = true;
    status = stk_exchange_call(store, &exchange, answer, error);
    if (status == 0 && !take_part(part, answer, about)) {
        status = STOKER_ERROR_UNSUPPORTED;
    } else if (status < 0 && status != STOKER_ERROR_CHANGED && exchange.code != 412 &&
               exchange.code != 429 && (exchange.code / 100 == 4 || exchange.code == 501)) {
        status = STOKER_ERROR_UNSUPPORTED; /* it does not know parts, or does not tell us */
    }
    stk_free(answer);
    return status;
}

void stk_store_demand_sums(struct stk_store *store)
{
    atomic_store_explicit(&store->demands_sums, true, memory_order_relaxed);
}

bool stk_store_demands_sums(const struct stk_store *store)
{
    return atomic_load_explicit(&store->demands_sums, memory_order_relaxed);
}

void stk_store_proven(struct stk_store *store, const struct stk_place *place, uint64_t bytes)
{
    atomic_fetch_add_explicit(&store->checked[stk_place_store(place)], bytes, memory_order_relaxed);
}

void stk_store_damaged(struct stk_store *store)
{
    atomic_fetch_add_explicit(&store->damaged, 1, memory_order_relaxed);
}

/* Bytes first to last, of the object `whole`. */
static int fail_sums(struct stoker_error *error, uint64_t first, uint64_t last, bool whole,
                     const struct stk_seal *want, const struct stk_seal *got)
{
    char wanted[STK_SEAL_TEXT_BYTES], came[STK_SEAL_TEXT_BYTES];

    stk_seal_text(want, wanted);
    stk_seal_text(got, came);
    return stk_fail(error, STOKER_ERROR_CORRUPT,
                    whole ? "an object's bytes are not as its checksum says"
                          : "the bytes are not as the server's checksum says",
                    "look at the server, at proxies and the memory of this machine",
                    "bytes %" PRIu64 "-%" PRIu64 ": the server tells %s, what came is %s", first,
                    last, wanted, came);
}

static uint32_t fail_damaged(struct stk_exchange *exchange, const struct stk_seal *want,
                             const struct stk_seal *got, bool whole)
{
    uint64_t first = whole ? 0 : exchange->offset;
    uint64_t last = whole ? exchange->about->bytes - 1 : exchange->offset + exchange->bytes - 1;

    exchange->good = 0;
    exchange->request.failure = STK_HTTP_BROKEN;
    exchange->request.status = fail_sums(&exchange->request.error, first, last, whole, want, got);
    stk_store_damaged(exchange->store);
    return whole || exchange->damaged >= STK_STORE_DAMAGED_MAX ? STK_VERDICT_FAILED
                                                               : STK_VERDICT_TRANSIENT;
}

int stk_store_sum(struct stk_store *store, const struct stk_place *place, struct stk_cover *cover,
                  uint64_t offset, struct stk_view bytes, struct stoker_error *error)
{
    uint64_t all = stk_cover_bytes(cover);
    struct stk_seal want, got;

    switch (stk_cover_add(cover, offset, bytes)) {
    case STK_COVER_PROVEN:
        stk_store_proven(store, place, all);
        break;
    case STK_COVER_WRONG:
        stk_cover_tell(cover, &want, &got);
        stk_store_damaged(store);
        fail_sums(error, 0, all - 1, true, &want, &got);
        if (error) {
            stk_error_place(error, place->url, STOKER_NO_OFFSET, NULL);
        }
        return STOKER_ERROR_CORRUPT;
    case STK_COVER_OPEN:
        break;
    }
    return 0;
}

/* A checksum that may be of other bytes is asked for twice: if the same bytes come again they are
 * believed. */
static uint32_t prove_body(struct stk_exchange *exchange, bool *proven)
{
    const struct stk_seal *want = &exchange->seals.body;
    struct stk_store *store = exchange->store;
    struct stk_seal got;

    if (want->kind == STK_SEAL_NONE ||
        (exchange->seals.doubtful &&
         atomic_load_explicit(&store->doubts, memory_order_relaxed) >= STK_STORE_DOUBTS_MAX)) {
        return STK_VERDICT_GOOD;
    }
    got = stk_seal_make(want->kind, want->parts == 1,
                        (struct stk_view){exchange->buffer, exchange->bytes});
    got.hex = want->hex;
    if (stk_seal_is(&got, want)) {
        *proven = true;
        return STK_VERDICT_GOOD;
    }
    if (exchange->seals.doubtful && exchange->damaged > 0 && stk_seal_is(&got, &exchange->odd)) {
        atomic_fetch_add_explicit(&store->doubts, 1, memory_order_relaxed);
        return STK_VERDICT_GOOD;
    }
    exchange->odd = got;
    exchange->damaged++;
    return fail_damaged(exchange, want, &got, false);
}

uint32_t stk_store_prove(struct stk_exchange *exchange)
{
    struct stk_cover *cover = exchange->cover;
    struct stk_seal want, got;
    bool proven = false;
    uint32_t verdict = prove_body(exchange, &proven);

    if (proven) {
        stk_store_proven(exchange->store, exchange->place, exchange->bytes);
    }
    if (verdict != STK_VERDICT_GOOD || proven || !cover) {
        return verdict;
    }
    if (stk_seal_joins(&exchange->seals.whole)) {
        stk_cover_expect(cover, &exchange->seals.whole);
    }
    switch (stk_cover_add(cover, exchange->offset,
                          (struct stk_view){exchange->buffer, exchange->bytes})) {
    case STK_COVER_PROVEN:
        stk_store_proven(exchange->store, exchange->place, exchange->about->bytes);
        break;
    case STK_COVER_WRONG: /* who read the other ranges has them already: it ends here */
        stk_cover_tell(cover, &want, &got);
        return fail_damaged(exchange, &want, &got, true);
    case STK_COVER_OPEN:
        break;
    }
    return STK_VERDICT_GOOD;
}
