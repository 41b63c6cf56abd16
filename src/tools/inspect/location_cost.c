/* The cost of reading a bucket from another region, zone or cloud. */
#include "tools/inspect/location.h"

#include <stdio.h>
#include <string.h>

/* Dollars per GB sent from the first of a service's regions to another one, and out of its cloud:
 * as in prices.json of the Python package, which a test compares. */
static const struct {
    const char *service, *cloud;
    double other_region, outside;
} services[] = {
    {"S3", "Amazon", 0.02, 0.09},
    {"S3 Express", "Amazon", 0.02, 0.09},
    {"Google Cloud Storage", "Google", 0.02, 0.12},
};

/* Google's buckets of several regions: "us", "eu", "asia", "nam4", "eur5". The continent of the
 * machine's region; NULL: it is one region. */
static const char *continent_of(const char *location)
{
    static const char *const continents[][2] = {
        {"us", "us-"}, {"nam", "us-"}, {"eu", "europe-"}, {"asia", "asia-"}};

    if (strchr(location, '-')) {
        return NULL;
    }
    for (size_t i = 0; i < STK_COUNT(continents); i++) {
        if (strncmp(location, continents[i][0], strlen(continents[i][0])) == 0) {
            return continents[i][1];
        }
    }
    return NULL;
}

static uint32_t kind_of(const struct stoker_location *where, const char *cloud)
{
    const char *continent = continent_of(where->bucket_region);

    if (!where->bucket_region[0] || !where->machine_region[0]) {
        return STOKER_LOCATION_UNKNOWN;
    }
    if (strcmp(where->machine_cloud, cloud) != 0) {
        return STOKER_LOCATION_OTHER_CLOUD;
    }
    if (continent) {
        return strncmp(where->machine_region, continent, strlen(continent)) == 0
                   ? STOKER_LOCATION_SAME
                   : STOKER_LOCATION_OTHER_REGION;
    }
    if (strcmp(where->bucket_region, where->machine_region) != 0) {
        return STOKER_LOCATION_OTHER_REGION;
    }
    return where->bucket_zone[0] && where->machine_zone[0] &&
                   strcmp(where->bucket_zone, where->machine_zone) != 0
               ? STOKER_LOCATION_OTHER_ZONE
               : STOKER_LOCATION_SAME;
}

static void fill_region_cost(struct stoker_location *where, const char *url, size_t row)
{
    bool away = where->kind == STOKER_LOCATION_OTHER_CLOUD;
    char shown[256];
    size_t bytes;

    where->dollars_per_gb = away ? services[row].outside : services[row].other_region;
    snprintf(where->what, sizeof where->what, "the bucket is in %s%s%s, this machine in %s%s%s",
             where->bucket_region, away ? " of " : "", away ? services[row].cloud : "",
             where->machine_region, away ? " of " : "", away ? where->machine_cloud : "");
    snprintf(
        where->reason, sizeof where->reason,
        "each GB that is read costs some $%.2f on its way, and each request waits for the way: "
        "in the bucket's region neither does. Every epoch pays again, unless the data is kept "
        "here",
        where->dollars_per_gb);
    snprintf(shown, sizeof shown, "%s", url);
    bytes = strcspn(shown, "*?[{"); /* a folder of it, where it is a pattern */
    while (shown[bytes] && bytes > 0 && shown[bytes - 1] != '/') {
        bytes--;
    }
    shown[bytes] = '\0';
    snprintf(where->advice, sizeof where->advice, "stoker sync %s %s://BUCKET-IN-%s/", shown,
             strcmp(where->machine_cloud, "Google") == 0 ? "gs" : "s3", where->machine_region);
}

static void fill_zone_cost(struct stoker_location *where)
{
    snprintf(where->what, sizeof where->what, "the bucket is in zone %s, this machine in %s",
             where->bucket_zone, where->machine_zone);
    snprintf(where->reason, sizeof where->reason,
             "a bucket of S3 Express is in one zone, and its short answers are for machines there: "
             "each request crosses to another zone of %s and back",
             where->bucket_region);
    snprintf(
        where->advice, sizeof where->advice,
        "start the machine in %s: a subnet of that zone, by its id (names like us-west-2a differ "
        "from account to account)",
        where->bucket_zone);
}

void stk_location_compare(struct stoker_location *where, const char *url)
{
    size_t row = 0;

    where->kind = STOKER_LOCATION_UNKNOWN;
    where->dollars_per_gb = 0;
    where->what[0] = where->reason[0] = where->advice[0] = '\0';
    while (row < STK_COUNT(services) && strcmp(services[row].service, where->service) != 0) {
        row++;
    }
    if (row == STK_COUNT(services)) {
        return;
    }
    where->kind = kind_of(where, services[row].cloud);
    if (where->kind == STOKER_LOCATION_OTHER_REGION || where->kind == STOKER_LOCATION_OTHER_CLOUD) {
        fill_region_cost(where, url, row);
    } else if (where->kind == STOKER_LOCATION_OTHER_ZONE) {
        fill_zone_cost(where);
    }
}
