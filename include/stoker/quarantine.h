/* stoker/quarantine.h: how data sets, loaders and pack handle damaged samples. */
#ifndef STOKER_QUARANTINE_H
#define STOKER_QUARANTINE_H

#include <stoker/error.h>

#ifdef __cplusplus
extern "C" {
#endif

enum stoker_on_error { STOKER_ON_ERROR_RAISE = 1, STOKER_ON_ERROR_SKIP };

/* One damaged sample in the quarantine list of a data set, loader or pack. */
struct stoker_quarantine_entry {
    size_t struct_size;
    int status; /* STOKER_ERROR_CORRUPT ... */
    uint64_t sample;
    uint64_t offset;                  /* in the shard; STOKER_NO_OFFSET if unknown */
    const char *shard, *key, *reason; /* valid until the object that listed it is closed */
};

#ifdef __cplusplus
}
#endif
#endif
