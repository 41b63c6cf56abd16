/* order/sampling/sampling_table.h: the file with the tables of a sampler (chosen samples, weights,
 * classes): built once, mapped by every process and used in place. Format: docs/formats.md.
 *
 *   subset, alias, classes --image--> bytes --written and mapped by loader/sampler--> bytes
 *   bytes --open: header, footer, checksums of pages--> subset, alias, classes, borrowed
 *                              each page is checked at its first use; numbers are not trusted
 *
 * Pure. Owner: the sampler. Threads: look-ups: any. Memory: a bit a page, and the image's maker's.
 * Bound: STK_ORDER_SAMPLES_MAX samples; alias and classes 2^32 - 1. */
#ifndef ORDER_SAMPLING_SAMPLING_TABLE_H
#define ORDER_SAMPLING_SAMPLING_TABLE_H

#include "base/paged_file.h"
#include "order/sampling/sampling.h"

#define STK_SAMPLING_TABLE_HEAD_MAGIC "STOKERTB"
#define STK_SAMPLING_TABLE_FOOT_MAGIC "BTREKOTS"
#define STK_SAMPLING_TABLE_VERSION 1u
#define STK_SAMPLING_TABLE_PAGE_BYTES STK_PAGED_FILE_PAGE_BYTES

/* Little-endian, as the machines that stoker supports. */
struct stk_sampling_table_head {
    char magic[8];
    uint32_t version, page_bytes;
};

enum stk_sampling_table_part {
    STK_SAMPLING_TABLE_WORDS, /* of the subset, as the next two: u64 */
    STK_SAMPLING_TABLE_RANKS,
    STK_SAMPLING_TABLE_SELECTS,
    STK_SAMPLING_TABLE_THRESHOLDS, /* of the weights, as the next: u32 */
    STK_SAMPLING_TABLE_ALIASES,
    STK_SAMPLING_TABLE_STARTS,  /* of the classes: u64 */
    STK_SAMPLING_TABLE_SAMPLES, /* in the sequence of their classes: u32 */
    STK_SAMPLING_TABLE_PARTS,
};

struct stk_sampling_table_foot {
    char magic[8];
    uint32_t version, page_bytes;
    uint64_t file_bytes;
    uint64_t pages_at, pages_sum; /* sums of pages follow all parts; their sum */
    uint64_t sample_count;        /* of the data set */
    uint64_t count;               /* of the subset, or sample_count */
    uint64_t class_count;         /* 0: none */
    uint64_t parts[STK_SAMPLING_TABLE_PARTS]
                  [2];       /* where each begins, a multiple of 8, and its bytes; 0, 0 */
    uint8_t identity[32];    /* of the data set */
    uint8_t rule_digest[32]; /* of the request */
    uint64_t foot_sum;
};

/* The last 8 bytes before the checksums may be the data stamp: no part contains them. Tables of
 * earlier versions have none. */

/* Content of a file, borrowed. NULL: none. alias and classes number the samples of the subset. */
struct stk_sampling_table_content {
    uint64_t sample_count;
    const struct stk_subset *subset;
    const struct stk_alias_table *alias;
    const struct stk_class_balance *classes;
    uint8_t identity[32], rule_digest[32];
    uint64_t data_stamp; /* of the times of the shards that were read; 0: unknown, not stored */
};

/* Makes the bytes of a file; free them with stk_free. The same content gives the same bytes. */
int stk_sampling_table_image(const struct stk_sampling_table_content *content,
                             struct stk_view *image_out, struct stoker_error *error);

struct stk_sampling_table {
    struct stk_view image; /* borrowed */
    struct stk_sampling_table_foot foot;
    struct stk_paged_file file; /* the image's pages */
    char *name;                 /* owned: for errors */
    uint64_t data_stamp;        /* 0: not in the file */
    /* count 0: not in the file. */
    struct stk_subset subset;
    struct stk_alias_table alias;
    struct stk_class_balance classes;
};

/* Opens a table in O(1). image: at a multiple of 8, borrowed until close. Returns 0 on success,
 * STOKER_ERROR_FORMAT if it is not a table, STOKER_ERROR_UNSUPPORTED if it has another version,
 * STOKER_ERROR_CORRUPT, -ENOMEM. The tables inside are valid until close. */
int stk_sampling_table_open(struct stk_sampling_table **table_out, struct stk_view image,
                            const char *name, struct stoker_error *error);
void stk_sampling_table_close(struct stk_sampling_table *table); /* NULL is fine */

#endif
