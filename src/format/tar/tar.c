/* Parses the headers of a tar. The state is a position: each step takes a block or a complete
 * extended header, or requests bytes. Layout of a header: POSIX.1-2017 pax, "ustar Interchange
 * Format". */
#include "format/tar/tar.h"

#include "base/mem.h"
#include "base/text/file_kind.h"
#include "base/text/text_match.h"
#include "format/tar/wds_name.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    BLOCK_BYTES = 512,
    NAME_BYTES_DEFAULT = 4096,
    HEADER_BYTES_DEFAULT = 1 << 20,
    CHAIN_MAX = 16, /* extended headers before one member; writers make up to 3 */
    DIGITS_MAX = 20 /* of a record's length, as Python's tarfile allows */
};

struct tar_header_disk {
    uint8_t name[100], mode[8], owner[8], group[8], size[12], time[12], sum[8], type, link[100];
    uint8_t magic[6], version[2], owner_name[32], group_name[32], major[8], minor[8];
    uint8_t prefix[155], unused[12];
};
static_assert(sizeof(struct tar_header_disk) == BLOCK_BYTES, "a header is a block");
static_assert(offsetof(struct tar_header_disk, size) == 124, "as in the standard");
static_assert(offsetof(struct tar_header_disk, sum) == 148, "as in the standard");
static_assert(offsetof(struct tar_header_disk, type) == 156, "as in the standard");
static_assert(offsetof(struct tar_header_disk, magic) == 257, "as in the standard");
static_assert(offsetof(struct tar_header_disk, prefix) == 345, "as in the standard");

/* Fields of members by extended headers. */
struct tar_override {
    uint8_t *name;       /* owned; name_bytes_max bytes */
    uint32_t name_bytes; /* 0: not set */
    bool sized, sparse;
    uint64_t bytes;
};

enum tar_state { AT_HEADER, IN_PAYLOAD, AT_END, FAILED };

struct stk_tar {
    struct stk_tar_limits limits; /* const after open */
    uint64_t size;                /* of the object; UINT64_MAX: unknown */
    uint64_t position;            /* of the next byte to take */
    struct stk_view input;        /* the object from `position` on; borrowed until NEED */
    bool needs_bytes;             /* the last event was NEED */
    bool marked;                  /* the last block was an end marker's */
    uint32_t state;               /* enum tar_state */
    int status;                   /* that of the failure */

    uint64_t chain_start;      /* first header of the member to come */
    uint32_t chain_count;      /* extended headers so far */
    struct tar_override chain; /* x and L: of the next member */
    uint8_t *link;             /* owned; name_bytes_max bytes; NULL until a header needs it */
    uint32_t link_bytes;       /* x and K: of the next member; 0: not set */
    bool link_too_long;
    struct tar_override global; /* g: of all that follow */

    uint8_t payload_type;   /* of the extended header being read */
    uint64_t payload_bytes; /* its size */
    uint64_t payload_start;
    uint8_t *payload; /* owned; grows up to header_bytes_max rounded up */
    size_t payload_capacity;

    size_t held; /* bytes in block or payload so far */
    uint8_t block[BLOCK_BYTES];
    uint8_t joined[256]; /* prefix '/' name */
};

static int header_step(struct stk_tar *tar, struct stk_tar_step *step, struct stoker_error *error);
static int payload_step(struct stk_tar *tar, struct stk_tar_step *step, struct stoker_error *error);
static int end_step(struct stk_tar *tar, struct stk_tar_step *step, struct stoker_error *error);
static int read_header(struct stk_tar *tar, const struct tar_header_disk *header,
                       struct stk_tar_step *step, struct stoker_error *error);
static int read_member(struct stk_tar *tar, const struct tar_header_disk *header, uint64_t bytes,
                       struct stk_tar_step *step, struct stoker_error *error);
static int name_member(struct stk_tar *tar, const struct tar_header_disk *header, uint8_t type,
                       struct stk_view *name_out, struct stoker_error *error);
static int begin_payload(struct stk_tar *tar, uint8_t type, uint64_t bytes,
                         struct stoker_error *error);
static int read_records(struct stk_tar *tar, struct stk_view payload, struct stoker_error *error);
static int set_link(struct stk_tar *tar, struct stk_view link, struct stoker_error *error);
static int set_name(struct stk_tar *tar, struct tar_override *override, struct stk_view name,
                    struct stoker_error *error);
static const char *split_record(struct stk_view *rest, struct stk_view *key,
                                struct stk_view *value);
static const char *read_number(const uint8_t *field, size_t width, uint64_t *number_out);
static bool checksum_is_valid(const struct tar_header_disk *header);
static bool is_zero(const uint8_t *data, size_t bytes);
static struct stk_view field_text(const uint8_t *field, size_t width);
static int fail(struct stoker_error *error, int status, uint64_t offset, const char *detail);
static int fail_foreign(struct stoker_error *error, struct stk_view head, uint64_t offset);
static int fail_advised(struct stoker_error *error, int status, uint64_t offset, const char *advice,
                        const char *detail);

static const char *const advice_format = "give the paths of tars, or of a folder of images";
/* Only here are all members complete, so that a user may append zeros. */
static const char *const advice_without_end =
    "copy the tar again; if all members are there and only the end marker is not, add it: "
    "'truncate --size=+1024 FILE'";
/* Other readers differ: they see no name, or that of the member's own header. */
static const char *const empty_name = "an extended header has an empty name";
static const char *const advice_damaged =
    "copy the tar again or leave it out; 'tar --list' shows what can be read of it";

int stk_tar_open(struct stk_tar **tar_out, uint64_t size, const struct stk_tar_limits *limits,
                 struct stoker_error *error)
{
    struct stk_tar *tar = stk_alloc(1, sizeof *tar);

    *tar_out = NULL;
    if (tar) {
        tar->limits = limits ? *limits : (struct stk_tar_limits){0};
        tar->limits.name_bytes_max =
            tar->limits.name_bytes_max ? tar->limits.name_bytes_max : NAME_BYTES_DEFAULT;
        tar->limits.header_bytes_max =
            tar->limits.header_bytes_max ? tar->limits.header_bytes_max : HEADER_BYTES_DEFAULT;
        tar->size = size;
        tar->chain.name = stk_alloc(tar->limits.name_bytes_max, 1);
        tar->global.name = stk_alloc(tar->limits.name_bytes_max, 1);
    }
    if (!tar || !tar->chain.name || !tar->global.name) {
        stk_tar_close(tar);
        return stk_fail(error, -ENOMEM, "no memory to read a tar", "free memory", "tar headers");
    }
    *tar_out = tar;
    return 0;
}

void stk_tar_close(struct stk_tar *tar)
{
    if (tar) {
        stk_free(tar->chain.name);
        stk_free(tar->global.name);
        stk_free(tar->link);
        stk_free(tar->payload);
        stk_free(tar);
    }
}

int stk_tar_step(struct stk_tar *tar, struct stk_view bytes, struct stk_tar_step *step_out,
                 struct stoker_error *error)
{
    int status = 0;

    memset(step_out, 0, sizeof *step_out);
    if (tar->needs_bytes) {
        tar->needs_bytes = false;
        tar->input = bytes;
        tar->input.bytes = stk_min(bytes.bytes, tar->size - tar->position);
        if (bytes.bytes == 0) {
            tar->size = tar->position;
        }
    }
    /* Each step takes at least a block, or makes an event, or fails. */
    while (status == 0 && step_out->event == 0) {
        switch (tar->state) {
        case AT_HEADER:
            status = header_step(tar, step_out, error);
            break;
        case IN_PAYLOAD:
            status = payload_step(tar, step_out, error);
            break;
        case AT_END:
            step_out->event = STK_TAR_END;
            break;
        default:
            status = fail(error, tar->status, tar->position, "an earlier call failed");
        }
    }
    if (status < 0) {
        tar->state = FAILED;
        tar->status = status;
        memset(step_out, 0, sizeof *step_out);
    }
    return status;
}

/* Returns `want` consecutive bytes, of the input or gathered in `hold`. NULL: *step requests more,
 * or, without an event, the object ended with tar->held of these bytes. */
static const uint8_t *gather(struct stk_tar *tar, uint8_t *hold, size_t want,
                             struct stk_tar_step *step)
{
    const uint8_t *whole = tar->input.data;
    size_t take = stk_min(want - tar->held, tar->input.bytes);
    uint64_t left;

    if (take > 0) {
        tar->position += take;
        tar->input.data += take;
        tar->input.bytes -= take;
        if (take == want) {
            return whole;
        }
        memcpy(hold + tar->held, whole, take);
        tar->held += take;
    }
    if (tar->held == want) {
        tar->held = 0;
        return hold;
    }
    left = tar->size > tar->position ? tar->size - tar->position : 0;
    if (left > 0) {
        step->event = STK_TAR_NEED;
        step->offset = tar->position;
        step->bytes = stk_min(want - tar->held, left);
        tar->needs_bytes = true;
    }
    return NULL;
}

/* Skips the data of a member. The caller made sure that the sum does not overflow. */
static void skip(struct stk_tar *tar, uint64_t bytes)
{
    size_t take = stk_min(bytes, tar->input.bytes);

    tar->position += bytes;
    if (take > 0) {
        tar->input.data += take;
        tar->input.bytes -= take;
    }
}

static void reset_override(struct tar_override *override)
{
    override->name_bytes = 0;
    override->sized = override->sparse = false;
}

static bool has_records(const struct tar_override *override)
{
    return override->name_bytes > 0 || override->sized || override->sparse;
}

void stk_tar_start_at(struct stk_tar *tar, uint64_t offset)
{
    STK_ASSERT(tar->state == AT_HEADER && !tar->needs_bytes && offset <= tar->size);
    tar->position = offset;
}

bool stk_tar_has_globals(const struct stk_tar *tar)
{
    return has_records(&tar->global);
}

static int header_step(struct stk_tar *tar, struct stk_tar_step *step, struct stoker_error *error)
{
    uint64_t start = tar->position - tar->held;
    const uint8_t *block = gather(tar, tar->block, BLOCK_BYTES, step);
    const struct tar_header_disk *header = (const struct tar_header_disk *)block;

    if (!block) {
        return step->event ? 0 : end_step(tar, step, error);
    }
    if (block[0] == 0 && is_zero(block, BLOCK_BYTES)) {
        if (tar->chain_count > 0) {
            return fail(error, STOKER_ERROR_CORRUPT, tar->chain_start,
                        "an extended header is followed by no member");
        }
        tar->marked = true;
        return 0;
    }
    if (!checksum_is_valid(header)) {
        bool is_tar = start > 0 || memcmp(header->magic, "ustar", 5) == 0;

        if (!is_tar) {
            return fail_foreign(error, (struct stk_view){block, BLOCK_BYTES},
                                offsetof(struct tar_header_disk, sum));
        }
        return fail(error, STOKER_ERROR_CORRUPT,
                    tar->marked ? start : start + offsetof(struct tar_header_disk, sum),
                    tar->marked ? "after the end marker follows neither another tar nor zeros"
                                : "the header's checksum is wrong");
    }
    if (tar->marked && has_records(&tar->global)) {
        return fail(error, STOKER_ERROR_CORRUPT, start,
                    "behind an end marker it is not clear whether a global header still counts");
    }
    tar->marked = false;
    if (tar->chain_count == 0) {
        tar->chain_start = start;
    }
    return read_header(tar, header, step, error);
}

/* The object ended where a header should be. */
static int end_step(struct stk_tar *tar, struct stk_tar_step *step, struct stoker_error *error)
{
    uint64_t start = tar->position - tar->held;

    if (tar->chain_count > 0) {
        return fail(error, STOKER_ERROR_TRUNCATED, tar->chain_start,
                    "the object ends after an extended header, before its member");
    }
    if (tar->marked && !is_zero(tar->block, tar->held)) {
        return fail(error, STOKER_ERROR_CORRUPT, start,
                    "after the end marker follows neither another tar nor zeros");
    }
    if (tar->position == 0) {
        return fail(error, STOKER_ERROR_EMPTY, 0, "the object has no bytes");
    }
    if (start == 0 && stk_file_kind_of_bytes((struct stk_view){tar->block, tar->held})) {
        return fail_foreign(error, (struct stk_view){tar->block, tar->held}, 0);
    }
    if (!tar->marked && tar->held == 0) {
        return fail_advised(error, STOKER_ERROR_TRUNCATED, start, advice_without_end,
                            "the object ends without an end marker");
    }
    if (!tar->marked) {
        return fail(error, STOKER_ERROR_TRUNCATED, start, "the object ends inside a header");
    }
    tar->state = AT_END;
    step->event = STK_TAR_END;
    return 0;
}

static int read_header(struct stk_tar *tar, const struct tar_header_disk *header,
                       struct stk_tar_step *step, struct stoker_error *error)
{
    uint64_t start = tar->position - BLOCK_BYTES;
    uint64_t bytes;
    const char *complaint = read_number(header->size, sizeof header->size, &bytes);

    if (complaint) {
        return fail(error, STOKER_ERROR_CORRUPT, start + offsetof(struct tar_header_disk, size),
                    complaint);
    }
    switch (header->type) {
    case 'L': /* GNU: the next member's name */
    case 'K': /* GNU: the name that it links to */
    case 'x': /* PAX: records of the next member */
    case 'X': /* the same from old Solaris */
    case 'g': /* PAX: records of all that follow */
        return begin_payload(tar, header->type, bytes, error);
    default:
        return read_member(tar, header, bytes, step, error);
    }
}

static int read_member(struct stk_tar *tar, const struct tar_header_disk *header, uint64_t bytes,
                       struct stk_tar_step *step, struct stoker_error *error)
{
    uint64_t start = tar->position - BLOCK_BYTES;
    uint64_t end, next;
    uint8_t type = header->type;
    char text[256];
    int status;

    if (type == '\0' || type == '7') {
        size_t name_bytes = field_text(header->name, sizeof header->name).bytes;
        bool folder = type == '\0' && name_bytes > 0 && header->name[name_bytes - 1] == '/';

        type = folder ? '5' : '0'; /* V7 had no type for a directory */
    }
    status = name_member(tar, header, type, &step->name, error);
    if (status < 0) {
        return status;
    }
    stk_wds_name_text(step->name, text, sizeof text);
    if (type == 'S' || type == 'M' || tar->chain.sparse || tar->global.sparse) {
        stk_fail(error, STOKER_ERROR_UNSUPPORTED, "cannot read this tar member",
                 "write the tar again without --sparse and --multi-volume",
                 type == 'M' ? "it continues from another volume" : "it is a GNU sparse file");
        stk_error_set_location(error, NULL, start, text);
        return STOKER_ERROR_UNSUPPORTED;
    }
    bytes = tar->chain.sized ? tar->chain.bytes : tar->global.sized ? tar->global.bytes : bytes;
    if (type >= '1' && type <= '6') {
        bytes = 0; /* links, devices, directories and pipes have no data, whatever they say */
    }
    if (!stk_add(tar->position, bytes, &end) || !stk_add(end, BLOCK_BYTES - 1, &next) ||
        end > tar->size) {
        status = fail(error, STOKER_ERROR_TRUNCATED, start, "the member's data would pass the end");
        stk_error_set_location(error, NULL, STOKER_NO_OFFSET, text);
        return status;
    }
    step->event = STK_TAR_MEMBER;
    step->offset = tar->position;
    step->bytes = bytes;
    step->header = tar->chain_start;
    step->type = type;
    if ((type == '1' || type == '2') && !tar->link_too_long) {
        step->link = tar->link_bytes > 0 ? (struct stk_view){tar->link, tar->link_bytes}
                                         : field_text(header->link, sizeof header->link);
    }
    tar->link_bytes = 0;
    tar->link_too_long = false;
    skip(tar, stk_round_up(bytes, BLOCK_BYTES));
    tar->chain_count = 0;
    reset_override(&tar->chain);
    return 0;
}

/* A name from x or L before one from g before the header's own. */
static int name_member(struct stk_tar *tar, const struct tar_header_disk *header, uint8_t type,
                       struct stk_view *name_out, struct stoker_error *error)
{
    struct stk_view name = field_text(header->name, sizeof header->name);
    struct stk_view prefix = field_text(header->prefix, sizeof header->prefix);

    if (tar->chain.name_bytes > 0) {
        name = (struct stk_view){tar->chain.name, tar->chain.name_bytes};
    } else if (tar->global.name_bytes > 0) {
        name = (struct stk_view){tar->global.name, tar->global.name_bytes};
    } else if (prefix.bytes > 0 && memcmp(header->magic, "ustar", 6) == 0) {
        /* Old GNU tars ("ustar ") keep times in the prefix field. */
        memcpy(tar->joined, prefix.data, prefix.bytes);
        tar->joined[prefix.bytes] = '/';
        memcpy(tar->joined + prefix.bytes + 1, name.data, name.bytes);
        name = (struct stk_view){tar->joined, prefix.bytes + 1 + name.bytes};
    }
    if (name.bytes > tar->limits.name_bytes_max) {
        return fail(error, STOKER_ERROR_LIMIT, tar->position - BLOCK_BYTES,
                    "the name is longer than name_bytes_max");
    }
    while (type == '5' && name.bytes > 0 && name.data[name.bytes - 1] == '/') {
        name.bytes--;
    }
    *name_out = name;
    return 0;
}

static int begin_payload(struct stk_tar *tar, uint8_t type, uint64_t bytes,
                         struct stoker_error *error)
{
    uint64_t start = tar->position - BLOCK_BYTES;
    uint64_t end;
    size_t padded;

    if (bytes > tar->limits.header_bytes_max) {
        return fail(error, STOKER_ERROR_LIMIT, start,
                    "an extended header is longer than header_bytes_max");
    }
    if (type == 'L' && bytes == 0) {
        return fail(error, STOKER_ERROR_CORRUPT, start, empty_name);
    }
    if (type != 'g' && ++tar->chain_count > CHAIN_MAX) {
        return fail(error, STOKER_ERROR_CORRUPT, start,
                    "more than 16 extended headers precede one member");
    }
    padded = stk_round_up(bytes, BLOCK_BYTES);
    if (!stk_add(tar->position, padded, &end) || end > tar->size) {
        return fail(error, STOKER_ERROR_TRUNCATED, start,
                    "an extended header's records would pass the end");
    }
    if (padded > tar->payload_capacity) {
        stk_free(tar->payload);
        tar->payload_capacity = 0;
        tar->payload = stk_alloc(padded, 1);
        if (!tar->payload) {
            return stk_fail(error, -ENOMEM, "no memory for an extended tar header", "free memory",
                            "%zu bytes", padded);
        }
        tar->payload_capacity = padded;
    }
    tar->payload_type = type;
    tar->payload_bytes = bytes;
    tar->payload_start = tar->position;
    tar->state = bytes > 0 ? IN_PAYLOAD : AT_HEADER;
    return 0;
}

static int payload_step(struct stk_tar *tar, struct stk_tar_step *step, struct stoker_error *error)
{
    size_t padded = stk_round_up(tar->payload_bytes, BLOCK_BYTES);
    const uint8_t *data = gather(tar, tar->payload, padded, step);
    struct stk_view payload;

    if (!data) {
        return step->event ? 0
                           : fail(error, STOKER_ERROR_TRUNCATED, tar->payload_start - BLOCK_BYTES,
                                  "the object ends inside an extended header");
    }
    tar->state = AT_HEADER;
    payload = (struct stk_view){data, tar->payload_bytes};
    if (tar->payload_type == 'K') {
        return set_link(tar, field_text(data, payload.bytes), error);
    }
    if (tar->payload_type != 'L') {
        return read_records(tar, payload, error);
    }
    payload = field_text(data, payload.bytes);
    if (payload.bytes == 0) {
        return fail(error, STOKER_ERROR_CORRUPT, tar->payload_start, empty_name);
    }
    if (payload.bytes < padded && data[payload.bytes] != '\0') { /* others read on to the NUL */
        return fail(error, STOKER_ERROR_CORRUPT, tar->payload_start,
                    "a long name continues after its end");
    }
    if (payload.bytes > tar->limits.name_bytes_max) {
        return fail(error, STOKER_ERROR_LIMIT, tar->payload_start,
                    "the name is longer than name_bytes_max");
    }
    return set_name(tar, &tar->chain, payload, error);
}

/* Readers differ on which of two extended headers counts, so they may not differ themselves. */
static int set_name(struct stk_tar *tar, struct tar_override *override, struct stk_view name,
                    struct stoker_error *error)
{
    if (override == &tar->chain && override->name_bytes > 0 &&
        (override->name_bytes != name.bytes ||
         memcmp(override->name, name.data, name.bytes) != 0)) {
        return fail(error, STOKER_ERROR_CORRUPT, tar->payload_start,
                    "two extended headers give one member two names");
    }
    memcpy(override->name, name.data, name.bytes);
    override->name_bytes = name.bytes;
    return 0;
}

/* The name that the next member links to. One that is too long matches no member. */
static int set_link(struct stk_tar *tar, struct stk_view link, struct stoker_error *error)
{
    tar->link_too_long = link.bytes > tar->limits.name_bytes_max;
    tar->link = tar->link ? tar->link : stk_alloc(tar->limits.name_bytes_max, 1);
    if (!tar->link) {
        return stk_fail(error, -ENOMEM, "no memory to read a tar", "free memory", "tar headers");
    }
    tar->link_bytes = tar->link_too_long ? 0 : (uint32_t)link.bytes;
    memcpy(tar->link, link.data, tar->link_bytes);
    return 0;
}

/* Digits only. */
static bool read_decimal(struct stk_view text, uint64_t *number_out)
{
    uint64_t number = 0;

    for (size_t i = 0; i < text.bytes; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || !stk_multiply(number, 10, &number) ||
            !stk_add(number, text.data[i] - '0', &number)) {
            return false;
        }
    }
    *number_out = number;
    return text.bytes > 0;
}

/* The fields of one extended header. If a key comes twice, the last record counts. */
struct tar_records {
    struct stk_view name, link;
    bool sized, sparse;
    uint64_t bytes;
};

/* Returns why the record is refused, or NULL. Keys that do not matter here pass. */
static const char *read_record(struct stk_view key, struct stk_view value,
                               struct tar_records *records)
{
    bool is_sparse = key.bytes > 11 && memcmp(key.data, "GNU.sparse.", 11) == 0;

    records->sparse |= is_sparse;
    if (stk_view_is(key, "path") || stk_view_is(key, "GNU.sparse.name")) {
        if (memchr(value.data, '\0', value.bytes)) {
            return "a path record has a NUL byte";
        }
        while (value.bytes > 0 && value.data[value.bytes - 1] == '/') {
            value.bytes--; /* as Python's tarfile does */
        }
        if (value.bytes == 0) {
            return empty_name;
        }
        records->name = value;
    } else if (stk_view_is(key, "linkpath")) {
        records->link = value;
    } else if (stk_view_is(key, "size")) {
        records->sized = true;
        if (!read_decimal(value, &records->bytes)) {
            return "a size record is no decimal number";
        }
    }
    return NULL;
}

static int read_records(struct stk_tar *tar, struct stk_view payload, struct stoker_error *error)
{
    bool is_global = tar->payload_type == 'g';
    struct tar_override *override = is_global ? &tar->global : &tar->chain;
    struct tar_records records = {.sized = false};
    struct stk_view rest = payload;
    struct stk_view key, value;

    while (rest.bytes > 0 && rest.data[0] != '\0') { /* a NUL: padding */
        uint64_t at = tar->payload_start + (payload.bytes - rest.bytes);
        const char *complaint = split_record(&rest, &key, &value);

        if (!complaint) {
            complaint = read_record(key, value, &records);
        }
        if (complaint) {
            return fail(error, STOKER_ERROR_CORRUPT, at, complaint);
        }
        if (records.name.bytes > tar->limits.name_bytes_max) {
            return fail(error, STOKER_ERROR_LIMIT, at, "the name is longer than name_bytes_max");
        }
    }
    override->sparse |= records.sparse;
    if (records.link.bytes > 0 && !is_global) {
        int status = set_link(tar, records.link, error);

        if (status < 0) {
            return status;
        }
    }
    if (records.sized && !is_global && override->sized && override->bytes != records.bytes) {
        return fail(error, STOKER_ERROR_CORRUPT, tar->payload_start,
                    "two extended headers give one member two sizes");
    }
    if (records.sized) {
        override->sized = true;
        override->bytes = records.bytes;
    }
    return records.name.bytes > 0 ? set_name(tar, override, records.name, error) : 0;
}

/* Takes "LENGTH KEY=VALUE\n" off the front of *rest, where LENGTH counts all of it. Returns why
 * there is no such record, else NULL. */
static const char *split_record(struct stk_view *rest, struct stk_view *key, struct stk_view *value)
{
    uint64_t length = 0;
    size_t digits = 0;
    size_t body_bytes;
    const uint8_t *body, *equals;

    while (digits < rest->bytes && digits < DIGITS_MAX && rest->data[digits] >= '0' &&
           rest->data[digits] <= '9') {
        /* A length that passes the rest anyway needs no more digits. */
        length = length > rest->bytes ? length : length * 10 + (rest->data[digits] - '0');
        digits++;
    }
    if (digits == 0 || digits == rest->bytes || rest->data[digits] != ' ') {
        return "a record has no length";
    }
    if (length > rest->bytes) {
        return "a record's length passes the end of its header";
    }
    if (length < digits + 4) {
        return "a record's length is too small to hold a key";
    }
    if (rest->data[length - 1] != '\n') {
        return "a record does not end with a newline";
    }
    body = rest->data + digits + 1;
    body_bytes = length - digits - 2;
    equals = memchr(body, '=', body_bytes);
    if (!equals || equals == body) {
        return "a record has no key";
    }
    *key = (struct stk_view){body, (size_t)(equals - body)};
    *value = (struct stk_view){equals + 1, body_bytes - key->bytes - 1};
    rest->data += length;
    rest->bytes -= length;
    return NULL;
}

/* Octal with blanks around, up to a NUL; or base-256 after a first byte of 0x80 (GNU). Returns
 * why it is no number, else NULL. */
static const char *read_number(const uint8_t *field, size_t width, uint64_t *number_out)
{
    uint64_t number = 0;
    size_t at = 0;

    if (field[0] == 0xff) {
        return "a number in the header is negative";
    }
    if (field[0] == 0x80) {
        for (at = 1; at < width; at++) {
            if (number >> 56) {
                return "a number in the header needs more than 64 bits";
            }
            number = number << 8 | field[at];
        }
        *number_out = number;
        return NULL;
    }
    width = field_text(field, width).bytes;
    while (at < width && (field[at] == ' ' || field[at] == '\t')) {
        at++;
    }
    while (at < width && field[at] >= '0' && field[at] <= '7') {
        number = number << 3 | (field[at] - '0'); /* 12 digits: 36 bits */
        at++;
    }
    while (at < width && (field[at] == ' ' || field[at] == '\t')) {
        at++;
    }
    *number_out = number;
    return at == width ? NULL : "a number in the header is not octal";
}

/* The sum of all bytes with blanks in the sum's place. Some old writers added them as signed. */
static bool checksum_is_valid(const struct tar_header_disk *header)
{
    const uint8_t *block = (const uint8_t *)header;
    uint32_t sum = 0, high = 0;
    uint64_t stored;

    if (read_number(header->sum, sizeof header->sum, &stored)) {
        return false;
    }
    for (size_t i = 0; i < BLOCK_BYTES; i++) {
        sum += block[i];
        high += block[i] >> 7;
    }
    for (size_t i = 0; i < sizeof header->sum; i++) {
        sum -= header->sum[i];
        high -= header->sum[i] >> 7;
    }
    sum += sizeof header->sum * ' ';
    return stored == sum || (int64_t)stored == (int64_t)sum - 256 * (int64_t)high;
}

bool stk_tar_is_header(const uint8_t block[512])
{
    return block[0] != 0 && checksum_is_valid((const struct tar_header_disk *)block);
}

static bool is_zero(const uint8_t *data, size_t bytes)
{
    return bytes == 0 || (data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0);
}

/* Up to the first NUL. */
static struct stk_view field_text(const uint8_t *field, size_t width)
{
    return (struct stk_view){field, strnlen((const char *)field, width)};
}

static int fail(struct stoker_error *error, int status, uint64_t offset, const char *detail)
{
    const char *advice = advice_damaged;

    if (status == STOKER_ERROR_LIMIT) {
        advice = "raise the limit if you trust the tar";
    } else if (status == STOKER_ERROR_FORMAT) {
        advice = advice_format;
    } else if (status == STOKER_ERROR_EMPTY) {
        advice = "copy the tar again, or name the others in a list or a glob";
    } else if (status == STOKER_ERROR_TRUNCATED) {
        advice = "copy the tar again; 'stoker verify --repair' keeps the members before the end";
    }
    return fail_advised(error, status, offset, advice, detail);
}

/* The file is no tar. */
static int fail_foreign(struct stoker_error *error, struct stk_view head, uint64_t offset)
{
    const struct stk_file_kind *found = stk_file_kind_of_bytes(head);
    char detail[128];

    snprintf(detail, sizeof detail, "the first block is no tar header%s%s",
             found ? ": it looks like " : "", found ? found->name : "");
    return fail_advised(error, STOKER_ERROR_FORMAT, offset, found ? found->advice : advice_format,
                        detail);
}

static int fail_advised(struct stoker_error *error, int status, uint64_t offset, const char *advice,
                        const char *detail)
{
    stk_fail(error, status, "cannot read tar headers", advice, "%s", detail);
    stk_error_set_location(error, NULL, offset, NULL);
    return status; /* error may be NULL */
}
