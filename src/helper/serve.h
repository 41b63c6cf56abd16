/* helper/serve.h: the life of a decode helper: hello, confinement, pictures, end.
 *
 *   hello -> arena mapped, decoder made -> confined -> ready -> (command -> answer) ... -> hung up
 *
 * Owner: the program's main. Threads: one. Memory: a decoder, a plan, the arena. Bound: what the
 * command grants, and RLIMIT_AS. */
#ifndef HELPER_SERVE_H
#define HELPER_SERVE_H

#include "decode/decode.h"

/* The first that looks at a picture: as stk_decode_ticket; a test gives another. */
typedef int stk_serve_ticket(const struct stk_decode_plan *plan, struct stk_view bytes,
                             uint64_t *memory_bytes_out, struct stoker_error *error);

/* Until the engine hangs up; the program's exit status. */
int stk_serve(stk_serve_ticket *ticket);

#endif
