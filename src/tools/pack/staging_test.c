/* Goal: a data set whose folder has its final name is complete after a power cut, whichever of the
 * changed names the disk stored, and has no files of unfinished work.
 * Method: two small simulated shards; a power cut at each call of a commit, each with many choices
 * of the names that persist (stk_sim_crash_partial); the next run ends with the same bytes.
 * Without one of the syncs of the folder (in stk_index_write, before the manifest; in
 * rename_to_destination) some choice keeps the manifest, or the folder's name, without the files
 * that it stands for; shard_writer_test.c tests the sync between. Covers staging.c and
 * staging_files.c. */
#include "tools/pack/pack_test.h"

#include "tools/pack/shard_file.h"

#include <jansson.h>

enum { SHARDS = 2, CHOICES = 48 };

static const char destination[] = "/out/dst", left_over[] = "/out/dst.part/t-007.tar.tmp";

static const struct stk_staging_content content = {.pattern = "t-%03d.tar", .shard_count = SHARDS};

static int write_shard(struct stk_staging *draft, const char *name)
{
    struct stk_shard_file *out = NULL;
    int status = stk_shard_file_open(&out, draft->io, draft->directory, name, draft->plan, NULL);

    if (status == 0) {
        stk_shard_file_begin_sample(out);
        status = stk_shard_file_begin_member(
            out, (struct stk_view){(const uint8_t *)name, strlen(name)}, 1000, NULL);
        status = status < 0 ? status : stk_shard_file_write(out, (uint8_t[1000]){7}, 1000, NULL);
        status = status < 0 ? status : stk_shard_file_finish(out, NULL);
    }
    stk_shard_file_close(out);
    return status;
}

/* Opens the draft, and writes the shards that it lacks, as pack does. */
static int prepare(struct stk_staging *draft, struct stk_io *world)
{
    json_t *settings = json_pack("{s:i}", "n", 1);
    int status = stk_staging_open(draft, world, destination, settings, "v1", NULL);

    json_decref(settings);
    for (uint64_t i = 0; status == 0 && draft->state == STK_STAGING_OPEN && i < SHARDS; i++) {
        struct stk_shard_done done = {0};
        char name[STK_SHARD_NAME_MAX];

        stk_shard_pattern_name(content.pattern, i, name, sizeof name);
        status = stk_shard_done_read(&done, world, draft->directory, name, draft->plan, NULL);
        status = status == 0 ? write_shard(draft, name) : status < 0 ? status : 0;
        stk_shard_done_deinit(&done);
    }
    return status;
}

/* Cuts the power at call `n` of the commit (0: never); returns how many calls it made. */
static uint64_t commit(struct stk_io *world, uint64_t n, uint64_t choice)
{
    struct stk_staging draft;
    uint64_t calls;
    int status;

    T_EQ("prepare", prepare(&draft, world), 0);
    stk_sim_add(world, left_over, "half", 4);
    calls = stk_sim_calls(world);
    stk_sim_kill_nth(world, n);
    status = stk_staging_commit(&draft, &content, NULL);
    calls = stk_sim_calls(world) - calls;
    T_TRUE("commit", n > 0 || status == 0);
    stk_staging_close(&draft);
    stk_sim_kill_nth(world, 0);
    if (n > 0) {
        T_EQ("crash", stk_sim_crash_partial(world, choice), 0);
        T_TRUE("what is said to be done stays", status < 0 || is_there(world, destination));
    }
    return calls;
}

/* Like the next run of pack: nothing is left to do if the name exists and no plan is there. */
static void go_on(struct stk_io *world)
{
    struct stk_staging draft = {0};

    if (is_there(world, destination) && !is_there(world, "/out/dst/stoker.plan.json")) {
        return;
    }
    T_EQ("again", prepare(&draft, world), 0);
    T_EQ("again", stk_staging_commit(&draft, &content, NULL), 0);
    stk_staging_close(&draft);
}

static void test_power(void)
{
    uint8_t want[32], digest[32];
    uint64_t calls = 0, cuts = 0;

    for (uint64_t n = 0; n <= calls; n++) {
        for (uint64_t choice = 0; choice < (n > 0 ? CHOICES : 1); choice++) {
            struct stk_io *world;
            struct stoker_engine *engine = open_engine(&world, 1);
            uint64_t made;

            T_EQ("/out", stk_sim_add(world, "/out", NULL, 0), 0);
            made = commit(world, n, choice);
            go_on(world);
            T_TRUE("named", folder_digest(world, destination, digest));
            if (n == 0) {
                calls = made;
                memcpy(want, digest, sizeof want);
                T_TRUE("no half file", !is_there(world, "/out/dst/t-007.tar.tmp"));
                T_TRUE("no done file", !is_there(world, "/out/dst/t-000.tar.done"));
            }
            if (!T_TRUE("the same bytes", memcmp(want, digest, sizeof want) == 0)) {
                printf("power cut at call %llu, choice %llu\n", (unsigned long long)n,
                       (unsigned long long)choice);
            }
            cuts += n > 0;
            stoker_engine_close(engine);
        }
    }
    printf("%llu power cuts over %llu calls\n", (unsigned long long)cuts,
           (unsigned long long)calls);
    T_TRUE("calls", calls > 15);
}

int main(void)
{
    test_power();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
