/* The stamp of an index file: mtimes, which change when data is copied, so they are in a file of
 * their own. It is valid only for the index file (its inode) that it was written for. Next to a
 * copy it is not, and only the sizes of shards decide whether the index is up to date. */
#include "base/mem.h"
#include "dataset/index_locate.h"

#include "base/xxh3.h"
#include "index/string_table.h"
#include "io/atomic_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define STAMP_MAGIC "STOKERST"
#define STAMP_VERSION 1u
#define STAMP_BYTES_MAX (1ull << 34)
#define STAMP_FOLDERS_MAX (1u << 24)

/* Then u64 mtimes[count], then names, then u64: XXH3-64 of all before. */
struct head {
    char magic[8];
    uint32_t version, zero;
    uint64_t count, names_bytes;
    uint64_t inode; /* of the index file */
    uint8_t identity[32];
};

static int stamp_path(const char *index_path, const char *ending, char *path,
                      struct stoker_error *error)
{
    if (snprintf(path, STK_PATH_BYTES_MAX, "%s.stamp%s", index_path, ending) < STK_PATH_BYTES_MAX) {
        return 0;
    }
    return stk_fail_errno(error, ENAMETOOLONG, "cannot name the stamp of an index",
                          "use a shorter path", "'%.400s'", index_path);
}

void stk_index_stamp_deinit(struct stk_index_stamp *stamp)
{
    stk_free(stamp->mtimes);
    stk_free(stamp->names);
    *stamp = (struct stk_index_stamp){0};
}

static int parse(struct stk_index_stamp *stamp, struct stk_view image, uint64_t inode,
                 const struct stk_index *index)
{
    struct head head;
    uint64_t want, sum, names = 0;

    if (image.bytes < sizeof head + 8 || image.bytes > STAMP_BYTES_MAX) {
        return 0;
    }
    memcpy(&head, image.data, sizeof head);
    memcpy(&sum, image.data + image.bytes - 8, 8);
    if (memcmp(head.magic, STAMP_MAGIC, 8) != 0 || head.version != STAMP_VERSION ||
        sum != stk_xxh3_64(image.data, image.bytes - 8) || head.inode != inode ||
        memcmp(head.identity, stk_index_identity(index), 32) != 0 ||
        !stk_multiply(head.count, 8, &want) || !stk_add(want, head.names_bytes, &want) ||
        want != image.bytes - sizeof head - 8 ||
        (!stk_index_is_folder(index) && head.count != stk_index_shards(index))) {
        return 0;
    }
    stamp->mtimes = stk_alloc(head.count, 8);
    stamp->names = stk_alloc(head.names_bytes + 1, 1);
    if (!stamp->mtimes || !stamp->names) {
        return -ENOMEM;
    }
    memcpy(stamp->mtimes, image.data + sizeof head, head.count * 8);
    memcpy(stamp->names, image.data + sizeof head + head.count * 8, head.names_bytes);
    for (uint64_t i = 0; i < head.names_bytes; i++) {
        names += stamp->names[i] == '\0';
    }
    stamp->count = head.count;
    stamp->valid = !stk_index_is_folder(index) || names == head.count;
    return 0;
}

int stk_index_stamp_read(struct stk_index_stamp *stamp, struct stk_io *io, const char *index_path,
                         const struct stk_index *index, struct stoker_error *error)
{
    char path[STK_PATH_BYTES_MAX];
    struct stk_file *file = NULL;
    struct stk_view image = {0};
    struct stk_stat of_index;
    int status;

    *stamp = (struct stk_index_stamp){0};
    status = stamp_path(index_path, "", path, error);
    if (status < 0 || stk_io_stat_path(io, index_path, &of_index, NULL) < 0 ||
        stk_io_open_file(io, path, &file, NULL) < 0) {
        return status;
    }
    status = stk_io_map(io, file, &image, error);
    stk_io_close_file(file);
    if (status == 0) {
        status = parse(stamp, image, of_index.inode, index);
        stk_io_unmap(io, image);
        if (status < 0) {
            stk_fail(error, status, "cannot read the stamp of an index", "free memory", "'%s'",
                     path);
        }
    }
    if (!stamp->valid) {
        stk_index_stamp_deinit(stamp);
    }
    return status;
}

static int write_all(const struct stk_index_stamp *stamp, struct stk_io *io, const char *path,
                     const struct head *head, struct stoker_error *error)
{
    uint64_t mtimes_bytes = stamp->count * 8;
    uint8_t *text = stk_alloc(sizeof *head + mtimes_bytes + head->names_bytes + 8, 1);
    uint64_t sum;
    size_t used = sizeof *head;
    int status;

    if (!text) {
        return stk_fail(error, -ENOMEM, "cannot write the stamp of an index", "free memory",
                        "%llu folders or shards", (unsigned long long)stamp->count);
    }
    memcpy(text, head, sizeof *head);
    if (mtimes_bytes > 0) {
        memcpy(text + used, stamp->mtimes, mtimes_bytes);
    }
    used += mtimes_bytes;
    if (head->names_bytes > 0) {
        memcpy(text + used, stamp->names, head->names_bytes);
    }
    used += head->names_bytes;
    sum = stk_xxh3_64(text, used);
    memcpy(text + used, &sum, sizeof sum);
    /* If a power failure destroys the stamp, it is created again. */
    status = stk_atomic_file_store(io, path, ".new", (struct stk_view){text, used + sizeof sum},
                                   STK_ATOMIC_FILE_NO_DIRECTORY_SYNC, error);
    stk_free(text);
    return status;
}

int stk_index_stamp_write(const struct stk_index_stamp *stamp, struct stk_io *io,
                          const char *index_path, const struct stk_index *index,
                          struct stoker_error *error)
{
    struct head head = {.version = STAMP_VERSION, .count = stamp->count};
    char path[STK_PATH_BYTES_MAX];
    struct stk_stat of_index;
    int status;

    for (uint64_t i = 0; stamp->names && i < stamp->count; i++) {
        head.names_bytes += strlen(stamp->names + head.names_bytes) + 1;
    }
    memcpy(head.magic, STAMP_MAGIC, sizeof head.magic);
    memcpy(head.identity, stk_index_identity(index), sizeof head.identity);
    status = stamp_path(index_path, "", path, error);
    status = status < 0 ? status : stk_io_stat_path(io, index_path, &of_index, error);
    if (status < 0) {
        return status;
    }
    head.inode = of_index.inode;
    return write_all(stamp, io, path, &head, error);
}

/* The folder of a file and all above it, below the root, each once. */
static int add_folders(struct stk_string_table *words, const char *name)
{
    uint32_t count, number;
    size_t bytes = strlen(name);
    char folder[STK_PATH_BYTES_MAX];
    int status = 0;

    do {
        while (bytes > 0 && name[bytes] != '/') {
            bytes--;
        }
        if (bytes == 0 || bytes >= sizeof folder) {
            break;
        }
        memcpy(folder, name, bytes);
        folder[bytes] = '\0';
        count = words->count;
        status = stk_string_table_add(words, (struct stk_view){(const uint8_t *)folder, bytes + 1},
                                      STAMP_FOLDERS_MAX, &number);
        bytes--;
    } while (status == 0 && number == count);
    return status;
}

int stk_index_stamp_folders(struct stk_index_stamp *stamp, struct stk_io *io, const char *root,
                            const struct stk_index *index, struct stoker_error *error)
{
    struct stk_string_table words = {0};
    size_t root_bytes = strlen(root);
    int status = 0;

    *stamp = (struct stk_index_stamp){0};
    for (uint64_t i = 0; status == 0 && i < stk_index_shards(index); i++) {
        status = add_folders(&words, stk_index_path_view(index, i) + root_bytes);
    }
    if (status == 0) {
        stamp->count = words.count;
        stamp->mtimes = stk_alloc(words.count, 8);
        stamp->names = stk_alloc(words.byte_count + 1ull, 1);
        status = stamp->mtimes && stamp->names ? 0 : -ENOMEM;
    }
    if (status < 0) {
        stk_fail(error, status, "cannot stamp the folders of a data set",
                 "free memory, or use fewer folders", "'%.400s'", root);
    } else if (words.count > 0) {
        memcpy(stamp->names, words.bytes, words.byte_count);
    }
    for (uint32_t i = 0; status == 0 && i < words.count; i++) {
        char path[STK_PATH_BYTES_MAX];
        struct stk_stat about;

        status = (size_t)snprintf(path, sizeof path, "%s%s", root,
                                  (const char *)stk_string_table_get(&words, i).data) < sizeof path
                     ? stk_io_stat_path(io, path, &about, error)
                     : stk_fail_errno(error, ENAMETOOLONG, "cannot stamp the folders of a data set",
                                      "move the data set up", "'%.400s'", root);
        stamp->mtimes[i] = status == 0 ? about.mtime_ns : 0;
    }
    stamp->valid = status == 0;
    stk_string_table_deinit(&words);
    if (status < 0) {
        stk_index_stamp_deinit(stamp);
    }
    return status;
}
