/* format/bad_sample/bad_sample.h: a damaged sample, as the loader and pack keep it, tell of it and
 * count it.
 *
 *   error -new-> struct stk_bad_sample -line-> JSON for the quarantine file
 *                                  -error-> the error again
 *                                  -describe-> a sentence about the first of a list
 *
 * Owner: whoever made it. Threads: any; const after new. Memory: one block each, of at most some
 * 1.7 KB. Bound: the sizes of struct stoker_error. */
#ifndef FORMAT_BAD_SAMPLE_BAD_SAMPLE_H
#define FORMAT_BAD_SAMPLE_BAD_SAMPLE_H

#include "base/base.h"

/* One damaged sample; const. */
struct stk_bad_sample {
    uint64_t sample, offset; /* STOKER_NO_SAMPLE, STOKER_NO_OFFSET: not known */
    int status;
    const char *shard, *key, *what, *where, *advice; /* in text */
    char text[];
};

/* Owned by the caller (stk_free); NULL: no memory. */
struct stk_bad_sample *stk_bad_sample_new(uint64_t sample, const struct stoker_error *error);
void stk_bad_sample_error(const struct stk_bad_sample *bad_sample, struct stoker_error *error);

/* Fills as much of *entry_out as its struct_size says; texts are lent. ARGUMENT: a wrong size. */
int stk_bad_sample_entry(const struct stk_bad_sample *bad_sample,
                         struct stoker_quarantine_entry *entry_out);

/* A line's longest: shard, key and reason, each byte as \u00XX. */
#define STK_BAD_SAMPLE_LINE_BYTES 8192u
/* {"shard": "a.tar", "key": "a/17", "offset": 512, "status": "STOKER_ERROR_CORRUPT",
 *  "reason": "...", "sample": 17} and a newline, no NUL. How many bytes. */
size_t stk_bad_sample_line(const struct stk_bad_sample *bad_sample,
                           char line[STK_BAD_SAMPLE_LINE_BYTES]);
/* "'shard' key 'a': what; ...": as many of the first as a message has room for. */
void stk_bad_sample_describe(struct stk_bad_sample *const *list, uint64_t count, char *text,
                             size_t bytes);

#endif
