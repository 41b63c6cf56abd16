/* Parses members in the worker's helper process: JSON, MessagePack and npz need libraries and zlib,
 * which must not handle untrusted input in this process. */
#include "engine/engine.h"
#include "engine/worker.h"
#include "format/value/value.h"

#include <errno.h>

/* Rounding of offsets in the arena. */
#define MARGIN_BYTES 8192u

static int fail_memory_limit(uint64_t bytes, uint64_t bytes_max, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_LIMIT, "reading a member takes too much memory",
                    "raise decode_bytes_max, or leave the member out",
                    "up to %llu bytes needed in the sandbox, %llu granted",
                    (unsigned long long)bytes, (unsigned long long)bytes_max);
}

/* One attempt with a limit of memory. The helper gets one half; the other is for the input and the
 * serialized value, and for the value in this process. */
struct attempt {
    const char *path;
    uint64_t granted_bytes;
    uint64_t needed_bytes; /* out, with -EAGAIN: enough for the next attempt */
};

/* Arena for the input and the serialized value. */
static uint64_t arena_bytes(const struct stk_parse_job *job, const struct attempt *attempt)
{
    return stk_min(job->bytes.bytes, UINT64_MAX / 4) + attempt->granted_bytes / 2 + MARGIN_BYTES;
}

static int run(struct stk_worker *worker, const struct stk_parse_job *job, struct attempt *attempt,
               struct stk_value *value_out, struct stoker_error *error)
{
    struct stk_sandbox_parse_job parse = {.encoding = job->encoding,
                                          .check_only = job->check_only,
                                          .bytes = job->bytes,
                                          .path = attempt->path,
                                          .buffer_bytes =
                                              job->check_only ? 0 : attempt->granted_bytes / 2,
                                          .granted_bytes = attempt->granted_bytes / 2,
                                          .memory_bytes_max = job->memory_bytes_max,
                                          .cancelled = job->cancelled};
    int status = stk_sandbox_worker_parse(worker->sandbox, &parse, error);

    attempt->needed_bytes = 0;
    *value_out = (struct stk_value){.encoding = job->encoding, .bytes = job->bytes, .path = ""};
    if (status == -EAGAIN) {
        attempt->needed_bytes = 2 * stk_min(parse.needed_bytes, UINT64_MAX / 4) + MARGIN_BYTES;
        if (attempt->needed_bytes > job->memory_bytes_max) {
            status = fail_memory_limit(attempt->needed_bytes, job->memory_bytes_max, error);
        }
    }
    if (status == 0 && !job->check_only) {
        status = stk_value_deserialize(value_out, job->encoding, job->bytes, parse.packed, error);
    }
    return status;
}

/* An attempt with the memory that an earlier one needed. If it needs more, that is an error. */
static int attempt_full(struct stk_worker *worker, const struct stk_parse_job *job,
                        struct attempt *attempt, struct stk_value *value_out,
                        struct stoker_error *error)
{
    int status = run(worker, job, attempt, value_out, error);

    if (arena_bytes(job, attempt) >
        STK_WORKER_ARENA_KEEP_BYTES) { /* the rest belonged to the granted memory */
        stk_sandbox_worker_trim(worker->sandbox);
    }
    return status == -EAGAIN
               ? fail_memory_limit(attempt->needed_bytes, attempt->granted_bytes, error)
               : status;
}

int stk_worker_parse(struct stk_worker *worker, struct stk_parse_job *job,
                     struct stk_value *value_out, struct stoker_error *error)
{
    struct attempt other = {.path = job->second_path}; /* without memory: reports what it needs */
    struct attempt own = {.path = job->path, .granted_bytes = job->small_bytes};
    uint64_t more;
    int status = stk_worker_arena_reserve(worker, arena_bytes(job, &own), job->wait_ms, error);

    job->reserved_bytes = 0;
    if (status == 0 && job->second_path) {
        status = run(worker, job, &other, value_out, error);
        status = status == -EAGAIN ? 0 : status;
    }
    job->second_bytes = other.needed_bytes;
    status = status < 0 ? status : run(worker, job, &own, value_out, error);
    stk_worker_arena_trim(worker);
    if (status != -EAGAIN) {
        return status;
    }
    more = job->encoding == STK_VALUE_NPZ ? own.needed_bytes : job->bytes.bytes;
    more = job->second_bytes + job->ratio * stk_min(more, UINT64_MAX / 64);
    own.granted_bytes = own.needed_bytes;
    status = stk_engine_reserve(worker->engine, own.granted_bytes + more, job->wait_ms,
                                "reading a large member", error);
    job->reserved_bytes = status < 0 ? 0 : own.granted_bytes + more;
    return status < 0 ? status : attempt_full(worker, job, &own, value_out, error);
}

int stk_worker_parse_with(struct stk_worker *worker, const struct stk_parse_job *job,
                          struct stk_value *value_out, struct stoker_error *error)
{
    struct attempt other = {.path = job->second_path,
                            .granted_bytes = stk_max(job->second_bytes, job->small_bytes)};

    return attempt_full(worker, job, &other, value_out, error);
}
