/* format/value/value_private.h: the functions of each encoding for value.c; private to the room.
 * Owner: the value. Threads: one.
 * Memory: see value.h.
 * Bound: see value.h. */
#ifndef FORMAT_VALUE_VALUE_PRIVATE_H
#define FORMAT_VALUE_VALUE_PRIVATE_H

#include "format/value/value.h"

#define STK_VALUE_ADVICE                                                                           \
    "look at the member with 'stoker cat'; on_error=\"skip\" replaces damaged samples"

/* ---- npy.c, npz.c ---- */

int stk_npy_parse(struct stk_value_array *array, struct stk_view bytes, struct stoker_error *error);
int stk_value_array_copy(const struct stk_value_array *array, uint32_t dtype, void *out,
                         struct stoker_error *error);

struct stk_npz_member { /* the requested array */
    struct stk_view packed;
    uint64_t bytes; /* decompressed */
    uint32_t method, crc;
};
int stk_npz_find(struct stk_npz_member *member, struct stk_view bytes, const char *name,
                 struct stoker_error *error);
/* out: member->bytes. */
int stk_npz_inflate(const struct stk_npz_member *member, uint8_t *out, struct stoker_error *error);

/* ---- json.c, msgpack.c: a tree ---- */

enum stk_value_node_kind {
    STK_VALUE_NODE_NULL,
    STK_VALUE_NODE_BOOL,
    STK_VALUE_NODE_NUMBER,
    STK_VALUE_NODE_TEXT,
    STK_VALUE_NODE_BYTES,
    STK_VALUE_NODE_LIST,
    STK_VALUE_NODE_MAP,
    STK_VALUE_NODE_OVERFLOW,  /* a real number beyond the largest double */
    STK_VALUE_NODE_SURROGATE, /* text with half a surrogate pair */
};

struct stk_value_node {
    uint32_t kind;            /* enum stk_value_node_kind */
    struct stk_number number; /* NUMBER, BOOL (0, 1) */
    struct stk_view text;     /* TEXT, BYTES; of the tree */
    uint64_t length;          /* LIST, MAP */
};

/* The operations on the nodes of one encoding. */
struct stk_value_tree_type {
    void (*read)(const void *node, struct stk_value_node *out);
    const void *(*item)(const void *list, uint64_t index);                  /* index < length */
    const void *(*member)(const void *map, const char *name, size_t bytes); /* NULL: none */
    /* The pair after `before` (NULL: the first pair). A map has `length` pairs. */
    const void *(*pair)(const void *map, const void *before, struct stk_value_node *name_out,
                        const void **value_out);
    /* As stk_value_validate; NULL: parsing has validated the document. */
    int (*check)(const struct stk_value_tree *tree, struct stoker_error *error);
    void (*close)(struct stk_value_tree *tree);
};

struct stk_value_tree {
    const struct stk_value_tree_type *type;
    const void *root;
    void *document; /* owned; of the library */
};

uint64_t stk_json_memory_bytes(struct stk_view bytes);
/* Texts in place of values that jansson refuses. U+FDD0 is no character: no text of a document
 * should have it. */
#define STK_JSON_NATURAL "\xef\xb7\x90" /* begins the text of an integer above INT64_MAX */
#define STK_JSON_OVERFLOW STK_JSON_NATURAL "r"
#define STK_JSON_SURROGATE STK_JSON_NATURAL "t"
/* json_lenient.c: writes a document again so that jansson reads it, see there. The caller frees
 * copy_out->data. Returns 0 or -ENOMEM. */
int stk_json_rewrite(struct stk_view in, struct stk_view *copy_out, struct stoker_error *error);
int stk_json_open(struct stk_value_tree *tree, struct stk_view bytes, struct stoker_error *error);
/* Walks over the headers, to find counts that the bytes cannot have before memory is allocated. */
int stk_msgpack_check(struct stk_view bytes, uint64_t *memory_bytes_out,
                      struct stoker_error *error);
int stk_msgpack_open(struct stk_value_tree *tree, struct stk_view bytes,
                     struct stoker_error *error);

/* ---- value_tree_flat.c: a tree as bytes ---- */

/* out: aligned to 8 bytes. Returns 0, or STOKER_ERROR_LIMIT if it is more than capacity. */
int stk_value_tree_flatten(const struct stk_value_tree *tree, uint8_t *out, uint64_t capacity,
                           uint64_t *bytes_out, struct stoker_error *error);
/* Copies the bytes first: their writer may still change them. Returns 0, -ENOMEM or
 * STOKER_ERROR_CORRUPT. */
int stk_value_tree_flat_open(struct stk_value_tree *tree, struct stk_view bytes,
                             struct stoker_error *error);

/* ---- value_tree.c ---- */

/* Follows the path to its end, or to its first `*`. */
int stk_value_tree_find(const struct stk_value_tree *tree, const char *path,
                        struct stk_value_location *place_out, struct stoker_error *error);
int stk_value_tree_shape(const struct stk_value_tree *tree, const struct stk_value_location *place,
                         struct stk_value_shape *shape_out, struct stoker_error *error);
int stk_value_tree_copy(const struct stk_value_tree *tree, const struct stk_value_location *place,
                        const struct stk_value_shape *shape, uint32_t dtype, void *out,
                        struct stoker_error *error);
const char *stk_value_node_name(uint32_t kind);

#endif
