/* What a shard's members must be: names, samples, contents. The walk brings them front to back. */
#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/random.h"
#include "tools/verify/verify.h"

#include "format/tar/wds_name.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { HEADER_BYTES = 512, SUSPECTS = 2 /* new samples after damage that may lack members */ };
#define KEPT_BYTES_MAX (1ull << 30)

static int add_sample(struct stk_shard_check *check, struct stk_view key,
                      struct stoker_error *error);
static int keep_member(struct stk_shard_check *check, const struct stk_tar_step *step,
                       struct stoker_error *error);
static void *grow(void *block, uint32_t count, uint32_t *capacity, size_t item_bytes);
static void check_suspects(struct stk_shard_check *check);

static int fail_memory(struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "cannot verify", "free memory", "samples of a shard");
}

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
    stk_free(check->samples);
    stk_free(check->members);
    stk_free(check->ranges);
    if (check->kept_data) {
        stk_pages_free(check->kept_data, check->kept_data_bytes);
        stk_budget_release(&check->verify->engine->budget, check->kept_data_bytes);
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
               ? fail_memory(error)
               : 0;
}

static const char *object_path(const struct stoker_verify *verify, uint64_t object)
{
    return verify->objects.text + verify->objects.paths[object];
}

/* Opens the object; 1: it cannot be read, which is told. */
static int start(struct stk_shard_check *check, uint64_t object, struct stoker_error *error)
{
    struct stoker_error cause = {0};
    int status;

    check->path = object_path(check->verify, object);
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

/* The bytes against the manifest's entry, or without one against the index. */
static int compare_digest(struct stk_shard_check *check, const struct stk_manifest_shard *entry,
                          struct stoker_error *error)
{
    struct stoker_error cause = {0};
    uint8_t digest[32];

    stk_sha256_done(check->sha, digest);
    if (!entry && memcmp(digest, check->index_check.digest, sizeof digest) != 0) {
        stk_fail(&cause, STOKER_ERROR_CORRUPT, "the shard has not the SHA-256 of the index",
                 "copy it again, or index it again if it was changed on purpose", "%s", "");
    } else if (!entry || (check->reader.bytes == entry->bytes &&
                          memcmp(digest, entry->sha256, sizeof digest) == 0)) {
        return 0;
    } else if (check->reader.bytes != entry->bytes) {
        stk_fail(&cause, STOKER_ERROR_CHANGED, "the shard has not the size of the manifest",
                 "copy it again, or repair it if it was changed on purpose", "%llu bytes, not %llu",
                 (unsigned long long)check->reader.bytes, (unsigned long long)entry->bytes);
    } else {
        stk_fail(&cause, STOKER_ERROR_CORRUPT, "the shard has not the SHA-256 of the manifest",
                 "copy it again", "%s", "");
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
    check_suspects(check);
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

/* Whether the index has a checksum for each member, all of which were compared. */
static bool is_verified(const struct stk_shard_check *check)
{
    return check->verified ||
           (check->index_check.index && check->index_check.members && check->index_check.sums);
}

/* ---- members ---------------------------------------------------------------------------- */

/* A name that the loader refuses. */
static int find_bad_name(struct stk_shard_check *check, const struct stk_tar_step *step, int number,
                         const char *detail, struct stoker_error *error)
{
    struct stoker_error cause = {0};
    char text[256];
    int status;

    stk_wds_name_text(step->name, text, sizeof text);
    stk_fail(&cause, number, "a member's name is not fit for a key",
             "rename it where the tar is made; --repair leaves it out", "%s", detail);
    status = stk_shard_check_add_finding(check, STOKER_FINDING_NAME, &cause,
                                         &(struct stk_verify_spot){step->offset, text, ""}, error);
    check->sample = STK_SHARD_CHECK_NO_SAMPLE;
    return status < 0 ? status : keep_member(check, step, error);
}

static uint64_t extension_hash(const char *extension)
{
    return stk_mix64(stk_xxh3_64(extension, strlen(extension)));
}

/* The sample that the key names goes on, or a new one begins. */
static int join_sample(struct stk_shard_check *check, struct stk_view key, uint64_t offset,
                       struct stoker_error *error)
{
    struct stk_shard_check_sample *sample;
    struct stoker_error cause = {0};
    uint32_t last = check->sample, between;
    int status;

    if (last != STK_SHARD_CHECK_NO_SAMPLE) {
        struct stk_view current = stk_string_table_get(&check->keys, last);
        if (current.bytes == key.bytes && memcmp(current.data, key.data, key.bytes) == 0) {
            return 0;
        }
    }
    check->run_count = 0;
    status = add_sample(check, key, error);
    if (status != 0) {
        return status < 0 ? status : 0; /* 1: new */
    }
    sample = &check->samples[check->sample];
    between = check->member_count - sample->last_member - 1;
    if (between <= check->verify->options.member_gap_max ||
        (sample->flags & STK_CHECK_SAMPLE_SCATTERED)) {
        return 0;
    }
    sample->flags |= STK_CHECK_SAMPLE_SCATTERED | STK_CHECK_SAMPLE_BAD;
    stk_fail(&cause, STOKER_ERROR_SCATTERED, "a key comes again after other samples",
             "sort the members by key where the tar is made, or raise join_distance",
             "%u members lie between", between);
    return stk_shard_check_add_finding(
        check, STOKER_FINDING_SCATTERED, &cause,
        &(struct stk_verify_spot){offset, check->member.key, check->member.extension}, error);
}

/* 1: the key is new. */
static int add_sample(struct stk_shard_check *check, struct stk_view key,
                      struct stoker_error *error)
{
    uint32_t count = check->keys.count, number;
    struct stk_shard_check_sample *samples =
        grow(check->samples, count, &check->sample_capacity, sizeof *samples);

    if (!samples) {
        return fail_memory(error);
    }
    check->samples = samples;
    if (stk_string_table_add(&check->keys, key, STK_SHARD_CHECK_NO_SAMPLE >> 2, &number) < 0) {
        return fail_memory(error);
    }
    check->sample = number;
    if (number < count) {
        return 0;
    }
    samples[number] = (struct stk_shard_check_sample){.last_member = check->member_count};
    if (check->suspects_remaining > 0) {
        check->suspects_remaining--;
        samples[number].flags = STK_CHECK_SAMPLE_SUSPECT;
    }
    return 1;
}

/* Whether the sample has a member with this extension already; notes that it has one now. */
static int is_duplicate(struct stk_shard_check *check, uint64_t hash, bool *twin_out)
{
    struct {
        uint64_t sample, extension;
    } word = {check->sample, hash};
    uint32_t before = check->extra_extensions.count, number = 0;
    bool full = check->run_count == STK_SHARD_CHECK_EXTENSIONS_MAX;

    *twin_out = false;
    for (uint32_t i = 0; i < check->run_count && !*twin_out; i++) {
        *twin_out = check->run[i] == hash;
    }
    if (*twin_out) {
        return 0;
    }
    if (!full) {
        check->run[check->run_count++] = hash;
    }
    if (!full && check->verify->options.member_gap_max == 0) {
        return 0;
    }
    if (stk_string_table_add(&check->extra_extensions,
                             (struct stk_view){(const uint8_t *)&word, sizeof word}, 1u << 30,
                             &number) < 0) {
        return -ENOMEM;
    }
    *twin_out = number < before;
    return 0;
}

/* The sample's extensions are each there once. */
static int add_extension(struct stk_shard_check *check, uint64_t offset, struct stoker_error *error)
{
    struct stk_shard_check_sample *sample = &check->samples[check->sample];
    uint64_t hash = extension_hash(check->member.extension);
    struct stoker_error cause = {0};
    bool twin;

    if (is_duplicate(check, hash, &twin) < 0) {
        return fail_memory(error);
    }
    if (!twin) {
        sample->shape += hash;
        return 0;
    }
    sample->flags |= STK_CHECK_SAMPLE_BAD;
    stk_fail(&cause, STOKER_ERROR_CORRUPT, "the sample has two members with one extension",
             "keep one of them where the tar is made", "extension '%s'", check->member.extension);
    return stk_shard_check_add_finding(
        check, STOKER_FINDING_DUPLICATE, &cause,
        &(struct stk_verify_spot){offset, check->member.key, check->member.extension}, error);
}

static void copy_text(char *to, size_t capacity, struct stk_view text)
{
    size_t bytes = stk_min(text.bytes, capacity - 1);

    memcpy(to, text.data, bytes);
    to[bytes] = '\0';
}

int stk_shard_check_begin_member(struct stk_shard_check *check, const struct stk_tar_step *step,
                                 struct stoker_error *error)
{
    struct stk_view key, extension;
    const char *refusal = stk_wds_name_error(step->name);
    int status;

    memset(&check->member, 0, sizeof check->member);
    check->member.header = step->header;
    check->member.offset = step->offset;
    check->member.bytes = step->bytes;
    check->member.open = true;
    if (step->type != '0') {
        return 0;
    }
    if (refusal) {
        return find_bad_name(check, step, STOKER_ERROR_CORRUPT, refusal, error);
    }
    if (!stk_wds_name_split(step->name, &key, &extension)) {
        return 0;
    }
    if (key.bytes > check->verify->options.key_bytes_max) {
        return find_bad_name(check, step, STOKER_ERROR_LIMIT,
                             "the key is longer than key_bytes_max", error);
    }
    copy_text(check->member.key, sizeof check->member.key, key);
    copy_text(check->member.extension, sizeof check->member.extension, extension);
    for (char *at = check->member.extension; *at; at++) {
        *at = *at >= 'A' && *at <= 'Z' ? (char)(*at + ('a' - 'A')) : *at;
    }
    if (strcmp(check->member.extension, "__key__") == 0) {
        return find_bad_name(check, step, STOKER_ERROR_CORRUPT,
                             "the extension '__key__' stands for the key", error);
    }
    check->member.keyed = true;
    check->member.picture = stk_verify_is_picture(check->member.extension);
    status = stk_index_check_member(check, key, check->member.extension, step->offset, step->bytes,
                                    error);
    check->member.summing = check->index_check.summed;
    status = status < 0 ? status : join_sample(check, key, step->offset, error);
    status = status < 0 ? status : add_extension(check, step->offset, error);
    if (status == 0) {
        bool extended = step->offset - step->header > HEADER_BYTES;

        check->samples[check->sample].flags |=
            check->follows_damage && !extended ? STK_CHECK_SAMPLE_RENAMED : 0;
        check->extended |= extended;
        check->follows_damage = false;
        check->samples[check->sample].last_member = check->member_count++;
        if (check->unverified_stream && check->unverified_stream == check->streams &&
            !is_verified(check)) {
            check->samples[check->sample].flags |= STK_CHECK_SAMPLE_BAD;
        }
        status = keep_member(check, step, error);
    }
    return status;
}

/* Room for a member that does not lie in one block. */
static int keep_bytes(struct stk_shard_check *check, struct stoker_error *error)
{
    struct stoker_engine *engine = check->verify->engine;
    uint64_t bytes = stk_round_up(check->member.bytes, STK_IO_ALIGN);
    int status;

    if (bytes <= check->kept_data_bytes) {
        return 0;
    }
    if (check->kept_data) {
        stk_pages_free(check->kept_data, check->kept_data_bytes);
        stk_budget_release(&engine->budget, check->kept_data_bytes);
        check->kept_data = NULL;
        check->kept_data_bytes = 0;
    }
    status = stk_engine_reserve(engine, bytes, engine->options.read_timeout_ms, "a member's bytes",
                                error);
    if (status < 0) {
        return status;
    }
    check->kept_data = stk_pages_alloc(bytes);
    if (!check->kept_data) {
        stk_budget_release(&engine->budget, bytes);
        return fail_memory(error);
    }
    check->kept_data_bytes = bytes;
    return 0;
}

static void mark_bad(struct stk_shard_check *check)
{
    if (check->member.keyed && check->sample != STK_SHARD_CHECK_NO_SAMPLE) {
        check->samples[check->sample].flags |= STK_CHECK_SAMPLE_BAD;
    }
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
        mark_bad(check);
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
    mark_bad(check);
    stk_fail(&cause, STOKER_ERROR_LIMIT, "a picture's file is too large to be looked at",
             "look what it is, or leave it out", "%llu bytes",
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
        return fail_memory(error);
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
    mark_bad(check);
    stk_fail(&cause, STOKER_ERROR_CORRUPT, "the member's checksum is not the index's",
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
    if (check->member.bytes > KEPT_BYTES_MAX) {
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
        memcpy(check->kept_data + check->member.held, piece.data, piece.bytes);
        check->member.held += piece.bytes;
    }
    return status;
}

int stk_shard_check_end_member(struct stk_shard_check *check, bool whole,
                               struct stoker_error *error)
{
    struct stoker_error cause = {0};
    int status;

    check->member.open = false;
    if (whole) {
        struct stk_view bytes = {check->kept_data, check->member.held};

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
    mark_bad(check);
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

int stk_shard_check_cut_member(struct stk_shard_check *check, uint64_t to,
                               struct stoker_error *error)
{
    check->member.open = false;
    if (check->sum) {
        (void)stk_xxh3_done(check->sum);
    }
    mark_bad(check);
    if (check->members_kept > 0) { /* what lies behind the gap is none of it */
        struct stk_shard_check_member *member = &check->members[check->members_kept - 1];

        member->end = stk_min(member->end, to);
    }
    return stk_shard_check_add_range(check, check->member.header, to, false, error);
}

void stk_shard_check_add_doubt(struct stk_shard_check *check, uint64_t from, uint64_t to,
                               enum stk_shard_doubt doubt)
{
    bool kept = doubt == STK_SHARD_DOUBT_UNVERIFIED ||
                (doubt == STK_SHARD_DOUBT_CHECKSUM && check->verify->options.keep_unverified);

    check->checksum_failed |= from < to && doubt != STK_SHARD_DOUBT_UNVERIFIED;
    if (is_verified(check)) {
        return;
    }
    for (uint32_t i = check->members_kept; i-- > 0 && check->members[i].end > from;) {
        uint32_t number = check->members[i].sample;
        struct stk_shard_check_sample *sample =
            number == STK_SHARD_CHECK_NO_SAMPLE ? NULL : &check->samples[number];

        if (sample && check->members[i].header < to &&
            (sample->flags & STK_CHECK_SAMPLE_NO_CHECKSUM)) {
            sample->flags |= kept ? STK_CHECK_SAMPLE_UNVERIFIED : STK_CHECK_SAMPLE_BAD;
        }
    }
}

/* Damage in the tar came with the packed stream, or was there before it was packed: the stream's
 * checksum will tell (over_gap). Where it has none, all that follows in it may be made of what is
 * wrong. */
static void mark_damaged_stream(struct stk_shard_check *check, uint64_t at)
{
    if (!check->is_compressed || check->damaged_stream == check->streams) {
        return;
    }
    check->damaged_stream = check->streams;
    check->damaged_at = at;
    check->unverified_stream = check->no_checksum ? check->streams : 0;
}

int stk_shard_check_padding(struct stk_shard_check *check, uint64_t offset, uint64_t bytes,
                            struct stoker_error *error)
{
    struct stoker_error cause = {0};
    int status;

    stk_fail(&cause, STOKER_ERROR_CORRUPT, "the padding after a member is not zero",
             "the storage may have changed more than this: compare with another copy", "%llu bytes",
             (unsigned long long)bytes);
    if (check->is_compressed && check->no_checksum && !is_verified(check)) {
        mark_bad(check);
    }
    mark_damaged_stream(check, offset);
    status = stk_shard_check_add_finding(
        check, STOKER_FINDING_PADDING, &cause,
        &(struct stk_verify_spot){offset, check->member.key, check->member.extension}, error);
    return status < 0 ? status
                      : stk_shard_check_add_range(check, offset, offset + bytes, true, error);
}

int stk_shard_check_add_damage(struct stk_shard_check *check, uint32_t kind,
                               struct stoker_error *cause, uint64_t from, uint64_t to,
                               struct stoker_error *error)
{
    char text[64] = ", and the rest is lost";

    if (kind != STOKER_FINDING_END && kind != STOKER_FINDING_PACKING) {
        if (to != UINT64_MAX) {
            snprintf(text, sizeof text, ", and %llu bytes are lost with it",
                     (unsigned long long)(to - from));
        }
        strncat(cause->what, text, sizeof cause->what - strlen(cause->what) - 1);
    }
    if (check->keys.count > 0 && check->sample != STK_SHARD_CHECK_NO_SAMPLE) {
        /* In a packed stream what is wrong may begin before it shows. */
        check->samples[check->sample].flags |= check->is_compressed && !is_verified(check)
                                                   ? STK_CHECK_SAMPLE_BAD
                                                   : STK_CHECK_SAMPLE_SUSPECT;
    }
    if (kind != STOKER_FINDING_PACKING) {
        mark_damaged_stream(check, from);
    }
    check->suspects_remaining = SUSPECTS;
    check->follows_damage = true;
    check->sample = STK_SHARD_CHECK_NO_SAMPLE;
    check->run_count = 0;
    return stk_shard_check_add_finding(check, kind, cause,
                                       &(struct stk_verify_spot){from, NULL, ""}, error) < 0
               ? error->status
               : stk_shard_check_add_range(check, from, to, false, error);
}

/* A sample beside damage may have lost members. It is taken for whole if it has the extensions
 * that most samples of the shard have (majority by Boyer and Moore, 1981), and was not given its
 * name by a header that is lost. */
static void check_suspects(struct stk_shard_check *check)
{
    uint64_t shape = 0, votes = 0, count = 0, whole = 0;

    for (uint32_t i = 0; i < check->keys.count; i++) {
        const struct stk_shard_check_sample *sample = &check->samples[i];

        if (!(sample->flags & STK_CHECK_SAMPLE_DAMAGED)) {
            shape = votes == 0 ? sample->shape : shape;
            votes = sample->shape == shape ? votes + 1 : votes - 1;
            whole++;
        }
    }
    /* One is left also where none has most. */
    for (uint32_t i = 0; i < check->keys.count; i++) {
        count += !(check->samples[i].flags & STK_CHECK_SAMPLE_DAMAGED) &&
                 check->samples[i].shape == shape;
    }
    for (uint32_t i = 0; i < check->keys.count; i++) {
        struct stk_shard_check_sample *sample = &check->samples[i];

        if ((sample->flags & STK_CHECK_SAMPLE_SUSPECT) &&
            (2 * count <= whole || sample->shape != shape)) {
            sample->flags |= STK_CHECK_SAMPLE_BAD;
        }
        if ((sample->flags & STK_CHECK_SAMPLE_RENAMED) && check->extended) {
            sample->flags |= STK_CHECK_SAMPLE_BAD;
        }
    }
}

/* ---- for repair ------------------------------------------------------------------------- */

/* Room for one more of `count`; NULL: no memory, and the block is as it was. */
static void *grow(void *block, uint32_t count, uint32_t *capacity, size_t item_bytes)
{
    uint32_t more = count < UINT32_MAX / 4 ? stk_max(2 * count, 64) : 0;

    if (count < *capacity) {
        return block;
    }
    block = more ? stk_realloc(block, count, more, item_bytes) : NULL;
    *capacity = block ? more : *capacity;
    return block;
}

static int keep_member(struct stk_shard_check *check, const struct stk_tar_step *step,
                       struct stoker_error *error)
{
    struct stk_shard_check_member *members;

    if (!check->verify->options.repair) {
        return 0;
    }
    members = grow(check->members, check->members_kept, &check->member_capacity, sizeof *members);
    if (!members) {
        return fail_memory(error);
    }
    check->members = members;
    members[check->members_kept++] = (struct stk_shard_check_member){
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
    ranges = grow(check->ranges, check->range_count, &check->range_capacity, sizeof *ranges);
    if (!ranges) {
        return fail_memory(error);
    }
    check->ranges = ranges;
    ranges[check->range_count++] = (struct stk_repair_range){offset, end, zero};
    return 0;
}

/* ---- files of a folder ------------------------------------------------------------------ */

/* What an index says of the file: its key, its class, its checksum. */
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
        status = stk_fail(&cause, STOKER_ERROR_CHANGED,
                          "the index says something else of this file", "index it again",
                          "class %lld, not %lld", (long long)index_check->current.label,
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
    const char *path = object_path(verify, object), *dot = strrchr(path, '.');
    struct stk_view block = {0};
    int status;

    check->broken = false;
    if (check->sum) {
        (void)stk_xxh3_done(check->sum); /* of a file that could not be read to its end */
    }
    status = start(check, object, error);
    memset(&check->member, 0, sizeof check->member);
    if (status != 0) {
        return status < 0 ? status : 0;
    }
    check->member.picture = true;
    check->member.bytes = check->reader.bytes;
    copy_text(check->member.key, sizeof check->member.key,
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
