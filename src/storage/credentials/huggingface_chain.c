/* Hugging Face: the sources of huggingface_hub's token, in its order. */
#include "storage/credentials/credential_chain.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PATH_BYTES 4096u

static stk_credential_lookup from_environment, from_file;

const struct stk_credential_source stk_credential_chain_huggingface[] = {
    {"env", from_environment},
    {"token-file", from_file},
};
const size_t stk_credential_chain_huggingface_count = STK_COUNT(stk_credential_chain_huggingface);

/* As in huggingface_hub: if this variable is set, a token that the user did not name is not
 * sent. */
static bool is_off(struct stk_credential_chain *search)
{
    const char *off = stk_environment_get("HF_HUB_DISABLE_IMPLICIT_TOKEN");

    if (off && (strcmp(off, "1") == 0 || strcasecmp(off, "true") == 0 ||
                strcasecmp(off, "yes") == 0 || strcasecmp(off, "on") == 0)) {
        stk_credential_chain_log(search, "HF_HUB_DISABLE_IMPLICIT_TOKEN is set");
        return true;
    }
    return false;
}

static int from_environment(struct stk_credential_chain *search, struct stk_credentials *found,
                            struct stoker_error *error)
{
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};

    if (is_off(search)) {
        return 0;
    }
    for (size_t i = 0; i < STK_COUNT(names); i++) {
        const char *token = stk_environment_get(names[i]);
        if (token) {
            int status = stk_credential_chain_copy_text(token, found->token, sizeof found->token,
                                                        names[i], error);
            found->kind = STK_CREDS_BEARER;
            snprintf(found->source, sizeof found->source, "environment variable %s", names[i]);
            return status < 0 ? status : 1;
        }
    }
    stk_credential_chain_log(search, "HF_TOKEN is not set");
    return 0;
}

/* The file that `hf auth login` writes. */
static int from_file(struct stk_credential_chain *search, struct stk_credentials *found,
                     struct stoker_error *error)
{
    const char *named = stk_environment_get("HF_TOKEN_PATH"),
               *home = stk_environment_get("HF_HOME");
    const char *cache = stk_environment_get("XDG_CACHE_HOME");
    char wanted[PATH_BYTES], path[PATH_BYTES], first[2];
    int status, bytes;

    if (is_off(search)) {
        return 0;
    }
    bytes = snprintf(wanted, sizeof wanted, "%s%s%s",
                     named   ? named
                     : home  ? home
                     : cache ? cache
                             : "~/.cache",
                     named || home ? "" : "/huggingface", named ? "" : "/token");
    if (bytes >= (int)sizeof wanted || !stk_path_expand_home(wanted, path, sizeof path) ||
        stk_credential_chain_read_file(path, first, sizeof first, "", NULL) ==
            STOKER_ERROR_MISSING) {
        stk_credential_chain_log(search, "there is no '%.500s'", wanted);
        return 0;
    }
    status = stk_credential_chain_read_file(path, found->token, sizeof found->token,
                                            "Hugging Face's token", error);
    if (status == 0 && strpbrk(found->token, "\r\n")) {
        status = stk_fail(error, STOKER_ERROR_FORMAT, "a file of a token has several lines",
                          "log in again by 'hf auth login'", "'%.500s'", path);
    }
    found->kind = STK_CREDS_BEARER;
    snprintf(found->source, sizeof found->source, "'%.480s'", path);
    return status < 0 ? status : 1;
}
