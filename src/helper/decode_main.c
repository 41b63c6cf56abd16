/* stoker-decode: decodes pictures and parses members for an engine that was opened with sandbox.
 * Not for people: it speaks sandbox/protocol.h over descriptor 3 and ends at once without. */
#include "helper/serve.h"

int main(void)
{
    return stk_serve(NULL);
}
