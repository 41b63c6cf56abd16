/* Counter-based random numbers, and the three functions that a crop needs. */
#include "decode/image/random_draw.h"

#include "base/random.h"

#include <string.h>

struct stk_random_draw stk_random_draw_begin(uint64_t key, uint32_t kind, uint32_t nth)
{
    return (struct stk_random_draw){stk_random_key(key, (uint64_t)kind << 32 | nth)};
}

double stk_random_draw_unit(struct stk_random_draw draw, uint32_t number)
{
    return (double)(stk_random_key(draw.key, number) >> 11) * 0x1p-53;
}

double stk_random_draw_between(struct stk_random_draw draw, uint32_t number, const double range[2])
{
    return range[0] + (range[1] - range[0]) * stk_random_draw_unit(draw, number);
}

uint32_t stk_random_draw_below(struct stk_random_draw draw, uint32_t number, uint32_t count)
{
    /* The high word of a product: no number is favoured by more than 2^-32. */
    return (uint32_t)(((stk_random_key(draw.key, number) >> 32) * count) >> 32);
}

/* ln 2 in two parts: the first has zeros at its end, so that small multiples of it are exact. */
#define LN2_HIGH 0x1.62e42fee00000p-1
#define LN2_LOW 0x1.a39ef35793c76p-33

/* 2^power, |power| < 1000. */
static double power_of_two(int power)
{
    uint64_t bits = (uint64_t)(power + 1023) << 52;
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

double stk_exp(double x)
{
    int power = (int)(x / (LN2_HIGH + LN2_LOW) + (x < 0.0 ? -0.5 : 0.5));
    double rest = (x - power * LN2_HIGH) - power * LN2_LOW, sum = 1.0;

    /* |rest| <= 0.35: the Taylor series to degree 16 leaves less than 1e-22. */
    for (int n = 16; n > 0; n--) {
        sum = 1.0 + sum * rest / n;
    }
    return sum * power_of_two(power);
}

double stk_log(double x)
{
    uint64_t bits;
    int power;
    double part, s, square, sum = 0.0;

    memcpy(&bits, &x, sizeof(bits));
    power = (int)(bits >> 52) - 1023;
    part = x * power_of_two(-power);
    if (part > 1.4142135623730951) {
        part *= 0.5;
        power++;
    }
    /* log(part) = 2 artanh(s), |s| <= 0.1716: 12 terms leave less than 1e-19. */
    s = (part - 1.0) / (part + 1.0);
    square = s * s;
    for (int n = 23; n >= 1; n -= 2) {
        sum = sum * square + 1.0 / n;
    }
    return power * LN2_HIGH + (2.0 * s * sum + power * LN2_LOW);
}

int64_t stk_rounded(double value)
{
    int64_t integer = (int64_t)value;
    double rest = value - (double)integer;

    return integer + (rest > 0.5 || (rest == 0.5 && integer % 2 != 0));
}

/* (whole + 1/2) squared. */
static double square_of_half(int64_t integer)
{
    return ((double)integer + 0.5) * ((double)integer + 0.5);
}

int64_t stk_root_rounded(double value)
{
    double root = value < 1.0 ? 1.0 : value;
    int64_t integer;

    /* Newton's method from above: halves until close, then doubles the good digits; 64 rounds are
     * more than 60 bits can need. */
    for (int round = 0; round < 64; round++) {
        double next = 0.5 * (root + value / root);

        if (next >= root) {
            break;
        }
        root = next;
    }
    /* Squares of halves are exact in a double up to 2^52: the rounding is right where it counts. */
    integer = (int64_t)(root + 0.5);
    while (integer > 0 && square_of_half(integer - 1) > value) {
        integer--;
    }
    while (square_of_half(integer) < value) {
        integer++;
    }
    if (square_of_half(integer) == value) {
        integer += integer % 2;
    } else if (integer % 2 && square_of_half(integer - 1) == value) {
        integer--;
    }
    return integer;
}
