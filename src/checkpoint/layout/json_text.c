/* Appends JSON to a growing text. */
#include "checkpoint/layout/json_text.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool grow(struct stk_json_text *json, size_t more)
{
    size_t need = json->bytes + more + 1, capacity = json->capacity ? json->capacity : 256;
    char *grown;

    if (json->failed || need <= json->capacity) {
        return !json->failed;
    }
    while (capacity < need) {
        capacity *= 2;
    }
    grown = stk_realloc(json->text, json->capacity, capacity, 1);
    if (!grown) {
        json->failed = true;
        return false;
    }
    json->text = grown;
    json->capacity = capacity;
    return true;
}

void stk_json_text_add(struct stk_json_text *json, const char *text, size_t bytes)
{
    if (grow(json, bytes)) {
        memcpy(json->text + json->bytes, text, bytes);
        json->bytes += bytes;
        json->text[json->bytes] = '\0';
    }
}

void stk_json_text_print(struct stk_json_text *json, const char *format, ...)
{
    char text[256];
    va_list arguments;
    int bytes;

    va_start(arguments, format);
    bytes = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    STK_ASSERT(bytes >= 0 && (size_t)bytes < sizeof text);
    stk_json_text_add(json, text, (size_t)bytes);
}

void stk_json_text_string(struct stk_json_text *json, const char *text)
{
    stk_json_text_add(json, "\"", 1);
    while (*text) {
        size_t plain = 0;

        while ((unsigned char)text[plain] >= 0x20 && text[plain] != '"' && text[plain] != '\\' &&
               text[plain] != 0x7f) {
            plain++;
        }
        stk_json_text_add(json, text, plain);
        text += plain;
        if (*text == '"' || *text == '\\') {
            stk_json_text_print(json, "\\%c", *text++);
        } else if (*text) {
            stk_json_text_print(json, "\\u%04x", (unsigned char)*text++);
        }
    }
    stk_json_text_add(json, "\"", 1);
}

void stk_json_text_fill(struct stk_json_text *json, char character, size_t count)
{
    if (grow(json, count)) {
        memset(json->text + json->bytes, character, count);
        json->bytes += count;
        json->text[json->bytes] = '\0';
    }
}

void stk_json_text_little(struct stk_json_text *json, uint64_t number, uint32_t bytes)
{
    char text[8];

    for (uint32_t i = 0; i < bytes; i++) {
        text[i] = (char)(number >> (8 * i));
    }
    stk_json_text_add(json, text, bytes);
}

void stk_json_text_deinit(struct stk_json_text *json)
{
    stk_free(json->text);
    *json = (struct stk_json_text){0};
}
