#include "test/tiny.h"

#include "base/crc.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC_BYTES = 4, RECORD_BYTES = 12, ENTRY_BYTES = 16, END_BYTES = 8, NAME_BYTES_MAX = 255 };

/* ---- writing ---------------------------------------------------------------------------- */

static void put(struct t_tiny *tiny, const void *data, size_t bytes)
{
    tiny->data = realloc(tiny->data, tiny->bytes + bytes + 1);
    if (bytes > 0) {
        memcpy(tiny->data + tiny->bytes, data, bytes);
    }
    tiny->bytes += bytes;
}

void t_tiny_begin(struct t_tiny *tiny, bool has_footer)
{
    *tiny = (struct t_tiny){.has_footer = has_footer};
    put(tiny, has_footer ? "TINF" : "TINY", MAGIC_BYTES);
}

void t_tiny_add(struct t_tiny *tiny, const char *name, const void *data, size_t bytes)
{
    uint32_t name_bytes = name ? (uint32_t)strlen(name) : 0;
    uint32_t record[4] = {name_bytes, (uint32_t)bytes, stk_crc32c(0, data, bytes),
                          (uint32_t)tiny->bytes};

    if (tiny->has_footer) {
        memcpy(tiny->entries + tiny->entries_bytes, record, ENTRY_BYTES);
        memcpy(tiny->entries + tiny->entries_bytes + ENTRY_BYTES, name ? name : "", name_bytes);
        tiny->entries_bytes += ENTRY_BYTES + name_bytes;
    } else {
        put(tiny, record, RECORD_BYTES);
        put(tiny, name, name_bytes);
    }
    put(tiny, data, bytes);
    tiny->count++;
}

void t_tiny_end(struct t_tiny *tiny)
{
    uint32_t footer_bytes = (uint32_t)tiny->entries_bytes;

    if (tiny->has_footer) {
        put(tiny, tiny->entries, tiny->entries_bytes);
        put(tiny, &footer_bytes, sizeof footer_bytes);
        put(tiny, "TINF", MAGIC_BYTES);
    }
}

void t_tiny_free(struct t_tiny *tiny)
{
    free(tiny->data);
    *tiny = (struct t_tiny){0};
}

/* ---- reading ---------------------------------------------------------------------------- */

enum state { AT_BEGIN, IN_RECORD, AT_FOOT, IN_FOOTER, IN_ENTRIES, FAILED };

struct tiny_reader {
    struct stk_container base; /* first */
    uint32_t state;            /* enum state */
    uint64_t position;         /* of the record, the footer or the entry */
    bool needs_bytes;
    size_t held; /* bytes in hold, or in footer, so far */
    uint8_t hold[RECORD_BYTES + NAME_BYTES_MAX];
    uint8_t *footer; /* owned */
    uint32_t footer_bytes, footer_at;
    char name[NAME_BYTES_MAX + 1];
};

static struct tiny_reader *reader_of(struct stk_container *container)
{
    return (struct tiny_reader *)(void *)container;
}

static bool matches(struct stk_view head, const char *magic)
{
    return head.bytes >= MAGIC_BYTES && memcmp(head.data, magic, MAGIC_BYTES) == 0;
}

static bool matches_walk(const char *path, struct stk_view head)
{
    (void)path;
    return matches(head, "TINY");
}

static bool matches_footer(const char *path, struct stk_view head)
{
    (void)path;
    return matches(head, "TINF");
}

static int open_reader(struct stk_container **container_out,
                       const struct stk_container_options *options, struct stoker_error *error)
{
    struct tiny_reader *reader = stk_alloc(1, sizeof *reader);

    (void)options;
    *container_out = reader ? &reader->base : NULL;
    return reader ? 0 : stk_fail(error, -ENOMEM, "no memory for a tiny", "free memory", "tiny");
}

static void close_reader(struct stk_container *container)
{
    stk_free(reader_of(container)->footer);
    stk_free(container);
}

static int fail(struct tiny_reader *reader, int status, struct stoker_error *error)
{
    reader->state = FAILED;
    stk_fail(error, status, "cannot read a tiny", "make it anew", "test");
    stk_error_set_location(error, NULL, reader->position, NULL);
    return status;
}

/* Gathers `want` bytes from the position on. Returns 1 if they are there; 0 with a NEED in *step;
 * STOKER_ERROR_TRUNCATED if the file ends before. */
static int gather(struct tiny_reader *reader, uint8_t *hold, size_t want, struct stk_view *bytes,
                  struct stk_container_step *step)
{
    uint64_t at = reader->position + reader->held, size = reader->base.size;
    size_t take = reader->needs_bytes ? stk_min(want - reader->held, bytes->bytes) : 0;
    bool ended = at >= size || (reader->needs_bytes && bytes->bytes == 0);

    reader->needs_bytes = false;
    if (take > 0) {
        memcpy(hold + reader->held, bytes->data, take);
        reader->held += take;
    }
    if (reader->held == want) {
        return 1;
    }
    if (ended || at + take >= size) {
        return STOKER_ERROR_TRUNCATED;
    }
    reader->needs_bytes = true;
    step->event = STK_CONTAINER_NEED;
    step->offset = at + take;
    step->bytes = stk_min(want - reader->held, size - step->offset);
    return 0;
}

/* A record or an entry whose bytes are there. */
static void set_member(struct tiny_reader *reader, const uint8_t *record, uint64_t data_offset,
                       size_t record_bytes, struct stk_container_step *step)
{
    uint32_t fields[3];

    memcpy(fields, record, sizeof fields);
    memcpy(reader->name, record + record_bytes, stk_min(fields[0], NAME_BYTES_MAX));
    *step = (struct stk_container_step){
        .event = STK_CONTAINER_MEMBER,
        .kind = fields[0] == 0 ? STK_MEMBER_ROW : STK_MEMBER_FILE,
        .offset = data_offset,
        .bytes = fields[1],
        .header = reader->position,
        .name = {(const uint8_t *)reader->name, stk_min(fields[0], NAME_BYTES_MAX)},
        .checksum_kind = STK_MEMBER_CHECKSUM_CRC32C,
        .checksum = fields[2]};
}

static int walk_step(struct stk_container *container, struct stk_view bytes,
                     struct stk_container_step *step, struct stoker_error *error)
{
    struct tiny_reader *reader = reader_of(container);
    uint32_t name_bytes;
    int status;

    *step = (struct stk_container_step){0};
    if (reader->state == FAILED) {
        return fail(reader, STOKER_ERROR_CORRUPT, error);
    }
    if (reader->state == AT_BEGIN) {
        reader->position = MAGIC_BYTES;
        reader->state = IN_RECORD;
    }
    status =
        reader->held < RECORD_BYTES ? gather(reader, reader->hold, RECORD_BYTES, &bytes, step) : 1;
    if (status == STOKER_ERROR_TRUNCATED && reader->held == 0) {
        step->event = STK_CONTAINER_END;
        return 0;
    }
    if (status <= 0) {
        return status < 0 ? fail(reader, status, error) : 0;
    }
    memcpy(&name_bytes, reader->hold, sizeof name_bytes);
    if (name_bytes > NAME_BYTES_MAX) {
        return fail(reader, STOKER_ERROR_CORRUPT, error);
    }
    status = gather(reader, reader->hold, RECORD_BYTES + name_bytes, &bytes, step);
    if (status <= 0) {
        return status < 0 ? fail(reader, status, error) : 0;
    }
    set_member(reader, reader->hold, reader->position + RECORD_BYTES + name_bytes, RECORD_BYTES,
               step);
    if (container->size != UINT64_MAX && step->bytes > container->size - step->offset) {
        *step = (struct stk_container_step){0};
        return fail(reader, STOKER_ERROR_TRUNCATED, error);
    }
    reader->position = step->offset + step->bytes;
    reader->held = 0;
    return 0;
}

/* Its size, then its entries. Returns 1 if they are there. */
static int read_footer(struct tiny_reader *reader, struct stk_view *bytes,
                       struct stk_container_step *step)
{
    uint64_t size = reader->base.size;
    int status;

    if (reader->state == AT_BEGIN) {
        if (size < MAGIC_BYTES + END_BYTES) {
            return STOKER_ERROR_TRUNCATED;
        }
        reader->position = size - END_BYTES;
        reader->state = AT_FOOT;
    }
    if (reader->state == AT_FOOT) {
        status = gather(reader, reader->hold, END_BYTES, bytes, step);
        if (status <= 0) {
            return status;
        }
        memcpy(&reader->footer_bytes, reader->hold, sizeof reader->footer_bytes);
        if (memcmp(reader->hold + 4, "TINF", MAGIC_BYTES) != 0 ||
            reader->footer_bytes > size - MAGIC_BYTES - END_BYTES) {
            return STOKER_ERROR_CORRUPT;
        }
        reader->footer = stk_alloc(reader->footer_bytes + 1ull, 1);
        if (!reader->footer) {
            return -ENOMEM;
        }
        reader->position = size - END_BYTES - reader->footer_bytes;
        reader->held = 0;
        reader->state = IN_FOOTER;
    }
    status = gather(reader, reader->footer, reader->footer_bytes, bytes, step);
    reader->state = status == 1 ? IN_ENTRIES : reader->state;
    return status;
}

static int footer_step(struct stk_container *container, struct stk_view bytes,
                       struct stk_container_step *step, struct stoker_error *error)
{
    struct tiny_reader *reader = reader_of(container);
    uint32_t entry[4], left;
    int status = reader->state == FAILED ? STOKER_ERROR_CORRUPT : 1;

    *step = (struct stk_container_step){0};
    if (status == 1 && reader->state != IN_ENTRIES) {
        status = read_footer(reader, &bytes, step);
    }
    if (status <= 0) {
        return status < 0 ? fail(reader, status, error) : 0;
    }
    left = reader->footer_bytes - reader->footer_at;
    if (left == 0) {
        step->event = STK_CONTAINER_END;
        return 0;
    }
    reader->position = container->size - END_BYTES - left;
    memcpy(entry, reader->footer + reader->footer_at, stk_min(sizeof entry, left));
    if (left < ENTRY_BYTES || entry[0] > stk_min(NAME_BYTES_MAX, left - ENTRY_BYTES) ||
        entry[3] > container->size || entry[1] > container->size - entry[3]) {
        return fail(reader, STOKER_ERROR_CORRUPT, error);
    }
    set_member(reader, reader->footer + reader->footer_at, entry[3], ENTRY_BYTES, step);
    reader->footer_at += ENTRY_BYTES + entry[0];
    return 0;
}

static const char *const endings[] = {".tiny", ".tiny.gz", NULL};

const struct stk_container_format t_tiny_walk = {
    .name = "tiny",
    .flags = STK_CONTAINER_ROWS,
    .row_extension = "bin",
    .endings = endings,
    .matches = matches_walk,
    .open = open_reader,
    .step = walk_step,
    .close = close_reader,
};

const struct stk_container_format t_tiny_footer = {
    .name = "tiny with a footer",
    .flags = STK_CONTAINER_ROWS | STK_CONTAINER_FOOTER,
    .row_extension = "bin",
    .endings = endings,
    .matches = matches_footer,
    .open = open_reader,
    .step = footer_step,
    .close = close_reader,
};

const struct stk_container_format t_tiny_sequential = {
    .name = "sequential tiny",
    .flags = STK_CONTAINER_ROWS | STK_CONTAINER_SEQUENTIAL,
    .row_extension = "bin",
    .endings = endings,
    .matches = matches_walk,
    .open = open_reader,
    .step = walk_step,
    .close = close_reader,
};
