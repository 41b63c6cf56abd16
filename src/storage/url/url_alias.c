/* The queries and logins of aliases: logins by host, queries by the hash of an alias. */
#include "storage/url/url_alias.h"

#include "base/crypto/digest.h"
#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "base/text/text_match.h"
#include "storage/url/url_redact.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A query, in hidden memory; a signature is the same for many names, which follow each other. */
struct query {
    uint64_t users, generation; /* in whose bytes it is counted */
    size_t bytes;
    char text[];
};

struct slot {
    uint64_t hash[2]; /* of a name; zeros: free */
    struct query *query;
};

/* Names that were used since the last turn. */
struct table {
    struct slot *slots;
    uint64_t capacity, count, bytes;
};

/* "http://~5f0c...@host": the login with which its aliases are resolved. In secret memory. */
struct login {
    uint64_t used;
    size_t bytes; /* of the host */
    char *word;   /* encoded */
    char host[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    struct table young, old;
    uint64_t generation; /* of the young one */
    struct query *last;
    struct login *logins[STK_URL_ALIAS_LOGINS_MAX];
    uint32_t login_count;
    uint64_t turn, bytes_max;
} locked = {.bytes_max = STK_URL_ALIAS_BYTES_MAX};

static void acquire_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void release_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* Behind those of hidden memory: its lock is taken with ours, so before a fork ours is taken first,
 * which is the reverse order of the calls. */
static void register_fork_handlers(void)
{
    stk_secret_free(stk_secret_alloc(1));
    pthread_atfork(acquire_lock, release_lock, release_lock);
}

static void hash_of(struct stk_view name, uint64_t hash[2])
{
    uint64_t digest[4];
    struct stk_sha256 sha;

    stk_sha256_init(&sha);
    stk_sha256_add(&sha, name.data, name.bytes);
    stk_sha256_done(&sha, (uint8_t *)digest);
    hash[0] = digest[0];
    hash[1] = digest[1] | 1;
}

static struct slot *find_slot(const struct table *table, const uint64_t hash[2])
{
    for (uint64_t at = hash[0];; at++) {
        struct slot *slot = &table->slots[at & (table->capacity - 1)];

        if (!slot->query || (slot->hash[0] == hash[0] && slot->hash[1] == hash[1])) {
            return slot;
        }
    }
}

static void free_query(struct query *query)
{
    if (query && --query->users == 0) {
        stk_secret_free(query);
    }
}

static void free_table(struct table *table)
{
    for (uint64_t i = 0; i < table->capacity; i++) {
        free_query(table->slots[i].query);
    }
    stk_secret_free(table->slots);
    *table = (struct table){.slots = NULL};
}

static int grow(struct table *table)
{
    struct table grown = *table;

    grown.capacity = stk_max(64, 2 * table->capacity);
    grown.slots = stk_secret_calloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < table->capacity; i++) {
        if (table->slots[i].query) {
            *find_slot(&grown, table->slots[i].hash) = table->slots[i];
        }
    }
    stk_secret_free(table->slots);
    *table = grown;
    return 0;
}

/* The alias resolves to the query; its entry in the table holds a reference. */
static int put_locked(const uint64_t hash[2], struct query *query)
{
    struct slot *slot;

    if (locked.young.count >= STK_URL_ALIAS_COUNT_MAX || locked.young.bytes >= locked.bytes_max) {
        free_table(&locked.old);
        locked.old = locked.young;
        locked.young = (struct table){.slots = NULL};
        locked.generation++;
    }
    if (2 * (locked.young.count + 1) > locked.young.capacity && grow(&locked.young) < 0) {
        return -ENOMEM;
    }
    slot = find_slot(&locked.young, hash);
    if (slot->query == query) {
        return 0;
    }
    query->users++;
    locked.young.count += slot->query == NULL;
    locked.young.bytes += query->generation == locked.generation ? 0 : query->bytes;
    query->generation = locked.generation;
    free_query(slot->query);
    *slot = (struct slot){{hash[0], hash[1]}, query};
    return 0;
}

static struct query *find_locked(const uint64_t hash[2])
{
    struct query *query = NULL;

    if (locked.young.capacity) {
        query = find_slot(&locked.young, hash)->query;
    }
    if (!query && locked.old.capacity) {
        query = find_slot(&locked.old, hash)->query;
        if (query) {
            query->users++; /* the old table may go when it moves */
            put_locked(hash, query);
            query->users--;
        }
    }
    return query;
}

/* "http://host/a" of a URL that is split, without the parts of a chain around it. */
static struct stk_view host_and_path(const struct stk_url_parts *parts)
{
    const uint8_t *at = parts->head.data + parts->head.bytes - strlen("://");

    while (at > parts->head.data && at[-1] != ':') {
        at--;
    }
    return (struct stk_view){at, strlen((const char *)at) - parts->tail.bytes};
}

static int store_query(const char *name, struct stk_view text)
{
    struct stk_url_parts parts;
    struct query *query = NULL;
    uint64_t hash[2];
    int status;

    stk_url_split(name, &parts);
    hash_of(host_and_path(&parts), hash);
    pthread_mutex_lock(&lock);
    query = locked.last;
    if (!query || query->bytes != text.bytes || memcmp(query->text, text.data, text.bytes) != 0) {
        query = stk_secret_alloc(sizeof *query + text.bytes + 1);
        if (query) {
            query->bytes = text.bytes;
            query->generation = UINT64_MAX;
            memcpy(query->text, text.data, text.bytes);
        }
    }
    status = query ? put_locked(hash, query) : -ENOMEM;
    if (status == 0 && query != locked.last) {
        query->users++;
        free_query(locked.last);
        locked.last = query;
    } else if (query && query->users == 0) {
        stk_secret_free(query);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* Characters that libcurl would take for the end of a password are encoded; encoded ones stay. */
static void encode_login(struct stk_view login, char *to)
{
    static const char digits[] = "0123456789ABCDEF", plain[] = "-._~!$&'()*+,;=:%";

    for (size_t i = 0; i < login.bytes; i++) {
        uint8_t byte = login.data[i];
        bool letter = (byte >= '0' && byte <= '9') || ((byte | 32) >= 'a' && (byte | 32) <= 'z');

        if (letter || (byte && strchr(plain, byte))) {
            *to++ = (char)byte;
        } else {
            *to++ = '%';
            *to++ = digits[byte >> 4];
            *to++ = digits[byte & 15];
        }
    }
    *to = '\0';
}

static struct login *new_login(struct stk_view host, struct stk_view word)
{
    struct login *login = stk_secret_alloc(sizeof *login + host.bytes + 1);

    if (login) {
        memcpy(login->host, host.data, host.bytes);
        login->bytes = host.bytes;
        login->word = stk_secret_alloc(3 * word.bytes + 1);
    }
    if (login && !login->word) {
        stk_secret_free(login);
        return NULL;
    }
    if (login) {
        encode_login(word, login->word);
    }
    return login;
}

static struct login **find_login_locked(struct stk_view host)
{
    for (uint32_t i = 0; i < locked.login_count; i++) {
        struct login *login = locked.logins[i];

        if (login->bytes == host.bytes && memcmp(login->host, host.data, host.bytes) == 0) {
            login->used = ++locked.turn;
            return &locked.logins[i];
        }
    }
    return NULL;
}

/* Scheme, mark and host of a name that is split. */
static struct stk_view host_of(const struct stk_url_parts *parts)
{
    struct stk_view prefix = host_and_path(parts);
    const char *host = (const char *)parts->rest.data;
    size_t bytes = parts->rest.bytes;
    const char *slash = memchr(host, '/', bytes);

    prefix.bytes =
        (size_t)((const uint8_t *)host - prefix.data) + (slash ? (size_t)(slash - host) : bytes);
    return prefix;
}

/* A free entry, or the least recently used one. */
static struct login **find_free_login_locked(void)
{
    struct login **place = &locked.logins[0];

    if (locked.login_count < STK_URL_ALIAS_LOGINS_MAX) {
        return &locked.logins[locked.login_count++];
    }
    for (uint32_t i = 1; i < STK_URL_ALIAS_LOGINS_MAX; i++) {
        place = locked.logins[i]->used < (*place)->used ? &locked.logins[i] : place;
    }
    return place;
}

static int store_login(const char *name, struct stk_view word)
{
    struct stk_url_parts parts;
    struct login *login, **place;

    stk_url_split(name, &parts);
    login = new_login(host_of(&parts), word);
    if (!login) {
        return -ENOMEM;
    }
    pthread_mutex_lock(&lock);
    place = find_login_locked(host_of(&parts));
    place = place ? place : find_free_login_locked();
    if (*place) {
        stk_secret_free((*place)->word);
        stk_secret_free(*place);
    }
    login->used = ++locked.turn;
    *place = login;
    pthread_mutex_unlock(&lock);
    return 0;
}

uint64_t stk_url_alias_set_bytes_max(uint64_t bytes_max)
{
    uint64_t before;

    pthread_mutex_lock(&lock);
    before = locked.bytes_max;
    locked.bytes_max = bytes_max;
    pthread_mutex_unlock(&lock);
    return before;
}

/* Copies a text; of a URL of this machine, its path. */
static char *copy_text(const char *text)
{
    const char *rest = stk_text_skip_file_scheme(text);
    char *copy;

    if (rest == text || rest[0] != '/') {
        return stk_strdup(text);
    }
    copy = stk_strdup(rest);
    if (copy) {
        stk_url_decode_percent(copy);
    }
    return copy;
}

int stk_url_alias(const char *url, char **name_out)
{
    struct stk_url_parts parts;
    bool login = false, query = false;
    size_t bytes;
    char *name;
    int status = 0;

    *name_out = NULL;
    if (!stk_url_split(url, &parts)) {
        *name_out = copy_text(url);
        return *name_out ? 0 : -ENOMEM;
    }
    pthread_once(&once, register_fork_handlers);
    bytes = stk_url_redact_parts(&parts, NULL, 0, &login, &query);
    name = stk_alloc(bytes, 1);
    if (!name) {
        return -ENOMEM;
    }
    stk_url_redact_parts(&parts, name, bytes, &login, &query);
    status = login ? store_login(name, parts.login) : 0;
    status = status == 0 && query ? store_query(name, parts.query) : status;
    if (status < 0) {
        stk_free(name);
        return status;
    }
    *name_out = name;
    return 0;
}

static size_t append(char *to, size_t used, const void *data, size_t bytes)
{
    if (bytes > 0) {
        memcpy(to + used, data, bytes);
    }
    return used + bytes;
}

/* The name's own parts where there are no others. */
static int resolve_parts(const char *name, const struct stk_url_parts *parts, char **url_out)
{
    struct stk_view word = parts->login, text = parts->query;
    struct login **login = NULL;
    struct query *query;
    uint64_t hash[2];
    size_t used;
    char *url;

    hash_of(host_and_path(parts), hash);
    pthread_mutex_lock(&lock);
    if (word.data && (login = find_login_locked(host_of(parts))) != NULL) {
        word = (struct stk_view){(const uint8_t *)(*login)->word, strlen((*login)->word)};
    }
    query = find_locked(hash);
    if (query) {
        text = (struct stk_view){(const uint8_t *)query->text, query->bytes};
    }
    url = stk_secret_alloc(strlen(name) + word.bytes + text.bytes + 3);
    if (url) {
        used = append(url, 0, parts->head.data, parts->head.bytes);
        used = append(url, used, word.data, word.bytes);
        used = append(url, used, "@", word.data != NULL);
        used = append(url, used, parts->rest.data, parts->rest.bytes);
        used = append(url, used, "?", text.data != NULL);
        used = append(url, used, text.data, text.bytes);
        append(url, used, parts->tail.data, parts->tail.bytes);
    }
    pthread_mutex_unlock(&lock);
    *url_out = url;
    return url ? 0 : -ENOMEM;
}

int stk_url_resolve(const char *url, char **url_out)
{
    struct stk_url_parts parts;
    char *name = NULL;
    int status = 0;

    *url_out = NULL;
    if (!stk_url_split(url, &parts)) {
        *url_out = stk_secret_strdup(url);
        return *url_out ? 0 : -ENOMEM;
    }
    status = stk_url_alias(url, &name);
    if (status == 0) {
        stk_url_split(name, &parts);
        status = resolve_parts(name, &parts, url_out);
    }
    stk_free(name);
    return status;
}

int64_t stoker_url_alias(const char *url, char *name, size_t name_bytes)
{
    char *alias;
    int64_t bytes;

    if (!url || stk_url_alias(url, &alias) < 0) {
        return url ? -ENOMEM : STOKER_ERROR_ARGUMENT;
    }
    bytes = snprintf(name, name_bytes, "%s", alias);
    stk_free(alias);
    return bytes;
}
