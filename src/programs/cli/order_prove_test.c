/* Goal: a finding of a proof or a simulation, in any part of it, becomes the exit status.
 * Method: this file fakes the library's results, since an order cannot be broken from outside: a
 * failure in one world size, in one random run, in the scenario; each bound exceeded
 * (order_prove.c, order_args.c). */
#include "programs/cli/order_prove.h"
#include "programs/cli/order_table.h"
#include "programs/cli/terminal.h"
#include "test/t.h"

static struct {
    uint64_t verified, fails_at; /* the call that finds something; 0: none does */
    int status;
    struct stoker_order_simulation simulated;
} fake;

int stoker_order_verify(const struct stoker_order *order,
                        const struct stoker_order_verify_options *options,
                        struct stoker_order_proof *proof_out, struct stoker_error *error)
{
    (void)order;
    (void)error;
    proof_out->histories = options->histories;
    proof_out->failures = ++fake.verified == fake.fails_at;
    snprintf(proof_out->failure, sizeof proof_out->failure, "%s",
             proof_out->failures ? "a sample occurs too often" : "");
    return fake.status;
}

/* As in command.h, whose other functions this program does not link. */
int command_open_engine(const struct args *args, struct stoker_engine **engine_out);
int command_open_engine(const struct args *args, struct stoker_engine **engine_out)
{
    struct stoker_engine_options options = {.struct_size = sizeof options, .threads = 1};

    (void)args;
    return stoker_engine_open(engine_out, &options, NULL) == 0 ? EXIT_FINE : EXIT_ENVIRONMENT;
}

int stoker_order_simulate(const struct stoker_order *order,
                          const struct stoker_order_simulate_options *options,
                          struct stoker_order_simulation *simulation_out,
                          struct stoker_error *error)
{
    (void)order;
    (void)options;
    (void)error;
    *simulation_out = fake.simulated;
    return fake.status;
}

uint64_t stoker_order_samples(const struct stoker_order *order)
{
    (void)order;
    return 100;
}

int stoker_order_open(struct stoker_order **order_out, const struct stoker_order_options *options,
                      struct stoker_error *error)
{
    (void)order_out;
    (void)options;
    (void)error;
    return 0;
}

void order_cell_bytes(const struct order_setup *setup, uint64_t blocks)
{
    (void)setup;
    printf("  %llu", (unsigned long long)blocks);
}

void order_cell_count(uint64_t count, bool known)
{
    printf("  %llu", known ? (unsigned long long)count : 0);
}

bool args_number(const char *text, uint64_t *value_out)
{
    *value_out = 0;
    for (; *text; text++) {
        *value_out = *value_out * 10 + (uint64_t)(*text - '0');
    }
    return true;
}

static int verify(const struct args *args, uint64_t fails_at)
{
    struct order_setup setup = {.args = args};

    fake.verified = 0;
    fake.fails_at = fails_at;
    return order_verify(&setup);
}

static void test_verify(void)
{
    const struct args plain = {.random_runs = 3, .batch = 6, .world_size = 2},
                      json = {.random_runs = 3, .json = true, .batch = 6, .world_size = 2};
    const struct args scenario = {
        .random_runs = 3, .scenario = "8x16:10-3,2x32", .batch = 6, .world_size = 2};
    uint64_t calls;

    T_EQ("nothing", verify(&plain, 0), EXIT_FINE);
    calls = fake.verified;
    T_EQ("worlds that divide 12, and histories", calls, 6 + 3);
    for (uint64_t call = 1; call <= calls; call++) {
        T_EQ("a finding anywhere", verify(&plain, call), EXIT_FINDINGS);
        T_EQ("as JSON", verify(&json, call), EXIT_FINDINGS);
        T_EQ("what comes behind it is proved, too", fake.verified, calls);
    }
    T_EQ("beside a run", verify(&scenario, 0), EXIT_FINE);
    T_EQ("the run as well", fake.verified, calls + 1);
    T_EQ("in the run", verify(&scenario, calls + 1), EXIT_FINDINGS);
    fake.status = STOKER_ERROR_ARGUMENT;
    T_EQ("what is refused", verify(&plain, 0), EXIT_USAGE);
    T_EQ("ends at once", fake.verified, 1);
    fake.status = 0;
}

static int simulate(uint64_t missing, uint64_t repeated, uint64_t open, uint64_t step)
{
    const struct args args = {.nodes = 1, .batch = 6, .world_size = 2};
    const struct order_setup setup = {.args = &args};

    fake.simulated = (struct stoker_order_simulation){.samples = 100,
                                                      .missing = missing,
                                                      .repeated = repeated,
                                                      .open_blocks_max = open,
                                                      .open_blocks_bound = 7,
                                                      .step_blocks_max = step,
                                                      .step_blocks_bound = 9};
    return order_simulate(&setup);
}

static void test_simulate(void)
{
    T_EQ("within its bounds", simulate(0, 0, 7, 9), EXIT_FINE);
    T_EQ("missing", simulate(1, 0, 7, 9), EXIT_FINDINGS);
    T_EQ("repeated", simulate(0, 1, 7, 9), EXIT_FINDINGS);
    T_EQ("windows past their bound", simulate(0, 0, 8, 9), EXIT_FINDINGS);
    T_EQ("steps past theirs", simulate(0, 0, 7, 10), EXIT_FINDINGS);
}

int main(void)
{
    test_verify();
    test_simulate();
    return t_finish();
}
