/* Goal: one loop lists the members of a container, with headers in front of them or with a footer,
 * in any portions; damage is refused, and so is a stream of a format with a footer.
 * Method: the formats of test/tiny.h, read in portions of several sizes, and truncated at every
 * byte. */
#include "format/container.h"

#include "base/crc.h"
#include "base/mem.h"
#include "test/t.h"
#include "test/tiny.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 2000 };

/* All members as text: kind, name, data. Returns the status. */
static int list(const struct stk_container_format *format, struct stk_view file, size_t portion,
                bool is_known, char text[TEXT_BYTES_MAX])
{
    struct stk_container_options options = {.size = is_known ? file.bytes : UINT64_MAX};
    struct stk_container_step step = {0};
    struct stk_container *container;
    struct stk_view bytes = {NULL, 0};
    struct stoker_error error = {0};
    int status = stk_container_open(&container, format, &options, &error);
    size_t used = 0;

    text[0] = 0;
    while (status == 0) {
        status = stk_container_step(container, bytes, &step, &error);
        bytes = (struct stk_view){NULL, 0};
        if (status < 0 || step.event == STK_CONTAINER_END) {
            break;
        }
        if (step.event == STK_CONTAINER_NEED) {
            size_t left = step.offset < file.bytes ? file.bytes - step.offset : 0;

            bytes = (struct stk_view){file.data + (left ? step.offset : 0), stk_min(left, portion)};
            continue;
        }
        used += (size_t)snprintf(text + used, TEXT_BYTES_MAX - used, "%u %.*s=%.*s\n", step.kind,
                                 (int)step.name.bytes, (const char *)step.name.data,
                                 (int)step.bytes, (const char *)file.data + step.offset);
        if (step.checksum_kind == STK_MEMBER_CHECKSUM_CRC32C) {
            T_EQ("checksum", stk_crc32c(0, file.data + step.offset, step.bytes), step.checksum);
        }
    }
    if (status < 0) {
        T_ERROR("list", &error);
    }
    stk_container_close(container);
    return status;
}

static void make_tiny(struct t_tiny *tiny, bool has_footer)
{
    t_tiny_begin(tiny, has_footer);
    t_tiny_add(tiny, "a.txt", "hello", 5);
    t_tiny_add(tiny, "a.cls", "7", 1);
    t_tiny_add(tiny, NULL, "row", 3);
    t_tiny_add(tiny, "b.txt", "", 0);
    t_tiny_end(tiny);
}

static void test_portions(void)
{
    static const char want[] = "1 a.txt=hello\n1 a.cls=7\n2 =row\n1 b.txt=\n";
    static const size_t portions[] = {SIZE_MAX, 1, 5, 16};
    struct t_tiny tiny;
    char text[TEXT_BYTES_MAX];

    for (size_t i = 0; i < STK_COUNT(portions); i++) {
        for (int footer = 0; footer < 2; footer++) {
            make_tiny(&tiny, footer);
            T_EQ("tiny",
                 list(footer ? &t_tiny_footer : &t_tiny_walk,
                      (struct stk_view){tiny.data, tiny.bytes}, portions[i], true, text),
                 0);
            T_STR("tiny", text, want);
            t_tiny_free(&tiny);
        }
        make_tiny(&tiny, false);
        T_EQ("stream",
             list(&t_tiny_walk, (struct stk_view){tiny.data, tiny.bytes}, portions[i], false, text),
             0);
        T_STR("stream", text, want);
        t_tiny_free(&tiny);
    }
}

/* A footer after a stream's end is out of reach. */
static void test_refused(void)
{
    struct stk_container_options stream = {.size = UINT64_MAX};
    struct stk_container *container = NULL;
    struct stoker_error error = {0};
    struct t_tiny tiny;
    char text[TEXT_BYTES_MAX];

    T_EQ("footer of a stream", stk_container_open(&container, &t_tiny_footer, &stream, &error),
         STOKER_ERROR_UNSUPPORTED);
    T_ERROR("footer of a stream", &error);
    T_TRUE("nothing is open", container == NULL);
    stk_container_close(NULL);
    make_tiny(&tiny, true);
    for (size_t bytes = 0; bytes < tiny.bytes; bytes++) {
        T_TRUE("cut", list(&t_tiny_footer, (struct stk_view){tiny.data, bytes}, 7, true, text) < 0);
    }
    t_tiny_free(&tiny);
}

static void test_row_names(void)
{
    char text[STK_CONTAINER_ROW_NAME_BYTES];
    struct stk_view name = stk_container_row_name(&t_tiny_walk, 12, text);

    T_EQ("bytes", name.bytes, 13);
    T_STR("name", text, "000000012.bin");
    name = stk_container_row_name(&t_tiny_walk, UINT64_MAX, text);
    T_EQ("the largest", name.bytes, 24);
}

static void test_memory(void)
{
    struct stk_container_options options = {.size = 1024};
    struct stk_container *container = NULL;
    struct stoker_error error = {0};

    stk_mem_fail_nth(1);
    T_EQ("no memory", stk_container_open(&container, &t_tiny_walk, &options, &error), -ENOMEM);
    stk_mem_fail_nth(0);
    T_TRUE("nothing is open", container == NULL);
}

int main(void)
{
    test_portions();
    test_refused();
    test_row_names();
    test_memory();
    return t_finish();
}
