/* Goal: a value that is a read by itself, from a store, is read directly to its place in the batch.
 * Method: the simulator in its remote mode, which records the destinations of its reads; the
 * values' addresses are among them. Covers slot_destination in fetcher.c, and copy_bytes in
 * sample_fill.c. */
#include "loader/pending/error_policy_test.h"

#define BATCH 16u
#define SHORTER 20u /* bytes that are left of a file */

/* One a rig: reads in flight when that is closed end later. */
static struct slow_io {
    struct stk_io_table table; /* first: used as a remote simulator */
    const struct stk_io_table *inner;
    /* of the fetcher; of the test once batches were returned */
    const uint8_t *buffers[4 * SAMPLES];
    _Atomic uint32_t count;
} fars[4];

static int slow_submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads)
{
    struct slow_io *slow_io = (struct slow_io *)(uintptr_t)io->table;

    for (struct stk_read *it = reads; it && slow_io->count < STK_COUNT(slow_io->buffers);
         it = it->next) {
        slow_io->buffers[slow_io->count] = it->buffer;
        slow_io->count++;
    }
    return slow_io->inner->submit(io, queue, reads);
}

static void make_slow(struct stk_io *world, struct slow_io *slow_io)
{
    slow_io->inner = world->table;
    slow_io->table = *world->table;
    slow_io->table.submit = slow_submit;
    world->table = &slow_io->table;
    stk_sim_file_ops(world)->round_trip_bytes = 1; /* nothing is joined */
}

static uint32_t count_placed(const struct slow_io *slow_io, const struct stoker_batch *batch)
{
    struct stoker_array values;
    uint32_t placed = 0, count = slow_io->count;

    stoker_batch_array(batch, 0, &values);
    for (uint32_t i = 0; i < stoker_batch_samples(batch); i++) {
        const uint8_t *got = (const uint8_t *)values.data + values.offsets[i];
        uint32_t sample = (uint32_t)stoker_batch_ids(batch)[i], at = 0;
        uint8_t value[2048];

        T_EQ("value", memcmp(got, value, value_of(sample, value)), 0);
        while (at < count && slow_io->buffers[at] != got) {
            at++;
        }
        placed += at < count;
    }
    return placed;
}

/* fails: so many reads at first. */
static void test_placed(const char *name, struct slow_io *slow_io, uint32_t fields_used,
                        uint32_t fails)
{
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = fields,
                                            .field_count = fields_used,
                                            .io_retry_wait_ms = 1,
                                            .batch_size = BATCH};
    struct stk_sim_rule cold = {.fault = STK_SIM_FAULT_COLD};
    struct stk_sim_rule failing = {.fault = STK_SIM_FAULT_EIO, .times = fails};
    struct stoker_loader *loader = NULL;
    struct stoker_batch *batch;
    struct rig rig;
    uint64_t placed = 0, samples = 0;

    if (!rig_open(&rig, 2, 0, false)) {
        return;
    }
    make_slow(rig.world, slow_io);
    stk_sim_add_rule(rig.world, &cold);
    if (fails > 0) {
        stk_sim_add_rule(rig.world, &failing);
    }
    T_EQ(name, stoker_loader_open(&loader, rig.dataset, &options, NULL), 0);
    while (stoker_loader_next(loader, 20000, &batch, NULL) == 1) {
        placed += count_placed(slow_io, batch);
        samples += stoker_batch_samples(batch);
        stoker_batch_close(batch);
    }
    T_EQ(name, samples, SAMPLES / BATCH * BATCH);
    T_EQ(name, placed, fields_used == 1 ? samples : 0);
    /* Reads in flight that are no longer wanted do no harm. */
    T_EQ(name, stoker_loader_set_epoch(loader, 1, NULL), 0);
    T_EQ(name, stoker_loader_next(loader, 20000, &batch, NULL), 1);
    stoker_batch_close(batch);
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* A file that became shorter after its place was measured: its value is what was read, without
 * bytes that were in its place before. */
static void test_shorter(struct slow_io *slow_io)
{
    static const char *const urls[] = {"/set"};
    static const struct stoker_field_options bytes_of[] = {
        {.name = "jpg", .kind = STOKER_FIELD_BYTES, .extensions = "jpg"}};
    struct stoker_dataset_options dataset = {
        .struct_size = sizeof dataset, .urls = urls, .url_count = 1};
    struct stoker_loader_options options = {
        .struct_size = sizeof options, .fields = bytes_of, .field_count = 1, .batch_size = BATCH};
    struct stk_sim_rule cold = {.fault = STK_SIM_FAULT_COLD};
    struct stk_sim_rule shorter = {
        .path = "/set/a/05.jpg", .fault = STK_SIM_FAULT_TRUNCATED, .offset = SHORTER};
    struct stoker_loader *loader = NULL;
    struct stoker_array values;
    struct stoker_batch *batch;
    struct rig rig;

    if (!rig_open(&rig, 2, 0, false)) {
        return;
    }
    for (uint32_t i = 0; i < BATCH; i++) {
        uint8_t value[2048];
        char path[32];

        snprintf(path, sizeof path, "/set/a/%02u.jpg", i);
        T_EQ("add", stk_sim_add(rig.world, path, value, value_of(i, value)), 0);
    }
    stoker_dataset_close(rig.dataset);
    T_EQ("open", stoker_dataset_open(&rig.dataset, rig.engine, &dataset, NULL), 0);
    make_slow(rig.world, slow_io);
    stk_sim_add_rule(rig.world, &cold);
    stk_sim_add_rule(rig.world, &shorter);
    T_EQ("open", stoker_loader_open(&loader, rig.dataset, &options, NULL), 0);
    T_EQ("next", stoker_loader_next(loader, 20000, &batch, NULL), 1);
    stoker_batch_array(batch, 0, &values);
    for (uint32_t i = 0; i < BATCH; i++) {
        uint32_t sample = (uint32_t)stoker_batch_ids(batch)[i];
        uint8_t value[2048];
        uint64_t bytes = value_of(sample, value);

        bytes = sample == 5 ? SHORTER : bytes;
        T_EQ("length", values.offsets[i + 1] - values.offsets[i], bytes);
        T_EQ("value",
             memcmp((const uint8_t *)values.data + values.offsets[i], value, (size_t)bytes), 0);
    }
    stoker_batch_close(batch);
    stoker_loader_close(loader);
    rig_close(&rig);
}

int main(void)
{
    test_placed("alone", &fars[0], 1, 0);
    test_placed("some reads fail", &fars[1], 1, 5);
    test_placed("with a label from another member", &fars[2], 2, 0);
    test_shorter(&fars[3]);
    return t_finish();
}
