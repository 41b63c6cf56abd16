/* Goal: as null_error_test.c, for calls that fail only while a job runs, or on an object that
 * exists: a failing call returns the same status with and without an error struct, and fills it
 * with that status. Method: a table with a failing call of each such function, made to fail by a
 * shard that is cut after its data set was opened, by a destination that exists, by a folder in
 * place of a file, or by an index that the object does not have. */
#include "tools/files/struct_size_test.h"

#include <sys/stat.h>
#include <sys/wait.h>

#define CALL(name) static int name##_fails(struct stoker_error *error)
#define LATE_BYTES (64u << 10)

static char late_path[64], steps_path[64], cache_path[64];
static struct stoker_checkpoint_writer *writer;
static struct stoker_checkpoint *checkpoint;
static struct stoker_cache *cache;
static const uint64_t shape[] = {4};
static const float values[4];
static const struct stoker_checkpoint_tensor tensor = {
    .name = "w", .dtype = "F32", .shape = shape, .dimension_count = 1, .data = values};

static void write_late_tar(void)
{
    static uint8_t text[LATE_BYTES];
    struct t_tar tar = {0};

    for (int i = 0; i < 16; i++) {
        char name[16];

        snprintf(name, sizeof name, "%02d.txt", i);
        t_tar_add(&tar, name, text, sizeof text);
    }
    t_tar_end(&tar);
    write_file(late_path, tar.data, tar.bytes);
    t_tar_free(&tar);
}

/* A data set whose only shard is cut to its first bytes. */
static struct stoker_dataset *open_late(void)
{
    static const char *const paths[] = {late_path};
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = paths, .url_count = 1};
    struct stoker_dataset *late = NULL;

    write_late_tar();
    T_EQ("late", stoker_dataset_open(&late, engine, &options, NULL), 0);
    T_EQ("cut", truncate(late_path, 700), 0);
    return late;
}

CALL(stoker_diff_next)
{
    struct stoker_diff_options options = {.struct_size = sizeof options, .reread = 1};
    struct stoker_dataset *late = open_late();
    struct stoker_difference difference;
    struct stoker_diff *diff = NULL;
    int status = stoker_diff_open(&diff, late, late, &options, NULL);

    T_EQ("diff", status, 0);
    while ((status = stoker_diff_next(diff, 20000, &difference, error)) == 1) {
    }
    T_AGAIN(stoker_diff_next, diff, 20000, &difference, NULL);
    stoker_diff_close(diff);
    stoker_dataset_close(late);
    return status;
}

CALL(stoker_pack_next)
{
    struct stoker_pack_options options = {.struct_size = sizeof options, .destination = steps_path};
    struct stoker_pack *pack = NULL;
    int status = stoker_pack_open(&pack, dataset, &options, NULL);

    T_EQ("pack", status, 0);
    while ((status = stoker_pack_next(pack, 20000, NULL, error)) == 1) {
    }
    T_AGAIN(stoker_pack_next, pack, 20000, NULL, NULL);
    stoker_pack_close(pack);
    return status;
}

CALL(stoker_file_read)
{
    struct stoker_file *file = NULL;
    char byte;
    int status = stoker_file_open(&file, engine, "/proc/self/mem", NULL, NULL);

    T_EQ("file", status, 0);
    status = (int)stoker_file_read(file, 0, &byte, 1, error); /* no page is at address 0 */
    stoker_file_close(file);
    return status;
}

CALL(stoker_jpeg_indexer_next)
{
    struct stoker_jpeg_indexer_options options = {.struct_size = sizeof options};
    struct stoker_jpeg_indexer_progress progress = {.struct_size = sizeof progress};
    struct stoker_jpeg_indexer *indexer = NULL;
    int status = stoker_jpeg_indexer_open(&indexer, dataset, &options, NULL);

    T_EQ("JPEG indexer", status, 0);
    while ((status = stoker_jpeg_indexer_next(indexer, &progress, error)) == 1) {
    }
    T_AGAIN(stoker_jpeg_indexer_next, indexer, &progress, NULL);
    stoker_jpeg_indexer_close(indexer);
    return status;
}

CALL(stoker_token_loader_next)
{
    static const int32_t numbers[64] = {[40] = 1000};
    const char *const paths[] = {spare()};
    struct stoker_tokens_options token_options = {.struct_size = sizeof token_options,
                                                  .paths = paths,
                                                  .path_count = 1,
                                                  .dtype = STOKER_INT32,
                                                  .vocab_size = 10};
    struct stoker_token_loader_options options = {
        .struct_size = sizeof options, .context = 8, .batch_size = 2};
    struct stoker_token_loader *opened = NULL;
    struct stoker_tokens *foreign = NULL;
    struct stoker_batch *batch = NULL;
    int status;

    write_file(paths[0], numbers, sizeof numbers);
    T_EQ("tokens", stoker_tokens_open(&foreign, engine, &token_options, NULL), 0);
    T_EQ("token loader", stoker_token_loader_open(&opened, foreign, &options, NULL), 0);
    while ((status = stoker_token_loader_next(opened, &batch, error)) == 0 && batch) {
        stoker_batch_close(batch);
        batch = NULL;
    }
    T_AGAIN(stoker_token_loader_next, opened, &batch, NULL);
    stoker_token_loader_close(opened);
    stoker_tokens_close(foreign);
    return status;
}

CALL(stoker_checkpoint_writer_set_limits)
{
    return stoker_checkpoint_writer_set_limits(writer, 0, 101, error);
}

CALL(stoker_checkpoint_save_open)
{
    struct stoker_checkpoint_save_options options = {.struct_size = 1};
    struct stoker_checkpoint_save *save = NULL;

    return stoker_checkpoint_save_open(&save, writer, &options, error);
}

enum save_step { COPY, PIECE, NEXT, PART };

/* A save below a path that is a file, or of a tensor without bytes. */
static int save_fails(struct stoker_error *error, enum save_step step)
{
    struct stoker_checkpoint_tensor absent = tensor;
    struct stoker_checkpoint_writer_options place = {.struct_size = sizeof place, .path = tar_path};
    struct stoker_checkpoint_save_options options = {
        .struct_size = sizeof options, .step = 1, .tensors = &absent, .tensor_count = 1};
    struct stoker_checkpoint_piece piece = {.struct_size = 1};
    struct stoker_checkpoint_writer *other = NULL;
    struct stoker_checkpoint_save *save = NULL;
    struct stoker_checkpoint_part part;
    int status;

    options.pieces = step == PIECE || step == COPY;
    absent.data = options.pieces ? NULL : tensor.data;
    T_EQ("writer", stoker_checkpoint_writer_open(&other, engine, &place, NULL), 0);
    T_EQ("save", stoker_checkpoint_save_open(&save, other, &options, NULL), 0);
    if (step == PIECE) {
        status = stoker_checkpoint_save_copy_piece(save, 20000, &piece, error);
    } else if (step == PART) {
        status = stoker_checkpoint_save_part(save, &part, error);
    } else {
        status = stoker_checkpoint_save_copy(save, 20000, step == COPY ? error : NULL);
    }
    while (step == NEXT && (status = stoker_checkpoint_save_next(save, 20000, NULL, error)) == 1) {
    }
    if (step == NEXT) {
        T_AGAIN(stoker_checkpoint_save_next, save, 20000, NULL, NULL);
    }
    stoker_checkpoint_save_close(save);
    stoker_checkpoint_writer_close(other);
    return status;
}

CALL(stoker_checkpoint_save_copy)
{
    return save_fails(error, COPY);
}

CALL(stoker_checkpoint_save_copy_piece)
{
    return save_fails(error, PIECE);
}

CALL(stoker_checkpoint_save_next)
{
    return save_fails(error, NEXT);
}

CALL(stoker_checkpoint_save_part)
{
    return save_fails(error, PART);
}

CALL(stoker_checkpoint_commit)
{
    struct stoker_checkpoint_save_options options = {.struct_size = 1};
    struct stoker_checkpoint_part part = {.bytes = 0};

    return stoker_checkpoint_commit(writer, &options, &part, error);
}

/* A step with an index of names, whose headers are not read at open; one is damaged. */
CALL(stoker_checkpoint_read_headers)
{
    struct stoker_checkpoint *indexed = NULL;
    int status = stoker_checkpoint_open(&indexed, engine, steps_path, 4, NULL);

    T_EQ("indexed", status, 0);
    status = stoker_checkpoint_read_headers(indexed, error);
    stoker_checkpoint_close(indexed);
    return status;
}

CALL(stoker_checkpoint_info)
{
    struct stoker_checkpoint_info info = {.struct_size = 1};

    return stoker_checkpoint_info(checkpoint, &info, error);
}

CALL(stoker_checkpoint_file)
{
    struct stoker_checkpoint_file file = {.struct_size = sizeof file};

    return stoker_checkpoint_file(checkpoint, 7, &file, error);
}

CALL(stoker_checkpoint_tensor)
{
    struct stoker_checkpoint_tensor_info info = {.struct_size = sizeof info};

    return stoker_checkpoint_tensor(checkpoint, 7, &info, error);
}

CALL(stoker_checkpoint_find)
{
    uint64_t index;

    return stoker_checkpoint_find(checkpoint, "none", &index, error);
}

CALL(stoker_checkpoint_load_open)
{
    struct stoker_checkpoint_range range = {.tensor = 7};
    struct stoker_checkpoint_load *load = NULL;

    return stoker_checkpoint_load_open(&load, checkpoint, &range, 1, error);
}

CALL(stoker_checkpoint_load_next)
{
    struct stoker_checkpoint_range range = {.bytes = sizeof values};
    struct stoker_checkpoint_file file = {.struct_size = sizeof file};
    struct stoker_checkpoint_load *load = NULL;
    int status = stoker_checkpoint_file(checkpoint, 0, &file, NULL);

    T_EQ("file", status, 0);
    status = stoker_checkpoint_load_open(&load, checkpoint, &range, 1, NULL);
    T_EQ("load", status, 0);
    while ((status = stoker_checkpoint_load_next(load, 20000, NULL, error)) == 1) {
    }
    T_AGAIN(stoker_checkpoint_load_next, load, 20000, NULL, NULL);
    stoker_checkpoint_load_close(load);
    return status;
}

CALL(stoker_checkpoint_list_at)
{
    struct stoker_checkpoint_step step = {.struct_size = 1};
    struct stoker_checkpoint_list *list = NULL;
    int status = stoker_checkpoint_list_open(&list, engine, steps_path, NULL);

    T_EQ("list", status, 0);
    status = stoker_checkpoint_list_at(list, 0, &step, error);
    stoker_checkpoint_list_close(list);
    return status;
}

CALL(stoker_checkpoint_task_next)
{
    struct stoker_checkpoint_task_options options = {
        .struct_size = sizeof options, .action = STOKER_CHECKPOINT_CHECK_SEAL, .source = tar_path};
    struct stoker_checkpoint_task *task = NULL;
    int status = stoker_checkpoint_task_open(&task, engine, &options, NULL);

    T_EQ("task", status, 0);
    while ((status = stoker_checkpoint_task_next(task, 20000, NULL, error)) == 1) {
    }
    T_AGAIN(stoker_checkpoint_task_next, task, 20000, NULL, NULL);
    stoker_checkpoint_task_close(task);
    return status;
}

CALL(stoker_cache_report_open)
{
    struct stoker_cache_report *report = NULL;

    return stoker_cache_report_open(&report, cache, 99, NULL, error);
}

/* In a child of a fork: a cache belongs to the process that opened it. */
CALL(stoker_cache_collect)
{
    struct {
        int64_t status;
        struct stoker_error error;
    } found = {0};
    int ends[2], is_dead;
    pid_t child;

    T_EQ("pipe", pipe(ends), 0);
    child = fork();
    if (child == 0) {
        found.status = stoker_cache_collect(cache, error ? &found.error : NULL);
        _exit(write(ends[1], &found, sizeof found) != sizeof found);
    }
    T_EQ("found", read(ends[0], &found, sizeof found), (int64_t)sizeof found);
    T_TRUE("child", waitpid(child, &is_dead, 0) == child && is_dead == 0);
    close(ends[0]);
    close(ends[1]);
    if (error) {
        *error = found.error;
    }
    return (int)found.status;
}

#define ROW(name) {#name, name##_fails}

static const struct call {
    const char *name;
    int (*fails)(struct stoker_error *error);
} calls[] = {
    ROW(stoker_diff_next),
    ROW(stoker_pack_next),
    ROW(stoker_file_read),
    ROW(stoker_jpeg_indexer_next),
    ROW(stoker_token_loader_next),
    ROW(stoker_checkpoint_writer_set_limits),
    ROW(stoker_checkpoint_save_open),
    ROW(stoker_checkpoint_save_copy),
    ROW(stoker_checkpoint_save_copy_piece),
    ROW(stoker_checkpoint_save_next),
    ROW(stoker_checkpoint_save_part),
    ROW(stoker_checkpoint_commit),
    ROW(stoker_checkpoint_read_headers),
    ROW(stoker_checkpoint_info),
    ROW(stoker_checkpoint_file),
    ROW(stoker_checkpoint_tensor),
    ROW(stoker_checkpoint_find),
    ROW(stoker_checkpoint_load_open),
    ROW(stoker_checkpoint_load_next),
    ROW(stoker_checkpoint_list_at),
    ROW(stoker_checkpoint_task_next),
    ROW(stoker_cache_report_open),
    ROW(stoker_cache_collect),
};

/* A step with one tensor whose file is damaged afterwards. */
static void save_step(void)
{
    struct stoker_checkpoint_save_options options = {
        .struct_size = sizeof options, .step = 3, .tensors = &tensor, .tensor_count = 1};
    struct stoker_checkpoint_save *save = NULL;
    char command[256];
    int status;

    T_EQ("save", stoker_checkpoint_save_open(&save, writer, &options, NULL), 0);
    T_EQ("copy", stoker_checkpoint_save_copy(save, 20000, NULL), 0);
    while ((status = stoker_checkpoint_save_next(save, 20000, NULL, NULL)) == 1) {
    }
    T_EQ("saved", status, 0);
    stoker_checkpoint_save_close(save);
    T_EQ("open", stoker_checkpoint_open(&checkpoint, engine, steps_path, 3, NULL), 0);
    snprintf(command, sizeof command,
             "for f in %s/*/*.safetensors; do printf x | dd of=$f bs=1 conv=notrunc "
             "seek=$(($(stat -c %%s $f) - 1)) 2>/dev/null; done",
             steps_path);
    T_EQ("damage", system(command), 0);
}

/* Step 4 has as many tensors as an index of names needs; its header is damaged. */
static void save_indexed_step(void)
{
    static struct stoker_checkpoint_tensor tensors[10000];
    static char names[10000][8];
    struct stoker_checkpoint_save_options options = {
        .struct_size = sizeof options, .step = 4, .tensors = tensors, .tensor_count = 10000};
    struct stoker_checkpoint_save *save = NULL;
    char command[300];
    int status;

    for (unsigned i = 0; i < 10000; i++) {
        snprintf(names[i], sizeof names[i], "w%04u", i);
        tensors[i] = tensor;
        tensors[i].name = names[i];
    }
    T_EQ("save", stoker_checkpoint_save_open(&save, writer, &options, NULL), 0);
    while ((status = stoker_checkpoint_save_copy(save, 20000, NULL)) == STOKER_ERROR_AGAIN) {
    }
    while ((status = stoker_checkpoint_save_next(save, 20000, NULL, NULL)) == 1) {
    }
    T_EQ("saved", status, 0);
    stoker_checkpoint_save_close(save);
    snprintf(command, sizeof command,
             "for f in %s/*4/*.safetensors; do printf x | dd of=$f bs=1 conv=notrunc seek=9000 "
             "2>/dev/null; done",
             steps_path);
    T_EQ("damage", system(command), 0);
}

static void open_more(void)
{
    const char *const disks[] = {cache_path};
    struct stoker_checkpoint_writer_options options = {.struct_size = sizeof options,
                                                       .path = steps_path};
    struct stoker_cache_options cache_options = {.struct_size = sizeof cache_options,
                                                 .paths = disks,
                                                 .path_count = 1,
                                                 .bytes_max = 64 << 20};
    char marks[96];

    snprintf(marks, sizeof marks, "%s.marks", index_path);
    T_EQ("a folder in place of the JPEG index", mkdir(marks, 0700), 0);
    T_EQ("writer", stoker_checkpoint_writer_open(&writer, engine, &options, NULL), 0);
    T_EQ("cache", stoker_cache_open(&cache, &cache_options, NULL), 0);
    save_step();
    save_indexed_step();
}

int main(void)
{
    char command[128];

    if (!mkdtemp(folder)) {
        t_skip("no folder in /tmp");
    }
    snprintf(late_path, sizeof late_path, "%s/late.tar", folder);
    snprintf(steps_path, sizeof steps_path, "%s/steps", folder);
    snprintf(cache_path, sizeof cache_path, "%s/cache", folder);
    write_files();
    open_all();
    open_more();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct stoker_error error = {0};
        int with = calls[i].fails(&error), without = calls[i].fails(NULL);

        T_TRUE(calls[i].name, with < 0);
        T_EQ(calls[i].name, without, with);
        T_EQ(calls[i].name, error.status, with);
        T_TRUE(calls[i].name, error.what[0] && error.where[0] && error.advice[0]);
    }
    (void)run_rows; /* of the tests of sizes */
    stoker_cache_close(cache);
    stoker_checkpoint_close(checkpoint);
    stoker_checkpoint_writer_close(writer);
    close_all();
    snprintf(command, sizeof command, "rm -r %s", folder);
    return t_finish() | (system(command) != 0);
}
