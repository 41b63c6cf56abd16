/* Azure's blobs by blocks: https://learn.microsoft.com/rest/api/storageservices/put-block-list */
#include "base/crc.h"
#include "base/mem.h"
#include "storage/upload/multipart.h"

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

/* ---- what is there ---- */

struct listing {
    struct stk_upload *upload;
    uint32_t count, same; /* blocks; those that are what the upload has at their place */
};

static int on_left(void *owner, const struct stk_answer *answer)
{
    struct listing *listing = owner;
    struct stk_upload *upload = listing->upload;
    uint8_t name[NAME_BYTES] = {0};
    struct stk_view text = {(const uint8_t *)answer->texts[0], strlen(answer->texts[0])};
    unsigned long index;

    if (!stk_seal_base64(text, name, NAME_BYTES - 1) || memcmp(name, "stoker-", 7) != 0) {
        return 0;
    }
    index = strtoul((const char *)name + 7, NULL, 10);
    if (index < upload->part_count &&
        strtoull(answer->texts[1], NULL, 10) == stk_part_bytes_of(upload, (uint32_t)index)) {
        memcpy(upload->parts[index].left, text.data, text.bytes + 1);
    }
    return 0;
}

static int on_committed(void *owner, const struct stk_answer *answer)
{
    struct listing *listing = owner;
    const struct stk_upload *upload = listing->upload;

    listing->same += listing->count < upload->part_count &&
                     strcmp(answer->texts[0], upload->parts[listing->count].etag) == 0;
    listing->count++;
    return 0;
}

static int list(struct listing *listing, const char *type,
                int (*found)(void *owner, const struct stk_answer *answer),
                struct stoker_error *error)
{
    struct stk_upload *upload = listing->upload;
    struct stk_call *call = stk_call_open(&upload->place, STK_HTTP_GET, true, error);
    struct stk_answer *answer = stk_alloc(1, sizeof *answer);
    int status = 0;

    if (!call || !answer) {
        status = stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                          upload->place.url);
        goto done;
    }
    stk_call_query(call, "blocklisttype", type);
    stk_call_query(call, "comp", "blocklist");
    if (stk_call_run(call, upload->store, NULL) == 0) {
        *answer = (struct stk_answer){.root = "BlockList",
                                      .item = "Block",
                                      .names = {"Name", "Size"},
                                      .found = found,
                                      .owner = listing};
        (void)stk_answer_read(answer, stk_call_document(call));
    }
done:
    stk_free(answer);
    stk_call_close(call);
    return status;
}

int stk_azure_find_left(struct stk_upload *upload, struct stoker_error *error)
{
    struct listing listing = {.upload = upload};

    return list(&listing, "uncommitted", on_left, error);
}

/* ---- what is sent ---- */

int stk_azure_part(struct stk_upload *upload, uint32_t index, struct stk_view body,
                   struct stoker_error *error)
{
    struct stk_part *part = &upload->parts[index];
    char name[STK_BASE64_BYTES];
    struct stk_proof proof;
    struct stk_call *call;
    int status;

    stk_proof_make(&proof, upload->store, STK_CHECK_AZURE, body);
    name_block(index, stk_proof_number(&proof), name);
    if (strcmp(part->left, name) == 0) { /* the server compared it when it came */
        memcpy(part->etag, name, NAME_TEXT_BYTES + 1);
        return 1;
    }
    call = stk_call_open(&upload->place, STK_HTTP_PUT, false, error);
    if (!call) {
        return -ENOMEM;
    }
    stk_proof_add(&proof, call);
    stk_call_query(call, "blockid", name);
    stk_call_query(call, "comp", "block");
    stk_call_more(call, "Content-Type", "application/octet-stream");
    call->exchange.request.body = body;
    status = stk_call_run(call, upload->store, error);
    if (status == 0 && call->exchange.code != 201) {
        status = stk_fail(error, STOKER_ERROR_CORRUPT, "the server's answer cannot be read",
                          "look at the server and proxies between", "'%.400s': HTTP %u",
                          upload->place.url, call->exchange.code);
    }
    status = status == 0 ? stk_call_took(call, &proof, error) : status;
    if (status == 0) {
        memcpy(part->etag, name, NAME_TEXT_BYTES + 1);
    }
    stk_call_close(call);
    return status;
}

/* NULL: no memory. */
static char *write_list(const struct stk_upload *upload)
{
    size_t bytes = 128 + upload->part_count * (STK_PART_TAG_BYTES + 32), used;
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

int stk_azure_commit(struct stk_upload *upload, struct stoker_error *error)
{
    struct stk_call *call = stk_call_open(&upload->place, STK_HTTP_PUT, false, error);
    struct listing listing = {.upload = upload};
    char *xml = write_list(upload);
    struct stk_proof proof;
    int status;

    if (!call || !xml) {
        status = stk_fail(error, -ENOMEM, "cannot write an object", "free memory", "'%.400s'",
                          upload->place.url);
        goto done;
    }
    call->exchange.request.body = (struct stk_view){(const uint8_t *)xml, strlen(xml)};
    call->exchange.patience = STK_COMMIT_PATIENCE;
    stk_call_query(call, "comp", "blocklist");
    stk_proof_make(&proof, upload->store, STK_CHECK_AZURE, call->exchange.request.body);
    stk_call_options(call, &upload->options, &proof);
    stk_call_more(call, "x-ms-blob-content-type", "application/octet-stream");
    if (upload->options.fresh) {
        stk_call_fresh(call);
    }
    status = stk_call_run(call, upload->store, error);
    if (status == 0 && call->exchange.code != 201) {
        status = stk_fail(error, STOKER_ERROR_CORRUPT, "the server's answer cannot be read",
                          "look at the server and proxies between", "'%.400s': HTTP %u",
                          upload->place.url, call->exchange.code);
    }
    if (status < 0 && stk_call_was_there(call)) { /* it may be ours: an answer may have been lost */
        status = list(&listing, "committed", on_committed, error);
        if (status == 0 && (listing.count != upload->part_count || listing.same != listing.count)) {
            status = stk_call_fail_fresh(&upload->place, error);
        }
    }
done:
    stk_free(xml);
    stk_call_close(call);
    return status;
}
