/* Hill climbing on the number of connections: adds connections while that increases the bytes
 * received, and removes them if fewer connections receive the same bytes. */
#include "storage/throttle/throttle.h"

/* In percent of the previous goodput: the gain that justifies more connections, and the loss
 * that is accepted for fewer. */
#define GAIN_PERCENT 105u
#define LOSS_PERCENT 98u
#define MORE_INTERVALS 6u /* intervals until more are tried again */

static void begin(struct stk_concurrency *concurrency, uint32_t trying, uint32_t count);

void stk_concurrency_init(struct stk_concurrency *concurrency, uint32_t min, uint32_t start,
                          uint32_t max)
{
    *concurrency =
        (struct stk_concurrency){.min = (uint32_t)stk_min(min, max), .max = max, .wait = 1};
    concurrency->count = concurrency->previous_count =
        (uint32_t)stk_max(stk_min(start, max), concurrency->min);
}

void stk_concurrency_update(struct stk_concurrency *concurrency, uint64_t bytes, bool busy,
                            bool held)
{
    uint64_t received;

    if (held || !busy) {
        /* A try whose connections are not used shows nothing, so its result is discarded. */
        begin(concurrency, STK_CONCURRENCY_TRY_NONE, concurrency->previous_count);
        return;
    }
    concurrency->bytes += stk_min(bytes, UINT64_MAX / 1000);
    concurrency->since++;
    if (++concurrency->measured < 2) {
        return;
    }
    received = concurrency->bytes;
    concurrency->measured = 0;
    concurrency->bytes = 0;
    if (received == 0) { /* it stands still, with however many */
        begin(concurrency, STK_CONCURRENCY_TRY_NONE, concurrency->previous_count);
        return;
    }
    if (concurrency->trying == STK_CONCURRENCY_TRY_MORE &&
        100 * received < GAIN_PERCENT * concurrency->previous_bytes) {
        concurrency->wait = MORE_INTERVALS;
        begin(concurrency, STK_CONCURRENCY_TRY_NONE, concurrency->previous_count);
        return;
    }
    if (concurrency->trying == STK_CONCURRENCY_TRY_FEWER &&
        100 * received < LOSS_PERCENT * concurrency->previous_bytes) {
        concurrency->wait = MORE_INTERVALS;
        begin(concurrency, STK_CONCURRENCY_TRY_NONE, concurrency->previous_count);
        return;
    }
    concurrency->previous_bytes = received;
    concurrency->previous_count = concurrency->count;
    if (concurrency->trying != STK_CONCURRENCY_TRY_MORE && concurrency->wait > 0) {
        concurrency->wait--;
        begin(concurrency, STK_CONCURRENCY_TRY_NONE, concurrency->previous_count);
    } else if (concurrency->trying != STK_CONCURRENCY_TRY_FEWER &&
               concurrency->count < concurrency->max) {
        begin(concurrency, STK_CONCURRENCY_TRY_MORE,
              (uint32_t)stk_min(concurrency->count + stk_max(concurrency->count / 4, 4),
                                concurrency->max));
    } else {
        begin(concurrency, STK_CONCURRENCY_TRY_NONE, concurrency->previous_count);
        concurrency->wait = MORE_INTERVALS;
    }
    if (concurrency->trying == STK_CONCURRENCY_TRY_NONE &&
        concurrency->since >= STK_CONCURRENCY_FEWER_INTERVALS &&
        concurrency->count > concurrency->min) {
        concurrency->since = 0;
        begin(concurrency, STK_CONCURRENCY_TRY_FEWER,
              (uint32_t)stk_max(concurrency->count - stk_max(concurrency->count / 8, 1),
                                concurrency->min));
    }
}

void stk_concurrency_decrease(struct stk_concurrency *concurrency)
{
    concurrency->previous_count =
        (uint32_t)stk_max(concurrency->previous_count / 2, concurrency->min);
    concurrency->wait = MORE_INTERVALS;
    begin(concurrency, STK_CONCURRENCY_TRY_NONE, concurrency->previous_count);
}

static void begin(struct stk_concurrency *concurrency, uint32_t trying, uint32_t count)
{
    concurrency->trying = trying;
    concurrency->count = count;
    concurrency->measured = 0;
    concurrency->bytes = 0;
}
