/* Goal: the shard writer stores samples unchanged, refuses those that a reader would not find under
 * their key, and continues after any interruption to the same bytes.
 * Method: a fixed list of samples over simulated files; rows of refusals; then each call of the I/O
 * interface, or allocation, fails or is the last before a kill or a power cut; the next run skips
 * as many samples as position says. Covers shard_writer.c, shard_file.c and
 * shard_done.c. */
#include "base/random.h"
#include "base/xxh3.h"
#include "tools/pack/pack_test.h"

enum { SAMPLES = 14, SHARD_BYTES = 16 << 10 };

static const char destination[] = "/dst", draft[] = "/dst.part";
static const char *const classes[] = {"cat", "dog"};

static int open_writer(struct stoker_engine *engine, struct stoker_shard_writer **writer_out,
                       struct stoker_error *error)
{
    struct stoker_shard_writer_options options = {.struct_size = sizeof options,
                                                  .destination = destination,
                                                  .shard_bytes = SHARD_BYTES,
                                                  .pattern = "t-%03d.tar",
                                                  .classes = classes,
                                                  .class_count = STK_COUNT(classes)};

    return stoker_shard_writer_open(writer_out, engine, &options, error);
}

static int add_sample(struct stoker_shard_writer *writer, unsigned number,
                      struct stoker_error *error)
{
    uint8_t data[5000];
    char key[32];
    struct stoker_shard_member members[] = {
        {"JPG", data, number * 300}, {"cls", number % 2 ? "1" : "0", 1}, {"empty", NULL, 0}};

    memset(data, (int)number, sizeof data);
    snprintf(key, sizeof key, "f.x/%03u", number);
    return stoker_shard_writer_add(writer, key, members, STK_COUNT(members), error);
}

/* It belongs to the last sample that position counts. */
static void check_resume_key(const struct stoker_shard_writer *writer)
{
    const char *key = stoker_shard_writer_resume_key(writer);
    uint64_t position = stoker_shard_writer_position(writer);
    char want[32] = "";

    if (position > 0) {
        snprintf(want, sizeof want, "f.x/%03u", (unsigned)position - 1);
    }
    if (key || position < SAMPLES) { /* else it may be in the midst of its commit */
        T_STR("resume key", key ? key : "(none)", want);
    }
}

static uint64_t position_before; /* the last position */

/* Writes the rest, from its position; returns the status of the first failure. */
static int write_all(struct stoker_engine *engine, struct stoker_error *error)
{
    struct stoker_shard_writer *writer = NULL;
    int status = open_writer(engine, &writer, error);

    if (status == 0) {
        check_resume_key(writer);
        for (uint64_t i = stoker_shard_writer_position(writer); status == 0 && i < SAMPLES; i++) {
            status = add_sample(writer, (unsigned)i, error);
            position_before = stoker_shard_writer_position(writer);
        }
        status = status < 0 ? status : stoker_shard_writer_commit(writer, error);
    }
    stoker_shard_writer_close(writer);
    return status;
}

static void check_result(struct stoker_engine *engine, struct stk_io *world)
{
    struct stoker_dataset *dataset = NULL;
    struct stoker_dataset_info info = {.struct_size = sizeof info};
    struct stk_manifest manifest = {0};
    struct stoker_error error = {0};
    uint8_t *data = NULL, buffer[5000];
    size_t bytes = 0;

    T_TRUE("no draft", !is_there(world, draft));
    T_EQ("manifest",
         stk_staging_read_file(world, "/dst/stoker.manifest.json", 1u << 20, &data, &bytes, &error),
         0);
    T_EQ("manifest", stk_manifest_parse(&manifest, (struct stk_view){data, bytes}, &error), 0);
    T_EQ("samples", manifest.samples, SAMPLES);
    T_EQ("classes", manifest.class_count, 2);
    T_TRUE("shards", manifest.shard_count > 1);
    for (uint64_t i = 0; i < manifest.shard_count; i++) {
        T_TRUE("size", manifest.shards[i].bytes <= SHARD_BYTES);
    }
    T_EQ("open", open_source(engine, destination, &dataset, &error), 0);
    stoker_dataset_info(dataset, &info);
    T_EQ("samples", info.sample_count, SAMPLES);
    for (unsigned i = 0; i < SAMPLES; i++) {
        T_EQ("read", stoker_dataset_read(dataset, i, "jpg", buffer, sizeof buffer, &bytes, &error),
             0);
        T_EQ("bytes", bytes, i * 300);
        T_TRUE("data", i == 0 || (buffer[0] == i && buffer[bytes - 1] == i));
        T_EQ("empty",
             stoker_dataset_read(dataset, i, "empty", buffer, sizeof buffer, &bytes, &error), 0);
        T_EQ("empty", bytes, 0);
    }
    stoker_dataset_close(dataset);
    stk_manifest_deinit(&manifest);
    stk_free(data);
}

static void test_refusals(void)
{
    static const struct row {
        const char *name, *key, *extension, *second;
    } rows[] = {
        {"no key", "", "jpg", NULL},
        {"a dot", "a.b", "jpg", NULL},
        {"absolute", "/a", "jpg", NULL},
        {"climbs", "../a", "jpg", NULL},
        {"meta", "__m__/a", "jpg", NULL},
        {"slash", "a", "j/pg", NULL},
        {"no extension", "a", "", NULL},
        {"dot in front", "a", ".jpg", NULL},
        {"the key's name", "a", "__key__", NULL},
        {"twice", "a", "jpg", "JPG"},
        {"key twice", "f.x/000", "jpg", NULL},
    };
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 1);
    struct stoker_shard_writer *writer = NULL;
    struct stoker_error error = {0};

    T_EQ("open", open_writer(engine, &writer, &error), 0);
    T_EQ("empty", stoker_shard_writer_commit(writer, &error), STOKER_ERROR_EMPTY);
    T_EQ("first", add_sample(writer, 0, &error), 0);
    T_EACH(row, row, rows)
    {
        struct stoker_shard_member members[2] = {{row->extension, "x", 1}, {row->second, "x", 1}};

        error = (struct stoker_error){0};
        T_EQ(row->name,
             stoker_shard_writer_add(writer, row->key, members, row->second ? 2 : 1, &error),
             STOKER_ERROR_ARGUMENT);
        T_ERROR(row->name, &error);
    }
    T_EQ("no members", stoker_shard_writer_add(writer, "k", NULL, 0, &error),
         STOKER_ERROR_ARGUMENT);
    for (unsigned i = 1; i < SAMPLES; i++) { /* refusals left nothing */
        T_EQ("goes on", add_sample(writer, i, &error), 0);
    }
    T_EQ("commit", stoker_shard_writer_commit(writer, &error), 0);
    T_EQ("after it", add_sample(writer, 99, &error), STOKER_ERROR_CLOSED);
    stoker_shard_writer_close(writer);
    stoker_shard_writer_close(NULL);
    check_result(engine, world);
    T_EQ("is there", open_writer(engine, &writer, &error), -EEXIST);
    stoker_engine_close(engine);
}

/* A member larger than the buffer, and a sample larger than a shard. */
static void test_large(void)
{
    enum { BYTES = STK_SHARD_NAME_MAX * 10007 };
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 1);
    struct stoker_shard_writer *writer = NULL;
    struct stoker_error error = {0};
    uint8_t *data = stk_alloc(BYTES, 1), *back = stk_alloc(BYTES, 1);
    struct stoker_shard_member member = {"bin", data, BYTES};
    struct stoker_dataset *dataset = NULL;
    struct stk_index *index = NULL;
    size_t bytes = 0;

    for (size_t i = 0; i < BYTES; i++) {
        data[i] = (uint8_t)stk_mix64(i / 8);
    }
    T_EQ("open", open_writer(engine, &writer, &error), 0);
    T_EQ("small", add_sample(writer, 1, &error), 0);
    T_EQ("large", stoker_shard_writer_add(writer, "large", &member, 1, &error), 0);
    T_EQ("durable", stoker_shard_writer_position(writer), 1);
    T_EQ("small", add_sample(writer, 2, &error), 0);
    T_EQ("durable", stoker_shard_writer_position(writer), 2);
    T_EQ("commit", stoker_shard_writer_commit(writer, &error), 0);
    stoker_shard_writer_close(writer);
    T_EQ("open", open_source(engine, destination, &dataset, &error), 0);
    T_EQ("read", stoker_dataset_read(dataset, 1, "bin", back, BYTES, &bytes, &error), 0);
    T_TRUE("the same", bytes == BYTES && memcmp(data, back, BYTES) == 0);
    T_EQ("index", stk_index_open_file(&index, world, "/dst/stoker.index", &error), 0);
    if (index) {
        struct stk_sample sample;
        uint64_t sum;

        T_EQ("sample", stk_index_sample(index, 1, &sample, &error), 0);
        T_EQ("checksum", stk_index_checksum(index, &sample, 0, &sum, &error), 0);
        T_TRUE("over pieces", sum == stk_xxh3_64(data, BYTES));
    }
    stk_index_close(index);
    stoker_dataset_close(dataset);
    stk_free(data);
    stk_free(back);
    stoker_engine_close(engine);
}

static int open_from(struct stoker_engine *engine, const char *source, size_t struct_size,
                     struct stoker_shard_writer **writer_out, struct stoker_error *error)
{
    struct stoker_shard_writer_options options = {
        .struct_size = struct_size, .destination = destination, .source = source};

    return stoker_shard_writer_open(writer_out, engine, &options, error);
}

/* Unfinished work of another source is not resumed. */
static void test_source(void)
{
    static const size_t now = sizeof(struct stoker_shard_writer_options),
                        before = offsetof(struct stoker_shard_writer_options, source);
    static const struct row {
        const char *name, *source;
        size_t struct_size;
        int status;
    } rows[] = {
        {"another", "v2", now, STOKER_ERROR_STATE},
        {"none", NULL, now, STOKER_ERROR_STATE},
        {"older caller", "v1", before, STOKER_ERROR_STATE},
        {"not UTF-8", "\xff", now, STOKER_ERROR_UNSUPPORTED},
        {"no options", NULL, sizeof(size_t), STOKER_ERROR_ARGUMENT},
        {"the same", "v1", now, 0},
    };
    struct stk_io *world;
    struct stoker_engine *engine = open_engine(&world, 1);
    struct stoker_shard_writer *writer = NULL;
    struct stoker_error error = {0};

    T_EQ("open", open_from(engine, "v1", now, &writer, &error), 0);
    stoker_shard_writer_close(writer);
    T_EACH(row, row, rows)
    {
        error = (struct stoker_error){0};
        T_EQ(row->name, open_from(engine, row->source, row->struct_size, &writer, &error),
             row->status);
        if (row->status < 0) {
            T_ERROR(row->name, &error);
        }
        if (row->status == STOKER_ERROR_STATE) {
            T_TRUE(row->name, strstr(error.where, "source: \"v1\" before") != NULL);
        }
        stoker_shard_writer_close(writer);
    }
    stoker_engine_close(engine);
}

/* Samples that were reported as written exist after the power cut. */
static void check_position(struct stoker_engine *engine)
{
    struct stoker_shard_writer *writer = NULL;

    T_EQ("open", open_writer(engine, &writer, NULL), 0);
    T_TRUE("what position counts stays", stoker_shard_writer_position(writer) >= position_before);
    stoker_shard_writer_close(writer);
}

enum way { FAIL, KILL, POWER, SOME, MEMORY, WAYS };

static void test_every(enum way way)
{
    static const char *const names[] = {"fail", "kill", "power cut", "some names persist",
                                        "memory"};
    uint8_t want[32] = {0}, digest[32];
    uint64_t failures = 0, n;
    int passes = 0;

    for (n = 0; passes < 5; n++) {
        struct stk_io *world;
        struct stoker_engine *engine = open_engine(&world, 1);
        struct stoker_error error = {0};
        int status;

        stk_mem_fail_nth(way == MEMORY ? n : 0);
        stk_sim_fail_nth(world, way == FAIL ? n : 0);
        stk_sim_kill_nth(world, way >= KILL && way <= SOME ? n : 0);
        position_before = 0;
        status = write_all(engine, &error);
        stk_mem_fail_nth(0);
        stk_sim_fail_nth(world, 0);
        stk_sim_kill_nth(world, 0);
        failures += status < 0;
        passes = status == 0 && n > 0 ? passes + 1 : 0;
        if (status < 0) {
            T_ERROR(names[way], &error);
        }
        if (way == POWER || way == SOME) {
            T_EQ(names[way], way == POWER ? stk_sim_crash(world) : stk_sim_crash_partial(world, n),
                 0);
            T_TRUE("what is said to be done stays", status < 0 || is_there(world, destination));
        }
        error = (struct stoker_error){0};
        if (way >= POWER && way <= SOME && !is_there(world, destination)) {
            check_position(engine);
        }
        if (!is_there(world, destination) || is_there(world, "/dst/stoker.plan.json")) {
            T_EQ(names[way], write_all(engine, &error), 0);
            T_STR(names[way], error.where, "");
        }
        T_TRUE(names[way], folder_digest(world, destination, digest));
        if (n == 0) {
            check_result(engine, world);
            memcpy(want, digest, sizeof want);
        }
        if (!T_TRUE("the same bytes", memcmp(want, digest, sizeof want) == 0)) {
            printf("%s at call %llu\n", names[way], (unsigned long long)n);
        }
        stoker_engine_close(engine);
    }
    printf("%s: %llu runs\n", names[way], (unsigned long long)n);
    T_TRUE("many failed", failures > 50);
}

int main(void)
{
    test_refusals();
    test_large();
    test_source();
    for (int way = 0; way < WAYS; way++) {
        test_every((enum way)way);
    }
    T_EQ("leaks", stk_mem_alive(), 0);
    return t_finish();
}
