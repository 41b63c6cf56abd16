/* storage/http/wait_report.h: which request of this process has waited longest without a byte, so
 * that a program can tell its user what it waits for.
 *
 *   reactors --publish, a few times a second--> slots of the process <--read-- any thread
 *
 * Owner: the process. Threads: any. Memory: STK_WAIT_REPORT_SLOTS slots. Bound: further reactors do
 * not report. */
#ifndef STORAGE_HTTP_WAIT_REPORT_H
#define STORAGE_HTTP_WAIT_REPORT_H

#include "base/base.h"

#define STK_WAIT_REPORT_SLOTS 64u
#define STK_WAIT_REPORT_HOST_BYTES 128u
#define STK_WAIT_REPORT_STALE_MS 2000u /* older than the longest time between two sweeps */

struct stk_wait_report {
    uint64_t since_ns; /* of the last byte, or the start; 0: nothing waits */
    uint64_t published_ns;
    uint32_t attempt; /* from 1; 0: unknown */
    char host[STK_WAIT_REPORT_HOST_BYTES];
};

/* owner: any address that identifies a reactor. report NULL: it ends. */
void stk_wait_report_publish(const void *owner, const struct stk_wait_report *report);
/* The longest wait of all reactors. Returns false if nothing waits. */
bool stk_wait_report_read(struct stk_wait_report *report_out);

#endif
