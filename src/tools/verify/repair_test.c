/* Goal: after any failure or interruption of a repair, the bytes of the old shard are not lost,
 * nothing leaks or hangs, and a second repair writes the same bytes as an undisturbed one.
 * Method: a simulated data set with manifest, index and one damaged member; fail-nth over memory
 * and over the I/O interface, cut_nth and power cuts over each call of a repair. Covers repair.c.
 */
#include "tools/verify/verify_sets_test.h"

/* One shard in gzip: a damaged header in it, and its end is cut off. */
static void add_packed(struct stk_io *world, struct t_tar *tars)
{
    struct t_tar tar = {0};

    make_tar(&tar, "s");
    tar.data[data_at(2, 1) - 512 + 150] ^= 1;
    t_tar_gzip(&tar, &tars[0]);
    tars[0].bytes -= 40;
    stk_sim_add(world, "/data/a.tar.gz", tars[0].data, tars[0].bytes);
    t_tar_free(&tar);
}

/* Runs a repair whose n-th call fails; how many calls it made. */
static uint64_t repair_failing(bool seam, bool packed, uint64_t n)
{
    const char *path = packed ? "/data/a.tar.gz" : "/data/a.tar";
    const char *original = packed ? "/data/a.tar.gz.original" : "/data/a.tar.original";
    const char *half = packed ? "/data/a.tar.gz.repair" : "/data/a.tar.repair";

    static struct run run;
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 64u << 20);
    struct t_tar tars[2] = {{0}};
    uint64_t calls;

    (packed ? add_packed : add_hurt)(world, tars);
    calls = seam ? stk_sim_calls(world) : stk_mem_calls();
    if (seam) {
        stk_sim_fail_nth(world, n);
    } else {
        stk_mem_fail_nth(n);
    }
    verify_url(engine, "/data", true, true, &run);
    stk_mem_fail_nth(0);
    stk_sim_fail_nth(world, 0);
    calls = (seam ? stk_sim_calls(world) : stk_mem_calls()) - calls;
    if (run.status < 0) {
        T_EQ("nothing half done stays", stk_io_stat_path(world, half, &(struct stk_stat){0}, NULL),
             -ENOENT);
        T_ERROR(seam ? "fail-nth, seam" : "fail-nth, memory", &run.error);
    }
    T_TRUE("the original is there", is_file(world, path, tars[0].data, tars[0].bytes) ||
                                        is_file(world, original, tars[0].data, tars[0].bytes));
    if (n == 0) {
        T_EQ("it is repaired", run.progress.repaired, 1);
        T_TRUE("and retained", is_file(world, original, tars[0].data, tars[0].bytes));
    }
    stoker_engine_close(engine);
    t_tar_free(&tars[0]);
    t_tar_free(&tars[1]);
    return calls;
}

/* Whatever fails: an error that is filled, or a finding; nothing leaks, nothing hangs, and the
 * data is there. */
static void test_fail_nth(void)
{
    for (int i = 0; i < 4; i++) {
        bool seam = i % 2, packed = i / 2;
        uint64_t calls = repair_failing(seam, packed, 0);

        T_TRUE("calls", calls > 20);
        for (uint64_t n = 1; n <= calls; n += T_STRIDE) {
            repair_failing(seam, packed, n);
        }
    }
}

/* kill -9, and a power cut, at each call of a repair: the old shard or the new one exists, the old
 * one's bytes are not lost, and another repair writes the same bytes as an uninterrupted one. */
static void test_cut(void)
{
    static struct run run;
    uint8_t *want = NULL;
    size_t want_bytes = 0;
    uint64_t calls = 0;

    /* At each call: a kill, a power cut, one that keeps some names. */
    for (uint64_t turn = 0; turn < 3 * (calls + 1); turn++) {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 64u << 20);
        struct t_tar tars[2] = {{0}};
        uint64_t before, n = turn / 3;

        add_hurt(world, tars);
        before = stk_sim_calls(world);
        stk_sim_kill_nth(world, n);
        verify_url(engine, "/data", false, true, &run);
        calls = turn == 0 ? stk_sim_calls(world) - before : calls;
        stk_sim_kill_nth(world, 0);
        if (turn % 3 > 0) {
            T_EQ("crash", turn % 3 == 1 ? stk_sim_crash(world) : stk_sim_crash_partial(world, n),
                 0);
        }
        T_TRUE("the old one is there",
               is_file(world, "/data/a.tar", tars[0].data, tars[0].bytes) ||
                   is_file(world, "/data/a.tar.original", tars[0].data, tars[0].bytes));
        verify_url(engine, "/data", false, true, &run);
        verify_url(engine, "/data", false, false, &run);
        if (!T_EQ("clean", run.status == 0 ? (long long)run.progress.findings : -1, 0)) {
            printf("cut at call %llu\n", (unsigned long long)n);
            print_run(&run);
        }
        if (turn == 0) {
            want = read_file(world, "/data/a.tar", &want_bytes);
        }
        T_TRUE("the same bytes", is_file(world, "/data/a.tar", want, want_bytes));
        T_TRUE("the original", is_file(world, "/data/a.tar.original", tars[0].data, tars[0].bytes));
        stoker_engine_close(engine);
        t_tar_free(&tars[0]);
        t_tar_free(&tars[1]);
    }
    free(want);
}

int main(void)
{
    make_pictures();
    test_fail_nth();
    test_cut();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
