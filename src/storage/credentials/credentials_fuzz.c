/* Fuzz target of the sources of credentials, without a network: the first byte selects the source,
 * the rest is the file, the variable or the command line. Credentials that are found are complete
 * and have one line; otherwise there is an error. */
#include "storage/credentials/credentials.h"

#include "base/mem.h"
#include "storage/credentials/credential_chain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const struct {
    uint32_t service;
    const char *variable;
    bool file;
    const char *also; /* "NAME=value" */
} places[] = {
    {STK_CREDS_GOOGLE, "GOOGLE_APPLICATION_CREDENTIALS", true, NULL},
    {STK_CREDS_AWS, "AWS_SHARED_CREDENTIALS_FILE", true, NULL},
    {STK_CREDS_AWS, "AWS_CONFIG_FILE", true, NULL},
    {STK_CREDS_AWS, "AWS_WEB_IDENTITY_TOKEN_FILE", true, "AWS_ROLE_ARN=r"},
    {STK_CREDS_AWS, "AWS_CONTAINER_CREDENTIALS_FULL_URI", false, NULL},
    {STK_CREDS_AWS, "AWS_CREDENTIAL_EXPIRATION", false, "AWS_ACCESS_KEY_ID=a"},
    {STK_CREDS_AZURE, "AZURE_STORAGE_CONNECTION_STRING", false, NULL},
    {STK_CREDS_AZURE, "AZURE_STORAGE_SAS_TOKEN", false, NULL},
    {STK_CREDS_HF, "HF_TOKEN_PATH", true, NULL},
    {STK_CREDS_HF, "HF_TOKEN", false, NULL},
};

/* A program that an untrusted file names must not be run here. */
static bool names_program(const uint8_t *data, size_t bytes)
{
    static const char name[] = "process";

    for (size_t at = 0; at + sizeof name - 1 <= bytes; at++) {
        if (strncasecmp((const char *)data + at, name, sizeof name - 1) == 0) {
            return true;
        }
    }
    return false;
}

static void split(const char *text)
{
    char *copy = stk_alloc(strlen(text) + 1, 1), *words[9];
    int count = stk_credential_process_split(text, copy, words, 8);

    STK_ASSERT(count >= -1 && count <= 8 && (count < 0 || !words[count]));
    for (int i = 0; i < count; i++) {
        STK_ASSERT(words[i] >= copy && words[i] + strlen(words[i]) <= copy + strlen(text));
    }
    stk_free(copy);
}

static void look(uint32_t service)
{
    static struct stk_credential_trace trail;
    static struct stk_credentials found;
    struct stk_credential_options options = {.service = service};
    struct stoker_error error = {0};
    int status = stk_credential_provider_explain(&options, &trail, &found, &error);

    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
        STK_ASSERT(!found.secret[0] && !found.token[0]);
        return;
    }
    STK_ASSERT(found.kind != 0 && found.source[0]);
    STK_ASSERT(!strpbrk(found.access_key, "\r\n") && !strpbrk(found.secret, "\r\n"));
    STK_ASSERT(!strpbrk(found.token, "\r\n"));
    STK_ASSERT(found.kind != STK_CREDS_KEYS || (found.access_key[0] && found.secret[0]));
    STK_ASSERT(found.kind == STK_CREDS_KEYS || found.kind == STK_CREDS_ANONYMOUS || found.token[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    size_t row = bytes ? data[0] % STK_COUNT(places) : 0;
    char path[64], name[64], *text = stk_alloc(bytes + 1, 1);
    const char *also = places[row].also;

    if (bytes == 0 || !text ||
        (places[row].service == STK_CREDS_AWS && names_program(data, bytes))) {
        stk_free(text);
        return 0;
    }
    memcpy(text, data + 1, bytes - 1);
    split(text);
    clearenv();
    setenv("HOME", "/nonexistent", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("NO_GCE_CHECK", "true", 1);
    if (also) {
        snprintf(name, sizeof name, "%.*s", (int)strcspn(also, "="), also);
        setenv(name, strchr(also, '=') + 1, 1);
    }
    if (places[row].file) {
        int fd = memfd_create("creds", MFD_CLOEXEC);
        STK_ASSERT(fd >= 0 && write(fd, data + 1, bytes - 1) == (ssize_t)bytes - 1);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        setenv(places[row].variable, path, 1);
        look(places[row].service);
        close(fd);
    } else {
        setenv(places[row].variable, text, 1);
        look(places[row].service);
    }
    clearenv();
    explicit_bzero(text, bytes + 1);
    stk_free(text);
    return 0;
}
