/* Reports which request to a store the process waits for. */
#include "base/options.h"
#include "io/clock.h"
#include "storage/http/wait_report.h"

#include <string.h>

int stoker_store_wait(struct stoker_store_wait *wait)
{
    struct stoker_store_wait full = {.attempt = 0};
    struct stk_wait_report report;
    uint64_t now_ns = stk_clock_ns();
    bool waits = stk_wait_report_read(&report);
    int status;

    if (waits) {
        full.attempt = report.attempt;
        full.waited_ns = now_ns - stk_min(now_ns, report.since_ns);
        memcpy(full.host, report.host, sizeof full.host);
    }
    status = stk_options_write_output(wait, &full, sizeof full, "store wait", NULL);
    return status < 0 ? status : waits;
}
