/* State that the parts of a shard's check share: findings, and members and ranges for repair. */
#include "base/mem.h"
#include "base/memory_pages.h"
#include "tools/verify/verify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void stk_shard_check_init(struct stk_shard_check *check, struct stoker_verify *verify,
                          struct stk_verify_findings *findings)
{
    *check = (struct stk_shard_check){
        .verify = verify, .findings = findings, .sample = STK_SHARD_CHECK_NO_SAMPLE};
    stk_read_ahead_init(&check->reader, verify->engine);
}

void stk_shard_check_deinit(struct stk_shard_check *check)
{
    stk_read_ahead_deinit(&check->reader);
    stk_codec_close(check->codec);
    stk_xxh3_close(check->sum);
    stk_string_table_deinit(&check->keys);
    stk_string_table_deinit(&check->extra_extensions);
    stk_string_table_deinit(&check->unnamed);
    stk_free(check->links);
    stk_free(check->samples);
    stk_free(check->members);
    stk_free(check->ranges);
    if (check->member_data) {
        stk_pages_free(check->member_data, check->member_data_bytes);
        stk_budget_release(&check->verify->engine->budget, check->member_data_bytes);
    }
}

int stk_shard_check_add_finding(struct stk_shard_check *check, uint32_t kind,
                                struct stoker_error *cause, const struct stk_verify_spot *spot,
                                struct stoker_error *error)
{
    if (spot && cause->offset == STOKER_NO_OFFSET) {
        cause->offset = spot->offset;
    }
    if (spot && spot->key && !cause->key[0]) {
        snprintf(cause->key, sizeof cause->key, "%s", spot->key);
    }
    snprintf(cause->shard, sizeof cause->shard, "%s", check->path);
    check->damage += !stk_verify_finding_is_note(kind) && kind != STOKER_FINDING_INDEX;
    return stk_verify_add_finding(check->verify, check->findings, kind, cause,
                                  spot ? spot->extension : "") < 0
               ? stk_fail_memory(error, "samples of a shard")
               : 0;
}

void stk_shard_check_reader_options(const struct stk_shard_check *check,
                                    struct stk_shard_reader_options *options)
{
    const struct stoker_verify *verify = check->verify;

    *options = (struct stk_shard_reader_options){
        .decompressed_bytes_max = verify->options.decompressed_bytes_max,
        .decompression_ratio_max = verify->options.decompression_ratio_max,
        .index = check->index_check.index,
        .shard = check->index_check.shard,
        .stop = &verify->job.stopping};
}

bool stk_shard_check_is_verified(const struct stk_shard_check *check)
{
    return check->verified ||
           (check->index_check.index && check->index_check.members && check->index_check.sums);
}

void stk_shard_check_mark_bad(struct stk_shard_check *check)
{
    if (check->member.keyed && check->sample != STK_SHARD_CHECK_NO_SAMPLE) {
        check->samples[check->sample].flags |= STK_CHECK_SAMPLE_BAD;
    }
}

void stk_shard_check_copy_text(char *to, size_t capacity, struct stk_view text)
{
    size_t bytes = stk_min(text.bytes, capacity - 1);

    memcpy(to, text.data, bytes);
    to[bytes] = '\0';
}

void *stk_shard_check_grow(void *block, uint32_t count, uint32_t *capacity, size_t item_bytes)
{
    uint32_t more = count < UINT32_MAX / 4 ? stk_max(2 * count, 64) : 0;

    if (count < *capacity) {
        return block;
    }
    block = more ? stk_realloc(block, count, more, item_bytes) : NULL;
    *capacity = block ? more : *capacity;
    return block;
}

int stk_shard_check_add_member(struct stk_shard_check *check, const struct stk_tar_step *step,
                               struct stoker_error *error)
{
    struct stk_shard_check_member *members;

    if (!check->verify->options.repair) {
        return 0;
    }
    members = stk_shard_check_grow(check->members, check->members_used, &check->member_capacity,
                                   sizeof *members);
    if (!members) {
        return stk_fail_memory(error, "samples of a shard");
    }
    check->members = members;
    members[check->members_used++] = (struct stk_shard_check_member){
        step->header, stk_round_up(step->offset + step->bytes, 512),
        check->member.keyed ? check->sample : STK_SHARD_CHECK_NO_SAMPLE};
    return 0;
}

int stk_shard_check_add_range(struct stk_shard_check *check, uint64_t offset, uint64_t end,
                              bool zero, struct stoker_error *error)
{
    struct stk_repair_range *ranges;

    if (!check->verify->options.repair) {
        return 0;
    }
    ranges = stk_shard_check_grow(check->ranges, check->range_count, &check->range_capacity,
                                  sizeof *ranges);
    if (!ranges) {
        return stk_fail_memory(error, "samples of a shard");
    }
    check->ranges = ranges;
    ranges[check->range_count++] = (struct stk_repair_range){offset, end, zero};
    return 0;
}
