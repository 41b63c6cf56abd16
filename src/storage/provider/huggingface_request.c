/* Hugging Face: URLs of files and folders, and pages of listings. */
#include "storage/provider/huggingface_request.h"

#include "storage/provider/provider.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PATH_BYTES 4096u

static const char *const kinds[] = {"datasets", "models", "spaces"};

static size_t segment(const char *text)
{
    return strcspn(text, "/");
}

/* "datasets/" or "spaces/"; a model has no prefix. */
static size_t kind_bytes(const char *text, const char **kind_out)
{
    *kind_out = kinds[1];
    for (size_t i = 0; i < STK_COUNT(kinds); i++) {
        size_t bytes = strlen(kinds[i]);
        if (i != 1 && strncmp(text, kinds[i], bytes) == 0 && text[bytes] == '/') {
            *kind_out = kinds[i];
            return bytes + 1;
        }
    }
    return 0;
}

size_t stk_hf_split(const char *text)
{
    static const char *const refs[] = {"refs/pr/", "refs/convert/"};
    const char *kind, *name, *at;
    size_t begin = kind_bytes(text, &kind), organisation = segment(text + begin);

    if (organisation == 0 || !text[begin + organisation]) {
        return 0;
    }
    name = text + begin + organisation + 1;
    at = memchr(name, '@', segment(name));
    if (segment(name) == 0 || at == name || (at && at + 1 == name + segment(name))) {
        return 0;
    }
    for (size_t i = 0; at && i < STK_COUNT(refs); i++) {
        size_t bytes = strlen(refs[i]);
        if (strncmp(at + 1, refs[i], bytes) == 0 && segment(at + 1 + bytes) > 0) {
            return (size_t)(at + 1 - text) + bytes + segment(at + 1 + bytes);
        }
    }
    return (size_t)(name - text) + segment(name);
}

/* "refs%2Fpr%2F1" is "refs/pr/1". */
static void decode_slashes(char *text)
{
    char *to = text;

    for (const char *at = text; *at; at++) {
        bool slash = strncmp(at, "%2F", 3) == 0 || strncmp(at, "%2f", 3) == 0;
        *to++ = slash ? '/' : *at;
        at += slash ? 2 : 0;
    }
    *to = 0;
}

bool stk_hf_repository_parse(const char *text, struct stk_hf_repository *repository)
{
    size_t begin = kind_bytes(text, &repository->kind), bytes = stk_hf_split(text);
    const char *at = memchr(text, '@', bytes);
    int name, revision;

    if (bytes == 0 || text[bytes]) {
        return false;
    }
    name = snprintf(repository->name, sizeof repository->name, "%.*s",
                    (int)((at ? (size_t)(at - text) : bytes) - begin), text + begin);
    revision =
        snprintf(repository->revision, sizeof repository->revision, "%s", at ? at + 1 : "main");
    decode_slashes(repository->revision);
    return name > 0 && revision > 0 && (size_t)name < sizeof repository->name &&
           (size_t)revision < sizeof repository->revision;
}

/* Writes a URL from parts that are encoded and parts that are copied unchanged. */
struct writer {
    struct stk_provider_request *request;
    bool fits;
};

static void write_raw(struct writer *writer, const char *text)
{
    struct stk_provider_request *request = writer->request;
    size_t bytes = strlen(text);

    writer->fits = writer->fits && bytes < request->buffer_bytes - request->buffer_used;
    if (writer->fits) {
        memcpy(request->buffer + request->buffer_used, text, bytes + 1);
        request->buffer_used += bytes;
    }
}

static void write_encoded(struct writer *writer, const char *text, bool slash)
{
    struct stk_provider_request *request = writer->request;

    writer->fits =
        writer->fits && request->buffer_used < request->buffer_bytes &&
        stk_url_encode(text, slash, request->buffer, request->buffer_bytes, &request->buffer_used);
}

int stk_provider_request_huggingface(struct stk_provider_request *request,
                                     struct stoker_error *error)
{
    const char *endpoint = request->site->endpoint;
    size_t endpoint_bytes = strlen(endpoint);
    struct writer writer = {request, true};
    struct stk_hf_repository repository;
    char *url = request->buffer;

    if (!stk_hf_repository_parse(request->bucket, &repository)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "a URL of Hugging Face names no repository",
                        "write hf://datasets/org/name@revision/path, or hf://org/name/path",
                        "'%.200s'", request->bucket);
    }
    if (request->link) {
        if (strncmp(request->link, endpoint, endpoint_bytes) != 0 ||
            request->link[endpoint_bytes] != '/') {
            return stk_fail(error, STOKER_ERROR_CORRUPT,
                            "the next page of a listing is on another host",
                            "check HF_ENDPOINT and the server", "'%.200s'", request->bucket);
        }
        write_raw(&writer, request->link);
    } else {
        bool model = strcmp(repository.kind, "models") == 0;
        write_raw(&writer, endpoint);
        write_raw(&writer, request->tree ? "/api/" : "/");
        write_raw(&writer, model && !request->tree ? "" : repository.kind);
        write_raw(&writer, model && !request->tree ? "" : "/");
        write_encoded(&writer, repository.name, true);
        write_raw(&writer, request->tree ? "/tree/" : "/resolve/");
        write_encoded(&writer, repository.revision, false);
        write_raw(&writer, request->key[0] ? "/" : "");
        write_encoded(&writer, request->key, true);
        if (writer.fits && request->tree && request->buffer[request->buffer_used - 1] == '/') {
            request->buffer_used--; /* the URL of a folder has no trailing slash */
        }
        write_raw(&writer, request->tree && request->deep ? "?recursive=true" : "");
    }
    request->buffer_used += writer.fits; /* the NUL */
    if (writer.fits && request->credentials->kind == STK_CREDS_BEARER) {
        stk_provider_request_add_bearer(request);
        writer.fits = request->headers_out_count > 0;
    }
    request->url = writer.fits && request->buffer_used <= request->buffer_bytes ? url : NULL;
    return 0;
}

static bool is_hex(const char *text, size_t digits)
{
    return text && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

/* The oid of a large file is that of its pointer, which contains the oid of the file. */
static const char *hash_of(const json_t *item)
{
    const json_t *lfs = json_object_get(item, "lfs");
    const char *own = json_string_value(json_object_get(json_is_object(lfs) ? lfs : item, "oid"));

    return is_hex(own, json_is_object(lfs) ? 64 : 40) ? own : NULL;
}

int stk_hf_tree_parse(struct stk_view page,
                      int (*found)(void *owner, const struct stk_hf_entry *entry), void *owner)
{
    json_t *root = json_loadb((const char *)page.data, page.bytes, JSON_REJECT_DUPLICATES, NULL);
    size_t count = json_array_size(root);
    int status = json_is_array(root) ? 0 : STOKER_ERROR_FORMAT;

    for (size_t i = 0; status == 0 && i < count; i++) {
        const json_t *item = json_array_get(root, i);
        const char *type = json_string_value(json_object_get(item, "type"));
        const json_t *size = json_object_get(item, "size");
        json_int_t bytes = json_integer_value(size);
        struct stk_hf_entry entry = {
            .path = json_string_value(json_object_get(item, "path")),
            .folder = type && strcmp(type, "directory") == 0,
            .bytes = bytes > 0 ? (uint64_t)bytes : 0,
            .hash = hash_of(item),
        };
        if (!entry.path || !type || strlen(entry.path) >= PATH_BYTES ||
            (!entry.folder && (!json_is_integer(size) || bytes < 0))) {
            status = STOKER_ERROR_FORMAT;
        } else {
            status = found(owner, &entry);
        }
    }
    json_decref(root);
    return status < 0 ? status : 0;
}

static bool is_next(const char *text, size_t bytes)
{
    static const char *const words[] = {"rel=\"next\"", "rel=next"};

    for (size_t at = 0; at < bytes; at++) {
        for (size_t i = 0; i < STK_COUNT(words); i++) {
            size_t word = strlen(words[i]), end = at + word;

            if (end <= bytes && strncasecmp(text + at, words[i], word) == 0 &&
                (end == bytes || strchr("; \t", text[end]))) {
                return true;
            }
        }
    }
    return false;
}

int stk_hf_next_page(struct stk_view link, char *url, size_t url_bytes)
{
    const char *text = (const char *)link.data, *end = text + link.bytes;

    while (text < end) {
        const char *open = memchr(text, '<', (size_t)(end - text));
        const char *close = open ? memchr(open, '>', (size_t)(end - open)) : NULL;
        const char *comma;
        size_t bytes;
        if (!close) {
            return is_next(text, (size_t)(end - text)) ? STOKER_ERROR_CORRUPT : 0;
        }
        comma = memchr(close, ',', (size_t)(end - close));
        comma = comma ? comma : end;
        bytes = (size_t)(close - open) - 1;
        if (is_next(close, (size_t)(comma - close))) {
            if (bytes == 0 || bytes >= url_bytes || memchr(open + 1, 0, bytes)) {
                return STOKER_ERROR_CORRUPT;
            }
            memcpy(url, open + 1, bytes);
            url[bytes] = 0;
            return 1;
        }
        text = comma + (comma < end);
    }
    return 0;
}
