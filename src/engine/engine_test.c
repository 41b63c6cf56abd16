/* Goal: parallel jobs run each round once and report the lowest failure; clients are served in
 * turns, those with waiting callers first; the service is created once and closed with the engine.
 * Method: an engine with two workers over simulated files. Covers engine.c and worker.c. */
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/worker.h"
#include "io/sim/sim.h"
#include "test/t.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS = 1000 };

static struct stoker_engine *open_engine(uint64_t memory_bytes_max)
{
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 2, .memory_bytes_max = memory_bytes_max};
    struct stk_io_options io_options = {.depth = 8, .read_timeout_ms = 1000};
    struct stoker_engine *engine = NULL;
    struct stk_io *io = NULL;

    T_TRUE("engine", stk_sim_open(&io, 1, &io_options, NULL) == 0);
    T_TRUE("engine", stk_engine_open_with_io(&engine, io, &options, NULL) == 0);
    return engine;
}

struct rounds {
    _Atomic uint32_t ran[ROUNDS];
    uint64_t fails[2];
};

static int run_round(void *context, uint64_t round, struct stoker_error *error)
{
    struct rounds *rounds = context;

    rounds->ran[round]++;
    if (round == rounds->fails[0] || round == rounds->fails[1]) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "it failed", "repair it", "round %llu",
                        (unsigned long long)round);
    }
    return 0;
}

static void test_parallel(void)
{
    struct stoker_engine *engine = open_engine(64 << 20);
    struct rounds rounds = {.fails = {ROUNDS, ROUNDS}};
    struct stoker_error error = {0};

    T_TRUE("engine", stk_engine_parallel(engine, ROUNDS, run_round, &rounds, &error) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        T_TRUE("engine", rounds.ran[i] == 1);
    }
    T_TRUE("engine", stk_engine_parallel(engine, 0, run_round, &rounds, &error) == 0);
    for (uint64_t i = 0; i < 50; i++) { /* whichever thread meets its failure first */
        rounds.fails[0] = i * 7;
        rounds.fails[1] = i * 7 + 1;
        T_TRUE("engine", stk_engine_parallel(engine, ROUNDS, run_round, &rounds, &error) ==
                             STOKER_ERROR_CORRUPT);
        char where[32];
        snprintf(where, sizeof where, "round %llu", (unsigned long long)rounds.fails[0]);
        T_TRUE("engine", strcmp(error.where, where) == 0);
    }
    stoker_engine_close(engine);
}

/* A client with `left` pieces of work, that records which client was served when. */
struct client {
    struct stk_engine_client client;
    struct served {
        char names[64];
        int count;
    } *served;
    char name;
    int left;
};

static bool client_step(struct stk_engine_client *client, struct stk_worker *worker)
{
    struct client *mine = (struct client *)client;

    (void)worker;
    if (mine->left == 0) {
        return false;
    }
    mine->left--;
    mine->served->names[mine->served->count++] = mine->name;
    pthread_cond_broadcast(&worker->engine->done);
    return true;
}

static uint64_t client_trim(struct stk_engine_client *client)
{
    (void)client;
    return 0;
}

static void serve(struct stoker_engine *engine, struct client *clients, int count)
{
    int left = 0;

    stk_engine_lock(engine, NULL);
    for (int i = 0; i < count; i++) {
        clients[i].client.step_locked = client_step;
        clients[i].client.trim_locked = client_trim;
        left += clients[i].left;
        stk_engine_add_client_locked(engine, &clients[i].client);
    }
    stk_engine_signal_locked(engine, 2);
    while (clients[0].served->count < left) {
        pthread_cond_wait(&engine->done, &engine->lock);
    }
    for (int i = 0; i < count; i++) {
        stk_engine_remove_client_locked(engine, &clients[i].client);
    }
    T_TRUE("engine", engine->locked.clients == NULL);
    stk_engine_unlock(engine);
}

static void test_clients(void)
{
    struct stoker_engine *engine = open_engine(64 << 20);
    struct served served = {.count = 0};
    struct client even[2] = {{.served = &served, .name = 'a', .left = 5},
                             {.served = &served, .name = 'b', .left = 5}};
    struct client first[2] = {{.served = &served, .name = 'a', .left = 5},
                              {.served = &served, .name = 'b', .left = 5, .client.waiting = 1}};

    serve(engine, even, 2);
    T_TRUE("engine", memcmp(served.names, "ababababab", 10) == 0 ||
                         memcmp(served.names, "bababababa", 10) == 0);
    memset(&served, 0, sizeof served);
    serve(engine, first, 2);
    T_TRUE("engine", memcmp(served.names, "bbbbbaaaaa", 10) == 0);
    stoker_engine_close(engine);
}

static int made, closed;

static void service_close(struct stk_engine_service *service)
{
    closed++;
    stk_free(service);
}

static uint64_t service_trim(struct stk_engine_service *service)
{
    (void)service;
    return 0;
}

static int service_make(struct stk_engine_service **service_out, struct stoker_engine *engine,
                        struct stoker_error *error)
{
    struct stk_engine_service *service = stk_alloc(1, sizeof *service);

    (void)engine, (void)error;
    T_TRUE("engine", service != NULL);
    *service = (struct stk_engine_service){service_close, service_trim};
    made++;
    *service_out = service;
    return 0;
}

static void test_service(void)
{
    struct stoker_engine *engine = open_engine(64 << 20);
    struct stk_engine_service *first, *second;

    T_TRUE("engine", stk_engine_service_get(engine, service_make, &first, NULL) == 0);
    T_TRUE("engine", stk_engine_service_get(engine, service_make, &second, NULL) == 0);
    T_TRUE("engine", first == second && made == 1 && closed == 0);
    stoker_engine_close(engine);
    T_TRUE("engine", closed == 1);
}

static void test_reserve(void)
{
    struct stoker_engine *engine = open_engine(8 << 20);
    struct stoker_error error = {0};

    T_TRUE("engine", stk_engine_reserve(engine, 4 << 20, 0, "half", &error) == 0);
    T_TRUE("engine",
           stk_engine_reserve(engine, 4 << 20, 5, "a bit too much", &error) == STOKER_ERROR_BUDGET);
    T_TRUE("engine", strstr(error.where, "a bit too much: 4194304 bytes needed") != NULL);
    stk_budget_release(&engine->budget, 4 << 20);
    T_TRUE("engine", stk_engine_reserve(engine, 4 << 20, 0, "half", &error) == 0);
    stk_budget_release(&engine->budget, 4 << 20);
    stoker_engine_close(engine);
}

int main(void)
{
    int64_t alive = stk_mem_alive();

    test_parallel();
    test_clients();
    test_service();
    test_reserve();
    T_TRUE("engine", stk_mem_alive() == alive);
    return t_finish();
}
