/* Reads the headers of a shard from one start: a window over the file, and the parser. */
#include "index/scan/container_scan_lane.h"

#include "base/mem.h"
#include "base/memory_pages.h"
#include "storage/vfs/vfs.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define READ_BYTES_MIN 1536u /* one member of a tar: an extended header, its block, the header */
#define QUEUE_BYTES_MAX (16u << 10) /* of a read in the queue; larger windows are read at once */
#define READ_BYTES_MAX (256u << 10)
#define BUFFER_BYTES (20u << 10)
_Static_assert(BUFFER_BYTES >= QUEUE_BYTES_MAX + STK_IO_ALIGN - 1, "read from any offset");

static int provide(struct stk_scan_lane *lane, const struct stk_container_scan_options *options,
                   struct stk_view *view_out);
static int take(struct stk_scan_lane *lane, const struct stk_container_scan_options *options,
                const struct stk_container_step *member);
static bool reaches_next(struct stk_scan_lane *lane, const struct stk_container_step *member);
static void search(struct stk_scan_lane *lane, const struct stk_container_scan_options *options);

static struct stk_container_options
container_options(const struct stk_container_scan_options *options,
                  const struct stk_container_scan_shard *shard)
{
    return (struct stk_container_options){shard->bytes, options->name_bytes_max,
                                          options->header_bytes_max};
}

/* Allocates pages for a read in the queue, from any offset. */
static bool reserve_buffer(struct stk_scan_lane *lane)
{
    uint32_t bytes = lane->round_trip_bytes ? lane->round_trip_bytes + STK_IO_ALIGN : BUFFER_BYTES;

    if (lane->buffer && lane->buffer_bytes != bytes) {
        stk_pages_free(lane->buffer, lane->buffer_bytes);
        lane->buffer = NULL;
    }
    lane->buffer_bytes = bytes;
    lane->buffer = lane->buffer ? lane->buffer : stk_pages_alloc(bytes);
    return lane->buffer != NULL;
}

int stk_scan_lane_open(struct stk_scan_lane *lane, const struct stk_container_scan_options *options,
                       struct stk_scan_chain *chain, uint64_t start, struct stoker_error *error)
{
    struct stk_container_options opened = container_options(options, chain->shard);
    int status = -ENOMEM;

    lane->round_trip_bytes = stk_vfs_round_trip_bytes(chain->shard->file);
    if (reserve_buffer(lane)) {
        status = stk_container_open(&lane->parser, chain->shard->format, &opened, error);
    }
    if (status < 0) {
        return status == -ENOMEM
                   ? stk_fail(error, -ENOMEM, "cannot read headers", "free memory", "a lane")
                   : status;
    }
    if (start > 0) {
        stk_container_start_at(lane->parser, start);
    }
    lane->chain = chain;
    lane->start = start;
    lane->read_bytes = READ_BYTES_MIN;
    return 0;
}

void stk_scan_lane_reset(struct stk_scan_lane *lane)
{
    uint8_t *buffer = lane->buffer;
    uint32_t buffer_bytes = lane->buffer_bytes;

    stk_container_close(lane->parser);
    stk_free(lane->large_buffer);
    stk_free(lane->found);
    stk_free(lane->names);
    *lane = (struct stk_scan_lane){.buffer = buffer, .buffer_bytes = buffer_bytes};
}

void stk_scan_lane_deinit(struct stk_scan_lane *lane)
{
    stk_scan_lane_reset(lane);
    if (lane->buffer) {
        stk_pages_free(lane->buffer, lane->buffer_bytes);
        lane->buffer = NULL;
    }
}

static void fail(struct stk_scan_lane *lane, int status)
{
    lane->status = status;
    lane->done = true;
}

void stk_scan_lane_run(struct stk_scan_lane *lane, const struct stk_container_scan_options *options)
{
    struct stk_view bytes = {NULL, 0};

    if (lane->searching) {
        search(lane, options);
        if (lane->searching) {
            return;
        }
    }
    if (lane->need.event == STK_CONTAINER_NEED) {
        bytes = lane->window; /* the read is done */
        lane->need = (struct stk_container_step){0};
    }
    while (!lane->done && !lane->waiting) {
        struct stk_container_step step = {0};
        int status = stk_container_step(lane->parser, bytes, &step, &lane->error);

        bytes = (struct stk_view){NULL, 0};
        if (status == 0 && step.event == STK_CONTAINER_NEED) {
            lane->need = step;
            status = provide(lane, options, &bytes);
            if (!lane->waiting) {
                lane->need = (struct stk_container_step){0};
            }
        } else if (status == 0 && step.event == STK_CONTAINER_MEMBER) {
            lane->members++;
            lane->joined = lane->done = reaches_next(lane, &step);
            status = lane->done ? 0 : take(lane, options, &step);
        } else if (status == 0) {
            lane->done = true; /* the end of the shard */
        }
        if (status < 0) {
            fail(lane, status);
        }
    }
}

static int fail_read(struct stk_scan_lane *lane, int64_t got)
{
    return stk_io_fail_read(lane->chain->shard->file, got, "cannot read a shard", &lane->error);
}

static void set_window(struct stk_scan_lane *lane, const struct stk_container_scan_options *options,
                       const uint8_t *data, int64_t got)
{
    lane->window = (struct stk_view){data, (size_t)got};
    lane->window_at = lane->need.offset;
    atomic_fetch_add_explicit(options->bytes_read, (uint64_t)got, memory_order_relaxed);
}

/* Reads a window that is too large for the queue. The kernel reads ahead after it. */
static int read_wide(struct stk_scan_lane *lane, const struct stk_container_scan_options *options,
                     size_t bytes)
{
    int64_t got;

    if (lane->large_capacity < bytes) {
        stk_free(lane->large_buffer);
        lane->large_capacity = 0;
        lane->large_buffer = stk_alloc(stk_max(bytes, READ_BYTES_MAX), 1);
        if (!lane->large_buffer) {
            return stk_fail(&lane->error, -ENOMEM, "cannot read headers", "free memory",
                            "%zu bytes", bytes);
        }
        lane->large_capacity = stk_max(bytes, READ_BYTES_MAX);
    }
    got = stk_io_read_wait(lane->chain->shard->file, lane->need.offset, lane->large_buffer, bytes);
    if (got < 0) {
        return fail_read(lane, got);
    }
    set_window(lane, options, lane->large_buffer, got);
    return 0;
}

/* Reads bytes that are in memory into the buffer, or prepares a read for the queue. */
static int read_narrow(struct stk_scan_lane *lane, const struct stk_container_scan_options *options,
                       size_t bytes)
{
    const struct stk_container_scan_shard *shard = lane->chain->shard;
    int64_t got;

    if (!reserve_buffer(lane)) {
        return stk_fail(&lane->error, -ENOMEM, "cannot read headers", "free memory", "%zu bytes",
                        bytes);
    }
    got = lane->round_trip_bytes
              ? stk_vfs_prefetch_peek(shard->file, lane->need.offset, lane->buffer, bytes)
              : stk_io_read_now(shard->file, lane->need.offset, lane->buffer, bytes);
    if (got < 0 && got != -EAGAIN) {
        return fail_read(lane, got);
    }
    if (got < (int64_t)lane->need.bytes) {
        lane->read = (struct stk_read){.file = shard->file,
                                       .offset = lane->need.offset,
                                       .buffer = lane->buffer,
                                       .bytes = (uint32_t)bytes,
                                       .capacity = lane->buffer_bytes,
                                       .keep_cached = true,
                                       .owner = lane};
        lane->waiting = true;
        return 0;
    }
    set_window(lane, options, lane->buffer, got);
    return 0;
}

/* Returns how many bytes of a remote shard to read at once: few if members are further apart than a
 * window is long, and few if the bytes are prefetched. */
static size_t remote_read_bytes(struct stk_scan_lane *lane,
                                const struct stk_container_scan_options *options)
{
    const struct stk_container_scan_shard *shard = lane->chain->shard;
    uint64_t end = lane->window_at + lane->window.bytes, from = lane->need.offset;
    uint64_t bytes = stk_min(stk_max(lane->need.bytes, READ_BYTES_MIN), shard->bytes - from);

    lane->prefetched = stk_vfs_is_prefetched(shard->file, from, bytes);
    if (!lane->prefetched && options->prefetch_owner && !lane->chain->prefetching &&
        lane->members > 0 && (from - lane->start) / lane->members <= lane->round_trip_bytes) {
        lane->chain->prefetching = true;
        stk_vfs_prefetch(shard->file, options->prefetch_owner);
        lane->prefetched = stk_vfs_is_prefetched(shard->file, from, bytes);
    }
    if (lane->prefetched) {
        return READ_BYTES_MIN;
    }
    /* If headers are further apart than a window is long, it would hold only one. */
    return lane->members > 0 && from > end + lane->round_trip_bytes / 2 ? QUEUE_BYTES_MAX
                                                                        : lane->round_trip_bytes;
}

/* Returns the bytes that the parser needs, with all bytes of the window after them. If they must
 * be read through the queue, lane->waiting is set. */
static int provide(struct stk_scan_lane *lane, const struct stk_container_scan_options *options,
                   struct stk_view *view_out)
{
    struct stk_container_scan_shard *shard = lane->chain->shard;
    const struct stk_container_step *need = &lane->need;
    uint64_t end = lane->window_at + lane->window.bytes;
    size_t bytes;
    int status = 0;

    if (need->offset < lane->window_at || need->offset + need->bytes > end) {
        /* If the next header is close (small members), so are the next ones: read more at once. */
        lane->read_bytes = need->offset <= end + READ_BYTES_MIN
                               ? stk_min(2 * lane->read_bytes, READ_BYTES_MAX)
                               : READ_BYTES_MIN;
        lane->read_bytes =
            lane->round_trip_bytes ? remote_read_bytes(lane, options) : lane->read_bytes;
        bytes = stk_min(stk_max(need->bytes, lane->read_bytes), shard->bytes - need->offset);
        status = options->calls->may_continue(shard, &lane->error);
        if (status == 0) {
            status = bytes > stk_max(QUEUE_BYTES_MAX, lane->round_trip_bytes)
                         ? read_wide(lane, options, bytes)
                         : read_narrow(lane, options, bytes);
        }
    }
    if (status < 0 || lane->waiting) {
        return status;
    }
    view_out->data = lane->window.data + (need->offset - lane->window_at);
    view_out->bytes = lane->window.bytes - (need->offset - lane->window_at);
    return 0;
}

void stk_scan_lane_complete(struct stk_scan_lane *lane,
                            const struct stk_container_scan_options *options)
{
    lane->waiting = false;
    lane->reads++;
    if (lane->read.leaked) {
        stk_pages_leak(lane->buffer);
        lane->buffer = NULL;
    }
    if (lane->read.leaked || lane->read.result < 0) {
        fail(lane, fail_read(lane, lane->read.leaked ? STOKER_ERROR_TIMEOUT : lane->read.result));
        return;
    }
    set_window(lane, options, lane->buffer + lane->read.skip, lane->read.result);
}

/* Returns true if the next lane began at this member. Drops lanes that began inside of a member,
 * and lanes after a global header, which they have not read. */
static bool reaches_next(struct stk_scan_lane *lane, const struct stk_container_step *member)
{
    bool independent = stk_container_is_independent(lane->parser);

    while (lane->next_lane && lane->next_lane->start <= member->header) {
        struct stk_scan_lane *after = lane->next_lane;

        if (independent && !after->searching && after->start == member->header) {
            return true;
        }
        if (after->is_guess && after->start < member->header &&
            lane->chain->shard->refuted == STK_CONTAINER_SCAN_NO_START) {
            lane->chain->shard->refuted = after->start;
        }
        after->dropped = lane->chain->refuted = true;
        lane->next_lane = after->next_lane;
    }
    return false;
}

void stk_scan_lane_search(struct stk_scan_lane *lane, uint64_t bytes_max)
{
    uint64_t end = lane->next_lane ? lane->next_lane->start : lane->chain->shard->bytes;

    lane->searching = true;
    lane->search_at = lane->start;
    lane->search_end = stk_min(end, lane->start + bytes_max);
}

/* The lane before it continues instead. */
static void drop_lane(struct stk_scan_lane *lane)
{
    struct stk_scan_lane *before = lane->chain->head;

    while (before->next_lane != lane) {
        before = before->next_lane;
    }
    before->next_lane = lane->next_lane;
    lane->dropped = true;
}

/* Checks block by block for a header. */
static void search(struct stk_scan_lane *lane, const struct stk_container_scan_options *options)
{
    const struct stk_container_scan_shard *shard = lane->chain->shard;
    struct stk_container_options opened = container_options(options, shard);
    uint64_t block_bytes = shard->format->block_bytes, start = 0;

    while (start == 0 && lane->search_at + block_bytes <= lane->search_end) {
        uint64_t end = lane->window_at + lane->window.bytes;

        if (lane->search_at < lane->window_at || lane->search_at + block_bytes > end) {
            lane->need = (struct stk_container_step){
                .event = STK_CONTAINER_NEED, .offset = lane->search_at, .bytes = block_bytes};
            if (options->calls->may_continue(lane->chain->shard, NULL) < 0 ||
                read_narrow(lane, options,
                            stk_min(stk_max(QUEUE_BYTES_MAX, lane->round_trip_bytes),
                                    shard->bytes - lane->search_at)) < 0) {
                break;
            }
            if (lane->waiting) {
                return;
            }
            end = lane->window_at + lane->window.bytes;
            if (lane->search_at + block_bytes > end) {
                break; /* the file was truncated */
            }
        }
        start = stk_container_find_start(
            shard->format, &opened, lane->search_at,
            (struct stk_view){lane->window.data + (lane->search_at - lane->window_at),
                              block_bytes});
        lane->search_at += block_bytes;
    }
    lane->need = (struct stk_container_step){0};
    if (start == 0 || start >= (lane->next_lane ? lane->next_lane->start : shard->bytes)) {
        drop_lane(lane);
        return;
    }
    stk_container_start_at(lane->parser, start);
    lane->start = start;
    lane->searching = false;
}

static int fail_full(struct stk_scan_lane *lane)
{
    return stk_fail(&lane->error, -ENOMEM, "cannot read headers", "free memory", "%u members",
                    lane->found_count);
}

static int take(struct stk_scan_lane *lane, const struct stk_container_scan_options *options,
                const struct stk_container_step *member)
{
    void *members = lane->found, *names = lane->names;
    uint64_t names_bytes = lane->names_bytes + member->name.bytes + member->link.bytes;

    if (lane == lane->chain->head) {
        return options->calls->member(lane->chain->shard, member, &lane->error);
    }
    if (names_bytes > UINT32_MAX ||
        stk_reserve(&members, &lane->found_capacity, lane->found_count + 1ull,
                    sizeof *lane->found) < 0) {
        return fail_full(lane);
    }
    lane->found = members;
    if (stk_reserve(&names, &lane->names_capacity, stk_max(names_bytes, 1), 1) < 0) {
        return fail_full(lane);
    }
    lane->names = names;
    memcpy(lane->names + lane->names_bytes, member->name.data, member->name.bytes);
    if (member->link.bytes > 0) {
        memcpy(lane->names + lane->names_bytes + member->name.bytes, member->link.data,
               member->link.bytes);
    }
    lane->found[lane->found_count++] =
        (struct stk_scan_member){.offset = member->offset,
                                 .bytes = member->bytes,
                                 .header = member->header,
                                 .name_at = lane->names_bytes,
                                 .name_bytes = (uint32_t)member->name.bytes,
                                 .link_bytes = (uint32_t)member->link.bytes,
                                 .checksum = member->checksum,
                                 .kind = (uint8_t)member->kind,
                                 .checksum_kind = (uint8_t)member->checksum_kind};
    lane->names_bytes = (uint32_t)names_bytes;
    return 0;
}

int stk_scan_lane_report(struct stk_scan_lane *lane,
                         const struct stk_container_scan_options *options,
                         struct stoker_error *error)
{
    int status = 0;

    for (uint32_t i = 0; status == 0 && i < lane->found_count; i++) {
        const struct stk_scan_member *found = &lane->found[i];
        struct stk_container_step member = {
            .event = STK_CONTAINER_MEMBER,
            .kind = found->kind,
            .offset = found->offset,
            .bytes = found->bytes,
            .header = found->header,
            .name = {lane->names + found->name_at, found->name_bytes},
            .link = {lane->names + found->name_at + found->name_bytes, found->link_bytes},
            .checksum_kind = found->checksum_kind,
            .checksum = found->checksum,
        };

        status = options->calls->member(lane->chain->shard, &member, error);
    }
    lane->found_count = lane->names_bytes = 0;
    return status;
}
