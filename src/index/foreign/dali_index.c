/* Members out of the text of a wds2idx index. */
#include "index/foreign/dali_index.h"

#include <string.h>

/* A name of up to 100 bytes is in its header. Longer ones have an extended header before it, and
 * wds2idx writes wrong offsets for the members after it (DALI 2.4, GNU tar 1.34). */
enum { BLOCK = 512, NAME_BYTES_MAX = 100 };
#define SIZE_MAX_READ (1ull << 56) /* above any tar: so that no sum of two wraps */

static int fail(const struct stk_dali_index *dali, int status, const char *detail,
                struct stoker_error *error)
{
    uint64_t at = dali->text_bytes - dali->rest.bytes;

    stk_fail(error, status, "an index of DALI cannot be used", "make it again with wds2idx", "%s",
             detail);
    stk_error_set_location(error, NULL, at, NULL);
    return status;
}

/* Up to the next space or line's end, which stays. */
static struct stk_view take_word(struct stk_view *rest)
{
    struct stk_view word = {rest->data, 0};

    while (word.bytes < rest->bytes && word.data[word.bytes] != ' ' &&
           word.data[word.bytes] != '\n') {
        word.bytes++;
    }
    rest->data += word.bytes;
    rest->bytes -= word.bytes;
    return word;
}

static bool take_byte(struct stk_view *rest, uint8_t byte)
{
    if (rest->bytes == 0 || rest->data[0] != byte) {
        return false;
    }
    rest->data++;
    rest->bytes--;
    return true;
}

/* Decimal digits and nothing else, as Python's str() writes a number. */
static bool parse_number(struct stk_view word, uint64_t *number_out)
{
    uint64_t number = 0;

    if (word.bytes == 0 || word.bytes > 18 || (word.bytes > 1 && word.data[0] == '0')) {
        return false;
    }
    for (size_t i = 0; i < word.bytes; i++) {
        if (word.data[i] < '0' || word.data[i] > '9') {
            return false;
        }
        number = 10 * number + (word.data[i] - '0');
    }
    *number_out = number;
    return number <= SIZE_MAX_READ;
}

int stk_dali_index_open(struct stk_dali_index *dali, struct stk_view text,
                        struct stoker_error *error)
{
    struct stk_view version, count;

    *dali = (struct stk_dali_index){.rest = text, .text_bytes = text.bytes, .line_begins = true};
    version = take_word(&dali->rest);
    if (version.bytes < 2 || version.data[0] != 'v' || !take_byte(&dali->rest, ' ')) {
        return fail(dali, STOKER_ERROR_FORMAT, "it does not begin with a version", error);
    }
    if (version.bytes != 4 || memcmp(version.data, "v1.2", 4) != 0) {
        return fail(dali, STOKER_ERROR_UNSUPPORTED, "its version is not 1.2, the one with names",
                    error);
    }
    count = take_word(&dali->rest);
    if (!parse_number(count, &dali->samples) || !take_byte(&dali->rest, '\n')) {
        return fail(dali, STOKER_ERROR_FORMAT, "its first line has no number of samples", error);
    }
    return 0;
}

/* wds2idx cuts a name at the first dot of its last component; a name without a dot is used
 * completely. */
static bool extension_fits(struct stk_view name, struct stk_view extension)
{
    size_t at = name.bytes;

    while (at > 0 && name.data[at - 1] != '/') {
        at--;
    }
    while (at < name.bytes && name.data[at] != '.') {
        at++;
    }
    at = at < name.bytes ? at + 1 : 0;
    return name.bytes - at == extension.bytes &&
           memcmp(name.data + at, extension.data, extension.bytes) == 0;
}

int stk_dali_index_next(struct stk_dali_index *dali, struct stk_dali_index_member *member_out,
                        struct stoker_error *error)
{
    struct stk_view extension, name;
    uint64_t offset, bytes;

    if (dali->line_begins && dali->rest.bytes == 0) {
        return dali->lines == dali->samples
                   ? 0
                   : fail(dali, STOKER_ERROR_CORRUPT, "it ends before its last sample", error);
    }
    if (dali->line_begins && dali->lines++ == dali->samples) {
        return fail(dali, STOKER_ERROR_CORRUPT, "it has more samples than it states", error);
    }
    extension = take_word(&dali->rest);
    if (!take_byte(&dali->rest, ' ') || !parse_number(take_word(&dali->rest), &offset) ||
        !take_byte(&dali->rest, ' ') || !parse_number(take_word(&dali->rest), &bytes) ||
        !take_byte(&dali->rest, ' ')) {
        return fail(dali, STOKER_ERROR_CORRUPT,
                    "a line is not extension, offset, size and name; names with spaces do that",
                    error);
    }
    name = take_word(&dali->rest);
    if (name.bytes == 0 || !extension_fits(name, extension)) {
        return fail(dali, STOKER_ERROR_CORRUPT, "an extension is not that of its name", error);
    }
    if (memchr(name.data, '\\', name.bytes)) {
        return fail(dali, STOKER_ERROR_UNSUPPORTED, "a name has bytes that tar wrote as escapes",
                    error);
    }
    if (name.bytes > NAME_BYTES_MAX) {
        return fail(dali, STOKER_ERROR_UNSUPPORTED,
                    "a name has more than 100 bytes: wds2idx places such members wrongly", error);
    }
    if (offset % BLOCK != 0 || offset < dali->end + BLOCK) {
        return fail(dali, STOKER_ERROR_CORRUPT, "an offset is not behind the member before it",
                    error);
    }
    dali->line_begins = take_byte(&dali->rest, '\n');
    if (!dali->line_begins && !take_byte(&dali->rest, ' ')) {
        return fail(dali, STOKER_ERROR_CORRUPT, "a line has no end", error);
    }
    *member_out = (struct stk_dali_index_member){name, offset, bytes, dali->end};
    dali->end = stk_round_up(offset + bytes, BLOCK);
    return 1;
}
