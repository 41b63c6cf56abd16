/* Goal: attributes of a response become headers for the store of the copy, and nothing else does.
 * Method: rows of responses, without a server. Requests of tags are tested in Python
 * (test_copy_attributes.py). */
#include "storage/upload/object_attributes.h"

#include "base/mem.h"
#include "test/t.h"

#include <stdio.h>
#include <string.h>

static const struct attribute_row {
    const char *name, *from, *to, *headers, *want; /* want: "Name: value|" each */
} rows[] = {
    {"to S3", "gs://b/k", "s3://b/k",
     "Content-Type: a/b\nETag: \"x\"\nx-goog-meta-A-b:  c d \nx-goog-generation: 5\n"
     "CACHE-CONTROL: max-age=1\nContent-Length: 7\n",
     "Content-Type: a/b|x-amz-meta-a-b: c d|Cache-Control: max-age=1|"},
    {"to Azure", "s3://b/k", "az://c/k",
     "content-encoding: gzip\nContent-Language: de\ncontent-disposition: inline\n"
     "x-amz-meta-a-b: c\nx-amz-version-id: 7\nx-goog-meta-z: 1\n",
     "x-ms-blob-content-encoding: gzip|x-ms-blob-content-language: de|"
     "x-ms-blob-content-disposition: inline|x-ms-meta-a_b: c|"},
    {"of a web server", "http://h/k", "gs://b/k",
     "Content-Type: text/html\nx-amz-meta-a: 1\nSet-Cookie: secret\nContent-Encoding: \n",
     "Content-Type: text/html|"},
    {"no colon, no end", "s3://b/k", "s3://b/l",
     "Content-Type\nx-amz-meta-: 1\nx-amz-meta-e:", "x-amz-meta-e: |"},
};

static struct stk_object_url *parse(const char *url)
{
    struct stk_object_url *object = NULL;

    T_EQ(url, stk_object_url_parse(url, &object, NULL), 0);
    return object;
}

static void set_headers(struct stk_http_response *answer, const char *text)
{
    answer->headers_bytes = (uint32_t)strlen(text);
    memcpy(answer->headers, text, answer->headers_bytes);
}

static void test_limit(struct stk_http_response *answer)
{
    struct stk_object_attributes *attributes = stk_alloc(1, sizeof *attributes);
    struct stk_object_url *from = parse("s3://b/k");
    struct stoker_error error = {0};
    char text[2048] = "";

    for (uint32_t i = 0; i <= STK_OBJECT_ATTRIBUTES_MAX; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "x-amz-meta-%u: v\n", i);
    }
    set_headers(answer, text);
    T_EQ("too many", stk_object_attributes_add(attributes, answer, from, from, &error),
         STOKER_ERROR_LIMIT);
    T_ERROR("error", &error);
    stk_object_url_free(from);
    stk_free(attributes);
}

int main(void)
{
    struct stk_http_response *answer = stk_alloc(1, sizeof *answer);

    T_EACH(attribute_row, row, rows)
    {
        struct stk_object_attributes *attributes = stk_alloc(1, sizeof *attributes);
        struct stk_object_url *from = parse(row->from), *to = parse(row->to);
        char found[1024] = "";

        set_headers(answer, row->headers);
        T_EQ(row->name, stk_object_attributes_add(attributes, answer, from, to, NULL), 0);
        for (uint32_t i = 0; i < attributes->count; i++) {
            snprintf(found + strlen(found), sizeof found - strlen(found), "%s: %s|",
                     attributes->headers[i].name, attributes->headers[i].value);
        }
        T_STR(row->name, found, row->want);
        T_EQ(row->name, attributes->has_type, strstr(row->headers, "Content-Type:") != NULL);
        stk_object_url_free(from);
        stk_object_url_free(to);
        stk_free(attributes);
    }
    test_limit(answer);
    stk_free(answer);
    return t_finish();
}
