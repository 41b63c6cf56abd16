/* base/base.h: types and helpers that every room uses: views, errors, checked arithmetic,
 * assertions.
 * Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stoker/stoker.h>

/* Borrowed bytes. The function that passes a view says how long it is valid. */
struct stk_view {
    const uint8_t *data;
    size_t bytes;
};

/* Place of one member of a sample in its object. */
struct stk_member {
    uint64_t offset;
    uint64_t bytes; /* STK_ENTIRE_OBJECT: the whole object */
    uint32_t shard;
    uint32_t extension; /* id in the index's table */
};
#define STK_ENTIRE_OBJECT UINT64_MAX

/* For programming errors of the library only; also checked in release builds. */
#define STK_ASSERT(condition)                                                                      \
    ((condition) ? (void)0 : stk_assert_failed(#condition, __FILE__, __LINE__))
_Noreturn void stk_assert_failed(const char *condition, const char *file, int line);

/* Fills *error (may be NULL) and returns status. `what` and `advice` are plain sentences;
 * where_format formats the place. Control characters in the place are escaped. */
int stk_fail(struct stoker_error *error, int status, const char *what, const char *advice,
             const char *where_format, ...) __attribute__((format(printf, 5, 6)));
/* The same for a positive errno value, whose text is appended to `what`. Returns -number. */
int stk_fail_errno(struct stoker_error *error, int number, const char *what, const char *advice,
                   const char *where_format, ...) __attribute__((format(printf, 5, 6)));
/* An allocation failed: fills *error, with what the memory was for as its place ("pack plan",
 * "'%s'"). Returns -ENOMEM. */
int stk_fail_memory(struct stoker_error *error, const char *where_format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds the place to an error that a callee filled: sets shard, offset and key where they are not
 * set yet (NULL and STOKER_NO_OFFSET: unknown) and puts them at the front of `where`. Does nothing
 * if error is NULL. Returns nothing, since an optional error cannot say whether a call failed. */
void stk_error_set_location(struct stoker_error *error, const char *shard, uint64_t offset,
                            const char *key);

/* Where a task ends: a status below 0 and the error of the task must agree, since the one decides
 * whether the result is used and the other what is reported. */
static inline void stk_error_assert_status(const struct stoker_error *error, int status)
{
    STK_ASSERT(status >= 0 || error->status == status);
}

/* Checked arithmetic for untrusted sizes. Returns false if the result does not fit. */
static inline bool stk_add(uint64_t a, uint64_t b, uint64_t *sum_out)
{
    return !__builtin_add_overflow(a, b, sum_out);
}

static inline bool stk_multiply(uint64_t a, uint64_t b, uint64_t *product_out)
{
    return !__builtin_mul_overflow(a, b, product_out);
}

static inline uint64_t stk_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t stk_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Rounds up to a multiple of a power of two. The caller makes sure that the result fits. */
static inline uint64_t stk_round_up(uint64_t value, uint64_t power)
{
    return (value + power - 1) & ~(power - 1);
}

#define STK_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
