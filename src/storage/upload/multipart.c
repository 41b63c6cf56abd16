/* Objects that are written by parts. */
#include "storage/upload/multipart.h"

#include "base/crc.h"
#include "base/crypto/digest.h"
#include "base/mem.h"
#include "io/clock.h"
#include "storage/upload/write_request.h"
#include "storage/upload/xml_response.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PART_ROUND (1u << 20)
#define COPY_PART_BYTES (256u << 20) /* nothing of it passes here */

static int create(struct stk_upload *upload, struct stoker_error *error);
static int find_left(struct stk_upload *upload, struct stoker_error *error);
static int find_parts(struct stk_upload *upload, struct stoker_error *error);

static int fail_answer(const struct stk_upload *upload, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, "the server's answer cannot be read",
                    "look at the server and proxies between", "'%.400s'", upload->place.url);
}

static int fail_gone(struct stk_upload *upload, struct stoker_error *error)
{
    atomic_store_explicit(&upload->gone, true, memory_order_relaxed);
    return stk_fail(error, STOKER_ERROR_CHANGED, "the store knows this upload no more",
                    "look who ends or removes uploads there (a rule of the bucket, another copy of "
                    "the same), and start it again",
                    "'%.400s'", upload->place.url);
}

bool stk_upload_is_gone(const struct stk_upload *upload)
{
    return atomic_load_explicit(&upload->gone, memory_order_relaxed);
}

int stk_upload_open(struct stk_upload **upload_out, struct stk_store *store,
                    const struct stk_place *place, uint64_t bytes,
                    const struct stk_upload_options *options, struct stoker_error *error)
{
    uint64_t part = options->part_bytes ? options->part_bytes : STK_STORE_RANGE_BYTES;
    struct stk_upload *upload = stk_alloc(1, sizeof *upload);
    struct stk_about about;
    int status = 0;

    STK_ASSERT(bytes > 0);
    part = stk_max(part, STK_UPLOAD_PART_BYTES_MIN);
    part = stk_max(part, (bytes + STK_UPLOAD_PARTS_MAX - 1) / STK_UPLOAD_PARTS_MAX);
    part = (part + PART_ROUND - 1) / PART_ROUND * PART_ROUND;
    if (bytes > STK_UPLOAD_BYTES_MAX) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "an object can not be so large",
                          "split it: S3 takes 5 TiB", "'%.400s': %llu bytes", place->url,
                          (unsigned long long)bytes);
        goto done;
    }
    if (upload) {
        upload->parts = stk_alloc((bytes + part - 1) / part, sizeof *upload->parts);
    }
    if (!upload || !upload->parts) {
        status = stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                          place->url);
        goto done;
    }
    upload->store = store;
    upload->place = *place;
    upload->options = *options;
    upload->bytes = bytes;
    upload->part_bytes = part;
    upload->part_count = (uint32_t)((bytes + part - 1) / part);
    upload->check = stk_proof_check(store, stk_place_check(place, options->check));
    upload->key = place->key;
    status = stk_call_check_options(place, options, error);
    if (status < 0) {
        goto done;
    }
    if (options->fresh && stk_store_head(store, place, &about, NULL) == 0) {
        status = stk_call_fail_fresh(place, error); /* before all of it is sent for nothing */
        goto done;
    }
    if (place->kind == STK_PLACE_AZURE) {
        status = options->resume ? stk_azure_find_left(upload, error) : 0;
        goto done;
    }
    if (place->kind == STK_PLACE_GOOGLE && options->fresh) {
        status = stk_google_open(upload, error);
    }
    if (status == 0 && options->resume) {
        status = find_left(upload, error);
    }
    if (status == 0 && !upload->id[0]) {
        status = create(upload, error);
    }
done:
    if (status < 0) {
        stk_upload_close(upload, false);
        return status;
    }
    *upload_out = upload;
    return 0;
}

uint32_t stk_upload_part_count(const struct stk_upload *upload)
{
    return upload->part_count;
}

uint64_t stk_upload_part_bytes(const struct stk_upload *upload)
{
    return upload->part_bytes;
}

bool stk_upload_is_empty(const struct stk_upload *upload)
{
    for (uint32_t i = 0; i < upload->part_count; i++) {
        if (upload->parts[i].etag[0] || upload->parts[i].left[0]) {
            return false;
        }
    }
    return true;
}

void stk_upload_close(struct stk_upload *upload, bool abort)
{
    if (upload && abort && upload->id[0]) {
        stk_upload_drop(upload); /* what it cannot remove now, a sweep finds */
    }
    if (upload && upload->doubt_ns > 0) {
        stk_upload_drop_twins(upload);
    }
    if (upload) {
        stk_free(upload->parts);
        stk_free(upload->beside);
        stk_free(upload);
    }
}

static int create(struct stk_upload *upload, struct stoker_error *error)
{
    struct stk_call *call = stk_call_open(&upload->place, STK_HTTP_POST, true, error);
    struct stk_answer *answer = stk_alloc(1, sizeof *answer);
    const char *name = stk_proof_name(upload->check);
    struct stk_view date;
    int status = call && answer ? 0 : -ENOMEM;

    if (status < 0) {
        stk_fail(error, status, "cannot write an object", "free memory", "'%.400s'",
                 upload->place.url);
        goto done;
    }
    stk_call_query(call, "uploads", NULL);
    stk_call_options(call, &upload->options, NULL);
    if (name) {
        stk_call_more(call, "x-amz-checksum-algorithm", name);
        stk_call_more(call, "x-amz-checksum-type",
                      upload->check == STK_CHECK_SHA256 ? "COMPOSITE" : "FULL_OBJECT");
    }
    upload->asked_ns = stk_clock_ns();
    status = stk_call_run(call, upload->store, error);
    upload->tries = call->exchange.sends;
    if (status == 0) {
        *answer =
            (struct stk_answer){.root = "InitiateMultipartUploadResult", .names = {"UploadId"}};
        status = stk_answer_read(answer, stk_call_document(call));
        if (status < 0 || !answer->texts[0][0] || strlen(answer->texts[0]) >= STK_UPLOAD_ID_BYTES) {
            status = fail_answer(upload, error);
        } else {
            memcpy(upload->id, answer->texts[0], strlen(answer->texts[0]) + 1);
        }
        if (status == 0 && stk_call_is_doubtful(call) &&
            stk_http_header(&call->answer, "Date", &date)) {
            upload->begun_ns = stk_store_time((const char *)date.data, date.bytes);
            upload->doubt_ns = upload->begun_ns > 0 ? stk_clock_ns() - upload->asked_ns : 0;
        }
    }
    if (status == STOKER_ERROR_CORRUPT || (status < 0 && stk_call_may_be_done(call))) {
        upload->doubt_ns = 1; /* what it began, maybe, is looked for, and removed */
        if (error) {
            snprintf(error->advice, sizeof error->advice,
                     "look at the server and proxies between; it may have begun an upload all the "
                     "same: 'stoker rm --uploads' removes such");
        }
    }
done:
    stk_free(answer);
    stk_call_close(call);
    return status;
}

static bool is_md5(const char *etag)
{
    return strlen(etag) == 32 && strspn(etag, "0123456789abcdefABCDEF") == 32;
}

/* Whether a part of an earlier run is this. */
static bool is_same(const char *etag, struct stk_view body)
{
    uint8_t digest[16];
    char text[33];

    if (!is_md5(etag)) {
        return false;
    }
    stk_md5(body.data, body.bytes, digest);
    stk_hex(digest, sizeof digest, text);
    return strcasecmp(text, etag) == 0;
}

int stk_upload_part(struct stk_upload *upload, uint32_t index, struct stk_view body,
                    struct stoker_error *error)
{
    struct stk_part *part = &upload->parts[index];
    struct stk_proof proof;
    struct stk_call *call;
    char number[12];
    int status;

    STK_ASSERT(index < upload->part_count && body.bytes == stk_part_bytes_of(upload, index));
    if (upload->place.kind == STK_PLACE_AZURE) {
        return stk_azure_part(upload, index, body, error);
    }
    stk_proof_make(&proof, upload->store, upload->check, body);
    memcpy(part->sum, proof.text, sizeof part->sum);
    part->crc = stk_proof_number(&proof);
    if (part->left[0] && is_same(part->left, body)) {
        memcpy(part->etag, part->left, sizeof part->etag);
        return 1;
    }
    call = stk_call_open(&upload->place, STK_HTTP_PUT, false, error);
    if (!call) {
        return -ENOMEM;
    }
    snprintf(number, sizeof number, "%u", index + 1);
    stk_call_query(call, "partNumber", number);
    stk_call_query(call, "uploadId", upload->id);
    stk_proof_add(&proof, call);
    call->exchange.request.body = body;
    status = stk_call_run(call, upload->store, error);
    part->again = stk_call_is_doubtful(call);
    if (status < 0 && stk_call_wants_sum(call, &proof)) {
        stk_call_close(call);
        stk_store_demand_sums(upload->store); /* so now it has one */
        return stk_upload_part(upload, index, body, error);
    }
    if (status < 0 && stk_call_is_refused(call, "NoSuchUpload")) {
        status = fail_gone(upload, error);
    }
    if (status == 0) {
        stk_call_etag(call, part->etag, sizeof part->etag);
        status = part->etag[0] ? stk_call_took(call, &proof, error) : fail_answer(upload, error);
    }
    stk_call_close(call);
    return status;
}

int stk_upload_copy_part(struct stk_upload *upload, uint32_t index, const struct stk_place *from,
                         const struct stk_about *about, struct stoker_error *error)
{
    struct stk_part *part = &upload->parts[index];
    struct stk_call *call = stk_call_open(&upload->place, STK_HTTP_PUT, true, error);
    struct stk_answer *answer = stk_alloc(1, sizeof *answer);
    uint64_t begin = index * upload->part_bytes;
    char number[12], range[64], source[4096];
    int status = call && answer ? 0 : -ENOMEM;

    if (status < 0 || !stk_call_source(from, source, sizeof source)) {
        status = stk_fail(error, status < 0 ? status : STOKER_ERROR_LIMIT, "cannot copy an object",
                          "free memory, or shorten the key", "'%.400s'", from->url);
        goto done;
    }
    snprintf(number, sizeof number, "%u", index + 1);
    snprintf(range, sizeof range, "bytes=%llu-%llu", (unsigned long long)begin,
             (unsigned long long)(begin + stk_part_bytes_of(upload, index) - 1));
    stk_call_query(call, "partNumber", number);
    stk_call_query(call, "uploadId", upload->id);
    call->exchange.source = from;
    stk_call_more(call, "x-amz-copy-source", source);
    stk_call_more(call, "x-amz-copy-source-range", range);
    if (about->etag[0]) {
        stk_call_more(call, "x-amz-copy-source-if-match", about->etag);
    }
    call->exchange.patience = STK_COMMIT_PATIENCE;
    status = stk_call_run(call, upload->store, error);
    part->again = stk_call_is_doubtful(call);
    if (status < 0 && stk_call_is_refused(call, "NoSuchUpload")) {
        status = fail_gone(upload, error);
    }
    if (status == 0) {
        *answer = (struct stk_answer){.root = "CopyPartResult", .names = {"ETag"}};
        status = stk_answer_read(answer, stk_call_document(call));
        stk_answer_etag(answer->texts[0], part->etag, sizeof part->etag);
        if (status < 0 || !part->etag[0]) {
            status = fail_answer(upload, error);
        }
    }
done:
    stk_free(answer);
    stk_call_close(call);
    return status;
}

/* "<CompleteMultipartUpload>...": NULL: no memory. */
static char *write_parts(const struct stk_upload *upload)
{
    const char *element = stk_proof_element(upload->check);
    size_t each = STK_PART_TAG_BYTES * 6 + STK_BASE64_BYTES + 160;
    size_t bytes = 64 + upload->part_count * each, used;
    char *xml = stk_alloc(1, bytes);

    if (!xml) {
        return NULL;
    }
    used = (size_t)snprintf(xml, bytes, "<CompleteMultipartUpload>");
    for (uint32_t i = 0; i < upload->part_count; i++) {
        const struct stk_part *part = &upload->parts[i];
        bool fits;

        STK_ASSERT(part->etag[0]);
        used += (size_t)snprintf(xml + used, bytes - used, "<Part><ETag>&quot;");
        fits = stk_answer_quote(part->etag, xml, bytes, &used);
        STK_ASSERT(fits);
        used += (size_t)snprintf(xml + used, bytes - used, "&quot;</ETag>");
        if (element && part->sum[0]) {
            used += (size_t)snprintf(xml + used, bytes - used, "<%s>%s</%s>", element, part->sum,
                                     element);
        }
        used +=
            (size_t)snprintf(xml + used, bytes - used, "<PartNumber>%u</PartNumber></Part>", i + 1);
    }
    snprintf(xml + used, bytes - used, "</CompleteMultipartUpload>");
    return xml;
}

bool stk_upload_join(const struct stk_upload *upload, struct stk_proof *proof)
{
    uint64_t crc = 0;

    if ((upload->check != STK_CHECK_CRC64NVME && upload->check != STK_CHECK_CRC32C &&
         upload->check != STK_CHECK_GOOGLE) ||
        !upload->parts[0].sum[0]) {
        return false;
    }
    *proof = (struct stk_proof){.check = upload->check,
                                .sum_bytes = upload->check == STK_CHECK_CRC64NVME ? 8 : 4};
    for (uint32_t i = 0; i < upload->part_count; i++) {
        crc = proof->sum_bytes == 8
                  ? stk_crc64_join(crc, upload->parts[i].crc, stk_part_bytes_of(upload, i))
                  : stk_crc32c_join((uint32_t)crc, (uint32_t)upload->parts[i].crc,
                                    stk_part_bytes_of(upload, i));
    }
    for (uint32_t i = 0; i < proof->sum_bytes; i++) {
        proof->sum[i] = (uint8_t)(crc >> (8 * (proof->sum_bytes - 1 - i)));
    }
    stk_proof_text(proof);
    return true;
}

/* MD5 of the parts' MD5s, and their number: what servers make of an object by parts. */
static void expect_etag(const struct stk_upload *upload, char *etag, size_t etag_bytes)
{
    uint8_t *digests = stk_alloc(upload->part_count, 16), digest[16];
    char text[33];

    etag[0] = '\0';
    for (uint32_t i = 0; digests && i < upload->part_count; i++) {
        for (uint32_t j = 0; j < 16; j++) {
            char two[3] = {upload->parts[i].etag[2 * j], upload->parts[i].etag[2 * j + 1], 0};

            digests[16 * i + j] = (uint8_t)strtoul(two, NULL, 16);
        }
        if (!is_md5(upload->parts[i].etag)) {
            stk_free(digests);
            return;
        }
    }
    if (digests) {
        stk_md5(digests, 16 * (size_t)upload->part_count, digest);
        stk_hex(digest, sizeof digest, text);
        snprintf(etag, etag_bytes, "%s-%u", text, upload->part_count);
    }
    stk_free(digests);
}

int stk_upload_is_whole(const struct stk_upload *upload, const struct stk_place *place,
                        struct stoker_error *error)
{
    bool google = place->kind == STK_PLACE_GOOGLE;
    struct stk_proof whole;
    struct stk_seals seals;
    struct stk_call *call;
    int status;

    if (!stk_upload_join(upload, &whole)) {
        return 0;
    }
    call = stk_call_open(place, STK_HTTP_HEAD, false, error);
    if (!call) {
        return -ENOMEM;
    }
    call->exchange.seal = !google; /* which tells it unasked */
    status = stk_call_run(call, upload->store, error);
    if (status == 0) {
        stk_seals_read(&seals, &call->answer, google ? STK_SEAL_OF_GOOGLE : STK_SEAL_OF_AMAZON,
                       true, false);
        status = call->answer.content_bytes == upload->bytes &&
                 seals.whole.kind == stk_proof_kind(whole.check) &&
                 memcmp(seals.whole.sum, whole.sum, whole.sum_bytes) == 0;
    }
    stk_call_close(call);
    return status;
}

/* Whether the object at its name is what was sent: by the checksum of the whole that the store
 * keeps with it, or by an ETag that is made of the parts' MD5s. */
static bool is_there(const struct stk_upload *upload)
{
    char etag[64];

    expect_etag(upload, etag, sizeof etag);
    return (etag[0] && stk_call_is_there(upload->store, &upload->place, upload->bytes, etag)) ||
           stk_upload_is_whole(upload, &upload->place, NULL) == 1;
}

static int commit(struct stk_upload *upload, struct stoker_error *error)
{
    struct stk_call *call = stk_call_open(&upload->place, STK_HTTP_POST, true, error);
    char *xml = write_parts(upload);
    struct stk_proof proof, whole;
    bool google = upload->place.kind == STK_PLACE_GOOGLE, gone, there;
    int status;

    if (!call || !xml) {
        status = stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                          upload->place.url);
        goto done;
    }
    call->exchange.request.body = (struct stk_view){(const uint8_t *)xml, strlen(xml)};
    call->exchange.patience = STK_COMMIT_PATIENCE;
    stk_call_query(call, "uploadId", upload->id);
    stk_proof_make(&proof, upload->store, STK_CHECK_AUTO, call->exchange.request.body);
    if (proof.payload[0]) {
        call->exchange.payload = proof.payload;
    }
    stk_call_more(call, "Content-Type", "application/xml");
    if (!google && stk_upload_join(upload, &whole)) {
        stk_call_more(call, stk_proof_header(whole.check), whole.text);
        stk_call_more(call, "x-amz-checksum-type", "FULL_OBJECT");
    }
    if (upload->options.fresh && !google) {
        stk_call_fresh(call);
    }
    status = stk_call_run(call, upload->store, error);
    if (google && (status == 0 || call->exchange.code == 404)) {
        status = stk_google_commit(upload, error);
        goto done;
    }
    if (status == 0 && !stk_call_says(call, "CompleteMultipartUploadResult")) {
        status = fail_answer(upload, error);
    }
    /* Said with 200, too, where the server had begun to answer. */
    gone = call->exchange.code == 404 || stk_call_is_refused(call, "NoSuchUpload");
    there = call->exchange.code == 412 || stk_call_is_refused(call, "PreconditionFailed");
    if (status == STOKER_ERROR_CORRUPT || (status < 0 && (gone || there))) {
        /* Ended already: by a try whose answer was lost, or by another run of the same copy. */
        if (is_there(upload)) {
            status = 0;
        } else if (there) {
            status = stk_call_fail_fresh(&upload->place, error);
        } else if (stk_call_is_refused(call, "NoSuchUpload")) {
            status = fail_gone(upload, error);
        }
    }
done:
    if (status == 0) {
        upload->id[0] = '\0'; /* there is nothing to abort any more */
    }
    stk_free(xml);
    stk_call_close(call);
    return status;
}

int stk_upload_commit(struct stk_upload *upload, struct stoker_error *error)
{
    return upload->place.kind == STK_PLACE_AZURE ? stk_azure_commit(upload, error)
                                                 : commit(upload, error);
}

/* ---- what an earlier run left ---- */

/* An upload that can be gone on with. */
struct finding {
    struct stk_upload *upload;
    char begun[40]; /* of the youngest so far */
};

static int on_upload(void *owner, const struct stk_left *left)
{
    struct finding *finding = owner;
    struct stk_upload *upload = finding->upload;
    const char *name = stk_proof_name(upload->check);
    const char *class = upload->options.storage_class;

    if (strcmp(left->check, name ? name : "") == 0 &&
        strcmp(left->class[0] ? left->class : "STANDARD", class ? class : "STANDARD") == 0 &&
        strcmp(left->begun, finding->begun) > 0) {
        snprintf(finding->begun, sizeof finding->begun, "%s", left->begun);
        memcpy(upload->id, left->id, strlen(left->id) + 1);
    }
    return 0;
}

/* To be refused here is no failure: then it begins anew. */
static int find_left(struct stk_upload *upload, struct stoker_error *error)
{
    struct finding finding = {.upload = upload};
    struct stk_uploads same = {.store = upload->store,
                               .place = &upload->place,
                               .exact = true,
                               .found = on_upload,
                               .owner = &finding};

    if (upload->options.encryption || upload->place.zone ||
        stk_store_has_key(upload->store, &upload->place)) {
        return 0; /* which a listing does not tell, and ETags of parts prove nothing */
    }
    (void)stk_uploads_list(&same, NULL);
    return upload->id[0] ? find_parts(upload, error) : 0;
}

/* Parts of a page. */
struct counting {
    struct stk_upload *upload;
    uint32_t count, last;
};

static int on_part(void *owner, const struct stk_answer *answer)
{
    struct counting *counting = owner;
    struct stk_upload *upload = counting->upload;
    unsigned long number = strtoul(answer->texts[0], NULL, 10);
    uint64_t bytes = strtoull(answer->texts[2], NULL, 10);

    counting->count++;
    counting->last = number > counting->last && number <= STK_UPLOAD_PARTS_MAX ? (uint32_t)number
                                                                               : counting->last;
    if (number >= 1 && number <= upload->part_count &&
        bytes == stk_part_bytes_of(upload, (uint32_t)number - 1)) {
        stk_answer_etag(answer->texts[1], upload->parts[number - 1].left, STK_PART_TAG_BYTES);
    }
    return 0;
}

/* It is gone meanwhile, and with it the parts that earlier pages told of. */
static void forget_left(struct stk_upload *upload)
{
    upload->id[0] = '\0';
    for (uint32_t i = 0; i < upload->part_count; i++) {
        upload->parts[i].left[0] = '\0';
    }
}

static int find_parts(struct stk_upload *upload, struct stoker_error *error)
{
    struct stk_answer *answer = stk_alloc(1, sizeof *answer);
    struct counting counting = {.upload = upload};
    uint32_t before;
    int status = 0;

    do {
        struct stk_call *call = stk_call_open(&upload->place, STK_HTTP_GET, true, error);
        char marker[12];

        if (!call || !answer) {
            stk_call_close(call);
            status = stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                              upload->place.url);
            break;
        }
        before = counting.last;
        counting.count = 0;
        snprintf(marker, sizeof marker, "%u", before);
        stk_call_query(call, "max-parts", "1000");
        stk_call_query(call, "part-number-marker", marker);
        stk_call_query(call, "uploadId", upload->id);
        if (stk_call_run(call, upload->store, NULL) < 0) {
            forget_left(upload);
        } else {
            *answer = (struct stk_answer){.root = "ListPartsResult",
                                          .item = "Part",
                                          .names = {"PartNumber", "ETag", "Size"},
                                          .outer_names = {"IsTruncated"},
                                          .found = on_part,
                                          .owner = &counting};
            (void)stk_answer_read(answer, stk_call_document(call));
        }
        stk_call_close(call);
    } while (
        upload->id[0] && counting.last > before &&
        (answer->outer[0][0] ? strcmp(answer->outer[0], "true") == 0 : counting.count >= 1000));
    stk_free(answer);
    return status;
}
