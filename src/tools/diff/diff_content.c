/* Hashes the content of a sample, by the checksums of its index or by its bytes. */
#include "base/mem.h"
#include "tools/diff/diff.h"

#include "base/random.h"
#include "base/xxh3.h"
#include "engine/read_ahead.h"
#include "format/compress/decompress.h"
#include "format/tar/wds_name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { PIECE_BYTES = 256 << 10 };

/* The bytes of one shard, member by member. */
struct bytes {
    struct stoker_diff *diff;
    struct stk_diff_side *side;
    uint32_t shard;
    bool started;
    struct stk_read_ahead reader; /* of a plain shard, or file */
    struct stk_view block;        /* borrowed from the reader */
    uint64_t block_offset;
    struct stk_shard_stream *stream; /* owned; of a compressed shard */
    uint8_t *piece;                  /* owned: PIECE_BYTES, for reads out of order */
    struct stk_xxh3 *sum;            /* owned */
};

static int shard_content(struct bytes *bytes, uint32_t shard, struct stoker_error *error);
static int file_content(struct bytes *bytes, uint32_t shard, struct stoker_error *error);
static int sum_member(struct bytes *bytes, uint64_t offset, uint64_t size, uint64_t *sum_out,
                      struct stoker_error *error);
static void bytes_deinit(struct bytes *bytes);

/* The pictures that a folder may have (storage/source/source.h). */
static bool is_picture(const char *kind)
{
    static const char *const kinds[] = {"jpg", "jpeg", "jpe", "jfif", "png", "webp"};

    for (size_t i = 0; i < STK_COUNT(kinds); i++) {
        if (strcmp(kind, kinds[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool stk_diff_must_read(const struct stoker_diff *diff, const struct stk_diff_side *side,
                        uint32_t shard)
{
    bool has_pair = side->shared_shards && side->shared_shards[shard];

    return diff->reread ||
           (!has_pair && !stk_index_shard_has_checksums(side->dataset->index, shard));
}

int stk_diff_content(struct stoker_diff *diff, struct stk_diff_side *side, uint64_t round,
                     struct stoker_error *error)
{
    struct bytes bytes = {.diff = diff, .side = side};
    uint64_t first = round * side->files_a_round;
    uint64_t end = stk_min(first + side->files_a_round, stk_index_shards(side->dataset->index));
    bool folder = side->dataset->objects.kind == STK_SOURCE_FOLDER;
    int status = 0;

    stk_read_ahead_init(&bytes.reader, side->dataset->engine);
    for (uint64_t i = first; i < end && status == 0; i++) {
        if (stk_background_job_is_stopping(&diff->job)) {
            break;
        }
        status = folder ? file_content(&bytes, (uint32_t)i, error)
                        : shard_content(&bytes, (uint32_t)i, error);
    }
    bytes_deinit(&bytes);
    return status;
}

static bool is_folder(const struct stk_diff_side *side)
{
    return side->dataset->objects.kind == STK_SOURCE_FOLDER;
}

struct stk_view stk_diff_key(const struct stoker_diff *diff, const struct stk_diff_side *side,
                             const struct stk_sample *sample)
{
    struct stk_view key, extension;

    return diff->mixed && is_folder(side) && stk_wds_name_split(sample->key, &key, &extension)
               ? key
               : sample->key;
}

const char *stk_diff_extension(const struct stoker_diff *diff, const struct stk_diff_side *side,
                               const struct stk_sample *sample, const struct stk_member *member,
                               char space[STK_DIFF_EXTENSION_MAX])
{
    const char *text = stk_index_extension(side->dataset->index, member->extension), *dot;
    struct stk_view key, extension;

    if (!diff->mixed) {
        return text;
    }
    if (is_folder(side) && stk_wds_name_split(sample->key, &key, &extension) &&
        extension.bytes < STK_DIFF_EXTENSION_MAX) {
        for (size_t i = 0; i < extension.bytes; i++) {
            uint8_t byte = extension.data[i];
            space[i] = (char)(byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte);
        }
        space[extension.bytes] = '\0';
        return space;
    }
    dot = strrchr(text, '.');
    return is_folder(side) || is_picture(dot ? dot + 1 : text) ? text : NULL;
}

/* Computes a member's part of the content. The parts are added, so the sequence of members does
 * not matter. */
static uint64_t member_hash(const char *extension, uint64_t sum)
{
    return stk_random_key(stk_xxh3_64(extension, strlen(extension)), sum);
}

static int sample_content(struct bytes *bytes, uint64_t sample, bool reads,
                          struct stk_diff_entry *entry, struct stoker_error *error)
{
    const struct stk_index *index = bytes->side->dataset->index;
    char space[STK_DIFF_EXTENSION_MAX];
    struct stk_sample found;
    int status = stk_index_sample(index, sample, &found, error);

    for (uint32_t m = 0; status == 0 && m < found.member_count; m++) {
        struct stk_member member;
        const char *extension;
        uint64_t sum = 0;

        status = stk_index_member(index, &found, m, &member, error);
        if (status < 0) {
            break;
        }
        extension = stk_diff_extension(bytes->diff, bytes->side, &found, &member, space);
        if (!extension) {
            continue;
        }
        status = reads ? sum_member(bytes, member.offset, member.bytes, &sum, error)
                       : stk_index_checksum(index, &found, m, &sum, error);
        entry->content += member_hash(extension, sum);
        if (status < 0) {
            char key[sizeof error->key];

            stk_wds_name_text(found.key, key, sizeof key);
            stk_dataset_error_add_location(bytes->side->dataset, error, member.shard, member.offset,
                                           key);
        }
    }
    if (status == 0) {
        entry->key = stk_xxh3_64(found.key.data, found.key.bytes);
    }
    return status;
}

static int shard_content(struct bytes *bytes, uint32_t shard, struct stoker_error *error)
{
    struct stk_diff_side *side = bytes->side;
    const struct stk_index *index = side->dataset->index;
    uint64_t first = stk_index_first_sample(index, shard);
    uint64_t count = stk_index_shard_samples(index, shard);
    bool reads = stk_diff_must_read(bytes->diff, side, shard);
    int status = 0;

    bytes->shard = shard;
    for (uint64_t i = first; i < first + count && status == 0; i++) {
        if (stk_background_job_is_stopping(&bytes->diff->job)) {
            break;
        }
        side->entries[i] = (struct stk_diff_entry){.sample = i};
        if (side->shared_shards && side->shared_shards[shard]) {
            /* Only equality matters: the same number on both sides, and for no other sample. */
            side->entries[i].content = stk_xxh3_64(stk_index_shard_digest(index, shard), 32);
            side->entries[i].key = stk_random_key(side->entries[i].content, i - first);
        } else {
            status = sample_content(bytes, i, reads, &side->entries[i], error);
        }
        atomic_fetch_add_explicit(&bytes->diff->count.samples, 1, memory_order_relaxed);
    }
    return status;
}

/* ---- bytes ------------------------------------------------------------------------------ */

static void bytes_deinit(struct bytes *bytes)
{
    stk_read_ahead_deinit(&bytes->reader);
    stk_shard_stream_close(bytes->stream);
    stk_free(bytes->piece);
    stk_xxh3_close(bytes->sum);
}

static int start(struct bytes *bytes, struct stoker_error *error)
{
    struct stoker_dataset *dataset = bytes->side->dataset;
    bool packed = stk_index_shard_compression(dataset->index, bytes->shard) != STK_COMPRESSION_NONE;
    char path[STK_PATH_BYTES_MAX];
    int status = stk_index_path(dataset->index, bytes->shard, path, error);

    bytes->sum = bytes->sum ? bytes->sum : stk_xxh3_open();
    if (status == 0 && !bytes->sum) {
        status = stk_fail_memory(error, "contents of samples");
    }
    if (status == 0 && packed) {
        status = stk_dataset_open_stream(&bytes->stream, dataset, bytes->shard, error);
    } else if (status == 0) {
        status = stk_read_ahead_start(&bytes->reader, path, error);
        bytes->block = (struct stk_view){0};
        bytes->block_offset = 0;
    }
    bytes->started = status == 0;
    return status;
}

static int fail_short(struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_TRUNCATED, "the shard ends inside a member",
                    "the shard was truncated after it was opened: copy it again", "%s", "");
}

/* Reads members one by one: of a compressed shard, or before the current offset. */
static int add_pieces(struct bytes *bytes, uint64_t offset, uint64_t size,
                      struct stoker_error *error)
{
    int status = 0;

    bytes->piece = bytes->piece ? bytes->piece : stk_alloc(PIECE_BYTES, 1);
    if (!bytes->piece) {
        return stk_fail_memory(error, "contents of samples");
    }
    while (size > 0 && status == 0) {
        size_t part = (size_t)stk_min(size, PIECE_BYTES), got = 0;

        if (bytes->stream) {
            status = stk_shard_stream_read(bytes->stream, offset, bytes->piece, part, &got, error);
        } else {
            int64_t result = stk_io_read_wait(bytes->reader.file, offset, bytes->piece, part);
            status = result < 0 ? stk_fail(error, (int)result, "cannot read a member",
                                           "check the disk and the kernel's log (dmesg)", "%s",
                                           stoker_status_text((int)result))
                                : 0;
            got = result < 0 ? 0 : (size_t)result;
        }
        if (status == 0 && got < part) {
            status = fail_short(error);
        }
        if (status == 0) {
            stk_xxh3_add(bytes->sum, bytes->piece, got);
            atomic_fetch_add_explicit(&bytes->diff->count.bytes, got, memory_order_relaxed);
        }
        offset += part;
        size -= part;
    }
    return status;
}

static int next_block(struct bytes *bytes, struct stoker_error *error)
{
    int status;

    bytes->block_offset += bytes->block.bytes;
    bytes->block.bytes = 0;
    if (stk_background_job_is_stopping(&bytes->diff->job)) {
        return stk_fail(error, STOKER_ERROR_CLOSED, "the comparison was stopped", "start it again",
                        "%s", "");
    }
    status = stk_read_ahead_next(&bytes->reader, &bytes->block, error);
    atomic_fetch_add_explicit(&bytes->diff->count.bytes, bytes->block.bytes, memory_order_relaxed);
    return status;
}

/* XXH3-64 of the member at this place of the shard; most follow each other. */
static int sum_member(struct bytes *bytes, uint64_t offset, uint64_t size, uint64_t *sum_out,
                      struct stoker_error *error)
{
    int status = 0;

    if (!bytes->started) {
        status = start(bytes, error);
    }
    if (status == 0 && (bytes->stream || offset < bytes->block_offset)) {
        status = add_pieces(bytes, offset, size, error);
        size = 0;
    }
    while (size > 0 && status == 0) {
        uint64_t end = bytes->block_offset + bytes->block.bytes;

        if (offset < end) {
            uint64_t part = stk_min(size, end - offset);

            stk_xxh3_add(bytes->sum, bytes->block.data + (offset - bytes->block_offset), part);
            offset += part;
            size -= part;
            continue;
        }
        status = next_block(bytes, error);
        if (status == 0 && bytes->block.bytes == 0) {
            status = fail_short(error);
        }
    }
    if (bytes->sum) { /* also after a failure: it starts again */
        *sum_out = stk_xxh3_done(bytes->sum);
    }
    return status;
}

/* ---- files of a folder ------------------------------------------------------------------ */

static int sum_file(struct bytes *bytes, uint64_t *sum_out, struct stoker_error *error)
{
    int status = start(bytes, error);

    while (status == 0) {
        status = next_block(bytes, error);
        if (status < 0 || bytes->block.bytes == 0) {
            break;
        }
        stk_xxh3_add(bytes->sum, bytes->block.data, bytes->block.bytes);
    }
    if (bytes->sum) {
        *sum_out = stk_xxh3_done(bytes->sum);
    }
    if (bytes->started) {
        stk_read_ahead_stop(&bytes->reader);
        bytes->started = false;
    }
    return status;
}

static int file_content(struct bytes *bytes, uint32_t shard, struct stoker_error *error)
{
    const struct stk_index *index = bytes->side->dataset->index;
    struct stk_diff_entry *entry = &bytes->side->entries[shard];
    struct stk_sample found;
    struct stk_member member;
    struct stk_view key;
    char space[STK_DIFF_EXTENSION_MAX];
    uint64_t sum = 0;
    int status = stk_index_sample(index, shard, &found, error);

    bytes->shard = shard;
    status = status < 0 ? status : stk_index_member(index, &found, 0, &member, error);
    if (status < 0) {
        return status;
    }
    status = stk_diff_must_read(bytes->diff, bytes->side, shard)
                 ? sum_file(bytes, &sum, error)
                 : stk_index_checksum(index, &found, 0, &sum, error);
    if (status < 0) {
        stk_dataset_error_add_location(bytes->side->dataset, error, shard, STOKER_NO_OFFSET, NULL);
        return status;
    }
    key = stk_diff_key(bytes->diff, bytes->side, &found);
    *entry = (struct stk_diff_entry){
        .key = stk_xxh3_64(key.data, key.bytes),
        .content =
            member_hash(stk_diff_extension(bytes->diff, bytes->side, &found, &member, space), sum),
        .sample = shard};
    atomic_fetch_add_explicit(&bytes->diff->count.samples, 1, memory_order_relaxed);
    return 0;
}
