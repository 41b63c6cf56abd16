/* Goal: the report for a URL names the credentials that would be used, each source of the chain
 * says why it is skipped, and no secret is in any of it.
 * Method: rows of variables and URLs, each secret value with a canary in it; all output is searched
 * for it (credentials_explain.c). */
#include "base/base.h"
#include "base/mem.h"
#include "test/t.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CANARY "canary0secret0value"
#define SETTINGS_MAX 4
#define ACCOUNT "123456789012"

static char folder[] = "/tmp/stoker-explain-XXXXXX", config[64];

/* clang-format off */
static const struct row {
    const char *name, *url;
    const char *settings[SETTINGS_MAX]; /* "NAME=value" */
    int status;
    const char *service, *kind, *from, *endpoint;
    uint32_t used; /* the step, from 1; 0: none */
    uint32_t count;
    const char *says, *region; /* NULL: any; a part of the source's name */
} rows[] = {
    {"nothing", "s3://bucket/key", {NULL}, 0, "S3", "anonymous", "no credentials",
     "https://bucket.s3.amazonaws.com", 0, 9, "the service's own", "us-east-1"},
    {"keys", "s3://bucket/key",
     {"AWS_ACCESS_KEY_ID=AKIDEXAMPLE1234", "AWS_SECRET_ACCESS_KEY=" CANARY,
      "AWS_SESSION_TOKEN=t" CANARY, "AWS_REGION=eu-west-3"},
     0, "S3", "keys", "AWS_ACCESS_KEY_ID", "https://bucket.s3.eu-west-3.amazonaws.com", 1, 9, NULL,
     "eu-west-3"},
    {"half of them", "s3://bucket/key", {"AWS_ACCESS_KEY_ID=" CANARY}, STOKER_ERROR_MISSING, "S3",
     "none", "", "https://bucket.s3.amazonaws.com", 0, 9, NULL, NULL},
    {"unsigned", "s3://bucket/key",
     {"AWS_NO_SIGN_REQUEST=YES", "AWS_ACCESS_KEY_ID=AK", "AWS_SECRET_ACCESS_KEY=" CANARY}, 0, "S3",
     "anonymous", "requested", "https://bucket.s3.amazonaws.com", 0, 0, NULL,
     NULL},
    {"a server of one's own", "s3://bucket/key", {"AWS_ENDPOINT_URL=http://127.0.0.1:9000"}, 0,
     "S3", "anonymous", "", "http://127.0.0.1:9000", 0, 9, NULL, NULL},
    {"a bad endpoint", "s3://bucket/key", {"AWS_ENDPOINT_URL=http://u:" CANARY "@h"},
     STOKER_ERROR_ARGUMENT, "S3", "none", "", "", 0, 0, NULL, NULL},
    {"S3 Express", "s3://x--usw2-az1--x-s3/key", {"AWS_REGION=eu-west-3"}, 0, "S3", "anonymous", "",
     "https://x--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com", 0, 9, "zone",
     "us-west-2"},
    {"S3 Express, zone unknown", "s3://x--xyz-az1--x-s3", {NULL}, 0, "S3", "anonymous", "",
     "", 0, 9, "is unknown: set AWS_REGION", NULL},
    {"S3 Express, by the region that is set", "s3://x--xyz-az1--x-s3/key",
     {"AWS_REGION=eu-west-3", "AWS_USE_FIPS_ENDPOINT=true"}, 0, "S3", "anonymous", "",
     "https://x--xyz-az1--x-s3.s3express-fips-xyz-az1.eu-west-3.amazonaws.com", 0, 9, NULL, NULL},
    {"S3 Express, one's own", "s3://x--usw2-az1--x-s3/key",
     {"AWS_ENDPOINT_URL=http://127.0.0.1:9000"}, 0, "S3", "anonymous", "", "http://127.0.0.1:9000",
     0, 9, "AWS_ENDPOINT_URL", "us-west-2"},
    {"S3 Express, one's own, and a region", "s3://x--usw2-az1--x-s3/key",
     {"AWS_ENDPOINT_URL=http://127.0.0.1:9000", "AWS_REGION=here"}, 0, "S3", "anonymous", "",
     "http://127.0.0.1:9000", 0, 9, "AWS_ENDPOINT_URL", "here"},
    {"one's own, by a path", "s3://bucket/key", {"AWS_ENDPOINT_URL=http://host:9000/a/"}, 0, "S3",
     "anonymous", "", "http://host:9000/a", 0, 9, "AWS_ENDPOINT_URL", NULL},
    {"one's own, virtual", "s3://bucket/key",
     {"AWS_ENDPOINT_URL=http://host:9000/a", "AWS_PROFILE=virtual"}, 0, "S3", "anonymous", "",
     "http://bucket.host:9000/a", 0, 9, "AWS_ENDPOINT_URL", NULL},
    {"a dot", "s3://my.bucket/key", {NULL}, 0, "S3", "anonymous", "", "https://s3.amazonaws.com", 0,
     9, NULL, NULL},
    {"accelerate", "s3://bucket/key", {"AWS_PROFILE=fast"}, 0, "S3", "anonymous", "",
     "https://bucket.s3-accelerate.amazonaws.com", 0, 9, "the service's own", NULL},
    {"accelerate, and a dot", "s3://my.bucket/key", {"AWS_PROFILE=fast"}, 0, "S3", "anonymous", "",
     "", 0, 9, "not known to S3 Accelerate: take out", NULL},
    {"accelerate, and one's own", "s3://bucket/key",
     {"AWS_PROFILE=fast", "AWS_ENDPOINT_URL=http://127.0.0.1:9000"}, 0, "S3", "anonymous", "", "",
     0, 9, "S3 Accelerate cannot be combined", NULL},
    {"an access point", "s3://arn:aws:s3:eu-west-1:" ACCOUNT ":accesspoint/p/key",
     {"AWS_REGION=us-west-2"}, 0, "S3", "anonymous", "",
     "https://p-" ACCOUNT ".s3-accesspoint.eu-west-1.amazonaws.com", 0, 9, NULL, "eu-west-1"},
    {"an outpost's, one's own",
     "s3://arn:aws:s3-outposts:eu-west-1:" ACCOUNT ":outpost/op-1/accesspoint/p/key",
     {"AWS_REGION=us-west-2", "AWS_ENDPOINT_URL=https://host/a"}, 0, "S3", "anonymous", "",
     "https://p-" ACCOUNT ".op-1.host", 0, 9, "AWS_ENDPOINT_URL", "eu-west-1"},
    {"an access point of several regions", "s3://arn:aws:s3::" ACCOUNT ":accesspoint/p.mrap/key",
     {NULL}, 0, "S3", "anonymous", "", "", 0, 9, "several regions are not supported", NULL},
    {"no access point", "s3://arn:aws:s3:::bucket/key", {NULL}, 0, "S3", "anonymous", "", "", 0, 9,
     "no access point", NULL},
    {"China, both stacks", "s3://bucket/key",
     {"AWS_REGION=cn-north-1", "AWS_USE_DUALSTACK_ENDPOINT=true"}, 0, "S3", "anonymous", "",
     "https://bucket.s3.dualstack.cn-north-1.amazonaws.com.cn", 0, 9, NULL, NULL},
    {"another cloud of Amazon", "s3://bucket/key", {"AWS_REGION=us-isob-east-1"}, 0, "S3",
     "anonymous", "", "https://bucket.s3.us-isob-east-1.sc2s.sgov.gov", 0, 9, NULL, NULL},
    {"HMAC", "gs://bucket/key", {"GS_ACCESS_KEY_ID=GOOG1E", "GS_SECRET_ACCESS_KEY=" CANARY}, 0,
     "Google Cloud Storage", "keys", "GS_ACCESS_KEY_ID", "https://storage.googleapis.com", 1, 4,
     NULL, NULL},
    {"SAS", "az://c/b", {"AZURE_STORAGE_ACCOUNT=acc", "AZURE_STORAGE_SAS_TOKEN=sv=1&sig=" CANARY},
     0, "Azure Blob Storage", "SAS", "AZURE_STORAGE_SAS_TOKEN",
     "https://acc.blob.core.windows.net", 3, 6, NULL, NULL},
    {"a connection string", "az://c/b",
     {"AZURE_STORAGE_CONNECTION_STRING=AccountName=acc;AccountKey=" CANARY}, 0,
     "Azure Blob Storage", "keys", "AZURE_STORAGE_CONNECTION_STRING",
     "https://acc.blob.core.windows.net", 1, 6, NULL, NULL},
    {"an expired SAS", "az://c/b",
     {"AZURE_STORAGE_ACCOUNT=acc",
      "AZURE_STORAGE_SAS_TOKEN=sv=1&se=2020-01-01T00%3A00%3A00Z&sig=" CANARY},
     -EACCES, "Azure Blob Storage", "SAS", "AZURE_STORAGE_SAS_TOKEN",
     "https://acc.blob.core.windows.net", 0, 6, NULL, NULL},
    {"expired keys", "s3://bucket/k",
     {"AWS_ACCESS_KEY_ID=AKID", "AWS_SECRET_ACCESS_KEY=" CANARY,
      "AWS_CREDENTIAL_EXPIRATION=2020-01-01T00:00:00Z"},
     -EACCES, "S3", "keys", "AWS_ACCESS_KEY_ID", "https://bucket.s3.amazonaws.com", 0, 9, NULL,
     NULL},
    {"a token", "hf://datasets/a/b", {"HF_TOKEN=hf_" CANARY}, 0, "Hugging Face", "bearer token",
     "HF_TOKEN", "https://huggingface.co", 1, 2, NULL, NULL},
    {"the web", "https://u:" CANARY "@host:1/p?sig=" CANARY, {NULL}, 0, "", "none", "",
     "https://host:1", 0, 0, NULL, NULL},
    {"something else", "ftp://u:" CANARY "@host/p", {NULL}, STOKER_ERROR_ARGUMENT, "", "none",
     "", "", 0, 0, NULL, NULL},
};
/* clang-format on */

static void check(const struct row *row)
{
    static struct stoker_creds explained;
    struct stoker_error error = {0};
    int status;

    clearenv();
    setenv("HOME", folder, 1);
    setenv("AWS_CONFIG_FILE", config, 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    setenv("NO_GCE_CHECK", "true", 1);
    for (size_t i = 0; i < SETTINGS_MAX && row->settings[i]; i++) {
        char text[512], *value;
        snprintf(text, sizeof text, "%s", row->settings[i]);
        value = strchr(text, '=');
        *value = 0;
        setenv(text, value + 1, 1);
    }
    explained.struct_size = sizeof explained;
    status = stoker_creds_explain(row->url, &explained, &error);
    T_EQ(row->name, status, row->status);
    if (status < 0) {
        T_ERROR(row->name, &error);
    }
    T_TRUE(row->name, !memmem(&explained, sizeof explained, CANARY, strlen(CANARY)));
    T_TRUE(row->name, !memmem(&error, sizeof error, CANARY, strlen(CANARY)));
    T_STR(row->name, explained.service, row->service);
    T_STR(row->name, explained.kind, row->kind);
    T_HAS(row->name, explained.from, row->from);
    T_STR(row->name, explained.endpoint, row->endpoint);
    T_HAS(row->name, explained.endpoint_from, row->says ? row->says : "");
    T_STR(row->name, explained.region, row->region ? row->region : explained.region);
    T_EQ(row->name, explained.step_count, row->count);
    for (uint32_t i = 0; i < explained.step_count; i++) {
        uint32_t verdict = explained.steps[i].verdict;
        T_EQ(row->name, verdict == STOKER_CREDS_USED, i + 1 == row->used);
        T_TRUE(row->name, explained.steps[i].source[0] && verdict != 0);
        T_TRUE(row->name, explained.steps[i].reason[0] || verdict == STOKER_CREDS_NOT_TRIED);
        T_TRUE(row->name, row->used == 0 || i < row->used || verdict == STOKER_CREDS_NOT_TRIED);
    }
}

/* Settings that no variable has. */
static void write_config(void)
{
    FILE *file;

    snprintf(config, sizeof config, "%s/config", folder);
    file = fopen(config, "w");
    T_TRUE("config", file &&
                         fputs("[profile fast]\ns3 =\n  use_accelerate_endpoint = true\n"
                               "[profile virtual]\ns3 =\n  addressing_style = virtual\n",
                               file) >= 0 &&
                         fclose(file) == 0);
}

static void test_misuse(void)
{
    static struct stoker_creds explained;
    struct stoker_error error = {0};

    explained.struct_size = 8;
    T_EQ("size", stoker_creds_explain("s3://b/k", &explained, &error), STOKER_ERROR_ARGUMENT);
    T_EQ("NULL", stoker_creds_explain("s3://b/k", NULL, &error), STOKER_ERROR_ARGUMENT);
    T_EQ("no URL", stoker_creds_explain(NULL, &explained, &error), STOKER_ERROR_ARGUMENT);
}

int main(void)
{
    T_TRUE("folder", mkdtemp(folder) != NULL);
    write_config();
    T_EACH(row, row, rows)
    {
        check(row);
    }
    test_misuse();
    unlink(config);
    rmdir(folder);
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
