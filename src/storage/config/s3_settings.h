/* storage/config/s3_settings.h: how S3 is to be asked, as variables and the profile in hand say it,
 * by the names and in the order of botocore.
 *
 *   environment, profiles --stk_s3_settings_read--> one struct
 *
 * A variable goes before the profile's own value, that before the one in its "s3 =" lines. Text
 * that a setting does not know is an error, never the default: who asks for FIPS and writes it
 * wrong would be sent elsewhere. Owner: values. Threads: any. Memory: none is kept. Bound: the
 * arrays below. */
#ifndef STORAGE_CONFIG_S3_SETTINGS_H
#define STORAGE_CONFIG_S3_SETTINGS_H

#include "storage/config/aws_profile.h"

/* Of Amazon's clouds, whose accounts, keys and names of buckets know nothing of each other. */
struct stk_aws_partition {
    const char
        *region_prefix; /* names of its regions, the rest being word-number; "": the usual one */
    const char *name, *domain;
    const char *dual_stack_domain; /* of dual stack, for all but S3 */
    bool no_dual_stack;            /* S3 has no hosts of dual stack in it */
};
const struct stk_aws_partition *stk_aws_partition_of(const char *region);
/* "us-east-1" of "fips-us-east-1" or "us-east-1-fips", which are no names of regions, but people
 * wrote them so for long; whether it was one, and so FIPS is meant. */
bool stk_aws_region_strip_fips(char *region);

/* Where a service is to be asked. */
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

struct stk_s3_settings {   /* zeroed: nobody says anything */
    uint32_t attempts_max; /* 0: nobody says */
    uint32_t fips;         /* enum stk_flag_setting, as those that follow */
    uint32_t dual_stack, accelerate;
    uint32_t arn_region;              /* unsaid: yes */
    uint32_t no_multi_region;         /* access points */
    uint32_t no_express_sessions;     /* buckets of S3 Express are asked without sessions */
    uint32_t sign_payload;            /* unsaid: what nothing else proves */
    uint32_t regional_us_east_1;      /* us-east-1 by its own name; unsaid: no */
    uint32_t checksums_when_required; /* checksums go with requests only where they must */
    uint32_t verify_when_required;    /* and are asked for only where they must be */
    uint32_t ignore_endpoints;        /* of one's own: looked at by who asks for one, alone */
    uint32_t addressing;              /* enum stk_s3_addressing */
    char ca_file[STK_AWS_PROFILE_PATH_BYTES]; /* PEM; empty: nobody says */
};

/* ARGUMENT: a value that its setting does not know, with where it stands; LIMIT: one too long. */
int stk_s3_settings_read(const struct stk_aws_profile *profiles,
                         struct stk_s3_settings *settings_out, struct stoker_error *error);

/* The file of certificates that are believed: AWS_CA_BUNDLE, or the profile's ca_bundle; empty:
 * nobody says. LIMIT. */
int stk_s3_settings_ca_file(const struct stk_aws_profile *profiles,
                            char out[STK_AWS_PROFILE_PATH_BYTES], struct stoker_error *error);

/* The same of all stores: what variables say, a profile's is of S3 alone. Lent by the environment;
 * NULL: the system's are believed. */
const char *stk_s3_settings_environment_ca_file(void);

/* Where a service is to be asked, "s3" say, and who says so: 1: told. 0: nobody says, or all that
 * is said is to be ignored. FORMAT: the profile names a services section that is not there; LIMIT:
 * the text is too long; ARGUMENT: whether to ignore it is told by a text that is neither. */
int stk_s3_settings_endpoint(const struct stk_aws_profile *profiles, const char *service,
                             struct stk_service_endpoint *endpoint_out, struct stoker_error *error);

#endif
