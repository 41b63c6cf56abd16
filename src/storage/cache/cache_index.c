/* The index of a folder of the node cache. */
#include "storage/cache/cache_index.h"

#include "base/crc.h"
#include "base/xxh3.h"
#include "io/clock.h"
#include "io/posix/map_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x3165686361636b73ull
#define LOCK_BYTE (1ll << 40) /* of the index; the bytes below it are those of the slots */
#define GENERATION_STEP 8u
#define STATE_LOW 0xffffffffull
#define BYTES_PER_SLOT (64u << 10) /* of the quota */
#define SPARE_SHARE 8u
#define WAIT_MIN_NS 50000l
#define WAIT_MAX_NS 2000000l

_Static_assert(sizeof(struct stk_cache_slot) == 32, "two slots a cache line");
_Static_assert(STK_CACHE_SLOTS_MAX % STK_CACHE_BUCKET == 0, "full buckets");
_Static_assert(STK_CACHE_INDEX_HEAD_BYTES + STK_CACHE_SLOTS_MAX * 32ull <= 64000000,
               "as documented");
_Static_assert(sizeof(struct stk_cache_index_head) <= STK_CACHE_INDEX_HEAD_BYTES, "one page");

/* ---- the file ---- */

uint64_t stk_cache_index_bytes(uint32_t slot_count)
{
    return STK_CACHE_INDEX_HEAD_BYTES + (uint64_t)slot_count * sizeof(struct stk_cache_slot);
}

uint32_t stk_cache_index_slots(uint64_t quota_bytes)
{
    uint64_t count = stk_min(quota_bytes / BYTES_PER_SLOT, STK_CACHE_SLOTS_MAX);

    count += count / SPARE_SHARE; /* buckets are not equally full */
    count = (count + STK_CACHE_BUCKET - 1) / STK_CACHE_BUCKET * STK_CACHE_BUCKET;
    return (uint32_t)stk_min(stk_max(count, STK_CACHE_SLOTS_MIN), STK_CACHE_SLOTS_MAX);
}

static uint32_t crc_of(const struct stk_cache_index_head *head)
{
    return stk_crc32c(0, head, offsetof(struct stk_cache_index_head, crc));
}

void stk_cache_index_init_head(struct stk_cache_index_head *head, uint32_t slot_count,
                               uint32_t block_bytes, uint64_t quota_bytes)
{
    memset(head, 0, sizeof *head);
    head->magic = MAGIC;
    head->layout = STK_CACHE_LAYOUT;
    head->slot_count = slot_count;
    head->block_bytes = block_bytes;
    head->crc = crc_of(head);
    atomic_init(&head->quota_bytes, quota_bytes);
}

static bool has_good_slots(const struct stk_cache_index_head *head)
{
    uint32_t count = head->slot_count;

    if (count < STK_CACHE_SLOTS_MIN) {
        return false;
    }
    return head->layout == 1 ? count <= STK_CACHE_SLOTS_MAX_1 && (count & (count - 1)) == 0
                             : head->layout == STK_CACHE_LAYOUT && count <= STK_CACHE_SLOTS_MAX &&
                                   count % STK_CACHE_BUCKET == 0;
}

int stk_cache_index_check(const void *bytes, size_t count, uint64_t file_bytes)
{
    struct stk_cache_index_head head;

    if (count < sizeof head) {
        return -EINVAL;
    }
    memcpy(&head, bytes, sizeof head);
    if (head.magic != MAGIC) {
        return -EINVAL;
    }
    if (head.layout > STK_CACHE_LAYOUT) {
        return -EPROTO;
    }
    return has_good_slots(&head) && head.crc == crc_of(&head) &&
                   head.block_bytes >= STK_CACHE_BLOCK_BYTES_MIN &&
                   head.block_bytes <= STK_CACHE_BLOCK_BYTES_MAX &&
                   head.block_bytes % STK_CACHE_CHUNK_BYTES == 0 &&
                   file_bytes == stk_cache_index_bytes(head.slot_count)
               ? 0
               : -EBADMSG;
}

static uint64_t boot_of_machine(void)
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        (void)!read(fd, text, sizeof text - 1);
        close(fd);
    }
    return stk_xxh3_64(text, strlen(text)) | 1; /* never that of a new file */
}

static struct stk_view map_of(const struct stk_cache_index *index)
{
    return (struct stk_view){(const uint8_t *)index->head, index->map_bytes};
}

int stk_cache_index_map(struct stk_cache_index *index, int fd)
{
    struct stk_cache_index_head head = {0};
    struct stat about;
    void *map = MAP_FAILED;
    int status = 0;

    if (fstat(fd, &about) < 0 || pread(fd, &head, sizeof head, 0) < 0) {
        status = -errno;
    } else {
        status = stk_cache_index_check(&head, sizeof head, (uint64_t)about.st_size);
    }
    if (status == 0) {
        map = mmap(NULL, (size_t)about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        status = map == MAP_FAILED ? -errno : 0;
    }
    if (status == 0) { /* if the file is cut, it is a cache without blocks, and not a SIGBUS */
        status = stk_map_guard_add_writable((struct stk_view){map, (size_t)about.st_size},
                                            STK_CACHE_INDEX_NAME, &about);
        if (status < 0) {
            munmap(map, (size_t)about.st_size);
        }
    }
    if (status < 0) {
        close(fd);
        return status;
    }
    index->fd = fd;
    index->head = map;
    index->slots = (struct stk_cache_slot *)(void *)((uint8_t *)map + STK_CACHE_INDEX_HEAD_BYTES);
    index->slot_count = head.slot_count;
    index->block_bytes = head.block_bytes;
    index->map_bytes = (uint64_t)about.st_size;
    index->boot = boot_of_machine();
    pthread_mutex_init(&index->lock, NULL);
    return 0;
}

void stk_cache_index_unmap(struct stk_cache_index *index)
{
    if (index->head) {
        stk_map_guard_remove(map_of(index));
        munmap(index->head, index->map_bytes);
        close(index->fd);
        pthread_mutex_destroy(&index->lock);
        index->head = NULL;
    }
}

/* ---- lookups ---- */

static uint64_t key_word(const struct stk_cache_key *key, uint32_t i)
{
    uint64_t word;

    memcpy(&word, key->bytes + i * sizeof word, sizeof word);
    return word;
}

uint32_t stk_cache_index_bucket(const struct stk_cache_index *index,
                                const struct stk_cache_key *key, uint32_t which,
                                uint32_t *first_out)
{
    uint32_t buckets = index->slot_count / STK_CACHE_BUCKET;

    *first_out = (uint32_t)(key_word(key, which) % buckets) * STK_CACHE_BUCKET;
    return *first_out + STK_CACHE_BUCKET;
}

uint32_t stk_cache_index_find(const struct stk_cache_index *index, const struct stk_cache_key *key,
                              uint64_t *state_out)
{
    uint64_t first_word = key_word(key, 0), second_word = key_word(key, 1);

    for (uint32_t which = 0; which < 2; which++) {
        uint32_t first, end = stk_cache_index_bucket(index, key, which, &first);

        for (uint32_t i = first; i < end; i++) {
            struct stk_cache_slot *slot = &index->slots[i];
            /* Acquire: the key and the data were written before the state. */
            uint64_t state = atomic_load_explicit(&slot->state, memory_order_acquire);

            if (stk_cache_state_kind(state) != STK_CACHE_FREE &&
                atomic_load_explicit(&slot->key[0], memory_order_relaxed) == first_word &&
                atomic_load_explicit(&slot->key[1], memory_order_relaxed) == second_word) {
                *state_out = state;
                return i;
            }
        }
    }
    return STK_CACHE_NO_SLOT;
}

void stk_cache_index_touch(struct stk_cache_index *index, uint32_t slot, uint32_t minute)
{
    _Atomic uint32_t *used = &index->slots[slot].used_minute;

    if (atomic_load_explicit(used, memory_order_relaxed) != minute) {
        atomic_store_explicit(used, minute, memory_order_relaxed);
    }
}

/* ---- locks ---- */

/* The lock belongs to the open file: it ends when the last process that has it open ends. */
static bool set_lock(int fd, int64_t at, short kind)
{
    struct flock lock = {.l_type = kind, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};

    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

static void recount_locked(struct stk_cache_index *index)
{
    uint64_t used = 0;

    for (uint32_t i = 0; i < index->slot_count; i++) {
        uint64_t state = atomic_load_explicit(&index->slots[i].state, memory_order_relaxed);

        used += stk_cache_state_kind(state) == STK_CACHE_FREE ? 0 : stk_cache_state_bytes(state);
    }
    atomic_store_explicit(&index->head->used_bytes, used, memory_order_relaxed);
}

int stk_cache_index_lock(struct stk_cache_index *index, uint32_t timeout_ms)
{
    uint64_t end_ns = stk_clock_ns() + timeout_ms * 1000000ull;
    struct timespec pause = {.tv_nsec = WAIT_MIN_NS};

    pthread_mutex_lock(&index->lock);
    while (!set_lock(index->fd, LOCK_BYTE, F_WRLCK)) {
        if (stk_clock_ns() > end_ns) {
            pthread_mutex_unlock(&index->lock);
            return -ETIMEDOUT;
        }
        nanosleep(&pause, NULL);
        pause.tv_nsec = (long)stk_min((uint64_t)pause.tv_nsec * 2, WAIT_MAX_NS);
    }
    if (stk_map_guard_is_broken(map_of(index))) {
        (void)set_lock(index->fd, LOCK_BYTE, F_UNLCK);
        pthread_mutex_unlock(&index->lock);
        return -EIO;
    }
    if (atomic_exchange_explicit(&index->head->changing, 1, memory_order_acquire) ||
        atomic_load_explicit(&index->head->boot, memory_order_relaxed) != index->boot) {
        recount_locked(index); /* a process ended in the middle of a change, or the machine */
        atomic_store_explicit(&index->head->boot, index->boot, memory_order_relaxed);
    }
    return 0;
}

void stk_cache_index_unlock(struct stk_cache_index *index)
{
    atomic_store_explicit(&index->head->changing, 0, memory_order_release);
    (void)set_lock(index->fd, LOCK_BYTE, F_UNLCK);
    pthread_mutex_unlock(&index->lock);
}

bool stk_cache_index_lock_slot(struct stk_cache_index *index, uint32_t slot)
{
    return set_lock(index->fd, slot, F_WRLCK);
}

void stk_cache_index_unlock_slot(struct stk_cache_index *index, uint32_t slot)
{
    (void)set_lock(index->fd, slot, F_UNLCK);
}

/* ---- changes ---- */

uint32_t stk_cache_index_free_slot_locked(const struct stk_cache_index *index,
                                          const struct stk_cache_key *key)
{
    uint32_t found[2] = {STK_CACHE_NO_SLOT, STK_CACHE_NO_SLOT}, free_slots[2] = {0};

    for (uint32_t which = 0; which < 2; which++) {
        uint32_t first, end = stk_cache_index_bucket(index, key, which, &first);

        for (uint32_t i = first; i < end; i++) {
            uint64_t state = atomic_load_explicit(&index->slots[i].state, memory_order_relaxed);

            if (stk_cache_state_kind(state) == STK_CACHE_FREE) {
                found[which] = free_slots[which]++ == 0 ? i : found[which];
            }
        }
    }
    return found[free_slots[1] > free_slots[0]];
}

static uint64_t next_state(uint64_t state, uint64_t kind, uint64_t bytes)
{
    uint64_t generation = (state & STATE_LOW & ~7ull) + GENERATION_STEP;

    return (bytes << 32) | (generation & STATE_LOW & ~7ull) | kind;
}

static void add_used(struct stk_cache_index *index, uint64_t more, uint64_t less)
{
    uint64_t used = atomic_load_explicit(&index->head->used_bytes, memory_order_relaxed) + more;

    atomic_store_explicit(&index->head->used_bytes, used - stk_min(used, less),
                          memory_order_relaxed);
}

uint64_t stk_cache_index_fill_locked(struct stk_cache_index *index, uint32_t i,
                                     const struct stk_cache_block *block, uint64_t bytes)
{
    const struct stk_cache_key *key = &block->key;
    struct stk_cache_slot *slot = &index->slots[i];
    uint64_t before = atomic_load_explicit(&slot->state, memory_order_relaxed);
    uint64_t state = next_state(before, STK_CACHE_FILLING, bytes);
    bool is_free = stk_cache_state_kind(before) == STK_CACHE_FREE;

    atomic_store_explicit(&slot->key[0], key_word(key, 0), memory_order_relaxed);
    atomic_store_explicit(&slot->key[1], key_word(key, 1), memory_order_relaxed);
    atomic_store_explicit(&slot->used_minute, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->place, block->place, memory_order_relaxed);
    atomic_store_explicit(&slot->state, state, memory_order_release);
    add_used(index, bytes, is_free ? 0 : stk_cache_state_bytes(before));
    return state;
}

void stk_cache_index_begin_free_locked(struct stk_cache_index *index, uint32_t i)
{
    struct stk_cache_slot *slot = &index->slots[i];
    uint64_t before = atomic_load_explicit(&slot->state, memory_order_relaxed);

    atomic_store_explicit(&slot->state,
                          next_state(before, STK_CACHE_FILLING, stk_cache_state_bytes(before)),
                          memory_order_release);
}

void stk_cache_index_free_locked(struct stk_cache_index *index, uint32_t i)
{
    struct stk_cache_slot *slot = &index->slots[i];
    uint64_t before = atomic_load_explicit(&slot->state, memory_order_relaxed);

    if (stk_cache_state_kind(before) != STK_CACHE_FREE) {
        atomic_store_explicit(&slot->state, next_state(before, STK_CACHE_FREE, 0),
                              memory_order_release);
        add_used(index, 0, stk_cache_state_bytes(before));
    }
}

bool stk_cache_index_commit_locked(struct stk_cache_index *index, uint32_t i, uint64_t state)
{
    struct stk_cache_slot *slot = &index->slots[i];

    if (atomic_load_explicit(&slot->state, memory_order_relaxed) != state) {
        return false;
    }
    /* Release: the data was written before. */
    atomic_store_explicit(&slot->state, (state & ~3ull) | STK_CACHE_VALID, memory_order_release);
    return true;
}

void stk_cache_index_pin_locked(struct stk_cache_index *index, uint32_t i, bool pinned)
{
    struct stk_cache_slot *slot = &index->slots[i];
    uint64_t state = atomic_load_explicit(&slot->state, memory_order_relaxed);

    atomic_store_explicit(&slot->state, (state & ~4ull) | (pinned ? 4u : 0u), memory_order_release);
}
