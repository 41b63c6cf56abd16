/* Sandbox workers: sends one image or member at a time to the helper and checks the reply. An
 * attacker who wrote the image may control the helper. Therefore a reply is accepted only if it is
 * for this command and of a known kind; a status only if an image can cause it; text is truncated
 * and sanitised; the arena is sealed so that the helper cannot shrink it; the code that reads the
 * canvas accepts any bytes. If the helper misbehaves otherwise (crash, loop, sleep, invalid data),
 * it is killed and only that image is reported as damaged. */
#include "decode/sandbox/sandbox.h"

#include "base/mem.h"
#include "decode/sandbox/helper_process.h"
#include "decode/sandbox/helper_protocol.h"
#include "format/value/value.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define START_MS 10000u /* for a helper to be ready */
#define SLICE_MS 50u    /* between two looks at a slow image's clock, and whether it is wanted */
#define IDLE_MAX 4u     /* a helper that uses no CPU gets this many times the time */
#define END_MS 1000u    /* for a process whose socket is closed to have ended */
#define KILLS_MAX 3u    /* a helper killed by others is started again, for the same image */
/* Programs and libraries that a helper maps, beside its arena and the image's memory. */
#define PROGRAM_BYTES (256ull << 20)

struct stk_sandbox {
    char helper[PATH_MAX];
    char name[64];
    uint64_t arena_bytes;
    uint32_t timeout_ms, vector;
    _Atomic bool stopped; /* all shall end */
};

struct stk_sandbox_worker {
    struct stk_sandbox *sandbox;
    struct stk_helper_process child;
    int arena; /* memfd */
    uint8_t *memory;
    uint64_t touched_bytes; /* of the arena */
    uint64_t limit_bytes;   /* memory that the child may take for an image */
    uint64_t starts;
    uint32_t sequence;
    struct stk_helper_reply answer;
};

/* Error texts for an image and for a parsed member. */
struct words {
    const char *unwanted, *forbidden, *ended, *crashed, *nonsense, *slow, *otherwise;
};
static const struct words of_picture = {
    "the image is not wanted any more",
    "the decoder tried what it may not do on this image",
    "the decoder ended on this image",
    "the decoder crashed on this image",
    "the decoder answered nonsense on this image",
    "the decoder did not end on this image",
    "cannot decode the image",
};
static const struct words of_member = {
    "the member is not wanted any more",
    "the parser tried what it may not do on this member",
    "the parser ended on this member",
    "the parser crashed on this member",
    "the parser answered nonsense on this member",
    "the parser did not end on this member",
    "cannot read the member",
};

/* One command and its result. */
struct request {
    const struct words *words;
    void *command;
    uint32_t *sequence; /* in the command */
    size_t command_bytes;
    struct stk_view bytes;
    const char *path;       /* placed after the bytes; NULL: there is none */
    uint64_t touched_bytes; /* of the arena */
    uint64_t granted_bytes, memory_bytes_max, value_max;
    const _Atomic bool *cancelled;
    uint64_t value; /* out: of the answer */
};

/* How waiting for the helper ended. */
enum outcome { ANSWERED, ENDED, TOO_SLOW, STOPPED };

static int start(struct stk_sandbox_worker *helper, struct stk_helper_handshake_reply *ready,
                 bool *killed_out, struct stoker_error *error);
static int arena_open(struct stk_sandbox_worker *helper, struct stoker_error *error);

/* ---- the sandbox ---- */

int stk_sandbox_open(struct stk_sandbox **sandbox_out, const struct stk_sandbox_options *options,
                     struct stoker_error *error)
{
    struct stk_sandbox *sandbox = stk_alloc(1, sizeof *sandbox);
    struct stk_sandbox_worker *probe = NULL;
    struct stk_helper_handshake_reply ready = {0};
    bool killed;
    int status;

    *sandbox_out = NULL;
    if (!sandbox) {
        return stk_fail(error, -ENOMEM, "cannot open a sandbox", "free memory", "sandbox");
    }
    sandbox->arena_bytes = stk_round_up(options->arena_bytes, 4096);
    sandbox->timeout_ms = options->timeout_ms;
    sandbox->vector = options->vector;
    if (options->helper) {
        status = (size_t)snprintf(sandbox->helper, sizeof sandbox->helper, "%s", options->helper) <
                         sizeof sandbox->helper
                     ? 0
                     : stk_fail_errno(error, ENAMETOOLONG, "cannot start the decode helper",
                                      "name it by a shorter path", "sandbox_helper");
    } else {
        status = stk_helper_process_locate(sandbox->helper, sizeof sandbox->helper, error);
    }
    status = status < 0 ? status : stk_sandbox_worker_open(&probe, sandbox, error);
    status = status < 0 ? status : start(probe, &ready, &killed, error);
    if (status == 0) {
        snprintf(sandbox->name, sizeof sandbox->name,
                 ready.landlock ? "seccomp and Landlock %u" : "seccomp; the kernel has no Landlock",
                 ready.landlock);
        *sandbox_out = sandbox;
        sandbox = NULL;
    }
    stk_sandbox_worker_close(probe);
    stk_sandbox_close(sandbox);
    return status;
}

void stk_sandbox_close(struct stk_sandbox *sandbox)
{
    stk_free(sandbox);
}

void stk_sandbox_stop(struct stk_sandbox *sandbox)
{
    atomic_store(&sandbox->stopped, true);
}

const char *stk_sandbox_name(const struct stk_sandbox *sandbox)
{
    return sandbox->name;
}

/* ---- a sandbox worker ---- */

int stk_sandbox_worker_open(struct stk_sandbox_worker **helper_out, struct stk_sandbox *sandbox,
                            struct stoker_error *error)
{
    struct stk_sandbox_worker *helper = stk_alloc(1, sizeof *helper);
    int status;

    *helper_out = NULL;
    if (!helper) {
        return stk_fail(error, -ENOMEM, "cannot open a sandbox", "free memory", "jail");
    }
    helper->sandbox = sandbox;
    helper->arena = -1;
    status = arena_open(helper, error);
    if (status < 0) {
        stk_sandbox_worker_close(helper);
        return status;
    }
    *helper_out = helper;
    return 0;
}

/* Sealed: its size cannot change. Sparse: only pages in use take memory. Not inherited by a forked
 * child. */
static int arena_open(struct stk_sandbox_worker *helper, struct stoker_error *error)
{
    uint64_t bytes = helper->sandbox->arena_bytes;

    helper->arena = memfd_create("stoker-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (helper->arena < 0 || ftruncate(helper->arena, (off_t)bytes) < 0 ||
        fcntl(helper->arena, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
        return stk_fail_errno(error, errno, "cannot make memory to share with the decode helper",
                              "raise the limit of open files", "%llu bytes",
                              (unsigned long long)bytes);
    }
    helper->memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, helper->arena, 0);
    if (helper->memory == MAP_FAILED) {
        helper->memory = NULL;
        return stk_fail_errno(error, errno, "cannot map memory to share with the decode helper",
                              "raise the limit of address space (ulimit -v)", "%llu bytes",
                              (unsigned long long)bytes);
    }
    madvise(helper->memory, bytes, MADV_DONTFORK);
    return 0;
}

void stk_sandbox_worker_close(struct stk_sandbox_worker *helper)
{
    if (!helper) {
        return;
    }
    stk_helper_process_stop(&helper->child);
    if (helper->memory) {
        munmap(helper->memory, helper->sandbox->arena_bytes);
    }
    if (helper->arena >= 0) {
        close(helper->arena);
    }
    stk_free(helper);
}

int stk_sandbox_worker_process(const struct stk_sandbox_worker *helper)
{
    return helper->child.process;
}

uint64_t stk_sandbox_worker_starts(const struct stk_sandbox_worker *helper)
{
    return helper->starts;
}

void stk_sandbox_worker_trim(struct stk_sandbox_worker *helper)
{
    if (helper->touched_bytes > 0) {
        fallocate(helper->arena, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  (off_t)helper->touched_bytes);
        helper->touched_bytes = 0;
    }
}

/* ---- waiting ---- */

/* Waits for a message and stores its length in *got_out. The common case is one call; progress is
 * checked only if it takes long. The clock is the helper's CPU time, so that a loaded or stopped
 * machine does not make an image fail; a helper that sleeps too long is abandoned as well. */
static enum outcome receive(struct stk_sandbox_worker *helper, uint32_t timeout_ms,
                            const _Atomic bool *cancelled, void *message, size_t capacity,
                            size_t *got_out)
{
    uint64_t slices_max = (uint64_t)IDLE_MAX * (timeout_ms / SLICE_MS + 1), begin_ns = 0;

    for (uint64_t slice = 0; slice < slices_max; slice++) {
        struct pollfd ended = {.fd = helper->child.handle, .events = POLLIN};
        ssize_t got = recv(helper->child.socket, message, capacity, MSG_TRUNC);
        uint64_t now_ns;

        if (got >= 0 || (errno != EAGAIN && errno != EINTR)) {
            *got_out = got > 0 ? (size_t)got : 0;
            return got > 0 ? ANSWERED : ENDED;
        }
        if (atomic_load(&helper->sandbox->stopped) || (cancelled && atomic_load(cancelled))) {
            return STOPPED;
        }
        /* A child of our own process may hold the socket's other end open by accident of fork. */
        if (poll(&ended, 1, 0) != 0) {
            return ENDED;
        }
        now_ns = stk_helper_process_cpu_ns(&helper->child);
        begin_ns = slice == 0 ? now_ns : begin_ns;
        if (now_ns - begin_ns >= timeout_ms * 1000000ull) {
            return TOO_SLOW;
        }
    }
    return TOO_SLOW;
}

/* Ends the helper; returns how it had ended by itself (see stk_helper_process_stop). */
static int stop_helper(struct stk_sandbox_worker *helper, enum outcome outcome)
{
    struct pollfd ended = {.fd = helper->child.handle, .events = POLLIN};

    if (outcome == ENDED) { /* its socket closes a moment before the process ends */
        poll(&ended, 1, END_MS);
    }
    helper->limit_bytes = 0;
    return stk_helper_process_stop(&helper->child);
}

static int is_closed(const struct words *words, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CLOSED, words->unwanted, "open a new loader",
                    "decode helper");
}

/* ---- starting ---- */

/* A failure here is never caused by the image, which the helper has not read yet. *killed_out:
 * another process killed the helper before it was ready. */
static int start(struct stk_sandbox_worker *helper, struct stk_helper_handshake_reply *ready,
                 bool *killed_out, struct stoker_error *error)
{
    const struct stk_sandbox *sandbox = helper->sandbox;
    struct timeval slice = {.tv_usec = SLICE_MS * 1000};
    struct stk_helper_handshake hello = {.protocol = STK_HELPER_PROTOCOL,
                                         .vector = sandbox->vector,
                                         .parent = getpid(),
                                         .arena_bytes = sandbox->arena_bytes};
    enum outcome outcome;
    size_t got = 0;
    int status = stk_helper_process_start(&helper->child, sandbox->helper, helper->arena, error);

    *killed_out = false;
    if (status < 0) {
        return status;
    }
    helper->starts++;
    memset(ready, 0, sizeof *ready);
    setsockopt(helper->child.socket, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice);
    send(helper->child.socket, &hello, sizeof hello, MSG_NOSIGNAL);
    outcome = receive(helper, START_MS, NULL, ready, sizeof *ready, &got);
    if (outcome == ANSWERED && got == sizeof *ready && ready->status == 0 &&
        ready->protocol == STK_HELPER_PROTOCOL) {
        return 0;
    }
    *killed_out = stop_helper(helper, outcome) == SIGKILL && outcome == ENDED;
    if (outcome == STOPPED) {
        return is_closed(&of_picture, error);
    }
    ready->step[sizeof ready->step - 1] = 0;
    if (outcome == ANSWERED && got == sizeof *ready && ready->protocol == STK_HELPER_PROTOCOL) {
        return stk_fail_errno(error, EPERM, "the decode helper cannot lock itself in",
                              "allow seccomp in the container, or do without sandbox", "'%s': %s",
                              sandbox->helper, ready->step);
    }
    return stk_fail_errno(error, EPROTO, "the decode helper did not get ready",
                          "run the one that was installed with this library", "'%s'",
                          sandbox->helper);
}

/* ---- answers ---- */

static int crashed(const struct words *words, int by_signal, struct stoker_error *error)
{
    if (by_signal == SIGSYS) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, words->forbidden,
                        "look at it with care: it may be made for that", "forbidden system call");
    }
    if (by_signal <= 0) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, words->ended,
                        "look at it with 'stoker cat'; skip it by on_error", "decode helper");
    }
    return stk_fail(error, STOKER_ERROR_CORRUPT, words->crashed,
                    "look at it with 'stoker cat'; skip it by on_error", "signal %d (%s)",
                    by_signal, sigabbrev_np(by_signal) ? sigabbrev_np(by_signal) : "?");
}

static int nonsense(struct stk_sandbox_worker *helper, const struct words *words, const char *what,
                    struct stoker_error *error)
{
    stop_helper(helper, ANSWERED);
    return stk_fail(error, STOKER_ERROR_CORRUPT, words->nonsense,
                    "look at it with care: it may be made for that", "%s", what);
}

/* The statuses that stk_image_decode and stk_value_open can return about their input. */
static bool is_expected_status(int status)
{
    return status == STOKER_ERROR_CORRUPT || status == STOKER_ERROR_TRUNCATED ||
           status == STOKER_ERROR_FORMAT || status == STOKER_ERROR_UNSUPPORTED ||
           status == STOKER_ERROR_LIMIT || status == STOKER_ERROR_MISSING || status == -ENOMEM;
}

/* Text from outside: ends within its field, and holds nothing that a terminal would obey. */
static void sanitize_text(char *text, size_t capacity, const char *otherwise)
{
    size_t length = strnlen(text, capacity - 1);

    text[length] = 0;
    for (size_t i = 0; i < length; i++) {
        text[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    }
    if (length == 0) {
        /* A reason for people: it may be cut. */
        snprintf(text, capacity, "%s", otherwise);
    }
}

static int fail_from_reply(struct stk_sandbox_worker *helper, const struct request *request,
                           struct stoker_error *error)
{
    struct stk_helper_reply *answer = &helper->answer;
    int status = answer->status;

    if (!is_expected_status(status)) {
        return nonsense(helper, request->words, "an unknown status", error);
    }
    sanitize_text(answer->what, sizeof answer->what, request->words->otherwise);
    sanitize_text(answer->where, sizeof answer->where, "decode helper");
    sanitize_text(answer->advice, sizeof answer->advice, "look at it with 'stoker cat'");
    if (status == -ENOMEM) { /* by its own limit: the machine's lack of memory kills it instead */
        status = STOKER_ERROR_LIMIT;
    }
    stk_fail(error, status, answer->what, answer->advice, "%s", answer->where);
    if (error && answer->value <= request->bytes.bytes) {
        error->offset = answer->value;
    }
    return status;
}

static int check_reply(struct stk_sandbox_worker *helper, struct request *request, size_t got,
                       struct stoker_error *error)
{
    const struct stk_helper_reply *answer = &helper->answer;
    bool complete = got == sizeof *answer, head = got == STK_HELPER_REPLY_HEAD;

    if ((!complete && !head) || answer->protocol != STK_HELPER_PROTOCOL ||
        answer->sequence != helper->sequence) {
        return nonsense(helper, request->words, "not an answer to the command", error);
    }
    request->value = answer->value;
    if (answer->kind == STK_HELPER_DONE && head && answer->value <= request->value_max) {
        return 0;
    }
    if (answer->kind == STK_HELPER_NEEDS_MEMORY && head && answer->value > request->granted_bytes) {
        return -EAGAIN;
    }
    if (answer->kind == STK_HELPER_FAILED && complete) {
        return fail_from_reply(helper, request, error);
    }
    return nonsense(helper, request->words, "an unknown kind of answer", error);
}

/* ---- asking ---- */

/* Sends the command and its input. Returns false if the helper has ended. */
static bool send_request(struct stk_sandbox_worker *helper, const struct request *request)
{
    uint64_t limit = helper->sandbox->arena_bytes + PROGRAM_BYTES + request->memory_bytes_max;

    if (limit > helper->limit_bytes) {
        helper->limit_bytes = limit;
        stk_helper_process_limit_memory(&helper->child, limit);
    }
    if (request->bytes.bytes > 0) {
        memcpy(helper->memory, request->bytes.data, request->bytes.bytes);
    }
    if (request->path) {
        memcpy(helper->memory + request->bytes.bytes, request->path, strlen(request->path) + 1);
    }
    helper->touched_bytes = stk_max(helper->touched_bytes, request->touched_bytes);
    *request->sequence = ++helper->sequence;
    return send(helper->child.socket, request->command, request->command_bytes, MSG_NOSIGNAL) > 0;
}

static int too_slow(const struct stk_sandbox_worker *helper, const struct words *words,
                    struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, words->slow,
                    "look at it; raise decode_timeout_ms if it is only large",
                    "given up after %u ms", helper->sandbox->timeout_ms);
}

/* One attempt. *killed_out: another process killed the helper. */
static int attempt(struct stk_sandbox_worker *helper, struct request *request, bool *killed_out,
                   struct stoker_error *error)
{
    struct stk_helper_handshake_reply ready;
    enum outcome outcome = ENDED;
    size_t got = 0;
    int status = 0, by_signal;

    *killed_out = false;
    if (helper->child.process == 0) {
        status = start(helper, &ready, killed_out, error);
    }
    if (status < 0) {
        return status;
    }
    if (send_request(helper, request)) {
        outcome = receive(helper, helper->sandbox->timeout_ms, request->cancelled, &helper->answer,
                          sizeof helper->answer, &got);
    }
    switch (outcome) {
    case ANSWERED:
        return check_reply(helper, request, got, error);
    case STOPPED:
        stop_helper(helper, outcome);
        return is_closed(request->words, error);
    case TOO_SLOW:
        stop_helper(helper, outcome);
        return too_slow(helper, request->words, error);
    case ENDED:
    default:
        by_signal = stop_helper(helper, outcome);
        *killed_out = by_signal == SIGKILL;
        return crashed(request->words, by_signal, error);
    }
}

static int serve(struct stk_sandbox_worker *helper, struct request *request,
                 struct stoker_error *error)
{
    bool killed = true;
    int status = 0;

    if (request->touched_bytes > helper->sandbox->arena_bytes) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a member is larger than the sandbox",
                        "grant the engine more memory, or leave the member out",
                        "%llu of %llu bytes", (unsigned long long)request->touched_bytes,
                        (unsigned long long)helper->sandbox->arena_bytes);
    }
    /* A helper cannot send itself SIGKILL: that was the kernel for memory, or a person. */
    for (uint32_t i = 0; i < KILLS_MAX && killed; i++) {
        status = attempt(helper, request, &killed, error);
    }
    if (killed) {
        return stk_fail_errno(error, ENOMEM, "the decode helper was killed again and again",
                              "see in the kernel's log whether memory ran out", "%u times",
                              KILLS_MAX);
    }
    return status;
}

/* ---- images ---- */

uint64_t stk_sandbox_worker_arena_bytes(const struct stk_sandbox_decode_job *job)
{
    return stk_round_up(stk_min(job->bytes.bytes, UINT64_MAX / 4), 4096) +
           stk_round_up(stk_image_decode_canvas_bytes(job->plan), 4096);
}

int stk_sandbox_worker_decode(struct stk_sandbox_worker *helper, struct stk_sandbox_decode_job *job,
                              struct stoker_error *error)
{
    const struct stk_transform_plan *plan = job->plan;
    size_t list_bytes = plan->transform_count * sizeof *plan->transforms;
    uint64_t canvas_offset = stk_round_up(stk_min(job->bytes.bytes, UINT64_MAX / 4), 4096);
    struct stk_helper_decode_request command = {.protocol = STK_HELPER_PROTOCOL,
                                                .work = STK_HELPER_DECODE,
                                                .transform_count = (uint32_t)plan->transform_count,
                                                .dtype = plan->shape.dtype,
                                                .layout = plan->shape.layout,
                                                .exif = plan->exif,
                                                .planar = plan->planar,
                                                .pixel_format = plan->pixel_format,
                                                .check = plan->check,
                                                .bytes = job->bytes.bytes,
                                                .canvas_offset = canvas_offset,
                                                .key = job->key,
                                                .granted_bytes = job->granted_bytes,
                                                .pixels_max = plan->pixels_max,
                                                .memory_bytes_max = plan->memory_bytes_max};
    struct request request = {.words = &of_picture,
                              .command = &command,
                              .sequence = &command.sequence,
                              .command_bytes = STK_HELPER_DECODE_REQUEST_HEAD + list_bytes,
                              .bytes = job->bytes,
                              .touched_bytes = stk_sandbox_worker_arena_bytes(job),
                              .granted_bytes = job->granted_bytes,
                              .memory_bytes_max = plan->memory_bytes_max,
                              .value_max = STOKER_JPEG_REASONS | STK_IMAGE_DECODED_PLANAR,
                              .cancelled = job->cancelled};
    int status;

    if (list_bytes > 0) {
        memcpy(command.transforms, plan->transforms, list_bytes);
    }
    status = serve(helper, &request, error);
    job->canvas = status == 0 ? helper->memory + canvas_offset : NULL;
    job->needed_bytes = status == -EAGAIN ? request.value : 0;
    job->decoded_by = status == 0 ? (uint32_t)request.value : 0;
    return status;
}

/* ---- members ---- */

int stk_sandbox_worker_parse(struct stk_sandbox_worker *helper, struct stk_sandbox_parse_job *job,
                             struct stoker_error *error)
{
    const char *path = job->encoding == STK_VALUE_NPZ && job->path ? job->path : "";
    uint64_t bytes = stk_min(job->bytes.bytes, UINT64_MAX / 4), path_bytes = strlen(path);
    uint64_t room_offset = stk_round_up(bytes + path_bytes + 1, 4096);
    uint64_t room_bytes = stk_min(job->buffer_bytes, UINT64_MAX / 4);
    struct stk_helper_parse_request command = {.protocol = STK_HELPER_PROTOCOL,
                                               .work = STK_HELPER_PARSE,
                                               .encoding = job->encoding,
                                               .check_only = job->check_only,
                                               .bytes = bytes,
                                               .path_offset = bytes,
                                               .path_bytes = path_bytes,
                                               .buffer_offset = room_offset,
                                               .buffer_bytes = room_bytes,
                                               .granted_bytes = job->granted_bytes,
                                               .memory_bytes_max = job->memory_bytes_max};
    struct request request = {.words = &of_member,
                              .command = &command,
                              .sequence = &command.sequence,
                              .command_bytes = sizeof command,
                              .bytes = job->bytes,
                              .path = path,
                              .touched_bytes = room_offset + room_bytes,
                              .granted_bytes = job->granted_bytes,
                              .memory_bytes_max = job->memory_bytes_max,
                              .value_max = room_bytes,
                              .cancelled = job->cancelled};
    int status = serve(helper, &request, error);

    job->packed = (struct stk_view){helper->memory + room_offset, status == 0 ? request.value : 0};
    job->needed_bytes = status == -EAGAIN ? request.value : 0;
    return status;
}
