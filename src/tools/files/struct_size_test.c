/* Goal: programs and libraries of different versions work together: each public struct that begins
 * with struct_size may be shorter or longer than the one that this library knows.
 * Method: a table of all these structs. Each is passed to its function unchanged, shorter, longer
 * with zeros, longer with a field that is set, without a size, and with invalid sizes. Output is in
 * output_size_test.c. */
#include "tools/files/struct_size_test.h"

#include <pthread.h>

static const uint64_t mix_ends[] = {8, 16}, mix_weights[] = {1, 1};
static const uint32_t worlds[] = {1, 2};

/* ---- options: fill() makes good ones, call() passes them ---- */

static int open_engine(void *options, struct stoker_error *error)
{
    struct stoker_engine *opened = NULL;
    int status = stoker_engine_open(&opened, options, error);

    stoker_engine_close(opened);
    return status;
}

static int open_cache(void *options, struct stoker_error *error)
{
    struct stoker_cache *opened = NULL;
    int status = stoker_cache_open(&opened, options, error);

    stoker_cache_close(opened);
    return status;
}

static void fill_cache(void *options)
{
    static const char *folders[1];
    static char path[160];
    struct stoker_cache_options *good = options;

    snprintf(path, sizeof path, "%s-cache", spare());
    folders[0] = path;
    good->paths = folders;
    good->path_count = 1;
    good->bytes_max = 16u << 20;
}

static void fill_engine(void *options)
{
    struct stoker_engine_options *good = options;

    good->memory_bytes_max = 256u << 20;
}

static int open_dataset(void *options, struct stoker_error *error)
{
    struct stoker_dataset *opened = NULL;
    int status = stoker_dataset_open(&opened, engine, options, error);

    stoker_dataset_close(opened);
    return status;
}

static void fill_dataset(void *options)
{
    struct stoker_dataset_options *good = options;

    good->urls = urls;
    good->url_count = 1;
}

static int open_indexer(void *options, struct stoker_error *error)
{
    struct stoker_dataset_options set = {.struct_size = sizeof set, .urls = urls, .url_count = 1};
    struct stoker_indexer *opened = NULL;
    int status = stoker_indexer_open(&opened, engine, &set, options, error);

    stoker_indexer_close(opened);
    return status;
}

static void fill_indexer(void *options)
{
    struct stoker_indexer_options *good = options;

    good->out = spare();
}

static int open_jpeg_indexer(void *options, struct stoker_error *error)
{
    struct stoker_jpeg_indexer *opened = NULL;
    int status = stoker_jpeg_indexer_open(&opened, dataset, options, error);

    stoker_jpeg_indexer_close(opened);
    return status;
}

static void fill_nothing(void *options)
{
    (void)options;
}

static int open_order(void *options, struct stoker_error *error)
{
    struct stoker_order *opened = NULL;
    int status = stoker_order_open(&opened, options, error);

    stoker_order_close(opened);
    return status;
}

static int open_mix(void *mix, struct stoker_error *error)
{
    struct stoker_order_options options = {.struct_size = sizeof options, .mix = mix};

    fill_order(&options);
    return open_order(&options, error);
}

static void fill_presign(void *options)
{
    struct stoker_presign_options *good = options;

    good->expires_s = 60;
}

static int presign(void *options, struct stoker_error *error)
{
    char *url = NULL;
    int status;

    setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9", 1);
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    status = stoker_presign(engine, "s3://bucket/key", options, &url, NULL, error);

    stoker_paths_free(url);
    return status;
}

static void fill_mix(void *options)
{
    struct stoker_mix_options *good = options;

    good->ends = mix_ends;
    good->weights = mix_weights;
    good->source_count = 2;
}

static int open_sampling(void *sampling, struct stoker_error *error)
{
    struct stoker_order_options options = {.struct_size = sizeof options, .sampling = sampling};

    fill_order(&options);
    return open_order(&options, error);
}

static int open_loader_sampling(void *sampling, struct stoker_error *error)
{
    struct stoker_loader_options options = {.struct_size = sizeof options,
                                            .fields = fields,
                                            .field_count = 1,
                                            .batch_size = 4,
                                            .sampling = sampling};
    struct stoker_loader *opened = NULL;
    int status = stoker_loader_open(&opened, dataset, &options, error);

    stoker_loader_close(opened);
    return status;
}

static int measure(void *options, struct stoker_error *error)
{
    struct stoker_order_measures measures = {.struct_size = sizeof measures};

    return stoker_order_measure(order, options, &measures, error);
}

static int simulate(void *options, struct stoker_error *error)
{
    struct stoker_order_simulation simulation = {.struct_size = sizeof simulation};

    return stoker_order_simulate(order, options, &simulation, error);
}

static int verify_order(void *options, struct stoker_error *error)
{
    struct stoker_order_proof proof = {.struct_size = sizeof proof};

    return stoker_order_verify(order, options, &proof, error);
}

static void fill_verify_order(void *options)
{
    struct stoker_order_verify_options *good = options;

    good->world_sizes = worlds;
    good->world_size_count = 2;
}

static int open_sampler(void *options, struct stoker_error *error)
{
    struct stoker_sampler *opened = NULL;
    int status = stoker_sampler_open(&opened, dataset, options, error);

    stoker_sampler_close(opened);
    return status;
}

static int open_loader(void *options, struct stoker_error *error)
{
    struct stoker_loader *opened = NULL;
    int status = stoker_loader_open(&opened, dataset, options, error);

    stoker_loader_close(opened);
    return status;
}

static int open_tokens(void *options, struct stoker_error *error)
{
    struct stoker_tokens *opened = NULL;
    int status = stoker_tokens_open(&opened, engine, options, error);

    stoker_tokens_close(opened);
    return status;
}

static int open_token_loader(void *options, struct stoker_error *error)
{
    struct stoker_token_loader *opened = NULL;
    int status = stoker_token_loader_open(&opened, tokens, options, error);

    stoker_token_loader_close(opened);
    return status;
}

static void fill_token_loader(void *options)
{
    struct stoker_token_loader_options *good = options;

    good->context = 4;
    good->batch_size = 2;
}

static int make_rows(void *documents, struct stoker_error *error)
{
    struct stoker_token_loader_options options = {
        .struct_size = sizeof options, .context = 4, .batch_size = 1};
    struct stoker_batch *batch = NULL;
    int status = stoker_token_rows_batch(&batch, engine, documents, &options, error);

    stoker_batch_close(batch);
    return status;
}

static void fill_documents(void *options)
{
    static const int32_t row[5] = {1, 2, 3, 4, 5};
    static const uint64_t end = 5, id = 1;
    struct stoker_token_documents *good = options;

    good->tokens = row;
    good->ends = &end;
    good->ids = &id;
    good->count = 1;
}

static int open_pack(void *options, struct stoker_error *error)
{
    struct stoker_pack *opened = NULL;
    int status = stoker_pack_open(&opened, dataset, options, error);

    stoker_pack_close(opened);
    return status;
}

static void fill_pack(void *options)
{
    struct stoker_pack_options *good = options;

    good->destination = spare();
}

static int open_shard_writer(void *options, struct stoker_error *error)
{
    struct stoker_shard_writer *opened = NULL;
    int status = stoker_shard_writer_open(&opened, engine, options, error);

    stoker_shard_writer_close(opened);
    return status;
}

static void fill_shard_writer(void *options)
{
    struct stoker_shard_writer_options *good = options;

    good->destination = spare();
}

static int open_verify(void *options, struct stoker_error *error)
{
    struct stoker_verify *opened = NULL;
    int status = stoker_verify_open(&opened, engine, options, error);

    stoker_verify_close(opened);
    return status;
}

static void fill_verify(void *options)
{
    struct stoker_verify_options *good = options;

    good->urls = urls;
    good->url_count = 1;
}

static int open_diff(void *options, struct stoker_error *error)
{
    struct stoker_diff *opened = NULL;
    int status = stoker_diff_open(&opened, dataset, dataset, options, error);

    stoker_diff_close(opened);
    return status;
}

static int open_checkpoint_writer(void *options, struct stoker_error *error)
{
    struct stoker_checkpoint_writer *opened = NULL;
    int status = stoker_checkpoint_writer_open(&opened, engine, options, error);

    stoker_checkpoint_writer_close(opened);
    return status;
}

static void fill_checkpoint_writer(void *options)
{
    struct stoker_checkpoint_writer_options *good = options;

    good->path = folder;
}

static int open_checkpoint_save(void *options, struct stoker_error *error)
{
    struct stoker_checkpoint_writer_options place = {.struct_size = sizeof place};
    struct stoker_checkpoint_writer *writer = NULL;
    struct stoker_checkpoint_save *save = NULL;
    int status;

    fill_checkpoint_writer(&place);
    status = stoker_checkpoint_writer_open(&writer, engine, &place, error);
    status = status < 0 ? status : stoker_checkpoint_save_open(&save, writer, options, error);
    stoker_checkpoint_save_close(save);
    stoker_checkpoint_writer_close(writer);
    return status;
}

static int run_checkpoint_gc(void *options, struct stoker_error *error)
{
    return stoker_checkpoint_gc(engine, folder, options, NULL, error);
}

static int open_checkpoint_task(void *options, struct stoker_error *error)
{
    struct stoker_checkpoint_task *opened = NULL;
    int status = stoker_checkpoint_task_open(&opened, engine, options, error);

    stoker_checkpoint_task_close(opened);
    return status;
}

static void fill_checkpoint_task(void *options)
{
    struct stoker_checkpoint_task_options *task = options;

    task->action = STOKER_CHECKPOINT_CHECK_SEAL;
    task->source = folder;
}

static int open_copy(void *options, struct stoker_error *error)
{
    struct stoker_copy *opened = NULL;
    int status = stoker_copy_open(&opened, engine, options, error);

    stoker_copy_close(opened);
    return status;
}

static void fill_copy(void *options)
{
    struct stoker_copy_options *good = options;

    good->kind = STOKER_COPY;
    good->sources = urls;
    good->source_count = 1;
    good->destination = spare();
}

static int read_ranges(void *options, struct stoker_error *error)
{
    struct stoker_file *file = NULL;
    char bytes[8];
    struct stoker_range range = {.bytes = sizeof bytes, .buffer = bytes};
    int status = stoker_file_open(&file, engine, tar_path, NULL, error);

    range.file = file;
    status = status < 0 ? status : stoker_file_read_ranges(&range, 1, options, error);
    stoker_file_close(file);
    return status;
}

static int open_filesystem(void *options, struct stoker_error *error)
{
    struct stoker_filesystem *opened = NULL;
    int status = stoker_filesystem_open(&opened, folder, options, error);

    stoker_filesystem_close(opened);
    return status;
}

static int clean(void *options, struct stoker_error *error)
{
    return stoker_clean(options, error);
}

static void fill_clean(void *options)
{
    struct stoker_clean_options *good = options;

    good->unused_s = UINT64_MAX; /* finds nothing */
}

static int open_prewarm(void *options, struct stoker_error *error)
{
    struct stoker_prewarm *opened = NULL;
    int status = stoker_prewarm_open(&opened, engine, options, error);

    stoker_prewarm_close(opened);
    return status;
}

static void fill_prewarm(void *options)
{
    struct stoker_prewarm_options *good = options;

    good->paths = urls;
    good->path_count = 1;
}

/* ---- requests of an external file system: a thread waits for one, another serves it ---- */

struct external {
    struct stoker_external_fs *fs;
    struct stoker_engine *engine;
    pthread_t thread;
    int status;
};

static void *stat_external(void *context)
{
    struct external *external = context;
    struct stoker_file_info info = {.struct_size = sizeof info};

    external->status = stoker_stat(external->engine, "sftp://host/file", &info, NULL);
    return NULL;
}

static void begin_external(struct external *external)
{
    struct stoker_engine_options options = {.struct_size = sizeof options, .threads = 1};

    T_EQ("external", stoker_external_fs_open(&external->fs, NULL), 0);
    options.external_fs = external->fs;
    T_EQ("external", stoker_engine_open(&external->engine, &options, NULL), 0);
}

static void end_external(struct external *external)
{
    stoker_engine_close(external->engine);
    stoker_external_fs_close(external->fs);
}

/* `request` or `reply` is the struct under test; good ones end its effects. */
static int serve_external(void *request, const void *reply, struct stoker_error *error)
{
    struct stoker_external_request good = {.struct_size = sizeof good};
    struct stoker_external_reply answer = {.struct_size = sizeof answer, .bytes = 7};
    struct external external = {0};
    int status;

    begin_external(&external);
    T_EQ("no request", stoker_external_fs_next(external.fs, 0, &good, NULL), 0);
    T_EQ("start", pthread_create(&external.thread, NULL, stat_external, &external), 0);
    status = stoker_external_fs_next(external.fs, 10000, request ? request : &good, error);
    if (request && status > 0) {
        memcpy(&good.number,
               (const uint8_t *)request + offsetof(struct stoker_external_request, number),
               sizeof good.number);
    } else if (request) {
        T_EQ("request", stoker_external_fs_next(external.fs, 10000, &good, NULL), 1);
    }
    if (reply) {
        status = stoker_external_fs_reply(external.fs, good.number, reply);
    }
    if (!reply || status < 0) {
        T_EQ("reply", stoker_external_fs_reply(external.fs, good.number, &answer), 0);
    }
    pthread_join(external.thread, NULL);
    T_EQ("external", external.status, 0);
    end_external(&external);
    return status;
}

static int next_external(void *request, struct stoker_error *error)
{
    return serve_external(request, NULL, error);
}

static int reply_external(void *reply, struct stoker_error *error)
{
    return serve_external(NULL, reply, error);
}

static void fill_reply(void *options)
{
    struct stoker_external_reply *good = options;

    good->bytes = 7;
}

/* ---- the table ---- */

static const struct row rows[] = {
    OPTIONS(stoker_external_reply, what, reply_external, fill_reply),
    OPTIONS(stoker_engine_options, threads, open_engine, fill_engine),
    OPTIONS(stoker_cache_options, bytes_max, open_cache, fill_cache),
    OPTIONS(stoker_dataset_options, key_bytes_max, open_dataset, fill_dataset),
    OPTIONS(stoker_indexer_options, checksums, open_indexer, fill_indexer),
    OPTIONS(stoker_jpeg_indexer_options, check, open_jpeg_indexer, fill_nothing),
    OPTIONS(stoker_mix_options, unit_samples, open_mix, fill_mix),
    OPTIONS(stoker_sampling_options, repeats, open_sampling, fill_nothing),
    OPTIONS(stoker_sampling_options, repeats, open_loader_sampling, fill_nothing),
    OPTIONS(stoker_order_options, mix, open_order, fill_order),
    OPTIONS(stoker_order_measure_options, walk_max, measure, fill_nothing),
    OPTIONS(stoker_order_simulate_options, threads, simulate, fill_nothing),
    OPTIONS(stoker_order_verify_options, epochs, verify_order, fill_verify_order),
    OPTIONS(stoker_sampler_options, samples, open_sampler, fill_nothing),
    OPTIONS(stoker_loader_options, shuffle, open_loader, fill_loader),
    OPTIONS(stoker_tokens_options, cache_bytes, open_tokens, fill_tokens),
    OPTIONS(stoker_token_loader_options, shuffle, open_token_loader, fill_token_loader),
    OPTIONS(stoker_token_documents, epoch, make_rows, fill_documents),
    OPTIONS(stoker_pack_options, shard_bytes, open_pack, fill_pack),
    OPTIONS(stoker_shard_writer_options, shard_bytes, open_shard_writer, fill_shard_writer),
    OPTIONS(stoker_verify_options, deep, open_verify, fill_verify),
    OPTIONS(stoker_diff_options, reread, open_diff, fill_nothing),
    OPTIONS(stoker_checkpoint_writer_options, memory_bytes_max, open_checkpoint_writer,
            fill_checkpoint_writer),
    OPTIONS(stoker_checkpoint_save_options, tree, open_checkpoint_save, fill_nothing),
    OPTIONS(stoker_checkpoint_gc_options, keep_every, run_checkpoint_gc, fill_nothing),
    OPTIONS(stoker_checkpoint_task_options, shard_bytes, open_checkpoint_task,
            fill_checkpoint_task),
    OPTIONS(stoker_copy_options, recursive, open_copy, fill_copy),
    OPTIONS(stoker_presign_options, expires_s, presign, fill_presign),
    OPTIONS(stoker_ranges_options, in_flight_max, read_ranges, fill_nothing),
    OPTIONS(stoker_filesystem_options, files_max, open_filesystem, fill_nothing),
    OPTIONS(stoker_clean_options, unused_s, clean, fill_clean),
    OPTIONS(stoker_prewarm_options, workers, open_prewarm, fill_prewarm),
    OUTPUT(stoker_external_request, buffer, next_external),
};

int main(void)
{
    return run_rows(rows, sizeof rows / sizeof rows[0]);
}
