/* storage/provider/endpoint.h: finds the endpoint of a service in variables and files, and where it
 * is set.
 *
 *   environment, ~/.aws/config --stk_endpoint_find--> endpoint, region, account
 *
 * Reads them as the services' own libraries do: AWS_ENDPOINT_URL_S3 and profiles (botocore),
 * STORAGE_EMULATOR_HOST (google-cloud-storage), AZURE_STORAGE_CONNECTION_STRING (azure-storage),
 * HF_ENDPOINT (huggingface_hub).
 * Owner: values. Threads: any. Memory: none is retained; files are wiped. Bound: the arrays below.
 */
#ifndef STORAGE_PROVIDER_ENDPOINT_H
#define STORAGE_PROVIDER_ENDPOINT_H

#include "storage/config/s3_settings.h"

struct stk_endpoint {
    char endpoint[512];        /* "https://storage.googleapis.com"; S3: empty for Amazon's own */
    char endpoint_source[640]; /* "AWS_ENDPOINT_URL", "/home/me/.aws/config:7"; empty: not set */
    char region[64];           /* S3; never empty */
    char region_source[640];
    char account[64];                /* Azure; empty: not set */
    struct stk_s3_settings settings; /* S3 */
};

/* service: enum stk_credentials_service. Returns 0 on success, STOKER_ERROR_ARGUMENT if an
 * endpoint is no URL of http or https, STOKER_ERROR_LIMIT if it is too long, or errors of
 * aws_profile.h and s3_settings.h. */
int stk_endpoint_find(uint32_t service, struct stk_endpoint *site_out, struct stoker_error *error);

/* Derives the region from the id of a zone: "us-west-2" from "usw2-az1", "us-gov-west-1" from
 * "usgw1-az1". False: it cannot be derived. */
bool stk_endpoint_zone_region(const char *zone, char region_out[64]);

/* The zone in the name of a bucket of S3 Express ("usw2-az1" in "name--usw2-az1--x-s3"), or of an
 * access point of one ("name--usw2-az1--xa-s3"). NULL: another bucket. */
const char *stk_endpoint_bucket_zone(const char *bucket, size_t bytes, size_t *zone_bytes_out);

/* The region of a bucket of S3 Express is that of its zone, whatever is configured (Amazon's
 * libraries use the configured one, and do not find the host). With a configured endpoint the
 * configured region is used. Returns 1 and sets *region_out, 0 if the configured region is to be
 * used, STOKER_ERROR_ARGUMENT if the region is unknown. url: for the error. */
int stk_endpoint_bucket_region(const struct stk_endpoint *site, const char *zone, const char *url,
                               char region_out[64], struct stoker_error *error);

#endif
