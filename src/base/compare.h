/* base/compare.h: functions for qsort() and bsearch() that several rooms need.
 *
 * Pure. Owner: none. Threads: any. Memory: none. Bound: none. */
#ifndef BASE_COMPARE_H
#define BASE_COMPARE_H

#include <stdint.h>
#include <string.h>

/* Elements of type uint64_t, ascending. */
static inline int stk_compare_u64(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

/* Elements of type const char * (or char *), in the order of their bytes. */
static inline int stk_compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

#endif
