/* Goal: a cache returns the right bytes or none after a process was killed, or the power failed;
 * what a killed process holds is free at once. Method: children that are killed at random moments,
 * and at known ones; every page of a crash old, empty or new. */
#include "storage/cache/cache_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* ---- kills ---- */

#define KILL_OBJECTS 40u
#define KILL_QUOTA (2u << 20)

/* Fills, reads and drops blocks until it is killed. Sets *wrong if a byte is. */
static void run_child(uint64_t seed, _Atomic uint32_t *wrong, _Atomic uint32_t *ready)
{
    struct stoker_cache *cache = open_cache(0, BLOCK);

    atomic_fetch_add(ready, 1);
    for (uint64_t i = 0;; i++) {
        uint64_t draw = stk_mix64(seed + i);
        uint32_t object = (uint32_t)(draw % KILL_OBJECTS);
        struct stk_cache_block block = block_of(cache, object, 0, 1 + object * 3300);
        uint64_t state = 0;
        uint32_t slot;

        if (check(cache, &block, 0, block.bytes) == 1) {
            atomic_store(wrong, 1);
        }
        (void)fill(cache, &block);
        slot = stk_cache_index_find(&cache->disks[0].index, &block.key, &state);
        if ((draw >> 40) % 4 == 0 && slot != STK_CACHE_NO_SLOT &&
            stk_cache_state_kind(state) == STK_CACHE_VALID) {
            (void)stk_cache_disk_drop(&cache->disks[0], slot, state);
        }
    }
}

static void test_kills(void)
{
    enum { CHILDREN = 4 };
    uint32_t kills = T_HISTORIES(200);
    _Atomic uint32_t *shared =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct stoker_cache *cache = open_cache(KILL_QUOTA, BLOCK);
    struct stoker_cache_folder about = {.struct_size = sizeof about};
    struct stoker_cache_object sum;
    pid_t children[CHILDREN] = {0};
    uint64_t used = 0, recounted;

    for (uint32_t kill_number = 0; kill_number < kills + CHILDREN; kill_number++) {
        uint32_t victim = kill_number % CHILDREN, before = atomic_load(&shared[1]);
        pid_t child;

        if (children[victim]) {
            usleep((useconds_t)(stk_mix64(kill_number) % 6000));
            kill(children[victim], SIGKILL);
            waitpid(children[victim], NULL, 0);
            T_TRUE("within the quota", bytes_on_disk() <= KILL_QUOTA);
            children[victim] = 0;
        }
        if (kill_number >= kills) {
            continue;
        }
        child = fork();
        if (child == 0) {
            run_child(kill_number * 1000003u, &shared[0], &shared[1]);
            _exit(0);
        }
        children[victim] = child;
        for (uint32_t i = 0; i < 5000 && atomic_load(&shared[1]) == before; i++) {
            usleep(1000);
        }
    }
    for (uint32_t i = 0; i < CHILDREN; i++) {
        if (children[i]) {
            kill(children[i], SIGKILL);
            waitpid(children[i], NULL, 0);
        }
    }
    T_EQ("no wrong byte", atomic_load(&shared[0]), 0);
    T_TRUE("collect", stoker_cache_collect(cache, NULL) >= 0);
    T_EQ("folder", stoker_cache_folder(cache, 0, &about), 1);
    T_EQ("no slot is lost", about.blocks_filling, 0);
    used = about.bytes_used;
    atomic_store(&cache->disks[0].index.head->changing, 1);
    T_EQ("count again", stoker_cache_collect(cache, NULL), 0);
    recounted = stats_of(cache).bytes_used;
    T_EQ("no byte is lost", recounted, used);
    sum_report(cache, STOKER_CACHE_VERIFY, "", &sum);
    T_EQ("no damaged block", sum.blocks_damaged, 0);
    for (uint32_t i = 0; i < KILL_OBJECTS; i++) {
        struct stk_cache_block block = block_of(cache, i, 0, 1 + i * 3300);

        T_TRUE("right or gone", check(cache, &block, 0, block.bytes) != 1);
    }
    stoker_cache_close(cache);
    munmap(shared, PAGE);
    clear_folder();
}

/* What a process that is killed leaves. */
enum left { LEFT_NOTHING, LEFT_A_FILL, LEFT_A_CHANGE };

/* Begins a fill, or also a change of the index, and waits to be killed. */
static void run_left(enum left left, const struct stk_cache_block *block, _Atomic uint32_t *ready)
{
    struct stoker_cache *cache = open_cache(0, BLOCK);
    struct stk_cache_fill turn;

    if (stk_cache_disk_begin(&cache->disks[0], block, &turn) != STK_CACHE_TURN_MINE ||
        (left == LEFT_A_CHANGE && stk_cache_index_lock(&cache->disks[0].index, 1000) < 0)) {
        _exit(1);
    }
    if (left == LEFT_A_CHANGE) { /* half of it: the bytes are not what the slots say */
        atomic_fetch_add(&cache->disks[0].index.head->used_bytes, 1u << 20);
    }
    atomic_store(ready, 1);
    for (;;) {
        pause();
    }
}

/* Locks of a process that was killed are free when it is gone: the first attempt of another one,
 * which does not wait, takes its fill over, and counts again after half a change. */
static void test_recovery(void)
{
    static const enum left rows[] = {LEFT_A_FILL, LEFT_A_CHANGE};
    _Atomic uint32_t *ready =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        struct stoker_cache *cache = open_cache(QUOTA, BLOCK);
        struct stk_cache_disk *disk = &cache->disks[0];
        struct stk_cache_block block = block_of(cache, 1, 0, 1000),
                               other = block_of(cache, 2, 0, 9);
        struct stk_cache_fill turn;
        pid_t child;

        fill(cache, &other);
        atomic_store(ready, 0);
        child = fork();
        if (child == 0) {
            run_left(rows[i], &block, ready);
        }
        for (uint32_t tries = 0; tries < 20000 && !atomic_load(ready); tries++) {
            usleep(1000);
        }
        T_EQ("ready", atomic_load(ready), 1);
        if (rows[i] == LEFT_A_CHANGE) {
            T_EQ("locked", stk_cache_index_lock(&disk->index, 0), -ETIMEDOUT);
        } else {
            T_EQ("busy", stk_cache_disk_begin(disk, &block, &turn), STK_CACHE_TURN_BUSY);
        }
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        T_EQ("lock, without a wait", stk_cache_index_lock(&disk->index, 0), 0);
        stk_cache_index_unlock(&disk->index);
        T_EQ("the turn, at once", stk_cache_disk_begin(disk, &block, &turn), STK_CACHE_TURN_MINE);
        stk_cache_disk_abandon(&turn);
        T_EQ("the other block", check(cache, &other, 0, 9), 0);
        T_TRUE("used", stats_of(cache).bytes_used < 1u << 20);
        stoker_cache_close(cache);
        clear_folder();
    }
    munmap((void *)(uintptr_t)ready, PAGE);
}

/* ---- crashes of the machine ---- */

/* Files of a cache at one moment. */
struct image {
    uint8_t *index, *data;
    size_t index_bytes, data_bytes;
};

static void path_of(char name[128], int file)
{
    snprintf(name, 128, file < 0 ? "%s/" STK_CACHE_INDEX_NAME : "%s/stoker-cache.data-%d", folder,
             file);
}

static uint8_t *load(int file, size_t bytes)
{
    uint8_t *copy = stk_alloc(1, bytes);
    char name[128];
    int fd;

    path_of(name, file);
    fd = open(name, O_RDONLY);
    T_TRUE("load", fd >= 0 && pread(fd, copy, bytes, 0) >= 0);
    close(fd);
    return copy;
}

static void store_page(int file, uint32_t page, const uint8_t *bytes)
{
    static const uint8_t zeros[PAGE];
    char name[128];
    int fd;

    path_of(name, file);
    fd = open(name, O_WRONLY);
    T_EQ("store", pwrite(fd, bytes ? bytes : zeros, PAGE, (off_t)page * PAGE), PAGE);
    close(fd);
}

struct crash_results {
    uint64_t wrong, old, new; /* reads of wrong bytes; blocks that were found */
};

/* Opens the cache after a crash, and reads both blocks. */
static void check_crash_state(const struct stk_cache_block *old, const struct stk_cache_block *new,
                              struct crash_results *results)
{
    struct stoker_cache *cache = open_cache(0, 0);
    int status = check(cache, old, 0, 12000);

    results->wrong += status == 1;
    results->old += status == 0;
    status = check(cache, new, 0, 12000);
    results->wrong += status == 1;
    results->new += status == 0;
    T_TRUE("collect", stoker_cache_collect(cache, NULL) >= 0);
    T_TRUE("used", stats_of(cache).bytes_used <= QUOTA);
    stoker_cache_close(cache);
}

#define CRASH_BYTES 12000u
#define CRASH_PAGES 4u /* of the data of such a block */

/* A slot before and after a change. */
struct crash {
    struct stk_cache_block old, new;
    struct image before, after;
    uint32_t slot, file, first; /* first: page of the data */
};

static void load_image(const struct stoker_cache *cache, const struct crash *crash,
                       struct image *image)
{
    image->index_bytes = cache->disks[0].index.map_bytes;
    image->data_bytes = ((size_t)crash->first + CRASH_PAGES) * PAGE;
    image->index = load(-1, image->index_bytes);
    image->data = load((int)crash->file, image->data_bytes);
}

/* A block whose key may be in the slot. */
static struct stk_cache_block another_block(struct stoker_cache *cache, const struct crash *crash)
{
    struct stk_cache_block new = crash->old;

    for (uint32_t i = 2; memcmp(&new, &crash->old, sizeof new) == 0 && i < 200000; i++) {
        struct stk_cache_block candidate = block_of(cache, i, 0, CRASH_BYTES);
        uint32_t begin,
            end = stk_cache_index_bucket(&cache->disks[0].index, &candidate.key, 0, &begin);

        new = crash->slot >= begin && crash->slot < end ? candidate : new;
    }
    return new;
}

static void insert_new(struct stk_cache_disk *disk, const struct crash *crash)
{
    uint8_t data[CRASH_BYTES];
    uint64_t state;

    fill_bytes(data, &crash->new);
    T_EQ("write",
         stk_cache_block_write(disk->data[crash->file], (uint64_t)crash->first * PAGE, &crash->new,
                               data),
         0);
    T_EQ("lock", stk_cache_index_lock(&disk->index, 1000), 0);
    state = stk_cache_index_fill_locked(&disk->index, crash->slot, &crash->new, 20480);
    T_TRUE("commit", stk_cache_index_commit_locked(&disk->index, crash->slot, state));
    stk_cache_index_unlock(&disk->index);
}

/* The power failed during a change: each page of the data is old, empty or new, each page of the
 * index old or new. */
static void try_states(const struct crash *crash, struct crash_results *found)
{
    uint32_t page =
        (uint32_t)((STK_CACHE_INDEX_HEAD_BYTES + crash->slot * sizeof(struct stk_cache_slot)) /
                   PAGE);

    for (uint32_t mask = 0; mask < 4 * 81; mask++) {
        const struct image *head = mask & 1 ? &crash->after : &crash->before;
        const struct image *slot = mask & 2 ? &crash->after : &crash->before;

        store_page(-1, 0, head->index);
        store_page(-1, page, slot->index + (size_t)page * PAGE);
        for (uint32_t i = 0, rest = mask / 4; i < CRASH_PAGES; i++, rest /= 3) {
            const uint8_t *from = rest % 3 == 0   ? crash->before.data
                                  : rest % 3 == 1 ? NULL
                                                  : crash->after.data;
            size_t at = (size_t)crash->first + i;

            store_page((int)crash->file, (uint32_t)at, from ? from + at * PAGE : NULL);
        }
        check_crash_state(&crash->old, &crash->new, found);
    }
}

/* A block is inserted, evicted, or replaced by another one in the same slot. No block is ever read
 * wrong, and one whose pages are all there is found. */
static void test_crash_states(void)
{
    static const struct row {
        const char *name;
        bool is_filled, is_inserted;
        uint64_t old, new; /* states in which they are found */
    } rows[] = {
        /* Any page of the head, which reads do not need; one page of the data is padding. An
         * empty page before an insertion, or after an eviction, is the same twice. */
        {"replaced", true, true, 2 * 3, 2 * 3},
        {"inserted", false, true, 0, 2 * 3},
        {"evicted", true, false, 2 * 3, 0},
    };

    T_EACH(row, row, rows)
    {
        struct stoker_cache *cache = open_cache(QUOTA, 32u << 10);
        struct stk_cache_disk *disk = &cache->disks[0];
        struct crash crash = {.old = block_of(cache, 1, 0, CRASH_BYTES)};
        struct crash_results found = {0};
        uint64_t state;

        fill(cache, &crash.old);
        crash.slot = stk_cache_index_find(&disk->index, &crash.old.key, &state);
        crash.file = crash.slot % STK_CACHE_FILES;
        crash.first =
            (uint32_t)(crash.slot / STK_CACHE_FILES * stk_cache_region_bytes(32u << 10) / PAGE);
        crash.new = another_block(cache, &crash);
        if (row->is_filled) {
            load_image(cache, &crash, &crash.before);
        }
        T_EQ("drop", stk_cache_disk_drop(disk, crash.slot, state), 0);
        if (!row->is_filled) {
            load_image(cache, &crash, &crash.before);
        }
        if (row->is_inserted) {
            insert_new(disk, &crash);
        }
        load_image(cache, &crash, &crash.after);
        stoker_cache_close(cache);
        try_states(&crash, &found);
        T_EQ(row->name, found.wrong, 0);
        T_EQ(row->name, found.old, row->old);
        T_EQ(row->name, found.new, row->new);
        stk_free(crash.before.index);
        stk_free(crash.before.data);
        stk_free(crash.after.index);
        stk_free(crash.after.data);
        clear_folder();
    }
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/stoker-cache-crash-test-%d", (int)getpid());
    clear_folder();
    test_kills();
    test_recovery();
    test_crash_states();
    return t_finish();
}
