/* io/read_list.h: a list of finished reads, and the limits of reads, which all implementations of
 * io/io.h share.
 * Owner: a queue. Threads: that of the queue. Memory: none; the list links the caller's reads.
 * Bound: the limits defined here. */
#ifndef IO_READ_LIST_H
#define IO_READ_LIST_H

#include "io/io.h"

#define STK_DEPTH_DEFAULT 128u
#define STK_DEPTH_MAX 4096u
#define STK_TIMEOUT_DEFAULT_MS 30000u
/* STOKER_DIRECT_AUTO: smaller files are read through the page cache. */
#define STK_DIRECT_BYTES_MIN (1u << 20)
/* Closing a queue waits as long as reads finish at least this often, but never longer than MAX. */
#define STK_CLOSE_QUIET_MS 100u
#define STK_CLOSE_WAIT_MS_MAX 2000u

/* Finished reads in order. The `next` of the last read is written only when another read is added
 * or the list is taken, since the submitter may still iterate over the list that it submitted. */
struct stk_read_list {
    struct stk_read *first, *last;
};

static inline void stk_read_list_add(struct stk_read_list *list, struct stk_read *read)
{
    if (list->last) {
        list->last->next = read;
    } else {
        list->first = read;
    }
    list->last = read;
}

static inline struct stk_read *stk_read_list_take(struct stk_read_list *list)
{
    struct stk_read *first = list->first;

    if (list->last) {
        list->last->next = NULL;
    }
    *list = (struct stk_read_list){0};
    return first;
}

#endif
