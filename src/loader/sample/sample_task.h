/* loader/sample/sample_task.h: the work on one slot of a pending batch, as its steps share it.
 *
 *   members found -> bytes read (views of the members) -> fields filled   or: error -> substitute
 *
 * Owner: the worker that claimed the slot. Threads: one. Memory: on the worker's stack; bytes are
 * in its scratch, in a fetch buffer, or in the slot itself. Bound: one sample. */
#ifndef LOADER_SAMPLE_SAMPLE_TASK_H
#define LOADER_SAMPLE_SAMPLE_TASK_H

#include "loader/pending/pending_batch.h"
#include "loader/pending/sample_members.h"
#include "loader/sample/fill_value.h"

struct stk_sample_task {
    struct stk_pending_batch *pending;
    struct stk_worker *worker;
    struct stk_loader_counters *counters;
    struct stk_sample_members *members; /* of `sample` */
    uint32_t slot;
    uint64_t sample;
    bool is_substitute;           /* `sample` replaces a bad sample */
    bool is_random;               /* another random crop of the sample may be decodable */
    uint64_t read_end_ns;         /* of a read that succeeded: the fill begins then; 0: no read */
    struct stk_parse_cache parse; /* while the fields are filled */
    struct stoker_error error;
};

#endif
