/* index/index_shard.h: shards of an index in memory, for index.c and index_shard.c; private to the
 * room.
 *
 *   index.shards[i]:  empty -stk_index_shard_end-> container (a part) | file (a label)
 *
 * Owner: the index. Threads: slot i only by the builder of shard i until finish; `locked` with the
 * lock until finish; all const after it.
 * Memory: one block for each array of a part.
 * Bound: see index.h. */
#ifndef INDEX_INDEX_SHARD_H
#define INDEX_INDEX_SHARD_H

#include "base/base.h"
#include "index/index.h"
#include "index/string_table.h"

#include <pthread.h>

enum {
    STK_INDEX_EXTENSIONS_MAX = 65536,
    STK_INDEX_EXTENSION_BYTES_MAX = 1024,
    STK_INDEX_MEMBERS_MAX = 1 << 30
};
#define STK_INDEX_CLASSES_MAX (1u << 24)
/* Data in a tar begins at a block: 32 bits count the blocks of 2 TiB. */
enum { STK_INDEX_OFFSET_UNIT = 512 };

/* The members of one container, grouped by sample; samples in the order of their first member. */
struct stk_index_part {
    struct stk_string_table keys; /* number: sample of the shard */
    uint32_t *first_member;       /* sample_count + 1 of them */
    uint16_t *extensions;         /* of each member: number in index.locked.extensions */
    uint32_t *units;              /* offsets in units; NULL if wide */
    uint32_t *sizes;              /* NULL if wide */
    uint64_t *wide;               /* else NULL: offset, size, offset, size, ... */
    uint32_t member_count;
    uint64_t *checksums; /* of members; NULL: none */
    int64_t *labels;     /* of samples; NULL: none */
    uint64_t bytes;
    uint8_t identity[32];
    uint8_t *seek_points; /* image of the seek points; NULL: none */
    uint32_t seek_points_bytes;
    uint8_t sha256[32];
    bool has_digest;
    bool unverified; /* see stk_index_shard_set_unverified */
};

enum stk_index_shard_kind { STK_INDEX_SHARD_EMPTY = 0, STK_INDEX_SHARD_TAR, STK_INDEX_SHARD_FILE };

struct stk_index_shard {
    const char *path; /* in the arena */
    union {
        struct stk_index_part *part; /* tar: owned */
        int64_t label;
    } of;
    uint64_t object_bytes;
    uint16_t key_at, key_bytes; /* file: the key is path[key_at, key_at + key_bytes) */
    uint16_t extension;         /* file */
    uint8_t compression;        /* enum stk_compression */
    uint8_t kind;               /* enum stk_index_shard_kind */
};
_Static_assert(sizeof(struct stk_index_shard) == 32, "one for each file of a folder");

struct stk_index_arena_block {
    struct stk_index_arena_block *next;
    size_t used, capacity;
    char text[];
};

struct stk_index {
    struct stk_index_options options; /* const after open */
    struct stk_index_shard *shards;   /* owned; NULL: mapped */
    struct stk_index_map *map;        /* owned; NULL: in memory */
    char *root;                       /* owned; NULL: not set */
    pthread_mutex_t lock;
    struct {
        struct stk_string_table extensions;  /* each with a NUL */
        struct stk_string_table classes;     /* each with a NUL */
        struct stk_index_arena_block *arena; /* owned: paths */
        uint64_t *file_sums;                 /* owned: of each file of a folder; NULL: none */
        uint64_t file_sum_count;
    } locked;
    /* Const after finish: */
    bool finished, sequential, folder;
    uint64_t *starts; /* owned: shard_count + 1 first samples; NULL: sample i is shard i */
    uint64_t sample_count, member_count, bytes, block_samples;
    uint32_t skipped[STK_INDEX_SKIPPED_KINDS];
    uint8_t identity[32];
};

/* A member as it was added; stored compactly at the end of the shard. */
struct raw_member {
    uint64_t offset, bytes;
    uint32_t sample;
    uint32_t extension; /* number in the builder's words */
};

struct stk_index_shard_builder {
    struct stk_index *index; /* borrowed until end or abandon */
    uint32_t shard;
    struct stk_string_table keys;
    struct stk_string_table
        extensions;             /* lower case, with NUL: the index's lock is taken once each */
    struct raw_member *members; /* owned */
    uint32_t *last_member;      /* owned: of each sample */
    uint32_t member_count, member_capacity, sample_capacity;
    uint32_t sample; /* of the last member */
    bool added;      /* the last member was not skipped */
    struct stk_index_skipped skipped;
    struct stk_string_table
        unnamed; /* names of files that are no part of a sample: targets of links */
    uint64_t (*unnamed_places)[3]; /* owned: offset, bytes and checksum of each */
    uint32_t unnamed_capacity;
    uint32_t unnamed_last; /* the last member is this one, if it was not added */
    uint64_t *sums;        /* owned: of each member; NULL: none */
    int64_t *labels;       /* owned: of each sample; NULL: none */
    uint32_t sums_capacity, sum_count, labels_capacity;
    uint64_t file_sum; /* of the file */
    uint8_t sha256[32];
    bool has_digest, unproved;
    struct stk_view access;      /* owned; empty: none */
    bool joined;                 /* some members of a sample do not follow each other */
    struct stk_index_shard file; /* set by add_file; kind empty: not called */
    char path[];                 /* owned, with its NUL */
};

uint64_t stk_index_shard_sample_count(const struct stk_index_shard *shard);
/* Makes an index with its lock and options only; the caller adds the shards. NULL: no memory. */
struct stk_index *stk_index_new(const struct stk_index_options *options);
/* Copies the path, and the key if it is not empty, to the arena. NULL: no memory. Takes the lock.
 */
const char *stk_index_add_text(struct stk_index *index, const char *path, struct stk_view key);
/* Sets *number_out to the number of an extension (with its NUL). Takes the lock. */
int stk_index_add_extension(struct stk_index *index, struct stk_view text, uint32_t *number_out);
void stk_index_part_close(struct stk_index_part *part);
uint64_t stk_index_part_memory_bytes(const struct stk_index_part *part);

#endif
