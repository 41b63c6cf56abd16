/* Calls the operations of a container format, and checks the rules for every format. */
#include "format/container.h"

#include <inttypes.h>
#include <stdio.h>

int stk_container_open(struct stk_container **container_out,
                       const struct stk_container_format *format,
                       const struct stk_container_options *options, struct stoker_error *error)
{
    int status;

    *container_out = NULL;
    if ((format->flags & STK_CONTAINER_FOOTER) && options->size == UINT64_MAX) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED,
                        "a compressed container cannot be read from its footer",
                        "decompress the file", "%s", format->name);
    }
    status = format->open(container_out, options, error);
    if (status == 0) {
        (*container_out)->format = format;
        (*container_out)->size = options->size;
    }
    return status;
}

void stk_container_close(struct stk_container *container)
{
    if (container) {
        container->format->close(container);
    }
}

int stk_container_step(struct stk_container *container, struct stk_view bytes,
                       struct stk_container_step *step_out, struct stoker_error *error)
{
    int status = container->format->step(container, bytes, step_out, error);

    if (status == 0 && step_out->event == STK_CONTAINER_NEED) {
        STK_ASSERT(step_out->bytes > 0);
        STK_ASSERT(step_out->offset <= container->size);
        STK_ASSERT(step_out->bytes <= container->size - step_out->offset);
    }
    return status;
}

void stk_container_start_at(struct stk_container *container, uint64_t offset)
{
    STK_ASSERT(container->format->find_start && offset <= container->size);
    container->format->start_at(container, offset);
}

bool stk_container_is_independent(const struct stk_container *container)
{
    return container->format->find_start && container->format->is_independent(container);
}

uint64_t stk_container_find_start(const struct stk_container_format *format,
                                  const struct stk_container_options *options, uint64_t offset,
                                  struct stk_view block)
{
    return format->find_start ? format->find_start(options, offset, block) : 0;
}

struct stk_view stk_container_row_name(const struct stk_container_format *format, uint64_t row,
                                       char text[STK_CONTAINER_ROW_NAME_BYTES])
{
    int bytes = snprintf(text, STK_CONTAINER_ROW_NAME_BYTES, "%09" PRIu64 ".%s", row,
                         format->row_extension);

    STK_ASSERT(bytes > 0 && bytes < STK_CONTAINER_ROW_NAME_BYTES);
    return (struct stk_view){(const uint8_t *)text, (size_t)bytes};
}
