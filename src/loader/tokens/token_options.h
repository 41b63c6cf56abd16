/* loader/tokens/token_options.h: options of a token loader: defaults, checks, and the identity of
 * their samples.
 *
 *   options of the user --resolve--> complete options --> rules of rows, identity of a state
 *
 * Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef LOADER_TOKENS_TOKEN_OPTIONS_H
#define LOADER_TOKENS_TOKEN_OPTIONS_H

#include "loader/rows/fim.h"
#include "loader/tokens/token_set.h"
#include "order/schedule/order_default.h"

/* Copies the user's options, sets defaults and checks them; the order has defaults only after
 * stk_token_options_choose_order. Returns 0 or STOKER_ERROR_ARGUMENT. */
int stk_token_options_resolve(struct stoker_token_loader_options *options,
                              const struct stoker_token_loader_options *given,
                              struct stoker_error *error);

/* Sets the settings of the order that the caller left out, and returns which those are. */
struct stk_order_defaults
stk_token_options_choose_order(struct stoker_token_loader_options *options,
                               const struct stoker_tokens *tokens);

/* Returns the options of fill in the middle; options: resolved. */
struct stk_fim stk_token_options_fim(const struct stoker_token_loader_options *options);

/* The identity that a state belongs to: the tokens, and the rows made of them. It has parts, so
 * that an error can name the one that differs. */
#define STK_TOKEN_IDENTITY_PARTS 5
extern const struct stk_identity_part stk_token_identity_parts[STK_TOKEN_IDENTITY_PARTS];
void stk_token_options_identity(const struct stoker_tokens *tokens,
                                const struct stoker_token_loader_options *options,
                                uint8_t identity[32]);

#endif
