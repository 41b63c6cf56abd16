/* loader/tokens/token_options.h: options of a token loader, made complete and checked, and their
 * digest.
 * Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef LOADER_TOKENS_TOKEN_OPTIONS_H
#define LOADER_TOKENS_TOKEN_OPTIONS_H

#include "loader/rows/fim.h"
#include "loader/tokens/token_set.h"
#include "order/order.h"

/* given: as the user gave them. ARGUMENT. */
int stk_token_options_resolve(struct stoker_token_loader_options *options,
                              const struct stoker_token_loader_options *given,
                              struct stoker_error *error);

/* What they say of fill in the middle; options: resolved. */
struct stk_fim stk_token_options_fim(const struct stoker_token_loader_options *options);

/* What a state belongs to: the tokens, and what is made of them; in parts, so that the one that
 * differs can be path_args. */
#define STK_TOKEN_IDENTITY_PARTS 5
extern const struct stk_identity_part stk_token_identity_parts[STK_TOKEN_IDENTITY_PARTS];
void stk_token_options_identity(const struct stoker_tokens *tokens,
                                const struct stoker_token_loader_options *options,
                                uint8_t identity[32]);

#endif
