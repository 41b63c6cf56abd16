/* programs/decode_helper/helper_serve.h: serves decode and parse commands of an engine in a
 * confined process.
 *
 *   hello -> arena mapped, decoder created -> confined -> ready -> (command -> reply) ... -> closed
 *
 * Owner: the program's main. Threads: one. Memory: a decoder, a plan, the arena. Bound: what the
 * command grants, and RLIMIT_AS. */
#ifndef PROGRAMS_DECODE_HELPER_HELPER_SERVE_H
#define PROGRAMS_DECODE_HELPER_HELPER_SERVE_H

#include "decode/image/image_decode.h"

/* For tests: called with the bytes of each image or member; a negative result becomes the reply. */
typedef int stk_helper_serve_hook(struct stk_view bytes, struct stoker_error *error);

/* Serves until the engine closes the connection. Returns the program's exit status. */
int stk_helper_serve(stk_helper_serve_hook *first); /* NULL: none */

#endif
