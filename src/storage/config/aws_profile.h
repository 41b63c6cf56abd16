/* storage/config/aws_profile.h: the profiles of ~/.aws/config and ~/.aws/credentials, as one.
 *
 *   environment --stk_aws_profile_open--> both files --stk_aws_profile_get--> a value of a profile
 *
 * What the credentials file says of a profile goes before what the config file says.
 * Owner: the caller. Threads: any, to read. Memory: both files, wiped in close.
 * Bound: STK_INI_BYTES_MAX a file. */
#ifndef STORAGE_CONFIG_AWS_PROFILE_H
#define STORAGE_CONFIG_AWS_PROFILE_H

#include "storage/config/ini.h"

#define STK_AWS_PROFILE_PATH_BYTES 4096u
#define STK_AWS_PROFILE_NAME_BYTES 256u

struct stk_aws_profile { /* zeroed: no files */
    struct stk_ini config, credentials;
    char config_path[STK_AWS_PROFILE_PATH_BYTES], credentials_path[STK_AWS_PROFILE_PATH_BYTES];
    char name[STK_AWS_PROFILE_NAME_BYTES]; /* the profile that is asked for */
    bool named;                            /* by the caller or the environment: it must exist */
};

/* A file that is not there is empty. FORMAT and LIMIT as of stk_ini_parse; MISSING: the profile is
 * path_args and in neither file. profile NULL: as the environment says. */
int stk_aws_profile_open(struct stk_aws_profile *profiles, const char *profile,
                         struct stoker_error *error);
void stk_aws_profile_close(struct stk_aws_profile *profiles);
bool stk_aws_profile_has(const struct stk_aws_profile *profiles, const char *profile);
/* NULL: it does not say. Lent until close. */
const char *stk_aws_profile_get(const struct stk_aws_profile *profiles, const char *profile,
                                const char *name);
/* Of one of the two files alone. */
const char *stk_aws_profile_get_config(const struct stk_aws_profile *profiles, const char *profile,
                                       const char *name);
const char *stk_aws_profile_get_credentials(const struct stk_aws_profile *profiles,
                                            const char *profile, const char *name);
/* "/home/me/.aws/config:12": where the value that stk_aws_profile_get gives stands; "" if it gives
 * none. Returns text. */
const char *stk_aws_profile_location(const struct stk_aws_profile *profiles, const char *profile,
                                     const char *name, char *text, size_t text_bytes);
/* Of "[kind name]" in the config file: sso-session, services. */
const char *stk_aws_profile_section(const struct stk_aws_profile *profiles, const char *kind,
                                    const char *name, const char *key);
bool stk_aws_profile_has_section(const struct stk_aws_profile *profiles, const char *kind,
                                 const char *name);
/* AWS_REGION, AWS_DEFAULT_REGION or the profile's; NULL: none. */
const char *stk_aws_profile_region(const struct stk_aws_profile *profiles);
/* The variable, or file and line, which says so; "": nothing does. Returns text. */
const char *stk_aws_profile_region_location(const struct stk_aws_profile *profiles, char *text,
                                            size_t text_bytes);
/* A variable of the environment; NULL where it is empty too. */
const char *stk_environment_get(const char *name);
/* A path with its ~ replaced by the home folder; false: too long, or no home. */
bool stk_path_expand_home(const char *path, char *out, size_t out_bytes);

#endif
