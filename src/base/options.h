/* base/options.h: one rule for public structs that begin with struct_size, so that programs and
 * libraries of different versions work together: new fields are only added at the end of a struct,
 * and 0 in a field means its default.
 *
 *   the caller's struct   options (the library reads)        output (the library writes)
 *   shorter               missing fields are 0               missing fields are left out
 *   longer                the rest must be 0, else ARGUMENT  the rest is set to 0
 *   shorter than bytes_min, or longer than the limit below   STOKER_ERROR_ARGUMENT
 *
 * Owner: the caller; the structs are borrowed. Threads: any. Memory: none.
 * Bound: STK_OPTIONS_BYTES_MAX, or twice the size that this library knows if that is more. */
#ifndef BASE_OPTIONS_H
#define BASE_OPTIONS_H

#include "base/base.h"

/* A larger struct_size is no size: the program did not set it. */
#define STK_OPTIONS_BYTES_MAX 4096u

/* Fills *options_out (of `bytes` bytes) from the caller's struct `given`, and sets its struct_size
 * to `bytes`. bytes_min: size of the first version of the struct, at least sizeof(size_t). `name`
 * is the place of an error: "loader options".
 * Returns 0 on success, STOKER_ERROR_ARGUMENT (and a zeroed *options_out) if `given` is NULL, if
 * struct_size is out of range, or if a field is set that this library does not know. */
int stk_options_read(void *options_out, size_t bytes, size_t bytes_min, const void *given,
                     const char *name, struct stoker_error *error);

/* Checks struct_size of a struct that the library will fill in. `bytes` is the size that this
 * library knows. Returns 0 on success, STOKER_ERROR_ARGUMENT if struct_size is out of range or the
 * struct is NULL. */
int stk_options_check_output(const void *output, size_t bytes, size_t bytes_min, const char *name,
                             struct stoker_error *error);
/* Copies *full (of `bytes` bytes) to the caller's struct, whose struct_size stays. Returns as
 * stk_options_check_output does with the smallest bytes_min; *output is unchanged on failure. */
int stk_options_write_output(void *output, const void *full, size_t bytes, const char *name,
                             struct stoker_error *error);

#endif
