/* format/container.h: the interface of container formats: lists the members of a shard, from bytes
 * that the caller reads.
 *
 *   open -> step -> NEED (offset, bytes) -> step (these bytes) -> ... -> MEMBER -> step -> ... ->
 * END
 *
 * The format decides which bytes it requests. A format that stores a header in front of each member
 * (tar) requests bytes from front to back. A format with a footer or an index part (Parquet, MDS)
 * requests that part first, and returns all members from it. Callers handle both in the same loop.
 * A new format is a folder in src/format and a row of the table in format/detect/.
 * Pure: no I/O, no clock. Owner: the scanner. Threads: one per container. Memory: the format's own
 * state. Bound: name_bytes_max, header_bytes_max. */
#ifndef FORMAT_CONTAINER_H
#define FORMAT_CONTAINER_H

#include "base/base.h"

/* So many bytes of a file's begin are enough for any format's `matches`. */
enum {
    STK_CONTAINER_HEAD_BYTES = 16,
    STK_CONTAINER_ROW_NAME_BYTES = 64,
    STK_CONTAINER_ENDINGS_MAX = 256
};

enum stk_container_flag {
    /* Members are listed in a footer or an index part. The size of the file must be known, and any
     * bytes of it are requested in any order: a compressed file is refused. */
    STK_CONTAINER_FOOTER = 1,
    /* The data of a member can be read only after the data of all members before it. Without this
     * flag the bytes at the member's offset are the member. */
    STK_CONTAINER_SEQUENTIAL = 2,
    /* Members are rows without names: row_extension and the row's number make the name. */
    STK_CONTAINER_ROWS = 4
};

enum stk_container_event { STK_CONTAINER_NEED = 1, STK_CONTAINER_MEMBER, STK_CONTAINER_END };

enum stk_member_kind {
    STK_MEMBER_FILE = 1,
    STK_MEMBER_ROW,
    STK_MEMBER_DIRECTORY,
    STK_MEMBER_LINK, /* a symbolic one */
    STK_MEMBER_OTHER,
    STK_MEMBER_HARD_LINK /* the bytes of the member `link`, which comes before it */
};

enum stk_member_checksum { STK_MEMBER_CHECKSUM_NONE = 0, STK_MEMBER_CHECKSUM_CRC32C };

struct stk_container_options {
    uint64_t size;             /* of the (decompressed) file; UINT64_MAX: unknown (a stream) */
    uint32_t name_bytes_max;   /* 0: the format's default */
    uint32_t header_bytes_max; /* likewise: of one header, or of the footer */
};

struct stk_container_step {
    uint32_t event;         /* enum stk_container_event */
    uint32_t kind;          /* MEMBER: enum stk_member_kind */
    uint64_t offset;        /* NEED: of the bytes to read; MEMBER: of the data */
    uint64_t bytes;         /* NEED: bytes that are needed to continue; MEMBER: of the data */
    uint64_t header;        /* MEMBER: offset of its first header; FOOTER formats: of its entry */
    struct stk_view name;   /* MEMBER: valid until the next step; any bytes but NUL; rows: empty */
    struct stk_view link;   /* MEMBER, HARD_LINK: the name of the target, valid likewise */
    uint32_t checksum_kind; /* MEMBER: enum stk_member_checksum */
    uint32_t checksum;      /* MEMBER: of the data, as the container states it */
};

/* The first field of each format's state. */
struct stk_container {
    const struct stk_container_format *format;
    uint64_t size; /* as in the options */
};

/* A container format: its properties and operations. All functions are called through the
 * functions below, which state what they return. */
struct stk_container_format {
    const char *name;          /* "tar" */
    uint32_t flags;            /* enum stk_container_flag */
    uint32_t block_bytes;      /* with find_start: members begin at multiples of it; a power of 2 */
    const char *row_extension; /* ROWS: "bin"; else NULL */
    /* Endings of the names of shards in a folder, and NULL after them: ".tar". */
    const char *const *endings;
    /* True if a file of this path with this begin has the format. The head has at most
     * STK_CONTAINER_HEAD_BYTES, fewer if the file is shorter. */
    bool (*matches)(const char *path, struct stk_view head);
    int (*open)(struct stk_container **container_out, const struct stk_container_options *options,
                struct stoker_error *error);
    int (*step)(struct stk_container *container, struct stk_view bytes,
                struct stk_container_step *step_out, struct stoker_error *error);
    void (*close)(struct stk_container *container);
    /* A file can be scanned from several members at once if a format has these three. NULL: files
     * are scanned from the first member only. */
    void (*start_at)(struct stk_container *container, uint64_t offset);
    bool (*is_independent)(const struct stk_container *container);
    uint64_t (*find_start)(const struct stk_container_options *options, uint64_t offset,
                           struct stk_view block);
};

/* Returns 0 and sets *container_out, -ENOMEM, or STOKER_ERROR_UNSUPPORTED if the format has a
 * footer and the size is unknown. */
int stk_container_open(struct stk_container **container_out,
                       const struct stk_container_format *format,
                       const struct stk_container_options *options, struct stoker_error *error);
void stk_container_close(struct stk_container *container); /* NULL is allowed */

/* Advances to the next event. `bytes` answer the last NEED: they begin at its offset and stay valid
 * until the next NEED. More bytes than requested are used as far as they go; if there are fewer,
 * the rest is requested again; if there are none, the file ends at that offset. In other calls, the
 * first one included, `bytes` are ignored. A NEED never lies beyond the size.
 * Returns 0, or negative if the container is damaged: error->offset is where, error->key is the
 * member if it is known. All later calls fail, too. */
int stk_container_step(struct stk_container *container, struct stk_view bytes,
                       struct stk_container_step *step_out, struct stoker_error *error);

/* Begins at the member whose first header is at the offset. Call it before the first step, and only
 * if the format has find_start. */
void stk_container_start_at(struct stk_container *container, uint64_t offset);
/* True if the next members mean the same to a container that starts there. (A global header of a
 * tar changes all members after it.) */
bool stk_container_is_independent(const struct stk_container *container);
/* If a header may begin in this block at this offset of a file: the offset of the member to start
 * at, else 0. The result is a guess: data may look like a header. */
uint64_t stk_container_find_start(const struct stk_container_format *format,
                                  const struct stk_container_options *options, uint64_t offset,
                                  struct stk_view block);

/* The name of a row as a member: "000000012.bin". The view refers to `text`. */
struct stk_view stk_container_row_name(const struct stk_container_format *format, uint64_t row,
                                       char text[STK_CONTAINER_ROW_NAME_BYTES]);

#endif
