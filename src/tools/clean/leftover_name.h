/* tools/clean/leftover_name.h: recognises the files that stoker leaves, by their names.
 * Owner: values. Threads: any. Memory: none. Bound: none. */
#ifndef TOOLS_CLEAN_LEFTOVER_NAME_H
#define TOOLS_CLEAN_LEFTOVER_NAME_H

#include <stoker/clean.h>

#include "base/base.h"

enum stk_clean_place {
    STK_CLEAN_DATA = 1,   /* a folder of the user */
    STK_CLEAN_CACHE = 2,  /* the cache folder */
    STK_CLEAN_NODE = 4,   /* STOKER_NODE_DIR */
    STK_CLEAN_FLIGHT = 8, /* the folder of single flights in it */
};

/* Returns an enum stoker_leftover_kind, or 0 if stoker leaves no file of this name there. */
uint32_t stk_leftover_kind(enum stk_clean_place place, const char *name, unsigned user);

#endif
