/* Checks one shard, or one file of a folder, from its first byte to its last. */
#include "tools/verify/verify.h"

#include <stdio.h>
#include <string.h>

/* Opens the object. Returns 1 if it cannot be read, after adding a finding. */
static int start(struct stk_shard_check *check, uint64_t object, struct stoker_error *error)
{
    struct stoker_error cause = {0};
    int status;

    check->path = stk_source_files_path(&check->verify->objects, object);
    status = stk_read_ahead_start(&check->reader, check->path, &cause);
    if (status == 0) {
        return 0;
    }
    if (stk_verify_is_process_error(status)) {
        *error = cause;
        return status;
    }
    check->broken = true;
    cause.offset = STOKER_NO_OFFSET;
    status = stk_shard_check_add_finding(check, STOKER_FINDING_UNREADABLE, &cause, NULL, error);
    return status < 0 ? status : 1;
}

/* If the bytes match the manifest, the number of samples does, too, unless the manifest was edited.
 */
static int compare_samples(struct stk_shard_check *check, const struct stk_manifest_shard *entry,
                           struct stoker_error *error)
{
    struct stoker_error cause = {0};

    if (check->keys.count == entry->samples) {
        return 0;
    }
    stk_fail(&cause, STOKER_ERROR_CHANGED, "the manifest has another number of samples",
             "pack the data set again, or correct stoker.manifest.json", "%llu samples, not %llu",
             (unsigned long long)check->keys.count, (unsigned long long)entry->samples);
    return stk_shard_check_add_finding(check, STOKER_FINDING_MANIFEST, &cause, NULL, error);
}

/* Compares the SHA-256 with the manifest's entry, or without one with the index. */
static int compare_digest(struct stk_shard_check *check, const struct stk_manifest_shard *entry,
                          struct stoker_error *error)
{
    struct stoker_error cause = {0};
    uint8_t digest[32];

    stk_sha256_done(check->sha, digest);
    if (!entry && memcmp(digest, check->index_check.digest, sizeof digest) != 0) {
        stk_fail(&cause, STOKER_ERROR_CORRUPT, "the shard does not have the SHA-256 of the index",
                 "copy it again, or index it again if it was changed on purpose", "%s", "");
    } else if (!entry || (check->reader.bytes == entry->bytes &&
                          memcmp(digest, entry->sha256, sizeof digest) == 0)) {
        return entry ? compare_samples(check, entry, error) : 0;
    } else if (check->reader.bytes != entry->bytes) {
        stk_fail(&cause, STOKER_ERROR_CHANGED, "the shard does not have the size of the manifest",
                 "copy it again, or repair it if it was changed on purpose", "%llu bytes, not %llu",
                 (unsigned long long)check->reader.bytes, (unsigned long long)entry->bytes);
    } else {
        stk_fail(&cause, STOKER_ERROR_CORRUPT,
                 "the shard does not have the SHA-256 of the manifest", "copy it again", "%s", "");
    }
    return stk_shard_check_add_finding(check, STOKER_FINDING_DIGEST, &cause, NULL, error);
}

int stk_shard_check_run(struct stk_shard_check *check, uint64_t object, struct stoker_error *error)
{
    const struct stk_manifest_shard *entry = stk_manifest_roots_find(check->verify, object);
    struct stk_sha256 sha;
    int status = start(check, object, error);

    if (status != 0) {
        return status < 0 ? status : 0;
    }
    stk_index_check_init(&check->index_check, check->verify, object);
    status = stk_index_check_size(check, check->reader.bytes, error);
    if (entry || check->index_check.digest) {
        stk_sha256_init(&sha);
        check->sha = &sha;
    }
    check->no_end_marker = true;
    status = status < 0 ? status : stk_tar_walk(check, error);
    stk_shard_check_suspects(check);
    status = status < 0 ? status : stk_index_check_end(check, error);
    if (status == 0 && check->sha && !check->broken && (entry || check->index_check.digest)) {
        status = compare_digest(check, entry, error);
    }
    check->sha = NULL;
    atomic_fetch_add_explicit(&check->verify->count.samples, check->keys.count,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&check->verify->count.members, check->member_count,
                              memory_order_relaxed);
    stk_read_ahead_stop(&check->reader);
    if (status == 0 && check->damage > 0 && check->verify->options.repair) {
        status = stk_repair_shard(check, object, error);
    }
    return status;
}

/* ---- files of a folder ------------------------------------------------------------------ */

/* Compares key and class of the file with the index, and takes its checksum. */
static int file_index_entry(struct stk_shard_check *check, uint64_t object,
                            struct stoker_error *error)
{
    const char *key = check->path + check->verify->objects.root_bytes;
    struct stk_index_check *index_check = &check->index_check;
    struct stoker_error cause = {0};
    int status;

    if (!index_check->index) {
        return 0;
    }
    status =
        stk_index_sample(index_check->index, index_check->sample, &index_check->current, &cause);
    if (status == 0 &&
        (index_check->current.key.bytes != strlen(key) ||
         memcmp(index_check->current.key.data, key, index_check->current.key.bytes) != 0 ||
         index_check->current.label != check->verify->objects.classes[object])) {
        status = stk_fail(&cause, STOKER_ERROR_CHANGED, "the index differs for this file",
                          "index it again", "class %lld, not %lld",
                          (long long)index_check->current.label,
                          (long long)check->verify->objects.classes[object]);
    }
    if (status == 0 && index_check->sums) {
        status = stk_index_checksum(index_check->index, &index_check->current, 0, &index_check->sum,
                                    &cause);
    }
    check->member.summing = status == 0 && index_check->sums;
    return status < 0 ? stk_index_check_fail(check, &cause, STOKER_NO_OFFSET, error) : 0;
}

int stk_shard_check_file(struct stk_shard_check *check, uint64_t object, struct stoker_error *error)
{
    struct stoker_verify *verify = check->verify;
    const char *path = stk_source_files_path(&verify->objects, object), *dot = strrchr(path, '.');
    struct stk_view block = {0};
    int status;

    check->broken = false;
    if (check->sum) {
        (void)stk_xxh3_done(check->sum); /* of a file that was not read to its end */
    }
    status = start(check, object, error);
    memset(&check->member, 0, sizeof check->member);
    if (status != 0) {
        return status < 0 ? status : 0;
    }
    check->member.picture = true;
    check->member.bytes = check->reader.bytes;
    stk_shard_check_copy_text(check->member.key, sizeof check->member.key,
                              (struct stk_view){(const uint8_t *)path + verify->objects.root_bytes,
                                                strlen(path) - verify->objects.root_bytes});
    snprintf(check->member.extension, sizeof check->member.extension, "%s", dot ? dot + 1 : "");
    stk_index_check_init(&check->index_check, verify, object);
    status = file_index_entry(check, object, error);
    do {
        struct stoker_error cause = {0};

        if (status < 0) {
            break;
        }

        status = stk_read_ahead_next(&check->reader, &block, &cause);
        if (status < 0 && !stk_verify_is_process_error(status)) {
            check->member.picture = false;
            check->broken = true;
            status = stk_shard_check_add_finding(
                check, STOKER_FINDING_UNREADABLE, &cause,
                &(struct stk_verify_spot){STOKER_NO_OFFSET, check->member.key, ""}, error);
            break;
        }
        if (status < 0) {
            *error = cause;
            break;
        }
        if (block.bytes == 0) {
            break;
        }
        atomic_fetch_add_explicit(&check->verify->count.bytes, block.bytes, memory_order_relaxed);
        status = stk_shard_check_add_data(check, block, error);
    } while (status == 0);
    if (status == 0 && !check->broken) {
        status = stk_shard_check_end_member(check, true, error);
    }
    stk_read_ahead_stop(&check->reader);
    atomic_fetch_add_explicit(&check->verify->count.samples, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&check->verify->count.members, 1, memory_order_relaxed);
    return status;
}
