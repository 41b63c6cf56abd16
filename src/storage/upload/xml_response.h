/* storage/upload/xml_response.h: reads the XML documents that S3, Google and Azure send in response
 * to writes: the texts of named elements of a document, or of each item of a list. Pure.
 *
 *   document --stk_xml_response_parse--> on_item for each complete item, or the document's texts
 *
 * Owner: the call. Threads: any. Memory: as base/xml.h. Bound: STK_XML_RESPONSE_TEXT_BYTES of a
 * text; names and outer_names have a fixed length. */
#ifndef STORAGE_UPLOAD_XML_RESPONSE_H
#define STORAGE_UPLOAD_XML_RESPONSE_H

#include "base/xml.h"

#define STK_XML_RESPONSE_TEXT_BYTES 3200u /* a key of 1,024 bytes, URL-encoded */

/* An item of a list, or the document itself (item NULL): the texts of the elements directly inside
 * it that names lists. A text that is longer than the bound is returned as an empty one. */
struct stk_xml_response {
    const char *root;     /* the name that the root element must have */
    const char *item;     /* "Part"; NULL: only the document */
    const char *names[6]; /* the wanted elements of an item, or of the document */
    char texts[6][STK_XML_RESPONSE_TEXT_BYTES + 1];
    const char *outer_names[3]; /* with items: the wanted elements next to the items */
    char outer[3][STK_XML_RESPONSE_TEXT_BYTES + 1];
    /* Called at the end of each item; a value below 0 stops. The texts are empty afterwards. */
    int (*on_item)(void *owner, const struct stk_xml_response *answer);
    void *owner;
};

/* Returns 0 on success (with item NULL, texts has those of the document), the negative value of
 * on_item, STOKER_ERROR_CORRUPT if the document cannot be parsed or has another root, -ENOMEM. */
int stk_xml_response_parse(struct stk_xml_response *answer, struct stk_view document);
/* Copies an ETag without the quotes that it may have; empty if it does not fit. */
void stk_xml_response_copy_etag(const char *text, char *etag, size_t etag_bytes);

#endif
