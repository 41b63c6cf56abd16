/* Fuzz of tar.c where checksums would stop a fuzzer: any bytes as the content of extended headers
 * (PAX x and g, GNU L and K), each under a header that is right, before a member. The first byte
 * chooses kinds and portions; a 0xfe in the content begins the next header. No crash, no hang, no
 * name or size beyond the limits. */
#include "format/tar/tar.h"
#include "format/tar/tar_write.h"

#include <string.h>

enum { BLOCK = 512, TAR_BYTES_MAX = 1 << 17, HEADERS_MAX = 20, LIMIT_BYTES = 8192 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct tar {
    uint8_t data[TAR_BYTES_MAX];
    size_t bytes;
};

/* A header by our writer but for its type, size and sum, which are nine tenths of the time that an
 * input takes when all 512 bytes are added up for each. */
struct model {
    uint8_t header[BLOCK];
    unsigned sum; /* of all but the type and the size; blanks for the sum */
};

enum { SIZE_AT = 124, SIZE_DIGITS = 11, SUM_AT = 148, SUM_DIGITS = 6, TYPE_AT = 156 };

static void make_model(struct model *model)
{
    static const char name[] = "a/member.bin";
    struct stk_view view = {(const uint8_t *)name, strlen(name)};
    uint8_t header[STK_TAR_HEADER_MAX];

    STK_ASSERT(stk_tar_header_write(view, 0, header) == BLOCK);
    memset(header + SUM_AT, ' ', 8);
    memset(header + SIZE_AT, 0, SIZE_DIGITS);
    header[TYPE_AT] = 0;
    memcpy(model->header, header, BLOCK);
    for (size_t i = 0; i < BLOCK; i++) {
        model->sum += header[i];
    }
}

/* False: no room. */
static bool add_header(struct tar *tar, uint8_t type, size_t size)
{
    static struct model model;
    uint8_t *header = tar->data + tar->bytes;
    unsigned sum;

    if (model.sum == 0) {
        make_model(&model);
    }
    if (tar->bytes + BLOCK > sizeof tar->data) {
        return false;
    }
    memcpy(header, model.header, BLOCK);
    header[TYPE_AT] = type;
    sum = model.sum + type;
    for (size_t i = 0; i < SIZE_DIGITS; i++) {
        uint8_t digit = (uint8_t)('0' + (size >> 3 * i & 7));

        header[SIZE_AT + SIZE_DIGITS - 1 - i] = digit;
        sum += digit;
    }
    for (size_t i = 0; i < SUM_DIGITS; i++) { /* as old tars: six digits, NUL, blank */
        header[SUM_AT + SUM_DIGITS - 1 - i] = (uint8_t)('0' + (sum >> 3 * i & 7));
    }
    header[SUM_AT + SUM_DIGITS] = 0;
    tar->bytes += BLOCK;
    return true;
}

static void add_content(struct tar *tar, const uint8_t *data, size_t bytes)
{
    size_t padded = (bytes + BLOCK - 1) / BLOCK * BLOCK;

    if (tar->bytes + padded <= sizeof tar->data) {
        memcpy(tar->data + tar->bytes, data, bytes);
        memset(tar->data + tar->bytes + bytes, 0, padded - bytes);
        tar->bytes += padded;
    }
}

static void make(struct tar *tar, uint8_t how, struct stk_view content)
{
    static const uint8_t kinds[] = {'x', 'g', 'L', 'K', 'X'};
    size_t at = 0;

    tar->bytes = 0;
    for (int i = 0; i < HEADERS_MAX && at < content.bytes; i++) {
        const uint8_t *end = memchr(content.data + at, 0xfe, content.bytes - at);
        size_t bytes = end ? (size_t)(end - content.data) - at : content.bytes - at;

        add_header(tar, kinds[(how + (unsigned)i * (how >> 6)) % sizeof kinds], bytes);
        add_content(tar, content.data + at, bytes);
        at += bytes + 1;
    }
    if (add_header(tar, '0', 5)) {
        add_content(tar, (const uint8_t *)"12345", 5);
    }
    if (tar->bytes + 2 * BLOCK <= sizeof tar->data) {
        memset(tar->data + tar->bytes, 0, 2 * BLOCK);
        tar->bytes += 2 * BLOCK;
    }
}

static void check_member(const struct stk_tar_step *step, const struct tar *tar)
{
    STK_ASSERT(step->header < step->offset && step->offset % BLOCK == 0);
    STK_ASSERT(step->offset <= tar->bytes && step->bytes <= tar->bytes - step->offset);
    STK_ASSERT(step->name.bytes <= LIMIT_BYTES / 2);
    STK_ASSERT(step->name.bytes == 0 || !memchr(step->name.data, 0, step->name.bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct tar tar;
    static const size_t chunks[] = {SIZE_MAX, 61, BLOCK, 700};
    struct stk_tar_limits limits = {LIMIT_BYTES / 2, LIMIT_BYTES};
    struct stk_tar *reader = NULL;
    struct stk_tar_step step = {0};
    struct stk_view input = {0};
    struct stoker_error error = {0};
    int status;

    if (bytes == 0) {
        return 0;
    }
    make(&tar, data[0], (struct stk_view){data + 1, bytes - 1});
    status = stk_tar_open(&reader, tar.bytes, &limits, &error);
    while (status == 0 && step.event != STK_TAR_END) {
        status = stk_tar_step(reader, input, &step, &error);
        if (status == 0 && step.event == STK_TAR_NEED) {
            size_t left = step.offset < tar.bytes ? tar.bytes - step.offset : 0;

            input.data = tar.data + (left ? step.offset : 0);
            input.bytes = stk_min(left, chunks[data[0] >> 4 & 3]);
        } else if (status == 0 && step.event == STK_TAR_MEMBER) {
            check_member(&step, &tar);
        }
    }
    STK_ASSERT(status == 0 || (error.status == status && error.what[0] && error.where[0] &&
                               error.advice[0] && error.offset <= tar.bytes));
    stk_tar_close(reader);
    return 0;
}
