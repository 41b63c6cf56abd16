/* Opens a copy, runs its workers, and reports progress. */
#include "tools/copy/copy.h"

#include "base/mem.h"
#include "base/memory_budget.h"
#include "base/memory_pages.h"
#include "base/options.h"
#include "base/xxh3.h"
#include "io/descriptor_budget.h"
#include "storage/url/url_alias.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MEMORY_DEFAULT (256ull << 20)
/* Parts that are sent at once: 12 of 8 MiB fill a link of 80 MB/s a connection at 46 ms up to 600
 * MB/s, and with more a gateway of few cores is slower. */
#define UPLOADS_MAX 12u
#define CLEAN_MS 1000u
#define WORKERS_MIN 2u
#define BOOT_PATH "/proc/sys/kernel/random/boot_id"

static int resolve(struct stoker_copy *copy, const struct stoker_copy_options *user_options,
                   struct stoker_error *error);
static int reserve(struct stoker_copy *copy, struct stoker_error *error);
static int start_threads(struct stoker_copy *copy, struct stoker_error *error);
static int run(void *context, uint32_t thread, struct stoker_error *error);
static void wake_locked(void *context);

/* Returns a number that changes with each start of the machine; 0: unknown. After a power cut, data
 * that was written may be missing although the file has its size. */
static uint64_t boot_of(struct stk_io *io)
{
    struct stk_file *file;
    char text[64];
    int64_t got;

    if (stk_io_open_file(io, BOOT_PATH, &file, NULL) < 0) {
        return 0;
    }
    got = stk_io_read_wait(file, 0, text, sizeof text);
    stk_io_close_file(file);
    return got > 0 ? stk_xxh3_64(text, (size_t)got) | 1 : 0;
}

int stoker_copy_open(struct stoker_copy **copy_out, struct stoker_engine *engine,
                     const struct stoker_copy_options *options, struct stoker_error *error)
{
    struct stoker_copy *copy;
    int status = stk_engine_check(engine, error);

    *copy_out = NULL;
    if (status < 0) {
        return status;
    }
    copy = stk_alloc(1, sizeof *copy);
    if (!copy) {
        return stk_fail_memory(error, "copy");
    }
    pthread_mutex_init(&copy->folders_lock, NULL);
    pthread_mutex_init(&copy->rename_lock, NULL);
    pthread_cond_init(&copy->work, NULL);
    pthread_cond_init(&copy->turn, NULL);
    pthread_cond_init(&copy->queue_space, NULL);
    stk_background_job_init(&copy->job, engine);
    copy->engine = engine;
    copy->io = copy->to_io = engine->io;
    copy->locked.last = &copy->locked.first;
    copy->locked.last_note = &copy->locked.first_note;
    copy->precision_ns = 1;
    copy->boot = boot_of(copy->io);
    status = resolve(copy, options, error);
    status = status < 0 ? status : reserve(copy, error);
    status = status < 0 ? status : start_threads(copy, error);
    if (status < 0) {
        stoker_copy_close(copy);
        return status;
    }
    *copy_out = copy;
    return 0;
}

static int fail_options(struct stoker_error *error, const char *what, const char *advice)
{
    return stk_fail(error, STOKER_ERROR_ARGUMENT, what, advice, "copy options");
}

static int check_options(const struct stoker_copy_options *options, struct stoker_error *error)
{
    bool to_store;

    if (options->kind < STOKER_COPY || options->kind > STOKER_MOVE || options->source_count == 0 ||
        !options->sources) {
        return fail_options(error, "no kind or no source is set", "set kind and sources");
    }
    if ((options->destination == NULL) != (options->kind == STOKER_REMOVE) ||
        (options->destination && !options->destination[0])) {
        return fail_options(error, "a destination is missing or not allowed",
                            "copy, sync and move need a destination, remove takes none");
    }
    if (options->kind == STOKER_SYNC && options->source_count != 1) {
        return fail_options(error, "sync needs exactly one source folder", "name one source");
    }
    if (options->name_count > 0 &&
        (options->source_count != 1 || !options->names || options->kind == STOKER_SYNC)) {
        return fail_options(error, "names need exactly one source", "name the folder they are in");
    }
    if ((options->filter_count > 0 && !options->filters) ||
        options->compare > STOKER_COMPARE_CHECKSUM) {
        return fail_options(error, "a copy option is out of its range",
                            "set filters, and compare to a value of its enum");
    }
    if (options->workers > STK_COPY_WORKERS_MAX || options->check > STOKER_CHECK_MD5 ||
        (options->part_bytes && (options->part_bytes < STK_UPLOAD_PART_BYTES_MIN ||
                                 options->part_bytes > STK_COPY_PART_BYTES_MAX))) {
        return fail_options(error, "a copy option is out of its range",
                            "at most 256 workers, parts of 5 MiB to 1 GiB");
    }
    to_store = options->destination && stk_io_is_url(options->destination);
    if (to_store && stk_vfs_is_external_url(options->destination)) {
        struct stk_object_url *none;

        return stk_object_url_parse(options->destination, &none,
                                    error); /* it is no place of a store */
    }
    if (to_store && !stk_copy_can_write(options->destination)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "this location is read-only",
                        "copy to s3://, gs://, az:// or to a path", "'%.400s'",
                        options->destination);
    }
    return 0;
}

static int resolve(struct stoker_copy *copy, const struct stoker_copy_options *user_options,
                   struct stoker_error *error)
{
    struct stoker_copy_options *options = &copy->options;
    bool remote = false;
    int status;

    status =
        stk_options_read(options, sizeof *options, offsetof(struct stoker_copy_options, recursive),
                         user_options, "copy options", error);
    if (status < 0) {
        return status;
    }
    if (options->destination && stk_url_alias(options->destination, &copy->destination) < 0) {
        return stk_fail_memory(error, "copy");
    }
    options->destination = copy->destination;
    status = check_options(options, error);
    if (status < 0) {
        return status;
    }
    status = stk_copy_filters_read(copy, error);
    if (status < 0) {
        return status;
    }
    copy->sources = stk_alloc(options->source_count, sizeof *copy->sources);
    if (!copy->sources) {
        return stk_fail_memory(error, "copy");
    }
    for (size_t i = 0; i < options->source_count; i++) {
        if (stk_url_alias(options->sources[i], &copy->sources[i]) < 0) {
            return stk_fail_memory(error, "copy");
        }
        remote = remote || stk_io_is_url(copy->sources[i]);
    }
    if (options->kind == STOKER_SYNC && !stk_copy_can_list(copy->sources[0])) {
        /* It returns a page for a folder, which would be copied as the only file. */
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a web server cannot be listed",
                        "name each file to 'stoker cp', with braces: http://host/{000..009}.tar",
                        "'%.400s'", copy->sources[0]);
    }
    copy->remote = options->destination && stk_io_is_url(options->destination);
    options->recursive = options->recursive || options->kind == STOKER_SYNC;
    options->update = options->update || options->kind == STOKER_SYNC;
    options->part_bytes = options->part_bytes ? options->part_bytes : STK_STORE_RANGE_BYTES;
    options->memory_bytes = options->memory_bytes ? options->memory_bytes : MEMORY_DEFAULT;
    options->unfinished_age_s = options->unfinished_age_s ? options->unfinished_age_s : 86400;
    if (options->workers == 0) {
        options->workers =
            remote || copy->remote
                ? STK_COPY_WORKERS_DEFAULT
                : (uint32_t)stk_min(2 * stk_cgroup_available_cores(), STK_COPY_WORKERS_MAX);
    }
    copy->keep_names = options->source_count > 1 || options->delete_extra;
    copy->upload = (struct stk_upload_options){
        .check = options->check,
        .if_absent = options->no_clobber != 0,
        .storage_class = options->storage_class ? stk_strdup(options->storage_class) : NULL,
        .encryption = options->encryption ? stk_strdup(options->encryption) : NULL,
        .encryption_key = options->encryption_key ? stk_strdup(options->encryption_key) : NULL,
        .part_bytes = options->part_bytes};
    if (options->encryption_context) {
        char *context = NULL;

        status = stk_upload_encryption_context(options->encryption_context, &context, error);
        copy->upload.encryption_context = context;
        options->encryption_context = NULL; /* borrowed during open */
    }
    return status;
}

/* The open files of a worker: a local source, and a local file with its state. Connections are
 * counted by their reactor. */
static uint32_t files_of_worker(const struct stoker_copy *copy)
{
    bool from_files = false;

    for (size_t i = 0; i < copy->options.source_count; i++) {
        from_files = from_files || !stk_io_is_url(copy->sources[i]);
    }
    return copy->remote || copy->options.kind == STOKER_REMOVE ? 1 : 1 + from_files;
}

/* Allocates buffers for parts, and a small one for each worker; fewer of them if memory is
 * short. */
static int reserve(struct stoker_copy *copy, struct stoker_error *error)
{
    uint64_t part = copy->options.part_bytes, bytes;
    int status;

    copy->descriptors = stk_descriptors_reserve(copy->options.workers * files_of_worker(copy),
                                                WORKERS_MIN * files_of_worker(copy));
    copy->worker_count = stk_max(copy->descriptors / files_of_worker(copy), 1);
    copy->part_slots =
        (uint32_t)stk_min(stk_max(copy->options.memory_bytes / part, 1), copy->worker_count);
    if (copy->remote) {
        copy->part_slots = (uint32_t)stk_min(copy->part_slots, UPLOADS_MAX);
    }
    for (;;) {
        bytes = copy->part_slots * part + copy->worker_count * (uint64_t)STK_COPY_SMALL_BYTES;
        status = stk_engine_reserve(copy->engine, bytes, 0, "buffers to copy with", error);
        if (status == 0 || (copy->part_slots == 1 && copy->worker_count <= 2)) {
            break;
        }
        copy->part_slots = (uint32_t)stk_max(copy->part_slots / 2, 1);
        copy->worker_count = (uint32_t)stk_max(copy->worker_count / 2, 2);
    }
    copy->reserved = status == 0 ? bytes : 0;
    return status;
}

/* Starts the network thread before the workers, which take all memory that a limit leaves. An error
 * is that of the first request. */
static void open_store(struct stoker_copy *copy)
{
    bool remote = copy->remote;
    struct stk_store *store;

    for (size_t i = 0; i < copy->options.source_count && !remote; i++) {
        remote = stk_io_is_url(copy->sources[i]) && !stk_vfs_is_external_url(copy->sources[i]);
    }
    if (remote) {
        (void)stk_vfs_get_store(copy->io, &store, NULL);
    }
}

static int start_threads(struct stoker_copy *copy, struct stoker_error *error)
{
    struct stk_background_job_options job = {.name = "copy",
                                             .context = copy,
                                             .run = run,
                                             .wake_locked = wake_locked,
                                             .threads = 1 + copy->worker_count,
                                             .threads_min = 2};

    open_store(copy);
    return stk_background_job_start(&copy->job, &job, error);
}

/* Ends transfers at once. Uploads that cannot be resumed are removed, if the store responds within
 * CLEAN_MS. */
void stoker_copy_stop(struct stoker_copy *copy)
{
    if (stk_engine_check(copy->engine, NULL) < 0 ||
        atomic_load_explicit(&copy->hard_stop, memory_order_relaxed)) {
        return;
    }
    stk_background_job_stop(&copy->job);
    if (copy->job.started > 0) {
        (void)stk_background_job_next(&copy->job, CLEAN_MS, NULL, NULL, NULL);
    }
    atomic_store_explicit(&copy->hard_stop, true, memory_order_relaxed);
}

static void wake_locked(void *context)
{
    struct stoker_copy *copy = context;

    pthread_cond_broadcast(&copy->work);
    pthread_cond_broadcast(&copy->queue_space);
}

void stoker_copy_close(struct stoker_copy *copy)
{
    if (!copy) {
        return;
    }
    stoker_copy_stop(copy);
    if (!stk_background_job_end(&copy->job)) {
        return;
    }
    for (struct stk_copy_file *file = copy->locked.first, *next; file; file = next) {
        next = file->next;
        stk_copy_file_free(file);
    }
    for (size_t i = 0; copy->sources && i < copy->options.source_count; i++) {
        stk_free(copy->sources[i]);
    }
    stk_free(copy->sources);
    stk_copy_texts_free(copy->filters, copy->filter_count);
    stk_copy_texts_free(copy->names_only, copy->name_count);
    stk_copy_notes_free(copy);
    stk_free(copy->destination);
    stk_free((void *)(uintptr_t)copy->upload.storage_class);
    stk_free((void *)(uintptr_t)copy->upload.encryption);
    stk_free((void *)(uintptr_t)copy->upload.encryption_key);
    stk_free((void *)(uintptr_t)copy->upload.encryption_context);
    for (uint32_t i = 0; i < copy->locked.buffer_count; i++) {
        stk_pages_free(copy->locked.buffers[i], copy->options.part_bytes);
    }
    for (uint64_t i = 0; i < copy->destination_count; i++) {
        stk_free(copy->destination_files[i].name);
    }
    stk_free(copy->destination_files);
    stk_key_set_deinit(&copy->names);
    stk_key_set_deinit(&copy->other_names);
    stk_key_set_deinit(&copy->folders);
    stk_key_set_deinit(&copy->inodes);
    stk_copy_close_sources(copy);
    stk_io_close_beneath(copy->io, copy->to_io);
    stk_budget_release(&copy->engine->budget, copy->reserved);
    stk_descriptors_release(copy->descriptors);
    pthread_cond_destroy(&copy->queue_space);
    pthread_cond_destroy(&copy->turn);
    pthread_cond_destroy(&copy->work);
    pthread_mutex_destroy(&copy->folders_lock);
    pthread_mutex_destroy(&copy->rename_lock);
    stk_background_job_deinit(&copy->job);
    stk_free(copy);
}

static uint64_t load(const _Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

static void fill_progress(struct stoker_copy *copy, struct stoker_copy_progress *progress,
                          bool listed)
{
    struct stoker_copy_progress full = {.listed = listed,
                                        .files = load(&copy->files),
                                        .bytes = load(&copy->bytes),
                                        .files_done = load(&copy->files_done),
                                        .bytes_done = load(&copy->bytes_done),
                                        .files_skipped = load(&copy->files_skipped),
                                        .bytes_skipped = load(&copy->bytes_skipped),
                                        .files_removed = load(&copy->files_removed),
                                        .files_failed = load(&copy->files_failed),
                                        .links_left_out = load(&copy->links_left_out),
                                        .system_files_left_out = load(&copy->system_files_left_out),
                                        .files_not_deleted = load(&copy->files_spared)};

    full.run_ns = stk_background_job_elapsed_ns(&copy->job);
    stk_options_write_output(progress, &full, sizeof full, "copy progress", NULL);
}

int stoker_copy_next(struct stoker_copy *copy, uint32_t timeout_ms,
                     struct stoker_copy_progress *progress, struct stoker_error *error)
{
    int status =
        progress ? stk_options_check_output(progress, sizeof *progress,
                                            sizeof progress->struct_size, "copy progress", error)
                 : 0;
    bool listed;

    if (status < 0) {
        return status;
    }
    status = stk_background_job_next(&copy->job, timeout_ms, NULL, NULL, error);
    if (status == STOKER_ERROR_FORKED) {
        return status;
    }
    pthread_mutex_lock(&copy->job.lock);
    listed = copy->locked.listed;
    pthread_mutex_unlock(&copy->job.lock);
    if (progress) {
        fill_progress(copy, progress, listed);
    }
    return status == STK_BACKGROUND_JOB_RUNNING ? 1 : status;
}

/* ---- the planner ---- */

/* Ends files that were stopped between two parts. No worker runs any more. */
static void end_open(struct stoker_copy *copy)
{
    while (copy->locked.open) {
        struct stk_copy_file *file = copy->locked.open;
        struct stoker_error error;

        copy->locked.open = file->next;
        file->locked.failed = true;
        (void)stk_copy_file_end(copy, file, &error);
        stk_copy_file_free(file);
    }
}

/* Returns true if a planned file was not processed. No worker runs any more. */
static bool has_unprocessed(const struct stoker_copy *copy)
{
    uint64_t done = load(&copy->files_done) +
                    (copy->options.kind == STOKER_REMOVE ? load(&copy->files_removed) : 0);

    return copy->locked.waiting > 0 || copy->locked.open || done < load(&copy->files);
}

static int run_planner(struct stoker_copy *copy, struct stoker_error *error)
{
    int status = stk_copy_plan(copy, error);
    /* By a stop; if the stop came too late for that, the copy is complete. */
    bool is_cut = stk_background_job_is_stopping(&copy->job);

    pthread_mutex_lock(&copy->job.lock);
    if (status < 0) {
        stk_copy_fail_locked(copy, status, error);
    }
    copy->locked.planned = true;
    copy->locked.listed = true;
    pthread_cond_broadcast(&copy->work);
    while (copy->locked.active > 0 || (!stk_background_job_is_stopping(&copy->job) &&
                                       (copy->locked.waiting > 0 || copy->locked.open))) {
        pthread_cond_wait(&copy->queue_space, &copy->job.lock);
    }
    status = copy->job.locked.status;
    is_cut = is_cut || has_unprocessed(copy);
    pthread_mutex_unlock(&copy->job.lock);
    end_open(copy);
    if (status < 0) {
        return status; /* of the first failure, which the job has */
    }
    if (copy->options.delete_extra && !stk_background_job_is_stopping(&copy->job)) {
        status = stk_copy_remove_extra(copy, error);
    } else if (copy->options.delete_extra) {
        is_cut = true;
    }
    for (size_t i = 0; status == 0 && copy->options.kind == STOKER_MOVE &&
                       copy->options.recursive && i < copy->options.source_count;
         i++) {
        status = stk_copy_remove_folders(copy, copy->sources[i], error);
    }
    if (status == 0 && is_cut && stk_background_job_is_stopping(&copy->job)) {
        *error = (struct stoker_error){0}; /* stopped by the caller: no failure to describe */
        status = STOKER_ERROR_CLOSED;
    }
    return status;
}

static int run(void *context, uint32_t thread, struct stoker_error *error)
{
    struct stoker_copy *copy = context;

    stk_io_set_cancel_flag(&copy->job.stopping);
    if (thread == 0) {
        return run_planner(copy, error);
    }
    stk_copy_run_worker(copy);
    return 0;
}
