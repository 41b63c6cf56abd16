/* index/index_file.h: the file of an index; private to the room. docs/formats.md tells it to
 * others.
 *
 *   head | blocks of tars, or files of a folder | records | tables of text | sums of pages | foot
 *
 *   map --foot, sums, records, text--> ready --touch--> a page is checked once, then trusted to be
 *                                                       what was written, but not to be sane
 *
 * Numbers have their little end first; 8-byte numbers stand at multiples of 8.
 * Owner: the index. Threads: any after map. Memory: a bit a page.
 * Bound: what the file holds; every place in it is checked before it is read. */
#ifndef INDEX_INDEX_FILE_H
#define INDEX_INDEX_FILE_H

#include "base/paged_file.h"
#include "index/index_shard.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is used as it lies");

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

/* What a block knows of each member or sample, a column each. Numbers of a column take as many
 * bytes as its largest needs; of a near column, whose neighbours are of like size, that is the
 * largest distance from the smallest of its group. */
enum stk_index_file_column {
    STK_INDEX_COLUMN_OFFSETS, /* near: of members */
    STK_INDEX_COLUMN_FIRSTS,  /* near: first member of each sample; at last the number of members */
    STK_INDEX_COLUMN_KEYS,  /* near: where the key of each sample begins; at last where they end */
    STK_INDEX_COLUMN_SIZES, /* of members */
    STK_INDEX_COLUMN_EXTENSIONS,
    STK_INDEX_COLUMN_LABELS, /* of samples: the label and 1, modulo 2^64; so 0: none */
    STK_INDEX_COLUMNS,
    STK_INDEX_COLUMNS_GROUPED = STK_INDEX_COLUMN_SIZES,
};

struct stk_index_file_head {
    char magic[8];
    uint32_t version, page_bytes;
};

/* Of a tar. Its block, at block_at (a multiple of 8), has, in this order:
 *   u64 sums[members]                         if SUMS
 *   u64 bases[groups] of each near column     the smallest number of each STK_INDEX_FILE_GROUP
 *   numbers of each column                    widths[column] bytes each
 *   u8 keys[keys_bytes]
 * and, at the next multiple of 8, the image of its access points (format/compress/seek_points.h),
 * if any. */
struct stk_index_file_record {
    uint64_t path_at, object_bytes, bytes, first_sample, block_at;
    uint32_t path_bytes, sample_count, member_count, keys_bytes;
    uint8_t compression, flags;        /* enum stk_compression, enum stk_index_file_flag */
    uint8_t widths[STK_INDEX_COLUMNS]; /* 0 to 8; 0: all numbers are 0, or their base */
    uint32_t seek_points_bytes;        /* of access points; 0: none */
    uint32_t zero;
    uint8_t identity[32], sha256[32];
};
_Static_assert(sizeof(struct stk_index_file_record) == 136, "as in docs/formats.md");

/* Of a folder: the key is the path. */
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
    uint64_t pages_at;  /* where the data ends and its pages' sums begin */
    uint64_t pages_sum; /* XXH3-64 of those sums */
    uint32_t kind, sequential;
    uint64_t shard_count, sample_count, member_count, bytes, block_samples;
    uint32_t join_distance, key_bytes_max;
    uint8_t identity[32];
    struct stk_index_file_section records;    /* stk_index_file_record or stk_index_file_entry */
    struct stk_index_file_section paths;      /* of tars, end to end */
    struct stk_index_file_section extensions; /* sorted, each with its NUL */
    struct stk_index_file_section classes;    /* in order, each with its NUL */
    struct stk_index_file_section sums;       /* of a folder's files; or nothing */
    uint64_t zero[2];
    uint64_t foot_sum; /* XXH3-64 of all of the foot before it */
};
_Static_assert(sizeof(struct stk_index_file_foot) == 232, "as in docs/formats.md");

/* Where the parts of a block begin, counted from block_at; what is absent takes nothing. */
struct stk_index_file_block {
    uint64_t checksums, bases[STK_INDEX_COLUMNS_GROUPED], numbers[STK_INDEX_COLUMNS], keys,
        seek_points, end;
};

/* A path from the root that stays below it: no part is '..', it does not begin with '/', and has no
 * NUL. An index is read from wherever the data came from, so it may not name other files. */
bool stk_index_file_path_is_safe(struct stk_view path);
void stk_index_file_block_layout(const struct stk_index_file_record *record,
                                 struct stk_index_file_block *block_out);
/* Bytes that an offset of 1 stands for. */
static inline uint64_t stk_index_file_unit(const struct stk_index_file_record *record)
{
    return record->flags & STK_INDEX_FILE_BYTES ? 1 : STK_INDEX_OFFSET_UNIT;
}
/* How many numbers a column has. */
uint64_t stk_index_file_column_count(const struct stk_index_file_record *record, uint32_t column);
/* Little end first, in so many bytes: 8 at most. */
static inline uint64_t stk_index_file_load(const uint8_t *from, uint32_t width)
{
    uint64_t number = 0;

    memcpy(&number, from, width);
    return number;
}

struct stk_index_map {
    struct stk_io *io;                           /* NULL: bytes in memory, lent */
    struct stk_view image;                       /* mapped, or lent */
    struct stk_paged_file file;                  /* the image's pages */
    const struct stk_index_file_record *records; /* tars; checked */
    uint32_t extension_count;
    struct stk_index_file_foot foot; /* a copy */
    char name[];                     /* for errors, with its NUL */
};

/* What lies at [at, at + bytes), its pages checked; NULL: out of bounds or damaged. */
const void *stk_index_map_view(const struct stk_index_map *map, uint64_t at, uint64_t bytes,
                               struct stoker_error *error);
int stk_index_map_fail(const struct stk_index_map *map, uint64_t at, const char *detail,
                       struct stoker_error *error);
void stk_index_map_close(struct stk_index_map *map);

/* Look-ups of a mapped index; arguments are checked by index.c. */
int stk_index_map_sample(const struct stk_index_map *map, uint64_t sample,
                         struct stk_sample *sample_out, struct stoker_error *error);
int stk_index_map_member(const struct stk_index_map *map, const struct stk_sample *sample,
                         uint32_t member, struct stk_member *member_out,
                         struct stoker_error *error);
int stk_index_map_checksum(const struct stk_index_map *map, const struct stk_sample *sample,
                           uint32_t member, uint64_t *sum_out, struct stoker_error *error);
/* Below the root; lent until close. */
int stk_index_map_path(const struct stk_index_map *map, uint32_t shard, struct stk_view *path_out,
                       struct stoker_error *error);
/* Some bytes of a tar's access points; within their bounds. */
const void *stk_index_map_seek_points(const struct stk_index_map *map, uint32_t shard, uint64_t at,
                                      uint64_t bytes, struct stoker_error *error);
/* The whole block of a tar, for copies. */
int stk_index_map_block(const struct stk_index_map *map, uint32_t shard, const uint8_t **data_out,
                        struct stk_index_file_block *block_out, struct stoker_error *error);

#endif
