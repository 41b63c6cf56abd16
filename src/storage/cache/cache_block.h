/* storage/cache/cache_block.h: a block of an object in a data file of the node cache.
 *
 *   region of a slot   head | chunk | trailer | chunk | trailer | ...
 *
 * The head says which bytes of which object the block holds; only tools read it. Reads take the
 * chunks that they need together with their trailers: a trailer has the number of its chunk, 64
 * bits of the block's key, and a CRC32C of the chunk and of itself. So a torn or flipped chunk, and
 * a chunk of another block, is never returned.
 * Owner: the caller of each function has the descriptor. Threads: any. Memory: the stack, 70 KiB.
 * Bound: STK_CACHE_BLOCK_BYTES_MAX. */
#ifndef STORAGE_CACHE_CACHE_BLOCK_H
#define STORAGE_CACHE_CACHE_BLOCK_H

#include "base/base.h"

#define STK_CACHE_CHUNK_BYTES (32u << 10)
#define STK_CACHE_HEAD_BYTES 4096u
#define STK_CACHE_BLOCK_BYTES_MIN STK_CACHE_CHUNK_BYTES
#define STK_CACHE_BLOCK_BYTES_MAX (8u << 20)
#define STK_CACHE_KEY_BYTES 32u
#define STK_CACHE_URL_BYTES 2048u
#define STK_CACHE_TAG_BYTES 256u

/* SHA-256 of the identity of an object version and the number of the block. */
struct stk_cache_key {
    uint8_t bytes[STK_CACHE_KEY_BYTES];
};

/* A block of an object. */
struct stk_cache_block {
    struct stk_cache_key key;
    uint64_t offset; /* in the object */
    uint32_t bytes;  /* shorter than a full block only at the end of the object */
    uint64_t object_bytes;
    uint32_t place;        /* as in cache_future.h; 0: unknown */
    const char *url, *tag; /* borrowed: for tools, without secrets */
};

/* What a head says. */
struct stk_cache_head {
    struct stk_cache_key key;
    uint64_t offset, object_bytes;
    uint32_t bytes;
    char url[STK_CACHE_URL_BYTES], tag[STK_CACHE_TAG_BYTES];
};

/* Bytes of the region of a block, in complete pages. */
uint64_t stk_cache_region_bytes(uint32_t block_bytes);

void stk_cache_head_encode(const struct stk_cache_block *block,
                           uint8_t head_out[STK_CACHE_HEAD_BYTES]);
/* Returns false if the bytes are not a head. */
bool stk_cache_head_decode(const uint8_t head[STK_CACHE_HEAD_BYTES],
                           struct stk_cache_head *head_out);

/* Writes head, chunks and trailers at `at`. Returns 0 on success, or -errno. */
int stk_cache_block_write(int fd, uint64_t at, const struct stk_cache_block *block,
                          const uint8_t *data);
/* A part of a block that is wanted. */
struct stk_cache_part {
    uint32_t offset, bytes; /* in the block */
    uint8_t *buffer;
    bool in_memory; /* read it only if it is in the page cache */
};
/* Reads a part of a block whose region begins at `at`, and verifies it. Returns 0 on success;
 * -EAGAIN if it is not in the page cache; -EBADMSG if the region does not hold these bytes of this
 * block; -errno. On failure the buffer has arbitrary bytes. */
int stk_cache_block_read(int fd, uint64_t at, const struct stk_cache_block *block,
                         const struct stk_cache_part *part);

#endif
