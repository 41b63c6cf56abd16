/* Parses rules with a table of keys: type, field and range of each. */
#include "programs/fault_proxy/fault_script.h"

#include "base/mem.h"
#include "base/random.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum key_kind { KEY_TEXT, KEY_NUMBER, KEY_SIGNED, KEY_BOOL, KEY_SHARE, KEY_FAULT, KEY_HEADERS };

struct key {
    const char *name;
    uint32_t kind;
    size_t field;
    int64_t low, high; /* of numbers */
};

#define FIELD(name) offsetof(struct stk_fault_rule, name)
#define MS_MAX (24 * 3600 * 1000) /* a day */

static const struct key keys[] = {
    {"name", KEY_TEXT, FIELD(name), 0, 0},
    {"method", KEY_TEXT, FIELD(method), 0, 0},
    {"path", KEY_TEXT, FIELD(path), 0, 0},
    {"query", KEY_TEXT, FIELD(query), 0, 0},
    {"range", KEY_BOOL, FIELD(range), 0, 0},
    {"nth", KEY_NUMBER, FIELD(nth), 1, INT64_MAX},
    {"from", KEY_NUMBER, FIELD(from), 1, INT64_MAX},
    {"every", KEY_NUMBER, FIELD(every), 1, INT64_MAX},
    {"count", KEY_NUMBER, FIELD(count), 1, INT64_MAX},
    {"after_ms", KEY_NUMBER, FIELD(after_ms), 0, INT64_MAX},
    {"until_ms", KEY_NUMBER, FIELD(until_ms), 1, INT64_MAX},
    {"probability", KEY_SHARE, FIELD(probability), 0, 0},
    {"seed", KEY_NUMBER, FIELD(seed), 1, INT64_MAX},
    {"fault", KEY_FAULT, FIELD(fault), 0, 0},
    {"at", KEY_SIGNED, FIELD(at), -1, INT64_MAX / 2},
    {"status", KEY_NUMBER, FIELD(status), 200, 599},
    {"retry_after", KEY_NUMBER, FIELD(retry_after), 0, INT32_MAX},
    {"delay_ms", KEY_NUMBER, FIELD(delay_ms), 0, MS_MAX},
    {"rate", KEY_NUMBER, FIELD(rate), 1, INT64_C(1) << 40},
    {"ms", KEY_NUMBER, FIELD(ms), 1, MS_MAX},
    {"seconds", KEY_SIGNED, FIELD(seconds), -INT32_MAX, INT32_MAX},
    {"code", KEY_TEXT, FIELD(code), 0, 0},
    {"body", KEY_TEXT, FIELD(body), 0, 0},
    {"value", KEY_TEXT, FIELD(value), 0, 0},
    {"with", KEY_TEXT, FIELD(with), 0, 0},
    {"headers", KEY_HEADERS, FIELD(headers), 0, 0},
};

static const struct {
    const char *name, *does;
    bool ours;
} faults[] = {
#define FAULT_ROW(number, name, ours, does) {name, does, ours},
    STK_FAULTS(FAULT_ROW)
#undef FAULT_ROW
};

static int parse(struct stk_fault_script *script, struct stoker_error *error);
static int parse_rule(struct stk_fault_rule *rule, json_t *from, size_t number,
                      struct stoker_error *error);
static int read_key(struct stk_fault_rule *rule, const struct key *key, json_t *value);
static void defaults(struct stk_fault_rule *rule);
static bool fits(const struct stk_fault_rule *rule, const struct stk_fault_request *request);
static bool matches_schedule(const struct stk_fault_script *script,
                             const struct stk_fault_rule *rule);
static bool glob(const char *pattern, const char *text);
static int fail_rule(struct stoker_error *error, size_t rule, const char *what, const char *key);

int stk_fault_script_open(struct stk_fault_script *script, struct stk_view text,
                          struct stoker_error *error)
{
    json_error_t at = {0};
    int status;

    *script = (struct stk_fault_script){0};
    if (text.bytes > STK_FAULT_SCRIPT_BYTES_MAX) {
        return stk_fail(error, STOKER_ERROR_LIMIT, "the script is too long", "1 MiB is enough",
                        "%zu bytes", text.bytes);
    }
    script->root = json_loadb((const char *)text.data, text.bytes, JSON_REJECT_DUPLICATES, &at);
    if (!script->root) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "the script is not JSON",
                        "'stoker fault-proxy --help' shows one", "line %d: %s", at.line, at.text);
    }
    status = parse(script, error);
    if (status < 0) {
        stk_fault_script_deinit(script);
    }
    return status;
}

void stk_fault_script_deinit(struct stk_fault_script *script)
{
    json_decref(script->root);
    stk_free(script->rules);
    *script = (struct stk_fault_script){0};
}

struct stk_fault_rule *stk_fault_script_choose(struct stk_fault_script *script,
                                               const struct stk_fault_request *request)
{
    for (size_t i = 0; i < script->count; i++) {
        struct stk_fault_rule *rule = &script->rules[i];
        if (!fits(rule, request)) {
            continue;
        }
        rule->seen++;
        if (matches_schedule(script, rule)) {
            rule->fired++;
            return rule;
        }
    }
    return NULL;
}

const char *stk_fault_name(uint32_t fault, const char **does_out)
{
    if (does_out) {
        *does_out = faults[fault].does;
    }
    return faults[fault].name;
}

bool stk_fault_is_answer(uint32_t fault)
{
    return faults[fault].ours;
}

static int parse(struct stk_fault_script *script, struct stoker_error *error)
{
    json_t *rules = json_object_get(script->root, "rules");
    json_t *seed = json_object_get(script->root, "seed");
    int status = 0;

    if (!json_is_array(rules) || json_array_size(rules) > STK_FAULT_RULES_MAX ||
        (seed && !json_is_integer(seed)) || json_object_size(script->root) != 1u + (seed != NULL)) {
        return stk_fail(error, STOKER_ERROR_FORMAT,
                        "a script is {\"seed\": a number, \"rules\": [at most 1024]}",
                        "'stoker fault-proxy --help' shows one", "the whole script");
    }
    script->seed = (uint64_t)json_integer_value(seed);
    script->count = json_array_size(rules);
    script->rules = stk_alloc(script->count + 1, sizeof *script->rules);
    if (!script->rules) {
        return stk_fail_errno(error, ENOMEM, "cannot keep the rules", "free memory", "%zu rules",
                              script->count);
    }
    for (size_t i = 0; status == 0 && i < script->count; i++) {
        status = parse_rule(&script->rules[i], json_array_get(rules, i), i, error);
    }
    return status;
}

static int parse_rule(struct stk_fault_rule *rule, json_t *from, size_t number,
                      struct stoker_error *error)
{
    const char *name;
    json_t *value;

    rule->at = STK_FAULT_BEFORE;
    rule->fault = STK_FAULT_COUNT;
    rule->probability = 1;
    if (!json_is_object(from)) {
        return fail_rule(error, number, "a rule is an object", "{...}");
    }
    json_object_foreach(from, name, value)
    {
        size_t i = 0;
        while (i < STK_COUNT(keys) && strcmp(keys[i].name, name) != 0) {
            i++;
        }
        if (i == STK_COUNT(keys)) {
            return fail_rule(error, number, "a rule has no such key", name);
        }
        if (read_key(rule, &keys[i], value) < 0) {
            return fail_rule(error, number, "a rule has a value that it cannot mean", name);
        }
    }
    if (rule->fault == STK_FAULT_COUNT) {
        return fail_rule(error, number, "a rule names no fault", "fault");
    }
    if (rule->with && rule->with[0] != '/') {
        return fail_rule(error, number, "a path begins with /", "with");
    }
    defaults(rule);
    return 0;
}

static int read_fault(uint32_t *fault, const char *name)
{
    for (uint32_t i = 0; name && i < STK_COUNT(faults); i++) {
        if (strcmp(faults[i].name, name) == 0) {
            *fault = i;
            return 0;
        }
    }
    return -1;
}

/* Texts for a head must not contain a line end. */
static bool is_line(const char *text)
{
    return text && !strpbrk(text, "\r\n");
}

static int read_headers(json_t **headers, json_t *value)
{
    const char *name;
    json_t *text;

    if (!json_is_object(value)) {
        return -1;
    }
    json_object_foreach(value, name, text)
    {
        if (!is_line(name) || !name[0] || strpbrk(name, ": ") ||
            !is_line(json_string_value(text))) {
            return -1;
        }
    }
    *headers = value;
    return 0;
}

static int read_key(struct stk_fault_rule *rule, const struct key *key, json_t *value)
{
    void *field = (char *)rule + key->field;
    const char *text = json_string_value(value);
    int64_t number = json_integer_value(value);
    double share = json_number_value(value);

    switch ((enum key_kind)key->kind) {
    case KEY_TEXT:
        *(const char **)field = text;
        return text && (key->field == FIELD(body) || is_line(text)) ? 0 : -1;
    case KEY_NUMBER:
        *(uint64_t *)field = (uint64_t)number;
        return json_is_integer(value) && number >= key->low && number <= key->high ? 0 : -1;
    case KEY_SIGNED:
        *(int64_t *)field = number;
        return json_is_integer(value) && number >= key->low && number <= key->high ? 0 : -1;
    case KEY_BOOL:
        *(uint32_t *)field = json_is_true(value) ? 1 : 2;
        return json_is_boolean(value) ? 0 : -1;
    case KEY_SHARE:
        *(double *)field = share;
        return json_is_number(value) && share >= 0 && share <= 1 ? 0 : -1;
    case KEY_FAULT:
        return read_fault(field, text);
    case KEY_HEADERS:
        return read_headers(field, value);
    }
    return -1;
}

/* Default parameters of the faults. */
static void defaults(struct stk_fault_rule *rule)
{
    static const struct {
        uint64_t status, delay_ms, rate;
        int64_t seconds;
        const char *code, *value;
    } usual[STK_FAULT_COUNT] = {
        [STK_FAULT_DELAY] = {.delay_ms = 1000},
        [STK_FAULT_SLOW] = {.rate = 1},
        [STK_FAULT_SLOW_READ] = {.rate = 1},
        [STK_FAULT_STATUS] = {.status = 503},
        [STK_FAULT_ANSWER] = {.status = 200},
        [STK_FAULT_ERROR_BODY] = {.status = 200, .code = "InternalError"},
        [STK_FAULT_ETAG] = {.value = "\"an-object-that-was-replaced\""},
        [STK_FAULT_REDIRECT] = {.status = 307, .value = "http://169.254.169.254/latest/meta-data/"},
        [STK_FAULT_EXPIRED] = {.status = 400, .code = "ExpiredToken"},
        [STK_FAULT_SKEW] = {.seconds = -3600},
        [STK_FAULT_TOO_SKEWED] = {.status = 403, .seconds = 3600, .code = "RequestTimeTooSkewed"},
    };
    uint32_t fault = rule->fault;

    rule->status = rule->status ? rule->status : usual[fault].status;
    rule->delay_ms = rule->delay_ms ? rule->delay_ms : usual[fault].delay_ms;
    rule->rate = rule->rate ? rule->rate : usual[fault].rate;
    rule->seconds = rule->seconds ? rule->seconds : usual[fault].seconds;
    rule->code = rule->code ? rule->code : usual[fault].code;
    rule->value = rule->value ? rule->value : usual[fault].value;
    rule->name = rule->name ? rule->name : faults[fault].name;
}

static bool fits(const struct stk_fault_rule *rule, const struct stk_fault_request *request)
{
    return (!rule->method || strcmp(rule->method, request->method) == 0) &&
           (!rule->path || glob(rule->path, request->path)) &&
           (!rule->query || glob(rule->query, request->query)) &&
           (rule->range == 0 || (rule->range == 1) == request->range) &&
           request->now_ms >= rule->after_ms &&
           (rule->until_ms == 0 || request->now_ms < rule->until_ms);
}

static bool matches_schedule(const struct stk_fault_script *script,
                             const struct stk_fault_rule *rule)
{
    uint64_t number = (uint64_t)(rule - script->rules); /* below STK_FAULT_RULES_MAX */
    uint64_t own = rule->seed ? STK_FAULT_RULES_MAX + rule->seed : number;
    uint64_t word = stk_random_key(stk_random_key(script->seed, own), rule->seen);
    double drawn = ldexp((double)(word >> 11), -53); /* [0, 1) */

    return (rule->nth == 0 || rule->seen == rule->nth) && rule->seen >= rule->from &&
           (rule->every == 0 || rule->seen % rule->every == 0) &&
           (rule->count == 0 || rule->fired < rule->count) && drawn < rule->probability;
}

/* '*' matches any bytes, '?' one. Only the last of several stars is retried, so that matching takes
 * at most pattern x text steps. */
static bool glob(const char *pattern, const char *text)
{
    const char *star = NULL, *from = NULL;

    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            from = text;
        } else if (*pattern == *text || *pattern == '?') {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == 0;
}

static int fail_rule(struct stoker_error *error, size_t rule, const char *what, const char *key)
{
    return stk_fail(error, STOKER_ERROR_FORMAT, what,
                    "'stoker fault-proxy --help' lists the keys and faults", "rule %zu: '%.64s'",
                    rule + 1, key);
}
