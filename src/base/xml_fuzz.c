/* Fuzz target of xml.c: any document, secret or not. Depths follow each other, texts stay within
 * their bound, no callback runs after a stop; escaped text is parsed to the original. */
#include "base/xml.h"

#include <string.h>

#define TEXT_BYTES_MAX 32u

struct walk {
    uint32_t depth, elements, elements_max;
    bool stopped;
};

static int count(struct walk *walk)
{
    STK_ASSERT(!walk->stopped);
    walk->stopped = ++walk->elements >= walk->elements_max;
    return walk->stopped ? -1 : 0;
}

static int on_start(void *owner, const struct stk_xml_element *element)
{
    struct walk *walk = owner;

    STK_ASSERT(element->depth == ++walk->depth && element->depth <= STK_XML_DEPTH_MAX);
    STK_ASSERT(element->name[0]);
    for (size_t i = 0; element->attributes[i]; i += 2) {
        STK_ASSERT(element->attributes[i][0] && element->attributes[i + 1]);
    }
    return count(walk);
}

static int on_end(void *owner, const struct stk_xml_element *element)
{
    struct walk *walk = owner;

    STK_ASSERT(element->depth == walk->depth--);
    STK_ASSERT(element->text_bytes <= TEXT_BYTES_MAX);
    STK_ASSERT(strlen(element->text) == element->text_bytes);
    STK_ASSERT(!element->is_cut || element->text_bytes == TEXT_BYTES_MAX);
    return count(walk);
}

static int copy_text(void *owner, const struct stk_xml_element *element)
{
    memcpy(owner, element->text, element->text_bytes + 1);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char text[TEXT_BYTES_MAX + 1], plain[TEXT_BYTES_MAX + 1], read[TEXT_BYTES_MAX + 1] = "";
    char document[8 * sizeof plain] = "<a>";
    size_t used = 3, plain_bytes = stk_min(bytes, sizeof plain - 1);
    struct stk_xml xml = {
        .end = copy_text, .owner = read, .text = text, .text_bytes_max = TEXT_BYTES_MAX};

    for (int is_secret = 0; is_secret < 2; is_secret++) {
        struct walk walk = {.elements_max = is_secret ? 7 : 100000};
        const struct stk_xml any = {.start = on_start,
                                    .end = on_end,
                                    .owner = &walk,
                                    .text = text,
                                    .text_bytes_max = TEXT_BYTES_MAX,
                                    .is_secret = is_secret};
        int status = stk_xml_parse(&any, (struct stk_view){data, bytes});

        STK_ASSERT(walk.stopped == (status == -1));
        STK_ASSERT(status != 0 || (walk.depth == 0 && walk.elements > 0));
    }
    for (size_t i = 0; i < plain_bytes; i++) { /* ASCII that XML can have */
        plain[i] = (char)(' ' + data[i] % 95);
    }
    plain[plain_bytes] = '\0';
    STK_ASSERT(stk_xml_escape(plain, document, sizeof document - 4, &used));
    memcpy(document + used, "</a>", 5);
    STK_ASSERT(stk_xml_parse(&xml, (struct stk_view){(uint8_t *)document, used + 4}) == 0);
    STK_ASSERT(strcmp(read, plain) == 0);
    return 0;
}
