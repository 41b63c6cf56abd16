/* Listing: pages of XML, read by expat without any entities of their own: of S3 (ListObjectsV2) and
 * Google, whose words are the same, and of Azure (List Blobs). */
#include "storage/object/store_private.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"

#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define TEXT_BYTES_MAX 4096u /* of one element: a key of 1,024 bytes, encoded */
#define PAGES_MAX 4000000u   /* 4 billion keys */
#define IDLE_PAGES_MAX 2000u /* in a row: stores pass over what was removed by such pages */
#define DEPTH_MAX 8u
#define LIST_QUERY_MAX 8u
#define AFTER_BYTES (2 * STK_STORE_URL_BYTES_MAX)

/* One page, and what is carried on to the next. */
struct page {
    XML_Parser parser;
    const char *bucket; /* as the page should call it; NULL: it may call it otherwise */
    const char *prefix;
    size_t prefix_bytes;
    const char *behind;      /* Azure lists from the beginning only; NULL: all names are wanted */
    char after[AFTER_BYTES]; /* room for what begins the listing */
    const struct stk_list_request *search;
    int status;
    uint32_t depth;
    bool in_contents, in_prefixes, in_metadata, is_folder, is_list, truncated, encoded,
        name_encoded, too_long;
    uint32_t items; /* the depth at which items stand: 2, Azure's 3 */
    struct stk_list_guard guard;
    uint64_t count;
    uint32_t text_bytes;
    char text[TEXT_BYTES_MAX + 1];
    /* of the item in hand */
    char name[TEXT_BYTES_MAX + 1];
    char etag[STK_STORE_ETAG_BYTES_MAX], storage[STK_STORE_CLASS_BYTES];
    uint64_t bytes, mtime_ns;
    char token[TEXT_BYTES_MAX + 1];
};

static uint32_t build_query(const struct stk_list_request *search, const char *prefix,
                            const char *token, const char *keys, char *after,
                            struct stk_sigv4_pair query[LIST_QUERY_MAX]);
static const char *bucket_of(const struct stk_object_url *object);
static int get_page(struct stk_store *store, const struct stk_object_url *object,
                    const struct stk_sigv4_pair *query, uint32_t query_count, struct stk_view *body,
                    struct stoker_error *error);
static int parse_page(struct page *page, struct stk_view body);
static void XMLCALL on_start(void *user, const XML_Char *name, const XML_Char **attributes);
static void XMLCALL on_end(void *user, const XML_Char *name);
static void XMLCALL on_text(void *user, const XML_Char *text, int bytes);
static void XMLCALL on_doctype(void *user, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public, int internal);
static void add_entry(struct page *page, bool folder);
static void compare(struct page *page, const char *want);
static void set_field(struct page *page, const char *name);

int stk_store_list(struct stk_store *store, const struct stk_list_request *search,
                   struct stoker_error *error)
{
    const struct stk_object_url *object = search->place;
    struct page *page = stk_alloc(1, sizeof *page);
    uint8_t *memory = stk_alloc(1, STK_STORE_PAGE_BYTES_MAX);
    char prefix[STK_STORE_URL_BYTES_MAX + 1], keys[16];
    size_t bytes = strlen(object->key ? object->key : "");
    int status = page && memory ? 0 : -ENOMEM;

    if (search->more_out) {
        *search->more_out = true;
    }
    if (status == 0 && object->kind == STK_OBJECT_URL_HF) {
        status = stk_store_list_hf(store, search, error);
        goto done;
    }
    if (status < 0) {
        stk_fail(error, status, "cannot list", "free memory", "store");
        goto done;
    }
    if (!stk_object_url_has_key(object)) {
        status = stk_fail(error, STOKER_ERROR_ARGUMENT, "a web server cannot be listed",
                          "name each file, with braces: http://host/data-{000..009}.tar",
                          "'%.400s'", object->url);
        goto done;
    }
    memcpy(prefix, object->key, bytes + 1);
    if (bytes > 0 && prefix[bytes - 1] != '/') {
        prefix[bytes++] = '/';
        prefix[bytes] = '\0';
    }
    snprintf(keys, sizeof keys, "%u",
             search->max > 0 && search->max < 1000 && !search->more_out ? search->max : 1000);
    page->search = search;
    page->bucket = bucket_of(object);
    page->prefix = prefix;
    page->prefix_bytes = bytes;
    page->behind = object->kind == STK_OBJECT_URL_AZURE ? search->after : NULL;
    page->truncated = true;
    while (status == 0 && page->truncated) {
        struct stk_view body = {memory, STK_STORE_PAGE_BYTES_MAX};
        struct stk_sigv4_pair query[LIST_QUERY_MAX];
        uint32_t count;
        char token[sizeof page->token];

        memcpy(token, page->token, sizeof token);
        count = build_query(search, prefix, token, keys, page->after, query);
        status = get_page(store, object, query, count, &body, error);
        status = status < 0 ? status : parse_page(page, body);
        if (status < 0 && (!error || error->status != status)) {
            stk_fail(error, status, "a listing cannot be read", "look at the server and proxies",
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

void stk_list_guard_add_name(struct stk_list_guard *guard, const char *name, bool folder)
{
    guard->names_hash = stk_random_key(guard->names_hash, stk_xxh3_64(name, strlen(name)) + folder);
    guard->any = true;
    guard->objects = guard->objects || !folder;
}

/* A circle of any length is met by what is kept of the pages number 1, 2, 4, 8 ... (Brent). The
 * same names of objects twice are one, too: who tells where it goes on need not listen to it. The
 * same folders may come on two pages. */
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
        return stk_fail(error, STOKER_ERROR_CORRUPT, "a listing does not tell how it goes on",
                        "look at the server and proxies", "'%s'", object->url);
    }
    if (round) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "a listing comes back to a page that it gave",
                        "look at the server and proxies: it would go on for ever", "'%s'",
                        object->url);
    }
    if (guard->idle >= IDLE_PAGES_MAX || ++guard->pages >= PAGES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a listing has no end",
                        "look at the server and proxies; name a longer prefix", "'%s'",
                        object->url);
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
    int status = 0;

    page->parser = XML_ParserCreate(NULL);
    if (!page->parser) {
        return -ENOMEM;
    }
    page->depth = 0;
    page->is_list = page->truncated = false;
    /* It stands before the items or behind them, as the server likes; in a key it would be quoted.
     */
    page->encoded = memmem(body.data, body.bytes, mark, sizeof mark - 1) != NULL;
    page->status = 0;
    page->token[0] = '\0';
    XML_SetUserData(page->parser, page);
    XML_SetElementHandler(page->parser, on_start, on_end);
    XML_SetCharacterDataHandler(page->parser, on_text);
    XML_SetStartDoctypeDeclHandler(page->parser, on_doctype);
    if (XML_Parse(page->parser, (const char *)body.data, (int)body.bytes, 1) != XML_STATUS_OK ||
        !page->is_list) {
        status = page->status < 0 ? page->status : STOKER_ERROR_CORRUPT;
    } else {
        status = page->status;
    }
    XML_ParserFree(page->parser);
    page->parser = NULL;
    return status;
}

/* A page of a listing declares nothing: whatever does is no such page, or a bomb. */
static void XMLCALL on_doctype(void *user, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public, int internal)
{
    struct page *page = user;

    (void)name;
    (void)system;
    (void)public;
    (void)internal;
    page->status = STOKER_ERROR_CORRUPT;
    XML_StopParser(page->parser, XML_FALSE);
}

static void XMLCALL on_start(void *user, const XML_Char *name, const XML_Char **attributes)
{
    struct page *page = user;

    page->text_bytes = 0;
    page->too_long = false;
    page->depth++;
    if (page->depth == 1) {
        bool azure = strcmp(name, "EnumerationResults") == 0;
        page->is_list = azure || strcmp(name, "ListBucketResult") == 0;
        page->items = azure ? 3 : 2;
    } else if (page->depth == page->items) {
        page->in_contents = strcmp(name, "Contents") == 0 || strcmp(name, "Blob") == 0;
        page->in_prefixes = strcmp(name, "CommonPrefixes") == 0 || strcmp(name, "BlobPrefix") == 0;
        page->name[0] = page->etag[0] = page->storage[0] = '\0';
        page->bytes = page->mtime_ns = 0;
        page->name_encoded = page->in_metadata = page->is_folder = false;
    } else if (page->depth == page->items + 1 && strcmp(name, "Metadata") == 0) {
        page->in_metadata = true; /* whose names are the user's */
    } else if (page->depth == page->items + 1 && strcmp(name, "Name") == 0) {
        /* Azure: a name that XML cannot hold. */
        page->name_encoded = attributes[0] && strcmp(attributes[0], "Encoded") == 0 &&
                             strcmp(attributes[1], "true") == 0;
    }
    if (page->depth > DEPTH_MAX) {
        page->status = STOKER_ERROR_CORRUPT;
        XML_StopParser(page->parser, XML_FALSE);
    }
}

static void XMLCALL on_text(void *user, const XML_Char *text, int bytes)
{
    struct page *page = user;

    if ((uint32_t)bytes > TEXT_BYTES_MAX - page->text_bytes) {
        page->too_long = true;
        return;
    }
    memcpy(page->text + page->text_bytes, text, (size_t)bytes);
    page->text_bytes += (uint32_t)bytes;
}

static void add_object(struct page *page, char *to, size_t to_bytes)
{
    if (page->too_long || page->text_bytes >= to_bytes) {
        page->status = STOKER_ERROR_LIMIT;
        XML_StopParser(page->parser, XML_FALSE);
        return;
    }
    memcpy(to, page->text, page->text_bytes + 1);
}

static void XMLCALL on_end(void *user, const XML_Char *name)
{
    struct page *page = user;

    page->text[page->text_bytes] = '\0';
    if (page->depth == page->items && (page->in_contents || page->in_prefixes)) {
        add_entry(page, page->in_prefixes);
        page->in_contents = page->in_prefixes = false;
    } else if (page->depth == 2 && strcmp(name, "IsTruncated") == 0) {
        page->truncated = strcmp(page->text, "true") == 0;
    } else if (page->depth == 2 && strcmp(name, "Name") == 0) {
        compare(page, page->bucket);
    } else if (page->depth == 2 && strcmp(name, "Prefix") == 0) {
        compare(page, page->prefix);
    } else if (page->depth == 2 && strcmp(name, "NextContinuationToken") == 0) {
        add_object(page, page->token, sizeof page->token);
    } else if (page->depth == 2 && strcmp(name, "NextMarker") == 0) {
        add_object(page, page->token, sizeof page->token);
        page->truncated = page->text_bytes > 0;
    } else if (page->depth > page->items) {
        set_field(page, name);
    }
    page->text_bytes = 0;
    page->depth--;
}

/* Which bucket or prefix it is of. A cache or proxy that mixes answers up gives one that is whole,
 * and may have no name by which that shows. Some servers do not encode the prefix. */
static void compare(struct page *page, const char *want)
{
    bool same = !want || !page->text[0] || page->too_long || strcmp(page->text, want) == 0 ||
                (page->encoded && stk_url_decode(page->text) && strcmp(page->text, want) == 0);

    if (!same) {
        page->status = STOKER_ERROR_CORRUPT;
        XML_StopParser(page->parser, XML_FALSE);
    }
}

/* Of an item. Azure's lie in its Properties, and its ETags have no quotes here. */
static void set_field(struct page *page, const char *name)
{
    uint32_t below = page->depth - page->items;
    bool azure = page->items == 3;

    if (below == 1 && page->in_contents && strcmp(name, azure ? "Name" : "Key") == 0) {
        add_object(page, page->name, sizeof page->name);
    } else if (below == 1 && page->in_prefixes && strcmp(name, azure ? "Name" : "Prefix") == 0) {
        add_object(page, page->name, sizeof page->name);
    } else if (azure && below == 1 && strcmp(name, "Metadata") == 0) {
        page->in_metadata = false;
    } else if (below != (azure ? 2 : 1) || !page->in_contents) {
        return;
    } else if (page->in_metadata) {
        page->is_folder = page->is_folder || (strcasecmp(name, "hdi_isfolder") == 0 &&
                                              strcasecmp(page->text, "true") == 0);
    } else if (azure && strcmp(name, "ResourceType") == 0) {
        page->is_folder = page->is_folder || strcmp(page->text, "directory") == 0;
    } else if (strcmp(name, azure ? "Etag" : "ETag") == 0) {
        bool bare = azure && page->text[0] != '"';
        if (bare && page->text_bytes < sizeof page->etag - 2) {
            snprintf(page->etag, sizeof page->etag, "\"%s\"", page->text);
        } else if (!bare) {
            add_object(page, page->etag, sizeof page->etag);
        }
    } else if (strcmp(name, azure ? "AccessTier" : "StorageClass") == 0) {
        if (page->text_bytes < sizeof page->storage && !page->too_long) {
            memcpy(page->storage, page->text, page->text_bytes + 1);
        }
    } else if (strcmp(name, azure ? "Content-Length" : "Size") == 0) {
        page->bytes = strtoull(page->text, NULL, 10);
    } else if (strcmp(name, azure ? "Last-Modified" : "LastModified") == 0) {
        page->mtime_ns = stk_store_parse_time(page->text, page->text_bytes);
    }
}

static void add_entry(struct page *page, bool folder)
{
    struct stk_list_entry item = {.folder = folder,
                                  .bytes = page->bytes,
                                  .mtime_ns = page->mtime_ns,
                                  .etag = page->etag,
                                  .storage = page->storage};
    size_t bytes;

    if ((page->encoded || page->name_encoded) && !stk_url_decode(page->name)) {
        page->status = STOKER_ERROR_CORRUPT; /* no name of an object here has a NUL */
        XML_StopParser(page->parser, XML_FALSE);
        return;
    }
    bytes = strlen(page->name);
    if (folder && bytes > 0 && page->name[bytes - 1] == '/') {
        page->name[--bytes] = '\0';
    }
    page->count++;
    stk_list_guard_add_name(&page->guard, page->name, folder);
    if (strncmp(page->name, page->prefix, stk_min(bytes, page->prefix_bytes)) != 0) {
        page->status = STOKER_ERROR_CORRUPT; /* of another prefix than was asked for */
        XML_StopParser(page->parser, XML_FALSE);
        return;
    }
    /* The prefix itself is the mark of an empty folder, as consoles make them; and Azure's folders,
     * or what Hadoop leaves for them, come as blobs without bytes. */
    if (page->status < 0 || (bytes <= page->prefix_bytes && !page->search->marks) ||
        (page->is_folder && !folder)) {
        return;
    }
    item.name = page->name + stk_min(bytes, page->prefix_bytes);
    if (page->behind && strcmp(item.name, page->behind) <= 0) {
        return;
    }
    page->status = page->search->found(page->search->owner, &item);
    if (page->status < 0) {
        XML_StopParser(page->parser, XML_FALSE);
    }
}
