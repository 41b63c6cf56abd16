/* stoker info: regions of buckets and of this machine, and the cost if they differ. */
#include "programs/cli/info_location.h"

#include "programs/cli/terminal.h"

#include <string.h>

static bool is_finding(const struct stoker_location *where)
{
    return where->kind > STOKER_LOCATION_SAME;
}

/* Returns false if the URL has no bucket, or its bucket is already listed. */
static bool take_bucket(struct info_location *locations, const char *url)
{
    char *bucket = locations->buckets[locations->count];
    const char *name = strstr(url, "://");
    size_t bytes = name ? (size_t)(name - url) + 3 + strcspn(name + 3, "/*?[{") : 0;

    if (bytes == 0 || bytes >= sizeof locations->buckets[0] ||
        (strncmp(url, "s3://", 5) != 0 && strncmp(url, "gs://", 5) != 0)) {
        return false;
    }
    memcpy(bucket, url, bytes);
    bucket[bytes] = '\0';
    for (uint32_t i = 0; i < locations->count; i++) {
        if (strcmp(locations->buckets[i], bucket) == 0) {
            return false;
        }
    }
    return true;
}

void info_location_open(struct info_location *locations, struct stoker_engine *engine,
                        const struct args *args)
{
    locations->count = 0;
    for (size_t i = 0; i < args->path_count && locations->count < INFO_LOCATIONS_MAX; i++) {
        struct stoker_location *row = &locations->rows[locations->count];
        struct stoker_error error = {0};

        if (!take_bucket(locations, args->paths[i])) {
            continue;
        }
        *row = locations->count
                   ? row[-1]
                   : (struct stoker_location){0}; /* reuse the location of this machine */
        row->struct_size = sizeof *row;
        if (stoker_location_check(engine, args->paths[i], row, &error) < 0) {
            row->kind = STOKER_LOCATION_UNKNOWN;
            snprintf(row->bucket_from, sizeof row->bucket_from, "%.100s, %.120s", error.what,
                     error.where);
        }
        locations->count++;
    }
}

static void print_place(const char *name, const char *region, const char *zone, const char *from)
{
    printf("  %-11s ", name);
    term_text(region[0] ? region : "unknown");
    if (zone[0]) {
        printf(", zone ");
        term_text(zone);
    }
    if (from[0]) {
        printf(" (");
        term_text(from);
        printf(")");
    }
    putchar('\n');
}

void info_location_print(const struct info_location *locations)
{
    for (uint32_t i = 0; i < locations->count; i++) {
        const struct stoker_location *where = &locations->rows[i];

        term_text(locations->buckets[i]);
        printf(" is in\n");
        print_place("bucket", where->bucket_region, where->bucket_zone, where->bucket_from);
        if (where->machine_known) {
            print_place("machine", where->machine_region, where->machine_zone, where->machine_from);
        }
        if (is_finding(where)) {
            printf("  FINDING     ");
            term_text(where->what);
            printf("\n              ");
            term_text(where->reason);
            printf("\n              %s",
                   strncmp(where->advice, "stoker ", 7) == 0 ? "run in its region, or: " : "");
            term_text(where->advice);
            putchar('\n');
        }
    }
}

void info_location_json(const struct info_location *locations)
{
    static const char *const kinds[] = {"unknown", "near", "other zone", "other region",
                                        "other cloud"};

    json_open("where", '[');
    for (uint32_t i = 0; i < locations->count; i++) {
        const struct stoker_location *where = &locations->rows[i];

        json_open(NULL, '{');
        json_str("bucket", locations->buckets[i]);
        json_str("kind", kinds[where->kind]);
        json_str("bucket_region", where->bucket_region);
        json_str("bucket_zone", where->bucket_zone);
        json_str("bucket_from", where->bucket_from);
        json_str("machine_cloud", where->machine_known ? where->machine_cloud : "");
        json_str("machine_region", where->machine_region);
        json_str("machine_zone", where->machine_zone);
        json_str("machine_from", where->machine_from);
        json_double("gigabyte", where->dollars_per_gb);
        json_str("what", where->what);
        json_str("reason", where->reason);
        json_str("advice", where->advice);
        json_close('}');
    }
    json_close(']');
}

int info_location_status(const struct info_location *locations)
{
    for (uint32_t i = 0; i < locations->count; i++) {
        if (is_finding(&locations->rows[i])) {
            return EXIT_FINDINGS;
        }
    }
    return EXIT_FINE;
}
