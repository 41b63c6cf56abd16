/* The functions of io/io.h and io/write.h, which call the tables of the implementation; and the
 * builder of listings. */
#include "io/io.h"

#include "base/mem.h"
#include "base/text/text_match.h"
#include "io/listing.h"
#include "io/write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare_names(const void *left, const void *right);

void stk_io_close(struct stk_io *io)
{
    if (io) {
        io->table->close(io);
    }
}

int stk_io_open_file(struct stk_io *io, const char *path, struct stk_file **file_out,
                     struct stoker_error *error)
{
    return io->table->open_file(io, path, file_out, error);
}

void stk_io_close_file(struct stk_file *file)
{
    if (file) {
        file->ops->close(file);
    }
}

int stk_io_stat_file(struct stk_file *file, struct stk_stat *stat_out, struct stoker_error *error)
{
    return file->ops->stat(file, stat_out, error);
}

int stk_io_stat_path(struct stk_io *io, const char *path, struct stk_stat *stat_out,
                     struct stoker_error *error)
{
    return io->table->stat_path(io, path, stat_out, error);
}

int stk_io_list(struct stk_io *io, const char *path, struct stk_listing *listing_out,
                struct stoker_error *error)
{
    return io->table->list(io, path, listing_out, error);
}

int64_t stk_io_read_now(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    return file->ops->read_now(file, offset, buffer, bytes);
}

int64_t stk_io_read_wait(struct stk_file *file, uint64_t offset, void *buffer, size_t bytes)
{
    return file->ops->read_wait(file, offset, buffer, bytes);
}

int stk_io_map(struct stk_io *io, struct stk_file *file, struct stk_view *view_out,
               struct stoker_error *error)
{
    return io->table->map_file(io, file, view_out, error);
}

void stk_io_unmap(struct stk_io *io, struct stk_view view)
{
    if (view.bytes > 0) {
        io->table->unmap(io, view);
    }
}

int stk_io_map_check(struct stk_io *io, struct stk_view view, struct stoker_error *error)
{
    return view.bytes > 0 && io->table->map_check ? io->table->map_check(io, view, error) : 0;
}

uint64_t stk_io_map_faults(struct stk_io *io)
{
    return io->table->map_faults ? io->table->map_faults(io) : 0;
}

void stk_io_map_prefetch(struct stk_io *io, struct stk_view part)
{
    if (part.bytes > 0) {
        io->table->map_prefetch(io, part);
    }
}

uint64_t stk_io_thread_disk_reads(struct stk_io *io)
{
    return io->table->thread_disk_reads(io);
}

int stk_io_queue_open(struct stk_io *io, struct stk_queue **queue_out, struct stoker_error *error)
{
    return io->table->queue_open(io, queue_out, error);
}

void stk_io_queue_close(struct stk_io *io, struct stk_queue *queue)
{
    if (queue) {
        io->table->queue_close(io, queue);
    }
}

int stk_io_submit(struct stk_io *io, struct stk_queue *queue, struct stk_read *reads)
{
    return io->table->submit(io, queue, reads);
}

struct stk_read *stk_io_reap(struct stk_io *io, struct stk_queue *queue, uint32_t timeout_ms)
{
    return io->table->reap(io, queue, timeout_ms);
}

bool stk_io_last_read_error(struct stk_file *file, int status, struct stoker_error *error_out)
{
    return file->ops->last_error && file->ops->last_error(file, status, error_out);
}

int stk_io_fail_read(struct stk_file *file, int64_t status, const char *what,
                     struct stoker_error *error)
{
    const char *advice = status == STOKER_ERROR_TIMEOUT
                             ? "check the file system, or raise read_timeout_ms"
                             : "check the file and its disk (dmesg has the kernel's log)";
    struct stoker_error last;

    if (stk_io_last_read_error(file, (int)status, &last)) {
        if (error) {
            *error = last;
        }
        return (int)status;
    }
    return stk_fail(error, (int)status, what, advice, "%s", stoker_status_text((int)status));
}

int64_t stk_io_uncached_bytes(struct stk_file *file, uint64_t offset, uint64_t bytes)
{
    return file->ops->uncached_bytes ? file->ops->uncached_bytes(file, offset, bytes) : -ENOSYS;
}

bool stk_io_mount_of(struct stk_file *file, struct stk_mount_info *mount_out)
{
    *mount_out = (struct stk_mount_info){0};
    return file->ops->mount_of && file->ops->mount_of(file, mount_out);
}

bool stk_io_is_url(const char *path)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    const char *at = path;
    size_t scheme;

    while ((scheme = strspn(at, letters)) > 1 && strncmp(at + scheme, "::", 2) == 0) {
        at += scheme + 2;
    }
    return scheme > 1 && strncmp(at + scheme, "://", 3) == 0 &&
           stk_text_skip_file_scheme(path) == path;
}

static _Thread_local const _Atomic bool *thread_cancel_flag;

const _Atomic bool *stk_io_set_cancel_flag(const _Atomic bool *cancel)
{
    const _Atomic bool *before = thread_cancel_flag;

    thread_cancel_flag = cancel;
    return before;
}

const _Atomic bool *stk_io_cancel_flag(void)
{
    return thread_cancel_flag;
}

void stk_io_wake(struct stk_io *io, struct stk_queue *queue)
{
    io->table->wake(io, queue);
}

uint64_t stk_io_clock_ns(struct stk_io *io)
{
    return io->table->clock_ns(io);
}

const char *stk_io_backend(struct stk_io *io, const char **reason_out)
{
    return io->table->backend(io, reason_out);
}

uint64_t stk_io_leaked_bytes(struct stk_io *io)
{
    return io->table->leaked_bytes(io);
}

int stk_io_open_beneath(struct stk_io *io, const char *folder, struct stk_io **io_out,
                        struct stoker_error *error)
{
    *io_out = io;
    return io->table->write->open_beneath
               ? io->table->write->open_beneath(io, folder, io_out, error)
               : 0;
}

int stk_io_check_beneath(struct stk_io *io, const struct stk_beneath_check *check,
                         struct stoker_error *error)
{
    return io->table->write->check_beneath ? io->table->write->check_beneath(io, check, error) : 0;
}

void stk_io_close_beneath(struct stk_io *io, struct stk_io *beneath)
{
    if (beneath && beneath != io) {
        beneath->table->close(beneath);
    }
}

int stk_io_create(struct stk_io *io, const char *path, bool exclusive, struct stk_output **out_out,
                  struct stoker_error *error)
{
    return io->table->write->create(io, path, exclusive, out_out, error);
}

int stk_io_open_exclusive(struct stk_io *io, const char *path, struct stk_output **out_out,
                          uint32_t mode, uint64_t *bytes, struct stoker_error *error)
{
    if (!io->table->write->open_exclusive) {
        *bytes = 0; /* only one process uses a simulated file system, and it starts empty */
        return io->table->write->create(io, path, false, out_out, error);
    }
    return io->table->write->open_exclusive(io, path, out_out, mode, bytes, error);
}

int stk_io_copy_attributes(struct stk_io *io, const char *from, struct stk_output *out,
                           struct stoker_error *error)
{
    return io->table->write->copy_attributes
               ? io->table->write->copy_attributes(io, from, out, error)
               : 0;
}

int stk_io_set_attributes(struct stk_io *io, struct stk_output *out, uint32_t mode,
                          const uint64_t *mtime_ns, struct stoker_error *error)
{
    return io->table->write->set_attributes
               ? io->table->write->set_attributes(io, out, mode, mtime_ns, error)
               : 0;
}

int stk_io_remove_tree(struct stk_io *io, const char *path, const struct stk_tree_removal *how,
                       struct stoker_error *error)
{
    return io->table->write->remove_tree
               ? io->table->write->remove_tree(io, path, how, error)
               : stk_fail_errno(error, ENOSYS, "this file system cannot remove folders",
                                "remove the files one by one", "'%.400s'", path);
}

int stk_io_remove_below(struct stk_io *io, const char *root, const char *name,
                        struct stoker_error *error)
{
    return io->table->write->remove_below
               ? io->table->write->remove_below(io, root, name, error)
               : stk_fail_errno(error, ENOSYS, "this file system cannot remove files below folders",
                                "remove the files one by one", "'%.400s'", root);
}

int stk_io_resolve(struct stk_io *io, const char *path, char *real, size_t real_bytes)
{
    return io->table->write->resolve ? io->table->write->resolve(io, path, real, real_bytes)
                                     : -ENOSYS;
}

bool stk_io_is_link(struct stk_io *io, const char *path)
{
    return io->table->write && io->table->write->is_link && io->table->write->is_link(io, path);
}

int stk_io_append(struct stk_io *io, const char *path, struct stk_output **out_out,
                  struct stoker_error *error)
{
    return io->table->write->append(io, path, out_out, error);
}

int stk_io_write(struct stk_io *io, struct stk_output *out, const void *data, size_t bytes,
                 struct stoker_error *error)
{
    return io->table->write->write(io, out, data, bytes, error);
}

int stk_io_truncate(struct stk_io *io, struct stk_output *out, uint64_t bytes,
                    struct stoker_error *error)
{
    return io->table->write->truncate(io, out, bytes, error);
}

int stk_io_write_at(struct stk_io *io, struct stk_output *out, uint64_t offset, const void *data,
                    size_t bytes, struct stoker_error *error)
{
    return io->table->write->write_at(io, out, offset, data, bytes, error);
}

int stk_io_reserve(struct stk_io *io, struct stk_output *out, uint64_t bytes,
                   struct stoker_error *error)
{
    return io->table->write->reserve ? io->table->write->reserve(io, out, bytes, error) : 0;
}

int stk_io_sync_output(struct stk_io *io, struct stk_output *out, struct stoker_error *error)
{
    return io->table->write->sync_output(io, out, error);
}

void stk_io_close_output(struct stk_io *io, struct stk_output *out)
{
    if (out) {
        io->table->write->close_output(io, out);
    }
}

int stk_io_rename(struct stk_io *io, const char *from, const char *to, bool exclusive,
                  struct stoker_error *error)
{
    return io->table->write->rename(io, from, to, exclusive, error);
}

int stk_io_link(struct stk_io *io, const char *from, const char *to, struct stoker_error *error)
{
    return io->table->write->link(io, from, to, error);
}

int stk_io_make_directory(struct stk_io *io, const char *path, bool exclusive,
                          struct stoker_error *error)
{
    return io->table->write->make_directory(io, path, exclusive, error);
}

int stk_io_remove(struct stk_io *io, const char *path, struct stoker_error *error)
{
    return io->table->write->remove(io, path, error);
}

int stk_io_sync_directory(struct stk_io *io, const char *path, struct stoker_error *error)
{
    return io->table->write->sync_directory(io, path, error);
}

int stk_io_lock(struct stk_io *io, const char *path, struct stk_file_lock **lock_out,
                struct stoker_error *error)
{
    return io->table->write->lock(io, path, lock_out, error);
}

void stk_io_unlock(struct stk_io *io, struct stk_file_lock *lock)
{
    if (lock) {
        io->table->write->unlock(io, lock);
    }
}

void stk_listing_free(struct stk_listing *listing)
{
    stk_free(listing->memory);
    *listing = (struct stk_listing){0};
}

int stk_listing_add(struct stk_listing_builder *builder, const struct stk_entry *entry)
{
    uint64_t bytes = strlen(entry->name) + 1;
    void *entries = builder->entries, *names = builder->names;
    struct stk_entry *mine;
    int status;

    if (bytes > STK_LISTING_NAMES_BYTES_MAX - builder->names_bytes) {
        return -ENOMEM;
    }
    status = stk_reserve(&entries, &builder->capacity, builder->count + 1, sizeof *mine);
    builder->entries = entries;
    if (status == 0) {
        status = stk_reserve(&names, &builder->names_capacity, builder->names_bytes + bytes, 1);
        builder->names = names;
    }
    if (status < 0) {
        return status;
    }
    memcpy(builder->names + builder->names_bytes, entry->name, bytes);
    mine = &builder->entries[builder->count++];
    *mine = *entry;
    mine->name = NULL; /* the names may still move: build sets it, in the order of adding */
    builder->names_bytes += bytes;
    return 0;
}

int stk_listing_build(struct stk_listing_builder *builder, struct stk_listing *listing_out)
{
    uint64_t entries_bytes = builder->count * sizeof(struct stk_entry);
    uint8_t *memory = stk_alloc(entries_bytes + builder->names_bytes, 1);
    struct stk_entry *entries;
    char *name;

    if (!memory) {
        return -ENOMEM;
    }
    entries = (struct stk_entry *)(void *)memory;
    name = (char *)memory + entries_bytes;
    if (builder->count > 0) {
        memcpy(entries, builder->entries, entries_bytes);
        memcpy(name, builder->names, builder->names_bytes);
        for (uint64_t i = 0; i < builder->count; i++) {
            entries[i].name = name;
            name += strlen(name) + 1;
        }
        qsort(entries, builder->count, sizeof *entries, compare_names);
    }
    *listing_out = (struct stk_listing){entries, builder->count, memory};
    return 0;
}

void stk_listing_builder_deinit(struct stk_listing_builder *builder)
{
    stk_free(builder->entries);
    stk_free(builder->names);
    *builder = (struct stk_listing_builder){0};
}

/* strcmp compares as unsigned bytes. */
static int compare_names(const void *left, const void *right)
{
    const struct stk_entry *a = left, *b = right;

    return strcmp(a->name, b->name);
}
