/* The requests of an external file system: waiting, taken and replied to. */
#include "storage/external/external_fs.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "base/options.h"
#include "io/clock.h"
#include "storage/url/url_alias.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define TICK_NS 100000000ull /* a cancelled call ends within it */

enum request_state { NEW = 0, WAITING, TAKEN, COPIED, ABANDONED, DONE };

struct stk_external_request {
    struct stk_external_request *next, *previous; /* of waiting, or of taken */
    uint32_t state;                               /* enum request_state; with lock */
    uint64_t number, taken_ns;
    struct stk_external_call call; /* url is within the block */
    uint8_t *bytes;                /* used by the thread that took it */
    int status;
    struct stk_external_reply reply;
    void (*done)(struct stk_external_request *request, void *owner);
    void *owner;
    char *resolved_url; /* the URL of an alias, for the thread that takes it; secret memory */
    char url[];
};

struct request_list {
    struct stk_external_request *first, *last;
};

struct stoker_external_fs {
    pthread_mutex_t lock;
    pthread_cond_t work, replied; /* there is a request; one is done */
    struct {
        uint32_t users;
        bool closed, has_server;
        uint64_t number, replied_ns; /* the time of the last reply */
        struct request_list waiting, taken;
    } locked;
};

static void add(struct request_list *list, struct stk_external_request *request)
{
    request->next = NULL;
    request->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = request;
    list->last = request;
}

static void remove_request(struct request_list *list, struct stk_external_request *request)
{
    *(request->previous ? &request->previous->next : &list->first) = request->next;
    *(request->next ? &request->next->previous : &list->last) = request->previous;
    request->next = request->previous = NULL;
}

static void request_free(struct stk_external_request *request)
{
    if (request) {
        stk_listing_builder_deinit(&request->reply.listing);
        stk_secret_free(request->resolved_url);
        stk_free(request->bytes);
        stk_free(request);
    }
}

static void finish_locked(struct stoker_external_fs *fs, struct stk_external_request *request,
                          int status)
{
    request->state = DONE;
    request->status = status;
    request->done(request, request->owner);
    pthread_cond_broadcast(&fs->replied);
}

static void reject_locked(struct stoker_external_fs *fs, struct stk_external_request *request)
{
    stk_fail(&request->reply.error, STOKER_ERROR_CLOSED,
             "the external file system of this URL is closed",
             "keep the file system open while its URLs are read", "'%.400s'", request->url);
    finish_locked(fs, request, STOKER_ERROR_CLOSED);
}

/* ---- for threads that serve requests ---- */

int stoker_external_fs_open(struct stoker_external_fs **fs_out, struct stoker_error *error)
{
    struct stoker_external_fs *fs = stk_alloc(1, sizeof *fs);

    *fs_out = fs;
    if (!fs) {
        return stk_fail(error, -ENOMEM, "cannot open an external file system", "free memory",
                        "external file system");
    }
    pthread_mutex_init(&fs->lock, NULL);
    pthread_cond_init(&fs->work, NULL);
    pthread_cond_init(&fs->replied, NULL);
    fs->locked.users = 1;
    return 0;
}

void stoker_external_fs_close(struct stoker_external_fs *fs)
{
    struct stk_external_request *request;

    if (!fs) {
        return;
    }
    pthread_mutex_lock(&fs->lock);
    fs->locked.closed = true;
    while ((request = fs->locked.waiting.first)) {
        remove_request(&fs->locked.waiting, request);
        reject_locked(fs, request);
    }
    /* There may be no reply to a taken request: its caller waits until the deadline at most. */
    pthread_cond_broadcast(&fs->work);
    pthread_mutex_unlock(&fs->lock);
    stk_external_fs_release(fs);
}

void stk_external_fs_retain(struct stoker_external_fs *fs)
{
    pthread_mutex_lock(&fs->lock);
    fs->locked.users++;
    pthread_mutex_unlock(&fs->lock);
}

void stk_external_fs_release(struct stoker_external_fs *fs)
{
    struct stk_external_request *request;
    bool last;

    if (!fs) {
        return;
    }
    pthread_mutex_lock(&fs->lock);
    last = --fs->locked.users == 0;
    pthread_mutex_unlock(&fs->lock);
    if (!last) {
        return;
    }
    while ((request = fs->locked.taken.first)) { /* abandoned by their callers */
        remove_request(&fs->locked.taken, request);
        request_free(request);
    }
    pthread_cond_destroy(&fs->work);
    pthread_cond_destroy(&fs->replied);
    pthread_mutex_destroy(&fs->lock);
    stk_free(fs);
}

bool stk_external_fs_has_server(struct stoker_external_fs *fs)
{
    bool has_server;

    pthread_mutex_lock(&fs->lock);
    has_server = fs->locked.has_server && !fs->locked.closed;
    pthread_mutex_unlock(&fs->lock);
    return has_server;
}

static void copy_strings(struct stk_external_request *request,
                         struct stoker_external_request *request_out)
{
    struct stoker_external_request full = {
        .kind = request->call.kind,
        .number = request->number,
        .url = request->resolved_url,
        .offset = request->call.offset,
        .bytes = request->call.bytes,
        .buffer = request->bytes,
    };

    stk_options_write_output(request_out, &full, sizeof full, "external request", NULL);
}

/* Takes the first waiting request and allocates memory for its bytes; NULL: there is none. */
static struct stk_external_request *take_locked(struct stoker_external_fs *fs)
{
    struct stk_external_request *request;

    while ((request = fs->locked.waiting.first)) {
        remove_request(&fs->locked.waiting, request);
        request->bytes = stk_alloc(stk_max(request->call.bytes, 1u), 1);
        if (request->bytes) {
            request->state = TAKEN;
            request->taken_ns = stk_clock_ns();
            request->number = ++fs->locked.number;
            add(&fs->locked.taken, request);
            return request;
        }
        stk_fail(&request->reply.error, -ENOMEM, "no memory to read into", "free memory",
                 "'%.400s'", request->url);
        finish_locked(fs, request, -ENOMEM);
    }
    return NULL;
}

static bool wait_until(pthread_cond_t *replied, pthread_mutex_t *lock, uint64_t until_ns)
{
    struct timespec until = stk_clock_timespec(until_ns);

    return pthread_cond_clockwait(replied, lock, CLOCK_MONOTONIC, &until) == 0 ||
           stk_clock_ns() < until_ns;
}

int stoker_external_fs_next(struct stoker_external_fs *fs, uint32_t timeout_ms,
                            struct stoker_external_request *request_out, struct stoker_error *error)
{
    uint64_t until_ns = stk_clock_ns() + timeout_ms * 1000000ull;
    struct stk_external_request *request = NULL;
    int result = 0;

    result = stk_options_check_output(request_out, sizeof *request_out,
                                      offsetof(struct stoker_external_request, buffer),
                                      "external request", error);
    if (result < 0) {
        return result;
    }
    pthread_mutex_lock(&fs->lock);
    fs->locked.has_server = true;
    while (!fs->locked.closed && !(request = take_locked(fs)) &&
           wait_until(&fs->work, &fs->lock, until_ns)) {
    }
    if (request) {
        copy_strings(request, request_out);
        result = 1;
    } else if (fs->locked.closed) {
        result = STOKER_ERROR_CLOSED;
    }
    pthread_mutex_unlock(&fs->lock);
    return result == STOKER_ERROR_CLOSED
               ? stk_fail(error, result, "the external file system is closed", "end the thread",
                          "external file system")
               : result;
}

static int read_listing(struct stk_external_request *request,
                        const struct stoker_external_reply *answer)
{
    const char *name = answer->names;
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < answer->name_count; i++) {
        size_t bytes = strlen(name);

        if (bytes > 1 && !strchr(name, '/') && strcmp(name + 1, ".") != 0 &&
            strcmp(name + 1, "..") != 0) {
            bool folder = name[0] == 'd' || name[0] == 'D';
            bool link = name[0] == 'F' || name[0] == 'D';
            struct stk_entry entry = {.name = name + 1,
                                      .kind = folder                   ? STK_ENTRY_DIRECTORY
                                              : link || name[0] == 'f' ? STK_ENTRY_FILE
                                                                       : STK_ENTRY_OTHER,
                                      .link = link};

            status = stk_listing_add(&request->reply.listing, &entry);
        }
        name += bytes + 1;
    }
    return status;
}

/* Copies the reply to a request that cannot be abandoned now. Without the lock. */
static int copy_answer(struct stk_external_request *request,
                       const struct stoker_external_reply *answer)
{
    struct stk_external_reply *reply = &request->reply;
    int status = answer->status;

    if (status < 0) {
        return stk_fail(&reply->error, status, answer->what ? answer->what : "cannot be read",
                        answer->advice ? answer->advice : "check the server", "'%.600s'",
                        request->url);
    }
    if (request->call.kind == STOKER_EXTERNAL_READ) {
        reply->bytes = stk_min(answer->bytes, request->call.bytes);
        if (reply->bytes > 0) {
            memcpy(request->call.buffer, request->bytes, reply->bytes);
        }
    } else if (request->call.kind == STOKER_EXTERNAL_LIST) {
        status = read_listing(request, answer);
    }
    reply->stat =
        (struct stk_stat){.bytes = answer->bytes,
                          .mtime_ns = answer->mtime_ns,
                          .version = answer->version,
                          .kind = answer->is_folder ? STK_ENTRY_DIRECTORY : STK_ENTRY_FILE};
    return status < 0 ? stk_fail(&reply->error, status, "cannot list", "free memory", "'%.400s'",
                                 request->url)
                      : 0;
}

int stoker_external_fs_reply(struct stoker_external_fs *fs, uint64_t number,
                             const struct stoker_external_reply *answer)
{
    struct stk_external_request *request;
    struct stoker_external_reply full;
    int status = stk_options_read(&full, sizeof full, offsetof(struct stoker_external_reply, what),
                                  answer, "external reply", NULL);

    if (status < 0 || full.status > 0) {
        return STOKER_ERROR_ARGUMENT;
    }
    pthread_mutex_lock(&fs->lock);
    for (request = fs->locked.taken.first; request && request->number != number;) {
        request = request->next;
    }
    if (request) {
        remove_request(&fs->locked.taken, request);
    }
    if (!request || request->state == ABANDONED) {
        pthread_mutex_unlock(&fs->lock);
        request_free(request);
        return request ? 0 : STOKER_ERROR_ARGUMENT;
    }
    request->state = COPIED;
    pthread_mutex_unlock(&fs->lock);
    status = copy_answer(request, &full);
    stk_free(request->bytes);
    request->bytes = NULL;
    pthread_mutex_lock(&fs->lock);
    fs->locked.replied_ns = stk_clock_ns();
    finish_locked(fs, request, status);
    pthread_mutex_unlock(&fs->lock);
    return 0;
}

/* ---- for callers of requests ---- */

struct stk_external_request *stk_external_request_new(const struct stk_external_call *call)
{
    size_t bytes = strlen(call->url) + 1;
    struct stk_external_request *request = stk_alloc(1, sizeof *request + bytes);

    if (request) {
        request->call = *call;
        memcpy(request->url, call->url, bytes);
        request->call.url = request->url;
    }
    if (request && stk_url_resolve(call->url, &request->resolved_url) < 0) {
        stk_free(request);
        return NULL;
    }
    return request;
}

void stk_external_request_start(struct stoker_external_fs *fs, struct stk_external_request *request,
                                void (*done)(struct stk_external_request *request, void *owner),
                                void *owner)
{
    request->done = done;
    request->owner = owner;
    pthread_mutex_lock(&fs->lock);
    if (fs->locked.closed) {
        reject_locked(fs, request);
    } else {
        request->state = WAITING;
        add(&fs->locked.waiting, request);
        pthread_cond_signal(&fs->work);
    }
    pthread_mutex_unlock(&fs->lock);
}

static bool abandon_locked(struct stoker_external_fs *fs, struct stk_external_request *request)
{
    if (request->state == WAITING) {
        remove_request(&fs->locked.waiting, request);
        request_free(request);
        return true;
    }
    if (request->state == TAKEN) {
        request->state = ABANDONED; /* freed by the reply */
        return true;
    }
    return false;
}

bool stk_external_request_abandon(struct stoker_external_fs *fs,
                                  struct stk_external_request *request)
{
    bool gone;

    pthread_mutex_lock(&fs->lock);
    gone = abandon_locked(fs, request);
    while (!gone && request->state == COPIED) { /* it copies at most STK_EXTERNAL_FS_READ_BYTES */
        pthread_cond_wait(&fs->replied, &fs->lock);
    }
    pthread_mutex_unlock(&fs->lock);
    return gone;
}

int stk_external_request_end(struct stk_external_request *request,
                             struct stk_external_reply *reply_out)
{
    int status = request->status;

    *reply_out = request->reply;
    request->reply.listing = (struct stk_listing_builder){0};
    request_free(request);
    return status;
}

void stk_external_fs_lock(struct stoker_external_fs *fs)
{
    pthread_mutex_lock(&fs->lock);
}

void stk_external_fs_unlock(struct stoker_external_fs *fs)
{
    pthread_mutex_unlock(&fs->lock);
}

static void note_done(struct stk_external_request *request, void *owner)
{
    (void)request;
    *(bool *)owner = true;
}

/* The start of a request's deadline: when it was taken; while it waits, the time of the last reply
 * to another request. */
static uint64_t start_ns_locked(const struct stoker_external_fs *fs,
                                const struct stk_external_request *request, uint64_t sent_ns)
{
    return stk_max(sent_ns, request->state == WAITING ? fs->locked.replied_ns : request->taken_ns);
}

uint64_t stk_external_request_deadline_ns(struct stoker_external_fs *fs,
                                          const struct stk_external_request *request,
                                          uint64_t sent_ns, uint32_t timeout_ms)
{
    uint64_t begun_ns;

    pthread_mutex_lock(&fs->lock);
    begun_ns = start_ns_locked(fs, request, sent_ns);
    pthread_mutex_unlock(&fs->lock);
    return begun_ns + timeout_ms * 1000000ull;
}

/* Returns 0 if the request is done; TIMEOUT if there was no reply in time, or CLOSED if the thread
 * was cancelled: then the request was abandoned. */
static int wait_locked(struct stoker_external_fs *fs, struct stk_external_request *request,
                       const bool *done, uint32_t timeout_ms)
{
    const _Atomic bool *stop = stk_io_cancel_flag();
    uint64_t sent_ns = stk_clock_ns(), now_ns = sent_ns;
    int status = 0;

    while (!*done && status == 0) {
        uint64_t until_ns = start_ns_locked(fs, request, sent_ns) + timeout_ms * 1000000ull;

        if (stop && atomic_load_explicit(stop, memory_order_relaxed)) {
            status = STOKER_ERROR_CLOSED;
        } else if (now_ns >= until_ns) {
            status = STOKER_ERROR_TIMEOUT;
        } else {
            (void)wait_until(&fs->replied, &fs->lock,
                             stop ? stk_min(until_ns, now_ns + TICK_NS) : until_ns);
            now_ns = stk_clock_ns();
        }
    }
    if (!*done && abandon_locked(fs, request)) {
        return status;
    }
    while (!*done) {
        pthread_cond_wait(&fs->replied, &fs->lock);
    }
    return 0;
}

int stk_external_fs_call(struct stoker_external_fs *fs, const struct stk_external_call *call,
                         uint32_t timeout_ms, struct stk_external_reply *reply_out,
                         struct stoker_error *error)
{
    struct stk_external_request *request = stk_external_request_new(call);
    bool done = false;
    int status;

    *reply_out = (struct stk_external_reply){0};
    if (!request) {
        return stk_fail(error, -ENOMEM, "cannot send a request", "free memory", "'%.400s'",
                        call->url);
    }
    stk_external_request_start(fs, request, note_done, &done);
    pthread_mutex_lock(&fs->lock);
    status = wait_locked(fs, request, &done, timeout_ms);
    pthread_mutex_unlock(&fs->lock);
    if (status == STOKER_ERROR_CLOSED) {
        return stk_fail(error, status, "the read was cancelled", "start it again", "'%.600s'",
                        call->url);
    }
    if (status < 0) {
        return stk_fail(error, status, "no reply within the deadline",
                        "check the server, or raise read_timeout of the engine", "'%.600s'",
                        call->url);
    }
    status = stk_external_request_end(request, reply_out);
    if (status < 0 && error) {
        *error = reply_out->error;
    }
    return status;
}
