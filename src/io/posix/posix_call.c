/* A call on a pool thread that its caller abandons at the deadline. */
#include "io/posix/posix_call.h"

#include "base/mem.h"
#include "io/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES_MAX (1u << 20) /* of one call */

static void call_run(struct stk_task *task);
static void call_drop(struct stk_task *task);

struct stk_posix_call *stk_posix_call_new(struct stk_posix *posix, uint32_t kind, const char *path,
                                          struct stk_posix_file *file, size_t bytes)
{
    size_t path_bytes = path ? strlen(path) + 1 : 0;
    struct stk_posix_call *call = stk_alloc(1, sizeof *call + path_bytes + bytes);

    if (call) {
        call->task = (struct stk_task){.run = call_run, .drop = call_drop};
        call->kind = kind;
        call->fd = -1;
        call->direct_fd = STK_DIRECT_REFUSED;
        call->direct_bytes_min = stk_posix_direct_bytes_min(posix);
        call->bytes = bytes;
        call->file = file;
        if (file) {
            stk_posix_file_acquire(file);
        }
        if (path) {
            memcpy(call->memory, path, path_bytes);
        }
    }
    return call;
}

int stk_posix_call_wait(struct stk_posix *posix, struct stk_posix_call *call,
                        struct stk_posix_call **call_out)
{
    int status = -ENOMEM;

    *call_out = NULL;
    if (call) {
        status = stk_thread_pool_call(posix->calls, &call->task, posix->options.read_timeout_ms);
    }
    if (call && status == 0) {
        status = call->result < 0 ? (int)call->result : 0;
        *call_out = call;
    }
    return status;
}

int64_t stk_posix_call_read(struct stk_posix_file *file, uint64_t offset, uint8_t *buffer,
                            size_t bytes)
{
    struct stk_posix *posix = file->posix;
    uint64_t until_ns = stk_clock_ns() + posix->options.read_timeout_ms * 1000000ull;
    size_t done = 0;

    while (done < bytes) {
        size_t piece = stk_min(bytes - done, READ_BYTES_MAX);
        struct stk_posix_call *call =
            stk_posix_call_new(posix, STK_POSIX_CALL_READ, NULL, file, piece);
        int64_t count;

        if (call) {
            call->offset = offset + done;
        }
        count = stk_posix_call_wait(posix, call, &call);
        if (call && call->result > 0) {
            count = call->result;
            memcpy(buffer + done, call->memory, (size_t)count);
            done += (size_t)count;
        }
        stk_posix_call_free(call);
        if (count < 0) {
            return count;
        }
        if ((size_t)count < piece) {
            break;
        }
        if (done < bytes && stk_clock_ns() >= until_ns) {
            return STOKER_ERROR_TIMEOUT;
        }
    }
    return (int64_t)done;
}

void stk_posix_call_close_file(struct stk_posix_file *file)
{
    struct stk_posix *posix = file->posix;
    struct stk_posix_call *call = stk_posix_call_new(posix, STK_POSIX_CALL_CLOSE, NULL, file, 0);

    stk_posix_file_release(file);
    if (call && stk_thread_pool_call(posix->calls, &call->task, STK_THREAD_POOL_CLOSE_MS) == 0) {
        stk_posix_call_free(call);
    }
}

void stk_posix_call_free(struct stk_posix_call *call)
{
    if (call) {
        call_drop(&call->task);
    }
}

static void call_run(struct stk_task *task)
{
    struct stk_posix_call *call = (struct stk_posix_call *)(void *)task;
    const char *path = (const char *)call->memory;

    switch (call->kind) {
    case STK_POSIX_CALL_OPEN:
        call->fd = stk_posix_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
        call->result = call->fd < 0 ? call->fd : stk_posix_fstat(call->fd, &call->stat);
        call->local = call->result == 0 && stk_local_path_is_local(call->fd);
        /* A local file opens its direct descriptor at its first direct read. */
        if (call->result == 0 && !call->local && S_ISREG(call->stat.st_mode) &&
            (uint64_t)call->stat.st_size >= call->direct_bytes_min) {
            call->direct_fd = stk_posix_open_direct(call->fd, O_RDONLY);
        }
        break;
    case STK_POSIX_CALL_STAT_PATH:
        call->result = stat(path, &call->stat) < 0 ? -errno : 0;
        break;
    case STK_POSIX_CALL_STAT_FILE:
        call->result = stk_posix_fstat(call->file->fd, &call->stat);
        break;
    case STK_POSIX_CALL_LIST:
        call->fd = stk_posix_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
        call->result =
            call->fd < 0 ? call->fd : stk_local_path_list(NULL, call->fd, &call->builder);
        break;
    case STK_POSIX_CALL_READ:
        call->result = stk_posix_read_fd(call->file->fd, call->offset, call->memory, call->bytes);
        break;
    default: /* STK_POSIX_CALL_CLOSE */
        stk_posix_file_release(call->file);
        call->file = NULL;
        break;
    }
}

/* Frees what the call created. If no thread was free to close a file, the file stays open: closing
 * it here could hang. */
static void call_drop(struct stk_task *task)
{
    struct stk_posix_call *call = (struct stk_posix_call *)(void *)task;

    if (call->fd >= 0) {
        close(call->fd);
    }
    if (call->direct_fd >= 0) {
        close(call->direct_fd);
    }
    if (call->file && call->kind != STK_POSIX_CALL_CLOSE) {
        stk_posix_file_release(call->file);
    }
    stk_listing_builder_deinit(&call->builder);
    stk_free(call);
}
