/* Flattens a tree of weights: the share of a leaf is the product of the shares on its path, as a
 * fraction in lowest terms; the common denominator turns the fractions into weights. */
#include "order/mix/mix.h"

#include "base/mem.h"

struct part {
    uint64_t above, below; /* above / below: fraction of the complete mix */
    uint64_t children;     /* the sum of their weights */
    bool is_parent;
};

static int check(const struct stk_weight_tree_node *nodes, uint32_t node_count, struct part *parts,
                 struct stoker_error *error);
static bool part_of(struct part *part, struct part parent, uint64_t weight, uint64_t total);
static int too_large(struct stoker_error *error, uint32_t node);

static uint64_t divisor_of(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

int stk_weight_tree_flatten(const struct stk_weight_tree_node *nodes, uint32_t node_count,
                            uint64_t *weights_out, uint32_t *leaf_count_out,
                            struct stoker_error *error)
{
    /* The last part is the root. */
    struct part *parts = NULL;
    uint64_t below = 1;
    uint32_t leaf_count = 0;
    int status = 0;

    if (node_count == 0 || node_count > STK_WEIGHT_TREE_NODES_MAX) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "too many or too few weights in the tree",
                        "give 1 to 1024 nodes", "%u nodes", node_count);
    }
    parts = stk_alloc((size_t)node_count + 1, sizeof *parts);
    if (!parts) {
        return stk_fail_memory(error, "tree of weights, %u nodes", node_count);
    }
    status = check(nodes, node_count, parts, error);
    parts[node_count].above = parts[node_count].below = 1;
    for (uint32_t i = 0; i < node_count && status == 0; i++) {
        const struct part *parent = &parts[stk_min(nodes[i].parent, node_count)];

        if (!part_of(&parts[i], *parent, nodes[i].weight, parent->children)) {
            status = too_large(error, i);
        } else if (!parts[i].is_parent) {
            below = below / divisor_of(below, parts[i].below);
            if (!stk_multiply(below, parts[i].below, &below) || below > STK_MIX_WEIGHTS_MAX) {
                status = too_large(error, i);
            }
        }
    }
    for (uint32_t i = 0; i < node_count && status == 0; i++) {
        if (!parts[i].is_parent) {
            weights_out[leaf_count++] = parts[i].above * (below / parts[i].below);
        }
    }
    *leaf_count_out = leaf_count;
    stk_free(parts);
    return status;
}

/* Parents precede children, and every node with a weight has children with a weight. */
static int check(const struct stk_weight_tree_node *nodes, uint32_t node_count, struct part *parts,
                 struct stoker_error *error)
{
    for (uint32_t i = 0; i < node_count; i++) {
        struct part *parent = &parts[stk_min(nodes[i].parent, node_count)];

        if (nodes[i].parent != STK_WEIGHT_TREE_ROOT && nodes[i].parent >= i) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "a weight stands before its parent",
                            "list parents before their children", "node %u, parent %u", i,
                            nodes[i].parent);
        }
        parent->is_parent = true;
        if (!stk_add(parent->children, nodes[i].weight, &parent->children)) {
            return too_large(error, i);
        }
    }
    for (uint32_t i = 0; i <= node_count; i++) {
        if (parts[i].is_parent && parts[i].children == 0 &&
            (i == node_count || nodes[i].weight > 0)) {
            return stk_fail(error, STOKER_ERROR_ARGUMENT, "all weights of a group are 0",
                            "give one of them a weight, or the group none", "node %u", i);
        }
    }
    return 0;
}

/* Computes parent * weight / total in lowest terms; the result is 0 / 1 for a part with weight
 * 0. */
static bool part_of(struct part *part, struct part parent, uint64_t weight, uint64_t total)
{
    uint64_t by;

    part->above = 0;
    part->below = 1;
    if (weight == 0 || parent.above == 0) {
        return true;
    }
    by = divisor_of(weight, total);
    weight /= by;
    total /= by;
    by = divisor_of(parent.above, total);
    parent.above /= by;
    total /= by;
    by = divisor_of(weight, parent.below);
    weight /= by;
    parent.below /= by;
    return stk_multiply(parent.above, weight, &part->above) &&
           stk_multiply(parent.below, total, &part->below);
}

static int too_large(struct stoker_error *error, uint32_t node)
{
    return stk_fail(error, STOKER_ERROR_ARGUMENT, "the weights of the tree are too large together",
                    "round them, so that their common denominator is at most 2^56", "node %u",
                    node);
}
