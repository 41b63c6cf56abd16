/* Goal: a tar read through the container interface has the members that its parser finds, and can
 * be read from the middle; nothing leaks if memory fails.
 * Method: a small tar in portions of several sizes, compared with stk_tar_step; every allocation
 * fails once. */
#include "format/tar/tar_container.h"

#include "base/mem.h"
#include "format/tar/tar.h"
#include "test/t.h"
#include "test/tars.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Makes a header that of a directory: its type, and the checksum. */
static void set_directory(uint8_t *header)
{
    unsigned sum = 0;

    header[156] = '5';
    memset(header + 148, ' ', 8);
    for (int at = 0; at < 512; at++) {
        sum += header[at];
    }
    snprintf((char *)header + 148, 8, "%06o", sum);
}

static void make_tar(struct t_tar *tar)
{
    *tar = (struct t_tar){0};
    t_tar_add(tar, "a.txt", "hello", 5);
    t_tar_add(tar, "a.cls", "7", 1);
    t_tar_add(tar, "folder", "", 0);
    t_tar_end(tar);
    set_directory(tar->data + 2048);
}

static void test_members(void)
{
    static const size_t portions[] = {SIZE_MAX, 1, 512, 700};
    static const uint32_t kinds[] = {STK_MEMBER_FILE, STK_MEMBER_FILE, STK_MEMBER_DIRECTORY};
    struct t_tar tar;

    make_tar(&tar);
    for (size_t i = 0; i < STK_COUNT(portions); i++) {
        struct stk_container_options options = {.size = i % 2 ? UINT64_MAX : tar.bytes};
        struct stk_container_step got = {0};
        struct stk_tar_step want = {0};
        struct stk_view bytes = {NULL, 0};
        struct stk_container *container;
        struct stk_tar *parser;
        size_t members = 0;

        T_EQ("open", stk_container_open(&container, &stk_tar_container, &options, NULL), 0);
        T_EQ("parser", stk_tar_open(&parser, options.size, NULL, NULL), 0);
        while (got.event != STK_CONTAINER_END) {
            T_EQ("step", stk_container_step(container, bytes, &got, NULL), 0);
            T_EQ("parser's step", stk_tar_step(parser, bytes, &want, NULL), 0);
            T_EQ("event", got.event, want.event);
            T_EQ("offset", got.offset, want.offset);
            T_EQ("bytes", got.bytes, want.bytes);
            T_EQ("header", got.header, want.header);
            T_EQ("checksum", got.checksum_kind, STK_MEMBER_CHECKSUM_NONE);
            bytes = (struct stk_view){NULL, 0};
            if (got.event == STK_CONTAINER_NEED) {
                size_t left = got.offset < tar.bytes ? tar.bytes - got.offset : 0;

                bytes = (struct stk_view){tar.data + (left ? got.offset : 0),
                                          stk_min(left, portions[i])};
            } else if (got.event == STK_CONTAINER_MEMBER) {
                T_EQ("name", got.name.bytes, want.name.bytes);
                T_TRUE("name", memcmp(got.name.data, want.name.data, got.name.bytes) == 0);
                T_EQ("kind", got.kind, members < 3 ? kinds[members] : 0);
                members++;
            }
        }
        T_EQ("members", members, 3);
        stk_container_close(container);
        stk_tar_close(parser);
    }
    t_tar_free(&tar);
}

static void test_starts(void)
{
    struct stk_container_options options = {0};
    struct stk_container_step step = {0};
    struct stk_container *container;
    struct t_tar tar = {0};
    uint64_t start;

    t_tar_add(&tar, "a.txt", "hello", 5);
    t_tar_add(&tar, "b.txt", "world", 5);
    t_tar_end(&tar);
    options.size = tar.bytes;
    start =
        stk_container_find_start(&stk_tar_container, &options, 0, (struct stk_view){tar.data, 512});
    T_EQ("behind the member", start, 1024);
    T_EQ("data",
         stk_container_find_start(&stk_tar_container, &options, 512,
                                  (struct stk_view){tar.data + 512, 512}),
         0);
    T_EQ(
        "a short block",
        stk_container_find_start(&stk_tar_container, &options, 0, (struct stk_view){tar.data, 511}),
        0);
    T_EQ("open", stk_container_open(&container, &stk_tar_container, &options, NULL), 0);
    T_TRUE("independent", stk_container_is_independent(container));
    stk_container_start_at(container, start);
    T_EQ("need", stk_container_step(container, (struct stk_view){NULL, 0}, &step, NULL), 0);
    T_EQ("there", step.offset, 1024);
    T_EQ("member",
         stk_container_step(container, (struct stk_view){tar.data + 1024, 512}, &step, NULL), 0);
    T_EQ("b.txt", step.header, 1024);
    stk_container_close(container);
    t_tar_free(&tar);
}

static void test_memory(void)
{
    struct stk_container_options options = {.size = 1024};
    int status = -ENOMEM;

    for (uint64_t n = 1; status == -ENOMEM; n++) {
        struct stk_container *container = NULL;
        struct stoker_error error = {0};

        stk_mem_fail_nth(n);
        status = stk_container_open(&container, &stk_tar_container, &options, &error);
        stk_mem_fail_nth(0);
        T_TRUE("nothing is open", status == 0 || !container);
        stk_container_close(container);
    }
    T_EQ("opened", status, 0);
}

int main(void)
{
    test_members();
    test_starts();
    test_memory();
    return t_finish();
}
