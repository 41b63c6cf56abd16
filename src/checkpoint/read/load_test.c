/* Goal: a load reads the same bytes from a disk as from memory, whatever the ranges are, and finds
 * damage there, too.
 * Method: a step of 40 MiB in a real folder, whose pages are dropped before each load; ranges that
 * begin and end anywhere; flipped bits; a bad block, in one of 16 MiB that are read at once; a file
 * that became short. Covers load.c. */
#include "base/mem.h"
#include "base/random.h"
#include "checkpoint/read/checkpoint.h"
#include "test/checkpoints.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define TENSORS 3u
#define RANGES 7u

static const uint64_t sizes[TENSORS] = {25 * MIB, 14 * MIB + 4096, MIB - 100};
static uint8_t *data[TENSORS];
static char folder[] = "/tmp/stoker-load-XXXXXX", shard[128];

static _Atomic int64_t bad_offset = -1; /* reads of this byte fail; below 0: none */

ssize_t pread(int fd, void *buffer, size_t bytes, off_t offset)
{
    int64_t bad = atomic_load(&bad_offset);

    if (bad >= offset && bad < offset + (int64_t)bytes) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, buffer, bytes, offset);
}

static void save(struct stoker_engine *engine)
{
    static const char *const names[TENSORS] = {"a", "b", "c"};
    struct stoker_checkpoint_tensor tensors[TENSORS];
    struct stoker_checkpoint_save_options options = {
        .struct_size = sizeof options, .step = 1, .tensors = tensors, .tensor_count = TENSORS};
    struct stoker_checkpoint_writer *writer = t_open_writer(engine, folder, 0);

    for (size_t i = 0; i < TENSORS; i++) {
        tensors[i] = (struct stoker_checkpoint_tensor){names[i], "U8", &sizes[i], 1, data[i]};
    }
    t_save(writer, &options);
    stoker_checkpoint_writer_close(writer);
}

static void drop_pages(void)
{
    int fd = open(shard, O_RDONLY);

    T_EQ("drop", posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
}

static int load(struct stoker_checkpoint *checkpoint, const struct stoker_checkpoint_range *ranges,
                size_t count, struct stoker_error *error)
{
    struct stoker_checkpoint_load *running = NULL;
    int status = stoker_checkpoint_load_open(&running, checkpoint, ranges, count, error);

    while (status >= 0 && (status = stoker_checkpoint_load_next(running, 100, NULL, error)) == 1) {
    }
    stoker_checkpoint_load_close(running);
    return status;
}

/* Ranges of random places, from cold and from warm pages. */
static void test_ranges(struct stoker_checkpoint *checkpoint)
{
    for (uint64_t turn = 0; turn < 12; turn++) {
        struct stoker_checkpoint_range ranges[RANGES];

        for (uint64_t i = 0; i < RANGES; i++) {
            uint64_t random = stk_random_key(turn, i), tensor = random % TENSORS;
            uint64_t offset = i == 0 ? 0 : (random >> 8) % sizes[tensor];
            uint64_t bytes = i == 0 ? sizes[tensor] : (random >> 32) % (sizes[tensor] - offset);

            ranges[i] = (struct stoker_checkpoint_range){tensor, offset, bytes, malloc(bytes + 1)};
        }
        if (turn % 3 < 2) {
            drop_pages();
        }
        T_EQ("load", load(checkpoint, ranges, RANGES, NULL), 0);
        for (uint64_t i = 0; i < RANGES; i++) {
            T_TRUE("same bytes", memcmp(ranges[i].buffer, data[ranges[i].tensor] + ranges[i].offset,
                                        ranges[i].bytes) == 0);
            free(ranges[i].buffer);
        }
    }
}

static void flip(uint64_t offset)
{
    int fd = open(shard, O_RDWR);
    uint8_t byte = 0;

    T_EQ("read", pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 16;
    T_EQ("write", pwrite(fd, &byte, 1, (off_t)offset), 1);
    T_EQ("sync", fdatasync(fd), 0);
    close(fd);
}

static void test_damage(struct stoker_checkpoint *checkpoint)
{
    const struct stk_checkpoint_file *file = &checkpoint->files[0];
    static const uint64_t places[] = {0, 17 * MIB, 25 * MIB, 30 * MIB + 5, 40 * MIB - 200};
    static const char *const names[] = {"a", "a", "b", "b", "c"};
    struct stoker_checkpoint_range ranges[TENSORS];

    for (uint64_t i = 0; i < TENSORS; i++) {
        ranges[i] = (struct stoker_checkpoint_range){i, 0, sizes[i], NULL};
    }
    for (size_t i = 0; i < STK_COUNT(places); i++) {
        struct stoker_error error = {0};

        flip(file->layout.header_bytes + places[i]);
        drop_pages();
        T_EQ("found", load(checkpoint, ranges, TENSORS, &error), STOKER_ERROR_CORRUPT);
        T_HAS("file", error.where, "shard-00000.safetensors");
        T_HAS("tensor", error.where, names[i]);
        flip(file->layout.header_bytes + places[i]);
    }
    T_EQ("right again", load(checkpoint, ranges, TENSORS, NULL), 0);
    T_EQ("cut", truncate(shard, (off_t)(file->bytes - MIB)), 0);
    drop_pages();
    T_EQ("short", load(checkpoint, ranges, TENSORS, NULL), STOKER_ERROR_TRUNCATED);
}

/* The error names the tensor with the bad block, not the first one of the read. */
static void test_bad_block(void)
{
    struct stoker_engine_options options = {.struct_size = sizeof options,
                                            .threads = 1,
                                            .memory_bytes_max = 64 * MIB,
                                            .io_backend = STOKER_IO_THREADS};
    static const uint64_t places[] = {3 * MIB, 28 * MIB + 100, 40 * MIB + 100};
    static const char *const names[] = {"a", "b", "c"};
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_checkpoint_range ranges[TENSORS];
    struct stoker_engine *engine = NULL;

    T_EQ("engine", stoker_engine_open(&engine, &options, NULL), 0);
    T_EQ("open", stoker_checkpoint_open(&checkpoint, engine, folder, 1, NULL), 0);
    for (uint64_t i = 0; i < TENSORS; i++) {
        ranges[i] = (struct stoker_checkpoint_range){i, 0, sizes[i], NULL};
    }
    for (size_t i = 0; i < STK_COUNT(places); i++) {
        struct stoker_error error = {0};

        atomic_store(&bad_offset, (int64_t)(checkpoint->files[0].layout.header_bytes + places[i]));
        drop_pages();
        T_EQ("bad block", load(checkpoint, ranges, TENSORS, &error), -EIO);
        T_HAS("file", error.shard, "shard-00000.safetensors");
        T_TRUE("tensor", strcmp(error.key, names[i]) == 0);
    }
    atomic_store(&bad_offset, -1);
    drop_pages();
    T_EQ("right again", load(checkpoint, ranges, TENSORS, NULL), 0);
    stoker_checkpoint_close(checkpoint);
    stoker_engine_close(engine);
}

int main(void)
{
    int64_t alive = stk_mem_alive();
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_engine *engine = t_open_engine(NULL);

    for (uint64_t i = 0; i < TENSORS; i++) {
        data[i] = malloc(sizes[i]);
        for (uint64_t j = 0; j < sizes[i]; j++) {
            data[i][j] = (uint8_t)(j * (i + 3) + (j >> 12) + (j >> 20) * 11);
        }
    }
    T_TRUE("folder", mkdtemp(folder) != NULL);
    snprintf(shard, sizeof shard, "%s/step-0000000001/shard-00000.safetensors", folder);
    save(engine);
    T_EQ("open", stoker_checkpoint_open(&checkpoint, engine, folder, 1, NULL), 0);
    test_ranges(checkpoint);
    test_bad_block();
    test_damage(checkpoint);
    stoker_checkpoint_close(checkpoint);
    T_EQ("remove", stoker_checkpoint_remove(engine, folder, 1, NULL), 0);
    T_EQ("empty", rmdir(folder), 0);
    stoker_engine_close(engine);
    for (uint64_t i = 0; i < TENSORS; i++) {
        free(data[i]);
    }
    T_EQ("memory", stk_mem_alive(), alive);
    return t_finish();
}
