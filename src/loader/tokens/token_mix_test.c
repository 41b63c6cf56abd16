/* Goal: a token loader of a mix returns at each position the row of the mix, from its file, for
 * every kind of rows; each position exactly once, with the order's fingerprint on every rank,
 * whatever worlds, batches, kills and new weights a run has; loaders of the same rows share their
 * packing plans, and others are refused; a row that is returned again gets a new fill in the
 * middle.
 * Method: three files in the simulator; random histories, their rows compared with those of a
 * loader in storage order, ids and fingerprints with stoker_order_open of the same mix
 * (token_loader.c, order_cursor.c, token_samples.c, packed_rows.c); every allocation fails once.
 * STOKER_TEST_LONG: 3,000 histories instead of 90. */
#include "base/mem.h"
#include "loader/tokens/token_samples.h"

#include "base/random.h"
#include "io/sim/sim.h"
#include "order/order.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define FILES 3u
#define EOD 3
#define CONTEXT 12u
#define WORLD_MAX 4u
#define BATCH_MAX 6u
#define CHANGES_MAX 5u
#define EPOCHS 2
#define EPOCH_SAMPLES 500u
#define ROWS_MAX 4096u

static const char *const paths[FILES] = {"/data/a.bin", "/data/b.bin", "/data/c.bin"};
static const uint32_t counts[FILES] = {4000, 1500, 700};
static uint16_t tokens_of[FILES][4000];

struct rig {
    struct stoker_engine *engine;
    struct stoker_tokens *tokens;
    struct stoker_token_loader *plain; /* in storage order, all in one batch */
    uint64_t ends[FILES];              /* in rows */
};

/* A run that stands at `state`, and the weights that it had until then. */
struct history {
    uint64_t key, drawn; /* random numbers */
    struct stoker_state state;
    struct stoker_mix_change changes[CHANGES_MAX];
    uint64_t weights[CHANGES_MAX + 1][FILES];
    uint32_t change_count, groups, world, batch;
    uint64_t kills, resizes;
    uint64_t ids[EPOCHS][2 * EPOCH_SAMPLES];
    uint8_t given[EPOCHS][2 * EPOCH_SAMPLES];
    bool same_states, same_rows;
};

static uint64_t draw(struct history *history, uint64_t below)
{
    return stk_random_key(history->key, history->drawn++) % below;
}

static struct stoker_token_loader_options options_of(uint32_t rows)
{
    struct stoker_token_loader_options options = {.struct_size = sizeof options,
                                                  .context = CONTEXT,
                                                  .batch_size = ROWS_MAX,
                                                  .rows = rows,
                                                  .has_eod = 1,
                                                  .eod = EOD,
                                                  .chunk_documents = 5,
                                                  .block_bytes = 96,
                                                  .window_blocks = 3,
                                                  .shuffle = STOKER_SHUFFLE_NONE,
                                                  .tail = STOKER_TAIL_KEEP,
                                                  .seed = 5};

    return options;
}

static int rig_open(struct rig *rig, uint32_t rows, struct stoker_error *error)
{
    struct stk_io_options io = {.depth = 4, .read_timeout_ms = 3000};
    struct stoker_engine_options engine = {
        .struct_size = sizeof engine, .threads = 1, .memory_bytes_max = 16u << 20};
    struct stoker_tokens_options files = {
        .struct_size = sizeof files, .paths = paths, .path_count = FILES, .dtype = STOKER_UINT16};
    struct stoker_token_loader_options options = options_of(rows);
    struct stk_io *world;
    int status = stk_sim_open(&world, 1, &io, error);

    *rig = (struct rig){0};
    if (status < 0) {
        return status;
    }
    for (uint32_t i = 0; i < FILES; i++) {
        stk_sim_add(world, paths[i], tokens_of[i], counts[i] * sizeof **tokens_of);
    }
    status = stk_engine_open_with_io(&rig->engine, world, &engine, error);
    status = status < 0 ? status : stoker_tokens_open(&rig->tokens, rig->engine, &files, error);
    status =
        status < 0 ? status : stoker_token_loader_open(&rig->plain, rig->tokens, &options, error);
    for (uint32_t i = 0; status == 0 && i < FILES; i++) {
        status = stoker_token_loader_file_end(rig->plain, i, &rig->ends[i]);
    }
    return status;
}

static void rig_close(struct rig *rig)
{
    stoker_token_loader_close(rig->plain);
    stoker_tokens_close(rig->tokens);
    stoker_engine_close(rig->engine);
}

static struct stoker_mix_options mix_of(struct history *history, const struct rig *rig)
{
    for (uint32_t i = 0; i < history->change_count; i++) {
        history->changes[i].weights = history->weights[i + 1];
    }
    return (struct stoker_mix_options){.struct_size = sizeof(struct stoker_mix_options),
                                       .ends = rig->ends,
                                       .weights = history->weights[0],
                                       .changes = history->changes,
                                       .change_count = history->change_count,
                                       .source_count = FILES,
                                       .epoch_samples = EPOCH_SAMPLES};
}

static int open_rank(struct stoker_token_loader **loader_out, struct history *history,
                     const struct rig *rig, uint32_t rows, uint32_t rank)
{
    struct stoker_token_loader_options options = options_of(rows);
    struct stoker_mix_options mix = mix_of(history, rig);
    struct stoker_error error = {0};
    int status;

    options.mix = &mix;
    options.rows_of = rig->plain;
    options.shuffle = STOKER_SHUFFLE_BLOCK;
    options.tail = STOKER_TAIL_WRAP;
    options.group_count = history->groups;
    options.batch_size = history->batch;
    options.world_size = history->world;
    options.rank = rank;
    status = stoker_token_loader_open(loader_out, rig->tokens, &options, &error);
    if (status < 0) {
        printf("%s: %s\n", error.what, error.where);
    }
    return status;
}

static bool same_row(const struct stoker_batch *batch, uint32_t slot,
                     const struct stoker_batch *all, uint64_t sample)
{
    struct stoker_array mine, its;
    bool same = true;

    for (uint32_t field = 0; field < 2; field++) {
        same &= stoker_batch_array((struct stoker_batch *)(uintptr_t)batch, field, &mine) == 0 &&
                stoker_batch_array((struct stoker_batch *)(uintptr_t)all, field, &its) == 0 &&
                memcmp((const int64_t *)mine.data + (uint64_t)slot * CONTEXT,
                       (const int64_t *)its.data + sample * CONTEXT, CONTEXT * 8) == 0;
    }
    return same;
}

/* One step of a rank; recorded unless a kill undoes it. */
static void step(struct history *history, struct stoker_token_loader *loader, uint32_t rank,
                 const struct stoker_batch *all, bool steps_done)
{
    struct stk_partition partition = {.sample_count = stoker_token_loader_samples(loader),
                                      .batch_size = history->batch,
                                      .rank = rank,
                                      .world_size = history->world,
                                      .tail = STOKER_TAIL_WRAP,
                                      .group_count = history->groups,
                                      .worker_count = 1};
    struct stoker_batch *batch;
    uint64_t epoch, position;

    stoker_token_loader_position(loader, &epoch, &position);
    if (stk_partition_steps_from(&partition, epoch, position) == 0) {
        T_EQ("end", stoker_token_loader_next(loader, &batch, NULL), 0);
        stoker_token_loader_position(loader, &epoch, &position);
    }
    if (!T_EQ("next", stoker_token_loader_next(loader, &batch, NULL), 1)) {
        return;
    }
    for (uint32_t i = 0; i < history->batch; i++) {
        uint64_t id = stoker_batch_ids(batch)[i];
        struct stk_order_place place;

        stk_partition_place(&partition, epoch, position, i, &place);
        history->same_rows &= same_row(batch, i, all, id);
        if (steps_done && place.epoch < EPOCHS) {
            history->given[place.epoch][place.position]++;
            history->ids[place.epoch][place.position] = id;
        }
    }
    stoker_batch_close(batch);
}

static void draw_weights(struct history *history, uint64_t weights[FILES])
{
    for (uint32_t i = 0; i < FILES; i++) {
        weights[i] = draw(history, 3) ? 1 + draw(history, 50) : 0;
    }
    weights[draw(history, FILES)] += 1;
}

/* New weights from the border on: loaders of the run's ranks with them. */
static void change(struct history *history, const struct rig *rig, uint32_t rows,
                   struct stoker_token_loader *loaders[WORLD_MAX])
{
    struct stoker_mix_change *last = &history->changes[history->change_count];
    struct stoker_state state, own;
    uint64_t border;

    if (history->change_count == CHANGES_MAX) {
        return;
    }
    T_EQ("border", stoker_token_loader_mix_change_position(loaders[0], 0, &border), 0);
    if (border == 0 || (history->change_count > 0 && last[-1].position >= border)) {
        return;
    }
    last->position = border;
    draw_weights(history, history->weights[++history->change_count]);
    for (uint32_t rank = 0; rank < history->world; rank++) {
        stoker_token_loader_state(loaders[rank], &state);
        stoker_token_loader_close(loaders[rank]);
        T_EQ("open", open_rank(&loaders[rank], history, rig, rows, rank), 0);
        stoker_token_loader_state(loaders[rank], &own);
        state.mix = own.mix;
        T_EQ("state", stoker_token_loader_set_state(loaders[rank], &state, NULL), 0);
    }
}

/* Some steps in one world; the run continues after the last one, or before (it was killed). */
static void stretch(struct history *history, const struct rig *rig, uint32_t rows,
                    const struct stoker_batch *all)
{
    struct stoker_token_loader *loaders[WORLD_MAX];
    uint64_t steps = 1 + draw(history, 12);
    uint64_t steps_done = draw(history, 3) ? steps : draw(history, steps + 1);
    uint64_t changed = draw(history, 20);
    struct stoker_state state;

    history->world = 1 + (uint32_t)draw(history, WORLD_MAX);
    history->batch = 1 + (uint32_t)draw(history, BATCH_MAX);
    history->kills += steps_done < steps;
    history->resizes += steps_done == steps;
    for (uint32_t rank = 0; rank < history->world; rank++) {
        T_EQ("open", open_rank(&loaders[rank], history, rig, rows, rank), 0);
        if (history->state.order_version) {
            T_EQ("go on", stoker_token_loader_set_state(loaders[rank], &history->state, NULL), 0);
        }
    }
    for (uint64_t i = 0; i < steps; i++) {
        if (i == changed && i < steps_done) {
            change(history, rig, rows, loaders);
        }
        for (uint32_t rank = 0; rank < history->world; rank++) {
            step(history, loaders[rank], rank, all, i < steps_done);
        }
        if (i + 1 == steps_done) {
            stoker_token_loader_state(loaders[0], &history->state);
            for (uint32_t rank = 1; rank < history->world; rank++) {
                stoker_token_loader_state(loaders[rank], &state);
                history->same_states &= memcmp(&state, &history->state, sizeof state) == 0;
            }
        }
    }
    for (uint32_t rank = 0; rank < history->world; rank++) {
        stoker_token_loader_close(loaders[rank]);
    }
}

/* Compares all recorded steps with the order of the last history. */
static void check(struct history *history, const struct rig *rig)
{
    struct stoker_mix_options mix = mix_of(history, rig);
    struct stoker_order_options options = {.struct_size = sizeof options,
                                           .sample_count = rig->ends[FILES - 1],
                                           .block_samples = history->state.block_samples,
                                           .seed = 5,
                                           .tail = STOKER_TAIL_WRAP,
                                           .window_blocks = 3,
                                           .group_count = history->groups,
                                           .batch_size = 1,
                                           .mix = &mix};
    struct stoker_order *order;
    uint64_t sum = 0, part = 0, samples;
    bool once = true, same = true;

    if (!T_EQ("order", stoker_order_open(&order, &options, NULL), 0)) {
        return;
    }
    samples = stoker_order_samples(order);
    for (uint64_t epoch = 0; epoch <= history->state.epoch; epoch++) {
        uint64_t end = epoch < history->state.epoch ? samples : history->state.position;

        for (uint64_t i = 0; i < end && epoch < EPOCHS; i++) {
            struct stoker_slot slot = {0};

            stoker_order_slots(order, epoch, i, 0, 0, &slot, 1);
            once &= history->given[epoch][i] == 1;
            same &= history->ids[epoch][i] == slot.sample;
        }
        for (uint64_t i = end; i < samples && epoch < EPOCHS; i++) {
            once &= history->given[epoch][i] == 0;
        }
        T_EQ("part", stoker_order_fingerprint(order, epoch, 0, end, &part), 0);
        sum += part;
    }
    T_TRUE("each position once", once);
    T_TRUE("with its sample", same);
    T_TRUE("each sample as the file has it", history->same_rows);
    T_TRUE("one state on all ranks", history->same_states);
    T_TRUE("the order's fingerprint", history->state.fingerprint == sum);
    stoker_order_close(order);
}

static void test_histories(uint32_t rows, uint64_t first, uint64_t number)
{
    static struct history history;
    uint64_t kills = 0, resizes = 0, changes = 0;
    struct stoker_batch *all = NULL;
    struct stoker_error error = {0};
    struct rig rig;

    T_EQ("rig", rig_open(&rig, rows, &error), 0);
    T_EQ("all", stoker_token_loader_next(rig.plain, &all, &error), 1);
    for (uint64_t i = first; i < first + number; i++) {
        memset(&history, 0, sizeof history);
        history.key = stk_random_key(11, i);
        history.groups = 1 + (uint32_t)draw(&history, 3);
        history.same_states = history.same_rows = true;
        draw_weights(&history, history.weights[0]);
        while (history.state.epoch < EPOCHS) {
            stretch(&history, &rig, rows, all);
        }
        check(&history, &rig);
        kills += history.kills;
        resizes += history.resizes;
        changes += history.change_count;
    }
    T_TRUE("kills, resizes, changes", kills > number && resizes > number && changes > number / 2);
    stoker_batch_close(all);
    rig_close(&rig);
}

/* ---- the rest ---- */

static void test_refused(void)
{
    struct stoker_error error = {0};
    struct stoker_token_loader *loader;
    struct history history = {.weights = {{1, 1, 1}}};
    struct stoker_mix_options mix;
    struct rig rig;
    uint64_t end;

    T_EQ("rig", rig_open(&rig, STOKER_ROWS_PACKED, &error), 0);
    T_EQ("no file", stoker_token_loader_file_end(rig.plain, FILES, &end), STOKER_ERROR_ARGUMENT);
    T_EQ("no mix", stoker_token_loader_mix_change_position(rig.plain, 0, &end),
         STOKER_ERROR_ARGUMENT);
    mix = mix_of(&history, &rig);
    struct stoker_token_loader_options options = options_of(STOKER_ROWS_PACKED);

    options.rows_of = rig.plain;
    options.batch_size = 4;
    options.chunk_documents = 6;
    T_EQ("other rows", stoker_token_loader_open(&loader, rig.tokens, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("other rows", &error);
    options = options_of(STOKER_ROWS_PACKED);
    options.mix = &mix;
    rig.ends[1] = rig.ends[0];
    T_EQ("an empty source", stoker_token_loader_open(&loader, rig.tokens, &options, &error),
         STOKER_ERROR_ARGUMENT);
    T_ERROR("an empty source", &error);
    rig_close(&rig);
}

/* One source with few documents, many times an epoch: they are changed, each time at other places;
 * in the same epoch again at the same ones. */
static void test_middle(void)
{
    struct stoker_token_loader_options options = options_of(STOKER_ROWS_PADDED);
    struct history history = {.weights = {{0, 0, 1}}};
    struct stoker_batch *batches[2];
    struct stoker_token_loader *loader;
    struct stoker_mix_options mix;
    struct stoker_array rows[2];
    struct rig rig;
    uint64_t copies = 0, others = 0;

    T_EQ("rig", rig_open(&rig, STOKER_ROWS_PADDED, NULL), 0);
    mix = mix_of(&history, &rig);
    options.mix = &mix;
    options.batch_size = EPOCH_SAMPLES;
    options.fim_rate = 1;
    options.fim_prefix = 50001;
    options.fim_suffix = 50002;
    options.fim_middle = 50003;
    T_EQ("open", stoker_token_loader_open(&loader, rig.tokens, &options, NULL), 0);
    for (uint32_t i = 0; i < 2; i++) {
        T_EQ("epoch", stoker_token_loader_set_epoch(loader, 0, NULL), 0);
        T_EQ("next", stoker_token_loader_next(loader, &batches[i], NULL), 1);
        T_EQ("rows", stoker_batch_array(batches[i], 0, &rows[i]), 0);
    }
    T_TRUE("the same again", memcmp(rows[0].data, rows[1].data, EPOCH_SAMPLES * CONTEXT * 8) == 0);
    for (uint32_t i = 0; i < EPOCH_SAMPLES; i++) {
        for (uint32_t k = i + 1; k < EPOCH_SAMPLES; k++) {
            const int64_t *one = (const int64_t *)rows[0].data + i * CONTEXT;
            const int64_t *other = (const int64_t *)rows[0].data + k * CONTEXT;
            bool is_copy = stoker_batch_ids(batches[0])[i] == stoker_batch_ids(batches[0])[k];

            copies += is_copy;
            others += is_copy && memcmp(one, other, CONTEXT * 8) != 0;
        }
    }
    T_TRUE("copies differ", copies > 1000 && others > copies / 2);
    stoker_batch_close(batches[0]);
    stoker_batch_close(batches[1]);
    stoker_token_loader_close(loader);
    rig_close(&rig);
}

static bool fails_cleanly(uint64_t n)
{
    struct stoker_token_loader_options options = options_of(STOKER_ROWS_PACKED);
    struct history history = {.weights = {{1, 2, 3}}};
    struct stoker_token_loader *loader = NULL;
    struct stoker_batch *batch = NULL;
    struct stoker_error error = {0};
    struct stoker_mix_options mix;
    struct rig rig;
    int status;

    T_EQ("rig", rig_open(&rig, STOKER_ROWS_PACKED, &error), 0);
    mix = mix_of(&history, &rig);
    options.mix = &mix;
    options.rows_of = rig.plain;
    options.batch_size = 4;
    stk_mem_fail_nth(n);
    status = stoker_token_loader_open(&loader, rig.tokens, &options, &error);
    status = status < 0 ? status : stoker_token_loader_next(loader, &batch, &error);
    stk_mem_fail_nth(0);
    if (status < 0) {
        T_ERROR("fail", &error);
    }
    stoker_batch_close(batch);
    stoker_token_loader_close(loader);
    rig_close(&rig);
    T_EQ("no leak", stk_mem_alive(), 0);
    return status < 0;
}

int main(int count, char **arguments)
{
    const char *is_long = getenv("STOKER_TEST_LONG");
    uint64_t first = count > 1 ? strtoull(arguments[1], NULL, 10) : 0, failed = 0;
    uint64_t number = is_long && *is_long ? 1000 : 30;

    for (uint32_t i = 0; i < FILES; i++) {
        for (uint32_t k = 0; k < counts[i]; k++) {
            tokens_of[i][k] =
                stk_random_key(i, k) % 9 == 0 ? EOD : (uint16_t)(100 + 10000 * i + k % 10000);
        }
    }
    test_histories(STOKER_ROWS_WINDOWS, first, number);
    test_histories(STOKER_ROWS_PACKED, first, number);
    test_histories(STOKER_ROWS_PADDED, first, number);
    test_refused();
    test_middle();
    T_EQ("no leak", stk_mem_alive(), 0);
    for (uint64_t n = 1; n <= 30; n++) {
        failed += fails_cleanly(n);
    }
    T_TRUE("allocations", failed >= 10);
    return t_finish();
}
