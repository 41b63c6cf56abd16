/* Fuzz target: any bytes as an index of DALI, Energon or wids, alone and for a tar, or as the
 * headers of a tar that one of them describes; the last byte selects. No crash; DALI's members
 * follow each other; Energon's offsets and the members found are inside the tar. Covers
 * dali_index.c, energon_index.c, wids_index.c, header_check.c, foreign_index.c and
 * wids_shards.c. */
#include "format/tar/tar_write.h"
#include "index/foreign/dali_index.h"
#include "index/foreign/energon_index.h"
#include "index/foreign/foreign_index.h"
#include "index/foreign/header_check.h"
#include "index/foreign/wids_index.h"
#include "index/foreign/wids_shards.h"
#include "io/sim/sim.h"

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
    struct stk_dali_index_member member;
    struct stk_dali_index dali;
    uint64_t end = 0, members = 0;
    int more = stk_dali_index_open(&dali, text, &error);

    check_error(more, &error);
    if (more < 0) {
        return;
    }
    while ((more = stk_dali_index_next(&dali, &member, &error)) > 0) {
        STK_ASSERT(member.previous_end == end && member.offset >= end + 512);
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
    struct stk_energon_index energon;
    int status = stk_energon_index_open(&energon, text, 1 << 30, &error);

    check_error(status, &error);
    for (uint64_t i = 0; status == 0 && i <= energon.samples; i++) {
        STK_ASSERT(stk_energon_index_offset(&energon, i) <= 1 << 30);
    }
}

static void read_wids(struct stk_view text)
{
    struct stoker_error error = {0};
    struct stk_wids_index *wids;
    int status = stk_wids_index_open(&wids, text, &error);
    char path[64];

    check_error(status, &error);
    for (uint64_t i = 0; status == 0 && i < stk_wids_index_count(wids); i++) {
        struct stk_wids_index_shard shard;

        stk_wids_index_get(wids, i, &shard);
        STK_ASSERT(!stk_wids_index_path("folder/", shard.url, path, sizeof path) ||
                   strlen(path) < sizeof path);
    }
    stk_wids_index_close(status == 0 ? wids : NULL);
}

static void read_headers(struct stk_view headers)
{
    static const struct stk_header_claim claim = {
        {(const uint8_t *)"a/b", 3}, {(const uint8_t *)"jpg", 3}, 5};
    const char *why = NULL;
    int status = stk_header_check(headers, &claim, &why);

    STK_ASSERT(status == 0 || (status == 1 && why[0]));
}

static struct stk_io *open_world(const char *path, struct stk_view text)
{
    struct stk_io_options options = {.depth = 8, .read_timeout_ms = 1000};
    struct stk_io *world = NULL;

    STK_ASSERT(stk_sim_open(&world, 1, &options, NULL) == 0);
    STK_ASSERT(stk_sim_add(world, path, text.data, text.bytes) == 0);
    return world;
}

/* For a tar of a.txt and a.cls. */
static void read_foreign(struct stk_view text)
{
    static uint8_t tar[8 * STK_TAR_BLOCK];
    static const char *const names[] = {"a.txt", "a.cls"};
    struct stk_index_options options = {.shard_count = 1};
    struct stk_io *world = open_world("/s.idx", text);
    struct stoker_error error = {0};
    struct stk_index *index = NULL;
    struct stk_foreign_index *claim = NULL;
    int status;

    for (size_t i = 0; i < STK_COUNT(names); i++) {
        struct stk_view name = {(const uint8_t *)names[i], strlen(names[i])};

        stk_tar_header_write(name, 5, tar + i * 2 * STK_TAR_BLOCK);
    }
    stk_sim_add(world, "/s.tar", tar, sizeof tar);
    STK_ASSERT(stk_index_open(&index, &options, NULL) == 0);
    STK_ASSERT(stk_foreign_index_open(&claim, world, NULL) == 0);
    status = stk_foreign_index_read(claim, index, 0, "/s.tar", &error);
    check_error(status, &error);
    if (status == 1 && stk_index_finish(index, 0, NULL) == 0) {
        STK_ASSERT(stk_index_shard_is_unverified(index, 0) && stk_index_members(index) <= 2);
        STK_ASSERT(stk_index_bytes(index) <= 10);
    }
    stk_foreign_index_close(claim);
    stk_index_close(index);
    stk_io_close(world);
}

/* For a tar that does not exist, as Energon's index of it. */
static void read_starts(struct stk_view text)
{
    struct stk_io *world = open_world("/s.tar.idx", text);
    struct stk_foreign_index_starts starts;
    struct stk_foreign_index *claim = NULL;

    STK_ASSERT(stk_sim_add(world, "/s.tar", "", 0) == 0);
    STK_ASSERT(stk_foreign_index_open(&claim, world, NULL) == 0);
    STK_ASSERT(stk_foreign_index_find_starts(claim, "/s.tar", 1 << 20, &starts, NULL) == 0);
    STK_ASSERT(starts.count <= STK_FOREIGN_INDEX_STARTS_MAX && starts.count <= text.bytes / 8);
    for (uint64_t i = 0; i < starts.count; i++) {
        STK_ASSERT(starts.starts[i] <= 1 << 20 && starts.starts[i] % STK_TAR_BLOCK == 0);
        STK_ASSERT(i == 0 || starts.starts[i] > starts.starts[i - 1]);
    }
    stk_foreign_index_close(claim);
    stk_io_close(world);
}

static void read_shards(struct stk_view text)
{
    const char *url = "/d/x.json";
    struct stk_io *world = open_world(url, text);
    struct stoker_error error = {0};
    struct stk_wids_shards shards;
    int status = stk_wids_shards_expand(&shards, world, &url, 1, &error);

    check_error(status, &error);
    STK_ASSERT(status < 0 || shards.count > 0);
    stk_wids_shards_deinit(&shards);
    stk_io_close(world);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_view text = {data, bytes > 0 ? bytes - 1 : 0};

    if (bytes == 0) {
        return 0;
    }
    switch (data[bytes - 1] % 6) {
    case 0:
        read_dali(text);
        break;
    case 1:
        read_energon(text);
        read_starts(text);
        break;
    case 2:
        read_wids(text);
        break;
    case 3:
        read_headers(text);
        break;
    case 4:
        read_foreign(text);
        break;
    default:
        read_shards(text);
    }
    return 0;
}
