/* Goal: a shard's format is found by its name and its first bytes; unknown ones are read as tar.
 * Method: a table of formats with those of test/tiny.h, and a table of paths and begins. */
#include "format/detect/container_detect.h"

#include "format/tar/tar_container.h"
#include "test/t.h"
#include "test/tiny.h"

#include <string.h>

static void test_detect(void)
{
    static const struct stk_container_format *const formats[] = {&stk_tar_container, &t_tiny_walk,
                                                                 &t_tiny_footer, NULL};
    static const struct row {
        const char *path, *head;
        const struct stk_container_format *want;
    } rows[] = {
        {"/d/a.tar", "TINY", &stk_tar_container},
        {"s3://b/a.tar.gz?x=1", "", &stk_tar_container},
        {"/data.tar/a.bin", "TINYxxxx", &t_tiny_walk},
        {"a", "TINF", &t_tiny_footer},
        {"a", "TIN", &stk_tar_container}, /* the default */
        {"a.tgz", "", &stk_tar_container},
    };

    T_EACH(row, row, rows)
    {
        struct stk_view head = {(const uint8_t *)row->head, strlen(row->head)};

        T_TRUE(row->path, stk_container_detect(formats, row->path, head) == row->want);
    }
    T_TRUE("the table", stk_container_detect(stk_container_formats, "a", (struct stk_view){0}) ==
                            &stk_tar_container);
}

static void test_endings(void)
{
    static const struct stk_container_format *const formats[] = {&stk_tar_container, &t_tiny_walk,
                                                                 NULL};
    const char *endings[STK_CONTAINER_ENDINGS_MAX];

    stk_container_endings(formats, endings);
    T_STR("first", endings[0], ".tar");
    T_STR("of the second format", endings[6], ".tiny");
    T_TRUE("the end", endings[8] == NULL);
}

int main(void)
{
    test_detect();
    test_endings();
    return t_finish();
}
