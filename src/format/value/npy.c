/* NumPy's .npy (NEP 1; numpy/lib/format.py): a magic, a version, a header that is the text of a
 * Python dict, and the elements. Only this dict is read, by a reader of its own: nothing is
 * evaluated, and arrays of objects, which are pickles, are refused by name. */
#include "format/value/value_private.h"

#include <stdio.h>
#include <string.h>

#define MAGIC_BYTES 8u /* "\x93NUMPY" and two bytes of version */
#define DESCR_MAX 64u

/* The text of the header while it is read. */
struct reader {
    const char *at, *end;
    uint64_t start; /* of the text in the member, for errors */
    const char *begin;
    struct stoker_error *error;
};

/* The keys of the dict, each once. */
enum { HAS_DESCR = 1, HAS_ORDER = 2, HAS_SHAPE = 4, HAS_ALL = 7 };

static int damaged(const struct reader *reader, const char *detail)
{
    int status = stk_fail(reader->error, STOKER_ERROR_CORRUPT, "the npy header is damaged",
                          STK_VALUE_ADVICE, "%s", detail);

    if (reader->error) {
        reader->error->offset = reader->start + (uint64_t)(reader->at - reader->begin);
    }
    return status;
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\n')) {
        reader->at++;
    }
}

/* The next character that is no blank; 0 at the end. */
static char peek(struct reader *reader)
{
    skip_blanks(reader);
    return reader->at < reader->end ? *reader->at : 0;
}

static bool expect_byte(struct reader *reader, char want)
{
    bool there = peek(reader) == want;

    reader->at += there;
    return there;
}

static bool read_word(struct reader *reader, const char *word)
{
    size_t bytes = strlen(word);

    skip_blanks(reader);
    if ((size_t)(reader->end - reader->at) < bytes || memcmp(reader->at, word, bytes) != 0) {
        return false;
    }
    reader->at += bytes;
    return true;
}

/* 'text' or "text"; escapes are not used by writers of headers, and refused. */
static bool read_text(struct reader *reader, char text[DESCR_MAX])
{
    char quote = peek(reader);
    size_t bytes = 0;

    if (quote != '\'' && quote != '"') {
        return false;
    }
    for (reader->at++; reader->at < reader->end && *reader->at != quote; reader->at++) {
        if (bytes + 1 >= DESCR_MAX || *reader->at == '\\') {
            return false;
        }
        text[bytes++] = *reader->at;
    }
    text[bytes] = 0;
    return reader->at < reader->end && *reader->at++ == quote;
}

static bool read_number(struct reader *reader, uint64_t *number_out)
{
    bool any = false;

    *number_out = 0;
    for (peek(reader); reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9';
         reader->at++) {
        any = stk_multiply(*number_out, 10, number_out) &&
              stk_add(*number_out, (uint64_t)(*reader->at - '0'), number_out);
        if (!any) {
            return false;
        }
    }
    if (any && reader->at < reader->end && *reader->at == 'L') {
        reader->at++; /* Python 2 */
    }
    return any;
}

/* (), (3,), (3, 4): a lone number in parentheses is no tuple. */
static int read_shape(struct reader *reader, struct stk_value_shape *shape)
{
    bool comma = true;

    if (!expect_byte(reader, '(')) {
        return damaged(reader, "'shape' is not a tuple");
    }
    while (peek(reader) != ')') {
        if (!comma) {
            return damaged(reader, "'shape' is not a tuple of numbers");
        }
        if (shape->rank == STK_VALUE_RANK_MAX) {
            return stk_fail(reader->error, STOKER_ERROR_LIMIT, "an array has too many dimensions",
                            "save it with 8 dimensions at most", "npy header");
        }
        if (!read_number(reader, &shape->sides[shape->rank++])) {
            return damaged(reader, "'shape' is not a tuple of numbers");
        }
        comma = expect_byte(reader, ',');
    }
    expect_byte(reader, ')');
    return shape->rank == 1 && !comma ? damaged(reader, "'shape' is not a tuple") : 0;
}

static int unsupported(const struct reader *reader, const char *what, const char *descr)
{
    return stk_fail(reader->error, STOKER_ERROR_UNSUPPORTED, what,
                    "save the array as bool, int, uint or float of 8 bytes at most", "dtype '%s'",
                    descr);
}

/* Names of types that are no plain numbers, by the array interface's type letters. */
static int fail_kind(const struct reader *reader, const char *descr, char kind)
{
    static const struct {
        char kind;
        const char *what;
    } rows[] = {
        {'O', "an array of Python objects is a pickle, which is not read"},
        {'S', "an array of byte strings is not read"},
        {'a', "an array of byte strings is not read"},
        {'U', "an array of text is not read"},
        {'c', "an array of complex numbers is not read"},
        {'M', "an array of dates is not read"},
        {'m', "an array of time spans is not read"},
        {'V', "an array of raw records (or bfloat16) is not read"},
        {'t', "an array of bit fields is not read"},
    };

    for (size_t i = 0; i < STK_COUNT(rows); i++) {
        if (rows[i].kind == kind) {
            return unsupported(reader, rows[i].what, descr);
        }
    }
    return damaged(reader, "'descr' is no dtype");
}

/* '<f8': byte order, kind, bytes. */
static int read_descr(struct reader *reader, struct stk_number_type *type)
{
    char descr[DESCR_MAX], order;
    const char *kind = descr;

    if (peek(reader) == '[' || peek(reader) == '(') {
        return unsupported(reader, "a structured array is not read", "of several fields");
    }
    if (!read_text(reader, descr)) {
        return damaged(reader, "'descr' is not text");
    }
    order = *kind;
    kind += order == '<' || order == '>' || order == '|' || order == '=';
    if (!*kind || !strchr("biuf", *kind)) {
        return fail_kind(reader, descr, *kind);
    }
    type->kind = *kind;
    type->bytes = (uint8_t)(kind[1] - '0');
    type->swapped = order == '>' && type->bytes > 1;
    if (*kind == 'f' && strcmp(kind + 1, "16") == 0) {
        return unsupported(reader, "an array of long doubles is not read", descr);
    }
    if (kind[1] < '1' || kind[1] > '8' || kind[2] != 0 || (type->bytes & (type->bytes - 1)) ||
        (*kind == 'b' && type->bytes != 1) || (*kind == 'f' && type->bytes == 1)) {
        return damaged(reader, "'descr' is no dtype");
    }
    return 0;
}

static int read_pair(struct reader *reader, struct stk_value_array *array, uint32_t *seen)
{
    char key[DESCR_MAX];
    uint32_t flag;

    if (!read_text(reader, key) || !expect_byte(reader, ':')) {
        return damaged(reader, "it is not a dict");
    }
    flag = strcmp(key, "descr") == 0           ? HAS_DESCR
           : strcmp(key, "fortran_order") == 0 ? HAS_ORDER
           : strcmp(key, "shape") == 0         ? HAS_SHAPE
                                               : 0;
    if (flag == 0 || (*seen & flag)) {
        return damaged(reader, "a key other than descr, fortran_order and shape, or one twice");
    }
    *seen |= flag;
    if (flag == HAS_DESCR) {
        return read_descr(reader, &array->type);
    }
    if (flag == HAS_SHAPE) {
        return read_shape(reader, &array->shape);
    }
    array->fortran = read_word(reader, "True");
    return array->fortran || read_word(reader, "False")
               ? 0
               : damaged(reader, "'fortran_order' is neither True nor False");
}

static int read_dict(struct reader *reader, struct stk_value_array *array)
{
    uint32_t seen = 0;
    bool comma = true;
    int status = 0;

    if (!expect_byte(reader, '{')) {
        return damaged(reader, "it is not a dict");
    }
    while (status == 0 && peek(reader) != '}') {
        status = comma ? read_pair(reader, array, &seen) : damaged(reader, "it is not a dict");
        comma = status == 0 && expect_byte(reader, ',');
    }
    if (status < 0) {
        return status;
    }
    expect_byte(reader, '}');
    if (peek(reader) != 0 || seen != HAS_ALL) {
        return damaged(reader, "descr, fortran_order or shape is missing, or more follows");
    }
    return 0;
}

static int truncated(struct stoker_error *error, uint64_t want, uint64_t have)
{
    int status = stk_fail(error, STOKER_ERROR_TRUNCATED, "an array ends too early",
                          STK_VALUE_ADVICE, "%llu bytes wanted, %llu there",
                          (unsigned long long)want, (unsigned long long)have);

    if (error) {
        error->offset = have;
    }
    return status;
}

/* The place of the header's text: its length has 2 bytes in version 1, 4 in 2 and 3. */
static int locate_header(struct stk_view bytes, struct reader *reader)
{
    uint32_t length_bytes;
    uint64_t length = 0;

    if (bytes.bytes < MAGIC_BYTES + 2) {
        return truncated(reader->error, MAGIC_BYTES + 2, bytes.bytes);
    }
    if (memcmp(bytes.data, "\x93NUMPY", 6) != 0) {
        return stk_fail(reader->error, STOKER_ERROR_FORMAT, "this is not an npy array",
                        "save it with numpy.save", "%zu bytes", bytes.bytes);
    }
    if (bytes.data[6] < 1 || bytes.data[6] > 3 || bytes.data[7] != 0) {
        return stk_fail(reader->error, STOKER_ERROR_UNSUPPORTED, "an unknown version of npy",
                        "save it with numpy.save, version 1.0", "version %u.%u", bytes.data[6],
                        bytes.data[7]);
    }
    length_bytes = bytes.data[6] == 1 ? 2 : 4;
    reader->start = MAGIC_BYTES + length_bytes;
    if (bytes.bytes < reader->start) {
        return truncated(reader->error, reader->start, bytes.bytes);
    }
    for (uint32_t i = 0; i < length_bytes; i++) {
        length |= (uint64_t)bytes.data[MAGIC_BYTES + i] << 8 * i;
    }
    if (length > STK_NPY_HEADER_MAX) {
        return stk_fail(reader->error, STOKER_ERROR_LIMIT, "an npy header is too long",
                        "save the array as a plain one", "%llu bytes", (unsigned long long)length);
    }
    if (length > bytes.bytes - reader->start) {
        return truncated(reader->error, reader->start + length, bytes.bytes);
    }
    reader->begin = reader->at = (const char *)bytes.data + reader->start;
    reader->end = reader->at + length;
    return 0;
}

int stk_npy_parse(struct stk_value_array *array, struct stk_view bytes, struct stoker_error *error)
{
    struct reader reader = {.error = error};
    uint64_t header_bytes, data_bytes;
    int status = locate_header(bytes, &reader);

    memset(array, 0, sizeof *array);
    if (status == 0) {
        status = read_dict(&reader, array);
    }
    if (status < 0) {
        return status;
    }
    array->shape.count = 1;
    for (uint32_t i = 0; i < array->shape.rank; i++) {
        if (!stk_multiply(array->shape.count, array->shape.sides[i], &array->shape.count)) {
            return damaged(&reader, "the sides' product is no size");
        }
    }
    header_bytes = (uint64_t)(reader.end - (const char *)bytes.data);
    if (!stk_multiply(array->shape.count, array->type.bytes, &data_bytes)) {
        return damaged(&reader, "the sides' product is no size");
    }
    if (bytes.bytes - header_bytes < data_bytes) {
        return truncated(error, data_bytes, bytes.bytes - header_bytes);
    }
    if (bytes.bytes - header_bytes > data_bytes) {
        return stk_fail(error, STOKER_ERROR_CORRUPT, "there is something behind an array",
                        "save one array a member, or several as npz", "%llu bytes too many",
                        (unsigned long long)(bytes.bytes - header_bytes - data_bytes));
    }
    array->data = bytes.data + header_bytes;
    return 0;
}

/* The element after this one in C order: its index, and its distance from the first. */
static uint64_t next_index(const struct stk_value_shape *shape, uint64_t index[STK_VALUE_RANK_MAX])
{
    uint64_t at = 0, stride = 1;

    for (uint32_t i = shape->rank; i > 0; i--) {
        if (++index[i - 1] < shape->sides[i - 1]) {
            break;
        }
        index[i - 1] = 0;
    }
    for (uint32_t i = 0; i < shape->rank; i++) { /* Fortran: the first index runs fastest */
        at += index[i] * stride;
        stride *= shape->sides[i];
    }
    return at;
}

int stk_value_array_copy(const struct stk_value_array *array, uint32_t dtype, void *out,
                         struct stoker_error *error)
{
    uint64_t index[STK_VALUE_RANK_MAX] = {0}, at = 0, bytes = stk_dtype_bytes(dtype);
    bool turned = array->fortran && array->shape.rank > 1;
    uint8_t *to = out;

    if (!turned && stk_number_matches(&array->type, dtype)) {
        if (array->shape.count > 0) {
            memcpy(out, array->data, array->shape.count * bytes);
        }
        return 0;
    }
    for (uint64_t i = 0; i < array->shape.count; i++, to += bytes) {
        struct stk_number number =
            stk_number_read(&array->type, array->data + at * array->type.bytes);

        if (!stk_number_write(to, dtype, &number)) {
            return stk_fail(error, STOKER_ERROR_FORMAT, "an array's number does not fit its dtype",
                            "ask for a wider dtype, or for a float", "element %llu, dtype %s",
                            (unsigned long long)i, stk_dtype_name(dtype));
        }
        at = turned ? next_index(&array->shape, index) : i + 1;
    }
    return 0;
}
