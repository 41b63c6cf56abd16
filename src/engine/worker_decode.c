/* Decodes an image into its slot of a batch: in this process, or in the worker's sandbox (a helper
 * process). Both reserve memory of the budget first if the image needs more than the memory that a
 * decoder keeps anyway. */
#include "decode/image/transform_plan.h"
#include "engine/engine.h"
#include "engine/worker.h"

#include <errno.h>

static int reserve(struct stk_worker *worker, uint64_t bytes, uint32_t wait_ms,
                   struct stoker_error *error)
{
    return stk_engine_reserve(worker->engine, bytes, wait_ms, "decoding a large image", error);
}

/* ---- in this process ---- */

static int decode_in_process(struct stk_worker *worker, const struct stk_decode_job *job,
                             struct stoker_error *error)
{
    uint64_t needed_bytes = 0;
    bool large;
    int status = stk_image_decode_memory_bytes(job->plan, job->bytes, &needed_bytes, error);

    if (status < 0) {
        return status;
    }
    /* A decoder never takes more than its bound: before that it returns LIMIT. */
    needed_bytes = stk_min(needed_bytes, job->plan->memory_bytes_max);
    /* The engine has reserved keep_bytes for an image of usual size; a larger one reserves its
     * own memory. */
    large = needed_bytes > worker->engine->keep_bytes;
    status = large ? reserve(worker, needed_bytes, job->wait_ms, error) : 0;
    if (status == 0) {
        stk_image_decoder_set_entry_points(worker->decoder, job->entry_points);
        status =
            stk_image_decode(worker->decoder, job->plan, job->bytes, job->key, job->slot, error);
        stk_image_decoder_set_entry_points(worker->decoder, NULL);
        if (job->entry_points && status == 0 &&
            (stk_image_decoder_decoded_by(worker->decoder) & ~STK_IMAGE_DECODED_PLANAR) == 1) {
            atomic_fetch_add_explicit(&worker->from_entry_points, 1, memory_order_relaxed);
        }
        stk_image_decoder_trim(worker->decoder, worker->engine->keep_bytes);
        stk_budget_release(&worker->engine->budget, large ? needed_bytes : 0);
    }
    return status;
}

/* ---- in the sandbox ---- */

static void release_arena(struct stk_worker *worker)
{
    stk_sandbox_worker_trim(worker->sandbox);
    stk_budget_release(&worker->engine->budget, worker->arena_bytes);
    worker->arena_bytes = 0;
}

int stk_worker_arena_reserve(struct stk_worker *worker, uint64_t bytes, uint32_t wait_ms,
                             struct stoker_error *error)
{
    int status;

    bytes = stk_max(bytes, STK_WORKER_ARENA_KEEP_BYTES);
    if (bytes <= worker->arena_bytes) {
        return 0;
    }
    if (worker->arena_bytes > 0) {
        release_arena(worker);
    }
    status = reserve(worker, bytes, wait_ms, error);
    worker->arena_bytes = status < 0 ? 0 : bytes;
    return status;
}

void stk_worker_arena_trim(struct stk_worker *worker)
{
    if (worker->arena_bytes > STK_WORKER_ARENA_KEEP_BYTES) {
        release_arena(worker);
    }
}

static int decode_sandboxed(struct stk_worker *worker, const struct stk_decode_job *job,
                            uint32_t *by_out, struct stoker_error *error)
{
    struct stk_sandbox_decode_job sandboxed = {.plan = job->plan,
                                               .bytes = job->bytes,
                                               .key = job->key,
                                               .cancelled = job->cancelled,
                                               .granted_bytes = worker->engine->keep_bytes};
    uint64_t more = 0;
    int status = stk_worker_arena_reserve(worker, stk_sandbox_worker_arena_bytes(&sandboxed),
                                          job->wait_ms, error);

    if (status < 0) {
        return status;
    }
    status = stk_sandbox_worker_decode(worker->sandbox, &sandboxed, error);
    if (status == -EAGAIN) {
        more = stk_min(sandboxed.needed_bytes, job->plan->memory_bytes_max);
        status = reserve(worker, more, job->wait_ms, error);
        if (status < 0) {
            more = 0;
        } else {
            sandboxed.granted_bytes = UINT64_MAX; /* memory_bytes_max, its bound, is reserved */
            status = stk_sandbox_worker_decode(worker->sandbox, &sandboxed, error);
        }
    }
    if (status == 0) {
        stk_image_decode_convert(worker->decoder, job->plan, sandboxed.canvas, job->slot);
        *by_out = sandboxed.decoded_by;
    }
    stk_budget_release(&worker->engine->budget, more);
    stk_worker_arena_trim(worker);
    return status;
}

void stk_engine_jpeg_stats(const struct stoker_engine *engine, const struct stoker_stats *before,
                           struct stoker_stats *stats_out)
{
    static const struct stoker_stats none;

    before = before ? before : &none;
    stats_out->jpegs_indexed = 0 - before->jpegs_indexed;
    stats_out->jpegs_planar = 0 - before->jpegs_planar;
    for (uint32_t i = 0; i < STOKER_JPEG_REASONS; i++) {
        stats_out->jpegs[i] = 0 - before->jpegs[i];
    }
    for (uint32_t i = 0; i < STOKER_PNG_READERS; i++) {
        stats_out->pngs[i] = 0 - before->pngs[i];
    }
    for (uint32_t w = 0; w < engine->worker_count; w++) {
        const struct stk_worker *worker = &engine->workers[w];

        stats_out->jpegs_indexed += atomic_load(&worker->from_entry_points);
        stats_out->jpegs_planar += atomic_load(&worker->planar);
        for (uint32_t i = 0; i < STOKER_JPEG_REASONS; i++) {
            stats_out->jpegs[i] += atomic_load(&worker->jpegs[i]);
        }
        for (uint32_t i = 0; i < STOKER_PNG_READERS; i++) {
            stats_out->pngs[i] += atomic_load(&worker->pngs[i]);
        }
    }
}

/* Counts a decoded image by its decoder. The value comes from a sandbox, which is untrusted:
 * numbers out of range are not counted. */
static void count_image(struct stk_worker *worker, uint32_t by)
{
    _Atomic uint64_t *count = NULL;

    if (by == (1 | STK_IMAGE_DECODED_PLANAR)) {
        atomic_fetch_add_explicit(&worker->planar, 1, memory_order_relaxed);
        by = 1;
    }
    if (by > 0 && by <= STOKER_JPEG_REASONS) {
        count = &worker->jpegs[by - 1];
    } else if (by == STK_IMAGE_DECODED_PNG || by == STK_IMAGE_DECODED_LIBPNG) {
        count = &worker->pngs[by - STK_IMAGE_DECODED_PNG];
    }
    if (count) {
        atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    }
}

int stk_worker_decode(struct stk_worker *worker, const struct stk_decode_job *job,
                      struct stoker_error *error)
{
    uint32_t by = 0;
    int status = worker->sandbox ? decode_sandboxed(worker, job, &by, error)
                                 : decode_in_process(worker, job, error);

    if (status == 0 && !worker->sandbox) {
        by = stk_image_decoder_decoded_by(worker->decoder);
    }
    count_image(worker, by);
    return status;
}
