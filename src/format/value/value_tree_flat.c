/* A parsed document as one run of bytes, which another process may have written: nodes in the
 * order of a breadth-first walk, then their text.
 *
 *   head | node 0: the root | children of node 0 | children of node 1 | ... | text
 *
 * A list's children are in one piece, and pieces follow each other in the order of their lists. So
 * one look at each node, with the place where the next piece must begin, shows that every node but
 * the root has exactly one parent: no cycle, nothing shared, no count that the bytes do not hold.
 * Places count from the node itself: a node is all that the walk needs. */
#include "format/value/value_private.h"

#include "base/mem.h"

#include <string.h>

struct flat_head {
    uint64_t nodes, text_bytes;
};

struct flat_node {
    uint32_t kind;   /* enum stk_value_node_kind */
    uint32_t number; /* enum stk_number_kind; of NUMBER and BOOL */
    /* NUMBER, BOOL: its bits. TEXT, BYTES: bytes from this node to them. LIST, MAP: nodes from
     * this one to the first child. */
    uint64_t value;
    uint64_t length; /* bytes, children, or pairs: a name and a value in turns */
};

#define NODES_FIRST 64u

/* ---- writing ---- */

/* The walk over a tree: its nodes in order. A name has no node of its own in every library, so it
 * is NULL here and is written with its map. */
struct walk {
    const struct stk_value_tree *tree;
    const void **nodes; /* owned */
    uint64_t count, capacity;
    uint64_t text_bytes;
};

static bool push(struct walk *walk, const void *node)
{
    if (walk->count == walk->capacity) {
        uint64_t more = walk->capacity ? 2 * walk->capacity : NODES_FIRST;
        const void **nodes = stk_realloc(walk->nodes, walk->capacity, more, sizeof *nodes);

        if (!nodes) {
            return false;
        }
        walk->nodes = nodes;
        walk->capacity = more;
    }
    walk->nodes[walk->count++] = node;
    return true;
}

static bool has_text(uint32_t kind)
{
    return kind == STK_VALUE_NODE_TEXT || kind == STK_VALUE_NODE_BYTES;
}

/* Queues a node's children, and counts its own text and that of its names. */
static bool visit(struct walk *walk, const void *source)
{
    const struct stk_value_tree_type *type = walk->tree->type;
    const void *at = NULL, *value;
    struct stk_value_node node, name;
    bool good = true;

    type->read(source, &node);
    walk->text_bytes += has_text(node.kind) ? node.text.bytes : 0;
    for (uint64_t i = 0; node.kind == STK_VALUE_NODE_LIST && i < node.length && good; i++) {
        good = push(walk, type->item(source, i));
    }
    for (uint64_t i = 0; node.kind == STK_VALUE_NODE_MAP && i < node.length && good; i++) {
        at = type->pair(source, at, &name, &value);
        walk->text_bytes += has_text(name.kind) ? name.text.bytes : 0;
        good = push(walk, NULL) && push(walk, value);
    }
    return good;
}

struct writer {
    struct flat_node *nodes;
    uint8_t *text; /* the place of the next node */
    uint64_t tail; /* the place of the next children */
};

static void write_node(struct writer *writer, uint64_t index, const struct stk_value_node *from)
{
    struct flat_node *node = &writer->nodes[index];

    *node = (struct flat_node){.kind = from->kind};
    if (has_text(from->kind)) {
        node->value = (uint64_t)(writer->text - (uint8_t *)node);
        node->length = from->text.bytes;
        if (from->text.bytes > 0) {
            memcpy(writer->text, from->text.data, from->text.bytes);
        }
        writer->text += from->text.bytes;
    } else if (from->kind == STK_VALUE_NODE_NUMBER || from->kind == STK_VALUE_NODE_BOOL) {
        node->number = from->number.kind;
        node->value = from->number.natural;
    }
}

static void write_names(struct writer *writer, const struct stk_value_tree *tree, const void *map,
                        uint64_t count)
{
    const void *at = NULL, *value;
    struct stk_value_node name;

    for (uint64_t i = 0; i < count; i++) {
        at = tree->type->pair(map, at, &name, &value);
        if (name.kind == STK_VALUE_NODE_LIST || name.kind == STK_VALUE_NODE_MAP) {
            name = (struct stk_value_node){.kind = STK_VALUE_NODE_NULL}; /* no path names it */
        }
        write_node(writer, writer->tail + 2 * i, &name);
    }
}

static void write_all(const struct walk *walk, struct writer *writer)
{
    for (uint64_t i = 0; i < walk->count; i++) {
        struct flat_node *node = &writer->nodes[i];
        struct stk_value_node from;

        if (!walk->nodes[i]) {
            continue; /* a name: it was written with its map */
        }
        walk->tree->type->read(walk->nodes[i], &from);
        write_node(writer, i, &from);
        if (from.kind == STK_VALUE_NODE_LIST || from.kind == STK_VALUE_NODE_MAP) {
            node->value = writer->tail - i;
            node->length = from.length;
        }
        if (from.kind == STK_VALUE_NODE_MAP) {
            write_names(writer, walk->tree, walk->nodes[i], from.length);
            writer->tail += from.length;
        }
        writer->tail +=
            from.kind == STK_VALUE_NODE_LIST || from.kind == STK_VALUE_NODE_MAP ? from.length : 0;
    }
}

int stk_value_tree_flatten(const struct stk_value_tree *tree, uint8_t *out, uint64_t capacity,
                           uint64_t *bytes_out, struct stoker_error *error)
{
    struct walk walk = {.tree = tree};
    struct writer writer = {.nodes = (struct flat_node *)(void *)(out + sizeof(struct flat_head)),
                            .tail = 1};
    uint64_t bytes;
    bool good = push(&walk, tree->root);
    int status = 0;

    for (uint64_t i = 0; i < walk.count && good; i++) {
        good = !walk.nodes[i] || visit(&walk, walk.nodes[i]);
    }
    /* Each is less than the memory of its document: the sum cannot overflow. */
    bytes = sizeof(struct flat_head) + walk.count * sizeof *writer.nodes + walk.text_bytes;
    if (!good) {
        status = stk_fail_errno(error, 12, "cannot hand over a member", "free memory", "%llu nodes",
                                (unsigned long long)walk.count);
    } else if (bytes > capacity) {
        status = stk_fail(error, STOKER_ERROR_LIMIT, "a member needs more memory than allowed",
                          "raise decode_bytes_max, or leave the member out", "%llu of %llu bytes",
                          (unsigned long long)bytes, (unsigned long long)capacity);
    } else {
        *(struct flat_head *)(void *)out = (struct flat_head){walk.count, walk.text_bytes};
        writer.text = out + (bytes - walk.text_bytes);
        write_all(&walk, &writer);
        *bytes_out = bytes;
    }
    stk_free(walk.nodes);
    return status;
}

/* ---- reading ---- */

static void read_node(const void *node, struct stk_value_node *out)
{
    const struct flat_node *flat = node;

    *out = (struct stk_value_node){.kind = flat->kind, .length = flat->length};
    if (has_text(flat->kind)) {
        out->text = (struct stk_view){(const uint8_t *)flat + flat->value, flat->length};
    } else if (flat->kind == STK_VALUE_NODE_NUMBER || flat->kind == STK_VALUE_NODE_BOOL) {
        out->number.kind = flat->number;
        out->number.natural = flat->value;
    }
}

static const void *item(const void *list, uint64_t index)
{
    const struct flat_node *flat = list;

    return flat + flat->value + index;
}

/* If a name comes twice, the last one counts. */
static const void *member(const void *map, const char *name, size_t bytes)
{
    const struct flat_node *flat = map, *first = flat + flat->value;

    for (uint64_t i = flat->length; i > 0; i--) {
        const struct flat_node *key = &first[2 * (i - 1)];

        if (key->kind == STK_VALUE_NODE_TEXT && key->length == bytes &&
            (bytes == 0 || memcmp((const uint8_t *)key + key->value, name, bytes) == 0)) {
            return key + 1;
        }
    }
    return NULL;
}

static const void *pair(const void *map, const void *before, struct stk_value_node *name_out,
                        const void **value_out)
{
    const struct flat_node *flat = map, *last = before;
    const struct flat_node *name = last ? last + 2 : flat + flat->value;

    read_node(name, name_out);
    *value_out = name + 1;
    return name;
}

static void close_tree(struct stk_value_tree *tree)
{
    stk_free(tree->document);
}

static const struct stk_value_tree_type of_flat = {read_node, item, member, pair, NULL, close_tree};

/* True if a node is one that write_node may have written; *tail moves past its children. */
static bool is_good(const struct flat_head *head, const struct flat_node *nodes, uint64_t index,
                    uint64_t *tail)
{
    const struct flat_node *node = &nodes[index];
    /* From the node to the text, and from there to the end. */
    uint64_t before = (head->nodes - index) * sizeof *node, children = node->length;

    switch (node->kind) {
    case STK_VALUE_NODE_NULL:
    case STK_VALUE_NODE_OVERFLOW:
    case STK_VALUE_NODE_SURROGATE:
        return true;
    case STK_VALUE_NODE_BOOL:
        return node->number == STK_NUMBER_INT && node->value <= 1;
    case STK_VALUE_NODE_NUMBER:
        return node->number <= STK_NUMBER_REAL;
    case STK_VALUE_NODE_TEXT:
    case STK_VALUE_NODE_BYTES:
        return node->value >= before && node->value - before <= head->text_bytes &&
               node->length <= head->text_bytes - (node->value - before);
    case STK_VALUE_NODE_MAP:
        if (children > head->nodes / 2) {
            return false;
        }
        children *= 2;
        /* fall through */
    case STK_VALUE_NODE_LIST:
        if (node->value != *tail - index || children > head->nodes - *tail) {
            return false;
        }
        *tail += children;
        return true;
    default:
        return false;
    }
}

static bool is_flat(const uint8_t *document, uint64_t bytes)
{
    const struct flat_head *head = (const void *)document;
    const struct flat_node *nodes = (const void *)(document + sizeof *head);
    uint64_t rest, tail = 1;

    if (bytes < sizeof *head) {
        return false;
    }
    rest = bytes - sizeof *head;
    if (head->nodes == 0 || head->nodes > rest / sizeof *nodes ||
        head->text_bytes != rest - head->nodes * sizeof *nodes) {
        return false;
    }
    for (uint64_t i = 0; i < head->nodes; i++) {
        if (i >= tail || !is_good(head, nodes, i, &tail)) {
            return false;
        }
    }
    return tail == head->nodes;
}

int stk_value_tree_flat_open(struct stk_value_tree *tree, struct stk_view bytes,
                             struct stoker_error *error)
{
    uint8_t *copy = stk_alloc(bytes.bytes, 1);

    if (!copy) {
        return stk_fail_errno(error, 12, "cannot read a member", "free memory", "%zu bytes",
                              bytes.bytes);
    }
    /* Copy first, since the other process can still change the bytes; then validate. */
    memcpy(copy, bytes.data, bytes.bytes);
    if (!is_flat(copy, bytes.bytes)) {
        stk_free(copy);
        return stk_fail(error, STOKER_ERROR_CORRUPT, "the parser answered nonsense on this member",
                        "look at it with care: it may be made for that", "an invalid document");
    }
    *tree = (struct stk_value_tree){&of_flat, copy + sizeof(struct flat_head), copy};
    return 0;
}
