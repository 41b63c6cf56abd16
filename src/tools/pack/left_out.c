/* What is left out: limits while shards are written, the list when they are. */
#include "tools/pack/left_out.h"

#include "base/mem.h"

#include <errno.h>
#include <string.h>

#define FIRST_BYTES 600u /* of the first damaged samples, in a sentence */

/* What a shard that was given up had left out. */
struct stk_unfinished {
    struct stk_unfinished *next;
    uint64_t shard;
    struct stk_damages left;
};

/* Where the list goes: the quarantine, the draft, and the first of it into memory. */
struct told {
    struct stk_left *left;
    struct stk_damage_file *lines, *records; /* owned; NULL: not there */
};

static int tell(struct stk_left *left, bool whole, struct stoker_error *error);

static int fail_memory(struct stoker_error *error)
{
    return stk_fail(error, -ENOMEM, "no memory to list damaged samples", "free memory", "pack");
}

int stk_left_open(struct stk_left *left, const struct stk_left_options *options,
                  const struct stk_draft *draft, const char *pattern, struct stoker_error *error)
{
    *left = (struct stk_left){.options = *options, .draft = draft, .pattern = pattern};
    if (options->quarantine) {
        left->options.quarantine = stk_strdup(options->quarantine);
        if (!left->options.quarantine) {
            return fail_memory(error);
        }
    }
    pthread_mutex_init(&left->lock, NULL);
    left->open = true;
    return 0;
}

void stk_left_close(struct stk_left *left)
{
    struct stk_unfinished *next;

    if (!left->open) {
        return;
    }
    for (; left->locked.unfinished; left->locked.unfinished = next) {
        next = left->locked.unfinished->next;
        stk_damages_deinit(&left->locked.unfinished->left);
        stk_free(left->locked.unfinished);
    }
    pthread_mutex_destroy(&left->lock);
    stk_damages_deinit(&left->list);
    stk_free(left->of_shard);
    stk_free((char *)(uintptr_t)left->options.quarantine);
}

/* 1: destination with this ending, and this name in it, are there. */
static int is_there(struct stk_io *io, const char *destination, const char *ending,
                    const char *name, struct stoker_error *error)
{
    char *folder = stk_draft_path(destination, "", ending);
    char *path = folder ? stk_draft_path(folder, name, "") : NULL;
    struct stk_stat about;
    int status = path ? stk_io_stat_path(io, path, &about, NULL) == 0 : fail_memory(error);

    stk_free(path);
    stk_free(folder);
    return status;
}

int stk_left_check(const struct stk_left *left, struct stk_io *io, const char *destination,
                   struct stoker_error *error)
{
    struct stk_stat about;
    int status;

    if (!left->options.quarantine ||
        stk_io_stat_path(io, left->options.quarantine, &about, NULL) < 0) {
        return 0;
    }
    status = is_there(io, destination, ".part", "", error);
    status = status != 0 ? status : is_there(io, destination, "", STK_DRAFT_PLAN_NAME, error);
    if (status == 0) {
        status =
            stk_fail_errno(error, EEXIST, "the quarantine file is there already",
                           "name another one, or remove it", "'%.600s'", left->options.quarantine);
    }
    return status < 0 ? status : 0;
}

int stk_left_try(const struct stk_left *left, struct stk_io *io, struct stoker_error *error)
{
    const char *path = left->options.quarantine;
    struct stk_damage_file *file = NULL;
    int status = path ? stk_damage_file_open(&file, io, path, STK_DAMAGE_LINES, error) : 0;

    stk_damage_file_close(file);
    return status;
}

static void set_damaged(struct stk_left *left)
{
    pthread_mutex_lock(&left->lock);
    left->locked.damaged = true;
    pthread_mutex_unlock(&left->lock);
}

int stk_left_begin(struct stk_left *left, const struct stk_losses *losses, uint64_t sample_count,
                   uint64_t shard_count, struct stoker_error *error)
{
    const struct stk_left_options *options = &left->options;

    left->losses = losses;
    left->count = losses->count;
    left->sample_count = sample_count += losses->count;
    left->most = options->samples_max ? options->samples_max : UINT64_MAX;
    if (options->share_max > 0) {
        left->most = stk_min(left->most, (uint64_t)(options->share_max * (double)sample_count));
    }
    left->of_shard = stk_alloc(shard_count, sizeof *left->of_shard);
    left->shard_count = left->of_shard ? shard_count : 0;
    if (!left->of_shard) {
        return fail_memory(error);
    }
    if (losses->count > 0 && !options->skip) {
        set_damaged(left);
        stk_damage_error(stk_losses_at(losses, 0), error);
        return error->status;
    }
    return 0;
}

/* The sentence is made when all is known (stk_left_tell). */
int stk_left_weigh(struct stk_left *left, struct stoker_error *error)
{
    if (left->count <= left->most) {
        return 0;
    }
    set_damaged(left);
    return stk_fail(error, STOKER_ERROR_LIMIT, "too many samples are damaged", "see the list",
                    "'%.300s'", left->draft->destination);
}

void stk_left_kept(struct stk_left *left, uint64_t shard, uint64_t count)
{
    left->of_shard[shard] = count;
    left->count += count;
}

int stk_left_take(struct stk_left *left, struct stk_shard_out *out, uint64_t sample,
                  struct stoker_error *error)
{
    struct stk_damage *damage = stk_damage_new(sample, error);
    int status = error->status;

    if (!damage) {
        return fail_memory(error);
    }
    if (stk_shard_out_left(out, damage, error) < 0) {
        stk_free(damage);
        return -ENOMEM;
    }
    if (!left->options.skip) {
        set_damaged(left);
        return status;
    }
    status = stk_shard_out_drop(out, error);
    if (status < 0) {
        return status;
    }
    left->count++;
    return stk_left_weigh(left, error);
}

void stk_left_whole(struct stk_left *left, uint64_t shard, struct stk_shard_out *out)
{
    left->of_shard[shard] = stk_shard_out_lefts(out)->count;
}

void stk_left_give_up(struct stk_left *left, uint64_t shard, struct stk_shard_out *out)
{
    struct stk_damages *damages = stk_shard_out_lefts(out);
    struct stk_unfinished *unfinished =
        damages->count > 0 ? stk_alloc(1, sizeof *unfinished) : NULL;

    if (!unfinished) {
        return;
    }
    unfinished->shard = shard;
    unfinished->left = *damages;
    *damages = (struct stk_damages){0};
    pthread_mutex_lock(&left->lock);
    unfinished->next = left->locked.unfinished;
    left->locked.unfinished = unfinished;
    pthread_mutex_unlock(&left->lock);
}

int stk_left_list(struct stk_left *left, struct stoker_error *error)
{
    if (left->count == left->sample_count) {
        set_damaged(left);
        return stk_fail(error, STOKER_ERROR_EMPTY, "no sample is left: all are damaged",
                        "look at the list, and at what the source is", "'%.300s'",
                        left->draft->destination);
    }
    return tell(left, true, error);
}

/* ---- telling ---- */

/* keep: for a later run, too. */
static int told_open(struct told *told, struct stk_left *left, bool keep,
                     struct stoker_error *error)
{
    struct stk_io *io = left->draft->io;
    char *path = NULL;
    int status = 0;

    *told = (struct told){.left = left};
    if (left->options.quarantine) {
        status = stk_damage_file_open(&told->lines, io, left->options.quarantine, STK_DAMAGE_LINES,
                                      error);
    }
    if (status == 0 && keep) {
        path = stk_draft_path(left->draft->directory, STK_DRAFT_LEFT_NAME, "");
        status = path ? stk_damage_file_open(&told->records, io, path, STK_DAMAGE_RECORDS, error)
                      : fail_memory(error);
    }
    stk_free(path);
    return status;
}

/* Takes the damage. */
static int told_add(void *context, struct stk_damage *damage, struct stoker_error *error)
{
    struct told *told = context;
    struct stk_damages *list = &told->left->list;
    int status = told->lines ? stk_damage_file_add(told->lines, damage, error) : 0;

    if (status == 0 && told->records) {
        status = stk_damage_file_add(told->records, damage, error);
    }
    if (status == 0 && list->count < told->left->options.list_max) {
        if (stk_damages_add(list, damage) == 0) {
            return 0;
        }
        status = fail_memory(error);
    }
    stk_free(damage);
    return status;
}

static int told_damages(struct told *told, struct stk_damages *damages, struct stoker_error *error)
{
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < damages->count; i++) {
        status = told_add(told, damages->items[i], error);
        damages->items[i] = NULL;
    }
    return status;
}

/* Of a shard: what it had when it was given up, or what its done file says. 1: it had some. */
static int told_shard(struct told *told, uint64_t shard, struct stoker_error *error)
{
    struct stk_left *left = told->left;
    const struct stk_draft *draft = left->draft;
    struct stk_done done = {0};
    char name[STK_SHARD_NAME_MAX];
    int status;

    for (struct stk_unfinished *at = left->locked.unfinished; at; at = at->next) {
        if (at->shard == shard) {
            status = told_damages(told, &at->left, error);
            return status < 0 ? status : 1;
        }
    }
    if (left->of_shard[shard] == 0) {
        return 0;
    }
    stk_pattern_name(left->pattern, shard, name, sizeof name);
    status = stk_done_read(&done, draft->io, draft->directory, name, draft->plan, error);
    if (status == 0) {
        status = stk_fail(error, STOKER_ERROR_CHANGED, "a finished shard is not there any more",
                          "run it again: it goes on from there", "'%.300s'", name);
    }
    status = status < 0 ? status : told_damages(told, &done.left, error);
    stk_done_deinit(&done);
    return status < 0 ? status : 1;
}

/* Of the source's scan. */
static int told_loss(struct told *told, const struct stk_damage *loss, struct stoker_error *error)
{
    struct stoker_error found = {0};
    struct stk_damage *copy;

    stk_damage_error(loss, &found);
    copy = stk_damage_new(loss->sample, &found);
    return copy ? told_add(told, copy, error) : fail_memory(error);
}

/* Takes what is open. */
static int told_end(struct told *told, int status, struct stoker_error *error)
{
    if (status == 0 && told->records) {
        status = stk_damage_file_commit(told->records, error);
    }
    if (status == 0 && told->lines) {
        status = stk_damage_file_commit(told->lines, error);
    }
    stk_damage_file_close(told->records);
    stk_damage_file_close(told->lines);
    return status;
}

/* whole: all shards are; else what was found so far. Under raise that is the first, which is the
 * same whatever the threads. */
static int tell(struct stk_left *left, bool whole, struct stoker_error *error)
{
    struct told told;
    int status = told_open(&told, left, whole && left->count > 0, error);

    for (uint64_t i = 0; status == 0 && left->losses && i < left->losses->count; i++) {
        status = told_loss(&told, stk_losses_at(left->losses, i), error);
        status = status == 0 && !left->options.skip ? 1 : status;
    }
    for (uint64_t i = 0; status >= 0 && i < left->shard_count; i++) {
        if (status == 0 || left->options.skip) {
            status = told_shard(&told, i, error);
        }
    }
    return told_end(&told, status < 0 ? status : 0, error);
}

int stk_left_find(struct stk_left *left, const struct stk_manifest *manifest,
                  struct stoker_error *error)
{
    const struct stk_draft *draft = left->draft;
    char *path = stk_draft_path(draft->directory, STK_DRAFT_LEFT_NAME, "");
    struct stk_stat about;
    struct told told;
    int status = path ? 0 : fail_memory(error);

    left->count = stk_manifest_left(manifest);
    /* Between the last two removals of that run the list is gone: it was given by then. */
    if (status == 0 && (left->count == 0 || stk_io_stat_path(draft->io, path, &about, NULL) == 0)) {
        status = told_open(&told, left, false, error);
        if (status == 0 && left->count > 0) {
            status = stk_damage_file_read(draft->io, path, told_add, &told, error);
            if (status == 0) {
                status = stk_fail(error, STOKER_ERROR_CORRUPT,
                                  "the list of what was left out is damaged",
                                  "remove the .part folder and pack again", "'%.400s'", path);
            }
            status = status < 0 ? status : 0;
        }
        status = told_end(&told, status, error);
    }
    stk_free(path);
    return status;
}

void stk_left_tell(struct stk_left *left, struct stoker_error *error)
{
    const struct stk_left_options *options = &left->options;
    bool count = options->samples_max > 0 && left->count > options->samples_max;
    char first[FIRST_BYTES];

    if (!left->locked.damaged) {
        return;
    }
    (void)tell(left, false, NULL); /* there is an error already */
    if (options->skip && error->status == STOKER_ERROR_LIMIT) {
        stk_damage_describe(left->list.items, left->list.count, first, sizeof first);
        stk_fail(error, STOKER_ERROR_LIMIT,
                 count ? "more samples are damaged than bad_samples_max allows"
                       : "a larger share of the samples is damaged than bad_share_max allows",
                 count ? "repair the data, or raise bad_samples_max; the quarantine lists them all"
                       : "repair the data, or raise bad_share_max; the quarantine lists them all",
                 "%llu damaged, %llu of %llu allowed: %s", (unsigned long long)left->count,
                 (unsigned long long)left->most, (unsigned long long)left->sample_count, first);
    }
}
