/* Compares headers of a tar with the entry of an index. */
#include "index/foreign/header_check.h"

#include "format/tar/tar.h"
#include "format/tar/wds_name.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define NAME_BYTES_MAX 99u                 /* a longer name may be in an extended header */
#define SIZE_OCTAL_END (UINT64_C(8) << 30) /* the first size that does not fit 11 octal digits */

static bool is_named(const struct stk_header_claim *claim, struct stk_view key,
                     struct stk_view extension)
{
    return key.bytes == claim->key.bytes && memcmp(key.data, claim->key.data, key.bytes) == 0 &&
           extension.bytes == claim->extension.bytes &&
           strncasecmp((const char *)extension.data, (const char *)claim->extension.data,
                       extension.bytes) == 0;
}

/* 0: it is the one; 1: it is another, *why_out; 2: it is no part of a sample. */
static int compare(const struct stk_tar_step *step, uint64_t end,
                   const struct stk_header_claim *claim, const char **why_out)
{
    struct stk_view key, extension;
    bool is_part = step->type == '0' && stk_wds_name_split(step->name, &key, &extension);

    if (step->offset < end) {
        *why_out = "there is a member that the index leaves out";
        return is_part ? 1 : 2;
    }
    *why_out = step->offset > end || step->bytes != claim->bytes
                   ? "a member has another offset or size"
                   : "a member has another name";
    return step->offset == end && step->bytes == claim->bytes && is_part &&
                   is_named(claim, key, extension)
               ? 0
               : 1;
}

int stk_header_check(struct stk_view headers, const struct stk_header_claim *claim,
                     const char **why_out)
{
    struct stk_view bytes = {NULL, 0};
    struct stk_tar *tar;
    int fits = 2;

    *why_out = "there is no memory";
    if (stk_tar_open(&tar, UINT64_MAX, NULL, NULL) < 0) {
        return -ENOMEM;
    }
    /* Each round requests later bytes, or returns a member. */
    while (fits == 2) {
        struct stk_tar_step step = {0};
        int status = stk_tar_step(tar, bytes, &step, NULL);

        bytes = (struct stk_view){NULL, 0};
        *why_out = "there is no header before a member of the index";
        if (status < 0 || step.event == STK_TAR_END) {
            fits = status == -ENOMEM ? -ENOMEM : 1;
        } else if (step.event == STK_TAR_MEMBER) {
            fits = compare(&step, headers.bytes, claim, why_out);
        } else if (step.offset >= headers.bytes) {
            fits = 1;
        } else {
            bytes = (struct stk_view){headers.data + step.offset, headers.bytes - step.offset};
        }
    }
    stk_tar_close(tar);
    return fits;
}

/* Returns true for printable ASCII: another name may be in an extended header. */
static bool is_printable(struct stk_view text)
{
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.data[i] < 0x20 || text.data[i] > 0x7e) {
            return false;
        }
    }
    return true;
}

static bool fits_block(const struct stk_tar_step *step, const struct stk_header_claim *claim)
{
    struct stk_view key, extension;
    bool is_plain =
        claim->key.bytes + claim->extension.bytes + 1 <= NAME_BYTES_MAX && is_printable(claim->key);

    if (step->type == '0' && claim->bytes < SIZE_OCTAL_END && step->bytes != claim->bytes) {
        return false;
    }
    return !is_plain || !stk_wds_name_split(step->name, &key, &extension) ||
           is_named(claim, key, extension);
}

int stk_header_block_check(const uint8_t block[STK_HEADER_BLOCK_BYTES],
                           const struct stk_header_claim *claim)
{
    struct stk_tar_step step = {0};
    struct stk_tar *tar;
    bool fits;

    if (stk_tar_open(&tar, UINT64_MAX, NULL, NULL) < 0) {
        return -ENOMEM;
    }
    fits = stk_tar_is_header(block) &&
           stk_tar_step(tar, (struct stk_view){NULL, 0}, &step, NULL) == 0 &&
           stk_tar_step(tar, (struct stk_view){block, STK_HEADER_BLOCK_BYTES}, &step, NULL) == 0 &&
           step.event == STK_TAR_MEMBER && fits_block(&step, claim);
    stk_tar_close(tar);
    return fits ? 0 : 1;
}
