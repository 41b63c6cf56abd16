/* Values of substitutes, kept until the batch is laid out. */
#include "loader/pending/value_override.h"

#include "base/mem.h"
#include "engine/engine.h"

#include <errno.h>
#include <string.h>

static void override_free(struct stk_pending_batch *pending, struct stk_value_override *override)
{
    if (override) {
        stk_budget_release(&pending->loader->engine->budget, override->bytes);
        stk_free(override->data);
        stk_free(override);
    }
}

int stk_value_override_add(struct stk_pending_batch *pending, struct stk_worker *worker,
                           uint32_t field, uint32_t slot, struct stk_view value,
                           struct stoker_error *error)
{
    struct stoker_engine *engine = pending->loader->engine;
    struct stk_value_override *override;
    int status = stk_engine_reserve(engine, value.bytes, pending->memory_wait_ms,
                                    "a substitute's value", error);

    if (status < 0) {
        return status;
    }
    override = stk_alloc(1, sizeof *override);
    if (override) {
        override->data = stk_alloc(value.bytes, 1);
    }
    if (!override || !override->data) {
        stk_free(override);
        stk_budget_release(&engine->budget, value.bytes);
        return stk_fail(error, -ENOMEM, "cannot store a value", "free memory", "%zu bytes",
                        value.bytes);
    }
    memcpy(override->data, value.data, value.bytes);
    override->bytes = value.bytes;
    override->field = field;
    override->slot = slot;
    stk_engine_lock(engine, worker);
    override->next = pending->locked.overrides;
    pending->locked.overrides = override;
    stk_engine_unlock(engine);
    return 0;
}

void stk_value_override_remove(struct stk_pending_batch *pending, struct stk_worker *worker,
                               uint32_t field, uint32_t slot)
{
    struct stk_value_override **link = &pending->locked.overrides, *gone = NULL;

    stk_engine_lock(pending->loader->engine, worker);
    while (*link) {
        if ((*link)->field == field && (*link)->slot == slot) {
            gone = *link;
            *link = gone->next;
            break;
        }
        link = &(*link)->next;
    }
    stk_engine_unlock(pending->loader->engine);
    override_free(pending, gone);
}

const struct stk_value_override *stk_value_override_find(const struct stk_pending_batch *pending,
                                                         uint32_t field, uint32_t slot)
{
    const struct stk_value_override *it = pending->locked.overrides;

    while (it && (it->field != field || it->slot != slot)) {
        it = it->next;
    }
    return it;
}

void stk_value_overrides_free(struct stk_pending_batch *pending)
{
    struct stk_value_override *next;

    for (struct stk_value_override *it = pending->locked.overrides; it; it = next) {
        next = it->next;
        override_free(pending, it);
    }
    pending->locked.overrides = NULL;
}
