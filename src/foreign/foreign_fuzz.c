/* Fuzz: any bytes as an index of DALI, Energon or wids, or as the headers of a tar that one of them
 * told of; the last byte chooses. No crash; members of DALI lie one behind the other; what
 * Energon's offsets tell stays in the tar. Covers dali.c, energon.c, wids.c and headers.c. */
#include "foreign/dali.h"
#include "foreign/energon.h"
#include "foreign/headers.h"
#include "foreign/wids.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_error(int status, const struct stoker_error *error)
{
    STK_ASSERT(status >= 0 ||
               (error->status == status && error->what[0] && error->where[0] && error->advice[0]));
}

static void read_dali(struct stk_view text)
{
    struct stoker_error error = {0};
    struct stk_dali_member member;
    struct stk_dali dali;
    uint64_t end = 0, members = 0;
    int more = stk_dali_open(&dali, text, &error);

    check_error(more, &error);
    if (more < 0) {
        return;
    }
    while ((more = stk_dali_next(&dali, &member, &error)) > 0) {
        STK_ASSERT(member.before == end && member.offset >= end + 512);
        STK_ASSERT(member.name.bytes > 0 && member.name.data >= text.data &&
                   member.name.data + member.name.bytes <= text.data + text.bytes);
        end = stk_round_up(member.offset + member.bytes, 512);
        STK_ASSERT(++members <= text.bytes);
    }
    check_error(more, &error);
}

static void read_energon(struct stk_view text)
{
    struct stoker_error error = {0};
    struct stk_energon energon;
    int status = stk_energon_open(&energon, text, 1 << 30, &error);

    check_error(status, &error);
    for (uint64_t i = 0; status == 0 && i <= energon.samples; i++) {
        STK_ASSERT(stk_energon_offset(&energon, i) <= 1 << 30);
    }
}

static void read_wids(struct stk_view text)
{
    struct stoker_error error = {0};
    struct stk_wids *wids;
    int status = stk_wids_open(&wids, text, &error);
    char path[64];

    check_error(status, &error);
    for (uint64_t i = 0; status == 0 && i < stk_wids_shards(wids); i++) {
        struct stk_wids_shard shard;

        stk_wids_shard(wids, i, &shard);
        STK_ASSERT(!stk_wids_path("folder/", shard.url, path, sizeof path) ||
                   strlen(path) < sizeof path);
    }
    stk_wids_close(status == 0 ? wids : NULL);
}

static void read_headers(struct stk_view headers)
{
    static const struct stk_claim told = {
        {(const uint8_t *)"a/b", 3}, {(const uint8_t *)"jpg", 3}, 5};
    const char *why = NULL;
    int status = stk_headers_fit(headers, &told, &why);

    STK_ASSERT(status == 0 || (status == 1 && why[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_view text = {data, bytes > 0 ? bytes - 1 : 0};

    if (bytes == 0) {
        return 0;
    }
    switch (data[bytes - 1] % 4) {
    case 0:
        read_dali(text);
        break;
    case 1:
        read_energon(text);
        break;
    case 2:
        read_wids(text);
        break;
    default:
        read_headers(text);
    }
    return 0;
}
