/* A journal of finished shards: records one after the other, in a new file each run, since a
 * file is only ever written front to back. */
#include "index/index_journal.h"

#include "base/mem.h"
#include "base/xxh3.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define JOURNAL_MAGIC 0x545241504b4f5453ull /* "STOKPART", little end first */

struct head {
    uint64_t magic, image_bytes, mtime_ns;
    uint64_t sum; /* of the bytes before */
};

static int file_path(const struct stk_index_journal *journal, uint32_t number,
                     char path[STK_PATH_BYTES_MAX])
{
    int bytes = number == 0
                    ? snprintf(path, STK_PATH_BYTES_MAX, "%s.part", journal->path)
                    : snprintf(path, STK_PATH_BYTES_MAX, "%s.part.%u", journal->path, number);

    return bytes < STK_PATH_BYTES_MAX ? 0 : -ENAMETOOLONG;
}

static int lock_path(const struct stk_index_journal *journal, char path[STK_PATH_BYTES_MAX])
{
    int bytes = snprintf(path, STK_PATH_BYTES_MAX, "%s.lock", journal->path);

    return bytes < STK_PATH_BYTES_MAX ? 0 : -ENAMETOOLONG;
}

static int acquire_lock(struct stk_index_journal *journal, struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX];

    if (lock_path(journal, path) < 0) {
        return stk_fail_errno(error, ENAMETOOLONG, "cannot keep a journal", "use a shorter path",
                              "'%.600s'", journal->path);
    }
    return stk_io_lock(journal->io, path, &journal->process_lock, error);
}

/* Takes the index of one shard; a later record replaces an earlier one of the same name. */
static int put(struct stk_index_journal *journal, struct stk_index *index, uint64_t mtime_ns,
               struct stoker_error *error)
{
    char name[STK_PATH_BYTES_MAX];
    uint32_t count = journal->names.count, number;
    int status = stk_index_path(index, 0, name, error);

    if (status == 0) {
        status = stk_string_table_add(&journal->names,
                                      (struct stk_view){(const uint8_t *)name, strlen(name)},
                                      UINT32_MAX / 2, &number);
        status = status < 0 ? stk_fail_memory(error, "'%.600s'", journal->path) : 0;
    }
    if (status == 0 && count == journal->entry_capacity && number == count) {
        uint32_t capacity = count ? count * 2 : 64;
        struct stk_index_journal_entry *entries =
            stk_realloc(journal->entries, count, capacity, sizeof *entries);

        status = entries ? 0 : stk_fail_memory(error, "'%.600s'", journal->path);
        journal->entries = entries ? entries : journal->entries;
        journal->entry_capacity = entries ? capacity : journal->entry_capacity;
    }
    if (status < 0) {
        stk_index_close(index);
        return status;
    }
    stk_index_close(journal->entries[number].index); /* NULL in a new entry */
    journal->entries[number] = (struct stk_index_journal_entry){index, mtime_ns};
    return 0;
}

/* Reads records up to the first incomplete one. */
static int parse(struct stk_index_journal *journal, struct stk_view image,
                 struct stoker_error *error)
{
    size_t at = 0;
    int status = 0;

    while (status == 0 && image.bytes - at >= sizeof(struct head)) {
        struct head head;
        struct stk_index *index = NULL;
        struct stk_view part;

        memcpy(&head, image.data + at, sizeof head);
        at += sizeof head;
        if (head.magic != JOURNAL_MAGIC ||
            head.sum != stk_xxh3_64(&head, offsetof(struct head, sum)) ||
            head.image_bytes % 8 != 0 || head.image_bytes > image.bytes - at) {
            break;
        }
        part = (struct stk_view){image.data + at, head.image_bytes};
        at += head.image_bytes;
        status = stk_index_open_image(&index, part, journal->path, error);
        if (status == -ENOMEM) {
            break;
        }
        if (status == 0 && stk_index_shards(index) == 1 && !stk_index_is_folder(index)) {
            status = put(journal, index, head.mtime_ns, error);
        } else {
            stk_index_close(index); /* no journal of ours, or damaged: that shard is read again */
            status = 0;
        }
    }
    return status;
}

static int read_files(struct stk_index_journal *journal, struct stoker_error *error)
{
    int status = 0;

    while (status == 0 && journal->file_count < STK_INDEX_JOURNAL_FILES_MAX) {
        char path[STK_PATH_BYTES_MAX];
        struct stk_file *file;
        struct stk_view *image = &journal->images[journal->file_count];

        if (file_path(journal, journal->file_count, path) < 0 ||
            stk_io_open_file(journal->io, path, &file, NULL) < 0) {
            break;
        }
        status = stk_io_map(journal->io, file, image, error);
        stk_io_close_file(file);
        if (status == 0) {
            journal->file_count++;
            status = parse(journal, *image, error);
        }
    }
    return status;
}

static void unmap_files(struct stk_index_journal *journal)
{
    /* One name more than entries, when there was no memory for its entry. */
    for (uint32_t i = 0; i < stk_min(journal->names.count, journal->entry_capacity); i++) {
        stk_index_close(journal->entries[i].index);
    }
    for (uint32_t i = 0; i < journal->file_count; i++) {
        stk_io_unmap(journal->io, journal->images[i]);
    }
    stk_string_table_deinit(&journal->names);
    stk_free(journal->entries);
    journal->entries = NULL;
    journal->entry_capacity = 0;
    journal->file_count = 0;
}

int stk_index_journal_open(struct stk_index_journal **journal_out, struct stk_io *io,
                           const char *index_path, bool fresh, struct stoker_error *error)
{
    struct stk_index_journal *journal = stk_alloc(1, sizeof *journal);
    char path[STK_PATH_BYTES_MAX];
    int status;

    *journal_out = NULL;
    if (!journal) {
        return stk_fail(error, -ENOMEM, "cannot keep a journal", "free memory", "'%.600s'",
                        index_path);
    }
    journal->io = io;
    pthread_mutex_init(&journal->lock, NULL);
    /* If a path is cut, the paths of the lock and of the files do not fit, and fail. */
    snprintf(journal->path, sizeof journal->path, "%s", index_path);
    status = acquire_lock(journal, error);
    status = status < 0 ? status : read_files(journal, error);
    if (status == 0 && (fresh || journal->file_count == STK_INDEX_JOURNAL_FILES_MAX)) {
        uint32_t count = journal->file_count;

        unmap_files(journal);
        journal->file_count = count;
        memset(journal->images, 0, sizeof journal->images);
        status = stk_index_journal_remove(journal, error);
        journal->file_count = 0;
    }
    if (status == 0 && file_path(journal, journal->file_count, path) < 0) {
        status = stk_fail_errno(error, ENAMETOOLONG, "cannot keep a journal", "use a shorter path",
                                "'%.600s'", index_path);
    }
    if (status == 0) {
        status = stk_io_create(io, path, false, &journal->out, error);
    }
    if (status < 0) {
        stk_index_journal_close(journal);
        return status;
    }
    *journal_out = journal;
    return 0;
}

/* A run that failed before its first shard was done leaves an empty file, as earlier runs may have.
 * A file that cannot be removed does no harm. */
static void remove_empty(const struct stk_index_journal *journal, uint32_t file_count, bool all)
{
    char path[STK_PATH_BYTES_MAX];

    for (uint32_t i = file_count + 1; i-- > (all ? 0 : file_count);) {
        if (file_path(journal, i, path) == 0) {
            (void)stk_io_remove(journal->io, path, NULL);
        }
    }
}

void stk_index_journal_close(struct stk_index_journal *journal)
{
    if (journal) {
        bool empty = journal->out && !journal->added, all = journal->names.count == 0;
        uint32_t file_count = journal->file_count;

        unmap_files(journal);
        stk_io_close_output(journal->io, journal->out);
        if (empty) {
            remove_empty(journal, file_count, all);
        }
        stk_io_unlock(journal->io, journal->process_lock);
        pthread_mutex_destroy(&journal->lock);
        stk_free(journal);
    }
}

const struct stk_index *stk_index_journal_find(const struct stk_index_journal *journal,
                                               const char *name, uint64_t bytes, uint64_t mtime_ns)
{
    int64_t number = stk_string_table_find(&journal->names,
                                           (struct stk_view){(const uint8_t *)name, strlen(name)});
    const struct stk_index_journal_entry *entry = number < 0 ? NULL : &journal->entries[number];

    return entry && entry->mtime_ns == mtime_ns && stk_index_shard_bytes(entry->index, 0) == bytes
               ? entry->index
               : NULL;
}

int stk_index_journal_add(struct stk_index_journal *journal, struct stk_view image,
                          uint64_t mtime_ns, struct stoker_error *error)
{
    struct head head = {.magic = JOURNAL_MAGIC, .image_bytes = image.bytes, .mtime_ns = mtime_ns};
    int status;

    head.sum = stk_xxh3_64(&head, offsetof(struct head, sum));
    pthread_mutex_lock(&journal->lock);
    journal->added = true;
    status = stk_io_write(journal->io, journal->out, &head, sizeof head, error);
    if (status == 0) {
        status = stk_io_write(journal->io, journal->out, image.data, image.bytes, error);
    }
    pthread_mutex_unlock(&journal->lock);
    return status;
}

void stk_index_journal_remove_stale(struct stk_io *io, const char *index_path)
{
    struct stk_index_journal stale = {.io = io};
    char path[STK_PATH_BYTES_MAX];
    struct stk_stat about;

    /* If it is cut, file_path fails. */
    snprintf(stale.path, sizeof stale.path, "%s", index_path);
    while (stale.file_count < STK_INDEX_JOURNAL_FILES_MAX &&
           file_path(&stale, stale.file_count, path) == 0 &&
           stk_io_stat_path(io, path, &about, NULL) == 0) {
        stale.file_count++;
    }
    /* Files that stay do no harm; another run writes its own files. */
    if ((stale.file_count > 0 ||
         (lock_path(&stale, path) == 0 && stk_io_stat_path(io, path, &about, NULL) == 0)) &&
        acquire_lock(&stale, NULL) == 0) {
        (void)stk_index_journal_remove(&stale, NULL);
    }
    stk_io_unlock(io, stale.process_lock);
}

int stk_index_journal_remove(struct stk_index_journal *journal, struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX];
    int status = 0;

    /* The last first: a kill in between leaves a row without a gap. */
    for (uint32_t i = journal->file_count + (journal->out != NULL); status == 0 && i-- > 0;) {
        if (file_path(journal, i, path) == 0) {
            status = stk_io_remove(journal->io, path, error);
        }
    }
    return status;
}
