/* checkpoint/foreign/dcp_metadata.h: the .metadata of torch.distributed.checkpoint.
 * Untrusted input.
 * Owner: the caller. Threads: one. Memory: 300 bytes an item. Bound: STK_PICKLE_BYTES_MAX. */
#ifndef CHECKPOINT_FOREIGN_DCP_METADATA_H
#define CHECKPOINT_FOREIGN_DCP_METADATA_H

#include "checkpoint/layout/json_text.h"
#include "checkpoint/pickle/pickle.h"

#define STK_DCP_NAME_BYTES 4096u

/* The place of an item: a chunk of a tensor, or the bytes of a value. */
struct stk_dcp_item {
    struct stk_view name; /* fqn; borrowed from the pickle, as file */
    struct stk_view file; /* a plain file name */
    uint64_t origin[STOKER_CHECKPOINT_DIMENSIONS_MAX];
    uint32_t dimension_count;
    bool chunk; /* false: bytes */
    uint64_t offset, bytes;
    uint32_t number; /* of its file; the opener's */
};
struct stk_dcp_chunk {
    uint64_t origin[STOKER_CHECKPOINT_DIMENSIONS_MAX], sizes[STOKER_CHECKPOINT_DIMENSIONS_MAX];
};
struct stk_dcp_tensor {
    struct stk_view name;
    const char *dtype; /* of safetensors */
    uint64_t shape[STOKER_CHECKPOINT_DIMENSIONS_MAX];
    uint32_t dimension_count;
    const struct stk_pickle_value *chunks; /* a list */
};
struct stk_dcp_metadata {
    struct stk_pickle pickle;
    struct stk_dcp_item *items; /* owned; by name and origin */
    uint64_t item_count;
    struct stk_dcp_tensor *tensors; /* owned */
    uint64_t tensor_count;
    struct stk_view *bytes; /* owned: names of values that are no tensors */
    uint64_t bytes_count;
    const struct stk_pickle_value *planner; /* paths of the entries by name; NULL: none */
};

int stk_dcp_metadata_parse(struct stk_dcp_metadata *metadata, struct stk_view bytes,
                           struct stoker_error *error);
void stk_dcp_metadata_deinit(struct stk_dcp_metadata *metadata); /* zeroed is allowed */
/* Reads a ChunkStorageMetadata. */
int stk_dcp_chunk(const struct stk_dcp_metadata *metadata, const struct stk_dcp_tensor *tensor,
                  const struct stk_pickle_value *value, struct stk_dcp_chunk *chunk,
                  struct stoker_error *error);
/* origin NULL: bytes. NULL if there is no such item. */
const struct stk_dcp_item *stk_dcp_find(const struct stk_dcp_metadata *metadata,
                                        struct stk_view name, const uint64_t *origin,
                                        uint32_t dimension_count);

/* Prints the value of an entry: of the tensors, then of the bytes. */
struct stk_dcp_printer {
    int (*print)(void *context, uint64_t number, struct stk_json_text *json,
                 struct stoker_error *error);
    void *context;
};
/* dcp_tree.c: appends the nested tree. Returns false if the planner noted no valid paths: json has
 * to be thrown away. */
bool stk_dcp_print_tree(const struct stk_dcp_metadata *metadata,
                        const struct stk_dcp_printer *printer, struct stk_json_text *json,
                        struct stoker_error *error);

#endif
