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
