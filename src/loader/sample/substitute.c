/* Replaces a bad sample. */
#include "loader/sample/substitute.h"

#include "base/random.h"
#include "base/retry.h"
#include "loader/pending/loader_maps.h"
#include "loader/pending/quarantine.h"
#include "loader/sample/sample_fill.h"
#include "loader/sample/sample_read.h"

bool stk_substitute_is_quarantined(struct stk_sample_task *task)
{
    return stk_quarantine_find(task->pending->loader->quarantine, task->sample, &task->error);
}

/* Records the damage in task->error. Returns false if there is no memory for it, which is then the
 * error of the task. */
static bool record_damage(struct stk_sample_task *task, uint32_t attempt)
{
    struct stk_quarantine_entry entry = {.sample = task->sample,
                                         .slot = task->slot,
                                         .attempt = attempt,
                                         .is_random = task->is_random,
                                         .error = &task->error};
    struct stoker_error failed;

    if (stk_quarantine_add(task->pending, &entry, &failed) == 0) {
        return true;
    }
    task->error = failed;
    return false;
}

/* Reads the task's sample, a substitute, into the slot. */
static int read_and_fill(struct stk_sample_task *task)
{
    int status;

    stk_sample_members_find(task->pending->loader, task->sample, task->members);
    status = stk_sample_read_retry(task, stk_sample_read(task, true));
    status = status < 0 ? status : stk_sample_fill(task);
    stk_error_assert_status(&task->error, status);
    return status;
}

/* Tries substitutes of the same source until one is good. Clears the error then. */
static void substitute(struct stk_sample_task *task)
{
    struct stoker_loader *loader = task->pending->loader;
    const struct stk_order_place *place = &task->pending->order_places[task->slot];
    uint64_t key = stk_random_key(stk_random_key(loader->seed, place->epoch), place->position);
    uint64_t sample = task->sample;

    for (uint32_t attempt = 1; attempt <= STK_LOADER_SUBSTITUTES_MAX; attempt++) {
        struct stoker_error first = task->error;

        task->sample =
            stk_schedule_substitute(&loader->schedule, place->epoch, place->position, sample,
                                    stk_random_key(key, 0x73756273ull << 8 | attempt));
        task->error.status = 0;
        task->is_substitute = true;
        task->is_random = false;
        if (!stk_substitute_is_quarantined(task) && read_and_fill(task) == 0) {
            task->error.status = 0;
            task->pending->batch->ids[task->slot] = task->sample;
            task->counters->substituted++;
            return;
        }
        if (!stk_error_is_data(task->error.status) || !record_damage(task, attempt)) {
            return;
        }
        task->error = first;
    }
}

/* True if the shard was overwritten: then apparent damage is a wrong place. */
static bool is_shard_changed(struct stk_sample_task *task, struct stoker_error *error)
{
    struct stoker_dataset *dataset = task->pending->loader->dataset;
    uint32_t shard = task->members->sample.shard;
    struct stk_file *file;
    bool changed;

    if (stk_open_files_pin(&dataset->files, dataset->index, shard, &file, NULL) < 0) {
        return false;
    }
    changed = stk_dataset_check_shard(dataset, shard, file, 0, error) < 0;
    stk_dataset_unpin(dataset, shard, file);
    return changed;
}

void stk_substitute_or_fail(struct stk_sample_task *task, int status)
{
    struct stoker_engine *engine = task->worker->engine;
    struct stoker_error changed;

    stk_error_assert_status(&task->error, status);
    if (status >= 0) {
        return;
    }
    /* A wrong place in a changed index is no damage of the sample that the index had there. */
    if (stk_loader_maps_check_now(task->pending->loader, &changed) < 0) {
        task->error = changed;
    }
    if (stk_error_is_data(task->error.status) && is_shard_changed(task, &changed)) {
        task->error = changed;
    }
    if (stk_error_is_data(task->error.status) && record_damage(task, 0) &&
        task->pending->loader->on_error == STOKER_ON_ERROR_SKIP) {
        substitute(task);
    }
    if (task->error.status < 0) {
        stk_engine_lock(engine, task->worker);
        stk_pending_batch_fail_locked(task->pending, task->slot, &task->error);
        stk_engine_unlock(engine);
    }
}
