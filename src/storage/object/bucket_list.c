/* Lists the buckets of S3's credentials. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "base/xml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOCUMENT_BYTES (4u << 20) /* 10,000 buckets */
#define NAME_BYTES_MAX 256u
#define DEPTH 4u /* of a name: ListAllMyBucketsResult, Buckets, Bucket, Name */

struct names {
    char *text; /* one after the other, each with a NUL */
    size_t bytes, capacity, count;
    bool is_list;
};

static int on_start(void *owner, const struct stk_xml_element *element)
{
    struct names *names = owner;

    if (element->depth == 1) {
        names->is_list = strcmp(element->name, "ListAllMyBucketsResult") == 0;
    }
    return 0;
}

static int on_end(void *owner, const struct stk_xml_element *element)
{
    struct names *names = owner;
    size_t more = names->capacity ? 2 * names->capacity : 4096;
    char *text;

    if (element->depth != DEPTH || strcmp(element->name, "Name") != 0) {
        return 0;
    }
    if (element->is_cut || element->text_bytes == 0 || strchr(element->text, '/')) {
        return STOKER_ERROR_CORRUPT;
    }
    if (names->bytes + element->text_bytes + 1 > names->capacity) {
        text = stk_realloc(names->text, names->capacity, more, 1);
        if (!text) {
            return -ENOMEM;
        }
        names->text = text;
        names->capacity = more;
    }
    memcpy(names->text + names->bytes, element->text, element->text_bytes + 1);
    names->bytes += element->text_bytes + 1;
    names->count++;
    return 0;
}

int stk_store_list_buckets(struct stk_store *store, char **names_out, size_t *count_out,
                           struct stoker_error *error)
{
    static const struct stk_object_url all = {
        .kind = STK_OBJECT_URL_S3, .url = "s3://", .bucket = "", .key = ""};
    struct stk_operation *operation = stk_alloc(1, sizeof *operation);
    uint8_t *document = stk_alloc(1, DOCUMENT_BYTES);
    char text[NAME_BYTES_MAX];
    struct names names = {.count = 0};
    struct stk_xml xml = {.start = on_start,
                          .end = on_end,
                          .owner = &names,
                          .text = text,
                          .text_bytes_max = sizeof text - 1};
    int status = operation && document ? 0 : -ENOMEM;

    if (status == 0) {
        operation->object = &all;
        operation->method = STK_HTTP_GET;
        operation->document = true;
        operation->buffer = document;
        operation->buffer_bytes = DOCUMENT_BYTES;
        status = stk_operation_run(store, operation, NULL, error);
    }
    if (status == 0) {
        status = stk_xml_parse(&xml, (struct stk_view){document, operation->request.bytes});
        status = status == 0 && !names.is_list ? STOKER_ERROR_CORRUPT : status;
        if (status < 0 && status != -ENOMEM) {
            stk_fail(error, status, "the list of buckets cannot be read",
                     "check the server and the proxies in between", "'s3://'");
        }
    }
    if (status == -ENOMEM) {
        stk_fail(error, status, "cannot list buckets", "free memory", "'s3://'");
    }
    stk_free(document);
    stk_free(operation);
    if (status < 0) {
        stk_free(names.text);
        return status;
    }
    *names_out = names.text;
    *count_out = names.count;
    return 0;
}
