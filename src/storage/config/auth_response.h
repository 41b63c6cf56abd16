/* storage/config/auth_response.h: what services and programs tell of credentials: JSON and a little
 * XML. Pure.
 *
 *   text of a stranger --stk_tell_...--> the values that are asked for, each within its bound
 *
 * Strict: a key twice, a value too long or of another type, and text behind the end are refused.
 * No error holds anything of the text but names of keys and a service's error code.
 * Owner: values. Threads: any. Memory: Jansson's while it parses; strings are wiped before they
 * are given back. Bound: STK_AUTH_RESPONSE_BYTES_MAX, nesting as Jansson bounds it (2048). */
#ifndef STORAGE_CONFIG_AUTH_RESPONSE_H
#define STORAGE_CONFIG_AUTH_RESPONSE_H

#include "base/base.h"

#define STK_AUTH_RESPONSE_BYTES_MAX 65536u
#define STK_AUTH_RESPONSE_CODE_BYTES 64u

enum stk_auth_field_kind {
    STK_AUTH_FIELD_TEXT = 1,      /* into char[]; empty is refused */
    STK_AUTH_FIELD_LINES,         /* of several lines; may be missing */
    STK_AUTH_FIELD_OPTIONAL_TEXT, /* likewise, but it may be missing, null or empty */
    STK_AUTH_FIELD_TIME, /* RFC 3339, into uint64_t: seconds since 1970; may be missing: untouched
                          */
    STK_AUTH_FIELD_MS,   /* a number of milliseconds since 1970, into uint64_t: seconds */
    STK_AUTH_FIELD_SECONDS, /* a number, or text of one, into uint64_t; may be missing: untouched */
    STK_AUTH_FIELD_ONE,     /* the number 1 */
    STK_AUTH_FIELD_LIST,    /* of strings, into char[]: each behind a '\n'; may be missing */
};

/* A value that is asked for: "roleCredentials.accessKeyId" is inside another object. */
struct stk_auth_field {
    const char *path;
    uint32_t kind; /* enum stk_auth_field_kind */
    void *out;
    size_t out_bytes; /* of text */
};

/* FORMAT names the field that is missing or wrong; what: "the answer of the metadata service". */
int stk_auth_response_json(struct stk_view text, const struct stk_auth_field *fields, size_t count,
                           const char *what, struct stoker_error *error);
/* The text of the first <name> element. False: it is not there, not text, or does not fit. Texts
 * with a document type have no elements. */
bool stk_auth_response_xml(struct stk_view text, const char *name, char *out, size_t out_bytes);
/* The error code in a refusal ("AccessDenied", "invalid_grant"), by letters, digits, '.', '_', '-'
 * only; "" where there is none. */
void stk_auth_response_code(struct stk_view text, char code_out[STK_AUTH_RESPONSE_CODE_BYTES]);
/* A part of "Name=value;Name=value", as Azure writes connection strings: of the first of that name.
 * False: it is not there, or does not fit. */
bool stk_connection_string_get(const char *text, const char *name, char *out, size_t out_bytes);
/* "2026-11-21T22:15:03Z", also with a fraction or an offset. */
bool stk_auth_response_time(const char *text, uint64_t *seconds_out);
/* Adds text as a string of JSON. False: it does not fit, or has control characters. */
bool stk_auth_json_add_string(const char *text, char *out, size_t out_bytes, size_t *used);
/* Adds text, and behind it the value as a string of JSON (NULL: none). False: as quote. */
bool stk_auth_json_add_member(const char *text, const char *value, char *out, size_t out_bytes,
                              size_t *used);
/* "Sat, 21 Nov 2026 22:15:03 GMT", as servers tell their clock; whatever the locale is. */
bool stk_auth_response_date(struct stk_view text, uint64_t *seconds_out);

#endif
