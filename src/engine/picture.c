/* A picture's bytes into its slot: by the worker itself, or by its helper process. Both ways ask
 * the budget first where a picture takes more than what a decoder keeps anyway. */
#include "decode/decode_plan.h"
#include "engine/engine.h"
#include "engine/worker.h"

#include <errno.h>

static int reserve(struct stk_worker *worker, uint64_t bytes, uint32_t wait_ms,
                   struct stoker_error *error)
{
    return stk_engine_reserve(worker->engine, bytes, wait_ms, "decoding a large picture", error);
}

/* ---- here ---- */

static int decode_here(struct stk_worker *worker, const struct stk_picture *job,
                       struct stoker_error *error)
{
    struct stk_jpeg_marks marks;
    uint64_t              ticket = 0;
    bool                  large;
    int      status = stk_decode_ticket(job->plan, job->bytes, &ticket, error);

    if (status < 0) {
        return status;
    }
    /* A decoder never takes more than its bound: it says LIMIT before. */
    ticket = stk_min(ticket, job->plan->memory_bytes_max);
    /* Usual pictures live in what is set aside for them; big ones ask for their memory first. */
    large = ticket > worker->engine->keep_bytes;
    status = large ? reserve(worker, ticket, job->wait_ms, error) : 0;
    if (status == 0) {
        bool marked = stk_marks_find(&job->marks, job->bytes, &marks);

        stk_decoder_marks(worker->decoder, marked ? &marks : NULL);
        status = stk_decode(worker->decoder, job->plan, job->bytes, job->key, job->slot, error);
        stk_decoder_marks(worker->decoder, NULL);
        if (marked && status == 0 && stk_decoder_jpeg(worker->decoder) == 1) {
            atomic_fetch_add_explicit(&worker->marked, 1, memory_order_relaxed);
        }
        stk_decoder_trim(worker->decoder, worker->engine->keep_bytes);
        stk_budget_release(&worker->engine->budget, large ? ticket : 0);
    }
    return status;
}

/* ---- by the helper ---- */

static void release_arena(struct stk_worker *worker)
{
    stk_jail_trim(worker->jail);
    stk_budget_release(&worker->engine->budget, worker->arena_bytes);
    worker->arena_bytes = 0;
}

int stk_worker_arena(struct stk_worker *worker, uint64_t bytes, uint32_t wait_ms,
                     struct stoker_error *error)
{
    int status;

    bytes = stk_max(bytes, STK_ARENA_KEEP_BYTES);
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
    if (worker->arena_bytes > STK_ARENA_KEEP_BYTES) {
        release_arena(worker);
    }
}

static int decode_jailed(struct stk_worker *worker, const struct stk_picture *picture,
                         uint32_t *jpeg_out, struct stoker_error *error)
{
    struct stk_jail_job job = { .plan = picture->plan, .bytes = picture->bytes,
                                .key = picture->key, .cancelled = picture->cancelled,
                                .granted_bytes = worker->engine->keep_bytes };
    uint64_t more = 0;
    int      status = stk_worker_arena(worker, stk_jail_arena_bytes(&job), picture->wait_ms, error);

    if (status < 0) {
        return status;
    }
    status = stk_jail_decode(worker->jail, &job, error);
    if (status == -EAGAIN) {
        more = stk_min(job.needed_bytes, job.plan->memory_bytes_max);
        status = reserve(worker, more, picture->wait_ms, error);
        if (status < 0) {
            more = 0;
        } else {
            job.granted_bytes = UINT64_MAX; /* its bound, memory_bytes_max, was reserved */
            status = stk_jail_decode(worker->jail, &job, error);
        }
    }
    if (status == 0) {
        stk_decode_convert(worker->decoder, job.plan, job.canvas, picture->slot);
        *jpeg_out = job.jpeg;
    }
    stk_budget_release(&worker->engine->budget, more);
    stk_worker_arena_trim(worker);
    return status;
}

void stk_engine_jpegs(const struct stoker_engine *engine, const uint64_t *before,
                      uint64_t *counts_out, uint64_t *marked)
{
    *marked = 0 - *marked;
    for (uint32_t w = 0; w < engine->worker_count; w++) {
        *marked += atomic_load(&engine->workers[w].marked);
    }
    for (uint32_t i = 0; i < STOKER_JPEG_REASONS; i++) {
        counts_out[i] = before ? 0 - before[i] : 0;
        for (uint32_t w = 0; w < engine->worker_count; w++) {
            counts_out[i] += atomic_load(&engine->workers[w].jpegs[i]);
        }
    }
}

int stk_worker_decode(struct stk_worker *worker, const struct stk_picture *picture,
                      struct stoker_error *error)
{
    uint32_t jpeg = 0;
    int      status = worker->jail ? decode_jailed(worker, picture, &jpeg, error)
                                   : decode_here(worker, picture, error);

    if (status == 0 && !worker->jail) {
        jpeg = stk_decoder_jpeg(worker->decoder);
    }
    if (jpeg > 0 && jpeg <= STOKER_JPEG_REASONS) { /* a helper is not believed */
        atomic_fetch_add_explicit(&worker->jpegs[jpeg - 1], 1, memory_order_relaxed);
    }
    return status;
}
