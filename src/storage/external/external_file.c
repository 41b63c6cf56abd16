/* Files whose bytes are brought by errands. */
#include "storage/external/external_fs.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/xxh3.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define DEVICE 0x6775657374ull /* of all of them; inodes are hashes of URLs */

struct stk_guest {
    _Atomic uint32_t users; /* its opener, and reads in flight */
    struct stoker_desk *desk;
    uint32_t timeout_ms;
    struct stk_stat stat;
    pthread_mutex_t lock;
    struct stoker_error error; /* of the read that failed last; with lock */
    char url[];
};

static struct stk_guest *guest_of(const struct stk_file *file)
{
    return (struct stk_guest *)((uintptr_t)file - 2);
}

static uint64_t inode_of(const char *url, size_t bytes)
{
    while (bytes > 0 && url[bytes - 1] == '/') {
        bytes--;
    }
    return stk_sum64(url, bytes);
}

int stk_guest_stat(struct stoker_desk *desk, const char *url, uint32_t timeout_ms,
                   struct stk_stat *stat_out, struct stoker_error *error)
{
    struct stk_wish wish = {.kind = STOKER_ERRAND_STAT, .url = url};
    struct stk_reply reply;
    int status;

    if (strlen(url) >= STK_DESK_URL_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a URL is too long",
                        "shorten it to less than 4096 bytes", "'%.200s'", url);
    }
    status = stk_desk_call(desk, &wish, timeout_ms, &reply, error);
    *stat_out = reply.stat;
    stat_out->device = DEVICE;
    stat_out->inode = inode_of(url, strlen(url));
    return status;
}

int stk_guest_open(struct stoker_desk *desk, const char *url, uint32_t timeout_ms,
                   struct stk_file **file_out, struct stoker_error *error)
{
    size_t bytes = strlen(url) + 1;
    struct stk_guest *guest;
    struct stk_stat stat;
    int status = stk_guest_stat(desk, url, timeout_ms, &stat, error);

    if (status < 0) {
        return status;
    }
    if (stat.kind != STK_ENTRY_FILE) {
        return stk_fail_errno(error, EISDIR, "cannot open", "name a file in it", "'%.600s'", url);
    }
    guest = stk_alloc(1, sizeof *guest + bytes);
    if (!guest) {
        return stk_fail(error, -ENOMEM, "cannot open", "free memory", "'%.600s'", url);
    }
    atomic_init(&guest->users, 1);
    stk_desk_acquire(desk);
    guest->desk = desk;
    guest->timeout_ms = timeout_ms;
    guest->stat = stat;
    pthread_mutex_init(&guest->lock, NULL);
    memcpy(guest->url, url, bytes);
    *file_out = (struct stk_file *)((uintptr_t)guest | 2);
    return 0;
}

void stk_guest_acquire(const struct stk_file *file)
{
    atomic_fetch_add_explicit(&guest_of(file)->users, 1, memory_order_relaxed);
}

void stk_guest_close(struct stk_file *file)
{
    struct stk_guest *guest = guest_of(file);

    /* Release and acquire: the last one sees all that the others did with it. */
    if (atomic_fetch_sub_explicit(&guest->users, 1, memory_order_acq_rel) == 1) {
        stk_desk_release(guest->desk);
        pthread_mutex_destroy(&guest->lock);
        stk_free(guest);
    }
}

void stk_guest_stat_file(const struct stk_file *file, struct stk_stat *stat_out)
{
    *stat_out = guest_of(file)->stat;
}

int stk_guest_list(struct stoker_desk *desk, const char *url, uint32_t timeout_ms,
                   struct stk_listing *listing_out, struct stoker_error *error)
{
    struct stk_wish wish = {.kind = STOKER_ERRAND_LIST, .url = url};
    char path[2 * STK_DESK_URL_BYTES_MAX];
    struct stk_reply reply;
    int status = stk_desk_call(desk, &wish, timeout_ms, &reply, error);
    size_t stem = strlen(url);

    if (status == 0) {
        memcpy(path, url, stem);
        if (stem > 0 && path[stem - 1] != '/') {
            path[stem++] = '/';
        }
        status = stk_listing_build(&reply.listing, listing_out);
    }
    if (status == -ENOMEM) {
        stk_fail(error, status, "cannot list", "free memory", "'%.400s'", url);
    }
    for (size_t i = 0; status == 0 && i < listing_out->count; i++) {
        struct stk_entry *entry = &listing_out->entries[i];
        size_t bytes = stk_min(strlen(entry->name), STK_DESK_URL_BYTES_MAX - 2);

        memcpy(path + stem, entry->name, bytes);
        entry->device = DEVICE;
        entry->inode = inode_of(path, stem + bytes);
    }
    stk_listing_builder_deinit(&reply.listing);
    return status;
}

void stk_guest_about(const struct stk_file *file, uint64_t offset, struct stk_guest_read *read_out)
{
    const struct stk_guest *guest = guest_of(file);

    *read_out = (struct stk_guest_read){.url = guest->url,
                                        .timeout_ms = guest->timeout_ms,
                                        .bytes_left =
                                            guest->stat.bytes - stk_min(offset, guest->stat.bytes)};
}

int64_t stk_guest_settle(const struct stk_file *file, int status, const struct stk_reply *reply,
                         uint64_t wanted)
{
    struct stk_guest *guest = guest_of(file);
    struct stoker_error error = reply->error;

    if (status == 0 && reply->bytes == wanted) {
        return (int64_t)wanted;
    }
    if (status == 0) {
        status = stk_fail(&error, STOKER_ERROR_CHANGED, "it is shorter than when it was opened",
                          "open the data set again", "'%.600s'", guest->url);
    }
    pthread_mutex_lock(&guest->lock);
    guest->error = error;
    pthread_mutex_unlock(&guest->lock);
    return status;
}

int64_t stk_guest_read(const struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    const struct stk_guest *guest = guest_of(file);
    uint64_t wanted = offset < guest->stat.bytes ? stk_min(bytes, guest->stat.bytes - offset) : 0;
    int64_t got = 0;

    for (uint64_t done = 0; done < wanted && got >= 0; done += (uint64_t)got) {
        struct stk_wish wish = {.kind = STOKER_ERRAND_READ,
                                .url = guest->url,
                                .offset = offset + done,
                                .buffer = (uint8_t *)buffer + done,
                                .bytes = (uint32_t)stk_min(wanted - done, STK_DESK_PIECE_BYTES)};
        struct stoker_error error = {0};
        struct stk_reply reply;
        int status = stk_desk_call(guest->desk, &wish, guest->timeout_ms, &reply, &error);

        reply.error = error;
        got = stk_guest_settle(file, status, &reply, wish.bytes);
    }
    return got < 0 ? got : (int64_t)wanted;
}

bool stk_guest_explain(const struct stk_file *file, int status, struct stoker_error *error_out)
{
    struct stk_guest *guest = guest_of(file);
    bool known;

    pthread_mutex_lock(&guest->lock);
    known = guest->error.status == status;
    if (known) {
        *error_out = guest->error;
    }
    pthread_mutex_unlock(&guest->lock);
    return known;
}

int stk_guest_map(const struct stk_file *file, uint8_t **pages_out, uint64_t *bytes_out,
                  struct stoker_error *error)
{
    const struct stk_guest *guest = guest_of(file);
    int64_t got;

    *bytes_out = guest->stat.bytes;
    if (*bytes_out > STK_DESK_MAP_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a remote file is too large to be mapped",
                        "copy it to a disk of this machine", "'%.600s': %llu bytes", guest->url,
                        (unsigned long long)*bytes_out);
    }
    *pages_out = stk_pages_alloc(stk_max(*bytes_out, 1u));
    if (!*pages_out) {
        return stk_fail(error, -ENOMEM, "cannot hold a remote file", "free memory", "'%.600s'",
                        guest->url);
    }
    got = stk_guest_read(file, 0, *pages_out, *bytes_out);
    if (got < 0) {
        stk_pages_free(*pages_out, stk_max(*bytes_out, 1u));
        (void)(error && stk_guest_explain(file, (int)got, error));
        return (int)got;
    }
    return 0;
}
