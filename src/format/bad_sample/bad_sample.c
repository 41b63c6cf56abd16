/* Damaged samples: made from errors, and written as JSON and as sentences. */
#include "format/bad_sample/bad_sample.h"

#include "base/mem.h"
#include "base/options.h"
#include "base/text/utf8.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Writes a sentence about the first entries, as many as fit into a message. */
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

struct stk_bad_sample *stk_bad_sample_new(uint64_t sample, const struct stoker_error *error)
{
    size_t bytes = strlen(error->shard) + strlen(error->key) + strlen(error->what) +
                   strlen(error->where) + strlen(error->advice) + 5;
    struct stk_bad_sample *bad_sample = stk_alloc(1, sizeof *bad_sample + bytes);
    char *at;

    if (!bad_sample) {
        return NULL;
    }
    at = bad_sample->text;
    bad_sample->sample = sample;
    bad_sample->offset = error->offset;
    bad_sample->status = error->status;
    bad_sample->shard = append(&at, error->shard);
    bad_sample->key = append(&at, error->key);
    bad_sample->what = append(&at, error->what);
    bad_sample->where = append(&at, error->where);
    bad_sample->advice = append(&at, error->advice);
    return bad_sample;
}

void stk_bad_sample_error(const struct stk_bad_sample *bad_sample, struct stoker_error *error)
{
    stk_fail(error, bad_sample->status, bad_sample->what, bad_sample->advice, "%s",
             bad_sample->where);
    error->offset = bad_sample->offset;
    /* Long ones are cut, as in each error. */
    snprintf(error->shard, sizeof error->shard, "%s", bad_sample->shard);
    /* A long key is cut, too. */
    snprintf(error->key, sizeof error->key, "%s", bad_sample->key);
}

int stk_bad_sample_entry(const struct stk_bad_sample *bad_sample,
                         struct stoker_quarantine_entry *entry_out)
{
    struct stoker_quarantine_entry entry = {0};

    entry.status = bad_sample->status;
    entry.sample = bad_sample->sample;
    entry.offset = bad_sample->offset;
    entry.shard = bad_sample->shard;
    entry.key = bad_sample->key;
    entry.reason = bad_sample->what;
    return stk_options_write_output(entry_out, &entry, sizeof entry, "quarantine entry", NULL);
}

/* ---- a line of the file ---- */

/* A JSON string. Bytes that are no UTF-8 become \udcNN, as Python's surrogateescape. */
static void add_text(char **at, const char *text)
{
    const uint8_t *byte = (const uint8_t *)text;
    char *out = *at;

    *out++ = '"';
    while (*byte) {
        uint32_t bytes = stk_utf8_character(byte, 4);

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

/* A number, or null for "unknown". */
static void add_number(char **at, const char *name, uint64_t number, uint64_t none)
{
    *at += number == none ? snprintf(*at, 32, ", \"%s\": null", name)
                          : snprintf(*at, 48, ", \"%s\": %llu", name, (unsigned long long)number);
}

static_assert(6 * (sizeof((struct stoker_error *)0)->shard + sizeof((struct stoker_error *)0)->key +
                   sizeof((struct stoker_error *)0)->what) +
                      256 <=
                  STK_BAD_SAMPLE_LINE_BYTES,
              "a line has room for the longest entry");

size_t stk_bad_sample_line(const struct stk_bad_sample *bad_sample,
                           char line[STK_BAD_SAMPLE_LINE_BYTES])
{
    char *at = line;

    at += snprintf(at, 16, STK_BAD_SAMPLE_LINE_BEGIN);
    add_text(&at, bad_sample->shard);
    at += snprintf(at, 16, ", \"key\": ");
    add_text(&at, bad_sample->key);
    add_number(&at, "offset", bad_sample->offset, STOKER_NO_OFFSET);
    at += snprintf(at, 64, ", \"status\": \"%s\"", stoker_status_name(bad_sample->status));
    at += snprintf(at, 16, ", \"reason\": ");
    add_text(&at, bad_sample->what);
    add_number(&at, "sample", bad_sample->sample, STOKER_NO_SAMPLE);
    at += snprintf(at, 4, "}\n");
    return (size_t)(at - line);
}

void stk_bad_sample_describe(struct stk_bad_sample *const *list, uint64_t count, char *text,
                             size_t bytes)
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
