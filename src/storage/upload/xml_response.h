/* storage/upload/xml_response.h: what S3 answers to those who write: small documents of XML.
 *
 *   document --stk_xml_response_parse--> items, each told once it is whole
 *
 * Read by expat, which unfolds no entities here: whatever declares some is refused.
 * Owner: the call. Threads: any. Memory: expat's. Bound: STK_XML_RESPONSE_TEXT_BYTES of a text,
 * STK_XML_RESPONSE_DEPTH_MAX. */
#ifndef STORAGE_UPLOAD_XML_RESPONSE_H
#define STORAGE_UPLOAD_XML_RESPONSE_H

#include "base/base.h"

#define STK_XML_RESPONSE_TEXT_BYTES 3200u /* a key of 1,024 bytes, encoded */
#define STK_XML_RESPONSE_DEPTH_MAX 8u

/* An item of a list, or the document itself (item NULL): the texts of the elements directly in it
 * that are asked for; longer ones are cut to nothing. */
struct stk_xml_response {
    const char *root;     /* what the document must be */
    const char *item;     /* "Part"; NULL: only the document */
    const char *names[6]; /* of elements whose texts are wanted, in items and in the document */
    char texts[6][STK_XML_RESPONSE_TEXT_BYTES + 1];
    const char *outer_names[3]; /* with items: of elements beside them */
    char outer[3][STK_XML_RESPONSE_TEXT_BYTES + 1];
    /* An item is whole; below 0 ends it. Its texts are empty again afterwards. */
    int (*on_item)(void *owner, const struct stk_xml_response *answer);
    void *owner;
};

/* 0; found's status; CORRUPT. Where item is NULL the texts are those of the document. */
int stk_xml_response_parse(struct stk_xml_response *answer, struct stk_view document);
/* An ETag without the quotes that it may have; empty: it has no place in etag. */
void stk_xml_response_copy_etag(const char *text, char *etag, size_t etag_bytes);
/* Adds text to the `used` bytes of XML, with what it may not hold replaced; false: does not fit. */
bool stk_xml_response_escape(const char *text, char *xml, size_t xml_bytes, size_t *used);

#endif
