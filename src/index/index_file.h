/* index/index_file.h: the format of the index file; private to this folder. docs/formats.md
 * describes it for others.
 *
 *   head | blocks of shards, or files of a folder | records | text | page checksums | footer
 *
 *   open --footer, records, text--> ready --first use of a page--> its checksum is verified once;
 *                                                                  its numbers stay untrusted:
 *                                                                  the file may change in place
 *
 * Numbers are little-endian; 8-byte numbers are aligned to 8 bytes.
 * Owner: the index. Threads: any after open_file.
 * Memory: one bit per page.
 * Bound: the size of the file; every offset in it is checked before it is used. */
#ifndef INDEX_INDEX_FILE_H
#define INDEX_INDEX_FILE_H

#include "base/paged_file.h"
#include "index/index_shard.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is used as it is stored");

#define STK_INDEX_FILE_HEAD_MAGIC "STOKERIX"
#define STK_INDEX_FILE_FOOT_MAGIC "XIREKOTS"
#define STK_INDEX_FILE_VERSION 2u
#define STK_INDEX_FILE_PAGE_BYTES STK_PAGED_FILE_PAGE_BYTES
/* Numbers of a near column that share a base. */
#define STK_INDEX_FILE_GROUP 32u

enum stk_index_file_kind { STK_INDEX_FILE_TARS = 1, STK_INDEX_FILE_FOLDER };

enum stk_index_file_flag {                           /* of a record */
                           STK_INDEX_FILE_BYTES = 1, /* offsets count bytes, else units of 512 */
                           STK_INDEX_FILE_SUMS = 2,
                           STK_INDEX_FILE_LABELS = 4,
                           STK_INDEX_FILE_DIGEST = 8,
};

/* The columns of a block, with a number per member or sample. Each number has as many bytes as the
 * largest of its column needs. In a grouped column neighbours are of similar size: it stores their
 * differences from the smallest number of the group. */
enum stk_index_file_column {
    STK_INDEX_COLUMN_OFFSETS, /* grouped: of members */
    STK_INDEX_COLUMN_FIRSTS,  /* grouped: first member of each sample; last: number of members */
    STK_INDEX_COLUMN_KEYS,    /* grouped: begin of the key of each sample; last: end of the keys */
    STK_INDEX_COLUMN_SIZES,   /* of members */
    STK_INDEX_COLUMN_EXTENSIONS,
    STK_INDEX_COLUMN_LABELS, /* of samples: the label and 1, modulo 2^64; so 0: none */
    STK_INDEX_COLUMNS,
    STK_INDEX_COLUMNS_GROUPED = STK_INDEX_COLUMN_SIZES,
};

struct stk_index_file_head {
    char magic[8];
    uint32_t version, page_bytes;
};

/* The record of a container. Its block, at block_at (a multiple of 8), has, in this order:
 *   u64 sums[members]                         if SUMS
 *   u64 bases[groups] of each grouped column    the smallest number of each STK_INDEX_FILE_GROUP
 *   numbers of each column                    widths[column] bytes each
 *   u8 keys[keys_bytes]
 * and, at the next multiple of 8, the image of its seek points (format/compress/seek_points.h), if
 * any. */
struct stk_index_file_record {
    uint64_t path_at, object_bytes, bytes, first_sample, block_at;
    uint32_t path_bytes, sample_count, member_count, keys_bytes;
    uint8_t compression, flags;        /* enum stk_compression, enum stk_index_file_flag */
    uint8_t widths[STK_INDEX_COLUMNS]; /* 0 to 8; 0: all numbers are 0, or their base */
    uint32_t seek_points_bytes;        /* 0: none */
    uint32_t zero;
    uint8_t identity[32], sha256[32];
};
_Static_assert(sizeof(struct stk_index_file_record) == 136, "as in docs/formats.md");

/* The record of a file of a folder: its key is the path. */
struct stk_index_file_entry {
    uint64_t path_at;
    uint16_t path_bytes, extension;
    int32_t label;
};
_Static_assert(sizeof(struct stk_index_file_entry) == 16, "as in docs/formats.md");

struct stk_index_file_section {
    uint64_t at, bytes;
};

struct stk_index_file_foot {
    char magic[8];
    uint32_t version, page_bytes;
    uint64_t file_bytes;
    uint64_t pages_at;  /* the end of the data, and the begin of its page checksums */
    uint64_t pages_sum; /* XXH3-64 of the page checksums */
    uint32_t kind, sequential;
    uint64_t shard_count, sample_count, member_count, bytes, block_samples;
    uint32_t member_gap_max, key_bytes_max;
    uint8_t identity[32];
    struct stk_index_file_section records;     /* stk_index_file_record or stk_index_file_entry */
    struct stk_index_file_section paths;       /* of containers, without separators */
    struct stk_index_file_section extensions;  /* sorted, each with a NUL */
    struct stk_index_file_section classes;     /* in order, each with a NUL */
    struct stk_index_file_section sums;        /* checksums of a folder's files; or empty */
    uint32_t skipped[STK_INDEX_SKIPPED_KINDS]; /* 0 in files of earlier versions */
    uint64_t foot_sum;                         /* XXH3-64 of the footer before it */
};
_Static_assert(sizeof(struct stk_index_file_foot) == 232, "as in docs/formats.md");

/* Offsets of the parts of a block, from block_at. Absent parts have no bytes. */
struct stk_index_file_block {
    uint64_t checksums, bases[STK_INDEX_COLUMNS_GROUPED], numbers[STK_INDEX_COLUMNS], keys,
        seek_points, end;
};

/* True if a path stays below its root: no part is '..', it does not begin with '/', and has no NUL.
 * An index comes from the place of the data, so it must not refer to other files. */
bool stk_index_file_path_is_safe(struct stk_view path);
void stk_index_file_block_layout(const struct stk_index_file_record *record,
                                 struct stk_index_file_block *block_out);
/* The number of bytes per unit of an offset. */
static inline uint64_t stk_index_file_unit(const struct stk_index_file_record *record)
{
    return record->flags & STK_INDEX_FILE_BYTES ? 1 : STK_INDEX_OFFSET_UNIT;
}
/* The number of entries of a column. */
uint64_t stk_index_file_column_count(const struct stk_index_file_record *record, uint32_t column);
/* Reads a little-endian number of at most 8 bytes. */
static inline uint64_t stk_index_file_load(const uint8_t *from, uint32_t width)
{
    uint64_t number = 0;

    memcpy(&number, from, width);
    return number;
}

struct stk_index_map {
    struct stk_io *io;                     /* NULL: borrowed bytes in memory */
    struct stk_view image;                 /* mapped, or borrowed */
    struct stk_paged_file file;            /* the image's pages */
    struct stk_index_file_record *records; /* tars; owned: copies, which were checked */
    uint32_t extension_count;
    struct stk_index_file_foot foot; /* a copy */
    char name[];                     /* for errors; ends with NUL */
};

/* Returns the bytes [at, at + bytes), after their pages are verified; NULL: out of bounds, or
 * damaged. */
const void *stk_index_map_view(const struct stk_index_map *map, uint64_t at, uint64_t bytes,
                               struct stoker_error *error);
int stk_index_map_fail(const struct stk_index_map *map, uint64_t at, const char *detail,
                       struct stoker_error *error);
void stk_index_map_close(struct stk_index_map *map);

/* Look-ups of a mapped index. index.c has checked the arguments. */
int stk_index_map_sample(const struct stk_index_map *map, uint64_t sample,
                         struct stk_sample *sample_out, struct stoker_error *error);
int stk_index_map_member(const struct stk_index_map *map, const struct stk_sample *sample,
                         uint32_t member, struct stk_member *member_out,
                         struct stoker_error *error);
int stk_index_map_checksum(const struct stk_index_map *map, const struct stk_sample *sample,
                           uint32_t member, uint64_t *sum_out, struct stoker_error *error);
/* Sets *path_out to the path below the root, valid until close. */
int stk_index_map_path(const struct stk_index_map *map, uint32_t shard, struct stk_view *path_out,
                       struct stoker_error *error);
/* Returns bytes of a container's seek points; they must be within the bounds. */
const void *stk_index_map_seek_points(const struct stk_index_map *map, uint32_t shard, uint64_t at,
                                      uint64_t bytes, struct stoker_error *error);
/* Gets the complete block of a container, for copies. */
int stk_index_map_block(const struct stk_index_map *map, uint32_t shard, const uint8_t **data_out,
                        struct stk_index_file_block *block_out, struct stoker_error *error);

#endif
