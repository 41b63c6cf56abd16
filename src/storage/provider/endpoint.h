/* storage/provider/endpoint.h: where a service's stores are, as variables and files say, and who
 * says so.
 *
 *   environment, ~/.aws/config --stk_endpoint_find--> endpoint, region, account
 *
 * Read as the services' own libraries do: AWS_ENDPOINT_URL_S3 and profiles (botocore),
 * STORAGE_EMULATOR_HOST (google-cloud-storage), AZURE_STORAGE_CONNECTION_STRING (azure-storage),
 * HF_ENDPOINT (huggingface_hub).
 * Owner: values. Threads: any. Memory: none is kept; files are wiped. Bound: the arrays below. */
#ifndef STORAGE_PROVIDER_ENDPOINT_H
#define STORAGE_PROVIDER_ENDPOINT_H

#include "storage/config/s3_settings.h"

struct stk_endpoint {
    char endpoint[512];        /* "https://storage.googleapis.com"; S3: empty for Amazon's own */
    char endpoint_source[640]; /* "AWS_ENDPOINT_URL", "/home/me/.aws/config:7"; empty: nobody */
    char region[64];           /* S3; never empty */
    char region_source[640];
    char account[64];                /* Azure; empty: nobody says */
    struct stk_s3_settings settings; /* S3 */
};

/* service: enum stk_credentials_service. ARGUMENT: an endpoint that is no URL of http or https;
 * errors of the profiles and of their settings. */
int stk_endpoint_find(uint32_t service, struct stk_endpoint *site_out, struct stoker_error *error);

/* "us-west-2" of "usw2-az1", "us-gov-west-1" of "usgw1-az1"; false: it does not follow from the
 * zone's name. */
bool stk_endpoint_zone_region(const char *zone, char region_out[64]);

/* "usw2-az1" of "name--usw2-az1--x-s3", a bucket of S3 Express, and of an access point of one,
 * "name--usw2-az1--xa-s3". NULL: a usual bucket. */
const char *stk_endpoint_bucket_zone(const char *bucket, size_t bytes, size_t *zone_bytes_out);

/* The region of a bucket of S3 Express: that of its zone, whatever is configured: Amazon's own
 * libraries ask where it is not, and find no such host. Servers of one's own go by what is
 * configured. 1: it is *region_out; 0: as configured; ARGUMENT: nobody knows it; url: for the
 * error. */
int stk_endpoint_bucket_region(const struct stk_endpoint *site, const char *zone, const char *url,
                               char region_out[64], struct stoker_error *error);

#endif
