/* test/tiny.h: two container formats that only tests know, in addition to tar: they show the
 * requirements of the container interface, and that the product reads a format that it does not
 * know.
 *
 *   walk:   "TINY" (record)*                record: name bytes, data bytes, CRC32C (u32 each),
 * name, data
 *   footer: "TINF" (data)* (entry)* count "TINF"   entry: a record without data, and its data's
 * offset
 *
 * A record without a name is a row. Numbers are little-endian. Owner: the test frees with
 * t_tiny_free. Threads: one. Memory: grows. Bound: T_TINY_MEMBERS_MAX. */
#ifndef TEST_TINY_H
#define TEST_TINY_H

#include "format/container.h"

enum { T_TINY_MEMBERS_MAX = 64 };

extern const struct stk_container_format t_tiny_walk, t_tiny_footer;
/* Walk with the flag STK_CONTAINER_SEQUENTIAL. */
extern const struct stk_container_format t_tiny_sequential;

struct t_tiny {
    bool has_footer;
    uint8_t *data;
    size_t bytes;
    uint8_t entries[4096];
    size_t entries_bytes;
    uint32_t count;
};

void t_tiny_begin(struct t_tiny *tiny, bool has_footer);
/* name NULL: a row. */
void t_tiny_add(struct t_tiny *tiny, const char *name, const void *data, size_t bytes);
void t_tiny_end(struct t_tiny *tiny);
void t_tiny_free(struct t_tiny *tiny);

#endif
