/* Copies a step to another place, and repairs a step from another place. */
#include "base/crypto/digest.h"
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "base/memory_pages.h"
#include "checkpoint/convert/task.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES ((uint64_t)STK_SAFETENSORS_BLOCK_BYTES)
#define LEAF_BYTES ((uint64_t)STK_SAFETENSORS_LEAF_BYTES)
#define LEAVES (BLOCK_BYTES / LEAF_BYTES)
#define OTHER "copy it from another place, or restore another step"

static int fail_hash(const struct stk_checkpoint_file *file, uint64_t offset,
                     struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_CORRUPT, "the data does not match its hash", OTHER, "file");
    stk_error_set_location(error, file->path, offset,
                           stk_checkpoint_tensor_at(file, offset - file->layout.header_bytes));
    return STOKER_ERROR_CORRUPT;
}

/* Verifies a block of a file, which begins at a multiple of BLOCK_BYTES: its leaves are complete,
 * and the header in the first block has the root that was read before. */
static int verify_block(const struct stk_checkpoint_file *file, uint64_t begin,
                        const uint8_t *block, uint64_t bytes, struct stoker_error *error)
{
    const struct stk_safetensors *layout = &file->layout;
    struct stk_sha256_message messages[LEAVES];
    uint8_t digests[LEAVES][32];
    uint64_t at = stk_max(begin, layout->header_bytes), first, head = 8 + 32;
    size_t count = 0;

    if (layout->leaf_bytes == 0) {
        return 0;
    }
    if (begin == 0 && layout->header_bytes <= bytes) {
        uint8_t root[32];

        stk_sha256_one(block + head + 64, layout->header_bytes - head - 64, root);
        if (memcmp(root, layout->root, 32) != 0) {
            return fail_hash(file, 0, error);
        }
    }
    first = at < begin + bytes ? (at - layout->header_bytes) / LEAF_BYTES : 0;
    for (; at < begin + bytes; at += LEAF_BYTES, count++) {
        messages[count] = (struct stk_sha256_message){
            block + (at - begin), stk_min(LEAF_BYTES, begin + bytes - at), digests[count]};
    }
    stk_sha256_many(messages, count);
    for (size_t i = 0; i < count; i++) {
        if (memcmp(digests[i], layout->leaves + (first + i) * 32, 32) != 0) {
            return fail_hash(file, layout->header_bytes + (first + i) * LEAF_BYTES, error);
        }
    }
    return 0;
}

/* Reads a file, verifies it, and writes it; sink NULL: only verifies. */
static int copy_file(const struct stk_checkpoint_task *task, const struct stoker_checkpoint *source,
                     const struct stk_checkpoint_file *file, struct stk_checkpoint_sink *sink,
                     struct stoker_error *error)
{
    uint8_t *block = stk_pages_alloc(BLOCK_BYTES);
    struct stk_view whole = {NULL, 0};
    int status = block ? 0 : stk_fail_memory(error, "a block of a checkpoint");

    for (uint64_t at = 0; status == 0 && at < file->bytes; at += BLOCK_BYTES) {
        struct stk_view view = {block, (size_t)stk_min(file->bytes - at, BLOCK_BYTES)};

        status = stk_checkpoint_read(source, file, at, block, view.bytes, error);
        status = status < 0 ? status : verify_block(file, at, block, view.bytes, error);
        if (status == 0 && sink && sink->place->remote && !stk_sink_has_parts(sink)) {
            whole = view; /* one request */
        } else if (status == 0 && sink) {
            status = stk_sink_write(sink, STK_SAVE_SHARD, at, view, error);
        }
        status = status < 0 ? status : stk_task_account(task, view.bytes, error);
    }
    status = status < 0 || !sink ? status : stk_sink_finish(sink, whole, error);
    if (block) {
        stk_pages_free(block, BLOCK_BYTES);
    }
    return status;
}

static int make_id(char id[STK_PLACE_ID_BYTES_MAX + 1], struct stoker_error *error)
{
    uint8_t random[8];

    if (RAND_bytes(random, sizeof random) != 1) {
        return stk_fail(error, -EIO, "there are no random numbers", "check the machine", "copy");
    }
    stk_hex(random, sizeof random, id);
    return 0;
}

static int open_step(const struct stk_checkpoint_task *task, const char *path,
                     struct stoker_checkpoint **source_out, struct stoker_error *error)
{
    int status = stoker_checkpoint_open(source_out, task->engine, path, task->options->step, error);

    if (status == 0 && ((*source_out)->single || (*source_out)->foreign.kind)) {
        stoker_checkpoint_close(*source_out);
        *source_out = NULL;
        status =
            stk_fail(error, STOKER_ERROR_ARGUMENT, "this is no step of stoker",
                     "use 'stoker ckpt convert', or 'stoker cp' for plain files", "'%.400s'", path);
    }
    return status;
}

/* ---- copy ---- */

static void name_sink(struct stk_checkpoint_sink *sink, const struct stk_checkpoint_place *place,
                      const struct stoker_checkpoint *source, uint64_t index, const char *id)
{
    sink->place = place;
    sink->step = source->manifest.step;
    sink->rank = (uint32_t)index;
    sink->ranks = (uint32_t)source->file_count;
    sink->file_bytes[STK_SAVE_SHARD] = source->files[index].bytes;
    snprintf(sink->id, sizeof sink->id, "%s", id);
    snprintf(sink->names[STK_SAVE_SHARD], sizeof sink->names[0],
             place->remote ? STK_PLACE_SHARD_PREFIX "%05u-%s" STK_PLACE_SHARD_SUFFIX
                           : STK_PLACE_SHARD_PREFIX "%05u%.0s" STK_PLACE_SHARD_SUFFIX,
             sink->rank, id);
}

static int copy_files(const struct stk_checkpoint_task *task,
                      const struct stoker_checkpoint *source,
                      const struct stk_checkpoint_place *place, struct stk_checkpoint_sink *sinks,
                      struct stoker_error *error)
{
    struct stk_step_manifest manifest = source->manifest;
    char id[STK_PLACE_ID_BYTES_MAX + 1];
    int status = make_id(id, error);

    manifest.files = stk_alloc(source->file_count + 1, sizeof *manifest.files);
    if (!manifest.files) {
        return stk_fail_memory(error, "copy of a checkpoint");
    }
    for (uint64_t i = 0; status == 0 && i < source->file_count; i++) {
        name_sink(&sinks[i], place, source, i, id);
        manifest.files[i] = source->manifest.files[i];
        memset(manifest.files[i].name, 0, sizeof manifest.files[i].name);
        snprintf(manifest.files[i].name, sizeof manifest.files[i].name, "%s",
                 sinks[i].names[STK_SAVE_SHARD]);
        status = stk_sink_open(&sinks[i], error);
        status = status < 0 ? status : copy_file(task, source, &source->files[i], &sinks[i], error);
        atomic_fetch_add(task->files_done, status == 0);
    }
    if (status == 0) {
        status = stk_checkpoint_commit_step(place, &manifest, id, error);
        for (uint64_t i = 0; i < source->file_count; i++) {
            sinks[i].manifest_sent = status != -EEXIST;
        }
    }
    stk_free(manifest.files);
    return status;
}

int stk_task_copy(const struct stk_checkpoint_task *task, struct stoker_error *error)
{
    struct stoker_checkpoint *source = NULL;
    struct stk_checkpoint_place place = {0};
    struct stk_checkpoint_sink *sinks = NULL;
    int status = open_step(task, task->options->source, &source, error);

    if (status < 0) {
        return status;
    }
    for (uint64_t i = 0; i < source->file_count; i++) {
        atomic_fetch_add(task->bytes, source->files[i].bytes);
    }
    atomic_store(task->files, source->file_count);
    sinks = stk_alloc(source->file_count + 1, sizeof *sinks);
    status = sinks
                 ? stk_place_init(&place, task->engine->io, task->options->destination, true, error)
                 : stk_fail_memory(error, "copy of a checkpoint");
    status = status < 0 ? status : copy_files(task, source, &place, sinks, error);
    for (uint64_t i = source->file_count; sinks && i-- > 0;) { /* rank 0, with the lock, last */
        if (status < 0 && sinks[i].place) {
            stk_sink_abort(&sinks[i]);
        }
        stk_sink_close(&sinks[i]);
    }
    stk_free(sinks);
    stk_place_deinit(&place);
    stoker_checkpoint_close(source);
    return status;
}

/* ---- repair ---- */

/* The folder of the step that is repaired. */
static int find_step(const struct stk_checkpoint_task *task, uint64_t step,
                     struct stk_checkpoint_place *place, struct stoker_error *error)
{
    struct stk_io *io = task->engine->io;
    char name[STK_PLACE_NAME_BYTES], *path;
    const char *slash;
    uint64_t number;
    int status = stk_place_init(place, io, task->options->destination, true, error);

    if (status < 0) {
        return status;
    }
    slash = strrchr(place->root, '/');
    if (stk_place_parse_step(slash ? slash + 1 : place->root, "", &number)) {
        return number == step
                   ? 0
                   : stk_fail(error, STOKER_ERROR_ARGUMENT, "the other place has another step",
                              "pass --step", "step %" PRIu64 " and %" PRIu64, number, step);
    }
    path = stk_place_path(place, stk_place_step_name(step, name), NULL);
    stk_place_deinit(place);
    status = path ? stk_place_init(place, io, path, true, error)
                  : stk_fail_memory(error, "repair of a checkpoint");
    stk_free(path);
    return status;
}

/* Opens one file of the damaged step by itself, and reads all of it. */
static int check_file(const struct stk_checkpoint_task *task,
                      const struct stk_checkpoint_place *place,
                      const struct stoker_checkpoint_part *part)
{
    char *path = stk_place_path(place, NULL, part->name);
    struct stoker_checkpoint *file = NULL;
    struct stoker_error error = {0};
    int status =
        path ? stoker_checkpoint_open(&file, task->engine, path, STOKER_CHECKPOINT_LATEST, &error)
             : -ENOMEM;

    if (status == 0 && (file->files[0].bytes != part->bytes ||
                        memcmp(file->files[0].layout.root, part->root, 32) != 0)) {
        status = STOKER_ERROR_CORRUPT;
    }
    status = status < 0 ? status : copy_file(task, file, &file->files[0], NULL, &error);
    stoker_checkpoint_close(file);
    stk_free(path);
    return status;
}

/* Replaces a file by that of the other place, in one rename or request. */
static int replace_file(const struct stk_checkpoint_task *task,
                        const struct stoker_checkpoint *source,
                        const struct stk_checkpoint_place *place,
                        const struct stoker_checkpoint_part *part, struct stoker_error *error)
{
    struct stk_checkpoint_sink sink = {.place = place, .ranks = 1, .single = true};
    uint64_t other = 0;
    int status = make_id(sink.id, error);

    while (other < source->file_count &&
           memcmp(source->manifest.files[other].root, part->root, 32) != 0) {
        other++;
    }
    if (other == source->file_count) {
        return stk_fail(error, STOKER_ERROR_MISSING, "the other place has no file with this hash",
                        OTHER, "'%.200s' of '%.400s'", part->name, place->root);
    }
    sink.file_bytes[STK_SAVE_SHARD] = part->bytes;
    snprintf(sink.names[STK_SAVE_SHARD], sizeof sink.names[0], "%s", part->name);
    status = status < 0 ? status : stk_sink_open(&sink, error);
    status = status < 0 ? status : copy_file(task, source, &source->files[other], &sink, error);
    if (status < 0) {
        stk_sink_abort(&sink);
    }
    stk_sink_close(&sink);
    atomic_fetch_add(task->files_done, status == 0);
    return status;
}

/* The manifest of the damaged step; its own if it is valid, else that of the other place. */
static int read_manifest(const struct stk_checkpoint_place *place, struct stk_step_manifest *own,
                         bool *valid_out, struct stoker_error *error)
{
    char *path = stk_place_path(place, NULL, STK_STEP_MANIFEST_NAME);
    uint8_t *text = NULL;
    size_t bytes = 0;
    int status =
        path ? stk_place_read(place, path, STK_STEP_MANIFEST_BYTES_MAX, &text, &bytes, error)
             : stk_fail_memory(error, "repair of a checkpoint");

    status =
        status < 0 ? status : stk_step_manifest_parse(own, (struct stk_view){text, bytes}, error);
    *valid_out = status == 0;
    stk_free(text);
    stk_free(path);
    return stk_place_is_absent(status) || stk_checkpoint_is_damage(status) ? 0 : status;
}

static int write_manifest(const struct stk_checkpoint_place *place,
                          const struct stk_step_manifest *manifest, struct stoker_error *error)
{
    char *path = stk_place_path(place, NULL, STK_STEP_MANIFEST_NAME), *text = NULL;
    size_t bytes = 0;
    int status = path ? stk_step_manifest_text(manifest, &text, &bytes, error)
                      : stk_fail_memory(error, "repair of a checkpoint");

    status = status < 0
                 ? status
                 : stk_place_write(place, path, (struct stk_view){(const uint8_t *)text, bytes},
                                   false, error);
    stk_free(text);
    stk_free(path);
    return status;
}

int stk_task_repair(const struct stk_checkpoint_task *task, struct stoker_error *error)
{
    struct stk_checkpoint_place place = {0};
    struct stk_step_manifest own = {0};
    const struct stk_step_manifest *manifest;
    struct stoker_checkpoint *source = NULL;
    bool valid = false;
    int status = open_step(task, task->options->source, &source, error);

    if (status < 0) {
        return status;
    }
    status = find_step(task, source->manifest.step, &place, error);
    status = status < 0 ? status : stk_place_make_root(&place, error);
    status = status < 0 ? status : read_manifest(&place, &own, &valid, error);
    manifest = valid ? &own : &source->manifest;
    for (uint64_t i = 0; status == 0 && i < manifest->file_count; i++) {
        atomic_fetch_add(task->bytes, manifest->files[i].bytes);
        status = check_file(task, &place, &manifest->files[i]);
        if (stk_checkpoint_is_damage(status) || stk_place_is_absent(status)) {
            atomic_fetch_add(task->bytes, manifest->files[i].bytes);
            atomic_fetch_add(task->files, 1);
            status = replace_file(task, source, &place, &manifest->files[i], error);
        } else if (status < 0) {
            stk_fail(error, status, "a file of the step cannot be read",
                     "check the place; only damaged and missing files are replaced", "'%.200s'",
                     manifest->files[i].name);
        }
    }
    if (status == 0 && !valid) {
        status = write_manifest(&place, manifest, error);
        atomic_fetch_add(task->files, 1);
        atomic_fetch_add(task->files_done, 1);
    }
    stk_step_manifest_deinit(&own);
    stk_place_deinit(&place);
    stoker_checkpoint_close(source);
    return status;
}
