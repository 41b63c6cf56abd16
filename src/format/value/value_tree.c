/* Paths, shapes and numbers of a tree, whichever library parsed it. */
#include "format/value/value_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *stk_value_node_name(uint32_t kind)
{
    static const char *const names[] = {"null",
                                        "true or false",
                                        "a number",
                                        "text",
                                        "bytes",
                                        "a list",
                                        "an object",
                                        "a number beyond the largest double",
                                        "text with half a surrogate pair"};

    return kind < STK_COUNT(names) ? names[kind] : "unknown";
}

#define NAMES_BYTES 200u

/* Writes the count of a list, or the names of an object: ", which has 3 items", ", which has: width
 * height". Long texts end with "...". */
static void list_contents(const struct stk_value_tree *tree, const void *node,
                          const struct stk_value_node *about, char text[NAMES_BYTES])
{
    static const char more[] = " ...";
    size_t used = 0;
    const void *at = NULL, *value;

    text[0] = '\0';
    if (about->kind == STK_VALUE_NODE_LIST) {
        snprintf(text, NAMES_BYTES, ", which has %llu items", (unsigned long long)about->length);
    }
    if (about->kind != STK_VALUE_NODE_MAP || about->length == 0) {
        return;
    }
    used = (size_t)snprintf(text, NAMES_BYTES, ", which has:");
    for (uint64_t i = 0; i < about->length; i++) {
        struct stk_value_node name;

        at = tree->type->pair(node, at, &name, &value);
        if (name.kind != STK_VALUE_NODE_TEXT) {
            continue; /* no path names it */
        }
        if (name.text.bytes + 1 + sizeof more > NAMES_BYTES - used) {
            /* It fits: see the condition. */
            snprintf(text + used, NAMES_BYTES - used, "%s", more);
            return;
        }
        used += (size_t)snprintf(text + used, NAMES_BYTES - used, " %.*s", (int)name.text.bytes,
                                 (const char *)name.text.data);
    }
}

static int no_such(const struct stk_value_tree *tree, const struct stk_value_location *at,
                   size_t part_bytes, struct stoker_error *error)
{
    struct stk_value_node about;
    char contents[NAMES_BYTES];

    if (!error) {
        return STOKER_ERROR_MISSING;
    }
    tree->type->read(at->node, &about);
    list_contents(tree, at->node, &about, contents);
    return stk_fail(error, STOKER_ERROR_MISSING, "there is nothing at a path",
                    "change the path, give the field a default=, or skip such samples",
                    "path '%.64s': '%.*s' in %s%s", at->rest, (int)stk_min(part_bytes, 64),
                    at->rest, stk_value_node_name(about.kind), contents);
}

/* "12" as an index; UINT64_MAX: it is not one. */
static uint64_t index_of(const char *part, size_t bytes)
{
    uint64_t index = 0;

    for (size_t i = 0; i < bytes; i++) {
        if (part[i] < '0' || part[i] > '9' || i >= 9) {
            return UINT64_MAX;
        }
        index = 10 * index + (uint64_t)(part[i] - '0');
    }
    return bytes ? index : UINT64_MAX;
}

/* One part of the path down. NULL: there is nothing. */
static const void *step_into(const struct stk_value_tree *tree, const void *node, const char *part,
                             size_t bytes)
{
    struct stk_value_node about;
    uint64_t index = index_of(part, bytes);

    tree->type->read(node, &about);
    if (about.kind == STK_VALUE_NODE_MAP) {
        return tree->type->member(node, part, bytes);
    }
    return about.kind == STK_VALUE_NODE_LIST && index < about.length ? tree->type->item(node, index)
                                                                     : NULL;
}

/* Down from a place until its rest is empty or begins with `*`. */
static int descend(const struct stk_value_tree *tree, struct stk_value_location *place,
                   struct stoker_error *error)
{
    while (place->rest[0] && !(place->rest[0] == '*' && strchr(".", place->rest[1]))) {
        size_t bytes = strcspn(place->rest, ".");
        const void *next = step_into(tree, place->node, place->rest, bytes);

        if (!next) {
            return no_such(tree, place, bytes, error);
        }
        place->node = next;
        place->rest += bytes + (place->rest[bytes] == '.');
    }
    return 0;
}

int stk_value_tree_find(const struct stk_value_tree *tree, const char *path,
                        struct stk_value_location *place_out, struct stoker_error *error)
{
    *place_out = (struct stk_value_location){tree->root, path};
    return descend(tree, place_out, error);
}

/* Checks the kind of a node: if its path has a `*` left, it must be a list. */
static int read_node(const struct stk_value_tree *tree, const struct stk_value_location *place,
                     struct stk_value_node *node, struct stoker_error *error)
{
    tree->type->read(place->node, node);
    return place->rest[0] && node->kind != STK_VALUE_NODE_LIST ? no_such(tree, place, 1, error) : 0;
}

static int item_of(const struct stk_value_tree *tree, const struct stk_value_location *place,
                   uint64_t index, struct stk_value_location *item_out, struct stoker_error *error)
{
    item_out->node = tree->type->item(place->node, index);
    item_out->rest = place->rest;
    if (place->rest[0]) { /* the star is used up */
        item_out->rest += place->rest[1] == '.' ? 2 : 1;
    }
    return descend(tree, item_out, error);
}

int stk_value_tree_shape(const struct stk_value_tree *tree, const struct stk_value_location *place,
                         struct stk_value_shape *shape_out, struct stoker_error *error)
{
    struct stk_value_location at = *place;
    struct stk_value_node node;
    int status;

    *shape_out = (struct stk_value_shape){.count = 1};
    for (;;) {
        status = read_node(tree, &at, &node, error);
        if (status < 0 || node.kind != STK_VALUE_NODE_LIST) {
            return status;
        }
        if (shape_out->rank == STK_VALUE_RANK_MAX) {
            return stk_fail(error, STOKER_ERROR_LIMIT, "lists go too deep for an array",
                            "give a path to a part of it", "%u dimensions", STK_VALUE_RANK_MAX);
        }
        shape_out->sides[shape_out->rank++] = node.length;
        /* Only the first item of each level is looked at here: a document of a few KB may claim
         * more elements than 64 bits can count. */
        if (!stk_multiply(shape_out->count, node.length, &shape_out->count)) {
            return stk_fail(error, STOKER_ERROR_LIMIT, "lists have too many elements for an array",
                            "give a path to a part of it", "%u dimensions", shape_out->rank);
        }
        if (node.length == 0) {
            return 0;
        }
        status = item_of(tree, &at, 0, &at, error);
        if (status < 0) {
            return status;
        }
    }
}

/* The state of a copy, for all depths. */
struct copy {
    const struct stk_value_tree *tree;
    const struct stk_value_shape *shape;
    uint32_t dtype;
    uint8_t *out; /* the next element */
    struct stoker_error *error;
};

static int copy_number(struct copy *copy, const struct stk_value_node *node)
{
    if (node->kind != STK_VALUE_NODE_NUMBER && node->kind != STK_VALUE_NODE_BOOL) {
        return stk_fail(copy->error, STOKER_ERROR_FORMAT, "an array holds what is no number",
                        "give a path to numbers", "%s", stk_value_node_name(node->kind));
    }
    if (!stk_number_write(copy->out, copy->dtype, &node->number)) {
        return stk_fail(
            copy->error, STOKER_ERROR_FORMAT, "an array's number does not fit its dtype",
            "ask for a wider dtype, or for a float", "dtype %s", stk_dtype_name(copy->dtype));
    }
    copy->out += stk_dtype_bytes(copy->dtype);
    return 0;
}

/* Recursion of at most STK_VALUE_RANK_MAX. */
static int copy_level(struct copy *copy, const struct stk_value_location *place, uint32_t level)
{
    struct stk_value_location item;
    struct stk_value_node node;
    int status = read_node(copy->tree, place, &node, copy->error);

    if (status < 0) {
        return status;
    }
    if (level == copy->shape->rank && node.kind != STK_VALUE_NODE_LIST) {
        return copy_number(copy, &node);
    }
    if (level == copy->shape->rank || node.kind != STK_VALUE_NODE_LIST ||
        node.length != copy->shape->sides[level]) {
        return stk_fail(copy->error, STOKER_ERROR_FORMAT, "lists of one array differ in length",
                        "pad them, or give a path to each", "dimension %u", level);
    }
    for (uint64_t i = 0; i < node.length && status == 0; i++) {
        status = item_of(copy->tree, place, i, &item, copy->error);
        status = status < 0 ? status : copy_level(copy, &item, level + 1);
    }
    return status;
}

int stk_value_tree_copy(const struct stk_value_tree *tree, const struct stk_value_location *place,
                        const struct stk_value_shape *shape, uint32_t dtype, void *out,
                        struct stoker_error *error)
{
    struct copy copy = {tree, shape, dtype, out, error};

    return shape->count == 0 ? 0 : copy_level(&copy, place, 0);
}
