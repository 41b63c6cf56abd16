/* stoker/location.h: whether a bucket and this machine are in the same region. */
#ifndef STOKER_LOCATION_H
#define STOKER_LOCATION_H

#include <stoker/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

enum stoker_location_kind {
    STOKER_LOCATION_UNKNOWN = 0, /* one of the two locations is unknown */
    STOKER_LOCATION_SAME,
    STOKER_LOCATION_OTHER_ZONE, /* S3 Express: its bucket is in one zone */
    STOKER_LOCATION_OTHER_REGION,
    STOKER_LOCATION_OTHER_CLOUD,
};

/* Location of a bucket and of this machine. */
struct stoker_location {
    size_t struct_size;
    uint32_t kind;             /* enum stoker_location_kind */
    uint8_t machine_known;     /* in: 1: machine_... are set by an earlier call; reuse them */
    const char *service;       /* "S3", "S3 Express", "Google Cloud Storage"; "": a service without
                                  locations; valid forever, as machine_cloud */
    const char *machine_cloud; /* "Amazon", "Google"; "": unknown */
    char bucket_region[64], bucket_zone[64],
        bucket_from[256]; /* from: the source, or why unknown */
    char machine_region[64], machine_zone[64], machine_from[256];
    double
        dollars_per_gb; /* estimated transfer cost of 10^9 bytes; 0 if the location is the same */
    char what[192], reason[384], advice[512]; /* if it is not the same; advice may be a command */
};

/* Requests the location of the bucket (HEAD; Google: its location) and the metadata service of the
 * machine's cloud, as configured by AWS_EC2_METADATA_..., GCE_METADATA_HOST and NO_GCE_CHECK, with
 * a timeout of one second. For custom endpoints, Azure, Hugging Face and web servers it requests
 * nothing: UNKNOWN. Returns 0 and fills *location; STOKER_ERROR_ARGUMENT if the URL is not of a
 * store. Any thread. */
STOKER_API int stoker_location_check(struct stoker_engine *engine, const char *url,
                                     struct stoker_location *location, struct stoker_error *error);

#ifdef __cplusplus
}
#endif
#endif
