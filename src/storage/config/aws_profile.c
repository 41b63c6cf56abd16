/* Finds the files, sections and values of a profile. */
#include "storage/config/aws_profile.h"

#include "base/crypto/secret_memory.h"
#include "io/small_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int load(struct stk_ini *ini, const char *path, struct stoker_error *error);
static const char *section_of(const struct stk_aws_profile *profiles, const char *kind,
                              const char *name);
static bool is_section(const char *section, const char *kind, const char *name);

int stk_aws_profile_open(struct stk_aws_profile *profiles, const char *profile,
                         struct stoker_error *error)
{
    const char *config = stk_environment_get("AWS_CONFIG_FILE");
    const char *credentials = stk_environment_get("AWS_SHARED_CREDENTIALS_FILE");
    int status = 0;

    *profiles = (struct stk_aws_profile){0};
    profile = profile ? profile : stk_environment_get("AWS_DEFAULT_PROFILE");
    profile = profile ? profile : stk_environment_get("AWS_PROFILE");
    profiles->named = profile != NULL;
    profile = profile ? profile : "default";
    if (strlen(profile) >= sizeof profiles->name) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the name of a profile is too long",
                        "check AWS_PROFILE", "%zu bytes", strlen(profile));
    }
    memcpy(profiles->name, profile, strlen(profile) + 1);
    if (stk_path_expand_home(config ? config : "~/.aws/config", profiles->config_path,
                             sizeof profiles->config_path)) {
        status = load(&profiles->config, profiles->config_path, error);
    }
    if (status == 0 &&
        stk_path_expand_home(credentials ? credentials : "~/.aws/credentials",
                             profiles->credentials_path, sizeof profiles->credentials_path)) {
        status = load(&profiles->credentials, profiles->credentials_path, error);
    }
    if (status == 0 && profiles->named && !stk_aws_profile_has(profiles, profile)) {
        status = stk_fail(error, STOKER_ERROR_MISSING, "a profile is in no file",
                          "check AWS_PROFILE, AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE",
                          "profile '%s' in '%s' or '%s'", profile, profiles->config_path,
                          profiles->credentials_path);
    }
    if (status < 0) {
        stk_aws_profile_close(profiles);
    }
    return status;
}

void stk_aws_profile_close(struct stk_aws_profile *profiles)
{
    stk_ini_deinit(&profiles->config);
    stk_ini_deinit(&profiles->credentials);
    *profiles = (struct stk_aws_profile){0};
}

bool stk_aws_profile_has(const struct stk_aws_profile *profiles, const char *profile)
{
    return stk_ini_has(&profiles->credentials, profile) ||
           section_of(profiles, "profile", profile) != NULL;
}

const char *stk_aws_profile_get(const struct stk_aws_profile *profiles, const char *profile,
                                const char *name)
{
    const char *value = stk_aws_profile_get_credentials(profiles, profile, name);

    return value ? value : stk_aws_profile_get_config(profiles, profile, name);
}

const char *stk_aws_profile_get_config(const struct stk_aws_profile *profiles, const char *profile,
                                       const char *name)
{
    return stk_aws_profile_section(profiles, "profile", profile, name);
}

const char *stk_aws_profile_get_credentials(const struct stk_aws_profile *profiles,
                                            const char *profile, const char *name)
{
    return stk_ini_get(&profiles->credentials, profile, name);
}

const char *stk_aws_profile_section(const struct stk_aws_profile *profiles, const char *kind,
                                    const char *name, const char *key)
{
    const char *section = section_of(profiles, kind, name);

    return section ? stk_ini_get(&profiles->config, section, key) : NULL;
}

bool stk_aws_profile_has_section(const struct stk_aws_profile *profiles, const char *kind,
                                 const char *name)
{
    return section_of(profiles, kind, name) != NULL;
}

const char *stk_aws_profile_location(const struct stk_aws_profile *profiles, const char *profile,
                                     const char *name, char *text, size_t text_bytes)
{
    const struct stk_ini_entry *entry = stk_ini_find(&profiles->credentials, profile, name);
    const char *path = profiles->credentials_path, *section;

    if (!entry) {
        section = section_of(profiles, "profile", profile);
        entry = section ? stk_ini_find(&profiles->config, section, name) : NULL;
        path = profiles->config_path;
    }
    text[0] = 0;
    if (entry) {
        snprintf(text, text_bytes, "%s:%u", path, entry->line);
    }
    return text;
}

const char *stk_aws_profile_region(const struct stk_aws_profile *profiles)
{
    const char *region = stk_environment_get("AWS_REGION");

    region = region ? region : stk_environment_get("AWS_DEFAULT_REGION");
    region = region ? region : stk_aws_profile_get(profiles, profiles->name, "region");
    return region && region[0] ? region : NULL;
}

const char *stk_aws_profile_region_location(const struct stk_aws_profile *profiles, char *text,
                                            size_t text_bytes)
{
    if (stk_environment_get("AWS_REGION") || stk_environment_get("AWS_DEFAULT_REGION")) {
        snprintf(text, text_bytes, "%s",
                 stk_environment_get("AWS_REGION") ? "AWS_REGION" : "AWS_DEFAULT_REGION");
        return text;
    }
    text[0] = 0;
    return stk_aws_profile_region(profiles)
               ? stk_aws_profile_location(profiles, profiles->name, "region", text, text_bytes)
               : text;
}

const char *stk_environment_get(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] ? value : NULL;
}

bool stk_path_expand_home(const char *path, char *out, size_t out_bytes)
{
    const char *home = "";

    if (path[0] == '~' && (path[1] == '/' || path[1] == 0)) {
        home = stk_environment_get("HOME");
        path++;
    }
    return home && (size_t)snprintf(out, out_bytes, "%s%s", home, path) < out_bytes;
}

static int load(struct stk_ini *ini, const char *path, struct stoker_error *error)
{
    char *text = stk_secret_alloc(STK_INI_BYTES_MAX + 2);
    int64_t bytes = text ? stk_small_file_read(path, (uint8_t *)text, STK_INI_BYTES_MAX + 1) : 0;
    int status = 0;

    if (!text) {
        return stk_fail_errno(error, ENOMEM, "cannot read a configuration file", "free memory",
                              "'%s'", path);
    }
    if (bytes > 0) { /* a file that cannot be read is empty, as botocore has it */
        status = stk_ini_parse(ini, (struct stk_view){(uint8_t *)text, (size_t)bytes}, error);
        if (status < 0 && error) {
            size_t used = strlen(error->where);
            snprintf(error->where + used, sizeof error->where - used, " of '%s'", path);
        }
    }
    stk_secret_free(text);
    return status;
}

/* Returns the last section of that kind and name, with its original text. */
static const char *section_of(const struct stk_aws_profile *profiles, const char *kind,
                              const char *name)
{
    const char *found = NULL;

    for (size_t i = 0; i < profiles->config.count; i++) {
        const struct stk_ini_entry *entry = &profiles->config.entries[i];
        if (!entry->name && is_section(entry->section, kind, name)) {
            found = entry->section;
        }
    }
    return found;
}

/* "profile name", "profile 'na me'"; and "default" alone. */
static bool is_section(const char *section, const char *kind, const char *name)
{
    size_t bytes = strlen(kind), name_bytes = strlen(name);

    if (strcmp(kind, "profile") == 0 && strcmp(name, "default") == 0 &&
        strcmp(section, "default") == 0) {
        return true;
    }
    if (strncmp(section, kind, bytes) != 0 || !isspace((unsigned char)section[bytes])) {
        return false;
    }
    section += bytes;
    section += strspn(section, " \t");
    if (section[0] == '"' || section[0] == '\'') {
        return strncmp(section + 1, name, name_bytes) == 0 &&
               section[name_bytes + 1] == section[0] &&
               section[name_bytes + 2 + strspn(section + name_bytes + 2, " \t")] == 0;
    }
    return strncmp(section, name, name_bytes) == 0 &&
           section[name_bytes + strspn(section + name_bytes, " \t")] == 0;
}
