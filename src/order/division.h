/* order/division.h: division by a number that stays the same, by its reciprocal: a multiplication
 * takes a quarter of the time of a division.
 * Owner: values. Threads: any. Memory: none. Bound: values below 2^62. */
#ifndef ORDER_DIVISION_H
#define ORDER_DIVISION_H

#include "order/order.h"

__extension__ typedef unsigned __int128 stk_u128;

struct stk_quotient {
    uint64_t quotient, remainder;
};

/* number > 0. */
static inline struct stk_divisor stk_divisor_of(uint64_t number)
{
    return (struct stk_divisor){number, UINT64_MAX / number};
}

/* If value < 2^62, the product is less than 1 + 2^-1 below value / number, so its integer part is
 * the quotient or the quotient - 1. */
static inline struct stk_quotient stk_divide(uint64_t value, const struct stk_divisor *by)
{
    uint64_t quotient = (uint64_t)((stk_u128)value * by->reciprocal >> 64);
    uint64_t remainder = value - quotient * by->number;
    uint64_t more = remainder >= by->number;

    return (struct stk_quotient){quotient + more, remainder - (by->number & -more)};
}

#endif
