/* One chain of headers: a window over them, and where it ends. */
#include "index/scan/tar_scan_lane.h"

#include "base/mem.h"
#include "base/memory_pages.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* What one member takes: an extended header, its block, and the header. */
enum { BLOCK_BYTES = 512, MAGIC_AT = 257 };
#define READ_BYTES_MIN 1536u
#define QUEUE_BYTES_MAX (16u << 10) /* of a read in the queue; larger windows are read in order */
#define READ_BYTES_MAX (256u << 10)
#define BUFFER_BYTES (20u << 10)
_Static_assert(BUFFER_BYTES >= QUEUE_BYTES_MAX + STK_IO_ALIGN - 1, "read from any offset");

static int provide(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
                   struct stk_view *view_out);
static int take(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
                const struct stk_tar_step *member);
static bool reaches_next(struct stk_scan_lane *lane, const struct stk_tar_step *member);
static void search(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options);

/* Pages for a read in the queue, from any offset. */
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

int stk_scan_lane_open(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
                       struct stk_scan_chain *chain, uint64_t start)
{
    lane->round_trip_bytes = stk_io_round_trip_bytes(options->io, chain->tar->file);
    if (!reserve_buffer(lane) ||
        stk_tar_open(&lane->parser, chain->tar->bytes, &options->limits, NULL) < 0) {
        return -ENOMEM;
    }
    stk_tar_start_at(lane->parser, start);
    lane->chain = chain;
    lane->start = start;
    lane->read_bytes = READ_BYTES_MIN;
    return 0;
}

void stk_scan_lane_reset(struct stk_scan_lane *lane)
{
    uint8_t *room = lane->buffer;
    uint32_t buffer_bytes = lane->buffer_bytes;

    stk_tar_close(lane->parser);
    stk_free(lane->large_buffer);
    stk_free(lane->found);
    stk_free(lane->names);
    *lane = (struct stk_scan_lane){.buffer = room, .buffer_bytes = buffer_bytes};
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

void stk_scan_lane_run(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options)
{
    struct stk_view bytes = {NULL, 0};

    if (lane->searching) {
        search(lane, options);
        if (lane->searching) {
            return;
        }
    }
    if (lane->need.event == STK_TAR_NEED) {
        bytes = lane->window; /* what it waited for */
        lane->need = (struct stk_tar_step){0};
    }
    while (!lane->done && !lane->waiting) {
        struct stk_tar_step step = {0};
        int status = stk_tar_step(lane->parser, bytes, &step, &lane->error);

        bytes = (struct stk_view){NULL, 0};
        if (status == 0 && step.event == STK_TAR_NEED) {
            lane->need = step;
            status = provide(lane, options, &bytes);
            if (!lane->waiting) {
                lane->need = (struct stk_tar_step){0};
            }
        } else if (status == 0 && step.event == STK_TAR_MEMBER) {
            lane->members++;
            lane->joined = lane->done = reaches_next(lane, &step);
            status = lane->done ? 0 : take(lane, options, &step);
        } else if (status == 0) {
            lane->done = true; /* the tar ended */
        }
        if (status < 0) {
            fail(lane, status);
        }
    }
}

static int fail_read(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
                     int64_t got)
{
    return stk_io_fail_read(options->io, lane->chain->tar->file, got, "cannot read a shard",
                            &lane->error);
}

static void set_window(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
                       const uint8_t *data, int64_t got)
{
    lane->window = (struct stk_view){data, (size_t)got};
    lane->window_at = lane->need.offset;
    atomic_fetch_add_explicit(options->bytes_read, (uint64_t)got, memory_order_relaxed);
}

/* A window that is too large for the queue: the kernel reads on behind it by itself. */
static int read_wide(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
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
    got = stk_io_read_wait(options->io, lane->chain->tar->file, lane->need.offset,
                           lane->large_buffer, bytes);
    if (got < 0) {
        return fail_read(lane, options, got);
    }
    set_window(lane, options, lane->large_buffer, got);
    return 0;
}

/* Warm bytes into the room; cold ones are asked for. */
static int read_narrow(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
                       size_t bytes)
{
    const struct stk_tar_scan_tar *tar = lane->chain->tar;
    int64_t got;

    if (!reserve_buffer(lane)) {
        return stk_fail(&lane->error, -ENOMEM, "cannot read headers", "free memory", "%zu bytes",
                        bytes);
    }
    got = lane->round_trip_bytes
              ? stk_io_prefetch_peek(options->io, tar->file, lane->need.offset, lane->buffer, bytes)
              : stk_io_read_now(options->io, tar->file, lane->need.offset, lane->buffer, bytes);
    if (got < 0 && got != -EAGAIN) {
        return fail_read(lane, options, got);
    }
    if (got < (int64_t)lane->need.bytes) {
        lane->read = (struct stk_read){.file = tar->file,
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

/* How much of a remote tar is read at once. Members that lie far apart are not worth what is
 * between; of what is brought the headers are enough. */
static size_t remote_read_bytes(struct stk_scan_lane *lane,
                                const struct stk_tar_scan_options *options)
{
    const struct stk_tar_scan_tar *tar = lane->chain->tar;
    uint64_t end = lane->window_at + lane->window.bytes, from = lane->need.offset;
    uint64_t bytes = stk_min(stk_max(lane->need.bytes, READ_BYTES_MIN), tar->bytes - from);

    lane->prefetched = stk_io_is_prefetched(options->io, tar->file, from, bytes);
    if (!lane->prefetched && options->prefetch_owner && !lane->chain->prefetching &&
        lane->members > 0 && (from - lane->start) / lane->members <= lane->round_trip_bytes) {
        lane->chain->prefetching = true;
        stk_io_prefetch(options->io, tar->file, options->prefetch_owner);
        lane->prefetched = stk_io_is_prefetched(options->io, tar->file, from, bytes);
    }
    if (lane->prefetched) {
        return READ_BYTES_MIN;
    }
    /* A window holds no second header where they lie further apart than it is long. */
    return lane->members > 0 && from > end + lane->round_trip_bytes / 2 ? QUEUE_BYTES_MAX
                                                                        : lane->round_trip_bytes;
}

/* The bytes that the parser needs, and what comes with them. */
static int provide(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
                   struct stk_view *view_out)
{
    struct stk_tar_scan_tar *tar = lane->chain->tar;
    const struct stk_tar_step *need = &lane->need;
    uint64_t end = lane->window_at + lane->window.bytes;
    size_t bytes;
    int status = 0;

    if (need->offset < lane->window_at || need->offset + need->bytes > end) {
        /* Near misses come in runs (small members): read more at once; far ones do not. */
        lane->read_bytes = need->offset <= end + READ_BYTES_MIN
                               ? stk_min(2 * lane->read_bytes, READ_BYTES_MAX)
                               : READ_BYTES_MIN;
        lane->read_bytes =
            lane->round_trip_bytes ? remote_read_bytes(lane, options) : lane->read_bytes;
        bytes = stk_min(stk_max(need->bytes, lane->read_bytes), tar->bytes - need->offset);
        status = options->calls->may_continue(tar, &lane->error);
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

void stk_scan_lane_complete(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options)
{
    lane->waiting = false;
    lane->reads++;
    if (lane->read.leaked) {
        stk_pages_leak(lane->buffer);
        lane->buffer = NULL;
    }
    if (lane->read.leaked || lane->read.result < 0) {
        fail(lane, fail_read(lane, options,
                             lane->read.leaked ? STOKER_ERROR_TIMEOUT : lane->read.result));
        return;
    }
    set_window(lane, options, lane->buffer + lane->read.skip, lane->read.result);
}

/* Whether the next lane goes on from here. One that began inside of something is dropped, and so
 * are all behind a global header, which they have not seen. */
static bool reaches_next(struct stk_scan_lane *lane, const struct stk_tar_step *member)
{
    bool plain = !stk_tar_has_globals(lane->parser);

    while (lane->next_lane && lane->next_lane->start <= member->header) {
        struct stk_scan_lane *after = lane->next_lane;

        if (plain && !after->searching && after->start == member->header) {
            return true;
        }
        if (after->is_guess && after->start < member->header &&
            lane->chain->tar->refuted == STK_TAR_SCAN_NO_START) {
            lane->chain->tar->refuted = after->start;
        }
        after->dropped = lane->chain->refuted = true;
        lane->next_lane = after->next_lane;
    }
    return false;
}

void stk_scan_lane_search(struct stk_scan_lane *lane, uint64_t bytes_max)
{
    uint64_t end = lane->next_lane ? lane->next_lane->start : lane->chain->tar->bytes;

    lane->searching = true;
    lane->search_at = lane->start;
    lane->search_end = stk_min(end, lane->start + bytes_max);
}

/* Nobody misses it: the lane before it goes on. */
static void drop_lane(struct stk_scan_lane *lane)
{
    struct stk_scan_lane *before = lane->chain->head;

    while (before->next_lane != lane) {
        before = before->next_lane;
    }
    before->next_lane = lane->next_lane;
    lane->dropped = true;
}

/* Where a member may begin if a header does in this block; 0: it is none. That may have a header of
 * extensions before it, so the member behind it is taken. */
static uint64_t start_after(const struct stk_scan_lane *lane, const uint8_t *block,
                            const struct stk_tar_scan_options *options)
{
    const struct stk_tar_scan_tar *tar = lane->chain->tar;
    struct stk_tar_step step = {0};
    struct stk_tar *parser = NULL;
    uint64_t start = 0;

    if (memcmp(block + MAGIC_AT, "ustar", 5) != 0 || !stk_tar_is_header(block) ||
        stk_tar_open(&parser, tar->bytes, &options->limits, NULL) < 0) {
        return 0;
    }
    stk_tar_start_at(parser, lane->search_at);
    if (stk_tar_step(parser, (struct stk_view){NULL, 0}, &step, NULL) == 0 &&
        stk_tar_step(parser, (struct stk_view){block, BLOCK_BYTES}, &step, NULL) == 0) {
        start = step.event == STK_TAR_MEMBER ? stk_round_up(step.offset + step.bytes, BLOCK_BYTES)
                                             : lane->search_at;
    }
    stk_tar_close(parser);
    return start;
}

/* Block by block, until one is a header. */
static void search(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options)
{
    const struct stk_tar_scan_tar *tar = lane->chain->tar;
    uint64_t start = 0;

    while (start == 0 && lane->search_at + BLOCK_BYTES <= lane->search_end) {
        uint64_t end = lane->window_at + lane->window.bytes;

        if (lane->search_at < lane->window_at || lane->search_at + BLOCK_BYTES > end) {
            lane->need = (struct stk_tar_step){
                .event = STK_TAR_NEED, .offset = lane->search_at, .bytes = BLOCK_BYTES};
            if (options->calls->may_continue(lane->chain->tar, NULL) < 0 ||
                read_narrow(lane, options,
                            stk_min(stk_max(QUEUE_BYTES_MAX, lane->round_trip_bytes),
                                    tar->bytes - lane->search_at)) < 0) {
                break;
            }
            if (lane->waiting) {
                return;
            }
            end = lane->window_at + lane->window.bytes;
            if (lane->search_at + BLOCK_BYTES > end) {
                break; /* the file was cut */
            }
        }
        start = start_after(lane, lane->window.data + (lane->search_at - lane->window_at), options);
        lane->search_at += BLOCK_BYTES;
    }
    lane->need = (struct stk_tar_step){0};
    if (start == 0 || start >= (lane->next_lane ? lane->next_lane->start : tar->bytes)) {
        drop_lane(lane);
        return;
    }
    stk_tar_start_at(lane->parser, start);
    lane->start = start;
    lane->searching = false;
}

/* Doubles an array of items. */
static void *grow(void *items, uint32_t need, uint32_t *capacity, size_t item_bytes)
{
    uint64_t capacity_new = stk_max(stk_max(2ull * *capacity, need), 64);
    void *grown = items;

    if (need > *capacity || !items) {
        grown = capacity_new <= UINT32_MAX ? stk_realloc(items, *capacity, capacity_new, item_bytes)
                                           : NULL;
        *capacity = grown ? (uint32_t)capacity_new : *capacity;
    }
    return grown;
}

static int take(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
                const struct stk_tar_step *member)
{
    struct stk_scan_member *members;
    uint64_t names_bytes = lane->names_bytes + member->name.bytes;
    void *names;

    if (lane == lane->chain->head) {
        return options->calls->member(lane->chain->tar, member, &lane->error);
    }
    members = grow(lane->found, lane->found_count + 1, &lane->found_capacity, sizeof *members);
    lane->found = members ? members : lane->found;
    names = members && names_bytes <= UINT32_MAX
                ? grow(lane->names, (uint32_t)names_bytes, &lane->names_capacity, 1)
                : NULL;
    if (!names) {
        return stk_fail(&lane->error, -ENOMEM, "cannot read headers", "free memory", "%u members",
                        lane->found_count);
    }
    lane->names = names;
    memcpy(lane->names + lane->names_bytes, member->name.data, member->name.bytes);
    lane->found[lane->found_count++] =
        (struct stk_scan_member){.offset = member->offset,
                                 .bytes = member->bytes,
                                 .header = member->header,
                                 .name_at = lane->names_bytes,
                                 .name_bytes = (uint32_t)member->name.bytes,
                                 .type = member->type};
    lane->names_bytes = (uint32_t)names_bytes;
    return 0;
}

int stk_scan_lane_report(struct stk_scan_lane *lane, const struct stk_tar_scan_options *options,
                         struct stoker_error *error)
{
    int status = 0;

    for (uint32_t i = 0; status == 0 && i < lane->found_count; i++) {
        const struct stk_scan_member *members = &lane->found[i];
        struct stk_tar_step member = {.event = STK_TAR_MEMBER,
                                      .offset = members->offset,
                                      .bytes = members->bytes,
                                      .header = members->header,
                                      .name = {lane->names + members->name_at, members->name_bytes},
                                      .type = members->type};

        status = options->calls->member(lane->chain->tar, &member, error);
    }
    lane->found_count = lane->names_bytes = 0;
    return status;
}
