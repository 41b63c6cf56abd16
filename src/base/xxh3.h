/* base/xxh3.h: the checksum XXH3-64.
 * Owner: who opened a struct stk_sum. Threads: any; one for each struct stk_sum.
 * Memory: the library's, for each struct stk_sum. Bound: none. */
#ifndef BASE_XXH3_H
#define BASE_XXH3_H

#include <stddef.h>
#include <stdint.h>

/* XXH3-64 (libxxhash): against damage, not against forgers. */
uint64_t stk_sum64(const void *data, size_t bytes);

/* The same over pieces: open -add-> ... -done-> (again from the start) -close. NULL: no memory. */
struct stk_sum;
struct stk_sum *stk_sum_open(void);
void stk_sum_add(struct stk_sum *sum, const void *data, size_t bytes);
uint64_t stk_sum_done(struct stk_sum *sum);
void stk_sum_close(struct stk_sum *sum); /* NULL is fine */

#endif
