/* A store client that is opened by its first user. */
#include "storage/vfs/lazy_store.h"

#include "io/clock.h"

void stk_lazy_store_init(struct stk_lazy_store *lazy, const struct stk_store_options *options)
{
    *lazy = (struct stk_lazy_store){.options = *options};
    pthread_mutex_init(&lazy->lock, NULL);
}

void stk_lazy_store_deinit(struct stk_lazy_store *lazy)
{
    stk_store_close(lazy->locked.store);
    pthread_mutex_destroy(&lazy->lock);
}

int stk_lazy_store_open(struct stk_lazy_store *lazy, struct stk_store **store_out,
                        struct stoker_error *error)
{
    struct stk_store_options options = lazy->options;
    int status = 0;

    options.seed = stk_clock_wall_ns();
    pthread_mutex_lock(&lazy->lock);
    if (!lazy->locked.store) {
        status = stk_store_open(&lazy->locked.store, &options, error);
    }
    *store_out = lazy->locked.store;
    pthread_mutex_unlock(&lazy->lock);
    return status;
}

struct stk_store *stk_lazy_store_get(struct stk_lazy_store *lazy)
{
    struct stk_store *store;

    pthread_mutex_lock(&lazy->lock);
    store = lazy->locked.store;
    pthread_mutex_unlock(&lazy->lock);
    return store;
}
