/* Goal: the parser reports the elements and texts of a document, within bounds. A document that is
 * not well-formed, is too deep or declares a document type is refused, after the events before that
 * place. Memory of a secret document is wiped before it is freed.
 * Method: rows of documents and of the events that they cause. */
#include "base/xml.h"

#include "test/t.h"

#include <string.h>

#define TEXT_BYTES_MAX 6u

struct events { /* the start of <stop> returns 7, the end of <halt> 8 */
    char text[200];
};

static const struct row {
    const char *name, *document;
    int status;
    const char *events;
} rows[] = {
    {"elements", "<a><b>1</b><c/></a>", 0, "+a1 +b2 -b2=1 +c2 -c2= -a1= "},
    {"a declaration", "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a>x</a>\n", 0, "+a1 -a1=x "},
    {"white space before it", " \r\n\t<?xml version=\"1.0\"?><a/>", 0, "+a1 -a1= "},
    {"a byte order mark", "\xef\xbb\xbf<a>x</a>", 0, "+a1 -a1=x "},
    {"text around an element", "<a>x<b/>y</a>", 0, "+a1 +b2 -b2= -a1=y "},
    {"entities", "<a>&lt;&amp;&gt;&#98;&#x63;</a>", 0, "+a1 -a1=<&>bc "},
    {"verbatim", "<a><![CDATA[<b>]]></a>", 0, "+a1 -a1=<b> "},
    {"a comment", "<a>x<!-- <b> -->y</a>", 0, "+a1 -a1=xy "},
    {"as long as allowed", "<a>123456</a>", 0, "+a1 -a1=123456 "},
    {"a text that is too long", "<a>1234567</a>", 0, "+a1 -a1=123456! "},
    {"of two pieces", "<a>1234&amp;6789</a>", 0, "+a1 -a1=1234&6! "},
    {"the next one", "<a><b>1234567</b><b>8</b></a>", 0, "+a1 +b2 -b2=123456! +b2 -b2=8 -a1= "},
    {"as deep as allowed", "<a><a><a><a><a><a><a><a/></a></a></a></a></a></a></a>", 0, NULL},
    {"too deep", "<a><a><a><a><a><a><a><a><a/></a></a></a></a></a></a></a></a>",
     STOKER_ERROR_CORRUPT, "+a1 +a2 +a3 +a4 +a5 +a6 +a7 +a8 "},
    {"an attribute", "<a b=\"c\" d='e'>x</a>", 0, "+a1[b=c,d=e] -a1=x "},
    {"stopped at a start", "<a><stop/><b/></a>", 7, "+a1 +stop2 "},
    {"stopped at an end", "<a><halt>x</halt><b/></a>", 8, "+a1 +halt2 -halt2=x "},
    {"stopped before damage", "<a><halt>x</halt><", 8, "+a1 +halt2 -halt2=x "},
    {"cut", "<a><b>x</b><c>y", STOKER_ERROR_CORRUPT, "+a1 +b2 -b2=x +c2 "},
    {"an end that is not its own", "<a><b>x</a>", STOKER_ERROR_CORRUPT, "+a1 +b2 "},
    {"two roots", "<a/><b/>", STOKER_ERROR_CORRUPT, "+a1 -a1= "},
    {"no document", "", STOKER_ERROR_CORRUPT, ""},
    {"white space alone", " \n", STOKER_ERROR_CORRUPT, ""},
    {"text alone", "OK", STOKER_ERROR_CORRUPT, ""},
    {"JSON", "{\"a\": 1}", STOKER_ERROR_CORRUPT, ""},
    {"an unknown entity", "<a><b/>&c;</a>", STOKER_ERROR_CORRUPT, "+a1 +b2 -b2= "},
    {"a document type", "<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", STOKER_ERROR_CORRUPT, ""},
    {"an outside document type", "<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>",
     STOKER_ERROR_CORRUPT, ""},
    {"HTML", "<!DOCTYPE html><html><p>x</html>", STOKER_ERROR_CORRUPT, ""},
    {"bytes that are no UTF-8", "<a><b/>\xff</a>", STOKER_ERROR_CORRUPT, "+a1 +b2 -b2= "},
    {"a NUL", "<a><b/>&#0;</a>", STOKER_ERROR_CORRUPT, "+a1 +b2 -b2= "},
};

static void add(struct events *events, const char *mark, const char *text)
{
    size_t used = strlen(events->text);

    snprintf(events->text + used, sizeof events->text - used, "%s%s", mark, text);
}

static void add_name(struct events *events, const char *mark, const struct stk_xml_element *element)
{
    char depth[16];

    snprintf(depth, sizeof depth, "%u", element->depth);
    add(events, mark, element->name);
    add(events, depth, "");
}

static int on_start(void *owner, const struct stk_xml_element *element)
{
    struct events *events = owner;

    add_name(events, "+", element);
    for (size_t i = 0; element->attributes[i]; i += 2) {
        add(events, i == 0 ? "[" : ",", element->attributes[i]);
        add(events, "=", element->attributes[i + 1]);
        add(events, element->attributes[i + 2] ? "" : "]", "");
    }
    add(events, " ", "");
    return strcmp(element->name, "stop") == 0 ? 7 : 0;
}

static int on_end(void *owner, const struct stk_xml_element *element)
{
    struct events *events = owner;

    T_EQ("bytes", strlen(element->text), element->text_bytes);
    add_name(events, "-", element);
    add(events, "=", element->text);
    add(events, element->is_cut ? "! " : " ", "");
    return strcmp(element->name, "halt") == 0 ? 8 : 0;
}

static void test_rows(bool is_secret)
{
    T_EACH(row, row, rows)
    {
        char text[TEXT_BYTES_MAX + 1];
        struct events events = {.text = ""};
        struct stk_xml xml = {.start = on_start,
                              .end = on_end,
                              .owner = &events,
                              .text = text,
                              .text_bytes_max = TEXT_BYTES_MAX,
                              .is_secret = is_secret};
        struct stk_view document = {(const uint8_t *)row->document, strlen(row->document)};

        T_EQ(row->name, stk_xml_parse(&xml, document), row->status);
        if (row->events) {
            T_STR(row->name, events.text, row->events);
        }
    }
}

static int ignore_end(void *owner, const struct stk_xml_element *element)
{
    (void)element;
    ++*(int *)owner;
    return 0;
}

/* More than expat's initial buffer, so that it reallocates. */
static void test_large(bool is_secret)
{
    static char document[1u << 20];
    char text[1];
    int ends = 0;
    struct stk_xml xml = {.end = ignore_end, .owner = &ends, .text = text, .is_secret = is_secret};
    size_t used = 0;

    used += (size_t)snprintf(document, sizeof document, "<a>");
    for (int i = 0; i < 5000; i++) {
        used += (size_t)snprintf(document + used, sizeof document - used,
                                 "<name-%d key%d='%0*d'>secret</name-%d>", i, i, i % 100, i, i);
    }
    used += (size_t)snprintf(document + used, sizeof document - used, "</a>");
    T_TRUE("room", used < sizeof document);
    T_EQ("large", stk_xml_parse(&xml, (struct stk_view){(uint8_t *)document, used}), 0);
    T_EQ("large", ends, 5001);
}

static void test_escape(void)
{
    static const struct {
        const char *text, *xml;
    } escapes[] = {
        {"", ""},
        {"plain/key", "plain/key"},
        {"a&b<c>\"d'e", "a&#38;b&#60;c&#62;&#34;d&#39;e"},
        {"a\nb\t", "a&#10;b&#9;"},
        {"\xc3\xa9", "\xc3\xa9"},
    };

    for (size_t i = 0; i < STK_COUNT(escapes); i++) {
        for (size_t bytes = 0; bytes < 64; bytes++) {
            char xml[64] = "";
            size_t used = 0;
            bool fits = stk_xml_escape(escapes[i].text, xml, bytes, &used);

            T_TRUE(escapes[i].text, used <= bytes);
            T_EQ(escapes[i].text, fits, bytes > strlen(escapes[i].xml) || !escapes[i].text[0]);
            if (fits) {
                T_STR(escapes[i].text, xml, escapes[i].xml);
                T_EQ(escapes[i].text, used, strlen(xml));
            }
        }
    }
}

int main(void)
{
    test_rows(false);
    test_rows(true);
    test_large(false);
    test_large(true);
    test_escape();
    return t_finish();
}
