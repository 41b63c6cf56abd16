/* Chooses and adopts settings of an order. */
#include "order/schedule/order_default.h"

uint32_t stk_order_window_within(uint64_t memory_bytes, uint64_t block_bytes)
{
    uint64_t fitting = memory_bytes / 2 / stk_max(block_bytes, 1);
    uint32_t window = STK_ORDER_WINDOW_DEFAULT;

    while (window < STK_ORDER_WINDOW_MAX && 2 * (uint64_t)window <= fitting) {
        window *= 2;
    }
    return window;
}

bool stk_order_adopt(struct stk_order_options *order, const struct stk_order_defaults *defaults,
                     const struct stoker_state *state)
{
    struct stk_order_options own = *order;
    bool is_known =
        state->shuffle >= STOKER_SHUFFLE_BLOCK && state->shuffle <= STOKER_SHUFFLE_TWO_LEVEL;

    if (defaults->version && state->order_version >= STK_ORDER_VERSION_MIN &&
        state->order_version <= STOKER_ORDER_VERSION) {
        order->version = state->order_version;
    }
    if (defaults->shuffle && is_known) {
        order->shuffle = state->shuffle;
    }
    if (defaults->window && state->window_blocks > 0) {
        order->window_blocks = state->window_blocks;
    }
    if (defaults->block && state->block_samples > 0) {
        order->block_samples = state->block_samples;
    }
    return order->version != own.version || order->shuffle != own.shuffle ||
           order->window_blocks != own.window_blocks || order->block_samples != own.block_samples;
}
