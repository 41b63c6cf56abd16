/* Goal: public structs that the library fills may be of an older and of a newer program, too.
 * Method: the rows of struct_size_test.c, for output: bytes after a shorter struct do not change,
 * and the fields of a longer one that this library does not know become 0. */
#include "tools/files/struct_size_test.h"

static const uint32_t worlds[] = {1, 2};

static void fill_verify_order(void *options)
{
    struct stoker_order_verify_options *good = options;

    good->world_sizes = worlds;
    good->world_size_count = 2;
}

static void fill_verify(void *options)
{
    struct stoker_verify_options *good = options;

    good->urls = urls;
    good->url_count = 1;
}

static void fill_copy(void *options)
{
    struct stoker_copy_options *good = options;

    good->kind = STOKER_COPY;
    good->sources = urls;
    good->source_count = 1;
    good->destination = spare();
}

static void fill_prewarm(void *options)
{
    struct stoker_prewarm_options *good = options;

    good->paths = urls;
    good->path_count = 1;
}

static void fill_nothing(void *options)
{
    (void)options;
}

static int get_engine(void *info, struct stoker_error *error)
{
    (void)error;
    return stoker_engine_info(engine, info);
}

static int get_store_stats(void *stats, struct stoker_error *error)
{
    (void)error;
    return stoker_engine_store_stats(engine, stats);
}

static struct stoker_cache *open_cache(void)
{
    static char path[160];
    const char *paths[] = {path};
    struct stoker_cache_options options = {
        .struct_size = sizeof options, .paths = paths, .path_count = 1, .bytes_max = 16u << 20};
    struct stoker_cache *cache = NULL;

    snprintf(path, sizeof path, "%s-cache", spare());
    T_EQ("cache", stoker_cache_open(&cache, &options, NULL), 0);
    return cache;
}

static int get_cache_stats(void *stats, struct stoker_error *error)
{
    struct stoker_cache *cache = open_cache();
    int status = stoker_cache_stats(cache, stats);

    (void)error;
    stoker_cache_close(cache);
    return status;
}

static int get_cache_folder(void *about, struct stoker_error *error)
{
    struct stoker_cache *cache = open_cache();
    int status = stoker_cache_folder(cache, 0, about);

    (void)error;
    stoker_cache_close(cache);
    return status;
}

static int get_store_wait(void *wait, struct stoker_error *error)
{
    (void)error;
    return stoker_store_wait(wait);
}

static int get_dataset(void *info, struct stoker_error *error)
{
    (void)error;
    return stoker_dataset_info(dataset, info);
}

static int get_quarantine(void *entry, struct stoker_error *error)
{
    (void)error;
    return stoker_dataset_quarantine(damaged, 0, entry);
}

static int get_indexer(void *progress, struct stoker_error *error)
{
    struct stoker_dataset_options set = {.struct_size = sizeof set, .urls = urls, .url_count = 1};
    struct stoker_indexer_options options = {.struct_size = sizeof options, .out = spare()};
    struct stoker_indexer *indexer = NULL;
    int status = stoker_indexer_open(&indexer, engine, &set, &options, error);

    status = status < 0 ? status : stoker_indexer_next(indexer, 0, progress, error);
    stoker_indexer_close(indexer);
    return status;
}

static int get_jpeg_indexer(void *progress, struct stoker_error *error)
{
    struct stoker_jpeg_indexer *indexer = NULL;
    int status = stoker_jpeg_indexer_open(&indexer, dataset, NULL, error);

    status = status < 0 ? status : stoker_jpeg_indexer_next(indexer, progress, error);
    stoker_jpeg_indexer_close(indexer);
    return status;
}

static int get_measures(void *measures, struct stoker_error *error)
{
    struct stoker_order_measure_options options = {.struct_size = sizeof options};

    return stoker_order_measure(order, &options, measures, error);
}

static int get_simulation(void *simulation, struct stoker_error *error)
{
    struct stoker_order_simulate_options options = {.struct_size = sizeof options};

    return stoker_order_simulate(order, &options, simulation, error);
}

static int get_proof(void *proof, struct stoker_error *error)
{
    struct stoker_order_verify_options options = {.struct_size = sizeof options};

    fill_verify_order(&options);
    return stoker_order_verify(order, &options, proof, error);
}

static int get_difference(void *difference, struct stoker_error *error)
{
    return stoker_order_diff(order, order, 1, difference, error);
}

static int get_loader_order(void *options, struct stoker_error *error)
{
    (void)error;
    return stoker_loader_order(loader, options);
}

static int get_sampler(void *info, struct stoker_error *error)
{
    (void)error;
    return stoker_sampler_info(sampler, info);
}

static int get_stats(void *stats, struct stoker_error *error)
{
    (void)error;
    return stoker_loader_stats(loader, stats);
}

static int get_tokens(void *info, struct stoker_error *error)
{
    (void)error;
    return stoker_tokens_info(tokens, info);
}

static int get_pack(void *progress, struct stoker_error *error)
{
    struct stoker_pack_options options = {.struct_size = sizeof options, .destination = spare()};
    struct stoker_pack *pack = NULL;
    int status = stoker_pack_open(&pack, dataset, &options, error);

    status = status < 0 ? status : stoker_pack_next(pack, 0, progress, error);
    stoker_pack_close(pack);
    return status;
}

static int get_verify(void *progress, struct stoker_error *error)
{
    struct stoker_verify_options options = {.struct_size = sizeof options};
    struct stoker_verify *verify = NULL;
    int status;

    fill_verify(&options);
    status = stoker_verify_open(&verify, engine, &options, error);
    status = status < 0 ? status : stoker_verify_progress(verify, progress);
    stoker_verify_close(verify);
    return status;
}

static int get_diff(void *progress, struct stoker_error *error)
{
    struct stoker_diff *diff = NULL;
    int status = stoker_diff_open(&diff, dataset, dataset, NULL, error);

    status = status < 0 ? status : stoker_diff_progress(diff, progress);
    stoker_diff_close(diff);
    return status;
}

static int get_creds(void *creds, struct stoker_error *error)
{
    return stoker_creds_explain("http://localhost/x", creds, error);
}

static int get_location(void *location, struct stoker_error *error)
{
    return stoker_location_check(engine, "http://localhost/x", location, error);
}

static int get_copy(void *progress, struct stoker_error *error)
{
    struct stoker_copy_options options = {.struct_size = sizeof options};
    struct stoker_copy *copy = NULL;
    int status;

    fill_copy(&options);
    status = stoker_copy_open(&copy, engine, &options, error);
    status = status < 0 ? status : stoker_copy_next(copy, 10000, progress, error);
    stoker_copy_close(copy);
    return status;
}

/* The note of a dry run. */
static int get_note(void *note, struct stoker_error *error)
{
    struct stoker_copy_options options = {.struct_size = sizeof options};
    struct stoker_copy *copy = NULL;
    int status, running = 1;

    fill_copy(&options);
    options.dry_run = 1;
    status = stoker_copy_open(&copy, engine, &options, error);
    while (status == 0 && (status = stoker_copy_next_note(copy, note, error)) == 0 && running > 0) {
        running = stoker_copy_next(copy, 100, NULL, error);
        status = running < 0 ? running : 0;
    }
    stoker_copy_close(copy);
    return status == 1 ? 0 : status < 0 ? status : STOKER_ERROR_EMPTY;
}

static int get_stat(void *info, struct stoker_error *error)
{
    return stoker_stat(engine, tar_path, info, error);
}

static int get_file(void *info, struct stoker_error *error)
{
    struct stoker_file *file = NULL;
    int status = stoker_file_open(&file, engine, tar_path, info, error);

    stoker_file_close(file);
    return status;
}

static int get_walk(void *info, struct stoker_error *error)
{
    return stoker_walk_next(walk, 10000, info, error);
}

static int get_filesystem(void *info, struct stoker_error *error)
{
    (void)error;
    return stoker_filesystem_info(filesystem, info);
}

static int get_advice(void *advice, struct stoker_error *error)
{
    (void)error;
    return stoker_filesystem_advice(filesystem, 0, advice);
}

static int get_prewarm(void *progress, struct stoker_error *error)
{
    struct stoker_prewarm_options options = {.struct_size = sizeof options};
    struct stoker_prewarm *prewarm = NULL;
    int status;

    fill_prewarm(&options);
    status = stoker_prewarm_open(&prewarm, engine, &options, error);
    status = status < 0 ? status : stoker_prewarm_next(prewarm, 10000, progress, error);
    stoker_prewarm_close(prewarm);
    return status;
}

/* Saves a tensor as step 1 below a folder. */
static int save_checkpoint(const char *path, struct stoker_checkpoint_progress *progress,
                           struct stoker_error *error)
{
    static const struct stoker_checkpoint_tensor tensor = {"a", "U8", NULL, 0, "x"};
    struct stoker_checkpoint_writer_options place = {.struct_size = sizeof place, .path = path};
    struct stoker_checkpoint_save_options options = {
        .struct_size = sizeof options, .step = 1, .tensors = &tensor, .tensor_count = 1};
    struct stoker_checkpoint_writer *writer = NULL;
    struct stoker_checkpoint_save *save = NULL;
    int status = stoker_checkpoint_writer_open(&writer, engine, &place, error);

    status = status < 0 ? status : stoker_checkpoint_save_open(&save, writer, &options, error);
    status = status < 0 ? status : stoker_checkpoint_save_copy(save, 10000, error);
    status = status < 0 ? status : stoker_checkpoint_save_next(save, 10000, progress, error);
    stoker_checkpoint_save_close(save);
    stoker_checkpoint_writer_close(writer);
    return status;
}

static int get_checkpoint_progress(void *progress, struct stoker_error *error)
{
    return save_checkpoint(spare(), progress, error);
}

static int get_checkpoint_piece(void *piece, struct stoker_error *error)
{
    static const struct stoker_checkpoint_tensor tensor = {"a", "U8", NULL, 0, NULL};
    struct stoker_checkpoint_writer_options place = {.struct_size = sizeof place, .path = spare()};
    struct stoker_checkpoint_save_options options = {
        .struct_size = sizeof options, .tensors = &tensor, .tensor_count = 1, .pieces = 1};
    struct stoker_checkpoint_writer *writer = NULL;
    struct stoker_checkpoint_save *save = NULL;
    int status = stoker_checkpoint_writer_open(&writer, engine, &place, error);

    status = status < 0 ? status : stoker_checkpoint_save_open(&save, writer, &options, error);
    status = status < 0 ? status : stoker_checkpoint_save_copy_piece(save, 10000, piece, error);
    stoker_checkpoint_save_close(save);
    stoker_checkpoint_writer_close(writer);
    return status;
}

static struct stoker_checkpoint *open_checkpoint(struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = NULL;
    const char *path = spare();

    if (save_checkpoint(path, NULL, error) == 0) {
        (void)stoker_checkpoint_open(&checkpoint, engine, path, STOKER_CHECKPOINT_LATEST, error);
    }
    return checkpoint;
}

static int get_checkpoint_info(void *info, struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = open_checkpoint(error);
    int status = stoker_checkpoint_info(checkpoint, info, error);

    stoker_checkpoint_close(checkpoint);
    return status;
}

static int get_checkpoint_file(void *file, struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = open_checkpoint(error);
    int status = stoker_checkpoint_file(checkpoint, 0, file, error);

    stoker_checkpoint_close(checkpoint);
    return status;
}

static int get_checkpoint_tensor(void *tensor, struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = open_checkpoint(error);
    int status = stoker_checkpoint_tensor(checkpoint, 0, tensor, error);

    stoker_checkpoint_close(checkpoint);
    return status;
}

static int get_checkpoint_step(void *step, struct stoker_error *error)
{
    struct stoker_checkpoint_list *list = NULL;
    const char *path = spare();
    int status = save_checkpoint(path, NULL, error);

    status = status < 0 ? status : stoker_checkpoint_list_open(&list, engine, path, error);
    status = status < 0 ? status : stoker_checkpoint_list_at(list, 0, step, error);
    stoker_checkpoint_list_close(list);
    return status;
}

static int get_checkpoint_gc(void *result, struct stoker_error *error)
{
    struct stoker_checkpoint_gc_options options = {.struct_size = sizeof options};

    return stoker_checkpoint_gc(engine, folder, &options, result, error);
}

static int get_checkpoint_probe(void *probe, struct stoker_error *error)
{
    return stoker_checkpoint_probe(engine, folder, probe, error);
}

/* An array of output structs has the caller's stride. */
static void test_parts(void)
{
    struct later {
        struct stoker_order_measures known;
        uint64_t more;
    } parts[3] = {{.more = 9}, {.more = 9}, {.more = 9}}, measures = {.more = 9};
    struct stoker_order_measure_options options = {
        .struct_size = sizeof options, .parts = &parts[0].known, .part_max = 3};
    static const uint64_t ends[] = {8, 16}, weights[] = {1, 1};
    struct stoker_mix_options mix = {
        .struct_size = sizeof mix, .ends = ends, .weights = weights, .source_count = 2};
    struct stoker_order_options of_mix = {.struct_size = sizeof of_mix, .mix = &mix};
    struct stoker_order *opened = NULL;

    fill_order(&of_mix);
    measures.known.struct_size = sizeof measures;
    T_EQ("mix", stoker_order_open(&opened, &of_mix, NULL), 0);
    T_EQ("measure", stoker_order_measure(opened, &options, &measures.known, NULL), 0);
    T_EQ("all", measures.known.chosen, 16);
    T_EQ("all", measures.more, 0);
    for (int i = 0; i < 2; i++) {
        T_EQ("part", parts[i].known.struct_size, sizeof parts[i]);
        T_EQ("part", parts[i].known.chosen, 8);
        T_EQ("part", parts[i].more, 0);
    }
    T_EQ("no third part", parts[2].more, 9);
    stoker_order_close(opened);
}

static const struct row rows[] = {
    OPTIONS(stoker_order_options, mix, get_loader_order, fill_nothing),
    OPTIONS(stoker_location, machine_region, get_location, fill_nothing),
    OUTPUT(stoker_engine_info, memory_bytes_max, get_engine),
    OUTPUT(stoker_store_stats, lists, get_store_stats),
    OUTPUT(stoker_cache_stats, misses, get_cache_stats),
    OUTPUT(stoker_cache_folder, bytes_used, get_cache_folder),
    OUTPUT(stoker_store_wait, attempt, get_store_wait),
    OUTPUT(stoker_dataset_info, bytes, get_dataset),
    OUTPUT(stoker_quarantine_entry, offset, get_quarantine),
    OUTPUT(stoker_indexer_progress, samples, get_indexer),
    OUTPUT(stoker_jpeg_indexer_progress, mismatches, get_jpeg_indexer),
    OUTPUT(stoker_order_measures, samples, get_measures),
    OUTPUT(stoker_order_simulation, requests, get_simulation),
    OUTPUT(stoker_order_proof, failure, get_proof),
    OUTPUT(stoker_order_difference, step_epoch, get_difference),
    OUTPUT(stoker_sampler_info, table_path, get_sampler),
    OUTPUT(stoker_stats, jpegs, get_stats),
    OUTPUT(stoker_tokens_info, documents, get_tokens),
    OUTPUT(stoker_pack_progress, samples_left_out, get_pack),
    OUTPUT(stoker_verify_progress, repaired, get_verify),
    OUTPUT(stoker_diff_progress, finished, get_diff),
    OUTPUT(stoker_creds, steps, get_creds),
    OUTPUT(stoker_copy_progress, files_not_deleted, get_copy),
    OUTPUT(stoker_copy_note, to, get_note),
    OUTPUT(stoker_file_info, etag, get_stat),
    OUTPUT(stoker_file_info, name, get_file),
    OUTPUT(stoker_file_info, storage_class, get_walk),
    OUTPUT(stoker_filesystem_info, device, get_filesystem),
    {"stoker_advice", sizeof(struct stoker_advice), offsetof(struct stoker_advice, command),
     get_advice, NULL, 1},
    OUTPUT(stoker_checkpoint_progress, files, get_checkpoint_progress),
    OUTPUT(stoker_checkpoint_piece, bytes, get_checkpoint_piece),
    OUTPUT(stoker_checkpoint_info, ranks, get_checkpoint_info),
    OUTPUT(stoker_checkpoint_file, bytes, get_checkpoint_file),
    OUTPUT(stoker_checkpoint_tensor_info, bytes, get_checkpoint_tensor),
    OUTPUT(stoker_checkpoint_step, bytes, get_checkpoint_step),
    OUTPUT(stoker_checkpoint_gc_result, steps_left, get_checkpoint_gc),
    OUTPUT(stoker_checkpoint_probe, failures, get_checkpoint_probe),
    OUTPUT(stoker_prewarm_progress, run_ns, get_prewarm),
};

int main(void)
{
    test_parts();
    return run_rows(rows, sizeof rows / sizeof rows[0]);
}
