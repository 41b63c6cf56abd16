/* Checks contents of members: checksums of the index, and images. */
#include "base/memory_pages.h"
#include "tools/verify/verify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MEMBER_BYTES_MAX (1ull << 30)

static int find_bad_size(struct stk_shard_check *check, struct stoker_error *error);

/* Allocates memory for a member that does not fit in one block. */
static int keep_bytes(struct stk_shard_check *check, struct stoker_error *error)
{
    struct stoker_engine *engine = check->verify->engine;
    uint64_t bytes = stk_round_up(check->member.bytes, STK_IO_ALIGN);
    int status;

    if (bytes <= check->member_data_bytes) {
        return 0;
    }
    if (check->member_data) {
        stk_pages_free(check->member_data, check->member_data_bytes);
        stk_budget_release(&engine->budget, check->member_data_bytes);
        check->member_data = NULL;
        check->member_data_bytes = 0;
    }
    status = stk_engine_reserve(engine, bytes, engine->options.read_timeout_ms, "a member's bytes",
                                error);
    if (status < 0) {
        return status;
    }
    check->member_data = stk_pages_alloc(bytes);
    if (!check->member_data) {
        stk_budget_release(&engine->budget, bytes);
        return stk_fail_memory(error, "samples of a shard");
    }
    check->member_data_bytes = bytes;
    return 0;
}

static int check_picture(struct stk_shard_check *check, struct stk_view bytes,
                         struct stoker_error *error)
{
    struct stoker_error cause = {0};
    uint32_t kind = 0;
    int status = stk_verify_picture(check->verify, &check->codec, bytes, check->member.extension,
                                    &kind, &cause);

    if (status <= 0) {
        check->member.sealed = status == 0 && stk_verify_picture_has_checksum(bytes);
        if (status < 0) {
            *error = cause;
        }
        return status;
    }
    if (kind != STOKER_FINDING_MISNAMED) {
        stk_shard_check_mark_bad(check);
    }
    cause.offset = STOKER_NO_OFFSET;
    return stk_shard_check_add_finding(
        check, kind, &cause,
        &(struct stk_verify_spot){check->member.offset, check->member.key, check->member.extension},
        error);
}

static int find_bad_size(struct stk_shard_check *check, struct stoker_error *error)
{
    struct stoker_error cause = {0};

    check->member.picture = false;
    stk_shard_check_mark_bad(check);
    stk_fail(&cause, STOKER_ERROR_LIMIT, "an image file is too large to check",
             "check what it is, or leave it out", "%llu bytes",
             (unsigned long long)check->member.bytes);
    return stk_shard_check_add_finding(
        check, STOKER_FINDING_PICTURE, &cause,
        &(struct stk_verify_spot){check->member.offset, check->member.key, check->member.extension},
        error);
}

static int add_sum(struct stk_shard_check *check, struct stk_view piece, struct stoker_error *error)
{
    if (piece.bytes == check->member.bytes) {
        check->member.sum = stk_xxh3_64(piece.data, piece.bytes);
        check->member.summed = true;
        return 0;
    }
    check->sum = check->sum ? check->sum : stk_xxh3_open();
    if (!check->sum) {
        return stk_fail_memory(error, "samples of a shard");
    }
    stk_xxh3_add(check->sum, piece.data, piece.bytes);
    return 0;
}

static int compare_sum(struct stk_shard_check *check, struct stoker_error *error)
{
    struct stoker_error cause = {0};

    if (!check->member.summed) {
        check->member.sum = check->member.bytes ? stk_xxh3_done(check->sum) : stk_xxh3_64("", 0);
    }
    if (check->member.sum == check->index_check.sum) {
        return 0;
    }
    stk_shard_check_mark_bad(check);
    stk_fail(&cause, STOKER_ERROR_CORRUPT, "the member does not match its checksum in the index",
             "copy the shard again, or leave the sample out (--repair)", "%llu bytes",
             (unsigned long long)check->member.bytes);
    return stk_shard_check_add_finding(
        check, STOKER_FINDING_CHECKSUM, &cause,
        &(struct stk_verify_spot){check->member.offset, check->member.key, check->member.extension},
        error);
}

int stk_shard_check_add_data(struct stk_shard_check *check, struct stk_view piece,
                             struct stoker_error *error)
{
    int status = check->member.summing ? add_sum(check, piece, error) : 0;

    if (!check->member.picture || status < 0) {
        return status;
    }
    if (check->member.bytes > MEMBER_BYTES_MAX) {
        return find_bad_size(check, error);
    }
    if (check->member.held == 0 && piece.bytes == check->member.bytes) {
        check->member.picture = false;
        return check_picture(check, piece, error);
    }
    if (check->member.held == 0) {
        status = keep_bytes(check, error);
    }
    if (status == 0) {
        memcpy(check->member_data + check->member.held, piece.data, piece.bytes);
        check->member.held += piece.bytes;
    }
    return status;
}

int stk_shard_check_end_member(struct stk_shard_check *check, bool complete,
                               struct stoker_error *error)
{
    struct stoker_error cause = {0};
    int status;

    check->member.open = false;
    if (complete) {
        struct stk_view bytes = {check->member_data, check->member.held};

        status = check->member.summing ? compare_sum(check, error) : 0;
        if (status == 0 && check->member.picture) {
            status = check_picture(check, bytes, error);
        }
        if (check->member.keyed && check->sample != STK_SHARD_CHECK_NO_SAMPLE &&
            !check->member.sealed) {
            check->samples[check->sample].flags |= STK_CHECK_SAMPLE_NO_CHECKSUM;
        }
        return status;
    }
    if (check->sum) {
        (void)stk_xxh3_done(check->sum);
    }
    stk_shard_check_mark_bad(check);
    stk_fail(&cause, STOKER_ERROR_TRUNCATED, "the shard ends inside a member",
             "copy the shard again", "it has %llu bytes", (unsigned long long)check->member.bytes);
    status = stk_shard_check_add_finding(
        check, STOKER_FINDING_END, &cause,
        &(struct stk_verify_spot){check->member.offset, check->member.key, check->member.extension},
        error);
    return status < 0
               ? status
               : stk_shard_check_add_range(check, check->member.header, UINT64_MAX, false, error);
}
