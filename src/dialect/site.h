/* dialect/site.h: where a service's stores are, as variables and files say, and who says so.
 *
 *   environment, ~/.aws/config --stk_site_find--> endpoint, region, account
 *
 * Read as the services' own libraries do: AWS_ENDPOINT_URL_S3 and profiles (botocore),
 * STORAGE_EMULATOR_HOST (google-cloud-storage), AZURE_STORAGE_CONNECTION_STRING (azure-storage),
 * HF_ENDPOINT (huggingface_hub).
 * Owner: values. Threads: any. Memory: none is kept; files are wiped. Bound: the arrays below. */
#ifndef DIALECT_SITE_H
#define DIALECT_SITE_H

#include "base/base.h"

struct stk_site {
    char endpoint[512];      /* "https://storage.googleapis.com"; S3: empty for Amazon's own */
    char endpoint_from[640]; /* "AWS_ENDPOINT_URL", "/home/me/.aws/config:7"; empty: nobody */
    char region[64];         /* S3; never empty */
    char region_from[640];
    char account[64];      /* Azure; empty: nobody says */
    bool dual_stack, fips; /* S3, where there is no endpoint */
};

/* What one of Amazon's own hosts is named by. */
struct stk_site_host {
    const char *bucket; /* NULL: it is in the path */
    const char *zone;   /* of a bucket of S3 Express; NULL: none */
    const char *region;
    bool dual_stack, fips;
};

/* service: enum stk_creds_service. ARGUMENT: an endpoint that is no URL of http or https; errors of
 * the profiles. */
int stk_site_find(uint32_t service, struct stk_site *site_out, struct stoker_error *error);

/* "us-west-2" of "usw2-az1", "us-gov-west-1" of "usgw1-az1"; false: it does not follow from the
 * zone's name. */
bool stk_site_zone(const char *zone, char region_out[64]);

/* "usw2-az1" of "name--usw2-az1--x-s3", a bucket of S3 Express. NULL: a usual bucket. */
const char *stk_site_bucket_zone(const char *bucket, size_t bytes, size_t *zone_bytes_out);
/* "name--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com". False: no room. */
bool stk_site_amazon_host(const struct stk_site_host *host, char *out, size_t out_bytes);

/* Whether a secret may go there: by TLS, or to this machine. */
bool stk_site_is_private(const char *endpoint);

#endif
