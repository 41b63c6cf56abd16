/* Goal: ragged values become one array with offsets, and overrides replace the values that were
 * planned; a failed attempt's value is replaced; all memory is returned to the budget; the next
 * batch reserves the size of the largest batch.
 * Method: a pending batch of a pool, in a loader that has fields only. */
#include "loader/pending/ragged_layout.h"

#include "base/mem.h"
#include "loader/pending/error_policy_test.h"
#include "loader/pending/value_override.h"

#define SLOTS 3u

static const struct stk_batch_field_shape shapes[2] = {
    {.dtype = STOKER_INT64,
     .dimension_count = 1,
     .shape = {-1},
     .strides = {1},
     .ragged = true,
     .item_bytes = 8},
    {.dtype = STOKER_BYTES},
};

static void returned(void *owner)
{
    (void)owner;
}

static void open_loader_of(struct stoker_loader *loader, struct rig *rig)
{
    struct stk_batch_owner owner = {&rig->engine->budget, NULL, returned, returned};

    loader->engine = rig->engine;
    loader->field_count = 2;
    loader->out_of_line_count = 1;
    loader->fields[0].shape = shapes[0];
    loader->fields[0].out_of_line = true;
    loader->fields[1].shape = shapes[1];
    loader->out_of_line_bytes[0] = UINT64_MAX;
    T_EQ("pool", stk_batch_pool_open(&loader->pool, &owner, shapes, 2, SLOTS, NULL), 0);
}

static void fill(struct stk_pending_batch *pending, uint32_t slot, uint32_t count, int64_t first)
{
    struct stk_ragged_value *value;
    struct stoker_error error;

    T_EQ("alloc", stk_ragged_value_alloc(pending, 0, slot, count * 8ull, &value, &error), 0);
    for (uint32_t i = 0; i < count; i++) {
        memcpy(value->data + 8ull * i, &(int64_t){first + i}, 8);
    }
}

static void add_override(struct stk_pending_batch *pending, uint32_t slot, const char *text)
{
    struct stk_view value = {(const uint8_t *)text, strlen(text)};

    T_EQ("override", stk_value_override_add(pending, NULL, 1, slot, value, NULL), 0);
}

static void check_batch(const struct stoker_batch *batch)
{
    static const uint64_t rows[SLOTS + 1] = {0, 2, 2, 5}, bytes[SLOTS + 1] = {0, 2, 7, 9};
    static const int64_t values[5] = {10, 11, 30, 31, 32};

    T_EQ("rows", memcmp(batch->fields[0].offsets, rows, sizeof rows), 0);
    T_EQ("values", memcmp(batch->fields[0].data, values, sizeof values), 0);
    T_EQ("offsets", memcmp(batch->fields[1].offsets, bytes, sizeof bytes), 0);
    T_EQ("bytes", memcmp(batch->fields[1].data, "aalargecc", 9), 0);
}

/* granted: whether the reservation of the batch suffices for its values. */
static void run(struct stoker_loader *loader, uint64_t reserved_bytes)
{
    struct stk_pending_batch *pending = stk_alloc(1, sizeof *pending);
    uint64_t value_bytes[STK_BATCH_FIELDS_MAX] = {0, 6};
    uint64_t estimates[STK_BATCH_FIELDS_MAX] = {0};
    struct stoker_error error;

    pending->loader = loader;
    pending->samples = SLOTS;
    T_EQ("get", stk_batch_pool_get(loader->pool, SLOTS, value_bytes, &pending->batch, NULL), 0);
    value_bytes[0] = reserved_bytes;
    T_EQ("open", stk_ragged_values_open(pending, value_bytes, &error), 0);
    memcpy(pending->batch->fields[1].offsets, (uint64_t[]){0, 2, 4, 6}, 4 * sizeof(uint64_t));
    memcpy(pending->batch->fields[1].data, "aabbcc", 6);
    fill(pending, 0, 7, 70); /* of a failed attempt */
    fill(pending, 2, 3, 30);
    fill(pending, 0, 2, 10);
    fill(pending, 1, 0, 0);
    add_override(pending, 1, "of an attempt that failed");
    stk_value_override_remove(pending, NULL, 1, 1);
    T_TRUE("removed", !stk_value_override_find(pending, 1, 1));
    stk_value_override_remove(pending, NULL, 1, 1); /* none is left */
    add_override(pending, 1, "large");
    T_TRUE("found", stk_value_override_find(pending, 1, 1) != NULL);
    T_TRUE("other slot", !stk_value_override_find(pending, 1, 2));
    T_EQ("layout", stk_ragged_values_layout(pending, &error), 0);
    check_batch(pending->batch);
    T_TRUE("known", stk_ragged_values_estimate(pending, estimates));
    T_EQ("largest", estimates[0], 5 * 8);
    stk_pending_batch_close(pending);
}

int main(void)
{
    static struct stoker_loader loader;
    struct stk_pending_batch none = {.loader = &loader, .samples = SLOTS};
    uint64_t before, estimates[STK_BATCH_FIELDS_MAX] = {0};
    struct rig rig;

    if (!rig_open(&rig, 1, 0, false)) {
        return t_finish();
    }
    open_loader_of(&loader, &rig);
    before = rig.engine->budget.bytes;
    T_TRUE("not known", !stk_ragged_values_estimate(&none, estimates));
    run(&loader, 0);
    run(&loader, 1000);
    stk_batch_pool_trim(loader.pool);
    T_EQ("all is released", rig.engine->budget.bytes, before);
    stk_batch_pool_close(loader.pool);
    rig_close(&rig);
    return t_finish();
}
