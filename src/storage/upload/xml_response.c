/* Collects items and texts from the elements that base/xml.h reports. */
#include "storage/upload/xml_response.h"

#include <errno.h>
#include <string.h>

struct reading {
    struct stk_xml_response *response;
    uint32_t item_depth; /* 0: in no item */
    bool is_root;
    char text[STK_XML_RESPONSE_TEXT_BYTES + 1];
};

static void reset_texts(struct stk_xml_response *response)
{
    for (size_t i = 0; i < STK_COUNT(response->texts); i++) {
        response->texts[i][0] = '\0';
    }
}

static int on_start(void *owner, const struct stk_xml_element *element)
{
    struct reading *reading = owner;
    struct stk_xml_response *response = reading->response;

    if (element->depth == 1) {
        reading->is_root = strcmp(element->name, response->root) == 0;
    } else if ((element->depth == 2 || element->depth == 3) && reading->item_depth == 0 &&
               response->item && strcmp(element->name, response->item) == 0) {
        reading->item_depth = element->depth; /* 3: Azure's lists are in a list */
        reset_texts(response);
    }
    return 0;
}

/* Copies the text if the element is one of those that are wanted; a longer text as an empty one. */
static void copy_text(const struct stk_xml_element *element, const char *const *names, size_t count,
                      char (*texts)[STK_XML_RESPONSE_TEXT_BYTES + 1])
{
    for (size_t i = 0; i < count && names[i]; i++) {
        if (strcmp(names[i], element->name) == 0) {
            size_t bytes = element->is_cut ? 0 : strlen(element->text);

            memcpy(texts[i], element->text, bytes);
            texts[i][bytes] = '\0';
        }
    }
}

static int on_end(void *owner, const struct stk_xml_element *element)
{
    struct reading *reading = owner;
    struct stk_xml_response *response = reading->response;
    bool in_item = reading->item_depth != 0 && element->depth == reading->item_depth + 1;
    int status = 0;

    if (in_item || (!response->item && element->depth == 2)) {
        copy_text(element, response->names, STK_COUNT(response->names), response->texts);
    } else if (element->depth == 2 && reading->item_depth == 0) {
        copy_text(element, response->outer_names, STK_COUNT(response->outer_names),
                  response->outer);
    } else if (reading->item_depth != 0 && element->depth == reading->item_depth) {
        status = response->on_item(response->owner, response);
        reading->item_depth = 0;
        reset_texts(response);
    }
    return status < 0 ? status : 0;
}

int stk_xml_response_parse(struct stk_xml_response *response, struct stk_view document)
{
    struct reading reading = {.response = response};
    struct stk_xml xml = {.start = on_start,
                          .end = on_end,
                          .owner = &reading,
                          .text = reading.text,
                          .text_bytes_max = STK_XML_RESPONSE_TEXT_BYTES};
    int status;

    reset_texts(response);
    for (size_t i = 0; i < STK_COUNT(response->outer); i++) {
        response->outer[i][0] = '\0';
    }
    status = stk_xml_parse(&xml, document);
    return status == 0 && !reading.is_root ? STOKER_ERROR_CORRUPT : status;
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
