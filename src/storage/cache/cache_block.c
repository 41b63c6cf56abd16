/* Blocks in the data files of the node cache. */
#include "storage/cache/cache_block.h"

#include "base/crc.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <sys/uio.h>

#define MAGIC 0x6b636f6c62206b73ull /* "sk block" */
#define VERSION 1u
#define GROUP_CHUNKS 128u /* of one call to the kernel */

_Static_assert(2u * GROUP_CHUNKS + 1u <= IOV_MAX, "a group fits in one call");

struct head {
    uint64_t magic;
    uint32_t version, crc; /* of the head with crc 0 */
    uint8_t key[STK_CACHE_KEY_BYTES];
    uint64_t offset, object_bytes;
    uint32_t bytes, unused;
    char tag[STK_CACHE_TAG_BYTES], url[STK_CACHE_URL_BYTES];
};

_Static_assert(sizeof(struct head) <= STK_CACHE_HEAD_BYTES, "a head is one page");

struct trailer {
    uint32_t crc; /* of the chunk and of the fields below */
    uint32_t chunk;
    uint64_t key; /* its last bytes: the index has the first ones */
};

#define CHUNK_STRIDE (STK_CACHE_CHUNK_BYTES + sizeof(struct trailer))

static uint32_t chunk_count(uint32_t block_bytes)
{
    return (block_bytes + STK_CACHE_CHUNK_BYTES - 1) / STK_CACHE_CHUNK_BYTES;
}

static uint32_t chunk_bytes(uint32_t block_bytes, uint32_t chunk)
{
    return (uint32_t)stk_min(block_bytes - chunk * STK_CACHE_CHUNK_BYTES, STK_CACHE_CHUNK_BYTES);
}

uint64_t stk_cache_region_bytes(uint32_t block_bytes)
{
    return stk_round_up(STK_CACHE_HEAD_BYTES + block_bytes +
                            (uint64_t)chunk_count(block_bytes) * sizeof(struct trailer),
                        STK_CACHE_HEAD_BYTES);
}

static struct trailer trailer_of(const struct stk_cache_block *block, uint32_t chunk,
                                 const uint8_t *data, uint32_t bytes)
{
    struct trailer trailer = {.chunk = chunk};

    memcpy(&trailer.key, block->key.bytes + STK_CACHE_KEY_BYTES - sizeof trailer.key,
           sizeof trailer.key);
    trailer.crc = stk_crc32c(stk_crc32c(0, data, bytes), &trailer.chunk,
                             sizeof trailer - offsetof(struct trailer, chunk));
    return trailer;
}

/* ---- heads ---- */

static void copy_text(char *text, size_t room, const char *from)
{
    size_t bytes = from ? strlen(from) : 0;

    memcpy(text, from ? from : "", stk_min(bytes, room - 1));
}

void stk_cache_head_encode(const struct stk_cache_block *block,
                           uint8_t head_out[STK_CACHE_HEAD_BYTES])
{
    struct head head = {.magic = MAGIC,
                        .version = VERSION,
                        .offset = block->offset,
                        .object_bytes = block->object_bytes,
                        .bytes = block->bytes};

    memcpy(head.key, block->key.bytes, sizeof head.key);
    copy_text(head.tag, sizeof head.tag, block->tag);
    copy_text(head.url, sizeof head.url, block->url);
    head.crc = stk_crc32c(0, &head, sizeof head);
    memset(head_out, 0, STK_CACHE_HEAD_BYTES);
    memcpy(head_out, &head, sizeof head);
}

bool stk_cache_head_decode(const uint8_t bytes[STK_CACHE_HEAD_BYTES],
                           struct stk_cache_head *head_out)
{
    struct head head;
    uint32_t crc;

    memcpy(&head, bytes, sizeof head);
    crc = head.crc;
    head.crc = 0;
    if (head.magic != MAGIC || head.version != VERSION ||
        crc != stk_crc32c(0, &head, sizeof head) || head.bytes == 0 ||
        head.bytes > STK_CACHE_BLOCK_BYTES_MAX || head.object_bytes < head.bytes ||
        head.offset > head.object_bytes - head.bytes || head.url[sizeof head.url - 1] ||
        head.tag[sizeof head.tag - 1]) {
        return false;
    }
    memcpy(head_out->key.bytes, head.key, sizeof head.key);
    head_out->offset = head.offset;
    head_out->object_bytes = head.object_bytes;
    head_out->bytes = head.bytes;
    memcpy(head_out->url, head.url, sizeof head.url);
    memcpy(head_out->tag, head.tag, sizeof head.tag);
    return true;
}

/* ---- writing ---- */

int stk_cache_block_write(int fd, uint64_t at, const struct stk_cache_block *block,
                          const uint8_t *data)
{
    uint8_t head[STK_CACHE_HEAD_BYTES];
    struct trailer trailers[GROUP_CHUNKS];
    struct iovec parts[2 * GROUP_CHUNKS + 1];
    uint32_t count = chunk_count(block->bytes), chunk = 0;

    stk_cache_head_encode(block, head);
    while (chunk < count) {
        uint32_t used = 0;
        size_t bytes = 0;
        ssize_t written;

        if (chunk == 0) {
            parts[used++] = (struct iovec){head, sizeof head};
        }
        for (uint32_t i = 0; i < GROUP_CHUNKS && chunk < count; i++, chunk++) {
            const uint8_t *from = data + (size_t)chunk * STK_CACHE_CHUNK_BYTES;
            uint32_t length = chunk_bytes(block->bytes, chunk);

            trailers[i] = trailer_of(block, chunk, from, length);
            parts[used++] = (struct iovec){(void *)(uintptr_t)from, length};
            parts[used++] = (struct iovec){&trailers[i], sizeof trailers[i]};
        }
        for (uint32_t i = 0; i < used; i++) {
            bytes += parts[i].iov_len;
        }
        written = pwritev(fd, parts, (int)used, (off_t)at);
        if (written != (ssize_t)bytes) {
            return written < 0 ? -errno : -ENOSPC;
        }
        at += bytes;
    }
    return 0;
}

/* ---- reading ---- */

/* The chunks [first, end) of a block, and where their bytes go. The first and the last chunk may be
 * wanted in part: then they are read into a buffer of their own. */
struct group {
    const struct stk_cache_block *block;
    uint32_t first, end;
    uint32_t begin, stop; /* the wanted bytes, in the block */
    uint8_t *buffer;      /* of the byte `begin` */
    uint8_t partial[2][STK_CACHE_CHUNK_BYTES];
    struct trailer trailers[GROUP_CHUNKS];
};

/* Where a chunk is read to. */
static uint8_t *place_of(struct group *group, uint32_t chunk)
{
    uint32_t at = chunk * STK_CACHE_CHUNK_BYTES;
    uint32_t length = chunk_bytes(group->block->bytes, chunk);

    if (at < group->begin) {
        return group->partial[0];
    }
    return at + length > group->stop ? group->partial[1] : group->buffer + (at - group->begin);
}

static int read_chunks(struct group *group, int fd, uint64_t at, bool in_memory)
{
    struct iovec parts[2 * GROUP_CHUNKS];
    uint32_t used = 0;
    size_t bytes = 0;
    ssize_t got;

    for (uint32_t chunk = group->first; chunk < group->end; chunk++) {
        uint32_t length = chunk_bytes(group->block->bytes, chunk);

        parts[used++] = (struct iovec){place_of(group, chunk), length};
        parts[used++] =
            (struct iovec){&group->trailers[chunk - group->first], sizeof group->trailers[0]};
        bytes += length + sizeof group->trailers[0];
    }
    at += STK_CACHE_HEAD_BYTES + group->first * CHUNK_STRIDE;
    got = preadv2(fd, parts, (int)used, (off_t)at, in_memory ? RWF_NOWAIT : 0);
    if (got == (ssize_t)bytes) {
        return 0;
    }
    if (got < 0) {
        return in_memory && errno == EOPNOTSUPP ? -EAGAIN : -errno;
    }
    return in_memory ? -EAGAIN : -EBADMSG; /* the file ends too early */
}

static int check_chunks(struct group *group)
{
    for (uint32_t chunk = group->first; chunk < group->end; chunk++) {
        uint32_t length = chunk_bytes(group->block->bytes, chunk);
        uint32_t at = chunk * STK_CACHE_CHUNK_BYTES;
        const uint8_t *data = place_of(group, chunk);
        struct trailer want = trailer_of(group->block, chunk, data, length);

        if (memcmp(&want, &group->trailers[chunk - group->first], sizeof want) != 0) {
            return -EBADMSG;
        }
        if (data == group->partial[0] || data == group->partial[1]) {
            uint32_t begin = (uint32_t)stk_max(at, group->begin);
            uint32_t end = (uint32_t)stk_min(at + length, group->stop);

            memcpy(group->buffer + (begin - group->begin), data + (begin - at), end - begin);
        }
    }
    return 0;
}

int stk_cache_block_read(int fd, uint64_t at, const struct stk_cache_block *block,
                         const struct stk_cache_part *part)
{
    struct group group; /* not zeroed: 68 KiB */
    uint32_t end;
    int status = 0;

    if (part->bytes == 0) {
        return 0;
    }
    group.block = block;
    group.begin = part->offset;
    group.stop = part->offset + part->bytes;
    group.buffer = part->buffer;
    end = (group.stop - 1) / STK_CACHE_CHUNK_BYTES + 1;
    for (group.first = group.begin / STK_CACHE_CHUNK_BYTES; group.first < end && status == 0;
         group.first = group.end) {
        group.end = (uint32_t)stk_min(end, group.first + GROUP_CHUNKS);
        status = read_chunks(&group, fd, at, part->in_memory);
        status = status < 0 ? status : check_chunks(&group);
    }
    return status;
}
