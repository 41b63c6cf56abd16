/* storage/config/aws_profile.h: the profiles of ~/.aws/config and ~/.aws/credentials.
 *
 *   environment --stk_aws_profile_open--> both files --stk_aws_profile_get--> a value of a profile
 *
 * A value in the credentials file takes precedence over one in the config file.
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
    char name[STK_AWS_PROFILE_NAME_BYTES]; /* the selected profile */
    bool named; /* selected by the caller or the environment: it must exist */
};

/* Reads both files; a missing file is empty. profile NULL: the environment selects one. Returns
 * 0 on success, STOKER_ERROR_MISSING if the selected profile is in neither file, errors of
 * stk_ini_parse. */
int stk_aws_profile_open(struct stk_aws_profile *profiles, const char *profile,
                         struct stoker_error *error);
void stk_aws_profile_close(struct stk_aws_profile *profiles);
bool stk_aws_profile_has(const struct stk_aws_profile *profiles, const char *profile);
/* NULL: the profile has no such value. Valid until close. */
const char *stk_aws_profile_get(const struct stk_aws_profile *profiles, const char *profile,
                                const char *name);
/* The value in one of the two files. */
const char *stk_aws_profile_get_config(const struct stk_aws_profile *profiles, const char *profile,
                                       const char *name);
const char *stk_aws_profile_get_credentials(const struct stk_aws_profile *profiles,
                                            const char *profile, const char *name);
/* The file and line of the value that stk_aws_profile_get returns ("/home/me/.aws/config:12"); ""
 * if there is none. Returns text. */
const char *stk_aws_profile_location(const struct stk_aws_profile *profiles, const char *profile,
                                     const char *name, char *text, size_t text_bytes);
/* A value of a section "[kind name]" of the config file: sso-session, services. */
const char *stk_aws_profile_section(const struct stk_aws_profile *profiles, const char *kind,
                                    const char *name, const char *key);
bool stk_aws_profile_has_section(const struct stk_aws_profile *profiles, const char *kind,
                                 const char *name);
/* AWS_REGION, AWS_DEFAULT_REGION or the profile's; NULL: none. */
const char *stk_aws_profile_region(const struct stk_aws_profile *profiles);
/* The variable, or the file and line, that sets the region; "" if none does. Returns text. */
const char *stk_aws_profile_region_location(const struct stk_aws_profile *profiles, char *text,
                                            size_t text_bytes);
/* A variable of the environment; NULL if it is not set or empty. */
const char *stk_environment_get(const char *name);
/* Replaces a leading ~ by the home folder; false: too long, or there is no home folder. */
bool stk_path_expand_home(const char *path, char *out, size_t out_bytes);

#endif
