/* stoker order: cost and mixing of an order (order_table.c), its samples by step and its steps by
 * sample, differences between two configurations, and proofs (order_prove.c). */
#include "programs/cli/order_args.h"

#include "programs/cli/command.h"
#include "programs/cli/order_mix.h"
#include "programs/cli/order_prove.h"
#include "programs/cli/order_table.h"
#include "programs/cli/terminal.h"

#include <stdlib.h>
#include <string.h>

#define EPOCHS_DEFAULT 3
#define EPOCHS_MAX 1000000u
#define SLOTS 256
#define KEY_BYTES 4097

static int run(struct args *args);
static int check_queries(const struct args *args);
static int setup_open(struct order_setup *setup, const struct args *args);
static void setup_close(struct order_setup *setup);
static int list(struct order_setup *setup);
static int find(struct order_setup *setup);
static int diff(struct order_setup *setup);

const struct command command_order = {
    .name = "order",
    .bit = COMMAND_ORDER,
    .usage = "[options] PATH... | --samples N [options]",
    .summary = "Show cost and mixing of an order, find samples in it, verify it",
    .more =
        "Without --at, --find, --diff, --verify or --simulate: memory, requests and mixing of\n"
        "this order, compared with a shuffle buffer of the same memory (for a full order: of all\n"
        "samples), a full permutation and the two-level shuffle (shards, then the samples of\n"
        "each; tars only).\n"
        "Reads only the index or the headers: the order is a function of the settings.\n"
        "Distances are in data sets: 0.333 in a full permutation. Batch mates are the samples\n"
        "of one step on all ranks.\n",
    .run = run,
};

static int run(struct args *args)
{
    struct order_setup setup = {0};
    int status;

    if (args->path_count == 0 && args->samples == 0) {
        return term_usage("order", "no path given", NULL,
                          "usage: stoker order [options] PATH..., or --samples N");
    }
    status = check_queries(args);
    status = status == EXIT_FINE ? setup_open(&setup, args) : status;
    if (status == EXIT_FINE) {
        status = args->at         ? list(&setup)
                 : args->find     ? find(&setup)
                 : args->diff     ? diff(&setup)
                 : args->verify   ? order_verify(&setup)
                 : args->simulate ? order_simulate(&setup)
                                  : order_report(&setup);
    }
    setup_close(&setup);
    return status;
}

static int setup_open(struct order_setup *setup, const struct args *args)
{
    int status;

    setup->args = args;
    setup->info.struct_size = sizeof setup->info;
    if (args->path_count > 0) {
        if (args->samples) {
            return term_usage("order", "PATH and --samples exclude each other", NULL,
                              "use one of them");
        }
        status = order_open_sources(args, &setup->engine, &setup->dataset);
        if (status != EXIT_FINE) {
            return status;
        }
        stoker_dataset_info(setup->dataset, &setup->info);
        status = order_check(&command_order, args, setup->dataset, &setup->info);
        if (status != EXIT_FINE) {
            return status;
        }
    } else {
        setup->info.sample_count = args->samples;
        setup->info.block_samples = 1;
    }
    if (setup->dataset && !setup->info.sequential) {
        setup->shard_ends = malloc((setup->info.shard_count + 1) * sizeof *setup->shard_ends);
    }
    if (setup->shard_ends && stoker_dataset_shard_ends(setup->dataset, 0, setup->info.shard_count,
                                                       setup->shard_ends) < 0) {
        free(setup->shard_ends); /* a folder */
        setup->shard_ends = NULL;
    }
    status = order_mix_open(setup, args);
    status =
        status == EXIT_FINE ? sampling_args_open(&setup->choice, args, setup->dataset) : status;
    return status == EXIT_FINE ? order_open(setup, args, &setup->order) : status;
}

/* Refuses options that would have no effect, or that exclude each other. */
static int check_queries(const struct args *args)
{
    int queries = (args->at != NULL) + (args->find != NULL) + (args->diff != NULL) + args->verify +
                  args->simulate;

    if (queries > 1 || (args->rank && !args->at)) {
        return term_usage("order", "options exclude each other", NULL,
                          "use one of --at, --find, --diff, --verify and --simulate; --rank needs "
                          "--at");
    }
    if (args->labels_path && queries > 0) {
        return term_usage("order", "--labels applies to the report only", args->labels_path,
                          "leave out --at, --find, --diff, --verify and --simulate");
    }
    if (!args->verify && (args->scenario || args->world_sizes || args->random_runs)) {
        return term_usage("order", "--scenario, --world-sizes and --random-runs need --verify",
                          NULL, "add --verify, or leave them out");
    }
    if (args->epochs > EPOCHS_MAX || args->epochs > UINT64_MAX - args->epoch) {
        return term_usage("order", "too many epochs", NULL,
                          "use at most 1,000,000 --epochs, the last of which is before 2^64");
    }
    return EXIT_FINE;
}

static void setup_close(struct order_setup *setup)
{
    stoker_order_close(setup->order);
    sampling_args_close(&setup->choice);
    stoker_dataset_close(setup->dataset);
    stoker_engine_close(setup->engine);
    free(setup->shard_ends);
}

/* ---- samples of a step, steps of a sample ---- */

static int slot_print(const struct order_setup *setup, const struct stoker_slot *slot)
{
    struct stoker_member_info member = {.shard = ""};
    struct stoker_error error = {0};
    char key[KEY_BYTES] = "";
    size_t members = 1;

    if (setup->dataset) {
        int status = stoker_dataset_sample(setup->dataset, slot->sample, key, sizeof key, &member,
                                           &members, &error);
        if (status < 0) {
            return term_error(status, &error);
        }
    }
    if (setup->args->json) {
        json_open(NULL, '{');
        json_u64("step_epoch", slot->step_epoch);
        json_u64("step", slot->step);
        json_u64("rank", slot->rank);
        json_u64("slot", slot->slot);
        json_u64("epoch", slot->epoch);
        json_u64("position", slot->position);
        json_u64("sample", slot->sample);
        json_bool("real", slot->real);
        if (setup->dataset) {
            json_str("key", key);
            json_str("shard", member.shard);
        }
        json_close('}');
        return EXIT_FINE;
    }
    printf("epoch %llu  step %-8llu  rank %-4u  slot %-5u  sample %-10llu",
           (unsigned long long)slot->step_epoch, (unsigned long long)slot->step, slot->rank,
           slot->slot, (unsigned long long)slot->sample);
    if (setup->dataset) {
        fputs("  ", stdout);
        term_text(key);
        fputs("  ", stdout);
        term_text(member.shard);
    }
    fputs(slot->real ? "\n" : "  (padding)\n", stdout);
    return EXIT_FINE;
}

static int fail_epoch(uint64_t epoch)
{
    char text[TERM_NUMBER_BYTES];

    snprintf(text, sizeof text, "%llu", (unsigned long long)epoch);
    return term_usage("order", "there is no such epoch", text,
                      "epochs count from 0 to 2^63 - 1; a mix or selected samples have fewer");
}

/* Prints which of epoch, step and rank does not exist. rank: STOKER_ALL_RANKS or one of them. */
static int fail_slots(struct order_setup *setup, uint64_t step, uint64_t rank)
{
    const struct args *args = setup->args;
    uint64_t steps = stoker_order_steps(setup->order, args->epoch);
    uint32_t ranks = order_settings(setup, args).world_size;
    char advice[160];

    if (step >= steps) {
        snprintf(advice, sizeof advice, "epoch %llu has %llu steps; --at counts from 0",
                 (unsigned long long)args->epoch, (unsigned long long)steps);
        return term_usage("order", "there is no such step", args->at, advice);
    }
    if (rank != STOKER_ALL_RANKS && rank >= ranks) {
        snprintf(advice, sizeof advice, "--world-size is %u; --rank counts from 0", ranks);
        return term_usage("order", "there is no such rank", args->rank, advice);
    }
    return fail_epoch(args->epoch);
}

static int list(struct order_setup *setup)
{
    struct stoker_slot slots[SLOTS];
    const struct args *args = setup->args;
    uint64_t step, rank = STOKER_ALL_RANKS, skip = 0;
    int count, status = EXIT_FINE;

    if (!args_number(args->at, &step) ||
        (args->rank && (!args_number(args->rank, &rank) || rank >= STOKER_ALL_RANKS))) {
        return term_usage("order", "not a number in range", args->rank ? args->rank : args->at,
                          "--at takes a step, --rank a rank; both count from 0");
    }
    while ((count = stoker_order_slots(setup->order, args->epoch, step, (uint32_t)rank, skip, slots,
                                       SLOTS)) > 0) {
        for (int i = 0; i < count && status == EXIT_FINE && !term_closed(); i++) {
            status = slot_print(setup, &slots[i]);
        }
        if (status != EXIT_FINE || term_closed()) {
            return status;
        }
        skip += (uint64_t)count;
    }
    return count < 0 ? fail_slots(setup, step, rank) : EXIT_FINE;
}

/* Prints a line for each occurrence of a sample in an epoch: one, except in a mix. */
static int find_in_epoch(struct order_setup *setup, uint64_t epoch, uint64_t sample)
{
    int found = 0, status = EXIT_FINE;

    for (uint64_t skip = 0; status == EXIT_FINE && !term_closed(); skip++) {
        struct stoker_slot slot;

        found = stoker_order_find(setup->order, epoch, sample, skip, &slot);
        if (found < 0) {
            break;
        }
        if (found == 1) {
            status = slot_print(setup, &slot);
        } else if (setup->args->json) {
            json_open(NULL, '{');
            json_u64("epoch", epoch);
            json_u64("sample", sample);
            json_bool("dropped", true);
            json_close('}');
        } else {
            printf("epoch %llu  dropped with the tail: sample %llu\n", (unsigned long long)epoch,
                   (unsigned long long)sample);
        }
    }
    if (found != STOKER_ERROR_ARGUMENT) {
        return status;
    }
    return sample < order_settings(setup, setup->args).sample_count
               ? fail_epoch(epoch)
               : term_usage("order", "there is no such sample", setup->args->find,
                            "samples count from 0");
}

/* In each of the requested epochs. */
static int find_sample(struct order_setup *setup, uint64_t sample)
{
    uint64_t epochs = setup->args->epochs ? setup->args->epochs : EPOCHS_DEFAULT;
    int status = EXIT_FINE;

    for (uint64_t i = 0; i < epochs && status == EXIT_FINE && !term_closed(); i++) {
        status = find_in_epoch(setup, setup->args->epoch + i, sample);
    }
    return status;
}

static int find(struct order_setup *setup)
{
    const char *wanted = setup->args->find;
    uint64_t sample, matches = 0;
    int status = EXIT_FINE;

    if (!setup->dataset) {
        if (!args_number(wanted, &sample)) {
            return term_usage("order", "not a number", wanted,
                              "without PATH, use the number of a sample");
        }
        return find_sample(setup, sample);
    }
    for (sample = 0; sample < setup->info.sample_count && status == EXIT_FINE; sample++) {
        struct stoker_error error = {0};
        char key[KEY_BYTES];
        size_t members = 0;
        int failed =
            stoker_dataset_sample(setup->dataset, sample, key, sizeof key, NULL, &members, &error);

        if (failed < 0) {
            return term_error(failed, &error);
        }
        if (strcmp(key, wanted) == 0) {
            matches++;
            status = find_sample(setup, sample);
        }
    }
    if (status == EXIT_FINE && matches == 0) {
        return command_no_key(setup->args->paths[0], wanted);
    }
    return status;
}

/* ---- two configurations ---- */

static void difference_print(const struct stoker_order_difference *difference, uint64_t epochs)
{
    if (difference->order) {
        printf("order: epoch %llu position %llu: sample ",
               (unsigned long long)difference->order_epoch,
               (unsigned long long)difference->order_position);
        for (int i = 0; i < 2; i++) {
            uint64_t sample = i ? difference->sample_b : difference->sample_a;

            if (sample == STOKER_NO_SAMPLE) {
                printf("none%s", i ? "\n" : " and ");
            } else {
                printf("%llu%s", (unsigned long long)sample, i ? "\n" : " and ");
            }
        }
    } else {
        printf("order: the same in %llu epochs\n", (unsigned long long)epochs);
    }
    if (difference->step) {
        printf("steps: differ from epoch %llu step %llu on\n",
               (unsigned long long)difference->step_epoch,
               (unsigned long long)difference->step_number);
    } else {
        printf("steps: have the same samples\n");
    }
    if (difference->rank) {
        printf("ranks: differ from epoch %llu step %llu rank %u on\n",
               (unsigned long long)difference->rank_epoch,
               (unsigned long long)difference->rank_step, difference->rank_number);
    } else {
        printf("ranks: have the same samples in the same slots\n");
    }
}

static void difference_print_json(const struct stoker_order_difference *difference)
{
    json_open(NULL, '{');
    json_bool("order_differs", difference->order);
    if (difference->order) {
        json_u64("order_epoch", difference->order_epoch);
        json_u64("order_position", difference->order_position);
        json_u64("sample_a", difference->sample_a);
        json_u64("sample_b", difference->sample_b);
    }
    json_bool("steps_differ", difference->step);
    if (difference->step) {
        json_u64("step_epoch", difference->step_epoch);
        json_u64("step", difference->step_number);
    }
    json_bool("ranks_differ", difference->rank);
    if (difference->rank) {
        json_u64("rank_epoch", difference->rank_epoch);
        json_u64("rank_step", difference->rank_step);
        json_u64("rank", difference->rank_number);
    }
    json_close('}');
}

/* Opens the order of the other configuration in place of setup's mix and choice, and compares. */
static int diff_with(struct order_setup *setup, const struct args *changed, uint64_t epochs,
                     struct stoker_order_difference *difference)
{
    struct sampling_args own = setup->choice; /* restored below, since options point into it */
    struct stoker_order *other = NULL;
    struct stoker_error error = {0};
    int status = order_mix_open(setup, changed);

    if (status != EXIT_FINE) {
        return status; /* setup->choice still owns its samplers */
    }
    status = sampling_args_open(&setup->choice, changed, setup->dataset);
    status = status != EXIT_FINE ? status : order_open(setup, changed, &other);
    if (status == EXIT_FINE) {
        int failed = stoker_order_diff(setup->order, other, epochs, difference, &error);
        status = failed < 0 ? term_error(failed, &error) : EXIT_FINE;
    }
    stoker_order_close(other);
    sampling_args_close(&setup->choice);
    setup->choice = own;
    return status;
}

/* Returns true if only settings of an order were changed. */
static bool is_setting_changed_only(const struct order_setup *setup, const struct args *changed)
{
    struct args rest = *changed;

    rest.batch = setup->args->batch;
    rest.world_size = setup->args->world_size;
    rest.seed = setup->args->seed;
    rest.shuffle = setup->args->shuffle;
    rest.order_version = setup->args->order_version;
    rest.tail = setup->args->tail;
    rest.window_blocks = setup->args->window_blocks;
    rest.home_groups = setup->args->home_groups;
    rest.block_samples = setup->args->block_samples;
    rest.subset = setup->args->subset;
    rest.weights = setup->args->weights;
    rest.balance = setup->args->balance;
    rest.curriculum = setup->args->curriculum;
    rest.repeats = setup->args->repeats;
    rest.repeat_distance = setup->args->repeat_distance;
    rest.epoch_samples = setup->args->epoch_samples;
    rest.mix = setup->args->mix;
    rest.mix_end = setup->args->mix_end;
    rest.mix_epoch = setup->args->mix_epoch;
    rest.samples = setup->dataset ? rest.samples : setup->args->samples;
    return memcmp(&rest, setup->args, sizeof rest) == 0;
}

static int diff(struct order_setup *setup)
{
    struct stoker_order_difference difference = {.struct_size = sizeof difference};
    uint64_t epochs = setup->args->epochs ? setup->args->epochs : EPOCHS_DEFAULT;
    struct args changed = *setup->args;
    int status = args_change(&changed, &command_order, setup->args->diff);

    if (status == EXIT_FINE && (!*setup->args->diff || !is_setting_changed_only(setup, &changed))) {
        return term_usage("order", "not settings of an order", setup->args->diff,
                          "use samples, block-samples, batch, world-size, seed, shuffle, "
                          "order-version, tail, window-blocks, home-groups, repeats, "
                          "repeat-distance, epoch-samples, "
                          "mix-end and mix-epoch, like seed=1,window-blocks=128; mix, subset, "
                          "weights, balance or curriculum must be the last");
    }
    if (status == EXIT_FINE && setup->dataset) {
        status = order_check(&command_order, &changed, setup->dataset, &setup->info);
    }
    status = status != EXIT_FINE ? status : diff_with(setup, &changed, epochs, &difference);
    if (status != EXIT_FINE) {
        return status;
    }
    if (setup->args->json) {
        difference_print_json(&difference);
    } else {
        difference_print(&difference, epochs);
    }
    return difference.order || difference.step || difference.rank ? EXIT_FINDINGS : EXIT_FINE;
}
