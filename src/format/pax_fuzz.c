/* Fuzz of tar.c where checksums would stop a fuzzer: any bytes as the content of extended headers
 * (PAX x and g, GNU L and K), each under a header that is right, before a member. The first byte
 * chooses kinds and portions; a 0xfe in the content begins the next header. No crash, no hang, no
 * name or size beyond the limits. */
#include "format/tar.h"
#include "format/tar_write.h"

#include <string.h>

enum { BLOCK = 512, TAR_BYTES_MAX = 1 << 17, HEADERS_MAX = 20, LIMIT_BYTES = 8192 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

struct tar {
    uint8_t data[TAR_BYTES_MAX];
    size_t bytes;
};

/* A header by our writer, with another type. False: no room. */
static bool add_header(struct tar *tar, uint8_t type, size_t size)
{
    static const char name[] = "a/member.bin";
    uint8_t header[STK_TAR_HEADER_MAX];
    size_t bytes =
        stk_tar_header_write((struct stk_view){(const uint8_t *)name, strlen(name)}, size, header);
    unsigned sum = 0;

    STK_ASSERT(bytes == BLOCK);
    if (tar->bytes + BLOCK > sizeof tar->data) {
        return false;
    }
    header[156] = type;
    memset(header + 148, ' ', 8);
    for (size_t i = 0; i < BLOCK; i++) {
        sum += header[i];
    }
    for (size_t i = 0; i < 6; i++) { /* as old tars: six digits, NUL, blank */
        header[153 - i] = (uint8_t)('0' + (sum >> 3 * i & 7));
    }
    header[154] = 0;
    memcpy(tar->data + tar->bytes, header, BLOCK);
    tar->bytes += BLOCK;
    return true;
}

static void add_content(struct tar *tar, const uint8_t *data, size_t bytes)
{
    size_t whole = (bytes + BLOCK - 1) / BLOCK * BLOCK;

    if (tar->bytes + whole <= sizeof tar->data) {
        memcpy(tar->data + tar->bytes, data, bytes);
        memset(tar->data + tar->bytes + bytes, 0, whole - bytes);
        tar->bytes += whole;
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
