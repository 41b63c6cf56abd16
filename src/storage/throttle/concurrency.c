/* How many connections: more while more bytes come, fewer when fewer bring the same. */
#include "storage/throttle/throttle.h"

/* In percent of what came before: worth more connections; given up for fewer. */
#define GAIN_PERCENT 105u
#define LOSS_PERCENT 98u
#define AFTER_UP 6u /* intervals until more are tried again */

static void begin(struct stk_climb *climb, uint32_t trying, uint32_t count);

void stk_climb_init(struct stk_climb *climb, uint32_t min, uint32_t start, uint32_t max)
{
    *climb = (struct stk_climb){.min = (uint32_t)stk_min(min, max), .max = max, .wait = 1};
    climb->count = climb->kept = (uint32_t)stk_max(stk_min(start, max), climb->min);
}

void stk_climb_step(struct stk_climb *climb, uint64_t bytes, bool busy, bool held)
{
    uint64_t brought;

    if (held || !busy) {
        /* A try that is not used shows nothing; what it would have been is not kept either. */
        begin(climb, STK_CLIMB_STAY, climb->kept);
        return;
    }
    climb->bytes += stk_min(bytes, UINT64_MAX / 1000);
    climb->since++;
    if (++climb->measured < 2) {
        return;
    }
    brought = climb->bytes;
    climb->measured = 0;
    climb->bytes = 0;
    if (brought == 0) { /* it stands still, with however many */
        begin(climb, STK_CLIMB_STAY, climb->kept);
        return;
    }
    if (climb->trying == STK_CLIMB_UP && 100 * brought < GAIN_PERCENT * climb->base) {
        climb->wait = AFTER_UP;
        begin(climb, STK_CLIMB_STAY, climb->kept);
        return;
    }
    if (climb->trying == STK_CLIMB_LESS && 100 * brought < LOSS_PERCENT * climb->base) {
        climb->wait = AFTER_UP;
        begin(climb, STK_CLIMB_STAY, climb->kept);
        return;
    }
    climb->base = brought;
    climb->kept = climb->count;
    if (climb->trying != STK_CLIMB_UP && climb->wait > 0) {
        climb->wait--;
        begin(climb, STK_CLIMB_STAY, climb->kept);
    } else if (climb->trying != STK_CLIMB_LESS && climb->count < climb->max) {
        begin(climb, STK_CLIMB_UP,
              (uint32_t)stk_min(climb->count + stk_max(climb->count / 4, 4), climb->max));
    } else {
        begin(climb, STK_CLIMB_STAY, climb->kept);
        climb->wait = AFTER_UP;
    }
    if (climb->trying == STK_CLIMB_STAY && climb->since >= STK_CLIMB_DOWN &&
        climb->count > climb->min) {
        climb->since = 0;
        begin(climb, STK_CLIMB_LESS,
              (uint32_t)stk_max(climb->count - stk_max(climb->count / 8, 1), climb->min));
    }
}

void stk_climb_fewer(struct stk_climb *climb)
{
    climb->kept = (uint32_t)stk_max(climb->kept / 2, climb->min);
    climb->wait = AFTER_UP;
    begin(climb, STK_CLIMB_STAY, climb->kept);
}

static void begin(struct stk_climb *climb, uint32_t trying, uint32_t count)
{
    climb->trying = trying;
    climb->count = count;
    climb->measured = 0;
    climb->bytes = 0;
}
