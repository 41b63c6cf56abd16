/* XXH3-64, by libxxhash. */
#include "base/xxh3.h"

#include <xxhash.h>

uint64_t stk_xxh3_64(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

/* libxxhash allocates the state: it needs alignment to 64 bytes, and its size may change. */
struct stk_xxh3 *stk_xxh3_open(void)
{
    XXH3_state_t *state = XXH3_createState();

    if (state) {
        XXH3_64bits_reset(state);
    }
    return (struct stk_xxh3 *)state;
}

void stk_xxh3_add(struct stk_xxh3 *sum, const void *data, size_t bytes)
{
    XXH3_64bits_update((XXH3_state_t *)sum, data, bytes);
}

uint64_t stk_xxh3_done(struct stk_xxh3 *sum)
{
    uint64_t value = XXH3_64bits_digest((XXH3_state_t *)sum);

    XXH3_64bits_reset((XXH3_state_t *)sum);
    return value;
}

void stk_xxh3_close(struct stk_xxh3 *sum)
{
    XXH3_freeState((XXH3_state_t *)sum);
}
