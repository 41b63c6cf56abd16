/* checkpoint/layout/name_index.h: stoker.index, the names of all tensors of a step, sorted.
 *
 *   "stkidx1\n" | files, names, bytes of the table: 8 bytes each | tensors of each file: 8 bytes
 *   each | offset of each group in the table: 8 bytes each | table
 *
 * Numbers have little endian. A group has STK_NAME_INDEX_GROUP names, the last one may have less.
 * An entry of the table is: bytes that its name shares with the name before (0 for the first one of
 * a group), bytes that follow, these bytes, number of the tensor. Lengths and numbers are LEB128.
 * Tensors are numbered over all files, in their order; a name that two files have is listed twice,
 * the lower number first. The index is derived from the headers: a reader without it, or with a
 * damaged one, reads all headers instead.
 * Owner: the caller. Threads: any after parse. Memory: the bytes of the file: 15 to 30 a name.
 * Bound: STK_NAME_INDEX_BYTES_MAX. */
#ifndef CHECKPOINT_LAYOUT_NAME_INDEX_H
#define CHECKPOINT_LAYOUT_NAME_INDEX_H

#include "base/base.h"

#define STK_NAME_INDEX_NAME "stoker.index"
#define STK_NAME_INDEX_GROUP 16u
#define STK_NAME_INDEX_BYTES_MAX (1u << 30)
#define STK_NAME_INDEX_TENSORS_MIN 10000u /* a step with less has no index */

/* A name, and the number of its tensor. */
struct stk_named_tensor {
    const char *name;
    uint64_t tensor;
};

/* For qsort(): by name, then by number. */
int stk_named_tensor_compare(const void *a, const void *b);

struct stk_name_index {
    uint8_t *data; /* owned */
    uint64_t file_count, name_count, table_bytes;
    const uint8_t *counts, *groups, *table; /* in data */
};

struct stk_name_index_input {
    struct stk_named_tensor *names; /* are sorted */
    uint64_t name_count;
    const uint64_t *counts; /* the tensors of each file */
    uint64_t file_count;
};
/* Returns 0 and sets *data_out (free with stk_free); STOKER_ERROR_LIMIT; or -ENOMEM. */
int stk_name_index_make(const struct stk_name_index_input *input, uint8_t **data_out,
                        uint64_t *bytes_out, struct stoker_error *error);
/* Takes data, also if it fails. Untrusted input: returns STOKER_ERROR_FORMAT if the sizes do not
 * fit. Entries are checked when they are read. */
int stk_name_index_parse(struct stk_name_index *index, uint8_t *data, uint64_t bytes,
                         struct stoker_error *error);
void stk_name_index_deinit(struct stk_name_index *index); /* zeroed is allowed */
uint64_t stk_name_index_tensors(const struct stk_name_index *index, uint64_t file);
/* Returns true and sets *tensor_out to the lowest number of a name; false if there is none, or if
 * the entry is not valid. */
bool stk_name_index_find(const struct stk_name_index *index, const char *name,
                         uint64_t *tensor_out);

#endif
