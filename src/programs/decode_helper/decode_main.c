/* stoker-decode: decodes pictures and parses members for an engine that was opened with sandbox.
 * Not for people: it speaks decode/sandbox/helper_protocol.h over descriptor 3 and ends at once
 * without. */
#include "programs/decode_helper/helper_serve.h"

int main(void)
{
    return stk_helper_serve(NULL);
}
