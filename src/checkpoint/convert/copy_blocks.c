/* Copies or verifies the blocks of a file on several threads. */
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "base/memory_pages.h"
#include "checkpoint/convert/task.h"

#include <string.h>

#define BLOCK_BYTES ((uint64_t)STK_SAFETENSORS_BLOCK_BYTES)
#define LEAF_BYTES ((uint64_t)STK_SAFETENSORS_LEAF_BYTES)
#define LEAVES (BLOCK_BYTES / LEAF_BYTES)
#define LOCAL_THREADS 4u
#define REMOTE_THREADS 8u
#define WAIT_MS 1000u
#define OTHER "copy it from another place, or restore another step"

static int fail_hash(const struct stk_checkpoint_file *file, uint64_t offset,
                     struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_CORRUPT, "the data does not match its hash", OTHER, "file");
    stk_error_set_location(error, file->path, offset,
                           stk_checkpoint_tensor_at(file, offset - file->layout.header_bytes));
    return STOKER_ERROR_CORRUPT;
}

/* Hashes the leaves of a block, which begins at a multiple of BLOCK_BYTES. Returns how many there
 * are. *first_out: number of the first one. */
static size_t hash_leaves(const struct stk_safetensors *layout, uint64_t begin,
                          const uint8_t *block, uint64_t bytes, uint8_t digests[LEAVES][32],
                          uint64_t *first_out)
{
    struct stk_sha256_message messages[LEAVES];
    uint64_t at = stk_max(begin, layout->header_bytes);
    size_t count = 0;

    *first_out = (at - layout->header_bytes) / LEAF_BYTES;
    for (; at < begin + bytes; at += LEAF_BYTES, count++) {
        messages[count] = (struct stk_sha256_message){
            block + (at - begin), stk_min(LEAF_BYTES, begin + bytes - at), digests[count]};
    }
    stk_sha256_many(messages, count);
    return count;
}

/* Verifies a block of a file, which begins at a multiple of BLOCK_BYTES: its leaves are complete,
 * and the header in the first block has the root that was read before. */
static int verify_block(const struct stk_checkpoint_file *file, uint64_t begin,
                        const uint8_t *block, uint64_t bytes, struct stoker_error *error)
{
    const struct stk_safetensors *layout = &file->layout;
    uint8_t digests[LEAVES][32];
    uint64_t first, head = 8 + 32;
    size_t count;

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
    count = hash_leaves(layout, begin, block, bytes, digests, &first);
    for (size_t i = 0; i < count; i++) {
        if (memcmp(digests[i], layout->leaves + (first + i) * 32, 32) != 0) {
            return fail_hash(file, layout->header_bytes + (first + i) * LEAF_BYTES, error);
        }
    }
    return 0;
}

/* Takes the leaves of a block that are right from the damaged copy, and the others from the source.
 */
static int merge_block(struct stk_file_copy *copy, uint64_t begin, uint8_t *block, uint64_t bytes,
                       struct stoker_error *error)
{
    const struct stk_safetensors *layout = &copy->file->layout;
    int64_t got = stk_io_read_wait(copy->damaged, begin, block, bytes);
    uint64_t at = begin, end = begin + bytes, first;
    uint8_t digests[LEAVES][32];
    size_t count = hash_leaves(layout, begin, block, got > 0 ? (uint64_t)got : 0, digests, &first);
    int status = 0;

    while (status == 0 && at < end) {
        bool header = at < layout->header_bytes;
        uint64_t next = header ? stk_min(layout->header_bytes, end) : stk_min(at + LEAF_BYTES, end);
        uint64_t leaf = header ? 0 : (at - layout->header_bytes) / LEAF_BYTES;
        bool right = !header && leaf - first < count &&
                     memcmp(digests[leaf - first], layout->leaves + leaf * 32, 32) == 0;

        if (!right) {
            status = stk_checkpoint_read(copy->source, copy->file, at, block + (at - begin),
                                         next - at, error);
            atomic_fetch_add_explicit(&copy->source_bytes, next - at, memory_order_relaxed);
        }
        at = next;
    }
    return status;
}

static int copy_block(struct stk_file_copy *copy, uint64_t begin, uint8_t *block,
                      struct stoker_error *error)
{
    struct stk_view view = {block, (size_t)stk_min(copy->file->bytes - begin, BLOCK_BYTES)};
    struct stk_checkpoint_sink *sink = copy->sink;
    int status = copy->damaged ? merge_block(copy, begin, block, view.bytes, error)
                               : stk_checkpoint_read(copy->source, copy->file, begin, block,
                                                     view.bytes, error);

    status = status < 0 ? status : verify_block(copy->file, begin, block, view.bytes, error);
    if (status == 0 && sink && sink->place->remote && !stk_sink_has_parts(sink)) {
        /* The only block: one request. */
        status = stk_sink_finish(sink, view, error);
    } else if (status == 0 && sink) {
        status = stk_sink_write(sink, STK_SAVE_SHARD, begin, view, error);
    }
    return status < 0 ? status : stk_task_account(copy->task, view.bytes, error);
}

static int run_copy(void *context, uint32_t thread, struct stoker_error *error)
{
    struct stk_file_copy *copy = context;
    uint8_t *block = stk_pages_alloc_huge(BLOCK_BYTES);
    uint64_t at = 0;
    int status = block ? 0 : stk_fail_memory(error, "a block of a checkpoint");

    (void)thread;
    while (status == 0 && !atomic_load(&copy->failed) &&
           (at = atomic_fetch_add(&copy->next, BLOCK_BYTES)) < copy->file->bytes) {
        status = copy_block(copy, at, block, error);
    }
    if (status < 0) {
        atomic_store(&copy->failed, true);
    }
    if (block) {
        stk_pages_free(block, BLOCK_BYTES);
    }
    return status;
}

int stk_task_copy_file(struct stk_file_copy *copy, struct stoker_error *error)
{
    bool remote = copy->source->place.remote || (copy->sink && copy->sink->place->remote);
    uint64_t blocks = (copy->file->bytes + BLOCK_BYTES - 1) / BLOCK_BYTES;
    bool at_once = copy->sink && copy->sink->place->remote && !stk_sink_has_parts(copy->sink);
    struct stk_background_job *job = stk_alloc(1, sizeof *job);
    uint32_t threads = remote ? REMOTE_THREADS : LOCAL_THREADS;
    int status;

    if (!job) {
        return stk_fail_memory(error, "copy of a checkpoint");
    }
    stk_background_job_init(job, copy->task->engine);
    status = stk_background_job_start(
        job,
        &(struct stk_background_job_options){.name = "copy of a checkpoint",
                                             .thread_name = "stoker-ckpt",
                                             .context = copy,
                                             .run = run_copy,
                                             .threads = (uint32_t)stk_min(blocks, threads),
                                             .threads_min = 1},
        error);
    while (status >= 0 && (status = stk_background_job_next(job, WAIT_MS, NULL, NULL, error)) ==
                              STK_BACKGROUND_JOB_RUNNING) {
    }
    (void)stk_background_job_end(job);
    stk_background_job_deinit(job);
    stk_free(job);
    return status < 0 || !copy->sink || at_once
               ? status
               : stk_sink_finish(copy->sink, (struct stk_view){NULL, 0}, error);
}

int stk_task_check_file(const struct stk_checkpoint_task *task,
                        const struct stk_checkpoint_place *place, const char *folder,
                        const struct stoker_checkpoint_part *part)
{
    char *path = stk_place_path(place, folder, part->name);
    struct stoker_checkpoint *file = NULL;
    struct stoker_error error = {0};
    int status =
        path ? stoker_checkpoint_open(&file, task->engine, path, STOKER_CHECKPOINT_LATEST, &error)
             : -ENOMEM;

    if (status == 0 && (file->files[0].bytes != part->bytes ||
                        memcmp(file->files[0].layout.root, part->root, 32) != 0)) {
        status = STOKER_ERROR_CORRUPT;
    }
    if (status == 0) {
        struct stk_file_copy copy = {.task = task, .source = file, .file = &file->files[0]};

        status = stk_task_copy_file(&copy, &error);
    }
    stoker_checkpoint_close(file);
    stk_free(path);
    return status;
}
