/* stoker info: shows a data set, how it is read and ordered, and the memory that a loader needs. */
#include "programs/cli/args.h"

#include "programs/cli/command.h"
#include "programs/cli/info_filesystem.h"
#include "programs/cli/info_location.h"
#include "programs/cli/order_args.h"
#include "programs/cli/order_labels.h"
#include "programs/cli/terminal.h"
#include "programs/cli/token_report.h"

#include <string.h>

#define WINDOW_DEFAULT 64 /* blocks, as stoker.h says */
/* Prefetched batches of a loader by default: docs/ARCHITECTURE.md, "Memory". */
#define AHEAD_BYTES (64u << 20)
#define AHEAD_MIN 2
#define AHEAD_MAX 16
#define CACHE_INDEX_BYTES (1u << 20)

struct facts {
    uint64_t cache_needs, cache_max; /* bytes of a node cache for all data; of the one in use */
    double cache_share;              /* of the data that fits in it */
    struct stoker_engine_info engine;
    struct stoker_dataset_info dataset;
    struct stoker_mixing mixing;
    uint64_t batch, image, dtype, window, groups, shuffle;
    bool is_default; /* of the order */
    uint64_t batch_bytes, batches_ahead;
    char identity[65];
};

static int run(struct args *args);
static void facts_print(const struct facts *facts);
static void jpeg_index_print_used(const struct stoker_dataset_info *dataset);
static void skipped_print(const struct stoker_dataset_info *dataset);
static void problems_print(const struct stoker_dataset *dataset,
                           const struct stoker_dataset_info *info);
static void facts_print_json(const struct facts *facts, const struct stoker_dataset *opened,
                             const struct info_filesystem *filesystems,
                             const struct info_location *locations);
static int print_filesystems(const struct info_filesystem *filesystems, const struct args *args);
/* What a node cache would hold of data behind URLs: blocks, their checksums and the index. */
static void measure_cache(const struct args *args, struct stoker_engine *engine,
                          struct facts *facts)
{
    struct stoker_cache_stats stats = {.struct_size = sizeof stats};
    uint64_t bytes = facts->dataset.bytes;
    bool is_remote = args->path_count > 0 && strstr(args->paths[0], "://") != NULL;

    if (!is_remote || bytes == 0) {
        return;
    }
    facts->cache_needs = bytes + bytes / 64 + CACHE_INDEX_BYTES;
    if (stoker_engine_cache(engine) &&
        stoker_cache_stats(stoker_engine_cache(engine), &stats) == 0) {
        facts->cache_max = stats.bytes_max;
    }
    facts->cache_share = facts->cache_max >= facts->cache_needs
                             ? 1
                             : (double)facts->cache_max / (double)facts->cache_needs;
}

static void cache_print(const struct facts *facts)
{
    const uint64_t bytes = facts->dataset.bytes;
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    if (facts->cache_needs == 0) {
        return;
    }
    printf("node cache\n");
    if (facts->cache_max == 0) {
        printf("  now         none: each epoch downloads %s\n", term_bytes(a, bytes));
        printf("  gain        with --cache-bytes of %s or more, later epochs download nothing; "
               "with less, the\n              part that does not fit\n",
               term_bytes(b, facts->cache_needs));
        return;
    }
    printf("  now         %s; all of the data needs %s\n", term_bytes(a, facts->cache_max),
           term_bytes(b, facts->cache_needs));
    printf("  gain        later epochs download %s instead of %s\n",
           term_bytes(a, (uint64_t)((1 - facts->cache_share) * (double)bytes)),
           term_bytes(b, bytes));
}

static void cache_json(const struct facts *facts)
{
    if (facts->cache_needs > 0) {
        json_open("cache", '{');
        json_u64("bytes_needed", facts->cache_needs);
        json_u64("bytes_max", facts->cache_max);
        json_double("share_cached", facts->cache_share);
        json_u64("bytes_saved_per_epoch",
                 (uint64_t)(facts->cache_share * (double)facts->dataset.bytes));
        json_close('}');
    }
}

static int run_opened(struct args *args, const struct info_filesystem *filesystems);

const struct command command_info = {
    .name = "info",
    .bit = COMMAND_INFO,
    .usage = "[options] PATH...",
    .summary = "Show a data set, the file system below it, and how it will be read",
    .more = "Local paths: shows file system, server and disk, and settings that slow training\n"
            "down, with the command that changes them. A FINDING makes the exit status 1.\n"
            "Buckets of S3 and Google: shows their region (S3 Express: zone) and the region of\n"
            "this machine, from its cloud's metadata service. If the regions differ, this is a\n"
            "finding, too. If no metadata service responds, this takes a second;\n"
            "AWS_EC2_METADATA_DISABLED=true skips it. The memory of a loader is computed for\n"
            "the given batch and image size; nothing is decoded.\n"
            "Token files (.npy, .bin, .idx) and text (.jsonl, .txt): tokens, documents, lines.\n",
    .run = run,
};

static int run(struct args *args)
{
    static struct info_filesystem filesystems;
    int status;

    if (args->path_count == 0) {
        return command_no_path(&command_info);
    }
    if (!args->filesystem && token_report_matches(args)) {
        return token_report_info(args);
    }
    info_filesystem_open(&filesystems, args);
    if (args->filesystem || filesystems.is_silent) {
        status = print_filesystems(&filesystems, args);
    } else {
        if (!args->json) {
            info_filesystem_print(&filesystems);
        }
        status = run_opened(args, &filesystems);
    }
    info_filesystem_close(&filesystems);
    return status;
}

/* Without a data set: --filesystem, or a file system that does not respond. */
static int print_filesystems(const struct info_filesystem *filesystems, const struct args *args)
{
    if (filesystems->status < 0) {
        return term_error(filesystems->status, &filesystems->error);
    }
    if (filesystems->count == 0) {
        return term_usage("info", "--filesystem needs a local path", args->paths[0],
                          "leave it out for URLs");
    }
    if (args->json) {
        json_open(NULL, '{');
        info_filesystem_json(filesystems);
        json_close('}');
    } else {
        info_filesystem_print(filesystems);
    }
    return info_filesystem_status(filesystems);
}

/* As a loader chooses the settings that were left out. */
static void choose_order(struct facts *facts)
{
    if (!facts->shuffle && !facts->window && facts->groups == 1) {
        facts->shuffle = facts->dataset.default_shuffle;
        facts->window = facts->dataset.default_window_blocks;
        facts->is_default = true;
    }
    facts->shuffle = facts->shuffle ? facts->shuffle : STOKER_SHUFFLE_BLOCK;
    facts->window = facts->window ? facts->window : WINDOW_DEFAULT;
}

/* The mixing of classes, of a folder only: reading labels of shards takes time. */
static int measure_mixing(const struct args *args, struct stoker_dataset *dataset,
                          struct facts *facts)
{
    const struct stoker_order_options options = {
        .struct_size = sizeof options,
        .sample_count = facts->dataset.sample_count,
        .block_samples = facts->dataset.block_samples,
        .batch_size = (uint32_t)facts->batch,
        .shuffle = (uint32_t)facts->shuffle,
        .window_blocks = (uint32_t)facts->window,
        .group_count = (uint32_t)facts->groups,
    };

    if (facts->shuffle == STOKER_SHUFFLE_TWO_LEVEL || facts->dataset.sample_count == 0) {
        facts->mixing = (struct stoker_mixing){.struct_size = sizeof facts->mixing};
        return EXIT_FINE;
    }
    return order_labels_measure(args, dataset, &facts->dataset, &options, &facts->mixing);
}

static int run_opened(struct args *args, const struct info_filesystem *filesystems)
{
    struct stoker_engine *engine = NULL;
    struct stoker_dataset *dataset = NULL;
    static struct info_location locations;
    struct facts facts = {
        .engine.struct_size = sizeof facts.engine,
        .dataset.struct_size = sizeof facts.dataset,
        .batch = args->batch ? args->batch : 256,
        .image = args->image ? args->image : 224,
        .dtype = args->dtype ? args->dtype : STOKER_FLOAT32,
        .window = args->window_blocks,
        .groups = args->home_groups ? args->home_groups : 1,
        .shuffle = args->shuffle,
    };

    int status = command_open_dataset(args, &engine, &dataset), checked;
    bool is_refused;
    if (status != EXIT_FINE) {
        return status;
    }
    stoker_engine_info(engine, &facts.engine);
    stoker_dataset_info(dataset, &facts.dataset);
    measure_cache(args, engine, &facts);
    info_location_open(&locations, engine, args);
    choose_order(&facts);
    if (facts.dataset.sequential) {
        facts.shuffle = STOKER_SHUFFLE_NONE; /* as a loader; order_check refuses other ones */
    }
    facts.batch_bytes = facts.batch * facts.image * facts.image * 3 * args_dtype_bytes(facts.dtype);
    facts.batches_ahead = AHEAD_BYTES / facts.batch_bytes;
    facts.batches_ahead = facts.batches_ahead < AHEAD_MIN   ? AHEAD_MIN
                          : facts.batches_ahead > AHEAD_MAX ? AHEAD_MAX
                                                            : facts.batches_ahead;
    for (size_t i = 0; i < sizeof facts.dataset.identity; i++) {
        snprintf(facts.identity + 2 * i, 3, "%02x", facts.dataset.identity[i]);
    }
    checked = order_check(&command_info, args, dataset, &facts.dataset);
    is_refused = checked != EXIT_FINE && facts.dataset.sample_count > 0;
    status = is_refused ? checked : measure_mixing(args, dataset, &facts);
    if (facts.dataset.sequential && !facts.mixing.note[0]) {
        snprintf(facts.mixing.note, sizeof facts.mixing.note,
                 "not measured: storage order; if shards are sorted by class, so are batches");
    }
    if (status == EXIT_FINE && args->json) {
        facts_print_json(&facts, dataset, filesystems, &locations);
    } else if (status == EXIT_FINE) {
        info_location_print(&locations);
        facts_print(&facts);
        problems_print(dataset, &facts.dataset);
    }
    stoker_dataset_close(dataset);
    stoker_engine_close(engine);
    status = status == EXIT_FINE ? checked : status;
    status = status == EXIT_FINE ? info_location_status(&locations) : status;
    return status != EXIT_FINE ? status : info_filesystem_status(filesystems);
}

/* Ends the row of members; then the classes of a folder, or those that the mixing was measured
 * with. */
static void classes_print(const struct facts *facts)
{
    char a[TERM_NUMBER_BYTES];

    printf("\n");
    if (facts->dataset.class_count > 0) {
        printf("  classes     %s\n", term_count(a, facts->dataset.class_count));
    } else if (facts->mixing.classes > 0) {
        printf("  classes     %s among the labels that were read\n",
               term_count(a, facts->mixing.classes));
    }
}

static void facts_print(const struct facts *facts)
{
    const struct stoker_dataset_info *dataset = &facts->dataset;
    const struct stoker_engine_info *engine = &facts->engine;
    const uint64_t mixed = facts->window * dataset->block_samples;
    char a[TERM_NUMBER_BYTES], b[TERM_NUMBER_BYTES];

    printf("data\n");
    printf("  kind        %s%s\n", dataset->kind,
           dataset->sequential ? ", compressed: read front to back, in shard order" : "");
    printf("  samples     %s in %s %s\n", term_count(a, dataset->sample_count),
           term_count(b, dataset->shard_count),
           strcmp(dataset->kind, "imagefolder") == 0 ? "files" : "shards");
    printf("  members     %s", term_count(a, dataset->member_count));
    if (dataset->bytes) {
        printf(", %s", term_bytes(b, dataset->bytes));
    }
    classes_print(facts);
    printf("  identity    %.16s\n", facts->identity);
    printf("  index       ");
    if (dataset->index_path) {
        printf("%s of %s %s from ", term_count(a, dataset->shards_indexed),
               term_count(b, dataset->shard_count),
               strcmp(dataset->kind, "imagefolder") == 0 ? "files" : "shards");
        term_text(dataset->index_path);
    } else {
        printf("not used");
    }
    if (dataset->index_note[0]) {
        printf("; ");
        term_text(dataset->index_note);
    }
    printf("\n");
    jpeg_index_print_used(dataset);
    skipped_print(dataset);
    printf("order\n");
    printf("  version     %d, %s shuffle%s\n", STOKER_ORDER_VERSION,
           args_shuffle_name(facts->shuffle),
           dataset->sequential  ? ": compressed shards are read front to back; 'stoker index\n"
                                  "              --seek-points', then 'stoker pack' shuffle them"
           : !facts->is_default ? ""
           : dataset->random_reads_free ? ": reads in any order cost no more here"
                                        : ": the window fills half of the memory");
    printf("  block       %s samples\n", term_count(a, dataset->block_samples));
    if (facts->shuffle == STOKER_SHUFFLE_BLOCK) {
        printf("  window      %s blocks: %s samples are mixed\n", term_count(a, facts->window),
               term_count(b, mixed < dataset->sample_count ? mixed : dataset->sample_count));
    }
    if (facts->mixing.note[0]) {
        printf("  mixing      %s\n", facts->mixing.note);
    }
    printf("  groups      %s\n", term_count(a, facts->groups));
    cache_print(facts);
    printf("machine\n");
    printf("  cores       %u available, %u decode threads\n", engine->cores, engine->threads);
    printf("  memory      %s budget\n", term_bytes(a, engine->memory_bytes_max));
    printf("  io          %s: %s\n", engine->io_backend, engine->io_reason);
    printf("  vector      %s\n", engine->simd);
    printf("memory of a loader\n");
    printf("  one batch   %s = %llu samples x 3 x %llu x %llu x %llu bytes (%s)\n",
           term_bytes(a, facts->batch_bytes), (unsigned long long)facts->batch,
           (unsigned long long)facts->image, (unsigned long long)facts->image,
           (unsigned long long)args_dtype_bytes(facts->dtype), args_dtype_name(facts->dtype));
    printf("  in flight   %s = %llu batches ahead and the current one\n",
           term_bytes(a, facts->batch_bytes * (facts->batches_ahead + 1)),
           (unsigned long long)facts->batches_ahead);
    printf("  in addition for each of %u threads the bytes of a sample and the decoder's rows;\n"
           "              each batch that you keep, up to the budget\n",
           engine->threads);
}

/* Files and members that belong to no sample. */
static void skipped_print(const struct stoker_dataset_info *dataset)
{
    const struct {
        uint64_t count;
        const char *text;
    } rows[] = {{dataset->skipped_system, "left by operating systems"},
                {dataset->skipped_links, "links without a target"},
                {dataset->skipped_special, "devices and pipes"},
                {dataset->skipped_unnamed, "without key or extension"}};
    const char *before = "  skipped     ";
    char a[TERM_NUMBER_BYTES];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].count > 0) {
            printf("%s%s %s", before, term_count(a, rows[i].count), rows[i].text);
            before = ", ";
        }
    }
    if (before[0] == ',') {
        printf("; 'stoker verify' names them\n");
    } else if (dataset->shards_indexed > 0) {
        printf("%snot counted: the index has no list of them; 'stoker verify' names them\n",
               before);
    }
}

static void problems_print(const struct stoker_dataset *dataset,
                           const struct stoker_dataset_info *info)
{
    const char *path, *text;

    if (info->problem_count > 0) {
        printf("left out of the folder\n");
    }
    for (uint64_t i = 0; stoker_dataset_problem(dataset, i, &path, &text) == 0; i++) {
        printf("  ");
        term_text(path);
        printf(": %s\n", text);
    }
}

/* Prints nothing if there is no JPEG index. */
static void jpeg_index_print_used(const struct stoker_dataset_info *dataset)
{
    if (dataset->jpeg_indexed && dataset->jpeg_index_mcus) {
        printf("  jpeg index  an entry point every %u MCUs\n", dataset->jpeg_index_mcus);
    } else if (dataset->jpeg_indexed) {
        printf("  jpeg index  an entry point every row of MCUs\n");
    } else if (dataset->jpeg_index_note[0]) {
        printf("  jpeg index  ");
        term_text(dataset->jpeg_index_note);
        printf("\n");
    }
}

static void facts_print_json(const struct facts *facts, const struct stoker_dataset *opened,
                             const struct info_filesystem *filesystems,
                             const struct info_location *locations)
{
    const struct stoker_dataset_info *dataset = &facts->dataset;
    const struct stoker_engine_info *engine = &facts->engine;
    const char *path, *text;

    json_open(NULL, '{');
    json_str("kind", dataset->kind);
    json_u64("samples", dataset->sample_count);
    json_u64("shards", dataset->shard_count);
    json_u64("members", dataset->member_count);
    json_u64("classes", dataset->class_count);
    json_u64("bytes", dataset->bytes);
    cache_json(facts);
    json_bool("sequential", dataset->sequential);
    json_str("identity", facts->identity);
    if (dataset->index_path) {
        json_str("index_path", dataset->index_path);
    }
    json_str("index_note", dataset->index_note);
    json_u64("shards_indexed", dataset->shards_indexed);
    if (dataset->jpeg_indexed) {
        json_u64("marks_mcus", dataset->jpeg_index_mcus);
    }
    json_str("marks_note", dataset->jpeg_index_note);
    json_u64("skipped_system", dataset->skipped_system);
    json_u64("skipped_links", dataset->skipped_links);
    json_u64("skipped_special", dataset->skipped_special);
    json_u64("skipped_unnamed", dataset->skipped_unnamed);
    json_open("left_out", '[');
    for (uint64_t i = 0; stoker_dataset_problem(opened, i, &path, &text) == 0; i++) {
        json_open(NULL, '{');
        json_str("path", path);
        json_str("reason", text);
        json_close('}');
    }
    json_close(']');
    json_u64("order_version", STOKER_ORDER_VERSION);
    json_str("shuffle", args_shuffle_name(facts->shuffle));
    json_u64("block_samples", dataset->block_samples);
    json_u64("window_blocks", facts->window);
    json_bool("random_reads_free", dataset->random_reads_free);
    order_labels_print_json(&facts->mixing);
    json_u64("group_count", facts->groups);
    json_u64("cores", engine->cores);
    json_u64("threads", engine->threads);
    json_u64("memory_bytes_max", engine->memory_bytes_max);
    json_str("io_backend", engine->io_backend);
    json_str("io_reason", engine->io_reason);
    json_str("vector", engine->simd);
    json_u64("batch_size", facts->batch);
    json_u64("batch_bytes", facts->batch_bytes);
    json_u64("batches_ahead", facts->batches_ahead);
    info_filesystem_json(filesystems);
    info_location_json(locations);
    json_close('}');
}
