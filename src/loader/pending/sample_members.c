/* Look-up of a sample's members. */
#include "loader/pending/sample_members.h"

#include "loader/pending/loader_private.h"

#include <stdio.h>
#include <string.h>

bool stk_sample_needs_member(const struct stoker_loader *loader,
                             const struct stk_loader_field *field, const struct stk_sample *sample)
{
    switch (field->kind) {
    case STOKER_FIELD_KEY:
    case STOKER_FIELD_SAMPLE:
        return false;
    case STOKER_FIELD_LABEL:
        return !field->from_path && !stk_index_is_file(loader->dataset->index, sample->shard);
    default:
        return true;
    }
}

/* The member with the field's most preferred extension; the first member if the field names no
 * extension. */
static bool find_member(const struct stoker_loader *loader, const struct stk_loader_field *field,
                        const struct stk_sample *sample, struct stk_member *member_out,
                        uint32_t *number_out, bool *is_damaged)
{
    const struct stk_index *index = loader->dataset->index;
    uint32_t best = UINT32_MAX;
    uint32_t count = sample->member_count;

    for (uint32_t i = 0; i < count && best > 0; i++) {
        struct stk_member member;

        if (stk_index_member(index, sample, i, &member, NULL) < 0) {
            *is_damaged = true;
            return false;
        }
        if (field->extension_count == 0 && !field->has_default) {
            *member_out = member;
            *number_out = i;
            return true;
        }
        for (uint32_t e = 0; e < field->extension_count && e < best; e++) {
            if (field->extensions[e] == member.extension) {
                best = e;
                *member_out = member;
                *number_out = i;
            }
        }
    }
    return best != UINT32_MAX;
}

/* Finds the member of field f, and where reading it begins. */
static void find_part(const struct stoker_loader *loader, uint64_t sample, uint32_t f,
                      struct stk_sample_members *members)
{
    struct stk_sample_part *part = &members->parts[f];
    uint32_t number;

    part->found = !members->is_index_damaged &&
                  stk_sample_needs_member(loader, &loader->fields[f], &members->sample) &&
                  find_member(loader, &loader->fields[f], &members->sample, &part->member, &number,
                              &members->is_index_damaged);
    if (!part->found) {
        return;
    }
    part->header_offset = part->member.offset;
    if (members->is_unverified &&
        stk_foreign_index_header_offset(loader->dataset->index, &members->sample, sample, number,
                                        &part->header_offset, NULL) < 0) {
        members->is_index_damaged = true;
    }
}

void stk_sample_members_find(const struct stoker_loader *loader, uint64_t sample,
                             struct stk_sample_members *members)
{
    const struct stk_index *index = loader->dataset->index;
    uint64_t first = UINT64_MAX, end = 0, sum = 0;

    members->sample = (struct stk_sample){0};
    members->is_index_damaged = stk_index_sample(index, sample, &members->sample, NULL) < 0;
    members->is_entire_object = false;
    members->is_unverified =
        !members->is_index_damaged && stk_index_shard_is_unverified(index, members->sample.shard);
    for (uint32_t f = 0; f < loader->field_count; f++) {
        const struct stk_sample_part *part = &members->parts[f];

        find_part(loader, sample, f, members);
        if (!part->found) {
            continue;
        }
        first = stk_min(first, part->header_offset);
        if (part->member.bytes == STK_ENTIRE_OBJECT) {
            members->is_entire_object = true;
        } else {
            end = stk_max(end, part->member.offset + part->member.bytes);
            sum += part->member.bytes;
        }
    }
    members->span = (struct stk_sample_span){.shard = members->sample.shard};
    if (members->is_entire_object) {
        members->span.bytes = STK_ENTIRE_OBJECT;
    } else if (first != UINT64_MAX) {
        members->span.offset = first;
        members->span.bytes = end - first;
        members->span.scattered = members->span.bytes > sum + STK_SAMPLE_SPAN_GAP_BYTES;
    }
}

void stk_sample_members_copy(const struct stoker_loader *loader,
                             const struct stk_sample_members *from, struct stk_sample_members *to)
{
    struct stk_sample_part *parts = to->parts;

    *to = *from;
    to->parts = parts;
    memcpy(parts, from->parts, loader->field_count * sizeof *parts);
}

int stk_sample_members_fail(const struct stoker_loader *loader, uint64_t sample,
                            struct stoker_error *error)
{
    const struct stk_index *index = loader->dataset->index;
    struct stk_sample found;
    struct stk_member member;
    int status = stk_index_sample(index, sample, &found, error);

    for (uint32_t i = 0; status == 0 && i < found.member_count; i++) {
        status = stk_index_member(index, &found, i, &member, error);
    }
    if (status == STOKER_ERROR_CORRUPT) {
        error->status = status = STOKER_ERROR_CHANGED;
    }
    /* The first look found damage: a file that is good again changes while it is read. */
    return status < 0 ? status
                      : stk_fail(error, STOKER_ERROR_CHANGED, "the index changes while it is read",
                                 "open the data set again when nothing writes to its index",
                                 "sample %llu", (unsigned long long)sample);
}

void stk_sample_members_locate_error(const struct stoker_loader *loader,
                                     const struct stk_sample_members *members, uint64_t offset,
                                     struct stoker_error *error)
{
    const struct stk_sample *sample = &members->sample;
    char key[sizeof error->key];

    snprintf(key, sizeof key, "%.*s", (int)stk_min(sample->key.bytes, sizeof key - 1),
             (const char *)sample->key.data);
    stk_dataset_error_add_location(loader->dataset, error, sample->shard, offset, key);
}

uint64_t stk_sample_value_bytes(struct stoker_loader *loader, const struct stk_loader_field *field,
                                uint64_t sample)
{
    struct stk_sample found;
    struct stk_member member;
    struct stk_stat about;
    char path[STK_PATH_BYTES_MAX];
    uint32_t number;
    bool is_damaged = false;

    if (stk_index_sample(loader->dataset->index, sample, &found, NULL) < 0) {
        return 0;
    }
    if (field->kind == STOKER_FIELD_KEY) {
        return found.key.bytes;
    }
    if (!find_member(loader, field, &found, &member, &number, &is_damaged)) {
        return is_damaged ? 0 : field->default_value.bytes;
    }
    if (member.bytes != STK_ENTIRE_OBJECT) {
        return member.bytes;
    }
    if (stk_index_path(loader->dataset->index, member.shard, path, NULL) < 0 ||
        stk_io_stat_path(loader->engine->io, path, &about, NULL) < 0) {
        return 0;
    }
    return about.bytes;
}
