/* One chain of headers: a window over them, and where it ends. */
#include "index/scan/tar_scan_lane.h"

#include "base/mem.h"
#include "base/memory_pages.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* What one member takes: an extended header, its block, and the header. */
enum { BLOCK_BYTES = 512, MAGIC_AT = 257 };
#define WANT_BYTES_MIN 1536u
#define QUEUE_BYTES_MAX (16u << 10) /* of a read in the queue; larger windows are read in order */
#define WANT_BYTES_MAX (256u << 10)
#define ROOM_BYTES (20u << 10)
_Static_assert(ROOM_BYTES >= QUEUE_BYTES_MAX + STK_IO_ALIGN - 1, "read from any offset");

static int serve(struct stk_lane *lane, const struct stk_sweep_options *options,
                 struct stk_view *view_out);
static int take(struct stk_lane *lane, const struct stk_sweep_options *options,
                const struct stk_tar_step *member);
static bool meets(struct stk_lane *lane, const struct stk_tar_step *member);
static void search(struct stk_lane *lane, const struct stk_sweep_options *options);

/* Pages for a read in the queue, from any offset. */
static bool take_room(struct stk_lane *lane)
{
    uint32_t bytes = lane->far_bytes ? lane->far_bytes + STK_IO_ALIGN : ROOM_BYTES;

    if (lane->room && lane->room_bytes != bytes) {
        stk_pages_free(lane->room, lane->room_bytes);
        lane->room = NULL;
    }
    lane->room_bytes = bytes;
    lane->room = lane->room ? lane->room : stk_pages_alloc(bytes);
    return lane->room != NULL;
}

int stk_lane_open(struct stk_lane *lane, const struct stk_sweep_options *options,
                  struct stk_chain *chain, uint64_t start)
{
    lane->far_bytes = stk_io_far_bytes(options->io, chain->tar->file);
    if (!take_room(lane) ||
        stk_tar_open(&lane->parser, chain->tar->bytes, &options->limits, NULL) < 0) {
        return -ENOMEM;
    }
    stk_tar_begin_at(lane->parser, start);
    lane->chain = chain;
    lane->start = start;
    lane->want = WANT_BYTES_MIN;
    return 0;
}

void stk_lane_reset(struct stk_lane *lane)
{
    uint8_t *room = lane->room;
    uint32_t room_bytes = lane->room_bytes;

    stk_tar_close(lane->parser);
    stk_free(lane->wide);
    stk_free(lane->heard);
    stk_free(lane->names);
    *lane = (struct stk_lane){.room = room, .room_bytes = room_bytes};
}

void stk_lane_deinit(struct stk_lane *lane)
{
    stk_lane_reset(lane);
    if (lane->room) {
        stk_pages_free(lane->room, lane->room_bytes);
        lane->room = NULL;
    }
}

static void fail(struct stk_lane *lane, int status)
{
    lane->status = status;
    lane->done = true;
}

void stk_lane_run(struct stk_lane *lane, const struct stk_sweep_options *options)
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
            status = serve(lane, options, &bytes);
            if (!lane->waiting) {
                lane->need = (struct stk_tar_step){0};
            }
        } else if (status == 0 && step.event == STK_TAR_MEMBER) {
            lane->members++;
            lane->joined = lane->done = meets(lane, &step);
            status = lane->done ? 0 : take(lane, options, &step);
        } else if (status == 0) {
            lane->done = true; /* the tar ended */
        }
        if (status < 0) {
            fail(lane, status);
        }
    }
}

static int fail_read(struct stk_lane *lane, const struct stk_sweep_options *options, int64_t got)
{
    return stk_io_fail_read(options->io, lane->chain->tar->file, got, "cannot read a shard",
                            &lane->error);
}

static void show(struct stk_lane *lane, const struct stk_sweep_options *options,
                 const uint8_t *data, int64_t got)
{
    lane->window = (struct stk_view){data, (size_t)got};
    lane->window_at = lane->need.offset;
    atomic_fetch_add_explicit(options->bytes_read, (uint64_t)got, memory_order_relaxed);
}

/* A window that is too large for the queue: the kernel reads on behind it by itself. */
static int read_wide(struct stk_lane *lane, const struct stk_sweep_options *options, size_t bytes)
{
    int64_t got;

    if (lane->wide_capacity < bytes) {
        stk_free(lane->wide);
        lane->wide_capacity = 0;
        lane->wide = stk_alloc(stk_max(bytes, WANT_BYTES_MAX), 1);
        if (!lane->wide) {
            return stk_fail(&lane->error, -ENOMEM, "cannot read headers", "free memory",
                            "%zu bytes", bytes);
        }
        lane->wide_capacity = stk_max(bytes, WANT_BYTES_MAX);
    }
    got =
        stk_io_read_wait(options->io, lane->chain->tar->file, lane->need.offset, lane->wide, bytes);
    if (got < 0) {
        return fail_read(lane, options, got);
    }
    show(lane, options, lane->wide, got);
    return 0;
}

/* Warm bytes into the room; cold ones are asked for. */
static int read_narrow(struct stk_lane *lane, const struct stk_sweep_options *options, size_t bytes)
{
    const struct stk_sweep_tar *tar = lane->chain->tar;
    int64_t got;

    if (!take_room(lane)) {
        return stk_fail(&lane->error, -ENOMEM, "cannot read headers", "free memory", "%zu bytes",
                        bytes);
    }
    got = lane->far_bytes
              ? stk_io_peek(options->io, tar->file, lane->need.offset, lane->room, bytes)
              : stk_io_read_now(options->io, tar->file, lane->need.offset, lane->room, bytes);
    if (got < 0 && got != -EAGAIN) {
        return fail_read(lane, options, got);
    }
    if (got < (int64_t)lane->need.bytes) {
        lane->read = (struct stk_read){.file = tar->file,
                                       .offset = lane->need.offset,
                                       .buffer = lane->room,
                                       .bytes = (uint32_t)bytes,
                                       .capacity = lane->room_bytes,
                                       .cached = true,
                                       .owner = lane};
        lane->waiting = true;
        return 0;
    }
    show(lane, options, lane->room, got);
    return 0;
}

/* How much of a remote tar is read at once. Members that lie far apart are not worth what is
 * between; of what is brought the headers are enough. */
static size_t far_want(struct stk_lane *lane, const struct stk_sweep_options *options)
{
    const struct stk_sweep_tar *tar = lane->chain->tar;
    uint64_t end = lane->window_at + lane->window.bytes, from = lane->need.offset;
    uint64_t bytes = stk_min(stk_max(lane->need.bytes, WANT_BYTES_MIN), tar->bytes - from);

    lane->comes = stk_io_comes(options->io, tar->file, from, bytes);
    if (!lane->comes && options->bring_for && !lane->chain->brought && lane->members > 0 &&
        (from - lane->start) / lane->members <= lane->far_bytes) {
        lane->chain->brought = true;
        stk_io_bring(options->io, tar->file, options->bring_for);
        lane->comes = stk_io_comes(options->io, tar->file, from, bytes);
    }
    if (lane->comes) {
        return WANT_BYTES_MIN;
    }
    /* A window holds no second header where they lie further apart than it is long. */
    return lane->members > 0 && from > end + lane->far_bytes / 2 ? QUEUE_BYTES_MAX
                                                                 : lane->far_bytes;
}

/* The bytes that the parser needs, and what comes with them. */
static int serve(struct stk_lane *lane, const struct stk_sweep_options *options,
                 struct stk_view *view_out)
{
    struct stk_sweep_tar *tar = lane->chain->tar;
    const struct stk_tar_step *need = &lane->need;
    uint64_t end = lane->window_at + lane->window.bytes;
    size_t bytes;
    int status = 0;

    if (need->offset < lane->window_at || need->offset + need->bytes > end) {
        /* Near misses come in runs (small members): read more at once; far ones do not. */
        lane->want = need->offset <= end + WANT_BYTES_MIN ? stk_min(2 * lane->want, WANT_BYTES_MAX)
                                                          : WANT_BYTES_MIN;
        lane->want = lane->far_bytes ? far_want(lane, options) : lane->want;
        bytes = stk_min(stk_max(need->bytes, lane->want), tar->bytes - need->offset);
        status = options->calls->goes_on(tar, &lane->error);
        if (status == 0) {
            status = bytes > stk_max(QUEUE_BYTES_MAX, lane->far_bytes)
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

void stk_lane_wake(struct stk_lane *lane, const struct stk_sweep_options *options)
{
    lane->waiting = false;
    lane->reads++;
    if (lane->read.lost) {
        stk_pages_lose(lane->room);
        lane->room = NULL;
    }
    if (lane->read.lost || lane->read.result < 0) {
        fail(lane,
             fail_read(lane, options, lane->read.lost ? STOKER_ERROR_TIMEOUT : lane->read.result));
        return;
    }
    show(lane, options, lane->room + lane->read.skip, lane->read.result);
}

/* Whether the next lane goes on from here. One that began inside of something is dropped, and so
 * are all behind a global header, which they have not seen. */
static bool meets(struct stk_lane *lane, const struct stk_tar_step *member)
{
    bool plain = !stk_tar_has_globals(lane->parser);

    while (lane->after && lane->after->start <= member->header) {
        struct stk_lane *after = lane->after;

        if (plain && !after->searching && after->start == member->header) {
            return true;
        }
        if (after->told && after->start < member->header &&
            lane->chain->tar->refuted == STK_SWEEP_NO_START) {
            lane->chain->tar->refuted = after->start;
        }
        after->dropped = lane->chain->refuted = true;
        lane->after = after->after;
    }
    return false;
}

void stk_lane_search(struct stk_lane *lane, uint64_t bytes_max)
{
    uint64_t end = lane->after ? lane->after->start : lane->chain->tar->bytes;

    lane->searching = true;
    lane->search_at = lane->start;
    lane->search_end = stk_min(end, lane->start + bytes_max);
}

/* Nobody misses it: the lane before it goes on. */
static void give_up(struct stk_lane *lane)
{
    struct stk_lane *before = lane->chain->head;

    while (before->after != lane) {
        before = before->after;
    }
    before->after = lane->after;
    lane->dropped = true;
}

/* Where a member may begin if a header does in this block; 0: it is none. That may have a header of
 * extensions before it, so the member behind it is taken. */
static uint64_t start_behind(const struct stk_lane *lane, const uint8_t *block,
                             const struct stk_sweep_options *options)
{
    const struct stk_sweep_tar *tar = lane->chain->tar;
    struct stk_tar_step step = {0};
    struct stk_tar *parser = NULL;
    uint64_t start = 0;

    if (memcmp(block + MAGIC_AT, "ustar", 5) != 0 || !stk_tar_is_header(block) ||
        stk_tar_open(&parser, tar->bytes, &options->limits, NULL) < 0) {
        return 0;
    }
    stk_tar_begin_at(parser, lane->search_at);
    if (stk_tar_step(parser, (struct stk_view){NULL, 0}, &step, NULL) == 0 &&
        stk_tar_step(parser, (struct stk_view){block, BLOCK_BYTES}, &step, NULL) == 0) {
        start = step.event == STK_TAR_MEMBER ? stk_round_up(step.offset + step.bytes, BLOCK_BYTES)
                                             : lane->search_at;
    }
    stk_tar_close(parser);
    return start;
}

/* Block by block, until one is a header. */
static void search(struct stk_lane *lane, const struct stk_sweep_options *options)
{
    const struct stk_sweep_tar *tar = lane->chain->tar;
    uint64_t start = 0;

    while (start == 0 && lane->search_at + BLOCK_BYTES <= lane->search_end) {
        uint64_t end = lane->window_at + lane->window.bytes;

        if (lane->search_at < lane->window_at || lane->search_at + BLOCK_BYTES > end) {
            lane->need = (struct stk_tar_step){
                .event = STK_TAR_NEED, .offset = lane->search_at, .bytes = BLOCK_BYTES};
            if (options->calls->goes_on(lane->chain->tar, NULL) < 0 ||
                read_narrow(lane, options,
                            stk_min(stk_max(QUEUE_BYTES_MAX, lane->far_bytes),
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
        start =
            start_behind(lane, lane->window.data + (lane->search_at - lane->window_at), options);
        lane->search_at += BLOCK_BYTES;
    }
    lane->need = (struct stk_tar_step){0};
    if (start == 0 || start >= (lane->after ? lane->after->start : tar->bytes)) {
        give_up(lane);
        return;
    }
    stk_tar_begin_at(lane->parser, start);
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

static int take(struct stk_lane *lane, const struct stk_sweep_options *options,
                const struct stk_tar_step *member)
{
    struct stk_heard *heard;
    uint64_t names_bytes = lane->names_bytes + member->name.bytes;
    void *names;

    if (lane == lane->chain->head) {
        return options->calls->member(lane->chain->tar, member, &lane->error);
    }
    heard = grow(lane->heard, lane->heard_count + 1, &lane->heard_capacity, sizeof *heard);
    lane->heard = heard ? heard : lane->heard;
    names = heard && names_bytes <= UINT32_MAX
                ? grow(lane->names, (uint32_t)names_bytes, &lane->names_capacity, 1)
                : NULL;
    if (!names) {
        return stk_fail(&lane->error, -ENOMEM, "cannot read headers", "free memory", "%u members",
                        lane->heard_count);
    }
    lane->names = names;
    memcpy(lane->names + lane->names_bytes, member->name.data, member->name.bytes);
    lane->heard[lane->heard_count++] =
        (struct stk_heard){.offset = member->offset,
                           .bytes = member->bytes,
                           .header = member->header,
                           .name_at = lane->names_bytes,
                           .name_bytes = (uint32_t)member->name.bytes,
                           .type = member->type};
    lane->names_bytes = (uint32_t)names_bytes;
    return 0;
}

int stk_lane_tell(struct stk_lane *lane, const struct stk_sweep_options *options,
                  struct stoker_error *error)
{
    int status = 0;

    for (uint32_t i = 0; status == 0 && i < lane->heard_count; i++) {
        const struct stk_heard *heard = &lane->heard[i];
        struct stk_tar_step member = {.event = STK_TAR_MEMBER,
                                      .offset = heard->offset,
                                      .bytes = heard->bytes,
                                      .header = heard->header,
                                      .name = {lane->names + heard->name_at, heard->name_bytes},
                                      .type = heard->type};

        status = options->calls->member(lane->chain->tar, &member, error);
    }
    lane->heard_count = lane->names_bytes = 0;
    return status;
}
