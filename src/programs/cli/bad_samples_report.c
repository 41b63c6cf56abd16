/* Damaged samples as a table, and as JSON. */
#include "programs/cli/bad_samples_report.h"

#include "programs/cli/terminal.h"

#include <stdio.h>
#include <string.h>

static void column(const char *text, size_t width)
{
    term_text(text);
    for (size_t used = strlen(text); used < width + 2; used++) {
        putchar(' ');
    }
}

void bad_samples_report(const struct bad_samples_list *list)
{
    struct stoker_quarantine_entry entry = {.struct_size = sizeof entry};
    char text[TERM_NUMBER_BYTES];
    size_t shard_width = 5, key_width = 3;

    if (list->total == 0) {
        return;
    }
    for (uint64_t i = 0; i < list->count; i++) {
        list->at(list->from, i, &entry);
        shard_width = strlen(entry.shard) > shard_width ? strlen(entry.shard) : shard_width;
        key_width = strlen(entry.key) > key_width ? strlen(entry.key) : key_width;
    }
    printf("\n%s damaged sample%s%s\n  ", term_count(text, list->total),
           list->total == 1 ? "" : "s", list->count < list->total ? "; the list is full:" : "");
    column("shard", shard_width);
    column("key", key_width);
    printf("%12s  reason\n", "offset");
    for (uint64_t i = 0; i < list->count && !term_closed(); i++) {
        list->at(list->from, i, &entry);
        printf("  ");
        column(entry.shard, shard_width);
        column(entry.key, key_width);
        if (entry.offset == STOKER_NO_OFFSET) {
            printf("%12s  ", "-");
        } else {
            printf("%12llu  ", (unsigned long long)entry.offset);
        }
        printf("%s\n", entry.reason);
    }
}

void bad_samples_json(const struct bad_samples_list *list)
{
    json_open("bad", '[');
    for (uint64_t i = 0; i < list->count; i++) {
        struct stoker_quarantine_entry entry = {.struct_size = sizeof entry};

        list->at(list->from, i, &entry);
        json_open(NULL, '{');
        json_str("shard", entry.shard);
        json_str("key", entry.key);
        if (entry.offset != STOKER_NO_OFFSET) {
            json_u64("offset", entry.offset);
        }
        json_str("status", stoker_status_name(entry.status));
        json_str("reason", entry.reason);
        if (entry.sample != STOKER_NO_SAMPLE) {
            json_u64("sample", entry.sample);
        }
        json_close('}');
    }
    json_close(']');
}
