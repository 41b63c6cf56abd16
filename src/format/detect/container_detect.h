/* format/detect/container_detect.h: the table of container formats, and which one a shard has.
 *
 *   path, first bytes -> the first row that matches, else tar
 *
 * Pure. Owner: none; the rows are constant. Threads: any. Memory: none. Bound: none. */
#ifndef FORMAT_DETECT_CONTAINER_DETECT_H
#define FORMAT_DETECT_CONTAINER_DETECT_H

#include "format/container.h"

/* The rows, and NULL after them. */
extern const struct stk_container_format *const stk_container_formats[];

/* Returns the format of a shard, by a table that ends with NULL. `head`: the first bytes of the
 * decompressed shard, at most STK_CONTAINER_HEAD_BYTES. If no row matches, returns the first row,
 * whose reader then reports what is wrong. */
const struct stk_container_format *
stk_container_detect(const struct stk_container_format *const *formats, const char *path,
                     struct stk_view head);

/* Collects the endings of all formats of a table, and NULL after them. */
void stk_container_endings(const struct stk_container_format *const *formats,
                           const char *endings_out[STK_CONTAINER_ENDINGS_MAX]);

#endif
