/* Continues unfinished uploads of an earlier run: only those that this user's stoker began, which
 * its records name, and that no other process works on. Another program's upload may have another
 * access rule, type or metadata, and its owner waits for it. */
#include "base/mem.h"
#include "base/text/parse_number.h"
#include "storage/upload/multipart.h"
#include "storage/upload/upload_record.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TARGET_BYTES_MAX 4096u

static int find_parts(struct stk_upload *upload, bool here, struct stoker_error *error);

/* Appends a text and its NUL. Returns false if it does not fit. */
static bool append(uint8_t *to, size_t to_bytes, size_t *used, const char *text)
{
    size_t bytes = strlen(text) + 1;

    if (bytes > to_bytes - *used) {
        return false;
    }
    memcpy(to + *used, text, bytes);
    *used += bytes;
    return true;
}

/* What an upload is of, in texts: service, bucket, key, checksum, storage class, condition. The
 * endpoint is not among them: a store may have several, as behind a proxy, and only the right one
 * knows the id of the upload. */
static bool write_target(const struct stk_upload *upload, uint8_t *target, size_t *bytes_out)
{
    const char *name = stk_body_checksum_name(upload->check);
    const char *class = upload->options.storage_class;
    const char *service = upload->place.kind == STK_OBJECT_URL_GCS ? "gs" : "s3";

    *bytes_out = 0;
    return append(target, TARGET_BYTES_MAX, bytes_out, service) &&
           append(target, TARGET_BYTES_MAX, bytes_out, upload->place.bucket) &&
           append(target, TARGET_BYTES_MAX, bytes_out, upload->key) &&
           append(target, TARGET_BYTES_MAX, bytes_out, name ? name : "") &&
           append(target, TARGET_BYTES_MAX, bytes_out, class ? class : "STANDARD") &&
           append(target, TARGET_BYTES_MAX, bytes_out, upload->options.if_absent ? "new" : "");
}

/* Encryption is not part of a record, and ETags of encrypted parts do not identify bytes. */
static bool is_recorded(const struct stk_upload *upload)
{
    return !upload->options.encryption && !upload->place.zone &&
           !stk_store_has_sse_key(upload->store, &upload->place);
}

void stk_multipart_record(struct stk_upload *upload)
{
    uint8_t target[TARGET_BYTES_MAX], value[TARGET_BYTES_MAX];
    size_t target_bytes, value_bytes = 0;

    if (is_recorded(upload) && write_target(upload, target, &target_bytes) &&
        append(value, sizeof value, &value_bytes, upload->id) &&
        append(value, sizeof value, &value_bytes, upload->temp_key ? upload->temp_key : "") &&
        append(value, sizeof value, &value_bytes,
               stk_store_endpoint_text(upload->store, &upload->place))) {
        (void)stk_upload_record_add(&upload->record, (struct stk_view){target, target_bytes},
                                    (struct stk_view){value, value_bytes});
    }
}

/* Reads the next text of a record. Returns NULL if there is none. */
static const char *next_text(const uint8_t *value, size_t bytes, size_t *at)
{
    const char *text = (const char *)value + *at;
    size_t length = *at < bytes ? strnlen(text, bytes - *at) : bytes;

    if (length >= bytes - *at) {
        return NULL;
    }
    *at += length + 1;
    return text;
}

/* Reads the id and the key under which it was begun. Returns false if the record is damaged.
 * *here_out: it was begun at this endpoint. */
static bool read_record(struct stk_upload *upload, const uint8_t *value, size_t bytes,
                        bool *here_out)
{
    size_t at = 0;
    const char *id = next_text(value, bytes, &at);
    const char *key = id ? next_text(value, bytes, &at) : NULL;
    const char *endpoint = key ? next_text(value, bytes, &at) : NULL;

    if (!endpoint || !id[0] || strlen(id) >= sizeof upload->id) {
        return false;
    }
    if (key[0]) {
        upload->temp_key = stk_strdup(key);
        if (!upload->temp_key) {
            return false;
        }
        upload->place.key = upload->temp_key;
    }
    *here_out = strcmp(endpoint, stk_store_endpoint_text(upload->store, &upload->place)) == 0;
    memcpy(upload->id, id, strlen(id) + 1);
    return true;
}

int stk_multipart_find(struct stk_upload *upload, struct stoker_error *error)
{
    uint8_t target[TARGET_BYTES_MAX], value[STK_UPLOAD_RECORD_BYTES_MAX];
    size_t target_bytes, value_bytes;
    bool here = false;

    if (!is_recorded(upload) || !write_target(upload, target, &target_bytes) ||
        !stk_upload_record_find(&upload->record, (struct stk_view){target, target_bytes}, value,
                                &value_bytes)) {
        return 0;
    }
    if (!read_record(upload, value, value_bytes, &here)) {
        stk_upload_record_remove(&upload->record);
        return 0;
    }
    return find_parts(upload, here, error);
}

/* Parts of a page. */
struct counting {
    struct stk_upload *upload;
    uint32_t count, last;
};

static int on_part(void *owner, const struct stk_xml_response *response)
{
    struct counting *counting = owner;
    struct stk_upload *upload = counting->upload;
    const char *end;
    uint64_t number, bytes;

    counting->count++;
    if (!stk_parse_uint64(response->texts[0], &end, &number) ||
        !stk_parse_uint64(response->texts[2], &end, &bytes)) {
        return 0;
    }
    counting->last = number > counting->last && number <= STK_UPLOAD_PARTS_MAX ? (uint32_t)number
                                                                               : counting->last;
    if (number >= 1 && number <= upload->part_count &&
        bytes == stk_upload_part_bytes_at(upload, (uint32_t)number - 1)) {
        stk_xml_response_copy_etag(response->texts[1], upload->parts[number - 1].left,
                                   STK_UPLOAD_ETAG_BYTES);
    }
    return 0;
}

/* The upload no longer exists, or its parts are not reported: discards its id, and the parts that
 * earlier pages listed. The record stays unless its own endpoint says that the upload is gone. */
static void reset_unfinished(struct stk_upload *upload, bool gone)
{
    upload->id[0] = '\0';
    if (gone) {
        stk_upload_record_remove(&upload->record);
    }
    stk_upload_record_close(&upload->record);
    stk_free(upload->temp_key);
    upload->temp_key = NULL;
    upload->place.key = upload->key;
    for (uint32_t i = 0; i < upload->part_count; i++) {
        upload->parts[i].left[0] = '\0';
    }
}

static int find_parts(struct stk_upload *upload, bool here, struct stoker_error *error)
{
    struct stk_xml_response *response = stk_alloc(1, sizeof *response);
    struct counting counting = {.upload = upload};
    uint32_t before;
    int status = 0;

    do {
        struct stk_write_request *write_request =
            stk_write_request_open(&upload->place, STK_HTTP_GET, true, error);
        char marker[12];

        if (!write_request || !response) {
            stk_write_request_close(write_request);
            status = stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                              upload->place.url);
            break;
        }
        before = counting.last;
        counting.count = 0;
        snprintf(marker, sizeof marker, "%u", before);
        stk_write_request_add_query(write_request, "max-parts", "1000");
        stk_write_request_add_query(write_request, "part-number-marker", marker);
        stk_write_request_add_query(write_request, "uploadId", upload->id);
        if (stk_write_request_run(write_request, upload->store, NULL) < 0) {
            reset_unfinished(upload, here && write_request->operation.code == 404);
        } else {
            *response = (struct stk_xml_response){.root = "ListPartsResult",
                                                  .item = "Part",
                                                  .names = {"PartNumber", "ETag", "Size"},
                                                  .outer_names = {"IsTruncated"},
                                                  .on_item = on_part,
                                                  .owner = &counting};
            (void)stk_xml_response_parse(response, stk_write_request_document(write_request));
        }
        stk_write_request_close(write_request);
    } while (
        upload->id[0] && counting.last > before &&
        (response->outer[0][0] ? strcmp(response->outer[0], "true") == 0 : counting.count >= 1000));
    stk_free(response);
    return status;
}
