/* stoker-decode: decodes images and parses members for an engine with a sandbox. Not for
 * interactive use: it speaks the protocol of decode/sandbox/helper_protocol.h on descriptor 3, and
 * exits at once without it. */
#include "programs/decode_helper/helper_serve.h"

int main(void)
{
    return stk_helper_serve(NULL);
}
