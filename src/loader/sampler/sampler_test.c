/* Goal: a sampler chooses the samples of its predicate, weights and balances by columns, writes its
 * table and finds it again; a stale, damaged or unwritable table is reported and never leads to a
 * wrong choice.
 * Method: tars in a simulator whose samples' values are functions of their numbers; rows of
 * predicates against those functions; the same bytes from 1 and 3 threads; each I/O call and each
 * allocation failing once. */
#include "dataset/dataset_test.h"
#include "loader/sampler/sampler.h"

#define SHARDS 3
#define EACH 40 /* samples of a shard */
#define SAMPLES (SHARDS * EACH)

/* Sample i: label i % 7; score i / 8.0, none where i % 11 == 10; lang; .cls only in even ones. */
static void put_shard(struct stk_io *world, int shard, int damaged)
{
    struct t_tar tar = {0};
    char name[64], text[256];

    for (int k = 0; k < EACH; k++) {
        int i = shard * EACH + k;

        snprintf(name, sizeof name, "k%03d.json", i);
        snprintf(text, sizeof text,
                 "{\"score\": %s, \"lang\": \"%s\", \"list\": [%d, 2], \"ok\": %s}",
                 i % 11 == 10 ? "null" : "", i % 3 ? "en" : "de", i, i % 2 ? "true" : "false");
        if (i % 11 != 10) {
            snprintf(text, sizeof text,
                     "{\"score\": %d.%03d, \"lang\": \"%s\", \"list\": [%d, 2], \"ok\": %s}", i / 8,
                     i % 8 * 125, i % 3 ? "en" : "de", i, i % 2 ? "true" : "false");
        }
        if (i == damaged) {
            text[5] = '\0';
        }
        t_tar_add(&tar, name, text, strlen(text));
        snprintf(name, sizeof name, "k%03d.txt", i);
        memset(text, 'x', sizeof text);
        t_tar_add(&tar, name, text, (size_t)(i % 50));
        snprintf(name, sizeof name, "k%03d.cls", i);
        snprintf(text, sizeof text, "%d\n", i % 7);
        if (i % 2 == 0) {
            t_tar_add(&tar, name, text, strlen(text));
        }
    }
    t_tar_end(&tar);
    snprintf(name, sizeof name, "/data/s-%03d.tar", shard);
    T_EQ(name, t_put(world, name, tar.data, tar.bytes), 0);
    t_tar_free(&tar);
}

static struct stoker_engine *open_world(struct stk_io **world_out, uint32_t threads, int damaged)
{
    struct stoker_engine *engine = t_engine(world_out, threads);

    T_EQ("folder", stk_sim_add(*world_out, "/data", NULL, 0), 0);
    for (int i = 0; i < SHARDS; i++) {
        put_shard(*world_out, i, damaged);
    }
    return engine;
}

static int sample_of(struct stoker_dataset *dataset, const struct stoker_sampler_options *options,
                     struct stoker_sampler **sampler_out, struct stoker_error *error)
{
    struct stoker_sampler_options own = *options;
    int status;

    own.struct_size = sizeof own;
    status = stoker_sampler_open(sampler_out, dataset, &own, error);
    if (status == 0) {
        do {
            status = stoker_sampler_next(*sampler_out, 1, error);
        } while (status == 1);
    }
    return status;
}

static bool has_score(int i)
{
    return i % 11 != 10;
}

static bool all(int i)
{
    return i >= 0;
}
static bool labels(int i)
{
    return i % 2 == 0 && (i % 7 == 3 || i % 7 == 5);
}
static bool scores(int i)
{
    return has_score(i) && i / 8.0 > 2.5;
}
static bool german(int i)
{
    return i % 3 == 0 && i % 2 == 1;
}
static bool none(int i)
{
    return !has_score(i);
}
static bool shard_one(int i)
{
    return i / EACH == 1 && i % 4 == 1;
}
static bool second(int i)
{
    return i > 100;
}
static bool one(int i)
{
    return i == 17;
}
static bool no_label(int i)
{
    return i % 2 == 1;
}

/* clang-format off: one row, one line. */
static const struct row {
    const char *where;
    bool (*holds)(int i);
} rows[] = {
    {NULL, all},
    {"label in (3, 5)", labels},
    {"cls in (3, 5)", labels},
    {"json.score > 2.5", scores},
    {"json.lang == 'de' and json.ok == true", german},
    {"json.score is none", none},
    {"not (json.score >= 0)", none},
    {"json.list.0 > 100", second},
    {"json.list > 100 or sample > 100", second}, /* a list compares with nothing */
    {"shard == 's-001.tar' and sample % 4 == 1", shard_one},
    {"key == 'k017'", one},
    {"label is none", no_label},
    {"txt is none or size - 1 == 1 or sample >= 0", NULL},
    {"class == 'cat'", NULL},
};
/* clang-format on */

static void test_rows(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world, 2, -1);
    struct stoker_dataset *dataset = NULL;

    T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
    T_EACH(row, row, rows)
    {
        const char *name = row->where ? row->where : "all";
        struct stoker_sampler_options options = {.where = row->where};
        struct stoker_sampler_info info = {.struct_size = sizeof info};
        struct stoker_sampler *sampler = NULL;
        struct stoker_error error = {0};
        int status = sample_of(dataset, &options, &sampler, &error), count = 0;

        if (!row->holds) {
            T_TRUE(name, status == STOKER_ERROR_ARGUMENT || status == STOKER_ERROR_EMPTY);
            T_ERROR(name, &error);
            stoker_sampler_close(sampler);
            continue;
        }
        T_EQ(name, status, 0);
        T_EQ(name, stoker_sampler_info(sampler, &info), 0);
        for (int i = 0; i < SAMPLES; i++) {
            struct stk_sampling_rule choice = stk_sampler_choice(sampler);

            T_EQ(name, !choice.subset || stk_subset_has(choice.subset, (uint64_t)i), row->holds(i));
            count += row->holds(i);
        }
        T_EQ(name, info.count, count);
        T_EQ(name, info.table_path != NULL, row->where != NULL);
        stoker_sampler_close(sampler);
    }
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

/* Lists of ids, keys and weights; refusals. */
static void test_lists(void)
{
    static const uint64_t ids[] = {5, 119, 5, 0}, wrong[] = {120};
    static const char *const keys[] = {"k007", "k119", "k007"}, *const missing[] = {"k007", "no"};
    static const double weights[SAMPLES] = {[3] = 1}, few[2] = {1, 1};
    static double bad[SAMPLES] = {-1};
    const struct {
        const char *name;
        struct stoker_sampler_options options;
        int status;
        uint64_t count;
    } lists[] = {
        {"ids", {.samples = ids, .sample_count = 4}, 0, 3},
        {"keys", {.keys = keys, .key_count = 3}, 0, 2},
        {"no ids", {.samples = ids, .sample_count = 0}, STOKER_ERROR_EMPTY, 0},
        {"wrong id", {.samples = wrong, .sample_count = 1}, STOKER_ERROR_ARGUMENT, 0},
        {"missing key", {.keys = missing, .key_count = 2}, STOKER_ERROR_MISSING, 0},
        {"weights", {.weights = weights, .weight_count = SAMPLES}, 0, SAMPLES},
        {"few weights", {.weights = few, .weight_count = 2}, STOKER_ERROR_ARGUMENT, 0},
        {"bad weights", {.weights = bad, .weight_count = SAMPLES}, STOKER_ERROR_ARGUMENT, 0},
        {"zeros",
         {.where = "sample > 3", .weights = weights, .weight_count = SAMPLES},
         STOKER_ERROR_ARGUMENT,
         0},
        {"replacement", {.samples = ids, .sample_count = 4, .replacement = 1}, 0, 3},
        {"two ways", {.where = "size > 1", .keys = keys, .key_count = 3}, STOKER_ERROR_ARGUMENT, 0},
        {"two draws", {.balance = "label", .replacement = 1}, STOKER_ERROR_ARGUMENT, 0},
        {"no label", {.balance = "label"}, STOKER_ERROR_ARGUMENT, 0},
        {"no score", {.weight = "json.score"}, STOKER_ERROR_ARGUMENT, 0},
        {"text weight", {.weight = "json.lang"}, STOKER_ERROR_ARGUMENT, 0},
        {"no column", {.weight = "jpg"}, STOKER_ERROR_ARGUMENT, 0},
        {"expression", {.weight = "size > 1"}, STOKER_ERROR_ARGUMENT, 0},
        {"empty", {.where = "size > 1_000_000"}, STOKER_ERROR_EMPTY, 0},
        {"sizes", {.where = "size >= 0 and sample < 50 and txt is not none"}, 0, 50},
        {"table", {.where = "size > 1", .tables = 9}, STOKER_ERROR_ARGUMENT, 0},
    };
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world, 1, -1);
    struct stoker_dataset *dataset = NULL;

    T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
    for (size_t i = 0; i < STK_COUNT(lists); i++) {
        struct stoker_sampler_info info = {.struct_size = sizeof info};
        struct stoker_sampler *sampler = NULL;
        struct stoker_error error = {0};

        T_EQ(lists[i].name, sample_of(dataset, &lists[i].options, &sampler, &error),
             lists[i].status);
        if (lists[i].status == 0) {
            T_EQ(lists[i].name, stoker_sampler_info(sampler, &info), 0);
            T_EQ(lists[i].name, info.count, lists[i].count);
        } else {
            T_ERROR(lists[i].name, &error);
        }
        stoker_sampler_close(sampler);
    }
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

/* After a failure every further call returns it: the columns of the scan are gone by then. */
static void test_failed_again(void)
{
    static const char *const missing[] = {"no"};
    static const double zeros[SAMPLES];
    const struct {
        const char *name;
        struct stoker_sampler_options options;
        int status;
    } failures[] = {
        {"no sample is chosen", {.where = "size > 1_000_000"}, STOKER_ERROR_EMPTY},
        {"weights of 0",
         {.weights = zeros, .weight_count = SAMPLES, .where = "sample > 3"},
         STOKER_ERROR_ARGUMENT},
        {"a key is missing", {.keys = missing, .key_count = 1}, STOKER_ERROR_MISSING},
    };
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world, 2, -1);
    struct stoker_dataset *dataset = NULL;

    T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
    for (size_t i = 0; i < STK_COUNT(failures); i++) {
        struct stoker_sampler *sampler = NULL;
        struct stoker_error first = {0}, again = {0};

        T_EQ(failures[i].name, sample_of(dataset, &failures[i].options, &sampler, &first),
             failures[i].status);
        T_TRUE(failures[i].name, sampler != NULL);
        T_EQ(failures[i].name, stoker_sampler_next(sampler, 1, &again), failures[i].status);
        T_STR(failures[i].name, again.where, first.where);
        T_EQ(failures[i].name, stoker_sampler_next(sampler, 1, NULL), failures[i].status);
        stoker_sampler_close(sampler);
    }
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

/* Weights of a column are the values that were read; classes are its values. */
static void test_draws(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world, 2, -1);
    struct stoker_dataset *dataset = NULL;
    struct stoker_sampler_options options = {.where = "json.score is not none",
                                             .weight = "json.score"};
    struct stoker_sampler_info info = {.struct_size = sizeof info};
    struct stoker_sampler *sampler = NULL;
    struct stk_sampling_rule choice;
    double seen[SAMPLES] = {0}, sum = 0, chi = 0;
    bool is_even = true;

    T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
    T_EQ("weights", sample_of(dataset, &options, &sampler, NULL), 0);
    choice = stk_sampler_choice(sampler);
    for (uint64_t i = 0; i < 200000; i++) {
        seen[stk_subset_select(choice.subset, stk_alias_table_draw(choice.alias, 5, i))]++;
    }
    for (int i = 0; i < SAMPLES; i++) {
        sum += has_score(i) ? i / 8.0 : 0;
    }
    for (int i = 1; i < SAMPLES; i++) {
        double want = has_score(i) ? 200000 * (i / 8.0) / sum : 0;

        chi += want > 0 ? (seen[i] - want) * (seen[i] - want) / want : 0;
        T_TRUE("never", want > 0 || seen[i] == 0);
    }
    T_TRUE("never", seen[0] == 0);
    T_TRUE("weights", t_is_fair("weights", chi, SAMPLES - 12));
    stoker_sampler_close(sampler);

    options = (struct stoker_sampler_options){.balance = "json.lang"};
    T_EQ("balance", sample_of(dataset, &options, &sampler, NULL), 0);
    T_EQ("info", stoker_sampler_info(sampler, &info), 0);
    T_EQ("classes", info.class_count, 2);
    choice = stk_sampler_choice(sampler);
    for (uint64_t i = 0; i < 1000; i += 2) {
        is_even &= (stk_class_balance_draw(choice.classes, 5, i) % 3 == 0) !=
                   (stk_class_balance_draw(choice.classes, 5, i + 1) % 3 == 0);
    }
    T_TRUE("each language once", is_even);
    T_TRUE("identities", choice.draws_identity != 0 && choice.subset_identity == 0);
    stoker_sampler_close(sampler);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

static void find_table(struct stoker_sampler *sampler, char path[512])
{
    struct stoker_sampler_info info = {.struct_size = sizeof info};

    T_EQ("info", stoker_sampler_info(sampler, &info), 0);
    path[0] = '\0';
    strncat(path, info.table_path ? info.table_path : "", 511);
}

/* Written next to the place of an index that does not exist; found again; the same bytes whatever
 * the threads. */
static void test_files(void)
{
    const struct stoker_sampler_options options = {.where = "json.score > 2.5",
                                                   .weight = "json.score"};
    struct stoker_sampler_options require = options;
    struct stk_view bytes[2] = {{0}};
    char path[512];

    require.tables = STOKER_INDEX_REQUIRE;
    for (int run = 0; run < 2; run++) {
        struct stk_io *world;
        struct stoker_engine *engine = open_world(&world, run ? 3 : 1, -1);
        struct stoker_sampler_info info = {.struct_size = sizeof info};
        struct stoker_dataset *dataset = NULL;
        struct stoker_sampler *sampler = NULL;
        struct stoker_error error = {0};

        T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
        T_EQ("none yet", sample_of(dataset, &require, &sampler, &error), STOKER_ERROR_CHANGED);
        T_HAS("none yet", error.advice, "stoker sample");
        T_EQ("made", sample_of(dataset, &options, &sampler, NULL), 0);
        find_table(sampler, path);
        T_HAS("beside", path, "/data/stoker.index.");
        bytes[run] = t_bytes(world, path);
        stoker_sampler_close(sampler);
        T_EQ("found", sample_of(dataset, &require, &sampler, NULL), 0);
        T_EQ("info", stoker_sampler_info(sampler, &info), 0);
        T_EQ("not scanned", info.scanned, 0);
        stoker_sampler_close(sampler);
        /* Damaged: reported, and made again. */
        ((uint8_t *)(uintptr_t)bytes[run].data)[bytes[run].bytes - 9] ^= 1;
        T_EQ("damage", t_put(world, path, bytes[run].data, bytes[run].bytes), 0);
        ((uint8_t *)(uintptr_t)bytes[run].data)[bytes[run].bytes - 9] ^= 1;
        T_EQ("refused", sample_of(dataset, &require, &sampler, &error), STOKER_ERROR_CHANGED);
        T_HAS("refused", error.where, "damaged");
        T_EQ("made anew", sample_of(dataset, &options, &sampler, NULL), 0);
        T_EQ("info", stoker_sampler_info(sampler, &info), 0);
        T_EQ("scanned", info.scanned, SAMPLES);
        T_HAS("note", info.table_note, "damaged");
        stoker_sampler_close(sampler);
        stoker_dataset_close(dataset);
        /* Another data set: stale. */
        put_shard(world, SHARDS, -1);
        T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
        T_EQ("stale", sample_of(dataset, &require, &sampler, &error), STOKER_ERROR_CHANGED);
        T_HAS("stale", error.where, "changed");
        T_EQ("made anew", sample_of(dataset, &options, &sampler, NULL), 0);
        T_EQ("info", stoker_sampler_info(sampler, &info), 0);
        T_EQ("the same name", strcmp(info.table_path, path), 0);
        stoker_sampler_close(sampler);
        /* A folder that cannot be written: no file, and why. */
        T_EQ("rule",
             stk_sim_add_rule(
                 world, &(struct stk_sim_rule){.path = "/data", .fault = STK_SIM_FAULT_DENIED}),
             0);
        require = (struct stoker_sampler_options){.where = "label == 2"};
        T_EQ("in memory", sample_of(dataset, &require, &sampler, NULL), 0);
        T_EQ("info", stoker_sampler_info(sampler, &info), 0);
        T_TRUE("elsewhere", !info.table_path || strstr(info.table_path, "/data/") == NULL);
        T_HAS("note", info.table_note, "not stored");
        stoker_sampler_close(sampler);
        require = options;
        require.tables = STOKER_INDEX_REQUIRE;
        stoker_dataset_close(dataset);
        stoker_engine_close(engine);
    }
    T_TRUE("the same bytes", t_same(bytes[0], bytes[1]));
    t_drop(bytes[0]);
    t_drop(bytes[1]);
}

/* A table is of one data set and one choice: another one under its name is not taken, also
 * where both have as many samples. */
static void test_foreign_tables(void)
{
    struct stoker_sampler_options options[2] = {{.where = "label == 2"}, {.where = "label == 4"}};
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world, 1, -1);
    struct stoker_dataset *dataset = NULL;
    struct stoker_sampler *sampler = NULL;
    struct stoker_dataset_info about = {.struct_size = sizeof about};
    struct stoker_error error = {0};
    struct t_tar tar = {0};
    struct stk_view bytes;
    char paths[2][512];

    T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
    for (int i = 0; i < 2; i++) {
        T_EQ("made", sample_of(dataset, &options[i], &sampler, NULL), 0);
        find_table(sampler, paths[i]);
        stoker_sampler_close(sampler);
        options[i].tables = STOKER_INDEX_REQUIRE;
        T_EQ("found", sample_of(dataset, &options[i], &sampler, NULL), 0);
        stoker_sampler_close(sampler);
    }
    bytes = t_bytes(world, paths[1]);
    T_EQ("another choice", t_put(world, paths[0], bytes.data, bytes.bytes), 0);
    t_drop(bytes);
    T_EQ("refused", sample_of(dataset, &options[0], &sampler, &error), STOKER_ERROR_CHANGED);
    T_HAS("refused", error.where, "changed");
    stoker_dataset_close(dataset);
    /* As many samples, one of them of another name. */
    for (int k = 0; k < EACH; k++) {
        char name[64];

        snprintf(name, sizeof name, "%s%03d.cls", k ? "k" : "other", k);
        t_tar_add(&tar, name, "2", 1);
    }
    t_tar_end(&tar);
    T_EQ("other data", t_put(world, "/data/s-000.tar", tar.data, tar.bytes), 0);
    t_tar_free(&tar);
    T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
    T_EQ("info", stoker_dataset_info(dataset, &about), 0);
    T_EQ("as many", about.sample_count, SAMPLES);
    T_EQ("refused", sample_of(dataset, &options[1], &sampler, &error), STOKER_ERROR_CHANGED);
    T_HAS("refused", error.where, "changed");
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

/* A number is one class, however it is written; a text of its digits is another. */
static void test_classes(void)
{
    static const char *const values[] = {"3", "3.0", "30e-1", "\"3\"", "3.5"};
    struct stk_io *world;
    struct stoker_engine *engine = t_engine(&world, 1);
    struct stoker_sampler_options options = {.balance = "json.v"};
    struct stoker_sampler_info info = {.struct_size = sizeof info};
    struct stoker_dataset *dataset = NULL;
    struct stoker_sampler *sampler = NULL;
    struct t_tar tar = {0};

    for (size_t i = 0; i < STK_COUNT(values); i++) {
        char name[32], text[64];

        snprintf(name, sizeof name, "k%zu.json", i);
        snprintf(text, sizeof text, "{\"v\": %s}", values[i]);
        t_tar_add(&tar, name, text, strlen(text));
    }
    t_tar_end(&tar);
    T_EQ("folder", stk_sim_add(world, "/data", NULL, 0), 0);
    T_EQ("tar", t_put(world, "/data/v.tar", tar.data, tar.bytes), 0);
    t_tar_free(&tar);
    T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
    T_EQ("balance", sample_of(dataset, &options, &sampler, NULL), 0);
    T_EQ("info", stoker_sampler_info(sampler, &info), 0);
    T_EQ("classes", info.class_count, 3);
    stoker_sampler_close(sampler);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

/* Damage in a sidecar that decides is reported with its place; a sidecar that does not decide is
 * not read. */
static void test_damage(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world, 2, 77);
    struct stoker_sampler_options options = {.where = "json.score > 2"};
    struct stoker_dataset *dataset = NULL;
    struct stoker_sampler *sampler = NULL;
    struct stoker_error error = {0};

    T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
    T_TRUE("damage", sample_of(dataset, &options, &sampler, &error) < 0);
    T_HAS("damage", error.where, "s-001.tar");
    stoker_sampler_close(sampler);
    options.where = "sample < 70 and json.score > 2";
    T_EQ("not read", sample_of(dataset, &options, &sampler, NULL), 0);
    stoker_sampler_close(sampler);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
}

/* A run accepts samplers that are ready, and of its own data set; it holds references until it
 * ends. */
static void test_runs(void)
{
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world, 1, -1);
    struct stoker_sampler_options options = {.struct_size = sizeof options, .where = "label == 2"};
    struct stoker_sampling_stage stage = {0};
    struct stoker_sampling_options sampling = {
        .struct_size = sizeof sampling, .stages = &stage, .stage_count = 1, .repeats = 2};
    struct stk_order_options order = {.block_samples = 4,
                                      .window_blocks = 2,
                                      .group_count = 1,
                                      .shuffle = STOKER_SHUFFLE_TWO_LEVEL};
    struct stk_schedule_request request = {.sampling = &sampling};
    struct stoker_dataset *small = NULL, *large = NULL;
    struct stoker_sampler *sampler = NULL;
    struct stk_run_sampling run_sampling = {0};
    struct stk_schedule schedule;
    struct stoker_error error = {0};

    T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &small, NULL), 0);
    put_shard(world, SHARDS, -1);
    T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &large, NULL), 0);
    T_EQ("sampler", stoker_sampler_open(&sampler, small, &options, NULL), 0);
    stage.sampler = sampler;
    order.sample_count = SAMPLES;
    T_EQ("not made",
         stk_run_sampling_open(&run_sampling, &schedule, small, &order, &request, &error),
         STOKER_ERROR_ARGUMENT);
    T_HAS("not made", error.advice, "stoker_sampler_next");
    while (stoker_sampler_next(sampler, 10, NULL) == 1) {
    }
    order.sample_count = SAMPLES + EACH;
    T_EQ("another's",
         stk_run_sampling_open(&run_sampling, &schedule, large, &order, &request, NULL),
         STOKER_ERROR_ARGUMENT);
    stk_schedule_deinit(&schedule);
    order.sample_count = SAMPLES;
    T_EQ("its own", stk_run_sampling_open(&run_sampling, &schedule, small, &order, &request, NULL),
         0);
    stoker_sampler_close(sampler); /* the run holds it */
    T_EQ("epoch", stk_schedule_epoch_samples(&schedule), 2 * 9);
    T_TRUE("shards", schedule.stages.shard_count == SHARDS && run_sampling.options.repeats == 2);
    stk_schedule_deinit(&schedule);
    stk_run_sampling_close(&run_sampling);
    stoker_dataset_close(small);
    stoker_dataset_close(large);
    stoker_engine_close(engine);
}

/* Each call of the seam, and each allocation, fails once: an error or the right table. */
static void test_failures(void)
{
    const struct stoker_sampler_options options = {.where = "label == 2 and json.score > 1",
                                                   .weight = "json.score"};
    struct stk_io *world;
    struct stoker_engine *engine = open_world(&world, 1, -1);
    struct stoker_dataset *dataset = NULL;
    int64_t alive;
    int good = 0;

    T_EQ("data set", t_open(engine, "/data", STOKER_INDEX_AUTO, &dataset, NULL), 0);
    for (uint64_t n = 1; n < 4000 && good < 2; n += 1 + n / 12) {
        for (int what = 0; what < 2; what++) {
            struct stoker_sampler_info info = {.struct_size = sizeof info};
            struct stoker_sampler *sampler = NULL;
            struct stoker_error error = {0};
            char path[512] = "";
            int status;

            alive = stk_mem_alive();
            if (what) {
                stk_sim_fail_nth(world, n);
            } else {
                stk_mem_fail_nth(n);
            }
            status = sample_of(dataset, &options, &sampler, &error);
            stk_sim_fail_nth(world, 0);
            stk_mem_fail_nth(0);
            if (status < 0) {
                T_ERROR("reported", &error);
            } else {
                T_EQ("info", stoker_sampler_info(sampler, &info), 0);
                T_EQ("the right one", info.count, 8);
                find_table(sampler, path);
            }
            stoker_sampler_close(sampler);
            T_TRUE("no leak", n == 1 || stk_mem_alive() <= alive + 8); /* files that stay open */
            stk_io_remove(world, path, NULL);
            good = n > 1500 && status == 0 ? good + 1 : 0;
        }
    }
    T_TRUE("to the end", good == 2);
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
    T_EQ("no leak", stk_mem_alive(), 0);
}

int main(void)
{
    test_rows();
    test_lists();
    test_failed_again();
    test_draws();
    test_files();
    test_foreign_tables();
    test_classes();
    test_damage();
    test_runs();
    test_failures();
    return t_finish();
}
