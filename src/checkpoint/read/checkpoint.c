/* Opens a step or a file, and describes it. */
#include "checkpoint/read/checkpoint.h"

#include "base/compare.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/text/text_match.h"
#include "io/descriptor_budget.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OTHER "restore another step, or copy this one again"

void stk_checkpoint_release(struct stoker_checkpoint *checkpoint)
{
    if (atomic_fetch_sub(&checkpoint->references, 1) > 1) {
        return;
    }
    for (uint64_t i = 0; checkpoint->files && i < checkpoint->file_count; i++) {
        if (checkpoint->files[i].file) {
            stk_io_close_file(checkpoint->files[i].file);
        }
        stk_safetensors_deinit(&checkpoint->files[i].layout);
        stk_free(checkpoint->files[i].path);
    }
    stk_descriptors_release(checkpoint->descriptors);
    stk_step_manifest_deinit(&checkpoint->manifest);
    stk_foreign_deinit(&checkpoint->foreign);
    stk_name_index_deinit(&checkpoint->index);
    if (checkpoint->opening) {
        pthread_mutex_destroy(checkpoint->opening);
    }
    stk_free(checkpoint->opening);
    stk_free(checkpoint->files);
    stk_free(checkpoint->names);
    stk_free(checkpoint->path);
    stk_place_deinit(&checkpoint->place);
    stk_engine_release(checkpoint->engine);
    stk_free(checkpoint);
}

void stoker_checkpoint_close(struct stoker_checkpoint *checkpoint)
{
    if (checkpoint && stk_engine_check(checkpoint->engine, NULL) == 0) {
        stk_checkpoint_release(checkpoint);
    }
}

static int new_checkpoint(struct stoker_checkpoint **checkpoint_out, struct stoker_engine *engine,
                          const char *path, struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = stk_alloc(1, sizeof *checkpoint);
    int status;

    if (!checkpoint) {
        return stk_fail_memory(error, "checkpoint");
    }
    checkpoint->references = 1;
    stk_engine_retain(engine);
    checkpoint->engine = engine;
    status = stk_place_init(&checkpoint->place, engine->io, path, false, error);
    if (status == 0) {
        checkpoint->path = stk_strdup(checkpoint->place.root);
        status = checkpoint->path ? 0 : stk_fail_memory(error, "checkpoint");
    }
    if (status < 0) {
        stk_checkpoint_release(checkpoint);
        return status;
    }
    *checkpoint_out = checkpoint;
    return 0;
}

struct opening {
    struct stoker_checkpoint *checkpoint;
    bool quick;
};

static int open_one(void *context, uint64_t index, struct stoker_error *error)
{
    struct opening *opening = context;
    struct stoker_checkpoint *checkpoint = opening->checkpoint;
    struct stk_checkpoint_file *file = &checkpoint->files[index];
    const struct stoker_checkpoint_part *part =
        checkpoint->manifest.files ? &checkpoint->manifest.files[index] : NULL;

    file->path = checkpoint->single
                     ? stk_strdup(checkpoint->path)
                     : stk_place_path(&checkpoint->place, NULL,
                                      part ? part->name : checkpoint->foreign.files[index].name);
    if (!file->path) {
        return stk_fail_memory(error, "checkpoint");
    }
    if (opening->quick) { /* without a descriptor for each file */
        file->bytes = part->bytes;
        return stk_place_check_file(&checkpoint->place, NULL, part->name, part->bytes, error);
    }
    return stk_checkpoint_read_file(checkpoint, file, index, error);
}

static int index_names(struct stoker_checkpoint *checkpoint, struct stoker_error *error)
{
    uint64_t count = 0;

    for (uint64_t i = 0; i < checkpoint->file_count; i++) {
        checkpoint->files[i].first_tensor = count;
        count += checkpoint->files[i].layout.count;
    }
    checkpoint->tensor_count = count;
    checkpoint->names = stk_alloc(count + 1, sizeof *checkpoint->names);
    if (!checkpoint->names) {
        return stk_fail_memory(error, "names of tensors");
    }
    for (uint64_t i = 0; i < checkpoint->file_count; i++) {
        const struct stk_checkpoint_file *file = &checkpoint->files[i];

        for (uint64_t j = 0; j < file->layout.count; j++) {
            checkpoint->names[file->first_tensor + j] =
                (struct stk_named_tensor){file->layout.tensors[j].name, file->first_tensor + j};
        }
    }
    qsort(checkpoint->names, count, sizeof *checkpoint->names, stk_named_tensor_compare);
    return 0;
}

static int need_one(void *context, uint64_t file, struct stoker_error *error)
{
    return stk_checkpoint_need(context, file, error);
}

int stoker_checkpoint_read_headers(struct stoker_checkpoint *checkpoint, struct stoker_error *error)
{
    int status = stk_engine_check(checkpoint->engine, error);

    return status < 0 || !checkpoint->index.data
               ? status
               : stk_engine_parallel(checkpoint->engine, checkpoint->file_count, need_one,
                                     checkpoint, error);
}

int stk_checkpoint_need_all(struct stoker_checkpoint *checkpoint, struct stoker_error *error)
{
    int status = stoker_checkpoint_read_headers(checkpoint, error);

    if (status == 0 && checkpoint->index.data) {
        stk_name_index_deinit(&checkpoint->index);
        status = index_names(checkpoint, error);
    }
    return status;
}

/* Opens the files: those of a manifest or an index, or a single one. */
static int open_files(struct stoker_checkpoint *checkpoint, bool quick, struct stoker_error *error)
{
    struct opening opening = {checkpoint, quick};
    int status;

    checkpoint->file_count = checkpoint->single         ? 1
                             : checkpoint->foreign.kind ? checkpoint->foreign.file_count
                                                        : checkpoint->manifest.file_count;
    checkpoint->files = stk_alloc(checkpoint->file_count, sizeof *checkpoint->files);
    if (!checkpoint->files) {
        return stk_fail_memory(error, "checkpoint");
    }
    if (!quick) {
        stk_checkpoint_read_index(checkpoint);
        opening.quick = checkpoint->index.data != NULL;
    }
    if (!checkpoint->place.remote && !quick) {
        checkpoint->descriptors = stk_descriptors_reserve((uint32_t)checkpoint->file_count, 1);
    }
    status = checkpoint->file_count == 1
                 ? open_one(&opening, 0, error)
                 : stk_engine_parallel(checkpoint->engine, checkpoint->file_count, open_one,
                                       &opening, error);
    return status < 0 || opening.quick ? status : index_names(checkpoint, error);
}

static int read_manifest(struct stoker_checkpoint *checkpoint, struct stoker_error *error)
{
    const struct stk_checkpoint_place *place = &checkpoint->place;
    const char *name = strrchr(checkpoint->path, '/');
    uint64_t step;
    int status = stk_place_read_manifest(place, NULL, &checkpoint->manifest, NULL, error);

    if (status == 0 && stk_place_parse_step(name ? name + 1 : checkpoint->path, "", &step) &&
        step != checkpoint->manifest.step) {
        status = stk_fail(error, STOKER_ERROR_CORRUPT, "the manifest is that of another step",
                          OTHER, "'%.400s/" STK_STEP_MANIFEST_NAME "' says step %" PRIu64,
                          place->root, checkpoint->manifest.step);
    }
    return status;
}

int stk_checkpoint_open_folder(struct stoker_checkpoint **checkpoint_out,
                               struct stoker_engine *engine, const char *path, bool quick,
                               struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = NULL;
    int status = new_checkpoint(&checkpoint, engine, path, error);

    if (status < 0) {
        return status;
    }
    status = read_manifest(checkpoint, error);
    status = status < 0 ? status : open_files(checkpoint, quick, error);
    if (status < 0) {
        stk_checkpoint_release(checkpoint);
        return status;
    }
    *checkpoint_out = checkpoint;
    return 0;
}

static int open_single(struct stoker_checkpoint **checkpoint_out, struct stoker_engine *engine,
                       const char *path, struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = NULL;
    int status = new_checkpoint(&checkpoint, engine, path, error);

    if (status < 0) {
        return status;
    }
    checkpoint->single = true;
    status = open_files(checkpoint, false, error);
    if (status < 0) {
        stk_checkpoint_release(checkpoint);
        return status;
    }
    *checkpoint_out = checkpoint;
    return 0;
}

/* The tensors of a torch zip file or a DCP folder: ranges of files without a layout. */
static int take_foreign(struct stoker_checkpoint *checkpoint, struct stoker_error *error)
{
    const struct stk_foreign *foreign = &checkpoint->foreign;

    checkpoint->file_count = foreign->file_count;
    checkpoint->tensor_count = foreign->count;
    checkpoint->files = stk_alloc(foreign->file_count + 1u, sizeof *checkpoint->files);
    checkpoint->names = stk_alloc(foreign->count + 1, sizeof *checkpoint->names);
    if (!checkpoint->files || !checkpoint->names) {
        return stk_fail_memory(error, "checkpoint");
    }
    for (uint32_t i = 0; i < foreign->file_count; i++) {
        const char *name = foreign->files[i].name[0] ? foreign->files[i].name : NULL;

        checkpoint->files[i].path = stk_place_path(&checkpoint->place, NULL, name);
        checkpoint->files[i].bytes = foreign->files[i].bytes;
        checkpoint->files[i].layout.buffer_bytes = foreign->files[i].bytes;
        if (!checkpoint->files[i].path) {
            return stk_fail_memory(error, "checkpoint");
        }
    }
    for (uint64_t i = 0; i < foreign->count; i++) {
        checkpoint->names[i] = (struct stk_named_tensor){foreign->tensors[i].name, i};
    }
    qsort(checkpoint->names, foreign->count, sizeof *checkpoint->names, stk_named_tensor_compare);
    return 0;
}

/* The files must have all tensors of the index. */
static int check_wanted(const struct stoker_checkpoint *checkpoint, struct stoker_error *error)
{
    const char *name = checkpoint->foreign.wanted;
    int status = 0;

    for (size_t i = 0; status == 0 && i < checkpoint->foreign.wanted_count; i++) {
        uint64_t index;

        if (stoker_checkpoint_find(checkpoint, name, &index, NULL) < 0) {
            status = stk_fail(error, STOKER_ERROR_MISSING,
                              "the files have not a tensor that the index names", OTHER,
                              "tensor '%.200s' in '%.400s'", name, checkpoint->path);
        }
        name += strlen(name) + 1;
    }
    return status;
}

/* kind: of stk_foreign_detect. */
static int open_foreign(struct stoker_checkpoint **checkpoint_out, struct stoker_engine *engine,
                        const char *path, const char *kind, struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = NULL;
    int status = new_checkpoint(&checkpoint, engine, path, error);

    if (status < 0) {
        return status;
    }
    status = stk_foreign_open(&checkpoint->foreign, engine, &checkpoint->place, kind, error);
    if (status == 0 && strcmp(kind, "huggingface") == 0) {
        stk_foreign_cut_index(checkpoint->place.root);
        status = open_files(checkpoint, false, error);
        status = status < 0 ? status : check_wanted(checkpoint, error);
    } else if (status == 0) {
        status = take_foreign(checkpoint, error);
    }
    if (status < 0) {
        stk_checkpoint_release(checkpoint);
        return status;
    }
    *checkpoint_out = checkpoint;
    return 0;
}

/* Opens a checkpoint of another tool. Returns the given failure and error if its format is
 * unknown; but -ENOTDIR means that the path is a file, whose own error says more. */
static int open_other(struct stoker_checkpoint **checkpoint_out, struct stoker_engine *engine,
                      const struct stk_checkpoint_place *place, int failure,
                      struct stoker_error *error)
{
    struct stoker_error other = {0};
    const char *kind = NULL;
    struct stk_stat stat = {0};
    char *path = NULL;
    int status = stk_foreign_detect(place, &kind, &other);

    if (status == 0 && kind && strcmp(kind, "safetensors") != 0) {
        status = open_foreign(checkpoint_out, engine, place->root, kind, &other);
    } else if (status == 0 && kind) {
        bool file = stk_io_stat_path(place->io, place->root, &stat, NULL) == 0 &&
                    stat.kind == STK_ENTRY_FILE;

        path = stk_place_path(place, NULL, file ? NULL : STK_FOREIGN_SINGLE_NAME);
        status = path ? open_single(checkpoint_out, engine, path, &other)
                      : stk_fail_memory(&other, "checkpoint");
        stk_free(path);
    }
    if (!kind && (status == 0 || (failure != -ENOTDIR && status != -ENOTDIR &&
                                  status != STOKER_ERROR_UNSUPPORTED))) {
        return failure;
    }
    if (status < 0 && error) {
        *error = other;
    }
    return status;
}

int stk_checkpoint_steps(const struct stk_checkpoint_place *place, uint64_t **steps_out,
                         size_t *count_out, struct stoker_error *error)
{
    struct stk_listing listing = {0};
    int status = stk_io_list(place->io, place->root, &listing, error);

    if (status == -ENOTDIR) {
        return stk_fail(error, status, "this is a file, not a folder with steps",
                        "pass the folder; 'stoker ckpt inspect' and 'verify' read one file",
                        "'%.400s'", place->root);
    }
    if (status < 0) {
        return status;
    }
    *count_out = 0;
    *steps_out = stk_alloc(listing.count + 1, sizeof **steps_out);
    for (size_t i = 0; *steps_out && i < listing.count; i++) {
        if (listing.entries[i].kind == STK_ENTRY_DIRECTORY &&
            stk_place_parse_step(listing.entries[i].name, "", *steps_out + *count_out)) {
            ++*count_out;
        }
    }
    stk_listing_free(&listing);
    if (!*steps_out) {
        return stk_fail_memory(error, "list of steps");
    }
    qsort(*steps_out, *count_out, sizeof **steps_out, stk_compare_u64);
    return 0;
}

static int open_step(struct stoker_checkpoint **checkpoint_out, struct stoker_engine *engine,
                     const struct stk_checkpoint_place *place, uint64_t step,
                     struct stoker_error *error)
{
    char name[STK_PLACE_NAME_BYTES];
    char *path = stk_place_path(place, stk_place_step_name(step, name), NULL);
    int status = path ? stk_checkpoint_open_folder(checkpoint_out, engine, path, false, error)
                      : stk_fail_memory(error, "checkpoint");

    stk_free(path);
    return status;
}

/* The newest step that can be opened. Returns the error of the newest one if there is none. */
static int open_latest(struct stoker_checkpoint **checkpoint_out, struct stoker_engine *engine,
                       const struct stk_checkpoint_place *place, struct stoker_error *error)
{
    struct stoker_error other = {0};
    uint64_t *steps = NULL;
    size_t count = 0;
    int status = stk_checkpoint_steps(place, &steps, &count, error), first = 0;

    if (status < 0) {
        return status;
    }
    for (size_t i = count; i-- > 0;) {
        status = open_step(checkpoint_out, engine, place, steps[i], first < 0 ? &other : error);
        if (status == 0) {
            break;
        }
        if (status != -ENOENT && !stk_checkpoint_is_damage(status)) {
            if (first < 0 && error) {
                *error = other;
            }
            break; /* an older step is not the newest one because this one cannot be read now */
        }
        /* Without a manifest it is no step. */
        first = first == 0 && status != -ENOENT ? status : first;
        status = 0;
    }
    if (status == 0 && !*checkpoint_out) {
        status = first < 0 ? first
                           : stk_fail(error, STOKER_ERROR_EMPTY, "there is no committed step",
                                      "check the path; a save that was interrupted leaves none",
                                      "'%.400s'", place->root);
    }
    stk_free(steps);
    return status;
}

int stoker_checkpoint_open(struct stoker_checkpoint **checkpoint_out, struct stoker_engine *engine,
                           const char *path, uint64_t step, struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = NULL;
    struct stk_checkpoint_place place = {0};
    int status = stk_engine_check(engine, error);

    if (status < 0) {
        return status;
    }
    if (stk_text_stem_bytes(path, STK_PLACE_SHARD_SUFFIX) > 0) {
        return open_single(checkpoint_out, engine, path, error);
    }
    status = stk_place_init(&place, engine->io, path, false, error);
    if (status < 0) {
        return status;
    }
    if (step == STOKER_CHECKPOINT_LATEST) {
        status = stk_checkpoint_open_folder(&checkpoint, engine, path, false, error);
        if (status == -ENOENT && !checkpoint) { /* no manifest here: a folder of steps */
            status = open_latest(&checkpoint, engine, &place, error);
        }
        if (!checkpoint && (stk_place_is_absent(status) || status == STOKER_ERROR_EMPTY ||
                            (status == STOKER_ERROR_UNSUPPORTED && place.remote))) {
            status = open_other(&checkpoint, engine, &place, status, error);
        }
    } else {
        status = open_step(&checkpoint, engine, &place, step, error);
    }
    stk_place_deinit(&place);
    if (status == 0) {
        *checkpoint_out = checkpoint;
    }
    return status;
}

int stoker_checkpoint_info(const struct stoker_checkpoint *checkpoint,
                           struct stoker_checkpoint_info *info_out, struct stoker_error *error)
{
    bool step = !checkpoint->single && !checkpoint->foreign.kind;
    struct stoker_checkpoint_info full = {
        .step = step ? checkpoint->manifest.step : STOKER_CHECKPOINT_LATEST,
        .files = checkpoint->file_count,
        .tensors = checkpoint->tensor_count,
        .ranks = step ? checkpoint->manifest.ranks : 1,
        .hashed = 1,
        .counted = 1,
        .path = checkpoint->path,
        .values = step                       ? checkpoint->manifest.values
                  : checkpoint->foreign.kind ? checkpoint->foreign.values
                                             : "{}",
        .kind = step                       ? "stoker"
                : checkpoint->foreign.kind ? checkpoint->foreign.kind
                                           : "safetensors",
    };
    int status = stk_options_check_output(info_out, sizeof full, sizeof full.struct_size,
                                          "checkpoint info", error);

    if (status < 0) {
        return status;
    }
    if (checkpoint->index.data) { /* the manifest says it of all files */
        full.counted = checkpoint->manifest.counted;
        full.nan_count = checkpoint->manifest.nan;
        full.inf_count = checkpoint->manifest.inf;
    }
    for (uint64_t i = 0; i < checkpoint->file_count; i++) {
        const struct stk_safetensors *layout = &checkpoint->files[i].layout;

        full.bytes += checkpoint->files[i].bytes;
        if (checkpoint->index.data) {
            continue;
        }
        full.hashed = full.hashed && layout->leaf_bytes > 0;
        full.counted = full.counted && layout->counts;
        for (uint64_t j = 0; layout->counts && j < layout->count; j++) {
            full.nan_count += layout->counts[j].nan;
            full.inf_count += layout->counts[j].inf;
        }
    }
    return stk_options_write_output(info_out, &full, sizeof full, "checkpoint info", error);
}

static int fail_index(struct stoker_error *error, uint64_t index)
{
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "there is no such entry", "use a smaller index",
                    "index %" PRIu64, index);
}

int stoker_checkpoint_file(const struct stoker_checkpoint *checkpoint, uint64_t index,
                           struct stoker_checkpoint_file *file_out, struct stoker_error *error)
{
    struct stoker_checkpoint_file full = {0};
    const struct stk_checkpoint_file *file;
    const char *slash;
    int status;

    if (index >= checkpoint->file_count) {
        return fail_index(error, index);
    }
    status = stk_checkpoint_need(checkpoint, index, error);
    if (status < 0) {
        return status;
    }
    file = &checkpoint->files[index];
    slash = strrchr(file->path, '/');
    full.name = slash ? slash + 1 : file->path;
    full.tree = checkpoint->foreign.tree ? checkpoint->foreign.tree : file->layout.tree;
    full.bytes = file->bytes;
    memcpy(full.root, file->layout.root, sizeof full.root);
    return stk_options_write_output(file_out, &full, sizeof full, "checkpoint file", error);
}

int stoker_checkpoint_tensor(const struct stoker_checkpoint *checkpoint, uint64_t index,
                             struct stoker_checkpoint_tensor_info *info_out,
                             struct stoker_error *error)
{
    struct stoker_checkpoint_tensor_info full = {0};
    const struct stk_checkpoint_file *file;
    const struct stk_safetensor *tensor;
    int status;

    if (index >= checkpoint->tensor_count) {
        return fail_index(error, index);
    }
    if (checkpoint->foreign.count > 0) {
        const struct stk_foreign_tensor *other = &checkpoint->foreign.tensors[index];

        full.name = other->name;
        full.dtype = other->dtype;
        full.shape = other->shape;
        full.dimension_count = other->dimension_count;
        full.bytes = other->bytes;
        full.file = other->piece_count > 0 ? other->pieces[0].file : 0;
        return stk_options_write_output(info_out, &full, sizeof full, "checkpoint tensor", error);
    }
    full.file = stk_checkpoint_file_of(checkpoint, index);
    status = stk_checkpoint_need(checkpoint, full.file, error);
    if (status < 0) {
        return status;
    }
    file = &checkpoint->files[full.file];
    tensor = &file->layout.tensors[index - file->first_tensor];
    full.name = tensor->name;
    full.dtype = tensor->dtype;
    full.shape = tensor->shape;
    full.dimension_count = tensor->dimension_count;
    full.bytes = tensor->bytes;
    if (file->layout.counts) {
        const struct stk_tensor_counts *counts = &file->layout.counts[index - file->first_tensor];

        full.counted = 1;
        full.nan_count = counts->nan;
        full.inf_count = counts->inf;
        full.zero_pages = counts->zero_pages;
    }
    return stk_options_write_output(info_out, &full, sizeof full, "checkpoint tensor", error);
}

int stoker_checkpoint_find(const struct stoker_checkpoint *checkpoint, const char *name,
                           uint64_t *index_out, struct stoker_error *error)
{
    uint64_t low = 0, high = checkpoint->index.data ? 0 : checkpoint->tensor_count;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (strcmp(checkpoint->names[middle].name, name) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (checkpoint->index.data && stk_name_index_find(&checkpoint->index, name, index_out) &&
        *index_out < checkpoint->tensor_count) {
        return 0;
    }
    if (checkpoint->index.data || low == checkpoint->tensor_count ||
        strcmp(checkpoint->names[low].name, name) != 0) {
        return stk_fail(error, STOKER_ERROR_MISSING, "the checkpoint has no tensor of this name",
                        "'stoker ckpt inspect' lists the names", "'%.200s' in '%.400s'", name,
                        checkpoint->path);
    }
    *index_out = checkpoint->names[low].tensor;
    return 0;
}
