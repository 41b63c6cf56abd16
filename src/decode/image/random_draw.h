/* decode/image/random_draw.h: the random numbers of one sample.
 *
 * A draw is a hash of (key, kind of transform, index within that kind, number of the draw). It does
 * not depend on other draws: adding or removing a transform does not change the crops and flips of
 * the rest of the plan. The scheme is frozen; it is part of "same seed, same pixels".
 * Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef DECODE_IMAGE_RANDOM_DRAW_H
#define DECODE_IMAGE_RANDOM_DRAW_H

#include "base/base.h"

struct stk_random_draw {
    uint64_t key;
};

/* kind: enum stoker_transform_kind; nth: 0 for the first of its kind in the plan. */
struct stk_random_draw stk_random_draw_begin(uint64_t key, uint32_t kind, uint32_t nth);
/* Returns a number in [0, 1) with 53 bits. number: index of the draw within this transform. */
double stk_random_draw_unit(struct stk_random_draw draw, uint32_t number);
/* Returns a number in [low, high]. */
double stk_random_draw_between(struct stk_random_draw draw, uint32_t number, const double range[2]);
/* Returns a number in [0, count); count > 0. */
uint32_t stk_random_draw_below(struct stk_random_draw draw, uint32_t number, uint32_t count);

/* exp and log, computed with + - * / only: the result is the same on every machine, which libm does
 * not guarantee. Relative error below 4e-16 for |x| <= 20; log: x > 0 and normal. */
double stk_exp(double x);
double stk_log(double x);
/* Returns the square root of value (>= 0, < 1 << 60), rounded to an integer, ties to even. */
int64_t stk_root_rounded(double value);
/* Rounds to an integer, ties to even; 0 <= value < 1 << 60. */
int64_t stk_rounded(double value);

#endif
