/* Damaged samples: noted by workers, listed in the order of delivery. */
#include "loader/quarantine.h"

#include "base/hash.h"
#include "engine/engine.h"
#include "io/write.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_SLOTS_MIN 16u
/* A share says something only of so many samples. */
#define SHARE_SAMPLES_MIN 1000u
/* A sentence about the first entries: what fits a message. */
#define MESSAGE_ENTRIES 8u
/* Shard, key and reason at their longest, each byte as \u00XX. */
#define LINE_BYTES_MAX 8192u

/* One damaged sample; const. */
struct damage {
    uint64_t sample, offset;
    int status;
    const char *shard, *key, *what, *where, *advice; /* in text */
    char text[];
};

struct stk_note {
    struct stk_note *next;
    struct damage *damage;
    uint32_t slot, attempt;
};

/* Damaged samples by number: open addressing, half full at most. */
struct table {
    struct damage **slots;
    uint64_t slot_count, count;
};

struct stk_quarantine {
    struct stk_quarantine_options options; /* const after open */
    _Atomic uint64_t known_count;
    pthread_mutex_t lock;
    struct {
        struct table known; /* owns its entries */
    } locked;
    struct { /* the loader's caller */
        struct table listed;
        struct damage **list; /* owns its entries */
        uint64_t list_count, list_room;
        uint64_t met; /* samples met: those listed, and each meeting of one that found no room */
        struct stk_note **pending; /* sorted; taken from the flight, not listed yet */
        uint64_t pending_at, pending_count;
        char *path; /* of the file, with its rank; NULL: none */
        struct stk_out *out;
        uint64_t written; /* of the list */
        char line[LINE_BYTES_MAX];
    } own;
};

static int open_file(struct stk_quarantine *quarantine, struct stoker_error *error);
static int go_on(struct stk_quarantine *quarantine, struct stoker_error *error);
static int write_lines(struct stk_quarantine *quarantine, struct stoker_error *error);
static int weigh_locked(const struct stk_flight *flight, struct stoker_error *error);

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
    status = options->after ? go_on(quarantine, error) : 0;
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
    for (uint64_t i = 0; i < quarantine->locked.known.slot_count; i++) {
        stk_free(quarantine->locked.known.slots[i]);
    }
    for (uint64_t i = 0; i < quarantine->own.list_count; i++) {
        stk_free(quarantine->own.list[i]);
    }
    pending_free(quarantine);
    stk_io_close_out(quarantine->options.io, quarantine->own.out);
    stk_free(quarantine->own.path);
    stk_free(quarantine->own.list);
    stk_free(quarantine->own.listed.slots);
    stk_free(quarantine->locked.known.slots);
    pthread_mutex_destroy(&quarantine->lock);
    stk_free(quarantine);
}

/* ---- one damaged sample ---- */

static const char *append(char **at, const char *text)
{
    char *begin = *at;
    size_t bytes = strlen(text) + 1;

    memcpy(begin, text, bytes);
    *at += bytes;
    return begin;
}

static struct damage *damage_new(uint64_t sample, const struct stoker_error *error)
{
    size_t bytes = strlen(error->shard) + strlen(error->key) + strlen(error->what) +
                   strlen(error->where) + strlen(error->advice) + 5;
    struct damage *damage = stk_alloc(1, sizeof *damage + bytes);
    char *at;

    if (!damage) {
        return NULL;
    }
    at = damage->text;
    damage->sample = sample;
    damage->offset = error->offset;
    damage->status = error->status;
    damage->shard = append(&at, error->shard);
    damage->key = append(&at, error->key);
    damage->what = append(&at, error->what);
    damage->where = append(&at, error->where);
    damage->advice = append(&at, error->advice);
    return damage;
}

static void damage_error(const struct damage *damage, struct stoker_error *error)
{
    stk_fail(error, damage->status, damage->what, damage->advice, "%s", damage->where);
    error->offset = damage->offset;
    snprintf(error->shard, sizeof error->shard, "%s", damage->shard);
    snprintf(error->key, sizeof error->key, "%s", damage->key);
}

/* ---- the table ---- */

static struct damage **table_place(const struct table *table, uint64_t sample)
{
    uint64_t at = stk_mix(sample) & (table->slot_count - 1);

    while (table->slots[at] && table->slots[at]->sample != sample) {
        at = (at + 1) & (table->slot_count - 1);
    }
    return &table->slots[at];
}

static struct damage *table_find(const struct table *table, uint64_t sample)
{
    return table->slot_count ? *table_place(table, sample) : NULL;
}

/* Of a sample that is not in it. False: no memory, and nothing changed. */
static bool table_add(struct table *table, struct damage *damage)
{
    if (2 * (table->count + 1) > table->slot_count) {
        struct table larger = {.slot_count = stk_max(2 * table->slot_count, TABLE_SLOTS_MIN)};

        larger.slots = stk_alloc(larger.slot_count, sizeof(struct damage *));
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

bool stk_quarantine_knows(struct stk_quarantine *quarantine, uint64_t sample,
                          struct stoker_error *error)
{
    struct damage *found;

    /* Relaxed: who does not see it yet finds the damage once more. */
    if (atomic_load_explicit(&quarantine->known_count, memory_order_relaxed) == 0) {
        return false;
    }
    pthread_mutex_lock(&quarantine->lock);
    found = table_find(&quarantine->locked.known, sample);
    pthread_mutex_unlock(&quarantine->lock);
    if (found) {
        damage_error(found, error); /* const, and there until close */
    }
    return found != NULL;
}

/* No memory for it, or no room: then it is found again, which only costs time. */
static void learn(struct stk_quarantine *quarantine, const struct stk_finding *finding)
{
    struct damage *damage = NULL;

    pthread_mutex_lock(&quarantine->lock);
    if (quarantine->locked.known.count < quarantine->options.list_max &&
        !table_find(&quarantine->locked.known, finding->sample)) {
        damage = damage_new(finding->sample, finding->error);
    }
    if (damage && table_add(&quarantine->locked.known, damage)) {
        atomic_fetch_add_explicit(&quarantine->known_count, 1, memory_order_relaxed);
        damage = NULL;
    }
    pthread_mutex_unlock(&quarantine->lock);
    stk_free(damage);
}

int stk_quarantine_note(struct stk_flight *flight, const struct stk_finding *finding,
                        struct stoker_error *error)
{
    struct stoker_loader *loader = flight->loader;
    struct stk_note *note = stk_alloc(1, sizeof *note);

    if (note) {
        note->slot = finding->slot;
        note->attempt = finding->attempt;
        note->damage = damage_new(finding->sample, finding->error);
    }
    if (!note || !note->damage) {
        stk_free(note);
        return stk_fail(error, -ENOMEM, "cannot note a damaged sample", "free memory",
                        "sample %llu", (unsigned long long)finding->sample);
    }
    if (!finding->drawn) {
        learn(loader->quarantine, finding);
    }
    stk_engine_lock(loader->engine, NULL);
    note->next = flight->locked.notes;
    flight->locked.notes = note;
    stk_engine_unlock(loader->engine);
    return 0;
}

void stk_notes_free(struct stk_note *notes)
{
    struct stk_note *next;

    for (; notes; notes = next) {
        next = notes->next;
        stk_free(notes->damage);
        stk_free(notes);
    }
}

/* ---- delivery ---- */

static int compare_notes(const void *a, const void *b)
{
    const struct stk_note *one = *(struct stk_note *const *)a, *two = *(struct stk_note *const *)b;

    if (one->slot != two->slot) {
        return one->slot < two->slot ? -1 : 1;
    }
    return one->attempt < two->attempt ? -1 : one->attempt > two->attempt;
}

/* The flight's notes become what is pending, in the order of slots and attempts. */
static int take_notes(struct stk_quarantine *quarantine, struct stk_flight *flight,
                      struct stoker_error *error)
{
    uint64_t count = 0;

    if (!flight->locked.notes || quarantine->own.pending) {
        return 0;
    }
    for (struct stk_note *note = flight->locked.notes; note; note = note->next) {
        count++;
    }
    quarantine->own.pending = stk_alloc(count, sizeof(struct stk_note *));
    if (!quarantine->own.pending) {
        return stk_fail(error, -ENOMEM, "cannot list the damaged samples", "free memory",
                        "%llu samples", (unsigned long long)count);
    }
    for (struct stk_note *note = flight->locked.notes; note; note = note->next) {
        quarantine->own.pending[quarantine->own.pending_count++] = note;
    }
    flight->locked.notes = NULL;
    qsort(quarantine->own.pending, count, sizeof(struct stk_note *), compare_notes);
    return 0;
}

/* Takes the damage unless it fails. */
static int list_add(struct stk_quarantine *quarantine, struct damage *damage,
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
    if (quarantine->own.list_count == quarantine->own.list_room) {
        uint64_t room = stk_max(2 * quarantine->own.list_room, TABLE_SLOTS_MIN);
        struct damage **larger = stk_realloc(quarantine->own.list, quarantine->own.list_room, room,
                                             sizeof(struct damage *));
        if (!larger) {
            goto no_memory;
        }
        quarantine->own.list = larger;
        quarantine->own.list_room = room;
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

/* What the loader before it listed, and wrote to the file. Samples have the same numbers there: a
 * data set that grows has the old one as its first part. */
static int go_on(struct stk_quarantine *quarantine, struct stoker_error *error)
{
    const struct stk_quarantine *after = quarantine->options.after;
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < after->own.list_count; i++) {
        const struct damage *damage = after->own.list[i];
        struct stoker_error found = {0};
        struct damage *copy;

        damage_error(damage, &found);
        copy = damage_new(damage->sample, &found);
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
        struct stk_note *note = quarantine->own.pending[quarantine->own.pending_at];

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

static bool is_behind(const struct stk_quarantine *quarantine)
{
    return quarantine->own.pending ||
           (quarantine->own.path && quarantine->own.written < quarantine->own.list_count);
}

int stk_quarantine_deliver_locked(struct stk_flight *flight, struct stoker_error *error)
{
    struct stoker_loader *loader = flight->loader;
    struct stk_quarantine *quarantine = loader->quarantine;
    int status = 0;

    /* Again until nothing is left: what an earlier call could not list comes first. */
    while (status == 0 && (flight->locked.notes || is_behind(quarantine))) {
        status = take_notes(quarantine, flight, error);
        /* Nobody drops the flights of a loader whose caller waits. */
        stk_engine_unlock(loader->engine);
        status = status < 0 ? status : list_pending(quarantine, error);
        stk_engine_lock(loader->engine, NULL);
    }
    return status < 0 ? status : weigh_locked(flight, error);
}

/* ---- the file ---- */

static int open_file(struct stk_quarantine *quarantine, struct stoker_error *error)
{
    const struct stk_quarantine_options *options = &quarantine->options;
    size_t room = strlen(options->path) + sizeof ".rank4294967295";

    quarantine->own.path = stk_alloc(room, 1);
    if (!quarantine->own.path) {
        return stk_fail(error, -ENOMEM, "cannot open a loader", "free memory", "'%s'",
                        options->path);
    }
    if (options->world_size > 1) {
        snprintf(quarantine->own.path, room, "%s.rank%u", options->path, options->rank);
    } else {
        snprintf(quarantine->own.path, room, "%s", options->path);
    }
    return stk_io_append(options->io, quarantine->own.path, &quarantine->own.out, error);
}

/* Bytes of the UTF-8 character at `text` (RFC 3629) that is no ASCII; 0 when it is none. */
static uint32_t utf8_bytes(const uint8_t *text)
{
    uint32_t bytes = text[0] < 0xc2 ? 0 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
    uint32_t code = text[0] & (0xffu >> (bytes + 1));

    for (uint32_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (text[i] & 0x3f);
    }
    if ((bytes == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
        (bytes == 4 && (code < 0x10000 || code > 0x10ffff || text[0] > 0xf4))) {
        return 0;
    }
    return bytes;
}

/* A JSON string. Bytes that are no UTF-8 become \udcNN, as Python's surrogateescape. */
static void add_text(char **at, const char *text)
{
    const uint8_t *byte = (const uint8_t *)text;
    char *out = *at;

    *out++ = '"';
    while (*byte) {
        uint32_t bytes = *byte < 0x80 ? 1 : utf8_bytes(byte);

        if (*byte < 0x20 || *byte == '"' || *byte == '\\' || *byte == 0x7f) {
            out += snprintf(out, 7, "\\u%04x", *byte++);
        } else if (bytes == 0) {
            out += snprintf(out, 7, "\\udc%02x", *byte++);
        } else {
            memcpy(out, byte, bytes);
            out += bytes;
            byte += bytes;
        }
    }
    *out++ = '"';
    *at = out;
}

static_assert(6 * (sizeof((struct stoker_error *)0)->shard + sizeof((struct stoker_error *)0)->key +
                   sizeof((struct stoker_error *)0)->what) +
                      256 <=
                  LINE_BYTES_MAX,
              "a line has room for the longest entry");

/* {"shard": "a.tar", "key": "a/17", "offset": 512, "status": "STOKER_ERROR_CORRUPT",
 *  "reason": "...", "sample": 17} */
static size_t make_line(char line[LINE_BYTES_MAX], const struct damage *damage)
{
    char *at = line;

    at += snprintf(at, 16, "{\"shard\": ");
    add_text(&at, damage->shard);
    at += snprintf(at, 16, ", \"key\": ");
    add_text(&at, damage->key);
    if (damage->offset == STOKER_NO_OFFSET) {
        at += snprintf(at, 32, ", \"offset\": null");
    } else {
        at += snprintf(at, 48, ", \"offset\": %llu", (unsigned long long)damage->offset);
    }
    at += snprintf(at, 64, ", \"status\": \"%s\"", stoker_status_name(damage->status));
    at += snprintf(at, 16, ", \"reason\": ");
    add_text(&at, damage->what);
    at += snprintf(at, 48, ", \"sample\": %llu}\n", (unsigned long long)damage->sample);
    return (size_t)(at - line);
}

/* What is listed and not written yet. After a failure the next call opens the file anew. */
static int write_lines(struct stk_quarantine *quarantine, struct stoker_error *error)
{
    struct stk_io *io = quarantine->options.io;
    int status = 0;

    while (status == 0 && quarantine->own.path &&
           quarantine->own.written < quarantine->own.list_count) {
        const struct damage *damage = quarantine->own.list[quarantine->own.written];

        if (!quarantine->own.out) {
            status = stk_io_append(io, quarantine->own.path, &quarantine->own.out, error);
        }
        if (status == 0) {
            status = stk_io_write(io, quarantine->own.out, quarantine->own.line,
                                  make_line(quarantine->own.line, damage), error);
        }
        if (status == 0) {
            quarantine->own.written++;
        } else {
            stk_io_close_out(io, quarantine->own.out);
            quarantine->own.out = NULL;
        }
    }
    return status;
}

/* ---- limits ---- */

/* "'shard' key 'a': what; ..." */
static void describe(const struct stk_quarantine *quarantine, char *text, size_t bytes)
{
    size_t used = 0;

    for (uint64_t i = 0; i < stk_min(quarantine->own.list_count, MESSAGE_ENTRIES); i++) {
        const struct damage *damage = quarantine->own.list[i];
        char one[384];
        int length = snprintf(one, sizeof one, "%s'%.150s' key '%.80s': %.100s", i ? "; " : "",
                              damage->shard, damage->key, damage->what);

        if (length < 0 || used + (size_t)length >= bytes) {
            break;
        }
        memcpy(text + used, one, (size_t)length + 1);
        used += (size_t)length;
    }
}

static int weigh_locked(const struct stk_flight *flight, struct stoker_error *error)
{
    const struct stoker_loader *loader = flight->loader;
    const struct stk_quarantine *quarantine = loader->quarantine;
    uint64_t met = quarantine->own.met;
    uint64_t samples =
        quarantine->options.delivered_before + loader->locked.delivered + flight->samples;
    uint64_t replaced = quarantine->options.substituted_before +
                        loader->locked.counters.substituted + flight->locked.substituted;
    char first[600] = "";

    if (quarantine->options.samples_max && met > quarantine->options.samples_max) {
        describe(quarantine, first, sizeof first);
        return stk_fail(error, STOKER_ERROR_LIMIT,
                        "more samples are damaged than bad_samples_max allows",
                        "repair the data, or raise bad_samples_max; the quarantine lists them all",
                        "%llu damaged, %llu allowed: %s", (unsigned long long)met,
                        (unsigned long long)quarantine->options.samples_max, first);
    }
    if (quarantine->options.share_max > 0 && samples >= SHARE_SAMPLES_MIN &&
        (double)replaced > quarantine->options.share_max * (double)samples) {
        describe(quarantine, first, sizeof first);
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

uint64_t stk_quarantine_met(const struct stk_quarantine *quarantine)
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
    struct stoker_quarantine_entry entry = {.struct_size = entry_out->struct_size};
    const struct damage *damage;

    if (index >= quarantine->own.list_count || entry.struct_size > sizeof entry ||
        entry.struct_size < sizeof entry.struct_size) {
        return STOKER_ERROR_ARGUMENT;
    }
    damage = quarantine->own.list[index];
    entry.status = damage->status;
    entry.sample = damage->sample;
    entry.offset = damage->offset;
    entry.shard = damage->shard;
    entry.key = damage->key;
    entry.reason = damage->what;
    memcpy(entry_out, &entry, entry.struct_size);
    return 0;
}
