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
#define HOLD_BYTES_MAX (1ull << 30)

static int add_sample(struct stk_check *check, struct stk_view key, struct stoker_error *error);
static int keep_member(struct stk_check *check, const struct stk_tar_step *step,
                       struct stoker_error *error);
static void *grow(void *block, uint32_t count, uint32_t *capacity, size_t item_bytes);
static void judge_suspects(struct stk_check *check);

static int fail_memory(struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "cannot verify", "free memory", "samples of a shard");
}

void stk_check_init(struct stk_check *check, struct stoker_verify *verify,
                    struct stk_findings *findings)
{
    *check = (struct stk_check){.verify = verify, .findings = findings, .sample = STK_NO_SAMPLE};
    stk_reader_init(&check->reader, verify->engine);
}

void stk_check_deinit(struct stk_check *check)
{
    stk_reader_deinit(&check->reader);
    stk_codec_close(check->codec);
    stk_sum_close(check->sum);
    stk_words_deinit(&check->keys);
    stk_words_deinit(&check->more);
    stk_free(check->samples);
    stk_free(check->members);
    stk_free(check->ranges);
    if (check->hold) {
        stk_pages_free(check->hold, check->hold_bytes);
        stk_budget_release(&check->verify->engine->budget, check->hold_bytes);
    }
}

int stk_check_find(struct stk_check *check, uint32_t kind, struct stoker_error *found,
                   const struct stk_spot *spot, struct stoker_error *error)
{
    if (spot && found->offset == STOKER_NO_OFFSET) {
        found->offset = spot->offset;
    }
    if (spot && spot->key && !found->key[0]) {
        snprintf(found->key, sizeof found->key, "%s", spot->key);
    }
    snprintf(found->shard, sizeof found->shard, "%s", check->path);
    check->damage += !stk_finding_is_note(kind) && kind != STOKER_FINDING_INDEX;
    return stk_verify_find(check->verify, check->findings, kind, found,
                           spot ? spot->extension : "") < 0
               ? fail_memory(error)
               : 0;
}

static const char *object_path(const struct stoker_verify *verify, uint64_t object)
{
    return verify->objects.text + verify->objects.paths[object];
}

/* Opens the object; 1: it cannot be read, which is told. */
static int start(struct stk_check *check, uint64_t object, struct stoker_error *error)
{
    struct stoker_error found = {0};
    int status;

    check->path = object_path(check->verify, object);
    status = stk_reader_start(&check->reader, check->path, &found);
    if (status == 0) {
        return 0;
    }
    if (stk_verify_is_ours(status)) {
        *error = found;
        return status;
    }
    check->broken = true;
    found.offset = STOKER_NO_OFFSET;
    status = stk_check_find(check, STOKER_FINDING_UNREADABLE, &found, NULL, error);
    return status < 0 ? status : 1;
}

/* The bytes against the manifest's entry, or without one against the index. */
static int compare_digest(struct stk_check *check, const struct stk_manifest_shard *entry,
                          struct stoker_error *error)
{
    struct stoker_error found = {0};
    uint8_t digest[32];

    stk_sha256_done(check->sha, digest);
    if (!entry && memcmp(digest, check->known.digest, sizeof digest) != 0) {
        stk_fail(&found, STOKER_ERROR_CORRUPT, "the shard has not the SHA-256 of the index",
                 "copy it again, or index it again if it was changed on purpose", "%s", "");
    } else if (!entry || (check->reader.bytes == entry->bytes &&
                          memcmp(digest, entry->sha256, sizeof digest) == 0)) {
        return 0;
    } else if (check->reader.bytes != entry->bytes) {
        stk_fail(&found, STOKER_ERROR_CHANGED, "the shard has not the size of the manifest",
                 "copy it again, or repair it if it was changed on purpose", "%llu bytes, not %llu",
                 (unsigned long long)check->reader.bytes, (unsigned long long)entry->bytes);
    } else {
        stk_fail(&found, STOKER_ERROR_CORRUPT, "the shard has not the SHA-256 of the manifest",
                 "copy it again", "%s", "");
    }
    return stk_check_find(check, STOKER_FINDING_DIGEST, &found, NULL, error);
}

int stk_check_shard(struct stk_check *check, uint64_t object, struct stoker_error *error)
{
    const struct stk_manifest_shard *entry = stk_roots_entry(check->verify, object);
    struct stk_sha256 sha;
    int status = start(check, object, error);

    if (status != 0) {
        return status < 0 ? status : 0;
    }
    stk_known_init(&check->known, check->verify, object);
    status = stk_known_size(check, check->reader.bytes, error);
    if (entry || check->known.digest) {
        stk_sha256_init(&sha);
        check->sha = &sha;
    }
    check->cut = true;
    status = status < 0 ? status : stk_walk(check, error);
    judge_suspects(check);
    status = status < 0 ? status : stk_known_end(check, error);
    if (status == 0 && check->sha && !check->broken && (entry || check->known.digest)) {
        status = compare_digest(check, entry, error);
    }
    check->sha = NULL;
    atomic_fetch_add_explicit(&check->verify->count.samples, check->keys.count,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&check->verify->count.members, check->member_count,
                              memory_order_relaxed);
    stk_reader_stop(&check->reader);
    if (status == 0 && check->damage > 0 && check->verify->options.repair) {
        status = stk_repair_shard(check, object, error);
    }
    return status;
}

/* Whether the index has a checksum for each member, all of which were compared. */
static bool is_proved(const struct stk_check *check)
{
    return check->proved || (check->known.index && check->known.members && check->known.sums);
}

/* ---- members ---------------------------------------------------------------------------- */

/* A name that the loader refuses. */
static int refuse_name(struct stk_check *check, const struct stk_tar_step *step, int number,
                       const char *detail, struct stoker_error *error)
{
    struct stoker_error found = {0};
    char text[256];
    int status;

    stk_name_text(step->name, text, sizeof text);
    stk_fail(&found, number, "a member's name is not fit for a key",
             "rename it where the tar is made; --repair leaves it out", "%s", detail);
    status = stk_check_find(check, STOKER_FINDING_NAME, &found,
                            &(struct stk_spot){step->offset, text, ""}, error);
    check->sample = STK_NO_SAMPLE;
    return status < 0 ? status : keep_member(check, step, error);
}

static uint64_t extension_hash(const char *extension)
{
    return stk_mix(stk_sum64(extension, strlen(extension)));
}

/* The sample that the key names goes on, or a new one begins. */
static int join_sample(struct stk_check *check, struct stk_view key, uint64_t offset,
                       struct stoker_error *error)
{
    struct stk_check_sample *sample;
    struct stoker_error found = {0};
    uint32_t last = check->sample, between;
    int status;

    if (last != STK_NO_SAMPLE) {
        struct stk_view current = stk_words_at(&check->keys, last);
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
    if (between <= check->verify->options.join_distance || (sample->flags & STK_SAMPLE_SCATTERED)) {
        return 0;
    }
    sample->flags |= STK_SAMPLE_SCATTERED | STK_SAMPLE_BAD;
    stk_fail(&found, STOKER_ERROR_SCATTERED, "a key comes again after other samples",
             "sort the members by key where the tar is made, or raise join_distance",
             "%u members lie between", between);
    return stk_check_find(check, STOKER_FINDING_SCATTERED, &found,
                          &(struct stk_spot){offset, check->member.key, check->member.extension},
                          error);
}

/* 1: the key is new. */
static int add_sample(struct stk_check *check, struct stk_view key, struct stoker_error *error)
{
    uint32_t count = check->keys.count, number;
    struct stk_check_sample *samples =
        grow(check->samples, count, &check->sample_capacity, sizeof *samples);

    if (!samples) {
        return fail_memory(error);
    }
    check->samples = samples;
    if (stk_words_intern(&check->keys, key, STK_NO_SAMPLE >> 2, &number) < 0) {
        return fail_memory(error);
    }
    check->sample = number;
    if (number < count) {
        return 0;
    }
    samples[number] = (struct stk_check_sample){.last_member = check->member_count};
    if (check->suspects_left > 0) {
        check->suspects_left--;
        samples[number].flags = STK_SAMPLE_SUSPECT;
    }
    return 1;
}

/* Whether the sample has a member with this extension already; notes that it has one now. */
static int is_twin(struct stk_check *check, uint64_t hash, bool *twin_out)
{
    struct {
        uint64_t sample, extension;
    } word = {check->sample, hash};
    uint32_t before = check->more.count, number = 0;
    bool full = check->run_count == STK_RUN_EXTENSIONS_MAX;

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
    if (!full && check->verify->options.join_distance == 0) {
        return 0;
    }
    if (stk_words_intern(&check->more, (struct stk_view){(const uint8_t *)&word, sizeof word},
                         1u << 30, &number) < 0) {
        return -ENOMEM;
    }
    *twin_out = number < before;
    return 0;
}

/* The sample's extensions are each there once. */
static int add_extension(struct stk_check *check, uint64_t offset, struct stoker_error *error)
{
    struct stk_check_sample *sample = &check->samples[check->sample];
    uint64_t hash = extension_hash(check->member.extension);
    struct stoker_error found = {0};
    bool twin;

    if (is_twin(check, hash, &twin) < 0) {
        return fail_memory(error);
    }
    if (!twin) {
        sample->shape += hash;
        return 0;
    }
    sample->flags |= STK_SAMPLE_BAD;
    stk_fail(&found, STOKER_ERROR_CORRUPT, "the sample has two members with one extension",
             "keep one of them where the tar is made", "extension '%s'", check->member.extension);
    return stk_check_find(check, STOKER_FINDING_DUPLICATE, &found,
                          &(struct stk_spot){offset, check->member.key, check->member.extension},
                          error);
}

static void copy_text(char *to, size_t capacity, struct stk_view text)
{
    size_t bytes = stk_min(text.bytes, capacity - 1);

    memcpy(to, text.data, bytes);
    to[bytes] = '\0';
}

int stk_check_begin(struct stk_check *check, const struct stk_tar_step *step,
                    struct stoker_error *error)
{
    struct stk_view key, extension;
    const char *refusal = stk_name_refusal(step->name);
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
        return refuse_name(check, step, STOKER_ERROR_CORRUPT, refusal, error);
    }
    if (!stk_wds_split(step->name, &key, &extension)) {
        return 0;
    }
    if (key.bytes > check->verify->options.key_bytes_max) {
        return refuse_name(check, step, STOKER_ERROR_LIMIT, "the key is longer than key_bytes_max",
                           error);
    }
    copy_text(check->member.key, sizeof check->member.key, key);
    copy_text(check->member.extension, sizeof check->member.extension, extension);
    for (char *at = check->member.extension; *at; at++) {
        *at = *at >= 'A' && *at <= 'Z' ? (char)(*at + ('a' - 'A')) : *at;
    }
    if (strcmp(check->member.extension, "__key__") == 0) {
        return refuse_name(check, step, STOKER_ERROR_CORRUPT,
                           "the extension '__key__' stands for the key", error);
    }
    check->member.keyed = true;
    check->member.picture = stk_verify_is_picture(check->member.extension);
    status =
        stk_known_member(check, key, check->member.extension, step->offset, step->bytes, error);
    check->member.summing = check->known.summed;
    status = status < 0 ? status : join_sample(check, key, step->offset, error);
    status = status < 0 ? status : add_extension(check, step->offset, error);
    if (status == 0) {
        bool extended = step->offset - step->header > HEADER_BYTES;

        check->samples[check->sample].flags |= check->behind && !extended ? STK_SAMPLE_RENAMED : 0;
        check->extended |= extended;
        check->behind = false;
        check->samples[check->sample].last_member = check->member_count++;
        if (check->doubted_stream && check->doubted_stream == check->streams && !is_proved(check)) {
            check->samples[check->sample].flags |= STK_SAMPLE_BAD;
        }
        status = keep_member(check, step, error);
    }
    return status;
}

/* Room for a member that does not lie in one block. */
static int hold(struct stk_check *check, struct stoker_error *error)
{
    struct stoker_engine *engine = check->verify->engine;
    uint64_t bytes = stk_round_up(check->member.bytes, STK_IO_ALIGN);
    int status;

    if (bytes <= check->hold_bytes) {
        return 0;
    }
    if (check->hold) {
        stk_pages_free(check->hold, check->hold_bytes);
        stk_budget_release(&engine->budget, check->hold_bytes);
        check->hold = NULL;
        check->hold_bytes = 0;
    }
    status = stk_engine_reserve(engine, bytes, engine->options.read_timeout_ms, "a member's bytes",
                                error);
    if (status < 0) {
        return status;
    }
    check->hold = stk_pages_alloc(bytes);
    if (!check->hold) {
        stk_budget_release(&engine->budget, bytes);
        return fail_memory(error);
    }
    check->hold_bytes = bytes;
    return 0;
}

static void mark_bad(struct stk_check *check)
{
    if (check->member.keyed && check->sample != STK_NO_SAMPLE) {
        check->samples[check->sample].flags |= STK_SAMPLE_BAD;
    }
}

static int look_at_picture(struct stk_check *check, struct stk_view bytes,
                           struct stoker_error *error)
{
    struct stoker_error found = {0};
    uint32_t kind = 0;
    int status = stk_verify_picture(check->verify, &check->codec, bytes, check->member.extension,
                                    &kind, &found);

    if (status <= 0) {
        check->member.sealed = status == 0 && stk_verify_is_sealed(bytes);
        if (status < 0) {
            *error = found;
        }
        return status;
    }
    if (kind != STOKER_FINDING_MISNAMED) {
        mark_bad(check);
    }
    found.offset = STOKER_NO_OFFSET;
    return stk_check_find(
        check, kind, &found,
        &(struct stk_spot){check->member.offset, check->member.key, check->member.extension},
        error);
}

static int refuse_size(struct stk_check *check, struct stoker_error *error)
{
    struct stoker_error found = {0};

    check->member.picture = false;
    mark_bad(check);
    stk_fail(&found, STOKER_ERROR_LIMIT, "a picture's file is too large to be looked at",
             "look what it is, or leave it out", "%llu bytes",
             (unsigned long long)check->member.bytes);
    return stk_check_find(
        check, STOKER_FINDING_PICTURE, &found,
        &(struct stk_spot){check->member.offset, check->member.key, check->member.extension},
        error);
}

static int add_sum(struct stk_check *check, struct stk_view piece, struct stoker_error *error)
{
    if (piece.bytes == check->member.bytes) {
        check->member.sum = stk_sum64(piece.data, piece.bytes);
        check->member.summed = true;
        return 0;
    }
    check->sum = check->sum ? check->sum : stk_sum_open();
    if (!check->sum) {
        return fail_memory(error);
    }
    stk_sum_add(check->sum, piece.data, piece.bytes);
    return 0;
}

static int compare_sum(struct stk_check *check, struct stoker_error *error)
{
    struct stoker_error found = {0};

    if (!check->member.summed) {
        check->member.sum = check->member.bytes ? stk_sum_done(check->sum) : stk_sum64("", 0);
    }
    if (check->member.sum == check->known.sum) {
        return 0;
    }
    mark_bad(check);
    stk_fail(&found, STOKER_ERROR_CORRUPT, "the member's checksum is not the index's",
             "copy the shard again, or leave the sample out (--repair)", "%llu bytes",
             (unsigned long long)check->member.bytes);
    return stk_check_find(
        check, STOKER_FINDING_CHECKSUM, &found,
        &(struct stk_spot){check->member.offset, check->member.key, check->member.extension},
        error);
}

int stk_check_data(struct stk_check *check, struct stk_view piece, struct stoker_error *error)
{
    int status = check->member.summing ? add_sum(check, piece, error) : 0;

    if (!check->member.picture || status < 0) {
        return status;
    }
    if (check->member.bytes > HOLD_BYTES_MAX) {
        return refuse_size(check, error);
    }
    if (check->member.held == 0 && piece.bytes == check->member.bytes) {
        check->member.picture = false;
        return look_at_picture(check, piece, error);
    }
    if (check->member.held == 0) {
        status = hold(check, error);
    }
    if (status == 0) {
        memcpy(check->hold + check->member.held, piece.data, piece.bytes);
        check->member.held += piece.bytes;
    }
    return status;
}

int stk_check_end(struct stk_check *check, bool whole, struct stoker_error *error)
{
    struct stoker_error found = {0};
    int status;

    check->member.open = false;
    if (whole) {
        struct stk_view bytes = {check->hold, check->member.held};

        status = check->member.summing ? compare_sum(check, error) : 0;
        if (status == 0 && check->member.picture) {
            status = look_at_picture(check, bytes, error);
        }
        if (check->member.keyed && check->sample != STK_NO_SAMPLE && !check->member.sealed) {
            check->samples[check->sample].flags |= STK_SAMPLE_OPEN;
        }
        return status;
    }
    if (check->sum) {
        (void)stk_sum_done(check->sum);
    }
    mark_bad(check);
    stk_fail(&found, STOKER_ERROR_TRUNCATED, "the shard ends inside a member",
             "copy the shard again", "it has %llu bytes", (unsigned long long)check->member.bytes);
    status = stk_check_find(
        check, STOKER_FINDING_END, &found,
        &(struct stk_spot){check->member.offset, check->member.key, check->member.extension},
        error);
    return status < 0 ? status
                      : stk_check_keep_range(check, check->member.header, UINT64_MAX, false, error);
}

int stk_check_cut(struct stk_check *check, uint64_t to, struct stoker_error *error)
{
    check->member.open = false;
    if (check->sum) {
        (void)stk_sum_done(check->sum);
    }
    mark_bad(check);
    if (check->members_kept > 0) { /* what lies behind the gap is none of it */
        struct stk_check_member *member = &check->members[check->members_kept - 1];

        member->end = stk_min(member->end, to);
    }
    return stk_check_keep_range(check, check->member.header, to, false, error);
}

void stk_check_doubt(struct stk_check *check, uint64_t from, uint64_t to, enum stk_doubt doubt)
{
    bool kept = doubt == STK_DOUBT_UNPROVEN ||
                (doubt == STK_DOUBT_SUM && check->verify->options.keep_unproven);

    check->doubted |= from < to && doubt != STK_DOUBT_UNPROVEN;
    if (is_proved(check)) {
        return;
    }
    for (uint32_t i = check->members_kept; i-- > 0 && check->members[i].end > from;) {
        uint32_t number = check->members[i].sample;
        struct stk_check_sample *sample = number == STK_NO_SAMPLE ? NULL : &check->samples[number];

        if (sample && check->members[i].header < to && (sample->flags & STK_SAMPLE_OPEN)) {
            sample->flags |= kept ? STK_SAMPLE_UNPROVEN : STK_SAMPLE_BAD;
        }
    }
}

/* Damage in the tar came with the packed stream, or was there before it was packed: the stream's
 * checksum will tell (over_gap). Where it has none, all that follows in it may be made of what is
 * wrong. */
static void hurt_stream(struct stk_check *check, uint64_t at)
{
    if (!check->packed || check->hurt_stream == check->streams) {
        return;
    }
    check->hurt_stream = check->streams;
    check->hurt_at = at;
    check->doubted_stream = check->unsummed ? check->streams : 0;
}

int stk_check_padding(struct stk_check *check, uint64_t offset, uint64_t bytes,
                      struct stoker_error *error)
{
    struct stoker_error found = {0};
    int status;

    stk_fail(&found, STOKER_ERROR_CORRUPT, "the padding after a member is not zero",
             "the storage may have changed more than this: compare with another copy", "%llu bytes",
             (unsigned long long)bytes);
    if (check->packed && check->unsummed && !is_proved(check)) {
        mark_bad(check);
    }
    hurt_stream(check, offset);
    status = stk_check_find(check, STOKER_FINDING_PADDING, &found,
                            &(struct stk_spot){offset, check->member.key, check->member.extension},
                            error);
    return status < 0 ? status : stk_check_keep_range(check, offset, offset + bytes, true, error);
}

int stk_check_damage(struct stk_check *check, uint32_t kind, struct stoker_error *found,
                     uint64_t from, uint64_t to, struct stoker_error *error)
{
    char text[64] = ", and the rest is lost";

    if (kind != STOKER_FINDING_END && kind != STOKER_FINDING_PACKING) {
        if (to != UINT64_MAX) {
            snprintf(text, sizeof text, ", and %llu bytes are lost with it",
                     (unsigned long long)(to - from));
        }
        strncat(found->what, text, sizeof found->what - strlen(found->what) - 1);
    }
    if (check->keys.count > 0 && check->sample != STK_NO_SAMPLE) {
        /* In a packed stream what is wrong may begin before it shows. */
        check->samples[check->sample].flags |=
            check->packed && !is_proved(check) ? STK_SAMPLE_BAD : STK_SAMPLE_SUSPECT;
    }
    if (kind != STOKER_FINDING_PACKING) {
        hurt_stream(check, from);
    }
    check->suspects_left = SUSPECTS;
    check->behind = true;
    check->sample = STK_NO_SAMPLE;
    check->run_count = 0;
    return stk_check_find(check, kind, found, &(struct stk_spot){from, NULL, ""}, error) < 0
               ? error->status
               : stk_check_keep_range(check, from, to, false, error);
}

/* A sample beside damage may have lost members. It is taken for whole if it has the extensions
 * that most samples of the shard have (majority by Boyer and Moore, 1981), and was not given its
 * name by a header that is lost. */
static void judge_suspects(struct stk_check *check)
{
    uint64_t shape = 0, votes = 0, count = 0, whole = 0;

    for (uint32_t i = 0; i < check->keys.count; i++) {
        const struct stk_check_sample *sample = &check->samples[i];

        if (!(sample->flags & STK_SAMPLE_HURT)) {
            shape = votes == 0 ? sample->shape : shape;
            votes = sample->shape == shape ? votes + 1 : votes - 1;
            whole++;
        }
    }
    /* One is left also where none has most. */
    for (uint32_t i = 0; i < check->keys.count; i++) {
        count += !(check->samples[i].flags & STK_SAMPLE_HURT) && check->samples[i].shape == shape;
    }
    for (uint32_t i = 0; i < check->keys.count; i++) {
        struct stk_check_sample *sample = &check->samples[i];

        if ((sample->flags & STK_SAMPLE_SUSPECT) &&
            (2 * count <= whole || sample->shape != shape)) {
            sample->flags |= STK_SAMPLE_BAD;
        }
        if ((sample->flags & STK_SAMPLE_RENAMED) && check->extended) {
            sample->flags |= STK_SAMPLE_BAD;
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

static int keep_member(struct stk_check *check, const struct stk_tar_step *step,
                       struct stoker_error *error)
{
    struct stk_check_member *members;

    if (!check->verify->options.repair) {
        return 0;
    }
    members = grow(check->members, check->members_kept, &check->member_capacity, sizeof *members);
    if (!members) {
        return fail_memory(error);
    }
    check->members = members;
    members[check->members_kept++] =
        (struct stk_check_member){step->header, stk_round_up(step->offset + step->bytes, 512),
                                  check->member.keyed ? check->sample : STK_NO_SAMPLE};
    return 0;
}

int stk_check_keep_range(struct stk_check *check, uint64_t offset, uint64_t end, bool zero,
                         struct stoker_error *error)
{
    struct stk_range *ranges;

    if (!check->verify->options.repair) {
        return 0;
    }
    ranges = grow(check->ranges, check->range_count, &check->range_capacity, sizeof *ranges);
    if (!ranges) {
        return fail_memory(error);
    }
    check->ranges = ranges;
    ranges[check->range_count++] = (struct stk_range){offset, end, zero};
    return 0;
}

/* ---- files of a folder ------------------------------------------------------------------ */

/* What an index says of the file: its key, its class, its checksum. */
static int file_known(struct stk_check *check, uint64_t object, struct stoker_error *error)
{
    const char *key = check->path + check->verify->objects.root_bytes;
    struct stk_known *known = &check->known;
    struct stoker_error found = {0};
    int status;

    if (!known->index) {
        return 0;
    }
    status = stk_index_sample(known->index, known->sample, &known->current, &found);
    if (status == 0 && (known->current.key.bytes != strlen(key) ||
                        memcmp(known->current.key.data, key, known->current.key.bytes) != 0 ||
                        known->current.label != check->verify->objects.classes[object])) {
        status =
            stk_fail(&found, STOKER_ERROR_CHANGED, "the index says something else of this file",
                     "index it again", "class %lld, not %lld", (long long)known->current.label,
                     (long long)check->verify->objects.classes[object]);
    }
    if (status == 0 && known->sums) {
        status = stk_index_checksum(known->index, &known->current, 0, &known->sum, &found);
    }
    check->member.summing = status == 0 && known->sums;
    return status < 0 ? stk_known_fail(check, &found, STOKER_NO_OFFSET, error) : 0;
}

int stk_check_file(struct stk_check *check, uint64_t object, struct stoker_error *error)
{
    struct stoker_verify *verify = check->verify;
    const char *path = object_path(verify, object), *dot = strrchr(path, '.');
    struct stk_view block = {0};
    int status;

    check->broken = false;
    if (check->sum) {
        (void)stk_sum_done(check->sum); /* of a file that could not be read to its end */
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
    stk_known_init(&check->known, verify, object);
    status = file_known(check, object, error);
    do {
        struct stoker_error found = {0};

        if (status < 0) {
            break;
        }

        status = stk_reader_next(&check->reader, &block, &found);
        if (status < 0 && !stk_verify_is_ours(status)) {
            check->member.picture = false;
            check->broken = true;
            status =
                stk_check_find(check, STOKER_FINDING_UNREADABLE, &found,
                               &(struct stk_spot){STOKER_NO_OFFSET, check->member.key, ""}, error);
            break;
        }
        if (status < 0) {
            *error = found;
            break;
        }
        if (block.bytes == 0) {
            break;
        }
        atomic_fetch_add_explicit(&check->verify->count.bytes, block.bytes, memory_order_relaxed);
        status = stk_check_data(check, block, error);
    } while (status == 0);
    if (status == 0 && !check->broken) {
        status = stk_check_end(check, true, error);
    }
    stk_reader_stop(&check->reader);
    atomic_fetch_add_explicit(&check->verify->count.samples, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&check->verify->count.members, 1, memory_order_relaxed);
    return status;
}
