/* Fuzz of xml_response.c: any document; items and texts stay within their bounds, and escaped text
 * is read back unchanged. Of write_request.c: any text is an encryption context or an error. */
#include "storage/upload/xml_response.h"

#include "base/mem.h"
#include "storage/upload/upload.h"

#include <string.h>

static int found(void *owner, const struct stk_xml_response *answer)
{
    for (size_t i = 0; i < STK_COUNT(answer->texts); i++) {
        STK_ASSERT(memchr(answer->texts[i], '\0', sizeof answer->texts[i]));
    }
    return ++*(int *)owner > 1000 ? -1 : 0;
}

static void read_context(const uint8_t *data, size_t bytes)
{
    char *json = stk_alloc(1, bytes + 1), *text = NULL;

    memcpy(json, data, bytes);
    if (stk_upload_encryption_context(json, &text, NULL) == 0) {
        STK_ASSERT(strlen(text) == (strlen(json) + 2) / 3 * 4 && strchr(json, '{'));
    } else {
        STK_ASSERT(!text);
    }
    stk_free(text);
    stk_free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct stk_xml_response answer;
    static const char *const roots[] = {"ListPartsResult", "ListMultipartUploadsResult",
                                        "DeleteResult", "InitiateMultipartUploadResult"};
    static const char *const items[] = {"Part", "Upload", "Error", NULL};
    char text[200], xml[2048], etag[80];
    size_t used = 0, head;
    int count = 0;

    if (bytes > 0) {
        read_context(data, bytes);
    }
    for (size_t i = 0; i < STK_COUNT(roots); i++) {
        answer.root = roots[i];
        answer.item = items[i];
        answer.names[0] = i < 3 ? "Key" : "UploadId";
        answer.names[1] = "ETag";
        answer.names[2] = NULL;
        answer.outer_names[0] = "IsTruncated";
        answer.outer_names[1] = "NextKeyMarker";
        answer.on_item = found;
        answer.owner = &count;
        (void)stk_xml_response_parse(&answer, (struct stk_view){data, bytes});
        stk_xml_response_copy_etag(answer.texts[1], etag, sizeof etag);
    }
    bytes = bytes < sizeof text - 1 ? bytes : sizeof text - 1;
    for (size_t i = 0; i < bytes; i++) { /* characters that XML can contain, in ASCII */
        text[i] = (char)(' ' + data[i] % 95);
    }
    text[bytes] = '\0';
    memcpy(xml, "<InitiateMultipartUploadResult><UploadId>", 41);
    used = head = 41;
    STK_ASSERT(stk_xml_escape(text, xml, sizeof xml - 100, &used) && used >= head + bytes);
    memcpy(xml + used, "</UploadId></InitiateMultipartUploadResult>", 44);
    STK_ASSERT(stk_xml_response_parse(&answer, (struct stk_view){(uint8_t *)xml, used + 43}) == 0);
    STK_ASSERT(strcmp(answer.texts[0], text) == 0);
    return 0;
}
