/* Open files of a data set: slots of containers, and their eviction. */
#include "dataset/open_files.h"

#include "base/mem.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <inttypes.h>

static bool close_one(void *owner);

void stk_open_files_init(struct stk_open_files *files, struct stoker_engine *engine)
{
    *files = (struct stk_open_files){.engine = engine,
                                     .cache = {.close_one = close_one, .owner = files}};
    pthread_mutex_init(&files->lock, NULL);
    stk_descriptors_add_cache(&files->cache);
    pthread_mutex_init(&files->stamp_lock, NULL);
}

void stk_open_files_deinit(struct stk_open_files *files)
{
    stk_descriptors_remove_cache(&files->cache);
    for (uint32_t i = 0; files->locked.slots && i < files->locked.slot_count; i++) {
        if (files->locked.slots[i].file) {
            stk_io_close_file(files->locked.slots[i].file);
        }
    }
    stk_free(files->locked.slots);
    stk_free(files->ranges);
    pthread_mutex_destroy(&files->lock);
    pthread_mutex_destroy(&files->stamp_lock);
}

int stk_open_files_reserve(struct stk_open_files *files, uint64_t count, struct stoker_error *error)
{
    STK_ASSERT(!files->locked.slots && count <= UINT32_MAX);
    files->locked.slots = stk_alloc(count, sizeof *files->locked.slots);
    if (!files->locked.slots) {
        return stk_fail(error, -ENOMEM, "cannot open a data set", "free memory",
                        "%" PRIu64 " shards", count);
    }
    files->locked.slot_count = (uint32_t)count;
    return 0;
}

/* Returns the slot of a shard; NULL: it is a file of a class folder. */
static struct stk_open_file *slot_of(const struct stk_open_files *files, uint32_t shard)
{
    uint32_t i = 0;

    if (!files->locked.slots || !files->ranges) {
        return files->locked.slots ? &files->locked.slots[shard] : NULL;
    }
    while (files->ranges[i].end <= shard) {
        i++;
    }
    return files->ranges[i].files_before == UINT64_MAX
               ? NULL
               : &files->locked.slots[shard - files->ranges[i].files_before];
}

struct stk_file_stamp *stk_open_files_stamp(struct stk_open_files *files, uint32_t shard)
{
    struct stk_open_file *slot = slot_of(files, shard);

    return slot ? &slot->stamp : NULL;
}

/* Takes the file of a slot that is idle and was not used lately. NULL: there is none. */
static struct stk_file *evict_locked(struct stk_open_files *files)
{
    uint32_t count = files->locked.slot_count;

    for (uint64_t step = 0; step < 2ull * count; step++) {
        struct stk_open_file *slot = &files->locked.slots[files->locked.hand];
        struct stk_file *file = slot->file;

        files->locked.hand = (files->locked.hand + 1) % count;
        if (!file || slot->pins > 0) {
            continue;
        }
        if (slot->recent) {
            slot->recent = false;
            continue;
        }
        slot->file = NULL;
        files->locked.open_count--;
        return file;
    }
    return NULL;
}

/* The process has too many open files. */
static bool close_one(void *owner)
{
    struct stk_open_files *files = owner;
    struct stk_file *file;

    pthread_mutex_lock(&files->lock);
    file = files->locked.slots ? evict_locked(files) : NULL;
    pthread_mutex_unlock(&files->lock);
    if (file) {
        stk_io_close_file(file);
    }
    return file != NULL;
}

static int open_shard(const struct stk_open_files *files, const struct stk_index *index,
                      uint32_t shard, struct stk_file **file_out, struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX];
    int status = stk_index_path(index, shard, path, error);

    return status < 0 ? status : stk_io_open_file(files->engine->io, path, file_out, error);
}

static int pin_folder_file(struct stk_open_files *files, const struct stk_index *index,
                           uint32_t shard, struct stk_file **file_out, struct stoker_error *error)
{
    int status = open_shard(files, index, shard, file_out, error);

    if (status == 0 && stk_vfs_round_trip_bytes(*file_out) == 0) {
        pthread_mutex_lock(&files->lock); /* a remote object is no open file */
        files->locked.in_use++;
        pthread_mutex_unlock(&files->lock);
    }
    return status;
}

int stk_open_files_pin(struct stk_open_files *files, const struct stk_index *index, uint32_t shard,
                       struct stk_file **file_out, struct stoker_error *error)
{
    struct stk_open_file *slot = slot_of(files, shard);
    struct stk_file *file, *evicted = NULL;
    int status;

    if (!slot) {
        return pin_folder_file(files, index, shard, file_out, error);
    }
    pthread_mutex_lock(&files->lock);
    if (!slot->file) {
        /* Opened without the lock. If two threads open it, the second one closes its file. */
        pthread_mutex_unlock(&files->lock);
        status = open_shard(files, index, shard, &file, error);
        if (status < 0) {
            return status;
        }
        pthread_mutex_lock(&files->lock);
        if (slot->file) {
            evicted = file;
        } else {
            if (files->locked.open_count >= files->engine->options.open_files_max) {
                evicted = evict_locked(files);
            }
            slot->file = file;
            files->locked.open_count++;
        }
    }
    files->locked.in_use += slot->pins++ == 0;
    slot->recent = true;
    *file_out = slot->file;
    pthread_mutex_unlock(&files->lock);
    if (evicted) {
        stk_io_close_file(evicted);
    }
    return 0;
}

void stk_open_files_unpin(struct stk_open_files *files, uint32_t shard, struct stk_file *file)
{
    struct stk_open_file *slot = slot_of(files, shard);

    if (!slot) {
        bool is_remote = stk_vfs_round_trip_bytes(file) > 0;

        stk_io_close_file(file);
        if (is_remote) {
            return;
        }
    }
    pthread_mutex_lock(&files->lock);
    STK_ASSERT(!slot || slot->pins > 0);
    files->locked.in_use -= !slot || --slot->pins == 0;
    pthread_mutex_unlock(&files->lock);
}

bool stk_open_files_at_limit(struct stk_open_files *files, uint32_t shard)
{
    const struct stk_open_file *slot = slot_of(files, shard);
    bool at_limit;

    pthread_mutex_lock(&files->lock);
    at_limit =
        files->locked.in_use >= files->engine->options.open_files_max && (!slot || slot->pins == 0);
    pthread_mutex_unlock(&files->lock);
    return at_limit;
}

void stk_open_files_reopen_later(struct stk_open_files *files, uint32_t shard)
{
    struct stk_open_file *slot = slot_of(files, shard);
    struct stk_file *file = NULL;

    pthread_mutex_lock(&files->lock);
    if (slot && slot->pins == 0) {
        file = slot->file;
        slot->file = NULL;
        files->locked.open_count -= file != NULL;
    }
    pthread_mutex_unlock(&files->lock);
    if (file) {
        stk_io_close_file(file);
    }
}
