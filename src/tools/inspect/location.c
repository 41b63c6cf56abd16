/* Asks the bucket and the machine where they are. */
#include "tools/inspect/location.h"

#include "engine/engine.h"
#include "storage/credentials/credentials.h"
#include "storage/http/http.h"
#include "storage/object/store.h"
#include "storage/provider/endpoint.h"
#include "storage/vfs/vfs.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Amazon's own host, though it was named by hand. */
static bool is_amazons(const char *endpoint)
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

/* Which of them it is of; "": nobody tells where that is, and bucket_from says why. */
static int find_service(const struct stk_place *place, struct stoker_where *where,
                        struct stoker_error *error)
{
    bool google = place->kind == STK_PLACE_GOOGLE;
    struct stk_site site = {.account = ""};
    int status = 0;

    where->service = "";
    if (!google && place->kind != STK_PLACE_S3) {
        snprintf(where->bucket_from, sizeof where->bucket_from,
                 "this kind of store tells no place");
        return 0;
    }
    status = stk_site_find(google ? STK_CREDS_GOOGLE : STK_CREDS_AWS, &site, error);
    if (status == 0 && (google ? site.endpoint_from[0] == '\0' : is_amazons(site.endpoint))) {
        where->service = google ? "Google Cloud Storage" : place->zone ? "S3 Express" : "S3";
    } else if (status == 0) {
        snprintf(where->bucket_from, sizeof where->bucket_from, "an endpoint of one's own (%.200s)",
                 site.endpoint_from);
    }
    return status;
}

static int ask_bucket(struct stk_store *store, const struct stk_place *place,
                      struct stoker_where *where, struct stoker_error *error)
{
    int status = 0;

    if (place->zone) {
        snprintf(where->bucket_zone, sizeof where->bucket_zone, "%s", place->zone);
        stk_site_zone(place->zone, where->bucket_region);
        snprintf(where->bucket_from, sizeof where->bucket_from, "the bucket's name");
        return 0;
    }
    status = stk_store_where(store, place, where->bucket_region, error);
    snprintf(where->bucket_from, sizeof where->bucket_from, "%s",
             !where->bucket_region[0]          ? "the bucket does not tell"
             : place->kind == STK_PLACE_GOOGLE ? "the bucket's location"
                                               : "the bucket's region");
    return status;
}

static int ask_machine(struct stoker_where *where, struct stoker_error *error)
{
    struct stk_http_options options = {.connections_max = 4};
    struct stk_creds_where told;
    struct stk_http *http = NULL;
    int status = stk_http_open(&http, &options, error);

    if (status == 0) {
        stk_creds_where(http, &told);
        where->machine_cloud = told.cloud;
        memcpy(where->machine_region, told.region, sizeof told.region);
        memcpy(where->machine_zone, told.zone, sizeof told.zone);
        memcpy(where->machine_from, told.from, sizeof told.from);
    }
    stk_http_close(http);
    return status;
}

int stoker_where_is(struct stoker_engine *engine, const char *url, struct stoker_where *where,
                    struct stoker_error *error)
{
    struct stk_store *store = NULL;
    struct stk_place *place = NULL;
    int status = stk_engine_check(engine, error);

    if (status == 0 && (!url || !where || where->struct_size < sizeof *where)) {
        status = stk_fail(error, STOKER_ERROR_ARGUMENT, "there is nothing to tell into",
                          "set struct_size, and name a URL", "stoker_where_is");
    }
    if (status < 0) {
        return status;
    }
    where->bucket_region[0] = where->bucket_zone[0] = where->bucket_from[0] = '\0';
    where->service = "";
    if (!where->machine_known) {
        where->machine_cloud = "";
        where->machine_region[0] = where->machine_zone[0] = where->machine_from[0] = '\0';
    }
    status = stk_place_parse(url, &place, error);
    status = status < 0 ? status : find_service(place, where, error);
    if (status == 0 && where->service[0]) {
        status = stk_route_lend(engine->io, &store, error);
        status = status < 0 ? status : ask_bucket(store, place, where, error);
        if (status == 0 && where->bucket_region[0] && !where->machine_known) {
            status = ask_machine(where, error);
            where->machine_known = status == 0;
        }
    }
    stk_near_judge(where, place ? place->url : "");
    stk_place_free(place);
    return status;
}
