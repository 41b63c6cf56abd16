/* The environment variables by which credentials and endpoints are chosen. */
#include "storage/config/config_digest.h"

#include "base/base.h"

#include <stdlib.h>
#include <string.h>

void stk_config_digest_add(struct stk_sha256 *sha)
{
    static const char *const names[] = {"HOME",
                                        "AWS_ENDPOINT_URL",
                                        "AWS_ENDPOINT_URL_S3",
                                        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                        "AWS_CONFIG_FILE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_PROFILE",
                                        "AWS_DEFAULT_PROFILE",
                                        "AWS_ACCESS_KEY_ID",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_NO_SIGN_REQUEST",
                                        "AWS_REQUEST_PAYER",
                                        "AWS_ROLE_ARN",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                        "AWS_EC2_METADATA_DISABLED",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                                        "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
                                        "STORAGE_EMULATOR_HOST",
                                        "GOOGLE_APPLICATION_CREDENTIALS",
                                        "GS_ACCESS_KEY_ID",
                                        "GS_NO_SIGN_REQUEST",
                                        "GS_USER_PROJECT",
                                        "CLOUDSDK_CONFIG",
                                        "GCE_METADATA_HOST",
                                        "NO_GCE_CHECK",
                                        "AZURE_STORAGE_CONNECTION_STRING",
                                        "AZURE_STORAGE_ACCOUNT",
                                        "AZURE_STORAGE_ACCOUNT_NAME",
                                        "AZURE_STORAGE_ENDPOINT",
                                        "AZURE_STORAGE_KEY",
                                        "AZURE_STORAGE_SAS_TOKEN",
                                        "AZURE_NO_SIGN_REQUEST",
                                        "AZURE_AUTHORITY_HOST",
                                        "AZURE_TENANT_ID",
                                        "AZURE_CLIENT_ID",
                                        "AZURE_CLIENT_SECRET",
                                        "AZURE_FEDERATED_TOKEN_FILE",
                                        "IDENTITY_ENDPOINT",
                                        "AZURE_POD_IDENTITY_AUTHORITY_HOST",
                                        "HF_ENDPOINT",
                                        "HF_TOKEN",
                                        "HUGGING_FACE_HUB_TOKEN",
                                        "HF_TOKEN_PATH",
                                        "HF_HOME",
                                        "HF_HUB_DISABLE_IMPLICIT_TOKEN",
                                        "XDG_CACHE_HOME"};

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        const char *value = getenv(names[i]);

        stk_sha256_add(sha, value ? value : "", value ? strlen(value) + 1 : 0);
        stk_sha256_add(sha, "\n", 1);
    }
}
