/* Surveys the source of a pack: sizes and times of files, sidecar files of images, and lines of
 * metadata.jsonl; by folder, in parallel. */
#include "tools/pack/pack_plan.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "format/manifest/metadata_csv.h"
#include "format/manifest/metadata_jsonl.h"
#include "tools/pack/staging.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Pictures of one folder, which follow each other. */
struct run {
    uint64_t first, count;
    struct stk_pack_sidecar *sidecars; /* owned; `at` in this run's text */
    uint64_t sidecar_count, sidecar_capacity;
    char *text; /* owned */
    uint64_t text_bytes, text_capacity;
    struct stk_sha256 source, stamp;
};

/* The metadata.jsonl of one folder. */
struct table {
    struct stk_metadata_jsonl lines;
    const char *name;       /* of the file */
    uint8_t *text;          /* its lines of JSON; owned; NULL: there is none */
    _Atomic uint8_t *found; /* [lines.count]: an image has the name of the line; owned */
};

struct measure {
    struct stk_pack_plan *plan;
    struct table root;
    size_t root_bytes; /* of its path, with '/' */
    struct run *runs;  /* owned */
    uint64_t run_count, run_capacity;
    const _Atomic bool *stop;
};

static int measure_folder(struct stk_pack_plan *plan, const _Atomic bool *stop,
                          struct stoker_error *error);
static int measure_tars(struct stk_pack_plan *plan, struct stoker_error *error);
static int find_runs(struct measure *measure, struct stoker_error *error);
static void table_close(struct table *table);
static int read_root(struct measure *measure, struct stoker_error *error);
static int check_root(const struct measure *measure, struct stoker_error *error);
static int measure_run(void *context, uint64_t round, struct stoker_error *error);
static int join_runs(struct measure *measure, struct stoker_error *error);

int stk_pack_survey_run(struct stk_pack_plan *plan, const _Atomic bool *stop,
                        struct stoker_error *error)
{
    return plan->folder ? measure_folder(plan, stop, error) : measure_tars(plan, error);
}

static void add_number(struct stk_sha256 *sha, uint64_t number)
{
    stk_sha256_add(sha, &number, sizeof number);
}

static int measure_tars(struct stk_pack_plan *plan, struct stoker_error *error)
{
    const struct stk_index *index = plan->dataset->index;
    char path[STK_PATH_BYTES_MAX];
    struct stk_sha256 stamp;
    int status = 0;

    memcpy(plan->source, stk_index_identity(index), sizeof plan->source);
    stk_sha256_init(&stamp);
    stk_sha256_add(&stamp, plan->source, sizeof plan->source);
    for (uint64_t i = 0; i < plan->dataset->objects.count && status == 0; i++) {
        struct stk_stat about = {0};

        status = stk_index_path(index, (uint32_t)i, path, error);
        status =
            status < 0 ? status : stk_io_stat_path(plan->dataset->engine->io, path, &about, error);
        add_number(&stamp, about.bytes);
        add_number(&stamp, about.mtime_ns);
    }
    stk_sha256_done(&stamp, plan->stamp);
    return status;
}

static int measure_folder(struct stk_pack_plan *plan, const _Atomic bool *stop,
                          struct stoker_error *error)
{
    struct measure measure = {.plan = plan, .stop = stop};
    int status;

    plan->file_bytes = stk_alloc(plan->sample_count, sizeof *plan->file_bytes);
    status = plan->file_bytes ? find_runs(&measure, error) : stk_fail_memory(error, "pack plan");
    if (status == 0) {
        status = read_root(&measure, error);
    }
    if (status == 0) {
        status = stk_engine_parallel(plan->dataset->engine, measure.run_count, measure_run,
                                     &measure, error);
    }
    if (status == 0) {
        status = check_root(&measure, error);
    }
    if (status == 0) {
        status = join_runs(&measure, error);
    }
    for (uint64_t i = 0; i < measure.run_count; i++) {
        stk_free(measure.runs[i].sidecars);
        stk_free(measure.runs[i].text);
    }
    stk_free(measure.runs);
    table_close(&measure.root);
    return status;
}

static void table_close(struct table *table)
{
    stk_metadata_jsonl_deinit(&table->lines);
    stk_free(table->text);
    stk_free((void *)(uintptr_t)table->found);
    *table = (struct table){0};
}

/* Reads a metadata.csv as lines of JSON. Returns 1; 0 if there is none; or an error. */
static int read_csv(struct table *table, struct stk_io *io, const char *path, size_t *bytes_out,
                    struct stoker_error *error)
{
    uint8_t *csv = NULL;
    size_t bytes = 0;
    int found = stk_staging_find_file(io, path, STK_METADATA_JSONL_BYTES_MAX, &csv, &bytes, error);
    int status = found;

    if (found > 0) {
        status =
            stk_metadata_csv_convert((struct stk_view){csv, bytes}, &table->text, bytes_out, error);
        status = status < 0 ? status : found;
        if (status < 0) {
            stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL);
        }
    }
    stk_free(csv);
    return status;
}

/* folder: with its '/' at the end, or empty for the current one. A missing file is fine. */
static int table_read(struct table *table, struct stk_io *io, struct stk_view folder,
                      struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX + sizeof STK_METADATA_JSONL_NAME];
    size_t bytes = 0;
    int status;

    *table = (struct table){.name = STK_METADATA_JSONL_NAME};
    snprintf(path, sizeof path, "%.*s%s", (int)folder.bytes, (const char *)folder.data,
             STK_METADATA_JSONL_NAME);
    status =
        stk_staging_find_file(io, path, STK_METADATA_JSONL_BYTES_MAX, &table->text, &bytes, error);
    if (status == 0) {
        table->name = STK_METADATA_CSV_NAME;
        snprintf(path, sizeof path, "%.*s%s", (int)folder.bytes, (const char *)folder.data,
                 STK_METADATA_CSV_NAME);
        status = read_csv(table, io, path, &bytes, error);
    }
    if (status > 0) {
        status =
            stk_metadata_jsonl_parse(&table->lines, (struct stk_view){table->text, bytes}, error);
        if (status == 0) {
            table->found = stk_alloc(stk_max(table->lines.count, 1), sizeof *table->found);
            status = table->found ? 0 : stk_fail_memory(error, "metadata");
        }
        if (status < 0) {
            stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL);
            table_close(table);
        }
    }
    return status;
}

/* The line with that name, which is marked; NULL: there is none. */
static const struct stk_metadata_jsonl_line *table_find(const struct table *table, const char *name)
{
    const struct stk_metadata_jsonl_line *line = stk_metadata_jsonl_find(
        &table->lines, (struct stk_view){(const uint8_t *)name, strlen(name)});

    if (line) {
        /* Relaxed: the flags are read when all threads have finished. */
        atomic_store_explicit(&table->found[line - table->lines.lines], 1, memory_order_relaxed);
    }
    return line;
}

/* Checks that each line is about an image: a line of "./1.jpg", of "a\\1.jpg", or of a name in
 * another Unicode form would be lost. folder: as for table_read. */
static int table_check(const struct table *table, struct stk_view folder,
                       struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX + sizeof STK_METADATA_JSONL_NAME];
    const char *first = NULL;
    uint64_t count = 0;

    for (uint64_t i = table->lines.count; i > 0; i--) {
        if (!atomic_load_explicit(&table->found[i - 1], memory_order_relaxed)) {
            first = table->lines.names + table->lines.lines[i - 1].name_at;
            count++;
        }
    }
    if (count == 0) {
        return 0;
    }
    snprintf(path, sizeof path, "%.*s%s", (int)folder.bytes, (const char *)folder.data,
             table->name);
    stk_fail(error, STOKER_ERROR_FORMAT, "a line of the metadata matches no image",
             "write file_name as the image is named: relative to this folder, with '/', without "
             "'./'; remove lines of images that are not there",
             "%llu of %llu lines, for example '%.400s'", (unsigned long long)count,
             (unsigned long long)table->lines.count, first);
    stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL);
    return STOKER_ERROR_FORMAT;
}

/* Sets path and key of a sample: the root is the part of the path before its key. */
static int read_root(struct measure *measure, struct stoker_error *error)
{
    const struct stk_index *index = measure->plan->dataset->index;
    char path[STK_PATH_BYTES_MAX];
    struct stk_sample sample;
    int status = stk_index_sample(index, 0, &sample, error);

    status = status < 0 ? status : stk_index_path(index, sample.shard, path, error);
    if (status < 0) {
        return status;
    }
    measure->root_bytes = strlen(path) - sample.key.bytes;
    return table_read(&measure->root, measure->plan->dataset->engine->io,
                      (struct stk_view){(const uint8_t *)path, measure->root_bytes}, error);
}

static int check_root(const struct measure *measure, struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX];
    int status = stk_index_path(measure->plan->dataset->index, 0, path, error);
    struct stk_view folder = {(const uint8_t *)path, measure->root_bytes};

    return status < 0 ? status : table_check(&measure->root, folder, error);
}

static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash - path) : 0;
}

static int find_runs(struct measure *measure, struct stoker_error *error)
{
    const struct stk_index *index = measure->plan->dataset->index;
    char path[2][STK_PATH_BYTES_MAX];
    size_t before = SIZE_MAX;

    for (uint64_t i = 0; i < measure->plan->sample_count; i++) {
        char *now = path[i % 2], *last = path[(i + 1) % 2];
        int status = stk_index_path(index, (uint32_t)i, now, error);
        size_t bytes;

        if (status < 0) {
            return status;
        }
        bytes = folder_bytes(now);
        if (bytes == before && memcmp(now, last, bytes) == 0) {
            measure->runs[measure->run_count - 1].count++;
            continue;
        }
        before = bytes;
        if (measure->run_count == measure->run_capacity) {
            uint64_t capacity = stk_max(64, measure->run_capacity * 2);
            void *grown =
                stk_realloc(measure->runs, measure->run_capacity, capacity, sizeof *measure->runs);
            if (!grown) {
                return stk_fail_memory(error, "pack plan");
            }
            measure->runs = grown;
            measure->run_capacity = capacity;
        }
        measure->runs[measure->run_count++] = (struct run){.first = i, .count = 1};
    }
    return 0;
}

/* Returns the first entry that is not below `name` (of `bytes` bytes), in a sorted listing. */
static size_t lower_bound(const struct stk_listing *listing, const char *name, size_t bytes)
{
    size_t low = 0, high = listing->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strncmp(listing->entries[middle].name, name, bytes) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* A sidecar whose text is to be filled in: its extension, or that and a line. NULL: no memory. */
static char *add_sidecar(struct run *run, const struct stk_pack_sidecar *sidecar,
                         uint64_t text_bytes)
{
    char *text;

    if (run->sidecar_count == run->sidecar_capacity) {
        uint64_t capacity = stk_max(64, run->sidecar_capacity * 2);
        void *grown =
            stk_realloc(run->sidecars, run->sidecar_capacity, capacity, sizeof *run->sidecars);
        if (!grown) {
            return NULL;
        }
        run->sidecars = grown;
        run->sidecar_capacity = capacity;
    }
    if (run->text_capacity - run->text_bytes < text_bytes) {
        uint64_t capacity = stk_max(run->text_capacity * 2, run->text_bytes + text_bytes);
        void *grown = stk_realloc(run->text, run->text_capacity, capacity, 1);
        if (!grown) {
            return NULL;
        }
        run->text = grown;
        run->text_capacity = capacity;
    }
    text = run->text + run->text_bytes;
    run->sidecars[run->sidecar_count] = *sidecar;
    run->sidecars[run->sidecar_count++].at = run->text_bytes;
    run->text_bytes += text_bytes;
    return text;
}

/* Its line of the folder's metadata, or else of the root's. path: of the image. */
static int add_line(struct measure *measure, struct run *run, uint64_t sample,
                    const struct table *own, const char *path, struct stoker_error *error)
{
    static const char extension[] = "json";
    const char *key = path + measure->root_bytes, *base = strrchr(path, '/');
    const struct stk_metadata_jsonl_line *line = table_find(own, base ? base + 1 : path);
    const struct stk_metadata_jsonl_line *of_root = table_find(&measure->root, key);
    const struct table *table = line ? own : &measure->root;
    char *text;

    line = line ? line : of_root;
    if (!line) {
        return 0;
    }
    text = add_sidecar(
        run, &(struct stk_pack_sidecar){.sample = sample, .bytes = line->bytes, .is_line = true},
        sizeof extension + line->bytes);
    if (!text) {
        return stk_fail_memory(error, "pack plan");
    }
    memcpy(text, extension, sizeof extension);
    memcpy(text + sizeof extension, table->text + line->at, line->bytes);
    stk_sha256_add(&run->source, extension, sizeof extension);
    stk_sha256_add(&run->source, text + sizeof extension, line->bytes);
    return 0;
}

/* Finds sidecar files, which differ from an image only in the extension. path has space for them.
 */
static int find_sidecars(struct measure *measure, struct run *run, uint64_t sample,
                         const struct stk_listing *listing, char path[2 * STK_PATH_BYTES_MAX],
                         struct stoker_error *error)
{
    char *base = path + folder_bytes(path) + (strchr(path, '/') != NULL);
    char *dot = strrchr(base, '.');
    size_t stem = dot ? (size_t)(dot - base) + 1 : strlen(base); /* with its dot */
    char own[STK_PATH_BYTES_MAX];
    int status = 0;

    snprintf(own, sizeof own, "%s", base + stem);
    for (size_t i = lower_bound(listing, base, stem); status == 0 && dot && i < listing->count;
         i++) {
        const struct stk_entry *entry = &listing->entries[i];
        struct stk_stat about = {0};

        if (strncmp(entry->name, base, stem) != 0) {
            break;
        }
        if (entry->kind != STK_ENTRY_FILE || strchr(entry->name + stem, '.') ||
            strcmp(entry->name + stem, own) == 0 || strlen(entry->name) >= STK_PATH_BYTES_MAX) {
            continue;
        }
        memcpy(base + stem, entry->name + stem, strlen(entry->name + stem) + 1);
        status = stk_io_stat_path(measure->plan->dataset->engine->io, path, &about, error);
        if (status == 0) {
            struct stk_pack_sidecar sidecar = {.sample = sample, .bytes = about.bytes};
            size_t bytes = strlen(entry->name + stem) + 1;
            char *text = add_sidecar(run, &sidecar, bytes);

            if (text) {
                memcpy(text, entry->name + stem, bytes);
            } else {
                status = stk_fail_memory(error, "pack plan");
            }
        }
        stk_sha256_add(&run->source, entry->name, strlen(entry->name) + 1);
        add_number(&run->source, about.bytes);
        add_number(&run->stamp, about.mtime_ns);
    }
    return status;
}

/* Finds size and sidecars of one picture. */
static int measure_file(struct measure *measure, struct run *run, uint64_t sample,
                        const struct stk_listing *listing, const struct table *own,
                        struct stoker_error *error)
{
    char path[2 * STK_PATH_BYTES_MAX];
    struct stk_stat about = {0};
    int status = stk_index_path(measure->plan->dataset->index, (uint32_t)sample, path, error);

    if (status == 0) {
        status = stk_io_stat_path(measure->plan->dataset->engine->io, path, &about, error);
    }
    measure->plan->file_bytes[sample] = about.bytes;
    add_number(&run->source, about.bytes);
    add_number(&run->stamp, about.mtime_ns);
    if (status == 0) {
        status = add_line(measure, run, sample, own, path, error);
    }
    return status < 0 ? status : find_sidecars(measure, run, sample, listing, path, error);
}

static int measure_run(void *context, uint64_t round, struct stoker_error *error)
{
    struct measure *measure = context;
    struct run *run = &measure->runs[round];
    struct stk_io *io = measure->plan->dataset->engine->io;
    struct stk_listing listing = {0};
    struct table own = {0};
    char path[STK_PATH_BYTES_MAX];
    struct stk_view folder = {(const uint8_t *)path, 0};
    char name[STK_PATH_BYTES_MAX];
    int status = stk_index_path(measure->plan->dataset->index, (uint32_t)run->first, path, error);

    if (status == 0) {
        size_t bytes = folder_bytes(path), with_slash = bytes + (path[bytes] == '/');

        if (with_slash != measure->root_bytes) {
            memcpy(name, path, with_slash);
            folder = (struct stk_view){(const uint8_t *)name, with_slash};
            status = table_read(&own, io, folder, error);
        }
        path[bytes] = 0;
        status = status < 0 ? status
                            : stk_io_list(io,
                                          bytes        ? path
                                          : with_slash ? "/"
                                                       : ".",
                                          &listing, error);
    }
    stk_sha256_init(&run->source);
    stk_sha256_init(&run->stamp);
    for (uint64_t i = run->first; status >= 0 && i < run->first + run->count; i++) {
        status = atomic_load_explicit(measure->stop, memory_order_relaxed)
                     ? stk_pack_plan_fail_stopped(error)
                     : measure_file(measure, run, i, &listing, &own, error);
    }
    status = status < 0 ? status : table_check(&own, folder, error);
    stk_listing_free(&listing);
    table_close(&own);
    return status < 0 ? status : 0;
}

/* One list of sidecars and one hash, in the order of the samples. */
static int join_runs(struct measure *measure, struct stoker_error *error)
{
    struct stk_pack_plan *plan = measure->plan;
    struct stk_sha256 source, stamp;
    uint8_t digest[32];

    stk_sha256_init(&source);
    stk_sha256_init(&stamp);
    stk_sha256_add(&source, stk_index_identity(plan->dataset->index), 32);
    for (uint64_t i = 0; i < measure->run_count; i++) {
        plan->sidecar_count += measure->runs[i].sidecar_count;
        plan->text_bytes += measure->runs[i].text_bytes;
    }
    plan->sidecars = stk_alloc(stk_max(plan->sidecar_count, 1), sizeof *plan->sidecars);
    plan->text = stk_alloc(stk_max(plan->text_bytes, 1), 1);
    if (!plan->sidecars || !plan->text) {
        return stk_fail_memory(error, "pack plan");
    }
    plan->sidecar_count = plan->text_bytes = 0;
    for (uint64_t i = 0; i < measure->run_count; i++) {
        struct run *run = &measure->runs[i];

        for (uint64_t j = 0; j < run->sidecar_count; j++) {
            run->sidecars[j].at += plan->text_bytes;
            plan->sidecars[plan->sidecar_count++] = run->sidecars[j];
        }
        if (run->text_bytes > 0) {
            memcpy(plan->text + plan->text_bytes, run->text, run->text_bytes);
        }
        plan->text_bytes += run->text_bytes;
        stk_sha256_done(&run->source, digest);
        stk_sha256_add(&source, digest, sizeof digest);
        stk_sha256_done(&run->stamp, digest);
        stk_sha256_add(&stamp, digest, sizeof digest);
    }
    stk_sha256_done(&source, plan->source);
    stk_sha256_add(&stamp, plan->source, sizeof plan->source);
    stk_sha256_done(&stamp, plan->stamp);
    return 0;
}

int stk_pack_plan_fail_stopped(struct stoker_error *error)
{
    return stk_fail(error, -ECANCELED, "packing was stopped", "run it again: it continues", "plan");
}
