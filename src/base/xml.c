/* XML by expat: bounded, without document types. */
#include "base/xml.h"

#include "base/mem.h"

#include <errno.h>
#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parse {
    XML_Parser parser;
    const struct stk_xml *xml;
    int status;
    uint32_t depth;
    size_t text_bytes;
    bool is_cut;
};

/* expat may still call after it was stopped, for the end of an empty element. */
static void stop(struct parse *parse, int status)
{
    if (parse->status == 0 && status != 0) {
        parse->status = status;
        XML_StopParser(parse->parser, XML_FALSE);
    }
}

static void XMLCALL on_document_type(void *user, const XML_Char *name, const XML_Char *system,
                                     const XML_Char *public, int internal)
{
    (void)name;
    (void)system;
    (void)public;
    (void)internal;
    stop(user, STOKER_ERROR_CORRUPT);
}

static void XMLCALL on_start(void *user, const XML_Char *name, const XML_Char **attributes)
{
    struct parse *parse = user;
    struct stk_xml_element element = {.name = name, .attributes = attributes};

    parse->text_bytes = 0;
    parse->is_cut = false;
    element.depth = ++parse->depth;
    if (parse->status == 0 && parse->depth > STK_XML_DEPTH_MAX) {
        stop(parse, STOKER_ERROR_CORRUPT);
    } else if (parse->status == 0 && parse->xml->start) {
        stop(parse, parse->xml->start(parse->xml->owner, &element));
    }
}

static void XMLCALL on_text(void *user, const XML_Char *text, int bytes)
{
    struct parse *parse = user;
    size_t fits = stk_min((size_t)bytes, parse->xml->text_bytes_max - parse->text_bytes);

    memcpy(parse->xml->text + parse->text_bytes, text, fits);
    parse->text_bytes += fits;
    parse->is_cut = parse->is_cut || fits < (size_t)bytes;
}

static void XMLCALL on_end(void *user, const XML_Char *name)
{
    struct parse *parse = user;
    struct stk_xml_element element = {.name = name,
                                      .depth = parse->depth--,
                                      .text = parse->xml->text,
                                      .text_bytes = parse->text_bytes,
                                      .is_cut = parse->is_cut};

    parse->xml->text[parse->text_bytes] = '\0';
    if (parse->status == 0) {
        stop(parse, parse->xml->end(parse->xml->owner, &element));
    }
    parse->text_bytes = 0;
    parse->is_cut = false;
}

static XML_Parser create_parser(bool is_secret)
{
    static const XML_Memory_Handling_Suite wiped = {malloc, stk_wipe_realloc, stk_wipe_free};

    return XML_ParserCreate_MM(NULL, is_secret ? &wiped : NULL, NULL);
}

int stk_xml_parse(const struct stk_xml *xml, struct stk_view document)
{
    struct parse parse = {.xml = xml, .parser = create_parser(xml->is_secret)};
    enum XML_Status parsed = XML_STATUS_ERROR;

    if (!parse.parser) {
        return -ENOMEM;
    }
    while (document.bytes > 0 && memchr(" \t\r\n", document.data[0], 4)) {
        document.data++;
        document.bytes--;
    }
    XML_SetUserData(parse.parser, &parse);
    XML_SetElementHandler(parse.parser, on_start, on_end);
    XML_SetCharacterDataHandler(parse.parser, on_text);
    XML_SetStartDoctypeDeclHandler(parse.parser, on_document_type);
    if (document.bytes <= INT32_MAX) {
        parsed = XML_Parse(parse.parser, (const char *)document.data, (int)document.bytes, 1);
    }
    if (parse.status == 0 && parsed != XML_STATUS_OK) {
        parse.status =
            XML_GetErrorCode(parse.parser) == XML_ERROR_NO_MEMORY ? -ENOMEM : STOKER_ERROR_CORRUPT;
    }
    XML_ParserFree(parse.parser);
    return parse.status;
}

bool stk_xml_escape(const char *text, char *xml, size_t xml_bytes, size_t *used)
{
    for (; *text; text++) {
        char escaped[12];

        if (strchr("&<>\"'", *text) || (uint8_t)*text < ' ') {
            snprintf(escaped, sizeof escaped, "&#%u;", (uint8_t)*text);
        } else {
            escaped[0] = *text;
            escaped[1] = '\0';
        }
        if (xml_bytes - *used <= strlen(escaped)) {
            return false;
        }
        memcpy(xml + *used, escaped, strlen(escaped) + 1);
        *used += strlen(escaped);
    }
    return true;
}
