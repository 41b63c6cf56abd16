/* The work on one slot, as the order of its steps. */
#include "loader/sample/sample_work.h"

#include "loader/sample/sample_fill.h"
#include "loader/sample/sample_read.h"
#include "loader/sample/substitute.h"

#include <errno.h>

static struct stk_sample_task task_of(const struct stk_sample_slot *slot)
{
    return (struct stk_sample_task){.pending = slot->pending,
                                    .worker = slot->worker,
                                    .counters = slot->counters,
                                    .members = slot->members,
                                    .slot = slot->slot,
                                    .sample = slot->pending->batch->ids[slot->slot]};
}

/* Retries a read that failed, then fills the slot. */
static void retry_and_fill(struct stk_sample_task *task, int status)
{
    status = stk_sample_read_retry(task, status);
    status = status < 0 ? status : stk_sample_fill(task);
    stk_substitute_or_fail(task, status);
}

int stk_sample_work_begin(const struct stk_sample_slot *slot, bool wait)
{
    struct stk_sample_task task = task_of(slot);
    int status;

    if (stk_substitute_is_quarantined(&task)) {
        stk_substitute_or_fail(&task, task.error.status);
        return 0;
    }
    stk_sample_members_find(slot->pending->loader, task.sample, slot->members);
    status = stk_sample_read(&task, wait);
    if (status == -EAGAIN && !wait) {
        return status;
    }
    retry_and_fill(&task, status);
    return 0;
}

void stk_sample_work_resume(const struct stk_sample_slot *slot)
{
    struct stk_sample_task task = task_of(slot);

    if (stk_substitute_is_quarantined(&task)) {
        stk_substitute_or_fail(&task, task.error.status);
        return;
    }
    retry_and_fill(&task, stk_sample_read(&task, true));
}

void stk_sample_work_finish(const struct stk_sample_slot *slot, struct stk_view bytes,
                            const struct stoker_error *error)
{
    struct stk_sample_task task = task_of(slot);
    int status;

    if (stk_substitute_is_quarantined(&task)) {
        status = task.error.status;
    } else if (error) {
        task.error = *error;
        status = stk_sample_read_retry(&task, error->status);
        status = status < 0 ? status : stk_sample_fill(&task);
    } else {
        status = stk_sample_read_set_views(&task, bytes);
        status = status < 0 ? status : stk_sample_fill(&task);
    }
    if (status < 0) {
        stk_sample_members_locate_error(slot->pending->loader, slot->members,
                                        slot->members->span.offset, &task.error);
    }
    stk_substitute_or_fail(&task, status);
}
