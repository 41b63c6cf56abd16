/* storage/config/auth_response.h: parses what services and programs return about credentials: JSON,
 * and one element of XML. Pure.
 *
 *   untrusted text --stk_auth_response_json--> the wanted values, each within its bound
 *
 * Strict: duplicate keys, values that are too long or of another type, and text after the end are
 * refused. Errors contain no text of the response but names of keys and the service's error code.
 * Owner: values. Threads: any. Memory: Jansson's and expat's while they parse; strings are wiped
 * before that memory is freed. Bound: STK_AUTH_RESPONSE_BYTES_MAX; nesting as Jansson (2048) and
 * base/xml.h bound it. */
#ifndef STORAGE_CONFIG_AUTH_RESPONSE_H
#define STORAGE_CONFIG_AUTH_RESPONSE_H

#include "base/base.h"

#define STK_AUTH_RESPONSE_BYTES_MAX 65536u
#define STK_AUTH_RESPONSE_CODE_BYTES 64u

enum stk_auth_field_kind {
    STK_AUTH_FIELD_TEXT = 1,      /* into char[]; must not be empty */
    STK_AUTH_FIELD_LINES,         /* may have several lines, and may be missing */
    STK_AUTH_FIELD_OPTIONAL_TEXT, /* as TEXT, but may be missing, null or empty */
    STK_AUTH_FIELD_TIME,    /* RFC 3339, into uint64_t: seconds since 1970; unchanged if missing */
    STK_AUTH_FIELD_MS,      /* milliseconds since 1970, into uint64_t in seconds */
    STK_AUTH_FIELD_SECONDS, /* a number, or a string of one, into uint64_t; unchanged if missing */
    STK_AUTH_FIELD_ONE,     /* the number 1 */
    STK_AUTH_FIELD_LIST,    /* strings, into char[], each after a '\n'; may be missing */
};

/* A wanted value. "roleCredentials.accessKeyId" is in an object in the object. */
struct stk_auth_field {
    const char *path;
    uint32_t kind; /* enum stk_auth_field_kind */
    void *out;
    size_t out_bytes; /* if out is text */
};

/* Returns 0 on success, STOKER_ERROR_FORMAT with the name of the field if it is missing or
 * wrong, or STOKER_ERROR_LIMIT. what: "the answer of the metadata service", for errors. */
int stk_auth_response_json(struct stk_view text, const struct stk_auth_field *fields, size_t count,
                           const char *what, struct stoker_error *error);
/* Copies the text of the first <name> element of a document. False: there is none, it has elements
 * in it or a line end, it does not fit, or the document before its end is not well-formed. */
bool stk_auth_response_xml(struct stk_view text, const char *name, char *out, size_t out_bytes);
/* Copies the error code of a response ("AccessDenied", "invalid_grant"), up to the first character
 * other than a letter, digit, '.', '_' or '-'; "" if there is none. */
void stk_auth_response_code(struct stk_view text, char code_out[STK_AUTH_RESPONSE_CODE_BYTES]);
/* Copies a value of "Name=value;Name=value", Azure's connection strings; the first of that name.
 * Returns 1, 0 if there is none (out is unchanged), or STOKER_ERROR_LIMIT if it does not fit. */
int stk_connection_string_get(const char *text, const char *name, char *out, size_t out_bytes,
                              struct stoker_error *error);
/* Parses "2026-11-21T22:15:03Z", also with a fraction or an offset. */
bool stk_auth_response_time(const char *text, uint64_t *seconds_out);
/* Appends text as a JSON string. False: it does not fit, or has control characters. */
bool stk_auth_json_add_string(const char *text, char *out, size_t out_bytes, size_t *used);
/* Appends text as it is, then value as a JSON string (NULL: none). False: as above. */
bool stk_auth_json_add_member(const char *text, const char *value, char *out, size_t out_bytes,
                              size_t *used);
/* Parses "Sat, 21 Nov 2026 22:15:03 GMT", the Date header, in any locale. */
bool stk_auth_response_date(struct stk_view text, uint64_t *seconds_out);

#endif
