/* base/xml.h: reads small XML documents, as services of object stores send them. Pure.
 *
 *   document --stk_xml_parse--> start(element), end(element with its text), ...
 *
 * expat parses. A document with a document type declaration is refused: so it has no entities of
 * its own, only the five of XML and character references. White space may come before the XML
 * declaration: servers send it to keep a connection open while they work.
 * Owner: the call. Threads: any. Memory: expat's, about twice the document; wiped when it is freed
 * if the document is secret. Bound: STK_XML_DEPTH_MAX elements inside each other; text_bytes_max of
 * the text of an element. */
#ifndef BASE_XML_H
#define BASE_XML_H

#include "base/base.h"

#define STK_XML_DEPTH_MAX 8u

struct stk_xml_element {
    const char *name;
    uint32_t depth; /* 1: the root */
    /* start only: name, value, name, value, ..., NULL. */
    const char *const *attributes;
    /* end only: the text after the last element inside this one, NUL-terminated. is_cut: it was
     * longer than text_bytes_max, and these are its first bytes. */
    const char *text;
    size_t text_bytes;
    bool is_cut;
};

struct stk_xml {
    /* Called for each element in the order of the document; the element is valid during the call.
     * 0: continue. Another value stops the parser, which returns that value. start may be NULL. */
    int (*start)(void *owner, const struct stk_xml_element *element);
    int (*end)(void *owner, const struct stk_xml_element *element);
    void *owner;
    char *text; /* a buffer of text_bytes_max + 1 bytes */
    size_t text_bytes_max;
    bool is_secret; /* the memory of the parser is wiped */
};

/* Returns 0 if the document is well-formed, the value of a callback that is not 0 (elements after
 * it are not looked at), STOKER_ERROR_CORRUPT if the document is not well-formed, declares a
 * document type or is too deep (callbacks ran for all elements before that), -ENOMEM. */
int stk_xml_parse(const struct stk_xml *xml, struct stk_view document);
/* Appends text to the `used` bytes at xml, with characters that XML reserves and control characters
 * as character references. Returns false if text does not fit; *used then has what did. */
bool stk_xml_escape(const char *text, char *xml, size_t xml_bytes, size_t *used);

#endif
