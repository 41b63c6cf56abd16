/* Goal: a data set whose folder has its final name is complete after a power cut, whichever of the
 * changed names the disk stored, and has no files of unfinished work.
 * Method: two small simulated shards; a power cut at each call of a commit, each with many choices
 * of the names that persist (stk_sim_crash_partial); the next run ends with the same bytes.
 * Without one of the syncs of the folder (in stk_index_write, before the manifest; in
 * rename_to_destination) some choice keeps the manifest, or the folder's name, without the files
 * that it stands for; shard_writer_test.c tests the sync between. And on the file system of the
 * machine: nothing is written through a link that replaces DST.part. Covers staging.c and
 * staging_files.c. */
#include "tools/pack/pack_test.h"

#include "tools/pack/shard_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SHARDS = 2, CHOICES = 48 };

static const char destination[] = "/out/dst", left_over[] = "/out/dst.part/t-007.tar.tmp";

static const struct stk_staging_content content = {.pattern = "t-%03d.tar", .shard_count = SHARDS};

static int write_shard(struct stk_staging *draft, const char *name)
{
    struct stk_shard_file *out = NULL;
    int status = stk_shard_file_open(&out, draft->files, draft->directory, name, draft->plan, NULL);

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

/* ---- another user of the parent folder replaces DST.part by a link ---- */

static char home[64];

static const char *at(const char *name)
{
    static char paths[4][160];
    static int turn;

    turn = (turn + 1) % 4;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s", home, name);
    return paths[turn];
}

static bool is_file(const char *name)
{
    struct stat about;

    return stat(at(name), &about) == 0;
}

/* swap: before which step; 0: never. Returns the status of the step that failed. */
static int write_with_swap(struct stk_io *io, int swap)
{
    json_t *settings = json_pack("{s:i}", "n", 1);
    struct stk_staging draft = {0};
    int status = stk_staging_open(&draft, io, at("dst"), settings, "v1", NULL);

    json_decref(settings);
    for (int step = 1; status == 0 && step <= SHARDS + 1; step++) {
        char name[STK_SHARD_NAME_MAX];

        if (step == swap) {
            T_EQ("away", rename(at("dst.part"), at("away")), 0);
            T_EQ("link", symlink("outside", at("dst.part")), 0);
            if (step > SHARDS) { /* what the commit reads by its path is there, too */
                char command[256];

                snprintf(command, sizeof command, "cp %s/away/*.done %s/away/*.tar %s/outside",
                         home, home, home);
                T_EQ("copy", system(command), 0);
            }
        }
        stk_shard_pattern_name(content.pattern, (uint64_t)step - 1, name, sizeof name);
        status =
            step <= SHARDS ? write_shard(&draft, name) : stk_staging_commit(&draft, &content, NULL);
    }
    stk_staging_close(&draft);
    return status;
}

static void test_swap(void)
{
    struct stk_io_options options = {.depth = 4, .read_timeout_ms = 10000};
    struct stk_io *io;

    snprintf(home, sizeof home, "/tmp/staging_test.XXXXXX");
    if (!T_TRUE("home", mkdtemp(home)) || !T_EQ("open", stk_io_open(&io, &options, NULL), 0)) {
        return;
    }
    for (int swap = 0; swap <= SHARDS + 1; swap++) {
        const struct stk_tree_removal all = {.folders = true};
        int status;

        T_EQ("outside", mkdir(at("outside"), 0755), 0);
        status = write_with_swap(io, swap);
        T_TRUE("an error if it was replaced", swap ? status < 0 : status == 0);
        T_TRUE("outside", is_file("outside/t-001.tar") == (swap > SHARDS) &&
                              !is_file("outside/stoker.index") &&
                              !is_file("outside/" STK_MANIFEST_NAME));
        T_TRUE("shards", is_file(swap ? "away/t-000.tar" : "dst/t-000.tar") &&
                             is_file(swap ? "away/t-001.tar" : "dst/t-001.tar"));
        (void)stk_io_remove_tree(io, at("outside"), &all, NULL);
        (void)stk_io_remove_tree(io, at("away"), &all, NULL);
        (void)stk_io_remove_tree(io, at("dst"), &all, NULL);
        (void)stk_io_remove(io, at("dst"), NULL); /* the link */
        (void)stk_io_remove(io, at("dst.part"), NULL);
        (void)stk_io_remove(io, at("dst.lock"), NULL);
    }
    T_EQ("home", rmdir(home), 0);
    stk_io_close(io);
}

int main(void)
{
    test_power();
    test_swap();
    T_EQ("no leak", stk_mem_alive(), 0);
    return t_finish();
}
