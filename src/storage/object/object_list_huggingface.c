/* Lists Hugging Face's hub by pages of JSON; each response has a link to the next page. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "storage/provider/huggingface_request.h"

#include <errno.h>
#include <string.h>

struct listing {
    const struct stk_list_request *search;
    size_t prefix_bytes; /* of the folder's path, with its '/' */
    uint64_t count;
    struct stk_list_guard guard;
};

static int get_page(struct stk_store *store, struct stk_operation *operation,
                    struct stk_http_response *answer, struct listing *listing,
                    struct stoker_error *error);
static int add_entry(void *owner, const struct stk_hf_entry *entry);

int stk_store_list_hf(struct stk_store *store, const struct stk_list_request *search,
                      struct stoker_error *error)
{
    struct parts {
        struct stk_operation operation;
        struct stk_http_response answer;
        char link[STK_STORE_URL_BYTES_MAX];
    } *parts = stk_alloc(1, sizeof *parts);
    uint8_t *memory = stk_alloc(1, STK_STORE_PAGE_BYTES_MAX);
    const char *key = search->place->key;
    size_t bytes = strlen(key);
    struct listing listing = {.search = search, .prefix_bytes = bytes};
    struct stk_view link;
    bool more = true;
    int status =
        parts && memory ? 0 : stk_fail(error, -ENOMEM, "cannot list", "free memory", "store");

    listing.prefix_bytes += bytes > 0 && key[bytes - 1] != '/';
    for (bool first = true; status == 0 && more; first = false) {
        parts->operation.buffer = memory;
        parts->operation.link = first ? NULL : parts->link;
        status = get_page(store, &parts->operation, &parts->answer, &listing, error);
        more = status == 0 && stk_http_header(&parts->answer, "Link", &link) &&
               (search->max == 0 || listing.count < search->max);
        if (more) {
            int next = stk_hf_next_page(link, parts->link, sizeof parts->link);

            more = next > 0;
            if (next < 0) {
                status = stk_fail(error, next, "a listing has no link to its next page",
                                  "check HF_ENDPOINT and proxies", "'%s'", search->place->url);
            } else if (more) {
                status =
                    stk_list_guard_next_page(&listing.guard, parts->link, search->place, error);
            }
        }
    }
    stk_free(memory);
    stk_free(parts);
    return status;
}

static int get_page(struct stk_store *store, struct stk_operation *operation,
                    struct stk_http_response *answer, struct listing *listing,
                    struct stoker_error *error)
{
    const struct stk_object_url *object = listing->search->place;
    int status;

    operation->object = object;
    operation->method = STK_HTTP_GET;
    operation->tree = true;
    operation->deep = listing->search->deep;
    operation->buffer_bytes = STK_STORE_PAGE_BYTES_MAX;
    status = stk_operation_run(store, operation, answer, error);
    if (status < 0) {
        return status;
    }
    status = stk_hf_tree_parse((struct stk_view){operation->buffer, operation->request.bytes},
                               add_entry, listing);
    if (status == STOKER_ERROR_FORMAT) {
        stk_fail(error, status, "a listing cannot be read", "check HF_ENDPOINT and proxies", "'%s'",
                 object->url);
    }
    return status;
}

static int add_entry(void *owner, const struct stk_hf_entry *entry)
{
    struct listing *listing = owner;
    const struct stk_list_request *search = listing->search;
    struct stk_list_entry item = {
        .folder = entry->folder, .bytes = entry->bytes, .etag = "", .hash = entry->hash};

    listing->count++;
    stk_list_guard_add_name(&listing->guard, entry->path, entry->folder);
    if (strlen(entry->path) <= listing->prefix_bytes ||
        strncmp(entry->path, search->place->key, strlen(search->place->key)) != 0 ||
        (search->deep && entry->folder)) {
        return 0;
    }
    item.name = entry->path + listing->prefix_bytes;
    if (search->after && strcmp(item.name, search->after) <= 0) {
        return 0; /* the hub lists from the beginning only */
    }
    return search->found(search->owner, &item);
}
