/* Probes whether a place keeps what checkpoints need: exclusive creation, rename, sync, listing,
 * locks, and that what was written is read. */
#include "base/mem.h"
#include "base/options.h"
#include "checkpoint/manage/manage.h"
#include "io/write.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FOLDER STK_PLACE_HIDDEN "probe"
#define FILE_BYTES (256u << 10)

struct probe {
    const struct stk_checkpoint_place *place;
    struct stoker_checkpoint_probe *result;
    char *folder, *first, *second; /* owned: paths */
    uint8_t *data;                 /* owned: FILE_BYTES */
};

/* Adds a result. what: what was wrong; NULL: nothing. */
static void report(struct probe *probe, const char *name, int status, const char *what)
{
    struct stoker_checkpoint_probe_check *check;

    STK_ASSERT(probe->result->count < STOKER_CHECKPOINT_PROBE_CHECKS_MAX);
    check = &probe->result->checks[probe->result->count++];
    snprintf(check->name, sizeof check->name, "%s", name);
    check->passed = status >= 0 && !what;
    if (what) {
        snprintf(check->detail, sizeof check->detail, "%s", what);
    } else if (status < 0) {
        snprintf(check->detail, sizeof check->detail, "%.60s", strerror(-status));
    }
    probe->result->failures += !check->passed;
}

static int write_file(const struct probe *probe, const char *path, uint8_t first, bool exclusive)
{
    struct stk_io *io = probe->place->io;
    struct stk_output *output = NULL;
    int status = stk_io_create(io, path, exclusive, &output, NULL);

    if (status < 0) {
        return status;
    }
    probe->data[0] = first;
    status = stk_io_write(io, output, probe->data, FILE_BYTES, NULL);
    status = status < 0 ? status : stk_io_sync_output(io, output, NULL);
    stk_io_close_output(io, output);
    return status;
}

/* The first byte of a file with the right length; or an error. */
static int read_first(const struct probe *probe, const char *path)
{
    struct stoker_error error = {0};
    uint8_t *data = NULL;
    size_t bytes = 0;
    int status = stk_place_read(probe->place, path, FILE_BYTES, &data, &bytes, &error);

    if (status == 0) {
        status = bytes == FILE_BYTES && memcmp(data + 1, probe->data + 1, FILE_BYTES - 1) == 0
                     ? data[0]
                     : STOKER_ERROR_CORRUPT;
    }
    stk_free(data);
    return status;
}

/* Whether the listing of the folder has a name. */
static int lists(const struct probe *probe, const char *name)
{
    struct stk_listing listing = {0};
    int status = stk_io_list(probe->place->io, probe->folder, &listing, NULL), found = 0;

    for (size_t i = 0; status >= 0 && i < listing.count; i++) {
        found = found || strcmp(listing.entries[i].name, name) == 0;
    }
    stk_listing_free(&listing);
    return status < 0 ? status : found;
}

static void probe_files(struct probe *probe)
{
    struct stk_io *io = probe->place->io;
    int status = write_file(probe, probe->first, 1, true), got;

    report(probe, "write and sync a file", status, NULL);
    got = read_first(probe, probe->first);
    report(probe, "read what was written", got, got == 1 ? NULL : "the bytes differ");
    status = write_file(probe, probe->first, 2, true);
    report(probe, "exclusive creation", 0,
           status == -EEXIST ? NULL : "a second creation of a file did not fail");
    report(probe, "listing after creation", 0,
           lists(probe, "first") == 1 ? NULL : "the listing does not show a new file");
    status = stk_io_rename(io, probe->first, probe->second, true, NULL);
    got = read_first(probe, probe->second);
    report(probe, "rename", status, status < 0 || got == 1 ? NULL : "the new name has other bytes");
    report(probe, "listing after rename", 0,
           lists(probe, "second") == 1 && lists(probe, "first") == 0
               ? NULL
               : "the listing shows the old name, or not the new one");
    status = write_file(probe, probe->first, 3, false);
    got = status < 0 ? status : stk_io_rename(io, probe->first, probe->second, true, NULL);
    report(probe, "rename without replacing", 0,
           got == -EEXIST ? NULL : "a rename that must not replace a file replaced it");
    (void)write_file(probe, probe->first, 3, false);
    status = stk_io_rename(io, probe->first, probe->second, false, NULL);
    got = read_first(probe, probe->second);
    report(probe, "rename that replaces", status,
           status < 0 || got == 3 ? NULL : "the old bytes stay");
    report(probe, "sync a folder", stk_io_sync_directory(io, probe->folder, NULL), NULL);
}

static void probe_locks(struct probe *probe)
{
    struct stk_io *io = probe->place->io;
    struct stk_file_lock *lock = NULL, *second = NULL;
    struct stoker_error error = {0};
    char *path = stk_place_path(probe->place, FOLDER, "lock");
    int status = path ? stk_io_lock(io, path, &lock, &error) : -ENOMEM;
    int other = status < 0 ? status : stk_io_lock(io, path, &second, &error);

    report(probe, "locks", status,
           status < 0    ? NULL
           : !lock->real ? "the file system has no locks: gc waits a day before it removes what "
                           "a dead save left"
           : other == -EBUSY ? NULL
                             : "a second lock was given");
    stk_io_unlock(io, second);
    stk_io_unlock(io, lock);
    stk_free(path);
}

/* A store: a small object is put, found and not put twice. */
static void probe_store(struct probe *probe)
{
    struct stk_view bytes = {probe->data, FILE_BYTES}, other = {probe->data, FILE_BYTES - 1};
    struct stoker_error error = {0};
    int status = stk_place_write(probe->place, probe->first, bytes, false, &error), got;

    report(probe, "write an object", status, status < 0 ? error.what : NULL);
    got = read_first(probe, probe->first);
    report(probe, "read what was written", 0, got == 0 ? NULL : "the bytes differ");
    report(probe, "listing after creation", 0,
           lists(probe, "first") == 1 ? NULL : "the listing does not show a new object");
    status = stk_place_write(probe->place, probe->first, other, true, &error);
    report(probe, "conditional creation", 0,
           status == -EEXIST ? NULL
                             : "a second creation of an object did not fail: commits of two "
                               "jobs can replace each other");
    status = stk_place_remove(probe->place, probe->first, &error);
    report(probe, "remove", status, status < 0 ? error.what : NULL);
}

static int run(struct probe *probe, struct stoker_error *error)
{
    struct stk_io *io = probe->place->io;
    int status;

    probe->folder = stk_place_path(probe->place, FOLDER, NULL);
    probe->first = stk_place_path(probe->place, FOLDER, "first");
    probe->second = stk_place_path(probe->place, FOLDER, "second");
    probe->data = stk_alloc(FILE_BYTES, 1);
    status = probe->folder && probe->first && probe->second && probe->data
                 ? 0
                 : stk_fail_memory(error, "probe");
    for (uint32_t i = 0; status == 0 && i < FILE_BYTES; i++) {
        probe->data[i] = (uint8_t)(i * 7 >> 3);
    }
    if (status == 0 && probe->place->remote) {
        probe->data[0] = 0;
        probe_store(probe);
    } else if (status == 0) {
        (void)stk_place_remove_folder(probe->place, probe->folder, NULL);
        status = stk_io_make_directory(io, probe->folder, true, error);
        if (status == 0) {
            probe_files(probe);
            probe_locks(probe);
            status = stk_place_remove_folder(probe->place, probe->folder, error);
        }
    }
    stk_free(probe->folder);
    stk_free(probe->first);
    stk_free(probe->second);
    stk_free(probe->data);
    return status;
}

int stoker_checkpoint_probe(struct stoker_engine *engine, const char *path,
                            struct stoker_checkpoint_probe *result_out, struct stoker_error *error)
{
    struct stoker_checkpoint_probe full = {0};
    struct stk_checkpoint_place place = {0};
    struct probe probe = {.place = &place, .result = &full};
    int status =
        stk_options_check_output(result_out, sizeof full, sizeof full.struct_size, "probe", error);

    status = status < 0 ? status : stk_engine_check(engine, error);
    status = status < 0 ? status : stk_place_init(&place, engine->io, path, true, error);
    if (status < 0) {
        return status;
    }
    status = run(&probe, error);
    stk_place_deinit(&place);
    return status < 0 ? status
                      : stk_options_write_output(result_out, &full, sizeof full, "probe", error);
}
