/* The location of this machine, from the metadata service of its cloud. */
#include "tools/inspect/location.h"

#include "base/mem.h"
#include "io/clock.h"
#include "storage/credentials/credential_chain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define AWS_MS 1000u
#define GOOGLE_MS 1000u
#define GOOGLE_METADATA "metadata.google.internal"

/* Whether a name of a region or zone can be one. */
static bool is_name(const char *name, size_t bytes_max)
{
    size_t bytes = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return bytes > 0 && bytes < bytes_max && name[bytes] == '\0';
}

static bool ask_ec2(struct stk_credential_chain *search, const struct stk_ec2_metadata *service,
                    const char *path, const char *token, char name[64])
{
    struct stk_auth_request *auth = stk_ec2_metadata_request(STK_HTTP_GET, service, path, token);
    bool has_answer;

    if (auth) {
        auth->tries = 1;
    }
    has_answer = auth &&
                 stk_auth_request_send(search, auth, "the instance's metadata", NULL) == 0 &&
                 auth->code == 200 && is_name(auth->text, 64);
    if (has_answer) {
        memcpy(name, auth->text, strlen(auth->text) + 1);
    }
    stk_auth_request_close(auth);
    return has_answer;
}

static int find_aws(struct stk_credential_chain *search, struct stk_machine_location *where)
{
    struct stk_ec2_metadata service;
    struct stk_auth_request *token;
    int status = 0;

    if (stk_ec2_metadata_find(search, &service, NULL) <= 0) {
        snprintf(where->source, sizeof where->source,
                 "AWS_EC2_METADATA_DISABLED is true, or a setting of the metadata is no number");
        return 0;
    }
    service.timeout_ms = AWS_MS; /* the caller does not need the answer */
    service.tries = 1;
    token = stk_ec2_metadata_request(STK_HTTP_PUT, &service, "/latest/api/token", NULL);
    if (!token || stk_auth_request_send(search, token, "the instance's metadata", NULL) < 0) {
        status = -ENOENT;
    } else if (token->code == 200 && !strpbrk(token->text, "\r\n") &&
               token->text_bytes < STK_CREDS_KEY_BYTES_MAX &&
               ask_ec2(search, &service, "/latest/meta-data/placement/region", token->text,
                       where->region)) {
        (void)ask_ec2(search, &service, "/latest/meta-data/placement/availability-zone-id",
                      token->text, where->zone);
        where->cloud = "Amazon";
        status = 1;
    }
    snprintf(where->source, sizeof where->source, "%s %.200s",
             status > 0 ? "the instance's metadata, by" : "no metadata of an instance at",
             service.base);
    stk_auth_request_close(token);
    return status;
}

static int find_google(struct stk_credential_chain *search, struct stk_machine_location *where)
{
    const char *host = stk_environment_get("GCE_METADATA_HOST"),
               *off = stk_environment_get("NO_GCE_CHECK");
    const char *zone, *end;
    struct stk_auth_request *auth;

    if (off && strcasecmp(off, "true") == 0) {
        return 0;
    }
    auth = stk_auth_request_open(STK_HTTP_GET);
    if (!auth) {
        return -ENOMEM;
    }
    host = host ? host : GOOGLE_METADATA;
    stk_auth_request_set_url(auth, "http://%.256s/computeMetadata/v1/instance/zone", host);
    auth->direct = true;
    auth->tries = 1;
    auth->total_ms = auth->connect_ms = GOOGLE_MS;
    stk_auth_request_add_header(auth, "Metadata-Flavor", "Google");
    if (stk_auth_request_send(search, auth, "the metadata server", NULL) == 0 &&
        auth->code == 200 && auth->google) {
        zone = strrchr(auth->text, '/'); /* "projects/123/zones/us-central1-a" */
        zone = zone ? zone + 1 : auth->text;
        end = strrchr(zone, '-');
        if (end && end > zone && is_name(zone, sizeof where->zone)) {
            snprintf(where->zone, sizeof where->zone, "%s", zone);
            snprintf(where->region, sizeof where->region, "%.*s", (int)(end - zone), zone);
            snprintf(where->source, sizeof where->source, "the metadata server %.200s", host);
            where->cloud = "Google";
        }
    }
    stk_auth_request_close(auth);
    return where->cloud[0] ? 1 : 0;
}

/* The address of Amazon's metadata service is the same in all clouds. So if there is no response
 * from it, Google's is queried only if GCE_METADATA_HOST is set. */
void stk_machine_location_find(struct stk_http *http, struct stk_machine_location *where)
{
    struct stk_credential_options options = {.service = STK_CREDS_AWS, .http = http};
    struct stk_credential_chain *search = stk_alloc(1, sizeof *search);
    int status;

    *where = (struct stk_machine_location){.cloud = ""};
    if (!search || stk_aws_profile_open(&search->profiles, NULL, NULL) < 0) {
        snprintf(where->source, sizeof where->source, "the files of profiles cannot be read");
        stk_free(search);
        return;
    }
    search->options = &options;
    search->until_ns = stk_clock_ns() + STK_CREDENTIAL_CHAIN_TOTAL_MS * UINT64_C(1000000);
    status = find_aws(search, where);
    if (status == 0 || (status < 0 && stk_environment_get("GCE_METADATA_HOST"))) {
        (void)find_google(search, where);
    }
    stk_aws_profile_close(&search->profiles);
    stk_free(search);
}
