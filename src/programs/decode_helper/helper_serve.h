/* programs/decode_helper/helper_serve.h: the life of a decode helper: hello, confinement, pictures
 * and members, end.
 *
 *   hello -> arena mapped, decoder made -> confined -> ready -> (command -> answer) ... -> hung up
 *
 * Owner: the program's main. Threads: one. Memory: a decoder, a plan, the arena. Bound: what the
 * command grants, and RLIMIT_AS. */
#ifndef PROGRAMS_DECODE_HELPER_HELPER_SERVE_H
#define PROGRAMS_DECODE_HELPER_HELPER_SERVE_H

#include "decode/image/image_decode.h"

/* Looks first at the bytes of a picture or member; below 0: that is the answer. For tests. */
typedef int stk_helper_serve_hook(struct stk_view bytes, struct stoker_error *error);

/* Until the engine hangs up; the program's exit status. */
int stk_helper_serve(stk_helper_serve_hook *first); /* NULL: nobody */

#endif
