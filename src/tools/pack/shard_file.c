/* Writes one shard: the bytes pass through one buffer, in which they are also hashed. */
#include "tools/pack/shard_file.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/xxh3.h"
#include "format/tar/tar_write.h"
#include "io/atomic_file.h"
#include "tools/pack/staging_files.h"

#include <errno.h>
#include <string.h>

#define LABEL_DIGITS_MAX 18 /* fit in 63 bits */

struct stk_shard_file {
    struct stk_io *io; /* borrowed */
    struct stk_atomic_file file;
    char *directory, *name;
    uint8_t *buffer;
    size_t used;      /* of the buffer, not yet written */
    uint64_t written; /* bytes before the buffer */
    struct stk_sha256 sha;
    struct stk_xxh3 *sum; /* of a member that is not in one buffer */
    uint64_t remaining;   /* bytes that the member in work lacks */
    size_t from;          /* in the buffer: its first byte that is not in `sum` */
    bool pieces;          /* `sum` has bytes of it */
    struct stk_shard_done done;
    uint64_t member_capacity, text_capacity;
    struct { /* where the sample in work began: what is behind may be taken back */
        uint64_t at, members, text_bytes;
        struct stk_sha256 sha; /* of all before it, once that is written */
        bool written;
    } mark;
};

static int flush(struct stk_shard_file *out, struct stoker_error *error);
static int add_member(struct stk_shard_file *out, struct stk_view name, uint64_t bytes);
static void end_member(struct stk_shard_file *out);

int stk_shard_file_open(struct stk_shard_file **out_out, struct stk_io *io, const char *directory,
                        const char *name, const uint8_t *plan, struct stoker_error *error)
{
    struct stk_shard_file *out = stk_alloc(1, sizeof *out);
    char *path;
    int status;

    *out_out = NULL;
    if (!out) {
        return stk_fail_memory(error, "'%.400s'", name);
    }
    out->io = io;
    out->directory = stk_strdup(directory);
    out->name = stk_strdup(name);
    path = stk_staging_path(directory, name, "");
    out->buffer = stk_alloc(STK_SHARD_FILE_BUFFER_BYTES, 1);
    out->sum = stk_xxh3_open();
    memcpy(out->done.plan, plan, sizeof out->done.plan);
    stk_sha256_init(&out->sha);
    status = out->directory && out->name && path && out->buffer && out->sum
                 ? stk_atomic_file_open(&out->file, io, path, STK_STAGING_TEMP_SUFFIX, error)
                 : stk_fail_memory(error, "'%.400s'", name);
    stk_free(path);
    if (status < 0) {
        stk_shard_file_close(out);
        return status;
    }
    *out_out = out;
    return 0;
}

void stk_shard_file_close(struct stk_shard_file *out)
{
    if (!out) {
        return;
    }
    stk_atomic_file_close(&out->file);
    stk_shard_done_deinit(&out->done);
    stk_xxh3_close(out->sum);
    stk_free(out->buffer);
    stk_free(out->name);
    stk_free(out->directory);
    stk_free(out);
}

void stk_shard_file_begin_sample(struct stk_shard_file *out)
{
    out->done.samples++;
    out->mark.at = stk_shard_file_bytes(out);
    out->mark.members = out->done.member_count;
    out->mark.text_bytes = out->done.text_bytes;
    out->mark.written = false;
}

int stk_shard_file_drop_sample(struct stk_shard_file *out, struct stoker_error *error)
{
    if (out->mark.written) {
        int status = stk_io_truncate(out->io, out->file.output, out->mark.at, error);

        if (status < 0) {
            stk_error_set_location(error, out->file.temporary, out->mark.at, NULL);
            return status;
        }
        out->sha = out->mark.sha;
        out->written = out->mark.at;
    }
    out->used = (size_t)(out->mark.at - out->written);
    out->remaining = 0;
    (void)stk_xxh3_done(out->sum); /* its part of a member */
    out->done.member_count = out->mark.members;
    out->done.text_bytes = out->mark.text_bytes;
    out->done.samples--;
    return 0;
}

int stk_shard_file_add_left_out(struct stk_shard_file *out, struct stk_bad_sample *damage,
                                struct stoker_error *error)
{
    return stk_bad_sample_list_add(&out->done.left_out, damage) < 0
               ? stk_fail_memory(error, "'%.400s'", out->name)
               : 0;
}

struct stk_bad_sample_list *stk_shard_file_left_out(struct stk_shard_file *out)
{
    return &out->done.left_out;
}

void stk_shard_file_count_undecodable(struct stk_shard_file *out)
{
    out->done.undecodable++;
}

uint64_t stk_shard_file_checksum(const struct stk_shard_file *out)
{
    return out->done.members[out->done.member_count - 1].sum;
}

int stk_shard_file_begin_member(struct stk_shard_file *out, struct stk_view name, uint64_t bytes,
                                struct stoker_error *error)
{
    size_t header = stk_tar_header_bytes(name, bytes);
    int status = 0;

    STK_ASSERT(out->remaining == 0);
    if (STK_SHARD_FILE_BUFFER_BYTES - out->used < header) {
        status = flush(out, error);
    }
    if (status < 0) {
        return status;
    }
    out->used += stk_tar_header_write(name, bytes, out->buffer + out->used);
    status = add_member(out, name, bytes);
    if (status < 0) {
        return status == -ENOMEM
                   ? stk_fail_memory(error, "'%.400s'", out->name)
                   : stk_fail(error, status, "a shard has too many members", "make smaller shards",
                              "'%s': more than %d", out->name, STK_SHARD_DONE_MEMBERS_MAX);
    }
    out->remaining = bytes;
    out->from = out->used;
    out->pieces = false;
    if (bytes == 0) {
        end_member(out);
    }
    return 0;
}

int stk_shard_file_get_space(struct stk_shard_file *out, uint8_t **space_out, size_t *bytes_out,
                             struct stoker_error *error)
{
    /* Room for the padding too, so that the end of a member needs no second flush. */
    size_t room = STK_SHARD_FILE_BUFFER_BYTES - out->used;
    int status = 0;

    STK_ASSERT(out->remaining > 0);
    if (room <= STK_TAR_BLOCK) {
        status = flush(out, error);
        room = STK_SHARD_FILE_BUFFER_BYTES - out->used;
    }
    if (status < 0) {
        return status;
    }
    *space_out = out->buffer + out->used;
    *bytes_out = (size_t)stk_min(room - STK_TAR_BLOCK, out->remaining);
    return 0;
}

void stk_shard_file_commit_space(struct stk_shard_file *out, size_t bytes)
{
    STK_ASSERT(bytes <= out->remaining && bytes <= STK_SHARD_FILE_BUFFER_BYTES - out->used);
    out->used += bytes;
    out->remaining -= bytes;
    if (out->remaining == 0 && bytes > 0) {
        end_member(out);
    }
}

int stk_shard_file_write(struct stk_shard_file *out, const void *data, size_t bytes,
                         struct stoker_error *error)
{
    const uint8_t *from = data;
    int status = 0;

    while (bytes > 0 && status == 0) {
        uint8_t *room;
        size_t part = 0;

        status = stk_shard_file_get_space(out, &room, &part, error);
        if (status == 0) {
            part = stk_min(part, bytes);
            memcpy(room, from, part);
            stk_shard_file_commit_space(out, part);
            from += part;
            bytes -= part;
        }
    }
    return status;
}

uint64_t stk_shard_file_bytes(const struct stk_shard_file *out)
{
    return out->written + out->used;
}

uint64_t stk_shard_file_samples(const struct stk_shard_file *out)
{
    return out->done.samples;
}

int stk_shard_file_finish(struct stk_shard_file *out, struct stoker_error *error)
{
    int status = 0;

    STK_ASSERT(out->remaining == 0 && out->file.output);
    if (STK_SHARD_FILE_BUFFER_BYTES - out->used < STK_TAR_END_BYTES) {
        status = flush(out, error);
    }
    if (status == 0) {
        memset(out->buffer + out->used, 0, STK_TAR_END_BYTES);
        out->used += STK_TAR_END_BYTES;
        status = flush(out, error);
    }
    if (status < 0) {
        return status;
    }
    stk_sha256_done(&out->sha, out->done.sha256);
    out->done.bytes = out->written;
    status = stk_atomic_file_commit(&out->file, STK_ATOMIC_FILE_NO_DIRECTORY_SYNC, error);
    if (status == 0) {
        status = stk_shard_done_write(&out->done, out->io, out->directory, out->name, error);
    }
    return status;
}

static int flush(struct stk_shard_file *out, struct stoker_error *error)
{
    size_t hashed = 0;
    int status;

    if (out->remaining > 0) { /* the rest of the member is in the next buffer */
        stk_xxh3_add(out->sum, out->buffer + out->from, out->used - out->from);
        out->pieces = true;
        out->from = 0;
    }
    if (!out->mark.written && out->mark.at >= out->written) {
        hashed = (size_t)(out->mark.at - out->written);
        stk_sha256_add(&out->sha, out->buffer, hashed);
        out->mark.sha = out->sha;
        out->mark.written = true;
    }
    stk_sha256_add(&out->sha, out->buffer + hashed, out->used - hashed);
    status = stk_atomic_file_write(&out->file, out->buffer, out->used, error);
    if (status < 0) { /* set here, so that callers do not add the source's */
        stk_error_set_location(error, out->file.temporary, out->written, NULL);
    }
    out->written += out->used;
    out->used = 0;
    return status;
}

/* Returns the class in a member "KEY.cls", which is complete in the buffer; -1: none. */
static int64_t find_label(const struct stk_shard_file *out,
                          const struct stk_shard_done_member *member)
{
    static const char ending[] = ".cls";
    const uint8_t *name_end = out->done.text + member->name_at + member->name_bytes;
    int64_t label = 0;

    if (member->name_bytes < sizeof ending || member->bytes == 0 ||
        member->bytes > LABEL_DIGITS_MAX ||
        memcmp(name_end - (sizeof ending - 1), ending, sizeof ending - 1) != 0) {
        return -1;
    }
    for (size_t i = 0; i < member->bytes; i++) {
        uint8_t digit = out->buffer[out->from + i];

        if (digit < '0' || digit > '9') {
            return -1;
        }
        label = 10 * label + (digit - '0');
    }
    return label;
}

static void end_member(struct stk_shard_file *out)
{
    struct stk_shard_done_member *member = &out->done.members[out->done.member_count - 1];
    size_t padding = stk_tar_padding(member->bytes);

    if (out->pieces) {
        stk_xxh3_add(out->sum, out->buffer + out->from, out->used - out->from);
        member->sum = stk_xxh3_done(out->sum);
    } else {
        member->sum = stk_xxh3_64(out->buffer + out->from, out->used - out->from);
        member->label = find_label(out, member);
    }
    memset(out->buffer + out->used, 0, padding);
    out->used += padding;
}

/* Records the member whose header was just written. */
static int add_member(struct stk_shard_file *out, struct stk_view name, uint64_t bytes)
{
    struct stk_shard_done *done = &out->done;

    if (done->member_count >= STK_SHARD_DONE_MEMBERS_MAX ||
        done->text_bytes + name.bytes > UINT32_MAX) {
        return STOKER_ERROR_LIMIT;
    }
    if (done->member_count == out->member_capacity) {
        uint64_t capacity = stk_max(256, out->member_capacity * 2);
        void *grown =
            stk_realloc(done->members, out->member_capacity, capacity, sizeof *done->members);
        if (!grown) {
            return -ENOMEM;
        }
        done->members = grown;
        out->member_capacity = capacity;
    }
    if (out->text_capacity - done->text_bytes < name.bytes) {
        uint64_t capacity = stk_max(out->text_capacity * 2, done->text_bytes + name.bytes);
        void *grown = stk_realloc(done->text, out->text_capacity, capacity, 1);
        if (!grown) {
            return -ENOMEM;
        }
        done->text = grown;
        out->text_capacity = capacity;
    }
    memcpy(done->text + done->text_bytes, name.data, name.bytes);
    done->members[done->member_count++] = (struct stk_shard_done_member){
        .offset = stk_shard_file_bytes(out),
        .bytes = bytes,
        .label = -1,
        .name_at = (uint32_t)done->text_bytes,
        .name_bytes = (uint32_t)name.bytes,
    };
    done->text_bytes += name.bytes;
    return 0;
}
