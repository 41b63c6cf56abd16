/* Host names of S3: first refuses contradicting settings, then one function for each kind of
 * target. */
#include "storage/provider/s3_endpoint.h"

#include "base/text/text_match.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char digits[] = "0123456789";
static const char lower_case[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
static const char any_case[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-";

/* State that the functions below share. */
struct builder {
    const struct stk_s3_target *target;
    const struct stk_s3_settings *settings;
    struct stk_s3_endpoint *address;
    struct stoker_error *error;
    const struct stk_aws_partition *cloud;
    const char *region; /* in the name of the host */
    bool global;        /* the default region of the partition, whose host name has no region */
    bool fips, dual;
    const char *authority, *base; /* of an endpoint of one's own, where there is one; base: "/a" */
    size_t authority_bytes, base_bytes;
    bool full;
};

static int fail(const struct builder *builder, const char *what, const char *advice);
static int check(const struct builder *builder);
static int of_arn(struct builder *builder);
static int of_outpost_alias(struct builder *builder);
static void of_zone(struct builder *builder);
static int of_bucket(struct builder *builder);
static void print(struct builder *builder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- names ---- */

static bool has_only(const char *text, size_t bytes, const char *letters)
{
    return strspn(text, letters) >= bytes;
}

/* A part of a host's name. */
static bool is_label(const char *text, const char *letters)
{
    size_t bytes = strlen(text);

    return bytes > 0 && bytes <= 63 && has_only(text, bytes, letters) && text[0] != '-' &&
           text[bytes - 1] != '-';
}

/* Returns whether the name of a bucket or host has the form "10.0.0.1". */
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

/* Returns whether the bucket can be the first part of a host name. A bucket of several parts
 * qualifies only without TLS, because a certificate covers one part. */
static bool is_host(const char *bucket, bool parts)
{
    char label[64];

    if (strlen(bucket) < 3 || is_four_numbers(bucket, strlen(bucket))) {
        return false;
    }
    if (!parts) {
        return is_label(bucket, lower_case);
    }
    for (const char *at = bucket;; at++) {
        size_t bytes = strcspn(at, ".");

        if (bytes >= sizeof label) {
            return false;
        }
        memcpy(label, at, bytes);
        label[bytes] = 0;
        if (!is_label(label, lower_case)) {
            return false;
        }
        at += bytes;
        if (!*at) {
            return true;
        }
    }
}

/* Returns whether a host with its port is an IP address: a bucket cannot precede it. */
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

    if (bytes >= out_bytes || !has_only(*at, bytes, letters)) {
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
           part(&at, ":/", lower_case, cloud, sizeof cloud) && skip(&at, ":") &&
           part(&at, ":/", lower_case, service, sizeof service) && skip(&at, ":") &&
           part(&at, ":/", lower_case, arn->region, sizeof arn->region) && skip(&at, ":") &&
           part(&at, ":/", digits, arn->account, sizeof arn->account) && skip(&at, ":") &&
           part(&at, ":/", lower_case, type, sizeof type) && skip(&at, ":/");
    outpost = good && strcmp(service, "s3-outposts") == 0;
    if (outpost) {
        good = strcmp(type, "outpost") == 0 &&
               part(&at, ":/", any_case, arn->outpost, sizeof arn->outpost) && skip(&at, ":/") &&
               part(&at, ":/", lower_case, type, sizeof type) && skip(&at, ":/");
    }
    good = good && strcmp(type, "accesspoint") == 0 && strlen(arn->account) == 12 &&
           part(&at, ":/", name, arn->name, sizeof arn->name) && arn->name[0] && *at != ':';
    if (!good) {
        return 0;
    }
    arn->kind = outpost                                    ? STK_S3_ARN_OUTPOST
                : strcmp(service, "s3-object-lambda") == 0 ? STK_S3_ARN_LAMBDA
                : strcmp(service, "s3") != 0               ? 0
                : arn->region[0]                           ? STK_S3_ARN_ACCESS_POINT
                                                           : STK_S3_ARN_MULTI_REGION;
    /* All of these become parts of a host name. */
    good = arn->kind == STK_S3_ARN_MULTI_REGION ||
           (arn->kind != 0 && is_label(arn->region, lower_case) && is_label(arn->name, any_case) &&
            (!outpost || is_label(arn->outpost, any_case)));
    return good ? (size_t)(at - text) : 0;
}

/* ---- addresses ---- */

int stk_s3_endpoint_resolve(const struct stk_s3_target *target, struct stk_s3_endpoint *address,
                            struct stoker_error *error)
{
    const struct stk_endpoint *site = target->site;
    bool own = site->endpoint[0] != 0;
    struct builder builder = {.target = target,
                              .settings = &site->settings,
                              .address = address,
                              .error = error,
                              .fips = !own && site->settings.fips == STK_FLAG_YES,
                              .dual = !own && site->settings.dual_stack == STK_FLAG_YES,
                              .cloud = stk_aws_partition_of(target->region)};
    int status;

    *address = (struct stk_s3_endpoint){.tls = true, .root = "/", .service = "s3"};
    builder.global = strcmp(target->region, "aws-global") == 0 ||
                     (!site->region_source[0] && strcmp(target->region, "us-east-1") == 0);
    builder.region = builder.global ? "us-east-1" : target->region;
    snprintf(address->region, sizeof address->region, "%s", builder.region);
    if (own) {
        builder.authority = strstr(site->endpoint, "://") + 3;
        builder.authority_bytes = strcspn(builder.authority, "/");
        builder.base = builder.authority + builder.authority_bytes;
        builder.base_bytes = strlen(builder.base);
        address->tls = strncasecmp(site->endpoint, "https", 5) == 0;
        snprintf(address->root, sizeof address->root, "%s/", builder.base);
    }
    status = check(&builder);
    if (status == 0 && target->arn) {
        status = of_arn(&builder);
    } else if (status == 0 && target->zone) {
        of_zone(&builder);
    } else if (status == 0) {
        status = of_outpost_alias(&builder);
        status = status == 0 ? of_bucket(&builder) : status < 0 ? status : 0;
    }
    if (status == 0 && builder.full) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "an endpoint is too long", "use a shorter one",
                          "'%.100s'", target->bucket);
    }
    return status;
}

static int fail(const struct builder *builder, const char *what, const char *advice)
{
    return stk_fail(builder->error, STOKER_ERROR_ARGUMENT, what, advice, "'s3://%.200s'",
                    builder->target->bucket);
}

static int check(const struct builder *builder)
{
    const struct stk_s3_settings *settings = builder->settings;
    bool own = builder->authority != NULL;

    if (!is_label(builder->region, any_case)) {
        return fail(builder, "the name of a region is invalid",
                    "check AWS_REGION, and region in the config file");
    }
    if (builder->fips && strcmp(builder->cloud->name, "aws-cn") == 0) {
        return fail(builder, "this cloud has no FIPS endpoints",
                    "set AWS_USE_FIPS_ENDPOINT=false, or use a region of another cloud");
    }
    if (builder->dual && builder->cloud->no_dual_stack) {
        return fail(builder, "this cloud has no endpoints of dual stack",
                    "set AWS_USE_DUALSTACK_ENDPOINT=false");
    }
    if (settings->accelerate != STK_FLAG_YES) {
        return 0;
    }
    if (own || builder->fips) {
        return fail(builder, "S3 Accelerate cannot be combined with a custom endpoint or FIPS",
                    "take out use_accelerate_endpoint below s3 in the profile");
    }
    return builder->target->arn || builder->target->zone
               ? fail(builder, "S3 Accelerate supports general purpose buckets only",
                      "take out use_accelerate_endpoint below s3 in the profile")
               : 0;
}

/* The host's name, at its end. */
static void print(struct builder *builder, const char *format, ...)
{
    struct stk_s3_endpoint *address = builder->address;
    size_t used = strlen(address->host), left = sizeof address->host - used;
    va_list list;
    int bytes;

    va_start(list, format);
    bytes = vsnprintf(address->host + used, left, format, list);
    va_end(list);
    builder->full |= bytes < 0 || (size_t)bytes >= left;
}

/* Writes the custom endpoint, without a default port. */
static void print_custom(struct builder *builder)
{
    size_t bytes = builder->authority_bytes;
    const char *port = builder->address->tls ? ":443" : ":80";

    if (bytes > strlen(port) &&
        strncmp(builder->authority + bytes - strlen(port), port, strlen(port)) == 0) {
        bytes -= strlen(port);
    }
    print(builder, "%.*s", (int)bytes, builder->authority);
}

/* "s3-fips.dualstack.us-east-1.amazonaws.com", of any service. */
static void print_aws(struct builder *builder, const char *service, const char *region)
{
    print(builder, "%s%s%s.%s.%s", service, builder->fips ? "-fips" : "",
          builder->dual ? ".dualstack" : "", region, builder->cloud->domain);
}

static int of_arn(struct builder *builder)
{
    const struct stk_s3_arn *arn = builder->target->arn;
    const char *client = builder->target->site->region;
    bool point = arn->kind == STK_S3_ARN_ACCESS_POINT, own = builder->authority != NULL;
    /* Then botocore has no region at all, but one without a name. */
    bool unnamed = !builder->target->site->region_source[0] &&
                   builder->settings->regional_us_east_1 == STK_FLAG_YES;

    if (arn->kind == STK_S3_ARN_MULTI_REGION) {
        return stk_fail(builder->error, STOKER_ERROR_UNSUPPORTED,
                        builder->settings->no_multi_region == STK_FLAG_YES
                            ? "access points of several regions are switched off"
                            : "access points of several regions are not supported",
                        "name the access point of one region, or its bucket", "'s3://%.200s'",
                        builder->target->bucket);
    }
    if (builder->settings->arn_region == STK_FLAG_NO &&
        (strcmp(arn->region, client) != 0 || unnamed)) {
        return fail(builder, "the ARN is of another region than is configured",
                    "set AWS_REGION to its region, or AWS_S3_USE_ARN_REGION=true");
    }
    builder->cloud = stk_aws_partition_of(arn->region);
    if (builder->cloud != stk_aws_partition_of(client)) {
        return fail(builder, "the ARN is of another cloud than the configured region",
                    "set AWS_REGION to a region of the ARN's cloud");
    }
    if (own && is_number(builder->authority)) {
        return fail(builder, "an endpoint that is a number has no access points",
                    "name the endpoint's host in AWS_ENDPOINT_URL, or the access point's bucket");
    }
    if ((builder->dual && !point) || (builder->fips && arn->kind == STK_S3_ARN_OUTPOST)) {
        return fail(builder, "there are no such endpoints of dual stack or FIPS for this ARN",
                    "set AWS_USE_DUALSTACK_ENDPOINT and AWS_USE_FIPS_ENDPOINT to false");
    }
    snprintf(builder->address->region, sizeof builder->address->region, "%s", arn->region);
    print(builder, "%s-%s.", arn->name, arn->account);
    if (arn->kind == STK_S3_ARN_OUTPOST) {
        print(builder, "%s.", arn->outpost);
    }
    builder->address->service = point                            ? "s3"
                                : arn->kind == STK_S3_ARN_LAMBDA ? "s3-object-lambda"
                                                                 : "s3-outposts";
    if (own && arn->kind == STK_S3_ARN_OUTPOST) { /* whose hosts support only TLS, and no path */
        builder->address->tls = true;
        memcpy(builder->address->root, "/", 2);
    }
    if (own) {
        print_custom(builder);
    } else {
        print_aws(builder, point ? "s3-accesspoint" : builder->address->service, arn->region);
    }
    return 0;
}

/* "name-o...--op-s3": a bucket on an outpost that the name identifies. Returns 1 if it is
 * one. */
static int of_outpost_alias(struct builder *builder)
{
    const char *bucket = builder->target->bucket;
    size_t bytes = strlen(bucket);
    char outpost[18];

    if (builder->authority || bytes < 50 || !stk_text_ends_with(bucket, "--op-s3")) {
        return 0;
    }
    memcpy(outpost, bucket + bytes - 49, 17);
    outpost[17] = 0;
    if (!is_label(outpost, any_case) || !is_host(bucket, false) ||
        !strchr("eo", bucket[bytes - 50]) || strncmp(bucket + bytes - 12, "beta", 4) == 0) {
        return fail(builder, "the name of a bucket on an outpost is invalid", "check its spelling");
    }
    builder->address->service = "s3-outposts";
    if (bucket[bytes - 50] == 'e') {
        print(builder, "%s.ec2.", bucket);
    } else {
        print(builder, "%s.op-%s.", bucket, outpost);
    }
    print(builder, "s3-outposts.%s.%s", builder->region, builder->cloud->domain);
    return 1;
}

static void of_path(struct builder *builder)
{
    struct stk_s3_endpoint *address = builder->address;
    const char *bucket = builder->target->bucket; /* "": the root, which lists all buckets */
    int bytes = snprintf(address->root, sizeof address->root, "%s/%s%s",
                         builder->base ? builder->base : "", bucket, bucket[0] ? "/" : "");

    builder->full |= (size_t)bytes >= sizeof address->root;
}

/* S3 Express. */
static void of_zone(struct builder *builder)
{
    builder->address->service = "s3express";
    if (builder->authority) {
        of_path(builder);
        print_custom(builder);
    } else {
        print(builder, "%s.s3express%s-%s%s.%s.%s", builder->target->bucket,
              builder->fips ? "-fips" : "", builder->target->zone,
              builder->dual ? ".dualstack" : "", builder->region, builder->cloud->domain);
    }
}

/* "https://s3-accelerate.amazonaws.com", with ".dualstack": names that are virtual hosts' alone. */
static bool is_accelerate(const struct builder *builder)
{
    static const char *const hosts[] = {"s3-accelerate.amazonaws.com",
                                        "s3-accelerate.dualstack.amazonaws.com"};

    for (size_t i = 0; i < STK_COUNT(hosts); i++) {
        if (builder->authority_bytes == strlen(hosts[i]) &&
            memcmp(builder->authority, hosts[i], builder->authority_bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns whether the bucket becomes the first part of the host. */
static bool is_virtual(const struct builder *builder)
{
    uint32_t style = builder->settings->addressing;
    const char *bucket = builder->target->bucket, *host = builder->authority;

    if (!bucket[0]) {
        return false;
    }
    if (builder->settings->accelerate == STK_FLAG_YES) {
        return true;
    }
    if (!host || is_accelerate(builder)) {
        return style != STK_S3_ADDRESSING_PATH && is_host(bucket, host && !builder->address->tls);
    }
    return style == STK_S3_ADDRESSING_VIRTUAL && !is_number(host) &&
           is_host(bucket, !builder->address->tls);
}

static int of_bucket(struct builder *builder)
{
    if (is_virtual(builder)) {
        print(builder, "%s.", builder->target->bucket);
    } else {
        of_path(builder);
    }
    if (builder->authority) {
        print_custom(builder);
    } else if (builder->settings->accelerate == STK_FLAG_YES && builder->target->bucket[0]) {
        if (!is_host(builder->target->bucket, false) ||
            strcmp(builder->cloud->name, "aws-cn") == 0) {
            return fail(builder,
                        "a bucket of this name, or in China, is not known to S3 Accelerate",
                        "take out use_accelerate_endpoint below s3 in the profile");
        }
        print(builder, "s3-accelerate%s.%s", builder->dual ? ".dualstack" : "",
              builder->cloud->domain);
    } else if (!builder->fips && !builder->dual &&
               (builder->global || (strcmp(builder->region, "us-east-1") == 0 &&
                                    builder->settings->regional_us_east_1 != STK_FLAG_YES))) {
        print(builder, "s3.%s", builder->cloud->domain); /* the oldest name, of all regions */
    } else {
        print_aws(builder, "s3", builder->region);
    }
    return 0;
}
