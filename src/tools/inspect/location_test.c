/* Goal: the cost of reading a bucket from a machine, by their locations (location_cost.c).
 * python/tests/test_location.py tests the requests of location.c, with servers that play Amazon and
 * Google.
 * Method: rows of locations, and the expected reports. */
#include "tools/inspect/location.h"

#include "test/t.h"

#include <stdio.h>
#include <string.h>

static const struct row {
    const char *name, *service, *region, *zone, *cloud, *machine, *machine_zone;
    uint32_t kind;
    unsigned cents;
} rows[] = {
    {"same", "S3", "us-west-2", "", "Amazon", "us-west-2", "usw2-az1", STOKER_LOCATION_SAME, 0},
    {"other", "S3", "us-west-2", "", "Amazon", "us-west-1", "", STOKER_LOCATION_OTHER_REGION, 2},
    {"no machine", "S3", "us-west-2", "", "", "", "", STOKER_LOCATION_UNKNOWN, 0},
    {"no bucket", "S3", "", "", "Amazon", "us-west-2", "", STOKER_LOCATION_UNKNOWN, 0},
    {"no service", "", "us-west-2", "", "Amazon", "us-west-1", "", STOKER_LOCATION_UNKNOWN, 0},
    {"zone", "S3 Express", "us-west-2", "usw2-az1", "Amazon", "us-west-2", "usw2-az1",
     STOKER_LOCATION_SAME, 0},
    {"other zone", "S3 Express", "us-west-2", "usw2-az1", "Amazon", "us-west-2", "usw2-az2",
     STOKER_LOCATION_OTHER_ZONE, 0},
    {"zone unknown", "S3 Express", "us-west-2", "usw2-az1", "Amazon", "us-west-2", "",
     STOKER_LOCATION_SAME, 0},
    {"zone afar", "S3 Express", "us-west-2", "usw2-az1", "Amazon", "us-east-1", "use1-az1",
     STOKER_LOCATION_OTHER_REGION, 2},
    {"cloud", "S3", "us-west-2", "", "Google", "us-west1", "us-west1-a",
     STOKER_LOCATION_OTHER_CLOUD, 9},
    {"cloud", "Google Cloud Storage", "us-west1", "", "Amazon", "us-west-2", "",
     STOKER_LOCATION_OTHER_CLOUD, 12},
    {"google", "Google Cloud Storage", "us-west1", "", "Google", "us-west1", "us-west1-a",
     STOKER_LOCATION_SAME, 0},
    {"google", "Google Cloud Storage", "us-west1", "", "Google", "us-west2", "us-west2-a",
     STOKER_LOCATION_OTHER_REGION, 2},
    {"several", "Google Cloud Storage", "us", "", "Google", "us-west2", "", STOKER_LOCATION_SAME,
     0},
    {"several", "Google Cloud Storage", "nam4", "", "Google", "us-east1", "", STOKER_LOCATION_SAME,
     0},
    {"several", "Google Cloud Storage", "eur4", "", "Google", "us-east1", "",
     STOKER_LOCATION_OTHER_REGION, 2},
    {"several", "Google Cloud Storage", "eu", "", "Google", "europe-west4", "",
     STOKER_LOCATION_SAME, 0},
    {"several", "Google Cloud Storage", "asia", "", "Google", "asia-east1", "",
     STOKER_LOCATION_SAME, 0},
};

static void test_rows(void)
{
    T_EACH(row, row, rows)
    {
        struct stoker_location where = {.service = row->service, .machine_cloud = row->cloud};

        snprintf(where.bucket_region, sizeof where.bucket_region, "%s", row->region);
        snprintf(where.bucket_zone, sizeof where.bucket_zone, "%s", row->zone);
        snprintf(where.machine_region, sizeof where.machine_region, "%s", row->machine);
        snprintf(where.machine_zone, sizeof where.machine_zone, "%s", row->machine_zone);
        snprintf(where.what, sizeof where.what, "of before");
        where.kind = STOKER_LOCATION_OTHER_ZONE;
        stk_location_compare(&where, "s3://b/t/train-{000..099}.tar?secret=1");
        T_EQ(row->name, where.kind, row->kind);
        T_EQ(row->name, (unsigned)(where.dollars_per_gb * 100 + 0.5), row->cents);
        T_EQ(row->name, where.what[0] != '\0', row->kind > STOKER_LOCATION_SAME);
        T_EQ(row->name, where.advice[0] != '\0', row->kind > STOKER_LOCATION_SAME);
        T_TRUE(row->name, !strstr(where.advice, "secret"));
        if (row->kind == STOKER_LOCATION_OTHER_REGION) {
            char advice[128];

            snprintf(advice, sizeof advice, "stoker sync s3://b/t/ %s://BUCKET-IN-%s/",
                     strcmp(row->cloud, "Google") == 0 ? "gs" : "s3", row->machine);
            T_STR(row->name, where.advice, advice);
        }
    }
}

int main(void)
{
    test_rows();
    return t_finish();
}
