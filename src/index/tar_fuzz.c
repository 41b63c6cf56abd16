/* Fuzz target of tar.c, tar_container.c, container.c, container_detect.c, wds_name.c,
 * string_table.c, index_shard.c, index_shard_link.c and index.c: any bytes as a tar, parsed at once
 * and in portions, with its size known and unknown, and added to an index. The last byte selects
 * the variant. No crash, no hang, no member outside of the tar. */
#include "base/base.h"
#include "format/tar/tar_container.h"
#include "index/index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void look_up_all(const struct stk_index *index)
{
    for (uint64_t i = 0; i < stk_index_samples(index); i++) {
        struct stk_sample sample;
        struct stk_member member;

        STK_ASSERT(stk_index_sample(index, i, &sample, NULL) == 0);
        STK_ASSERT(sample.key.bytes > 0 && sample.member_count > 0);
        for (uint32_t j = 0; j < sample.member_count; j++) {
            STK_ASSERT(stk_index_member(index, &sample, j, &member, NULL) == 0);
            STK_ASSERT(stk_index_extension(index, member.extension) != NULL);
        }
    }
}

static int read_tar(struct stk_view tar, size_t chunk, bool is_known,
                    struct stk_index_shard_builder *builder)
{
    struct stk_container_options options = {
        .size = is_known ? tar.bytes : UINT64_MAX, .name_bytes_max = 300, .header_bytes_max = 8192};
    struct stk_container *reader = NULL;
    struct stk_container_step step = {0};
    struct stk_view input = {0};
    struct stoker_error error = {0};
    int status = stk_container_open(&reader, &stk_tar_container, &options, &error);

    while (status == 0 && step.event != STK_CONTAINER_END) {
        status = stk_container_step(reader, input, &step, &error);
        if (status == 0 && step.event == STK_CONTAINER_NEED) {
            size_t left = step.offset < tar.bytes ? tar.bytes - step.offset : 0;
            input.data = tar.data + (left ? step.offset : 0);
            input.bytes = stk_min(left, chunk);
        } else if (status == 0 && step.event == STK_CONTAINER_MEMBER) {
            STK_ASSERT(step.header < step.offset && step.offset % 512 == 0);
            STK_ASSERT(!is_known || step.bytes <= tar.bytes - step.offset);
            STK_ASSERT(step.name.bytes <= options.name_bytes_max);
            if (step.kind == STK_MEMBER_FILE) {
                status = stk_index_shard_add(builder, step.name, step.offset, step.bytes, &error);
            } else if (step.kind == STK_MEMBER_HARD_LINK) {
                status = stk_index_shard_add_link(builder, step.name, step.link, &error);
            }
        }
    }
    STK_ASSERT(status == 0 || (error.status == status && error.what[0] && error.where[0] &&
                               error.advice[0] && error.offset != STOKER_NO_OFFSET));
    stk_container_close(reader);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const size_t chunks[] = {SIZE_MAX, 1, 512, 700};
    struct stk_index_options options = {.shard_count = 1, .key_bytes_max = 100};
    struct stk_index *index = NULL;
    struct stk_index_shard_builder *builder = NULL;
    uint8_t how;
    int status;

    if (bytes == 0) {
        return 0;
    }
    how = data[bytes - 1];
    options.member_gap_max = how >> 4;
    status = stk_index_open(&index, &options, NULL);
    if (status == 0) {
        status = stk_index_shard_begin(index, 0, "fuzz.tar", &builder, NULL);
    }
    if (status == 0) {
        struct stk_view tar = {data, bytes - 1};
        status = read_tar(tar, chunks[how % 4], how & 4, builder);
    }
    if (status < 0) {
        stk_index_shard_cancel(builder);
    } else {
        status = stk_index_shard_end(builder, bytes, 0, NULL);
    }
    if (status == 0 && stk_index_finish(index, 0, NULL) == 0) {
        look_up_all(index);
    }
    stk_index_close(index);
    return 0;
}
