/* Goal: values inside members are right, whatever the threads, the storage, the sandbox and the
 * memory: masks and boxes where the image shows them, arrays and text as they were written; and
 * damage in any of them makes the sample bad, by the bad-data policy.
 * Method: samples in the simulator whose values are functions of their number; each image's pixels
 * encode their own positions, so that a batch shows its crop and flip, and the boxes and the mask
 * are computed again from that. Covers fill_value.c and sample_fill.c. */
#include "loader/sample/fill_value_test.h"

#include "base/mem.h"
#include "test/idle_blocks.h"

/* ---- results ---- */

/* The crop and flips that a slot's image shows. */
struct view {
    uint32_t left, top;
    bool across, down;
};

static bool check_image(const struct stoker_array *array, uint32_t slot, uint32_t sample,
                        struct view *view)
{
    const uint8_t *x = (const uint8_t *)array->data + (uint64_t)slot * 3 * CROP_WIDTH * CROP_HEIGHT;
    const uint8_t *y = x + CROP_WIDTH * CROP_HEIGHT, *number = y + CROP_WIDTH * CROP_HEIGHT;
    uint32_t last = CROP_WIDTH * CROP_HEIGHT - 1;

    view->across = x[0] > x[last];
    view->down = y[0] > y[last];
    view->left = view->across ? x[last] : x[0];
    view->top = view->down ? y[last] : y[0];
    return T_EQ("image", number[0], (uint8_t)sample);
}

static bool check_mask(const struct stoker_array *array, uint32_t slot, uint32_t sample,
                       const struct view *view)
{
    const uint8_t *mask = (const uint8_t *)array->data + (uint64_t)slot * CROP_WIDTH * CROP_HEIGHT;
    bool good = true;

    for (uint32_t i = 0; i < CROP_WIDTH * CROP_HEIGHT && good; i++) {
        uint32_t x = i % CROP_WIDTH, y = i / CROP_WIDTH;

        x = view->left + (view->across ? CROP_WIDTH - 1 - x : x);
        y = view->top + (view->down ? CROP_HEIGHT - 1 - y : y);
        good = mask[i] == mask_value(sample, x, y);
    }
    return T_TRUE("mask", good);
}

static double clipped(double value, double high)
{
    return value < 0 ? 0 : value > high ? high : value;
}

static bool check_boxes(const struct stoker_array *boxes, const struct stoker_array *labels,
                        uint32_t slot, uint32_t sample, const struct view *view)
{
    const float *got = (const float *)boxes->data + 4 * boxes->offsets[slot];
    const int64_t *label = (const int64_t *)labels->data + labels->offsets[slot];
    uint64_t count = 0;

    for (uint32_t i = 0; i < box_count(sample); i++) {
        double box[4], x1, y1, x2, y2;

        box_of(sample, i, box);
        x1 = clipped(box[0] - view->left, CROP_WIDTH);
        x2 = clipped(box[2] - view->left, CROP_WIDTH);
        y1 = clipped(box[1] - view->top, CROP_HEIGHT);
        y2 = clipped(box[3] - view->top, CROP_HEIGHT);
        if (x1 >= x2 || y1 >= y2) {
            continue;
        }
        if (boxes->offsets[slot] + count >= boxes->offsets[slot + 1]) {
            return T_TRUE("a box is missing", false);
        }
        T_TRUE("x1", got[4 * count] == (float)(view->across ? CROP_WIDTH - x2 : x1));
        T_TRUE("y1", got[4 * count + 1] == (float)(view->down ? CROP_HEIGHT - y2 : y1));
        T_TRUE("x2", got[4 * count + 2] == (float)(view->across ? CROP_WIDTH - x1 : x2));
        T_TRUE("y2", got[4 * count + 3] == (float)(view->down ? CROP_HEIGHT - y1 : y2));
        T_EQ("label", label[count], sample + i);
        count++;
    }
    return T_EQ("boxes", boxes->offsets[slot + 1] - boxes->offsets[slot], count) &&
           T_EQ("labels", labels->offsets[slot + 1] - labels->offsets[slot], count);
}

static bool check_rows(const struct rig_options *options, const struct stoker_array *rows,
                       uint32_t slot, uint32_t sample)
{
    const float *row = (const float *)rows->data + 2 * rows->offsets[slot];
    uint64_t count = rows->offsets[slot + 1] - rows->offsets[slot];
    bool good = true;

    for (uint32_t i = 0; i < 2 * count && good; i++) {
        good = row[i] == row_value(sample, i);
    }
    return T_EQ("rows", count, row_count(options, sample)) && T_TRUE("row", good);
}

static bool check_sides(const struct stoker_array *array, uint32_t slot, uint32_t sample)
{
    const int32_t *value = (const int32_t *)array->data + array->offsets[slot];
    uint64_t count = (uint64_t)side_of(sample, 0) * side_of(sample, 1);
    bool good = T_EQ("side count", array->shape_rank, 2);

    for (uint32_t i = 0; i < count && good; i++) {
        good = T_EQ("element", value[i],
                    sample + 10 * (i / side_of(sample, 1)) + i % side_of(sample, 1));
    }
    return good && T_EQ("elements", array->offsets[slot + 1] - array->offsets[slot], count) &&
           T_EQ("side", array->shapes[2 * slot], side_of(sample, 0)) &&
           T_EQ("side", array->shapes[2 * slot + 1], side_of(sample, 1));
}

static bool check_bytes(const char *name, const struct stoker_array *array, uint32_t slot,
                        const void *want, size_t bytes)
{
    return T_EQ(name, array->offsets[slot + 1] - array->offsets[slot], bytes) &&
           T_EQ(name, memcmp((char *)array->data + array->offsets[slot], want, bytes), 0);
}

static bool check_slot(const struct rig_options *options, const struct stoker_array *arrays,
                       uint32_t slot, uint32_t sample)
{
    char json[4096], text[256];
    uint8_t mp[16];
    const double *fixed = (const double *)arrays[FIXED].data + 3 * slot;
    struct view view;

    return T_TRUE("not damaged", !options->damaged || !is_damaged(sample)) &&
           check_image(&arrays[IMAGE], slot, sample, &view) &&
           check_mask(&arrays[MASK], slot, sample, &view) &&
           check_boxes(&arrays[BOXES], &arrays[LABELS], slot, sample, &view) &&
           T_EQ("int", ((int64_t *)arrays[INT].data)[slot], sample) &&
           T_TRUE("float", ((double *)arrays[FLOAT].data)[slot] == sample + 0.5) &&
           T_TRUE("fixed", fixed[0] == sample && fixed[1] == 2.5 && fixed[2] == -1) &&
           check_rows(options, &arrays[ROWS], slot, sample) &&
           check_sides(&arrays[SIDES], slot, sample) &&
           check_bytes("inner", &arrays[INNER], slot, text, text_of(sample, text)) &&
           check_bytes("text", &arrays[TEXT], slot, text, text_of(sample, text)) &&
           check_bytes("json", &arrays[JSON], slot, json, json_of(options, sample, json)) &&
           check_bytes("mp", &arrays[MSGPACK], slot, mp, msgpack_of(options, sample, mp));
}

/* Ids of the delivered samples. */
struct trace {
    uint64_t ids[4 * SAMPLES];
    uint64_t count;
};

static bool check_batch(const struct rig *rig, const struct stoker_batch *batch,
                        struct trace *trace)
{
    struct stoker_array arrays[STK_COUNT(fields)];
    bool good = true;

    for (size_t f = 0; f < STK_COUNT(fields); f++) {
        good = T_EQ("array", stoker_batch_array(batch, f, &arrays[f]), 0) && good;
    }
    for (uint32_t i = 0; i < stoker_batch_samples(batch) && good; i++) {
        uint64_t id = stoker_batch_ids(batch)[i];

        good = check_slot(rig->options, arrays, i, (uint32_t)id);
        if (trace->count < STK_COUNT(trace->ids)) {
            trace->ids[trace->count++] = id;
        }
    }
    return good;
}

/* Batches until `epochs` ended, or an error; the last status. */
static int stream(const struct rig *rig, struct stoker_loader *loader, uint32_t epochs,
                  struct trace *trace, struct stoker_error *error)
{
    struct stoker_batch *batch;
    int status = 0;

    while (epochs > 0 && status >= 0) {
        status = stoker_loader_next(loader, 30000, &batch, error);
        if (status == 1) {
            bool good = check_batch(rig, batch, trace);

            stoker_batch_close(batch);
            status = good ? 1 : -1;
        }
        epochs -= status == 0;
    }
    return status;
}

/* ---- tests ---- */

static const struct rig_options value_rows[] = {
    {.name = "1 thread", .threads = 1},
    {.name = "2 threads", .threads = 2},
    {.name = "3 threads, cold", .threads = 3, .cold = true},
    {.name = "sandboxed", .threads = 2, .sandbox = true},
    {.name = "replaced", .threads = 1, .damaged = true},
    {.name = "replaced, 3 threads", .threads = 3, .damaged = true},
    {.name = "replaced, cold", .threads = 2, .damaged = true, .cold = true},
    {.name = "replaced, sandboxed", .threads = 2, .damaged = true, .sandbox = true},
};

static void check_list(const char *name, const struct stoker_loader *loader)
{
    uint64_t count = stoker_loader_quarantine_count(loader);

    for (uint64_t i = 0; i < count; i++) {
        struct stoker_quarantine_entry entry = {.struct_size = sizeof entry};

        T_EQ(name, stoker_loader_quarantine(loader, i, &entry), 0);
        if (T_TRUE(name, is_damaged((uint32_t)entry.sample))) {
            T_EQ(entry.reason, entry.status, damage_status[damage_of((uint32_t)entry.sample)]);
        }
    }
    T_EQ(name, count, SAMPLES / 11);
}

/* Each of the rows: all values right, and the same samples in the same order. */
static void test_values(void)
{
    static struct trace undamaged, replaced, trace;

    T_EACH(rig_options, row, value_rows)
    {
        struct trace *want = row->damaged ? &replaced : &undamaged;
        struct stoker_loader *loader;
        struct stoker_error error = {0};
        struct rig rig;

        trace.count = 0;
        if (!rig_open(&rig, row)) {
            return;
        }
        loader = open_loader(&rig, STOKER_ON_ERROR_SKIP, &error);
        T_EQ(row->name, stream(&rig, loader, 2, &trace, &error), 0);
        if (row->damaged) {
            check_list(row->name, loader);
        }
        stoker_loader_close(loader);
        rig_close(&rig);
        if (want->count == 0) {
            *want = trace;
        }
        T_EQ(row->name, trace.count, 2 * (SAMPLES / BATCH * BATCH));
        T_EQ(row->name, memcmp(trace.ids, want->ids, trace.count * sizeof trace.ids[0]), 0);
    }
}

/* Under raise the first damaged sample ends the stream, and is named. */
static void test_raise(void)
{
    static const struct rig_options options = {.threads = 2, .damaged = true};
    static struct trace trace;
    struct stoker_error error = {0};
    struct stoker_loader *loader;
    struct rig rig;
    uint32_t sample;

    if (!rig_open(&rig, &options)) {
        return;
    }
    loader = open_loader(&rig, STOKER_ON_ERROR_RAISE, &error);
    T_TRUE("raise", stream(&rig, loader, 1, &trace, &error) < 0);
    T_ERROR("raise", &error);
    sample = (uint32_t)strtoul(error.key + (error.key[0] == 's'), NULL, 10);
    T_TRUE("raise", is_damaged(sample));
    T_EQ("raise", error.status, damage_status[damage_of(sample)]);
    T_STR("raise", error.shard, "/data/train.tar");
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* A truncated mask is good under some crops: it must not be known as damaged, or a loader that
 * resumes without that knowledge would return other samples than the uninterrupted one. */
static void test_drawn(void)
{
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct rig_options options = {.threads = threads, .cut_masks = true};
        static struct trace undamaged, head, rest;
        struct stoker_state state;
        struct stoker_error error = {0};
        struct stoker_loader *loader;
        uint32_t good = 0;
        struct rig rig;

        undamaged.count = head.count = rest.count = 0;
        if (!rig_open(&rig, &options)) {
            return;
        }
        loader = open_loader(&rig, STOKER_ON_ERROR_SKIP, &error);
        T_EQ("complete", stream(&rig, loader, 4, &undamaged, &error), 0);
        stoker_loader_close(loader);
        loader = open_loader(&rig, STOKER_ON_ERROR_SKIP, &error);
        T_EQ("head", stream(&rig, loader, 2, &head, &error), 0);
        stoker_loader_state(loader, &state);
        stoker_loader_close(loader);
        loader = open_loader(&rig, STOKER_ON_ERROR_SKIP, &error);
        T_EQ("state", stoker_loader_set_state(loader, &state, &error), 0);
        T_EQ("rest", stream(&rig, loader, 2, &rest, &error), 0);
        stoker_loader_close(loader);
        rig_close(&rig);
        T_EQ("both", head.count + rest.count, undamaged.count);
        T_EQ("head", memcmp(head.ids, undamaged.ids, head.count * sizeof head.ids[0]), 0);
        T_EQ("rest", memcmp(rest.ids, undamaged.ids + head.count, rest.count * sizeof rest.ids[0]),
             0);
        for (uint64_t i = 0; i < undamaged.count; i++) {
            good += undamaged.ids[i] % 4 == 1;
        }
        /* Of 176 cut masks some were decoded, and some were not. */
        T_TRUE("some crops are good", good > 40 && good < 160);
    }
}

static const struct rig_options tight_rows[] = {
    {.name = "one at a time", .threads = 3, .large = 40000, .memory_bytes_max = 10u << 20},
    {.name = "some", .threads = 3, .large = 40000, .memory_bytes_max = 16u << 20},
    {.name = "many ahead",
     .threads = 4,
     .large = 20000,
     .memory_bytes_max = 20u << 20,
     .batches_ahead = 12},
};

/* Out-of-line values reserve memory when they arrive: pending batches must not deadlock on it. A
 * wait that only its deadline (TIGHT_TIMEOUT_MS) ends would end stream()'s, too. */
static void test_tight(void)
{
    T_EACH(rig_options, row, tight_rows)
    {
        static struct trace trace;
        struct stoker_engine_info info = {.struct_size = sizeof info};
        struct stoker_error error = {0};
        struct stoker_loader *loader;
        struct rig rig;

        trace.count = 0;
        if (!rig_open(&rig, row)) {
            return;
        }
        loader = open_loader(&rig, STOKER_ON_ERROR_RAISE, &error);
        T_EQ(row->name, stream(&rig, loader, 3, &trace, &error), 0);
        T_STR(row->name, error.where, "");
        T_EQ(row->name, stoker_engine_info(rig.engine, &info), 0);
        T_TRUE(row->name, info.memory_bytes_peak <= row->memory_bytes_max);
        stoker_loader_close(loader);
        rig_close(&rig);
    }
}

/* A member whose parse would pass decode_bytes_max: LIMIT, before memory is taken. */
static void test_limit(void)
{
    static const struct rig_options options = {.threads = 1, .decode_bytes_max = 16u << 10};
    static struct trace trace;
    struct stoker_error error = {0};
    struct stoker_loader *loader;
    struct rig rig;

    if (rig_open(&rig, &options)) {
        loader = open_loader(&rig, STOKER_ON_ERROR_RAISE, &error);
        T_EQ("limit", stream(&rig, loader, 1, &trace, &error), STOKER_ERROR_LIMIT);
        T_HAS("limit", error.advice, "decode_bytes_max");
        stoker_loader_close(loader);
        rig_close(&rig);
    }
}

/* Returns how many allocations opening and a few batches took. */
static uint64_t run_failing(uint64_t fail_at)
{
    static const struct rig_options options = {.threads = 2, .damaged = true};
    static struct trace trace;
    struct stoker_loader_options loader_options = {.struct_size = sizeof loader_options,
                                                   .fields = fields,
                                                   .field_count = STK_COUNT(fields),
                                                   .batch_size = BATCH,
                                                   .batches_ahead = 2,
                                                   .on_error = STOKER_ON_ERROR_SKIP};
    struct stoker_loader *loader = NULL;
    struct stoker_batch *batch = NULL;
    struct stoker_error error = {0};
    struct rig rig;
    uint64_t before;
    int status;

    trace.count = 0;
    if (!rig_open(&rig, &options)) {
        return 0;
    }
    before = stk_mem_calls();
    stk_mem_fail_nth(fail_at);
    status = stoker_loader_open(&loader, rig.dataset, &loader_options, &error);
    for (int i = 0; i < 4 && status >= 0; i++) {
        status = stoker_loader_next(loader, 30000, &batch, &error);
        if (status == 1) {
            check_batch(&rig, batch, &trace);
            stoker_batch_close(batch);
        }
    }
    T_TRUE("an error or a result", fail_at > 0 || status == 1);
    if (status < 0) {
        T_ERROR("fail-nth", &error);
    }
    stk_mem_fail_nth(0);
    stoker_loader_close(loader);
    rig_close(&rig);
    return stk_mem_calls() - before;
}

static void test_fail_nth(void)
{
    int64_t alive = t_idle_blocks();
    uint64_t calls = run_failing(0);

    for (uint64_t n = 1; n <= calls; n += 1 + calls / T_SPREAD(120)) {
        run_failing(n);
    }
    T_EQ("no leak", t_idle_blocks(), alive);
}

static void refuse(const char *name, struct rig *rig, const struct stoker_field_options *wanted,
                   size_t count, const char *part)
{
    struct stoker_loader_options options = {
        .struct_size = sizeof options, .fields = wanted, .field_count = count, .batch_size = 1};
    struct stoker_error error = {0};
    struct stoker_loader *loader = NULL;

    T_EQ(name, stoker_loader_open(&loader, rig->dataset, &options, &error), STOKER_ERROR_ARGUMENT);
    T_ERROR(name, &error);
    T_HAS(name, error.what, part);
}

static void test_refused(void)
{
    static const struct rig_options options = {.threads = 1};
    struct stoker_field_options two[2] = {fields[IMAGE], fields[MASK]};
    struct stoker_field_options one = fields[ROWS];
    struct rig rig;

    if (!rig_open(&rig, &options)) {
        return;
    }
    refuse("no image", &rig, &fields[MASK], 1, "no image");
    two[1].follows = "other";
    refuse("another image", &rig, two, 2, "no image");
    two[1] = fields[MASK];
    two[1].dtype = STOKER_FLOAT32;
    refuse("dtype of a mask", &rig, two, 2, "dtype");
    two[1] = fields[BOXES];
    two[1].box_format = 9;
    refuse("box format", &rig, two, 2, "format");
    two[1] = fields[LABELS];
    two[1].labels = NULL;
    refuse("labels", &rig, two, 2, "labels");
    one.dtype = STOKER_BYTES;
    refuse("dtype", &rig, &one, 1, "dtype");
    one = fields[ROWS];
    one.shape[1] = 0;
    refuse("side", &rig, &one, 1, "side");
    one.shape[0] = one.shape[1] = one.shape[2] = 1 << 30;
    one.dimension_count = 3;
    refuse("size", &rig, &one, 1, "larger than memory");
    rig_close(&rig);
}

int main(void)
{
    test_values();
    test_raise();
    test_drawn();
    test_tight();
    test_limit();
    test_refused();
    test_fail_nth();
    return t_finish();
}
