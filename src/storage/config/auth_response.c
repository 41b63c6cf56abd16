/* Fields of a JSON document by a table of their paths, one element of an XML document by name. */
#include "storage/config/auth_response.h"

#include "base/crypto/secret_memory.h"
#include "base/mem.h"
#include "base/text/parse_number.h"
#include "base/xml.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PATH_BYTES_MAX 128u
#define YEAR_MAX 9999
#define DATE_BYTES 29u /* "Sat, 21 Nov 2026 22:15:03 GMT" */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local bool is_secret; /* what Jansson frees now */

static json_t *find(json_t *root, const char *path);
static bool copy_value(const struct stk_auth_field *field, json_t *value);
static void wipe(json_t *value);
static bool number_at(const char **text, unsigned digits, int *value_out);

/* Jansson's parser makes its own copies of the text that it reads. */
static void free_json(void *memory)
{
    if (is_secret) {
        stk_wipe_free(memory);
    } else {
        stk_wipe_skip_free(memory);
    }
}

/* Replaces only the C library's allocator: an allocator that the process has set stays in
 * use. */
static void hook_allocator(void)
{
    json_malloc_t allocates;
    json_free_t frees;

    json_get_alloc_funcs(&allocates, &frees);
    if (allocates == malloc && frees == free) {
        json_set_alloc_funcs(malloc, free_json);
    }
}

static json_t *load(struct stk_view text, size_t flags, json_error_t *at)
{
    json_t *root;

    pthread_once(&once, hook_allocator);
    is_secret = true;
    root = json_loadb((const char *)text.data, text.bytes, flags, at);
    is_secret = false;
    if (at) {
        explicit_bzero(at->text, sizeof at->text); /* it cites */
    }
    return root;
}

static void unload(json_t *root)
{
    wipe(root);
    is_secret = true;
    json_decref(root);
    is_secret = false;
}

int stk_auth_response_json(struct stk_view text, const struct stk_auth_field *fields, size_t count,
                           const char *what, struct stoker_error *error)
{
    json_error_t at = {0};
    json_t *root;
    int status = 0;

    if (text.bytes > STK_AUTH_RESPONSE_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "an answer about credentials is too long",
                        "check which server responds there", "%s: %zu bytes", what, text.bytes);
    }
    root = load(text, JSON_REJECT_DUPLICATES, &at);
    if (!json_is_object(root)) {
        status = stk_fail(error, STOKER_ERROR_FORMAT, "credentials are no JSON object",
                          "check which server responds there", "%s", what);
    }
    for (size_t i = 0; status == 0 && i < count; i++) {
        if (!copy_value(&fields[i], find(root, fields[i].path))) {
            status =
                stk_fail(error, STOKER_ERROR_FORMAT, "a field of credentials is missing or invalid",
                         "check which server responds there", "'%s' in %s", fields[i].path, what);
        }
    }
    unload(root);
    return status;
}

/* The text of the first element with this name; without elements in it. */
struct search {
    const char *name;
    uint32_t depth; /* of the element; 0: it has not begun */
    char *out;
    size_t out_bytes;
};

static int on_start(void *owner, const struct stk_xml_element *element)
{
    struct search *search = owner;

    if (search->depth > 0) {
        return STOKER_ERROR_FORMAT;
    }
    search->depth = strcmp(element->name, search->name) == 0 ? element->depth : 0;
    return 0;
}

/* A text of several lines could end a header early. */
static int on_end(void *owner, const struct stk_xml_element *element)
{
    struct search *search = owner;

    if (search->depth == 0) {
        return 0;
    }
    if (element->is_cut || element->text_bytes == 0 || element->text_bytes >= search->out_bytes ||
        strpbrk(element->text, "\r\n")) {
        return STOKER_ERROR_FORMAT;
    }
    memcpy(search->out, element->text, element->text_bytes + 1);
    return 1;
}

bool stk_auth_response_xml(struct stk_view text, const char *name, char *out, size_t out_bytes)
{
    struct search search = {.name = name, .out = out, .out_bytes = out_bytes};
    struct stk_xml xml = {.start = on_start,
                          .end = on_end,
                          .owner = &search,
                          .text_bytes_max = out_bytes,
                          .is_secret = true};
    bool found;

    if (text.bytes > STK_AUTH_RESPONSE_BYTES_MAX) {
        return false;
    }
    xml.text = stk_secret_alloc(out_bytes + 1);
    found = xml.text && stk_xml_parse(&xml, text) == 1;
    stk_secret_free(xml.text);
    return found;
}

void stk_auth_response_code(struct stk_view text, char code_out[STK_AUTH_RESPONSE_CODE_BYTES])
{
    static const char *const names[] = {"code", "Code", "error", "__type", "error.code"};
    json_t *root = text.bytes <= STK_AUTH_RESPONSE_BYTES_MAX ? load(text, 0, NULL) : NULL;
    const char *code = NULL;

    code_out[0] = 0;
    for (size_t i = 0; !code && i < STK_COUNT(names); i++) {
        code = json_string_value(find(root, names[i]));
    }
    if (code) {
        snprintf(code_out, STK_AUTH_RESPONSE_CODE_BYTES, "%s", code);
    } else if (!root &&
               !stk_auth_response_xml(text, "Code", code_out, STK_AUTH_RESPONSE_CODE_BYTES)) {
        code_out[0] = 0;
    }
    unload(root);
    for (size_t i = 0; code_out[i]; i++) {
        if (!isalnum((unsigned char)code_out[i]) && !strchr("._-", code_out[i])) {
            code_out[i] = 0;
        }
    }
}

/* Days since 1970 of a date of the Gregorian calendar (H. Hinnant's days_from_civil). */
static int64_t days_of(int year, int month, int day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = y / 400, of_era = y - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

int stk_connection_string_get(const char *text, const char *name, char *out, size_t out_bytes,
                              struct stoker_error *error)
{
    size_t name_bytes = strlen(name), bytes, value_bytes;

    for (; *text; text += bytes + (text[bytes] == ';')) {
        bytes = strcspn(text, ";");
        if (bytes > name_bytes && text[name_bytes] == '=' &&
            strncasecmp(text, name, name_bytes) == 0) {
            value_bytes = bytes - name_bytes - 1;
            if (value_bytes >= out_bytes) {
                return stk_fail(error, STOKER_ERROR_LIMIT,
                                "a value in a connection string is too long", "shorten it",
                                "AZURE_STORAGE_CONNECTION_STRING: %s, %zu bytes", name,
                                value_bytes);
            }
            memcpy(out, text + name_bytes + 1, value_bytes);
            out[value_bytes] = '\0';
            return 1;
        }
    }
    return 0;
}

bool stk_auth_response_time(const char *text, uint64_t *seconds_out)
{
    int year, month, day, hour, minute, second, off_hour = 0, off_minute = 0, sign = 0;
    int64_t seconds;

    if (!number_at(&text, 4, &year) || *text++ != '-' || !number_at(&text, 2, &month) ||
        *text++ != '-' || !number_at(&text, 2, &day) || !strchr("Tt ", *text) || !*text++ ||
        !number_at(&text, 2, &hour) || *text++ != ':' || !number_at(&text, 2, &minute) ||
        *text++ != ':' || !number_at(&text, 2, &second)) {
        return false;
    }
    if (*text == '.') {
        text += 1 + strspn(text + 1, "0123456789");
    }
    if (*text == '+' || *text == '-') {
        sign = *text++ == '+' ? 1 : -1;
        if (!number_at(&text, 2, &off_hour) || *text++ != ':' ||
            !number_at(&text, 2, &off_minute)) {
            return false;
        }
    } else if (strncmp(text, "UTC", 3) == 0) {
        text += 3; /* old tokens of SSO */
    } else if (*text++ != 'Z') {
        return false;
    }
    if (*text || year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 ||
        minute > 59 || second > 60) {
        return false;
    }
    seconds = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second -
              sign * (off_hour * 3600 + off_minute * 60);
    *seconds_out = seconds > 0 ? (uint64_t)seconds : 0;
    return true;
}

bool stk_auth_json_add_string(const char *text, char *out, size_t out_bytes, size_t *used)
{
    if (*used + 3 > out_bytes) {
        return false;
    }
    out[(*used)++] = '"';
    for (; *text; text++) {
        if ((uint8_t)*text < ' ' || *used + 4 > out_bytes) {
            return false;
        }
        if (*text == '"' || *text == '\\') {
            out[(*used)++] = '\\';
        }
        out[(*used)++] = *text;
    }
    out[(*used)++] = '"';
    out[*used] = 0;
    return true;
}

bool stk_auth_json_add_member(const char *text, const char *value, char *out, size_t out_bytes,
                              size_t *used)
{
    size_t bytes = strlen(text);

    if (*used >= out_bytes || bytes >= out_bytes - *used) {
        return false;
    }
    memcpy(out + *used, text, bytes + 1);
    *used += bytes;
    return !value || stk_auth_json_add_string(value, out, out_bytes, used);
}

bool stk_auth_response_date(struct stk_view text, uint64_t *seconds_out)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    char copy[DATE_BYTES + 1] = "";
    const char *day_at = copy + 5, *at = copy + 12;
    int year, day, month = 0, hour, minute, second;

    if (text.bytes != DATE_BYTES) {
        return false;
    }
    memcpy(copy, text.data, DATE_BYTES);
    while (month < 12 && strncmp(copy + 8, months + 3 * month, 3) != 0) {
        month++;
    }
    if (month == 12 || memcmp(copy + 3, ", ", 2) != 0 || copy[7] != ' ' || copy[11] != ' ' ||
        !number_at(&day_at, 2, &day) || !number_at(&at, 4, &year) || *at++ != ' ' ||
        !number_at(&at, 2, &hour) || *at++ != ':' || !number_at(&at, 2, &minute) || *at++ != ':' ||
        !number_at(&at, 2, &second) || strcmp(at, " GMT") != 0) {
        return false;
    }
    if (year < 1970 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60) {
        return false;
    }
    *seconds_out =
        (uint64_t)(days_of(year, month + 1, day) * 86400 + hour * 3600 + minute * 60 + second);
    return true;
}

static json_t *find(json_t *root, const char *path)
{
    char part[PATH_BYTES_MAX];

    while (root && path) {
        const char *dot = strchr(path, '.');
        snprintf(part, sizeof part, "%.*s", (int)(dot ? (size_t)(dot - path) : strlen(path)), path);
        root = json_object_get(root, part);
        path = dot ? dot + 1 : NULL;
    }
    return root;
}

static bool copy_text(const struct stk_auth_field *field, json_t *value)
{
    size_t bytes = json_string_length(value);

    if (!json_is_string(value) || bytes >= field->out_bytes ||
        memchr(json_string_value(value), 0, bytes) ||
        (field->kind != STK_AUTH_FIELD_LINES && strpbrk(json_string_value(value), "\r\n"))) {
        return false; /* a header cannot contain a text of several lines */
    }
    memcpy(field->out, json_string_value(value), bytes + 1);
    return true;
}

static bool copy_seconds(const struct stk_auth_field *field, json_t *value)
{
    json_int_t number = json_integer_value(value);
    const char *text = json_string_value(value);
    const char *end;
    int64_t parsed;

    if (text) {
        if (!isdigit((unsigned char)text[0]) || !stk_parse_int64(text, &end, &parsed) || *end) {
            return false;
        }
        number = parsed;
    } else if (!json_is_integer(value) || number < 0) {
        return false;
    }
    *(uint64_t *)field->out = (uint64_t)number;
    return true;
}

static bool copy_list(const struct stk_auth_field *field, json_t *value)
{
    char *out = field->out;
    size_t used = 0, index;
    json_t *inner;

    json_array_foreach(value, index, inner)
    {
        const char *text = json_string_value(inner);
        size_t bytes = json_string_length(inner);

        if (!text || bytes + 2 > field->out_bytes - used || strpbrk(text, "\r\n") ||
            strlen(text) != bytes) {
            return false;
        }
        out[used] = '\n';
        memcpy(out + used + 1, text, bytes + 1);
        used += bytes + 1;
    }
    return json_is_array(value);
}

static bool copy_value(const struct stk_auth_field *field, json_t *value)
{
    bool missing = !value || json_is_null(value);

    switch ((enum stk_auth_field_kind)field->kind) {
    case STK_AUTH_FIELD_TEXT:
        return copy_text(field, value) && ((const char *)field->out)[0];
    case STK_AUTH_FIELD_LINES:
    case STK_AUTH_FIELD_OPTIONAL_TEXT:
        return missing || copy_text(field, value);
    case STK_AUTH_FIELD_TIME:
        return missing || (json_is_string(value) && stk_auth_response_time(json_string_value(value),
                                                                           (uint64_t *)field->out));
    case STK_AUTH_FIELD_MS:
        *(uint64_t *)field->out = (uint64_t)json_integer_value(value) / 1000;
        return json_is_integer(value) && json_integer_value(value) > 0;
    case STK_AUTH_FIELD_SECONDS:
        return missing || copy_seconds(field, value);
    case STK_AUTH_FIELD_ONE:
        return json_integer_value(value) == 1;
    case STK_AUTH_FIELD_LIST:
        return missing || copy_list(field, value);
    }
    return false;
}

/* Overwrites strings before Jansson frees them; the caller has copied them. Visits only objects
 * in objects: responses about credentials have no lists of secrets. */
static void wipe(json_t *value)
{
    const char *name;
    json_t *inner;

    json_object_foreach(value, name, inner)
    {
        if (json_is_object(inner)) {
            wipe(inner);
        } else if (json_is_string(inner)) {
            union {
                const char *read;
                char *write;
            } text = {.read = json_string_value(inner)};
            explicit_bzero(text.write, json_string_length(inner));
        }
    }
}

static bool number_at(const char **text, unsigned digits, int *value_out)
{
    *value_out = 0;
    for (unsigned i = 0; i < digits; i++) {
        if (!isdigit((unsigned char)**text)) {
            return false;
        }
        *value_out = *value_out * 10 + (*(*text)++ - '0');
    }
    return *value_out <= YEAR_MAX;
}
