/* Schedules many lanes in one thread: a lane whose bytes are there runs, the others wait in one
 * queue of reads. */
#include "index/scan/container_scan.h"

#include "base/mem.h"
#include "index/scan/container_scan_lane.h"

#include <errno.h>

#define WAIT_MS 50u /* for reads, before the shards are checked for a stop again */

/* A lane is split after so many reads that the distance of its headers is known, and if the
 * distance is so large that a second lane is worth the cost of a search. */
enum { SPLIT_READS_MIN = 4, SPLIT_STEPS_MIN = 8, SPLIT_DISTANCE_MIN = 16 << 10 };

struct scan {
    const struct stk_container_scan_options *options;
    struct stk_queue *queue; /* owned; NULL until something is cold */
    struct stk_scan_lane lanes[STK_CONTAINER_SCAN_LANES_MAX];
    struct stk_scan_lane *spare, *ready;                        /* by `next` */
    struct stk_scan_lane *unsent[STK_CONTAINER_SCAN_LANES_MAX]; /* their reads go together */
    uint32_t unsent_count, in_flight, used;
    bool more;  /* next may have another shard */
    int status; /* of the scan itself, not of a shard */
    struct stoker_error error;
};

static void open_shard(struct scan *scan);
static void run_ready(struct scan *scan);
static void handle_stopped(struct scan *scan, struct stk_scan_lane *lane);
static void decide(struct scan *scan, struct stk_scan_chain *chain, int status,
                   const struct stoker_error *error);
static void collect(struct scan *scan, uint32_t timeout_ms);
static void submit(struct scan *scan);
static bool split(struct scan *scan);

int stk_container_scan(const struct stk_container_scan_options *options, struct stoker_error *error)
{
    struct scan *scan = stk_alloc(1, sizeof *scan);
    int status;

    if (!scan) {
        return stk_fail(error, -ENOMEM, "cannot read headers", "free memory", "lanes");
    }
    scan->options = options;
    scan->more = true;
    for (uint32_t i = STK_CONTAINER_SCAN_LANES_MAX; i-- > 0;) {
        scan->lanes[i].next = scan->spare;
        scan->spare = &scan->lanes[i];
    }
    /* Each round runs a lane, or opens a shard, or waits for a read. */
    while (scan->used > 0 || (scan->more && scan->status == 0)) {
        if (scan->ready) {
            run_ready(scan);
            continue;
        }
        submit(scan);
        collect(scan, 0);
        if (!scan->ready && scan->more && scan->spare && scan->status == 0) {
            open_shard(scan);
        } else if (!scan->ready && (scan->more || !split(scan))) {
            collect(scan, WAIT_MS);
        }
    }
    for (uint32_t i = 0; i < STK_CONTAINER_SCAN_LANES_MAX; i++) {
        stk_scan_lane_deinit(&scan->lanes[i]);
    }
    if (scan->queue) {
        stk_io_queue_close(options->io, scan->queue);
    }
    status = scan->status;
    if (status < 0 && error) {
        *error = scan->error;
    }
    stk_free(scan);
    return status;
}

static void add_ready(struct scan *scan, struct stk_scan_lane *lane)
{
    lane->next = scan->ready;
    lane->listed = true;
    scan->ready = lane;
}

static struct stk_scan_lane *open_spare(struct scan *scan, struct stk_scan_chain *chain,
                                        uint64_t start, struct stoker_error *error)
{
    struct stk_scan_lane *lane = scan->spare;

    if (stk_scan_lane_open(lane, scan->options, chain, start, error) < 0) {
        return NULL;
    }
    scan->spare = lane->next;
    scan->used++;
    chain->lanes++;
    return lane;
}

/* Opens lanes at starts that are evenly distributed over the shard, as many as are free. The first
 * lane is put into the list last, so that it runs first: if all headers are in memory, it reads
 * them alone. */
static void open_lanes(struct scan *scan, struct stk_scan_chain *chain)
{
    const struct stk_container_scan_shard *shard = chain->shard;
    uint64_t free_lanes = STK_CONTAINER_SCAN_LANES_MAX - scan->used;
    uint64_t starts = shard->format->find_start ? shard->start_count : 0;
    uint64_t count = stk_min(stk_max(free_lanes / 2, 1), starts), used = 1;
    struct stk_scan_lane *lanes[STK_CONTAINER_SCAN_LANES_MAX] = {chain->head};

    for (uint64_t i = 1; i < count; i++) {
        uint64_t start = shard->starts[starts / count * i];
        struct stk_scan_lane *before = lanes[used - 1];

        if (start > before->start && start < shard->bytes) {
            before->next_lane = open_spare(scan, chain, start, NULL);
            if (!before->next_lane) {
                break; /* fewer lanes work, too */
            }
            before->next_lane->is_guess = true;
            lanes[used++] = before->next_lane;
        }
    }
    while (used-- > 0) {
        add_ready(scan, lanes[used]);
    }
}

static void open_shard(struct scan *scan)
{
    struct stk_container_scan_shard *shard = NULL;
    struct stk_scan_chain *chain = NULL;
    struct stoker_error error = {0};
    int more = scan->options->calls->next(scan->options->context, &shard, &scan->error);

    scan->more = more > 0;
    scan->status = more < 0 ? more : 0;
    if (more <= 0) {
        return;
    }
    shard->refuted = STK_CONTAINER_SCAN_NO_START;
    chain = stk_alloc(1, sizeof *chain);
    if (chain) {
        chain->shard = shard;
        chain->head = open_spare(scan, chain, 0, &error);
    } else {
        stk_fail(&error, -ENOMEM, "cannot read headers", "free memory", "a lane");
    }
    if (!chain || !chain->head) {
        stk_free(chain);
        scan->options->calls->end(shard, error.status, &error);
        return;
    }
    open_lanes(scan, chain);
}

static void release_lane(struct scan *scan, struct stk_scan_lane *lane)
{
    struct stk_scan_chain *chain = lane->chain;

    stk_scan_lane_reset(lane);
    lane->next = scan->spare;
    scan->spare = lane;
    scan->used--;
    if (--chain->lanes == 0) {
        STK_ASSERT(chain->has_status);
        scan->options->calls->end(chain->shard, chain->status, &chain->error);
        stk_free(chain);
    }
}

/* If the first lane of a shard is joined, the next lane becomes the first one. */
static void advance(struct scan *scan, struct stk_scan_chain *chain)
{
    while (!chain->has_status && chain->head->done) {
        struct stk_scan_lane *head = chain->head;
        struct stoker_error error = {0};
        int status = 0;

        if (head->status < 0 || !head->joined) {
            decide(scan, chain, head->status, &head->error);
            return; /* the shard may be removed */
        }
        chain->head = head->next_lane;
        release_lane(scan, head);
        status = stk_scan_lane_report(chain->head, scan->options, &error);
        if (status < 0) {
            decide(scan, chain, status, &error);
            return;
        }
    }
}

/* Releases the dropped lanes of a shard, except those in the list of ready lanes and those that
 * wait for a read: they are released when they leave it. */
static void release_dropped(struct scan *scan, struct stk_scan_chain *chain)
{
    uint32_t left = chain->lanes; /* the chain is freed with its last lane */

    for (uint32_t i = 0; i < STK_CONTAINER_SCAN_LANES_MAX && left > 0; i++) {
        struct stk_scan_lane *lane = &scan->lanes[i];

        if (lane->chain == chain) {
            left--;
            if (lane->dropped && !lane->listed && !lane->waiting) {
                release_lane(scan, lane);
            }
        }
    }
}

static void decide(struct scan *scan, struct stk_scan_chain *chain, int status,
                   const struct stoker_error *error)
{
    chain->has_status = true;
    chain->status = status;
    chain->error = *error;
    for (uint32_t i = 0; i < STK_CONTAINER_SCAN_LANES_MAX; i++) {
        struct stk_scan_lane *lane = &scan->lanes[i];

        lane->dropped = lane->dropped || lane->chain == chain;
    }
    release_dropped(scan, chain);
}

/* The lane waits, is done, or was dropped. */
static void handle_stopped(struct scan *scan, struct stk_scan_lane *lane)
{
    struct stk_scan_chain *chain = lane->chain;

    if (chain->refuted) {
        chain->refuted = false;
        release_dropped(scan, chain); /* lanes after this one */
    }
    if (lane->waiting) {
        scan->unsent[scan->unsent_count++] = lane;
    } else if (lane->dropped) {
        release_lane(scan, lane);
    } else if (lane == chain->head) {
        advance(scan, chain);
    }
}

static void run_ready(struct scan *scan)
{
    struct stk_scan_lane *lane = scan->ready;

    scan->ready = lane->next;
    lane->listed = false;
    if (lane->dropped) {
        release_lane(scan, lane);
        return;
    }
    stk_scan_lane_run(lane, scan->options);
    handle_stopped(scan, lane);
}

/* There is no queue, so all lanes that wait fail. */
static void fail_unsent(struct scan *scan, int status, const struct stoker_error *error)
{
    while (scan->unsent_count > 0) {
        struct stk_scan_lane *lane = scan->unsent[--scan->unsent_count];

        lane->waiting = false;
        lane->done = true;
        lane->status = status;
        lane->error = *error;
        handle_stopped(scan, lane);
    }
}

static void submit(struct scan *scan)
{
    struct stk_io *io = scan->options->io;
    struct stk_read *list = NULL;
    uint32_t taken;

    if (scan->unsent_count > 0 && !scan->queue) {
        struct stoker_error error = {0};
        int status = stk_io_queue_open(io, &scan->queue, &error);

        if (status < 0) {
            fail_unsent(scan, status, &error);
            return;
        }
    }
    if (scan->unsent_count == 0) {
        return;
    }
    for (uint32_t i = scan->unsent_count; i-- > 0;) {
        scan->unsent[i]->read.next = list;
        list = &scan->unsent[i]->read;
    }
    taken = (uint32_t)stk_io_submit(io, scan->queue, list);
    scan->in_flight += taken;
    scan->unsent_count -= taken;
    for (uint32_t i = 0; i < scan->unsent_count; i++) {
        scan->unsent[i] = scan->unsent[i + taken];
    }
}

/* Returns the bytes that a waiting lane has still to scan; 0: do not split it. */
static uint64_t ahead_of(const struct scan *scan, const struct stk_scan_lane *lane)
{
    const struct stk_scan_chain *chain = lane->chain;
    uint64_t end, distance, share = scan->options->search_share;

    if (!lane->waiting || lane->dropped || lane->searching || lane->prefetched ||
        lane->reads < (lane->round_trip_bytes ? 1 : SPLIT_READS_MIN) ||
        (lane->next_lane && lane->next_lane->searching) || !chain->shard->format->find_start) {
        return 0;
    }
    end = lane->next_lane ? lane->next_lane->start : chain->shard->bytes;
    if (lane->round_trip_bytes && lane->members > 0 &&
        (lane->read.offset - lane->start) / lane->members > lane->round_trip_bytes &&
        chain->searched + lane->round_trip_bytes > chain->shard->bytes / share) {
        return 0; /* its headers are further apart than a search reads */
    }
    if (lane->round_trip_bytes) { /* the window of a search also serves the scan */
        return end > lane->read.offset + 2ull * lane->round_trip_bytes ? end - lane->read.offset
                                                                       : 0;
    }
    distance = (lane->read.offset - lane->start) / lane->reads;
    return distance >= SPLIT_DISTANCE_MIN && end > lane->read.offset &&
                   (end - lane->read.offset) / SPLIT_STEPS_MIN >= distance &&
                   chain->searched + distance <= chain->shard->bytes / share
               ? end - lane->read.offset
               : 0;
}

/* Splits the lane that has the most bytes to scan. Returns false if no split is worth its cost, or
 * no lane is free. */
static bool split(struct scan *scan)
{
    struct stk_scan_lane *lane = NULL, *after;
    uint64_t most = 0, distance, at;

    for (uint32_t i = 0; i < STK_CONTAINER_SCAN_LANES_MAX && scan->options->search_share > 0; i++) {
        uint64_t ahead = ahead_of(scan, &scan->lanes[i]);

        lane = ahead > most ? &scan->lanes[i] : lane;
        most = stk_max(ahead, most);
    }
    if (!lane || !scan->spare) {
        return false;
    }
    at = (lane->read.offset + most / 2) & ~(lane->chain->shard->format->block_bytes - 1ull);
    after = open_spare(scan, lane->chain, at, NULL);
    if (!after) {
        return false;
    }
    distance = (lane->read.offset - lane->start) / lane->reads;
    lane->chain->searched += distance;
    after->next_lane = lane->next_lane;
    lane->next_lane = after;
    stk_scan_lane_search(after, 2 * distance);
    add_ready(scan, after);
    return true;
}

/* Lanes whose reads are done can run again. */
static void collect(struct scan *scan, uint32_t timeout_ms)
{
    struct stk_read *read = NULL, *next;

    if (scan->in_flight > 0) {
        read = stk_io_reap(scan->options->io, scan->queue, timeout_ms);
    }
    for (; read; read = next) {
        struct stk_scan_lane *lane = read->owner;

        next = read->next;
        scan->in_flight--;
        stk_scan_lane_complete(lane, scan->options);
        if (lane->done || lane->dropped) {
            handle_stopped(scan, lane);
        } else {
            add_ready(scan, lane);
        }
    }
}
