/* What a cache holds: the folders, and the objects whose blocks are listed, verified, dropped or
 * pinned. */
#include "storage/cache/node_cache.h"

#include "base/mem.h"
#include "base/options.h"
#include "base/thread.h"
#include "io/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GROW_MIN 64u

struct entry {
    struct stoker_cache_object object; /* its texts are in `texts` */
    char *texts;
};

struct stoker_cache_report {
    struct entry *entries;
    size_t count, allocated, next;
};

static int check_process(const struct stoker_cache *cache, struct stoker_error *error)
{
    return cache->pid == stk_process_id()
               ? 0
               : stk_fail(error, STOKER_ERROR_FORKED, "the cache was opened in another process",
                          "open it after fork, or start processes by spawn",
                          "process %ld, opened in %ld", (long)stk_process_id(), (long)cache->pid);
}

int stoker_cache_folder(struct stoker_cache *cache, size_t number,
                        struct stoker_cache_folder *folder)
{
    struct stoker_cache_folder full = {0};
    struct stk_cache_disk *disk;
    int status;

    if (number >= cache->disk_count) {
        return 0;
    }
    disk = &cache->disks[number];
    full.path = disk->path;
    full.bytes_used = stk_cache_disk_used(disk);
    full.bytes_max = stk_cache_disk_quota(disk);
    full.block_bytes = disk->status < 0 ? 0 : disk->index.block_bytes;
    full.status = disk->status < 0 ? disk->status
                  : stk_clock_ns() < atomic_load_explicit(&disk->paused_until, memory_order_relaxed)
                      ? -EAGAIN
                      : 0;
    for (uint32_t i = 0; disk->status == 0 && i < disk->index.slot_count; i++) {
        uint64_t state = atomic_load_explicit(&disk->index.slots[i].state, memory_order_relaxed);

        full.blocks += stk_cache_state_kind(state) == STK_CACHE_VALID;
        full.blocks_filling += stk_cache_state_kind(state) == STK_CACHE_FILLING;
        full.blocks_pinned +=
            stk_cache_state_kind(state) == STK_CACHE_VALID && stk_cache_state_is_pinned(state);
    }
    status = stk_options_write_output(folder, &full, sizeof full, "cache folder", NULL);
    return status < 0 ? status : 1;
}

/* ---- objects ---- */

static int add_entry(struct stoker_cache_report *report, const struct stk_cache_head *head)
{
    size_t url_bytes = strlen(head->url) + 1, tag_bytes = strlen(head->tag) + 1;
    struct entry *entry;

    if (report->count == report->allocated) {
        size_t more = report->allocated ? report->allocated * 2 : GROW_MIN;
        struct entry *grown =
            stk_realloc(report->entries, report->allocated, more, sizeof *report->entries);

        if (!grown) {
            return -ENOMEM;
        }
        report->entries = grown;
        report->allocated = more;
    }
    entry = &report->entries[report->count];
    entry->texts = stk_alloc(1, url_bytes + tag_bytes);
    if (!entry->texts) {
        return -ENOMEM;
    }
    memcpy(entry->texts, head->url, url_bytes);
    memcpy(entry->texts + url_bytes, head->tag, tag_bytes);
    entry->object = (struct stoker_cache_object){.url = entry->texts,
                                                 .etag = entry->texts + url_bytes,
                                                 .object_bytes = head->object_bytes,
                                                 .bytes = head->bytes,
                                                 .blocks = 1};
    report->count++;
    return 0;
}

static int compare(const void *a, const void *b)
{
    const struct stoker_cache_object *left = &((const struct entry *)a)->object;
    const struct stoker_cache_object *right = &((const struct entry *)b)->object;
    int order = strcmp(left->url, right->url);

    return order ? order : strcmp(left->etag, right->etag);
}

/* Sorts the entries and joins those of one object version. */
static void join(struct stoker_cache_report *report)
{
    size_t count = 0;

    if (report->count == 0) {
        return;
    }
    qsort(report->entries, report->count, sizeof *report->entries, compare);
    for (size_t i = 1; i < report->count; i++) {
        struct entry *to = &report->entries[count], *from = &report->entries[i];

        if (compare(to, from) == 0) {
            to->object.bytes += from->object.bytes;
            to->object.blocks += from->object.blocks;
            to->object.blocks_pinned += from->object.blocks_pinned;
            to->object.blocks_damaged += from->object.blocks_damaged;
            stk_free(from->texts);
        } else {
            report->entries[++count] = *from;
        }
    }
    report->count = count + 1;
}

/* Reads all of a block. Returns 0, or -EBADMSG if it is damaged. */
static int verify_block(struct stk_cache_disk *disk, const struct stk_cache_head *head,
                        uint8_t *buffer)
{
    struct stk_cache_block block = {.key = head->key,
                                    .offset = head->offset,
                                    .bytes = head->bytes,
                                    .object_bytes = head->object_bytes};
    struct stk_cache_part part = {.bytes = head->bytes, .buffer = buffer};

    return stk_cache_disk_read(disk, &block, &part) < 0 ? -EBADMSG : 0;
}

static int apply_slot(struct stoker_cache_report *report, struct stk_cache_disk *disk,
                      uint32_t slot, uint32_t action, const char *prefix, uint8_t *buffer)
{
    struct stk_cache_head head = {.bytes = 0};
    struct stoker_cache_object *object;
    uint64_t state;
    int found = stk_cache_disk_head(disk, slot, &head, &state), status;

    if (found == 0 || strncmp(head.url, prefix, strlen(prefix)) != 0) {
        return 0;
    }
    if (found < 0) {
        memset(&head, 0, sizeof head);
    }
    status = add_entry(report, &head);
    if (status < 0) {
        return status;
    }
    object = &report->entries[report->count - 1].object;
    object->blocks_damaged = found < 0;
    object->blocks_pinned = stk_cache_state_is_pinned(state);
    switch (action) {
    case STOKER_CACHE_VERIFY:
        object->blocks_damaged = found < 0 || verify_block(disk, &head, buffer) < 0;
        status = object->blocks_damaged ? stk_cache_disk_drop(disk, slot, state) : 0;
        break;
    case STOKER_CACHE_DROP:
        status = stk_cache_disk_drop(disk, slot, state);
        break;
    case STOKER_CACHE_PIN:
    case STOKER_CACHE_UNPIN:
        status = stk_cache_disk_pin(disk, slot, state, action == STOKER_CACHE_PIN);
        object->blocks_pinned = action == STOKER_CACHE_PIN;
        break;
    default:
        break;
    }
    return status == -ESTALE ? 0 : status; /* it was changed meanwhile */
}

int stoker_cache_report_open(struct stoker_cache_report **report_out, struct stoker_cache *cache,
                             uint32_t action, const char *url_prefix, struct stoker_error *error)
{
    struct stoker_cache_report *report;
    uint8_t *buffer = NULL;
    int status = check_process(cache, error);

    *report_out = NULL;
    if (status < 0) {
        return status;
    }
    if (action > STOKER_CACHE_UNPIN) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "there is no such action of a cache",
                        "use a value of enum stoker_cache_action", "%u", action);
    }
    report = stk_alloc(1, sizeof *report);
    buffer = report ? stk_alloc(1, STK_CACHE_BLOCK_BYTES_MAX) : NULL;
    status = buffer ? 0 : -ENOMEM;
    for (uint32_t i = 0; status == 0 && i < cache->disk_count; i++) {
        struct stk_cache_disk *disk = &cache->disks[i];
        uint32_t count = disk->status < 0 ? 0 : disk->index.slot_count;

        for (uint32_t slot = 0; status == 0 && slot < count; slot++) {
            status = apply_slot(report, disk, slot, action, url_prefix ? url_prefix : "", buffer);
        }
    }
    stk_free(buffer);
    if (status < 0) {
        stoker_cache_report_close(report);
        return status == -ENOMEM ? stk_fail_memory(error, "report of a cache")
                                 : stk_fail_errno(error, -status, "cannot change the cache",
                                                  "check the disk, or try again", "cache");
    }
    join(report);
    *report_out = report;
    return 0;
}

int stoker_cache_report_next(struct stoker_cache_report *report, struct stoker_cache_object *object)
{
    int status;

    if (report->next == report->count) {
        return 0;
    }
    status = stk_options_write_output(object, &report->entries[report->next].object, sizeof *object,
                                      "cached object", NULL);
    if (status < 0) {
        return status;
    }
    report->next++;
    return 1;
}

void stoker_cache_report_close(struct stoker_cache_report *report)
{
    if (report) {
        for (size_t i = 0; i < report->count; i++) {
            stk_free(report->entries[i].texts);
        }
        stk_free(report->entries);
        stk_free(report);
    }
}

int64_t stoker_cache_collect(struct stoker_cache *cache, struct stoker_error *error)
{
    int64_t freed = check_process(cache, error);

    for (uint32_t i = 0; freed >= 0 && i < cache->disk_count; i++) {
        int64_t more = stk_cache_disk_collect(&cache->disks[i]);

        if (more < 0) {
            return stk_fail_errno(error, (int)-more, "cannot change the cache",
                                  "another process holds its lock: it may have been stopped",
                                  "'%s'", cache->disks[i].path);
        }
        freed += more;
    }
    return freed;
}
