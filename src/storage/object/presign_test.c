/* Goal: a signed URL names the endpoint, the key and the time; a request that cannot be signed is
 * an error; the list of buckets is read, and an invalid one is refused.
 * Method: a server with scripted documents. Covers presign.c, bucket_list.c. */
#include "storage/object/store.h"

#include "base/mem.h"
#include "io/clock.h"
#include "storage/http/http.h"
#include "test/server.h"
#include "test/t.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *document = "";

static void serve(int fd)
{
    char head[8192], text[2048];

    while (t_read_request(fd, head, sizeof head, NULL) > 0) {
        int bytes = snprintf(text, sizeof text, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s",
                             strncmp(head, "GET / ", 6) == 0 ? "200 OK" : "400 Bad Request",
                             strlen(document), document);

        (void)t_send(fd, text, (size_t)bytes);
    }
}

static void test_sign(struct stk_store *store, const char *endpoint)
{
    struct stk_object_url *object = NULL;
    struct stoker_error error = {0};
    struct stk_presign signing = {.method = STK_HTTP_GET, .expires_s = 60};
    uint64_t until_ns, now_ns = stk_clock_wall_ns();
    char *url, want[256];

    T_EQ("parse", stk_object_url_parse("s3://bucket/a b/c", &object, &error), 0);
    T_EQ("sign", stk_store_presign(store, object, &signing, &error), 0);
    url = signing.url;
    until_ns = signing.until_ns;
    snprintf(want, sizeof want, "%s/bucket/a%%20b/c?X-Amz-Algorithm=AWS4-HMAC-SHA256&", endpoint);
    T_TRUE("place", url && strncmp(url, want, strlen(want)) == 0);
    T_TRUE("time", url && strstr(url, "X-Amz-Expires=60&"));
    T_TRUE("signature", url && strlen(strstr(url, "X-Amz-Signature=")) == 16 + 64);
    T_TRUE("until", until_ns >= now_ns + 60000000000u && until_ns < now_ns + 90000000000u);
    stk_free(url);
    signing.expires_s = 604801;
    T_EQ("a week and more", stk_store_presign(store, object, &signing, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("a week and more", &error);
    stk_object_url_free(object);
    signing.expires_s = 60;
    T_EQ("parse", stk_object_url_parse("gs://bucket/key", &object, &error), 0);
    T_EQ("Google", stk_store_presign(store, object, &signing, &error), STOKER_ERROR_UNSUPPORTED);
    T_ERROR("Google", &error);
    stk_object_url_free(object);
}

static void test_buckets(struct stk_store *store)
{
    static const struct row {
        const char *name, *document;
        int status;
        size_t count;
    } rows[] = {
        {"two",
         "<ListAllMyBucketsResult><Owner><ID>x</ID></Owner><Buckets><Bucket><Name>a</Name>"
         "</Bucket><Bucket><Name>b-c</Name></Bucket></Buckets></ListAllMyBucketsResult>",
         0, 2},
        {"none", "<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>", 0, 0},
        {"another document", "<ListBucketResult></ListBucketResult>", STOKER_ERROR_CORRUPT, 0},
        {"no document", "", STOKER_ERROR_CORRUPT, 0},
        {"not a name",
         "<ListAllMyBucketsResult><Buckets><Bucket><Name>a/b</Name></Bucket></Buckets>"
         "</ListAllMyBucketsResult>",
         STOKER_ERROR_CORRUPT, 0},
    };

    T_EACH(row, row, rows)
    {
        struct stoker_error error = {0};
        char *names = NULL;
        size_t count = 0;

        document = row->document;
        T_EQ(row->name, stk_store_list_buckets(store, &names, &count, &error), row->status);
        T_EQ(row->name, count, row->count);
        if (row->status < 0) {
            T_ERROR(row->name, &error);
        } else if (count == 2) {
            T_STR(row->name, names, "a");
            T_STR(row->name, names + 2, "b-c");
        }
        stk_free(names);
    }
}

int main(void)
{
    struct stk_store_options options = {.timeout_ms = 5000, .seed = 3, .unshared = true};
    struct stoker_error error = {0};
    struct stk_store *store = NULL;
    char endpoint[64];
    struct t_server server;

    t_server_start(&server, serve);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", server.port);
    setenv("AWS_ENDPOINT_URL", endpoint, 1);
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    T_EQ("store", stk_store_open(&store, &options, &error), 0);
    test_sign(store, endpoint);
    test_buckets(store);
    stk_store_close(store);
    t_server_stop(&server);
    return t_finish();
}
