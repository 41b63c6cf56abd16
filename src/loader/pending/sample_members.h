/* loader/pending/sample_members.h: the members of a sample that a loader's fields need, and the
 * byte range of the shard that holds them.
 *
 *   sample --find (index)--> a member for each field, span --read--> a view for each field
 *
 * A sample is looked up once: the result belongs to the work on its slot, and moves to the fetch
 * record if the bytes are cold. It is looked up again only after a read failed.
 * Owner: the caller. Threads: one. Memory: the caller's array of parts; keys are views of the
 * index. Bound: a part for each field.
 */
#ifndef LOADER_PENDING_SAMPLE_MEMBERS_H
#define LOADER_PENDING_SAMPLE_MEMBERS_H

#include "index/index.h"

/* Members with a larger gap between them are read one by one. */
#define STK_SAMPLE_SPAN_GAP_BYTES (256u << 10)

struct stk_loader_field;

/* The byte range of a shard that holds all members of a sample that the fields need. */
struct stk_sample_span {
    uint32_t shard;
    uint64_t offset, bytes; /* bytes: STK_ENTIRE_OBJECT until the size of a file is known */
    bool scattered;         /* the members lie too far apart: they are read one by one */
};

/* The member of one field. */
struct stk_sample_part {
    struct stk_member member;
    uint64_t header_offset; /* where reading begins: at the member's tar headers, or at its data */
    struct stk_view view;   /* the member's bytes, once they were read */
    bool found;             /* false: the sample has no such member, or the field needs none */
};

struct stk_sample_members {
    struct stk_sample sample;
    struct stk_sample_span span;
    bool is_entire_object;         /* the sample is a file of a folder */
    bool is_unverified;            /* a foreign index: headers are read and compared with it */
    bool is_index_damaged;         /* look-up failed: see stk_sample_members_fail */
    struct stk_sample_part *parts; /* [field_count]; memory of the caller */
};

/* Whether a field reads a member of this sample; else its value comes from the index. */
bool stk_sample_needs_member(const struct stoker_loader *loader,
                             const struct stk_loader_field *field, const struct stk_sample *sample);
/* Looks up the members of a sample. members->parts is set by the caller. */
void stk_sample_members_find(const struct stoker_loader *loader, uint64_t sample,
                             struct stk_sample_members *members);
/* Copies what find returned; to->parts is set by the caller. */
void stk_sample_members_copy(const struct stoker_loader *loader,
                             const struct stk_sample_members *from, struct stk_sample_members *to);
/* Repeats the look-up that found a damaged page of the index, for its error. Always fails: with
 * STOKER_ERROR_CHANGED instead of CORRUPT, since a damaged index is no bad sample and is not
 * skipped; also if the look-up succeeds now. */
int stk_sample_members_fail(const struct stoker_loader *loader, uint64_t sample,
                            struct stoker_error *error);
/* Adds the shard, the offset and the sample's key to an error that has none yet. */
void stk_sample_members_locate_error(const struct stoker_loader *loader,
                                     const struct stk_sample_members *members, uint64_t offset,
                                     struct stoker_error *error);
/* Returns the size of the value of a field of dtype BYTES (a member or the key); 0 if the sample
 * has no such member or the look-up fails: reading the sample reports that error. May stat a file.
 */
uint64_t stk_sample_value_bytes(struct stoker_loader *loader, const struct stk_loader_field *field,
                                uint64_t sample);

#endif
