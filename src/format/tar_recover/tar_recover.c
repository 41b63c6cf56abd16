/* Reads the members of a damaged tar in order, and finds the complete samples. */
#include "format/tar_recover/tar_recover.h"

#include "base/compare.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "format/tar/wds_name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 512, SUSPECTS = 2 /* new samples after damage that may lack members */ };

struct stk_tar_loss {
    struct stk_tar_loss *next;
    uint32_t shard;
    struct stk_bad_sample_list bad_samples;
};

/* The walk over one tar. */
struct walk {
    struct stk_tar_recover *rescue;
    const struct stk_tar_recover_source *source;
    struct stk_tar *tar;    /* owned */
    uint64_t base;          /* its start */
    uint8_t *window;        /* owned */
    uint64_t at;            /* of the window */
    size_t bytes;           /* in it */
    uint64_t requested_end; /* up to the last offset that the parser requested */
    uint64_t places;        /* of damage */
};

bool stk_tar_recover_is_possible(int status)
{
    return status == STOKER_ERROR_CORRUPT || status == STOKER_ERROR_TRUNCATED ||
           status == STOKER_ERROR_FORMAT || status == STOKER_ERROR_EMPTY;
}

void stk_tar_recover_deinit(struct stk_tar_recover *rescue)
{
    stk_free(rescue->members);
    stk_free(rescue->samples);
    stk_free(rescue->text);
    stk_bad_sample_list_deinit(&rescue->bad_samples);
    *rescue = (struct stk_tar_recover){0};
}

bool stk_tar_recover_is_intact(const struct stk_tar_recover *rescue, uint64_t member)
{
    uint32_t sample = rescue->members[member].sample;

    return sample == UINT32_MAX || !rescue->samples[sample].lost;
}

struct stk_view stk_tar_recover_name(const struct stk_tar_recover *rescue, uint64_t member)
{
    return (struct stk_view){(const uint8_t *)rescue->text + rescue->members[member].name_at,
                             rescue->members[member].name_bytes};
}

/* ---- members and samples ---- */

static uint64_t signature_of(struct stk_view extension)
{
    uint8_t lower[256];
    size_t bytes = stk_min(extension.bytes, sizeof lower);

    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = extension.data[i];
        lower[i] = (uint8_t)(byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte);
    }
    return stk_mix64(stk_xxh3_64(lower, bytes));
}

static bool is_key_of(const struct stk_tar_recover *rescue, uint64_t sample, struct stk_view key)
{
    const struct stk_tar_recover_sample *at = &rescue->samples[sample];

    return at->key_bytes == key.bytes &&
           memcmp(rescue->text + at->key_at, key.data, key.bytes) == 0;
}

/* The member's sample: the one in work, or a new one. False: no memory. */
static bool find_sample(struct stk_tar_recover *rescue, struct stk_tar_recover_member *member,
                        struct stk_view key)
{
    struct stk_tar_recover_sample *sample;

    if (rescue->sample_count == 0 || !is_key_of(rescue, rescue->sample_count - 1, key)) {
        void *samples = rescue->samples;

        if (stk_reserve(&samples, &rescue->sample_capacity, rescue->sample_count + 1,
                        sizeof *rescue->samples) < 0) {
            return false;
        }
        rescue->samples = samples;
        rescue->samples[rescue->sample_count++] =
            (struct stk_tar_recover_sample){.offset = member->offset,
                                            .key_at = member->name_at,
                                            .key_bytes = (uint32_t)key.bytes,
                                            .uncertain = rescue->suspects > 0};
        rescue->suspects -= rescue->suspects > 0;
    }
    sample = &rescue->samples[rescue->sample_count - 1];
    sample->uncertain = sample->uncertain || rescue->follows_damage; /* damage within it */
    member->sample = (uint32_t)(rescue->sample_count - 1);
    return true;
}

static int add_member(struct walk *walk, const struct stk_tar_step *step,
                      struct stoker_error *error)
{
    struct stk_tar_recover *rescue = walk->rescue;
    struct stk_tar_recover_member member = {.offset = walk->base + step->offset,
                                            .bytes = step->bytes,
                                            .name_at = (uint32_t)rescue->text_bytes,
                                            .name_bytes = (uint32_t)step->name.bytes,
                                            .sample = UINT32_MAX};
    struct stk_view key, extension;
    bool extended = step->offset - step->header > BLOCK_BYTES;
    void *members = rescue->members, *text = rescue->text;

    if (rescue->member_count >= STK_TAR_RECOVER_MEMBERS_MAX ||
        rescue->text_bytes + step->name.bytes > UINT32_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "a tar has too many members", "split it",
                        "'%.400s'", walk->source->path);
    }
    if (stk_reserve(&members, &rescue->member_capacity, rescue->member_count + 1,
                    sizeof *rescue->members) < 0) {
        return stk_fail_memory(error, "'%.400s'", walk->source->path);
    }
    rescue->members = members;
    if (stk_reserve(&text, &rescue->text_capacity, rescue->text_bytes + step->name.bytes, 1) < 0) {
        return stk_fail_memory(error, "'%.400s'", walk->source->path);
    }
    rescue->text = text;
    if (step->name.bytes > 0) {
        memcpy(rescue->text + rescue->text_bytes, step->name.data, step->name.bytes);
    }
    if (!stk_wds_name_error(step->name) && stk_wds_name_split(step->name, &key, &extension)) {
        if (!find_sample(rescue, &member, key)) {
            return stk_fail_memory(error, "'%.400s'", walk->source->path);
        }
        rescue->samples[member.sample].signature += signature_of(extension);
        rescue->samples[member.sample].renamed |= rescue->follows_damage && !extended;
    }
    rescue->extended |= extended;
    rescue->follows_damage = false;
    rescue->text_bytes += step->name.bytes;
    rescue->members[rescue->member_count++] = member;
    return 0;
}

/* ---- damage ---- */

/* Lists the damage, with a place; sample: whose key it gets, UINT64_MAX: no key. */
static int add_damage(struct walk *walk, struct stoker_error *found, uint64_t sample,
                      struct stoker_error *error)
{
    struct stk_tar_recover *rescue = walk->rescue;
    struct stk_bad_sample *damage;
    char key[sizeof found->key];
    uint64_t offset = found->offset;

    if (sample != UINT64_MAX) {
        const struct stk_tar_recover_sample *at = &rescue->samples[sample];

        snprintf(key, sizeof key, "%.*s", (int)stk_min(at->key_bytes, sizeof key - 1),
                 rescue->text + at->key_at);
        offset = offset == STOKER_NO_OFFSET ? at->offset : offset;
    }
    stk_error_set_location(found, walk->source->path, offset, sample != UINT64_MAX ? key : NULL);
    damage = stk_bad_sample_new(STOKER_NO_SAMPLE, found);
    if (!damage || stk_bad_sample_list_add(&rescue->bad_samples, damage) < 0) {
        stk_free(damage);
        return stk_fail_memory(error, "'%.400s'", walk->source->path);
    }
    return 0;
}

/* The sample that an error names, or whose last member's data is incomplete: it is lost.
 * UINT64_MAX: no known sample. */
static uint64_t find_lost(struct walk *walk, struct stoker_error *found)
{
    struct stk_tar_recover *rescue = walk->rescue;
    struct stk_view name = {(const uint8_t *)found->key, strlen(found->key)}, key, extension;
    uint64_t last = rescue->sample_count - 1;

    if (found->key[0] && stk_wds_name_split(name, &key, &extension)) {
        found->key[key.bytes] = 0; /* members are named, samples are listed */
        if (rescue->sample_count > 0 && is_key_of(rescue, last, key)) {
            return last;
        }
        return UINT64_MAX;
    }
    if (rescue->sample_count > 0) {
        /* The parser returns a member of a compressed tar before its data is read. */
        if (walk->source->bytes == UINT64_MAX && found->status == STOKER_ERROR_TRUNCATED) {
            return last;
        }
        rescue->samples[last].uncertain = true; /* it may lack a member */
    }
    return UINT64_MAX;
}

static int record_damage(struct walk *walk, struct stoker_error *found, struct stoker_error *error)
{
    uint64_t lost = find_lost(walk, found);

    if (found->offset != STOKER_NO_OFFSET) {
        found->offset += walk->base;
    }
    walk->rescue->follows_damage = true;
    walk->rescue->suspects = SUSPECTS;
    if (lost != UINT64_MAX) {
        walk->rescue->samples[lost].lost = true;
    }
    return add_damage(walk, found, lost, error);
}

/* The signature of more than half of the samples that nothing makes doubtful; false: none is. */
static bool usual_signature(const struct stk_tar_recover *rescue, uint64_t *numbers,
                            uint64_t *usual_out)
{
    uint64_t count = 0, most = 0;

    for (uint64_t i = 0; i < rescue->sample_count; i++) {
        if (!rescue->samples[i].uncertain) {
            numbers[count++] = rescue->samples[i].signature;
        }
    }
    qsort(numbers, count, sizeof *numbers, stk_compare_u64);
    for (uint64_t i = 0, run = 0; i < count; i++) {
        run = i > 0 && numbers[i] == numbers[i - 1] ? run + 1 : 1;
        if (run > most) {
            most = run;
            *usual_out = numbers[i];
        }
    }
    return 2 * most > count;
}

/* Returns why the sample is lost; NULL: it is kept. all: all samples of the tar are uncertain. */
static const char *lost_reason(const struct stk_tar_recover *rescue,
                               const struct stk_tar_recover_sample *sample, bool all,
                               const uint64_t *usual)
{
    if (all) {
        return "the compressed tar is damaged, so this sample is uncertain";
    }
    if (sample->renamed && rescue->extended) {
        return "the tar is damaged before it, maybe in the header that names it";
    }
    return sample->uncertain && !(usual && sample->signature == *usual)
               ? "the tar is damaged next to it, and it lacks a member"
               : NULL;
}

/* Decides for each uncertain sample whether it is lost. all: all samples are uncertain. */
static int classify_samples(struct walk *walk, bool all, struct stoker_error *error)
{
    struct stk_tar_recover *rescue = walk->rescue;
    uint64_t *numbers = stk_alloc(stk_max(rescue->sample_count, 1), sizeof *numbers);
    uint64_t usual = 0;
    bool known;
    int status = 0;

    if (!numbers) {
        return stk_fail_memory(error, "'%.400s'", walk->source->path);
    }
    known = usual_signature(rescue, numbers, &usual);
    for (uint64_t i = 0; status == 0 && i < rescue->sample_count; i++) {
        struct stk_tar_recover_sample *sample = &rescue->samples[i];
        const char *why = lost_reason(rescue, sample, all, known ? &usual : NULL);
        struct stoker_error found = {0};

        if (sample->lost || !why) {
            continue; /* listed already, or intact */
        }
        sample->lost = true;
        stk_fail(&found, STOKER_ERROR_CORRUPT, why,
                 "fetch the tar again, or repair it (stoker verify --repair)", "%s", "");
        found.offset = sample->offset;
        status = add_damage(walk, &found, i, error);
    }
    stk_free(numbers);
    return status;
}

/* ---- the walk ---- */

/* The window begins at `offset`, with as much as there is; an empty one: the end. */
static int fill(struct walk *walk, uint64_t offset, uint64_t bytes, struct stoker_error *error)
{
    uint64_t end = walk->at + walk->bytes;
    size_t retained = 0, got = 0, room;
    int status;

    if (bytes > STK_TAR_RECOVER_WINDOW_BYTES) {
        bytes = STK_TAR_RECOVER_WINDOW_BYTES; /* a long header is read in parts */
    }
    if (offset >= walk->at && offset < end) { /* a compressed tar is not read twice */
        retained = (size_t)(end - offset);
        memmove(walk->window, walk->window + (offset - walk->at), retained);
    }
    walk->at = offset;
    walk->bytes = retained;
    if (retained >= bytes && retained > 0) {
        return 0;
    }
    /* Bytes after the damage of a compressed tar would be read from its begin again. */
    room = walk->source->bytes == UINT64_MAX ? bytes : STK_TAR_RECOVER_WINDOW_BYTES;
    status = walk->source->read(walk->source->context, offset + retained, walk->window + retained,
                                room - retained, &got, error);
    walk->bytes += status < 0 ? 0 : got;
    return status;
}

static int open_tar(struct walk *walk, uint64_t base, struct stoker_error *error)
{
    uint64_t bytes = walk->source->bytes;

    stk_tar_close(walk->tar);
    walk->tar = NULL;
    walk->base = base;
    return stk_tar_open(&walk->tar, bytes == UINT64_MAX ? bytes : bytes - base,
                        &walk->source->limits, error);
}

/* Finds the first block from `from` on that is a header by its checksum. Returns 1: the walk
 * continues there; 0: there is none. */
static int resume(struct walk *walk, uint64_t from, struct stoker_error *error)
{
    int status = fill(walk, from, BLOCK_BYTES, error);

    while (status == 0 && walk->bytes >= BLOCK_BYTES) {
        size_t blocks = walk->bytes / BLOCK_BYTES;

        for (size_t i = 0; i < blocks; i++) {
            if (stk_tar_is_header(walk->window + i * BLOCK_BYTES)) {
                status = open_tar(walk, walk->at + i * BLOCK_BYTES, error);
                return status < 0 ? status : 1;
            }
        }
        status = fill(walk, walk->at + blocks * BLOCK_BYTES, BLOCK_BYTES, error);
    }
    return status;
}

static bool ends_early(int status)
{
    return status == STOKER_ERROR_TRUNCATED || status == STOKER_ERROR_EMPTY;
}

/* The tar is damaged there. Returns 1: the walk continues after it; 0: it ends. */
static int handle_damage(struct walk *walk, struct stoker_error *found, struct stoker_error *error)
{
    uint64_t at = found->offset == STOKER_NO_OFFSET ? UINT64_MAX : walk->base + found->offset;
    bool packed = walk->source->bytes == UINT64_MAX;
    bool last = ++walk->places == STK_TAR_RECOVER_DAMAGES_MAX;
    int number = found->status, status;

    if (!stk_tar_recover_is_possible(number)) {
        *error = *found;
        return number;
    }
    if (last) {
        strncat(found->what, ", and at so many places before that the rest is skipped",
                sizeof found->what - strlen(found->what) - 1);
    }
    status = record_damage(walk, found, error);
    if (status < 0 || packed || last || ends_early(number) || at == UINT64_MAX) {
        return status;
    }
    /* The payload of an extended header is no header: it is not searched. */
    return resume(walk, stk_max(at / BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES, walk->requested_end),
                  error);
}

static int scan_tar(struct walk *walk, struct stoker_error *error)
{
    struct stk_view input = {NULL, 0};
    int status = 1;

    while (status == 1) {
        struct stoker_error found = {0};
        struct stk_tar_step step;
        int result = stk_tar_step(walk->tar, input, &step, &found);

        input = (struct stk_view){NULL, 0};
        if (result == 0 && step.event == STK_TAR_END) {
            return 0;
        }
        if (result == 0 && step.event == STK_TAR_MEMBER) {
            status = step.type == '0' ? add_member(walk, &step, error) : 0;
            status = status < 0 ? status : 1;
            continue;
        }
        if (result == 0) {
            walk->requested_end = stk_round_up(walk->base + step.offset + step.bytes, BLOCK_BYTES);
            result = fill(walk, walk->base + step.offset, step.bytes, &found);
            input = (struct stk_view){walk->window, walk->bytes};
        }
        if (result < 0) {
            status = handle_damage(walk, &found, error);
            input = (struct stk_view){NULL, 0};
        }
    }
    return status;
}

int stk_tar_recover_run(struct stk_tar_recover *rescue, const struct stk_tar_recover_source *source,
                        struct stoker_error *error)
{
    struct walk walk = {.rescue = rescue, .source = source};
    struct stoker_error local = {0};
    bool all = false;
    int status;

    walk.window = stk_alloc(STK_TAR_RECOVER_WINDOW_BYTES, 1);
    status = walk.window ? open_tar(&walk, 0, &local)
                         : stk_fail_memory(&local, "'%.400s'", source->path);
    status = status < 0 ? status : scan_tar(&walk, &local);
    for (uint64_t i = 0; i < rescue->bad_samples.count; i++) {
        all = all ||
              (source->bytes == UINT64_MAX && !ends_early(rescue->bad_samples.items[i]->status));
    }
    status = status < 0 ? status : classify_samples(&walk, all, &local);
    stk_tar_close(walk.tar);
    stk_free(walk.window);
    if (status < 0 && error) {
        *error = local;
    }
    return status;
}

/* ---- losses by shard ---- */

int stk_tar_losses_add(struct stk_tar_losses *losses, uint32_t shard,
                       struct stk_bad_sample_list *damages)
{
    struct stk_tar_loss *loss = stk_alloc(1, sizeof *loss), **at = &losses->first;

    if (!loss) {
        return -ENOMEM;
    }
    while (*at && (*at)->shard < shard) {
        at = &(*at)->next;
    }
    loss->shard = shard;
    loss->bad_samples = *damages;
    *damages = (struct stk_bad_sample_list){0};
    loss->next = *at;
    *at = loss;
    losses->count += loss->bad_samples.count;
    return 0;
}

const struct stk_bad_sample *stk_tar_losses_get(const struct stk_tar_losses *losses,
                                                uint64_t number)
{
    for (const struct stk_tar_loss *loss = losses->first; loss; loss = loss->next) {
        if (number < loss->bad_samples.count) {
            return loss->bad_samples.items[number];
        }
        number -= loss->bad_samples.count;
    }
    return NULL;
}

void stk_tar_losses_deinit(struct stk_tar_losses *losses)
{
    struct stk_tar_loss *next;

    for (; losses->first; losses->first = next) {
        next = losses->first->next;
        stk_bad_sample_list_deinit(&losses->first->bad_samples);
        stk_free(losses->first);
    }
    losses->count = 0;
}
