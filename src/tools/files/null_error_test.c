/* Goal: the error struct of a public call is optional: a failing call returns the same status with
 * and without it, and fills it with that status. A call of a state machine (next) fails again.
 * Method: a table with a failing call of each public function that has an error; each once with and
 * once without the struct. Calls that fail only while a job runs are in null_error_jobs_test.c.
 * scripts/check_exports.py finds functions that are in neither table. */
#include "base/mem.h"
#include "tools/files/struct_size_test.h"

#define NOWHERE "/nonexistent-stoker/none"
#define CALL(name) static int name##_fails(struct stoker_error *error)

static const char *const nowhere[] = {NOWHERE};

CALL(stoker_engine_open)
{
    struct stoker_engine_options options = {.struct_size = 1};
    struct stoker_engine *opened = NULL;

    return stoker_engine_open(&opened, &options, error);
}

CALL(stoker_dataset_open)
{
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = nowhere, .url_count = 1};
    struct stoker_dataset *opened = NULL;

    return stoker_dataset_open(&opened, engine, &options, error);
}

CALL(stoker_dataset_path_class)
{
    const char *name;

    return stoker_dataset_path_class(dataset, 0, &name, error);
}

CALL(stoker_dataset_sample)
{
    struct stoker_member_info members[4];
    size_t count = 4;
    char key[64];

    return stoker_dataset_sample(dataset, UINT64_MAX, key, sizeof key, members, &count, error);
}

CALL(stoker_dataset_read)
{
    size_t bytes;
    char text[16];

    return stoker_dataset_read(dataset, 0, "none", text, sizeof text, &bytes, error);
}

CALL(stoker_dataset_label)
{
    int64_t label;

    return stoker_dataset_label(dataset, 0, &label, error);
}

CALL(stoker_dataset_refresh)
{
    struct stoker_dataset *newer = NULL;

    return stoker_dataset_refresh(dataset, 1000, &newer, error);
}

CALL(stoker_dataset_as_of)
{
    struct stoker_state state = {0};
    struct stoker_dataset *part = NULL;

    state.sample_count = 1;
    return stoker_dataset_as_of(dataset, &state, &part, error);
}

CALL(stoker_dataset_join)
{
    struct stoker_dataset *joined = NULL;

    return stoker_dataset_join(&dataset, 0, &joined, error);
}

CALL(stoker_diff_open)
{
    struct stoker_diff_options options = {.struct_size = 1};
    struct stoker_diff *diff = NULL;

    return stoker_diff_open(&diff, dataset, dataset, &options, error);
}

CALL(stoker_clean)
{
    struct stoker_clean_options options = {
        .struct_size = sizeof options, .folders = nowhere, .folder_count = 1};

    return stoker_clean(&options, error);
}

CALL(stoker_copy_open)
{
    struct stoker_copy_options options = {.struct_size = sizeof options, .kind = STOKER_COPY};
    struct stoker_copy *copy = NULL;

    return stoker_copy_open(&copy, engine, &options, error);
}

static int copy_fails(struct stoker_error *error, bool note)
{
    struct stoker_copy_options options = {.struct_size = sizeof options,
                                          .kind = STOKER_COPY,
                                          .sources = nowhere,
                                          .source_count = 1,
                                          .destination = spare()};
    struct stoker_copy_note one = {.struct_size = 0};
    struct stoker_copy *copy = NULL;
    int status = stoker_copy_open(&copy, engine, &options, NULL);

    T_EQ("copy", status, 0);
    status = note ? stoker_copy_next_note(copy, &one, error)
                  : stoker_copy_next(copy, 20000, NULL, error);
    if (!note) {
        T_AGAIN(stoker_copy_next, copy, 20000, NULL, NULL);
    }
    stoker_copy_close(copy);
    return status;
}

CALL(stoker_copy_next)
{
    return copy_fails(error, false);
}

CALL(stoker_copy_next_note)
{
    return copy_fails(error, true);
}

CALL(stoker_creds_explain)
{
    struct stoker_creds creds = {.struct_size = sizeof creds};

    return stoker_creds_explain("/no/url", &creds, error);
}

CALL(stoker_external_fs_open)
{
    struct stoker_external_fs *fs = NULL;
    int status;

    stk_mem_fail_nth(1);
    status = stoker_external_fs_open(&fs, error);
    stk_mem_fail_nth(0);
    return status;
}

CALL(stoker_external_fs_next)
{
    struct stoker_external_request request = {.struct_size = 0};
    struct stoker_external_fs *fs = NULL;
    int status = stoker_external_fs_open(&fs, NULL);

    T_EQ("fs", status, 0);
    status = stoker_external_fs_next(fs, 0, &request, error);
    T_AGAIN(stoker_external_fs_next, fs, 0, &request, NULL);
    stoker_external_fs_close(fs);
    return status;
}

CALL(stoker_stat)
{
    struct stoker_file_info info = {.struct_size = sizeof info};

    return stoker_stat(engine, NOWHERE, &info, error);
}

CALL(stoker_paths_expand)
{
    char *names = NULL;
    size_t count;

    return stoker_paths_expand(engine, NOWHERE "/{1..99999999999}", &names, &count, error);
}

CALL(stoker_paths_expand_no_links)
{
    char *names = NULL;
    size_t count;

    return stoker_paths_expand_no_links(engine, NOWHERE "/{1..99999999999}", &names, &count, error);
}

CALL(stoker_buckets_list)
{
    char *names = NULL;
    size_t count;

    return stoker_buckets_list(engine, NOWHERE, &names, &count, error);
}

CALL(stoker_presign)
{
    struct stoker_presign_options options = {.struct_size = sizeof options};
    uint64_t until;
    char *url = NULL;

    return stoker_presign(engine, NOWHERE, &options, &url, &until, error);
}

CALL(stoker_walk_open)
{
    struct stoker_file_info info = {.struct_size = sizeof info};
    struct stoker_walk *opened = NULL;
    int status = stoker_walk_open(&opened, engine, NOWHERE, 1, error);

    status = status < 0 ? status : stoker_walk_next(opened, 20000, &info, error);
    stoker_walk_close(opened);
    return status;
}

CALL(stoker_walk_next)
{
    struct stoker_file_info info = {.struct_size = 1};

    int status = stoker_walk_next(walk, 20000, &info, error);

    T_AGAIN(stoker_walk_next, walk, 20000, &info, NULL);
    return status;
}

CALL(stoker_file_open)
{
    struct stoker_file *file = NULL;

    return stoker_file_open(&file, engine, NOWHERE, NULL, error);
}

CALL(stoker_file_read_ranges)
{
    struct stoker_ranges_options options = {.struct_size = 1};
    struct stoker_range range = {0};

    return stoker_file_read_ranges(&range, 1, &options, error);
}

CALL(stoker_filesystem_open)
{
    struct stoker_filesystem_options options = {.struct_size = 1};
    struct stoker_filesystem *opened = NULL;

    return stoker_filesystem_open(&opened, NOWHERE, &options, error);
}

static int index_fails(struct stoker_error *error, bool open)
{
    struct stoker_dataset_options set = {
        .struct_size = sizeof set, .urls = nowhere, .url_count = 1};
    struct stoker_indexer_options options = {.struct_size = open ? 1 : sizeof options};
    struct stoker_indexer *indexer = NULL;
    int status = stoker_indexer_open(&indexer, engine, &set, &options, error);

    status = status < 0 ? status : stoker_indexer_next(indexer, 20000, NULL, error);
    if (indexer) {
        T_AGAIN(stoker_indexer_next, indexer, 20000, NULL, NULL);
    }
    stoker_indexer_close(indexer);
    return status;
}

CALL(stoker_indexer_open)
{
    return index_fails(error, true);
}

CALL(stoker_indexer_next)
{
    return index_fails(error, false);
}

CALL(stoker_jpeg_indexer_open)
{
    struct stoker_jpeg_indexer_options options = {.struct_size = 1};
    struct stoker_jpeg_indexer *indexer = NULL;

    return stoker_jpeg_indexer_open(&indexer, dataset, &options, error);
}

/* Text of samples is no number. extension: of the field. */
static int load_fails(struct stoker_error *error, const char *extension)
{
    struct stoker_field_options field = {
        .name = "n", .kind = STOKER_FIELD_INT, .extensions = extension};
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = &field,
                                            .field_count = 1,
                                            .batch_size = 4,
                                            .on_error = STOKER_ON_ERROR_RAISE};
    struct stoker_loader *opened = NULL;
    struct stoker_batch *batch = NULL;
    int status = stoker_loader_open(&opened, dataset, &options, error);

    status = status < 0 ? status : stoker_loader_next(opened, 20000, &batch, error);
    if (opened) {
        T_AGAIN(stoker_loader_next, opened, 20000, &batch, NULL);
    }
    stoker_batch_close(batch);
    stoker_loader_close(opened);
    return status;
}

CALL(stoker_loader_open)
{
    return load_fails(error, "none");
}

CALL(stoker_loader_next)
{
    return load_fails(error, "txt");
}

CALL(stoker_loader_set_epoch)
{
    return stoker_loader_set_epoch(loader, UINT64_MAX, error);
}

CALL(stoker_loader_set_state)
{
    struct stoker_state state = {0};

    return stoker_loader_set_state(loader, &state, error);
}

CALL(stoker_location_check)
{
    struct stoker_location location = {.struct_size = 1};

    return stoker_location_check(engine, NOWHERE, &location, error);
}

CALL(stoker_mixing_measure)
{
    struct stoker_mixing_options options = {.struct_size = 1};
    struct stoker_mixing mixing = {.struct_size = sizeof mixing};

    return stoker_mixing_measure(&options, &mixing, error);
}

CALL(stoker_order_open)
{
    struct stoker_order_options options = {.struct_size = sizeof options};
    struct stoker_order *opened = NULL;

    fill_order(&options);
    options.batch_size = 0;
    return stoker_order_open(&opened, &options, error);
}

CALL(stoker_order_measure)
{
    struct stoker_order_measure_options options = {.struct_size = 1};
    struct stoker_order_measures measures = {.struct_size = sizeof measures};

    return stoker_order_measure(order, &options, &measures, error);
}

CALL(stoker_order_mixing)
{
    struct stoker_order_mixing_options options = {.struct_size = 1};
    struct stoker_order_mixing mixing = {.struct_size = sizeof mixing};

    return stoker_order_mixing(order, &options, &mixing, error);
}

CALL(stoker_order_simulate)
{
    struct stoker_order_simulate_options options = {.struct_size = 1};
    struct stoker_order_simulation simulation = {.struct_size = sizeof simulation};

    return stoker_order_simulate(order, &options, &simulation, error);
}

CALL(stoker_order_verify)
{
    struct stoker_order_verify_options options = {.struct_size = 1};
    struct stoker_order_proof proof = {.struct_size = sizeof proof};

    return stoker_order_verify(order, &options, &proof, error);
}

CALL(stoker_order_diff)
{
    struct stoker_order_difference difference = {.struct_size = 1};

    return stoker_order_diff(order, order, 1, &difference, error);
}

CALL(stoker_pack_open)
{
    struct stoker_pack_options options = {.struct_size = 1};
    struct stoker_pack *pack = NULL;

    return stoker_pack_open(&pack, dataset, &options, error);
}

static int prewarm_fails(struct stoker_error *error, bool open)
{
    struct stoker_prewarm_options options = {
        .struct_size = open ? 1 : sizeof options, .paths = nowhere, .path_count = 1};
    struct stoker_prewarm *prewarm = NULL;
    int status = stoker_prewarm_open(&prewarm, engine, &options, error);

    status = status < 0 ? status : stoker_prewarm_next(prewarm, 20000, NULL, error);
    if (prewarm) {
        T_AGAIN(stoker_prewarm_next, prewarm, 20000, NULL, NULL);
    }
    stoker_prewarm_close(prewarm);
    return status;
}

CALL(stoker_prewarm_open)
{
    return prewarm_fails(error, true);
}

CALL(stoker_prewarm_next)
{
    return prewarm_fails(error, false);
}

static int sampler_fails(struct stoker_error *error, const char *subset)
{
    struct stoker_sampler_options options = {.struct_size = sizeof options, .where = subset};
    struct stoker_sampler *opened = NULL;
    int status = stoker_sampler_open(&opened, dataset, &options, error);

    while (status == 0 && (status = stoker_sampler_next(opened, 20000, error)) > 0) {
        status = 0;
    }
    if (opened) {
        T_AGAIN(stoker_sampler_next, opened, 20000, NULL);
    }
    stoker_sampler_close(opened);
    return status;
}

CALL(stoker_sampler_open)
{
    return sampler_fails(error, "size ==");
}

CALL(stoker_sampler_next)
{
    return sampler_fails(error, "key == 'none'");
}

static int writer_fails(struct stoker_error *error, int step)
{
    struct stoker_shard_writer_options options = {.struct_size = step == 0 ? 1 : sizeof options,
                                                  .destination = spare()};
    struct stoker_shard_member member = {.extension = "txt", .data = "x", .bytes = 1};
    struct stoker_shard_writer *writer = NULL;
    int status = stoker_shard_writer_open(&writer, engine, &options, error);

    if (step == 1 && status == 0) {
        status = stoker_shard_writer_add(writer, "", &member, 1, error);
    }
    if (step == 2 && status == 0) {
        status = stoker_shard_writer_commit(writer, error);
    }
    stoker_shard_writer_close(writer);
    return status;
}

CALL(stoker_shard_writer_open)
{
    return writer_fails(error, 0);
}

CALL(stoker_shard_writer_add)
{
    return writer_fails(error, 1);
}

CALL(stoker_shard_writer_commit)
{
    return writer_fails(error, 2);
}

CALL(stoker_tokens_open)
{
    struct stoker_tokens_options options = {
        .struct_size = sizeof options, .paths = nowhere, .path_count = 1, .dtype = STOKER_INT32};
    struct stoker_tokens *opened = NULL;

    return stoker_tokens_open(&opened, engine, &options, error);
}

/* step 0: a context that no file has; 1: an epoch, 2: a state that cannot be. */
static int token_loader_fails(struct stoker_error *error, int step)
{
    struct stoker_token_loader_options options = {
        .struct_size = sizeof options, .context = step == 0 ? 1u << 20 : 8, .batch_size = 2};
    struct stoker_token_loader *opened = NULL;
    struct stoker_state state = {0};
    int status = stoker_token_loader_open(&opened, tokens, &options, error);

    if (status == 0) {
        status = step == 1 ? stoker_token_loader_set_epoch(opened, UINT64_MAX, error)
                           : stoker_token_loader_set_state(opened, &state, error);
    }
    stoker_token_loader_close(opened);
    return status;
}

CALL(stoker_token_loader_open)
{
    return token_loader_fails(error, 0);
}

CALL(stoker_token_loader_set_epoch)
{
    return token_loader_fails(error, 1);
}

CALL(stoker_token_loader_set_state)
{
    return token_loader_fails(error, 2);
}

CALL(stoker_token_rows_batch)
{
    struct stoker_token_documents documents = {.struct_size = sizeof documents};
    struct stoker_token_loader_options options = {.struct_size = 1};
    struct stoker_batch *batch = NULL;

    return stoker_token_rows_batch(&batch, engine, &documents, &options, error);
}

static int verify_fails(struct stoker_error *error, bool open)
{
    struct stoker_verify_options options = {
        .struct_size = open ? 1 : sizeof options, .urls = nowhere, .url_count = 1};
    struct stoker_finding finding = {0};
    struct stoker_verify *verify = NULL;
    int status = stoker_verify_open(&verify, engine, &options, error);

    status = status < 0 ? status : stoker_verify_next(verify, 20000, &finding, error);
    if (verify) {
        T_AGAIN(stoker_verify_next, verify, 20000, &finding, NULL);
    }
    stoker_verify_close(verify);
    return status;
}

CALL(stoker_verify_open)
{
    return verify_fails(error, true);
}

CALL(stoker_verify_next)
{
    return verify_fails(error, false);
}

CALL(stoker_checkpoint_writer_open)
{
    struct stoker_checkpoint_writer_options options = {.struct_size = 1};
    struct stoker_checkpoint_writer *writer = NULL;

    return stoker_checkpoint_writer_open(&writer, engine, &options, error);
}

CALL(stoker_checkpoint_open)
{
    struct stoker_checkpoint *checkpoint = NULL;

    return stoker_checkpoint_open(&checkpoint, engine, NOWHERE, 1, error);
}

CALL(stoker_checkpoint_list_open)
{
    struct stoker_checkpoint_list *list = NULL;
    int status = stoker_checkpoint_list_open(&list, engine, tar_path, error);

    stoker_checkpoint_list_close(list);
    return status;
}

CALL(stoker_checkpoint_pin)
{
    return stoker_checkpoint_pin(engine, NOWHERE, 1, 1, error);
}

CALL(stoker_checkpoint_remove)
{
    return stoker_checkpoint_remove(engine, NOWHERE, 1, error);
}

CALL(stoker_checkpoint_gc)
{
    struct stoker_checkpoint_gc_options options = {.struct_size = 1};
    struct stoker_checkpoint_gc_result result = {.struct_size = sizeof result};

    return stoker_checkpoint_gc(engine, NOWHERE, &options, &result, error);
}

CALL(stoker_checkpoint_task_open)
{
    struct stoker_checkpoint_task_options options = {.struct_size = 1};
    struct stoker_checkpoint_task *task = NULL;

    return stoker_checkpoint_task_open(&task, engine, &options, error);
}

CALL(stoker_checkpoint_probe)
{
    struct stoker_checkpoint_probe result = {.struct_size = 1};

    return stoker_checkpoint_probe(engine, NOWHERE, &result, error);
}

CALL(stoker_cache_open)
{
    struct stoker_cache_options options = {
        .struct_size = sizeof options, .paths = nowhere, .path_count = 1, .must_exist = 1};
    struct stoker_cache *cache = NULL;

    return stoker_cache_open(&cache, &options, error);
}

#define ROW(name) {#name, name##_fails}

static const struct call {
    const char *name;
    int (*fails)(struct stoker_error *error);
} calls[] = {
    ROW(stoker_engine_open),
    ROW(stoker_dataset_open),
    ROW(stoker_dataset_path_class),
    ROW(stoker_dataset_sample),
    ROW(stoker_dataset_read),
    ROW(stoker_dataset_label),
    ROW(stoker_dataset_refresh),
    ROW(stoker_dataset_as_of),
    ROW(stoker_dataset_join),
    ROW(stoker_diff_open),
    ROW(stoker_clean),
    ROW(stoker_copy_open),
    ROW(stoker_copy_next),
    ROW(stoker_copy_next_note),
    ROW(stoker_creds_explain),
    ROW(stoker_external_fs_open),
    ROW(stoker_external_fs_next),
    ROW(stoker_stat),
    ROW(stoker_paths_expand),
    ROW(stoker_paths_expand_no_links),
    ROW(stoker_buckets_list),
    ROW(stoker_presign),
    ROW(stoker_walk_open),
    ROW(stoker_walk_next),
    ROW(stoker_file_open),
    ROW(stoker_file_read_ranges),
    ROW(stoker_filesystem_open),
    ROW(stoker_indexer_open),
    ROW(stoker_indexer_next),
    ROW(stoker_jpeg_indexer_open),
    ROW(stoker_loader_open),
    ROW(stoker_loader_next),
    ROW(stoker_loader_set_epoch),
    ROW(stoker_loader_set_state),
    ROW(stoker_location_check),
    ROW(stoker_mixing_measure),
    ROW(stoker_order_open),
    ROW(stoker_order_measure),
    ROW(stoker_order_mixing),
    ROW(stoker_order_simulate),
    ROW(stoker_order_verify),
    ROW(stoker_order_diff),
    ROW(stoker_pack_open),
    ROW(stoker_prewarm_open),
    ROW(stoker_prewarm_next),
    ROW(stoker_sampler_open),
    ROW(stoker_sampler_next),
    ROW(stoker_shard_writer_open),
    ROW(stoker_shard_writer_add),
    ROW(stoker_shard_writer_commit),
    ROW(stoker_tokens_open),
    ROW(stoker_token_loader_open),
    ROW(stoker_token_loader_set_epoch),
    ROW(stoker_token_loader_set_state),
    ROW(stoker_token_rows_batch),
    ROW(stoker_verify_open),
    ROW(stoker_verify_next),
    ROW(stoker_checkpoint_writer_open),
    ROW(stoker_checkpoint_open),
    ROW(stoker_checkpoint_list_open),
    ROW(stoker_checkpoint_pin),
    ROW(stoker_checkpoint_remove),
    ROW(stoker_checkpoint_gc),
    ROW(stoker_checkpoint_task_open),
    ROW(stoker_checkpoint_probe),
    ROW(stoker_cache_open),
};

int main(void)
{
    char command[128];

    if (!mkdtemp(folder)) {
        t_skip("no folder in /tmp");
    }
    write_files();
    open_all();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct stoker_error error = {0};
        int with = calls[i].fails(&error), without = calls[i].fails(NULL);

        T_TRUE(calls[i].name, with < 0);
        T_EQ(calls[i].name, without, with);
        T_EQ(calls[i].name, error.status, with);
        T_TRUE(calls[i].name, error.what[0] && error.where[0] && error.advice[0]);
    }
    (void)run_rows; /* of the tests of sizes */
    close_all();
    snprintf(command, sizeof command, "rm -r %s", folder);
    return t_finish() | (system(command) != 0);
}
