/* Attributes of an object for a copy of it that is not made by CopyObject. */
#include "storage/upload/object_attributes.h"

#include "base/mem.h"
#include "storage/upload/write_request.h"
#include "storage/upload/xml_response.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define META_NAME_BYTES 256u

/* The header of a response, of a request, and of a request to Azure. */
static const struct standard {
    const char *name, *azure;
} standards[] = {
    {"Content-Type", "x-ms-blob-content-type"},
    {"Content-Encoding", "x-ms-blob-content-encoding"},
    {"Content-Language", "x-ms-blob-content-language"},
    {"Content-Disposition", "x-ms-blob-content-disposition"},
    {"Cache-Control", "x-ms-blob-cache-control"},
};

static const char *meta_prefix(const struct stk_object_url *object)
{
    return object->kind == STK_OBJECT_URL_S3      ? "x-amz-meta-"
           : object->kind == STK_OBJECT_URL_GCS   ? "x-goog-meta-"
           : object->kind == STK_OBJECT_URL_AZURE ? "x-ms-meta-"
                                                  : NULL;
}

static int fail_limit(const struct stk_object_url *from, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_LIMIT, "an object has too much metadata to be copied",
                    "remove some of its metadata or tags", "'%.400s'", from->url);
}

/* Copies bytes with a NUL. NULL: they do not fit. */
static char *put(struct stk_object_attributes *attributes, const char *text, size_t bytes)
{
    char *to = attributes->text + attributes->used;

    if (bytes >= sizeof attributes->text - attributes->used) {
        return NULL;
    }
    memcpy(to, text, bytes);
    to[bytes] = '\0';
    attributes->used += bytes + 1;
    return to;
}

static bool add(struct stk_object_attributes *attributes, const char *name, size_t name_bytes,
                struct stk_view value)
{
    const char *own_name, *own_value;

    if (attributes->count == STK_OBJECT_ATTRIBUTES_MAX) {
        return false;
    }
    own_name = put(attributes, name, name_bytes);
    own_value = put(attributes, (const char *)value.data, value.bytes);
    attributes->headers[attributes->count++] = (struct stk_sigv4_pair){own_name, own_value};
    return own_name && own_value;
}

/* Adds user metadata. Names of Azure are identifiers. */
static bool add_meta(struct stk_object_attributes *attributes, struct stk_view name,
                     struct stk_view value, const struct stk_object_url *to)
{
    char text[META_NAME_BYTES];
    int bytes = snprintf(text, sizeof text, "%s%.*s", meta_prefix(to), (int)name.bytes,
                         (const char *)name.data);

    if (bytes < 0 || bytes >= (int)sizeof text) {
        return false;
    }
    for (char *at = text; *at; at++) { /* as the signatures have them */
        *at = (char)tolower((unsigned char)*at);
    }
    for (char *at = text + strlen(meta_prefix(to)); to->kind == STK_OBJECT_URL_AZURE && *at; at++) {
        *at = isalnum((unsigned char)*at) ? *at : '_';
    }
    return add(attributes, text, (size_t)bytes, value);
}

static bool is_same(struct stk_view name, const char *text)
{
    return name.bytes == strlen(text) &&
           strncasecmp((const char *)name.data, text, name.bytes) == 0;
}

/* Adds one header of a response, if it is an attribute. */
static bool add_header(struct stk_object_attributes *attributes, struct stk_view name,
                       struct stk_view value, const struct stk_object_url *from,
                       const struct stk_object_url *to)
{
    const char *prefix = meta_prefix(from);
    size_t bytes = prefix ? strlen(prefix) : 0;

    for (size_t i = 0; i < STK_COUNT(standards) && value.bytes > 0; i++) {
        const struct standard *row = &standards[i];
        const char *own = to->kind == STK_OBJECT_URL_AZURE ? row->azure : row->name;

        if (is_same(name, row->name)) {
            attributes->has_type = attributes->has_type || i == 0;
            return add(attributes, own, strlen(own), value);
        }
    }
    if (bytes > 0 && name.bytes > bytes &&
        strncasecmp((const char *)name.data, prefix, bytes) == 0) {
        name.data += bytes;
        name.bytes -= bytes;
        return add_meta(attributes, name, value, to);
    }
    return true;
}

int stk_object_attributes_add(struct stk_object_attributes *attributes,
                              const struct stk_http_response *answer,
                              const struct stk_object_url *from, const struct stk_object_url *to,
                              struct stoker_error *error)
{
    const char *at = answer->headers, *end = at + answer->headers_bytes, *line_end;

    for (; at < end; at = line_end + 1) {
        const char *colon;
        struct stk_view name, value;

        line_end = memchr(at, '\n', (size_t)(end - at));
        line_end = line_end ? line_end : end;
        colon = memchr(at, ':', (size_t)(line_end - at));
        if (!colon) {
            continue;
        }
        name = (struct stk_view){(const uint8_t *)at, (size_t)(colon - at)};
        for (colon++; colon < line_end && (*colon == ' ' || *colon == '\t'); colon++) {
        }
        value = (struct stk_view){(const uint8_t *)colon, (size_t)(line_end - colon)};
        while (value.bytes > 0 && isspace(value.data[value.bytes - 1])) {
            value.bytes--;
        }
        if (!add_header(attributes, name, value, from, to)) {
            return fail_limit(from, error);
        }
    }
    return 0;
}

/* The tags of an object, as the value of a header. */
struct tags {
    char text[4096];
    size_t used;
};

static int on_tag(void *owner, const struct stk_xml_response *response)
{
    struct tags *tags = owner;
    bool fits = tags->used + 2 < sizeof tags->text;

    if (fits && tags->used > 0) {
        tags->text[tags->used++] = '&';
    }
    fits = fits && stk_url_encode(response->texts[0], false, tags->text, sizeof tags->text - 2,
                                  &tags->used);
    if (fits) {
        tags->text[tags->used++] = '=';
        tags->text[tags->used] = '\0';
        fits =
            stk_url_encode(response->texts[1], false, tags->text, sizeof tags->text, &tags->used);
    }
    return fits ? 0 : STOKER_ERROR_LIMIT;
}

/* Reads the tags of an object of S3, as the value of a header and as a document, which *request_out
 * has (close it). Without the permission, or on a server without tags (which may answer with the
 * object), there are none. */
static int read_tags(struct stk_store *store, const struct stk_object_url *object,
                     struct tags *tags, struct stk_write_request **request_out,
                     struct stoker_error *error)
{
    struct stk_write_request *request = stk_write_request_open(object, STK_HTTP_GET, true, error);
    struct stk_xml_response *response = stk_alloc(1, sizeof *response);
    int status = 0;

    *request_out = request;
    if (!request || !response) {
        status = stk_fail_memory(error, "copy");
        goto done;
    }
    stk_write_request_add_query(request, "tagging", NULL);
    status = stk_write_request_run(request, store, error);
    if (status < 0) {
        uint32_t code = request->operation.code;

        status = code == 0 || (code >= 500 && code != 501) ? status : 0;
        goto done;
    }
    *response = (struct stk_xml_response){.root = "Tagging",
                                          .item = "Tag",
                                          .names = {"Key", "Value"},
                                          .on_item = on_tag,
                                          .owner = tags};
    status = stk_xml_response_parse(response, stk_write_request_document(request));
    if (status == STOKER_ERROR_LIMIT) {
        status = fail_limit(object, error);
    } else if (status == STOKER_ERROR_CORRUPT) {
        tags->used = 0;
        status = 0;
    }
done:
    stk_free(response);
    return status;
}

static int add_tags(struct stk_object_attributes *attributes, struct stk_store *store,
                    const struct stk_object_url *from, struct stoker_error *error)
{
    struct tags *tags = stk_alloc(1, sizeof *tags);
    struct stk_write_request *request = NULL;
    int status =
        tags ? read_tags(store, from, tags, &request, error) : stk_fail_memory(error, "copy");

    if (status == 0 && tags->used > 0) {
        struct stk_view document = stk_write_request_document(request);
        const char *copy = put(attributes, (const char *)document.data, document.bytes);

        attributes->tags = (struct stk_view){(const uint8_t *)copy, document.bytes};
        if (!copy || !add(attributes, "x-amz-tagging", strlen("x-amz-tagging"),
                          (struct stk_view){(const uint8_t *)tags->text, tags->used})) {
            status = fail_limit(from, error);
        }
    }
    stk_write_request_close(request);
    stk_free(tags);
    return status;
}

int stk_object_attributes_write_tags(struct stk_store *store, const struct stk_object_url *object,
                                     const struct stk_object_attributes *attributes,
                                     struct stoker_error *error)
{
    struct tags *tags;
    struct stk_write_request *request = NULL;
    struct stk_body_checksum checksum;
    int status;

    if (!attributes || attributes->tags.bytes == 0) {
        return 0;
    }
    tags = stk_alloc(1, sizeof *tags);
    status =
        tags ? read_tags(store, object, tags, &request, error) : stk_fail_memory(error, "copy");
    stk_write_request_close(request);
    if (status == 0 && tags->used == 0) {
        request = stk_write_request_open(object, STK_HTTP_PUT, false, error);
        status = request ? 0 : -ENOMEM;
        if (status == 0) {
            stk_write_request_add_query(request, "tagging", NULL);
            request->operation.request.body = attributes->tags;
            stk_body_checksum_init(&checksum, store, STK_UPLOAD_CHECKSUM_MD5, attributes->tags);
            stk_body_checksum_add_headers(&checksum, request);
            stk_write_request_add_header(request, "Content-Type", "application/xml");
            status = stk_write_request_run(request, store, error);
        }
        stk_write_request_close(request);
    }
    stk_free(tags);
    return status;
}

int stk_object_attributes_read(struct stk_store *store, const struct stk_object_url *from,
                               const struct stk_object_info *info, const struct stk_object_url *to,
                               struct stk_object_attributes **attributes_out,
                               struct stoker_error *error)
{
    struct stk_object_attributes *attributes = stk_alloc(1, sizeof *attributes);
    struct stk_http_response *answer = stk_alloc(1, sizeof *answer);
    struct stk_operation operation = {.status = 0};
    uint8_t byte;
    int status = attributes && answer ? 0 : stk_fail_memory(error, "copy");

    *attributes_out = NULL;
    if (status == 0) { /* a byte instead of HEAD, as URLs that are signed for GET want */
        stk_store_init_head(&operation, from, &byte);
        operation.info = info;
        operation.without_range = info->bytes == 0 || info->no_ranges;
        status = stk_operation_run(store, &operation, answer, error);
    }
    status = status < 0 ? status : stk_object_attributes_add(attributes, answer, from, to, error);
    if (status == 0 && from->kind == STK_OBJECT_URL_S3 && to->kind == STK_OBJECT_URL_S3) {
        status = add_tags(attributes, store, from, error);
    }
    stk_free(answer);
    if (status < 0) {
        stk_free(attributes);
        return status;
    }
    *attributes_out = attributes;
    return 0;
}
