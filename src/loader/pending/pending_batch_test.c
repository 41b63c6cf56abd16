/* Goal: the ring keeps the order of delivery: slots of the oldest batch are claimed first, batches
 * complete in any order and are taken in theirs; a cancelled batch is freed when its last claimed
 * slot ends, and the last pin is reported; the error of the lowest slot counts.
 * Method: batches without samples' bytes in a loader that consists of a ring only. */
#include "loader/pending/pending_batch.h"

#include "base/mem.h"
#include "loader/pending/error_policy_test.h"

#define SLOTS 4u

static struct stoker_loader *ring_open(struct rig *rig)
{
    struct stoker_loader *loader = stk_alloc(1, sizeof *loader);

    loader->engine = rig->engine;
    loader->partition =
        (struct stk_partition){.sample_count = 64, .batch_size = SLOTS, .world_size = 1};
    pthread_cond_init(&loader->ready, NULL);
    loader->locked.pins = 1; /* the user's */
    loader->locked.ahead = 2;
    return loader;
}

static void ring_close(struct stoker_loader *loader)
{
    pthread_cond_destroy(&loader->ready);
    stk_free(loader);
}

static struct stk_pending_batch *add_batch(struct stoker_loader *loader, uint64_t step)
{
    struct stk_pending_batch *pending = stk_alloc(1, sizeof *pending);

    pending->loader = loader;
    pending->samples = SLOTS;
    pending->position = step * SLOTS;
    pending->next_position = pending->position + SLOTS;
    loader->locked.pins++;
    stk_pending_batch_enqueue_locked(pending);
    return pending;
}

static bool end_slots(struct stk_pending_batch *pending, uint32_t count)
{
    struct stk_loader_counters counters = {.samples = count, .substituted = 1};

    return stk_pending_batch_end_slots_locked(pending, count, &counters);
}

static void test_ring(struct rig *rig)
{
    struct stoker_loader *loader = ring_open(rig);
    struct stk_pending_batch *first, *second;

    stk_engine_lock(rig->engine, NULL);
    first = add_batch(loader, 0);
    second = add_batch(loader, 1);
    T_TRUE("oldest", stk_pending_batch_claimable_locked(loader) == first);
    T_EQ("claim", stk_pending_batch_claim_locked(first, 3), 0);
    T_EQ("claim", stk_pending_batch_claim_locked(first, 1), 3);
    T_TRUE("next", stk_pending_batch_claimable_locked(loader) == second);
    T_EQ("claim", stk_pending_batch_claim_locked(second, SLOTS), 0);
    T_TRUE("none", stk_pending_batch_claimable_locked(loader) == NULL);
    T_TRUE("second is complete", !end_slots(second, SLOTS));
    T_TRUE("first is not", !end_slots(first, 1));
    T_EQ("head", loader->locked.head == first && first->locked.done_count < SLOTS, true);
    T_TRUE("now it is", !end_slots(first, 3));
    T_EQ("counters", loader->locked.counters.samples, 2 * SLOTS);
    stk_pending_batch_take_locked(loader);
    T_EQ("position", loader->locked.position, SLOTS);
    T_EQ("substitutes", loader->locked.counters.substituted, 2);
    T_TRUE("second is head", loader->locked.head == second && loader->locked.tail == second);
    stk_pending_batch_take_locked(loader);
    T_TRUE("empty", !loader->locked.head && !loader->locked.tail);
    T_EQ("delivered", loader->locked.delivered, 2 * SLOTS);
    T_EQ("pins", loader->locked.pins, 1);
    stk_engine_unlock(rig->engine);
    ring_close(loader);
}

static void test_cancel(struct rig *rig)
{
    struct stoker_loader *loader = ring_open(rig);
    struct stk_pending_batch *first;

    stk_engine_lock(rig->engine, NULL);
    first = add_batch(loader, 0);
    add_batch(loader, 1);
    stk_pending_batch_claim_locked(first, 2);
    stk_pending_batches_seek_locked(loader, 3, 8);
    T_TRUE("ring is empty", !loader->locked.head && loader->locked.pending_count == 0);
    T_EQ("the second is freed at once", loader->locked.pins, 2);
    T_EQ("epoch", loader->locked.open_epoch, 3);
    T_EQ("position", loader->locked.open_position, 8);
    T_EQ("generation", loader->locked.generation, 1);
    T_TRUE("a slot is left", !end_slots(first, 1));
    loader->locked.pins--; /* the user closes the loader */
    T_TRUE("the last pin", end_slots(first, 1));
    T_EQ("pins", loader->locked.pins, 0);
    stk_engine_unlock(rig->engine);
    ring_close(loader);
}

static const struct row {
    const char *name;
    struct {
        uint32_t slot;
        int status;
    } errors[2];
    uint32_t want_slot;
    int want_status;
} rows[] = {
    {"the lowest slot of bad samples",
     {{2, STOKER_ERROR_CORRUPT}, {1, STOKER_ERROR_FORMAT}},
     1,
     STOKER_ERROR_FORMAT},
    {"also in this order",
     {{1, STOKER_ERROR_FORMAT}, {2, STOKER_ERROR_CORRUPT}},
     1,
     STOKER_ERROR_FORMAT},
    {"the first error of storage", {{2, -EIO}, {1, STOKER_ERROR_TIMEOUT}}, 2, -EIO},
    {"the lower of a bad sample and storage",
     {{2, -EIO}, {1, STOKER_ERROR_CORRUPT}},
     1,
     STOKER_ERROR_CORRUPT},
};

static void test_fail(struct rig *rig)
{
    T_EACH(row, row, rows)
    {
        struct stk_pending_batch pending = {.samples = SLOTS};

        stk_engine_lock(rig->engine, NULL);
        for (int i = 0; i < 2; i++) {
            struct stoker_error error = {.status = row->errors[i].status};

            stk_pending_batch_fail_locked(&pending, row->errors[i].slot, &error);
        }
        stk_engine_unlock(rig->engine);
        T_EQ(row->name, pending.locked.error_slot, row->want_slot);
        T_EQ(row->name, pending.locked.error.status, row->want_status);
    }
}

int main(void)
{
    struct rig rig;

    if (rig_open(&rig, 1, 0, false)) {
        test_ring(&rig);
        test_cancel(&rig);
        test_fail(&rig);
        rig_close(&rig);
    }
    return t_finish();
}
