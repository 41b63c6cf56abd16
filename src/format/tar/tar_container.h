/* format/tar/tar_container.h: tar as a container format. The parser itself is format/tar/tar.h.
 *
 * Any member's header can be found by its checksum, so a tar can be scanned from several members at
 * once, until a global header.
 * Pure. Owner: none; constant. Threads: any. Memory: a parser per container. Bound: see tar.h. */
#ifndef FORMAT_TAR_TAR_CONTAINER_H
#define FORMAT_TAR_TAR_CONTAINER_H

#include "format/container.h"

extern const struct stk_container_format stk_tar_container;

#endif
