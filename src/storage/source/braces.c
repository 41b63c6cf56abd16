/* Expands braces: "shard-{000..099}.tar" and "{train,val}/{a..c}", in the order of bash.
 *
 * The grammar is that of Python's braceexpand, which webdataset uses: alternatives, ranges of
 * numbers (padded when either end has a leading zero) and letters, a step, nesting, '\' before
 * a literal brace, comma or backslash. The pattern is parsed into a tree whose nodes have the
 * number of their names, so a pattern with too many names fails before any is written. */
#include "storage/source/path_list.h"

#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATTERN_BYTES_MAX (1u << 20)
#define DEPTH_MAX 32
#define TEXT_BYTES_MAX (1ull << 30)
#define DIGITS_MAX 18 /* of a range's end: fits 64 bits */
#define NONE UINT32_MAX

enum node_kind { NODE_LITERAL = 1, NODE_NUMBERS, NODE_LETTERS, NODE_CHOICE, NODE_SEQUENCE };

struct node {
    uint32_t kind;        /* enum node_kind */
    uint32_t first, next; /* child, sibling */
    uint64_t count;       /* number of its names, at least 1 */
    uint64_t length_max;  /* bytes of the longest name */
    const char *start;    /* literal */
    int64_t from, step;   /* range */
    int width;            /* numbers: padded to this, sign included */
};

struct tree {
    const char *pattern;
    uint64_t count_max; /* names of the whole pattern */
    struct node *nodes;
    uint32_t count, capacity;
    struct stoker_error *error;
};

static int parse_sequence(struct tree *tree, const char *start, const char *end, int depth,
                          uint32_t *node_out);
static int parse_group(struct tree *tree, const char *start, const char *end, int depth,
                       uint32_t parent, uint32_t *last);
static int parse_choice(struct tree *tree, const char *start, const char *end, int depth,
                        uint32_t *node_out);
static int parse_range(struct tree *tree, const char *start, const char *end, uint32_t *node_out);
static bool read_end(const char **cursor, const char *end, int64_t *value_out, bool *letter_out);
static bool padded(const char *start, const char *end);
static const char *closing(const char *start, const char *end, bool *comma_out);
static int add_node(struct tree *tree, uint32_t kind, uint32_t *node_out);
static int add_literal(struct tree *tree, const char *start, const char *end, uint32_t parent,
                       uint32_t *last);
static int append(struct tree *tree, uint32_t parent, uint32_t *last, uint32_t child);
static int too_many(struct tree *tree);
static char *emit(const struct tree *tree, uint32_t index, uint64_t name, char *out);

int stk_braces_expand(const char *pattern, char **text_out, size_t *count_out,
                      struct stoker_error *error)
{
    return stk_braces_expand_max(pattern, STK_SOURCE_BRACES_MAX, text_out, count_out, error);
}

int stk_braces_expand_max(const char *pattern, uint64_t count_max, char **text_out,
                          size_t *count_out, struct stoker_error *error)
{
    struct tree tree = {.pattern = pattern, .count_max = count_max, .error = error};
    size_t bytes = strlen(pattern);
    char *text = NULL, *cursor, *fitting;
    uint64_t text_bytes, used;
    uint32_t root = NONE;
    int status;

    if (bytes > PATTERN_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a pattern of names is too long",
                        "shorten it, or give a list of paths", "%zu bytes, %u at most", bytes,
                        PATTERN_BYTES_MAX);
    }
    status = parse_sequence(&tree, pattern, pattern + bytes, 0, &root);
    if (status < 0) {
        goto done;
    }
    if (!stk_multiply(tree.nodes[root].count, tree.nodes[root].length_max + 1, &text_bytes) ||
        tree.nodes[root].count > count_max || text_bytes > TEXT_BYTES_MAX) {
        status = too_many(&tree);
        goto done;
    }
    text = stk_alloc(1, text_bytes);
    if (!text) {
        status = stk_fail_errno(error, ENOMEM, "cannot expand the braces",
                                "give the process more memory", "'%.200s'", pattern);
        goto done;
    }
    cursor = text;
    for (uint64_t name = 0; name < tree.nodes[root].count; name++) {
        cursor = emit(&tree, root, name, cursor);
        *cursor++ = '\0';
    }
    used = (uint64_t)(cursor - text);
    STK_ASSERT(used <= text_bytes);
    fitting = stk_realloc(text, text_bytes, used, 1);
    *text_out = fitting ? fitting : text;
    *count_out = tree.nodes[root].count;
done:
    stk_free(tree.nodes);
    return status;
}

/* A sequence of literals and groups: its number of names is the product of theirs. */
static int parse_sequence(struct tree *tree, const char *start, const char *end, int depth,
                          uint32_t *node_out)
{
    const char *literal = start;
    uint32_t sequence = NONE, last = NONE;
    int status = add_node(tree, NODE_SEQUENCE, &sequence);

    if (depth > DEPTH_MAX) {
        return stk_fail(tree->error, STOKER_ERROR_LIMIT, "braces are nested too deeply",
                        "nest at most 32 of them", "'%.200s'", tree->pattern);
    }
    for (const char *cursor = start; status == 0 && cursor < end; cursor++) {
        const char *close;
        bool comma;

        if (*cursor == '\\') {
            cursor += cursor + 1 < end;
        } else if (*cursor == '{' || *cursor == '}') {
            close = *cursor == '{' ? closing(cursor + 1, end, &comma) : NULL;
            if (!close) {
                return stk_fail(tree->error, STOKER_ERROR_ARGUMENT, "a brace has no partner",
                                "close it, or write '\\' before one that is part of the name",
                                "'%.200s' offset %zu", tree->pattern,
                                (size_t)(cursor - tree->pattern));
            }
            status = add_literal(tree, literal, cursor, sequence, &last);
            if (status == 0) {
                status = parse_group(tree, cursor, close + 1, depth, sequence, &last);
            }
            cursor = close;
            literal = close + 1;
        }
    }
    if (status == 0) {
        status = add_literal(tree, literal, end, sequence, &last);
    }
    *node_out = sequence;
    return status;
}

/* Parses from '{' to its '}'. Without a comma or range it is literal, as in the shell. */
static int parse_group(struct tree *tree, const char *start, const char *end, int depth,
                       uint32_t parent, uint32_t *last)
{
    uint32_t node = NONE;
    bool comma = false;
    int status;

    (void)closing(start + 1, end, &comma);
    if (comma) {
        status = parse_choice(tree, start + 1, end - 1, depth, &node);
    } else {
        status = parse_range(tree, start + 1, end - 1, &node);
    }
    if (status == 0 && node == NONE) {
        status = add_literal(tree, start, start + 1, parent, last);
        if (status == 0) {
            status = parse_sequence(tree, start + 1, end - 1, depth + 1, &node);
        }
        if (status == 0) {
            status = append(tree, parent, last, node);
        }
        return status < 0 ? status : add_literal(tree, end - 1, end, parent, last);
    }
    return status < 0 ? status : append(tree, parent, last, node);
}

static int parse_choice(struct tree *tree, const char *start, const char *end, int depth,
                        uint32_t *node_out)
{
    uint32_t choice = NONE, last = NONE, child = NONE;
    int status = add_node(tree, NODE_CHOICE, &choice), level = 0;
    const char *part = start;

    for (const char *cursor = start; status == 0 && cursor <= end; cursor++) {
        if (cursor < end && *cursor == '\\') {
            cursor++;
        } else if (cursor < end && *cursor == '{') {
            level++;
        } else if (cursor < end && *cursor == '}') {
            level--;
        } else if (cursor == end || (*cursor == ',' && level == 0)) {
            status = parse_sequence(tree, part, cursor, depth + 1, &child);
            if (status == 0) {
                status = append(tree, choice, &last, child);
            }
            part = cursor + 1;
        }
    }
    *node_out = choice;
    return status;
}

/* Parses "from..to" or "from..to..step" of numbers or letters; sets *node_out to NONE if it is no
 * range. */
static int parse_range(struct tree *tree, const char *start, const char *end, uint32_t *node_out)
{
    const char *cursor = start, *second;
    int64_t from, to, step = 1;
    bool letters[3] = {false};
    struct node *node;
    int status;

    if (!read_end(&cursor, end, &from, &letters[0]) || end - cursor < 3 || cursor[0] != '.' ||
        cursor[1] != '.') {
        return 0;
    }
    cursor += 2;
    second = cursor;
    if (!read_end(&cursor, end, &to, &letters[1]) || letters[0] != letters[1]) {
        return 0;
    }
    if (cursor < end) {
        if (end - cursor < 3 || cursor[0] != '.' || cursor[1] != '.') {
            return 0;
        }
        cursor += 2;
        if (!read_end(&cursor, end, &step, &letters[2]) || letters[2] || cursor < end) {
            return 0;
        }
    }
    status = add_node(tree, letters[0] ? NODE_LETTERS : NODE_NUMBERS, node_out);
    if (status < 0) {
        return status;
    }
    node = &tree->nodes[*node_out];
    step = step < 0 ? -step : step;
    step = step == 0 ? 1 : step;
    node->from = from;
    node->count = (uint64_t)(to > from ? to - from : from - to) / (uint64_t)step + 1;
    node->step = to >= from ? step : -step;
    node->length_max = 1;
    if (!letters[0]) {
        const char *first_end = memchr(start, '.', (size_t)(end - start));
        const char *second_end = memchr(second, '.', (size_t)(end - second));

        second_end = second_end ? second_end : end;
        node->length_max = stk_max((uint64_t)(first_end - start), (uint64_t)(second_end - second));
        if (padded(start, first_end) || padded(second, second_end)) {
            node->width = (int)node->length_max;
        }
    }
    return 0;
}

/* A number, or the index of a letter in A..Za..z. */
static bool read_end(const char **cursor, const char *end, int64_t *value_out, bool *letter_out)
{
    const char *at = *cursor;
    bool minus = at < end && *at == '-';
    int64_t value = 0;
    int digits = 0;

    if (at < end && ((*at >= 'A' && *at <= 'Z') || (*at >= 'a' && *at <= 'z'))) {
        *letter_out = true;
        *value_out = *at >= 'a' ? *at - 'a' + 26 : *at - 'A';
        *cursor = at + 1;
        return true;
    }
    for (at += minus; at < end && *at >= '0' && *at <= '9' && digits <= DIGITS_MAX; at++) {
        value = digits < DIGITS_MAX ? value * 10 + (*at - '0') : value;
        digits++;
    }
    *value_out = minus ? -value : value;
    *cursor = at;
    return digits > 0 && digits <= DIGITS_MAX;
}

/* "00", "-07": a leading zero requires equal width. */
static bool padded(const char *start, const char *end)
{
    start += *start == '-';
    return end - start > 1 && *start == '0';
}

/* Finds the '}' of a group whose content begins at start, and whether the group has a comma. */
static const char *closing(const char *start, const char *end, bool *comma_out)
{
    int level = 0;

    *comma_out = false;
    for (const char *cursor = start; cursor < end; cursor++) {
        if (*cursor == '\\') {
            cursor++;
        } else if (*cursor == '{') {
            level++;
        } else if (*cursor == '}' && level-- == 0) {
            return cursor;
        } else if (*cursor == ',' && level == 0) {
            *comma_out = true;
        }
    }
    return NULL;
}

static int add_node(struct tree *tree, uint32_t kind, uint32_t *node_out)
{
    if (tree->count == tree->capacity) {
        uint32_t capacity = (uint32_t)stk_max(32, tree->capacity * 2u);
        struct node *grown =
            stk_realloc(tree->nodes, tree->capacity, capacity, sizeof *tree->nodes);

        if (!grown) {
            return stk_fail_errno(tree->error, ENOMEM, "cannot expand the braces",
                                  "give the process more memory", "'%.200s'", tree->pattern);
        }
        tree->nodes = grown;
        tree->capacity = capacity;
    }
    tree->nodes[tree->count] =
        (struct node){.kind = kind, .first = NONE, .next = NONE, .count = kind != NODE_CHOICE};
    *node_out = tree->count++;
    return 0;
}

static int add_literal(struct tree *tree, const char *start, const char *end, uint32_t parent,
                       uint32_t *last)
{
    uint32_t node = NONE;
    int status = start < end ? add_node(tree, NODE_LITERAL, &node) : 0;

    if (node == NONE) {
        return status;
    }
    tree->nodes[node].start = start;
    tree->nodes[node].length_max = (uint64_t)(end - start);
    return append(tree, parent, last, node);
}

/* Appends a child to a sequence or choice, and counts its names. */
static int append(struct tree *tree, uint32_t parent, uint32_t *last, uint32_t child)
{
    struct node *to = &tree->nodes[parent];
    const struct node *from = &tree->nodes[child];
    bool fits;

    *(*last == NONE ? &to->first : &tree->nodes[*last].next) = child;
    *last = child;
    if (to->kind == NODE_CHOICE) {
        to->length_max = stk_max(to->length_max, from->length_max);
        fits = stk_add(to->count, from->count, &to->count);
    } else {
        fits = stk_multiply(to->count, from->count, &to->count) &&
               stk_add(to->length_max, from->length_max, &to->length_max);
    }
    return fits && to->count <= tree->count_max ? 0 : too_many(tree);
}

static int too_many(struct tree *tree)
{
    return stk_fail(tree->error, STOKER_ERROR_LIMIT, "braces expand to too many names",
                    "name the folder instead, or use a glob", "'%.200s', at most %llu names",
                    tree->pattern, (unsigned long long)tree->count_max);
}

/* Writes the name-th expansion of a node. Returns its end. */
static char *emit(const struct tree *tree, uint32_t index, uint64_t name, char *out)
{
    const struct node *node = &tree->nodes[index];
    uint64_t rest = node->count;
    int64_t value = node->from + (int64_t)name * node->step;

    switch (node->kind) {
    case NODE_LITERAL:
        for (uint64_t i = 0; i < node->length_max; i++) {
            i += node->start[i] == '\\' && i + 1 < node->length_max;
            *out++ = node->start[i];
        }
        return out;
    case NODE_NUMBERS: {
        char digits[DIGITS_MAX + 4];
        int bytes = snprintf(digits, sizeof digits, "%0*lld", node->width, (long long)value);

        memcpy(out, digits, (size_t)bytes);
        return out + bytes;
    }
    case NODE_LETTERS:
        *out = (char)(value < 26 ? 'A' + value : 'a' + value - 26);
        return out + 1;
    case NODE_CHOICE:
        for (index = node->first; name >= tree->nodes[index].count;
             index = tree->nodes[index].next) {
            name -= tree->nodes[index].count;
        }
        return emit(tree, index, name, out);
    default: /* NODE_SEQUENCE: the last part varies fastest */
        for (index = node->first; index != NONE; index = tree->nodes[index].next) {
            rest /= tree->nodes[index].count;
            out = emit(tree, index, name / rest % tree->nodes[index].count, out);
        }
        return out;
    }
}
