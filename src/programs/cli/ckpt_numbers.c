/* Numbers in the dtypes of safetensors, and their statistics. */
#include "programs/cli/ckpt.h"

#include <math.h>
#include <string.h>

enum number_kind { UNSIGNED = 1, SIGNED, FLOAT, HALF, BRAIN, DOUBLE };

static const struct form {
    const char *dtype;
    uint32_t bytes, kind;
} forms[] = {
    {"BOOL", 1, UNSIGNED}, {"U8", 1, UNSIGNED}, {"I8", 1, SIGNED},    {"U16", 2, UNSIGNED},
    {"I16", 2, SIGNED},    {"F16", 2, HALF},    {"BF16", 2, BRAIN},   {"U32", 4, UNSIGNED},
    {"I32", 4, SIGNED},    {"F32", 4, FLOAT},   {"U64", 8, UNSIGNED}, {"I64", 8, SIGNED},
    {"F64", 8, DOUBLE},
};

static const struct form *form_of(const char *dtype)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(forms[i].dtype, dtype) == 0) {
            return &forms[i];
        }
    }
    return NULL;
}

uint32_t ckpt_element_bytes(const char *dtype)
{
    const struct form *form = form_of(dtype);

    return form ? form->bytes : 0;
}

static double half(uint16_t bits)
{
    double sign = bits & 0x8000 ? -1 : 1;
    int exponent = bits >> 10 & 31, fraction = bits & 1023;

    if (exponent == 31) {
        return fraction ? (double)NAN : sign * (double)INFINITY;
    }
    return exponent == 0 ? sign * ldexp(fraction, -24)
                         : sign * ldexp(1024 + fraction, exponent - 25);
}

static double float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double number(const struct form *form, const uint8_t *from)
{
    uint64_t bits = 0;
    double value;

    memcpy(&bits, from, form->bytes); /* little-endian, as the file */
    switch (form->kind) {
    case UNSIGNED:
        return (double)bits;
    case SIGNED:
        return (double)((int64_t)(bits << (64 - 8 * form->bytes)) >> (64 - 8 * form->bytes));
    case HALF:
        return half((uint16_t)bits);
    case BRAIN:
        return float_of((uint32_t)bits << 16);
    case FLOAT:
        return float_of((uint32_t)bits);
    default:
        memcpy(&value, &bits, sizeof value);
        return value;
    }
}

double ckpt_number(const char *dtype, const void *data, size_t index)
{
    const struct form *form = form_of(dtype);

    return form ? number(form, (const uint8_t *)data + index * form->bytes) : (double)NAN;
}

/* Counts finite numbers by their place between low and high. */
static void fill_bins(struct ckpt_stats *stats, const struct form *form, const uint8_t *data,
                      size_t bytes)
{
    double width = (stats->high - stats->low) / CKPT_BINS;

    for (size_t i = 0; i < bytes / form->bytes; i++) {
        double value = number(form, data + i * form->bytes);
        double place = width > 0 ? (value - stats->low) / width : 0;

        if (!isnan(value) && !isinf(value)) {
            stats->bins[!(place > 0) ? 0 : place >= CKPT_BINS ? CKPT_BINS - 1 : (size_t)place]++;
        }
    }
}

bool ckpt_stats_add(struct ckpt_stats *stats, const char *dtype, const void *data, size_t bytes)
{
    const struct form *form = form_of(dtype);
    bool first = stats->count == 0;

    for (size_t i = 0; form && i < bytes / form->bytes; i++) {
        double value = number(form, (const uint8_t *)data + i * form->bytes);

        if (isnan(value)) {
            stats->nan++;
        } else if (isinf(value)) {
            stats->inf++;
        } else {
            stats->min = stats->count == 0 || value < stats->min ? value : stats->min;
            stats->max = stats->count == 0 || value > stats->max ? value : stats->max;
            stats->sum += value;
            stats->count++;
        }
    }
    if (form && first) {
        stats->low = stats->min;
        stats->high = stats->max;
    }
    if (form) {
        fill_bins(stats, form, data, bytes);
    }
    return form != NULL;
}
