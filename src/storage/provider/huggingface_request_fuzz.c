/* Fuzz target of huggingface_request.c: any text as a URL, as a page of a listing and as a Link
 * header. */
#include "storage/provider/huggingface_request.h"

#include "base/mem.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int found(void *owner, const struct stk_hf_entry *entry)
{
    size_t *count = owner;

    STK_ASSERT(entry->path && strlen(entry->path) < 4096);
    return ++*count > 1000 ? -1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_view text = {data, bytes};
    struct stk_hf_repository repository;
    char *name = stk_alloc(bytes + 1, 1), url[256];
    size_t count = 0, split;

    if (!name) {
        return 0;
    }
    if (bytes > 0) {
        memcpy(name, data, bytes);
    }
    split = stk_hf_split(name);
    STK_ASSERT(split <= strlen(name) && (split == 0 || name[split] == 0 || name[split] == '/'));
    name[split] = 0;
    if (stk_hf_repository_parse(name, &repository)) {
        STK_ASSERT(split > 0 && repository.name[0] && repository.revision[0]);
        STK_ASSERT(!strchr(repository.name, '@'));
    }
    if (stk_hf_next_page(text, url, sizeof url) == 1) {
        STK_ASSERT(url[0] && strlen(url) < sizeof url && !strchr(url, '>'));
    }
    STK_ASSERT(stk_hf_tree_parse(text, found, &count) <= 0);
    stk_free(name);
    return 0;
}
