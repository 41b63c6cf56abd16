/* Fuzz of fault_wire.c: any bytes as a request (by the first byte: an answer) and its body, at once
 * and piece by piece: both ways they end at the same byte. */
#include "programs/fault_proxy/fault_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int64_t eat(struct stk_fault_body body, struct stk_view bytes, size_t step, bool *done_out)
{
    int64_t sum = 0;

    while (bytes.bytes > 0 && !body.done) {
        struct stk_view piece = {bytes.data, stk_min(step, bytes.bytes)};
        int64_t some = stk_fault_body_consume(&body, piece, NULL);
        if (some < 0) {
            return -1;
        }
        STK_ASSERT((size_t)some <= piece.bytes);
        STK_ASSERT(body.done || (size_t)some == piece.bytes);
        sum += some;
        bytes.data += some;
        bytes.bytes -= (size_t)some;
    }
    *done_out = body.done;
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_fault_head head;
    struct stk_fault_body body;
    struct stoker_error error = {0};
    bool request = bytes > 0 && !(data[0] & 1), done = false, done_again = false;
    struct stk_view text = {data + 1, bytes - 1};
    int status;

    if (bytes == 0) {
        return 0;
    }
    status = stk_fault_head_parse(&head, text, request, &error);
    if (status < 0) {
        STK_ASSERT(error.status == status && error.what[0] && error.where[0] && error.advice[0]);
    }
    if (status <= 0 || stk_fault_body_init(&body, &head, request, data[0] & 2, &error) < 0) {
        return 0;
    }
    STK_ASSERT(head.bytes <= text.bytes && head.header_count <= STK_FAULT_HEADERS_MAX);
    text.data += head.bytes;
    text.bytes -= head.bytes;
    if (body.framing != STK_FAULT_UNTIL_CLOSE) {
        int64_t at_once = eat(body, text, SIZE_MAX, &done);
        int64_t pieces = eat(body, text, 1 + (data[0] >> 2), &done_again);
        STK_ASSERT(at_once == pieces && done == done_again);
    }
    return 0;
}
