/* The calls into the file system or store that a save is in, and whether one of them hangs. */
#include "checkpoint/write/writer.h"

#include <inttypes.h>

static _Thread_local struct stk_save_call *own_call; /* of this thread; NULL: no thread of a save */

void stk_save_calls_enter(struct stoker_checkpoint_save *save, uint32_t thread)
{
    own_call = &save->calls[thread];
}

void stk_save_calls_leave(void)
{
    own_call = NULL;
}

void stk_save_call_begin(const struct stoker_checkpoint_save *save, enum stk_save_stage stage,
                         uint32_t file)
{
    atomic_store_explicit(&own_call->stage, stage, memory_order_relaxed);
    atomic_store_explicit(&own_call->file, file, memory_order_relaxed);
    atomic_store_explicit(&own_call->begin_ns, stk_max(stk_engine_now(save->writer->engine), 1),
                          memory_order_release);
}

void stk_save_call_end(void)
{
    atomic_store_explicit(&own_call->begin_ns, 0, memory_order_release);
}

/* Sets *error to the description of a call that hangs. */
static void describe(const struct stoker_checkpoint_save *save, const struct stk_save_call *call,
                     uint64_t seconds, struct stoker_error *error)
{
    static const char *const stages[] = {[STK_SAVE_OPENS] = "the save hangs: it creates its files",
                                         [STK_SAVE_WRITES] = "the save hangs: it writes a file",
                                         [STK_SAVE_SYNCS] = "the save hangs: it syncs its files",
                                         [STK_SAVE_COMMITS] =
                                             "the save hangs: it commits the manifest"};
    enum stk_save_stage stage = atomic_load_explicit(&call->stage, memory_order_relaxed);
    uint32_t file = atomic_load_explicit(&call->file, memory_order_relaxed);
    const char *path = stage == STK_SAVE_WRITES || stage == STK_SAVE_SYNCS
                           ? save->sink.paths[file] /* const since the files are open */
                           : save->writer->place.root;

    stk_fail(error, STOKER_ERROR_TIMEOUT, stages[stage],
             stage == STK_SAVE_COMMITS
                 ? "look at the mount or store; the step exists if the call succeeds later"
                 : "look at the mount or store; a later save works once it answers again",
             "step %" PRIu64 ", '%.400s': no answer for %" PRIu64 " s", save->sink.step, path,
             seconds);
}

int stk_save_check_calls(struct stoker_checkpoint_save *save, struct stoker_error *error)
{
    uint64_t now_ns = stk_engine_now(save->writer->engine), oldest_ns = now_ns;
    uint64_t limit_ns = (uint64_t)save->writer->call_timeout_ms * 1000000u;
    const struct stk_save_call *oldest = NULL;
    struct stoker_error hang = {0};

    for (uint32_t i = 0; i < save->writer->threads; i++) {
        uint64_t begin_ns = atomic_load_explicit(&save->calls[i].begin_ns, memory_order_acquire);

        if (begin_ns > 0 && begin_ns < oldest_ns) {
            oldest_ns = begin_ns;
            oldest = &save->calls[i];
        }
    }
    if (!oldest || now_ns - oldest_ns < limit_ns) {
        return 0;
    }
    describe(save, oldest, (now_ns - oldest_ns) / 1000000000u, &hang);
    pthread_mutex_lock(&save->job.lock);
    save->locked.hangs = true;
    stk_background_job_fail_locked(&save->job, STOKER_ERROR_TIMEOUT, &hang);
    pthread_cond_broadcast(&save->work);
    pthread_mutex_unlock(&save->job.lock);
    if (error) {
        *error = hang;
    }
    return STOKER_ERROR_TIMEOUT;
}

int stk_save_fail_closed(const struct stoker_checkpoint_save *save, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CLOSED, "the save was ended before it was complete",
                    "wait until it is done before it is closed", "step %" PRIu64, save->sink.step);
}
