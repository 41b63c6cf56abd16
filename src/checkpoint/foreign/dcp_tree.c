/* The tree of a DCP checkpoint: its planner flattened it, and noted the path of each entry. */
#include "base/mem.h"
#include "checkpoint/foreign/dcp_metadata.h"
#include "checkpoint/foreign/foreign_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* An entry of the tree. */
struct leaf {
    const struct stk_pickle_value *path; /* a tuple of texts and integers */
    uint64_t number;                     /* of print */
};
struct tree {
    const struct stk_pickle *pickle;
    const struct stk_dcp_printer *printer;
    struct stk_json_text *json;
    struct stoker_error *error;
};

/* sorted by qsort, which has no context; the values of one pickle point to their parts by index */
struct key {
    struct stk_view name;
    const struct stk_pickle_value *path;
};

static int compare_views(struct stk_view a, struct stk_view b)
{
    int order = memcmp(a.data, b.data, stk_min(a.bytes, b.bytes));

    return order != 0 ? order : a.bytes < b.bytes ? -1 : a.bytes > b.bytes;
}

static int by_name(const void *a, const void *b)
{
    return compare_views(((const struct key *)a)->name, ((const struct key *)b)->name);
}

static int compare_parts(const struct stk_pickle_value *a, const struct stk_pickle_value *b)
{
    if (a->kind != b->kind) {
        return a->kind < b->kind ? -1 : 1;
    }
    return a->kind == STK_PICKLE_TEXT ? compare_views(a->text, b->text)
                                      : (a->integer > b->integer) - (a->integer < b->integer);
}

/* Sorts by paths: a merge sort, since the order needs the pickle. */
static void sort_leaves(const struct stk_pickle *pickle, struct leaf *leaves, struct leaf *spare,
                        uint64_t count)
{
    uint64_t half = count / 2, i = 0, j = half;

    if (count < 2) {
        return;
    }
    sort_leaves(pickle, leaves, spare, half);
    sort_leaves(pickle, leaves + half, spare + half, count - half);
    for (uint64_t k = 0; k < count; k++) {
        int order = i == half ? 1 : j == count ? -1 : 0;

        for (uint32_t level = 0; order == 0; level++) {
            const struct stk_pickle_value *a = stk_pickle_item(pickle, leaves[i].path, level);
            const struct stk_pickle_value *b = stk_pickle_item(pickle, leaves[j].path, level);

            order = !a || !b ? (b ? -1 : 1) : compare_parts(a, b);
        }
        spare[k] = order < 0 ? leaves[i++] : leaves[j++];
    }
    memcpy(leaves, spare, count * sizeof *leaves);
}

/* The leaves that share the part at a level with the first one. */
static uint64_t group_of(const struct tree *tree, const struct leaf *leaves, uint64_t count,
                         uint32_t level)
{
    const struct stk_pickle_value *first = stk_pickle_item(tree->pickle, leaves->path, level);
    uint64_t same = 1;

    while (same < count) {
        const struct stk_pickle_value *part =
            stk_pickle_item(tree->pickle, leaves[same].path, level);

        if (!part || compare_parts(first, part) != 0) {
            break;
        }
        same++;
    }
    return same;
}

/* A list has the numbers 0, 1, 2 ... */
static bool is_list(const struct tree *tree, const struct leaf *leaves, uint64_t count,
                    uint32_t level)
{
    int64_t next = 0;

    for (uint64_t i = 0; i < count; i += group_of(tree, leaves + i, count - i, level)) {
        const struct stk_pickle_value *part = stk_pickle_item(tree->pickle, leaves[i].path, level);

        if (part->kind != STK_PICKLE_INTEGER || part->integer != next++) {
            return false;
        }
    }
    return true;
}

/* Leaves that share their first `level` parts. */
static int print_level(const struct tree *tree, const struct leaf *leaves, uint64_t count,
                       uint32_t level)
{
    bool list;
    int status = 0;

    if (count == 1 && leaves->path->count == level) {
        return tree->printer->print(tree->printer->context, leaves->number, tree->json,
                                    tree->error);
    }
    if (leaves->path->count == level) { /* a value, and values below it */
        return STOKER_ERROR_FORMAT;
    }
    list = is_list(tree, leaves, count, level);
    stk_json_text_print(tree->json, list ? "[" : "{\"dict\":{");
    for (uint64_t i = 0, same; status == 0 && i < count; i += same) {
        const struct stk_pickle_value *part = stk_pickle_item(tree->pickle, leaves[i].path, level);

        same = group_of(tree, leaves + i, count - i, level);
        stk_json_text_add(tree->json, ",", i > 0);
        if (!list && part->kind != STK_PICKLE_TEXT) {
            return STOKER_ERROR_FORMAT;
        }
        if (!list) {
            status = stk_torch_print_text(tree->json, part->text, tree->error);
            stk_json_text_print(tree->json, ":");
        }
        status = status < 0 ? status : print_level(tree, leaves + i, same, level + 1);
    }
    stk_json_text_print(tree->json, list ? "]" : "}}");
    return status;
}

/* The path of each entry by its name. Free with stk_free; NULL: there are none, or no memory. */
static struct key *read_paths(const struct stk_dcp_metadata *metadata, uint64_t *count_out)
{
    const struct stk_pickle *pickle = &metadata->pickle;
    const struct stk_pickle_value *planner = metadata->planner;
    struct key *keys;
    uint32_t cell;

    if (!planner || planner->kind != STK_PICKLE_DICT) {
        return NULL;
    }
    keys = stk_alloc(planner->count / 2 + 1, sizeof *keys);
    cell = planner->items.first;
    *count_out = 0;
    for (uint32_t i = 0; keys && i < planner->count; i += 2) {
        const struct stk_pickle_value *name = &pickle->values[pickle->cells[cell].value];
        uint32_t next = pickle->cells[cell].next;
        const struct stk_pickle_value *path = &pickle->values[pickle->cells[next].value];

        if (name->kind == STK_PICKLE_TEXT && path->kind == STK_PICKLE_TUPLE && path->count > 0 &&
            path->count <= STK_FOREIGN_LEVELS_MAX) {
            keys[(*count_out)++] = (struct key){name->text, path};
        }
        cell = pickle->cells[next].next;
    }
    if (keys) {
        qsort(keys, *count_out, sizeof *keys, by_name);
    }
    return keys;
}

/* Fills the leaf of an entry. Returns false if it has no valid path. */
static bool find_leaf(const struct stk_pickle *pickle, const struct key *keys, uint64_t key_count,
                      struct stk_view name, struct leaf *leaf)
{
    struct key wanted = {name, NULL};
    const struct key *found =
        key_count > 0 ? bsearch(&wanted, keys, key_count, sizeof *keys, by_name) : NULL;

    if (!found) {
        return false;
    }
    leaf->path = found->path;
    for (uint32_t i = 0; i < found->path->count; i++) {
        uint32_t kind = stk_pickle_item(pickle, found->path, i)->kind;

        if (kind != STK_PICKLE_TEXT && kind != STK_PICKLE_INTEGER) {
            return false;
        }
    }
    return true;
}

bool stk_dcp_print_tree(const struct stk_dcp_metadata *metadata,
                        const struct stk_dcp_printer *printer, struct stk_json_text *json,
                        struct stoker_error *error)
{
    uint64_t count = metadata->tensor_count + metadata->bytes_count, key_count = 0;
    struct tree tree = {&metadata->pickle, printer, json, error};
    struct leaf *leaves = stk_alloc(2 * count + 1, sizeof *leaves);
    struct key *keys = read_paths(metadata, &key_count);
    bool good = leaves && keys && count > 0;

    for (uint64_t i = 0; good && i < count; i++) {
        leaves[i].number = i;
        good = find_leaf(&metadata->pickle, keys, key_count,
                         i < metadata->tensor_count ? metadata->tensors[i].name
                                                    : metadata->bytes[i - metadata->tensor_count],
                         &leaves[i]);
    }
    if (good) {
        sort_leaves(&metadata->pickle, leaves, leaves + count, count);
        for (uint64_t i = 1; good && i < count; i++) { /* no path twice */
            good = leaves[i].path != leaves[i - 1].path;
        }
        good = good && print_level(&tree, leaves, count, 0) == 0;
    }
    stk_free(leaves);
    stk_free(keys);
    return good;
}
