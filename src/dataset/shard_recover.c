/* Recovers the complete samples of a damaged tar, and lists the lost ones. Only tars can be
 * recovered: they have a header before each member. */
#include "dataset/shard_scan.h"

#include <errno.h>

static int read_stream(void *context, uint64_t offset, uint8_t *buffer, size_t bytes,
                       size_t *got_out, struct stoker_error *error)
{
    return stk_shard_stream_read(context, offset, buffer, bytes, got_out, error);
}

/* Adds the members of complete samples to a new builder. */
static int add_recovered(struct stk_shard_scan_target *target,
                         const struct stk_tar_recover *recovered, struct stoker_error *error)
{
    int status =
        stk_index_shard_begin(target->index, target->number, target->path, &target->builder, error);

    for (uint64_t i = 0; status == 0 && i < recovered->member_count; i++) {
        const struct stk_tar_recover_member *member = &recovered->members[i];

        if (stk_tar_recover_is_intact(recovered, i)) {
            status = stk_index_shard_add(target->builder, stk_tar_recover_name(recovered, i),
                                         member->offset, member->bytes, error);
        }
    }
    return status;
}

int stk_shard_recover(struct stk_shard_scan_target *target, struct stoker_error *error)
{
    struct stoker_dataset *dataset = target->dataset;
    struct stk_shard_stream_options options = stk_dataset_stream_options(dataset);
    struct stk_tar_recover_source source = {.path = target->path, .read = read_stream};
    struct stk_tar_recover recovered = {0};
    int status;

    stk_index_shard_cancel(target->builder);
    target->builder = NULL;
    stk_shard_stream_close(target->stream);
    target->stream = NULL;
    status = stk_shard_stream_open(&target->stream, &options, target->path, error);
    if (status < 0) {
        return status;
    }
    source.context = target->stream;
    source.bytes = stk_shard_stream_compression(target->stream) == STK_COMPRESSION_NONE
                       ? stk_shard_stream_object_bytes(target->stream)
                       : UINT64_MAX;
    source.limits.name_bytes_max = dataset->options.key_bytes_max;
    source.limits.header_bytes_max = dataset->options.header_bytes_max;
    status = stk_tar_recover_run(&recovered, &source, error);
    status = status < 0 ? status : add_recovered(target, &recovered, error);
    if (status == 0) {
        pthread_mutex_lock(&dataset->lock);
        status = stk_tar_losses_add(&dataset->bad_samples, target->shard, &recovered.bad_samples);
        pthread_mutex_unlock(&dataset->lock);
        if (status < 0) {
            stk_fail(error, status, "cannot list the damage", "free memory", "'%.400s'",
                     target->path);
        }
    }
    stk_tar_recover_deinit(&recovered);
    return status;
}

uint64_t stoker_dataset_quarantine_count(const struct stoker_dataset *dataset)
{
    return dataset->bad_samples.count;
}

int stoker_dataset_quarantine(const struct stoker_dataset *dataset, uint64_t index,
                              struct stoker_quarantine_entry *entry_out)
{
    const struct stk_bad_sample *entry = stk_tar_losses_get(&dataset->bad_samples, index);

    return entry ? stk_bad_sample_entry(entry, entry_out) : STOKER_ERROR_ARGUMENT;
}
