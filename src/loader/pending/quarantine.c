/* Bad samples: noted by workers, listed in the order of delivery. */
#include "loader/pending/quarantine.h"

#include "base/mem.h"
#include "base/random.h"
#include "engine/engine.h"
#include "format/bad_sample/bad_sample.h"
#include "io/write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_SLOTS_MIN 16u
/* The share of bad samples is checked from so many samples on. */
#define SHARE_SAMPLES_MIN 1000u

struct stk_quarantine_note {
    struct stk_quarantine_note *next;
    struct stk_bad_sample *damage;
    uint32_t slot, attempt;
};

/* Damaged samples by number: open addressing, half full at most. */
struct table {
    struct stk_bad_sample **slots;
    uint64_t slot_count, count;
};

struct stk_quarantine {
    struct stk_quarantine_options options; /* const after open */
    _Atomic uint64_t cached_count;
    pthread_mutex_t lock;
    struct {
        struct table cached; /* owns its entries */
    } locked;
    struct { /* the loader's caller */
        struct table listed;
        struct stk_bad_sample **list; /* owns its entries */
        uint64_t list_count, list_capacity;
        uint64_t met;                         /* samples listed, and each time one did not fit */
        struct stk_quarantine_note **pending; /* sorted; taken from the batch, not listed yet */
        uint64_t pending_at, pending_count;
        char *path; /* of the file, with its rank; NULL: none */
        struct stk_output *out;
        uint64_t written; /* of the list */
        char line[STK_BAD_SAMPLE_LINE_BYTES];
    } own;
};

static int open_file(struct stk_quarantine *quarantine, struct stoker_error *error);
static int continue_previous(struct stk_quarantine *quarantine, struct stoker_error *error);
static int write_lines(struct stk_quarantine *quarantine, struct stoker_error *error);
static int check_limits_locked(const struct stk_pending_batch *pending, struct stoker_error *error);

int stk_quarantine_open(struct stk_quarantine **quarantine_out,
                        const struct stk_quarantine_options *options, struct stoker_error *error)
{
    struct stk_quarantine *quarantine = stk_alloc(1, sizeof *quarantine);
    int status;

    *quarantine_out = NULL;
    if (!quarantine) {
        return stk_fail(error, -ENOMEM, "cannot open a loader", "free memory", "quarantine");
    }
    quarantine->options = *options;
    pthread_mutex_init(&quarantine->lock, NULL);
    status = options->after ? continue_previous(quarantine, error) : 0;
    quarantine->options.after = NULL;
    if (status == 0 && options->path) {
        status = open_file(quarantine, error);
    }
    if (status < 0) {
        stk_quarantine_close(quarantine);
        return status;
    }
    *quarantine_out = quarantine;
    return 0;
}

static void pending_free(struct stk_quarantine *quarantine)
{
    for (uint64_t i = quarantine->own.pending_at; i < quarantine->own.pending_count; i++) {
        stk_free(quarantine->own.pending[i]->damage);
        stk_free(quarantine->own.pending[i]);
    }
    stk_free(quarantine->own.pending);
    quarantine->own.pending = NULL;
    quarantine->own.pending_at = quarantine->own.pending_count = 0;
}

void stk_quarantine_close(struct stk_quarantine *quarantine)
{
    if (!quarantine) {
        return;
    }
    for (uint64_t i = 0; i < quarantine->locked.cached.slot_count; i++) {
        stk_free(quarantine->locked.cached.slots[i]);
    }
    for (uint64_t i = 0; i < quarantine->own.list_count; i++) {
        stk_free(quarantine->own.list[i]);
    }
    pending_free(quarantine);
    stk_io_close_output(quarantine->options.io, quarantine->own.out);
    stk_free(quarantine->own.path);
    stk_free(quarantine->own.list);
    stk_free(quarantine->own.listed.slots);
    stk_free(quarantine->locked.cached.slots);
    pthread_mutex_destroy(&quarantine->lock);
    stk_free(quarantine);
}

/* ---- the table ---- */

static struct stk_bad_sample **table_place(const struct table *table, uint64_t sample)
{
    uint64_t at = stk_mix64(sample) & (table->slot_count - 1);

    while (table->slots[at] && table->slots[at]->sample != sample) {
        at = (at + 1) & (table->slot_count - 1);
    }
    return &table->slots[at];
}

static struct stk_bad_sample *table_find(const struct table *table, uint64_t sample)
{
    return table->slot_count ? *table_place(table, sample) : NULL;
}

/* Adds a sample that is not in the table. Returns false if there is no memory; nothing changed. */
static bool table_add(struct table *table, struct stk_bad_sample *damage)
{
    if (2 * (table->count + 1) > table->slot_count) {
        struct table larger = {.slot_count = stk_max(2 * table->slot_count, TABLE_SLOTS_MIN)};

        larger.slots = stk_alloc(larger.slot_count, sizeof(struct stk_bad_sample *));
        if (!larger.slots) {
            return false;
        }
        for (uint64_t i = 0; i < table->slot_count; i++) {
            if (table->slots[i]) {
                *table_place(&larger, table->slots[i]->sample) = table->slots[i];
            }
        }
        stk_free(table->slots);
        table->slots = larger.slots;
        table->slot_count = larger.slot_count;
    }
    *table_place(table, damage->sample) = damage;
    table->count++;
    return true;
}

/* ---- workers ---- */

bool stk_quarantine_find(struct stk_quarantine *quarantine, uint64_t sample,
                         struct stoker_error *error)
{
    struct stk_bad_sample *found;

    /* Relaxed: a thread that does not yet see the new value detects the damage again. */
    if (atomic_load_explicit(&quarantine->cached_count, memory_order_relaxed) == 0) {
        return false;
    }
    pthread_mutex_lock(&quarantine->lock);
    found = table_find(&quarantine->locked.cached, sample);
    pthread_mutex_unlock(&quarantine->lock);
    if (found) {
        stk_bad_sample_error(found, error); /* constant, and valid until close */
    }
    return found != NULL;
}

/* Without memory or space it is not cached, and found again, which only costs time. */
static void add_cached(struct stk_quarantine *quarantine, const struct stk_quarantine_entry *entry)
{
    struct stk_bad_sample *damage = NULL;

    pthread_mutex_lock(&quarantine->lock);
    if (quarantine->locked.cached.count < quarantine->options.list_max &&
        !table_find(&quarantine->locked.cached, entry->sample)) {
        damage = stk_bad_sample_new(entry->sample, entry->error);
    }
    if (damage && table_add(&quarantine->locked.cached, damage)) {
        atomic_fetch_add_explicit(&quarantine->cached_count, 1, memory_order_relaxed);
        damage = NULL;
    }
    pthread_mutex_unlock(&quarantine->lock);
    stk_free(damage);
}

int stk_quarantine_add(struct stk_pending_batch *pending, const struct stk_quarantine_entry *entry,
                       struct stoker_error *error)
{
    struct stoker_loader *loader = pending->loader;
    struct stk_quarantine_note *note = stk_alloc(1, sizeof *note);

    if (note) {
        note->slot = entry->slot;
        note->attempt = entry->attempt;
        note->damage = stk_bad_sample_new(entry->sample, entry->error);
    }
    if (!note || !note->damage) {
        stk_free(note);
        return stk_fail(error, -ENOMEM, "cannot note a damaged sample", "free memory",
                        "sample %llu", (unsigned long long)entry->sample);
    }
    if (!entry->is_random) {
        add_cached(loader->quarantine, entry);
    }
    stk_engine_lock(loader->engine, NULL);
    note->next = pending->locked.notes;
    pending->locked.notes = note;
    stk_engine_unlock(loader->engine);
    return 0;
}

void stk_quarantine_notes_free(struct stk_quarantine_note *notes)
{
    struct stk_quarantine_note *next;

    for (; notes; notes = next) {
        next = notes->next;
        stk_free(notes->damage);
        stk_free(notes);
    }
}

/* ---- delivery ---- */

static int compare_notes(const void *a, const void *b)
{
    const struct stk_quarantine_note *one = *(struct stk_quarantine_note *const *)a,
                                     *two = *(struct stk_quarantine_note *const *)b;

    if (one->slot != two->slot) {
        return one->slot < two->slot ? -1 : 1;
    }
    return one->attempt < two->attempt ? -1 : one->attempt > two->attempt;
}

/* Takes the notes of a batch, sorted by slot and attempt. */
static int take_notes(struct stk_quarantine *quarantine, struct stk_pending_batch *pending,
                      struct stoker_error *error)
{
    uint64_t count = 0;

    if (!pending->locked.notes || quarantine->own.pending) {
        return 0;
    }
    for (struct stk_quarantine_note *note = pending->locked.notes; note; note = note->next) {
        count++;
    }
    quarantine->own.pending = stk_alloc(count, sizeof(struct stk_quarantine_note *));
    if (!quarantine->own.pending) {
        return stk_fail(error, -ENOMEM, "cannot list the damaged samples", "free memory",
                        "%llu samples", (unsigned long long)count);
    }
    for (struct stk_quarantine_note *note = pending->locked.notes; note; note = note->next) {
        quarantine->own.pending[quarantine->own.pending_count++] = note;
    }
    pending->locked.notes = NULL;
    qsort(quarantine->own.pending, count, sizeof(struct stk_quarantine_note *), compare_notes);
    return 0;
}

/* Takes ownership of the damage, unless it fails. */
static int list_add(struct stk_quarantine *quarantine, struct stk_bad_sample *damage,
                    struct stoker_error *error)
{
    if (table_find(&quarantine->own.listed, damage->sample)) {
        stk_free(damage);
        return 0;
    }
    if (quarantine->own.list_count == quarantine->options.list_max) {
        quarantine->own.met++;
        stk_free(damage);
        return 0;
    }
    if (quarantine->own.list_count == quarantine->own.list_capacity) {
        uint64_t capacity = stk_max(2 * quarantine->own.list_capacity, TABLE_SLOTS_MIN);
        struct stk_bad_sample **larger =
            stk_realloc(quarantine->own.list, quarantine->own.list_capacity, capacity,
                        sizeof(struct stk_bad_sample *));
        if (!larger) {
            goto no_memory;
        }
        quarantine->own.list = larger;
        quarantine->own.list_capacity = capacity;
    }
    if (!table_add(&quarantine->own.listed, damage)) {
        goto no_memory;
    }
    quarantine->own.list[quarantine->own.list_count++] = damage;
    quarantine->own.met++;
    return 0;
no_memory:
    return stk_fail(error, -ENOMEM, "cannot list the damaged samples", "free memory",
                    "%llu samples", (unsigned long long)quarantine->own.list_count);
}

/* Copies the list of the previous loader. Samples have the same numbers there, since a data set
 * that grows has the old one as its first part. */
static int continue_previous(struct stk_quarantine *quarantine, struct stoker_error *error)
{
    const struct stk_quarantine *after = quarantine->options.after;
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < after->own.list_count; i++) {
        const struct stk_bad_sample *damage = after->own.list[i];
        struct stoker_error found = {0};
        struct stk_bad_sample *copy;

        stk_bad_sample_error(damage, &found);
        copy = stk_bad_sample_new(damage->sample, &found);
        status =
            copy ? list_add(quarantine, copy, error)
                 : stk_fail(error, -ENOMEM, "cannot open a loader", "free memory", "quarantine");
        if (status < 0) {
            stk_free(copy);
        }
    }
    quarantine->options.delivered_before += after->options.delivered_before;
    quarantine->options.substituted_before += after->options.substituted_before;
    quarantine->own.met = after->own.met;
    quarantine->own.written = stk_min(after->own.written, quarantine->own.list_count);
    return status;
}

static int list_pending(struct stk_quarantine *quarantine, struct stoker_error *error)
{
    int status = 0;

    while (status == 0 && quarantine->own.pending_at < quarantine->own.pending_count) {
        struct stk_quarantine_note *note = quarantine->own.pending[quarantine->own.pending_at];

        status = list_add(quarantine, note->damage, error);
        if (status == 0) {
            stk_free(note);
            quarantine->own.pending_at++;
        }
    }
    if (status == 0) {
        pending_free(quarantine);
        status = write_lines(quarantine, error);
    }
    return status;
}

static bool has_unwritten(const struct stk_quarantine *quarantine)
{
    return quarantine->own.pending ||
           (quarantine->own.path && quarantine->own.written < quarantine->own.list_count);
}

int stk_quarantine_deliver_locked(struct stk_pending_batch *pending, struct stoker_error *error)
{
    struct stoker_loader *loader = pending->loader;
    struct stk_quarantine *quarantine = loader->quarantine;
    int status = 0;

    /* Repeated until nothing is left: entries that an earlier call could not list come first. */
    while (status == 0 && (pending->locked.notes || has_unwritten(quarantine))) {
        status = take_notes(quarantine, pending, error);
        /* The caller of this loader waits: no other thread cancels its batches. */
        stk_engine_unlock(loader->engine);
        status = status < 0 ? status : list_pending(quarantine, error);
        stk_engine_lock(loader->engine, NULL);
    }
    return status < 0 ? status : check_limits_locked(pending, error);
}

/* ---- the file ---- */

/* True if these bytes are a line of the list, or the start of one that a kill truncated. */
static bool begins_line(const char *text, int64_t bytes)
{
    return memcmp(text, STK_BAD_SAMPLE_LINE_BEGIN,
                  stk_min((uint64_t)bytes, strlen(STK_BAD_SAMPLE_LINE_BEGIN))) == 0;
}

/* Checks that a file that exists is a list of an earlier run: opening it cuts off its last line if
 * that is incomplete, which would destroy another file. */
static int check_list(const struct stk_quarantine *quarantine, struct stk_file *file, char *text,
                      struct stoker_error *error)
{
    struct stk_stat about;
    int status = stk_io_stat_file(file, &about, error);
    uint64_t last_bytes = status < 0 ? 0 : stk_min(about.bytes, STK_LINE_BYTES_MAX);
    int64_t got, head = status < 0 ? 0 : stk_io_read_wait(file, 0, text, last_bytes);
    const char *end;

    if (status < 0) {
        return status;
    }
    if (head < 0) {
        return stk_io_fail_read(file, head, "cannot read the quarantine list", error);
    }
    if (begins_line(text, head)) {
        got = stk_io_read_wait(file, about.bytes - last_bytes, text, last_bytes);
        end = got > 0 ? memrchr(text, '\n', (size_t)got) : NULL;
        end = end ? end + 1 : text; /* a list below STK_LINE_BYTES_MAX may have no line end yet */
        if (got >= 0 && (end > text || about.bytes < STK_LINE_BYTES_MAX) &&
            begins_line(end, text + got - end)) {
            return 0;
        }
    }
    return stk_fail(error, STOKER_ERROR_ARGUMENT,
                    "the quarantine file exists, but is not a list of bad samples",
                    "name another file; this one is not changed", "'%.600s'", quarantine->own.path);
}

static int check_file(const struct stk_quarantine *quarantine, struct stoker_error *error)
{
    struct stk_io *io = quarantine->options.io;
    char *text = stk_alloc(STK_LINE_BYTES_MAX, 1);
    struct stk_file *file = NULL;
    int status = text ? stk_io_open_file(io, quarantine->own.path, &file, error)
                      : stk_fail_memory(error, "quarantine list");

    if (status == 0) {
        status = check_list(quarantine, file, text, error);
        stk_io_close_file(file);
    }
    stk_free(text);
    return status == -ENOENT ? 0 : status;
}

static int open_file(struct stk_quarantine *quarantine, struct stoker_error *error)
{
    const struct stk_quarantine_options *options = &quarantine->options;
    size_t capacity = strlen(options->path) + sizeof ".rank4294967295";
    int status;

    quarantine->own.path = stk_alloc(capacity, 1);
    if (!quarantine->own.path) {
        return stk_fail(error, -ENOMEM, "cannot open a loader", "free memory", "'%s'",
                        options->path);
    }
    if (options->world_size > 1) {
        /* It fits: capacity was computed for it. */
        snprintf(quarantine->own.path, capacity, "%s.rank%u", options->path, options->rank);
    } else {
        /* It fits: it is shorter. */
        snprintf(quarantine->own.path, capacity, "%s", options->path);
    }
    status = check_file(quarantine, error);
    return status < 0
               ? status
               : stk_io_append(options->io, quarantine->own.path, &quarantine->own.out, error);
}

/* Writes entries that are listed but not written. After an error the next call opens the file
 * again. */
static int write_lines(struct stk_quarantine *quarantine, struct stoker_error *error)
{
    struct stk_io *io = quarantine->options.io;
    int status = 0;

    while (status == 0 && quarantine->own.path &&
           quarantine->own.written < quarantine->own.list_count) {
        const struct stk_bad_sample *damage = quarantine->own.list[quarantine->own.written];

        if (!quarantine->own.out) {
            status = stk_io_append(io, quarantine->own.path, &quarantine->own.out, error);
        }
        if (status == 0) {
            status = stk_io_write(io, quarantine->own.out, quarantine->own.line,
                                  stk_bad_sample_line(damage, quarantine->own.line), error);
        }
        if (status == 0) {
            quarantine->own.written++;
        } else {
            stk_io_close_output(io, quarantine->own.out);
            quarantine->own.out = NULL;
        }
    }
    return status;
}

/* ---- limits ---- */

static int check_limits_locked(const struct stk_pending_batch *pending, struct stoker_error *error)
{
    const struct stoker_loader *loader = pending->loader;
    const struct stk_quarantine *quarantine = loader->quarantine;
    uint64_t met = quarantine->own.met;
    uint64_t samples =
        quarantine->options.delivered_before + loader->locked.delivered + pending->samples;
    uint64_t replaced = quarantine->options.substituted_before +
                        loader->locked.counters.substituted + pending->locked.substituted;
    char first[600] = "";

    if (quarantine->options.samples_max && met > quarantine->options.samples_max) {
        stk_bad_sample_describe(quarantine->own.list, quarantine->own.list_count, first,
                                sizeof first);
        return stk_fail(error, STOKER_ERROR_LIMIT,
                        "more samples are damaged than bad_samples_max allows",
                        "repair the data, or raise bad_samples_max; the quarantine lists them all",
                        "%llu damaged, %llu allowed: %s", (unsigned long long)met,
                        (unsigned long long)quarantine->options.samples_max, first);
    }
    if (quarantine->options.share_max > 0 && samples >= SHARE_SAMPLES_MIN &&
        (double)replaced > quarantine->options.share_max * (double)samples) {
        stk_bad_sample_describe(quarantine->own.list, quarantine->own.list_count, first,
                                sizeof first);
        return stk_fail(error, STOKER_ERROR_LIMIT,
                        "a larger share of the samples is damaged than bad_share_max allows",
                        "repair the data, or raise bad_share_max; the quarantine lists them all",
                        "%llu of %llu replaced, a share of %g allowed: %s",
                        (unsigned long long)replaced, (unsigned long long)samples,
                        quarantine->options.share_max, first);
    }
    return 0;
}

/* ---- the list ---- */

uint64_t stk_quarantine_count(const struct stk_quarantine *quarantine)
{
    return quarantine->own.met;
}

uint64_t stoker_loader_quarantine_count(const struct stoker_loader *loader)
{
    return loader->quarantine->own.list_count;
}

int stoker_loader_quarantine(const struct stoker_loader *loader, uint64_t index,
                             struct stoker_quarantine_entry *entry_out)
{
    const struct stk_quarantine *quarantine = loader->quarantine;

    return index < quarantine->own.list_count
               ? stk_bad_sample_entry(quarantine->own.list[index], entry_out)
               : STOKER_ERROR_ARGUMENT;
}
