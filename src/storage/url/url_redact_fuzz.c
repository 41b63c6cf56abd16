/* Fuzz of url_redact.c and url_split.c: any text is split, and redacted in the bytes that it says
 * it needs; an alias is its own alias and resolves to a URL with the parts that it does not show.
 */
#include "storage/url/url_redact.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "storage/url/url_alias.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *url = stk_alloc(bytes + 1, 1), *name = NULL, *again = NULL, *resolved = NULL;
    struct stk_url_parts parts, resolved_parts;
    bool login, query;
    char text[64];

    STK_ASSERT(url);
    if (bytes > 0) {
        memcpy(url, data, bytes);
    }
    STK_ASSERT(stk_url_alias(url, &name) == 0 && stk_url_alias(name, &again) == 0);
    STK_ASSERT(strcmp(name, again) == 0);
    STK_ASSERT(stk_url_resolve(name, &resolved) == 0);
    if (stk_url_split(url, &parts)) {
        size_t room_bytes = stk_url_redact_parts(&parts, NULL, 0, &login, &query);
        char *room = stk_alloc(room_bytes, 1);

        STK_ASSERT(room && room_bytes == strlen(name) + 1);
        STK_ASSERT(stk_url_redact_parts(&parts, room, room_bytes, &login, &query) == room_bytes);
        STK_ASSERT(strcmp(room, name) == 0);
        stk_free(room);
        STK_ASSERT(stk_url_split(resolved, &resolved_parts) || parts.broken);
        /* A last '!' of a chain is of none of its parts, though one of them may end in it. */
        STK_ASSERT(parts.broken || strstr(name, "::") ||
                   (parts.rest.bytes == resolved_parts.rest.bytes &&
                    memcmp(parts.rest.data, resolved_parts.rest.data, parts.rest.bytes) == 0));
        STK_ASSERT(!query || parts.broken || strstr(name, "::") ||
                   (parts.query.bytes == resolved_parts.query.bytes &&
                    memcmp(parts.query.data, resolved_parts.query.data, parts.query.bytes) == 0));
    } else {
        STK_ASSERT(strcmp(resolved, url) == 0);
        STK_ASSERT(parts.head.bytes + parts.rest.bytes + parts.query.bytes <= strlen(url));
    }
    STK_ASSERT(stk_url_redact_short(url, text, sizeof text) == text && strlen(text) < sizeof text);
    stk_secret_free(resolved);
    stk_free(again);
    stk_free(name);
    stk_free(url);
    return 0;
}
