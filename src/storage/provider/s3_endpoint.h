/* storage/provider/s3_endpoint.h: where S3 is asked for a bucket, or for what an ARN names. Pure.
 *
 *   what a URL names, what is configured --stk_s3_endpoint_resolve--> host, path, and what the
 * signature says
 *
 * As botocore's rules for endpoints have it, over all clouds of Amazon, but for one: a bucket of S3
 * Express at a server of one's own is asked by its path, like any other there.
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

/* Whether the text is meant to begin with an ARN. */
bool stk_s3_is_arn(const char *text);
/* Reads the ARN that the text begins with; a key may follow it behind a '/'. Returns its bytes; 0:
 * it is none that names something with objects in it. */
size_t stk_s3_arn_parse(const char *text, struct stk_s3_arn *arn_out);

struct stk_s3_target {
    const struct stk_endpoint *site;
    const char *bucket;           /* as errors show it, too */
    const char *zone;             /* S3 Express; NULL: not there */
    const struct stk_s3_arn *arn; /* NULL: a bucket */
    const char *region;           /* of the bucket, as far as is known */
};

struct stk_s3_endpoint {
    bool tls;
    char host[768];      /* with its port, as it is sent */
    char root[800];      /* of the path, raw: what stands before the key */
    char region[64];     /* of the signature, as what follows */
    const char *service; /* "s3", "s3express", "s3-outposts", "s3-object-lambda" */
};

/* ARGUMENT: settings or names that do not go together; UNSUPPORTED: an access point of several
 * regions; LIMIT. */
int stk_s3_endpoint_resolve(const struct stk_s3_target *target, struct stk_s3_endpoint *address_out,
                            struct stoker_error *error);

#endif
