/* format/value/value.h: values inside of a member: numbers, text and arrays of JSON, MessagePack,
 * npy and npz.
 *
 *   bytes --memory_bytes--> bound of the memory --open(encoding, path)--> value
 *     value --int, float, text, bytes--> one     value --get_shape--> sides --copy(dtype)--> array
 *
 * A path selects a part of JSON or MessagePack: names and indexes between dots, "objects.0.box".
 * `*` is each item of a list: "objects.*.box" is the list of all boxes. In an npz the path is the
 * name of an array, with or without ".npy". Without a path: the complete document (an npz with one
 * array: that).
 * Pure. Owner: the caller of open, who keeps the bytes. Threads: one.
 * Memory: a parsed tree, or an inflated array, within the bound.
 * Bound: memory_bytes_max, and the limits below. */
#ifndef FORMAT_VALUE_VALUE_H
#define FORMAT_VALUE_VALUE_H

#include "base/base.h"

#define STK_VALUE_RANK_MAX 8u     /* dimensions of an array */
#define STK_NPY_HEADER_MAX 65536u /* NumPy refuses more than 10,000 by default */
#define STK_NPZ_MEMBERS_MAX 65535u
#define STK_MSGPACK_DEPTH_MAX 24u /* lists in lists; the library's stack has 32 */
#define STK_JSON_DEPTH_MAX 256u   /* the library parses by recursion */
/* Deflate cannot do more than 1,032 to 1 (zlib, technical details). */
#define STK_NPZ_RATIO_MAX 1100u

enum stk_value_encoding {
    STK_VALUE_UNKNOWN,
    STK_VALUE_JSON,
    STK_VALUE_MSGPACK,
    STK_VALUE_NPY,
    STK_VALUE_NPZ
};

/* Returns the encoding by the last part of the extension ("json", "mp", "msg", "msgpack", "npy",
 * "npz"), else by the magic number of npy or npz. */
enum stk_value_encoding stk_value_encoding_of(const char *extension, struct stk_view bytes);

struct stk_value_shape {
    uint32_t rank;
    uint64_t sides[STK_VALUE_RANK_MAX];
    uint64_t count; /* their product */
};

/* One number as it was stored. */
enum stk_number_kind { STK_NUMBER_INT, STK_NUMBER_UINT, STK_NUMBER_REAL };
struct stk_number {
    uint32_t kind; /* enum stk_number_kind */
    union {
        int64_t integer;
        uint64_t natural;
        double real;
    };
};

/* The size of an element; 0 if there is no such dtype. */
uint32_t stk_dtype_bytes(uint32_t dtype);
const char *stk_dtype_name(uint32_t dtype);
/* Writes a number as dtype; floats are rounded to nearest-even. Returns false if the dtype is an
 * integer and the number is out of range or no integer. */
bool stk_number_write(void *out, uint32_t dtype, const struct stk_number *number);

/* The type of the numbers of an npy array. */
struct stk_number_type {
    char kind;     /* NumPy's kind: 'b' bool, 'i', 'u', 'f' */
    uint8_t bytes; /* 1, 2, 4, 8 */
    bool swapped;
};
struct stk_number stk_number_read(const struct stk_number_type *type, const uint8_t *data);
/* True if its numbers have the same bytes as those of dtype. */
bool stk_number_matches(const struct stk_number_type *type, uint32_t dtype);

/* ---- values ---- */

struct stk_value_array { /* of npy */
    struct stk_number_type type;
    bool fortran; /* the first index runs fastest */
    struct stk_value_shape shape;
    const uint8_t *data;
};

struct stk_value_tree; /* a parsed JSON or MessagePack document */

struct stk_value_location { /* in a tree */
    const void *node;
    const char *rest; /* of the path, from a `*` on; "" at its end */
};

struct stk_value {
    uint32_t encoding;
    struct stk_view bytes;       /* borrowed */
    const char *path;            /* borrowed; "": none */
    struct stk_value_tree *tree; /* JSON, MessagePack; owned */
    struct stk_value_location location;
    struct stk_value_array array; /* npy, npz */
    uint8_t *inflated;            /* npz; owned */
    uint64_t inflated_bytes;
};

/* Sets *memory_bytes_out to an upper bound of the memory that open takes. Returns 0, or an error if
 * an npz does not have the array. */
int stk_value_memory_bytes(uint32_t encoding, struct stk_view bytes, const char *path,
                           uint64_t *memory_bytes_out, struct stoker_error *error);
/* path: NULL is allowed. Returns 0, -ENOMEM, STOKER_ERROR_MISSING if there is nothing at the path,
 * STOKER_ERROR_CORRUPT, _TRUNCATED, _LIMIT, or STOKER_ERROR_UNSUPPORTED for arrays of objects
 * (pickles), structures, text, dates and complex numbers. */
int stk_value_open(struct stk_value *value, uint32_t encoding, struct stk_view bytes,
                   const char *path, uint64_t memory_bytes_max, struct stoker_error *error);
void stk_value_close(struct stk_value *value);
/* Finds another path of the same JSON or MessagePack. *value_out borrows the document of `of` and
 * must not be closed. Returns 0 or STOKER_ERROR_MISSING. */
int stk_value_find(const struct stk_value *of, const char *path, struct stk_value *value_out,
                   struct stoker_error *error);
/* Validates the complete JSON or MessagePack document, as its own library does: text of MessagePack
 * is UTF-8, keys are no lists or maps, timestamps are valid. Returns 0 or STOKER_ERROR_CORRUPT. */
int stk_value_validate(const struct stk_value *value, struct stoker_error *error);

/* ---- values that another process parses ---- */

/* Initializes the parsers: they read a random seed from the system, which a sandbox would refuse
 * later. */
void stk_value_start(void);
/* In the other process: writes a complete value (without path, but in an npz) as bytes; at most its
 * memory bound and the number of its own bytes. out: aligned to 8 bytes. Returns 0, or
 * STOKER_ERROR_LIMIT if that is more than capacity. */
int stk_value_serialize(const struct stk_value *value, uint8_t *out, uint64_t capacity,
                        uint64_t *bytes_out, struct stoker_error *error);
/* In this process: makes the value of `bytes` from what the other process wrote. That is untrusted
 * input, and is copied first, since the other process may still write. Returns 0, -ENOMEM or
 * STOKER_ERROR_CORRUPT. */
int stk_value_deserialize(struct stk_value *value, uint32_t encoding, struct stk_view bytes,
                          struct stk_view packed, struct stoker_error *error);

/* Return 0, or STOKER_ERROR_FORMAT if the value is no number. An array of one element is a number.
 */
int stk_value_int(const struct stk_value *value, int64_t *out, struct stoker_error *error);
int stk_value_uint(const struct stk_value *value, uint64_t *out, struct stoker_error *error);
int stk_value_float(const struct stk_value *value, double *out, struct stoker_error *error);
/* Sets *text_out, which is valid until close and is UTF-8. */
int stk_value_text(const struct stk_value *value, struct stk_view *text_out,
                   struct stoker_error *error);
/* An empty list has one side of 0. count is at most the number of bytes of the document (trees), or
 * of elements that are present (npy). */
int stk_value_get_shape(const struct stk_value *value, struct stk_value_shape *shape_out,
                        struct stoker_error *error);
/* shape: from stk_value_get_shape; out: shape->count elements, in C order. Returns 0, or
 * STOKER_ERROR_FORMAT if lists have different lengths, an item is no number, or dtype cannot hold
 * it. */
int stk_value_copy(const struct stk_value *value, const struct stk_value_shape *shape,
                   uint32_t dtype, void *out, struct stoker_error *error);

/* "(3, None, 4)": sides of UINT64_MAX are shown as None. */
const char *stk_value_shape_text(const struct stk_value_shape *shape, char text[160]);

#endif
