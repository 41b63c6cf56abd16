/* What suits a mount: options of nfs(5), mount.cifs(8), Documentation/filesystems/9p.rst and
 * fuse.rst; st_blksize of those that tell none. Nothing of it is believed beyond the bounds. */
#include "io/filesystem/read_size.h"

#include "base/mem.h"
#include "io/filesystem/filesystem.h"

#include <string.h>
#include <sys/sysmacros.h>

#define NINE_HEADER_BYTES 24u /* of msize, what is not data: P9_IOHDRSZ */

static bool is_of_fuse(const struct stk_mount_row *row)
{
    return row->type.bytes >= 4 && memcmp(row->type.data, "fuse", 4) == 0;
}

static uint64_t told_bytes(const struct stk_mount_row *row, const struct stk_kind *kind)
{
    uint64_t bytes;

    if (stk_kind_is(kind, "9p")) {
        bytes = stk_mount_number(row, "msize", 0);
        return bytes > NINE_HEADER_BYTES ? bytes - NINE_HEADER_BYTES : 0;
    }
    return stk_mount_number(row, is_of_fuse(row) ? "max_read" : "rsize", 0);
}

struct stk_requests stk_requests_of(const struct stk_mount_row *row)
{
    const struct stk_kind *kind = stk_kind_of(row->type, 0);
    struct stk_requests requests = {0};
    uint64_t bytes;

    requests.mounted = kind->group == STOKER_GROUND_NETWORK || kind->group == STOKER_GROUND_FUSE;
    if (!requests.mounted) {
        return requests;
    }
    /* NFS, SMB and the parallel ones have all requests of a read on their way at once. */
    requests.in_turn = is_of_fuse(row) || stk_kind_is(kind, "9p") || stk_kind_is(kind, "virtiofs");
    bytes = told_bytes(row, kind);
    if (bytes > 0) {
        bytes = stk_min(stk_max(bytes, STK_READS_REQUEST_MIN), STK_READS_REQUEST_MAX);
        requests.bytes = (uint32_t)(bytes / STK_READS_PAGE_BYTES * STK_READS_PAGE_BYTES);
    }
    return requests;
}

struct stk_reads stk_reads_of(const struct stk_requests *requests, uint32_t block_bytes)
{
    struct stk_reads reads = {.near_bytes = STK_READS_GAP_BYTES,
                              .gap_bytes = STK_READS_GAP_BYTES,
                              .bytes_max = STK_READS_BYTES,
                              .align = 1};
    uint32_t bytes = requests->bytes;

    if (!requests->mounted) {
        return reads;
    }
    if (bytes == 0) { /* a small st_blksize is the page, and says nothing */
        bytes = block_bytes >= STK_READS_REQUEST_MIN
                    ? stk_min(block_bytes, STK_READS_REQUEST_MAX) & ~(STK_READS_PAGE_BYTES - 1)
                    : STK_READS_REQUEST_UNTOLD;
        bytes = requests->in_turn ? stk_max(bytes, STK_READS_REQUEST_UNTOLD) : bytes;
    }
    reads.request_bytes = bytes;
    reads.near_bytes = STK_READS_NEAR_BYTES;
    reads.gap_bytes = (uint32_t)stk_min(stk_max(bytes / STK_READS_GAP_SHARE, STK_READS_GAP_BYTES),
                                        STK_READS_GAP_MAX);
    reads.bytes_max = requests->in_turn ? bytes : stk_max(bytes, STK_READS_BYTES);
    reads.align = STK_READS_PAGE_BYTES;
    return reads;
}

static struct stk_requests look_up(const char *prefix, uint64_t device)
{
    char *table = stk_ground_table(prefix);
    struct stk_view text = {(const uint8_t *)table, table ? strlen(table) : 0};
    struct stk_requests requests = {0};
    struct stk_mount_row row;

    while (stk_mount_next(&text, &row)) {
        if (row.major == major(device) && row.minor == minor(device)) {
            requests = stk_requests_of(&row);
        }
    }
    stk_free(table);
    return requests;
}

struct stk_reads stk_reads_find(struct stk_reads_mounts *mounts, const char *prefix,
                                uint64_t device, uint32_t block_bytes)
{
    uint32_t count = (uint32_t)stk_min(mounts->met, STK_READS_MOUNTS), i = 0;

    while (i < count && mounts->of[i].device != device) {
        i++;
    }
    if (i == count) {
        i = mounts->met++ % STK_READS_MOUNTS;
        mounts->of[i].device = device;
        mounts->of[i].requests = look_up(prefix, device);
    }
    return stk_reads_of(&mounts->of[i].requests, block_bytes);
}

bool stk_reads_join(const struct stk_reads *reads, struct stk_growth *growth, uint64_t offset,
                    uint64_t bytes)
{
    uint64_t gap = offset > growth->end ? offset - growth->end : 0;
    uint64_t end = stk_max(growth->end, offset + bytes), between = growth->between + gap;
    uint64_t begin = growth->begin / reads->align * reads->align;

    if (offset < growth->begin || stk_round_up(end, reads->align) - begin > reads->bytes_max) {
        return false;
    }
    if (gap > reads->near_bytes &&
        (gap > reads->gap_bytes || between > end - growth->begin - between)) {
        return false;
    }
    growth->end = end;
    growth->between = between;
    return true;
}
