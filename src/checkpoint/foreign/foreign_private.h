/* checkpoint/foreign/foreign_private.h: what the readers of this room share.
 * Owner: the caller. Threads: one. Memory: see foreign.h. Bound: see foreign.h. */
#ifndef CHECKPOINT_FOREIGN_FOREIGN_PRIVATE_H
#define CHECKPOINT_FOREIGN_FOREIGN_PRIVATE_H

#include "checkpoint/foreign/foreign.h"
#include "checkpoint/foreign/zip_archive.h"
#include "checkpoint/pickle/pickle.h"

#define STK_FOREIGN_ADVICE "copy the file again, or use another checkpoint"
#define STK_FOREIGN_LEVELS_MAX 200u /* of containers in containers */
#define STK_FOREIGN_NAME_BYTES 4096u

/* A file of torch.save(): its directory and its pickle. */
struct stk_torch_file {
    struct stk_foreign_source *source; /* borrowed */
    struct stk_zip_archive archive;
    struct stk_pickle pickle;
    uint8_t *bytes; /* owned: of the pickle */
    char prefix[256];
};
int stk_torch_open(struct stk_torch_file *file, struct stk_foreign_source *source,
                   struct stoker_error *error);
void stk_torch_deinit(struct stk_torch_file *file); /* zeroed is allowed */

/* A strided array in a storage. */
struct stk_torch_array {
    const struct stk_zip_archive_member *member;
    const char *dtype;
    uint32_t element_bytes, dimension_count;
    uint64_t first; /* byte of its first element in the member */
    uint64_t shape[STOKER_CHECKPOINT_DIMENSIONS_MAX], strides[STOKER_CHECKPOINT_DIMENSIONS_MAX];
};
/* Fills *array from a call of _rebuild_tensor, and checks its bounds. name: for errors. */
int stk_torch_array(const struct stk_torch_file *file, const struct stk_pickle_value *value,
                    const char *name, struct stk_torch_array *array, struct stoker_error *error);
/* Writes a value as a node of stoker.tree; scalars also to values (flat, NULL: not). Tensors are
 * added with their member; path: their name so far. */
struct stk_torch_walk {
    const struct stk_torch_file *file;
    struct stk_json_text *tree, *values;
    /* Called for each tensor, which is named by *path. */
    int (*tensor)(void *context, const char *name, const struct stk_torch_array *array,
                  struct stoker_error *error);
    void *context;
    char path[STK_FOREIGN_NAME_BYTES];
    size_t path_bytes;
    uint32_t level;
    uint64_t steps;
    struct stoker_error *error;
};
int stk_torch_walk(struct stk_torch_walk *walk, const struct stk_pickle_value *value);
/* Appends a text of a pickle as a JSON string. */
int stk_torch_print_text(struct stk_json_text *json, struct stk_view text,
                         struct stoker_error *error);

/* The description of a new tensor. */
struct stk_foreign_form {
    const char *name, *dtype;
    const uint64_t *shape;
    uint32_t dimension_count, piece_count;
};
/* Adds a tensor to *foreign (grown as needed) with room for pieces. Returns NULL without memory. */
struct stk_foreign_tensor *stk_foreign_add_tensor(struct stk_foreign *foreign, uint64_t *capacity,
                                                  const struct stk_foreign_form *form);
/* Room for a file: its number, or UINT32_MAX without memory. */
uint32_t stk_foreign_add_file(struct stk_foreign *foreign, uint32_t *capacity, const char *name,
                              uint64_t bytes);
/* Sets piece `index` of a tensor. The arrays are copied; origin NULL: zeros. */
void stk_foreign_set_piece(struct stk_foreign_tensor *tensor, uint32_t index,
                           const struct stk_foreign_piece *piece);
/* Whether the pieces are boxes within the tensor that cover it once. */
int stk_foreign_check_pieces(const struct stk_foreign_tensor *tensor, struct stoker_error *error);
/* No two tensors may have the same name. */
int stk_foreign_check_names(const struct stk_foreign *foreign, struct stoker_error *error);

int stk_foreign_open_torch(struct stk_foreign *foreign, struct stoker_engine *engine,
                           const struct stk_checkpoint_place *place, struct stoker_error *error);
int stk_foreign_open_dcp(struct stk_foreign *foreign, struct stoker_engine *engine,
                         const struct stk_checkpoint_place *place, struct stoker_error *error);

#endif
