/* Checks names and samples of members, and damage between members, in the order of the walk. */
#include "base/random.h"
#include "base/text/system_file.h"
#include "format/tar/wds_name.h"
#include "tools/verify/verify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define UNNAMED_MAX (1u << 20) /* files without a key that a hard link finds */

enum { NO_TARGET = -1, TARGET_UNNAMED = -2 }; /* instead of the sample of a target */
enum { HEADER_BYTES = 512, SUSPECTS = 2 /* new samples after damage that may lack members */ };

static int add_sample(struct stk_shard_check *check, struct stk_view key,
                      struct stoker_error *error);

/* Detects a name that the loader rejects. */
static int find_bad_name(struct stk_shard_check *check, const struct stk_tar_step *step, int number,
                         const char *detail, struct stoker_error *error)
{
    struct stoker_error cause = {0};
    char text[256];
    int status;

    stk_wds_name_text(step->name, text, sizeof text);
    stk_fail(&cause, number, "a member's name is not a valid key",
             "rename it where the tar is created; --repair leaves it out", "%s", detail);
    status = stk_shard_check_add_finding(check, STOKER_FINDING_NAME, &cause,
                                         &(struct stk_verify_spot){step->offset, text, ""}, error);
    check->sample = STK_SHARD_CHECK_NO_SAMPLE;
    return status < 0 ? status : stk_shard_check_add_member(check, step, error);
}

/* The sample that has the target of a hard link; TARGET_UNNAMED: a file without a key. */
static int64_t find_target(const struct stk_shard_check *check, struct stk_view target)
{
    struct stk_view key, extension;
    int64_t sample = NO_TARGET;

    if (target.bytes > 2 && memcmp(target.data, "./", 2) == 0 &&
        stk_string_table_find(&check->unnamed, target) < 0 &&
        (!stk_wds_name_split(target, &key, &extension) ||
         stk_string_table_find(&check->keys, key) < 0)) {
        target.data += 2;
        target.bytes -= 2;
    }
    if (stk_wds_name_split(target, &key, &extension)) {
        sample = stk_string_table_find(&check->keys, key);
    }
    return sample >= 0                                           ? sample
           : stk_string_table_find(&check->unnamed, target) >= 0 ? TARGET_UNNAMED
                                                                 : NO_TARGET;
}

/* The sample of the current member is damaged if the target is. */
static int add_link(struct stk_shard_check *check, uint32_t target, struct stoker_error *error)
{
    struct stk_shard_check_link *links =
        stk_shard_check_grow(check->links, check->link_count, &check->link_capacity, sizeof *links);

    if (!links) {
        return stk_fail_memory(error, "samples of a shard");
    }
    check->links = links;
    links[check->link_count++] = (struct stk_shard_check_link){check->sample, target};
    return 0;
}

/* The reason why a member of this type is no part of a sample; NULL: nothing is lost. */
static const char *skip_reason(uint8_t type)
{
    switch (type) {
    case '5':
        return NULL;
    case '1':
        return "a hard link whose target does not precede it";
    case '2':
        return "a symbolic link";
    default:
        return "a device, a pipe, or another special member";
    }
}

static int add_skipped(struct stk_shard_check *check, const struct stk_tar_step *step,
                       const char *what, struct stoker_error *error)
{
    struct stoker_error cause = {0};
    char text[256];

    stk_wds_name_text(step->name, text, sizeof text);
    stk_fail(&cause, STOKER_ERROR_UNSUPPORTED, "the member is not part of a sample",
             "nothing to do, or write it as a file with an extension", "%s", what);
    return stk_shard_check_add_finding(check, STOKER_FINDING_SKIPPED, &cause,
                                       &(struct stk_verify_spot){step->offset, text, ""}, error);
}

static uint64_t extension_hash(const char *extension)
{
    return stk_mix64(stk_xxh3_64(extension, strlen(extension)));
}

/* Continues the sample that the key names, or begins a new one. */
static int join_sample(struct stk_shard_check *check, struct stk_view key, uint64_t offset,
                       struct stoker_error *error)
{
    struct stk_shard_check_sample *sample;
    struct stoker_error cause = {0};
    uint32_t last = check->sample, between;
    int status;

    if (last != STK_SHARD_CHECK_NO_SAMPLE) {
        struct stk_view current = stk_string_table_get(&check->keys, last);
        if (current.bytes == key.bytes && memcmp(current.data, key.data, key.bytes) == 0) {
            return 0;
        }
    }
    check->run_count = 0;
    status = add_sample(check, key, error);
    if (status != 0) {
        return status < 0 ? status : 0; /* 1: new */
    }
    sample = &check->samples[check->sample];
    between = check->member_count - sample->last_member - 1;
    if (between <= check->verify->options.member_gap_max ||
        (sample->flags & STK_CHECK_SAMPLE_SCATTERED)) {
        return 0;
    }
    sample->flags |= STK_CHECK_SAMPLE_SCATTERED | STK_CHECK_SAMPLE_BAD;
    stk_fail(&cause, STOKER_ERROR_SCATTERED, "a key occurs again after other samples",
             "sort the members by key where the tar is created, or raise member_gap_max",
             "%u members are between", between);
    return stk_shard_check_add_finding(
        check, STOKER_FINDING_SCATTERED, &cause,
        &(struct stk_verify_spot){offset, check->member.key, check->member.extension}, error);
}

/* Returns 1 if the key is new. */
static int add_sample(struct stk_shard_check *check, struct stk_view key,
                      struct stoker_error *error)
{
    uint32_t count = check->keys.count, number;
    struct stk_shard_check_sample *samples =
        stk_shard_check_grow(check->samples, count, &check->sample_capacity, sizeof *samples);

    if (!samples) {
        return stk_fail_memory(error, "samples of a shard");
    }
    check->samples = samples;
    if (stk_string_table_add(&check->keys, key, STK_SHARD_CHECK_NO_SAMPLE >> 2, &number) < 0) {
        return stk_fail_memory(error, "samples of a shard");
    }
    check->sample = number;
    if (number < count) {
        return 0;
    }
    samples[number] = (struct stk_shard_check_sample){.last_member = check->member_count};
    if (check->suspects_remaining > 0) {
        check->suspects_remaining--;
        samples[number].flags = STK_CHECK_SAMPLE_SUSPECT;
    }
    return 1;
}

/* Returns whether the sample already has a member with this extension, and records the
 * extension. */
static int is_duplicate(struct stk_shard_check *check, uint64_t hash, bool *twin_out)
{
    struct {
        uint64_t sample, extension;
    } word = {check->sample, hash};
    uint32_t before = check->extra_extensions.count, number = 0;
    bool full = check->run_count == STK_SHARD_CHECK_EXTENSIONS_MAX;

    *twin_out = false;
    for (uint32_t i = 0; i < check->run_count && !*twin_out; i++) {
        *twin_out = check->run[i] == hash;
    }
    if (*twin_out) {
        return 0;
    }
    if (!full) {
        check->run[check->run_count++] = hash;
    }
    if (!full && check->verify->options.member_gap_max == 0) {
        return 0;
    }
    if (stk_string_table_add(&check->extra_extensions,
                             (struct stk_view){(const uint8_t *)&word, sizeof word}, 1u << 30,
                             &number) < 0) {
        return -ENOMEM;
    }
    *twin_out = number < before;
    return 0;
}

/* Checks that the sample has each of its extensions once. */
static int add_extension(struct stk_shard_check *check, uint64_t offset, struct stoker_error *error)
{
    struct stk_shard_check_sample *sample = &check->samples[check->sample];
    uint64_t hash = extension_hash(check->member.extension);
    struct stoker_error cause = {0};
    bool twin;

    if (is_duplicate(check, hash, &twin) < 0) {
        return stk_fail_memory(error, "samples of a shard");
    }
    if (!twin) {
        sample->shape += hash;
        return 0;
    }
    sample->flags |= STK_CHECK_SAMPLE_BAD;
    stk_fail(&cause, STOKER_ERROR_CORRUPT, "the sample has two members with one extension",
             "keep one of them where the tar is created", "extension '%s'",
             check->member.extension);
    return stk_shard_check_add_finding(
        check, STOKER_FINDING_DUPLICATE, &cause,
        &(struct stk_verify_spot){offset, check->member.key, check->member.extension}, error);
}

static int count_member(struct stk_shard_check *check, const struct stk_tar_step *step,
                        struct stoker_error *error)
{
    bool extended = step->offset - step->header > HEADER_BYTES;

    check->samples[check->sample].flags |=
        check->follows_damage && !extended ? STK_CHECK_SAMPLE_RENAMED : 0;
    check->extended |= extended;
    check->follows_damage = false;
    check->samples[check->sample].last_member = check->member_count++;
    if (check->unverified_stream && check->unverified_stream == check->streams &&
        !stk_shard_check_is_verified(check)) {
        check->samples[check->sample].flags |= STK_CHECK_SAMPLE_BAD;
    }
    return stk_shard_check_add_member(check, step, error);
}

int stk_shard_check_begin_member(struct stk_shard_check *check, const struct stk_tar_step *step,
                                 struct stoker_error *error)
{
    struct stk_view key, extension;
    const char *refusal = stk_wds_name_error(step->name);
    int64_t target;
    int status;

    memset(&check->member, 0, sizeof check->member);
    check->member.header = step->header;
    check->member.offset = step->offset;
    check->member.bytes = step->bytes;
    check->member.open = true;
    target = step->type == '1' ? find_target(check, step->link) : NO_TARGET;
    if (step->type != '0' && target == NO_TARGET) {
        const char *what = skip_reason(step->type);

        return what ? add_skipped(check, step, what, error) : 0;
    }
    if (stk_system_file_in_path(step->name)) {
        return add_skipped(check, step, "a file that an operating system or a notebook left",
                           error);
    }
    if (refusal) {
        return find_bad_name(check, step, STOKER_ERROR_CORRUPT, refusal, error);
    }
    if (!stk_wds_name_split(step->name, &key, &extension)) {
        uint32_t number;

        stk_string_table_add(&check->unnamed, step->name, UNNAMED_MAX, &number);
        return add_skipped(check, step, "a name without key or extension", error);
    }
    if (key.bytes > check->verify->options.key_bytes_max) {
        return find_bad_name(check, step, STOKER_ERROR_LIMIT,
                             "the key is longer than key_bytes_max", error);
    }
    stk_shard_check_copy_text(check->member.key, sizeof check->member.key, key);
    stk_shard_check_copy_text(check->member.extension, sizeof check->member.extension, extension);
    for (char *at = check->member.extension; *at; at++) {
        *at = *at >= 'A' && *at <= 'Z' ? (char)(*at + ('a' - 'A')) : *at;
    }
    if (strcmp(check->member.extension, "__key__") == 0) {
        return find_bad_name(check, step, STOKER_ERROR_CORRUPT,
                             "the extension '__key__' is reserved", error);
    }
    check->member.keyed = true;
    check->member.picture = target == NO_TARGET && stk_verify_is_picture(check->member.extension);
    status = stk_index_check_member(check, key, check->member.extension,
                                    target == NO_TARGET ? step->offset : STK_INDEX_CHECK_LINK,
                                    step->bytes, error);
    check->member.summing = check->index_check.summed;
    status = status < 0 ? status : join_sample(check, key, step->offset, error);
    status = status < 0 ? status : add_extension(check, step->offset, error);
    if (status == 0 && target >= 0) {
        status = add_link(check, (uint32_t)target, error);
    }
    return status < 0 ? status : count_member(check, step, error);
}

int stk_shard_check_cut_member(struct stk_shard_check *check, uint64_t to,
                               struct stoker_error *error)
{
    check->member.open = false;
    if (check->sum) {
        (void)stk_xxh3_done(check->sum);
    }
    stk_shard_check_mark_bad(check);
    if (check->members_used > 0) { /* data after the gap does not belong to it */
        struct stk_shard_check_member *member = &check->members[check->members_used - 1];

        member->end = stk_min(member->end, to);
    }
    return stk_shard_check_add_range(check, check->member.header, to, false, error);
}

void stk_shard_check_add_doubt(struct stk_shard_check *check, uint64_t from, uint64_t to,
                               enum stk_shard_doubt doubt)
{
    bool kept = doubt == STK_SHARD_DOUBT_UNVERIFIED ||
                (doubt == STK_SHARD_DOUBT_CHECKSUM && check->verify->options.keep_unverified);

    check->checksum_failed |= from < to && doubt != STK_SHARD_DOUBT_UNVERIFIED;
    if (stk_shard_check_is_verified(check)) {
        return;
    }
    for (uint32_t i = check->members_used; i-- > 0 && check->members[i].end > from;) {
        uint32_t number = check->members[i].sample;
        struct stk_shard_check_sample *sample =
            number == STK_SHARD_CHECK_NO_SAMPLE ? NULL : &check->samples[number];

        if (sample && check->members[i].header < to &&
            (sample->flags & STK_CHECK_SAMPLE_NO_CHECKSUM)) {
            sample->flags |= kept ? STK_CHECK_SAMPLE_UNVERIFIED : STK_CHECK_SAMPLE_BAD;
        }
    }
}

/* The compressed stream was damaged, or the tar was damaged before it was compressed: the checksum
 * at the end of the stream decides (skip_gap in tar_walk.c). Without a checksum, all data that
 * follows in the stream may be wrong. */
static void mark_damaged_stream(struct stk_shard_check *check, uint64_t at)
{
    if (!check->is_compressed || check->damaged_stream == check->streams) {
        return;
    }
    check->damaged_stream = check->streams;
    check->damaged_at = at;
    check->unverified_stream = check->no_checksum ? check->streams : 0;
}

int stk_shard_check_padding(struct stk_shard_check *check, uint64_t offset, uint64_t bytes,
                            struct stoker_error *error)
{
    struct stoker_error cause = {0};
    int status;

    stk_fail(&cause, STOKER_ERROR_CORRUPT, "the padding after a member is not zero",
             "the storage may have changed more than this: compare with another copy", "%llu bytes",
             (unsigned long long)bytes);
    if (check->is_compressed && check->no_checksum && !stk_shard_check_is_verified(check)) {
        stk_shard_check_mark_bad(check);
    }
    mark_damaged_stream(check, offset);
    status = stk_shard_check_add_finding(
        check, STOKER_FINDING_PADDING, &cause,
        &(struct stk_verify_spot){offset, check->member.key, check->member.extension}, error);
    return status < 0 ? status
                      : stk_shard_check_add_range(check, offset, offset + bytes, true, error);
}

int stk_shard_check_add_damage(struct stk_shard_check *check, uint32_t kind,
                               struct stoker_error *cause, uint64_t from, uint64_t to,
                               struct stoker_error *error)
{
    char text[64] = ", and the rest is lost";

    if (kind != STOKER_FINDING_END && kind != STOKER_FINDING_PACKING) {
        if (to != UINT64_MAX) {
            snprintf(text, sizeof text, ", and %llu bytes are lost with it",
                     (unsigned long long)(to - from));
        }
        strncat(cause->what, text, sizeof cause->what - strlen(cause->what) - 1);
    }
    if (check->keys.count > 0 && check->sample != STK_SHARD_CHECK_NO_SAMPLE) {
        /* In a compressed stream, damage may begin before it is detected. */
        check->samples[check->sample].flags |=
            check->is_compressed && !stk_shard_check_is_verified(check) ? STK_CHECK_SAMPLE_BAD
                                                                        : STK_CHECK_SAMPLE_SUSPECT;
    }
    if (kind != STOKER_FINDING_PACKING) {
        mark_damaged_stream(check, from);
    }
    check->suspects_remaining = SUSPECTS;
    check->follows_damage = true;
    check->sample = STK_SHARD_CHECK_NO_SAMPLE;
    check->run_count = 0;
    return stk_shard_check_add_finding(check, kind, cause,
                                       &(struct stk_verify_spot){from, NULL, ""}, error) < 0
               ? error->status
               : stk_shard_check_add_range(check, from, to, false, error);
}

/* A sample next to damage may have lost members. It is complete if it has the extensions that most
 * samples of the shard have (majority by Boyer and Moore, 1981), and if no lost header named it. */
void stk_shard_check_suspects(struct stk_shard_check *check)
{
    uint64_t shape = 0, votes = 0, count = 0, complete_count = 0;

    for (uint32_t i = 0; i < check->keys.count; i++) {
        const struct stk_shard_check_sample *sample = &check->samples[i];

        if (!(sample->flags & STK_CHECK_SAMPLE_DAMAGED)) {
            shape = votes == 0 ? sample->shape : shape;
            votes = sample->shape == shape ? votes + 1 : votes - 1;
            complete_count++;
        }
    }
    /* One is left also where none has most. */
    for (uint32_t i = 0; i < check->keys.count; i++) {
        count += !(check->samples[i].flags & STK_CHECK_SAMPLE_DAMAGED) &&
                 check->samples[i].shape == shape;
    }
    for (uint32_t i = 0; i < check->keys.count; i++) {
        struct stk_shard_check_sample *sample = &check->samples[i];

        if ((sample->flags & STK_CHECK_SAMPLE_SUSPECT) &&
            (2 * count <= complete_count || sample->shape != shape)) {
            sample->flags |= STK_CHECK_SAMPLE_BAD;
        }
        if ((sample->flags & STK_CHECK_SAMPLE_RENAMED) && check->extended) {
            sample->flags |= STK_CHECK_SAMPLE_BAD;
        }
    }
    for (uint32_t i = 0; i < check->link_count; i++) { /* targets precede their links */
        const struct stk_shard_check_link *link = &check->links[i];

        if (check->samples[link->target].flags & STK_CHECK_SAMPLE_DAMAGED) {
            check->samples[link->sample].flags |= STK_CHECK_SAMPLE_BAD;
        }
    }
}
