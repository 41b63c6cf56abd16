/* Sizes of requests: options of nfs(5), mount.cifs(8), Documentation/filesystems/9p.rst and
 * fuse.rst; st_blksize of mounts without such options. All values are limited. */
#include "io/filesystem/read_size.h"

#include "base/mem.h"
#include "io/filesystem/filesystem_type.h"

#include <string.h>
#include <sys/sysmacros.h>

#define NINE_HEADER_BYTES 24u /* part of msize that is no data: P9_IOHDRSZ */

static bool is_fuse(const struct stk_mount_row *row)
{
    return row->type.bytes >= 4 && memcmp(row->type.data, "fuse", 4) == 0;
}

static uint64_t option_bytes(const struct stk_mount_row *row,
                             const struct stk_filesystem_type *kind)
{
    uint64_t bytes;

    if (stk_filesystem_type_is(kind, "9p")) {
        bytes = stk_mount_number(row, "msize", 0);
        return bytes > NINE_HEADER_BYTES ? bytes - NINE_HEADER_BYTES : 0;
    }
    return stk_mount_number(row, is_fuse(row) ? "max_read" : "rsize", 0);
}

struct stk_request_size stk_request_size_of(const struct stk_mount_row *row)
{
    const struct stk_filesystem_type *kind = stk_filesystem_type_of(row->type, 0);
    struct stk_request_size requests = {0};
    uint64_t bytes;

    requests.has_round_trip =
        kind->group == STOKER_FILESYSTEM_NETWORK || kind->group == STOKER_FILESYSTEM_FUSE;
    if (!requests.has_round_trip) {
        return requests;
    }
    /* NFS, SMB and parallel file systems send all requests of a read at once. */
    requests.is_sequential = is_fuse(row) || stk_filesystem_type_is(kind, "9p") ||
                             stk_filesystem_type_is(kind, "virtiofs");
    bytes = option_bytes(row, kind);
    if (bytes > 0) {
        bytes = stk_min(stk_max(bytes, STK_READ_SIZE_REQUEST_MIN), STK_READ_SIZE_REQUEST_MAX);
        requests.bytes = (uint32_t)(bytes / STK_READ_SIZE_PAGE_BYTES * STK_READ_SIZE_PAGE_BYTES);
    }
    return requests;
}

struct stk_read_sizes stk_read_size_of(const struct stk_request_size *requests,
                                       uint32_t block_bytes)
{
    struct stk_read_sizes reads = {.free_gap_bytes = STK_READ_SIZE_GAP_BYTES,
                                   .gap_bytes = STK_READ_SIZE_GAP_BYTES,
                                   .bytes_max = STK_READ_SIZE_DEFAULT,
                                   .align = 1};
    uint32_t bytes = requests->bytes;

    if (!requests->has_round_trip) {
        return reads;
    }
    if (bytes == 0) { /* a small st_blksize is the page size, not a request size */
        bytes =
            block_bytes >= STK_READ_SIZE_REQUEST_MIN
                ? stk_min(block_bytes, STK_READ_SIZE_REQUEST_MAX) & ~(STK_READ_SIZE_PAGE_BYTES - 1)
                : STK_READ_SIZE_REQUEST_DEFAULT;
        bytes = requests->is_sequential ? stk_max(bytes, STK_READ_SIZE_REQUEST_DEFAULT) : bytes;
    }
    reads.request_bytes = bytes;
    reads.free_gap_bytes = STK_READ_SIZE_FREE_GAP_BYTES;
    reads.gap_bytes = (uint32_t)stk_min(
        stk_max(bytes / STK_READ_SIZE_GAP_SHARE, STK_READ_SIZE_GAP_BYTES), STK_READ_SIZE_GAP_MAX);
    reads.bytes_max = requests->is_sequential ? bytes : stk_max(bytes, STK_READ_SIZE_DEFAULT);
    reads.align = STK_READ_SIZE_PAGE_BYTES;
    return reads;
}

static struct stk_request_size read_mount_table(const char *prefix, uint64_t device)
{
    char *table = stk_mountinfo_read(prefix);
    struct stk_view text = {(const uint8_t *)table, table ? strlen(table) : 0};
    struct stk_request_size requests = {0};
    struct stk_mount_row row;

    while (stk_mount_next(&text, &row)) {
        if (row.major == major(device) && row.minor == minor(device)) {
            requests = stk_request_size_of(&row);
        }
    }
    stk_free(table);
    return requests;
}

struct stk_read_sizes stk_read_size_find(struct stk_read_size_mounts *mounts, const char *prefix,
                                         uint64_t device, uint32_t block_bytes)
{
    uint32_t count = (uint32_t)stk_min(mounts->count, STK_READ_SIZE_MOUNTS), i = 0;

    while (i < count && mounts->entries[i].device != device) {
        i++;
    }
    if (i == count) {
        i = mounts->count++ % STK_READ_SIZE_MOUNTS;
        mounts->entries[i].device = device;
        mounts->entries[i].requests = read_mount_table(prefix, device);
    }
    return stk_read_size_of(&mounts->entries[i].requests, block_bytes);
}

bool stk_read_size_coalesce(const struct stk_read_sizes *reads, struct stk_coalesced_read *growth,
                            uint64_t offset, uint64_t bytes)
{
    uint64_t gap = offset > growth->end ? offset - growth->end : 0;
    uint64_t end = stk_max(growth->end, offset + bytes), between = growth->unwanted_bytes + gap;
    uint64_t begin = growth->begin / reads->align * reads->align;

    if (offset < growth->begin || stk_round_up(end, reads->align) - begin > reads->bytes_max) {
        return false;
    }
    if (gap > reads->free_gap_bytes &&
        (gap > reads->gap_bytes || between > end - growth->begin - between)) {
        return false;
    }
    growth->end = end;
    growth->unwanted_bytes = between;
    return true;
}
