/* Reads and writes the done file of a shard. */
#include "tools/pack/shard_done.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "tools/pack/staging_files.h"

#include <errno.h>
#include <string.h>

/* The done file: "stkdone2" | struct head | members | names | records of what was left out |
 * XXH3-64 of all before. It never leaves the machine and the .part folder, so the bytes are as the
 * machine has them. */
#define DONE_BYTES_MAX (UINT64_C(1) << 36)

static const char magic[8] = "stkdone2";

struct head {
    char magic[8];
    uint8_t plan[32], sha256[32];
    uint64_t bytes, samples, member_count, text_bytes, passed, left_count, left_bytes;
};
_Static_assert(sizeof(struct head) == 128, "no padding: its bytes are written");
_Static_assert(sizeof(struct stk_shard_done_member) == 40, "likewise");

static int parse(struct stk_shard_done *done, const uint8_t *data, size_t bytes);

int stk_shard_done_write(const struct stk_shard_done *done, struct stk_io *io,
                         const char *directory, const char *name, struct stoker_error *error)
{
    struct head head = {.bytes = done->bytes,
                        .samples = done->samples,
                        .member_count = done->member_count,
                        .text_bytes = done->text_bytes,
                        .passed = done->undecodable,
                        .left_count = done->left_out.count};
    size_t members = done->member_count * sizeof *done->members, bytes;
    uint8_t record[STK_BAD_SAMPLE_RECORD_BYTES], *data, *at;
    char *path = stk_staging_path(directory, name, STK_STAGING_DONE_SUFFIX);
    uint64_t sum;
    int status;

    for (uint64_t i = 0; i < done->left_out.count; i++) {
        head.left_bytes += stk_bad_sample_write_record(done->left_out.items[i], record);
    }
    bytes = sizeof head + members + done->text_bytes + head.left_bytes + sizeof sum;
    data = stk_alloc(bytes, 1);
    if (!data || !path) {
        status =
            stk_fail(error, -ENOMEM, "no memory to finish a shard", "free memory", "'%s'", name);
        goto done;
    }
    memcpy(head.magic, magic, sizeof magic);
    memcpy(head.plan, done->plan, sizeof head.plan);
    memcpy(head.sha256, done->sha256, sizeof head.sha256);
    memcpy(data, &head, sizeof head);
    if (members > 0) {
        memcpy(data + sizeof head, done->members, members);
        memcpy(data + sizeof head + members, done->text, done->text_bytes);
    }
    at = data + sizeof head + members + done->text_bytes;
    for (uint64_t i = 0; i < done->left_out.count; i++) {
        at += stk_bad_sample_write_record(done->left_out.items[i], at);
    }
    sum = stk_xxh3_64(data, bytes - sizeof sum);
    memcpy(at, &sum, sizeof sum);
    status = stk_staging_write_file(io, path, data, bytes, error);
done:
    stk_free(data);
    stk_free(path);
    return status;
}

int stk_shard_done_read(struct stk_shard_done *done_out, struct stk_io *io, const char *directory,
                        const char *name, const uint8_t *plan, struct stoker_error *error)
{
    char *path = stk_staging_path(directory, name, STK_STAGING_DONE_SUFFIX);
    char *shard = stk_staging_path(directory, name, "");
    struct stk_shard_done done = {0};
    struct stk_stat about = {0};
    struct stoker_error local = {0};
    uint8_t *data = NULL;
    size_t bytes = 0;
    int status;

    *done_out = (struct stk_shard_done){0};
    if (!path || !shard) {
        status =
            stk_fail(error, -ENOMEM, "no memory to look at a shard", "free memory", "'%s'", name);
        goto done;
    }
    status = stk_staging_find_file(io, path, DONE_BYTES_MAX, &data, &bytes, error);
    if (status <= 0) {
        goto done; /* it was not completed */
    }
    status = stk_io_stat_path(io, shard, &about, &local);
    if (status < 0) {
        if (status != -ENOENT && error) {
            *error = local;
        }
        status = status == -ENOENT ? 0 : status;
        goto done;
    }
    status = parse(&done, data, bytes);
    if (status < 0) {
        status =
            stk_fail(error, status, "no memory to look at a shard", "free memory", "'%s'", name);
    } else if (status > 0 && (memcmp(done.plan, plan, sizeof done.plan) != 0 ||
                              about.kind != STK_ENTRY_FILE || about.bytes != done.bytes)) {
        status = 0;
    }
    if (status > 0) {
        *done_out = done;
        done = (struct stk_shard_done){0};
    }
done:
    stk_shard_done_deinit(&done);
    stk_free(data);
    stk_free(shard);
    stk_free(path);
    return status;
}

void stk_shard_done_deinit(struct stk_shard_done *done)
{
    stk_free(done->members);
    stk_free(done->text);
    stk_bad_sample_list_deinit(&done->left_out);
    *done = (struct stk_shard_done){0};
}

/* Returns 1, 0 if the file is damaged, or -ENOMEM. */
static int parse(struct stk_shard_done *done, const uint8_t *data, size_t bytes)
{
    struct head head;
    struct stk_view left;
    uint64_t sum, members, all;

    if (bytes < sizeof head + sizeof sum) {
        return 0;
    }
    memcpy(&head, data, sizeof head);
    memcpy(&sum, data + bytes - sizeof sum, sizeof sum);
    if (memcmp(head.magic, magic, sizeof magic) != 0 ||
        sum != stk_xxh3_64(data, bytes - sizeof sum) ||
        head.member_count > STK_SHARD_DONE_MEMBERS_MAX || head.text_bytes > UINT32_MAX ||
        head.left_bytes > bytes) {
        return 0;
    }
    members = head.member_count * sizeof *done->members;
    all = sizeof head + members + head.text_bytes + head.left_bytes + sizeof sum;
    if (all != bytes) {
        return 0;
    }
    done->members = stk_alloc(stk_max(head.member_count, 1), sizeof *done->members);
    done->text = stk_alloc(stk_max(head.text_bytes, 1), 1);
    if (!done->members || !done->text) {
        return -ENOMEM;
    }
    memcpy(done->members, data + sizeof head, members);
    memcpy(done->text, data + sizeof head + members, head.text_bytes);
    for (uint64_t i = 0; i < head.member_count; i++) {
        if (!(done->members[i].name_at <= head.text_bytes &&
              done->members[i].name_bytes <= head.text_bytes - done->members[i].name_at)) {
            return 0;
        }
    }
    left = (struct stk_view){data + sizeof head + members + head.text_bytes, head.left_bytes};
    for (uint64_t i = 0; i < head.left_count; i++) {
        struct stk_bad_sample *damage;
        int status = stk_bad_sample_read_record(&left, &damage);

        if (status <= 0) {
            return status;
        }
        if (stk_bad_sample_list_add(&done->left_out, damage) < 0) {
            stk_free(damage);
            return -ENOMEM;
        }
    }
    memcpy(done->plan, head.plan, sizeof head.plan);
    memcpy(done->sha256, head.sha256, sizeof head.sha256);
    done->bytes = head.bytes;
    done->samples = head.samples;
    done->member_count = head.member_count;
    done->text_bytes = head.text_bytes;
    done->undecodable = head.passed;
    return 1;
}
