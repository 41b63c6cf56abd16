/* The desk itself: errands that wait, that are taken, and what is answered. */
#include "storage/external/external_fs.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "io/clock.h"
#include "storage/url/url_alias.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define TICK_NS 100000000ull /* within which one that is to end ends */

enum errand_state { NEW = 0, WAITING, TAKEN, COPIED, LEFT, DONE };

struct stk_errand {
    struct stk_errand *next, *previous; /* of waiting, or of taken */
    uint32_t state;                     /* enum errand_state; with the desk's lock */
    uint64_t number, taken_ns;
    struct stk_wish wish; /* url is within the block */
    uint8_t *bytes;       /* lent to who took it */
    int status;
    struct stk_reply reply;
    void (*done)(struct stk_errand *errand, void *owner);
    void *owner;
    char *whole; /* what url stands for, which is what its reader asks for; hidden */
    char url[];
};

struct errands {
    struct stk_errand *first, *last;
};

struct stoker_desk {
    pthread_mutex_t lock;
    pthread_cond_t work, told; /* there is an errand; one is done */
    struct {
        uint32_t users;
        bool closed, manned;
        uint64_t number, answered_ns; /* the last one was */
        struct errands waiting, taken;
    } locked;
};

static void add(struct errands *list, struct stk_errand *errand)
{
    errand->next = NULL;
    errand->previous = list->last;
    *(list->last ? &list->last->next : &list->first) = errand;
    list->last = errand;
}

static void take_out(struct errands *list, struct stk_errand *errand)
{
    *(errand->previous ? &errand->previous->next : &list->first) = errand->next;
    *(errand->next ? &errand->next->previous : &list->last) = errand->previous;
    errand->next = errand->previous = NULL;
}

static void errand_free(struct stk_errand *errand)
{
    if (errand) {
        stk_listing_builder_deinit(&errand->reply.listing);
        stk_hidden_free(errand->whole);
        stk_free(errand->bytes);
        stk_free(errand);
    }
}

static void finish_locked(struct stoker_desk *desk, struct stk_errand *errand, int status)
{
    errand->state = DONE;
    errand->status = status;
    errand->done(errand, errand->owner);
    pthread_cond_broadcast(&desk->told);
}

static void refuse_locked(struct stoker_desk *desk, struct stk_errand *errand)
{
    stk_fail(&errand->reply.error, STOKER_ERROR_CLOSED, "nobody reads from this URL any more",
             "keep open what reads it", "'%.400s'", errand->url);
    finish_locked(desk, errand, STOKER_ERROR_CLOSED);
}

/* ---- for those who run errands ---- */

int stoker_desk_open(struct stoker_desk **desk_out, struct stoker_error *error)
{
    struct stoker_desk *desk = stk_alloc(1, sizeof *desk);

    *desk_out = desk;
    if (!desk) {
        return stk_fail(error, -ENOMEM, "cannot open a desk", "free memory", "desk");
    }
    pthread_mutex_init(&desk->lock, NULL);
    pthread_cond_init(&desk->work, NULL);
    pthread_cond_init(&desk->told, NULL);
    desk->locked.users = 1;
    return 0;
}

void stoker_desk_close(struct stoker_desk *desk)
{
    struct stk_errand *errand;

    if (!desk) {
        return;
    }
    pthread_mutex_lock(&desk->lock);
    desk->locked.closed = true;
    while ((errand = desk->locked.waiting.first)) {
        take_out(&desk->locked.waiting, errand);
        refuse_locked(desk, errand);
    }
    /* What is taken may be answered by nobody: its asker waits until the deadline at most. */
    pthread_cond_broadcast(&desk->work);
    pthread_mutex_unlock(&desk->lock);
    stk_desk_release(desk);
}

void stk_desk_acquire(struct stoker_desk *desk)
{
    pthread_mutex_lock(&desk->lock);
    desk->locked.users++;
    pthread_mutex_unlock(&desk->lock);
}

void stk_desk_release(struct stoker_desk *desk)
{
    struct stk_errand *errand;
    bool last;

    if (!desk) {
        return;
    }
    pthread_mutex_lock(&desk->lock);
    last = --desk->locked.users == 0;
    pthread_mutex_unlock(&desk->lock);
    if (!last) {
        return;
    }
    while ((errand = desk->locked.taken.first)) { /* left by who asked */
        take_out(&desk->locked.taken, errand);
        errand_free(errand);
    }
    pthread_cond_destroy(&desk->work);
    pthread_cond_destroy(&desk->told);
    pthread_mutex_destroy(&desk->lock);
    stk_free(desk);
}

bool stk_desk_is_manned(struct stoker_desk *desk)
{
    bool manned;

    pthread_mutex_lock(&desk->lock);
    manned = desk->locked.manned && !desk->locked.closed;
    pthread_mutex_unlock(&desk->lock);
    return manned;
}

static void lend(struct stk_errand *errand, struct stoker_errand *errand_out)
{
    errand_out->kind = errand->wish.kind;
    errand_out->number = errand->number;
    errand_out->url = errand->whole;
    errand_out->offset = errand->wish.offset;
    errand_out->bytes = errand->wish.bytes;
    errand_out->buffer = errand->bytes;
}

/* The first that waits, with memory for its bytes; NULL: there is none. */
static struct stk_errand *take_locked(struct stoker_desk *desk)
{
    struct stk_errand *errand;

    while ((errand = desk->locked.waiting.first)) {
        take_out(&desk->locked.waiting, errand);
        errand->bytes = stk_alloc(stk_max(errand->wish.bytes, 1u), 1);
        if (errand->bytes) {
            errand->state = TAKEN;
            errand->taken_ns = stk_clock_ns();
            errand->number = ++desk->locked.number;
            add(&desk->locked.taken, errand);
            return errand;
        }
        stk_fail(&errand->reply.error, -ENOMEM, "no memory to read into", "free memory", "'%.400s'",
                 errand->url);
        finish_locked(desk, errand, -ENOMEM);
    }
    return NULL;
}

static bool wait_until(pthread_cond_t *told, pthread_mutex_t *lock, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};

    return pthread_cond_clockwait(told, lock, CLOCK_MONOTONIC, &until) == 0 ||
           stk_clock_ns() < until_ns;
}

int stoker_desk_next(struct stoker_desk *desk, uint32_t timeout_ms,
                     struct stoker_errand *errand_out, struct stoker_error *error)
{
    uint64_t until_ns = stk_clock_ns() + timeout_ms * 1000000ull;
    struct stk_errand *errand = NULL;
    int result = 0;

    if (errand_out->struct_size != sizeof *errand_out) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "struct_size is not set",
                        "set errand.struct_size = sizeof errand", "desk");
    }
    pthread_mutex_lock(&desk->lock);
    desk->locked.manned = true;
    while (!desk->locked.closed && !(errand = take_locked(desk)) &&
           wait_until(&desk->work, &desk->lock, until_ns)) {
    }
    if (errand) {
        lend(errand, errand_out);
        result = 1;
    } else if (desk->locked.closed) {
        result = STOKER_ERROR_CLOSED;
    }
    pthread_mutex_unlock(&desk->lock);
    return result == STOKER_ERROR_CLOSED
               ? stk_fail(error, result, "the desk is closed", "end the thread", "desk")
               : result;
}

static int take_names(struct stk_errand *errand, const struct stoker_errand_answer *answer)
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

            status = stk_listing_add(&errand->reply.listing, &entry);
        }
        name += bytes + 1;
    }
    return status;
}

/* Of an errand that nobody may give up now, without the lock. */
static int copy_answer(struct stk_errand *errand, const struct stoker_errand_answer *answer)
{
    struct stk_reply *reply = &errand->reply;
    int status = answer->status;

    if (status < 0) {
        return stk_fail(&reply->error, status, answer->what ? answer->what : "cannot be read",
                        answer->advice ? answer->advice : "look at the server", "'%.600s'",
                        errand->url);
    }
    if (errand->wish.kind == STOKER_ERRAND_READ) {
        reply->bytes = stk_min(answer->bytes, errand->wish.bytes);
        if (reply->bytes > 0) {
            memcpy(errand->wish.buffer, errand->bytes, reply->bytes);
        }
    } else if (errand->wish.kind == STOKER_ERRAND_LIST) {
        status = take_names(errand, answer);
    }
    reply->stat = (struct stk_stat){.bytes = answer->bytes,
                                    .mtime_ns = answer->mtime_ns,
                                    .version = answer->version,
                                    .kind = answer->folder ? STK_ENTRY_DIRECTORY : STK_ENTRY_FILE};
    return status < 0 ? stk_fail(&reply->error, status, "cannot list", "free memory", "'%.400s'",
                                 errand->url)
                      : 0;
}

int stoker_desk_answer(struct stoker_desk *desk, uint64_t number,
                       const struct stoker_errand_answer *answer)
{
    struct stk_errand *errand;
    int status;

    if (answer->struct_size != sizeof *answer || answer->status > 0) {
        return STOKER_ERROR_ARGUMENT;
    }
    pthread_mutex_lock(&desk->lock);
    for (errand = desk->locked.taken.first; errand && errand->number != number;) {
        errand = errand->next;
    }
    if (errand) {
        take_out(&desk->locked.taken, errand);
    }
    if (!errand || errand->state == LEFT) {
        pthread_mutex_unlock(&desk->lock);
        errand_free(errand);
        return errand ? 0 : STOKER_ERROR_ARGUMENT;
    }
    errand->state = COPIED;
    pthread_mutex_unlock(&desk->lock);
    status = copy_answer(errand, answer);
    stk_free(errand->bytes);
    errand->bytes = NULL;
    pthread_mutex_lock(&desk->lock);
    desk->locked.answered_ns = stk_clock_ns();
    finish_locked(desk, errand, status);
    pthread_mutex_unlock(&desk->lock);
    return 0;
}

/* ---- for those who ask ---- */

struct stk_errand *stk_errand_new(const struct stk_wish *wish)
{
    size_t bytes = strlen(wish->url) + 1;
    struct stk_errand *errand = stk_alloc(1, sizeof *errand + bytes);

    if (errand) {
        errand->wish = *wish;
        memcpy(errand->url, wish->url, bytes);
        errand->wish.url = errand->url;
    }
    if (errand && stk_vault_whole(wish->url, &errand->whole) < 0) {
        stk_free(errand);
        return NULL;
    }
    return errand;
}

void stk_errand_start(struct stoker_desk *desk, struct stk_errand *errand,
                      void (*done)(struct stk_errand *errand, void *owner), void *owner)
{
    errand->done = done;
    errand->owner = owner;
    pthread_mutex_lock(&desk->lock);
    if (desk->locked.closed) {
        refuse_locked(desk, errand);
    } else {
        errand->state = WAITING;
        add(&desk->locked.waiting, errand);
        pthread_cond_signal(&desk->work);
    }
    pthread_mutex_unlock(&desk->lock);
}

static bool give_up_locked(struct stoker_desk *desk, struct stk_errand *errand)
{
    if (errand->state == WAITING) {
        take_out(&desk->locked.waiting, errand);
        errand_free(errand);
        return true;
    }
    if (errand->state == TAKEN) {
        errand->state = LEFT; /* freed when it is answered */
        return true;
    }
    return false;
}

bool stk_errand_give_up(struct stoker_desk *desk, struct stk_errand *errand)
{
    bool gone;

    pthread_mutex_lock(&desk->lock);
    gone = give_up_locked(desk, errand);
    while (!gone && errand->state == COPIED) { /* at most STK_DESK_PIECE_BYTES */
        pthread_cond_wait(&desk->told, &desk->lock);
    }
    pthread_mutex_unlock(&desk->lock);
    return gone;
}

int stk_errand_end(struct stk_errand *errand, struct stk_reply *reply_out)
{
    int status = errand->status;

    *reply_out = errand->reply;
    errand->reply.listing = (struct stk_listing_builder){0};
    errand_free(errand);
    return status;
}

void stk_desk_lock(struct stoker_desk *desk)
{
    pthread_mutex_lock(&desk->lock);
}

void stk_desk_unlock(struct stoker_desk *desk)
{
    pthread_mutex_unlock(&desk->lock);
}

static void note_done(struct stk_errand *errand, void *owner)
{
    (void)errand;
    *(bool *)owner = true;
}

/* Since when it may be late: who took it has his time from then, and what waits for somebody to
 * take it is not late while others are answered. */
static uint64_t begun_locked(const struct stoker_desk *desk, const struct stk_errand *errand,
                             uint64_t asked_ns)
{
    return stk_max(asked_ns,
                   errand->state == WAITING ? desk->locked.answered_ns : errand->taken_ns);
}

uint64_t stk_errand_late_ns(struct stoker_desk *desk, const struct stk_errand *errand,
                            uint64_t asked_ns, uint32_t timeout_ms)
{
    uint64_t begun_ns;

    pthread_mutex_lock(&desk->lock);
    begun_ns = begun_locked(desk, errand, asked_ns);
    pthread_mutex_unlock(&desk->lock);
    return begun_ns + timeout_ms * 1000000ull;
}

/* 0: it is done. TIMEOUT: nobody answered in time, CLOSED: the caller's thread is to end; then it
 * was given up. */
static int wait_locked(struct stoker_desk *desk, struct stk_errand *errand, const bool *done,
                       uint32_t timeout_ms)
{
    const _Atomic bool *stop = stk_io_obeyed();
    uint64_t asked_ns = stk_clock_ns(), now_ns = asked_ns;
    int status = 0;

    while (!*done && status == 0) {
        uint64_t until_ns = begun_locked(desk, errand, asked_ns) + timeout_ms * 1000000ull;

        if (stop && atomic_load_explicit(stop, memory_order_relaxed)) {
            status = STOKER_ERROR_CLOSED;
        } else if (now_ns >= until_ns) {
            status = STOKER_ERROR_TIMEOUT;
        } else {
            (void)wait_until(&desk->told, &desk->lock,
                             stop ? stk_min(until_ns, now_ns + TICK_NS) : until_ns);
            now_ns = stk_clock_ns();
        }
    }
    if (!*done && give_up_locked(desk, errand)) {
        return status;
    }
    while (!*done) {
        pthread_cond_wait(&desk->told, &desk->lock);
    }
    return 0;
}

int stk_desk_call(struct stoker_desk *desk, const struct stk_wish *wish, uint32_t timeout_ms,
                  struct stk_reply *reply_out, struct stoker_error *error)
{
    struct stk_errand *errand = stk_errand_new(wish);
    bool done = false;
    int status;

    *reply_out = (struct stk_reply){0};
    if (!errand) {
        return stk_fail(error, -ENOMEM, "cannot ask", "free memory", "'%.400s'", wish->url);
    }
    stk_errand_start(desk, errand, note_done, &done);
    pthread_mutex_lock(&desk->lock);
    status = wait_locked(desk, errand, &done, timeout_ms);
    pthread_mutex_unlock(&desk->lock);
    if (status == STOKER_ERROR_CLOSED) {
        return stk_fail(error, status, "it was stopped", "begin it again", "'%.600s'", wish->url);
    }
    if (status < 0) {
        return stk_fail(error, status, "no answer within the deadline",
                        "look at the server, or raise read_timeout of the engine", "'%.600s'",
                        wish->url);
    }
    status = stk_errand_end(errand, reply_out);
    if (status < 0 && error) {
        *error = reply_out->error;
    }
    return status;
}
