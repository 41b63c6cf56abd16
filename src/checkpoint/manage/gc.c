/* Retention, and the rests of dead saves. */
#include "base/mem.h"
#include "base/options.h"
#include "base/text/text_match.h"
#include "checkpoint/manage/manage.h"
#include "io/clock.h"
#include "io/write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AGE_MIN_S 86400u
#define NS_PER_SECOND 1000000000ull
#define LOCK_TEXT_BYTES_MAX 4096u

/* Keeps the newest committed steps. */
static void keep_newest(struct stoker_checkpoint_list *list, uint64_t count)
{
    for (size_t i = list->count; i-- > 0 && count > 0;) {
        if (list->entries[i].status == STOKER_CHECKPOINT_COMMITTED) {
            list->entries[i].retained = true;
            count--;
        }
    }
}

/* Keeps the best committed steps by a metric. Of equal ones, the newest. */
static void keep_best(struct stoker_checkpoint_list *list,
                      const struct stoker_checkpoint_gc_options *options, bool *chosen)
{
    for (uint32_t round = 0; round < options->keep_best; round++) {
        size_t best = list->count;
        double best_value = 0, value;

        for (size_t i = 0; i < list->count; i++) {
            const struct stk_step_entry *entry = &list->entries[i];

            if (entry->status == STOKER_CHECKPOINT_COMMITTED && !chosen[i] &&
                stk_step_manifest_number(entry->manifest.values, options->best_metric, &value) &&
                (best == list->count ||
                 (options->best_is_max ? value >= best_value : value <= best_value))) {
                best = i;
                best_value = value;
            }
        }
        if (best == list->count) {
            return;
        }
        chosen[best] = list->entries[best].retained = true;
    }
}

static int mark(struct stoker_checkpoint_list *list,
                const struct stoker_checkpoint_gc_options *options, struct stoker_error *error)
{
    bool *chosen = stk_alloc(list->count + 1, sizeof *chosen);

    if (!chosen) {
        return stk_fail_memory(error, "list of steps");
    }
    keep_newest(list, options->keep_last > 0 ? options->keep_last : UINT64_MAX);
    keep_newest(list, 1); /* always */
    for (size_t i = 0; i < list->count; i++) {
        struct stk_step_entry *entry = &list->entries[i];

        if (entry->pinned || (options->keep_every > 0 && entry->step % options->keep_every == 0)) {
            entry->retained = true;
        }
    }
    if (options->best_metric) {
        keep_best(list, options, chosen);
    }
    stk_free(chosen);
    return 0;
}

/* Removes committed steps that are not kept. Damaged steps stay for the user to look at. */
static int remove_steps(struct stoker_checkpoint_list *list,
                        const struct stk_checkpoint_place *place, bool dry_run,
                        struct stoker_checkpoint_gc_result *result, struct stoker_error *error)
{
    int status = 0;

    for (size_t i = 0; status == 0 && i < list->count; i++) {
        const struct stk_step_entry *entry = &list->entries[i];

        if (entry->status != STOKER_CHECKPOINT_COMMITTED) {
            continue;
        }
        if (entry->retained) {
            result->steps_left++;
            continue;
        }
        status = dry_run ? 0 : stk_checkpoint_remove_step(place, entry->step, error);
        if (status == -EBUSY) { /* it was pinned meanwhile */
            result->steps_left++;
            status = 0;
            continue;
        }
        status = status == -ENOENT ? 0 : status; /* another process was faster */
        result->steps_removed += status == 0;
    }
    return status;
}

/* Nanoseconds since the newest change of a folder and its entries; 0 if that is unknown. */
static uint64_t age_of(const struct stk_checkpoint_place *place, const char *folder)
{
    struct stk_listing listing = {0};
    char *path = stk_place_path(place, NULL, folder);
    uint64_t age_ns = !path ? 0 : place->remote ? UINT64_MAX : stk_place_age_ns(place, path);

    if (path && stk_io_list(place->io, path, &listing, NULL) < 0) {
        age_ns = 0;
    }
    for (size_t i = 0; age_ns > 0 && i < listing.count; i++) {
        char *file = stk_place_path(place, folder, listing.entries[i].name);

        age_ns = file ? stk_min(age_ns, stk_place_age_ns(place, file)) : 0;
        stk_free(file);
    }
    stk_listing_free(&listing);
    stk_free(path);
    return age_ns;
}

/* Whether a lock file names a dead process of this host. */
static bool has_dead_holder(const struct stk_checkpoint_place *place, const char *lock_path)
{
    uint8_t *text = NULL;
    size_t bytes = 0;
    bool dead = false;

    if (stk_place_read(place, lock_path, LOCK_TEXT_BYTES_MAX, &text, &bytes, NULL) == 0) {
        text[bytes] = '\0';
        dead = stk_lock_holder_is_dead((const char *)text);
        stk_free(text);
    }
    return dead;
}

/* Whether the holder of a lock file is dead. A free lock alone does not show it: the file system
 * may have no locks, or not pass on those of other hosts. So the file must name a dead process of
 * this host, or be old. */
static bool is_abandoned(const struct stk_checkpoint_place *place, const char *lock_path, bool old)
{
    bool dead = has_dead_holder(place, lock_path), free;
    struct stk_file_lock *lock = NULL;
    struct stk_stat stat;
    int status = stk_io_stat_path(place->io, lock_path, &stat, NULL);

    if (status == -ENOENT || (!dead && !old)) {
        return status == -ENOENT && old;
    }
    free = status == 0 && stk_io_lock(place->io, lock_path, &lock, NULL) == 0;
    dead = free && (old || lock->real);
    stk_io_unlock(place->io, lock);
    return dead;
}

/* Whether the writer of a .part folder is dead. */
static bool is_dead(const struct stk_checkpoint_place *place, const char *name, uint64_t age_min_ns)
{
    char lock_name[STK_PLACE_NAME_BYTES * 2];
    size_t bytes = strlen(name) - (sizeof STK_PLACE_PART_SUFFIX - 1);
    char *lock_path = NULL;
    bool dead;

    if (bytes + sizeof STK_PLACE_LOCK_SUFFIX < sizeof lock_name) {
        memcpy(lock_name, name, bytes);
        memcpy(lock_name + bytes, STK_PLACE_LOCK_SUFFIX, sizeof STK_PLACE_LOCK_SUFFIX);
        lock_path = stk_place_path(place, NULL, lock_name);
    }
    dead = lock_path && is_abandoned(place, lock_path, age_of(place, name) >= age_min_ns);
    stk_free(lock_path);
    return dead;
}

/* Removes the lock file of a dead save. */
static void remove_lock(const struct stk_checkpoint_place *place, const char *name,
                        uint64_t age_min_ns)
{
    char *path = stk_place_path(place, NULL, name);

    if (path) { /* removes the file if it is free */
        (void)is_abandoned(place, path, stk_place_age_ns(place, path) >= age_min_ns);
    }
    stk_free(path);
}

/* True if a hidden folder was left by a dead save or removal. */
static bool is_rest(const struct stk_checkpoint_place *place, const char *name, uint64_t age_min_ns)
{
    return strncmp(name, STK_PLACE_TRASH, sizeof STK_PLACE_TRASH - 1) == 0 ||
           (stk_text_stem_bytes(name, STK_PLACE_PART_SUFFIX) > 0 &&
            is_dead(place, name, age_min_ns));
}

/* Removes a folder, or a file in it, and counts it. */
static int remove_rest(const struct stk_checkpoint_place *place, const char *folder,
                       const char *file, const struct stoker_checkpoint_gc_options *options,
                       struct stoker_checkpoint_gc_result *result, struct stoker_error *error)
{
    char *path = stk_place_path(place, folder, file);
    int status = !path              ? stk_fail_memory(error, "checkpoint")
                 : options->dry_run ? 0
                 : file             ? stk_place_remove(place, path, error)
                                    : stk_place_remove_folder(place, path, error);

    result->saves_removed += status == 0;
    stk_free(path);
    return status;
}

/* Removes the remains of dead saves and removals: first the folders, since the lock of a folder
 * shows whether its save is dead, then the locks. */
static int remove_rests(const struct stk_checkpoint_place *place,
                        const struct stoker_checkpoint_gc_options *options,
                        struct stoker_checkpoint_gc_result *result, struct stoker_error *error)
{
    struct stk_listing listing = {0};
    int status = stk_io_list(place->io, place->root, &listing, error);

    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];

        if (entry->kind == STK_ENTRY_DIRECTORY &&
            strncmp(entry->name, STK_PLACE_HIDDEN, sizeof STK_PLACE_HIDDEN - 1) == 0 &&
            is_rest(place, entry->name, options->age_min_s * NS_PER_SECOND)) {
            status = remove_rest(place, entry->name, NULL, options, result, error);
        }
    }
    for (size_t i = 0; status == 0 && !options->dry_run && i < listing.count; i++) {
        const struct stk_entry *entry = &listing.entries[i];

        if (entry->kind == STK_ENTRY_FILE &&
            strncmp(entry->name, STK_PLACE_HIDDEN, sizeof STK_PLACE_HIDDEN - 1) == 0 &&
            stk_text_stem_bytes(entry->name, STK_PLACE_LOCK_SUFFIX) > 0) {
            remove_lock(place, entry->name, options->age_min_s * NS_PER_SECOND);
        }
    }
    stk_listing_free(&listing);
    return status;
}

/* True if a manifest names a file. *at: the start of the search, set to the entry after the found
 * one: names in the order of the manifest are found at once. */
static bool names_file(const struct stk_step_manifest *manifest, const char *name, uint64_t *at)
{
    for (uint64_t i = 0; i < manifest->file_count; i++) {
        uint64_t entry = (*at + i) % manifest->file_count;

        if (strcmp(manifest->files[entry].name, name) == 0) {
            *at = entry + 1;
            return true;
        }
    }
    return strcmp(manifest->index.name, name) == 0;
}

/* True if a name is one that saves give their objects. */
static bool is_own_object(const char *name)
{
    return (strncmp(name, STK_PLACE_SHARD_PREFIX, sizeof STK_PLACE_SHARD_PREFIX - 1) == 0 &&
            stk_text_stem_bytes(name, STK_PLACE_SHARD_SUFFIX) > 0) ||
           strncmp(name, STK_PLACE_INDEX_PREFIX, sizeof STK_PLACE_INDEX_PREFIX - 1) == 0;
}

/* Removes old shards below a committed step that its manifest does not name: an earlier save of
 * the same step sent them, and failed. */
static int remove_strays(const struct stk_checkpoint_place *place,
                         const struct stk_step_entry *step,
                         const struct stoker_checkpoint_gc_options *options,
                         struct stoker_checkpoint_gc_result *result, struct stoker_error *error)
{
    char folder[STK_PLACE_NAME_BYTES];
    char *path = stk_place_path(place, stk_place_step_name(step->step, folder), NULL);
    struct stk_listing listing = {0};
    uint64_t at = 0;
    int status =
        path ? stk_io_list(place->io, path, &listing, error) : stk_fail_memory(error, "checkpoint");

    stk_free(path);
    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const char *name = listing.entries[i].name;

        if (!is_own_object(name) || names_file(&step->manifest, name, &at)) {
            continue;
        }
        path = stk_place_path(place, folder, name);
        if (!path || stk_place_age_ns(place, path) >= options->age_min_s * NS_PER_SECOND) {
            status = remove_rest(place, folder, name, options, result, error);
        }
        stk_free(path);
    }
    stk_listing_free(&listing);
    return status == -ENOENT ? 0 : status; /* another process has removed the step */
}

/* Objects below a step without a manifest belong to a dead save, or to a running one: the age of
 * the newest object decides. */
static int remove_remote_rests(struct stoker_checkpoint_list *list,
                               const struct stk_checkpoint_place *place,
                               const struct stoker_checkpoint_gc_options *options,
                               struct stoker_checkpoint_gc_result *result,
                               struct stoker_error *error)
{
    int status = 0;

    for (size_t i = 0; status == 0 && i < list->count; i++) {
        const struct stk_step_entry *entry = &list->entries[i];
        char name[STK_PLACE_NAME_BYTES];

        stk_place_step_name(entry->step, name);
        if (entry->status == STOKER_CHECKPOINT_COMMITTED && entry->retained) {
            status = remove_strays(place, entry, options, result, error);
        } else if (entry->status == STOKER_CHECKPOINT_INCOMPLETE &&
                   age_of(place, name) >= options->age_min_s * NS_PER_SECOND) {
            status = remove_rest(place, name, NULL, options, result, error);
        }
    }
    return status;
}

/* A name of a file that steps may share. */
struct shared_name {
    uint64_t device, inode, links, bytes;
    uint64_t step;
};

static int by_inode(const void *a, const void *b)
{
    const struct shared_name *x = a, *y = b;

    return x->device != y->device ? (x->device < y->device ? -1 : 1)
           : x->inode != y->inode ? (x->inode < y->inode ? -1 : 1)
                                  : 0;
}

/* Appends the shared files of a step to *names. */
static int add_shared_names(const struct stk_checkpoint_place *place,
                            const struct stk_step_entry *entry, struct shared_name **names,
                            size_t *count, size_t *capacity, struct stoker_error *error)
{
    char folder[STK_PLACE_NAME_BYTES];

    stk_place_step_name(entry->step, folder);
    for (uint64_t i = entry->manifest.ranks; i < entry->manifest.file_count; i++) {
        char *path = stk_place_path(place, folder, entry->manifest.files[i].name);
        struct stk_stat stat = {0};
        int status = path ? stk_io_stat_path(place->io, path, &stat, NULL) : -ENOMEM;

        stk_free(path);
        if (status == 0 && *count == *capacity) {
            size_t grown = *capacity * 2 + 16;
            struct shared_name *more =
                stk_realloc(*names, *capacity * sizeof **names, grown * sizeof **names, 1);

            status = more ? 0 : -ENOMEM;
            *names = more ? more : *names;
            *capacity = more ? grown : *capacity;
        }
        if (status == -ENOMEM) {
            return stk_fail_memory(error, "list of shared files");
        }
        if (status == 0 && stat.links > 0) { /* else another process has removed the step */
            (*names)[(*count)++] =
                (struct shared_name){stat.device, stat.inode, stat.links, stat.bytes, entry->step};
        }
    }
    return 0;
}

/* Counts the references to shared files, and compares them with the count of the file system. */
static int count_shared(const struct stoker_checkpoint_list *list,
                        const struct stk_checkpoint_place *place,
                        struct stoker_checkpoint_gc_result *result, struct stoker_error *error)
{
    struct shared_name *names = NULL;
    size_t count = 0, capacity = 0;
    int status = 0;

    for (size_t i = 0; status == 0 && i < list->count; i++) {
        if (list->entries[i].status == STOKER_CHECKPOINT_COMMITTED && list->entries[i].retained) {
            status = add_shared_names(place, &list->entries[i], &names, &count, &capacity, error);
        }
    }
    if (count > 0) {
        qsort(names, count, sizeof *names, by_inode);
    }
    for (size_t i = 0, next; status == 0 && i < count; i = next) {
        uint64_t links = names[i].links;

        for (next = i + 1; next < count && by_inode(&names[i], &names[next]) == 0; next++) {
            links = stk_max(links, names[next].links);
        }
        if (links < next - i) {
            status = stk_fail(error, STOKER_ERROR_CORRUPT,
                              "the file system counts fewer names of a file than steps have",
                              "check the file system", "shared file of step %llu in '%.400s'",
                              (unsigned long long)names[i].step, place->root);
        }
        if (next - i > 1) {
            result->shared_files++;
            result->shared_names += next - i;
            result->shared_bytes += names[i].bytes * (next - i - 1);
        }
    }
    stk_free(names);
    return status;
}

int stoker_checkpoint_gc(struct stoker_engine *engine, const char *path,
                         const struct stoker_checkpoint_gc_options *given,
                         struct stoker_checkpoint_gc_result *result_out, struct stoker_error *error)
{
    struct stoker_checkpoint_gc_options options;
    struct stoker_checkpoint_gc_result result = {0};
    struct stoker_checkpoint_list *list = NULL;
    struct stk_checkpoint_place place = {0};
    int status = stk_options_read(&options, sizeof options, sizeof options.struct_size, given,
                                  "gc options", error);

    if (status == 0 && result_out) {
        status = stk_options_check_output(result_out, sizeof result, sizeof result.struct_size,
                                          "gc result", error);
    }
    status = status < 0 ? status : stk_engine_check(engine, error);
    if (status < 0) {
        return status;
    }
    options.age_min_s = options.age_min_s > 0 ? options.age_min_s : AGE_MIN_S;
    options.age_min_s = stk_min(options.age_min_s, UINT64_MAX / NS_PER_SECOND);
    status = stk_place_init(&place, engine->io, path, true, error);
    status = status < 0 ? status : stoker_checkpoint_list_open(&list, engine, path, error);
    status = status < 0 ? status : mark(list, &options, error);
    status = status < 0 ? status : remove_steps(list, &place, options.dry_run, &result, error);
    if (status == 0) {
        status = place.remote ? remove_remote_rests(list, &place, &options, &result, error)
                              : remove_rests(&place, &options, &result, error);
    }
    if (status == 0 && !place.remote) {
        status = count_shared(list, &place, &result, error);
    }
    if (result_out) {
        (void)stk_options_write_output(result_out, &result, sizeof result, "gc result", NULL);
    }
    stoker_checkpoint_list_close(list);
    stk_place_deinit(&place);
    return status;
}
