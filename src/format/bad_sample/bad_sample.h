/* format/bad_sample/bad_sample.h: the record of one damaged sample: made from an error, and
 * written as an error, as a line of JSON, or as a sentence.
 *
 *   error -new-> struct stk_bad_sample -line-> JSON for the quarantine file
 *                                  -error-> the error again
 *                                  -describe-> a sentence about the first ones of a list
 *
 * Owner: the caller of new. Threads: any; const after new.
 * Memory: one block each, of at most about 1.7 KB.
 * Bound: the sizes of struct stoker_error. */
#ifndef FORMAT_BAD_SAMPLE_BAD_SAMPLE_H
#define FORMAT_BAD_SAMPLE_BAD_SAMPLE_H

#include "base/base.h"

/* One damaged sample; const. */
struct stk_bad_sample {
    uint64_t sample, offset; /* STOKER_NO_SAMPLE, STOKER_NO_OFFSET: unknown */
    int status;
    const char *shard, *key, *what, *where, *advice; /* in text */
    char text[];
};

/* Returns a bad sample that the caller frees with stk_free, or NULL if there is no memory. */
struct stk_bad_sample *stk_bad_sample_new(uint64_t sample, const struct stoker_error *error);
void stk_bad_sample_error(const struct stk_bad_sample *bad_sample, struct stoker_error *error);

/* Fills *entry_out up to its struct_size; its texts are valid as long as the bad sample. Returns 0,
 * or STOKER_ERROR_ARGUMENT if struct_size is wrong. */
int stk_bad_sample_entry(const struct stk_bad_sample *bad_sample,
                         struct stoker_quarantine_entry *entry_out);

/* The longest line: shard, key and reason, with each byte as \u00XX. */
#define STK_BAD_SAMPLE_LINE_BYTES 8192u
#define STK_BAD_SAMPLE_LINE_BEGIN "{\"shard\": " /* of each line */
/* {"shard": "a.tar", "key": "a/17", "offset": 512, "status": "STOKER_ERROR_CORRUPT",
 *  "reason": "...", "sample": 17} and a newline, without NUL. Returns the number of bytes. */
size_t stk_bad_sample_line(const struct stk_bad_sample *bad_sample,
                           char line[STK_BAD_SAMPLE_LINE_BYTES]);
/* Writes "'shard' key 'a': what; ...": as many of the first bad samples as fit into `bytes`. */
void stk_bad_sample_describe(struct stk_bad_sample *const *list, uint64_t count, char *text,
                             size_t bytes);

#endif
