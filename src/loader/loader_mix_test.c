/* Goal: a loader of a mix returns the samples of the mix's order, on all ranks, with any threads;
 * the substitute of a damaged sample is of its source; changes of weights keep what was returned;
 * states of other mixes, and impossible mixes, are refused by name.
 * Method: tars in the simulator, as two and as three sources; streams compared with
 * stoker_order_slots of the same options. */
#include "loader/pending/error_policy_test.h"
#include "test/idle_blocks.h"

static const uint64_t ends[3] = {50, 150, SAMPLES}, weights[3] = {3, 2, 1};

static struct stoker_mix_options three(void)
{
    return (struct stoker_mix_options){.struct_size = sizeof(struct stoker_mix_options),
                                       .ends = ends,
                                       .weights = weights,
                                       .source_count = 3};
}

static uint32_t source_of(uint64_t sample)
{
    return sample < ends[0] ? 0 : sample < ends[1] ? 1 : 2;
}

static struct stoker_order *order_of(struct stoker_loader *loader,
                                     const struct stoker_mix_options *mix)
{
    struct stoker_order_options options = {.struct_size = sizeof options, .mix = mix};
    struct stoker_order *order = NULL;

    T_EQ("settings", stoker_loader_order(loader, &options), 0);
    T_EQ("order", stoker_order_open(&order, &options, NULL), 0);
    return order;
}

/* Checks one rank's stream, epochs 0 and 1, against the order. */
static void check_rank(struct rig *rig, struct stoker_loader_options options, const char *name)
{
    static struct trace trace;
    struct stoker_loader *loader = open_loader(rig, options);
    struct stoker_order *order = order_of(loader, options.mix);
    struct stoker_stats stats = {.struct_size = sizeof stats};
    struct stoker_error error = {0};
    uint64_t sum = 0, part, at = 0;
    bool right = true;

    trace.count = 0;
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        uint64_t steps = stoker_order_steps(order, epoch);

        T_EQ(name, stoker_loader_batches(loader, epoch), (long long)steps);
        T_EQ(name, stoker_order_samples(order), (long long)stoker_loader_samples(loader));
        for (uint64_t step = 0; step < steps; step++) {
            struct stoker_slot slots[64];
            int count = stoker_order_slots(order, epoch, step, options.rank, 0, slots, 64);

            T_EQ(name, take(loader, &trace, &error), 1);
            for (int i = 0; i < count; i++, at++) {
                right &= at < trace.count && trace.ids[at] == slots[i].sample;
            }
        }
        T_EQ(name, take(loader, &trace, &error), 0);
        T_EQ(name, stoker_order_fingerprint(order, epoch, 0, steps, &part), 0);
        sum += part;
    }
    T_TRUE(name, right);
    T_EQ(name, trace.count, (long long)at);
    T_EQ(name, stoker_loader_stats(loader, &stats), 0);
    T_EQ(name, stats.fingerprint, (long long)sum);
    stoker_order_close(order);
    stoker_loader_close(loader);
}

static const struct stream_row {
    const char *name;
    uint32_t threads, world_size, batch, tail, end;
    uint64_t unit, epoch_samples;
} stream_rows[] = {
    {"one rank", 1, 1, 24, STOKER_TAIL_WRAP, STOKER_MIX_REPEAT, 1, 0},
    {"3 threads, 2 ranks", 3, 2, 12, STOKER_TAIL_DROP, STOKER_MIX_REPEAT, 1, 250},
    {"3 ranks", 2, 3, 8, STOKER_TAIL_KEEP, STOKER_MIX_STOP, 1, 0},
    {"padded", 2, 2, 16, STOKER_TAIL_PAD, STOKER_MIX_RENORMALISE, 1, 0},
    {"steps of one source", 2, 2, 12, STOKER_TAIL_WRAP, STOKER_MIX_REPEAT, 24, 0},
    {"an epoch shorter than a step", 1, 1, 24, STOKER_TAIL_WRAP, STOKER_MIX_REPEAT, 1, 7},
};

static void test_streams(void)
{
    static const uint64_t changed[3] = {0, 1, 1};
    struct stoker_mix_change change = {96, changed};

    T_EACH(stream_row, row, stream_rows)
    {
        struct stoker_mix_options mix = three();
        struct rig rig;

        mix.end = row->end;
        mix.unit_samples = row->unit;
        mix.epoch_samples = row->epoch_samples;
        mix.changes = &change;
        mix.change_count = row->end == STOKER_MIX_REPEAT;
        if (!rig_open(&rig, row->threads, 0, false)) {
            return;
        }
        for (uint32_t rank = 0; rank < row->world_size; rank++) {
            check_rank(&rig,
                       (struct stoker_loader_options){.batch_size = row->batch,
                                                      .rank = rank,
                                                      .world_size = row->world_size,
                                                      .tail = row->tail,
                                                      .seed = 5,
                                                      .mix = &mix},
                       row->name);
        }
        rig_close(&rig);
    }
}

/* 2 of 5 samples are damaged. */
static void test_substitutes(void)
{
    static struct trace trace;
    struct stoker_mix_options mix = three();
    struct stoker_loader_options options = {
        .batch_size = 20, .tail = STOKER_TAIL_WRAP, .seed = 5, .mix = &mix};
    struct stoker_error error = {0};
    struct stoker_loader *loader;
    struct stoker_order *order;
    uint64_t replaced = 0;
    bool own = true;
    struct rig rig;

    if (!rig_open(&rig, 2, 5, false)) {
        return;
    }
    trace.count = 0;
    loader = open_loader(&rig, options);
    order = order_of(loader, &mix);
    for (uint64_t step = 0; step < 10; step++) {
        struct stoker_slot slots[20];

        T_EQ("slots", stoker_order_slots(order, 0, step, 0, 0, slots, 20), 20);
        T_EQ("take", take(loader, &trace, &error), 1);
        for (uint64_t i = 0; i < 20; i++) {
            uint64_t id = trace.ids[20 * step + i];

            replaced += id != slots[i].sample;
            own &= source_of(id) == source_of(slots[i].sample);
            own &= !is_damaged((uint32_t)id, 5);
        }
    }
    T_TRUE("of the same source", own);
    T_TRUE("some were replaced", replaced > 40);
    stoker_order_close(order);
    stoker_loader_close(loader);
    rig_close(&rig);
}

/* Takes so many batches; the ids. */
static void take_some(struct stoker_loader *loader, uint64_t batches, struct trace *trace)
{
    struct stoker_error error = {0};

    trace->count = 0;
    while (batches > 0) {
        batches -= take(loader, trace, &error) == 1;
    }
}

static void test_change(void)
{
    static const uint64_t changed[3] = {1, 0, 0};
    static struct trace before, want, got;
    struct stoker_mix_options mix = three(), later;
    struct stoker_loader_options options = {
        .batch_size = 20, .tail = STOKER_TAIL_WRAP, .seed = 5, .mix = &mix};
    struct stoker_mix_change change = {0, changed};
    struct stoker_state state, own;
    struct stoker_error error = {0};
    struct stoker_loader *loader, *other;
    struct rig rig;

    if (!rig_open(&rig, 2, 0, false)) {
        return;
    }
    loader = open_loader(&rig, options);
    take_some(loader, 22, &before);
    T_EQ("border", stoker_loader_mix_change_position(loader, 0, &change.position), 0);
    T_TRUE("behind what was given", change.position >= 440);
    T_EQ("state", stoker_loader_state(loader, &state), 0);
    later = mix;
    later.changes = &change;
    later.change_count = 1;
    options.mix = &later;
    other = open_loader(&rig, options);
    T_EQ("another mix", stoker_loader_set_state(other, &state, &error), STOKER_ERROR_STATE);
    T_ERROR("another mix", &error);
    T_HAS("another mix", error.where, "mix");
    T_EQ("its own state", stoker_loader_state(other, &own), 0);
    state.mix = own.mix;
    T_EQ("with its own", stoker_loader_set_state(other, &state, &error), 0);
    take_some(loader, 30, &want);
    take_some(other, 30, &got);
    for (uint64_t i = 0; i < want.count; i++) {
        if (440 + i < change.position) {
            T_EQ("retained", got.ids[i], (long long)want.ids[i]);
        } else {
            T_EQ("changed", source_of(got.ids[i]), 0);
        }
    }
    T_TRUE("there was a change", 440 + want.count > change.position);
    state.epoch = UINT64_MAX;
    T_EQ("distant", stoker_loader_set_state(other, &state, &error), STOKER_ERROR_STATE);
    T_EQ("distant", stoker_loader_set_epoch(other, UINT64_MAX, &error), STOKER_ERROR_ARGUMENT);
    stoker_loader_close(loader);
    stoker_loader_close(other);
    rig_close(&rig);
}

static const struct refused_row {
    const char *name, *what;
    uint64_t first_end;
    uint32_t groups, source_count, end;
    size_t struct_size;
    bool weights, packed;
    int want;
} refused_rows[] = {
    {"good", "", 50, 1, 3, 1, sizeof(struct stoker_mix_options), true, false, 0},
    {"groups", "groups", 50, 1000, 3, 1, sizeof(struct stoker_mix_options), true, false,
     STOKER_ERROR_ARGUMENT},
    {"ends", "samples", 0, 1, 3, 1, sizeof(struct stoker_mix_options), true, false,
     STOKER_ERROR_ARGUMENT},
    {"no sources", "usable", 50, 1, 0, 1, sizeof(struct stoker_mix_options), true, false,
     STOKER_ERROR_ARGUMENT},
    {"no such end", "usable", 50, 1, 3, 9, sizeof(struct stoker_mix_options), true, false,
     STOKER_ERROR_ARGUMENT},
    {"no weights", "usable", 50, 1, 3, 1, sizeof(struct stoker_mix_options), false, false,
     STOKER_ERROR_ARGUMENT},
    {"no size", "struct_size", 50, 1, 3, 1, 0, true, false, STOKER_ERROR_ARGUMENT},
    {"packed", "compressed shards", 50, 1, 3, 1, sizeof(struct stoker_mix_options), true, true,
     STOKER_ERROR_UNSUPPORTED},
};

static void test_refused(void)
{
    T_EACH(refused_row, row, refused_rows)
    {
        uint64_t own_ends[3] = {row->first_end, 150, SAMPLES}, position;
        struct stoker_mix_options mix = {.struct_size = row->struct_size,
                                         .ends = own_ends,
                                         .weights = row->weights ? weights : NULL,
                                         .source_count = row->source_count,
                                         .end = row->end};
        struct stoker_loader_options options = {.struct_size = sizeof options,
                                                .fields = fields,
                                                .field_count = STK_COUNT(fields),
                                                .batch_size = 4,
                                                .group_count = row->groups,
                                                .mix = &mix};
        struct stoker_order_options order = {.struct_size = sizeof order};
        struct stoker_loader *loader = NULL;
        struct stoker_error error = {0};
        struct rig rig;

        if (!rig_open(&rig, 1, 0, row->packed)) {
            return;
        }
        T_EQ(row->name, stoker_loader_open(&loader, rig.dataset, &options, &error), row->want);
        if (row->want < 0) {
            T_ERROR(row->name, &error);
            T_HAS(row->name, error.what, row->what);
        } else {
            T_EQ("the mix is required", stoker_loader_order(loader, &order), STOKER_ERROR_ARGUMENT);
            stoker_loader_close(loader);
            loader = open_loader(&rig, (struct stoker_loader_options){.batch_size = 4});
            T_EQ("no mix", stoker_loader_mix_change_position(loader, 0, &position),
                 STOKER_ERROR_ARGUMENT);
            T_EQ("no mix", stoker_loader_samples(loader), SAMPLES);
        }
        stoker_loader_close(loader);
        rig_close(&rig);
    }
}

/* Urls of one path, of a pattern, and of a folder. */
static void test_url_ends(void)
{
    static const char *const urls[] = {"/data/train-003.tar", "/data/train-{000..001}.tar",
                                       "/data/train-00[2].tar"};
    static const uint64_t want[] = {50, 150, 200};
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = urls, .url_count = STK_COUNT(urls)};
    struct stoker_dataset *dataset = NULL;
    struct rig rig;
    uint64_t end;

    if (!rig_open(&rig, 1, 0, false)) {
        return;
    }
    T_EQ("open", stoker_dataset_open(&dataset, rig.engine, &options, NULL), 0);
    for (size_t i = 0; i < STK_COUNT(urls); i++) {
        T_EQ(urls[i], stoker_dataset_url_end(dataset, i, &end), 0);
        T_EQ(urls[i], end, (long long)want[i]);
    }
    T_EQ("past them", stoker_dataset_url_end(dataset, 3, &end), STOKER_ERROR_ARGUMENT);
    stoker_dataset_close(dataset);
    rig_close(&rig);
}

int main(void)
{
    test_streams();
    test_substitutes();
    test_change();
    test_refused();
    test_url_ends();
    T_EQ("no leak", t_idle_blocks(), 0);
    return t_finish();
}
