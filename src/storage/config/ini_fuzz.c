/* Fuzz target of ini.c: any text. Accepted names and values can be looked up. Also of
 * s3_settings.c, with the text as the configuration file of the profile "default". */
#include "storage/config/s3_settings.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Takes *ini. */
static void read_settings(struct stk_ini *ini)
{
    struct stk_aws_profile profiles = {.config = *ini, .config_path = "f", .name = "default"};
    struct stk_s3_settings settings;
    struct stk_service_endpoint endpoint;
    struct stoker_error error = {0};

    if (stk_s3_settings_read(&profiles, &settings, &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
    } else {
        STK_ASSERT(settings.attempts_max <= 100 && settings.fips <= STK_FLAG_YES);
        STK_ASSERT(settings.addressing <= STK_S3_ADDRESSING_VIRTUAL);
    }
    if (stk_s3_settings_endpoint(&profiles, "s3", &endpoint, &error) > 0) {
        STK_ASSERT(endpoint.url[0] && endpoint.source[0]);
    }
    stk_aws_profile_close(&profiles);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_ini ini;
    struct stoker_error error = {0};
    char out[64];

    if (stk_ini_parse(&ini, (struct stk_view){data, bytes}, &error) < 0) {
        STK_ASSERT(error.status < 0 && error.what[0] && error.where[0] && error.advice[0]);
        STK_ASSERT(!ini.text && !ini.entries);
        return 0;
    }
    for (size_t i = 0; i < ini.count; i++) {
        const struct stk_ini_entry *entry = &ini.entries[i];
        STK_ASSERT(stk_ini_has(&ini, entry->section));
        if (entry->name) {
            STK_ASSERT(entry->name[0]);
            STK_ASSERT(stk_ini_get(&ini, entry->section, entry->name) == entry->value);
            stk_ini_get_nested(entry->value, "region", out, sizeof out);
        }
    }
    read_settings(&ini);
    return 0;
}
