/* One file for each session; its name is the SHA-1 of the session's name. */
#include "storage/config/sso_cache.h"

#include "base/crypto/digest.h"
#include "base/crypto/secret_memory.h"
#include "io/small_file.h"
#include "storage/config/auth_response.h"
#include "storage/config/aws_profile.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static bool time_text(uint64_t seconds, char text[64]);

struct stk_sso_token *stk_sso_token_open(void)
{
    return stk_secret_calloc(1, sizeof(struct stk_sso_token));
}

void stk_sso_token_close(struct stk_sso_token *token)
{
    stk_secret_free(token);
}

int stk_sso_token_load(const char *name, struct stk_sso_token *token, struct stoker_error *error)
{
    const struct stk_auth_field fields[] = {
        {"accessToken", STK_AUTH_FIELD_TEXT, token->access, sizeof token->access},
        {"expiresAt", STK_AUTH_FIELD_TIME, &token->expires_s, 0},
        {"refreshToken", STK_AUTH_FIELD_OPTIONAL_TEXT, token->refresh, sizeof token->refresh},
        {"clientId", STK_AUTH_FIELD_OPTIONAL_TEXT, token->client_id, sizeof token->client_id},
        {"clientSecret", STK_AUTH_FIELD_OPTIONAL_TEXT, token->client_secret,
         sizeof token->client_secret},
        {"registrationExpiresAt", STK_AUTH_FIELD_TIME, &token->registration_expires_s, 0},
        {"startUrl", STK_AUTH_FIELD_OPTIONAL_TEXT, token->start_url, sizeof token->start_url},
        {"region", STK_AUTH_FIELD_OPTIONAL_TEXT, token->region, sizeof token->region},
    };
    char *text = stk_secret_alloc(STK_AUTH_RESPONSE_BYTES_MAX);
    uint8_t digest[20];
    char hex[2 * sizeof digest + 1];
    int status;

    *token = (struct stk_sso_token){.expires_s = 0};
    EVP_Digest(name, strlen(name), digest, NULL, EVP_sha1(), NULL);
    stk_hex(digest, sizeof digest, hex);
    snprintf(token->shown, sizeof token->shown, "~/.aws/sso/cache/%s.json", hex);
    if (!text) {
        return stk_fail_errno(error, ENOMEM, "cannot read SSO's token", "free memory", "'%s'",
                              token->shown);
    }
    if (!stk_path_expand_home(token->shown, token->path, sizeof token->path) ||
        !stk_small_file_read_text(token->path, text, STK_AUTH_RESPONSE_BYTES_MAX)) {
        status = stk_fail(error, STOKER_ERROR_MISSING, "there is no token of SSO",
                          "run 'aws sso login'", "'%s'", token->shown);
    } else {
        status = stk_auth_response_json((struct stk_view){(uint8_t *)text, strlen(text)}, fields,
                                        STK_COUNT(fields), "SSO's cached token", error);
    }
    stk_secret_free(text);
    return status;
}

int stk_sso_token_save(const struct stk_sso_token *token)
{
    char expires[64], registration_expires[64];
    const char *const members[][2] = {{"{\"startUrl\": ", token->start_url},
                                      {", \"region\": ", token->region},
                                      {", \"accessToken\": ", token->access},
                                      {", \"expiresAt\": ", expires},
                                      {", \"clientId\": ", token->client_id},
                                      {", \"clientSecret\": ", token->client_secret},
                                      {", \"registrationExpiresAt\": ", registration_expires},
                                      {", \"refreshToken\": ", token->refresh},
                                      {"}", NULL}};
    char *text = stk_secret_alloc(STK_AUTH_RESPONSE_BYTES_MAX);
    size_t used = 0;
    bool fits = time_text(token->expires_s, expires) &&
                time_text(token->registration_expires_s, registration_expires);
    int status = -ENOMEM;

    if (!text) {
        return status;
    }
    for (size_t i = 0; fits && i < STK_COUNT(members); i++) {
        fits = stk_auth_json_add_member(members[i][0], members[i][1], text,
                                        STK_AUTH_RESPONSE_BYTES_MAX, &used);
    }
    if (fits) {
        status = stk_small_file_write(token->path, text, used);
    }
    stk_secret_free(text);
    return status;
}

static bool time_text(uint64_t seconds, char text[64])
{
    time_t time = (time_t)seconds;
    struct tm parts;

    return gmtime_r(&time, &parts) && strftime(text, 64, "%Y-%m-%dT%H:%M:%SZ", &parts) > 0;
}
