/* storage/config/s3_settings.h: settings of S3 in variables and the selected profile, with
 * botocore's names and precedence.
 *
 *   environment, profiles --stk_s3_settings_read--> one struct
 *
 * A variable takes precedence over the profile's own value, and that over its "s3 =" section. A
 * value that a setting does not know is an error, never the default: requests of a user who
 * mistypes "true" for FIPS must not go to another endpoint. Owner: values. Threads: any. Memory:
 * none is retained. Bound: the arrays below. */
#ifndef STORAGE_CONFIG_S3_SETTINGS_H
#define STORAGE_CONFIG_S3_SETTINGS_H

#include "storage/config/aws_profile.h"

/* One of Amazon's separate clouds: accounts, keys and bucket names are valid in one only. */
struct stk_aws_partition {
    const char *region_prefix; /* of the names of its regions, before "word-number"; "": the default
                                  partition */
    const char *name, *domain;
    const char *dual_stack_domain; /* of services other than S3 */
    bool no_dual_stack;            /* S3 has no dual-stack hosts there */
};
const struct stk_aws_partition *stk_aws_partition_of(const char *region);
/* Turns the legacy names "fips-us-east-1" and "us-east-1-fips" into "us-east-1". Returns true if
 * the name was one, so FIPS endpoints are wanted. */
bool stk_aws_region_strip_fips(char *region);

/* A configured endpoint of a service. */
struct stk_service_endpoint {
    char url[512];
    char source[640]; /* "AWS_ENDPOINT_URL", "/home/me/.aws/config:7" */
};

enum stk_flag_setting { STK_FLAG_UNSET, STK_FLAG_NO, STK_FLAG_YES };
enum stk_s3_addressing {
    STK_S3_ADDRESSING_AUTO,
    STK_S3_ADDRESSING_PATH,
    STK_S3_ADDRESSING_VIRTUAL
};

struct stk_s3_settings {   /* zeroed: nothing is set */
    uint32_t attempts_max; /* 0: not set */
    uint32_t fips;         /* enum stk_flag_setting, as those that follow */
    uint32_t dual_stack, accelerate;
    uint32_t arn_region;              /* not set: yes */
    uint32_t no_multi_region;         /* access points */
    uint32_t no_express_sessions;     /* no sessions for buckets of S3 Express */
    uint32_t sign_payload;            /* not set: bodies without another checksum */
    uint32_t regional_us_east_1;      /* us-east-1 has a regional host name; not set: no */
    uint32_t checksums_when_required; /* send checksums only where S3 requires them */
    uint32_t verify_when_required;    /* request checksums only where S3 requires it */
    uint32_t ignore_endpoints; /* ignore configured endpoints; stk_s3_settings_endpoint does */
    uint32_t addressing;       /* enum stk_s3_addressing */
    char ca_file[STK_AWS_PROFILE_PATH_BYTES]; /* PEM; empty: not set */
};

/* Returns 0 on success, STOKER_ERROR_ARGUMENT for an unknown value (with its variable, or file
 * and line), or STOKER_ERROR_LIMIT for one that is too long. */
int stk_s3_settings_read(const struct stk_aws_profile *profiles,
                         struct stk_s3_settings *settings_out, struct stoker_error *error);

/* The file of trusted certificates: AWS_CA_BUNDLE, or the profile's ca_bundle; empty if not set.
 * Returns 0 or STOKER_ERROR_LIMIT. */
int stk_s3_settings_ca_file(const struct stk_aws_profile *profiles,
                            char out[STK_AWS_PROFILE_PATH_BYTES], struct stoker_error *error);

/* The same for all stores, by variables alone: a profile is for S3. Valid while the environment is
 * unchanged; NULL: the system's certificates. */
const char *stk_s3_settings_environment_ca_file(void);

/* Finds the configured endpoint of a service ("s3"), and where it is set. Returns 1, 0 if none is
 * set or endpoints are to be ignored, STOKER_ERROR_FORMAT if the profile names a services section
 * that does not exist, STOKER_ERROR_LIMIT if the text is too long, STOKER_ERROR_ARGUMENT if the
 * setting that ignores endpoints is neither true nor false. */
int stk_s3_settings_endpoint(const struct stk_aws_profile *profiles, const char *service,
                             struct stk_service_endpoint *endpoint_out, struct stoker_error *error);

#endif
