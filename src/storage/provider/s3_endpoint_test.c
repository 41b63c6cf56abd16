/* Goal: the S3 endpoint follows from names and settings as Amazon documents it, in each of its
 * partitions; ARNs are parsed or refused, and contradicting settings are an error.
 * Method: rows with their hosts. src/storage/object/settings_test.c compares random set-ups with
 * botocore. */
#include "storage/provider/s3_endpoint.h"

#include "base/mem.h"
#include "test/t.h"

#include <stdio.h>
#include <string.h>

#define ACCOUNT "123456789012"
#define POINT "arn:aws:s3:us-west-2:" ACCOUNT ":accesspoint"
#define OUTPOST "arn:aws:s3-outposts:us-west-2:" ACCOUNT ":outpost"
#define ALIAS "test-accessp-o0b1d075431d83bebde8xz5w8ijx1qzlbp3i3kuse10--op-s3"
#define RACK "test-accessp-e0b1d075431d83bebde8xz5w8ijx1qzlbp3i3kuse10--op-s3"

/* clang-format off */
static const struct row {
    const char *name, *bucket, *region, *endpoint; /* a bucket, or an ARN */
    struct stk_s3_settings settings;
    const char *url;   /* NULL: refused */
    const char *scope; /* NULL: the region's host, of "s3"; if it is refused, a part of the error */
} rows[] = {
    /* Styles. */
    {"usual", "bucket", "eu-west-1", "", {0}, "https://bucket.s3.eu-west-1.amazonaws.com/", NULL},
    {"by path", "bucket", "eu-west-1", "", {.addressing = STK_S3_ADDRESSING_PATH},
     "https://s3.eu-west-1.amazonaws.com/bucket/", NULL},
    {"a dot", "my.bucket", "eu-west-1", "", {.addressing = STK_S3_ADDRESSING_VIRTUAL},
     "https://s3.eu-west-1.amazonaws.com/my.bucket/", NULL},
    {"a capital", "Bucket", "eu-west-1", "", {0}, "https://s3.eu-west-1.amazonaws.com/Bucket/",
     NULL},
    {"an underscore", "my_bucket", "eu-west-1", "", {0},
     "https://s3.eu-west-1.amazonaws.com/my_bucket/", NULL},
    {"a dash at its end", "bucket-", "eu-west-1", "", {0},
     "https://s3.eu-west-1.amazonaws.com/bucket-/", NULL},
    {"two letters", "ab", "eu-west-1", "", {0}, "https://s3.eu-west-1.amazonaws.com/ab/", NULL},
    {"an alias of an access point", "p-abc-s3alias", "eu-west-1", "", {0},
     "https://p-abc-s3alias.s3.eu-west-1.amazonaws.com/", NULL},
    {"one's own", "bucket", "eu-west-1", "http://host:9000/a", {0}, "http://host:9000/a/bucket/",
     NULL},
    {"one's own, virtual", "bucket", "eu-west-1", "http://host:9000/a",
     {.addressing = STK_S3_ADDRESSING_VIRTUAL}, "http://bucket.host:9000/a/", NULL},
    {"without TLS dots may be", "my.bucket", "eu-west-1", "http://host",
     {.addressing = STK_S3_ADDRESSING_VIRTUAL}, "http://my.bucket.host/", NULL},
    {"with TLS they may not", "my.bucket", "eu-west-1", "https://host",
     {.addressing = STK_S3_ADDRESSING_VIRTUAL}, "https://host/my.bucket/", NULL},
    {"a number is no name", "bucket", "eu-west-1", "https://10.0.0.1:443",
     {.addressing = STK_S3_ADDRESSING_VIRTUAL}, "https://10.0.0.1/bucket/", NULL},
    {"a name with a digit", "bucket", "eu-west-1", "http://1.example", {0},
     "http://1.example/bucket/", NULL},
    {"nor of version 6", "bucket", "eu-west-1", "https://[::1]:9",
     {.addressing = STK_S3_ADDRESSING_VIRTUAL}, "https://[::1]:9/bucket/", NULL},
    {"a bucket like a number", "10.0.0.1", "eu-west-1", "http://host",
     {.addressing = STK_S3_ADDRESSING_VIRTUAL}, "http://host/10.0.0.1/", NULL},
    {"an endpoint's, whatever else is said", "bucket", "eu-west-1", "https://host",
     {.fips = STK_FLAG_YES, .dual_stack = STK_FLAG_YES}, "https://host/bucket/", NULL},
    /* Hosts of Amazon's. */
    {"the first region", "bucket", "us-east-1", "", {0}, "https://bucket.s3.amazonaws.com/", NULL},
    {"by its name", "bucket", "us-east-1", "", {.regional_us_east_1 = STK_FLAG_YES},
     "https://bucket.s3.us-east-1.amazonaws.com/", NULL},
    {"no region", "bucket", "aws-global", "", {0}, "https://bucket.s3.amazonaws.com/",
     "us-east-1/s3"},
    {"FIPS", "bucket", "us-east-1", "", {.fips = STK_FLAG_YES},
     "https://bucket.s3-fips.us-east-1.amazonaws.com/", NULL},
    {"dual stack", "bucket", "us-east-1", "", {.dual_stack = STK_FLAG_YES},
     "https://bucket.s3.dualstack.us-east-1.amazonaws.com/", NULL},
    {"both", "b.c", "us-west-2", "", {.dual_stack = STK_FLAG_YES, .fips = STK_FLAG_YES},
     "https://s3-fips.dualstack.us-west-2.amazonaws.com/b.c/", NULL},
    {"said no", "bucket", "us-west-2", "", {.dual_stack = STK_FLAG_NO, .fips = STK_FLAG_NO},
     "https://bucket.s3.us-west-2.amazonaws.com/", NULL},
    {"accelerate", "bucket", "us-west-2", "", {.accelerate = STK_FLAG_YES},
     "https://bucket.s3-accelerate.amazonaws.com/", NULL},
    {"accelerate, dual stack", "bucket", "us-west-2", "",
     {.accelerate = STK_FLAG_YES, .dual_stack = STK_FLAG_YES},
     "https://bucket.s3-accelerate.dualstack.amazonaws.com/", NULL},
    {"its endpoint", "bucket", "us-west-2", "https://s3-accelerate.amazonaws.com", {0},
     "https://bucket.s3-accelerate.amazonaws.com/", NULL},
    /* Clouds. */
    {"China", "bucket", "cn-north-1", "", {.dual_stack = STK_FLAG_YES},
     "https://bucket.s3.dualstack.cn-north-1.amazonaws.com.cn/", NULL},
    {"China's name alone", "bucket", "cn-", "", {0}, NULL, "region"},
    {"like China's", "bucket", "cn-north-x", "", {0},
     "https://bucket.s3.cn-north-x.amazonaws.com/", NULL},
    {"a government's", "bucket", "us-gov-west-1", "", {.fips = STK_FLAG_YES},
     "https://bucket.s3-fips.us-gov-west-1.amazonaws.com/", NULL},
    {"iso", "bucket", "us-iso-east-1", "", {0}, "https://bucket.s3.us-iso-east-1.c2s.ic.gov/",
     NULL},
    {"iso b", "bucket", "us-isob-east-1", "", {0},
     "https://bucket.s3.us-isob-east-1.sc2s.sgov.gov/", NULL},
    {"iso e", "bucket", "eu-isoe-west-1", "", {0},
     "https://bucket.s3.eu-isoe-west-1.cloud.adc-e.uk/", NULL},
    {"iso f", "bucket", "us-isof-south-1", "", {0},
     "https://bucket.s3.us-isof-south-1.csp.hci.ic.gov/", NULL},
    {"Europe's own", "bucket", "eusc-de-east-1", "", {0},
     "https://bucket.s3.eusc-de-east-1.amazonaws.eu/", NULL},
    /* Endpoints for ARNs. */
    {"a point", POINT "/p", "us-west-2", "", {0},
     "https://p-" ACCOUNT ".s3-accesspoint.us-west-2.amazonaws.com/", NULL},
    {"a point of another region", POINT ":p", "eu-west-1", "", {.fips = STK_FLAG_YES},
     "https://p-" ACCOUNT ".s3-accesspoint-fips.us-west-2.amazonaws.com/", "us-west-2/s3"},
    {"a point, dual stack", POINT "/p", "us-west-2", "",
     {.dual_stack = STK_FLAG_YES, .addressing = STK_S3_ADDRESSING_PATH},
     "https://p-" ACCOUNT ".s3-accesspoint.dualstack.us-west-2.amazonaws.com/", NULL},
    {"a point, one's own", POINT "/p", "us-west-2", "http://host:1/a", {0},
     "http://p-" ACCOUNT ".host:1/a/", NULL},
    {"China's", "arn:aws-cn:s3:cn-north-1:" ACCOUNT ":accesspoint/p", "cn-northwest-1", "", {0},
     "https://p-" ACCOUNT ".s3-accesspoint.cn-north-1.amazonaws.com.cn/", "cn-north-1/s3"},
    {"Lambda", "arn:aws:s3-object-lambda:us-west-2:" ACCOUNT ":accesspoint/p", "us-west-2", "",
     {.fips = STK_FLAG_YES}, "https://p-" ACCOUNT ".s3-object-lambda-fips.us-west-2.amazonaws.com/",
     "us-west-2/s3-object-lambda"},
    {"an outpost", OUTPOST "/op-1/accesspoint/p", "us-west-2", "", {0},
     "https://p-" ACCOUNT ".op-1.s3-outposts.us-west-2.amazonaws.com/", "us-west-2/s3-outposts"},
    {"an outpost's alias", ALIAS, "us-west-2", "", {0},
     "https://" ALIAS ".op-0b1d075431d83bebd.s3-outposts.us-west-2.amazonaws.com/",
     "us-west-2/s3-outposts"},
    {"of another kind", RACK, "us-west-2", "", {0},
     "https://" RACK ".ec2.s3-outposts.us-west-2.amazonaws.com/", "us-west-2/s3-outposts"},
    {"an alias at one's own", ALIAS, "us-west-2", "http://host", {0}, "http://host/" ALIAS "/",
     NULL},
    {"no such kind", "test-accessp-x0b1d075431d83bebde8xz5w8ijx1qzlbp3i3kuse10--op-s3",
     "us-west-2", "", {0}, NULL, "outpost"},
    /* Settings that contradict each other. */
    {"FIPS in China", "bucket", "cn-north-1", "", {.fips = STK_FLAG_YES}, NULL, "no FIPS"},
    {"dual stack where there is none", "bucket", "eu-isoe-west-1", "",
     {.dual_stack = STK_FLAG_YES}, NULL, "dual stack"},
    {"accelerate and FIPS", "bucket", "us-west-2", "",
     {.fips = STK_FLAG_YES, .accelerate = STK_FLAG_YES}, NULL, "Accelerate"},
    {"accelerate and an endpoint", "bucket", "us-west-2", "https://host",
     {.accelerate = STK_FLAG_YES}, NULL, "Accelerate"},
    {"accelerate and a dot", "my.bucket", "us-west-2", "", {.accelerate = STK_FLAG_YES}, NULL,
     "Accelerate"},
    {"accelerate and a point", POINT "/p", "us-west-2", "", {.accelerate = STK_FLAG_YES}, NULL,
     "Accelerate"},
    {"accelerate in China", "bucket", "cn-north-1", "", {.accelerate = STK_FLAG_YES}, NULL,
     "Accelerate"},
    {"another region", POINT "/p", "eu-west-1", "", {.arn_region = STK_FLAG_NO}, NULL,
     "another region"},
    {"another cloud", POINT "/p", "cn-north-1", "", {0}, NULL, "another cloud"},
    {"a number's point", POINT "/p", "us-west-2", "http://10.0.0.1", {0}, NULL, "number"},
    {"Lambda, dual stack", "arn:aws:s3-object-lambda:us-west-2:" ACCOUNT ":accesspoint/p",
     "us-west-2", "", {.dual_stack = STK_FLAG_YES}, NULL, "dual stack"},
    {"several regions", "arn:aws:s3::" ACCOUNT ":accesspoint/p.mrap", "us-west-2", "", {0}, NULL,
     "not supported"},
    {"several regions, switched off", "arn:aws:s3::" ACCOUNT ":accesspoint/p.mrap", "us-west-2",
     "", {.no_multi_region = STK_FLAG_YES}, NULL, "switched off"},
    {"a region that is none", "bucket", "evil.example/", "", {0}, NULL, "region"},
    {"no region at all", "bucket", "", "", {0}, NULL, "region"},
};
/* clang-format on */

static void test_addresses(void)
{
    T_EACH(row, row, rows)
    {
        struct stk_endpoint site = {.region_source = "AWS_REGION", .settings = row->settings};
        struct stk_s3_arn arn;
        struct stk_s3_target target = {.site = &site, .bucket = row->bucket, .region = row->region};
        struct stk_s3_endpoint address;
        struct stoker_error error = {0};
        char got[1600], scope[80];
        int status;

        snprintf(site.endpoint, sizeof site.endpoint, "%s", row->endpoint);
        snprintf(site.region, sizeof site.region, "%s", row->region);
        if (stk_s3_is_arn(row->bucket)) {
            T_EQ(row->name, stk_s3_arn_parse(row->bucket, &arn), strlen(row->bucket));
            target.arn = &arn;
        }
        status = stk_s3_endpoint_resolve(&target, &address, &error);
        T_EQ(row->name, status == 0, row->url != NULL);
        if (status < 0) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.what, row->scope);
            continue;
        }
        snprintf(got, sizeof got, "%s://%s%s", address.tls ? "https" : "http", address.host,
                 address.root);
        T_STR(row->name, got, row->url);
        snprintf(scope, sizeof scope, "%s/s3", row->region);
        snprintf(got, sizeof got, "%s/%s", address.region, address.service);
        T_STR(row->name, got, row->scope ? row->scope : scope);
    }
}

/* If no region is configured, the oldest host is used, whatever the setting for us-east-1. */
static void test_no_region(void)
{
    struct stk_endpoint site = {.region = "us-east-1",
                                .settings = {.regional_us_east_1 = STK_FLAG_YES}};
    struct stk_s3_target target = {.site = &site, .bucket = "bucket", .region = "us-east-1"};
    struct stk_s3_endpoint address;
    struct stk_s3_arn arn;

    T_EQ("no region", stk_s3_endpoint_resolve(&target, &address, NULL), 0);
    T_STR("no region", address.host, "bucket.s3.amazonaws.com");
    site.settings.arn_region = STK_FLAG_NO;
    T_TRUE("an ARN", stk_s3_arn_parse("arn:aws:s3:us-east-1:" ACCOUNT ":accesspoint/p", &arn) > 0);
    target.arn = &arn;
    T_EQ("an ARN's region", stk_s3_endpoint_resolve(&target, &address, NULL),
         STOKER_ERROR_ARGUMENT);
    target.arn = NULL;
    target.region = "eu-west-1"; /* as was learned */
    T_EQ("learned", stk_s3_endpoint_resolve(&target, &address, NULL), 0);
    T_STR("learned", address.host, "bucket.s3.eu-west-1.amazonaws.com");
}

/* Buckets of a zone; text that does not fit is refused, never cut. */
static void test_zones(void)
{
    struct stk_endpoint site = {.region_source = "AWS_REGION", .region = "us-west-2"};
    char name[300];
    struct stk_s3_target target = {
        .site = &site, .bucket = "b--usw2-az1--x-s3", .zone = "usw2-az1", .region = "us-west-2"};
    struct stk_s3_endpoint address;

    T_EQ("zone", stk_s3_endpoint_resolve(&target, &address, NULL), 0);
    T_STR("zone", address.host, "b--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com");
    T_STR("zone", address.service, "s3express");
    memset(site.endpoint, 'x', sizeof site.endpoint - 1);
    memcpy(site.endpoint, "http://host/", 12);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    target.bucket = name;
    T_EQ("no room", stk_s3_endpoint_resolve(&target, &address, NULL), STOKER_ERROR_LIMIT);
    target.zone = NULL;
    T_EQ("no room", stk_s3_endpoint_resolve(&target, &address, NULL), STOKER_ERROR_LIMIT);
}

static void test_arns(void)
{
    static const struct arn {
        const char *text;
        uint32_t kind; /* 0: none */
        const char *name, *outpost, *rest;
    } arns[] = {
        {POINT "/p/key", STK_S3_ARN_ACCESS_POINT, "p", "", "/key"},
        {POINT ":p", STK_S3_ARN_ACCESS_POINT, "p", "", ""},
        {POINT ":UP-1/a:b/c", STK_S3_ARN_ACCESS_POINT, "UP-1", "", "/a:b/c"},
        {OUTPOST ":op-1:accesspoint:p/k", STK_S3_ARN_OUTPOST, "p", "op-1", "/k"},
        {OUTPOST "/op-1/accesspoint/p", STK_S3_ARN_OUTPOST, "p", "op-1", ""},
        {"arn:aws:s3::" ACCOUNT ":accesspoint:m.mrap/k", STK_S3_ARN_MULTI_REGION, "m.mrap", "",
         "/k"},
        {POINT, 0, "", "", ""},
        {POINT "/", 0, "", "", ""},
        {POINT "/p:q", 0, "", "", ""},
        {POINT "/-p", 0, "", "", ""},
        {POINT "/p_q/k", 0, "", "", ""},
        {POINT "/p.q/k", 0, "", "", ""},
        {OUTPOST "/op-1", 0, "", "", ""},
        {OUTPOST "/op_1/accesspoint/p", 0, "", "", ""},
        {OUTPOST "/op-1/bucket/p", 0, "", "", ""},
        {"arn:aws:s3:::bucket/k", 0, "", "", ""},
        {"arn:aws:s3:us-west-2:12345678901:accesspoint/p", 0, "", "", ""},
        {"arn:aws:sqs:us-west-2:" ACCOUNT ":accesspoint/p", 0, "", "", ""},
        {"arn:aws:s3:us_west:" ACCOUNT ":accesspoint/p", 0, "", "", ""},
        {"arn:other:s3:us-west-2:" ACCOUNT ":accesspoint/p", 0, "", "", ""},
        {"arn:", 0, "", "", ""},
        {"bucket", 0, "", "", ""},
    };

    T_EACH(arn, row, arns)
    {
        struct stk_s3_arn got;
        size_t bytes = stk_s3_arn_parse(row->text, &got);

        T_EQ(row->text, bytes > 0, row->kind != 0);
        if (bytes > 0) {
            T_EQ(row->text, got.kind, row->kind);
            T_STR(row->text, got.name, row->name);
            T_STR(row->text, got.outpost, row->outpost);
            T_STR(row->text, got.account, ACCOUNT);
            T_STR(row->text, row->text + bytes, row->rest);
        }
    }
}

int main(void)
{
    test_addresses();
    test_no_region();
    test_zones();
    test_arns();
    T_EQ("no memory is taken", stk_mem_calls(), 0);
    return t_finish();
}
