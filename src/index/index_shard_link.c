/* Hard links: a member that has the bytes of a member before it. */
#include "index/index_shard.h"

#include "format/tar/wds_name.h"

#include <string.h>
#include <strings.h>

#define LINK_BYTES_MAX 4096u /* of a target that is also searched with "./" before it */
#define NO_MEMBER INT64_MAX  /* the target is a file without a key */

/* The number of the member with this name; -1: none. */
static int64_t find_added(const struct stk_index_shard_builder *builder, struct stk_view name)
{
    struct stk_view key, extension;
    int64_t sample;

    if (!stk_wds_name_split(name, &key, &extension)) {
        return -1;
    }
    sample = stk_string_table_find(&builder->keys, key);
    for (int64_t i = sample < 0 ? -1 : (int64_t)builder->last_member[sample], last = i;
         i >= 0 && last - i - 1 <= (int64_t)builder->index->options.member_gap_max; i--) {
        struct stk_view found =
            stk_string_table_get(&builder->extensions, builder->members[i].extension);

        if (builder->members[i].sample != (uint32_t)sample) {
            continue; /* of another sample: it may be between two members of this one */
        }
        if (found.bytes == extension.bytes + 1 &&
            strncasecmp((const char *)found.data, (const char *)extension.data, extension.bytes) ==
                0) {
            return i;
        }
        last = i;
    }
    return -1;
}

/* The target of a link, also if one of both names begins with "./". -1: none; else the place. */
static int64_t find_target(const struct stk_index_shard_builder *builder, struct stk_view target,
                           uint64_t place_out[3])
{
    uint8_t with_dot[LINK_BYTES_MAX + 2] = "./";
    struct stk_view names[2] = {target, target};

    if (target.bytes > 2 && memcmp(target.data, "./", 2) == 0) {
        names[1] = (struct stk_view){target.data + 2, target.bytes - 2};
    } else if (target.bytes <= LINK_BYTES_MAX) {
        memcpy(with_dot + 2, target.data, target.bytes);
        names[1] = (struct stk_view){with_dot, target.bytes + 2};
    }
    for (int i = 0; i < 2; i++) {
        int64_t member = find_added(builder, names[i]);
        int64_t unnamed = stk_string_table_find(&builder->unnamed, names[i]);

        if (member >= 0) {
            place_out[0] = builder->members[member].offset;
            place_out[1] = builder->members[member].bytes;
            place_out[2] = builder->sums && (uint32_t)member < builder->sums_capacity
                               ? builder->sums[member]
                               : 0;
            return member;
        }
        if (unnamed >= 0) {
            memcpy(place_out, builder->unnamed_places[unnamed], 3 * sizeof *place_out);
            return NO_MEMBER;
        }
    }
    return -1;
}

/* True if the member that was added last and the member `from` are labels of their samples. */
static bool are_labels(const struct stk_index_shard_builder *builder, int64_t from)
{
    uint32_t extension = builder->members[builder->member_count - 1].extension;

    return builder->members[from].sample < builder->labels_capacity &&
           builder->members[from].extension == extension &&
           strcmp((const char *)stk_string_table_get(&builder->extensions, extension).data,
                  "cls") == 0;
}

int stk_index_shard_add_link(struct stk_index_shard_builder *builder, struct stk_view name,
                             struct stk_view target, struct stoker_error *error)
{
    uint64_t place[3] = {0};
    int64_t from = find_target(builder, target, place);
    int status;

    if (from < 0) {
        builder->skipped.links++;
        return 0;
    }
    status = stk_index_shard_add(builder, name, place[0], place[1], error);
    if (status == 0 && (builder->sums || place[2])) {
        status = stk_index_shard_set_checksum(builder, place[2], error);
    }
    if (status == 0 && builder->added && from != NO_MEMBER && are_labels(builder, from)) {
        status = stk_index_shard_set_label(builder, builder->labels[builder->members[from].sample],
                                           error);
    }
    return status;
}

void stk_index_shard_skip(struct stk_index_shard_builder *builder, bool is_link)
{
    builder->skipped.links += is_link;
    builder->skipped.special += !is_link;
}

const struct stk_index_skipped *
stk_index_shard_skipped(const struct stk_index_shard_builder *builder)
{
    return &builder->skipped;
}
