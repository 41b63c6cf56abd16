/* A task as a job; a conversion: opens the source, and writes the other kind. */
#include "checkpoint/convert/convert.h"

#include "base/mem.h"
#include "base/options.h"
#include "base/text/text_match.h"
#include "checkpoint/convert/task.h"
#include "checkpoint/write/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WAIT_MS 200u
#define SHARD_BYTES UINT64_C(5000000000) /* as transformers has it */
#define SAFETENSORS ".safetensors"
#define INDEX_NAME "model.safetensors.index.json"

struct stoker_checkpoint_task {
    struct stoker_engine *engine;               /* held; const after open, as the next ones */
    char *source, *destination, *folder, *file; /* owned; folder and file: of the destination */
    struct stoker_checkpoint_task_options options;
    struct stk_background_job job;
    _Atomic uint64_t bytes, bytes_done, files, files_done;
};

static int fail_destination(const char *what, const char *advice, const char *path,
                            struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_ARGUMENT, what, advice, "'%.400s'", path);
}

/* ---- saves ---- */

/* Outputs first to first + count - 1 as one save. */
struct part {
    struct stk_convert_plan *plan;
    uint64_t first, count;
    const char *file; /* NULL: a step */
    const char *tree, *values;
    uint64_t step;
};

static int read_output(void *context, uint32_t source, uint64_t offset, void *data, uint64_t bytes,
                       struct stoker_error *error)
{
    const struct part *part = context;

    return stk_convert_read(part->plan, part->first + source, offset, data, bytes, error);
}

static int wait_save(struct stoker_checkpoint_task *convert, struct stoker_checkpoint_save *save,
                     struct stoker_error *error)
{
    int status;

    do {
        status = stoker_checkpoint_save_copy(save, WAIT_MS, error);
    } while (status == STOKER_ERROR_AGAIN && !stk_background_job_is_stopping(&convert->job));
    while (status == 0 || status == 1) {
        if (stk_background_job_is_stopping(&convert->job)) {
            stk_checkpoint_save_stop(save); /* its file may be complete all the same */
        }
        status = stoker_checkpoint_save_next(save, WAIT_MS, NULL, error);
        if (status == 0) {
            return 0;
        }
    }
    return status != STOKER_ERROR_AGAIN && status != STOKER_ERROR_CLOSED
               ? status
               : stk_fail(error, STOKER_ERROR_CLOSED, "the conversion was ended", "run it again",
                          "'%.400s'", convert->destination);
}

static int save_part(struct stoker_checkpoint_task *convert,
                     struct stoker_checkpoint_writer *writer, struct part *part,
                     struct stoker_error *error)
{
    struct stoker_checkpoint_tensor *tensors = stk_alloc(part->count + 1, sizeof *tensors);
    struct stoker_checkpoint_save_options options = {.struct_size = sizeof options,
                                                     .step = part->step,
                                                     .tensors = tensors,
                                                     .tensor_count = part->count,
                                                     .tree = part->tree,
                                                     .values = part->values,
                                                     .file = part->file};
    struct stoker_checkpoint_save *save = NULL;
    int status = tensors ? 0 : stk_fail_memory(error, "tensors of a conversion");

    for (uint64_t i = 0; status == 0 && i < part->count; i++) {
        const struct stk_foreign_tensor *from = &part->plan->outputs.tensors[part->first + i];

        tensors[i] = (struct stoker_checkpoint_tensor){from->name, from->dtype, from->shape,
                                                       from->dimension_count, ""};
    }
    status = status < 0 ? status : stoker_checkpoint_save_open(&save, writer, &options, error);
    if (status == 0) {
        stk_checkpoint_save_set_reader(save, read_output, part);
        status = wait_save(convert, save, error);
    }
    stoker_checkpoint_save_close(save);
    stk_free(tensors);
    atomic_fetch_add(&convert->files_done, status == 0);
    return status;
}

/* ---- kinds ---- */

/* The number of outputs from `first` that fit into a file of a model. */
static uint64_t shard_count(const struct stk_convert_plan *plan, uint64_t first, uint64_t bytes_max)
{
    uint64_t count = 0, bytes = 0;

    while (first + count < plan->outputs.count) {
        bytes += plan->outputs.tensors[first + count].bytes;
        if (count > 0 && bytes > bytes_max) {
            break;
        }
        count++;
    }
    return count;
}

static void print_index(const struct stk_convert_plan *plan, uint64_t bytes_max, uint64_t shards,
                        struct stk_json_text *json)
{
    uint64_t shard = 0;

    stk_json_text_print(json, "{\"metadata\":{\"total_size\":%" PRIu64 "},\"weight_map\":{",
                        plan->bytes);
    for (uint64_t first = 0, count; first < plan->outputs.count; first += count) {
        count = shard_count(plan, first, bytes_max);
        shard++;
        for (uint64_t i = first; i < first + count; i++) {
            stk_json_text_print(json, i > 0 ? "," : " ");
            stk_json_text_string(json, plan->outputs.tensors[i].name);
            stk_json_text_print(json, ":\"model-%05" PRIu64 "-of-%05" PRIu64 ".safetensors\"",
                                shard, shards);
        }
    }
    stk_json_text_print(json, "}}\n");
}

/* Files of at most shard_bytes, then the index. */
static int write_model(struct stoker_checkpoint_task *convert,
                       struct stoker_checkpoint_writer *writer, struct stk_convert_plan *plan,
                       struct stoker_error *error)
{
    uint64_t bytes_max = convert->options.shard_bytes ? convert->options.shard_bytes : SHARD_BYTES;
    uint64_t shards = 0, shard = 0;
    struct stk_json_text json = {0};
    char name[80], *path;
    int status = 0;

    for (uint64_t first = 0; first < plan->outputs.count; shards++) {
        first += shard_count(plan, first, bytes_max);
    }
    for (uint64_t first = 0, count; status == 0 && first < plan->outputs.count; first += count) {
        struct part part = {.plan = plan, .first = first, .file = name};

        part.count = count = shard_count(plan, first, bytes_max);
        snprintf(name, sizeof name, "model-%05" PRIu64 "-of-%05" PRIu64 SAFETENSORS, ++shard,
                 shards);
        status = save_part(convert, writer, &part, error);
    }
    if (status < 0) {
        return status;
    }
    print_index(plan, bytes_max, shards, &json);
    path = stk_place_path(&writer->place, NULL, INDEX_NAME);
    status = json.failed || !path
                 ? stk_fail_memory(error, "index of a model")
                 : stk_place_write(&writer->place, path,
                                   (struct stk_view){(const uint8_t *)json.text, json.bytes}, false,
                                   error);
    stk_free(path);
    stk_json_text_deinit(&json);
    return status;
}

static int write_saves(struct stoker_checkpoint_task *convert, struct stk_convert_plan *plan,
                       const struct stoker_checkpoint_info *info, struct stoker_error *error)
{
    struct stoker_checkpoint_writer_options options = {
        .struct_size = sizeof options,
        .path = convert->folder,
        .memory_bytes_max = STK_WRITER_MEMORY_BYTES_MIN,
        .bytes_per_s_max = convert->options.bytes_per_s_max};
    struct part part = {
        .plan = plan, .count = plan->outputs.count, .tree = plan->tree_text, .file = convert->file};
    struct stoker_checkpoint_writer *writer = NULL;
    int status = stoker_checkpoint_writer_open(&writer, convert->engine, &options, error);

    if (status < 0) {
        return status;
    }
    if (convert->options.kind == STOKER_CHECKPOINT_KIND_HUGGINGFACE) {
        status = write_model(convert, writer, plan, error);
    } else {
        if (!convert->file) {
            part.values = strcmp(info->kind, "stoker") == 0 ? info->values : NULL;
            part.step = convert->options.destination_step != STOKER_CHECKPOINT_LATEST
                            ? convert->options.destination_step
                        : info->step != STOKER_CHECKPOINT_LATEST ? info->step
                                                                 : 0;
        }
        status = save_part(convert, writer, &part, error);
    }
    stoker_checkpoint_writer_close(writer);
    return status;
}

static int run_convert(struct stoker_checkpoint_task *convert,
                       const struct stk_checkpoint_task *task, struct stoker_error *error)
{
    struct stoker_checkpoint_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint *source = NULL;
    struct stk_convert_plan plan = {.task = task};
    int status = stoker_checkpoint_open(&source, convert->engine, convert->source,
                                        convert->options.step, error);

    if (status < 0) {
        return status;
    }
    status = stk_checkpoint_need_all(source, error);
    status = status < 0 ? status : stoker_checkpoint_info(source, &info, error);
    status = status < 0 ? status : stk_convert_plan(&plan, source, error);
    atomic_store(&convert->bytes, plan.bytes);
    if (status == 0) {
        status =
            convert->options.kind == STOKER_CHECKPOINT_KIND_TORCH
                ? stk_convert_write_torch(&plan, convert->engine->io, convert->destination, error)
                : write_saves(convert, &plan, &info, error);
    }
    stk_convert_plan_deinit(&plan);
    stoker_checkpoint_close(source);
    return status;
}

static int run(void *context, uint32_t thread, struct stoker_error *error)
{
    struct stoker_checkpoint_task *convert = context;
    struct stk_checkpoint_task task = {.engine = convert->engine,
                                       .options = &convert->options,
                                       .job = &convert->job,
                                       .start_ns = stk_engine_now(convert->engine),
                                       .bytes = &convert->bytes,
                                       .bytes_done = &convert->bytes_done,
                                       .files = &convert->files,
                                       .files_done = &convert->files_done};

    (void)thread;
    switch (convert->options.action) {
    case STOKER_CHECKPOINT_CONVERT:
        return run_convert(convert, &task, error);
    case STOKER_CHECKPOINT_COPY:
        return stk_task_copy(&task, error);
    case STOKER_CHECKPOINT_REPAIR:
        return stk_task_repair(&task, error);
    case STOKER_CHECKPOINT_SEAL:
        return stk_task_seal(&task, error);
    default:
        return stk_task_check_seal(&task, error);
    }
}

/* ---- the job ---- */

/* Splits FOLDER/FILE. */
static int split_file(struct stoker_checkpoint_task *convert, struct stoker_error *error)
{
    const char *path = convert->destination, *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    if (stk_text_stem_bytes(name, SAFETENSORS) == 0) {
        return fail_destination("the name of the destination is not valid",
                                "end it with .safetensors", path, error);
    }
    convert->file = stk_strdup(name);
    convert->folder = stk_strdup(slash ? path : ".");
    if (!convert->file || !convert->folder) {
        return stk_fail_memory(error, "'%.400s'", path);
    }
    if (slash) {
        convert->folder[slash == path ? 1 : slash - path] = '\0';
    }
    return 0;
}

static int check_destination(struct stoker_checkpoint_task *convert, struct stoker_error *error)
{
    switch (convert->options.kind) {
    case STOKER_CHECKPOINT_KIND_STOKER:
    case STOKER_CHECKPOINT_KIND_HUGGINGFACE:
        convert->folder = stk_strdup(convert->destination);
        return convert->folder ? 0 : stk_fail_memory(error, "'%.400s'", convert->destination);
    case STOKER_CHECKPOINT_KIND_SAFETENSORS:
        return split_file(convert, error);
    case STOKER_CHECKPOINT_KIND_TORCH:
        return 0;
    default:
        return fail_destination("the kind of the destination is unknown",
                                "use a value of enum stoker_checkpoint_kind", convert->destination,
                                error);
    }
}

static int check_options(const struct stoker_checkpoint_task_options *options,
                         struct stoker_error *error)
{
    bool alone = options->action >= STOKER_CHECKPOINT_SEAL;

    if (options->action < STOKER_CHECKPOINT_CONVERT ||
        options->action > STOKER_CHECKPOINT_CHECK_SEAL) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "the action is unknown",
                        "use a value of enum stoker_checkpoint_action", "action %u",
                        options->action);
    }
    return options->source && (alone || options->destination)
               ? 0
               : stk_fail(error, STOKER_ERROR_ARGUMENT, "source or destination is NULL", "set both",
                          "task options");
}

static void convert_free(struct stoker_checkpoint_task *convert)
{
    stk_free(convert->source);
    stk_free(convert->destination);
    stk_free(convert->folder);
    stk_free(convert->file);
    stk_background_job_deinit(&convert->job);
    stk_engine_release(convert->engine);
    stk_free(convert);
}

int stoker_checkpoint_task_open(struct stoker_checkpoint_task **convert_out,
                                struct stoker_engine *engine,
                                const struct stoker_checkpoint_task_options *given,
                                struct stoker_error *error)
{
    struct stoker_checkpoint_task_options options;
    struct stoker_checkpoint_task *convert;
    int status = stk_options_read(&options, sizeof options, sizeof options.struct_size, given,
                                  "task options", error);

    status = status < 0 ? status : stk_engine_check(engine, error);
    if (status == 0) {
        status = check_options(&options, error);
    }
    if (status < 0) {
        return status;
    }
    convert = stk_alloc(1, sizeof *convert);
    if (!convert) {
        return stk_fail_memory(error, "conversion");
    }
    convert->engine = engine;
    stk_engine_retain(engine);
    stk_background_job_init(&convert->job, engine);
    convert->options = options;
    convert->source = stk_strdup(options.source);
    convert->destination = stk_strdup(options.destination ? options.destination : "");
    convert->options.source = convert->source;
    convert->options.destination = convert->destination;
    status = convert->source && convert->destination ? 0 : stk_fail_memory(error, "conversion");
    if (status == 0 && options.action == STOKER_CHECKPOINT_CONVERT) {
        status = check_destination(convert, error);
    }
    status = status < 0 ? status
                        : stk_background_job_start(
                              &convert->job,
                              &(struct stk_background_job_options){.name = "checkpoint task",
                                                                   .thread_name = "stoker-ckpt",
                                                                   .context = convert,
                                                                   .run = run},
                              error);
    if (status < 0) {
        convert_free(convert);
        return status;
    }
    *convert_out = convert;
    return 0;
}

int stoker_checkpoint_task_next(struct stoker_checkpoint_task *convert, uint32_t timeout_ms,
                                struct stoker_checkpoint_progress *progress,
                                struct stoker_error *error)
{
    struct stoker_checkpoint_progress full = {0};
    int status = progress ? stk_options_check_output(progress, sizeof full, sizeof full.struct_size,
                                                     "progress", error)
                          : 0;

    if (status < 0) {
        return status;
    }
    status = stk_background_job_next(&convert->job, timeout_ms, NULL, NULL, error);
    full.bytes = atomic_load(&convert->bytes);
    full.bytes_done = atomic_load(&convert->bytes_done);
    full.files = atomic_load(&convert->files);
    full.files_done = atomic_load(&convert->files_done);
    full.run_ns = stk_background_job_elapsed_ns(&convert->job);
    if (progress) {
        (void)stk_options_write_output(progress, &full, sizeof full, "progress", NULL);
    }
    return status > 0 ? 1 : status;
}

void stoker_checkpoint_task_stop(struct stoker_checkpoint_task *convert)
{
    if (stk_engine_check(convert->engine, NULL) == 0) {
        stk_background_job_stop(&convert->job);
    }
}

void stoker_checkpoint_task_close(struct stoker_checkpoint_task *convert)
{
    if (convert && stk_background_job_end(&convert->job)) {
        convert_free(convert);
    }
}
