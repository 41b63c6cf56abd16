/* Blocks of powers of two in free lists. A header of 16 bytes before each block stores its size.
 *
 *   small: cut from chunks, which are never unmapped    large: own pages, some are cached
 *
 * Free memory is always zero, so allocation does not zero a block. */
#include "base/crypto/secret_memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define HEADER_BYTES 16u
#define LEAST_LOG2 6u  /* 64 bytes, header included */
#define SMALL_LOG2 15u /* the largest block that is cut from a chunk */
#define LARGE_LOG2 20u /* the largest block that is cached; larger ones are mapped on demand */
#define CHUNK_BYTES (256u << 10)

struct head {
    size_t bytes; /* header included */
    union {
        struct head *next; /* of a free block */
        size_t used;       /* requested bytes: the part to be wiped */
    };
};

static_assert(sizeof(struct head) == HEADER_BYTES, "blocks are aligned to it");

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    struct head *free[LARGE_LOG2 + 1];
    uint8_t *at;
    size_t left;         /* bytes left in the current chunk */
    size_t cached_bytes; /* of free large blocks in the cache */
} locked;

/* From LeakSanitizer, if it is present: it does not search mapped pages for pointers by itself. */
extern void __lsan_register_root_region(const void *begin, size_t bytes) __attribute__((weak));
extern void __lsan_unregister_root_region(const void *begin, size_t bytes) __attribute__((weak));

static void acquire_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void release_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* In the child of a fork, no thread exists that could release the lock. */
static void register_fork_handlers(void)
{
    pthread_atfork(acquire_lock, release_lock, release_lock);
}

static void *map(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (pages == MAP_FAILED) {
        return NULL;
    }
    madvise(pages, bytes, MADV_DONTDUMP);
    if (__lsan_register_root_region) {
        __lsan_register_root_region(pages, bytes);
    }
    return pages;
}

static void unmap(void *pages, size_t bytes)
{
    if (__lsan_unregister_root_region) {
        __lsan_unregister_root_region(pages, bytes);
    }
    munmap(pages, bytes);
}

static unsigned log2_of(size_t bytes)
{
    return bytes <= 1u << LEAST_LOG2 ? LEAST_LOG2 : 64u - (unsigned)__builtin_clzll(bytes - 1);
}

/* Returns a zeroed block. The rest of an older chunk, less than the largest block, is lost. */
static struct head *cut_locked(size_t bytes)
{
    struct head *head;

    if (locked.left < bytes) {
        uint8_t *chunk = map(CHUNK_BYTES);

        if (!chunk) {
            return NULL;
        }
        locked.at = chunk;
        locked.left = CHUNK_BYTES;
    }
    head = (struct head *)(void *)locked.at;
    locked.at += bytes;
    locked.left -= bytes;
    return head;
}

static struct head *allocate_block(size_t used)
{
    size_t bytes = used + HEADER_BYTES;
    unsigned size = log2_of(bytes);
    struct head *head = NULL;

    if (size > LARGE_LOG2) {
        bytes = (bytes + 4095) & ~(size_t)4095;
        head = map(bytes);
    } else {
        bytes = (size_t)1 << size;
        pthread_mutex_lock(&lock);
        head = locked.free[size];
        if (head) {
            locked.free[size] = head->next;
            locked.cached_bytes -= size > SMALL_LOG2 ? bytes : 0;
        } else if (size <= SMALL_LOG2) {
            head = cut_locked(bytes);
        }
        pthread_mutex_unlock(&lock);
        head = head || size <= SMALL_LOG2 ? head : map(bytes);
    }
    if (head) {
        *head = (struct head){.bytes = bytes, .used = used};
    }
    return head;
}

void *stk_secret_alloc(size_t bytes)
{
    struct head *head;

    if (bytes > PTRDIFF_MAX - 8192) {
        return NULL;
    }
    pthread_once(&once, register_fork_handlers);
    head = allocate_block(bytes);
    return head ? (uint8_t *)head + HEADER_BYTES : NULL;
}

void *stk_secret_calloc(size_t count, size_t item_bytes)
{
    uint64_t bytes;

    return stk_multiply(count, item_bytes, &bytes) ? stk_secret_alloc(bytes) : NULL;
}

static struct head *head_of(void *block)
{
    return (struct head *)(void *)((uint8_t *)block - HEADER_BYTES);
}

void stk_secret_free(void *block)
{
    struct head *head;
    size_t bytes;
    unsigned size;
    bool is_cached;

    if (!block) {
        return;
    }
    head = head_of(block);
    bytes = head->bytes;
    size = log2_of(bytes);
    if (size > LARGE_LOG2) {
        unmap(head, bytes);
        return;
    }
    explicit_bzero(block, head->used);
    pthread_mutex_lock(&lock);
    is_cached = size <= SMALL_LOG2 || locked.cached_bytes + bytes <= STK_SECRET_CACHED_BYTES;
    if (is_cached) {
        locked.cached_bytes += size > SMALL_LOG2 ? bytes : 0;
        head->next = locked.free[size];
        locked.free[size] = head;
    }
    pthread_mutex_unlock(&lock);
    if (!is_cached) {
        unmap(head, bytes);
    }
}

void *stk_secret_realloc(void *block, size_t bytes)
{
    struct head *head = block ? head_of(block) : NULL;
    void *larger;

    if (head && bytes <= head->bytes - HEADER_BYTES) {
        if (bytes < head->used) {
            explicit_bzero((uint8_t *)block + bytes, head->used - bytes);
        }
        head->used = bytes;
        return block;
    }
    larger = stk_secret_alloc(bytes);
    if (larger && head) {
        memcpy(larger, block, head->used);
        stk_secret_free(block);
    }
    return larger;
}

char *stk_secret_strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = stk_secret_alloc(bytes);

    if (copy) {
        memcpy(copy, text, bytes);
    }
    return copy;
}
