/* Goal: a conversion and a copy change no value, a copy keeps files that steps share, a repair
 * replaces damaged bytes only, and a seal finds a changed byte. Method: a step of two
 * tensors, through each action in a folder; damaged files between them. Covers convert.c,
 * convert_plan.c, torch_pickle.c, torch_zip.c, copy_step.c, copy_blocks.c, repair_step.c,
 * seal_files.c, task_account.c. (ckpt_convert.c: python/tests/test_checkpoint_convert.py.) */
#include "base/mem.h"
#include "checkpoint/convert/convert.h"
#include "io/write.h"
#include "test/checkpoints.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED_BYTES (4u << 20)
#define ELEMENTS 300000u /* of 8 bytes: more than two leaves */

static struct stoker_engine *engine;
static char folder[] = "/tmp/stoker-convert-XXXXXX";
static uint64_t numbers[ELEMENTS];
static uint8_t shared_data[SHARED_BYTES];
static const char tree[] = "{\"dict\":{\"w\":{\"torch\":\"w\"},\"e\":[1,{\"int\":\"-129\"},2.5,"
                           "{\"bytes\":\"AIA=\"},{\"tuple\":[null,true]}]}}";

static const char *path_of(const char *name)
{
    static char paths[64][200];
    static unsigned turn;

    turn = (turn + 1) % 64;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s", folder, name);
    return paths[turn];
}

static void save(void)
{
    uint64_t shape[2] = {ELEMENTS / 2, 2};
    struct stoker_checkpoint_tensor tensors[2] = {{"w", "I64", shape, 2, numbers},
                                                  {"v", "U8", shape + 1, 1, "ab"}};
    struct stoker_checkpoint_save_options what = {
        .struct_size = sizeof what, .step = 5, .tensors = tensors, .tensor_count = 2, .tree = tree};
    struct stoker_checkpoint_writer *writer = t_open_writer(engine, path_of("run"), 0);

    t_save(writer, &what);
    stoker_checkpoint_writer_close(writer);
}

/* Runs a task. step 0: the newest one. files_out: that were written. */
static int run_task(struct stoker_checkpoint_task_options options, uint64_t *files_out,
                    struct stoker_error *error)
{
    struct stoker_checkpoint_progress progress = {.struct_size = sizeof progress};
    struct stoker_checkpoint_task *task = NULL;
    int status;

    options.struct_size = sizeof options;
    options.step = options.step ? options.step : STOKER_CHECKPOINT_LATEST;
    options.destination_step = STOKER_CHECKPOINT_LATEST;
    status = stoker_checkpoint_task_open(&task, engine, &options, error);
    while (status >= 0 &&
           (status = stoker_checkpoint_task_next(task, 1000, &progress, error)) == 1) {
    }
    stoker_checkpoint_task_close(task);
    if (files_out) {
        *files_out = progress.files_done;
    }
    return status;
}

/* Whether a checkpoint has the tensors. */
static void check(const char *name, const char *kind)
{
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_load *load = NULL;
    struct stoker_error error = {0};
    uint64_t *data = stk_alloc(ELEMENTS, sizeof *data);
    struct stoker_checkpoint_range range = {.bytes = ELEMENTS * sizeof *data, .buffer = data};
    int status;

    T_EQ("open",
         stoker_checkpoint_open(&checkpoint, engine, path_of(name), STOKER_CHECKPOINT_LATEST,
                                &error),
         0);
    T_EQ("info", stoker_checkpoint_info(checkpoint, &info, &error), 0);
    T_STR("kind", info.kind, kind);
    T_EQ("tensors", info.tensors, 2);
    T_EQ("find", stoker_checkpoint_find(checkpoint, "w", &range.tensor, &error), 0);
    T_EQ("load", stoker_checkpoint_load_open(&load, checkpoint, &range, 1, &error), 0);
    while ((status = stoker_checkpoint_load_next(load, 1000, NULL, &error)) == 1) {
    }
    T_EQ("loaded", status, 0);
    T_TRUE("values", memcmp(data, numbers, sizeof numbers) == 0);
    stoker_checkpoint_load_close(load);
    stoker_checkpoint_close(checkpoint);
    stk_free(data);
}

static void test_conversions(void)
{
    static const struct {
        uint32_t kind;
        const char *name, *found;
    } rows[] = {{STOKER_CHECKPOINT_KIND_STOKER, "again", "stoker"},
                {STOKER_CHECKPOINT_KIND_SAFETENSORS, "a.safetensors", "safetensors"},
                {STOKER_CHECKPOINT_KIND_HUGGINGFACE, "hf", "huggingface"},
                {STOKER_CHECKPOINT_KIND_TORCH, "a.pt", "torch"}};
    struct stoker_error error = {0};

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        bool all_tensors = rows[i].kind != STOKER_CHECKPOINT_KIND_TORCH; /* the tree has only w */

        T_EQ(rows[i].name,
             run_task((struct stoker_checkpoint_task_options){.action = STOKER_CHECKPOINT_CONVERT,
                                                              .source = path_of("run"),
                                                              .destination = path_of(rows[i].name),
                                                              .kind = rows[i].kind,
                                                              .shard_bytes = 1000},
                      NULL, &error),
             0);
        if (all_tensors) {
            check(rows[i].name, rows[i].found);
        }
    }
    T_EQ("back",
         run_task((struct stoker_checkpoint_task_options){.action = STOKER_CHECKPOINT_CONVERT,
                                                          .source = path_of("a.pt"),
                                                          .destination = path_of("b"),
                                                          .kind = STOKER_CHECKPOINT_KIND_STOKER},
                  NULL, &error),
         0);
    T_EQ("no kind",
         run_task((struct stoker_checkpoint_task_options){.action = STOKER_CHECKPOINT_CONVERT,
                                                          .source = "a",
                                                          .destination = "b"},
                  NULL, &error),
         STOKER_ERROR_ARGUMENT);
    T_EQ("no action",
         run_task((struct stoker_checkpoint_task_options){.source = "a", .destination = "b"}, NULL,
                  &error),
         STOKER_ERROR_ARGUMENT);
}

static void change_byte(const char *path, long offset)
{
    FILE *file = fopen(path, "r+b");
    int byte;

    T_TRUE("file", file != NULL);
    fseek(file, offset, SEEK_SET);
    byte = fgetc(file);
    fseek(file, offset, SEEK_SET);
    fputc(byte ^ 1, file);
    fclose(file);
}

static void test_copy_and_repair(void)
{
    struct stoker_checkpoint_task_options copy = {.action = STOKER_CHECKPOINT_COPY};
    struct stoker_checkpoint_task_options repair = {.action = STOKER_CHECKPOINT_REPAIR};
    struct stoker_error error = {0};
    uint64_t files;

    copy.source = repair.source = path_of("run");
    copy.destination = repair.destination = path_of("copy");
    T_EQ("copy", run_task(copy, NULL, &error), 0);
    check("copy", "stoker");
    T_EQ("again", run_task(copy, NULL, &error), -EEXIST);
    T_EQ("complete", run_task(repair, &files, &error), 0);
    T_EQ("nothing", files, 0);
    change_byte(path_of("copy/step-0000000005/shard-00000.safetensors"), 1500000);
    T_EQ("repair", run_task(repair, &files, &error), 0);
    T_EQ("one", files, 1);
    check("copy", "stoker");
    change_byte(path_of("copy/step-0000000005/stoker.checkpoint.json"), 100);
    T_EQ("repair", run_task(repair, &files, &error), 0);
    T_EQ("one", files, 1);
    check("copy", "stoker");
    change_byte(path_of("run/step-0000000005/shard-00000.safetensors"), 1500000);
    copy.destination = path_of("third");
    error = (struct stoker_error){0};
    T_EQ("damaged source", run_task(copy, NULL, &error), STOKER_ERROR_CORRUPT);
    T_HAS("damaged source", error.where, "shard-00000.safetensors");
    T_TRUE("no step", access(path_of("third/step-0000000005"), F_OK) != 0);
    change_byte(path_of("run/step-0000000005/shard-00000.safetensors"), 1500000);
}

/* Two places with damage in different leaves: each repairs the other one. */
static void test_repair_of_leaves(void)
{
    struct stoker_checkpoint_task_options repair = {.action = STOKER_CHECKPOINT_REPAIR};
    const char *run = path_of("run/step-0000000005/shard-00000.safetensors");
    const char *copy = path_of("copy/step-0000000005/shard-00000.safetensors");
    struct stoker_error error = {0};
    uint64_t files;

    change_byte(copy, 1500000);
    change_byte(run, 2200000);
    repair.source = path_of("run");
    repair.destination = path_of("copy");
    T_EQ("repair", run_task(repair, &files, &error), 0);
    T_EQ("one", files, 1);
    check("copy", "stoker");
    repair.source = path_of("copy");
    repair.destination = path_of("run");
    T_EQ("repair", run_task(repair, &files, &error), 0);
    T_EQ("one", files, 1);
    check("run", "stoker");
    change_byte(copy, 1500000);
    change_byte(run, 1500001); /* the same leaf: no place has it */
    T_EQ("repair", run_task(repair, &files, &error), STOKER_ERROR_CORRUPT);
    T_HAS("names the file", error.where, "shard-00000.safetensors");
    T_TRUE("names the leaf", error.offset <= 1500000 && error.offset + (1u << 20) > 1500000);
    change_byte(copy, 1500000);
    T_EQ("repair", run_task(repair, &files, &error), 0);
    T_EQ("cut", truncate(run, 2000000), 0);
    T_EQ("repair", run_task(repair, &files, &error), 0);
    check("run", "stoker");
}

/* Saves step 1 to 5: the large tensor stays, so that step 3 to 5 share a file. */
static void save_shared(void)
{
    struct stoker_checkpoint_writer *writer = t_open_writer(engine, path_of("lora"), 1);
    uint64_t shape[2] = {SHARED_BYTES, 1};

    writer->shared_bytes_min = SHARED_BYTES;
    for (uint64_t step = 1; step <= 5; step++) {
        struct stoker_checkpoint_tensor tensors[2] = {{"base", "U8", shape, 1, shared_data},
                                                      {"step", "U64", shape + 1, 1, &step}};
        struct stoker_checkpoint_save_options what = {
            .struct_size = sizeof what, .step = step, .tensors = tensors, .tensor_count = 2};

        t_save(writer, &what);
    }
    stoker_checkpoint_writer_close(writer);
}

static struct stat stat_shared(const char *place, int step)
{
    char name[100];
    struct stat status = {0};

    snprintf(name, sizeof name, "%s/step-%010d/shared-00000.safetensors", place, step);
    T_EQ(name, stat(path_of(name), &status), 0);
    return status;
}

/* All bytes of a step match their hashes: a repair finds nothing. */
static void check_step(const char *place, uint64_t step)
{
    struct stoker_checkpoint_task_options repair = {
        .action = STOKER_CHECKPOINT_REPAIR, .source = path_of("lora"), .step = step};
    uint64_t files = 1;

    repair.destination = path_of(place);
    T_EQ("right", run_task(repair, &files, NULL), 0);
    T_EQ("nothing to repair", files, 0);
}

/* Files that steps share are one file at the destination, too, unless it is damaged there. */
static void test_copy_of_shared(void)
{
    struct stoker_checkpoint_task_options copy = {.action = STOKER_CHECKPOINT_COPY};
    struct stat first, second;

    for (size_t i = 0; i < SHARED_BYTES; i++) {
        shared_data[i] = (uint8_t)(i * 7 >> 3);
    }
    save_shared();
    T_EQ("steps share it", stat_shared("lora", 5).st_nlink, 3);
    copy.source = path_of("lora");
    copy.destination = path_of("lora2");
    for (copy.step = 3; copy.step <= 5; copy.step++) {
        T_EQ("copy", run_task(copy, NULL, NULL), 0);
        check_step("lora2", copy.step);
    }
    first = stat_shared("lora2", 3);
    T_TRUE("a copy", first.st_ino != stat_shared("lora", 3).st_ino);
    T_EQ("that steps share", first.st_nlink, 3);
    T_TRUE("one file", stat_shared("lora2", 5).st_ino == first.st_ino);
    copy.destination = path_of("lora3");
    copy.step = 4;
    T_EQ("copy", run_task(copy, NULL, NULL), 0);
    change_byte(path_of("lora3/step-0000000004/shared-00000.safetensors"), 3000000);
    copy.step = 5;
    T_EQ("copy", run_task(copy, NULL, NULL), 0);
    first = stat_shared("lora3", 4);
    second = stat_shared("lora3", 5);
    T_TRUE("not of a damaged file", first.st_ino != second.st_ino && second.st_nlink == 1);
    check_step("lora3", 5);
}

/* ---- a folder that another process replaces by a link ---- */

static const struct stk_io_table *true_table;
static char outside[200];
static bool replaced;

/* Replaces the folder of the file by a link to another one before the second file is created. */
static int create_behind_link(struct stk_io *io, const char *path, bool exclusive,
                              struct stk_output **out_out, struct stoker_error *error)
{
    if (!replaced && strstr(path, "shared-00000")) {
        char part[300], other[310];

        snprintf(part, sizeof part, "%.*s", (int)(strrchr(path, '/') - path), path);
        snprintf(other, sizeof other, "%s-moved", part);
        T_EQ("moved", rename(part, other), 0);
        T_EQ("link", symlink(outside, part), 0);
        replaced = true;
    }
    return true_table->write->create(io, path, exclusive, out_out, error);
}

static void test_copy_beneath(void)
{
    static struct stk_io_table table;
    static struct stk_write_table write;
    struct stoker_engine_options options = {
        .struct_size = sizeof options, .threads = 1, .memory_bytes_max = T_MEMORY_BYTES};
    struct stoker_checkpoint_task_options copy = {
        .action = STOKER_CHECKPOINT_COPY, .source = path_of("lora"), .step = 3};
    struct stoker_engine *first = engine;
    struct stoker_error error = {0};
    struct stk_io *io = NULL;
    char name[300];

    snprintf(outside, sizeof outside, "%s", path_of("outside"));
    T_EQ("outside", mkdir(outside, 0700), 0);
    T_EQ("io", stk_io_open(&io, &(struct stk_io_options){0}, NULL), 0);
    true_table = io->table;
    table = *io->table;
    write = *table.write;
    write.create = create_behind_link;
    table.write = &write;
    io->table = &table;
    T_EQ("engine", stk_engine_open_with_io(&engine, io, &options, NULL), 0);
    copy.destination = path_of("beneath");
    T_EQ("the link is not followed", run_task(copy, NULL, &error), -ELOOP);
    T_TRUE("it was there", replaced);
    snprintf(name, sizeof name, "%s/shared-00000.safetensors", outside);
    T_TRUE("nothing is written outside", access(name, F_OK) != 0);
    stoker_engine_close(engine);
    engine = first;
}

static void test_seal(void)
{
    struct stoker_checkpoint_task_options seal = {.action = STOKER_CHECKPOINT_SEAL};
    struct stoker_checkpoint_task_options checked = {.action = STOKER_CHECKPOINT_CHECK_SEAL};
    struct stoker_error error = {0};

    seal.source = checked.source = path_of("hf");
    T_EQ("no seal", run_task(checked, NULL, &error), -ENOENT);
    T_EQ("seal", run_task(seal, NULL, &error), 0);
    T_EQ("sealed", run_task(checked, NULL, &error), 0);
    change_byte(path_of("hf/model-00001-of-00002.safetensors"), 5000);
    error = (struct stoker_error){0};
    T_EQ("changed", run_task(checked, NULL, &error), STOKER_ERROR_CORRUPT);
    T_HAS("changed", error.where, "model-00001-of-00002.safetensors");
    change_byte(path_of("hf/model-00001-of-00002.safetensors"), 5000);
    change_byte(path_of("hf/stoker.seal"), 30);
    T_EQ("changed seal", run_task(checked, NULL, &error), STOKER_ERROR_CORRUPT);
}

int main(void)
{
    char command[100];

    for (uint64_t i = 0; i < ELEMENTS; i++) {
        numbers[i] = i * i;
    }
    engine = t_open_engine(NULL);
    T_TRUE("folder", mkdtemp(folder) != NULL);
    save();
    test_conversions();
    test_copy_and_repair();
    test_repair_of_leaves();
    test_copy_of_shared();
    test_copy_beneath();
    test_seal();
    stoker_engine_close(engine);
    T_EQ("memory", stk_mem_alive(), 0);
    snprintf(command, sizeof command, "rm -r %s", folder);
    T_EQ("removed", system(command), 0);
    return t_finish();
}
