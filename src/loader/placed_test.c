/* Goal: a value that is a read by itself, from a store, comes straight to its place in the batch.
 * Method: the simulated world, which says to be far away and keeps where its reads shall go; the
 * values' addresses are among them. Covers place_of in fetch.c. */
#include "loader/policy_test.h"

#define BATCH 16u

/* One a rig: what is on its way when that is closed ends later. */
static struct far {
    struct stk_io_table table; /* first: a far world's */
    const struct stk_io_table *near;
    const uint8_t *buffers[4 * SAMPLES]; /* of the fetcher; the test's when batches have come */
    _Atomic uint32_t count;
} fars[3];

static uint32_t far_bytes(struct stk_io *io, struct stk_file *file)
{
    (void)io;
    (void)file;
    return 1; /* nothing is joined */
}

static int far_submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads)
{
    struct far *far = (struct far *)(uintptr_t)io->table;

    for (struct stk_read *it = reads; it && far->count < STK_COUNT(far->buffers); it = it->next) {
        far->buffers[far->count] = it->buffer;
        far->count++;
    }
    return far->near->submit(io, queue, reads);
}

static void make_far(struct stk_io *world, struct far *far)
{
    far->near = world->table;
    far->table = *world->table;
    far->table.far_bytes = far_bytes;
    far->table.submit = far_submit;
    world->table = &far->table;
}

static uint32_t count_placed(const struct far *far, const struct stoker_batch *batch)
{
    struct stoker_array values;
    uint32_t placed = 0, count = far->count;

    stoker_batch_array(batch, 0, &values);
    for (uint32_t i = 0; i < stoker_batch_samples(batch); i++) {
        const uint8_t *got = (const uint8_t *)values.data + values.offsets[i];
        uint32_t sample = (uint32_t)stoker_batch_ids(batch)[i], at = 0;
        uint8_t value[2048];

        T_EQ("value", memcmp(got, value, value_of(sample, value)), 0);
        while (at < count && far->buffers[at] != got) {
            at++;
        }
        placed += at < count;
    }
    return placed;
}

/* fails: so many reads at first. */
static void test_placed(const char *name, struct far *far, uint32_t fields_used, uint32_t fails)
{
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = fields,
                                            .field_count = fields_used,
                                            .io_retry_wait_ms = 1,
                                            .batch_size = BATCH};
    struct stk_world_rule cold = {.fault = STK_FAULT_COLD};
    struct stk_world_rule failing = {.fault = STK_FAULT_EIO, .times = fails};
    struct stoker_loader *loader = NULL;
    struct stoker_batch *batch;
    struct rig rig;
    uint64_t placed = 0, samples = 0;

    if (!rig_open(&rig, 2, 0, false)) {
        return;
    }
    make_far(rig.world, far);
    stk_world_rule(rig.world, &cold);
    if (fails > 0) {
        stk_world_rule(rig.world, &failing);
    }
    T_EQ(name, stoker_loader_open(&loader, rig.dataset, &options, NULL), 0);
    while (stoker_loader_next(loader, 20000, &batch, NULL) == 1) {
        placed += count_placed(far, batch);
        samples += stoker_batch_samples(batch);
        stoker_batch_close(batch);
    }
    T_EQ(name, samples, SAMPLES / BATCH * BATCH);
    T_EQ(name, placed, fields_used == 1 ? samples : 0);
    /* What is on its way when nobody wants it any more does no harm. */
    T_EQ(name, stoker_loader_set_epoch(loader, 1, NULL), 0);
    T_EQ(name, stoker_loader_next(loader, 20000, &batch, NULL), 1);
    stoker_batch_close(batch);
    stoker_loader_close(loader);
    rig_close(&rig);
}

int main(void)
{
    test_placed("alone", &fars[0], 1, 0);
    test_placed("some reads fail", &fars[1], 1, 5);
    test_placed("with a label from another member", &fars[2], 2, 0);
    return t_finish();
}
