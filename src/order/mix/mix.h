/* order/mix/mix.h: a mix of sources by weights: maps (seed, weights, position) to a source and a
 * position in it, in O(1) time. Version 2; version 1 remains for states that were saved with it.
 *
 *   0             change            source 2 exhausted                              the end
 *   | frame | frame | fr | frame | frame | frame | f | frame | frame | ...               |
 *   |  segment: weights  |  segment: other weights   |  segment: without source 2        |
 *
 *   0               epoch           change          epoch                           epoch
 *   | frame | frame | frame | frame | frame | frame | frame | frame | frame | frame | ...
 *   |  segment: periods of an epoch | up to an epoch| segment: other weights
 *
 * A frame is a run of positions in which each source has its share; a keyed permutation assigns the
 * positions to the sources. If a frame ends after n positions of a segment, the first i sources
 * together have floor(n * S_i / T) of them (S_i: sum of their weights, T: of all), so every source,
 * and every run of adjacent sources, is within one sample of its share. Only the last frame of a
 * segment is shorter, where the weights change or a source ends.
 *
 * Version 2: if the length of an epoch is given, frames end where epochs end, and all frames of an
 * epoch are equally long, to within one unit. So an epoch, too, has the share of each source, and a
 * source that gives a multiple of its samples in each epoch gives each of them equally often. Only
 * if an epoch is too short for the share of a source, a frame spans several epochs. Version 1 had
 * frames of one length, which epochs cut.
 *
 * A source counts its own positions 0, 1, 2, ..., without gaps or repeats. Within a frame they come
 * in a random sequence; or, in_sequence, one after the other, and the units of the sources
 * alternate evenly (mix_sequence.c). With home groups (order/order.h), this sequence keeps almost
 * all samples at positions of their group: the group that the source's own order assigns.
 *
 * Pure: no I/O, no threads, no clock.
 * Owner: the caller. Threads: any after init. Memory: allocated in init, 48 bytes a source and
 * segment. Bound: STK_MIX_SOURCES_MAX sources, STK_MIX_CHANGES_MAX changes. */
#ifndef ORDER_MIX_MIX_H
#define ORDER_MIX_MIX_H

#include "order/order.h"

#define STK_MIX_VERSION 2
#define STK_MIX_SOURCES_MAX 256u
#define STK_MIX_CHANGES_MAX 4096u
#define STK_MIX_POSITIONS_MAX (UINT64_C(1) << 62)
#define STK_MIX_WEIGHTS_MAX (UINT64_C(1) << 56) /* their sum */
/* A frame has about this many samples and at least so many units, more only where a rare source
 * needs it: a short one would be a pattern, a long one reads a source far from where it stands. */
#define STK_MIX_FRAME_SAMPLES 1024u
#define STK_MIX_FRAME_UNITS_MIN 16u
/* With home groups: positions of each in a frame, as a few of them are another group's; but frames
 * are not longer for that than can be kept. */
#define STK_MIX_FRAME_GROUP 64u
#define STK_MIX_FRAME_GROUPS_MAX (UINT64_C(1) << 16)
#define STK_MIX_FRAME_MAX (UINT64_C(1) << 32) /* units: a share is at least 2^-32 */

/* What happens when a source has delivered its limit. */
enum stk_mix_end {
    STK_MIX_REPEAT,      /* its next epoch: the mix has no end */
    STK_MIX_STOP,        /* the end of the mix */
    STK_MIX_RENORMALISE, /* the others continue in their proportions; the end when none is left */
};

struct stk_mix_source {
    uint64_t sample_count; /* > 0 */
    uint64_t sample_limit; /* samples to give; 0: without end. Not looked at under REPEAT */
};

/* New weights from `position` on, one for each source; 0 excludes a source. */
struct stk_mix_change {
    uint64_t position;
    const uint64_t *weights; /* borrowed during init */
};

struct stk_mix_options {
    uint64_t seed;
    const struct stk_mix_source *sources; /* borrowed during init */
    const uint64_t *weights;              /* from position 0 on; borrowed during init */
    const struct stk_mix_change *changes; /* by position, none twice; borrowed during init */
    uint32_t source_count, change_count;
    uint32_t end;          /* enum stk_mix_end */
    uint64_t unit_samples; /* so many neighbours are from one source; 1 mixes batches, the size of
                            * a global batch makes each of one source. 0 is 1 */
    uint32_t group_count;  /* home groups; 0 is 1 */
    uint32_t version;      /* 1 or 2; 0: the newest, STK_MIX_VERSION */
    /* Version 2: */
    uint64_t epoch_samples; /* REPEAT: where epochs end, a multiple of the unit; 0: nowhere */
    bool in_sequence;       /* each source in its own sequence; group_count is 1 */
};

/* A run of positions, in units, with the same weights. */
struct stk_mix_segment {
    uint64_t first, end;      /* end: UINT64_MAX without end */
    uint64_t frames;          /* whole ones; then one of `rest` units */
    uint64_t rest;            /* may be 0 */
    uint64_t total;           /* T */
    struct stk_divisor frame; /* units a frame; the longest, if frames follow epochs */
    /* Frames that follow epochs: a period is an epoch, or several ones that a frame spans. Each has
     * period_frames frames, the first period_extra of them with one unit more. */
    struct stk_divisor period; /* units; number 0: all frames are equally long */
    struct stk_divisor period_frames, base, longer; /* base: units of a frame; longer: base + 1 */
    uint64_t period_extra;
    bool is_even; /* a frame is a multiple of T: all frames hold the same counts */
    /* By source, owned by the mix. In a frame, the sources before and with source i have `quota`
     * units and remainder[i] / T of one. */
    uint64_t *quota, *remainder; /* of `base` units, if frames follow epochs */
    uint64_t *sums;              /* S_i */
    uint64_t *before;            /* units of the source before the segment */
    uint64_t *rest_quota;        /* as quota, in the last frame */
    uint64_t *rest_before;       /* units of the source before the last frame */
};

/* Made by init; const. */
struct stk_mix {
    uint64_t key;
    struct stk_divisor unit, groups;
    struct stk_divisor samples[STK_MIX_SOURCES_MAX];
    uint32_t source_count, segment_count;
    bool deals_groups, rotates_units; /* with home groups: units of one sample, or longer ones */
    bool in_sequence;
    uint64_t end;                     /* positions; STK_MIX_POSITIONS_MAX without end */
    struct stk_mix_segment *segments; /* owned */
    /* A mix with an end that is gone through again: its sources continue where they were. */
    uint64_t cycle; /* so many times before; 0 */
    const uint64_t
        *cycle_samples; /* borrowed, one a source: samples it gives in a turn; NULL while turn 0 */
};

struct stk_mix_draw {
    uint32_t source;
    uint64_t epoch;    /* of the source */
    uint64_t position; /* in that epoch */
};

/* Returns 0 on success, STOKER_ERROR_ARGUMENT if a number is out of range or there is no source,
 * -ENOMEM. */
int stk_mix_init(struct stk_mix *mix, const struct stk_mix_options *options,
                 struct stoker_error *error);
void stk_mix_deinit(struct stk_mix *mix); /* a zeroed one is allowed */
/* Returns the length of an epoch: at least `given`, a multiple of the unit, so that steps begin
 * with units; and of the groups, because ranks count groups from the start of an epoch. 0 is 1.
 * Returns UINT64_MAX, which init refuses, if there is none. */
uint64_t stk_mix_epoch_samples(uint64_t given, uint64_t unit_samples, uint32_t group_count);

/* Samples that a source delivers in total, for a mix with an end. */
uint64_t stk_mix_delivered(const struct stk_mix *mix, uint32_t source);
/* position < mix->end. */
void stk_mix_draw_at(const struct stk_mix *mix, uint64_t position, struct stk_mix_draw *draw_out);
/* Writes the draws at first to first + count - 1: several times faster than single calls. */
void stk_mix_draw_range(const struct stk_mix *mix, uint64_t first, uint64_t count,
                        struct stk_mix_draw *draws_out);
/* Finds the position of the index-th sample that the source delivers in the mix (not in an epoch of
 * the source; cycles are ignored): the inverse of a draw. Returns false if there is none. */
bool stk_mix_find(const struct stk_mix *mix, uint32_t source, uint64_t index,
                  uint64_t *position_out);
/* Returns the first position where the weights may change if all positions before `given` were
 * delivered: the end of the frame with position given - 1, a multiple of the unit. A change there
 * or later does not change the draws before `given`; a change at or after the end has no effect.
 */
uint64_t stk_mix_change_position(const struct stk_mix *mix, uint64_t given);

/* The draw at a position, and the sample that the source's own order has there. */
struct stk_mix_item {
    struct stk_mix_draw draw;
    uint64_t sample; /* of the source */
};

/* A frame's draws, dealt to its positions by home group; all of one length. */
struct stk_mix_frame {
    uint32_t *drawn;                  /* owned: which draw each position has */
    uint32_t *draws, *holes, *excess; /* owned with it: while they are dealt */
};

/* Reads positions in sequence: caches the current frame, and the keys of the sources' epochs.
 * Owner: the caller. Threads: one. Memory: 128 kB (with groups as long as a frame is, at most 3 MB)
 * and half a kB a source, taken in init. */
#define STK_MIX_FRAME_CACHED 4096u /* longer frames are gone through one by one, */
#define STK_MIX_FRAME_CACHED_GROUPS STK_MIX_FRAME_GROUPS_MAX /* or with groups those */
struct stk_mix_reader {
    const struct stk_mix *mix;           /* borrowed */
    const struct stk_order *orders;      /* borrowed, one a source */
    struct stk_order_epoch (*epochs)[2]; /* owned: the last even and the last odd one of a source */
    struct stk_mix_item *items;          /* owned: of the frame, before its permutation */
    struct stk_mix_frame frame;          /* with groups; else zeroed */
    uint64_t frame_first;                /* its position; UINT64_MAX for none */
    uint64_t cached_max;                 /* units */
};

/* Returns 0 on success, STOKER_ERROR_ARGUMENT if the length of an order is not that of its source,
 * -ENOMEM. */
int stk_mix_reader_init(struct stk_mix_reader *reader, const struct stk_mix *mix,
                        const struct stk_order *orders, struct stoker_error *error);
void stk_mix_reader_deinit(struct stk_mix_reader *reader); /* a zeroed one is allowed */
/* Writes the items at first to first + count - 1. Fast for calls in sequence, of a frame or more.
 */
void stk_mix_read(struct stk_mix_reader *reader, uint64_t first, uint64_t count,
                  struct stk_mix_item *items_out);

/* A tree of weights, parents before their children. */
#define STK_WEIGHT_TREE_ROOT UINT32_MAX
#define STK_WEIGHT_TREE_NODES_MAX 1024u
struct stk_weight_tree_node {
    uint32_t parent; /* index of a node before, or STK_WEIGHT_TREE_ROOT */
    uint64_t weight; /* among the children of its parent */
};
/* Computes the weights of the leaves, in their sequence: the smallest whole numbers by which each
 * leaf has exactly its share of its parent's share. Returns 0 on success, STOKER_ERROR_ARGUMENT if
 * their sum would exceed STK_MIX_WEIGHTS_MAX, -ENOMEM. If the leaves of a parent are adjacent, the
 * parent is within one sample of its share, too. weights_out has node_count entries. */
int stk_weight_tree_flatten(const struct stk_weight_tree_node *nodes, uint32_t node_count,
                            uint64_t *weights_out, uint32_t *leaf_count_out,
                            struct stoker_error *error);

#endif
