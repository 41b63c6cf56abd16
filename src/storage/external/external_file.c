/* Files of the external file system: each operation is a request. */
#include "storage/external/external_fs.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/xxh3.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define DEVICE 0x6775657374ull /* of all external files; their inodes are hashes of URLs */

struct stk_external_file {
    struct stk_file file;   /* first */
    _Atomic uint32_t users; /* its opener, and reads in flight */
    struct stoker_external_fs *fs;
    uint32_t timeout_ms;
    struct stk_stat stat;
    pthread_mutex_t lock;
    struct stoker_error error; /* of the last failed read; with lock */
    char url[];
};

static struct stk_external_file *external_file_of(const struct stk_file *file)
{
    return (struct stk_external_file *)(uintptr_t)file;
}

static uint64_t inode_of(const char *url, size_t bytes)
{
    while (bytes > 0 && url[bytes - 1] == '/') {
        bytes--;
    }
    return stk_xxh3_64(url, bytes);
}

int stk_external_file_stat_url(struct stoker_external_fs *fs, const char *url, uint32_t timeout_ms,
                               struct stk_stat *stat_out, struct stoker_error *error)
{
    struct stk_external_call call = {.kind = STOKER_EXTERNAL_STAT, .url = url};
    struct stk_external_reply reply;
    int status;

    if (strlen(url) >= STK_EXTERNAL_FS_URL_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a URL is too long",
                        "shorten it to less than 4096 bytes", "'%.200s'", url);
    }
    status = stk_external_fs_call(fs, &call, timeout_ms, &reply, error);
    *stat_out = reply.stat;
    stat_out->device = DEVICE;
    stat_out->inode = inode_of(url, strlen(url));
    return status;
}

int stk_external_file_open(struct stoker_external_fs *fs, const char *url, uint32_t timeout_ms,
                           struct stk_file **file_out, struct stoker_error *error)
{
    size_t bytes = strlen(url) + 1;
    struct stk_external_file *external;
    struct stk_stat stat;
    int status = stk_external_file_stat_url(fs, url, timeout_ms, &stat, error);

    if (status < 0) {
        return status;
    }
    if (stat.kind != STK_ENTRY_FILE) {
        return stk_fail_errno(error, EISDIR, "cannot open", "name a file in it", "'%.600s'", url);
    }
    external = stk_alloc(1, sizeof *external + bytes);
    if (!external) {
        return stk_fail(error, -ENOMEM, "cannot open", "free memory", "'%.600s'", url);
    }
    atomic_init(&external->users, 1);
    stk_external_fs_retain(fs);
    external->fs = fs;
    external->timeout_ms = timeout_ms;
    external->stat = stat;
    pthread_mutex_init(&external->lock, NULL);
    memcpy(external->url, url, bytes);
    external->file.ops = &stk_external_file_ops;
    *file_out = &external->file;
    return 0;
}

void stk_external_file_retain(const struct stk_file *file)
{
    atomic_fetch_add_explicit(&external_file_of(file)->users, 1, memory_order_relaxed);
}

void stk_external_file_close(struct stk_file *file)
{
    struct stk_external_file *external = external_file_of(file);

    /* Release and acquire: the last user sees all writes of the others. */
    if (atomic_fetch_sub_explicit(&external->users, 1, memory_order_acq_rel) == 1) {
        stk_external_fs_release(external->fs);
        pthread_mutex_destroy(&external->lock);
        stk_free(external);
    }
}

int stk_external_file_stat(struct stk_file *file, struct stk_stat *stat_out,
                           struct stoker_error *error)
{
    (void)error;
    *stat_out = external_file_of(file)->stat;
    return 0;
}

int stk_external_file_list(struct stoker_external_fs *fs, const char *url, uint32_t timeout_ms,
                           struct stk_listing *listing_out, struct stoker_error *error)
{
    struct stk_external_call call = {.kind = STOKER_EXTERNAL_LIST, .url = url};
    char path[2 * STK_EXTERNAL_FS_URL_BYTES_MAX];
    struct stk_external_reply reply;
    int status = stk_external_fs_call(fs, &call, timeout_ms, &reply, error);
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
        size_t bytes = stk_min(strlen(entry->name), STK_EXTERNAL_FS_URL_BYTES_MAX - 2);

        memcpy(path + stem, entry->name, bytes);
        entry->device = DEVICE;
        entry->inode = inode_of(path, stem + bytes);
    }
    stk_listing_builder_deinit(&reply.listing);
    return status;
}

void stk_external_file_get_info(const struct stk_file *file, uint64_t offset,
                                struct stk_external_file_info *read_out)
{
    const struct stk_external_file *external = external_file_of(file);

    *read_out = (struct stk_external_file_info){
        .url = external->url,
        .timeout_ms = external->timeout_ms,
        .bytes_left = external->stat.bytes - stk_min(offset, external->stat.bytes)};
}

int64_t stk_external_file_finish_read(const struct stk_file *file, int status,
                                      const struct stk_external_reply *reply, uint64_t expected)
{
    struct stk_external_file *external = external_file_of(file);
    struct stoker_error error = reply->error;

    if (status == 0 && reply->bytes == expected) {
        return (int64_t)expected;
    }
    if (status == 0) {
        status =
            stk_fail(&error, STOKER_ERROR_CHANGED, "the file is shorter than when it was opened",
                     "open the data set again", "'%.600s'", external->url);
    }
    pthread_mutex_lock(&external->lock);
    external->error = error;
    pthread_mutex_unlock(&external->lock);
    return status;
}

int64_t stk_external_file_read(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    const struct stk_external_file *external = external_file_of(file);
    uint64_t expected =
        offset < external->stat.bytes ? stk_min(bytes, external->stat.bytes - offset) : 0;
    int64_t got = 0;

    for (uint64_t done = 0; done < expected && got >= 0; done += (uint64_t)got) {
        struct stk_external_call call = {
            .kind = STOKER_EXTERNAL_READ,
            .url = external->url,
            .offset = offset + done,
            .buffer = (uint8_t *)buffer + done,
            .bytes = (uint32_t)stk_min(expected - done, STK_EXTERNAL_FS_READ_BYTES)};
        struct stoker_error error = {0};
        struct stk_external_reply reply;
        int status =
            stk_external_fs_call(external->fs, &call, external->timeout_ms, &reply, &error);

        reply.error = error;
        got = stk_external_file_finish_read(file, status, &reply, call.bytes);
    }
    return got < 0 ? got : (int64_t)expected;
}

bool stk_external_file_last_error(struct stk_file *file, int status, struct stoker_error *error_out)
{
    struct stk_external_file *external = external_file_of(file);
    bool found;

    pthread_mutex_lock(&external->lock);
    found = external->error.status == status;
    if (found) {
        *error_out = external->error;
    }
    pthread_mutex_unlock(&external->lock);
    return found;
}

int stk_external_file_map(struct stk_file *file, uint8_t **pages_out, uint64_t *bytes_out,
                          struct stoker_error *error)
{
    const struct stk_external_file *external = external_file_of(file);
    int64_t got;

    *bytes_out = external->stat.bytes;
    if (*bytes_out > STK_EXTERNAL_FS_MAP_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a remote file is too large to be mapped",
                        "copy it to a disk of this machine", "'%.600s': %llu bytes", external->url,
                        (unsigned long long)*bytes_out);
    }
    *pages_out = stk_pages_alloc(stk_max(*bytes_out, 1u));
    if (!*pages_out) {
        return stk_fail(error, -ENOMEM, "cannot hold a remote file", "free memory", "'%.600s'",
                        external->url);
    }
    got = stk_external_file_read(file, 0, *pages_out, *bytes_out);
    if (got < 0) {
        stk_pages_free(*pages_out, stk_max(*bytes_out, 1u));
        (void)(error && stk_external_file_last_error(file, (int)got, error));
        return (int)got;
    }
    return 0;
}

/* None of its bytes is in memory. */
static int64_t read_now(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    (void)file;
    (void)offset;
    (void)buffer;
    (void)bytes;
    return -EAGAIN;
}

const struct stk_file_ops stk_external_file_ops = {.close = stk_external_file_close,
                                                   .stat = stk_external_file_stat,
                                                   .read_now = read_now,
                                                   .read_wait = stk_external_file_read,
                                                   .last_error = stk_external_file_last_error,
                                                   .round_trip_bytes =
                                                       STK_EXTERNAL_FS_ROUND_TRIP_BYTES};
