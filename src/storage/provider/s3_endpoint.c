/* Names of hosts: first what does not go together, then one function a kind of place. */
#include "storage/provider/s3_endpoint.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char digits[] = "0123456789";
static const char small[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
static const char any_case[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";

/* What the functions below share. */
struct making {
    const struct stk_s3_target *target;
    const struct stk_settings *settings;
    struct stk_s3_address *address;
    struct stoker_error *error;
    const struct stk_cloud *cloud;
    const char *region; /* with which the host is named */
    bool global;        /* it is of the cloud's first region, whose host is named without one */
    bool fips, dual;
    const char *authority, *base; /* of an endpoint of one's own, where there is one; base: "/a" */
    size_t authority_bytes, base_bytes;
    bool full;
};

static int fail(const struct making *making, const char *what, const char *advice);
static int check(const struct making *making);
static int of_arn(struct making *making);
static int of_outpost_alias(struct making *making);
static void of_zone(struct making *making);
static int of_bucket(struct making *making);
static void print(struct making *making, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- names ---- */

static bool is_made_of(const char *text, size_t bytes, const char *letters)
{
    return strspn(text, letters) >= bytes;
}

/* A part of a host's name. */
static bool is_label(const char *text, const char *letters)
{
    size_t bytes = strlen(text);

    return bytes > 0 && bytes <= 63 && is_made_of(text, bytes, letters) && text[0] != '-' &&
           text[bytes - 1] != '-';
}

/* "10.0.0.1", as the name of a bucket or of a host. */
static bool is_four_numbers(const char *text, size_t bytes)
{
    int parts = 0;

    for (const char *at = text, *end = text + bytes; at < end && parts < 5; parts++) {
        size_t run = strspn(at, digits);

        run = run < (size_t)(end - at) ? run : (size_t)(end - at);
        if (run == 0 || run > 3 || (at + run < end && at[run] != '.')) {
            return false;
        }
        at += run + 1;
    }
    return parts == 4 && text[bytes - 1] != '.';
}

/* A bucket that can be the first part of a host's name; several parts: without TLS only, whose
 * certificates are for one. */
static bool is_host(const char *bucket, bool parts)
{
    char label[64];

    if (strlen(bucket) < 3 || is_four_numbers(bucket, strlen(bucket))) {
        return false;
    }
    if (!parts) {
        return is_label(bucket, small);
    }
    for (const char *at = bucket;; at++) {
        size_t bytes = strcspn(at, ".");

        if (bytes >= sizeof label) {
            return false;
        }
        memcpy(label, at, bytes);
        label[bytes] = 0;
        if (!is_label(label, small)) {
            return false;
        }
        at += bytes;
        if (!*at) {
            return true;
        }
    }
}

/* Of a host with its port: nothing can stand before it. */
static bool is_number(const char *host)
{
    return host[0] == '[' || is_four_numbers(host, strcspn(host, ":/"));
}

/* ---- ARNs ---- */

bool stk_s3_is_arn(const char *text)
{
    return strncmp(text, "arn:", 4) == 0;
}

/* One part, up to one of the ends or the text's own; false: it does not fit. */
static bool part(const char **at, const char *ends, const char *letters, char *out,
                 size_t out_bytes)
{
    size_t bytes = strcspn(*at, ends);

    if (bytes >= out_bytes || !is_made_of(*at, bytes, letters)) {
        return false;
    }
    memcpy(out, *at, bytes);
    out[bytes] = 0;
    *at += bytes;
    return true;
}

/* Passes over one byte of several. */
static bool skip(const char **at, const char *ends)
{
    bool is_there = **at && strchr(ends, **at);

    *at += is_there;
    return is_there;
}

size_t stk_s3_arn_parse(const char *text, struct stk_s3_arn *arn)
{
    static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.";
    const char *at = text + 4;
    char cloud[32], service[32], type[16];
    bool outpost, good;

    *arn = (struct stk_s3_arn){.kind = 0};
    good = stk_s3_is_arn(text) && strncmp(at, "aws", 3) == 0 &&
           part(&at, ":/", small, cloud, sizeof cloud) && skip(&at, ":") &&
           part(&at, ":/", small, service, sizeof service) && skip(&at, ":") &&
           part(&at, ":/", small, arn->region, sizeof arn->region) && skip(&at, ":") &&
           part(&at, ":/", digits, arn->account, sizeof arn->account) && skip(&at, ":") &&
           part(&at, ":/", small, type, sizeof type) && skip(&at, ":/");
    outpost = good && strcmp(service, "s3-outposts") == 0;
    if (outpost) {
        good = strcmp(type, "outpost") == 0 &&
               part(&at, ":/", any_case, arn->outpost, sizeof arn->outpost) && skip(&at, ":/") &&
               part(&at, ":/", small, type, sizeof type) && skip(&at, ":/");
    }
    good = good && strcmp(type, "accesspoint") == 0 && strlen(arn->account) == 12 &&
           part(&at, ":/", name, arn->name, sizeof arn->name) && arn->name[0] && *at != ':';
    if (!good) {
        return 0;
    }
    arn->kind = outpost                                    ? STK_S3_OUTPOST
                : strcmp(service, "s3-object-lambda") == 0 ? STK_S3_LAMBDA
                : strcmp(service, "s3") != 0               ? 0
                : arn->region[0]                           ? STK_S3_ACCESS_POINT
                                                           : STK_S3_MULTI_REGION;
    /* All of them become parts of a host's name. */
    good = arn->kind == STK_S3_MULTI_REGION ||
           (arn->kind != 0 && is_label(arn->region, small) && is_label(arn->name, any_case) &&
            (!outpost || is_label(arn->outpost, any_case)));
    return good ? (size_t)(at - text) : 0;
}

/* ---- addresses ---- */

int stk_s3_address(const struct stk_s3_target *target, struct stk_s3_address *address,
                   struct stoker_error *error)
{
    const struct stk_site *site = target->site;
    bool own = site->endpoint[0] != 0;
    struct making making = {.target = target,
                            .settings = &site->settings,
                            .address = address,
                            .error = error,
                            .fips = !own && site->settings.fips == STK_SAID_YES,
                            .dual = !own && site->settings.dual_stack == STK_SAID_YES,
                            .cloud = stk_cloud_of(target->region)};
    int status;

    *address = (struct stk_s3_address){.tls = true, .root = "/", .service = "s3"};
    making.global = strcmp(target->region, "aws-global") == 0 ||
                    (!site->region_from[0] && strcmp(target->region, "us-east-1") == 0);
    making.region = making.global ? "us-east-1" : target->region;
    snprintf(address->region, sizeof address->region, "%s", making.region);
    if (own) {
        making.authority = strstr(site->endpoint, "://") + 3;
        making.authority_bytes = strcspn(making.authority, "/");
        making.base = making.authority + making.authority_bytes;
        making.base_bytes = strlen(making.base);
        address->tls = strncasecmp(site->endpoint, "https", 5) == 0;
        snprintf(address->root, sizeof address->root, "%s/", making.base);
    }
    status = check(&making);
    if (status == 0 && target->arn) {
        status = of_arn(&making);
    } else if (status == 0 && target->zone) {
        of_zone(&making);
    } else if (status == 0) {
        status = of_outpost_alias(&making);
        status = status == 0 ? of_bucket(&making) : status < 0 ? status : 0;
    }
    if (status == 0 && making.full) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "an endpoint is too long", "use a shorter one",
                          "'%.100s'", target->bucket);
    }
    return status;
}

static int fail(const struct making *making, const char *what, const char *advice)
{
    return stk_fail(making->error, STOKER_ERROR_ARGUMENT, what, advice, "'s3://%.200s'",
                    making->target->bucket);
}

static int check(const struct making *making)
{
    const struct stk_settings *settings = making->settings;
    bool own = making->authority != NULL;

    if (!is_label(making->region, any_case)) {
        return fail(making, "a region's name is none",
                    "check AWS_REGION, and region in the config file");
    }
    if (making->fips && strcmp(making->cloud->name, "aws-cn") == 0) {
        return fail(making, "this cloud has no FIPS endpoints",
                    "set AWS_USE_FIPS_ENDPOINT=false, or use a region of another cloud");
    }
    if (making->dual && making->cloud->single) {
        return fail(making, "this cloud has no endpoints of dual stack",
                    "set AWS_USE_DUALSTACK_ENDPOINT=false");
    }
    if (settings->accelerate != STK_SAID_YES) {
        return 0;
    }
    if (own || making->fips) {
        return fail(making,
                    "S3 Accelerate goes neither with an endpoint of one's own nor with FIPS",
                    "take out use_accelerate_endpoint below s3 in the profile");
    }
    return making->target->arn || making->target->zone
               ? fail(making, "S3 Accelerate is for usual buckets",
                      "take out use_accelerate_endpoint below s3 in the profile")
               : 0;
}

/* The host's name, at its end. */
static void print(struct making *making, const char *format, ...)
{
    struct stk_s3_address *address = making->address;
    size_t used = strlen(address->host), left = sizeof address->host - used;
    va_list list;
    int bytes;

    va_start(list, format);
    bytes = vsnprintf(address->host + used, left, format, list);
    va_end(list);
    making->full |= bytes < 0 || (size_t)bytes >= left;
}

/* The endpoint of one's own, without a port that goes without saying. */
static void print_own(struct making *making)
{
    size_t bytes = making->authority_bytes;
    const char *port = making->address->tls ? ":443" : ":80";

    if (bytes > strlen(port) &&
        strncmp(making->authority + bytes - strlen(port), port, strlen(port)) == 0) {
        bytes -= strlen(port);
    }
    print(making, "%.*s", (int)bytes, making->authority);
}

/* "s3-fips.dualstack.us-east-1.amazonaws.com", of any service. */
static void print_amazon(struct making *making, const char *service, const char *region)
{
    print(making, "%s%s%s.%s.%s", service, making->fips ? "-fips" : "",
          making->dual ? ".dualstack" : "", region, making->cloud->domain);
}

static int of_arn(struct making *making)
{
    const struct stk_s3_arn *arn = making->target->arn;
    const char *client = making->target->site->region;
    bool point = arn->kind == STK_S3_ACCESS_POINT, own = making->authority != NULL;
    /* Then botocore has no region at all, but one without a name. */
    bool unnamed =
        !making->target->site->region_from[0] && making->settings->regional == STK_SAID_YES;

    if (arn->kind == STK_S3_MULTI_REGION) {
        return stk_fail(making->error, STOKER_ERROR_UNSUPPORTED,
                        making->settings->no_multi_region == STK_SAID_YES
                            ? "access points of several regions are switched off"
                            : "access points of several regions are not supported",
                        "name the access point of one region, or its bucket", "'s3://%.200s'",
                        making->target->bucket);
    }
    if (making->settings->arn_region == STK_SAID_NO &&
        (strcmp(arn->region, client) != 0 || unnamed)) {
        return fail(making, "the ARN is of another region than is configured",
                    "set AWS_REGION to its region, or AWS_S3_USE_ARN_REGION=true");
    }
    making->cloud = stk_cloud_of(arn->region);
    if (making->cloud != stk_cloud_of(client)) {
        return fail(making, "the ARN is of another cloud than the configured region",
                    "set AWS_REGION to a region of the ARN's cloud");
    }
    if (own && is_number(making->authority)) {
        return fail(making, "an endpoint that is a number has no access points",
                    "name the endpoint's host in AWS_ENDPOINT_URL, or the access point's bucket");
    }
    if ((making->dual && !point) || (making->fips && arn->kind == STK_S3_OUTPOST)) {
        return fail(making, "there are no such endpoints of dual stack or FIPS for this ARN",
                    "set AWS_USE_DUALSTACK_ENDPOINT and AWS_USE_FIPS_ENDPOINT to false");
    }
    snprintf(making->address->region, sizeof making->address->region, "%s", arn->region);
    print(making, "%s-%s.", arn->name, arn->account);
    if (arn->kind == STK_S3_OUTPOST) {
        print(making, "%s.", arn->outpost);
    }
    making->address->service = point                        ? "s3"
                               : arn->kind == STK_S3_LAMBDA ? "s3-object-lambda"
                                                            : "s3-outposts";
    if (own && arn->kind == STK_S3_OUTPOST) { /* whose hosts know TLS alone, and no path */
        making->address->tls = true;
        memcpy(making->address->root, "/", 2);
    }
    if (own) {
        print_own(making);
    } else {
        print_amazon(making, point ? "s3-accesspoint" : making->address->service, arn->region);
    }
    return 0;
}

/* "name-o...--op-s3": a bucket on an outpost, whose name tells which. 1: it is one. */
static int of_outpost_alias(struct making *making)
{
    const char *bucket = making->target->bucket;
    size_t bytes = strlen(bucket);
    char outpost[18];

    if (making->authority || bytes < 50 || strcmp(bucket + bytes - 7, "--op-s3") != 0) {
        return 0;
    }
    memcpy(outpost, bucket + bytes - 49, 17);
    outpost[17] = 0;
    if (!is_label(outpost, any_case) || !is_host(bucket, false) ||
        !strchr("eo", bucket[bytes - 50]) || strncmp(bucket + bytes - 12, "beta", 4) == 0) {
        return fail(making, "the name of a bucket on an outpost is none", "look how it is written");
    }
    making->address->service = "s3-outposts";
    if (bucket[bytes - 50] == 'e') {
        print(making, "%s.ec2.", bucket);
    } else {
        print(making, "%s.op-%s.", bucket, outpost);
    }
    print(making, "s3-outposts.%s.%s", making->region, making->cloud->domain);
    return 1;
}

static void of_path(struct making *making)
{
    struct stk_s3_address *address = making->address;
    int bytes = snprintf(address->root, sizeof address->root, "%s/%s/",
                         making->base ? making->base : "", making->target->bucket);

    making->full |= (size_t)bytes >= sizeof address->root;
}

/* S3 Express. */
static void of_zone(struct making *making)
{
    making->address->service = "s3express";
    if (making->authority) {
        of_path(making);
        print_own(making);
    } else {
        print(making, "%s.s3express%s-%s%s.%s.%s", making->target->bucket,
              making->fips ? "-fips" : "", making->target->zone, making->dual ? ".dualstack" : "",
              making->region, making->cloud->domain);
    }
}

/* "https://s3-accelerate.amazonaws.com", with ".dualstack": names that are virtual hosts' alone. */
static bool is_accelerate(const struct making *making)
{
    static const char *const hosts[] = {"s3-accelerate.amazonaws.com",
                                        "s3-accelerate.dualstack.amazonaws.com"};

    for (size_t i = 0; i < STK_COUNT(hosts); i++) {
        if (making->authority_bytes == strlen(hosts[i]) &&
            memcmp(making->authority, hosts[i], making->authority_bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether the bucket is to be the host's first part. */
static bool is_virtual(const struct making *making)
{
    uint32_t style = making->settings->addressing;
    const char *bucket = making->target->bucket, *host = making->authority;

    if (making->settings->accelerate == STK_SAID_YES) {
        return true;
    }
    if (!host || is_accelerate(making)) {
        return style != STK_ADDRESSING_PATH && is_host(bucket, host && !making->address->tls);
    }
    return style == STK_ADDRESSING_VIRTUAL && !is_number(host) &&
           is_host(bucket, !making->address->tls);
}

static int of_bucket(struct making *making)
{
    if (is_virtual(making)) {
        print(making, "%s.", making->target->bucket);
    } else {
        of_path(making);
    }
    if (making->authority) {
        print_own(making);
    } else if (making->settings->accelerate == STK_SAID_YES) {
        if (!is_host(making->target->bucket, false) || strcmp(making->cloud->name, "aws-cn") == 0) {
            return fail(making, "a bucket of this name, or in China, is not known to S3 Accelerate",
                        "take out use_accelerate_endpoint below s3 in the profile");
        }
        print(making, "s3-accelerate%s.%s", making->dual ? ".dualstack" : "",
              making->cloud->domain);
    } else if (!making->fips && !making->dual &&
               (making->global || (strcmp(making->region, "us-east-1") == 0 &&
                                   making->settings->regional != STK_SAID_YES))) {
        print(making, "s3.%s", making->cloud->domain); /* the oldest name, of all regions */
    } else {
        print_amazon(making, "s3", making->region);
    }
    return 0;
}
