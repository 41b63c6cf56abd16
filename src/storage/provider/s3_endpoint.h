/* storage/provider/s3_endpoint.h: host, path and signing names for a bucket of S3, or for the
 * access point that an ARN names. Pure.
 *
 *   URL's bucket or ARN, settings --stk_s3_endpoint_resolve--> host, path, region and service
 *
 * Follows botocore's endpoint rules for all of Amazon's partitions, with one difference: with a
 * configured endpoint, a bucket of S3 Express is addressed by path as any other bucket is.
 * Owner: values. Threads: any. Memory: none. Bound: the arrays below. */
#ifndef STORAGE_PROVIDER_S3_ENDPOINT_H
#define STORAGE_PROVIDER_S3_ENDPOINT_H

#include "storage/provider/endpoint.h"

enum stk_s3_arn_kind {
    STK_S3_ARN_ACCESS_POINT = 1, /* arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME */
    STK_S3_ARN_MULTI_REGION,     /* the same without a region */
    STK_S3_ARN_LAMBDA,           /* arn:aws:s3-object-lambda:REGION:ACCOUNT:accesspoint/NAME */
    STK_S3_ARN_OUTPOST, /* arn:aws:s3-outposts:REGION:ACCOUNT:outpost/ID/accesspoint/NAME */
};

struct stk_s3_arn {
    uint32_t kind; /* enum stk_s3_arn_kind */
    char region[64], account[16], name[64], outpost[64];
};

/* Whether the text begins with "arn:". */
bool stk_s3_is_arn(const char *text);
/* Parses the ARN at the start of the text; a key may follow after a '/'. Returns its length; 0: it
 * is no ARN of something that has objects. */
size_t stk_s3_arn_parse(const char *text, struct stk_s3_arn *arn_out);

struct stk_s3_target {
    const struct stk_endpoint *site;
    const char *bucket;           /* also shown by errors */
    const char *zone;             /* S3 Express; NULL: another bucket */
    const struct stk_s3_arn *arn; /* NULL: a bucket */
    const char *region;           /* of the bucket, if it is known */
};

struct stk_s3_endpoint {
    bool tls;
    char host[768];      /* with its port, as it is sent */
    char root[800];      /* the raw path before the key */
    char region[64];     /* region and service of the signature */
    const char *service; /* "s3", "s3express", "s3-outposts", "s3-object-lambda" */
};

/* Returns 0 on success, STOKER_ERROR_ARGUMENT if settings and names contradict each other,
 * STOKER_ERROR_UNSUPPORTED for a multi-region access point, STOKER_ERROR_LIMIT. */
int stk_s3_endpoint_resolve(const struct stk_s3_target *target, struct stk_s3_endpoint *address_out,
                            struct stoker_error *error);

#endif
