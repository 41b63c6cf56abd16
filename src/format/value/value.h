/* format/value/value.h: the values inside a member: numbers, text and arrays of JSON, MessagePack,
 * npy and npz. Pure: bytes in, values out.
 *
 *   bytes --ticket--> memory it will take --open(encoding, path)--> value
 *     value --int, float, text, bytes--> one          value --shape--> sides --copy(dtype)--> many
 *
 * A path names a place in JSON and MessagePack: names and indexes between dots, "objects.0.box";
 * `*` is each of a list, so "objects.*.box" is a list of all boxes. In an npz it is the name of an
 * array, with or without ".npy". No path: the whole (an npz that holds one array: that).
 * Owner: whoever opened a value; it lends the bytes. Threads: one. Memory: a parsed tree, or an
 * inflated array: at most the ticket. Bound: memory_bytes_max, and those below. */
#ifndef FORMAT_VALUE_VALUE_H
#define FORMAT_VALUE_VALUE_H

#include "base/base.h"

#define STK_VALUE_RANK_MAX 8u     /* dimensions of an array */
#define STK_NPY_HEADER_MAX 65536u /* NumPy itself refuses above 10,000 unless told otherwise */
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

/* By the extension's last part ("json", "mp", "msg", "msgpack", "npy", "npz"), else by what npy
 * and npz begin with. */
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

/* Bytes of an element; 0 when there is no such dtype. */
uint32_t stk_dtype_bytes(uint32_t dtype);
const char *stk_dtype_name(uint32_t dtype);
/* Writes a number as dtype, rounding to nearest-even where it is a float. false: an integer dtype
 * does not hold it (out of range, or not an integer). */
bool stk_number_write(void *out, uint32_t dtype, const struct stk_number *number);

/* Numbers in a row, as npy has them. */
struct stk_number_type {
    char kind;     /* as NumPy says: 'b' bool, 'i', 'u', 'f' */
    uint8_t bytes; /* 1, 2, 4, 8 */
    bool swapped;
};
struct stk_number stk_number_read(const struct stk_number_type *type, const uint8_t *data);
/* Whether its numbers lie in memory just as dtype's do. */
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
    struct stk_view bytes;       /* lent */
    const char *path;            /* lent; "" for none */
    struct stk_value_tree *tree; /* JSON, MessagePack; owned */
    struct stk_value_location location;
    struct stk_value_array array; /* npy, npz */
    uint8_t *inflated;            /* npz; owned */
    uint64_t inflated_bytes;
};

/* An upper bound of the memory that open will take. npz: the array must be there. */
int stk_value_memory_bytes(uint32_t encoding, struct stk_view bytes, const char *path,
                           uint64_t *memory_bytes_out, struct stoker_error *error);
/* path may be NULL. MISSING: there is nothing at the path; CORRUPT, TRUNCATED; UNSUPPORTED: object
 * arrays (pickles), structured ones, text, dates, complex numbers; LIMIT. */
int stk_value_open(struct stk_value *value, uint32_t encoding, struct stk_view bytes,
                   const char *path, uint64_t memory_bytes_max, struct stoker_error *error);
void stk_value_close(struct stk_value *value);
/* What lies at another path of the same JSON or MessagePack: borrows the parsed document of `of`,
 * and is not closed. MISSING. */
int stk_value_find(const struct stk_value *of, const char *path, struct stk_value *value_out,
                   struct stoker_error *error);
/* Whether the whole of a JSON or MessagePack is what a reader of whole documents takes: text in
 * MessagePack is UTF-8, its keys are no lists or maps, its times are times. Else CORRUPT. */
int stk_value_validate(const struct stk_value *value, struct stoker_error *error);

/* ---- values that another process parses ---- */

/* What the parsers ask of the system once (a seed for their tables): before files are out of
 * reach. */
void stk_value_start(void);
/* There: the whole of a value (which has no path, but in an npz) as bytes, at most of its ticket's
 * and its own bytes' number. LIMIT: more than capacity. out: aligned to 8 bytes. */
int stk_value_serialize(const struct stk_value *value, uint8_t *out, uint64_t capacity,
                        uint64_t *bytes_out, struct stoker_error *error);
/* Here: the value of `bytes` by what was packed of it, of which nothing is believed: CORRUPT. It
 * is copied; whoever packed it may go on writing there. */
int stk_value_deserialize(struct stk_value *value, uint32_t encoding, struct stk_view bytes,
                          struct stk_view packed, struct stoker_error *error);

/* FORMAT when it is something else. An array of one element counts as a number. */
int stk_value_int(const struct stk_value *value, int64_t *out, struct stoker_error *error);
int stk_value_float(const struct stk_value *value, double *out, struct stoker_error *error);
/* Lends until close. UTF-8 was checked. */
int stk_value_text(const struct stk_value *value, struct stk_view *text_out,
                   struct stoker_error *error);
/* An empty list has one side of 0, whatever it would hold. count never passes the document's
 * bytes (trees), or what is there (npy). */
int stk_value_get_shape(const struct stk_value *value, struct stk_value_shape *shape_out,
                        struct stoker_error *error);
/* shape: what stk_value_get_shape gave; out: its count of elements, in C order. FORMAT: lists of
 * different lengths, what is no number, numbers that dtype cannot hold. */
int stk_value_copy(const struct stk_value *value, const struct stk_value_shape *shape,
                   uint32_t dtype, void *out, struct stoker_error *error);

/* "(3, None, 4)": sides of UINT64_MAX are shown as None. */
const char *stk_value_shape_text(const struct stk_value_shape *shape, char text[160]);

#endif
