/* Serves files as objects. The ETag is computed from size, time and inode, so it changes with the
 * file. */
#include "programs/fault_proxy/fault_folder.h"

#include "base/compare.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096u
#define ETAG_BYTES 64
#define DEPTH_MAX 32u
#define FOUND_MAX 100000u /* keys below a bucket */

struct range {
    uint64_t first, last; /* both included */
    bool given;
};

/* Keys below a bucket, found in any order. */
struct found {
    char **keys;
    size_t count, capacity;
    int status;
};

static int open_beneath(int folder, const char *path, int flags);
static bool decode_path(const char *path, char out[PATH_BYTES_MAX]);
static int parse_range(struct stk_view value, uint64_t bytes, struct range *range_out);
static int answer_file(struct stk_fault_answer *answer, struct stk_fault_folder_body *body_out,
                       int file, const struct stk_fault_head *head);
static int answer_list(struct stk_fault_answer *answer, int folder, const char *bucket,
                       const char *query);
static void list_folder(struct found *found, int folder, const char *below, unsigned depth);

int stk_fault_folder_answer(struct stk_fault_answer *answer, struct stk_fault_folder_body *body_out,
                            int folder, const struct stk_fault_head *head,
                            const struct stk_fault_request *request)
{
    bool to_head = strcmp(request->method, "HEAD") == 0;
    char path[PATH_BYTES_MAX];
    int file;

    *body_out = (struct stk_fault_folder_body){.file = -1};
    if (!to_head && strcmp(request->method, "GET") != 0) {
        return stk_fault_answer_error(answer, 405, "MethodNotAllowed", "A folder is only read",
                                      to_head);
    }
    if (!decode_path(request->path, path)) {
        return stk_fault_answer_error(answer, 400, "InvalidURI", "The path cannot be read",
                                      to_head);
    }
    if (strstr(request->query, "list-type=2")) {
        return answer_list(answer, folder, path, request->query);
    }
    file = open_beneath(folder, path, O_RDONLY | O_NONBLOCK);
    if (file < 0) {
        return errno == EACCES || errno == EXDEV || errno == ELOOP
                   ? stk_fault_answer_error(answer, 403, "AccessDenied", "Not readable", to_head)
                   : stk_fault_answer_error(answer, 404, "NoSuchKey", "Not found", to_head);
    }
    return answer_file(answer, body_out, file, head);
}

static int open_beneath(int folder, const char *path, int flags)
{
    struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};

    while (*path == '/') {
        path++;
    }
    return (int)syscall(SYS_openat2, folder, *path ? path : ".", &how, sizeof how);
}

static int hexadecimal(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;

    return at ? (int)(at - digits) : -1;
}

static bool decode_path(const char *path, char out[PATH_BYTES_MAX])
{
    size_t used = 0;

    while (*path && used + 1 < PATH_BYTES_MAX) {
        if (*path == '%') {
            int high = hexadecimal(path[1]), low = high < 0 ? -1 : hexadecimal(path[2]);
            if (low < 0 || high * 16 + low == 0) {
                return false;
            }
            out[used++] = (char)(high * 16 + low);
            path += 3;
        } else {
            out[used++] = *path++;
        }
    }
    out[used] = 0;
    return *path == 0;
}

/* Parses one range (RFC 9110, 14.1.2). Returns 1 (206), 0 (no range, or one to ignore), or -1
 * (416). */
static int parse_range(struct stk_view value, uint64_t bytes, struct range *range_out)
{
    const uint8_t *dash;
    struct stk_view from, to;
    uint64_t first = 0, last = 0;

    *range_out = (struct range){.last = bytes ? bytes - 1 : 0};
    if (value.bytes < 7 || memcmp(value.data, "bytes=", 6) != 0 ||
        memchr(value.data, ',', value.bytes)) {
        return 0;
    }
    dash = memchr(value.data, '-', value.bytes);
    if (!dash) {
        return 0;
    }
    from = (struct stk_view){value.data + 6, (size_t)(dash - value.data) - 6};
    to = (struct stk_view){dash + 1, value.bytes - (size_t)(dash - value.data) - 1};
    if ((from.bytes && !stk_fault_number(from, &first)) ||
        (to.bytes && !stk_fault_number(to, &last)) || from.bytes + to.bytes == 0) {
        return 0;
    }
    if (from.bytes == 0) { /* the last bytes */
        first = last < bytes ? bytes - last : 0;
        last = last == 0 ? UINT64_MAX : bytes - 1;
        first = last == UINT64_MAX ? UINT64_MAX : first;
    } else if (to.bytes == 0) {
        last = UINT64_MAX;
    } else if (last < first) {
        return 0;
    }
    if (first >= bytes) {
        return -1;
    }
    *range_out = (struct range){first, stk_min(last, bytes - 1), true};
    return 1;
}

static int answer_file(struct stk_fault_answer *answer, struct stk_fault_folder_body *body_out,
                       int file, const struct stk_fault_head *head)
{
    bool to_head = stk_fault_view_equals(head->method, "HEAD");
    struct stk_view wanted = stk_fault_header(head, "if-match");
    struct stk_fault_text *text = &answer->text;
    struct range range = {0};
    struct stat stat = {0};
    char etag[ETAG_BYTES];
    int kind;

    if (fstat(file, &stat) < 0 || !S_ISREG(stat.st_mode)) {
        close(file);
        return stk_fault_answer_error(answer, 404, "NoSuchKey", "It is no file", to_head);
    }
    snprintf(etag, sizeof etag, "\"%llx-%llx-%llx\"", (unsigned long long)stat.st_size,
             (unsigned long long)stat.st_mtim.tv_sec * 1000000000 +
                 (unsigned long long)stat.st_mtim.tv_nsec,
             (unsigned long long)stat.st_ino);
    if (wanted.bytes && !stk_fault_view_equals(wanted, etag) &&
        !stk_fault_view_equals(wanted, "*")) {
        close(file);
        return stk_fault_answer_error(answer, 412, "PreconditionFailed", "It is another", to_head);
    }
    kind = parse_range(stk_fault_header(head, "range"), (uint64_t)stat.st_size, &range);
    if (kind < 0) {
        close(file);
        return stk_fault_answer_error(answer, 416, "InvalidRange", "It is shorter", to_head);
    }
    *answer = (struct stk_fault_answer){.status = kind > 0 ? 206 : 200};
    *body_out = (struct stk_fault_folder_body){file, range.first,
                                               stat.st_size ? range.last - range.first + 1 : 0};
    stk_fault_text_add(text, "HTTP/1.1 %u %s\r\nServer: stoker-fault\r\nETag: %s\r\n",
                       answer->status, kind > 0 ? "Partial Content" : "OK", etag);
    stk_fault_text_add(text, "Accept-Ranges: bytes\r\nContent-Type: application/octet-stream\r\n");
    if (kind > 0) {
        stk_fault_text_add(text, "Content-Range: bytes %llu-%llu/%llu\r\n",
                           (unsigned long long)range.first, (unsigned long long)range.last,
                           (unsigned long long)stat.st_size);
    }
    stk_fault_text_add(text, "Content-Length: %llu\r\n\r\n", (unsigned long long)body_out->bytes);
    answer->head_bytes = text->bytes;
    if (to_head || text->failed) {
        close(file);
        *body_out = (struct stk_fault_folder_body){.file = -1};
    }
    return text->failed ? -ENOMEM : 0;
}

/* ---- lists ---- */

/* Returns the decoded value of a name in a query; empty if absent. */
static void query_value(const char *query, const char *name, char out[PATH_BYTES_MAX])
{
    size_t bytes = strlen(name);
    char raw[PATH_BYTES_MAX];

    out[0] = 0;
    for (const char *at = query; at; at = strchr(at, '&')) {
        at += *at == '&';
        if (strncmp(at, name, bytes) == 0 && at[bytes] == '=') {
            snprintf(raw, sizeof raw, "%.*s", (int)strcspn(at + bytes + 1, "&"), at + bytes + 1);
            for (char *plus = strchr(raw, '+'); plus; plus = strchr(plus, '+')) {
                *plus = ' ';
            }
            if (!decode_path(raw, out)) {
                out[0] = 0;
            }
            return;
        }
    }
}

/* Appends a key escaped for XML, or percent-encoded if the client requested it. */
static void add_key(struct stk_fault_text *text, const char *key, size_t bytes, bool encoded)
{
    for (size_t i = 0; i < bytes; i++) {
        uint8_t c = (uint8_t)key[i];
        bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
                     (c && strchr("-_.~/", c));
        if (plain) {
            stk_fault_text_bytes(text, &c, 1);
        } else if (encoded) {
            stk_fault_text_add(text, "%%%02X", c);
        } else if (c >= 0x80 || (c >= ' ' && !strchr("<>&\"", c))) {
            stk_fault_text_bytes(text, &c, 1);
        } else {
            stk_fault_text_add(text, "&#%u;", c);
        }
    }
}

struct page {
    char prefix[PATH_BYTES_MAX], delimiter[PATH_BYTES_MAX], after[PATH_BYTES_MAX];
    char last[PATH_BYTES_MAX]; /* last key of the page */
    uint64_t keys_max, count;
    bool encoded, more;
};

/* Returns the length of the key's common prefix; 0: none. */
static size_t common(const struct page *page, const char *key)
{
    const char *at =
        page->delimiter[0] ? strstr(key + strlen(page->prefix), page->delimiter) : NULL;

    return at ? (size_t)(at - key) + strlen(page->delimiter) : 0;
}

static void add_entry(struct stk_fault_text *text, struct page *page, int bucket, const char *key)
{
    struct stat stat = {0};
    size_t folder, bytes;

    if (strncmp(key, page->prefix, strlen(page->prefix)) != 0 || strcmp(key, page->after) <= 0) {
        return;
    }
    folder = common(page, key);
    bytes = folder ? folder : strlen(key);
    if (folder &&
        (strncmp(key, page->last, folder) == 0 || strncmp(key, page->after, folder) == 0)) {
        return; /* already listed */
    }
    if (page->count == page->keys_max) {
        page->more = true;
        return;
    }
    page->count++;
    snprintf(page->last, sizeof page->last, "%.*s", (int)bytes, key);
    stk_fault_text_add(text, folder ? "<CommonPrefixes><Prefix>" : "<Contents><Key>");
    add_key(text, key, bytes, page->encoded);
    if (folder) {
        stk_fault_text_add(text, "</Prefix></CommonPrefixes>");
        return;
    }
    fstatat(bucket, key, &stat, AT_SYMLINK_NOFOLLOW);
    stk_fault_text_add(text,
                       "</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;"
                       "%llx-%llx-%llx&quot;</ETag><Size>%llu</Size>"
                       "<StorageClass>STANDARD</StorageClass></Contents>",
                       (unsigned long long)stat.st_size,
                       (unsigned long long)stat.st_mtim.tv_sec * 1000000000 +
                           (unsigned long long)stat.st_mtim.tv_nsec,
                       (unsigned long long)stat.st_ino, (unsigned long long)stat.st_size);
}

/* name: the bucket, and the rest of the path. */
static void list_text(struct stk_fault_text *body, struct page *page, const char *name, int bucket,
                      const struct found *found, const char *query)
{
    char value[PATH_BYTES_MAX];
    struct stk_fault_text entries = {0};

    query_value(query, "prefix", page->prefix);
    query_value(query, "delimiter", page->delimiter);
    query_value(query, "start-after", page->after);
    query_value(query, "continuation-token", value);
    if (value[0]) {
        memcpy(page->after, value, sizeof value);
    }
    query_value(query, "encoding-type", value);
    page->encoded = strcmp(value, "url") == 0;
    query_value(query, "max-keys", value);
    if (!stk_fault_number((struct stk_view){(uint8_t *)value, strlen(value)}, &page->keys_max) ||
        page->keys_max > STK_FAULT_FOLDER_KEYS_MAX) {
        page->keys_max = STK_FAULT_FOLDER_KEYS_MAX;
    }
    for (size_t i = 0; i < found->count && !page->more; i++) {
        add_entry(&entries, page, bucket, found->keys[i]);
    }
    stk_fault_text_add(body, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult "
                             "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>");
    add_key(body, name, strcspn(name, "/"), false);
    stk_fault_text_add(body, "</Name><Prefix>");
    add_key(body, page->prefix, strlen(page->prefix), page->encoded);
    stk_fault_text_add(body, "</Prefix><KeyCount>%llu</KeyCount>%s<IsTruncated>%s</IsTruncated>",
                       (unsigned long long)page->count,
                       page->encoded ? "<EncodingType>url</EncodingType>" : "",
                       page->more ? "true" : "false");
    if (page->more) {
        stk_fault_text_add(body, "<NextContinuationToken>");
        add_key(body, page->last, strlen(page->last), false);
        stk_fault_text_add(body, "</NextContinuationToken>");
    }
    stk_fault_text_bytes(body, entries.data ? entries.data : "", entries.bytes);
    stk_fault_text_add(body, "</ListBucketResult>");
    body->failed = body->failed || entries.failed;
    stk_fault_text_deinit(&entries);
}

static int answer_list(struct stk_fault_answer *answer, int folder, const char *bucket,
                       const char *query)
{
    int top = open_beneath(folder, bucket, O_RDONLY | O_DIRECTORY);
    struct found found = {0};
    struct stk_fault_text body = {0};
    struct page *page = stk_alloc(1, sizeof *page);
    int status;

    if (top < 0 || !page) {
        status = page ? stk_fault_answer_error(answer, 404, "NoSuchBucket", "Not found", false)
                      : -ENOMEM;
        goto done;
    }
    list_folder(&found, top, "", 0);
    qsort(found.keys, found.count, sizeof *found.keys, stk_compare_texts);
    list_text(&body, page, bucket + strspn(bucket, "/"), top, &found, query);
    status = body.failed || found.status < 0 ? -ENOMEM : 0;
    *answer = (struct stk_fault_answer){.status = 200};
    stk_fault_text_add(&answer->text,
                       "HTTP/1.1 200 OK\r\nServer: stoker-fault\r\n"
                       "Content-Type: application/xml\r\nContent-Length: %zu\r\n\r\n",
                       body.bytes);
    answer->head_bytes = answer->text.bytes;
    stk_fault_text_bytes(&answer->text, body.data ? body.data : "", body.bytes);
    status = answer->text.failed ? -ENOMEM : status;

done:
    for (size_t i = 0; i < found.count; i++) {
        stk_free(found.keys[i]);
    }
    stk_free(found.keys);
    stk_fault_text_deinit(&body);
    stk_free(page);
    if (top >= 0) {
        close(top);
    }
    return status;
}

static void keep_entry(struct found *found, const char *below, const char *name)
{
    char key[PATH_BYTES_MAX];

    if (found->count == found->capacity) {
        size_t capacity = found->capacity * 2 + 64;
        char **keys = found->count < FOUND_MAX
                          ? stk_realloc(found->keys, found->count, capacity, sizeof *keys)
                          : NULL;
        if (!keys) {
            found->status = -ENOMEM;
            return;
        }
        found->keys = keys;
        found->capacity = capacity;
    }
    snprintf(key, sizeof key, "%s%s", below, name);
    found->keys[found->count] = stk_strdup(key);
    found->count += found->keys[found->count] != NULL;
}

/* Finds files in all folders below; skips names that are too long and folders that are too deep. */
static void list_folder(struct found *found, int folder, const char *below, unsigned depth)
{
    int again = open_beneath(folder, below[0] ? below : ".", O_RDONLY | O_DIRECTORY);
    DIR *directory = again < 0 ? NULL : fdopendir(again);
    const struct dirent *entry;
    char deeper[PATH_BYTES_MAX];

    if (!directory) {
        if (again >= 0) {
            close(again);
        }
        return;
    }
    while (found->status == 0 && (entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            strlen(below) + strlen(entry->d_name) + 2 > sizeof deeper) {
            continue;
        }
        if (entry->d_type == DT_REG) {
            keep_entry(found, below, entry->d_name);
        } else if (entry->d_type == DT_DIR && depth < DEPTH_MAX) {
            snprintf(deeper, sizeof deeper, "%s%s/", below, entry->d_name);
            list_folder(found, folder, deeper, depth + 1);
        }
    }
    closedir(directory);
}
