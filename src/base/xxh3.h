/* base/xxh3.h: the checksum XXH3-64, of bytes at once or in pieces.
 * Owner: the code that opened a struct stk_xxh3. Threads: any; one for each struct stk_xxh3.
 * Memory: the library's, for each struct stk_xxh3. Bound: none. */
#ifndef BASE_XXH3_H
#define BASE_XXH3_H

#include <stddef.h>
#include <stdint.h>

/* XXH3-64 (libxxhash): detects damage, not manipulation. */
uint64_t stk_xxh3_64(const void *data, size_t bytes);

/* The same in pieces: open -add-> ... -done-> (starts again) -close. open returns NULL if there is
 * not enough memory. */
struct stk_xxh3;
struct stk_xxh3 *stk_xxh3_open(void);
void stk_xxh3_add(struct stk_xxh3 *sum, const void *data, size_t bytes);
uint64_t stk_xxh3_done(struct stk_xxh3 *sum);
void stk_xxh3_close(struct stk_xxh3 *sum); /* NULL is allowed */

#endif
