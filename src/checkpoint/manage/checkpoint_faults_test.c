/* Goal: short writes and calls that are interrupted lose nothing; a full disk, quota or inode table
 * and a failing disk end only the save that meets them, which names the file and leaves nothing;
 * each flipped bit of a payload is found, with file and tensor.
 * Method: replaces the system calls of the writer by ones that fail or write little, in a real
 * folder; a simulated disk that is full at every byte; 10,000 random flips.
 * Covers sink.c, save_run.c, commit.c, posix_write.c, load.c. */
#include "base/mem.h"
#include "checkpoint/manage/manage.h"
#include "io/sim/sim.h"
#include "io/write.h"
#include "test/checkpoints.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FLIPS 10000u
#define ROOT "/run/checkpoints"
#define TENSORS 3u

enum call { NONE, PWRITE, WRITE, FDATASYNC, FSYNC, FALLOCATE, SPACE, INODES };

static _Atomic int failing_call, failing_errno, calls_before;
static _Atomic bool writes_little;
static _Atomic uint64_t little;

/* Whether this call is to fail: sets errno. */
static bool fails(enum call call)
{
    if (atomic_load(&failing_call) != (int)call || atomic_fetch_sub(&calls_before, 1) > 0) {
        return false;
    }
    errno = atomic_load(&failing_errno);
    return true;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    if (fails(PWRITE)) {
        return -1;
    }
    if (atomic_load(&writes_little)) {
        uint64_t count = atomic_fetch_add(&little, 1);

        if (count % 3 == 0) {
            errno = EINTR;
            return -1;
        }
        bytes = stk_min(bytes, count % 2000 + 1);
    }
    return syscall(SYS_pwrite64, fd, data, bytes, offset);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    return fails(WRITE) ? -1 : syscall(SYS_write, fd, data, bytes);
}

int fdatasync(int fd)
{
    return fails(FDATASYNC) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    return fails(FSYNC) ? -1 : (int)syscall(SYS_fsync, fd);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    int call = atomic_load(&failing_call);

    if (call == SPACE) { /* such a file system has no reservations */
        errno = EOPNOTSUPP;
        return -1;
    }
    return fails(FALLOCATE) ? -1 : (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
}

int fstatvfs(int fd, struct statvfs *space)
{
    int call = atomic_load(&failing_call);

    (void)fd;
    *space = (struct statvfs){.f_frsize = 4096,
                              .f_blocks = 1u << 30,
                              .f_bavail = call == SPACE ? 1 : 1u << 30,
                              .f_files = 1000,
                              .f_favail = call == INODES ? 0 : 100};
    return 0;
}

static uint8_t data[TENSORS][1 << 20];
static uint64_t shapes[TENSORS] = {1 << 20, 48 << 10, 16 << 10};
static const char *const names[TENSORS] = {"a", "b", "c"};

static int save_step(struct stoker_checkpoint_writer *writer, uint64_t step, size_t first,
                     struct stoker_error *error)
{
    struct stoker_checkpoint_tensor tensors[TENSORS];
    struct stoker_checkpoint_save_options options = {.struct_size = sizeof options,
                                                     .step = step,
                                                     .tensors = tensors + first,
                                                     .tensor_count = TENSORS - first,
                                                     .save_id = "id"};
    struct stoker_checkpoint_save *save = NULL;
    int status;

    for (size_t i = 0; i < TENSORS; i++) {
        tensors[i] = (struct stoker_checkpoint_tensor){names[i], "U8", &shapes[i], 1, data[i]};
    }
    status = stoker_checkpoint_save_open(&save, writer, &options, error);
    while (status >= 0 &&
           (status = stoker_checkpoint_save_copy(save, 100, error)) == STOKER_ERROR_AGAIN) {
        status = 0;
    }
    while (status >= 0 && (status = stoker_checkpoint_save_next(save, 100, NULL, error)) == 1) {
    }
    stoker_checkpoint_save_close(save);
    return status;
}

/* Reads a range of a tensor and compares it. */
static int load_tensor(struct stoker_checkpoint *checkpoint, uint64_t tensor, size_t source,
                       struct stoker_error *error)
{
    static uint8_t buffer[1 << 20];
    struct stoker_checkpoint_range range = {tensor, 0, shapes[source], buffer};
    struct stoker_checkpoint_load *load = NULL;
    int status = stoker_checkpoint_load_open(&load, checkpoint, &range, 1, error);

    while (status >= 0 && (status = stoker_checkpoint_load_next(load, 100, NULL, error)) == 1) {
    }
    stoker_checkpoint_load_close(load);
    T_TRUE("same bytes", status < 0 || memcmp(buffer, data[source], shapes[source]) == 0);
    return status;
}

static int load_step(struct stoker_engine *engine, const char *path, uint64_t step,
                     struct stoker_error *error)
{
    struct stoker_checkpoint *checkpoint = NULL;
    int status = stoker_checkpoint_open(&checkpoint, engine, path, step, error);

    for (uint64_t i = 0; status == 0 && i < TENSORS; i++) {
        uint64_t tensor = 0;

        T_EQ("find", stoker_checkpoint_find(checkpoint, names[i], &tensor, NULL), 0);
        status = load_tensor(checkpoint, tensor, i, error);
    }
    stoker_checkpoint_close(checkpoint);
    return status;
}

static int count_names(const char *folder)
{
    DIR *directory = opendir(folder);
    int count = 0;

    for (struct dirent *entry; directory && (entry = readdir(directory)) != NULL;) {
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    if (directory) {
        closedir(directory);
    }
    return count;
}

/* Each call fails in turn: that save fails with the error and the path, and only that one. */
static void test_calls(struct stoker_engine *engine, const char *folder)
{
    static const struct call_row {
        const char *name;
        enum call call;
        int number, before, want;
        const char *path;
    } rows[] = {
        {"full", PWRITE, ENOSPC, 0, -ENOSPC, "shard-00000.safetensors"},
        {"full at the header", PWRITE, ENOSPC, 1, -ENOSPC, "shard-00000.safetensors"},
        {"quota", PWRITE, EDQUOT, 0, -EDQUOT, "shard-00000.safetensors"},
        {"failing disk", PWRITE, EIO, 0, -EIO, "shard-00000.safetensors"},
        {"manifest", WRITE, ENOSPC, 0, -ENOSPC, "stoker.checkpoint.json"},
        {"sync of the file", FDATASYNC, EIO, 0, -EIO, "shard-00000.safetensors"},
        {"quota at the sync", FDATASYNC, EDQUOT, 0, -EDQUOT, "shard-00000.safetensors"},
        {"sync of the manifest", FDATASYNC, EIO, 1, -EIO, "stoker.checkpoint.json"},
        {"sync of the folder", FSYNC, EIO, 0, -EIO, "id.part"},
        {"sync of the root", FSYNC, EIO, 2, -EIO, "faults-"},
        {"no space", FALLOCATE, ENOSPC, 0, -ENOSPC, "shard-00000.safetensors"},
        {"no quota", FALLOCATE, EDQUOT, 0, -EDQUOT, "shard-00000.safetensors"},
        {"no space, without reservations", SPACE, 0, 0, -ENOSPC, "shard-00000.safetensors"},
        {"no inodes", INODES, 0, 0, -ENOSPC, "shard-00000.safetensors"},
    };
    struct stoker_checkpoint_writer *writer = t_open_writer(engine, folder, 1);
    struct stoker_error error = {0};

    T_EQ("step 1", save_step(writer, 1, 0, &error), 0);
    T_EACH(call_row, row, rows)
    {
        error = (struct stoker_error){0};
        atomic_store(&failing_errno, row->number);
        atomic_store(&calls_before, row->before);
        atomic_store(&failing_call, (int)row->call);
        T_EQ(row->name, save_step(writer, 2, 0, &error), row->want);
        atomic_store(&failing_call, NONE);
        T_ERROR(row->name, &error);
        T_HAS(row->name, error.where, row->path);
        T_EQ(row->name, count_names(folder), 1);
        T_EQ(row->name, load_step(engine, folder, STOKER_CHECKPOINT_LATEST, &error), 0);
    }
    atomic_store(&writes_little, true);
    T_EQ("short writes", save_step(writer, 2, 0, &error), 0);
    atomic_store(&writes_little, false);
    T_TRUE("there were some", atomic_load(&little) > 500);
    T_EQ("all bytes", load_step(engine, folder, 2, &error), 0);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 2, NULL), 0);
    stoker_checkpoint_writer_close(writer);
}

/* Any bit of any tensor: found when the tensor is read, with file and tensor. */
static void test_flips(struct stoker_engine *engine, const char *folder)
{
    struct stoker_checkpoint_tensor_info info = {.struct_size = sizeof info};
    struct stoker_checkpoint *checkpoint = NULL;
    uint64_t offsets[TENSORS] = {0}, index[TENSORS] = {0}, buffer = 0, found = 0;
    uint32_t random = 7;
    char shard[200], quoted[8];
    int fd;

    snprintf(shard, sizeof shard, "%s/step-0000000001/shard-00000.safetensors", folder);
    T_EQ("open", stoker_checkpoint_open(&checkpoint, engine, folder, 1, NULL), 0);
    for (uint64_t i = 0; i < TENSORS; i++) { /* in the order of the file */
        T_EQ("tensor", stoker_checkpoint_tensor(checkpoint, i, &info, NULL), 0);
        T_STR("order", info.name, names[i]);
        offsets[i] = buffer;
        index[i] = i;
        buffer += info.bytes;
    }
    fd = open(shard, O_RDWR);
    buffer = (uint64_t)lseek(fd, 0, SEEK_END) - buffer;
    for (uint32_t i = 0; i < FLIPS; i++) {
        struct stoker_error error = {0};
        size_t tensor;
        uint64_t bit, at;
        uint8_t byte = 0;

        random = random * 1664525u + 1013904223u;
        tensor = (random >> 28) == 0 ? 0 : 1 + (random >> 16) % 2;
        bit = ((uint64_t)random * 40503u >> 3) % (shapes[tensor] * 8);
        at = buffer + offsets[tensor] + bit / 8;
        T_EQ("read", pread(fd, &byte, 1, (off_t)at), 1);
        byte ^= (uint8_t)(1u << (bit % 8));
        T_EQ("flip", pwrite(fd, &byte, 1, (off_t)at), 1);
        snprintf(quoted, sizeof quoted, "'%s'", names[tensor]);
        found += load_tensor(checkpoint, index[tensor], tensor, &error) == STOKER_ERROR_CORRUPT &&
                 strstr(error.where, "shard-00000.safetensors") && strstr(error.where, quoted);
        byte ^= (uint8_t)(1u << (bit % 8));
        T_EQ("flip", pwrite(fd, &byte, 1, (off_t)at), 1);
    }
    T_EQ("found", found, FLIPS);
    close(fd);
    stoker_checkpoint_close(checkpoint);
    T_EQ("as before", load_step(engine, folder, 1, NULL), 0);
}

/* A disk that is full at every byte of a file of a save of one small tensor. */
static void fill_at_every_byte(const char *file, uint64_t file_bytes)
{
    struct stk_io *io = NULL;
    struct stoker_engine *engine;
    struct stoker_checkpoint_writer *writer;
    uint64_t failed = 0, named = 0, left = 0;
    char path[200];

    snprintf(path, sizeof path, ROOT "/.stoker-0000000002-id.part/%s", file);
    T_EQ("world", stk_sim_open(&io, 1, NULL, NULL), 0);
    engine = t_open_engine(io);
    writer = t_open_writer(engine, ROOT, 1);
    T_EQ("step 1", save_step(writer, 1, 2, NULL), 0);
    for (uint64_t k = 0; k < file_bytes; k++) {
        struct stk_sim_rule rule = {.fault = STK_SIM_FAULT_FULL, .path = path, .offset = k};
        struct stk_listing listing = {0};
        struct stoker_error error = {0};

        T_EQ("rule", stk_sim_set_rule(io, &rule), 0);
        failed += save_step(writer, 2, 2, &error) == -ENOSPC;
        named += strstr(error.where, file) != NULL;
        T_EQ("list", stk_io_list(io, ROOT, &listing, NULL), 0);
        left += listing.count - 1;
        stk_listing_free(&listing);
    }
    T_EQ("each save failed", failed, file_bytes);
    T_EQ("each names the file", named, file_bytes);
    T_EQ("nothing is left", left, 0);
    T_EQ("no rule", stk_sim_set_rule(io, NULL), 0);
    T_EQ("and then one is right", save_step(writer, 2, 2, NULL), 0);
    stoker_checkpoint_writer_close(writer);
    stoker_engine_close(engine);
}

int main(void)
{
    int64_t alive = stk_mem_alive();
    char folder[64];
    struct stoker_engine *engine;
    uint32_t random = 1;

    for (size_t i = 0; i < TENSORS; i++) {
        for (uint64_t j = 0; j < shapes[i]; j++) {
            random = random * 1664525u + 1013904223u;
            data[i][j] = (uint8_t)(random >> 24);
        }
    }
    snprintf(folder, sizeof folder, "%s/stoker-faults-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    T_TRUE("folder", mkdtemp(folder) != NULL);
    engine = t_open_engine(NULL);
    test_calls(engine, folder);
    test_flips(engine, folder);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 1, NULL), 0);
    T_EQ("empty", rmdir(folder), 0);
    stoker_engine_close(engine);
    shapes[2] = 300;
    fill_at_every_byte("shard-00000.safetensors", 4096 + 300);
    fill_at_every_byte("stoker.checkpoint.json", 250);
    T_EQ("memory", stk_mem_alive(), alive);
    return t_finish();
}
