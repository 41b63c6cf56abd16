/* storage/vfs/lazy_store.h: a store client that the first user opens: opening it starts threads,
 * which a process that only reads local files does not need.
 * Owner: the embedding struct. Threads: any. Memory: that of the store. Bound: one store. */
#ifndef STORAGE_VFS_LAZY_STORE_H
#define STORAGE_VFS_LAZY_STORE_H

#include "storage/object/store.h"

#include <pthread.h>

struct stk_lazy_store {
    struct stk_store_options
        options; /* const after init; the seed is set when the store is opened */
    pthread_mutex_t lock;
    struct {
        struct stk_store *store; /* set once */
    } locked;
};

void stk_lazy_store_init(struct stk_lazy_store *lazy, const struct stk_store_options *options);
/* Closes the store if it was opened. */
void stk_lazy_store_deinit(struct stk_lazy_store *lazy);
/* Opens the store on the first call. *store_out is valid until deinit. */
int stk_lazy_store_open(struct stk_lazy_store *lazy, struct stk_store **store_out,
                        struct stoker_error *error);
/* Returns the store, or NULL if nothing has opened it. */
struct stk_store *stk_lazy_store_get(struct stk_lazy_store *lazy);

#endif
