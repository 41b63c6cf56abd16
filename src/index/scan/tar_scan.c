/* Many lanes, one thread: whoever has its bytes runs, the others wait in one queue. */
#include "index/scan/tar_scan.h"

#include "base/mem.h"
#include "index/scan/tar_scan_lane.h"

#include <errno.h>

#define WAIT_MS 50u /* for reads; then the tars are asked whether they go on */

/* A lane is split once it has read so often that the distance of its headers is known, and where
 * that is so large that a second lane is worth the search. */
enum { SPLIT_READS_MIN = 4, SPLIT_STEPS_MIN = 8, SPLIT_DISTANCE_MIN = 16 << 10 };

struct sweep {
    const struct stk_tar_scan_options *options;
    struct stk_queue *queue; /* owned; NULL until something is cold */
    struct stk_scan_lane lanes[STK_TAR_SCAN_LANES_MAX];
    struct stk_scan_lane *spare, *ready;                  /* by `next` */
    struct stk_scan_lane *unsent[STK_TAR_SCAN_LANES_MAX]; /* their reads go together */
    uint32_t unsent_count, in_flight, used;
    bool more;  /* next may have another tar */
    int status; /* of the sweep itself */
    struct stoker_error error;
};

static void open_tar(struct sweep *sweep);
static void run_ready(struct sweep *sweep);
static void handle_stopped(struct sweep *sweep, struct stk_scan_lane *lane);
static void decide(struct sweep *sweep, struct stk_scan_chain *chain, int status,
                   const struct stoker_error *error);
static void collect(struct sweep *sweep, uint32_t timeout_ms);
static void submit(struct sweep *sweep);
static bool split(struct sweep *sweep);

int stk_tar_scan(const struct stk_tar_scan_options *options, struct stoker_error *error)
{
    struct sweep *sweep = stk_alloc(1, sizeof *sweep);
    int status;

    if (!sweep) {
        return stk_fail(error, -ENOMEM, "cannot read headers", "free memory", "lanes");
    }
    sweep->options = options;
    sweep->more = true;
    for (uint32_t i = STK_TAR_SCAN_LANES_MAX; i-- > 0;) {
        sweep->lanes[i].next = sweep->spare;
        sweep->spare = &sweep->lanes[i];
    }
    /* Each turn takes a lane on, or opens a tar, or waits for a read. */
    while (sweep->used > 0 || (sweep->more && sweep->status == 0)) {
        if (sweep->ready) {
            run_ready(sweep);
            continue;
        }
        submit(sweep);
        collect(sweep, 0);
        if (!sweep->ready && sweep->more && sweep->spare && sweep->status == 0) {
            open_tar(sweep);
        } else if (!sweep->ready && (sweep->more || !split(sweep))) {
            collect(sweep, WAIT_MS);
        }
    }
    for (uint32_t i = 0; i < STK_TAR_SCAN_LANES_MAX; i++) {
        stk_scan_lane_deinit(&sweep->lanes[i]);
    }
    if (sweep->queue) {
        stk_io_queue_close(options->io, sweep->queue);
    }
    status = sweep->status;
    if (status < 0 && error) {
        *error = sweep->error;
    }
    stk_free(sweep);
    return status;
}

static void add_ready(struct sweep *sweep, struct stk_scan_lane *lane)
{
    lane->next = sweep->ready;
    lane->listed = true;
    sweep->ready = lane;
}

static struct stk_scan_lane *open_spare(struct sweep *sweep, struct stk_scan_chain *chain,
                                        uint64_t start)
{
    struct stk_scan_lane *lane = sweep->spare;

    if (stk_scan_lane_open(lane, sweep->options, chain, start) < 0) {
        return NULL;
    }
    sweep->spare = lane->next;
    sweep->used++;
    chain->lanes++;
    return lane;
}

/* Lanes from starts evenly over the tar, as many as are to be had; the last first into the list, so
 * that the head runs first: what is warm it walks alone. */
static void open_lanes(struct sweep *sweep, struct stk_scan_chain *chain)
{
    const struct stk_tar_scan_tar *tar = chain->tar;
    uint64_t free_lanes = STK_TAR_SCAN_LANES_MAX - sweep->used;
    uint64_t count = stk_min(stk_max(free_lanes / 2, 1), tar->start_count), used = 1;
    struct stk_scan_lane *lanes[STK_TAR_SCAN_LANES_MAX] = {chain->head};

    for (uint64_t i = 1; i < count; i++) {
        uint64_t start = tar->starts[tar->start_count / count * i];
        struct stk_scan_lane *before = lanes[used - 1];

        if (start > before->start && start < tar->bytes) {
            before->next_lane = open_spare(sweep, chain, start);
            if (!before->next_lane) {
                break; /* without memory fewer do */
            }
            before->next_lane->is_guess = true;
            lanes[used++] = before->next_lane;
        }
    }
    while (used-- > 0) {
        add_ready(sweep, lanes[used]);
    }
}

static void open_tar(struct sweep *sweep)
{
    struct stk_tar_scan_tar *tar = NULL;
    struct stk_scan_chain *chain = NULL;
    int more = sweep->options->calls->next(sweep->options->context, &tar, &sweep->error);

    sweep->more = more > 0;
    sweep->status = more < 0 ? more : 0;
    if (more <= 0) {
        return;
    }
    tar->refuted = STK_TAR_SCAN_NO_START;
    chain = stk_alloc(1, sizeof *chain);
    if (chain) {
        chain->tar = tar;
        chain->head = open_spare(sweep, chain, 0);
    }
    if (!chain || !chain->head) {
        stk_free(chain);
        stk_fail(&sweep->error, -ENOMEM, "cannot read headers", "free memory", "a lane");
        sweep->options->calls->end(tar, -ENOMEM, &sweep->error);
        return;
    }
    open_lanes(sweep, chain);
}

static void release_lane(struct sweep *sweep, struct stk_scan_lane *lane)
{
    struct stk_scan_chain *chain = lane->chain;

    stk_scan_lane_reset(lane);
    lane->next = sweep->spare;
    sweep->spare = lane;
    sweep->used--;
    if (--chain->lanes == 0) {
        STK_ASSERT(chain->has_status);
        sweep->options->calls->end(chain->tar, chain->status, &chain->error);
        stk_free(chain);
    }
}

/* Who heads a tar and is done hands over to the lane behind it. */
static void advance(struct sweep *sweep, struct stk_scan_chain *chain)
{
    while (!chain->has_status && chain->head->done) {
        struct stk_scan_lane *head = chain->head;
        struct stoker_error error = {0};
        int status = 0;

        if (head->status < 0 || !head->joined) {
            decide(sweep, chain, head->status, &head->error);
            return; /* the tar may be gone */
        }
        chain->head = head->next_lane;
        release_lane(sweep, head);
        status = stk_scan_lane_report(chain->head, sweep->options, &error);
        if (status < 0) {
            decide(sweep, chain, status, &error);
            return;
        }
    }
}

/* All of a tar's lanes that nobody else has in hand: in the list, or waiting for a read. */
static void release_dropped(struct sweep *sweep, struct stk_scan_chain *chain)
{
    uint32_t left = chain->lanes; /* with the last one the chain goes */

    for (uint32_t i = 0; i < STK_TAR_SCAN_LANES_MAX && left > 0; i++) {
        struct stk_scan_lane *lane = &sweep->lanes[i];

        if (lane->chain == chain) {
            left--;
            if (lane->dropped && !lane->listed && !lane->waiting) {
                release_lane(sweep, lane);
            }
        }
    }
}

static void decide(struct sweep *sweep, struct stk_scan_chain *chain, int status,
                   const struct stoker_error *error)
{
    chain->has_status = true;
    chain->status = status;
    chain->error = *error;
    for (uint32_t i = 0; i < STK_TAR_SCAN_LANES_MAX; i++) {
        struct stk_scan_lane *lane = &sweep->lanes[i];

        lane->dropped = lane->dropped || lane->chain == chain;
    }
    release_dropped(sweep, chain);
}

/* A lane waits, or is done, or nobody asks for it any more. */
static void handle_stopped(struct sweep *sweep, struct stk_scan_lane *lane)
{
    struct stk_scan_chain *chain = lane->chain;

    if (chain->refuted) {
        chain->refuted = false;
        release_dropped(sweep, chain); /* not this lane: it has just found them out */
    }
    if (lane->waiting) {
        sweep->unsent[sweep->unsent_count++] = lane;
    } else if (lane->dropped) {
        release_lane(sweep, lane);
    } else if (lane == chain->head) {
        advance(sweep, chain);
    }
}

static void run_ready(struct sweep *sweep)
{
    struct stk_scan_lane *lane = sweep->ready;

    sweep->ready = lane->next;
    lane->listed = false;
    if (lane->dropped) {
        release_lane(sweep, lane);
        return;
    }
    stk_scan_lane_run(lane, sweep->options);
    handle_stopped(sweep, lane);
}

/* Without a queue no lane that waits can go on. */
static void fail_unsent(struct sweep *sweep, int status, const struct stoker_error *error)
{
    while (sweep->unsent_count > 0) {
        struct stk_scan_lane *lane = sweep->unsent[--sweep->unsent_count];

        lane->waiting = false;
        lane->done = true;
        lane->status = status;
        lane->error = *error;
        handle_stopped(sweep, lane);
    }
}

static void submit(struct sweep *sweep)
{
    struct stk_io *io = sweep->options->io;
    struct stk_read *list = NULL;
    uint32_t taken;

    if (sweep->unsent_count > 0 && !sweep->queue) {
        struct stoker_error error = {0};
        int status = stk_io_queue_open(io, &sweep->queue, &error);

        if (status < 0) {
            fail_unsent(sweep, status, &error);
            return;
        }
    }
    if (sweep->unsent_count == 0) {
        return;
    }
    for (uint32_t i = sweep->unsent_count; i-- > 0;) {
        sweep->unsent[i]->read.next = list;
        list = &sweep->unsent[i]->read;
    }
    taken = (uint32_t)stk_io_submit(io, sweep->queue, list);
    sweep->in_flight += taken;
    sweep->unsent_count -= taken;
    for (uint32_t i = 0; i < sweep->unsent_count; i++) {
        sweep->unsent[i] = sweep->unsent[i + taken];
    }
}

/* What a lane that waits has before it; 0: it is not to be split. */
static uint64_t ahead_of(const struct sweep *sweep, const struct stk_scan_lane *lane)
{
    const struct stk_scan_chain *chain = lane->chain;
    uint64_t end, distance, share = sweep->options->search_share;

    if (!lane->waiting || lane->dropped || lane->searching || lane->prefetched ||
        lane->reads < (lane->round_trip_bytes ? 1 : SPLIT_READS_MIN) ||
        (lane->next_lane && lane->next_lane->searching)) {
        return 0;
    }
    end = lane->next_lane ? lane->next_lane->start : chain->tar->bytes;
    if (lane->round_trip_bytes && lane->members > 0 &&
        (lane->read.offset - lane->start) / lane->members > lane->round_trip_bytes &&
        chain->searched + lane->round_trip_bytes > chain->tar->bytes / share) {
        return 0; /* its headers lie further apart than a search reads */
    }
    if (lane->round_trip_bytes) { /* a window that is searched is also read for its headers */
        return end > lane->read.offset + 2ull * lane->round_trip_bytes ? end - lane->read.offset
                                                                       : 0;
    }
    distance = (lane->read.offset - lane->start) / lane->reads;
    return distance >= SPLIT_DISTANCE_MIN && end > lane->read.offset &&
                   (end - lane->read.offset) / SPLIT_STEPS_MIN >= distance &&
                   chain->searched + distance <= chain->tar->bytes / share
               ? end - lane->read.offset
               : 0;
}

/* Another lane for who has most before it. False: it is not worth it, or there is none. */
static bool split(struct sweep *sweep)
{
    struct stk_scan_lane *lane = NULL, *after;
    uint64_t most = 0, distance;

    for (uint32_t i = 0; i < STK_TAR_SCAN_LANES_MAX && sweep->options->search_share > 0; i++) {
        uint64_t ahead = ahead_of(sweep, &sweep->lanes[i]);

        lane = ahead > most ? &sweep->lanes[i] : lane;
        most = stk_max(ahead, most);
    }
    after = lane && sweep->spare
                ? open_spare(sweep, lane->chain, (lane->read.offset + most / 2) & ~511ull)
                : NULL;
    if (!after) {
        return false;
    }
    distance = (lane->read.offset - lane->start) / lane->reads;
    lane->chain->searched += distance;
    after->next_lane = lane->next_lane;
    lane->next_lane = after;
    stk_scan_lane_search(after, 2 * distance);
    add_ready(sweep, after);
    return true;
}

/* What came back can run again. */
static void collect(struct sweep *sweep, uint32_t timeout_ms)
{
    struct stk_read *read = NULL, *next;

    if (sweep->in_flight > 0) {
        read = stk_io_reap(sweep->options->io, sweep->queue, timeout_ms);
    }
    for (; read; read = next) {
        struct stk_scan_lane *lane = read->owner;

        next = read->next;
        sweep->in_flight--;
        stk_scan_lane_complete(lane, sweep->options);
        if (lane->done || lane->dropped) {
            handle_stopped(sweep, lane);
        } else {
            add_ready(sweep, lane);
        }
    }
}
