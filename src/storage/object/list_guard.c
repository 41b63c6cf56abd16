/* Ends listings that would never end: see struct stk_list_guard. */
#include "storage/object/store_private.h"

#include "base/random.h"
#include "base/xxh3.h"

#include <string.h>

#define PAGES_MAX 4000000u   /* 4 billion keys */
#define IDLE_PAGES_MAX 2000u /* in a row: stores return empty pages for removed objects */

void stk_list_guard_add_name(struct stk_list_guard *guard, const char *name, bool folder)
{
    guard->names_hash = stk_random_key(guard->names_hash, stk_xxh3_64(name, strlen(name)) + folder);
    guard->any = true;
    guard->objects = guard->objects || !folder;
}

/* Brent's algorithm finds a circle of any length: each page is compared with the last one whose
 * number was a power of two. A page with the names of objects of an earlier page is a circle, too,
 * whatever its continuation token is. The same folders may be on two pages. */
int stk_list_guard_next_page(struct stk_list_guard *guard, const char *next,
                             const struct stk_object_url *object, struct stoker_error *error)
{
    uint64_t sum = stk_xxh3_64(next, strlen(next));
    bool same = guard->pages > 0 && guard->any &&
                (guard->names_hash == guard->names_hash_last ||
                 guard->names_hash == guard->names_hash_saved);
    bool round = (guard->pages > 0 && (sum == guard->last || sum == guard->saved)) ||
                 (same && guard->objects);

    guard->idle = !guard->any || same ? guard->idle + 1 : 0;
    if (!next[0]) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "a listing has no link to its next page",
                        "check the server and proxies", "'%s'", object->url);
    }
    if (round) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "a listing repeats a page",
                        "check the server and proxies: the listing would never end", "'%s'",
                        object->url);
    }
    if (guard->idle >= IDLE_PAGES_MAX || ++guard->pages >= PAGES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a listing has no end",
                        "check the server and proxies; name a longer prefix", "'%s'", object->url);
    }
    if ((guard->pages & (guard->pages - 1)) == 0) {
        guard->saved = sum;
        guard->names_hash_saved = guard->names_hash;
    }
    guard->last = sum;
    guard->names_hash_last = guard->names_hash;
    guard->names_hash = 0;
    guard->any = guard->objects = false;
    return 0;
}
