/* Fuzz target of s3_endpoint.c: any text as a bucket, a region and the host of an endpoint. An
 * accepted one gives a host that consists of host name characters only. */
#include "storage/provider/s3_endpoint.h"

#include <stdio.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(const struct stk_s3_target *target)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.:";
    struct stoker_error error = {0};
    struct stk_s3_endpoint address;

    if (stk_s3_endpoint_resolve(target, &address, &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
        return;
    }
    STK_ASSERT(address.host[0] && strspn(address.host, letters) == strlen(address.host));
    STK_ASSERT(address.root[0] == '/' && address.root[strlen(address.root) - 1] == '/');
    STK_ASSERT(address.region[0] && address.service[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const endpoints[] = {"", "http://host:9/a", "https://10.0.0.1"};
    struct stk_endpoint site = {.region = "us-west-2", .region_source = "x"};
    char text[256] = "";
    struct stk_s3_arn arn;
    struct stk_s3_target target = {.site = &site, .bucket = text, .region = "us-west-2"};
    size_t used;

    memcpy(text, data, stk_min(bytes, sizeof text - 1));
    used = stk_s3_arn_parse(text, &arn);
    STK_ASSERT(used <= strlen(text) && (used == 0 || !text[used] || text[used] == '/'));
    target.arn = used > 0 ? &arn : NULL;
    for (size_t i = 0; i < STK_COUNT(endpoints) * 3; i++) {
        snprintf(site.endpoint, sizeof site.endpoint, "%s", endpoints[i / 3]);
        site.settings.addressing = (uint32_t)(i % 3);
        check(&target);
    }
    target.region = text;
    target.bucket = "bucket";
    check(&target);
    return 0;
}
