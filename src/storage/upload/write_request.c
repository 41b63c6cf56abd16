/* One request, and proofs of bodies. */
#include "storage/upload/write_request.h"

#include "base/crc.h"
#include "base/mem.h"
#include "storage/upload/xml_response.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stk_call *stk_call_open(const struct stk_place *place, uint32_t method, bool document,
                               struct stoker_error *error)
{
    struct stk_call *call = stk_alloc(1, sizeof *call);

    if (call && document) {
        call->document = stk_alloc(1, STK_CALL_DOCUMENT_BYTES + 1);
    }
    if (!call || (document && !call->document)) {
        stk_free(call);
        stk_fail(error, -ENOMEM, "cannot send a request", "free memory", "'%.200s'", place->url);
        return NULL;
    }
    call->exchange.place = place;
    call->exchange.method = method;
    call->exchange.keyed = true;
    if (document) {
        call->exchange.document = true;
        call->exchange.buffer = call->document;
        call->exchange.buffer_bytes = STK_CALL_DOCUMENT_BYTES;
    }
    return call;
}

void stk_call_more(struct stk_call *call, const char *name, const char *value)
{
    STK_ASSERT(call->more_count < STK_COUNT(call->more));
    call->more[call->more_count++] = (struct stk_sign_pair){name, value};
}

void stk_call_query(struct stk_call *call, const char *name, const char *value)
{
    STK_ASSERT(call->query_count < STK_COUNT(call->query));
    call->query[call->query_count++] = (struct stk_sign_pair){name, value};
}

int stk_call_run(struct stk_call *call, struct stk_store *store, struct stoker_error *error)
{
    call->exchange.more = call->more;
    call->exchange.more_count = call->more_count;
    call->exchange.query = call->query;
    call->exchange.query_count = call->query_count;
    return stk_exchange_call(store, &call->exchange, &call->answer, error);
}

bool stk_call_is_doubtful(const struct stk_call *call)
{
    return call->exchange.attempts > 1 || call->exchange.request.sends > 1 ||
           call->exchange.code == 0;
}

bool stk_call_is_refused(const struct stk_call *call, const char *word)
{
    return strcmp(call->exchange.refused, word) == 0;
}

bool stk_call_may_be_done(const struct stk_call *call)
{
    switch (call->exchange.request.failure) {
    case STK_HTTP_RESET:
    case STK_HTTP_BROKEN:
    case STK_HTTP_FIRST_BYTE:
    case STK_HTTP_STALL:
    case STK_HTTP_TOTAL:
    case STK_HTTP_LIMIT:
    case STK_HTTP_OTHER:
        return true;
    default:
        return call->exchange.code != 0 && call->exchange.attempts > 1;
    }
}

struct stk_view stk_call_document(const struct stk_call *call)
{
    return (struct stk_view){call->document, call->exchange.request.bytes};
}

bool stk_call_says(const struct stk_call *call, const char *root)
{
    struct stk_answer *answer = stk_alloc(1, sizeof *answer);
    struct stk_view document = stk_call_document(call);
    bool says = false;

    while (document.bytes > 0 && memchr(" \t\r\n", document.data[0], 4)) {
        document.data++; /* sent while the server worked; XML's declaration may follow */
        document.bytes--;
    }
    if (answer) {
        answer->root = root;
        answer->names[0] = "Key";
        says = stk_answer_read(answer, document) == 0 &&
               (!answer->texts[0][0] || strcmp(answer->texts[0], call->exchange.place->key) == 0);
    }
    stk_free(answer);
    return says;
}

void stk_call_etag(const struct stk_call *call, char *etag, size_t etag_bytes)
{
    struct stk_view value;

    etag[0] = '\0';
    if (stk_http_header(&call->answer, "ETag", &value)) {
        bool quoted =
            value.bytes >= 2 && value.data[0] == '"' && value.data[value.bytes - 1] == '"';

        value.data += quoted;
        value.bytes -= quoted ? 2 : 0;
        if (value.bytes < etag_bytes) {
            memcpy(etag, value.data, value.bytes);
            etag[value.bytes] = '\0';
        }
    }
}

void stk_call_close(struct stk_call *call)
{
    if (call) {
        stk_free(call->document);
        stk_free(call);
    }
}

bool stk_call_wants_sum(const struct stk_call *call, const struct stk_proof *proof)
{
    return call->exchange.place->kind == STK_PLACE_S3 && proof->sum_bytes == 0 &&
           call->exchange.code == 400 &&
           (stk_call_is_refused(call, "InvalidRequest") ||
            stk_call_is_refused(call, "MissingContentMD5"));
}

uint32_t stk_proof_kind(uint32_t check)
{
    return check == STK_CHECK_CRC64NVME || check == STK_CHECK_AZURE ? STK_SEAL_CRC64
           : check == STK_CHECK_CRC32C || check == STK_CHECK_GOOGLE ? STK_SEAL_CRC32C
                                                                    : STK_SEAL_NONE;
}

uint64_t stk_proof_number(const struct stk_proof *proof)
{
    uint64_t number = 0;

    for (uint32_t i = 0; i < proof->sum_bytes && proof->sum_bytes <= 8; i++) {
        number = number << 8 | proof->sum[i];
    }
    return number;
}

int stk_call_took(const struct stk_call *call, const struct stk_proof *proof,
                  struct stoker_error *error)
{
    const struct stk_place *place = call->exchange.place;
    char wanted[STK_SEAL_TEXT_BYTES], came[STK_SEAL_TEXT_BYTES];
    struct stk_seals told;
    struct stk_seal ours;

    stk_seals_read(&told, &call->answer, stk_place_dialect(place), true, false);
    if (!stk_seal_joins(&told.body) || told.doubtful) { /* an SHA takes long, and is rarely told */
        return 0;
    }
    if (told.body.kind == stk_proof_kind(proof->check)) {
        ours = (struct stk_seal){.kind = told.body.kind};
        memcpy(ours.sum, proof->sum, proof->sum_bytes);
    } else {
        ours = stk_seal_make(told.body.kind, false, call->exchange.request.body);
    }
    if (stk_seal_is(&ours, &told.body)) {
        return 0;
    }
    stk_seal_text(&ours, wanted);
    stk_seal_text(&told.body, came);
    return stk_fail(error, STOKER_ERROR_CORRUPT, "the server answers of other bytes than were sent",
                    "look at the server and proxies between: answers may be mixed up",
                    "'%.300s': sent %s, told %s", place->url, wanted, came);
}

uint32_t stk_place_check(const struct stk_place *place, uint32_t check)
{
    return place->kind == STK_PLACE_GOOGLE  ? STK_CHECK_GOOGLE
           : place->kind == STK_PLACE_AZURE ? STK_CHECK_AZURE
                                            : check;
}

uint32_t stk_proof_check(const struct stk_store *store, uint32_t check)
{
    bool own, tls;

    if (check != STK_CHECK_AUTO) {
        return check;
    }
    if (stk_store_demands_sums(store)) {
        return STK_CHECK_MD5; /* which all of them know */
    }
    stk_store_kind(store, &own, &tls);
    return own || stk_store_settings(store)->lazy_sums == STK_SAID_YES ? STK_CHECK_AUTO
                                                                       : STK_CHECK_CRC64NVME;
}

bool stk_call_source(const struct stk_place *from, char *source, size_t source_bytes)
{
    size_t used = 0;

    return stk_sign_encode(from->bucket, true, source, source_bytes, &used) &&
           stk_sign_encode(from->arn ? "/object/" : "/", true, source, source_bytes, &used) &&
           stk_sign_encode(from->key, true, source, source_bytes, &used);
}

static void put_number(struct stk_proof *proof, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        proof->sum[i] = (uint8_t)(value >> (8 * (bytes - 1 - i)));
    }
    proof->sum_bytes = bytes;
}

void stk_proof_make(struct stk_proof *proof, const struct stk_store *store, uint32_t check,
                    struct stk_view body)
{
    uint32_t sign = stk_store_settings(store)->sign_payload;
    bool own, tls;

    *proof = (struct stk_proof){.check = stk_proof_check(store, check)};
    stk_store_kind(store, &own, &tls);
    if (check < STK_CHECK_GOOGLE &&
        (sign == STK_SAID_YES || (sign == STK_UNSAID && (!tls || proof->check == STK_CHECK_AUTO)) ||
         proof->check == STK_CHECK_SHA256)) {
        stk_sign_hash(body, proof->payload); /* and signed: who changes the body is found out */
    }
    switch (proof->check) {
    case STK_CHECK_CRC64NVME:
    case STK_CHECK_AZURE:
        put_number(proof, stk_crc64(0, body.data, body.bytes), 8);
        break;
    case STK_CHECK_CRC32C:
    case STK_CHECK_GOOGLE:
        put_number(proof, stk_crc32c(0, body.data, body.bytes), 4);
        break;
    case STK_CHECK_SHA256: {
        struct stk_sha256 sha;

        stk_sha256_init(&sha);
        stk_sha256_add(&sha, body.data, body.bytes);
        stk_sha256_done(&sha, proof->sum);
        proof->sum_bytes = 32;
        break;
    }
    case STK_CHECK_MD5:
        stk_md5(body.data, body.bytes, proof->sum);
        proof->sum_bytes = 16;
        break;
    default:
        break;
    }
    stk_proof_text(proof);
}

void stk_proof_text(struct stk_proof *proof)
{
    char sum[STK_BASE64_BYTES];
    uint8_t turned[8];

    if (proof->check == STK_CHECK_AZURE) { /* its lowest byte first */
        for (uint32_t i = 0; i < 8; i++) {
            turned[i] = proof->sum[7 - i];
        }
        stk_base64(turned, 8, proof->text);
    } else if (proof->check == STK_CHECK_GOOGLE) {
        stk_base64(proof->sum, 4, sum);
        snprintf(proof->text, sizeof proof->text, "crc32c=%.16s", sum);
    } else if (proof->sum_bytes > 0) {
        stk_base64(proof->sum, proof->sum_bytes, proof->text);
    }
}

void stk_proof_add(const struct stk_proof *proof, struct stk_call *call)
{
    if (proof->payload[0]) {
        call->exchange.payload = proof->payload;
    }
    if (proof->check == STK_CHECK_MD5) {
        stk_call_more(call, "Content-MD5", proof->text);
    } else if (proof->sum_bytes > 0) {
        stk_call_more(call, stk_proof_header(proof->check), proof->text);
    }
}

const char *stk_proof_header(uint32_t check)
{
    return check == STK_CHECK_CRC64NVME ? "x-amz-checksum-crc64nvme"
           : check == STK_CHECK_CRC32C  ? "x-amz-checksum-crc32c"
           : check == STK_CHECK_SHA256  ? "x-amz-checksum-sha256"
           : check == STK_CHECK_GOOGLE  ? "x-goog-hash"
           : check == STK_CHECK_AZURE   ? "x-ms-content-crc64"
                                        : NULL;
}

const char *stk_proof_name(uint32_t check)
{
    return check == STK_CHECK_CRC64NVME ? "CRC64NVME"
           : check == STK_CHECK_CRC32C  ? "CRC32C"
           : check == STK_CHECK_SHA256  ? "SHA256"
                                        : NULL;
}

const char *stk_proof_element(uint32_t check)
{
    return check == STK_CHECK_CRC64NVME ? "ChecksumCRC64NVME"
           : check == STK_CHECK_CRC32C  ? "ChecksumCRC32C"
           : check == STK_CHECK_SHA256  ? "ChecksumSHA256"
                                        : NULL;
}

void stk_call_options(struct stk_call *call, const struct stk_upload_options *options,
                      const struct stk_proof *proof)
{
    uint32_t kind = call->exchange.place->kind;

    if (proof) {
        stk_proof_add(proof, call);
    }
    stk_call_more(call, "Content-Type", "application/octet-stream");
    if (options->storage_class) {
        stk_call_more(call,
                      kind == STK_PLACE_GOOGLE  ? "x-goog-storage-class"
                      : kind == STK_PLACE_AZURE ? "x-ms-access-tier"
                                                : "x-amz-storage-class",
                      options->storage_class);
    }
    if (options->encryption) {
        stk_call_more(call, "x-amz-server-side-encryption", options->encryption);
    }
    if (options->encryption_key) {
        stk_call_more(call, "x-amz-server-side-encryption-aws-kms-key-id", options->encryption_key);
    }
    if (options->encryption_context) {
        stk_call_more(call, "x-amz-server-side-encryption-context", options->encryption_context);
    }
}

int stk_call_check_key(const struct stk_place *place, struct stoker_error *error)
{
    return place->key && place->key[0]
               ? 0
               : stk_fail(error, STOKER_ERROR_ARGUMENT, "a bucket is not an object",
                          "name a key in it", "'%.400s'", place->url);
}

int stk_call_check_options(const struct stk_place *place, const struct stk_upload_options *options,
                           struct stoker_error *error)
{
    int status = stk_call_check_key(place, error);

    if (status < 0) {
        return status;
    }
    if (place->kind != STK_PLACE_S3 &&
        (options->encryption || options->encryption_key || options->encryption_context)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "this store encrypts by its own rules",
                        "leave the encryption out, and set it at the bucket", "'%.400s'",
                        place->url);
    }
    return 0;
}

static bool is_context(const char *json)
{
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, NULL), *value;
    bool is = json_is_object(root);
    const char *name;

    json_object_foreach(root, name, value)
    {
        is = is && json_is_string(value);
    }
    json_decref(root);
    return is;
}

int stk_upload_context(const char *json, char **text_out, struct stoker_error *error)
{
    size_t bytes = strlen(json), used = 0;
    char some[STK_BASE64_BYTES], *text;

    if (bytes > STK_UPLOAD_CONTEXT_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an encryption context is too long",
                        "use at most 4096 bytes", "%zu bytes", bytes);
    }
    if (!is_context(json)) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "an encryption context cannot be read",
                        "write an object of JSON with texts: {\"project\": \"a\"}", "%zu bytes",
                        bytes);
    }
    text = stk_alloc(1, (bytes + 2) / 3 * 4 + 1);
    if (!text) {
        return stk_fail(error, -ENOMEM, "cannot write objects", "free memory", "context");
    }
    for (size_t at = 0; at < bytes; at += 48) { /* whole groups, but the last */
        stk_base64((const uint8_t *)json + at, stk_min(bytes - at, 48), some);
        used += (size_t)snprintf(text + used, sizeof some, "%s", some);
    }
    *text_out = text;
    return 0;
}

void stk_call_fresh(struct stk_call *call)
{
    if (call->exchange.place->kind == STK_PLACE_GOOGLE) {
        stk_call_more(call, "x-goog-if-generation-match", "0");
    } else {
        stk_call_more(call, "If-None-Match", "*");
    }
}

bool stk_call_was_there(const struct stk_call *call)
{
    return call->exchange.code == 412 || stk_call_is_refused(call, "PreconditionFailed") ||
           stk_call_is_refused(call, "BlobAlreadyExists");
}

bool stk_call_is_body(struct stk_store *store, const struct stk_place *place, struct stk_view body)
{
    struct stk_exchange exchange = {.status = 0};
    struct stk_about about;
    uint8_t *there;
    bool is;

    if (stk_store_head(store, place, &about, NULL) < 0 || about.bytes != body.bytes) {
        return false;
    }
    there = body.bytes > 0 ? stk_alloc(1, body.bytes) : NULL;
    is = body.bytes == 0;
    if (there) {
        stk_store_fetch(&exchange, place, &about, 0, body.bytes, there);
        is = stk_exchange_call(store, &exchange, NULL, NULL) == 0 &&
             memcmp(there, body.data, body.bytes) == 0;
    }
    stk_free(there);
    return is;
}

static bool read_range(struct stk_store *store, const struct stk_place *place,
                       const struct stk_about *about, uint64_t offset, struct stk_view range)
{
    struct stk_exchange *exchange = stk_alloc(1, sizeof *exchange);
    bool came = false;

    if (exchange) {
        stk_store_fetch(exchange, place, about, offset, range.bytes,
                        (uint8_t *)(uintptr_t)range.data);
        came = stk_exchange_call(store, exchange, NULL, NULL) == 0;
    }
    stk_free(exchange);
    return came;
}

bool stk_call_is_copy(struct stk_store *store, const struct stk_place *place,
                      const struct stk_place *from, const struct stk_about *about)
{
    uint64_t most = stk_min(about->bytes, STK_STORE_RANGE_BYTES);
    struct stk_about there;
    uint8_t *buffers;
    bool same;

    if (stk_store_head(store, place, &there, NULL) < 0 || there.bytes != about->bytes) {
        return false;
    }
    if (about->bytes == 0 || (about->etag[0] && strcmp(about->etag, there.etag) == 0)) {
        return true;
    }
    buffers = stk_alloc(2, most);
    same = buffers != NULL;
    for (uint64_t at = 0; same && at < about->bytes; at += most) {
        struct stk_view ours = {buffers, stk_min(about->bytes - at, most)};
        struct stk_view theirs = {buffers + most, ours.bytes};

        same = read_range(store, from, about, at, ours) &&
               read_range(store, place, &there, at, theirs) &&
               memcmp(ours.data, theirs.data, ours.bytes) == 0;
    }
    stk_free(buffers);
    return same;
}

bool stk_call_is_there(struct stk_store *store, const struct stk_place *place, uint64_t bytes,
                       const char *etag)
{
    struct stk_about about;
    size_t etag_bytes = strlen(etag);

    return stk_store_head(store, place, &about, NULL) == 0 && about.bytes == bytes &&
           strlen(about.etag) == etag_bytes + 2 &&
           strncasecmp(about.etag + 1, etag, etag_bytes) == 0;
}

int stk_call_fail_fresh(const struct stk_place *place, struct stoker_error *error)
{
    return stk_fail(error, -EEXIST, "an object of this name is there already",
                    "choose another name, or allow that it is replaced", "'%.400s'", place->url);
}
