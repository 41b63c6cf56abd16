/* The table of container formats. To add a format, add its folder to src/format and its row here.
 */
#include "format/detect/container_detect.h"

#include "format/tar/tar_container.h"

const struct stk_container_format *const stk_container_formats[] = {
    &stk_tar_container, /* the default: first */
    NULL,
};

const struct stk_container_format *
stk_container_detect(const struct stk_container_format *const *formats, const char *path,
                     struct stk_view head)
{
    for (const struct stk_container_format *const *row = formats; *row; row++) {
        if ((*row)->matches(path, head)) {
            return *row;
        }
    }
    return formats[0];
}

void stk_container_endings(const struct stk_container_format *const *formats,
                           const char *endings_out[STK_CONTAINER_ENDINGS_MAX])
{
    size_t count = 0;

    for (; *formats; formats++) {
        for (const char *const *ending = (*formats)->endings; ending && *ending; ending++) {
            STK_ASSERT(count + 1 < STK_CONTAINER_ENDINGS_MAX);
            endings_out[count++] = *ending;
        }
    }
    endings_out[count] = NULL;
}
