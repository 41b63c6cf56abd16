/* Whether a shard is still the file that the index describes, and that was opened: its size, its
 * time, and headers of its samples. */
#include "base/retry.h"
#include "base/xxh3.h"
#include "dataset/dataset.h"
#include "format/detect/container_detect.h"
#include "format/tar/tar_container.h"
#include "index/foreign/header_check.h"
#include "storage/vfs/vfs.h"

#include <string.h>

#define SAMPLES_LOOKED_AT 4u
#define CHECK_INTERVAL_NS 1000000000ull

/* The bytes of a shard: of its file, or decompressed by a stream. */
struct shard_bytes {
    struct stk_file *file;
    struct stk_shard_stream *stream; /* NULL: the shard is read as it is stored */
};

static int fail_changed(const struct stoker_dataset *dataset, uint32_t shard, const char *why,
                        struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_CHANGED, "a shard was changed since it was indexed or opened",
             "open the data set again when nothing writes to its files; 'stoker index' makes a new "
             "index",
             "%s", why);
    stk_dataset_error_add_location(dataset, error, shard, STOKER_NO_OFFSET, NULL);
    return STOKER_ERROR_CHANGED;
}

/* True if the sample's first member is a hard link: an earlier sample ends behind its data, and the
 * header before the data is that of the target. */
static bool is_link(const struct stk_index *index, uint64_t sample_id,
                    const struct stk_sample *sample, uint64_t offset)
{
    for (uint64_t i = 1; i <= sample->number; i++) {
        struct stk_sample before;
        struct stk_member last;

        if (stk_index_sample(index, sample_id - i, &before, NULL) < 0 ||
            stk_index_member(index, &before, before.member_count - 1, &last, NULL) < 0 ||
            last.offset + last.bytes > offset) {
            return true; /* damage of the index is found where it is used */
        }
    }
    return false;
}

/* Reads a header. Returns 1; 0 if the bytes are not there, which is found where they are used. */
static int read_block(const struct shard_bytes *bytes, uint64_t offset,
                      uint8_t block[STK_HEADER_BLOCK_BYTES], struct stoker_error *error)
{
    size_t got = 0;
    int64_t count;
    int status;

    if (bytes->stream) {
        status = stk_shard_stream_read(bytes->stream, offset, block, STK_HEADER_BLOCK_BYTES, &got,
                                       error);
        status = stk_error_is_data(status) ? 0 : status;
        return status < 0 ? status : got == STK_HEADER_BLOCK_BYTES;
    }
    count = stk_io_read_wait(bytes->file, offset, block, STK_HEADER_BLOCK_BYTES);
    return count < 0 ? stk_io_fail_read(bytes->file, count, "cannot read a shard", error)
                     : count == STK_HEADER_BLOCK_BYTES;
}

/* Compares the header of a sample's first member with the index. Returns 0 if the header fits, or
 * cannot be compared. */
static int check_header(struct stoker_dataset *dataset, uint32_t shard, uint64_t id,
                        const struct shard_bytes *bytes, struct stoker_error *error)
{
    const struct stk_index *index = dataset->index;
    uint8_t block[STK_HEADER_BLOCK_BYTES];
    struct stk_header_claim claim;
    struct stk_sample sample;
    struct stk_member member;
    const char *extension;
    int got;

    if (stk_index_sample(index, id, &sample, NULL) < 0 ||
        stk_index_member(index, &sample, 0, &member, NULL) < 0 || member.offset < sizeof block) {
        return 0; /* damage of the index is found where it is used */
    }
    if (bytes->stream && member.offset - sizeof block < stk_shard_stream_position(bytes->stream)) {
        return 0; /* the stream would start over */
    }
    got = read_block(bytes, member.offset - sizeof block, block, error);
    if (got <= 0) {
        return got;
    }
    extension = stk_index_extension(index, member.extension);
    claim = (struct stk_header_claim){
        .key = sample.key,
        .extension = {(const uint8_t *)extension, strlen(extension)},
        .bytes = member.bytes,
    };
    return stk_header_block_check(block, &claim) == 1 && !is_link(index, id, &sample, member.offset)
               ? fail_changed(dataset, shard,
                              "the headers of its members are not those of the index", error)
               : 0;
}

/* Compares the headers of some members, from the first to the last sample, with the index; of a
 * stream that cannot seek, that of the first sample. */
static int check_headers(struct stoker_dataset *dataset, uint32_t shard,
                         const struct shard_bytes *bytes, struct stoker_error *error)
{
    uint64_t first = stk_index_first_sample(dataset->index, shard);
    uint64_t count = stk_index_shard_samples(dataset->index, shard);
    int status = 0;

    if (bytes->stream && stk_shard_stream_is_sequential(bytes->stream)) {
        return check_header(dataset, shard, first, bytes, error);
    }

    for (uint64_t i = 0; status == 0 && i < stk_min(count, SAMPLES_LOOKED_AT); i++) {
        uint64_t number =
            count <= SAMPLES_LOOKED_AT ? i : (count - 1) * i / (SAMPLES_LOOKED_AT - 1);

        status = check_header(dataset, shard, first + number, bytes, error);
    }
    return status;
}

static bool is_tar(const struct stoker_dataset *dataset, uint32_t shard)
{
    char path[STK_PATH_BYTES_MAX];

    return !stk_index_shard_is_unverified(dataset->index, shard) &&
           stk_index_path(dataset->index, shard, path, NULL) == 0 &&
           stk_container_detect(dataset->formats, path, (struct stk_view){NULL, 0}) ==
               &stk_tar_container &&
           strstr(path, ".t");
}

/* True if headers can be read: compressed ones are in a stream. */
static bool has_headers(const struct stoker_dataset *dataset, uint32_t shard,
                        const struct shard_bytes *bytes)
{
    bool is_plain = stk_index_shard_compression(dataset->index, shard) == STK_COMPRESSION_NONE;

    return is_plain == !bytes->stream && is_tar(dataset, shard);
}

/* Compares a shard that was just opened with the index. */
static int check_first(struct stoker_dataset *dataset, uint32_t shard,
                       const struct shard_bytes *bytes, const struct stk_stat *now,
                       struct stoker_error *error)
{
    bool is_joined = stk_dataset_is_joined(dataset);

    if (dataset->mtimes && dataset->mtimes[shard] != 0 && now->mtime_ns != dataset->mtimes[shard]) {
        return fail_changed(dataset, shard, "its time changed", error);
    }
    if (!is_joined && now->bytes != stk_index_shard_bytes(dataset->index, shard)) {
        return fail_changed(dataset, shard, "it has another size", error);
    }
    /* A scan has just read the headers. For an index the stamp is checked, which a copy may
     * keep. */
    return (dataset->shards_indexed > 0 || is_joined) && has_headers(dataset, shard, bytes)
               ? check_headers(dataset, shard, bytes, error)
               : 0;
}

/* Objects have versions, which each read compares with that of the opening. An index without a
 * stamp may be of an earlier version: a few headers are compared once. */
static int check_object(struct stoker_dataset *dataset, uint32_t shard,
                        const struct shard_bytes *bytes, struct stk_file_stamp *stamp,
                        struct stoker_error *error)
{
    bool is_checked;
    int status;

    pthread_mutex_lock(&dataset->files.stamp_lock);
    is_checked = stamp->known;
    pthread_mutex_unlock(&dataset->files.stamp_lock);
    if (is_checked || !dataset->index_is_unstamped || dataset->shards_indexed == 0 ||
        !has_headers(dataset, shard, bytes)) {
        return 0;
    }
    status = check_headers(dataset, shard, bytes, error);
    if (status == 0) {
        pthread_mutex_lock(&dataset->files.stamp_lock);
        stamp->known = true;
        pthread_mutex_unlock(&dataset->files.stamp_lock);
    }
    return status;
}

uint64_t stk_dataset_newest_ns(const struct stoker_dataset *dataset)
{
    uint64_t newest_ns = 0, shards = dataset->index ? stk_index_shards(dataset->index) : 0;

    for (uint64_t i = 0; dataset->mtimes && i < shards; i++) {
        newest_ns = stk_max(newest_ns, dataset->mtimes[i]);
    }
    return stk_dataset_is_in_store(dataset) ? newest_ns - newest_ns % 1000000000u : newest_ns;
}

uint64_t stk_dataset_stamp(const struct stoker_dataset *dataset)
{
    uint64_t shards = dataset->index ? stk_index_shards(dataset->index) : 0;

    for (uint64_t i = 0; dataset->mtimes && i < shards; i++) {
        if (dataset->mtimes[i] == 0) {
            return 0; /* it could not be read */
        }
    }
    return dataset->mtimes && shards > 0
               ? stk_max(stk_xxh3_64(dataset->mtimes, shards * sizeof *dataset->mtimes), 1)
               : 0;
}

bool stk_dataset_is_in_store(const struct stoker_dataset *dataset)
{
    return dataset->objects.count > 0 && dataset->objects.paths &&
           stk_io_is_url(stk_source_files_path(&dataset->objects, 0));
}

static int check_bytes(struct stoker_dataset *dataset, uint32_t shard,
                       const struct shard_bytes *source, uint64_t now_ns,
                       struct stoker_error *error)
{
    struct stk_file_stamp *stamp = stk_open_files_stamp(&dataset->files, shard);
    uint64_t bytes, mtime_ns;
    struct stk_stat found;
    bool known;
    int status = 0;

    if (!stamp) {
        return 0;
    }
    if (stk_vfs_round_trip_bytes(source->file) > 0) {
        return check_object(dataset, shard, source, stamp, error);
    }
    if (now_ns && atomic_load_explicit(&stamp->due_ns, memory_order_acquire) > now_ns) {
        return 0;
    }
    now_ns = now_ns ? now_ns : stk_engine_now(dataset->engine);
    if (stk_io_stat_file(source->file, &found, NULL) < 0) {
        return 0; /* reads report the error; the next use checks again */
    }
    pthread_mutex_lock(&dataset->files.stamp_lock);
    known = stamp->known;
    bytes = stamp->bytes;
    mtime_ns = stamp->mtime_ns;
    pthread_mutex_unlock(&dataset->files.stamp_lock);
    if (!known) { /* without the lock: threads that open other shards do not wait for these reads */
        status = check_first(dataset, shard, source, &found, error);
    } else if (found.bytes != bytes || found.mtime_ns != mtime_ns) {
        status = fail_changed(dataset, shard, "its size or its time changed", error);
    }
    if (status < 0) {
        return status;
    }
    pthread_mutex_lock(&dataset->files.stamp_lock);
    if (!stamp->known) {
        stamp->known = true;
        stamp->bytes = found.bytes;
        stamp->mtime_ns = found.mtime_ns;
    }
    pthread_mutex_unlock(&dataset->files.stamp_lock);
    atomic_store_explicit(&stamp->due_ns, now_ns + CHECK_INTERVAL_NS, memory_order_release);
    return 0;
}

int stk_dataset_check_shard(struct stoker_dataset *dataset, uint32_t shard, struct stk_file *file,
                            uint64_t now_ns, struct stoker_error *error)
{
    return check_bytes(dataset, shard, &(struct shard_bytes){file, NULL}, now_ns, error);
}

/* A stream of a shard without compression is read as its file is. */
static struct shard_bytes bytes_of(const struct stoker_dataset *dataset, uint32_t shard,
                                   struct stk_shard_stream *stream)
{
    bool is_plain = stk_index_shard_compression(dataset->index, shard) == STK_COMPRESSION_NONE;

    return (struct shard_bytes){stk_shard_stream_source(stream), is_plain ? NULL : stream};
}

int stk_dataset_open_stream(struct stk_shard_stream **stream_out, struct stoker_dataset *dataset,
                            uint32_t shard, struct stoker_error *error)
{
    struct stk_shard_stream_options options = stk_dataset_stream_options(dataset);
    int status = stk_shard_stream_open_shard(stream_out, &options, shard, error);

    if (status == 0) {
        struct shard_bytes bytes = bytes_of(dataset, shard, *stream_out);
        bool is_new = stk_shard_stream_is_sequential(*stream_out); /* a file of its own */

        status = check_bytes(dataset, shard, &bytes, is_new ? 0 : stk_engine_now(dataset->engine),
                             error);
    }
    if (status < 0) {
        stk_shard_stream_close(*stream_out);
        *stream_out = NULL;
    }
    return status;
}

int stk_dataset_check_stream(struct stoker_dataset *dataset, uint32_t shard,
                             struct stk_shard_stream *stream, struct stoker_error *error)
{
    struct shard_bytes bytes = bytes_of(dataset, shard, stream);

    return check_bytes(dataset, shard, &bytes, 0, error);
}

bool stk_dataset_has_headers(const struct stoker_dataset *dataset, uint32_t shard)
{
    return dataset->shards_indexed > 0 && is_tar(dataset, shard);
}

int stk_dataset_check_sample(struct stoker_dataset *dataset, uint32_t shard, uint64_t sample,
                             struct stk_shard_stream *stream, struct stoker_error *error)
{
    struct shard_bytes bytes = bytes_of(dataset, shard, stream);

    return check_header(dataset, shard, sample, &bytes, error);
}

int stk_dataset_pin(struct stoker_dataset *dataset, uint32_t shard, uint64_t now_ns,
                    struct stk_file **file_out, struct stoker_error *error)
{
    struct stk_file *file;
    int status = stk_open_files_pin(&dataset->files, dataset->index, shard, &file, error);

    if (status < 0) {
        return status;
    }
    status = stk_dataset_check_shard(dataset, shard, file, now_ns, error);
    if (status < 0) {
        stk_dataset_unpin(dataset, shard, file);
        return status;
    }
    *file_out = file;
    return 0;
}
