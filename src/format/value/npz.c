/* NumPy's .npz: a zip of .npy files. Only the parts of a zip (PKWARE's APPNOTE.TXT 6.3) that
 * savez writes are read: the central directory at the end, members that are stored or deflated. One
 * member is decompressed, so zip bombs by overlapping members have no effect. */
#include "format/value/value_private.h"

#include "base/byte_order.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define END_BYTES 22u      /* end of central directory record, without its comment */
#define COMMENT_MAX 65535u /* may follow it */
#define CENTRAL_BYTES 46u  /* central file header, without name, extra and comment */
#define LOCAL_BYTES 30u    /* local file header, likewise */
#define RATIO_FREE 4096u   /* a decompressed size that is always allowed */
#define ZIP64_ID 1u        /* of an extra field */
#define NAMES_MAX 120u     /* of names listed in an error */

enum { STORED = 0, DEFLATED = 8 };
enum { FLAG_ENCRYPTED = 1 };

/* One entry of the central directory. */
struct entry {
    struct stk_view name, extra;
    uint32_t flags, method, crc;
    uint64_t packed_bytes, bytes, offset;
};

static uint64_t word64(const uint8_t *bytes)
{
    return stk_little32(bytes) | (uint64_t)stk_little32(bytes + 4) << 32;
}

static int damaged(struct stoker_error *error, uint64_t offset, const char *detail)
{
    int status =
        stk_fail(error, STOKER_ERROR_CORRUPT, "the npz is damaged", STK_VALUE_ADVICE, "%s", detail);

    if (error) {
        error->offset = offset;
    }
    return status;
}

/* The record at the end: searched backwards, since a comment of any length may follow it. */
static const uint8_t *find_end(struct stk_view bytes)
{
    uint64_t last, first;

    if (bytes.bytes < END_BYTES) {
        return NULL;
    }
    last = bytes.bytes - END_BYTES;
    first = last > COMMENT_MAX ? last - COMMENT_MAX : 0;
    for (uint64_t at = last + 1; at > first; at--) {
        const uint8_t *end = bytes.data + at - 1;

        if (memcmp(end, "PK\5\6", 4) == 0 && stk_little16(end + 20) == last - (at - 1)) {
            return end;
        }
    }
    return NULL;
}

/* Sizes of 2^32 - 1 stand in an extra field, in this order, those that are needed only. */
static bool read_zip64(struct entry *entry)
{
    uint64_t *wide[] = {&entry->bytes, &entry->packed_bytes, &entry->offset};
    uint64_t at = 0, field_bytes, used = 4;

    while (at + 4 <= entry->extra.bytes && stk_little16(entry->extra.data + at) != ZIP64_ID) {
        at += 4 + stk_little16(entry->extra.data + at + 2);
    }
    field_bytes = at + 4 <= entry->extra.bytes ? 4 + stk_little16(entry->extra.data + at + 2) : 0;
    field_bytes = stk_min(field_bytes, at < entry->extra.bytes ? entry->extra.bytes - at : 0);
    for (size_t i = 0; i < STK_COUNT(wide); i++) {
        if (*wide[i] != UINT32_MAX) {
            continue;
        }
        if (used + 8 > field_bytes) {
            return false;
        }
        *wide[i] = word64(entry->extra.data + at + used);
        used += 8;
    }
    return true;
}

/* The entry at *at, which moves after it. */
static int read_entry(struct stk_view directory, uint64_t *at, struct entry *entry,
                      struct stoker_error *error)
{
    const uint8_t *header = directory.data + *at;
    uint64_t name_bytes, extra_bytes, entry_bytes;

    if (directory.bytes - *at < CENTRAL_BYTES || memcmp(header, "PK\1\2", 4) != 0) {
        return damaged(error, STOKER_NO_OFFSET, "its directory ends too early");
    }
    name_bytes = stk_little16(header + 28);
    extra_bytes = stk_little16(header + 30);
    entry_bytes = CENTRAL_BYTES + name_bytes + extra_bytes + stk_little16(header + 32);
    if (directory.bytes - *at < entry_bytes) {
        return damaged(error, STOKER_NO_OFFSET, "its directory ends too early");
    }
    *entry = (struct entry){
        .name = {header + CENTRAL_BYTES, name_bytes},
        .extra = {header + CENTRAL_BYTES + name_bytes, extra_bytes},
        .flags = stk_little16(header + 8),
        .method = stk_little16(header + 10),
        .crc = stk_little32(header + 16),
        .packed_bytes = stk_little32(header + 20),
        .bytes = stk_little32(header + 24),
        .offset = stk_little32(header + 42),
    };
    *at += entry_bytes;
    return read_zip64(entry) ? 0 : damaged(error, STOKER_NO_OFFSET, "a size is missing");
}

/* "a" and "a.npy" name the member "a.npy"; no name: any. */
static bool is_named(const struct entry *entry, const char *name)
{
    size_t bytes = strlen(name);

    if (bytes == 0) {
        return true;
    }
    if (entry->name.bytes < bytes || memcmp(entry->name.data, name, bytes) != 0) {
        return false;
    }
    return entry->name.bytes == bytes ||
           (entry->name.bytes == bytes + 4 && memcmp(entry->name.data + bytes, ".npy", 4) == 0);
}

static int missing(const char *name, const char *names, struct stoker_error *error)
{
    if (name[0]) {
        return stk_fail(error, STOKER_ERROR_MISSING, "the npz has no such array",
                        "name one that it has, as in 'npz:tokens'", "'%s'; it has %s", name,
                        names[0] ? names : "none");
    }
    return stk_fail(error, STOKER_ERROR_MISSING, "the npz does not hold exactly one array",
                    "name the array, as in 'npz:tokens'", "it has %s", names[0] ? names : "none");
}

/* Sets the offset of the compressed bytes: the local header has its own name and extra field. */
static int locate(struct stk_view bytes, const struct entry *entry, struct stk_npz_member *member,
                  struct stoker_error *error)
{
    uint64_t begin;

    if (entry->offset > bytes.bytes || bytes.bytes - entry->offset < LOCAL_BYTES ||
        memcmp(bytes.data + entry->offset, "PK\3\4", 4) != 0) {
        return damaged(error, entry->offset, "an array's header is not where it should be");
    }
    begin = entry->offset + LOCAL_BYTES + stk_little16(bytes.data + entry->offset + 26) +
            stk_little16(bytes.data + entry->offset + 28);
    if (begin > bytes.bytes || bytes.bytes - begin < entry->packed_bytes) {
        return damaged(error, entry->offset, "an array reaches past the end");
    }
    if ((entry->flags & FLAG_ENCRYPTED) || (entry->method != STORED && entry->method != DEFLATED)) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "an npz uses an unsupported compression",
                        "save it with numpy.savez or savez_compressed", "method %u, flags %u",
                        entry->method, entry->flags);
    }
    if (entry->method == STORED && entry->bytes != entry->packed_bytes) {
        return damaged(error, entry->offset, "a stored array has two sizes");
    }
    if (entry->bytes > RATIO_FREE && entry->bytes / STK_NPZ_RATIO_MAX > entry->packed_bytes) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an npz states a size that is too large",
                        STK_VALUE_ADVICE, "%llu bytes from %llu", (unsigned long long)entry->bytes,
                        (unsigned long long)entry->packed_bytes);
    }
    *member = (struct stk_npz_member){
        {bytes.data + begin, entry->packed_bytes}, entry->bytes, entry->method, entry->crc};
    return 0;
}

int stk_npz_find(struct stk_npz_member *member, struct stk_view bytes, const char *name,
                 struct stoker_error *error)
{
    const uint8_t *end = find_end(bytes);
    struct stk_view directory;
    struct entry entry, found = {0};
    char names[NAMES_MAX] = "";
    uint64_t at = 0, matches = 0, used = 0;

    if (!end) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "this is not an npz archive, or it is cut off",
                        "save it with numpy.savez", "%zu bytes", bytes.bytes);
    }
    if (stk_little16(end + 10) == UINT16_MAX || stk_little32(end + 12) == UINT32_MAX ||
        stk_little32(end + 16) == UINT32_MAX) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "an npz is too large to be read",
                        "save it as several", "%zu bytes", bytes.bytes);
    }
    directory = (struct stk_view){bytes.data + stk_little32(end + 16), stk_little32(end + 12)};
    if (stk_little32(end + 16) > bytes.bytes ||
        directory.bytes > (uint64_t)(end - bytes.data) -
                              stk_min(stk_little32(end + 16), (uint64_t)(end - bytes.data))) {
        return damaged(error, (uint64_t)(end - bytes.data), "its directory is not there");
    }
    /* If a name comes twice, the last one counts, as in Python's zipfile. */
    for (uint32_t i = 0; i < stk_little16(end + 10); i++) {
        int status = read_entry(directory, &at, &entry, error);

        if (status < 0) {
            return status;
        }
        if (is_named(&entry, name)) {
            found = entry;
            matches++;
        }
        if (used < sizeof names - 1) {
            used += (uint64_t)snprintf(names + used, sizeof names - used, "%s'%.*s'", i ? ", " : "",
                                       (int)stk_min(entry.name.bytes, 64),
                                       (const char *)entry.name.data);
        }
    }
    if (matches == 0 || (matches > 1 && !name[0])) {
        return missing(name, names, error);
    }
    return locate(bytes, &found, member, error);
}

static void *alloc_zlib(void *unused, unsigned count, unsigned bytes)
{
    (void)unused;
    return stk_alloc(count, bytes);
}

static void free_zlib(void *unused, void *block)
{
    (void)unused;
    stk_free(block);
}

/* Raw deflate; exactly the bytes that the directory promised. */
static int inflate_all(const struct stk_npz_member *member, uint8_t *out,
                       struct stoker_error *error)
{
    z_stream stream = {.zalloc = alloc_zlib, .zfree = free_zlib};
    uint64_t in = 0, made = 0;
    int code = inflateInit2(&stream, -MAX_WBITS);

    if (code != Z_OK) {
        return stk_fail_errno(error, 12, "cannot decompress an npz", "free memory", "inflate");
    }
    while (code == Z_OK) { /* zlib counts in 32 bits */
        uint32_t chunk = (uint32_t)stk_min(member->packed.bytes - in, 1u << 30);
        uint32_t room = (uint32_t)stk_min(member->bytes - made, 1u << 30);
        uint8_t none = 0;

        stream.next_in = (Bytef *)(uintptr_t)(member->packed.data + in); /* read only */
        stream.avail_in = chunk;
        stream.next_out = room ? out + made : &none;
        stream.avail_out = room;
        code = inflate(&stream, Z_NO_FLUSH);
        in += chunk - stream.avail_in;
        made += room - stream.avail_out;
    }
    inflateEnd(&stream);
    if (code == Z_MEM_ERROR) {
        return stk_fail_errno(error, 12, "cannot decompress an npz", "free memory", "inflate");
    }
    return code == Z_STREAM_END && made == member->bytes
               ? 0
               : damaged(error, STOKER_NO_OFFSET, "an array does not decompress to its size");
}

int stk_npz_inflate(const struct stk_npz_member *member, uint8_t *out, struct stoker_error *error)
{
    uLong crc = crc32(0, NULL, 0);
    int status = 0;

    if (member->method == STORED) {
        memcpy(out, member->packed.data, member->bytes);
    } else {
        status = inflate_all(member, out, error);
    }
    if (status == 0) {
        crc = crc32_z(crc, out, member->bytes);
        status = (uint32_t)crc == member->crc
                     ? 0
                     : damaged(error, STOKER_NO_OFFSET, "an array's checksum is wrong");
    }
    return status;
}
