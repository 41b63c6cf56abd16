/* Fuzz target: any bytes as a damaged tar, plain and as if it were compressed; the last byte
 * selects the end. No crash; recovered members are in the tar and in order; each lost sample is
 * listed; the same bytes give the same result; no byte of a plain tar is read often. */
#include "base/xxh3.h"
#include "format/tar_recover/tar_recover.h"

#include <string.h>

enum { BLOCK = 512 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct memory {
    const uint8_t *data;
    uint64_t bytes, read;
    int status; /* of a compressed one after its end; 0: it ends there */
};

static int read_memory(void *context, uint64_t offset, uint8_t *buffer, size_t bytes,
                       size_t *got_out, struct stoker_error *error)
{
    struct memory *memory = context;
    uint64_t left = offset < memory->bytes ? memory->bytes - offset : 0;

    if (bytes > left && memory->status) {
        return stk_fail(error, memory->status, "it fails", "try again", "here");
    }
    *got_out = (size_t)stk_min(bytes, left);
    memcpy(buffer, memory->data + offset, *got_out);
    memory->read += *got_out;
    return 0;
}

static void check(const struct stk_tar_recover *rescue, const struct memory *memory, bool packed)
{
    uint64_t lost = 0, end = 0;

    for (uint64_t i = 0; i < rescue->member_count; i++) {
        const struct stk_tar_recover_member *member = &rescue->members[i];

        STK_ASSERT(member->offset >= end + BLOCK);
        STK_ASSERT(packed || member->offset + member->bytes <= memory->bytes);
        STK_ASSERT(member->sample == UINT32_MAX || member->sample < rescue->sample_count);
        end = member->offset + member->bytes;
    }
    for (uint64_t i = 0; i < rescue->sample_count; i++) {
        lost += rescue->samples[i].lost;
    }
    STK_ASSERT(lost <= rescue->bad_samples.count);
    /* A window, and the size that a header may require, are larger than that. */
    STK_ASSERT(packed || memory->read <= 2 * memory->bytes + 2 * STK_TAR_RECOVER_WINDOW_BYTES);
}

/* A sum over all of the answer. */
static uint64_t run(struct memory *memory, bool packed)
{
    struct stk_tar_recover_source source = {.path = "a.tar",
                                            .bytes = packed ? UINT64_MAX : memory->bytes,
                                            .context = memory,
                                            .read = read_memory};
    struct stk_tar_recover rescue = {0};
    struct stoker_error error = {0};
    int status = stk_tar_recover_run(&rescue, &source, &error);
    uint64_t sum = (uint64_t)(int64_t)status;

    STK_ASSERT(status <= 0 && (status == 0 || !stk_tar_recover_is_possible(status)));
    if (status == 0) {
        check(&rescue, memory, packed);
    }
    for (uint64_t i = 0; i < rescue.member_count; i++) {
        struct stk_view name = stk_tar_recover_name(&rescue, i);

        sum = sum * 31 + stk_xxh3_64(name.data, name.bytes) + rescue.members[i].offset;
        sum = sum * 31 + stk_tar_recover_is_intact(&rescue, i);
    }
    for (uint64_t i = 0; i < rescue.bad_samples.count; i++) {
        const struct stk_bad_sample *damage = rescue.bad_samples.items[i];

        sum = sum * 31 + stk_xxh3_64(damage->what, strlen(damage->what)) + damage->offset;
    }
    stk_tar_recover_deinit(&rescue);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const int statuses[] = {0, STOKER_ERROR_TRUNCATED, STOKER_ERROR_CORRUPT};
    struct memory memory = {.data = data};
    uint64_t sum;

    if (bytes < 1) {
        return 0;
    }
    memory.bytes = bytes - 1;
    sum = run(&memory, false);
    STK_ASSERT(run(&(struct memory){.data = data, .bytes = bytes - 1}, false) == sum);
    memory.status = statuses[data[bytes - 1] % 3];
    run(&memory, true);
    return 0;
}
