/* stoker order --verify and --simulate: verification by enumeration. */
#include "programs/cli/order_prove.h"

#include "programs/cli/command.h"
#include "programs/cli/order_table.h"
#include "programs/cli/terminal.h"

#include <string.h>

#define PROOF_EPOCHS 2
#define HISTORIES_DEFAULT 20
#define EPOCHS_MAX 64 /* the library refuses more */
#define WORLDS_MAX 64
#define WORLDS_DEFAULT 8
#define DIVISORS_MAX 65536 /* limit of the search for divisors */
#define SEGMENTS_MAX 64
#define LIVE_S 0.1

/* What to verify, and the result so far. */
struct proof {
    const struct order_setup *setup;
    uint32_t worlds[WORLDS_MAX];
    struct stoker_order_segment segments[SEGMENTS_MAX];
    size_t world_count, segment_count;
    uint64_t histories, epochs;
    uint64_t parts_done, begin_ns;
    double drawn_s; /* when the live line was last drawn */
    struct stoker_order_proof sum;
};

/* ---- options ---- */

static void add_world_size(struct proof *proof, uint64_t size, uint64_t world)
{
    bool known = world > UINT32_MAX || size / world > UINT32_MAX || size % world != 0;

    for (size_t i = 0; i < proof->world_count; i++) {
        known |= proof->worlds[i] == world;
    }
    if (!known) {
        proof->worlds[proof->world_count++] = (uint32_t)world;
    }
}

/* "1,2,8", or up to eight divisors of a step: the smallest ones, --world-size, and one rank for
 * each sample. */
static int parse_worlds(struct proof *proof, const char *text)
{
    const struct stoker_order_options options = order_settings(proof->setup, proof->setup->args);
    uint64_t size = (uint64_t)options.batch_size * options.world_size, world;

    for (world = 1;
         !text && world <= size && world < DIVISORS_MAX && proof->world_count < WORLDS_DEFAULT - 2;
         world++) {
        add_world_size(proof, size, world);
    }
    if (!text) {
        add_world_size(proof, size, options.world_size);
        add_world_size(proof, size, size);
    }
    for (const char *at = text; at; at = *at == ',' ? at + 1 : NULL) {
        if (!order_take_number(&at, ",", &world) || world == 0 || world > UINT32_MAX ||
            proof->world_count == WORLDS_MAX) {
            return term_usage("order", "not a list of world sizes", text,
                              "use at most 64 of them, like 1,2,8");
        }
        proof->worlds[proof->world_count++] = (uint32_t)world;
    }
    return EXIT_FINE;
}

/* "8x32:5-2,4x64:100,16x16": ranks x batch size : steps - lost steps. */
static int parse_run(struct proof *proof, const char *text)
{
    for (const char *at = text; at; at = *at == ',' ? at + 1 : NULL) {
        uint64_t world, batch = 0, steps = 0, lost = 0;
        bool is_valid = proof->segment_count < SEGMENTS_MAX &&
                        order_take_number(&at, "x", &world) && *at == 'x' &&
                        (at++, order_take_number(&at, ":,", &batch));

        if (is_valid && *at == ':') {
            at++;
            is_valid = order_take_number(&at, "-,", &steps) && steps > 0;
        }
        if (is_valid && *at == '-') {
            at++;
            is_valid = order_take_number(&at, ",", &lost) && lost <= steps;
        }
        if (!is_valid || world == 0 || world > UINT32_MAX || batch == 0 || batch > UINT32_MAX ||
            (steps == 0 && *at == ',')) {
            return term_usage(
                "order", "not a scenario", text,
                "--scenario takes RANKSxBATCH:STEPS-LOST,...,RANKSxBATCH, at most 64, like "
                "8x32:5-2,4x64");
        }
        proof->segments[proof->segment_count++] = (struct stoker_order_segment){
            .world_size = (uint32_t)world,
            .batch_size = (uint32_t)batch,
            .steps = steps,
            .lost = lost,
        };
    }
    return EXIT_FINE;
}

static int parse(struct proof *proof)
{
    const struct args *args = proof->setup->args;
    /* --scenario alone verifies only this run. */
    bool is_scenario_only = args->scenario && !args->world_sizes && !args->random_runs;
    int status = args->scenario ? parse_run(proof, args->scenario) : EXIT_FINE;

    if (status == EXIT_FINE && !is_scenario_only) {
        status = parse_worlds(proof, args->world_sizes);
        proof->histories = args->random_runs ? args->random_runs : HISTORIES_DEFAULT;
    }
    proof->epochs = args->epochs ? args->epochs : PROOF_EPOCHS;
    return status;
}

/* ---- the proof ---- */

static void draw_progress(struct proof *proof)
{
    uint64_t parts = proof->world_count + proof->histories + (proof->segment_count > 0);
    double seconds = term_seconds_since(proof->begin_ns);
    char text[2 * TERM_NUMBER_BYTES + 32], number[TERM_NUMBER_BYTES];

    if (term_is_live() && seconds - proof->drawn_s > LIVE_S) {
        snprintf(text, sizeof text, "%s slots enumerated", term_count(number, proof->sum.slots));
        term_live((double)proof->parts_done / (double)parts, text);
        proof->drawn_s = seconds;
    }
}

/* Verifies one world size, one random run or the scenario, and draws the progress. */
static int prove_part(struct proof *proof, const struct stoker_order_verify_options *part)
{
    struct stoker_order_verify_options options = *part;
    struct stoker_order_proof found = {.struct_size = sizeof found};
    struct stoker_error error = {0};
    int status;

    options.struct_size = sizeof options;
    options.epochs = (uint32_t)(proof->epochs < UINT32_MAX ? proof->epochs : UINT32_MAX);
    options.seed = proof->setup->args->seed;
    status = stoker_order_verify(proof->setup->order, &options, &found, &error);
    if (status < 0) {
        term_live_end();
        return term_error(status, &error);
    }
    if (proof->sum.failures == 0) {
        memcpy(proof->sum.failure, found.failure, sizeof found.failure);
    }
    proof->sum.slots += found.slots;
    proof->sum.steps += found.steps;
    proof->sum.histories += found.histories;
    proof->sum.resizes += found.resizes;
    proof->sum.kills += found.kills;
    proof->sum.failures += found.failures;
    proof->parts_done++;
    draw_progress(proof);
    return EXIT_FINE;
}

static int prove(struct proof *proof)
{
    int status = EXIT_FINE;

    for (size_t i = 0; i < proof->world_count && status == EXIT_FINE; i++) {
        status = prove_part(proof, &(struct stoker_order_verify_options){
                                       .world_sizes = &proof->worlds[i], .world_size_count = 1});
    }
    for (uint64_t i = 0; i < proof->histories && status == EXIT_FINE; i++) {
        status = prove_part(
            proof, &(struct stoker_order_verify_options){.histories = 1,
                                                         .histories_only = 1,
                                                         .first_history = i,
                                                         .world_sizes = proof->worlds,
                                                         .world_size_count = proof->world_count});
    }
    if (proof->segment_count > 0 && status == EXIT_FINE) {
        status = prove_part(
            proof, &(struct stoker_order_verify_options){.segments = proof->segments,
                                                         .segment_count = proof->segment_count});
    }
    term_live_end();
    return status;
}

static void proof_print(const struct proof *proof)
{
    const struct stoker_order_proof *sum = &proof->sum;
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    printf("%s: in %llu epochs",
           sum->failures ? "FAILED"
           : proof->setup->has_mix
               ? "each position occurs exactly once, each sample once an epoch of its source"
           : proof->setup->choice.is_there
               ? "each position occurs exactly once, each sample as often a pass as requested"
               : "each sample occurs exactly once",
           (unsigned long long)proof->epochs);
    for (size_t i = 0; i < proof->world_count; i++) {
        printf("%s %u", i ? "" : " with world sizes", proof->worlds[i]);
    }
    if (sum->histories) {
        printf(",\nand in %s random runs", term_count(a, sum->histories));
    }
    if (proof->segment_count) {
        printf(",\nand in a run of %s segments", term_count(a, proof->segment_count));
    }
    if (sum->histories || proof->segment_count) {
        printf(" with %s resizes", term_count(a, sum->resizes));
        printf(" and %s kills", term_count(a, sum->kills));
    }
    printf("; %s slots of %s steps enumerated\n", term_count(a, sum->slots),
           term_count(b, sum->steps));
    if (sum->failures) {
        printf("%s failures; the first: %s\n", term_count(a, sum->failures), sum->failure);
    }
}

static void proof_print_json(const struct proof *proof)
{
    const struct stoker_order_proof *sum = &proof->sum;

    json_open(NULL, '{');
    json_bool("exactly_once", sum->failures == 0);
    json_u64("epochs", proof->epochs);
    json_u64("worlds", proof->world_count);
    json_u64("histories", sum->histories);
    json_u64("stretches", proof->segment_count);
    json_u64("resizes", sum->resizes);
    json_u64("kills", sum->kills);
    json_u64("steps", sum->steps);
    json_u64("slots", sum->slots);
    json_u64("failures", sum->failures);
    json_str("failure", sum->failure);
    json_close('}');
}

/* Refuses a proof that needs more memory than the budget has: 2 bytes a sample for each epoch, and
 * 2 more. */
static int check_memory(const struct proof *proof)
{
    const struct args *args = proof->setup->args;
    struct stoker_engine_info info = {.struct_size = sizeof info};
    struct stoker_engine *engine = proof->setup->engine;
    uint64_t samples = order_settings(proof->setup, args).sample_count;
    double bytes = 2. * (double)samples * ((double)proof->epochs + 1);
    char what[160], where[80], advice[160], a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES],
        c[TERM_NUMBER_BYTES];
    int status = engine ? EXIT_FINE : command_open_engine(args, &engine);

    if (status != EXIT_FINE) {
        return status;
    }
    stoker_engine_info(engine, &info);
    if (!proof->setup->engine) {
        stoker_engine_close(engine);
    }
    if (bytes <= (double)info.memory_bytes_max) {
        return EXIT_FINE;
    }
    snprintf(what, sizeof what, "order: cannot verify an order: it needs %s, the budget is %s",
             term_bytes(c, bytes < 1e19 ? (uint64_t)bytes : UINT64_MAX),
             term_bytes(a, info.memory_bytes_max));
    snprintf(where, sizeof where, "%llu samples in %llu epochs", (unsigned long long)samples,
             (unsigned long long)proof->epochs);
    snprintf(advice, sizeof advice,
             "verify at most %s samples, or fewer epochs, raise --memory, or use --simulate",
             term_count(b, info.memory_bytes_max / 2 / (proof->epochs + 1)));
    term_fail(what, where, advice);
    return EXIT_ENVIRONMENT;
}

int order_verify(const struct order_setup *setup)
{
    struct proof proof = {.setup = setup, .begin_ns = term_clock_ns()};
    int status = parse(&proof);

    status = status == EXIT_FINE && proof.epochs <= EPOCHS_MAX ? check_memory(&proof) : status;
    status = status == EXIT_FINE ? prove(&proof) : status;
    if (status != EXIT_FINE) {
        return status;
    }
    if (setup->args->json) {
        proof_print_json(&proof);
    } else {
        proof_print(&proof);
    }
    return proof.sum.failures ? EXIT_FINDINGS : EXIT_FINE;
}

/* ---- a simulated epoch ---- */

static void simulation_print(const struct order_setup *setup,
                             const struct stoker_order_simulation *got)
{
    const struct stoker_order_options options = order_settings(setup, setup->args);
    uint64_t nodes = setup->args->nodes ? setup->args->nodes : 1;
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    printf("%s of %s samples were delivered", term_count(a, got->samples),
           term_count(b, stoker_order_samples(setup->order)));
    printf(" in %s steps to %s nodes", term_count(a, got->steps), term_count(b, nodes));
    printf(" of %llu ranks; %s missing", (unsigned long long)(options.world_size / nodes),
           term_count(a, got->missing));
    printf(", %s repeated\n\n%-34s", term_count(a, got->repeated), "blocks of a node");
    printf("  %20s  %20s\n%-34s", "at most", "bound", "open at once");
    order_cell_bytes(setup, got->open_blocks_max);
    order_cell_bytes(setup, got->open_blocks_bound);
    printf("\n%-34s", "in use by the ranks of a step");
    order_cell_bytes(setup, got->step_blocks_max);
    order_cell_bytes(setup, got->step_blocks_bound);
    printf("\n%-34s", "requests of all nodes");
    order_cell_count(got->requests, true);
    printf("\n");
}

static void simulation_print_json(const struct stoker_order_simulation *got)
{
    json_open(NULL, '{');
    json_u64("steps", got->steps);
    json_u64("slots", got->slots);
    json_u64("samples", got->samples);
    json_u64("missing", got->missing);
    json_u64("repeated", got->repeated);
    json_u64("requests", got->requests);
    json_u64("open_blocks", got->open_blocks_max);
    json_u64("open_blocks_bound", got->open_blocks_bound);
    json_u64("step_blocks", got->step_blocks_max);
    json_u64("step_blocks_bound", got->step_blocks_bound);
    json_close('}');
}

int order_simulate(const struct order_setup *setup)
{
    const struct args *args = setup->args;
    struct stoker_order_simulation got = {.struct_size = sizeof got};
    struct stoker_order_simulate_options options = {
        .struct_size = sizeof options,
        .epoch = args->epoch,
        .nodes = (uint32_t)args->nodes,
        .threads = (uint32_t)args->threads,
    };
    struct stoker_error error = {0};
    int status = stoker_order_simulate(setup->order, &options, &got, &error);

    if (status < 0) {
        return term_error(status, &error);
    }
    if (args->json) {
        simulation_print_json(&got);
    } else {
        simulation_print(setup, &got);
    }
    return got.missing || got.repeated || got.open_blocks_max > got.open_blocks_bound ||
                   got.step_blocks_max > got.step_blocks_bound
               ? EXIT_FINDINGS
               : EXIT_FINE;
}
