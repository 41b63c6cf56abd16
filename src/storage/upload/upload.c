/* Uploads in parts, for all services: a table has the operations of each. */
#include "storage/upload/upload.h"

#include "base/mem.h"
#include "storage/upload/multipart.h"

#include <errno.h>

#define PART_ROUND (1u << 20)

static const struct stk_upload_operations *operations_of(const struct stk_object_url *object)
{
    static const struct stk_upload_operations *const services[STK_OBJECT_URL_KINDS_END] = {
        [STK_OBJECT_URL_S3] = &stk_multipart_operations,
        [STK_OBJECT_URL_GCS] = &stk_gcs_multipart_operations,
        [STK_OBJECT_URL_AZURE] = &stk_azure_blocks_operations,
    };

    STK_ASSERT(services[object->kind]);
    return services[object->kind];
}

bool stk_upload_is_gone(const struct stk_upload *upload)
{
    return atomic_load_explicit(&upload->lost, memory_order_relaxed);
}

int stk_upload_open(struct stk_upload **upload_out, struct stk_store *store,
                    const struct stk_object_url *object, uint64_t bytes,
                    const struct stk_upload_options *options, struct stoker_error *error)
{
    uint64_t part = options->part_bytes ? options->part_bytes : STK_STORE_RANGE_BYTES;
    struct stk_upload *upload = stk_alloc(1, sizeof *upload);
    struct stk_object_info info;
    int status = 0;

    STK_ASSERT(bytes > 0);
    part = stk_max(part, STK_UPLOAD_PART_BYTES_MIN);
    part = stk_max(part, (bytes + STK_UPLOAD_PARTS_MAX - 1) / STK_UPLOAD_PARTS_MAX);
    part = (part + PART_ROUND - 1) / PART_ROUND * PART_ROUND;
    if (bytes > STK_UPLOAD_BYTES_MAX) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "an object can not be so large",
                          "split it: the limit of S3 is 5 TiB", "'%.400s': %llu bytes", object->url,
                          (unsigned long long)bytes);
        goto done;
    }
    if (upload) {
        upload->parts = stk_alloc((bytes + part - 1) / part, sizeof *upload->parts);
    }
    if (!upload || !upload->parts) {
        status = stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                          object->url);
        goto done;
    }
    upload->store = store;
    upload->place = *object;
    upload->options = *options;
    upload->bytes = bytes;
    upload->part_bytes = part;
    upload->part_count = (uint32_t)((bytes + part - 1) / part);
    upload->check =
        stk_body_checksum_default(store, stk_body_checksum_for_url(object, options->check));
    upload->key = object->key;
    upload->operations = operations_of(object);
    status = stk_write_request_check_options(object, options, error);
    if (status < 0) {
        goto done;
    }
    if (options->if_absent && stk_store_head(store, object, &info, NULL) == 0) {
        status = stk_write_request_fail_exists(object, error); /* before anything is sent */
        goto done;
    }
    status = upload->operations->begin(upload, error);
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
        stk_upload_abort(upload); /* if it fails, stk_upload_abort_older finds the upload */
        stk_upload_record_remove(&upload->record);
    }
    if (upload && upload->uncertain_ns > 0) {
        stk_upload_abort_duplicates(upload);
    }
    if (upload && !upload->id[0]) {
        stk_upload_record_remove(&upload->record); /* it is complete, or was never begun */
    }
    if (upload) {
        stk_upload_record_close(&upload->record);
        stk_free(upload->parts);
        stk_free(upload->temp_key);
        stk_free(upload);
    }
}

int stk_upload_send_part(struct stk_upload *upload, uint32_t index, struct stk_view body,
                         struct stoker_error *error)
{
    STK_ASSERT(index < upload->part_count && body.bytes == stk_upload_part_bytes_at(upload, index));
    return upload->operations->send_part(upload, index, body, error);
}

int stk_upload_commit(struct stk_upload *upload, struct stoker_error *error)
{
    return upload->operations->commit(upload, error);
}
