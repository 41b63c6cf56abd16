/* order/left_over.h: the rows of a column that have left-overs, at equal distances.
 *
 * A column of R rows has M left-overs. Rows before row r have floor((r * M + o) / R) of them, where
 * o < R is a random offset of the column and epoch. So row r has a left-over if and only if
 * (r * M + o) mod R >= R - M: every row with equal probability, and never two more in one stretch
 * of rows than in another of the same length. Each function below is O(1).
 *
 * Products of two numbers below 2^56 do not fit 64 bits. A quotient is therefore estimated by a
 * multiplication with M / R in units of 2^-64, which is too low by less than 2, and corrected by
 * its remainder, which is exact modulo 2^64.
 *
 * Pure. Owner: values. Threads: any. Memory: none. Bound: rows below 2^56. */
#ifndef ORDER_LEFT_OVER_H
#define ORDER_LEFT_OVER_H

#include "base/random.h"
#include "order/division.h"

#define STK_LEFT_OVER_GOLDEN UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / golden ratio */

/* floor(part / total) in units of 2^-64, for part <= total. */
static inline uint64_t stk_left_over_ratio(uint64_t part, uint64_t total)
{
    return part < total ? (uint64_t)(((stk_u128)part << 64) / total) : UINT64_MAX;
}

static inline struct stk_order_column stk_left_over_column(uint64_t rows, uint64_t left_overs)
{
    struct stk_order_column column = {.rows = rows, .left_overs = left_overs};

    if (left_overs > 0) {
        column.by_left = stk_divisor_of(left_overs);
        column.left_per_row = stk_left_over_ratio(left_overs, rows);
        column.left_per_turn = stk_left_over_ratio(left_overs, rows - left_overs);
    }
    return column;
}

/* Returns the offset o of a column: uniform in [0, rows), with a bias below 2^-8. */
static inline uint64_t stk_left_over_offset(const struct stk_order_column *column, uint64_t key,
                                            uint64_t number)
{
    return (uint64_t)((stk_u128)stk_mix64(key + number * STK_LEFT_OVER_GOLDEN) * column->rows >>
                      64);
}

/* Returns floor((index * left_overs + offset) / total) and the remainder; ratio: left_overs / total
 * in units of 2^-64; index and left_overs <= total. */
static inline struct stk_quotient stk_left_over_divide(uint64_t index, uint64_t left_overs,
                                                       uint64_t offset, uint64_t total,
                                                       uint64_t ratio)
{
    uint64_t quotient = (uint64_t)((stk_u128)index * ratio >> 64);
    uint64_t remainder = index * left_overs - quotient * total + offset;

    while (remainder >= total) {
        remainder -= total;
        quotient++;
    }
    return (struct stk_quotient){quotient, remainder};
}

/* Returns the number of left-overs in the rows before `row`; remainder >= rows - left_overs if and
 * only if the row itself has one. */
static inline struct stk_quotient stk_left_over_before(const struct stk_order_column *column,
                                                       uint64_t offset, uint64_t row)
{
    return stk_left_over_divide(row, column->left_overs, offset, column->rows,
                                column->left_per_row);
}

/* Returns the row of the group's sample number `turn`. */
static inline uint64_t stk_left_over_row_of_turn(const struct stk_order_column *column,
                                                 uint64_t offset, uint64_t turn)
{
    return column->left_overs == 0 ? turn
                                   : turn + stk_left_over_divide(turn, column->left_overs, offset,
                                                                 column->rows - column->left_overs,
                                                                 column->left_per_turn)
                                                .quotient;
}

/* Returns the row of the column's left-over number `index`. */
static inline uint64_t stk_left_over_row(const struct stk_order_column *column, uint64_t offset,
                                         uint64_t index)
{
    stk_u128 end = (stk_u128)(index + 1) * column->rows - offset;

    return (uint64_t)((end - 1) / column->left_overs);
}

/* A walk over the rows of a column: `run` rows of the group, then a left-over, and so on. */
struct stk_left_over_walk {
    const struct stk_order_column *column;
    uint64_t rest, run;
};

static inline void stk_left_over_walk_to_next(struct stk_left_over_walk *walk)
{
    const struct stk_order_column *column = walk->column;

    walk->run = column->left_overs == 0
                    ? UINT64_MAX
                    : stk_divide(column->rows - walk->rest - 1, &column->by_left).quotient;
}

/* rest: as stk_left_over_before returns it for the first row. */
static inline struct stk_left_over_walk
stk_left_over_walk_from(const struct stk_order_column *column, uint64_t rest)
{
    struct stk_left_over_walk walk = {.column = column, .rest = rest};

    stk_left_over_walk_to_next(&walk);
    walk.rest += walk.run * column->left_overs;
    return walk;
}

/* Moves past the left-over that ended a run. */
static inline void stk_left_over_walk_next(struct stk_left_over_walk *walk)
{
    walk->rest += walk->column->left_overs - walk->column->rows;
    stk_left_over_walk_to_next(walk);
    walk->rest += walk->run * walk->column->left_overs;
}

#endif
