/* stoker/error.h: status codes and error details. */
#ifndef STOKER_ERROR_H
#define STOKER_ERROR_H

#include <stoker/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number, name, sentence. */
#define STOKER_ERRORS(X)                                                                           \
    X(-5001, CORRUPT, "the data is damaged")                                                       \
    X(-5002, TRUNCATED, "the data ends too early")                                                 \
    X(-5003, FORMAT, "the data is not of the expected format")                                     \
    X(-5004, UNSUPPORTED, "the data uses a feature that stoker does not read")                     \
    X(-5005, LIMIT, "a limit of the options was exceeded")                                         \
    X(-5006, MISSING, "a field or a label is missing")                                             \
    X(-5007, SCATTERED, "members of one sample are not adjacent")                                  \
    X(-5008, ARGUMENT, "an argument or option is invalid")                                         \
    X(-5009, STATE, "the state belongs to another data set, setting or order version")             \
    X(-5010, BUDGET, "the memory budget is exhausted")                                             \
    X(-5011, TIMEOUT, "a timeout expired")                                                         \
    X(-5012, FORKED, "the object was created in another process")                                  \
    X(-5013, CLOSED, "the object is closed")                                                       \
    X(-5014, EMPTY, "there is nothing to read")                                                    \
    X(-5015, AGAIN, "nothing is ready yet")                                                        \
    X(-5016, CHANGED, "the data changed while it was in use")

enum stoker_status {
    STOKER_OK = 0,
#define X(number, name, sentence) STOKER_ERROR_##name = (number),
    STOKER_ERRORS(X)
#undef X
};

/* What failed, where, and the next step. Owned by the caller; a zeroed one is empty. */
struct stoker_error {
    int status;       /* the value that the function returned */
    uint64_t offset;  /* byte offset in `shard`; STOKER_NO_OFFSET if not applicable */
    char what[192];   /* "cannot read member header" */
    char where[768];  /* "'train-0042.tar' offset 1048576 key 'a/17'" */
    char advice[256]; /* the next step */
    char shard[512];  /* path or URL; empty if not applicable */
    char key[256];    /* sample key; empty if not applicable */
};

/* Returns the name of a status: "STOKER_ERROR_CORRUPT", or the name of the errno value. Valid
 * forever. Any thread. */
STOKER_API const char *stoker_status_name(int status);
/* Returns a sentence that describes the status. Valid forever. Any thread. */
STOKER_API const char *stoker_status_text(int status);
/* Returns the version of the library, like STOKER_VERSION. Valid forever. Any thread. */
STOKER_API const char *stoker_version(void);

#ifdef __cplusplus
}
#endif
#endif
