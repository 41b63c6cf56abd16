/* Reads the directory of a zip archive. */
#include "checkpoint/foreign/zip_archive.h"

#include "base/byte_order.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define END_BYTES 22u
#define LOCATOR_BYTES 20u
#define END64_BYTES 56u
#define ENTRY_BYTES 46u
#define HEADER_BYTES 30u
#define COMMENT_BYTES_MAX 65535u
#define DAMAGED "copy the file again, or use another checkpoint"

static int fail(const char *what, const char *name, struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what, DAMAGED, "%s%.200s",
                    name ? "member " : "end of the archive", name ? name : "");
}

/* The place of the directory. */
struct place {
    uint64_t offset, bytes, count, end; /* end: the start of the records after it */
};

static int read_end64(struct stk_foreign_source *source, uint64_t end, struct place *place,
                      struct stoker_error *error)
{
    uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];
    uint64_t at;
    int status;

    if (end < LOCATOR_BYTES) {
        return 0;
    }
    status = stk_foreign_read(source, end - LOCATOR_BYTES, locator, sizeof locator, error);
    if (status < 0 || stk_little(locator, 4) != 0x07064b50) {
        return status;
    }
    at = stk_little(locator + 8, 8);
    if (at > end - LOCATOR_BYTES || end - LOCATOR_BYTES - at < END64_BYTES) {
        return fail("the directory of the archive lies outside of it", NULL, error);
    }
    status = stk_foreign_read(source, at, record, sizeof record, error);
    if (status < 0) {
        return status;
    }
    if (stk_little(record, 4) != 0x06064b50 ||
        stk_little(record + 24, 8) != stk_little(record + 32, 8)) {
        return fail("the end of the archive is damaged", NULL, error);
    }
    *place = (struct place){.count = stk_little(record + 32, 8),
                            .bytes = stk_little(record + 40, 8),
                            .offset = stk_little(record + 48, 8),
                            .end = at};
    return 0;
}

/* The end of central directory record: the last one whose comment fits. */
static int find_end(struct stk_foreign_source *source, uint64_t *end_out,
                    struct stoker_error *error)
{
    uint64_t most = stk_min(source->bytes, END_BYTES + COMMENT_BYTES_MAX);
    uint8_t *tail;
    int status;

    if (source->bytes < END_BYTES) {
        return fail("this is no zip archive", NULL, error);
    }
    tail = stk_alloc(most, 1);
    status = tail ? 0 : stk_fail_memory(error, "'%.400s'", source->path);
    /* torch writes no comment: mostly the first read is enough. */
    for (uint64_t bytes = END_BYTES; status == 0; bytes = most) {
        status = stk_foreign_read(source, source->bytes - bytes, tail, bytes, error);
        for (uint64_t i = bytes - END_BYTES + 1; status == 0 && i-- > 0;) {
            if (stk_little(tail + i, 4) == 0x06054b50 &&
                stk_little(tail + i + 20, 2) == bytes - i - END_BYTES) {
                *end_out = source->bytes - bytes + i;
                stk_free(tail);
                return 0;
            }
        }
        if (bytes == most) {
            break;
        }
    }
    stk_free(tail);
    return status < 0 ? status : fail("this is no zip archive, or its end is cut off", NULL, error);
}

static int find_directory(struct stk_foreign_source *source, struct place *place,
                          struct stoker_error *error)
{
    uint8_t record[END_BYTES];
    uint64_t end = 0;
    int status = find_end(source, &end, error);

    status = status < 0 ? status : stk_foreign_read(source, end, record, sizeof record, error);
    if (status < 0) {
        return status;
    }
    *place = (struct place){.count = stk_little(record + 10, 2),
                            .bytes = stk_little(record + 12, 4),
                            .offset = stk_little(record + 16, 4),
                            .end = end};
    if (stk_little(record + 4, 4) != 0 || stk_little(record + 8, 2) != place->count) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the archive has several parts",
                        "join them first", "'%.400s'", source->path);
    }
    status = read_end64(source, end, place, error);
    if (status < 0) {
        return status;
    }
    if (place->offset > place->end || place->bytes > place->end - place->offset ||
        place->bytes > STK_ZIP_ARCHIVE_DIRECTORY_BYTES_MAX ||
        place->count > place->bytes / ENTRY_BYTES) {
        return fail("the directory of the archive lies outside of it", NULL, error);
    }
    return 0;
}

/* The 64-bit numbers of an entry, for fields that are 0xffffffff. */
static bool read_extra(const uint8_t *extra, size_t bytes, uint64_t *const fields[3])
{
    bool needed = false;

    for (int i = 0; i < 3; i++) {
        needed = needed || *fields[i] == UINT32_MAX;
    }
    while (needed && bytes >= 4) {
        size_t part = (size_t)stk_little(extra + 2, 2);

        if (part > bytes - 4) {
            return false;
        }
        if (stk_little(extra, 2) == 1) {
            const uint8_t *at = extra + 4, *end = at + part;

            for (int i = 0; i < 3; i++) {
                if (*fields[i] == UINT32_MAX) {
                    if (end - at < 8) {
                        return false;
                    }
                    *fields[i] = stk_little(at, 8);
                    at += 8;
                }
            }
            return true;
        }
        extra += 4 + part;
        bytes -= 4 + part;
    }
    return !needed;
}

static int check_member(const uint8_t *entry, const struct stk_zip_archive_member *member,
                        uint64_t packed, struct stoker_error *error)
{
    uint64_t flags = stk_little(entry + 8, 2), method = stk_little(entry + 10, 2);

    if (flags & 1) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a member of the archive is encrypted",
                        "save the checkpoint without encryption", "member %.200s", member->name);
    }
    if (method != 0) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "a member of the archive is compressed",
                        "torch.save() stores members: unpack the archive and store it with zip -0",
                        "member %.200s, method %" PRIu64, member->name, method);
    }
    return packed == member->bytes ? 0 : fail("a stored member has two sizes", member->name, error);
}

/* Parses one entry. *at moves after it. */
static int parse_entry(struct stk_view directory, size_t *at, struct stk_zip_archive_member *member,
                       char **names, struct stoker_error *error)
{
    const uint8_t *entry = directory.data + *at;
    size_t left = directory.bytes - *at, name_bytes, extra_bytes, all;
    uint64_t packed;

    if (left < ENTRY_BYTES || stk_little(entry, 4) != 0x02014b50) {
        return fail("the directory of the archive is damaged", NULL, error);
    }
    name_bytes = (size_t)stk_little(entry + 28, 2);
    extra_bytes = (size_t)stk_little(entry + 30, 2);
    all = ENTRY_BYTES + name_bytes + extra_bytes + (size_t)stk_little(entry + 32, 2);
    if (all > left || name_bytes == 0 || memchr(entry + ENTRY_BYTES, 0, name_bytes)) {
        return fail("the directory of the archive is damaged", NULL, error);
    }
    member->crc = (uint32_t)stk_little(entry + 16, 4);
    packed = stk_little(entry + 20, 4);
    member->bytes = stk_little(entry + 24, 4);
    member->header = stk_little(entry + 42, 4);
    member->name = memcpy(*names, entry + ENTRY_BYTES, name_bytes);
    *names += name_bytes + 1;
    if (!read_extra(entry + ENTRY_BYTES + name_bytes, extra_bytes,
                    (uint64_t *const[3]){&member->bytes, &packed, &member->header})) {
        return fail("a size of a member is missing", member->name, error);
    }
    *at += all;
    return check_member(entry, member, packed, error);
}

static int by_header(const void *a, const void *b)
{
    const struct stk_zip_archive_member *x = a, *y = b;

    return x->header < y->header ? -1 : x->header > y->header;
}

static int by_name(const void *a, const void *b)
{
    const struct stk_zip_archive_member *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Each member must end before the next one begins. */
static int check_places(struct stk_zip_archive *archive, uint64_t directory,
                        struct stoker_error *error)
{
    qsort(archive->members, archive->count, sizeof *archive->members, by_header);
    for (uint64_t i = 0; i < archive->count; i++) {
        struct stk_zip_archive_member *member = &archive->members[i];
        uint64_t need = HEADER_BYTES + strlen(member->name), left;

        member->limit = i + 1 < archive->count ? archive->members[i + 1].header : directory;
        left = member->limit > member->header ? member->limit - member->header : 0;
        if (left < need || left - need < member->bytes) {
            return fail("members of the archive overlap, or lie outside of it", member->name,
                        error);
        }
    }
    qsort(archive->members, archive->count, sizeof *archive->members, by_name);
    for (uint64_t i = 1; i < archive->count; i++) {
        if (strcmp(archive->members[i - 1].name, archive->members[i].name) == 0) {
            return fail("two members of the archive have the same name", archive->members[i].name,
                        error);
        }
    }
    return 0;
}

int stk_zip_archive_open(struct stk_zip_archive *archive, struct stk_foreign_source *source,
                         struct stoker_error *error)
{
    struct place place = {0};
    uint8_t *directory = NULL;
    size_t at = 0;
    char *names;
    int status = find_directory(source, &place, error);

    *archive = (struct stk_zip_archive){0};
    if (status < 0) {
        return status;
    }
    directory = stk_alloc(place.bytes + 1, 1);
    archive->members = stk_alloc(place.count + 1, sizeof *archive->members);
    archive->names = names = stk_alloc(place.bytes + 1, 1);
    if (!directory || !archive->members || !names) {
        status = stk_fail_memory(error, "'%.400s'", source->path);
    }
    status =
        status < 0 ? status : stk_foreign_read(source, place.offset, directory, place.bytes, error);
    for (uint64_t i = 0; status == 0 && i < place.count; i++) {
        status = parse_entry((struct stk_view){directory, place.bytes}, &at,
                             &archive->members[archive->count++], &names, error);
    }
    status = status < 0 ? status : check_places(archive, place.offset, error);
    stk_free(directory);
    if (status < 0) {
        stk_zip_archive_deinit(archive);
    }
    return status;
}

void stk_zip_archive_deinit(struct stk_zip_archive *archive)
{
    stk_free(archive->members);
    stk_free(archive->names);
    *archive = (struct stk_zip_archive){0};
}

const struct stk_zip_archive_member *stk_zip_archive_find(const struct stk_zip_archive *archive,
                                                          const char *name)
{
    struct stk_zip_archive_member wanted = {.name = name};

    return archive->count == 0 ? NULL
                               : bsearch(&wanted, archive->members, archive->count,
                                         sizeof *archive->members, by_name);
}

int stk_zip_archive_locate(struct stk_foreign_source *source,
                           const struct stk_zip_archive_member *member, uint64_t *offset_out,
                           struct stoker_error *error)
{
    uint8_t header[HEADER_BYTES];
    int status = stk_foreign_read(source, member->header, header, sizeof header, error);
    uint64_t offset;

    if (status < 0) {
        return status;
    }
    offset =
        member->header + HEADER_BYTES + stk_little(header + 26, 2) + stk_little(header + 28, 2);
    if (stk_little(header, 4) != 0x04034b50 || stk_little(header + 8, 2) != 0 ||
        stk_little(header + 26, 2) != strlen(member->name)) {
        return fail("the header of a member is damaged", member->name, error);
    }
    if (offset > member->limit || member->bytes > member->limit - offset) {
        return fail("members of the archive overlap, or lie outside of it", member->name, error);
    }
    *offset_out = offset;
    return 0;
}

int stk_zip_archive_read(struct stk_foreign_source *source,
                         const struct stk_zip_archive_member *member, uint64_t bytes_max,
                         uint8_t **data_out, size_t *bytes_out, struct stoker_error *error)
{
    uint64_t offset;
    uint8_t *data;
    int status = stk_zip_archive_locate(source, member, &offset, error);

    if (status < 0) {
        return status;
    }
    if (member->bytes > bytes_max) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a member of the archive is too long",
                        "check what it is", "member %.200s of %" PRIu64 " bytes", member->name,
                        member->bytes);
    }
    data = stk_alloc(member->bytes + 1, 1);
    status = data ? stk_foreign_read(source, offset, data, member->bytes, error)
                  : stk_fail_memory(error, "'%.400s'", source->path);
    if (status == 0 && crc32_z(0, data, member->bytes) != member->crc) {
        status = stk_fail(error, STOKER_ERROR_CORRUPT, "a member does not match its checksum",
                          DAMAGED, "member %.200s", member->name);
    }
    if (status < 0) {
        stk_free(data);
        return status;
    }
    *data_out = data;
    *bytes_out = member->bytes;
    return 0;
}
