/* Compares the headers between two members of a tar with the entry of an index. */
#include "index/foreign/header_check.h"

#include "format/tar/tar.h"
#include "format/tar/wds_name.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static bool same_extension(struct stk_view a, struct stk_view b)
{
    return a.bytes == b.bytes &&
           strncasecmp((const char *)a.data, (const char *)b.data, a.bytes) == 0;
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
                   key.bytes == claim->key.bytes &&
                   memcmp(key.data, claim->key.data, key.bytes) == 0 &&
                   same_extension(extension, claim->extension)
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
