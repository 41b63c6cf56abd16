/* Azure's block blobs: https://learn.microsoft.com/rest/api/storageservices/put-block-list */
#include "base/crc.h"
#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/text/parse_number.h"
#include "storage/upload/multipart.h"
#include "storage/upload/object_attributes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "stoker-00001-0123456789abcdef", with its NUL, and encoded: all names of a blob are as long. */
#define NAME_BYTES 30u
#define NAME_TEXT_BYTES 40u

static void name_block(uint32_t index, uint64_t crc, char text[STK_BASE64_BYTES])
{
    char name[NAME_BYTES];
    int bytes = snprintf(name, sizeof name, "stoker-%05u-%016llx", index, (unsigned long long)crc);

    stk_base64((const uint8_t *)name, (size_t)bytes, text);
}

/* ---- existing blocks ---- */

struct listing {
    struct stk_upload *upload;
    uint32_t count, same; /* blocks; those that are what the upload has at their place */
};

static int on_uncommitted(void *owner, const struct stk_xml_response *response)
{
    struct listing *listing = owner;
    struct stk_upload *upload = listing->upload;
    uint8_t name[NAME_BYTES] = {0};
    struct stk_view text = {(const uint8_t *)response->texts[0], strlen(response->texts[0])};
    const char *end;
    uint64_t index, bytes;

    if (!stk_base64_decode(text, name, NAME_BYTES - 1) || memcmp(name, "stoker-", 7) != 0) {
        return 0;
    }
    if (stk_parse_uint64((const char *)name + 7, &end, &index) && index < upload->part_count &&
        stk_parse_uint64(response->texts[1], &end, &bytes) &&
        bytes == stk_upload_part_bytes_at(upload, (uint32_t)index)) {
        memcpy(upload->parts[index].left, text.data, text.bytes + 1);
    }
    return 0;
}

static int on_committed(void *owner, const struct stk_xml_response *response)
{
    struct listing *listing = owner;
    const struct stk_upload *upload = listing->upload;

    listing->same += listing->count < upload->part_count &&
                     strcmp(response->texts[0], upload->parts[listing->count].etag) == 0;
    listing->count++;
    return 0;
}

static int list(struct listing *listing, const char *type,
                int (*found)(void *owner, const struct stk_xml_response *response),
                struct stoker_error *error)
{
    struct stk_upload *upload = listing->upload;
    struct stk_write_request *write_request =
        stk_write_request_open(&upload->place, STK_HTTP_GET, true, error);
    struct stk_xml_response *response = stk_alloc(1, sizeof *response);
    int status = 0;

    if (!write_request || !response) {
        status = stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                          upload->place.url);
        goto done;
    }
    stk_write_request_add_query(write_request, "blocklisttype", type);
    stk_write_request_add_query(write_request, "comp", "blocklist");
    if (stk_write_request_run(write_request, upload->store, NULL) == 0) {
        *response = (struct stk_xml_response){.root = "BlockList",
                                              .item = "Block",
                                              .names = {"Name", "Size"},
                                              .on_item = found,
                                              .owner = listing};
        (void)stk_xml_response_parse(response, stk_write_request_document(write_request));
    }
done:
    stk_free(response);
    stk_write_request_close(write_request);
    return status;
}

static int begin(struct stk_upload *upload, struct stoker_error *error)
{
    struct listing listing = {.upload = upload};

    return !upload->options.resume ? 0 : list(&listing, "uncommitted", on_uncommitted, error);
}

/* ---- requests ---- */

static int put_block(struct stk_upload *upload, uint32_t index, struct stk_view body,
                     struct stoker_error *error)
{
    struct stk_upload_part *part = &upload->parts[index];
    char name[STK_BASE64_BYTES];
    struct stk_body_checksum checksum;
    struct stk_write_request *write_request;
    int status;

    stk_body_checksum_init(&checksum, upload->store, STK_UPLOAD_CHECKSUM_AZURE, body);
    name_block(index, stk_body_checksum_to_number(&checksum), name);
    if (strcmp(part->left, name) == 0) { /* the server compared it on arrival */
        memcpy(part->etag, name, NAME_TEXT_BYTES + 1);
        return 1;
    }
    write_request = stk_write_request_open(&upload->place, STK_HTTP_PUT, false, error);
    if (!write_request) {
        return -ENOMEM;
    }
    stk_body_checksum_add_headers(&checksum, write_request);
    stk_write_request_add_query(write_request, "blockid", name);
    stk_write_request_add_query(write_request, "comp", "block");
    stk_write_request_add_header(write_request, "Content-Type", "application/octet-stream");
    write_request->operation.request.body = body;
    status = stk_write_request_run(write_request, upload->store, error);
    if (status == 0 && write_request->operation.code != 201) {
        status = stk_fail(error, STOKER_ERROR_CORRUPT, "the server's answer cannot be read",
                          "check the server and the proxies in between", "'%.400s': HTTP %u",
                          upload->place.url, write_request->operation.code);
    }
    status = status == 0 ? stk_write_request_check_reply(write_request, &checksum, error) : status;
    if (status == 0) {
        memcpy(part->etag, name, NAME_TEXT_BYTES + 1);
    }
    stk_write_request_close(write_request);
    return status;
}

/* NULL: no memory. */
static char *write_list(const struct stk_upload *upload)
{
    size_t bytes = 128 + upload->part_count * (STK_UPLOAD_ETAG_BYTES + 32), used;
    char *xml = stk_alloc(1, bytes);

    if (!xml) {
        return NULL;
    }
    used = (size_t)snprintf(xml, bytes, "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
    for (uint32_t i = 0; i < upload->part_count; i++) {
        STK_ASSERT(upload->parts[i].etag[0]);
        used += (size_t)snprintf(xml + used, bytes - used, "<Latest>%s</Latest>",
                                 upload->parts[i].etag);
    }
    snprintf(xml + used, bytes - used, "</BlockList>");
    return xml;
}

static int commit(struct stk_upload *upload, struct stoker_error *error)
{
    struct stk_write_request *write_request =
        stk_write_request_open(&upload->place, STK_HTTP_PUT, false, error);
    struct listing listing = {.upload = upload};
    char *xml = write_list(upload);
    struct stk_body_checksum checksum;
    int status;

    if (!write_request || !xml) {
        status = stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                          upload->place.url);
        goto done;
    }
    write_request->operation.request.body = (struct stk_view){(const uint8_t *)xml, strlen(xml)};
    write_request->operation.timeout_factor = STK_UPLOAD_COMMIT_TIMEOUT_FACTOR;
    stk_write_request_add_query(write_request, "comp", "blocklist");
    stk_body_checksum_init(&checksum, upload->store, STK_UPLOAD_CHECKSUM_AZURE,
                           write_request->operation.request.body);
    stk_write_request_set_options(write_request, &upload->options, &checksum);
    if (!upload->options.attributes || !upload->options.attributes->has_type) {
        stk_write_request_add_header(write_request, "x-ms-blob-content-type",
                                     "application/octet-stream");
    }
    if (upload->options.if_absent) {
        stk_write_request_if_absent(write_request);
    }
    status = stk_write_request_run(write_request, upload->store, error);
    if (status == 0 && write_request->operation.code != 201) {
        status = stk_fail(error, STOKER_ERROR_CORRUPT, "the server's answer cannot be read",
                          "check the server and the proxies in between", "'%.400s': HTTP %u",
                          upload->place.url, write_request->operation.code);
    }
    if (status < 0 &&
        stk_write_request_already_exists(write_request)) { /* ours, if a response was lost */
        status = write_request->operation.uncertain
                     ? list(&listing, "committed", on_committed, error)
                     : 0;
        if (status == 0 && (listing.count != upload->part_count || listing.same != listing.count)) {
            status = stk_write_request_fail_exists(&upload->place, error);
        }
    }
done:
    stk_free(xml);
    stk_write_request_close(write_request);
    return status;
}

const struct stk_upload_operations stk_azure_blocks_operations = {begin, put_block, commit};
