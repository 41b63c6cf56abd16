/* The operations of the container interface, by the tar parser. */
#include "format/tar/tar_container.h"

#include "base/mem.h"
#include "format/tar/tar.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum { BLOCK_BYTES = 512, MAGIC_AT = 257 };

static_assert((int)STK_TAR_NEED == (int)STK_CONTAINER_NEED, "the same events");
static_assert((int)STK_TAR_MEMBER == (int)STK_CONTAINER_MEMBER, "the same events");
static_assert((int)STK_TAR_END == (int)STK_CONTAINER_END, "the same events");

struct tar_container {
    struct stk_container base; /* first */
    struct stk_tar *parser;    /* owned */
};

static struct stk_tar *parser_of(const struct stk_container *container)
{
    return ((const struct tar_container *)(const void *)container)->parser;
}

/* By the name only: old tars have no magic number, and the parser reports files that are no tars.
 */
static bool matches(const char *path, struct stk_view head)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    (void)head;
    return strstr(name, ".tar") != NULL || strstr(name, ".tgz") != NULL;
}

static void close_container(struct stk_container *container)
{
    stk_tar_close(parser_of(container));
    stk_free(container);
}

static int open_parser(struct stk_tar **parser_out, const struct stk_container_options *options,
                       struct stoker_error *error)
{
    struct stk_tar_limits limits = {options->name_bytes_max, options->header_bytes_max};

    return stk_tar_open(parser_out, options->size, &limits, error);
}

static int open_container(struct stk_container **container_out,
                          const struct stk_container_options *options, struct stoker_error *error)
{
    struct tar_container *tar = stk_alloc(1, sizeof *tar);
    int status;

    *container_out = NULL;
    if (!tar) {
        return stk_fail(error, -ENOMEM, "no memory to read a tar", "free memory", "tar headers");
    }
    status = open_parser(&tar->parser, options, error);
    if (status < 0) {
        stk_free(tar);
        return status;
    }
    *container_out = &tar->base;
    return 0;
}

static uint32_t kind_of(uint8_t type)
{
    switch (type) {
    case '0':
        return STK_MEMBER_FILE;
    case '5':
        return STK_MEMBER_DIRECTORY;
    case '1':
        return STK_MEMBER_HARD_LINK;
    case '2':
        return STK_MEMBER_LINK;
    default:
        return STK_MEMBER_OTHER;
    }
}

static int next_step(struct stk_container *container, struct stk_view bytes,
                     struct stk_container_step *step_out, struct stoker_error *error)
{
    struct stk_tar_step step;
    int status = stk_tar_step(parser_of(container), bytes, &step, error);

    *step_out = (struct stk_container_step){
        .event = step.event,
        .kind = step.type == '0' ? STK_MEMBER_FILE
                : step.type      ? kind_of(step.type)
                                 : 0,
        .offset = step.offset,
        .bytes = step.bytes,
        .header = step.header,
        .name = step.name,
        .link = step.link,
    };
    return status;
}

static void start_at(struct stk_container *container, uint64_t offset)
{
    stk_tar_start_at(parser_of(container), offset);
}

static bool is_independent(const struct stk_container *container)
{
    return !stk_tar_has_globals(parser_of(container));
}

/* An extended header may stand before this header, so the result is the member after it. */
static uint64_t find_start(const struct stk_container_options *options, uint64_t offset,
                           struct stk_view block)
{
    struct stk_tar_step step = {0};
    struct stk_tar *parser = NULL;
    uint64_t start = 0;

    if (block.bytes < BLOCK_BYTES || memcmp(block.data + MAGIC_AT, "ustar", 5) != 0 ||
        !stk_tar_is_header(block.data) || open_parser(&parser, options, NULL) < 0) {
        return 0;
    }
    stk_tar_start_at(parser, offset);
    block.bytes = BLOCK_BYTES;
    if (stk_tar_step(parser, (struct stk_view){NULL, 0}, &step, NULL) == 0 &&
        stk_tar_step(parser, block, &step, NULL) == 0) {
        start = step.event == STK_TAR_MEMBER ? stk_round_up(step.offset + step.bytes, BLOCK_BYTES)
                                             : offset;
    }
    stk_tar_close(parser);
    return start;
}

static const char *const endings[] = {".tar",     ".tar.gz", ".tgz", ".tar.zst",
                                      ".tar.bz2", ".tar.xz", NULL};

const struct stk_container_format stk_tar_container = {
    .name = "tar",
    .endings = endings,
    .block_bytes = BLOCK_BYTES,
    .matches = matches,
    .open = open_container,
    .step = next_step,
    .close = close_container,
    .start_at = start_at,
    .is_independent = is_independent,
    .find_start = find_start,
};
