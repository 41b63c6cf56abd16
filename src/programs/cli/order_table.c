/* stoker order without a query: cost and mixing of the order, compared with other orders; for a mix
 * and selected samples also by source and stage. */
#include "programs/cli/order_table.h"

#include "programs/cli/order_labels.h"
#include "programs/cli/terminal.h"

#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 4
#define PARTS_MAX ORDER_SOURCES_MAX

_Static_assert(PARTS_MAX >= SAMPLING_ARGS_STAGES_MAX, "a row for each stage");

/* One column of the table. */
struct column {
    const char *name, *json;
    struct stoker_order_measures measures;
    uint64_t shuffle;    /* 0: as the command line */
    uint64_t blocks_max; /* that a shuffle buffer of this memory has room for */
    bool is_other_seed;  /* a second full permutation, beside a full order */
    bool is_buffer;
};

/* Bytes of a block; 0: unknown. */
static double block_bytes_of(const struct order_setup *setup)
{
    struct stoker_order_options options = order_settings(setup, setup->args);

    return setup->info.sample_count ? (double)setup->info.bytes / (double)setup->info.sample_count *
                                          (double)options.block_samples
                                    : 0;
}

static void cell_text(const char *text)
{
    printf("  %20s", text);
}

/* Memory of blocks; 0: none. */
static void cell_blocks(const struct order_setup *setup, uint64_t blocks)
{
    if (blocks > 0) {
        order_cell_bytes(setup, blocks);
    } else {
        cell_text("none");
    }
}

void order_cell_bytes(const struct order_setup *setup, uint64_t blocks)
{
    double bytes = block_bytes_of(setup) * (double)blocks;
    char number[TERM_NUMBER_BYTES];

    if (bytes > 0) {
        printf("  %20s", term_bytes(number, (uint64_t)bytes));
    } else {
        char text[TERM_NUMBER_BYTES + 8];
        snprintf(text, sizeof text, "%s blocks", term_count(number, blocks));
        printf("  %20s", text);
    }
}

void order_cell_count(uint64_t count, bool known)
{
    char number[TERM_NUMBER_BYTES];

    printf("  %20s", known ? term_count(number, count) : "-");
}

static void cell_share(double share, bool known)
{
    char text[TERM_NUMBER_BYTES] = "-";

    if (known) {
        snprintf(text, sizeof text, share > 0 && share < 0.0001 ? "%.2g %%" : "%.4g %%",
                 100 * share);
    }
    printf("  %20s", text);
}

static uint32_t version_of(const struct stoker_order_options *options)
{
    return options->order_version ? options->order_version : STOKER_ORDER_VERSION;
}

static void notes_print(const struct column *columns, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(columns[i].json, "full") == 0) {
            printf("A full order has no windows: a loader has a batch and those it reads ahead in "
                   "memory,\nand each sample is a request.\n");
            if (columns[i].is_other_seed) {
                printf("The full permutation has the next seed: its column shows how much full "
                       "orders differ.\n");
            }
        }
    }
}

static void table_print(const struct order_setup *setup, const struct column *columns, size_t count)
{
    const struct stoker_order_options options = order_settings(setup, setup->args);
    const uint64_t nodes = setup->args->nodes ? setup->args->nodes : 1;
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    printf("%s samples in %s blocks of ", term_count(a, options.sample_count),
           term_count(b, columns[0].measures.block_count));
    printf("%s; %s shuffle, ", term_count(a, options.block_samples),
           args_shuffle_name(options.shuffle));
    printf("window %u, groups %u, seed %llu, order version %u\n", options.window_blocks,
           options.group_count, (unsigned long long)options.seed, version_of(&options));
    printf("%s steps of %u x %u an epoch, tail %s; ",
           term_count(a, stoker_order_steps(setup->order, 0)), options.world_size,
           options.batch_size, args_tail_name(options.tail));
    printf("%s node%s\n\n%-34s", term_count(a, nodes), nodes > 1 ? "s" : "", "");
    for (size_t i = 0; i < count; i++) {
        printf("  %20s", columns[i].name);
    }
#define ROW(label, cell)                                                                           \
    printf("\n%-34s", label);                                                                      \
    for (size_t i = 0; i < count; i++) {                                                           \
        const struct stoker_order_measures *m = &columns[i].measures;                              \
        cell;                                                                                      \
    }
    ROW("samples mixed with each other", order_cell_count(m->window_samples, true))
    ROW("memory of windows, a node", cell_blocks(setup, m->window_blocks_max))
    ROW("open at once, a node",
        m->walked ? cell_blocks(setup, m->open_blocks_max) : order_cell_count(0, false))
    ROW("requests an epoch", order_cell_count(m->requests, m->walked))
    ROW("  with a cache of 1/nodes", order_cell_count(m->requests_cached, m->walked))
    ROW("  samples found in that cache", cell_share(m->cache_share, m->walked))
    ROW("distance, neighbours in time", printf("  %20.4f", m->distance))
    ROW("distance, disk to epoch", printf("  %20.4f", m->displacement))
    ROW("batch mates of one block", cell_share(m->same_block, true))
    ROW("with a neighbour on disk in batch", cell_share(m->neighbours, true))
#undef ROW
    if (columns[0].measures.steps_measured > 0) {
        printf("\nThe last four rows are measured in %s steps",
               term_count(a, columns[0].measures.steps_measured));
        printf(" of %s samples, in 8 epochs.",
               term_count(b, columns[0].measures.step_samples_measured));
    }
    printf("\n");
    notes_print(columns, count);
}

static void measures_print_json(const char *name, const struct stoker_order_measures *m,
                                double block_bytes)
{
    json_open(name, '{');
    json_u64("blocks", m->block_count);
    json_u64("window_samples", m->window_samples);
    json_u64("window_blocks", m->window_blocks_max);
    json_u64("window_bytes", (uint64_t)(block_bytes * (double)m->window_blocks_max));
    if (m->walked) {
        json_u64("epoch_samples", m->samples);
        json_u64("open_blocks", m->open_blocks_max);
        json_u64("open_bytes", (uint64_t)(block_bytes * (double)m->open_blocks_max));
        json_u64("requests", m->requests);
        json_u64("requests_cached", m->requests_cached);
        json_double("cache_share", m->cache_share);
    }
    json_double("distance", m->distance);
    json_double("displacement", m->displacement);
    json_double("same_block", m->same_block);
    json_double("neighbours", m->neighbours);
    json_u64("steps_measured", m->steps_measured);
    json_u64("step_samples_measured", m->step_samples_measured);
}

static void table_print_json(const struct order_setup *setup, const struct column *columns,
                             size_t count, const struct stoker_order_measures *parts,
                             const struct stoker_mixing *mixing)
{
    const struct stoker_order_options options = order_settings(setup, setup->args);
    double block_bytes = block_bytes_of(setup);

    json_open(NULL, '{');
    json_u64("order_version", version_of(&options));
    json_str("shuffle", args_shuffle_name(options.shuffle));
    json_str("tail", args_tail_name(options.tail));
    json_u64("samples", options.sample_count);
    json_u64("block_samples", options.block_samples);
    json_u64("block_bytes", (uint64_t)block_bytes);
    json_u64("window_blocks", options.window_blocks);
    json_u64("group_count", options.group_count);
    json_u64("seed", options.seed);
    json_u64("batch_size", options.batch_size);
    json_u64("world_size", options.world_size);
    json_u64("nodes", setup->args->nodes ? setup->args->nodes : 1);
    json_u64("steps", stoker_order_steps(setup->order, 0));
    for (size_t i = 0; i < count; i++) {
        measures_print_json(columns[i].json, &columns[i].measures, block_bytes);
        json_close('}');
    }
    if (setup->has_mix || setup->choice.is_there) {
        json_open("parts", '[');
        for (uint64_t i = 0; i < columns[0].measures.part_count && i < PARTS_MAX; i++) {
            measures_print_json(NULL, &parts[i], block_bytes);
            json_str("name", setup->has_mix ? setup->args->paths[i] : setup->choice.names[i]);
            json_u64("samples", parts[i].chosen);
            json_close('}');
        }
        json_close(']');
    }
    order_labels_print_json(mixing);
    json_close('}');
}

/* Prints rows of sources or stages. */
static void parts_print(const struct order_setup *setup, const struct stoker_order_measures *total,
                        const struct stoker_order_measures *parts)
{
    if (!setup->has_mix && !setup->choice.is_there) {
        return;
    }
    printf("\n%-34s  %20s  %20s  %20s  %20s\n%-34s  %20s  %20s  %20s  %20s",
           setup->has_mix ? "source" : "stage", "samples an epoch", "of", "memory of windows",
           "open at once", "", "requests an epoch", "found in cache", "distance, in time",
           "mates of one block");
    for (uint64_t i = 0; i < total->part_count && i < PARTS_MAX; i++) {
        const struct stoker_order_measures *m = &parts[i];
        const char *name = setup->has_mix ? setup->args->paths[i] : setup->choice.names[i];
        size_t bytes = strlen(name);

        printf("\n%-34s", bytes > 34 && setup->has_mix ? name + bytes - 34 : name);
        order_cell_count(m->samples, m->walked);
        order_cell_count(m->chosen, true);
        cell_blocks(setup, m->window_blocks_max);
        if (m->walked) {
            cell_blocks(setup, m->open_blocks_max);
        } else {
            order_cell_count(0, false);
        }
        printf("\n%-34s", "");
        order_cell_count(m->requests, m->walked);
        cell_share(m->cache_share, m->walked);
        printf("  %20.4f", m->distance);
        cell_share(m->same_block, true);
    }
    printf("\n");
}

/* Columns: this order and the orders to compare with. Returns their number. */
static size_t name_columns(const struct order_setup *setup, struct column *columns)
{
    bool is_two_level = setup->args->shuffle == STOKER_SHUFFLE_TWO_LEVEL;
    bool is_plain = !setup->has_mix && !setup->choice.is_there;
    size_t count = 0;

    columns[count++] = (struct column){.name = "this order", .json = "order"};
    if (is_plain) {
        columns[count++] = (struct column){.name = "shuffle buffer",
                                           .json = "buffer",
                                           .is_buffer = true,
                                           .shuffle = is_two_level ? STOKER_SHUFFLE_BLOCK : 0};
    }
    if (!setup->choice.is_drawn) { /* with replacement all shuffles are the same */
        columns[count++] = (struct column){
            .name = "full permutation",
            .json = "full",
            .shuffle = STOKER_SHUFFLE_FULL,
            .is_other_seed = order_settings(setup, setup->args).shuffle == STOKER_SHUFFLE_FULL};
    }
    if (setup->shard_ends && !setup->has_mix && !setup->choice.is_drawn) {
        columns[count++] = is_two_level ? (struct column){.name = "blocks",
                                                          .json = "block",
                                                          .shuffle = STOKER_SHUFFLE_BLOCK}
                                        : (struct column){.name = "two levels",
                                                          .json = "two_level",
                                                          .shuffle = STOKER_SHUFFLE_TWO_LEVEL};
    }
    return count;
}

/* A loader of a full order reads each sample on its own: no window, no open blocks, and a request
 * for each sample that is not in the cache. */
static void count_samples(struct stoker_order_measures *m)
{
    m->window_blocks_max = 0;
    m->open_blocks_max = 0;
    m->requests = m->samples;
    m->requests_cached = (uint64_t)((1 - m->cache_share) * (double)m->samples + 0.5);
}

/* parts: only for this order; NULL: none. */
static int measure(struct order_setup *setup, struct column *column, uint64_t buffer_samples,
                   struct stoker_order_measures *parts)
{
    struct stoker_order_measure_options options = {.struct_size = sizeof options,
                                                   .nodes = (uint32_t)setup->args->nodes,
                                                   .buffer_samples = buffer_samples,
                                                   .parts = parts,
                                                   .part_max = parts ? PARTS_MAX : 0};
    struct args changed = *setup->args;
    struct stoker_order *order = NULL;
    struct stoker_error error = {0};
    int status;

    changed.shuffle = column->shuffle ? column->shuffle : changed.shuffle;
    changed.seed += column->is_other_seed;
    status = order_open(setup, &changed, &order);
    if (status != EXIT_FINE) {
        return status;
    }
    column->measures.struct_size = sizeof column->measures;
    status = stoker_order_measure(order, &options, &column->measures, &error);
    stoker_order_close(order);
    column->blocks_max = column->measures.window_blocks_max;
    if (status == 0 && !column->is_buffer &&
        order_settings(setup, &changed).shuffle == STOKER_SHUFFLE_FULL) {
        count_samples(&column->measures);
        for (uint64_t i = 0; parts && i < column->measures.part_count && i < PARTS_MAX; i++) {
            count_samples(&parts[i]);
        }
    }
    return status < 0 ? term_error(status, &error) : EXIT_FINE;
}

static void draw_progress(double share, const char *name)
{
    char text[64];

    if (term_is_live()) {
        snprintf(text, sizeof text, "measuring: %s", name);
        term_live(share, text);
    }
}

int order_report(struct order_setup *setup)
{
    struct stoker_order_measures *parts = calloc(PARTS_MAX, sizeof *parts);
    const struct stoker_order_measures *first;
    struct column columns[COLUMNS_MAX];
    struct stoker_mixing mixing;
    size_t count = name_columns(setup, columns);
    int status = parts ? EXIT_FINE : EXIT_ENVIRONMENT;

    first = &columns[0].measures;
    for (size_t i = 0; i < count && status == EXIT_FINE; i++) {
        draw_progress((double)i / (double)(count + 1), columns[i].name);
        /* As many samples as the windows of all nodes. */
        uint64_t buffer_samples = columns[i].is_buffer
                                      ? columns[0].blocks_max * first->nodes *
                                            order_settings(setup, setup->args).block_samples
                                      : 0;

        status = measure(setup, &columns[i], buffer_samples, i == 0 ? parts : NULL);
        if (columns[i].is_buffer) {
            columns[i].measures.window_blocks_max = columns[0].blocks_max;
        }
    }
    if (status == EXIT_FINE) {
        const struct stoker_order_options options = order_settings(setup, setup->args);

        draw_progress((double)count / (double)(count + 1), "labels");
        status = order_labels_measure(setup->args, setup->dataset, &setup->info, &options, &mixing);
    }
    term_live_end();
    if (status == EXIT_FINE && setup->args->json) {
        table_print_json(setup, columns, count, parts, &mixing);
    } else if (status == EXIT_FINE) {
        table_print(setup, columns, count);
        parts_print(setup, first, parts);
        order_labels_print(&mixing);
    }
    free(parts);
    return status;
}
