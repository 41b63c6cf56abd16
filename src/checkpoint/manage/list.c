/* Lists, pins and removes steps. */
#include "base/mem.h"
#include "base/options.h"
#include "checkpoint/manage/manage.h"
#include "checkpoint/read/checkpoint.h"
#include "io/write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void stoker_checkpoint_list_close(struct stoker_checkpoint_list *list)
{
    if (!list) {
        return;
    }
    for (size_t i = 0; i < list->count; i++) {
        stk_step_manifest_deinit(&list->entries[i].manifest);
        stk_free(list->entries[i].reason);
    }
    stk_free(list->entries);
    stk_free(list);
}

/* Returns 1 if a step is pinned, 0 if not, or the error of looking. */
static int is_pinned(const struct stk_checkpoint_place *place, uint64_t step,
                     struct stoker_error *error)
{
    char name[STK_PLACE_NAME_BYTES], pin[STK_PLACE_NAME_BYTES + sizeof STK_PLACE_PIN_SUFFIX];
    struct stk_stat stat;
    char *path;
    int status;

    snprintf(pin, sizeof pin, "%s" STK_PLACE_PIN_SUFFIX, stk_place_step_name(step, name));
    path = stk_place_path(place, NULL, pin);
    if (!path) {
        return stk_fail_memory(error, "checkpoint");
    }
    status = stk_place_stat_now(place, path, &stat, error);
    stk_free(path);
    return stk_place_is_absent(status) ? 0 : status < 0 ? status : 1;
}

/* Whether a step with this error is damaged. Other errors say nothing about the step. */
static bool is_damage(int status)
{
    return stk_checkpoint_is_damage(status) || status == STOKER_ERROR_UNSUPPORTED ||
           status == STOKER_ERROR_LIMIT;
}

/* Describes a step by its manifest and the lengths of its files. */
static int look(struct stk_step_entry *entry, const struct stk_checkpoint_place *place,
                struct stoker_engine *engine, struct stoker_error *error)
{
    char name[STK_PLACE_NAME_BYTES];
    struct stoker_checkpoint *checkpoint = NULL;
    struct stoker_error reason = {0};
    char *path = stk_place_path(place, stk_place_step_name(entry->step, name), NULL);
    int status =
        path ? stk_checkpoint_open_folder(&checkpoint, engine, path, true, &reason) : -ENOMEM;

    if (status == 0) {
        entry->status = STOKER_CHECKPOINT_COMMITTED;
        entry->manifest = checkpoint->manifest;
        checkpoint->manifest = (struct stk_step_manifest){0};
        stk_checkpoint_release(checkpoint);
    } else if (stk_place_is_absent(status) && status != STOKER_ERROR_MISSING) {
        entry->status = STOKER_CHECKPOINT_INCOMPLETE;
        status = 0;
    } else if (is_damage(status)) {
        char text[sizeof reason.what + sizeof reason.where + 4];

        snprintf(text, sizeof text, "%s: %s", reason.what, reason.where);
        entry->status = STOKER_CHECKPOINT_DAMAGED;
        entry->reason = stk_strdup(text);
        status = entry->reason ? 0 : -ENOMEM;
    }
    stk_free(path);
    if (status == -ENOMEM) {
        return stk_fail_memory(error, "list of steps");
    }
    if (status < 0) {
        if (error) {
            *error = reason;
        }
        return status;
    }
    status = is_pinned(place, entry->step, error);
    entry->pinned = status == 1;
    return status < 0 ? status : 0;
}

int stoker_checkpoint_list_open(struct stoker_checkpoint_list **list_out,
                                struct stoker_engine *engine, const char *path,
                                struct stoker_error *error)
{
    struct stk_checkpoint_place place = {0};
    struct stoker_checkpoint_list *list = NULL;
    uint64_t *steps = NULL;
    size_t count = 0;
    int status = stk_engine_check(engine, error);

    status = status < 0 ? status : stk_place_init(&place, engine->io, path, false, error);
    status = status < 0 ? status : stk_checkpoint_steps(&place, &steps, &count, error);
    if (status == 0) {
        list = stk_alloc(1, sizeof *list);
        if (list) {
            list->entries = stk_alloc(count + 1, sizeof *list->entries);
        }
        status = list && list->entries ? 0 : stk_fail_memory(error, "list of steps");
    }
    for (size_t i = 0; status == 0 && i < count; i++) {
        list->entries[list->count++].step = steps[i];
        status = look(&list->entries[i], &place, engine, error);
    }
    stk_free(steps);
    stk_place_deinit(&place);
    if (status < 0) {
        stoker_checkpoint_list_close(list);
        return status;
    }
    *list_out = list;
    return 0;
}

int stoker_checkpoint_list_at(const struct stoker_checkpoint_list *list, uint64_t index,
                              struct stoker_checkpoint_step *step_out, struct stoker_error *error)
{
    struct stoker_checkpoint_step full = {0};
    const struct stk_step_entry *entry;
    int status =
        stk_options_check_output(step_out, sizeof full, sizeof full.struct_size, "step", error);

    if (status < 0 || index >= list->count) {
        return status;
    }
    entry = &list->entries[index];
    full.step = entry->step;
    full.status = entry->status;
    full.pinned = entry->pinned;
    full.files = entry->manifest.file_count;
    full.ranks = entry->manifest.ranks;
    full.values = entry->manifest.values;
    full.reason = entry->reason;
    full.counted = entry->manifest.counted;
    full.nan_count = entry->manifest.nan;
    full.inf_count = entry->manifest.inf;
    for (uint64_t i = 0; i < full.files; i++) {
        full.bytes += entry->manifest.files[i].bytes;
    }
    status = stk_options_write_output(step_out, &full, sizeof full, "step", error);
    return status < 0 ? status : 1;
}

/* Returns 0 if a step has a manifest, or the error of stat: -ENOENT if it has none. */
static int check_step(const struct stk_checkpoint_place *place, uint64_t step,
                      struct stoker_error *error)
{
    char name[STK_PLACE_NAME_BYTES];
    char *path = stk_place_path(place, stk_place_step_name(step, name), STK_STEP_MANIFEST_NAME);
    struct stk_stat stat;
    int status = path ? stk_io_stat_path(place->io, path, &stat, error)
                      : stk_fail_memory(error, "checkpoint");

    stk_free(path);
    return status;
}

int stoker_checkpoint_pin(struct stoker_engine *engine, const char *path, uint64_t step,
                          uint32_t on, struct stoker_error *error)
{
    static const char text[] = "pinned\n";
    char name[STK_PLACE_NAME_BYTES], pin[STK_PLACE_NAME_BYTES + sizeof STK_PLACE_PIN_SUFFIX];
    struct stk_checkpoint_place place = {0};
    char *pin_path = NULL;
    int status = stk_engine_check(engine, error);

    status = status < 0 ? status : stk_place_init(&place, engine->io, path, true, error);
    status = status < 0 || !on ? status : check_step(&place, step, error);
    if (status == 0) {
        snprintf(pin, sizeof pin, "%s" STK_PLACE_PIN_SUFFIX, stk_place_step_name(step, name));
        pin_path = stk_place_path(&place, NULL, pin);
        status = !pin_path ? stk_fail_memory(error, "checkpoint")
                 : on ? stk_place_write(&place, pin_path,
                                        (struct stk_view){(const uint8_t *)text, sizeof text - 1},
                                        false, error)
                      : stk_place_remove(&place, pin_path, error);
    }
    stk_free(pin_path);
    stk_place_deinit(&place);
    return status;
}

static int remove_from_store(const struct stk_checkpoint_place *place, const char *folder,
                             struct stoker_error *error)
{
    char *manifest = stk_place_path(place, folder, STK_STEP_MANIFEST_NAME);
    char *path = stk_place_path(place, folder, NULL);
    int status = manifest && path ? stk_place_remove(place, manifest, error)
                                  : stk_fail_memory(error, "checkpoint");

    status = status < 0 ? status : stk_place_remove_folder(place, path, error);
    stk_free(manifest);
    stk_free(path);
    return status;
}

int stk_checkpoint_remove_step(const struct stk_checkpoint_place *place, uint64_t step,
                               struct stoker_error *error)
{
    char folder[STK_PLACE_NAME_BYTES], trash[STK_PLACE_NAME_BYTES + sizeof STK_PLACE_TRASH];
    char *from, *to;
    int status = is_pinned(place, step, error); /* also after gc() has listed it as not pinned */

    if (status != 0) {
        return status < 0 ? status
                          : stk_fail(error, -EBUSY, "the step is pinned", "take the pin off first",
                                     "step %" PRIu64 " of '%.400s'", step, place->root);
    }
    stk_place_step_name(step, folder);
    if (place->remote) {
        return remove_from_store(place, folder, error);
    }
    snprintf(trash, sizeof trash, STK_PLACE_TRASH "%s", folder);
    from = stk_place_path(place, folder, NULL);
    to = stk_place_path(place, trash, NULL);
    status = from && to ? 0 : stk_fail_memory(error, "checkpoint");
    /* The remains of a killed removal have this name, too. */
    status = status < 0 ? status : stk_place_remove_folder(place, to, error);
    status = status < 0 ? status : stk_io_rename(place->io, from, to, true, error);
    if (status == -ENOENT) {
        status =
            stk_fail(error, -ENOENT, "there is no such step", "'stoker ckpt ls' lists the steps",
                     "step %" PRIu64 " of '%.400s'", step, place->root);
    }
    status = status < 0 ? status : stk_io_sync_directory(place->io, place->root, error);
    status = status < 0 ? status : stk_place_remove_folder(place, to, error);
    stk_free(from);
    stk_free(to);
    return status;
}

int stoker_checkpoint_remove(struct stoker_engine *engine, const char *path, uint64_t step,
                             struct stoker_error *error)
{
    struct stk_checkpoint_place place = {0};
    int status = stk_engine_check(engine, error);

    status = status < 0 ? status : stk_place_init(&place, engine->io, path, true, error);
    status = status < 0 ? status : stk_checkpoint_remove_step(&place, step, error);
    stk_place_deinit(&place);
    return status;
}
