/* Finds the locations of a bucket and of this machine. */
#include "tools/inspect/location.h"

#include "base/options.h"
#include "engine/engine.h"
#include "storage/credentials/credentials.h"
#include "storage/http/http.h"
#include "storage/object/store.h"
#include "storage/provider/endpoint.h"
#include "storage/vfs/vfs.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Whether a configured endpoint is one of Amazon's hosts. */
static bool is_aws_endpoint(const char *endpoint)
{
    const char *host = strstr(endpoint, "://"), *end;
    size_t bytes;

    if (!host) {
        return endpoint[0] == '\0';
    }
    host += 3;
    bytes = strcspn(host, ":/");
    end =
        bytes > 3 && strncasecmp(host + bytes - 3, ".cn", 3) == 0 ? host + bytes - 3 : host + bytes;
    return end - host > 14 && strncasecmp(end - 14, ".amazonaws.com", 14) == 0;
}

/* Finds the service of a bucket; "": its location is unknown, and bucket_from has the reason. */
static int find_service(const struct stk_object_url *object, struct stoker_location *where,
                        struct stoker_error *error)
{
    bool google = object->kind == STK_OBJECT_URL_GCS;
    struct stk_endpoint site = {.account = ""};
    int status = 0;

    where->service = "";
    if (!google && object->kind != STK_OBJECT_URL_S3) {
        snprintf(where->bucket_from, sizeof where->bucket_from,
                 "this kind of store has no location");
        return 0;
    }
    status = stk_endpoint_find(google ? STK_CREDS_GOOGLE : STK_CREDS_AWS, &site, error);
    if (status == 0 &&
        (google ? site.endpoint_source[0] == '\0' : is_aws_endpoint(site.endpoint))) {
        where->service = google ? "Google Cloud Storage" : object->zone ? "S3 Express" : "S3";
    } else if (status == 0) {
        snprintf(where->bucket_from, sizeof where->bucket_from, "an endpoint of one's own (%.200s)",
                 site.endpoint_source);
    }
    return status;
}

static int find_bucket_region(struct stk_store *store, const struct stk_object_url *object,
                              struct stoker_location *where, struct stoker_error *error)
{
    int status = 0;

    if (object->zone) {
        snprintf(where->bucket_zone, sizeof where->bucket_zone, "%s", object->zone);
        stk_endpoint_zone_region(object->zone, where->bucket_region);
        snprintf(where->bucket_from, sizeof where->bucket_from, "the bucket's name");
        return 0;
    }
    status = stk_store_bucket_location(store, object, where->bucket_region, error);
    snprintf(where->bucket_from, sizeof where->bucket_from, "%s",
             !where->bucket_region[0]             ? "the bucket does not tell"
             : object->kind == STK_OBJECT_URL_GCS ? "the bucket's location"
                                                  : "the bucket's region");
    return status;
}

static int find_machine_region(struct stoker_location *where, struct stoker_error *error)
{
    struct stk_http_options options = {.connections_max = 4};
    struct stk_machine_location reported;
    struct stk_http *http = NULL;
    int status = stk_http_open(&http, &options, error);

    if (status == 0) {
        stk_machine_location_find(http, &reported);
        where->machine_cloud = reported.cloud;
        memcpy(where->machine_region, reported.region, sizeof reported.region);
        memcpy(where->machine_zone, reported.zone, sizeof reported.zone);
        memcpy(where->machine_from, reported.source, sizeof reported.source);
    }
    stk_http_close(http);
    return status;
}

static int find_location(struct stoker_engine *engine, const char *url,
                         struct stoker_location *where, struct stoker_error *error)
{
    struct stk_store *store = NULL;
    struct stk_object_url *object = NULL;
    int status;

    where->bucket_region[0] = where->bucket_zone[0] = where->bucket_from[0] = '\0';
    where->service = "";
    if (!where->machine_known) {
        where->machine_cloud = "";
        where->machine_region[0] = where->machine_zone[0] = where->machine_from[0] = '\0';
    }
    status = stk_object_url_parse(url, &object, error);
    status = status < 0 ? status : find_service(object, where, error);
    if (status == 0 && where->service[0]) {
        status = stk_vfs_get_store(engine->io, &store, error);
        status = status < 0 ? status : find_bucket_region(store, object, where, error);
        if (status == 0 && where->bucket_region[0] && !where->machine_known) {
            status = find_machine_region(where, error);
            where->machine_known = status == 0;
        }
    }
    stk_location_compare(where, object ? object->url : "");
    stk_object_url_free(object);
    return status;
}

int stoker_location_check(struct stoker_engine *engine, const char *url,
                          struct stoker_location *where, struct stoker_error *error)
{
    struct stoker_location full;
    int status = stk_engine_check(engine, error);

    status = status < 0 ? status
                        : stk_options_read(&full, sizeof full, sizeof full.struct_size, where,
                                           "location", error);
    if (status == 0 && !url) {
        status =
            stk_fail(error, STOKER_ERROR_ARGUMENT, "no URL is given", "name a URL", "location");
    }
    if (status < 0) {
        return status;
    }
    status = find_location(engine, url, &full, error);
    stk_options_write_output(where, &full, sizeof full, "location", NULL);
    return status;
}
