/* Damaged samples: kept as their error was, told as JSON and in sentences. */
#include "format/bad_sample/bad_sample.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A sentence about the first entries: what fits a message. */
#define MESSAGE_ENTRIES 8u

/* ---- one damaged sample ---- */

static const char *append(char **at, const char *text)
{
    char *begin = *at;
    size_t bytes = strlen(text) + 1;

    memcpy(begin, text, bytes);
    *at += bytes;
    return begin;
}

struct stk_damage *stk_damage_new(uint64_t sample, const struct stoker_error *error)
{
    size_t bytes = strlen(error->shard) + strlen(error->key) + strlen(error->what) +
                   strlen(error->where) + strlen(error->advice) + 5;
    struct stk_damage *damage = stk_alloc(1, sizeof *damage + bytes);
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

void stk_damage_error(const struct stk_damage *damage, struct stoker_error *error)
{
    stk_fail(error, damage->status, damage->what, damage->advice, "%s", damage->where);
    error->offset = damage->offset;
    snprintf(error->shard, sizeof error->shard, "%s", damage->shard);
    snprintf(error->key, sizeof error->key, "%s", damage->key);
}

int stk_damage_entry(const struct stk_damage *damage, struct stoker_quarantine_entry *entry_out)
{
    struct stoker_quarantine_entry entry = {.struct_size = entry_out->struct_size};

    if (entry.struct_size > sizeof entry || entry.struct_size < sizeof entry.struct_size) {
        return STOKER_ERROR_ARGUMENT;
    }
    entry.status = damage->status;
    entry.sample = damage->sample;
    entry.offset = damage->offset;
    entry.shard = damage->shard;
    entry.key = damage->key;
    entry.reason = damage->what;
    memcpy(entry_out, &entry, entry.struct_size);
    return 0;
}

/* ---- a line of the file ---- */

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

/* A number, or null for the one that means none. */
static void add_number(char **at, const char *name, uint64_t number, uint64_t none)
{
    *at += number == none ? snprintf(*at, 32, ", \"%s\": null", name)
                          : snprintf(*at, 48, ", \"%s\": %llu", name, (unsigned long long)number);
}

static_assert(6 * (sizeof((struct stoker_error *)0)->shard + sizeof((struct stoker_error *)0)->key +
                   sizeof((struct stoker_error *)0)->what) +
                      256 <=
                  STK_DAMAGE_LINE_BYTES,
              "a line has room for the longest entry");

size_t stk_damage_line(const struct stk_damage *damage, char line[STK_DAMAGE_LINE_BYTES])
{
    char *at = line;

    at += snprintf(at, 16, "{\"shard\": ");
    add_text(&at, damage->shard);
    at += snprintf(at, 16, ", \"key\": ");
    add_text(&at, damage->key);
    add_number(&at, "offset", damage->offset, STOKER_NO_OFFSET);
    at += snprintf(at, 64, ", \"status\": \"%s\"", stoker_status_name(damage->status));
    at += snprintf(at, 16, ", \"reason\": ");
    add_text(&at, damage->what);
    add_number(&at, "sample", damage->sample, STOKER_NO_SAMPLE);
    at += snprintf(at, 4, "}\n");
    return (size_t)(at - line);
}

void stk_damage_describe(struct stk_damage *const *list, uint64_t count, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = 0;
    for (uint64_t i = 0; i < stk_min(count, MESSAGE_ENTRIES); i++) {
        char one[384];
        int length = snprintf(one, sizeof one, "%s'%.150s' key '%.80s': %.100s", i ? "; " : "",
                              list[i]->shard, list[i]->key, list[i]->what);

        if (length < 0 || used + (size_t)length >= bytes) {
            break;
        }
        memcpy(text + used, one, (size_t)length + 1);
        used += (size_t)length;
    }
}
