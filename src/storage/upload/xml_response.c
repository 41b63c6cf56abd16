/* Documents of S3, by expat. */
#include "storage/upload/xml_response.h"

#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <string.h>

struct reading {
    XML_Parser parser;
    struct stk_xml_response *response;
    int status;
    uint32_t depth, item_depth; /* 0: in no item */
    bool is_root, too_long;
    uint32_t text_bytes;
    char text[STK_XML_RESPONSE_TEXT_BYTES + 1];
};

static void stop(struct reading *reading, int status)
{
    reading->status = status;
    XML_StopParser(reading->parser, XML_FALSE);
}

static void XMLCALL on_doctype(void *user, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public, int internal)
{
    (void)name;
    (void)system;
    (void)public;
    (void)internal;
    stop(user, STOKER_ERROR_CORRUPT);
}

static void reset_texts(struct stk_xml_response *response)
{
    for (size_t i = 0; i < STK_COUNT(response->texts); i++) {
        response->texts[i][0] = '\0';
    }
}

static void XMLCALL on_start(void *user, const XML_Char *name, const XML_Char **attributes)
{
    struct reading *reading = user;
    struct stk_xml_response *response = reading->response;

    (void)attributes;
    reading->text_bytes = 0;
    reading->too_long = false;
    if (++reading->depth > STK_XML_RESPONSE_DEPTH_MAX) {
        stop(reading, STOKER_ERROR_CORRUPT);
    } else if (reading->depth == 1) {
        reading->is_root = strcmp(name, response->root) == 0;
    } else if ((reading->depth == 2 || reading->depth == 3) && reading->item_depth == 0 &&
               response->item && strcmp(name, response->item) == 0) {
        reading->item_depth = reading->depth; /* Azure's stand in a list of a list */
        reset_texts(response);
    }
}

static void XMLCALL on_text(void *user, const XML_Char *text, int bytes)
{
    struct reading *reading = user;

    if ((uint32_t)bytes > STK_XML_RESPONSE_TEXT_BYTES - reading->text_bytes) {
        reading->too_long = true;
        return;
    }
    memcpy(reading->text + reading->text_bytes, text, (size_t)bytes);
    reading->text_bytes += (uint32_t)bytes;
}

static void XMLCALL on_end(void *user, const XML_Char *name)
{
    struct reading *reading = user;
    struct stk_xml_response *response = reading->response;
    bool in_item = reading->item_depth != 0 && reading->depth == reading->item_depth + 1;

    reading->text[reading->too_long ? 0 : reading->text_bytes] = '\0';
    if (in_item || (!response->item && reading->depth == 2)) {
        for (size_t i = 0; i < STK_COUNT(response->names) && response->names[i]; i++) {
            if (strcmp(response->names[i], name) == 0) {
                memcpy(response->texts[i], reading->text, strlen(reading->text) + 1);
            }
        }
    } else if (reading->depth == 2 && reading->item_depth == 0) {
        for (size_t i = 0; i < STK_COUNT(response->outer_names) && response->outer_names[i]; i++) {
            if (strcmp(response->outer_names[i], name) == 0) {
                memcpy(response->outer[i], reading->text, strlen(reading->text) + 1);
            }
        }
    } else if (reading->item_depth != 0 && reading->depth == reading->item_depth) {
        int status = response->on_item(response->owner, response);

        reading->item_depth = 0;
        reset_texts(response);
        if (status < 0) {
            stop(reading, status);
        }
    }
    reading->text_bytes = 0;
    reading->depth--;
}

int stk_xml_response_parse(struct stk_xml_response *response, struct stk_view document)
{
    struct reading reading = {.response = response, .parser = XML_ParserCreate(NULL)};
    int status = 0;

    if (!reading.parser) {
        return -ENOMEM;
    }
    reset_texts(response);
    for (size_t i = 0; i < STK_COUNT(response->outer); i++) {
        response->outer[i][0] = '\0';
    }
    XML_SetUserData(reading.parser, &reading);
    XML_SetElementHandler(reading.parser, on_start, on_end);
    XML_SetCharacterDataHandler(reading.parser, on_text);
    XML_SetStartDoctypeDeclHandler(reading.parser, on_doctype);
    if (document.bytes > INT32_MAX ||
        XML_Parse(reading.parser, (const char *)document.data, (int)document.bytes, 1) !=
            XML_STATUS_OK ||
        !reading.is_root) {
        status = reading.status < 0 ? reading.status : STOKER_ERROR_CORRUPT;
    }
    XML_ParserFree(reading.parser);
    return status;
}

void stk_xml_response_copy_etag(const char *text, char *etag, size_t etag_bytes)
{
    size_t bytes = strlen(text), quoted = bytes >= 2 && text[0] == '"' && text[bytes - 1] == '"';

    bytes -= 2 * quoted;
    if (bytes >= etag_bytes) {
        bytes = 0;
    }
    memcpy(etag, text + quoted, bytes);
    etag[bytes] = '\0';
}

bool stk_xml_response_escape(const char *text, char *xml, size_t xml_bytes, size_t *used)
{
    for (; *text; text++) {
        char plain[12];

        if (strchr("&<>\"'", *text) || (uint8_t)*text < ' ') {
            snprintf(plain, sizeof plain, "&#%u;", (uint8_t)*text);
        } else {
            plain[0] = *text;
            plain[1] = '\0';
        }
        if (xml_bytes - *used <= strlen(plain)) {
            return false;
        }
        memcpy(xml + *used, plain, strlen(plain) + 1);
        *used += strlen(plain);
    }
    return true;
}
