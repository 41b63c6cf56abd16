/* Lists objects by pages of XML: ListObjectsV2 of S3 and Google, List Blobs of Azure. */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "base/xml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TEXT_BYTES_MAX 4096u /* of one element: a key of 1,024 bytes, encoded */
#define LIST_QUERY_MAX 8u
#define AFTER_BYTES (2 * STK_STORE_URL_BYTES_MAX)

/* One page, and what the next page needs of it. */
struct page {
    const char *bucket; /* the name that the page must have; NULL: any */
    const char *prefix;
    size_t prefix_bytes;
    const char *after; /* Azure lists from the beginning: earlier names are skipped; or NULL */
    char start_after[AFTER_BYTES]; /* S3's parameter start-after */
    struct stk_store *store;
    struct stoker_error *error;
    const struct stk_list_request *search;
    bool in_contents, in_prefixes, in_metadata, is_folder, is_list, truncated, encoded,
        name_encoded;
    uint32_t item_depth; /* 2; Azure's items are at 3 */
    struct stk_list_guard guard;
    uint64_t count;
    char text[TEXT_BYTES_MAX + 1];
    /* of the current item */
    char name[TEXT_BYTES_MAX + 1];
    char etag[STK_STORE_ETAG_BYTES_MAX], storage[STK_STORE_CLASS_BYTES];
    uint64_t bytes, mtime_ns;
    bool has_size;
    char token[TEXT_BYTES_MAX + 1];
};

static uint32_t build_query(const struct stk_list_request *search, const char *prefix,
                            const char *token, const char *keys, char *after,
                            struct stk_sigv4_pair query[LIST_QUERY_MAX]);
static const char *bucket_of(const struct stk_object_url *object);
static int get_page(struct stk_store *store, const struct stk_object_url *object,
                    const struct stk_sigv4_pair *query, uint32_t query_count, struct stk_view *body,
                    struct stoker_error *error);
static int list_pages(struct stk_store *store, const struct stk_list_request *search,
                      struct stoker_error *error);
static int parse_page(struct page *page, struct stk_view body);
static int on_start(void *owner, const struct stk_xml_element *element);
static int on_end(void *owner, const struct stk_xml_element *element);
static int add_entry(struct page *page, bool folder);
static int check_same(const struct page *page, const struct stk_xml_element *element,
                      const char *want);
static int set_field(struct page *page, const struct stk_xml_element *element);

int stk_store_list(struct stk_store *store, const struct stk_list_request *search,
                   struct stoker_error *error)
{
    if (search->more_out) {
        *search->more_out = true;
    }
    if (!stk_object_url_has_key(search->place)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a web server cannot be listed",
                        "name each file, with braces: http://host/data-{000..009}.tar", "'%.400s'",
                        search->place->url);
    }
    return search->place->kind == STK_OBJECT_URL_HF ? stk_store_list_hf(store, search, error)
                                                    : list_pages(store, search, error);
}

static int list_pages(struct stk_store *store, const struct stk_list_request *search,
                      struct stoker_error *error)
{
    const struct stk_object_url *object = search->place;
    struct page *page = stk_alloc(1, sizeof *page);
    uint8_t *memory = stk_alloc(1, STK_STORE_PAGE_BYTES_MAX);
    char prefix[STK_STORE_URL_BYTES_MAX + 1], keys[16];
    size_t bytes = strlen(object->key);
    int status = page && memory ? 0 : -ENOMEM;

    if (status < 0) {
        stk_fail(error, status, "cannot list", "free memory", "store");
        goto done;
    }
    memcpy(prefix, object->key, bytes + 1);
    if (bytes > 0 && prefix[bytes - 1] != '/') {
        prefix[bytes++] = '/';
        prefix[bytes] = '\0';
    }
    snprintf(keys, sizeof keys, "%u",
             search->max > 0 && search->max < 1000 && !search->more_out ? search->max : 1000);
    page->store = store;
    page->error = error;
    page->search = search;
    page->bucket = bucket_of(object);
    page->prefix = prefix;
    page->prefix_bytes = bytes;
    page->after = object->kind == STK_OBJECT_URL_AZURE ? search->after : NULL;
    page->truncated = true;
    while (status == 0 && page->truncated) {
        struct stk_view body = {memory, STK_STORE_PAGE_BYTES_MAX};
        struct stk_sigv4_pair query[LIST_QUERY_MAX];
        uint32_t count;
        char token[sizeof page->token];

        memcpy(token, page->token, sizeof token);
        count = build_query(search, prefix, token, keys, page->start_after, query);
        status = get_page(store, object, query, count, &body, error);
        status = status < 0 ? status : parse_page(page, body);
        if (status < 0 && (!error || error->status != status)) {
            stk_fail(error, status, "a listing cannot be read",
                     "check the server and proxies: names, sizes and pages must be complete",
                     "'%s'", object->url);
        }
        if (status == 0 && search->more_out) {
            *search->more_out = page->truncated;
        }
        if (search->max > 0 && page->count >= search->max) {
            break;
        }
        if (status == 0 && page->truncated) {
            status = stk_list_guard_next_page(&page->guard, page->token, object, error);
        }
    }
done:
    stk_free(memory);
    stk_free(page);
    return status;
}

/* An access point, or its alias ("...-s3alias", "...--ol-s3", "....mrap"), stands for a bucket of
 * another name; Ceph's tenants ("tenant:bucket") are not repeated. */
static const char *bucket_of(const struct stk_object_url *object)
{
    bool alias = object->arn || strchr(object->bucket, ':') || strstr(object->bucket, "-s3") ||
                 strstr(object->bucket, ".mrap");

    return alias ? NULL : object->bucket;
}

/* The parameters of a page, in the order of their names; returns how many. */
static uint32_t build_query(const struct stk_list_request *search, const char *prefix,
                            const char *token, const char *keys, char *after,
                            struct stk_sigv4_pair query[LIST_QUERY_MAX])
{
    bool azure = search->place->kind == STK_OBJECT_URL_AZURE;
    uint32_t count = 0;

    if (azure) {
        query[count++] = (struct stk_sigv4_pair){"comp", "list"};
    } else if (token[0]) {
        query[count++] = (struct stk_sigv4_pair){"continuation-token", token};
    }
    if (!search->deep) {
        query[count++] = (struct stk_sigv4_pair){"delimiter", "/"};
    }
    if (azure) {
        query[count++] = (struct stk_sigv4_pair){"include", "metadata"}; /* tells folders */
        if (token[0]) {
            query[count++] = (struct stk_sigv4_pair){"marker", token};
        }
        query[count++] = (struct stk_sigv4_pair){"maxresults", keys};
        query[count++] = (struct stk_sigv4_pair){"prefix", prefix};
        query[count++] = (struct stk_sigv4_pair){"restype", "container"};
    } else {
        query[count++] = (struct stk_sigv4_pair){"encoding-type", "url"};
        query[count++] = (struct stk_sigv4_pair){"list-type", "2"};
        query[count++] = (struct stk_sigv4_pair){"max-keys", keys};
        query[count++] = (struct stk_sigv4_pair){"prefix", prefix};
        if (search->after && !token[0]) {
            snprintf(after, AFTER_BYTES, "%s%s", prefix, search->after);
            query[count++] = (struct stk_sigv4_pair){"start-after", after};
        }
    }
    return count;
}

static int get_page(struct stk_store *store, const struct stk_object_url *object,
                    const struct stk_sigv4_pair *query, uint32_t query_count, struct stk_view *body,
                    struct stoker_error *error)
{
    struct stk_operation *operation = stk_alloc(1, sizeof *operation);
    int status;

    if (!operation) {
        return stk_fail(error, -ENOMEM, "cannot list", "free memory", "store");
    }
    operation->object = object;
    operation->method = STK_HTTP_GET;
    operation->query = query;
    operation->query_count = query_count;
    operation->buffer = (uint8_t *)(uintptr_t)body->data;
    operation->buffer_bytes = body->bytes;
    status = stk_operation_run(store, operation, NULL, error);
    body->bytes = operation->request.bytes;
    stk_free(operation);
    return status;
}

static int parse_page(struct page *page, struct stk_view body)
{
    static const char mark[] = "<EncodingType>url<";
    struct stk_xml xml = {.start = on_start,
                          .end = on_end,
                          .owner = page,
                          .text = page->text,
                          .text_bytes_max = TEXT_BYTES_MAX};
    int status;

    page->is_list = page->truncated = false;
    /* The element comes before the items or after them. In a key, '<' would be escaped. */
    page->encoded = memmem(body.data, body.bytes, mark, sizeof mark - 1) != NULL;
    page->token[0] = '\0';
    status = stk_xml_parse(&xml, body);
    return status == 0 && !page->is_list ? STOKER_ERROR_CORRUPT : status;
}

static int on_start(void *owner, const struct stk_xml_element *element)
{
    const char *name = element->name;
    struct page *page = owner;

    if (element->depth == 1) {
        bool azure = strcmp(name, "EnumerationResults") == 0;
        page->is_list = azure || strcmp(name, "ListBucketResult") == 0;
        page->item_depth = azure ? 3 : 2;
    } else if (element->depth == page->item_depth) {
        page->in_contents = strcmp(name, "Contents") == 0 || strcmp(name, "Blob") == 0;
        page->in_prefixes = strcmp(name, "CommonPrefixes") == 0 || strcmp(name, "BlobPrefix") == 0;
        page->name[0] = page->etag[0] = page->storage[0] = '\0';
        page->bytes = page->mtime_ns = 0;
        page->has_size = page->name_encoded = page->in_metadata = page->is_folder = false;
    } else if (element->depth == page->item_depth + 1 && strcmp(name, "Metadata") == 0) {
        page->in_metadata = true; /* the names in it are the user's */
    } else if (element->depth == page->item_depth + 1 && strcmp(name, "Name") == 0) {
        /* Azure: a name with characters that XML cannot hold. */
        page->name_encoded = element->attributes[0] &&
                             strcmp(element->attributes[0], "Encoded") == 0 &&
                             strcmp(element->attributes[1], "true") == 0;
    }
    return 0;
}

static int copy_text(const struct stk_xml_element *element, char *to, size_t to_bytes)
{
    if (element->is_cut || element->text_bytes >= to_bytes) {
        return STOKER_ERROR_LIMIT;
    }
    memcpy(to, element->text, element->text_bytes + 1);
    return 0;
}

static int on_end(void *owner, const struct stk_xml_element *element)
{
    const char *name = element->name;
    struct page *page = owner;
    int status = 0;

    if (element->depth == page->item_depth && (page->in_contents || page->in_prefixes)) {
        status = add_entry(page, page->in_prefixes);
        page->in_contents = page->in_prefixes = false;
    } else if (element->depth == 2 && strcmp(name, "IsTruncated") == 0) {
        page->truncated = strcmp(element->text, "true") == 0;
    } else if (element->depth == 2 && strcmp(name, "Name") == 0) {
        status = check_same(page, element, page->bucket);
    } else if (element->depth == 2 && strcmp(name, "Prefix") == 0) {
        status = check_same(page, element, page->prefix);
    } else if (element->depth == 2 && strcmp(name, "NextContinuationToken") == 0) {
        status = copy_text(element, page->token, sizeof page->token);
    } else if (element->depth == 2 && strcmp(name, "NextMarker") == 0) {
        status = copy_text(element, page->token, sizeof page->token);
        page->truncated = element->text_bytes > 0;
    } else if (element->depth > page->item_depth) {
        status = set_field(page, element);
    }
    return status;
}

/* Checks the bucket or prefix that the page names: a cache or proxy that mixes up responses sends
 * a well-formed page of another listing. Some servers do not repeat the name, or do not encode it.
 */
static int check_same(const struct page *page, const struct stk_xml_element *element,
                      const char *want)
{
    char decoded[TEXT_BYTES_MAX + 1];

    if (!want || !element->text[0] || element->is_cut || strcmp(element->text, want) == 0) {
        return 0;
    }
    memcpy(decoded, element->text, element->text_bytes + 1);
    return page->encoded && stk_url_decode(decoded) && strcmp(decoded, want) == 0
               ? 0
               : STOKER_ERROR_CORRUPT;
}

/* Azure's ETags have no quotes in a listing. */
static int copy_etag(struct page *page, const struct stk_xml_element *element)
{
    bool bare = page->item_depth == 3 && element->text[0] != '"';

    if (!bare) {
        return copy_text(element, page->etag, sizeof page->etag);
    }
    if (element->text_bytes < sizeof page->etag - 2) {
        snprintf(page->etag, sizeof page->etag, "\"%s\"", element->text);
    }
    return 0;
}

/* A text that is not a number, or too large for 64 bits, is no size. */
static int read_size(struct page *page, const struct stk_xml_element *element)
{
    uint64_t size = 0;

    if (element->is_cut || element->text_bytes == 0) {
        return STOKER_ERROR_CORRUPT;
    }
    for (size_t i = 0; i < element->text_bytes; i++) {
        uint8_t digit = (uint8_t)(element->text[i] - '0');

        if (digit > 9 || !stk_multiply(size, 10, &size) || !stk_add(size, digit, &size) ||
            size == UINT64_MAX) {
            return STOKER_ERROR_CORRUPT;
        }
    }
    page->bytes = size;
    page->has_size = true;
    return 0;
}

/* Requests the size that the listing does not report. */
static int request_size(struct page *page, uint64_t *bytes_out)
{
    struct stk_object_url object = *page->search->place;
    struct stk_object_info info;
    int status;

    object.key = page->name;
    status = stk_store_head_archived(page->store, &object, &info, page->error);
    if (status == 0 && info.bytes != UINT64_MAX) {
        *bytes_out = info.bytes;
        return 0;
    }
    /* -ENOENT would say that nothing has the prefix. */
    return status == 0 || status == -ENOENT ? STOKER_ERROR_CORRUPT : status;
}

/* Sets a field of the current item. Azure's fields are in the item's Properties. */
static int set_field(struct page *page, const struct stk_xml_element *element)
{
    uint32_t depth = element->depth - page->item_depth;
    const char *name = element->name, *text = element->text;
    bool azure = page->item_depth == 3;

    if (depth == 1 && page->in_contents && strcmp(name, azure ? "Name" : "Key") == 0) {
        return copy_text(element, page->name, sizeof page->name);
    }
    if (depth == 1 && page->in_prefixes && strcmp(name, azure ? "Name" : "Prefix") == 0) {
        return copy_text(element, page->name, sizeof page->name);
    }
    if (azure && depth == 1 && strcmp(name, "Metadata") == 0) {
        page->in_metadata = false;
    } else if (depth != (azure ? 2 : 1) || !page->in_contents) {
        return 0;
    } else if (page->in_metadata) {
        page->is_folder = page->is_folder ||
                          (strcasecmp(name, "hdi_isfolder") == 0 && strcasecmp(text, "true") == 0);
    } else if (azure && strcmp(name, "ResourceType") == 0) {
        page->is_folder = page->is_folder || strcmp(text, "directory") == 0;
    } else if (strcmp(name, azure ? "Etag" : "ETag") == 0) {
        return copy_etag(page, element);
    } else if (strcmp(name, azure ? "AccessTier" : "StorageClass") == 0) {
        (void)copy_text(element, page->storage, sizeof page->storage);
    } else if (strcmp(name, azure ? "Content-Length" : "Size") == 0) {
        return read_size(page, element);
    } else if (strcmp(name, azure ? "Last-Modified" : "LastModified") == 0) {
        page->mtime_ns = stk_store_parse_time(text, element->text_bytes);
    }
    return 0;
}

static int add_entry(struct page *page, bool folder)
{
    struct stk_list_entry item = {.folder = folder,
                                  .bytes = page->bytes,
                                  .mtime_ns = page->mtime_ns,
                                  .etag = page->etag,
                                  .storage = page->storage};
    size_t bytes;
    int status;

    if ((page->encoded || page->name_encoded) && !stk_url_decode(page->name)) {
        return STOKER_ERROR_CORRUPT; /* a name with an encoded NUL, which no object has */
    }
    bytes = strlen(page->name);
    if (folder && bytes > 0 && page->name[bytes - 1] == '/') {
        page->name[--bytes] = '\0';
    }
    page->count++;
    stk_list_guard_add_name(&page->guard, page->name, folder);
    if (strncmp(page->name, page->prefix, stk_min(bytes, page->prefix_bytes)) != 0) {
        return STOKER_ERROR_CORRUPT; /* not below the requested prefix */
    }
    /* The prefix itself marks an empty folder, as consoles create it. Azure's folders, and the
     * markers that Hadoop writes for them, are listed as empty blobs. */
    if ((bytes <= page->prefix_bytes && !page->search->marks) || (page->is_folder && !folder)) {
        return 0;
    }
    item.name = page->name + stk_min(bytes, page->prefix_bytes);
    if (page->after && strcmp(item.name, page->after) <= 0) {
        return 0;
    }
    if (!folder && !page->has_size && bytes > 0 && page->name[bytes - 1] != '/') {
        status = request_size(page, &item.bytes);
        if (status < 0) {
            return status;
        }
    }
    status = page->search->found(page->search->owner, &item);
    return status < 0 ? status : 0;
}
